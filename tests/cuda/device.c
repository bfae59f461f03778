/* gpu.h on a real GPU: the library's own device. */
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

static struct wf_context *context;
static unsigned *tickets;

static void must(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    abort();
}

bool gpu_start(void)
{
    struct wf_err err = { 0 };
    if (!wf_device_open(&wf_device_cuda, &(struct wf_device_options){ .cache = "" }, &context,
                        &err)) {
        printf("not run, there is no GPU: %s\n", err.text);
        return false;
    }
    tickets = wf_cuda_of(context)->tickets;
    return true;
}

struct wf_context *gpu_context(void)
{
    return context;
}

void gpu_step(uint64_t step)
{
    must(cudaMemcpy(wf_cuda_of(context)->step, &step, sizeof step, cudaMemcpyHostToDevice), "step");
}

void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes ? bytes : 1), "memory");
    return memory;
}

void gpu_free(void *memory)
{
    must(cudaFree(memory), "memory");
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying");
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying");
}

/* The order is the GPU's own; what can be changed is who adds up the blocks' parts. */
void gpu_turn(bool other_way)
{
    wf_cuda_of(context)->tickets = other_way ? NULL : tickets;
}

bool gpu_finish(void)
{
    static unsigned now[WF_CUDA_TICKETS];
    const cudaError_t status = cudaDeviceSynchronize(), last = cudaGetLastError();
    if (status != cudaSuccess || last != cudaSuccess) {
        (void)fprintf(stderr, "%s\n", cudaGetErrorString(status != cudaSuccess ? status : last));
        return false;
    }
    gpu_get(now, tickets, sizeof now);
    for (int i = 0; i < WF_CUDA_TICKETS; i++)
        if (now[i] != 0)
            return false;
    return true;
}
