/* Sums over the image: moments, sums per channel and per sample, Dice's sums. */
#include "device/cuda/sums.cuh"

namespace wf
{

/* x, and with Sums == 2 its square. */
template <class T, int V, int Sums> struct Powers : OneByOne {
    enum { SUMS = Sums, IN = 1, DEPTH = sizeof(T) > 2 ? 4 : 8, MOST_THREADS = SUM_THREADS };
    typedef Vec<T, V> Loaded;

    __device__ void begin(const Columns &, const Lane &, int64_t)
    {
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[1], int64_t,
                         Loaded &x) const
    {
        x.load((const T *)g.data[0] + offset[0]);
    }
    template <class A> __device__ void add(const Loaded &x, A (&sum)[Sums][V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const A value = (A)x.get(j);
            sum[0][j] += value;
            if (Sums > 1)
                sum[Sums - 1][j] = fma_of(value, value, sum[Sums - 1][j]);
        }
    }
    __device__ void end(const Columns &, const Lane &, int64_t, double (&)[Sums][V]) const
    {
    }
};

/* One class of a soft Dice: p * t, p, t. The target is a side of one channel. */
template <class T> struct Dice : OneByOne {
    enum { SUMS = 3, IN = 2, DEPTH = 4, MOST_THREADS = SUM_THREADS };
    struct Loaded {
        T p;
        double label;
    };
    int64_t classes, ignore;
    int32_t has_ignore;
    int64_t mine;

    __device__ void begin(const Columns &g, const Lane &lane, int64_t)
    {
        mine = g.first_channel + lane.c;
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[2], int64_t,
                         Loaded &x) const
    {
        x.p = ((const T *)g.data[0])[offset[0]];
        x.label = any_get(g.dtype[1], g.data[1], offset[1]);
    }
    template <class A> __device__ void add(const Loaded &x, A (&sum)[3][1]) const
    {
        if (has_ignore && x.label == (double)ignore)
            return;
        const bool valid =
            classes > 1 ? x.label >= 0 && x.label < (double)classes : x.label == 0 || x.label == 1;
        const int64_t owner = classes > 1 ? (int64_t)x.label : x.label == 1 ? 0 : 1;
        const A t = !valid ? (A)NAN : owner == mine ? A(1) : A(0);
        const A p = (A)to_arith(x.p);
        sum[0][0] += p * t;
        sum[1][0] += p;
        sum[2][0] += t;
    }
    __device__ void end(const Columns &, const Lane &, int64_t, double (&)[3][1]) const
    {
    }
};

/* Channels of a group together: one block for each group, kind and row. */
__global__ void __launch_bounds__(THREADS)
    finish_groups(const Columns g, const Parts out, const int blocks, const int width)
{
    __shared__ double shared[THREADS];
    const int group = (int)blockIdx.x, kind = (int)blockIdx.y;
    const double *from =
        out.part + ((int64_t)blockIdx.z * blocks * 2 + kind) * g.channels + (int64_t)group * width;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < blocks * width; i += THREADS)
        sum += from[(int64_t)(i / width) * 2 * g.channels + i % width];
    shared[threadIdx.x] = sum;
    for (int m = THREADS / 2; m > 0; m /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < m)
            shared[threadIdx.x] += shared[threadIdx.x + m];
    }
    if (threadIdx.x == 0)
        out.out[kind].put(g.first_row + blockIdx.z,
                          out.first[kind] + g.first_channel / width + group,
                          shared[0] * out.factor);
    if (out.count_at && threadIdx.x == 0 && kind == 0 && group == 0)
        out.out[0].put(g.first_row + blockIdx.z, out.count_at, (double)g.count());
}

template <class T, int V, int Sums>
static void powers_run(const struct wf_call *call, const Columns &g, Parts out, int64_t width)
{
    const Powers<T, V, Sums> f = {};
    struct CUstream_st *stream = wf_cuda_stream(call);
    if (width == 1) {
        out.tickets = sums_tickets(call, g);
        sums_run<T, V>(g, f, out, stream);
        return;
    }
    const int blocks = sums_parts<T, V>(g, f, out, stream);
    launch(finish_groups, dim3((unsigned)(g.channels / width), Sums, (unsigned)g.rows), THREADS,
           stream, g, out, blocks, (int)width);
}

/* Sums of x, or of x and x * x, over the work; groups of `width` channels become one. */
template <int Sums>
static void powers(const struct wf_call *call, bool by_sample, Parts out, int64_t width)
{
    const Side x = side_at(call->in[0], call->work.lo);
    out.part = (double *)call->scratch;
    with_type(x.dtype, [&](auto t) {
        typedef decltype(t) T;
        Columns g = columns_over(call->work, by_sample, &x, 1, SUM_V);
        g.there = rows_there(call);
        if (g.v > 1)
            powers_run<T, SUM_V, Sums>(call, g, out, width);
        else
            powers_run<T, 1, Sums>(call, g, out, width);
    });
}

/* What the work does not sum over becomes zero. */
static void clear_unless_whole(const struct wf_call *call, int output, bool by_sample)
{
    const struct wf_view *out = &call->out[output];
    const int64_t channels = call->node->in[call->node->op->over]->shape.at[WF_C];
    const bool all_rows = !by_sample || (call->work.lo[WF_N] <= out->box.lo[WF_N] &&
                                         call->work.hi[WF_N] >= out->box.hi[WF_N]);
    if (is_empty(call->work) || !all_rows || call->work.lo[WF_C] > 0 ||
        call->work.hi[WF_C] < channels)
        wf_cuda_set(out, 0.0, wf_cuda_stream(call));
}

} // namespace wf

using namespace wf;

bool wf_cuda_columns_prepare(struct wf_prepare *p, struct wf_err *)
{
    /* A table for each sample, or one: rows of points are as many samples, with one table. */
    const bool by_sample = p->node->out[0]->shape.at[WF_N] > 1;
    const int64_t samples =
        by_sample ? larger<int64_t>(1, p->work.hi[WF_N] - p->work.lo[WF_N]) : 1;
    const int64_t channels = p->node->in[p->node->op->over]->shape.at[WF_C];
    p->scratch_bytes = larger(sums_scratch(1, channels, KINDS), sums_scratch(samples, channels, KINDS));
    return true;
}

void wf_cuda_moments(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    const bool empty = is_empty(call->work);
    const int64_t width = call->node->in[0]->shape.at[WF_C] / a->groups;
    if (empty)
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    else if (!a->per_sample)
        clear_unless_whole(call, 0, false);
    if (empty)
        return;
    Parts out = {};
    out.out[0] = out.out[1] = table_of(call->out[0]);
    out.first[1] = a->groups;
    out.factor = 1;
    out.count_at = wf_norm_counts(a) ? 2 * a->groups : 0;
    powers<2>(call, a->per_sample, out, width);
}

void wf_cuda_channel_sum(const struct wf_call *call)
{
    clear_unless_whole(call, 0, false);
    if (is_empty(call->work))
        return;
    Parts out = {};
    out.out[0] = table_of(call->out[0]);
    out.factor = 1;
    powers<1>(call, false, out, 1);
}

void wf_cuda_global_pool(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = (const struct wf_spread_attrs *)call->node->attrs;
    clear_unless_whole(call, 0, true);
    if (is_empty(call->work))
        return;
    Parts out = {};
    out.out[0] = table_of(call->out[0]);
    out.factor = a->factor;
    powers<1>(call, true, out, 1);
}

void wf_cuda_dice(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = (const struct wf_loss_attrs *)call->node->attrs;
    const int64_t classes = call->node->in[0]->shape.at[WF_C];
    clear_unless_whole(call, 0, false);
    if (is_empty(call->work))
        return;
    int64_t labels[WF_AXES];
    memcpy(labels, call->work.lo, sizeof labels);
    labels[WF_C] = 0;
    Side sides[2] = { side_at(call->in[0], call->work.lo), side_at(call->in[1], labels) };
    sides[1].stride[WF_C] = 0;
    Columns g = columns_over(call->work, false, sides, 2, 1);
    g.there = rows_there(call);
    Parts out = {};
    out.part = (double *)call->scratch;
    out.tickets = sums_tickets(call, g);
    out.factor = 1;
    for (int k = 0; k < 3; k++) {
        out.out[k] = table_of(call->out[0]);
        out.first[k] = k * classes;
    }
    with_type(sides[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        const Dice<T> f = { {}, classes, a->ignore, (int32_t)a->has_ignore, 0 };
        sums_run<T, 1>(g, f, out, wf_cuda_stream(call));
    });
}
