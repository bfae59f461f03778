/* Products of images as matrices. A row of the result is a position; rows are shared out among threads. Sums are f32
 * within BLOCK terms and f64 beyond. */
#include "device/cpu/cpu.h"

#include "ops/attrs.h"
#include "ops/build.h"

enum { BLOCK = 64, COLUMNS = 256 };

struct matrix {
    const struct wf_view *view;
    const struct wf_shape *shape;
    int64_t n;
};

/* Row `row` from column `lo` on, n of them, as f32; where they are if they can be read there. */
static const float *row_of(const struct matrix *m, int64_t row, int64_t lo, int64_t n, float *room)
{
    const int64_t w = row % m->shape->at[WF_W], line = row / m->shape->at[WF_W];
    const int64_t h = line % m->shape->at[WF_H], d = line / m->shape->at[WF_H];
    const int64_t first = wf_view_offset(m->view, m->n, d, h, w, lo), step = m->view->stride[WF_C];
    const char *const from =
        (const char *)m->view->data + first * (int64_t)wf_dtype_size(m->view->dtype);
    if (step != 1)
        for (int64_t i = 0; i < n; i++)
            room[i] = (float)wf_dtype_get(m->view->dtype, m->view->data, first + i * step);
    else if (m->view->dtype == WF_F32)
        return (const float *)(const void *)from;
    else
        wf_cpu_to_f32(m->view->dtype, from, room, n);
    return room;
}

static float element(const struct matrix *m, int64_t row, int64_t column)
{
    float room;
    return *row_of(m, row, column, 1, &room);
}

/* sum[i] = row `row` of a, or its column, times rows of b from column lo on. */
static void by_rows(const struct matrix *a, const struct matrix *b, int64_t row, bool turned,
                    int64_t terms, int64_t lo, int64_t n, double *sum)
{
    float part[COLUMNS], room[COLUMNS];
    for (int64_t i = 0; i < n; i++)
        sum[i] = 0;
    for (int64_t k0 = 0; k0 < terms; k0 += BLOCK) {
        for (int64_t i = 0; i < n; i++)
            part[i] = 0;
        for (int64_t k = k0; k < wf_min(terms, k0 + BLOCK); k++) {
            const float factor = turned ? element(a, k, row) : element(a, row, k);
            const float *const from = row_of(b, k, lo, n, room);
            for (int64_t i = 0; i < n; i++)
                part[i] += factor * from[i];
        }
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)part[i];
    }
}

enum { LANES = 16 };

static double dot(const float *a, const float *b, int64_t n)
{
    float lanes[LANES] = { 0 };
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += (double)(a[i] * b[i]);
    for (int k = 0; k < LANES; k++)
        sum += (double)lanes[k];
    return sum;
}

/* sum[i] = row `row` of a times row lo + i of b. */
static void by_columns(const struct matrix *a, const struct matrix *b, int64_t row, int64_t terms,
                       int64_t lo, int64_t n, double *sum)
{
    float rooms[2][COLUMNS];
    for (int64_t i = 0; i < n; i++)
        sum[i] = 0;
    for (int64_t k = 0; k < terms; k += COLUMNS) {
        const int64_t some = wf_min(terms - k, COLUMNS);
        const float *const left = row_of(a, row, k, some, rooms[0]);
        for (int64_t i = 0; i < n; i++)
            sum[i] += dot(left, row_of(b, lo + i, k, some, rooms[1]), some);
    }
}

/* One position of the result. */
static void make_row(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const struct wf_matmul_attrs *const attrs = call->node->attrs;
    const struct wf_shape *const y = &call->node->out[0]->shape;
    const struct matrix a = { &call->in[0], &call->node->in[0]->shape, at[WF_N] };
    const struct matrix b = { &call->in[1], &call->node->in[1]->shape, at[WF_N] };
    const bool turned = attrs->form == WF_MATMUL_TN;
    const int64_t row = (at[WF_D] * y->at[WF_H] + at[WF_H]) * y->at[WF_W] + at[WF_W];
    const int64_t terms =
        turned ? a.shape->at[WF_D] * a.shape->at[WF_H] * a.shape->at[WF_W] : a.shape->at[WF_C];
    for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c += COLUMNS) {
        const int64_t n = wf_min(call->work.hi[WF_C] - c, COLUMNS);
        double sum[COLUMNS];
        if (attrs->form == WF_MATMUL_NT)
            by_columns(&a, &b, row, terms, c, n, sum);
        else
            by_rows(&a, &b, row, turned, terms, c, n, sum);
        for (int64_t i = 0; i < n; i++)
            wf_view_put(&call->out[0], at[WF_N], at[WF_D], at[WF_H], at[WF_W], c + i, sum[i]);
    }
}

static void run(const struct wf_call *call)
{
    const struct wf_cpu_lines lines = wf_cpu_lines(call->work, 16);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < lines.count; i++) {
        const struct wf_cpu_line line = wf_cpu_line_at(&lines, i);
        for (int64_t w = line.w0; w < line.w1; w++)
            make_row(call, (const int64_t[WF_AXES]){ line.n, line.d, line.h, w, 0 });
    }
}

const struct wf_kernel wf_cpu_kernels_matmul[] = {
    { .op = "matmul", .accepts = wf_cpu_accepts_float, .run = run },
    { 0 },
};
