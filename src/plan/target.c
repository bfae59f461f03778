#include "plan/target.h"

bool wf_device_open(const struct wf_device *device, const struct wf_device_options *options,
                    struct wf_context **context, struct wf_err *err)
{
    *context = NULL;
    if (wf_device_is_host(device))
        return true;
    *context = device->open(options, err);
    return *context || wf_err_wrap(err, "device '%s'", device->name);
}

void wf_device_close(struct wf_context *context)
{
    if (context)
        context->device->close(context);
}
