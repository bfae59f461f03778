#include "ckpt/background.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

enum state { FREE, HELD, WRITING };

/* Of the time at most one part in so many goes into writing bests, for the next one waits for it. */
static const double SHARE = 20;

struct wf_background {
    struct wf_background_options options;
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    enum state state;
    struct wf_checkpoint_info info; /* of the snapshot that is held */
    bool is_best;
    bool replaces;         /* what is claimed replaces a best that was held */
    double since, written; /* what is held has waited since then; when the last write ended */
    double took;           /* the last write, in seconds */
    bool hurries;          /* nothing is held back */
    bool is_waited_for;    /* what is held is held back for no longer than `settle` */
    bool ends;
    struct wf_err failure; /* WF_OK: none */
};

/* --- the thread --- */

/* B3 */
static double due(const struct wf_background *b)
{
    if (b->hurries || b->ends || !b->is_best)
        return b->since;
    const double share = b->is_waited_for ? 0 : SHARE * b->took;
    const double settle = fmax(b->options.settle, share);
    return fmin(b->since + settle, b->written + b->options.interval);
}

static void wait_until(struct wf_background *b, double time)
{
    const struct timespec until = { .tv_sec = (time_t)time,
                                    .tv_nsec = (long)(1e9 * (time - floor(time))) };
    (void)pthread_cond_timedwait(&b->changed, &b->mutex, &until);
}

/* With the mutex, which is released meanwhile. */
static void write_held(struct wf_background *b)
{
    const struct wf_background_options *const o = &b->options;
    const struct wf_checkpoint_source from = { .snapshot = o->snapshot };
    const struct wf_checkpoint_info info = b->info;
    const bool is_best = b->is_best;
    const double begun = wf_now();
    struct wf_err err = { 0 };
    b->state = WRITING;
    (void)pthread_mutex_unlock(&b->mutex);
    const bool ok = (!o->before || o->before(o->user, &err)) &&
                    wf_checkpoint_save_last(o->folder, is_best, &info, &from, &err);
    (void)pthread_mutex_lock(&b->mutex);
    if (!ok)
        b->failure = err;
    b->state = FREE;
    b->written = wf_now();
    b->took = b->written - begun;
    b->is_waited_for = false;
    (void)pthread_cond_broadcast(&b->changed);
}

static void *work(void *arg)
{
    struct wf_background *const b = arg;
    (void)pthread_mutex_lock(&b->mutex);
    while (b->state == HELD || !b->ends) {
        if (b->state != HELD)
            (void)pthread_cond_wait(&b->changed, &b->mutex);
        else if (wf_now() < due(b))
            wait_until(b, due(b));
        else
            write_held(b);
    }
    (void)pthread_mutex_unlock(&b->mutex);
    return NULL;
}

/* --- making --- */

struct wf_background *wf_background_new(const struct wf_background_options *options,
                                        struct wf_err *err)
{
    struct wf_background *const b = wf_take_zeroed(1, sizeof *b);
    b->options = *options;
    b->written = wf_now();
    (void)pthread_mutex_init(&b->mutex, NULL);
    pthread_condattr_t steady;
    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&b->changed, &steady);
    (void)pthread_condattr_destroy(&steady);
    /* Signals are the other threads': they ask a run to stop. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&b->thread, NULL, work, b) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        return b;
    (void)wf_err_set(err, WF_ERR_FIT,
                     "cannot start a thread to write checkpoints: raise the limits ('ulimit -u "
                     "unlimited', 'ulimit -v unlimited')");
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->mutex);
    free(b);
    return NULL;
}

void wf_background_free(struct wf_background *b)
{
    if (!b)
        return;
    (void)pthread_mutex_lock(&b->mutex);
    b->ends = true;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->mutex);
    (void)pthread_join(b->thread, NULL);
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->mutex);
    free(b);
}

/* --- the training thread --- */

/* Unlocks. */
static bool leave(struct wf_background *b, struct wf_err *err)
{
    const bool ok = b->failure.code == WF_OK;
    if (!ok)
        *err = b->failure;
    (void)pthread_mutex_unlock(&b->mutex);
    return ok;
}

static void finish(struct wf_background *b)
{
    b->hurries = true;
    (void)pthread_cond_broadcast(&b->changed);
    while (b->state != FREE)
        (void)pthread_cond_wait(&b->changed, &b->mutex);
    b->hurries = false;
}

bool wf_background_claim(struct wf_background *b, bool is_best, struct wf_err *err)
{
    (void)pthread_mutex_lock(&b->mutex);
    if (b->state == WRITING || (b->state == HELD && b->is_best && !is_best)) /* B2 */
        finish(b);
    b->replaces = b->state == HELD && b->is_best && is_best;
    b->state = FREE;
    return leave(b, err);
}

void wf_background_hand(struct wf_background *b, const struct wf_checkpoint_info *info,
                        bool is_best)
{
    (void)pthread_mutex_lock(&b->mutex);
    b->info = *info;
    b->is_best = is_best;
    if (!b->replaces)
        b->since = wf_now();
    if (b->failure.code == WF_OK) /* B4 */
        b->state = HELD;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->mutex);
}

void wf_background_fail(struct wf_background *b, const struct wf_err *err)
{
    (void)pthread_mutex_lock(&b->mutex);
    if (b->failure.code == WF_OK)
        b->failure = *err;
    (void)pthread_mutex_unlock(&b->mutex);
}

bool wf_background_look(struct wf_background *b, bool *busy, struct wf_err *err)
{
    (void)pthread_mutex_lock(&b->mutex);
    *busy = b->state != FREE;
    return leave(b, err);
}

void wf_background_hurry(struct wf_background *b)
{
    (void)pthread_mutex_lock(&b->mutex);
    b->is_waited_for = b->is_waited_for || b->state == HELD;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->mutex);
}

bool wf_background_finish(struct wf_background *b, struct wf_err *err)
{
    (void)pthread_mutex_lock(&b->mutex);
    finish(b);
    return leave(b, err);
}
