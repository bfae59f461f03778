/*
 * Sparse convolution on the CPU: products of rows where they lie.
 *
 * For a block of the output's rows and one offset, the rows that have a neighbour there are listed; then a
 * few of them at a time are multiplied with a panel of the weight, two vectors of output channels wide.
 * Rows are read and results are added through pointers, so nothing is gathered or scattered. Each element is
 * summed offset by offset, channel by channel, with one rounding per step: its bits do not depend on blocks,
 * threads or ranks.
 *
 * The gradient of a weight sums over pairs of rows instead of channels: the same tiles, where a step takes
 * a row of dy and a row of x.
 */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/lanes.h"
#include "ops/sparse.h"

#ifdef _OPENMP
#define WF_PARALLEL_TASKS _Pragma("omp parallel for schedule(dynamic)")
#else
#define WF_PARALLEL_TASKS
#endif

enum {
    PANEL = 2 * WF_LANES,
    TALL = WF_LANE_REGISTERS / 2 - 4, /* rows of a tile: its sums stay in registers */
    BLOCK = 256,                      /* rows of the output that are taken together */
    PAIRS = 1024,                     /* of the gradient of a weight */
};

/* --- tiles --- */

/* to[i][0 .. n) += sum over p of a(i, p) * b(p)[0 .. n). Of products of rows a(i, p) is from[i][p] and
 * b(p) = b + p * b_stride; of pairs they are from[p][i] and rows[p]. */
struct tile {
    const float *const *from, *const *rows;
    float *const *to;
    const float *b;
    int64_t depth, n, b_stride, column; /* column: of rows[p] */
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
        const float *const row = pairs ? t->rows[p] + t->column : t->b + p * t->b_stride;
        wf_lanes b[2];
        for (int v = 0; v < vectors; v++)
            b[v] = whole || v < vectors - 1 ? wf_lanes_load(row + v * WF_LANES)
                                            : wf_lanes_load_some(row + v * WF_LANES, mask);
        for (int i = 0; i < rows; i++) {
            const wf_lanes a = wf_lanes_all(pairs ? t->from[p][i] : t->from[i][p]);
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

/* What both passes need to know of a call. */
struct product {
    const struct wf_call *call;
    const struct wf_sparse_conv_attrs *a;
    const int32_t *map; /* NULL: rows stay where they are */
    const float *x, *w; /* w: [count][in][out], or panels of it */
    float *y;
    const float *bias;
    int64_t count, in, out, rows;
};

/* [K][out][in] as [K][panel][in][PANEL]: what a tile reads is a run. */
static void pack(const struct product *p, const float *w, float *to)
{
    const int64_t panels = wf_ceil_div(p->out, PANEL);
    WF_PARALLEL_FOR
    for (int64_t j = 0; j < p->count * panels; j++) {
        const float *const from = w + (j / panels) * p->out * p->in;
        const int64_t first = j % panels * PANEL, n = wf_min(PANEL, p->out - first);
        float *const panel = to + j * p->in * PANEL;
        for (int64_t i0 = 0; i0 < p->in; i0 += WF_LANES)
            for (int64_t o = 0; o < n; o++)
                for (int64_t i = i0; i < wf_min(p->in, i0 + WF_LANES); i++)
                    panel[i * PANEL + o] = from[(first + o) * p->in + i];
        for (int64_t i = 0; n < PANEL && i < p->in; i++)
            memset(panel + i * PANEL + n, 0, (size_t)(PANEL - n) * sizeof *panel);
    }
}

static int list_rows(const struct product *p, int64_t first, int64_t end, int64_t k,
                     const float *from[], float *to[])
{
    int n = 0;
    for (int64_t u = first; u < end; u++) {
        const int64_t row = p->map ? p->map[u * p->count + k] : u;
        from[n] = p->x + wf_max(row, 0) * p->in;
        to[n] = p->y + u * p->out;
        n += row >= 0;
    }
    return n;
}

static void block_run(const struct product *p, int64_t first, int64_t end, bool packed)
{
    const float *from[BLOCK + 1];
    float *to[BLOCK + 1], *column[TALL];
    const int64_t panels = wf_ceil_div(p->out, PANEL);
    for (int64_t u = first; u < end; u++)
        if (p->bias)
            memcpy(p->y + u * p->out, p->bias, (size_t)p->out * sizeof *p->y);
        else
            memset(p->y + u * p->out, 0, (size_t)p->out * sizeof *p->y);
    for (int64_t k = 0; k < p->count; k++) {
        const int n = list_rows(p, first, end, k, from, to);
        const int64_t of = wf_sparse_conv_weight(p->a, k, p->count);
        for (int64_t j = 0; j < panels; j++) {
            struct tile t = { .depth = p->in,
                              .n = wf_min(PANEL, p->out - j * PANEL),
                              .b_stride = packed ? PANEL : p->out,
                              .b = packed ? p->w + (of * panels + j) * p->in * PANEL
                                          : p->w + of * p->in * p->out + j * PANEL };
            for (int i = 0; i < n; i += TALL) {
                const int rows = n - i < TALL ? n - i : TALL;
                for (int r = 0; r < rows; r++)
                    column[r] = to[i + r] + j * PANEL;
                t.from = from + i;
                t.to = column;
                tile_rows(&t, rows);
            }
        }
    }
}

static bool conv_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_sparse_conv_attrs *a = p->node->attrs;
    const struct wf_shape *const w = &p->node->in[1]->shape;
    if (!a->back)
        p->scratch_bytes =
            (size_t)(w->at[WF_N] * w->at[WF_C] * wf_ceil_div(w->at[WF_W], PANEL) * PANEL) *
            sizeof(float);
    return true;
}

static void conv_run(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = call->node->attrs;
    const struct wf_shape *const w = &call->node->in[1]->shape;
    struct product p = { .call = call,
                         .a = a,
                         .map = call->in[2].data,
                         .x = call->in[0].data,
                         .w = call->in[1].data,
                         .y = call->out[0].data,
                         .bias = call->in[3].data,
                         .count = w->at[WF_N],
                         .in = w->at[a->back ? WF_W : WF_C],
                         .out = w->at[a->back ? WF_C : WF_W],
                         .rows = wf_region_extent(call->work, WF_N) };
    if (!a->back) {
        pack(&p, p.w, call->scratch);
        p.w = call->scratch;
    }
    WF_PARALLEL_TASKS
    for (int64_t b = 0; b < wf_ceil_div(p.rows, BLOCK); b++)
        block_run(&p, b * BLOCK, wf_min(p.rows, (b + 1) * BLOCK), !a->back);
}

/* --- sparse_conv_wgrad: x, dy, [map] --- */

struct pairs {
    const float *x[PAIRS], *dy[PAIRS];
    int n;
};

static void list_pairs(const struct product *p, int64_t first, int64_t end, int64_t k,
                       struct pairs *l)
{
    l->n = 0;
    for (int64_t u = first; u < end; u++) {
        const int64_t row = p->map ? p->map[u * p->count + k] : u;
        if (row < 0)
            continue;
        l->x[l->n] = p->x + row * p->in;
        l->dy[l->n++] = p->y + u * p->out;
    }
}

/* dw[first .. end) of one offset, over one stretch of rows. */
static void add_pairs(const struct product *p, const struct pairs *l, float *dw, int64_t first,
                      int64_t end)
{
    const float *dy[PAIRS];
    float *to[TALL];
    for (int64_t o = first; o < end; o += TALL) {
        const int rows = (int)wf_min(TALL, end - o);
        for (int i = 0; i < l->n; i++)
            dy[i] = l->dy[i] + o;
        for (int64_t c = 0; c < p->in; c += PANEL) {
            const struct tile t = { .from = dy,
                                    .rows = l->x,
                                    .to = to,
                                    .depth = l->n,
                                    .n = wf_min(PANEL, p->in - c),
                                    .column = c };
            for (int r = 0; r < rows; r++)
                to[r] = dw + (o + r) * p->in + c;
            tile_pairs(&t, rows);
        }
    }
}

static void wgrad_run(const struct wf_call *call)
{
    enum { SHARE = 4 * TALL }; /* rows of dw that are one task */
    const struct wf_shape *const w = &call->node->out[0]->shape;
    const struct product p = { .call = call,
                               .a = call->node->attrs,
                               .map = call->in[2].data,
                               .x = call->in[0].data,
                               .y = call->in[1].data,
                               .count = w->at[WF_N],
                               .in = w->at[WF_C],
                               .out = w->at[WF_W],
                               .rows = wf_region_extent(call->work, WF_N) };
    const int64_t shares = wf_ceil_div(p.out, SHARE);
    float *const dw = call->out[0].data;
    WF_PARALLEL_TASKS
    for (int64_t j = 0; j < p.count * shares; j++) {
        struct pairs list;
        const int64_t of = j / shares, k = wf_sparse_conv_weight(p.a, of, p.count);
        const int64_t first = j % shares * SHARE, end = wf_min(p.out, first + SHARE);
        float *const part = dw + of * p.out * p.in;
        memset(part + first * p.in, 0, (size_t)((end - first) * p.in) * sizeof *part);
        for (int64_t u = 0; u < p.rows; u += PAIRS) {
            list_pairs(&p, u, wf_min(p.rows, u + PAIRS), k, &list);
            add_pairs(&p, &list, part, first, end);
        }
    }
}

static bool accepts(const struct wf_node *node)
{
    return node->in[0]->dtype == WF_F32 && node->out[0]->dtype == WF_F32;
}

const struct wf_kernel wf_cpu_kernels_sparse_conv[] = {
    { .op = "sparse_conv",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts,
      .prepare = conv_prepare,
      .run = conv_run },
    { .op = "sparse_conv_wgrad", .flags = WF_KERNEL_DENSE, .accepts = accepts, .run = wgrad_run },
    { 0 },
};
