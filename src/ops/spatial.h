/*
 * What the operators of the spatial family share: the sliding window along one axis, read in both
 * directions, and the names of the operators that are each other's gradients.
 *
 * A window at output position o covers input positions o * stride + k * dilation - pad_lo for
 * k = 0 .. kernel - 1. Positions outside [0, extent) are padding.
 */
#pragma once

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

/* Spatial triples { d, h, w } belong to the axes WF_D + 0, 1, 2. */
enum { WF_SPACE = 3 };

extern const struct wf_op wf_op_conv, wf_op_convt, wf_op_conv_wgrad, wf_op_channel_sum;
extern const struct wf_op wf_op_maxpool, wf_op_maxpool_grad, wf_op_avgpool, wf_op_avgpool_grad;
extern const struct wf_op wf_op_global_pool, wf_op_broadcast, wf_op_upsample, wf_op_upsample_grad;
extern const struct wf_op wf_op_slice, wf_op_pad, wf_op_pad_grad, wf_op_reshape, wf_op_concat;

struct wf_range {
    int64_t lo, hi; /* half open */
};

struct wf_window {
    int64_t kernel, stride, dilation, pad_lo, pad_hi;
};

struct wf_windows {
    struct wf_window along[WF_SPACE];
};

/* How many positions the window takes over `extent`; below one when it does not fit. */
int64_t wf_window_count(const struct wf_window *w, int64_t extent);
/* Input positions under output positions [lo, hi), lo < hi. */
struct wf_range wf_window_reads(const struct wf_window *w, int64_t lo, int64_t hi);
/* Output positions whose windows touch one of the input positions [lo, hi); empty when none does. */
struct wf_range wf_window_touches(const struct wf_window *w, int64_t lo, int64_t hi);
/* The work with what the windows read along D, H, W, or which of them touch it; `along` is one of the
 * two above. */
struct wf_region wf_windows_over(struct wf_windows w, struct wf_region work,
                                 struct wf_range (*along)(const struct wf_window *w, int64_t lo,
                                                          int64_t hi));
/* Refuses a window that makes no sense or does not fit; `axis` is 0, 1, 2 for D, H, W. */
bool wf_window_check(const struct wf_window *w, int64_t extent, int axis, struct wf_err *err);

/* The convolution with these attributes and kernel extents (of the weight, or a triple). */
struct wf_windows wf_conv_windows(const struct wf_conv_attrs *a, const int64_t kernel[3]);
extern const struct wf_field wf_conv_fields[], wf_pool_fields[];
/* Weight (out, kd, kh, kw, in / groups) and bias against the channels; `out` is the extent of the
 * bias. */
bool wf_conv_check(const struct wf_conv_attrs *a, const struct wf_value *x,
                   const struct wf_value *w, const struct wf_value *b, int64_t out,
                   struct wf_err *err);
/* Of conv and convt, which is the same backwards. */
void wf_conv_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                  const bool wanted[], struct wf_value *dx[]);
struct wf_region wf_conv_reads(const struct wf_node *node, int input, struct wf_region work);

/* Along one axis of an image of that extent: the positions under the result's window `at`, padding included; and the
 * windows that touch positions [lo, hi). */
struct wf_range wf_pool_window(const struct wf_pool_attrs *a, int axis, int64_t image, int64_t at);
struct wf_range wf_pool_touched(const struct wf_pool_attrs *a, int axis, int64_t image, int64_t lo,
                                int64_t hi);
/* Fills the shape of a pooling's result. */
bool wf_pool_infer(const struct wf_node *node, struct wf_err *err);
/* The gradients: the shape of dx from attrs, checked against dy. */
bool wf_pool_grad_infer(const struct wf_node *node, struct wf_err *err);
struct wf_region wf_pool_reads(const struct wf_node *node, int input, struct wf_region work);
struct wf_region wf_pool_grad_reads(const struct wf_node *node, int input, struct wf_region work);
/* The part of the image under the window of the result's element `at`. */
struct wf_region wf_pool_inside(const struct wf_pool_attrs *a, const struct wf_shape *image,
                                const int64_t at[WF_AXES]);
/* What the mean of the window at `at` { d, h, w } divides by. */
int64_t wf_pool_count(const struct wf_pool_attrs *a, const struct wf_shape *image,
                      const int64_t at[3]);
/* The elements of dy whose windows touch the image's element `at`, of a gradient node. */
struct wf_region wf_pool_touching(const struct wf_node *node, const int64_t at[WF_AXES]);
/* The extents of an image, for gradients that must know them. */
static inline void wf_set_extent(int64_t extent[WF_SPACE], const struct wf_value *image)
{
    for (int i = 0; i < WF_SPACE; i++)
        extent[i] = image->shape.at[WF_D + i];
}
/* Attributes of a layer, zeros filled in. */
struct wf_pool_attrs wf_pool_resolve(const struct wf_pool *p);
/* Windows of an adaptive pooling go by the extents. */
bool wf_pool_is_fixed(const struct wf_node *node);
/* Of an adaptive pooling of x to these extents. */
struct wf_pool_attrs wf_pool_adaptive(const struct wf_value *x, const int64_t out[3]);

/* The dtype of a sum over many elements: 16 bit types sum into f32. */
enum wf_dtype wf_sum_dtype(enum wf_dtype dtype);

/* acc + sum of a[i * a_step] * b[i * b_step], in that order, from the given element offsets. */
struct wf_strided {
    const struct wf_view *view;
    int64_t offset, step;
};
double wf_ref_dot(double acc, struct wf_strided a, struct wf_strided b, int64_t count);
