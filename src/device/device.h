/* The devices. What a device is and does stands in plan/target.h. */
#pragma once

#include "plan/target.h"

extern const struct wf_device wf_device_cpu;       /* oneDNN and own kernels */
extern const struct wf_device wf_device_reference; /* every operator's slow, right kernel */
#ifdef WF_HAVE_CUDA
extern const struct wf_device wf_device_cuda; /* cuDNN, cuBLASLt and own kernels */
#endif

extern const struct wf_kernel
    *const wf_cpu_kernels[]; /* rows, see wf_kernel_find(); made by the build */
extern const struct wf_kernel *const wf_cuda_kernels[];
