/* For operators that look at all channels of a position: softmax, layer norm, losses. */
#ifndef WF_OPS_ROWS_H
#define WF_OPS_ROWS_H

#include "ops/op.h"

/* The work with one channel, so that a cursor meets each position once. */
static inline struct wf_region wf_rows(struct wf_region work)
{
    if (wf_region_is_empty(work))
        return work;
    work.lo[WF_C] = 0;
    work.hi[WF_C] = 1;
    return work;
}

/* `reads` of such an operator: the work's positions with all their channels; weights whole. */
static inline struct wf_region wf_row_reads(const struct wf_node *node, int input,
                                            struct wf_region work)
{
    const struct wf_value *v = node->in[input];
    if (!v)
        return (struct wf_region){ 0 };
    if (v->replicated)
        return wf_shape_region(v->shape);
    if (wf_region_is_empty(work))
        return work;
    work.lo[WF_C] = 0;
    work.hi[WF_C] = v->shape.at[WF_C];
    return work;
}

/* The positions' extents are the same; channels may differ. */
static inline bool wf_rows_match(struct wf_shape a, struct wf_shape b)
{
    for (int axis = 0; axis < WF_C; axis++)
        if (a.at[axis] != b.at[axis])
            return false;
    return true;
}

/* Element c of the row that the cursor stands on. */
static inline double wf_row_get(const struct wf_view *v, const int64_t at[WF_AXES], int64_t c)
{
    return wf_view_get(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], c);
}
static inline void wf_row_put(const struct wf_view *v, const int64_t at[WF_AXES], int64_t c,
                              double value)
{
    wf_view_put(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], c, value);
}

#endif
