/* Ranks as processes under mpirun or srun: the slots, and the life of a comm. See mpi_wait.h. */
#define _GNU_SOURCE /* dladdr */
#include "comm/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/halt.h"
#include "base/memory.h"
#include "comm/blame.h"
#include "comm/mpi_wait.h"
#include "comm/sums.h"

static const size_t piece_bytes = (size_t)1 << 30;
enum { LOOKS_AWAKE = 200 };
static const long nap_nanoseconds = 50'000;

static int to_int(size_t count)
{
    WF_BUG_ON(count > INT_MAX, "%zu does not fit MPI's int", count);
    return (int)count;
}

/* --- slots --- */

/* One message, in pieces: M3. */
static int begin_message(struct wf_request *r, const struct wf_message *m)
{
    const struct wf_mpi_comm *comm = r->comm;
    const int first = r->count;
    bool full = true;
    for (size_t at = 0; full; at += comm->piece) {
        full = m->bytes - at >= comm->piece;
        const size_t bytes = full ? comm->piece : m->bytes - at;
        struct wf_mpi_piece piece = { .message = *m, .bytes = bytes, .first = first };
        if (m->recv)
            piece.place = (char *)m->recv + at;
        MPI_Request *handle = wf_mpi_request_add(r, &piece);
        if (m->recv) {
            wf_mpi_expect(r, r->count - 1);
            continue;
        }
        const int code = MPI_Isend((const char *)m->send + at, to_int(bytes), MPI_BYTE, m->peer,
                                   m->tag, comm->mpi, handle);
        if (code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

static bool exchange_begin(struct wf_comm *base, int count, const struct wf_message *messages,
                           struct wf_request **request, struct wf_err *err)
{
    struct wf_mpi_comm *comm = (struct wf_mpi_comm *)base;
    if (wf_mpi_look_for_abort(comm->world))
        return wf_mpi_give_up(comm->world, err);
    struct wf_request *r = wf_mpi_request_take(comm);
    for (int i = 0; i < count; i++) {
        const int code = begin_message(r, &messages[i]);
        if (code != MPI_SUCCESS)
            return wf_mpi_not_begun(comm, r, code, "sending", err);
    }
    return wf_mpi_begun(comm, r, request, err);
}

static bool end(struct wf_comm *base, struct wf_request *r, struct wf_err *err)
{
    return wf_mpi_finish((struct wf_mpi_comm *)base, r, err);
}

static bool test(struct wf_comm *, struct wf_request *r)
{
    return wf_mpi_test(r);
}

/* A server waits long, often on a core that others compute on: it sleeps between polls. */
static bool wait_any(struct wf_comm *base, int count, struct wf_request *const *requests,
                     int *which, struct wf_err *err)
{
    struct wf_mpi_world *const world = ((struct wf_mpi_comm *)base)->world;
    for (unsigned looks = 0;; looks++) {
        if (wf_mpi_look_for_abort(world))
            return wf_mpi_give_up(world, err);
        for (*which = 0; *which < count; ++*which)
            if (requests[*which] && wf_mpi_test(requests[*which]))
                return true;
        wf_sums_advance(base);
        if (looks > LOOKS_AWAKE)
            (void)nanosleep(&(struct timespec){ .tv_nsec = nap_nanoseconds }, NULL);
    }
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

static bool sum_begin(struct wf_comm *base, void *data, size_t count, enum wf_dtype dtype,
                      struct wf_request **request, struct wf_err *err)
{
    struct wf_mpi_comm *comm = (struct wf_mpi_comm *)base;
    if (wf_mpi_look_for_abort(comm->world))
        return wf_mpi_give_up(comm->world, err);
    if (base->size == 1)
        return true;
    struct wf_request *r = wf_mpi_request_take(comm);
    char *place = wf_mpi_stage(r, data, count, dtype);
    const size_t size = wf_mpi_is_half(dtype) ? sizeof(float) : wf_dtype_size(dtype);
    const size_t piece = comm->piece / size;
    for (size_t at = 0; at < count; at += piece) {
        const size_t n = count - at < piece ? count - at : piece;
        MPI_Request *handle = wf_mpi_request_add(r, &(struct wf_mpi_piece){ 0 });
        const int code = MPI_Iallreduce(MPI_IN_PLACE, place + at * size, to_int(n), type_of(dtype),
                                        MPI_SUM, comm->mpi, handle);
        if (code != MPI_SUCCESS)
            return wf_mpi_not_begun(comm, r, code, "a sum", err);
    }
    return wf_mpi_begun(comm, r, request, err);
}

static bool broadcast(struct wf_comm *base, int root, void *data, size_t bytes, struct wf_err *err)
{
    struct wf_mpi_comm *comm = (struct wf_mpi_comm *)base;
    if (wf_mpi_look_for_abort(comm->world))
        return wf_mpi_give_up(comm->world, err);
    struct wf_request *r = wf_mpi_request_take(comm);
    char *place = wf_mpi_stage(r, data, bytes, WF_U8);
    for (size_t at = 0; at < bytes; at += comm->piece) {
        const size_t n = bytes - at < comm->piece ? bytes - at : comm->piece;
        MPI_Request *handle = wf_mpi_request_add(r, &(struct wf_mpi_piece){ 0 });
        const int code = MPI_Ibcast(place + at, to_int(n), MPI_BYTE, root, comm->mpi, handle);
        if (code != MPI_SUCCESS)
            return wf_mpi_not_begun(comm, r, code, "a broadcast", err);
    }
    return wf_mpi_finish(comm, r, err);
}

/* MPI has no call for progress alone; probing for a message makes everything else advance. */
static void progress(struct wf_comm *base)
{
    wf_mpi_match(((struct wf_mpi_comm *)base)->world);
    (void)wf_mpi_look_for_abort(((struct wf_mpi_comm *)base)->world);
}

/* --- life --- */

static bool runs(void)
{
    int initialized = 0, finalized = 0;
    return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized &&
           MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized;
}

/* Called where there is no memory any more. */
static void end_all(const char *)
{
    if (runs())
        (void)MPI_Abort(MPI_COMM_WORLD, wf_err_exit_status(WF_ERR_FIT));
}

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err);
static void free_comm(struct wf_comm *base);

static const struct wf_comm_vtable mpi_vtable = {
    .name = "mpi",
    .exchange_begin = exchange_begin,
    .exchange_end = end,
    .exchange_test = test,
    .exchange_wait_any = wait_any,
    .sum_begin = sum_begin,
    .sum_end = end,
    .broadcast = broadcast,
    .split = split,
    .abort = wf_mpi_abort,
    .free = free_comm,
    .progress = progress,
    .end_all = end_all,
};

/* Takes over `mpi`. */
static struct wf_mpi_comm *comm_new(MPI_Comm mpi, struct wf_mpi_world *world, struct wf_err *err)
{
    int rank = 0, size = 0;
    int code = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(mpi, &rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(mpi, &size);
    if (code != MPI_SUCCESS) {
        (void)wf_mpi_failed(err, code, "asking MPI for the rank");
        return NULL;
    }
    struct wf_mpi_comm *comm = wf_take_zeroed(1, sizeof *comm);
    comm->base = (struct wf_comm){
        .vtable = &mpi_vtable, .rank = rank, .size = size, .leaves_memory = true
    };
    comm->mpi = mpi;
    comm->world = world;
    comm->piece = piece_bytes;
    comm->next = world->comms;
    world->comms = comm;
    return comm;
}

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err)
{
    struct wf_mpi_comm *comm = (struct wf_mpi_comm *)base;
    if (!wf_comm_barrier(base, err)) /* M2 */
        return false;
    MPI_Comm part = MPI_COMM_NULL;
    const int code = MPI_Comm_split(comm->mpi, colour, base->rank, &part);
    if (code != MPI_SUCCESS)
        return wf_mpi_failed(err, code, "MPI_Comm_split");
    struct wf_mpi_comm *new = comm_new(part, comm->world, err);
    if (!new)
        return false;
    new->piece = comm->piece;
    *sub = &new->base;
    return true;
}

static void free_comm(struct wf_comm *base)
{
    struct wf_mpi_comm *comm = (struct wf_mpi_comm *)base;
    struct wf_mpi_world *world = comm->world;
    int finalized = 0;
    bool quiet =
        MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized && !wf_mpi_look_for_abort(world);
    for (const struct wf_request *r = world->in_flight; r; r = r->next)
        quiet = quiet && r->comm != comm;
    for (struct wf_request *r = comm->spare, *next; r; r = next) {
        next = r->next;
        wf_mpi_request_free(r);
    }
    if (!quiet)
        return; /* M4 */
    struct wf_mpi_comm **at = &world->comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    free(comm->expected);
    free(comm->early);
    (void)MPI_Comm_free(&comm->mpi);
    if (comm->owns_world) {
        (void)MPI_Comm_free(&world->control);
        free(world->telling);
        free(world);
    }
    free(comm);
}

/* Otherwise each would train alone, and all write to the same folder. */
static bool refuse_singletons(struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_USAGE,
                      "the launcher has started %d processes, but MPI sees one: it does not "
                      "understand this launcher: use the mpirun of the MPI that widefield was "
                      "built with, or another 'srun --mpi=' (pmix, pmi2)",
                      wf_comm_launched_size());
}

static bool initialise(struct wf_err *err)
{
    /* Asked before MPI, which some libraries end the process in. */
    if (wf_comm_launched_apart())
        return refuse_singletons(err);
    int before = 0, after = 0, level = MPI_THREAD_SINGLE, code;
    if (MPI_Finalized(&after) == MPI_SUCCESS && after)
        return wf_err_set(err, WF_ERR_FAILED, "MPI has already been finished in this process");
    code = MPI_Initialized(&before);
    if (code == MPI_SUCCESS && before)
        code = MPI_Query_thread(&level);
    else if (code == MPI_SUCCESS)
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return wf_mpi_failed(err, code, "MPI_Init_thread");
    if (level < MPI_THREAD_FUNNELED)
        return wf_err_set(err, WF_ERR_FAILED, "this MPI does not work in a program with threads");
    int size = 0;
    code = MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (code != MPI_SUCCESS)
        return wf_mpi_failed(err, code, "MPI_Comm_size");
    if (size == 1 && wf_comm_launched_size() > 1)
        return refuse_singletons(err);
    return true;
}

/* Cores that one of these ranks, or several, may use. */
static int count_cores(MPI_Comm here, int *cores)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_SET(0, &set);
    const int code = MPI_Allreduce(MPI_IN_PLACE, &set, (int)sizeof set, MPI_BYTE, MPI_BOR, here);
    *cores = CPU_COUNT(&set);
    return code;
}

/* MPI knows which ranks share memory; variables of launchers are not reliable. */
static int find_place(struct wf_comm *base)
{
    MPI_Comm here = MPI_COMM_NULL;
    struct wf_place *const place = &base->place;
    base->world_rank = place->node = base->rank;
    base->world_size = base->size;
    int code =
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, base->rank, MPI_INFO_NULL, &here);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(here, &place->rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(here, &place->size);
    if (code == MPI_SUCCESS)
        code = MPI_Bcast(&place->node, 1, MPI_INT, 0, here);
    if (code == MPI_SUCCESS)
        code = count_cores(here, &place->cores);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_free(&here);
    return code;
}

static struct wf_comm *comm_mpi(struct wf_err *err)
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
        (void)wf_mpi_failed(err, code, "MPI_Comm_dup");
        return NULL;
    }
    struct wf_mpi_world *world = wf_take_zeroed(1, sizeof *world);
    struct wf_mpi_comm *comm = comm_new(talk, world, err);
    if (!comm) {
        free(world);
        return NULL;
    }
    world->control = control;
    world->rank = comm->base.rank;
    world->size = comm->base.size;
    world->telling = wf_take_zeroed((size_t)world->size, sizeof(MPI_Request));
    for (int r = 0; r < world->size; r++)
        world->telling[r] = MPI_REQUEST_NULL;
    comm->owns_world = true;
    code = find_place(&comm->base);
    if (code != MPI_SUCCESS) {
        (void)wf_mpi_failed(err, code, "MPI_Comm_split_type");
        return NULL;
    }
    return &comm->base;
}

static void set_piece(struct wf_comm *comm, size_t bytes)
{
    WF_BUG_ON(comm->vtable != &mpi_vtable, "a comm of kind '%s'", comm->vtable->name);
    WF_BUG_ON(bytes == 0 || bytes % 8 != 0 || bytes > INT_MAX, "pieces of %zu bytes", bytes);
    ((struct wf_mpi_comm *)comm)->piece = bytes;
}

static void finish(void)
{
    if (runs())
        (void)MPI_Finalize();
}

static void about(char *text, size_t room)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        length = 0;
    version[length] = '\0';
    version[strcspn(version, ",\n\t")] = '\0';
    Dl_info from;
    const bool known = dladdr(__extension__(void *) MPI_Get_library_version, &from) != 0;
    (void)snprintf(text, room, "%s, %s", version, known ? from.dli_fname : "linked statically");
}

__attribute__((visibility("default"))) const struct wf_mpi_module wf_mpi_module = {
    .version = WF_VERSION_STRING,
    .comm = comm_mpi,
    .finish = finish,
    .set_piece = set_piece,
    .about = about,
    .halt_to = wf_halt_to,
};
