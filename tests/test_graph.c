/* The graph: text that reads back, shared and frozen weights, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "models/model.h"
#include "ops/build.h"
#include "support.h"

static const struct wf_graph_options training = { .training = true };

/* Prints, reads, prints again: the same text, so nothing was lost. */
static void assert_reads_back(const struct wf_graph *g, const char *what)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    const char *text = wf_graph_print(&arena, g);
    struct wf_graph *recompute = wf_graph_parse(text, &err);
    if (!recompute)
        fail_msg("%s: %s", what, err.text);
    assert_string_equal(wf_graph_print(&arena, recompute), text);
    assert_int_equal(recompute->n_values, g->n_values);
    for (size_t i = 0; i < g->n_values; i++) {
        assert_true(wf_shape_equal(recompute->values[i]->shape, g->values[i]->shape));
        assert_int_equal(recompute->values[i]->dtype, g->values[i]->dtype);
        assert_int_equal(recompute->values[i]->replicated, g->values[i]->replicated);
    }
    wf_graph_free(recompute);
    wf_arena_release(&arena);
}

static void text__every_operator_case_reads_back(void **state)
{
    (void)state;
    int cases = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (int i = 0; (*op)->cases && (*op)->cases[i].in; i++, cases++) {
            struct support_case c;
            struct wf_err err = { 0 };
            if (!support_case_build(*op, &(*op)->cases[i], WF_F32, &c, &err))
                fail_msg("%s case %d: %s", (*op)->name, i, err.text);
            for (int k = 0; k < c.n_in; k++)
                if (c.in[k])
                    c.in[k]->replicated = false; /* a choice of the test, not of the text */
            struct wf_arena arena = { 0 };
            struct wf_graph *recompute = wf_graph_parse(wf_graph_print(&arena, c.g), &err);
            if (!recompute)
                fail_msg("%s case %d: %s", (*op)->name, i, err.text);
            assert_string_equal(wf_graph_print(&arena, recompute), wf_graph_print(&arena, c.g));
            wf_graph_free(recompute);
            wf_arena_release(&arena);
            wf_graph_free(c.g);
        }
    assert_true(cases > 200);
}

static struct wf_graph *trained(const char *name, int dims, int64_t side)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find(name, &err);
    struct wf_model_config config = { .dims = dims };
    assert_true(m && wf_model_resolve(m, &config, &err));
    struct wf_graph *g = wf_graph_new(&training);
    const struct wf_shape image =
        WF_SHAPE(2, dims > 2 ? side : 1, dims > 1 ? side : 1, side, config.in);
    struct wf_value *y = m->build(g, &config, wf_input(g, "image", WF_F32, image));
    struct wf_shape labels = y->shape;
    labels.at[WF_C] = 1;
    struct wf_value *loss = wf_cross_entropy(g, y, wf_input(g, "target", WF_I32, labels),
                                             &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static void text__whole_networks_with_their_gradients_read_back(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int dims;
    } nets[] = { { "unet", 1 },  { "unet", 2 },  { "unet", 3 },  { "cnn1d", 1 },
                 { "cnn2d", 2 }, { "cnn3d", 3 }, { "unet3d", 3 } };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct wf_graph *g = trained(nets[i].name, nets[i].dims, 37);
        assert_reads_back(g, nets[i].name);
        wf_graph_free(g);
    }
}

static void text__what_is_not_a_graph_is_refused_with_its_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "hello",
        "widefield graph 1 training=1 compute=f31\n",
        "widefield graph 1 training=1 compute=f32\n%1 = input \"x\" f32 [1,1,1,4,2]\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,0,2]\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x f32 [1,1,1,4,2]\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4,2]\n"
        "%1 = nothing \"y\" (%0) {} forward of=-1 domain=0\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4,2]\n"
        "%1 = scale \"y\" (%7) {factor=2} forward of=-1 domain=0\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4,2]\n"
        "%1 = scale \"y\" (%0) {factor=two} forward of=-1 domain=0\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4,2]\n"
        "%1 = scale \"y\" (%0) {colour=2} forward of=-1 domain=0\n",
        "widefield graph 1 training=1 compute=f32\noutput %3 \"y\" dims=1\n",
        "widefield graph 1 training=1 compute=f32\nupdate %0 <- %1\n",
        "widefield graph 1 training=1 compute=f32\n%0 = input \"x\" f32 [1,1,1,4,2]\n"
        "%1 = scale \"y\" (%0) {factor=2} forward of=-1 domain=0\ngradient %1 of %0\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wf_err err = { 0 };
        struct wf_graph *g = wf_graph_parse(bad[i], &err);
        if (g)
            fail_msg("text %zu was read", i);
        assert_int_not_equal(err.code, WF_OK);
        assert_non_null(strstr(err.text, "line"));
    }
}

/* y = c(c(x)) with one kernel of one weight w: y = w*w*x, dy/dw = 2*w*x. */
static void grad__a_weight_used_twice_adds_up_both_uses(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&training);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
    struct wf_value *y = wf_linear(g, wf_linear(g, x, "c", 1, false), "c", 1, false);
    struct wf_err err = { 0 };
    assert_true(wf_graph_grad(g, y, NULL, 0, NULL, NULL, &err));
    const struct wf_value *w = wf_graph_find(g, "c.weight");
    const struct wf_value *dw = w->grad;
    assert_int_equal(wf_graph_parameters(g, false), 1);
    struct support_values v = support_values_new(g);
    *(float *)v.views[x->id].data = 5.0f;
    *(float *)v.views[w->id].data = 3.0f;
    support_run_reference(g, &v, true);
    assert_true(*(float *)v.views[y->id].data == 45.0f);
    assert_true(*(float *)v.views[dw->id].data == 30.0f);
    support_values_free(&v);
    wf_graph_free(g);
}

static int backward_nodes(const char *frozen)
{
    struct wf_graph *g = wf_graph_new(&training);
    struct wf_value *y = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 8, 8, 3));
    for (int i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "c%d", i);
        y = wf_conv(
            g, y,
            &(struct wf_conv){
                .name = name, .out = 4, .kernel = { 1, 3, 3 }, .same = true, .bias = true });
    }
    wf_graph_freeze(g, frozen);
    struct wf_err err = { 0 };
    assert_true(wf_graph_grad(g, y, NULL, 0, NULL, NULL, &err));
    int count = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        count += g->nodes[i]->backward;
    wf_graph_free(g);
    return count;
}

/* Each layer: weight gradient, bias sum, cast, and but for the first the gradient of its input. */
static void grad__frozen_layers_cost_no_work(void **state)
{
    (void)state;
    assert_int_equal(backward_nodes("none"), 1 + 4 * 3 + 3);
    assert_int_equal(backward_nodes("c0"), 1 + 3 * 3 + 2);
    assert_int_equal(backward_nodes("c3"), 1 + 3 * 3 + 3); /* the way down still goes through it */
    assert_int_equal(backward_nodes("c"), 1);              /* only the seed */
}

static void builder__says_the_first_failure_and_names_the_layer(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&training);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 4, 4, 3));
    struct wf_value *y =
        wf_conv(g, x, &(struct wf_conv){ .name = "enc2.conv1", .out = 8, .kernel = { 1, 7, 7 } });
    assert_null(y);
    assert_null(wf_activation(g, y, "relu", WF_RELU, 0)); /* NULL is passed on */
    struct wf_err err = { 0 };
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "enc2.conv1"));
    wf_graph_free(g);
}

static void builder__one_name_cannot_be_two_shapes(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&training);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 3));
    assert_non_null(wf_linear(g, x, "fc", 4, false));
    assert_null(wf_linear(g, x, "fc", 5, false));
    struct wf_err err = { 0 };
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "fc.weight"));
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text__every_operator_case_reads_back),
        cmocka_unit_test(text__whole_networks_with_their_gradients_read_back),
        cmocka_unit_test(text__what_is_not_a_graph_is_refused_with_its_line),
        cmocka_unit_test(grad__a_weight_used_twice_adds_up_both_uses),
        cmocka_unit_test(grad__frozen_layers_cost_no_work),
        cmocka_unit_test(builder__says_the_first_failure_and_names_the_layer),
        cmocka_unit_test(builder__one_name_cannot_be_two_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
