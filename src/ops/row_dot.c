/* row_dot: y = sum over C of a * b, or of a, at each position; b may be broadcast. */
#include <inttypes.h>

#include "ops/build.h"
#include "ops/pair.h"
#include "ops/rows.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const a = node->in[0], *const b = node->in[1];
    for (int i = 0; b && i < WF_AXES; i++)
        if (b->shape.at[i] != a->shape.at[i] && b->shape.at[i] != 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' has %" PRId64 " along %c, and '%s' %" PRId64
                              ": they must be equal, or 1",
                              b->name, b->shape.at[i], "NDHWC"[i], a -> name, a -> shape.at[i]);
    node->out[0]->shape.at[WF_C] = 1;
    node->out[0]->replicated = a->replicated && (!b || b->replicated);
    return true;
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_shape *x = &node->in[input]->shape;
    for (int i = 0; i < WF_AXES; i++)
        if (i == WF_C || x->at[i] != node->out[0]->shape.at[i]) {
            work.lo[i] = 0;
            work.hi[i] = x->at[i];
        }
    return work;
}

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        int64_t at[WF_AXES];
        memcpy(at, c.at, sizeof at);
        for (at[WF_C] = 0; at[WF_C] < channels; at[WF_C]++)
            sum += wf_view_at(&call->in[0], at) *
                   (call->in[1].data ? wf_pair_get(&call->in[1], call->node->in[1], at) : 1.0);
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const a = node->in[0], *const b = node->in[1];
    if (wanted[0] && b)
        dx[0] = wf_multiply(g, wf_expand(g, b, node->name, a->shape), dy[0]);
    else if (wanted[0])
        dx[0] = wf_expand(g, dy[0], node->name, a->shape);
    if (b && wanted[1] && wf_shape_equal(a->shape, b->shape))
        dx[1] = wf_multiply(g, a, dy[0]);
    else if (b && wanted[1])
        dx[1] = wf_sum_to(g, node->name, wf_multiply(g, a, dy[0]), NULL, b);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3] x[2,1,5,7,3]" },
    { .in = "x[1,3,4,5,2] x[1,3,4,5,2]" },
    { .in = "x[3,1,1,11,4] -" },
    { .in = "x[5,1,1,1,9] x[5,1,1,1,9]" },
    { .in = "x[2,1,3,4,1] -" },
    { .in = "x[2,1,4,5,3] x[2,1,1,1,3]" },
    { .in = "x[2,1,4,3,5] p[5]" },
    { .in = "p[3,1,1,2,4] -" },
    { 0 },
};

const struct wf_op wf_op_row_dot = {
    .name = "row_dot",
    .n_in = 2,
    .n_optional = 1,
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .flops_each = 2,
    .cases = cases,
};
