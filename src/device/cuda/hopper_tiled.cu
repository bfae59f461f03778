/*
 * Convolutions of 3 x 3, stride 1, from 64 or 128 channels of 16 bits to a multiple of 64, forward and
 * transposed: where images are large and channels few, and a product of 64 filters by 64 positions would
 * wait for shared memory.
 *
 * A block keeps the weights of 64 filters for all taps in shared memory and makes tile after tile of
 * 32 x 8 positions: 64 filters times 256 positions at once, so that the weights are read once for 256
 * positions. The tile's image with its halo comes once, by the copy engine, and every tap reads it where it
 * lies, beginning one row or column later. One warp asks for what comes, two teams of four warps take
 * turns with the tiles: while one writes its results the other one multiplies.
 *
 * T1. Stage q holds piece l (tile by tile, each in pieces of Depth channels) for l % STAGES = q. A parity
 *     tells only two phases apart: a team waits for piece l when l - STAGES is known to have come,
 *     which the other team says by `turn` when all its warps have seen all pieces of the tile before.
 * T2. A stage is free when the products that read it are done; its 4 arrivals are a team's warps.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/norm.cuh"

namespace wf
{

enum {
    TILE_H = 32,
    TILE_W = 8,
    HALO = 2,
    TAPS = 9,
    FILTERS = 64,
    STAGES = 3,
    STORED = STORE_POSITIONS / TILE_W, /* rows of a tile that are stored at once */
    WEIGHT_BYTES = FILTERS * FILTERS * 2, /* a tap, 64 channels */
    TEAM = 128,
    BLOCK = 2 * TEAM + 32,
    SWIZZLED = 1024 /* bytes after which a swizzle repeats */
};

struct Tiled {
    CUtensorMap x, w, y;
    const float *bias;
    Norm norm; /* of the results, where they are normalised too */
    int32_t tiles, extent[4]; /* of y in tiles: W, H, D, N */
    int32_t halo[4];          /* x at the first position of a tile's stage, against y: W, H, D, N */
    int32_t blocks, pieces;   /* of 64 filters; of Depth channels */
};

/* What depends on the channels of a piece. */
template <int Depth> struct Piece {
    enum {
        ROW = Depth * 2,
        BYTES = (TILE_H + HALO) * (TILE_W + HALO) * ROW,
        STRIDE = (BYTES + 8 * ROW - 1) / (8 * ROW) * (8 * ROW),
        SWIZZLE = Depth == 64 ? SWIZZLE_128 : SWIZZLE_64,
        STORES = Depth == 64 ? 3 : 2, /* buffers of a team: what there is room for */
    };
    static __host__ __device__ int shared_bytes(int pieces)
    {
        return SWIZZLED + TAPS * pieces * Depth / FILTERS * WEIGHT_BYTES +
               (STAGES * STRIDE + SWIZZLED - 1) / SWIZZLED * SWIZZLED + 2 * STORES * STORE_BYTES;
    }
};

/* Places in shared memory. */
template <int Depth> struct Places {
    uint32_t weights, stages, stores, full, empty, weights_there, turn;

    __device__ Places(const Tiled &f, const void *memory, const uint64_t *barriers)
    {
        weights = (shared_at(memory) + SWIZZLED - 1) / SWIZZLED * SWIZZLED;
        stages = weights + TAPS * f.pieces * Depth / FILTERS * WEIGHT_BYTES;
        stores = (stages + STAGES * Piece<Depth>::STRIDE + SWIZZLED - 1) / SWIZZLED * SWIZZLED;
        full = shared_at(barriers);
        empty = full + 8 * STAGES;
        weights_there = empty + 8 * STAGES;
        turn = weights_there + 8;
    }
};

/* Tile number i, in the order in which it lies in memory. */
__device__ inline void tile_at(const Tiled &f, int i, int (&at)[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        at[k] = i % f.extent[k];
        i /= f.extent[k];
    }
    at[0] *= TILE_W;
    at[1] *= TILE_H;
}

/* What one thread asks the copy engine for. */
template <bool Back, int Depth> __device__ void fetch(const Tiled &f, const Places<Depth> &p)
{
    const int filter = (int)blockIdx.x % f.blocks * FILTERS, slices = f.pieces * Depth / FILTERS;
    barrier_expect(p.weights_there, TAPS * slices * WEIGHT_BYTES);
    for (int i = 0; i < TAPS * slices; i++) {
        const int tap = i / slices, c = i % slices * FILTERS;
        /* Transposed: the last tap first, and what is summed over are the weights' rows. */
        const int at[5] = { Back ? filter : c, Back ? TAPS - 1 - tap : tap, Back ? c : filter, 0,
                            0 };
        box_load(p.weights + i * WEIGHT_BYTES, &f.w, p.weights_there, at);
    }
    int q = 0, parity = 1;
    for (int i = (int)blockIdx.x / f.blocks; i < f.tiles; i += (int)gridDim.x / f.blocks) {
        int tile[4];
        tile_at(f, i, tile);
        for (int c = 0; c < f.pieces; c++) {
            const int at[5] = { c * Depth, tile[0] - f.halo[0], tile[1] - f.halo[1],
                                tile[2] - f.halo[2], tile[3] - f.halo[3] };
            barrier_wait(p.empty + 8 * q, parity);
            barrier_expect(p.full + 8 * q, Piece<Depth>::BYTES);
            box_load(p.stages + q * Piece<Depth>::STRIDE, &f.x, p.full + 8 * q, at);
            q = q + 1 == STAGES ? 0 : q + 1;
            parity ^= q == 0;
        }
    }
}

/* d (+)= all taps of piece c, which lies in stage q. */
template <class T, bool Back, int Depth>
__device__ inline void multiply(const Tiled &f, const Places<Depth> &p, int c, int q,
                                float (&d)[128])
{
    enum { ROW = Piece<Depth>::ROW, PITCH = (TILE_W + HALO) * ROW, STEP = Back ? 16 * 128 : 32 };
    const int slices = f.pieces * Depth / FILTERS;
    const uint32_t stage = p.stages + q * Piece<Depth>::STRIDE;
    const uint32_t weights =
        p.weights + c * Depth / FILTERS * WEIGHT_BYTES + c * Depth % FILTERS / 16 * STEP;
    const uint64_t a0 = matrix_at(SWIZZLE_128, 8 * 128);
    const uint64_t b0 = matrix_at(Piece<Depth>::SWIZZLE, PITCH);
    products_begin();
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
        for (int k = 0; k < Depth / 16; k++) {
            const uint32_t a = weights + tap * slices * WEIGHT_BYTES + k * STEP;
            const uint32_t b = stage + tap / 3 * PITCH + tap % 3 * ROW + k * 32;
            product<T, Back>(d, a0 | a >> 4, b0 | b >> 4, (c | tap | k) != 0);
        }
    products_commit();
}

/* What becomes of a sum of one of a thread's two filters. */
template <bool Normalises> struct Finish {
    float mean[2], scale[2], bias[2], below;

    __device__ Finish(const Tiled &f, int filter)
    {
        for (int i = 0; i < 2; i++) {
            const int c = filter + i * 8;
            const float own = f.bias ? f.bias[c] : 0.0f;
            bias[i] = own;
            if constexpr (Normalises) {
                float rstd, weight;
                f.norm.load(0, c, &mean[i], &rstd, &weight, &bias[i]);
                mean[i] -= own;
                scale[i] = rstd * weight;
            }
        }
        below = (float)f.norm.below;
    }
    __device__ float of(float x, int i) const
    {
        if constexpr (!Normalises)
            return x + bias[i];
        const float z = fma_of(x - mean[i], scale[i], bias[i]);
        return z > 0 ? z : z * below;
    }
};

/* A team's tiles: every second one of the block's. */
template <class T, bool Back, int Depth, bool Normalises>
__device__ void compute(const Tiled &f, const Places<Depth> &p)
{
    const int filter = (int)blockIdx.x % f.blocks * FILTERS;
    const Finish<Normalises> finish(f, filter + (int)threadIdx.x % TEAM / 32 * 16 +
                                           (int)threadIdx.x % 32 / 4);
    const int team = (int)threadIdx.x / TEAM, step = (int)gridDim.x / f.blocks;
    const bool leads = threadIdx.x % TEAM == 0, first_lane = threadIdx.x % 32 == 0;
    int buffer = 0, turns = 0;
    barrier_wait(p.weights_there, 0);
    for (int k = team; (int)blockIdx.x / f.blocks + k * step < f.tiles; k += 2, turns++) {
        float d[128];
        int tile[4], before = 0;
        tile_at(f, (int)blockIdx.x / f.blocks + k * step, tile);
        if (k > 0) /* T1 */
            barrier_wait(p.turn + 8 * team, (turns + team + 1) & 1);
        for (int c = 0; c < f.pieces; c++) {
            const int l = k * f.pieces + c, q = l % STAGES;
            barrier_wait(p.full + 8 * q, l / STAGES & 1);
            if (first_lane && c == f.pieces - 1)
                barrier_arrive(p.turn + 8 * (1 - team));
            multiply<T, Back, Depth>(f, p, c, q, d);
            if (c > 0) {
                products_wait<1>();
                if (first_lane)
                    barrier_arrive(p.empty + 8 * before); /* T2 */
            }
            before = q;
        }
        products_wait<0>();
        sums_stay(d);
        if (first_lane)
            barrier_arrive(p.empty + 8 * before);
        store_sums<T, Piece<Depth>::STORES>(
            d, p.stores, finish, &buffer, [&](uint32_t from, int g) {
                const int at[5] = { filter, tile[0], tile[1] + g * STORED, tile[2], tile[3] };
                if (leads)
                    box_store(&f.y, from, at);
            });
    }
    if (leads)
        box_stores_done();
}

template <class T, bool Back, int Depth, bool Normalises>
__global__ void __launch_bounds__(BLOCK, 1) tiled(const __grid_constant__ Tiled f)
{
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[2 * STAGES + 3];
    const Places<Depth> p(f, memory, barriers);
    if (threadIdx.x == 0) {
        for (int q = 0; q < STAGES; q++) {
            barrier_init(p.full + 8 * q, 1);
            barrier_init(p.empty + 8 * q, TEAM / 32);
        }
        barrier_init(p.weights_there, 1);
        barrier_init(p.turn, TEAM / 32);
        barrier_init(p.turn + 8, TEAM / 32);
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < 2 * TEAM)
        compute<T, Back, Depth, Normalises>(f, p);
    else if (threadIdx.x == 2 * TEAM)
        fetch<Back, Depth>(f, p);
}

/* --- the host's side --- */

template <class T, bool Back, int Depth, bool Normalises>
static bool run_tiled(const struct wf_call *call, const struct wf_view &y, Tiled &f)
{
    const int swizzle = Depth == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    int multiprocessors = 0, device = 0;
    f.pieces = (int32_t)(call->node->in[0]->shape.at[WF_C] / Depth);
    if (!map_view(&f.x, call->in[0], Box{ Depth, TILE_W + HALO, TILE_H + HALO, swizzle }) ||
        !map_weights(&f.w, call->in[1], FILTERS, CU_TENSOR_MAP_SWIZZLE_128B) ||
        !map_view(&f.y, y, Box{ FILTERS, TILE_W, STORED, CU_TENSOR_MAP_SWIZZLE_128B }) ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess)
        return false;
    const int bytes = Piece<Depth>::shared_bytes(f.pieces);
    const int most = multiprocessors / f.blocks > 0 ? multiprocessors / f.blocks : 1;
    const unsigned grid = (unsigned)(f.blocks * smaller(most, (int)f.tiles));
    if (cudaFuncSetAttribute(tiled<T, Back, Depth, Normalises>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess)
        return false;
    tiled<T, Back, Depth, Normalises><<<grid, BLOCK, (size_t)bytes, wf_cuda_stream(call)>>>(f);
    return cudaPeekAtLastError() == cudaSuccess;
}

/* With a norm of the results or without. */
template <class T, bool Back, bool Normalises>
static bool run_depth(const struct wf_call *call, const Norm &norm)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_view y = wf_view_part(call->out[0], call->work);
    const struct wf_view &x = call->in[0];
    Tiled f = {};
    const int64_t each[4] = { TILE_W, TILE_H, 1, 1 };
    int64_t tiles = 1;
    for (int k = 0; k < 4; k++) {
        const int axis = WF_W - k;
        f.extent[k] = (int32_t)ceil_div(y.box.hi[axis] - y.box.lo[axis], each[k]);
        tiles *= f.extent[k];
    }
    for (int k = 0; k < 4; k++) { /* tap 0 of position 0, counted within both boxes */
        const int64_t pad = k < 2 ? a->pad_lo[2 - k] : 0, before = k < 2 && Back ? HALO - pad : pad;
        f.halo[k] = (int32_t)(before + x.box.lo[WF_W - k] - y.box.lo[WF_W - k]);
    }
    f.tiles = (int32_t)tiles;
    f.bias = (const float *)call->in[2].data;
    f.norm = norm;
    f.blocks = (int32_t)((y.box.hi[WF_C] - y.box.lo[WF_C]) / FILTERS);
    return call->node->in[0]->shape.at[WF_C] == 64
               ? run_tiled<T, Back, 64, Normalises>(call, y, f)
               : run_tiled<T, Back, 32, Normalises>(call, y, f);
}

} // namespace wf

using namespace wf;

bool wf_cuda_tiled_fits(const struct wf_node *node)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)node->attrs;
    const struct wf_shape &w = node->in[1]->shape;
    const int64_t in = node->in[0]->shape.at[WF_C], out = node->out[0]->shape.at[WF_C];
    bool fits = (node->in[0]->dtype == WF_BF16 || node->in[0]->dtype == WF_F16) &&
                node->out[0]->dtype == node->in[0]->dtype && a->groups == 1 &&
                (!node->in[2] || node->in[2]->dtype == WF_F32) && (in == 64 || in == 128) &&
                out % FILTERS == 0 && a->pad_lo[0] == 0;
    for (int i = 0; i < 3; i++)
        fits =
            fits && a->stride[i] == 1 && a->dilation[i] == 1 && w.at[WF_D + i] == (i == 0 ? 1 : 3);
    return fits;
}

bool wf_cuda_tiled(const struct wf_call *call, bool back)
{
    if (is_empty(call->work))
        return true;
    if (call->in[0].dtype == WF_BF16)
        return back ? run_depth<bf16, true, false>(call, {}) : run_depth<bf16, false, false>(call, {});
    return back ? run_depth<f16, true, false>(call, {}) : run_depth<f16, false, false>(call, {});
}

bool wf_cuda_tiled_norm(const struct wf_call *call)
{
    const struct wf_call conv = call_of_conv(call);
    const Norm norm = norm_of(call->node, call->in);
    if (is_empty(call->work))
        return true;
    return conv.in[0].dtype == WF_BF16 ? run_depth<bf16, false, true>(&conv, norm)
                                       : run_depth<f16, false, true>(&conv, norm);
}
