/* Sum of two values of one shape. */
#include "ops/pair.h"

#include <inttypes.h>

#include "ops/build.h"

bool wf_pair_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *a = node->in[0], *b = node->in[1];
    for (int axis = 0; axis < WF_AXES; axis++)
        if (a->shape.at[axis] != b->shape.at[axis])
            return wf_err_set(
                err, WF_ERR_USAGE,
                "'%s' and '%s' differ along %c (%" PRId64 " and %" PRId64 "): pad or crop one",
                a->name, b->name, "NDHWC"[axis], a -> shape.at[axis], b->shape.at[axis]);
    if (a->dtype != b->dtype)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is %s and '%s' is %s: cast one", a->name,
                          wf_dtype_name(a->dtype), b->name, wf_dtype_name(b->dtype));
    node->out[0]->replicated = a->replicated && b->replicated;
    return true;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_view_at(&call->in[0], c.at) + wf_view_at(&call->in[1], c.at));
}

static void grad(struct wf_graph *, const struct wf_node *, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < 2; i++)
        dx[i] = wanted[i] ? dy[0] : NULL;
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
