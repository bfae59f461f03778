/*
 * Points to voxels: each place of a grid once, with what its points say together.
 *
 * A point lies in the voxel floor(position / voxel), axis by axis. Voxels are in the order of their first
 * points. What comes out depends on the points and their order alone, not on the machine.
 *
 *     struct wf_voxels v;
 *     if (!wf_quantise(&(struct wf_quantise){ .dims = 3, .n = n, .points = at, .voxel = 0.02,
 *                                             .channels = 3, .features = colours }, &v, err))
 *         return wf_err_wrap(err, "'%s'", path);
 *     ... v.coords, v.features; v.voxel[i] is the voxel of point i ...
 *     wf_voxels_release(&v);
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum { WF_QUANTISE_AXES = 6 };

/* What becomes of the features of points in one voxel. */
enum wf_quantise_mode {
    WF_QUANTISE_AVERAGE,
    WF_QUANTISE_SUM,
    WF_QUANTISE_MAX,    /* of each channel */
    WF_QUANTISE_RANDOM, /* those of one point, drawn by the seed */
};

struct wf_quantise {
    int dims; /* 1 to WF_QUANTISE_AXES */
    int64_t n, channels;
    const double *points;  /* [n][dims] */
    const float *features; /* [n][channels]; NULL: none */
    const int32_t *labels; /* [n]; NULL: none */
    double voxel;          /* edge of a voxel; 0: 1 */
    int32_t ignore;        /* the label of a voxel whose points have different ones */
    enum wf_quantise_mode mode;
    uint64_t seed; /* of WF_QUANTISE_RANDOM */
};

struct wf_voxels {
    int64_t n;
    int32_t *coords; /* [n][dims] */
    float *features; /* [n][channels], or NULL */
    int32_t *labels; /* [n], or NULL */
    int32_t *voxel;  /* per point: its voxel */
};

/* Fails on positions that are not finite, or beyond int32 in voxels (the message names the point), and
 * without memory. No points are no voxels. */
[[nodiscard]] bool wf_quantise(const struct wf_quantise *q, struct wf_voxels *v,
                               struct wf_err *err);
void wf_voxels_release(struct wf_voxels *v);
