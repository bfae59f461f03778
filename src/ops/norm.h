/*
 * What the files of the normalisation family share.
 *
 * A normalisation is three nodes: `moments` sums over the image (a partial sum on every rank),
 * `stats` makes means and 1/sqrt(var + eps) of the sums, `norm` applies them position by position.
 * The gradient through the statistics is part of `norm_grad`, which reads the sums that
 * `norm_grad_sums` made; `moments` and `stats` have no gradient of their own.
 *
 * Tables are [N,1,1,1,k] where each sample has statistics of its own (instance and group norm) and
 * [1,1,1,1,k] otherwise. wf_norm_row() is the row of a sample.
 */
#pragma once

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

extern const struct wf_field wf_norm_fields[];
extern const struct wf_op wf_op_moments, wf_op_stats, wf_op_running_stats, wf_op_running_update;
extern const struct wf_op wf_op_sum_rows, wf_op_local_sums;
extern const struct wf_op wf_op_norm, wf_op_norm_grad_sums, wf_op_norm_grad, wf_op_norm_wgrad;

/* Rows of a sparse tensor are counted when the step runs: tables of sums have the count as a last column. */
static inline bool wf_norm_counts(const struct wf_norm_attrs *a)
{
    return a->counted && !a->fixed;
}
/* What the sums in a row of a table of so many sums are over. */
static inline double wf_norm_total(const struct wf_norm_attrs *a, const struct wf_view *table,
                                   int64_t row, int64_t sums)
{
    return wf_norm_counts(a) ? wf_view_get(table, row, 0, 0, 0, sums) : (double)a->count;
}

static inline int64_t wf_norm_row(const struct wf_norm_attrs *a, int64_t n)
{
    return a->per_sample ? n : 0;
}

static inline int64_t wf_norm_group(const struct wf_norm_attrs *a, int64_t channels, int64_t c)
{
    return c / (channels / a->groups);
}

/* Fails unless the channels fall into groups of equal size. */
bool wf_norm_check_groups(const struct wf_norm_attrs *a, int64_t channels, struct wf_err *err);
/* Fails unless v is absent or a parameter [1,1,1,1,channels]. */
bool wf_norm_check_affine(const struct wf_value *v, const char *what, int64_t channels,
                          struct wf_err *err);
/* out += value at (row, k); the table is f64, so nothing is lost on the way. */
void wf_norm_count(const struct wf_view *out, int64_t row, int64_t k, double value);
/* Zeros what the work adds to: its samples' rows, or all of the view when the work is empty. */
void wf_norm_clear(const struct wf_call *call);

/* wf_op.is_local of sums that statistics are made of. */
bool wf_norm_is_local(const struct wf_node *node);
/* Sums of the layer (moments, or those of the gradient) as its statistics want them: of each rank's
 * own part, or of samples that are a period apart. Themselves for most layers. */
struct wf_value *wf_norm_gather(struct wf_graph *g, const struct wf_norm_attrs *a, const char *name,
                                struct wf_value *x, struct wf_value *sums);

/* A layer that normalises x by its own statistics. */
struct wf_norm_layer {
    const char *name;
    struct wf_norm_attrs attrs; /* count and wide are filled in */
    struct wf_value *x, *w, *b;
    struct wf_value *m; /* filled in: the sums over x, for running statistics */
};
/* With its weight and bias; one group per channel, and the activation where norm can have it. */
struct wf_norm_layer wf_norm_layer(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
struct wf_value *wf_norm_add(struct wf_graph *g, struct wf_norm_layer *l);
