/*
 * Rows that travel between ranks, on the CPU (ops/halo.h): whole rows at a time. Indices are distinct (H2), so threads
 * do not meet.
 */
#include <string.h>

#include "device/cpu/cpu.h"
#include "ops/halo.h"

enum { SOURCES = 1 + WF_HALO_BOXES };

/* The first element at a place of the mesh. */
static char *element(const struct wf_view *v, const int64_t at[WF_AXES])
{
    return (char *)v->data + wf_view_offset(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], 0) *
                                 (int64_t)wf_dtype_size(v->dtype);
}

/* The places of ranks that a call works for: its own, or all of them where one rank has all points. */
static struct wf_region places_of(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    struct wf_region r = call->work;
    if (!call->node->out[0]->per_rank)
        return wf_halo_place(a->mesh, call->node->out[0]->shape.at[WF_N], r);
    r.lo[WF_C] = 0;
    r.hi[WF_C] = 1;
    return r;
}

static int64_t rows_in(const struct wf_call *call, int input)
{
    const struct wf_value *const index = call->node->in[input];
    return index->set ? wf_sparse_rows(call, index) : index->shape.at[WF_C];
}

/* --- rows_gather --- */

static void gather(const struct wf_call *call, const int64_t place[WF_AXES])
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const int64_t bytes = a->channels * (int64_t)wf_dtype_size(call->out[0].dtype);
    const int empty = call->out[0].dtype == WF_I32 ? -1 : 0;
    const char *from[SOURCES] = { NULL };
    const int32_t *const index =
        a->to ? (const int32_t *)(const void *)element(&call->in[0], place) : call->in[0].data;
    char *const to = a->to ? element(&call->out[0], place) : call->out[0].data;
    for (int i = 1; i < call->node->n_in; i++) {
        const int source = i - (a->has_rows != 0);
        int64_t at[WF_AXES];
        if (source == 0)
            from[0] = call->in[i].data;
        else if (wf_halo_neighbour(a->mesh, place, a->from[source - 1], -1, at))
            from[source] = element(&call->in[i], at);
    }
    const int64_t n = rows_in(call, 0);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0)
            memset(to + i * bytes, empty, (size_t)bytes);
        else
            memcpy(to + i * bytes,
                   from[index[i] / WF_HALO_SOURCE] + index[i] % WF_HALO_SOURCE * bytes,
                   (size_t)bytes);
}

static void gather_run(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    if (!a->to && wf_sparse_rows(call, call->node->in[0]) < 1)
        return;
    for (struct wf_cursor p = wf_cursor(places_of(call)); wf_cursor_next(&p);)
        gather(call, p.at);
}

/* --- rows_scatter --- */

enum { DY, BY, ADD, WIDEST = WF_CPU_BLOCK_MAX };

static void add_row(enum wf_dtype dtype, char *to, const char *from, int64_t n)
{
    float x[WIDEST], y[WIDEST];
    if (dtype == WF_F32) {
        float *restrict a = (float *)(void *)to;
        const float *restrict b = (const float *)(const void *)from;
        WF_SIMD
        for (int64_t c = 0; c < n; c++)
            a[c] += b[c];
        return;
    }
    wf_cpu_to_f32(dtype, to, x, n);
    wf_cpu_to_f32(dtype, from, y, n);
    for (int64_t c = 0; c < n; c++)
        x[c] += y[c];
    wf_cpu_from_f32(dtype, x, to, n);
}

/* What it is added to, or zeros: rows that are there. */
static void begin(const struct wf_call *call, const int64_t place[WF_AXES], char *to)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const int64_t rows = a->set ? call->rows[a->set] : a->rows;
    const size_t bytes = (size_t)(rows * a->channels) * wf_dtype_size(call->out[0].dtype);
    const char *const add = !call->in[ADD].data ? NULL
                            : a->set            ? call->in[ADD].data
                                                : element(&call->in[ADD], place);
    if (!add)
        memset(to, 0, bytes);
    else if (add != to)
        memcpy(to, add, bytes);
}

static void scatter(const struct wf_call *call, const int64_t place[WF_AXES])
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const enum wf_dtype dtype = call->out[0].dtype;
    const int64_t bytes = a->channels * (int64_t)wf_dtype_size(dtype), n = rows_in(call, BY);
    char *const to = a->set ? call->out[0].data : element(&call->out[0], place);
    int64_t at[WF_AXES];
    begin(call, place, to);
    if (!wf_halo_neighbour(a->mesh, place, a->to, 1, at))
        return;
    const int32_t *const index =
        a->to ? (const int32_t *)(const void *)element(&call->in[BY], place) : call->in[BY].data;
    const char *const dy = a->to ? element(&call->in[DY], at) : call->in[DY].data;
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < n; i++)
        if (index[i] >= 0 && index[i] / WF_HALO_SOURCE == a->source)
            add_row(dtype, to + index[i] % WF_HALO_SOURCE * bytes, dy + i * bytes, a->channels);
}

static void scatter_run(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const struct wf_region places = places_of(call);
    if (a->set) {
        scatter(call, places.lo);
        return;
    }
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);)
        scatter(call, p.at);
}

static bool accepts_scatter(const struct wf_node *node)
{
    const struct wf_gather_attrs *a = node->attrs;
    return wf_cpu_is_float(node->out[0]) && a->channels <= WIDEST;
}

const struct wf_kernel wf_cpu_kernels_sparse_halo[] = {
    { .op = "rows_gather", .flags = WF_KERNEL_DENSE, .run = gather_run },
    { .op = "rows_scatter",
      .flags = WF_KERNEL_DENSE,
      .accepts = accepts_scatter,
      .run = scatter_run },
    { 0 },
};
