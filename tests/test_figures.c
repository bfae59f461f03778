/* Figures of a machine: what was measured is foretold, what lies between follows, and bad files are named. And
 * what sums and exchanges take where nodes have faster links among their ranks, by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "ops/build.h"
#include "ops/op.h"
#include "plan/plan.h"

static const double peak[3] = { 1e11, 1e10, 0 };

/* A convolution of this many positions, 100 operations and 8 bytes each: 1 ns of arithmetic for each. */
static struct wf_load conv(double pixels, double channels)
{
    struct wf_load load = { .name = wf_op_find("conv")->name,
                            .type = wf_load_type(WF_F32, false),
                            .flops = 100 * pixels,
                            .bytes = 8 * pixels };
    wf_load_set(&load, (double[WF_LOAD_AXES]){ pixels, 16, channels, channels, 100, 1 });
    return load;
}

static struct wf_figures *two_loads(void)
{
    struct wf_figures *const f = wf_figures_new("cpu", "test", peak);
    const struct wf_load small = conv(1024, 8), large = conv(65536, 8);
    wf_figures_add(f, 2, &small, 8 * 1024e-9);  /* eight times as long as its arithmetic */
    wf_figures_add(f, 2, &large, 2 * 65536e-9); /* twice */
    wf_figures_seal(f);
    return f;
}

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-3 * fabs(b))
        fail_msg("%.9g, expected %.9g", a, b);
}

static void figures__what_was_measured_is_foretold(void **)
{
    struct wf_figures *const f = two_loads();
    const struct wf_load small = conv(1024, 8), large = conv(65536, 8);
    bool known = false;
    assert_near(wf_figures_seconds(f, 2, &small, &known), 8 * 1024e-9);
    assert_true(known);
    assert_near(wf_figures_seconds(f, 2, &large, NULL), 2 * 65536e-9);
    wf_figures_free(f);
}

/* In the middle of two by the logarithm: the geometric mean of how far they are off, 4, times the arithmetic. */
static void figures__between_two_loads_lies_their_geometric_mean(void **)
{
    struct wf_figures *const f = two_loads();
    const struct wf_load middle = conv(8192, 8);
    assert_near(wf_figures_seconds(f, 2, &middle, NULL), 4 * 8192e-9);
    wf_figures_free(f);
}

static void figures__other_numbers_of_threads_scale(void **)
{
    struct wf_figures *const f = two_loads();
    const struct wf_load large = conv(65536, 8);
    assert_near(wf_figures_seconds(f, 8, &large, NULL), 2 * 65536e-9 / 4);
    assert_near(wf_figures_seconds(f, 1, &large, NULL), 2 * 65536e-9 * 2);
    wf_figures_free(f);
}

static void figures__a_load_of_an_unknown_kind_takes_its_arithmetic(void **)
{
    struct wf_figures *const f = two_loads();
    struct wf_load load = conv(65536, 8);
    bool known = true;
    load.type = wf_load_type(WF_BF16, false);
    assert_near(wf_figures_seconds(f, 2, &load, &known), 65536e-9);
    assert_false(known);
    wf_figures_free(f);
}

static void figures__the_least_of_two_measurements_counts(void **)
{
    struct wf_figures *const f = wf_figures_new("cpu", "test", peak);
    const struct wf_load load = conv(1024, 8);
    wf_figures_add(f, 1, &load, 5e-3);
    wf_figures_add(f, 1, &load, 3e-3);
    wf_figures_seal(f);
    assert_int_equal(wf_figures_count(f), 1);
    assert_near(wf_figures_seconds(f, 1, &load, NULL), 3e-3);
    wf_figures_free(f);
}

static void figures__text_reads_back(void **)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    struct wf_figures *const f = two_loads();
    wf_figures_add_link(f, "threads", &(struct wf_figures_link){ 6e9, 4e-6 });
    wf_figures_add_step(f, 2, 1e-6, 2e-5);
    const char *const text = wf_figures_print(&arena, f);
    struct wf_figures *const back = wf_figures_parse(text, "a file", &err);
    if (!back)
        fail_msg("%s", err.text);
    assert_string_equal(wf_figures_print(&arena, back), text);
    struct wf_figures_link link;
    assert_true(wf_figures_link(back, "threads", &link));
    assert_near(link.bytes_per_second, 6e9);
    assert_false(wf_figures_link(back, "mpi", &link));
    assert_near(wf_figures_step(back, 2, 10), 3e-5);
    const struct wf_load large = conv(65536, 8);
    assert_near(wf_figures_seconds(back, 2, &large, NULL), 2 * 65536e-9);
    wf_figures_free(back);
    wf_figures_free(f);
    wf_arena_release(&arena);
}

static void figures__a_bad_line_is_named(void **)
{
    static const char *const bad[] = {
        "nonsense\n",
        "widefield figures 1\npeak 1e9 0 0\n",
        "widefield figures 1\npeak 1e9 1e9 0\nkernel 2 conv f32 - 1 2 3\n",
        "widefield figures 1\npeak 1e9 1e9 0\nkernel 0 conv f32 - 1 1 1 1 1 1 1 1\n",
        "widefield figures 1\npeak 1e9 1e9 0\nlink threads -1 0\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wf_err err = { 0 };
        assert_null(wf_figures_parse(bad[i], "here.txt", &err));
        assert_non_null(strstr(err.text, "here.txt"));
        assert_non_null(strstr(err.text, i == 0 ? "line 1" : i == 1 ? "line 2" : "line 3"));
        assert_non_null(strstr(err.text, "--calibrate"));
    }
}

/* A kernel of a later version is no reason to refuse the rest. */
static void figures__unknown_operators_are_left_out(void **)
{
    struct wf_err err = { 0 };
    struct wf_figures *const f = wf_figures_parse("widefield figures 1\npeak 1e9 1e9 0\n"
                                                  "kernel 1 no_such f32 - 1 1 1 1 1 1 1 1\n"
                                                  "kernel 1 conv f32 - 1 1 1 1 1 1 1 1\n",
                                                  "a file", &err);
    assert_non_null(f);
    assert_int_equal(wf_figures_count(f), 1);
    wf_figures_free(f);
}

/* All lie on one line but one: that one stays, and most of the others go. */
static void figures__thin_keeps_what_does_not_follow(void **)
{
    enum { COUNT = 20, ODD = 11 };
    struct wf_figures *const f = wf_figures_new("cpu", "test", peak);
    for (int i = 0; i < COUNT; i++) {
        const struct wf_load load = conv(1024 << (i / 2), i % 2 ? 8 : 16);
        wf_figures_add(f, 1, &load, load.flops / peak[0] * (i == ODD ? 9 : 3));
    }
    wf_figures_seal(f);
    wf_figures_thin(f, 0.05);
    assert_true(wf_figures_count(f) < COUNT);
    const struct wf_load odd = conv(1024 << (ODD / 2), 8);
    assert_near(wf_figures_seconds(f, 1, &odd, NULL), 9 * odd.flops / peak[0]);
    wf_figures_free(f);
}

/* --- links --- */

enum { WEIGHTS = 4096 };

/* One layer without bias, of 4096 weights: a step on parts of the batch has one sum of 16 KiB, of the gradient,
 * and one of a loss. */
static struct wf_plan *plan_sums(int ranks, const struct wf_links *links, struct wf_graph **g,
                                 struct wf_global_plan **global)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh = wf_mesh_one();
    mesh.at[WF_MESH_DATA] = ranks;
    *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *const x = wf_input(*g, "x", WF_F32, WF_SHAPE(8, 1, 4, 4, 64));
    struct wf_value *const y =
        wf_conv(*g, x, &(struct wf_conv){ .name = "a", .out = WEIGHTS / 64 });
    struct wf_value *const t = wf_input(*g, "t", WF_F32, WF_SHAPE(8, 1, 4, 4, 64));
    struct wf_value *const loss = wf_mse(*g, y, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(*g, loss);
    assert_true(wf_graph_grad(*g, loss, NULL, 0, NULL, NULL, &err));
    *global = wf_global_plan_new(
        *g, &mesh, &(struct wf_plan_options){ .device = &wf_device_cpu, .links = *links }, &err);
    assert_non_null(*global);
    struct wf_plan *const plan = wf_plan_new(*global, 0, &err);
    assert_non_null(plan);
    return plan;
}

static double link_seconds(int ranks, const struct wf_links *links, double *gradient)
{
    struct wf_graph *g;
    struct wf_global_plan *global;
    struct wf_plan *const plan = plan_sums(ranks, links, &g, &global);
    const double seconds = plan->link_seconds;
    *gradient = 0;
    for (int i = 0; i < plan->n_sums; i++)
        if (wf_view_bytes(&plan->sums[i].slot.view) == WEIGHTS * sizeof(float))
            *gradient = WEIGHTS * sizeof(float);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(g);
    return seconds;
}

/* Without latency a ring of n moves 2 (n - 1) / n of the bytes, a tree of two and of four 2 and 4 times the bytes.
 * The loss's sum is small beside the gradient's 16 KiB. */
static void sums__go_within_nodes_first(void **)
{
    double bytes;
    const struct wf_links flat = { .bytes_per_second = 1e6, .seconds = 1e-12 };
    const double slow = link_seconds(4, &flat, &bytes);
    assert_true(bytes > 0);
    assert_true(fabs(slow - 1.5 * bytes / 1e6) < 0.02 * slow);
    struct wf_links nodes = flat;
    nodes.node_ranks = 2;
    nodes.node_bytes_per_second = 4e6;
    nodes.node_seconds = 1e-12;
    /* Two of a node: 1 of the bytes at 4e6; two nodes, each rank half of the bytes: 1 of these at 1e6. */
    const double both = link_seconds(4, &nodes, &bytes);
    assert_true(fabs(both - (bytes / 4e6 + bytes / 2 / 1e6)) < 0.02 * both);
    nodes.node_ranks = 4;
    const double within = link_seconds(4, &nodes, &bytes);
    assert_true(fabs(within - 1.5 * bytes / 4e6) < 0.02 * within);
    nodes.node_ranks = 1;
    assert_near(link_seconds(4, &nodes, &bytes), slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures__what_was_measured_is_foretold),
        cmocka_unit_test(figures__between_two_loads_lies_their_geometric_mean),
        cmocka_unit_test(figures__other_numbers_of_threads_scale),
        cmocka_unit_test(figures__a_load_of_an_unknown_kind_takes_its_arithmetic),
        cmocka_unit_test(figures__the_least_of_two_measurements_counts),
        cmocka_unit_test(figures__text_reads_back),
        cmocka_unit_test(figures__a_bad_line_is_named),
        cmocka_unit_test(figures__unknown_operators_are_left_out),
        cmocka_unit_test(figures__thin_keeps_what_does_not_follow),
        cmocka_unit_test(sums__go_within_nodes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
