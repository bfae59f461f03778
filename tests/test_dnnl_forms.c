/* needs: DNNL */
/* What stands between a convolution and oneDNN: other forms for what it lacks, ways around its traps,
 * strips where its scratch would be too large, and the threads it runs on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmocka.h>

#include "support_conv.h"

/* On a machine without bf16 kernels all of it runs in f32. */
static bool bf16_is_native(void)
{
    struct rig r = rig_new(&problems[0], PASS_CONV, WF_BF16);
    const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
    char name[WF_IMPLEMENTATION];
    rig_reference(&r, all);
    rig_check(&r, all, name);
    rig_free(&r);
    return !strstr(name, " f32");
}

static void forms__for_what_onednn_lacks_are_right(void **state)
{
    int failures = 0;
    const bool native = bf16_is_native();
    for (int i = 0; i < PROBLEMS; i++)
        for (int which = 1; which < 8; which++) {
            const struct wf_dnnl_form form = { .pad = which & 1,
                                               .split = which & 2,
                                               .wide = which & 4 };
            const struct wf_dnnl_options options = { .form = &form };
            if ((form.split && problems[i].groups == 1) || problems[i].groups > 8)
                continue;
            for (enum pass pass = PASS_CONV; pass < PASSES; pass++) {
                failures += check_problem(&problems[i], pass, WF_F32, &options);
                if (form.wide || (native && !(pass == PASS_WGRAD && wf_dnnl_has_traps())))
                    failures += check_problem(&problems[i], pass, WF_BF16, &options);
            }
        }
    assert_int_equal(failures, 0);
}

static void the_way_around_traps__is_right_on_every_problem(void **state)
{
    int failures = 0;
    const struct wf_dnnl_options options = { .traps = true };
    for (int i = 0; i < PROBLEMS; i++)
        failures += check_problem(&problems[i], PASS_WGRAD, WF_BF16, &options);
    assert_int_equal(failures, 0);
}

/* oneDNN 2.6.3 with AMX writes past its memory from a width of 384 on: none may, on any machine. */
static void conv_wgrad__bf16_keeps_to_its_memory_at_any_width(void **state)
{
    static const int64_t widths[] = { 1,   2,   3,   5,    8,    15,   16,  17,  31,  33,
                                      47,  64,  100, 127,  128,  129,  200, 255, 256, 257,
                                      319, 320, 321, 383,  384,  385,  500, 511, 512, 513,
                                      640, 768, 800, 1024, 1500, 2047, 2048 };
    int failures = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int forced = 0; forced < 2; forced++) {
            /* Three channels and sixteen, one sample and two. */
            const struct problem p = { .name = "any width",
                                       .x = { 1 + (int64_t)i % 2, 1, 4, widths[i], i % 3 ? 3 : 16 },
                                       .out = i % 3 ? 16 : 5,
                                       .groups = 1,
                                       .kernel = { 1, 3, 3 },
                                       .stride = { 1, 1, 1 },
                                       .dilation = { 1, 1, 1 },
                                       .lo = { 0, 1, 1 },
                                       .hi = { 0, 1, 1 } };
            const struct wf_dnnl_options options = { .traps = forced || wf_dnnl_has_traps() };
            failures += check_problem(&p, PASS_WGRAD, WF_BF16, &options);
        }
    assert_int_equal(failures, 0);
}

/* Large enough to be cut. */
/* clang-format off */
static const struct problem large[] = {
    { "image", { 1, 1, 301, 150, 3 }, 4, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "two images", { 2, 1, 260, 140, 4 }, 3, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 2, 0 }, { 0, 0, 2 } },
    { "strided image", { 1, 1, 502, 300, 3 }, 2, 1, { 1, 2, 2 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "signal", { 1, 1, 1, 50021, 3 }, 4, 1, { 1, 1, 5 }, { 1, 1, 1 }, { 1, 1, 2 }, { 0, 0, 4 }, { 0, 0, 4 } },
    { "volume", { 1, 40, 44, 41, 2 }, 3, 1, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
};
/* clang-format on */

static void conv_wgrad__bf16_is_cut_into_strips_that_add_up(void **state)
{
    const bool native = bf16_is_native();
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int forced = 0; forced < 2; forced++) {
            struct rig r = rig_new(&large[i], PASS_WGRAD, WF_BF16);
            const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
            r.options.traps = forced || wf_dnnl_has_traps();
            rig_reference(&r, all);
            char name[WF_IMPLEMENTATION];
            rig_check(&r, all, name);
            assert_int_equal(r.failures, 0);
            if (native)
                assert_non_null(strstr(name, r.options.traps ? "columns" : "strips"));
            rig_free(&r);
        }
}

/* oneDNN 2.6.3 asks for an f32 image and more for some of these: they are cut instead. */
static void scratch__of_a_last_layer_is_no_larger_than_its_images(void **state)
{
    const struct problem p = { "last layer",
                               { 1, 1, 300, 260, 32 },
                               2,
                               1,
                               { 1, 1, 1 },
                               { 1, 1, 1 },
                               { 1, 1, 1 },
                               { 0, 0, 0 },
                               { 0, 0, 0 } };
    for (enum pass pass = PASS_CONV; pass < PASSES; pass++) {
        struct rig r = rig_new(&p, pass, WF_BF16);
        const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
        struct wf_prepare prepare = {
            .node = r.node, .work = all, .in = r.in, .out = &r.out, .threads = r.threads
        };
        struct wf_err err = { 0 };
        assert_true(r.kernel->prepare(&prepare, &err));
        assert_true(prepare.scratch_bytes <= 300 * 260 * (32 + 2) * sizeof(uint16_t));
        r.kernel->release(prepare.prepared);
        rig_reference(&r, all);
        rig_check(&r, all, NULL);
        assert_int_equal(r.failures, 0);
        rig_free(&r);
    }
}

#ifdef _OPENMP
/* The guards around its scratch would see one that runs on more. */
static void a_step__runs_on_the_threads_it_was_prepared_for(void **state)
{
    const int before = omp_get_max_threads();
    static const int threads[][2] = { { 1, 4 }, { 4, 1 }, { 3, 2 } };
    for (int i = 0; i < 3; i++)
        for (enum pass pass = PASS_CONV; pass < PASSES; pass++) {
            struct rig r = rig_new(&problems[0], pass, WF_BF16);
            r.threads = threads[i][0];
            r.run_threads = threads[i][1];
            const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
            rig_reference(&r, all);
            rig_check(&r, all, NULL);
            assert_int_equal(r.failures, 0);
            assert_int_equal(omp_get_max_threads(), r.run_threads);
            rig_free(&r);
        }
    omp_set_num_threads(before);
}
#endif

/* One wrong element in each result of oneDNN's best kernels: they are not used, and the step says so. */
static void a_wrong_primitive__is_found_and_passed_over(void **state)
{
    static const char *const faults[] = { "brg", "jit", "1x1", "gemm", ":" };
    int found = 0;
    for (int i = 0; i < 12; i++)
        for (enum pass pass = PASS_CONV; pass < PASSES; pass++) {
            struct rig r = rig_new(&problems[i], pass, i % 2 ? WF_BF16 : WF_F32);
            const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
            char name[WF_IMPLEMENTATION];
            rig_reference(&r, all);
            r.may_be_reference = true;
            r.options.spoil = faults[i % 5];
            rig_check(&r, all, name);
            assert_int_equal(r.failures, 0);
            found += strstr(name, " is wrong)") != NULL;
            rig_free(&r);
        }
    assert_true(found >= 12);
}

/* Each row is complete and each number was computed: only its place is wrong. */
static void exchanged_channels__are_found(void **state)
{
    static const struct problem p = {
        .name = "32 channels",
        .x = { 1, 1, 3, 4, 32 },
        .out = 32,
        .groups = 1,
        .kernel = { 1, 3, 3 },
        .stride = { 1, 1, 1 },
        .dilation = { 1, 1, 1 },
        .lo = { 0, 1, 1 },
        .hi = { 0, 1, 1 },
    };
    for (enum pass pass = PASS_CONV; pass <= PASS_CONVT; pass++) {
        struct rig r = rig_new(&p, pass, WF_F32);
        const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
        rig_reference(&r, all);
        r.may_be_reference = true;
        r.threads = 1;
        r.options.spoil = ":";
        for (r.options.swap = 1; r.options.swap < p.out; r.options.swap++) {
            char name[WF_IMPLEMENTATION];
            rig_check(&r, all, name);
            assert_int_equal(r.failures, 0);
            assert_non_null(strstr(name, " is wrong)"));
        }
        rig_free(&r);
    }
}

static void without_the_check__a_wrong_primitive_shows(void **state)
{
    struct rig r = rig_new(&problems[0], PASS_CONV, WF_F32);
    const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
    rig_reference(&r, all);
    r.options.spoil = ":";
    r.options.believe = true;
    rig_check(&r, all, NULL);
    assert_int_equal(r.failures, 1);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms__for_what_onednn_lacks_are_right),
        cmocka_unit_test(the_way_around_traps__is_right_on_every_problem),
        cmocka_unit_test(conv_wgrad__bf16_keeps_to_its_memory_at_any_width),
        cmocka_unit_test(conv_wgrad__bf16_is_cut_into_strips_that_add_up),
        cmocka_unit_test(scratch__of_a_last_layer_is_no_larger_than_its_images),
#ifdef _OPENMP
        cmocka_unit_test(a_wrong_primitive__is_found_and_passed_over),
        cmocka_unit_test(exchanged_channels__are_found),
        cmocka_unit_test(without_the_check__a_wrong_primitive_shows),
        cmocka_unit_test(a_step__runs_on_the_threads_it_was_prepared_for),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
