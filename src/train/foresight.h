/*
 * Foresight: what a training will take, from its plans and the figures of the machine (train/machine.h).
 * Nothing runs.
 *
 * Time: a step is the plan of all ranks with the update behind it; an epoch is its steps and its validation,
 * without waiting for input and without checkpoints, which are written beside it. Memory: what each rank holds
 * of its device while it trains: step, weights, optimiser, validation, the smaller last batch, and on the CPU
 * the snapshot that rank 0 keeps for checkpoints. A process takes more of the host: its program and libraries,
 * the plans of its ranks, their stacks and primitives, batches that are read ahead and decoded images that stay in
 * memory (data.cache). On a GPU the libraries take most of it, and weights and inputs pass through the host.
 */
#pragma once

#include "train/all_ranks.h"
#include "train/job.h"

struct wf_training;

/* Of host memory, beside what is planned: of a process, of each rank that is a thread in it, of each step of its
 * plans, as measured. */
enum {
    WF_HOST_PROCESS_BYTES = 24 << 20,
    WF_HOST_RANK_BYTES = 1 << 20,
    WF_HOST_STEP_BYTES = 7 << 10,
};

/* Seconds; those of an epoch where there is a dataset, else 0. */
struct wf_foretold {
    double step, validation, epoch;
    int64_t steps, valid_steps;
    int references; /* kernels of rank 0 that the device has none of its own for */
};

struct wf_foresight {
    struct wf_arena arena;
    struct wf_foretold times;
    size_t *bytes;                /* per rank: of its device */
    size_t bytes_with_validation; /* of the rank that takes most */
    size_t input_bytes;           /* of the host: batches read ahead, decoded images */
    size_t host_bytes;            /* of a process with all ranks, or on a GPU with one of them */
    size_t library_bytes;         /* of host_bytes: wf_settings_library_bytes() */
};

/* `training` is prepared; NULL: a step alone. */
[[nodiscard]] bool wf_foresight_init(struct wf_foresight *f, const struct wf_job *job,
                                     const struct wf_all_ranks *all,
                                     const struct wf_training *training, struct wf_err *err);
void wf_foresight_release(struct wf_foresight *f);

/* A step of these ranks, with the update behind it. Ranks of this machine that are more than its cores take turns on them,
 * unless the job is never run. */
double wf_foresight_step(const struct wf_job *job, const struct wf_all_ranks *all);
/* An epoch, from its steps and its validation, whose ranks have a core each until then. */
void wf_foretold_epoch(struct wf_foretold *f, const struct wf_job *job);
/* Validation of whole images in windows. */
void wf_foretold_windows(struct wf_foretold *f, const struct wf_training *t);
