#include "plan/target.h"

#include <string.h>

#include "ops/op.h"

bool wf_kernel_takes(const struct wf_kernel *kernel, const struct wf_node *node)
{
    return strcmp(kernel->op, node->op->name) == 0 && (!kernel->accepts || kernel->accepts(node));
}

bool wf_kernels_have(const struct wf_kernel *const table[], const struct wf_op *op)
{
    for (const struct wf_kernel *const *rows = table; *rows; rows++)
        for (const struct wf_kernel *k = *rows; k->op; k++)
            if (strcmp(k->op, op->name) == 0)
                return true;
    return false;
}

const struct wf_kernel *wf_kernel_find(const struct wf_kernel *const table[],
                                       const struct wf_node *node)
{
    const struct wf_kernel *best = NULL;
    for (const struct wf_kernel *const *rows = table; *rows; rows++)
        for (const struct wf_kernel *k = *rows; k->op; k++)
            if ((!best || k->preference > best->preference) && wf_kernel_takes(k, node))
                best = k;
    return best;
}

bool wf_device_open(const struct wf_device *device, const struct wf_device_options *options,
                    struct wf_context **context, struct wf_err *err)
{
    *context = NULL;
    if (!device->open)
        return true;
    *context = device->open(options, err);
    return *context || wf_err_wrap(err, "device '%s'", device->name);
}

void wf_device_close(struct wf_context *context)
{
    if (context)
        context->device->close(context);
}
