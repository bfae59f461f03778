/* The CUDA device: opening, memory, transfers, failures. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef WF_HAVE_NCCL
#include "base/memory.h"
#include "comm/nccl.h"
#endif
#include "device/choices.h"
#include "device/cuda/kernels.h"
#include "device/update.h"
#include "device/device.h"

/* More scratch than this made no convolution faster; it is the memory of a few images less. But some have no kernel that
 * takes less: then a part of the device's memory is given, where nobody set a limit. */
static const size_t usual_workspace = (size_t)512 << 20;
enum { MOST_WORKSPACE = 32 };

/* --- failures --- */

static bool fail(struct wf_cuda *cuda, enum wf_err_code code, const char *what, const char *why)
{
    if (cuda->failure.code == WF_OK)
        (void)wf_err_set(&cuda->failure, code, "GPU %d (%s): %s: %s", cuda->ordinal, cuda->name,
                         what, why);
    return false;
}

bool wf_cuda_ok(struct wf_cuda *cuda, cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return true;
    const enum wf_err_code code = status == cudaErrorMemoryAllocation ? WF_ERR_FIT : WF_ERR_FAILED;
    return fail(cuda, code, what, cudaGetErrorString(status));
}

bool wf_cudnn_ok(struct wf_cuda *cuda, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return true;
    const bool memory = status == CUDNN_STATUS_ALLOC_FAILED;
    return fail(cuda, memory ? WF_ERR_FIT : WF_ERR_FAILED, what,
                cuda->dnn.cudnnGetErrorString(status));
}

bool wf_cublas_ok(struct wf_cuda *cuda, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    const bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    return fail(cuda, memory ? WF_ERR_FIT : WF_ERR_FAILED, what,
                cuda->lt.cublasLtGetStatusString(status));
}

bool wf_cuda_well(const struct wf_cuda *cuda, struct wf_err *err)
{
    if (cuda->failure.code == WF_OK)
        return true;
    *err = cuda->failure;
    return false;
}

/* --- opening --- */

/* Why there is no GPU, in words that say what to do. */
static bool refuse(cudaError_t status, int ordinal, struct wf_err *err)
{
    int runtime = 0, driver = 0;
    if (status == cudaErrorMemoryAllocation)
        return wf_err_set(err, WF_ERR_FIT,
                          "GPU %d is full: free its memory ('nvidia-smi' says who holds it), use "
                          "another GPU (CUDA_VISIBLE_DEVICES) or --device cpu",
                          ordinal);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
        return wf_err_set(err, WF_ERR_FAILED,
                          "no NVIDIA driver is loaded here: look at 'nvidia-smi', or use --device "
                          "cpu");
    if (status == cudaErrorInsufficientDriver || (driver > 0 && driver / 1000 < runtime / 1000))
        return wf_err_set(err, WF_ERR_FAILED,
                          "the driver knows CUDA %d.%d, this build needs %d.%d: install a newer "
                          "driver, or use --device cpu",
                          driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return wf_err_set(err, WF_ERR_FAILED,
                      "no GPU can be used here (%s): look at 'nvidia-smi' and "
                      "CUDA_VISIBLE_DEVICES, or use --device cpu",
                      cudaGetErrorString(status));
}

static bool choose_gpu(struct wf_cuda *cuda, int local_rank, struct wf_err *err)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count == 0)
        status = cudaErrorNoDevice;
    if (status != cudaSuccess)
        return refuse(status, 0, err);
    cuda->ordinal = local_rank % count;
    struct cudaDeviceProp properties;
    status = cudaSetDevice(cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaGetDeviceProperties(&properties, cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaFree(NULL); /* makes the context: a broken driver shows here */
    if (status != cudaSuccess)
        return refuse(status, cuda->ordinal, err);
    (void)snprintf(cuda->name, sizeof cuda->name, "%.63s", properties.name);
    cuda->multiprocessors = properties.multiProcessorCount;
    cuda->capability = 10 * properties.major + properties.minor;
    cuda->most_workspace = properties.totalGlobalMem / MOST_WORKSPACE;
    return true;
}

/* The context and the libraries are the process's, so open_device() finds them. */
static void warm_device(int local_rank)
{
    struct wf_cuda cuda = { 0 };
    struct wf_err ignored = { 0 };
    (void)!(choose_gpu(&cuda, local_rank, &ignored) && wf_cudnn_open(&cuda.dnn, &ignored) &&
            wf_cublas_open(&cuda.lt, &ignored));
}

static bool make_event(struct wf_cuda *cuda, cudaEvent_t *event)
{
    return wf_cuda_ok(cuda, cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                      "making an event");
}

static bool make_handles(struct wf_cuda *cuda)
{
    const size_t tickets = (size_t)WF_BRANCH_WINDOW * WF_CUDA_TICKETS * sizeof *cuda->tickets;
    return wf_cuda_ok(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                      "making a stream") &&
           wf_cuda_ok(cuda, cudaStreamCreateWithFlags(&cuda->ahead, cudaStreamNonBlocking),
                      "making a stream") &&
           wf_cuda_ok(cuda, cudaStreamCreateWithFlags(&cuda->aside, cudaStreamNonBlocking),
                      "making a stream") &&
           make_event(cuda, &cuda->read) && make_event(cuda, &cuda->sent) &&
           make_event(cuda, &cuda->taken) && make_event(cuda, &cuda->from) &&
           make_event(cuda, &cuda->upto) &&
           wf_cuda_ok(cuda,
                      cudaHostAlloc((void **)&cuda->small, WF_CUDA_SMALLS * WF_CUDA_SMALL,
                                    cudaHostAllocMapped),
                      "host memory") &&
           wf_cuda_ok(cuda, cudaMalloc((void **)&cuda->tickets, tickets), "memory of kernels") &&
           wf_cuda_ok(cuda, cudaMemsetAsync(cuda->tickets, 0, tickets, cuda->stream),
                      "memory of kernels") &&
           wf_cuda_ok(cuda, cudaMalloc((void **)&cuda->step, sizeof *cuda->step),
                      "memory of kernels") &&
           wf_cuda_ok(cuda, cudaMemsetAsync(cuda->step, 0, sizeof *cuda->step, cuda->stream),
                      "memory of kernels") &&
           wf_cudnn_ok(cuda, cuda->dnn.cudnnCreate(&cuda->cudnn), "starting cuDNN") &&
           wf_cudnn_ok(cuda, cuda->dnn.cudnnSetStream(cuda->cudnn, cuda->stream),
                       "starting cuDNN") &&
           wf_cublas_ok(cuda, cuda->lt.cublasLtCreate(&cuda->blas), "starting cuBLASLt") &&
           wf_cuda_ok(cuda, cudaStreamSynchronize(cuda->stream), "starting");
}

static void close_device(struct wf_context *context)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    /* What fails here failed before, and was told then. */
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    if (cuda->ahead)
        (void)cudaStreamSynchronize(cuda->ahead);
    if (cuda->aside)
        (void)cudaStreamSynchronize(cuda->aside);
    wf_choices_free(cuda->choices);
    if (cuda->blas)
        (void)cuda->lt.cublasLtDestroy(cuda->blas);
    if (cuda->cudnn)
        (void)cuda->dnn.cudnnDestroy(cuda->cudnn);
    for (int i = 0; i < cuda->n_marks; i++)
        (void)cudaEventDestroy(cuda->marks[i]);
    free(cuda->marks);
    (void)cudaFreeHost(cuda->small);
    (void)cudaFree(cuda->tickets);
    (void)cudaFree(cuda->step);
    const cudaEvent_t events[] = { cuda->read, cuda->sent, cuda->taken, cuda->from, cuda->upto };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    if (cuda->ahead)
        (void)cudaStreamDestroy(cuda->ahead);
    if (cuda->aside)
        (void)cudaStreamDestroy(cuda->aside);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    free(cuda);
}

static struct wf_context *open_device(const struct wf_device_options *options, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_take_zeroed(1, sizeof *cuda);
    cuda->base.device = &wf_device_cuda;
    cuda->deterministic = options->deterministic;
    cuda->exact = options->exact;
    cuda->tf32 = options->tf32;
    cuda->path = options->path;
    cuda->workspace = options->workspace ? options->workspace : usual_workspace;
    bool ok = choose_gpu(cuda, options->local_rank, err) && wf_cudnn_open(&cuda->dnn, err) &&
              wf_cublas_open(&cuda->lt, err);
    if (options->workspace)
        cuda->most_workspace = options->workspace;
    if (ok)
        ok = make_handles(cuda) || wf_cuda_well(cuda, err);
    if (ok) {
        cuda->choices = wf_choices_new(options->cache);
        return &cuda->base;
    }
    close_device(&cuda->base);
    return NULL;
}

/* --- memory --- */

static void *take(struct wf_context *context, size_t bytes)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller says what did not fit */
        return NULL;
    }
    (void)wf_cuda_ok(cuda, cudaMemsetAsync(memory, 0, bytes, cuda->stream), "clearing memory");
    return memory;
}

static void give_back(struct wf_context *context, void *memory, size_t)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    if (memory)
        (void)wf_cuda_ok(cuda, cudaFree(memory), "giving memory back");
}

static size_t room(struct wf_context *context)
{
    size_t left = 0, all = 0;
    (void)wf_cuda_ok(wf_cuda_of(context), cudaMemGetInfo(&left, &all), "asking for free memory");
    return left;
}

/* Mapped: kernels read and write it where a box is not packed. */
static void *host_take(struct wf_context *context, size_t bytes)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    for (int i = 0; bytes <= WF_CUDA_SMALL && i < WF_CUDA_SMALLS; i++)
        if (!cuda->small_taken[i]) {
            cuda->small_taken[i] = true;
            return cuda->small + (ptrdiff_t)i * WF_CUDA_SMALL;
        }
    void *memory = NULL;
    if (cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocMapped) == cudaSuccess)
        return memory;
    (void)cudaGetLastError();
    return NULL;
}

static void host_give_back(struct wf_context *context, void *memory)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    const ptrdiff_t at = (char *)memory - cuda->small;
    if (at >= 0 && at < WF_CUDA_SMALLS * WF_CUDA_SMALL)
        cuda->small_taken[at / WF_CUDA_SMALL] = false;
    else
        (void)wf_cuda_ok(cuda, cudaFreeHost(memory), "giving host memory back");
}

/* --- transfers --- */

static void launched(struct wf_cuda *cuda, const char *what)
{
    (void)wf_cuda_ok(cuda, cudaGetLastError(), what);
}

/* Rows of equal length, each packed, at a distance: of one plane. */
static bool is_rows(const struct wf_view *v)
{
    const int64_t channels = wf_region_extent(v->box, WF_C);
    return wf_region_extent(v->box, WF_N) == 1 && wf_region_extent(v->box, WF_D) == 1 &&
           (v->stride[WF_C] == 1 || channels == 1) && v->stride[WF_W] == channels;
}

static void copy(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    const size_t size = wf_dtype_size(dst->dtype);
    if (wf_region_is_empty(dst->box))
        return;
    if (wf_view_is_dense(dst) && wf_view_is_dense(src)) {
        (void)wf_cuda_ok(cuda,
                         cudaMemcpyAsync(dst->data, src->data, wf_view_bytes(dst),
                                         cudaMemcpyDefault, cuda->stream),
                         "copying");
        return;
    }
    if (is_rows(dst) && is_rows(src)) { /* also to and from the host, where a kernel is slow */
        const size_t row =
            (size_t)(wf_region_extent(dst->box, WF_W) * wf_region_extent(dst->box, WF_C)) * size;
        (void)wf_cuda_ok(cuda,
                         cudaMemcpy2DAsync(dst->data, (size_t)dst->stride[WF_H] * size, src->data,
                                           (size_t)src->stride[WF_H] * size, row,
                                           (size_t)wf_region_extent(dst->box, WF_H),
                                           cudaMemcpyDefault, cuda->stream),
                         "copying");
        return;
    }
    wf_cuda_copy(dst, src, cuda->stream);
    launched(cuda, "copying");
}

static void add(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    wf_cuda_add_to(dst, src, cuda->stream);
    launched(cuda, "adding up");
}

static bool adopt(struct wf_context *context, const void *memory, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    struct cudaPointerAttributes found;
    cudaError_t status = cudaPointerGetAttributes(&found, memory);
    if (status == cudaSuccess &&
        (found.type == cudaMemoryTypeHost || found.type == cudaMemoryTypeUnregistered))
        return wf_err_set(err, WF_ERR_USAGE, "the array is in host memory, not on GPU %d",
                          cuda->ordinal);
    if (status == cudaSuccess && found.type == cudaMemoryTypeDevice &&
        found.device != cuda->ordinal)
        return wf_err_set(err, WF_ERR_USAGE, "the array is on GPU %d, and the rank on GPU %d",
                          found.device, cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(cudaStreamLegacy);
    if (status == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* or the next kernel would be blamed */
    return wf_err_set(err, WF_ERR_FAILED, "an array on the GPU: %s", cudaGetErrorString(status));
}

static void put(struct wf_context *context, const struct wf_view *dst, const struct wf_view *host)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    copy(context, dst, host);
    if (wf_cuda_ok(cuda, cudaEventRecord(cuda->read, cuda->stream), "sending to the GPU"))
        (void)wf_cuda_ok(cuda, cudaEventSynchronize(cuda->read), "sending to the GPU");
}

/* Behind the copy that takes what lay there before. */
static void send(struct wf_context *context, const struct wf_view *dst, const struct wf_view *host)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    const char *const what = "sending to the GPU";
    (void)(wf_cuda_ok(cuda, cudaStreamWaitEvent(cuda->ahead, cuda->taken, 0), what) &&
           wf_cuda_ok(cuda,
                      cudaMemcpyAsync(dst->data, host->data, wf_view_bytes(dst),
                                      cudaMemcpyHostToDevice, cuda->ahead),
                      what) &&
           wf_cuda_ok(cuda, cudaEventRecord(cuda->sent, cuda->ahead), what));
}

/* Waits here rather than on the GPU, for the source is filled again next; mostly it has long come. */
static void take_sent(struct wf_context *context, const struct wf_view *dst,
                      const struct wf_view *sent)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)wf_cuda_ok(cuda, cudaEventSynchronize(cuda->sent), "sending to the GPU");
    copy(context, dst, sent);
    (void)wf_cuda_ok(cuda, cudaEventRecord(cuda->taken, cuda->stream), "sending to the GPU");
}

static void widen_sent(struct wf_context *context, const struct wf_view *dst,
                       const struct wf_view *sent, const float *scale, const float *offset)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)wf_cuda_ok(cuda, cudaEventSynchronize(cuda->sent), "sending to the GPU");
    wf_cuda_widen(dst, sent, scale, offset, cuda->stream);
    launched(cuda, "taking the input");
    (void)wf_cuda_ok(cuda, cudaEventRecord(cuda->taken, cuda->stream), "sending to the GPU");
}

static bool synchronize(struct wf_context *context, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)wf_cuda_ok(cuda, cudaStreamSynchronize(cuda->stream), "running");
    return wf_cuda_well(cuda, err);
}

/* The waiting thread sleeps: others decode and compress meanwhile. */
static void *point(struct wf_context *context)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    cudaEvent_t event = NULL;
    if (wf_cuda_ok(cuda,
                   cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
                   "making an event"))
        (void)wf_cuda_ok(cuda, cudaEventRecord(event, cuda->stream), "running");
    return event;
}

static bool reach(struct wf_context *context, void *point, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)wf_cuda_ok(cuda, cudaEventSynchronize(point), "running");
    (void)cudaEventDestroy(point);
    return wf_cuda_well(cuda, err);
}

static bool get(struct wf_context *context, const struct wf_view *host, const struct wf_view *src,
                struct wf_err *err)
{
    copy(context, host, src);
    return synchronize(context, err);
}

static void keep(struct wf_context *context, const struct wf_view *host, const struct wf_view *src)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    const char *const what = "copying from the GPU";
    if (!cuda->keeps)
        (void)(wf_cuda_ok(cuda, cudaEventRecord(cuda->from, cuda->stream), what) &&
               wf_cuda_ok(cuda, cudaStreamWaitEvent(cuda->aside, cuda->from, 0), what));
    cuda->keeps = true;
    (void)wf_cuda_ok(cuda,
                     cudaMemcpyAsync(host->data, src->data, wf_view_bytes(host),
                                     cudaMemcpyDeviceToHost, cuda->aside),
                     what);
}

static void fence(struct wf_context *context)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    const char *const what = "copying from the GPU";
    (void)(wf_cuda_ok(cuda, cudaEventRecord(cuda->upto, cuda->aside), what) &&
           wf_cuda_ok(cuda, cudaStreamWaitEvent(cuda->stream, cuda->upto, 0), what));
}

static bool kept(struct wf_context *context, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    cuda->keeps = false;
    (void)wf_cuda_ok(cuda, cudaStreamSynchronize(cuda->aside), "copying from the GPU");
    return wf_cuda_well(cuda, err);
}

/* --- time --- */

static void mark(struct wf_context *context, int index)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    if (index >= cuda->n_marks) {
        cudaEvent_t *const grown = realloc(cuda->marks, ((size_t)index + 1) * sizeof *grown);
        if (!grown)
            wf_no_memory(((size_t)index + 1) * sizeof *grown);
        cuda->marks = grown;
        for (; cuda->n_marks <= index; cuda->n_marks++)
            if (!wf_cuda_ok(cuda, cudaEventCreate(&cuda->marks[cuda->n_marks]), "making an event"))
                return;
    }
    (void)wf_cuda_ok(cuda, cudaEventRecord(cuda->marks[index], cuda->stream), "measuring");
}

static bool marks(struct wf_context *context, int count, double *seconds, struct wf_err *err)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    if (!synchronize(context, err))
        return false;
    for (int i = 0; i + 1 < count && i + 1 < cuda->n_marks; i++) {
        float ms = 0;
        if (!wf_cuda_ok(cuda, cudaEventElapsedTime(&ms, cuda->marks[i], cuda->marks[i + 1]),
                        "measuring"))
            return wf_cuda_well(cuda, err);
        seconds[i] = 1e-3 * (double)ms;
    }
    return true;
}

/* --- kernels --- */

struct CUstream_st *wf_cuda_stream(const struct wf_call *call)
{
    return wf_cuda_of(call->context)->stream;
}

unsigned *wf_cuda_tickets(const struct wf_call *call)
{
    const struct wf_cuda *const cuda = wf_cuda_of(call->context);
    return cuda->tickets + (ptrdiff_t)cuda->bank * WF_CUDA_TICKETS;
}

bool wf_cuda_tf32(const struct wf_call *call)
{
    return wf_cuda_of(call->context)->tf32 && call->in[0].dtype == WF_F32;
}

bool wf_cuda_exact(const struct wf_call *call)
{
    return wf_cuda_of(call->context)->exact;
}

const uint64_t *wf_cuda_step(const struct wf_call *call)
{
    return wf_cuda_of(call->context)->step;
}

static void start(struct wf_context *context, uint64_t step)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    wf_cuda_store(cuda->step, step, cuda->stream);
    launched(cuda, "starting a step");
}

static void ran(struct wf_context *context, const struct wf_call *call)
{
    char what[160];
    const cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess)
        return;
    (void)snprintf(what, sizeof what, "layer '%.80s' (%s)", call->node->name, call->node->op->name);
    (void)wf_cuda_ok(wf_cuda_of(context), status, what);
}

static const struct wf_kernel *find(const struct wf_node *node)
{
    return wf_kernel_find(wf_cuda_kernels, node);
}

/* Of an H200, for the cost estimate. */
const struct wf_device wf_device_cuda = {
    .name = "cuda",
    .find = find,
    .fallback = &wf_cuda_nothing,
    .updater = &wf_cuda_updater,
    .open = open_device,
    .close = close_device,
    .warm = warm_device,
    .memory = { .alloc = take,
                .free = give_back,
                .room = room,
                .copy = copy,
                .add = add,
                .adopt = adopt },
    .transfer = {
        .put = put,
        .send = send,
        .take = take_sent,
        .widen = widen_sent,
        .get = get,
        .keep = keep,
        .fence = fence,
        .kept = kept,
        .host_alloc = host_take,
        .host_free = host_give_back,
#ifdef WF_HAVE_NCCL
        .transport = wf_nccl_device_transport,
#endif
    },
    .stream = {
        .synchronize = synchronize,
        .point = point,
        .reach = reach,
        .start = start,
        .ran = ran,
        .record = wf_cuda_record,
        .recorded = wf_cuda_recorded,
        .replay = wf_cuda_replay,
        .forget = wf_cuda_forget,
        .branch = wf_cuda_branch,
        .mark = mark,
        .marks = marks,
    },
    .cost = WF_CUDA_COST,
};
