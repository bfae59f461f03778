/* sparse_conv of f32 features by tensor cores (sparse_rows.cuh, words.cuh). */
#include "device/cuda/sparse_rows.cuh"
#include "device/cuda/words.cuh"

namespace wf
{

enum { UP = ROWS / WORDS_ROWS };

/* Two blocks share a multiprocessor where their sums leave registers for it. */
template <int N> __host__ __device__ constexpr int blocks_at_once()
{
    return N <= 64 ? 2 : 1;
}
template <int N> __host__ __device__ constexpr int stages_of()
{
    return N <= 64 ? 3 : 4;
}

template <bool Short, bool BK, int N>
__global__ void __launch_bounds__(ROW_THREADS, blocks_at_once<N>()) words_product(const RowsOf f)
{
    enum { S = stages_of<N>(), C = words_columns<UP, N>() / 8 };
    typedef RowStage<float, BK, N> Stage;
    const int64_t rows = *f.joins.there, first = (int64_t)blockIdx.x * ROWS;
    const int column = (int)blockIdx.y * N;
    TileRows *const tile = (TileRows *)(shared_memory() + S * Stage::BYTES);
    if (first >= rows)
        return;
    tile->look(f.joins, first, rows);
    RowFeed<float, BK, N, S> feed(f, *tile, column);
    const WarpPart<UP, N> part;
    float sum[2][C][4] = {};
    const int count = feed.count();
    for (int i = 0; i < S - 1; i++)
        feed.fetch();
    for (int left = count; left > 0; left--) {
        char *const at = feed.arrive();
        feed.fetch();
        stage_of_words<Short, false, BK>(sum, part, at, at + Stage::A);
    }
    float *const split = f.part ? f.part + (int64_t)blockIdx.z * f.rows * f.out : NULL;
    put_words(sum, part, [&](int r, int c, float a, float b) {
        const int64_t row = tile->own[r];
        c += column;
        if (row < 0 || c >= f.out)
            return;
        if (!split && f.bias.data) {
            a += (float)f.bias.get(0, c);
            b += (float)f.bias.get(0, c + 1);
        }
        *(uint2 *)(split ? split + row * f.out + c : f.y.at<float>(row, c)) =
            uint2{ __float_as_uint(a), __float_as_uint(b) };
    });
}

/* False: not launched. */
template <bool Short, bool BK>
static bool words_run(const struct wf_call *call, const RowsOf &f)
{
    const int splits = f.part ? splits_of(call->node, f.rows) : 1;
    bool ran = false;
    with_width(width_of(f.out), [&](auto n) {
        enum { N = decltype(n)::value };
        const int bytes =
            stages_of<N>() * RowStage<float, BK, N>::BYTES + TileRows::bytes(f.joins.count);
        ran = launch_sharing(words_product<Short, BK, N>, row_blocks(f, N, splits), ROW_THREADS, bytes,
                             wf_cuda_stream(call), f);
    });
    if (ran && splits > 1)
        launch(add_row_parts<float>, blocks_for(f.rows * f.out, THREADS * piece_of<float>()), THREADS,
               wf_cuda_stream(call), f, splits);
    return ran;
}

} // namespace wf

using namespace wf;

bool wf_cuda_words_fit(const struct wf_node *node)
{
    return gpu_has_words() && node->in[0]->dtype == WF_F32 && rows_fit(node, piece_of<float>());
}

/* Splits add up in an order that depends on the tile, so sums that must not depend on the mesh are made elsewhere. */
void wf_cuda_words_conv(const struct wf_call *call)
{
    const bool back = ((const struct wf_sparse_conv_attrs *)call->node->attrs)->back;
    const RowsOf f = rows_of(call);
    if (f.rows < 1)
        return;
    const bool ran = !wf_cuda_exact(call) && takes_pieces<float>(f) &&
                     (wf_cuda_tf32(call) ? (back ? words_run<true, true>(call, f)
                                                 : words_run<true, false>(call, f))
                                         : (back ? words_run<false, true>(call, f)
                                                 : words_run<false, false>(call, f)));
    if (!ran)
        wf_cuda_sparse_conv(call);
}
