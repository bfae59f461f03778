/*
 * Linear layers (convolutions of kernel one over images of one pixel) by cuBLASLt.
 *
 * Rows of ours are columns of theirs: x [n][in] is a matrix of in x n. With w [out][in]:
 *   conv        y  (out x n)   = w^T x
 *   convt       dx (in x n)    = w dy
 *   conv_wgrad  dw (in x out)  = x dy^T, in f32 whatever the images are
 *
 * Which sums cuBLASLt makes depends on n: where they must not depend on the cut, our own kernels of
 * convolutions do it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "base/memory.h"
#include "device/conv_pass.h"
#include "device/cuda/accepts.h"
#include "device/cuda/kernels.h"

struct linear {
    struct wf_cuda *cuda;
    enum wf_conv_pass pass;
    int64_t n, in, out;
    cublasLtMatmulDesc_t product; /* NULL: our own kernel */
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

static cudaDataType_t type_of(enum wf_dtype dtype)
{
    return dtype == WF_BF16 ? CUDA_R_16BF : dtype == WF_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void release(void *prepared)
{
    struct linear *const l = prepared;
    if (!l)
        return;
    const struct wf_cublas *const lt = &l->cuda->lt;
    if (l->product)
        (void)lt->cublasLtMatmulDescDestroy(l->product);
    if (l->a)
        (void)lt->cublasLtMatrixLayoutDestroy(l->a);
    if (l->b)
        (void)lt->cublasLtMatrixLayoutDestroy(l->b);
    if (l->d)
        (void)lt->cublasLtMatrixLayoutDestroy(l->d);
    free(l);
}

static bool layout(const struct wf_cublas *lt, cublasLtMatrixLayout_t *to, enum wf_dtype dtype,
                   int64_t rows, int64_t columns)
{
    return lt->cublasLtMatrixLayoutCreate(to, type_of(dtype), (uint64_t)rows, (uint64_t)columns,
                                          rows) == CUBLAS_STATUS_SUCCESS;
}

/* D = op(A) op(B), as the table on top says. */
static bool describe(struct linear *l, enum wf_dtype dtype, enum wf_dtype to)
{
    const struct wf_cublas *const lt = &l->cuda->lt;
    const cublasComputeType_t compute =
        dtype == WF_F32 && l->cuda->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    const cublasOperation_t of_a = l->pass == WF_CONV_FORWARD ? transposed : plain;
    const cublasOperation_t of_b = l->pass == WF_CONV_WEIGHTS ? transposed : plain;
    if (lt->cublasLtMatmulDescCreate(&l->product, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        lt->cublasLtMatmulDescSetAttribute(l->product, CUBLASLT_MATMUL_DESC_TRANSA, &of_a,
                                           sizeof of_a) != CUBLAS_STATUS_SUCCESS ||
        lt->cublasLtMatmulDescSetAttribute(l->product, CUBLASLT_MATMUL_DESC_TRANSB, &of_b,
                                           sizeof of_b) != CUBLAS_STATUS_SUCCESS)
        return false;
    const int64_t n = l->n, in = l->in, out = l->out;
    if (l->pass == WF_CONV_FORWARD)
        return layout(lt, &l->a, dtype, in, out) && layout(lt, &l->b, dtype, in, n) &&
               layout(lt, &l->d, to, out, n);
    if (l->pass == WF_CONV_DATA)
        return layout(lt, &l->a, dtype, in, out) && layout(lt, &l->b, dtype, out, n) &&
               layout(lt, &l->d, to, in, n);
    return layout(lt, &l->a, dtype, in, n) && layout(lt, &l->b, dtype, out, n) &&
           layout(lt, &l->d, to, in, out);
}

/* Buffers begin on boundaries of 64 bytes; cuBLASLt would believe 256. */
static bool set_alignments(const struct wf_cublas *lt, cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const uint32_t bytes = 16;
    bool ok = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ok = ok && lt->cublasLtMatmulPreferenceSetAttribute(preference, names[i], &bytes,
                                                            sizeof bytes) == CUBLAS_STATUS_SUCCESS;
    return ok;
}

static bool choose(struct linear *l)
{
    const struct wf_cublas *const lt = &l->cuda->lt;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const size_t most = l->cuda->workspace;
    bool ok = lt->cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS &&
              lt->cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most) ==
                  CUBLAS_STATUS_SUCCESS &&
              set_alignments(lt, preference) &&
              lt->cublasLtMatmulAlgoGetHeuristic(l->cuda->blas, l->product, l->a, l->b, l->d, l->d,
                                                 preference, 1, &found,
                                                 &count) == CUBLAS_STATUS_SUCCESS &&
              count == 1;
    if (preference)
        (void)lt->cublasLtMatmulPreferenceDestroy(preference);
    if (ok) {
        l->algorithm = found.algo;
        l->workspace = found.workspaceSize;
    }
    return ok;
}

static bool prepare_own(const struct linear *l, struct wf_prepare *p, struct wf_err *err)
{
    (void)snprintf(p->implementation, sizeof p->implementation, "own");
    return l->pass != WF_CONV_WEIGHTS || wf_cuda_conv_wgrad_prepare(p, err);
}

static bool prepare(struct wf_prepare *p, struct wf_err *err)
{
    if (!p->context)
        return true;
    const struct wf_node *const node = p->node;
    struct linear *const l = wf_take_zeroed(1, sizeof *l);
    l->cuda = wf_cuda_of(p->context);
    l->pass = wf_conv_pass_of(node);
    const struct wf_value *const w = l->pass == WF_CONV_WEIGHTS ? node->out[0] : node->in[1];
    l->in = w->shape.at[WF_C];
    l->out = w->shape.at[WF_N];
    l->n = wf_region_extent(p->work, WF_N);
    p->prepared = l;
    if (l->cuda->exact)
        return prepare_own(l, p, err);
    enum { ALIGN = 256 };
    if (!describe(l, p->in[0].dtype, p->out[0].dtype) || !choose(l)) {
        (void)wf_err_set(err, WF_ERR_FAILED, "cuBLASLt has no product of %lld x %lld x %lld",
                         (long long)l->out, (long long)l->in, (long long)l->n);
        p->prepared = NULL;
        release(l);
        return false;
    }
    p->scratch_bytes = l->workspace ? l->workspace + ALIGN : 0;
    (void)snprintf(p->implementation, sizeof p->implementation, "cublaslt");
    return true;
}

static void run(const struct wf_call *call)
{
    const struct linear *const l = call->prepared;
    if (!l->product) {
        wf_cuda_conv_own[l->pass](call);
        return;
    }
    const struct wf_cublas *const lt = &l->cuda->lt;
    const float one = 1.0f, zero = 0.0f;
    const uintptr_t base = (uintptr_t)call->scratch;
    void *const workspace = l->workspace ? (void *)((base + 255) / 256 * 256) : NULL;
    const void *const a = l->pass == WF_CONV_WEIGHTS ? call->in[0].data : call->in[1].data;
    const void *const b = l->pass == WF_CONV_WEIGHTS ? call->in[1].data : call->in[0].data;
    (void)wf_cublas_ok(l->cuda,
                       lt->cublasLtMatmul(l->cuda->blas, l->product, &one, a, l->a, b, l->b, &zero,
                                          call->out[0].data, l->d, call->out[0].data, l->d,
                                          &l->algorithm, workspace, l->workspace, l->cuda->stream),
                       call->node->name);
    if (l->pass != WF_CONV_WEIGHTS && call->in[2].data)
        wf_cuda_add_bias(&call->out[0], call->in[2].data, l->cuda->stream);
}

const struct wf_kernel wf_cuda_kernels_linear[] = {
    WF_CONV_PASSES(.flags = WF_KERNEL_DENSE, .preference = 20, .accepts = wf_cublas_accepts,
                   .prepare = prepare, .run = run, .release = release),
    { 0 },
};
