/*
 * Building blocks shared by several networks. A network of 1, 2 or 3 dimensions is the same code:
 * its kernels have extent one along the axes that it does not have.
 */
#pragma once

#include "models/model.h"
#include "ops/build.h"

/* `extent` along the last `dims` axes of { d, h, w }, 1 along the others. */
void wf_block_extents(int dims, int64_t extent, int64_t out[3]);

/* The image as a network takes it, in the graph's compute type; NULL with an error when its
 * channels or dimensions do not match the configuration. */
struct wf_value *wf_block_image(struct wf_graph *g, const struct wf_model_config *c,
                                struct wf_value *x);

/* Two times [convolution 3, batch norm, ReLU]: NAME.conv0, NAME.bn0, NAME.conv1, NAME.bn1. */
struct wf_block_double {
    const char *name;
    int dims;
    int64_t out[2];      /* channels */
    bool bias;           /* of the convolutions */
    struct wf_norm norm; /* what its statistics are over; the rest is filled in */
};
struct wf_value *wf_block_double(struct wf_graph *g, struct wf_value *x,
                                 const struct wf_block_double *b);

/* Max pooling by 2. */
struct wf_value *wf_block_pool(struct wf_graph *g, struct wf_value *x, const char *name, int dims);

/* Transposed convolution 2 of stride 2, then [skip, up] side by side; grow leaves the skip out.
 * Where the skip has an odd extent the upsampled map is one short: zeros are added,
 * floor(difference / 2) of them in front, as in the well-known PyTorch U-Net. Where it is longer,
 * its end is cropped. */
struct wf_block_up {
    const char *name;
    int dims;
    int64_t out; /* channels of the upsampled map */
    bool bias;
};
struct wf_value *wf_block_grow(struct wf_graph *g, struct wf_value *x, const struct wf_value *like,
                               const struct wf_block_up *b);
struct wf_value *wf_block_up(struct wf_graph *g, struct wf_value *x, struct wf_value *skip,
                             const struct wf_block_up *b);

/* Convolution of kernel one with bias: the logits. */
struct wf_value *wf_block_logits(struct wf_graph *g, struct wf_value *x, const char *name,
                                 int64_t classes);
