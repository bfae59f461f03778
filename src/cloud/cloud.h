/*
 * Point clouds in files: positions, named columns and labels.
 *
 *     struct wf_cloud c;
 *     if (!wf_cloud_read("room.ply", &(struct wf_cloud_options){ 0 }, &c, err))
 *         return false;
 *     ... c.n, c.at[3 * i], wf_cloud_column(&c, "red"), c.labels ...
 *     wf_cloud_release(&c);
 *
 * Formats, by the ending of the name: .ply (ascii, binary of both byte orders), .npz and .npy, .las and .laz,
 * .off (a mesh, sampled by area), .bin (KITTI: x y z intensity as f32). Columns have one name in all of them:
 * red green blue, intensity, nx ny nz; others keep theirs. Labels are in the cloud, or in a file beside it
 * (wf_cloud_read_labels).
 *
 * Files are untrusted: counts are compared with the size of the file before anything is allocated, positions
 * are finite, labels are whole numbers.
 */
#pragma once

#include "base/file.h"

enum { WF_CLOUD_COLUMNS = 32, WF_CLOUD_NAME = 32 };

struct wf_cloud_column {
    char name[WF_CLOUD_NAME];
    float *values; /* [n]; NULL: not read */
};

struct wf_cloud {
    int64_t n;
    double *at; /* [n][3]; NULL: not read */
    struct wf_cloud_column columns[WF_CLOUD_COLUMNS];
    int n_columns;
    bool has_labels;
    int32_t *labels; /* [n], or NULL */
};

struct wf_cloud_options {
    bool header_only; /* the number of points, columns and whether there are labels: no numbers */
    int64_t points;   /* sampled on a mesh; 0: WF_CLOUD_SAMPLED */
    uint64_t seed;    /* of that */
};
enum { WF_CLOUD_SAMPLED = 4096 };

/* Refuses a cloud of no points. On failure nothing is left to release. */
[[nodiscard]] bool wf_cloud_read(const char *path, const struct wf_cloud_options *o,
                                 struct wf_cloud *c, struct wf_err *err);
/* A file in memory, which is borrowed; the ending of `name` tells its format. */
[[nodiscard]] bool wf_cloud_parse(const char *name, const void *bytes, size_t size,
                                  const struct wf_cloud_options *o, struct wf_cloud *c,
                                  struct wf_err *err);
void wf_cloud_release(struct wf_cloud *c);

/* The labels of so many points of the cloud `of`: .label (KITTI: the low 16 bits of u32), .npy, .txt (one a
 * line). On the heap; NULL on failure. */
int32_t *wf_cloud_read_labels(const char *path, const char *of, int64_t n, struct wf_err *err);

/* Whether the ending is that of a cloud that can be read here; of a mesh among them; of labels beside one. */
bool wf_cloud_is_name(const char *name);
bool wf_cloud_is_mesh(const char *name);
bool wf_cloud_is_labels(const char *name);
/* NULL: there is no such column, or its values were not read. */
const float *wf_cloud_column(const struct wf_cloud *c, const char *name);
bool wf_cloud_has(const struct wf_cloud *c, const char *name);

/* Binary, little endian: positions, colours [n][3] (or NULL) and labels (or NULL). */
struct wf_cloud_ply {
    int64_t n;
    const double *at;
    const uint8_t *colors;
    const int32_t *labels;
    const float *normals; /* [n][3], or NULL */
};
[[nodiscard]] bool wf_cloud_write_ply(const char *path, const struct wf_cloud_ply *p,
                                      struct wf_err *err);
