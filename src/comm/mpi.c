/*
 * Ranks as processes under mpirun or srun.
 *
 * M1. All traffic runs on a private duplicate of the world (or a split of it), where errors return.
 * M2. No call that can wait for another rank blocks inside MPI: it is begun nonblocking and polled,
 *     and the polls look for an abort on a second duplicate, which carries nothing else. The calls
 *     that have no nonblocking form (dup, split) come directly after a barrier.
 * M3. A message is floor(bytes / piece) full pieces and one that is not full (perhaps empty): so a
 *     receiver that expects another size meets, at one of its pieces, one of another size.
 * M4. After an abort nobody knows what MPI still holds: handles and buffers in flight are left to the
 *     end of the process.
 */
#define _POSIX_C_SOURCE 200809L
#include "comm/comm.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "comm/blame.h"
#include "comm/mpi.h"
#include "comm/sum.h"

enum {
    POLLS_PER_LOOK = 16, /* between two looks for an abort */
    POLLS_AWAKE = 2000,  /* then others may have the core */
    TAG_ABORT = 1,
};
static const size_t piece_bytes = (size_t)1 << 30;
static const double settle_seconds = 0.2;

/* Shared by the comm of the world and all that was split from it. */
struct mpi_world {
    MPI_Comm control;
    int rank, size;
    bool aborted, settled;
    struct wf_err why;
    MPI_Request *telling; /* our own abort on its way */
    struct wf_request *in_flight;
};

struct mpi_comm {
    struct wf_comm base;
    MPI_Comm mpi;
    struct mpi_world *world;
    bool owns_world;
    size_t piece;
    struct wf_request *spare;
};

/* What one MPI request carries; neither send nor recv is set in a collective. */
struct piece {
    struct wf_message message;
    size_t bytes;
};

struct wf_request {
    struct wf_request *next; /* in flight or spare */
    struct mpi_comm *comm;
    int count, left;
    struct piece *pieces;
    MPI_Request *handles;
    MPI_Status *statuses;
    int *indices;
    size_t pieces_room, handles_room, statuses_room, indices_room;
    struct wf_err err; /* the first thing that went wrong in it */
    /* A sum of halves travels as f32 and is rounded once, at the end. */
    void *halves;
    float *wide;
    size_t half_count, wide_room;
    enum wf_dtype dtype;
};

static bool mpi_failed(struct wf_err *err, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    return wf_err_set(err, WF_ERR_FAILED, "%s failed: %s", what, text);
}

/* --- requests --- */

static struct wf_request *take_request(struct mpi_comm *comm)
{
    struct wf_request *r = comm->spare;
    if (r) {
        comm->spare = r->next;
    } else {
        r = calloc(1, sizeof *r);
        WF_BUG_ON(!r, "out of memory for a request of rank %d", comm->base.rank);
        r->comm = comm;
    }
    r->count = r->left = 0;
    r->err.code = WF_OK;
    r->halves = NULL;
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

static void free_request(struct wf_request *r)
{
    free(r->pieces);
    free(r->handles);
    free(r->statuses);
    free(r->indices);
    free(r->wide);
    free(r);
}

static MPI_Request *add_piece(struct wf_request *r, const struct wf_message *message, size_t bytes)
{
    const size_t at = (size_t)r->count;
    WF_BUG_ON(r->count == INT_MAX, "%d pieces", r->count);
    WF_GROW(r->pieces, r->pieces_room, at);
    WF_GROW(r->handles, r->handles_room, at);
    WF_GROW(r->statuses, r->statuses_room, at);
    WF_GROW(r->indices, r->indices_room, at);
    r->pieces[at] = (struct piece){ .message = *message, .bytes = bytes };
    r->handles[at] = MPI_REQUEST_NULL;
    r->count++;
    r->left++;
    return &r->handles[at];
}

/* A piece is complete: is it what was expected? */
static void judge(struct wf_request *r, const struct piece *piece, const MPI_Status *status,
                  int failure)
{
    const struct wf_message *m = &piece->message;
    int class = MPI_SUCCESS, got = 0;
    if (failure != MPI_SUCCESS && MPI_Error_class(failure, &class) != MPI_SUCCESS)
        class = MPI_ERR_OTHER;
    if (class != MPI_SUCCESS && !(m->recv && class == MPI_ERR_TRUNCATE)) {
        (void)mpi_failed(&r->err, failure,
                         m->recv   ? "receiving"
                         : m->send ? "sending"
                                   : "a collective");
        return;
    }
    if (!m->recv)
        return;
    if (MPI_Get_count(status, MPI_BYTE, &got) != MPI_SUCCESS || got < 0)
        got = 0;
    if (class == MPI_SUCCESS && (size_t)got == piece->bytes)
        return;
    /* Not every MPI tells the true size of what it has cut off; and of a message in pieces, only
     * the one that did not fit is known. */
    const bool more = class == MPI_ERR_TRUNCATE && (size_t)got <= piece->bytes;
    const bool alone = piece->bytes == m->bytes;
    (void)wf_err_set(&r->err, WF_ERR_FAILED,
                     "message from rank %d with tag %d: expected %zu bytes, got %s%zu%s", m->peer,
                     m->tag, m->bytes, more ? "more than " : "", more ? piece->bytes : (size_t)got,
                     alone ? "" : " in one of its pieces");
}

static void poll(struct wf_request *r)
{
    int done = 0;
    const int code = MPI_Testsome(r->count, r->handles, &done, r->indices, r->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        (void)mpi_failed(&r->err, code, "waiting");
        r->left = 0;
        return;
    }
    if (done == MPI_UNDEFINED) {
        r->left = 0;
        return;
    }
    for (int i = 0; i < done; i++) {
        const int at = r->indices[i];
        const int failure = code == MPI_SUCCESS ? MPI_SUCCESS : r->statuses[i].MPI_ERROR;
        judge(r, &r->pieces[at], &r->statuses[i], failure);
        r->handles[at] = MPI_REQUEST_NULL; /* some leave a failed one there, and report it again */
    }
    r->left -= done;
}

/* --- abort --- */

static bool look_for_abort(struct mpi_world *world)
{
    int there = 0;
    MPI_Status status;
    if (world->aborted)
        return true;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, world->control, &there, &status) != MPI_SUCCESS ||
        !there)
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

/* After an abort: take back what can be taken back, and give what is already on its way a moment to
 * arrive in buffers that are still there (M4). */
static void settle(struct mpi_world *world)
{
    const double end = MPI_Wtime() + settle_seconds;
    for (struct wf_request *r = world->in_flight; r; r = r->next)
        for (int i = 0; i < r->count; i++)
            if (r->pieces[i].message.recv && r->handles[i] != MPI_REQUEST_NULL)
                (void)MPI_Cancel(&r->handles[i]);
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

static bool give_up(struct mpi_world *world, struct wf_err *err)
{
    if (!world->settled)
        settle(world);
    world->settled = true;
    return wf_err_set(err, world->why.code, "%s", world->why.text);
}

static void abort_world(struct wf_comm *base, const struct wf_err *err)
{
    struct mpi_world *world = ((struct mpi_comm *)base)->world;
    if (look_for_abort(world)) {
        (void)give_up(world, NULL);
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
    (void)give_up(world, NULL);
}

/* --- waiting --- */

/* Ends `r`, well or not. */
static bool finish(struct mpi_comm *comm, struct wf_request *r, struct wf_err *err)
{
    bool ok = !comm->world->aborted;
    for (unsigned polls = 0; r->left > 0 && ok; polls++) {
        poll(r);
        if (r->left > 0 && polls % POLLS_PER_LOOK == 0)
            ok = !look_for_abort(comm->world);
        if (polls > POLLS_AWAKE)
            sched_yield();
    }
    if (!ok)
        (void)give_up(comm->world, err);
    else if (r->err.code != WF_OK)
        ok = wf_err_set(err, r->err.code, "%s", r->err.text);
    else if (r->halves)
        wf_sum_narrow(r->dtype, r->halves, r->wide, r->half_count);
    out_of_flight(r);
    if (r->left > 0)
        return ok; /* M4 */
    r->next = comm->spare;
    comm->spare = r;
    return ok;
}

/* Nothing to wait for: no request. */
static bool begun(struct mpi_comm *comm, struct wf_request *r, struct wf_request **request,
                  struct wf_err *err)
{
    if (r->count == 0)
        return finish(comm, r, err);
    *request = r;
    return true;
}

/* A begin that failed half way: the world must end, but the caller gets the reason. */
static bool not_begun(struct mpi_comm *comm, struct wf_request *r, int code, const char *what,
                      struct wf_err *err)
{
    /* The handle of the call that failed was never set. */
    r->left--;
    struct wf_err why = { 0 };
    (void)mpi_failed(&why, code, what);
    abort_world(&comm->base, &why);
    (void)finish(comm, r, NULL);
    return wf_err_set(err, why.code, "%s", why.text);
}

static int to_int(size_t count)
{
    WF_BUG_ON(count > INT_MAX, "%zu does not fit MPI's int", count);
    return (int)count;
}

/* --- slots --- */

static bool exchange_begin(struct wf_comm *base, int count, const struct wf_message *messages,
                           struct wf_request **request, struct wf_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    if (look_for_abort(comm->world))
        return give_up(comm->world, err);
    struct wf_request *r = take_request(comm);
    for (int i = 0; i < count; i++) {
        const struct wf_message *m = &messages[i];
        bool full = true;
        for (size_t at = 0; full; at += comm->piece) { /* M3 */
            full = m->bytes - at >= comm->piece;
            const size_t bytes = full ? comm->piece : m->bytes - at;
            MPI_Request *handle = add_piece(r, m, bytes);
            const int code = m->send ? MPI_Isend((const char *)m->send + at, to_int(bytes),
                                                 MPI_BYTE, m->peer, m->tag, comm->mpi, handle)
                                     : MPI_Irecv((char *)m->recv + at, to_int(bytes), MPI_BYTE,
                                                 m->peer, m->tag, comm->mpi, handle);
            if (code != MPI_SUCCESS)
                return not_begun(comm, r, code, m->send ? "sending" : "receiving", err);
        }
    }
    return begun(comm, r, request, err);
}

static bool end(struct wf_comm *base, struct wf_request *r, struct wf_err *err)
{
    return finish((struct mpi_comm *)base, r, err);
}

static MPI_Datatype type_of(enum wf_dtype dtype)
{
    switch (dtype) {
    case WF_F32:
    case WF_BF16:
    case WF_F16:
        return MPI_FLOAT;
    case WF_F64:
        return MPI_DOUBLE;
    case WF_I32:
        return MPI_INT32_T;
    case WF_I64:
        return MPI_INT64_T;
    case WF_U8:
    case WF_DTYPES:
        break;
    }
    WF_BUG_ON(true, "sum of dtype %d", (int)dtype);
    return MPI_BYTE;
}

static float *widen(struct wf_request *r, void *data, size_t count, enum wf_dtype dtype)
{
    if (r->wide_room < count) {
        free(r->wide);
        r->wide = calloc(count, sizeof *r->wide);
        WF_BUG_ON(!r->wide, "out of memory for a sum of %zu halves", count);
        r->wide_room = count;
    }
    r->halves = data;
    r->half_count = count;
    r->dtype = dtype;
    wf_sum_widen(dtype, r->wide, data, count);
    return r->wide;
}

static bool sum_begin(struct wf_comm *base, void *data, size_t count, enum wf_dtype dtype,
                      struct wf_request **request, struct wf_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    if (look_for_abort(comm->world))
        return give_up(comm->world, err);
    if (base->size == 1)
        return true;
    struct wf_request *r = take_request(comm);
    const bool half = dtype == WF_BF16 || dtype == WF_F16;
    if (half)
        data = widen(r, data, count, dtype);
    const size_t size = half ? sizeof(float) : wf_dtype_size(dtype);
    const size_t piece = comm->piece / size;
    for (size_t at = 0; at < count; at += piece) {
        const size_t n = count - at < piece ? count - at : piece;
        MPI_Request *handle = add_piece(r, &(struct wf_message){ 0 }, n * size);
        const int code = MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * size, to_int(n),
                                        type_of(dtype), MPI_SUM, comm->mpi, handle);
        if (code != MPI_SUCCESS)
            return not_begun(comm, r, code, "a sum", err);
    }
    return begun(comm, r, request, err);
}

static bool broadcast(struct wf_comm *base, int root, void *data, size_t bytes, struct wf_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    if (look_for_abort(comm->world))
        return give_up(comm->world, err);
    struct wf_request *r = take_request(comm);
    for (size_t at = 0; at < bytes; at += comm->piece) {
        const size_t n = bytes - at < comm->piece ? bytes - at : comm->piece;
        MPI_Request *handle = add_piece(r, &(struct wf_message){ 0 }, n);
        const int code =
            MPI_Ibcast((char *)data + at, to_int(n), MPI_BYTE, root, comm->mpi, handle);
        if (code != MPI_SUCCESS)
            return not_begun(comm, r, code, "a broadcast", err);
    }
    return finish(comm, r, err);
}

/* MPI has no call for it alone; looking for a message makes everything else advance. */
static void progress(struct wf_comm *base)
{
    (void)look_for_abort(((struct mpi_comm *)base)->world);
}

/* --- life --- */

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err);
static void free_comm(struct wf_comm *base);

static const struct wf_comm_vtable mpi_vtable = {
    .name = "mpi",
    .exchange_begin = exchange_begin,
    .exchange_end = end,
    .sum_begin = sum_begin,
    .sum_end = end,
    .broadcast = broadcast,
    .split = split,
    .abort = abort_world,
    .free = free_comm,
    .progress = progress,
};

/* Takes over `mpi`. */
static struct mpi_comm *comm_new(MPI_Comm mpi, struct mpi_world *world, struct wf_err *err)
{
    int rank = 0, size = 0;
    int code = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(mpi, &rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(mpi, &size);
    if (code != MPI_SUCCESS) {
        (void)mpi_failed(err, code, "asking MPI for the rank");
        return NULL;
    }
    struct mpi_comm *comm = calloc(1, sizeof *comm);
    WF_BUG_ON(!comm, "out of memory for rank %d of %d", rank, size);
    comm->base = (struct wf_comm){ &mpi_vtable, rank, size };
    comm->mpi = mpi;
    comm->world = world;
    comm->piece = piece_bytes;
    return comm;
}

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    if (!wf_comm_barrier(base, err)) /* M2 */
        return false;
    MPI_Comm part = MPI_COMM_NULL;
    const int code = MPI_Comm_split(comm->mpi, colour, base->rank, &part);
    if (code != MPI_SUCCESS)
        return mpi_failed(err, code, "MPI_Comm_split");
    struct mpi_comm *new = comm_new(part, comm->world, err);
    if (!new)
        return false;
    new->piece = comm->piece;
    *sub = &new->base;
    return true;
}

static void free_comm(struct wf_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_world *world = comm->world;
    int finalized = 0;
    bool quiet = MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized && !look_for_abort(world);
    for (const struct wf_request *r = world->in_flight; r; r = r->next)
        quiet = quiet && r->comm != comm;
    for (struct wf_request *r = comm->spare, *next; r; r = next) {
        next = r->next;
        free_request(r);
    }
    if (!quiet)
        return; /* M4 */
    (void)MPI_Comm_free(&comm->mpi);
    if (comm->owns_world) {
        (void)MPI_Comm_free(&world->control);
        free(world->telling);
        free(world);
    }
    free(comm);
}

static bool initialise(struct wf_err *err)
{
    int before = 0, after = 0, level = MPI_THREAD_SINGLE, code;
    if (MPI_Finalized(&after) == MPI_SUCCESS && after)
        return wf_err_set(err, WF_ERR_FAILED, "MPI has already been finished in this process");
    code = MPI_Initialized(&before);
    if (code == MPI_SUCCESS && before)
        code = MPI_Query_thread(&level);
    else if (code == MPI_SUCCESS)
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return mpi_failed(err, code, "MPI_Init_thread");
    if (level < MPI_THREAD_FUNNELED)
        return wf_err_set(err, WF_ERR_FAILED, "this MPI does not work in a program with threads");
    int size = 0;
    code = MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (code != MPI_SUCCESS)
        return mpi_failed(err, code, "MPI_Comm_size");
    /* Otherwise each would train alone, and all write to the same folder. */
    if (size == 1 && wf_comm_launched_size() > 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "the launcher has started %d processes, but MPI sees one: it does not "
                          "understand this launcher: use the mpirun of the MPI that widefield was "
                          "built with, or another 'srun --mpi=' (pmix, pmi2)",
                          wf_comm_launched_size());
    return true;
}

struct wf_comm *wf_comm_mpi(struct wf_err *err)
{
    if (!initialise(err))
        return NULL;
    MPI_Comm talk = MPI_COMM_NULL, control = MPI_COMM_NULL;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &talk);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &control);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) {
        (void)mpi_failed(err, code, "MPI_Comm_dup");
        return NULL;
    }
    struct mpi_world *world = calloc(1, sizeof *world);
    WF_BUG_ON(!world, "out of memory for an MPI world");
    struct mpi_comm *comm = comm_new(talk, world, err);
    if (!comm) {
        free(world);
        return NULL;
    }
    world->control = control;
    world->rank = comm->base.rank;
    world->size = comm->base.size;
    world->telling = calloc((size_t)world->size, sizeof *world->telling);
    WF_BUG_ON(!world->telling, "out of memory for %d ranks", world->size);
    for (int r = 0; r < world->size; r++)
        world->telling[r] = MPI_REQUEST_NULL;
    comm->owns_world = true;
    return &comm->base;
}

void wf_comm_mpi_set_piece(struct wf_comm *comm, size_t bytes)
{
    WF_BUG_ON(comm->vtable != &mpi_vtable, "a comm of kind '%s'", comm->vtable->name);
    WF_BUG_ON(bytes == 0 || bytes % 8 != 0 || bytes > INT_MAX, "pieces of %zu bytes", bytes);
    ((struct mpi_comm *)comm)->piece = bytes;
}

void wf_comm_mpi_finish(void)
{
    int initialized = 0, finalized = 0;
    if (MPI_Initialized(&initialized) == MPI_SUCCESS && initialized &&
        MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
        (void)MPI_Finalize();
}
