/*
 * upsample: another extent by the nearest element or by linear or cubic interpolation; either direction.
 *
 *     nearest         source of i is floor(i * in / out)
 *     nearest_exact   floor((i + 1/2) * in / out)
 *     linear          half-pixel centres: (i + 1/2) * in / out - 1/2, not below 0 (PyTorch's
 *                     align_corners=False)
 *     linear_corners  i * (in - 1) / (out - 1): first meets first and last meets last
 *     cubic, cubic_corners  at the same places, of four elements; past the border the one at it
 *
 * Instead of in / out a scale may be given, as the fraction step / steps. Along each axis the elements that
 * are taken are found in whole numbers: a tile computes the same weights as the whole image.
 * upsample_grad is the adjoint.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/build.h"
#include "ops/spatial.h"
#include "ops/upsample.h"

const char *const wf_upsample_mode_names[] = {
    "nearest", "linear", "linear_corners", "nearest_exact", "cubic", "cubic_corners", NULL
};

static const struct wf_field fields[] = {
    WF_NAMED(wf_upsample_attrs, mode, wf_upsample_mode_names),
    WF_INTS(wf_upsample_attrs, extent, 3),
    WF_INTS(wf_upsample_attrs, step, 3),
    WF_INTS(wf_upsample_attrs, steps, 3),
    { 0 },
};

/* The result's elements that take any of the source elements [lo, hi). */
static struct wf_range taken_by(struct wf_up_axis a, int64_t lo, int64_t hi)
{
    return (struct wf_range){ wf_up_reaching(a, lo, true), wf_up_reaching(a, hi, false) };
}

/* Axis i (0, 1, 2) of an upsample node, or of the upsampling that a gradient node belongs to. */
static struct wf_up_axis axis_of(const struct wf_node *node, int i)
{
    const struct wf_upsample_attrs *a = node->attrs;
    const int64_t given = node->in[0]->shape.at[WF_D + i], made = node->out[0]->shape.at[WF_D + i];
    const bool back = node->op == &wf_op_upsample_grad;
    return wf_up_axis(a, i, back ? made : given, back ? given : made);
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_upsample_attrs *a = node->attrs;
    struct wf_shape *y = &node->out[0]->shape;
    if (a->mode < WF_NEAREST || a->mode > WF_CUBIC_CORNERS)
        return wf_err_set(err, WF_ERR_USAGE, "there is no mode %" PRId64, a->mode);
    for (int i = 0; i < WF_SPACE; i++) {
        if (a->extent[i] < 1 || a->extent[i] > INT64_C(1) << 30)
            return wf_err_set(err, WF_ERR_USAGE,
                              "the result's extent along %c is %" PRId64 ": it must be at least 1",
                              "DHW"[i], a -> extent[i]);
        if (a->step[i] < 0 || a->steps[i] < 0 || a->step[i] > INT32_MAX ||
            a->steps[i] > INT32_MAX || (a->step[i] > 0) != (a->steps[i] > 0))
            return wf_err_set(err, WF_ERR_USAGE,
                              "a step of %" PRId64 " / %" PRId64 " along %c: both must be above 0",
                              a->step[i], a->steps[i], "DHW"[i]);
        y->at[WF_D + i] = a->extent[i];
    }
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_upsample_attrs a = *(const struct wf_upsample_attrs *)node->attrs;
    wf_set_extent(a.extent, node->in[0]);
    dx[0] = wf_append(g, &wf_op_upsample_grad, node->name, "dx", &a, 1, dy);
}

static struct wf_region reads(const struct wf_node *node, int, struct wf_region work)
{
    struct wf_region r = work;
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_up_axis a = axis_of(node, i);
        r.lo[WF_D + i] = wf_up_source(a, work.lo[WF_D + i]).first;
        r.hi[WF_D + i] = wf_up_source(a, work.hi[WF_D + i] - 1).second + 1;
    }
    return r;
}

static void reference(const struct wf_call *call)
{
    const struct wf_shape *x = &call->node->in[0]->shape;
    struct wf_up_axis axes[WF_SPACE];
    for (int i = 0; i < WF_SPACE; i++)
        axes[i] = axis_of(call->node, i);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        struct wf_region near = wf_region_at(c.at); /* up to four neighbours along each axis */
        for (int i = 0; i < WF_SPACE; i++) {
            const struct wf_up_source s = wf_up_source(axes[i], c.at[WF_D + i]);
            near.lo[WF_D + i] = s.first;
            near.hi[WF_D + i] = s.second + 1;
        }
        double sum = 0;
        for (struct wf_cursor p = wf_cursor(near); wf_cursor_next(&p);) {
            double weight = 1;
            for (int i = 0; i < WF_SPACE; i++)
                weight *= wf_up_share(axes[i], c.at[WF_D + i], p.at[WF_D + i]);
            sum += weight * wf_ref_get(&call->in[0], x, p.at);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static const struct wf_case cases[] = {
    { .attrs = "mode=nearest extent=[1,8,10]", .in = "x[2,1,4,5,2]" },
    { .attrs = "mode=nearest extent=[1,7,3]", .in = "x[1,1,3,5,2]" },
    { .attrs = "mode=linear extent=[1,8,10]", .in = "x[1,1,4,5,2]" },
    { .attrs = "mode=linear extent=[1,7,11]", .in = "x[2,1,3,5,1]" },
    { .attrs = "mode=linear extent=[1,1,4]", .in = "x[1,1,1,9,2]" },
    { .attrs = "mode=linear extent=[4,6,5]", .in = "x[1,2,3,4,1]" },
    { .attrs = "mode=linear extent=[1,25,17]", .in = "x[1,1,3,2,2]" }, /* each takes many results */
    { .attrs = "mode=cubic extent=[4,8,12]", .in = "x[2,1,1,2,8]" },
    { .attrs = "mode=linear_corners extent=[1,9,1]", .in = "x[1,1,5,3,2]" },
    { .attrs = "mode=linear_corners extent=[3,7,8]", .in = "x[1,2,4,5,1]" },
    { .attrs = "mode=nearest extent=[5,2,6]", .in = "x[1,2,3,4,2]" },
    { .attrs = "mode=nearest_exact extent=[1,7,10]", .in = "x[1,1,3,4,2]" },
    { .attrs = "mode=nearest_exact extent=[2,3,2]", .in = "x[1,3,5,7,2]" },
    { .attrs = "mode=cubic extent=[1,8,11]", .in = "x[1,1,4,5,2]" },
    { .attrs = "mode=cubic extent=[1,3,4]", .in = "x[2,1,7,9,2]" },
    { .attrs = "mode=cubic extent=[3,4,2]", .in = "x[1,2,1,3,1]" },
    { .attrs = "mode=cubic_corners extent=[1,9,7]", .in = "x[1,1,5,4,2]" },
    { .attrs = "mode=linear extent=[1,7,7] step=[1,2,2] steps=[1,3,3]", .in = "x[1,1,5,5,2]" },
    { .attrs = "mode=nearest extent=[1,7,3] step=[1,2,3] steps=[1,3,2]", .in = "x[1,1,5,5,2]" },
    { .attrs = "mode=cubic extent=[1,2,7] step=[1,2,2] steps=[1,1,3]", .in = "x[1,1,5,5,2]" },
    { .attrs = "mode=nearest_exact extent=[1,2,7] step=[1,2,2] steps=[1,1,3]",
      .in = "x[2,1,5,5,1]" },
    /* The last elements are not taken. */
    { .attrs = "mode=nearest extent=[1,16,16] step=[1,1,1] steps=[1,99,99]", .in = "x[1,1,2,2,2]" },
    { 0 },
};

/* With corners the extents are to each other as in - 1 to out - 1, with steps as they say. */
static bool is_fixed(const struct wf_node *node)
{
    const struct wf_upsample_attrs *a = node->attrs;
    return a->mode == WF_LINEAR_CORNERS || a->mode == WF_CUBIC_CORNERS || a->steps[0] ||
           a->steps[1] || a->steps[2];
}

const struct wf_op wf_op_upsample = {
    .name = "upsample",
    .n_in = 1,
    .flags = WF_OP_SCALES,
    .is_fixed = is_fixed,
    WF_ATTRS(wf_upsample_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_upsample(struct wf_graph *g, struct wf_value *x, const char *name,
                             const int64_t out[3], enum wf_upsample_mode mode)
{
    const struct wf_upsample_attrs a = { .mode = mode, .extent = { out[0], out[1], out[2] } };
    return wf_append(g, &wf_op_upsample, name, NULL, &a, 1, &x);
}

/* 1 / scale as a fraction of small numbers: the best of the continued fraction's. */
static void fraction_of(double value, int64_t *step, int64_t *steps)
{
    enum { MOST = 1 << 20 };
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = value;
    for (int i = 0; i < 40; i++) {
        const int64_t whole = (int64_t)floor(rest);
        const int64_t p = whole * p1 + p0, q = whole * q1 + q0;
        if (q > MOST || p > MOST)
            break;
        p0 = p1, q0 = q1, p1 = p, q1 = q;
        if (fabs(value - (double)p / (double)q) < 1e-13 * value || rest == (double)whole)
            break;
        rest = 1.0 / (rest - (double)whole);
    }
    *step = p1;
    *steps = q1;
}

struct wf_value *wf_upsample_by(struct wf_graph *g, struct wf_value *x, const char *name,
                                const double scale[3], enum wf_upsample_mode mode)
{
    if (!x)
        return NULL;
    struct wf_upsample_attrs a = { .mode = mode };
    for (int i = 0; i < WF_SPACE; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        const double by = scale[i] > 0 ? scale[i] : 1.0;
        if (by < 1e-5 || by > 1e5) {
            wf_err_set(&g->err, WF_ERR_USAGE, "layer '%s': a scale of %g along %c: use 1e-5 to 1e5",
                       name, by, "DHW"[i]);
            return NULL;
        }
        a.extent[i] = (int64_t)floor((double)extent * by);
        fraction_of(1.0 / by, &a.step[i], &a.steps[i]);
        if (a.step[i] * a.extent[i] == extent * a.steps[i]) /* as the extents are, too */
            a.step[i] = a.steps[i] = 0;
    }
    return wf_append(g, &wf_op_upsample, name, NULL, &a, 1, &x);
}

/* --- the gradient --- */

static struct wf_region reads_grad(const struct wf_node *node, int, struct wf_region work)
{
    struct wf_region r = work;
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_range from =
            taken_by(axis_of(node, i), work.lo[WF_D + i], work.hi[WF_D + i]);
        r.lo[WF_D + i] = from.lo;
        r.hi[WF_D + i] = from.hi;
    }
    return r;
}

static void reference_grad(const struct wf_call *call)
{
    const struct wf_shape *dy = &call->node->in[0]->shape;
    struct wf_up_axis axes[WF_SPACE];
    for (int i = 0; i < WF_SPACE; i++)
        axes[i] = axis_of(call->node, i);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (struct wf_cursor o = wf_cursor(reads_grad(call->node, 0, wf_region_at(c.at)));
             wf_cursor_next(&o);) {
            double weight = 1;
            for (int i = 0; i < WF_SPACE; i++)
                weight *= wf_up_share(axes[i], o.at[WF_D + i], c.at[WF_D + i]);
            sum += weight * wf_ref_get(&call->in[0], dy, o.at);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_upsample_grad = {
    .name = "upsample_grad",
    .n_in = 1,
    WF_ATTRS(wf_upsample_attrs, fields),
    .infer = infer,
    .reads = reads_grad,
    .reference = reference_grad,
};
