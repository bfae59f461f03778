/*
 * Convolutions of 3 x 3 x 3, stride 1, from 32 or 64 channels of 16 bits to a multiple of 32,
 * forward and transposed: the finest levels of a network for volumes.
 *
 * A block keeps the weights of 32 filters for all taps in shared memory and marches through the
 * planes of a column of 32 x 8 positions. A plane of x belongs to three planes of the result: so
 * three are summed at once, as one product of 64 positions by 3 * 32 columns for each tap of a
 * plane, and x is read once. When a plane of x is done, the oldest sum is complete and is written;
 * the others move up. Each of four teams of four warps has 8 x 8 positions and goes at its own
 * pace: while one writes, others multiply. One more warp asks for what comes.
 *
 * V1. Stage q holds piece l (plane by plane, each in pieces of 32 channels) for l % STAGES = q; all
 *     teams read every piece, its 16 arrivals are their warps.
 * V2. Sums [0, 16) of a thread belong to the oldest plane, which has the kernel's last plane of
 *     weights.
 */
#include "device/cuda/hopper.cuh"

namespace wf
{

enum {
    COLUMN_H = 32, /* of positions */
    COLUMN_W = 8,
    AROUND = 2,
    PLANE_TAPS = 9,
    SLICE = 32, /* channels of a piece, filters of a block */
    SLICE_ROW = SLICE * 2,
    SLICE_BYTES = SLICE * SLICE_ROW, /* weights of a tap */
    COLUMN_PITCH = (COLUMN_W + AROUND) * SLICE_ROW,
    COLUMN_BYTES = (COLUMN_H + AROUND) * COLUMN_PITCH,
    COLUMN_STRIDE = (COLUMN_BYTES + 1023) / 1024 * 1024,
    TEAMS = 4,
    TEAM_THREADS = 128,
    TEAM_BYTES = 64 * SLICE_ROW, /* of results */
    VOLUME_BLOCK = TEAMS * TEAM_THREADS + 32,
    SUMS_OF_PLANE = 16 /* of a thread */
};

struct Volume {
    CUtensorMap x, w, y;
    const float *bias;
    int32_t items, columns[2], chunks; /* items: chunks of planes * columns (W, H) * samples */
    int32_t planes, chunk;             /* of y, and those of a chunk */
    int32_t halo[3];                   /* x at tap 0 of position 0, against y: W, H, D */
    int32_t blocks;                    /* of filters */
};

template <int Pieces> struct VolumeShape {
    enum {
        STAGES = Pieces == 1 ? 5 : 3,
        WEIGHTS = Pieces * 3 * PLANE_TAPS * SLICE_BYTES,
        SHARED = 1024 + WEIGHTS + STAGES * COLUMN_STRIDE + TEAMS * 2 * TEAM_BYTES
    };
};

/* Where an item lies: planes [lo, hi) of y. */
struct Item {
    int x, y, n, lo, hi;

    __device__ Item(const Volume &f, int i)
    {
        lo = i % f.chunks * f.chunk;
        hi = smaller(f.planes, lo + f.chunk);
        i /= f.chunks;
        x = i % f.columns[0] * COLUMN_W;
        i /= f.columns[0];
        y = i % f.columns[1] * COLUMN_H;
        n = i / f.columns[1];
    }
};

/* Places in shared memory. */
template <int Pieces> struct VolumePlaces {
    uint32_t weights, stages, results, full, empty, weights_there;

    __device__ VolumePlaces(const void *memory, const uint64_t *barriers)
    {
        enum { STAGES = VolumeShape<Pieces>::STAGES };
        weights = (shared_at(memory) + 1023) / 1024 * 1024;
        stages = weights + VolumeShape<Pieces>::WEIGHTS;
        results = stages + STAGES * COLUMN_STRIDE;
        full = shared_at(barriers);
        empty = full + 8 * STAGES;
        weights_there = empty + 8 * STAGES;
    }
};

/* What one thread asks the copy engine for. */
template <bool Back, int Pieces>
__device__ void fetch_planes(const Volume &f, const VolumePlaces<Pieces> &p)
{
    enum { STAGES = VolumeShape<Pieces>::STAGES };
    const int filter = (int)blockIdx.x % f.blocks * SLICE;
    barrier_expect(p.weights_there, VolumeShape<Pieces>::WEIGHTS);
    for (int i = 0; i < Pieces * PLANE_TAPS * 3; i++) {
        const int plane = 2 - i % 3, c = i / 3 / PLANE_TAPS * SLICE; /* V2 */
        const int tap = plane * PLANE_TAPS + i / 3 % PLANE_TAPS;
        /* Transposed: the last tap first, and what is summed over are the weights' rows. */
        const int at[5] = { Back ? filter : c, Back ? 3 * PLANE_TAPS - 1 - tap : tap,
                            Back ? c : filter, 0, 0 };
        box_load(p.weights + i * SLICE_BYTES, &f.w, p.weights_there, at);
    }
    int q = 0, parity = 1;
    for (int i = (int)blockIdx.x / f.blocks; i < f.items; i += (int)gridDim.x / f.blocks) {
        const Item item(f, i);
        for (int z = item.lo; z < item.hi + 2; z++)
            for (int c = 0; c < Pieces; c++) {
                const int at[5] = { c * SLICE, item.x - f.halo[0], item.y - f.halo[1],
                                    z - f.halo[2], item.n };
                barrier_wait(p.empty + 8 * q, parity);
                barrier_expect(p.full + 8 * q, COLUMN_BYTES);
                box_load(p.stages + q * COLUMN_STRIDE, &f.x, p.full + 8 * q, at);
                q = q + 1 == STAGES ? 0 : q + 1;
                parity ^= q == 0;
            }
    }
}

/* d += all taps of a plane for piece c, which lies at `stage`. */
template <class T, bool Back>
__device__ inline void multiply_plane(float (&d)[3 * SUMS_OF_PLANE], uint32_t stage,
                                      uint32_t weights)
{
    enum { STEP = Back ? 16 * SLICE_ROW : 32 };
    const uint64_t a0 = matrix_at(SWIZZLE_64, COLUMN_PITCH);
    const uint64_t b0 = matrix_at(SWIZZLE_64, 8 * SLICE_ROW, SLICE_BYTES);
    const uint32_t mine = stage + threadIdx.x / TEAM_THREADS * 8 * COLUMN_PITCH;
    sums_stay(d);
    products_begin();
#pragma unroll
    for (int tap = 0; tap < PLANE_TAPS; tap++)
#pragma unroll
        for (int k = 0; k < SLICE / 16; k++) {
            const uint32_t a = mine + tap / 3 * COLUMN_PITCH + tap % 3 * SLICE_ROW + k * 32;
            const uint32_t b = weights + tap * 3 * SLICE_BYTES + k * STEP;
            product_add<T, 0, Back>(d, a0 | a >> 4, b0 | b >> 4);
        }
    products_commit();
}

/* The team's part of plane z of the result, from sums [0, 16). */
template <class T>
__device__ inline void put_plane(const Volume &f, const Item &item, int z, uint32_t to,
                                 const float *d, const float (&bias)[8])
{
    const int team = (int)threadIdx.x / TEAM_THREADS, lane = (int)threadIdx.x % 32;
    const int row = (int)threadIdx.x % TEAM_THREADS / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
    const bool leads = threadIdx.x % TEAM_THREADS == 0;
    if (leads)
        box_stores_read<1>();
    four_warps_meet(team + 1);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float *const e = d + j * 8, *const b = bias + j * 4;
        const uint32_t v[4] = { pair_of(T(), e[0] + b[0], e[1] + b[1]),
                                pair_of(T(), e[2] + b[0], e[3] + b[1]),
                                pair_of(T(), e[4] + b[2], e[5] + b[3]),
                                pair_of(T(), e[6] + b[2], e[7] + b[3]) };
        store_blocks(to + row * SLICE_ROW + (((j * 2 + lane / 16) ^ row / 2 % 4) << 4), v);
    }
    shared_written();
    four_warps_meet(team + 1);
    const int at[5] = { (int)blockIdx.x % f.blocks * SLICE, item.x, item.y + team * 8, z, item.n };
    if (leads)
        box_store(&f.y, to, at);
}

/* What a team has done so far. */
struct Progress {
    int pieces, stores;
};

__device__ inline void stage_done(uint32_t barrier)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* One item of a team. */
template <class T, bool Back, int Pieces>
__device__ void march(const Volume &f, const VolumePlaces<Pieces> &p, const Item &item,
                      const float (&bias)[8], Progress *done)
{
    enum { STAGES = VolumeShape<Pieces>::STAGES, ALL = 3 * SUMS_OF_PLANE };
    const uint32_t results = p.results + threadIdx.x / TEAM_THREADS * 2 * TEAM_BYTES;
    float d[ALL];
#pragma unroll
    for (int i = 0; i < ALL; i++)
        d[i] = 0;
    for (int z = item.lo; z < item.hi + 2; z++) {
#pragma unroll
        for (int c = 0; c < Pieces; c++) {
            const int l = done->pieces++, q = l % STAGES;
            barrier_wait(p.full + 8 * q, l / STAGES & 1);
            multiply_plane<T, Back>(d, p.stages + q * COLUMN_STRIDE,
                                    p.weights + c * 3 * PLANE_TAPS * SLICE_BYTES);
            if (c > 0) {
                products_wait<1>();
                stage_done(p.empty + 8 * ((l - 1) % STAGES)); /* V1 */
            }
        }
        products_wait<0>();
        sums_stay(d);
        stage_done(p.empty + 8 * ((done->pieces - 1) % STAGES));
        if (z >= item.lo + 2)
            put_plane<T>(f, item, z - 2, results + done->stores++ % 2 * TEAM_BYTES, d, bias);
#pragma unroll
        for (int i = 0; i < ALL; i++)
            d[i] = i + SUMS_OF_PLANE < ALL ? d[i + SUMS_OF_PLANE] : 0;
    }
}

template <class T, bool Back, int Pieces>
__device__ void march_all(const Volume &f, const VolumePlaces<Pieces> &p)
{
    float bias[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        bias[i] =
            f.bias ? f.bias[blockIdx.x % f.blocks * SLICE + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2]
                   : 0;
    Progress done = {};
    barrier_wait(p.weights_there, 0);
    for (int i = (int)blockIdx.x / f.blocks; i < f.items; i += (int)gridDim.x / f.blocks)
        march<T, Back, Pieces>(f, p, Item(f, i), bias, &done);
    if (threadIdx.x % TEAM_THREADS == 0)
        box_stores_done();
}

template <class T, bool Back, int Pieces>
__global__ void __launch_bounds__(VOLUME_BLOCK, 1) volume(const __grid_constant__ Volume f)
{
    enum { STAGES = VolumeShape<Pieces>::STAGES };
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[2 * STAGES + 1];
    const VolumePlaces<Pieces> p(memory, barriers);
    if (threadIdx.x == 0) {
        for (int q = 0; q < STAGES; q++) {
            barrier_init(p.full + 8 * q, 1);
            barrier_init(p.empty + 8 * q, TEAMS * TEAM_THREADS / 32);
        }
        barrier_init(p.weights_there, 1);
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < TEAMS * TEAM_THREADS)
        march_all<T, Back, Pieces>(f, p);
    else if (threadIdx.x == TEAMS * TEAM_THREADS)
        fetch_planes<Back, Pieces>(f, p);
}

/* --- the host's side --- */

/* Chunks of planes such that the blocks that run at once are done the soonest: each chunk reads two
 * planes more than it makes. */
static void cut_planes(Volume &f, int64_t columns, int64_t at_once)
{
    int64_t least = INT64_MAX;
    for (int64_t chunks = 1; chunks <= f.planes; chunks++) {
        const int64_t chunk = ceil_div(f.planes, chunks);
        const int64_t cost = ceil_div(columns * chunks, at_once) * (chunk + 2);
        if (cost < least) {
            least = cost;
            f.chunk = (int32_t)chunk;
        }
    }
    f.chunks = (int32_t)ceil_div(f.planes, f.chunk);
    f.items = (int32_t)(columns * f.chunks);
}

template <class T, bool Back, int Pieces> static bool run_volume(const struct wf_call *call)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_view y = wf_view_part(call->out[0], call->work);
    const struct wf_view &x = call->in[0];
    const auto kernel = volume<T, Back, Pieces>;
    const struct wf_shape made = extents(y.box);
    int multiprocessors = 0, device = 0;
    Volume f = {};
    if (!map_view(&f.x, x,
                  Box{ SLICE, COLUMN_W + AROUND, COLUMN_H + AROUND, CU_TENSOR_MAP_SWIZZLE_64B }) ||
        !map_weights(&f.w, call->in[1], SLICE, CU_TENSOR_MAP_SWIZZLE_64B) ||
        !map_view(&f.y, y, Box{ SLICE, COLUMN_W, 8, CU_TENSOR_MAP_SWIZZLE_64B }) ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             VolumeShape<Pieces>::SHARED) != cudaSuccess)
        return false;
    for (int k = 0; k < 3; k++) { /* tap 0 of position 0, counted within both boxes */
        const int64_t before = Back ? 2 - a->pad_lo[2 - k] : a->pad_lo[2 - k];
        f.halo[k] = (int32_t)(before + x.box.lo[WF_W - k] - y.box.lo[WF_W - k]);
    }
    f.bias = (const float *)call->in[2].data;
    f.blocks = (int32_t)(made.at[WF_C] / SLICE);
    f.planes = (int32_t)made.at[WF_D];
    f.columns[0] = (int32_t)ceil_div(made.at[WF_W], COLUMN_W);
    f.columns[1] = (int32_t)ceil_div(made.at[WF_H], COLUMN_H);
    const int at_once = larger(1, multiprocessors / (int)f.blocks);
    cut_planes(f, made.at[WF_N] * f.columns[0] * f.columns[1], at_once);
    const unsigned grid = (unsigned)(f.blocks * smaller(at_once, (int)f.items));
    kernel<<<grid, VOLUME_BLOCK, VolumeShape<Pieces>::SHARED, wf_cuda_stream(call)>>>(f);
    return cudaPeekAtLastError() == cudaSuccess;
}

template <class T> static bool run_kind_of_volume(const struct wf_call *call, bool back)
{
    if (call->node->in[0]->shape.at[WF_C] == SLICE)
        return back ? run_volume<T, true, 1>(call) : run_volume<T, false, 1>(call);
    return back ? run_volume<T, true, 2>(call) : run_volume<T, false, 2>(call);
}

} // namespace wf

using namespace wf;

bool wf_cuda_volume_fits(const struct wf_node *node)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)node->attrs;
    const struct wf_shape &w = node->in[1]->shape;
    const int64_t in = node->in[0]->shape.at[WF_C], out = node->out[0]->shape.at[WF_C];
    bool fits = (node->in[0]->dtype == WF_BF16 || node->in[0]->dtype == WF_F16) &&
                node->out[0]->dtype == node->in[0]->dtype && a->groups == 1 &&
                (in == SLICE || in == 2 * SLICE) && out % SLICE == 0;
    for (int i = 0; i < 3; i++)
        fits = fits && a->stride[i] == 1 && a->dilation[i] == 1 && w.at[WF_D + i] == 3;
    return fits;
}

bool wf_cuda_volume(const struct wf_call *call, bool back)
{
    if (is_empty(call->work))
        return true;
    return call->in[0].dtype == WF_BF16 ? run_kind_of_volume<bf16>(call, back)
                                        : run_kind_of_volume<f16>(call, back);
}
