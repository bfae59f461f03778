/* A group of one: the matching of `threads`, with nobody to wait for. */
#include "comm/threads.h"

static const struct wf_comm_vtable self_vtable = {
    .name = "self",
    .exchange_begin = wf_threads_exchange_begin,
    .exchange_end = wf_threads_exchange_end,
    .exchange_test = wf_threads_exchange_test,
    .exchange_wait_any = wf_threads_exchange_wait_any,
    .sum_begin = wf_threads_sum_begin,
    .sum_end = wf_threads_sum_end,
    .broadcast = wf_threads_broadcast,
    .split = wf_threads_split,
    .abort = wf_threads_abort,
    .free = wf_threads_free,
    .progress = wf_threads_progress,
};

struct wf_comm *wf_comm_self(void)
{
    struct wf_threads_world *world = wf_threads_world_new(1);
    struct wf_threads_comm *comm = wf_threads_comm_new(world->everyone, 0);
    comm->base.vtable = &self_vtable;
    comm->base.world_size = 0; /* what is agreed on here nobody else knows */
    comm->owns_world = true;
    return &comm->base;
}
