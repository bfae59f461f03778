/*
 * Inside data/: what a dataset keeps, and what a layout supplies. Adding a layout is adding one
 * file with one of these tables, and a line in dataset.c.
 *
 * A layout's `list` adds samples with the files they come from; everything after that (headers,
 * sizes, what masks mean) is common, unless the layout reads its samples itself (CIFAR-10, IDX).
 */
#pragma once

#include "base/file.h"
#include "data/dataset.h"
#include "image/raster_grid.h"
#include "image/raster.h"

enum {
    WF_DATA_OPEN = 8,        /* files that a reader keeps open */
    WF_DATA_SCAN = 64 << 20, /* mask pixels read when a dataset is opened */
    WF_DATA_PIECE = 4 << 20, /* pixels of a piece that is read at once */
    WF_DATA_WINDOW = 256,    /* side of the windows that large images are sampled by */
};

struct wf_texts {
    const char **items; /* ends with NULL once something is in it */
    size_t count, room;
};

/* The nodata value. For unsigned samples it may also be a colour: only pixels that have it in all
 * channels are nodata. */
struct wf_nodata {
    bool there, in_all;
    float value;
};

/* The geometry of a mask that is on another grid than its image. */
struct wf_align {
    double map[3][4];  /* (w, h, d) of the image to those of the mask */
    int64_t extent[3]; /* W, H, D of the mask */
};

/* The blocks in which a decoded file is kept: extents along D, H and W; 0: it is not. */
struct wf_blocks {
    int64_t at[3];
    bool in_order; /* read from the top: all blocks in front of one are decoded for it */
};

struct wf_entry {
    struct wf_data_sample sample;
    const char *const *files; /* one, or one for each channel */
    int n_files;
    uint64_t offset;              /* of a record in its file (CIFAR-10, IDX) */
    int mask_channels;            /* that are read: 1 or 3 */
    const struct wf_align *align; /* NULL: the mask has the image's pixels */
    struct wf_nodata nodata;
    struct wf_blocks blocks[2]; /* that are kept in memory, of image and mask */
    const void *pixels;         /* of arrays, and of records that were unpacked */
    const void *labels;         /* of arrays; NULL: none for each pixel */
};

struct wf_dataset_layout_kind {
    const char *name;
    const char *looks;  /* what such a folder holds, for messages */
    bool clouds;        /* samples are point clouds: wf_clouds_look() looks at the files */
    bool rounds_colors; /* of masks: a channel of 128 and more is 255, others are 0 */
    /* Whether the folder may have this layout. False also on failure, which is then in `err`. */
    bool (*probe)(const char *path, struct wf_err *err);
    bool (*list)(struct wf_dataset *ds, struct wf_err *err);
    /* If files are not rasters: the pixels of a window; `file` is open on files[0]. */
    bool (*read)(const struct wf_entry *e, const struct wf_infile *file,
                 const struct wf_region *window, float *image, struct wf_err *err);
};
extern const struct wf_dataset_layout_kind wf_dataset_layout_folder, wf_dataset_layout_pairs,
    wf_dataset_layout_nnunet, wf_dataset_layout_cifar10, wf_dataset_layout_classes,
    wf_dataset_layout_deepglobe, wf_dataset_layout_inria, wf_dataset_layout_idx,
    wf_dataset_layout_clouds, wf_dataset_layout_cloud_classes, wf_dataset_layout_kitti;

struct wf_dataset {
    struct wf_arena arena;
    struct wf_dataset_info info;
    const struct wf_dataset_layout_kind *kind;
    const struct wf_arrays *arrays; /* NULL: of files */
    bool layout_given;              /* by the user: nothing is guessed */
    struct wf_entry *entries;
    size_t room;
    struct wf_data_class *classes; /* room for WF_DATA_FOLDERS */
    int named;                     /* classes that have a name from a file */
    bool coded;                    /* ... and values too: masks need not be scanned */
    struct wf_texts notes, problems;
    enum wf_data_align align;
    enum wf_data_alpha alpha;
    int64_t wanted;    /* channels; 0: any */
    int64_t resampled; /* masks */
    int64_t points;    /* drawn on a mesh */
    bool noted_place, noted_system, noted_nodata, noted_mask;
    uint64_t *moved;      /* bytes that readers had read when they were freed; threads add to it */
    struct wf_keep *keep; /* NULL: nothing is kept */
};

/* --- decoded images and labels kept in memory (keep.c), for all threads --- */
/* At most `limit` bytes; negative: while enough memory is free. */
struct wf_keep *wf_keep_new(int64_t samples, int64_t limit);
void wf_keep_free(struct wf_keep *keep);
int64_t wf_keep_bytes(const struct wf_keep *keep);
struct wf_blocks wf_keep_blocks(const struct wf_raster_info *info);
/* What is read: the numbers of an image, or its labels. */
struct wf_keep_source {
    int64_t table;         /* twice the sample, and one more for labels */
    bool is_labels;        /* int32_t, otherwise float */
    const int64_t *extent; /* WF_AXES, of which D, H and W count */
    struct wf_blocks blocks;
    int64_t each; /* numbers of a pixel */
    /* Reads a window of it: dense, four bytes a number. */
    bool (*read)(void *user, const struct wf_region *window, void *dst, struct wf_err *err);
    void *user;
};
[[nodiscard]] bool wf_keep_read(struct wf_keep *keep, const struct wf_keep_source *source,
                                const struct wf_region *window, void *dst, struct wf_err *err);

/* --- many samples at once (each.c) --- */
/* Calls `look` for each i below n, from so many threads with a reader each, which take them in turn. */
typedef void wf_each_fn(void *user, int thread, struct wf_reader *reader, int64_t i);
void wf_each(const struct wf_dataset *ds, int64_t n, int threads, wf_each_fn *look, void *user);
/* As many as do some good. */
int wf_each_threads(int64_t n);

/* --- arrays instead of files (layout_memory.c) --- */
[[nodiscard]] bool wf_memory_list(struct wf_dataset *ds, struct wf_err *err);
void wf_memory_read(const struct wf_dataset *ds, const struct wf_entry *e,
                    const struct wf_region *window, float *image);
void wf_memory_labels(const struct wf_dataset *ds, const struct wf_entry *e,
                      const struct wf_region *window, int32_t *labels);

/* --- point clouds (clouds.c) --- */
/* Their headers, and the labels of all or a spread of them; what is wrong is a problem of the sample. */
void wf_clouds_look(struct wf_dataset *ds);
void wf_clouds_scan(struct wf_dataset *ds);
/* wf_normal_measure() of their features. */
[[nodiscard]] bool wf_clouds_measure(const struct wf_dataset *ds, const int64_t samples[],
                                     int64_t count, uint64_t seed, struct wf_normal *normal,
                                     struct wf_err *err);

/* --- for layouts --- */
/* Texts are copied. The next entry is valid until the next call. */
struct wf_entry *wf_dataset_add(struct wf_dataset *ds, const char *name, const char *image,
                                const char *mask);
/* The files of an entry where there are several. */
void wf_dataset_set_files(struct wf_dataset *ds, struct wf_entry *e, const char *const files[],
                          int count);
void wf_dataset_note(struct wf_dataset *ds, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `e` NULL: of no sample. The first problem of a sample is kept. */
void wf_dataset_problem(struct wf_dataset *ds, struct wf_entry *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What the layout was detected by; the default is the kind's `looks`. */
void wf_dataset_why(struct wf_dataset *ds, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Names class `id`. */
void wf_dataset_name_class(struct wf_dataset *ds, int id, const char *name);

/* --- files --- */
struct wf_folder {
    const char **files, **folders; /* names, sorted; hidden ones are left out */
    size_t n_files, n_folders;
};
[[nodiscard]] bool wf_folder_list(struct wf_arena *arena, const char *path, struct wf_folder *f,
                                  struct wf_err *err);
/* Whether path/name is a folder, or a file. False also on failure, which is then in `err`: a list
 * made in spite of it is no dataset. */
bool wf_folder_exists(const char *path, const char *name, struct wf_err *err);
bool wf_file_exists(const char *path, const char *name, struct wf_err *err);
const char *wf_path_join(struct wf_arena *arena, const char *path, const char *name);
/* Whether a folder of this name contains masks; or is a part of a dataset, such as train/. */
bool wf_is_mask_folder(const char *name);
bool wf_is_part_folder(const char *name);
/* Whether the extension is that of a supported image. */
bool wf_is_image_name(const char *name);
/* The name without its extension: "a.nii.gz" is "a". */
const char *wf_stem(struct wf_arena *arena, const char *name);
/* The stem of the image that a mask of this stem belongs to, or NULL if it has no mask suffix. */
const char *wf_mask_stem(struct wf_arena *arena, const char *stem);
/* Names by stem. Items are the owner's; sort before finding. */
struct wf_named {
    const char *stem, *name;
    bool used;
};
struct wf_names {
    struct wf_named *items;
    size_t count;
};
void wf_names_sort(struct wf_names *names);
struct wf_named *wf_names_find(const struct wf_names *names, const char *stem); /* or NULL */
/* Small text files, ended by 0; heap; NULL on failure. */
char *wf_read_text(const char *path, struct wf_err *err);

/* --- georeferencing of masks (align.c) --- */
/* Compares the mask's grid with the image's, and stores how to read it; false if the mask cannot be
 * used: with a problem of the entry, or without one if sizes differ and there is no
 * georeferencing. */
bool wf_align_look(struct wf_dataset *ds, struct wf_entry *e, const struct wf_raster_info *image,
                   const struct wf_raster_info *mask);
/* Files of channels must have the geometry of the first; otherwise it is a problem. */
void wf_align_check_channel(struct wf_dataset *ds, struct wf_entry *e,
                            const struct wf_raster_info *first, const struct wf_raster_info *other,
                            const char *path);
[[nodiscard]] bool wf_align_read(const struct wf_align *a, struct wf_raster *mask,
                                 const struct wf_region *window, int channels, int32_t *dst,
                                 struct wf_err *err);

/* --- values of masks (codes.c) --- */
/* classes.txt, if there is one. */
[[nodiscard]] bool wf_codes_read(struct wf_dataset *ds, struct wf_err *err);
/* Scans the masks. */
[[nodiscard]] bool wf_codes_find(struct wf_dataset *ds, struct wf_err *err);
/* Raw values (1 or 3 channels) to labels; `*bad` is the first that is none, or -1. */
void wf_codes_map(const struct wf_dataset *ds, int channels, int64_t count, const int32_t *raw,
                  int32_t *labels, int64_t *bad);
const char *wf_codes_text(struct wf_arena *arena, int channels, const int32_t *raw);

/* Number of channels read of an image (a palette's colours; alpha only if it is kept, or if a
 * network takes that many channels with it). */
int wf_image_channels(const struct wf_raster_info *info, enum wf_data_alpha alpha, int64_t wanted);

/* The nodata value of a file. */
struct wf_nodata wf_nodata_of(const struct wf_raster_info *info);
/* Restores pixels of unsigned samples that have the value in some channels only. */
void wf_nodata_settle(const struct wf_nodata *n, float *pixels, int64_t count, int channels);
/* The first of the numbers that is refused: infinity, and NaN where that does not mean nodata; or
 * -1. */
int64_t wf_nodata_odd(const struct wf_nodata *n, const float *pixels, int64_t count);

/* Windows spread over an image, in reading order: pieces that cover it where `budget` pixels
 * suffice for that, otherwise small ones in the middle of equal parts. None has more than `most`
 * pixels. */
struct wf_spread {
    struct wf_region extent;
    int64_t parts[WF_AXES], size[WF_AXES], count;
    bool covers;
};
struct wf_spread wf_spread(struct wf_region extent, int64_t budget, int64_t most);
struct wf_region wf_spread_at(const struct wf_spread *s, int64_t index);

/* Pixels of a window, ignoring its axes N and C. */
static inline int64_t wf_window_pixels(const struct wf_region *w)
{
    return wf_region_extent(*w, WF_D) * wf_region_extent(*w, WF_H) * wf_region_extent(*w, WF_W);
}
/* The first of the numbers that is NaN or infinite, or -1. */
int64_t wf_find_odd(const float *pixels, int64_t count);
/* Refuses such a number with its position: the i-th of the window. */
bool wf_refuse_odd(const char *path, const struct wf_region *window, int64_t channels,
                   const float *pixels, int64_t i, struct wf_err *err);

/* "640 x 480", "64 x 512 x 512". */
const char *wf_extent_text(struct wf_arena *arena, const int64_t extent[WF_AXES]);

/* Raw mask values of a window: 1 channel, or 3 where `by_color`; heap memory of the reader, valid
 * until its next call. */
const int32_t *wf_reader_mask(struct wf_reader *reader, int64_t sample,
                              const struct wf_region *window, bool by_color, int *channels,
                              struct wf_err *err);
/* The open mask of a sample. */
const struct wf_raster_info *wf_reader_mask_info(struct wf_reader *reader, int64_t sample,
                                                 struct wf_err *err);
