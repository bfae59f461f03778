/*
 * pad: elements put around an image, or (negative amounts) taken off it.
 *
 *     zero      0
 *     reflect   mirrored at the outermost element, which is not repeated
 *     circular  from the other side
 *     edge      the outermost element again
 *
 * Mirrors stand at the borders of the image, also where the other end is cropped. Zero padding
 * works on every axis and is its own gradient with negated amounts; the others pad D, H, W and have
 * pad_grad, which adds up all places that an element went to.
 */
#include <inttypes.h>

#include "ops/build.h"
#include "ops/spatial.h"

const char *const wf_pad_mode_names[] = { "zero", "reflect", "circular", "edge", NULL };

static const struct wf_field fields[] = {
    WF_INTS(wf_pad_attrs, lo, WF_AXES),
    WF_INTS(wf_pad_attrs, hi, WF_AXES),
    WF_NAMED(wf_pad_attrs, mode, wf_pad_mode_names),
    { 0 },
};

/* The most that a mode can add to an extent. */
static int64_t most(int64_t mode, int64_t extent)
{
    return mode == WF_PAD_REFLECT    ? extent - 1
           : mode == WF_PAD_CIRCULAR ? extent
                                     : INT64_C(1) << 40;
}

static bool check_axis(const struct wf_pad_attrs *a, int axis, int64_t extent, struct wf_err *err)
{
    const int64_t lo = a->lo[axis], hi = a->hi[axis], limit = most(a->mode, extent);
    if (lo > limit || hi > limit)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%s padding of %" PRId64 " and %" PRId64 " along axis %c is too much for "
                          "%" PRId64 " elements: at most %" PRId64,
                          wf_pad_mode_names[a->mode], lo, hi, "NDHWC"[axis], extent, limit);
    if (lo < -extent || hi < -extent || extent + lo + hi < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "padding of %" PRId64 " and %" PRId64 " along axis %c leaves nothing of "
                          "%" PRId64 " elements",
                          lo, hi, "NDHWC"[axis], extent);
    if (a->mode != WF_PAD_ZERO && (axis == WF_N || axis == WF_C) && (lo || hi))
        return wf_err_set(err, WF_ERR_USAGE, "axis %c takes zero padding only", "NDHWC"[axis]);
    return true;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_pad_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    if (a->mode < WF_PAD_ZERO || a->mode > WF_PAD_EDGE)
        return wf_err_set(err, WF_ERR_USAGE, "there is no mode %" PRId64, a->mode);
    for (int i = 0; i < WF_AXES; i++) {
        if (!check_axis(a, i, x->at[i], err))
            return false;
        node->out[0]->shape.at[i] = x->at[i] + a->lo[i] + a->hi[i];
    }
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_pad_attrs a = *(const struct wf_pad_attrs *)node->attrs;
    for (int i = 0; i < WF_AXES && a.mode == WF_PAD_ZERO; i++) {
        a.lo[i] = -a.lo[i];
        a.hi[i] = -a.hi[i];
    }
    dx[0] = wf_append(g, a.mode == WF_PAD_ZERO ? &wf_op_pad : &wf_op_pad_grad, node->name, "dx", &a,
                      1, dy);
}

/* One axis of a padding: `extent` is the image's, positions q are counted from the image's start,
 * so padding lies at q in [-lo, 0) and [extent, extent + hi). */
struct axis {
    int64_t mode, lo, hi, extent;
};

/* The image's element that shows at q. Zero padding stays where it is, outside the image. */
static int64_t shown_at(struct axis a, int64_t q)
{
    if ((q >= 0 && q < a.extent) || a.mode == WF_PAD_ZERO)
        return q;
    if (a.mode == WF_PAD_REFLECT)
        return q < 0 ? -q : 2 * (a.extent - 1) - q;
    if (a.mode == WF_PAD_CIRCULAR)
        return q < 0 ? q + a.extent : q - a.extent;
    return q < 0 ? 0 : a.extent - 1;
}

static void widen(struct wf_range *r, struct wf_range by)
{
    if (by.hi <= by.lo)
        return;
    if (r->hi <= r->lo) {
        *r = by;
        return;
    }
    r->lo = wf_min(r->lo, by.lo);
    r->hi = wf_max(r->hi, by.hi);
}

/* The hull of the elements that show at positions [lo, hi). */
static struct wf_range shown(struct axis a, int64_t lo, int64_t hi)
{
    if (a.mode == WF_PAD_ZERO)
        return (struct wf_range){ lo, hi };
    struct wf_range r = { wf_max(lo, 0), wf_min(hi, a.extent) };
    for (int64_t q = lo; q < wf_min(hi, 0); q++)
        widen(&r, (struct wf_range){ shown_at(a, q), shown_at(a, q) + 1 });
    for (int64_t q = wf_max(lo, a.extent); q < hi; q++)
        widen(&r, (struct wf_range){ shown_at(a, q), shown_at(a, q) + 1 });
    return r;
}

static struct wf_region reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_pad_attrs *a = node->attrs;
    struct wf_region r;
    for (int i = 0; i < WF_AXES; i++) {
        const struct axis axis = { a->mode, a->lo[i], a->hi[i], node->in[0]->shape.at[i] };
        const struct wf_range from = shown(axis, work.lo[i] - a->lo[i], work.hi[i] - a->lo[i]);
        r.lo[i] = from.lo;
        r.hi[i] = from.hi;
    }
    return r;
}

/* What only crops is a part of the image. */
static bool part(const struct wf_node *node, int64_t shift[WF_AXES])
{
    const struct wf_pad_attrs *a = node->attrs;
    for (int i = 0; i < WF_AXES; i++) {
        if (a->lo[i] > 0 || a->hi[i] > 0)
            return false;
        shift[i] = -a->lo[i];
    }
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_pad_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t from[WF_AXES];
        for (int i = 0; i < WF_AXES; i++)
            from[i] = shown_at((struct axis){ a->mode, a->lo[i], a->hi[i], x->at[i] },
                               c.at[i] - a->lo[i]);
        wf_view_set(&call->out[0], c.at, wf_ref_get(&call->in[0], x, from));
    }
}

static const struct wf_case cases[] = {
    { .attrs = "mode=zero lo=[0,0,1,2,0] hi=[0,0,0,1,0]", .in = "x[2,1,3,4,2]" },
    { .attrs = "mode=zero lo=[0,0,-1,1,0] hi=[0,0,2,-2,0]", .in = "x[1,1,5,6,2]" },
    { .attrs = "mode=zero lo=[1,0,0,0,2] hi=[0,1,0,0,1]", .in = "x[1,2,2,3,2]" },
    { .attrs = "mode=reflect lo=[0,0,2,1,0] hi=[0,0,1,3,0]", .in = "x[1,1,4,5,2]" },
    { .attrs = "mode=reflect lo=[0,1,2,0,0] hi=[0,2,-1,1,0]", .in = "x[1,3,4,2,1]" },
    { .attrs = "mode=reflect lo=[0,0,0,4,0] hi=[0,0,0,4,0]", .in = "x[2,1,1,5,2]" },
    { .attrs = "mode=circular lo=[0,0,2,1,0] hi=[0,0,1,5,0]", .in = "x[1,1,4,5,2]" },
    { .attrs = "mode=circular lo=[0,2,-1,0,0] hi=[0,1,3,2,0]", .in = "x[1,2,4,3,1]" },
    { .attrs = "mode=edge lo=[0,0,2,1,0] hi=[0,0,0,7,0]", .in = "x[1,1,3,4,2]" },
    { .attrs = "mode=edge lo=[0,1,0,-1,0] hi=[0,1,4,2,0]", .in = "x[1,2,1,4,1]" },
    { 0 },
};

/* Near the border others than zeros depend on how far it is. */
static bool is_fixed(const struct wf_node *node)
{
    return ((const struct wf_pad_attrs *)node->attrs)->mode != WF_PAD_ZERO;
}

const struct wf_op wf_op_pad = {
    .name = "pad",
    .n_in = 1,
    WF_ATTRS(wf_pad_attrs, fields),
    .flags = WF_OP_CHEAP | WF_OP_SHIFTS,
    .is_fixed = is_fixed,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .part = part,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_pad(struct wf_graph *g, struct wf_value *x, const char *name,
                        const int64_t lo[3], const int64_t hi[3], enum wf_pad_mode mode)
{
    struct wf_pad_attrs a = { .mode = mode };
    for (int i = 0; i < WF_SPACE; i++) {
        a.lo[WF_D + i] = lo[i];
        a.hi[WF_D + i] = hi[i];
    }
    return wf_append(g, &wf_op_pad, name, NULL, &a, 1, &x);
}

struct wf_value *wf_pad_channels(struct wf_graph *g, struct wf_value *x, const char *name,
                                 int64_t before, int64_t behind)
{
    const struct wf_pad_attrs a = { .lo = { [WF_C] = before },
                                    .hi = { [WF_C] = behind },
                                    .mode = WF_PAD_ZERO };
    if (!x || (before == 0 && behind == 0))
        return x;
    return wf_append(g, &wf_op_pad, name, NULL, &a, 1, &x);
}

/* --- the gradient --- */

static bool infer_grad(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_pad_attrs *a = node->attrs;
    if (a->mode <= WF_PAD_ZERO || a->mode > WF_PAD_EDGE)
        return wf_err_set(err, WF_ERR_USAGE,
                          "has no mode %" PRId64 " (zero: use pad with negated amounts)", a->mode);
    for (int i = 0; i < WF_AXES; i++) {
        const int64_t extent = node->in[0]->shape.at[i] - a->lo[i] - a->hi[i];
        if (!check_axis(a, i, extent, err))
            return false;
        node->out[0]->shape.at[i] = extent;
    }
    return true;
}

static struct axis grad_axis(const struct wf_node *node, int i)
{
    const struct wf_pad_attrs *a = node->attrs;
    return (struct axis){ a->mode, a->lo[i], a->hi[i], node->out[0]->shape.at[i] };
}

/* Positions [lo, hi) that exist, as positions in dy. */
static struct wf_range in_dy(struct axis a, int64_t lo, int64_t hi)
{
    return (struct wf_range){ wf_max(lo, -a.lo) + a.lo, wf_min(hi, a.extent + a.hi) + a.lo };
}

/* The hull of the places where elements [lo, hi) show. */
static struct wf_range places(struct axis a, int64_t lo, int64_t hi)
{
    struct wf_range r = in_dy(a, lo, hi);
    for (int64_t q = -a.lo; q < 0; q++)
        if (shown_at(a, q) >= lo && shown_at(a, q) < hi)
            widen(&r, in_dy(a, q, q + 1));
    for (int64_t q = a.extent; q < a.extent + a.hi; q++)
        if (shown_at(a, q) >= lo && shown_at(a, q) < hi)
            widen(&r, in_dy(a, q, q + 1));
    return r;
}

static struct wf_region reads_grad(const struct wf_node *node, int, struct wf_region work)
{
    struct wf_region r;
    for (int i = 0; i < WF_AXES; i++) {
        const struct wf_range from = places(grad_axis(node, i), work.lo[i], work.hi[i]);
        r.lo[i] = from.lo;
        r.hi[i] = from.hi;
    }
    return r;
}

static void reference_grad(const struct wf_call *call)
{
    const struct wf_pad_attrs *a = call->node->attrs;
    const struct wf_shape *dy = &call->node->in[0]->shape;
    struct axis axes[WF_AXES];
    for (int i = 0; i < WF_AXES; i++)
        axes[i] = grad_axis(call->node, i);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (struct wf_cursor o = wf_cursor(reads_grad(call->node, 0, wf_region_at(c.at)));
             wf_cursor_next(&o);) {
            bool mine = true; /* the hull holds other elements' places too */
            for (int i = 0; i < WF_AXES; i++)
                mine &= shown_at(axes[i], o.at[i] - a->lo[i]) == c.at[i];
            if (mine)
                sum += wf_ref_get(&call->in[0], dy, o.at);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_pad_grad = {
    .name = "pad_grad",
    .n_in = 1,
    WF_ATTRS(wf_pad_attrs, fields),
    .infer = infer_grad,
    .reads = reads_grad,
    .reference = reference_grad,
};
