/*
 * The loop: it learns, and a run that was stopped and goes on makes the numbers of one that was not.
 * The network has batch norm (states), dropout (its mask depends on the step) and Adam (two states and
 * a count); the data is drawn and turned at random.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support_scratch.h"
#include "support_training.h"

/* --- tests --- */

static void loop__learns(void **state)
{
    struct support_training j = { .mesh = "", .epochs = 6, .to = "learn.safetensors" };
    support_train(&j);
    /* 5 images for training, 2 crops of each, 2 in a batch */
    assert_int_equal(j.result.at.step, 6 * 5);
    assert_int_equal(j.epochs_seen, 6);
    assert_int_equal(j.result.end, WF_END_DONE);
    if (!(j.last_loss < 0.75 * j.first_loss) || !(j.metric > 0.5))
        fail_msg("loss %g to %g, mean IoU %g", j.first_loss, j.last_loss, j.metric);
    assert_true(j.result.loss == j.last_loss);
    assert_true(j.best_saves >= 1 && j.saves == 6);
}

/* 10 steps at once against 4, stop, 6 more. ranks: 1 2 4 */
static void going_on__is_bit_for_bit_what_never_stopped(void **state)
{
    static const char *const meshes[] = { "space=1", "space=2x1", "data=2,space=1x2" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct support_training whole = { .mesh = meshes[i],
                                          .epochs = 2,
                                          .to = "whole.safetensors" };
        support_train(&whole);
        assert_int_equal(whole.result.at.step, 10);
        for (int64_t stop = 1; stop < 10;
             stop += 4) { /* within an epoch, at its end, in the next */
            struct support_training first = whole, second = whole;
            first.to = "first.safetensors";
            first.stop_at = stop;
            first.steps_seen = 0;
            support_train(&first);
            assert_int_equal(first.result.end, WF_END_SIGNAL);
            assert_int_equal(first.result.at.step, stop);
            second.from = first.to;
            second.to = "second.safetensors";
            support_train(&second);
            assert_int_equal(second.result.at.step, 10);
            if (support_apart("second.safetensors", "whole.safetensors") != 0)
                fail_msg("mesh %s, stopped at %lld: not the same bits", meshes[i], (long long)stop);
            assert_true(second.result.loss == whole.result.loss &&
                        second.result.metric == whole.result.metric &&
                        second.result.at.best_epoch == whole.result.at.best_epoch &&
                        second.result.at.best == whole.result.at.best);
        }
    }
}

/* ranks: 1 2 4 */
static void going_on__may_change_the_mesh(void **state)
{
    struct support_training whole = { .mesh = "space=1", .epochs = 2, .to = "whole.safetensors" };
    support_train(&whole);
    static const char *const pairs[][2] = { { "space=1", "space=2x1" },
                                            { "space=2x1", "space=1" },
                                            { "space=1x2", "data=2,space=2x1" } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct support_training first = {
            .mesh = pairs[i][0], .epochs = 2, .stop_at = 4, .to = "f.safetensors"
        };
        struct support_training second = {
            .mesh = pairs[i][1], .epochs = 2, .from = "f.safetensors", .to = "s.safetensors"
        };
        support_train(&first);
        support_train(&second);
        assert_int_equal(second.result.at.step, 10);
        const double far = support_apart("s.safetensors", "whole.safetensors");
        if (!(far < 1e-5))
            fail_msg("from %s to %s: %g apart", pairs[i][0], pairs[i][1], far);
        assert_true(fabs(second.result.metric - whole.result.metric) < 1e-3);
    }
}

/* ranks: 1 2 */
static void signal__in_a_validation_is_heard_there(void **state)
{
    static const char *const meshes[] = { "space=1", "space=2x1" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct support_training whole = { .mesh = meshes[i],
                                          .epochs = 2,
                                          .to = "whole.safetensors" };
        support_train(&whole);
        struct support_training first = { .mesh = meshes[i],
                                          .epochs = 2,
                                          .to = "first.safetensors",
                                          .stop_at = 5,
                                          .stop_in_validation = true };
        support_train(&first);
        assert_int_equal(first.result.end, WF_END_SIGNAL);
        assert_int_equal(first.result.at.step, 5);
        assert_int_equal(first.result.at.epoch, 0); /* not ended: its validation is to come */
        assert_int_equal(first.epochs_seen, 0);
        struct support_training second = {
            .mesh = meshes[i], .epochs = 2, .from = "first.safetensors", .to = "second.safetensors"
        };
        support_train(&second);
        assert_int_equal(second.epochs_seen, 2);
        assert_true(support_apart("second.safetensors", "whole.safetensors") == 0);
        assert_true(second.result.at.best == whole.result.at.best);
    }
}

static void early_stop__ends_when_nothing_gets_better(void **state)
{
    /* A learning rate so small that the prediction never changes: the first validation stays best. */
    struct support_training j = { .mesh = "", .epochs = 50, .early_stop = 3, .lr = 1e-30 };
    support_train(&j);
    assert_int_equal(j.result.end, WF_END_EARLY);
    assert_int_equal(j.result.at.stale, 3);
    assert_true(j.result.at.epoch < 50);
    assert_int_equal(j.result.at.epoch, j.result.at.best_epoch + 1 + 3);
}

/* From the sixth step on, which is the second epoch. */
static void spoil_second_epoch(void *user, float *grads, size_t count)
{
    static int step;
    (void)user;
    if (count > 0 && ++step > 5)
        grads[0] = NAN;
}

static void skipped__last_epoch_does_not_undo_a_run(void **state)
{
    struct support_training j = { .mesh = "", .epochs = 2, .hook = spoil_second_epoch };
    support_train(&j);
    assert_int_equal(j.result.at.skipped, j.result.at.step - 5);
    assert_true(j.result.at.skipped > 0 && isnan(j.result.loss));
}

static void saves__come_as_often_as_asked(void **state)
{
    struct support_training j = {
        .mesh = "", .epochs = 2, .checkpoint_steps = 2, .no_validation = true
    };
    support_train(&j);
    /* After steps 2, 4 of each epoch, and at each end. */
    assert_int_equal(j.saves, 2 * 3);
    assert_true(isnan(j.result.metric));
    struct support_training none = { .mesh = "", .epochs = 1 };
    support_train(&none);
    assert_int_equal(none.saves, 1);
}

/* Bests that replace each other unwritten put off no save: steps count from the last one that is on the disk. */
static void saves__come_as_often_as_asked_where_bests_are_held_back(void **state)
{
    struct support_training j = { .mesh = "",
                                  .epochs = 3,
                                  .checkpoint_steps = 7,
                                  .checkpoint_seconds = 1000,
                                  .holds_bests = true,
                                  .no_validation = true };
    support_train(&j);
    assert_int_equal(j.best_saves, 3); /* after steps 5, 10 and 15 */
    assert_int_equal(j.hurries, 2);    /* after step 7, and 7 behind the first best */
    assert_int_equal(j.hurried_at, 12);
    assert_int_equal(j.saves, 3);
}

/* Best epochs and the last are saved in any case, others when the time has passed. */
static void saves__of_other_epochs_come_by_time(void **state)
{
    struct support_training j = { .mesh = "space=2x1", .epochs = 6, .checkpoint_seconds = 1000 };
    support_train(&j);
    assert_true(j.best_saves < 6);
    const bool last_is_best = j.result.at.best_epoch == 5;
    assert_int_equal(j.saves, j.best_saves + !last_is_best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop__learns),
        cmocka_unit_test(going_on__is_bit_for_bit_what_never_stopped),
        cmocka_unit_test(going_on__may_change_the_mesh),
        cmocka_unit_test(signal__in_a_validation_is_heard_there),
        cmocka_unit_test(early_stop__ends_when_nothing_gets_better),
        cmocka_unit_test(skipped__last_epoch_does_not_undo_a_run),
        cmocka_unit_test(saves__come_as_often_as_asked),
        cmocka_unit_test(saves__come_as_often_as_asked_where_bests_are_held_back),
        cmocka_unit_test(saves__of_other_epochs_come_by_time),
    };
    return cmocka_run_group_tests(tests, support_training_data, support_scratch_leave);
}
