/*
 * A transport: how a run's buffers reach other ranks when they are not in host memory.
 *
 * If the device has a device transport (NCCL), it sends them directly, in the order of the device's
 * work. Otherwise they go through host memory and the run's comm: data is copied to the host when
 * the exchange begins, which waits for the work before it, and received data is copied to the
 * device when it ends. On the CPU there is no transport.
 *
 * Numbered transfers: 0 .. count - 1, each begun and ended in turn.
 */
#pragma once

#include "comm/comm.h"
#include "plan/target.h"

struct wf_transport;

/* Collective. For `count` transfers. Borrows the context and the comm. NULL on failure. */
struct wf_transport *wf_transport_new(struct wf_context *context, struct wf_comm *comm, int count,
                                      struct wf_err *err);
void wf_transport_free(struct wf_transport *transport);
/* Work between begin and end can be captured and replayed with the rest of a step. */
bool wf_transport_records(const struct wf_transport *transport);

/* Messages as in comm.h, with pointers into the device's memory. */
[[nodiscard]] bool wf_transport_exchange_begin(struct wf_transport *transport, int number,
                                               int count, const struct wf_message *messages,
                                               struct wf_err *err);
[[nodiscard]] bool wf_transport_exchange_end(struct wf_transport *transport, int number,
                                             struct wf_err *err);
/* Collective over `group`, a part of the transport's comm. `rounded`: as
 * wf_comm_sum_rounded_begin(). */
struct wf_transport_sum {
    struct wf_comm *group;
    void *data;
    size_t count;
    enum wf_dtype dtype;
    bool rounded;
};
[[nodiscard]] bool wf_transport_sum_begin(struct wf_transport *transport, int number,
                                          const struct wf_transport_sum *sum, struct wf_err *err);
[[nodiscard]] bool wf_transport_sum_end(struct wf_transport *transport, int number,
                                        struct wf_err *err);
