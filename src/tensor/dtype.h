/* Element types. Sums that ranks combine (statistics, losses) are f64, so that the cut of an image
 * does not affect the last digit of an f32. */
#pragma once

#include <string.h>

#include "widefield_types.h"

size_t wf_dtype_size(enum wf_dtype dtype);
const char *wf_dtype_name(enum wf_dtype dtype); /* "f32", "bf16", ... */
bool wf_dtype_parse(const char *name, enum wf_dtype *dtype);

static inline float wf_bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t wf_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float wf_f16_to_f32(uint16_t bits);
uint16_t wf_f32_to_f16(float value);

/* One element of any type as double: for reference kernels and conversions, not for speed. */
double wf_dtype_get(enum wf_dtype dtype, const void *data, int64_t index);
void wf_dtype_put(enum wf_dtype dtype, void *data, int64_t index, double value);
