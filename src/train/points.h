/*
 * The points of a step: coordinates, features and labels in the order in which they came, and as rows of
 * the ranks of a mesh.
 *
 * Ranks along `data` take whole samples. Within a rank rows are in Z order (ops/sparse.h). A prediction has
 * the order of rows; wf_points_row() leads back to the points.
 */
#pragma once

#include "ops/sparse.h"
#include "plan/mesh.h"

struct wf_points_of_step {
    int dims;
    int64_t n, channels, samples;
    const int32_t *coords; /* [n][1 + dims], the batch index first */
    const float *features; /* [n][channels] */
};

/* Who has what. */
struct wf_rows {
    int parts;
    int64_t *first; /* [parts + 1]: of the part in `point` */
    int64_t *point; /* [n], part after part in the order of their rows */
};

/* Lives in the arena. Fails where two points are in one place. */
[[nodiscard]] bool wf_rows_make(struct wf_arena *arena, const struct wf_points_of_step *points,
                                int parts, struct wf_rows *rows, struct wf_err *err);
static inline int64_t wf_rows_count(const struct wf_rows *rows, int part)
{
    return rows->first[part + 1] - rows->first[part];
}
/* The part whose rows a view has, of a value of that set; the whole is one part. */
int wf_rows_part(const struct wf_rows *rows, const struct wf_value *value,
                 const struct wf_region *box);

/* How many rows each set of the graph has on a part: counts[set]. */
void wf_rows_sets(const struct wf_graph *g, const struct wf_points_of_step *points,
                  const struct wf_rows *rows, int part, int64_t counts[WF_SETS + 1]);
/* Of rows of each set of all ranks together: fails where a batch norm in training has a single one. */
[[nodiscard]] bool wf_rows_check(const struct wf_graph *g, const int64_t totals[WF_SETS + 1],
                                 struct wf_err *err);
