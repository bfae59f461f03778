/* Requests, waiting and giving up under MPI: see M2, M3 and M4 in mpi_wait.h. */
#define _POSIX_C_SOURCE 200809L
#include "comm/mpi_wait.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "comm/blame.h"
#include "comm/sum.h"
#include "comm/sums.h"

enum {
    POLLS_PER_LOOK = 16, /* between two looks for an abort */
    POLLS_AWAKE = 2000,  /* then others may have the core */
    STAGED_MOST = 4096,  /* bytes */
    TAG_ABORT = 1,
};
static const double settle_seconds = 0.2;

bool wf_mpi_failed(struct wf_err *err, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    return wf_err_set(err, WF_ERR_FAILED, "%s failed: %s", what, text);
}

/* --- requests --- */

struct wf_request *wf_mpi_request_take(struct wf_mpi_comm *comm)
{
    struct wf_request *r = comm->spare;
    if (r) {
        comm->spare = r->next;
    } else {
        r = wf_take_zeroed(1, sizeof *r);
        r->comm = comm;
    }
    r->count = r->left = 0;
    r->err.code = WF_OK;
    r->data = NULL;
    r->next = comm->world->in_flight;
    comm->world->in_flight = r;
    return r;
}

static void out_of_flight(struct wf_request *r)
{
    struct wf_request **at = &r->comm->world->in_flight;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
}

void wf_mpi_request_free(struct wf_request *r)
{
    free(r->pieces);
    free(r->handles);
    free(r->statuses);
    free(r->indices);
    free(r->stage);
    free(r);
}

MPI_Request *wf_mpi_request_add(struct wf_request *r, const struct wf_mpi_piece *piece)
{
    const size_t at = (size_t)r->count;
    WF_BUG_ON(r->count == INT_MAX, "%d pieces", r->count);
    WF_GROW(r->pieces, r->pieces_room, at);
    WF_GROW(r->handles, r->handles_room, at); // NOLINT(bugprone-sizeof-expression): handles
    WF_GROW(r->statuses, r->statuses_room, at);
    WF_GROW(r->indices, r->indices_room, at);
    r->pieces[at] = *piece;
    r->handles[at] = MPI_REQUEST_NULL;
    r->count++;
    r->left++;
    return &r->handles[at];
}

static void poll(struct wf_request *r)
{
    int done = 0;
    wf_mpi_match(r->comm->world);
    const int code = MPI_Testsome(r->count, r->handles, &done, r->indices, r->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        (void)wf_mpi_failed(&r->err, code, "waiting");
        wf_mpi_forget(r, WF_MPI_ALL);
        r->left = 0;
        return;
    }
    for (int i = 0; done != MPI_UNDEFINED && i < done; i++) {
        const int at = r->indices[i];
        struct wf_mpi_piece *piece = &r->pieces[at];
        if (code != MPI_SUCCESS && r->statuses[i].MPI_ERROR != MPI_SUCCESS)
            (void)wf_mpi_failed(&r->err, r->statuses[i].MPI_ERROR,
                                piece->place          ? "receiving"
                                : piece->message.send ? "sending"
                                                      : "a collective");
        r->handles[at] = MPI_REQUEST_NULL; /* some leave a failed one there, and report it again */
        free(piece->scratch);
        piece->scratch = NULL;
        r->left--;
    }
}

/* --- abort --- */

bool wf_mpi_look_for_abort(struct wf_mpi_world *world)
{
    int there = 0;
    MPI_Status status;
    if (world->aborted)
        return true;
    /* Twice: a look may do no more than fetch the message that the next one finds. */
    for (int look = 0; look < 2 && !there; look++)
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, world->control, &there, &status) != MPI_SUCCESS)
            return false;
    if (!there)
        return false;
    struct wf_err why = { 0 };
    const int from = status.MPI_SOURCE;
    const int code = MPI_Recv(&why, (int)sizeof why, MPI_BYTE, from, TAG_ABORT, world->control,
                              MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        why = (struct wf_err){ 0 };
    why.text[sizeof why.text - 1] = '\0';
    wf_comm_blame(from, &why);
    world->why = why;
    world->aborted = true;
    return true;
}

/* After an abort: cancel what can be cancelled, and give messages in flight a moment to arrive in
 * buffers that still exist (M4). */
static void settle(struct wf_mpi_world *world)
{
    const double end = MPI_Wtime() + settle_seconds;
    for (struct wf_request *r = world->in_flight; r; r = r->next)
        wf_mpi_forget(r, WF_MPI_ALL);
    for (bool busy = true; busy && MPI_Wtime() < end;) {
        int told = 1;
        (void)MPI_Testall(world->size, world->telling, &told, MPI_STATUSES_IGNORE);
        busy = !told;
        for (struct wf_request *r = world->in_flight; r; r = r->next) {
            if (r->left > 0)
                poll(r);
            busy = busy || r->left > 0;
        }
        sched_yield();
    }
}

bool wf_mpi_give_up(struct wf_mpi_world *world, struct wf_err *err)
{
    if (!world->settled)
        settle(world);
    world->settled = true;
    return wf_err_set(err, world->why.code, "%s", world->why.text);
}

void wf_mpi_abort(struct wf_comm *base, const struct wf_err *err)
{
    struct wf_mpi_world *world = ((struct wf_mpi_comm *)base)->world;
    if (wf_mpi_look_for_abort(world)) {
        (void)wf_mpi_give_up(world, NULL);
        return;
    }
    world->aborted = true;
    if (err)
        world->why = *err;
    wf_comm_blame(world->size > 1 ? world->rank : WF_NOBODY, &world->why);
    for (int r = 0; r < world->size; r++)
        if (r != world->rank &&
            MPI_Isend(&world->why, (int)sizeof world->why, MPI_BYTE, r, TAG_ABORT, world->control,
                      &world->telling[r]) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, wf_err_exit_status(world->why.code));
    (void)wf_mpi_give_up(world, NULL);
}

/* --- staging --- */

bool wf_mpi_is_half(enum wf_dtype dtype)
{
    return dtype == WF_BF16 || dtype == WF_F16;
}

/* A sum of 16-bit values is sent as f32 and rounded once, at its end. Small buffers are copied to
 * memory of our own: MPI cannot cancel a collective, so after an abort it may still write there,
 * and small buffers are often on the stack of a caller that has returned (M4). */
void *wf_mpi_stage(struct wf_request *r, void *data, size_t count, enum wf_dtype dtype)
{
    const size_t bytes = count * (wf_mpi_is_half(dtype) ? sizeof(float) : wf_dtype_size(dtype));
    if (bytes > STAGED_MOST && !wf_mpi_is_half(dtype))
        return data;
    if (r->stage_room < bytes) {
        const size_t room = bytes < STAGED_MOST ? STAGED_MOST : bytes;
        free(r->stage);
        r->stage = wf_take(room);
        r->stage_room = room;
    }
    r->data = data;
    r->staged = count;
    r->dtype = dtype;
    if (wf_mpi_is_half(dtype))
        wf_sum_widen(dtype, r->stage, data, count);
    else if (bytes > 0)
        memcpy(r->stage, data, bytes);
    return r->stage;
}

static void unstage(const struct wf_request *r)
{
    if (r->data && wf_mpi_is_half(r->dtype))
        wf_sum_narrow(r->dtype, r->data, r->stage, r->staged);
    else if (r->data && r->staged > 0)
        memcpy(r->data, r->stage, r->staged * wf_dtype_size(r->dtype));
}

/* --- waiting --- */

bool wf_mpi_test(struct wf_request *r)
{
    if (r->left > 0)
        poll(r);
    return r->left == 0 || r->comm->world->aborted;
}

bool wf_mpi_finish(struct wf_mpi_comm *comm, struct wf_request *r, struct wf_err *err)
{
    bool ok = !comm->world->aborted;
    for (unsigned polls = 0; r->left > 0 && ok; polls++) {
        poll(r);
        wf_sums_advance(&comm->base);
        if (r->left > 0 && polls % POLLS_PER_LOOK == 0)
            ok = !wf_mpi_look_for_abort(comm->world);
        if (polls > POLLS_AWAKE)
            sched_yield();
    }
    ok = ok && !comm->world->aborted; /* found by what else advanced: then `r` was forgotten */
    if (!ok)
        (void)wf_mpi_give_up(comm->world, err);
    else if (r->err.code != WF_OK)
        ok = wf_err_set(err, r->err.code, "%s", r->err.text);
    else
        unstage(r);
    out_of_flight(r);
    if (r->left > 0)
        return ok; /* M4 */
    r->next = comm->spare;
    comm->spare = r;
    return ok;
}

bool wf_mpi_begun(struct wf_mpi_comm *comm, struct wf_request *r, struct wf_request **request,
                  struct wf_err *err)
{
    if (r->count == 0)
        return wf_mpi_finish(comm, r, err);
    *request = r;
    return true;
}

bool wf_mpi_not_begun(struct wf_mpi_comm *comm, struct wf_request *r, int code, const char *what,
                      struct wf_err *err)
{
    /* The handle of the call that failed was never set. */
    r->left--;
    struct wf_err why = { 0 };
    (void)wf_mpi_failed(&why, code, what);
    wf_mpi_abort(&comm->base, &why);
    (void)wf_mpi_finish(comm, r, NULL);
    return wf_err_set(err, why.code, "%s", why.text);
}
