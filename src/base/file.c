#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/halt.h"
#include "base/memory.h"
#include "base/process.h"

/* One system call moves at most this much: Linux stops at 2 GiB - 4 KiB anyway. */
static const size_t CALL_BYTES = (size_t)1 << 30;
static const uint64_t EARLY_BYTES = 8 << 20;

const char *wf_file_reason(int number)
{
    switch (number) {
    case ENOSPC:
        return "No space left on device: make room, or write to another folder";
    case EDQUOT:
        return "Disk quota exceeded: make room, or write to another folder";
    case EFBIG:
        return "File too large: raise the limit ('ulimit -f unlimited')";
    case ENOTDIR:
        return "Not a directory: a file has the name of a folder; give another path";
    case EROFS:
        return "Read-only file system: write to another folder";
    case EACCES:
        return "Permission denied: change its rights ('chmod'), or give another path";
    case ENOENT:
        return "No such file or directory: check the path";
    case EIO:
        return "Input/output error: the disk or its server fails; see 'dmesg', then try again";
    case EMFILE:
    case ENFILE:
        return "Too many open files: raise the limit ('ulimit -n 4096')";
    default:
        return strerror(number);
    }
}

bool wf_path_look(const char *path, enum wf_path_kind *kind, struct wf_err *err)
{
    struct stat info;
    *kind = WF_PATH_ABSENT;
    if (stat(path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR ||
               wf_err_set(err, WF_ERR_FAILED, "cannot look at '%s': %s", path,
                          wf_file_reason(errno));
    *kind = S_ISREG(info.st_mode)   ? WF_PATH_FILE
            : S_ISDIR(info.st_mode) ? WF_PATH_FOLDER
                                    : WF_PATH_OTHER;
    return true;
}

bool wf_path_is_file(const char *path, struct wf_err *err)
{
    enum wf_path_kind kind;
    return wf_path_look(path, &kind, err) && kind == WF_PATH_FILE;
}

bool wf_path_is_folder(const char *path, struct wf_err *err)
{
    enum wf_path_kind kind;
    return wf_path_look(path, &kind, err) && kind == WF_PATH_FOLDER;
}

/* --- half-written files: "folder/.name.KERNEL-NUMBERS-PID-TRY.partial", the name cut where long --- */

static const char PARTIAL[] = ".partial";

static char *partial_name(const char *path, int try)
{
    char *text;
    const struct wf_process me = wf_process_self();
    const char *slash = strrchr(path, '/');
    const int lead = slash ? (int)(slash + 1 - path) : 0;
    const int length = asprintf(&text, "%.*s.%.200s.%08" PRIx32 "-%08" PRIx32 "-%ld-%d%s", lead,
                                path, path + lead, me.kernel, me.numbers, me.pid, try, PARTIAL);
    if (length < 0)
        wf_no_memory(strlen(path));
    return text;
}

static bool is_partial(const char *name)
{
    const size_t n = strlen(name), m = sizeof PARTIAL - 1;
    return n > m && strcmp(name + n - m, PARTIAL) == 0;
}

/* False: the name is none of ours. */
static bool read_owner(const char *name, struct wf_process *owner)
{
    const char *dot = name + strlen(name) - (sizeof PARTIAL - 1);
    while (dot > name && dot[-1] != '.')
        dot--;
    int used = 0, try;
    *owner = (struct wf_process){ 0 };
    return name[0] == '.' && dot > name + 1 &&
           sscanf(dot, "%8" SCNx32 "-%8" SCNx32 "-%ld-%d%n", // NOLINT(cert-err34-c): checked by %n
                  &owner->kernel, &owner->numbers, &owner->pid, &try, &used) == 4 &&
           strcmp(dot + used, PARTIAL) == 0;
}

static bool is_left_over(int folder, const char *name, bool all)
{
    static const time_t day = 24 * 60 * 60;
    struct wf_process owner;
    struct stat info;
    if (!is_partial(name) || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
        return false;
    if (all)
        return true;
    if (!read_owner(name, &owner))
        return false;
    const enum wf_process_state state = wf_process_look(&owner);
    return state == WF_PROCESS_GONE ||
           (state == WF_PROCESS_UNKNOWN && time(NULL) - info.st_mtime > day);
}

void wf_folder_sweep(const char *folder, bool all)
{
    DIR *const dir = opendir(folder);
    for (const struct dirent *at; dir && (at = readdir(dir));)
        if (is_left_over(dirfd(dir), at->d_name, all))
            (void)unlinkat(dirfd(dir), at->d_name, 0); /* in nobody's way, only in nobody's use */
    if (dir)
        (void)closedir(dir);
}

bool wf_infile_open(struct wf_infile *f, const char *path, struct wf_err *err)
{
    *f = (struct wf_infile){ .fd = -1 };
    /* Nonblocking, so that a pipe is refused below instead of waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return wf_err_set(err, WF_ERR_FAILED, "cannot open '%s': %s", path, wf_file_reason(errno));
    struct stat info;
    const int reason = fstat(fd, &info) == 0 ? 0 : errno;
    if (reason || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return wf_err_set(err, WF_ERR_FAILED, "cannot read '%s': %s", path,
                          reason ? wf_file_reason(reason)
                                 : "not a regular file: give the name of a file");
    }
    f->name = wf_take_text(path);
    f->fd = fd;
    f->size = (uint64_t)info.st_size;
    f->moved = wf_take_zeroed(1, sizeof *f->moved);
    return true;
}

void wf_infile_memory(struct wf_infile *f, const char *name, const void *memory, size_t size)
{
    *f = (struct wf_infile){ .name = wf_take_text(name),
                             .fd = -1,
                             .memory = memory,
                             .size = size,
                             .moved = wf_take_zeroed(1, sizeof *f->moved) };
}

bool wf_infile_read(const struct wf_infile *f, uint64_t offset, void *dst, size_t bytes,
                    struct wf_err *err)
{
    if (offset > f->size || bytes > f->size - offset)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': %zu bytes wanted at offset %" PRIu64 ", the file has %" PRIu64
                          " bytes: it is cut short, copy it again",
                          f->name, bytes, offset, f->size);
    (void)__atomic_fetch_add(f->moved, bytes, __ATOMIC_RELAXED);
    if (f->fd < 0) {
        if (bytes)
            memcpy(dst, f->memory + offset, bytes);
        return true;
    }
    for (char *at = dst; bytes;) {
        const ssize_t got =
            pread(f->fd, at, bytes < CALL_BYTES ? bytes : CALL_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return wf_err_set(err, WF_ERR_FAILED, "cannot read '%s': %s", f->name,
                              wf_file_reason(errno));
        if (got == 0)
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s': the file became shorter while it was read, now %" PRIu64
                              " bytes: do not write to it meanwhile",
                              f->name, offset);
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

uint64_t wf_infile_moved(const struct wf_infile *f)
{
    return f->moved ? __atomic_load_n(f->moved, __ATOMIC_RELAXED) : 0;
}

void wf_infile_close(struct wf_infile *f)
{
    if (f->fd >= 0)
        (void)close(f->fd); /* nothing was written: a failing close loses nothing */
    free(f->moved);
    free(f->name);
    *f = (struct wf_infile){ .fd = -1 };
}

bool wf_outfile_begin(struct wf_outfile *f, const char *path, struct wf_err *err)
{
    *f = (struct wf_outfile){ .fd = -1 };
    f->path = wf_take_text(path);
    /* Also of what a link points at: nobody wants '/dev/stdout' replaced by a file. */
    enum wf_path_kind kind;
    if (!wf_path_look(path, &kind, err))
        return false;
    if (kind == WF_PATH_FOLDER || kind == WF_PATH_OTHER)
        return wf_err_set(
            err, WF_ERR_FAILED,
            "cannot write '%s': it exists and is not a regular file: give another name", path);
    /* In the same folder: a rename does not cross file systems. A name may be left over from a
     * process that was killed; the next number is tried. */
    for (int try = 0; try < 100; try++) {
        free(f->partial);
        f->partial = partial_name(f->path, try);
        f->fd = wf_halt_create(f->partial);
        if (f->fd >= 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    const int reason = errno;
    free(f->partial); /* not ours: wf_outfile_drop() must not remove it */
    f->partial = NULL;
    return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", path, wf_file_reason(reason));
}

/* Behind what was written, or at an offset. */
static bool put(struct wf_outfile *f, const uint64_t *offset, const char *at, size_t bytes,
                struct wf_err *err)
{
    for (size_t done = 0; done < bytes;) {
        const size_t now = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        const ssize_t put = offset ? pwrite(f->fd, at + done, now, (off_t)(*offset + done))
                                   : write(f->fd, at + done, now);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", f->path,
                              put < 0 ? wf_file_reason(errno) : "the device takes no more");
        done += (size_t)put;
    }
    return true;
}

bool wf_outfile_write(struct wf_outfile *f, const void *data, size_t bytes, struct wf_err *err)
{
    if (!put(f, NULL, data, bytes, err))
        return false;
    f->written += bytes;
    if (f->written - f->begun >= EARLY_BYTES) {
        /* The disk begins while more is written, so the sync at the end is short; it reports what failed. */
        (void)sync_file_range(f->fd, (off64_t)f->begun, (off64_t)(f->written - f->begun),
                              SYNC_FILE_RANGE_WRITE);
        f->begun = f->written;
    }
    return true;
}

bool wf_outfile_write_at(struct wf_outfile *f, uint64_t offset, const void *data, size_t bytes,
                         struct wf_err *err)
{
    return put(f, &offset, data, bytes, err);
}

bool wf_folder_sync(const char *folder, struct wf_err *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EACCES: a folder one may write to but not list; what was renamed there stands.
     * EINVAL: a file system that cannot do this, and has no need for it. */
    const bool ok = fd >= 0 ? fsync(fd) == 0 || errno == EINVAL : errno == EACCES;
    const int reason = errno;
    if (fd >= 0)
        (void)close(fd);
    return ok || wf_err_set(err, WF_ERR_FAILED, "cannot sync folder '%s': %s", folder,
                            wf_file_reason(reason));
}

bool wf_disk_sync(const char *folder, struct wf_err *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && syncfs(fd) == 0;
    const int reason = errno;
    if (fd >= 0)
        (void)close(fd);
    return ok || wf_err_set(err, WF_ERR_FAILED, "cannot sync the disk of '%s': %s", folder,
                            wf_file_reason(reason));
}

/* The new name is on disk only when the folder is. */
static bool sync_name(const char *path, struct wf_err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = wf_take_text(slash ? path : ".");
    if (slash)
        folder[slash == path ? 1 : slash - path] = '\0';
    const bool ok = wf_folder_sync(folder, err);
    free(folder);
    return ok;
}

bool wf_outfile_join(struct wf_outfile *f, const char *path, const char *partial,
                     struct wf_err *err)
{
    *f = (struct wf_outfile){ .path = wf_take_text(path),
                              .fd = open(partial, O_RDWR | O_NOFOLLOW | O_CLOEXEC) };
    return f->fd >= 0 ||
           wf_err_set(err, WF_ERR_FAILED,
                      "cannot write '%s' together with other ranks: %s: give a folder that all "
                      "machines see",
                      path, wf_file_reason(errno));
}

bool wf_outfile_sync(struct wf_outfile *f, struct wf_err *err)
{
    int synced;
    while ((synced = fsync(f->fd)) != 0 && errno == EINTR) /* a signal that asks a run to stop */
        continue;
    return synced == 0 ||
           wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", f->path, wf_file_reason(errno));
}

bool wf_outfile_commit(struct wf_outfile *f, struct wf_err *err)
{
    if (!f->synced_later && !wf_outfile_sync(f, err))
        return false;
    const int closed = close(f->fd); /* network file systems tell of a full disk only here */
    f->fd = -1;
    if (closed != 0 || rename(f->partial, f->path) != 0)
        return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", f->path,
                          wf_file_reason(errno));
    wf_halt_keep(f->partial);
    free(f->partial);
    f->partial = NULL;
    return f->synced_later || sync_name(f->path, err) ||
           wf_err_wrap(err, "'%s' is written", f->path);
}

void wf_outfile_drop(struct wf_outfile *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    if (f->partial)
        (void)unlink(f->partial);
    wf_halt_keep(f->partial);
    free(f->partial);
    free(f->path);
    *f = (struct wf_outfile){ .fd = -1 };
}

char *wf_file_read(const char *path, uint64_t most, size_t *size, struct wf_err *err)
{
    struct wf_infile in;
    if (!wf_infile_open(&in, path, err))
        return NULL;
    *size = (size_t)in.size;
    char *text = NULL;
    if (in.size > most)
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s' has %" PRIu64 " bytes: too long to be right",
                         path, in.size);
    else if (!(text = calloc(1, *size + 1)))
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for '%s'", path);
    if (text && !wf_infile_read(&in, 0, text, *size, err)) {
        free(text);
        text = NULL;
    }
    wf_infile_close(&in);
    return text;
}

bool wf_file_write(const char *path, const void *data, size_t bytes, struct wf_err *err)
{
    struct wf_outfile out;
    const bool ok = wf_outfile_begin(&out, path, err) && wf_outfile_write(&out, data, bytes, err) &&
                    wf_outfile_commit(&out, err);
    wf_outfile_drop(&out);
    return ok;
}

bool wf_write_text(const char *path, const char *text, struct wf_err *err)
{
    return wf_file_write(path, text, strlen(text), err);
}
