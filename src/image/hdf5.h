/*
 * A small HDF5 reader: finds a dataset in a file, and the position of its values.
 *
 * The format's own library crashes on damaged files within seconds of fuzzing (1.10.8:
 * out-of-bounds reads, null pointers, allocations of exabytes), has one global lock, and follows
 * links to other files. Images need a small part of the format, which is read here: superblocks 0
 * to 3, object headers 1 and 2, groups of either kind, datasets of plain numbers that are compact,
 * contiguous or chunked, indexed by a B-tree, a fixed array, or not at all, packed by deflate,
 * shuffle and Fletcher's sum. The rest (datasets that can grow in files written with
 * libver='latest', plugins, links to other files, virtual datasets) is refused with advice.
 *
 *     struct wf_h5_dataset set;
 *     if (!wf_h5_find(file, "/a/b", &set, err))
 *         return false;
 *     struct wf_h5_chunk chunk;
 *     if (!wf_h5_chunk_at(&set, (int64_t[]){ 3, 0 }, &chunk, err))   // which chunk, on each axis
 *         return false;
 *
 * Nothing is kept open; the infile is borrowed. Threads may share a dataset.
 */
#pragma once

#include "base/file.h"
#include "image/raster.h"

enum { WF_H5_RANK = 4, WF_H5_FILTERS = 8 };

enum wf_h5_layout { WF_H5_CONTIGUOUS, WF_H5_CHUNKED };
enum wf_h5_filter { WF_H5_DEFLATE = 1, WF_H5_SHUFFLE = 2, WF_H5_FLETCHER = 3 };
/* The chunk index; the numbers are the file's, except for the old B-tree, which has none. */
enum wf_h5_index { WF_H5_TREE = 0, WF_H5_SINGLE = 1, WF_H5_IMPLICIT = 2, WF_H5_FIXED = 3 };

struct wf_h5_dataset {
    const struct wf_infile *file;
    uint64_t base; /* addresses are relative to it: there may be a user block before */
    int rank;
    int64_t shape[WF_H5_RANK];
    enum wf_sample sample;
    bool swapped;          /* big endian */
    unsigned char fill[8]; /* value of samples that were never written, in the file's byte order */
    enum wf_h5_layout layout;
    bool written;     /* there is data at all */
    uint64_t address; /* of the values or of the index, in the file */
    uint64_t bytes;   /* contiguous: that are there */
    int64_t chunk[WF_H5_RANK];
    enum wf_h5_index index;
    uint64_t single_bytes; /* WF_H5_SINGLE: of the packed chunk */
    uint32_t single_mask;
    int filter_count; /* in the order in which they were applied */
    enum wf_h5_filter filters[WF_H5_FILTERS];
};

/* `path` NULL: the only dataset of the file. */
[[nodiscard]] bool wf_h5_find(const struct wf_infile *file, const char *path,
                              struct wf_h5_dataset *set, struct wf_err *err);

struct wf_h5_chunk {
    bool written;
    uint64_t address, bytes; /* in the file, checked to be inside it */
    uint32_t skipped;        /* bit i: filter i was not applied */
};
[[nodiscard]] bool wf_h5_chunk_at(const struct wf_h5_dataset *set, const int64_t which[],
                                  struct wf_h5_chunk *chunk, struct wf_err *err);
/* Undoes the filters: `packed` is used as scratch, `dst` has room for exactly `bytes`, a chunk. */
[[nodiscard]] bool wf_h5_unpack(const struct wf_h5_dataset *set, const struct wf_h5_chunk *chunk,
                                unsigned char *packed, unsigned char *dst, size_t bytes,
                                struct wf_err *err);

/* --- for the files that read the format --- */
/* Little-endian numbers out of a piece of memory; `bad` once it was too short. */
struct wf_h5_cursor {
    const unsigned char *at, *end;
    bool bad;
};
uint64_t wf_h5_take(struct wf_h5_cursor *c, int bytes);
void wf_h5_skip(struct wf_h5_cursor *c, uint64_t bytes);
bool wf_h5_damaged(const struct wf_infile *file, const char *what, struct wf_err *err);

/* A message of an object header that describes the dataset. `where` is its offset in the file. */
struct wf_h5_message {
    int type, flags;
    const unsigned char *data;
    size_t size;
    uint64_t where;
};
/* Seen so far: all three make a dataset. */
enum { WF_H5_SPACE = 1, WF_H5_TYPE = 2, WF_H5_LAYOUT = 4, WF_H5_ALL = 7 };
[[nodiscard]] bool wf_h5_describe(struct wf_h5_dataset *set, const struct wf_h5_message *m,
                                  unsigned *seen, struct wf_err *err);
