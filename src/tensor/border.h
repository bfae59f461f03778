/*
 * Conversion between PyTorch's memory order and ours.
 *
 * Inside, a tensor is (N, D, H, W, C), channels last, weights included. Outside, in safetensors and
 * .npy files, it has PyTorch's order: channels second, and only the axes that are used. `dims`
 * selects them: -1: [C]; 0: [N, C]; 1: [N, C, W]; 2: [N, C, H, W]; 3: all of [N, C, D, H, W]. An
 * axis that is not shown has extent one.
 *
 *     int64_t outside[WF_AXES];
 *     int rank = wf_border_shape(WF_SHAPE(64, 1, 3, 3, 32), 2, outside);   // 4: [64, 32, 3, 3]
 *     wf_border_export(shape, ours, theirs);
 *
 * A class map [N, *spatial] has one channel, so its elements have the same order on both sides.
 */
#pragma once

#include "base/err.h"
#include "tensor/region.h"

/* The outside shape; returns its rank. An axis that `dims` does not show must have extent one. */
int wf_border_shape(struct wf_shape shape, int dims, int64_t outside[WF_AXES]);
/* The other way: rank 1 is [C], 2 is [N, C], up to 5; fails for other ranks, extents below one, and
 * more than 2^53 elements. */
[[nodiscard]] bool wf_border_inside(int rank, const int64_t outside[], struct wf_shape *shape,
                                    int *dims, struct wf_err *err);

/* Whole tensors of shape `shape` (as inside), ours -> theirs and back; the two must not overlap. */
void wf_border_export(struct wf_shape shape, const float *ours, float *theirs);
void wf_border_import(struct wf_shape shape, const float *theirs, float *ours);

/* Index of an element in the outside layout [N, C, D, H, W]; axes of extent one do not matter. */
static inline int64_t wf_outside_index(const struct wf_shape *s, const int64_t at[WF_AXES])
{
    int64_t index = at[WF_N] * s->at[WF_C] + at[WF_C];
    for (int a = WF_D; a <= WF_W; a++)
        index = index * s->at[a] + at[a];
    return index;
}
