/* needs: DNNL */
/* The convolutions of oneDNN against the operators' reference kernels: whole images and the windows
 * that a cut image gives, every pass, f32 and bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/spatial.h"
#include "support_conv.h"

static void check_all(enum pass pass, enum wf_dtype dtype)
{
    int failures = 0;
    for (int i = 0; i < PROBLEMS; i++)
        failures += check_problem(&problems[i], pass, dtype, NULL);
    assert_int_equal(failures, 0);
}

static void conv__f32_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_CONV, WF_F32);
}

static void conv__bf16_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_CONV, WF_BF16);
}

static void convt__f32_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_CONVT, WF_F32);
}

static void convt__bf16_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_CONVT, WF_BF16);
}

static void conv_wgrad__f32_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_WGRAD, WF_F32);
}

static void conv_wgrad__bf16_is_the_reference_on_every_window(void **state)
{
    check_all(PASS_WGRAD, WF_BF16);
}

static void dtypes__other_than_f32_and_bf16_are_left_to_others(void **state)
{
    static const enum wf_dtype others[] = { WF_F16, WF_F64 };
    for (int i = 0; i < 2; i++) {
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        struct wf_value *in[3] = { wf_input(g, "x", others[i], WF_SHAPE(1, 1, 5, 5, 2)),
                                   wf_input(g, "w", others[i], WF_SHAPE(3, 1, 3, 3, 2)) };
        in[1]->replicated = true;
        const struct wf_conv_attrs a = { .stride = { 1, 1, 1 },
                                         .dilation = { 1, 1, 1 },
                                         .groups = 1 };
        const struct wf_node *node = wf_node_add(g, &wf_op_conv, "c", &a, 3, in);
        assert_non_null(node);
        assert_false(wf_cpu_kernels_dnnl_conv->accepts(node));
        wf_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv__f32_is_the_reference_on_every_window),
        cmocka_unit_test(conv__bf16_is_the_reference_on_every_window),
        cmocka_unit_test(convt__f32_is_the_reference_on_every_window),
        cmocka_unit_test(convt__bf16_is_the_reference_on_every_window),
        cmocka_unit_test(conv_wgrad__f32_is_the_reference_on_every_window),
        cmocka_unit_test(conv_wgrad__bf16_is_the_reference_on_every_window),
        cmocka_unit_test(dtypes__other_than_f32_and_bf16_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
