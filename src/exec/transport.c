#include "exec/transport.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/device_transport.h"

/* A transfer through the host. */
struct transfer {
    struct wf_request *request;
    struct wf_message *messages; /* with the host's pointers */
    void **there;                /* the device's */
    int count, room;
    struct wf_transport_sum sum;
    char *block;
    size_t bytes;
};

struct wf_transport {
    struct wf_context *context;
    const struct wf_device *device;
    struct wf_comm *comm;
    struct wf_device_transport *device_transport; /* or NULL */
    struct transfer *transfers;
    int count;
};

struct wf_transport *wf_transport_new(struct wf_context *context, struct wf_comm *comm, int count,
                                      struct wf_err *err)
{
    struct wf_transport *const w = wf_take_zeroed(1, sizeof *w);
    w->context = context;
    w->device = context->device;
    w->comm = comm;
    w->count = count;
    w->transfers = wf_take_zeroed((size_t)count + 1, sizeof *w->transfers);
    if (!w->device->transfer.transport ||
        w->device->transfer.transport(context, comm, count, &w->device_transport, err))
        return w;
    wf_transport_free(w);
    return NULL;
}

void wf_transport_free(struct wf_transport *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->count; i++) {
        if (w->transfers[i].block)
            w->device->transfer.host_free(w->context, w->transfers[i].block);
        free(w->transfers[i].messages);
        free(w->transfers[i].there);
    }
    free(w->transfers);
    if (w->device_transport)
        w->device_transport->vtable->free(w->device_transport);
    free(w);
}

bool wf_transport_records(const struct wf_transport *w)
{
    return w->device_transport && w->device_transport->records;
}

/* --- through the host --- */

static bool make_room(const struct wf_transport *w, struct transfer *t, size_t bytes, int messages,
                      struct wf_err *err)
{
    if (bytes > t->bytes || !t->block) {
        if (t->block)
            w->device->transfer.host_free(w->context, t->block);
        t->block = w->device->transfer.host_alloc(w->context, bytes);
        if (!t->block)
            return wf_err_set(
                err, WF_ERR_FIT,
                "the host has not got %zu bytes of pinned memory for what goes to other "
                "ranks: use fewer ranks on this machine, or comm.device=nccl",
                bytes);
        t->bytes = bytes;
    }
    if (messages > t->room) {
        free(t->messages);
        free(t->there);
        t->messages = wf_take_zeroed((size_t)messages + 1, sizeof *t->messages);
        t->there = wf_take_zeroed((size_t)messages + 1, sizeof *t->there);
        t->room = messages;
    }
    return true;
}

/* Bytes at `data` as a view, on either side. */
static struct wf_view bytes_at(const void *data, size_t bytes)
{
    const struct wf_shape shape = WF_SHAPE(1, 1, 1, 1, (int64_t)bytes);
    return wf_view_dense((void *)(uintptr_t)data, WF_U8, wf_shape_region(shape));
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Brings what is sent. One wait for all: the last get() waits for the ones before it. */
static bool bring(const struct wf_transport *w, const struct transfer *t, struct wf_err *err)
{
    for (int i = 0; i < t->count; i++) {
        const struct wf_message *const m = &t->messages[i];
        if (!m->send || m->bytes == 0)
            continue;
        const struct wf_view host = bytes_at(m->send, m->bytes);
        const struct wf_view there = bytes_at(t->there[i], m->bytes);
        w->device->memory.copy(w->context, &host, &there);
    }
    return w->device->stream.synchronize(w->context, err);
}

static bool exchange_begin(struct wf_transport *w, struct transfer *t, int count,
                           const struct wf_message *messages, struct wf_err *err)
{
    size_t bytes = 64, at = 0;
    bool sends = false;
    for (int i = 0; i < count; i++)
        bytes += whole_lines(messages[i].bytes);
    if (!make_room(w, t, bytes, count, err))
        return false;
    t->count = count;
    for (int i = 0; i < count; i++) {
        const struct wf_message *const m = &messages[i];
        t->there[i] = m->send ? (void *)(uintptr_t)m->send : m->recv;
        t->messages[i] = *m;
        t->messages[i].send = m->send ? t->block + at : NULL;
        t->messages[i].recv = m->send ? NULL : t->block + at;
        at += whole_lines(m->bytes);
        sends = sends || (m->send && m->bytes > 0);
    }
    return (!sends || bring(w, t, err)) &&
           wf_comm_exchange_begin(w->comm, count, t->messages, &t->request, err);
}

static bool exchange_end(const struct wf_transport *w, struct transfer *t, struct wf_err *err)
{
    if (!wf_comm_exchange_end(w->comm, t->request, err))
        return false;
    for (int i = 0; i < t->count; i++) {
        const struct wf_message *const m = &t->messages[i];
        if (!m->recv || m->bytes == 0)
            continue;
        const struct wf_view host = bytes_at(m->recv, m->bytes);
        const struct wf_view there = bytes_at(t->there[i], m->bytes);
        w->device->transfer.put(w->context, &there, &host);
    }
    return true;
}

static bool sum_begin(const struct wf_transport *w, struct transfer *t,
                      const struct wf_transport_sum *sum, struct wf_err *err)
{
    const size_t bytes = sum->count * wf_dtype_size(sum->dtype);
    if (!make_room(w, t, bytes, 0, err))
        return false;
    t->sum = *sum;
    const struct wf_view host = bytes_at(t->block, bytes), there = bytes_at(sum->data, bytes);
    if (!w->device->transfer.get(w->context, &host, &there, err))
        return false;
    if (sum->rounded)
        return wf_comm_sum_rounded_begin(sum->group, (float *)(void *)t->block, sum->count,
                                         &t->request, err);
    return wf_comm_sum_begin(sum->group, t->block, sum->count, sum->dtype, &t->request, err);
}

static bool sum_end(const struct wf_transport *w, struct transfer *t, struct wf_err *err)
{
    if (!wf_comm_sum_end(t->sum.group, t->request, err))
        return false;
    const size_t bytes = t->sum.count * wf_dtype_size(t->sum.dtype);
    const struct wf_view host = bytes_at(t->block, bytes), there = bytes_at(t->sum.data, bytes);
    w->device->transfer.put(w->context, &there, &host);
    return true;
}

/* --- either way --- */

bool wf_transport_exchange_begin(struct wf_transport *w, int number, int count,
                                 const struct wf_message *messages, struct wf_err *err)
{
    if (w->device_transport)
        return w->device_transport->vtable->exchange(w->device_transport, number, count, messages,
                                                     err);
    return exchange_begin(w, &w->transfers[number], count, messages, err);
}

bool wf_transport_exchange_end(struct wf_transport *w, int number, struct wf_err *err)
{
    if (w->device_transport)
        return w->device_transport->vtable->end(w->device_transport, number, err);
    return exchange_end(w, &w->transfers[number], err);
}

bool wf_transport_sum_begin(struct wf_transport *w, int number, const struct wf_transport_sum *sum,
                            struct wf_err *err)
{
    if (w->device_transport)
        return w->device_transport->vtable->sum(
            w->device_transport, number,
            &(struct wf_device_transport_sum){
                .group = sum->group, .data = sum->data, .count = sum->count, .dtype = sum->dtype },
            err);
    return sum_begin(w, &w->transfers[number], sum, err);
}

bool wf_transport_sum_end(struct wf_transport *w, int number, struct wf_err *err)
{
    if (w->device_transport)
        return w->device_transport->vtable->end(w->device_transport, number, err);
    return sum_end(w, &w->transfers[number], err);
}
