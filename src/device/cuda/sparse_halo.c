/* Rows that travel between ranks, as the planner looks them up. */
#include "device/cuda/sparse_halo.h"

#include "device/cuda/kernels.h"

static bool floats(const struct wf_node *node)
{
    return wf_cuda_is_float(node->out[0]);
}

const struct wf_kernel wf_cuda_kernels_sparse_halo[] = {
    { .op = "halo_list",
      .flags = WF_KERNEL_DENSE,
      .prepare = wf_cuda_halo_prepare,
      .run = wf_cuda_halo_list },
    { .op = "halo_merge",
      .flags = WF_KERNEL_DENSE,
      .prepare = wf_cuda_halo_prepare,
      .run = wf_cuda_halo_merge },
    { .op = "rows_gather", .flags = WF_KERNEL_DENSE, .run = wf_cuda_rows_gather },
    { .op = "rows_scatter",
      .flags = WF_KERNEL_DENSE,
      .accepts = floats,
      .run = wf_cuda_rows_scatter },
    { 0 },
};
