/*
 * Max and average pooling and their gradients.
 *
 * A line of results is made at a time. Forward goes tap by tap over the rows under its windows;
 * the gradients gather: each element of dx is written once, by whoever owns it, from the windows
 * that touch it, in the order of the reference. Many channels are taken in slices, so that what a line
 * reads fits a buffer.
 */
#include "device/cpu/cpu.h"

#include <math.h>

#include "ops/spatial.h"

enum { PLUS = 2 }; /* maxpool_grad's input that is added */

struct job {
    const struct wf_call *call;
    const struct wf_pool_attrs *attrs;
    struct wf_shape image, pooled; /* whole shapes of the larger and the smaller side */
    int64_t channels, slices;      /* of a slice; slices */
    bool max, backward;
    struct wf_cpu_lines lines;
};

/* Positions of the read side that `block` positions of the written side take, at most. */
static int64_t under(const struct wf_pool_attrs *a, int64_t image, int64_t block, bool backward)
{
    if (a->bins[2])
        return backward ? wf_ceil_div(block * a->bins[2], image) + 2
                        : wf_ceil_div(block * image, a->bins[2]) + 2;
    return backward ? block + a->kernel[2] : (block - 1) * a->stride[2] + a->kernel[2];
}

static bool accepts_side(const struct wf_node *node, bool backward)
{
    const struct wf_value *image = backward ? node->out[0] : node->in[0];
    return wf_cpu_accepts_float(node) &&
           under(node->attrs, image->shape.at[WF_W], 1, backward) <= WF_CPU_BLOCK_MAX;
}

static bool accepts(const struct wf_node *node)
{
    return accepts_side(node, false);
}

static bool accepts_grad(const struct wf_node *node)
{
    return accepts_side(node, true);
}

static struct job job_of(const struct wf_call *call, bool backward, bool max)
{
    struct job j = { .call = call, .attrs = call->node->attrs, .max = max, .backward = backward };
    j.image = backward ? call->node->out[0]->shape : call->node->in[0]->shape;
    j.pooled = backward ? call->node->in[0]->shape : call->node->out[0]->shape;
    const int64_t all = j.image.at[WF_C], wide = j.image.at[WF_W];
    j.channels = wf_min(all, WF_CPU_BLOCK_MAX / under(j.attrs, wide, 1, backward));
    j.slices = wf_ceil_div(all, j.channels);
    int64_t block = wf_max(1, WF_CPU_BLOCK / j.channels);
    while (block > 1 && under(j.attrs, wide, block, backward) * j.channels > WF_CPU_BLOCK_MAX)
        block--;
    j.lines = wf_cpu_lines(call->work, block);
    return j;
}

/* The window at `at` along an axis, padding included; and the windows that touch positions [lo, hi). */
static struct wf_range window(const struct job *j, int axis, int64_t at)
{
    return wf_pool_window(j->attrs, axis, j->image.at[WF_D + axis], at);
}

/* One over the number of elements that the window at (d, h, w) averages. */
static float share(const struct job *j, int64_t d, int64_t h, int64_t w)
{
    return (float)(1.0 / (double)wf_pool_count(j->attrs, &j->image, (const int64_t[]){ d, h, w }));
}

/* --- forward --- */

static void tap_max(const float *x, int64_t n, int32_t place, float *best, int32_t *where)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i];
        // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): forward_line() sets all
        const float b = best[i];
        const bool take = (where[i] < 0) | (v > b) | (v != v); /* NaN wins over all */
        best[i] = take ? v : b;
        where[i] = take ? place : where[i];
    }
}

static void tap_add(const float *x, int64_t n, float *sum)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i]; // NOLINT(clang-analyzer-core.uninitialized.Assign): forward_line() sets all
}

/* What a slice of channels is worked on in. */
struct slice {
    struct wf_view in[3], out[2];
    int64_t channels;
};

/* All taps of one row of the windows: `x` holds the image's positions `reads` of that row. */
static void forward_row(const struct job *j, int64_t c, struct wf_cpu_line out, const float *x,
                        struct wf_range reads, int64_t place, float *y, int32_t *where)
{
    for (int64_t o = out.w0; o < out.w1; o++) {
        const struct wf_range w = window(j, 2, o);
        const int64_t at = (o - out.w0) * c;
        for (int64_t i = wf_max(w.lo, reads.lo); i < wf_min(w.hi, reads.hi); i++)
            if (j->max)
                tap_max(x + (i - reads.lo) * c, c, (int32_t)(place + i - w.lo), y + at, where + at);
            else
                tap_add(x + (i - reads.lo) * c, c, y + at);
    }
}

static void store_means(const struct job *j, const struct slice *s, struct wf_cpu_line out,
                        float *y)
{
    for (int64_t o = out.w0; o < out.w1; o++) {
        const float factor = share(j, out.d, out.h, o);
        for (int64_t c = 0; c < s->channels; c++)
            // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): forward_line() sets all
            y[(o - out.w0) * s->channels + c] *= factor;
    }
}

static void forward_line(const struct job *j, const struct slice *s, struct wf_cpu_line out)
{
    float buffer[WF_CPU_BLOCK_MAX], y[WF_CPU_BLOCK_MAX];
    int32_t where[WF_CPU_BLOCK_MAX];
    const struct wf_pool_attrs *a = j->attrs;
    const int64_t n = (out.w1 - out.w0) * s->channels;
    for (int64_t i = 0; i < n; i++) {
        y[i] = j->max ? -INFINITY : 0.0f;
        where[i] = -1;
    }
    const struct wf_range d = window(j, 0, out.d), h = window(j, 1, out.h);
    const struct wf_range reads = { wf_max(window(j, 2, out.w0).lo, 0),
                                    wf_min(window(j, 2, out.w1 - 1).hi, j->image.at[WF_W]) };
    struct wf_cpu_line in = { .n = out.n, .w0 = reads.lo, .w1 = reads.hi };
    for (in.d = wf_max(d.lo, 0); in.d < wf_min(d.hi, j->image.at[WF_D]); in.d++)
        for (in.h = wf_max(h.lo, 0); in.h < wf_min(h.hi, j->image.at[WF_H]); in.h++)
            forward_row(j, s->channels, out,
                        wf_cpu_place_load(wf_cpu_line_place(&s->in[0], in), buffer), reads,
                        ((in.d - d.lo) * a->kernel[1] + in.h - h.lo) * a->kernel[2], y, where);
    if (j->max)
        wf_cpu_line_store_int(&s->out[1], out, where);
    else
        store_means(j, s, out, y);
    wf_cpu_place_store(wf_cpu_line_place(&s->out[0], out), y);
}

/* --- gradients --- */

static void tap_pick(const float *dy, const int32_t *where, int64_t n, int32_t place, float *dx)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        dx[i] += where[i] == place ? dy[i] : 0.0f;
}

static void tap_share(const float *dy, int64_t n, float factor, float *dx)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        dx[i] += dy[i] * factor;
}

static struct wf_range touching(const struct job *j, int axis, int64_t lo, int64_t hi)
{
    struct wf_range r = wf_pool_touched(j->attrs, axis, j->image.at[WF_D + axis], lo, hi);
    r.lo = wf_max(r.lo, 0);
    r.hi = wf_min(r.hi, j->pooled.at[WF_D + axis]);
    return r;
}

/* The windows of the pooled row (d, h) on a line of dx. `place` is that of the row's first tap. */
static void backward_row(const struct job *j, const struct slice *s, struct wf_cpu_line out,
                         struct wf_cpu_line in, int64_t place, float *dx)
{
    float buffer[WF_CPU_BLOCK_MAX];
    int32_t where[WF_CPU_BLOCK_MAX];
    const int64_t c = s->channels;
    const float *dy = wf_cpu_place_load(wf_cpu_line_place(&s->in[0], in), buffer);
    if (j->max)
        wf_cpu_place_load_int(wf_cpu_line_place(&s->in[1], in), where);
    for (int64_t i = out.w0; i < out.w1; i++) {
        const struct wf_range windows = touching(j, 2, i, i + 1);
        for (int64_t o = windows.lo; o < windows.hi; o++) {
            const int64_t k = i - window(j, 2, o).lo, from = (o - in.w0) * c;
            float *to = dx + (i - out.w0) * c;
            if (j->max)
                tap_pick(dy + from, where + from, c, (int32_t)(place + k), to);
            else
                tap_share(dy + from, c, share(j, in.d, in.h, o), to);
        }
    }
}

static void backward_line(const struct job *j, const struct slice *s, struct wf_cpu_line out)
{
    float buffer[WF_CPU_BLOCK_MAX], added[WF_CPU_BLOCK_MAX];
    const struct wf_pool_attrs *a = j->attrs;
    const struct wf_range d = touching(j, 0, out.d, out.d + 1);
    const struct wf_range h = touching(j, 1, out.h, out.h + 1);
    const struct wf_range along = touching(j, 2, out.w0, out.w1);
    const struct wf_view *const plus = j->max && s->in[PLUS].data ? &s->in[PLUS] : NULL;
    const size_t bytes = (size_t)((out.w1 - out.w0) * s->channels) * sizeof(float);
    float *dx = wf_cpu_place_dest(wf_cpu_line_place(&s->out[0], out), buffer);
    if (plus)
        memmove(dx, wf_cpu_place_load(wf_cpu_line_place(plus, out), added), bytes);
    else
        memset(dx, 0, bytes);
    for (int64_t od = d.lo; od < d.hi; od++)
        for (int64_t oh = h.lo; oh < h.hi && along.lo < along.hi; oh++) {
            const int64_t kd = out.d - window(j, 0, od).lo, kh = out.h - window(j, 1, oh).lo;
            backward_row(j, s, out, (struct wf_cpu_line){ out.n, od, oh, along.lo, along.hi },
                         (kd * a->kernel[1] + kh) * a->kernel[2], dx);
        }
    wf_cpu_place_store(wf_cpu_line_place(&s->out[0], out), dx);
}

/* --- kernels --- */

static struct slice slice_of(const struct job *j, int64_t index)
{
    const struct wf_call *const call = j->call;
    const int64_t lo = index * j->channels, hi = wf_min(lo + j->channels, j->image.at[WF_C]);
    struct slice s = { .channels = hi - lo };
    for (int i = 0; i < call->node->n_in; i++)
        if (call->in[i].data)
            s.in[i] = wf_cpu_channels(&call->in[i], lo, hi);
    for (int o = 0; o < call->node->n_out; o++)
        s.out[o] = wf_cpu_channels(&call->out[o], lo, hi);
    return s;
}

static void run(const struct wf_call *call, bool backward, bool max)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct job j = job_of(call, backward, max);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < j.lines.count * j.slices; i++) {
        const struct slice s = slice_of(&j, i % j.slices);
        const struct wf_cpu_line line = wf_cpu_line_at(&j.lines, i / j.slices);
        if (backward)
            backward_line(&j, &s, line);
        else
            forward_line(&j, &s, line);
    }
}

static void maxpool_run(const struct wf_call *call)
{
    run(call, false, true);
}

static void maxpool_grad_run(const struct wf_call *call)
{
    run(call, true, true);
}

static void avgpool_run(const struct wf_call *call)
{
    run(call, false, false);
}

static void avgpool_grad_run(const struct wf_call *call)
{
    run(call, true, false);
}

const struct wf_kernel wf_cpu_kernels_pool[] = {
    { .op = "maxpool", .accepts = accepts, .run = maxpool_run },
    { .op = "maxpool_grad", .accepts = accepts_grad, .run = maxpool_grad_run },
    { .op = "avgpool", .accepts = accepts, .run = avgpool_run },
    { .op = "avgpool_grad", .accepts = accepts_grad, .run = avgpool_grad_run },
    { 0 },
};
