/* What kernels ask of the device and the device of kernels, beside the operators; no CUDA header is
 * needed to read it. */
#pragma once

#include "plan/target.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* *cudaStream_t */

/* cuda.c, for kernels: where the number of the call's step stands, in device memory. A captured step
 * is replayed with its launches as they were, so dropout reads it there and not in the call. */
const uint64_t *wf_cuda_step(const struct wf_call *call);

/* hooks.cu, for the device. */
void wf_cuda_store(uint64_t *to, uint64_t value, struct CUstream_st *stream);
/* y += bias, f32, per channel; y packed. */
void wf_cuda_add_bias(const struct wf_view *y, const float *bias, struct CUstream_st *stream);
/* Numbers between -1 and 1 that look drawn by lot, over packed floats. */
void wf_cuda_noise(void *to, int dtype, int64_t count, uint32_t seed, struct CUstream_st *stream);

/* How far a is from b: sums of squares of the difference and of b, and how many elements differ by more than the
 * tolerance of (their size + `usual` times that of the mean one); NaN does. In device memory. */
struct wf_cuda_distance {
    double apart, whole;
    unsigned long long outside;
};
struct wf_cuda_compare {
    const void *a, *b; /* packed */
    int dtype;
    int64_t count;
    double tolerance, usual;
    struct wf_cuda_distance *to;
    struct CUstream_st *stream;
};
void wf_cuda_compare(const struct wf_cuda_compare *c);

#ifdef __cplusplus
}
#endif
