/*
 * Kernels that treat channels apart: a thread keeps V neighbouring channels and goes over positions,
 * so what belongs to a channel (statistics, weights, sums) stays in its registers.
 *
 * A warp is `across` threads over channels times 32 / across positions; across is a power of two, so
 * that sums over positions begin as shuffles. gridDim.y cuts the channels, gridDim.x the positions,
 * gridDim.z is the row of the table: a sample, where each has statistics of its own.
 */
#pragma once

#include "device/cuda/device.cuh"

namespace wf
{

enum { ACROSS_MOST = 16, MULTIPROCESSORS = 132 /* the grid's size, not a limit */ };

struct Columns {
    Walk positions; /* of one row of the table */
    int64_t channels, first_channel, first_row;
    int32_t rows, v, across, log_across;
    int32_t small; /* less than 2^31 positions, all offsets below 2^32 */
    void *data[SIDES];
    int dtype[SIDES];
    int64_t step[SIDES]; /* along C */
    int64_t row[SIDES];  /* between rows of the table */
    const int32_t *there; /* positions, where they are counted when the kernel runs */

    __device__ int64_t count() const
    {
        return there ? smaller<int64_t>(*there, positions.count) : positions.count;
    }
};

/* Where a thread stands. */
struct Lane {
    int64_t c;             /* its first channel, counted in the work */
    int64_t first, stride; /* its positions: first, first + stride, ... */
    bool active;

    __device__ Lane(const Columns &g)
    {
        const int slots = (int)blockDim.x >> g.log_across;
        c = ((int64_t)blockIdx.y * g.across + (threadIdx.x & (g.across - 1))) * g.v;
        first = (int64_t)blockIdx.x * slots + (threadIdx.x >> g.log_across);
        stride = (int64_t)gridDim.x * slots;
        active = c < g.channels;
    }
};

/* Offsets in the elements of a side. In 64 bits finding them takes longer than the memory does. */
template <bool Fast> using Offset = typename std::conditional<Fast, uint32_t, int64_t>::type;

/* A walk whose units are single positions. Other units have GROUP of them. */
struct OneByOne {
    enum { GROUP = 1 };

    /* Whether at<true>() may be called. */
    static bool fast(const Columns &g)
    {
        return g.small && g.positions.linear();
    }
    __device__ static int64_t count(const Columns &g)
    {
        return g.count();
    }
    /* Of a unit, the element that a thread begins with on each side. */
    template <bool Fast, int N>
    __device__ static void at(const Columns &g, const Lane &lane, int64_t unit,
                              Offset<Fast> (&offset)[N])
    {
        if constexpr (Fast)
            g.positions.at<true>((uint32_t)unit, offset);
        else
            g.positions.at(unit, offset);
        to_lane<Fast>(g, lane, offset);
    }
    template <bool Fast, int N>
    __device__ static void to_lane(const Columns &g, const Lane &lane, Offset<Fast> (&offset)[N])
    {
        typedef Offset<Fast> I;
#pragma unroll
        for (int i = 0; i < N; i++)
            offset[i] += (I)blockIdx.z * (I)g.row[i] + (I)lane.c * (I)g.step[i];
    }
};

inline bool is_small(const int64_t extent[], int64_t rows, const Side sides[], int n_sides)
{
    int64_t count = 1;
    for (int a = 0; a < WF_C; a++)
        count *= extent[a];
    for (int s = 0; s < n_sides; s++) {
        int64_t most = rows * sides[s].stride[WF_N];
        for (int a = 0; a < WF_AXES; a++) {
            if (sides[s].stride[a] < 0)
                return false;
            most += extent[a] * sides[s].stride[a];
        }
        if (most > UINT32_MAX)
            return false;
    }
    return count <= INT32_MAX;
}

/* The sides over `work`; with `by_sample` each sample is a row. Of sides in `loose` only the positions
 * lie like the work's: their channels are the kernel's business. */
inline Columns columns_over(const struct wf_region &work, bool by_sample, const Side sides[],
                            int n_sides, int wide, unsigned loose = 0)
{
    Columns g = {};
    struct wf_shape extent = extents(work);
    bool vectors = wide > 1;
    for (int s = 0; s < n_sides; s++)
        vectors = vectors && ((loose & (1u << s)) || takes_vectors(sides[s], extent.at, wide));
    g.v = vectors ? wide : 1;
    g.channels = extent.at[WF_C];
    g.first_channel = work.lo[WF_C];
    g.rows = by_sample ? (int32_t)extent.at[WF_N] : 1;
    g.first_row = by_sample ? work.lo[WF_N] : 0;
    if (by_sample)
        extent.at[WF_N] = 1;
    g.positions = walk_over(extent.at, WF_C, sides, n_sides);
    g.small = is_small(extent.at, g.rows, sides, n_sides);
    for (int s = 0; s < n_sides; s++) {
        g.data[s] = sides[s].data;
        g.dtype[s] = sides[s].dtype;
        g.step[s] = loose & (1u << s) ? 0 : sides[s].stride[WF_C];
        g.row[s] = by_sample ? sides[s].stride[WF_N] : 0;
    }
    g.across = 1;
    while (g.across < ACROSS_MOST && (int64_t)g.across * g.v < g.channels) {
        g.across *= 2;
        g.log_across++;
    }
    return g;
}

/* At most `blocks` in all, so that they run at once, and at least `each` positions for a thread. */
inline dim3 columns_grid(const Columns &g, int threads, int each, int blocks)
{
    const int64_t slots = threads / g.across;
    const int64_t parts = ceil_div(g.channels, (int64_t)g.across * g.v);
    const int64_t most = ceil_div(g.positions.count, slots * each);
    const int64_t want = blocks / (parts * g.rows);
    return dim3((unsigned)larger<int64_t>(1, smaller(most, want)), (unsigned)parts,
                (unsigned)g.rows);
}

} // namespace wf
