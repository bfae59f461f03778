#include "train/server.h"

#include <math.h>
#include <stdlib.h>

/* One worker, seen by the server. */
struct client {
    int rank;
    struct wf_ask ask;
    bool wants; /* weights, after this gradient */
    bool meets, left;
};

struct server {
    const struct wf_server_options *o;
    struct wf_staleness staleness;
    struct client *clients;
    struct wf_request **listening; /* per client; NULL: it waits for us */
    float *part;                   /* sync: the gradients of all but the first */
    struct wf_reply reply;         /* of the last update */
    bool requested;                /* somebody wants all to meet */
    int64_t until;                 /* batches that all make before that */
    int here;                      /* clients that have not left */
};

static size_t weight_bytes(const struct server *s)
{
    return wf_run_trained_count(s->o->run) * sizeof(float);
}

static bool listen(struct server *s, int i, struct wf_err *err)
{
    struct client *const c = &s->clients[i];
    const struct wf_message m = {
        .peer = c->rank, .tag = WF_TAG_ASK, .recv = &c->ask, .bytes = sizeof c->ask
    };
    return wf_comm_exchange_begin(s->o->comm, 1, &m, &s->listening[i], err);
}

/* Answers client i and listens to it again. */
static bool answer(struct server *s, int i, bool weights, bool meets, struct wf_err *err)
{
    const int rank = s->clients[i].rank;
    s->reply.version = s->staleness.version;
    s->reply.has_weights = weights;
    s->reply.meets = meets;
    for (int k = 0; k <= WF_STALENESS_MOST; k++)
        s->reply.histogram[k] = s->staleness.histogram[k];
    const struct wf_message m[] = {
        { .peer = rank, .tag = WF_TAG_REPLY, .send = &s->reply, .bytes = sizeof s->reply },
        { .peer = rank,
          .tag = WF_TAG_WEIGHTS,
          .send = wf_run_params(s->o->run),
          .bytes = weight_bytes(s) },
    };
    return wf_comm_exchange(s->o->comm, weights ? 2 : 1, m, err) && listen(s, i, err);
}

/* --- updates --- */

static bool take_gradient(struct server *s, int i, float *to, struct wf_err *err)
{
    const struct wf_message m = {
        .peer = s->clients[i].rank, .tag = WF_TAG_GRADIENT, .recv = to, .bytes = weight_bytes(s)
    };
    return wf_comm_exchange(s->o->comm, 1, &m, err);
}

/* With what lies in the run's gradients. */
static void update(struct server *s, const struct wf_ask *ask)
{
    struct wf_optim *const optim = s->o->optim;
    float *const grads = wf_run_grads(s->o->run);
    const double squares = wf_optim_squares(optim, grads);
    double scale = ask->scale;
    s->reply.skipped = !isfinite(squares);
    s->reply.norm = sqrt(squares) * scale;
    if (s->reply.skipped)
        return;
    if (s->o->clip > 0)
        scale *= fmin(1, s->o->clip / (s->reply.norm + 1e-6));
    optim->lr = ask->lr;
    wf_optim_update(optim, wf_run_params(s->o->run), grads, scale);
}

/* All gradients are here. In rank order, as a sum over threads has it. */
static bool update_together(struct server *s, struct wf_err *err)
{
    const size_t count = wf_run_trained_count(s->o->run);
    float *const sum = wf_run_grads(s->o->run);
    for (int i = 0; i < s->o->workers; i++) {
        if (!take_gradient(s, i, i == 0 ? sum : s->part, err))
            return false;
        for (size_t k = 0; i > 0 && k < count; k++)
            sum[k] += s->part[k];
    }
    update(s, &s->clients[0].ask);
    s->staleness.version++;
    s->reply.behind = 0;
    for (int i = 0; i < s->o->workers; i++) {
        s->staleness.worker[i].state = WF_WORKER_IDLE;
        if (!answer(s, i, true, false, err))
            return false;
    }
    return true;
}

/* --- asynchronous --- */

static bool all_meet(const struct server *s)
{
    int meeting = 0;
    for (int i = 0; i < s->o->workers; i++)
        meeting += s->clients[i].meets;
    return meeting == s->o->workers;
}

static bool end_meeting(struct server *s, struct wf_err *err)
{
    wf_staleness_restart(&s->staleness);
    s->requested = false;
    for (int i = 0; i < s->o->workers; i++) {
        s->clients[i].meets = false;
        if (!answer(s, i, true, false, err))
            return false;
    }
    return true;
}

/* A worker that has asked either gets weights in its turn, or hears that all shall meet. */
static bool ask_for(struct server *s, int i, struct wf_err *err)
{
    if (s->requested && s->staleness.worker[i].clock >= s->until)
        return answer(s, i, false, true, err);
    wf_staleness_ask(&s->staleness, i);
    return true;
}

/* Everything that can be done without waiting for a worker. */
static bool serve(struct server *s, struct wf_err *err)
{
    int i;
    for (bool busy = true; busy;) {
        busy = false;
        if (wf_staleness_due(&s->staleness, &i)) {
            busy = true;
            s->reply.behind = s->staleness.worker[i].behind;
            if (!take_gradient(s, i, wf_run_grads(s->o->run), err))
                return false;
            update(s, &s->clients[i].ask);
            if (!(s->clients[i].wants ? ask_for(s, i, err) : answer(s, i, false, false, err)))
                return false;
        }
        if (wf_staleness_next(&s->staleness, &i)) {
            busy = true;
            if (!answer(s, i, true, false, err))
                return false;
        }
    }
    return !all_meet(s) || end_meeting(s, err);
}

/* --- asks --- */

static bool send_state(struct server *s, int i, struct wf_err *err)
{
    const struct wf_optim *const optim = s->o->optim;
    struct wf_message m[WF_UPDATE_STATES + 1];
    int count = 0;
    for (; count < optim->n_states; count++)
        m[count] = (struct wf_message){ .send = optim->states[count], .bytes = weight_bytes(s) };
    m[count++] = (struct wf_message){ .send = &optim->step, .bytes = sizeof optim->step };
    for (int k = 0; k < count; k++) {
        m[k].peer = s->clients[i].rank;
        m[k].tag = WF_TAG_STATE;
    }
    return wf_comm_exchange(s->o->comm, count, m, err) && listen(s, i, err);
}

static bool note_push(struct server *s, int i)
{
    struct client *const c = &s->clients[i];
    c->wants = !c->ask.last;
    if (c->ask.asks && !s->requested) {
        s->requested = true;
        s->until = wf_staleness_most_clock(&s->staleness);
    }
    if (s->o->sync == WF_SYNC_ASYNC)
        wf_staleness_arrive(&s->staleness, i);
    else
        s->staleness.worker[i].state = WF_WORKER_WAITS;
    return true;
}

static bool take_ask(struct server *s, int i, struct wf_err *err)
{
    struct client *const c = &s->clients[i];
    switch ((enum wf_server_ask)c->ask.what) {
    case WF_ASK_PULL:
        return ask_for(s, i, err);
    case WF_ASK_PUSH:
        return note_push(s, i);
    case WF_ASK_MEET:
        c->meets = true;
        return true;
    case WF_ASK_STATE:
        return send_state(s, i, err);
    case WF_ASK_LEAVE:
        c->left = true;
        s->here--;
        return true;
    }
    return wf_err_set(err, WF_ERR_FAILED, "worker %d asks for %d", i, (int)c->ask.what);
}

static bool all_wait(const struct server *s)
{
    int waiting = 0;
    for (int i = 0; i < s->o->workers; i++)
        waiting += s->staleness.worker[i].state == WF_WORKER_WAITS;
    return waiting == s->o->workers;
}

static bool answer_all(struct server *s, struct wf_err *err)
{
    bool ok = true;
    for (int i = 0; ok && i < s->o->workers; i++)
        ok = listen(s, i, err);
    while (ok && s->here > 0) {
        int i;
        ok = wf_comm_exchange_wait_any(s->o->comm, s->o->workers, s->listening, &i, err);
        if (!ok)
            break;
        struct wf_request *const request = s->listening[i];
        s->listening[i] = NULL;
        ok = wf_comm_exchange_end(s->o->comm, request, err) && take_ask(s, i, err);
        if (ok && s->o->sync == WF_SYNC_ASYNC)
            ok = serve(s, err);
        else if (ok && all_wait(s))
            ok = update_together(s, err);
    }
    return ok;
}

bool wf_server_run(const struct wf_server_options *o, struct wf_err *err)
{
    struct server s = { .o = o, .here = o->workers };
    const size_t n = (size_t)o->workers;
    wf_staleness_init(&s.staleness, o->workers, o->staleness);
    s.clients = calloc(n, sizeof *s.clients);
    s.listening = calloc(n, sizeof(struct wf_request *));
    s.part = o->sync == WF_SYNC_SERVER ? malloc(weight_bytes(&s) + 1) : NULL;
    bool ok = s.clients && s.listening && (s.part || o->sync != WF_SYNC_SERVER);
    if (!ok)
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for %zu bytes of gradients", weight_bytes(&s));
    for (int i = 0; ok && i < o->workers; i++)
        s.clients[i].rank = i * o->stride;
    ok = ok && answer_all(&s, err);
    if (!ok) {
        (void)wf_err_wrap(err, "parameter server");
        wf_comm_abort(o->comm, err); /* before what is in flight goes */
    }
    free(s.part);
    free(s.listening);
    free(s.clients);
    wf_staleness_release(&s.staleness);
    return ok;
}
