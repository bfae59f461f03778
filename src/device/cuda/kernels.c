/* Our kernels as the planner looks them up. cuDNN's, where they accept a node, are preferred. */
#include "device/cuda/kernels.h"

#include <string.h>

#include "device/cuda/patches.h"
#include "ops/attrs.h"

/* Builds without CUDA have this table too, to plan with (device/paper_cuda.c): without what runs, so every
 * function that is defined elsewhere stands in HERE(). */
#ifdef WF_ON_PAPER
#define HERE(function) NULL
#else
#define HERE(function) function
#endif

static bool of_weight(const struct wf_node *node)
{
    return node->in[0]->kind == WF_PARAM;
}

/* Kernels that compute in the image's own type. */
static bool floats(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]);
}

/* ... and whose other image has the same. */
static bool alike(const struct wf_node *node)
{
    const struct wf_value *const x = node->in[0], *const y = node->out[0];
    return wf_cuda_is_float(x) && x->dtype == y->dtype;
}

static bool pairs(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]) && node->in[0]->dtype == node->in[1]->dtype;
}

static bool norm_grad(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]) && node->in[0]->dtype == node->in[4]->dtype;
}

static bool layernorm_grad(const struct wf_node *node)
{
    return wf_cuda_is_float(node->in[0]) && node->in[0]->dtype == node->in[2]->dtype;
}

static bool prelu_grad(const struct wf_node *node)
{
    return alike(node) && node->in[2]->dtype == node->in[0]->dtype;
}

static bool moves(const struct wf_node *node)
{
    return node->in[0]->dtype == node->out[0]->dtype;
}

static bool dice_grad(const struct wf_node *node)
{
    return wf_cuda_is_float(node->out[0]);
}

/* --- what kernels compute on their way instead of reading it --- */

static bool is_op(const struct wf_node *node, const char *name)
{
    return strcmp(node->op->name, name) == 0;
}

/* Windows of [1|2,2,2] side by side, all of them in the image. */
static bool is_plain_pool(const struct wf_pool_attrs *a, const struct wf_shape *image,
                          const struct wf_shape *pooled)
{
    for (int i = 0; i < 3; i++)
        if (a->bins[i] || a->stride[i] != a->kernel[i] || a->pad_lo[i] != 0 ||
            pooled->at[WF_D + i] * a->stride[i] > image->at[WF_D + i])
            return false;
    return a->kernel[0] <= 2 && a->kernel[1] == 2 && a->kernel[2] == 2;
}

static bool maxpool_fuses(const struct wf_node *node, int input, const struct wf_node *maker)
{
    return input == 0 && is_op(maker, "norm") && alike(maker) && alike(node) &&
           is_plain_pool(node->attrs, &node->in[0]->shape, &node->out[0]->shape);
}

enum {
    HEAD_MOST = 4,      /* channels of a last layer, see head.cu and norm_dy.cuh */
    HEAD_CHANNELS = 16, /* vectors of 16 bytes of its input */
};

/* A convolution of 1x1 with weights [k,1,1,1,c], on more than single pixels. */
static bool is_head(const struct wf_node *node, const struct wf_shape *weights)
{
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    const int64_t vector = 16 / (int64_t)wf_dtype_size(node->in[0]->dtype);
    for (int i = 0; i < 3; i++)
        if (weights->at[WF_D + i] != 1 || a->stride[i] != 1 || a->pad_lo[i] != 0 ||
            a->pad_hi[i] != 0)
            return false;
    return a->groups == 1 && weights->at[WF_N] <= HEAD_MOST && weights->at[WF_C] % vector == 0 &&
           weights->at[WF_C] <= HEAD_CHANNELS * vector &&
           x->at[WF_D] * x->at[WF_H] * x->at[WF_W] > 1;
}

static bool head(const struct wf_node *node)
{
    return pairs(node) && node->in[0]->dtype == node->out[0]->dtype &&
           (!node->in[2] || node->in[2]->dtype == WF_F32) && is_head(node, &node->in[1]->shape);
}

static bool head_wgrad(const struct wf_node *node)
{
    return pairs(node) && node->out[0]->dtype == WF_F32 && is_head(node, &node->out[0]->shape);
}

static bool is_half(const struct wf_value *v)
{
    return v->dtype == WF_BF16 || v->dtype == WF_F16;
}

static bool is_half_conv(const struct wf_node *node)
{
    return is_half(node->in[0]) && pairs(node) && node->in[0]->dtype == node->out[0]->dtype &&
           (!node->in[2] || node->in[2]->dtype == WF_F32);
}

/* Windows side by side. */
static bool patches(const struct wf_node *node)
{
    return is_half_conv(node) && wf_cuda_patches_fit(node->attrs, &node->in[1]->shape);
}

/* Without rows of the result that belong to no patch. */
static bool patches_convt(const struct wf_node *node)
{
    const struct wf_conv_attrs *a = node->attrs;
    for (int i = 0; i < 3; i++)
        if (node->in[0]->shape.at[WF_D + i] * a->stride[i] != node->out[0]->shape.at[WF_D + i])
            return false;
    return is_half_conv(node) &&
           (wf_cuda_patches_fit(a, &node->in[1]->shape) || wf_cuda_up_fits(a, &node->in[1]->shape));
}

/* Of so many channels that computing it again takes longer than keeping it and copying. */
static bool patches_convt_wide(const struct wf_node *node)
{
    enum { CHEAP_MOST = 1024 };
    return node->in[0]->shape.at[WF_C] > CHEAP_MOST && patches_convt(node);
}

static bool patches_wgrad(const struct wf_node *node)
{
    return is_half(node->in[0]) && pairs(node) && node->out[0]->dtype == WF_F32 &&
           wf_cuda_patches_fit(node->attrs, &node->out[0]->shape);
}

static bool head_fuses(const struct wf_node *node, int input, const struct wf_node *maker)
{
    return input == 0 && node->in[0] != node->in[1] && is_op(maker, "norm") && alike(maker);
}

/* Sums over samples, so all of them must have the same statistics. */
static bool head_wgrad_fuses(const struct wf_node *node, int input, const struct wf_node *maker)
{
    return head_fuses(node, input, maker) &&
           !((const struct wf_norm_attrs *)maker->attrs)->per_sample;
}

/* dy of a normalisation's gradient. */
static bool norm_grad_fuses(const struct wf_node *node, int input, const struct wf_node *maker)
{
    if (input != 4 || !norm_grad(node) || maker->in[0]->dtype != node->in[0]->dtype)
        return false;
    if (is_op(maker, "maxpool_grad"))
        return maker->in[1]->dtype == WF_U8 &&
               is_plain_pool(maker->attrs, &maker->out[0]->shape, &maker->in[0]->shape);
    return is_op(maker, "convt") && pairs(maker) && !maker->in[2] &&
           is_head(maker, &maker->in[1]->shape);
}

static bool matmul(const struct wf_node *node)
{
    const int64_t most = 65535; /* blocks along y and z */
    return alike(node) && node->in[0]->shape.at[WF_N] <= most &&
           node->out[0]->shape.at[WF_C] <= 32 * most;
}

#ifndef WF_ON_PAPER
void (*const wf_cuda_conv_own[])(const struct wf_call *call) = { wf_cuda_conv, wf_cuda_convt,
                                                                 wf_cuda_conv_wgrad };

static void run_nothing(const struct wf_call *call)
{
    for (int o = 0; o < call->node->n_out; o++)
        if (call->out[o].data)
            wf_cuda_set(&call->out[o], 0, wf_cuda_stream(call));
}

const struct wf_kernel wf_cuda_nothing = { .op = "nothing", .run = run_nothing };
#endif

const struct wf_kernel wf_cuda_kernels_kernels[] = {
    { .op = "concat", .accepts = moves, .run = HERE(wf_cuda_concat) },
    { .op = "slice", .accepts = moves, .run = HERE(wf_cuda_slice) },
    { .op = "replicate", .accepts = moves, .run = HERE(wf_cuda_slice) },
    { .op = "distribute", .accepts = moves, .run = HERE(wf_cuda_slice) },
    { .op = "fill", .run = HERE(wf_cuda_fill) },
    { .op = "reshape", .accepts = moves, .run = HERE(wf_cuda_reshape) },
    { .op = "pad", .accepts = moves, .run = HERE(wf_cuda_pad) },
    { .op = "pad_grad", .accepts = alike, .run = HERE(wf_cuda_pad_grad) },
    { .op = "tile", .accepts = moves, .run = HERE(wf_cuda_tile) },
    { .op = "untile", .accepts = moves, .run = HERE(wf_cuda_untile) },
    { .op = "depth_to_space", .accepts = moves, .run = HERE(wf_cuda_depth_to_space) },
    { .op = "space_to_depth", .accepts = moves, .run = HERE(wf_cuda_space_to_depth) },
    { .op = "channel_shuffle", .accepts = moves, .run = HERE(wf_cuda_channel_shuffle) },
    { .op = "channel_max", .accepts = alike, .run = HERE(wf_cuda_channel_max) },
    { .op = "channel_max_grad", .accepts = alike, .run = HERE(wf_cuda_channel_max_grad) },
    { .op = "upsample", .accepts = alike, .run = HERE(wf_cuda_upsample) },
    { .op = "upsample_grad", .accepts = alike, .run = HERE(wf_cuda_upsample_grad) },
    { .op = "broadcast", .accepts = alike, .run = HERE(wf_cuda_broadcast) },
    { .op = "act", .run = HERE(wf_cuda_act) },
    { .op = "act_grad", .run = HERE(wf_cuda_act_grad) },
    { .op = "add", .run = HERE(wf_cuda_add) },
    { .op = "multiply", .run = HERE(wf_cuda_multiply) },
    { .op = "expand", .run = HERE(wf_cuda_expand) },
    { .op = "prelu", .accepts = alike, .run = HERE(wf_cuda_prelu) },
    { .op = "prelu_grad", .accepts = prelu_grad, .run = HERE(wf_cuda_prelu_grad) },
    { .op = "product_sum",
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_product_sum) },
    { .op = "matmul", .accepts = matmul, .run = HERE(wf_cuda_matmul) },
    { .op = "row_dot", .run = HERE(wf_cuda_row_dot) },
    { .op = "scale", .run = HERE(wf_cuda_scale) },
    { .op = "shift", .run = HERE(wf_cuda_shift) },
    { .op = "rsqrt", .run = HERE(wf_cuda_rsqrt) },
    { .op = "rsqrt_grad", .run = HERE(wf_cuda_rsqrt_grad) },
    { .op = "reverse", .run = HERE(wf_cuda_reverse) },
    { .op = "cast", .run = HERE(wf_cuda_cast) },
    /* Copies of weights are as large as the weights, and take microseconds. */
    { .op = "cast",
      .flags = WF_KERNEL_CHEAP,
      .preference = 1,
      .accepts = of_weight,
      .run = HERE(wf_cuda_cast) },
    { .op = "dropout", .run = HERE(wf_cuda_dropout) },
    { .op = "moments",
      .accepts = floats,
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_moments) },
    { .op = "channel_sum",
      .accepts = floats,
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_channel_sum) },
    { .op = "global_pool",
      .accepts = floats,
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_global_pool) },
    { .op = "norm_grad_sums",
      .accepts = norm_grad,
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_norm_grad_sums),
      .fuses = norm_grad_fuses },
    { .op = "dice",
      .accepts = floats,
      .prepare = HERE(wf_cuda_columns_prepare),
      .run = HERE(wf_cuda_dice) },
    { .op = "layernorm_wgrad",
      .accepts = pairs,
      .prepare = HERE(wf_cuda_layernorm_wgrad_prepare),
      .run = HERE(wf_cuda_layernorm_wgrad) },
    { .op = "norm", .accepts = alike, .run = HERE(wf_cuda_norm) },
    { .op = "norm_grad",
      .accepts = norm_grad,
      .prepare = HERE(wf_cuda_norm_grad_prepare),
      .run = HERE(wf_cuda_norm_grad),
      .fuses = norm_grad_fuses },
    { .op = "stats", .run = HERE(wf_cuda_stats) },
    { .op = "running_stats", .run = HERE(wf_cuda_running_stats) },
    { .op = "running_update", .run = HERE(wf_cuda_running_update) },
    { .op = "norm_wgrad", .run = HERE(wf_cuda_norm_wgrad) },
    { .op = "sum_rows", .run = HERE(wf_cuda_sum_rows) },
    { .op = "local_sums", .run = HERE(wf_cuda_local_sums) },
    { .op = "layernorm", .accepts = alike, .run = HERE(wf_cuda_layernorm) },
    { .op = "layernorm_grad", .accepts = layernorm_grad, .run = HERE(wf_cuda_layernorm_grad) },
    { .op = "maxpool", .accepts = alike, .run = HERE(wf_cuda_maxpool), .fuses = maxpool_fuses },
    { .op = "maxpool_grad", .accepts = alike, .run = HERE(wf_cuda_maxpool_grad) },
    { .op = "avgpool", .accepts = alike, .run = HERE(wf_cuda_avgpool) },
    { .op = "avgpool_grad", .accepts = alike, .run = HERE(wf_cuda_avgpool_grad) },
    { .op = "softmax", .accepts = alike, .run = HERE(wf_cuda_softmax) },
    { .op = "softmax_grad", .accepts = pairs, .run = HERE(wf_cuda_softmax_grad) },
    { .op = "argmax", .accepts = floats, .run = HERE(wf_cuda_argmax) },
    { .op = "ce",
      .accepts = floats,
      .prepare = HERE(wf_cuda_loss_prepare),
      .run = HERE(wf_cuda_ce) },
    { .op = "ce_grad", .accepts = alike, .run = HERE(wf_cuda_ce_grad) },
    { .op = "bce", .prepare = HERE(wf_cuda_loss_prepare), .run = HERE(wf_cuda_bce) },
    { .op = "bce_grad", .run = HERE(wf_cuda_bce_grad) },
    { .op = "mse", .prepare = HERE(wf_cuda_loss_prepare), .run = HERE(wf_cuda_mse) },
    { .op = "mse_grad", .run = HERE(wf_cuda_mse_grad) },
    { .op = "dice_grad", .accepts = dice_grad, .run = HERE(wf_cuda_dice_grad) },
    { .op = "ratio", .run = HERE(wf_cuda_ratio) },
    { .op = "ratio_grad", .run = HERE(wf_cuda_ratio_grad) },
    { .op = "dice_loss", .run = HERE(wf_cuda_dice_loss) },
    { .op = "dice_loss_grad", .run = HERE(wf_cuda_dice_loss_grad) },
    { .op = "spread", .run = HERE(wf_cuda_spread) },
    { .op = "spread_grad", .run = HERE(wf_cuda_spread_grad) },
    { .op = "center", .accepts = alike, .run = HERE(wf_cuda_center) },
    { .op = "unit_rows", .accepts = alike, .run = HERE(wf_cuda_unit_rows) },
    { .op = "unit_rows_grad", .accepts = pairs, .run = HERE(wf_cuda_unit_rows_grad) },
    { .op = "mmd", .run = HERE(wf_cuda_mmd) },
    { .op = "mmd_grad", .run = HERE(wf_cuda_mmd_grad) },
    { .op = "conv", .accepts = pairs, .run = HERE(wf_cuda_conv) },
    { .op = "convt", .accepts = pairs, .run = HERE(wf_cuda_convt) },
    { .op = "conv_wgrad",
      .accepts = pairs,
      .prepare = HERE(wf_cuda_conv_wgrad_prepare),
      .run = HERE(wf_cuda_conv_wgrad) },
    /* Before cuDNN's. */
    { .op = "conv",
      .preference = 20,
      .accepts = head,
      .run = HERE(wf_cuda_head),
      .fuses = head_fuses },
    { .op = "conv_wgrad",
      .preference = 20,
      .accepts = head_wgrad,
      .prepare = HERE(wf_cuda_head_wgrad_prepare),
      .run = HERE(wf_cuda_head_wgrad),
      .fuses = head_wgrad_fuses },
    { .op = "conv", .preference = 20, .accepts = patches, .run = HERE(wf_cuda_patches_conv) },
    { .op = "convt",
      .flags = WF_KERNEL_CHEAP,
      .preference = 20,
      .accepts = patches_convt,
      .run = HERE(wf_cuda_patches_convt) },
    { .op = "convt",
      .preference = 21,
      .accepts = patches_convt_wide,
      .run = HERE(wf_cuda_patches_convt) },
    { .op = "conv_wgrad",
      .preference = 20,
      .accepts = patches_wgrad,
      .prepare = HERE(wf_cuda_patches_wgrad_prepare),
      .run = HERE(wf_cuda_patches_wgrad) },
    { 0 },
};
