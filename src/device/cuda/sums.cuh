/*
 * Sums over positions, per channel, in a fixed order. What is summed is a structure F, which is also
 * the walk (OneByOne, for most):
 *
 *     enum { SUMS = kinds of sums, IN = sides it loads, DEPTH = units in flight };
 *     enum { MOST_THREADS = of a block: 1024, or 768 that have 80 registers each };
 *     struct Loaded;
 *     void begin(g, lane, row)             registers that belong to the thread's channels; all threads
 *                                          of the block come here
 *     void load<Fast>(g, offset, unit, x)  what a unit asks of memory
 *     void add(x, sum)                     sum[kind][channel] += ...
 *     void end(sum)                        once, when a thread has all of its positions
 *
 * V is 4: a thread then has few enough registers that 1024 of them fit a multiprocessor, with about
 * 64 KB on the way from memory. A thread adds some (SUM_TOGETHER) positions of 16-bit elements in f32 and
 * those sums in f64, for making f64 of f32 takes eight times as long as adding; f32 elements are added
 * in f64 at once. From there on all is f64: another cut of the image
 * shows at 1e-9 or less. Threads, warps and blocks are added in order of their number; the block that
 * ends last adds the blocks' parts (wf_cuda_tickets), or a second launch does.
 */
#pragma once

#include "device/cuda/columns.cuh"

namespace wf
{

enum { SUM_THREADS = 1024, SUM_FEW_THREADS = 128, SUM_V = 4, KINDS = 4 };
enum { SUM_TOGETHER = 16 /* positions of a thread whose sum is f32 */ };

/* Where the sums go: kind k of channel c to out[k] at (row, first[k] + c), times `factor`. */
struct Parts {
    double *part; /* [row][block][kind][channel] */
    unsigned *tickets;
    Table out[KINDS];
    int64_t first[KINDS];
    double factor;
    int64_t count_at; /* the column of out[0] for the number of positions; 0: none */
};

__device__ inline void put_sum(const Columns &g, const Parts &out, int kind, int64_t c, double sum)
{
    if (out.out[kind].data) /* a kernel may have room for more kinds than it has */
        out.out[kind].put(g.first_row + blockIdx.z, out.first[kind] + g.first_channel + c,
                          sum * out.factor);
    if (out.count_at && kind == 0 && c == 0)
        out.out[0].put(g.first_row + blockIdx.z, out.count_at, (double)g.count());
}

/* Adds the blocks' parts for this block's channels; `shared` has room for SUM_THREADS. */
template <int Sums, int V>
__device__ void add_parts(const Columns &g, const Parts &out, int blocks, double *shared)
{
    enum { AT_ONCE = 12 }; /* the memory is asked once or twice, not for each part */
    const int width = Sums * V * g.across, ways = (int)blockDim.x / width;
    const int k = (int)threadIdx.x % width, way = (int)threadIdx.x / width;
    const int kind = k / (V * g.across), j = k / g.across % V;
    const int64_t c = ((int64_t)blockIdx.y * g.across + k % g.across) * V + j;
    const bool mine = way < ways && c < g.channels;
    double sum = 0;
    if (mine) {
        const double *from =
            out.part + ((int64_t)blockIdx.z * blocks * Sums + kind) * g.channels + c;
        for (int b = way; b < blocks; b += AT_ONCE * ways) {
            double part[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                part[i] = b + i * ways < blocks
                              ? __ldcg(from + (int64_t)(b + i * ways) * Sums * g.channels)
                              : 0.0;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                sum += part[i];
        }
    }
    __syncthreads();
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (!mine || way > 0)
        return;
    for (int w = 1; w < ways; w++)
        sum += shared[w * width + k];
    put_sum(g, out, kind, c, sum);
}

template <int Sums, int V>
__global__ void __launch_bounds__(SUM_THREADS)
    finish_sums(const Columns g, const Parts out, const int blocks)
{
    __shared__ double shared[SUM_THREADS];
    add_parts<Sums, V>(g, out, blocks, shared);
}

/* True in the block that ends last among those of this row and these channels. One thread's fences are for all that the
 * block's barriers order before and behind them. */
__device__ inline bool ends_last(const Parts &out)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *ticket = out.tickets + blockIdx.z * gridDim.y + blockIdx.y;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        if (last)
            *ticket = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* The threads' sums of the block -> its part; or, of a block that is `alone`, the result. */
template <int Sums, int V>
__device__ void put_part(const Columns &g, const Parts &out, double (&total)[Sums][V],
                         double *shared, bool alone)
{
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int width = Sums * V * g.across;
    for (int m = g.across; m < 32; m *= 2)
#pragma unroll
        for (int s = 0; s < Sums; s++)
#pragma unroll
            for (int j = 0; j < V; j++)
                total[s][j] += __shfl_xor_sync(0xffffffffu, total[s][j], m);
    if (lane < g.across)
#pragma unroll
        for (int s = 0; s < Sums; s++)
#pragma unroll
            for (int j = 0; j < V; j++)
                shared[warp * width + (s * V + j) * g.across + lane] = total[s][j];
    __syncthreads();
    for (int k = (int)threadIdx.x; k < width; k += (int)blockDim.x) {
        const int kind = k / (V * g.across), j = k / g.across % V;
        const int64_t c = ((int64_t)blockIdx.y * g.across + k % g.across) * V + j;
        double sum = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++)
            sum += shared[w * width + k];
        if (c < g.channels && alone)
            put_sum(g, out, kind, c, sum);
        else if (c < g.channels)
            out.part[(((int64_t)blockIdx.z * gridDim.x + blockIdx.x) * Sums + kind) * g.channels +
                     c] = sum;
    }
}

/* Depth units from p on, or with Some those of them that there are: all loads first, then their sum. Units are taken
 * from the last to the first: what the kernel before has written last is still in the cache, and what is read
 * last here is what the next kernel, which goes the other way, reads first. */
template <int Depth, bool Fast, bool Some, class F, class A, int Sums, int V>
__device__ inline void add_units(const Columns &g, const Lane &lane, const F &f, int64_t p,
                                 A (&sum)[Sums][V])
{
    typename F::Loaded x[Depth];
    const int64_t last = f.count(g) - 1;
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        const int64_t unit = last - (p + d * lane.stride);
        Offset<Fast> offset[F::IN];
        if (Some && unit < 0)
            continue;
        f.template at<Fast>(g, lane, unit, offset);
        f.template load<Fast>(g, offset, unit, x[d]);
    }
    loads_come_first();
#pragma unroll
    for (int d = 0; d < Depth; d++)
        if (!Some || last - (p + d * lane.stride) >= 0)
            f.add(x[d], sum);
}

/* At most `rounds` times Depth units; p moves on. */
template <int Depth, bool Fast, class F, class A, int Sums, int V>
__device__ inline void add_some(const Columns &g, const Lane &lane, const F &f, int64_t &p,
                                int rounds, A (&sum)[Sums][V])
{
    const int64_t count = f.count(g);
    for (; rounds > 0 && p + (Depth - 1) * lane.stride < count; rounds--) {
        add_units<Depth, Fast, false>(g, lane, f, p, sum);
        p += lane.stride * Depth;
    }
    enum { REST = Depth > 4 ? Depth / 2 : Depth }; /* one by one each would wait for the memory */
    for (; rounds > 0 && p < count; p += lane.stride * REST)
        add_units<REST, Fast, true>(g, lane, f, p, sum);
}

template <class T, int Depth, bool Fast, class F, int Sums, int V>
__device__ inline void add_all(const Columns &g, const Lane &lane, const F &f,
                               double (&total)[Sums][V])
{
    enum { EACH = Depth * (int)F::GROUP, ROUNDS = ((int)SUM_TOGETHER + EACH - 1) / EACH };
    int64_t p = lane.first;
    if constexpr (sizeof(T) > 2) {
        add_some<Depth, Fast>(g, lane, f, p, INT32_MAX, total);
    } else
        while (p < f.count(g)) {
            float sum[Sums][V] = {};
            add_some<Depth, Fast>(g, lane, f, p, ROUNDS, sum);
#pragma unroll
            for (int s = 0; s < Sums; s++)
#pragma unroll
                for (int j = 0; j < V; j++)
                    total[s][j] += (double)sum[s][j];
        }
}

template <class T, int V, bool Fast, class F>
__global__ void __launch_bounds__(F::MOST_THREADS)
    column_sums(const Columns g, const F given, const Parts out)
{
    enum { SUMS = F::SUMS, DEPTH = Fast || F::DEPTH == 1 ? F::DEPTH : F::DEPTH / 2 };
    static_assert((int)SUMS * V * (int)ACROSS_MOST <= (int)SUM_FEW_THREADS,
                  "a thread for each sum");
    enum { ROOM = SUM_THREADS / 32 * ACROSS_MOST * V * SUMS };
    __shared__ double shared[(int)ROOM < (int)SUM_THREADS ? (int)SUM_THREADS : (int)ROOM];
    double total[SUMS][V] = {};
    const Lane lane(g);
    F f = given;
    const int64_t row = g.first_row + blockIdx.z;
    f.begin(g, lane, row);
    if (lane.active) {
        add_all<T, DEPTH, Fast>(g, lane, f, total);
        f.end(g, lane, row, total);
    }
    const bool alone = out.tickets && gridDim.x == 1;
    put_part<SUMS, V>(g, out, total, shared, alone);
    if (out.tickets && !alone && ends_last(out))
        add_parts<SUMS, V>(g, out, (int)gridDim.x, shared);
}

/* --- launching --- */

/* Threads of a block: few where there is little to do. */
template <class F> int sums_threads(const Columns &g)
{
    return g.positions.count * g.across <= 16 * SUM_FEW_THREADS ? (int)SUM_FEW_THREADS
                                                                : (int)F::MOST_THREADS;
}

/* Where two blocks would do, one does without adding up what they have. */
template <class F> dim3 sums_grid(const Columns &g)
{
    dim3 grid = columns_grid(g, sums_threads<F>(g), F::DEPTH, MULTIPROCESSORS);
    if (grid.x == 2)
        grid.x = 1;
    return grid;
}

/* Bytes of the parts for tables of `rows` rows and `channels` channels, however memory lies. */
inline size_t sums_scratch(int64_t rows, int64_t channels, int sums)
{
    const int64_t parts = ceil_div(channels, ACROSS_MOST * SUM_V);
    return (size_t)(rows * ceil_div(MULTIPROCESSORS, parts * rows) * channels * sums) *
           sizeof(double);
}

/* The blocks' parts; returns how many there are of each sum. */
template <class T, int V, class F>
int sums_parts(const Columns &g, const F &f, const Parts &out, struct CUstream_st *stream)
{
    const dim3 grid = sums_grid<F>(g);
    const int threads = sums_threads<F>(g);
    if (V > 1 && f.fast(g))
        launch(column_sums<T, V, (V > 1), F>, grid, threads, stream, g, f, out);
    else
        launch(column_sums<T, V, false, F>, grid, threads, stream, g, f, out);
    return (int)grid.x;
}

template <class T, int V, class F>
void sums_run(const Columns &g, const F &f, const Parts &out, struct CUstream_st *stream)
{
    const dim3 grid = sums_grid<F>(g);
    const int blocks = sums_parts<T, V>(g, f, out, stream);
    if (!out.tickets)
        launch(finish_sums<F::SUMS, V>, dim3(1, grid.y, grid.z), sums_threads<F>(g), stream, g, out,
               blocks);
}

/* The tickets of a call, where one for each row and each cut of the channels is enough. */
inline unsigned *sums_tickets(const struct wf_call *call, const Columns &g)
{
    const int64_t parts = ceil_div(g.channels, (int64_t)g.across * g.v);
    return parts * g.rows <= WF_CUDA_TICKETS ? wf_cuda_tickets(call) : NULL;
}

} // namespace wf
