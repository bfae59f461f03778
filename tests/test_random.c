#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"

/* Philox 4x32-10 once more, from the description in Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3" (2011): the other way by which our words are known. */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * x0, b = (uint64_t)0xcd9e8d57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

/* The lines "philox4x32 10" of tests/kat_vectors in Random123: counter, key, answer. */
static const uint32_t known[3][10] = {
    { 0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
    { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
      0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
    { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
      0x94fdcceb, 0x5001e420, 0x24126ea1 },
};

static void philox__gives_the_published_answers(void **state)
{
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(wf_random_bits(wf_random(0, 0), i), known[0][6 + i]);
}

static void bits__are_philox_of_index_stream_and_seed(void **state)
{
    const uint64_t seed = 0x299f31d0a4093822, stream = 0x0370734413198a2e;
    const uint64_t blocks[] = {
        0, 1, 0xffffffff, 0x100000000, 0x05a308d3243f6a88, 0x3fffffffffffffff
    };
    for (int i = 0; i < 6; i++) {
        const uint32_t counter[4] = { (uint32_t)blocks[i], (uint32_t)(blocks[i] >> 32), 0x13198a2e,
                                      0x03707344 };
        uint32_t out[4];
        philox(counter, (const uint32_t[2]){ 0xa4093822, 0x299f31d0 }, out);
        for (uint64_t word = 0; word < 4; word++)
            assert_int_equal(wf_random_bits(wf_random(seed, stream), blocks[i] * 4 + word),
                             out[word]);
    }
}

static void numbers__do_not_depend_on_the_order_of_asking(void **state)
{
    const struct wf_random r = wf_random(7, wf_random_stream("enc0.conv0.weight"));
    float forth[1000];
    for (uint64_t i = 0; i < 1000; i++)
        forth[i] = wf_random_normal(r, i);
    for (uint64_t i = 1000; i-- > 0;) {
        (void)wf_random_uniform(r, i * 31);
        assert_true(forth[i] == wf_random_normal(r, i));
    }
}

static void uniforms__are_those_asked_for_one_by_one(void **state)
{
    (void)state;
    enum { COUNT = 333 };
    /* Also across the end of the counter's first word. */
    const uint64_t firsts[] = { 0, 1, 2, 7, 1000003, ((uint64_t)1 << 34) - 130 };
    const struct wf_random r = wf_random(0x123456789abcdef0u, wf_random_stream("a"));
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
        for (int64_t count = COUNT; count > COUNT - 80; count--) {
            float all[COUNT + 1] = { 0 };
            all[count] = 2;
            wf_random_uniforms(r, firsts[f], count, all);
            for (int64_t i = 0; i < count; i++)
                assert_true(all[i] == wf_random_uniform(r, firsts[f] + (uint64_t)i));
            assert_true(all[count] == 2);
        }
}

static void uniform__lies_in_range_with_the_right_moments(void **state)
{
    const struct wf_random r = wf_random(1, 2);
    enum { COUNT = 1 << 20 };
    double sum = 0, squares = 0;
    int bins[16] = { 0 };
    for (uint64_t i = 0; i < COUNT; i++) {
        const double u = (double)wf_random_uniform(r, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        bins[(int)(u * 16)]++;
    }
    /* Five standard deviations of the means: sqrt(1/12/n) and sqrt(4/45/n). */
    assert_true(fabs(sum / COUNT - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    assert_true(fabs(squares / COUNT - 1.0 / 3) < 5 * sqrt(4.0 / 45 / COUNT));
    /* Chi squared of 15 degrees of freedom stays under 45 but once in 10,000. */
    double chi = 0;
    for (int b = 0; b < 16; b++)
        chi += pow(bins[b] - COUNT / 16.0, 2) / (COUNT / 16.0);
    assert_true(chi < 45);
}

static void normal__has_the_moments_of_the_standard_normal(void **state)
{
    const struct wf_random r = wf_random(3, 4);
    enum { COUNT = 1 << 20 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, next = 0, last = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double x = (double)wf_random_normal(r, i);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        next += x * last;
        last = x;
    }
    /* 0, 1, 0, 3 with variances 1, 2, 15, 96 of the single powers; neighbours are independent. */
    assert_true(fabs(m1 / COUNT) < 5 * sqrt(1.0 / COUNT));
    assert_true(fabs(m2 / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(m3 / COUNT) < 5 * sqrt(15.0 / COUNT));
    assert_true(fabs(m4 / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(next / COUNT) < 5 * sqrt(1.0 / COUNT));
}

static void below__covers_its_range_evenly(void **state)
{
    const struct wf_random r = wf_random(5, 6);
    int seen[7] = { 0 };
    for (uint64_t i = 0; i < 70000; i++) {
        const uint32_t v = wf_random_below(r, i, 7);
        assert_true(v < 7);
        seen[v]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 9500, 10500);
    assert_int_equal(wf_random_below(r, 0, 1), 0);
}

static void streams__and_seeds_do_not_meet(void **state)
{
    int same = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        const uint32_t a = wf_random_bits(wf_random(1, 1), i);
        same += a == wf_random_bits(wf_random(1, 2), i);
        same += a == wf_random_bits(wf_random(2, 1), i);
    }
    assert_true(same <= 1);
}

static void stream__is_fnv_1a_of_the_name(void **state)
{
    /* Published answers for 64 bits: "", "a", "foobar". */
    assert_true(wf_random_stream("") == 0xcbf29ce484222325u);
    assert_true(wf_random_stream("a") == 0xaf63dc4c8601ec8cu);
    assert_true(wf_random_stream("foobar") == 0x85944171f73967e8u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox__gives_the_published_answers),
        cmocka_unit_test(bits__are_philox_of_index_stream_and_seed),
        cmocka_unit_test(numbers__do_not_depend_on_the_order_of_asking),
        cmocka_unit_test(uniforms__are_those_asked_for_one_by_one),
        cmocka_unit_test(uniform__lies_in_range_with_the_right_moments),
        cmocka_unit_test(normal__has_the_moments_of_the_standard_normal),
        cmocka_unit_test(below__covers_its_range_evenly),
        cmocka_unit_test(streams__and_seeds_do_not_meet),
        cmocka_unit_test(stream__is_fnv_1a_of_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
