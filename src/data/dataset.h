/*
 * A dataset: a folder of images with labels, read a window at a time.
 *
 * Opening reads every file's header, pairs images with masks, and determines the meaning of the
 * masks' values; pixels are read later, only for the windows requested. After that a dataset is
 * immutable: ranks and threads share it, each with its own reader.
 *
 *     struct wf_dataset *ds = wf_dataset_open("data/nuclei", &(struct wf_dataset_options){ 0 }, err);
 *     struct wf_reader *reader = wf_reader_new(ds);
 *     bool ok = wf_reader_read(reader, 3, &window, pixels, labels, err);
 *     wf_reader_free(reader);
 *     wf_dataset_free(ds);
 *
 * Dataset layouts, one source file each:
 *   folder   images/NAME.* and masks/NAME.*   (also img/, labels/, gt/, ... and in train/ and val/;
 *                                              without masks: images only)
 *   pairs    NAME.tif and NAME_masks.tif      (also _mask, _label, _labels, _seg)
 *   nnunet   imagesTr/CASE_0000.nii.gz ..., labelsTr/CASE.nii.gz, dataset.json; also without _0000, as
 *            the Medical Segmentation Decathlon has them
 *   cifar10  data_batch_*.bin, test_batch.bin: one label for each image
 *   idx      train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-*: MNIST's files, one label for
 *            each image
 *   classes  CLASS/NAME.*, or train/CLASS/ and test/CLASS/: one label for each image
 *   deepglobe  ID_sat.jpg and ID_mask.png, seven colours
 *   inria    images/CITY1.tif and gt/CITY1.tif, 0 and 255; numbers 1 to 5 are for validation
 *   clouds, cloud_classes, kitti   point clouds, which are read whole (data/clouds.h)
 *
 * The values of a mask are defined by a file classes.txt in the folder (a line for each class:
 * `NAME VALUE`, `NAME FIRST-LAST` or `NAME #rrggbb`). Without it, masks that hold nothing but 0 and
 * 255 become 0 and 1; other grey values, and the indices of a palette that all files share, are the
 * labels; masks in colour, and palettes that differ, get a table of the colours found in them, in
 * the order of 0xrrggbb. Values that are not in the table are refused, with file and position: when
 * the dataset is opened if they are in the scanned windows, otherwise when they are read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "tensor/region.h"
#include "widefield.h"

/* The label of an ignored pixel: nodata, or outside the mask. No file may contain it. */
enum { WF_LABEL_VOID = INT32_MIN };

enum {
    WF_DATA_CHANNELS = 256,
    WF_DATA_CLASSES = 256,  /* of masks */
    WF_DATA_FOLDERS = 4096, /* classes of whole images */
};

enum wf_data_layout {
    WF_LAYOUT_AUTO,
    WF_LAYOUT_FOLDER,
    WF_LAYOUT_PAIRS,
    WF_LAYOUT_NNUNET,
    WF_LAYOUT_CIFAR10,
    WF_LAYOUT_CLASSES,
    WF_LAYOUT_DEEPGLOBE,
    WF_LAYOUT_INRIA,
    WF_LAYOUT_IDX,
    WF_LAYOUT_CLOUDS,
    WF_LAYOUT_CLOUD_CLASSES,
    WF_LAYOUT_KITTI,
    WF_LAYOUTS
};
extern const char
    *const wf_dataset_layout_names[WF_LAYOUTS + 1]; /* "auto", "folder", ...; ends with NULL */

enum wf_labels {
    WF_LABELS_NONE,  /* images only */
    WF_LABELS_PIXEL, /* one label for each pixel */
    WF_LABELS_IMAGE, /* one label for each image */
};

struct wf_data_sample {
    const char *name;        /* within the dataset; unique */
    const char *image;       /* its file, for messages; nnU-Net: the first channel's */
    const char *mask;        /* or NULL */
    int64_t extent[WF_AXES]; /* D, H, W, C of the image; N is 1. Of a cloud: W points, C features */
    bool held_out;           /* in the dataset's own validation part */
    int32_t label;           /* WF_LABELS_IMAGE */
    bool has_nodata;         /* pixels may be NaN: nodata */
    const char *problem;     /* why it cannot be read, or NULL; only with `tolerate` */
};

/* How a mask's values map to labels. */
enum wf_codes {
    WF_CODES_DIRECT, /* the value is the label */
    WF_CODES_BINARY, /* 0 and 255 */
    WF_CODES_VALUES, /* values or ranges of classes.txt */
    WF_CODES_COLORS, /* by colour */
};
struct wf_data_class {
    const char *name;
    int64_t first, last; /* values in the file, both included; of a colour 0xrrggbb */
    int32_t color;       /* to show it: 0xrrggbb, from a palette or the table; -1: none known */
    int64_t found;       /* pixels (or images) seen with it when the dataset was opened */
};

struct wf_dataset_info {
    const char *path;
    enum wf_data_layout layout;
    const char *why; /* the folders that the layout was detected by */
    enum wf_labels labels;
    int64_t samples;
    int dims;     /* 2, or 3 where an image has a depth */
    int channels; /* of every image; 0 where they differ (then each has a problem) */
    enum wf_codes codes;
    int n_classes; /* 0 without labels; ids [0, n_classes) */
    const struct wf_data_class *classes;
    bool has_void;   /* labels may be WF_LABEL_VOID */
    bool has_ignore; /* the layout itself has an ignored class; also if there is void */
    int32_t ignore;
    int64_t other;   /* pixels seen with a label of at least WF_DATA_CLASSES or no class */
    int64_t scanned; /* mask pixels seen; all of them where `scanned_all` */
    bool scanned_all;
    bool is_raw;              /* pixels are taken as they are: no normalisation */
    bool is_cloud;            /* samples are point clouds, and pixels their points */
    unsigned features;        /* of these: set of WF_FEATURE_* */
    const char *const *notes; /* notes for the user ("alpha channel left out"); ends with NULL */
    int64_t problems;         /* samples and files that have one; only with `tolerate` */
    const char *const *problem_texts; /* each once; ends with NULL */
};

/* Treatment of a mask whose georeferencing (a NIfTI affine, GeoTIFF's tags) differs from its
 * image's. If only one of them has any, both are used as they are. */
enum wf_data_align {
    WF_ALIGN_REFUSE,
    WF_ALIGN_RESAMPLE, /* the label nearest to each pixel; WF_LABEL_VOID outside the mask */
    WF_ALIGN_IGNORE,   /* ignore the headers: pixel by pixel, also between files of channels */
};
extern const char *const wf_align_names[]; /* ends with NULL */

/* A last channel that is marked as alpha, which may still be a band such as near infrared. */
enum wf_data_alpha { WF_ALPHA_DROP, WF_ALPHA_KEEP };
extern const char *const wf_alpha_names[]; /* ends with NULL */

struct wf_dataset_options {
    enum wf_data_layout layout;
    enum wf_data_align align;
    enum wf_data_alpha alpha;
    int64_t channels;  /* that a network takes; 0: any. Alpha is kept if the number needs it */
    bool tolerate;     /* open in spite of problems and list them, for `data inspect` */
    int64_t cache;     /* bytes of decoded images kept; 0: none; negative: while memory is free */
    unsigned features; /* of point clouds: set of WF_FEATURE_*; 0: what the files have */
    int64_t points;    /* of meshes: drawn on each; 0: WF_CLOUD_SAMPLED */
};

struct wf_dataset;

/* NULL on failure. Without `tolerate` the first problem (a mask missing, sizes or channels that
 * differ, a file that cannot be read) is the error, with the number of others. */
[[nodiscard]] struct wf_dataset *wf_dataset_open(const char *path,
                                                 const struct wf_dataset_options *options,
                                                 struct wf_err *err);
/* Of arrays in memory, which are borrowed as long as it lives. */
[[nodiscard]] struct wf_dataset *wf_dataset_of_arrays(const struct wf_arrays *arrays,
                                                      struct wf_err *err);
void wf_dataset_free(struct wf_dataset *ds);

const struct wf_dataset_info *wf_dataset_info(const struct wf_dataset *ds);
const struct wf_data_sample *wf_dataset_sample(const struct wf_dataset *ds, int64_t index);
/* The sample's pixels as a region: N and C are [0, 1) and [0, channels). */
struct wf_region wf_dataset_extent(const struct wf_dataset *ds, int64_t index);
/* Whether it matches a network's `channels` and `classes` (0: any); the error names a file and the
 * key to set. */
[[nodiscard]] bool wf_dataset_fits(const struct wf_dataset *ds, int64_t channels, int64_t classes,
                                   struct wf_err *err);

/* --- pixels --- */

/* Keeps the files that it read last open. Belongs to one thread; the dataset must outlive it. */
struct wf_reader;
struct wf_reader *wf_reader_new(const struct wf_dataset *ds);
void wf_reader_free(struct wf_reader *reader);
/* Bytes of files that were read through it. */
uint64_t wf_reader_bytes(const struct wf_reader *reader);
/* The same for all freed readers of the dataset, including those used to open it. */
uint64_t wf_dataset_bytes_read(const struct wf_dataset *ds);

/* Axes D, H and W of `window`, which must be inside the image; N and C are ignored. Raw values of
 * all channels to `image` (dense, channels last), labels to `labels` (dense; a single one where an
 * image has one label); either may be NULL. A channel of a pixel that is nodata is NaN; if all
 * channels are, the label is WF_LABEL_VOID. Refuses other NaN, infinity, and values that are no
 * class. */
[[nodiscard]] bool wf_reader_read(struct wf_reader *reader, int64_t sample,
                                  const struct wf_region *window, float *image, int32_t *labels,
                                  struct wf_err *err);
/* The same with a temporary reader. */
[[nodiscard]] bool wf_dataset_read(const struct wf_dataset *ds, int64_t sample,
                                   const struct wf_region *window, float *image, int32_t *labels,
                                   struct wf_err *err);

/* --- normalisation: mean and deviation of each channel --- */

struct wf_normal {
    int channels;
    double mean[WF_DATA_CHANNELS], std[WF_DATA_CHANNELS]; /* std > 0 */
};

/* From the data itself: mean and deviation over windows of the given samples (the training part),
 * all of small images and a spread of windows of large ones, so that the cost does not grow with
 * the image. A function of dataset, samples and seed only. A constant channel gets std 1. */
[[nodiscard]] bool wf_normal_measure(const struct wf_dataset *ds, const int64_t samples[],
                                     int64_t count, uint64_t seed, struct wf_normal *normal,
                                     struct wf_err *err);
