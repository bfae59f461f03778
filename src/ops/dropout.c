/* Dropout: linear in x, so that its gradient is the same operator on dy. The mask: dropout.h. */
#include "ops/dropout.h"

#include "ops/build.h"
#include "ops/op.h"

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
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = call->node->attrs;
    const struct wf_shape whole = call->node->out[0]->shape;
    const struct wf_random random = wf_dropout_random(a, call->seed, call->step);
    const double scale = (double)wf_dropout_scale(a);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t index = 0;
        for (int axis = 0; axis < WF_AXES; axis++)
            index = index * whole.at[axis] + c.at[axis];
        const bool keep = wf_dropout_keeps(a, random, (uint64_t)index);
        const double x = wf_view_at(&call->in[0], c.at);
        wf_view_set(&call->out[0], c.at, keep ? x * scale : 0.0);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, node->op, node->name, NULL, node->attrs, 1, dy);
}

static const struct wf_case cases[] = {
    { .attrs = "p=0.5 stream=1", .in = "x[2,1,5,7,3]" },
    { .attrs = "p=0.1 stream=7", .in = "x[1,3,4,5,2]" },
    { .attrs = "p=0.9 stream=-3", .in = "x[3,1,1,11,1]" },
    { .attrs = "p=0 stream=2", .in = "x[2,1,3,3,2]" },
    { .attrs = "p=0.3 stream=0", .in = "x[5,1,1,1,9]" },
    { .attrs = "p=0.25 stream=5", .in = "x[3,1,7,3,1]" },
    { 0 },
};

/* What is dropped goes by the place in the image. */
static bool is_fixed(const struct wf_node *)
{
    return true;
}

const struct wf_op wf_op_dropout = {
    .name = "dropout",
    .is_fixed = is_fixed,
    .n_in = 1,
    WF_ATTRS(wf_dropout_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

/* Outside training, and for p = 0, x itself. */
struct wf_value *wf_dropout(struct wf_graph *g, struct wf_value *x, const char *name, double p)
{
    if (!x || !g->options.training || p == 0)
        return x;
    if (x->set) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': of points what is dropped goes by their coordinates: use "
                   "wf_sparse_dropout()",
                   name ? name : "dropout");
        return NULL;
    }
    const struct wf_dropout_attrs a = { .p = p,
                                        .stream =
                                            (int64_t)wf_random_stream(name ? name : "dropout") };
    return wf_append(g, &wf_op_dropout, name, NULL, &a, 1, &x);
}

/* Ones of this shape of which some are dropped: the mask of whole channels or samples. */
static struct wf_value *drop_whole(struct wf_graph *g, struct wf_value *x, const char *name,
                                   double p, struct wf_shape shape)
{
    if (!x || !g->options.training || p == 0)
        return x;
    const char *const label = name ? name : "dropout";
    struct wf_value *const ones = wf_fill(g, shape, x->dtype, 1.0);
    struct wf_value *const mask =
        wf_dropout(g, ones, wf_arena_printf(&g->arena, "%s.mask", label), p);
    return wf_rename(g, wf_multiply(g, x, mask), label);
}

struct wf_value *wf_dropout_channels(struct wf_graph *g, struct wf_value *x, const char *name,
                                     double p)
{
    return x ? drop_whole(g, x, name, p, WF_SHAPE(x->shape.at[WF_N], 1, 1, 1, x->shape.at[WF_C]))
             : NULL;
}

struct wf_value *wf_dropout_samples(struct wf_graph *g, struct wf_value *x, const char *name,
                                    double p)
{
    return x ? drop_whole(g, x, name, p, WF_SHAPE(x->shape.at[WF_N], 1, 1, 1, 1)) : NULL;
}
