/*
 * What a calibration runs: small networks of `model list`, and layers that others have. Together their kernels
 * cover the plane of positions and channels that trainings meet, on a device of that kind.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A layer of any kernel between two others: [1x1, norm], [layer, norm], 1x1. */
struct wf_trial_layer {
    int64_t in, out, kernel, stride, groups;
    bool sample_norm, residual;
};

struct wf_trial {
    const char *model; /* NULL: a layer */
    int dims;
    int64_t base, depth, n, in, extent, points;
    struct wf_trial_layer layer;
};

enum { WF_TRIALS = 128 }; /* at most */

struct wf_trials {
    const struct wf_trial *at;
    int count;
};

/* For the host's cores, or for a GPU. */
struct wf_trials wf_trials(bool host);
