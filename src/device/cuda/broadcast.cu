/*
 * Sums and products of an image and what is broadcast to it, PReLU, and the sums that their gradients need.
 *
 * A side that has extent one along an axis is walked with a stride of zero. One thread makes V channels of a
 * position; a vector's channels come from the cache, a map's element is read once for all of them.
 */
#include "device/cuda/pointwise.cuh"
#include "device/cuda/rows.cuh"
#include "device/cuda/spatial.cuh"
#include "device/cuda/sums.cuh"

namespace wf
{

/* A view whose axes of extent one, where the result has more, stand still. */
static struct wf_view spread(const struct wf_view &view, const struct wf_value *in,
                             const struct wf_shape &whole)
{
    struct wf_view v = view;
    for (int a = 0; a < WF_AXES; a++)
        if (in->shape.at[a] == 1 && whole.at[a] > 1) {
            v.stride[a] = 0;
            v.box.lo[a] = 0;
            v.box.hi[a] = whole.at[a];
        }
    return v;
}

/* --- an image and a vector or a map --- */

enum { ROW, ONE }; /* how channels are read: V of them, or one for all */

/* V numbers of the broadcast side, which has the image's type or is f32. */
template <class T, int V>
__device__ void take(const Image &m, int how, const Place &at, arith<T> (&out)[V])
{
    const int64_t offset = m.at(at.n, at.x[0], at.x[1], at.x[2]) + at.c * m.stride[WF_C];
    if (m.dtype == WF_F32) {
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = ((const float *)m.data)[offset + (how == ONE ? 0 : j * m.stride[WF_C])];
    } else if (how == ONE) {
        const arith<T> x = to_arith(((const T *)m.data)[offset]);
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = x;
    } else {
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = to_arith(((const T *)m.data)[offset + j * m.stride[WF_C]]);
    }
}

struct Add {
    template <class A> __device__ A operator()(A a, A b) const
    {
        return a + b;
    }
};

struct Multiply {
    template <class A> __device__ A operator()(A a, A b) const
    {
        return a * b;
    }
};

template <class G> struct Pair {
    Image x, b, y;
    int how;
    G g;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        Vec<T, V> v;
        arith<T> other[V];
        v.load(element<T>(x, at.n, at.x, at.c));
        take<T, V>(b, how, at, other);
#pragma unroll
        for (int j = 0; j < V; j++)
            v.set(j, g(v.get(j), other[j]));
        v.store(element<T>(y, at.n, at.x, at.c));
    }
};

/* dy, or x itself, where x is above 0, else times the weight. */
struct Prelu {
    Image x, w, dy, y;
    int how;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        Vec<T, V> v, d;
        arith<T> weight[V];
        v.load(element<T>(x, at.n, at.x, at.c));
        d.load(element<T>(dy, at.n, at.x, at.c));
        take<T, V>(w, how, at, weight);
#pragma unroll
        for (int j = 0; j < V; j++)
            d.set(j, v.get(j) > 0 ? d.get(j) : d.get(j) * weight[j]);
        d.store(element<T>(y, at.n, at.x, at.c));
    }
};

/* Any shapes and types: the pointwise kernel with strides of zero. */
template <int Inputs, class F> static void spread_call(const struct wf_call *call, const F &f)
{
    Side sides[SIDES];
    if (is_empty(call->work))
        return;
    for (int k = 0; k < Inputs; k++)
        sides[k] = side_at(spread(call->in[k], call->node->in[k], call->node->out[0]->shape),
                           call->work.lo);
    sides[Inputs] = side_at(call->out[0], call->work.lo);
    pointwise_run(extents(call->work), sides, f, wf_cuda_stream(call));
}

template <class G> struct Both {
    enum { IN = 2, INDEXED = 0 };
    G g;
    template <class A, int V> __device__ void apply(const A (&x)[2][V], int64_t, A (&y)[V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            y[j] = g(x[0][j], x[1][j]);
    }
};

struct Copy {
    enum { IN = 1, INDEXED = 0 };
    template <class A, int V> __device__ void apply(const A (&x)[1][V], int64_t, A (&y)[V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            y[j] = x[0][j];
    }
};

template <class G> static void pair_call(const struct wf_call *call, const G &g)
{
    const struct wf_node *n = call->node;
    const struct wf_shape &whole = n->out[0]->shape;
    const int image = wf_shape_equal(n->in[0]->shape, whole) ? 0 : 1, other = 1 - image;
    const bool is_image = wf_shape_equal(n->in[image]->shape, whole);
    const bool same = wf_shape_equal(n->in[other]->shape, whole);
    const enum wf_dtype dtype = n->out[0]->dtype, b = n->in[other]->dtype;
    if (same || !is_image || !wf_cuda_is_float(n->out[0]) || n->in[image]->dtype != dtype ||
        (b != dtype && b != WF_F32)) {
        spread_call<2>(call, Both<G>{ g });
        return;
    }
    const struct wf_view *const views[] = { &call->in[image], &call->out[0] };
    struct wf_call turned = *call; /* spatial_call() takes the type of in[0] */
    turned.in = &call->in[image];
    spatial_call(
        &turned, views, 2,
        Pair<G>{ image_of(call->in[image]), image_of(spread(call->in[other], n->in[other], whole)),
                 image_of(call->out[0]), n->in[other]->shape.at[WF_C] == 1 ? ONE : ROW, g });
}

static void prelu_call(const struct wf_call *call, int dy)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0], &call->in[dy] };
    const struct wf_value *w = call->node->in[1];
    spatial_call(call, views, 3,
                 Prelu{ image_of(call->in[0]),
                        image_of(spread(call->in[1], w, call->node->out[0]->shape)),
                        image_of(call->in[dy]), image_of(call->out[0]),
                        w->shape.at[WF_C] == 1 ? ONE : ROW });
}

/* --- product_sum --- */

/* a * b, or with Below only where b is below 0. */
template <class T, int V, bool Below> struct Products : OneByOne {
    enum { SUMS = 1, IN = 2, DEPTH = 4, MOST_THREADS = SUM_THREADS };
    struct Loaded {
        Vec<T, V> a, b;
    };

    __device__ void begin(const Columns &, const Lane &, int64_t)
    {
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[2], int64_t,
                         Loaded &x) const
    {
        x.a.load((const T *)g.data[0] + offset[0]);
        x.b.load((const T *)g.data[1] + offset[1]);
    }
    template <class A> __device__ void add(const Loaded &x, A (&sum)[1][V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const A b = (A)x.b.get(j);
            sum[0][j] = fma_of((A)x.a.get(j), Below && !(b < 0) ? A(0) : b, sum[0][j]);
        }
    }
    __device__ void end(const Columns &, const Lane &, int64_t, double (&)[1][V]) const
    {
    }
};

template <class T, int V>
static void products_run(const struct wf_call *call, const Columns &g, const Parts &out, bool below)
{
    if (below)
        sums_run<T, V>(g, Products<T, V, true>{}, out, wf_cuda_stream(call));
    else
        sums_run<T, V>(g, Products<T, V, false>{}, out, wf_cuda_stream(call));
}

/* Other axes, other shapes, one input: a warp for each element of the result. */
struct AnySum {
    Walk outer, inner; /* of the result: a, b, s; of what is summed: a, b */
    void *data[3];
    int dtype[3];
    int below, has_b;
};

__global__ void __launch_bounds__(THREADS) any_sum(const AnySum f)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (i >= f.outer.count)
        return;
    int64_t base[3], offset[2];
    double sum = 0;
    f.outer.at(i, base);
    for (int64_t k = (int64_t)threadIdx.x % 32; k < f.inner.count; k += 32) {
        f.inner.at(k, offset);
        const double a = any_get(f.dtype[0], f.data[0], base[0] + offset[0]);
        const double b = f.has_b ? any_get(f.dtype[1], f.data[1], base[1] + offset[1]) : 1.0;
        sum += f.below && !(b < 0) ? 0.0 : a * b;
    }
    sum = team_sum<32>(sum);
    if (threadIdx.x % 32 == 0)
        any_put(f.dtype[2], f.data[2], base[2], sum);
}

static void any_sum_call(const struct wf_call *call)
{
    const struct wf_reduce_attrs *a = (const struct wf_reduce_attrs *)call->node->attrs;
    const bool has_b = call->in[1].data != NULL;
    wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call)); /* what the work does not reach */
    if (is_empty(call->work))
        return;
    struct wf_shape kept = extents(call->work), summed = kept;
    int64_t at[WF_AXES];
    for (int i = 0; i < WF_AXES; i++) {
        (a->over[i] ? kept : summed).at[i] = 1;
        at[i] = a->over[i] ? 0 : call->work.lo[i];
    }
    Side sides[3] = { side_at(call->in[0], call->work.lo), Side{ NULL, WF_F32, {} },
                      side_at(call->out[0], at) };
    if (has_b)
        sides[1] = side_at(spread(call->in[1], call->node->in[1], call->node->in[0]->shape),
                           call->work.lo);
    AnySum f = {};
    f.outer = walk_over(kept.at, WF_AXES, sides, 3);
    f.inner = walk_over(summed.at, WF_AXES, sides, 2);
    for (int s = 0; s < 3; s++) {
        f.data[s] = sides[s].data;
        f.dtype[s] = sides[s].dtype;
    }
    f.below = (int)a->below;
    f.has_b = has_b;
    launch(any_sum, blocks_for(f.outer.count * 32, THREADS), THREADS, wf_cuda_stream(call), f);
}

/* Over all positions, or those of each sample, of two images of one type. */
static bool is_plain_sum(const struct wf_node *node)
{
    const struct wf_reduce_attrs *a = (const struct wf_reduce_attrs *)node->attrs;
    const struct wf_value *x = node->in[0], *b = node->in[1];
    for (int i = WF_D; i <= WF_W; i++)
        if (!a->over[i] && x->shape.at[i] > 1)
            return false;
    return b && wf_cuda_is_float(x) && b->dtype == x->dtype && wf_shape_equal(b->shape, x->shape);
}

/* --- row_dot --- */

template <class T, int Team>
__global__ void __launch_bounds__(THREADS) row_dot_of(const Rows r, const int two)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.count())
        return;
    int64_t offset[3];
    strict<T> sum = 0;
    r.positions.at(p, offset);
    for (int64_t c = lane; c < r.channels; c += Team) {
        const strict<T> a = to_strict(*r.at<const T>(0, offset[0], c));
        sum += two ? a * to_strict(*r.at<const T>(1, offset[1], c)) : a;
    }
    sum = team_sum<Team>(sum);
    if (lane == 0)
        *r.at<T>(2, offset[2], 0) = To<T>::from((arith<T>)sum);
}

__global__ void __launch_bounds__(THREADS) row_dot_any(const Rows r, const int two)
{
    const int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (p >= r.count())
        return;
    int64_t offset[3];
    double sum = 0;
    r.positions.at(p, offset);
    for (int64_t c = 0; c < r.channels; c++)
        sum += r.any(0, offset[0], c) * (two ? r.any(1, offset[1], c) : 1.0);
    any_put(r.dtype[2], r.data[2], offset[2], sum);
}

} // namespace wf

using namespace wf;

void wf_cuda_add(const struct wf_call *call)
{
    pair_call(call, Add{});
}

void wf_cuda_multiply(const struct wf_call *call)
{
    pair_call(call, Multiply{});
}

void wf_cuda_expand(const struct wf_call *call)
{
    spread_call<1>(call, Copy{});
}

void wf_cuda_prelu(const struct wf_call *call)
{
    prelu_call(call, 0);
}

void wf_cuda_prelu_grad(const struct wf_call *call)
{
    prelu_call(call, 2);
}

void wf_cuda_product_sum(const struct wf_call *call)
{
    const struct wf_reduce_attrs *a = (const struct wf_reduce_attrs *)call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    if (!is_plain_sum(call->node) || is_empty(call->work) || call->work.lo[WF_C] > 0 ||
        call->work.hi[WF_C] < channels) {
        any_sum_call(call);
        return;
    }
    const bool by_sample = !a->over[WF_N];
    const struct wf_view *const s = &call->out[0];
    if (by_sample &&
        (call->work.lo[WF_N] > s->box.lo[WF_N] || call->work.hi[WF_N] < s->box.hi[WF_N]))
        wf_cuda_set(s, 0.0, wf_cuda_stream(call));
    const Side sides[2] = { side_at(call->in[0], call->work.lo),
                            side_at(call->in[1], call->work.lo) };
    Parts out = {};
    out.out[0] = table_of(*s);
    out.factor = 1;
    out.part = (double *)call->scratch;
    with_type(sides[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        Columns g = columns_over(call->work, by_sample, sides, 2, SUM_V);
        g.there = rows_there(call);
        out.tickets = sums_tickets(call, g);
        if (g.v > 1)
            products_run<T, SUM_V>(call, g, out, a->below);
        else
            products_run<T, 1>(call, g, out, a->below);
    });
}

void wf_cuda_row_dot(const struct wf_call *call)
{
    const struct wf_node *n = call->node;
    const bool two = call->in[1].data != NULL;
    if (is_empty(call->work))
        return;
    const struct wf_view b = two ? spread(call->in[1], n->in[1], n->in[0]->shape) : call->in[0];
    const struct wf_view *const views[] = { &call->in[0], &b, &call->out[0] };
    Rows r = rows_over(call->work, n->in[0]->shape.at[WF_C], views, 3);
    r.there = rows_there(call);
    const bool alike = wf_cuda_is_float(n->in[0]) && n->in[0]->dtype == n->out[0]->dtype &&
                       (!two || n->in[1]->dtype == n->in[0]->dtype);
    if (!alike) {
        launch(row_dot_any, blocks_for(r.positions.count, THREADS), THREADS, wf_cuda_stream(call),
               r, (int)two);
        return;
    }
    with_type(r.dtype[0], [&](auto t) {
        typedef decltype(t) T;
        with_team(r.channels, [&](auto team) {
            launch(row_dot_of<T, decltype(team)::value>,
                   blocks_for(r.positions.count * decltype(team)::value, THREADS), THREADS,
                   wf_cuda_stream(call), r, (int)two);
        });
    });
}
