/*
 * Convolutions whose windows lie side by side (kernel = stride, no padding), of 16-bit images: the
 * upsampling layers of a U-Net and their gradients. Each position of the coarse image has a patch of
 * the fine one to itself, so with a row for each position and (tap, channel) as the fine image's columns
 * all three are plain products of matrices:
 *
 *     convt        fine    = coarse weights       weights: [channels of coarse][(tap, channel)]
 *     conv         coarse  = fine weights^T
 *     conv_wgrad   weights = coarse^T fine
 *
 * Images may lie anywhere: the result of convt in its channels of a concatenation, its gradient read
 * from there.
 */
#pragma once

#include "device/cuda/panels.cuh"
#include "device/cuda/patches.h"

namespace wf
{

enum {
    BLOCKS = 132, /* multiprocessors */
    CHUNK = 64,   /* of k: a panel */
};

/* Rows of positions or filters; columns of channels, or of (tap, channel). */
struct Matrix {
    void *data;
    int64_t rows, columns;
    int64_t stride[WF_C]; /* of a row's coordinates n, d, h, w; filters are counted along w */
    Divisor extent[3];    /* of the rows' d, h, w */
    Divisor channels, kernel[2];
    int64_t tap[3], step; /* strides of taps and channels */
    int32_t by_position, taps;

    __device__ void position(int64_t row, int64_t (&at)[WF_C]) const
    {
        at[WF_N] = row;
#pragma unroll
        for (int a = 2; a >= 0; a--)
            extent[a].divide(at[WF_N], &at[WF_N], &at[WF_D + a]);
    }
    __device__ int64_t row_at(int64_t row) const
    {
        if (!by_position)
            return row * stride[WF_W];
        int64_t at[WF_C], offset = 0;
        position(row, at);
#pragma unroll
        for (int a = 0; a < WF_C; a++)
            offset += at[a] * stride[a];
        return offset;
    }
    __device__ int64_t tap_of(int64_t column, int64_t *channel) const
    {
        int64_t t = 0;
        *channel = column;
        if (taps > 1)
            channels.divide(column, &t, channel);
        return t;
    }
    __device__ int64_t column_at(int64_t column) const
    {
        if (taps == 1)
            return column * step;
        int64_t i, j, c, t = tap_of(column, &c);
        kernel[1].divide(t, &t, &j);
        kernel[0].divide(t, &t, &i);
        return t * tap[0] + i * tap[1] + j * tap[2] + c * step;
    }
};

enum { NOWHERE = -1 }; /* an offset outside of the matrix */

/* A piece of a matrix into shared memory, by the offsets of its row and column. */
__device__ inline void bring(const Matrix &m, char *to, int64_t row, int64_t column)
{
    const bool inside = row != NOWHERE && column != NOWHERE;
    copy_piece(to, (const uint16_t *)m.data + (inside ? row + column : 0), inside);
}

/* A tile of R rows, 64 columns at a time. */
template <int R, int Threads> struct Along {
    enum { EACH = R * PIECE / Threads, BYTES = R * PANEL_ROW };
    int64_t at[EACH];

    __device__ void tile(const Matrix &m, int64_t first)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t row = first + threadIdx.x / PIECE + i * (Threads / PIECE);
            at[i] = row < m.rows ? m.row_at(row) : (int64_t)NOWHERE;
        }
    }
    __device__ void chunk(const Matrix &m, char *to, int64_t k) const
    {
        const int p = (int)threadIdx.x % PIECE, row = (int)threadIdx.x / PIECE;
        const int64_t c = k + p * PIECE, column = c < m.columns ? m.column_at(c) : (int64_t)NOWHERE;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            bring(m, piece(to, row + i * (Threads / PIECE), p), at[i], column);
    }
};

/* A tile of C columns, 64 rows at a time. */
template <int C, int Threads> struct Across {
    enum {
        PANELS = C / PANEL_COLUMNS,
        EACH = CHUNK * PIECE / Threads,
        BYTES = PANELS * PANEL_BYTES
    };
    int64_t at[PANELS];

    __device__ void tile(const Matrix &m, int64_t first)
    {
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
            const int64_t column = first + i * PANEL_COLUMNS + threadIdx.x % PIECE * PIECE;
            at[i] = column < m.columns ? m.column_at(column) : (int64_t)NOWHERE;
        }
    }
    __device__ void chunk(const Matrix &m, char *to, int64_t k) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int row = (int)threadIdx.x / PIECE + i * (Threads / PIECE);
            const int64_t r = k + row, from = r < m.rows ? m.row_at(r) : (int64_t)NOWHERE;
#pragma unroll
            for (int j = 0; j < PANELS; j++)
                bring(m, piece(to + j * PANEL_BYTES, row, (int)threadIdx.x % PIECE), from, at[j]);
        }
    }
};

/* ByRows: k runs along its rows. */
template <bool ByRows, int Width, int Threads> struct Operand;
template <int Width, int Threads>
struct Operand<false, Width, Threads> : Along<Width, Threads> {
};
template <int Width, int Threads>
struct Operand<true, Width, Threads> : Across<Width, Threads> {
};

/* 64 rows for every four warps, N times 128 columns. */
template <int N> struct Sums {
    float of[N][64];

    /* Begins to add the products of a chunk. */
    template <class T, bool AK, bool BK> __device__ void add(char *a, char *b, bool begun)
    {
        products_begin();
#pragma unroll
        for (int k = 0; k < CHUNK / 16; k++)
#pragma unroll
            for (int j = 0; j < N; j++)
                product<T, AK, BK>(of[j], a + threadIdx.x / 128 * PANEL_BYTES,
                                   b + j * WARPS_COLUMNS * PANEL_ROW, k, begun || k > 0);
        products_commit();
    }
};

/* Element i of four of Sums: its row and column in the tile are row(i / 2 % 2), column(i). */
__device__ inline int sums_row(int half)
{
    return (int)threadIdx.x / 32 * 16 + half * 8 + (int)threadIdx.x % 32 / 4;
}

/* --- from calls to matrices --- */

/* Whether whole pieces may be moved along the columns. */
inline bool takes_pieces(const Matrix &m)
{
    bool wide = m.step == 1 && (m.taps > 1 ? m.channels.by : m.columns) % PIECE == 0 &&
                (uintptr_t)m.data % 16 == 0;
    for (int a = 0; a < WF_C; a++)
        wide = wide && m.stride[a] % PIECE == 0;
    for (int a = 0; a < 3; a++)
        wide = wide && m.tap[a] % PIECE == 0;
    return wide;
}

/* Columns of (tap, channel) with these channels of a view, all taps or one. */
inline void set_columns(Matrix *m, const struct wf_view &view, const int64_t kernel[3],
                        const int64_t channels[2], bool taps)
{
    const int64_t count = channels[1] - channels[0];
    m->taps = taps ? (int32_t)(kernel[0] * kernel[1] * kernel[2]) : 1;
    m->columns = m->taps * count;
    m->channels = divisor(count, 2 * m->columns + (INT64_C(1) << 20));
    for (int i = 0; i < 3; i++)
        m->tap[i] = m->taps > 1 && kernel[i] > 1 ? view.stride[WF_D + i] : 0;
    for (int i = 0; i < 2; i++)
        m->kernel[i] = divisor(kernel[i + 1], INT64_C(1) << 20);
    m->step = view.stride[WF_C];
}

/* An image with a row for each position of `coarse`. */
inline Matrix image_matrix(const struct wf_view &view, const struct wf_conv_attrs *a,
                           const struct wf_region &coarse, const int64_t kernel[3],
                           const int64_t channels[2], bool fine)
{
    Matrix m = {};
    int64_t lo[WF_AXES], count = 1;
    for (int i = 0; i < WF_C; i++) {
        const int64_t by = fine && i >= WF_D ? a->stride[i - WF_D] : 1;
        const int64_t extent = coarse.hi[i] - coarse.lo[i];
        lo[i] = coarse.lo[i] * by;
        count *= extent;
        m.stride[i] = extent > 1 ? view.stride[i] * by : 0;
    }
    lo[WF_C] = channels[0];
    m.data = side_at(view, lo).data;
    m.rows = count;
    m.by_position = 1;
    for (int i = 0; i < 3; i++)
        m.extent[i] = divisor(coarse.hi[WF_D + i] - coarse.lo[WF_D + i], count);
    set_columns(&m, view, kernel, channels, fine);
    return m;
}

/* Weights with a row for each of some filters and some of their channels. */
inline Matrix weight_matrix(const struct wf_view &view, const int64_t kernel[3],
                            const int64_t filters[2], const int64_t channels[2])
{
    Matrix m = {};
    const int64_t lo[WF_AXES] = { filters[0], 0, 0, 0, channels[0] };
    m.data = side_at(view, lo).data;
    m.rows = filters[1] - filters[0];
    m.stride[WF_W] = view.stride[WF_N];
    set_columns(&m, view, kernel, channels, true);
    return m;
}

template <class F> void with_half(int dtype, F f)
{
    if (dtype == WF_BF16)
        f(bf16());
    else
        f(f16());
}

} // namespace wf
