/* Operators on a few numbers: what is made of sums. One thread makes one result, in f64. */
#include "device/cuda/device.cuh"

namespace wf
{

struct Tables {
    Table in[3], out[2];
    int64_t first, rows, columns; /* rows [first, first + rows), results in a row */
    int64_t first_column, groups, end, classes;
    double count, eps, momentum, smooth;
};

__device__ inline double mean_of(const Tables &t, int64_t row, int64_t g)
{
    return t.in[0].get(row, g) / t.count;
}
__device__ inline double variance_of(const Tables &t, int64_t row, int64_t g)
{
    const double mean = mean_of(t, row, g);
    const double var = t.in[0].get(row, t.groups + g) / t.count - mean * mean;
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
        const double var = variance_of(t, 0, c) * t.count / (t.count - 1.0);
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
