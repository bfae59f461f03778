/*
 * Datasets of point clouds: what a sample becomes on its way to a network.
 *
 * A cloud is read whole, its labels become classes as those of masks do (classes.txt); it is augmented,
 * features are computed, and points become voxels (data/quantise.h). All of it is a function of (file, rule,
 * epoch, item): the same on any mesh, any thread, and in a resumed run.
 *
 *     struct wf_cloud_sample s;
 *     if (!wf_cloud_sample_read(ds, index, &rule, &s, err)) ...
 *     ... s.voxels.coords [n][3], s.voxels.features [n][channels]; s.voxels.voxel[i] is that of point i ...
 *     wf_cloud_sample_release(&s);
 */
#pragma once

#include "cloud/cloud.h"
#include "data/dataset.h"
#include "data/quantise.h"

/* Features of a point; a set of these, in this order. */
enum {
    WF_FEATURE_COLOR = 1 << 0,     /* red, green, blue; normalised */
    WF_FEATURE_INTENSITY = 1 << 1, /* normalised */
    WF_FEATURE_NORMAL = 1 << 2,    /* nx, ny, nz as they are; they turn with the cloud */
    WF_FEATURE_HEIGHT = 1 << 3,    /* above the lowest point; normalised */
    WF_FEATURE_ONES = 1 << 4,      /* 1: that there is something */
};
extern const char *const wf_feature_names[]; /* in the order of the bits; ends with NULL */
/* Numbers of all of them. */
int wf_features_count(unsigned features);
/* Whether channel c of these is normalised. */
bool wf_features_normal(unsigned features, int c);

struct wf_cloud_rule {
    double voxel;
    unsigned augment; /* set of WF_AUGMENT_*; 0: as it is */
    uint64_t seed;
    int64_t epoch, item;
    const float *scale, *offset; /* of each channel: v * scale + offset; NULL: as they are */
    int32_t ignore;              /* the label of a voxel whose points disagree */
};

struct wf_cloud_sample {
    int64_t n;       /* points that voxels were made of */
    double *at;      /* [n][3]: as in the file, where nothing was augmented */
    int32_t *labels; /* [n], or NULL */
    struct wf_voxels voxels;
};

[[nodiscard]] bool wf_cloud_sample_read(const struct wf_dataset *ds, int64_t index,
                                        const struct wf_cloud_rule *rule, struct wf_cloud_sample *s,
                                        struct wf_err *err);
void wf_cloud_sample_release(struct wf_cloud_sample *s);

/* The same of a cloud that was read from `path`; labels are as they are there. It is used up. */
[[nodiscard]] bool wf_cloud_sample_make(struct wf_cloud *c, const char *path, unsigned features,
                                        const struct wf_cloud_rule *rule, struct wf_cloud_sample *s,
                                        struct wf_err *err);
/* What is taken of a cloud where nothing is asked for. */
unsigned wf_cloud_features(const struct wf_cloud *c);
/* The cloud of a sample, with labels that are classes. */
[[nodiscard]] bool wf_cloud_load(const struct wf_dataset *ds, int64_t index, struct wf_cloud *c,
                                 struct wf_err *err);

/* The clouds of a folder, or the file itself; paths in the arena. */
[[nodiscard]] bool wf_clouds_find(struct wf_arena *arena, const char *path,
                                  const char *const **paths, size_t *count, struct wf_err *err);

/* Turns, flips, scales, moves and drops points; normals (columns nx ny nz) follow. */
void wf_cloud_augment(struct wf_cloud *c, const struct wf_cloud_rule *rule);
/* The augmentations that are for clouds; others are for images. */
unsigned wf_cloud_augments(void);
