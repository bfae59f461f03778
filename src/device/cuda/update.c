/* The updater on the host's side: the layout in device memory, and waiting for a norm. */
#include "device/cuda/update.h"

#include <math.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

struct prepared {
    struct wf_cuda *cuda;
    struct wf_cuda_update_layout layout;
    double *total; /* in host memory that the GPU copies to */
};

static void release(void *made)
{
    struct prepared *const p = made;
    if (!p)
        return;
    (void)cudaFree(p->layout.tensors);
    (void)cudaFree(p->layout.pieces);
    (void)cudaFree(p->layout.sums);
    (void)cudaFree(p->layout.total);
    (void)cudaFree(p->layout.ratios);
    (void)cudaFreeHost(p->total);
    free(p);
}

/* Device memory, zeroed or as `from`. */
static bool take(const struct prepared *p, void **to, const void *from, size_t bytes)
{
    cudaStream_t stream = p->cuda->stream;
    if (cudaMalloc(to, bytes ? bytes : 1) != cudaSuccess) {
        *to = NULL;
        (void)cudaGetLastError();
        return false;
    }
    const cudaError_t status =
        from ? cudaMemcpyAsync(*to, from, bytes, cudaMemcpyHostToDevice, stream)
             : cudaMemsetAsync(*to, 0, bytes, stream);
    return status == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess;
}

static void *prepare(struct wf_context *context, const struct wf_update_layout *layout)
{
    struct prepared *const p = calloc(1, sizeof *p);
    WF_BUG_ON(!p, "out of memory");
    p->cuda = wf_cuda_of(context);
    const size_t tensors = (size_t)layout->n_tensors, pieces = (size_t)layout->n_pieces;
    struct wf_cuda_update_layout *const l = &p->layout;
    l->n_tensors = layout->n_tensors;
    l->n_pieces = layout->n_pieces;
    if (take(p, (void **)&l->tensors, layout->tensors, tensors * sizeof *l->tensors) &&
        take(p, (void **)&l->pieces, layout->pieces, pieces * sizeof *l->pieces) &&
        take(p, (void **)&l->sums, NULL, 2 * pieces * sizeof *l->sums) &&
        take(p, (void **)&l->total, NULL, sizeof *l->total) &&
        take(p, (void **)&l->ratios, NULL, tensors * sizeof *l->ratios) &&
        cudaHostAlloc((void **)&p->total, sizeof *p->total, 0) == cudaSuccess)
        return p;
    release(p);
    return NULL;
}

static double squares(void *made, const float *grad)
{
    const struct prepared *const p = made;
    struct wf_cuda *const cuda = p->cuda;
    wf_cuda_update_squares(&p->layout, grad, cuda->stream);
    const bool ok = wf_cuda_ok(cuda, cudaGetLastError(), "norm of the gradient") &&
                    wf_cuda_ok(cuda,
                               cudaMemcpyAsync(p->total, p->layout.total, sizeof *p->total,
                                               cudaMemcpyDeviceToHost, cuda->stream),
                               "norm of the gradient") &&
                    wf_cuda_ok(cuda, cudaStreamSynchronize(cuda->stream), "running");
    return ok ? *p->total : (double)NAN;
}

static void accumulate(void *made, float *sum, const float *grad, float weight, bool first)
{
    const struct prepared *const p = made;
    wf_cuda_update_accumulate(&p->layout, sum, grad, weight, first, p->cuda->stream);
    (void)wf_cuda_ok(p->cuda, cudaGetLastError(), "adding up gradients");
}

static void update(void *made, const struct wf_update *u)
{
    const struct prepared *const p = made;
    wf_cuda_update_sweep(&p->layout, u, p->cuda->stream);
    (void)wf_cuda_ok(p->cuda, cudaGetLastError(), "updating the weights");
}

const struct wf_updater wf_cuda_updater = {
    .prepare = prepare,
    .release = release,
    .squares = squares,
    .accumulate = accumulate,
    .update = update,
};
