/*
 * Convolutions of 3 x 3, stride 1, from at most 8 channels of 16 bits to a multiple of 64: a first layer.
 * Its time is that of writing the result, so nothing is padded in memory: taps and channels together are
 * what a product sums over, looked up in the tile's image where they lie.
 *
 * Each warp makes a row of 64 positions, 8 at a time, of 64 filters, with the weights in registers.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/norm.cuh"

namespace wf
{

enum {
    THIN_W = 64,
    THIN_H = THREADS / 32, /* a row for each warp */
    THIN_TAPS = 9,
    THIN_FILTERS = 64,
    THIN_MOST = 8, /* channels */
    THIN_ROW = THIN_FILTERS * 2,
    THIN_STAGE = 8 * THIN_ROW /* bytes of a warp's results */
};

struct Stem {
    const uint16_t *x, *w;
    uint16_t *y;
    const float *bias;
    Norm norm;                           /* of the results, where they are normalised too */
    int64_t x_stride[4], y_stride[4];    /* W, H, D, N */
    int32_t image[2], out[2], extent[4]; /* W, H of x and y; of y in tiles: W, H, D, N */
    int32_t pad[2], channels, tiles;
};

template <class T>
__device__ inline void add_product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#define WF_THIN(type)                                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (std::is_same<T, bf16>::value)
        WF_THIN("bf16");
    else
        WF_THIN("f16");
#undef WF_THIN
}

/* Of one lane: weights of 64 filters, and where in the tile's image the other factors of its column
 * begin; taps and channels in Steps times 16. */
template <int Steps> struct Factors {
    uint32_t a[Steps][4][4];
    int at[Steps][4];

    /* `zero`: of a place that holds one. Beyond the taps nothing is read that may be no number. */
    __device__ Factors(const Stem &f, int zero)
    {
        const int lane = (int)threadIdx.x % 32, count = THIN_TAPS * f.channels;
        const uint16_t *const w = f.w + (int64_t)blockIdx.y * THIN_FILTERS * count;
#pragma unroll
        for (int s = 0; s < Steps; s++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int k = s * 16 + lane % 4 * 2 + j % 2 + j / 2 * 8, row = 3 * f.channels;
                at[s][j] = k < count ? k / row * (THIN_W + 2) * f.channels + k % row : zero;
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const int filter = m * 16 + lane / 4 + j % 2 * 8;
                    const int first = s * 16 + lane % 4 * 2 + j / 2 * 8;
                    const uint16_t *const from = w + filter * count + first;
                    a[s][m][j] = (first < count ? from[0] : 0u) |
                                 (first + 1 < count ? (uint32_t)from[1] : 0u) << 16;
                }
            }
    }
};

/* The tile's image with its halo. */
__device__ inline void bring(const Stem &f, const int (&tile)[4], uint16_t *image)
{
    const int row = (THIN_W + 2) * f.channels, first = (tile[0] - f.pad[0]) * f.channels;
    const uint16_t *const from = f.x + tile[2] * f.x_stride[2] + tile[3] * f.x_stride[3];
    const bool packed = f.x_stride[0] == f.channels;
    for (int i = (int)threadIdx.x; i < (THIN_H + 2) * row; i += THREADS) {
        const int h = tile[1] - f.pad[1] + i / row, at = first + i % row;
        const bool inside = h >= 0 && h < f.image[1] && at >= 0 && at < f.image[0] * f.channels;
        const int64_t place = packed ? at : at / f.channels * f.x_stride[0] + at % f.channels;
        image[i] = inside ? from[h * f.x_stride[1] + place] : (uint16_t)0;
    }
}

/* What becomes of a filter's sum: act(sum * scale + bias). */
struct Line {
    float scale, bias;
};

/* The block's filters; their norm is one line with their own bias. */
template <bool Normalises> __device__ inline Line line_of(const Stem &f, int filter)
{
    const float own = f.bias ? f.bias[filter] : 0.0f;
    if constexpr (!Normalises)
        return { 1.0f, own };
    float mean, rstd, weight, bias;
    f.norm.load(0, filter, &mean, &rstd, &weight, &bias);
    return { rstd * weight, fma_of(own - mean, rstd * weight, bias) };
}

/* 8 positions from `base` of the tile's image on. */
template <class T, int Steps, bool Normalises>
__device__ inline void make(const Stem &f, const Factors<Steps> &factors, const uint16_t *image,
                            int base, int zero, const Line *lines, float (&d)[4][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            d[m][i] = Normalises ? 0.0f : lines[m * 16 + lane / 4 + i / 2 * 8].bias;
#pragma unroll
    for (int s = 0; s < Steps; s++) {
        uint32_t v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = image[factors.at[s][j] == zero ? zero : base + factors.at[s][j]];
        const uint32_t b[2] = { v[0] | v[1] << 16, v[2] | v[3] << 16 };
#pragma unroll
        for (int m = 0; m < 4; m++)
            add_product<T>(d[m], factors.a[s][m], b);
    }
    if constexpr (Normalises) {
        const float below = (float)f.norm.below;
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const Line line = lines[m * 16 + lane / 4 + i / 2 * 8];
                const float z = fma_of(d[m][i], line.scale, line.bias);
                d[m][i] = z > 0 ? z : z * below;
            }
    }
}

/* 8 positions with their 64 results, through a warp's piece of shared memory. */
template <class T>
__device__ inline void write(const Stem &f, const float (&d)[4][4], uint8_t *stage, uint16_t *to,
                             int count)
{
    const int lane = (int)threadIdx.x % 32, position = lane % 8;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 4; m += 2) {
        const int eighth = m * 2 + lane / 8;
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = pair_of(T(), d[m + i / 2][i % 2 * 2], d[m + i / 2][i % 2 * 2 + 1]);
        store_transposed(shared_at(stage) + position * THIN_ROW + ((eighth ^ position) << 4), v);
    }
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = h * 4 + lane / 8, eighth = lane % 8;
        const uint4 v = *(const uint4 *)(stage + at * THIN_ROW + ((eighth ^ at) << 4));
        if (at < count)
            __stcs((uint4 *)(to + at * f.y_stride[0]) + eighth, v);
    }
}

/* gridDim: tiles in turn, times 64 filters. */
template <class T, int Steps, int Together, bool Normalises>
__global__ void __launch_bounds__(THREADS, Together) stem(const Stem f)
{
    __shared__ __align__(128) uint8_t stages[THIN_H][THIN_STAGE];
    __shared__ uint16_t image[(THIN_H + 2) * (THIN_W + 2) * THIN_MOST + 1];
    __shared__ Line lines[THIN_FILTERS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = (THIN_W + 2) * f.channels, zero = (THIN_H + 2) * row;
    const Factors<Steps> factors(f, zero);
    if (threadIdx.x < THIN_FILTERS)
        lines[threadIdx.x] =
            line_of<Normalises>(f, (int)(blockIdx.y * THIN_FILTERS + threadIdx.x));
    if (threadIdx.x == 0)
        image[zero] = 0;
    for (int i = (int)blockIdx.x; i < f.tiles; i += (int)gridDim.x) {
        int tile[4], rest = i;
        for (int k = 0; k < 4; k++) {
            tile[k] = rest % f.extent[k] * (k == 0 ? THIN_W : k == 1 ? THIN_H : 1);
            rest /= f.extent[k];
        }
        __syncthreads();
        bring(f, tile, image);
        __syncthreads();
        const int w = tile[0], h = tile[1] + warp;
        uint16_t *const to = f.y + w * f.y_stride[0] + h * f.y_stride[1] + tile[2] * f.y_stride[2] +
                             tile[3] * f.y_stride[3] + blockIdx.y * THIN_FILTERS;
#pragma unroll 2
        for (int g = 0; g < THIN_W && h < f.out[1] && w + g < f.out[0]; g += 8) {
            float d[4][4];
            make<T, Steps, Normalises>(f, factors, image,
                                       warp * row + (g + lane / 4) * f.channels, zero, lines, d);
            write<T>(f, d, stages[warp], to + g * f.y_stride[0], f.out[0] - w - g);
        }
    }
}

template <class T, bool Normalises> static void run_steps(const struct wf_call *call, const Stem &f)
{
    enum { MANY = 3, FEW = 2 }; /* blocks on a multiprocessor: as registers allow */
    const int steps = (int)ceil_div(THIN_TAPS * f.channels, 16);
    const unsigned filters = (unsigned)(call->node->out[0]->shape.at[WF_C] / THIN_FILTERS);
    const int together = steps > 2 ? FEW : MANY;
    const dim3 grid((unsigned)smaller(MULTIPROCESSORS * together, (int)f.tiles), filters);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    switch (steps) {
    case 1:
        launch(stem<T, 1, MANY, Normalises>, grid, THREADS, stream, f);
        break;
    case 2:
        launch(stem<T, 2, MANY, Normalises>, grid, THREADS, stream, f);
        break;
    case 3:
        launch(stem<T, 3, FEW, Normalises>, grid, THREADS, stream, f);
        break;
    case 4:
        launch(stem<T, 4, FEW, Normalises>, grid, THREADS, stream, f);
        break;
    default:
        launch(stem<T, 5, FEW, Normalises>, grid, THREADS, stream, f);
    }
}

static Stem stem_of(const struct wf_call *call)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_view &x = call->in[0], y = wf_view_part(call->out[0], call->work);
    Stem f = {};
    f.x = (const uint16_t *)x.data;
    f.w = (const uint16_t *)call->in[1].data;
    f.y = (uint16_t *)y.data;
    f.bias = (const float *)call->in[2].data;
    f.channels = (int32_t)call->node->in[0]->shape.at[WF_C];
    int64_t tiles = 1;
    for (int k = 0; k < 4; k++) {
        const int axis = WF_W - k;
        const int64_t extent = y.box.hi[axis] - y.box.lo[axis];
        f.extent[k] = (int32_t)ceil_div(extent, k == 0 ? THIN_W : k == 1 ? THIN_H : 1);
        f.y_stride[k] = y.stride[axis];
        tiles *= f.extent[k];
        f.x_stride[k] = x.stride[axis];
        if (k > 1) { /* where y begins: x may begin before */
            f.x += (y.box.lo[axis] - x.box.lo[axis]) * x.stride[axis];
            continue;
        }
        f.image[k] = (int32_t)(x.box.hi[axis] - x.box.lo[axis]);
        f.out[k] = (int32_t)extent;
        f.pad[k] = (int32_t)(a->pad_lo[2 - k] + x.box.lo[axis] - y.box.lo[axis]);
    }
    f.tiles = (int32_t)tiles;
    return f;
}

/* Results are stored by 16 bytes, also in a part of the channels of a larger tensor. */
static bool stores_whole(const Stem &f)
{
    bool whole = (uintptr_t)f.y % 16 == 0;
    for (int64_t stride : f.y_stride)
        whole = whole && stride % 8 == 0;
    return whole;
}

} // namespace wf

using namespace wf;

bool wf_cuda_stem_fits(const struct wf_node *node)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)node->attrs;
    const struct wf_shape &w = node->in[1]->shape;
    bool fits = (node->in[0]->dtype == WF_BF16 || node->in[0]->dtype == WF_F16) &&
                node->out[0]->dtype == node->in[0]->dtype && a->groups == 1 &&
                (!node->in[2] || node->in[2]->dtype == WF_F32) && w.at[WF_C] <= THIN_MOST &&
                w.at[WF_N] % THIN_FILTERS == 0 && a->pad_lo[0] == 0 && a->pad_hi[0] == 0;
    for (int i = 0; i < 3; i++)
        fits =
            fits && a->stride[i] == 1 && a->dilation[i] == 1 && w.at[WF_D + i] == (i == 0 ? 1 : 3);
    return fits;
}

bool wf_cuda_stem(const struct wf_call *call)
{
    if (is_empty(call->work))
        return true;
    const Stem f = stem_of(call);
    if (!stores_whole(f))
        return false;
    if (call->in[0].dtype == WF_BF16)
        run_steps<bf16, false>(call, f);
    else
        run_steps<f16, false>(call, f);
    return cudaPeekAtLastError() == cudaSuccess;
}

bool wf_cuda_stem_norm(const struct wf_call *call)
{
    const struct wf_call conv = call_of_conv(call);
    if (is_empty(call->work))
        return true;
    Stem f = stem_of(&conv);
    f.norm = norm_of(call->node, call->in);
    if (!stores_whole(f))
        return false;
    if (conv.in[0].dtype == WF_BF16)
        run_steps<bf16, true>(&conv, f);
    else
        run_steps<f16, true>(&conv, f);
    return cudaPeekAtLastError() == cudaSuccess;
}
