/* Fingerprints of datasets: the same wherever they are, another for every change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/fingerprint.h"
#include "data/synth.h"
#include "support_scratch.h"

static struct wf_fingerprint of(struct wf_arena *arena, const char *path)
{
    struct wf_err err = { 0 };
    struct wf_fingerprint f = { 0 };
    struct wf_dataset *const ds = wf_dataset_open(path, &(struct wf_dataset_options){ 0 }, &err);
    if (!ds || !wf_dataset_fingerprint(arena, ds, &f, &err))
        fail_msg("%s", err.text);
    wf_dataset_free(ds);
    return f;
}

static void sh(const char *command)
{
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): our own words
}

static void fingerprint__is_of_the_content_not_of_the_place_or_time(void **state)
{
    struct wf_arena arena = { 0 };
    sh("cp -r set moved && touch moved/images/* && cp -r set/. 'set with blanks'");
    const struct wf_fingerprint a = of(&arena, "set"), b = of(&arena, "moved"),
                                c = of(&arena, "set with blanks/");
    assert_int_equal(a.samples, 6);
    assert_true(a.all == b.all && a.all == c.all);
    assert_int_equal(wf_fingerprint_differs(&a, &b), -1);
    int64_t samples, first;
    assert_true(wf_fingerprint_matches(&a, wf_fingerprint_print(&arena, &b), &samples, &first));
    wf_arena_release(&arena);
}

static void fingerprint__names_the_first_sample_that_changed(void **state)
{
    static const struct {
        const char *change;
        int64_t first;
        int64_t samples;
    } cases[] = {
        /* names sort: take the second image, its mask, the third's bytes, the last pair, classes */
        { "i=$(ls x/images | sed -n 2p); cp x/images/$(ls x/images | sed -n 1p) x/images/$i", 1,
          6 },
        { "m=$(ls x/masks | sed -n 3p); cp x/masks/$(ls x/masks | sed -n 1p) x/masks/$m", 2, 6 },
        { "i=$(ls x/images | sed -n 4p); mv x/images/$i x/images/zz.png; "
          "m=$(ls x/masks | sed -n 4p); mv x/masks/$m x/masks/zz.png",
          3, 6 },
        { "rm x/images/$(ls x/images | tail -n 1) x/masks/$(ls x/masks | tail -n 1)", 5, 5 },
        { "rm x/images/$(ls x/images | head -n 1) x/masks/$(ls x/masks | head -n 1)", 0, 5 },
        { "sed -i '1s/^[^ ]*/other/' x/classes.txt", -1, 6 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wf_arena arena = { 0 };
        sh("rm -rf x && cp -r set x");
        sh(cases[i].change);
        const struct wf_fingerprint a = of(&arena, "set"), b = of(&arena, "x");
        assert_true(a.all != b.all);
        assert_int_equal(b.samples, cases[i].samples);
        assert_int_equal(wf_fingerprint_differs(&a, &b), cases[i].first);
        int64_t samples, first;
        assert_false(
            wf_fingerprint_matches(&b, wf_fingerprint_print(&arena, &a), &samples, &first));
        assert_int_equal(samples, 6);
        assert_int_equal(first, cases[i].first);
        wf_arena_release(&arena);
    }
    int64_t samples, first;
    const struct wf_fingerprint none = { 0 };
    assert_false(wf_fingerprint_matches(&none, "what is this", &samples, &first));
    assert_int_equal(first, WF_FINGERPRINT_UNKNOWN);
    /* Of a large dataset only the sum is kept. */
    static uint64_t each[5000];
    const struct wf_fingerprint large = { .all = 1, .samples = 5000, .each = each };
    const struct wf_fingerprint other = { .all = 2, .samples = 5000, .each = each };
    struct wf_arena arena = { 0 };
    assert_false(
        wf_fingerprint_matches(&other, wf_fingerprint_print(&arena, &large), &samples, &first));
    assert_int_equal(first, WF_FINGERPRINT_UNKNOWN);
    wf_arena_release(&arena);
}

static int enter(void **state)
{
    if (support_scratch_enter(state) != 0)
        return -1;
    struct wf_err err = { 0 };
    const struct wf_synth_options o = {
        .out = "set", .count = 6, .size = { 1, 32, 128 }, .seed = 1
    };
    if (wf_synth_run(&wf_synth_discs, &o, &err))
        return 0;
    (void)fprintf(stderr, "%s\n", err.text);
    return -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fingerprint__is_of_the_content_not_of_the_place_or_time),
        cmocka_unit_test(fingerprint__names_the_first_sample_that_changed),
    };
    return cmocka_run_group_tests(tests, enter, support_scratch_leave);
}
