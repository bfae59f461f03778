/*
 * The CUDA device on the host's side: a rank's context, and what its parts ask of each other.
 *
 * A context is one rank's end of a GPU: a stream on which everything is enqueued in order, the
 * libraries' handles, and the first failure. Ranks that are threads of one process have one each,
 * also on the same GPU. Kernels (kernels.h) enqueue on the stream of their call and keep nothing.
 *
 * Failures. A call that enqueues cannot return an error: it notes the first one with
 * wf_cuda_ok(), and whoever waits next (get, squares, synchronize) returns it.
 *
 * Graphs. A step may be captured once and replayed: pointers and numbers in a launch are then fixed.
 * What changes from step to step (the step's number, for dropout) is read from device memory:
 * wf_cuda_step().
 */
#pragma once

#include <cuda_runtime_api.h>

#include "device/cuda/hooks.h"
#include "device/cuda/libraries.h"

enum { WF_CUDA_SMALLS = 16, WF_CUDA_SMALL = 1024 };

struct wf_cuda {
    struct wf_context base; /* first */
    int ordinal;            /* of the GPU among those of this process */
    int multiprocessors;
    int capability; /* 10 * major + minor */
    char name[64];
    bool deterministic, exact, tf32; /* as in wf_device_options */
    enum wf_device_path path;
    size_t workspace;      /* the most a library's kernel may ask for */
    size_t most_workspace; /* where all of a convolution's ask for more */
    cudaStream_t stream;
    cudaEvent_t read;        /* put() has read its source */
    cudaStream_t ahead;      /* of send() */
    cudaEvent_t sent, taken; /* on `ahead`, on `stream` */
    cudaStream_t aside;      /* of keep() */
    cudaEvent_t from, upto;  /* what is kept: on `stream`; what was copied of it: on `aside` */
    bool keeps;              /* since the last kept() */
    struct wf_cudnn dnn;
    struct wf_cublas lt;
    cudnnHandle_t cudnn;
    bool cudnn_ran; /* what its kernels are read from has been read */
    cublasLtHandle_t blas;
    unsigned *
        tickets; /* zeroed counters, see wf_cuda_tickets(): WF_BRANCH_WINDOW banks of WF_CUDA_TICKETS,
                        * because kernels that run beside each other have counters of their own */
    int bank;    /* of what is enqueued now */
    struct wf_cuda_branches *branches; /* of a recording (record.c) */
    char *small; /* host memory in WF_CUDA_SMALL blocks for numbers: taking more waits */
    bool small_taken[WF_CUDA_SMALLS];
    uint64_t *step; /* the number of the step that runs, in device memory */
    cudaEvent_t *marks;
    int n_marks;
    struct wf_choices *choices; /* which kernels were the fastest (device/choices.h) */
    struct wf_err failure;      /* the first; code WF_OK: none */
};

static inline struct wf_cuda *wf_cuda_of(struct wf_context *context)
{
    return (struct wf_cuda *)context;
}

/* Notes a failure of `what`, unless one was noted before, and returns false where there is one. */
bool wf_cuda_ok(struct wf_cuda *cuda, cudaError_t status, const char *what);
bool wf_cudnn_ok(struct wf_cuda *cuda, cudnnStatus_t status, const char *what);
bool wf_cublas_ok(struct wf_cuda *cuda, cublasStatus_t status, const char *what);
/* The noted failure as an error; true where there is none. */
[[nodiscard]] bool wf_cuda_well(const struct wf_cuda *cuda, struct wf_err *err);

/* record.c: wf_device_stream has what they do. */
bool wf_cuda_record(struct wf_context *context);
void *wf_cuda_recorded(struct wf_context *context);
void wf_cuda_replay(struct wf_context *context, void *recording);
void wf_cuda_forget(struct wf_context *context, void *recording);
void wf_cuda_branch(struct wf_context *context, int step, const int after[], int count);
