/*
 * sparse_dropout: as dropout, on points. What is dropped goes by a point's coordinates and the channel, not by its
 * row, so that it does not depend on who has which points. Linear in x: its gradient is itself on dy.
 */
#include "ops/dropout.h"
#include "ops/sparse_ops.h"

static const struct wf_field fields[] = {
    WF_REAL(wf_dropout_attrs, p),
    WF_INT(wf_dropout_attrs, stream),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_dropout_attrs *a = node->attrs;
    if (!(a->p >= 0 && a->p < 1))
        return wf_err_set(err, WF_ERR_USAGE, "dropout of %g: it must be at least 0 and below 1",
                          a->p);
    if (!node->in[0]->set || node->in[1]->set != node->in[0]->set || node->in[1]->dtype != WF_I32)
        return wf_err_set(err, WF_ERR_USAGE, "wants rows of a set, and the set's coordinates");
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, node->op, node->name, NULL, node->attrs, 2,
                      (struct wf_value *[]){ dy[0], node->in[1] });
}

static void reference(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = call->node->attrs;
    const struct wf_random random = wf_dropout_random(a, call->seed, call->step);
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    const int64_t width = call->node->in[1]->shape.at[WF_C], first = call->in[1].box.lo[WF_N];
    const double scale = (double)wf_dropout_scale(a);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const int32_t *const row = wf_sparse_coords(&call->in[1]) + (c.at[WF_N] - first) * width;
        const uint64_t index =
            wf_dropout_place(row, width) * (uint64_t)channels + (uint64_t)c.at[WF_C];
        const double x = wf_view_at(&call->in[0], c.at);
        wf_view_set(&call->out[0], c.at, wf_dropout_keeps(a, random, index) ? x * scale : 0.0);
    }
}

const struct wf_op wf_op_sparse_dropout = {
    .name = "sparse_dropout",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_dropout_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_sparse_reads,
    .reference = reference,
    .flops_each = 20,
};

struct wf_sparse wf_sparse_dropout(struct wf_graph *g, struct wf_sparse x, const char *name,
                                   double p)
{
    const struct wf_dropout_attrs a = { .p = p, .stream = (int64_t)wf_random_stream(name) };
    if (x.features && g->options.training && p != 0)
        x.features = wf_append(g, &wf_op_sparse_dropout, name, NULL, &a, 2,
                               (struct wf_value *[]){ x.features, x.coords });
    return x;
}
