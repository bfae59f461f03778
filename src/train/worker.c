#include "train/server.h"

static int server_of(const struct wf_worker *w)
{
    return wf_comm_size(w->options.world) - 1;
}

/* Of a worker's ranks one talks. */
static bool talks(const struct wf_worker *w)
{
    return !w->options.group || wf_comm_rank(w->options.group) == 0;
}

static bool exchange(struct wf_worker *w, int count, const struct wf_message *m, struct wf_err *err)
{
    if (wf_comm_exchange(w->options.world, count, m, err))
        return true;
    return wf_err_wrap(err, "talking to the parameter server (rank %d)", server_of(w));
}

static struct wf_message to_server(const struct wf_worker *w, enum wf_server_tag tag,
                                   const void *data, size_t bytes)
{
    return (struct wf_message){ .peer = server_of(w), .tag = tag, .send = data, .bytes = bytes };
}

static struct wf_message from_server(const struct wf_worker *w, enum wf_server_tag tag, void *data,
                                     size_t bytes)
{
    return (struct wf_message){ .peer = server_of(w), .tag = tag, .recv = data, .bytes = bytes };
}

static size_t weight_bytes(const struct wf_run *run)
{
    return wf_run_trained_count(run) * sizeof(float);
}

/* Sends what is asked, and waits for the answer. */
static bool converse(struct wf_worker *w, struct wf_run *run, const struct wf_ask *ask,
                     const float *grads, struct wf_err *err)
{
    const struct wf_message m[] = {
        to_server(w, WF_TAG_ASK, ask, sizeof *ask),
        from_server(w, WF_TAG_REPLY, &w->reply, sizeof w->reply),
        to_server(w, WF_TAG_GRADIENT, grads, weight_bytes(run)),
    };
    const struct wf_message weights =
        from_server(w, WF_TAG_WEIGHTS, wf_run_params(run), weight_bytes(run));
    return exchange(w, grads ? 3 : 2, m, err) &&
           (!w->reply.has_weights || exchange(w, 1, &weights, err));
}

/* The one that talks tells the others of its worker. */
static bool ask_server(struct wf_worker *w, struct wf_run *run, const struct wf_ask *ask,
                       const float *grads, struct wf_err *err)
{
    struct wf_comm *const group = w->options.group;
    bool ok = !talks(w) || converse(w, run, ask, grads, err);
    if (!ok || !group || wf_comm_size(group) == 1)
        return ok;
    ok = wf_comm_broadcast(group, 0, &w->reply, sizeof w->reply, err);
    return ok && (!w->reply.has_weights ||
                  wf_comm_broadcast(group, 0, wf_run_params(run), weight_bytes(run), err));
}

bool wf_worker_pull(struct wf_worker *w, struct wf_run *run, struct wf_err *err)
{
    if (w->options.sync != WF_SYNC_ASYNC || w->has_weights)
        return true;
    if (!ask_server(w, run, &(struct wf_ask){ .what = WF_ASK_PULL }, NULL, err))
        return false;
    w->has_weights = w->reply.has_weights;
    WF_BUG_ON(!w->has_weights, "a meeting at version %lld", (long long)w->reply.version);
    return true;
}

bool wf_worker_push(struct wf_worker *w, struct wf_run *run, const struct wf_push *push,
                    struct wf_err *err)
{
    const struct wf_ask ask = { .what = WF_ASK_PUSH,
                                .asks = w->asks,
                                .last = push->last,
                                .scale = push->scale,
                                .lr = push->lr };
    if (!ask_server(w, run, &ask, push->grads, err))
        return false;
    w->has_weights = w->reply.has_weights;
    return true;
}

bool wf_worker_meet(struct wf_worker *w, struct wf_run *run, struct wf_err *err)
{
    if (!ask_server(w, run, &(struct wf_ask){ .what = WF_ASK_MEET }, NULL, err))
        return false;
    w->has_weights = false;
    w->asks = false;
    return true;
}

bool wf_worker_fetch(struct wf_worker *w, struct wf_optim *optim, struct wf_err *err)
{
    const struct wf_ask ask = { .what = WF_ASK_STATE };
    struct wf_message m[WF_UPDATE_STATES + 2];
    int count = 0;
    m[count++] = to_server(w, WF_TAG_ASK, &ask, sizeof ask);
    for (int i = 0; i < optim->n_states; i++)
        m[count++] = from_server(w, WF_TAG_STATE, optim->states[i], optim->count * sizeof(float));
    m[count++] = from_server(w, WF_TAG_STATE, &optim->step, sizeof optim->step);
    return exchange(w, count, m, err);
}

bool wf_worker_leave(struct wf_worker *w, struct wf_err *err)
{
    const struct wf_ask ask = { .what = WF_ASK_LEAVE };
    const struct wf_message m = to_server(w, WF_TAG_ASK, &ask, sizeof ask);
    return !talks(w) || exchange(w, 1, &m, err);
}
