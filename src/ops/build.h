/*
 * The builder: layers and operators as functions on a graph.
 *
 * Each returns the new value, or NULL after a failure, and passes NULL on; see graph/graph.h. A
 * layer's `name` is the dotted path of its parameters ("enc0.conv0" owns "enc0.conv0.weight").
 * Kernel, stride, padding come as { d, h, w }; a zero stride or dilation means one, so that a 2D
 * layer is written { 1, 3, 3 }. A kernel extent of zero means one. Attribute structures may be
 * temporary.
 */
#pragma once

#include "graph/graph.h"

/* --- convolution --- */
enum wf_pad_mode { WF_PAD_ZERO, WF_PAD_REFLECT, WF_PAD_CIRCULAR, WF_PAD_EDGE };

struct wf_conv {
    const char *name;
    int64_t out; /* channels */
    int64_t kernel[3], stride[3], dilation[3];
    int64_t pad_lo[3], pad_hi[3];
    bool same; /* padding that keeps the extent at stride one; pad_lo and pad_hi are not read */
    enum wf_pad_mode pad_mode; /* others than zero become a pad node before the convolution */
    int64_t groups;            /* 0 means 1 */
    bool bias;
    int64_t output_pad[3]; /* transposed only: rows added at the end */
    int dims; /* of the weight seen from outside; 0: 3 if the image or kernel has depth, else 2 if
               * height, else 1, which takes a 2D image of one row for a signal: set it there */
};
struct wf_value *wf_conv(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c);
/* pad_lo/pad_hi crop the full result, as in PyTorch: (in-1)*stride - lo - hi + dilation*(kernel-1) +
 * output_pad + 1. Weight in PyTorch's [in, out/groups, *kernel]. */
struct wf_value *wf_conv_transpose(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c);
/* A convolution of kernel one on a vector [N, 1, 1, 1, C]; weight border layout [out, in]. */
struct wf_value *wf_linear(struct wf_graph *g, struct wf_value *x, const char *name, int64_t out,
                           bool bias);

/* --- pooling and resampling --- */
struct wf_pool {
    const char *name;
    int64_t kernel[3], stride[3]; /* a zero stride means the kernel */
    int64_t pad_lo[3], pad_hi[3];
    bool exclude_pad; /* average: divide by the elements inside the image only */
};
struct wf_value *wf_max_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
struct wf_value *wf_avg_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
struct wf_value *wf_global_pool(struct wf_graph *g, struct wf_value *x,
                                const char *name); /* mean */
enum wf_upsample_mode { WF_NEAREST, WF_LINEAR /* half-pixel centres */, WF_LINEAR_CORNERS };
struct wf_value *wf_upsample(struct wf_graph *g, struct wf_value *x, const char *name,
                             const int64_t out[3], enum wf_upsample_mode mode);

/* --- normalisation; act is applied behind the affine part --- */
enum wf_act { WF_ACT_NONE, WF_RELU, WF_LEAKY_RELU, WF_SIGMOID, WF_TANH, WF_GELU, WF_SILU };
struct wf_norm {
    const char *name;
    int64_t groups;  /* group norm only */
    double eps;      /* 0 means 1e-5 */
    double momentum; /* batch norm's running statistics; 0 means 0.1 */
    enum wf_act act; /* none, ReLU or leaky ReLU may be fused; others become a node */
    double slope;    /* of leaky ReLU */
    bool plain;      /* no weight and bias */
    bool frozen;     /* batch norm: running statistics in training too, and they stay */
    /* Batch norm in training: what the statistics are over. Running ones are over everything. */
    int64_t
        tiles; /* > 0: samples are the subdomains of images, and each has statistics of its own */
    bool per_rank; /* each rank's own part: the numbers depend on the mesh */
    int domain; /* > 0: running statistics of its own for this domain, NAME.domain<N>.running_mean */
};
struct wf_value *wf_batch_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
struct wf_value *wf_instance_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
struct wf_value *wf_group_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
/* Over the channels of each position. */
struct wf_value *wf_layer_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);

/* --- pointwise --- */
struct wf_value *wf_activation(struct wf_graph *g, struct wf_value *x, const char *name,
                               enum wf_act act, double slope);
struct wf_value *wf_softmax(struct wf_graph *g, struct wf_value *x, const char *name); /* over C */
struct wf_value *wf_dropout(struct wf_graph *g, struct wf_value *x, const char *name, double p);
struct wf_value *wf_add(struct wf_graph *g, struct wf_value *a, struct wf_value *b);
struct wf_value *wf_multiply(struct wf_graph *g, struct wf_value *a, struct wf_value *b);
struct wf_value *wf_scale(struct wf_graph *g, struct wf_value *x, double factor);
/* Forward the identity, backward times -factor. */
struct wf_value *wf_reverse_gradient(struct wf_graph *g, struct wf_value *x, double factor);
struct wf_value *wf_cast(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype);
struct wf_value *wf_fill(struct wf_graph *g, struct wf_shape shape, enum wf_dtype dtype,
                         double value); /* replicated */

/* --- moving --- */
struct wf_value *wf_concat(struct wf_graph *g, const char *name, int n,
                           struct wf_value *const in[]);
struct wf_value *wf_slice(struct wf_graph *g, struct wf_value *x, struct wf_region part);
/* Negative amounts crop. */
struct wf_value *wf_pad(struct wf_graph *g, struct wf_value *x, const char *name,
                        const int64_t lo[3], const int64_t hi[3], enum wf_pad_mode mode);
/* To another [C, D, H, W] per sample, in PyTorch's element order (C outermost, W innermost). */
struct wf_value *wf_reshape(struct wf_graph *g, struct wf_value *x, const char *name,
                            struct wf_shape shape);
struct wf_value *wf_flatten(struct wf_graph *g, struct wf_value *x, const char *name);

/* The image as a batch of subdomains, `tiles` along each axis, of equal extents (ops/tile.c says what
 * becomes of a remainder); and back, to an image of `whole` (NULL: all of the subdomains). */
struct wf_value *wf_tile(struct wf_graph *g, struct wf_value *x, const char *name,
                         const int64_t tiles[3]);
struct wf_value *wf_untile(struct wf_graph *g, struct wf_value *x, const char *name,
                           const int64_t tiles[3], const int64_t whole[3]);

/* An image as a weight: whole on every rank. */
struct wf_value *wf_replicate(struct wf_graph *g, struct wf_value *x);
/* The sum of contributions to one weight's gradient. */
struct wf_value *wf_accumulate(struct wf_graph *g, const char *name, int n,
                               struct wf_value *const in[]);

/* --- losses: a scalar [1, 1, 1, 1, 1], the mean over the whole batch and image --- */
struct wf_loss {
    const char *name;
    int64_t ignore; /* label that does not count, where has_ignore */
    bool has_ignore;
    struct wf_value *weights; /* per class, [1, 1, 1, 1, C], or NULL */
    double smooth;            /* Dice; 0 means 1 */
    /* Where the sums are put that the loss is the quotient of, or NULL; Dice has none. */
    struct wf_value **sums;
};
/* target: class map i32 [N, D, H, W, 1] */
struct wf_value *wf_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                  struct wf_value *target, const struct wf_loss *l);
/* Binary, with logits; target of the logits' shape, any dtype. */
struct wf_value *wf_binary_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                         struct wf_value *target, const struct wf_loss *l);
/* 1 - mean over classes of (2 I + s) / (P + T + s) on softmax (one class: sigmoid) of the logits. */
struct wf_value *wf_dice(struct wf_graph *g, struct wf_value *logits, struct wf_value *target,
                         const struct wf_loss *l);
struct wf_value *wf_mse(struct wf_graph *g, struct wf_value *x, struct wf_value *target,
                        const struct wf_loss *l);
