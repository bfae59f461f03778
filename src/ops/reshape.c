/*
 * reshape: the elements of each sample as another [C, D, H, W], in PyTorch's order (C outermost,
 * W innermost), so that weights of a layer behind a flatten are exchangeable with it. A reshape is
 * a transposition in memory here, because channels lie last. With `turned` the elements of one side are taken in the
 * order D, H, W, C instead: a matrix of positions and channels is transposed so.
 */
#include <inttypes.h>

#include "ops/build.h"
#include "ops/spatial.h"

static const char *const sides[] = { "none", "from", "to", NULL };
static const struct wf_field fields[] = {
    WF_INTS(wf_reshape_attrs, shape, WF_AXES),
    WF_NAMED(wf_reshape_attrs, turned, sides),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_reshape_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    struct wf_shape *y = &node->out[0]->shape;
    for (int i = 0; i < WF_AXES; i++)
        y->at[i] = a->shape[i];
    if (y->at[WF_N] != x->at[WF_N])
        return wf_err_set(err, WF_ERR_USAGE,
                          "keeps the samples: %" PRId64 " cannot become %" PRId64, x->at[WF_N],
                          y->at[WF_N]);
    if (!wf_shape_is_valid(*y) || wf_shape_count(*y) != wf_shape_count(*x))
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " elements per sample do not become %" PRId64 " channels of "
                          "%" PRId64 " x %" PRId64 " x %" PRId64,
                          wf_shape_count(*x) / x->at[WF_N], y->at[WF_C], y->at[WF_D], y->at[WF_H],
                          y->at[WF_W]);
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    static const int64_t back[] = { WF_RESHAPE_PLAIN, WF_RESHAPE_TO, WF_RESHAPE_FROM };
    struct wf_reshape_attrs a = {
        .turned = back[((const struct wf_reshape_attrs *)node->attrs)->turned]
    };
    for (int i = 0; i < WF_AXES; i++)
        a.shape[i] = node->in[0]->shape.at[i];
    dx[0] = wf_append(g, &wf_op_reshape, node->name, "dx", &a, 1, dy);
}

/* Samples stay apart; inside one, a box of the result can come from anywhere. */
static struct wf_region reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_reshape_attrs *const a = node->attrs;
    if (a->turned == WF_RESHAPE_PLAIN && wf_shape_equal(node->in[0]->shape, node->out[0]->shape))
        return work;
    struct wf_region r = wf_shape_region(node->in[0]->shape);
    r.lo[WF_N] = work.lo[WF_N];
    r.hi[WF_N] = work.hi[WF_N];
    return r;
}

/* From outermost to innermost: in PyTorch's order, and turned. */
static const int orders[2][4] = { { WF_C, WF_D, WF_H, WF_W }, { WF_D, WF_H, WF_W, WF_C } };

static void reference(const struct wf_call *call)
{
    const struct wf_shape *x = &call->node->in[0]->shape, *y = &call->node->out[0]->shape;
    const struct wf_reshape_attrs *const a = call->node->attrs;
    const int *const inside = orders[a->turned == WF_RESHAPE_FROM];
    const int *const order = orders[a->turned == WF_RESHAPE_TO];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t index = 0, from[WF_AXES] = { [WF_N] = c.at[WF_N] };
        for (int i = 0; i < 4; i++)
            index = index * y->at[order[i]] + c.at[order[i]];
        for (int i = 3; i >= 0; i--) {
            from[inside[i]] = index % x->at[inside[i]];
            index /= x->at[inside[i]];
        }
        wf_view_set(&call->out[0], c.at, wf_ref_get(&call->in[0], x, from));
    }
}

static const struct wf_case cases[] = {
    { .attrs = "shape=[2,1,1,1,24]", .in = "x[2,1,3,4,2]" },
    { .attrs = "shape=[2,1,3,4,2]", .in = "x[2,1,1,1,24]" },
    { .attrs = "shape=[1,1,5,3,2]", .in = "x[1,1,2,5,3]" },
    { .attrs = "shape=[1,2,2,3,2]", .in = "x[1,1,3,4,2]" },
    { .attrs = "shape=[3,1,1,7,1]", .in = "x[3,1,7,1,1]" },
    { .attrs = "shape=[1,1,2,3,2]", .in = "x[1,1,2,3,2]" },
    { .attrs = "shape=[2,1,1,5,12] turned=from", .in = "x[2,1,3,4,5]" },
    { .attrs = "shape=[1,1,4,3,3] turned=from", .in = "x[1,1,4,3,3]" },
    { .attrs = "shape=[2,1,4,3,5] turned=to", .in = "x[2,2,1,5,6]" },
    { 0 },
};

const struct wf_op wf_op_reshape = {
    .name = "reshape",
    .n_in = 1,
    WF_ATTRS(wf_reshape_attrs, fields),
    .flags = WF_OP_CHEAP,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_reshape(struct wf_graph *g, struct wf_value *x, const char *name,
                            struct wf_shape shape)
{
    struct wf_reshape_attrs a = { .turned = WF_RESHAPE_PLAIN };
    for (int i = 0; i < WF_AXES; i++)
        a.shape[i] = shape.at[i];
    return wf_append(g, &wf_op_reshape, name, NULL, &a, 1, &x);
}

struct wf_value *wf_flatten(struct wf_graph *g, struct wf_value *x, const char *name)
{
    if (!x)
        return NULL;
    const int64_t samples = x->shape.at[WF_N];
    return wf_reshape(g, x, name, WF_SHAPE(samples, 1, 1, 1, wf_shape_count(x->shape) / samples));
}

struct wf_value *wf_transpose(struct wf_graph *g, struct wf_value *x, const char *name,
                              const int64_t extent[3])
{
    if (!x)
        return NULL;
    const int64_t samples = x->shape.at[WF_N];
    const struct wf_reshape_attrs a = {
        .shape = { samples, extent[0], extent[1], extent[2],
                   wf_shape_count(x->shape) / samples / x->shape.at[WF_C] },
        .turned = WF_RESHAPE_FROM,
    };
    return wf_append(g, &wf_op_reshape, name, NULL, &a, 1, &x);
}
