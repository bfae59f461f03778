/* What the CPU's products of sparse rows share: what a call multiplies, pairs of rows, and tasks of threads. */
#pragma once

#include "device/cpu/cpu.h"
#include "ops/sparse.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#ifdef _OPENMP
#define WF_PARALLEL_TASKS _Pragma("omp parallel for schedule(dynamic)")
#else
#define WF_PARALLEL_TASKS
#endif

/* Of sparse_conv: in and out are the channels of x and y. Of sparse_conv_wgrad: of x and dy. */
struct wf_sparse_product {
    const struct wf_sparse_conv_attrs *a;
    enum wf_dtype dtype;
    const int32_t *map; /* NULL: rows stay where they are */
    const char *x, *w;
    char *y; /* or dy */
    const float *bias;
    int64_t count, in, out, rows;
};

static inline struct wf_sparse_product wf_sparse_product(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = call->node->attrs;
    const struct wf_shape *const w = &call->node->in[1]->shape;
    return (struct wf_sparse_product){ .a = a,
                                       .dtype = call->node->in[0]->dtype,
                                       .map = call->in[2].data,
                                       .x = call->in[0].data,
                                       .w = call->in[1].data,
                                       .y = call->out[0].data,
                                       .bias = call->in[3].data,
                                       .count = w->at[WF_N],
                                       .in = w->at[a->back ? WF_W : WF_C],
                                       .out = w->at[a->back ? WF_C : WF_W],
                                       .rows = wf_region_extent(call->work, WF_N) };
}

static inline struct wf_sparse_product wf_sparse_wgrad_product(const struct wf_call *call)
{
    const struct wf_shape *const w = &call->node->out[0]->shape;
    return (struct wf_sparse_product){ .a = call->node->attrs,
                                       .dtype = call->node->in[0]->dtype,
                                       .map = call->in[2].data,
                                       .x = call->in[0].data,
                                       .y = call->in[1].data,
                                       .count = w->at[WF_N],
                                       .in = w->at[WF_C],
                                       .out = w->at[WF_W],
                                       .rows = wf_region_extent(call->work, WF_N) };
}

/* Columns k0 .. k0 + columns of the map, rows u0 .. u0 + n, each as a run: to[(k - k0) * stride + u - u0], where
 * stride is n or more, a multiple of WF_SPARSE_RUN. */
enum { WF_SPARSE_RUN = 16 };
void wf_sparse_columns(const struct wf_sparse_product *p, int64_t u0, int64_t n, int64_t k0,
                       int64_t columns, int32_t *to, int64_t stride);
/* The pairs of rows of a column whose first row is u0, from index *at on, which moves on: a pair's row of x, and of
 * y. Ends where `room`, of both arrays, may not do for RUN more. Returns how many. */
int wf_sparse_pairs(const int32_t *column, int64_t n, int64_t u0, int64_t *at, int room,
                    int32_t in[], int32_t out[]);

#ifdef __AVX512F__
/* 16 x 16 numbers of four bytes, rows to columns. */
void wf_turn(__m512i r[WF_SPARSE_RUN]);
#endif

/* For gradients of weights: all columns of SPAN rows at a time. In parallel. */
enum { WF_SPARSE_SPAN = 8192 };
static inline size_t wf_sparse_span_bytes(const struct wf_node *wgrad)
{
    return (size_t)(wgrad->out[0]->shape.at[WF_N] * WF_SPARSE_SPAN) * sizeof(int32_t);
}
void wf_sparse_span(const struct wf_sparse_product *p, int64_t u0, int64_t n, int32_t *to);

/* A product's rows in blocks, its columns in groups: tasks that do not depend on each other. How they are cut
 * changes no bits. */
struct wf_sparse_tasks {
    int64_t block, blocks, width, groups;
};

enum {
    WF_SPARSE_BLOCK = 512,
    WF_SPARSE_GROUP = 128,
    WF_SPARSE_TASKS = 16,
    WF_SPARSE_COLUMNS = 32, /* of the map, that a task takes together */
};

static inline struct wf_sparse_tasks wf_sparse_tasks(const struct wf_sparse_product *p)
{
    struct wf_sparse_tasks t;
    const int64_t even = wf_ceil_div(wf_ceil_div(p->rows, WF_SPARSE_TASKS), 32) * 32;
    t.block = wf_min(WF_SPARSE_BLOCK, wf_max(128, even));
    t.blocks = wf_ceil_div(p->rows, t.block);
    t.width = t.blocks < WF_SPARSE_TASKS / 2 ? WF_SPARSE_GROUP / 2 : WF_SPARSE_GROUP;
    t.groups = wf_ceil_div(p->out, t.width);
    return t;
}

/* Rows are listed offset by offset: their order does not matter. */
static inline bool wf_sparse_skips_order(const struct wf_node *, int input, const struct wf_node *)
{
    return input == WF_SPARSE_CONV_ORDER;
}
