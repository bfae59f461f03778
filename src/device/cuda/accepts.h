/* Nodes that cuDNN and cuBLASLt may run; no CUDA header is needed to read it. */
#pragma once

#include "device/cuda/kernels.h"
#include "ops/attrs.h"

static inline bool wf_cudnn_accepts(const struct wf_node *node)
{
    const struct wf_value *const bias = node->n_in > 2 ? node->in[2] : NULL;
    return wf_cuda_is_float(node->in[0]) && node->in[1]->dtype == node->in[0]->dtype &&
           (!bias || bias->dtype == WF_F32);
}

static inline bool wf_cublas_is_pixel(const struct wf_value *v)
{
    return v->shape.at[WF_D] == 1 && v->shape.at[WF_H] == 1 && v->shape.at[WF_W] == 1;
}

static inline bool wf_cublas_accepts(const struct wf_node *node)
{
    const struct wf_conv_attrs *const a = node->attrs;
    const bool plain = a->groups == 1 && a->pad_lo[0] + a->pad_lo[1] + a->pad_lo[2] == 0 &&
                       a->pad_hi[0] + a->pad_hi[1] + a->pad_hi[2] == 0;
    return plain && wf_cudnn_accepts(node) && wf_cublas_is_pixel(node->in[0]) &&
           wf_cublas_is_pixel(node->in[1]) && wf_cublas_is_pixel(node->out[0]);
}

/* Where no device is at hand: the largest workspace of the plans of a U-Net. */
enum { WF_CUDNN_LIKELY_WORKSPACE = 2 << 20 };
