/*
 * Whole training steps through planner and executor on a device of emulated CUDA kernels, against the
 * plain interpreter of the reference kernels: small encoders with a skip and a last layer of 1x1, in
 * which the planner fuses values into their consumers (plan/fuse.c). Cut at odd
 * places, where windows lie over a border, and whole.
 */
/* ranks: 1 2 3 4 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "exec/run.h"
#include "ops/build.h"
#include "support.h"

extern const struct wf_device wf_device_cuda; /* emulated_device.c */

/* --- the networks --- */

typedef struct wf_value *norm_layer(struct wf_graph *g, struct wf_value *x,
                                    const struct wf_norm *norm);

struct network {
    struct wf_shape image;
    int64_t pool[3];
    int64_t channels, classes;
    norm_layer *norm;
    enum wf_dtype dtype;
};

static struct wf_value *block(struct wf_graph *g, struct wf_value *x, const struct network *n,
                              const char *name)
{
    const bool deep = n->pool[0] > 1;
    x = wf_conv(
        g, x,
        &(struct wf_conv){
            .name = name, .out = n->channels, .kernel = { deep ? 3 : 1, 3, 3 }, .same = true });
    return n->norm(
        g, x,
        &(struct wf_norm){ .name = wf_arena_printf(&g->arena, "%s.norm", name), .act = WF_RELU });
}

/* A level with a skip, and a last layer. */
static struct wf_graph *build(const struct network *n)
{
    struct wf_err err = { 0 };
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = n->dtype });
    struct wf_shape classes = n->image;
    classes.at[WF_C] = 1;
    struct wf_value *x = wf_input(g, "image", n->dtype, n->image);
    struct wf_value *target = wf_input(g, "target", WF_I32, classes);
    struct wf_value *fine = block(g, x, n, "fine");
    struct wf_pool pool = { .name = "pool" };
    memcpy(pool.kernel, n->pool, sizeof pool.kernel);
    struct wf_value *coarse = block(g, wf_max_pool(g, fine, &pool), n, "coarse");
    struct wf_value *up = wf_upsample(
        g, coarse, "up",
        (const int64_t[]){ n->image.at[WF_D], n->image.at[WF_H], n->image.at[WF_W] }, WF_NEAREST);
    struct wf_value *both = wf_concat(g, "concat", 2, (struct wf_value *[]){ fine, up });
    struct wf_value *y = wf_conv(
        g, block(g, both, n, "last"),
        &(struct wf_conv){ .name = "out", .out = n->classes, .kernel = { 1, 1, 1 }, .bias = true });
    struct wf_value *loss = wf_cross_entropy(g, y, target, &(struct wf_loss){ .name = "loss" });
    assert_true(wf_graph_ok(g, &err));
    wf_graph_output(g, loss);
    assert_true(wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err));
    return g;
}

static void fill(const struct wf_graph *g, const struct support_values *v, int64_t classes)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const value = g->values[i];
        if (value->kind == WF_TEMP)
            continue;
        support_fill_random(&v->views[i], 3, i);
        for (struct wf_cursor c = wf_cursor(v->views[i].box); wf_cursor_next(&c);)
            if (value->dtype == WF_I32)
                wf_view_set(&v->views[i], c.at,
                            (double)((c.at[WF_H] * 5 + c.at[WF_W] * 3 + c.at[WF_D]) % classes));
            else if (value->kind == WF_STATE)
                wf_view_set(&v->views[i], c.at, fabs(wf_view_at(&v->views[i], c.at)));
    }
}

/* --- running --- */

struct job {
    const struct wf_graph *g;
    const struct support_values *v;
    struct wf_mesh mesh;
    double tolerance;
};

static bool compare(const struct wf_run *run, const struct job *job, const struct wf_value *v,
                    struct wf_err *err)
{
    const struct wf_view got = wf_run_view(run, v), *want = &job->v->views[v->id];
    double off = 0, norm = 0;
    for (struct wf_cursor c = wf_cursor(want->box); wf_cursor_next(&c);) {
        const double a = wf_view_at(&got, c.at), b = wf_view_at(want, c.at);
        off += (a - b) * (a - b);
        norm += b * b;
    }
    if (sqrt(off) <= job->tolerance * (sqrt(norm) + 0.01))
        return true;
    return wf_err_set(err, WF_ERR_FAILED, "'%s' is off by %.3g of %.3g", v->name, sqrt(off),
                      sqrt(norm));
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct job *const job = arg;
    const struct wf_plan_options options = { .device = &wf_device_cuda };
    struct wf_global_plan *global = wf_global_plan_new(job->g, &job->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    for (int pass = 0; ok && pass < 2; pass++) { /* the second with rubbish in the arena */
        for (size_t i = 0; i < job->g->n_values; i++) {
            const struct wf_view to = wf_run_view(run, job->g->values[i]);
            if (job->g->values[i]->kind == WF_TEMP || !to.data)
                continue;
            const struct wf_view from = wf_view_part(job->v->views[i], to.box);
            wf_view_copy(&to, &from);
        }
        ok = wf_run_step(run, err);
    }
    for (size_t i = 0; ok && i < job->g->n_outputs; i++)
        ok = compare(run, job, job->g->outputs[i], err);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

static int count_folds(const struct wf_graph *g, const struct wf_mesh *mesh)
{
    struct wf_err err = { 0 };
    const struct wf_plan_options options = { .device = &wf_device_cuda };
    struct wf_global_plan *global = wf_global_plan_new(g, mesh, &options, &err);
    struct wf_plan *plan = global ? wf_plan_new(global, 0, &err) : NULL;
    if (!plan)
        fail_msg("%s", err.text);
    int fuses = 0;
    for (int s = 0; s < plan->n_steps; s++)
        fuses += plan->steps[s].n_fused;
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return fuses;
}

static void equals_reference(const struct network *n, int fuses)
{
    static const char *const meshes[] = { "", "space=2", "space=3x1", "data=2", "space=2x2" };
    struct wf_graph *g = build(n);
    struct support_values v = support_values_new(g);
    fill(g, &v, n->classes);
    support_run_reference(g, &v, true);
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct wf_err err = { 0 };
        struct job job = { .g = g, .v = &v, .tolerance = n->dtype == WF_F32 ? 2e-5 : 5e-2 };
        assert_true(wf_mesh_parse(meshes[m], &job.mesh, &err));
        if (m == 0)
            assert_int_equal(count_folds(g, &job.mesh), fuses);
        if (!wf_comm_threads_run(wf_mesh_size(&job.mesh), body, &job, &err))
            fail_msg("mesh '%s': %s", meshes[m], err.text);
    }
    support_values_free(&v);
    wf_graph_free(g);
}

/* Of pooling, of its gradient in two kernels, of the last layer forward and its weights, and of its
 * gradient in two kernels. */
enum { ALL_FOLDS = 7 };

static void step__with_folded_values_equals_the_reference(void **state)
{
    (void)state;
    equals_reference(&(struct network){ .image = WF_SHAPE(2, 1, 14, 12, 3),
                                        .pool = { 1, 2, 2 },
                                        .channels = 8,
                                        .classes = 2,
                                        .norm = wf_batch_norm },
                     ALL_FOLDS);
}

static void step__folds_deep_windows_and_more_classes(void **state)
{
    (void)state;
    equals_reference(&(struct network){ .image = WF_SHAPE(2, 4, 6, 6, 1),
                                        .pool = { 2, 2, 2 },
                                        .channels = 8,
                                        .classes = 3,
                                        .norm = wf_batch_norm },
                     ALL_FOLDS);
}

static void step__folds_windows_that_the_image_cuts(void **state)
{
    (void)state;
    equals_reference(&(struct network){ .image = WF_SHAPE(2, 1, 13, 11, 2),
                                        .pool = { 1, 2, 2 },
                                        .channels = 24,
                                        .classes = 4,
                                        .norm = wf_batch_norm },
                     ALL_FOLDS);
}

/* Weights are summed over samples that do not share their statistics: what they are summed from is made,
 * and the last layer reads it too. */
static void step__folds_with_statistics_of_each_sample(void **state)
{
    (void)state;
    equals_reference(&(struct network){ .image = WF_SHAPE(3, 1, 10, 12, 2),
                                        .pool = { 1, 2, 2 },
                                        .channels = 8,
                                        .classes = 2,
                                        .norm = wf_instance_norm },
                     ALL_FOLDS - 2);
}

static void step__folds_in_16_bits(void **state)
{
    (void)state;
    equals_reference(&(struct network){ .image = WF_SHAPE(2, 1, 14, 12, 3),
                                        .pool = { 1, 2, 2 },
                                        .channels = 16,
                                        .classes = 2,
                                        .norm = wf_batch_norm,
                                        .dtype = WF_BF16 },
                     ALL_FOLDS);
}

/* As an operator that someone added without a kernel: known before anything runs. */
static void plan__of_an_operator_that_is_not_on_cuda_is_refused(void **state)
{
    (void)state;
    struct wf_op other = *wf_op_find("reverse");
    other.name = "other";
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 4, 5, 2));
    wf_graph_output(g, wf_append(g, &other, "edges", NULL, &(double){ 1.0 }, 1, &x));
    const struct wf_mesh mesh = wf_mesh_one();
    const struct wf_plan_options options = { .device = &wf_device_cuda };
    assert_null(wf_global_plan_new(g, &mesh, &options, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_string_equal(err.text, "layer 'edges': device 'cuda' has no kernel for other of f32");
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__with_folded_values_equals_the_reference),
        cmocka_unit_test(step__folds_deep_windows_and_more_classes),
        cmocka_unit_test(step__folds_windows_that_the_image_cuts),
        cmocka_unit_test(step__folds_with_statistics_of_each_sample),
        cmocka_unit_test(step__folds_in_16_bits),
        cmocka_unit_test(plan__of_an_operator_that_is_not_on_cuda_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
