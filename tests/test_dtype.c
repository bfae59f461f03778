#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tensor/dtype.h"

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void names__and_sizes_agree(void **state)
{
    static const size_t sizes[WF_DTYPES] = {
        [WF_F32] = 4, [WF_BF16] = 2, [WF_F16] = 2, [WF_F64] = 8,
        [WF_I32] = 4, [WF_I64] = 8,  [WF_U8] = 1
    };
    for (int i = 0; i < WF_DTYPES; i++) {
        enum wf_dtype back = WF_DTYPES;
        assert_true(wf_dtype_parse(wf_dtype_name((enum wf_dtype)i), &back));
        assert_int_equal(back, i);
        assert_int_equal(wf_dtype_size((enum wf_dtype)i), sizes[i]);
    }
    enum wf_dtype unused = WF_F32;
    assert_false(wf_dtype_parse("float32", &unused));
    assert_false(wf_dtype_parse("", &unused));
}

static void bf16__every_value_survives_the_way_there_and_back(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = wf_bf16_to_f32((uint16_t)bits);
        if (isnan(value))
            assert_true(isnan(wf_bf16_to_f32(wf_f32_to_bf16(value))));
        else
            assert_int_equal(wf_f32_to_bf16(value), bits);
    }
}

static void f16__every_value_survives_the_way_there_and_back(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = wf_f16_to_f32((uint16_t)bits);
        if (isnan(value))
            assert_true(isnan(wf_f16_to_f32(wf_f32_to_f16(value))));
        else
            assert_int_equal(wf_f32_to_f16(value), bits);
    }
}

static void f16__values_are_what_ieee_says(void **state)
{
    /* sign * 2^(e-15) * (1 + m/1024), or 2^-14 * m/1024 where e is 0. */
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const int e = (int)(bits >> 10 & 31), m = (int)(bits & 1023);
        const float value = wf_f16_to_f32((uint16_t)bits);
        if (e == 31) {
            assert_true(m ? isnan(value) : isinf(value));
            continue;
        }
        const double size = e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m / 1024.0, -14);
        assert_true((double)value == (bits >> 15 ? -size : size));
        assert_int_equal(signbit(value) != 0, bits >> 15);
    }
}

static void bf16__ties_go_to_even(void **state)
{
    /* 1 + k/256: odd k lies half way between two neighbours of spacing 1/128. */
    assert_int_equal(wf_f32_to_bf16(1 + 1.0f / 256), 0x3f80);
    assert_int_equal(wf_f32_to_bf16(1 + 3.0f / 256), 0x3f82);
    assert_int_equal(wf_f32_to_bf16(-1 - 1.0f / 256), 0xbf80);
    /* A bit past the tie rounds up, a bit before it down. */
    assert_int_equal(wf_f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
    assert_int_equal(wf_f32_to_bf16(from_bits(0x3f807fff)), 0x3f80);
    assert_int_equal(wf_f32_to_bf16(from_bits(0x3f817fff)), 0x3f81);
}

static void f16__ties_go_to_even(void **state)
{
    assert_int_equal(wf_f32_to_f16(1 + 1.0f / 2048), 0x3c00);
    assert_int_equal(wf_f32_to_f16(1 + 3.0f / 2048), 0x3c02);
    assert_int_equal(wf_f32_to_f16(from_bits(0x3f801001)), 0x3c01);
    assert_int_equal(wf_f32_to_f16(from_bits(0x3f800fff)), 0x3c00);
    /* Half of the smallest subnormal is a tie with zero; a bit more is not. */
    assert_int_equal(wf_f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(wf_f32_to_f16(-0x1p-25f), 0x8000);
    assert_int_equal(wf_f32_to_f16(nextafterf(0x1p-25f, 1)), 0x0001);
    /* The largest subnormal and the smallest normal, and the tie between them: to even. */
    assert_int_equal(wf_f32_to_f16(0x1.ff8p-15f), 0x03ff);
    assert_int_equal(wf_f32_to_f16(0x1.ffcp-15f), 0x0400);
}

static void overflow__rounds_to_infinity_only_past_the_last_tie(void **state)
{
    assert_int_equal(wf_f32_to_f16(65504), 0x7bff);
    assert_int_equal(wf_f32_to_f16(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(wf_f32_to_f16(65520), 0x7c00);
    assert_int_equal(wf_f32_to_bf16(from_bits(0x7f7f7fff)), 0x7f7f);
    assert_int_equal(wf_f32_to_bf16(from_bits(0x7f7f8000)), 0x7f80);
}

static void specials__stay_what_they_are(void **state)
{
    assert_int_equal(wf_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(wf_f32_to_bf16(-INFINITY), 0xff80);
    assert_int_equal(wf_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(wf_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(wf_f32_to_bf16(-0.0f), 0x8000);
    assert_int_equal(wf_f32_to_f16(-0.0f), 0x8000);
    /* NaNs whose payload lies only in the bits that are cut, and the one that would round up to
     * another sign. */
    const uint32_t nans[] = {
        0x7f800001, 0xff800001, 0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f808000
    };
    for (int i = 0; i < 6; i++) {
        assert_true(isnan(wf_bf16_to_f32(wf_f32_to_bf16(from_bits(nans[i])))));
        assert_true(isnan(wf_f16_to_f32(wf_f32_to_f16(from_bits(nans[i])))));
    }
    /* bf16 keeps the subnormals of f32. */
    assert_int_equal(to_bits(wf_bf16_to_f32(wf_f32_to_bf16(from_bits(0x00010000)))), 0x00010000);
}

/* No neighbour of the result is closer to the value. */
static void check_nearest(float value, uint16_t bits, float (*back)(uint16_t))
{
    const double error = fabs((double)back(bits) - (double)value);
    for (int step = -1; step <= 1; step += 2) {
        const double other = (double)back((uint16_t)(bits + step));
        if (isfinite(other) && (bits & 0x7fff))
            assert_true(error <= fabs(other - (double)value));
    }
}

static float bf16_back(uint16_t bits)
{
    return wf_bf16_to_f32(bits);
}

static void rounding__gives_the_nearest_value(void **state)
{
    const struct wf_random r = wf_random(11, 0);
    for (uint64_t i = 0; i < 200000; i++) {
        const float any = from_bits(wf_random_bits(r, i));
        if (isfinite(any) && fabsf(any) < 0x1p127f)
            check_nearest(any, wf_f32_to_bf16(any), bf16_back);
        const float small = ldexpf(wf_random_uniform(r, i) - 0.5f, (int)(i % 40) - 24);
        if (fabsf(small) < 65504)
            check_nearest(small, wf_f32_to_f16(small), wf_f16_to_f32);
    }
}

static void get_and_put__reach_every_type(void **state)
{
    for (int i = 0; i < WF_DTYPES; i++) {
        const enum wf_dtype dtype = (enum wf_dtype)i;
        double memory[4] = { 0 };
        wf_dtype_put(dtype, memory, 1, 3);
        wf_dtype_put(dtype, memory, 2, 250);
        assert_true(wf_dtype_get(dtype, memory, 0) == 0);
        assert_true(wf_dtype_get(dtype, memory, 1) == 3);
        assert_true(wf_dtype_get(dtype, memory, 2) == 250);
        /* Nothing past the third element was touched. */
        const unsigned char *bytes = (const unsigned char *)memory;
        for (size_t b = 3 * wf_dtype_size(dtype); b < sizeof memory; b++)
            assert_int_equal(bytes[b], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names__and_sizes_agree),
        cmocka_unit_test(bf16__every_value_survives_the_way_there_and_back),
        cmocka_unit_test(f16__every_value_survives_the_way_there_and_back),
        cmocka_unit_test(f16__values_are_what_ieee_says),
        cmocka_unit_test(bf16__ties_go_to_even),
        cmocka_unit_test(f16__ties_go_to_even),
        cmocka_unit_test(overflow__rounds_to_infinity_only_past_the_last_tie),
        cmocka_unit_test(specials__stay_what_they_are),
        cmocka_unit_test(rounding__gives_the_nearest_value),
        cmocka_unit_test(get_and_put__reach_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
