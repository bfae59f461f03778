/*
 * Products of each row with itself by few filters, such as those of a network's last layer. They are bound by reading
 * or writing the rows once, 16 bytes or more at a time; the weight lies in shared memory.
 */
#include "device/cuda/sparse.cuh"

namespace wf
{

enum {
    HEAD_V = 8,       /* channels that are moved at once */
    HEAD_FILTERS = 4, /* that a thread has at once */
    HEAD_LANES = 4,   /* threads of a row */
    HEAD_ROWS = 4 * THREADS / HEAD_LANES, /* of a block */
    HEAD_IN = 1024,   /* most channels */
    HEAD_OUT = 24,    /* and filters */
    HEAD_WEIGHT = 8192,
    HEAD_PARTS = 132 * 2,
    HEAD_PART_ROWS = 256, /* at least */
};

struct Head {
    Features x, y; /* of the gradients: x and dy, dy and dx */
    const void *w; /* [filter][channel] */
    Table bias;
    const int32_t *there;
    int64_t in, out, each; /* rows of a part */
    float *part;           /* [part][filter][channel] */
};

template <class T> __global__ void __launch_bounds__(THREADS) head_conv(const Head f)
{
    enum { AT_ONCE = 4 };
    __shared__ float w[HEAD_FILTERS][HEAD_IN];
    const int64_t rows = *f.there, column = (int64_t)blockIdx.y * HEAD_FILTERS;
    const int in = (int)f.in, lane = (int)threadIdx.x % HEAD_LANES;
    for (int i = (int)threadIdx.x; i < HEAD_FILTERS * in; i += THREADS)
        w[i / in][i % in] = column + i / in < f.out
                                ? to_arith(((const T *)f.w)[(column + i / in) * in + i % in])
                                : 0.0f;
    __syncthreads();
    for (int i = (int)threadIdx.x / HEAD_LANES; i < HEAD_ROWS; i += THREADS / HEAD_LANES) {
        const int64_t r = (int64_t)blockIdx.x * HEAD_ROWS + i;
        float sum[HEAD_FILTERS] = {};
        for (int c = lane * HEAD_V; c < in; c += AT_ONCE * HEAD_LANES * HEAD_V) {
            Vec<T, HEAD_V> x[AT_ONCE] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (r < rows && c + k * HEAD_LANES * HEAD_V < in)
                    x[k].load(f.x.at<T>(r, c + k * HEAD_LANES * HEAD_V));
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int at = c + k * HEAD_LANES * HEAD_V;
#pragma unroll
                for (int j = 0; j < HEAD_V && at < in; j++)
#pragma unroll
                    for (int o = 0; o < HEAD_FILTERS; o++)
                        sum[o] = fma_of(x[k].get(j), w[o][at + j], sum[o]);
            }
        }
#pragma unroll
        for (int o = 0; o < HEAD_FILTERS; o++)
#pragma unroll
            for (int m = 1; m < HEAD_LANES; m *= 2)
                sum[o] += __shfl_xor_sync(0xffffffffu, sum[o], m);
#pragma unroll
        for (int o = 0; o < HEAD_FILTERS; o++)
            if (o % HEAD_LANES == lane && r < rows && column + o < f.out)
                *f.y.at<T>(r, column + o) = To<T>::from(
                    sum[o] + (f.bias.data ? (float)f.bias.get(0, column + o) : 0.0f));
    }
}

/* dx. A thread has HEAD_V channels of a row, and all filters. */
template <class T> __global__ void __launch_bounds__(THREADS) head_back(const Head f)
{
    __shared__ float w[HEAD_WEIGHT];
    const int in = (int)f.in, out = (int)f.out, pieces = in / HEAD_V;
    const int64_t units = (int64_t)*f.there * pieces;
    for (int i = (int)threadIdx.x; i < in * out; i += THREADS)
        w[i] = to_arith(((const T *)f.w)[i]);
    __syncthreads();
    for (int64_t u = (int64_t)blockIdx.x * THREADS + threadIdx.x; u < units;
         u += (int64_t)gridDim.x * THREADS) {
        const int64_t r = u / pieces;
        const int c = (int)(u - r * pieces) * HEAD_V;
        float sum[HEAD_V] = {};
        for (int o = 0; o < out; o++) {
            const float d = to_arith(*f.x.at<T>(r, o));
#pragma unroll
            for (int j = 0; j < HEAD_V; j++)
                sum[j] = fma_of(d, w[o * in + c + j], sum[j]);
        }
        Vec<T, HEAD_V> y;
        y.set_all(sum);
        y.store(f.y.at<T>(r, c));
    }
}

/* The gradient of the weight over a part of the rows. Threads that have the same channels take rows in turn. */
template <class T> __global__ void __launch_bounds__(THREADS) head_wgrad(const Head f)
{
    enum { AT_ONCE = 4 };
    __shared__ float sums[THREADS][HEAD_V];
    const int in = (int)f.in, pieces = in / HEAD_V, lanes = THREADS / pieces;
    const int lane = (int)threadIdx.x / pieces, c = (int)threadIdx.x % pieces * HEAD_V;
    const int64_t first = (int64_t)blockIdx.x * f.each, filter = (int64_t)blockIdx.y * HEAD_FILTERS;
    const int64_t end = smaller<int64_t>(*f.there, first + f.each);
    float *const part = f.part + (int64_t)blockIdx.x * f.out * in;
    float sum[HEAD_FILTERS][HEAD_V] = {};
    for (int64_t r = first + lane; lane < lanes && r < end; r += AT_ONCE * lanes) {
        Vec<T, HEAD_V> x[AT_ONCE] = {};
        float d[AT_ONCE][HEAD_FILTERS] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (r + k * lanes < end) {
                x[k].load(f.x.at<T>(r + k * lanes, c));
#pragma unroll
                for (int o = 0; o < HEAD_FILTERS; o++)
                    if (filter + o < f.out)
                        d[k][o] = to_arith(*f.y.at<T>(r + k * lanes, filter + o));
            }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int o = 0; o < HEAD_FILTERS; o++)
#pragma unroll
                for (int j = 0; j < HEAD_V; j++)
                    sum[o][j] = fma_of(d[k][o], x[k].get(j), sum[o][j]);
    }
#pragma unroll
    for (int o = 0; o < HEAD_FILTERS; o++) {
#pragma unroll
        for (int j = 0; j < HEAD_V; j++)
            sums[threadIdx.x][j] = sum[o][j];
        __syncthreads();
        for (int i = (int)threadIdx.x; filter + o < f.out && i < in; i += THREADS) {
            float all = 0;
            for (int l = 0; l < lanes; l++)
                all += sums[l * pieces + i / HEAD_V][i % HEAD_V];
            part[(filter + o) * in + i] = all;
        }
        __syncthreads();
    }
}

static int64_t rows_of_part(int64_t rows)
{
    return larger<int64_t>(HEAD_PART_ROWS, ceil_div(rows, HEAD_PARTS));
}

static bool weight_fits(const struct wf_shape &w)
{
    return w.at[WF_N] == 1 && w.at[WF_C] % HEAD_V == 0 && w.at[WF_C] <= HEAD_IN &&
           w.at[WF_W] <= HEAD_OUT && w.at[WF_C] * w.at[WF_W] <= HEAD_WEIGHT;
}

/* Whether HEAD_V channels may be moved at once. */
static bool takes_many(const Features &m)
{
    return m.step == 1 && m.row % HEAD_V == 0 && (uintptr_t)m.data % 16 == 0;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_head_fit(const struct wf_node *node)
{
    return !node->in[2] && weight_fits(node->in[1]->shape);
}

bool wf_cuda_rows_head_wgrad_fit(const struct wf_node *node)
{
    return !node->in[2] && node->out[0]->dtype == WF_F32 && weight_fits(node->out[0]->shape);
}

void wf_cuda_rows_head_conv(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    const int64_t rows = capacity_of(call->work);
    Head f = {};
    f.x = features_of(call->in[0]);
    f.y = features_of(call->out[0]);
    f.w = call->in[1].data;
    f.bias = table_of(call->in[3]);
    f.there = rows_there(call);
    f.in = w.at[WF_C];
    f.out = w.at[WF_W];
    if (rows < 1)
        return;
    if (!takes_many(a->back ? f.y : f.x) || (f.bias.data && a->back)) {
        wf_cuda_sparse_conv(call);
        return;
    }
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if (a->back)
            launch(head_back<T>,
                   dim3((unsigned)smaller<int64_t>(132 * 8, ceil_div(rows * (f.in / HEAD_V), THREADS))),
                   THREADS, wf_cuda_stream(call), f);
        else
            launch(head_conv<T>,
                   dim3((unsigned)ceil_div(rows, HEAD_ROWS), (unsigned)ceil_div(f.out, HEAD_FILTERS)),
                   THREADS, wf_cuda_stream(call), f);
    });
}

bool wf_cuda_rows_head_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    const struct wf_shape &dw = p->node->out[0]->shape;
    const int64_t rows = capacity_of(p->work);
    if (!wf_cuda_sparse_wgrad_prepare(p, err))
        return false;
    p->scratch_bytes = larger(p->scratch_bytes, (size_t)(ceil_div(rows, rows_of_part(rows)) *
                                                         wf_shape_count(dw)) *
                                                    sizeof(float));
    return true;
}

void wf_cuda_rows_head_wgrad(const struct wf_call *call)
{
    const struct wf_shape &dw = call->node->out[0]->shape;
    const int64_t rows = capacity_of(call->work);
    Head f = {};
    f.x = features_of(call->in[0]);
    f.y = features_of(call->in[1]);
    f.there = rows_there(call);
    f.in = dw.at[WF_C];
    f.out = dw.at[WF_W];
    f.each = rows_of_part(rows);
    f.part = (float *)call->scratch;
    if (rows < 1 || !takes_many(f.x)) {
        wf_cuda_sparse_wgrad(call);
        return;
    }
    const int64_t parts = ceil_div(rows, f.each);
    with_type(call->in[0].dtype, [&](auto t) {
        launch(head_wgrad<decltype(t)>,
               dim3((unsigned)parts, (unsigned)ceil_div(f.out, HEAD_FILTERS)), THREADS,
               wf_cuda_stream(call), f);
    });
    add_weight_parts({ f.part, (float *)call->out[0].data, wf_shape_count(dw), (int32_t)parts },
                     wf_cuda_stream(call));
}
