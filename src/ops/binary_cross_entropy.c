/*
 * Binary cross-entropy of each logit by itself: max(x, 0) - x * t + log(1 + exp(-|x|)), which stays
 * exact where sigmoid would round to 0 or 1. Targets may be anything in [0, 1].
 */
#include <math.h>

#include "ops/loss.h"

/* --- bce_grad: logits, target, ds --- */

static void grad_reference(const struct wf_call *call)
{
    const double ds = wf_view_get(&call->in[2], 0, 0, 0, 0, 0);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double x = wf_view_at(&call->in[0], c.at), t = wf_view_at(&call->in[1], c.at);
        const double p = x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
        const bool counts = wf_loss_counts(call->node->attrs, t);
        wf_view_set(&call->out[0], c.at, counts ? ds * (p - t) : 0.0);
    }
}

const struct wf_op wf_op_bce_grad = {
    .name = "bce_grad",
    .n_in = 3,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .flags = WF_OP_POINTWISE,
    .infer = wf_loss_pair_grad_infer,
    .reference = grad_reference,
    .flops_each = 5,
};

/* --- bce --- */

static void reference(const struct wf_call *call)
{
    wf_view_fill(&call->out[0], 0.0);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double x = wf_view_at(&call->in[0], c.at), t = wf_view_at(&call->in[1], c.at);
        if (!wf_loss_counts(call->node->attrs, t))
            continue;
        wf_loss_sum(&call->out[0], 0, fmax(x, 0.0) - x * t + log1p(exp(-fabs(x))));
        wf_loss_sum(&call->out[0], 1, 1.0);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    wf_loss_grad(g, &wf_op_bce_grad, node, dy, wanted, dx);
}

static struct wf_value *mean(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_binary_cross_entropy(g, in[0], in[1], &(struct wf_loss){ .name = "loss" });
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,3,1] b[2,1,5,3,1]" },
    { .in = "x[1,3,2,5,2] b[1,3,2,5,2]" },
    { .in = "x[3,1,1,7,1] b[3,1,1,7,1]" },
    { .in = "x[5,1,1,1,3] X[5,1,1,1,3]" },
    { .attrs = "ignore=1 has_ignore=1", .in = "x[2,1,3,3,1] b[2,1,3,3,1]" },
    { .in = "x[2,1,3,5,2] b[2,1,3,5,2]", .build = mean },
    { 0 },
};

const struct wf_op wf_op_bce = {
    .name = "bce",
    .flags = WF_OP_ROWS,
    .n_in = 2,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = wf_loss_pair_infer,
    .grad = grad,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .reference = reference,
    .flops_each = 5,
    .cases = cases,
};

struct wf_value *wf_binary_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                         struct wf_value *target, const struct wf_loss *l)
{
    if (l->weights) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': binary cross-entropy takes no class weights: use cross-entropy "
                   "with two classes",
                   l->name ? l->name : "bce");
        return NULL;
    }
    return wf_loss_add(g, &wf_op_bce, l, 2, (struct wf_value *[]){ logits, target });
}
