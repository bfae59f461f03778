/*
 * A limit of memory: the step takes no more than that, and every number is the same, to the bit where
 * results are recomputed, to a rounding of sums where layers run in strips.
 *
 * The network runs twice on the same ranks, with and without the limit, and all that comes out is
 * compared: the loss, predictions, gradients and running statistics.
 */
/* ranks: 1 2 3 4 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "models/model.h"
#include "ops/build.h"
#include "plan/fit.h"
#include "train/all_ranks.h"
#include "support.h"

struct net {
    const char *model;
    struct wf_model_config config;
    struct wf_shape image;
    enum wf_dtype compute;
};

static const struct net nets[] = {
    { "unet", { .base = 4, .depth = 3 }, { { 2, 1, 48, 40, 3 } }, WF_F32 },
    { "unet", { .base = 4, .depth = 2 }, { { 1, 1, 40, 48, 3 } }, WF_BF16 },
    { "unet", { .base = 2, .depth = 2, .dims = 3, .in = 1 }, { { 1, 16, 20, 16, 1 } }, WF_F32 },
    { "unet", { .base = 4, .depth = 3, .dims = 1, .in = 2 }, { { 2, 1, 1, 400, 2 } }, WF_F32 },
};
static const struct net of_means = { NULL, { .in = 3 }, { { 4, 1, 24, 20, 3 } }, WF_F32 };

/* Means over samples, one axis of space and all of the batch, with layers on them: sums that leave an image, and one
 * that every rank has whole. */
static struct wf_value *build_means(struct wf_graph *g, struct wf_value *x)
{
    struct wf_conv c = { .name = "first",
                         .out = 8,
                         .kernel = { 1, 3, 3 },
                         .pad_lo = { 0, 1, 1 },
                         .pad_hi = { 0, 1, 1 } };
    static const struct {
        const char *mean, *layer;
        unsigned over;
    } means[] = {
        { "mean0", "layer0", WF_OVER_SAMPLES },
        { "mean1", "layer1", WF_OVER_HEIGHT },
        { "mean2", "layer2", WF_OVER_SAMPLES | WF_OVER_SPACE },
        { "mean3", "layer3", WF_OVER_SAMPLES | WF_OVER_WIDTH },
    };
    x = wf_conv(g, x, &c);
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        const bool vector = means[i].over == (WF_OVER_SAMPLES | WF_OVER_SPACE);
        struct wf_value *const mean = wf_mean(g, x, means[i].mean, means[i].over);
        c.name = means[i].layer;
        x = wf_add(g, x, vector ? wf_linear(g, mean, c.name, 8, true) : wf_conv(g, mean, &c));
    }
    c.name = "last";
    c.out = 2;
    return wf_conv(g, x, &c);
}

static struct wf_value *build_model(struct wf_graph *g, const struct net *net,
                                    struct wf_value *image)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find(net->model, &err);
    struct wf_model_config config = net->config;
    assert_true(m && wf_model_resolve(m, &config, &err));
    return m->build(g, &config, image);
}

static struct wf_graph *build(const struct net *net)
{
    struct wf_err err = { 0 };
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = net->compute });
    struct wf_shape labels = net->image;
    labels.at[WF_C] = 1;
    struct wf_value *image = wf_input(g, "image", WF_F32, net->image);
    struct wf_value *target = wf_input(g, "target", WF_I32, labels);
    struct wf_value *y = net->model ? build_model(g, net, image) : build_means(g, image);
    y = wf_dropout(g, y, "drop", 0.25); /* the same mask each time that it is made */
    struct wf_value *loss = wf_cross_entropy(g, y, target, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    assert_true(wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err));
    return g;
}

struct job {
    const struct wf_graph *g;
    struct wf_global_plan *plain, *fitted;
};

static struct wf_run *run_one(const struct wf_plan *plan, struct wf_comm *comm, struct wf_err *err)
{
    struct wf_run *run = wf_run_new(plan, comm, 5, err);
    const struct wf_graph *const g = plan->global->graph;
    wf_run_init_weights(run, 5);
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const struct wf_view to = v->kind == WF_INPUT ? wf_run_view(run, v) : (struct wf_view){ 0 };
        for (struct wf_cursor c = wf_cursor(to.box); to.data && wf_cursor_next(&c);) {
            const int64_t place = c.at[WF_N] * 31 + c.at[WF_D] * 7 + c.at[WF_H] * 13 +
                                  c.at[WF_W] * 5 + c.at[WF_C] * 3;
            wf_view_set(&to, c.at,
                        v->dtype == WF_I32 ? (double)(place / 11 % 2)
                                           : 0.1 * (double)(place % 29) - 1.4);
        }
    }
    if (wf_run_step(run, err))
        return run;
    wf_run_free(run);
    return NULL;
}

/* `b` has the limit. */
static bool is_same(const struct wf_run *a, const struct wf_run *b, const struct wf_value *v,
                    struct wf_err *err)
{
    const struct wf_view x = wf_run_owned(a, v), y = wf_run_owned(b, v);
    double allowed = 0;
    for (struct wf_cursor c = wf_cursor(x.box);
         wf_run_plan(b)->global->n_strips > 0 && x.data && wf_cursor_next(&c);)
        allowed = fmax(allowed, 1e-5 * fabs(wf_view_at(&x, c.at)));
    for (struct wf_cursor c = wf_cursor(x.box); x.data && wf_cursor_next(&c);)
        if (!(fabs(wf_view_at(&x, c.at) - wf_view_at(&y, c.at)) <= allowed))
            return wf_err_set(err, WF_ERR_FAILED, "'%s' is %.9g, without a limit %.9g", v->name,
                              wf_view_at(&y, c.at), wf_view_at(&x, c.at));
    return true;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct job *const job = arg;
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(1);
#endif
    const int rank = wf_comm_rank(comm);
    struct wf_plan *const a = wf_plan_new(job->plain, rank, err);
    struct wf_plan *const b = wf_plan_new(job->fitted, rank, err);
    struct wf_run *const x = a && b ? run_one(a, comm, err) : NULL;
    struct wf_run *const y = x ? run_one(b, comm, err) : NULL;
    bool ok = y != NULL;
    if (ok && wf_run_bytes(y) != b->arena_bytes + wf_plan_param_bytes(b))
        ok = wf_err_set(err, WF_ERR_FAILED, "takes %zu bytes, planned %zu", wf_run_bytes(y),
                        b->arena_bytes + wf_plan_param_bytes(b));
    for (size_t i = 0; ok && i < job->g->n_outputs; i++)
        ok = is_same(x, y, job->g->outputs[i], err);
    for (size_t i = 0; ok && i < job->g->n_updates; i++)
        ok = is_same(x, y, job->g->updates[i].state, err);
    wf_run_free(y);
    wf_run_free(x);
    wf_plan_free(b);
    wf_plan_free(a);
    return ok;
}

static struct wf_global_plan *plan_with(const struct wf_graph *g, const char *mesh_text,
                                        const struct wf_plan_options *options)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse(mesh_text, &mesh, &err));
    struct wf_global_plan *const s = wf_global_plan_new(g, &mesh, options, &err);
    if (!s)
        fail_msg("%s: %s", mesh_text, err.text);
    return s;
}

static struct wf_global_plan *global_of(const struct wf_graph *g, const char *mesh,
                                        const struct wf_device *device, size_t limit)
{
    return plan_with(g, mesh,
                     &(struct wf_plan_options){
                         .device = device, .limit = limit, .more = 100, .check_passes = true });
}

static struct wf_global_plan *strips_of(const struct wf_graph *g, const char *mesh,
                                        const struct wf_device *device)
{
    return plan_with(
        g, mesh,
        &(struct wf_plan_options){ .device = device, .strip_always = true, .check_passes = true });
}

/* Bytes that no recomputation saves: weights, gradients, states and what the options add. */
static size_t weights_of(const struct wf_global_plan *s)
{
    struct wf_err err = { 0 };
    struct wf_plan *const plan = wf_plan_new(s, 0, &err);
    assert_non_null(plan);
    const size_t bytes = wf_plan_param_bytes(plan) + s->options.more;
    wf_plan_free(plan);
    return bytes;
}

/* With the smallest limit that can be met, and with one halfway to no limit. *strips counts those that
 * needed strips. */
static void run_both(const struct net *net, const char *mesh, const struct wf_device *device,
                     int *strips)
{
    struct wf_err err = { 0 };
    struct wf_graph *const g = build(net);
    struct job job = { .g = g, .plain = global_of(g, mesh, device, 0) };
    struct wf_global_plan *const whole = global_of(g, mesh, device, SIZE_MAX);
    struct wf_global_plan *const least = global_of(g, mesh, device, 1);
    assert_int_equal(whole->requests.n_recompute, 0); /* it fits as it is */
    assert_true(least->bytes - weights_of(whole) < (whole->bytes - weights_of(whole)) / 100 * 85);
    const size_t limits[] = { least->bytes, (least->bytes + whole->bytes) / 2 };
    for (int i = 0; i < 2; i++) {
        job.fitted = global_of(g, mesh, device, limits[i]);
        assert_true(job.fitted->bytes <= limits[i]);
        assert_true(job.fitted->requests.n_recompute > 0);
        *strips += job.fitted->n_strips > 0;
        if (!wf_comm_threads_run(wf_mesh_size(&job.fitted->mesh), body, &job, &err))
            fail_msg("%s, mesh %s, %s, limit %zu: %s", net->model, mesh, device->name, limits[i],
                     err.text);
        wf_global_plan_free(job.fitted);
    }
    wf_global_plan_free(least);
    wf_global_plan_free(whole);
    wf_global_plan_free(job.plain);
    wf_graph_free(g);
}

static void limit__gives_the_same_numbers_with_reference_kernels(void **state)
{
    (void)state;
    int strips = 0;
    run_both(&nets[3], "space=1", &wf_device_reference, &strips);
    run_both(&nets[3], "data=2,space=2", &wf_device_reference, &strips);
    assert_true(strips > 0);
}

static void limit__gives_the_same_numbers_with_the_cpu_kernels(void **state)
{
    (void)state;
    static const char *const meshes[] = { "space=2x2", "space=3x1", "space=1x2x1", "data=2" };
    int strips = 0;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        run_both(&nets[i], meshes[i], &wf_device_cpu, &strips);
    run_both(&nets[1], "space=1", &wf_device_cpu, &strips);
    assert_true(strips > 0);
}

/* Wherever there can be strips: they leave out sums over samples or one axis, which leave an image, and sums of what is
 * replicated. */
static void strips__give_the_same_numbers_behind_means_over_samples_and_axes(void **state)
{
    (void)state;
    static const char *const meshes[] = { "space=1", "space=2x1", "data=2,space=2" };
    static const struct wf_device *const devices[] = { &wf_device_cpu, &wf_device_reference };
    for (size_t i = 0; i < 2 * (sizeof meshes / sizeof *meshes); i++) {
        const char *const mesh = meshes[i / 2];
        struct wf_err err = { 0 };
        struct wf_graph *const g = build(&of_means);
        struct job job = { .g = g,
                           .plain = global_of(g, mesh, devices[i % 2], 0),
                           .fitted = strips_of(g, mesh, devices[i % 2]) };
        assert_true(job.fitted->n_strips > 0);
        if (!wf_comm_threads_run(wf_mesh_size(&job.fitted->mesh), body, &job, &err))
            fail_msg("mesh %s, %s: %s", mesh, devices[i % 2]->name, err.text);
        wf_global_plan_free(job.fitted);
        wf_global_plan_free(job.plain);
        wf_graph_free(g);
    }
}

static void limit__that_nothing_fits_into_is_refused_with_the_smallest_that_would_do(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_graph *const g = build(&nets[0]);
    struct wf_global_plan *const s = global_of(g, "space=2x1", &wf_device_cpu, 1000);
    assert_null(wf_plan_new(s, 0, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_non_null(strstr(err.text, "memory.limit is 1000"));
    struct wf_global_plan *const least = global_of(g, "space=2x1", &wf_device_cpu, s->bytes);
    assert_true(least->bytes <= s->bytes);
    for (int r = 0; r < 2; r++) {
        struct wf_plan *const plan = wf_plan_new(least, r, &err);
        assert_non_null(plan);
        assert_true(wf_plan_total_bytes(plan) <= s->bytes);
        wf_plan_free(plan);
    }
    wf_global_plan_free(least);
    wf_global_plan_free(s);
    wf_graph_free(g);
}

/* More and more expensive: each limit costs at least what a larger one costs, and the smallest costs more. */
static void limit__costs_more_the_smaller_it_is(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_graph *const g = build(&nets[0]);
    struct wf_global_plan *const whole = global_of(g, "space=1", &wf_device_cpu, SIZE_MAX);
    const size_t weights = weights_of(whole), arena = whole->bytes - weights;
    double before = 0, first = 0;
    for (int percent = 100; percent >= 60; percent -= 10) {
        struct wf_global_plan *const s =
            global_of(g, "space=1", &wf_device_cpu, weights + arena / 100 * (size_t)percent + 100);
        struct wf_plan *const plan = wf_plan_new(s, 0, &err);
        assert_non_null(plan);
        assert_true(plan->seconds >= 0.999 * before);
        before = plan->seconds;
        first = percent == 100 ? before : first;
        wf_plan_free(plan);
        wf_global_plan_free(s);
    }
    assert_true(before > 1.001 * first);
    wf_global_plan_free(whole);
    wf_graph_free(g);
}

/* 5 to 12 ranks, uneven images: the bytes that the search counts are those of the worst of all ranks,
 * and every rank keeps a limit that it says is met. WF_FIT_LIMITS says how many (6), WF_RANDOM_SEED
 * the first. */
static bool is_kept_by_every_rank(uint64_t seed)
{
    static const char *const meshes[] = { "space=5",   "space=1x6", "space=7x1",  "space=2x4",
                                          "space=3x3", "space=2x5", "space=11x1", "space=3x4" };
    const struct wf_random r = wf_random(seed, wf_random_stream("limits"));
    const struct net net = {
        "unet",
        { .base = 2 + 2 * wf_random_below(r, 0, 2), .depth = 1 + (int)wf_random_below(r, 1, 3) },
        { { 1, 1, 64 + wf_random_below(r, 2, 240), 64 + wf_random_below(r, 3, 240), 3 } },
        WF_F32
    };
    const char *const mesh = meshes[wf_random_below(r, 4, 8)];
    struct wf_graph *const g = build(&net);
    struct wf_global_plan *const whole = global_of(g, mesh, &wf_device_cpu, SIZE_MAX);
    const size_t weights = weights_of(whole), arena = whole->bytes - weights;
    const size_t limit = weights + arena / 100 * (50 + wf_random_below(r, 5, 51));
    struct wf_global_plan *const s = global_of(g, mesh, &wf_device_cpu, limit);
    struct wf_err err = { 0 };
    struct wf_all_ranks *const all = wf_all_ranks_new(s, NULL, &err);
    assert_non_null(all);
    size_t most = 0;
    for (int i = 0; i < all->n_ranks; i++)
        most = (size_t)wf_max((int64_t)most,
                              (int64_t)(all->ranks[i].arena_bytes + all->ranks[i].weight_bytes));
    most += s->options.more;
    if (most != s->bytes)
        fail_msg("seed %d: %s: a rank takes %zu bytes, the search counted %zu", (int)seed, mesh,
                 most, s->bytes);
    const bool fits = s->bytes <= limit;
    wf_all_ranks_free(all);
    wf_global_plan_free(s);
    wf_global_plan_free(whole);
    wf_graph_free(g);
    return fits;
}

static void limit__is_kept_by_every_rank(void **state)
{
    (void)state;
    const char *const count = getenv("WF_FIT_LIMITS"), *const seed = getenv("WF_RANDOM_SEED");
    const long n = count ? atol(count) : 6, first = seed ? atol(seed) : 1;
    long fit = 0;
    for (long i = 0; i < n; i++)
        fit += is_kept_by_every_rank((uint64_t)(first + i));
    print_message("memory limits: %ld random, %ld met, 0 overrun\n", n, fit);
    assert_true(fit * 2 > n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit__gives_the_same_numbers_with_reference_kernels),
        cmocka_unit_test(limit__gives_the_same_numbers_with_the_cpu_kernels),
        cmocka_unit_test(strips__give_the_same_numbers_behind_means_over_samples_and_axes),
        cmocka_unit_test(limit__that_nothing_fits_into_is_refused_with_the_smallest_that_would_do),
        cmocka_unit_test(limit__costs_more_the_smaller_it_is),
        cmocka_unit_test(limit__is_kept_by_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
