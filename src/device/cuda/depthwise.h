/* Convolutions whose channels are all groups of their own; for conv.cu. */
#pragma once

#include "device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernels below take a node with these weights. */
bool wf_cuda_is_depthwise(const struct wf_node *node, const struct wf_shape *weights);
/* conv, or `back`: convt. Work that is empty is the caller's. */
void wf_cuda_depthwise(const struct wf_call *call, bool back);
size_t wf_cuda_depthwise_wgrad_scratch(const struct wf_prepare *p);
void wf_cuda_depthwise_wgrad(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
