#define _POSIX_C_SOURCE 200809L
#include "comm/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

struct wf_watchdog {
    struct wf_watchdog_options options;
    int count;
    struct wf_watch *ranks;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool ends; /* under the lock */
};

static const int64_t second = 1'000'000'000;

static int64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * second + t.tv_nsec;
}

void wf_watch_begin(struct wf_watch *watch, const char *what)
{
    if (!watch)
        return;
    atomic_store_explicit(&watch->since, now(), memory_order_relaxed);
    atomic_store_explicit(&watch->told, 0, memory_order_relaxed);
    atomic_store_explicit(&watch->what, what, memory_order_release);
}

void wf_watch_end(struct wf_watch *watch)
{
    if (watch)
        atomic_store_explicit(&watch->what, NULL, memory_order_release);
}

void wf_watch_at(struct wf_watch *watch, int64_t step, const char *name, int peer)
{
    if (!watch)
        return;
    atomic_store_explicit(&watch->step, step, memory_order_relaxed);
    atomic_store_explicit(&watch->name, name, memory_order_relaxed);
    atomic_store_explicit(&watch->peer, peer, memory_order_relaxed);
}

static void print(const struct wf_watchdog *dog, const struct wf_watch *w, const char *what,
                  long long seconds, bool ends)
{
    const char *const name = atomic_load(&w->name);
    const int peer = atomic_load(&w->peer);
    const long long step = (long long)atomic_load(&w->step);
    char whom[32] = "the others", where[64] = "";
    if (peer >= 0)
        (void)snprintf(whom, sizeof whom, "rank %d", peer);
    if (step >= 0)
        (void)snprintf(where, sizeof where, " in step %lld", step);
    static const struct wf_log plain = { .level = WF_LOG_WARN };
    wf_log(dog->options.log ? dog->options.log : &plain, ends ? WF_LOG_ERROR : WF_LOG_WARN,
           "rank %d has waited %lld s for %s%s: %s%s%s%s%s", w->rank, seconds, whom, where, what,
           name ? " of '" : "", name ? name : "", name ? "'" : "",
           ends ? ": given up (comm.timeout)" : "");
}

static void look_at(const struct wf_watchdog *dog, struct wf_watch *w)
{
    const char *const what = atomic_load_explicit(&w->what, memory_order_acquire);
    if (!what)
        return;
    const int64_t waited = (now() - atomic_load(&w->since)) / second, told = atomic_load(&w->told);
    const double tell = told > 0 ? 2.0 * (double)told : dog->options.tell;
    if (dog->options.end > 0 && (double)waited >= dog->options.end) {
        print(dog, w, what, (long long)waited, true);
        _exit(wf_err_exit_status(WF_ERR_FAILED)); /* this thread may not call MPI */
    }
    if (dog->options.tell > 0 && (double)waited >= tell) {
        print(dog, w, what, (long long)waited, false);
        atomic_store(&w->told, waited);
    }
}

static void *watch(void *arg)
{
    struct wf_watchdog *const dog = arg;
    (void)pthread_mutex_lock(&dog->lock);
    while (!dog->ends) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        if (pthread_cond_timedwait(&dog->bell, &dog->lock, &until) == ETIMEDOUT)
            for (int i = 0; i < dog->count; i++)
                look_at(dog, &dog->ranks[i]);
    }
    (void)pthread_mutex_unlock(&dog->lock);
    return NULL;
}

struct wf_watchdog *wf_watchdog_new(int count, int first, const struct wf_watchdog_options *options)
{
    if (options->tell <= 0 && options->end <= 0)
        return NULL;
    struct wf_watchdog *const dog = calloc(1, sizeof *dog);
    struct wf_watch *const ranks = calloc((size_t)count, sizeof *ranks);
    if (!dog || !ranks) {
        free(dog);
        free(ranks);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        ranks[i].rank = first + i;
        wf_watch_at(&ranks[i], -1, NULL, -1);
    }
    *dog = (struct wf_watchdog){ .options = *options, .count = count, .ranks = ranks };
    (void)pthread_mutex_init(&dog->lock, NULL);
    (void)pthread_cond_init(&dog->bell, NULL);
    if (pthread_create(&dog->thread, NULL, watch, dog) == 0)
        return dog;
    (void)pthread_cond_destroy(&dog->bell);
    (void)pthread_mutex_destroy(&dog->lock);
    free(ranks);
    free(dog);
    return NULL;
}

void wf_watchdog_free(struct wf_watchdog *dog)
{
    if (!dog)
        return;
    (void)pthread_mutex_lock(&dog->lock);
    dog->ends = true;
    (void)pthread_cond_signal(&dog->bell);
    (void)pthread_mutex_unlock(&dog->lock);
    (void)pthread_join(dog->thread, NULL);
    (void)pthread_cond_destroy(&dog->bell);
    (void)pthread_mutex_destroy(&dog->lock);
    free(dog->ranks);
    free(dog);
}

struct wf_watch *wf_watchdog_rank(struct wf_watchdog *dog, int i)
{
    return dog ? &dog->ranks[i] : NULL;
}
