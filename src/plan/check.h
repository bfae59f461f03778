/* Shared by the files of the plan check only. */
#pragma once

#include "plan/plan.h"

/* A list of steps whose buffers have no place yet: I1 and I3, but for what is live. */
[[nodiscard]] bool wf_check_list(const struct wf_plan *p, struct wf_err *err);
/* check_reads.c: I1, and that slots are inside their buffers. */
[[nodiscard]] bool wf_check_reads(const struct wf_plan *p, struct wf_err *err);
/* check_turns.c: I7, I8. */
[[nodiscard]] bool wf_check_turns(const struct wf_plan *p, struct wf_err *err);

/* Always false. */
bool wf_check_broken(struct wf_err *err, int invariant, const char *what, const char *name,
                     int step);
const char *wf_check_name(const struct wf_plan *p, int buffer);
/* The slot's box in its buffer's own coordinates: views of one buffer have the strides of all of
 * it. */
struct wf_region wf_check_box(const struct wf_slot *slot);
