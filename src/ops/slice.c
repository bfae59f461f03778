/*
 * slice: some channels of an image. The gradient of concat, and mostly not a copy (part).
 *
 * It cuts channels only, so that it is pointwise: a part of the result needs the same part of the
 * image. Cutting other axes moves coordinates, which is what pad with negative amounts does;
 * wf_slice() builds the two as needed.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/spatial.h"

static const struct wf_field fields[] = {
    WF_INTS(wf_slice_attrs, lo, WF_AXES),
    WF_INTS(wf_slice_attrs, hi, WF_AXES),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_slice_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    for (int i = 0; i < WF_AXES; i++) {
        if (a->lo[i] < 0 || a->hi[i] > x->at[i] || a->lo[i] >= a->hi[i])
            return wf_err_set(err, WF_ERR_USAGE,
                              "[%" PRId64 ", %" PRId64 ") along axis %c is not a part of "
                              "[0, %" PRId64 ")",
                              a->lo[i], a->hi[i], "NDHWC"[i], x -> at[i]);
        if (i != WF_C && a->hi[i] - a->lo[i] != x->at[i])
            return wf_err_set(err, WF_ERR_USAGE,
                              "cuts channels only, not axis %c: use pad with negative amounts",
                              "NDHWC"[i]);
        node->out[0]->shape.at[i] = a->hi[i] - a->lo[i];
    }
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    const struct wf_slice_attrs *a = node->attrs;
    struct wf_pad_attrs pad = { .mode = WF_PAD_ZERO };
    pad.lo[WF_C] = a->lo[WF_C];
    pad.hi[WF_C] = node->in[0]->shape.at[WF_C] - a->hi[WF_C];
    dx[0] = wf_append(g, &wf_op_pad, node->name, "dx", &pad, 1, dy);
}

static bool part(const struct wf_node *node, int64_t shift[WF_AXES])
{
    const struct wf_slice_attrs *a = node->attrs;
    for (int i = 0; i < WF_AXES; i++)
        shift[i] = a->lo[i];
    return true;
}

static struct wf_region reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_slice_attrs *a = node->attrs;
    return wf_region_shift(work, a->lo);
}

static void reference(const struct wf_call *call)
{
    if (wf_region_is_empty(call->work))
        return;
    const struct wf_view src = wf_view_part(call->in[0], reads(call->node, 0, call->work));
    const struct wf_view dst = wf_view_part(call->out[0], call->work);
    wf_view_copy(&dst, &src);
}

/* Of a case: along every axis. */
static struct wf_value *cut(struct wf_graph *g, struct wf_value *const in[], const void *attrs)
{
    const struct wf_slice_attrs *a = attrs;
    struct wf_region wanted;
    memcpy(wanted.lo, a->lo, sizeof wanted.lo);
    memcpy(wanted.hi, a->hi, sizeof wanted.hi);
    return wf_slice(g, in[0], wanted);
}

static const struct wf_case cases[] = {
    { .attrs = "lo=[0,0,0,0,1] hi=[2,1,3,4,3]", .in = "x[2,1,3,4,4]" },
    { .attrs = "lo=[0,0,0,0,0] hi=[1,1,5,2,1]", .in = "x[1,1,5,2,3]" },
    { .attrs = "lo=[0,0,0,0,2] hi=[1,1,1,7,3]", .in = "x[1,1,1,7,3]" },
    { .attrs = "lo=[0,0,0,0,0] hi=[1,2,3,2,2]", .in = "x[1,2,3,2,2]" },
    { .attrs = "lo=[0,0,0,0,3] hi=[3,1,1,1,5]", .in = "x[3,1,1,1,6]" },
    { .attrs = "lo=[0,0,0,0,1] hi=[1,2,2,2,2]", .in = "x[1,2,2,2,3]" },
    { .attrs = "lo=[1,0,1,2,1] hi=[3,1,4,5,3]", .in = "x[3,1,5,6,4]", .build = cut },
    { .attrs = "lo=[0,1,0,2,0] hi=[1,3,4,5,2]", .in = "x[1,3,4,6,2]", .build = cut },
    { 0 },
};

const struct wf_op wf_op_slice = {
    .name = "slice",
    .n_in = 1,
    WF_ATTRS(wf_slice_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP | WF_OP_SHIFTS,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .part = part,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_slice(struct wf_graph *g, struct wf_value *x, struct wf_region wanted)
{
    if (!x)
        return NULL;
    struct wf_pad_attrs crop = { .mode = WF_PAD_ZERO };
    bool crops = false;
    for (int a = 0; a < WF_AXES; a++) {
        if (wanted.lo[a] < 0 || wanted.hi[a] > x->shape.at[a] || wanted.lo[a] >= wanted.hi[a]) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "slice of '%s': [%" PRId64 ", %" PRId64 ") along axis %c is not a part of "
                       "[0, %" PRId64 ")",
                       x->name, wanted.lo[a], wanted.hi[a], "NDHWC"[a], x -> shape.at[a]);
            return NULL;
        }
        if (a == WF_C)
            continue;
        crop.lo[a] = -wanted.lo[a];
        crop.hi[a] = wanted.hi[a] - x->shape.at[a];
        crops |= crop.lo[a] || crop.hi[a];
    }
    if (crops)
        x = wf_append(g, &wf_op_pad, "slice", NULL, &crop, 1, &x);
    if (!x || (wanted.lo[WF_C] == 0 && wanted.hi[WF_C] == x->shape.at[WF_C]))
        return x;
    struct wf_slice_attrs a = { .lo = { [WF_C] = wanted.lo[WF_C] } };
    for (int i = 0; i < WF_AXES; i++)
        a.hi[i] = i == WF_C ? wanted.hi[i] : x->shape.at[i];
    return wf_append(g, &wf_op_slice, "slice", NULL, &a, 1, &x);
}
