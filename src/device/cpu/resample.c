/*
 * Upsampling and its gradient, line by line, axis by axis.
 *
 * Forward mixes the rows that a line comes from, then goes along W. The gradient first
 * adds the rows of dy that take from a line of dx, then gathers along W. Many channels are taken in
 * slices, so that what a line reads fits a buffer. Where they come from is
 * ops/upsample.h's to say.
 */
#include "device/cpu/cpu.h"

#include "ops/spatial.h"
#include "ops/upsample.h"

struct job {
    const struct wf_call *call;
    struct wf_up_axis axis[WF_SPACE];
    struct wf_cpu_lines lines;
    int64_t channels, slice, slices; /* of channels */
};

/* Results that take any of the sources [lo, hi). */
static struct wf_range taken_by(struct wf_up_axis a, int64_t lo, int64_t hi)
{
    return (struct wf_range){ wf_up_reaching(a, lo, true), wf_up_reaching(a, hi, false) };
}

/* Positions of the read side under `block` positions of the written side, at most. */
static int64_t under(int64_t block, int64_t ratio)
{
    return (block + 4) * ratio + 4;
}

static struct job job_of(const struct wf_call *call, bool backward)
{
    const struct wf_upsample_attrs *a = call->node->attrs;
    struct job j = { .call = call, .channels = call->node->in[0]->shape.at[WF_C] };
    for (int i = 0; i < WF_SPACE; i++) {
        const int64_t given = call->node->in[0]->shape.at[WF_D + i];
        const int64_t made = call->node->out[0]->shape.at[WF_D + i];
        j.axis[i] = wf_up_axis(a, i, backward ? made : given, backward ? given : made);
    }
    WF_BUG_ON(j.channels < 1, "%lld channels", (long long)j.channels);
    const int64_t ratio =
        wf_ceil_div(call->node->in[0]->shape.at[WF_W], call->node->out[0]->shape.at[WF_W]);
    j.slice = wf_min(j.channels, wf_max(1, WF_CPU_BLOCK_MAX / under(4, ratio)));
    j.slices = wf_ceil_div(j.channels, j.slice);
    int64_t block = wf_max(1, WF_CPU_BLOCK / j.slice);
    while (block > 1 && under(block, ratio) * j.slice > WF_CPU_BLOCK_MAX)
        block--;
    j.lines = wf_cpu_lines(call->work, block);
    return j;
}

static bool accepts(const struct wf_node *node)
{
    const int64_t ratio = wf_ceil_div(node->in[0]->shape.at[WF_W], node->out[0]->shape.at[WF_W]);
    return wf_cpu_accepts_float(node) && under(4, ratio) <= WF_CPU_BLOCK_MAX;
}

/* acc += factor * the line of `view`, or = where it is the first. */
static void add_line(const struct wf_view *view, struct wf_cpu_line line, float factor, bool first,
                     float *acc)
{
    float buffer[WF_CPU_BLOCK_MAX];
    const int64_t n = (line.w1 - line.w0) * wf_region_extent(view->box, WF_C);
    const float *x = wf_cpu_place_load(wf_cpu_line_place(view, line), buffer);
    if (first) {
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            acc[i] = factor * x[i];
    } else {
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            acc[i] += factor * x[i];
    }
}

static void add_scaled(const float *from, float factor, int64_t n, float *to)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

/* The rows of x that line `out` lies between, mixed; or the row itself when there is one. */
static const float *mix_rows(const struct job *j, const struct wf_view *x, struct wf_cpu_line out,
                             struct wf_range along, float *acc)
{
    const struct wf_up_source d = wf_up_source(j->axis[0], out.d),
                              h = wf_up_source(j->axis[1], out.h);
    struct wf_cpu_line in = { out.n, d.first, h.first, along.lo, along.hi };
    if (d.first == d.second && h.first == h.second)
        return wf_cpu_place_load(wf_cpu_line_place(x, in), acc);
    for (in.d = d.first; in.d <= d.second; in.d++)
        for (in.h = h.first; in.h <= h.second; in.h++) {
            const float factor = (float)wf_up_share(j->axis[0], out.d, in.d) *
                                 (float)wf_up_share(j->axis[1], out.h, in.h);
            add_line(x, in, factor, in.d == d.first && in.h == h.first, acc);
        }
    return acc;
}

/* What element p counts in result o, whose source is `s`. */
static float weight_of(struct wf_up_axis a, struct wf_up_source s, int64_t o, int64_t p)
{
    if (wf_up_is_cubic(a.mode))
        return (float)wf_up_share(a, o, p);
    return p == s.first ? 1.0f - (float)s.t : (float)s.t;
}

static void forward_line(const struct job *j, const struct wf_view *x, const struct wf_view *y,
                         struct wf_cpu_line out)
{
    float acc[WF_CPU_BLOCK_MAX], buffer[WF_CPU_BLOCK_MAX];
    const int64_t channels = wf_region_extent(y->box, WF_C);
    const struct wf_range along = { wf_up_source(j->axis[2], out.w0).first,
                                    wf_up_source(j->axis[2], out.w1 - 1).second + 1 };
    const float *mixed = mix_rows(j, x, out, along, acc);
    float *to = wf_cpu_place_dest(wf_cpu_line_place(y, out), buffer);
    for (int64_t o = out.w0; o < out.w1; o++) {
        const struct wf_up_source s = wf_up_source(j->axis[2], o);
        const float *a = mixed + (s.first - along.lo) * channels;
        const float *b = mixed + (s.second - along.lo) * channels;
        float *at = to + (o - out.w0) * channels;
        if (s.first == s.second) {
            memcpy(at, a, (size_t)channels * sizeof *at);
            continue;
        }
        if (wf_up_is_cubic(j->axis[2].mode)) {
            memset(at, 0, (size_t)channels * sizeof *at);
            for (int64_t p = s.first; p <= s.second; p++)
                add_scaled(mixed + (p - along.lo) * channels, weight_of(j->axis[2], s, o, p),
                           channels, at);
            continue;
        }
        const float t = (float)s.t, rest = 1.0f - t;
        WF_SIMD
        for (int64_t c = 0; c < channels; c++)
            at[c] = rest * a[c] + // NOLINT(clang-analyzer-core.*): mix_rows() has at least one row
                    t * b[c];
    }
    wf_cpu_place_store(wf_cpu_line_place(y, out), to);
}

static void backward_line(const struct job *j, const struct wf_view *dy, const struct wf_view *dx,
                          struct wf_cpu_line out)
{
    float acc[WF_CPU_BLOCK_MAX], buffer[WF_CPU_BLOCK_MAX];
    const int64_t channels = wf_region_extent(dx->box, WF_C);
    const struct wf_range d = taken_by(j->axis[0], out.d, out.d + 1);
    const struct wf_range h = taken_by(j->axis[1], out.h, out.h + 1);
    const struct wf_range along = taken_by(j->axis[2], out.w0, out.w1);
    float *to = wf_cpu_place_dest(wf_cpu_line_place(dx, out), buffer);
    memset(to, 0, (size_t)((out.w1 - out.w0) * channels) * sizeof *to);
    memset(acc, 0, (size_t)((along.hi - along.lo) * channels) * sizeof *acc);
    struct wf_cpu_line in = { .n = out.n, .w0 = along.lo, .w1 = along.hi };
    for (in.d = d.lo; in.d < d.hi && along.lo < along.hi; in.d++)
        for (in.h = h.lo; in.h < h.hi; in.h++)
            add_line(dy, in,
                     (float)wf_up_share(j->axis[0], in.d, out.d) *
                         (float)wf_up_share(j->axis[1], in.h, out.h),
                     false, acc);
    for (int64_t o = along.lo; o < along.hi; o++) {
        const struct wf_up_source s = wf_up_source(j->axis[2], o);
        const float *from = acc + (o - along.lo) * channels;
        for (int64_t p = wf_max(s.first, out.w0); p <= s.second && p < out.w1; p++)
            add_scaled(from, weight_of(j->axis[2], s, o, p), channels,
                       to + (p - out.w0) * channels);
    }
    wf_cpu_place_store(wf_cpu_line_place(dx, out), to);
}

static void run(const struct wf_call *call, bool backward)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct job j = job_of(call, backward);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < j.lines.count * j.slices; i++) {
        const int64_t lo = i % j.slices * j.slice, hi = wf_min(lo + j.slice, j.channels);
        const struct wf_view in = wf_cpu_channels(&call->in[0], lo, hi);
        const struct wf_view out = wf_cpu_channels(&call->out[0], lo, hi);
        const struct wf_cpu_line line = wf_cpu_line_at(&j.lines, i / j.slices);
        if (backward)
            backward_line(&j, &in, &out, line);
        else
            forward_line(&j, &in, &out, line);
    }
}

static void upsample_run(const struct wf_call *call)
{
    run(call, false);
}

static void upsample_grad_run(const struct wf_call *call)
{
    run(call, true);
}

const struct wf_kernel wf_cpu_kernels_resample[] = {
    { .op = "upsample", .accepts = accepts, .run = upsample_run },
    { .op = "upsample_grad", .accepts = accepts, .run = upsample_grad_run },
    { 0 },
};
