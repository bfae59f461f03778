/*
 * Kernels to which all elements are alike: the box is rows of `inner` elements that lie packed (or at
 * `step`) on every side, taken V at a time.
 */
#pragma once

#include "device/cuda/device.cuh"

namespace wf
{

struct Flat {
    Walk rows;
    int64_t inner;   /* elements of a row */
    int64_t vectors; /* of a row; the last one may be part empty */
    Divisor by_vectors;
    void *data[SIDES];
    int dtype[SIDES];
    int64_t step[SIDES];

    /* The offsets of vector i of the whole and how many elements it has. */
    template <bool OneRow = false, int N>
    __device__ int at(int64_t i, int v, int64_t (&offset)[N]) const
    {
        int64_t row = 0, column = i;
        if (OneRow) {
#pragma unroll
            for (int s = 0; s < N; s++)
                offset[s] = 0;
        } else {
            by_vectors.divide(i, &row, &column);
            rows.at(row, offset);
        }
        column *= v;
        for (int s = 0; s < N; s++)
            offset[s] += column * step[s];
        return (int)smaller<int64_t>(v, inner - column);
    }
};

/* True when every side lets V elements be taken at once. */
inline bool flat_takes(const Flat &f, int n_sides, int v)
{
    for (int s = 0; s < n_sides; s++) {
        const int64_t bytes = f.data[s] ? (int64_t)size_of(f.dtype[s]) * v : 1;
        if (f.step[s] != 1 || (uintptr_t)f.data[s] % (size_t)smaller<int64_t>(bytes, 16) != 0)
            return false;
        for (int a = 0; a < f.rows.n_axes; a++)
            if (f.data[s] && f.rows.stride[s][a] % v != 0)
                return false;
    }
    return true;
}

inline void flat_cut(Flat *f, int v)
{
    f->vectors = ceil_div(f->inner, v);
    f->by_vectors = divisor(f->vectors, f->rows.count * f->vectors);
}

/* The innermost merged axis becomes the row. */
inline Flat flat_over(const struct wf_shape &extent, const Side sides[], int n_sides)
{
    Flat f = {};
    f.rows = walk_over(extent.at, WF_AXES, sides, n_sides);
    f.inner = 1;
    for (int s = 0; s < n_sides; s++) {
        f.data[s] = sides[s].data;
        f.dtype[s] = sides[s].dtype;
        f.step[s] = 1;
    }
    if (f.rows.n_axes > 0) {
        const int last = --f.rows.n_axes;
        f.inner = f.rows.extent[last].by;
        f.rows.count /= f.inner;
        for (int s = 0; s < n_sides; s++)
            f.step[s] = f.rows.stride[s][last];
    }
    flat_cut(&f, 1);
    return f;
}

} // namespace wf
