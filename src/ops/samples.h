/* What operators on points and their samples share. */
#pragma once

#include "ops/sparse_ops.h"

extern const struct wf_field wf_samples_fields[];
/* Of a node with such attributes: rows (or NULL) and their coordinates fit. */
bool wf_samples_check(const struct wf_node *node, const struct wf_value *rows,
                      const struct wf_value *coords, struct wf_err *err);
/* The sample that a row belongs to; in[coords] has the coordinates. */
int64_t wf_sample_of(const struct wf_call *call, int coords, int64_t row);
/* `reads`: the same rows of rows, and all of a table. */
struct wf_region wf_samples_reads(const struct wf_node *node, int input, struct wf_region work);
