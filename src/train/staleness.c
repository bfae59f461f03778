#include "train/staleness.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/memory.h"

void wf_staleness_init(struct wf_staleness *s, int workers, int bound)
{
    WF_BUG_ON(workers < 1 || bound < 0 || bound > WF_STALENESS_MOST, "%d workers, %d behind",
              workers, bound);
    *s = (struct wf_staleness){ .workers = workers, .bound = bound };
    s->worker = wf_take_zeroed((size_t)workers, sizeof *s->worker);
}

void wf_staleness_release(struct wf_staleness *s)
{
    free(s->worker);
    *s = (struct wf_staleness){ 0 };
}

static void become(struct wf_staleness *s, int i, enum wf_worker_state from,
                   enum wf_worker_state to)
{
    WF_BUG_ON(s->worker[i].state != from, "worker %d is in state %d, not %d", i,
              (int)s->worker[i].state, (int)from);
    s->worker[i].state = to;
    s->worker[i].since = s->events++;
}

static bool is_outstanding(const struct wf_staleness_worker *w)
{
    return w->state == WF_WORKER_COMPUTES || w->state == WF_WORKER_WAITS;
}

/* B1 without worker `but` (-1: with all), at version v. */
static bool is_in_time(const struct wf_staleness *s, int but, int64_t v)
{
    for (int i = 0; i < s->workers; i++) {
        if (i == but || !is_outstanding(&s->worker[i]))
            continue;
        int64_t before = 0; /* those that would be applied before it */
        for (int k = 0; k < s->workers; k++)
            before += k != but && k != i && is_outstanding(&s->worker[k]) &&
                      s->worker[k].version <= s->worker[i].version - (k > i);
        if (v + before - s->worker[i].version > s->bound)
            return false;
    }
    return true;
}

static bool may_have(const struct wf_staleness *s, int i)
{
    int outstanding = 0;
    int64_t slowest = s->worker[i].clock;
    for (int k = 0; k < s->workers; k++) {
        outstanding += is_outstanding(&s->worker[k]);
        slowest = s->worker[k].clock < slowest ? s->worker[k].clock : slowest;
    }
    return outstanding <= s->bound && s->worker[i].clock - slowest <= s->bound; /* B1, B2 */
}

void wf_staleness_ask(struct wf_staleness *s, int worker)
{
    become(s, worker, WF_WORKER_IDLE, WF_WORKER_ASKS);
}

bool wf_staleness_next(struct wf_staleness *s, int *worker)
{
    int best = -1;
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].state == WF_WORKER_ASKS && may_have(s, i) &&
            (best < 0 || s->worker[i].since < s->worker[best].since))
            best = i;
    if (best < 0)
        return false;
    become(s, best, WF_WORKER_ASKS, WF_WORKER_COMPUTES);
    s->worker[best].version = s->version;
    s->worker[best].clock++;
    *worker = best;
    return true;
}

void wf_staleness_arrive(struct wf_staleness *s, int worker)
{
    become(s, worker, WF_WORKER_COMPUTES, WF_WORKER_WAITS);
}

bool wf_staleness_due(struct wf_staleness *s, int *worker)
{
    int best = -1;
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].state == WF_WORKER_WAITS && is_in_time(s, i, s->version + 1) &&
            (best < 0 || s->worker[i].since < s->worker[best].since))
            best = i;
    if (best < 0)
        return false;
    become(s, best, WF_WORKER_WAITS, WF_WORKER_IDLE);
    const int64_t behind = s->version - s->worker[best].version;
    WF_BUG_ON(behind > s->bound, "worker %d is %d behind", best, (int)behind);
    s->worker[best].behind = (int)behind;
    s->histogram[behind]++;
    s->version++;
    *worker = best;
    return true;
}

void wf_staleness_restart(struct wf_staleness *s)
{
    for (int i = 0; i < s->workers; i++) {
        WF_BUG_ON(s->worker[i].state != WF_WORKER_IDLE, "worker %d is in state %d", i,
                  (int)s->worker[i].state);
        s->worker[i].clock = 0;
    }
}

int64_t wf_staleness_most_clock(const struct wf_staleness *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->workers; i++)
        most = s->worker[i].clock > most ? s->worker[i].clock : most;
    return most;
}
