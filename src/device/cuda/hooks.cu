/* Small kernels of the device's own. */
#include "device/cuda/device.cuh"
#include "device/cuda/hooks.h"

namespace wf
{

__global__ void store_kernel(uint64_t *to, uint64_t value)
{
    *to = value;
}

/* y is positions x channels, packed. V channels at a time where they are a multiple of it. */
template <class T, int V>
__global__ void bias_kernel(T *y, const float *bias, int64_t vectors, int64_t channels)
{
    const int64_t per_row = channels / V;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const int64_t c = i % per_row * V;
        Vec<T, V> v;
        v.load(y + i * V);
        for (int k = 0; k < V; k++)
            v.set(k, v.get(k) + bias[c + k]);
        v.store(y + i * V);
    }
}

template <class T> __global__ void noise_kernel(T *to, int64_t count, uint32_t seed)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t h = (uint32_t)i * 2654435761u + seed; /* mixed as in MurmurHash3 */
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        to[i] = To<T>::from((float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f);
    }
}

} // namespace wf

using namespace wf;

extern "C" void wf_cuda_store(uint64_t *to, uint64_t value, struct CUstream_st *stream)
{
    launch(store_kernel, dim3(1), 1, stream, to, value);
}

extern "C" void wf_cuda_add_bias(const struct wf_view *y, const float *bias,
                                 struct CUstream_st *stream)
{
    const struct wf_shape e = extents(y->box);
    const int64_t channels = e.at[WF_C], most = 1 << 16; /* blocks */
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        count *= e.at[a];
    with_type((int)y->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const int wide = Wide<T>::V;
        T *const data = (T *)y->data;
        if (channels % wide == 0 && (uintptr_t)data % 16 == 0)
            launch(bias_kernel<T, Wide<T>::V>,
                   dim3((unsigned)smaller(ceil_div(count / wide, THREADS), most)), THREADS, stream,
                   data, bias, count / wide, channels);
        else
            launch(bias_kernel<T, 1>, dim3((unsigned)smaller(ceil_div(count, THREADS), most)),
                   THREADS, stream, data, bias, count, channels);
    });
}

extern "C" void wf_cuda_noise(void *to, int dtype, int64_t count, uint32_t seed,
                              struct CUstream_st *stream)
{
    const int64_t most = 1 << 16; /* blocks; each thread goes on in steps of the whole grid */
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        launch(noise_kernel<T>, dim3((unsigned)smaller(ceil_div(count, THREADS), most)), THREADS,
               stream, (T *)to, count, seed);
    });
}
