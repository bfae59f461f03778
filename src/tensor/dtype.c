#include "tensor/dtype.h"

#include <math.h>

#include "base/err.h"

static const struct {
    const char *name;
    size_t size;
} table[WF_DTYPES] = {
    [WF_F32] = { "f32", 4 }, [WF_BF16] = { "bf16", 2 }, [WF_F16] = { "f16", 2 },
    [WF_F64] = { "f64", 8 }, [WF_I32] = { "i32", 4 },   [WF_I64] = { "i64", 8 },
    [WF_U8] = { "u8", 1 },
};

size_t wf_dtype_size(enum wf_dtype dtype)
{
    return table[dtype].size;
}

const char *wf_dtype_name(enum wf_dtype dtype)
{
    return table[dtype].name;
}

bool wf_dtype_parse(const char *name, enum wf_dtype *dtype)
{
    for (int i = 0; i < WF_DTYPES; i++)
        if (strcmp(name, table[i].name) == 0) {
            *dtype = (enum wf_dtype)i;
            return true;
        }
    return false;
}

/* By hand: clang 14 has no _Float16 on x86. A half is 1 sign, 5 exponent, 10 fraction bits. */
float wf_f16_to_f32(uint16_t bits)
{
    const float sign = bits & 0x8000u ? -1.0f : 1.0f;
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 0x3ff;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * (float)fraction * 0x1p-24f;
    return sign * ldexpf((float)(fraction | 0x400), exponent - 25);
}

uint16_t wf_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u); /* NaN */
    if (size >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* rounds past the largest half: infinity */
    if (size < 0x38800000u) {
        /* Subnormal: adding one half's worth of 2^-24 units lets the float unit round to even. */
        float small;
        memcpy(&small, &size, sizeof small);
        const float shifted = small + 0.5f;
        uint32_t low;
        memcpy(&low, &shifted, sizeof low);
        return (uint16_t)(sign | (low & 0x7fffu));
    }
    const uint32_t rounded = size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u;
    return (uint16_t)(sign | (rounded >> 13));
}

double wf_dtype_get(enum wf_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case WF_F32:
        return (double)((const float *)data)[index];
    case WF_BF16:
        return (double)wf_bf16_to_f32(((const uint16_t *)data)[index]);
    case WF_F16:
        return (double)wf_f16_to_f32(((const uint16_t *)data)[index]);
    case WF_F64:
        return ((const double *)data)[index];
    case WF_I32:
        return ((const int32_t *)data)[index];
    case WF_I64:
        return (double)((const int64_t *)data)[index];
    case WF_U8:
        return ((const uint8_t *)data)[index];
    case WF_DTYPES:
        break;
    }
    wf_bug(__FILE__, __LINE__, "dtype", "%d", (int)dtype);
}

void wf_dtype_put(enum wf_dtype dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case WF_F32:
        ((float *)data)[index] = (float)value;
        return;
    case WF_BF16:
        ((uint16_t *)data)[index] = wf_f32_to_bf16((float)value);
        return;
    case WF_F16:
        ((uint16_t *)data)[index] = wf_f32_to_f16((float)value);
        return;
    case WF_F64:
        ((double *)data)[index] = value;
        return;
    case WF_I32:
        ((int32_t *)data)[index] = (int32_t)value;
        return;
    case WF_I64:
        ((int64_t *)data)[index] = (int64_t)value;
        return;
    case WF_U8:
        ((uint8_t *)data)[index] = (uint8_t)value;
        return;
    case WF_DTYPES:
        break;
    }
    wf_bug(__FILE__, __LINE__, "dtype", "%d", (int)dtype);
}
