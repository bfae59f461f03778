/*
 * Kernels of sparse convolutions on the CPU against the reference kernels, on more rows than a block has, in all
 * dtypes, with channels that fill vectors and tiles and channels that do not; and the same bits on any number of
 * threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "device/device.h"
#include "exec/run.h"
#include "ops/build.h"
#include "ops/sparse.h"

struct layer {
    int64_t in, out;
    int dims;
    int64_t points, side; /* of a box of side^dims places */
    int64_t kernel, stride, dilation;
    bool cross, transposed, bias;
};

static const struct layer layers[] = {
    { .in = 32, .out = 32, .dims = 3, .points = 1100, .side = 16, .kernel = 3 },
    { .in = 96, .out = 160, .dims = 3, .points = 160, .side = 7, .kernel = 3 },
    { .in = 3, .out = 32, .dims = 3, .points = 500, .side = 11, .kernel = 5, .bias = true },
    { .in = 48, .out = 16, .dims = 3, .points = 600, .side = 20, .kernel = 3, .dilation = 2 },
    { .in = 130, .out = 20, .dims = 3, .points = 300, .side = 9, .kernel = 1, .bias = true },
    { .in = 32, .out = 48, .dims = 3, .points = 1200, .side = 16, .kernel = 2, .stride = 2 },
    { .in = 64,
      .out = 32,
      .dims = 3,
      .points = 1200,
      .side = 16,
      .kernel = 2,
      .stride = 2,
      .transposed = true },
    { .in = 7, .out = 5, .dims = 2, .points = 400, .side = 30, .kernel = 3, .cross = true },
    { .in = 16, .out = 33, .dims = 4, .points = 300, .side = 5, .kernel = 3 },
    { .in = 16, .out = 16, .dims = 1, .points = 600, .side = 700, .kernel = 7 },
    { .in = 16, .out = 16, .dims = 3, .points = 1, .side = 4, .kernel = 3 },
};

struct net {
    struct wf_graph *g;
    struct wf_value *x, *dy, *results[3]; /* y, dx, dw */
    struct wf_sparse coords;
    int32_t *rows; /* coordinates, in order */
};

/* --- points --- */

static int by_row(const void *a, const void *b, void *dims)
{
    static const int64_t one[WF_SPARSE_AXES] = { 1, 1, 1, 1, 1, 1 };
    return wf_coords_compare(a, b, *(int *)dims, one);
}

/* Distinct places, some of them negative. */
static int32_t *draw_points(const struct layer *l)
{
    const int width = 1 + l->dims;
    int dims = l->dims;
    int64_t places = 1;
    for (int d = 0; d < l->dims; d++)
        places *= l->side;
    int32_t *const rows = wf_take((size_t)(l->points * width) * sizeof *rows);
    char *const taken = wf_take_zeroed((size_t)places, 1);
    const struct wf_random r = wf_random(5, wf_random_stream("places"));
    uint64_t index = 0;
    for (int64_t i = 0; i < l->points; i++) {
        int64_t place;
        do
            place = wf_random_below(r, index++, (uint32_t)places);
        while (taken[place]);
        taken[place] = 1;
        rows[i * width] = 0;
        for (int d = 0; d < l->dims; d++, place /= l->side)
            rows[i * width + 1 + d] = (int32_t)(place % l->side - l->side / 3);
    }
    qsort_r(rows, (size_t)l->points, (size_t)width * sizeof *rows, by_row, &dims);
    free(taken);
    return rows;
}

/* --- networks of one layer --- */

static struct wf_sparse_conv conv_of(const struct layer *l)
{
    struct wf_sparse_conv c = {
        .name = "layer", .out = l->out, .cross = l->cross, .bias = l->bias
    };
    for (int d = 0; d < l->dims; d++) {
        c.kernel[d] = l->kernel;
        c.stride[d] = l->stride;
        c.dilation[d] = l->dilation;
    }
    return c;
}

static struct net build(const struct layer *l, enum wf_dtype dtype)
{
    struct wf_err err = { 0 };
    struct net n = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    const struct wf_sparse_conv c = conv_of(l);
    n.coords = wf_sparse_input(
        n.g, &(struct wf_sparse_input){
                 .coords = "coords", .bare = true, .dims = l->dims, .rows = l->points + 9 });
    struct wf_sparse x = n.coords, y;
    if (l->transposed) {
        for (int d = 0; d < l->dims; d++)
            x.stride[d] = l->stride;
        x.coords = wf_sparse_coarsen(n.g, &n.coords, x.stride);
    }
    n.x = wf_input_rows(n.g, "x", dtype, WF_SHAPE(x.coords->shape.at[WF_N], 1, 1, 1, l->in),
                        x.coords->set);
    x.features = n.x;
    y = l->transposed ? wf_sparse_conv_transpose(n.g, x, n.coords, &c) : wf_sparse_conv(n.g, x, &c);
    if (!wf_graph_ok(n.g, &err))
        fail_msg("%s", err.text);
    n.dy = wf_input_rows(n.g, "dy", dtype, y.features->shape, y.features->set);
    if (!wf_graph_grad(n.g, y.features, n.dy, 1, &n.x, &n.results[1], &err))
        fail_msg("%s", err.text);
    n.results[0] = y.features;
    n.results[2] = wf_graph_find(n.g, "layer.weight")->grad;
    for (int i = 0; i < 3; i++)
        wf_graph_output(n.g, n.results[i]);
    return n;
}

static void fill(const struct net *n, const struct layer *l, struct wf_run *run,
                 const int32_t *points)
{
    const struct wf_value *const filled[] = { n->x, n->dy, wf_graph_find(n->g, "layer.weight"),
                                              wf_graph_find(n->g, "layer.bias") };
    for (int i = 0; i < 4; i++) {
        if (!filled[i])
            continue;
        const struct wf_random r = wf_random(7, wf_random_stream(filled[i]->name));
        const struct wf_view view = wf_run_view(run, filled[i]);
        uint64_t index = 0;
        for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
            wf_view_set(&view, c.at, (double)wf_random_normal(r, index++));
    }
    memcpy(wf_run_view(run, n->coords.coords).data, points,
           (size_t)(l->points * (1 + l->dims)) * sizeof *points);
    int32_t *const rows = wf_run_view(run, n->g->rows).data;
    memset(rows, -1, (WF_SETS + 1) * sizeof *rows);
    rows[0] = 0;
    rows[n->coords.coords->set] = (int32_t)l->points;
}

/* The numbers of the three results, of the rows that are there, one after the other. */
static double *run_layer(const struct layer *l, enum wf_dtype dtype, const struct wf_device *device,
                         int64_t sizes[3])
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    struct wf_comm *const comm = wf_comm_self();
    struct net n = build(l, dtype);
    int32_t *const points = draw_points(l);
    struct wf_global_plan *const global = wf_global_plan_new(
        n.g, &one, &(struct wf_plan_options){ .device = device, .threads = 2 }, &err);
    struct wf_plan *const plan = global ? wf_plan_new(global, 0, &err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, &err) : NULL;
    if (!run)
        fail_msg("%s", err.text);
    fill(&n, l, run, points);
    if (!wf_run_step(run, &err))
        fail_msg("%s", err.text);
    int64_t at = 0, most = 0;
    for (int i = 0; i < 3; i++)
        most += wf_shape_count(n.results[i]->shape);
    double *const all = wf_take((size_t)most * sizeof *all);
    const int32_t *const rows = wf_run_view(run, n.g->rows).data;
    for (int i = 0; i < 3; i++) {
        struct wf_view view = wf_run_view(run, n.results[i]);
        if (n.results[i]->set)
            view.box.hi[WF_N] = rows[n.results[i]->set];
        sizes[i] = wf_region_count(view.box);
        for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
            all[at++] = wf_view_at(&view, c.at);
    }
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(n.g);
    wf_comm_free(comm);
    free(points);
    return all;
}

/* --- the tests --- */

/* Sums are f32 or better, so narrow results are off by their last rounding. */
static void check_dtype(enum wf_dtype dtype, double close)
{
    static const char *const names[] = { "y", "dx", "dw" };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        int64_t sizes[3], same[3];
        double *const want = run_layer(&layers[i], dtype, &wf_device_reference, sizes);
        double *const got = run_layer(&layers[i], dtype, &wf_device_cpu, same);
        int64_t at = 0;
        for (int k = 0; k < 3; k++) {
            double off = 0, norm = 0;
            assert_int_equal(sizes[k], same[k]);
            for (int64_t j = at; j < at + sizes[k]; j++) {
                off += pow(got[j] - want[j], 2);
                norm += pow(want[j], 2);
            }
            at += sizes[k];
            if (!(sqrt(off) <= (k == 2 ? 2e-6 : close) * sqrt(norm)) || norm == 0)
                fail_msg("layer %zu, %s of %s: off by %.3g of %.3g", i, names[k],
                         wf_dtype_name(dtype), sqrt(off), sqrt(norm));
        }
        free(want);
        free(got);
    }
}

static void conv__in_f32_has_the_numbers_of_the_reference(void **state)
{
    check_dtype(WF_F32, 2e-6);
}

static void conv__in_bf16_is_off_by_its_last_rounding(void **state)
{
    check_dtype(WF_BF16, 1e-3);
}

static void conv__in_f16_is_off_by_its_last_rounding(void **state)
{
    check_dtype(WF_F16, 1e-4);
}

static void conv__has_the_same_bits_on_any_number_of_threads(void **state)
{
#ifdef _OPENMP
    static const enum wf_dtype dtypes[] = { WF_F32, WF_BF16, WF_F16 };
    const int before = omp_get_max_threads();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int d = 0; d < 3; d++) {
            int64_t sizes[3];
            omp_set_num_threads(1);
            double *const one = run_layer(&layers[i], dtypes[d], &wf_device_cpu, sizes);
            omp_set_num_threads(3);
            double *const three = run_layer(&layers[i], dtypes[d], &wf_device_cpu, sizes);
            const int64_t n = sizes[0] + sizes[1] + sizes[2];
            assert_memory_equal(one, three, (size_t)n * sizeof *one);
            free(one);
            free(three);
        }
    omp_set_num_threads(before);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv__in_f32_has_the_numbers_of_the_reference),
        cmocka_unit_test(conv__in_bf16_is_off_by_its_last_rounding),
        cmocka_unit_test(conv__in_f16_is_off_by_its_last_rounding),
        cmocka_unit_test(conv__has_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
