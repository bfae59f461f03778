#include "support_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "ops/attrs.h"
#include "ops/build.h"

struct support_guarded support_guarded_new(const struct support_device *device, enum wf_dtype dtype,
                                           struct wf_region box, enum support_layout layout,
                                           int fill)
{
    static const int orders[SUPPORT_LAYOUTS][WF_AXES] = {
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_D, WF_H, WF_W, WF_C },
        { WF_N, WF_C, WF_D, WF_H, WF_W },
    };
    struct wf_region around = box;
    if (wf_region_is_empty(box))
        around = wf_shape_region(WF_SHAPE(1, 1, 1, 1, 1));
    for (int a = 0; a < WF_AXES && layout != SUPPORT_PACKED; a++) {
        const int more = layout == SUPPORT_ALIGNED && a == WF_C ? 8 : 1;
        around.lo[a] -= a == WF_W || a == WF_C ? more : 0;
        around.hi[a] += a == WF_C && layout != SUPPORT_ALIGNED ? 2 : more;
    }
    struct support_guarded m = { .device = device,
                                 .bytes = (size_t)wf_region_count(around) * wf_dtype_size(dtype) };
    void *const data = malloc(m.bytes);
    assert_non_null(data);
    memset(data, fill, m.bytes);
    m.memory = device->alloc(m.bytes);
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

void support_guarded_free(struct support_guarded *m)
{
    if (!m->all.data)
        return;
    free(m->all.data);
    m->device->free(m->memory);
}

struct wf_view support_guarded_view(const struct support_guarded *m)
{
    struct wf_view v = m->view;
    if (m->all.data)
        v.data = (char *)m->memory + ((char *)v.data - (char *)m->all.data);
    return v;
}

bool support_inside(struct wf_region r, const int64_t at[WF_AXES])
{
    for (int a = 0; a < WF_AXES; a++)
        if (at[a] < r.lo[a] || at[a] >= r.hi[a])
            return false;
    return true;
}

void support_trial_init(struct support_trial *t)
{
    const struct wf_node *node = t->node;
    assert_true(node->n_in <= SUPPORT_VIEWS && node->n_out <= SUPPORT_VIEWS);
    for (int i = 0; i < node->n_in; i++) {
        t->in[i] = (struct support_guarded){ 0 };
        if (!node->in[i])
            continue;
        const struct wf_view *from = &t->values->views[node->in[i]->id];
        const struct wf_region box = wf_region_intersect(wf_op_reads(node, i, t->work), from->box);
        t->in[i] =
            support_guarded_new(t->device, from->dtype, box, t->layout, 0xff); /* NaN around it */
        if (!wf_region_is_empty(box)) {
            const struct wf_view part = wf_view_part(*from, box);
            wf_view_copy(&t->in[i].view, &part);
        }
    }
    for (int o = 0; o < node->n_out; o++) {
        const bool whole = wf_op_sums_over(node) || node->out[o]->replicated;
        const struct wf_region box = whole ? wf_shape_region(node->out[o]->shape) : t->work;
        t->out[o] = support_guarded_new(t->device, node->out[o]->dtype, box, t->layout, 0x3a);
    }
}

void support_trial_release(struct support_trial *t)
{
    for (int i = 0; i < t->node->n_in; i++)
        support_guarded_free(&t->in[i]);
    for (int o = 0; o < t->node->n_out; o++)
        support_guarded_free(&t->out[o]);
}

void support_trial_reference(const struct support_trial *t)
{
    struct wf_view in[SUPPORT_VIEWS] = { 0 }, out[SUPPORT_VIEWS] = { 0 };
    for (int i = 0; i < t->node->n_in; i++)
        in[i] = t->in[i].view;
    for (int o = 0; o < t->node->n_out; o++)
        out[o] = t->out[o].view;
    t->node->op->reference(&(struct wf_call){
        .node = t->node, .work = t->work, .in = in, .out = out, .seed = 5, .step = 3 });
}

void support_trial_run(const struct support_trial *t)
{
    struct wf_context *const context = t->device->context ? t->device->context() : NULL;
    struct wf_view in[SUPPORT_VIEWS] = { 0 }, out[SUPPORT_VIEWS] = { 0 };
    struct wf_view no_in[SUPPORT_VIEWS] = { 0 }, no_out[SUPPORT_VIEWS] = { 0 };
    for (int i = 0; i < t->node->n_in; i++) {
        no_in[i] = in[i] = support_guarded_view(&t->in[i]);
        if (t->in[i].memory)
            t->device->put(t->in[i].memory, t->in[i].all.data, t->in[i].bytes);
    }
    for (int o = 0; o < t->node->n_out; o++) {
        no_out[o] = out[o] = support_guarded_view(&t->out[o]);
        t->device->put(t->out[o].memory, t->out[o].all.data, t->out[o].bytes);
    }
    if (t->alias >= 0)
        out[0] = no_out[0] = in[t->alias];
    for (int i = 0; i < SUPPORT_VIEWS; i++)
        no_in[i].data = no_out[i].data = NULL;
    struct wf_prepare p = {
        .node = t->node,
        .work = t->work,
        .in = no_in,
        .out = no_out,
        .threads = t->device->threads,
        .context = context,
    };
    struct wf_err err = { 0 };
    if (t->kernel->prepare && !t->kernel->prepare(&p, &err))
        fail_msg("%s: %s", t->node->op->name, err.text);
    void *const scratch = t->device->alloc(p.scratch_bytes), *const junk =
                                                                 malloc(p.scratch_bytes + 1);
    assert_non_null(junk);
    memset(junk, 0xff, p.scratch_bytes);
    t->device->put(scratch, junk, p.scratch_bytes);
    t->device->turn(t->other_way);
    t->kernel->run(&(struct wf_call){ .node = t->node,
                                      .work = t->work,
                                      .in = in,
                                      .out = out,
                                      .scratch = scratch,
                                      .prepared = p.prepared,
                                      .seed = 5,
                                      .step = 3,
                                      .context = context });
    if (t->device->finish && !t->device->finish())
        fail_msg("%s: the device reports an error", t->node->op->name);
    for (int i = 0; i < t->node->n_in; i++)
        if (t->in[i].memory)
            t->device->get(t->in[i].all.data, t->in[i].memory, t->in[i].bytes);
    for (int o = 0; o < t->node->n_out; o++)
        t->device->get(t->out[o].all.data, t->out[o].memory, t->out[o].bytes);
    t->device->free(scratch);
    free(junk);
    if (t->kernel->release)
        t->kernel->release(p.prepared);
}

static bool is_brief(const struct support_device *device)
{
    return device->is_brief && device->is_brief();
}

bool support_wants_packed(const struct wf_kernel *kernel)
{
    return (kernel->flags & WF_KERNEL_DENSE) != 0;
}

/* Inside the box the numbers agree, outside of it nothing was written. */
void support_compare(const struct support_trial *t, const struct support_guarded *got,
                     const struct support_guarded *want, struct support_bound tol)
{
    if (got->bytes && memcmp(got->all.data, want->all.data, got->bytes) == 0)
        return;
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
        if (memcmp(a, b, size) == 0)
            continue;
        const double x = wf_view_at(&got->all, c.at), y = wf_view_at(&want->all, c.at);
        if (isnan(x) && isnan(y))
            continue;
        if (!support_inside(got->view.box, c.at) ||
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

static void check_trial(struct support_trial t)
{
    static const struct support_bound same_bits = { 0 };
    struct support_trial want = t, one = t, two = t;
    want.alias = -1;
    two.other_way = true;
    support_trial_init(&want);
    support_trial_reference(&want);
    support_trial_init(&one);
    support_trial_run(&one);
    support_trial_init(&two);
    support_trial_run(&two);
    for (int o = 0; o < t.node->n_out; o++) {
        const struct support_guarded *a = o == 0 && t.alias >= 0 ? &one.in[t.alias] : &one.out[o];
        const struct support_guarded *b = o == 0 && t.alias >= 0 ? &two.in[t.alias] : &two.out[o];
        if (t.alias < 0)
            support_compare(&t, a, &want.out[o], t.device->tolerance(t.node, t.kernel));
        support_compare(&t, b, a, same_bits);
    }
    if (t.alias >= 0) {
        /* The guards differ: compare what is inside. */
        struct support_guarded got = { .view = one.in[t.alias].view, .all = one.in[t.alias].view };
        struct support_guarded ref = { .view = want.out[0].view, .all = want.out[0].view };
        support_compare(&t, &got, &ref, t.device->tolerance(t.node, t.kernel));
    }
    support_trial_release(&want);
    support_trial_release(&one);
    support_trial_release(&two);
}

static void check_region(struct support_trial t)
{
    const struct wf_node *node = t.node;
    const enum support_layout end =
        support_wants_packed(t.kernel) ? SUPPORT_PACKED + 1 : SUPPORT_LAYOUTS;
    const bool whole = wf_region_equal(t.work, wf_shape_region(wf_op_domain(node)->shape));
    for (t.layout = SUPPORT_PACKED; t.layout < end; t.layout++) {
        if (is_brief(t.device) && t.layout != (whole ? SUPPORT_PACKED : SUPPORT_INSIDE))
            continue;
        t.alias = -1;
        check_trial(t);
        for (int i = 0; i < node->n_in; i++)
            if ((node->op->inplace >> i & 1u) && node->in[i] &&
                node->in[i]->dtype == node->out[0]->dtype &&
                node->in[i]->replicated == node->out[0]->replicated &&
                wf_shape_equal(node->in[i]->shape, node->out[0]->shape)) {
                t.alias = i;
                check_trial(t);
            }
    }
}

/* Whole and an inner box; of small images also two parts along an axis, some of the channels where
 * the operator lets them be cut, and nothing where that must give zeros. */
static void check_kernel(const struct support_device *device, const struct wf_node *node,
                         const struct wf_kernel *kernel, const struct support_values *values)
{
    struct support_trial t = { .device = device, .node = node, .kernel = kernel, .values = values };
    const struct wf_region whole = wf_shape_region(wf_op_domain(node)->shape);
    t.work = whole;
    check_region(t);
    if (wf_op_domain(node)->replicated)
        return;
    for (int a = 0; a < WF_C; a++)
        if (whole.hi[a] > 2) {
            t.work.lo[a] = 1;
            t.work.hi[a] = whole.hi[a] - 1;
        }
    check_region(t);
    if (wf_region_count(whole) > 4096 || is_brief(device))
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
    if (wf_op_sums_over(node) && (device->dense_take_nothing || !support_wants_packed(kernel)))
        check_region(t);
}

/* All kernels that take the node; returns how many. */
static int check_kernels(const struct support_device *device, const struct wf_node *node,
                         const struct support_values *values)
{
    int checked = 0;
    for (const struct wf_kernel *const *rows = device->kernels; *rows; rows++)
        for (const struct wf_kernel *k = *rows; k->op; k++)
            if (wf_kernel_takes(k, node) && !(is_brief(device) && support_wants_packed(k))) {
                check_kernel(device, node, k, values);
                checked++;
            }
    if (checked == 0 && device->takes_all && wf_kernels_have(device->kernels, node->op))
        fail_msg("no kernel takes this node '%s'", node->op->name);
    return checked;
}

int support_check_case(const struct support_device *device, const struct wf_op *op,
                       const struct wf_case *from, enum wf_dtype dtype)
{
    struct support_case c;
    struct wf_err err = { 0 };
    int checked = 0;
    if (!support_case_build(op, from, dtype, &c, &err))
        fail_msg("%s: %s", op->name, err.text);
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, true);
    for (size_t i = 0; i < c.g->n_nodes; i++)
        if (!is_brief(device) || c.g->nodes[i]->op == op || !c.g->nodes[i]->op->cases)
            checked += check_kernels(device, c.g->nodes[i], &v);
    support_values_free(&v);
    wf_graph_free(c.g);
    return checked;
}

int support_check_cases(const struct support_device *device, enum wf_dtype dtype)
{
    int checked = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (const struct wf_case *from = (*op)->cases; from && from->in; from++)
            checked += support_check_case(device, *op, from, dtype);
    return checked;
}

void support_check_larger(const struct support_device *device, const struct support_larger *list,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct wf_op *const op = wf_op_find(list[i].op);
        assert_non_null(op);
        assert_true(support_check_case(device, op, &list[i].from, WF_F32) > 0);
        assert_true(support_check_case(device, op, &list[i].from, WF_BF16) > 0);
    }
}

/* --- layers of cases --- */

struct wf_value *support_build_batch_norm(struct wf_graph *g, struct wf_value *const in[],
                                          const void *attrs)
{
    (void)attrs;
    return wf_batch_norm(g, in[0], &(struct wf_norm){ .name = "n", .act = WF_RELU });
}

struct wf_value *support_build_group_norm(struct wf_graph *g, struct wf_value *const in[],
                                          const void *attrs)
{
    (void)attrs;
    return wf_group_norm(
        g, in[0],
        &(struct wf_norm){ .name = "n", .groups = 3, .act = WF_LEAKY_RELU, .slope = 0.1 });
}

struct wf_value *support_build_cross_entropy(struct wf_graph *g, struct wf_value *const in[],
                                             const void *attrs)
{
    (void)attrs;
    return wf_cross_entropy(g, in[0], in[1], &(struct wf_loss){ .name = "l" });
}

struct wf_value *support_build_dice(struct wf_graph *g, struct wf_value *const in[],
                                    const void *attrs)
{
    (void)attrs;
    return wf_dice(g, in[0], in[1], &(struct wf_loss){ .name = "l" });
}

/* Off by so much of the variance that is left of sums and sums of squares; of the channel that is farthest
 * off. */
static double deviation_lost(const struct support_trial *t, const struct wf_view *x)
{
    const int64_t channels = x->box.hi[WF_C], count = wf_region_count(x->box) / channels;
    double most = 0;
    for (int64_t channel = 0; channel < channels; channel++) {
        struct wf_region one = x->box;
        one.lo[WF_C] = channel;
        one.hi[WF_C] = channel + 1;
        double mean = 0, exact = 0;
        for (struct wf_cursor c = wf_cursor(one); wf_cursor_next(&c);)
            mean += wf_view_at(x, c.at) / (double)count;
        for (struct wf_cursor c = wf_cursor(one); wf_cursor_next(&c);)
            exact += pow(wf_view_at(x, c.at) - mean, 2) / (double)count;
        const struct wf_view *const sums = &t->out[0].view;
        const double sum = wf_view_get(sums, 0, 0, 0, 0, channel) / (double)count;
        const double square = wf_view_get(sums, 0, 0, 0, 0, channels + channel) / (double)count;
        most = fmax(most, fabs((square - sum * sum) / exact - 1));
    }
    return most;
}

void support_check_small_deviation(const struct support_device *device, int64_t channels)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 64, 128, channels));
    const struct wf_norm_attrs attrs = { .groups = channels, .count = 64 * 128 };
    const struct wf_node *node = wf_node_add(g, wf_op_find("moments"), "m", &attrs, 1, &x);
    assert_true(wf_graph_ok(g, &err));
    struct support_values v = support_values_new(g);
    const struct wf_view *view = &v.views[x->id];
    support_fill_random(view, 3, 4);
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
        wf_view_set(view, c.at, 1e4 + 0.01 * wf_view_at(view, c.at));
    struct support_trial t = { .device = device,
                               .node = node,
                               .kernel = wf_kernel_find(device->kernels, node),
                               .values = &v,
                               .work = view->box,
                               .alias = -1 };
    assert_non_null(t.kernel);
    support_trial_init(&t);
    support_trial_run(&t);
    const double lost = deviation_lost(&t, view);
    /* n squares in f64 are off by 2^-53 sqrt(n) of their sum, here 3e12 times the variance. */
    if (!(lost < 0x1p-53 * sqrt(64 * 128) * 3e12))
        fail_msg("%d channels: the variance is off by %g of itself", (int)channels, lost);
    support_trial_release(&t);
    support_values_free(&v);
    wf_graph_free(g);
}
