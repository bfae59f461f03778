/*
 * Normalisation: moments, apply and gradient, for batch, instance and group norm.
 *
 * What is constant per channel is spread once to packed rows as long as a piece (struct rows), so
 * the loops run flat over positions and channels. With statistics per sample the samples are taken
 * one after the other, otherwise all at once.
 */
#include <math.h>

#include "device/cpu/cpu.h"
#include "ops/norm.h"

enum { MEAN, SCALE, BIAS, RSTD, DROP, SLANT, ROWS };

/* In scratch: ROWS rows of `length` floats. */
struct rows {
    const float *row[ROWS];
    int64_t act;
    float slope;
};

static int64_t channels_of(const struct wf_node *node)
{
    return node->in[0]->shape.at[WF_C];
}

static int64_t row_length(const struct wf_node *node)
{
    return wf_max(WF_CPU_BLOCK, channels_of(node));
}

static size_t rows_scratch(const struct wf_node *node)
{
    return (size_t)(ROWS * row_length(node)) * sizeof(float);
}

/* The part of the work that shares its statistics: one sample, or all. `*n` is their row. */
static struct wf_region sharing(const struct wf_call *call, int64_t sample, int64_t *n)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    struct wf_region part = call->work;
    *n = 0;
    if (a->per_sample) {
        *n = sample;
        part.lo[WF_N] = sample;
        part.hi[WF_N] = sample + 1;
    }
    return part;
}

static int64_t last_sample(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    return a->per_sample ? call->work.hi[WF_N] : call->work.lo[WF_N] + 1;
}

/* Of rows that are counted now: behind so many sums. */
static void put_count(const struct wf_call *call, int64_t sums)
{
    if (wf_norm_counts(call->node->attrs))
        wf_view_put(&call->out[0], 0, 0, 0, 0, sums, (double)wf_region_extent(call->work, WF_N));
}

/* --- moments --- */

static void moments_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer);
    const int64_t n = wf_cpu_count(piece, 0);
    double *sum = lanes->sum[0], *squares = lanes->sum[1];
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        sum[i] += v;
        squares[i] += v * v;
    }
}

static bool moments_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_cpu_sum_scratch(2, channels_of(p->node));
    return true;
}

static void moments_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = channels_of(call->node), groups = a->groups;
    const int64_t each = channels / groups;
    if (wf_region_is_empty(call->work)) {
        wf_view_fill(&call->out[0], 0);
        return;
    }
    for (int64_t s = call->work.lo[WF_N]; s < last_sample(call); s++) {
        int64_t n;
        struct wf_cpu_walk walk;
        const struct wf_region part = sharing(call, s, &n);
        wf_cpu_walk_over(&walk, part, WF_CPU_POSITION, WF_CPU_VIEWS(&call->in[0]));
        const struct wf_cpu_sum sum = { .body = moments_body, .sums = 2, .channels = channels };
        const double *sums = wf_cpu_walk_sum(&walk, &sum, call->scratch);
        for (int64_t k = 0; k < 2 * groups; k++) {
            const double *from = sums + (k / groups) * channels + (k % groups) * each;
            double total = 0;
            for (int64_t i = 0; i < each; i++)
                total += from[i];
            wf_view_put(&call->out[0], n, 0, 0, 0, k, total);
        }
        put_count(call, 2 * groups);
    }
}

/* --- rows --- */

/* MEAN, SCALE, BIAS and RSTD for statistics row `n`. Of one position still. */
static void fill_rows(const struct wf_call *call, int64_t n, float *row[ROWS])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const struct wf_view *s = &call->in[1], *w = &call->in[2], *b = &call->in[3];
    const int64_t channels = channels_of(call->node), each = channels / a->groups;
    float *memory = call->scratch;
    for (int r = 0; r < ROWS; r++)
        row[r] = memory + r * row_length(call->node);
    for (int64_t c = 0; c < channels; c++) {
        const double rstd = wf_view_get(s, n, 0, 0, 0, a->groups + c / each);
        const double weight = w->data ? wf_view_get(w, 0, 0, 0, 0, c) : 1.0;
        row[MEAN][c] = (float)wf_view_get(s, n, 0, 0, 0, c / each);
        row[SCALE][c] = (float)(rstd * weight);
        row[BIAS][c] = b->data ? (float)wf_view_get(b, 0, 0, 0, 0, c) : 0.0f;
        row[RSTD][c] = (float)rstd;
    }
}

static struct rows spread_rows(const struct wf_call *call, float *const row[ROWS])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    struct rows rows = { .act = a->act, .slope = (float)a->slope };
    for (int r = 0; r < ROWS; r++) {
        wf_cpu_tile(row[r], channels_of(call->node), row_length(call->node));
        rows.row[r] = row[r];
    }
    return rows;
}

/* --- apply --- */

static void norm_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct rows *rows = context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    const float *mean = rows->row[MEAN], *scale = rows->row[SCALE], *bias = rows->row[BIAS];
    const float slope = rows->slope;
    const int64_t n = wf_cpu_count(piece, 0);
    if (rows->act == WF_RELU) {
        WF_SIMD
        for (int64_t i = 0; i < n; i++) {
            const float v = (x[i] - mean[i]) * scale[i] + bias[i];
            y[i] = v < 0.0f ? 0.0f : v;
        }
    } else if (rows->act == WF_LEAKY_RELU) {
        WF_SIMD
        for (int64_t i = 0; i < n; i++) {
            const float v = (x[i] - mean[i]) * scale[i] + bias[i];
            y[i] = wf_cpu_select(v < 0.0f, v * slope, v);
        }
    } else {
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean[i]) * scale[i] + bias[i];
    }
    wf_cpu_store(piece, 1, y);
}

static bool rows_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = rows_scratch(p->node);
    return true;
}

static void norm_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t s = call->work.lo[WF_N]; s < last_sample(call); s++) {
        int64_t n;
        float *row[ROWS];
        struct wf_cpu_walk walk;
        const struct wf_region part = sharing(call, s, &n);
        fill_rows(call, n, row);
        const struct rows rows = spread_rows(call, row);
        wf_cpu_walk_over(&walk, part, WF_CPU_POSITION, WF_CPU_VIEWS(&call->in[0], &call->out[0]));
        wf_cpu_walk_run(&walk, norm_body, &rows);
    }
}

/* --- gradient --- */

/* dy * act'(pre), pre being the normalised value before the activation. */
static inline float through_act(float pre, float dy, float slope)
{
    return wf_cpu_select(pre > 0.0f, dy, dy * slope);
}

static float backward_slope(const struct rows *rows)
{
    return rows->act == WF_RELU ? 0.0f : rows->act == WF_LEAKY_RELU ? rows->slope : 1.0f;
}

static void grad_sums_body(const struct wf_cpu_piece *piece, const void *context,
                           struct wf_cpu_lanes *lanes)
{
    const struct rows *rows = context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t n = wf_cpu_count(piece, 0);
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *dy = wf_cpu_load(piece, 1, buffer[1]);
    const float *mean = rows->row[MEAN], *scale = rows->row[SCALE], *bias = rows->row[BIAS];
    const float *rstd = rows->row[RSTD], slope = backward_slope(rows);
    double *sum = lanes->sum[0], *dot = lanes->sum[1];
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float away = x[i] - mean[i];
        const float g = through_act(away * scale[i] + bias[i], dy[i], slope);
        sum[i] += (double)g;
        dot[i] += (double)g * (double)(away * rstd[i]);
    }
}

static bool grad_sums_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = rows_scratch(p->node) + wf_cpu_sum_scratch(2, channels_of(p->node));
    return true;
}

static void grad_sums_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    const int64_t channels = channels_of(call->node);
    if (wf_region_is_empty(call->work)) {
        wf_view_fill(&call->out[0], 0);
        return;
    }
    for (int64_t s = call->work.lo[WF_N]; s < last_sample(call); s++) {
        int64_t n;
        float *row[ROWS];
        struct wf_cpu_walk walk;
        const struct wf_region part = sharing(call, s, &n);
        fill_rows(call, n, row);
        const struct rows rows = spread_rows(call, row);
        wf_cpu_walk_over(&walk, part, WF_CPU_POSITION, WF_CPU_VIEWS(&call->in[0], &call->in[4]));
        const struct wf_cpu_sum sum = {
            .body = grad_sums_body, .context = &rows, .sums = 2, .channels = channels
        };
        const double *sums =
            wf_cpu_walk_sum(&walk, &sum, (char *)call->scratch + rows_scratch(call->node));
        for (int64_t k = 0; k < 2 * channels; k++)
            wf_view_put(&call->out[0], n, 0, 0, 0, k, sums[k]);
        put_count(call, 2 * channels);
    }
}

static void grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct rows *rows = context;
    float buffer[3][WF_CPU_BLOCK_MAX];
    const int64_t n = wf_cpu_count(piece, 0);
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *dy = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, buffer[2]);
    const float *mean = rows->row[MEAN], *scale = rows->row[SCALE], *bias = rows->row[BIAS];
    const float *drop = rows->row[DROP], *slant = rows->row[SLANT], slope = backward_slope(rows);
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float away = x[i] - mean[i];
        const float g = through_act(away * scale[i] + bias[i], dy[i], slope);
        dx[i] = g * scale[i] - drop[i] - away * slant[i];
    }
    wf_cpu_store(piece, 2, dx);
}

/* dx = rstd * (w * g - mean(w * g) - xhat * mean(w * g * xhat)), means over what shares statistics:
 * DROP and SLANT hold what is constant in it. Both are zero when the statistics are fixed. */
static void fill_gradient_rows(const struct wf_call *call, int64_t n, float *row[ROWS])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const struct wf_view *w = &call->in[2], *q = &call->in[5];
    const int64_t channels = channels_of(call->node), each = channels / a->groups;
    const double total = a->fixed ? 1.0 : fmax(wf_norm_total(a, q, n, 2 * channels), 1.0);
    for (int64_t first = 0; first < channels; first += each) {
        double drop = 0, slant = 0;
        for (int64_t c = first; c < first + each && !a->fixed; c++) {
            const double weight = w->data ? wf_view_get(w, 0, 0, 0, 0, c) : 1.0;
            drop += weight * wf_view_get(q, n, 0, 0, 0, c);
            slant += weight * wf_view_get(q, n, 0, 0, 0, channels + c);
        }
        const double rstd = (double)row[RSTD][first], count = total;
        for (int64_t c = first; c < first + each; c++) {
            row[DROP][c] = (float)(rstd * drop / count);
            row[SLANT][c] = (float)(rstd * rstd * slant / count);
        }
    }
}

static void grad_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t s = call->work.lo[WF_N]; s < last_sample(call); s++) {
        int64_t n;
        float *row[ROWS];
        struct wf_cpu_walk walk;
        const struct wf_region part = sharing(call, s, &n);
        fill_rows(call, n, row);
        fill_gradient_rows(call, n, row);
        const struct rows rows = spread_rows(call, row);
        wf_cpu_walk_over(&walk, part, WF_CPU_POSITION,
                         WF_CPU_VIEWS(&call->in[0], &call->in[4], &call->out[0]));
        wf_cpu_walk_run(&walk, grad_body, &rows);
    }
}

const struct wf_kernel wf_cpu_kernels_norm[] = {
    { .op = "moments",
      .accepts = wf_cpu_accepts_channels,
      .prepare = moments_prepare,
      .run = moments_run },
    { .op = "norm", .accepts = wf_cpu_accepts_channels, .prepare = rows_prepare, .run = norm_run },
    { .op = "norm_grad_sums",
      .accepts = wf_cpu_accepts_channels,
      .prepare = grad_sums_prepare,
      .run = grad_sums_run },
    { .op = "norm_grad",
      .accepts = wf_cpu_accepts_channels,
      .prepare = rows_prepare,
      .run = grad_run },
    { 0 },
};
