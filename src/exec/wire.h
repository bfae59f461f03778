/*
 * A wire: how a run's buffers travel to other ranks when they do not lie in the host's memory.
 *
 * Two ways. A carrier of the device (NCCL) takes them as they are, in the order of the device's work.
 * Without one they go through blocks of host memory and the run's comm: what is sent is brought to the
 * host when the exchange begins, which waits for the work before it, and what came is put back when it
 * ends. On the CPU there is no wire.
 *
 * Numbered transfers: 0 .. count - 1, each begun and ended in turn.
 */
#ifndef WF_EXEC_WIRE_H
#define WF_EXEC_WIRE_H

#include "comm/comm.h"
#include "plan/target.h"

struct wf_wire;

/* Collective. For so many transfers. Borrows the context and the comm. NULL on failure. */
struct wf_wire *wf_wire_new(struct wf_context *context, struct wf_comm *comm, int count,
                            struct wf_err *err);
void wf_wire_free(struct wf_wire *wire);
/* Work between begin and end can be captured and replayed with the rest of a step. */
bool wf_wire_records(const struct wf_wire *wire);

/* Messages as in comm.h, with pointers into the device's memory. */
[[nodiscard]] bool wf_wire_exchange_begin(struct wf_wire *wire, int number, int count,
                                          const struct wf_message *messages, struct wf_err *err);
[[nodiscard]] bool wf_wire_exchange_end(struct wf_wire *wire, int number, struct wf_err *err);
/* Collective over `group`, a part of the wire's comm. `rounded`: as wf_comm_sum_rounded_begin(). */
struct wf_wire_sum {
    struct wf_comm *group;
    void *data;
    size_t count;
    enum wf_dtype dtype;
    bool rounded;
};
[[nodiscard]] bool wf_wire_sum_begin(struct wf_wire *wire, int number,
                                     const struct wf_wire_sum *sum, struct wf_err *err);
[[nodiscard]] bool wf_wire_sum_end(struct wf_wire *wire, int number, struct wf_err *err);

#endif
