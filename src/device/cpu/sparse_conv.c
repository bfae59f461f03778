/*
 * Sparse convolution on the CPU, in vectors of f32.
 *
 * For a block of the output's rows and one offset, the rows that have a neighbour there are listed; then a
 * few of them at a time are gathered (as f32, whatever they are stored as) and multiplied with panels of the
 * weight, two vectors of output channels wide. Results are added through pointers. Each element is summed
 * offset by offset, channel by channel, with one rounding per step: its bits do not depend on blocks, threads or
 * ranks.
 *
 * The gradient of a weight sums over pairs of rows instead of channels: the same tiles, where a step takes
 * a row of dy and a row of x.
 */
#include <string.h>

#include "device/cpu/lanes.h"
#include "device/cpu/sparse.h"

enum {
    PANEL = 2 * WF_LANES,
    TALL = WF_LANE_REGISTERS / 2 - 4, /* rows of a tile: its sums stay in registers */
    SLICE = 128,                      /* channels that are gathered together */
    STRIDE = SLICE + WF_LANES,        /* of gathered rows; known to the compiler, unlike pointers */
    PAIRS = 128,                      /* of the gradient of a weight: their rows stay in L1 */
};

/* --- tiles --- */

/* to[i][0 .. n) += sum over p of a(i, p) * b(p)[0 .. n). Of products of rows a(i, p) is a[i * STRIDE + p] and
 * b(p) = b + p * PANEL; of pairs they are a[p * STRIDE + i] and b + p * STRIDE. */
struct tile {
    const float *a, *b;
    float *const *to;
    int64_t depth, n;
};

#define INLINE static inline __attribute__((always_inline))

INLINE void tile_sum(const struct tile *t, int rows, int vectors, bool whole, bool pairs)
{
    const wf_lane_mask mask = wf_lane_mask_of(t->n - (vectors - 1) * WF_LANES);
    wf_lanes sum[TALL][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = whole || v < vectors - 1
                            ? wf_lanes_load(t->to[i] + v * WF_LANES)
                            : wf_lanes_load_some(t->to[i] + v * WF_LANES, mask);
    for (int64_t p = 0; p < t->depth; p++) {
        const float *const row = t->b + p * (pairs ? STRIDE : PANEL);
        wf_lanes b[2];
        for (int v = 0; v < vectors; v++)
            b[v] = whole || v < vectors - 1 ? wf_lanes_load(row + v * WF_LANES)
                                            : wf_lanes_load_some(row + v * WF_LANES, mask);
        for (int i = 0; i < rows; i++) {
            const wf_lanes a = wf_lanes_all(t->a[pairs ? p * STRIDE + i : i * STRIDE + p]);
            for (int v = 0; v < vectors; v++)
                sum[i][v] = wf_lanes_multiply_add(a, b[v], sum[i][v]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            if (whole || v < vectors - 1)
                wf_lanes_store(t->to[i] + v * WF_LANES, sum[i][v]);
            else
                wf_lanes_store_some(t->to[i] + v * WF_LANES, sum[i][v], mask);
}

INLINE void tile_wide(const struct tile *t, int rows, bool pairs)
{
    if (t->n == PANEL)
        tile_sum(t, rows, 2, true, pairs);
    else if (t->n > WF_LANES)
        tile_sum(t, rows, 2, false, pairs);
    else
        tile_sum(t, rows, 1, false, pairs);
}

/* The number of rows must be known where a tile is compiled. */
#define TILE_CASE(count)                                                                           \
    case count:                                                                                    \
        tile_wide(t, count, pairs);                                                                \
        break;
INLINE void tile_tall(const struct tile *t, int rows, bool pairs)
{
    switch (rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
#if WF_LANE_REGISTERS > 16
        TILE_CASE(5)
        TILE_CASE(6)
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
#endif
    }
}

static void tile_rows(const struct tile *t, int rows)
{
    tile_tall(t, rows, false);
}

static void tile_pairs(const struct tile *t, int rows)
{
    tile_tall(t, rows, true);
}

/* --- sparse_conv --- */

/* w as panels [K][panel][in][PANEL] of f32, whichever of its axes is summed over. */
static void pack(const struct wf_sparse_product *p, float *to)
{
    const int64_t panels = wf_ceil_div(p->out, PANEL), size = wf_dtype_size(p->dtype);
    WF_PARALLEL_FOR
    for (int64_t j = 0; j < p->count * panels; j++) {
        const char *const from = p->w + (j / panels) * p->out * p->in * size;
        const int64_t first = j % panels * PANEL, n = wf_min(PANEL, p->out - first);
        float *const panel = to + j * p->in * PANEL;
        float part[SLICE];
        if (n < PANEL)
            memset(panel, 0, (size_t)(p->in * PANEL) * sizeof *panel);
        for (int64_t i = 0; p->a->back && i < p->in; i++)
            wf_cpu_to_f32(p->dtype, from + (i * p->out + first) * size, panel + i * PANEL, n);
        for (int64_t i0 = 0; !p->a->back && i0 < p->in; i0 += SLICE)
            for (int64_t o = 0; o < n; o++) {
                const int64_t some = wf_min(SLICE, p->in - i0);
                wf_cpu_to_f32(p->dtype, from + ((first + o) * p->in + i0) * size, part, some);
                for (int64_t i = 0; i < some; i++)
                    panel[(i0 + i) * PANEL + o] = part[i];
            }
    }
}

/* Elements of a row, as f32. */
static void gather(const struct wf_sparse_product *p, const char *from, float *to, int64_t n)
{
    if (p->dtype != WF_F32) {
        wf_cpu_to_f32(p->dtype, from, to, n);
        return;
    }
    const float *const row = (const float *)(const void *)from;
    for (int64_t i = 0; i < n; i += WF_LANES) {
        const wf_lane_mask mask = wf_lane_mask_of(n - i);
        wf_lanes_store_some(to + i, wf_lanes_load_some(row + i, mask), mask);
    }
}

/* What a task works on: columns first .. end of rows u0 .. u1 of y, in place or in `sums`. */
struct part {
    const struct wf_sparse_product *p;
    const float *w; /* packed */
    int64_t u0, u1, first, end;
    float *y; /* at (u0, first) */
    int64_t y_stride;
    int32_t columns[WF_SPARSE_COLUMNS * WF_SPARSE_BLOCK];
    int32_t in[WF_SPARSE_BLOCK + WF_SPARSE_RUN], out[WF_SPARSE_BLOCK + WF_SPARSE_RUN];
};

/* Adds the products of the pairs i .. i + rows with the weight of one offset. */
static void multiply_rows(const struct part *t, int64_t of, int i, int rows)
{
    const struct wf_sparse_product *const p = t->p;
    const int64_t panels = wf_ceil_div(p->out, PANEL), size = wf_dtype_size(p->dtype);
    float a[TALL * STRIDE], *to[TALL];
    for (int64_t c = 0; c < p->in; c += SLICE) {
        const int64_t depth = wf_min(SLICE, p->in - c);
        for (int r = 0; r < rows; r++)
            gather(p, p->x + (t->in[i + r] * p->in + c) * size, a + (ptrdiff_t)r * STRIDE, depth);
        for (int64_t o = t->first; o < t->end; o += PANEL) {
            const struct tile tile = {
                .a = a,
                .b = t->w + ((of * panels + o / PANEL) * p->in + c) * PANEL,
                .to = to,
                .depth = depth,
                .n = wf_min(PANEL, t->end - o),
            };
            for (int r = 0; r < rows; r++)
                to[r] = t->y + (t->out[i + r] - t->u0) * t->y_stride + o - t->first;
            tile_rows(&tile, rows);
        }
    }
}

static void part_sum(struct part *t)
{
    const struct wf_sparse_product *const p = t->p;
    for (int64_t u = 0; u < t->u1 - t->u0; u++)
        for (int64_t o = t->first; o < t->end; o++)
            t->y[u * t->y_stride + o - t->first] = p->bias ? p->bias[o] : 0;
    for (int64_t k = 0; k < p->count; k++) {
        const int64_t column = k % WF_SPARSE_COLUMNS, rows = t->u1 - t->u0;
        int64_t at = 0;
        if (column == 0)
            wf_sparse_columns(p, t->u0, rows, k, wf_min(WF_SPARSE_COLUMNS, p->count - k),
                              t->columns, WF_SPARSE_BLOCK);
        const int n = wf_sparse_pairs(t->columns + column * WF_SPARSE_BLOCK, rows, t->u0, &at,
                                      WF_SPARSE_BLOCK + WF_SPARSE_RUN, t->in, t->out);
        for (int i = 0; i < n; i += TALL)
            multiply_rows(t, wf_sparse_conv_weight(p->a, k, p->count), i,
                          n - i < TALL ? n - i : TALL);
    }
}

/* Of narrow numbers sums are kept as f32 until they are whole. */
static void part_sum_narrow(struct part *t)
{
    float sums[WF_SPARSE_BLOCK / 2 * WF_SPARSE_GROUP];
    const struct wf_sparse_product *const p = t->p;
    const int64_t size = wf_dtype_size(p->dtype), end = t->u1;
    t->y = sums;
    t->y_stride = t->end - t->first;
    for (; t->u0 < end; t->u0 = t->u1) {
        t->u1 = wf_min(end, t->u0 + WF_SPARSE_BLOCK / 2);
        part_sum(t);
        for (int64_t u = t->u0; u < t->u1; u++)
            wf_cpu_from_f32(p->dtype, sums + (u - t->u0) * t->y_stride,
                            p->y + (u * p->out + t->first) * size, t->y_stride);
    }
    t->y = NULL;
}

static bool conv_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_sparse_conv_attrs *a = p->node->attrs;
    const struct wf_shape *const w = &p->node->in[1]->shape;
    const int64_t in = w->at[a->back ? WF_W : WF_C], out = w->at[a->back ? WF_C : WF_W];
    p->scratch_bytes = (size_t)(w->at[WF_N] * in * wf_ceil_div(out, PANEL) * PANEL) * sizeof(float);
    return true;
}

static void conv_run(const struct wf_call *call)
{
    const struct wf_sparse_product p = wf_sparse_product(call);
    const struct wf_sparse_tasks tasks = wf_sparse_tasks(&p);
    pack(&p, call->scratch);
    WF_PARALLEL_TASKS
    for (int64_t j = 0; j < tasks.blocks * tasks.groups; j++) {
        struct part t = { .p = &p, .w = call->scratch, .y_stride = p.out };
        t.u0 = j / tasks.groups * tasks.block;
        t.u1 = wf_min(p.rows, t.u0 + tasks.block);
        t.first = j % tasks.groups * tasks.width;
        t.end = wf_min(p.out, t.first + tasks.width);
        t.y = (float *)(void *)p.y + t.u0 * p.out + t.first;
        if (p.dtype == WF_F32)
            part_sum(&t);
        else
            part_sum_narrow(&t);
    }
}

/* --- sparse_conv_wgrad: x, dy, [map] --- */

struct pairs {
    int32_t in[PAIRS], out[PAIRS];
    float x[PAIRS * STRIDE], dy[PAIRS * STRIDE]; /* some columns of their rows */
    int n;
};

static void gather_all(const struct wf_sparse_product *p, const char *rows, int64_t stride,
                       const int32_t which[], int n, int64_t width, float *to)
{
    for (int i = 0; i < n; i++)
        gather(p, rows + which[i] * stride * wf_dtype_size(p->dtype), to + (ptrdiff_t)i * STRIDE,
               width);
}

/* Rows first .. end of dw, at most SLICE, of one offset: adds what these pairs contribute. */
static void add_pairs(const struct wf_sparse_product *p, struct pairs *l, float *dw, int64_t first,
                      int64_t end)
{
    float *to[TALL];
    const int64_t size = wf_dtype_size(p->dtype);
    gather_all(p, p->y + first * size, p->out, l->out, l->n, end - first, l->dy);
    for (int64_t c0 = 0; c0 < p->in; c0 += SLICE) {
        const int64_t width = wf_min(SLICE, p->in - c0);
        gather_all(p, p->x + c0 * size, p->in, l->in, l->n, width, l->x);
        for (int64_t c = 0; c < width; c += PANEL)
            for (int64_t o = first; o < end; o += TALL) {
                const int rows = (int)wf_min(TALL, end - o);
                const struct tile t = { .a = l->dy + o - first,
                                        .b = l->x + c,
                                        .to = to,
                                        .depth = l->n,
                                        .n = wf_min(PANEL, width - c) };
                for (int r = 0; r < rows; r++)
                    to[r] = dw + (o + r) * p->in + c0 + c;
                tile_pairs(&t, rows);
            }
    }
}

static bool wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_sparse_span_bytes(p->node);
    return true;
}

/* Of rows u0 .. u0 + n. */
static void wgrad_span(const struct wf_sparse_product *p, int64_t u0, int64_t n,
                       const int32_t *columns, float *dw)
{
    enum { SHARE = SLICE / TALL * TALL }; /* rows of dw that are one task, at most */
    const int64_t share = p->count < WF_SPARSE_TASKS ? 2 * TALL : SHARE;
    const int64_t shares = wf_ceil_div(p->out, share);
    WF_PARALLEL_TASKS
    for (int64_t j = 0; j < p->count * shares; j++) {
        struct pairs list;
        const int64_t of = j / shares, k = wf_sparse_conv_weight(p->a, of, p->count);
        const int64_t first = j % shares * share, end = wf_min(p->out, first + share);
        float *const part = dw + of * p->out * p->in;
        if (u0 == 0)
            memset(part + first * p->in, 0, (size_t)((end - first) * p->in) * sizeof *part);
        for (int64_t at = 0; at < n;) {
            list.n =
                wf_sparse_pairs(columns + k * WF_SPARSE_SPAN, n, u0, &at, PAIRS, list.in, list.out);
            add_pairs(p, &list, part, first, end);
        }
    }
}

static void wgrad_run(const struct wf_call *call)
{
    const struct wf_sparse_product p = wf_sparse_wgrad_product(call);
    for (int64_t u0 = 0; u0 == 0 || u0 < p.rows; u0 += WF_SPARSE_SPAN) {
        const int64_t n = wf_min(WF_SPARSE_SPAN, p.rows - u0);
        wf_sparse_span(&p, u0, n, call->scratch);
        wgrad_span(&p, u0, n, call->scratch, call->out[0].data);
    }
}

static bool accepts(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && (!node->in[3] || node->in[3]->dtype == WF_F32);
}

static bool wgrad_accepts(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && node->out[0]->dtype == WF_F32;
}

const struct wf_kernel wf_cpu_kernels_sparse_conv[] = {
    { .op = "sparse_conv",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts,
      .prepare = conv_prepare,
      .run = conv_run,
      .fuses = wf_sparse_skips_order },
    { .op = "sparse_conv_wgrad",
      .flags = WF_KERNEL_DENSE,
      .accepts = wgrad_accepts,
      .prepare = wgrad_prepare,
      .run = wgrad_run },
    { 0 },
};
