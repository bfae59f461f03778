/*
 * Products of the rows of sparse tensors for any element type, width and number of offsets. The offsets that a tile
 * of rows has lie one behind the other, each with its channels: one long sum, without those that are absent.
 */
#include "device/cuda/sparse.cuh"

namespace wf
{

enum { TILE = 64, NARROW = 16, LONG = 256, EACH = 4 };

struct Plain {
    Features x, w, y; /* w: rows are (offset, filter), of the weight as it lies */
    Joins joins;
    Table bias;
    int64_t in, out, filter; /* channels; stride of filters */
    int32_t back;
};

/* A thread for each EACH x EACH of the products of R rows and C columns. */
template <int R, int C> struct PlainTiles {
    enum { DEEP = R == C ? 16 : 32 }; /* of the sum, at once */
    static_assert(R / EACH * (C / EACH) == THREADS, "a thread for each piece of a tile");
    float a[DEEP][R + 1], b[DEEP][C + 1];

    __device__ void multiply(float (&sum)[EACH][EACH]) const
    {
        const int r = (int)threadIdx.x / (C / EACH), c = (int)threadIdx.x % (C / EACH);
        for (int k = 0; k < DEEP; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] =
                        fma_of(a[k][r * EACH + i], b[k][c + j * (C / EACH)], sum[i][j]);
    }
};

/* The offsets of a tile of R rows, some at once. */
template <int R> struct Present {
    enum { TOGETHER = R == TILE ? 64 : 8 };
    int32_t row[TOGETHER][R + 1];
    int32_t is_there[TOGETHER], active[TOGETHER], n;

    __device__ void look(const Joins &joins, int64_t tile, int64_t rows, int first)
    {
        const int count = smaller<int>((int)TOGETHER, joins.count - first);
        __syncthreads();
        for (int k = (int)threadIdx.x; k < TOGETHER; k += THREADS)
            is_there[k] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < count * R; i += THREADS) {
            const int r = i / count, k = i % count;
            row[k][r] = tile + r < rows ? joins.at(tile + r, first + k) : -1;
            if (row[k][r] >= 0)
                is_there[k] = 1;
        }
        __syncthreads();
        for (int k = (int)threadIdx.x; k < count; k += THREADS) {
            int before = 0;
            for (int j = 0; j < k; j++)
                before += is_there[j];
            if (is_there[k])
                active[before] = k;
            if (k == count - 1)
                n = before + is_there[k];
        }
        __syncthreads();
    }
};

template <class T, int R, int C>
__global__ void __launch_bounds__(THREADS) plain_conv(const Plain f)
{
    enum { DEEP = PlainTiles<R, C>::DEEP };
    __shared__ Present<R> present;
    __shared__ PlainTiles<R, C> tiles;
    const int64_t rows = *f.joins.there, tile = (int64_t)blockIdx.x * R;
    const int64_t column = (int64_t)blockIdx.y * C;
    float sum[EACH][EACH] = {};
    if (tile >= rows)
        return;
    static_assert((int)THREADS % (int)DEEP == 0, "a thread keeps its place along the sum");
    const int k = (int)threadIdx.x % DEEP, in = (int)f.in;
    for (int first = 0; first < f.joins.count; first += Present<R>::TOGETHER) {
        present.look(f.joins, tile, rows, first);
        const int deep = present.n * in;
        int which = k / in, c = k % in; /* of the offsets that are there, and the channel */
        for (int k0 = 0; k0 < deep; k0 += DEEP) {
            const int active = k0 + k < deep ? present.active[which] : -1;
            for (int r = (int)threadIdx.x / DEEP; r < R; r += THREADS / DEEP) {
                const int32_t row = active >= 0 ? present.row[active][r] : -1;
                tiles.a[k][r] = row >= 0 ? to_arith(*f.x.at<T>(row, c)) : 0.0f;
            }
            const int64_t of = active >= 0 ? f.joins.weight(first + active) : 0;
            for (int r = (int)threadIdx.x / DEEP; r < C; r += THREADS / DEEP) {
                float w = 0;
                if (active >= 0 && column + r < f.out) {
                    const int64_t o = f.back ? c : column + r, n = f.back ? column + r : c;
                    w = to_arith(((const T *)f.w.data)[of * f.w.row + o * f.filter + n * f.w.step]);
                }
                tiles.b[k][r] = w;
            }
            __syncthreads();
            tiles.multiply(sum);
            __syncthreads();
            for (c += DEEP; c >= in; c -= in)
                which++;
        }
    }
    const int64_t r = tile + (int64_t)threadIdx.x / (C / EACH) * EACH;
    for (int i = 0; i < EACH && r + i < rows; i++)
        for (int j = 0; j < EACH; j++) {
            const int64_t o = column + (int64_t)threadIdx.x % (C / EACH) + j * (C / EACH);
            if (o < f.out)
                *f.y.at<T>(r + i, o) = To<T>::from(
                    sum[i][j] + (f.bias.data ? (float)f.bias.get(0, o) : 0.0f));
        }
}

/* --- the gradient of a weight --- */

struct PlainWeights {
    Features x, dy;
    Joins joins;
    int64_t in, out, each; /* rows of a part */
    float *part;           /* [part][offset][out][in] */
};

template <class T, int R, int C>
__global__ void __launch_bounds__(THREADS) plain_wgrad(const PlainWeights f)
{
    enum { DEEP = PlainTiles<R, C>::DEEP };
    __shared__ PlainTiles<R, C> tiles;
    const int64_t columns = f.joins.count * f.in, column = (int64_t)blockIdx.x * C;
    const int64_t filter = (int64_t)blockIdx.y * R;
    const int64_t first = (int64_t)blockIdx.z * f.each;
    const int64_t end = smaller<int64_t>(*f.joins.there, first + f.each);
    static_assert(THREADS % C == 0, "a thread keeps its column");
    const int mine = (int)threadIdx.x % C, in = (int)f.in;
    const bool valid = column + mine < columns;
    const int offset = valid ? f.joins.weight((int)(column + mine) / in) : 0;
    const int channel = (int)(column + mine) % in;
    float sum[EACH][EACH] = {};
    for (int64_t u = first; u < end; u += DEEP) {
        for (int i = (int)threadIdx.x; i < DEEP * R; i += THREADS) {
            const int k = i / R, c = i % R;
            tiles.a[k][c] = u + k < end && filter + c < f.out
                                ? to_arith(*f.dy.at<T>(u + k, filter + c))
                                : 0.0f;
        }
        for (int k = (int)threadIdx.x / C; k < DEEP; k += THREADS / C) {
            const int32_t from = valid && u + k < end ? f.joins.at(u + k, offset) : -1;
            tiles.b[k][mine] = from >= 0 ? to_arith(*f.x.at<T>(from, channel)) : 0.0f;
        }
        __syncthreads();
        tiles.multiply(sum);
        __syncthreads();
    }
    float *const part = f.part + (int64_t)blockIdx.z * columns * f.out;
    const int64_t o = filter + (int64_t)threadIdx.x / (C / EACH) * EACH;
    for (int i = 0; i < EACH && o + i < f.out; i++)
        for (int j = 0; j < EACH; j++) {
            const int64_t c = column + (int64_t)threadIdx.x % (C / EACH) + j * (C / EACH);
            if (c < columns)
                part[(c / f.in * f.out + o + i) * f.in + c % f.in] = sum[i][j];
        }
}

/* V neighbours of the sum a thread; `ways` threads share the parts, where there are few sums. */
template <int V>
__global__ void __launch_bounds__(THREADS) weight_parts_add(const WeightParts p, const int ways)
{
    enum { AT_ONCE = 8 };
    __shared__ double shared[V][THREADS];
    const int units = THREADS / ways, way = (int)threadIdx.x / units;
    const int64_t i = ((int64_t)blockIdx.x * units + threadIdx.x % units) * V;
    double sum[V] = {};
    for (int s = way; i < p.count && s < p.parts; s += AT_ONCE * ways) {
        Vec<float, V> part[AT_ONCE] = {};
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (s + j * ways < p.parts)
                part[j].load(p.part + (s + j * ways) * p.count + i);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] += s + j * ways < p.parts ? (double)part[j].at(v) : 0.0;
    }
    if (ways > 1) {
#pragma unroll
        for (int v = 0; v < V; v++)
            shared[v][threadIdx.x] = sum[v];
        __syncthreads();
        for (int w = 1; way == 0 && w < ways; w++)
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] += shared[v][w * units + threadIdx.x];
    }
    if (way > 0 || i >= p.count)
        return;
    Vec<float, V> to;
#pragma unroll
    for (int v = 0; v < V; v++)
        to.put(v, (float)sum[v]);
    to.store(p.to + i);
}

void add_weight_parts(const WeightParts &p, struct CUstream_st *stream)
{
    enum { FULL = 132 * 4 * THREADS };
    const int v = p.count % 4 == 0 && (uintptr_t)p.part % 16 == 0 && (uintptr_t)p.to % 16 == 0 ? 4 : 1;
    int ways = 1;
    while (ways < 16 && 2 * ways <= p.parts && p.count / v * ways < FULL)
        ways *= 2;
    const dim3 grid = blocks_for(p.count, v * (THREADS / ways));
    if (v == 4)
        launch(weight_parts_add<4>, grid, THREADS, stream, p, ways);
    else
        launch(weight_parts_add<1>, grid, THREADS, stream, p, ways);
}

/* Rows of a part, so that the GPU is filled. */
static int64_t rows_of_part(const struct wf_shape &dw, int64_t rows)
{
    const bool narrow = dw.at[WF_W] <= NARROW;
    const int64_t tiles = ceil_div(dw.at[WF_N] * dw.at[WF_C], narrow ? LONG : TILE) *
                          ceil_div(dw.at[WF_W], narrow ? NARROW : TILE);
    const int64_t parts = larger<int64_t>(1, smaller(ceil_div(528, tiles), ceil_div(rows, 256)));
    return larger<int64_t>(1, ceil_div(rows, parts));
}

} // namespace wf

using namespace wf;

void wf_cuda_sparse_conv(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    const int64_t rows = capacity_of(call->work);
    Plain f = {};
    f.x = features_of(call->in[0]);
    f.w = { call->in[1].data, call->in[1].stride[WF_N], call->in[1].stride[WF_C] };
    f.filter = call->in[1].stride[WF_W];
    f.y = features_of(call->out[0]);
    f.joins = joins_of(call, 2, w.at[WF_N]);
    f.bias = table_of(call->in[3]);
    f.in = w.at[a->back ? WF_W : WF_C];
    f.out = w.at[a->back ? WF_C : WF_W];
    f.back = (int32_t)a->back;
    if (rows > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            typedef decltype(t) T;
            if (f.out <= NARROW)
                launch(plain_conv<T, LONG, NARROW>, dim3((unsigned)ceil_div(rows, LONG)), THREADS,
                       wf_cuda_stream(call), f);
            else
                launch(plain_conv<T, TILE, TILE>,
                       dim3((unsigned)ceil_div(rows, TILE), (unsigned)ceil_div(f.out, TILE)),
                       THREADS, wf_cuda_stream(call), f);
        });
}

bool wf_cuda_sparse_wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_shape &dw = p->node->out[0]->shape;
    const int64_t rows = capacity_of(p->work);
    const int64_t parts = larger<int64_t>(1, ceil_div(rows, rows_of_part(dw, rows)));
    p->scratch_bytes = (size_t)(parts * wf_shape_count(dw)) * sizeof(float);
    return true;
}

void wf_cuda_sparse_wgrad(const struct wf_call *call)
{
    const struct wf_shape &dw = call->node->out[0]->shape;
    const int64_t rows = capacity_of(call->work);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    PlainWeights f = {};
    f.x = features_of(call->in[0]);
    f.dy = features_of(call->in[1]);
    f.joins = joins_of(call, 2, dw.at[WF_N]);
    f.in = dw.at[WF_C];
    f.out = dw.at[WF_W];
    f.each = rows_of_part(dw, rows);
    f.part = (float *)call->scratch;
    const int64_t parts = ceil_div(rows, f.each);
    if (rows < 1) {
        wf_cuda_set(&call->out[0], 0.0, stream);
        return;
    }
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        const int64_t columns = f.joins.count * f.in;
        if (f.out <= NARROW)
            launch(plain_wgrad<T, NARROW, LONG>,
                   dim3((unsigned)ceil_div(columns, LONG), 1, (unsigned)parts), THREADS, stream, f);
        else
            launch(plain_wgrad<T, TILE, TILE>,
                   dim3((unsigned)ceil_div(columns, TILE), (unsigned)ceil_div(f.out, TILE),
                        (unsigned)parts),
                   THREADS, stream, f);
    });
    add_weight_parts({ f.part, (float *)call->out[0].data, wf_shape_count(dw), (int32_t)parts },
                     stream);
}
