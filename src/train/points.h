/*
 * The points of a step: coordinates, features and labels in the order in which they came, and as rows of
 * the ranks of a mesh.
 *
 * Ranks along `data` take whole samples; those along `space` cut these into boxes of the grid (ops/halo.h). Cuts
 * are the same for all samples of a place along data, chosen so that ranks have as many points as each other.
 * Within a rank rows are in Z order (ops/sparse.h). A prediction has the order of rows; struct wf_points_rows leads back to
 * the points.
 */
#pragma once

#include "ops/halo.h"

struct wf_points_of_step {
    int dims;
    int64_t n, channels, samples;
    const int32_t *coords; /* [n][1 + dims], the batch index first */
    const float *features; /* [n][channels] */
};

/* How points are cut. */
struct wf_points_cut {
    int data, space[WF_HALO_AXES];
    int64_t unit[WF_HALO_AXES];  /* cuts lie on multiples of it */
    int64_t width[WF_HALO_AXES]; /* a box between two others has it at least */
};
/* As the graph wants it on the mesh that it was built for. */
struct wf_points_cut wf_points_cut(const struct wf_graph *g, int dims);
/* Whole samples, for so many ranks. */
struct wf_points_cut wf_points_uncut(int data);
static inline int wf_points_parts(const struct wf_points_cut *c)
{
    return c->data * c->space[0] * c->space[1] * c->space[2];
}

/* Who has what. */
struct wf_points_rows {
    int parts;
    int64_t *first; /* [parts + 1]: of the part in `point` */
    int64_t *point; /* [n], part after part in the order of their rows */
    int32_t (*box)
        [WF_HALO_BOXES]; /* of each part: lowest place, the one behind the highest, along D, H, W */
};

/* Lives in the arena. Fails where two points are in one place. */
[[nodiscard]] bool wf_rows_make(struct wf_arena *arena, const struct wf_points_of_step *points,
                                const struct wf_points_cut *cut, struct wf_points_rows *rows,
                                struct wf_err *err);
static inline int64_t wf_rows_count(const struct wf_points_rows *rows, int part)
{
    return rows->first[part + 1] - rows->first[part];
}
/* The part whose rows a view has, of a value of that set; the whole is one part. */
int wf_rows_part(const struct wf_points_rows *rows, const struct wf_value *value,
                 const struct wf_region *box);

/* How many rows each set of the graph has on each part, and slots of boxes: counts[part][set]. */
void wf_rows_sets(const struct wf_graph *g, const struct wf_points_of_step *points,
                  const struct wf_points_cut *cut, const struct wf_points_rows *rows,
                  int64_t (*counts)[WF_SETS + 1]);
/* Of rows of each set of all ranks together: fails where a batch norm in training has a single one. */
[[nodiscard]] bool wf_rows_check(const struct wf_graph *g, const int64_t totals[WF_SETS + 1],
                                 struct wf_err *err);
