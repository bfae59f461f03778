/*
 * Kernels that treat channels apart: a thread keeps V neighbouring channels and goes over positions,
 * so what belongs to a channel (statistics, weights, sums) stays in its registers.
 *
 * A warp is `across` threads over channels times 32 / across positions; across is a power of two, so
 * that sums over positions begin as shuffles. gridDim.y cuts the channels, gridDim.x the positions,
 * gridDim.z is the row of the table: a sample, where each has statistics of its own.
 */
#ifndef WF_DEVICE_CUDA_COLUMNS_CUH
#define WF_DEVICE_CUDA_COLUMNS_CUH

#include "device/cuda/device.cuh"

namespace wf
{

enum { ACROSS_MOST = 16, MULTIPROCESSORS = 132 /* the grid's size, not a limit */ };

struct Columns {
    Walk positions; /* of one row of the table */
    int64_t channels, first_channel, first_row;
    int32_t rows, v, across, log_across;
    void *data[SIDES];
    int dtype[SIDES];
    int64_t step[SIDES]; /* along C */
    int64_t row[SIDES];  /* between rows of the table */
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

#endif
