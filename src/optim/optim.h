/*
 * Update rules over flat storage: one sweep over all parameters, whatever layers they belong to.
 *
 *     struct wf_optim *o = wf_optim_new(&(struct wf_optim_options){ .rule = WF_ADAM, .lr = 1e-3 }, n);
 *     wf_optim_tick(o);
 *     wf_optim_update(o, params, grads, 0, n);
 *
 * Conventions are PyTorch's: momentum buf = mu * buf + g, p -= lr * buf; Adam with bias correction.
 */
#ifndef WF_OPTIM_OPTIM_H
#define WF_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum wf_optim_rule { WF_SGD, WF_MOMENTUM, WF_ADAM };

struct wf_optim_options {
    enum wf_optim_rule rule;
    double lr;
    double momentum;          /* WF_MOMENTUM; 0 means 0.9 */
    double beta1, beta2, eps; /* WF_ADAM; 0 means 0.9, 0.999, 1e-8 */
    double weight_decay;      /* added to the gradient, as PyTorch's SGD and Adam do */
};

struct wf_optim {
    struct wf_optim_options options;
    size_t count;
    int n_states;     /* arrays of `count` floats */
    float *states[2]; /* momentum; or Adam's first and second moment */
    int64_t step;     /* updates done */
};

/* Bytes of state a rule needs for `count` elements: part of what a plan says. */
size_t wf_optim_bytes(enum wf_optim_rule rule, size_t count);
struct wf_optim *wf_optim_new(const struct wf_optim_options *options, size_t count,
                              struct wf_err *err); /* NULL when there is no memory */
void wf_optim_free(struct wf_optim *optim);
/* Updates `n` elements from `first` on; call wf_optim_tick() once per step before. */
void wf_optim_tick(struct wf_optim *optim);
void wf_optim_update(struct wf_optim *optim, float *params, const float *grads, size_t first,
                     size_t n);
bool wf_optim_parse(const char *name, enum wf_optim_rule *rule); /* "sgd", "momentum", "adam" */

#endif
