/* Products of images as matrices, in tiles of 32 x 32: rows are positions, columns channels. Sums as strict<T>. */
#include "device/cuda/device.cuh"

namespace wf
{

enum { SIDE = 32, ROWS = THREADS / SIDE, EACH = SIDE / ROWS };

/* An image by the number of a position in d, h, w. */
struct Matrix {
    Image image;
    Divisor h, w;

    template <class T> __device__ strict<T> get(int64_t n, int64_t row, int64_t column) const
    {
        int64_t line, at[3];
        w.divide(row, &line, &at[2]);
        h.divide(line, &at[0], &at[1]);
        return to_strict((
            (const T *)image.data)[image.at(n, at[0], at[1], at[2]) + column * image.stride[WF_C]]);
    }
};

struct Product {
    Matrix a, b;
    Image y;
    int form; /* enum wf_matmul_form */
    int64_t terms, lo[WF_AXES], rows, columns;
    Divisor work[3];          /* extents of the work */
    int64_t image_h, image_w; /* of y */
};

template <class T> __global__ void __launch_bounds__(THREADS) product(const Product p)
{
    __shared__ strict<T> left[SIDE][SIDE + 1], right[SIDE][SIDE + 1];
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
    const int64_t n = p.lo[WF_N] + blockIdx.z;
    const int64_t column = (int64_t)blockIdx.y * SIDE + x, c = p.lo[WF_C] + column;
    int64_t number[EACH], to[EACH]; /* of the row among all positions of y; of its first element */
    strict<T> sum[EACH] = {};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int64_t rest = (int64_t)blockIdx.x * SIDE + y + e * ROWS, at[3];
        to[e] = -1;
        number[e] = -1;
        if (rest >= p.rows)
            continue;
        p.work[2].divide(rest, &rest, &at[2]);
        p.work[1].divide(rest, &at[0], &at[1]);
        for (int i = 0; i < 3; i++)
            at[i] += p.lo[WF_D + i];
        number[e] = (at[0] * p.image_h + at[1]) * p.image_w + at[2];
        to[e] = p.y.at(n, at[0], at[1], at[2]);
    }
    for (int64_t k0 = 0; k0 < p.terms; k0 += SIDE) {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int row = y + e * ROWS;
            const int64_t k = k0 + x, other = k0 + row;
            const bool has = number[e] >= 0 && k < p.terms,
                       has_b = column < p.columns && other < p.terms;
            left[row][x] = !has                     ? (strict<T>)0
                           : p.form == WF_MATMUL_TN ? p.a.get<T>(n, k, number[e])
                                                    : p.a.get<T>(n, number[e], k);
            right[row][x] = !has_b                   ? (strict<T>)0
                            : p.form == WF_MATMUL_NT ? p.b.get<T>(n, c, other)
                                                     : p.b.get<T>(n, other, c);
        }
        __syncthreads();
        for (int k = 0; k < SIDE; k++) {
#pragma unroll
            for (int e = 0; e < EACH; e++)
                sum[e] += left[y + e * ROWS][k] * right[k][x];
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (to[e] >= 0 && column < p.columns)
            ((T *)p.y.data)[to[e] + c * p.y.stride[WF_C]] = To<T>::from((arith<T>)sum[e]);
}

static Matrix matrix_of(const struct wf_view &view, const struct wf_shape &shape)
{
    const int64_t count = wf_shape_count(shape);
    return { image_of(view), divisor(shape.at[WF_H], count), divisor(shape.at[WF_W], count) };
}

} // namespace wf

using namespace wf;

void wf_cuda_matmul(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const struct wf_matmul_attrs *attrs = (const struct wf_matmul_attrs *)call->node->attrs;
    const struct wf_shape &a = call->node->in[0]->shape, &b = call->node->in[1]->shape;
    const struct wf_shape &y = call->node->out[0]->shape, work = extents(call->work);
    Product p = {};
    p.a = matrix_of(call->in[0], a);
    p.b = matrix_of(call->in[1], b);
    p.y = image_of(call->out[0]);
    p.form = (int)attrs->form;
    p.terms = attrs->form == WF_MATMUL_TN ? a.at[WF_D] * a.at[WF_H] * a.at[WF_W] : a.at[WF_C];
    p.rows = work.at[WF_D] * work.at[WF_H] * work.at[WF_W];
    p.columns = work.at[WF_C];
    p.image_h = y.at[WF_H];
    p.image_w = y.at[WF_W];
    for (int i = 0; i < WF_AXES; i++)
        p.lo[i] = call->work.lo[i];
    for (int i = 0; i < 3; i++)
        p.work[i] = divisor(work.at[WF_D + i], p.rows);
    const dim3 blocks((unsigned)ceil_div(p.rows, SIDE), (unsigned)ceil_div(p.columns, SIDE),
                      (unsigned)work.at[WF_N]);
    with_type(call->in[0].dtype, [&](auto t) {
        launch(product<decltype(t)>, blocks, THREADS, wf_cuda_stream(call), p);
    });
}
