/*
 * The attributes that a node carries (node->attrs), one structure per operator family: the contract
 * between an operator's meaning (src/ops/) and its fast kernels (src/device/). All integers are
 * int64_t and reals double, because the text form reads and writes them by offset. Spatial triples
 * are { d, h, w }; strides and dilations are at least one here (builders fill defaults in).
 *
 * Operators, their inputs and outputs (brackets: optional):
 *
 *   conv            x, w, [b]                     y        y = x * w + b
 *   convt           x, w, [b]                     y        adjoint of conv in x; also its gradient
 *   conv_wgrad      x, dy                         dw       sums over N D H W of dy
 *   channel_sum     x                             s        f64 [1,1,1,1,C]; sums over N D H W
 *   maxpool         x                             y, index index: place in the window, u8 or i32
 *   maxpool_grad    dy, index, [plus]             dx       plus is added to it
 *   avgpool         x                             y
 *   avgpool_grad    dy                            dx
 *   global_pool     x                             y        f64 [N,1,1,1,C] = factor * sum over D H W
 *   broadcast       x [N,1,1,1,C]                 y        factor * x at every position
 *   upsample        x                             y
 *   upsample_grad   dy                            dx
 *   moments         x                             m        f64 [N|1,1,1,1,2G]: G sums, G sums of squares
 *   stats           m                             s        f32 [N|1,1,1,1,2G]: G means, G 1/sqrt(var+eps)
 *   running_stats   mean, var                     s        the same from running statistics
 *   running_update  m, mean, var                  mean', var'
 *   norm            x, s, [w], [b]                y        act((x - mean) * rstd * w + b)
 *   norm_grad_sums  x, s, [w], [b], dy            q        f64 [N|1,1,1,1,2C]: C sums of g, C of g * xhat
 *                                                          with g = dy * act'(.)
 *   norm_grad       x, s, [w], [b], dy, q         dx       q is not read when the statistics are fixed
 *   norm_wgrad      q                             dw, db   sums over N
 *   layernorm       x, [w], [b]                   y        over C of each position
 *   layernorm_grad  x, [w], dy                    dx
 *   layernorm_wgrad x, dy                         dw, db   sums over N D H W
 *   act             x                             y
 *   act_grad        r, dy                         dx       r is y where that shows the slope; else x
 *   prelu           x, w                          y        w [1,1,1,1,C|1]
 *   prelu_grad      x, w, dy                      dx
 *   softmax         x                             y        over C
 *   softmax_grad    y, dy                         dx
 *   argmax          x                             y        u8 or i32 [..,1]: the largest of C; not differentiable
 *   dropout         x                             y        also its own gradient
 *   add, multiply   a, b                          y        broadcast where one has extent 1
 *   product_sum     a, [b]                        s        f64: sum of a * b over axes of N D H W
 *   row_dot         a, [b]                        y        sum of a * b over C: [..,1]
 *   matmul          a, b                          y        per sample; rows are positions, columns channels
 *   expand          x                             y        axes of extent 1 to others
 *   scale, shift    x                             y        times a number, plus a number
 *   reverse         x                             y        gradient reversal: forward the identity
 *   rsqrt           x                             y        1 / sqrt(max(x, 0) + eps)
 *   rsqrt_grad      x, dy                         dx
 *   cast            x                             y
 *   fill                                          y
 *   concat          x...                          y        along C
 *   slice           x                             y
 *   pad             x                             y        negative amounts crop
 *   pad_grad        dy                            dx       for modes other than zero
 *   depth_to_space, space_to_depth  x             y        channels to positions, and back
 *   channel_shuffle x                             y
 *   channel_max     x                             y, index [..,1]: the largest of C; i32
 *   channel_max_grad dy, index                    dx
 *   reshape         x                             y        in PyTorch's order, or channels innermost
 *   tile, untile    x                             y        subdomains to batch, and back
 *   accumulate      contributions                 y        their sum, a weight's gradient
 *   sum_rows        x [N,1,1,1,k]                 y        rows added up with a period
 *   local_sums       m, x                          y        a rank's own sums, scaled up to the whole
 *   ce              logits, target, [weights]     s        f64 [1,1,1,1,2]: sum of w * nll, sum of w
 *   ce_grad         logits, target, [weights], ds dlogits  ds f64 [1,1,1,1,2]
 *   bce             logits, target                s        f64 [1,1,1,1,2]: sum of losses, count
 *   bce_grad        logits, target, ds            dlogits
 *   mse             x, target                     s        f64 [1,1,1,1,2]: sum of squares, count
 *   mse_grad        x, target, ds                 dx
 *   ratio           s                             loss     f64 [1,1,1,1,1] = s0 / s1 (0 when s1 is 0);
 *                                                          builders cast losses to f32
 *   ratio_grad      s, dloss                      ds       f64 [1,1,1,1,2]
 *   dice            probs, target                 s        f64 [1,1,1,1,3C]: C of sum p*t, C of sum p, C of sum t
 *   dice_grad       probs, target, ds             dprobs
 *   dice_loss       s                             loss     f64 [1,1,1,1,1], cast likewise
 *   dice_loss_grad  s, dloss                      ds
 *   spread          means of d, of d^2            s        f64 [1,1,1,1,2]: sum over N of their variance, count
 *   spread_grad     means of d, ds                dm, dm2
 *   center          x, s                          y        x - factor * s[c]
 *   unit_rows       x                             y        over C, divided by its length
 *   unit_rows_grad  x, dy                         dx
 *   mmd             a, b                          m        f64 [1,1,1,1,1]: how different two batches are
 *   mmd_grad        a, b, dm                      da
 *
 * A gradient or loss in f64 graphs (finite differences) stays f64 where this says f32.
 */
#pragma once

#include <math.h>
#include <stdint.h>

struct wf_conv_attrs { /* conv, convt, conv_wgrad: always those of the convolution */
    int64_t stride[3], dilation[3], pad_lo[3], pad_hi[3];
    int64_t groups;
    int64_t extent[3]; /* convt: of y; conv_wgrad: the kernel's; conv: not used */
};

struct wf_pool_attrs { /* maxpool, avgpool and their gradients */
    int64_t kernel[3], stride[3], pad_lo[3], pad_hi[3];
    int64_t exclude_pad;
    int64_t past[3];   /* of pad_hi: positions that no mean counts, padding or not (ceil_mode) */
    int64_t extent[3]; /* gradients: of dx */
    /* Adaptive: the windows along each axis, which share out the image; then the kernel is the largest of them, and
     * stride and padding are not read. 0: by kernel and stride. */
    int64_t bins[3];
};

struct wf_spread_attrs { /* global_pool, broadcast */
    int64_t extent[3];   /* broadcast: of y */
    double factor;
};

struct wf_upsample_attrs { /* upsample, upsample_grad */
    int64_t mode;          /* enum wf_upsample_mode */
    int64_t extent[3];     /* of the output of this node */
    /* Of the upsampling: source positions per result position as a fraction; 0: as the extents are. */
    int64_t step[3], steps[3];
};

struct wf_norm_attrs {  /* moments .. norm_wgrad, layernorm* */
    int64_t groups;     /* G; the channels of x for batch and instance norm */
    int64_t per_sample; /* statistics for each sample: instance and group norm */
    int64_t fixed;      /* the statistics do not depend on x: running statistics */
    int64_t count;      /* elements that one mean is taken over */
    int64_t counted;    /* known when it runs: the last column of tables of sums has it */
    int64_t act;        /* enum wf_act: none, ReLU or leaky ReLU */
    int64_t wide;       /* stats, *_wgrad: f64 out, where the network runs in f64 */
    int64_t period; /* with per_sample: samples that share statistics are this far apart; or 0 */
    int64_t local;  /* statistics of each rank's own part: see local_sums */
    double slope, eps, momentum;
};

struct wf_sum_rows_attrs {
    int64_t period;
};

struct wf_act_attrs { /* act, act_grad */
    int64_t act;      /* enum wf_act */
    double slope;
    double lo, hi; /* clip */
};

#define WF_SELU_SCALE 1.0507009873554804934
#define WF_SELU_ALPHA 1.6732632423543772848

struct wf_dropout_attrs {
    double p;       /* probability of zero; the rest is scaled by 1 / (1 - p) */
    int64_t stream; /* of the random numbers; element index is the global one */
};
/* An f32 in every kernel, the reference's too: what is behind a dropout then agrees to the bit. */
static inline float wf_dropout_scale(const struct wf_dropout_attrs *a)
{
    return (float)(1.0 / (1.0 - a->p));
}

struct wf_rsqrt_attrs { /* rsqrt, rsqrt_grad */
    double eps;
};

struct wf_scale_attrs { /* scale, reverse, center */
    double factor;
};

struct wf_shift_attrs {
    double offset;
};

struct wf_reduce_attrs { /* product_sum */
    int64_t over[5];     /* 1: over this axis; not over C */
    int64_t below;       /* only where b is below 0 */
};

struct wf_matmul_attrs {
    int64_t form;      /* enum wf_matmul_form */
    int64_t extent[3]; /* tn: of y */
};

struct wf_expand_attrs {
    int64_t shape[5];
};

struct wf_shuffle_attrs { /* depth_to_space, space_to_depth */
    int64_t factor[3];
};

struct wf_groups_attrs { /* channel_shuffle, channel_max_grad */
    int64_t groups;      /* channel_max_grad: channels of dx */
};

/* unit_rows: one over the length of a row; very short ones are not blown up. */
#define WF_UNIT_ROWS_LEAST 1e-12
static inline double wf_unit_rows_factor(double square)
{
    return 1.0 / sqrt(square < WF_UNIT_ROWS_LEAST ? WF_UNIT_ROWS_LEAST : square);
}

struct wf_cast_attrs { /* cast, argmax */
    int64_t dtype;     /* enum wf_dtype */
};

struct wf_fill_attrs {
    int64_t shape[5], dtype;
    double value;
};

struct wf_slice_attrs {
    int64_t lo[5], hi[5];
};

struct wf_pad_attrs {     /* pad, pad_grad */
    int64_t lo[5], hi[5]; /* of all axes; modes other than zero pad spatial axes only */
    int64_t mode;         /* enum wf_pad_mode */
};

struct wf_reshape_attrs {
    int64_t shape[5]; /* N is kept */
    int64_t turned;   /* enum wf_reshape_turned */
};
/* Which side's elements are taken with the channels innermost instead of outermost. */
enum wf_reshape_turned { WF_RESHAPE_PLAIN, WF_RESHAPE_FROM, WF_RESHAPE_TO };

struct wf_tile_attrs { /* tile, untile */
    int64_t tiles[3];  /* subdomains along each axis */
    int64_t extent[3]; /* of y: tile: of a subdomain; untile: of the image */
};

struct wf_loss_attrs { /* ce, bce, mse, dice and gradients; dice_loss: smooth, classes */
    int64_t ignore, has_ignore, classes;
    double smooth;
};
