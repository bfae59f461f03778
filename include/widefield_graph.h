/*
 * The graph: what is computed, for the whole image, independent of ranks. And its builder: layers and
 * operators as functions on a graph.
 *
 *     struct wf_graph_options options = WF_ZERO;
 *     options.training = true;
 *     struct wf_graph *g = wf_graph_new(&options);
 *     struct wf_value *x = wf_input(g, "image", WF_F32, wf_shape_make(1, 1, 64, 64, 3));
 *     struct wf_conv c = WF_ZERO;
 *     c.name = "first", c.out = 8, c.kernel[1] = c.kernel[2] = 3, c.same = true;
 *     struct wf_value *y = wf_conv(g, x, &c);
 *     if (!wf_graph_ok(g, &err)) ...
 *     wf_graph_free(g);
 *
 * Builders return the new value, or NULL once something went wrong, and accept NULL; so a network is
 * written without a check per line, and wf_graph_ok() returns the first error, which names the layer.
 * Values belong to their graph and live as long as it. A layer's `name` is the dotted path of its
 * weights ("enc0.conv0" owns "enc0.conv0.weight"). Kernel, stride and padding are { d, h, w }; a zero
 * kernel, stride or dilation means one, so a 2D layer has { 1, 3, 3 }. Texts and attribute structures
 * may be temporary.
 *
 * Threads: a graph is one thread's at a time.
 */
#ifndef WIDEFIELD_GRAPH_H
#define WIDEFIELD_GRAPH_H

#include "widefield_types.h"

WF_API_BEGIN

struct wf_graph;
struct wf_value;

struct wf_graph_options {
    bool training;         /* batch statistics and dropout; otherwise running statistics */
    enum wf_dtype compute; /* dtype of activations: WF_F32, WF_BF16, WF_F16 (parameters are f32) */
};

/* A new, empty graph. */
struct wf_graph *wf_graph_new(const struct wf_graph_options *options);
/* Frees the graph and its values; NULL is fine. */
void wf_graph_free(struct wf_graph *g);
/* True while no builder failed; otherwise copies the first cause. */
WF_CHECK bool wf_graph_ok(const struct wf_graph *g, struct wf_err *err);
/* The value stays readable after a step: a loss, predictions. */
void wf_graph_output(struct wf_graph *g, struct wf_value *value);
/* The value of that name, or NULL. */
struct wf_value *wf_graph_find(const struct wf_graph *g, const char *name);
/* Weights whose names begin with `prefix` are not trained; before wf_graph_grad(). */
void wf_graph_freeze(struct wf_graph *g, const char *prefix);
/* Elements of all weights; frozen ones are left out unless `with_frozen`. */
int64_t wf_graph_parameters(const struct wf_graph *g, bool with_frozen);
/* Appends the nodes that compute d(sum(y * dy)) / d(p) for every weight that is not frozen, as outputs
 * named "grad.<weight>"; and, where `wrt` is not NULL, for n_wrt values of yours, into dwrt (NULL where y
 * does not depend on one). `dy` NULL means ones: y is a loss. */
WF_CHECK bool wf_graph_grad(struct wf_graph *g, struct wf_value *y, struct wf_value *dy, int n_wrt,
                            struct wf_value *const wrt[], struct wf_value *dwrt[],
                            struct wf_err *err);

/* What is set before each step. */
struct wf_value *wf_input(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                          struct wf_shape shape);
/* The same for one f32 number, which every rank has. */
struct wf_value *wf_input_number(struct wf_graph *g, const char *name);

/* What is known of a value. */
const char *wf_value_name(const struct wf_value *value);
enum wf_dtype wf_value_dtype(const struct wf_value *value);
struct wf_shape wf_value_shape(const struct wf_value *value);

/* --- convolution: layers with weights --- */

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

/* A convolution; weight [out, in/groups, *kernel]. */
struct wf_value *wf_conv(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c);
/* Transposed. pad_lo/pad_hi crop the full result, as in PyTorch: (in-1)*stride - lo - hi +
 * dilation*(kernel-1) + output_pad + 1. Weight in PyTorch's [in, out/groups, *kernel]. */
struct wf_value *wf_conv_transpose(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c);
/* A layer on a vector [N, 1, 1, 1, C]; weight [out, in]. */
struct wf_value *wf_linear(struct wf_graph *g, struct wf_value *x, const char *name, int64_t out,
                           bool bias);

/* --- pooling: and resampling --- */

struct wf_pool {
    const char *name;
    int64_t kernel[3], stride[3]; /* a zero stride means the kernel */
    int64_t pad_lo[3], pad_hi[3];
    bool exclude_pad; /* average: divide by the elements inside the image only */
};

enum wf_upsample_mode {
    WF_NEAREST,
    WF_LINEAR, /* half-pixel centres */
    WF_LINEAR_CORNERS,
    WF_NEAREST_EXACT, /* half-pixel centres */
    WF_CUBIC,         /* of 4 elements (a = -0.75), half-pixel centres */
    WF_CUBIC_CORNERS
};

/* The largest, or the mean, of each window. */
struct wf_value *wf_max_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
struct wf_value *wf_avg_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p);
/* The mean, or the largest, over the whole image: [N, 1, 1, 1, C]. */
struct wf_value *wf_global_pool(struct wf_graph *g, struct wf_value *x, const char *name);
struct wf_value *wf_global_max_pool(struct wf_graph *g, struct wf_value *x, const char *name);
/* To the extents `out`, by windows from floor(i * in / out) to ceil((i + 1) * in / out). */
struct wf_value *wf_adaptive_avg_pool(struct wf_graph *g, struct wf_value *x, const char *name,
                                      const int64_t out[3]);
struct wf_value *wf_adaptive_max_pool(struct wf_graph *g, struct wf_value *x, const char *name,
                                      const int64_t out[3]);
/* The largest channel of each position: [N, D, H, W, 1]. */
struct wf_value *wf_max_channels(struct wf_graph *g, struct wf_value *x, const char *name);
/* The mean over `axes`, a sum of enum wf_over, which become extent one. */
enum wf_over {
    WF_OVER_SAMPLES = 1,
    WF_OVER_DEPTH = 2,
    WF_OVER_HEIGHT = 4,
    WF_OVER_WIDTH = 8,
    WF_OVER_SPACE = 14,
    WF_OVER_CHANNELS = 16
};
struct wf_value *wf_mean(struct wf_graph *g, struct wf_value *x, const char *name, unsigned axes);
/* To the extents `out`. */
struct wf_value *wf_upsample(struct wf_graph *g, struct wf_value *x, const char *name,
                             const int64_t out[3], enum wf_upsample_mode mode);
/* By scales (result / source), to extents of floor(in * scale). Sources are found by the scales, not by the extents, as
 * PyTorch does with a scale_factor. */
struct wf_value *wf_upsample_by(struct wf_graph *g, struct wf_value *x, const char *name,
                                const double scale[3], enum wf_upsample_mode mode);

/* --- normalisation: to mean 0 and deviation 1 ---
 *
 * An activation is applied behind weight and bias. */

enum wf_act {
    WF_ACT_NONE,
    WF_RELU,
    WF_LEAKY_RELU,
    WF_SIGMOID,
    WF_TANH,
    WF_GELU,
    WF_SILU,
    WF_RELU6,
    WF_ELU,          /* below 0: slope * (exp(x) - 1) */
    WF_SELU,         /* self-normalising, with its own constants */
    WF_HARD_SIGMOID, /* x / 6 + 1/2 within 0 and 1 */
    WF_HARD_SWISH,   /* x times that */
    WF_MISH,         /* x * tanh(log(1 + exp(x))) */
    WF_SOFTPLUS,     /* log(1 + exp(slope * x)) / slope */
    WF_GELU_TANH,    /* PyTorch's approximation of GELU by tanh */
    WF_SOFTSIGN,     /* x / (1 + |x|) */
    WF_LOG_SIGMOID,
    WF_ABS,
    WF_EXP,
    WF_LOG,
    WF_SQRT,
    WF_RECIPROCAL,
    WF_CLIP /* by wf_clip() */
};

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
    int64_t tiles; /* > 0: samples are subdomains of images, each with statistics of its own */
    bool per_rank; /* each rank's own part: the numbers depend on the mesh */
    int domain; /* > 0: running statistics of its own for this domain, NAME.domain<N>.running_mean */
};

/* Over batch and image; over the image of each sample; the same in groups of channels. */
struct wf_value *wf_batch_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
struct wf_value *wf_instance_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
struct wf_value *wf_group_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);
/* Over the channels of each position. */
struct wf_value *wf_layer_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n);

/* --- pointwise: element by element --- */

/* `slope` is leaky ReLU's, ELU's or softplus's; of the latter two 0 means 1. */
struct wf_value *wf_activation(struct wf_graph *g, struct wf_value *x, const char *name,
                               enum wf_act act, double slope);
/* x, at least `lo` and at most `hi`; either may be infinite. */
struct wf_value *wf_clip(struct wf_graph *g, struct wf_value *x, const char *name, double lo,
                         double hi);
/* x, below 0 times a weight: one for each channel, or one for all. It begins with 0.25. */
struct wf_value *wf_prelu(struct wf_graph *g, struct wf_value *x, const char *name,
                          bool per_channel);
/* Times a weight per channel, which begins with `initial` (layer scale); plus one, which begins with 0. */
struct wf_value *wf_channel_scale(struct wf_graph *g, struct wf_value *x, const char *name,
                                  double initial);
struct wf_value *wf_channel_shift(struct wf_graph *g, struct wf_value *x, const char *name);
/* Over the channels. */
struct wf_value *wf_softmax(struct wf_graph *g, struct wf_value *x, const char *name);
/* In training, zeroes elements with probability `p`; or whole channels of a sample; or whole samples (stochastic
 * depth). What is left is scaled by 1 / (1 - p). */
struct wf_value *wf_dropout(struct wf_graph *g, struct wf_value *x, const char *name, double p);
struct wf_value *wf_dropout_channels(struct wf_graph *g, struct wf_value *x, const char *name,
                                     double p);
struct wf_value *wf_dropout_samples(struct wf_graph *g, struct wf_value *x, const char *name,
                                    double p);
/* a + b, a - b, a * b; along axes where one of them has extent one it is broadcast, as in PyTorch: a vector
 * [N, 1, 1, 1, C] or a map [N, D, H, W, 1] with an image. */
struct wf_value *wf_add(struct wf_graph *g, struct wf_value *a, struct wf_value *b);
struct wf_value *wf_subtract(struct wf_graph *g, struct wf_value *a, struct wf_value *b);
struct wf_value *wf_multiply(struct wf_graph *g, struct wf_value *a, struct wf_value *b);
/* x * factor, x + offset. */
struct wf_value *wf_scale(struct wf_graph *g, struct wf_value *x, double factor);
struct wf_value *wf_shift(struct wf_graph *g, struct wf_value *x, double offset);
/* Axes of extent one to those of `shape`. */
struct wf_value *wf_expand(struct wf_graph *g, struct wf_value *x, const char *name,
                           struct wf_shape shape);
/* Forward the identity, backward times -factor. */
struct wf_value *wf_reverse_gradient(struct wf_graph *g, struct wf_value *x, double factor);
/* To another element type. */
struct wf_value *wf_cast(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype);

/* --- moving: parts, borders and other shapes --- */

/* Along the channels. */
struct wf_value *wf_concat(struct wf_graph *g, const char *name, int n,
                           struct wf_value *const in[]);
/* A box of x. */
struct wf_value *wf_slice(struct wf_graph *g, struct wf_value *x, struct wf_region part);
/* Adds positions around the image; negative amounts crop. */
struct wf_value *wf_pad(struct wf_graph *g, struct wf_value *x, const char *name,
                        const int64_t lo[3], const int64_t hi[3], enum wf_pad_mode mode);
/* Channels of zeros before and behind those of x; negative amounts cut off. */
struct wf_value *wf_pad_channels(struct wf_graph *g, struct wf_value *x, const char *name,
                                 int64_t before, int64_t behind);
/* Channels to positions, `factor` along each axis, and back: PyTorch's pixel shuffle and unshuffle. */
struct wf_value *wf_pixel_shuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                  const int64_t factor[3]);
struct wf_value *wf_pixel_unshuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                    const int64_t factor[3]);
/* Channel g * n + i becomes channel i * groups + g. */
struct wf_value *wf_channel_shuffle(struct wf_graph *g, struct wf_value *x, const char *name,
                                    int64_t groups);
/* To another [C, D, H, W] per sample, in PyTorch's element order (C outermost, W innermost). */
struct wf_value *wf_reshape(struct wf_graph *g, struct wf_value *x, const char *name,
                            struct wf_shape shape);
/* To a vector per sample, in the same order. */
struct wf_value *wf_flatten(struct wf_graph *g, struct wf_value *x, const char *name);
/* The image as a batch of subdomains, `tiles` along each axis, of equal extents; and back, to an image of
 * `whole` (NULL: all of the subdomains). */
struct wf_value *wf_tile(struct wf_graph *g, struct wf_value *x, const char *name,
                         const int64_t tiles[3]);
struct wf_value *wf_untile(struct wf_graph *g, struct wf_value *x, const char *name,
                           const int64_t tiles[3], const int64_t whole[3]);

/* --- sparse: points, and what is known of them ---
 *
 * A sparse tensor is coordinates, int32 rows of a batch index and `dims` numbers, and rows of features. Features
 * are values like others: pointwise layers, batch norm, concatenation and losses take them as they are,
 * where their coordinates are the same. Which rows a kernel joins is found anew in each step.
 *
 *     struct wf_sparse_input in = WF_ZERO;
 *     in.dims = 3, in.rows = 20000, in.channels = 3, in.samples = 4;
 *     struct wf_sparse x = wf_sparse_input(g, &in);
 *     struct wf_sparse_conv c = WF_ZERO;
 *     c.name = "first", c.out = 32, c.kernel[0] = c.kernel[1] = c.kernel[2] = 3;
 *     x = wf_sparse_conv(g, x, &c);
 *     x.features = wf_batch_norm(g, x.features, &norm);
 *
 * An odd kernel is centred, an even one begins at its place; offsets count tensor strides. A stride of s makes
 * coordinates floor(c / (s * tensor stride)) * s * tensor stride. Points are set by wf_exec_put_points(). */

enum { WF_SPARSE_AXES = 6 };

struct wf_sparse {
    struct wf_value *features, *coords;
    int dims;
    int64_t stride[WF_SPARSE_AXES]; /* of the tensor */
};

struct wf_sparse_input {
    const char *features, *coords; /* names; NULL: "features" and "coords" */
    bool bare;                     /* coordinates without features */
    int dims;
    int64_t rows, channels; /* rows: capacity, of all ranks together */
    int64_t stride;         /* of the tensor, along all axes; 0: 1 */
    int64_t samples;        /* of the batch; 0: as of another input, or 1 */
};

/* What is set before each step. */
struct wf_sparse wf_sparse_input(struct wf_graph *g, const struct wf_sparse_input *in);
/* More numbers of the same points, such as labels. */
struct wf_value *wf_sparse_input_rows(struct wf_graph *g, struct wf_sparse x, const char *name,
                                      enum wf_dtype dtype, int64_t channels);

struct wf_sparse_conv {
    const char *name;
    int64_t out;                                                                      /* channels */
    int64_t kernel[WF_SPARSE_AXES], stride[WF_SPARSE_AXES], dilation[WF_SPARSE_AXES]; /* 0: 1 */
    bool cross; /* offsets along the axes only; the kernel is odd and equal along all */
    bool bias;
    const struct wf_sparse *on; /* the output's coordinates; NULL: as stride says */
};

/* A convolution; weight [offsets, in, out], the first axis the fastest. */
struct wf_sparse wf_sparse_conv(struct wf_graph *g, struct wf_sparse x,
                                const struct wf_sparse_conv *c);
/* Transposed, onto the coordinates of `like`: that of the layer that it mirrors. */
struct wf_sparse wf_sparse_conv_transpose(struct wf_graph *g, struct wf_sparse x,
                                          struct wf_sparse like, const struct wf_sparse_conv *c);
/* Transposed, onto all that it reaches. */
struct wf_sparse wf_sparse_conv_generate(struct wf_graph *g, struct wf_sparse x,
                                         const struct wf_sparse_conv *c);

/* An average is over the rows that are there. */
enum wf_sparse_pool_mode { WF_SPARSE_SUM, WF_SPARSE_AVERAGE, WF_SPARSE_MAX };

struct wf_sparse_pool {
    const char *name;
    enum wf_sparse_pool_mode mode;
    int64_t kernel[WF_SPARSE_AXES], stride[WF_SPARSE_AXES], dilation[WF_SPARSE_AXES]; /* 0: 1 */
    const struct wf_sparse *on; /* the output's coordinates; NULL: as stride says */
};

/* Over a kernel. */
struct wf_sparse wf_sparse_pool(struct wf_graph *g, struct wf_sparse x,
                                const struct wf_sparse_pool *p);
/* Onto the coordinates of `like`, that of the pooling that it mirrors: what meets at a point is summed. */
struct wf_sparse wf_sparse_unpool(struct wf_graph *g, struct wf_sparse x, struct wf_sparse like,
                                  const struct wf_sparse_pool *p);
/* Over the points of each sample: [samples, 1, 1, 1, C], 0 where there are none. */
struct wf_value *wf_sparse_global_pool(struct wf_graph *g, struct wf_sparse x, const char *name,
                                       enum wf_sparse_pool_mode mode);
/* A row for each sample, [samples, 1, 1, 1, C], with the features of all its points. */
struct wf_sparse wf_sparse_broadcast_add(struct wf_graph *g, struct wf_sparse x,
                                         struct wf_value *rows, const char *name);
struct wf_sparse wf_sparse_broadcast_multiply(struct wf_graph *g, struct wf_sparse x,
                                              struct wf_value *rows, const char *name);
struct wf_sparse wf_sparse_broadcast_concat(struct wf_graph *g, struct wf_sparse x,
                                            struct wf_value *rows, const char *name);
/* To mean 0 and deviation 1 over the points of each sample. */
struct wf_sparse wf_sparse_instance_norm(struct wf_graph *g, struct wf_sparse x,
                                         const struct wf_norm *n);

/* In training, zeroes elements with probability `p`. */
struct wf_sparse wf_sparse_dropout(struct wf_graph *g, struct wf_sparse x, const char *name,
                                   double p);

/* Coordinates that either has; features are summed. */
struct wf_sparse wf_sparse_union(struct wf_graph *g, struct wf_sparse a, struct wf_sparse b,
                                 const char *name);
/* Keeps rows whose mask, one number for each row of x, is above 0. */
struct wf_sparse wf_sparse_prune(struct wf_graph *g, struct wf_sparse x, struct wf_value *mask,
                                 const char *name);
/* At points between places, rows of 1 + dims numbers (f32, the batch index first): the 2^dims places around each,
 * of which those that are not there count 0. */
struct wf_value *wf_sparse_interpolate(struct wf_graph *g, struct wf_sparse x,
                                       struct wf_value *points, const char *name);

/* An image [samples, D, H, W, C] that has the place `lo` at its corner. */
struct wf_sparse_grid {
    int dims;
    int64_t lo[3], extent[3], stride[3]; /* along the axes of the coordinates; stride 0: 1 */
};

/* 0 where there is no point; points outside are left out. */
struct wf_value *wf_sparse_to_dense(struct wf_graph *g, struct wf_sparse x,
                                    const struct wf_sparse_grid *grid, const char *name);
/* The image at the coordinates of `like`, 0 outside. */
struct wf_sparse wf_sparse_at(struct wf_graph *g, struct wf_value *image, struct wf_sparse like,
                              const struct wf_sparse_grid *grid, const char *name);
/* Its places that are not 0 in all channels. */
struct wf_sparse wf_sparse_of_dense(struct wf_graph *g, struct wf_value *image,
                                    const struct wf_sparse_grid *grid, const char *name);

/* --- losses: one number for a prediction ---
 *
 * A scalar [1, 1, 1, 1, 1], the mean over the whole batch and image. */

struct wf_loss {
    const char *name;
    int64_t ignore; /* label that does not count, where has_ignore */
    bool has_ignore;
    struct wf_value *weights; /* per class, [1, 1, 1, 1, C], or NULL */
    double smooth;            /* Dice; 0 means 1 */
    /* Where the sums are put that the loss is the quotient of, or NULL; Dice has none. */
    struct wf_value **sums;
};

/* target: class map i32 [N, D, H, W, 1]. */
struct wf_value *wf_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                  struct wf_value *target, const struct wf_loss *l);
/* Binary, with logits; target of the logits' shape, any dtype. */
struct wf_value *wf_binary_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                         struct wf_value *target, const struct wf_loss *l);
/* 1 - mean over classes of (2 I + s) / (P + T + s) on softmax (one class: sigmoid) of the logits. */
struct wf_value *wf_dice(struct wf_graph *g, struct wf_value *logits, struct wf_value *target,
                         const struct wf_loss *l);
/* The mean of squared differences. */
struct wf_value *wf_mse(struct wf_graph *g, struct wf_value *x, struct wf_value *target,
                        const struct wf_loss *l);

WF_API_END

#endif
