#include "device/cuda/about.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>

int wf_cuda_about_count(char *why, size_t room)
{
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        (void)snprintf(why, room, "no GPU can be used: %s",
                       cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status));
        return 0;
    }
    return count;
}

void wf_cuda_about_gpu(int ordinal, char *text, size_t room)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, ordinal) != cudaSuccess) {
        (void)snprintf(text, room, "does not answer");
        return;
    }
    (void)snprintf(text, room, "%s, %.1f GiB, %d multiprocessors, compute capability %d.%d", p.name,
                   (double)p.totalGlobalMem / (1 << 30), p.multiProcessorCount, p.major, p.minor);
}

void wf_cuda_about_memory(int ordinal, size_t *bytes, size_t *avail)
{
    int before = 0;
    *bytes = *avail = 0;
    if (cudaGetDevice(&before) != cudaSuccess)
        return;
    if (cudaSetDevice(ordinal) == cudaSuccess && cudaMemGetInfo(avail, bytes) != cudaSuccess)
        *bytes = *avail = 0;
    (void)cudaSetDevice(before);
}

void wf_cuda_about_versions(char *text, size_t room)
{
    int runtime = 0, driver = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    const size_t cudnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    (void)snprintf(text, room, "%d.%d, driver for %d.%d, cuDNN %zu.%zu.%zu, cuBLASLt %zu.%zu.%zu",
                   runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10,
                   cudnn / 10000, cudnn / 100 % 100, cudnn % 100, blas / 10000, blas / 100 % 100,
                   blas % 100);
}
