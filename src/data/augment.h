/*
 * Random augmentation of a crop, exact on windows: a rank that computes a part of the augmented
 * crop gets the same numbers as one that computes all of it.
 *
 * The changed crop is a function on its own coordinates p. Rotations by quarter turns and flips map
 * p to a position in the unturned crop; there an elastic displacement u, a smooth field of bounded
 * size evaluated at that position, is added; the origin maps it into the image, where values are
 * interpolated (labels: the nearest). So a window needs one window of the image, by
 * wf_change_reads(). Brightness and contrast follow normalisation: v * gain + shift.
 *
 *     struct wf_region source = wf_change_reads(&change, crop, image, window);
 *     ... read `source` ...
 *     wf_change_apply(&change, crop, image, &window, &source, pixels, labels, channels, out, out_labels);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tensor/region.h"

enum {
    WF_AUGMENT_FLIP = 1 << 0,       /* each axis, with probability 1/2 */
    WF_AUGMENT_ROT90 = 1 << 1,      /* quarter turns in the H, W plane */
    WF_AUGMENT_ELASTIC = 1 << 2,    /* smooth displacement */
    WF_AUGMENT_BRIGHTNESS = 1 << 3, /* shift by up to 0.25 deviations */
    WF_AUGMENT_CONTRAST = 1 << 4,   /* gain from 0.75 to 1.25 */
    WF_AUGMENT_MIRROR = 1 << 5,     /* along W only, for pictures that have an up and a down */
    /* Of point clouds (clouds_augment.c), with flip (x and y), elastic, brightness and contrast: */
    WF_AUGMENT_ROTATE = 1 << 6, /* about the vertical axis */
    WF_AUGMENT_SCALE = 1 << 7,  /* by up to a tenth */
    WF_AUGMENT_JITTER = 1 << 8, /* each point by a quarter of a voxel */
    WF_AUGMENT_DROP = 1 << 9,   /* up to a fifth of the points */
};
extern const char *const wf_augment_names[]; /* in the order of the bits; ends with NULL */

struct wf_change {
    int64_t origin[WF_AXES]; /* of the unturned crop in the image: D, H, W */
    bool flip[WF_AXES];      /* D, H, W; after turning */
    int turns;               /* quarter turns, 0 to 3 */
    bool elastic;
    uint64_t field; /* the elastic field's stream of random numbers */
    uint64_t seed;
    float gain, shift; /* 1 and 0: none */
};

/* Extents of the unturned crop: H and W change places at an odd number of turns. */
void wf_change_source_extent(const struct wf_change *c, const int64_t crop[WF_AXES],
                             int64_t extent[WF_AXES]);
/* The window of the image (whose pixels are `image`, including the padding where crops may extend
 * beyond its edge) that a window of the crop is computed from. */
struct wf_region wf_change_reads(const struct wf_change *c, const int64_t crop[WF_AXES],
                                 struct wf_region image, struct wf_region window);

/* One call: `source` (dense pixels, channels last, and labels, over wf_change_reads()) to `window`
 * of the crop. Pixels are (v * scale[c] + offset[c]), then gain and shift. Labels may be NULL. */
struct wf_change_job {
    const struct wf_change *change;
    const int64_t *crop; /* WF_AXES extents */
    struct wf_region image, window, source;
    int channels;
    const float *pixels, *scale, *offset;
    const int32_t *labels;
    float *out;
    int32_t *out_labels;
};
void wf_change_apply(const struct wf_change_job *job);
