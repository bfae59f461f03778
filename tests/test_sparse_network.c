/*
 * A training step of MinkUNet against MinkowskiEngine: the network files of tests/parity/sparse, which
 * make_sparse.py made in double precision. Weights are a function of their names (formula() there); of gradients and
 * running statistics a file has the norm and some elements.
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

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "device/device.h"
#include "exec/run.h"
#include "ops/sparse.h"
#include "train/network.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/sparse/"

struct golden {
    struct wf_arena arena;
    struct wf_safetensors *file;
    struct wf_network net;
    struct wf_run *run;
    int64_t n, *order; /* per row: the point of the file */
};

static const struct wf_safetensor *find(const struct golden *t, const char *prefix,
                                        const char *name)
{
    char full[256];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct wf_safetensor *const s = wf_safetensors_find(t->file, full);
    if (!s)
        fail_msg("no '%s' in the file", full);
    return s;
}

static void *read_all(struct golden *t, const char *prefix, const char *name)
{
    struct wf_err err = { 0 };
    const struct wf_safetensor *const s = find(t, prefix, name);
    void *const data = wf_arena_take(&t->arena, (size_t)s->count * 4 + 4);
    if (!wf_safetensors_read(t->file, s, s->dtype, data, &err))
        fail_msg("%s", err.text);
    return data;
}

/* --- weights by their names --- */

static uint64_t hash_of(const char *name, uint64_t index)
{
    uint64_t key = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++)
        key = (key ^ (unsigned char)*c) * 0x100000001b3u;
    uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double formula(const struct wf_value *v, int64_t index)
{
    const double u = (double)(hash_of(v->name, (uint64_t)index) >> 40) * 0x1p-24;
    const size_t length = strlen(v->name);
    if (length > 4 && strcmp(v->name + length - 4, "bias") == 0)
        return 0.6 * u - 0.3;
    if (v->border_dims < 0)
        return 0.5 + u;
    return (2 * u - 1) / sqrt((double)(v->shape.at[WF_N] * v->shape.at[WF_C]));
}

/* Theirs is [K, Cin, Cout] or [C]; ours [K, Cout, Cin]. */
static int64_t outside(const struct wf_value *v, const int64_t at[WF_AXES])
{
    return (at[WF_N] * v->shape.at[WF_C] + at[WF_C]) * v->shape.at[WF_W] + at[WF_W];
}

static void fill(struct golden *t)
{
    const struct wf_graph *const g = t->net.graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        const struct wf_view view = v->kind == WF_PARAM || v->kind == WF_STATE
                                        ? wf_run_view(t->run, v)
                                        : (struct wf_view){ 0 };
        if (view.data)
            for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
                wf_view_set(&view, c.at,
                            v->kind == WF_PARAM ? (double)(float)formula(v, outside(v, c.at))
                                                : v->init == WF_INIT_ONE);
    }
    const struct wf_value *const inputs[] = { wf_graph_find(g, "coords"), t->net.image,
                                              t->net.target };
    static const char *const names[] = { "coords", "features", "target" };
    for (int k = 0; k < 3; k++) {
        const void *const from = read_all(t, "", names[k]);
        const struct wf_view view = wf_run_view(t->run, inputs[k]);
        const int64_t width = inputs[k]->shape.at[WF_C];
        for (int64_t i = 0; i < t->n * width; i++)
            wf_view_put(
                &view, i / width, 0, 0, 0, i % width,
                wf_dtype_get(inputs[k]->dtype, from, t->order[i / width] * width + i % width));
    }
    int32_t rows[WF_SETS + 1] = { 0, (int32_t)t->n };
    wf_run_put(t->run, g->rows, rows);
}

/* --- comparing --- */

static void compare_weight(struct golden *t, const struct wf_value *named, const struct wf_value *v,
                           const char *prefix)
{
    const struct wf_view view = wf_run_view(t->run, v);
    const float *const want = read_all(t, prefix, named->name);
    const int32_t *const pick = read_all(t, "pick.", named->name);
    const int64_t count = find(t, "pick.", named->name)->count;
    double norm = 0;
    float *const mine = wf_arena_array(&t->arena, wf_shape_count(v->shape), float);
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        mine[outside(v, c.at)] = (float)wf_view_at(&view, c.at);
        norm += pow(wf_view_at(&view, c.at), 2);
    }
    const double close = 1e-4 * (double)want[0];
    if (!(fabs(sqrt(norm) - (double)want[0]) <= close))
        fail_msg("%s%s: norm %g, wanted %g", prefix, named->name, sqrt(norm), (double)want[0]);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)mine[pick[i]] - (double)want[1 + i]) <= close))
            fail_msg("%s%s[%d]: %g, wanted %g, of a norm of %g", prefix, named->name, pick[i],
                     (double)mine[pick[i]], (double)want[1 + i], (double)want[0]);
}

static void compare(struct golden *t)
{
    struct wf_err err = { 0 };
    const struct wf_graph *const g = t->net.graph;
    const float *const loss = read_all(t, "", "loss"), *const pred = read_all(t, "", "pred");
    double mine = 0, off = 0, norm = 0;
    assert_true(wf_run_get_number(t->run, t->net.loss, 0, &mine, &err));
    if (!(fabs(mine - (double)*loss) <= 1e-5 * fabs((double)*loss)))
        fail_msg("loss %.9g, wanted %.9g", mine, (double)*loss);
    const struct wf_view view = wf_run_view(t->run, t->net.logits);
    const int64_t width = t->net.logits->shape.at[WF_C];
    for (int64_t i = 0; i < t->n * width; i++) {
        const double want = (double)pred[t->order[i / width] * width + i % width];
        off += pow(wf_view_get(&view, i / width, 0, 0, 0, i % width) - want, 2);
        norm += want * want;
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(norm)))
        fail_msg("prediction off by %.2g", sqrt(off / norm));
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if (v->grad)
            compare_weight(t, v, v->grad, "grad.");
    }
    for (size_t i = 0; i < g->n_updates; i++)
        compare_weight(t, g->updates[i].state, g->updates[i].next, "state.");
}

static void check(const char *file, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    struct golden t = { 0 };
    t.file = wf_safetensors_open(file, &err);
    if (!t.file)
        fail_msg("%s", err.text);
    struct wf_network_config c = {
        .model = wf_model_find(wf_safetensors_metadata(t.file, "model"), &err),
        .config = { .in = 3, .classes = atoi(wf_safetensors_metadata(t.file, "classes")) },
        .losses = WF_LOSS_CE,
        .has_ignore = true,
        .ignore = -1
    };
    t.n = find(&t, "", "coords")->shape[0];
    t.order = wf_arena_array(&t.arena, t.n, int64_t);
    wf_coords_sort(read_all(&t, "", "coords"), t.n, 3, t.order);
    const struct wf_mesh one = wf_mesh_one();
    struct wf_comm *const comm = wf_comm_self();
    if (!wf_model_resolve(c.model, &c.config, &err) ||
        !wf_network_build(&t.net, &c, WF_SHAPE(t.n + 5, 1, 1, 1, 3), true, &err))
        fail_msg("%s", err.text);
    struct wf_global_plan *const global = wf_global_plan_new(
        t.net.graph, &one, &(struct wf_plan_options){ .device = device, .threads = 2 }, &err);
    struct wf_plan *const plan = global ? wf_plan_new(global, 0, &err) : NULL;
    t.run = plan ? wf_run_new(plan, comm, 1, &err) : NULL;
    if (!t.run)
        fail_msg("%s", err.text);
    fill(&t);
    if (!wf_run_step(t.run, &err))
        fail_msg("%s", err.text);
    compare(&t);
    wf_run_free(t.run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(t.net.graph);
    wf_comm_free(comm);
    wf_safetensors_free(t.file);
    wf_arena_release(&t.arena);
}

static void minkunet14__makes_the_step_of_minkowski_engine(void **state)
{
    check(GOLDEN "minkunet14.safetensors", &wf_device_cpu);
}

static void minkunet34c__makes_the_step_of_minkowski_engine(void **state)
{
    check(GOLDEN "minkunet34c.safetensors", &wf_device_cpu);
}

static void minkunet14__makes_it_with_reference_kernels(void **state)
{
    check(GOLDEN "minkunet14.safetensors", &wf_device_reference);
}

static void minkunet34c__makes_it_with_reference_kernels(void **state)
{
    check(GOLDEN "minkunet34c.safetensors", &wf_device_reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minkunet14__makes_the_step_of_minkowski_engine),
        cmocka_unit_test(minkunet34c__makes_the_step_of_minkowski_engine),
        cmocka_unit_test(minkunet14__makes_it_with_reference_kernels),
        cmocka_unit_test(minkunet34c__makes_it_with_reference_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
