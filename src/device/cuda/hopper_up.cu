/*
 * Transposed convolutions whose windows lie side by side (patches.cuh), of 16-bit images with channels in
 * 64s: the upsampling layers of a wide U-Net. A row of the product is a (tap, filter), a column a position
 * of the coarse image; where a tap's results go is every second position or so of the fine image, which a
 * map of the copy engine describes, so they are written into a part of a concatenation as well.
 *
 * A block takes tiles of 128 rows times 256 positions in turn. One warp asks for what comes, 64 channels
 * at a time; two teams of four warps multiply 64 rows each by the same positions.
 *
 * U1. Stage q holds piece l, counted over all tiles of the block, for l % STAGES = q. It is free when the
 *     products of both teams that read it are done: its arrivals are their 8 warps.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/panels.cuh"
#include "device/cuda/patches.h"

namespace wf
{

enum {
    POSITIONS = 256, /* of a tile */
    ROWS = 64,       /* of a team: filters of one tap */
    DEPTH = 64,      /* channels at a time */
    TEAMS = 2,
    STAGES = 4,
    STORES = 2,                   /* buffers of a team */
    ROWS_BYTES = ROWS * DEPTH * 2,
    STAGE_BYTES = TEAMS * ROWS_BYTES + POSITIONS * DEPTH * 2,
    ALIGNED = 1024, /* bytes after which a swizzle repeats */
    SHARED_BYTES = ALIGNED + STAGES * STAGE_BYTES + TEAMS * STORES * STORE_BYTES,
    TAPS_MOST = WF_PATCHES_TAPS,
    BLOCK = TEAMS * 128 + 32
};

/* A tap's results within the work: positions of the coarse image from `first` on (W, H, D), the first of them at `data`. */
struct Tap {
    uint16_t *data;
    int32_t first[3], end[3];
};

struct Up {
    CUtensorMap x, w, y[TAPS_MOST];
    Tap tap[TAPS_MOST];
    int64_t stride[4]; /* of results, from one position of the coarse image to the next: W, H, D, N */
    const float *bias;
    int32_t tiles, pairs; /* of positions; of blocks of 64 rows */
    int32_t each, pieces; /* blocks of rows of a tap; of DEPTH channels */
    int32_t extent[4];    /* in tiles: W, H, D, N */
    int32_t side[2];      /* of a tile: W, H; the first is 2 to the power of shift */
    int32_t shift;
    int32_t x_at[4];      /* the first position in x: W, H, D, N */
    bool mapped;          /* results lie as the copy engine wants */
};

/* A tile's first position, and its pair of blocks of rows. Pairs of one tile follow each other: they read the same. */
struct UpTile {
    int at[4], pair;

    __device__ UpTile(const Up &f, int i)
    {
        pair = i % f.pairs;
        i /= f.pairs;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            at[k] = i % f.extent[k] * (k < 2 ? f.side[k] : 1);
            i /= f.extent[k];
        }
    }
};

/* What one thread asks the copy engine for. */
__device__ inline void fetch(const Up &f, uint32_t stages, uint32_t full, uint32_t empty)
{
    int q = 0, parity = 1;
    for (int i = (int)blockIdx.x; i < f.tiles * f.pairs; i += (int)gridDim.x) {
        const UpTile tile(f, i);
        for (int c = 0; c < f.pieces; c++) {
            const uint32_t to = stages + q * STAGE_BYTES;
            barrier_wait(empty + 8 * q, parity);
            barrier_expect(full + 8 * q, STAGE_BYTES);
            for (int team = 0; team < TEAMS; team++) {
                const int row = tile.pair * TEAMS + team;
                const int at[5] = { row % f.each * ROWS, row / f.each, c * DEPTH, 0, 0 };
                box_load(to + team * ROWS_BYTES, &f.w, full + 8 * q, at);
            }
            const int at[5] = { c * DEPTH, tile.at[0] + f.x_at[0], tile.at[1] + f.x_at[1],
                                tile.at[2] + f.x_at[2], tile.at[3] + f.x_at[3] };
            box_load(to + TEAMS * ROWS_BYTES, &f.x, full + 8 * q, at);
            q = q + 1 == STAGES ? 0 : q + 1;
            parity ^= q == 0;
        }
    }
}

/* d (+)= the piece that lies at `stage`. The weights' rows there are channels. */
template <class T>
__device__ inline void multiply(uint32_t stage, int team, bool begun, float (&d)[128])
{
    const uint64_t a0 = matrix_at(SWIZZLE_128, 8 * 128), b0 = matrix_at(SWIZZLE_128, 8 * 128);
    products_begin();
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        const uint32_t a = stage + team * ROWS_BYTES + k * 16 * 128;
        const uint32_t b = stage + TEAMS * ROWS_BYTES + k * 32;
        product<T, true>(d, a0 | a >> 4, b0 | b >> 4, begun || k > 0);
    }
    products_commit();
}

/* A thread's two filters. */
struct Biases {
    float of_row[2];

    __device__ Biases(const Up &f, int filter)
    {
        for (int i = 0; i < 2; i++)
            of_row[i] = f.bias ? f.bias[filter + i * 8] : 0.0f;
    }
    __device__ float of(float x, int i) const
    {
        return x + of_row[i];
    }
};

/* The copy engine stores nothing that begins in front of a map, where a tap of the first patches is cut off, and nothing
 * at odd addresses: so positions from 32 g on are stored by 128 threads. */
__device__ inline void store_by_hand(const Up &f, const Tap &tap, const UpTile &tile, int filter,
                                     uint32_t from, int g)
{
    for (int i = (int)threadIdx.x % 128; i < STORE_POSITIONS * 8; i += 128) {
        const int row = i / 8, eighth = i % 8, p = g * STORE_POSITIONS + row;
        const int at[3] = { tile.at[0] + (p & (f.side[0] - 1)), tile.at[1] + (p >> f.shift),
                            tile.at[2] };
        uint16_t *to = tap.data + tile.at[3] * f.stride[3] + filter + eighth * 8;
        bool inside = true;
#pragma unroll
        for (int k = 0; k < 3; k++) {
            inside = inside && at[k] >= tap.first[k] && at[k] < tap.end[k];
            to += (at[k] - tap.first[k]) * f.stride[k];
        }
        uint32_t v[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(from + row * 128 + ((eighth ^ row % 8) << 4))
                     : "memory");
        if (inside && f.mapped)
            *(uint4 *)to = uint4{ v[0], v[1], v[2], v[3] };
        for (int k = 0; k < 8 && inside && !f.mapped; k++)
            to[k] = (uint16_t)(v[k / 2] >> k % 2 * 16);
    }
}

/* Positions from 32 g on of a team's tile. */
__device__ inline void put(const Up &f, const UpTile &tile, int tap, int filter, uint32_t from,
                           int g)
{
    const Tap &to = f.tap[tap];
    const bool leads = threadIdx.x % 128 == 0;
    if (f.mapped && tile.at[0] >= to.first[0] && tile.at[1] >= to.first[1] &&
        tile.at[2] >= to.first[2]) {
        const int p = g * STORE_POSITIONS;
        const int at[5] = { filter, tile.at[0] + (p & (f.side[0] - 1)) - to.first[0],
                            tile.at[1] + (p >> f.shift) - to.first[1], tile.at[2] - to.first[2],
                            tile.at[3] };
        if (leads)
            box_store(&f.y[tap], from, at);
        return;
    }
    store_by_hand(f, to, tile, filter, from, g);
    if (leads)
        box_stores_none();
}

template <class T>
__device__ void compute(const Up &f, uint32_t stages, uint32_t stores, uint32_t full,
                        uint32_t empty)
{
    const int team = (int)threadIdx.x / 128;
    const bool first_lane = threadIdx.x % 32 == 0;
    const int filter = (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
    int buffer = 0, q = 0, parity = 0, before = 0;
    for (int i = (int)blockIdx.x; i < f.tiles * f.pairs; i += (int)gridDim.x) {
        float d[128];
        const UpTile tile(f, i);
        const int row = tile.pair * TEAMS + team, tap = row / f.each, first = row % f.each * ROWS;
        for (int c = 0; c < f.pieces; c++) {
            barrier_wait(full + 8 * q, parity);
            multiply<T>(stages + q * STAGE_BYTES, team, c > 0, d);
            if (c > 0) {
                products_wait<1>();
                if (first_lane)
                    barrier_arrive(empty + 8 * before); /* U1 */
            }
            before = q;
            q = q + 1 == STAGES ? 0 : q + 1;
            parity ^= q == 0;
        }
        products_wait<0>();
        sums_stay(d);
        if (first_lane)
            barrier_arrive(empty + 8 * before);
        const Biases biases(f, first + filter);
        store_sums<T, STORES>(d, stores, biases, &buffer, [&](uint32_t from, int g) {
            put(f, tile, tap, first, from, g);
        });
    }
    if (threadIdx.x % 128 == 0)
        box_stores_done();
}

template <class T> __global__ void __launch_bounds__(BLOCK, 1) up(const __grid_constant__ Up f)
{
    __shared__ uint64_t barriers[2 * STAGES];
    const uint32_t stages = (shared_at(shared_memory()) + ALIGNED - 1) / ALIGNED * ALIGNED;
    const uint32_t stores = stages + STAGES * STAGE_BYTES;
    const uint32_t full = shared_at(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int q = 0; q < STAGES; q++) {
            barrier_init(full + 8 * q, 1);
            barrier_init(empty + 8 * q, TEAMS * 4);
        }
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < TEAMS * 128)
        compute<T>(f, stages, stores, full, empty);
    else if (threadIdx.x == TEAMS * 128)
        fetch(f, stages, full, empty);
}

/* --- the host's side --- */

/* Positions of the coarse image that the work's patches belong to. */
static struct wf_region coarse_of(const struct wf_conv_attrs *a, struct wf_region work)
{
    for (int i = 0; i < 3; i++) {
        work.lo[WF_D + i] /= a->stride[i];
        work.hi[WF_D + i] = ceil_div(work.hi[WF_D + i], a->stride[i]);
    }
    return work;
}

/* The sides of a tile that the fewest of cover the image. */
static void choose_sides(Up *f, const struct wf_region &coarse)
{
    int64_t least = INT64_MAX;
    for (int shift = 3; 1 << shift <= POSITIONS; shift++) {
        const int w = 1 << shift;
        const int64_t across = ceil_div(coarse.hi[WF_W] - coarse.lo[WF_W], (int64_t)w),
                      down = ceil_div(coarse.hi[WF_H] - coarse.lo[WF_H], (int64_t)(POSITIONS / w));
        if (across * down > least)
            continue;
        least = across * down;
        f->shift = shift;
        f->side[0] = w;
        f->side[1] = POSITIONS / w;
        f->extent[0] = (int32_t)across;
        f->extent[1] = (int32_t)down;
    }
    f->extent[2] = (int32_t)(coarse.hi[WF_D] - coarse.lo[WF_D]);
    f->extent[3] = (int32_t)(coarse.hi[WF_N] - coarse.lo[WF_N]);
    f->tiles = f->extent[0] * f->extent[1] * f->extent[2] * f->extent[3];
}

/* Of tap `at`: its results and their map. A tap may have none: then no position is from its first one on. */
static void lay_tap(Up *f, int tap, const int64_t (&at)[3], const struct wf_conv_attrs *a,
                    const struct wf_view &y)
{
    const int32_t w = smaller((int32_t)STORE_POSITIONS, f->side[0]);
    const Box box = { ROWS, w, STORE_POSITIONS / w, CU_TENSOR_MAP_SWIZZLE_128B };
    int64_t extent[5] = { f->each * (int64_t)ROWS, 0, 0, 0, f->extent[3] };
    int64_t stride[5] = { 1, 0, 0, 0, y.stride[WF_N] }, from[WF_AXES];
    Tap *const to = &f->tap[tap];
    bool any = true;
    memcpy(from, y.box.lo, sizeof from);
    for (int k = 0; k < 3; k++) {
        const int axis = WF_W - k, i = 2 - k;
        const int64_t patch = y.box.lo[axis] / a->stride[i] * a->stride[i];
        to->first[k] = patch + at[i] < y.box.lo[axis];
        from[axis] = patch + to->first[k] * a->stride[i] + at[i];
        extent[1 + k] = ceil_div(y.box.hi[axis] - from[axis], a->stride[i]);
        stride[1 + k] = f->stride[k];
        to->end[k] = (int32_t)(to->first[k] + extent[1 + k]);
        any = any && extent[1 + k] > 0;
    }
    if (!any) {
        to->first[0] = INT32_MAX;
        return;
    }
    to->data = (uint16_t *)side_at(y, from).data;
    f->mapped = f->mapped && (uintptr_t)to->data % 16 == 0 &&
                map_make(&f->y[tap], y.dtype, to->data, extent, stride, box);
}

template <class T> static bool run_up(const struct wf_call *call)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    const struct wf_view y = wf_view_part(call->out[0], call->work);
    const struct wf_view &x = call->in[0];
    const struct wf_region coarse = coarse_of(a, call->work);
    int multiprocessors = 0, device = 0;
    Up f = {};
    f.bias = (const float *)call->in[2].data;
    f.each = (int32_t)(w.at[WF_C] / ROWS);
    f.pieces = (int32_t)(w.at[WF_N] / DEPTH);
    f.pairs = (int32_t)(w.at[WF_D] * w.at[WF_H] * w.at[WF_W] * f.each / TEAMS);
    choose_sides(&f, coarse);
    f.mapped = true;
    for (int k = 0; k < 4; k++)
        f.stride[k] = y.stride[WF_W - k] * (k < 3 ? a->stride[2 - k] : 1);
    for (int k = 0; k < 4; k++)
        f.x_at[k] = (int32_t)(coarse.lo[WF_W - k] - x.box.lo[WF_W - k]);
    int tap = 0;
    for (int64_t d = 0; d < w.at[WF_D]; d++)
        for (int64_t h = 0; h < w.at[WF_H]; h++)
            for (int64_t v = 0; v < w.at[WF_W]; v++) {
                const int64_t at[3] = { d, h, v };
                lay_tap(&f, tap++, at, a, y);
            }
    if (!map_view(&f.x, x, Box{ DEPTH, f.side[0], f.side[1], CU_TENSOR_MAP_SWIZZLE_128B }) ||
        !map_weights(&f.w, call->in[1], ROWS, CU_TENSOR_MAP_SWIZZLE_128B) ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess)
        return false;
    const int grid = smaller(multiprocessors, f.tiles * f.pairs);
    return launch_sharing(up<T>, dim3((unsigned)grid), BLOCK, SHARED_BYTES, wf_cuda_stream(call), f);
}

} // namespace wf

using namespace wf;

bool wf_cuda_up(const struct wf_call *call)
{
    if (is_empty(call->work))
        return true;
    if (call->work.lo[WF_C] != 0 || call->work.hi[WF_C] != call->node->out[0]->shape.at[WF_C])
        return false;
    return call->in[0].dtype == WF_BF16 ? run_up<bf16>(call) : run_up<f16>(call);
}
