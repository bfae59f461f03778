#include "comm/comm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/blame.h"

enum { TAG_MAX = 32000 };

int wf_comm_rank(const struct wf_comm *comm)
{
    return comm->rank;
}

int wf_comm_size(const struct wf_comm *comm)
{
    return comm->size;
}

const char *wf_comm_name(const struct wf_comm *comm)
{
    return comm->vtable->name;
}

bool wf_comm_exchange_begin(struct wf_comm *comm, int count, const struct wf_message *messages,
                            struct wf_request **request, struct wf_err *err)
{
    for (int i = 0; i < count; i++) {
        const struct wf_message *m = &messages[i];
        WF_BUG_ON(m->peer < 0 || m->peer >= comm->size, "message %d: peer %d of %d", i, m->peer,
                  comm->size);
        WF_BUG_ON(m->tag < 0 || m->tag > TAG_MAX, "message %d: tag %d", i, m->tag);
        WF_BUG_ON(!m->send == !m->recv, "message %d, tag %d: one of send and recv", i, m->tag);
    }
    *request = NULL;
    return comm->vtable->exchange_begin(comm, count, messages, request, err);
}

bool wf_comm_exchange_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err)
{
    return !request || comm->vtable->exchange_end(comm, request, err);
}

bool wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                       struct wf_request **request, struct wf_err *err)
{
    WF_BUG_ON(dtype == WF_U8 || dtype >= WF_DTYPES, "no sum of dtype %d", (int)dtype);
    WF_BUG_ON(!data && count > 0, "%zu elements of nothing", count);
    *request = NULL;
    return comm->vtable->sum_begin(comm, data, count, dtype, request, err);
}

bool wf_comm_sum_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err)
{
    return !request || comm->vtable->sum_end(comm, request, err);
}

bool wf_comm_broadcast(struct wf_comm *comm, int root, void *data, size_t bytes, struct wf_err *err)
{
    WF_BUG_ON(root < 0 || root >= comm->size, "root %d of %d", root, comm->size);
    return comm->vtable->broadcast(comm, root, data, bytes, err);
}

static bool sum_now(struct wf_comm *comm, int32_t *data, size_t count, struct wf_err *err)
{
    struct wf_request *request;
    return wf_comm_sum_begin(comm, data, count, WF_I32, &request, err) &&
           wf_comm_sum_end(comm, request, err);
}

/* A sum of which nobody wants the result: it ends only when all have come. */
bool wf_comm_barrier(struct wf_comm *comm, struct wf_err *err)
{
    int32_t here = 1;
    if (!sum_now(comm, &here, 1, err))
        return false;
    WF_BUG_ON(here != comm->size, "%d of %d came", (int)here, comm->size);
    return true;
}

/* The lowest rank that failed. */
static bool find_first_failed(struct wf_comm *comm, bool ok, int *first, struct wf_err *err)
{
    int32_t *failed = calloc((size_t)comm->size, sizeof *failed);
    WF_BUG_ON(!failed, "out of memory for %d ranks", comm->size);
    failed[comm->rank] = ok ? 0 : 1;
    const bool told = sum_now(comm, failed, (size_t)comm->size, err);
    *first = 0;
    while (told && *first < comm->size - 1 && !failed[*first])
        ++*first;
    free(failed);
    return told;
}

bool wf_comm_agree(struct wf_comm *comm, bool ok, struct wf_err *err)
{
    /* `err` may hold this rank's own failure, so the way of the agreement has an error of its own. */
    struct wf_err lost = { 0 };
    int32_t failures = ok ? 0 : 1;
    bool told = sum_now(comm, &failures, 1, &lost);
    if (told && failures == 0)
        return true;
    int first = 0;
    struct wf_err verdict = { 0 };
    told = told && find_first_failed(comm, ok, &first, &lost);
    if (told && first == comm->rank) {
        if (err)
            verdict = *err;
        wf_comm_blame(comm->size > 1 ? first : WF_NOBODY, &verdict);
    }
    told = told && wf_comm_broadcast(comm, first, &verdict, sizeof verdict, &lost);
    if (err && told)
        *err = verdict;
    else if (err && (ok || err->code == WF_OK))
        *err = lost;
    return false;
}

bool wf_comm_split(struct wf_comm *comm, int colour, struct wf_comm **sub, struct wf_err *err)
{
    WF_BUG_ON(colour < 0, "colour %d", colour);
    *sub = NULL;
    return comm->vtable->split(comm, colour, sub, err);
}

void wf_comm_progress(struct wf_comm *comm)
{
    if (comm->vtable->progress)
        comm->vtable->progress(comm);
}

void wf_comm_abort(struct wf_comm *comm, const struct wf_err *err)
{
    comm->vtable->abort(comm, err);
}

void wf_comm_free(struct wf_comm *comm)
{
    if (comm)
        comm->vtable->free(comm);
}

/* "rank 12: " at the front of a text. */
static bool names_rank(const char *text)
{
    if (strncmp(text, "rank ", 5) != 0 || !isdigit((unsigned char)text[5]))
        return false;
    text += 5;
    while (isdigit((unsigned char)*text))
        text++;
    return strncmp(text, ": ", 2) == 0;
}

void wf_comm_blame(int rank, struct wf_err *err)
{
    if (err->code == WF_OK || err->text[0] == '\0') {
        err->code = err->code == WF_OK ? WF_ERR_FAILED : err->code;
        (void)snprintf(err->text, sizeof err->text, "failed without a message");
    }
    if (rank != WF_NOBODY && !names_rank(err->text))
        (void)wf_err_wrap(err, "rank %d", rank);
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

/* Batch scripts and interactive shells are steps of Slurm, too, under reserved numbers at the top of
 * 32 bits: what is started by hand in them is nobody's rank. */
static bool in_slurm_shell(void)
{
    return number_of("SLURM_STEP_ID") >= 0xfffffff0L;
}

int wf_comm_launched_size(void)
{
    const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (number_of(variables[i]) > 0)
            return (int)number_of(variables[i]);
    /* SLURM_NTASKS is there in a batch script, too; the step's number of tasks only under srun. */
    if (!in_slurm_shell() && getenv("SLURM_PROCID") && number_of("SLURM_STEP_NUM_TASKS") > 1)
        return (int)number_of("SLURM_STEP_NUM_TASKS");
    return getenv("PMI_RANK") || (getenv("PMIX_RANK") && !in_slurm_shell()) ? 1 : 0;
}

bool wf_comm_mpi_launched(void)
{
    return wf_comm_launched_size() > 0;
}

#ifndef WF_HAVE_MPI
struct wf_comm *wf_comm_mpi(struct wf_err *err)
{
    (void)wf_err_set(
        err, WF_ERR_USAGE,
        "this widefield was built without MPI: run it without mpirun or srun (ranks are "
        "then threads), or build it with an MPI library installed (libopenmpi-dev)");
    return NULL;
}

void wf_comm_mpi_finish(void)
{
}
#endif
