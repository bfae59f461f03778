/* The builder is public (widefield_graph.h); these are for networks and passes of our own. */
#pragma once

#include "graph/graph.h"

/* Names of enum wf_pad_mode and enum wf_upsample_mode in texts; they end with NULL. */
extern const char *const wf_pad_mode_names[], *const wf_upsample_mode_names[];

/* The number in every element, on every rank. */
struct wf_value *wf_fill(struct wf_graph *g, struct wf_shape shape, enum wf_dtype dtype,
                         double value);
/* The class of each position, u8 or i32, of one channel: the largest of x's channels, or x > 0 where it has one. */
struct wf_value *wf_argmax(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype,
                           const char *name);
/* The product of two images as matrices, for each sample: rows are positions, columns channels (matmul.c). */
enum wf_matmul_form {
    WF_MATMUL_NT, /* by the second transposed */
    WF_MATMUL_NN,
    WF_MATMUL_TN, /* of the first transposed; `extent`: of the result, else not read */
};
extern const char *const wf_matmul_form_names[]; /* ends with NULL */
struct wf_value *wf_matmul(struct wf_graph *g, struct wf_value *a, struct wf_value *b,
                           const char *name, enum wf_matmul_form form, const int64_t extent[3]);
/* Positions to channels, and channels to positions of these extents. */
struct wf_value *wf_transpose(struct wf_graph *g, struct wf_value *x, const char *name,
                              const int64_t extent[3]);
/* Exponentials that sum to 1 over channels and positions of each sample. */
struct wf_value *wf_softmax_sample(struct wf_graph *g, struct wf_value *x, const char *name);
/* Like wf_channel_scale() and wf_channel_shift(), with one weight for all channels. */
struct wf_value *wf_shared_scale(struct wf_graph *g, struct wf_value *x, const char *name,
                                 double initial);
struct wf_value *wf_shared_shift(struct wf_graph *g, struct wf_value *x, const char *name);
/* The sum over the whole image, a vector. */
struct wf_value *wf_global_sum(struct wf_graph *g, struct wf_value *x, const char *name);
/* An image as a weight: whole on every rank. */
struct wf_value *wf_replicate(struct wf_graph *g, struct wf_value *x);
/* The sum of contributions to one weight's gradient. */
struct wf_value *wf_accumulate(struct wf_graph *g, const char *name, int n,
                               struct wf_value *const in[]);
/* Calls the value, and the node that made it, otherwise; for what builders name themselves. */
struct wf_value *wf_rename(struct wf_graph *g, struct wf_value *v, const char *name);

/* --- amounts that follow from extents (like.c) --- */

enum wf_fit_align {
    WF_FIT_CENTRE,  /* half in front, rounded down also below 0, as Python's missing // 2 */
    WF_FIT_START,   /* all at the end */
    WF_FIT_CUT_END, /* zeros as with the centre; what is too much is cut off at the end */
};
/* Zeros are added or positions cut off; x where there is nothing to do. */
struct wf_value *wf_fit(struct wf_graph *g, struct wf_value *x, const char *name,
                        const struct wf_value *like, enum wf_fit_align align);
/* Behind it more is cut off at the end, or less than a stride added, so that it has the extents of `like`. */
struct wf_value *wf_conv_transpose_like(struct wf_graph *g, struct wf_value *x,
                                        const struct wf_conv *c, const struct wf_value *like);
/* A last window that only begins inside counts: PyTorch's ceil_mode. */
struct wf_value *wf_max_pool_ceil(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
struct wf_value *wf_avg_pool_ceil(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
struct wf_value *wf_upsample_like(struct wf_graph *g, struct wf_value *x, const char *name,
                                  const struct wf_value *like, enum wf_upsample_mode mode);
struct wf_value *wf_untile_like(struct wf_graph *g, struct wf_value *x, const char *name,
                                const int64_t tiles[3], const struct wf_value *like);

/* What they were given, for who wants to write the network down without sizes (net/record.c). */
struct wf_size_note {
    const struct wf_value *of, *like; /* the result; NULL: of ceil */
    enum wf_fit_align align;          /* fit */
    int64_t pad_hi[3];                /* before they changed it */
    struct wf_size_note *next;
};
