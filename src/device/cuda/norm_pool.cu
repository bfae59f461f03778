/*
 * Max pooling of a normalisation's result that is not made: what its windows hold is computed on the
 * way (wf_kernel.fuses). Windows are [1|2,2,2] and lie in the image.
 */
#include "device/cuda/norm.cuh"

namespace wf
{

template <class T, int V, int Deep>
__device__ inline void pool_at(const Columns &g, const Lane &lane, const Corner &by,
                               const Affine<strict<T>, V> &a, strict<T> below, int64_t p)
{
    int64_t offset[3];
    Vec<T, V> x[4 * Deep], best;
    Vec<uint8_t, V> where;
    arith<T> most[V];
    int place[V];
    OneByOne::at<false>(g, lane, p, offset);
#pragma unroll
    for (int k = 0; k < 4 * Deep; k++)
        x[k].load((const T *)g.data[0] + offset[0] + by.at(k));
    loads_come_first();
#pragma unroll
    for (int k = 0; k < 4 * Deep; k++) {
        a.apply_all(x[k], below);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const arith<T> z = x[k].get(j);
            if (k == 0 || z > most[j] || z != z) { /* the first maximum; NaN wins over all */
                most[j] = z;
                place[j] = k;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++)
        where.put(j, (uint8_t)place[j]);
    best.set_all(most);
    best.store((T *)g.data[1] + offset[1]);
    where.store((uint8_t *)g.data[2] + offset[2]);
}

/* Blocks on a multiprocessor. */
template <int Deep> struct Together {
    enum { BLOCKS = Deep > 1 ? 2 : 3 };
};

template <class T, int V, int Deep>
__global__ void __launch_bounds__(THREADS, Together<Deep>::BLOCKS)
    norm_pool(const Columns g, const Norm norm, const Corner by)
{
    __shared__ Staged<strict<T>, V> staged;
    const Lane lane(g);
    staged.fill(g, norm, g.first_row + blockIdx.z);
    if (!lane.active)
        return;
    Affine<strict<T>, V> a;
    a.take(g, staged);
    for (int64_t p = lane.first; p < g.positions.count; p += lane.stride)
        pool_at<T, V, Deep>(g, lane, by, a, (strict<T>)norm.below, p);
}

template <class T, int Deep>
static void norm_pool_run(const struct wf_call *call, const struct wf_fused_input &from)
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
    const Corner by = corner_of(x);
    const Norm norm = norm_of(from.node, from.in);
    Columns g = columns_over(call->work, norm_by_sample(from.node), sides, 3, V);
    if (g.v > 1 && !by.takes(V))
        g = columns_over(call->work, norm_by_sample(from.node), sides, 3, 1);
    const dim3 grid = columns_grid(g, THREADS, 2, Together<Deep>::BLOCKS * MULTIPROCESSORS);
    if (g.v > 1)
        launch(norm_pool<T, V, Deep>, grid, THREADS, wf_cuda_stream(call), g, norm, by);
    else
        launch(norm_pool<T, 1, Deep>, grid, THREADS, wf_cuda_stream(call), g, norm, by);
}

} // namespace wf

using namespace wf;

void wf_cuda_norm_maxpool(const struct wf_call *call)
{
    const struct wf_fused_input &from = call->fused[0];
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
