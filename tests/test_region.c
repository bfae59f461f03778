#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "tensor/region.h"

static struct wf_region box(int64_t n0, int64_t n1, int64_t h0, int64_t h1)
{
    return (struct wf_region){ { n0, 0, h0, 0, 0 }, { n1, 1, h1, 1, 1 } };
}

static bool inside(struct wf_region r, const int64_t at[WF_AXES])
{
    for (int a = 0; a < WF_AXES; a++)
        if (at[a] < r.lo[a] || at[a] >= r.hi[a])
            return false;
    return true;
}

/* Looks at every cell of [-1, side)^5 and of both operations. */
static void check_pair(struct wf_region a, struct wf_region b, int64_t side)
{
    struct wf_region out[WF_SUBTRACT_MAX];
    const int count = wf_region_subtract(a, b, out);
    assert_in_range(count, 0, WF_SUBTRACT_MAX);
    const struct wf_region both = wf_region_intersect(a, b), bound = wf_region_bound(a, b);
    int64_t cells = 0, common = 0;
    int64_t at[WF_AXES] = { -1, -1, -1, -1, -1 };
    for (;;) {
        int covered = 0;
        for (int i = 0; i < count; i++)
            covered += inside(out[i], at);
        assert_int_equal(covered, inside(a, at) && !inside(b, at));
        assert_int_equal(inside(both, at), inside(a, at) && inside(b, at));
        if (inside(a, at) || inside(b, at))
            assert_true(inside(bound, at));
        cells += inside(a, at);
        common += inside(both, at);
        int axis = WF_AXES - 1;
        while (axis >= 0 && ++at[axis] == side)
            at[axis--] = -1;
        if (axis < 0)
            break;
    }
    assert_int_equal(wf_region_count(a), cells);
    assert_int_equal(wf_region_is_empty(a), cells == 0);
    assert_int_equal(wf_region_count(both), common);
    assert_int_equal(wf_region_contains(b, a), common == cells);
    assert_true(wf_region_contains(bound, a) && wf_region_contains(bound, b));
}

static void subtract__covers_exactly_and_disjointly_in_two_axes(void **state)
{
    struct wf_region boxes[100];
    int count = 0;
    for (int64_t n0 = 0; n0 < 4; n0++)
        for (int64_t n1 = n0; n1 < 4; n1++)
            for (int64_t h0 = 0; h0 < 4; h0++)
                for (int64_t h1 = h0; h1 < 4; h1++)
                    boxes[count++] = box(n0, n1, h0, h1);
    assert_int_equal(count, 100);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            /* The cells of the other three axes are one each: look at the plane only. */
            struct wf_region out[WF_SUBTRACT_MAX];
            const int parts = wf_region_subtract(boxes[i], boxes[k], out);
            for (int64_t n = -1; n < 4; n++)
                for (int64_t h = -1; h < 4; h++) {
                    const int64_t at[WF_AXES] = { n, 0, h, 0, 0 };
                    int covered = 0;
                    for (int p = 0; p < parts; p++)
                        covered += inside(out[p], at);
                    if (covered != (inside(boxes[i], at) && !inside(boxes[k], at)))
                        fail_msg("boxes %d and %d at (%d, %d)", i, k, (int)n, (int)h);
                }
        }
}

static void algebra__agrees_with_looking_at_every_cell_in_five_axes(void **state)
{
    const struct wf_random r = wf_random(17, 0);
    uint64_t next = 0;
    for (int i = 0; i < 300; i++) {
        struct wf_region pair[2];
        for (int p = 0; p < 2; p++)
            for (int a = 0; a < WF_AXES; a++) {
                pair[p].lo[a] = (int64_t)wf_random_below(r, next++, 3);
                pair[p].hi[a] = pair[p].lo[a] + (int64_t)wf_random_below(r, next++, 4);
            }
        check_pair(pair[0], pair[1], 6);
    }
}

static void subtract__of_an_inner_box_gives_two_slabs_per_axis(void **state)
{
    const struct wf_region outer = { { 0, 0, 0, 0, 0 }, { 3, 3, 3, 3, 3 } };
    const struct wf_region inner = { { 1, 1, 1, 1, 1 }, { 2, 2, 2, 2, 2 } };
    struct wf_region out[WF_SUBTRACT_MAX];
    assert_int_equal(wf_region_subtract(outer, inner, out), WF_SUBTRACT_MAX);
    int64_t cells = 0;
    for (int i = 0; i < WF_SUBTRACT_MAX; i++)
        cells += wf_region_count(out[i]);
    assert_int_equal(cells, 3 * 3 * 3 * 3 * 3 - 1);
}

static void empty__regions_are_all_equal_and_contained(void **state)
{
    const struct wf_region none = box(5, 5, 0, 9), turned = box(7, 2, 3, 3), some = box(0, 2, 0, 2);
    assert_true(wf_region_is_empty(none) && wf_region_is_empty(turned));
    assert_int_equal(wf_region_count(turned), 0);
    assert_true(wf_region_equal(none, turned));
    assert_false(wf_region_equal(none, some));
    assert_true(wf_region_contains(some, none));
    assert_true(wf_region_contains(none, turned));
    assert_false(wf_region_contains(none, some));
    assert_true(wf_region_equal(wf_region_bound(none, some), some));
    assert_true(wf_region_equal(wf_region_bound(some, turned), some));
    assert_true(wf_region_is_empty(wf_region_intersect(some, box(2, 4, 0, 2))));
}

static void shift__moves_both_ends(void **state)
{
    const struct wf_region r =
        wf_region_shift(box(1, 3, 2, 5), (const int64_t[]){ 10, 0, -4, 0, 0 });
    assert_true(wf_region_equal(r, box(11, 13, -2, 1)));
    assert_int_equal(wf_region_extent(r, WF_H), 3);
}

static void shape__counts_and_refuses_what_does_not_fit(void **state)
{
    assert_int_equal(wf_shape_count(WF_SHAPE(2, 3, 5, 7, 11)), 2310);
    assert_true(wf_shape_equal(WF_SHAPE(1, 2, 3, 4, 5), WF_SHAPE(1, 2, 3, 4, 5)));
    assert_false(wf_shape_equal(WF_SHAPE(1, 2, 3, 4, 5), WF_SHAPE(1, 2, 3, 4, 6)));
    const struct wf_region whole = wf_shape_region(WF_SHAPE(2, 3, 5, 7, 11));
    assert_int_equal(wf_region_count(whole), 2310);
    assert_true(wf_shape_equal(wf_region_shape(whole), WF_SHAPE(2, 3, 5, 7, 11)));
    const int64_t most = INT64_C(1) << 53;
    assert_true(wf_shape_is_valid(WF_SHAPE(1, 1, 100'000, 100'000, 64)));
    assert_true(wf_shape_is_valid(WF_SHAPE(1, 1, 1, 1, most)));
    assert_false(wf_shape_is_valid(WF_SHAPE(1, 1, 1, 1, most + 1)));
    assert_false(wf_shape_is_valid(WF_SHAPE(1, 1, INT64_C(1) << 31, INT64_C(1) << 31, 1)));
    assert_false(wf_shape_is_valid(WF_SHAPE(1, 1, 2, 1, INT64_MAX)));
    assert_false(wf_shape_is_valid(WF_SHAPE(1, 0, 2, 1, 3)));
    assert_false(wf_shape_is_valid(WF_SHAPE(1, -1, -2, 1, 3)));
}

static void split__covers_everything_in_nearly_equal_parts(void **state)
{
    for (int64_t extent = 0; extent <= 40; extent++)
        for (int64_t parts = 1; parts <= 12; parts++) {
            assert_int_equal(wf_split_point(extent, parts, 0), 0);
            assert_int_equal(wf_split_point(extent, parts, parts), extent);
            for (int64_t i = 0; i < parts; i++) {
                const int64_t cut = wf_split_point(extent, parts, i);
                assert_int_equal(cut, i * extent / parts);
                const int64_t size = wf_split_point(extent, parts, i + 1) - cut;
                assert_in_range(size, extent / parts, (extent + parts - 1) / parts);
            }
        }
}

static void split__does_not_overflow_on_large_extents(void **state)
{
    /* i * extent / 7 in whole numbers without bound, by Python. */
    static const int64_t cuts[8] = { 0,
                                     1285714285714285714,
                                     2571428571428571428,
                                     3857142857142857143,
                                     5142857142857142857,
                                     6428571428571428572,
                                     7714285714285714286,
                                     9000000000000000001 };
    for (int64_t i = 0; i <= 7; i++)
        assert_true(wf_split_point(cuts[7], 7, i) == cuts[i]);
}

static void division__rounds_down_and_up_for_both_signs(void **state)
{
    for (int64_t a = -20; a <= 20; a++)
        for (int64_t b = 1; b <= 6; b++) {
            /* The largest q with q * b <= a, and the smallest with q * b >= a. */
            const int64_t down = wf_floor_div(a, b), up = wf_ceil_div(a, b);
            assert_true(down * b <= a && (down + 1) * b > a);
            assert_true(up * b >= a && (up - 1) * b < a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subtract__covers_exactly_and_disjointly_in_two_axes),
        cmocka_unit_test(algebra__agrees_with_looking_at_every_cell_in_five_axes),
        cmocka_unit_test(subtract__of_an_inner_box_gives_two_slabs_per_axis),
        cmocka_unit_test(empty__regions_are_all_equal_and_contained),
        cmocka_unit_test(shift__moves_both_ends),
        cmocka_unit_test(shape__counts_and_refuses_what_does_not_fit),
        cmocka_unit_test(split__covers_everything_in_nearly_equal_parts),
        cmocka_unit_test(split__does_not_overflow_on_large_extents),
        cmocka_unit_test(division__rounds_down_and_up_for_both_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
