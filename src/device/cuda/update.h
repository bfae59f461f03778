/* The optimiser's sweeps on the GPU (device/update.h). */
#ifndef WF_DEVICE_CUDA_UPDATE_H
#define WF_DEVICE_CUDA_UPDATE_H

#include "device/update.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

extern const struct wf_updater wf_cuda_updater; /* update.c */

/* Where the layout lies in device memory. */
struct wf_cuda_update_layout {
    int n_tensors, n_pieces;
    struct wf_update_tensor *tensors;
    struct wf_update_piece *pieces;
    double *sums;  /* two for each piece */
    double *total; /* one */
    float *ratios; /* for each tensor */
};

/* update.cu: enqueue. */
void wf_cuda_update_squares(const struct wf_cuda_update_layout *layout, const float *grad,
                            struct CUstream_st *stream);
void wf_cuda_update_accumulate(const struct wf_cuda_update_layout *layout, float *sum,
                               const float *grad, float weight, bool first,
                               struct CUstream_st *stream);
void wf_cuda_update_sweep(const struct wf_cuda_update_layout *layout, const struct wf_update *u,
                          struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
