/*
 * Sets of coordinates made of sets, interpolation at points, and images of points, on a GPU.
 *
 * Rows lie in Z order, so a place is found by bisection, and where the rows of two sets lie in their union is known
 * from how many of the other are before them. The gradient of interpolation lists the points around each row; the
 * lists are filled in any order and sorted, so that sums have one order.
 */
#include "device/cuda/sparse.cuh"
#include "device/cuda/sparse_ops.h"

namespace wf
{

static Places places_of(const struct wf_call *call, int input, int64_t dims, const int64_t stride[])
{
    Places p = { wf_sparse_coords(&call->in[input]), call->rows + call->node->in[input]->set,
                 (int32_t)dims, {} };
    for (int d = 0; d < dims; d++)
        p.stride[d] = (int32_t)stride[d];
    return p;
}

__device__ inline void copy_row(int32_t *to, const int32_t *from, int dims)
{
    for (int d = 0; d <= dims; d++)
        to[d] = from[d];
}

/* --- union and pruning: rows of b that are kept, and how many are before each --- */

struct Keep {
    Places a, b;
    Table mask; /* of pruning: row r is kept where it is above 0; otherwise where a has it not */
    int32_t *to, *made, *counts, *kept; /* counts: of each block; kept: before each row, and all */
    int32_t room;

    __device__ bool keeps(int64_t r) const
    {
        if (r >= *b.there)
            return false;
        if (mask.data)
            return mask.get(r, 0) > 0;
        return !a.has(a.before(b.row(r)), b.row(r));
    }
};

__global__ void __launch_bounds__(THREADS) keep_count(const Keep f)
{
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int all;
    (void)block_scan(f.keeps(r), &all);
    if (threadIdx.x == 0)
        f.counts[blockIdx.x] = all;
}

__global__ void __launch_bounds__(THREADS) keep_write(const Keep f)
{
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int before = 0, all, first;
    for (int b = (int)threadIdx.x; b < (int)blockIdx.x; b += THREADS)
        before += f.counts[b];
    (void)block_scan(before, &first);
    const bool keeps = f.keeps(r);
    const int32_t rank = first + block_scan(keeps, &all) - keeps;
    if (f.kept && r <= *f.b.there)
        f.kept[r] = rank;
    const int32_t at = rank + (keeps && !f.mask.data ? f.a.before(f.b.row(r)) : 0);
    if (keeps && at < f.room)
        copy_row(f.to + (int64_t)at * (1 + f.b.dims), f.b.row(r), f.b.dims);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
        *f.made = smaller(first + all + (f.mask.data ? 0 : *f.a.there), f.room);
}

/* Rows of a come behind the kept rows of b that are before them. */
__global__ void __launch_bounds__(THREADS) union_first(const Keep f)
{
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r >= *f.a.there)
        return;
    const int64_t at = r + f.kept[f.b.before(f.a.row(r))];
    if (at < f.room)
        copy_row(f.to + at * (1 + f.a.dims), f.a.row(r), f.a.dims);
}

static int64_t rows_of(const struct wf_region &box)
{
    return larger<int64_t>(0, box.hi[WF_N] - box.lo[WF_N]);
}

static int64_t blocks_of(int64_t rows)
{
    return rows / THREADS + 1; /* one row more: all that are kept */
}

static Keep keep_of(const struct wf_call *call, int last)
{
    const struct wf_coords_set_attrs *a = (const struct wf_coords_set_attrs *)call->node->attrs;
    Keep f = {};
    f.b = places_of(call, last, a->dims, a->stride);
    f.a = places_of(call, 0, a->dims, a->stride);
    f.to = wf_sparse_coords(&call->out[0]);
    f.made = call->rows + a->set;
    f.counts = (int32_t *)call->scratch;
    f.kept = f.counts + blocks_of(rows_of(call->in[last].box));
    f.room = (int32_t)rows_of(call->out[0].box);
    return f;
}

/* --- coords_expand: two by two, in order --- */

struct Expand {
    Places from;
    int32_t *to, *made;
    int32_t room;
    int32_t step[WF_SPARSE_AXES];
};

__global__ void __launch_bounds__(THREADS) expand_kernel(const Expand f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = *f.from.there;
    const int dims = f.from.dims;
    const int64_t parent = i >> dims;
    if (i == 0)
        *f.made = smaller((int32_t)(n << dims), f.room);
    if (parent >= n || i >= f.room)
        return;
    int32_t *const to = f.to + i * (1 + dims);
    copy_row(to, f.from.row(parent), dims);
    for (int d = 0; d < dims; d++) /* the first axis leads */
        to[1 + d] += i >> (dims - 1 - d) & 1 ? f.step[d] : 0;
}

/* --- interpolation --- */

struct Corners {
    Places places;
    Table points, w;
    const int32_t *there;
    int32_t *map;
};

__global__ void __launch_bounds__(THREADS) corner_kernel(const Corners f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int dims = f.places.dims, k = (int)(i & ((1 << dims) - 1));
    const int64_t u = i >> dims;
    if (u >= *f.there)
        return;
    int32_t at[1 + WF_SPARSE_AXES];
    double weight = 1;
    bool inside = true;
    at[0] = (int32_t)f.points.get(u, 0);
    for (int d = 0; d < dims; d++) {
        const double stride = (double)f.places.stride[d], place = f.points.get(u, 1 + d) / stride;
        const double low = floor(place), above = place - low;
        const double corner = (low + (double)(k >> d & 1)) * stride;
        inside = inside && corner >= (double)INT32_MIN && corner <= (double)INT32_MAX;
        at[1 + d] = inside ? (int32_t)corner : 0;
        weight *= k >> d & 1 ? above : 1.0 - above;
    }
    const int32_t row = inside ? f.places.before(at) : 0;
    const bool is_there = inside && f.places.has(row, at);
    f.map[i] = is_there ? row : -1;
    f.w.put(u, k, is_there ? weight : 0.0);
}

struct Mix {
    const void *x;
    void *y;
    const int32_t *map, *there; /* there: rows of y */
    Table w;
    const int32_t *pairs; /* rows of dy */
    int32_t columns, width, rows;
    unsigned *begin; /* gradient: of each row's list; then the lists */
    int32_t *counts, *list;
};

template <class T> __global__ void __launch_bounds__(THREADS) mix_kernel(const Mix f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    const int64_t c = i - u * f.width;
    if (u >= *f.there)
        return;
    double sum = 0;
    for (int k = 0; k < f.columns; k++) {
        const int64_t row = f.map[u * f.columns + k];
        if (row >= 0)
            sum += f.w.get(u, k) * (double)to_arith(((const T *)f.x)[row * f.width + c]);
    }
    ((T *)f.y)[i] = To<T>::from((arith<T>)sum);
}

__global__ void __launch_bounds__(THREADS) list_clear(const Mix f)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (v <= f.rows)
        f.begin[v] = 0;
}

/* How many pairs a row has, counted one place further: begin[v + 1]. */
__global__ void __launch_bounds__(THREADS) list_count(const Mix f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (int64_t)*f.pairs * f.columns && f.map[i] >= 0)
        atomicAdd(&f.begin[f.map[i] + 1], 1u);
}

__global__ void __launch_bounds__(THREADS) list_sum(const Mix f)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int all;
    (void)block_scan(v <= f.rows ? (int)f.begin[v] : 0, &all);
    if (threadIdx.x == 0)
        f.counts[blockIdx.x] = all;
}

__global__ void __launch_bounds__(THREADS) list_begin(const Mix f)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int before = 0, first, all;
    for (int b = (int)threadIdx.x; b < (int)blockIdx.x; b += THREADS)
        before += f.counts[b];
    (void)block_scan(before, &first);
    const int mine = block_scan(v <= f.rows ? (int)f.begin[v] : 0, &all);
    if (v <= f.rows)
        f.begin[v] = (unsigned)(first + mine);
}

/* Afterwards begin[v] is the end of row v's list. */
__global__ void __launch_bounds__(THREADS) list_fill(const Mix f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (int64_t)*f.pairs * f.columns && f.map[i] >= 0)
        f.list[atomicAdd(&f.begin[f.map[i]], 1u)] = (int32_t)i;
}

__global__ void __launch_bounds__(THREADS) list_sort(const Mix f)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (v >= *f.there)
        return;
    const int64_t first = v ? f.begin[v - 1] : 0, n = (int64_t)f.begin[v] - first;
    int32_t *const list = f.list + first;
    /* A heap: its time does not depend on how many points share a place. */
    for (int64_t end = n, top = n / 2; end > 1;) {
        if (top > 0) {
            top--;
        } else {
            end--;
            const int32_t last = list[end];
            list[end] = list[0];
            list[0] = last;
        }
        for (int64_t at = top, child; (child = 2 * at + 1) < end; at = child) {
            child += child + 1 < end && list[child] < list[child + 1];
            if (list[at] >= list[child])
                break;
            const int32_t value = list[at];
            list[at] = list[child];
            list[child] = value;
        }
    }
}

/* x is dy, y is dx. */
template <class T> __global__ void __launch_bounds__(THREADS) mix_grad_kernel(const Mix f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, v = i / f.width;
    const int64_t c = i - v * f.width;
    if (v >= *f.there)
        return;
    double sum = 0;
    for (int64_t j = v ? f.begin[v - 1] : 0; j < (int64_t)f.begin[v]; j++) {
        const int64_t u = f.list[j] / f.columns;
        sum += f.w.get(u, f.list[j] % f.columns) *
               (double)to_arith(((const T *)f.x)[u * f.width + c]);
    }
    ((T *)f.y)[i] = To<T>::from((arith<T>)sum);
}

static Mix mix_of(const struct wf_call *call)
{
    Mix f = {};
    f.x = call->in[0].data;
    f.y = call->out[0].data;
    f.map = (const int32_t *)call->in[1].data;
    f.there = rows_there(call);
    f.pairs = call->rows + call->node->in[1]->set;
    f.w = table_of(call->in[2]);
    f.w.data = call->in[2].data; /* from the rank's first row on */
    f.columns = (int32_t)call->node->in[1]->shape.at[WF_C];
    f.width = (int32_t)call->node->in[0]->shape.at[WF_C];
    f.rows = (int32_t)rows_of(call->out[0].box);
    return f;
}

/* --- images --- */

struct Grid {
    const int32_t *coords, *there;
    void *rows, *image;
    int32_t dims, samples, width;
    int64_t lo[3], extent[3], stride[3];

    /* The position in the image, -1: outside. */
    __device__ int64_t at(int64_t row) const
    {
        const int32_t *const place = coords + row * (1 + dims);
        int64_t position = place[0];
        for (int d = 0; d < dims; d++) {
            const int64_t from = place[1 + d] - lo[d];
            if (from < 0 || from % stride[d] != 0 || from / stride[d] >= extent[d])
                return -1;
            position = position * extent[d] + from / stride[d];
        }
        return place[0] >= 0 && place[0] < samples ? position : -1;
    }
};

template <class T, class U> __global__ void __launch_bounds__(THREADS) to_grid(const Grid f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    const int64_t at = u < *f.there ? f.at(u) : -1;
    if (at >= 0)
        ((U *)f.image)[at * f.width + i - u * f.width] = (U)to_arith(((const T *)f.rows)[i]);
}

template <class T> __global__ void __launch_bounds__(THREADS) to_rows(const Grid f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    if (u >= *f.there)
        return;
    const int64_t at = f.at(u);
    ((T *)f.rows)[i] =
        at >= 0 ? ((const T *)f.image)[at * f.width + i - u * f.width] : To<T>::from(0);
}

static Grid grid_of(const struct wf_call *call)
{
    const struct wf_grid_attrs *a = (const struct wf_grid_attrs *)call->node->attrs;
    Grid f = {};
    f.coords = wf_sparse_coords(&call->in[1]);
    f.there = rows_there(call);
    f.dims = (int32_t)a->dims;
    f.samples = (int32_t)a->samples;
    f.width = (int32_t)call->node->in[0]->shape.at[WF_C];
    for (int d = 0; d < f.dims; d++) {
        f.lo[d] = a->lo[d];
        f.extent[d] = a->extent[d];
        f.stride[d] = a->stride[d];
    }
    return f;
}

} // namespace wf

using namespace wf;

bool wf_cuda_coords_set_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = rows_of(p->in[p->node->n_in - 1].box);
    p->scratch_bytes = (size_t)(blocks_of(rows) + rows + 2) * sizeof(int32_t);
    return true;
}

void wf_cuda_coords_union(const struct wf_call *call)
{
    struct CUstream_st *const stream = wf_cuda_stream(call);
    const Keep f = keep_of(call, 1);
    const dim3 grid((unsigned)blocks_of(rows_of(call->in[1].box)));
    launch(keep_count, grid, THREADS, stream, f);
    launch(keep_write, grid, THREADS, stream, f);
    launch(union_first, dim3((unsigned)blocks_of(rows_of(call->in[0].box))), THREADS, stream, f);
}

void wf_cuda_coords_prune(const struct wf_call *call)
{
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Keep f = keep_of(call, 0);
    f.kept = NULL;
    f.mask = table_of(call->in[1]);
    f.mask.data = call->in[1].data; /* from the rank's first row on */
    const dim3 grid((unsigned)blocks_of(rows_of(call->in[0].box)));
    launch(keep_count, grid, THREADS, stream, f);
    launch(keep_write, grid, THREADS, stream, f);
}

void wf_cuda_coords_expand(const struct wf_call *call)
{
    const struct wf_coords_set_attrs *a = (const struct wf_coords_set_attrs *)call->node->attrs;
    Expand f = {};
    f.from = places_of(call, 0, a->dims, a->stride);
    f.to = wf_sparse_coords(&call->out[0]);
    f.made = call->rows + a->set;
    f.room = (int32_t)rows_of(call->out[0].box);
    for (int d = 0; d < a->dims; d++)
        f.step[d] = (int32_t)a->step[d];
    launch(expand_kernel, blocks_for(larger<int64_t>(1, f.room), THREADS), THREADS,
           wf_cuda_stream(call), f);
}

void wf_cuda_corner_map(const struct wf_call *call)
{
    const struct wf_corner_attrs *a = (const struct wf_corner_attrs *)call->node->attrs;
    Corners f = {};
    f.places = places_of(call, 0, a->dims, a->stride);
    f.points = table_of(call->in[1]);
    f.points.data = call->in[1].data; /* from the rank's first row on */
    f.w = table_of(call->out[1]);
    f.w.data = call->out[1].data;
    f.there = call->rows + call->node->in[1]->set;
    f.map = (int32_t *)call->out[0].data;
    const int64_t count = capacity_of(call->work) << a->dims;
    if (count > 0)
        launch(corner_kernel, blocks_for(count, THREADS), THREADS, wf_cuda_stream(call), f);
}

void wf_cuda_sparse_mix(const struct wf_call *call)
{
    const Mix f = mix_of(call);
    const int64_t count = capacity_of(call->work) * f.width;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(mix_kernel<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

bool wf_cuda_sparse_mix_grad_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = rows_of(p->out[0].box);
    const int64_t pairs = rows_of(p->in[1].box) * p->node->in[1]->shape.at[WF_C];
    p->scratch_bytes = (size_t)(rows + 2 + blocks_of(rows + 1) + pairs) * sizeof(int32_t);
    return true;
}

void wf_cuda_sparse_mix_grad(const struct wf_call *call)
{
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Mix f = mix_of(call);
    f.begin = (unsigned *)call->scratch;
    f.counts = (int32_t *)(f.begin + f.rows + 2);
    f.list = f.counts + blocks_of(f.rows + 1);
    const dim3 rows((unsigned)blocks_of(f.rows + 1));
    const int64_t pairs = rows_of(call->in[1].box) * f.columns, count = (int64_t)f.rows * f.width;
    if (count < 1)
        return;
    launch(list_clear, rows, THREADS, stream, f);
    if (pairs > 0)
        launch(list_count, blocks_for(pairs, THREADS), THREADS, stream, f);
    launch(list_sum, rows, THREADS, stream, f);
    launch(list_begin, rows, THREADS, stream, f);
    if (pairs > 0)
        launch(list_fill, blocks_for(pairs, THREADS), THREADS, stream, f);
    launch(list_sort, rows, THREADS, stream, f);
    with_type(call->in[0].dtype, [&](auto t) {
        launch(mix_grad_kernel<decltype(t)>, blocks_for(count, THREADS), THREADS, stream, f);
    });
}

void wf_cuda_rows_to_grid(const struct wf_call *call)
{
    Grid f = grid_of(call);
    const int64_t count = capacity_of(call->work) * f.width;
    f.rows = call->in[0].data;
    f.image = call->out[0].data;
    wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(to_grid<decltype(t), float>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

void wf_cuda_grid_to_rows(const struct wf_call *call)
{
    Grid f = grid_of(call);
    const int64_t count = capacity_of(call->work) * f.width;
    f.image = call->in[0].data;
    f.rows = call->out[0].data;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(to_rows<decltype(t)>, blocks_for(count, THREADS), THREADS, wf_cuda_stream(call),
                   f);
        });
}
