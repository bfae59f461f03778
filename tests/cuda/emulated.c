/* gpu.h and what kernels ask of a device, on the host. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.h"

extern struct wf_emulate { /* tests/emulate/emulate.h */
    bool reversed;
    long launches, threads;
} wf_emulate;

static unsigned tickets[WF_CUDA_TICKETS];
static bool shortens; /* arch-ok: a test has one device */

struct CUstream_st *wf_cuda_stream(const struct wf_call *call)
{
    (void)call;
    return NULL;
}

unsigned *wf_cuda_tickets(const struct wf_call *call)
{
    (void)call;
    return wf_emulate.reversed ? NULL : tickets;
}

bool wf_cuda_tf32(const struct wf_call *call)
{
    return shortens && call->in[0].dtype == WF_F32;
}

bool wf_cuda_exact(const struct wf_call *call)
{
    (void)call;
    return false;
}

const uint64_t *wf_cuda_step(const struct wf_call *call)
{
    static _Thread_local uint64_t step;
    step = call->step;
    return &step;
}

bool gpu_start(void)
{
    return true;
}

struct wf_context *gpu_context(void)
{
    return NULL;
}

struct CUstream_st *gpu_stream(void)
{
    return NULL;
}

void gpu_step(uint64_t step)
{
    (void)step; /* wf_cuda_step() takes it from the call */
}

void *gpu_alloc(size_t bytes)
{
    void *const memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

void gpu_free(void *memory)
{
    free(memory);
}

size_t gpu_room(void)
{
    return 0; /* not enough for anything large */
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void gpu_turn(bool other_way)
{
    wf_emulate.reversed = other_way;
}

void gpu_shorten(bool tf32)
{
    shortens = tf32;
}

/* Every ticket was given back. */
bool gpu_finish(void)
{
    for (int i = 0; i < WF_CUDA_TICKETS; i++)
        if (tickets[i] != 0)
            return false;
    return true;
}
