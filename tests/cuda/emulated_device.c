/*
 * A device 'cuda' without a GPU, for whole networks with our own kernels emulated on the host (the command
 * widefield_emulated, in builds without CUDA, and test_cuda_plan): the kernels that verify takes on a GPU,
 * in the host's memory. Not the libraries, and nothing about speed.
 */
#include "device/cuda/kernels.h"
#include "device/device.h"
#include "device/update.h"

extern const struct wf_kernel *const wf_cuda_own_kernels[]; /* ends with NULL; made by the build */
extern const struct wf_device wf_device_cuda;

static const struct wf_kernel *find(const struct wf_node *node)
{
    return wf_kernel_find(wf_cuda_own_kernels, node);
}

static void *take(struct wf_context *context, size_t bytes)
{
    return wf_device_cpu.memory.alloc(context, bytes);
}

static void give_back(struct wf_context *context, void *memory, size_t bytes)
{
    wf_device_cpu.memory.free(context, memory, bytes);
}

static void copy(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src)
{
    (void)context;
    if (!wf_region_is_empty(dst->box))
        wf_cuda_copy(dst, src, NULL);
}

static void add(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src)
{
    (void)context;
    wf_cuda_add_to(dst, src, NULL);
}

const struct wf_device wf_device_cuda = {
    .name = "cuda",
    .find = find,
    .fallback = &wf_cuda_nothing,
    .updater = &wf_cpu_updater,
    .memory = { .alloc = take, .free = give_back, .copy = copy, .add = add },
    .cost = { .flops_per_second = 1e9,
              .bytes_per_second = 1e9,
              .links = { .bytes_per_second = 5e9, .seconds = 5e-6 } },
    .threads = 1,
};
