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

enum { BEAT_SECONDS = 15, BOOT_SECONDS = 45, STALE_SECONDS = 120, TRIES = 20 };
static const long SETTLE =
    500 * 1000 * 1000; /* ns; others that take over at the same time are done */

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

static bool is_same(const char *path, int fd)
{
    struct stat named, open;
    return fstat(fd, &open) == 0 && stat(path, &named) == 0 && named.st_ino == open.st_ino &&
           named.st_dev == open.st_dev;
}

/* Seconds since the other was touched, by the file server's clock: our file is new. */
static double age_of(int mine, int other)
{
    struct stat now, then;
    if (futimens(mine, NULL) != 0 || fstat(mine, &now) != 0 || fstat(other, &then) != 0)
        return 0;
    return (double)(now.st_mtim.tv_sec - then.st_mtim.tv_sec);
}

enum state { RUNS, GONE, SILENT /* on another machine */ };

static enum state look(int mine, int other, const struct owner *o)
{
    const bool locked = flock(other, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK)
        return RUNS;
    /* Processes of one kernel see each other's locks, if it knows any. */
    if (locked && o->process.kernel == wf_process_self().kernel)
        return GONE;
    const enum wf_process_state state = wf_process_look(&o->process);
    if (state != WF_PROCESS_UNKNOWN)
        return state == WF_PROCESS_GONE ? GONE : RUNS;
    /* A host of the same name that runs another kernel was started again, unless names are given twice. */
    const bool restarted = strcmp(o->process.host, wf_process_self().host) == 0;
    return age_of(mine, other) > (restarted ? BOOT_SECONDS : STALE_SECONDS) ? SILENT : RUNS;
}

/* --- taking it --- */

static bool refuse(const struct wf_lock *l, const struct owner *o, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED,
                      "another process works in this folder: host %s, process %ld, since %s: wait "
                      "until it has ended or stop it ('kill %ld' there), or give another --out (a "
                      "lock whose host is gone is taken over after %d minutes, or remove '%s')",
                      o->process.host, o->process.pid, o->since, o->process.pid, STALE_SECONDS / 60,
                      l->path);
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

/* L2. `*again`: somebody else was faster. */
static bool take_over(struct wf_lock *l, int other, const struct wf_log *log, bool *again,
                      struct wf_err *err)
{
    const struct owner o = read_owner(other);
    const enum state state = look(l->fd, other, &o);
    *again = !is_same(l->path, other);
    if (*again)
        return true;
    if (state == RUNS)
        return refuse(l, &o, err);
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
        (void)nanosleep(&(struct timespec){ .tv_nsec = SETTLE }, NULL);
    *again = !is_same(l->path, l->fd);
    return true;
}

/* Where there are no links, the name is made at once: the content follows. */
static bool link_mine(struct wf_lock *l)
{
    if (link(l->mine, l->path) == 0)
        return unlink(l->mine) == 0 || errno == ENOENT;
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        return false;
    const int fd = open(l->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    (void)unlink(l->mine);
    (void)close(l->fd);
    l->fd = fd;
    (void)flock(fd, LOCK_EX | LOCK_NB);
    return write_owner(fd);
}

static bool take(struct wf_lock *l, const struct wf_log *log, struct wf_err *err)
{
    for (int try = 0; try < TRIES; try++) {
        if (l->fd >= 0)
            (void)close(l->fd);
        if (!make_mine(l, err))
            return false;
        if (link_mine(l))
            return true;
        if (errno != EEXIST)
            return fail(l, err);
        const int other = open(l->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (other < 0 && errno == ENOENT)
            continue;
        if (other < 0)
            return fail(l, err);
        bool again = false;
        const bool ok = take_over(l, other, log, &again, err);
        (void)close(other);
        if (!ok || !again)
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
        (void)clock_gettime(CLOCK_REALTIME, &until);
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
    (void)pthread_cond_init(&l->ends, NULL);
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
    return l;
}

bool wf_lock_check(const struct wf_lock *l, struct wf_err *err)
{
    errno = 0;
    if (is_same(l->path, l->fd))
        return true;
    if (errno && errno != ENOENT)
        return wf_err_set(err, WF_ERR_FAILED, "cannot look at '%s': %s", l->path,
                          wf_file_reason(errno));
    return wf_err_set(err, WF_ERR_FAILED,
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
        if (is_same(l->path, l->fd))
            (void)unlink(l->path);
        (void)close(l->fd);
    }
    (void)pthread_cond_destroy(&l->ends);
    (void)pthread_mutex_destroy(&l->mutex);
    wf_arena_release(&l->arena);
    free(l);
}
