/*
 * The parameter server: one rank that holds the weights and the optimiser, and workers that send it
 * gradients and receive weights.
 *
 * WF_SYNC_SERVER. Every rank of the mesh is a worker and sends its part of the gradient, unsummed;
 * when all have arrived the server adds them in rank order, updates, and sends the weights to all.
 * The numbers are those of WF_SYNC_ALLREDUCE.
 *
 * WF_SYNC_ASYNC. A worker is one part of the mesh's axis `data` (with its ranks along the others)
 * and has its own batches, losses and statistics. Gradients are applied as they arrive, at most
 * `staleness` updates behind (staleness.h). Workers synchronise (meet), with the same weights, at
 * the end of an epoch and when one of them stops or saves; all have then processed the same number
 * of batches.
 *
 * The server is the last rank of the world and takes no part in the workers' collectives: it
 * answers messages. A rank that fails aborts the world, which ends all of them.
 *
 *     server:   ok = wf_server_run(&(struct wf_server_options){ ... }, err);
 *     worker:   ok = wf_worker_pull(&worker, run, err) ... backward pass ...
 *                    wf_worker_push(&worker, run, &push, err) ... and again
 *               ok = wf_worker_meet(&worker, run, err)    Collective over all workers.
 *               ok = wf_worker_leave(&worker, err)
 */
#pragma once

#include "exec/run.h"
#include "optim/optim.h"
#include "train/staleness.h"

enum wf_sync { WF_SYNC_ALLREDUCE, WF_SYNC_SERVER, WF_SYNC_ASYNC }; /* as train.sync has them */

struct wf_server_options {
    struct wf_comm *comm; /* the world; this is its last rank */
    enum wf_sync sync;
    int workers; /* who send gradients: worker i is rank i * stride of the world */
    int stride;
    int staleness;      /* async */
    struct wf_run *run; /* weights and gradients; takes no steps */
    struct wf_optim *optim;
    double clip; /* largest 2-norm of the gradient; 0: any */
};

/* Serves until all workers have left. */
[[nodiscard]] bool wf_server_run(const struct wf_server_options *options, struct wf_err *err);

/* The server's reply. */
struct wf_reply {
    int64_t version; /* updates so far */
    double norm;     /* of the gradient, before clipping */
    int32_t skipped; /* it was not finite */
    int32_t behind;  /* how many updates */
    int32_t has_weights;
    int32_t meets; /* no weights: all must meet */
    int64_t histogram[WF_STALENESS_MOST + 1];
};

struct wf_worker_options {
    struct wf_comm *world;
    struct wf_comm *group; /* async: the ranks of this worker; its first one talks to the server */
    enum wf_sync sync;
};

struct wf_worker {
    struct wf_worker_options options;
    bool has_weights; /* async: they may be computed with */
    bool asks;        /* set by the trainer: request a meeting with the next push */
    struct wf_reply reply;
};

/* A worker's message. */
struct wf_push {
    float *grads;
    double scale; /* of the gradient; the first worker's counts */
    double lr;
    bool last; /* the next is a meeting */
};

/* Weights to compute with; may wait until others have caught up. */
[[nodiscard]] bool wf_worker_pull(struct wf_worker *w, struct wf_run *run, struct wf_err *err);
/* The gradient; unless it is the last, with new weights in return. */
[[nodiscard]] bool wf_worker_push(struct wf_worker *w, struct wf_run *run,
                                  const struct wf_push *push, struct wf_err *err);
/* Async, collective over all workers: all have the newest weights, and may compute with them only
 * after another pull. */
[[nodiscard]] bool wf_worker_meet(struct wf_worker *w, struct wf_run *run, struct wf_err *err);
/* The server's optimiser, for a checkpoint. By the first worker alone. */
[[nodiscard]] bool wf_worker_fetch(struct wf_worker *w, struct wf_optim *optim, struct wf_err *err);
[[nodiscard]] bool wf_worker_leave(struct wf_worker *w, struct wf_err *err);

/* --- between the two --- */
enum wf_server_tag { WF_TAG_ASK = 1, WF_TAG_GRADIENT, WF_TAG_REPLY, WF_TAG_WEIGHTS, WF_TAG_STATE };
enum wf_server_ask { WF_ASK_PULL, WF_ASK_PUSH, WF_ASK_MEET, WF_ASK_STATE, WF_ASK_LEAVE };
struct wf_ask {
    int32_t what; /* enum wf_server_ask */
    int32_t asks; /* all shall meet */
    int32_t last; /* wants no weights */
    double scale, lr;
};
