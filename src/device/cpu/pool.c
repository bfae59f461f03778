/*
 * Max and average pooling and their gradients.
 *
 * A line of results is made at a time. Forward goes tap by tap over the rows under its windows;
 * the gradients gather: each element of dx is written once, by whoever owns it, from the windows
 * that touch it, in the order of the reference.
 */
#include "device/cpu/cpu.h"

#include <math.h>

#include "ops/spatial.h"

enum { PLUS = 2 }; /* maxpool_grad's input that is added */

struct job {
    const struct wf_call *call;
    const struct wf_pool_attrs *attrs;
    struct wf_window window[WF_SPACE];
    struct wf_shape image, pooled; /* whole shapes of the larger and the smaller side */
    int64_t channels;
    bool max;
    struct wf_cpu_lines lines;
};

static bool accepts(const struct wf_node *node)
{
    const struct wf_pool_attrs *a = node->attrs;
    return wf_cpu_accepts_float(node) &&
           (a->kernel[2] + 1) * node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}

static struct job job_of(const struct wf_call *call, bool backward, bool max)
{
    struct job j = { .call = call, .attrs = call->node->attrs, .max = max };
    j.image = backward ? call->node->out[0]->shape : call->node->in[0]->shape;
    j.pooled = backward ? call->node->in[0]->shape : call->node->out[0]->shape;
    j.channels = j.image.at[WF_C];
    const struct wf_windows windows = wf_pool_windows(j.attrs);
    memcpy(j.window, windows.along, sizeof j.window);
    /* What a line reads must fit a buffer: (block - 1) * step + kernel positions. */
    const int64_t room = WF_CPU_BLOCK_MAX / j.channels, step = backward ? 1 : j.window[2].stride;
    const int64_t block = (room - j.window[2].kernel - (backward ? 1 : 0)) / step + 1;
    const int64_t want = wf_max(1, WF_CPU_BLOCK / j.channels);
    j.lines = wf_cpu_lines(call->work, wf_min(want, wf_max(1, block)));
    return j;
}

/* One over the number of elements that the window at (d, h, w) averages. */
static float share(const struct job *j, int64_t d, int64_t h, int64_t w)
{
    const struct wf_pool_attrs *a = j->attrs;
    double count = (double)(a->kernel[0] * a->kernel[1] * a->kernel[2]);
    if (a->exclude_pad)
        count = (double)wf_region_count(
            wf_pool_inside(a, &j->image, (const int64_t[WF_AXES]){ 0, d, h, w, 0 }));
    return (float)(1.0 / count);
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

/* All taps of one row of the windows: `x` holds the image's positions [x0, x1) of that row. */
static void forward_row(const struct job *j, struct wf_cpu_line out, const float *x,
                        struct wf_range reads, int64_t place, float *y, int32_t *where)
{
    const struct wf_window *w = &j->window[2];
    const int64_t c = j->channels;
    for (int64_t o = out.w0; o < out.w1; o++)
        for (int64_t k = 0; k < w->kernel; k++) {
            const int64_t i = o * w->stride - w->pad_lo + k, at = (o - out.w0) * c;
            if (i < reads.lo || i >= reads.hi)
                continue;
            if (j->max)
                tap_max(x + (i - reads.lo) * c, c, (int32_t)(place + k), y + at, where + at);
            else
                tap_add(x + (i - reads.lo) * c, c, y + at);
        }
}

static void forward_line(const struct job *j, struct wf_cpu_line out)
{
    float buffer[WF_CPU_BLOCK_MAX], y[WF_CPU_BLOCK_MAX];
    int32_t where[WF_CPU_BLOCK_MAX];
    const struct wf_window *w = j->window;
    const int64_t n = (out.w1 - out.w0) * j->channels;
    for (int64_t i = 0; i < n; i++) {
        y[i] = j->max ? -INFINITY : 0.0f;
        where[i] = -1;
    }
    struct wf_range reads = wf_window_reads(&w[2], out.w0, out.w1);
    reads.lo = wf_max(reads.lo, 0);
    reads.hi = wf_min(reads.hi, j->image.at[WF_W]);
    for (int64_t kd = 0; kd < w[0].kernel; kd++)
        for (int64_t kh = 0; kh < w[1].kernel; kh++) {
            const struct wf_cpu_line in = { .n = out.n,
                                            .d = out.d * w[0].stride - w[0].pad_lo + kd,
                                            .h = out.h * w[1].stride - w[1].pad_lo + kh,
                                            .w0 = reads.lo,
                                            .w1 = reads.hi };
            if (in.d < 0 || in.d >= j->image.at[WF_D] || in.h < 0 || in.h >= j->image.at[WF_H])
                continue;
            forward_row(j, out, wf_cpu_place_load(wf_cpu_line_place(&j->call->in[0], in), buffer),
                        reads, (kd * w[1].kernel + kh) * w[2].kernel, y, where);
        }
    if (j->max)
        wf_cpu_line_store_int(&j->call->out[1], out, where);
    for (int64_t o = out.w0; o < out.w1 && !j->max; o++) {
        const float factor = share(j, out.d, out.h, o);
        for (int64_t c = 0; c < j->channels; c++)
            // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): set above
            y[(o - out.w0) * j->channels + c] *= factor;
    }
    wf_cpu_place_store(wf_cpu_line_place(&j->call->out[0], out), y);
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

/* The windows of the pooled row (d, h) on a line of dx. `place` is that of the row's first tap. */
static void backward_row(const struct job *j, struct wf_cpu_line out, struct wf_cpu_line in,
                         int64_t place, float *dx)
{
    float buffer[WF_CPU_BLOCK_MAX];
    int32_t where[WF_CPU_BLOCK_MAX];
    const struct wf_window *w = &j->window[2];
    const int64_t c = j->channels;
    const float *dy = wf_cpu_place_load(wf_cpu_line_place(&j->call->in[0], in), buffer);
    if (j->max)
        wf_cpu_place_load_int(wf_cpu_line_place(&j->call->in[1], in), where);
    for (int64_t i = out.w0; i < out.w1; i++) {
        const int64_t last = wf_min(wf_floor_div(i + w->pad_lo, w->stride), in.w1 - 1);
        const int64_t first = wf_ceil_div(i + w->pad_lo - w->kernel + 1, w->stride);
        for (int64_t o = wf_max(first, in.w0); o <= last; o++) {
            const int64_t k = i + w->pad_lo - o * w->stride, from = (o - in.w0) * c;
            float *to = dx + (i - out.w0) * c;
            if (j->max)
                tap_pick(dy + from, where + from, c, (int32_t)(place + k), to);
            else
                tap_share(dy + from, c, share(j, in.d, in.h, o), to);
        }
    }
}

static struct wf_range touching(const struct job *j, int axis, int64_t lo, int64_t hi)
{
    struct wf_range r = wf_window_touches(&j->window[axis], lo, hi);
    r.lo = wf_max(r.lo, 0);
    r.hi = wf_min(r.hi, j->pooled.at[WF_D + axis]);
    return r;
}

static void backward_line(const struct job *j, struct wf_cpu_line out)
{
    float buffer[WF_CPU_BLOCK_MAX], added[WF_CPU_BLOCK_MAX];
    const struct wf_window *w = j->window;
    const struct wf_range d = touching(j, 0, out.d, out.d + 1);
    const struct wf_range h = touching(j, 1, out.h, out.h + 1);
    const struct wf_range along = touching(j, 2, out.w0, out.w1);
    const struct wf_view *const plus = j->max && j->call->in[PLUS].data ? &j->call->in[PLUS] : NULL;
    const size_t bytes = (size_t)((out.w1 - out.w0) * j->channels) * sizeof(float);
    float *dx = wf_cpu_place_dest(wf_cpu_line_place(&j->call->out[0], out), buffer);
    if (plus)
        memmove(dx, wf_cpu_place_load(wf_cpu_line_place(plus, out), added), bytes);
    else
        memset(dx, 0, bytes);
    for (int64_t od = d.lo; od < d.hi; od++)
        for (int64_t oh = h.lo; oh < h.hi && along.lo < along.hi; oh++) {
            const int64_t kd = out.d + w[0].pad_lo - od * w[0].stride;
            const int64_t kh = out.h + w[1].pad_lo - oh * w[1].stride;
            backward_row(j, out, (struct wf_cpu_line){ out.n, od, oh, along.lo, along.hi },
                         (kd * w[1].kernel + kh) * w[2].kernel, dx);
        }
    wf_cpu_place_store(wf_cpu_line_place(&j->call->out[0], out), dx);
}

/* --- kernels --- */

static void run(const struct wf_call *call, bool backward, bool max)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct job j = job_of(call, backward, max);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < j.lines.count; i++) {
        const struct wf_cpu_line line = wf_cpu_line_at(&j.lines, i);
        if (backward)
            backward_line(&j, line);
        else
            forward_line(&j, line);
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
    { .op = "maxpool_grad", .accepts = accepts, .run = maxpool_grad_run },
    { .op = "avgpool", .accepts = accepts, .run = avgpool_run },
    { .op = "avgpool_grad", .accepts = accepts, .run = avgpool_grad_run },
    { 0 },
};
