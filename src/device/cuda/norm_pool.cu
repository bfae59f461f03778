/*
 * Max pooling of a normalisation's result that is not made: what its windows hold is computed on the
 * way (wf_kernel.folds). Windows are [1|2,2,2] and lie in the image.
 */
#include "device/cuda/norm.cuh"

namespace wf
{

/* From a window's corner to its elements; side 0 of the columns steps from window to window. */
struct Corner {
    int64_t d, h, w;
};

template <class T, int V, int Deep>
__device__ inline void pool_at(const Columns &g, const Lane &lane, const Corner &by,
                               const Affine<strict<T>, V> &a, strict<T> below, int64_t p)
{
    int64_t offset[3];
    Vec<T, V> x[4 * Deep], best;
    Vec<uint8_t, V> where;
    g.positions.at(p, offset);
#pragma unroll
    for (int i = 0; i < 3; i++)
        offset[i] += blockIdx.z * g.row[i] + lane.c * g.step[i];
#pragma unroll
    for (int k = 0; k < 4 * Deep; k++)
        x[k].load((const T *)g.data[0] + offset[0] + k / 4 * by.d + k / 2 % 2 * by.h + k % 2 * by.w);
#pragma unroll
    for (int j = 0; j < V; j++) {
        float most = 0;
        int place = 0;
#pragma unroll
        for (int k = 0; k < 4 * Deep; k++) {
            const float z = rounded<T>(a.apply((strict<T>)x[k].get(j), j, below));
            if (k == 0 || z > most || z != z) { /* the first maximum; NaN wins over all */
                most = z;
                place = k;
            }
        }
        best.set(j, most);
        where.put(j, (uint8_t)place);
    }
    best.store((T *)g.data[1] + offset[1]);
    where.store((uint8_t *)g.data[2] + offset[2]);
}

template <class T, int V, int Deep>
__global__ void __launch_bounds__(THREADS, 2)
    norm_pool(const Columns g, const Norm norm, const Corner by)
{
    __shared__ Staged<strict<T>, V> staged;
    const Lane lane(g);
    staged.fill(g, norm, g.first_row + blockIdx.z);
    if (!lane.active)
        return;
    Affine<strict<T>, V> a;
    a.take(g, staged);
#pragma unroll 2
    for (int64_t p = lane.first; p < g.positions.count; p += lane.stride)
        pool_at<T, V, Deep>(g, lane, by, a, (strict<T>)norm.below, p);
}

template <class T, int Deep>
static void norm_pool_run(const struct wf_call *call, const struct wf_folded &from)
{
    enum { V = Wide<T>::V };
    const struct wf_view &x = from.in[X];
    int64_t corner[WF_AXES];
    for (int axis = 0; axis < WF_AXES; axis++)
        corner[axis] = call->work.lo[axis] * (axis == WF_H || axis == WF_W ? 2
                                              : axis == WF_D               ? Deep
                                                                           : 1);
    Side sides[3] = { side_at(x, corner), side_at(call->out[0], call->work.lo),
                      side_at(call->out[1], call->work.lo) };
    sides[0].stride[WF_D] *= Deep;
    sides[0].stride[WF_H] *= 2;
    sides[0].stride[WF_W] *= 2;
    const Corner by = { x.stride[WF_D], x.stride[WF_H], x.stride[WF_W] };
    const Norm norm = norm_of(from.node, from.in);
    Columns g = columns_over(call->work, norm_by_sample(from.node), sides, 3, V);
    if (g.v > 1 && (x.stride[WF_D] % V != 0 || x.stride[WF_H] % V != 0 || x.stride[WF_W] % V != 0))
        g = columns_over(call->work, norm_by_sample(from.node), sides, 3, 1);
    const dim3 grid = columns_grid(g, THREADS, 2, 2 * MULTIPROCESSORS);
    if (g.v > 1)
        launch(norm_pool<T, V, Deep>, grid, THREADS, wf_cuda_stream(call), g, norm, by);
    else
        launch(norm_pool<T, 1, Deep>, grid, THREADS, wf_cuda_stream(call), g, norm, by);
}

} // namespace wf

using namespace wf;

void wf_cuda_norm_maxpool(const struct wf_call *call)
{
    const struct wf_folded &from = call->folded[0];
    const struct wf_pool_attrs *a = (const struct wf_pool_attrs *)call->node->attrs;
    if (is_empty(call->work))
        return;
    with_type(from.in[X].dtype, [&](auto t) {
        typedef decltype(t) T;
        if (a->kernel[0] == 2)
            norm_pool_run<T, 2>(call, from);
        else
            norm_pool_run<T, 1>(call, from);
    });
}
