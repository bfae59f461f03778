/*
 * As much of CUDA as our kernels use, on the host: put in front of a .cu file (-include) it makes
 * a plain C++ file of it. A launch runs block after block; the threads of a block are fibers that
 * take turns at barriers and shuffles.
 *
 * What it sees that a GPU would only stumble over: a barrier that some threads of the block do not
 * reach, a shuffle in a warp that is not whole, too large a grid or block. wf_emulate.reversed runs
 * blocks and threads in the opposite order: kernels whose result depends on it have a race.
 */
#ifndef WF_TESTS_EMULATE_H
#define WF_TESTS_EMULATE_H

#define WF_CUDA_EMULATED

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <functional>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __restrict__

struct CUstream_st;

struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

extern "C" {
struct wf_emulate {
    bool reversed;
    long launches, threads; /* so far */
};
extern struct wf_emulate wf_emulate;
}

extern dim3 threadIdx, blockIdx, gridDim, blockDim;

/* The calling thread waits until its block or warp has come here. */
void wf_emulate_sync(bool whole_block);
/* Gives `word` to the thread's warp and takes that of lane ^ `lane_mask`. */
uint64_t wf_emulate_exchange(uint64_t word, int lane_mask);
void wf_emulate_run(dim3 grid, int threads, const std::function<void()> &kernel);

inline void __syncthreads()
{
    wf_emulate_sync(true);
}
inline void __syncwarp()
{
    wf_emulate_sync(false);
}
inline void __threadfence()
{
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lane_mask)
{
    (void)mask;
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = wf_emulate_exchange(word, lane_mask);
    memcpy(&value, &word, sizeof value);
    return value;
}
template <class T> T atomicAdd(T *at, T by)
{
    const T old = *at;
    *at += by;
    return old;
}
inline int32_t atomicCAS(int32_t *at, int32_t expected, int32_t value)
{
    const int32_t old = *at;
    if (old == expected)
        *at = value;
    return old;
}
inline int __ffsll(long long bits)
{
    return __builtin_ffsll(bits);
}
inline int __popcll(uint64_t bits)
{
    return __builtin_popcountll(bits);
}
template <class T> T __ldcg(const T *at)
{
    return *at;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
inline float __uint_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

namespace wf
{
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, int threads, struct CUstream_st *stream, A... args)
{
    (void)stream;
    wf_emulate_run(grid, threads, [=] { kernel(args...); });
}
} // namespace wf

#endif
