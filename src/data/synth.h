/*
 * Synthetic datasets: images with masks in the layout `folder`, at any size, from a seed; and small
 * labelled pictures in the layouts `cifar10` and `classes`; and point clouds in `clouds` and `cloud_classes`.
 *
 * A kind is one file. It draws windows: a pixel is a function of (seed, image, position) alone, so
 * an image of 20,000 x 20,000 pixels is drawn band by band and never held in memory as a whole, and
 * the result does not depend on the number of threads.
 *
 *     const struct wf_synth_kind *kind = wf_synth_find("nuclei", err);
 *     bool ok = kind && wf_synth_run(kind, &(struct wf_synth_options){ .out = "data/nuclei" }, err);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/region.h"

enum { WF_SYNTH_CLASSES = 3 };

/* One image, as its kind sees it. */
struct wf_synth_image {
    uint64_t key; /* mixes seed and number: two images have nothing in common */
    int64_t extent[WF_AXES];
    int64_t tile; /* side of a subdomain, for kinds that have them */
    int domain;   /* index in the kind's domains */
    void *scene;  /* of begin(), or NULL */
};

/* Where a window is drawn: 8-bit samples, rows `pitch` pixels apart. */
struct wf_synth_window {
    struct wf_region at; /* D, H, W; one plane */
    int64_t pitch;
    uint8_t *image, *mask;
};

struct wf_synth_options;

struct wf_synth_kind {
    const char *name, *what;
    int dims, channels;
    bool clouds;                /* of points: --size is one number */
    int64_t size[3], count;     /* defaults: D, H, W */
    int64_t tile;               /* likewise; 0: it has no subdomains */
    const char *const *domains; /* names, ending with NULL; the first is the default. NULL: none */
    bool has_fonts;             /* draws from fonts */
    int classes;                /* of masks at most WF_SYNTH_CLASSES, with names and colours */
    const char *class_names[WF_SYNTH_CLASSES];
    uint8_t colors[WF_SYNTH_CLASSES][3]; /* of the mask's palette */
    /* Whether it can have this size. NULL: always. */
    bool (*fits)(const struct wf_synth_image *image, struct wf_err *err);
    /* What all windows of an image share, on the heap; freed with free(). Optional. */
    void *(*begin)(const struct wf_synth_image *image);
    /* Writes every pixel of the window. Called by several threads at once. */
    void (*draw)(const struct wf_synth_image *image, const struct wf_synth_window *window);
    /* Instead of draw: makes the folder `out`, and writes the dataset there in its own format. */
    bool (*run)(const struct wf_synth_kind *kind, const struct wf_synth_options *options,
                struct wf_err *err);
};
extern const struct wf_synth_kind *const wf_synth_table[]; /* ends with NULL */
extern const struct wf_synth_kind wf_synth_nuclei, wf_synth_roads, wf_synth_vessels3d,
    wf_synth_discs, wf_synth_shapes, wf_synth_digits, wf_synth_tissue, wf_synth_rooms,
    wf_synth_shapes3d;

const struct wf_synth_kind *wf_synth_find(const char *name, struct wf_err *err);

struct wf_synth_options {
    const char *out;   /* folder to create; must not exist, or be empty */
    int64_t count;     /* 0: the kind's */
    int64_t size[3];   /* D, H, W; 0: the kind's */
    int64_t tile;      /* 0: the kind's */
    int domain;        /* index in the kind's domains */
    const char *fonts; /* folder of fonts; NULL: the system's */
    uint64_t seed;
    void (*progress)(void *user, double part); /* up to 1; or NULL */
    void *user;
};

/* Images and masks are PNG, past 4 megapixels tiled TIFF; volumes are TIFF stacks. Masks have a
 * palette; their indices are the labels. */
[[nodiscard]] bool wf_synth_run(const struct wf_synth_kind *kind,
                                const struct wf_synth_options *options, struct wf_err *err);
/* A folder with those above it. */
[[nodiscard]] bool wf_synth_make_folder(const char *path, struct wf_err *err);
/* Image number `index` of a dataset, with its scene; domains have no image in common. */
void wf_synth_image_init(struct wf_synth_image *image, const struct wf_synth_kind *kind,
                         const struct wf_synth_options *options, int64_t index);
void wf_synth_image_release(struct wf_synth_image *image);

/* --- randomness by position, for kinds ---
 * Philox is for numbers that training depends on; synthetic pictures use a cheaper hash, because every
 * pixel needs several. */
static inline uint64_t wf_synth_hash(uint64_t key, int64_t a, int64_t b, int64_t c)
{
    uint64_t x = key ^ ((uint64_t)a * 0x9e3779b97f4a7c15u) ^ ((uint64_t)b * 0xc2b2ae3d27d4eb4fu) ^
                 ((uint64_t)c * 0x165667b19e3779f9u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/* In [0, 1). */
static inline float wf_synth_unit(uint64_t key, int64_t a, int64_t b, int64_t c)
{
    return (float)(wf_synth_hash(key, a, b, c) >> 40) * 0x1p-24f;
}
/* About normal, deviation 1: four 16-bit numbers of one hash. */
static inline float wf_synth_grain(uint64_t key, int64_t a, int64_t b, int64_t c)
{
    const uint64_t x = wf_synth_hash(key, a, b, c);
    const int32_t sum = (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) +
                        (int32_t)(x >> 32 & 0xffff) + (int32_t)(x >> 48);
    return (float)(sum - 131070) * (1.0f / 37837.0f);
}
/* Smooth numbers in [-1, 1] that change over `scale` pixels. */
float wf_synth_smooth(uint64_t key, float x, float y, float scale);
/* The same for `count` pixels from x on: equal to wf_synth_smooth() bit for bit, at less cost. */
void wf_synth_smooth_row(uint64_t key, int64_t x, int64_t y, float scale, int64_t count,
                         float out[]);

static inline uint8_t wf_synth_byte(float value)
{
    const int nearest = (int)(value * 2 + 1) / 2;
    return (uint8_t)(value <= 0 ? 0 : nearest > 255 ? 255 : nearest);
}
