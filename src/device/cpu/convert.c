/* Packed rows between f32 and the other types, a vector at a time. */
#include "device/cpu/cpu.h"

#if defined __F16C__ || defined __AVX512BF16__
#include <immintrin.h>
#endif

static void from_half(const uint16_t *from, float *to, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = wf_f16_to_f32(from[i]);
}

static void to_half(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = wf_f32_to_f16(from[i]);
}

static void from_bf16(const uint16_t *from, float *to, int64_t n)
{
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_to_f32(from[i]);
}

static void to_bf16(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
#ifdef __AVX512BF16__
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(to + i),
                            (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
#endif
    WF_SIMD
    for (int64_t k = i; k < n; k++)
        to[k] = wf_f32_to_bf16(from[k]);
}

void wf_cpu_to_f32(enum wf_dtype dtype, const void *from, float *to, int64_t n)
{
    const uint16_t *narrow = from;
    const uint8_t *bytes = from;
    switch (dtype) {
    case WF_F32:
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    case WF_BF16:
        from_bf16(narrow, to, n);
        return;
    case WF_F16:
        from_half(narrow, to, n);
        return;
    case WF_U8:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)bytes[i];
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)wf_dtype_get(dtype, from, i);
    }
}

void wf_cpu_from_f32(enum wf_dtype dtype, const float *from, void *to, int64_t n)
{
    uint16_t *narrow = to;
    uint8_t *bytes = to;
    switch (dtype) {
    case WF_F32:
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    case WF_BF16:
        to_bf16(from, narrow, n);
        return;
    case WF_F16:
        to_half(from, narrow, n);
        return;
    case WF_U8: /* of whole numbers in its range */
        for (int64_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)(int32_t)from[i];
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            wf_dtype_put(dtype, to, i, (double)from[i]);
    }
}

void wf_cpu_tile(float *values, int64_t channels, int64_t length)
{
    for (int64_t i = channels; i < length; i++)
        values[i] = values[i - channels];
}

bool wf_cpu_accepts_float(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && wf_cpu_is_float(node->out[0]);
}

bool wf_cpu_accepts_channels(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}
