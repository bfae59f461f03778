/*
 * Convolutions of few channels and large images, for conv_choose.c to try beside cuDNN's: in builds for
 * compute capability 9.0 only (WF_HAVE_HOPPER), from hopper_*.cu, which use what no other GPU has.
 *
 * x and y may be strided in all axes but the channels; x begins on a boundary of 16 bytes. The run is
 * false where nothing was launched.
 */
#pragma once

#include "ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* conv and (back) convt, 3 x 3 from 64 or 128 channels: hopper_tiled.cu */
bool wf_cuda_tiled_fits(const struct wf_node *node);
bool wf_cuda_tiled(const struct wf_call *call, bool back);
/* A norm that is computed with the convolution of its input (wf_call.fused), which is not made then. */
bool wf_cuda_tiled_norm(const struct wf_call *call);
/* conv, 3 x 3 from at most 8 channels: hopper_stem.cu */
bool wf_cuda_stem_fits(const struct wf_node *node);
bool wf_cuda_stem(const struct wf_call *call);
bool wf_cuda_stem_norm(const struct wf_call *call);
/* conv and (back) convt, 3 x 3 x 3 from 32 or 64 channels: hopper_volume.cu */
bool wf_cuda_volume_fits(const struct wf_node *node);
bool wf_cuda_volume(const struct wf_call *call, bool back);

/* conv_wgrad, 3 x 3 and any depth: hopper_wgrad.cu. Channels of `image` and `result` lie packed on
 * boundaries of 16 bytes; `weights` may have fewer. */
struct CUstream_st;
struct wf_cuda_wgrad {
    struct wf_view image, result, weights;
    int64_t pad_lo[3]; /* of `image` against `result` */
    int multiprocessors;
    void *parts; /* wf_cuda_tiled_wgrad_scratch() bytes */
};
bool wf_cuda_tiled_wgrad_fits(const struct wf_node *node);
size_t wf_cuda_tiled_wgrad_scratch(const struct wf_cuda_wgrad *g);
bool wf_cuda_tiled_wgrad(const struct wf_cuda_wgrad *g, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
