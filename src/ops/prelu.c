/*
 * prelu: y = x where x is above 0, else w * x with a weight for each channel or one for all. The gradient of w is a
 * product_sum over elements below 0.
 */
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/pair.h"

extern const struct wf_op wf_op_prelu, wf_op_prelu_grad;

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape *x = &node->in[0]->shape, *w = &node->in[1]->shape;
    if (wf_shape_count(*w) != w->at[WF_C] || (w->at[WF_C] != 1 && w->at[WF_C] != x->at[WF_C]))
        return wf_err_set(err, WF_ERR_USAGE,
                          "takes one weight, or one for each of %" PRId64 " channels, not %" PRId64,
                          x->at[WF_C], wf_shape_count(*w));
    if (node->n_in == 3 && !wf_shape_equal(*x, node->in[2]->shape))
        return wf_err_set(err, WF_ERR_USAGE, "dy must have the shape of x");
    return true;
}

static double factor(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const int64_t zero[WF_AXES] = { [WF_C] = at[WF_C] };
    return wf_view_at(&call->in[0], at) > 0 ? 1.0
                                            : wf_pair_get(&call->in[1], call->node->in[1], zero);
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[0], c.at) * factor(call, c.at));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const x = node->in[0], *const w = node->in[1];
    if (wanted[0])
        dx[0] = wf_append(g, &wf_op_prelu_grad, node->name, "dx", NULL, 3,
                          (struct wf_value *[]){ x, w, dy[0] });
    if (!wanted[1])
        return;
    const struct wf_reduce_attrs a = { .over = { 1, 1, 1, 1, 0 }, .below = 1 };
    struct wf_value *const sum = wf_append(g, &wf_op_product_sum, node->name, "dw", &a, 2,
                                           (struct wf_value *[]){ dy[0], x });
    dx[1] = wf_sum_to(g, node->name, sum, NULL, w);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3] p[3]" },  { .in = "x[1,3,4,5,2] p[1]" },
    { .in = "x[3,1,1,11,1] p[1]" }, { .in = "x[5,1,1,1,4] p[4]" },
    { .in = "x[2,1,3,3,2] P[2]" },  { .in = "X[2,1,4,3,3] p[3]" },
    { .in = "x[1,2,3,2,5] p[1]" },  { 0 },
};

static int decides(const struct wf_node *)
{
    return 0;
}

const struct wf_op wf_op_prelu = {
    .name = "prelu",
    .n_in = 2,
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .infer = infer,
    .grad = grad,
    .decides = decides,
    .reference = reference,
    .flops_each = 2,
    .cases = cases,
};

static void grad_reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[2], c.at) * factor(call, c.at));
}

const struct wf_op wf_op_prelu_grad = {
    .name = "prelu_grad",
    .n_in = 3,
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 2,
    .infer = infer,
    .reference = grad_reference,
    .flops_each = 2,
};

/* A weight NAME.SUFFIX of `count` numbers. */
static struct wf_value *weight(struct wf_graph *g, const char *name, const char *suffix,
                               int64_t count, double initial)
{
    const struct wf_param_spec spec = {
        .name = wf_arena_printf(&g->arena, "%s.%s", name, suffix),
        .shape = WF_SHAPE(1, 1, 1, 1, count),
        .border_dims = -1,
        .init = WF_INIT_VALUE,
        .init_bound = initial,
    };
    return wf_param(g, &spec);
}

struct wf_value *wf_prelu(struct wf_graph *g, struct wf_value *x, const char *name,
                          bool per_channel)
{
    if (!x)
        return NULL;
    struct wf_value *const w = weight(g, name, "weight", per_channel ? x->shape.at[WF_C] : 1, 0.25);
    return wf_append(g, &wf_op_prelu, name, NULL, NULL, 2, (struct wf_value *[]){ x, w });
}

static struct wf_value *times(struct wf_graph *g, struct wf_value *x, const char *name,
                              int64_t count, double initial)
{
    struct wf_value *const w = weight(g, name, "weight", count, initial);
    return wf_append(g, &wf_op_multiply, name, NULL, NULL, 2, (struct wf_value *[]){ x, w });
}

struct wf_value *wf_channel_scale(struct wf_graph *g, struct wf_value *x, const char *name,
                                  double initial)
{
    return x ? times(g, x, name, x->shape.at[WF_C], initial) : NULL;
}

struct wf_value *wf_shared_scale(struct wf_graph *g, struct wf_value *x, const char *name,
                                 double initial)
{
    return x ? times(g, x, name, 1, initial) : NULL;
}

static struct wf_value *plus(struct wf_graph *g, struct wf_value *x, const char *name,
                             int64_t count)
{
    struct wf_value *const b = weight(g, name, "bias", count, 0.0);
    return wf_append(g, &wf_op_add, name, NULL, NULL, 2, (struct wf_value *[]){ x, b });
}

struct wf_value *wf_channel_shift(struct wf_graph *g, struct wf_value *x, const char *name)
{
    return x ? plus(g, x, name, x->shape.at[WF_C]) : NULL;
}

struct wf_value *wf_shared_shift(struct wf_graph *g, struct wf_value *x, const char *name)
{
    return x ? plus(g, x, name, 1) : NULL;
}
