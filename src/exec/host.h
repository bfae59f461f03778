/*
 * The host's side of a box in a device's memory: a view that may be filled and read here.
 *
 * On the CPU it is the memory itself and nothing is copied. Elsewhere it is a packed block that
 * belongs to the struct, is kept from one map to the next and grows where it must; put() sends it,
 * get() brings it.
 *
 *     struct wf_host host = { 0 };
 *     wf_run_map(run, weight, &host);
 *     ... fill host.view ...
 *     wf_host_put(&host);
 *     wf_host_release(&host);
 */
#ifndef WF_EXEC_HOST_H
#define WF_EXEC_HOST_H

#include "plan/target.h"

struct wf_host {
    struct wf_view view;  /* data NULL: the rank has no part of it */
    struct wf_view there; /* the device's side */
    const struct wf_device *device;
    struct wf_context *context;
    void *memory; /* NULL on the CPU */
    size_t bytes;
};

/* Makes `view` the host's side of `there`; what it holds is not said. */
void wf_host_map(struct wf_host *host, const struct wf_device *device, struct wf_context *context,
                 struct wf_view there);
/* Sends the view; it may be filled again at once. */
void wf_host_put(struct wf_host *host);
/* Begins to send it, where the device can do so beside its work; it may be filled again once it was
 * taken (wf_run_take_next). */
void wf_host_send(struct wf_host *host);
/* Brings what is there once all work before has ended; false where that failed. */
[[nodiscard]] bool wf_host_get(struct wf_host *host, struct wf_err *err);
void wf_host_release(struct wf_host *host);

#endif
