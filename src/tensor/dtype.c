#include "tensor/dtype.h"

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

__extension__ typedef _Float16 half_float;

float wf_f16_to_f32(uint16_t bits)
{
    half_float half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

uint16_t wf_f32_to_f16(float value)
{
    const half_float half = (half_float)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
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
