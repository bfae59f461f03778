/* What products of the rows of sparse tensors share. */
#pragma once

#include "device/cuda/device.cuh"
#include "device/cuda/sparse.h"

namespace wf
{

/* Rows of features, wherever they lie. */
struct Features {
    void *data;
    int64_t row, step; /* strides of rows and of channels */

    template <class T> __device__ T *at(int64_t r, int64_t c) const
    {
        return (T *)data + r * row + c * step;
    }
};

inline Features features_of(const struct wf_view &view)
{
    return { view.data, view.stride[WF_N], view.stride[WF_C] };
}

/* Whether pieces of 16 bytes may be moved. */
template <class T> bool takes_pieces(const Features &m)
{
    return m.step == 1 && m.row * (int64_t)sizeof(T) % 16 == 0 && (uintptr_t)m.data % 16 == 0;
}

/* Which rows are joined, and by which weight. */
struct Joins {
    const int32_t *map;   /* [row][count]; NULL: each row with itself */
    const int32_t *there; /* rows of the map */
    const int32_t *order; /* the row that is taken as the i-th; NULL: as they lie */
    int32_t count, mirrored, reach;

    __device__ int32_t at(int64_t row, int k) const
    {
        return map ? map[row * count + k] : (int32_t)row;
    }
    /* The weight that goes with column k of the map, and the column that goes with weight k. */
    __device__ int weight(int k) const
    {
        if (!mirrored)
            return k;
        if (!reach)
            return count - 1 - k;
        const int each = 2 * reach;
        return k == 0 ? 0 : (k - 1) / each * each + each - (k - 1) % each;
    }
};

inline Joins joins_of(const struct wf_call *call, int input, int64_t count)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    return { (const int32_t *)call->in[input].data, rows_there(call), NULL, (int32_t)count,
             (int32_t)a->mirrored, (int32_t)a->reach };
}

inline int64_t capacity_of(const struct wf_region &work)
{
    return larger<int64_t>(0, work.hi[WF_N] - work.lo[WF_N]);
}

/* Sums of the block's threads up to and with this one; *all is that of the block. */
__device__ inline int block_scan(int x, int *all)
{
    __shared__ int sums[2][THREADS];
    int now = 0;
    sums[0][threadIdx.x] = x;
    for (int m = 1; m < THREADS; m *= 2, now ^= 1) {
        __syncthreads();
        const int behind = (int)threadIdx.x >= m ? sums[now][threadIdx.x - m] : 0;
        sums[now ^ 1][threadIdx.x] = sums[now][threadIdx.x] + behind;
    }
    __syncthreads();
    *all = sums[now][THREADS - 1];
    const int mine = sums[now][threadIdx.x];
    __syncthreads();
    return mine;
}

/* A set of coordinates: rows of 1 + dims numbers. */
struct Places {
    const int32_t *at, *there;
    int32_t dims, stride[WF_SPARSE_AXES];

    __device__ const int32_t *row(int64_t r) const
    {
        return at + r * (1 + dims);
    }
    /* In the order of rows: negative, zero or positive; as wf_coords_compare() has it. */
    __device__ int compare(const int32_t *a, const int32_t *b) const
    {
        uint32_t widest = 0, x = 0, y = 0;
        if (a[0] != b[0])
            return a[0] < b[0] ? -1 : 1;
        for (int d = 0; d < dims; d++) {
            const uint32_t p = (uint32_t)(a[1 + d] / stride[d]) ^ 0x80000000u;
            const uint32_t q = (uint32_t)(b[1 + d] / stride[d]) ^ 0x80000000u;
            const uint32_t differs = p ^ q;
            if (!(widest < differs && widest < (widest ^ differs)))
                continue;
            widest = differs;
            x = p;
            y = q;
        }
        return (x > y) - (x < y);
    }
    /* How many rows are before it. */
    __device__ int32_t before(const int32_t *place) const
    {
        int32_t low = 0, high = *there;
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            if (compare(row(middle), place) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    __device__ bool has(int32_t r, const int32_t *place) const
    {
        return r < *there && compare(row(r), place) == 0;
    }
};

/* Columns of a tile, of so many that are wanted. */
inline int width_of(int64_t out)
{
    return out <= 32 ? 32 : out <= 64 ? 64 : out % 128 == 0 ? 128 : out % 96 == 0 ? 96 : 128;
}

template <class F> void with_width(int width, F f)
{
    if (width == 32)
        f(Int<32>());
    else if (width == 64)
        f(Int<64>());
    else if (width == 96)
        f(Int<96>());
    else
        f(Int<128>());
}

/* The parts of a weight's gradient, added in order. */
struct WeightParts {
    const float *part; /* [parts][count] */
    float *to;
    int64_t count;
    int32_t parts;
};
void add_weight_parts(const WeightParts &p, struct CUstream_st *stream);

} // namespace wf
