/*
 * Which of cuDNN's kernels was the fastest of those that are right, by problem, and which were wrong: in
 * the table of device/choices.h. A key names the GPU, cuDNN's version and the problem.
 */
#pragma once

#include "device/choices.h"
#include "device/cuda/cudnn.h"

/* False where the problem is not known. WF_ENGINE_NONE: there is none for it. */
bool wf_cuda_choice_find(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                         struct wf_cudnn_choice *choice);
void wf_cuda_choice_put(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                        const struct wf_cudnn_choice *choice);
/* The plan of a known choice. One that is compiled is kept in a file, here and by keep(), and comes from
 * there. */
struct wf_cudnn_plan *wf_cuda_choice_plan(const struct wf_cuda *cuda, struct wf_cudnn_graph *graph,
                                          const struct wf_cudnn_problem *problem,
                                          const struct wf_cudnn_choice *choice);
void wf_cuda_choice_keep(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                         const struct wf_cudnn_choice *choice, const struct wf_cudnn_plan *plan);
/* Its numbers were wrong: kept for people ('widefield check'). */
void wf_cuda_choice_put_wrong(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                              const struct wf_cudnn_choice *choice);
