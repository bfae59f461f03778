/*
 * The coordinate pass on a GPU: sets of coordinates made of sets, and kernel maps.
 *
 * Rows lie in Z order. So a coarser set is found by comparing each row with the one before it, and the rows of
 * a small cube of the lattice (64 places) are neighbours: as on the CPU an index has one entry for each cube
 * that is there, with a bit per place and its first row. Cubes are found by open addressing. A slot names
 * a row, whose coordinates are compared as they are: no key has to hold them, and no range limits them. In which
 * slot a cube ends up may differ from run to run, what is found does not.
 */
#include "device/cuda/sparse_index.cuh"

namespace wf
{

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

__global__ void __launch_bounds__(THREADS) cubes_clear(const Cubes c)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i <= c.mask;
         i += (int64_t)gridDim.x * THREADS)
        c.slots[i] = -1;
}

/* The first row of a cube collects the others', which follow it, and takes a slot. */
template <int Dims> __global__ void __launch_bounds__(THREADS) cubes_fill(const Cubes c)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = *c.there;
    int32_t cube[BATCH_AND_AXES], at[WF_SPARSE_AXES];
    if (row >= n)
        return;
    cube[0] = c.rows[row * (1 + Dims)];
    for (int d = 0; d < Dims; d++)
        cube[1 + d] = c.lattice<Dims>(row, d) >> (6 / Dims);
    if (row > 0 && c.in_cube<Dims>(row - 1, cube))
        return;
    uint64_t places = 0;
    for (int64_t r = row; r < n && c.in_cube<Dims>(r, cube); r++) {
        for (int d = 0; d < Dims; d++)
            at[d] = c.lattice<Dims>(r, d);
        places |= UINT64_C(1) << c.place<Dims>(at);
    }
    uint32_t h = c.hash<Dims>(cube);
    while (atomicCAS(&c.slots[h], -1, (int32_t)row) != -1)
        h = (h + 1) & c.mask;
    c.places[h] = places;
}

static int64_t slots_for(int64_t rows)
{
    int64_t size = 64;
    while (size < 2 * rows)
        size *= 2;
    return size;
}

size_t cubes_bytes(int64_t rows)
{
    return (size_t)slots_for(rows) * (sizeof(uint64_t) + sizeof(int32_t));
}

Cubes cubes_of(const struct wf_kernel_map_attrs *a, const int32_t *coords, const int32_t *there,
               int64_t rows, void *scratch)
{
    Cubes c = {};
    c.rows = coords;
    c.there = there;
    c.places = (uint64_t *)scratch;
    c.slots = (int32_t *)(c.places + slots_for(rows));
    c.mask = (uint32_t)(slots_for(rows) - 1);
    c.dims = (int32_t)a->dims;
    for (int d = 0; d < c.dims; d++) {
        c.stride[d] = (int32_t)a->in_stride[d];
        c.shift[d] = 0;
        while (1 << c.shift[d] < c.stride[d])
            c.shift[d]++;
        if (1 << c.shift[d] != c.stride[d])
            c.shift[d] = -1;
    }
    return c;
}

template <class F> static void with_axes(int dims, F f)
{
    switch (dims) {
    case 1:
        return f(Int<1>());
    case 2:
        return f(Int<2>());
    case 3:
        return f(Int<3>());
    case 4:
        return f(Int<4>());
    case 5:
        return f(Int<5>());
    default:
        return f(Int<6>());
    }
}

void cubes_build(const Cubes &c, int64_t rows, struct CUstream_st *stream)
{
    const int64_t slots = (int64_t)c.mask + 1;
    launch(cubes_clear, dim3((unsigned)smaller<int64_t>(ceil_div(slots, THREADS), 1024)), THREADS,
           stream, c);
    with_axes(c.dims, [&](auto d) {
        launch(cubes_fill<decltype(d)::value>, blocks_for(larger<int64_t>(rows, 1), THREADS),
               THREADS, stream, c);
    });
}

struct Map {
    Cubes in;
    const int32_t *out, *n_out;
    int32_t *map;
    Divisor by_count;
    int32_t count, cross;
    int32_t kernel[WF_SPARSE_AXES];
    int64_t step[WF_SPARSE_AXES];

    template <int Dims> __device__ void offset(int k, int32_t *o) const
    {
        for (int d = 0; d < Dims; d++)
            o[d] = 0;
        if (cross) {
            const int reach = kernel[0] / 2, within = k > 0 ? (k - 1) % (2 * reach) : 0;
            if (k > 0)
                o[(k - 1) / (2 * reach)] = within < reach ? within + 1 : within - 2 * reach;
            return;
        }
        for (int d = 0; d < Dims; d++) {
            o[d] = k % kernel[d] - (kernel[d] % 2 ? kernel[d] / 2 : 0);
            k /= kernel[d];
        }
    }
};

template <int Dims> __device__ inline int32_t map_find(const Map &f, const int32_t *row, int k)
{
    const Cubes &c = f.in;
    int32_t cube[BATCH_AND_AXES], at[WF_SPARSE_AXES], first;
    f.offset<Dims>(k, at);
    cube[0] = row[0];
    for (int d = 0; d < Dims; d++) {
        const int64_t place = row[1 + d] + f.step[d] * at[d];
        if (place < INT32_MIN || place > INT32_MAX || c.divide((int32_t)place, d) * c.stride[d] != place)
            return -1;
        at[d] = c.divide((int32_t)place, d);
        cube[1 + d] = at[d] >> (6 / Dims);
    }
    const int64_t slot = c.find<Dims>(cube, &first);
    if (slot < 0)
        return -1;
    const uint64_t bit = UINT64_C(1) << c.place<Dims>(at), there = c.places[slot];
    return there & bit ? first + __popcll(there & (bit - 1)) : -1;
}

template <int Dims> __global__ void __launch_bounds__(THREADS) map_look(const Map f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t row, k;
    f.by_count.divide(i, &row, &k);
    if (row < *f.n_out)
        f.map[i] = map_find<Dims>(f, f.out + row * (1 + Dims), (int)k);
}

/* --- map_order: a stable sort by keys of eight bits --- */

enum { KEYS = 256 };

struct Order {
    const int32_t *map, *there;
    int32_t *order;
    int32_t *counts; /* [key][block]: rows, then where those of the block begin */
    int32_t *totals; /* [key] */
    uint8_t *keys;   /* [row] */
    int32_t count, blocks;
};

/* Offsets whose bits fit into a kernel's parameters; of others several launches look at them in turn. */
enum { BITS_AT_ONCE = 2048 };
struct OrderBits {
    uint8_t of[BITS_AT_ONCE];
};

__global__ void __launch_bounds__(THREADS)
    order_keys(const Order f, const OrderBits bits, const int first, const int count)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= *f.there)
        return;
    uint8_t key = first > 0 ? f.keys[row] : (uint8_t)0;
    for (int k = 0; k < count; k++)
        if (f.map[row * f.count + first + k] >= 0)
            key |= bits.of[k];
    f.keys[row] = key;
}

__global__ void __launch_bounds__(THREADS) order_count(const Order f)
{
    __shared__ int32_t rows[KEYS];
    __shared__ uint8_t keys[THREADS];
    const int64_t first = (int64_t)blockIdx.x * THREADS, n = *f.there;
    rows[threadIdx.x] = 0;
    keys[threadIdx.x] = first + threadIdx.x < n ? f.keys[first + threadIdx.x] : (uint8_t)0;
    __syncthreads();
    if (first + threadIdx.x < n)
        atomicAdd((unsigned *)&rows[keys[threadIdx.x]], 1u); /* whole numbers: any order */
    __syncthreads();
    f.counts[(int64_t)threadIdx.x * f.blocks + blockIdx.x] = rows[threadIdx.x];
}

/* A block for each key: counts become the sums of those before. */
__global__ void __launch_bounds__(THREADS) order_scan(const Order f)
{
    int32_t *const counts = f.counts + (int64_t)blockIdx.x * f.blocks;
    int before = 0, all;
    for (int b = 0; b < f.blocks; b += THREADS) {
        const int i = b + (int)threadIdx.x, mine = i < f.blocks ? counts[i] : 0;
        const int upto = block_scan(mine, &all);
        if (i < f.blocks)
            counts[i] = before + upto - mine;
        before += all;
    }
    if (threadIdx.x == 0)
        f.totals[blockIdx.x] = before;
}

__global__ void __launch_bounds__(THREADS) order_write(const Order f)
{
    __shared__ int32_t start[KEYS];
    __shared__ uint8_t keys[THREADS];
    const int64_t first = (int64_t)blockIdx.x * THREADS, n = *f.there;
    int all;
    const int mine = f.totals[threadIdx.x];
    start[threadIdx.x] = block_scan(mine, &all) - mine +
                         f.counts[(int64_t)threadIdx.x * f.blocks + blockIdx.x];
    keys[threadIdx.x] = first + threadIdx.x < n ? f.keys[first + threadIdx.x] : (uint8_t)0;
    __syncthreads();
    if (first + threadIdx.x >= n)
        return;
    int before = 0;
    for (int i = 0; i < (int)threadIdx.x; i++)
        before += keys[i] == keys[threadIdx.x];
    f.order[start[keys[threadIdx.x]] + before] = (int32_t)(first + threadIdx.x);
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
    p->scratch_bytes = cubes_bytes(rows_of(p->in[0].box));
    return true;
}

void wf_cuda_kernel_map(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = (const struct wf_kernel_map_attrs *)call->node->attrs;
    const int64_t rows = rows_of(call->in[0].box);
    Map f = {};
    f.in = cubes_of(a, wf_sparse_coords(&call->in[0]), call->rows + call->node->in[0]->set, rows,
                    call->scratch);
    f.out = wf_sparse_coords(&call->in[1]);
    f.n_out = call->rows + call->node->in[1]->set;
    f.map = (int32_t *)call->out[0].data;
    f.count = (int32_t)wf_kernel_map_count(a);
    f.cross = a->cross != 0;
    for (int d = 0; d < f.in.dims; d++) {
        f.kernel[d] = (int32_t)a->kernel[d];
        f.step[d] = a->step[d];
    }
    const int64_t looks = rows_of(call->work) * f.count;
    if (looks < 1)
        return;
    f.by_count = divisor(f.count, looks + THREADS);
    cubes_build(f.in, rows, wf_cuda_stream(call));
    with_axes(f.in.dims, [&](auto d) {
        launch(map_look<decltype(d)::value>, blocks_for(looks, THREADS), THREADS,
               wf_cuda_stream(call), f);
    });
}

static_assert((int)KEYS == (int)THREADS, "a thread for each key");

bool wf_cuda_map_order_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = rows_of(p->work), blocks = ceil_div(rows, THREADS);
    p->scratch_bytes = (size_t)(KEYS * (blocks + 1)) * sizeof(int32_t) + (size_t)rows;
    return true;
}

void wf_cuda_map_order(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a =
        (const struct wf_kernel_map_attrs *)call->node->in[0]->producer->attrs;
    const int64_t rows = rows_of(call->work);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Order f = {};
    f.map = (const int32_t *)call->in[0].data;
    f.there = rows_there(call);
    f.order = (int32_t *)call->out[0].data;
    f.count = (int32_t)wf_kernel_map_count(a);
    f.blocks = (int32_t)ceil_div(rows, THREADS);
    f.counts = (int32_t *)call->scratch;
    f.totals = f.counts + (int64_t)KEYS * f.blocks;
    f.keys = (uint8_t *)(f.totals + KEYS);
    if (rows < 1)
        return;
    const dim3 grid((unsigned)f.blocks);
    for (int first = 0; first < f.count; first += BITS_AT_ONCE) {
        OrderBits bits = {};
        const int count = smaller<int>(BITS_AT_ONCE, f.count - first);
        for (int k = 0; k < count; k++)
            bits.of[k] = (uint8_t)wf_map_order_bits(a, first + k);
        launch(order_keys, grid, THREADS, stream, f, bits, first, count);
    }
    launch(order_count, grid, THREADS, stream, f);
    launch(order_scan, dim3(KEYS), THREADS, stream, f);
    launch(order_write, grid, THREADS, stream, f);
}
