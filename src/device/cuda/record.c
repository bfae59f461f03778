/*
 * Recordings of a step, as CUDA graphs. Work is captured from one stream. What follows a call of branch() is captured
 * behind the last nodes of the steps that it waits for; these are noted when the next step begins.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"

/* The last nodes of a step. */
struct ends {
    cudaGraphNode_t *nodes;
    size_t n;
};

struct wf_cuda_branches {
    struct ends *of; /* per step */
    int n, room;
};

static void free_branches(struct wf_cuda *cuda)
{
    struct wf_cuda_branches *const b = cuda->branches;
    for (int i = 0; b && i < b->n; i++)
        free(b->of[i].nodes);
    if (b)
        free(b->of);
    free(b);
    cuda->branches = NULL;
    cuda->bank = 0;
}

bool wf_cuda_record(struct wf_context *context)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    if (cuda->failure.code != WF_OK ||
        cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return true;
}

/* A library that cannot be captured makes the recording fail; the step is then run as it is. */
void *wf_cuda_recorded(struct wf_context *context)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    const bool ok = cudaStreamEndCapture(cuda->stream, &graph) == cudaSuccess && graph &&
                    cuda->failure.code == WF_OK &&
                    cudaGraphInstantiate(&made, graph, 0) == cudaSuccess;
    free_branches(cuda);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (ok)
        return made;
    (void)cudaGetLastError();
    cuda->failure = (struct wf_err){ 0 };
    return NULL;
}

void wf_cuda_replay(struct wf_context *context, void *recording)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)wf_cuda_ok(cuda, cudaGraphLaunch(recording, cuda->stream), "starting a step");
}

void wf_cuda_forget(struct wf_context *context, void *recording)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    (void)cudaStreamSynchronize(cuda->stream); /* it may still be running */
    (void)wf_cuda_ok(cuda, cudaGraphExecDestroy(recording), "forgetting a step");
}

/* --- branches --- */

static cudaError_t last_nodes(cudaStream_t stream, const cudaGraphNode_t **nodes, size_t *n)
{
    enum cudaStreamCaptureStatus status;
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, nodes, NULL, n);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, nodes, n);
#endif
}

static cudaError_t set_last_nodes(cudaStream_t stream, cudaGraphNode_t *nodes, size_t n)
{
#if CUDART_VERSION >= 13000
    return cudaStreamUpdateCaptureDependencies(stream, nodes, NULL, n,
                                               cudaStreamSetCaptureDependencies);
#else
    return cudaStreamUpdateCaptureDependencies(stream, nodes, n, cudaStreamSetCaptureDependencies);
#endif
}

/* Notes the nodes that the step so far has ended with. */
static bool end_step(struct wf_cuda *cuda)
{
    struct wf_cuda_branches *const b = cuda->branches;
    const cudaGraphNode_t *nodes = NULL;
    size_t n = 0;
    if (!wf_cuda_ok(cuda, last_nodes(cuda->stream, &nodes, &n), "recording a step"))
        return false;
    if (b->n == b->room) {
        b->room = 2 * b->room + 256;
        struct ends *const grown = realloc(b->of, (size_t)b->room * sizeof *grown);
        if (!grown)
            wf_no_memory((size_t)b->room * sizeof *grown);
        b->of = grown;
    }
    struct ends *const e = &b->of[b->n++];
    *e = (struct ends){ .nodes = wf_take(n * sizeof(cudaGraphNode_t) + 1), .n = n };
    for (size_t i = 0; i < n; i++)
        e->nodes[i] = nodes[i];
    return true;
}

void wf_cuda_branch(struct wf_context *context, int step, const int after[], int count)
{
    struct wf_cuda *const cuda = wf_cuda_of(context);
    if (!cuda->branches)
        cuda->branches = wf_take_zeroed(1, sizeof *cuda->branches);
    else if (!end_step(cuda))
        return;
    const struct wf_cuda_branches *const b = cuda->branches;
    WF_BUG_ON(b->n != step, "step %d is recorded behind %d steps", step, b->n);
    size_t n = 0;
    for (int i = 0; i < count; i++)
        n += b->of[after[i]].n;
    cudaGraphNode_t *const nodes = wf_take(n * sizeof(cudaGraphNode_t) + 1);
    n = 0;
    for (int i = 0; i < count; i++) {
        const struct ends *const e = &b->of[after[i]];
        for (size_t k = 0; k < e->n; k++) {
            size_t at = 0;
            while (at < n && nodes[at] != e->nodes[k])
                at++;
            nodes[at] = e->nodes[k];
            n += at == n;
        }
    }
    (void)wf_cuda_ok(cuda, set_last_nodes(cuda->stream, nodes, n), "recording a step");
    free(nodes);
    cuda->bank = step % WF_BRANCH_WINDOW;
}
