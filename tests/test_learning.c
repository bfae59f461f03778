/*
 * What a step is made of: batches of every size on every mesh, gradients from several passes, the
 * learning rate over a run, loss scaling, and the two ways to reduce; and that a run which was stopped
 * goes on with all of it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support_scratch.h"
#include "support_training.h"

#define NEAR(a, b, most)                                                                           \
    do {                                                                                           \
        const double far = support_apart(a, b);                                                    \
        if (!(far <= (most)))                                                                      \
            fail_msg("%s and %s are %g apart", a, b, far);                                         \
    } while (0)

/* 10 items in batches of 3: the last has one, fewer than there are ranks. ranks: 1 2 3 4 */
static void last_batch__is_as_small_as_it_is_on_every_mesh(void **state)
{
    struct support_training one = { .mesh = "space=1",
                                    .epochs = 2,
                                    .batch = 3,
                                    .rest = 1,
                                    .rule = WF_MOMENTUM,
                                    .to = "one.safetensors" };
    support_train(&one);
    assert_int_equal(one.result.at.step, 2 * 4);
    assert_true(one.result.pixels == 2 * 10 * 16 * 16); /* every item once, nothing twice */
    static const char *const meshes[] = { "data=2", "data=3", "space=2x1", "data=2,space=1x2" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct support_training cut = one;
        cut.mesh = meshes[i];
        cut.to = "cut.safetensors";
        support_train(&cut);
        NEAR("cut.safetensors", "one.safetensors", 1e-5);
        assert_true(fabs(cut.result.loss - one.result.loss) < 1e-5);
    }
}

/* The same samples in one pass and in several. Labels that do not count make passes weigh unequally. */
static void accumulation__gives_the_numbers_of_the_larger_batch(void **state)
{
    for (int ignores = 0; ignores < 2; ignores++)
        for (int clips = 0; clips < 2; clips++) {
            struct support_training whole = { .mesh = "space=1",
                                              .epochs = 2,
                                              .batch = 4,
                                              .rest = 2,
                                              .plain = true,
                                              .ignores = ignores,
                                              .clip = clips ? 0.05 : 0,
                                              .rule = WF_MOMENTUM,
                                              .to = "whole.safetensors" };
            support_train(&whole);
            assert_int_equal(whole.result.at.step, 2 * 3);
            struct support_training parts = whole;
            parts.to = "parts.safetensors";
            parts.batch = 2;
            parts.rest = 0;
            parts.accumulate = 2;
            support_train(&parts);
            assert_int_equal(parts.result.at.step, 2 * 3);
            NEAR("parts.safetensors", "whole.safetensors", 1e-5);
            /* 10 batches of one: 4, 4 and 2 of them; on two ranks, of which one then waits */
            parts.batch = 1;
            parts.accumulate = 4;
            parts.mesh = "space=2x1";
            support_train(&parts);
            assert_int_equal(parts.result.at.step, 2 * 3);
            NEAR("parts.safetensors", "whole.safetensors", 1e-5);
            assert_true(fabs(parts.result.loss - whole.result.loss) < 1e-5);
        }
}

/* Stopped behind update `stop` (between updates, never within one), and gone on with: the weights are
 * those of `whole` to the bit. Returns the second part. */
static struct support_training in_two_parts(const struct support_training *whole, int64_t stop)
{
    struct support_training first = *whole, second = *whole;
    first.to = second.from = "first.safetensors";
    first.stop_at = stop;
    second.to = "second.safetensors";
    support_train(&first);
    assert_int_equal(first.result.at.step, stop);
    support_train(&second);
    assert_true(support_apart("second.safetensors", whole->to) == 0);
    return second;
}

static void accumulation__goes_on_where_it_stopped(void **state)
{
    struct support_training whole = { .mesh = "data=2",
                                      .epochs = 2,
                                      .batch = 3,
                                      .rest = 1,
                                      .accumulate = 2,
                                      .to = "whole.safetensors" };
    support_train(&whole);
    assert_int_equal(whole.result.at.step, 2 * 2);
    for (int64_t stop = 1; stop < 4; stop++) {
        (void)in_two_parts(&whole, stop);
    }
}

/* The last has a rate so large that the loss does not always fall. */
static void schedules__go_on_where_they_stopped(void **state)
{
    static const struct wf_schedule schedules[] = {
        { .kind = WF_SCHEDULE_COSINE, .lr = 0.02, .length = 3, .warmup = 1.4, .by_step = true },
        { .kind = WF_SCHEDULE_STEP, .lr = 0.02, .gamma = 0.5, .every = 1 },
        { .kind = WF_SCHEDULE_PLATEAU, .lr = 5, .gamma = 0.25, .patience = 0 },
    };
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        struct support_training whole = {
            .mesh = "data=2", .epochs = 5, .schedule = &schedules[i], .to = "whole.safetensors"
        };
        support_train(&whole);
        for (int64_t stop = 4; stop < 24; stop += 9) {
            const struct support_training second = in_two_parts(&whole, stop);
            assert_memory_equal(&second.result.at.schedule, &whole.result.at.schedule,
                                sizeof whole.result.at.schedule);
        }
        struct support_training constant = whole;
        constant.schedule = NULL;
        constant.lr = schedules[i].lr;
        constant.to = "constant.safetensors";
        support_train(&constant);
        assert_true(support_apart("constant.safetensors", "whole.safetensors") > 1e-3);
    }
}

/* From a scale that overflows: it halves until it does not, and then training goes on. */
static void f16__finds_its_scale_and_keeps_it_in_the_checkpoint(void **state)
{
    struct support_training whole = { .mesh = "data=2",
                                      .epochs = 4,
                                      .compute = WF_F16,
                                      .loss_scale = 1 << 28,
                                      .to = "whole.safetensors" };
    support_train(&whole);
    const struct wf_position *const at = &whole.result.at;
    assert_int_equal(at->step, 4 * 5);
    assert_in_range(at->skipped, 2, 16);
    assert_true(at->loss_scale == ldexp(1, 28 - (int)at->skipped));
    assert_in_range(at->scale_streak, 1, at->step - at->skipped);
    if (!(whole.last_loss < whole.first_loss))
        fail_msg("loss %g to %g", whole.first_loss, whole.last_loss);
    for (int64_t stop = 2; stop < 20; stop += 7) {
        const struct support_training second = in_two_parts(&whole, stop);
        assert_true(second.result.at.loss_scale == at->loss_scale &&
                    second.result.at.skipped == at->skipped);
    }
    struct support_training f32 = { .mesh = "data=2", .epochs = 4, .to = "f32.safetensors" };
    support_train(&f32);
    assert_true(fabs(f32.metric - whole.metric) < 0.2);
}

/* Three and two of five samples a batch: other numbers; two and two: the same. */
static void rank_mean__differs_where_ranks_have_unequal_parts(void **state)
{
    struct support_training global = { .mesh = "data=2",
                                       .epochs = 1,
                                       .batch = 5,
                                       .plain = true,
                                       .rule = WF_MOMENTUM,
                                       .to = "global.safetensors" };
    support_train(&global);
    struct support_training mean = global;
    mean.rank_mean = true;
    mean.to = "mean.safetensors";
    support_train(&mean);
    assert_true(support_apart("mean.safetensors", "global.safetensors") > 1e-4);
    global.batch = mean.batch = 2;
    support_train(&global);
    support_train(&mean);
    NEAR("mean.safetensors", "global.safetensors", 1e-6);
    /* equally many samples, but not equally many labels that count */
    global.ignores = mean.ignores = true;
    support_train(&global);
    support_train(&mean);
    assert_true(support_apart("mean.safetensors", "global.safetensors") > 1e-4);
}

static void spoil_always(void *user, float *grads, size_t count)
{
    (void)count;
    if (wf_comm_rank(user) == 1)
        grads[0] = NAN;
}

static void skipping__ends_a_run_that_has_no_future(void **state)
{
    struct support_training j = { .mesh = "data=2",
                                  .epochs = 3,
                                  .skip_limit = 7,
                                  .hook = spoil_always,
                                  .expects = "7 steps in a row had a gradient that is not finite" };
    support_train(&j);
    assert_int_equal(j.result.at.step, 7);
    assert_int_equal(j.result.at.skipped, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_batch__is_as_small_as_it_is_on_every_mesh),
        cmocka_unit_test(accumulation__gives_the_numbers_of_the_larger_batch),
        cmocka_unit_test(accumulation__goes_on_where_it_stopped),
        cmocka_unit_test(schedules__go_on_where_they_stopped),
        cmocka_unit_test(f16__finds_its_scale_and_keeps_it_in_the_checkpoint),
        cmocka_unit_test(rank_mean__differs_where_ranks_have_unequal_parts),
        cmocka_unit_test(skipping__ends_a_run_that_has_no_future),
    };
    return cmocka_run_group_tests(tests, support_training_data, support_scratch_leave);
}
