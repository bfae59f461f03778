/* sparse_conv_wgrad of f32 features by tensor cores (sparse_pairs.cuh, words.cuh). */
#include "device/cuda/sparse_pairs.cuh"
#include "device/cuda/words.cuh"

namespace wf
{

/* Filters of a tile: few where there are few. */
static int filters_of(int64_t out)
{
    return out <= 64 ? 64 : 128;
}

/* Whether two blocks share a multiprocessor: where their sums leave registers for it. */
template <bool Short, int Filters, int N> __host__ __device__ constexpr bool shares()
{
    return Filters * N <= 64 * (Short ? 128 : 96);
}
template <bool Short, int Filters, int N> __host__ __device__ constexpr int stages_of()
{
    return shares<Short, Filters, N>() ? 3 : 4;
}

template <bool Short, int Filters, int N>
__global__ void __launch_bounds__(WEIGHT_THREADS, shares<Short, Filters, N>() ? 2 : 1)
    word_pairs_product(const PairsOf f)
{
    enum { S = stages_of<Short, Filters, N>(), UP = Filters / WORDS_ROWS, C = words_columns<UP, N>() / 8 };
    typedef PairStage<float, Filters, N> Stage;
    static_assert((int)Stage::PAIRS == (int)STAGE_DEEP, "a stage's products are those of its panels");
    PairFeed<float, Filters, N, S> feed(f, (PairList *)(shared_memory() + S * Stage::BYTES));
    const WarpPart<UP, N> part;
    float sum[2][C][4] = {};
    while (feed.window())
        while (char *const at = feed.arrive()) {
            feed.fetch();
            stage_of_words<Short, true, true>(sum, part, at, at + Stage::A);
        }
    put_words(sum, part, [&](int r, int c, float a, float b) {
        const int64_t o = feed.filter + r, i = feed.column + c;
        if (o < f.out && i < f.in)
            *(uint2 *)&feed.part()[o * f.in + i] = uint2{ __float_as_uint(a), __float_as_uint(b) };
    });
}

template <bool Short, int Filters> static bool word_pairs_run(const struct wf_call *call, const PairsOf &f)
{
    bool ran = false;
    with_width(width_of(f.in), [&](auto n) {
        enum { N = decltype(n)::value };
        const int bytes =
            stages_of<Short, Filters, N>() * PairStage<float, Filters, N>::BYTES + (int)sizeof(PairList);
        ran = launch_sharing(word_pairs_product<Short, Filters, N>, pair_blocks(f), WEIGHT_THREADS, bytes,
                             wf_cuda_stream(call), f);
    });
    return ran;
}

template <bool Short> static bool word_pairs_run(const struct wf_call *call, const PairsOf &f)
{
    return filters_of(f.out) == 64 ? word_pairs_run<Short, 64>(call, f)
                                   : word_pairs_run<Short, 128>(call, f);
}

} // namespace wf

using namespace wf;

bool wf_cuda_words_wgrad_fit(const struct wf_node *node)
{
    const struct wf_shape &dw = node->out[0]->shape;
    return gpu_has_words() && node->in[0]->dtype == WF_F32 && node->out[0]->dtype == WF_F32 &&
           dw.at[WF_C] % piece_of<float>() == 0 && dw.at[WF_W] % piece_of<float>() == 0;
}

bool wf_cuda_words_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    return pairs_prepare(p, filters_of(p->node->out[0]->shape.at[WF_W]), err);
}

void wf_cuda_words_wgrad(const struct wf_call *call)
{
    const PairsOf f = pairs_of(call, filters_of(call->node->out[0]->shape.at[WF_W]));
    const bool fits = capacity_of(call->work) > 0 && !wf_cuda_exact(call) &&
                      takes_pieces<float>(f.x) && takes_pieces<float>(f.dy);
    pairs_finish(call, f,
                 fits && (wf_cuda_tf32(call) ? word_pairs_run<true>(call, f)
                                             : word_pairs_run<false>(call, f)));
}
