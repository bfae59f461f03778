/*
 * A device transport sends buffers in device memory to other ranks, in the order of the device's
 * work: a transfer begins after all work enqueued before it, on a separate queue, and ends before
 * the work enqueued after it. Nothing waits on the host.
 *
 * Transfers are numbered 0 .. count - 1 by the caller; each is begun and ended in turn. All ranks
 * begin those they share in the same order (plan.h: I4, I5).
 */
#pragma once

#include "comm/comm.h"

struct wf_device_transport;

struct wf_device_transport_sum {
    struct wf_comm *group; /* the ranks that add up */
    void *data;
    size_t count;
    enum wf_dtype dtype;
};

struct wf_device_transport_vtable {
    bool (*exchange)(struct wf_device_transport *base, int number, int count,
                     const struct wf_message *messages, struct wf_err *err);
    bool (*sum)(struct wf_device_transport *base, int number,
                const struct wf_device_transport_sum *sum, struct wf_err *err);
    bool (*end)(struct wf_device_transport *base, int number, struct wf_err *err);
    void (*free)(struct wf_device_transport *base);
};

struct wf_device_transport {
    const struct wf_device_transport_vtable *vtable;
    bool records; /* can be captured with the device's work */
};
