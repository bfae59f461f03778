/*
 * Operators on sparse tensors beside convolution, on the CPU: pooling, samples, interpolation, images.
 *
 * Rows are packed. A row's channels are read as f32, the memory itself where it is that already; sums over a
 * kernel are f32 in the order of its offsets, sums over samples are f64 in the order of rows.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "ops/dropout.h"
#include "ops/sparse_ops.h"

enum { WIDEST = WF_CPU_BLOCK_MAX };

/* Rows of a rank's part of a value, counted from its first one. */
struct rows {
    char *data;
    enum wf_dtype dtype;
    int64_t width, bytes; /* elements and bytes of a row */
};

static struct rows rows_of(const struct wf_view *v)
{
    const int64_t width = wf_region_extent(v->box, WF_C);
    return (struct rows){ v->data, v->dtype, width, width * (int64_t)wf_dtype_size(v->dtype) };
}

static const float *load(const struct rows *r, int64_t row, float *buffer)
{
    const char *const at = r->data + row * r->bytes;
    if (r->dtype == WF_F32)
        return (const float *)(const void *)at;
    wf_cpu_to_f32(r->dtype, at, buffer, r->width);
    return buffer;
}

static float *dest(const struct rows *r, int64_t row, float *buffer)
{
    return r->dtype == WF_F32 ? (float *)(void *)(r->data + row * r->bytes) : buffer;
}

static void store(const struct rows *r, int64_t row, const float *values)
{
    if (r->dtype != WF_F32)
        wf_cpu_from_f32(r->dtype, values, r->data + row * r->bytes, r->width);
}

static bool accepts_rows(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && wf_cpu_is_float(node->out[0]) &&
           node->in[0]->shape.at[WF_C] <= WIDEST && node->out[0]->shape.at[WF_C] <= WIDEST;
}

/* Those with a table of f64. */
static bool accepts_sums(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && node->in[0]->shape.at[WF_C] <= WIDEST;
}

static int64_t count_of(const struct wf_call *call)
{
    return wf_max(0, wf_region_extent(call->work, WF_N));
}

/* --- sparse_pool --- */

struct pooling {
    struct rows x, y;
    const int32_t *map;
    int32_t *index;
    int64_t columns;
    enum wf_sparse_pool_mode mode;
};

static void add_row(float *restrict sum, const float *restrict x, int64_t width)
{
    WF_SIMD
    for (int64_t c = 0; c < width; c++)
        sum[c] += x[c];
}

static void scale_row(float *restrict sum, float factor, int64_t width)
{
    WF_SIMD
    for (int64_t c = 0; c < width; c++)
        sum[c] *= factor;
}

/* The first of equal ones, and NaN before all. */
static void max_row(float *restrict most, int32_t *restrict index, const float *restrict x,
                    int32_t row, int64_t width)
{
    for (int64_t c = 0; c < width; c++)
        if (index[c] < 0 || x[c] > most[c] || isnan(x[c])) {
            most[c] = x[c];
            index[c] = row;
        }
}

static void pool_row(const struct pooling *p, int64_t u)
{
    float in[WIDEST], out[WIDEST], *const y = dest(&p->y, u, out);
    const int32_t *const map = p->map + u * p->columns;
    int32_t count = 0, *const index = p->index + u * (p->mode == WF_SPARSE_MAX ? p->x.width : 1);
    memset(y, 0, (size_t)p->x.width * sizeof *y);
    if (p->mode == WF_SPARSE_MAX)
        memset(index, -1, (size_t)p->x.width * sizeof *index);
    for (int64_t k = 0; k < p->columns; k++) {
        if (map[k] < 0)
            continue;
        const float *const x = load(&p->x, map[k], in);
        count++;
        if (p->mode == WF_SPARSE_MAX)
            max_row(y, index, x, map[k], p->x.width);
        else
            add_row(y, x, p->x.width);
    }
    if (p->mode == WF_SPARSE_AVERAGE && count > 1)
        scale_row(y, 1.0f / (float)count, p->x.width);
    if (p->mode != WF_SPARSE_MAX)
        *index = count;
    store(&p->y, u, y);
}

static void pool_run(const struct wf_call *call)
{
    const struct wf_sparse_pool_attrs *a = call->node->attrs;
    const struct pooling p = { .x = rows_of(&call->in[0]),
                               .y = rows_of(&call->out[0]),
                               .map = call->in[1].data,
                               .index = call->out[1].data,
                               .columns = call->node->in[1]->shape.at[WF_C],
                               .mode = (enum wf_sparse_pool_mode)a->mode };
    const int64_t n = count_of(call);
    WF_PARALLEL_FOR
    for (int64_t u = 0; u < n; u++)
        pool_row(&p, u);
}

static void spread_row(const struct pooling *p, int64_t v)
{
    float in[WIDEST], out[WIDEST], *const dx = dest(&p->y, v, out);
    const int32_t *const map = p->map + v * p->columns;
    const int64_t width = p->x.width;
    memset(dx, 0, (size_t)width * sizeof *dx);
    for (int64_t k = 0; k < p->columns; k++) {
        const int32_t u = map[k];
        if (u < 0)
            continue;
        const float *const dy = load(&p->x, u, in);
        if (p->mode == WF_SPARSE_SUM)
            add_row(dx, dy, width);
        else if (p->mode == WF_SPARSE_AVERAGE) {
            const float share = 1.0f / (float)p->index[u];
            WF_SIMD
            for (int64_t c = 0; c < width; c++)
                dx[c] += dy[c] * share;
        } else {
            const int32_t *const index = p->index + u * width;
            for (int64_t c = 0; c < width; c++)
                dx[c] += wf_cpu_select(index[c] == (int32_t)v, dy[c], 0.0f);
        }
    }
    store(&p->y, v, dx);
}

static void pool_grad_run(const struct wf_call *call)
{
    const struct wf_sparse_pool_attrs *a = call->node->attrs;
    const struct pooling p = { .x = rows_of(&call->in[0]),
                               .y = rows_of(&call->out[0]),
                               .map = call->in[1].data,
                               .index = call->in[2].data,
                               .columns = call->node->in[1]->shape.at[WF_C],
                               .mode = (enum wf_sparse_pool_mode)a->mode };
    const int64_t n = count_of(call);
    WF_PARALLEL_FOR
    for (int64_t v = 0; v < n; v++)
        spread_row(&p, v);
}

/* --- samples: rows are in their order --- */

/* First of n rows whose sample is not below; `width` of the coordinates. */
static int64_t first_of_sample(const int32_t *coords, int64_t n, int64_t width, int64_t sample)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (coords[middle * width] < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum { STRETCH = 256 }; /* rows of a partial sum: cut the same way on any number of threads */

struct sampling {
    struct rows x;
    const int32_t *coords;
    int64_t width, samples, n;
};

static struct sampling sampling_of(const struct wf_call *call, int coords)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    return (struct sampling){ .x = rows_of(&call->in[0]),
                              .coords = call->in[coords].data,
                              .width = call->node->in[coords]->shape.at[WF_C],
                              .samples = a->samples,
                              .n = count_of(call) };
}

static void sum_stretch(const struct sampling *s, int64_t first, int64_t end, double *sum)
{
    float in[WIDEST];
    memset(sum, 0, (size_t)s->x.width * sizeof *sum);
    for (int64_t u = first; u < end; u++) {
        const float *const x = load(&s->x, u, in);
        WF_SIMD
        for (int64_t c = 0; c < s->x.width; c++)
            sum[c] += (double)x[c];
    }
}

static bool sums_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_samples_attrs *a = p->node->attrs;
    const int64_t stretches = wf_ceil_div(wf_region_extent(p->in[0].box, WF_N), STRETCH) + 1;
    p->scratch_bytes = (size_t)(stretches * a->channels) * sizeof(double);
    return true;
}

static void sums_run(const struct wf_call *call)
{
    const struct sampling s = sampling_of(call, 1);
    const int64_t width = s.x.width;
    double *const table = call->out[0].data, *const parts = call->scratch;
    for (int64_t i = 0; i < s.samples; i++) {
        const int64_t first = first_of_sample(s.coords, s.n, s.width, i);
        const int64_t end = first_of_sample(s.coords, s.n, s.width, i + 1);
        const int64_t stretches = wf_ceil_div(end - first, STRETCH);
        double *const to = table + i * (width + 1);
        WF_PARALLEL_FOR
        for (int64_t k = 0; k < stretches; k++)
            sum_stretch(&s, first + k * STRETCH, wf_min(end, first + (k + 1) * STRETCH),
                        parts + k * width);
        memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t k = 0; k < stretches; k++)
            for (int64_t c = 0; c < width; c++)
                to[c] += parts[k * width + c];
        to[width] = (double)(end - first);
    }
}

static void max_run(const struct wf_call *call)
{
    const struct sampling s = sampling_of(call, 1);
    const int64_t width = s.x.width;
    double *const table = call->out[0].data;
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < s.samples; i++) {
        float in[WIDEST], most[WIDEST];
        int32_t index[WIDEST];
        memset(index, -1, sizeof index);
        memset(most, 0, sizeof most);
        for (int64_t u = first_of_sample(s.coords, s.n, s.width, i);
             u < s.n && s.coords[u * s.width] == i; u++)
            max_row(most, index, load(&s.x, u, in), (int32_t)u, width);
        for (int64_t c = 0; c < width; c++) {
            table[i * 2 * width + c] = (double)most[c];
            table[i * 2 * width + width + c] = index[c] + 1.0;
        }
    }
}

static void max_grad_run(const struct wf_call *call)
{
    const struct sampling s = sampling_of(call, 2);
    const struct rows to = rows_of(&call->out[0]);
    const double *const table = call->in[1].data;
    WF_PARALLEL_FOR
    for (int64_t u = 0; u < s.n; u++) {
        float in[WIDEST], out[WIDEST], *const dx = dest(&to, u, out);
        const int64_t i = s.coords[u * s.width];
        const float *const dt = load(&s.x, i, in);
        const double *const row = table + i * 2 * to.width + to.width;
        for (int64_t c = 0; c < to.width; c++)
            dx[c] = wf_cpu_select(row[c] == (double)(u + 1), dt[c], 0.0f);
        store(&to, u, dx);
    }
}

static void rows_run(const struct wf_call *call)
{
    const struct sampling s = sampling_of(call, 1);
    const struct rows to = rows_of(&call->out[0]);
    const size_t bytes = (size_t)to.bytes;
    WF_PARALLEL_FOR
    for (int64_t u = 0; u < s.n; u++)
        memcpy(to.data + u * to.bytes, s.x.data + s.coords[u * s.width] * s.x.bytes, bytes);
}

/* --- dropout --- */

static void dropout_run(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = call->node->attrs;
    const struct wf_random random = wf_dropout_random(a, call->seed, call->step);
    const struct rows x = rows_of(&call->in[0]), y = rows_of(&call->out[0]);
    const int32_t *const coords = call->in[1].data;
    const int64_t n = count_of(call), wide = call->node->in[1]->shape.at[WF_C];
    const float scale = wf_dropout_scale(a);
    WF_PARALLEL_FOR
    for (int64_t u = 0; u < n; u++) {
        float in[WIDEST], out[WIDEST], *const to = dest(&y, u, out);
        const float *const from = load(&x, u, in);
        const uint64_t first = wf_dropout_place(coords + u * wide, wide) * (uint64_t)x.width;
        for (int64_t c = 0; c < x.width; c++)
            to[c] = wf_dropout_keeps(a, random, first + (uint64_t)c) ? from[c] * scale : 0.0f;
        store(&y, u, to);
    }
}

/* --- interpolation --- */

static void mix_run(const struct wf_call *call)
{
    const struct rows x = rows_of(&call->in[0]), y = rows_of(&call->out[0]);
    const struct rows w = rows_of(&call->in[2]);
    const int32_t *const map = call->in[1].data;
    const int64_t n = count_of(call), columns = w.width;
    WF_PARALLEL_FOR
    for (int64_t u = 0; u < n; u++) {
        float in[WIDEST], weights[WIDEST], out[WIDEST], *const sum = dest(&y, u, out);
        const float *const weight = load(&w, u, weights);
        memset(sum, 0, (size_t)x.width * sizeof *sum);
        for (int64_t k = 0; k < columns; k++) {
            const int32_t row = map[u * columns + k];
            if (row < 0)
                continue;
            const float *const from = load(&x, row, in);
            WF_SIMD
            for (int64_t c = 0; c < x.width; c++)
                sum[c] += weight[k] * from[c];
        }
        store(&y, u, sum);
    }
}

/* Where the pairs of each row begin, and the pairs, row after row in their order. */
static bool mix_grad_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t pairs = wf_region_extent(p->in[1].box, WF_N) * p->node->in[1]->shape.at[WF_C];
    p->scratch_bytes =
        (size_t)(wf_region_extent(p->out[0].box, WF_N) + 2 + pairs) * sizeof(int64_t);
    return true;
}

static void mix_grad_run(const struct wf_call *call)
{
    const struct rows dy = rows_of(&call->in[0]), dx = rows_of(&call->out[0]);
    const struct rows w = rows_of(&call->in[2]);
    const int32_t *const map = call->in[1].data;
    const int64_t n = count_of(call), columns = w.width;
    const int64_t pairs = wf_sparse_rows(call, call->node->in[0]) * columns;
    int64_t *const begin = call->scratch, *const list = begin + n + 2;
    memset(begin, 0, (size_t)(n + 2) * sizeof *begin);
    for (int64_t i = 0; i < pairs; i++)
        if (map[i] >= 0)
            begin[map[i] + 2]++;
    for (int64_t v = 0; v <= n; v++)
        begin[v + 1] += begin[v];
    for (int64_t i = 0; i < pairs; i++)
        if (map[i] >= 0)
            list[begin[map[i] + 1]++] = i;
    WF_PARALLEL_FOR
    for (int64_t v = 0; v < n; v++) {
        float in[WIDEST], weights[WIDEST], out[WIDEST], *const sum = dest(&dx, v, out);
        memset(sum, 0, (size_t)dx.width * sizeof *sum);
        for (int64_t i = begin[v]; i < begin[v + 1]; i++) {
            const int64_t u = list[i] / columns;
            const float *const from = load(&dy, u, in);
            const float weight = load(&w, u, weights)[list[i] % columns];
            WF_SIMD
            for (int64_t c = 0; c < dx.width; c++)
                sum[c] += weight * from[c];
        }
        store(&dx, v, sum);
    }
}

const struct wf_kernel wf_cpu_kernels_sparse_ops[] = {
    { .op = "sparse_pool", .flags = WF_KERNEL_DENSE, .accepts = accepts_rows, .run = pool_run },
    { .op = "sparse_pool_grad",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_rows,
      .run = pool_grad_run },
    { .op = "sample_sums",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_sums,
      .prepare = sums_prepare,
      .run = sums_run },
    { .op = "sample_max", .flags = WF_KERNEL_DENSE, .accepts = accepts_sums, .run = max_run },
    { .op = "sample_max_grad",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_rows,
      .run = max_grad_run },
    { .op = "sample_rows", .flags = WF_KERNEL_DENSE, .accepts = accepts_rows, .run = rows_run },
    { .op = "sparse_dropout",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_rows,
      .run = dropout_run },
    { .op = "sparse_mix", .flags = WF_KERNEL_DENSE, .accepts = accepts_rows, .run = mix_run },
    { .op = "sparse_mix_grad",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_rows,
      .prepare = mix_grad_prepare,
      .run = mix_grad_run },
    { 0 },
};
