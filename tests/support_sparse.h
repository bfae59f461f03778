/*
 * Cases of layers on sparse tensors, for tests of gradients, ranks and kernels.
 *
 * A case is a graph on random points of a few samples, one of which has none, with more capacity than rows. Inputs
 * are functions of their row in the whole batch, so that a rank's part of them can be made on its own.
 *
 *     struct support_sparse c = support_sparse_build(i, WF_F32, 1);
 *     struct support_values v = support_values_new(c.g);
 *     support_sparse_fill(&c, &v);
 *     support_run_reference(c.g, &v, true);
 */
#ifndef WF_TESTS_SUPPORT_SPARSE_H
#define WF_TESTS_SUPPORT_SPARSE_H

#include "exec/run.h"
#include "ops/halo.h"
#include "ops/sparse_ops.h"
#include "plan/mesh.h"
#include "support.h"

enum { SUPPORT_SPARSE_SAMPLES = 4, SUPPORT_SPARSE_CLOUDS = 3, SUPPORT_SPARSE_MOST = 16 };

/* Places of one input set. */
struct support_cloud {
    int set, dims;
    int64_t n;
    int32_t *coords; /* [n][1 + dims], in the order of rows */
    int64_t first[SUPPORT_SPARSE_SAMPLES + 1];
};

struct support_sparse {
    const char *name;
    struct wf_graph *g;
    struct support_cloud clouds[SUPPORT_SPARSE_CLOUDS];
    int n_clouds, dims;
    enum wf_dtype dtype;
    int times;
    int64_t rows; /* capacity of input sets */
    struct wf_sparse x;
    struct wf_value *y, *dy;
    struct wf_value *wrt[SUPPORT_SPARSE_MOST], *dwrt[SUPPORT_SPARSE_MOST];
    int n_wrt;
    /* y, its coordinates, gradients of inputs and weights. */
    struct wf_value *outputs[SUPPORT_SPARSE_MOST];
    int n_outputs;
};

extern const int support_sparse_count;
/* With features in that type, and `times` as many points. */
struct support_sparse support_sparse_build(int index, enum wf_dtype dtype, int times);
/* For a mesh that cuts space, with room for all points on each rank; g is NULL where that is refused. */
struct support_sparse support_sparse_build_on(int index, const struct wf_mesh *mesh,
                                              struct wf_err *err);
void support_sparse_free(struct support_sparse *c);

/* The whole batch. */
void support_sparse_fill(const struct support_sparse *c, const struct support_values *v);
/* What a rank has: samples, and of these the points in a box. */
struct support_share {
    int part, parts;            /* of the samples */
    int32_t box[WF_HALO_BOXES]; /* lowest place, and behind the highest, along D, H, W */
};
/* Of a rank on a mesh, with cuts at 0 and further ones of the least width. */
struct support_share support_share(const struct support_sparse *c, const struct wf_mesh *mesh,
                                   int rank);
/* Its i-th row of an input set, in the whole batch; -1: it has no more. */
int64_t support_share_row(const struct support_cloud *p, const struct support_share *share,
                          int64_t i);
/* NULL: no input set. */
const struct support_cloud *support_sparse_cloud(const struct support_sparse *c, int set);
void support_sparse_fill_share(const struct support_sparse *c, struct wf_run *run,
                               const struct support_share *share);
/* A rank's part of it, of whole samples. */
void support_sparse_fill_run(const struct support_sparse *c, struct wf_run *run, int rank,
                             int ranks);
/* The part of a value that is there: rows up to its count. */
struct wf_region support_sparse_there(const struct support_sparse *c,
                                      const struct support_values *v, const struct wf_value *value);

#endif
