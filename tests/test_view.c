#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tensor/view.h"

/* What element (n, d, h, w, c) is called. */
static double label(int64_t n, int64_t d, int64_t h, int64_t w, int64_t c)
{
    return (double)((((n * 10 + d) * 10 + h) * 10 + w) * 10 + c);
}

#define EACH(r, n, d, h, w, c)                                                                     \
    for (int64_t n = (r).lo[WF_N]; n < (r).hi[WF_N]; n++)                                          \
        for (int64_t d = (r).lo[WF_D]; d < (r).hi[WF_D]; d++)                                      \
            for (int64_t h = (r).lo[WF_H]; h < (r).hi[WF_H]; h++)                                  \
                for (int64_t w = (r).lo[WF_W]; w < (r).hi[WF_W]; w++)                              \
                    for (int64_t c = (r).lo[WF_C]; c < (r).hi[WF_C]; c++)

static const struct wf_region HALO = { { 0, 1, 2, 3, 0 }, { 2, 3, 6, 8, 3 } }; /* 2x2x4x5x3 */

static void dense__packs_in_axis_order(void **state)
{
    float memory[240];
    for (int i = 0; i < 240; i++)
        memory[i] = (float)i;
    const struct wf_view v = wf_view_dense(memory, WF_F32, HALO);
    assert_int_equal(wf_view_bytes(&v), sizeof memory);
    assert_true(wf_view_is_dense(&v));
    double next = 0;
    EACH(HALO, n, d, h, w, c)
    assert_true(wf_view_get(&v, n, d, h, w, c) == next++);
    assert_true(next == 240);
}

static void part__keeps_global_coordinates(void **state)
{
    double memory[240];
    const struct wf_view v = wf_view_dense(memory, WF_F64, HALO);
    EACH(HALO, n, d, h, w, c)
    wf_view_put(&v, n, d, h, w, c, label(n, d, h, w, c));
    const struct wf_region inner = { { 1, 1, 3, 4, 1 }, { 2, 3, 5, 7, 2 } };
    const struct wf_view p = wf_view_part(v, inner);
    EACH(inner, n, d, h, w, c)
    assert_true(wf_view_get(&p, n, d, h, w, c) == label(n, d, h, w, c));
    assert_false(wf_view_is_dense(&p));
    assert_int_equal(wf_view_bytes(&p), (size_t)wf_region_count(inner) * sizeof(double));
    /* A part of a part is the same as the part at once. */
    const struct wf_region core = { { 1, 2, 3, 5, 1 }, { 2, 3, 4, 6, 2 } };
    assert_ptr_equal(wf_view_part(p, core).data, wf_view_part(v, core).data);
}

static void is_dense__sees_gaps_but_not_axes_of_one(void **state)
{
    float memory[240];
    const struct wf_view v = wf_view_dense(memory, WF_F32, HALO);
    struct wf_region rows = HALO, image = HALO, channel = HALO;
    rows.hi[WF_W]--; /* a gap after each row */
    image.lo[WF_N]++;
    channel.hi[WF_C]--;
    const struct wf_view a = wf_view_part(v, rows), b = wf_view_part(v, image),
                         c = wf_view_part(v, channel);
    assert_false(wf_view_is_dense(&a));
    assert_true(wf_view_is_dense(&b)); /* one image of the batch, whole */
    assert_false(wf_view_is_dense(&c));
}

static void check_copy(enum wf_dtype dtype, struct wf_region from, struct wf_region to)
{
    double source[240] = { 0 }, target[240];
    memset(target, 0x11, sizeof target);
    const struct wf_view src = wf_view_dense(source, dtype, HALO);
    const struct wf_view dst = wf_view_dense(target, dtype, HALO);
    double next = 1;
    EACH(HALO, n, d, h, w, c)
    wf_view_put(&src, n, d, h, w, c, (double)((int)next++ % 97));
    unsigned char before[sizeof target];
    memcpy(before, target, sizeof target);
    const struct wf_view s = wf_view_part(src, from), t = wf_view_part(dst, to);
    wf_view_copy(&t, &s);
    int64_t by[WF_AXES];
    for (int a = 0; a < WF_AXES; a++)
        by[a] = from.lo[a] - to.lo[a];
    EACH(HALO, n, d, h, w, c)
    {
        const bool written = wf_region_contains(
            to, (struct wf_region){ { n, d, h, w, c }, { n + 1, d + 1, h + 1, w + 1, c + 1 } });
        const size_t size = wf_dtype_size(dtype);
        const size_t at = (size_t)wf_view_offset(&dst, n, d, h, w, c) * size;
        const size_t origin = written ? (size_t)wf_view_offset(&src, n + by[0], d + by[1],
                                                               h + by[2], w + by[3], c + by[4]) *
                                            size
                                      : at;
        assert_memory_equal((char *)target + at,
                            written ? (unsigned char *)source + origin : before + at, size);
    }
}

static void copy__moves_boxes_and_nothing_else(void **state)
{
    const struct wf_region row = { { 0, 1, 2, 3, 0 }, { 1, 2, 3, 8, 3 } };
    const struct wf_region other_row = { { 1, 2, 5, 3, 0 }, { 2, 3, 6, 8, 3 } };
    const struct wf_region none = { { 0, 1, 2, 3, 0 }, { 2, 3, 2, 8, 3 } };
    const struct wf_region channel = { { 0, 1, 2, 3, 0 }, { 2, 3, 6, 8, 1 } };
    const struct wf_region other_channel = { { 0, 1, 2, 3, 2 }, { 2, 3, 6, 8, 3 } };
    const struct wf_region halo = { { 0, 1, 2, 3, 0 }, { 2, 3, 3, 8, 3 } };
    const struct wf_region other_halo = { { 0, 1, 5, 3, 0 }, { 2, 3, 6, 8, 3 } };
    for (int i = 0; i < WF_DTYPES; i++) {
        check_copy((enum wf_dtype)i, HALO, HALO);
        check_copy((enum wf_dtype)i, row, other_row);
        check_copy((enum wf_dtype)i, none, none);
        check_copy((enum wf_dtype)i, channel, other_channel);
        check_copy((enum wf_dtype)i, halo, other_halo);
    }
}

static void copy__agrees_element_by_element_on_random_boxes(void **state)
{
    const struct wf_random r = wf_random(23, 0);
    uint64_t next = 0;
    for (int i = 0; i < 300; i++) {
        struct wf_region from, to;
        for (int a = 0; a < WF_AXES; a++) {
            const uint32_t extent = (uint32_t)(HALO.hi[a] - HALO.lo[a]);
            const uint32_t size = 1 + wf_random_below(r, next++, extent);
            from.lo[a] = HALO.lo[a] + wf_random_below(r, next++, extent - size + 1);
            to.lo[a] = HALO.lo[a] + wf_random_below(r, next++, extent - size + 1);
            from.hi[a] = from.lo[a] + size;
            to.hi[a] = to.lo[a] + size;
        }
        check_copy(WF_F32, from, to);
    }
}

static void fill__writes_the_box_and_nothing_else(void **state)
{
    float memory[240] = { 0 };
    const struct wf_view v = wf_view_dense(memory, WF_F32, HALO);
    const struct wf_region inner = { { 0, 1, 3, 4, 0 }, { 2, 3, 5, 7, 3 } };
    const struct wf_view p = wf_view_part(v, inner);
    wf_view_fill(&p, 2.5);
    double sum = 0;
    for (int i = 0; i < 240; i++)
        sum += (double)memory[i];
    assert_true(sum == 2.5 * (double)wf_region_count(inner));
    EACH(inner, n, d, h, w, c)
    assert_true(wf_view_get(&v, n, d, h, w, c) == 2.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense__packs_in_axis_order),
        cmocka_unit_test(part__keeps_global_coordinates),
        cmocka_unit_test(is_dense__sees_gaps_but_not_axes_of_one),
        cmocka_unit_test(copy__moves_boxes_and_nothing_else),
        cmocka_unit_test(copy__agrees_element_by_element_on_random_boxes),
        cmocka_unit_test(fill__writes_the_box_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
