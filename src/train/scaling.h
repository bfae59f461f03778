/*
 * Scaling on paper: the same step planned over more and more devices.
 *
 * For each number of devices the most promising meshes of data, space and pipe are planned, the best of each
 * mixture of axes among them. Of a mesh only some typical ranks are planned, of each stage its corners and its
 * middle: all others have parts of the same shape. So a thousand devices take seconds.
 *
 *     struct wf_scaling s = { .job = job, .devices = 64 };        job: of one rank, with any_size
 *     if (wf_scaling_run(&s, err)) ... s.rows[0] is the best ...
 */
#pragma once

#include "train/job.h"

struct wf_scaling_row {
    struct wf_mesh mesh;
    double seconds;          /* of a step */
    double compute, waiting; /* of the slowest rank: at work; waiting for others */
    double bubble;
    size_t bytes;                     /* of the rank that takes most: step, weights, optimiser */
    size_t fetch_bytes, reduce_bytes; /* of the rank that fetches, or sums, most */
    bool fits;                        /* into memory.limit */
};

enum { WF_SCALING_ROWS = 12 };

struct wf_scaling {
    const struct wf_job *job;
    int devices;
    /* results: the best first, then by seconds */
    struct wf_scaling_row rows[WF_SCALING_ROWS];
    int n_rows;
};

/* Which of data (1), pipe (2) and space (4) a mesh cuts. */
int wf_scaling_kind(const struct wf_mesh *mesh);
/* Fails with WF_ERR_FIT where no mesh of so many devices can be. */
[[nodiscard]] bool wf_scaling_run(struct wf_scaling *s, struct wf_err *err);
