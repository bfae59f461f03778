/*
 * conv_wgrad of patches.cuh: parts of the positions are summed on their own, and a second pass adds those
 * up in a fixed order.
 */
#include "device/cuda/patches.cuh"

namespace wf
{

enum {
    STAGES = 4,
    WEIGHT_THREADS = 256,
    WEIGHT_ROWS = 2 * WARPS_ROWS,
    WEIGHT_COLUMNS = 2 * WARPS_COLUMNS
};

struct Weights {
    Matrix coarse, fine, to;
    float *part;        /* [part][rows][columns] */
    int64_t each, parts; /* chunks of a part */
    int32_t across;     /* tiles of columns */
};

template <class T>
__global__ void __launch_bounds__(WEIGHT_THREADS, 1) weight_product(const Weights f)
{
    typedef Operand<true, WEIGHT_ROWS, WEIGHT_THREADS> A;
    typedef Operand<true, WEIGHT_COLUMNS, WEIGHT_THREADS> B;
    enum { STAGE = A::BYTES + B::BYTES };
    const int64_t row = (int64_t)(blockIdx.x / (unsigned)f.across) * WEIGHT_ROWS;
    const int64_t column = (int64_t)(blockIdx.x % (unsigned)f.across) * WEIGHT_COLUMNS;
    Sums<2> sums;
    A a;
    B b;
    a.tile(f.coarse, row);
    b.tile(f.fine, column);
    const int64_t first = blockIdx.y * f.each,
                  end = smaller<int64_t>(first + f.each, (f.coarse.rows + CHUNK - 1) / CHUNK);
    int64_t next = first;
    int put = 0, get = 0;
    const auto fetch = [&] {
        if (next < end) {
            char *const to = shared_memory() + put * STAGE;
            a.chunk(f.coarse, to, next * CHUNK);
            b.chunk(f.fine, to + A::BYTES, next * CHUNK);
            next++;
            put = put + 1 == STAGES ? 0 : put + 1;
        }
        copies_commit();
    };
    for (int i = 0; i < STAGES - 2; i++)
        fetch();
    for (int64_t c = first; c < end; c++) {
        copies_wait<STAGES - 3>();
        __syncthreads();
        char *const at = shared_memory() + get * STAGE;
        sums.template add<T, true, true>(at, at + A::BYTES, c > first);
        get = get + 1 == STAGES ? 0 : get + 1;
        products_wait<1>();
        fetch();
    }
    products_wait<0>();
    float *const to = f.part + blockIdx.y * f.to.rows * f.to.columns;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < WEIGHT_COLUMNS / PIECE; i++) {
            const int64_t r = row + sums_row(half), k = column + i * PIECE + threadIdx.x % 4 * 2;
            const float *const sum = &sums.of[i / 16][i % 16 * 4 + half * 2];
            if (r < f.to.rows && k < f.to.columns) { /* columns come in pieces */
                to[r * f.to.columns + k] = sum[0];
                to[r * f.to.columns + k + 1] = sum[1];
            }
        }
}

__global__ void __launch_bounds__(THREADS) add_patch_parts(const Weights f, const Divisor columns)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, count = f.to.rows * f.to.columns;
    int64_t row, column;
    if (i >= count)
        return;
    double sum = 0;
    for (int64_t p = 0; p < f.parts; p++)
        sum += (double)f.part[p * count + i];
    columns.divide(i, &row, &column);
    ((float *)f.to.data)[f.to.row_at(row) + f.to.column_at(column)] = (float)sum;
}

/* Parts of the positions, so that the GPU is filled. */
static Weights weight_parts(const struct wf_shape &dw, const struct wf_region &work)
{
    Weights f = {};
    const int64_t columns = dw.at[WF_D] * dw.at[WF_H] * dw.at[WF_W] * dw.at[WF_C];
    int64_t chunks = 1;
    for (int i = 0; i < WF_C; i++)
        chunks *= larger<int64_t>(0, work.hi[i] - work.lo[i]);
    chunks = larger<int64_t>(1, ceil_div(chunks, CHUNK));
    f.across = (int32_t)ceil_div(columns, WEIGHT_COLUMNS);
    const int64_t tiles = ceil_div(dw.at[WF_N], WEIGHT_ROWS) * f.across;
    f.each = ceil_div(chunks, larger<int64_t>(1, BLOCKS / tiles));
    f.parts = ceil_div(chunks, f.each);
    return f;
}

/* False: not launched, memory lies oddly. */
template <class T> static bool weights_run(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &dw = call->node->out[0]->shape;
    const int64_t all[2] = { 0, dw.at[WF_C] };
    const int64_t filters[2] = { call->work.lo[WF_C], call->work.hi[WF_C] };
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Weights f = weight_parts(dw, call->work);
    f.coarse = image_matrix(call->in[1], a, call->work, a->extent, filters, false);
    f.fine = image_matrix(call->in[0], a, call->work, a->extent, all, true);
    f.to = weight_matrix(call->out[0], a->extent, filters, all);
    f.part = (float *)call->scratch;
    if (!takes_pieces(f.coarse) || !takes_pieces(f.fine))
        return false;
    const dim3 grid((unsigned)(ceil_div(f.to.rows, WEIGHT_ROWS) * f.across), (unsigned)f.parts);
    if (!launch_sharing(weight_product<T>, grid, WEIGHT_THREADS,
                        STAGES * (WEIGHT_ROWS + WEIGHT_COLUMNS) * PANEL_ROW, stream, f))
        return false;
    const int64_t count = f.to.rows * f.to.columns;
    launch(add_patch_parts, blocks_for(count, THREADS), THREADS, stream, f,
           divisor(f.to.columns, count));
    return true;
}

} // namespace wf

using namespace wf;

bool wf_cuda_patches_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    const struct wf_shape &dw = p->node->out[0]->shape;
    const size_t parts =
        (size_t)(weight_parts(dw, p->work).parts * wf_shape_count(dw)) * sizeof(float);
    if (!wf_cuda_conv_wgrad_prepare(p, err))
        return false;
    p->scratch_bytes = larger(p->scratch_bytes, parts);
    return true;
}

void wf_cuda_patches_wgrad(const struct wf_call *call)
{
    const int64_t filters = call->work.hi[WF_C] - call->work.lo[WF_C];
    if (is_empty(call->work) || filters < call->node->out[0]->shape.at[WF_N])
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    if (is_empty(call->work))
        return;
    with_half(call->in[0].dtype, [&](auto t) {
        if (wf_cuda_exact(call) || !weights_run<decltype(t)>(call))
            wf_cuda_conv_wgrad(call);
    });
}
