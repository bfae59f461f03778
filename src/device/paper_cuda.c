/*
 * The device 'cuda' of a build without CUDA: planned, never run.
 *
 * Its kernels are those of the real one, by the same table, so that what is fused, copied and recomputed is
 * the same, but for norms with running statistics that the real one computes with a convolution (cuda/conv.c): here
 * that convolution's result is in memory. What a kernel needs of scratch is known to the real one only: here it is
 * estimated. Networks of points are not planned: which of their kernels fits is found out on the device.
 */
#define WF_ON_PAPER
#define wf_cuda_kernels_kernels wf_paper_cuda_rows
#define wf_cuda_patches_fit wf_paper_cuda_patches_fit
#define wf_cuda_up_fits wf_paper_cuda_up_fits
#include "device/cuda/kernels.c" // NOLINT(bugprone-suspicious-include)

#include "device/conv_pass.h"
#include "device/cuda/accepts.h"
#include "device/device.h"

/* As patches.cu has it, but for what shared memory has room for: there channels are few. */
bool wf_paper_cuda_patches_fit(const struct wf_conv_attrs *a, const struct wf_shape *weights)
{
    return wf_patches_lie(a, weights) && wf_patches_by_memory(weights);
}

bool wf_paper_cuda_up_fits(const struct wf_conv_attrs *a, const struct wf_shape *weights)
{
    return wf_patches_lie(a, weights) && wf_patches_in_blocks(weights);
}

/* Images whose channels are not in eights go through padded copies where they are of 16 bits. */
static size_t padded_bytes(const struct wf_view *view)
{
    const int64_t channels = wf_region_extent(view->box, WF_C), eights = (channels + 7) / 8 * 8;
    if (wf_dtype_size(view->dtype) != 2 || channels == eights || channels == 0)
        return 0;
    return (size_t)(wf_region_count(view->box) / channels * eights) * 2;
}

static bool prepare_conv(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = WF_CUDNN_LIKELY_WORKSPACE + padded_bytes(&p->in[0]) +
                       padded_bytes(wf_op_sums_over(p->node) ? &p->in[1] : &p->out[0]);
    return true;
}

static const struct wf_kernel libraries[] = {
    WF_CONV_PASSES(.flags = WF_KERNEL_DENSE, .preference = 10, .accepts = wf_cudnn_accepts,
                   .prepare = prepare_conv),
    WF_CONV_PASSES(.flags = WF_KERNEL_DENSE, .preference = 20, .accepts = wf_cublas_accepts),
    { 0 },
};

static const struct wf_kernel *const table[] = { wf_paper_cuda_rows, libraries, NULL };

static const struct wf_kernel *find(const struct wf_node *node)
{
    return wf_kernel_find(table, node);
}

static const struct wf_kernel nothing = { .op = "nothing" };

static struct wf_context *refuse(const struct wf_device_options *, struct wf_err *err)
{
    (void)wf_err_set(
        err, WF_ERR_USAGE,
        "it is not in this build, which only plans for it: build it with 'make cuda', or "
        "use --device cpu");
    return NULL;
}

/* Its memory is not the host's. */
static void put_nothing(struct wf_context *, const struct wf_view *, const struct wf_view *)
{
}

const struct wf_device wf_device_paper_cuda = {
    .name = "cuda",
    .find = find,
    .fallback = &nothing,
    .open = refuse,
    .transfer = { .put = put_nothing },
    .cost = WF_CUDA_COST,
};
