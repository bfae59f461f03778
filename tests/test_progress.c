/* needs: COMMAND */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/progress.h"

static void step(struct wf_progress *p, int64_t epoch, int64_t batch, double loss, char text[200])
{
    struct wf_position at = wf_position_start();
    at.epoch = epoch;
    at.batch = batch;
    const struct wf_step_report r = {
        .at = &at, .batches = 3, .loss = loss, .seconds = 2, .pixels = 1e6
    };
    wf_progress_step(p, &r);
    wf_progress_text(p, &r, 1024.0 * 1024 * 1024, text, 200);
}

/* Epoch 1 has losses of 9, epoch 2 losses of 1, 2 and 6 with the mean 3: what stood before is not in it. */
static void loss__is_the_mean_of_the_epochs_own_steps(void **state)
{
    struct wf_progress p;
    char text[200];
    wf_progress_init(&p, NULL, false, 2);
    for (int64_t b = 1; b <= 3; b++)
        step(&p, 0, b, 9, text);
    assert_string_equal(text, "epoch 1/2  step 3/3  loss 9  0.5 Mpx/s  6s left  1.00 GiB");
    step(&p, 1, 1, 1, text);
    assert_non_null(strstr(text, "epoch 2/2  step 1/3  loss 1 "));
    step(&p, 1, 2, 2, text);
    step(&p, 1, 3, 6, text);
    assert_string_equal(text, "epoch 2/2  step 3/3  loss 3  0.5 Mpx/s  0s left  1.00 GiB");
}

/* Three steps of 2 s, which took 30 s with what was between them. */
static void time_left__is_that_of_the_clock(void **state)
{
    struct wf_progress p;
    char text[200];
    struct wf_position at = wf_position_start();
    wf_progress_init(&p, NULL, false, 2);
    for (at.batch = 1; at.batch <= 3; at.batch++) {
        const struct wf_step_report r = { .at = &at,
                                          .batches = 3,
                                          .loss = 1,
                                          .seconds = 2,
                                          .pixels = 1e6,
                                          .elapsed = 10.0 * (double)at.batch };
        wf_progress_step(&p, &r);
        wf_progress_text(&p, &r, 0, text, sizeof text);
    }
    assert_non_null(strstr(text, " 0.5 Mpx/s  30s left "));
}

static void loss__follows_the_last_steps_of_a_long_epoch(void **state)
{
    struct wf_progress p;
    char text[200];
    wf_progress_init(&p, NULL, false, 1);
    for (int64_t b = 1; b <= 100; b++)
        step(&p, 0, b, 9, text);
    for (int64_t b = 101; b <= 400; b++)
        step(&p, 0, b, 1, text);
    assert_non_null(strstr(text, "loss 1 ")); /* 8 x 0.95^300 is nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss__is_the_mean_of_the_epochs_own_steps),
        cmocka_unit_test(time_left__is_that_of_the_clock),
        cmocka_unit_test(loss__follows_the_last_steps_of_a_long_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
