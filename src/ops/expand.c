/* expand: along axes of extent one, the element at every position. Its gradient sums. */
#include <inttypes.h>
#include <string.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/pair.h"

static const struct wf_field fields[] = {
    WF_INTS(wf_expand_attrs, shape, WF_AXES),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_expand_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    for (int i = 0; i < WF_AXES; i++)
        if (x->at[i] != 1 && x->at[i] != a->shape[i])
            return wf_err_set(err, WF_ERR_USAGE,
                              "%" PRId64 " along %c cannot become %" PRId64 ": only 1 can",
                              x->at[i], "NDHWC"[i], a -> shape[i]);
    memcpy(node->out[0]->shape.at, a->shape, sizeof a->shape);
    return true;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, wf_pair_get(&call->in[0], call->node->in[0], c.at));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_sum_to(g, node->name, dy[0], NULL, node->in[0]);
}

static const struct wf_case cases[] = {
    { .attrs = "shape=[2,1,4,5,3]", .in = "x[2,1,1,1,3]" },
    { .attrs = "shape=[2,1,4,5,3]", .in = "x[2,1,4,5,1]" },
    { .attrs = "shape=[3,2,4,5,2]", .in = "x[1,2,4,1,2]" },
    { .attrs = "shape=[1,1,1,7,2]", .in = "x[1,1,1,1,1]" },
    { .attrs = "shape=[2,3,3,2,2]", .in = "x[2,1,3,2,1]" },
    { .attrs = "shape=[4,1,1,1,3]", .in = "x[4,1,1,1,3]" },
    { 0 },
};

const struct wf_op wf_op_expand = {
    .name = "expand",
    .n_in = 1,
    WF_ATTRS(wf_expand_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_expand(struct wf_graph *g, struct wf_value *x, const char *name,
                           struct wf_shape shape)
{
    if (!x || wf_shape_equal(x->shape, shape))
        return x;
    struct wf_expand_attrs a;
    memcpy(a.shape, shape.at, sizeof a.shape);
    return wf_append(g, &wf_op_expand, name, "expand", &a, 1, &x);
}
