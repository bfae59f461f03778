/* The functions of cuDNN and cuBLASLt that we call, opened when a context is (base/library.h). */
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include "base/library.h"

#define WF_CUDNN_FUNCTIONS(F)                                                                      \
    F(cudnnGetVersion)                                                                             \
    F(cudnnGetErrorString)                                                                         \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendExecute)

#define WF_CUBLAS_FUNCTIONS(F)                                                                     \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtGetStatusString)                                                                     \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatrixLayoutCreate)                                                                  \
    F(cublasLtMatrixLayoutDestroy)

struct wf_cudnn {
    WF_CUDNN_FUNCTIONS(WF_LIBRARY_POINTER)
};
struct wf_cublas {
    WF_CUBLAS_FUNCTIONS(WF_LIBRARY_POINTER)
};

[[nodiscard]] bool wf_cudnn_open(struct wf_cudnn *dnn, struct wf_err *err);
[[nodiscard]] bool wf_cublas_open(struct wf_cublas *lt, struct wf_err *err);
