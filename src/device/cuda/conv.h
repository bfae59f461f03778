/* One step of a convolution on the GPU: what its kernel prepared. */
#pragma once

#include "device/cuda/cudnn.h"

struct wf_cuda_conv_step {
    struct wf_cuda *cuda;
    struct wf_cudnn_problem problem; /* with padded channels */
    int64_t in, out;                 /* the real ones */
    bool bias;                       /* the node has one; problem.bias: cuDNN adds it */
    struct wf_cudnn_plan *plan;      /* NULL: our own kernel */
    int64_t engine;          /* which of our own: TILED, STEM, VOLUME, NONE for any convolution */
    int wrong;               /* that were passed over when this one was chosen */
    size_t own_scratch;      /* of the one for any convolution */
    size_t engine_workspace; /* of problem.own */
    /* Places in the scratch; where a tensor needs none its bytes are 0. */
    size_t at_image, at_weights, at_result, at_workspace;
    size_t image_bytes, weights_bytes, result_bytes;
};

/* The problem between these boxes and the places in the scratch, without a plan; false: not one for cuDNN. Without
 * a device: what is known beforehand. */
bool wf_cuda_conv_step_init(struct wf_cuda_conv_step *step, struct wf_cuda *cuda,
                            const struct wf_prepare *prepare);
/* Enqueues the step. */
void wf_cuda_conv_step_run(struct wf_cuda_conv_step *step, const struct wf_call *call);
/* Bytes of scratch with this plan. */
size_t wf_cuda_conv_step_scratch(const struct wf_cuda_conv_step *step);

/* conv_choose.c: finds the step's plan or engine, in the cache or by trying; leaves them NULL and NONE
 * where there is none that is right. */
void wf_cuda_conv_step_choose(struct wf_cuda_conv_step *step, const struct wf_prepare *prepare);
/* The same without trying: false where it was never chosen. */
bool wf_cuda_conv_step_recall(struct wf_cuda_conv_step *step, const struct wf_prepare *prepare);
