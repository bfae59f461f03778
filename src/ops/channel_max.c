/* channel_max: the largest channel of each position, and which one it is; the first wins, NaN wins over all. */
#include <inttypes.h>
#include <math.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/rows.h"

extern const struct wf_op wf_op_channel_max, wf_op_channel_max_grad;

static const struct wf_field fields[] = {
    WF_INT(wf_groups_attrs, groups),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *)
{
    node->out[0]->shape.at[WF_C] = 1;
    node->out[1]->shape.at[WF_C] = 1;
    node->out[1]->dtype = WF_I32;
    return true;
}

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double best = wf_row_get(&call->in[0], c.at, 0);
        int64_t where = 0;
        for (int64_t k = 1; k < channels; k++) {
            const double x = wf_row_get(&call->in[0], c.at, k);
            if (x > best || isnan(x)) {
                best = x;
                where = k;
            }
        }
        wf_view_set(&call->out[0], c.at, best);
        wf_view_set(&call->out[1], c.at, (double)where);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    const struct wf_groups_attrs a = { node->in[0]->shape.at[WF_C] };
    if (dy[0])
        dx[0] = wf_append(g, &wf_op_channel_max_grad, node->name, "dx", &a, 2,
                          (struct wf_value *[]){ dy[0], node->out[1] });
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3]" },
    { .in = "x[1,3,4,5,2]" },
    { .in = "x[3,1,1,11,4]" },
    { .in = "x[5,1,1,1,9]" },
    { .in = "x[2,1,3,3,1]" },
    { .in = "x[1,1,4,3,40]" },
    { 0 },
};

static int decides(const struct wf_node *)
{
    return 1; /* the index */
}

const struct wf_op wf_op_channel_max = {
    .name = "channel_max",
    .n_in = 1,
    .n_out = 2,
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .grad = grad,
    .reads = wf_row_reads,
    .decides = decides,
    .reference = reference,
    .cases = cases,
};

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_groups_attrs *a = node->attrs;
    if (!wf_shape_equal(node->in[0]->shape, node->in[1]->shape) ||
        node->in[0]->shape.at[WF_C] != 1 || a->groups < 1)
        return wf_err_set(err, WF_ERR_USAGE, "dy and the index have one channel, dx %" PRId64,
                          a->groups);
    node->out[0]->shape.at[WF_C] = a->groups;
    return true;
}

static void grad_reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    (int64_t)wf_row_get(&call->in[1], c.at, 0) == c.at[WF_C]
                        ? wf_row_get(&call->in[0], c.at, 0)
                        : 0.0);
}

const struct wf_op wf_op_channel_max_grad = {
    .name = "channel_max_grad",
    .n_in = 2,
    WF_ATTRS(wf_groups_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .infer = grad_infer,
    .reads = wf_row_reads,
    .reference = grad_reference,
};

struct wf_value *wf_max_channels(struct wf_graph *g, struct wf_value *x, const char *name)
{
    return x ? wf_append(g, &wf_op_channel_max, name, NULL, NULL, 1, &x) : NULL;
}
