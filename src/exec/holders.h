/*
 * Tensors from the ranks that hold them, one at a time: for a file that one rank writes.
 *
 * Weights, states and the optimiser's arrays are held by the ranks that use them, and no rank need hold
 * all of them. Rank 0 asks for what it lacks, in any order and as often as it wants, while every other
 * rank serves. Where rank 0 holds everything (wf_run_is_whole) nobody serves.
 *
 *     if (wf_comm_rank(comm) == 0) {
 *         ok = wf_run_ask(run, 0, value, data, err) && ...;
 *         ok = wf_run_ask_end(run, err) && ok;
 *     } else {
 *         ok = wf_run_serve(run, arrays, n, err);
 *     }
 *
 * Arrays are numbered: 0 the parameters, 1 the states, and from 2 on arrays with the parameters' places.
 */
#pragma once

#include "exec/run.h"

/* Whether rank 0 holds every weight and state. The same answer on all ranks. */
bool wf_run_is_whole(const struct wf_run *run);

/* Rank 0: the tensor's elements in our layout, from the first rank that holds it. */
[[nodiscard]] bool wf_run_ask(const struct wf_run *run, int array, const struct wf_value *value,
                              float *data, struct wf_err *err);
/* Rank 0: lets the others go on. */
[[nodiscard]] bool wf_run_ask_end(const struct wf_run *run, struct wf_err *err);
/* All others. `more` are the arrays from 2 on, in the device's memory. */
[[nodiscard]] bool wf_run_serve(struct wf_run *run, float *const more[], int n, struct wf_err *err);
