/*
 * What a rank has learned, in host memory, while its run is planned anew: weights, running statistics, and the
 * optimiser's arrays.
 *
 *     struct wf_carry *c = wf_carry_take(run, optim, err);
 *     ... another run of the same network on the same mesh ...
 *     wf_carry_give(c, run, optim);
 *     wf_carry_free(c);
 */
#pragma once

#include "optim/optim.h"

struct wf_carry;

/* NULL on failure. */
struct wf_carry *wf_carry_take(struct wf_run *run, const struct wf_optim *optim,
                               struct wf_err *err);
void wf_carry_give(const struct wf_carry *c, struct wf_run *run, struct wf_optim *optim);
void wf_carry_free(struct wf_carry *c);
