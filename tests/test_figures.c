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

/* A 3x3 convolution of a square. */
static struct wf_load dense(double size, double channels)
{
    struct wf_load load = { .name = wf_op_find("conv")->name,
                            .type = wf_load_type(WF_F32, false),
                            .bytes = 8 * size * size * channels };
    const double each = 18 * channels * channels;
    load.flops = size * size * each;
    wf_load_set(&load, (double[WF_LOAD_AXES]){ size * size, size, channels, channels, each, 1 });
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

/* Of more work than any that was measured: as many times as long as the largest. */
static void figures__beyond_the_largest_load_time_grows_with_the_work(void **)
{
    struct wf_figures *const f = two_loads();
    const struct wf_load huge = conv(65536 * 1000.0, 8);
    assert_near(wf_figures_seconds(f, 2, &huge, NULL), 2 * 65536e-9 * 1000);
    wf_figures_free(f);
}

/* f16 has bf16's kernels, tf32 f32's where there are no others. */
static void figures__types_stand_in_for_each_other(void **)
{
    struct wf_figures *const f = two_loads();
    struct wf_load load = conv(65536, 8);
    bool known = false;
    load.type = wf_load_type(WF_F32, true);
    assert_near(wf_figures_seconds(f, 2, &load, &known), 2 * 65536e-9);
    assert_false(known);
    load.type = wf_load_type(WF_BF16, false);
    wf_figures_add(f, 2, &load, 1e-5);
    wf_figures_seal(f);
    load.type = wf_load_type(WF_F16, false);
    assert_near(wf_figures_seconds(f, 2, &load, &known), 1e-5);
    assert_false(known);
    wf_figures_free(f);
}

/* 20 ns for each position and 3 us for a kernel: what was not measured follows, whatever its size. */
static void figures__a_constant_and_a_speed_are_found(void **)
{
    enum { COUNT = 12 };
    struct wf_figures *const f = wf_figures_new("cpu", "test", peak);
    for (int i = 0; i < COUNT; i++) {
        const struct wf_load load = conv(64 << i, 8);
        wf_figures_add(f, 1, &load, 3e-6 + 20e-9 * (64 << i));
    }
    wf_figures_seal(f);
    const struct wf_load small = conv(8, 8), between = conv(3000, 8), large = conv(1e9, 8);
    assert_near(wf_figures_seconds(f, 1, &small, NULL), 3e-6 + 20e-9 * 8);
    assert_near(wf_figures_seconds(f, 1, &between, NULL), 3e-6 + 20e-9 * 3000);
    const double seconds = wf_figures_seconds(f, 1, &large, NULL);
    assert_true(fabs(seconds - 20) < 0.1);
    wf_figures_free(f);
}

/* Products of single channels are other kernels than those of all with all: slow ones do not spoil their neighbours. */
static void figures__depthwise_products_are_apart(void **)
{
    enum { COUNT = 10 };
    struct wf_figures *const f = wf_figures_new("cpu", "test", peak);
    for (int i = 0; i < COUNT; i++) {
        struct wf_load dense = conv(1024 << i, 16), depth = dense;
        dense.flops = 9 * 2 * 256 * (1024.0 * (1 << i)); /* 3 x 3, 16 to 16 channels */
        depth.flops = 9 * 2 * 16 * (1024.0 * (1 << i));
        dense.log[WF_LOAD_EACH] = (float)log2(9 * 2 * 256);
        depth.log[WF_LOAD_EACH] = (float)log2(9 * 2 * 16);
        wf_figures_add(f, 1, &dense, dense.flops / peak[0]);
        if (i != 5)
            wf_figures_add(f, 1, &depth, 30 * depth.flops / peak[0]);
    }
    wf_figures_seal(f);
    struct wf_load ask = conv(1024 << 5, 16);
    ask.flops = 9 * 2 * 16 * 32768.0;
    ask.log[WF_LOAD_EACH] = (float)log2(9 * 2 * 16);
    const double seconds = wf_figures_seconds(f, 1, &ask, NULL), right = 30 * ask.flops / peak[0];
    if (fabs(seconds / right - 1) > 0.1)
        fail_msg("%g, expected %g", seconds, right);
    wf_figures_free(f);
}

/* Of products of all channels with all, at 1e12 operations a second, but one forty times slower. */
static void figures__a_bad_kernel_stands_for_its_own_load(void **)
{
    struct wf_figures *const f = wf_figures_new("cuda", "test", peak);
    for (int size = 64; size <= 1024; size *= 2)
        for (double channels = 32; channels <= 256; channels *= 2) {
            const struct wf_load load = dense(size, channels);
            const bool bad = size == 512 && channels == 64;
            wf_figures_add(f, 1, &load, (bad ? 40 : 1) * load.flops / 1e12);
        }
    wf_figures_seal(f);
    const struct wf_load bad = dense(512, 64), beside = dense(520, 64);
    assert_near(wf_figures_seconds(f, 1, &bad, NULL), 40 * bad.flops / 1e12);
    assert_near(wf_figures_seconds(f, 1, &beside, NULL), beside.flops / 1e12);
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

static struct wf_figures *read_back(const struct wf_figures *f)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    struct wf_figures *const back = wf_figures_parse(wf_figures_print(&arena, f), "a file", &err);
    if (!back)
        fail_msg("%s", err.text);
    wf_arena_release(&arena);
    return back;
}

/* Of the older table's loads one was measured again, and is slower now; the other two stay. Text rounds 12345678. */
static void figures__what_was_not_measured_again_stays(void **)
{
    const struct wf_load again = conv(12345678, 8), small = conv(1024, 8), wide = conv(4096, 64);
    struct wf_figures *const before = wf_figures_new("cpu", "test", peak);
    wf_figures_add(before, 2, &again, 1e-3);
    wf_figures_add(before, 2, &small, 2e-3);
    wf_figures_add(before, 2, &wide, 3e-3);
    wf_figures_add_step(before, 2, 1e-6, 2e-5);
    wf_figures_add_link(before, "threads", &(struct wf_figures_link){ 6e9, 4e-6 });
    wf_figures_add_link(before, "mpi", &(struct wf_figures_link){ 5e9, 5e-6 });
    wf_figures_seal(before);
    struct wf_figures *const now = wf_figures_new("cpu", "test", peak);
    wf_figures_add(now, 2, &again, 5e-3);
    wf_figures_add(now, 1, &small, 7e-3); /* on another number of threads */
    wf_figures_add_link(now, "threads", &(struct wf_figures_link){ 7e9, 4e-6 });
    wf_figures_seal(now);
    struct wf_figures *const wanted = wf_figures_new("cpu", "test", peak);
    wf_figures_add(wanted, 2, &again, 5e-3);
    wf_figures_add(wanted, 1, &small, 7e-3);
    wf_figures_add(wanted, 2, &small, 2e-3);
    wf_figures_add(wanted, 2, &wide, 3e-3);
    wf_figures_add_step(wanted, 2, 1e-6, 2e-5);
    wf_figures_add_link(wanted, "threads", &(struct wf_figures_link){ 7e9, 4e-6 });
    wf_figures_add_link(wanted, "mpi", &(struct wf_figures_link){ 5e9, 5e-6 });
    wf_figures_seal(wanted);

    struct wf_arena arena = { 0 };
    struct wf_figures *const older = read_back(before), *const all = read_back(now);
    assert_int_equal(wf_figures_add_older(all, older), 2);
    assert_string_equal(wf_figures_print(&arena, all), wf_figures_print(&arena, wanted));
    assert_int_equal(wf_figures_add_older(all, older), 0);
    assert_string_equal(wf_figures_print(&arena, all), wf_figures_print(&arena, wanted));
    wf_arena_release(&arena);
    struct wf_figures *const tables[] = { before, now, wanted, older, all };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        wf_figures_free(tables[i]);
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
    for (int i = 0; i < COUNT; i++) { /* and all follow to what was asked for */
        const struct wf_load load = conv(1024 << (i / 2), i % 2 ? 8 : 16);
        const double right = load.flops / peak[0] * (i == ODD ? 9 : 3);
        assert_true(fabs(log2(wf_figures_seconds(f, 1, &load, NULL) / right)) <= log2(1.05));
    }
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
        cmocka_unit_test(figures__beyond_the_largest_load_time_grows_with_the_work),
        cmocka_unit_test(figures__types_stand_in_for_each_other),
        cmocka_unit_test(figures__a_constant_and_a_speed_are_found),
        cmocka_unit_test(figures__depthwise_products_are_apart),
        cmocka_unit_test(figures__a_bad_kernel_stands_for_its_own_load),
        cmocka_unit_test(figures__the_least_of_two_measurements_counts),
        cmocka_unit_test(figures__text_reads_back),
        cmocka_unit_test(figures__what_was_not_measured_again_stays),
        cmocka_unit_test(figures__a_bad_line_is_named),
        cmocka_unit_test(figures__unknown_operators_are_left_out),
        cmocka_unit_test(figures__thin_keeps_what_does_not_follow),
        cmocka_unit_test(sums__go_within_nodes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
