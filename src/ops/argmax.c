/* The class of each position: the channel with the largest number, the first of equals. With one channel
 * it is 1 where the number is positive, as a sigmoid of more than one half is. Not differentiable. */
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/cast.h"
#include "ops/rows.h"

static const struct wf_field fields[] = {
    WF_NAMED(wf_cast_attrs, dtype, wf_dtype_names),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_cast_attrs *a = node->attrs;
    const int64_t channels = node->in[0]->shape.at[WF_C];
    if (a->dtype != WF_I32 && (a->dtype != WF_U8 || channels > UINT8_MAX + 1))
        return wf_err_set(err, WF_ERR_USAGE,
                          "the class among %" PRId64 " is i32, or u8 where there are at most %d",
                          channels, UINT8_MAX + 1);
    node->out[0]->dtype = (enum wf_dtype)a->dtype;
    node->out[0]->shape.at[WF_C] = 1;
    return true;
}

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor p = wf_cursor(call->work); wf_cursor_next(&p);) {
        double top = wf_row_get(&call->in[0], p.at, 0);
        int64_t best = channels == 1 && top > 0.0;
        for (int64_t c = 1; c < channels; c++) {
            const double x = wf_row_get(&call->in[0], p.at, c);
            best = x > top ? c : best;
            top = x > top ? x : top;
        }
        wf_view_set(&call->out[0], p.at, (double)best);
    }
}

static const struct wf_case cases[] = {
    { .attrs = "dtype=u8", .in = "X[2,1,5,3,4]" },
    { .attrs = "dtype=i32", .in = "X[1,3,2,5,2]" },
    { .attrs = "dtype=u8", .in = "X[3,1,1,7,1]" },
    { .attrs = "dtype=i32", .in = "X[5,1,1,1,10]" },
    { .attrs = "dtype=u8", .in = "X[1,1,3,9,40]" },
    { .attrs = "dtype=i32", .in = "X[1,1,2,3,300]" },
    { 0 },
};

const struct wf_op wf_op_argmax = {
    .name = "argmax",
    .n_in = 1,
    WF_ATTRS(wf_cast_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .reads = wf_row_reads,
    .reference = reference,
    .flops_each = 2,
    .cases = cases,
};

struct wf_value *wf_argmax(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype,
                           const char *name)
{
    const struct wf_cast_attrs a = { .dtype = dtype };
    return wf_append(g, &wf_op_argmax, name, NULL, &a, 1, &x);
}
