/* Operators on a few numbers: what is made of sums. One thread makes one result, in f64. */
#include "device/cuda/device.cuh"
#include "ops/separation.h"

namespace wf
{

struct Tables {
    Table in[3], out[2];
    int64_t first, rows, columns; /* rows [first, first + rows), results in a row */
    int64_t first_column, groups, end, classes;
    double count, eps, momentum, smooth;
    int32_t counted; /* the count is in the table, behind the sums */
};

/* What the sums in a row are over, `least` where they are over less. */
__device__ inline double total_of(const Tables &t, int64_t row, double least)
{
    const double there = t.counted ? t.in[0].get(row, 2 * t.groups) : t.count;
    return there > least ? there : least;
}
__device__ inline double mean_of(const Tables &t, int64_t row, int64_t g)
{
    return t.in[0].get(row, g) / total_of(t, row, 1);
}
__device__ inline double variance_of(const Tables &t, int64_t row, int64_t g)
{
    const double mean = mean_of(t, row, g);
    const double var = t.in[0].get(row, t.groups + g) / total_of(t, row, 1) - mean * mean;
    return var > 0 ? var : var != var ? var : 0;
}

struct Stats {
    __device__ void operator()(const Tables &t, int64_t row, int64_t g) const
    {
        t.out[0].put(row, g, mean_of(t, row, g));
        t.out[0].put(row, t.groups + g, 1.0 / sqrt(variance_of(t, row, g) + t.eps));
    }
};

struct RunningStats {
    __device__ void operator()(const Tables &t, int64_t, int64_t c) const
    {
        const double var = t.in[1].get(0, c);
        t.out[0].put(0, c, t.in[0].get(0, c));
        t.out[0].put(0, t.columns + c, 1.0 / sqrt((var > 0 ? var : 0) + t.eps));
    }
};

struct RunningUpdate {
    __device__ void operator()(const Tables &t, int64_t, int64_t c) const
    {
        const double count = total_of(t, 0, 2);
        const double var = variance_of(t, 0, c) * count / (count - 1.0);
        const double keep = 1.0 - t.momentum;
        t.out[0].put(0, c, keep * t.in[1].get(0, c) + t.momentum * mean_of(t, 0, c));
        t.out[1].put(0, c, keep * t.in[2].get(0, c) + t.momentum * var);
    }
};

/* Rows that leave the same remainder when divided by the period (`groups`), up to row `end`. */
struct SumRows {
    __device__ void operator()(const Tables &t, int64_t row, int64_t c) const
    {
        double sum = 0;
        for (int64_t n = row % t.groups; n < t.end; n += t.groups)
            sum += t.in[0].get(n, t.first_column + c);
        t.out[0].put(row, t.first_column + c, sum);
    }
};

struct OwnShare {
    __device__ void operator()(const Tables &t, int64_t row, int64_t c) const
    {
        t.out[0].put(row, c, t.count > 0 ? t.in[0].get(row, c) * t.count : 0.0);
    }
};

/* Sums over the samples' rows [first, end). */
struct NormWgrad {
    __device__ void operator()(const Tables &t, int64_t, int64_t c) const
    {
        double dw = 0, db = 0;
        for (int64_t n = t.first; n < t.end; n++) {
            db += t.in[0].get(n, c);
            dw += t.in[0].get(n, t.columns + c);
        }
        t.out[0].put(0, c, dw);
        t.out[1].put(0, c, db);
    }
};

struct Ratio {
    __device__ void operator()(const Tables &t, int64_t, int64_t) const
    {
        const double count = t.in[0].get(0, 1);
        t.out[0].put(0, 0, count != 0 ? t.in[0].get(0, 0) / count : 0.0);
    }
};

struct RatioGrad {
    __device__ void operator()(const Tables &t, int64_t, int64_t) const
    {
        const double sum = t.in[0].get(0, 0), count = t.in[0].get(0, 1), d = t.in[1].get(0, 0);
        t.out[0].put(0, 0, count != 0 ? d / count : 0.0);
        t.out[0].put(0, 1, count != 0 ? -d * sum / count / count : 0.0);
    }
};

/* --- losses of several domains --- */

__device__ inline double row_mean(const Table &t, int64_t row, int64_t columns)
{
    double sum = 0;
    for (int64_t c = 0; c < columns; c++)
        sum += t.get(row, c);
    return sum / (double)columns;
}

/* Sums over the samples' rows [first, end), of `groups` channels. */
struct Spread {
    __device__ void operator()(const Tables &t, int64_t, int64_t) const
    {
        double sum = 0;
        for (int64_t n = t.first; n < t.end; n++) {
            const double mean = row_mean(t.in[0], n, t.groups);
            sum += row_mean(t.in[1], n, t.groups) - mean * mean;
        }
        t.out[0].put(0, 0, sum);
        t.out[0].put(0, 1, (double)(t.end - t.first));
    }
};

struct SpreadGrad {
    __device__ void operator()(const Tables &t, int64_t row, int64_t c) const
    {
        const double each = t.in[1].get(0, 0) / (double)t.groups;
        t.out[0].put(row, t.first_column + c, -2.0 * row_mean(t.in[0], row, t.groups) * each);
        t.out[1].put(row, t.first_column + c, each);
    }
};

/* The kernel of two rows, and its derivative by the square of their distance. */
__device__ inline double mmd_kernel(const Tables &t, const Table &a, int64_t i, const Table &b,
                                    int64_t j, double *slope)
{
    const double widths[] = WF_MMD_WIDTHS;
    double square = 0, k = 0;
    for (int64_t c = 0; c < t.groups; c++) {
        const double d = a.get(i, c) - b.get(j, c);
        square += d * d;
    }
    *slope = 0;
    for (const double width : widths) {
        const double e = exp(-square / (2.0 * width));
        k += e;
        *slope -= e / (2.0 * width);
    }
    return k;
}

/* One warp, whose lanes take the samples of the batch (`classes` of them) in turn. */
__global__ void mmd(const Tables t)
{
    double sum = 0, slope;
    for (int64_t i = t.first; i < t.end; i++)
        for (int64_t j = threadIdx.x; j < t.classes; j += 32)
            sum += mmd_kernel(t, t.in[0], i, t.in[0], j, &slope) +
                   mmd_kernel(t, t.in[1], i, t.in[1], j, &slope) -
                   2.0 * mmd_kernel(t, t.in[0], i, t.in[1], j, &slope);
    for (int m = 16; m > 0; m /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, m);
    if (threadIdx.x == 0)
        t.out[0].put(0, 0, sum / t.count);
}

struct MmdGrad {
    __device__ void operator()(const Tables &t, int64_t row, int64_t column) const
    {
        const int64_t c = t.first_column + column;
        const double x = t.in[0].get(row, c);
        double sum = 0, slope;
        for (int64_t j = 0; j < t.classes; j++) {
            (void)mmd_kernel(t, t.in[0], row, t.in[0], j, &slope);
            sum += slope * (x - t.in[0].get(j, c));
            (void)mmd_kernel(t, t.in[0], row, t.in[1], j, &slope);
            sum -= slope * (x - t.in[1].get(j, c));
        }
        t.out[0].put(row, c, 4.0 * t.in[2].get(0, 0) / t.count * sum);
    }
};

/* 2 I + s and P + T + s of class c. */
__device__ inline double dice_over(const Tables &t, int64_t c)
{
    return 2.0 * t.in[0].get(0, c) + t.smooth;
}
__device__ inline double dice_under(const Tables &t, int64_t c)
{
    return t.in[0].get(0, t.classes + c) + t.in[0].get(0, 2 * t.classes + c) + t.smooth;
}

struct DiceLoss {
    __device__ void operator()(const Tables &t, int64_t, int64_t) const
    {
        double sum = 0;
        for (int64_t c = 0; c < t.classes; c++)
            sum += dice_over(t, c) / dice_under(t, c);
        t.out[0].put(0, 0, 1.0 - sum / (double)t.classes);
    }
};

struct DiceLossGrad {
    __device__ void operator()(const Tables &t, int64_t, int64_t c) const
    {
        const double d = t.in[1].get(0, 0) / (double)t.classes, under = dice_under(t, c);
        const double down = d * dice_over(t, c) / (under * under);
        t.out[0].put(0, c, -2.0 * d / under);
        t.out[0].put(0, t.classes + c, down);
        t.out[0].put(0, 2 * t.classes + c, down);
    }
};

template <class F> __global__ void __launch_bounds__(THREADS) tables(const Tables t, const F f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < t.rows * t.columns)
        f(t, t.first + i / t.columns, i % t.columns);
}

static Tables tables_of(const struct wf_call *call, int64_t rows, int64_t columns)
{
    Tables t = {};
    for (int i = 0; i < call->node->n_in && i < 3; i++)
        t.in[i] = table_of(call->in[i]);
    for (int o = 0; o < call->node->n_out && o < 2; o++)
        t.out[o] = table_of(call->out[o]);
    t.rows = rows;
    t.columns = columns;
    return t;
}

/* As tables_of(), with a normalisation's numbers. */
static Tables norm_tables(const struct wf_call *call, int64_t rows, int64_t columns)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    Tables t = tables_of(call, rows, columns);
    t.groups = columns;
    t.count = (double)a->count;
    t.counted = wf_norm_counts(a);
    t.eps = a->eps;
    t.momentum = a->momentum;
    return t;
}

template <class F> static void tables_run(const struct wf_call *call, const Tables &t, F f)
{
    if (t.rows * t.columns > 0)
        launch(tables<F>, blocks_for(t.rows * t.columns, THREADS), THREADS, wf_cuda_stream(call), t,
               f);
}

static Tables dice_tables(const struct wf_call *call, bool all)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    Tables t = tables_of(call, 1, all ? a->classes : 1);
    t.classes = a->classes;
    t.smooth = a->smooth;
    return t;
}

} // namespace wf

using namespace wf;

void wf_cuda_stats(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    Tables t = norm_tables(call, call->work.hi[WF_N] - call->work.lo[WF_N], a->groups);
    t.first = call->work.lo[WF_N];
    tables_run(call, t, Stats());
}

void wf_cuda_running_stats(const struct wf_call *call)
{
    tables_run(call, norm_tables(call, 1, call->node->in[0]->shape.at[WF_C]), RunningStats());
}

void wf_cuda_running_update(const struct wf_call *call)
{
    tables_run(call, norm_tables(call, 1, call->node->in[1]->shape.at[WF_C]), RunningUpdate());
}

void wf_cuda_norm_wgrad(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    Tables t = norm_tables(call, 1, call->node->in[0]->shape.at[WF_C] / 2);
    t.end = 1;
    if (a->per_sample) {
        t.first = call->work.lo[WF_N];
        t.end = is_empty(call->work) ? t.first : call->work.hi[WF_N];
    }
    tables_run(call, t, NormWgrad());
}

void wf_cuda_ratio(const struct wf_call *call)
{
    tables_run(call, tables_of(call, 1, 1), Ratio());
}

void wf_cuda_ratio_grad(const struct wf_call *call)
{
    tables_run(call, tables_of(call, 1, 1), RatioGrad());
}

void wf_cuda_dice_loss(const struct wf_call *call)
{
    tables_run(call, dice_tables(call, false), DiceLoss());
}

void wf_cuda_dice_loss_grad(const struct wf_call *call)
{
    tables_run(call, dice_tables(call, true), DiceLossGrad());
}

void wf_cuda_sum_rows(const struct wf_call *call)
{
    const struct wf_sum_rows_attrs *a = (const struct wf_sum_rows_attrs *)call->node->attrs;
    Tables t = tables_of(call, call->work.hi[WF_N] - call->work.lo[WF_N],
                         call->work.hi[WF_C] - call->work.lo[WF_C]);
    t.first = call->work.lo[WF_N];
    t.first_column = call->work.lo[WF_C];
    t.groups = a->period;
    t.end = call->node->in[0]->shape.at[WF_N];
    if (!is_empty(call->work))
        tables_run(call, t, SumRows());
}

/* Over all that the output holds. */
void wf_cuda_local_sums(const struct wf_call *call)
{
    const struct wf_region &box = call->out[0].box;
    const double own = is_empty(call->work) ? 0 : (double)wf_region_count(call->work);
    Tables t = tables_of(call, box.hi[WF_N] - box.lo[WF_N], box.hi[WF_C] - box.lo[WF_C]);
    t.in[1] = Table{};
    t.first = box.lo[WF_N];
    t.count = own > 0 ? (double)wf_shape_count(call->node->in[1]->shape) / own : 0;
    tables_run(call, t, OwnShare());
}

/* Of vectors [N,1,1,1,C]: a thread for each row of the work, or for each of its elements. */
static Tables vector_tables(const struct wf_call *call, bool elements)
{
    const struct wf_shape &x = call->node->in[0]->shape;
    const struct wf_region &w = call->work;
    Tables t = tables_of(call, 1, 1);
    t.groups = x.at[WF_C];
    t.classes = x.at[WF_N];
    t.count = (double)(x.at[WF_N] * x.at[WF_N]);
    t.first = w.lo[WF_N];
    t.end = is_empty(w) ? t.first : w.hi[WF_N];
    if (elements) {
        t.rows = t.end - t.first;
        t.first_column = w.lo[WF_C];
        t.columns = w.hi[WF_C] - w.lo[WF_C];
    }
    return t;
}

void wf_cuda_spread(const struct wf_call *call)
{
    Tables t = vector_tables(call, false);
    tables_run(call, t, Spread());
}

void wf_cuda_spread_grad(const struct wf_call *call)
{
    tables_run(call, vector_tables(call, true), SpreadGrad());
}

void wf_cuda_mmd(const struct wf_call *call)
{
    launch(mmd, 1, 32, wf_cuda_stream(call), vector_tables(call, false));
}

void wf_cuda_mmd_grad(const struct wf_call *call)
{
    tables_run(call, vector_tables(call, true), MmdGrad());
}
