/* Sum of two values of one shape, or broadcast. */
#include "ops/pair.h"

#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"

static bool dtypes_fit(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *a = node->in[0], *b = node->in[1];
    struct wf_value *const y = node->out[0];
    const bool a_is_whole = wf_shape_equal(a->shape, y->shape);
    const bool b_is_whole = wf_shape_equal(b->shape, y->shape);
    y->dtype = a_is_whole || !b_is_whole ? a->dtype : b->dtype;
    if (a->dtype == b->dtype || (a_is_whole && !b_is_whole && b->dtype == WF_F32) ||
        (b_is_whole && !a_is_whole && a->dtype == WF_F32))
        return true;
    return wf_err_set(err, WF_ERR_USAGE, "'%s' is %s and '%s' is %s: cast one", a->name,
                      wf_dtype_name(a->dtype), b->name, wf_dtype_name(b->dtype));
}

bool wf_pair_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *a = node->in[0], *b = node->in[1];
    struct wf_value *const y = node->out[0];
    for (int axis = 0; axis < WF_AXES; axis++) {
        const int64_t p = a->shape.at[axis], q = b->shape.at[axis];
        if (p != q && p != 1 && q != 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' and '%s' differ along %c (%" PRId64 " and %" PRId64
                              "): pad or crop one",
                              a->name, b->name, "NDHWC"[axis], p, q);
        y->shape.at[axis] = p == 1 ? q : p;
    }
    y->replicated = a->replicated && b->replicated;
    if (!wf_shape_equal(a->shape, y->shape)) {
        y->set = b->set;
        y->per_rank = b->per_rank;
    }
    return dtypes_fit(node, err);
}

struct wf_value *wf_sum_to(struct wf_graph *g, const char *name, struct wf_value *dy,
                           struct wf_value *other, const struct wf_value *like)
{
    struct wf_reduce_attrs a = { 0 };
    bool positions = false;
    if (!dy)
        return NULL;
    for (int axis = 0; axis < WF_C; axis++) {
        a.over[axis] = like->shape.at[axis] == 1 && dy->shape.at[axis] > 1;
        positions |= a.over[axis];
    }
    /* Of one sample that is a weight, too: the ranks must sum, whatever the extents are. */
    if (like->replicated && !dy->replicated)
        for (int axis = 0; axis < WF_C; axis++)
            positions |= a.over[axis] = like->shape.at[axis] == 1;
    if (positions) {
        dy = wf_append(g, &wf_op_product_sum, name, "sum", &a, 2,
                       (struct wf_value *[]){ dy, other });
        other = NULL;
    }
    if (dy && like->shape.at[WF_C] == 1 && dy->shape.at[WF_C] > 1) {
        dy =
            wf_append(g, &wf_op_row_dot, name, "rows", NULL, 2, (struct wf_value *[]){ dy, other });
        other = NULL;
    }
    if (dy && other)
        dy = wf_multiply(g, dy, other);
    return dy && dy->dtype != like->dtype ? wf_cast(g, dy, like->dtype) : dy;
}

static void reference(const struct wf_call *call)
{
    const struct wf_node *n = call->node;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_pair_get(&call->in[0], n->in[0], c.at) +
                        wf_pair_get(&call->in[1], n->in[1], c.at));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = wf_shape_equal(node->in[i]->shape, dy[0]->shape)
                        ? dy[0]
                        : wf_sum_to(g, node->name, dy[0], NULL, node->in[i]);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3] x[2,1,5,7,3]" },
    { .in = "x[1,3,4,5,2] x[1,3,4,5,2]" },
    { .in = "x[3,1,1,11,1] x[3,1,1,11,1]" },
    { .in = "x[5,1,1,1,3] x[5,1,1,1,3]" },
    { .in = "p[4,1,3,3,2] p[4,1,3,3,2]" },
    { .in = "x[2,1,3,3,1] X[2,1,3,3,1]" },
    { .in = "x[2,1,4,5,2] p[2,1,4,5,2]" },
    { .in = "p[1,2,3,4,1] x[1,2,3,4,1]" },
    { .in = "x[2,1,5,7,3] x[2,1,1,1,3]" },
    { .in = "x[2,1,5,7,3] p[3]" },
    { .in = "x[2,1,5,7,3] x[2,1,5,7,1]" },
    { .in = "x[1,3,4,1,2] x[1,3,4,5,2]" },
    { .in = "x[2,1,1,1,4] x[2,1,3,5,1]" },
    { .in = "x[2,3,4,2,2] p[1,1,1,1,1]" },
    { 0 },
};

const struct wf_op wf_op_add = {
    .name = "add",
    .n_in = 2,
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 0 | 1u << 1,
    .infer = wf_pair_infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_add(struct wf_graph *g, struct wf_value *a, struct wf_value *b)
{
    if (!a || !b)
        return NULL;
    const char *name = wf_arena_printf(&g->arena, "%s.add", a->name);
    return wf_append(g, &wf_op_add, name, NULL, NULL, 2, (struct wf_value *[]){ a, b });
}

struct wf_value *wf_subtract(struct wf_graph *g, struct wf_value *a, struct wf_value *b)
{
    return wf_add(g, a, wf_scale(g, b, -1.0));
}
