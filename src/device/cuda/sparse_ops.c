/* Operators on sparse tensors beside convolution, as the planner looks them up. */
#include "device/cuda/sparse_ops.h"

#include "device/cuda/kernels.h"

static bool floats(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]);
}

/* Two by two, beside each other: all there is, in the order of rows. */
static bool doubles(const struct wf_node *node)
{
    const struct wf_coords_set_attrs *const a = node->attrs;
    for (int64_t d = 0; d < a->dims; d++)
        if (a->kernel[d] != 2 || a->step[d] != a->stride[d] || a->from[d] != 2 * a->stride[d])
            return false;
    return !a->cross;
}

/* What is added up over ranks is f32. */
static bool makes_f32(const struct wf_node *node)
{
    return floats(node) && node->out[0]->dtype == WF_F32;
}

#define ROWS(name, accepted, prepared, kernel)                                                     \
    {                                                                                              \
        .op = name, .flags = WF_KERNEL_DENSE, .accepts = accepted, .prepare = prepared,            \
        .run = kernel                                                                              \
    }

const struct wf_kernel wf_cuda_kernels_sparse_ops[] = {
    ROWS("sparse_pool", floats, NULL, wf_cuda_sparse_pool),
    ROWS("sparse_pool_grad", floats, NULL, wf_cuda_sparse_pool_grad),
    ROWS("sample_sums", floats, wf_cuda_samples_prepare, wf_cuda_sample_sums),
    ROWS("sample_max", floats, wf_cuda_samples_prepare, wf_cuda_sample_max),
    ROWS("sample_max_grad", floats, NULL, wf_cuda_sample_max_grad),
    ROWS("sample_rows", floats, NULL, wf_cuda_sample_rows),
    ROWS("sample_take", NULL, NULL, wf_cuda_sample_take),
    ROWS("sample_take_grad", NULL, NULL, wf_cuda_sample_take_grad),
    ROWS("sparse_dropout", floats, NULL, wf_cuda_sparse_dropout),
    ROWS("coords_union", NULL, wf_cuda_coords_set_prepare, wf_cuda_coords_union),
    ROWS("coords_prune", NULL, wf_cuda_coords_set_prepare, wf_cuda_coords_prune),
    ROWS("coords_expand", doubles, NULL, wf_cuda_coords_expand),
    ROWS("corner_map", NULL, NULL, wf_cuda_corner_map),
    ROWS("sparse_mix", floats, NULL, wf_cuda_sparse_mix),
    ROWS("sparse_mix_grad", floats, wf_cuda_sparse_mix_grad_prepare, wf_cuda_sparse_mix_grad),
    ROWS("rows_to_grid", makes_f32, NULL, wf_cuda_rows_to_grid),
    ROWS("grid_to_rows", floats, NULL, wf_cuda_grid_to_rows),
    { 0 },
};
