/*
 * What all kernels share: element types, 16-byte accesses, walking over strided boxes, launching.
 *
 * Arithmetic is f32 for f32, bf16 and f16 elements and f64 for f64 ones. `Vec<T, V>` is V packed
 * elements read or written at once; V is 1 where memory is not packed or not aligned.
 */
#pragma once

#include <type_traits>

extern "C" {
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/norm.h"
#include "ops/sparse.h"
#include "plan/target.h"
}
#include "device/cuda/kernels.h"

#ifndef WF_CUDA_EMULATED
#include <cuda_runtime.h>
#endif

namespace wf
{

/* --- elements --- */

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

template <class T> struct Arith {
    typedef float type;
};
template <> struct Arith<double> {
    typedef double type;
};
template <class T> using arith = typename Arith<T>::type;

template <int Bytes> struct Strict {
    typedef double type;
};
template <> struct Strict<2> {
    typedef float type;
};
/* Where a forward pass must not differ from f64's by more than its last rounding: a ReLU turns the
 * last bit of an f32 image into a thousandth of a gradient. */
template <class T> using strict = typename Strict<sizeof(T)>::type;

__device__ inline float to_arith(float x)
{
    return x;
}
__device__ inline double to_arith(double x)
{
    return x;
}
__device__ inline float to_arith(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

#ifdef WF_CUDA_EMULATED
__device__ inline float to_arith(f16 x)
{
    return wf_f16_to_f32(x.bits);
}
__device__ inline uint16_t bits_of_f16(float x)
{
    return wf_f32_to_f16(x);
}
__device__ inline uint16_t bits_of_bf16(float x)
{
    return wf_f32_to_bf16(x);
}
#else
__device__ inline float to_arith(f16 x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ inline uint16_t bits_of_f16(float x)
{
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ inline uint16_t bits_of_bf16(float x)
{
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
/* The address of shared memory, for instructions. */
__device__ inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
#endif

template <class T> __device__ inline strict<T> to_strict(T x)
{
    return (strict<T>)to_arith(x);
}

/* Two neighbours as they lie in memory. */
__device__ inline uint32_t pair_of(bf16, float low, float high)
{
#ifdef WF_CUDA_EMULATED
    return (uint32_t)bits_of_bf16(high) << 16 | bits_of_bf16(low);
#else
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
#endif
}
__device__ inline uint32_t pair_of(f16, float low, float high)
{
    return (uint32_t)bits_of_f16(high) << 16 | bits_of_f16(low);
}

template <class T> struct To;
template <> struct To<float> {
    static __device__ float from(float x)
    {
        return x;
    }
};
template <> struct To<double> {
    static __device__ double from(double x)
    {
        return x;
    }
};
template <> struct To<bf16> {
    static __device__ bf16 from(float x)
    {
        return bf16{ bits_of_bf16(x) };
    }
};
template <> struct To<f16> {
    static __device__ f16 from(float x)
    {
        return f16{ bits_of_f16(x) };
    }
};

/* a * b + c, rounded once: the build does not fuse on its own. */
__device__ inline float fma_of(float a, float b, float c)
{
    return fmaf(a, b, c);
}
__device__ inline double fma_of(double a, double b, double c)
{
    return fma(a, b, c);
}

/* One element of any dtype, for tables, targets and rare layouts. */
__device__ inline double any_get(int dtype, const void *data, int64_t at)
{
    switch (dtype) {
    case WF_F32:
        return (double)((const float *)data)[at];
    case WF_BF16:
        return (double)to_arith(((const bf16 *)data)[at]);
    case WF_F16:
        return (double)to_arith(((const f16 *)data)[at]);
    case WF_F64:
        return ((const double *)data)[at];
    case WF_I32:
        return (double)((const int32_t *)data)[at];
    case WF_I64:
        return (double)((const int64_t *)data)[at];
    default:
        return (double)((const uint8_t *)data)[at];
    }
}

__device__ inline void any_put(int dtype, void *data, int64_t at, double x)
{
    switch (dtype) {
    case WF_F32:
        ((float *)data)[at] = (float)x;
        break;
    case WF_BF16:
        ((bf16 *)data)[at] = To<bf16>::from((float)x);
        break;
    case WF_F16:
        ((f16 *)data)[at] = To<f16>::from((float)x);
        break;
    case WF_F64:
        ((double *)data)[at] = x;
        break;
    case WF_I32:
        ((int32_t *)data)[at] = (int32_t)x;
        break;
    case WF_I64:
        ((int64_t *)data)[at] = (int64_t)x;
        break;
    default:
        ((uint8_t *)data)[at] = (uint8_t)x;
        break;
    }
}

/* --- several elements at once --- */

template <int Bytes> struct Words;
template <> struct Words<1> {
    typedef uint8_t type;
};
template <> struct Words<2> {
    typedef uint16_t type;
};
template <> struct Words<4> {
    typedef uint32_t type;
};
template <> struct Words<8> {
    typedef uint2 type;
};
template <> struct Words<16> {
    typedef uint4 type;
};
template <> struct Words<32> { /* int32 indices of 8 channels */
    struct type {
        uint4 lo, hi;
    };
};

template <class T, int V> struct Vec {
    typename Words<sizeof(T) * V>::type raw;

    __device__ void load(const T *from)
    {
        raw = *(const typename Words<sizeof(T) * V>::type *)from;
    }
    __device__ void store(T *to) const
    {
        *(typename Words<sizeof(T) * V>::type *)to = raw;
    }
    __device__ T at(int i) const
    {
        return ((const T *)&raw)[i];
    }
    __device__ void put(int i, T x)
    {
        ((T *)&raw)[i] = x;
    }
    __device__ arith<T> get(int i) const
    {
        if constexpr (std::is_same<T, bf16>::value && V > 1) { /* one instruction for each half */
            const uint32_t two = ((const uint32_t *)&raw)[i / 2];
            return __uint_as_float(i % 2 ? two & 0xffff0000u : two << 16);
        } else
            return to_arith(at(i));
    }
    __device__ void set(int i, arith<T> x)
    {
        put(i, To<T>::from(x));
    }
    __device__ void set_all(const arith<T> (&x)[V])
    {
        if constexpr (sizeof(T) == 2 && V > 1) {
#pragma unroll
            for (int i = 0; i < V; i += 2)
                ((uint32_t *)&raw)[i / 2] = pair_of(T(), x[i], x[i + 1]);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                set(i, x[i]);
        }
    }
};

/* The widest access of a type. */
template <class T> struct Wide {
    enum { V = 16 / sizeof(T) };
};

/* Behind several loads: none of them waits for arithmetic, which the compiler would put in between to
 * save registers. */
__device__ inline void loads_come_first()
{
#ifndef WF_CUDA_EMULATED
    __syncwarp(__activemask());
#endif
}

/* --- whole numbers --- */

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
template <class N> __host__ __device__ inline N smaller(N a, N b)
{
    return a < b ? a : b;
}
template <class N> __host__ __device__ inline N larger(N a, N b)
{
    return a > b ? a : b;
}
/* Floor of a / b for a of any sign, b > 0. */
__device__ inline int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Division by a number that is known when the kernel is launched: 32 bits by multiplication where
 * all that is divided stays below 2^31, plain 64 bits otherwise. */
struct Divisor {
    int64_t by;
    uint32_t magic, shift;
    int32_t small;

    __device__ void divide(int64_t n, int64_t *quotient, int64_t *rest) const
    {
        if (small) {
            const uint32_t m = (uint32_t)n, q = (__umulhi(m, magic) + m) >> shift;
            *quotient = q;
            *rest = m - q * (uint32_t)by;
        } else {
            *quotient = n / by;
            *rest = n - *quotient * by;
        }
    }
};

/* For numbers up to `most`. */
inline Divisor divisor(int64_t by, int64_t most)
{
    Divisor d = { by, 0, 0, most < INT64_C(1) << 31 && by < INT64_C(1) << 31 };
    if (d.small) {
        while ((INT64_C(1) << d.shift) < by)
            d.shift++;
        d.magic = (uint32_t)(((UINT64_C(1) << 32) * ((UINT64_C(1) << d.shift) - (uint64_t)by)) /
                             (uint64_t)by) +
                  1;
    }
    return d;
}

/* --- boxes --- */

enum { SIDES = 5 };

/* The axes of a box, merged where memory runs on without a gap on all sides. Unit i of `count` lies
 * at element offset `at(i)` of each side. */
struct Walk {
    int64_t count;
    int32_t n_axes;
    Divisor extent[WF_AXES]; /* extent[n_axes - 1] runs fastest */
    int64_t stride[SIDES][WF_AXES];

    /* At most one axis is left: most images, in buffers of their own or as channels of others'. */
    bool linear() const
    {
        return n_axes <= 1;
    }
    template <int N> __device__ void at(int64_t unit, int64_t (&offset)[N]) const
    {
        for (int s = 0; s < N; s++)
            offset[s] = 0;
        for (int a = n_axes - 1; a > 0; a--) {
            int64_t rest;
            extent[a].divide(unit, &unit, &rest);
            for (int s = 0; s < N; s++)
                offset[s] += rest * stride[s][a];
        }
        for (int s = 0; s < N; s++)
            offset[s] += unit * stride[s][0];
    }
    /* Where units are below 2^31 and offsets below 2^32. With Linear, linear() is known to hold. */
    template <bool Linear, int N> __device__ void at(uint32_t unit, uint32_t (&offset)[N]) const
    {
#pragma unroll
        for (int s = 0; s < N; s++)
            offset[s] = 0;
        for (int a = Linear ? 0 : n_axes - 1; a > 0; a--) {
            const uint32_t next = (__umulhi(unit, extent[a].magic) + unit) >> extent[a].shift;
            const uint32_t rest = unit - next * (uint32_t)extent[a].by;
            unit = next;
#pragma unroll
            for (int s = 0; s < N; s++)
                offset[s] += rest * (uint32_t)stride[s][a];
        }
#pragma unroll
        for (int s = 0; s < N; s++)
            offset[s] += unit * (uint32_t)stride[s][0];
    }
};

/* A side of a walk: memory at the first element of the part, and its strides. */
struct Side {
    void *data;
    int dtype;
    int64_t stride[WF_AXES];
};

inline size_t size_of(int dtype)
{
    return wf_dtype_size((enum wf_dtype)dtype);
}

/* The part of a view that begins at `lo`; the view's own data may be NULL (prepare). */
inline Side side_at(const struct wf_view &view, const int64_t lo[WF_AXES])
{
    Side s = { view.data, (int)view.dtype, {} };
    int64_t offset = 0;
    for (int a = 0; a < WF_AXES; a++) {
        s.stride[a] = view.stride[a];
        offset += (lo[a] - view.box.lo[a]) * view.stride[a];
    }
    if (s.data)
        s.data = (char *)s.data + offset * (int64_t)size_of(view.dtype);
    return s;
}

/* Over axes [0, n) of a box with these extents. */
inline Walk walk_over(const int64_t extent[], int n, const Side sides[], int n_sides)
{
    Walk w = {};
    int64_t e[WF_AXES];
    w.count = 1;
    for (int a = 0; a < n; a++) {
        w.count *= extent[a];
        if (extent[a] == 1)
            continue;
        bool runs_on = w.n_axes > 0;
        for (int s = 0; s < n_sides && runs_on; s++)
            runs_on = w.stride[s][w.n_axes - 1] == sides[s].stride[a] * extent[a];
        const int to = runs_on ? w.n_axes - 1 : w.n_axes++;
        e[to] = runs_on ? e[to] * extent[a] : extent[a];
        for (int s = 0; s < n_sides; s++)
            w.stride[s][to] = sides[s].stride[a];
    }
    for (int a = 0; a < w.n_axes; a++)
        w.extent[a] = divisor(e[a], w.count);
    return w;
}

/* A tensor by global coordinates. */
struct Image {
    void *data;
    int dtype;
    int64_t base, stride[WF_AXES];

    __device__ int64_t at(int64_t n, int64_t d, int64_t h, int64_t w) const
    {
        return base + n * stride[WF_N] + d * stride[WF_D] + h * stride[WF_H] + w * stride[WF_W];
    }
};

inline Image image_of(const struct wf_view &view)
{
    Image m = { view.data, (int)view.dtype, 0, {} };
    for (int a = 0; a < WF_AXES; a++) {
        m.stride[a] = view.stride[a];
        m.base -= view.box.lo[a] * view.stride[a];
    }
    return m;
}

/* A small table [N,1,1,1,K], such as statistics or a parameter; absent ones have no data. */
struct Table {
    void *data;
    int dtype;
    int64_t row, column;

    __device__ double get(int64_t r, int64_t c) const
    {
        return any_get(dtype, data, r * row + c * column);
    }
    __device__ void put(int64_t r, int64_t c, double x) const
    {
        any_put(dtype, data, r * row + c * column, x);
    }
};

/* With rows counted as the value's samples are. */
inline Table table_of(const struct wf_view &view)
{
    Table t = { view.data, (int)view.dtype, view.stride[WF_N], view.stride[WF_C] };
    if (t.data)
        t.data = (char *)t.data - (view.box.lo[WF_N] * t.row + view.box.lo[WF_C] * t.column) *
                                      (int64_t)size_of(view.dtype);
    return t;
}

/* True when `v` elements at once may be taken along C from a side: packed, aligned, whole. */
inline bool takes_vectors(const Side &s, const int64_t extent[WF_AXES], int v)
{
    const int64_t bytes = (int64_t)size_of(s.dtype) * v;
    if (extent[WF_C] % v != 0 || s.stride[WF_C] != 1 || (uintptr_t)s.data % (size_t)bytes != 0)
        return false;
    for (int a = 0; a < WF_C; a++)
        if (extent[a] > 1 && s.stride[a] % v != 0)
            return false;
    return true;
}

/* --- launching --- */

inline struct wf_shape extents(const struct wf_region &r)
{
    struct wf_shape e;
    for (int a = 0; a < WF_AXES; a++)
        e.at[a] = r.hi[a] - r.lo[a];
    return e;
}

/* Of a sparse tensor: how many of the work's rows there are, in the device's memory. NULL: all. */
inline const int32_t *rows_there(const struct wf_call *call)
{
    const int set = wf_op_domain(call->node)->set;
    return call->rows && set ? call->rows + set : NULL;
}

inline bool is_empty(const struct wf_region &r)
{
    for (int a = 0; a < WF_AXES; a++)
        if (r.hi[a] <= r.lo[a])
            return true;
    return false;
}

#ifndef WF_CUDA_EMULATED
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, int threads, struct CUstream_st *stream, A... args)
{
    kernel<<<grid, (unsigned)threads, 0, stream>>>(args...);
}
#endif

enum { THREADS = 256 };

/* Blocks for `count` units, `each` of them per block. */
inline dim3 blocks_for(int64_t count, int64_t each)
{
    return dim3((unsigned)ceil_div(count, each), 1, 1);
}

/* f(T()) for the element type. Call where accepts() has let only such types through. */
template <class F> void with_type(int dtype, F f)
{
    switch (dtype) {
    case WF_BF16:
        f(bf16());
        break;
    case WF_F16:
        f(f16());
        break;
    case WF_F32:
        f(float());
        break;
    default:
        WF_BUG_ON(true, "no kernel for dtype %d", dtype);
    }
}

template <class F> void with_type_or_double(int dtype, F f)
{
    if (dtype == WF_F64)
        f(double());
    else
        with_type(dtype, f);
}

template <int N> struct Int {
    enum { value = N };
};

} // namespace wf
