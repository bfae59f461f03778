/*
 * Windows equal the whole. The oracle is the plan of the whole image on one rank, made without any
 * window. Networks with batch norm have running statistics that are not the initial ones; images
 * have odd extents, and windows that do not divide them.
 */
/* ranks: 1 2 3 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/device.h"
#include "exec/stream.h"
#include "models/model.h"
#include "ops/build.h"
#include "support.h"

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    (void)user;
    (void)err;
    wf_run_init_weights(run, 5);
    const struct wf_graph *g = wf_run_plan(run)->global->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const struct wf_view view = wf_run_view(run, v);
        if (v->kind != WF_STATE || !view.data)
            continue;
        const struct wf_random r = wf_random(9, wf_random_stream(v->name));
        const bool is_mean = strstr(v->name, "mean") != NULL;
        for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
            const double u = (double)wf_random_uniform(r, (uint64_t)c.at[WF_C]);
            wf_view_set(&view, c.at, is_mean ? 0.2 * (u - 0.5) : 0.2 + u);
        }
    }
    return true;
}

static bool fill_image(void *user, const struct wf_value *input, const struct wf_view *view,
                       struct wf_err *err)
{
    (void)user;
    (void)err;
    const struct wf_random r = wf_random(3, wf_random_stream(input->name));
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        int64_t index = 0;
        for (int a = 0; a < WF_AXES; a++)
            index = index * input->shape.at[a] + c.at[a];
        wf_view_set(view, c.at, 2.0 * (double)wf_random_uniform(r, (uint64_t)index) - 1.0);
    }
    return true;
}

struct job {
    struct wf_graph *g;
    struct wf_value *y;
    struct wf_stream_options options;
    float *want, *got; /* dense, as y */
    int64_t windows;   /* found */
    int passes;
    int64_t plans;
    size_t bytes, kept;
    double number, want_number; /* options.number */
};

static void start(struct job *job, struct wf_graph *g, struct wf_value *y)
{
    struct wf_err err = { 0 };
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    wf_graph_output(g, y);
    *job = (struct job){ .g = g,
                         .y = y,
                         .options = { .plan = { .device = &wf_device_cpu, .threads = 1 },
                                      .weights = fill_weights,
                                      .fill = fill_image } };
    job->want = calloc((size_t)wf_shape_count(y->shape), sizeof *job->want);
    job->got = calloc((size_t)wf_shape_count(y->shape), sizeof *job->got);
    assert_non_null(job->want);
    assert_non_null(job->got);
}

static void finish(struct job *job)
{
    wf_graph_free(job->g);
    free(job->want);
    free(job->got);
}

static struct wf_view dense(const struct job *job, float *data)
{
    return wf_view_dense(data, WF_F32, wf_shape_region(job->y->shape));
}

static void run_whole(struct job *job)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    struct wf_global_plan *global = wf_global_plan_new(job->g, &one, &job->options.plan, &err);
    struct wf_plan *plan = global ? wf_plan_new(global, 0, &err) : NULL;
    struct wf_comm *self = wf_comm_self();
    struct wf_run *run = plan ? wf_run_new(plan, self, 0, &err) : NULL;
    if (!run)
        fail_msg("%s", err.text);
    assert_true(fill_weights(NULL, run, &err));
    for (size_t i = 0; i < job->g->n_values; i++)
        if (job->g->values[i]->kind == WF_INPUT) {
            const struct wf_view view = wf_run_view(run, job->g->values[i]);
            assert_true(fill_image(NULL, job->g->values[i], &view, &err));
        }
    assert_true(wf_run_step(run, &err));
    const struct wf_view from = wf_run_view(run, job->y), to = dense(job, job->want);
    wf_view_copy(&to, &from);
    if (job->options.number)
        assert_true(wf_run_get_number(run, job->options.number, 0, &job->want_number, &err));
    wf_run_free(run);
    wf_comm_free(self);
    wf_plan_free(plan);
    wf_global_plan_free(global);
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct job *job = arg;
    struct wf_stream *s = wf_stream_new(job->g, 1, &job->y, &job->options, comm, err);
    if (!s)
        return false;
    bool ok = true;
    for (int64_t i = wf_comm_rank(comm); ok && i < wf_stream_windows(s); i += wf_comm_size(comm)) {
        struct wf_view part;
        ok = wf_stream_run(s, i, &part, err);
        if (!ok)
            break;
        if (!wf_region_equal(part.box, wf_stream_window(s, i)))
            ok = wf_err_set(err, WF_ERR_FAILED, "the part is not the window");
        const struct wf_view to = wf_view_part(dense(job, job->got), part.box);
        wf_view_copy(&to, &part);
    }
    double number = 0;
    if (job->options.number)
        ok = wf_comm_agree(comm, ok, err) && wf_stream_number(s, &number, err);
    if (wf_comm_rank(comm) == 0) {
        job->number = number;
        job->windows = wf_stream_windows(s);
        job->passes = wf_stream_passes(s);
        job->bytes = wf_stream_bytes(s);
        job->plans = wf_stream_plans(s);
        job->kept = wf_stream_kept(s);
    }
    wf_stream_free(s);
    return ok;
}

static void compare(const struct job *job, double tolerance, const char *what)
{
    const int64_t count = wf_shape_count(job->y->shape);
    double worst = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)job->got[i] - (double)job->want[i]));
        size = fmax(size, fabs((double)job->want[i]));
    }
    assert_true(size > 0);
    if (!(worst <= tolerance * fmax(1, size)))
        fail_msg("%s: off by %.3g of %.3g", what, worst, size);
}

static void expect_same(struct job *job, int ranks, const char *what)
{
    struct wf_err err = { 0 };
    memset(job->got, 0x7f, (size_t)wf_shape_count(job->y->shape) * sizeof *job->got);
    if (!wf_comm_threads_run(ranks, body, job, &err))
        fail_msg("%s: %s", what, err.text);
    compare(job, 1e-5, what);
}

static void set_window(struct job *job, int64_t d, int64_t h, int64_t w)
{
    job->options.window[WF_D] = d;
    job->options.window[WF_H] = h;
    job->options.window[WF_W] = w;
}

/* The network's probabilities. */
static void start_model(struct job *job, const char *name, struct wf_model_config config,
                        struct wf_shape shape)
{
    struct wf_err err = { 0 };
    const struct wf_model *model = wf_model_find(name, &err);
    assert_non_null(model);
    if (!wf_model_resolve(model, &config, &err))
        fail_msg("%s", err.text);
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_value *x = wf_input(g, "image", WF_F32, shape);
    start(job, g, wf_softmax(g, model->build(g, &config, x), "probabilities"));
}

static void unet_2d__odd_sizes_and_windows_that_divide_nothing(void **state)
{
    static const int64_t sizes[][2] = { { 37, 53 }, { 5, 91 }, { 41, 17 } };
    static const int64_t windows[][2] = { { 16, 16 }, { 9, 14 }, { 0, 10 }, { 13, 0 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int depth = 1; depth <= 3; depth++) {
            if (sizes[i][0] >> depth < 1)
                continue;
            struct job job;
            start_model(&job, "unet",
                        (struct wf_model_config){ .dims = 2, .in = 2, .base = 4, .depth = depth },
                        WF_SHAPE(1, 1, sizes[i][0], sizes[i][1], 2));
            run_whole(&job);
            for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
                char what[80];
                (void)snprintf(what, sizeof what, "size %d, depth %d, window %d", (int)i, depth,
                               (int)k);
                set_window(&job, 0, windows[k][0], windows[k][1]);
                expect_same(&job, 1, what);
                assert_int_equal(job.passes, 0);
            }
            finish(&job);
        }
}

static void unet_3d__windows_in_depth_too(void **state)
{
    struct job job;
    start_model(&job, "unet",
                (struct wf_model_config){ .dims = 3, .in = 1, .base = 4, .depth = 2, .classes = 3 },
                WF_SHAPE(1, 13, 18, 21, 1));
    run_whole(&job);
    set_window(&job, 4, 8, 8);
    expect_same(&job, 1, "4 x 8 x 8");
    assert_int_equal(job.windows, 4 * 3 * 3);
    set_window(&job, 5, 0, 9);
    expect_same(&job, 3, "5 x 18 x 9 on three ranks");
    finish(&job);
    start_model(&job, "unet3d", (struct wf_model_config){ .base = 2, .depth = 2 },
                WF_SHAPE(1, 9, 14, 11, 3));
    run_whole(&job);
    set_window(&job, 4, 5, 6);
    expect_same(&job, 1, "unet3d");
    finish(&job);
}

static void unet_2d__512_wide_windows_of_a_large_image(void **state)
{
    struct job job;
    start_model(&job, "unet", (struct wf_model_config){ .base = 4, .depth = 3, .classes = 3 },
                WF_SHAPE(1, 1, 700, 900, 3));
    run_whole(&job);
    set_window(&job, 0, 512, 512);
    expect_same(&job, 1, "512 x 512 of 700 x 900");
    assert_int_equal(job.windows, 4);
    expect_same(&job, 2, "on two ranks");
    finish(&job);
}

/* Nine kinds of windows: at the corners, at the edges, inside. A kernel is prepared for a plan only. */
static void windows__that_lie_alike_share_a_plan(void **state)
{
    struct job job;
    start_model(&job, "unet", (struct wf_model_config){ .base = 2, .depth = 2 },
                WF_SHAPE(1, 1, 1000, 1280, 3));
    run_whole(&job);
    set_window(&job, 0, 32, 40);
    expect_same(&job, 1, "1024 windows");
    assert_int_equal(job.windows, 32 * 32);
    assert_int_equal(job.plans, 9);
    finish(&job);
}

/* Windows narrower than the stride: each phase has taps of its own. */
static void transposed_convolution__in_windows_narrower_than_its_stride(void **state)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_value *const x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 5, 24, 2));
    struct job job;
    start(&job, g,
          wf_conv_transpose(g, x,
                            &(struct wf_conv){ .name = "up",
                                               .out = 2,
                                               .kernel = { 1, 16, 16 },
                                               .stride = { 1, 8, 8 },
                                               .pad_lo = { 0, 4, 4 },
                                               .pad_hi = { 0, 4, 4 } }));
    run_whole(&job);
    for (int64_t w = 1; w <= 12; w++) {
        set_window(&job, 0, 0, w);
        expect_same(&job, 1, "narrow windows");
    }
    finish(&job);
}

static void limit__windows_shrink_until_they_fit_and_the_run_needs_no_more(void **state)
{
    struct job job;
    start_model(&job, "unet", (struct wf_model_config){ .base = 4, .depth = 2 },
                WF_SHAPE(1, 1, 300, 420, 3));
    run_whole(&job);
    const size_t limits[] = { (size_t)1 << 30, (size_t)8 << 20, (size_t)2 << 20 };
    int64_t before = 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        job.options.limit = limits[i];
        expect_same(&job, 1, "a limit");
        assert_true(job.windows > before);
        assert_true(i > 0 || job.windows == 1);
        before = job.windows;
        const size_t weights = 64 * 1024; /* 7,500 parameters */
        if (job.bytes > limits[i] + weights)
            fail_msg("%zu bytes used, the limit is %zu", job.bytes, limits[i]);
    }
    job.options.limit = 0;
    job.options.most[WF_H] = 32;
    job.options.limit = (size_t)1 << 30;
    expect_same(&job, 1, "low windows");
    assert_int_equal(job.windows, 10);
    finish(&job);
}

static void limit__too_small_for_any_window_is_refused(void **state)
{
    struct job job;
    start_model(&job, "unet", (struct wf_model_config){ .base = 4, .depth = 2 },
                WF_SHAPE(1, 1, 100, 100, 3));
    job.options.limit = 4096;
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(2, body, &job, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_non_null(strstr(err.text, "memory.limit"));
    finish(&job);
}

static void huge_image__costs_its_window_only(void **state)
{
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_err err = { 0 };
    const struct wf_model *model = wf_model_find("unet", &err);
    struct wf_model_config config = { .base = 16, .depth = 4 };
    assert_true(wf_model_resolve(model, &config, &err));
    struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 100'000, 100'000, 3));
    struct wf_value *y = model->build(g, &config, x);
    wf_graph_output(g, y);
    const struct wf_region window = { { 0, 0, 51'200, 70'400, 0 }, { 1, 1, 51'456, 70'656, 2 } };
    const struct wf_plan_options options = { .device = &wf_device_cpu, .window = &window };
    const struct wf_mesh one = wf_mesh_one();
    struct wf_global_plan *global = wf_global_plan_new(g, &one, &options, &err);
    struct wf_plan *plan = global ? wf_plan_new(global, 0, &err) : NULL;
    if (!plan)
        fail_msg("%s", err.text);
    /* Depth 4 reads 92 + 4 pixels more on each side at most (3x3 twice a level, halved): 448 wide;
     * at 3 + 16 + 32 + 16 channels of f32 in flight it is about 100 MB. */
    const struct wf_region box = plan->values[x->id].view.box;
    assert_true(wf_region_extent(box, WF_H) <= 256 + 2 * 110);
    assert_true(wf_region_extent(box, WF_H) >= 256 + 2 * 80);
    assert_true(plan->arena_bytes < (size_t)120 << 20);
    assert_true(plan->n_exchanges == 0 && plan->n_sums == 0);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(g);
}

static void classifier__its_mean_is_taken_in_a_pass_over_windows(void **state)
{
    struct job job;
    start_model(&job, "cnn2d", (struct wf_model_config){ .base = 4, .classes = 5 },
                WF_SHAPE(1, 1, 61, 83, 3));
    run_whole(&job);
    expect_same(&job, 1, "one window");
    assert_int_equal(job.windows, 1);
    assert_int_equal(job.passes, 0);
    set_window(&job, 0, 4, 7);
    expect_same(&job, 1, "windows of the coarsest level");
    assert_int_equal(job.passes, 1);
    expect_same(&job, 3, "on three ranks");
    memset(job.options.window, 0, sizeof job.options.window);
    job.options.limit = 100'000;
    expect_same(&job, 1, "by a limit");
    assert_int_equal(job.passes, 1);
    finish(&job);
}

/* conv, norm, pool, conv, norm, up, with statistics of the whole image. */
static struct wf_value *norm_net(struct wf_graph *g, struct wf_value *x, bool instance)
{
    const struct wf_conv conv[3] = {
        { .name = "a", .out = 8, .kernel = { 1, 3, 3 }, .same = true, .bias = true },
        { .name = "b", .out = 8, .kernel = { 1, 3, 3 }, .same = true },
        { .name = "c", .out = 2, .kernel = { 1, 2, 2 }, .stride = { 1, 2, 2 }, .bias = true },
    };
    const struct wf_norm norm[2] = { { .name = "na", .groups = 4, .act = WF_RELU },
                                     { .name = "nb", .groups = 2, .act = WF_RELU } };
    x = wf_conv(g, x, &conv[0]);
    x = instance ? wf_instance_norm(g, x, &norm[0]) : wf_group_norm(g, x, &norm[0]);
    x = wf_max_pool(g, x, &(struct wf_pool){ .name = "p", .kernel = { 1, 2, 2 } });
    x = wf_conv(g, x, &conv[1]);
    x = instance ? wf_instance_norm(g, x, &norm[1]) : wf_group_norm(g, x, &norm[1]);
    return wf_conv_transpose(g, x, &conv[2]);
}

static void norms_that_look_at_the_whole_image__get_it_in_passes(void **state)
{
    for (int instance = 0; instance < 2; instance++) {
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = false });
        struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 50, 66, 3));
        struct job job;
        start(&job, g, norm_net(g, x, instance));
        run_whole(&job);
        set_window(&job, 0, 16, 24);
        expect_same(&job, 1, instance ? "instance norm" : "group norm");
        assert_int_equal(job.passes, 2);
        expect_same(&job, 2, "on two ranks");
        assert_int_equal(job.kept, 0);
        for (int64_t room = 1; room < 1 << 20; room *= 8) /* some of it, all of it */
            for (int ranks = 1; ranks <= 3; ranks++) {
                job.options.keep = (size_t)room;
                expect_same(&job, ranks, "with results kept between passes");
                assert_true(job.kept <= (size_t)room);
            }
        /* Both layers, while the second pass runs. */
        assert_int_equal(job.kept, (50 * 66 + 25 * 33) * 8 * sizeof(float));
        finish(&job);
    }
}

/* The mean of squares of what the windows gave, with norms over the whole image before it. */
static void number__is_made_of_sums_that_windows_add_up(void **state)
{
    (void)state;
    for (int norms = 0; norms < 2; norms++) {
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = false });
        struct wf_value *const x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 50, 66, 3));
        const struct wf_conv conv = {
            .name = "only", .out = 2, .kernel = { 1, 3, 3 }, .same = true
        };
        struct wf_value *const y = norms ? norm_net(g, x, true) : wf_conv(g, x, &conv);
        struct wf_value *const target = wf_input(g, "target", WF_F32, y->shape);
        struct wf_value *const loss = wf_mse(g, y, target, &(struct wf_loss){ .name = "loss" });
        struct job job;
        start(&job, g, y);
        wf_graph_output(g, loss);
        job.options.number = loss;
        run_whole(&job);
        set_window(&job, 0, 16, 24);
        for (int ranks = 1; ranks <= 3; ranks++) {
            job.options.keep = ranks == 2 ? 0 : 1 << 20;
            expect_same(&job, ranks, "with a loss");
            assert_true(job.windows > 4 && job.passes == 2 * norms);
            assert_true(job.want_number > 1e-3);
            assert_true(fabs(job.number - job.want_number) <= 1e-6 * job.want_number);
        }
        finish(&job);
    }
}

/* Weights of a resampling depend on where a pixel lies in the whole image, not in its window. */
static void resampling_and_reflecting_borders__know_where_they_are(void **state)
{
    static const enum wf_upsample_mode modes[] = { WF_NEAREST, WF_LINEAR, WF_LINEAR_CORNERS };
    for (size_t i = 0; i < 3; i++) {
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = false });
        struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 31, 22, 2));
        const struct wf_conv conv = { .name = "a",
                                      .out = 4,
                                      .kernel = { 1, 5, 3 },
                                      .dilation = { 1, 2, 1 },
                                      .same = true,
                                      .pad_mode = i == 0   ? WF_PAD_REFLECT
                                                  : i == 1 ? WF_PAD_CIRCULAR
                                                           : WF_PAD_EDGE };
        struct wf_value *y =
            wf_upsample(g, wf_conv(g, x, &conv), "up", (const int64_t[3]){ 1, 75, 49 }, modes[i]);
        struct job job;
        start(&job, g, y);
        run_whole(&job);
        set_window(&job, 0, 17, 20);
        expect_same(&job, 1, "resampling");
        finish(&job);
    }
}

static bool refuse(void *user, const struct wf_value *input, const struct wf_view *view,
                   struct wf_err *err)
{
    (void)user;
    (void)input;
    return view->box.lo[WF_H] < 20 || wf_err_set(err, WF_ERR_INPUT, "tile 7 is broken");
}

static void failing_input__is_an_error_on_every_rank(void **state)
{
    struct job job;
    start_model(&job, "cnn2d", (struct wf_model_config){ .base = 4 }, WF_SHAPE(1, 1, 64, 64, 3));
    job.options.fill = refuse;
    set_window(&job, 0, 4, 4);
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(3, body, &job, &err));
    assert_non_null(strstr(err.text, "tile 7 is broken"));
    finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unet_2d__odd_sizes_and_windows_that_divide_nothing),
        cmocka_unit_test(unet_3d__windows_in_depth_too),
        cmocka_unit_test(unet_2d__512_wide_windows_of_a_large_image),
        cmocka_unit_test(windows__that_lie_alike_share_a_plan),
        cmocka_unit_test(transposed_convolution__in_windows_narrower_than_its_stride),
        cmocka_unit_test(limit__windows_shrink_until_they_fit_and_the_run_needs_no_more),
        cmocka_unit_test(limit__too_small_for_any_window_is_refused),
        cmocka_unit_test(huge_image__costs_its_window_only),
        cmocka_unit_test(classifier__its_mean_is_taken_in_a_pass_over_windows),
        cmocka_unit_test(norms_that_look_at_the_whole_image__get_it_in_passes),
        cmocka_unit_test(number__is_made_of_sums_that_windows_add_up),
        cmocka_unit_test(resampling_and_reflecting_borders__know_where_they_are),
        cmocka_unit_test(failing_input__is_an_error_on_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
