#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/halt.h"
#include "base/memory.h"
#include "base/process.h"

enum { BEAT_SECONDS = 15, BOOT_SECONDS = 45, STALE_SECONDS = 120, TRIES = 20, LOOKS = 10 };
static const long SETTLE =
    500 * 1000 * 1000; /* ns; others that take over at the same time are done */
static const long LOOK =
    200 * 1000 * 1000; /* ns; until a server that did not answer is asked again */

struct wf_lock {
    struct wf_arena arena;
    const char *path; /* the lock's name */
    const char *mine; /* another, until the lock is made */
    int fd;           /* of our file, with the kernel's lock on it where there is such a thing */
    pthread_t beat;
    bool beats;
    pthread_mutex_t mutex;
    pthread_cond_t ends;
    bool ended;
};

/* --- what is written in it --- */

struct owner {
    struct wf_process process;
    char since[32];
};

static bool write_owner(int fd)
{
    const struct wf_process me = wf_process_self();
    const time_t seconds = time(NULL);
    struct tm tm;
    char since[32] = "", text[512];
    if (gmtime_r(&seconds, &tm))
        (void)strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &tm);
    const int n = snprintf(text, sizeof text,
                           "host %s\npid %ld\nsince %s\nkernel %08" PRIx32 "\nnumbers %08" PRIx32
                           "\nstarted %" PRIu64 "\n",
                           me.host, me.pid, since, me.kernel, me.numbers, me.started);
    return write(fd, text, (size_t)n) == n;
}

/* What cannot be read stays empty: then only the kernel's lock and the age count. */
static struct owner read_owner(int fd)
{
    char text[512];
    struct owner o = { .process.host = "an unknown host", .since = "an unknown time" };
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    // NOLINTNEXTLINE(cert-err34-c): what does not fit is an owner that is not known
    (void)sscanf(text,
                 "host %64s pid %ld since %31s kernel %" SCNx32 " numbers %" SCNx32
                 " started %" SCNu64,
                 o.process.host, &o.process.pid, o.since, &o.process.kernel, &o.process.numbers,
                 &o.process.started);
    return o;
}

/* --- is its owner gone? --- */

static void pause_for(long ns)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Is the file called `path` the open one? A server that does not answer is asked several times;
 * FILE_UNKNOWN leaves its reason in errno. */
enum file { FILE_SAME, FILE_OTHER, FILE_UNKNOWN };

static enum file compare(const char *path, int fd)
{
    struct stat named, open;
    for (int i = 0;; i++) {
        if (fstat(fd, &open) == 0 && stat(path, &named) == 0)
            return named.st_ino == open.st_ino && named.st_dev == open.st_dev ? FILE_SAME
                                                                              : FILE_OTHER;
        if (errno == ENOENT)
            return FILE_OTHER;
        if (i == LOOKS)
            return FILE_UNKNOWN;
        const int reason = errno;
        pause_for(LOOK);
        errno = reason;
    }
}

/* Seconds since the other was touched, by the file server's clock: our file is new. */
static double age_of(int mine, int other)
{
    struct stat now, then;
    if (futimens(mine, NULL) != 0 || fstat(mine, &now) != 0 || fstat(other, &then) != 0)
        return 0;
    return (double)(now.st_mtim.tv_sec - then.st_mtim.tv_sec);
}

enum state { RUNS, GONE, SILENT, /* on another machine, where its silence tells */ WAITS };

/* What is known of an owner whose processes this kernel does not see. */
struct wait {
    bool begun;
    struct timespec beat; /* when it was touched last */
};

/* An owner elsewhere that touches its file runs; until it does or has been silent for long, we
 * wait. */
static enum state look_far(struct wait *w, int mine, int other, const struct owner *o)
{
    /* A host of the same name that runs another kernel was started again, unless names are given twice. */
    const bool restarted = strcmp(o->process.host, wf_process_self().host) == 0;
    if (age_of(mine, other) > (restarted ? BOOT_SECONDS : STALE_SECONDS))
        return SILENT;
    struct stat now;
    if (fstat(other, &now) != 0)
        return WAITS;
    const bool beats = w->begun && (now.st_mtim.tv_sec != w->beat.tv_sec ||
                                    now.st_mtim.tv_nsec != w->beat.tv_nsec);
    w->beat = now.st_mtim;
    return beats ? RUNS : WAITS;
}

static enum state look(struct wait *w, int mine, int other, const struct owner *o)
{
    const bool locked = flock(other, LOCK_EX | LOCK_NB) == 0;
    const bool held = !locked && errno == EWOULDBLOCK;
    const bool ours = o->process.kernel == wf_process_self().kernel;
    /* Processes of one kernel see each other's locks, if it knows any. A file server may keep that of a
     * machine which is gone. */
    if (held && (ours || o->process.kernel == 0))
        return RUNS;
    if (locked && ours)
        return GONE;
    const enum wf_process_state state = wf_process_look(&o->process);
    if (state != WF_PROCESS_UNKNOWN)
        return state == WF_PROCESS_GONE ? GONE : RUNS;
    return look_far(w, mine, other, o);
}

/* --- taking it --- */

static bool refuse(const struct wf_lock *l, const struct owner *o, struct wf_err *err)
{
    char hint[64] = "";
    if (o->process.pid > 0)
        (void)snprintf(hint, sizeof hint, " ('kill %ld' there)", o->process.pid);
    return wf_err_set(err, WF_ERR_FAILED,
                      "another process works in this folder: host %s, process %ld, since %s: wait "
                      "until it has ended or stop it%s, or give another --out (a lock whose host "
                      "is gone is taken over after %d minutes, or remove '%s')",
                      o->process.host, o->process.pid, o->since, hint, STALE_SECONDS / 60, l->path);
}

static bool fail(const struct wf_lock *l, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED, "cannot make the lock '%s': %s", l->path,
                      wf_file_reason(errno));
}

/* Ours under a name of its own, complete, with the kernel's lock on it. */
static bool make_mine(struct wf_lock *l, struct wf_err *err)
{
    (void)unlink(l->mine);
    l->fd = open(l->mine, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (l->fd < 0 || !write_owner(l->fd) || fsync(l->fd) != 0)
        return fail(l, err);
    (void)flock(l->fd, LOCK_EX | LOCK_NB); /* a file system without them has the rest */
    return true;
}

static void say_wait(const struct wf_lock *l, const struct owner *o, const struct wf_log *log)
{
    wf_log(log, WF_LOG_WARN,
           "'%s' is that of process %ld on host %s (since %s): waiting until it gives a sign of "
           "life or has been silent for %d seconds",
           l->path, o->process.pid, o->process.host, o->since, STALE_SECONDS);
}

/* L2. `*again`: somebody else was faster, or the owner's silence is too short to tell. */
static bool take_over(struct wf_lock *l, struct wait *w, int other, const struct wf_log *log,
                      bool *recompute, struct wf_err *err)
{
    const struct owner o = read_owner(other);
    const enum state state = look(w, l->fd, other, &o);
    *recompute = compare(l->path, other) != FILE_SAME;
    if (*recompute)
        return true;
    if (state == RUNS)
        return refuse(l, &o, err);
    if (state == WAITS) {
        if (!w->begun)
            say_wait(l, &o, log);
        w->begun = *recompute = true;
        (void)flock(other, LOCK_UN);
        (void)nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
        return true;
    }
    if (state == SILENT)
        wf_log(log, WF_LOG_WARN,
               "taking over '%s' from process %ld on host %s (since %s), which gives no sign of "
               "life any more",
               l->path, o.process.pid, o.process.host, o.since);
    else
        wf_log(log, WF_LOG_INFO, "process %ld on host %s ended without giving back '%s'",
               o.process.pid, o.process.host, l->path);
    /* Who has the kernel's lock on the old file is alone here. Others may not see it. */
    if (rename(l->mine, l->path) != 0)
        return fail(l, err);
    if (state == SILENT)
        pause_for(SETTLE);
    *recompute = compare(l->path, l->fd) != FILE_SAME;
    return true;
}

/* Where there are no links, the name is made at once: the content follows. */
static bool name_at_once(struct wf_lock *l)
{
    const int fd = open(l->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    (void)unlink(l->mine);
    (void)close(l->fd);
    l->fd = fd;
    (void)flock(fd, LOCK_EX | LOCK_NB);
    if (write_owner(fd))
        return true;
    const int reason = errno;
    (void)unlink(l->path);
    errno = reason;
    return false;
}

/* Some file systems number a file by its path: then ours is known by the name that it has now. */
static bool reopen(struct wf_lock *l)
{
    if (compare(l->path, l->fd) == FILE_SAME)
        return true;
    const int fd = open(l->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    (void)close(l->fd);
    l->fd = fd;
    (void)flock(fd, LOCK_EX | LOCK_NB);
    return true;
}

/* False with EEXIST: another has it. A server whose answer was lost says so of our own link,
 * too. */
static bool link_mine(struct wf_lock *l)
{
    if (link(l->mine, l->path) == 0 || (errno == EEXIST && compare(l->path, l->fd) == FILE_SAME))
        return (unlink(l->mine) == 0 || errno == ENOENT) && reopen(l);
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        return false;
    return name_at_once(l);
}

/* A lock of another user may be read-only: it can be read, and replaced. */
static int open_other(const char *path)
{
    const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 && errno == EACCES ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : fd;
}

static bool take(struct wf_lock *l, const struct wf_log *log, struct wf_err *err)
{
    struct wait wait = { 0 };
    for (int try = 0; try < TRIES + (wait.begun ? STALE_SECONDS : 0); try++) {
        if (l->fd >= 0)
            (void)close(l->fd);
        if (!make_mine(l, err))
            return false;
        if (link_mine(l))
            return true;
        if (errno != EEXIST)
            return fail(l, err);
        const int other = open_other(l->path);
        if (other < 0 && errno == ENOENT)
            continue;
        if (other < 0)
            return fail(l, err);
        bool recompute = false;
        const bool ok = take_over(l, &wait, other, log, &recompute, err);
        (void)close(other);
        if (!ok || !recompute)
            return ok;
    }
    return wf_err_set(err, WF_ERR_FAILED, "cannot make the lock '%s': others make and remove it",
                      l->path);
}

/* --- keeping it --- */

static void *beat(void *arg)
{
    struct wf_lock *const l = arg;
    (void)pthread_mutex_lock(&l->mutex);
    while (!l->ended) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until); /* a clock that is set back stops no beat */
        until.tv_sec += BEAT_SECONDS;
        (void)pthread_cond_timedwait(&l->ends, &l->mutex, &until);
        (void)futimens(l->fd,
                       NULL); /* a beat that is missed is no harm, and wf_lock_check() sees */
    }
    (void)pthread_mutex_unlock(&l->mutex);
    return NULL;
}

struct wf_lock *wf_lock_take(const char *folder, const struct wf_log *log, struct wf_err *err)
{
    struct wf_lock *const l = wf_take_zeroed(1, sizeof *l);
    const struct wf_process me = wf_process_self();
    l->fd = -1;
    l->path = wf_arena_printf(&l->arena, "%s/lock", folder);
    l->mine = wf_arena_printf(&l->arena, "%s/.lock.%08" PRIx32 "-%08" PRIx32 "-%ld-0.partial",
                              folder, me.kernel, me.numbers, me.pid);
    (void)pthread_mutex_init(&l->mutex, NULL);
    pthread_condattr_t steady;
    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&l->ends, &steady);
    (void)pthread_condattr_destroy(&steady);
    wf_halt_remove(l->mine);
    const bool taken = take(l, log, err);
    wf_halt_keep(l->mine);
    if (!taken) {
        (void)unlink(l->mine);
        if (l->fd >= 0)
            (void)close(l->fd);
        l->fd = -1;
        wf_lock_free(l);
        (void)wf_err_wrap(err, "'%s'", folder);
        return NULL;
    }
    /* Signals are the other threads': they ask a run to stop. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    l->beats = pthread_create(&l->beat, NULL, beat, l) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!l->beats)
        wf_log(log, WF_LOG_WARN,
               "no thread for '%s': other hosts may take it over after %d minutes", l->path,
               STALE_SECONDS / 60);
    return l;
}

bool wf_lock_check(const struct wf_lock *l, struct wf_err *err)
{
    const enum file file = compare(l->path, l->fd);
    if (file == FILE_UNKNOWN)
        return wf_err_set(err, WF_ERR_FAILED, "cannot look at the lock '%s': %s", l->path,
                          wf_file_reason(errno));
    return file == FILE_SAME ||
           wf_err_set(err, WF_ERR_FAILED,
                      "'%s' is not this process's any more: it was taken over or removed: nothing "
                      "more is written here",
                      l->path);
}

void wf_lock_free(struct wf_lock *l)
{
    if (!l)
        return;
    if (l->beats) {
        (void)pthread_mutex_lock(&l->mutex);
        l->ended = true;
        (void)pthread_cond_signal(&l->ends);
        (void)pthread_mutex_unlock(&l->mutex);
        (void)pthread_join(l->beat, NULL);
    }
    if (l->fd >= 0) {
        if (compare(l->path, l->fd) == FILE_SAME)
            (void)unlink(l->path);
        (void)close(l->fd);
    }
    (void)pthread_cond_destroy(&l->ends);
    (void)pthread_mutex_destroy(&l->mutex);
    wf_arena_release(&l->arena);
    free(l);
}
