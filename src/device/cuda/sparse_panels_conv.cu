/* sparse_conv of 16-bit features by products of four warps (sparse_rows.cuh). */
#include "device/cuda/sparse_rows.cuh"

namespace wf
{

enum {
    STAGES = 3,      /* so that two blocks share a multiprocessor */
    STAGES_DEEP = 6, /* where it has one block only */
};

/* Of the tile: where a thread's sums lie, of its upper or lower half. */
__device__ inline int row_of_sum(int half)
{
    return (int)threadIdx.x / 32 * 16 + half * 8 + (int)threadIdx.x % 32 / 4;
}

template <class T, int N>
__device__ inline void put_rows(const RowsOf &f, const float (&sum)[N / 2], const int32_t *own,
                                int64_t column)
{
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t r = own[row_of_sum(half)];
#pragma unroll
        for (int j = 0; j < N / 32; j++) {
            uint32_t v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float *const s = &sum[(j * 4 + e) * 4 + half * 2];
                const int64_t c = column + (j * 4 + e) * PIECE + q * 2;
                float b[2] = {};
                if (f.bias.data && c < f.out) {
                    b[0] = (float)f.bias.get(0, c);
                    b[1] = (float)f.bias.get(0, c + 1);
                }
                v[e] = pair_of(T(), s[0] + b[0], s[1] + b[1]);
            }
            turn_four(v);
            const int64_t c = column + (j * 4 + q) * PIECE;
            if (r >= 0 && c < f.out)
                *(uint4 *)f.y.at<T>(r, c) = uint4{ v[0], v[1], v[2], v[3] };
        }
    }
}

template <int N>
__device__ inline void put_part(const RowsOf &f, const float (&sum)[N / 2], const int32_t *own,
                                int64_t column)
{
    float *const part = f.part + (int64_t)blockIdx.z * f.rows * f.out;
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        const int64_t r = own[row_of_sum(i % 4 / 2)];
        const int64_t c = column + i / 4 * PIECE + (int)threadIdx.x % 4 * 2;
        if (r >= 0 && c < f.out)
            *(uint2 *)&part[r * f.out + c] =
                uint2{ __float_as_uint(sum[i]), __float_as_uint(sum[i + 1]) };
    }
}

/* S: stages. */
template <class T, bool BK, int N, int S>
__global__ void __launch_bounds__(ROW_THREADS, S < STAGES_DEEP ? 2 : 1) rows_product(const RowsOf f)
{
    typedef RowStage<T, BK, N> Stage;
    const int64_t rows = *f.joins.there, first = (int64_t)blockIdx.x * ROWS;
    const int64_t column = (int64_t)blockIdx.y * N;
    TileRows *const tile = (TileRows *)(shared_memory() + S * Stage::BYTES);
    float sum[N / 2];
    if (first >= rows)
        return;
    tile->look(f.joins, first, rows);
    RowFeed<T, BK, N, S> feed(f, *tile, (int)column);
    const int of_warps = same_in_warp((int)threadIdx.x / 128), count = feed.count();
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0;
    for (int i = 0; i < S - 1; i++)
        feed.fetch();
    for (int left = count; left > 0; left--) {
        char *const at = feed.arrive();
        sums_stay(sum);
        products_begin();
        /* All columns, of the last panel zeros, too: products that depend on a condition, or are under way
         * where a loop ends, would wait for each other. */
#pragma unroll
        for (int k = 0; k < Stage::DEEP / 16; k++)
            product<T, false, BK>(sum, at + of_warps * PANEL_BYTES, at + Stage::A, k, 1);
        products_commit();
        feed.fetch();
        products_wait<0>();
        sums_stay(sum);
    }
    if (f.part)
        put_part<N>(f, sum, tile->own, column);
    else
        put_rows<T, N>(f, sum, tile->own, column);
}

/* --- launching --- */

/* False: not launched. */
template <class T, bool BK, int N>
static bool tiles_run(const struct wf_call *call, const RowsOf &f, int splits)
{
    const dim3 grid = row_blocks(f, N, splits);
    const int own = TileRows::bytes(f.joins.count), stage = RowStage<T, BK, N>::BYTES;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (grid.x * grid.y * grid.z <= BLOCKS && STAGES_DEEP * stage + own <= SHARED_MOST)
        return launch_sharing(rows_product<T, BK, N, STAGES_DEEP>, grid, ROW_THREADS,
                              STAGES_DEEP * stage + own, stream, f);
    return launch_sharing(rows_product<T, BK, N, STAGES>, grid, ROW_THREADS, STAGES * stage + own,
                          stream, f);
}

template <class T, bool BK> static bool rows_run(const struct wf_call *call, const RowsOf &f)
{
    const int splits = f.part ? splits_of(call->node, f.rows) : 1;
    bool ran = false;
    with_width(width_of(f.out), [&](auto n) {
        enum { N = decltype(n)::value };
        ran = tiles_run<T, BK, N>(call, f, splits);
    });
    if (ran && splits > 1)
        launch(add_row_parts<T>, blocks_for(f.rows * f.out, THREADS * PIECE), THREADS,
               wf_cuda_stream(call), f, splits);
    return ran;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_fit(const struct wf_node *node)
{
    return PANELS_HERE && gpu_has_panels() && wf_dtype_size(node->in[0]->dtype) == 2 &&
           rows_fit(node, PIECE);
}

bool wf_cuda_rows_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = capacity_of(p->work);
    const int splits = splits_of(p->node, rows);
    if (splits > 1)
        p->scratch_bytes =
            (size_t)(splits * rows * p->node->out[0]->shape.at[WF_C]) * sizeof(float);
    return true;
}

void wf_cuda_rows_conv(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    const RowsOf f = rows_of(call);
    if (f.rows < 1)
        return;
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if constexpr (sizeof(T) == 2)
            if (!takes_pieces<T>(f) ||
                !(a->back ? rows_run<T, true>(call, f) : rows_run<T, false>(call, f)))
                wf_cuda_sparse_conv(call);
    });
}
