/*
 * Sums over positions, per channel, in a fixed order. What is summed is a structure F:
 *
 *     enum { SUMS = kinds of sums, IN = sides it loads, DEPTH = positions in flight };
 *     struct Loaded;
 *     void begin(g, lane, row)             registers that belong to the thread's channels; all threads
 *                                          of the block come here
 *     void load(g, offset, c, p, x)        what position p asks of memory
 *     void add(x, sum)                     sum[kind][channel] += ...
 *     void end(sum)                        once, when a thread has all of its positions
 *
 * V is 4: a thread then has few enough registers that 1024 of them fit a multiprocessor, with about
 * 64 KB on the way from memory. A thread adds DEPTH positions of 16-bit elements in f32 and those sums
 * in f64; f32 elements are added in f64 at once. From there on all is f64: another cut of the image
 * shows at 1e-9 or less. Threads, warps and blocks are added in order of their number; the block that
 * ends last adds the blocks' parts (wf_cuda_tickets), or a second launch does.
 */
#ifndef WF_DEVICE_CUDA_SUMS_CUH
#define WF_DEVICE_CUDA_SUMS_CUH

#include "device/cuda/columns.cuh"

namespace wf
{

enum { SUM_THREADS = 1024, SUM_FEW_THREADS = 128, SUM_V = 4, KINDS = 4 };

/* Where the sums go: kind k of channel c to out[k] at (row, first[k] + c), times `factor`. */
struct Parts {
    double *part; /* [row][block][kind][channel] */
    unsigned *tickets;
    Table out[KINDS];
    int64_t first[KINDS];
    double factor;
};

__device__ inline void put_sum(const Columns &g, const Parts &out, int kind, int64_t c, double sum)
{
    if (out.out[kind].data) /* a kernel may have room for more kinds than it has */
        out.out[kind].put(g.first_row + blockIdx.z, out.first[kind] + g.first_channel + c,
                      sum * out.factor);
}

/* Adds the blocks' parts for this block's channels; `shared` has room for SUM_THREADS. */
template <int Sums, int V>
__device__ void add_parts(const Columns &g, const Parts &out, int blocks, double *shared)
{
    const int width = Sums * V * g.across, ways = (int)blockDim.x / width;
    const int k = (int)threadIdx.x % width, way = (int)threadIdx.x / width;
    const int kind = k / (V * g.across), j = k / g.across % V;
    const int64_t c = ((int64_t)blockIdx.y * g.across + k % g.across) * V + j;
    const bool mine = way < ways && c < g.channels;
    double sum = 0;
    if (mine) {
        const double *from =
            out.part + ((int64_t)blockIdx.z * blocks * Sums + kind) * g.channels + c;
#pragma unroll 16
        for (int b = way; b < blocks; b += ways)
            sum += __ldcg(from + (int64_t)b * Sums * g.channels);
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

/* True in the block that ends last among those of this row and these channels. */
__device__ inline bool ends_last(const Parts &out)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *ticket = out.tickets + blockIdx.z * gridDim.y + blockIdx.y;
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        if (last)
            *ticket = 0;
    }
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

/* The threads' sums of the block -> its part. */
template <int Sums, int V>
__device__ void put_part(const Columns &g, const Parts &out, double (&total)[Sums][V],
                         double *shared)
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
        if (c < g.channels)
            out.part[(((int64_t)blockIdx.z * gridDim.x + blockIdx.x) * Sums + kind) * g.channels +
                     c] = sum;
    }
}

/* Depth positions from p on: all loads first, then their sum. Positions are taken from the last to the
 * first: what the kernel before has written last is still in the cache, and what is read last here is
 * what the next kernel, which goes the other way, reads first. */
template <class T, int Depth, bool Linear, class F, int Sums, int V>
__device__ inline void add_positions(const Columns &g, const Lane &lane, const F &f, int64_t p,
                                     double (&total)[Sums][V])
{
    typename F::Loaded x[Depth];
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        const int64_t at = g.positions.count - 1 - (p + d * lane.stride);
        int64_t offset[F::IN];
        g.positions.at<Linear>(at, offset);
#pragma unroll
        for (int i = 0; i < F::IN; i++)
            offset[i] += blockIdx.z * g.row[i] + lane.c * g.step[i];
        f.load(g, offset, at, x[d]);
    }
    if constexpr (sizeof(T) > 2) {
#pragma unroll
        for (int d = 0; d < Depth; d++)
            f.add(x[d], total);
    } else {
        float sum[Sums][V] = {};
#pragma unroll
        for (int d = 0; d < Depth; d++)
            f.add(x[d], sum);
#pragma unroll
        for (int s = 0; s < Sums; s++)
#pragma unroll
            for (int j = 0; j < V; j++)
                total[s][j] += (double)sum[s][j];
    }
}

template <class T, int V, bool Linear, class F>
__global__ void __launch_bounds__(SUM_THREADS)
    column_sums(const Columns g, const F given, const Parts out)
{
    enum { SUMS = F::SUMS, DEPTH = Linear ? F::DEPTH : F::DEPTH / 2 };
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
        int64_t p = lane.first;
        for (; p + (DEPTH - 1) * lane.stride < g.positions.count; p += lane.stride * DEPTH)
            add_positions<T, DEPTH, Linear>(g, lane, f, p, total);
        for (; p < g.positions.count; p += lane.stride)
            add_positions<T, 1, Linear>(g, lane, f, p, total);
        f.end(g, lane, row, total);
    }
    put_part<SUMS, V>(g, out, total, shared);
    if (out.tickets && ends_last(out))
        add_parts<SUMS, V>(g, out, (int)gridDim.x, shared);
}

/* --- launching --- */

/* Threads of a block: few where there is little to do. */
inline int sums_threads(const Columns &g)
{
    return g.positions.count * g.across <= 16 * SUM_FEW_THREADS ? SUM_FEW_THREADS : SUM_THREADS;
}

inline dim3 sums_grid(const Columns &g, int depth)
{
    return columns_grid(g, sums_threads(g), depth, MULTIPROCESSORS);
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
    const dim3 grid = sums_grid(g, F::DEPTH);
    const int threads = sums_threads(g);
    if (V > 1 && g.positions.linear())
        launch(column_sums<T, V, (V > 1), F>, grid, threads, stream, g, f, out);
    else
        launch(column_sums<T, V, false, F>, grid, threads, stream, g, f, out);
    return (int)grid.x;
}

template <class T, int V, class F>
void sums_run(const Columns &g, const F &f, const Parts &out, struct CUstream_st *stream)
{
    const dim3 grid = sums_grid(g, F::DEPTH);
    const int blocks = sums_parts<T, V>(g, f, out, stream);
    if (!out.tickets)
        launch(finish_sums<F::SUMS, V>, dim3(1, grid.y, grid.z), sums_threads(g), stream, g, out,
               blocks);
}

/* The tickets of a call, where one for each row and each cut of the channels is enough. */
inline unsigned *sums_tickets(const struct wf_call *call, const Columns &g)
{
    const int64_t parts = ceil_div(g.channels, (int64_t)g.across * g.v);
    return parts * g.rows <= WF_CUDA_TICKETS ? wf_cuda_tickets(call) : NULL;
}

} // namespace wf

#endif
