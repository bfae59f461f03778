#define _GNU_SOURCE /* environ */
#include "comm/comm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/blame.h"
#include "comm/sums.h"
#include "comm/watch.h"

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
    if (!request)
        return true;
    wf_watch_begin(comm->watch, "a fetch");
    const bool ok = comm->vtable->exchange_end(comm, request, err);
    wf_watch_end(comm->watch);
    return ok;
}

/* --- sums --- */

/* Fixed, not timed at the start of a run: the order of additions is part of a run's numbers, and
 * they must not depend on how busy a machine was. `widefield bench allreduce` compares it with the
 * others. */
static enum wf_sum_way fastest(const struct wf_comm *comm, size_t bytes)
{
    enum { LEAST = 1 << 10, FEW = 64 << 10, SOME = 128 << 10, MANY = 2 << 20, MOST = 4 << 20 };
    const int nodes = comm->sums->n_nodes;
    if (strcmp(comm->vtable->name, "mpi") != 0) /* threads add straight from each other's memory */
        return comm->size == 2 && bytes <= LEAST ? WF_SUM_TREE : WF_SUM_LIBRARY;
    if (comm->size == 2)
        return WF_SUM_TREE;
    if (nodes == 1) /* there `nodes` is two rounds, everyone with everyone */
        return bytes < SOME ? WF_SUM_LIBRARY : bytes < MANY ? WF_SUM_NODES : WF_SUM_RING;
    if (nodes < comm->size && bytes >= FEW)
        return WF_SUM_NODES; /* the network carries each element once per machine */
    return bytes < MOST ? WF_SUM_LIBRARY : WF_SUM_TREE;
}

enum wf_sum_way wf_comm_sum_way(const struct wf_comm *comm, size_t bytes)
{
    if (!comm->sums || !comm->vtable->exchange_test || comm->size == 1)
        return WF_SUM_LIBRARY;
    enum wf_sum_way way = comm->sums->options.way;
    if (way == WF_SUM_AUTO)
        way = fastest(comm, bytes);
    return way == WF_SUM_LIBRARY && comm->vtable->sums_past ? WF_SUM_TREE : way;
}

int wf_comm_nodes(const struct wf_comm *comm)
{
    return comm->sums ? comm->sums->n_nodes : 1;
}

bool wf_comm_set_sums(struct wf_comm *comm, const struct wf_sum_options *options,
                      struct wf_err *err)
{
    WF_BUG_ON(comm->sums && comm->sums->flight->first, "sums of rank %d are in flight", comm->rank);
    wf_sums_free(comm->sums, false);
    comm->sums = NULL;
    return wf_sums_attach(comm, options, NULL, err);
}

static bool begin_sum(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                      enum wf_dtype sent_dtype, struct wf_request **request, struct wf_err *err)
{
    *request = NULL;
    enum wf_sum_way way = wf_comm_sum_way(comm, count * wf_dtype_size(dtype));
    if (sent_dtype != dtype && way == WF_SUM_LIBRARY && comm->vtable->exchange_test)
        way = WF_SUM_TREE; /* the library knows no such type */
    if (way == WF_SUM_LIBRARY || comm->size == 1 || count == 0)
        return comm->vtable->sum_begin(comm, data, count, dtype, request, err);
    return wf_sums_begin(comm, way, data, count, dtype, sent_dtype, request, err);
}

bool wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                       struct wf_request **request, struct wf_err *err)
{
    WF_BUG_ON(dtype == WF_U8 || dtype >= WF_DTYPES, "no sum of dtype %d", (int)dtype);
    WF_BUG_ON(!data && count > 0, "%zu elements of nothing", count);
    return begin_sum(comm, data, count, dtype, dtype, request, err);
}

bool wf_comm_sum_rounded_begin(struct wf_comm *comm, void *data, size_t count,
                               struct wf_request **request, struct wf_err *err)
{
    WF_BUG_ON(!data && count > 0, "%zu elements of nothing", count);
    const enum wf_dtype sent_dtype =
        comm->sums && comm->sums->options.sent_dtype == WF_BF16 ? WF_BF16 : WF_F32;
    return begin_sum(comm, data, count, WF_F32, sent_dtype, request, err);
}

bool wf_comm_sum_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err)
{
    if (!request)
        return true;
    wf_watch_begin(comm->watch, "a sum over ranks");
    const bool ok = wf_sums_has(comm, request) ? wf_sums_end(comm, request, err)
                                               : comm->vtable->sum_end(comm, request, err);
    wf_watch_end(comm->watch);
    return ok;
}

bool wf_comm_broadcast(struct wf_comm *comm, int root, void *data, size_t bytes, struct wf_err *err)
{
    WF_BUG_ON(root < 0 || root >= comm->size, "root %d of %d", root, comm->size);
    wf_watch_begin(comm->watch, "a broadcast");
    const bool ok = comm->vtable->broadcast(comm, root, data, bytes, err);
    wf_watch_end(comm->watch);
    return ok;
}

static bool sum_now(struct wf_comm *comm, int32_t *data, size_t count, struct wf_err *err)
{
    struct wf_request *request;
    return wf_comm_sum_begin(comm, data, count, WF_I32, &request, err) &&
           wf_comm_sum_end(comm, request, err);
}

/* A sum whose result is not used: it ends only when all ranks have begun it. */
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
    int32_t *failed = wf_take_zeroed((size_t)comm->size, sizeof *failed);
    failed[comm->rank] = ok ? 0 : 1;
    const bool told = sum_now(comm, failed, (size_t)comm->size, err);
    *first = 0;
    while (told && *first < comm->size - 1 && !failed[*first])
        ++*first;
    free(failed);
    return told;
}

bool wf_comm_largest(struct wf_comm *comm, double *value, struct wf_err *err)
{
    double *const each = wf_take_zeroed((size_t)comm->size, sizeof *each);
    each[comm->rank] = *value;
    const bool ok = wf_comm_sum(comm, each, (size_t)comm->size, WF_F64, err);
    for (int i = 0; ok && i < comm->size; i++)
        *value = each[i] > *value ? each[i] : *value;
    free(each);
    return ok;
}

bool wf_comm_least(struct wf_comm *comm, size_t *bytes, struct wf_err *err)
{
    int64_t *const each = wf_take_zeroed((size_t)comm->size, sizeof *each);
    each[comm->rank] = (int64_t)*bytes;
    const bool ok = wf_comm_sum(comm, each, (size_t)comm->size, WF_I64, err);
    for (int i = 0; ok && i < comm->size; i++)
        *bytes = (size_t)each[i] < *bytes ? (size_t)each[i] : *bytes;
    free(each);
    return ok;
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
    if (err && told) {
        *err = verdict;
        err->is_shared = comm->size == comm->world_size;
    } else if (err && (ok || err->code == WF_OK))
        *err = lost;
    return false;
}

bool wf_comm_split(struct wf_comm *comm, int colour, struct wf_comm **sub, struct wf_err *err)
{
    WF_BUG_ON(colour < 0, "colour %d", colour);
    *sub = NULL;
    if (!comm->vtable->split(comm, colour, sub, err))
        return false;
    (*sub)->world_rank = comm->world_rank;
    (*sub)->world_size = comm->world_size;
    (*sub)->watch = comm->watch;
    (*sub)->stop = comm->stop;
    (*sub)->place = comm->place;
    if (!comm->sums || wf_sums_attach(*sub, &comm->sums->options, comm->sums->flight, err))
        return true;
    wf_comm_free(*sub);
    *sub = NULL;
    return false;
}

bool wf_comm_exchange_wait_any(struct wf_comm *comm, int count, struct wf_request *const *requests,
                               int *which, struct wf_err *err)
{
    int there = 0;
    for (int i = 0; i < count; i++)
        there += requests[i] != NULL;
    WF_BUG_ON(there == 0, "none of %d requests to wait for", count);
    return comm->vtable->exchange_wait_any(comm, count, requests, which, err);
}

int wf_comm_local_rank(const struct wf_comm *comm)
{
    return comm->place.rank;
}

int wf_comm_local_size(const struct wf_comm *comm)
{
    return comm->place.size;
}

int wf_comm_local_cores(const struct wf_comm *comm)
{
    return comm->place.cores;
}

void wf_comm_progress(struct wf_comm *comm)
{
    if (comm->vtable->progress)
        comm->vtable->progress(comm);
    wf_sums_advance(comm);
}

void wf_comm_abort(struct wf_comm *comm, const struct wf_err *err)
{
    comm->vtable->abort(comm, err);
}

void wf_comm_free(struct wf_comm *comm)
{
    if (!comm)
        return;
    struct wf_sums *const sums = comm->sums;
    const bool leaves = comm->leaves_memory;
    comm->vtable->free(comm);
    wf_sums_free(sums, leaves); /* after: messages of its sums were taken back just now */
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

/* Batch scripts and interactive shells are steps of Slurm, too, under reserved numbers at the top
 * of 32 bits: what is started by hand in them is nobody's rank. */
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

int wf_comm_launched_rank(void)
{
    const char *const variables[] = { "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK",
                                      "PMIX_RANK", "SLURM_PROCID" };
    size_t i = 0;
    while (i + 1 < sizeof variables / sizeof *variables && !getenv(variables[i]))
        i++;
    return (int)number_of(variables[i]);
}

/* PMIx, PMI-1, PMI-2 and those of Cray all leave variables behind. */
static bool has_process_manager(void)
{
    for (char **at = environ; *at; at++)
        if (strncmp(*at, "PMI", 3) == 0 || strncmp(*at, "PALS_", 5) == 0)
            return true;
    return false;
}

bool wf_comm_launched_apart(void)
{
    return !number_of("OMPI_COMM_WORLD_SIZE") && !number_of("MV2_COMM_WORLD_SIZE") &&
           wf_comm_launched_size() > 1 && !has_process_manager();
}

int wf_comm_slurm_tasks(void)
{
    return getenv("SLURM_JOB_ID") && !wf_comm_mpi_launched() ? (int)number_of("SLURM_NTASKS") : 0;
}

bool wf_comm_mpi_launched(void)
{
    return wf_comm_launched_size() > 0;
}
