/* gpu.h on a GPU: the device itself. */
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/device.h"

static struct wf_cuda *cuda; /* arch-ok: a test has one */
static unsigned *tickets;    /* arch-ok: while the device goes without them */

static void check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    abort();
}

bool gpu_start(void)
{
    struct wf_err err = { 0 };
    struct wf_context *context;
    const struct wf_device_options options = { .deterministic = true, .cache = "" };
    if (!wf_device_open(&wf_device_cuda, &options, &context, &err)) {
        (void)printf("not run: %s\n", err.text);
        return false;
    }
    cuda = wf_cuda_of(context);
    tickets = cuda->tickets;
    return true;
}

struct wf_context *gpu_context(void)
{
    return &cuda->base;
}

struct CUstream_st *gpu_stream(void)
{
    return cuda->stream;
}

void gpu_step(uint64_t step)
{
    cuda->base.device->stream.start(&cuda->base, step);
}

void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes ? bytes : 1), "cudaMalloc");
    return memory;
}

void gpu_free(void *memory)
{
    check(cudaFree(memory), "cudaFree");
}

size_t gpu_room(void)
{
    size_t room = 0, all = 0;
    check(cudaMemGetInfo(&room, &all), "memory");
    return room;
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda->stream), "put");
    check(cudaStreamSynchronize(cuda->stream), "put");
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda->stream), "get");
    check(cudaStreamSynchronize(cuda->stream), "get");
}

void gpu_turn(bool other_way)
{
    cuda->tickets = other_way ? NULL : tickets;
}

void gpu_shorten(bool tf32)
{
    cuda->tf32 = tf32;
}

bool gpu_finish(void)
{
    struct wf_err err = { 0 };
    const bool ok = wf_cuda_ok(cuda, cudaGetLastError(), "launching") &&
                    cuda->base.device->stream.synchronize(&cuda->base, &err);
    if (!ok)
        (void)fprintf(stderr, "%s\n", cuda->failure.text);
    return ok;
}
