/*
 * For operators on two values that are of one shape, or broadcast: along axes where one of them has extent one it
 * stands for all positions, as in PyTorch. A vector [N,1,1,1,C], a weight [1,1,1,1,C] or a map [N,D,H,W,1]
 * meets an image in this way.
 */
#pragma once

#include "ops/op.h"

extern const struct wf_op wf_op_add, wf_op_multiply, wf_op_expand, wf_op_product_sum, wf_op_row_dot;

/* Shapes must meet; the output is replicated when both inputs are. They have one dtype, or the one that is
 * broadcast is f32, as weights are. */
bool wf_pair_infer(const struct wf_node *node, struct wf_err *err);
/* Element `at` of the result as an input has it. */
static inline double wf_pair_get(const struct wf_view *v, const struct wf_value *in,
                                 const int64_t at[WF_AXES])
{
    int64_t from[WF_AXES];
    for (int a = 0; a < WF_AXES; a++)
        from[a] = in->shape.at[a] == 1 ? 0 : at[a];
    return wf_view_at(v, from);
}
/* The adjoint of broadcasting: dy, times `other` where that is not NULL, summed over the axes along which `like`
 * has extent one, in the dtype of `like`. */
struct wf_value *wf_sum_to(struct wf_graph *g, const char *name, struct wf_value *dy,
                           struct wf_value *other, const struct wf_value *like);
