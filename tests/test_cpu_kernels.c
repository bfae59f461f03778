/*
 * Every CPU kernel against the reference kernel of its operator: on the operators' own cases and on
 * larger ones, whole and on parts, in packed memory, inside larger buffers and with permuted axes,
 * in place, on one and on two threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "device/device.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "support.h"

enum layout { PACKED, INSIDE /* a larger buffer */, PERMUTED /* channels first */, LAYOUTS };
enum { MAX_VIEWS = 8 };

/* A view of `box` in memory of its own, with a guard of known bytes wherever the box is not. */
struct guarded {
    struct wf_view view;
    struct wf_view all; /* the view and its guard */
};

static struct guarded guarded_new(enum wf_dtype dtype, struct wf_region box, enum layout layout,
                                  int fill)
{
    static const int orders[LAYOUTS][WF_AXES] = {
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_C, WF_D, WF_H, WF_W },
    };
    struct wf_region around = box;
    if (wf_region_is_empty(box))
        around = wf_shape_region(WF_SHAPE(1, 1, 1, 1, 1));
    for (int a = 0; a < WF_AXES && layout != PACKED; a++) {
        around.lo[a] -= a == WF_W || a == WF_C;
        around.hi[a] += a == WF_C ? 2 : 1;
    }
    struct guarded m = { 0 };
    const size_t bytes = (size_t)wf_region_count(around) * wf_dtype_size(dtype);
    void *data = malloc(bytes);
    assert_non_null(data);
    memset(data, fill, bytes);
    m.all = wf_view_dense(data, dtype, around);
    int64_t stride = 1;
    for (int k = WF_AXES - 1; k >= 0; k--) {
        const int a = orders[layout][k];
        m.all.stride[a] = stride;
        stride *= around.hi[a] - around.lo[a];
    }
    m.view = m.all;
    if (wf_region_is_empty(box))
        m.view.box = box;
    else
        m.view = wf_view_part(m.all, box);
    return m;
}

static void guarded_free(struct guarded *m)
{
    free(m->all.data);
}

static bool inside(struct wf_region r, const int64_t at[WF_AXES])
{
    for (int a = 0; a < WF_AXES; a++)
        if (at[a] < r.lo[a] || at[a] >= r.hi[a])
            return false;
    return true;
}

/* One run of a node. */
struct trial {
    const struct wf_node *node;
    const struct wf_kernel *kernel;
    const struct support_values *values;
    struct wf_region work;
    enum layout layout;
    int alias; /* in[alias] is also out[0]; -1: none */
    struct guarded in[MAX_VIEWS], out[MAX_VIEWS];
};

static void trial_init(struct trial *t)
{
    const struct wf_node *node = t->node;
    assert_true(node->n_in <= MAX_VIEWS && node->n_out <= MAX_VIEWS);
    for (int i = 0; i < node->n_in; i++) {
        t->in[i] = (struct guarded){ 0 };
        if (!node->in[i])
            continue;
        const struct wf_view *from = &t->values->views[node->in[i]->id];
        const struct wf_region box = wf_region_intersect(wf_op_reads(node, i, t->work), from->box);
        t->in[i] = guarded_new(from->dtype, box, t->layout, 0xff); /* NaN around it */
        if (!wf_region_is_empty(box)) {
            const struct wf_view part = wf_view_part(*from, box);
            wf_view_copy(&t->in[i].view, &part);
        }
    }
    for (int o = 0; o < node->n_out; o++) {
        const bool whole = wf_op_sums_over(node) || node->out[o]->everywhere;
        const struct wf_region box = whole ? wf_shape_region(node->out[o]->shape) : t->work;
        t->out[o] = guarded_new(node->out[o]->dtype, box, t->layout, 0x3a);
    }
}

static void trial_release(struct trial *t)
{
    for (int i = 0; i < t->node->n_in; i++)
        guarded_free(&t->in[i]);
    for (int o = 0; o < t->node->n_out; o++)
        guarded_free(&t->out[o]);
}

static void trial_run(const struct trial *t, const struct wf_kernel *kernel)
{
    struct wf_view in[MAX_VIEWS] = { 0 }, out[MAX_VIEWS] = { 0 };
    struct wf_view no_in[MAX_VIEWS] = { 0 }, no_out[MAX_VIEWS] = { 0 };
    for (int i = 0; i < t->node->n_in; i++)
        in[i] = no_in[i] = t->in[i].view;
    for (int o = 0; o < t->node->n_out; o++)
        out[o] = no_out[o] = t->out[o].view;
    if (t->alias >= 0)
        out[0] = no_out[0] = in[t->alias];
    for (int i = 0; i < MAX_VIEWS; i++)
        no_in[i].data = no_out[i].data = NULL;
    struct wf_prepare p = {
        .node = t->node, .work = t->work, .in = no_in, .out = no_out, .threads = 2
    };
    struct wf_err err = { 0 };
    if (kernel->prepare && !kernel->prepare(&p, &err))
        fail_msg("%s: %s", t->node->op->name, err.text);
    void *scratch = malloc(p.scratch_bytes + 1);
    assert_non_null(scratch);
    memset(scratch, 0xff, p.scratch_bytes);
    kernel->run(&(struct wf_call){ .node = t->node,
                                   .work = t->work,
                                   .in = in,
                                   .out = out,
                                   .scratch = scratch,
                                   .prepared = p.prepared,
                                   .seed = 5,
                                   .step = 3 });
    free(scratch);
    if (kernel->release)
        kernel->release(p.prepared);
}

static double tolerance(const struct wf_node *node)
{
    double most = 1e-5;
    for (int o = 0; o < node->n_out; o++)
        if (node->out[o]->dtype == WF_BF16 || node->out[o]->dtype == WF_F16)
            most = 1e-2;
    return most;
}

/* Inside the box the numbers agree, outside of it nothing was written. */
static void compare(const struct trial *t, const struct guarded *got, const struct guarded *want,
                    double tol)
{
    double scale = 1e-30;
    for (struct wf_cursor c = wf_cursor(want->view.box); wf_cursor_next(&c);) {
        const double v = fabs(wf_view_at(&want->view, c.at));
        scale = v > scale ? v : scale;
    }
    const size_t size = wf_dtype_size(got->all.dtype);
    for (struct wf_cursor c = wf_cursor(got->all.box); wf_cursor_next(&c);) {
        const int64_t at = wf_view_offset(&got->all, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
        const char *a = (const char *)got->all.data + at * (int64_t)size;
        const char *b = (const char *)want->all.data + at * (int64_t)size;
        const double x = wf_view_at(&got->all, c.at), y = wf_view_at(&want->all, c.at);
        if (memcmp(a, b, size) == 0 || (isnan(x) && isnan(y)))
            continue;
        const bool close = inside(got->view.box, c.at) && fabs(x - y) <= tol * scale;
        if (!close)
            fail_msg("%s, layout %d, alias %d, at (%d,%d,%d,%d,%d) of [%d,%d,%d,%d,%d): "
                     "%.9g, reference %.9g",
                     t->node->op->name, (int)t->layout, t->alias, (int)c.at[0], (int)c.at[1],
                     (int)c.at[2], (int)c.at[3], (int)c.at[4], (int)got->view.box.hi[0],
                     (int)got->view.box.hi[1], (int)got->view.box.hi[2], (int)got->view.box.hi[3],
                     (int)got->view.box.hi[4], x, y);
    }
}

static void with_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

static void check_trial(struct trial t)
{
    static const double same_bits = 0;
    const struct wf_kernel *reference = wf_device_reference.find(t.node);
    struct trial want = t, one = t, two = t;
    want.alias = -1;
    trial_init(&want);
    trial_run(&want, reference);
    trial_init(&one);
    with_threads(1);
    trial_run(&one, t.kernel);
    trial_init(&two);
    with_threads(2);
    trial_run(&two, t.kernel);
    for (int o = 0; o < t.node->n_out; o++) {
        const struct guarded *a = o == 0 && t.alias >= 0 ? &one.in[t.alias] : &one.out[o];
        const struct guarded *b = o == 0 && t.alias >= 0 ? &two.in[t.alias] : &two.out[o];
        if (t.alias < 0)
            compare(&t, a, &want.out[o], tolerance(t.node));
        compare(&t, b, a, same_bits);
    }
    if (t.alias >= 0) {
        /* The guards differ: compare what is inside. */
        struct guarded got = { .view = one.in[t.alias].view, .all = one.in[t.alias].view };
        struct guarded ref = { .view = want.out[0].view, .all = want.out[0].view };
        compare(&t, &got, &ref, tolerance(t.node));
    }
    trial_release(&want);
    trial_release(&one);
    trial_release(&two);
}

static void check_region(struct trial t)
{
    const struct wf_node *node = t.node;
    for (t.layout = PACKED; t.layout < LAYOUTS; t.layout++) {
        if ((t.kernel->flags & WF_KERNEL_DENSE) && t.layout != PACKED)
            continue;
        t.alias = -1;
        check_trial(t);
        for (int i = 0; i < node->n_in; i++)
            if ((node->op->inplace >> i & 1u) && node->in[i] &&
                node->in[i]->dtype == node->out[0]->dtype &&
                node->in[i]->everywhere == node->out[0]->everywhere &&
                wf_shape_equal(node->in[i]->shape, node->out[0]->shape)) {
                t.alias = i;
                check_trial(t);
            }
    }
}

/* Whole and an inner box; of small images also two parts along each axis, and nothing where that
 * must give zeros. */
static void check_kernel(const struct wf_node *node, const struct wf_kernel *kernel,
                         const struct support_values *values)
{
    struct trial t = { .node = node, .kernel = kernel, .values = values };
    const struct wf_region whole = wf_shape_region(wf_op_domain(node)->shape);
    t.work = whole;
    check_region(t);
    if (wf_op_domain(node)->everywhere)
        return;
    for (int a = 0; a < WF_C; a++) {
        const int64_t extent = whole.hi[a];
        if (extent > 2) {
            t.work.lo[a] = 1;
            t.work.hi[a] = extent - 1;
        }
    }
    check_region(t);
    if (wf_region_count(whole) > 4096)
        return;
    for (int a = 0; a < WF_C; a++) {
        const int64_t extent = whole.hi[a], cut = (extent + 1) / 3;
        if (cut < 1 || cut >= extent)
            continue;
        t.work = whole;
        t.work.hi[a] = cut;
        check_region(t);
        t.work = whole;
        t.work.lo[a] = cut;
        check_region(t);
    }
    t.work = whole;
    t.work.hi[WF_H] = t.work.lo[WF_H];
    if (wf_op_sums_over(node))
        check_region(t);
}

static int check_case(const struct wf_op *op, const struct wf_case *from, enum wf_dtype dtype)
{
    struct support_case c;
    struct wf_err err = { 0 };
    int checked = 0;
    if (!support_case_build(op, from, dtype, &c, &err))
        fail_msg("%s: %s", op->name, err.text);
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, true);
    for (size_t i = 0; i < c.g->n_nodes; i++) {
        const struct wf_node *node = c.g->nodes[i];
        for (const struct wf_kernel *const *k = wf_cpu_kernels; *k; k++)
            if (strcmp((*k)->op, node->op->name) == 0 && (!(*k)->accepts || (*k)->accepts(node))) {
                check_kernel(node, *k, &v);
                checked++;
            }
    }
    support_values_free(&v);
    wf_graph_free(c.g);
    return checked;
}

static void check_cases_of_all_operators(enum wf_dtype dtype)
{
    int checked = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (const struct wf_case *from = (*op)->cases; from && from->kinds; from++)
            checked += check_case(*op, from, dtype);
    assert_true(checked > 100);
}

static void kernels__equal_their_reference_in_f32(void **state)
{
    check_cases_of_all_operators(WF_F32);
}

static void kernels__equal_their_reference_in_bf16(void **state)
{
    check_cases_of_all_operators(WF_BF16);
}

static void kernels__equal_their_reference_in_f16(void **state)
{
    check_cases_of_all_operators(WF_F16);
}

/* --- larger, so that vector loops, several pieces and several chunks are reached --- */

static struct wf_value *build_batch_norm(struct wf_graph *g, struct wf_value *const in[])
{
    return wf_batch_norm(g, in[0], &(struct wf_norm){ .name = "n", .act = WF_RELU });
}

static struct wf_value *build_group_norm(struct wf_graph *g, struct wf_value *const in[])
{
    return wf_group_norm(
        g, in[0],
        &(struct wf_norm){ .name = "n", .groups = 3, .act = WF_LEAKY_RELU, .slope = 0.1 });
}

static struct wf_value *build_cross_entropy(struct wf_graph *g, struct wf_value *const in[])
{
    return wf_cross_entropy(g, in[0], in[1], &(struct wf_loss){ .name = "l" });
}

static struct wf_value *build_dice(struct wf_graph *g, struct wf_value *const in[])
{
    return wf_dice(g, in[0], in[1], &(struct wf_loss){ .name = "l" });
}

/* A shape as an initialiser of static data. */
#define S(...)                                                                                     \
    {                                                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct {
    const char *op;
    struct wf_case from;
} larger[] = {
    { "norm", { NULL, "x", { S(1, 1, 67, 129, 33) }, 0, build_batch_norm } },
    { "norm", { NULL, "x", { S(2, 1, 31, 40, 33) }, 0, build_group_norm } },
    { "norm", { NULL, "x", { S(1, 1, 70, 71, 3) }, 0, build_batch_norm } },
    { "norm", { NULL, "x", { S(2, 1, 3, 2, 1030) }, 0, build_batch_norm } },
    { "maxpool", { "kernel=[1,2,2] stride=[1,2,2]", "x", { S(1, 1, 34, 130, 33) }, 0, NULL } },
    { "maxpool",
      { "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]",
        "x",
        { S(1, 1, 9, 67, 130) },
        0,
        NULL } },
    { "maxpool", { "kernel=[2,2,2] stride=[2,2,2]", "x", { S(1, 4, 6, 6, 1100) }, 0, NULL } },
    { "avgpool",
      { "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
        "x",
        { S(1, 1, 9, 67, 130) },
        0,
        NULL } },
    { "upsample", { "mode=linear extent=[1,24,131]", "x", { S(1, 1, 12, 65, 33) }, 0, NULL } },
    { "upsample", { "mode=linear extent=[1,8,8]", "x", { S(1, 1, 4, 4, 1030) }, 0, NULL } },
    { "upsample", { "mode=nearest extent=[2,24,130]", "x", { S(1, 1, 12, 65, 33) }, 0, NULL } },
    { "upsample", { "mode=linear_corners extent=[1,5,300]", "x", { S(1, 1, 3, 3, 40) }, 0, NULL } },
    { "upsample", { "mode=linear extent=[1,5,30]", "x", { S(1, 1, 9, 400, 9) }, 0, NULL } },
    { "concat",
      { "", "xxx", { S(1, 1, 30, 41, 7), S(1, 1, 30, 41, 32), S(1, 1, 30, 41, 1) }, 0, NULL } },
    { "add", { "", "xx", { S(1, 1, 37, 41, 33), S(1, 1, 37, 41, 33) }, 0, NULL } },
    { "act", { "act=tanh", "x", { S(1, 1, 37, 41, 7) }, 0, NULL } },
    { "act", { "act=sigmoid", "x", { S(1, 1, 1, 1, 9000) }, 0, NULL } },
    { "softmax", { "", "x", { S(1, 1, 17, 41, 21) }, 0, NULL } },
    { "layernorm",
      { "eps=1e-5",
        "xpp",
        { S(1, 1, 17, 41, 96), S(1, 1, 1, 1, 96), S(1, 1, 1, 1, 96) },
        0,
        NULL } },
    { "ce", { NULL, "xt", { S(1, 1, 67, 129, 5), S(1, 1, 67, 129, 1) }, 5, build_cross_entropy } },
    { "dice", { NULL, "xt", { S(1, 1, 67, 129, 3), S(1, 1, 67, 129, 1) }, 3, build_dice } },
    { "mse", { "", "xX", { S(1, 1, 37, 41, 33), S(1, 1, 37, 41, 33) }, 0, NULL } },
    { "bce", { "", "xb", { S(1, 1, 37, 41, 3), S(1, 1, 37, 41, 3) }, 0, NULL } },
    { "dropout", { "p=0.3 stream=9", "x", { S(1, 1, 37, 41, 9) }, 0, NULL } },
    { "pad", { "lo=[0,0,2,-3,0] hi=[0,0,-1,5,3]", "x", { S(1, 1, 37, 41, 9) }, 0, NULL } },
    { "global_pool", { "factor=0.5", "x", { S(2, 1, 37, 41, 33) }, 0, NULL } },
    /* Small maps of many channels: windows mostly in the padding, strided, deep. */
    { "conv",
      { "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        "xpp",
        { S(19, 1, 2, 2, 20), S(17, 1, 3, 3, 20), S(1, 1, 1, 1, 17) },
        0,
        NULL } },
    { "conv",
      { "stride=[1,2,2] dilation=[1,2,1] pad_lo=[0,2,2] pad_hi=[0,1,2] groups=1",
        "xpp",
        { S(17, 1, 6, 7, 16), S(24, 1, 3, 5, 16), S(1, 1, 1, 1, 24) },
        0,
        NULL } },
    { "conv",
      { "stride=[1,1,1] dilation=[1,1,1] pad_lo=[1,1,1] pad_hi=[1,1,1] groups=1",
        "xpp",
        { S(16, 2, 3, 2, 18), S(16, 3, 3, 3, 18), S(1, 1, 1, 1, 16) },
        0,
        NULL } },
};

static void kernels__equal_their_reference_on_larger_images(void **state)
{
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        const struct wf_op *op = wf_op_find(larger[i].op);
        assert_non_null(op);
        assert_true(check_case(op, &larger[i].from, WF_F32) > 0);
        assert_true(check_case(op, &larger[i].from, WF_BF16) > 0);
    }
}

/* The variance of 1e4 + noise of 0.01: sums in f32, or not shifted, would lose it. */
static void moments__keep_a_small_deviation_from_a_large_mean(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    const struct wf_shape shape = WF_SHAPE(1, 1, 64, 128, 5);
    struct wf_value *x = wf_input(g, "x", WF_F32, shape);
    const struct wf_norm_attrs attrs = { .groups = 5, .count = 64 * 128 };
    const struct wf_node *node = wf_node_add(g, wf_op_find("moments"), "m", &attrs, 1, &x);
    assert_true(wf_graph_ok(g, &err));
    struct support_values v = support_values_new(g);
    const struct wf_view *view = &v.views[x->id];
    support_fill_random(view, 3, 4);
    double exact = 0, mean = 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        wf_view_set(view, c.at, 1e4 + 0.01 * wf_view_at(view, c.at));
        mean += c.at[WF_C] == 2 ? wf_view_at(view, c.at) / (64 * 128) : 0;
    }
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
        exact += c.at[WF_C] == 2 ? pow(wf_view_at(view, c.at) - mean, 2) / (64 * 128) : 0;
    const struct wf_kernel *kernel = wf_device_cpu.find(node);
    assert_false(wf_kernel_is_reference(kernel));
    struct trial t = { .node = node, .values = &v, .work = wf_shape_region(shape), .alias = -1 };
    trial_init(&t);
    trial_run(&t, kernel);
    const double sum = wf_view_get(&t.out[0].view, 0, 0, 0, 0, 2) / (64 * 128);
    const double square = wf_view_get(&t.out[0].view, 0, 0, 0, 0, 5 + 2) / (64 * 128);
    assert_true(fabs((square - sum * sum) / exact - 1) < 1e-3);
    trial_release(&t);
    support_values_free(&v);
    wf_graph_free(g);
}

/* Our own exp() has a shorter range: far out and near zero the activations still agree, and NaN is
 * seen. */
static void activations__agree_at_the_ends_of_the_range(void **state)
{
    static const double at[] = {
        -3e38, -200, -90, -87.4, -20,  -0.626, -0.624, -1e-3, -1e-30, 0,
        1e-30, 1e-3, 0.6, 0.63,  17.5, 87.4,   88.5,   200,   3e38,   NAN
    };
    enum { COUNT = sizeof at / sizeof *at };
    static const enum wf_act acts[] = { WF_LEAKY_RELU, WF_SIGMOID, WF_TANH, WF_SILU, WF_GELU };
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++) {
        struct wf_err err = { 0 };
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(COUNT, 1, 1, 1, 1));
        const struct wf_value *y = wf_activation(g, x, "a", acts[k], 0.1);
        assert_true(wf_graph_ok(g, &err));
        struct support_values v = support_values_new(g);
        for (int64_t i = 0; i < COUNT; i++)
            wf_view_put(&v.views[x->id], i, 0, 0, 0, 0, at[i]);
        /* One sample at a time: the largest number must not hide the small ones. */
        for (int64_t i = 0; i < COUNT; i++) {
            struct trial t = { .node = y->producer, .values = &v, .alias = -1 };
            t.kernel = wf_device_cpu.find(t.node);
            t.work = (struct wf_region){ { i, 0, 0, 0, 0 }, { i + 1, 1, 1, 1, 1 } };
            struct trial want = t;
            trial_init(&t);
            trial_run(&t, t.kernel);
            trial_init(&want);
            want.node->op->reference(&(struct wf_call){
                .node = t.node, .work = t.work, .in = &t.in[0].view, .out = &want.out[0].view });
            const double got = wf_view_get(&t.out[0].view, i, 0, 0, 0, 0);
            const double right = wf_view_get(&want.out[0].view, i, 0, 0, 0, 0);
            if (!(fabs(got - right) <= 1e-6 * fabs(right) + 1e-35) && !(isnan(got) && isnan(right)))
                fail_msg("activation %d of %g: %.9g, not %.9g", (int)acts[k], at[i], got, right);
            trial_release(&t);
            trial_release(&want);
        }
        support_values_free(&v);
        wf_graph_free(g);
    }
}

/* --- the device --- */

static void alloc__gives_aligned_zeroed_memory_of_any_size(void **state)
{
    static const size_t sizes[] = { 0, 1, 63, 4096, (4u << 20) - 1, 4u << 20, 9u << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = wf_device_cpu.alloc(NULL, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k += 997)
            assert_int_equal(p[k], 0);
        wf_device_cpu.free(NULL, p, sizes[i]);
    }
}

static void alloc__says_when_there_is_no_memory(void **state)
{
    assert_null(wf_device_cpu.alloc(NULL, SIZE_MAX));
    assert_null(wf_device_cpu.alloc(NULL, SIZE_MAX / 2));
}

static void copy__moves_a_box_between_strided_buffers(void **state)
{
    const struct wf_region box = { { 0, 0, 3, 5, 0 }, { 2, 1, 40, 61, 7 } };
    for (int from = PACKED; from < LAYOUTS; from++)
        for (int to = PACKED; to < LAYOUTS; to++) {
            struct guarded a = guarded_new(WF_F32, box, (enum layout)from, 0xff);
            struct guarded b = guarded_new(WF_F32, box, (enum layout)to, 0x11);
            support_fill_random(&a.view, 1, 2);
            wf_device_cpu.copy(NULL, &b.view, &a.view);
            for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
                assert_true(wf_view_at(&a.view, c.at) == wf_view_at(&b.view, c.at));
            guarded_free(&a);
            guarded_free(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels__equal_their_reference_in_f32),
        cmocka_unit_test(kernels__equal_their_reference_in_bf16),
        cmocka_unit_test(kernels__equal_their_reference_in_f16),
        cmocka_unit_test(kernels__equal_their_reference_on_larger_images),
        cmocka_unit_test(moments__keep_a_small_deviation_from_a_large_mean),
        cmocka_unit_test(activations__agree_at_the_ends_of_the_range),
        cmocka_unit_test(alloc__gives_aligned_zeroed_memory_of_any_size),
        cmocka_unit_test(alloc__says_when_there_is_no_memory),
        cmocka_unit_test(copy__moves_a_box_between_strided_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
