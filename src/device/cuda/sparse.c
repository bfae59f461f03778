/* Kernels of sparse tensors as the planner looks them up. */
#include "device/cuda/sparse.h"

#include "device/cuda/kernels.h"

/* The rows of a coarser set come in the order of the finer one's. */
static bool keeps_order(const struct wf_node *node)
{
    return wf_coords_keeps_order(node->attrs);
}

static bool alike(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]) && node->in[0]->dtype == node->in[1]->dtype;
}

/* The plain kernel takes rows as they come. */
static bool skips_order(const struct wf_node *node, int input, const struct wf_node *maker)
{
    (void)node;
    (void)maker;
    return input == WF_SPARSE_CONV_ORDER;
}

static bool rows_conv(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_fit(node);
}

static bool rows_wgrad(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_wgrad_fit(node);
}

static bool words_conv(const struct wf_node *node)
{
    return alike(node) && wf_cuda_words_fit(node);
}

static bool words_wgrad(const struct wf_node *node)
{
    return alike(node) && wf_cuda_words_wgrad_fit(node);
}

static bool stem_conv(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_stem_fit(node);
}

static bool stem_wgrad(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_stem_wgrad_fit(node);
}

static bool head_conv(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_head_fit(node);
}

static bool head_wgrad(const struct wf_node *node)
{
    return alike(node) && wf_cuda_rows_head_wgrad_fit(node);
}

static bool fuses_map(const struct wf_node *node, int input, const struct wf_node *maker)
{
    (void)node;
    return input == 2 && maker->op == &wf_op_kernel_map;
}

const struct wf_kernel wf_cuda_kernels_sparse[] = {
    { .op = "coords_stride",
      .flags = WF_KERNEL_DENSE,
      .accepts = keeps_order,
      .prepare = wf_cuda_coords_stride_prepare,
      .run = wf_cuda_coords_stride },
    { .op = "kernel_map",
      .flags = WF_KERNEL_DENSE,
      .prepare = wf_cuda_kernel_map_prepare,
      .run = wf_cuda_kernel_map },
    { .op = "map_order",
      .flags = WF_KERNEL_DENSE,
      .prepare = wf_cuda_map_order_prepare,
      .run = wf_cuda_map_order },
    { .op = "sparse_conv", .accepts = alike, .run = wf_cuda_sparse_conv, .fuses = skips_order },
    { .op = "sparse_conv_wgrad",
      .accepts = alike,
      .prepare = wf_cuda_sparse_wgrad_prepare,
      .run = wf_cuda_sparse_wgrad },
    { .op = "sparse_conv",
      .preference = 10,
      .accepts = head_conv,
      .run = wf_cuda_rows_head_conv,
      .fuses = skips_order },
    { .op = "sparse_conv_wgrad",
      .preference = 10,
      .accepts = head_wgrad,
      .prepare = wf_cuda_rows_head_wgrad_prepare,
      .run = wf_cuda_rows_head_wgrad },
    { .op = "sparse_conv",
      .preference = 20,
      .accepts = rows_conv,
      .prepare = wf_cuda_rows_prepare,
      .run = wf_cuda_rows_conv },
    { .op = "sparse_conv_wgrad",
      .preference = 20,
      .accepts = rows_wgrad,
      .prepare = wf_cuda_rows_wgrad_prepare,
      .run = wf_cuda_rows_wgrad },
    { .op = "sparse_conv",
      .preference = 5,
      .accepts = words_conv,
      .prepare = wf_cuda_rows_prepare,
      .run = wf_cuda_words_conv },
    { .op = "sparse_conv_wgrad",
      .preference = 5,
      .accepts = words_wgrad,
      .prepare = wf_cuda_words_wgrad_prepare,
      .run = wf_cuda_words_wgrad },
    { .op = "sparse_conv",
      .preference = 30,
      .accepts = stem_conv,
      .prepare = wf_cuda_rows_stem_prepare,
      .run = wf_cuda_rows_stem,
      .fuses = fuses_map },
    { .op = "sparse_conv_wgrad",
      .preference = 30,
      .accepts = stem_wgrad,
      .prepare = wf_cuda_rows_stem_wgrad_prepare,
      .run = wf_cuda_rows_stem_wgrad,
      .fuses = fuses_map },
    { 0 },
};
