/*
 * Sparse tensors at their borders: a full grid against dense convolution, labels that are all ignored, coordinates of
 * any range, single points.
 */
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
#include "exec/run.h"
#include "ops/build.h"
#include "ops/sparse_ops.h"

struct runner {
    struct wf_comm *comm;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
};

static struct runner runner_new(struct wf_graph *g, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    const struct wf_plan_options options = { .device = device, .threads = 2 };
    struct runner r = { .comm = wf_comm_self() };
    r.global = wf_global_plan_new(g, &one, &options, &err);
    r.plan = r.global ? wf_plan_new(r.global, 0, &err) : NULL;
    r.run = r.plan ? wf_run_new(r.plan, r.comm, 1, &err) : NULL;
    if (!r.run)
        fail_msg("%s", err.text);
    return r;
}

static void runner_step(const struct runner *r)
{
    struct wf_err err = { 0 };
    if (!wf_run_step(r->run, &err))
        fail_msg("%s", err.text);
}

static void runner_free(struct runner *r)
{
    wf_run_free(r->run);
    wf_plan_free(r->plan);
    wf_global_plan_free(r->global);
    wf_comm_free(r->comm);
}

/* Coordinates in the order of rows, and their count. */
static void put_coords(const struct runner *r, const struct wf_graph *g, const struct wf_value *v,
                       const int32_t *coords, int64_t n)
{
    const int64_t width = v->shape.at[WF_C];
    int64_t *const order = calloc((size_t)n + 1, sizeof *order);
    assert_non_null(order);
    wf_coords_sort(coords, n, (int)width - 1, order);
    int32_t *const to = wf_run_view(r->run, v).data;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * width, coords + order[i] * width, (size_t)width * sizeof *to);
    ((int32_t *)wf_run_view(r->run, g->rows).data)[v->set] = (int32_t)n;
    free(order);
}

static void fill_random(const struct wf_view *view, uint64_t stream)
{
    uint64_t i = 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
        wf_view_set(view, c.at, (double)wf_random_normal(wf_random(3, stream), i++));
}

/* --- a full grid --- */

enum { D = 5, H = 6, W = 7, IN = 3, OUT = 4, PLACES = 2 * D * H * W };

static void full_grid(const struct wf_device *device)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_err err = { 0 };
    struct wf_sparse x = wf_sparse_input(
        g,
        &(struct wf_sparse_input){ .dims = 3, .rows = PLACES + 3, .channels = IN, .samples = 2 });
    const struct wf_sparse y = wf_sparse_conv(
        g, x, &(struct wf_sparse_conv){ .name = "s", .out = OUT, .kernel = { 3, 3, 3 } });
    struct wf_value *const image = wf_input(g, "image", WF_F32, WF_SHAPE(2, D, H, W, IN));
    struct wf_value *const dense =
        wf_conv(g, image,
                &(struct wf_conv){ .name = "d", .out = OUT, .kernel = { 3, 3, 3 }, .same = true });
    wf_graph_output(g, y.features);
    wf_graph_output(g, dense);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    struct runner r = runner_new(g, device);
    int32_t coords[PLACES][4];
    for (int i = 0; i < PLACES; i++)
        memcpy(coords[i], (int32_t[]){ i / (D * H * W), i / (H * W) % D, i / W % H, i % W },
               sizeof coords[i]);
    put_coords(&r, g, x.coords, coords[0], PLACES);
    const struct wf_view pixels = wf_run_view(r.run, image);
    fill_random(&pixels, 1);
    const int32_t(*const rows)[4] = wf_run_view(r.run, x.coords).data;
    const struct wf_view features = wf_run_view(r.run, x.features);
    for (int64_t i = 0; i < PLACES; i++)
        for (int64_t c = 0; c < IN; c++)
            wf_view_put(&features, i, 0, 0, 0, c,
                        wf_view_get(&pixels, rows[i][0], rows[i][1], rows[i][2], rows[i][3], c));
    const struct wf_view sparse_w = wf_run_view(r.run, wf_graph_find(g, "s.weight"));
    const struct wf_view dense_w = wf_run_view(r.run, wf_graph_find(g, "d.weight"));
    fill_random(&sparse_w, 2);
    for (struct wf_cursor c = wf_cursor(dense_w.box);
         wf_cursor_next(&c);) /* the first axis fastest */
        wf_view_set(&dense_w, c.at,
                    wf_view_get(&sparse_w, c.at[WF_D] + 3 * (c.at[WF_H] + 3 * c.at[WF_W]), 0, 0,
                                c.at[WF_N], c.at[WF_C]));
    runner_step(&r);
    const struct wf_view got = wf_run_view(r.run, y.features), want = wf_run_view(r.run, dense);
    const int32_t(*const made)[4] = wf_run_view(r.run, x.coords).data;
    for (int64_t i = 0; i < PLACES; i++)
        for (int64_t c = 0; c < OUT; c++)
            assert_true(
                fabs(wf_view_get(&got, i, 0, 0, 0, c) -
                     wf_view_get(&want, made[i][0], made[i][1], made[i][2], made[i][3], c)) < 1e-4);
    runner_free(&r);
    wf_graph_free(g);
}

static void full_grid__equals_a_dense_convolution(void **state)
{
    full_grid(&wf_device_reference);
    full_grid(&wf_device_cpu);
}

/* --- labels --- */

static void only_ignored_labels__give_no_loss_and_no_gradient(void **state)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_err err = { 0 };
    struct wf_sparse x =
        wf_sparse_input(g, &(struct wf_sparse_input){ .dims = 2, .rows = 8, .channels = IN });
    const struct wf_sparse y = wf_sparse_conv(
        g, x, &(struct wf_sparse_conv){ .name = "s", .out = 3, .kernel = { 3, 3 }, .bias = true });
    struct wf_value *const label = wf_sparse_input_rows(g, x, "label", WF_I32, 1);
    struct wf_value *const loss = wf_cross_entropy(
        g, y.features, label, &(struct wf_loss){ .name = "l", .ignore = -1, .has_ignore = true });
    wf_graph_output(g, loss);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    for (int k = 0; k < 2; k++) {
        struct runner r = runner_new(g, k ? &wf_device_cpu : &wf_device_reference);
        static const int32_t coords[][3] = { { 0, 0, 0 }, { 0, 0, 1 }, { 0, 4, 4 } };
        put_coords(&r, g, x.coords, coords[0], 3);
        wf_run_init_weights(r.run, 1);
        const struct wf_view labels = wf_run_view(r.run, label);
        const struct wf_view features = wf_run_view(r.run, x.features);
        wf_view_fill(&labels, -1);
        fill_random(&features, 4);
        runner_step(&r);
        assert_true(*(float *)wf_run_view(r.run, loss).data == 0);
        for (size_t i = 0; i < g->n_values; i++)
            for (int64_t e = 0; g->values[i]->grad && e < wf_shape_count(g->values[i]->shape); e++)
                assert_true(((float *)wf_run_view(r.run, g->values[i]->grad).data)[e] == 0);
        runner_free(&r);
    }
    wf_graph_free(g);
}

/* --- coordinates --- */

/* More bits than a key of 64 has, in six dimensions. */
static void coordinates__of_any_range_sort_as_they_compare(void **state)
{
    enum { ROWS = 200, WIDTH = 7 };
    static const int64_t stride[WF_SPARSE_AXES] = { 1, 1, 1, 1, 1, 1 };
    int32_t rows[ROWS][WIDTH];
    int64_t order[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i / WIDTH][i % WIDTH] =
            i % WIDTH == 0 ? i / WIDTH % 3 : (int32_t)wf_random_bits(wf_random(7, 0), (uint64_t)i);
    wf_coords_sort(rows[0], ROWS, WIDTH - 1, order);
    for (int i = 1; i < ROWS; i++)
        assert_true(wf_coords_compare(rows[order[i - 1]], rows[order[i]], WIDTH - 1, stride) < 0);
}

/* Neighbours of the outermost places do not wrap around. */
static void coordinates__at_the_ends_of_int32_have_no_far_neighbours(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        struct wf_sparse x =
            wf_sparse_input(g, &(struct wf_sparse_input){ .dims = 1, .rows = 5, .channels = 1 });
        const struct wf_sparse y = wf_sparse_pool(
            g, x,
            &(struct wf_sparse_pool){ .name = "sum", .mode = WF_SPARSE_SUM, .kernel = { 3 } });
        wf_graph_output(g, y.features);
        struct runner r = runner_new(g, k ? &wf_device_cpu : &wf_device_reference);
        static const int32_t coords[][2] = {
            { 0, INT32_MIN }, { 0, INT32_MIN + 1 }, { 0, INT32_MAX }, { 0, 0 }
        };
        put_coords(&r, g, x.coords, coords[0], 4);
        const int32_t(*const rows)[2] = wf_run_view(r.run, x.coords).data;
        float *const features = wf_run_view(r.run, x.features).data;
        for (int i = 0; i < 4; i++)
            features[i] = rows[i][1] == INT32_MAX ? 100 : rows[i][1] == 0 ? 10 : 1;
        runner_step(&r);
        const float *const sums = wf_run_view(r.run, y.features).data;
        for (int i = 0; i < 4; i++)
            assert_true(sums[i] == (rows[i][1] == INT32_MAX ? 100.0f
                                    : rows[i][1] == 0       ? 10.0f
                                                            : 2.0f));
        runner_free(&r);
        wf_graph_free(g);
    }
}

/* Nothing is there: all sums are zero, and sets that are made are empty. */
static void no_points__give_zeros(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        struct wf_sparse x = wf_sparse_input(
            g, &(struct wf_sparse_input){ .dims = 3, .rows = 9, .channels = 2, .samples = 3 });
        struct wf_sparse y = wf_sparse_conv(
            g, x,
            &(struct wf_sparse_conv){
                .name = "s", .out = 2, .kernel = { 2, 2, 2 }, .stride = { 2, 2, 2 } });
        struct wf_value *const mean = wf_sparse_global_pool(g, y, "mean", WF_SPARSE_AVERAGE);
        wf_graph_output(g, mean);
        struct runner r = runner_new(g, k ? &wf_device_cpu : &wf_device_reference);
        put_coords(&r, g, x.coords, (const int32_t[]){ 0 }, 0);
        wf_run_init_weights(r.run, 1);
        runner_step(&r);
        for (int i = 0; i < 6; i++)
            assert_true(((float *)wf_run_view(r.run, mean).data)[i] == 0);
        assert_int_equal(((int32_t *)wf_run_view(r.run, g->rows).data)[y.features->set], 0);
        runner_free(&r);
        wf_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_grid__equals_a_dense_convolution),
        cmocka_unit_test(only_ignored_labels__give_no_loss_and_no_gradient),
        cmocka_unit_test(coordinates__of_any_range_sort_as_they_compare),
        cmocka_unit_test(coordinates__at_the_ends_of_int32_have_no_far_neighbours),
        cmocka_unit_test(no_points__give_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
