/* What the CPU's products of sparse rows share: what a call multiplies, pairs of rows, and tasks of threads. */
#pragma once

#include "device/cpu/cpu.h"
#include "ops/sparse.h"

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

/* The pairs of rows of offset k, of at most `room` of them, from row *u on, which moves on: a pair's row of x,
 * and of y. */
static inline int wf_sparse_pairs(const struct wf_sparse_product *p, int64_t k, int64_t *u,
                                  int64_t end, int room, int32_t in[], int32_t out[])
{
    int n = 0;
    int64_t at = *u;
    for (; at < end && n < room; at++) {
        const int32_t row = p->map ? p->map[at * p->count + k] : (int32_t)at;
        in[n] = row;
        out[n] = (int32_t)at;
        n += row >= 0;
    }
    *u = at;
    return n;
}

/* A product's rows in blocks, its columns in groups: tasks that do not depend on each other. How they are cut
 * changes no bits. */
struct wf_sparse_tasks {
    int64_t block, blocks, width, groups;
};

enum { WF_SPARSE_BLOCK = 512, WF_SPARSE_GROUP = 128, WF_SPARSE_TASKS = 16 };

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
