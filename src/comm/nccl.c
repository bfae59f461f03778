#include "comm/nccl.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/library.h"
#include "base/memory.h"
#include "device/cuda/cuda.h"

#define FUNCTIONS(F)                                                                               \
    F(ncclGetVersion)                                                                              \
    F(ncclGetErrorString)                                                                          \
    F(ncclGetUniqueId)                                                                             \
    F(ncclCommInitRank)                                                                            \
    F(ncclCommAbort)                                                                               \
    F(ncclGroupStart)                                                                              \
    F(ncclGroupEnd)                                                                                \
    F(ncclSend)                                                                                    \
    F(ncclRecv)                                                                                    \
    F(ncclAllReduce)

struct functions {
    FUNCTIONS(WF_LIBRARY_POINTER)
};

struct group {
    const struct wf_comm *comm;
    ncclComm_t nccl;
};

struct nccl {
    struct wf_device_transport base; /* first */
    struct functions f;
    struct wf_cuda *cuda;
    struct wf_comm *comm;
    struct group *groups; /* the first is the world */
    int n_groups;
    size_t room_groups;
    cudaStream_t stream;
    cudaEvent_t ready, *done; /* done: per transfer */
    int count;
};

static bool open_nccl(struct functions *f, struct wf_err *err)
{
    static const char *const names[] = { FUNCTIONS(WF_LIBRARY_NAME) NULL };
    static const struct wf_library library = {
        .title = "NCCL 2",
        .soname = "libnccl.so.2",
        .install = "NVIDIA's package libnccl2 (pip: nvidia-nccl-cu13)",
    };
    return wf_library_open(&library, names, f, err);
}

bool wf_nccl_about(char *text, size_t room)
{
    struct functions f;
    struct wf_err err = { 0 };
    const bool ok = open_nccl(&f, &err);
    int v = 0;
    if (ok)
        (void)f.ncclGetVersion(&v);
    if (ok)
        (void)snprintf(text, room, "%d.%d.%d, %s", v / 10000, v / 100 % 100, v % 100,
                       wf_library_path(&f));
    else
        (void)snprintf(text, room, "%s", err.text);
    return ok;
}

static bool check(const struct nccl *n, ncclResult_t status, const char *what, struct wf_err *err)
{
    return status == ncclSuccess ||
           wf_err_set(err, WF_ERR_FAILED, "NCCL: %s: %s", what, n->f.ncclGetErrorString(status));
}

/* --- starting --- */

/* Collective. A communicator of the comm's ranks. */
static bool start(struct nccl *n, struct wf_comm *comm, struct wf_err *err)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    bool ok = wf_comm_rank(comm) != 0 || check(n, n->f.ncclGetUniqueId(&id), "making an id", err);
    if (!wf_comm_agree(comm, ok, err) || !wf_comm_broadcast(comm, 0, &id, sizeof id, err))
        return false;
    WF_GROW(n->groups, n->room_groups, (size_t)n->n_groups);
    struct group *const g = &n->groups[n->n_groups];
    *g = (struct group){ .comm = comm };
    ok = check(n, n->f.ncclCommInitRank(&g->nccl, wf_comm_size(comm), id, wf_comm_rank(comm)),
               "joining the other ranks", err);
    n->n_groups += g->nccl != NULL;
    return wf_comm_agree(comm, ok, err);
}

static bool find(struct nccl *n, struct wf_comm *comm, ncclComm_t *nccl, struct wf_err *err)
{
    for (int i = 0; i < n->n_groups; i++)
        if (n->groups[i].comm == comm) {
            *nccl = n->groups[i].nccl;
            return true;
        }
    /* All ranks of the group meet its first sum in the same pass. */
    if (!start(n, comm, err))
        return false;
    *nccl = n->groups[n->n_groups - 1].nccl;
    return true;
}

/* Collective. Has every rank a GPU to itself? */
static bool are_apart(const struct wf_cuda *cuda, struct wf_comm *comm, bool *apart,
                      struct wf_err *err)
{
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    struct cudaDeviceProp p;
    struct wf_arena arena = { 0 };
    int64_t *const ids = wf_arena_array(&arena, 2 * size, int64_t);
    const bool known = cudaGetDeviceProperties(&p, cuda->ordinal) == cudaSuccess;
    if (known)
        memcpy(&ids[2 * me], &p.uuid, 2 * sizeof *ids);
    struct wf_request *request = NULL;
    const bool ok = wf_comm_sum_begin(comm, ids, 2 * (size_t)size, WF_I64, &request, err) &&
                    wf_comm_sum_end(comm, request, err);
    *apart = true;
    for (int i = 0; i < size; i++)
        for (int k = 0; k < i; k++)
            *apart = *apart && memcmp(&ids[2 * i], &ids[2 * k], 2 * sizeof *ids) != 0;
    wf_arena_release(&arena);
    return ok;
}

static void nccl_free(struct wf_device_transport *base)
{
    struct nccl *const n = (struct nccl *)base;
    if (n->stream)
        (void)cudaStreamSynchronize(n->stream);
    for (int i = n->n_groups - 1; i >= 0; i--)
        (void)n->f.ncclCommAbort(n->groups[i].nccl); /* also where a peer is gone */
    for (int i = 0; i < n->count; i++)
        if (n->done[i])
            (void)cudaEventDestroy(n->done[i]);
    if (n->ready)
        (void)cudaEventDestroy(n->ready);
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    free(n->groups);
    free(n->done);
    free(n);
}

/* --- transfers --- */

/* What is enqueued on our stream from here on comes after the device's work so far. */
static bool follow(const struct nccl *n)
{
    return wf_cuda_ok(n->cuda, cudaEventRecord(n->ready, n->cuda->stream), "sending") &&
           wf_cuda_ok(n->cuda, cudaStreamWaitEvent(n->stream, n->ready, 0), "sending");
}

static bool finish(const struct nccl *n, int number, struct wf_err *err)
{
    (void)wf_cuda_ok(n->cuda, cudaEventRecord(n->done[number], n->stream), "sending");
    return wf_cuda_well(n->cuda, err);
}

static bool nccl_exchange(struct wf_device_transport *base, int number, int count,
                          const struct wf_message *messages, struct wf_err *err)
{
    const struct nccl *const n = (struct nccl *)base;
    const ncclComm_t nccl = n->groups[0].nccl;
    if (!follow(n))
        return wf_cuda_well(n->cuda, err);
    bool ok = check(n, n->f.ncclGroupStart(), "sending", err);
    for (int i = 0; ok && i < count; i++) {
        const struct wf_message *const m = &messages[i];
        if (m->bytes == 0)
            continue;
        ok = check(n,
                   m->send ? n->f.ncclSend(m->send, m->bytes, ncclInt8, m->peer, nccl, n->stream)
                           : n->f.ncclRecv(m->recv, m->bytes, ncclInt8, m->peer, nccl, n->stream),
                   "sending", err);
    }
    ok = check(n, n->f.ncclGroupEnd(), "sending", err) && ok;
    return ok && finish(n, number, err);
}

static const ncclDataType_t types[] = {
    [WF_F32] = ncclFloat32, [WF_BF16] = ncclBfloat16, [WF_F16] = ncclFloat16,
    [WF_F64] = ncclFloat64, [WF_I32] = ncclInt32,     [WF_I64] = ncclInt64,
    [WF_U8] = ncclUint8,
};

static bool nccl_sum(struct wf_device_transport *base, int number,
                     const struct wf_device_transport_sum *sum, struct wf_err *err)
{
    struct nccl *const n = (struct nccl *)base;
    ncclComm_t nccl;
    if (!find(n, sum->group, &nccl, err))
        return false;
    if (!follow(n))
        return wf_cuda_well(n->cuda, err);
    return check(n,
                 n->f.ncclAllReduce(sum->data, sum->data, sum->count, types[sum->dtype], ncclSum,
                                    nccl, n->stream),
                 "adding up", err) &&
           finish(n, number, err);
}

static bool nccl_end(struct wf_device_transport *base, int number, struct wf_err *err)
{
    const struct nccl *const n = (struct nccl *)base;
    (void)wf_cuda_ok(n->cuda, cudaStreamWaitEvent(n->cuda->stream, n->done[number], 0),
                     "receiving");
    return wf_cuda_well(n->cuda, err);
}

static const struct wf_device_transport_vtable vtable = {
    .exchange = nccl_exchange,
    .sum = nccl_sum,
    .end = nccl_end,
    .free = nccl_free,
};

static bool make_events(struct nccl *n, struct wf_err *err)
{
    bool ok = wf_cuda_ok(n->cuda, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking),
                         "making a stream") &&
              wf_cuda_ok(n->cuda, cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming),
                         "making an event");
    for (int i = 0; ok && i < n->count; i++)
        ok = wf_cuda_ok(n->cuda, cudaEventCreateWithFlags(&n->done[i], cudaEventDisableTiming),
                        "making an event");
    return ok || wf_cuda_well(n->cuda, err);
}

bool wf_nccl_device_transport(struct wf_context *context, struct wf_comm *comm, int count,
                              struct wf_device_transport **transport, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    *transport = NULL;
    bool apart = false;
    if (cuda->path == WF_DEVICE_PATH_HOST)
        return true;
    if (cuda->path == WF_DEVICE_PATH_AUTO) {
        if (!are_apart(cuda, comm, &apart, err))
            return false;
        if (!apart)
            return true;
    }
    struct functions f;
    struct wf_err lacks = { 0 };
    if (!wf_comm_agree(comm, open_nccl(&f, &lacks), &lacks)) {
        if (cuda->path == WF_DEVICE_PATH_AUTO)
            return true;
        *err = lacks;
        return wf_err_wrap(err, "comm.device=nccl");
    }
    struct nccl *const n = wf_take_zeroed(1, sizeof *n);
    n->base.vtable = &vtable;
    n->base.records = true;
    n->f = f;
    n->cuda = cuda;
    n->comm = comm;
    n->count = count;
    n->done = wf_take_zeroed((size_t)count + 1, sizeof *n->done);
    const bool ok = make_events(n, err);
    if (wf_comm_agree(comm, ok, err) && start(n, comm, err)) {
        *transport = &n->base;
        return true;
    }
    nccl_free(&n->base);
    return wf_err_wrap(err, "starting NCCL between the ranks (comm.device=host goes without it)");
}
