/*
 * Normalisation layers against PyTorch 2.15 in double precision (torch.nn.BatchNorm1d, GroupNorm,
 * InstanceNorm1d, LayerNorm): two samples, three positions, two channels.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/build.h"
#include "support.h"

/* cmocka's own came later than Debian's version. */
static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("expected %.9g, got %.9g", want, got);
}

static const struct wf_shape SHAPE = { { 2, 1, 1, 3, 2 } };
static const double X[] = { 1, 0.5, 2, -1, 4, 3, -2, 2, 0, 2.5, 1, -0.5 };
static const double DY[] = { 1, 2, -1, 0.25, 0.5, -1.5, 0.75, -1, -0.5, 0.5, 1, 3 };

/* A network of one layer, run forwards and backwards. */
struct layer {
    struct wf_graph *g;
    struct wf_value *y, *dx;
    struct support_values v;
};

typedef struct wf_value *builder(struct wf_graph *, struct wf_value *, const struct wf_norm *);

static void put(const struct layer *l, const struct wf_value *value, size_t n, const double from[])
{
    assert_non_null(value);
    assert_int_equal(wf_shape_count(value->shape), n);
    for (size_t i = 0; i < n; i++)
        wf_dtype_put(value->dtype, l->v.views[value->id].data, (int64_t)i, from[i]);
}

static void check(const struct layer *l, const struct wf_value *value, size_t n,
                  const double want[])
{
    assert_non_null(value);
    assert_int_equal(wf_shape_count(value->shape), n);
    for (size_t i = 0; i < n; i++) {
        const double got = wf_dtype_get(value->dtype, l->v.views[value->id].data, (int64_t)i);
        assert_near(got, want[i], 2e-6);
    }
}

static struct layer run(builder *add, struct wf_norm norm, bool training)
{
    struct wf_err err = { 0 };
    struct layer l = { .g = wf_graph_new(&(struct wf_graph_options){ .training = training }) };
    struct wf_value *x = wf_input(l.g, "x", WF_F32, SHAPE),
                    *dy = wf_input(l.g, "dy", WF_F32, SHAPE);
    norm.name = "bn";
    l.y = add(l.g, x, &norm);
    assert_true(wf_graph_ok(l.g, &err));
    assert_true(wf_graph_grad(l.g, l.y, dy, 1, &x, &l.dx, &err));
    l.v = support_values_new(l.g);
    put(&l, x, 12, X);
    put(&l, dy, 12, DY);
    if (!norm.plain) {
        put(&l, wf_graph_find(l.g, "bn.weight"), 2, (const double[]){ 1.5, -0.5 });
        put(&l, wf_graph_find(l.g, "bn.bias"), 2, (const double[]){ 0.25, 0.5 });
    }
    if (add == wf_batch_norm) {
        put(&l, wf_graph_find(l.g, "bn.running_mean"), 2, (const double[]){ 0.1, -0.2 });
        put(&l, wf_graph_find(l.g, "bn.running_var"), 2, (const double[]){ 2, 0.5 });
    }
    support_run_reference(l.g, &l.v, true);
    return l;
}

static void release(struct layer *l)
{
    support_values_free(&l->v);
    wf_graph_free(l->g);
}

static const struct wf_value *grad_of(const struct layer *l, const char *name)
{
    return wf_graph_find(l->g, name)->grad;
}

static void batch_norm__equals_pytorch_forwards_and_backwards(void **state)
{
    struct layer l = run(wf_batch_norm, (struct wf_norm){ 0 }, true);
    check(&l, l.y, 12,
          (const double[]){ 0.25, 0.692960824, 1.071582604, 1.1891458, 2.714747812, -0.134014136,
                            -2.214747812, 0.196775848, -0.571582604, 0.031380856, 0.25,
                            1.023750808 });
    check(&l, l.dx, 12,
          (const double[]){ 0.581954344, -0.348385782, -1.009862105, 0.575109974, 0.325209319,
                            0.235023686, 0.222512417, 0.299370884, -0.70176832, -0.311685186,
                            0.581954344, -0.449433576 });
    check(&l, grad_of(&l, "bn.weight"), 2, (const double[]){ -0.68465217, -6.298792611 });
    check(&l, grad_of(&l, "bn.bias"), 2, (const double[]){ 1.75, 3.25 });
    release(&l);
}

static void batch_norm__with_fused_relu_equals_pytorch(void **state)
{
    struct layer l = run(wf_batch_norm, (struct wf_norm){ .act = WF_RELU }, true);
    check(&l, l.y, 12,
          (const double[]){ 0.25, 0.692960824, 1.071582604, 1.1891458, 2.714747812, 0, 0,
                            0.196775848, 0, 0.031380856, 0.25, 1.023750808 });
    check(&l, l.dx, 12,
          (const double[]){ 0.616186953, -0.306157097, -1.047517758, 0.513276005, 0.143777141,
                            -0.045494845, -0.143777141, 0.445662225, -0.184856147, -0.130706294,
                            0.616186953, -0.476579994 });
    check(&l, grad_of(&l, "bn.weight"), 2, (const double[]){ 0.273860868, -4.396750203 });
    check(&l, grad_of(&l, "bn.bias"), 2, (const double[]){ 1.5, 4.75 });
    release(&l);
}

static void batch_norm__running_statistics_move_a_tenth_towards_the_unbiased_ones(void **state)
{
    struct layer l = run(wf_batch_norm, (struct wf_norm){ 0 }, true);
    assert_int_equal(l.g->n_updates, 2);
    assert_string_equal(l.g->updates[0].state->name, "bn.running_mean");
    check(&l, l.g->updates[0].next, 2, (const double[]){ 0.19, -0.071666667 });
    assert_string_equal(l.g->updates[1].state->name, "bn.running_var");
    check(&l, l.g->updates[1].next, 2, (const double[]){ 2.2, 0.724166667 });
    release(&l);
}

static void batch_norm__outside_training_uses_the_running_statistics(void **state)
{
    struct layer l = run(wf_batch_norm, (struct wf_norm){ 0 }, false);
    assert_int_equal(l.g->n_updates, 0);
    check(&l, l.y, 12,
          (const double[]){ 1.204591767, 0.005030201, 2.265249287, 1.065679766, 4.386564327,
                            -1.762719075, -1.977380794, -1.055619365, 0.143934246, -1.40916922,
                            1.204591767, 0.712129911 });
    check(&l, l.dx, 12,
          (const double[]){ 1.06065752, -1.41419942, -1.06065752, -0.176774928, 0.53032876,
                            1.060649565, 0.79549314, 0.70709971, -0.53032876, -0.353549855,
                            1.06065752, -2.121299131 });
    check(&l, grad_of(&l, "bn.weight"), 2, (const double[]){ 0.229809128, -7.565966886 });
    release(&l);
}

static void group_norm__of_one_group_equals_pytorch(void **state)
{
    struct layer l = run(wf_group_norm, (struct wf_norm){ .groups = 1 }, true);
    check(&l, l.y, 12,
          (const double[]){ -0.282370148, 0.829562472, 0.630264391, 1.285879742, 2.455533468,
                            0.06903369, -2.204946005, 0.009010799, -0.240989201, -0.154652268,
                            0.740989201, 0.827326134 });
    check(&l, l.dx, 12,
          (const double[]){ 0.935508829, -0.53334811, -0.994161499, 0.155623914, 0.165987807,
                            0.270389058, 0.675597212, 0.254749376, -0.557720874, -0.237701096,
                            0.912324186, -1.047248804 });
    check(&l, grad_of(&l, "bn.weight"), 2, (const double[]){ -0.609729004, -5.295371627 });
    check(&l, grad_of(&l, "bn.bias"), 2, (const double[]){ 1.75, 3.25 });
    release(&l);
}

static void instance_norm__equals_pytorch(void **state)
{
    struct layer l = run(wf_instance_norm, (struct wf_norm){ 0 }, true);
    check(&l, l.y, 12,
          (const double[]){ -1.353562297, 0.601015069, -0.150890574, 1.055582879, 2.254452871,
                            -0.156597948, -1.754452871, 0.246000483, 0.650890574, 0.055500846,
                            1.853562297, 1.198498671 });
    check(&l, l.dx, 12,
          (const double[]){ 0.944956722, -0.476214095, -1.417434438, 0.297632592, 0.472477717,
                            0.178581503, 0.365097003, 0.424016916, -1.095290365, -0.353343313,
                            0.730193362, -0.070673603 });
    release(&l);
}

static void layer_norm__equals_pytorch(void **state)
{
    struct layer l = run(wf_layer_norm, (struct wf_norm){ 0 }, true);
    check(&l, l.y, 12,
          (const double[]){ 1.749880014, 0.999960005, 1.749996667, 0.999998889, 1.749970001,
                            0.99999, -1.249998125, 6.25e-07, -1.2499952, 1.6e-06, 1.749986667,
                            0.999995556 });
    check(&l, l.dx, 12,
          (const double[]){ 0.000799808, -0.000799808, -2.037e-06, 2.037e-06, 0, 0, 3.91e-07,
                            -3.91e-07, -1.28e-06, 1.28e-06, 3.5555e-05, -3.5555e-05 });
    release(&l);
}

static void norm__an_activation_that_cannot_be_fused_becomes_a_layer(void **state)
{
    struct layer l = run(wf_batch_norm, (struct wf_norm){ .act = WF_SIGMOID }, true);
    assert_string_equal(l.y->producer->op->name, "act");
    /* The third element: sigmoid(1.071582604), by hand. */
    const struct wf_view *y = &l.v.views[l.y->id];
    assert_near(wf_view_get(y, 0, 0, 0, 1, 0), 0.744895, 1e-5);
    release(&l);
}

/* By hand: means 2 and 12, unbiased variances 2 and 8, each a tenth of the way from (0, 1). */
static void batch_norm__shared_by_two_images_counts_both_in_turn(void **state)
{
    struct layer l = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    const struct wf_norm norm = { .name = "shared" };
    struct wf_value *a = wf_input(l.g, "a", WF_F32, WF_SHAPE(1, 1, 1, 2, 1));
    struct wf_value *b = wf_input(l.g, "b", WF_F32, WF_SHAPE(1, 1, 1, 2, 1));
    assert_non_null(wf_batch_norm(l.g, a, &norm));
    assert_non_null(wf_batch_norm(l.g, b, &norm));
    l.v = support_values_new(l.g);
    put(&l, a, 2, (const double[]){ 1, 3 });
    put(&l, b, 2, (const double[]){ 10, 14 });
    put(&l, wf_graph_find(l.g, "shared.running_var"), 1, (const double[]){ 1 });
    support_run_reference(l.g, &l.v, true);
    assert_int_equal(l.g->n_updates, 2);
    check(&l, l.g->updates[0].next, 1, (const double[]){ 0.9 * 0.2 + 0.1 * 12 });
    check(&l, l.g->updates[1].next, 1, (const double[]){ 0.9 * (0.9 + 0.2) + 0.1 * 8 });
    release(&l);
}

static void batch_norm__refuses_a_single_value_per_channel(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 4));
    assert_null(wf_batch_norm(g, x, &(struct wf_norm){ .name = "enc9.bn0" }));
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "layer 'enc9.bn0'"));
    assert_non_null(strstr(err.text, "larger batch or image"));
    wf_graph_free(g);
}

static void group_norm__refuses_groups_that_do_not_divide_the_channels(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 4, 4, 6));
    assert_null(wf_group_norm(g, x, &(struct wf_norm){ .name = "gn", .groups = 4 }));
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "6 channels"));
    assert_non_null(strstr(err.text, "4 groups"));
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm__equals_pytorch_forwards_and_backwards),
        cmocka_unit_test(batch_norm__with_fused_relu_equals_pytorch),
        cmocka_unit_test(batch_norm__running_statistics_move_a_tenth_towards_the_unbiased_ones),
        cmocka_unit_test(batch_norm__outside_training_uses_the_running_statistics),
        cmocka_unit_test(group_norm__of_one_group_equals_pytorch),
        cmocka_unit_test(instance_norm__equals_pytorch),
        cmocka_unit_test(layer_norm__equals_pytorch),
        cmocka_unit_test(norm__an_activation_that_cannot_be_fused_becomes_a_layer),
        cmocka_unit_test(batch_norm__shared_by_two_images_counts_both_in_turn),
        cmocka_unit_test(batch_norm__refuses_a_single_value_per_channel),
        cmocka_unit_test(group_norm__refuses_groups_that_do_not_divide_the_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
