/*
 * The mask of dropout, for the reference and every fast kernel.
 *
 * Element i of the value is kept exactly when number i of the stream (seed mixed with the step,
 * hash of the layer's name) is at least p. i counts the elements of the *whole* value in
 * [N, D, H, W, C] order: the mask does not depend on the mesh, and the backward pass finds it again
 * without storing it.
 */
#pragma once

#include <stdbool.h>

#include "base/random.h"
#include "ops/attrs.h"

/* The finaliser of SplitMix64: neighbouring steps get unrelated keys. */
static inline uint64_t wf_dropout_mix(uint64_t step)
{
    uint64_t z = step + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline struct wf_random wf_dropout_random(const struct wf_dropout_attrs *a, uint64_t seed,
                                                 uint64_t step)
{
    return wf_random(seed ^ wf_dropout_mix(step), (uint64_t)a->stream);
}

/* A number for a place, of `width` coordinates; times the channels it is where the random numbers of a point begin. */
static inline uint64_t wf_dropout_place(const int32_t *at, int64_t width)
{
    uint64_t h = 0;
    for (int64_t d = 0; d < width; d++)
        h = wf_dropout_mix(h ^ (uint32_t)at[d]);
    return h;
}

static inline bool wf_dropout_keeps(const struct wf_dropout_attrs *a, struct wf_random r,
                                    uint64_t index)
{
    return (double)wf_random_uniform(r, index) >= a->p;
}
