/*
 * A run: a plan with memory and ranks to talk to. It walks the steps and knows no operator by name.
 *
 * All memory is taken when the run is made: one block per store. wf_run_step() allocates nothing.
 * The plan must outlive the run; the comm is borrowed and must have as many ranks as the mesh.
 *
 *     struct wf_run *run = wf_run_new(plan, comm, seed, &err);            Collective.
 *     struct wf_host x = { 0 };
 *     wf_run_map(run, wf_graph_find(g, "image"), &x);      fill x.view (global coordinates)
 *     wf_host_put(&x);
 *     if (!wf_run_step(run, &err)) ...                                    Collective.
 *     if (!wf_run_get_number(run, loss_value, &loss, &err)) ...
 */
#ifndef WF_EXEC_RUN_H
#define WF_EXEC_RUN_H

#include "comm/comm.h"
#include "exec/host.h"
#include "plan/plan.h"

struct wf_run;

struct wf_run_times {
    double compute, comm; /* seconds of the last step; comm is what was not hidden */
};

/* Collective. NULL on failure, on every rank. */
struct wf_run *wf_run_new(const struct wf_plan *plan, struct wf_comm *comm, uint64_t seed,
                          struct wf_err *err);
/* Collective. A run of another plan with the same weights, such as that of a smaller batch: parameters,
 * gradients and states are the lender's, and so is its arena where that is large enough. The two take
 * turns, and the lender is freed last. NULL on failure, on every rank. */
struct wf_run *wf_run_new_beside(struct wf_run *lender, const struct wf_plan *plan,
                                 struct wf_err *err);
/* Weights, gradients and states alone, for who takes no steps: a server. Its plan may be any rank's. */
struct wf_run *wf_run_new_store(const struct wf_plan *plan, struct wf_err *err);
void wf_run_free(struct wf_run *run);

/* From now on gradients are not summed over ranks: what a step leaves on each is a part, and the sum of
 * all ranks' parts is the gradient. In the host's memory only. */
void wf_run_keep_parts(struct wf_run *run);

/* Where an input, weight, state or output lies on this rank: inputs are filled over the whole box
 * (own part and halo) before a step, outputs are right over the owned region after it. data is NULL
 * when the rank has no part of it, and points into the device's memory: only where that is the
 * host's (wf_device_is_host) may it be followed. */
struct wf_view wf_run_view(const struct wf_run *run, const struct wf_value *value);
/* Where the next step's input lies until it is taken; data is NULL where there is no room for it. */
struct wf_view wf_run_view_next(const struct wf_run *run, const struct wf_value *value);
/* The part of it that this rank owns (for reading outputs without overlap). */
struct wf_view wf_run_owned(const struct wf_run *run, const struct wf_value *value);

/* The same from the host, on any device (exec/host.h: on the CPU nothing is copied). map: to be
 * filled and then put; get: as the steps so far have left it. */
void wf_run_map(const struct wf_run *run, const struct wf_value *value, struct wf_host *host);
[[nodiscard]] bool wf_run_get(const struct wf_run *run, const struct wf_value *value,
                              struct wf_host *host, struct wf_err *err);
[[nodiscard]] bool wf_run_get_owned(const struct wf_run *run, const struct wf_value *value,
                                    struct wf_host *host, struct wf_err *err);
/* A value of one element, such as a loss. Collective where not all ranks hold it. */
[[nodiscard]] bool wf_run_get_number(const struct wf_run *run, const struct wf_value *value,
                                     double *number, struct wf_err *err);
/* An input of the next step, where the plan has room for it (wf_plan_options.ahead) and the device sends
 * beside its work: mapped, filled and sent (wf_host_send) while a step runs, taken in front of its own. */
bool wf_run_can_send(const struct wf_run *run);
void wf_run_map_next(const struct wf_run *run, const struct wf_value *value, struct wf_host *host);
void wf_run_take_next(struct wf_run *run, const struct wf_value *value);
const struct wf_device *wf_run_device(const struct wf_run *run);
struct wf_context *wf_run_context(const struct wf_run *run);

/* The flat stores, f32, in the device's memory: parameters and gradients at the same places. */
float *wf_run_params(struct wf_run *run);
float *wf_run_grads(struct wf_run *run);
size_t wf_run_param_count(const struct wf_run *run); /* elements, with the gaps of alignment */
float *wf_run_states(struct wf_run *run);            /* running statistics, f32 */
size_t wf_run_state_count(const struct wf_run *run);
/* Fills an input that lies packed and whole on this rank, such as a number that steers the step. */
void wf_run_put(struct wf_run *run, const struct wf_value *value, const void *data);
const struct wf_plan *wf_run_plan(const struct wf_run *run);

/* Goes on with another plan of the same graph for one rank, such as that of the next window: weights
 * and states stay as they are, everything else is lost. Memory grows where it must. After a failure
 * only wf_run_free() may follow. */
[[nodiscard]] bool wf_run_change_plan(struct wf_run *run, const struct wf_plan *plan,
                                      struct wf_err *err);

/* Collective. One pass over the plan. A rank that fails tells the others to give up. */
[[nodiscard]] bool wf_run_step(struct wf_run *run, struct wf_err *err);
/* Waits until the device has done all it was given; fails where any of it failed. */
[[nodiscard]] bool wf_run_wait(struct wf_run *run, struct wf_err *err);
/* Which step comes next, from 0: for dropout, where a run goes on from a checkpoint. */
void wf_run_set_step(struct wf_run *run, uint64_t step);
struct wf_run_times wf_run_times(const struct wf_run *run);
/* On a device with a clock of its own: passes are timed there, step by step, and wait for it. */
void wf_run_set_profiled(struct wf_run *run, bool profiled);
/* Of each step of the plan in the last pass: how many seconds it took, and when it began, from the
 * beginning of the pass. */
const double *wf_run_step_seconds(const struct wf_run *run);
const double *wf_run_step_starts(const struct wf_run *run);
/* Bytes taken for the arena and the stores. */
size_t wf_run_bytes(const struct wf_run *run);

/* Seeds every parameter and state by its rule: Philox keyed by (seed, name, element in
 * PyTorch's order), so that weights do not depend on the mesh or on other layers. */
void wf_run_init_weights(struct wf_run *run, uint64_t seed);

#endif
