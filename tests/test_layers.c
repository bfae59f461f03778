/*
 * Layers of network files against PyTorch: results and gradients of tests/parity/layers.safetensors, which
 * make_layers.py made in double precision and describes. Reference kernels run here, in f64; every other kernel is
 * compared with them elsewhere.
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

#include "ckpt/safetensors.h"
#include "net/net.h"
#include "ops/build.h"
#include "support.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/layers.safetensors"

enum { NAME = 256 };

struct layers {
    struct wf_safetensors *file;
    const char *name; /* of the case */
    struct wf_graph *g;
    struct support_values values;
    int64_t compared;
};

/* As make_layers.py's numbers(). */
static double number(int64_t i, double step, double start, double scale, double offset)
{
    const double at = start + (double)i * step;
    return scale * (at - floor(at)) + offset;
}

/* In PyTorch's order [N, C, D, H, W]. */
static int64_t place(const struct wf_shape *s, const int64_t at[WF_AXES])
{
    int64_t index = at[WF_N] * s->at[WF_C] + at[WF_C];
    for (int a = WF_D; a <= WF_W; a++)
        index = index * s->at[a] + at[a];
    return index;
}

static void fill(const struct layers *t, const struct wf_value *v, double step, double start,
                 double scale, double offset)
{
    const struct wf_view *const view = &t->values.views[v->id];
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
        wf_view_set(view, c.at, number(place(&v->shape, c.at), step, start, scale, offset));
}

static void compare(struct layers *t, const struct wf_value *v, const char *what)
{
    char name[NAME];
    struct wf_err err = { 0 };
    (void)snprintf(name, sizeof name, "%s.%s", t->name, what);
    const struct wf_safetensor *const want = wf_safetensors_find(t->file, name);
    if (!v || !want || want->count != wf_shape_count(v->shape)) {
        fail_msg("%s: %lld elements, not %lld", name, v ? (long long)wf_shape_count(v->shape) : -1,
                 want ? (long long)want->count : -1);
        return;
    }
    float *const numbers = calloc((size_t)want->count, sizeof *numbers);
    assert_non_null(numbers);
    if (!wf_safetensors_read(t->file, want, WF_F32, numbers, &err))
        fail_msg("%s", err.text);
    const struct wf_view *const view = &t->values.views[v->id];
    double off = 0, norm = 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        const double theirs = (double)numbers[place(&v->shape, c.at)];
        off += pow(wf_view_at(view, c.at) - theirs, 2);
        norm += theirs * theirs;
    }
    free(numbers);
    /* Theirs is rounded to f32 in the file, ours where a gradient is that of an f32 weight. */
    if (!(sqrt(off) <= 2e-7 * sqrt(norm)) || norm == 0)
        fail_msg("%s: off by %g of %g", name, sqrt(off), sqrt(norm));
    t->compared++;
}

static struct wf_shape shape_of(const struct layers *t)
{
    char key[NAME];
    long long at[5];
    (void)snprintf(key, sizeof key, "shape.%s", t->name);
    const char *const text = wf_safetensors_metadata(t->file, key);
    assert_non_null(text);
    const int n = sscanf(text, "%lld %lld %lld %lld %lld", &at[0], &at[1], &at[2], &at[3], &at[4]);
    assert_true(n >= 3);
    struct wf_shape shape = WF_SHAPE(at[0], 1, 1, 1, at[1]);
    for (int i = 2; i < n; i++)
        shape.at[WF_C - n + i] = at[i];
    return shape;
}

static void check_case(struct layers *t)
{
    char key[NAME];
    struct wf_err err = { 0 };
    (void)snprintf(key, sizeof key, "net.%s", t->name);
    const char *const text = wf_safetensors_metadata(t->file, key);
    struct wf_net *const net = text ? wf_net_parse(text, t->name, &err) : NULL;
    if (!net) {
        fail_msg("%s: %s", t->name, err.text);
        return;
    }
    t->g = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = WF_F64 });
    struct wf_value *const x = wf_input(t->g, "image", WF_F64, shape_of(t));
    struct wf_value *const y = wf_net_build(t->g, net, x, NULL), *dx = NULL;
    struct wf_value *const dy = y ? wf_input(t->g, "dy", y->dtype, y->shape) : NULL;
    if (!dy || !wf_graph_grad(t->g, y, dy, 1, &x, &dx, &err)) {
        (void)wf_graph_ok(t->g, &err);
        fail_msg("%s: %s", t->name, err.text);
        return;
    }
    t->values = support_values_new(t->g);
    fill(t, x, 0.6180339887498949, 0.1, 5.0, -2.5);
    fill(t, dy, 0.7548776662466927, 0.3, 1.0, -0.5);
    for (size_t i = 0; i < t->g->n_values; i++)
        if (t->g->values[i]->kind == WF_PARAM)
            fill(t, t->g->values[i], 0.5698402909980532, 0.2, 1.0, 0.1);
    support_run_reference(t->g, &t->values, true);
    compare(t, y, "y");
    compare(t, dx, "dx");
    for (size_t i = 0; i < t->g->n_values; i++)
        if (t->g->values[i]->kind == WF_PARAM) {
            (void)snprintf(key, sizeof key, "grad.%s", t->g->values[i]->name);
            compare(t, t->g->values[i]->grad, key);
        }
    support_values_free(&t->values);
    wf_graph_free(t->g);
    wf_net_free(net);
}

static void layers__equal_pytorch_in_f64(void **state)
{
    struct wf_err err = { 0 };
    struct layers t = { .file = wf_safetensors_open(GOLDEN, &err) };
    if (!t.file)
        fail_msg("%s", err.text);
    char names[4096], *rest = names;
    const char *const list = wf_safetensors_metadata(t.file, "cases");
    assert_non_null(list);
    (void)snprintf(names, sizeof names, "%s", list);
    while ((t.name = strtok_r(rest, " ", &rest)))
        check_case(&t);
    assert_int_equal(t.compared, wf_safetensors_count(t.file));
    wf_safetensors_free(t.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers__equal_pytorch_in_f64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
