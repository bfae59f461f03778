/*
 * A trial of a convolution's step before there is a run: in memory like that of the step, on noise, with the plan or
 * engine that the step has at the moment.
 *
 *     struct wf_conv_trial t;
 *     bool fits = wf_conv_trial_init(&t, step, prepare, workspace);
 *     wf_conv_trial_fill(&t);
 *     double seconds = wf_conv_trial_time(&t, INFINITY);
 *     bool right = wf_conv_trial_check(&t) == WF_CONV_RIGHT;
 *     wf_conv_trial_release(&t);
 */
#pragma once

#include "device/cuda/conv.h"
#include "device/cuda/kernels.h"

struct wf_conv_trial {
    struct wf_cuda_conv_step *step;
    const struct wf_prepare *prepare;
    struct wf_view in[3], out[1];
    void *memory, *scratch, *sample, *sample_scratch;
    struct wf_cuda_distance *distance;
    size_t sample_bytes;
    cudaEvent_t before, after;
};

/* False where there is no memory for it; to be released all the same. */
bool wf_conv_trial_init(struct wf_conv_trial *t, struct wf_cuda_conv_step *s,
                        const struct wf_prepare *p, size_t workspace);
void wf_conv_trial_release(struct wf_conv_trial *t);
/* Noise into what is read. */
void wf_conv_trial_fill(const struct wf_conv_trial *t);

enum { WF_CONV_TIMED_RUNS = 3 };
/* Seconds of a run; infinite where it failed, which is forgotten: others are left. A run that takes far longer than
 * another's best, and than loading the kernel may, or more than a second, is the last one; the first run where there is
 * no best yet, and cuDNN's first of all, may take ten. */
double wf_conv_trial_time(const struct wf_conv_trial *t, double best_known);

/* Not run: nothing was compared, so nothing is known of its numbers. */
enum wf_conv_outcome { WF_CONV_RIGHT, WF_CONV_WRONG, WF_CONV_NOT_RUN };

/* Against our own kernel for any convolution, in some rows. */
enum wf_conv_outcome wf_conv_trial_check(const struct wf_conv_trial *t);
