/*
 * Operators on sparse tensors against MinkowskiEngine (or, where that is wrong, dense grids in PyTorch): the
 * files of tests/parity/sparse, which make_sparse.py made in double precision and describes. Reference and
 * CPU kernels, with more capacity than there are rows.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "device/device.h"
#include "exec/run.h"
#include "ops/build.h"
#include "ops/sparse_ops.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/sparse"

enum { SPARE = 7 }; /* rows of capacity that are not there */

struct golden {
    struct wf_arena arena;
    struct wf_safetensors *file;
    const char *name;
    int dims;
    struct wf_graph *g;
    struct wf_sparse x, y;
    struct wf_value *other; /* features of a second input, or a row per sample */
    struct wf_value *dy, *dx, *d_other;
    /* Per row of ours: which one of the file's; NULL: the same. */
    const int64_t *x_order, *y_order, *other_order;
};

/* --- files --- */

static const struct wf_safetensor *find(const struct golden *t, const char *name)
{
    return wf_safetensors_find(t->file, name);
}

static void *read_as(struct golden *t, const char *name, enum wf_dtype dtype)
{
    struct wf_err err = { 0 };
    const struct wf_safetensor *const s = find(t, name);
    if (!s)
        fail_msg("%s has no '%s'", t->name, name);
    void *const data = wf_arena_take(&t->arena, (size_t)s->count * 4 + 4);
    if (!wf_safetensors_read(t->file, s, s->dtype, data, &err))
        fail_msg("%s: %s", t->name, err.text);
    for (int64_t i = 0; s->dtype != dtype && i < s->count; i++) /* both have four bytes */
        wf_dtype_put(dtype, data, i, wf_dtype_get(s->dtype, data, i));
    return data;
}

static const char *attribute(const struct golden *t, const char *name)
{
    const char *const text = wf_safetensors_metadata(t->file, name);
    return text ? text : "";
}

/* "3" or "3x1x5". */
static void read_axes(const struct golden *t, const char *name, int64_t to[WF_SPARSE_AXES])
{
    const char *at = attribute(t, name);
    for (int d = 0; d < t->dims; d++) {
        char *end;
        const int64_t value = strtoll(at, &end, 10);
        to[d] = end == at ? (d ? to[d - 1] : 1) : value;
        at = *end == 'x' ? end + 1 : end;
    }
}

/* --- rows --- */

struct sorting {
    const int32_t *rows;
    int dims;
    int64_t stride[WF_SPARSE_AXES];
};

static int by_row(const void *a, const void *b, void *of)
{
    const struct sorting *const s = of;
    return wf_coords_compare(s->rows + *(const int64_t *)a * (1 + s->dims),
                             s->rows + *(const int64_t *)b * (1 + s->dims), s->dims, s->stride);
}

static const int64_t *order_of(struct golden *t, const char *name, const int64_t stride[])
{
    const int64_t n = find(t, name)->shape[0];
    struct sorting s = { .rows = read_as(t, name, WF_I32), .dims = t->dims };
    memcpy(s.stride, stride, sizeof s.stride);
    int64_t *const order = wf_arena_array(&t->arena, n, int64_t);
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_row, &s);
    return order;
}

static int64_t rows_of(const struct golden *t, const char *name)
{
    return find(t, name)->shape[0];
}

/* Fills rows of an input from the file, in our order. */
static void fill_rows(struct golden *t, const struct wf_run *run, const struct wf_value *v,
                      const char *name, const int64_t *order)
{
    const struct wf_view view = wf_run_view(run, v);
    const int64_t n = rows_of(t, name), width = v->shape.at[WF_C];
    const bool ints = v->dtype == WF_I32;
    const void *const from = read_as(t, name, ints ? WF_I32 : WF_F32);
    wf_view_fill(&view, ints ? 1e6 : (double)NAN); /* what is not there must not be read */
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < width; c++)
            wf_view_put(
                &view, r, 0, 0, 0, c,
                wf_dtype_get(ints ? WF_I32 : WF_F32, from, (order ? order[r] : r) * width + c));
}

static void check(const struct golden *t, const char *what, double off, double norm)
{
    if (!(sqrt(off) <= 1e-5 * sqrt(norm) + 1e-12))
        fail_msg("%s, %s: off by %.3g of %.3g", t->name, what, sqrt(off), sqrt(norm));
}

static void compare_rows(struct golden *t, const struct wf_run *run, const struct wf_value *v,
                         const char *name, const int64_t *order)
{
    const struct wf_view view = wf_run_view(run, v);
    const int64_t n = rows_of(t, name), width = v->shape.at[WF_C];
    const enum wf_dtype dtype = find(t, name)->dtype;
    const void *const want = read_as(t, name, dtype);
    double off = 0, norm = 0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < width; c++) {
            const double w = wf_dtype_get(dtype, want, (order ? order[r] : r) * width + c);
            off += pow(wf_view_get(&view, r, 0, 0, 0, c) - w, 2);
            norm += w * w;
        }
    check(t, name, off, norm);
}

/* A weight, or its gradient: theirs is [K, Cin, Cout] or [C]. */
static void each_weight(struct golden *t, const struct wf_run *run, const struct wf_value *v,
                        const char *name, bool fills)
{
    const struct wf_view view = wf_run_view(run, v);
    float *const theirs = read_as(t, name, WF_F32);
    double off = 0, norm = 0;
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        const int64_t in = v->shape.at[WF_C], out = v->shape.at[WF_W];
        const int64_t at = out > 1 || v->shape.at[WF_N] > 1
                               ? (c.at[WF_N] * in + c.at[WF_C]) * out + c.at[WF_W]
                               : c.at[WF_C];
        if (fills)
            wf_view_set(&view, c.at, (double)theirs[at]);
        off += pow(wf_view_at(&view, c.at) - (double)theirs[at], 2);
        norm += pow((double)theirs[at], 2);
    }
    check(t, name, off, norm);
}

/* --- running --- */

/* Counts of the sets that are given; -1: the step finds them. */
static void set_rows(struct golden *t, const struct wf_run *run)
{
    int32_t *const at = wf_run_view(run, t->g->rows).data;
    memset(at, -1, (WF_SETS + 1) * sizeof *at);
    at[0] = 0;
    for (size_t i = 0; i < t->g->n_values; i++) {
        const struct wf_value *const v = t->g->values[i];
        if (v->kind == WF_INPUT && v->set && find(t, v->name))
            at[v->set] = (int32_t)rows_of(t, v->name);
    }
}

/* [N, C, D, H, W] in the file. */
static int64_t image_index(const struct wf_shape *s, const int64_t at[WF_AXES])
{
    int64_t index = at[WF_N] * s->at[WF_C] + at[WF_C];
    for (int a = WF_D; a < WF_C; a++)
        index = index * s->at[a] + at[a];
    return index;
}

static void fill_image(struct golden *t, const struct wf_run *run, const struct wf_value *v,
                       const char *name)
{
    const struct wf_view view = wf_run_view(run, v);
    const float *const from = read_as(t, name, WF_F32);
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
        wf_view_set(&view, c.at, (double)from[image_index(&v->shape, c.at)]);
}

static void fill_inputs(struct golden *t, const struct wf_run *run)
{
    for (size_t i = 0; i < t->g->n_values; i++) {
        const struct wf_value *const v = t->g->values[i];
        if (v->kind == WF_PARAM)
            each_weight(t, run, v, strrchr(v->name, '.') + 1, true);
        if (v->kind != WF_INPUT || v == t->g->rows)
            continue;
        const int64_t *order = NULL;
        if (v->set && v->set == t->x.features->set)
            order = t->x_order;
        else if (t->other && v->set && v->set == t->other->set)
            order = t->other_order;
        else if (v == t->dy || strcmp(v->name, "target") == 0)
            order = t->y_order;
        if (v->shape.at[WF_W] > 1)
            fill_image(t, run, v, "grad.out");
        else
            fill_rows(t, run, v, v == t->dy ? "grad.out" : v->name, order);
    }
    set_rows(t, run);
}

static void compare_image(struct golden *t, const struct wf_run *run)
{
    const struct wf_view view = wf_run_view(run, t->y.features);
    const float *const want = read_as(t, "out", WF_F32);
    const struct wf_shape s = t->y.features->shape;
    double off = 0, norm = 0;
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        const int64_t at = image_index(&s, c.at);
        off += pow(wf_view_at(&view, c.at) - (double)want[at], 2);
        norm += pow((double)want[at], 2);
    }
    check(t, "out", off, norm);
}

static void compare_all(struct golden *t, const struct wf_run *run)
{
    const struct wf_value *const y = t->y.features;
    if (y->set)
        assert_int_equal(((int32_t *)wf_run_view(run, t->g->rows).data)[y->set], rows_of(t, "out"));
    if (y->shape.at[WF_W] > 1)
        compare_image(t, run);
    else
        compare_rows(t, run, y, "out", t->y_order);
    if (y->set && find(t, "out.coords"))
        compare_rows(t, run, t->y.coords, "out.coords", t->y_order);
    compare_rows(t, run, t->dx, "grad.features", t->x_order);
    if (t->d_other)
        compare_rows(t, run, t->d_other, "grad.features.b", t->other_order);
    for (size_t i = 0; i < t->g->n_values; i++) {
        const struct wf_value *const v = t->g->values[i];
        char name[32];
        if (!v->grad)
            continue;
        (void)snprintf(name, sizeof name, "grad.%s", strrchr(v->name, '.') + 1);
        each_weight(t, run, v->grad, name, false);
    }
}

static void run_golden(struct golden *t, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    struct wf_comm *const comm = wf_comm_self();
    struct wf_global_plan *const global = wf_global_plan_new(
        t->g, &one, &(struct wf_plan_options){ .device = device, .threads = 2 }, &err);
    struct wf_plan *const plan = global ? wf_plan_new(global, 0, &err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, &err) : NULL;
    if (!run)
        fail_msg("%s: %s", t->name, err.text);
    fill_inputs(t, run);
    if (!wf_run_step(run, &err))
        fail_msg("%s: %s", t->name, err.text);
    compare_all(t, run);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_comm_free(comm);
}

/* --- the operators --- */

static struct wf_sparse_input input_of(const struct golden *t, const char *coords,
                                       const char *features)
{
    int64_t stride[WF_SPARSE_AXES];
    read_axes(t, "tensor_stride", stride);
    return (struct wf_sparse_input){ .coords = coords,
                                     .features = features,
                                     .bare = !features,
                                     .dims = t->dims,
                                     .rows = rows_of(t, coords) + SPARE,
                                     .stride = features ? stride[0] : 0,
                                     .channels = features ? find(t, features)->shape[1] : 0 };
}

static struct wf_sparse_conv conv_of(const struct golden *t)
{
    struct wf_sparse_conv c = { .name = "layer", .out = find(t, "out")->shape[1] };
    read_axes(t, "kernel", c.kernel);
    read_axes(t, "stride", c.stride);
    read_axes(t, "dilation", c.dilation);
    c.cross = strcmp(attribute(t, "shape"), "cross") == 0;
    c.bias = find(t, "bias") != NULL;
    return c;
}

static enum wf_sparse_pool_mode mode_of(const char *op)
{
    return strstr(op, "sum")   ? WF_SPARSE_SUM
           : strstr(op, "max") ? WF_SPARSE_MAX
                               : WF_SPARSE_AVERAGE;
}

static struct wf_sparse_pool pool_of(const struct golden *t)
{
    struct wf_sparse_pool p = { .name = "layer", .mode = mode_of(attribute(t, "op")) };
    read_axes(t, "kernel", p.kernel);
    read_axes(t, "stride", p.stride);
    read_axes(t, "dilation", p.dilation);
    return p;
}

static void build_conv(struct golden *t, const char *op, const struct wf_sparse *onto)
{
    struct wf_sparse_conv c = conv_of(t);
    if (strcmp(op, "conv") == 0) {
        c.on = onto;
        t->y = wf_sparse_conv(t->g, t->x, &c);
    } else
        t->y = wf_sparse_conv_transpose(t->g, t->x, *onto, &c);
}

static void build_samples(struct golden *t, const char *op)
{
    t->g->samples = atoi(attribute(t, "batches"));
    t->y = t->x;
    if (strncmp(op, "global", 6) == 0) {
        t->y.features = wf_sparse_global_pool(t->g, t->x, "layer", mode_of(op));
        return;
    }
    if (strcmp(op, "instance_norm") == 0) {
        t->y = wf_sparse_instance_norm(
            t->g, t->x,
            &(struct wf_norm){ .name = "layer", .eps = strtod(attribute(t, "eps"), NULL) });
        return;
    }
    const struct wf_safetensor *const b = find(t, "features.b");
    t->other = wf_input(t->g, "features.b", WF_F32, WF_SHAPE(b->shape[0], 1, 1, 1, b->shape[1]));
    t->y = (strstr(op, "add")   ? wf_sparse_broadcast_add
            : strstr(op, "mul") ? wf_sparse_broadcast_multiply
                                : wf_sparse_broadcast_concat)(t->g, t->x, t->other, "layer");
}

static void build_pointwise(struct golden *t, const char *op)
{
    t->y = t->x;
    if (strcmp(op, "batch_norm") == 0) {
        t->y.features = wf_batch_norm(t->g, t->x.features, &(struct wf_norm){ .name = "layer" });
        return;
    }
    t->other = wf_input_rows(
        t->g, "features.b", WF_F32,
        WF_SHAPE(t->x.features->shape.at[WF_N], 1, 1, 1, find(t, "features.b")->shape[1]),
        t->x.features->set);
    t->y.features = wf_concat(t->g, "layer", 2, (struct wf_value *[]){ t->x.features, t->other });
}

static void build_sets(struct golden *t, const char *op)
{
    const int64_t rows = t->x.features->shape.at[WF_N];
    t->y = t->x;
    if (strcmp(op, "prune") == 0) {
        struct wf_value *const mask =
            wf_input_rows(t->g, "mask", WF_I32, WF_SHAPE(rows, 1, 1, 1, 1), t->x.features->set);
        t->y = wf_sparse_prune(t->g, t->x, mask, "layer");
    } else if (strcmp(op, "union_add") == 0) {
        const struct wf_sparse_input in = input_of(t, "coords.b", "features.b");
        const struct wf_sparse b = wf_sparse_input(t->g, &in);
        t->other = b.features;
        t->y = wf_sparse_union(t->g, t->x, b, "layer");
    } else if (strcmp(op, "to_dense") == 0) {
        const int64_t *const out = find(t, "out")->shape;
        t->g->samples = out[0];
        t->y.features = wf_sparse_to_dense(
            t->g, t->x,
            &(struct wf_sparse_grid){ .dims = t->dims, .extent = { out[2], out[3], out[4] } },
            "layer");
    } else {
        struct wf_value *const points = wf_input_rows(
            t->g, "target", WF_F32, WF_SHAPE(rows_of(t, "target") + SPARE, 1, 1, 1, 1 + t->dims),
            wf_set_new(t->g));
        t->y.features = wf_sparse_interpolate(t->g, t->x, points, "layer");
    }
}

static bool build(struct golden *t)
{
    const char *const op = attribute(t, "op");
    if (!find(t, "features") || strcmp(op, "network") == 0 || strncmp(op, "quantise", 8) == 0)
        return false;
    const struct wf_sparse_input in = input_of(t, "coords", "features");
    t->x = wf_sparse_input(t->g, &in);
    struct wf_sparse onto = { 0 };
    if (find(t, "target") && find(t, "target")->dtype == WF_I32) {
        const struct wf_sparse_input target = input_of(t, "target", NULL);
        onto = wf_sparse_input(t->g, &target);
    }
    const struct wf_sparse_pool pool = pool_of(t);
    const struct wf_sparse_conv conv = conv_of(t);
    if (strcmp(attribute(t, "coordinates"), "generated") == 0)
        t->y = wf_sparse_conv_generate(t->g, t->x, &conv);
    else if (strncmp(op, "conv", 4) == 0)
        build_conv(t, op, onto.coords ? &onto : NULL);
    else if (strncmp(op, "pool", 4) == 0)
        t->y = wf_sparse_pool(t->g, t->x, &pool);
    else if (strcmp(op, "unpool") == 0)
        t->y = wf_sparse_unpool(t->g, t->x, onto, &pool);
    else if (strcmp(op, "batch_norm") == 0 || strcmp(op, "concat") == 0)
        build_pointwise(t, op);
    else if (*attribute(t, "batches") && strcmp(op, "to_dense") != 0)
        build_samples(t, op);
    else
        build_sets(t, op);
    return true;
}

static void differentiate(struct golden *t)
{
    struct wf_err err = { 0 };
    struct wf_value *d[2], *const wrt[] = { t->x.features, t->other };
    t->dy = wf_input_rows(t->g, "dy", WF_F32, t->y.features->shape, t->y.features->set);
    if (!wf_graph_grad(t->g, t->y.features, t->dy, t->other ? 2 : 1, wrt, d, &err))
        fail_msg("%s: %s", t->name, err.text);
    t->dx = d[0];
    t->d_other = t->other ? d[1] : NULL;
    wf_graph_output(t->g, t->y.features);
    wf_graph_output(t->g, t->y.coords);
    wf_graph_output(t->g, t->dx);
    wf_graph_output(t->g, t->d_other);
}

static bool check_golden(const char *file, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    struct golden t = { .name = file };
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", GOLDEN, file);
    t.file = wf_safetensors_open(path, &err);
    if (!t.file)
        fail_msg("%s", err.text);
    t.dims = atoi(attribute(&t, "dims"));
    t.g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    const bool known = build(&t);
    if (known) {
        if (!wf_graph_ok(t.g, &err))
            fail_msg("%s: %s", file, err.text);
        differentiate(&t);
        t.x_order = order_of(&t, "coords", t.x.stride);
        if (t.other && t.other->set)
            t.other_order = t.other->set == t.x.features->set
                                ? t.x_order
                                : order_of(&t, "coords.b", t.x.stride);
        t.y_order = find(&t, "out.coords") ? order_of(&t, "out.coords", t.y.stride) : NULL;
        run_golden(&t, device);
    }
    wf_graph_free(t.g);
    wf_safetensors_free(t.file);
    wf_arena_release(&t.arena);
    return known;
}

static void goldens(const struct wf_device *device)
{
    DIR *const folder = opendir(GOLDEN);
    assert_non_null(folder);
    int checked = 0;
    for (const struct dirent *e = readdir(folder); e; e = readdir(folder))
        if (strstr(e->d_name, ".safetensors"))
            checked += check_golden(e->d_name, device);
    (void)closedir(folder);
    print_message("%d files\n", checked);
    assert_true(checked >= 58);
}

static void minkowski__has_the_numbers_of_the_reference_kernels(void **state)
{
    (void)state;
    goldens(&wf_device_reference);
}

static void minkowski__has_the_numbers_of_the_cpu_kernels(void **state)
{
    (void)state;
    goldens(&wf_device_cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minkowski__has_the_numbers_of_the_reference_kernels),
        cmocka_unit_test(minkowski__has_the_numbers_of_the_cpu_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
