#include "device/cuda/libraries.h"

#include "base/err.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* Another library of the process, such as PyTorch, may have loaded a cuDNN of its own before. Within a major version
 * older ones work, too: what they lack is refused where it is asked for. */
bool wf_cudnn_open(struct wf_cudnn *dnn, struct wf_err *err)
{
    static const char *const names[] = { WF_CUDNN_FUNCTIONS(WF_LIBRARY_NAME) NULL };
    static const struct wf_library library = {
        .title = "cuDNN " TEXT(CUDNN_MAJOR),
        .soname = "libcudnn.so." TEXT(CUDNN_MAJOR),
        .install = "NVIDIA's package libcudnn" TEXT(CUDNN_MAJOR) "-cuda-" TEXT(
            CUBLAS_VER_MAJOR) " (pip: nvidia-cudnn-cu" TEXT(CUBLAS_VER_MAJOR) ")",
    };
    const size_t major = 10000, minor = 100, built = CUDNN_VERSION;
    if (!wf_library_open(&library, names, dnn, err))
        return false;
    const size_t loaded = dnn->cudnnGetVersion();
    return loaded / major == built / major ||
           wf_err_set(err, WF_ERR_FAILED,
                      "cuDNN %zu.%zu is loaded, and this build is for %zu.x: if another library of "
                      "the program brought it, load Widefield first, or use --device cpu",
                      loaded / major, loaded % major / minor, built / major);
}

bool wf_cublas_open(struct wf_cublas *lt, struct wf_err *err)
{
    static const char *const names[] = { WF_CUBLAS_FUNCTIONS(WF_LIBRARY_NAME) NULL };
    static const struct wf_library library = {
        .title = "cuBLASLt " TEXT(CUBLAS_VER_MAJOR),
        .soname = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
        .install = "cuBLAS of CUDA " TEXT(CUBLAS_VER_MAJOR) " (NVIDIA's package libcublas-" TEXT(
            CUBLAS_VER_MAJOR) "-0, pip: nvidia-cublas)",
    };
    return wf_library_open(&library, names, lt, err);
}
