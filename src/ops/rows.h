/* For operators that look at all channels of a position: softmax, layer norm, losses. */
#pragma once

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

/* `reads` of such an operator: the work's positions with all their channels. */
static inline struct wf_region wf_row_reads(const struct wf_node *node, int input,
                                            struct wf_region work)
{
    work.lo[WF_C] = 0;
    work.hi[WF_C] = node->in[input]->shape.at[WF_C];
    return work;
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
