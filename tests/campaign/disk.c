/*
 * A disk that fails, or that remembers: a library for LD_PRELOAD, built by tests/campaign/disk.bash.
 *
 *     DISK_FAULT=CALL:TEXT:ERRNO    CALL (stat, open, opendir, read, rename, fsync) fails with that number
 *                                   for paths that hold TEXT
 *     DISK_LOG=FILE DISK_ROOT=PATH  every change below PATH (absolute) is written to FILE: a line
 *                                   "OP ID NUMBER BYTES PATH PATH", then BYTES bytes, then a line end
 *
 * Changes are create, write, truncate, sync, rename, link, unlink, mkdir, syncdir. ID is that of the open
 * file, NUMBER an offset or a length. Paths hold no blanks in the campaigns that use this.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ids[FILES]; /* by descriptor; 0: not one of ours; below 0: a folder */
static char names[FILES][512];
static int last_id, log_fd = -1;

#define REAL(result, name, ...)                                                                    \
    static result (*real)(__VA_ARGS__);                                                            \
    if (!real)                                                                                     \
    real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* --- faults --- */

static int fault(const char *call, const char *path)
{
    const char *const text = getenv("DISK_FAULT");
    const char *const first = text ? strchr(text, ':') : NULL;
    const char *const second = first ? strrchr(text, ':') : NULL;
    if (!second || second == first || strncmp(text, call, (size_t)(first - text)) != 0 ||
        strlen(call) != (size_t)(first - text))
        return 0;
    char part[256];
    (void)snprintf(part, sizeof part, "%.*s", (int)(second - first - 1), first + 1);
    return strstr(path, part) ? atoi(second + 1) : 0;
}

static bool fails(const char *call, const char *path)
{
    const int number = fault(call, path);
    if (number)
        errno = number;
    return number != 0;
}

/* --- the log --- */

/* Absolute, below the root; NULL: nothing of ours. */
static const char *ours(const char *path, char *room)
{
    const char *const root = getenv("DISK_ROOT");
    if (!root || !path)
        return NULL;
    char here[PATH_MAX / 2] = "";
    if (path[0] != '/' && !getcwd(here, sizeof here))
        return NULL;
    (void)snprintf(room, PATH_MAX, "%s%s%s", here, path[0] == '/' ? "" : "/", path);
    const size_t n = strlen(root);
    return strncmp(room, root, n) == 0 && (room[n] == '/' || !room[n]) ? room : NULL;
}

static void note(const char *op, int id, long long number, const char *a, const char *b,
                 const void *data, size_t bytes)
{
    static ssize_t (*put)(int, const struct iovec *, int);
    static int (*open_)(const char *, int, ...);
    if (!put) {
        put = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
        open_ = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    }
    if (log_fd < 0 && getenv("DISK_LOG"))
        log_fd = open_(getenv("DISK_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    char head[3 * PATH_MAX];
    const int n = snprintf(head, sizeof head, "%s %d %lld %zu %s %s\n", op, id, number, bytes,
                           a ? a : "-", b ? b : "-");
    struct iovec parts[] = { { head, (size_t)n }, { (void *)(size_t)data, bytes }, { "\n", 1 } };
    if (log_fd >= 0 && put(log_fd, parts, 3) != (ssize_t)((size_t)n + bytes + 1))
        abort();
}

static int id_of(int fd)
{
    return fd >= 0 && fd < FILES ? ids[fd] : 0;
}

/* --- calls --- */

static int opened(int fd, const char *path, int flags, bool was)
{
    char room[PATH_MAX];
    const char *const name = ours(path, room);
    const int kept = errno;
    if (fd >= 0 && fd < FILES) {
        ids[fd] = 0;
        if (name && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_DIRECTORY))) {
            ids[fd] = (flags & O_DIRECTORY) ? -1 : ++last_id;
            (void)snprintf(names[fd], sizeof names[fd], "%s", name);
            if (ids[fd] > 0)
                note(was ? "open" : "create", ids[fd], 0, name, NULL, NULL, 0);
        }
    }
    errno = kept;
    return fd;
}

static int open_any(const char *symbol, const char *path, int flags, mode_t mode)
{
    int (*const real)(const char *, int, ...) =
        (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, symbol);
    if (fails("open", path))
        return -1;
    (void)pthread_mutex_lock(&mutex);
    struct stat info;
    const bool was = fstatat(AT_FDCWD, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
    const int fd = opened(real(path, flags, mode), path, flags, was);
    (void)pthread_mutex_unlock(&mutex);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_any("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_any("open64", path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    if (id_of(fd) <= 0)
        return real(fd, data, bytes);
    (void)pthread_mutex_lock(&mutex);
    const ssize_t put = real(fd, data, bytes);
    if (put > 0)
        note("write", ids[fd], lseek(fd, 0, SEEK_CUR) - put, NULL, NULL, data, (size_t)put);
    (void)pthread_mutex_unlock(&mutex);
    return put;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    (void)pthread_mutex_lock(&mutex);
    const ssize_t put = real(fd, data, bytes, offset);
    if (put > 0 && id_of(fd) > 0)
        note("write", ids[fd], (long long)offset, NULL, NULL, data, (size_t)put);
    (void)pthread_mutex_unlock(&mutex);
    return put;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pread", int, void *, size_t, off_t);
    char link[64], path[PATH_MAX] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (getenv("DISK_FAULT") && readlink(link, path, sizeof path - 1) > 0 && fails("read", path))
        return -1;
    return real(fd, data, bytes, offset);
}

static int sync_any(const char *symbol, int fd)
{
    int (*const real)(int) = (int (*)(int))dlsym(RTLD_NEXT, symbol);
    if (id_of(fd) && fails("fsync", names[fd]))
        return -1;
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(fd);
    if (!failed && id_of(fd) > 0)
        note("sync", ids[fd], 0, NULL, NULL, NULL, 0);
    else if (!failed && id_of(fd) < 0)
        note("syncdir", 0, 0, names[fd], NULL, NULL, 0);
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int fsync(int fd)
{
    return sync_any("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_any("fdatasync", fd);
}

int ftruncate(int fd, off_t length)
{
    REAL(int, "ftruncate", int, off_t);
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(fd, length);
    if (!failed && id_of(fd) > 0)
        note("truncate", ids[fd], (long long)length, NULL, NULL, NULL, 0);
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int close(int fd)
{
    REAL(int, "close", int);
    (void)pthread_mutex_lock(&mutex);
    if (fd >= 0 && fd < FILES)
        ids[fd] = 0;
    const int failed = real(fd);
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

static int two(const char *op, const char *from, const char *to)
{
    int (*const real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, op);
    char a[PATH_MAX], b[PATH_MAX];
    if (fails(op, from))
        return -1;
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(from, to);
    const int kept = errno;
    if (!failed && ours(to, b))
        note(op, 0, 0, ours(from, a), b, NULL, 0);
    errno = kept;
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int rename(const char *from, const char *to)
{
    return two("rename", from, to);
}

int link(const char *from, const char *to)
{
    return two("link", from, to);
}

static int gone(int failed, const char *path)
{
    char room[PATH_MAX];
    if (!failed && ours(path, room))
        note("unlink", 0, 0, room, NULL, NULL, 0);
    return failed;
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(path);
    const int kept = errno;
    (void)gone(failed, path);
    errno = kept;
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    char link[64], where[PATH_MAX / 2] = "", all[PATH_MAX];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    (void)!readlink(link, where, sizeof where - 1);
    (void)snprintf(all, sizeof all, "%s/%s", where, path);
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(folder, path, flags);
    (void)gone(failed, all);
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    char room[PATH_MAX];
    (void)pthread_mutex_lock(&mutex);
    const int failed = real(path, mode);
    const int kept = errno;
    if (!failed && ours(path, room))
        note("mkdir", 0, 0, room, NULL, NULL, 0);
    errno = kept;
    (void)pthread_mutex_unlock(&mutex);
    return failed;
}

int stat(const char *restrict path, struct stat *restrict info)
{
    return fails("stat", path) ? -1 : fstatat(AT_FDCWD, path, info, 0);
}

int access(const char *path, int mode)
{
    return fails("access", path) ? -1 : faccessat(AT_FDCWD, path, mode, 0);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    return fails("opendir", path) ? NULL : real(path);
}
