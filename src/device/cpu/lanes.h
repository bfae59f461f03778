/*
 * A vector register of f32, for kernels whose sums must stay in registers: AVX-512, AVX2, or plain C.
 * multiply_add rounds once everywhere.
 */
#pragma once

#include <stdint.h>

#if defined __AVX512F__
#include <immintrin.h>
enum { WF_LANES = 16 };
#define WF_LANE_REGISTERS 32
typedef __m512 wf_lanes;
typedef __mmask16 wf_lane_mask;
static inline wf_lane_mask wf_lane_mask_of(int64_t n) /* the first n lanes */
{
    return (wf_lane_mask)(n >= WF_LANES ? 0xffff : (1 << n) - 1);
}
static inline wf_lanes wf_lanes_load(const float *from)
{
    return _mm512_loadu_ps(from);
}
static inline wf_lanes wf_lanes_load_some(const float *from, wf_lane_mask mask)
{
    return _mm512_maskz_loadu_ps(mask, from);
}
static inline void wf_lanes_store(float *to, wf_lanes v)
{
    _mm512_storeu_ps(to, v);
}
static inline void wf_lanes_store_some(float *to, wf_lanes v, wf_lane_mask mask)
{
    _mm512_mask_storeu_ps(to, mask, v);
}
static inline wf_lanes wf_lanes_all(float value)
{
    return _mm512_set1_ps(value);
}
static inline wf_lanes wf_lanes_multiply_add(wf_lanes a, wf_lanes b, wf_lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}
#elif defined __AVX2__ && defined __FMA__
#include <immintrin.h>
enum { WF_LANES = 8 };
#define WF_LANE_REGISTERS 16
typedef __m256 wf_lanes;
typedef __m256i wf_lane_mask;
static inline wf_lane_mask wf_lane_mask_of(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n > WF_LANES ? WF_LANES : n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline wf_lanes wf_lanes_load(const float *from)
{
    return _mm256_loadu_ps(from);
}
static inline wf_lanes wf_lanes_load_some(const float *from, wf_lane_mask mask)
{
    return _mm256_maskload_ps(from, mask);
}
static inline void wf_lanes_store(float *to, wf_lanes v)
{
    _mm256_storeu_ps(to, v);
}
static inline void wf_lanes_store_some(float *to, wf_lanes v, wf_lane_mask mask)
{
    _mm256_maskstore_ps(to, mask, v);
}
static inline wf_lanes wf_lanes_all(float value)
{
    return _mm256_set1_ps(value);
}
static inline wf_lanes wf_lanes_multiply_add(wf_lanes a, wf_lanes b, wf_lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}
#else
enum { WF_LANES = 4 };
#define WF_LANE_REGISTERS 16
typedef struct {
    float at[WF_LANES];
} wf_lanes;
typedef int64_t wf_lane_mask;
static inline wf_lane_mask wf_lane_mask_of(int64_t n)
{
    return n < WF_LANES ? n : WF_LANES;
}
static inline wf_lanes wf_lanes_load_some(const float *from, wf_lane_mask n)
{
    wf_lanes v = { { 0 } };
    for (int64_t i = 0; i < n; i++)
        v.at[i] = from[i];
    return v;
}
static inline wf_lanes wf_lanes_load(const float *from)
{
    return wf_lanes_load_some(from, WF_LANES);
}
static inline void wf_lanes_store_some(float *to, wf_lanes v, wf_lane_mask n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = v.at[i];
}
static inline void wf_lanes_store(float *to, wf_lanes v)
{
    wf_lanes_store_some(to, v, WF_LANES);
}
static inline wf_lanes wf_lanes_all(float value)
{
    wf_lanes v;
    for (int i = 0; i < WF_LANES; i++)
        v.at[i] = value;
    return v;
}
static inline wf_lanes wf_lanes_multiply_add(wf_lanes a, wf_lanes b, wf_lanes c)
{
    for (int i = 0; i < WF_LANES; i++)
        c.at[i] = __builtin_fmaf(a.at[i], b.at[i], c.at[i]);
    return c;
}
#endif
