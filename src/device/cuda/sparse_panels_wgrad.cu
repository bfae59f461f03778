/* sparse_conv_wgrad of 16-bit features by products of four warps (sparse_pairs.cuh). */
#include "device/cuda/sparse_pairs.cuh"

namespace wf
{

enum { FILTERS = 2 * WARPS_ROWS, /* of a tile */ STAGES = 3 };

template <class T, int N>
__global__ void __launch_bounds__(WEIGHT_THREADS, 2) pairs_product(const PairsOf f)
{
    typedef PairStage<T, FILTERS, N> Stage;
    PairFeed<T, FILTERS, N, STAGES> feed(f, (PairList *)(shared_memory() + STAGES * Stage::BYTES));
    const int of_warps = same_in_warp((int)threadIdx.x / 128);
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0;
    while (feed.window())
        while (char *const at = feed.arrive()) {
            sums_stay(sum);
            products_begin();
#pragma unroll
            for (int k = 0; k < Stage::PAIRS / 16; k++)
                product<T, true, true>(sum, at + of_warps * PANEL_BYTES, at + Stage::A, k, 1);
            products_commit();
            feed.fetch();
            products_wait<0>(); /* here: where loops end, sums that are under way would wait for each other */
            sums_stay(sum);
        }
    float *const part = feed.part();
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        const int64_t o =
            feed.filter + (int)threadIdx.x / 32 * 16 + i % 4 / 2 * 8 + (int)threadIdx.x % 32 / 4;
        const int64_t c = feed.column + i / 4 * PIECE + (int)threadIdx.x % 4 * 2;
        if (o < f.out && c < f.in)
            *(uint2 *)&part[o * f.in + c] =
                uint2{ __float_as_uint(sum[i]), __float_as_uint(sum[i + 1]) };
    }
}

template <class T> static bool pairs_run(const struct wf_call *call, const PairsOf &f)
{
    bool ran = false;
    with_width(width_of(f.in), [&](auto n) {
        enum { N = decltype(n)::value };
        ran = launch_sharing(pairs_product<T, N>, pair_blocks(f), WEIGHT_THREADS,
                              STAGES * PairStage<T, FILTERS, N>::BYTES + (int)sizeof(PairList),
                              wf_cuda_stream(call), f);
    });
    return ran;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_wgrad_fit(const struct wf_node *node)
{
    const struct wf_shape &dw = node->out[0]->shape;
    return PANELS_HERE && gpu_has_panels() && wf_dtype_size(node->in[0]->dtype) == 2 &&
           dw.at[WF_C] % PIECE == 0 && dw.at[WF_W] % PIECE == 0 && node->out[0]->dtype == WF_F32;
}

bool wf_cuda_rows_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    return pairs_prepare(p, FILTERS, err);
}

void wf_cuda_rows_wgrad(const struct wf_call *call)
{
    const PairsOf f = pairs_of(call, FILTERS);
    bool ran = false;
    if (capacity_of(call->work) > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            typedef decltype(t) T;
            if constexpr (sizeof(T) == 2)
                ran = takes_pieces<T>(f.x) && takes_pieces<T>(f.dy) && pairs_run<T>(call, f);
        });
    pairs_finish(call, f, ran);
}
