/*
 * The target domains of a training run: their datasets, on the ranks that have images of them.
 *
 *     struct wf_targets targets = { 0 };
 *     ok = wf_targets_open(&targets, &feed, job, err);              Collective under a launcher.
 *     struct wf_loader_options o = wf_target_loader(&feed, &job->net, 1);
 *     wf_targets_release(&targets);
 *
 * A process opens the dataset of a domain if one of its ranks has images of that domain; what the others
 * have to know of it they hear from those.
 */
#pragma once

#include "train/feed.h"

struct wf_target {
    const char *path;
    struct wf_dataset *dataset;        /* NULL: not opened here */
    struct wf_fingerprint fingerprint; /* where it is open */
    const char *data;                  /* its text, everywhere */
};

struct wf_targets {
    struct wf_arena arena;
    struct wf_target *at;
    int n;
};

/* Whether data.domains has a folder for each domain of the network. */
[[nodiscard]] bool wf_targets_check(const struct wf_settings *settings, struct wf_err *err);
/* Collective under a launcher. Opens what the ranks of this process have images of, with loaders made to
 * see whether they can be; all that open a dataset have the same. */
[[nodiscard]] bool wf_targets_open(struct wf_targets *targets, const struct wf_feed *feed,
                                   const struct wf_job *job, struct wf_err *err);
void wf_targets_release(struct wf_targets *targets);

/* For training, of domain 1, 2, ...: an order of its own, normalised as the first domain. */
struct wf_loader_options wf_target_loader(const struct wf_feed *feed, const struct wf_network *net,
                                          int domain);
