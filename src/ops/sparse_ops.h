/*
 * Operators on sparse tensors beside convolution (ops/sparse.h): pooling, whole samples, sets made of sets,
 * and the way between points and grids.
 *
 *   sparse_pool      x, map                 y, index  over the rows that the map has: sum, average, maximum
 *   sparse_pool_grad dy, map back, [index]  dx
 *   sample_sums      x, coords              t         f64 [samples,1,1,1,C + 1], replicated: C sums over the
 *                                                     points of each sample, and how many there are
 *   sample_max       x, coords              t         f64 [samples,1,1,1,2C], replicated: C maxima, C rows that
 *                                                     have them; of a sample without points 0 and -1
 *   sample_max_grad  dt, t, coords          dx
 *   sample_take      t                      y         [samples,1,1,1,C]: sums or means, one row a sample
 *   sample_take_grad dy, t                  dt
 *   sample_rows      t, coords              y         the row of a table that belongs to each point's sample
 *   sparse_dropout   x, coords              y         also its own gradient
 *   coords_union     a, b                   c         coordinates that either has
 *   coords_prune     coords, mask           c         coordinates of rows whose mask is above 0
 *   coords_expand    coords                 c         all that a transposed convolution reaches
 *   corner_map       coords, points         map, w    the 2^D places around a point, and their weights
 *   sparse_mix       x, map, w              y         y[u] = sum over k of w[u, k] x[map[u, k]]
 *   sparse_mix_grad  dy, map, w             dx
 *   rows_to_grid     x, coords              y         an image, replicated; 0 where there is no point
 *   grid_to_rows     image, coords          y         what the image has at each point
 *   grid_coords      image                  c         places where an image is not 0
 *   distribute       x                      y         what was whole on every rank, cut as images are
 */
#pragma once

#include "ops/sparse.h"

/* index: of a maximum the row of x that has it, of other modes the number of rows: [rows, 1]. */
struct wf_sparse_pool_attrs {
    int64_t mode; /* enum wf_sparse_pool_mode */
};

struct wf_samples_attrs {
    int64_t samples, channels, mean;
};

struct wf_coords_set_attrs { /* coords_union, coords_prune, coords_expand */
    int64_t dims;
    int64_t stride[WF_SPARSE_AXES];                       /* of the output's tensor */
    int64_t from[WF_SPARSE_AXES];                         /* coords_expand: of the input's */
    int64_t kernel[WF_SPARSE_AXES], step[WF_SPARSE_AXES]; /* coords_expand: as of a kernel map */
    int64_t cross;
    int64_t rows, set; /* of the output: capacity, and its set */
};

struct wf_corner_attrs {
    int64_t dims;
    int64_t stride[WF_SPARSE_AXES]; /* of the coordinates' tensor */
};

struct wf_mix_attrs { /* sparse_mix, sparse_mix_grad: capacity and set of x */
    int64_t rows, set;
};

struct wf_grid_attrs { /* rows_to_grid, grid_to_rows, grid_coords */
    int64_t dims, samples;
    int64_t lo[3], extent[3], stride[3]; /* along the axes of the coordinates */
    int64_t rows, set;                   /* grid_coords: capacity, and its set */
};

extern const struct wf_op wf_op_rsqrt, wf_op_rsqrt_grad;
extern const struct wf_op wf_op_sparse_pool, wf_op_sparse_pool_grad, wf_op_sample_sums,
    wf_op_sample_max, wf_op_sample_max_grad, wf_op_sample_take, wf_op_sample_take_grad,
    wf_op_sample_rows;
extern const struct wf_op wf_op_sparse_dropout, wf_op_coords_union, wf_op_coords_prune,
    wf_op_coords_expand, wf_op_corner_map, wf_op_sparse_mix, wf_op_sparse_mix_grad,
    wf_op_rows_to_grid, wf_op_grid_to_rows, wf_op_grid_coords, wf_op_distribute;

/* --- sets on the host, without features --- */

/* Whether the node makes a set of coordinates. */
bool wf_coords_is_made(const struct wf_node *node);
/* Of inputs with so many rows: most rows that it makes. */
int64_t wf_coords_room(const struct wf_node *node, const int64_t n[]);
/* Makes them, in order; returns how many. What depends on features keeps all. */
int64_t wf_coords_make(const struct wf_node *node, const int32_t *const from[], const int64_t n[],
                       int32_t *to);
/* Places of these samples where the image is not 0 (NULL: all), in order; returns how many. */
int64_t wf_grid_rows(const struct wf_grid_attrs *a, const struct wf_view *image, int64_t first,
                     int64_t end, int32_t *to);

/* --- the builder, beside what is public (widefield_graph.h) --- */

/* A row per sample, at every point. */
struct wf_value *wf_sparse_spread(struct wf_graph *g, struct wf_value *rows, struct wf_sparse x,
                                  const char *name);
