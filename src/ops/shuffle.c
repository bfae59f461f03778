/*
 * depth_to_space: channels to positions, and space_to_depth: back; nothing computed. PyTorch's pixel shuffle:
 *
 *     y[n, d * r0 + i, h * r1 + j, w * r2 + k, c]  =  x[n, d, h, w, ((c * r0 + i) * r1 + j) * r2 + k]
 *
 * Each is the other's gradient. channel_shuffle mixes the channels of groups: of n channels in each, channel
 * g * n + i becomes channel i * groups + g; its gradient is a shuffle of n groups.
 */
#include <inttypes.h>

#include "ops/rows.h"
#include "ops/spatial.h"

extern const struct wf_op wf_op_depth_to_space, wf_op_space_to_depth, wf_op_channel_shuffle;

static const struct wf_field fields[] = {
    WF_INTS(wf_shuffle_attrs, factor, WF_SPACE),
    { 0 },
};

static int64_t volume(const struct wf_shuffle_attrs *a)
{
    return a->factor[0] * a->factor[1] * a->factor[2];
}

static bool check(const struct wf_shuffle_attrs *a, struct wf_err *err)
{
    for (int i = 0; i < WF_SPACE; i++)
        if (a->factor[i] < 1 || a->factor[i] > 1 << 15)
            return wf_err_set(err, WF_ERR_USAGE,
                              "a factor of %" PRId64 " along %c: it must be at least 1",
                              a->factor[i], "DHW"[i]);
    return true;
}

static bool to_space_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shuffle_attrs *a = node->attrs;
    struct wf_shape *y = &node->out[0]->shape;
    if (!check(a, err))
        return false;
    if (y->at[WF_C] % volume(a) != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " channels are not a multiple of the %" PRId64
                          " positions that they become",
                          y->at[WF_C], volume(a));
    y->at[WF_C] /= volume(a);
    for (int i = 0; i < WF_SPACE; i++)
        y->at[WF_D + i] *= a->factor[i];
    return true;
}

static bool to_depth_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shuffle_attrs *a = node->attrs;
    struct wf_shape *y = &node->out[0]->shape;
    if (!check(a, err))
        return false;
    for (int i = 0; i < WF_SPACE; i++) {
        if (y->at[WF_D + i] % a->factor[i] != 0)
            return wf_err_set(err, WF_ERR_USAGE,
                              "%" PRId64 " along %c is not a multiple of %" PRId64
                              ": pad or crop the image",
                              y->at[WF_D + i], "DHW"[i], a -> factor[i]);
        y->at[WF_D + i] /= a->factor[i];
    }
    y->at[WF_C] *= volume(a);
    return true;
}

static struct wf_region to_space_reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_shuffle_attrs *a = node->attrs;
    for (int i = 0; i < WF_SPACE; i++) {
        work.lo[WF_D + i] = wf_floor_div(work.lo[WF_D + i], a->factor[i]);
        work.hi[WF_D + i] = wf_ceil_div(work.hi[WF_D + i], a->factor[i]);
    }
    work.lo[WF_C] *= volume(a);
    work.hi[WF_C] *= volume(a);
    return work;
}

static struct wf_region to_depth_reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_shuffle_attrs *a = node->attrs;
    for (int i = 0; i < WF_SPACE; i++) {
        work.lo[WF_D + i] *= a->factor[i];
        work.hi[WF_D + i] *= a->factor[i];
    }
    work.lo[WF_C] = wf_floor_div(work.lo[WF_C], volume(a));
    work.hi[WF_C] = wf_ceil_div(work.hi[WF_C], volume(a));
    return work;
}

static void to_space_reference(const struct wf_call *call)
{
    const struct wf_shuffle_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t from[WF_AXES] = { [WF_N] = c.at[WF_N] }, channel = c.at[WF_C];
        for (int i = 0; i < WF_SPACE; i++) {
            channel = channel * a->factor[i] + c.at[WF_D + i] % a->factor[i];
            from[WF_D + i] = c.at[WF_D + i] / a->factor[i];
        }
        from[WF_C] = channel;
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[0], from));
    }
}

static void to_depth_reference(const struct wf_call *call)
{
    const struct wf_shuffle_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t from[WF_AXES] = { [WF_N] = c.at[WF_N] }, channel = c.at[WF_C];
        for (int i = WF_SPACE - 1; i >= 0; i--) {
            from[WF_D + i] = c.at[WF_D + i] * a->factor[i] + channel % a->factor[i];
            channel /= a->factor[i];
        }
        from[WF_C] = channel;
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[0], from));
    }
}

static void to_space_grad(struct wf_graph *g, const struct wf_node *node,
                          struct wf_value *const dy[], const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, &wf_op_space_to_depth, node->name, "dx", node->attrs, 1, dy);
}

static void to_depth_grad(struct wf_graph *g, const struct wf_node *node,
                          struct wf_value *const dy[], const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, &wf_op_depth_to_space, node->name, "dx", node->attrs, 1, dy);
}

static const struct wf_case to_space_cases[] = {
    { .attrs = "factor=[1,2,2]", .in = "x[2,1,3,4,8]" },
    { .attrs = "factor=[1,3,1]", .in = "x[1,1,4,5,6]" },
    { .attrs = "factor=[2,2,2]", .in = "x[1,2,3,2,16]" },
    { .attrs = "factor=[1,1,4]", .in = "x[3,1,1,5,4]" },
    { .attrs = "factor=[1,1,1]", .in = "x[1,1,3,3,2]" },
    { .attrs = "factor=[1,2,3]", .in = "x[1,1,5,3,6]" },
    { 0 },
};

const struct wf_op wf_op_depth_to_space = {
    .name = "depth_to_space",
    .n_in = 1,
    WF_ATTRS(wf_shuffle_attrs, fields),
    .flags = WF_OP_CHEAP | WF_OP_SCALES,
    .infer = to_space_infer,
    .grad = to_space_grad,
    .reads = to_space_reads,
    .reference = to_space_reference,
    .cases = to_space_cases,
};

static const struct wf_case to_depth_cases[] = {
    { .attrs = "factor=[1,2,2]", .in = "x[2,1,6,4,3]" },
    { .attrs = "factor=[1,3,1]", .in = "x[1,1,6,5,2]" },
    { .attrs = "factor=[2,2,2]", .in = "x[1,4,6,4,2]" },
    { .attrs = "factor=[1,1,4]", .in = "x[3,1,1,12,1]" },
    { .attrs = "factor=[1,1,1]", .in = "x[1,1,3,3,2]" },
    { .attrs = "factor=[1,2,3]", .in = "x[1,1,8,6,1]" },
    { 0 },
};

const struct wf_op wf_op_space_to_depth = {
    .name = "space_to_depth",
    .n_in = 1,
    WF_ATTRS(wf_shuffle_attrs, fields),
    .flags = WF_OP_CHEAP | WF_OP_SCALES,
    .infer = to_depth_infer,
    .grad = to_depth_grad,
    .reads = to_depth_reads,
    .reference = to_depth_reference,
    .cases = to_depth_cases,
};

static struct wf_value *build(struct wf_graph *g, const struct wf_op *op, struct wf_value *x,
                              const char *name, const int64_t factor[3])
{
    struct wf_shuffle_attrs a;
    for (int i = 0; i < WF_SPACE; i++)
        a.factor[i] = factor[i] ? factor[i] : 1;
    return x ? wf_append(g, op, name, NULL, &a, 1, &x) : NULL;
}

struct wf_value *wf_pixel_shuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                  const int64_t factor[3])
{
    return build(g, &wf_op_depth_to_space, x, name, factor);
}

struct wf_value *wf_pixel_unshuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                    const int64_t factor[3])
{
    return build(g, &wf_op_space_to_depth, x, name, factor);
}

/* --- channel_shuffle --- */

static const struct wf_field group_fields[] = {
    WF_INT(wf_groups_attrs, groups),
    { 0 },
};

static bool shuffle_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_groups_attrs *a = node->attrs;
    const int64_t channels = node->in[0]->shape.at[WF_C];
    return (a->groups >= 1 && channels % a->groups == 0) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "%" PRId64 " channels do not make %" PRId64 " groups of one size", channels,
                      a->groups);
}

static void shuffle_reference(const struct wf_call *call)
{
    const struct wf_groups_attrs *a = call->node->attrs;
    const int64_t each = call->node->in[0]->shape.at[WF_C] / a->groups;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(
            &call->out[0], c.at,
            wf_row_get(&call->in[0], c.at, c.at[WF_C] % a->groups * each + c.at[WF_C] / a->groups));
}

static void shuffle_grad(struct wf_graph *g, const struct wf_node *node,
                         struct wf_value *const dy[], const bool[], struct wf_value *dx[])
{
    const struct wf_groups_attrs *a = node->attrs;
    const struct wf_groups_attrs back = { node->in[0]->shape.at[WF_C] / a->groups };
    dx[0] = wf_append(g, &wf_op_channel_shuffle, node->name, "dx", &back, 1, dy);
}

static const struct wf_case shuffle_cases[] = {
    { .attrs = "groups=2", .in = "x[2,1,5,7,6]" },
    { .attrs = "groups=3", .in = "x[1,3,4,5,6]" },
    { .attrs = "groups=1", .in = "x[3,1,1,11,2]" },
    { .attrs = "groups=4", .in = "x[5,1,1,1,4]" },
    { .attrs = "groups=2", .in = "x[1,1,3,3,8]" },
    { .attrs = "groups=5", .in = "x[2,1,2,3,10]" },
    { 0 },
};

const struct wf_op wf_op_channel_shuffle = {
    .name = "channel_shuffle",
    .n_in = 1,
    WF_ATTRS(wf_groups_attrs, group_fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .infer = shuffle_infer,
    .grad = shuffle_grad,
    .reads = wf_row_reads,
    .reference = shuffle_reference,
    .cases = shuffle_cases,
};

struct wf_value *wf_channel_shuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                    int64_t groups)
{
    const struct wf_groups_attrs a = { groups };
    return x ? wf_append(g, &wf_op_channel_shuffle, name, NULL, &a, 1, &x) : NULL;
}
