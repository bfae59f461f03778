/*
 * Our own CUDA kernels, as C sees them.
 *
 * Each operator's kernel is a function wf_cuda_NAME(call) in one of the .cu files beside this one,
 * put into a `struct wf_kernel` by kernels.c. A kernel only enqueues work on the stream of its call;
 * what goes wrong on the way is cudaGetLastError()'s to say. Every view may be strided, lie inside a
 * larger buffer or hold a part of the image; channels that lie packed and aligned get 16-byte
 * accesses. Sums are made in a fixed order, without floating-point atomics: the same boxes give the
 * same bits on every run.
 *
 * Whoever owns the device supplies the functions that a kernel asks for its surroundings:
 *
 *     wf_cuda_stream(call)    where to enqueue
 *     wf_cuda_tickets(call)   WF_CUDA_TICKETS zeroed counters that belong to that stream: the block
 *                             that finishes last makes the sum of all blocks' parts and leaves its
 *                             counter at zero again. NULL: a second launch does it.
 *     wf_cuda_tf32(call)      factors of convolutions of f32 images are shortened to tf32
 *     wf_cuda_exact(call)     sums must not depend on how the image is cut
 *
 * The same sources compile with a plain C++ compiler under tests/emulate/, which runs blocks and
 * threads one after the other: so the kernels are tested where there is no GPU.
 */
#pragma once

#include "device/cuda/hooks.h"
#include "device/update.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st *wf_cuda_stream(const struct wf_call *call);
unsigned *wf_cuda_tickets(const struct wf_call *call);
bool wf_cuda_tf32(const struct wf_call *call);
bool wf_cuda_exact(const struct wf_call *call);
enum { WF_CUDA_TICKETS = 4096 };

static inline bool wf_cuda_is_float(const struct wf_value *v)
{
    return v->dtype == WF_F32 || v->dtype == WF_BF16 || v->dtype == WF_F16;
}

/* copies and shapes: move.cu, resample.cu */
void wf_cuda_concat(const struct wf_call *call);
void wf_cuda_slice(const struct wf_call *call); /* also replicate */
void wf_cuda_fill(const struct wf_call *call);
void wf_cuda_reshape(const struct wf_call *call);
void wf_cuda_pad(const struct wf_call *call);
void wf_cuda_pad_grad(const struct wf_call *call);
void wf_cuda_upsample(const struct wf_call *call);
void wf_cuda_upsample_grad(const struct wf_call *call);
void wf_cuda_broadcast(const struct wf_call *call);
void wf_cuda_tile(const struct wf_call *call);
void wf_cuda_untile(const struct wf_call *call);

/* channels: shuffle.cu */
void wf_cuda_depth_to_space(const struct wf_call *call);
void wf_cuda_space_to_depth(const struct wf_call *call);
void wf_cuda_channel_shuffle(const struct wf_call *call);
void wf_cuda_channel_max(const struct wf_call *call);
void wf_cuda_channel_max_grad(const struct wf_call *call);

/* element by element: pointwise.cu */
void wf_cuda_act(const struct wf_call *call);
void wf_cuda_act_grad(const struct wf_call *call);
void wf_cuda_scale(const struct wf_call *call);
void wf_cuda_shift(const struct wf_call *call);
void wf_cuda_rsqrt(const struct wf_call *call);
void wf_cuda_rsqrt_grad(const struct wf_call *call);
void wf_cuda_reverse(const struct wf_call *call);
void wf_cuda_cast(const struct wf_call *call);
void wf_cuda_dropout(const struct wf_call *call);
void wf_cuda_sparse_dropout(const struct wf_call *call);

/* broadcast: broadcast.cu */
void wf_cuda_add(const struct wf_call *call);
void wf_cuda_multiply(const struct wf_call *call);
void wf_cuda_expand(const struct wf_call *call);
void wf_cuda_prelu(const struct wf_call *call);
void wf_cuda_prelu_grad(const struct wf_call *call);
void wf_cuda_product_sum(const struct wf_call *call);
void wf_cuda_row_dot(const struct wf_call *call);

/* matmul.cu */
void wf_cuda_matmul(const struct wf_call *call);

/* sums over the image, per channel: sums.cu, norm_sums.cu */
bool wf_cuda_columns_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_moments(const struct wf_call *call);
void wf_cuda_channel_sum(const struct wf_call *call);
void wf_cuda_global_pool(const struct wf_call *call);
void wf_cuda_norm_grad_sums(const struct wf_call *call);
void wf_cuda_dice(const struct wf_call *call);
bool wf_cuda_layernorm_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_layernorm_wgrad(const struct wf_call *call);

/* normalisation: norm.cu, tables.cu, softmax.cu */
void wf_cuda_norm(const struct wf_call *call);
bool wf_cuda_norm_grad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_norm_grad(const struct wf_call *call);
void wf_cuda_stats(const struct wf_call *call);
void wf_cuda_running_stats(const struct wf_call *call);
void wf_cuda_running_update(const struct wf_call *call);
void wf_cuda_norm_wgrad(const struct wf_call *call);
void wf_cuda_sum_rows(const struct wf_call *call);
void wf_cuda_local_sums(const struct wf_call *call);
void wf_cuda_layernorm(const struct wf_call *call);
void wf_cuda_layernorm_grad(const struct wf_call *call);

/* pooling: pool.cu */
void wf_cuda_maxpool(const struct wf_call *call);
void wf_cuda_maxpool_grad(const struct wf_call *call);
void wf_cuda_avgpool(const struct wf_call *call);
void wf_cuda_avgpool_grad(const struct wf_call *call);

/* of a normalisation's result that is not made: norm_pool.cu */
void wf_cuda_norm_maxpool(const struct wf_call *call);

/* losses: softmax.cu, loss.cu, tables.cu */
bool wf_cuda_loss_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_softmax(const struct wf_call *call);
void wf_cuda_softmax_grad(const struct wf_call *call);
void wf_cuda_argmax(const struct wf_call *call);
void wf_cuda_ce(const struct wf_call *call);
void wf_cuda_ce_grad(const struct wf_call *call);
void wf_cuda_bce(const struct wf_call *call);
void wf_cuda_bce_grad(const struct wf_call *call);
void wf_cuda_mse(const struct wf_call *call);
void wf_cuda_mse_grad(const struct wf_call *call);
void wf_cuda_dice_grad(const struct wf_call *call);
void wf_cuda_ratio(const struct wf_call *call);
void wf_cuda_ratio_grad(const struct wf_call *call);
void wf_cuda_dice_loss(const struct wf_call *call);
void wf_cuda_dice_loss_grad(const struct wf_call *call);
void wf_cuda_spread(const struct wf_call *call);
void wf_cuda_spread_grad(const struct wf_call *call);
void wf_cuda_center(const struct wf_call *call);
void wf_cuda_unit_rows(const struct wf_call *call);
void wf_cuda_unit_rows_grad(const struct wf_call *call);
void wf_cuda_mmd(const struct wf_call *call);
void wf_cuda_mmd_grad(const struct wf_call *call);

/* convolution where cuDNN has no engine: conv.cu */
void wf_cuda_conv(const struct wf_call *call);
void wf_cuda_convt(const struct wf_call *call);
extern void (*const wf_cuda_conv_own[])(const struct wf_call *call); /* by enum wf_conv_pass */
bool wf_cuda_conv_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_conv_wgrad(const struct wf_call *call);

/* 1x1 convolutions to few channels: head.cu */
void wf_cuda_head(const struct wf_call *call);
bool wf_cuda_head_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_head_wgrad(const struct wf_call *call);

/* --- not operators: what the device itself needs --- */

/* A sum over nothing: all outputs are zero. */
extern const struct wf_kernel wf_cuda_nothing;

/* dst = src, equal extents and dtypes, any strides; global positions may differ. */
void wf_cuda_copy(const struct wf_view *dst, const struct wf_view *src, struct CUstream_st *stream);
/* f32 from bytes, both packed: x * scale[c] + offset[c] of at most WF_WIDEN_CHANNELS channels. */
void wf_cuda_widen(const struct wf_view *dst, const struct wf_view *src, const float *scale,
                   const float *offset, struct CUstream_st *stream);
/* dst += src, equal extents and dtypes, both packed. */
void wf_cuda_add_to(const struct wf_view *dst, const struct wf_view *src,
                    struct CUstream_st *stream);
/* dst = src within both boxes (counted from their lower corners), zero where dst reaches further;
 * float types are converted. Pads channels for cuDNN and crops them again. */
void wf_cuda_fit(const struct wf_view *dst, const struct wf_view *src, struct CUstream_st *stream);
/* dst = value (0x00 pattern of the dtype for 0). */
void wf_cuda_set(const struct wf_view *dst, double value, struct CUstream_st *stream);

/* A layout of device/update.h with everything in device memory. */
struct wf_cuda_layout {
    int n_tensors, n_pieces;
    const struct wf_update_tensor *tensors;
    const struct wf_update_piece *pieces;
    double *sums;  /* two for each piece */
    float *ratios; /* one for each tensor; any numbers at first */
};
/* The sweeps of struct wf_updater, without waiting: the sum of squares goes to `sum` on the device. */
void wf_cuda_squares(const struct wf_cuda_layout *at, const float *grad, double *sum,
                     struct CUstream_st *stream);
/* What a gradient of that sum is multiplied by (wf_update_factor), on the device; NaN: the sum is not finite. */
void wf_cuda_factor(const double *sum, double scale, double clip, float *factor,
                    struct CUstream_st *stream);
void wf_cuda_update(const struct wf_cuda_layout *at, const struct wf_update *u,
                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
