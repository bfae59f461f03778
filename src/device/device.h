/* The devices. What a device is and does stands in plan/target.h. */
#pragma once

#include "plan/target.h"

extern const struct wf_device wf_device_cpu;       /* oneDNN and own kernels */
extern const struct wf_device wf_device_reference; /* every operator's slow, right kernel */
#ifdef WF_HAVE_CUDA
extern const struct wf_device wf_device_cuda; /* cuDNN, cuBLASLt and own kernels */
#else
extern const struct wf_device wf_device_paper_cuda; /* plans for it, and runs nothing */
#endif
/* Of an H200, for the cost estimate where there are no figures (plan/figures.h). */
#define WF_CUDA_COST                                                                               \
    {                                                                                              \
        .flops_per_second = 4e14, .bytes_per_second = 3e12, .links = {                             \
            .bytes_per_second = 2e11,                                                              \
            .seconds = 1e-5                                                                        \
        }                                                                                          \
    }

extern const struct wf_kernel
    *const wf_cpu_kernels[]; /* rows, see wf_kernel_find(); made by the build */
extern const struct wf_kernel *const wf_cuda_kernels[];
