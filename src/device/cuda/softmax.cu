/* Softmax, the largest channel, layer norm, rows of length one: everything within a position. */
#include "device/cuda/rows.cuh"
#include "device/cuda/sums.cuh"

namespace wf
{

/* --- softmax --- */

template <class T, int Team> __global__ void __launch_bounds__(THREADS) softmax(const Rows r)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    strict<T> top = -INFINITY, sum = 0;
    r.positions.at(p, offset);
    for (int64_t c = lane; c < r.channels; c += Team) {
        const strict<T> x = to_strict(*r.at<const T>(0, offset[0], c));
        top = x > top || x != x ? x : top;
    }
    top = team_max<Team>(top);
    for (int64_t c = lane; c < r.channels; c += Team)
        sum += exp(to_strict(*r.at<const T>(0, offset[0], c)) - top);
    sum = team_sum<Team>(sum);
    for (int64_t c = r.first + lane; c < r.end; c += Team)
        *r.at<T>(1, offset[1], c) =
            To<T>::from((arith<T>)(exp(to_strict(*r.at<const T>(0, offset[0], c)) - top) / sum));
}

template <class T, int Team> __global__ void __launch_bounds__(THREADS) softmax_grad(const Rows r)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[3];
    strict<T> dot = 0;
    r.positions.at(p, offset);
    for (int64_t c = lane; c < r.channels; c += Team)
        dot +=
            to_strict(*r.at<const T>(0, offset[0], c)) * to_strict(*r.at<const T>(1, offset[1], c));
    dot = team_sum<Team>(dot);
    for (int64_t c = r.first + lane; c < r.end; c += Team)
        *r.at<T>(2, offset[2], c) =
            To<T>::from((arith<T>)(to_strict(*r.at<const T>(0, offset[0], c)) *
                                   (to_strict(*r.at<const T>(1, offset[1], c)) - dot)));
}

/* --- argmax --- */

/* One thread for a position: a class map's channels are few. */
template <class T> __global__ void __launch_bounds__(THREADS) argmax(const Rows r)
{
    const int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    r.positions.at(p, offset);
    arith<T> top = to_arith(*r.at<const T>(0, offset[0], 0));
    int best = r.channels == 1 && top > 0;
    for (int64_t c = 1; c < r.channels; c++) {
        const arith<T> x = to_arith(*r.at<const T>(0, offset[0], c));
        best = x > top ? (int)c : best;
        top = x > top ? x : top;
    }
    if (r.dtype[1] == WF_U8)
        *r.at<uint8_t>(1, offset[1], 0) = (uint8_t)best;
    else
        *r.at<int32_t>(1, offset[1], 0) = best;
}

/* --- center and unit_rows --- */

template <class T, int Team>
__global__ void __launch_bounds__(THREADS) center(const Rows r, const Table sums, const double factor)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    r.positions.at(p, offset);
    for (int64_t c = r.first + lane; c < r.end; c += Team)
        *r.at<T>(1, offset[1], c) = To<T>::from((arith<T>)(
            (double)to_strict(*r.at<const T>(0, offset[0], c)) - factor * sums.get(0, c)));
}

template <class T, int Team>
__device__ double row_dot(const Rows &r, const int64_t offset[], int a, int b, int lane)
{
    double sum = 0;
    for (int64_t c = lane; c < r.channels; c += Team)
        sum += (double)to_strict(*r.at<const T>(a, offset[a], c)) *
               (double)to_strict(*r.at<const T>(b, offset[b], c));
    return team_sum<Team>(sum);
}

__device__ inline double unit_factor(double square)
{
    return 1.0 / sqrt(square < WF_UNIT_ROWS_LEAST ? WF_UNIT_ROWS_LEAST : square);
}

template <class T, int Team> __global__ void __launch_bounds__(THREADS) unit_rows(const Rows r)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    r.positions.at(p, offset);
    const double factor = unit_factor(row_dot<T, Team>(r, offset, 0, 0, lane));
    for (int64_t c = r.first + lane; c < r.end; c += Team)
        *r.at<T>(1, offset[1], c) =
            To<T>::from((arith<T>)(factor * (double)to_strict(*r.at<const T>(0, offset[0], c))));
}

template <class T, int Team> __global__ void __launch_bounds__(THREADS) unit_rows_grad(const Rows r)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[3];
    r.positions.at(p, offset);
    const double square = row_dot<T, Team>(r, offset, 0, 0, lane), factor = unit_factor(square);
    double along = row_dot<T, Team>(r, offset, 0, 1, lane) * factor * factor;
    along = square < WF_UNIT_ROWS_LEAST ? 0.0 : along;
    for (int64_t c = r.first + lane; c < r.end; c += Team)
        *r.at<T>(2, offset[2], c) = To<T>::from((arith<T>)(
            factor * ((double)to_strict(*r.at<const T>(1, offset[1], c)) -
                      along * (double)to_strict(*r.at<const T>(0, offset[0], c)))));
}

/* --- layer norm --- */

struct LayerNorm {
    Table w, b;
    double eps;
};

/* Mean and 1 / sqrt(var + eps) of a position; the variance around the mean, in a second pass. */
template <class T, int Team>
__device__ void moments_of(const Rows &r, int64_t offset, int lane, double eps, strict<T> *mean,
                           strict<T> *rstd)
{
    strict<T> sum = 0, square = 0;
    for (int64_t c = lane; c < r.channels; c += Team)
        sum += to_strict(*r.at<const T>(0, offset, c));
    *mean = team_sum<Team>(sum) / (strict<T>)r.channels;
    for (int64_t c = lane; c < r.channels; c += Team) {
        const strict<T> away = to_strict(*r.at<const T>(0, offset, c)) - *mean;
        square += away * away;
    }
    square = team_sum<Team>(square) / (strict<T>)r.channels;
    *rstd = (strict<T>)(1.0 / sqrt((double)square + eps));
}

template <class T, int Team>
__global__ void __launch_bounds__(THREADS) layernorm(const Rows r, const LayerNorm l)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[2];
    strict<T> mean, rstd;
    r.positions.at(p, offset);
    moments_of<T, Team>(r, offset[0], lane, l.eps, &mean, &rstd);
    for (int64_t c = r.first + lane; c < r.end; c += Team) {
        const strict<T> xhat = (to_strict(*r.at<const T>(0, offset[0], c)) - mean) * rstd;
        const strict<T> w = l.w.data ? (strict<T>)l.w.get(0, c) : 1;
        const strict<T> b = l.b.data ? (strict<T>)l.b.get(0, c) : 0;
        *r.at<T>(1, offset[1], c) = To<T>::from((arith<T>)(xhat * w + b));
    }
}

template <class T, int Team>
__global__ void __launch_bounds__(THREADS) layernorm_grad(const Rows r, const LayerNorm l)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[3];
    strict<T> mean, rstd, sum = 0, dot = 0;
    r.positions.at(p, offset);
    moments_of<T, Team>(r, offset[0], lane, l.eps, &mean, &rstd);
    for (int64_t c = lane; c < r.channels; c += Team) {
        const strict<T> w = l.w.data ? (strict<T>)l.w.get(0, c) : 1;
        const strict<T> g = to_strict(*r.at<const T>(1, offset[1], c)) * w;
        sum += g;
        dot += g * (to_strict(*r.at<const T>(0, offset[0], c)) - mean) * rstd;
    }
    sum = team_sum<Team>(sum) / (strict<T>)r.channels;
    dot = team_sum<Team>(dot) / (strict<T>)r.channels;
    for (int64_t c = r.first + lane; c < r.end; c += Team) {
        const strict<T> w = l.w.data ? (strict<T>)l.w.get(0, c) : 1;
        const strict<T> g = to_strict(*r.at<const T>(1, offset[1], c)) * w;
        const strict<T> xhat = (to_strict(*r.at<const T>(0, offset[0], c)) - mean) * rstd;
        *r.at<T>(2, offset[2], c) = To<T>::from((arith<T>)(rstd * (g - sum - xhat * dot)));
    }
}

/* Mean and 1 / sqrt(var + eps) of every position, for the sums below. */
template <class T, int Team>
__global__ void __launch_bounds__(THREADS)
    position_moments(const Rows r, const double eps, strict<T> *moments)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.positions.count)
        return;
    int64_t offset[1];
    strict<T> mean, rstd;
    r.positions.at(p, offset);
    moments_of<T, Team>(r, offset[0], lane, eps, &mean, &rstd);
    if (lane == 0) {
        moments[2 * p] = mean;
        moments[2 * p + 1] = rstd;
    }
}

template <class T, int V> struct LayerSums : OneByOne {
    enum { SUMS = 2, IN = 2, DEPTH = 2, MOST_THREADS = SUM_THREADS };
    struct Loaded {
        Vec<T, V> x, dy;
        strict<T> mean, rstd;
    };
    const strict<T> *moments;

    __device__ void begin(const Columns &, const Lane &, int64_t)
    {
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[2], int64_t p,
                         Loaded &l) const
    {
        l.x.load((const T *)g.data[0] + offset[0]);
        l.dy.load((const T *)g.data[1] + offset[1]);
        l.mean = moments[2 * p];
        l.rstd = moments[2 * p + 1];
    }
    template <class A> __device__ void add(const Loaded &l, A (&sum)[2][V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const strict<T> dy = (strict<T>)l.dy.get(j);
            sum[0][j] += (A)(dy * ((strict<T>)l.x.get(j) - l.mean) * l.rstd);
            sum[1][j] += (A)dy;
        }
    }
    __device__ void end(const Columns &, const Lane &, int64_t, double (&)[2][V]) const
    {
    }
};

static dim3 blocks_of(const Rows &r, int team)
{
    return blocks_for(r.positions.count * team, THREADS);
}

static LayerNorm layer_of(const struct wf_call *call, int w, int b)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    return LayerNorm{ table_of(call->in[w]), b < 0 ? Table{} : table_of(call->in[b]), a->eps };
}

/* f(T(), Int<team>()) over the given views. */
template <class F>
static void rows_call(const struct wf_call *call, const struct wf_view *const views[], int n, F f)
{
    if (is_empty(call->work))
        return;
    const Rows r = rows_over(call->work, call->node->in[0]->shape.at[WF_C], views, n);
    with_type(call->in[0].dtype,
              [&](auto t) { with_team(r.channels, [&](auto team) { f(r, t, team); }); });
}

template <class T, int V>
static void layer_sums_run(const struct wf_call *call, const Columns &g, const Rows &r, double eps)
{
    const size_t parts = sums_scratch(1, r.channels, KINDS);
    strict<T> *const moments = (strict<T> *)((char *)call->scratch + parts);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    with_team(r.channels, [&](auto team) {
        enum { TEAM = decltype(team)::value };
        launch(position_moments<T, TEAM>, blocks_of(r, TEAM), THREADS, stream, r, eps, moments);
    });
    Parts out = {};
    out.part = (double *)call->scratch;
    out.tickets = sums_tickets(call, g);
    out.out[0] = table_of(call->out[0]);
    out.out[1] = table_of(call->out[1]);
    out.factor = 1;
    sums_run<T, V>(g, LayerSums<T, V>{ {}, moments }, out, stream);
}

} // namespace wf

using namespace wf;

void wf_cuda_softmax(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    rows_call(call, views, 2, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(softmax<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call), r);
    });
}

void wf_cuda_softmax_grad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->in[1], &call->out[0] };
    rows_call(call, views, 3, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(softmax_grad<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call),
               r);
    });
}

void wf_cuda_argmax(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    rows_call(call, views, 2, [&](const Rows &r, auto t, auto) {
        launch(argmax<decltype(t)>, blocks_of(r, 1), THREADS, wf_cuda_stream(call), r);
    });
}

void wf_cuda_layernorm(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    const LayerNorm l = layer_of(call, 1, 2);
    rows_call(call, views, 2, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(layernorm<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call), r,
               l);
    });
}

void wf_cuda_layernorm_grad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->in[2], &call->out[0] };
    const LayerNorm l = layer_of(call, 1, -1);
    rows_call(call, views, 3, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(layernorm_grad<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call),
               r, l);
    });
}

bool wf_cuda_layernorm_wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t channels = p->node->in[0]->shape.at[WF_C];
    const int64_t positions = is_empty(p->work) ? 0 : wf_region_count(p->work) / channels;
    p->scratch_bytes = sums_scratch(1, channels, KINDS) +
                       (size_t)larger<int64_t>(0, positions) * 2 * sizeof(double);
    return true;
}

void wf_cuda_layernorm_wgrad(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    if (is_empty(call->work)) {
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
        wf_cuda_set(&call->out[1], 0.0, wf_cuda_stream(call));
        return;
    }
    struct wf_region work = call->work;
    work.lo[WF_C] = 0;
    work.hi[WF_C] = call->node->in[0]->shape.at[WF_C];
    const struct wf_view *const views[] = { &call->in[0] };
    const Side sides[2] = { side_at(call->in[0], work.lo), side_at(call->in[1], work.lo) };
    const Rows r = rows_over(work, work.hi[WF_C], views, 1);
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        const Columns g = columns_over(work, false, sides, 2, SUM_V);
        if (g.v > 1)
            layer_sums_run<T, SUM_V>(call, g, r, a->eps);
        else
            layer_sums_run<T, 1>(call, g, r, a->eps);
    });
}

void wf_cuda_center(const struct wf_call *call)
{
    const struct wf_scale_attrs *a = (const struct wf_scale_attrs *)call->node->attrs;
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    const Table sums = table_of(call->in[1]);
    rows_call(call, views, 2, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(center<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call), r,
               sums, a->factor);
    });
}

void wf_cuda_unit_rows(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    rows_call(call, views, 2, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(unit_rows<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS, wf_cuda_stream(call), r);
    });
}

void wf_cuda_unit_rows_grad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->in[1], &call->out[0] };
    rows_call(call, views, 3, [&](const Rows &r, auto t, auto team) {
        enum { TEAM = decltype(team)::value };
        launch(unit_rows_grad<decltype(t), TEAM>, blocks_of(r, TEAM), THREADS,
               wf_cuda_stream(call), r);
    });
}
