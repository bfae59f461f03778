#include "train/launch.h"

#include <string.h>

#include "base/cores.h"
#include "train/settings.h"

static void watch_rank(struct wf_launch *l, int rank, const struct wf_watchdog_options *watch)
{
    wf_watchdog_free(l->watchdog);
    l->watchdog = wf_watchdog_new(1, rank, watch);
}

/* MPI itself waits for all ranks, so that is watched too. */
bool wf_launch_begin(struct wf_launch *l, const struct wf_watchdog_options *watch,
                     struct wf_err *err)
{
    l->is_root = true;
    if (!wf_comm_mpi_launched())
        return true;
    watch_rank(l, wf_comm_launched_rank(), watch);
    wf_watch_begin(wf_watchdog_rank(l->watchdog, 0), "the start of MPI");
    l->world = wf_comm_mpi(err);
    if (!l->world)
        return false;
    watch_rank(l, wf_comm_rank(l->world), watch);
    l->world->watch = wf_watchdog_rank(l->watchdog, 0);
    l->is_root = wf_comm_rank(l->world) == 0;
    return true;
}

void wf_launch_end(struct wf_launch *l)
{
    if (!wf_comm_mpi_launched())
        return;
    if (l->world) {
        l->world->watch = NULL;
        wf_comm_free(l->world);
    }
    wf_watch_begin(wf_watchdog_rank(l->watchdog, 0), "the end of MPI");
    wf_comm_mpi_finish();
    wf_watchdog_free(l->watchdog);
    *l = (struct wf_launch){ .log = l->log };
}

int wf_launch_cores(const struct wf_launch *l)
{
    return l->world ? wf_comm_local_cores(l->world) : wf_cores();
}

bool wf_launch_agree(const struct wf_launch *l, bool ok, struct wf_err *err)
{
    if (!l->world)
        return ok;
    if (!ok && !err->is_shared)
        wf_comm_abort(l->world, err);
    return ok && wf_comm_agree(l->world, ok, err);
}

const char *wf_launch_share(struct wf_arena *arena, const struct wf_launch *l, const void *mine,
                            size_t bytes, struct wf_err *err)
{
    int64_t size = (int64_t)bytes;
    if (!wf_comm_broadcast(l->world, 0, &size, sizeof size, err))
        return NULL;
    char *const all = wf_arena_array(arena, size + 1, char);
    if (wf_comm_rank(l->world) == 0)
        memcpy(all, mine, bytes);
    return wf_comm_broadcast(l->world, 0, all, (size_t)size, err) ? all : NULL;
}

bool wf_launch_same_file(const struct wf_launch *l, const char *path, const char *digest,
                         struct wf_err *err)
{
    if (!l->world)
        return true;
    struct wf_arena arena = { 0 };
    const char *const first = wf_launch_share(&arena, l, digest, strlen(digest), err);
    const bool ok =
        first && (strcmp(first, digest) == 0 ||
                  wf_err_set(err, WF_ERR_INPUT,
                             "'%s' is another file here than on rank 0 (%s, %s there): give all "
                             "machines the same",
                             path, digest, first));
    wf_arena_release(&arena);
    return first && wf_launch_agree(l, ok, err);
}

static bool compare_data(const struct wf_dataset *data, const struct wf_fingerprint *mine,
                         const struct wf_fingerprint *first, struct wf_err *err)
{
    if (first->all == mine->all)
        return true;
    const int64_t at = wf_fingerprint_differs(mine, first);
    const char *const name =
        at >= 0 && at < mine->samples ? wf_dataset_sample(data, at)->name : NULL;
    return wf_err_set(
        err, WF_ERR_INPUT,
        "'%s' is another dataset here than on rank 0: %lld samples, %lld there%s%s%s: "
        "give all machines the same files",
        wf_dataset_info(data)->path, (long long)mine->samples, (long long)first->samples,
        name ? ", the first that differs is '" : "", name ? name : "", name ? "'" : "");
}

bool wf_launch_same_data(const struct wf_launch *l, const struct wf_dataset *data,
                         const struct wf_fingerprint *mine, struct wf_err *err)
{
    if (!l->world)
        return true;
    struct wf_fingerprint first = { .all = mine->all, .samples = mine->samples };
    if (!wf_comm_broadcast(l->world, 0, &first.all, sizeof first.all, err) ||
        !wf_comm_broadcast(l->world, 0, &first.samples, sizeof first.samples, err))
        return false;
    struct wf_arena arena = { 0 };
    const void *const each =
        wf_launch_share(&arena, l, mine->each, (size_t)mine->samples * sizeof *mine->each, err);
    first.each = each;
    const bool ok = each && wf_launch_agree(l, compare_data(data, mine, &first, err), err);
    wf_arena_release(&arena);
    return ok;
}
