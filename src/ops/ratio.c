/* The mean of a loss: the first of two sums by the second; 0 when nothing was counted. */
#include "ops/loss.h"

/* --- ratio_grad: s, dloss --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 2);
    return wf_loss_check_sums(node->in[0], 2, err) && wf_loss_check_sums(node->in[1], 1, err);
}

static void grad_reference(const struct wf_call *call)
{
    const double sum = wf_view_get(&call->in[0], 0, 0, 0, 0, 0);
    const double count = wf_view_get(&call->in[0], 0, 0, 0, 0, 1);
    const double dloss = wf_view_get(&call->in[1], 0, 0, 0, 0, 0);
    wf_view_put(&call->out[0], 0, 0, 0, 0, 0, count != 0 ? dloss / count : 0.0);
    wf_view_put(&call->out[0], 0, 0, 0, 0, 1, count != 0 ? -dloss * sum / count / count : 0.0);
}

const struct wf_op wf_op_ratio_grad = {
    .name = "ratio_grad",
    .n_in = 2,
    .infer = grad_infer,
    .reference = grad_reference,
};

/* --- ratio --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 1);
    return wf_loss_check_sums(node->in[0], 2, err);
}

static void reference(const struct wf_call *call)
{
    const double sum = wf_view_get(&call->in[0], 0, 0, 0, 0, 0);
    const double count = wf_view_get(&call->in[0], 0, 0, 0, 0, 1);
    wf_view_put(&call->out[0], 0, 0, 0, 0, 0, count != 0 ? sum / count : 0.0);
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_value *const in[] = { node->in[0], dy[0] };
    dx[0] = wf_append(g, &wf_op_ratio_grad, node->name, NULL, NULL, 2, in);
}

static const struct wf_case cases[] = {
    { .in = "p[2]" },
    { .in = "P[2]" },
    { .in = "x[2]" },
    { 0 },
};

const struct wf_op wf_op_ratio = {
    .name = "ratio",
    .n_in = 1,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_loss_mean(struct wf_graph *g, struct wf_value *sums, const char *name,
                              const struct wf_value *of)
{
    return wf_loss_finish(g, wf_append(g, &wf_op_ratio, name, NULL, NULL, 1, &sums), of);
}
