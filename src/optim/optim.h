/*
 * The optimiser: a rule, its state, and the numbers of each step.
 *
 *     struct wf_optim_options o = wf_optim_defaults(WF_ADAM);
 *     o.lr = 1e-3;
 *     struct wf_optim *optim = wf_optim_new(&o, run, err);
 *     wf_optim_update(optim, wf_run_params(run), wf_run_grads(run), 1);
 *
 * Options are taken as they are: a momentum of 0 is 0; wf_optim_defaults() has the usual values.
 * Formulas are in device/update.h, their sources in docs/training.md; the conventions are
 * PyTorch's.
 *
 * What is updated: every parameter that is not frozen and has a gradient. One that the loss does
 * not depend on is not changed, not even by weight decay or momentum, as PyTorch does with a
 * gradient of None. State and gradients are flat arrays with the offsets of the parameters, in
 * device memory.
 */
#pragma once

#include "device/update.h"
#include "exec/run.h"

struct wf_optim_options {
    enum wf_optim_rule rule;
    double lr;
    double momentum;          /* momentum, Nesterov, LARS, RMSprop */
    double beta1, beta2, eps; /* Adam, AdamW, LAMB; RMSprop's decay is beta2 */
    double weight_decay; /* AdamW and LAMB apply it to the weight, the others to the gradient */
    double trust;        /* LARS: of the weight's norm */
    bool matrices_only;  /* no decay and no trust ratio for vectors: biases, norms */
    bool accumulates;    /* several micro-batches: allocate the sum of their gradients */
};

struct wf_optim {
    struct wf_optim_options options;
    const struct wf_device *device;
    struct wf_context *context;
    double lr;    /* of the next update; a schedule changes it */
    size_t count; /* elements of each array */
    int n_states;
    float *states[WF_UPDATE_STATES];
    float *sum;   /* of micro-batches' gradients (wf_run_carry); NULL unless options.accumulates */
    int64_t step; /* updates done */
    double squares; /* of the last update, on devices that wait for it */
    int n_tensors;
    void *prepared; /* the device's */
    void *counted; /* likewise, of the tensors that this rank counts in a norm; NULL: all of them */
};

/* The rule with its usual numbers: PyTorch's, or the papers' for LAMB and LARS. */
struct wf_optim_options wf_optim_defaults(enum wf_optim_rule rule);
extern const char *const wf_optim_names[]; /* by rule; ends with NULL */
/* Number of state arrays. */
int wf_optim_states(const struct wf_optim_options *options);
/* Bytes that `count` elements need: part of the planned memory. */
size_t wf_optim_bytes(const struct wf_optim_options *options, size_t count);

/* What an update of so many elements is to the cost model (plan/figures.h). */
struct wf_load wf_optim_load(const struct wf_optim_options *options, size_t count);

/* For the parameters of a run. NULL when there is no memory. */
struct wf_optim *wf_optim_new(const struct wf_optim_options *options, const struct wf_run *run,
                              struct wf_err *err);
/* For plain arrays of `count` elements; the tensors' pieces are filled in here. */
struct wf_optim *wf_optim_new_flat(const struct wf_optim_options *options,
                                   const struct wf_device *device, struct wf_context *context,
                                   size_t count, int n_tensors,
                                   const struct wf_update_tensor tensors[], struct wf_err *err);
void wf_optim_free(struct wf_optim *optim);

/* Sum of squares over all that is updated; not finite where a gradient is not. Where ranks hold different
 * parameters (optim->counted) it is this rank's part of that: each parameter counts on one rank. */
double wf_optim_squares(struct wf_optim *optim, const float *grads);
/* One update with `scale` times the gradients. */
void wf_optim_update(struct wf_optim *optim, float *params, const float *grads, double scale);
/* Likewise, with gradients clipped to a norm of `clip` (0: any) and no update where one is not finite. A device that
 * can does not wait for anything; wf_optim_read() afterwards gives the sum of squares. */
void wf_optim_update_clipped(struct wf_optim *optim, float *params, const float *grads,
                             double scale, double clip);
double wf_optim_read(struct wf_optim *optim);
