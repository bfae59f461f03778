/*
 * Safetensors files: 8 bytes of header length, a JSON header, the data of the tensors without gaps.
 *
 * Reading. Opening checks the whole header against the size of the file; after that every tensor is
 * known to be inside it, no two overlap, and `count` elements may be allocated. Data is read only
 * on request. An open file is immutable: threads may read from it concurrently.
 *
 *     struct wf_safetensors *s = wf_safetensors_open("unet.safetensors", err);
 *     const struct wf_safetensor *t = wf_safetensors_want(s, "enc0.weight", 4, shape, err);
 *     if (!t || !wf_safetensors_read(s, t, WF_F32, weights, err)) ...
 *     wf_safetensors_free(s);
 *
 * Writing. Tensors are announced, then wf_safetensors_finish() writes all of them; each is given as
 * memory, or by a callback that is called when it is written, so that one buffer serves for all.
 * The file gets its name only when it is complete (see base/file.h).
 *
 *     struct wf_safetensors_writer *w = wf_safetensors_begin();
 *     wf_safetensors_add(w, &(struct wf_safetensors_item){ .name = "enc0.weight", .dtype = WF_F32,
 *                                                          .rank = 4, .shape = shape, .data = p });
 *     bool ok = wf_safetensors_finish(w, path, err);
 *     wf_safetensors_writer_free(w);
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

struct wf_safetensors;

struct wf_safetensor {
    const char *name;
    const char *kind;    /* the type as the file names it: "F32", "BF16", "I8", ... */
    enum wf_dtype dtype; /* WF_DTYPES: a known type that cannot be read */
    int rank;
    const int64_t *shape; /* rank of them, none below zero */
    int64_t count;        /* elements */
    uint64_t begin, end;  /* bytes from the start of the data */
};

/* NULL on error. */
struct wf_safetensors *wf_safetensors_open(const char *path, struct wf_err *err);
/* A file in memory, which is borrowed; `name` is for messages. */
struct wf_safetensors *wf_safetensors_parse(const char *name, const void *bytes, size_t size,
                                            struct wf_err *err);
void wf_safetensors_free(struct wf_safetensors *s);

int64_t wf_safetensors_count(const struct wf_safetensors *s);
/* In the order of their data. */
const struct wf_safetensor *wf_safetensors_at(const struct wf_safetensors *s, int64_t index);
const struct wf_safetensor *wf_safetensors_find(const struct wf_safetensors *s,
                                                const char *name); /* or NULL */
/* The tensor of that name and shape; NULL with an error where there is none. */
const struct wf_safetensor *wf_safetensors_want(const struct wf_safetensors *s, const char *name,
                                                int rank, const int64_t shape[],
                                                struct wf_err *err);
/* The text that `__metadata__` has for `key`, or NULL. */
const char *wf_safetensors_metadata(const struct wf_safetensors *s, const char *key);

/* All elements into `dst`, which has room for t->count of type `as`: the tensor's own type, or f32
 * from any other floating type (f64 is rounded; a value outside the range of f32 is an error). */
[[nodiscard]] bool wf_safetensors_read(const struct wf_safetensors *s,
                                       const struct wf_safetensor *t, enum wf_dtype as, void *dst,
                                       struct wf_err *err);

struct wf_safetensors_writer;

struct wf_safetensors_item {
    const char *name;
    enum wf_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *data; /* borrowed until the file is finished; or NULL: */
    /* returns all elements, valid until the next call; NULL with an error stops the writing */
    const void *(*give)(void *user, struct wf_err *err);
    void *user;
};

struct wf_safetensors_writer *wf_safetensors_begin(void);
/* Name and shape are copied. */
void wf_safetensors_add(struct wf_safetensors_writer *w, const struct wf_safetensors_item *item);
void wf_safetensors_add_metadata(struct wf_safetensors_writer *w, const char *key,
                                 const char *value);
/* A text of `length` bytes that is known only once all tensors were given, such as a checksum of them: `fill` is called then
 * and writes it, with a zero behind it. One per file. */
void wf_safetensors_add_late(struct wf_safetensors_writer *w, const char *key, size_t length,
                             void (*fill)(void *user, char *text), void *user);
/* Tensors are in the order in which they were added, wider element types first: so each is aligned
 * to its element without gaps, which the format forbids. */
[[nodiscard]] bool wf_safetensors_finish(struct wf_safetensors_writer *w, const char *path,
                                         struct wf_err *err);
void wf_safetensors_writer_free(struct wf_safetensors_writer *w);
