/* Bringing together what ranks hold, in the outside layout: for dumps and comparisons. */
#pragma once

#include "exec/run.h"

/* Collective. All of `value` on rank 0 as packed f32 in the order of [N, C, *spatial]; `all` has
 * room for it there and is not read elsewhere. */
[[nodiscard]] bool wf_gather(const struct wf_run *run, struct wf_comm *comm,
                             const struct wf_value *value, float *all, struct wf_err *err);

/* This rank's own box of the value as packed f32 into `all`, at its places in the outside order. */
void wf_export_view(const struct wf_value *value, const struct wf_view *view, float *all);
