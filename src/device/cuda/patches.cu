/*
 * convt and conv of patches.cuh. Memory is what counts: the weights stay in shared memory, blocks go on
 * from tile to tile, and what they read next is on its way while they compute.
 */
#include "device/cuda/patches.cuh"

namespace wf
{

struct Images {
    Matrix from, weights, to;
    Table bias;
    int64_t first_channel; /* of the bias */
    int64_t k, tiles;      /* tiles of rows */
    int32_t across;        /* tiles of columns */
    /* Where patches are cut by the border of the work: positions and taps that are written. */
    int32_t cut, stride[3], kernel[3];
    int64_t lo[3], hi[3];
};

/* Where a tile of the result goes; NOWHERE: outside. */
template <int R, int C> struct Places {
    int64_t row[R], column[C / PIECE];
    float bias[C];
    uint32_t taps[R]; /* a bit for each one that is written */
    int32_t tap[C / PIECE];

    __device__ uint32_t taps_of(const Images &f, int64_t r) const
    {
        int64_t at[WF_C];
        uint32_t bits = 0;
        f.to.position(r, at);
        for (int t = 0; t < f.kernel[0] * f.kernel[1] * f.kernel[2]; t++) {
            const int by[3] = { t / (f.kernel[1] * f.kernel[2]), t / f.kernel[2] % f.kernel[1],
                                t % f.kernel[2] };
            bool inside = true;
            for (int a = 0; a < 3; a++) {
                const int64_t x = at[WF_D + a] * f.stride[a] + by[a];
                inside = inside && x >= f.lo[a] && x < f.hi[a];
            }
            bits |= (uint32_t)inside << t;
        }
        return bits;
    }
    __device__ void rows(const Images &f, int64_t first)
    {
        for (int i = (int)threadIdx.x; i < R; i += (int)blockDim.x) {
            row[i] = first + i < f.to.rows ? f.to.row_at(first + i) : (int64_t)NOWHERE;
            taps[i] = f.cut && first + i < f.to.rows ? taps_of(f, first + i) : ~0u;
        }
    }
    __device__ void columns(const Images &f, int64_t first)
    {
        int64_t c;
        for (int i = (int)threadIdx.x; i < C / PIECE; i += (int)blockDim.x) {
            const int64_t at = first + i * PIECE;
            column[i] = at < f.to.columns ? f.to.column_at(at) : (int64_t)NOWHERE;
            tap[i] = (int32_t)f.to.tap_of(at, &c);
        }
        for (int i = (int)threadIdx.x; i < C; i += (int)blockDim.x) {
            (void)f.to.tap_of(first + i, &c);
            bias[i] = f.bias.data && first + i < f.to.columns
                          ? (float)f.bias.get(0, f.first_channel + c)
                          : 0.0f;
        }
    }
    __device__ void put(const Images &f, int r, int p, const uint32_t (&v)[4]) const
    {
        if (row[r] != NOWHERE && column[p] != NOWHERE && (taps[r] >> tap[p] & 1u))
            *(uint4 *)((uint16_t *)f.to.data + row[r] + column[p]) =
                uint4{ v[0], v[1], v[2], v[3] };
    }
};

template <class T, int N, class P>
__device__ inline void store(const Images &f, const Sums<N> &sums, const P &to)
{
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < N * 4; j++) {
            uint32_t v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float *const bias = &to.bias[j * 32 + e * PIECE + q * 2];
                const float *const sum = &sums.of[j / 4][(j % 4 * 4 + e) * 4 + half * 2];
                v[e] = (uint32_t)To<T>::from(sum[0] + bias[0]).bits |
                       (uint32_t)To<T>::from(sum[1] + bias[1]).bits << 16;
            }
            turn_four(v);
            to.put(f, sums_row(half), j * 4 + q, v);
        }
}

enum { IMAGE_THREADS = 128, IMAGE_STAGES = 5 };

/* convt (BK: the weights' rows are those of k) and conv. The block's columns stay the same. */
template <class T, bool BK, int N>
__global__ void __launch_bounds__(IMAGE_THREADS, 2) image_product(const Images f)
{
    enum { ROWS = WARPS_ROWS, COLUMNS = N * WARPS_COLUMNS, STAGES = BK ? 4 : IMAGE_STAGES };
    typedef Operand<false, ROWS, IMAGE_THREADS> A;
    typedef Operand<BK, COLUMNS, IMAGE_THREADS> B;
    typedef Places<ROWS, COLUMNS> To;
    const int chunks = (int)((f.k + CHUNK - 1) / CHUNK);
    const int64_t column = (int64_t)(blockIdx.x % (unsigned)f.across) * COLUMNS;
    const int64_t by = gridDim.x / (unsigned)f.across, begin = blockIdx.x / (unsigned)f.across;
    char *const weights = shared_memory(), *const stages = weights + chunks * B::BYTES;
    To *const places = (To *)(stages + STAGES * A::BYTES);
    Sums<N> sums;
    A a;
    B b;
    b.tile(f.weights, column);
    for (int c = 0; c < chunks; c++)
        b.chunk(f.weights, weights + c * B::BYTES, c * CHUNK);
    places[0].columns(f, column);
    places[1].columns(f, column);
    int64_t next = begin;
    int next_chunk = 0, put = 0, get = 0, which = 0;
    const auto fetch = [&] {
        if (next < f.tiles) {
            if (next_chunk == 0)
                a.tile(f.from, next * ROWS);
            a.chunk(f.from, stages + put * A::BYTES, next_chunk * CHUNK);
            next += ++next_chunk == chunks ? by : 0;
            next_chunk = next_chunk == chunks ? 0 : next_chunk;
            put = put + 1 == STAGES ? 0 : put + 1;
        }
        copies_commit();
    };
    /* Two stages are read by products that have begun. */
    for (int i = 0; i < STAGES - 2; i++)
        fetch();
    for (int64_t tile = begin; tile < f.tiles; tile += by, which ^= 1) {
        places[which].rows(f, tile * ROWS);
        for (int c = 0; c < chunks; c++) {
            copies_wait<STAGES - 3>();
            __syncthreads();
            sums.template add<T, false, BK>(stages + get * A::BYTES, weights + c * B::BYTES, c > 0);
            get = get + 1 == STAGES ? 0 : get + 1;
            products_wait<1>();
            fetch();
        }
        products_wait<0>();
        store<T, N>(f, sums, places[which]);
    }
}

template <class T, bool BK, int N> static int image_bytes(int64_t k)
{
    enum { COLUMNS = N * WARPS_COLUMNS, STAGES = BK ? 4 : IMAGE_STAGES };
    return (int)ceil_div(k, CHUNK) * COLUMNS * PANEL_ROW + STAGES * PANEL_BYTES +
           2 * (int)sizeof(Places<WARPS_ROWS, COLUMNS>);
}

template <class T, bool BK, int N> static bool image_run(Images f, struct CUstream_st *stream)
{
    f.tiles = ceil_div(f.to.rows, WARPS_ROWS);
    f.across = (int32_t)ceil_div(f.to.columns, N * WARPS_COLUMNS);
    const int64_t by = larger<int64_t>(1, smaller(f.tiles, (int64_t)(2 * BLOCKS / f.across)));
    return launch_sharing(image_product<T, BK, N>, dim3((unsigned)(by * f.across)), IMAGE_THREADS,
                          image_bytes<T, BK, N>(f.k), stream, f);
}

/* The coarse positions of a box of the fine image, or of the coarse one. */
static struct wf_region coarse_of(const struct wf_conv_attrs *a, struct wf_region work, bool fine)
{
    for (int i = 0; i < 3 && fine; i++) {
        const int64_t lo = work.lo[WF_D + i], hi = work.hi[WF_D + i];
        work.lo[WF_D + i] = lo / a->stride[i];
        work.hi[WF_D + i] = ceil_div(hi, a->stride[i]);
    }
    return work;
}

/* False: not launched, memory lies oddly. */
template <class T, bool Back> static bool images_run(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    const int64_t *const kernel = &w.at[WF_D], all[2] = { 0, w.at[Back ? WF_N : WF_C] };
    const int64_t made[2] = { call->work.lo[WF_C], call->work.hi[WF_C] };
    const struct wf_region coarse = coarse_of(a, call->work, Back);
    Images f = {};
    f.from = image_matrix(call->in[0], a, coarse, kernel, all, !Back);
    f.weights = weight_matrix(call->in[1], kernel, Back ? all : made, Back ? made : all);
    f.to = image_matrix(call->out[0], a, coarse, kernel, made, Back);
    f.bias = table_of(call->in[2]);
    f.first_channel = made[0];
    f.k = f.from.columns;
    for (int i = 0; i < 3; i++) {
        const int64_t first = coarse.lo[WF_D + i] * a->stride[i];
        f.stride[i] = (int32_t)a->stride[i];
        f.kernel[i] = (int32_t)kernel[i];
        f.lo[i] = call->work.lo[WF_D + i] - first;
        f.hi[i] = call->work.hi[WF_D + i] - first;
        f.cut |= Back && (f.lo[i] != 0 || f.hi[i] % a->stride[i] != 0);
    }
    return takes_pieces(f.from) && takes_pieces(f.weights) && takes_pieces(f.to) &&
           image_run<T, Back, Back ? 2 : 1>(f, wf_cuda_stream(call));
}

} // namespace wf

using namespace wf;

bool wf_cuda_patches_fit(const struct wf_conv_attrs *a, const struct wf_shape *weights)
{
    enum { SHARED = 220 << 10 };
    const int64_t rows = weights->at[WF_N], columns = wf_patches_taps(weights) * weights->at[WF_C];
    return PANELS_HERE && wf_patches_lie(a, weights) && wf_patches_by_memory(weights) &&
           image_bytes<bf16, true, 2>(rows) <= SHARED &&
           image_bytes<bf16, false, 1>(columns) <= SHARED && gpu_has_panels();
}

#ifdef WF_HAVE_HOPPER
bool wf_cuda_up_fits(const struct wf_conv_attrs *a, const struct wf_shape *weights)
{
    return wf_patches_lie(a, weights) && wf_patches_in_blocks(weights) && gpu_has_panels();
}

static bool runs_up(const struct wf_call *call)
{
    return wf_patches_in_blocks(&call->node->in[1]->shape) && wf_cuda_up(call);
}
#else
bool wf_cuda_up_fits(const struct wf_conv_attrs *, const struct wf_shape *)
{
    return false;
}

static bool runs_up(const struct wf_call *)
{
    return false;
}
#endif

void wf_cuda_patches_conv(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    with_half(call->in[0].dtype, [&](auto t) {
        if (!images_run<decltype(t), false>(call))
            wf_cuda_conv(call);
    });
}

void wf_cuda_patches_convt(const struct wf_call *call)
{
    const struct wf_conv_attrs *const a = (const struct wf_conv_attrs *)call->node->attrs;
    if (is_empty(call->work) || runs_up(call))
        return;
    const bool few = wf_cuda_patches_fit(a, &call->node->in[1]->shape);
    with_half(call->in[0].dtype, [&](auto t) {
        if (!few || !images_run<decltype(t), true>(call))
            wf_cuda_convt(call);
    });
}
