/*
 * Kernels that look at all channels of a position. A position belongs to a team of 1 or 32 threads:
 * one where there are few channels, a warp where there are many.
 */
#pragma once

#include "device/cuda/device.cuh"

namespace wf
{

enum { FEW_CHANNELS = 32 };

struct Rows {
    Walk positions;
    int64_t channels;   /* of a whole position */
    int64_t first, end; /* those that the work writes */
    void *data[SIDES];  /* at channel 0 */
    int dtype[SIDES];
    int64_t step[SIDES]; /* along C */
    const int32_t *there; /* positions, where they are counted when the kernel runs */

    __device__ int64_t count() const
    {
        return there ? smaller<int64_t>(*there, positions.count) : positions.count;
    }
    template <class T> __device__ T *at(int side, int64_t offset, int64_t c) const
    {
        return (T *)data[side] + offset + c * step[side];
    }
    __device__ double any(int side, int64_t offset, int64_t c) const
    {
        return any_get(dtype[side], data[side], offset + c * step[side]);
    }
};

/* The views at the work's positions, each from its channel 0 on. */
inline Rows rows_over(const struct wf_region &work, int64_t channels,
                      const struct wf_view *const views[], int n)
{
    Rows r = {};
    Side sides[SIDES];
    const struct wf_shape extent = extents(work);
    int64_t lo[WF_AXES];
    memcpy(lo, work.lo, sizeof lo);
    lo[WF_C] = 0;
    r.channels = channels;
    r.first = work.lo[WF_C];
    r.end = work.hi[WF_C];
    for (int s = 0; s < n; s++) {
        sides[s] = side_at(*views[s], lo);
        r.data[s] = sides[s].data;
        r.dtype[s] = sides[s].dtype;
        r.step[s] = sides[s].stride[WF_C];
    }
    r.positions = walk_over(extent.at, WF_C, sides, n);
    return r;
}

template <int Team, class A> __device__ inline A team_max(A x)
{
    for (int m = Team / 2; m > 0; m /= 2) {
        const A y = __shfl_xor_sync(0xffffffffu, x, m);
        x = y > x || y != y ? y : x;
    }
    return x;
}
template <int Team, class A> __device__ inline A team_sum(A x)
{
    for (int m = Team / 2; m > 0; m /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, m);
    return x;
}

/* Sums of the block's threads in a fixed order; valid in thread 0. */
template <int K> __device__ void block_sum(double (&sum)[K])
{
    __shared__ double shared[K][THREADS / 32];
    for (int k = 0; k < K; k++)
        sum[k] = team_sum<32>(sum[k]);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        for (int k = 0; k < K; k++)
            shared[k][threadIdx.x / 32] = sum[k];
    __syncthreads();
    for (int k = 0; k < K && threadIdx.x == 0; k++) {
        sum[k] = 0;
        for (int w = 0; w < THREADS / 32; w++)
            sum[k] += shared[k][w];
    }
}

/* f(Int<team>()) for the channels. */
template <class F> void with_team(int64_t channels, F f)
{
    if (channels <= FEW_CHANNELS)
        f(Int<1>());
    else
        f(Int<32>());
}

} // namespace wf
