/*
 * Losses, activations, dropout and gradient reversal against PyTorch 2.15 in double precision, on
 * logits of two samples, three positions and two classes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static const double X[] = { 1, 0.5, 2, -1, 4, 3, -2, 2, 0, 2.5, 1, -0.5 };
static const double LABELS[] = { 0, 1, 1, 1, 0, 0 };

struct loss {
    struct wf_graph *g;
    struct wf_value *x, *target, *weights, *y, *dx;
    struct support_values v;
};

typedef struct wf_value *builder(struct wf_graph *, struct wf_value *, struct wf_value *,
                                 const struct wf_loss *);

static void put(const struct loss *l, const struct wf_value *value, const double from[])
{
    for (int64_t i = 0; i < wf_shape_count(value->shape); i++)
        wf_dtype_put(value->dtype, l->v.views[value->id].data, i, from[i]);
}

static void check(const struct loss *l, const struct wf_value *value, const double want[])
{
    assert_non_null(value);
    for (int64_t i = 0; i < wf_shape_count(value->shape); i++)
        assert_near(wf_dtype_get(value->dtype, l->v.views[value->id].data, i), want[i], 2e-7);
}

/* The loss's graph with its gradient by the logits; the caller fills target and weights. */
static struct loss make(builder *add, struct wf_shape target, struct wf_loss loss, bool weighted)
{
    struct wf_err err = { 0 };
    struct loss l = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    l.x = wf_input(l.g, "x", WF_F32, WF_SHAPE(2, 1, 1, 3, 2));
    l.target = wf_input(l.g, "target", WF_I32, target);
    if (weighted) {
        loss.weights = l.weights = wf_input(l.g, "weights", WF_F32, WF_SHAPE(1, 1, 1, 1, 2));
        l.weights->replicated = true;
    }
    loss.name = "loss";
    l.y = add(l.g, l.x, l.target, &loss);
    assert_true(wf_graph_ok(l.g, &err));
    assert_int_equal(l.y->dtype, WF_F32);
    assert_int_equal(wf_shape_count(l.y->shape), 1);
    assert_true(wf_graph_grad(l.g, l.y, NULL, 1, &l.x, &l.dx, &err));
    assert_int_equal(l.dx->dtype, WF_F32);
    l.v = support_values_new(l.g);
    put(&l, l.x, X);
    return l;
}

static void finish(struct loss *l, double want, const double dx[12])
{
    support_run_reference(l->g, &l->v, true);
    check(l, l->y, &want);
    check(l, l->dx, dx);
    support_values_free(&l->v);
    wf_graph_free(l->g);
}

static const struct wf_shape MAP = { { 2, 1, 1, 3, 1 } };

static void cross_entropy__with_class_weights_equals_pytorch(void **state)
{
    struct loss l = make(wf_cross_entropy, MAP, (struct wf_loss){ 0 }, true);
    put(&l, l.target, LABELS);
    put(&l, l.weights, (const double[]){ 1, 3 });
    finish(&l, 1.366198075,
           (const double[]){ -0.031461722, 0.031461722, 0.238143532, -0.238143532, 0.182764645,
                             -0.182764645, 0.004496552, -0.004496552, -0.077011818, 0.077011818,
                             -0.015202127, 0.015202127 });
}

static void cross_entropy__an_ignored_label_does_not_count(void **state)
{
    const struct wf_loss loss = { .ignore = 9, .has_ignore = true };
    struct loss l = make(wf_cross_entropy, MAP, loss, false);
    put(&l, l.target, (const double[]){ 0, 9, 1, 1, 0, 9 });
    finish(&l, 1.096094583,
           (const double[]){ -0.094385167, 0.094385167, 0, 0, 0.182764645, -0.182764645,
                             0.004496552, -0.004496552, -0.231035455, 0.231035455, 0, 0 });
}

static void cross_entropy__of_nothing_is_zero(void **state)
{
    const struct wf_loss loss = { .ignore = 1, .has_ignore = true };
    struct loss l = make(wf_cross_entropy, MAP, loss, false);
    put(&l, l.target, (const double[]){ 1, 1, 1, 1, 1, 1 });
    finish(&l, 0.0, (const double[12]){ 0 });
}

static void cross_entropy__a_label_out_of_range_cannot_pass_unseen(void **state)
{
    struct loss l = make(wf_cross_entropy, MAP, (struct wf_loss){ 0 }, false);
    put(&l, l.target, (const double[]){ 0, 1, 2, 1, 0, 0 });
    support_run_reference(l.g, &l.v, true);
    assert_true(isnan(wf_view_get(&l.v.views[l.y->id], 0, 0, 0, 0, 0)));
    support_values_free(&l.v);
    wf_graph_free(l.g);
}

static void binary_cross_entropy__equals_pytorch(void **state)
{
    struct loss l =
        make(wf_binary_cross_entropy, WF_SHAPE(2, 1, 1, 3, 2), (struct wf_loss){ 0 }, false);
    put(&l, l.target, (const double[]){ 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0 });
    finish(&l, 1.092291438,
           (const double[]){ -0.022411785, 0.051871611, 0.073399756, -0.060921548, 0.081834483,
                             -0.003952156, 0.009933577, -0.009933577, -0.041666667, 0.077011818,
                             -0.022411785, 0.031461722 });
}

static void binary_cross_entropy__stays_exact_for_large_logits(void **state)
{
    struct loss l =
        make(wf_binary_cross_entropy, WF_SHAPE(2, 1, 1, 3, 2), (struct wf_loss){ 0 }, false);
    const double large[12] = { 1000, -1000, 1000, -1000 };
    put(&l, l.x, large);
    put(&l, l.target, (const double[]){ 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0 });
    support_run_reference(l.g, &l.v, true);
    /* Two right, two wrong by 1000, eight of log 2. */
    assert_near(wf_view_get(&l.v.views[l.y->id], 0, 0, 0, 0, 0), (2000.0 + 8.0 * log(2.0)) / 12.0,
                1e-4);
    support_values_free(&l.v);
    wf_graph_free(l.g);
}

static void dice__equals_pytorch(void **state)
{
    struct loss l = make(wf_dice, MAP, (struct wf_loss){ 0 }, false);
    put(&l, l.target, LABELS);
    finish(&l, 0.455543688,
           (const double[]){ -0.032653057, 0.032653057, 0.006642931, -0.006642931, 0.028910494,
                             -0.028910494, 0.002597185, -0.002597185, -0.0097407, 0.0097407,
                             -0.02072345, 0.02072345 });
}

static void mse__equals_the_mean_by_hand(void **state)
{
    struct loss l = make(wf_mse, WF_SHAPE(2, 1, 1, 3, 2), (struct wf_loss){ 0 }, false);
    put(&l, l.target, (const double[12]){ 0 });
    double dx[12], want = 0;
    for (int i = 0; i < 12; i++) {
        want += X[i] * X[i] / 12;
        dx[i] = X[i] / 6;
    }
    finish(&l, want, dx);
}

static void loss__of_half_precision_logits_is_f32_and_its_gradient_is_half(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .compute = WF_BF16 });
    struct wf_value *x = wf_input(g, "x", WF_BF16, WF_SHAPE(2, 1, 1, 3, 2)), *dx = NULL;
    struct wf_value *t = wf_input(g, "t", WF_I32, MAP);
    struct wf_value *y = wf_add(g, wf_cross_entropy(g, x, t, &(struct wf_loss){ .name = "ce" }),
                                wf_dice(g, x, t, &(struct wf_loss){ .name = "dice" }));
    assert_true(wf_graph_ok(g, &err));
    assert_int_equal(y->dtype, WF_F32);
    assert_true(wf_graph_grad(g, y, NULL, 1, &x, &dx, &err));
    assert_int_equal(dx->dtype, WF_BF16);
    wf_graph_free(g);
}

static void loss__refuses_a_map_of_another_size_with_both_sizes(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 7, 9, 2));
    struct wf_value *t = wf_input(g, "t", WF_I32, WF_SHAPE(1, 1, 8, 9, 1));
    assert_null(wf_cross_entropy(g, x, t, &(struct wf_loss){ .name = "loss" }));
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "[1,1,7,9,2]"));
    assert_non_null(strstr(err.text, "[1,1,8,9,1]"));
    wf_graph_free(g);
}

/* One operator on a vector, in f64. */
static void run_vector(struct wf_graph *g, const struct wf_value *x, const struct wf_value *dy,
                       struct support_values *v, const double values[], int64_t n)
{
    *v = support_values_new(g);
    for (int64_t i = 0; i < n; i++)
        wf_dtype_put(x->dtype, v->views[x->id].data, i, values[i]);
    if (dy)
        wf_view_fill(&v->views[dy->id], 1.0);
    support_run_reference(g, v, true);
}

static void activation__values_and_slopes_equal_pytorch(void **state)
{
    static const struct {
        enum wf_act act;
        double y[2], slope[2];
    } want[] = {
        { WF_RELU, { 0.0, 0.5 }, { 0.0, 1.0 } },
        { WF_LEAKY_RELU, { -0.015, 0.5 }, { 0.01, 1.0 } },
        { WF_SIGMOID,
          { 0.18242552380635635, 0.6224593312018546 },
          { 0.14914645207033286, 0.2350037122015945 } },
        { WF_TANH,
          { -0.9051482536448664, 0.46211715726000974 },
          { 0.1807066389236486, 0.7864477329659274 } },
        { WF_GELU,
          { -0.10021080190328704, 0.34573123063700656 },
          { -0.1274691922299796, 0.8674951246561629 } },
        { WF_SILU,
          { -0.2736382857095345, 0.3112296656009273 },
          { -0.041294154299142946, 0.7399611873026519 } },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct wf_err err = { 0 };
        struct wf_graph *g = wf_graph_new(NULL);
        struct wf_value *x = wf_input(g, "x", WF_F64, WF_SHAPE(1, 1, 1, 1, 2)), *dx = NULL;
        struct wf_value *dy = wf_input(g, "dy", WF_F64, x->shape);
        struct wf_value *y = wf_activation(g, x, "act", want[i].act, 0.01);
        assert_true(wf_graph_grad(g, y, dy, 1, &x, &dx, &err));
        struct support_values v;
        run_vector(g, x, dy, &v, (const double[]){ -1.5, 0.5 }, 2);
        for (int c = 0; c < 2; c++) {
            assert_near(wf_view_get(&v.views[y->id], 0, 0, 0, 0, c), want[i].y[c], 1e-14);
            assert_near(wf_view_get(&v.views[dx->id], 0, 0, 0, 0, c), want[i].slope[c], 1e-14);
        }
        support_values_free(&v);
        wf_graph_free(g);
    }
}

static void reverse__is_the_identity_forwards_and_turns_the_gradient_round(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 2)), *dx = NULL;
    struct wf_value *dy = wf_input(g, "dy", WF_F32, x->shape);
    struct wf_value *y = wf_reverse_gradient(g, x, 0.25);
    assert_true(wf_graph_grad(g, y, dy, 1, &x, &dx, &err));
    struct support_values v;
    run_vector(g, x, dy, &v, (const double[]){ 3, -7 }, 2);
    assert_true(wf_view_get(&v.views[y->id], 0, 0, 0, 0, 1) == -7.0);
    assert_true(wf_view_get(&v.views[dx->id], 0, 0, 0, 0, 1) == -0.25);
    support_values_free(&v);
    wf_graph_free(g);
}

static void dropout__zeroes_the_given_share_and_keeps_the_mean(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(2, 1, 50, 50, 4));
    struct wf_value *y = wf_dropout(g, x, "drop", 0.3);
    assert_true(wf_graph_ok(g, &err));
    struct support_values v = support_values_new(g);
    wf_view_fill(&v.views[x->id], 1.0);
    support_run_reference(g, &v, false);
    int64_t zeros = 0;
    for (int64_t i = 0; i < 20000; i++) {
        const double got = wf_dtype_get(WF_F32, v.views[y->id].data, i);
        zeros += got == 0;
        assert_true(got == 0 || fabs(got - 1.0 / 0.7) < 1e-6);
    }
    assert_true(zeros > 5700 && zeros < 6300); /* 6000, more than four standard deviations */
    support_values_free(&v);
    wf_graph_free(g);
}

static void dropout__is_absent_outside_training(void **state)
{
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 2));
    assert_ptr_equal(wf_dropout(g, x, "drop", 0.3), x);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy__with_class_weights_equals_pytorch),
        cmocka_unit_test(cross_entropy__an_ignored_label_does_not_count),
        cmocka_unit_test(cross_entropy__of_nothing_is_zero),
        cmocka_unit_test(cross_entropy__a_label_out_of_range_cannot_pass_unseen),
        cmocka_unit_test(binary_cross_entropy__equals_pytorch),
        cmocka_unit_test(binary_cross_entropy__stays_exact_for_large_logits),
        cmocka_unit_test(dice__equals_pytorch),
        cmocka_unit_test(mse__equals_the_mean_by_hand),
        cmocka_unit_test(loss__of_half_precision_logits_is_f32_and_its_gradient_is_half),
        cmocka_unit_test(loss__refuses_a_map_of_another_size_with_both_sizes),
        cmocka_unit_test(activation__values_and_slopes_equal_pytorch),
        cmocka_unit_test(reverse__is_the_identity_forwards_and_turns_the_gradient_round),
        cmocka_unit_test(dropout__zeroes_the_given_share_and_keeps_the_mean),
        cmocka_unit_test(dropout__is_absent_outside_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
