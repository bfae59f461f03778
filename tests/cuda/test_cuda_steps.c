/*
 * Steps of a network of points on a GPU, with another number of points in each: recorded, where they run in
 * branches, they have the bits of steps that run one by one; memory stays as it was; the host only enqueues.
 *
 * WF_STEPS=N takes so many steps (40), WF_POINTS=N so many points at most, WF_NETWORKS=N the first of the networks. It
 * prints the time that the host takes for a step.
 */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/median.h"
#include "device/device.h"
#include "gpu.h"
#include "models/model.h"
#include "ops/build.h"
#include "ops/sparse.h"
#include "support.h"
#include "train/network.h"
#include "train/step.h"

enum {
    WARM = 6, /* steps until all is loaded, recorded, and allocated for steps one by one */
    IN_ORDER =
        40, /* until then the twin runs steps one by one, then it repeats what was recorded */
};

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *const text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

struct trainee {
    struct wf_network net;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_comm *comm;
    struct wf_run *run;
    struct wf_optim *optim;
    struct wf_learner learner;
};

static void begin(struct trainee *t, const struct wf_model *model, int64_t points,
                  enum wf_dtype compute)
{
    struct wf_err err = { 0 };
    *t = (struct trainee){ 0 };
    struct wf_network_config c = { .model = model,
                                   .config = { .base = 16, .in = 3, .classes = 4 },
                                   .losses = WF_LOSS_CE,
                                   .compute = compute,
                                   .samples = 1 };
    const struct wf_mesh mesh = wf_mesh_one();
    const struct wf_plan_options options = { .device = &wf_device_cuda };
    struct wf_optim_options update = wf_optim_defaults(WF_SGD);
    update.lr = 0.02;
    assert_true(wf_model_resolve(c.model, &c.config, &err));
    assert_true(wf_network_build(&t->net, &c, WF_SHAPE(points, 1, 1, 1, 3), true, &err));
    t->global = wf_global_plan_new(t->net.graph, &mesh, &options, &err);
    t->plan = t->global ? wf_plan_new_on(t->global, 0, gpu_context(), &err) : NULL;
    t->comm = wf_comm_self();
    t->run = t->plan ? wf_run_new(t->plan, t->comm, 1, &err) : NULL;
    if (!t->run)
        fail_msg("%s", err.text);
    wf_run_init_weights(t->run, 1);
    t->optim = wf_optim_new(&update, t->run, &err);
    const struct wf_learner_options learner = { .comm = t->comm, .optim = t->optim };
    assert_true(wf_learner_init(&t->learner, &learner, t->run, &err));
}

static void end(struct trainee *t)
{
    wf_learner_release(&t->learner);
    wf_optim_free(t->optim);
    wf_run_free(t->run);
    wf_comm_free(t->comm);
    wf_plan_free(t->plan);
    wf_global_plan_free(t->global);
    wf_graph_free(t->net.graph);
}

static int by_place(const void *a, const void *b)
{
    static const int64_t one[3] = { 1, 1, 1 };
    return wf_coords_compare(a, b, 3, one);
}

static void put(const struct trainee *t, const struct wf_value *v, const void *data, size_t bytes)
{
    struct wf_host host = { 0 };
    wf_run_map(t->run, v, &host);
    assert_true(bytes <= wf_view_bytes(&host.view));
    memset(host.view.data, 0, wf_view_bytes(&host.view));
    memcpy(host.view.data, data, bytes);
    wf_host_put(&host);
    wf_host_release(&host);
}

/* A folded sheet, so that there are surfaces; another one in each step. */
static void fill(const struct trainee *t, int64_t most, int64_t step)
{
    const int64_t n = most / 4 + step * 7919 % (most - most / 4),
                  side = 1 + (int64_t)sqrt((double)n);
    int32_t *const rows = malloc((size_t)n * 4 * sizeof *rows);
    int32_t *const labels = malloc((size_t)n * sizeof *labels);
    float *const x = malloc((size_t)n * 3 * sizeof *x);
    assert_true(rows && labels && x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = i / side, b = i % side;
        memcpy(rows + i * 4,
               (int32_t[]){ 0, (int32_t)a, (int32_t)b,
                            (int32_t)((a * 3 + b * 5 + step) % 97 < 48 ? a / 3 : b / 4) },
               4 * sizeof *rows);
    }
    qsort(rows, (size_t)n, 4 * sizeof *rows, by_place);
    for (int64_t i = 0; i < n; i++) {
        labels[i] = rows[4 * i + 3] / 8 % 4;
        for (int c = 0; c < 3; c++)
            x[3 * i + c] = (float)((rows[4 * i + 1 + c] * 37 + step) % 64) / 64.0f - 0.5f;
    }
    put(t, wf_graph_find(t->net.graph, "coords"), rows, (size_t)n * 4 * sizeof *rows);
    put(t, t->net.image, x, (size_t)n * 3 * sizeof *x);
    put(t, t->net.target, labels, (size_t)n * sizeof *labels);
    wf_run_put(t->run, t->net.graph->rows, (int32_t[WF_SETS + 1]){ 0, (int32_t)n });
    free(rows);
    free(labels);
    free(x);
}

static float *weights_of(const struct trainee *t)
{
    struct wf_err err = { 0 };
    const size_t n = wf_run_param_count(t->run);
    float *const host = malloc(n * sizeof *host);
    assert_non_null(host);
    const struct wf_region box = wf_shape_region(WF_SHAPE(1, 1, 1, 1, (int64_t)n));
    const struct wf_view to = wf_view_dense(host, WF_F32, box);
    const struct wf_view from = wf_view_dense(wf_run_params(t->run), WF_F32, box);
    assert_true(wf_device_cuda.transfer.get(gpu_context(), &to, &from, &err));
    return host;
}

static void assert_same_weights(const struct trainee *a, const struct trainee *b, int64_t step)
{
    float *const x = weights_of(a), *const y = weights_of(b);
    const size_t n = wf_run_param_count(a->run);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    assert_true(isfinite(sum) && sum > 0);
    if (memcmp(x, y, n * sizeof *x) != 0)
        fail_msg("after step %d weights differ", (int)step);
    free(x);
    free(y);
}

/* A step, update included, and the seconds until it was enqueued. */
static double step(struct trainee *t)
{
    struct wf_err err = { 0 };
    const double before = wf_now();
    if (!wf_learner_step(&t->learner, t->run, NULL, &err))
        fail_msg("%s", err.text);
    return wf_now() - before;
}

static void steps_of(const char *name, enum wf_dtype compute)
{
    struct wf_err err = { 0 };
    const struct wf_model *const model = wf_model_find(name, &err);
    const int64_t steps = setting("WF_STEPS", 40), points = setting("WF_POINTS", 6000);
    double *const host = malloc((size_t)steps * sizeof *host);
    struct trainee a, b;
    size_t room = 0, taken = 0;
    double ran = 0, most = 0;
    assert_non_null(host);
    begin(&a, model, points, compute);
    begin(&b, model, points, compute);
    for (int64_t i = 0; i < steps; i++) {
        fill(&a, points, i);
        fill(&b, points, i);
        host[i] = step(&a);
        const double before = wf_now();
        assert_true(wf_run_wait(a.run, &err));
        ran += wf_now() - before;
        const bool in_order = i < 2 || (i >= WARM && i < IN_ORDER);
        wf_run_set_profiled(b.run, in_order); /* one by one, in the order of the plan */
        (void)step(&b);
        wf_learner_settle(&a.learner, a.run);
        assert_false(a.learner.skipped);
        if (i % 100 < 20 || i + 1 == steps)
            assert_same_weights(&a, &b, i);
        const size_t now = wf_device_cuda.memory.room(gpu_context()), used = mallinfo2().uordblks;
        if (i < WARM) {
            room = now;
            taken = used;
        } else {
            assert_int_equal(now, room);
            assert_true(used <= taken + 65536);
            most = fmax(most, host[i]);
        }
    }
    (void)printf(
        "%s, %d steps of at most %d points: the host enqueues one in %.3f ms (median), %.3f at most; "
        "%.3f ms until it has run\n",
        name, (int)steps, (int)points, 1e3 * wf_median(host + WARM, steps - WARM), 1e3 * most,
        1e3 * ran / (double)steps);
    assert_true(wf_median(host + WARM, steps - WARM) < 1e-3);
    end(&a);
    end(&b);
    free(host);
}

static void steps__in_branches_have_the_bits_of_steps_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum wf_dtype compute;
    } networks[] = { { "minkunet14", WF_F16 },
                     { "minkunet34c", WF_BF16 },
                     { "minkunet14", WF_F32 } };
    const int64_t n = setting("WF_NETWORKS", 3);
    for (int64_t i = 0; i < n && i < 3; i++)
        steps_of(networks[i].name, networks[i].compute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps__in_branches_have_the_bits_of_steps_in_order),
    };
    if (!gpu_start())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
