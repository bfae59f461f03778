/* A constant, the same on every rank: the seed of reverse mode. */
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/cast.h"
#include "ops/op.h"

static const struct wf_field fields[] = {
    WF_INTS(wf_fill_attrs, shape, WF_AXES),
    WF_NAMED(wf_fill_attrs, dtype, wf_dtype_names),
    WF_REAL(wf_fill_attrs, value),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_fill_attrs *a = node->attrs;
    if (a->dtype < 0 || a->dtype >= WF_DTYPES)
        return wf_err_set(err, WF_ERR_USAGE, "there is no element type %" PRId64 ": take 0..%d",
                          a->dtype, WF_DTYPES - 1);
    for (int axis = 0; axis < WF_AXES; axis++)
        node->out[0]->shape.at[axis] = a->shape[axis];
    node->out[0]->dtype = (enum wf_dtype)a->dtype;
    node->out[0]->replicated = true;
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_fill_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, a->value);
}

static const struct wf_case cases[] = {
    { .attrs = "shape=[1,1,1,1,1] value=1", .in = "" },
    { .attrs = "shape=[2,1,3,5,2] value=-2.5", .in = "" },
    { .attrs = "shape=[1,3,4,5,1] dtype=f64 value=0.1", .in = "" },
    { .attrs = "shape=[3,1,1,7,2] dtype=i32 value=4", .in = "" },
    { .attrs = "shape=[1,1,5,3,3] dtype=bf16 value=0.5", .in = "" },
    { .attrs = "shape=[5,1,1,1,2] dtype=u8 value=255", .in = "" },
    { 0 },
};

const struct wf_op wf_op_fill = {
    .name = "fill",
    .n_in = 0,
    WF_ATTRS(wf_fill_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .infer = infer,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_fill(struct wf_graph *g, struct wf_shape shape, enum wf_dtype dtype,
                         double value)
{
    struct wf_fill_attrs a = { .dtype = dtype, .value = value };
    for (int axis = 0; axis < WF_AXES; axis++)
        a.shape[axis] = shape.at[axis];
    return wf_append(g, &wf_op_fill, NULL, NULL, &a, 0, NULL);
}
