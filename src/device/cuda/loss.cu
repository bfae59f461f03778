/* Losses: sums over positions in f64, and their gradients. Dice's sums stand in sums.cu. */
#include "device/cuda/pointwise.cuh"
#include "device/cuda/rows.cuh"

namespace wf
{

enum { LOSS_BLOCKS = 528, LOSS_SUMS = 2 };

struct LossParts {
    double *part; /* [block][2] */
    unsigned *ticket;
    Table out;
};

__device__ inline void add_loss_parts(const LossParts &out, int blocks)
{
    double sum[LOSS_SUMS] = {};
    for (int b = (int)threadIdx.x; b < blocks; b += THREADS)
        for (int k = 0; k < LOSS_SUMS; k++)
            sum[k] += __ldcg(out.part + 2 * b + k);
    block_sum(sum);
    if (threadIdx.x == 0)
        for (int k = 0; k < LOSS_SUMS; k++)
            out.out.put(0, k, sum[k]);
}

__global__ void __launch_bounds__(THREADS) finish_loss(const LossParts out, const int blocks)
{
    add_loss_parts(out, blocks);
}

__device__ inline void put_loss(double (&sum)[LOSS_SUMS], const LossParts &out)
{
    __shared__ bool last;
    block_sum(sum);
    if (threadIdx.x == 0) {
        for (int k = 0; k < LOSS_SUMS; k++)
            out.part[2 * blockIdx.x + k] = sum[k];
        __threadfence();
        last = out.ticket && atomicAdd(out.ticket, 1u) == gridDim.x - 1;
        if (last)
            *out.ticket = 0;
    }
    __syncthreads();
    if (last) {
        __threadfence();
        add_loss_parts(out, (int)gridDim.x);
    }
}

/* --- cross-entropy --- */

struct CrossEntropy {
    Table weights, ds;
    int64_t ignore;
    int32_t has_ignore;

    __device__ bool counts(double label) const
    {
        return !has_ignore || label != (double)ignore;
    }
    /* The class, -1 where there is none of that number; and its weight. */
    __device__ int64_t class_of(double label, int64_t classes, double *weight) const
    {
        const int64_t c = label >= 0 && label < (double)classes ? (int64_t)label : -1;
        *weight = c < 0 ? (double)NAN : weights.data ? weights.get(0, c) : 1.0;
        return c;
    }
};

/* The largest logit of a position and the sum of exp(logit - largest). */
template <class T, int Team>
__device__ void soft_sum(const Rows &r, int64_t offset, int lane, strict<T> *top, strict<T> *sum)
{
    *top = -INFINITY;
    *sum = 0;
    for (int64_t c = lane; c < r.channels; c += Team) {
        const strict<T> x = to_strict(*r.at<const T>(0, offset, c));
        *top = x > *top || x != x ? x : *top;
    }
    *top = team_max<Team>(*top);
    for (int64_t c = lane; c < r.channels; c += Team)
        *sum += exp(to_strict(*r.at<const T>(0, offset, c)) - *top);
    *sum = team_sum<Team>(*sum);
}

template <class T, int Team>
__global__ void __launch_bounds__(THREADS)
    cross_entropy(const Rows r, const CrossEntropy f, const LossParts out)
{
    const int lane = (int)threadIdx.x % Team;
    const int64_t stride = (int64_t)gridDim.x * (THREADS / Team);
    double sum[LOSS_SUMS] = {};
    for (int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team; p < r.count();
         p += stride) {
        int64_t offset[2];
        r.positions.at(p, offset);
        const double label = r.any(1, offset[1], 0);
        if (!f.counts(label))
            continue;
        strict<T> top, total;
        double weight;
        const int64_t c = f.class_of(label, r.channels, &weight);
        soft_sum<T, Team>(r, offset[0], lane, &top, &total);
        if (lane == 0) {
            const strict<T> logit = to_strict(*r.at<const T>(0, offset[0], c < 0 ? 0 : c));
            sum[0] += weight * (double)(log(total) + (top - logit));
            sum[1] += weight;
        }
    }
    put_loss(sum, out);
}

template <class T, int Team>
__global__ void __launch_bounds__(THREADS) cross_entropy_grad(const Rows r, const CrossEntropy f)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[3];
    r.positions.at(p, offset);
    const double label = r.any(1, offset[1], 0);
    const bool counts = f.counts(label);
    strict<T> top = 0, sum = 1;
    double weight = 0;
    const int64_t mine = f.class_of(label, r.channels, &weight);
    if (counts)
        soft_sum<T, Team>(r, offset[0], lane, &top, &sum);
    const strict<T> factor = (strict<T>)(f.ds.get(0, 0) * weight);
    for (int64_t c = r.first + lane; c < r.end; c += Team) {
        const strict<T> e = exp(to_strict(*r.at<const T>(0, offset[0], c)) - top) / sum;
        const strict<T> d = factor * (e - (strict<T>)(c == mine));
        *r.at<T>(2, offset[2], c) = To<T>::from(counts ? (arith<T>)d : 0.0f);
    }
}

/* --- element by element --- */

struct Bce {
    int64_t ignore;
    int32_t has_ignore;
    __device__ void add(double x, double t, double (&sum)[LOSS_SUMS]) const
    {
        if (has_ignore && t == (double)ignore)
            return;
        sum[0] += (x > 0 ? x : x != x ? x : 0) - x * t + log1p(exp(-fabs(x)));
        sum[1] += 1;
    }
};

struct Mse {
    __device__ void add(double x, double t, double (&sum)[LOSS_SUMS]) const
    {
        sum[0] += (x - t) * (x - t);
        sum[1] += 1;
    }
};

template <class F>
__global__ void __launch_bounds__(THREADS) pair_loss(const Flat s, const F f, const int32_t *there, const int64_t each, const LossParts out)
{
    double sum[LOSS_SUMS] = {};
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    int64_t total = s.rows.count * s.inner;
    if (there)
        total = smaller<int64_t>(total, *there * each);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < total; i += stride) {
        int64_t offset[2];
        s.at(i, 1, offset);
        f.add(any_get(s.dtype[0], s.data[0], offset[0]), any_get(s.dtype[1], s.data[1], offset[1]),
              sum);
    }
    put_loss(sum, out);
}

struct BceGrad {
    enum { IN = 2, INDEXED = 0 };
    Table ds;
    int64_t ignore;
    int32_t has_ignore;
    template <class A, int V> __device__ void apply(const A (&x)[2][V], int64_t, A (&y)[V]) const
    {
        const A factor = (A)ds.get(0, 0);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const A e = exp(x[0][j] >= 0 ? -x[0][j] : x[0][j]);
            const A p = (x[0][j] >= 0 ? A(1) : e) / (A(1) + e);
            const bool counts = !has_ignore || x[1][j] != (A)ignore;
            y[j] = counts ? factor * (p - x[1][j]) : A(0);
        }
    }
};

struct MseGrad {
    enum { IN = 2, INDEXED = 0 };
    Table ds;
    template <class A, int V> __device__ void apply(const A (&x)[2][V], int64_t, A (&y)[V]) const
    {
        const A factor = (A)(2.0 * ds.get(0, 0));
#pragma unroll
        for (int j = 0; j < V; j++)
            y[j] = factor * (x[0][j] - x[1][j]);
    }
};

/* --- Dice --- */

struct DiceGrad {
    Table ds;
    int64_t ignore;
    int32_t has_ignore;
};

template <class T>
__global__ void __launch_bounds__(THREADS) dice_grad(const Rows r, const DiceGrad f)
{
    const int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    r.positions.at(p, offset);
    const int64_t classes = r.channels;
    const double label = r.any(0, offset[0], 0);
    const bool counts = !f.has_ignore || label != (double)f.ignore;
    const bool valid =
        classes > 1 ? label >= 0 && label < (double)classes : label == 0 || label == 1;
    const int64_t mine = classes > 1 ? (int64_t)label : label == 1 ? 0 : classes;
    for (int64_t c = r.first; c < r.end; c++) {
        double d = f.ds.get(0, classes + c);
        if (c == mine)
            d += f.ds.get(0, c);
        *r.at<T>(1, offset[1], c) = To<T>::from(!counts ? 0.0f : !valid ? NAN : (float)d);
    }
}

static LossParts loss_parts(const struct wf_call *call)
{
    return LossParts{ (double *)call->scratch, wf_cuda_tickets(call), table_of(call->out[0]) };
}

template <class K, class... A>
static void loss_run(const struct wf_call *call, K kernel, int64_t each, const LossParts &out,
                     A... args)
{
    const dim3 grid(
        (unsigned)larger<int64_t>(1, smaller<int64_t>(LOSS_BLOCKS, ceil_div(each, THREADS))));
    launch(kernel, grid, THREADS, wf_cuda_stream(call), args..., out);
    if (!out.ticket)
        launch(finish_loss, dim3(1), THREADS, wf_cuda_stream(call), out, (int)grid.x);
}

/* False when there is nothing to sum over; then zeros are what comes out. */
static bool has_work(const struct wf_call *call)
{
    if (!is_empty(call->work))
        return true;
    wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    return false;
}

static CrossEntropy ce_of(const struct wf_call *call, int ds)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    return CrossEntropy{ table_of(call->in[2]), ds < 0 ? Table{} : table_of(call->in[ds]),
                         a->ignore, (int32_t)a->has_ignore };
}

template <class F> static void pair_call(const struct wf_call *call, const F &f)
{
    if (!has_work(call))
        return;
    const Side sides[2] = { side_at(call->in[0], call->work.lo),
                            side_at(call->in[1], call->work.lo) };
    const Flat s = flat_over(extents(call->work), sides, 2);
    loss_run(call, pair_loss<F>, s.rows.count * s.inner, loss_parts(call), s, f,
             rows_there(call), call->work.hi[WF_C] - call->work.lo[WF_C]);
}

} // namespace wf

using namespace wf;

bool wf_cuda_loss_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = LOSS_BLOCKS * LOSS_SUMS * sizeof(double);
    return true;
}

void wf_cuda_ce(const struct wf_call *call)
{
    if (!has_work(call))
        return;
    const struct wf_view *const views[] = { &call->in[0], &call->in[1] };
    Rows r = rows_over(call->work, call->node->in[0]->shape.at[WF_C], views, 2);
    r.there = rows_there(call);
    with_type(call->in[0].dtype, [&](auto t) {
        with_team(r.channels, [&](auto team) {
            enum { TEAM = decltype(team)::value };
            loss_run(call, cross_entropy<decltype(t), TEAM>, r.positions.count * TEAM,
                     loss_parts(call), r, ce_of(call, -1));
        });
    });
}

void wf_cuda_ce_grad(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const struct wf_view *const views[] = { &call->in[0], &call->in[1], &call->out[0] };
    const Rows r = rows_over(call->work, call->node->in[0]->shape.at[WF_C], views, 3);
    with_type(call->in[0].dtype, [&](auto t) {
        with_team(r.channels, [&](auto team) {
            enum { TEAM = decltype(team)::value };
            launch(cross_entropy_grad<decltype(t), TEAM>,
                   blocks_for(r.positions.count * TEAM, THREADS), THREADS, wf_cuda_stream(call), r,
                   ce_of(call, 3));
        });
    });
}

void wf_cuda_bce(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    pair_call(call, Bce{ a->ignore, (int32_t)a->has_ignore });
}

void wf_cuda_bce_grad(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    pointwise_call(call, BceGrad{ table_of(call->in[2]), a->ignore, (int32_t)a->has_ignore });
}

void wf_cuda_mse(const struct wf_call *call)
{
    pair_call(call, Mse{});
}

void wf_cuda_mse_grad(const struct wf_call *call)
{
    pointwise_call(call, MseGrad{ table_of(call->in[2]) });
}

void wf_cuda_dice_grad(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    if (is_empty(call->work))
        return;
    const struct wf_view *const views[] = { &call->in[1], &call->out[0] };
    const Rows r = rows_over(call->work, call->node->in[0]->shape.at[WF_C], views, 2);
    const DiceGrad f = { table_of(call->in[2]), a->ignore, (int32_t)a->has_ignore };
    with_type(call->out[0].dtype, [&](auto t) {
        launch(dice_grad<decltype(t)>, blocks_for(r.positions.count, THREADS), THREADS,
               wf_cuda_stream(call), r, f);
    });
}
