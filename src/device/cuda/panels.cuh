/*
 * Products of matrices that pass through shared memory in panels: 64 columns of 16 bits each, so a row
 * has 128 bytes, whose eight pieces of 16 are exchanged by the row's number (piece()). That is what
 * the products of four warps (wgmma, compute capability 9.0) read without conflicts, along either axis.
 *
 * Copies into panels and products run beside the threads that ask for them. On the host both are done
 * at once, from the same places, so that what is copied where is tested without a GPU.
 */
#pragma once

#include "device/cuda/about.h"
#include "device/cuda/device.cuh"
#ifdef WF_HAVE_HOPPER
#include "device/cuda/hopper.cuh"
#endif

namespace wf
{

enum {
    PANEL_COLUMNS = 64,
    PANEL_ROW = 128,              /* bytes */
    PANEL_BYTES = 64 * PANEL_ROW, /* of 64 rows: panels may be longer */
    PIECE = 8,                    /* columns that are moved at once */
    PIECE_BYTES = 16,
    PANEL_PIECES = PANEL_ROW / PIECE_BYTES,
    WARPS_ROWS = 64,              /* of a product of four warps */
    WARPS_COLUMNS = 128,
    SHARED_MOST = 227 << 10, /* bytes of a block */
};

/* Columns of type T that are moved at once. */
template <class T> __host__ __device__ constexpr int piece_of()
{
    return PIECE_BYTES / (int)sizeof(T);
}

/* Where piece `p` of a row lies. Panels begin at multiples of 1024 bytes. */
__host__ __device__ constexpr int place_along(int row, int p)
{
    return row * PANEL_ROW + ((p ^ (row & 7)) << 4);
}
/* The same for a panel whose rows are summed over. With words of 32 bits (words.cuh) a warp reads two pieces of each of
 * four rows at once. */
template <class T> __host__ __device__ constexpr int place_across(int row, int p)
{
    return sizeof(T) == 4 ? row * PANEL_ROW + ((p ^ ((row & 3) << 1)) << 4) : place_along(row, p);
}
__device__ inline char *piece(char *panel, int row, int p)
{
    return panel + place_along(row, p);
}

/* A bit for each thread of the warp. */
__device__ inline uint32_t warp_bits(bool mine)
{
#ifdef WF_CUDA_EMULATED
    uint32_t bits = (uint32_t)mine << threadIdx.x % 32;
    for (int m = 1; m < 32; m *= 2)
        bits |= __shfl_xor_sync(0xffffffffu, bits, m);
    return bits;
#else
    return __ballot_sync(0xffffffffu, mine);
#endif
}

/* A number that the warp's threads have in common, and that the compiler then knows to be so. */
__device__ inline int same_in_warp(int x)
{
#ifdef WF_CUDA_EMULATED
    return x;
#else
    return __shfl_sync(0xffffffffu, x, 0);
#endif
}

/* Exchanges words within four threads: v[i] becomes the word of thread i for the block that has this
 * thread's number. */
__device__ inline void turn_four(uint32_t (&v)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
    const uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
    const uint32_t w[4] = { odd ? a : v[0], odd ? v[1] : a, odd ? b : v[2], odd ? v[3] : b };
    const uint32_t c = __shfl_xor_sync(0xffffffffu, high ? w[0] : w[2], 2);
    const uint32_t d = __shfl_xor_sync(0xffffffffu, high ? w[1] : w[3], 2);
    v[0] = high ? c : w[0];
    v[1] = high ? d : w[1];
    v[2] = high ? w[2] : c;
    v[3] = high ? w[3] : d;
}

#ifdef WF_CUDA_EMULATED

enum { PANELS_HERE = 1 };

inline char *shared_memory(void)
{
    alignas(1024) static char memory[SHARED_MOST];
    return memory;
}
inline void copy_piece(char *to, const void *from, bool valid)
{
    if (valid)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
inline void copies_commit(void)
{
}
inline void shared_is_written(void)
{
}
template <int Behind> void copies_wait(void)
{
}
inline void products_begin(void)
{
}
inline void products_commit(void)
{
}
template <int Behind> void products_wait(void)
{
}
template <int N> void sums_stay(float (&)[N])
{
}

/* Element (row, column) of a panel and those behind it, `rows` rows further each. */
template <class T> float panel_at(char *panel, int row, int column)
{
    return to_arith(((const T *)piece(panel + column / PANEL_COLUMNS * PANEL_BYTES, row,
                                      column % PANEL_COLUMNS / PIECE))[column % PIECE]);
}

template <class T, bool AK, bool BK, int D>
void product(float (&d)[D], char *a, char *b, int k, int add)
{
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
    for (int i = 0; i < D; i++) {
        const int m = row + i % 4 / 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = add ? d[i] : 0;
        for (int j = k * 16; j < k * 16 + 16; j++)
            sum = fma_of(AK ? panel_at<T>(a, j, m) : panel_at<T>(a, m, j),
                         BK ? panel_at<T>(b, j, n) : panel_at<T>(b, n, j), sum);
        d[i] = sum;
    }
}

template <class... P, class... A>
bool launch_sharing(void (*kernel)(P...), dim3 grid, int threads, int bytes,
                    struct CUstream_st *stream, A... args)
{
    WF_BUG_ON(bytes > SHARED_MOST, "%d bytes of shared memory", bytes);
    launch(kernel, grid, threads, stream, args...);
    return true;
}

inline bool gpu_has_panels(void)
{
    return true;
}

#else

#ifdef WF_HAVE_HOPPER
enum { PANELS_HERE = 1 };
#else
enum { PANELS_HERE = 0 };
#endif

__device__ inline char *shared_memory(void)
{
    extern __shared__ __align__(1024) char memory[];
    return memory;
}
/* 16 bytes, or zeros. */
__device__ inline void copy_piece(char *to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
/* What this thread stored there is seen by products behind the next barrier. */
__device__ inline void shared_is_written(void)
{
#ifdef WF_HAVE_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ inline void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* All but the last `Behind` groups of this thread are there; after a barrier products may read them. */
template <int Behind> __device__ inline void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Behind) : "memory");
#ifdef WF_HAVE_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef WF_HAVE_HOPPER
/* Groups of eight rows are 1024 bytes apart; the next 64 columns of what lies across, a panel. */
__device__ inline uint64_t matrix_of(const char *at)
{
    return matrix_at(SWIZZLE_128, 8 * PANEL_ROW, PANEL_BYTES) | (shared_at(at) >> 4 & 0x3fff);
}

/* clang-format off */
#define WF_PRODUCT_OF(type, n, names, sums, x_at, y_at, add_at, ak, bk) \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " add_at ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" \
        names "}, " x_at ", " y_at ", p, 1, 1, " ak ", " bk ";}" \
        : sums \
        : "l"(x), "l"(y), "r"(add), "n"((int)AK), "n"((int)BK))
#define WF_PRODUCT(type) \
    if constexpr (D == 64) \
        WF_PRODUCT_OF(type, "128", WF_R64, WF_D64(0), "%64", "%65", "%66", "%67", "%68"); \
    else if constexpr (D == 48) \
        WF_PRODUCT_OF(type, "96", WF_R48, WF_D48(0), "%48", "%49", "%50", "%51", "%52"); \
    else if constexpr (D == 32) \
        WF_PRODUCT_OF(type, "64", WF_R32, WF_D32(0), "%32", "%33", "%34", "%35", "%36"); \
    else \
        WF_PRODUCT_OF(type, "32", WF_R16, WF_D16(0), "%16", "%17", "%18", "%19", "%20")
/* clang-format on */

/* d[64 x 2 D] += a b over 16 of k, the k-th 16 of the panels, by four warps: `a` has rows of the result
 * as its rows, or with AK those of k; `b` has columns of the result as rows, or with BK those of k.
 * add: 0 where d is to be begun. 2 D is 32, 64, 96 or 128. */
template <class T, bool AK, bool BK, int D>
__device__ inline void product(float (&d)[D], char *a, char *b, int k, int add)
{
    static_assert(D == 64 || D == 48 || D == 32 || D == 16, "a width that there is");
    /* Descriptors count in 16 bytes, and shared memory ends before their field for it does. */
    const uint64_t x = matrix_of(a) + (uint64_t)(k * (AK ? PANEL_ROW : 2));
    const uint64_t y = matrix_of(b) + (uint64_t)(k * (BK ? PANEL_ROW : 2));
    if constexpr (std::is_same<T, bf16>::value) {
        WF_PRODUCT("bf16");
    } else {
        WF_PRODUCT("f16");
    }
}
#undef WF_PRODUCT_OF
#undef WF_PRODUCT
#else /* never launched */
__device__ inline void products_begin(void)
{
}
__device__ inline void products_commit(void)
{
}
template <int Behind> __device__ inline void products_wait(void)
{
}
template <int N> __device__ inline void sums_stay(float (&)[N])
{
}
template <class T, bool AK, bool BK, int D>
__device__ inline void product(float (&)[D], char *, char *, int, int)
{
}
#endif

/* In a build for several kinds of GPU, on one of another kind: false. */
inline bool gpu_has_panels(void)
{
    return wf_cuda_about_major() == 9;
}

/* False and nothing launched where the kernel is not for this GPU after all. */
template <class... P, class... A>
bool launch_sharing(void (*kernel)(P...), dim3 grid, int threads, int bytes,
                    struct CUstream_st *stream, A... args)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    kernel<<<grid, (unsigned)threads, (size_t)bytes, stream>>>(args...);
    return true;
}

#endif

} // namespace wf
