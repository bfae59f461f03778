/*
 * What only compute capability 9.0 has (sm_90a): barriers in shared memory that count bytes, copies of
 * boxes by the copy engine (TMA), and products of four warps at once with operands in shared memory
 * (wgmma). One function for each instruction; the meaning is that of the PTX manual.
 */
#pragma once

#include <cuda.h>

#include "device/cuda/device.cuh"
#include "device/cuda/hopper.h"

namespace wf
{

/* --- barriers: 8 bytes of shared memory, by address --- */

__device__ inline void barrier_init(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(arrivals));
}
/* Makes them known to the copy engine. */
__device__ inline void barriers_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}
__device__ inline void barrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
}
/* Arrives, and the phase ends when so many bytes have come too. */
__device__ inline void barrier_expect(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}
/* Waits until the last phase that ended has this parity: a new barrier's had 1. */
__device__ inline void barrier_wait(uint32_t at, int parity)
{
    asm volatile("{.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

/* --- the copy engine: boxes of a map, at an element; outside of the tensor are zeros --- */

__device__ inline void box_load(uint32_t to, const CUtensorMap *from, uint32_t barrier,
                                const int (&at)[5])
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(from), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                 "r"(at[4])
                 : "memory");
}
__device__ inline void box_store(const CUtensorMap *to, uint32_t from, const int (&at)[5])
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3, %4, %5, %6}], [%1];\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
}
/* Counts as one. */
__device__ inline void box_stores_none(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but the last `Behind` stores of this thread have read their memory. */
template <int Behind> __device__ inline void box_stores_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Behind) : "memory");
}
__device__ inline void box_stores_done(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* What was written to shared memory by this thread is seen by the copy engine. */
__device__ inline void shared_written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* The 128 threads that use barrier `id`. */
__device__ inline void four_warps_meet(int id)
{
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

/* --- products: d[64 x 256] += a[64 x 16] b[256 x 16]^T by four warps --- */

enum { SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32 };

/* Of a matrix in shared memory: rows of 8 are `stride` bytes apart; where it lies across, blocks of
 * columns are `leading` bytes apart. The swizzle goes by the address: a matrix may begin in any row. */
__device__ inline uint64_t matrix_at(int swizzle, int stride, int leading = 16)
{
    return (uint64_t)swizzle << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)(leading >> 4) << 16;
}
__device__ inline void products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Behind> __device__ inline void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Behind) : "memory");
}

/* Sums are neither read nor written across this line. Without it in front of products the compiler may
 * take a move for one that could come later, and let the products wait for each other. */
template <int N> __device__ inline void sums_stay(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* The names of N registers in a product, and the N sums from d[i] on that they hold. */
/* clang-format off */
#define WF_R12 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11"
#define WF_R16 WF_R12 ",%12,%13,%14,%15"
#define WF_R24 WF_R12 ",%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"
#define WF_R32 WF_R24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WF_R48 WF_R24 ",%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WF_R64 WF_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WF_R96 WF_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WF_R128 WF_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
    ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WF_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WF_D12(i) WF_D4(i), WF_D4(i + 4), WF_D4(i + 8)
#define WF_D16(i) WF_D12(i), WF_D4(i + 12)
#define WF_D24(i) WF_D12(i), WF_D12(i + 12)
#define WF_D32(i) WF_D16(i), WF_D16(i + 16)
#define WF_D48(i) WF_D24(i), WF_D24(i + 24)
#define WF_D64(i) WF_D48(i), WF_D16(i + 48)
#define WF_D96(i) WF_D48(i), WF_D48(i + 48)
#define WF_PRODUCT(type) \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" \
        WF_R128 "}, %128, %129, p, 1, 1, %131, 0;}" \
        : WF_D64(0), WF_D64(64) \
        : "l"(a), "l"(b), "r"(add), "n"(Across))
/* clang-format on */

/* Across: `a` lies with its 64 rows packed. add: 0 where d is to be begun. */
template <class T, int Across>
__device__ inline void product(float (&d)[128], uint64_t a, uint64_t b, int add)
{
    if constexpr (std::is_same<T, bf16>::value)
        WF_PRODUCT("bf16");
    else
        WF_PRODUCT("f16");
}
#undef WF_PRODUCT

/* clang-format off */
#define WF_PRODUCT_ADD(type, n, regs, sums, at_a, at_b, at_ta, at_tb) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type \
                 " {" regs "}, %" at_a ", %" at_b ", 1, 1, 1, %" at_ta ", %" at_tb ";" : sums \
                 : "l"(a), "l"(b), "n"(AcrossA), "n"(AcrossB))
#define WF_PRODUCT_ANY(type) \
    do { \
        if constexpr (N == 12) WF_PRODUCT_ADD(type, "24", WF_R12, WF_D12(0), "12", "13", "14", "15"); \
        else if constexpr (N == 24) WF_PRODUCT_ADD(type, "48", WF_R24, WF_D24(0), "24", "25", "26", "27"); \
        else if constexpr (N == 48) WF_PRODUCT_ADD(type, "96", WF_R48, WF_D48(0), "48", "49", "50", "51"); \
        else WF_PRODUCT_ADD(type, "192", WF_R96, WF_D96(0), "96", "97", "98", "99"); \
    } while (0)
/* clang-format on */

/* d[64 x 2 N] += a b. AcrossA: `a` lies with its 64 rows packed; AcrossB: `b` with its columns. */
template <class T, int AcrossA, int AcrossB, int N>
__device__ inline void product_add(float (&d)[N], uint64_t a, uint64_t b)
{
    if constexpr (std::is_same<T, bf16>::value)
        WF_PRODUCT_ANY("bf16");
    else
        WF_PRODUCT_ANY("f16");
}
#undef WF_PRODUCT_ANY
#undef WF_PRODUCT_ADD

/* --- 8 x 8 blocks --- */

/* Stores four of them, as products leave them in registers. Lane i gives the address of row i % 8 of
 * block i / 8. */
__device__ inline void store_blocks(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}
/* The same, transposed. */
__device__ inline void store_transposed(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* --- results --- */

enum {
    STORE_POSITIONS = 32, /* that are stored at once */
    STORE_FILTERS = 64,
    STORE_BYTES = STORE_POSITIONS * STORE_FILTERS * 2
};

/* The sums of four warps, 64 filters by 256 positions, through `Buffers` pieces of shared memory of each team at `stores`:
 * rows of the product are filters, and an image's are positions. finish.of(sum, i) is the result of the thread's filter i of
 * two; all threads call put(from, g), which stores positions from 32 g on: one of them by box_store() or
 * box_stores_none(). *buffer: the next piece. */
template <class T, int Buffers, class Finish, class Put>
__device__ inline void store_sums(const float (&d)[128], uint32_t stores, const Finish &finish,
                                  int *buffer, const Put &put)
{
    const int team = (int)threadIdx.x / 128, warp = (int)threadIdx.x % 128 / 32;
    const int lane = (int)threadIdx.x % 32;
    /* The row that this lane gives to store_transposed(): two blocks of 8 positions, two eighths. */
    const int row = lane % 8 + lane / 16 * 8, eighth = warp * 2 + lane / 8 % 2;
    const uint32_t place = row * 128 + ((eighth ^ row % 8) << 4);
#pragma unroll
    for (int g = 0; g < 256 / STORE_POSITIONS; g++) {
        const uint32_t to = stores + (team * Buffers + *buffer) * STORE_BYTES;
        if (threadIdx.x % 128 == 0)
            box_stores_read<Buffers - 1>();
        four_warps_meet(team + 1);
#pragma unroll
        for (int j = 0; j < STORE_POSITIONS / 8; j += 2) {
            const float *const e = d + (g * STORE_POSITIONS / 8 + j) * 4;
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = pair_of(T(), finish.of(e[2 * i], i % 2), finish.of(e[2 * i + 1], i % 2));
            store_transposed(to + j * 8 * 128 + place, v);
        }
        shared_written();
        four_warps_meet(team + 1);
        put(to, g);
        *buffer = *buffer + 1 == Buffers ? 0 : *buffer + 1;
    }
}

/* --- maps: what the copy engine knows about a tensor --- */

/* Of a tensor, as it is to lie in shared memory. */
struct Box {
    int32_t channels, w, h, swizzle, d = 1;
};

/* The driver's function that makes maps, without linking the driver. */
inline decltype(&cuTensorMapEncodeTiled) map_maker(void)
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    const unsigned version = 12000;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, version,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return NULL;
    return (decltype(&cuTensorMapEncodeTiled))function;
}

inline bool map_make(CUtensorMap *map, enum wf_dtype dtype, void *data, const int64_t (&extent)[5],
                     const int64_t (&stride)[5], const Box &box)
{
    const auto make = map_maker();
    cuuint64_t extents[5], strides[4];
    const cuuint32_t sides[5] = { (cuuint32_t)box.channels, (cuuint32_t)box.w, (cuuint32_t)box.h,
                                  (cuuint32_t)box.d, 1 },
                     steps[5] = { 1, 1, 1, 1, 1 };
    for (int i = 0; i < 5; i++) {
        extents[i] = (cuuint64_t)extent[i];
        if (i > 0) /* of an axis of one nothing is known */
            strides[i - 1] = extent[i] > 1 ? (cuuint64_t)stride[i] * 2 : 16;
    }
    return make &&
           make(map, dtype == WF_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5,
                data, extents, strides, sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                (CUtensorMapSwizzle)box.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

inline bool map_view(CUtensorMap *map, const struct wf_view &v, const Box &box)
{
    static const int order[5] = { WF_C, WF_W, WF_H, WF_D, WF_N };
    int64_t extent[5], stride[5];
    for (int i = 0; i < 5; i++) {
        extent[i] = v.box.hi[order[i]] - v.box.lo[order[i]];
        stride[i] = v.stride[order[i]];
    }
    return map_make(map, v.dtype, v.data, extent, stride, box);
}

/* Weights, one tap at a time: `side` channels of `side` filters. */
inline bool map_weights(CUtensorMap *map, const struct wf_view &w, int side, int swizzle)
{
    int64_t taps = 1;
    for (int axis = WF_D; axis <= WF_W; axis++)
        taps *= w.box.hi[axis] - w.box.lo[axis];
    const int64_t extent[5] = { w.box.hi[WF_C] - w.box.lo[WF_C], taps,
                                w.box.hi[WF_N] - w.box.lo[WF_N], 1, 1 };
    const int64_t stride[5] = { 1, w.stride[WF_W], w.stride[WF_N], 0, 0 };
    return map_make(map, w.dtype, w.data, extent, stride, Box{ side, 1, side, swizzle });
}

/* Of a norm that is computed with the convolution of its input: that convolution, with the norm's results. */
inline struct wf_call call_of_conv(const struct wf_call *norm)
{
    const struct wf_fused_input &conv = norm->fused[0];
    struct wf_call call = *norm;
    call.node = conv.node;
    call.in = conv.in;
    call.fused = NULL;
    return call;
}

} // namespace wf
