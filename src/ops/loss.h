/*
 * What the losses share.
 *
 * A loss is two nodes: one sums over the image (f64, a partial sum on every rank), one makes a
 * number of the sums, so that the mean is over the whole batch on any mesh. That number is f64; the
 * builders cast it to f32 unless the network itself runs in f64.
 *
 * Labels are whole numbers in [0, classes). Whoever loads a class map refuses others; should one
 * come through all the same, the sums become NaN, so that it cannot pass unseen.
 */
#pragma once

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

extern const struct wf_field wf_loss_fields[];

/* False where the position has the ignored label. */
static inline bool wf_loss_counts(const struct wf_loss_attrs *a, double label)
{
    return !a->has_ignore || label != (double)a->ignore;
}

/* The label as a channel, or -1 when it is none of 0 .. classes-1. */
static inline int64_t wf_loss_class(double label, int64_t classes)
{
    return label >= 0 && label < (double)classes ? (int64_t)label : -1;
}

/* out[k] += value, for sums [1,1,1,1,K]. */
void wf_loss_sum(const struct wf_view *out, int64_t k, double value);
/* out[0] becomes `k` sums: f64 [1,1,1,1,k] on every rank. */
void wf_loss_set_sums(const struct wf_node *node, int64_t k);
/* Fails unless `target` is a class map for logits of this shape. */
bool wf_loss_check_map(struct wf_shape logits, const struct wf_value *target, struct wf_err *err);
/* Fails unless `ds` holds k sums' gradients. */
bool wf_loss_check_sums(const struct wf_value *ds, int64_t k, struct wf_err *err);
/* wf_op.infer of losses of x and a target of one shape, and of their gradients. */
bool wf_loss_pair_infer(const struct wf_node *node, struct wf_err *err);
bool wf_loss_pair_grad_infer(const struct wf_node *node, struct wf_err *err);
/* wf_op.grad by the node `op`, which reads the loss' inputs and the gradient of its sums. Targets and
 * class weights are data: refuses to differentiate by them. */
void wf_loss_grad(struct wf_graph *g, const struct wf_op *op, const struct wf_node *node,
                  struct wf_value *const dy[], const bool wanted[], struct wf_value *dx[]);

struct wf_loss_attrs wf_loss_attrs_of(const struct wf_loss *l, int64_t classes);
/* The sums of x, target and what else is given, and their mean. */
struct wf_value *wf_loss_add(struct wf_graph *g, const struct wf_op *op, const struct wf_loss *l,
                             int n_in, struct wf_value *const in[]);
/* sums[0] / sums[1], in f64 when `of` is, else f32. */
struct wf_value *wf_loss_mean(struct wf_graph *g, struct wf_value *sums, const char *name,
                              const struct wf_value *of);
/* The f64 number `loss` in f64 when `of` is, else f32; it takes the layer's name. */
struct wf_value *wf_loss_finish(struct wf_graph *g, struct wf_value *loss,
                                const struct wf_value *of);
