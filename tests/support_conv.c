#include "support_conv.h"

#include <stddef.h> /* so that there is something without oneDNN */

#ifdef WF_HAVE_DNNL

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "device/device.h"
#include "ops/spatial.h"

/* --- guarded memory --- */

enum { GUARD = 4096 };

static struct block block_new(size_t bytes, int fill)
{
    struct block b = { .bytes = (bytes + 63) / 64 * 64 };
    b.base = aligned_alloc(64, b.bytes + 2 * GUARD);
    assert_non_null(b.base);
    memset(b.base, 0xa5, b.bytes + 2 * GUARD);
    memset(b.base + GUARD, fill, bytes);
    b.bytes = bytes;
    return b;
}

static void *block_data(struct block b)
{
    return b.base + GUARD;
}

static void block_free(struct block b)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(b.base[i], 0xa5);
        assert_int_equal(b.base[GUARD + b.bytes + i], 0xa5);
    }
    free(b.base);
}

/* --- problems --- */

/* clang-format off */
const struct problem problems[PROBLEMS] = {
    { "unet 3x3", { 1, 1, 19, 23, 16 }, 32, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "first layer", { 2, 1, 14, 17, 3 }, 16, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "one channel", { 1, 1, 12, 14, 1 }, 1, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "odd channels", { 2, 1, 11, 10, 33 }, 5, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "last layer 1x1", { 2, 1, 13, 16, 32 }, 2, 1, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "up 2x2", { 1, 1, 16, 18, 8 }, 16, 1, { 1, 2, 2 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "up with a rest", { 1, 1, 17, 19, 3 }, 2, 1, { 1, 2, 2 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "down 3x3", { 2, 1, 17, 20, 16 }, 16, 1, { 1, 3, 3 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "down 7x7", { 1, 1, 21, 24, 3 }, 8, 1, { 1, 7, 7 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 3, 3 }, { 0, 3, 3 } },
    { "stride past the kernel", { 1, 1, 17, 16, 4 }, 6, 1, { 1, 2, 1 }, { 1, 3, 4 }, { 1, 1, 1 }, { 0, 1, 0 }, { 0, 0, 1 } },
    { "dilated", { 1, 1, 18, 17, 16 }, 16, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 2, 3 }, { 0, 2, 3 }, { 0, 2, 3 } },
    { "dilated and strided", { 1, 1, 19, 22, 3 }, 4, 1, { 1, 3, 2 }, { 1, 2, 3 }, { 1, 2, 2 }, { 0, 3, 1 }, { 0, 1, 2 } },
    { "unequal padding", { 1, 1, 10, 12, 16 }, 8, 1, { 1, 4, 2 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 3, 0 }, { 0, 0, 2 } },
    { "padding past the kernel", { 1, 1, 8, 10, 16 }, 16, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 5, 4 }, { 0, 2, 6 } },
    { "two groups", { 1, 1, 12, 11, 32 }, 32, 2, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "three odd groups", { 2, 1, 9, 12, 6 }, 15, 3, { 1, 3, 3 }, { 1, 2, 1 }, { 1, 1, 2 }, { 0, 1, 2 }, { 0, 1, 1 } },
    { "depthwise", { 1, 1, 14, 16, 32 }, 32, 32, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "depthwise, odd, strided", { 1, 1, 15, 13, 7 }, 7, 7, { 1, 3, 3 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "depthwise, dilated", { 1, 1, 16, 15, 16 }, 16, 16, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 2, 2 }, { 0, 2, 2 }, { 0, 2, 2 } },
    { "channel multiplier", { 1, 1, 9, 12, 4 }, 12, 4, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "signal", { 2, 1, 1, 67, 16 }, 8, 1, { 1, 1, 5 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 2 }, { 0, 0, 2 } },
    { "signal, strided, dilated", { 1, 1, 1, 90, 3 }, 7, 1, { 1, 1, 4 }, { 1, 1, 3 }, { 1, 1, 2 }, { 0, 0, 3 }, { 0, 0, 0 } },
    { "volume", { 1, 7, 8, 9, 16 }, 16, 1, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    { "volume, odd", { 2, 5, 6, 8, 3 }, 5, 1, { 3, 2, 3 }, { 2, 1, 1 }, { 1, 2, 1 }, { 1, 1, 0 }, { 0, 1, 2 } },
    { "volume, down", { 1, 8, 7, 6, 8 }, 4, 1, { 2, 2, 2 }, { 2, 2, 2 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "volume, groups", { 1, 5, 6, 7, 4 }, 6, 2, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    { "volume, depthwise", { 1, 5, 6, 8, 16 }, 16, 16, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    { "volume, flat kernel", { 2, 5, 8, 9, 16 }, 8, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
    { "volume to a plane", { 1, 3, 8, 10, 4 }, 8, 1, { 3, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "volume, every second plane and one past the end", { 2, 2, 5, 6, 4 }, 3, 1, { 1, 3, 3 }, { 2, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { "volume, taps on both sides of a plane", { 2, 1, 5, 6, 4 }, 3, 1, { 2, 3, 3 }, { 1, 1, 1 }, { 2, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    { "volume, some windows between planes", { 1, 2, 6, 5, 4 }, 3, 1, { 2, 2, 1 }, { 1, 1, 1 }, { 4, 3, 1 }, { 3, 2, 0 }, { 3, 3, 0 } },
    { "volume, windows deeper than the image", { 2, 4, 2, 5, 2 }, 2, 1, { 4, 2, 4 }, { 2, 1, 1 }, { 1, 1, 1 }, { 3, 1, 0 }, { 1, 0, 0 } },
    { "volume, windows higher than the image", { 1, 8, 1, 5, 39 }, 36, 1, { 2, 4, 5 }, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 2, 4 }, { 0, 2, 2 } },
    { "volume, windows wider than the image", { 1, 3, 12, 5, 32 }, 32, 1, { 2, 2, 3 }, { 3, 1, 2 }, { 1, 3, 3 }, { 1, 0, 2 }, { 1, 0, 2 } },
    { "volume, strided past both ends", { 3, 5, 7, 18, 29 }, 34, 1, { 4, 5, 1 }, { 3, 3, 1 }, { 1, 1, 1 }, { 1, 2, 0 }, { 2, 4, 0 } },
    { "volume, 7 deep, every second", { 1, 5, 4, 4, 2 }, 2, 1, { 7, 2, 2 }, { 2, 1, 1 }, { 1, 1, 1 }, { 3, 0, 0 }, { 3, 0, 0 } },
    { "vector", { 3, 1, 1, 1, 33 }, 10, 1, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 } },
    { "large kernel", { 1, 1, 20, 21, 16 }, 16, 1, { 1, 11, 9 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 5, 4 }, { 0, 5, 4 } },
    { "wide row", { 1, 1, 3, 700, 16 }, 16, 1, { 1, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 } },
};
/* clang-format on */

/* --- one node with its values --- */

static struct wf_value *value(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                              struct wf_shape shape, bool replicated)
{
    struct wf_value *v = wf_input(g, name, dtype, shape);
    assert_non_null(v);
    v->replicated = replicated;
    return v;
}

static struct wf_conv_attrs attrs_of(const struct problem *p)
{
    struct wf_conv_attrs a = { .groups = p->groups };
    for (int i = 0; i < 3; i++) {
        a.stride[i] = p->stride[i];
        a.dilation[i] = p->dilation[i];
        a.pad_lo[i] = p->lo[i];
        a.pad_hi[i] = p->hi[i];
    }
    return a;
}

static void rig_fill(struct rig *r, uint64_t seed)
{
    for (int i = 0; i < r->node->n_in; i++) {
        const struct wf_value *v = r->node->in[i];
        r->in[i] = (struct wf_view){ 0 };
        if (!v)
            continue;
        r->in[i] = wf_view_dense(NULL, v->dtype, wf_shape_region(v->shape));
        r->in_block[i] = block_new(wf_view_bytes(&r->in[i]), 0);
        r->in[i].data = block_data(r->in_block[i]);
        support_fill_random(&r->in[i], seed, (uint64_t)i);
    }
    const struct wf_value *y = r->node->out[0];
    r->out = wf_view_dense(NULL, y->dtype, wf_shape_region(y->shape));
    r->out_block = block_new(wf_view_bytes(&r->out), 0);
    r->out.data = block_data(r->out_block);
}

struct rig rig_new(const struct problem *p, enum pass pass, enum wf_dtype dtype)
{
    struct rig r = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    struct wf_conv_attrs a = attrs_of(p);
    const struct wf_shape xs = { { p->x[0], p->x[1], p->x[2], p->x[3], p->x[4] } };
    struct wf_shape ys = { { p->x[0], 0, 0, 0, p->out } };
    for (int i = 0; i < 3; i++) {
        const struct wf_window w = wf_conv_windows(&a, p->kernel).along[i];
        ys.at[WF_D + i] = wf_window_count(&w, xs.at[WF_D + i]);
        a.extent[i] = pass == PASS_CONV ? 0 : pass == PASS_CONVT ? p->x[WF_D + i] : p->kernel[i];
    }
    const struct wf_shape ws =
        WF_SHAPE(p->out, p->kernel[0], p->kernel[1], p->kernel[2], p->x[4] / p->groups);
    const int64_t biased = pass == PASS_CONV ? p->out : p->x[4];
    struct wf_value *in[3] = { value(r.g, "x", dtype, pass == PASS_CONVT ? ys : xs, false) };
    if (pass == PASS_WGRAD)
        in[1] = value(r.g, "dy", dtype, ys, false);
    else
        in[1] = value(r.g, "w", dtype, ws, true);
    /* About every other problem has a bias. */
    if (pass != PASS_WGRAD && p->x[WF_W] % 2 == 0)
        in[2] = value(r.g, "b", WF_F32, WF_SHAPE(1, 1, 1, 1, biased), true);
    static const struct wf_op *const ops[PASSES] = { &wf_op_conv, &wf_op_convt, &wf_op_conv_wgrad };
    r.kernel = &wf_cpu_kernels_dnnl_conv[pass];
    r.node = wf_node_add(r.g, ops[pass], p->name, &a, pass == PASS_WGRAD ? 2 : 3, in);
    struct wf_err err = { 0 };
    if (!wf_graph_ok(r.g, &err) || !r.node)
        fail_msg("%s: %s", p->name, err.text);
    assert_true(r.kernel->accepts(r.node));
    r.options.traps = wf_dnnl_has_traps();
    r.threads = 2;
    if (!r.node)
        abort(); /* not reached: analysers do not know that fail_msg() does not return */
    rig_fill(&r, 7);
    return r;
}

void rig_free(struct rig *r)
{
    for (int i = 0; i < r->node->n_in; i++)
        if (r->node->in[i])
            block_free(r->in_block[i]);
    block_free(r->out_block);
    wf_graph_free(r->g);
}

void rig_reference(const struct rig *r, struct wf_region work)
{
    const struct wf_call call = { .node = r->node, .work = work, .in = r->in, .out = &r->out };
    r->node->op->reference(&call);
}

/* Relative to the norm of what is expected. */
static double difference(const struct wf_view *got, const struct wf_view *want)
{
    double error = 0, norm = 0;
    for (struct wf_cursor c = wf_cursor(got->box); wf_cursor_next(&c);) {
        const double w = wf_view_at(want, c.at), e = wf_view_at(got, c.at) - w;
        error += e * e;
        norm += w * w;
    }
    if (norm == 0)
        return sqrt(error);
    return sqrt(error / norm);
}

static bool gradient_of_weights(const struct rig *r)
{
    return wf_op_sums_over(r->node) != 0;
}

void rig_check(struct rig *r, struct wf_region work, char name[WF_IMPLEMENTATION])
{
    struct wf_view in[3] = { 0 };
    struct block blocks[3] = { 0 };
    for (int i = 0; i < r->node->n_in; i++) {
        const struct wf_value *v = r->node->in[i];
        if (!v)
            continue;
        const struct wf_region box =
            v->replicated
                ? r->in[i].box
                : wf_region_intersect(wf_op_reads(r->node, i, work), wf_shape_region(v->shape));
        in[i] = wf_view_dense(NULL, v->dtype, box);
        if (wf_region_is_empty(box))
            continue;
        blocks[i] = block_new(wf_view_bytes(&in[i]), 0);
        in[i].data = block_data(blocks[i]);
        const struct wf_view from = wf_view_part(r->in[i], box);
        wf_view_copy(&in[i], &from);
    }
    struct wf_view out =
        wf_view_dense(NULL, r->out.dtype, gradient_of_weights(r) ? r->out.box : work);
    struct block out_block = block_new(wf_view_bytes(&out), 0xff); /* NaN */
    out.data = block_data(out_block);
    struct wf_prepare p = {
        .node = r->node, .work = work, .in = in, .out = &out, .threads = r->threads
    };
    struct wf_err err = { 0 };
    if (!wf_dnnl_prepare(&p, &r->options, &err))
        fail_msg("%s: %s", r->node->name, err.text);
    struct block scratch = block_new(p.scratch_bytes, 0xff);
    const struct wf_call call = { .node = r->node,
                                  .work = work,
                                  .in = in,
                                  .out = &out,
                                  .scratch = block_data(scratch),
                                  .prepared = p.prepared };
#ifdef _OPENMP
    if (r->run_threads)
        omp_set_num_threads(r->run_threads);
#endif
    for (int recompute = 0; recompute < 2; recompute++) {
        memset(out.data, 0xff, wf_view_bytes(&out));
        r->kernel->run(&call);
    }
    const double d = difference(&out, &r->out);
    const double most = r->in[0].dtype == WF_BF16 ? 2e-2 : 1e-5;
    if (!(d <= most) || (!r->may_be_reference && strstr(p.implementation, "ref"))) {
        print_error("%s '%s' %s by '%s': off by %g\n", r->node->op->name, r->node->name,
                    wf_dtype_name(r->in[0].dtype), p.implementation, d);
        r->failures++;
    }
    if (name)
        snprintf(name, WF_IMPLEMENTATION, "%s", p.implementation);
    r->kernel->release(p.prepared);
    block_free(scratch);
    block_free(out_block);
    for (int i = 0; i < r->node->n_in; i++)
        if (blocks[i].base)
            block_free(blocks[i]);
}

/* Windows as cuts give them: beginning, middle, end and a single position along each axis that has
 * some extent. */
static int windows_of(struct wf_region all, struct wf_region windows[32])
{
    int n = 0;
    windows[n++] = all;
    for (int axis = WF_N; axis <= WF_W; axis++) {
        const int64_t e = all.hi[axis];
        if (e < 2)
            continue;
        const int64_t cuts[][2] = { { 0, e / 3 + 1 },
                                    { e / 3 + 1, e },
                                    { e / 3, 2 * e / 3 + 1 },
                                    { e / 2, e / 2 + 1 },
                                    { e - 1, e } };
        for (int i = 0; i < (axis == WF_N ? 2 : 5); i++) {
            struct wf_region w = all;
            w.lo[axis] = cuts[i][0];
            w.hi[axis] = cuts[i][1];
            if (!wf_region_is_empty(w))
                windows[n++] = w;
        }
    }
    struct wf_region inner = all;
    for (int axis = WF_D; axis <= WF_W; axis++)
        if (all.hi[axis] > 4) {
            inner.lo[axis] = 1;
            inner.hi[axis] = all.hi[axis] - 2;
        }
    windows[n++] = inner;
    return n;
}

int check_problem(const struct problem *p, enum pass pass, enum wf_dtype dtype,
                  const struct wf_dnnl_options *options)
{
    struct rig r = rig_new(p, pass, dtype);
    struct wf_region windows[32];
    const struct wf_region all = wf_shape_region(wf_op_domain(r.node)->shape);
    const int n = windows_of(all, windows);
    if (options)
        r.options = *options;
    if (pass != PASS_WGRAD)
        rig_reference(&r, all);
    for (int i = 0; i < n; i += options ? n - 1 : 1) {
        if (pass == PASS_WGRAD)
            rig_reference(&r, windows[i]);
        rig_check(&r, windows[i], NULL);
    }
    rig_free(&r);
    return r.failures;
}

#endif
