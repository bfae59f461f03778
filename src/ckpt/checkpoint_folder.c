/* Which checkpoints a folder keeps: C1 to C3 of checkpoint.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "ckpt/checkpoint.h"

static const char *in_folder(struct wf_arena *arena, const char *folder, const char *name)
{
    return wf_arena_printf(arena, "%s/%s.safetensors", folder, name);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* `to` becomes another name of `from`, at once. False where the file system has no such links. */
static bool also_name(struct wf_arena *arena, const char *from, const char *to)
{
    const char *const beside = wf_arena_printf(arena, "%s.%ld.partial", to, (long)getpid());
    (void)unlink(beside);
    if (link(from, beside) != 0)
        return false;
    const bool ok = rename(beside, to) == 0;
    (void)unlink(beside); /* where both were the same file already, a rename leaves it */
    return ok;
}

bool wf_checkpoint_save_last(const char *folder, bool is_best,
                             const struct wf_checkpoint_info *info, const struct wf_run *run,
                             const struct wf_optim *optim, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const last = in_folder(&arena, folder, "last");
    const char *const previous = in_folder(&arena, folder, "previous");
    const char *const best = in_folder(&arena, folder, "best");
    bool ok = !is_best || wf_checkpoint_save(best, info, run, optim, err); /* C3 */
    /* C2: with a link the last stays where it is; without, only the previous does for a moment. */
    if (ok && exists(last) && !also_name(&arena, last, previous) && rename(last, previous) != 0)
        ok = wf_err_set(err, WF_ERR_FAILED, "cannot rename '%s': %s", last, strerror(errno));
    /* Files are never changed in place, so two names may share one. */
    ok = ok && ((is_best && also_name(&arena, best, last)) ||
                wf_checkpoint_save(last, info, run, optim, err));
    wf_arena_release(&arena);
    return ok;
}

struct wf_checkpoint *wf_checkpoint_open_latest(const char *folder, const struct wf_log *log,
                                                struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const last = in_folder(&arena, folder, "last");
    const char *const previous = in_folder(&arena, folder, "previous");
    struct wf_checkpoint *c = exists(last) ? wf_checkpoint_open(last, err) : NULL;
    if (!c && exists(previous)) {
        struct wf_err second = { 0 };
        c = wf_checkpoint_open(previous, &second);
        if (c)
            wf_log(log, WF_LOG_WARN, "%s; going on from the one before, '%s', at step %lld",
                   err->code ? err->text : "there is no last checkpoint", previous,
                   (long long)wf_checkpoint_info(c)->at.step);
        if (c)
            *err = (struct wf_err){ 0 };
        else if (!err->code)
            *err = second;
    }
    wf_arena_release(&arena);
    return c;
}

void wf_checkpoint_sweep(const char *folder)
{
    static const char end[] = ".partial";
    struct wf_arena arena = { 0 };
    DIR *const dir = opendir(folder);
    for (const struct dirent *at; dir && (at = readdir(dir));) {
        const size_t n = strlen(at->d_name);
        if (n >= sizeof end && strcmp(at->d_name + n - (sizeof end - 1), end) == 0)
            (void)unlink(wf_arena_printf(&arena, "%s/%s", folder, at->d_name));
    }
    if (dir)
        (void)closedir(dir);
    wf_arena_release(&arena);
}
