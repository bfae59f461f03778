/*
 * Convolutions of few channels and large images, for conv_choose.c to try beside cuDNN's: in builds for
 * compute capability 9.0 only (WF_HAVE_HOPPER), from hopper_*.cu, which use what no other GPU has.
 *
 * x and y may be strided in all axes but the channels; x begins on a boundary of 16 bytes. The run is
 * false where nothing was launched.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_H
#define WF_DEVICE_CUDA_HOPPER_H

#include "ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* conv and convt, 3 x 3 from 64 or 128 channels: hopper_tiled.cu */
bool wf_cuda_tiled_fits(const struct wf_node *node);
bool wf_cuda_tiled(const struct wf_call *call);
/* conv, 3 x 3 from at most 8 channels, packed: hopper_thin.cu */
bool wf_cuda_thin_fits(const struct wf_node *node);
bool wf_cuda_thin(const struct wf_call *call);

#ifdef __cplusplus
}
#endif

#endif
