#include "train/pipeline.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"

struct slot {
    enum wf_window_state state;
    struct wf_pipeline_window window;
    int64_t n;
    int parts, next, left; /* of filling or packing: all, the first not begun, those not ended */
};

/* The slots are the queues: there are few, and a thread that looks for a job looks at all of them. */
struct wf_pipeline {
    struct wf_pipeline_options options;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct slot *slots;
    int running; /* jobs */
    bool stops;
    struct wf_err failure; /* of the first image that failed; code WF_OK: none */
    int64_t failed;        /* that image: those before it go on */
    pthread_t *threads;
    int n_threads;
};

struct job {
    struct slot *slot;
    enum wf_window_state state; /* of the slot, while it runs */
    int part;
};

static struct slot *slot_of(const struct wf_pipeline *p, int64_t n)
{
    return &p->slots[n % p->options.slots];
}

static bool goes_on(const struct wf_pipeline *p, const struct slot *s)
{
    return p->failure.code == WF_OK || s->window.image < p->failed;
}

/* Nothing to do in a state is the next one. */
static void enter(const struct wf_pipeline *p, struct slot *s, enum wf_window_state state)
{
    s->state = state;
    s->next = 0;
    s->parts = s->left = state == WF_WINDOW_FILLING   ? s->window.fills
                         : state == WF_WINDOW_PACKING ? s->window.packs
                                                      : 0;
    if (s->left == 0 && (state == WF_WINDOW_FILLING || state == WF_WINDOW_PACKING))
        enter(p, s, state + 1);
}

/* A window of the same image before this one is in that state or has not come to it yet. */
static bool is_behind(const struct wf_pipeline *p, const struct slot *s, enum wf_window_state state)
{
    for (int i = 0; i < p->options.slots; i++) {
        const struct slot *const other = &p->slots[i];
        if (other->state != WF_WINDOW_FREE && other->window.image == s->window.image &&
            other->n < s->n && other->state <= state)
            return true;
    }
    return false;
}

static bool can_begin(const struct wf_pipeline *p, const struct slot *s, enum wf_window_state state)
{
    if (s->state != state || !goes_on(p, s))
        return false;
    if (state == WF_WINDOW_PACKED)
        return !p->options.owner_writes && !is_behind(p, s, WF_WINDOW_WRITING);
    return s->next < s->parts && !(state == WF_WINDOW_FILLING && s->window.in_order &&
                                   is_behind(p, s, WF_WINDOW_FILLING));
}

/* Of the windows in this state the earliest that has something to begin. */
static bool find_job(const struct wf_pipeline *p, enum wf_window_state state, struct job *job)
{
    struct slot *found = NULL;
    for (int i = 0; i < p->options.slots; i++) {
        struct slot *const s = &p->slots[i];
        if (can_begin(p, s, state) && (!found || s->n < found->n))
            found = s;
    }
    *job = (struct job){ .slot = found, .state = state };
    return found;
}

static bool find_any(struct wf_pipeline *p, struct job *job)
{
    if (find_job(p, WF_WINDOW_PACKED, job)) {
        enter(p, job->slot, WF_WINDOW_WRITING);
        return true;
    }
    if (!find_job(p, WF_WINDOW_PACKING, job) && !find_job(p, WF_WINDOW_FILLING, job))
        return false;
    job->part = job->slot->next++;
    return true;
}

static bool run_job(const struct wf_pipeline *p, const struct job *job, struct wf_err *err)
{
    const struct wf_pipeline_options *const o = &p->options;
    const int slot = (int)(job->slot - p->slots);
    return job->state == WF_WINDOW_PACKED    ? o->write(o->user, slot, err)
           : job->state == WF_WINDOW_PACKING ? o->pack(o->user, slot, job->part, err)
                                             : o->fill(o->user, slot, job->part, err);
}

static void note_failure(struct wf_pipeline *p, int64_t image, const struct wf_err *err)
{
    if (p->failure.code != WF_OK && p->failed <= image)
        return;
    p->failure = *err;
    p->failed = image;
}

static void end_job(struct wf_pipeline *p, const struct job *job)
{
    struct slot *const s = job->slot;
    if (s->state == WF_WINDOW_WRITING)
        s->state = WF_WINDOW_FREE;
    else if (--s->left == 0)
        enter(p, s, s->state + 1);
}

static void *work(void *arg)
{
    struct wf_pipeline *const p = arg;
    struct job job;
    (void)pthread_mutex_lock(&p->lock);
    while (!p->stops) {
        if (!find_any(p, &job)) {
            (void)pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        p->running++;
        (void)pthread_mutex_unlock(&p->lock);
        struct wf_err err = { 0 };
        const bool ok = run_job(p, &job, &err);
        (void)pthread_mutex_lock(&p->lock);
        p->running--;
        if (ok)
            end_job(p, &job);
        else
            note_failure(p, job.slot->window.image, &err);
        (void)pthread_cond_broadcast(&p->changed);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct wf_pipeline *wf_pipeline_new(const struct wf_pipeline_options *options, struct wf_err *err)
{
    struct wf_pipeline *const p = wf_take_zeroed(1, sizeof *p);
    p->options = *options;
    p->slots = wf_take_zeroed((size_t)options->slots, sizeof *p->slots);
    p->threads = wf_take_zeroed((size_t)options->threads, sizeof *p->threads);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    for (; p->n_threads < options->threads; p->n_threads++)
        if (pthread_create(&p->threads[p->n_threads], NULL, work, p) != 0)
            break;
    if (p->n_threads > 0)
        return p;
    wf_pipeline_free(p);
    (void)wf_err_set(err, WF_ERR_FIT,
                     "cannot start a thread to read ahead: raise the limits ('ulimit -u "
                     "unlimited', 'ulimit -v unlimited')");
    return NULL;
}

static void change(struct wf_pipeline *p, struct slot *s, enum wf_window_state state)
{
    (void)pthread_mutex_lock(&p->lock);
    enter(p, s, state);
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

void wf_pipeline_free(struct wf_pipeline *p)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->stops = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++)
        (void)pthread_join(p->threads[i], NULL);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->slots);
    free(p);
}

void wf_pipeline_post(struct wf_pipeline *p, int64_t n, const struct wf_pipeline_window *window)
{
    struct slot *const s = slot_of(p, n);
    (void)pthread_mutex_lock(&p->lock);
    WF_BUG_ON(s->state != WF_WINDOW_FREE, "window %lld: its slot is taken", (long long)n);
    s->window = *window;
    s->n = n;
    enter(p, s, WF_WINDOW_FILLING);
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

void wf_pipeline_pack(struct wf_pipeline *p, int64_t n)
{
    change(p, slot_of(p, n), WF_WINDOW_PACKING);
}

void wf_pipeline_written(struct wf_pipeline *p, int64_t n)
{
    change(p, slot_of(p, n), WF_WINDOW_FREE);
}

bool wf_pipeline_is(struct wf_pipeline *p, int64_t n, enum wf_window_state state)
{
    (void)pthread_mutex_lock(&p->lock);
    const bool is = slot_of(p, n)->state == state;
    (void)pthread_mutex_unlock(&p->lock);
    return is;
}

bool wf_pipeline_wait(struct wf_pipeline *p, int64_t n, enum wf_window_state state)
{
    (void)pthread_mutex_lock(&p->lock);
    while (goes_on(p, slot_of(p, n)) && slot_of(p, n)->state != state)
        (void)pthread_cond_wait(&p->changed, &p->lock);
    const bool ok = goes_on(p, slot_of(p, n));
    (void)pthread_mutex_unlock(&p->lock);
    return ok;
}

bool wf_pipeline_goes_on(struct wf_pipeline *p, int64_t n)
{
    (void)pthread_mutex_lock(&p->lock);
    const bool on = goes_on(p, slot_of(p, n));
    (void)pthread_mutex_unlock(&p->lock);
    return on;
}

void wf_pipeline_fail(struct wf_pipeline *p, const struct wf_err *err)
{
    (void)pthread_mutex_lock(&p->lock);
    note_failure(p, INT64_MIN, err);
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

/* Under the lock. */
static bool is_idle(const struct wf_pipeline *p)
{
    for (int i = 0; i < p->options.slots; i++)
        if (p->slots[i].state != WF_WINDOW_FREE && goes_on(p, &p->slots[i]))
            return false;
    return p->running == 0;
}

bool wf_pipeline_drain(struct wf_pipeline *p, struct wf_err *err)
{
    (void)pthread_mutex_lock(&p->lock);
    while (!is_idle(p))
        (void)pthread_cond_wait(&p->changed, &p->lock);
    const bool ok = p->failure.code == WF_OK;
    if (!ok)
        *err = p->failure;
    (void)pthread_mutex_unlock(&p->lock);
    return ok;
}
