#include "device/cuda/about.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "base/err.h"
#include "device/cuda/libraries.h"

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

int wf_cuda_about_major(void)
{
    int device, major;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess)
        return major;
    (void)cudaGetLastError();
    return 9;
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
    (void)snprintf(text, room, "%d.%d, driver for %d.%d", runtime / 1000, runtime % 1000 / 10,
                   driver / 1000, driver % 1000 / 10);
}

static bool print_library(size_t v, const void *table, char *text, size_t room)
{
    (void)snprintf(text, room, "%zu.%zu.%zu, %s", v / 10000, v / 100 % 100, v % 100,
                   wf_library_path(table));
    return true;
}

static bool print_why(const struct wf_err *err, char *text, size_t room)
{
    (void)snprintf(text, room, "%s", err->text);
    return false;
}

bool wf_cuda_about_cudnn(char *text, size_t room)
{
    struct wf_cudnn dnn;
    struct wf_err err = { 0 };
    return wf_cudnn_open(&dnn, &err) ? print_library(dnn.cudnnGetVersion(), &dnn, text, room)
                                     : print_why(&err, text, room);
}

bool wf_cuda_about_cublas(char *text, size_t room)
{
    struct wf_cublas lt;
    struct wf_err err = { 0 };
    return wf_cublas_open(&lt, &err) ? print_library(lt.cublasLtGetVersion(), &lt, text, room)
                                     : print_why(&err, text, room);
}
