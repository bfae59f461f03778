/*
 * Several arrays of numpy in one file: `.npz`, a zip archive of `.npy` files.
 *
 * An archive is opened by its directory; an array is read whole into memory when it is asked for,
 * and its checksum compared. Stored members (numpy.savez) and, with zlib, deflated ones
 * (numpy.savez_compressed) are read, also past 4 GB.
 *
 *     struct wf_npz z;
 *     if (!wf_npz_open(&z, "scan.npz", err))
 *         return false;
 *     struct wf_npz_array a;
 *     bool ok = wf_npz_find(&z, "coords") && wf_npz_load(&z, "coords", &a, err);
 *     ... wf_npy_read(&a.npy, ...) ...
 *     wf_npz_array_release(&a);   // also after a failure
 *     wf_npz_close(&z);
 *
 * Files are untrusted: sizes are checked against the file before anything is allocated.
 */
#pragma once

#include "base/file.h"
#include "image/npy.h"

struct wf_npz_member {
    char name[64]; /* without .npy; a longer one is cut */
    int method;    /* 0 stored, 8 deflated */
    bool locked;   /* encrypted */
    uint32_t crc;
    uint64_t packed, bytes; /* in the file and in memory */
    uint64_t at;            /* of the local header */
};

struct wf_npz {
    struct wf_infile file;
    struct wf_npz_member *members;
    size_t count;
};

/* On failure nothing is left to close. */
[[nodiscard]] bool wf_npz_open(struct wf_npz *z, const char *path, struct wf_err *err);
/* A file in memory, which is borrowed; `name` is for messages. */
[[nodiscard]] bool wf_npz_parse(struct wf_npz *z, const char *name, const void *bytes, size_t size,
                                struct wf_err *err);
void wf_npz_close(struct wf_npz *z);

/* NULL: there is no such array. */
const struct wf_npz_member *wf_npz_find(const struct wf_npz *z, const char *name);

struct wf_npz_array {
    struct wf_npy npy;
    void *bytes; /* what npy reads */
};
[[nodiscard]] bool wf_npz_load(const struct wf_npz *z, const char *name, struct wf_npz_array *a,
                               struct wf_err *err);
void wf_npz_array_release(struct wf_npz_array *a);

/* Writes arrays one after the other, stored; the file gets its name only when it is complete. Call
 * wf_npz_end() after wf_npz_begin(), failed or not. */
struct wf_npz_writer {
    struct wf_outfile file;
    struct wf_npz_member *members;
    size_t count, room;
};
[[nodiscard]] bool wf_npz_begin(struct wf_npz_writer *w, const char *path, struct wf_err *err);
struct wf_npz_data {
    const char *name;
    enum wf_dtype dtype;
    int rank;
    int64_t shape[WF_NPY_RANK];
    const void *data;
};
[[nodiscard]] bool wf_npz_put(struct wf_npz_writer *w, const struct wf_npz_data *d,
                              struct wf_err *err);
[[nodiscard]] bool wf_npz_end(struct wf_npz_writer *w, bool ok, struct wf_err *err);

/* The checksum of zip archives, continued from `before`; 0 to start. */
uint32_t wf_npz_crc(uint32_t before, const void *data, size_t bytes);
