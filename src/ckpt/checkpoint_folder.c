/* Which checkpoints a folder keeps: C1 to C4 of checkpoint.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/halt.h"
#include "ckpt/checkpoint.h"

static const char *in_folder(struct wf_arena *arena, const char *folder, const char *name)
{
    return wf_arena_printf(arena, "%s/%s.safetensors", folder, name);
}

/* --- saving --- */

static bool move(const char *from, const char *to, struct wf_err *err)
{
    return rename(from, to) == 0 ||
           wf_err_set(err, WF_ERR_FAILED, "cannot rename '%s': %s", from, wf_file_reason(errno));
}

static bool save(const char *path, const struct wf_checkpoint_info *info,
                 const struct wf_checkpoint_source *from, struct wf_err *err)
{
    return from->snapshot ? wf_snapshot_write(from->snapshot, path, info, err)
                          : wf_checkpoint_save(path, info, from->run, from->optim, err);
}

/* A complete file under a name that nobody reads, and as best (C3). Files are never changed in place, so
 * that names may share one. */
static bool stage(const char *next, const char *best, const struct wf_checkpoint_info *info,
                  const struct wf_checkpoint_source *from, struct wf_err *err)
{
    if (best && !save(best, info, from, err))
        return false;
    (void)unlink(next); /* of a save that failed */
    return (best && link(best, next) == 0) || save(next, info, from, err);
}

/* C2: with a link the last stays where it is; without, only the previous does for a moment. A last that
 * somebody took away is nothing to keep. */
static bool keep(const char *last, const char *previous, const char *beside, struct wf_err *err)
{
    (void)unlink(beside);
    const bool linked = link(last, beside) == 0;
    if (!linked && errno == ENOENT && access(last, F_OK) != 0)
        return true;
    const bool ok = linked ? move(beside, previous, err) : move(last, previous, err);
    (void)unlink(beside); /* where both were the same file already, a rename leaves it */
    return ok;
}

bool wf_checkpoint_save_last(struct wf_checkpoint_folder *f, bool is_best,
                             const struct wf_checkpoint_info *info,
                             const struct wf_checkpoint_source *from, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const last = in_folder(&arena, f->path, "last");
    const char *const previous = in_folder(&arena, f->path, "previous");
    const char *const best = in_folder(&arena, f->path, "best");
    const char *const next = wf_arena_printf(&arena, "%s/.next.safetensors.partial", f->path);
    const char *const beside = wf_arena_printf(&arena, "%s.partial", previous);
    wf_halt_remove(next); /* names that a process which ends here leaves to nobody */
    wf_halt_remove(beside);
    /* C4 */
    const bool ok = stage(next, is_best ? best : NULL, info, from, err) &&
                    (!f->last_is_good || keep(last, previous, beside, err)) &&
                    move(next, last, err) && wf_folder_sync(f->path, err);
    if (ok)
        f->last_is_good = true;
    else
        (void)unlink(next);
    wf_halt_keep(next);
    wf_halt_keep(beside);
    wf_arena_release(&arena);
    return ok;
}

/* --- opening --- */

/* NULL with WF_OK: not there. With WF_ERR_INPUT: damaged. With anything else: not to be read now. */
static struct wf_checkpoint *open_there(const char *path, struct wf_err *err)
{
    enum wf_path_kind kind;
    if (!wf_path_look(path, &kind, err) || kind == WF_PATH_ABSENT)
        return NULL;
    return wf_checkpoint_open(path, err);
}

static bool is_failure(const struct wf_err *err)
{
    return err->code != WF_OK && err->code != WF_ERR_INPUT;
}

static int64_t step_of(const struct wf_checkpoint *c)
{
    return c ? wf_checkpoint_info(c)->at.step : -1;
}

/* The newer of two; NULL where both are missing, or with an error: both damaged, or one not to be read. */
static struct wf_checkpoint *open_newer(const char *const paths[2], struct wf_err *err)
{
    struct wf_checkpoint *newer = NULL;
    struct wf_err damage = { 0 };
    for (int i = 0; i < 2; i++) {
        struct wf_err own = { 0 };
        struct wf_checkpoint *const c = open_there(paths[i], &own);
        if (is_failure(&own)) {
            wf_checkpoint_free(newer);
            *err = own;
            return NULL;
        }
        if (own.code && !damage.code)
            damage = own;
        const bool takes = step_of(c) > step_of(newer);
        wf_checkpoint_free(takes ? newer : c);
        newer = takes ? c : newer;
    }
    if (!newer)
        *err = damage;
    return newer;
}

struct wf_checkpoint *wf_checkpoint_open_latest(const char *folder, const struct wf_log *log,
                                                struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const others[] = { in_folder(&arena, folder, "previous"),
                                   in_folder(&arena, folder, "best") };
    struct wf_checkpoint *c = open_there(in_folder(&arena, folder, "last"), err);
    if (!c && !is_failure(err)) {
        struct wf_err second = { 0 };
        c = open_newer(others, &second);
        if (c)
            wf_log(log, WF_LOG_WARN, "%s; going on from %s, '%s', at step %lld",
                   err->code ? err->text : "there is no last checkpoint",
                   strcmp(wf_checkpoint_path(c), others[0]) == 0 ? "the one before" : "the best",
                   wf_checkpoint_path(c), (long long)step_of(c));
        if (c)
            *err = (struct wf_err){ 0 };
        else if (!err->code || is_failure(&second))
            *err = second;
    }
    wf_arena_release(&arena);
    return c;
}

bool wf_checkpoint_is_last(const struct wf_checkpoint *c, const char *folder)
{
    struct wf_arena arena = { 0 };
    const bool is = strcmp(wf_checkpoint_path(c), in_folder(&arena, folder, "last")) == 0;
    wf_arena_release(&arena);
    return is;
}

bool wf_checkpoint_become_last(const struct wf_checkpoint *c, const char *folder)
{
    struct wf_arena arena = { 0 };
    const bool linked = link(wf_checkpoint_path(c), in_folder(&arena, folder, "last")) == 0;
    wf_arena_release(&arena);
    return linked;
}
