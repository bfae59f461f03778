/* Counts and what follows from them, against values worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/metrics.h"

static void close_to(double got, double want)
{
    if (!(fabs(got - want) < 1e-12))
        fail_msg("%.17g, expected %.17g", got, want);
}

static void scores__of_two_classes_by_hand(void **state)
{
    /* truth 0: 3 right, 1 taken for 1; truth 1: 2 taken for 0, 4 right */
    int64_t confusion[] = { 3, 1, 2, 4 };
    const struct wf_metrics m = { .classes = 2, .confusion = confusion };
    struct wf_arena arena = { 0 };
    const struct wf_scores s = wf_scores(&arena, &m);
    close_to(s.iou[0], 3.0 / 6);
    close_to(s.iou[1], 4.0 / 7);
    close_to(s.dice[0], 6.0 / 9);
    close_to(s.dice[1], 8.0 / 11);
    close_to(s.recall[0], 3.0 / 4);
    close_to(s.recall[1], 4.0 / 6);
    close_to(s.mean_iou, (3.0 / 6 + 4.0 / 7) / 2);
    close_to(s.mean_dice, (6.0 / 9 + 8.0 / 11) / 2);
    close_to(s.accuracy, 0.7);
    assert_int_equal(s.counted, 10);
    wf_arena_release(&arena);
}

static void scores__leave_out_a_class_that_is_nowhere(void **state)
{
    int64_t confusion[] = { 5, 0, 0, 0, 0, 0, 0, 1, 4 }; /* class 1 is predicted once, never true */
    const struct wf_metrics with = { .classes = 3, .confusion = confusion };
    struct wf_arena arena = { 0 };
    struct wf_scores s = wf_scores(&arena, &with);
    assert_true(isnan(s.iou[1]) && isnan(s.dice[1]) && isnan(s.recall[1]));
    close_to(s.iou[2], 4.0 / 5); /* what was taken for it counts against the true class */
    close_to(s.mean_iou, (1 + 4.0 / 5) / 2);
    confusion[7] = 0;
    s = wf_scores(&arena, &with);
    assert_true(isnan(s.iou[1]) && isnan(s.dice[1]));
    close_to(s.mean_iou, 1);
    memset(confusion, 0, sizeof confusion);
    s = wf_scores(&arena, &with);
    assert_true(isnan(s.mean_iou) && isnan(s.accuracy));
    wf_arena_release(&arena);
}

static void count__takes_the_first_of_the_largest_and_passes_over_what_is_ignored(void **state)
{
    float logits[] = { 1, 1, 0, /**/ 0, 2, 1, /**/ -3, -2, -1, /**/ 9, 0, 0, /**/ 9, 0, 0 };
    int32_t labels[] = { 0, 1, 1, 7, -1 };
    const struct wf_view y =
        wf_view_dense(logits, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 5, 3)));
    const struct wf_view t =
        wf_view_dense(labels, WF_I32, wf_shape_region(WF_SHAPE(1, 1, 1, 5, 1)));
    struct wf_metrics m;
    wf_metrics_init(&m, 3);
    wf_metrics_count(&m, &y, &t, t.box, NULL); /* 7 and -1 are no classes */
    const int64_t want[] = { 1, 0, 0, 0, 1, 1, 0, 0, 0 };
    assert_memory_equal(m.confusion, want, sizeof want);
    wf_metrics_clear(&m);
    const int32_t ignore = 1;
    wf_metrics_count(&m, &y, &t, t.box, &ignore);
    assert_int_equal(wf_metrics_total(&m), 1);
    wf_metrics_release(&m);
}

static void count__of_one_channel_is_by_its_sign(void **state)
{
    uint16_t logits[4]; /* bf16, as a network in low precision has them */
    const float values[] = { -1, 0, 0.5f, 3 };
    for (int i = 0; i < 4; i++)
        logits[i] = wf_f32_to_bf16(values[i]);
    float target[] = { 0, 1, 1, 0 };
    const struct wf_region box = wf_shape_region(WF_SHAPE(1, 1, 2, 2, 1));
    const struct wf_view y = wf_view_dense(logits, WF_BF16, box);
    const struct wf_view t = wf_view_dense(target, WF_F32, box);
    struct wf_metrics m;
    assert_int_equal(wf_metrics_classes(1), 2);
    wf_metrics_init(&m, wf_metrics_classes(1));
    wf_metrics_count(&m, &y, &t, box, NULL);
    const int64_t want[] = { 1, 1, 1, 1 };
    assert_memory_equal(m.confusion, want, sizeof want);
    wf_metrics_release(&m);
}

static void count__of_a_target_per_class_is_by_its_largest(void **state)
{
    float logits[] = { 0, 5, 1, /**/ 7, 5, 1 };
    float target[] = { 0, 1, 0, /**/ 0, 0, 1 };
    const struct wf_region box = wf_shape_region(WF_SHAPE(2, 1, 1, 1, 3));
    const struct wf_view y = wf_view_dense(logits, WF_F32, box);
    const struct wf_view t = wf_view_dense(target, WF_F32, box);
    struct wf_metrics m;
    wf_metrics_init(&m, 3);
    wf_metrics_count(&m, &y, &t, box, NULL);
    const int64_t want[] = { 0, 0, 0, 0, 1, 0, 1, 0, 0 };
    assert_memory_equal(m.confusion, want, sizeof want);
    wf_metrics_release(&m);
}

/* By hand: of seven logits the truth is the largest, the fifth, the sixth, and equal to the fifth
 * behind it. */
static void count__of_images_looks_at_the_five_largest(void **state)
{
    float logits[] = { 9, 1, 2, 3, 4, 5, 6, /**/ 3, 1, 9, 8, 7, 6, 0, /**/
                       1, 3, 9, 8, 7, 6, 4, /**/ 3, 9, 8, 7, 6, 3, 0 };
    int32_t labels[] = { 0, 0, 1, 5 };
    const struct wf_view y =
        wf_view_dense(logits, WF_F32, wf_shape_region(WF_SHAPE(4, 1, 1, 1, 7)));
    const struct wf_view t =
        wf_view_dense(labels, WF_I32, wf_shape_region(WF_SHAPE(4, 1, 1, 1, 1)));
    struct wf_metrics m;
    struct wf_arena arena = { 0 };
    wf_metrics_init(&m, 7);
    m.per_image = true;
    wf_metrics_count(&m, &y, &t, t.box, NULL);
    struct wf_scores s = wf_scores(&arena, &m);
    assert_true(s.accuracy == 0.25 && s.top5 == 0.5 && s.per_image);
    assert_true(s.precision[0] == 1 && s.precision[2] == 0 && isnan(s.precision[3]));
    assert_true(s.recall[0] == 0.5 && s.recall[5] == 0);
    const double want[] = { -3, 6, 6, 6 };
    for (int64_t n = 0; n < 4; n++) {
        const int64_t at[WF_AXES] = { n };
        assert_int_equal(wf_metrics_truth(&t, at), labels[n]);
        assert_true(wf_metrics_margin(&y, at, labels[n]) == want[n]);
    }
    m.per_image = false;
    assert_true(isnan(wf_scores(&arena, &m).top5));
    wf_metrics_release(&m);
    wf_arena_release(&arena);
}

/* --- over ranks --- */

enum { ROWS = 37, COLUMNS = 11, CLASSES = 4 };

struct picture {
    float logits[ROWS * COLUMNS * CLASSES];
    int32_t labels[ROWS * COLUMNS];
    struct wf_metrics whole;
};

static void count_rows(struct wf_metrics *m, struct picture *p, int64_t lo, int64_t hi)
{
    const struct wf_view y =
        wf_view_dense(p->logits, WF_F32, wf_shape_region(WF_SHAPE(1, 1, ROWS, COLUMNS, CLASSES)));
    const struct wf_view t =
        wf_view_dense(p->labels, WF_I32, wf_shape_region(WF_SHAPE(1, 1, ROWS, COLUMNS, 1)));
    struct wf_region part = t.box;
    part.lo[WF_H] = lo;
    part.hi[WF_H] = hi;
    wf_metrics_count(m, &y, &t, part, NULL);
}

static bool sum_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct picture *const p = arg;
    const int size = wf_comm_size(comm), rank = wf_comm_rank(comm);
    struct wf_metrics m;
    wf_metrics_init(&m, CLASSES);
    count_rows(&m, p, wf_split_point(ROWS, size, rank), wf_split_point(ROWS, size, rank + 1));
    bool ok = wf_metrics_sum(&m, comm, err);
    if (ok && memcmp(m.confusion, p->whole.confusion, sizeof(int64_t) * CLASSES * CLASSES) != 0)
        ok = wf_err_set(err, WF_ERR_FAILED, "not the counts of the whole");
    wf_metrics_release(&m);
    return ok;
}

/* ranks: 1 2 3 5 */
static void sum__over_ranks_is_that_of_the_whole(void **state)
{
    static struct picture p;
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof p.logits / sizeof p.logits[0]; i++)
        p.logits[i] = (float)((seed = seed * 1664525 + 1013904223) >> 20);
    for (size_t i = 0; i < sizeof p.labels / sizeof p.labels[0]; i++)
        p.labels[i] = (int32_t)((seed = seed * 1664525 + 1013904223) >> 30);
    wf_metrics_init(&p.whole, CLASSES);
    count_rows(&p.whole, &p, 0, ROWS);
    assert_int_equal(wf_metrics_total(&p.whole), ROWS * COLUMNS);
    static const int sizes[] = { 1, 2, 3, 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct wf_err err = { 0 };
        if (!wf_comm_threads_run(sizes[i], sum_rank, &p, &err))
            fail_msg("%d ranks: %s", sizes[i], err.text);
    }
    wf_metrics_release(&p.whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores__of_two_classes_by_hand),
        cmocka_unit_test(scores__leave_out_a_class_that_is_nowhere),
        cmocka_unit_test(count__takes_the_first_of_the_largest_and_passes_over_what_is_ignored),
        cmocka_unit_test(count__of_one_channel_is_by_its_sign),
        cmocka_unit_test(count__of_a_target_per_class_is_by_its_largest),
        cmocka_unit_test(count__of_images_looks_at_the_five_largest),
        cmocka_unit_test(sum__over_ranks_is_that_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
