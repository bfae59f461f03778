#include "train/saver.h"

#include <math.h>

#include "train/training.h"

/* A best of an epoch of less than a second waits for the next ones: most of them are better again. */
static const double SETTLE_SECONDS = 1;

/* By the writing thread: what a checkpoint knows of, the log on the disk has. */
static bool before(void *user, struct wf_err *err)
{
    const struct wf_saver *const s = user;
    return wf_lock_check(s->t->folder->lock, err) && wf_journal_sync(s->t->journal, err);
}

bool wf_saver_init(struct wf_saver *s, const struct wf_training *t, const struct wf_run *run,
                   const struct wf_optim *optim, struct wf_err *err)
{
    *s = (struct wf_saver){ .t = t, .run = run, .optim = optim };
    if (!t->journal || t->snapshot_bytes == 0)
        return true;
    s->snapshot = wf_snapshot_new(run, optim, err);
    if (!s->snapshot)
        return false;
    const double interval = t->settings.train.checkpoint_seconds;
    s->background =
        wf_background_new(&(struct wf_background_options){ .folder = &t->folder->kept,
                                                           .snapshot = s->snapshot,
                                                           .interval = interval,
                                                           .settle = fmin(SETTLE_SECONDS, interval),
                                                           .before = before,
                                                           .user = s },
                          err);
    return s->background != NULL;
}

void wf_saver_release(struct wf_saver *s)
{
    struct wf_err ignored = { 0 };
    (void)!wf_saver_settle(s, &ignored); /* the run has failed already: a good one has finished */
    wf_background_free(s->background);
    wf_snapshot_free(s->snapshot);
    *s = (struct wf_saver){ 0 };
}

bool wf_saver_save(struct wf_saver *s, const struct wf_position *at, bool is_best,
                   struct wf_err *err)
{
    if (!s->t->journal)
        return true;
    const struct wf_checkpoint_info info = wf_training_info(s->t, at);
    const struct wf_checkpoint_source from = { .run = s->run, .optim = s->optim };
    if (!s->background)
        return before(s, err) &&
               wf_checkpoint_save_last(&s->t->folder->kept, is_best, &info, &from, err);
    if (!wf_saver_settle(s, err) || !wf_background_claim(s->background, is_best, err) ||
        !wf_snapshot_take(s->snapshot, err))
        return false;
    s->info = info;
    s->is_best = is_best;
    s->is_taking = true;
    return !wf_device_is_host(wf_run_device(s->run)) || wf_saver_settle(s, err);
}

bool wf_saver_settle(struct wf_saver *s, struct wf_err *err)
{
    if (!s->is_taking)
        return true;
    s->is_taking = false;
    if (!wf_snapshot_settle(s->snapshot, err)) {
        wf_background_fail(s->background, err); /* for a caller that cannot report it */
        return false;
    }
    wf_background_hand(s->background, &s->info, s->is_best);
    return true;
}

bool wf_saver_look(const struct wf_saver *s, bool *busy, struct wf_err *err)
{
    *busy = false;
    if (s->background && !wf_background_look(s->background, busy, err))
        return false;
    *busy = *busy || s->is_taking;
    return true;
}

void wf_saver_hurry(struct wf_saver *s)
{
    if (s->background)
        wf_background_hurry(s->background);
}

bool wf_saver_finish(struct wf_saver *s, struct wf_err *err)
{
    return !s->background || (wf_saver_settle(s, err) && wf_background_finish(s->background, err));
}

size_t wf_saver_bytes(const struct wf_saver *s)
{
    return s->snapshot ? s->t->snapshot_bytes : 0;
}
