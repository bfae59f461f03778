/*
 * The weight gradient of convolutions of 3 x 3 (x anything in depth), stride 1, of 16-bit images:
 * where images are large and channels few, and cuDNN's kernels wait for memory.
 *
 *     dw[filter][tap][channel] = sum over positions p of dy[p][filter] * x[p + tap][channel]
 *
 * Both factors lie with what is summed over outside, as products of four warps may take them. A
 * block belongs to 64 filters, `Channels` channels and one plane of the kernel, and goes through
 * every so many tiles of 8 x 32 positions: dy and x with its halo come once, by the copy engine, and
 * stay in shared memory for all nine taps. A team of four warps has a row of the kernel. Its three
 * taps are one product of 64 x (3 * Channels): to the product the taps are blocks of columns that
 * lie one position apart, and it does not mind that they overlap. So it is the arithmetic that
 * limits it, not shared memory.
 *
 * Sums stay in registers until a block has seen all its tiles; then they become one part in the
 * scratch, and a second kernel adds the parts in their order: which tiles make a part depends on
 * the number of multiprocessors alone.
 */
#include "device/cuda/hopper.cuh"

namespace wf
{

enum {
    GRAD_H = 8, /* a tile */
    GRAD_W = 32,
    GRAD_HALO = 2,
    ROWS = 3, /* of the kernel */
    COLUMNS = 3,
    WIDE = 64, /* filters times planes */
    GRAD_TEAM = 128,
    GRAD_BLOCK = ROWS * GRAD_TEAM + 32,
    DY_BYTES = GRAD_H * GRAD_W * WIDE * 2,
    DEPTH = 16,      /* positions that a product sums over */
    BOUNDARY = 1024, /* of shared memory: after which a swizzle repeats */
    SHARED_ROOM = (227 << 10) - BOUNDARY - 256
};

struct Grad {
    CUtensorMap x, dy;
    float *parts;              /* [share][piece][row][plane][filter][column][channel] */
    int32_t tiles, extent[4];  /* in tiles: W and H of dy, D of x, N */
    int32_t pad[3];            /* W, H, D */
    int32_t pieces;            /* groups of planes of the kernel * the next two */
    int32_t filters, channels; /* blocks of them */
};

/* What depends on the filters of a block: of 32 it has two planes of the kernel. To one position of x
 * belong as many planes of dy, the kernel's last one first. */
template <int Filters> struct Factor {
    enum {
        PLANES = WIDE / Filters,
        POSITION = Filters * 2,
        SWIZZLE = Filters == 64 ? SWIZZLE_128 : SWIZZLE_64,
        TO_PLANE = GRAD_H * GRAD_W * POSITION,
        TO_EIGHT = 8 * POSITION
    };
};

/* What depends on the channels of a block. */
template <int Channels> struct Taps {
    enum {
        POSITION = Channels * 2,
        PITCH = (GRAD_W + GRAD_HALO) * POSITION,
        X_BYTES = (GRAD_H + GRAD_HALO) * PITCH,
        /* x comes first in a stage, because compute-sanitizer counts the product's three blocks as if
         * they lay side by side: the last ones must not be the last of shared memory. */
        TO_DY = (X_BYTES + BOUNDARY - 1) / BOUNDARY * BOUNDARY,
        STRIDE = TO_DY + DY_BYTES,
        STAGES = SHARED_ROOM / STRIDE < 5 ? SHARED_ROOM / STRIDE : 5,
        SHARED = STAGES * STRIDE + BOUNDARY,
        WIDTH = COLUMNS * Channels,
        SUMS = WIDE * WIDTH / GRAD_TEAM, /* of a thread */
        PART = ROWS * WIDE * WIDTH,
        SWIZZLE = Channels == 64   ? SWIZZLE_128
                  : Channels == 32 ? SWIZZLE_64
                  : Channels == 16 ? SWIZZLE_32
                                   : SWIZZLE_NONE,
        /* From a tap to the next, from 8 positions to the next; without a swizzle they change places. */
        TO_TAP = POSITION,
        TO_EIGHT = 8 * POSITION,
        LEADING = Channels == 8 ? TO_EIGHT : TO_TAP,
        STRIDING = Channels == 8 ? TO_TAP : TO_EIGHT
    };
};

/* What one thread asks the copy engine for. */
template <int Filters, int Channels>
__device__ void fetch_tiles(const Grad &f, uint32_t stages, uint32_t full, uint32_t empty)
{
    typedef Taps<Channels> S;
    const int piece = (int)blockIdx.x % f.pieces, c = piece % f.channels * Channels;
    const int filter = piece / f.channels % f.filters * Filters;
    /* From a plane of x to the first one of dy: that of the last plane of the kernel. */
    const int back = (piece / f.channels / f.filters + 1) * Factor<Filters>::PLANES - 1 - f.pad[2];
    int q = 0, parity = 1;
    for (int i = (int)blockIdx.x / f.pieces; i < f.tiles; i += (int)gridDim.x / f.pieces) {
        const int x = i % f.extent[0] * GRAD_W, row = i / f.extent[0];
        const int y = row % f.extent[1] * GRAD_H, slice = row / f.extent[1];
        const int z = slice % f.extent[2], n = slice / f.extent[2];
        const int of_dy[5] = { filter, x, y, z - back, n };
        const int of_x[5] = { c, x - f.pad[0], y - f.pad[1], z, n };
        barrier_wait(empty + 8 * q, parity);
        barrier_expect(full + 8 * q, DY_BYTES + S::X_BYTES);
        box_load(stages + q * S::STRIDE, &f.x, full + 8 * q, of_x);
        box_load(stages + q * S::STRIDE + S::TO_DY, &f.dy, full + 8 * q, of_dy);
        q = q + 1 == S::STAGES ? 0 : q + 1;
        parity ^= q == 0;
    }
}

/* A team's row of the kernel over all tiles of the block. */
template <class T, int Filters, int Channels>
__device__ void sum_tiles(const Grad &f, uint32_t stages, uint32_t full, uint32_t empty)
{
    typedef Taps<Channels> S;
    typedef Factor<Filters> F;
    const int row = (int)threadIdx.x / GRAD_TEAM, lane = (int)threadIdx.x % 32;
    const uint64_t dy0 = matrix_at(F::SWIZZLE, F::TO_EIGHT, F::TO_PLANE);
    const uint64_t x0 = matrix_at(S::SWIZZLE, S::STRIDING, S::LEADING);
    float d[S::SUMS];
#pragma unroll
    for (int i = 0; i < S::SUMS; i++)
        d[i] = 0;
    int q = 0, parity = 0, before = -1;
    for (int i = (int)blockIdx.x / f.pieces; i < f.tiles; i += (int)gridDim.x / f.pieces) {
        const uint32_t stage = stages + q * S::STRIDE;
        const uint32_t x = stage + row * S::PITCH, dy = stage + S::TO_DY;
        barrier_wait(full + 8 * q, parity);
        products_begin();
#pragma unroll
        for (int k = 0; k < GRAD_H * GRAD_W; k += DEPTH) {
            const uint32_t at = x + k / GRAD_W * S::PITCH + k % GRAD_W * S::POSITION;
            product_add<T, 1, 1>(d, dy0 | (dy + k * F::POSITION) >> 4, x0 | at >> 4);
        }
        products_commit();
        if (before >= 0) { /* with the next ones on their way */
            products_wait<1>();
            if (lane == 0)
                barrier_arrive(empty + 8 * before);
        }
        before = q;
        q = q + 1 == S::STAGES ? 0 : q + 1;
        parity ^= q == 0;
    }
    products_wait<0>();
    sums_stay(d);
    const int filter = (int)threadIdx.x % GRAD_TEAM / 32 * 16 + lane / 4;
    float *const to =
        f.parts + (int64_t)blockIdx.x * S::PART + (row * WIDE + filter) * S::WIDTH + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::SUMS / 4; i++) {
        *(float2 *)(to + i * 8) = make_float2(d[i * 4], d[i * 4 + 1]);
        *(float2 *)(to + 8 * S::WIDTH + i * 8) = make_float2(d[i * 4 + 2], d[i * 4 + 3]);
    }
}

template <class T, int Filters, int Channels>
__global__ void __launch_bounds__(GRAD_BLOCK, 1) tiled_wgrad(const __grid_constant__ Grad f)
{
    enum { STAGES = Taps<Channels>::STAGES };
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[2 * STAGES];
    const uint32_t stages = (shared_at(memory) + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    const uint32_t full = shared_at(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int q = 0; q < STAGES; q++) {
            barrier_init(full + 8 * q, 1);
            barrier_init(empty + 8 * q, ROWS * GRAD_TEAM / 32);
        }
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < ROWS * GRAD_TEAM)
        sum_tiles<T, Filters, Channels>(f, stages, full, empty);
    else if (threadIdx.x == ROWS * GRAD_TEAM)
        fetch_tiles<Filters, Channels>(f, stages, full, empty);
}

/* --- adding the parts --- */

enum { ADDED = 64, ADDERS = 4 }; /* sums of a block, threads of a sum */

struct GradParts {
    const float *parts;
    int32_t shares, pieces, filters, channels; /* as in Grad */
    Image dw;
    int64_t n, d, c; /* extents of dw */
};

template <int Filters, int Channels>
__global__ void __launch_bounds__(ADDED *ADDERS) add_grads(const GradParts f)
{
    typedef Taps<Channels> S;
    __shared__ double sums[ADDERS][ADDED];
    const int at = (int)threadIdx.x % ADDED, adder = (int)threadIdx.x / ADDED;
    const int64_t i = (int64_t)blockIdx.x * ADDED + at;
    double sum = 0;
#pragma unroll 8
    for (int share = adder; share < f.shares; share += ADDERS)
        sum += (double)f.parts[(int64_t)share * f.pieces * S::PART + i];
    sums[adder][at] = sum;
    __syncthreads();
    if (adder > 0)
        return;
    sum = (sums[0][at] + sums[1][at]) + (sums[2][at] + sums[3][at]);
    const int piece = (int)(i / S::PART), rest = (int)(i % S::PART);
    const int row = rest / (WIDE * S::WIDTH), column = rest / Channels % COLUMNS;
    const int wide = rest / S::WIDTH % WIDE, planes = Factor<Filters>::PLANES;
    const int64_t n = piece / f.channels % f.filters * Filters + wide % Filters;
    const int64_t c = piece % f.channels * Channels + rest % Channels;
    const int64_t plane = (piece / f.channels / f.filters + 1) * planes - 1 - wide / Filters;
    if (n < f.n && plane < f.d && c < f.c)
        any_put(f.dw.dtype, f.dw.data, f.dw.at(n, plane, row, column) + c * f.dw.stride[WF_C], sum);
}

/* --- the host's side --- */

/* Of a block. */
static int filters_of(const struct wf_cuda_wgrad *g)
{
    return extents(g->result.box).at[WF_C] <= 32 && extents(g->weights.box).at[WF_D] > 1 ? 32 : 64;
}

static int channels_of(const struct wf_cuda_wgrad *g)
{
    const int64_t all = extents(g->image.box).at[WF_C];
    return all <= 8 ? 8 : all <= 16 ? 16 : all <= 32 ? 32 : 64;
}

/* All but the maps. */
static Grad grad_of(const struct wf_cuda_wgrad *g)
{
    const struct wf_shape x = extents(g->image.box), dy = extents(g->result.box);
    const int64_t sides[4] = { ceil_div(dy.at[WF_W], GRAD_W), ceil_div(dy.at[WF_H], GRAD_H),
                               x.at[WF_D], dy.at[WF_N] };
    const int filters = filters_of(g);
    Grad f = {};
    f.tiles = 1;
    for (int k = 0; k < 4; k++) {
        f.extent[k] = (int32_t)sides[k];
        f.tiles *= f.extent[k];
    }
    for (int k = 0; k < 3; k++)
        f.pad[k] = (int32_t)g->pad_lo[2 - k];
    f.channels = (int32_t)ceil_div(x.at[WF_C], channels_of(g));
    f.filters = (int32_t)ceil_div(dy.at[WF_C], filters);
    f.pieces = (int32_t)ceil_div(extents(g->weights.box).at[WF_D] * filters, WIDE) * f.channels *
               f.filters;
    f.parts = (float *)g->parts;
    return f;
}

/* Blocks of a piece. */
static int shares_of(const struct wf_cuda_wgrad *g, const Grad &f)
{
    return larger(1, smaller((int)f.tiles, g->multiprocessors / (int)f.pieces));
}

template <class T, int Filters, int Channels>
static bool run_wgrad(const struct wf_cuda_wgrad *g, struct CUstream_st *stream)
{
    typedef Taps<Channels> S;
    typedef Factor<Filters> F;
    static const CUtensorMapSwizzle swizzles[] = { CU_TENSOR_MAP_SWIZZLE_NONE,
                                                   CU_TENSOR_MAP_SWIZZLE_128B,
                                                   CU_TENSOR_MAP_SWIZZLE_64B,
                                                   CU_TENSOR_MAP_SWIZZLE_32B };
    const Box of_x = { Channels, GRAD_W + GRAD_HALO, GRAD_H + GRAD_HALO, swizzles[S::SWIZZLE] };
    const Box of_dy = { Filters, GRAD_W, GRAD_H, swizzles[F::SWIZZLE], F::PLANES };
    const auto kernel = tiled_wgrad<T, Filters, Channels>;
    Grad f = grad_of(g);
    const int shares = shares_of(g, f);
    if (!map_view(&f.x, g->image, of_x) || !map_view(&f.dy, g->result, of_dy) ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED) !=
            cudaSuccess)
        return false;
    kernel<<<(unsigned)(shares * f.pieces), GRAD_BLOCK, S::SHARED, stream>>>(f);
    const struct wf_shape dw = extents(g->weights.box);
    const GradParts add = { f.parts,     shares,      f.pieces,
                            f.filters,   f.channels,  image_of(g->weights),
                            dw.at[WF_N], dw.at[WF_D], dw.at[WF_C] };
    launch(add_grads<Filters, Channels>, blocks_for((int64_t)f.pieces * S::PART, ADDED),
           ADDED * ADDERS, stream, add);
    return cudaPeekAtLastError() == cudaSuccess;
}

template <class T, int Filters>
static bool run_channels(const struct wf_cuda_wgrad *g, struct CUstream_st *stream)
{
    switch (channels_of(g)) {
    case 8:
        return run_wgrad<T, Filters, 8>(g, stream);
    case 16:
        return run_wgrad<T, Filters, 16>(g, stream);
    case 32:
        return run_wgrad<T, Filters, 32>(g, stream);
    default:
        return run_wgrad<T, Filters, 64>(g, stream);
    }
}

template <class T>
static bool run_filters(const struct wf_cuda_wgrad *g, struct CUstream_st *stream)
{
    return filters_of(g) == 32 ? run_channels<T, 32>(g, stream) : run_channels<T, 64>(g, stream);
}

} // namespace wf

using namespace wf;

bool wf_cuda_tiled_wgrad_fits(const struct wf_node *node)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)node->attrs;
    const struct wf_shape &dw = node->out[0]->shape;
    const enum wf_dtype dtype = node->in[0]->dtype;
    bool fits = (dtype == WF_BF16 || dtype == WF_F16) && node->in[1]->dtype == dtype &&
                a->groups == 1 && dw.at[WF_H] == ROWS && dw.at[WF_W] == COLUMNS;
    for (int i = 0; i < 3; i++)
        fits = fits && a->stride[i] == 1 && a->dilation[i] == 1;
    return fits;
}

size_t wf_cuda_tiled_wgrad_scratch(const struct wf_cuda_wgrad *g)
{
    const Grad f = grad_of(g);
    const int part = ROWS * COLUMNS * WIDE * channels_of(g);
    return (size_t)part * (size_t)f.pieces * (size_t)shares_of(g, f) * sizeof(float);
}

bool wf_cuda_tiled_wgrad(const struct wf_cuda_wgrad *g, struct CUstream_st *stream)
{
    return g->image.dtype == WF_BF16 ? run_filters<bf16>(g, stream) : run_filters<f16>(g, stream);
}
