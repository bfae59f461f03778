/*
 * Sparse tensors on CUDA against the reference kernels: coordinates, maps and products of layers of many widths,
 * in f32 and 16 bits, with more capacity than there are rows. Built twice: with the kernels emulated on the
 * host, and with those of the library for a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "device/device.h"
#include "exec/run.h"
#include "gpu.h"
#include "ops/build.h"
#include "ops/sparse.h"

extern const struct wf_device wf_device_cuda;

enum { SPARE = 77 };

struct layer {
    int64_t points, side, in, out, kernel, stride;
    bool transposed, bias, cross;
    bool tf32; /* on the GPU; what is multiplied is of that type if it is not `full` */
    bool full;
    bool is_first; /* the gradient of x is not wanted, so the map may be fused into its readers */
    int dims;
};

struct network {
    struct wf_graph *g;
    struct wf_sparse x, y;
    struct wf_value *dy, *dx, *input;
};

static struct wf_sparse_conv conv_of(const struct layer *l, const char *name)
{
    struct wf_sparse_conv c = { .name = name, .out = l->out, .bias = l->bias, .cross = l->cross };
    for (int d = 0; d < l->dims; d++) {
        c.kernel[d] = l->kernel;
        c.stride[d] = l->stride;
    }
    return c;
}

static struct network build(const struct layer *l, enum wf_dtype dtype)
{
    struct wf_err err = { 0 };
    struct network n = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    n.x = wf_sparse_input(n.g, &(struct wf_sparse_input){ .features = "features",
                                                          .coords = "coords",
                                                          .dims = l->dims,
                                                          .rows = l->points + SPARE,
                                                          .channels = l->in });
    n.input = n.x.features;
    if (dtype != WF_F32)
        n.x.features = wf_cast(n.g, n.x.features, dtype);
    struct wf_sparse_conv c = conv_of(l, "layer");
    if (l->transposed) { /* down, and up again: the second is what is compared */
        struct wf_sparse_conv down = conv_of(l, "down");
        down.out = l->in;
        down.bias = false;
        n.y = wf_sparse_conv_transpose(n.g, wf_sparse_conv(n.g, n.x, &down), n.x, &c);
    } else {
        n.y = wf_sparse_conv(n.g, n.x, &c);
    }
    if (!wf_graph_ok(n.g, &err))
        fail_msg("%s", err.text);
    struct wf_value *const dy =
        wf_input_rows(n.g, "dy", WF_F32, n.y.features->shape, n.y.features->set);
    n.dy = dy;
    struct wf_value *const seed = dtype == WF_F32 ? dy : wf_cast(n.g, dy, dtype);
    if (!wf_graph_grad(n.g, n.y.features, seed, l->is_first ? 0 : 1, &n.input, &n.dx, &err))
        fail_msg("%s", err.text);
    wf_graph_output(n.g, n.y.features);
    wf_graph_output(n.g, n.y.coords);
    if (n.dx)
        wf_graph_output(n.g, n.dx);
    return n;
}

/* Distinct points, in the order of rows. */
static int32_t *points_of(const struct layer *l)
{
    const struct wf_random r = wf_random(3, wf_random_stream("points"));
    const int64_t width = 1 + l->dims;
    int32_t *const drawn = wf_take((size_t)(l->points * width) * sizeof *drawn);
    uint64_t index = 0;
    for (int64_t i = 0; i < l->points;) {
        int32_t *const at = drawn + i * width;
        bool is_new = true;
        at[0] = i >= l->points / 2;
        for (int d = 0; d < l->dims; d++)
            at[1 + d] =
                (int32_t)wf_random_below(r, index++, (uint32_t)l->side) - (int32_t)(l->side / 3);
        for (int64_t j = 0; j < i && is_new; j++)
            is_new = memcmp(drawn + j * width, at, (size_t)width * sizeof *at) != 0;
        i += is_new;
    }
    int64_t *const order = wf_take((size_t)l->points * sizeof *order);
    wf_coords_sort(drawn, l->points, l->dims, order);
    int32_t *const rows = wf_take((size_t)(l->points * width) * sizeof *rows);
    for (int64_t i = 0; i < l->points; i++)
        memcpy(rows + i * width, drawn + order[i] * width, (size_t)width * sizeof *rows);
    free(drawn);
    free(order);
    return rows;
}

/* With eleven bits, where products are to be exact in tf32. */
static double drawn(const struct layer *l, struct wf_random r, uint64_t i)
{
    const double x = (double)wf_random_normal(r, i);
    int exponent;
    const double bits = frexp(x, &exponent);
    return l->tf32 && !l->full ? ldexp(rint(ldexp(bits, 11)), exponent - 11) : x;
}

/* What is not there must not be read: coordinates far away, features that are not numbers. */
static void fill(struct wf_run *run, const struct layer *l, const struct wf_value *v,
                 const int32_t *coords, int64_t rows)
{
    const struct wf_random r = wf_random(5, wf_random_stream(v->name));
    const int64_t width = wf_shape_count(v->shape) / v->shape.at[WF_N];
    struct wf_host host = { 0 };
    wf_run_map(run, v, &host);
    int64_t i = 0;
    for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c); i++) {
        const bool there = !v->set || i < rows * width;
        const double number = coords  ? (there ? coords[i] : 1e6)
                              : there ? drawn(l, r, (uint64_t)i)
                                      : (double)NAN;
        wf_view_set(&host.view, c.at, number);
    }
    wf_host_put(&host);
    wf_host_release(&host);
}

struct results {
    float *y, *dx, *dw, *db;
    float *coords;
    int64_t rows;
};

static float *get(const struct wf_run *run, const struct wf_value *v)
{
    struct wf_err err = { 0 };
    struct wf_host host = { 0 };
    float *const data = wf_take((size_t)wf_shape_count(v->shape) * sizeof *data);
    if (!wf_run_get(run, v, &host, &err))
        fail_msg("%s", err.text);
    float *to = data;
    for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c);)
        *to++ = (float)wf_view_at(&host.view, c.at);
    wf_host_release(&host);
    return data;
}

static const struct wf_value *parameter(const struct wf_graph *g, const char *name)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM && strcmp(g->values[i]->name, name) == 0)
            return g->values[i];
    return NULL;
}

static struct results run_on(const struct network *n, const struct layer *l,
                             const struct wf_device *device, const int32_t *coords)
{
    struct wf_err err = { 0 };
    struct wf_context *context = NULL;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_comm *const comm = wf_comm_self();
    const struct wf_device_options options = { .deterministic = true,
                                               .tf32 = l->tf32,
                                               .cache = "" };
    if (!wf_device_open(device, &options, &context, &err))
        fail_msg("%s", err.text);
    struct wf_global_plan *const global = wf_global_plan_new(
        n->g, &one, &(struct wf_plan_options){ .device = device, .threads = 2 }, &err);
    struct wf_plan *const plan = global ? wf_plan_new_on(global, 0, context, &err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, &err) : NULL;
    if (!run)
        fail_msg("%s", err.text);
    fill(run, l, n->x.coords, coords, l->points);
    fill(run, l, n->input, NULL, l->points);
    for (size_t i = 0; i < n->g->n_values; i++)
        if (n->g->values[i]->kind == WF_PARAM)
            fill(run, l, n->g->values[i], NULL, 0);
    int32_t rows[WF_SETS + 1] = { 0, (int32_t)l->points };
    int64_t counts[3] = { 0, l->points, l->points };
    if (!l->transposed && n->y.coords != n->x.coords) {
        int32_t *const made = wf_take((size_t)(l->points * (1 + l->dims)) * sizeof *made);
        counts[2] = wf_coords_coarsen(n->y.coords->producer->attrs, coords, l->points, made);
        free(made);
    }
    wf_run_put(run, n->g->rows, rows);
    fill(run, l, n->dy, NULL, n->y.coords == n->x.coords || l->transposed ? l->points : counts[2]);
    if (!wf_run_step(run, &err))
        fail_msg("%s", err.text);
    const struct wf_value *const w = parameter(n->g, "layer.weight");
    const struct wf_value *const b = parameter(n->g, "layer.bias");
    struct results r = { .rows =
                             n->y.coords == n->x.coords || l->transposed ? l->points : counts[2] };
    r.y = get(run, n->y.features);
    r.dx = n->dx ? get(run, n->dx) : NULL;
    r.dw = get(run, w->grad);
    r.db = b ? get(run, b->grad) : NULL;
    r.coords = get(run, n->y.coords);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_comm_free(comm);
    wf_device_close(context);
    return r;
}

static void compare(const char *what, const struct layer *l, const float *got, const float *want,
                    int64_t count, double tolerance)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * most))
            fail_msg(
                "%s of %d dims, %d points, kernel %d, stride %d, %d to %d channels: element %d is "
                "%.9g, wanted %.9g (largest %.3g)",
                what, l->dims, (int)l->points, (int)l->kernel, (int)l->stride, (int)l->in,
                (int)l->out, (int)i, (double)got[i], (double)want[i], most);
}

static void check(const struct layer *l, enum wf_dtype dtype)
{
    const bool rounds = l->tf32 && (l->full || l->transposed); /* after the first of two layers */
    const double made = rounds            ? 2e-3
                        : dtype == WF_F32 ? 1e-5
                                          : 1e-2,
                 summed = rounds || dtype != WF_F32 ? 1e-3 : 1e-5;
    const struct network n = build(l, dtype);
    int32_t *const coords = points_of(l);
    struct results want = run_on(&n, l, &wf_device_reference, coords);
    gpu_shorten(l->tf32);
    struct results got = run_on(&n, l, &wf_device_cuda, coords);
    gpu_shorten(false);
    assert_memory_equal(got.coords, want.coords,
                        (size_t)(want.rows * (1 + l->dims)) * sizeof *want.coords);
    compare("y", l, got.y, want.y, want.rows * l->out, made);
    if (n.dx)
        compare("dx", l, got.dx, want.dx, l->points * l->in, made);
    const struct wf_value *const w = parameter(n.g, "layer.weight");
    compare("dw", l, got.dw, want.dw, wf_shape_count(w->shape), l->transposed ? made : summed);
    if (l->bias)
        compare("db", l, got.db, want.db, l->out, summed);
    float *const all[] = { want.y, want.dx, want.dw, want.db, got.y, got.dx, got.dw, got.db };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(want.coords);
    free(got.coords);
    free(coords);
    wf_graph_free(n.g);
}

static const struct layer layers[] = {
    { .dims = 3, .points = 300, .side = 9, .in = 8, .out = 32, .kernel = 3, .stride = 1 },
    { .dims = 3,
      .points = 150,
      .side = 6,
      .in = 32,
      .out = 64,
      .kernel = 3,
      .stride = 1,
      .bias = true },
    { .dims = 3, .points = 200, .side = 8, .in = 64, .out = 96, .kernel = 2, .stride = 2 },
    { .dims = 3, .points = 130, .side = 6, .in = 96, .out = 128, .kernel = 3, .stride = 1 },
    { .dims = 3,
      .points = 140,
      .side = 6,
      .in = 136,
      .out = 200,
      .kernel = 1,
      .stride = 1,
      .bias = true },
    { .dims = 3,
      .points = 150,
      .side = 7,
      .in = 72,
      .out = 40,
      .kernel = 2,
      .stride = 2,
      .transposed = true },
    { .dims = 2, .points = 260, .side = 19, .in = 16, .out = 8, .kernel = 5, .stride = 1 },
    { .dims = 2,
      .points = 90,
      .side = 12,
      .in = 16,
      .out = 24,
      .kernel = 3,
      .stride = 1,
      .cross = true },
    { .dims = 4, .points = 140, .side = 4, .in = 8, .out = 16, .kernel = 3, .stride = 2 },
    { .dims = 1, .points = 120, .side = 190, .in = 3, .out = 5, .kernel = 3, .stride = 1 },
    { .dims = 3,
      .points = 300,
      .side = 9,
      .in = 3,
      .out = 32,
      .kernel = 5,
      .stride = 1,
      .bias = true },
    { .dims = 3,
      .points = 300,
      .side = 9,
      .in = 3,
      .out = 32,
      .kernel = 5,
      .stride = 1,
      .bias = true,
      .is_first = true },
    { .dims = 3,
      .points = 190,
      .side = 7,
      .in = 4,
      .out = 40,
      .kernel = 5,
      .stride = 1,
      .is_first = true },
    { .dims = 2,
      .points = 190,
      .side = 17,
      .in = 7,
      .out = 64,
      .kernel = 7,
      .stride = 1,
      .is_first = true },
    { .dims = 3, .points = 2500, .side = 18, .in = 8, .out = 8, .kernel = 2, .stride = 1 },
    /* More tiles than multiprocessors. */
    { .dims = 3, .points = 17200, .side = 34, .in = 8, .out = 8, .kernel = 2, .stride = 1 },
    /* Few filters on each row. */
    { .dims = 3,
      .points = 700,
      .side = 12,
      .in = 96,
      .out = 4,
      .kernel = 1,
      .stride = 1,
      .bias = true },
    { .dims = 3, .points = 300, .side = 9, .in = 40, .out = 5, .kernel = 1, .stride = 1 },
    { .dims = 2,
      .points = 130,
      .side = 19,
      .in = 264,
      .out = 20,
      .kernel = 1,
      .stride = 1,
      .bias = true },
};

static void layers_of(enum wf_dtype dtype)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        check(&layers[i], dtype);
}

static void layers__have_the_numbers_of_the_reference_in_f32(void **state)
{
    (void)state;
    layers_of(WF_F32);
}

/* Factors that tf32 holds: only sums round. Others are rounded to it. */
static void layers__have_the_numbers_of_the_reference_in_tf32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int full = 0; full < 2; full++) {
            struct layer l = layers[i];
            l.tf32 = true;
            l.full = full;
            check(&l, WF_F32);
        }
}

static void layers__have_the_numbers_of_the_reference_in_bf16(void **state)
{
    (void)state;
    layers_of(WF_BF16);
}

static void layers__have_the_numbers_of_the_reference_in_f16(void **state)
{
    (void)state;
    layers_of(WF_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_f32),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_tf32),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_bf16),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_f16),
    };
    if (!gpu_start())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
