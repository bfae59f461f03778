/* Softmax over the channels of each position. */
#include <math.h>

#include "ops/build.h"
#include "ops/rows.h"

/* --- softmax_grad: y, dy --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return wf_shape_equal(node->in[0]->shape, node->in[1]->shape) ||
           wf_err_set(err, WF_ERR_USAGE, "dy must have the shape of y");
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        double dot = 0.0;
        for (int64_t c = 0; c < channels; c++)
            dot += wf_row_get(&call->in[0], p.at, c) * wf_row_get(&call->in[1], p.at, c);
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++)
            wf_row_put(&call->out[0], p.at, c,
                       wf_row_get(&call->in[0], p.at, c) *
                           (wf_row_get(&call->in[1], p.at, c) - dot));
    }
}

const struct wf_op wf_op_softmax_grad = {
    .name = "softmax_grad",
    .n_in = 2,
    .flags = WF_OP_POINTWISE,
    .infer = grad_infer,
    .reads = wf_row_reads,
    .reference = grad_reference,
    .flops_each = 5,
};

/* --- softmax --- */

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        double top = -HUGE_VAL, sum = 0.0;
        for (int64_t c = 0; c < channels; c++)
            top = fmax(top, wf_row_get(&call->in[0], p.at, c));
        for (int64_t c = 0; c < channels; c++)
            sum += exp(wf_row_get(&call->in[0], p.at, c) - top);
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++)
            wf_row_put(&call->out[0], p.at, c, exp(wf_row_get(&call->in[0], p.at, c) - top) / sum);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_value *const in[] = { node->out[0], dy[0] };
    dx[0] = wf_append(g, &wf_op_softmax_grad, node->name, NULL, NULL, 2, in);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,3,4]" },
    { .in = "x[1,3,2,5,2]" },
    { .in = "x[3,1,1,7,3]" },
    { .in = "x[5,1,1,1,10]" },
    { .in = "x[1,1,3,3,1]" },
    { .in = "x[2,1,3,7,7]" },
    { 0 },
};

const struct wf_op wf_op_softmax = {
    .name = "softmax",
    .n_in = 1,
    .flags = WF_OP_POINTWISE,
    .grad = grad,
    .reads = wf_row_reads,
    .reference = reference,
    .flops_each = 5,
    .cases = cases,
};

struct wf_value *wf_softmax(struct wf_graph *g, struct wf_value *x, const char *name)
{
    return wf_append(g, &wf_op_softmax, name, NULL, NULL, 1, &x);
}

/* By operators that there are: the largest is subtracted first, which changes nothing but that no exponential
 * overflows, so nothing flows back through it. */
struct wf_value *wf_softmax_sample(struct wf_graph *g, struct wf_value *x, const char *name)
{
    if (!x)
        return NULL;
    const double count = (double)wf_shape_count(x->shape) / (double)x->shape.at[WF_N];
    struct wf_value *const top = wf_global_max_pool(g, wf_max_channels(g, x, name), name);
    struct wf_value *const less = wf_scale(g, wf_reverse_gradient(g, top, 0), -1);
    struct wf_value *const e = wf_activation(g, wf_add(g, x, less), name, WF_EXP, 0);
    /* In f32: a sum over an image is past what f16 holds. */
    const bool wide = x->dtype == WF_F32 || x->dtype == WF_F64;
    struct wf_value *const terms = wide ? e : wf_cast(g, e, WF_F32);
    struct wf_value *const sum =
        wf_scale(g, wf_mean(g, terms, name, WF_OVER_SPACE | WF_OVER_CHANNELS), count);
    struct wf_value *const y = wf_multiply(g, terms, wf_activation(g, sum, name, WF_RECIPROCAL, 0));
    return wide ? y : wf_cast(g, y, x->dtype);
}
