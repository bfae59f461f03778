/* What this machine has of CUDA, in words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many GPUs can be used; with none, `why` says why. */
int wf_cuda_about_count(char *why, size_t room);
void wf_cuda_about_gpu(int ordinal, char *text, size_t room);
/* Bytes of its memory, and those that are free; 0: it does not answer. */
void wf_cuda_about_memory(int ordinal, size_t *bytes, size_t *avail);
/* Versions of runtime and driver. */
void wf_cuda_about_versions(char *text, size_t room);
/* "9.14.0, /usr/lib/libcudnn.so.9", or false with what to install. */
bool wf_cuda_about_cudnn(char *text, size_t room);
bool wf_cuda_about_cublas(char *text, size_t room);
/* Of the GPU that is used, its compute capability before the point; without one 9: a plan is made as if it had all
 * kernels. */
int wf_cuda_about_major(void);

#ifdef __cplusplus
}
#endif
