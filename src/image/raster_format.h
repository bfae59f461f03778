/*
 * Inside image/: what a raster format supplies. Adding a format is adding one file with one of
 * these tables, and a line in raster.c.
 *
 * A format's `open` is called with r->file open, fills r->info and may attach its own state to the
 * raster. Its `read` produces blocks: decoded samples with the box they cover; wf_raster_put()
 * copies the part in the window to the caller and converts it. So formats need not know dtypes, and
 * conversion is in one place.
 */
#pragma once

#include <setjmp.h>

#include "base/file.h"
#include "image/raster.h"

/* Limits on what one read decodes, so that a small file cannot exhaust memory. */
enum {
    WF_RASTER_ROW_MAX = 8 << 20,    /* bytes of a row */
    WF_RASTER_ROWS_KEPT = 48 << 20, /* bytes of rows kept for the next window */
    WF_RASTER_WHOLE = 24 << 20,     /* decoded at once whatever the file's size ... */
    WF_RASTER_RATIO = 64, /* ... and past that at most this many times the encoded bytes */
    WF_RASTER_BLOCK_MAX = 512 << 20,
    WF_RASTER_PAGES = 1 << 16,
    WF_RASTER_CHANNELS = 4096,
    WF_DEFLATE_RATIO = 1040, /* deflate cannot do better than 1032 : 1 */
};

enum { WF_RASTER_D, WF_RASTER_H, WF_RASTER_W, WF_RASTER_C, WF_RASTER_AXES };

struct wf_raster;

struct wf_raster_job {
    struct wf_raster *raster;
    int64_t lo[WF_RASTER_AXES], hi[WF_RASTER_AXES];
    enum wf_dtype as;
    void *dst;
};

/* Decoded samples at lo ... hi of the image; `data` points at the one at lo, strides in samples. */
struct wf_raster_block {
    const void *data;
    int64_t lo[WF_RASTER_AXES], hi[WF_RASTER_AXES], stride[WF_RASTER_AXES];
};

struct wf_raster_format {
    const char *name;
    /* The first bytes of a file, at least one of them. */
    bool (*probe)(const unsigned char *head, size_t bytes);
    const char *lacks; /* the package whose library this build lacks: nothing else is there then */
    /* On failure `close` is called, so it must handle a partial open. */
    bool (*open)(struct wf_raster *r, struct wf_err *err);
    bool (*read)(const struct wf_raster_job *job, struct wf_err *err);
    void (*close)(struct wf_raster *r); /* may find r->state NULL */
    /* Optional: wf_raster_check(). */
    bool (*check)(struct wf_raster *r, struct wf_err *err);
    /* Optional: bytes that were read without r->file. */
    uint64_t (*moved)(const struct wf_raster *r);
};
enum { WF_RASTER_HEAD = 2048 + 8 }; /* bytes that a probe sees: HDF5 may start that late */

struct wf_raster_geo {
    uint32_t tag;
    enum { WF_GEO_SHORT, WF_GEO_DOUBLE, WF_GEO_TEXT } type;
    uint32_t count;
    void *data;
};

enum { WF_RASTER_GEO_TAGS = 6 };

enum { WF_NIFTI_DIMS = 8 };

/* The geometry of a NIfTI header, number by number. */
struct wf_raster_space {
    int rank; /* axes of the file; 0: it was no NIfTI file */
    int units, qform, sform;
    double pixdim[WF_NIFTI_DIMS];
    double quatern[3], offset[3]; /* of the qform */
    double affine[12];            /* of the sform: three rows of four */
};

struct wf_raster_place {
    double x, y; /* pixels per unit; 0: unknown */
    enum { WF_UNIT_NONE = 1, WF_UNIT_INCH = 2, WF_UNIT_CM = 3 } unit; /* as TIFF counts them */
    int geo_count;
    struct wf_raster_geo geo[WF_RASTER_GEO_TAGS];
    struct wf_raster_space space;
};

struct wf_raster {
    const struct wf_raster_format *format;
    struct wf_infile file;
    char *part;                  /* what follows the colon of "file.h5:/part"; NULL: nothing */
    struct wf_raster_info info;  /* as it is stored */
    struct wf_raster_info shown; /* as callers see it: oriented */
    int orientation;             /* EXIF's 1 to 8; 0 is 1 */
    struct wf_raster_place place;
    bool scaled; /* NIfTI, and TIFF whose zero is white: value = slope * sample + inter */
    double slope, inter;
    enum wf_sample stored; /* type of the blocks' samples; info.sample but for `scaled` */
    int64_t tiles_read;
    void *state;
};

extern const struct wf_raster_format wf_raster_png, wf_raster_jpeg, wf_raster_tiff, wf_raster_nifti,
    wf_raster_hdf5, wf_raster_npy;

/* "'file': <text>" as an input error; false. */
bool wf_raster_refuse(const struct wf_raster *r, struct wf_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads the last pixel: then all before it are present. */
bool wf_raster_read_last(struct wf_raster *r, struct wf_err *err);
/* This build lacks the library of the format. */
bool wf_raster_lacks(const struct wf_raster *r, const char *package, struct wf_err *err);
bool wf_raster_no_memory(const struct wf_raster *r, struct wf_err *err);
/* Replaces unprintable characters, for text from a file or a library. */
void wf_raster_printable(char *text);

[[nodiscard]] bool wf_raster_put(const struct wf_raster_job *job, const struct wf_raster_block *b,
                                 struct wf_err *err);
/* An array of rank 1 to 4 as an image (see raster.h); axes[i] is the image axis of array axis i. */
[[nodiscard]] bool wf_raster_from_array(struct wf_raster *r, int rank, const int64_t shape[],
                                        int axes[], struct wf_err *err);
void wf_sample_swap(void *data, size_t count, size_t size); /* other endian */
/* To f32, f64, i32 or, whole numbers, i64; returns how many went well: fewer than `count` where the next one has
 * no exact value. */
size_t wf_sample_convert(enum wf_sample sample, const void *src, size_t count, enum wf_dtype as,
                         void *dst);

/* --- rows of a file that is read sequentially, with the last ones kept --- */
struct wf_raster_rows {
    int64_t count;
    size_t bytes; /* of one */
    bool seeks;   /* `next` may be called for any row */
    /* Decode row `row`: the one after the last, or 0 (start again), or any where it seeks. */
    bool (*next)(void *source, int64_t row, void *dst, struct wf_err *err);
    void *source;
    /* Private: rows [first, end) are in `kept`, row i at slot i % slots. */
    unsigned char *kept;
    int64_t slots, first, end;
};
/* Valid until the next call; NULL on failure. */
const void *wf_raster_rows_get(struct wf_raster_rows *rows, int64_t row, struct wf_err *err);
/* wf_raster_format.read of rows of whole pixels; `whole`: all of them, where they are in memory. */
[[nodiscard]] bool wf_raster_rows_put(struct wf_raster_rows *rows, const unsigned char *whole,
                                      const struct wf_raster_job *job, struct wf_err *err);
void wf_raster_rows_release(struct wf_raster_rows *rows);

/* --- libraries that leave by longjmp --- */
struct wf_guard {
    jmp_buf jump;
    char message[200]; /* the library's first message */
};
/* Calls step(arg); false if it left through the guard. The step keeps everything in `arg`: no
 * variable of the caller is in registers across the jump. */
bool wf_guarded(struct wf_guard *guard, void (*step)(void *arg), void *arg);
void wf_guard_leave(struct wf_guard *guard, const char *message) __attribute__((noreturn));

/* --- writers --- */
/* A format has `write`, or all of `partial`, `pack`, `place` and `table` (raster.h: several
 * writers). */
struct wf_raster_sink {
    const char *name;
    const char *lacks; /* as wf_raster_format's */
    /* Checks what the format can hold, and begins. w->info and w->path are set, the tile is a hint;
     * w->joins is set if another writer has begun. */
    bool (*begin)(struct wf_raster_writer *w, struct wf_err *err);
    /* ok: complete the file and commit it. Otherwise, or on failure, remove it. Frees the state, also
     * after `begin` failed (state may be NULL). */
    bool (*end)(struct wf_raster_writer *w, bool ok, struct wf_err *err);
    bool (*write)(struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                  struct wf_err *err);
    const char *(*partial)(const struct wf_raster_writer *w);
    /* Called by several threads at once. */
    bool (*pack)(const struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                 struct wf_raster_packed *packed, struct wf_err *err);
    /* What was packed, `before` bytes behind the end of the last round. */
    bool (*place)(struct wf_raster_writer *w, const struct wf_raster_packed *packed,
                  uint64_t before, struct wf_err *err);
    void (*placed)(struct wf_raster_writer *w, uint64_t all); /* the round's bytes; NULL: none */
    int64_t *(*table)(struct wf_raster_writer *w, size_t *count);
};

struct wf_raster_writer {
    const struct wf_raster_sink *sink;
    char *path;
    char *joins; /* the partial file of the writer that began; NULL: this one */
    struct wf_raster_info info;
    bool by_rows;     /* windows are whole rows in order */
    int64_t next_row; /* counted over all planes */
    int64_t came;     /* pixels written; with a table they are counted there */
    bool failed;
    void *state;
};

extern const struct wf_raster_sink wf_raster_png_sink, wf_raster_tiff_sink, wf_raster_npy_sink,
    wf_raster_nifti_sink;
bool wf_raster_sink_lacks(const struct wf_raster_writer *w, const char *package,
                          struct wf_err *err);
