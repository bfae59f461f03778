/* The updater on the host's side: the layout in device memory, and waiting for a norm. */
#include "device/update.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"

struct prepared {
    struct wf_cuda *cuda;
    struct wf_cuda_layout layout;
    void *tensors, *pieces; /* of the layout, to be given back */
    double *sum;            /* in device memory */
    double *seen;           /* in host memory that the GPU copies to */
    float *factor;          /* in device memory: of the gradient */
    cudaEvent_t copied;     /* `seen` is there */
};

static void release(void *made)
{
    struct prepared *const p = made;
    if (!p)
        return;
    (void)cudaStreamSynchronize(p->cuda->stream);
    (void)cudaFree(p->tensors);
    (void)cudaFree(p->pieces);
    (void)cudaFree(p->layout.sums);
    (void)cudaFree(p->layout.ratios);
    (void)cudaFree(p->sum);
    (void)cudaFreeHost(p->seen);
    (void)cudaFree(p->factor);
    if (p->copied)
        (void)cudaEventDestroy(p->copied);
    free(p);
}

/* Device memory, zeroed or as `from`. */
static void *take(const struct prepared *p, const void *from, size_t bytes)
{
    cudaStream_t stream = p->cuda->stream;
    void *to = NULL;
    if (cudaMalloc(&to, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    const cudaError_t status =
        from && bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream)
                      : cudaMemsetAsync(to, 0, bytes, stream);
    if (status == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess)
        return to;
    (void)cudaFree(to);
    return NULL;
}

static void *prepare(struct wf_context *context, const struct wf_update_layout *layout)
{
    struct prepared *const p = wf_take_zeroed(1, sizeof *p);
    p->cuda = wf_cuda_of(context);
    const size_t tensors = (size_t)layout->n_tensors, pieces = (size_t)layout->n_pieces;
    p->tensors = take(p, layout->tensors, tensors * sizeof *layout->tensors);
    p->pieces = take(p, layout->pieces, pieces * sizeof *layout->pieces);
    p->layout = (struct wf_cuda_layout){
        .n_tensors = layout->n_tensors,
        .n_pieces = layout->n_pieces,
        .tensors = p->tensors,
        .pieces = p->pieces,
        .sums = take(p, NULL, 2 * pieces * sizeof(double)),
        .ratios = take(p, NULL, tensors * sizeof(float)),
    };
    p->sum = take(p, NULL, sizeof *p->sum);
    p->factor = take(p, NULL, sizeof *p->factor);
    if (p->tensors && p->pieces && p->layout.sums && p->layout.ratios && p->sum && p->factor &&
        cudaEventCreateWithFlags(&p->copied, cudaEventDisableTiming) == cudaSuccess &&
        cudaHostAlloc((void **)&p->seen, sizeof *p->seen, 0) == cudaSuccess)
        return p;
    release(p);
    return NULL;
}

static void enqueue_squares(const struct prepared *p, const float *grad)
{
    static const char what[] = "norm of the gradient";
    struct wf_cuda *const cuda = p->cuda;
    wf_cuda_squares(&p->layout, grad, p->sum, cuda->stream);
    *p->seen = (double)NAN; /* what is read where a call fails */
    (void)(wf_cuda_ok(cuda, cudaGetLastError(), what) &&
           wf_cuda_ok(cuda,
                      cudaMemcpyAsync(p->seen, p->sum, sizeof *p->seen, cudaMemcpyDeviceToHost,
                                      cuda->stream),
                      what) &&
           wf_cuda_ok(cuda, cudaEventRecord(p->copied, cuda->stream), what));
}

static double read_squares(void *made)
{
    const struct prepared *const p = made;
    return wf_cuda_ok(p->cuda, cudaEventSynchronize(p->copied), "running") ? *p->seen : (double)NAN;
}

static double squares(void *made, const float *grad)
{
    enqueue_squares(made, grad);
    return read_squares(made);
}

static void update(void *made, const struct wf_update *u)
{
    const struct prepared *const p = made;
    wf_cuda_update(&p->layout, u, p->cuda->stream);
    (void)wf_cuda_ok(p->cuda, cudaGetLastError(), "updating the weights");
}

static void update_clipped(void *made, const struct wf_update *u, double clip)
{
    const struct prepared *const p = made;
    struct wf_update own = *u;
    own.factor = p->factor;
    enqueue_squares(p, u->grad);
    wf_cuda_factor(p->sum, (double)u->scale, clip, p->factor, p->cuda->stream);
    update(made, &own);
}

const struct wf_updater wf_cuda_updater = {
    .prepare = prepare,
    .release = release,
    .squares = squares,
    .update = update,
    .update_clipped = update_clipped,
    .read_squares = read_squares,
};
