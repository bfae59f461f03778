/*
 * The coordinate pass on a GPU: sets of coordinates made of sets, and kernel maps.
 *
 * Rows lie in Z order. So a coarser set is found by comparing each row with the one before it, and the rows of
 * a small cube of the lattice (64 places) are neighbours: as on the CPU an index has one entry for each cube
 * that is there, with a bit per place and its first row. Cubes are found by open addressing. A slot names
 * a row, whose coordinates are compared as they are: no key has to hold them, and no range limits them. In which
 * slot a cube ends up may differ from run to run, what is found does not.
 */
#include "device/cuda/sparse.cuh"

namespace wf
{

enum { BATCH_AND_AXES = 1 + WF_SPARSE_AXES };

/* --- coords_stride --- */

struct Coarsen {
    const int32_t *from, *there;
    int32_t *to, *made, *counts; /* counts: rows that each block makes */
    int32_t room, dims;
    int32_t stride[WF_SPARSE_AXES];

    __device__ int32_t coarse(int64_t row, int d) const
    {
        const int32_t at = from[row * (1 + dims) + 1 + d];
        return (int32_t)floor_div(at, stride[d]) * stride[d];
    }
    /* Whether the row is the first one of its coarse row. */
    __device__ bool begins(int64_t row) const
    {
        if (row == 0)
            return true;
        bool differs = from[row * (1 + dims)] != from[(row - 1) * (1 + dims)];
        for (int d = 0; d < dims; d++)
            differs = differs || coarse(row, d) != coarse(row - 1, d);
        return differs;
    }
};

__global__ void __launch_bounds__(THREADS) coarsen_count(const Coarsen f)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int all;
    (void)block_scan(row < *f.there && f.begins(row), &all);
    if (threadIdx.x == 0)
        f.counts[blockIdx.x] = all;
}

__global__ void __launch_bounds__(THREADS) coarsen_write(const Coarsen f)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int before = 0, all, first;
    for (int b = (int)threadIdx.x; b < (int)blockIdx.x; b += THREADS)
        before += f.counts[b];
    (void)block_scan(before, &first);
    const bool begins = row < *f.there && f.begins(row);
    const int at = first + block_scan(begins, &all) - 1;
    if (begins && at < f.room) {
        int32_t *const to = f.to + (int64_t)at * (1 + f.dims);
        to[0] = f.from[row * (1 + f.dims)];
        for (int d = 0; d < f.dims; d++)
            to[1 + d] = f.coarse(row, d);
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
        *f.made = smaller(first + all, f.room);
}

/* --- kernel_map --- */

struct Map {
    const int32_t *in, *out, *n_in, *n_out;
    int32_t *map;
    int32_t *slots; /* first row of a cube, -1: free */
    uint64_t *places; /* of the cube in the slot: a bit for each one that is there */
    uint32_t mask;
    int32_t dims, bits, count, cross;
    int32_t kernel[WF_SPARSE_AXES], stride[WF_SPARSE_AXES]; /* of the input */
    int64_t step[WF_SPARSE_AXES];

    __device__ int32_t lattice(int64_t row, int d) const
    {
        return in[row * (1 + dims) + 1 + d] / stride[d];
    }
    __device__ bool in_cube(int64_t row, const int32_t *cube) const
    {
        bool same = in[row * (1 + dims)] == cube[0];
        for (int d = 0; d < dims; d++)
            same = same && lattice(row, d) >> bits == cube[1 + d];
        return same;
    }
    __device__ uint32_t hash(const int32_t *cube) const
    {
        uint64_t h = 0x9e3779b97f4a7c15u;
        for (int d = 0; d <= dims; d++) {
            h = (h ^ (uint32_t)cube[d]) * 0xff51afd7ed558ccdu;
            h ^= h >> 32;
        }
        return (uint32_t)h;
    }
    /* In the order of rows. */
    __device__ int place(const int32_t *at) const
    {
        int p = 0;
        for (int b = bits - 1; b >= 0; b--)
            for (int d = 0; d < dims; d++)
                p = p * 2 + (at[d] >> b & 1);
        return p;
    }
    __device__ void offset(int k, int32_t *o) const
    {
        for (int d = 0; d < dims; d++)
            o[d] = 0;
        if (cross) {
            const int reach = kernel[0] / 2, within = k > 0 ? (k - 1) % (2 * reach) : 0;
            if (k > 0)
                o[(k - 1) / (2 * reach)] = within < reach ? within + 1 : within - 2 * reach;
            return;
        }
        for (int d = 0; d < dims; d++) {
            o[d] = k % kernel[d] - (kernel[d] % 2 ? kernel[d] / 2 : 0);
            k /= kernel[d];
        }
    }
};

__global__ void __launch_bounds__(THREADS) map_clear(const Map f)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i <= f.mask;
         i += (int64_t)gridDim.x * THREADS)
        f.slots[i] = -1;
}

/* The first row of a cube collects the others', which follow it, and takes a slot. */
__global__ void __launch_bounds__(THREADS) map_index(const Map f)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = *f.n_in;
    int32_t cube[BATCH_AND_AXES], at[WF_SPARSE_AXES];
    if (row >= n)
        return;
    cube[0] = f.in[row * (1 + f.dims)];
    for (int d = 0; d < f.dims; d++)
        cube[1 + d] = f.lattice(row, d) >> f.bits;
    if (row > 0 && f.in_cube(row - 1, cube))
        return;
    uint64_t places = 0;
    for (int64_t r = row; r < n && f.in_cube(r, cube); r++) {
        for (int d = 0; d < f.dims; d++)
            at[d] = f.lattice(r, d);
        places |= UINT64_C(1) << f.place(at);
    }
    uint32_t h = f.hash(cube) & f.mask;
    while (atomicCAS(&f.slots[h], -1, (int32_t)row) != -1)
        h = (h + 1) & f.mask;
    f.places[h] = places;
}

__device__ inline int32_t map_find(const Map &f, const int32_t *row, int k)
{
    int32_t cube[BATCH_AND_AXES], at[WF_SPARSE_AXES];
    f.offset(k, at);
    cube[0] = row[0];
    for (int d = 0; d < f.dims; d++) {
        const int64_t place = row[1 + d] + f.step[d] * at[d];
        if (place < INT32_MIN || place > INT32_MAX || (int32_t)place % f.stride[d] != 0)
            return -1;
        at[d] = (int32_t)place / f.stride[d];
        cube[1 + d] = at[d] >> f.bits;
    }
    for (uint32_t h = f.hash(cube) & f.mask;; h = (h + 1) & f.mask) {
        const int32_t first = f.slots[h];
        if (first < 0)
            return -1;
        if (!f.in_cube(first, cube))
            continue;
        const uint64_t bit = UINT64_C(1) << f.place(at), there = f.places[h];
        return there & bit ? first + __popcll(there & (bit - 1)) : -1;
    }
}

__global__ void __launch_bounds__(THREADS) map_look(const Map f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = i / f.count;
    if (row < *f.n_out)
        f.map[i] = map_find(f, f.out + row * (1 + f.dims), (int)(i - row * f.count));
}

static int64_t slots_for(int64_t rows)
{
    int64_t size = 64;
    while (size < 2 * rows)
        size *= 2;
    return size;
}

static int64_t rows_of(const struct wf_region &box)
{
    return larger<int64_t>(0, box.hi[WF_N] - box.lo[WF_N]);
}

} // namespace wf

using namespace wf;

bool wf_cuda_coords_stride_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = (size_t)(ceil_div(rows_of(p->in[0].box), THREADS) + 1) * sizeof(int32_t);
    return true;
}

void wf_cuda_coords_stride(const struct wf_call *call)
{
    const struct wf_coords_stride_attrs *a =
        (const struct wf_coords_stride_attrs *)call->node->attrs;
    const int64_t rows = rows_of(call->in[0].box);
    Coarsen f = {};
    f.from = wf_sparse_coords(&call->in[0]);
    f.there = call->rows + call->node->in[0]->set;
    f.to = wf_sparse_coords(&call->out[0]);
    f.made = call->rows + a->set;
    f.counts = (int32_t *)call->scratch;
    f.room = (int32_t)rows_of(call->out[0].box);
    f.dims = (int32_t)a->dims;
    for (int d = 0; d < f.dims; d++)
        f.stride[d] = (int32_t)a->stride[d];
    const dim3 grid = blocks_for(larger<int64_t>(rows, 1), THREADS);
    launch(coarsen_count, grid, THREADS, wf_cuda_stream(call), f);
    launch(coarsen_write, grid, THREADS, wf_cuda_stream(call), f);
}

bool wf_cuda_kernel_map_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes =
        (size_t)slots_for(rows_of(p->in[0].box)) * (sizeof(uint64_t) + sizeof(int32_t));
    return true;
}

void wf_cuda_kernel_map(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = (const struct wf_kernel_map_attrs *)call->node->attrs;
    const int64_t rows = rows_of(call->in[0].box), slots = slots_for(rows);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Map f = {};
    f.in = wf_sparse_coords(&call->in[0]);
    f.out = wf_sparse_coords(&call->in[1]);
    f.n_in = call->rows + call->node->in[0]->set;
    f.n_out = call->rows + call->node->in[1]->set;
    f.map = (int32_t *)call->out[0].data;
    f.places = (uint64_t *)call->scratch;
    f.slots = (int32_t *)(f.places + slots);
    f.mask = (uint32_t)(slots - 1);
    f.dims = (int32_t)a->dims;
    f.bits = 6 / f.dims;
    f.count = (int32_t)wf_kernel_map_count(a);
    f.cross = a->cross != 0;
    for (int d = 0; d < f.dims; d++) {
        f.kernel[d] = (int32_t)a->kernel[d];
        f.stride[d] = (int32_t)a->in_stride[d];
        f.step[d] = a->step[d];
    }
    const int64_t looks = rows_of(call->work) * f.count;
    if (looks < 1)
        return;
    launch(map_clear, dim3((unsigned)smaller<int64_t>(ceil_div(slots, THREADS), 1024)), THREADS, stream, f);
    launch(map_index, blocks_for(larger<int64_t>(rows, 1), THREADS), THREADS, stream, f);
    launch(map_look, blocks_for(looks, THREADS), THREADS, stream, f);
}
