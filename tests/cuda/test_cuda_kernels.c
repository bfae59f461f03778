/*
 * Every CUDA kernel against the reference kernel of its operator: on the operators' own cases and on
 * larger ones, whole and on parts, in packed memory, inside larger buffers with and without the
 * alignment that wide accesses need, with permuted axes, in place. Each runs twice, the second time
 * with blocks and threads in the opposite order and without tickets: the bits must be the same.
 *
 * Built twice: with the kernels emulated on the host, and with those of the library for a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels.h"
#include "device/device.h"
#include "gpu.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "support.h"

extern const struct wf_kernel *const wf_cuda_own_kernels[]; /* ends with NULL; made by the build */

enum layout {
    PACKED,
    ALIGNED,  /* inside a larger buffer, whole vectors apart */
    INSIDE,   /* inside a larger buffer, anywhere */
    PERMUTED, /* channels first */
    LAYOUTS
};
enum { MAX_VIEWS = 8 };

/* A view of `box` on the host, with a guard of known bytes around it, and the same on the GPU. */
struct guarded {
    struct wf_view view, all; /* all: the view and its guard */
    size_t bytes;
    void *gpu;
};

static struct guarded guarded_new(enum wf_dtype dtype, struct wf_region box, enum layout layout,
                                  int fill)
{
    static const int orders[LAYOUTS][WF_AXES] = {
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_C, WF_D, WF_H, WF_W },
    };
    struct wf_region around = box;
    if (wf_region_is_empty(box))
        around = wf_shape_region(WF_SHAPE(1, 1, 1, 1, 1));
    for (int a = 0; a < WF_AXES && layout != PACKED; a++) {
        const int more = layout == ALIGNED && a == WF_C ? 8 : 1;
        around.lo[a] -= a == WF_W || a == WF_C ? more : 0;
        around.hi[a] += a == WF_C && layout != ALIGNED ? 2 : more;
    }
    struct guarded m = { .bytes = (size_t)wf_region_count(around) * wf_dtype_size(dtype) };
    void *const data = malloc(m.bytes);
    assert_non_null(data);
    memset(data, fill, m.bytes);
    m.gpu = gpu_alloc(m.bytes);
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
    if (!m->all.data)
        return;
    free(m->all.data);
    gpu_free(m->gpu);
}

/* The view in the GPU's memory. */
static struct wf_view on_gpu(const struct guarded *m)
{
    struct wf_view v = m->view;
    if (m->all.data)
        v.data = (char *)m->gpu + ((char *)v.data - (char *)m->all.data);
    return v;
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
    const struct wf_kernel *kernel; /* NULL: the reference */
    const struct support_values *values;
    struct wf_region work;
    enum layout layout;
    int alias; /* in[alias] is also out[0]; -1: none */
    bool other_way;
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

static void run_reference(const struct trial *t)
{
    struct wf_view in[MAX_VIEWS] = { 0 }, out[MAX_VIEWS] = { 0 };
    for (int i = 0; i < t->node->n_in; i++)
        in[i] = t->in[i].view;
    for (int o = 0; o < t->node->n_out; o++)
        out[o] = t->out[o].view;
    t->node->op->reference(&(struct wf_call){
        .node = t->node, .work = t->work, .in = in, .out = out, .seed = 5, .step = 3 });
}

static void run_kernel(const struct trial *t)
{
    struct wf_view in[MAX_VIEWS] = { 0 }, out[MAX_VIEWS] = { 0 };
    struct wf_view no_in[MAX_VIEWS] = { 0 }, no_out[MAX_VIEWS] = { 0 };
    for (int i = 0; i < t->node->n_in; i++) {
        no_in[i] = in[i] = on_gpu(&t->in[i]);
        if (t->in[i].gpu)
            gpu_put(t->in[i].gpu, t->in[i].all.data, t->in[i].bytes);
    }
    for (int o = 0; o < t->node->n_out; o++) {
        no_out[o] = out[o] = on_gpu(&t->out[o]);
        gpu_put(t->out[o].gpu, t->out[o].all.data, t->out[o].bytes);
    }
    if (t->alias >= 0)
        out[0] = no_out[0] = in[t->alias];
    for (int i = 0; i < MAX_VIEWS; i++)
        no_in[i].data = no_out[i].data = NULL;
    struct wf_prepare p = {
        .node = t->node,
        .work = t->work,
        .in = no_in,
        .out = no_out,
        .threads = 1,
        .context = gpu_context(),
    };
    struct wf_err err = { 0 };
    if (t->kernel->prepare && !t->kernel->prepare(&p, &err))
        fail_msg("%s: %s", t->node->op->name, err.text);
    void *const scratch = gpu_alloc(p.scratch_bytes), *const junk = malloc(p.scratch_bytes + 1);
    assert_non_null(junk);
    memset(junk, 0xff, p.scratch_bytes);
    gpu_put(scratch, junk, p.scratch_bytes);
    gpu_turn(t->other_way);
    t->kernel->run(&(struct wf_call){ .node = t->node,
                                      .work = t->work,
                                      .in = in,
                                      .out = out,
                                      .scratch = scratch,
                                      .prepared = p.prepared,
                                      .seed = 5,
                                      .step = 3,
                                      .context = gpu_context() });
    if (!gpu_finish())
        fail_msg("%s: the GPU reports an error", t->node->op->name);
    for (int i = 0; i < t->node->n_in; i++)
        if (t->in[i].gpu)
            gpu_get(t->in[i].all.data, t->in[i].gpu, t->in[i].bytes);
    for (int o = 0; o < t->node->n_out; o++)
        gpu_get(t->out[o].all.data, t->out[o].gpu, t->out[o].bytes);
    gpu_free(scratch);
    free(junk);
    if (t->kernel->release)
        t->kernel->release(p.prepared);
}

/* For tools under which a kernel takes a hundred times as long: our own kernels, every operator, case and
 * type, but each once: whole in packed memory, an inner box inside a larger buffer, and of the nodes
 * that a case's gradient adds only those whose operators have no cases of their own. */
static bool is_short(void)
{
    return getenv("WF_TEST_SHORT") != NULL;
}

/* The planner gives such a kernel packed boxes only, and always some work. */
static bool wants_packed(const struct wf_kernel *kernel)
{
    return (kernel->flags & WF_KERNEL_DENSE) != 0;
}

/* What an element may be off: so much of itself, and so much of the largest one. */
struct bound {
    double of_itself, of_largest;
};

static bool is_16_bits(const struct wf_value *value)
{
    return value && (value->dtype == WF_BF16 || value->dtype == WF_F16);
}

/* Our own kernels of f32 images compute in f64, as the reference does, and round once: what is left is
 * the last bit, where the order of an f64 sum turned it. A whole step then has the reference's
 * gradients, because no ReLU turns. */
static struct bound tolerance(const struct trial *t)
{
    const struct wf_node *const node = t->node;
    bool reads_16 = false, writes_16 = false;
    for (int i = 0; i < node->n_in; i++)
        reads_16 = reads_16 || is_16_bits(node->in[i]);
    for (int o = 0; o < node->n_out; o++)
        writes_16 = writes_16 || is_16_bits(node->out[o]);
    /* cuDNN makes weight gradients of 16-bit images in 16 bits. */
    if (writes_16 || (wants_packed(t->kernel) && reads_16))
        return (struct bound){ .of_largest = 1e-2 };
    if (reads_16 || wants_packed(t->kernel))
        return (struct bound){ .of_largest = 1e-5 };
    return (struct bound){ .of_itself = 0x1p-23, .of_largest = 1e-12 };
}

/* Inside the box the numbers agree, outside of it nothing was written. */
static void compare(const struct trial *t, const struct guarded *got, const struct guarded *want,
                    struct bound tol)
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
        if (!inside(got->view.box, c.at) ||
            !(fabs(x - y) <= tol.of_itself * fabs(y) + tol.of_largest * scale))
            fail_msg(
                "%s (%s), layout %d, alias %d, tolerance %g of itself and %g of the largest, at (%d,%d,%d,%d,%d) of "
                "[%d,%d,%d,%d,%d): %.9g, wanted %.9g",
                t->node->op->name, wf_dtype_name(got->all.dtype), (int)t->layout, t->alias,
                tol.of_itself, tol.of_largest, (int)c.at[0], (int)c.at[1], (int)c.at[2],
                (int)c.at[3], (int)c.at[4], (int)got->view.box.hi[0], (int)got->view.box.hi[1],
                (int)got->view.box.hi[2], (int)got->view.box.hi[3], (int)got->view.box.hi[4], x, y);
    }
}

static void check_trial(struct trial t)
{
    static const struct bound same_bits = { 0 };
    struct trial want = t, one = t, two = t;
    want.alias = -1;
    two.other_way = true;
    trial_init(&want);
    run_reference(&want);
    trial_init(&one);
    run_kernel(&one);
    trial_init(&two);
    run_kernel(&two);
    for (int o = 0; o < t.node->n_out; o++) {
        const struct guarded *a = o == 0 && t.alias >= 0 ? &one.in[t.alias] : &one.out[o];
        const struct guarded *b = o == 0 && t.alias >= 0 ? &two.in[t.alias] : &two.out[o];
        if (t.alias < 0)
            compare(&t, a, &want.out[o], tolerance(&t));
        compare(&t, b, a, same_bits);
    }
    if (t.alias >= 0) {
        /* The guards differ: compare what is inside. */
        struct guarded got = { .view = one.in[t.alias].view, .all = one.in[t.alias].view };
        struct guarded ref = { .view = want.out[0].view, .all = want.out[0].view };
        compare(&t, &got, &ref, tolerance(&t));
    }
    trial_release(&want);
    trial_release(&one);
    trial_release(&two);
}

static void check_region(struct trial t)
{
    const struct wf_node *node = t.node;
    const enum layout end = wants_packed(t.kernel) ? PACKED + 1 : LAYOUTS;
    const bool whole = wf_region_equal(t.work, wf_shape_region(wf_op_domain(node)->shape));
    for (t.layout = PACKED; t.layout < end; t.layout++) {
        if (is_short() && t.layout != (whole ? PACKED : INSIDE))
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

/* Whole and an inner box; of small images also two parts along an axis, some of the channels where
 * the operator lets them be cut, and nothing where that must give zeros. */
static void check_kernel(const struct wf_node *node, const struct wf_kernel *kernel,
                         const struct support_values *values)
{
    struct trial t = { .node = node, .kernel = kernel, .values = values };
    const struct wf_region whole = wf_shape_region(wf_op_domain(node)->shape);
    t.work = whole;
    check_region(t);
    if (wf_op_domain(node)->everywhere)
        return;
    for (int a = 0; a < WF_C; a++)
        if (whole.hi[a] > 2) {
            t.work.lo[a] = 1;
            t.work.hi[a] = whole.hi[a] - 1;
        }
    check_region(t);
    /* f16 differs from bf16 in how elements are read and written, not in where. */
    if (wf_region_count(whole) > 4096 || wf_op_domain(node)->dtype == WF_F16 || is_short())
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
    if (wf_op_sums_over(node) && !wants_packed(kernel))
        check_region(t);
}

static bool is_for(const struct wf_kernel *kernel, const struct wf_node *node)
{
    return strcmp(kernel->op, node->op->name) == 0 && (!kernel->accepts || kernel->accepts(node));
}

/* All kernels that take the node. */
static void check_kernels(const struct wf_node *node, const struct support_values *values)
{
    bool any = false;
    for (const struct wf_kernel *const *k = wf_cuda_own_kernels; *k; k++)
        if (is_for(*k, node) && !(is_short() && wants_packed(*k))) {
            check_kernel(node, *k, values);
            any = true;
        }
    if (!any)
        fail_msg("a node '%s' has no kernel", node->op->name);
}

static void check_case(const struct wf_op *op, const struct wf_case *from, enum wf_dtype dtype)
{
    struct support_case c;
    struct wf_err err = { 0 };
    if (!support_case_build(op, from, dtype, &c, &err))
        fail_msg("%s: %s", op->name, err.text);
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, true);
    for (size_t i = 0; i < c.g->n_nodes; i++)
        if (!is_short() || c.g->nodes[i]->op == op || !c.g->nodes[i]->op->cases)
            check_kernels(c.g->nodes[i], &v);
    support_values_free(&v);
    wf_graph_free(c.g);
}

static void check_cases_of_all_operators(enum wf_dtype dtype)
{
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (const struct wf_case *from = (*op)->cases; from && from->kinds; from++)
            check_case(*op, from, dtype);
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

/* --- larger: wide accesses, several blocks, many channels --- */

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
    { "norm", { NULL, "x", { S(1, 1, 21, 40, 64) }, 0, build_batch_norm } },
    { "norm", { NULL, "x", { S(1, 1, 9, 17, 24) }, 0, build_batch_norm } },
    { "norm", { NULL, "x", { S(2, 1, 5, 7, 264) }, 0, build_batch_norm } },
    { "norm", { NULL, "x", { S(2, 1, 11, 9, 48) }, 0, build_group_norm } },
    { "norm", { NULL, "x", { S(1, 1, 9, 11, 33) }, 0, build_batch_norm } },
    { "moments", { "groups=1 per_sample=1", "X", { S(3, 1, 13, 40, 16) }, 0, NULL } },
    /* So many blocks that every thread of the last one has parts to add. */
    { "moments", { "groups=64", "X", { S(1, 1, 70, 70, 64) }, 0, NULL } },
    { "moments", { "groups=17", "X", { S(1, 1, 96, 96, 17) }, 0, NULL } },
    { "global_pool", { "factor=0.5", "x", { S(2, 1, 37, 41, 32) }, 0, NULL } },
    { "maxpool", { "kernel=[1,2,2] stride=[1,2,2]", "x", { S(1, 1, 11, 20, 16) }, 0, NULL } },
    { "maxpool", { "kernel=[2,2,2] stride=[2,2,2]", "x", { S(1, 4, 7, 6, 16) }, 0, NULL } },
    { "maxpool",
      { "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]",
        "x",
        { S(1, 1, 9, 12, 16) },
        0,
        NULL } },
    { "avgpool",
      { "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
        "x",
        { S(1, 1, 9, 12, 16) },
        0,
        NULL } },
    { "upsample", { "mode=linear extent=[1,12,21]", "x", { S(1, 1, 6, 10, 8) }, 0, NULL } },
    { "upsample", { "mode=nearest extent=[2,12,20]", "x", { S(1, 1, 6, 10, 8) }, 0, NULL } },
    { "upsample", { "mode=linear extent=[1,5,9]", "x", { S(1, 1, 9, 40, 3) }, 0, NULL } },
    { "concat",
      { "", "xxx", { S(1, 1, 9, 11, 8), S(1, 1, 9, 11, 32), S(1, 1, 9, 11, 16) }, 0, NULL } },
    { "add", { "", "xx", { S(1, 1, 17, 21, 33), S(1, 1, 17, 21, 33) }, 0, NULL } },
    { "act", { "act=gelu", "x", { S(1, 1, 17, 11, 16) }, 0, NULL } },
    { "softmax", { "", "x", { S(1, 1, 7, 11, 70) }, 0, NULL } },
    { "layernorm",
      { "eps=1e-5",
        "xpp",
        { S(1, 1, 7, 11, 96), S(1, 1, 1, 1, 96), S(1, 1, 1, 1, 96) },
        0,
        NULL } },
    { "ce", { NULL, "xt", { S(1, 1, 27, 29, 5), S(1, 1, 27, 29, 1) }, 5, build_cross_entropy } },
    { "ce", { NULL, "xt", { S(5, 1, 1, 1, 100), S(5, 1, 1, 1, 1) }, 100, build_cross_entropy } },
    { "dice", { NULL, "xt", { S(1, 1, 27, 29, 3), S(1, 1, 27, 29, 1) }, 3, build_dice } },
    { "mse", { "", "xX", { S(1, 1, 17, 21, 33), S(1, 1, 17, 21, 33) }, 0, NULL } },
    { "dropout", { "p=0.3 stream=9", "x", { S(1, 1, 17, 21, 16) }, 0, NULL } },
    { "dropout", { "p=0.3 stream=9", "x", { S(1, 1, 7, 11, 9) }, 0, NULL } },
    { "pad", { "lo=[0,0,2,-3,0] hi=[0,0,-1,5,0]", "x", { S(1, 1, 7, 11, 16) }, 0, NULL } },
    { "tile", { "tiles=[1,2,2] extent=[1,4,6]", "x", { S(1, 1, 7, 11, 16) }, 0, NULL } },
    { "conv",
      { "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        "xpp",
        { S(1, 1, 12, 13, 17), S(70, 1, 3, 3, 17), S(1, 1, 1, 1, 70) },
        0,
        NULL } },
    { "conv",
      { "stride=[1,2,1] dilation=[1,1,1] pad_lo=[0,1,0] pad_hi=[0,0,0] groups=2",
        "xp-",
        { S(2, 1, 40, 23, 6), S(4, 1, 2, 2, 3) },
        0,
        NULL } },
    /* Windows side by side: more than a tile of rows, of columns, of k; patches in all three axes. */
    { "convt",
      { "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1 extent=[1,10,28]",
        "xpp",
        { S(1, 1, 5, 14, 72), S(72, 1, 2, 2, 40), S(1, 1, 1, 1, 40) },
        0,
        NULL } },
    { "convt",
      { "stride=[2,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1 extent=[4,6,8]",
        "xp-",
        { S(2, 2, 3, 4, 16), S(16, 2, 2, 2, 40) },
        0,
        NULL } },
    { "conv",
      { "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1",
        "xpp",
        { S(1, 1, 13, 22, 24), S(136, 1, 2, 2, 24), S(1, 1, 1, 1, 136) },
        0,
        NULL } },
};

static void kernels__equal_their_reference_on_larger_images(void **state)
{
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        const struct wf_op *op = wf_op_find(larger[i].op);
        assert_non_null(op);
        check_case(op, &larger[i].from, WF_F32);
        check_case(op, &larger[i].from, WF_BF16);
    }
}

/* In tf32: what the reference makes of factors that have ten digits behind the first. */
static void convolutions__shorten_their_factors_in_tf32(void **state)
{
    static const struct wf_case from = {
        "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        "xp-",
        { S(1, 1, 9, 11, 5), S(7, 1, 3, 3, 5) },
        0,
        NULL
    };
    struct support_case c;
    struct wf_err err = { 0 };
    assert_true(support_case_build(wf_op_find("conv"), &from, WF_F32, &c, &err));
    struct support_values v = support_values_new(c.g), rounded = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, true);
    bool moved = false;
    for (size_t i = 0; i < c.g->n_values; i++)
        for (struct wf_cursor at = wf_cursor(v.views[i].box); wf_cursor_next(&at);) {
            const double x = wf_view_at(&v.views[i], at.at), unit = ldexp(1, ilogb(x) - 10);
            wf_view_set(&rounded.views[i], at.at, x == 0 ? 0 : round(x / unit) * unit);
            moved = moved || wf_view_at(&rounded.views[i], at.at) != x;
        }
    assert_true(moved);
    gpu_shorten(true);
    for (size_t i = 0; i < c.g->n_nodes; i++)
        for (const struct wf_kernel *const *k = wf_cuda_own_kernels; *k; k++) {
            if (!is_for(*k, c.g->nodes[i]) || wants_packed(*k))
                continue;
            struct trial got = { .node = c.g->nodes[i],
                                 .kernel = *k,
                                 .values = &v,
                                 .work = wf_shape_region(wf_op_domain(c.g->nodes[i])->shape),
                                 .alias = -1 };
            struct trial want = got;
            want.values = &rounded;
            trial_init(&got);
            trial_init(&want);
            run_kernel(&got);
            run_reference(&want);
            compare(&got, &got.out[0], &want.out[0], tolerance(&got));
            trial_release(&got);
            trial_release(&want);
        }
    gpu_shorten(false);
    support_values_free(&v);
    support_values_free(&rounded);
    wf_graph_free(c.g);
}

/* The variance of 1e4 + noise of 0.01: sums in f32, or not shifted, would lose it. */
static void moments__keep_a_small_deviation_from_a_large_mean(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    const struct wf_shape shape = WF_SHAPE(1, 1, 64, 128, 4);
    struct wf_value *x = wf_input(g, "x", WF_F32, shape);
    const struct wf_norm_attrs attrs = { .groups = 4, .count = 64 * 128 };
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
    struct trial t = { .node = node, .values = &v, .work = view->box, .alias = -1 };
    for (const struct wf_kernel *const *k = wf_cuda_own_kernels; *k && !t.kernel; k++)
        t.kernel = is_for(*k, node) ? *k : NULL;
    assert_non_null(t.kernel);
    trial_init(&t);
    run_kernel(&t);
    const double sum = wf_view_get(&t.out[0].view, 0, 0, 0, 0, 2) / (64 * 128);
    const double square = wf_view_get(&t.out[0].view, 0, 0, 0, 0, 4 + 2) / (64 * 128);
    assert_true(fabs((square - sum * sum) / exact - 1) < 1e-3);
    trial_release(&t);
    support_values_free(&v);
    wf_graph_free(g);
}

/* --- the optimiser's sweeps --- */

enum { STORE = 5000, TENSORS = 5, PIECES = 9, STEPS = 3 };

/* Tensors with gaps between them, some at places where four elements cannot be taken at once. */
static const struct wf_update_tensor tensors[TENSORS] = {
    { 0, 1024, true, 0, 2 },     { 1030, 7, false, 2, 1 },  { 1041, 2000, true, 3, 3 },
    { 3072, 1000, false, 6, 2 }, { 4100, 900, true, 8, 1 },
};
static const struct wf_update_piece pieces[PIECES] = {
    { 0, 512, 0 },    { 512, 512, 0 },  { 1030, 7, 1 },   { 1041, 700, 2 }, { 1741, 700, 2 },
    { 2441, 600, 2 }, { 3072, 512, 3 }, { 3584, 488, 3 }, { 4100, 900, 4 },
};
static const struct wf_update_layout layout = { TENSORS, PIECES, tensors, pieces };

static void *to_gpu(const void *from, size_t bytes)
{
    void *const to = gpu_alloc(bytes);
    gpu_put(to, from, bytes);
    return to;
}

struct stores {
    float *param, *grad, *state[2];
};

static void stores_fill(struct stores *s)
{
    float **const all[] = { &s->param, &s->grad, &s->state[0], &s->state[1] };
    for (int k = 0; k < 4; k++) {
        *all[k] = calloc(STORE, sizeof(float));
        assert_non_null(*all[k]);
        const struct wf_view v =
            wf_view_dense(*all[k], WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, STORE)));
        if (k < 2)
            support_fill_random(&v, 9, (uint64_t)k);
    }
}

static void stores_free(struct stores *s)
{
    free(s->param);
    free(s->grad);
    free(s->state[0]);
    free(s->state[1]);
}

static struct wf_cuda_layout layout_on_gpu(void)
{
    return (struct wf_cuda_layout){
        .n_tensors = TENSORS,
        .n_pieces = PIECES,
        .tensors = to_gpu(tensors, sizeof tensors),
        .pieces = to_gpu(pieces, sizeof pieces),
        .sums = gpu_alloc(2 * PIECES * sizeof(double)),
        .ratios = gpu_alloc(TENSORS * sizeof(float)),
    };
}

static void layout_free(const struct wf_cuda_layout *at)
{
    gpu_free((void *)(uintptr_t)at->tensors);
    gpu_free((void *)(uintptr_t)at->pieces);
    gpu_free(at->sums);
    gpu_free(at->ratios);
}

/* Three steps of one rule on the CPU and on the GPU; the numbers of a step lie in device memory. */
static void check_rule(enum wf_optim_rule rule, bool second)
{
    struct stores cpu, got;
    stores_fill(&cpu);
    stores_fill(&got);
    const struct wf_cuda_layout at = layout_on_gpu();
    void *const prepared = wf_cpu_updater.prepare(NULL, &layout);
    assert_non_null(prepared);
    struct wf_update u = { .rule = rule,
                           .scale = 0.5f,
                           .lr = 0.1f,
                           .momentum = 0.9f,
                           .beta1 = 0.9f,
                           .beta2 = 0.99f,
                           .eps = 1e-6f,
                           .decay = 0.01f,
                           .trust = 0.02f };
    struct wf_update g = u;
    float *const on_gpu_store[] = { to_gpu(cpu.param, STORE * sizeof(float)),
                                    to_gpu(cpu.grad, STORE * sizeof(float)),
                                    to_gpu(cpu.state[0], STORE * sizeof(float)),
                                    to_gpu(cpu.state[1], STORE * sizeof(float)) };
    const bool two = rule == WF_ADAM || rule == WF_ADAMW || rule == WF_LAMB || second;
    u.param = cpu.param;
    u.grad = cpu.grad;
    u.state[0] = cpu.state[0];
    u.state[1] = two ? cpu.state[1] : NULL;
    g.param = on_gpu_store[0];
    g.grad = on_gpu_store[1];
    g.state[0] = on_gpu_store[2];
    g.state[1] = two ? on_gpu_store[3] : NULL;
    g.lr = NAN; /* read from device memory */
    struct wf_update *const numbers = gpu_alloc(sizeof u);
    for (int step = 1; step <= STEPS; step++) {
        u.correct1 = (float)(1 / (1 - pow(0.9, step)));
        u.correct2 = (float)(1 / sqrt(1 - pow(0.99, step)));
        gpu_put(numbers, &u, sizeof u);
        wf_cpu_updater.update(prepared, &u);
        wf_cuda_update(&at, &g, numbers, gpu_stream());
        assert_true(gpu_finish());
    }
    gpu_get(got.param, on_gpu_store[0], STORE * sizeof(float));
    for (int i = 0; i < STORE; i++)
        if (!(fabsf(got.param[i] - cpu.param[i]) <= 2e-6f * (1 + fabsf(cpu.param[i]))))
            fail_msg("rule %d, element %d: %.9g, not %.9g", (int)rule, i, (double)got.param[i],
                     (double)cpu.param[i]);
    for (int k = 0; k < 4; k++)
        gpu_free(on_gpu_store[k]);
    gpu_free(numbers);
    wf_cpu_updater.release(prepared);
    layout_free(&at);
    stores_free(&cpu);
    stores_free(&got);
}

static void updates__equal_those_of_the_cpu(void **state)
{
    for (int rule = 0; rule < WF_OPTIM_RULES; rule++)
        check_rule((enum wf_optim_rule)rule, false);
    check_rule(WF_RMSPROP, true);
}

/* Sums and squares go over tensors and leave out the gaps; what is not finite shows. */
static void sweeps__sum_over_the_tensors_alone(void **state)
{
    struct stores s;
    double want = 0, got = 0;
    stores_fill(&s);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = tensors[t].first; i < tensors[t].first + tensors[t].count; i++)
            want += (double)s.grad[i] * (double)s.grad[i];
    s.grad[1027] = NAN; /* in a gap */
    const struct wf_cuda_layout at = layout_on_gpu();
    float *const grad = to_gpu(s.grad, STORE * sizeof(float));
    float *const sum = to_gpu(s.param, STORE * sizeof(float));
    double *const result = gpu_alloc(sizeof(double));
    wf_cuda_squares(&at, grad, result, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(&got, result, sizeof got);
    assert_true(fabs(got / want - 1) < 1e-12);
    wf_cuda_accumulate(&at, sum, grad, 0.25f, true, gpu_stream());
    wf_cuda_accumulate(&at, sum, grad, 0.5f, false, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(s.state[0], sum, STORE * sizeof(float));
    assert_true(s.state[0][1027] == s.param[1027]);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = tensors[t].first; i < tensors[t].first + tensors[t].count; i++)
            assert_true(fabsf(s.state[0][i] - 0.75f * s.grad[i]) < 1e-6f);
    s.grad[1033] = NAN;
    gpu_put(grad, s.grad, STORE * sizeof(float));
    wf_cuda_squares(&at, grad, result, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(&got, result, sizeof got);
    assert_true(isnan(got));
    gpu_free(grad);
    gpu_free(sum);
    gpu_free(result);
    layout_free(&at);
    stores_free(&s);
}

/* --- what the device uses beside operators --- */

/* Channels padded for cuDNN and cropped again, with a conversion. */
static void fit__pads_with_zeros_and_crops(void **state)
{
    static const struct {
        enum wf_dtype from, to;
        struct wf_shape a, b;
    } cases[] = {
        { WF_BF16, WF_BF16, S(1, 1, 5, 7, 3), S(1, 1, 5, 7, 8) },
        { WF_F16, WF_F16, S(2, 1, 3, 7, 1), S(2, 1, 3, 7, 8) },
        { WF_F32, WF_F32, S(4, 1, 3, 3, 3), S(8, 1, 3, 3, 4) },
        { WF_BF16, WF_F32, S(8, 1, 3, 3, 8), S(2, 1, 3, 3, 5) },
        { WF_F32, WF_BF16, S(1, 2, 3, 4, 5), S(1, 2, 3, 4, 5) },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct guarded a = guarded_new(cases[i].from, wf_shape_region(cases[i].a), PACKED, 0);
        struct guarded b = guarded_new(cases[i].to, wf_shape_region(cases[i].b), PACKED, 0xff);
        support_fill_random(&a.view, 3, i);
        gpu_put(a.gpu, a.all.data, a.bytes);
        gpu_put(b.gpu, b.all.data, b.bytes);
        const struct wf_view from = on_gpu(&a), to = on_gpu(&b);
        wf_cuda_fit(&to, &from, gpu_stream());
        assert_true(gpu_finish());
        gpu_get(b.all.data, b.gpu, b.bytes);
        for (struct wf_cursor c = wf_cursor(b.view.box); wf_cursor_next(&c);) {
            const double want = inside(a.view.box, c.at) ? wf_view_at(&a.view, c.at) : 0;
            const double tol = cases[i].from == cases[i].to ? 0 : 4e-3;
            assert_true(fabs(wf_view_at(&b.view, c.at) - want) <= tol);
        }
        guarded_free(&a);
        guarded_free(&b);
    }
}

static void copy__moves_a_box_between_strided_buffers(void **state)
{
    const struct wf_region box = { { 0, 0, 3, 5, 0 }, { 2, 1, 14, 21, 8 } };
    static const enum wf_dtype dtypes[] = { WF_BF16, WF_F32, WF_U8, WF_F64 };
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < LAYOUTS * LAYOUTS; i++) {
            struct guarded a = guarded_new(dtypes[d], box, (enum layout)(i / LAYOUTS), 0x7f);
            struct guarded b = guarded_new(dtypes[d], box, (enum layout)(i % LAYOUTS), 0x11);
            for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
                wf_view_set(&a.view, c.at, (double)(c.at[WF_H] * 8 + c.at[WF_C]));
            gpu_put(a.gpu, a.all.data, a.bytes);
            gpu_put(b.gpu, b.all.data, b.bytes);
            const struct wf_view from = on_gpu(&a), to = on_gpu(&b);
            wf_cuda_copy(&to, &from, gpu_stream());
            assert_true(gpu_finish());
            gpu_get(b.all.data, b.gpu, b.bytes);
            for (struct wf_cursor c = wf_cursor(b.all.box); wf_cursor_next(&c);) {
                const uint64_t guard = 0x1111111111111111u;
                const double want = inside(box, c.at) ? wf_view_at(&a.view, c.at)
                                                      : wf_dtype_get(dtypes[d], &guard, 0);
                assert_true(wf_view_at(&b.all, c.at) == want);
            }
            guarded_free(&a);
            guarded_free(&b);
        }
}

/* test_cuda_kernels [PATTERN]: the tests whose names match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels__equal_their_reference_in_f32),
        cmocka_unit_test(kernels__equal_their_reference_in_bf16),
        cmocka_unit_test(kernels__equal_their_reference_in_f16),
        cmocka_unit_test(kernels__equal_their_reference_on_larger_images),
        cmocka_unit_test(convolutions__shorten_their_factors_in_tf32),
        cmocka_unit_test(moments__keep_a_small_deviation_from_a_large_mean),
        cmocka_unit_test(updates__equal_those_of_the_cpu),
        cmocka_unit_test(sweeps__sum_over_the_tensors_alone),
        cmocka_unit_test(fit__pads_with_zeros_and_crops),
        cmocka_unit_test(copy__moves_a_box_between_strided_buffers),
    };
    if (!gpu_start())
        return 77; /* not run: ctest shows it as skipped */
    gpu_step(3);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
