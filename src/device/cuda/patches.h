/* Convolutions of 16-bit images whose windows lie side by side, as C sees them: patches.cu and
 * patches_wgrad.cu, used as the kernels of kernels.h are. */
#pragma once

#include "ops/attrs.h"
#include "plan/target.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where memory limits them rather than products, in builds for compute capability 9.0. */
bool wf_cuda_patches_fit(const struct wf_conv_attrs *attrs, const struct wf_shape *weights);
void wf_cuda_patches_conv(const struct wf_call *call);
void wf_cuda_patches_convt(const struct wf_call *call);
bool wf_cuda_patches_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_patches_wgrad(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
