/*
 * Arrays of numpy: `.npy` files, versions 1.0 to 3.0.
 *
 * Opening checks the header against the size of the file, to the byte; after that `count` elements
 * may be allocated, and any range of them read and converted without the rest. No conversion
 * changes a value silently: integers from integers only, and in range; f32 and f64 from integers only
 * if they are exact (f64 is rounded to f32, but not to infinity).
 *
 *     struct wf_npy a;
 *     if (!wf_npy_open(&a, "image.npy", err))
 *         return false;
 *     float *pixels = malloc((size_t)a.count * sizeof *pixels);
 *     bool ok = wf_npy_read(&a, 0, a.count, WF_F32, pixels, err);
 *     wf_npy_close(&a);
 *
 * Big-endian files are read too. Fortran order is refused with advice, unless it is the same.
 */
#pragma once

#include "base/file.h"
#include "image/raster.h"

enum { WF_NPY_RANK = 5 };

struct wf_npy {
    struct wf_infile file;
    enum wf_sample sample; /* bool is u8 */
    const char *type;      /* as numpy names it */
    bool swapped;          /* big endian */
    int rank;
    int64_t shape[WF_NPY_RANK]; /* none below zero */
    int64_t count;              /* elements */
    uint64_t data;              /* where they start in the file */
};

/* On failure nothing is left to close. */
[[nodiscard]] bool wf_npy_open(struct wf_npy *a, const char *path, struct wf_err *err);
/* A file in memory, which is borrowed; `name` is for messages. */
[[nodiscard]] bool wf_npy_parse(struct wf_npy *a, const char *name, const void *bytes, size_t size,
                                struct wf_err *err);
void wf_npy_close(struct wf_npy *a);

/* Elements [first, first + count) in C order as WF_F32, WF_F64, WF_I32 or WF_I64. Threads may share
 * `a`. */
[[nodiscard]] bool wf_npy_read(const struct wf_npy *a, int64_t first, int64_t count,
                               enum wf_dtype as, void *dst, struct wf_err *err);

/* Writes a version 1.0 file, in pieces, which gets its name only when it is complete (base/file.h).
 * Call wf_npy_end() after wf_npy_begin(), failed or not; if not all elements were written, or `ok`
 * is false because the caller failed, it removes the file and returns false. */
struct wf_npy_writer {
    struct wf_outfile file;
    enum wf_dtype dtype;
    int64_t left; /* elements not yet written; -1: something failed */
};
[[nodiscard]] bool wf_npy_begin(struct wf_npy_writer *w, const char *path, enum wf_dtype dtype,
                                int rank, const int64_t shape[], struct wf_err *err);
[[nodiscard]] bool wf_npy_put(struct wf_npy_writer *w, const void *data, int64_t count,
                              struct wf_err *err);
[[nodiscard]] bool wf_npy_end(struct wf_npy_writer *w, bool ok, struct wf_err *err);

/* What stands before the elements in a file; the bytes of it, or 0 where numpy has no such dtype. */
enum { WF_NPY_HEAD = 256 };
size_t wf_npy_head(char head[WF_NPY_HEAD], enum wf_dtype dtype, int rank, const int64_t shape[]);

/* All at once. */
[[nodiscard]] bool wf_npy_write(const char *path, enum wf_dtype dtype, int rank,
                                const int64_t shape[], const void *data, struct wf_err *err);
