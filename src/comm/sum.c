#include "comm/sum.h"

#include <stdint.h>
#include <string.h>

#include "base/err.h"

/* Small enough that the running sum of a piece stays in the first cache. */
enum { PIECE = 1024 };

/* Whole numbers are added unsigned: the same bits, and an overflow is not undefined. */
union piece {
    float f32[PIECE];
    double f64[PIECE];
};

void wf_sum_widen(enum wf_dtype dtype, float *to, const void *from, size_t count)
{
    const uint16_t *half = from;
    if (dtype == WF_BF16)
        for (size_t i = 0; i < count; i++)
            to[i] = wf_bf16_to_f32(half[i]);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = wf_f16_to_f32(half[i]);
}

void wf_sum_narrow(enum wf_dtype dtype, void *to, const float *from, size_t count)
{
    uint16_t *half = to;
    if (dtype == WF_BF16)
        for (size_t i = 0; i < count; i++)
            half[i] = wf_f32_to_bf16(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = wf_f32_to_f16(from[i]);
}

static void add_f32(float *sum, const float *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void add_f64(double *sum, const double *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void add_u32(uint32_t *sum, const uint32_t *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void add_u64(uint64_t *sum, const uint64_t *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void add_half(enum wf_dtype dtype, float *sum, const uint16_t *part, size_t count)
{
    float wide[PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        wf_sum_widen(dtype, wide, part + at, n);
        add_f32(sum + at, wide, n);
    }
}

void wf_sum_add(enum wf_dtype dtype, void *sum, const void *part, size_t count)
{
    switch (dtype) {
    case WF_F32:
        add_f32(sum, part, count);
        return;
    case WF_F64:
        add_f64(sum, part, count);
        return;
    case WF_I32:
        add_u32(sum, part, count);
        return;
    case WF_I64:
        add_u64(sum, part, count);
        return;
    case WF_BF16:
    case WF_F16:
        add_half(dtype, sum, part, count);
        return;
    case WF_U8:
    case WF_DTYPES:
        break;
    }
    WF_BUG_ON(true, "sum of dtype %d", (int)dtype);
}

void wf_sum_block(enum wf_dtype dtype, void *const *parts, int ranks, size_t first, size_t count)
{
    const size_t size = wf_dtype_size(dtype);
    const bool half = dtype == WF_BF16 || dtype == WF_F16;
    union piece sum;
    for (size_t at = first; at < first + count; at += PIECE) {
        const size_t n = first + count - at < PIECE ? first + count - at : PIECE;
        if (half)
            wf_sum_widen(dtype, sum.f32, (const char *)parts[0] + at * size, n);
        else
            memcpy(&sum, (const char *)parts[0] + at * size, n * size);
        for (int r = 1; r < ranks; r++)
            wf_sum_add(dtype, &sum, (const char *)parts[r] + at * size, n);
        for (int r = 0; r < ranks; r++)
            if (half)
                wf_sum_narrow(dtype, (char *)parts[r] + at * size, sum.f32, n);
            else
                memcpy((char *)parts[r] + at * size, &sum, n * size);
    }
}
