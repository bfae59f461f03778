#include "api/engine.h"

#include <pthread.h>
#include <stdlib.h>
#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/memory.h"

enum kind { CALL, STAY, ORDER, GO, LEAVE };

/* What the program's thread waits for. */
struct call {
    enum kind kind;
    wf_engine_fn *fn;                 /* CALL, STAY */
    wf_engine_collective *collective; /* ORDER */
    void *arg;
    int64_t until; /* GO */
    struct wf_err err;
    bool ok, is_done;
};

struct wf_engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct wf_launch *launch;
    const struct wf_watchdog_options *watch; /* until it has started */
    struct wf_stop *stop;
    struct call *posted;  /* not taken yet */
    struct call *current; /* ends when ranks are parked again (E2) */
    bool stays, ends;
};

/* --- the engine's side; under the lock --- */

static void complete(struct wf_engine *e, struct call *c, bool ok, const struct wf_err *err)
{
    c->ok = ok;
    c->err = *err;
    c->is_done = true;
    (void)pthread_cond_broadcast(&e->changed);
}

static struct call *take(struct wf_engine *e)
{
    while (!e->posted && !e->ends)
        (void)pthread_cond_wait(&e->changed, &e->lock);
    struct call *const c = e->posted;
    e->posted = NULL;
    return c;
}

static bool run_unlocked(struct wf_engine *e, const struct call *c, struct wf_err *err)
{
    (void)pthread_mutex_unlock(&e->lock);
#ifdef WF_HAVE_OPENMP
    const int threads = omp_get_max_threads(); /* of the rank that is parked here (E1) */
#endif
    const bool ok = c->fn(c->arg, err);
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(threads);
#endif
    (void)pthread_mutex_lock(&e->lock);
    return ok;
}

static void run_calls(struct wf_engine *e)
{
    for (struct call *c; (c = take(e));) {
        struct wf_err err = { 0 };
        e->current = c;
        e->stays = c->kind == STAY;
        const bool ok = run_unlocked(e, c, &err);
        e->stays = false;
        if (e->current) /* of a function that stayed: the last that was asked of it */
            complete(e, e->current, ok, &err);
        e->current = NULL;
    }
}

static void *engine_main(void *arg)
{
    struct wf_engine *const e = arg;
    struct wf_err err = { 0 };
    const bool ok = wf_launch_begin(e->launch, e->watch, &err);
    (void)pthread_mutex_lock(&e->lock);
    complete(e, take(e), ok, &err); /* what wf_engine_new() waits for */
    if (ok)
        run_calls(e);
    (void)pthread_mutex_unlock(&e->lock);
    wf_launch_end(e->launch);
    return NULL;
}

/* --- parked --- */

/* The engine's thread takes the orders, and does calls of other kinds meanwhile (E1). */
static struct call lead(struct wf_engine *e)
{
    const struct wf_err none = { 0 };
    if (e->current)
        complete(e, e->current, true, &none);
    e->current = NULL;
    struct call *c;
    while ((c = take(e)) && c->kind == CALL) {
        struct wf_err err = { 0 };
        const bool ok = run_unlocked(e, c, &err);
        complete(e, c, ok, &err);
    }
    e->current = c;
    return c ? *c : (struct call){ .kind = LEAVE };
}

/* The other threads hear of the order through their comm, which wakes them also where one has failed. It
 * may be long until the program asks for something: that is not watched. */
static bool share(struct wf_engine *e, struct wf_comm *comm, struct call *order, struct wf_err *err)
{
    if (e->launch
            ->world) /* each of its processes has an engine, and hears it from its own program */
        return true;
    struct wf_watch *const watch = comm->watch;
    comm->watch = NULL;
    const bool ok = wf_comm_broadcast(comm, 0, order, sizeof *order, err);
    comm->watch = watch;
    return ok;
}

bool wf_engine_park(struct wf_engine *e, void *rank, struct wf_comm *comm, int64_t *until)
{
    const bool leads = pthread_equal(pthread_self(), e->thread);
    for (;;) {
        struct call order = { 0 };
        struct wf_err err = { 0 };
        (void)pthread_mutex_lock(&e->lock);
        if (leads)
            order = lead(e);
        (void)pthread_mutex_unlock(&e->lock);
        const bool heard = share(e, comm, &order, &err);
        *until = order.until;
        if (!heard || order.kind != ORDER)
            return heard && order.kind == GO;
        const bool done = order.collective(rank, comm, order.arg, &err);
        const bool ok = wf_comm_agree(comm, done, &err);
        (void)pthread_mutex_lock(&e->lock);
        if (leads)
            complete(e, e->current, ok, &err);
        if (leads)
            e->current = NULL;
        (void)pthread_mutex_unlock(&e->lock);
    }
}

/* --- the program's side --- */

static bool ask(struct wf_engine *e, struct call *c, struct wf_err *err)
{
    atomic_store(&e->stop->asked, false);
    (void)pthread_mutex_lock(&e->lock);
    e->posted = c;
    (void)pthread_cond_broadcast(&e->changed);
    while (!c->is_done)
        (void)pthread_cond_wait(&e->changed, &e->lock);
    (void)pthread_mutex_unlock(&e->lock);
    if (!c->ok)
        *err = c->err;
    return c->ok;
}

bool wf_engine_call(struct wf_engine *e, wf_engine_fn *fn, void *arg, struct wf_err *err)
{
    return ask(e, &(struct call){ .kind = CALL, .fn = fn, .arg = arg }, err);
}

static bool stays(struct wf_engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    const bool stays = e->stays;
    (void)pthread_mutex_unlock(&e->lock);
    return stays;
}

static bool ask_stay(struct wf_stay *stay, struct call *c, struct wf_err *err)
{
    if (!stay->is_over && ask(stay->engine, c, &stay->failed))
        return true;
    *err = stay->failed;
    stay->is_over = !stays(stay->engine);
    if (!stay->is_over) /* it could not do this, and stays */
        stay->failed = (struct wf_err){ 0 };
    return false;
}

bool wf_stay_begin(struct wf_stay *stay, struct wf_engine *e, wf_engine_fn *fn, void *arg,
                   struct wf_err *err)
{
    *stay = (struct wf_stay){ .engine = e };
    if (stays(e)) {
        stay->is_over = true;
        return wf_err_set(err, WF_ERR_USAGE,
                          "the session has an exec or a trainer already: free that, or use another "
                          "session");
    }
    return ask_stay(stay, &(struct call){ .kind = STAY, .fn = fn, .arg = arg }, err);
}

bool wf_stay_order(struct wf_stay *stay, wf_engine_collective *fn, void *arg, struct wf_err *err)
{
    return ask_stay(stay, &(struct call){ .kind = ORDER, .collective = fn, .arg = arg }, err);
}

bool wf_stay_go(struct wf_stay *stay, int64_t until, struct wf_err *err)
{
    return ask_stay(stay, &(struct call){ .kind = GO, .until = until }, err);
}

void wf_stay_end(struct wf_stay *stay)
{
    struct wf_err ignored;
    if (stay->engine && !stay->is_over)
        (void)ask(stay->engine, &(struct call){ .kind = LEAVE }, &ignored);
    stay->is_over = true;
}

struct wf_engine *wf_engine_new(struct wf_launch *launch, const struct wf_watchdog_options *watch,
                                struct wf_stop *stop, struct wf_err *err)
{
    struct wf_engine *const e = wf_take_zeroed(1, sizeof *e);
    *e = (struct wf_engine){ .launch = launch, .watch = watch, .stop = stop };
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_cond_init(&e->changed, NULL);
    /* The thread looks at its own number, so it waits for the first call. */
    bool ok = pthread_create(&e->thread, NULL, engine_main, e) == 0;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_FAILED, "no thread can be started");
    else if (!wf_engine_call(e, NULL, NULL, err)) {
        (void)pthread_join(e->thread, NULL);
        ok = false;
    }
    if (ok)
        return e;
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->lock);
    free(e);
    return NULL;
}

void wf_engine_free(struct wf_engine *e)
{
    if (!e)
        return;
    (void)pthread_mutex_lock(&e->lock);
    e->ends = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
    (void)pthread_join(e->thread, NULL);
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->lock);
    free(e);
}
