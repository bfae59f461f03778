/*
 * Linked into tests/widefield_spoiled in front of the library: in every step that is cut, one message
 * between ranks, or one rank's part of a sum, is wrong. 'widefield verify' must see it
 * (tests/campaign/verify).
 *
 * WF_SPOIL=N says which, by hashing: the rank, and the how-manieth communication of its step. What has
 * no effect (a message of zeros) is passed over for the next. "spoiled: ..." on stderr says what was done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "comm/comm.h"
#include "exec/run.h"

bool __real_wf_run_step(struct wf_run *run, struct wf_err *err);
bool __wrap_wf_run_step(struct wf_run *run, struct wf_err *err);
bool __real_wf_comm_exchange_begin(struct wf_comm *comm, int count,
                                   const struct wf_message *messages, struct wf_request **request,
                                   struct wf_err *err);
bool __wrap_wf_comm_exchange_begin(struct wf_comm *comm, int count,
                                   const struct wf_message *messages, struct wf_request **request,
                                   struct wf_err *err);
bool __real_wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                              struct wf_request **request, struct wf_err *err);
bool __wrap_wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                              struct wf_request **request, struct wf_err *err);

enum { DEPTH = 24 }; /* of a step's communications, one of the first so many */

static _Thread_local int left = -1; /* communications until the one that is spoiled; -1: none is */

static struct wf_random dice(void)
{
    const char *const text = getenv("WF_SPOIL");
    return wf_random(text ? strtoull(text, NULL, 10) : 0, 77);
}

bool __wrap_wf_run_step(struct wf_run *run, struct wf_err *err)
{
    left = getenv("WF_SPOIL") ? (int)wf_random_below(dice(), 1, DEPTH) : -1;
    const bool ok = __real_wf_run_step(run, err);
    left = -1;
    return ok;
}

static bool is_turn(const struct wf_comm *comm)
{
    if (left < 0 || wf_comm_size(comm) < 2 ||
        wf_random_below(dice(), 0, (uint32_t)wf_comm_size(comm)) != (uint32_t)wf_comm_rank(comm))
        return false;
    left -= left > 0;
    return left == 0;
}

static void tell(const struct wf_comm *comm, const char *what, size_t bytes)
{
    left = -1;
    (void)fprintf(stderr, "spoiled: rank %d, %s of %zu bytes\n", wf_comm_rank(comm), what, bytes);
}

/* A message that never came, or one that is off by an element. The copy stays: nobody knows when it was
 * sent. */
static const void *spoil_message(const struct wf_message *m, bool shift)
{
    unsigned char *const copy = calloc(1, m->bytes + 4);
    if (!copy)
        return NULL;
    if (shift && m->bytes > 8) {
        memcpy(copy, (const unsigned char *)m->send + 4, m->bytes - 4);
        memcpy(copy + m->bytes - 4, m->send, 4);
    }
    return memcmp(copy, m->send, m->bytes) != 0 ? copy : NULL;
}

bool __wrap_wf_comm_exchange_begin(struct wf_comm *comm, int count,
                                   const struct wf_message *messages, struct wf_request **request,
                                   struct wf_err *err)
{
    if (count == 0 || !is_turn(comm))
        return __real_wf_comm_exchange_begin(comm, count, messages, request, err);
    struct wf_message *const own = calloc((size_t)count, sizeof *own);
    const bool shift = wf_random_below(dice(), 2, 2) == 1;
    if (own)
        memcpy(own, messages, (size_t)count * sizeof *own);
    for (int i = 0; own && left == 0 && i < count; i++) {
        const void *const wrong = own[i].send ? spoil_message(&own[i], shift) : NULL;
        if (!wrong)
            continue;
        own[i].send = wrong;
        tell(comm, shift ? "a message shifted" : "a message lost", own[i].bytes);
    }
    return __real_wf_comm_exchange_begin(comm, count, own ? own : messages, request, err);
}

bool __wrap_wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                              struct wf_request **request, struct wf_err *err)
{
    if (is_turn(comm) && (dtype == WF_F32 || dtype == WF_F64)) {
        const size_t size = wf_dtype_size(dtype);
        const void *const before = calloc(count, size);
        if (before && memcmp(before, data, count * size) != 0) {
            memset(data, 0, count * size);
            tell(comm, "a part of a sum lost", count * size);
        }
    }
    return __real_wf_comm_sum_begin(comm, data, count, dtype, request, err);
}
