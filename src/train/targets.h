/*
 * The target domains of a training run: their datasets, and the networks that are validated on them.
 *
 *     struct wf_targets targets = { 0 };
 *     ok = wf_targets_open(&targets, &feed, job, err);              Collective under a launcher.
 *     struct wf_loader_options o = wf_target_loader(&feed, &job->net, 1);
 *     wf_targets_release(&targets);
 *
 * A process opens the dataset of a domain if one of its ranks has images of that domain; what the others
 * have to know of it they hear from those. Labels of targets are for metrics alone: they are read in
 * validation, where there are some of the network's kind, and never in training.
 */
#pragma once

#include "train/feed.h"

struct wf_target {
    const char *path;
    struct wf_dataset *dataset;        /* NULL: not opened here */
    struct wf_fingerprint fingerprint; /* where it is open */
    const char *data;                  /* its text, on all ranks */
    int64_t samples, valid;            /* of the dataset; of its validation part */
    int64_t whole[WF_AXES]; /* D, H, W that all images of that part have; 0: they differ */
    bool is_scored;         /* it has labels of the network's kind */
    struct wf_network net;  /* that is validated; graph NULL: it is not */
    struct wf_global_plan *global;
};

struct wf_targets {
    struct wf_arena arena;
    struct wf_target *at;
    int n;
    /* To look at reconstructions and codes of all domains, the first included; graph NULL: nobody does. */
    struct wf_network net;
    struct wf_domain_views *views;
    struct wf_global_plan *global;
};

/* Whether data.domains has a folder for each domain of the network. */
[[nodiscard]] bool wf_targets_check(const struct wf_settings *settings, struct wf_err *err);
/* Collective under a launcher. Opens what the ranks of this process have images of, with loaders made to
 * see whether they can be; all that open a dataset have the same. */
[[nodiscard]] bool wf_targets_open(struct wf_targets *targets, const struct wf_feed *feed,
                                   const struct wf_job *job, struct wf_err *err);
/* Networks for validation on those that have labels to validate with, and to look at all of them. */
[[nodiscard]] bool wf_targets_plan(struct wf_targets *targets, const struct wf_feed *feed,
                                   const struct wf_job *job, struct wf_err *err);
void wf_targets_release(struct wf_targets *targets);

/* For training, of domain 1, 2, ...: an order of its own, normalised as the first domain. */
struct wf_loader_options wf_target_loader(const struct wf_feed *feed, const struct wf_network *net,
                                          int domain);
