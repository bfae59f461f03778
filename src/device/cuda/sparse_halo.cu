/*
 * Rows that travel between ranks, on a GPU (ops/halo.h).
 *
 * Sources are in order each. A chosen row comes behind those of its own source that were chosen before it, and behind
 * those of the others that lie before it, which bisection finds: so lists and orders need no sorting. Indices
 * are distinct (H2), and so no two threads of a scatter meet.
 */
#include "device/cuda/sparse.cuh"
#include "device/cuda/sparse_halo.h"

namespace wf
{

enum { SOURCES = 1 + WF_HALO_BOXES };

/* --- lists and orders --- */

struct Choose {
    const int32_t *at[SOURCES]; /* coordinates of each source */
    int32_t first[SOURCES + 1]; /* of each, in the numbers of all */
    const int32_t *there;       /* of source 0: rows */
    const int32_t *bounds;      /* of the rank's box; NULL: all are chosen */
    int32_t *to, *made;         /* made: how many, NULL: empty slots are marked */
    int32_t *counts, *before;   /* of each block; of each row: chosen ones before it, and all */
    int32_t room, d, lower;     /* d: of the coordinate that decides; lower: of the neighbour below */
    int64_t reach;
    Places order;

    /* The number's source. */
    __device__ int source(int32_t i) const
    {
        int s = 0;
        while (i >= first[s + 1])
            s++;
        return s;
    }
    __device__ const int32_t *row(int s, int32_t r) const
    {
        return at[s] + (int64_t)r * (1 + order.dims);
    }
    __device__ bool is_there(int s, int32_t r) const
    {
        return s == 0 ? r < *there : row(s, r)[0] >= 0;
    }
    __device__ bool chooses(int32_t i) const
    {
        if (i >= first[SOURCES])
            return false;
        const int s = source(i);
        const int32_t r = i - first[s];
        if (!is_there(s, r))
            return false;
        if (!bounds)
            return true;
        const int64_t place = row(s, r)[d];
        return lower ? bounds[0] > INT32_MIN && place < bounds[0] + reach
                     : bounds[1] < INT32_MAX && place >= bounds[1] - reach;
    }
    /* Rows of a source that lie before a place. */
    __device__ int32_t rows_before(int s, const int32_t *place) const
    {
        int32_t low = 0, high = first[s + 1] - first[s];
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            if (is_there(s, middle) && order.compare(row(s, middle), place) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
};

__global__ void __launch_bounds__(THREADS) choose_count(const Choose f)
{
    int all;
    (void)block_scan(f.chooses((int32_t)(blockIdx.x * THREADS + threadIdx.x)), &all);
    if (threadIdx.x == 0)
        f.counts[blockIdx.x] = all;
}

__global__ void __launch_bounds__(THREADS) choose_number(const Choose f)
{
    const int32_t i = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    int before = 0, first, all;
    for (int b = (int)threadIdx.x; b < (int)blockIdx.x; b += THREADS)
        before += f.counts[b];
    (void)block_scan(before, &first);
    const bool chosen = f.chooses(i);
    const int32_t rank = first + block_scan(chosen, &all) - chosen;
    if (i <= f.first[SOURCES])
        f.before[i] = rank;
}

__global__ void __launch_bounds__(THREADS) choose_write(const Choose f)
{
    const int32_t i = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    const int32_t all = f.before[f.first[SOURCES]];
    if (i == 0 && f.made)
        *f.made = smaller(all, f.room);
    if (!f.made && i >= all && i < f.room)
        f.to[i] = -1;
    if (!f.chooses(i))
        return;
    const int s = f.source(i);
    const int32_t r = i - f.first[s];
    int32_t at = f.before[i] - f.before[f.first[s]];
    for (int t = 0; t < SOURCES; t++)
        if (t != s && f.first[t + 1] > f.first[t])
            at += f.before[f.first[t] + f.rows_before(t, f.row(s, r))] - f.before[f.first[t]];
    if (at < f.room)
        f.to[at] = r + s * WF_HALO_SOURCE;
}

static int64_t rows_of(const struct wf_region &box)
{
    return larger<int64_t>(0, box.hi[WF_N] - box.lo[WF_N]);
}

/* The first element at a place of the mesh. */
template <class T> static T *element(const struct wf_view &v, const int64_t at[WF_AXES])
{
    return (T *)v.data + wf_view_offset(&v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], 0);
}

/* Of a rank at this place, its rows and boxes from input `first` on; NULL: none. */
static Choose choose_of(const struct wf_call *call, int first, const int64_t *place)
{
    const struct wf_node *const node = call->node;
    const struct wf_halo_attrs *a = (const struct wf_halo_attrs *)node->attrs;
    Choose f = {};
    f.order.dims = (int32_t)a->dims;
    for (int d = 0; d < a->dims; d++)
        f.order.stride[d] = (int32_t)a->stride[d];
    int64_t n = first ? rows_of(call->in[1].box) : 0;
    f.at[0] = first ? wf_sparse_coords(&call->in[1]) : NULL;
    f.there = first ? call->rows + node->in[1]->set : NULL;
    for (int s = 1; s <= SOURCES; s++) {
        const int box = first + s - 1;
        int64_t at[WF_AXES];
        f.first[s] = (int32_t)n;
        if (s == SOURCES || !place || box >= node->n_in ||
            !wf_halo_neighbour(node->in[box]->shape.at, place, a->from[s - 1], -1, at))
            continue;
        f.at[s] = element<const int32_t>(call->in[box], at);
        n += node->in[box]->shape.at[WF_C] / (1 + a->dims);
    }
    return f;
}

/* Numbers of rows of all sources, at most. */
static int64_t numbers_of(const struct wf_node *node, const struct wf_view *in)
{
    const struct wf_halo_attrs *a = (const struct wf_halo_attrs *)node->attrs;
    int64_t n = 0;
    for (int i = 0; i < node->n_in; i++)
        n += node->in[i]->set ? rows_of(in[i].box) : node->in[i]->shape.at[WF_C] / (1 + a->dims);
    return n;
}

static void choose(const struct wf_call *call, Choose &f)
{
    const int64_t n = larger<int64_t>(f.first[SOURCES] + 1, f.made ? 1 : f.room);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    f.counts = (int32_t *)call->scratch;
    f.before = f.counts + ceil_div(n, THREADS);
    launch(choose_count, blocks_for(n, THREADS), THREADS, stream, f);
    launch(choose_number, blocks_for(n, THREADS), THREADS, stream, f);
    launch(choose_write, blocks_for(n, THREADS), THREADS, stream, f);
}

/* --- rows by an index --- */

struct Move {
    const int32_t *index, *there; /* there: rows of the index; NULL: all of them */
    const void *from[SOURCES];
    const void *dy, *add;
    void *to;
    const int32_t *made; /* scatter: rows of the result; NULL: all of them */
    int64_t count, rows; /* of the index, at most; scatter: of the result */
    int32_t width, source;
};

/* T: of any type with as many bytes. */
template <class T> __global__ void __launch_bounds__(THREADS) gather_kernel(const Move f, const T empty)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, r = i / f.width;
    if (r >= (f.there ? *f.there : f.count))
        return;
    const int32_t from = f.index[r];
    ((T *)f.to)[i] = from < 0 ? empty
                              : ((const T *)f.from[from / WF_HALO_SOURCE])
                                    [(int64_t)(from % WF_HALO_SOURCE) * f.width + i - r * f.width];
}

template <class T> __global__ void __launch_bounds__(THREADS) scatter_begin(const Move f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (f.made ? *f.made : f.rows) * f.width)
        ((T *)f.to)[i] = f.add ? ((const T *)f.add)[i] : To<T>::from(0);
}

template <class T> __global__ void __launch_bounds__(THREADS) scatter_kernel(const Move f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, r = i / f.width;
    if (r >= (f.there ? *f.there : f.count))
        return;
    const int32_t index = f.index[r];
    if (index < 0 || index / WF_HALO_SOURCE != f.source)
        return;
    T *const to = (T *)f.to + (int64_t)(index % WF_HALO_SOURCE) * f.width + i - r * f.width;
    *to = To<T>::from(to_arith(*to) + to_arith(((const T *)f.dy)[i]));
}

/* The places of ranks that a call works for: its own, or all of them. */
static struct wf_region places_of(const struct wf_call *call, bool per_rank)
{
    const struct wf_gather_attrs *a = (const struct wf_gather_attrs *)call->node->attrs;
    struct wf_region r = call->work;
    if (!per_rank)
        return wf_halo_place(a->mesh, call->node->out[0]->shape.at[WF_N], r);
    r.lo[WF_C] = 0;
    r.hi[WF_C] = 1;
    return r;
}

static void gather(const struct wf_call *call, const int64_t *place)
{
    const struct wf_node *const node = call->node;
    const struct wf_gather_attrs *a = (const struct wf_gather_attrs *)node->attrs;
    Move f = {};
    f.width = (int32_t)a->channels;
    f.index = a->to ? element<const int32_t>(call->in[0], place) : (const int32_t *)call->in[0].data;
    f.there = a->to ? NULL : call->rows + node->in[0]->set;
    f.count = a->to ? node->in[0]->shape.at[WF_C] : rows_of(call->in[0].box);
    const size_t bytes = size_of(call->out[0].dtype);
    for (int i = 1; i < node->n_in; i++) {
        const int s = i - !!a->has_rows;
        int64_t at[WF_AXES];
        if (i == 1 && a->has_rows)
            f.from[0] = call->in[1].data;
        else if (wf_halo_neighbour(a->mesh, place, a->from[s - 1], -1, at))
            f.from[s] = bytes == 2   ? (const void *)element<uint16_t>(call->in[i], at)
                        : bytes == 4 ? (const void *)element<uint32_t>(call->in[i], at)
                                     : (const void *)element<uint64_t>(call->in[i], at);
    }
    f.to = !a->to       ? call->out[0].data
           : bytes == 2 ? (void *)element<uint16_t>(call->out[0], place)
           : bytes == 4 ? (void *)element<uint32_t>(call->out[0], place)
                        : (void *)element<uint64_t>(call->out[0], place);
    const dim3 grid = blocks_for(larger<int64_t>(f.count * f.width, 1), THREADS);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    const bool marks = call->out[0].dtype == WF_I32;
    if (bytes == 2)
        launch(gather_kernel<uint16_t>, grid, THREADS, stream, f, (uint16_t)0);
    else if (bytes == 4)
        launch(gather_kernel<uint32_t>, grid, THREADS, stream, f, marks ? ~0u : 0u);
    else
        launch(gather_kernel<uint64_t>, grid, THREADS, stream, f, (uint64_t)0);
}

static void scatter(const struct wf_call *call, const int64_t *place)
{
    const struct wf_node *const node = call->node;
    const struct wf_gather_attrs *a = (const struct wf_gather_attrs *)node->attrs;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    int64_t from[WF_AXES];
    const bool arrives = wf_halo_neighbour(a->mesh, place, a->to, 1, from);
    with_type(call->out[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        Move f = {};
        f.width = (int32_t)a->channels;
        f.source = (int32_t)a->source;
        f.index = a->to ? element<const int32_t>(call->in[1], place)
                        : (const int32_t *)call->in[1].data;
        f.there = a->to ? NULL : call->rows + node->in[1]->set;
        f.count = a->to ? node->in[1]->shape.at[WF_C] : rows_of(call->in[1].box);
        f.dy = a->to && arrives ? element<const T>(call->in[0], from)
                                : (const T *)call->in[0].data;
        f.to = a->set ? (T *)call->out[0].data : element<T>(call->out[0], place);
        f.add = !call->in[2].data ? NULL
                : a->set          ? (const T *)call->in[2].data
                                  : element<const T>(call->in[2], place);
        f.made = a->set ? call->rows + a->set : NULL;
        f.rows = a->set ? rows_of(call->out[0].box) : a->rows;
        if (f.to != f.add)
            launch(scatter_begin<T>, blocks_for(larger<int64_t>(f.rows * f.width, 1), THREADS),
                   THREADS, stream, f);
        if (arrives)
            launch(scatter_kernel<T>, blocks_for(larger<int64_t>(f.count * f.width, 1), THREADS),
                   THREADS, stream, f);
    });
}

} // namespace wf

using namespace wf;

bool wf_cuda_halo_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_halo_attrs *a = (const struct wf_halo_attrs *)p->node->attrs;
    const int64_t n = numbers_of(p->node, p->in) + a->rows + 2;
    p->scratch_bytes = (size_t)(n + ceil_div(n, THREADS) + 1) * sizeof(int32_t);
    return true;
}

void wf_cuda_halo_list(const struct wf_call *call)
{
    const struct wf_halo_attrs *a = (const struct wf_halo_attrs *)call->node->attrs;
    const int axis = wf_halo_axis(a->to);
    struct wf_region places = call->work;
    places.lo[WF_C] = 0;
    places.hi[WF_C] = 1;
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);) {
        Choose f = choose_of(call, 2, p.at);
        f.bounds = element<const int32_t>(call->in[0], p.at) + 2 * axis;
        f.to = element<int32_t>(call->out[0], p.at);
        f.room = (int32_t)a->rows;
        f.d = 1 + wf_halo_coordinate(axis, a->dims);
        f.lower = wf_halo_step(a->to) < 0;
        f.reach = f.lower ? a->above[axis] : a->below[axis];
        choose(call, f);
    }
}

void wf_cuda_halo_merge(const struct wf_call *call)
{
    const struct wf_node *const node = call->node;
    const struct wf_halo_attrs *a = (const struct wf_halo_attrs *)node->attrs;
    const struct wf_region place =
        wf_halo_place(node->in[0]->shape.at, node->out[0]->shape.at[WF_N], call->out[0].box);
    Choose f = choose_of(call, 0, wf_region_count(place) > 1 ? NULL : place.lo);
    f.to = (int32_t *)call->out[0].data;
    f.made = call->rows + a->set;
    f.room = (int32_t)rows_of(call->out[0].box);
    choose(call, f);
}

void wf_cuda_rows_gather(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = (const struct wf_gather_attrs *)call->node->attrs;
    const struct wf_region places = places_of(call, a->to != 0);
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);) {
        gather(call, p.at);
        if (!a->to)
            return;
    }
}

void wf_cuda_rows_scatter(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = (const struct wf_gather_attrs *)call->node->attrs;
    const struct wf_region places = places_of(call, a->set == 0);
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);) {
        scatter(call, p.at);
        if (a->set)
            return;
    }
}
