/* Convolutions of 16-bit images whose windows lie side by side, as C sees them: patches.cu and
 * patches_wgrad.cu, used as the kernels of kernels.h are. */
#pragma once

#include "ops/attrs.h"
#include "plan/target.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WF_PATCHES_TAPS = 8 }; /* of a window, at most */

static inline int64_t wf_patches_taps(const struct wf_shape *weights)
{
    return weights->at[WF_D] * weights->at[WF_H] * weights->at[WF_W];
}

static inline bool wf_patches_lie(const struct wf_conv_attrs *a, const struct wf_shape *weights)
{
    const int64_t taps = wf_patches_taps(weights);
    bool lie = a->groups == 1 && taps > 1 && taps <= WF_PATCHES_TAPS;
    for (int i = 0; i < 3; i++) {
        const int64_t kernel = weights->at[WF_D + i];
        lie = lie && kernel == a->stride[i] && a->pad_lo[i] == 0 && a->pad_hi[i] == 0 &&
              (kernel == 1 || a->dilation[i] == 1);
    }
    return lie;
}

/* Products per byte: past this other kernels are faster, copies included. */
static inline bool wf_patches_by_memory(const struct wf_shape *weights)
{
    enum { DENSE = 110, PIECE = 8 };
    const int64_t rows = weights->at[WF_N], columns = wf_patches_taps(weights) * weights->at[WF_C];
    return rows * columns <= DENSE * (rows + columns) && rows % PIECE == 0 &&
           weights->at[WF_C] % PIECE == 0;
}

/* Whether products can be taken in blocks of 64 channels by two of 64 filters: hopper_up.cu. */
static inline bool wf_patches_in_blocks(const struct wf_shape *weights)
{
    enum { BLOCK = 64 };
    const int64_t filters = weights->at[WF_C];
    return weights->at[WF_N] % BLOCK == 0 && filters % BLOCK == 0 &&
           wf_patches_taps(weights) * (filters / BLOCK) % 2 == 0;
}

/* Where memory limits them rather than products, in builds for compute capability 9.0. */
bool wf_cuda_patches_fit(const struct wf_conv_attrs *attrs, const struct wf_shape *weights);
/* convt of more channels, likewise. */
bool wf_cuda_up_fits(const struct wf_conv_attrs *attrs, const struct wf_shape *weights);
/* hopper_up.cu: of blocks of channels. False: not launched, memory lies oddly. */
bool wf_cuda_up(const struct wf_call *call);
void wf_cuda_patches_conv(const struct wf_call *call);
void wf_cuda_patches_convt(const struct wf_call *call);
bool wf_cuda_patches_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_patches_wgrad(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
