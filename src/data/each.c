/* Many samples of a dataset, from several threads. */
#include <pthread.h>

#include "data/dataset_inside.h"

#include "base/cores.h"
#include "base/memory.h"

enum { MOST_THREADS = 16 }; /* each has pieces of images in memory */

int wf_each_threads(int64_t n)
{
    return (int)wf_max(1, wf_min(n, wf_min(wf_cores(), MOST_THREADS)));
}

struct each {
    const struct wf_dataset *ds;
    int64_t n, next;
    wf_each_fn *look;
    void *user;
};
struct looker {
    struct each *each;
    int number;
    pthread_t thread;
};

static void *look_on(void *arg)
{
    const struct looker *const l = arg;
    struct each *const e = l->each;
    struct wf_reader *const reader = wf_reader_new(e->ds);
    for (int64_t i; (i = __atomic_fetch_add(&e->next, 1, __ATOMIC_RELAXED)) < e->n;)
        e->look(e->user, l->number, reader, i);
    wf_reader_free(reader);
    return NULL;
}

void wf_each(const struct wf_dataset *ds, int64_t n, int threads, wf_each_fn *look, void *user)
{
    struct each e = { .ds = ds, .n = n, .look = look, .user = user };
    struct looker lookers[MOST_THREADS];
    int started = 1;
    WF_BUG_ON(threads < 1 || threads > MOST_THREADS, "%d threads", threads);
    for (int t = 0; t < MOST_THREADS; t++)
        lookers[t] = (struct looker){ .each = &e, .number = t };
    while (started < threads &&
           pthread_create(&lookers[started].thread, NULL, look_on, &lookers[started]) == 0)
        started++;
    (void)look_on(&lookers[0]);
    for (int t = 1; t < started; t++)
        (void)pthread_join(lookers[t].thread, NULL);
}
