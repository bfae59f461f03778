#include "exec/host.h"

#include <stdlib.h>

void wf_host_release(struct wf_host *host)
{
    if (host->memory)
        host->device->transfer.host_free(host->context, host->memory);
    *host = (struct wf_host){ 0 };
}

void wf_host_map(struct wf_host *host, const struct wf_device *device, struct wf_context *context,
                 struct wf_view there)
{
    if (host->memory && host->context != context)
        wf_host_release(host);
    host->device = device;
    host->context = context;
    host->there = host->view = there;
    if (wf_device_is_host(device) || !there.data)
        return;
    const size_t bytes = wf_view_bytes(&there);
    if (bytes > host->bytes || !host->memory) {
        if (host->memory)
            device->transfer.host_free(context, host->memory);
        host->memory = device->transfer.host_alloc(context, bytes);
        WF_BUG_ON(!host->memory, "no host memory for %zu bytes", bytes);
        host->bytes = bytes;
    }
    host->view = wf_view_dense(host->memory, there.dtype, there.box);
}

void wf_host_put(struct wf_host *host)
{
    if (host->view.data && !wf_device_is_host(host->device))
        host->device->transfer.put(host->context, &host->there, &host->view);
}

void wf_host_send(struct wf_host *host)
{
    if (host->view.data && !wf_device_is_host(host->device))
        host->device->transfer.send(host->context, &host->there, &host->view);
}

bool wf_host_get(struct wf_host *host, struct wf_err *err)
{
    return !host->view.data || wf_device_is_host(host->device) ||
           host->device->transfer.get(host->context, &host->view, &host->there, err);
}

void *wf_host_take(const struct wf_device *device, struct wf_context *context, size_t bytes)
{
    return wf_device_is_host(device) ? malloc(bytes ? bytes : 1)
                                     : device->transfer.host_alloc(context, bytes);
}

void wf_host_give(const struct wf_device *device, struct wf_context *context, void *memory)
{
    if (wf_device_is_host(device))
        free(memory);
    else if (memory)
        device->transfer.host_free(context, memory);
}
