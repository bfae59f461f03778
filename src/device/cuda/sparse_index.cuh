/*
 * Where the rows of a sparse tensor are, by open addressing (sparse_map.cu says how).
 */
#pragma once

#include "device/cuda/sparse.cuh"

namespace wf
{

enum { BATCH_AND_AXES = 1 + WF_SPARSE_AXES };

struct Cubes {
    const int32_t *rows, *there; /* coordinates */
    int32_t *slots;              /* first row of a cube, -1: free */
    uint64_t *places;            /* of the cube in the slot: a bit for each one that is there */
    uint32_t mask;
    int32_t dims;
    int32_t stride[WF_SPARSE_AXES];

    int32_t shift[WF_SPARSE_AXES]; /* where the stride is a power of two; -1 */

    /* Axes are known when a kernel is compiled (Dims), so that loops over them are none. */
    __device__ int32_t divide(int32_t at, int d) const
    {
        return shift[d] >= 0 ? at >> shift[d] : at / stride[d];
    }
    template <int Dims> __device__ int32_t lattice(int64_t row, int d) const
    {
        return divide(rows[row * (1 + Dims) + 1 + d], d);
    }
    template <int Dims> __device__ bool in_cube(int64_t row, const int32_t *cube) const
    {
        bool same = rows[row * (1 + Dims)] == cube[0];
#pragma unroll
        for (int d = 0; d < Dims; d++)
            same = same && lattice<Dims>(row, d) >> (6 / Dims) == cube[1 + d];
        return same;
    }
    template <int Dims> __device__ uint32_t hash(const int32_t *cube) const
    {
        uint32_t h = 0x9e3779b9u;
#pragma unroll
        for (int d = 0; d <= Dims; d++) {
            h = (h ^ (uint32_t)cube[d]) * 0x85ebca6bu;
            h ^= h >> 15;
        }
        return (h * 0xc2b2ae35u ^ h >> 13) & mask;
    }
    /* The slot of a cube, given by batch and coordinates; -1: it is not there. */
    template <int Dims> __device__ int64_t find(const int32_t *cube, int32_t *first) const
    {
        for (uint32_t h = hash<Dims>(cube);; h = (h + 1) & mask) {
            *first = slots[h];
            if (*first < 0)
                return -1;
            if (in_cube<Dims>(*first, cube))
                return h;
        }
    }
    /* A place in its cube, in the order of rows. */
    template <int Dims> __device__ int place(const int32_t *at) const
    {
        int p = 0;
#pragma unroll
        for (int b = 6 / Dims - 1; b >= 0; b--)
#pragma unroll
            for (int d = 0; d < Dims; d++)
                p = p * 2 + (at[d] >> b & 1);
        return p;
    }
    /* ... and back, along one axis. */
    template <int Dims> __device__ int axis_of(int p, int d) const
    {
        int x = 0;
#pragma unroll
        for (int b = 0; b < 6 / Dims; b++)
            x |= (p >> (b * Dims + Dims - 1 - d) & 1) << b;
        return x;
    }
};

/* Of so many rows at most, in scratch memory. */
size_t cubes_bytes(int64_t rows);
Cubes cubes_of(const struct wf_kernel_map_attrs *a, const int32_t *coords, const int32_t *there,
               int64_t rows, void *scratch);
void cubes_build(const Cubes &c, int64_t rows, struct CUstream_st *stream);

} // namespace wf
