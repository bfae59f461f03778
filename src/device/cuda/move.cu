/* Bytes from place to place: copies of boxes, constants, concatenation, slices, reshape. */
#include "device/cuda/flat.cuh"

namespace wf
{

/* Words of 1 to 16 bytes; sides are source and destination. */
template <class W> __global__ void __launch_bounds__(THREADS) copy_words(const Flat s)
{
    enum { AT_ONCE = 4 };
    const int64_t total = s.rows.count * s.inner;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * AT_ONCE) + threadIdx.x;
    W word[AT_ONCE];
    int64_t offset[AT_ONCE][2];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
        if (first + u * THREADS < total) {
            s.at(first + u * THREADS, 1, offset[u]);
            word[u] = ((const W *)s.data[0])[offset[u][0]];
        }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
        if (first + u * THREADS < total)
            ((W *)s.data[1])[offset[u][1]] = word[u];
}

template <class W> __global__ void __launch_bounds__(THREADS) set_words(const Flat s, const W word)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t offset[1];
    if (i >= s.rows.count * s.inner)
        return;
    s.at(i, 1, offset);
    ((W *)s.data[0])[offset[0]] = word;
}

/* The box in words of as many elements as its sides allow; returns the bytes of a word. */
static int widen(Flat *f, int n_sides)
{
    const int size = (int)size_of(f->dtype[0]);
    for (int v = 16 / size; v > 1; v /= 2) {
        if (f->inner % v != 0 || !flat_takes(*f, n_sides, v))
            continue;
        f->inner /= v;
        for (int s = 0; s < n_sides; s++)
            for (int a = 0; a < f->rows.n_axes; a++)
                f->rows.stride[s][a] /= v;
        flat_cut(f, 1);
        return size * v;
    }
    return size;
}

template <class F> static void with_word(int bytes, F f)
{
    switch (bytes) {
    case 1:
        f(uint8_t());
        break;
    case 2:
        f(uint16_t());
        break;
    case 4:
        f(uint32_t());
        break;
    case 8:
        f(uint2());
        break;
    default:
        f(uint4());
    }
}

static void copy_box(const struct wf_shape &extent, const Side &from, const Side &to,
                     struct CUstream_st *stream)
{
    const Side sides[2] = { from, to };
    Flat f = flat_over(extent, sides, 2);
    with_word(widen(&f, 2), [&](auto w) {
        launch(copy_words<decltype(w)>, blocks_for(f.rows.count * f.inner, THREADS * 4), THREADS,
               stream, f);
    });
}

static void set_box(const struct wf_shape &extent, const Side &to, double value,
                    struct CUstream_st *stream)
{
    unsigned char pattern[16];
    Flat f = flat_over(extent, &to, 1);
    for (int i = 0; i < (int)(16 / size_of(to.dtype)); i++)
        wf_dtype_put((enum wf_dtype)to.dtype, pattern, i, value);
    with_word(widen(&f, 1), [&](auto w) {
        memcpy(&w, pattern, sizeof w);
        launch(set_words<decltype(w)>, blocks_for(f.rows.count * f.inner, THREADS), THREADS, stream,
               f, w);
    });
}

/* --- fit: equal where both are, zero where only dst is --- */

struct Fit {
    Image to, from;
    Divisor extent[WF_AXES]; /* of dst; the first is not divided by */
    int64_t have[WF_AXES];   /* of src */
    int64_t count;
};

__global__ void __launch_bounds__(THREADS) fit(const Fit f)
{
    int64_t rest = (int64_t)blockIdx.x * THREADS + threadIdx.x, to = 0, from = 0;
    if (rest >= f.count)
        return;
    bool inside = true;
    for (int a = WF_AXES - 1; a >= 0; a--) {
        int64_t at = rest;
        if (a > 0)
            f.extent[a].divide(rest, &rest, &at);
        to += at * f.to.stride[a];
        from += at * f.from.stride[a];
        inside = inside && at < f.have[a];
    }
    any_put(f.to.dtype, f.to.data, to, inside ? any_get(f.from.dtype, f.from.data, from) : 0.0);
}

/* Channels padded to whole vectors of 16 bytes, one of which a thread stores: a position has so many
 * words in `from`, so many vectors in `to`. */
template <class W>
__global__ void __launch_bounds__(THREADS)
    pad_channels(const W *from, const int words, W *to, const Divisor vectors, const int64_t count)
{
    enum { N = 16 / sizeof(W) };
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t position, vector;
    if (i >= count)
        return;
    vectors.divide(i, &position, &vector);
    const int first = (int)vector * N;
    Vec<W, N> out;
#pragma unroll
    for (int k = 0; k < N; k++)
        out.put(k, first + k < words ? from[position * words + first + k] : W());
    out.store(to + i * N);
}

/* --- reshape --- */

struct Reshape {
    Image to, from;
    int64_t lo[WF_AXES], count;
    Divisor work[WF_AXES];   /* extents of the work */
    Divisor inside[WF_AXES]; /* extents of x */
    int64_t extent[WF_AXES]; /* of y */
    int turned;              /* enum wf_reshape_turned */
};

template <class W> __global__ void __launch_bounds__(THREADS) reshape(const Reshape r)
{
    int64_t rest = (int64_t)blockIdx.x * THREADS + threadIdx.x, at[WF_AXES], index = 0;
    if (rest >= r.count)
        return;
#pragma unroll
    for (int a = WF_AXES - 1; a >= 0; a--) {
        at[a] = rest;
        if (a > 0)
            r.work[a].divide(rest, &rest, &at[a]);
        at[a] += r.lo[a];
    }
    int64_t to = r.to.base, from = r.from.base + at[WF_N] * r.from.stride[WF_N];
#pragma unroll
    for (int a = 0; a < WF_AXES; a++)
        to += at[a] * r.to.stride[a];
    /* PyTorch's order is C, D, H, W from outermost to innermost; turned it is D, H, W, C. */
    if (r.turned != WF_RESHAPE_TO)
        index = at[WF_C];
#pragma unroll
    for (int a = WF_D; a < WF_C; a++)
        index = index * r.extent[a] + at[a];
    if (r.turned == WF_RESHAPE_TO)
        index = index * r.extent[WF_C] + at[WF_C];
    if (r.turned == WF_RESHAPE_FROM) {
        int64_t place;
        r.inside[WF_C].divide(index, &index, &place);
        from += place * r.from.stride[WF_C];
    }
#pragma unroll
    for (int a = WF_W; a >= WF_D; a--) {
        int64_t place = index;
        if (a > WF_D || r.turned != WF_RESHAPE_FROM)
            r.inside[a].divide(index, &index, &place);
        from += place * r.from.stride[a];
    }
    if (r.turned != WF_RESHAPE_FROM)
        from += index * r.from.stride[WF_C];
    ((W *)r.to.data)[to] = ((const W *)r.from.data)[from];
}

__global__ void __launch_bounds__(THREADS)
    add_elements(void *to, const void *from, const int dtype, const int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        any_put(dtype, to, i, any_get(dtype, to, i) + any_get(dtype, from, i));
}

struct Widening {
    float scale[WF_WIDEN_CHANNELS], offset[WF_WIDEN_CHANNELS];
    int channels;
};

/* As the host does it: a product and a sum, each rounded (no fused ones in this build). */
__global__ void __launch_bounds__(THREADS)
    widen(const uint8_t *from, float *to, const int64_t count, const Widening w)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int c = (int)(i % w.channels);
    to[i] = (float)from[i] * w.scale[c] + w.offset[c];
}

} // namespace wf

using namespace wf;

void wf_cuda_widen(const struct wf_view *dst, const struct wf_view *src, const float *scale,
                   const float *offset, struct CUstream_st *stream)
{
    const int64_t count = is_empty(dst->box) ? 0 : wf_shape_count(extents(dst->box));
    Widening w = {};
    w.channels = (int)extents(dst->box).at[WF_C];
    for (int c = 0; c < w.channels; c++) {
        w.scale[c] = scale[c];
        w.offset[c] = offset[c];
    }
    if (count > 0)
        launch(widen, blocks_for(count, THREADS), THREADS, stream, (const uint8_t *)src->data,
               (float *)dst->data, count, w);
}

void wf_cuda_copy(const struct wf_view *dst, const struct wf_view *src, struct CUstream_st *stream)
{
    if (!is_empty(dst->box))
        copy_box(extents(dst->box), side_at(*src, src->box.lo), side_at(*dst, dst->box.lo), stream);
}

void wf_cuda_add_to(const struct wf_view *dst, const struct wf_view *src,
                    struct CUstream_st *stream)
{
    const int64_t count = is_empty(dst->box) ? 0 : wf_shape_count(extents(dst->box));
    if (count > 0)
        launch(add_elements, blocks_for(count, THREADS), THREADS, stream, dst->data,
               (const void *)src->data, (int)dst->dtype, count);
}

void wf_cuda_set(const struct wf_view *dst, double value, struct CUstream_st *stream)
{
    if (!is_empty(dst->box))
        set_box(extents(dst->box), side_at(*dst, dst->box.lo), value, stream);
}

/* The bytes that a thread of pad_channels() reads at once; 0 where that is not what is asked for. */
static int padding_word(const struct wf_view *dst, const struct wf_view *src)
{
    const struct wf_shape to = extents(dst->box), from = extents(src->box);
    const int64_t size = (int64_t)size_of(dst->dtype), bytes = from.at[WF_C] * size;
    for (int a = 0; a < WF_C; a++)
        if (to.at[a] != from.at[a])
            return 0;
    if (dst->dtype != src->dtype || to.at[WF_C] <= from.at[WF_C] || to.at[WF_C] * size % 16 != 0 ||
        !wf_view_is_dense(dst) || !wf_view_is_dense(src) || (uintptr_t)dst->data % 16 != 0)
        return 0;
    int word = 16;
    while (bytes % word != 0 || (uintptr_t)src->data % (size_t)word != 0)
        word /= 2;
    return word;
}

static bool is_crop(const struct wf_view *dst, const struct wf_view *src)
{
    const struct wf_shape to = extents(dst->box), from = extents(src->box);
    for (int a = 0; a < WF_AXES; a++)
        if (to.at[a] > from.at[a])
            return false;
    return dst->dtype == src->dtype;
}

void wf_cuda_fit(const struct wf_view *dst, const struct wf_view *src, struct CUstream_st *stream)
{
    if (is_empty(dst->box))
        return;
    const struct wf_shape to = extents(dst->box), from = extents(src->box);
    const int64_t count = wf_shape_count(to), size = (int64_t)size_of(dst->dtype);
    if (is_crop(dst, src)) {
        copy_box(to, side_at(*src, src->box.lo), side_at(*dst, dst->box.lo), stream);
        return;
    }
    const int word = padding_word(dst, src);
    if (word > 0) {
        const int64_t vectors = count * size / 16;
        with_word(word, [&](auto w) {
            typedef decltype(w) W;
            launch(pad_channels<W>, blocks_for(vectors, THREADS), THREADS, stream,
                   (const W *)src->data, (int)(from.at[WF_C] * size / word), (W *)dst->data,
                   divisor(to.at[WF_C] * size / 16, vectors), vectors);
        });
        return;
    }
    Fit f = { image_of(*dst), image_of(*src), {}, {}, count };
    for (int a = 0; a < WF_AXES; a++) {
        f.extent[a] = divisor(to.at[a], count);
        f.have[a] = from.at[a];
    }
    launch(fit, blocks_for(count, THREADS), THREADS, stream, f);
}

void wf_cuda_concat(const struct wf_call *call)
{
    int64_t first = 0;
    for (int i = 0; i < call->node->n_in; i++) {
        const int64_t channels = call->node->in[i]->shape.at[WF_C];
        struct wf_region to = call->work, from;
        to.lo[WF_C] = larger(to.lo[WF_C], first);
        to.hi[WF_C] = smaller(to.hi[WF_C], first + channels);
        from = to;
        from.lo[WF_C] -= first;
        from.hi[WF_C] -= first;
        first += channels;
        if (!is_empty(to))
            copy_box(extents(to), side_at(call->in[i], from.lo), side_at(call->out[0], to.lo),
                     wf_cuda_stream(call));
    }
}

void wf_cuda_slice(const struct wf_call *call)
{
    const struct wf_slice_attrs *a = (const struct wf_slice_attrs *)call->node->attrs;
    if (is_empty(call->work))
        return;
    int64_t from[WF_AXES];
    for (int axis = 0; axis < WF_AXES; axis++)
        from[axis] = call->work.lo[axis] + (a ? a->lo[axis] : 0);
    copy_box(extents(call->work), side_at(call->in[0], from), side_at(call->out[0], call->work.lo),
             wf_cuda_stream(call));
}

void wf_cuda_fill(const struct wf_call *call)
{
    const struct wf_fill_attrs *a = (const struct wf_fill_attrs *)call->node->attrs;
    if (!is_empty(call->work))
        set_box(extents(call->work), side_at(call->out[0], call->work.lo), a->value,
                wf_cuda_stream(call));
}

void wf_cuda_reshape(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const struct wf_shape &x = call->node->in[0]->shape, &y = call->node->out[0]->shape;
    const struct wf_shape work = extents(call->work);
    Reshape r = {
        image_of(call->out[0]), image_of(call->in[0]), {}, wf_shape_count(work), {}, {}, {}, 0
    };
    for (int a = 0; a < WF_AXES; a++) {
        r.lo[a] = call->work.lo[a];
        r.work[a] = divisor(work.at[a], r.count);
        r.inside[a] = divisor(x.at[a], wf_shape_count(x));
        r.extent[a] = y.at[a];
    }
    r.turned = (int)((const struct wf_reshape_attrs *)call->node->attrs)->turned;
    with_word((int)size_of(call->out[0].dtype), [&](auto w) {
        launch(reshape<decltype(w)>, blocks_for(r.count, THREADS), THREADS, wf_cuda_stream(call),
               r);
    });
}
