/* Building blocks of networks of points (ops/sparse.h). Kernels and strides are equal along all axes. */
#pragma once

#include "models/model.h"
#include "ops/build.h"
#include "ops/sparse_ops.h"

struct wf_sparse_layer {
    const char *name;
    int64_t out, kernel, stride; /* 0: 1 */
};

/* The convolution of that name, without bias. */
struct wf_sparse_conv wf_sparse_layer_conv(const struct wf_sparse *x,
                                           const struct wf_sparse_layer *l);
/* Convolution, batch norm, ReLU: NAME.conv and NAME.norm; with `like` transposed onto its coordinates. */
struct wf_sparse wf_sparse_layer(struct wf_graph *g, struct wf_sparse x,
                                 const struct wf_sparse *like, const struct wf_sparse_layer *l);
/* Two convolutions of 3, the first with the stride, and x beside them: NAME.conv1, NAME.norm1, NAME.conv2,
 * NAME.norm2, and NAME.skip.conv and NAME.skip.norm where channels or coordinates change. */
struct wf_sparse wf_sparse_residual(struct wf_graph *g, struct wf_sparse x,
                                    const struct wf_sparse_layer *l);
