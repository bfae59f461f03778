/*
 * The host's copy of a box in device memory: a view that the host may read and write.
 *
 * On the CPU it is the memory itself and nothing is copied. Otherwise it is a packed block that
 * belongs to the struct, is reused from one map to the next and grows as needed; put() copies it to
 * the device, get() from it.
 *
 *     struct wf_host host = { 0 };
 *     wf_run_map(run, weight, &host);
 *     ... fill host.view ...
 *     wf_host_put(&host);
 *     wf_host_release(&host);
 */
#pragma once

#include "plan/target.h"

struct wf_host {
    struct wf_view view;  /* data NULL: the rank has no part of it */
    struct wf_view there; /* the device's side */
    const struct wf_device *device;
    struct wf_context *context;
    void *memory; /* NULL on the CPU */
    size_t bytes;
};

/* Makes `view` the host's copy of `there`; its content is undefined. */
void wf_host_map(struct wf_host *host, const struct wf_device *device, struct wf_context *context,
                 struct wf_view there);
/* Copies the view to the device; it may be overwritten at once. */
void wf_host_put(struct wf_host *host);
/* Begins to copy it, if the device can do so in parallel to its work; it may be overwritten after
 * wf_run_take_next(). */
void wf_host_send(struct wf_host *host);
/* Copies from the device once all work before has ended; false if that failed. */
[[nodiscard]] bool wf_host_get(struct wf_host *host, struct wf_err *err);
void wf_host_release(struct wf_host *host);

/* Host memory that the device copies fast, in parallel to its work; NULL when there is none. */
void *wf_host_take(const struct wf_device *device, struct wf_context *context, size_t bytes);
void wf_host_give(const struct wf_device *device, struct wf_context *context, void *memory);
