#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

/* False also on failure, which is then in `err`. */
static bool exists(const char *path, struct wf_err *err)
{
    enum wf_path_kind kind;
    return wf_path_look(path, &kind, err) && kind != WF_PATH_ABSENT;
}

static bool put_path(char to[WF_PATH_ROOM], const char *path, struct wf_err *err)
{
    if (snprintf(to, WF_PATH_ROOM, "%s", path) < WF_PATH_ROOM)
        return true;
    return wf_err_set(err, WF_ERR_USAGE, "the path '%.60s...' is too long", path);
}

const char *wf_run_folder_file(struct wf_arena *arena, const struct wf_run_folder *f,
                               const char *name)
{
    return wf_arena_printf(arena, "%s/%s", f->path, name);
}

struct wf_checkpoint *wf_checkpoint_of(const char *path, const struct wf_log *log,
                                       struct wf_err *err)
{
    if (!wf_path_is_folder(path, err))
        return err->code ? NULL : wf_checkpoint_open(path, err);
    struct wf_arena arena = { 0 };
    const char *const inner = wf_arena_printf(&arena, "%s/checkpoints", path);
    const char *const folder = wf_path_is_folder(inner, err) ? inner : path;
    const char *const best = wf_arena_printf(&arena, "%s/best.safetensors", folder);
    struct wf_checkpoint *c = NULL;
    if (exists(best, err))
        c = wf_checkpoint_open(best, err);
    else if (!err->code)
        c = wf_checkpoint_open_latest(folder, log, err);
    if (!c && !err->code)
        (void)wf_err_set(
            err, WF_ERR_INPUT,
            "'%s' is a folder without checkpoints: give the run folder that 'widefield "
            "train' wrote, or a checkpoint of it",
            path);
    wf_arena_release(&arena);
    return c;
}

/* --- finding --- */

/* The newest folder runs/MODEL-* with checkpoints; "" where there is none. Names hold the time. */
static bool newest_run(struct wf_arena *arena, const char *model, const char **newest,
                       struct wf_err *err)
{
    const size_t n = strlen(model);
    DIR *const dir = opendir("runs");
    *newest = "";
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR ||
               wf_err_set(err, WF_ERR_FAILED, "cannot read folder 'runs': %s",
                          wf_file_reason(errno));
    errno = 0;
    for (const struct dirent *at; !err->code && (at = readdir(dir)); errno = 0) {
        if (strncmp(at->d_name, model, n) != 0 || at->d_name[n] != '-')
            continue;
        const char *const path = wf_arena_printf(arena, "runs/%s", at->d_name);
        if (strcmp(path, *newest) > 0 &&
            wf_path_is_folder(wf_arena_printf(arena, "%s/checkpoints", path), err))
            *newest = path;
    }
    if (errno && !err->code)
        (void)wf_err_set(err, WF_ERR_FAILED, "cannot read folder 'runs': %s",
                         wf_file_reason(errno));
    (void)closedir(dir);
    return err->code == WF_OK;
}

/* Opens the newest checkpoint of a run folder, if it has one. */
static bool open_latest(struct wf_run_folder *f, const char *folder, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    f->checkpoint = wf_checkpoint_open_latest(wf_arena_printf(&arena, "%s/checkpoints", folder),
                                              f->launch.log, err);
    wf_arena_release(&arena);
    return f->checkpoint || !err->code;
}

/* A run that goes on in its folder has it to itself before it looks into it. */
static bool lock(struct wf_run_folder *f, struct wf_err *err)
{
    f->lock = wf_lock_take(f->path, f->launch.log, err);
    return f->lock != NULL;
}

static bool find_auto(struct wf_run_folder *f, const char *out, struct wf_err *err)
{
    const char *folder = out;
    if (!out && !newest_run(&f->arena, f->model, &folder, err))
        return false;
    if (!put_path(f->path, folder, err) || !*folder)
        return err->code == WF_OK;
    f->exists = exists(folder, err);
    if (!f->exists)
        return err->code == WF_OK;
    return lock(f, err) && open_latest(f, folder, err);
}

/* "x" for x/checkpoints/last.safetensors, else NULL. */
static const char *run_of(struct wf_arena *arena, const char *file)
{
    static const char inside[] = "checkpoints";
    char *const copy = wf_arena_copy(arena, file);
    char *slash = strrchr(copy, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    slash = strrchr(copy, '/');
    if (strcmp(slash ? slash + 1 : copy, inside) != 0)
        return NULL;
    if (!slash)
        return ".";
    *slash = '\0';
    return copy;
}

static bool find_given(struct wf_run_folder *f, const char *out, const char *resume,
                       struct wf_err *err)
{
    const bool is_run = wf_path_is_folder(resume, err);
    const char *const run = is_run ? resume : run_of(&f->arena, resume);
    if (err->code || !put_path(f->path, out ? out : run ? run : "", err))
        return false;
    /* Another folder than the one it comes from is a new one. */
    f->exists = f->path[0] && run && strcmp(f->path, run) == 0 && wf_path_is_folder(run, err);
    if (err->code || (f->exists && !lock(f, err)))
        return false;
    if (!is_run)
        f->checkpoint = wf_checkpoint_open(resume, err);
    else if (!open_latest(f, resume, err))
        return false;
    else if (!f->checkpoint)
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot go on from '%s': it has no checkpoints/last.safetensors", resume);
    return f->checkpoint != NULL;
}

static bool find(struct wf_run_folder *f, const char *out, const char *resume, struct wf_err *err)
{
    bool ok;
    if (!resume)
        ok = put_path(f->path, out ? out : "", err);
    else if (strcmp(resume, "auto") == 0)
        ok = find_auto(f, out, err);
    else
        ok = find_given(f, out, resume, err);
    if (ok && f->path[0] && !f->exists && exists(f->path, err))
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' exists: give another --out, or --resume auto to go on with the run "
                          "in it",
                          f->path);
    return ok && !err->code &&
           (!f->checkpoint || put_path(f->checkpoint_path, wf_checkpoint_path(f->checkpoint), err));
}

/* Collective under a launcher: what rank 0 found is what all have. */
static bool share(struct wf_run_folder *f, bool ok, struct wf_err *err)
{
    if (!f->launch.world)
        return ok;
    if (!wf_launch_agree(&f->launch, ok, err))
        return false;
    return wf_comm_broadcast(f->launch.world, 0, f->path, sizeof f->path, err) &&
           wf_comm_broadcast(f->launch.world, 0, f->checkpoint_path, sizeof f->checkpoint_path,
                             err) &&
           wf_comm_broadcast(f->launch.world, 0, &f->exists, sizeof f->exists, err);
}

bool wf_run_folder_find(struct wf_run_folder *f, const char *out, const char *resume,
                        struct wf_err *err)
{
    bool ok = share(f, !f->launch.is_root || find(f, out, resume, err), err);
    if (ok && !f->launch.is_root && f->checkpoint_path[0]) {
        f->checkpoint = wf_checkpoint_open(f->checkpoint_path, err);
        ok = f->checkpoint != NULL;
    }
    return wf_launch_agree(&f->launch, ok, err) &&
           (!f->checkpoint || wf_launch_same_file(&f->launch, f->checkpoint_path,
                                                  wf_checkpoint_digest(f->checkpoint), err));
}

/* --- making --- */

static bool make_folder(const char *path, struct wf_err *err)
{
    const bool made = mkdir(path, 0777) == 0;
    const int reason = errno == EEXIST ? ENOTDIR : errno;
    if (made || (reason == ENOTDIR && wf_path_is_folder(path, err)))
        return true;
    return wf_err_set(err, WF_ERR_FAILED, "cannot make the folder '%s': %s", path,
                      wf_file_reason(reason));
}

/* The folder with those above it; the last must be new. */
static bool make_new(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    char *const copy = wf_arena_copy(arena, path);
    for (char *at = copy + 1; *at; at++)
        if (*at == '/' && at[1]) {
            *at = '\0';
            if (!make_folder(copy, err))
                return false;
            *at = '/';
        }
    if (mkdir(path, 0777) == 0)
        return true;
    return wf_err_set(err, errno == EEXIST ? WF_ERR_USAGE : WF_ERR_FAILED,
                      "cannot make the folder '%s': %s", path, wf_file_reason(errno));
}

static bool name_folder(struct wf_run_folder *f, struct wf_err *err)
{
    const time_t seconds = time(NULL);
    struct tm local;
    char stamp[32], number[16] = "";
    (void)localtime_r(&seconds, &local);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    for (int i = 2; i < 1000; i++) {
        const char *const name =
            wf_arena_printf(&f->arena, "runs/%s-%s%s", f->model, stamp, number);
        if (!exists(name, err))
            return !err->code && put_path(f->path, name, err);
        (void)snprintf(number, sizeof number, "-%d", i);
    }
    return wf_err_set(err, WF_ERR_FAILED, "no name is left for a run in 'runs': give --out");
}

static bool make(struct wf_run_folder *f, struct wf_err *err)
{
    if (!f->path[0] && !name_folder(f, err))
        return false;
    if (!f->exists && (!make_new(&f->arena, f->path, err) || !lock(f, err)))
        return false;
    const char *const checkpoints = wf_run_folder_file(&f->arena, f, "checkpoints");
    const char *const samples = wf_run_folder_file(&f->arena, f, "samples");
    if (!make_folder(checkpoints, err) || !make_folder(samples, err) ||
        !wf_folder_sync(f->path, err))
        return false;
    f->kept = (struct wf_checkpoint_folder){
        .path = checkpoints,
        .last_is_good =
            f->checkpoint && (wf_checkpoint_is_last(f->checkpoint, checkpoints) ||
                              (f->exists && wf_checkpoint_become_last(f->checkpoint, checkpoints)))
    };
    wf_folder_sweep(checkpoints, true); /* the lock is ours */
    wf_folder_sweep(samples, false);
    wf_folder_sweep(f->path, false);
    return true;
}

bool wf_run_folder_make(struct wf_run_folder *f, struct wf_err *err)
{
    return share(f, !f->launch.is_root || make(f, err), err);
}

void wf_run_folder_undo(struct wf_run_folder *f)
{
    static const char *const folders[] = { "checkpoints", "samples" };
    static const char *const files[] = { "log.jsonl", "config.yaml", "network.svg",
                                         "network.yaml" };
    if (!f->launch.is_root || f->exists || !f->kept.path)
        return;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (rmdir(wf_run_folder_file(&f->arena, f, folders[i])) != 0)
            return;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        (void)unlink(wf_run_folder_file(&f->arena, f, files[i]));
    wf_lock_free(f->lock);
    f->lock = NULL;
    (void)rmdir(f->path);
}

void wf_run_folder_release(struct wf_run_folder *f)
{
    wf_checkpoint_free(f->checkpoint);
    wf_lock_free(f->lock);
    wf_arena_release(&f->arena);
    *f = (struct wf_run_folder){ 0 };
}
