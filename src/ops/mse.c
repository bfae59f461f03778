/* Mean of squared differences. It is symmetric: the target's gradient is the negative of x's. */
#include "ops/loss.h"

/* --- mse_grad: x, target, ds --- */

static void grad_reference(const struct wf_call *call)
{
    const double ds = wf_view_get(&call->in[2], 0, 0, 0, 0, 0);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    2.0 * ds * (wf_view_at(&call->in[0], c.at) - wf_view_at(&call->in[1], c.at)));
}

const struct wf_op wf_op_mse_grad = {
    .name = "mse_grad",
    .n_in = 3,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .flags = WF_OP_POINTWISE,
    .infer = wf_loss_pair_grad_infer,
    .reference = grad_reference,
    .flops_each = 3,
};

/* --- mse --- */

static void reference(const struct wf_call *call)
{
    wf_view_fill(&call->out[0], 0.0);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double d = wf_view_at(&call->in[0], c.at) - wf_view_at(&call->in[1], c.at);
        wf_loss_sum(&call->out[0], 0, d * d);
        wf_loss_sum(&call->out[0], 1, 1.0);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const in[] = { node->in[0], node->in[1], dy[0] };
    dx[0] = wf_append(g, &wf_op_mse_grad, node->name, NULL, node->attrs, 3, in);
    if (wanted[1])
        dx[1] = wf_cast(g, wf_scale(g, dx[0], -1.0), node->in[1]->dtype);
}

static struct wf_value *mean(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_mse(g, in[0], in[1], &(struct wf_loss){ .name = "loss" });
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,3,1] X[2,1,5,3,1]" },
    { .in = "x[1,3,2,5,2] x[1,3,2,5,2]" },
    { .in = "x[3,1,1,7,3] X[3,1,1,7,3]" },
    { .in = "x[5,1,1,1,3] x[5,1,1,1,3]" },
    { .in = "x[2,1,3,3,1] b[2,1,3,3,1]" },
    { .in = "x[2,1,3,5,2] x[2,1,3,5,2]", .build = mean },
    { 0 },
};

const struct wf_op wf_op_mse = {
    .name = "mse",
    .flags = WF_OP_ROWS,
    .n_in = 2,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = wf_loss_pair_infer,
    .grad = grad,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .reference = reference,
    .flops_each = 3,
    .cases = cases,
};

struct wf_value *wf_mse(struct wf_graph *g, struct wf_value *x, struct wf_value *target,
                        const struct wf_loss *l)
{
    if (l->weights || l->has_ignore) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': the squared difference takes neither class weights nor an ignored "
                   "label: leave them out",
                   l->name ? l->name : "mse");
        return NULL;
    }
    return wf_loss_add(g, &wf_op_mse, l, 2, (struct wf_value *[]){ x, target });
}
