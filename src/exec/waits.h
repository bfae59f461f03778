/*
 * Which steps of a part wait for which, by the memory that they touch: a recording of them (target.h, record) need
 * not run them one after the other. A step waits for an earlier one that writes what it reads or writes, or
 * reads what it writes. Counts of rows are memory too, one piece for each coordinate set.
 *
 * The plan's order remains an order in which they may run, so results do not depend on what runs beside what.
 */
#pragma once

#include "exec/run_inside.h"

struct wf_waits {
    int first;         /* the part's first step; numbers below are from it on */
    int *begin;        /* per step: of its list in `after`; and one behind the last */
    int *after;        /* steps; those that a step of the list waits for itself are left out */
    int *ends, n_ends; /* steps that none waits for */
};

/* In `arena`. Of a part whose steps all compute. */
const struct wf_waits *wf_waits_find(const struct wf_run *run, int part, struct wf_arena *arena);
