/*
 * A run: a plan with memory and a comm. It walks the steps and knows no operator by name.
 *
 * All memory is allocated when the run is created: one block per store. wf_run_step() allocates
 * nothing. The plan must outlive the run; the comm is borrowed and must have as many ranks as the
 * mesh.
 *
 *     struct wf_run *run = wf_run_new(plan, comm, seed, &err);            Collective.
 *     struct wf_host x = { 0 };
 *     wf_run_map(run, wf_graph_find(g, "image"), &x);      fill x.view (global coordinates)
 *     wf_host_put(&x);
 *     if (!wf_run_step(run, &err)) ...                                    Collective.
 *     if (!wf_run_get_number(run, loss_value, 0, &loss, &err)) ...
 */
#pragma once

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
/* Collective. A run of another plan with the same weights, such as that of a smaller batch:
 * parameters, gradients and states are the lender's, and so is its arena where that is large
 * enough, unless both have inputs at once (`apart`). The two take turns, and the lender is freed last. NULL
 * on failure, on every rank. */
struct wf_run *wf_run_new_beside(struct wf_run *lender, const struct wf_plan *plan, bool apart,
                                 struct wf_err *err);
/* The same of a plan for one rank, whoever the lender runs with; it holds all weights that the plan has. */
struct wf_run *wf_run_new_alone(struct wf_run *lender, const struct wf_plan *plan,
                                struct wf_comm *self, struct wf_err *err);
/* Weights, gradients and states only, for a server, which takes no steps. Its plan may be any
 * rank's. */
struct wf_run *wf_run_new_store(const struct wf_plan *plan, struct wf_err *err);
void wf_run_free(struct wf_run *run);

/* Of a plan for several micro-batches: from now on what is said below of inputs and outputs is of this one
 * of them. */
void wf_run_select(struct wf_run *run, int micro);
/* The next steps have so many of them; at first all. */
void wf_run_set_count(struct wf_run *run, int count);

/* Gradients of several micro-batches make one step: each adds its own to the `sum` of those before
 * it, and with the last of them the total is summed over ranks, where gradients are. Where another
 * run has the rest of the step (it may sum over other ranks), the total goes to `sum`, and the other
 * run adds it to its own. */
struct wf_run_carry {
    float *sum;     /* as many elements as gradients, in device memory; NULL: there is one */
    bool has_begun; /* another run's total is in it; this one has one micro-batch */
    bool goes_on;   /* another run has the rest of the step */
};
void wf_run_set_carry(struct wf_run *run, const struct wf_run_carry *carry);

/* From now on gradients are not summed over ranks: each rank has a partial gradient (rank-local),
 * and the sum over all ranks is the gradient. In host memory only. */
void wf_run_keep_parts(struct wf_run *run);

/* The view of an input, weight, state or output on this rank: inputs are filled over the whole box
 * (owned part and halo) before a step, outputs are valid over the owned region after it. data is
 * NULL when the rank has no part of it, and points into device memory: it may be dereferenced only
 * if that is host memory (wf_device_is_host). */
struct wf_view wf_run_view(const struct wf_run *run, const struct wf_value *value);
/* The buffer of the next step's input until it is taken; data is NULL if there is none. */
struct wf_view wf_run_view_next(const struct wf_run *run, const struct wf_value *value);
/* The part of it that this rank owns (for reading outputs without overlap). */
struct wf_view wf_run_owned(const struct wf_run *run, const struct wf_value *value);

/* The same from the host, on any device (exec/host.h: on the CPU nothing is copied). map: to be
 * filled and then put; get: the value after the steps so far. */
void wf_run_map(const struct wf_run *run, const struct wf_value *value, struct wf_host *host);
[[nodiscard]] bool wf_run_get(const struct wf_run *run, const struct wf_value *value,
                              struct wf_host *host, struct wf_err *err);
[[nodiscard]] bool wf_run_get_owned(const struct wf_run *run, const struct wf_value *value,
                                    struct wf_host *host, struct wf_err *err);
/* An element of a small value, such as a loss. Collective where not all ranks hold it. */
[[nodiscard]] bool wf_run_get_number(const struct wf_run *run, const struct wf_value *value,
                                     int64_t index, double *number, struct wf_err *err);
/* An input of the next step, if the plan has a buffer for it (wf_plan_options.ahead) and the device
 * copies in parallel to its work: mapped, filled and sent (wf_host_send) while a step runs, taken
 * before its own step. */
bool wf_run_can_send(const struct wf_run *run);
void wf_run_map_next(const struct wf_run *run, const struct wf_value *value, struct wf_host *host);
void wf_run_take_next(struct wf_run *run, const struct wf_value *value);
const struct wf_device *wf_run_device(const struct wf_run *run);
struct wf_context *wf_run_context(const struct wf_run *run);

/* The flat stores, f32, in device memory: parameters and gradients at the same offsets. */
float *wf_run_params(struct wf_run *run);
float *wf_run_grads(struct wf_run *run);
size_t wf_run_param_count(const struct wf_run *run); /* elements, with the gaps of alignment */
/* Of these, in front, elements of weights that are trained: so many have gradients. */
size_t wf_run_trained_count(const struct wf_run *run);
float *wf_run_states(struct wf_run *run); /* running statistics, f32 */
size_t wf_run_state_count(const struct wf_run *run);
/* Fills an input that is packed and whole on this rank, such as a scalar that controls the step. */
void wf_run_put(struct wf_run *run, const struct wf_value *value, const void *data);
const struct wf_plan *wf_run_plan(const struct wf_run *run);

/* Collective. A pass over the plan for every micro-batch, in the order of its turns. A rank that fails aborts
 * the others. */
[[nodiscard]] bool wf_run_step(struct wf_run *run, struct wf_err *err);
/* Waits until the device has completed all work; fails if any of it failed. */
[[nodiscard]] bool wf_run_wait(struct wf_run *run, struct wf_err *err);
/* The index of the next micro-batch, from 0: for dropout in a resumed run. */
void wf_run_set_step(struct wf_run *run, uint64_t step);
struct wf_run_times wf_run_times(const struct wf_run *run);
/* On a device with its own clock: passes are timed there, step by step, and wait for it. */
void wf_run_set_profiled(struct wf_run *run, bool profiled);
/* For each step of the plan in the last pass: its seconds, and its start relative to the start of
 * the pass. */
const double *wf_run_step_seconds(const struct wf_run *run);
const double *wf_run_step_starts(const struct wf_run *run);
/* For each turn of the plan in the last step: when it began, from the beginning of the step, and how long it
 * took. */
const double *wf_run_turn_starts(const struct wf_run *run);
const double *wf_run_turn_seconds(const struct wf_run *run);
/* Bytes allocated for the arena and the stores. */
size_t wf_run_bytes(const struct wf_run *run);

/* Initialises every parameter and state by its rule: Philox keyed by (seed, name, element in
 * PyTorch's order), so that weights do not depend on the mesh or on other layers. */
void wf_run_init_weights(struct wf_run *run, uint64_t seed);
