/*
 * Reading untrusted files, and writing files atomically.
 *
 * An infile is a regular file, or a piece of memory in its place (tests, fuzzing). Its size is
 * known from the start and a read never exceeds it, so a format reader can check every number in a
 * header against `size` before it allocates. Reads carry their own offset: threads may share an
 * open infile.
 *
 *     struct wf_infile in;
 *     if (!wf_infile_open(&in, path, err))
 *         return false;
 *     bool ok = wf_infile_read(&in, 0, head, sizeof head, err);
 *     wf_infile_close(&in);
 *
 * An outfile is written beside its final name and takes that name in wf_outfile_commit(), after its
 * bytes have reached the disk. Until then an existing file keeps the name; after a failure, or
 * without a commit, it still does.
 *
 *     struct wf_outfile out;
 *     bool ok = wf_outfile_begin(&out, path, err) && wf_outfile_write(&out, data, bytes, err) &&
 *               wf_outfile_commit(&out, err);
 *     wf_outfile_drop(&out);   // removes what is left of a failed write; nothing after a commit
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* strerror() of an errno, with advice. */
const char *wf_file_reason(int number);

/* The kind of a path. It is absent only if the file system reports so; other failures (EIO, ENOMEM,
 * EACCES, a server that does not answer) are errors. */
enum wf_path_kind { WF_PATH_ABSENT, WF_PATH_FILE, WF_PATH_FOLDER, WF_PATH_OTHER };
[[nodiscard]] bool wf_path_look(const char *path, enum wf_path_kind *kind, struct wf_err *err);
/* Whether there is such a file or folder. False also on failure, which is then in `err`. */
bool wf_path_is_file(const char *path, struct wf_err *err);
bool wf_path_is_folder(const char *path, struct wf_err *err);

struct wf_infile {
    char *name; /* for messages; ours */
    int fd;     /* -1: in memory */
    const unsigned char *memory;
    uint64_t size;   /* bytes */
    uint64_t *moved; /* bytes that were read so far; threads that share the file add to it */
};

/* On failure nothing is left to close. */
[[nodiscard]] bool wf_infile_open(struct wf_infile *f, const char *path, struct wf_err *err);
/* `memory` is borrowed until wf_infile_close(). */
void wf_infile_memory(struct wf_infile *f, const char *name, const void *memory, size_t size);
/* Exactly `bytes` from `offset`; fails where the file is shorter. */
[[nodiscard]] bool wf_infile_read(const struct wf_infile *f, uint64_t offset, void *dst,
                                  size_t bytes, struct wf_err *err);
uint64_t wf_infile_moved(const struct wf_infile *f);
void wf_infile_close(struct wf_infile *f);

struct wf_outfile {
    char *path, *partial; /* the final name and the one until then */
    int fd;               /* -1: not open */
    uint64_t written;     /* bytes, in order */
    uint64_t begun;       /* of them, on their way to the disk */
    bool synced_later;    /* by wf_disk_sync(), once for many files; set after begin */
};

/* A symbolic link of that name is replaced, never followed: its target is unchanged. After a
 * failure only wf_outfile_drop() may follow. */
[[nodiscard]] bool wf_outfile_begin(struct wf_outfile *f, const char *path, struct wf_err *err);
[[nodiscard]] bool wf_outfile_write(struct wf_outfile *f, const void *data, size_t bytes,
                                    struct wf_err *err);
/* At any offset; does not change the position of wf_outfile_write(). */
[[nodiscard]] bool wf_outfile_write_at(struct wf_outfile *f, uint64_t offset, const void *data,
                                       size_t bytes, struct wf_err *err);
[[nodiscard]] bool wf_outfile_commit(struct wf_outfile *f, struct wf_err *err);
void wf_outfile_drop(struct wf_outfile *f);
/* The whole file with a zero behind it, to be freed; NULL on failure, also where it is longer than `most`. */
char *wf_file_read(const char *path, uint64_t most, size_t *size, struct wf_err *err);
/* All of these in one call: a file of `bytes` bytes, whole or not at all. */
[[nodiscard]] bool wf_file_write(const char *path, const void *data, size_t bytes,
                                 struct wf_err *err);

/* A file that another process or thread has begun under the name `partial` and will commit; this
 * one writes to it, syncs it with wf_outfile_sync(), and drops it. */
[[nodiscard]] bool wf_outfile_join(struct wf_outfile *f, const char *path, const char *partial,
                                   struct wf_err *err);
[[nodiscard]] bool wf_outfile_sync(struct wf_outfile *f, struct wf_err *err);

/* Syncs names that were created, moved or removed in `folder` to the disk. */
[[nodiscard]] bool wf_folder_sync(const char *folder, struct wf_err *err);

/* All that was written to the file system of `folder` is on the disk, once this returns. */
[[nodiscard]] bool wf_disk_sync(const char *folder, struct wf_err *err);

/* Removes half-written files of ended writers from `folder`. `all`: no other process writes there,
 * so all half-written files are removed. Otherwise files of a writer on another machine are kept
 * for a day. */
void wf_folder_sweep(const char *folder, bool all);

/* A file of text, replaced whole or not at all. */
[[nodiscard]] bool wf_write_text(const char *path, const char *text, struct wf_err *err);
