#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/border.h"

static void check_shape(struct wf_shape shape, int dims, int rank, const int64_t *wanted)
{
    int64_t outside[WF_AXES];
    assert_int_equal(wf_border_shape(shape, dims, outside), rank);
    assert_memory_equal(outside, wanted, (size_t)rank * sizeof *wanted);
    struct wf_shape back;
    int back_dims;
    struct wf_err err = { 0 };
    assert_true(wf_border_inside(rank, outside, &back, &back_dims, &err));
    assert_true(wf_shape_equal(back, shape));
    assert_int_equal(back_dims, dims);
}

static void shape__is_pytorchs_both_ways(void **state)
{
    check_shape(WF_SHAPE(1, 1, 1, 1, 64), -1, 1, (const int64_t[]){ 64 });
    check_shape(WF_SHAPE(10, 1, 1, 1, 64), 0, 2, (const int64_t[]){ 10, 64 });
    check_shape(WF_SHAPE(2, 1, 1, 9, 3), 1, 3, (const int64_t[]){ 2, 3, 9 });
    check_shape(WF_SHAPE(64, 1, 3, 5, 32), 2, 4, (const int64_t[]){ 64, 32, 3, 5 });
    check_shape(WF_SHAPE(2, 7, 8, 9, 3), 3, 5, (const int64_t[]){ 2, 3, 7, 8, 9 });
}

static void inside__refuses_what_is_no_tensor(void **state)
{
    const int64_t many[] = { 1, 1, 1, 1, 1, 1 }, none[] = { 2, 0, 4 }, huge[] = { INT64_MAX, 2 };
    struct wf_shape shape;
    int dims;
    struct wf_err err = { 0 };
    assert_false(wf_border_inside(0, many, &shape, &dims, &err));
    assert_non_null(strstr(err.text, "0 axes"));
    err = (struct wf_err){ 0 };
    assert_false(wf_border_inside(6, many, &shape, &dims, &err));
    assert_non_null(strstr(err.text, "6 axes"));
    err = (struct wf_err){ 0 };
    assert_false(wf_border_inside(3, none, &shape, &dims, &err));
    assert_non_null(strstr(err.text, "below one"));
    assert_false(wf_border_inside(2, huge, &shape, &dims, NULL));
}

/* Every element by its coordinates: theirs[n][c][d][h][w] is ours[n][d][h][w][c]. */
static void check_move(struct wf_shape s)
{
    const size_t count = (size_t)wf_shape_count(s);
    float *ours = calloc(count, sizeof *ours), *theirs = calloc(count, sizeof *theirs),
          *back = calloc(count, sizeof *back);
    if (!ours || !theirs || !back)
        abort();
    for (size_t i = 0; i < count; i++)
        ours[i] = (float)i;
    wf_border_export(s, ours, theirs);
    const float *at = ours;
    for (int64_t n = 0; n < s.at[WF_N]; n++)
        for (int64_t d = 0; d < s.at[WF_D]; d++)
            for (int64_t h = 0; h < s.at[WF_H]; h++)
                for (int64_t w = 0; w < s.at[WF_W]; w++)
                    for (int64_t c = 0; c < s.at[WF_C]; c++) {
                        const int64_t plane = (n * s.at[WF_C] + c) * s.at[WF_D] + d;
                        const int64_t to = (plane * s.at[WF_H] + h) * s.at[WF_W] + w;
                        assert_true(theirs[to] == *at++);
                    }
    wf_border_import(s, theirs, back);
    assert_memory_equal(back, ours, count * sizeof *ours);
    free(ours);
    free(theirs);
    free(back);
}

static void data__moves_channels_second_and_back(void **state)
{
    check_move(WF_SHAPE(1, 1, 1, 1, 64));
    check_move(WF_SHAPE(10, 1, 1, 1, 7));
    check_move(WF_SHAPE(2, 1, 1, 9, 3));
    check_move(WF_SHAPE(3, 1, 4, 5, 1));
    check_move(WF_SHAPE(2, 1, 33, 31, 3));
    check_move(WF_SHAPE(1, 1, 8, 4, 33)); /* exactly one square, and one past it */
    check_move(WF_SHAPE(2, 3, 4, 5, 65));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape__is_pytorchs_both_ways),
        cmocka_unit_test(inside__refuses_what_is_no_tensor),
        cmocka_unit_test(data__moves_channels_second_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
