/*
 * A device 'cuda' without a GPU, for a command that runs whole networks with our own kernels emulated
 * on the host (widefield_emulated, in builds without CUDA): the kernels that verify takes on a GPU, in
 * the host's memory. Not the libraries, and nothing about speed.
 */
#include <string.h>

#include "device/cuda/kernels.h"
#include "device/device.h"
#include "device/update.h"

extern const struct wf_kernel *const wf_cuda_own_kernels[]; /* ends with NULL; made by the build */
extern const struct wf_device wf_device_cuda;

static const struct wf_kernel *find(const struct wf_node *node)
{
    const struct wf_kernel *best = NULL;
    for (const struct wf_kernel *const *k = wf_cuda_own_kernels; *k; k++)
        if ((!best || (*k)->preference > best->preference) &&
            strcmp((*k)->op, node->op->name) == 0 && (!(*k)->accepts || (*k)->accepts(node)))
            best = *k;
    return best;
}

static void run_nothing(const struct wf_call *call)
{
    for (int o = 0; o < call->node->n_out; o++)
        if (call->out[o].data)
            wf_cuda_set(&call->out[o], 0, wf_cuda_stream(call));
}

static const struct wf_kernel nothing = { .op = "nothing", .run = run_nothing };

static void *take(struct wf_context *context, size_t bytes)
{
    return wf_device_cpu.alloc(context, bytes);
}

static void give_back(struct wf_context *context, void *memory, size_t bytes)
{
    wf_device_cpu.free(context, memory, bytes);
}

static void copy(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src)
{
    (void)context;
    if (!wf_region_is_empty(dst->box))
        wf_cuda_copy(dst, src, NULL);
}

const struct wf_device wf_device_cuda = {
    .name = "cuda",
    .find = find,
    .fallback = &nothing,
    .alloc = take,
    .free = give_back,
    .copy = copy,
    .updater = &wf_cpu_updater,
    .flops_per_second = 1e9,
    .bytes_per_second = 1e9,
    .link_bytes_per_second = 5e9,
    .link_seconds = 5e-6,
    .threads = 1,
};
