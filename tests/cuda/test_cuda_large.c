/*
 * Tensors of more than 2^31 elements: a training step of a small network, kernel by kernel, on images of
 * 5800 x 5800 with 64 channels in bf16 (2.15e9 elements, twice as many where two lie side by side). Each
 * result is held against the reference kernel in a few pixels at the beginning, where the count of
 * elements passes 2^31, and at the end; a sum over the image against the sum of its strips, which are
 * small enough to be counted in 31 bits, by our own kernels.
 *
 * Needs about 90 GiB on the GPU and says so where they are not there. WF_LARGE_SIDE is another side: with
 * a small one the test tests itself, emulated on the host. WF_LARGE_ONLY=NAME,NAME: only the nodes of
 * these names, on noise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/kernels.h"
#include "device/device.h"
#include "gpu.h"
#include "ops/build.h"

extern const struct wf_kernel *const wf_cuda_own_kernels[]; /* ends with NULL; made by the build */

enum { MAX_VIEWS = 8, SAMPLES = 3, STRIPS = 4, CHANNELS = 64, SIDE = 5800 };
static const size_t room_needed = (size_t)110 << 30;

struct large {
    struct wf_graph *g;
    struct wf_view *views; /* by the value's id, in the GPU's memory */
    size_t *last;          /* the node that reads a value last */
    int64_t most;          /* elements of the largest tensor */
    int failed;            /* nodes that are off by more than they may */
};

static int64_t side(void)
{
    const char *const given = getenv("WF_LARGE_SIDE");
    return given ? strtoll(given, NULL, 10) : SIDE;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the network --- */

static struct wf_value *block(struct wf_graph *g, struct wf_value *x, const char *conv,
                              const char *norm)
{
    x = wf_conv(
        g, x,
        &(struct wf_conv){ .name = conv, .out = CHANNELS, .kernel = { 1, 3, 3 }, .same = true });
    return wf_batch_norm(g, x, &(struct wf_norm){ .name = norm, .act = WF_RELU });
}

static struct wf_value *network(struct wf_graph *g, struct wf_value *x, struct wf_value *target)
{
    const int64_t n = side(), whole[3] = { 1, n, n };
    struct wf_value *const top = block(g, x, "conv0", "bn0");
    struct wf_value *const low =
        wf_max_pool(g, top, &(struct wf_pool){ .name = "pool", .kernel = { 1, 2, 2 } });
    struct wf_value *const up = wf_conv_transpose(g, low,
                                                  &(struct wf_conv){ .name = "up",
                                                                     .out = CHANNELS,
                                                                     .kernel = { 1, 2, 2 },
                                                                     .stride = { 1, 2, 2 },
                                                                     .bias = true });
    struct wf_value *const both = wf_concat(g, "both", 2, (struct wf_value *const[]){ top, up });
    struct wf_value *const drawn = wf_upsample(g, low, "drawn", whole, WF_LINEAR);
    struct wf_value *const sum = wf_add(g, block(g, both, "conv1", "bn1"), drawn);
    struct wf_value *const bent = wf_activation(g, sum, "bent", WF_GELU, 0);
    struct wf_value *const scores = wf_conv(
        g, bent, &(struct wf_conv){ .name = "out", .out = 2, .kernel = { 1, 1, 1 }, .bias = true });
    return wf_cross_entropy(g, scores, target, &(struct wf_loss){ .name = "loss" });
}

static void build(struct large *l)
{
    struct wf_err err = { 0 };
    const int64_t n = side();
    l->g = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = WF_BF16 });
    struct wf_value *x = wf_input(l->g, "x", WF_BF16, WF_SHAPE(1, 1, n, n, CHANNELS)), *dx = NULL;
    struct wf_value *const target = wf_input(l->g, "target", WF_I32, WF_SHAPE(1, 1, n, n, 1));
    struct wf_value *const loss = network(l->g, x, target);
    if (!wf_graph_ok(l->g, &err) || !wf_graph_grad(l->g, loss, NULL, 1, &x, &dx, &err))
        fail_msg("%s", err.text);
    l->views = calloc(l->g->n_values + 1, sizeof *l->views);
    l->last = calloc(l->g->n_values + 1, sizeof *l->last);
    assert_true(l->views && l->last);
    for (size_t k = 0; k < l->g->n_nodes; k++)
        for (int i = 0; i < l->g->nodes[k]->n_in; i++)
            if (l->g->nodes[k]->in[i])
                l->last[l->g->nodes[k]->in[i]->id] = k;
}

/* --- memory --- */

static void take(struct large *l, const struct wf_value *v)
{
    struct wf_view *const view = &l->views[v->id];
    if (view->data)
        return;
    *view = wf_view_dense(gpu_alloc(wf_dtype_size(v->dtype) * (size_t)wf_shape_count(v->shape)),
                          v->dtype, wf_shape_region(v->shape));
    l->most = wf_shape_count(v->shape) > l->most ? wf_shape_count(v->shape) : l->most;
    if (v->kind == WF_TEMP && !getenv("WF_LARGE_ONLY"))
        return;
    wf_cuda_set(view, 0, gpu_stream());
    if (v->dtype == WF_BF16 || v->dtype == WF_F32)
        wf_cuda_noise(view->data, (int)v->dtype, wf_shape_count(v->shape), (uint32_t)v->id + 1,
                      gpu_stream());
}

/* What no node after number `node` reads. */
static void give_back(struct large *l, size_t node)
{
    for (size_t v = 0; v < l->g->n_values; v++)
        if (l->views[v].data && l->last[v] <= node) {
            gpu_free(l->views[v].data);
            l->views[v].data = NULL;
        }
}

/* A part of a tensor of the GPU, on the host. */
static struct wf_view fetch(const struct wf_view *from, struct wf_region box)
{
    if (wf_region_is_empty(box))
        return (struct wf_view){ .box = box, .dtype = from->dtype };
    const size_t bytes = (size_t)wf_region_count(box) * wf_dtype_size(from->dtype);
    void *const packed = gpu_alloc(bytes), *const host = malloc(bytes);
    assert_non_null(host);
    const struct wf_view part = wf_view_part(*from, box);
    const struct wf_view to = wf_view_dense(packed, from->dtype, box);
    wf_cuda_copy(&to, &part, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(host, packed, bytes);
    gpu_free(packed);
    return wf_view_dense(host, from->dtype, box);
}

/* --- running --- */

/* The preferred kernel, or the one that stands for it where that cannot do it. */
static const struct wf_kernel *find(const struct wf_node *node, bool preferred)
{
    const struct wf_kernel *best = NULL;
    for (const struct wf_kernel *const *rows = wf_cuda_own_kernels; *rows; rows++)
        for (const struct wf_kernel *k = *rows; k->op; k++)
            if (wf_kernel_takes(k, node) &&
                (!best || (k->preference > best->preference) == preferred))
                best = k;
    if (!best)
        fail_msg("a node '%s' has no kernel", node->op->name);
    return best;
}

/* What the work reads of input i; without memory where that is nothing. */
static struct wf_view read_of(const struct large *l, const struct wf_node *node, int i,
                              struct wf_region work)
{
    if (!node->in[i])
        return (struct wf_view){ 0 };
    const struct wf_view *const from = &l->views[node->in[i]->id];
    const struct wf_region box = wf_region_intersect(wf_op_reads(node, i, work), from->box);
    return wf_region_is_empty(box) ? (struct wf_view){ 0 } : wf_view_part(*from, box);
}

/* The kernel over `work` of the node into `out`, and what it is called. */
static void run(const struct large *l, const struct wf_kernel *kernel, const struct wf_node *node,
                struct wf_region work, const struct wf_view *out, char name[WF_IMPLEMENTATION])
{
    struct wf_view in[MAX_VIEWS] = { 0 }, no_in[MAX_VIEWS], no_out[MAX_VIEWS] = { 0 };
    for (int i = 0; i < node->n_in; i++)
        in[i] = read_of(l, node, i, work);
    memcpy(no_in, in, sizeof in);
    memcpy(no_out, out, (size_t)node->n_out * sizeof *out);
    for (int i = 0; i < MAX_VIEWS; i++)
        no_in[i].data = no_out[i].data = NULL;
    struct wf_prepare p = { .node = node,
                            .work = work,
                            .in = no_in,
                            .out = no_out,
                            .threads = 1,
                            .context = gpu_context() };
    struct wf_err err = { 0 };
    if (kernel->prepare && !kernel->prepare(&p, &err))
        fail_msg("'%s': %s", node->name, err.text);
    void *const scratch = gpu_alloc(p.scratch_bytes);
    kernel->run(&(struct wf_call){ .node = node,
                                   .work = work,
                                   .in = in,
                                   .out = out,
                                   .scratch = scratch,
                                   .prepared = p.prepared,
                                   .context = gpu_context() });
    if (!gpu_finish())
        fail_msg("'%s' (%s): the GPU reports an error", node->name, node->op->name);
    gpu_free(scratch);
    if (kernel->release)
        kernel->release(p.prepared);
    (void)snprintf(name, WF_IMPLEMENTATION, "%s", p.implementation[0] ? p.implementation : "own");
}

/* --- comparing --- */

/* Differences by the largest number that is wanted. */
struct apart {
    double most;   /* infinite where one is no number */
    double beyond; /* what is left of it where a number may be off by so much of itself */
};

static void see(struct apart *worst, const struct wf_view *got, const struct wf_view *want,
                double of_itself)
{
    double most = 0, beyond = 0, scale = 1e-30;
    for (struct wf_cursor c = wf_cursor(want->box); wf_cursor_next(&c);) {
        const double y = wf_view_at(want, c.at), d = fabs(wf_view_at(got, c.at) - y);
        if (!isfinite(y) || !isfinite(d)) { /* wrong on both sides is wrong too */
            worst->most = worst->beyond = (double)INFINITY;
            return;
        }
        scale = fmax(scale, fabs(y));
        most = fmax(most, d);
        beyond = fmax(beyond, d - of_itself * fabs(y));
    }
    worst->most = fmax(worst->most, most / scale);
    worst->beyond = fmax(worst->beyond, beyond / scale);
}

/* What a result may be off: the rounding of its own number, and what sums lose on the way. */
struct bound {
    double of_itself, of_largest;
};

static bool reads_narrow(const struct wf_node *node)
{
    bool narrow = false;
    for (int i = 0; i < node->n_in; i++)
        narrow = narrow || (node->in[i] && node->in[i]->dtype == WF_BF16);
    return narrow;
}

/*
 * A number in bf16 has 8 binary digits. Where both sides were rounded to them from nearly the same
 * number they are at most one apart: 2^-7 of it; a bias that is added to what was rounded before brings
 * that rounding along, 2^-8 of a number that may be larger than the result. A weight gradient may be
 * rounded to 8 digits before it becomes f32, while the strips' sum is not: 2^-8. Tensor cores cut off
 * digits when they add, by about 2^-24 of the sum for every 16 positions of the part that a block sums
 * up: that may take no more than the rounding does, 2^-8 of the largest. Both together stay below 1e-2.
 */
static struct bound allowed(const struct wf_node *node, const struct wf_kernel *kernel)
{
    const bool library = kernel->preference > 0;
    if (wf_op_sums_over(node) && library && reads_narrow(node))
        return (struct bound){ 0x1p-8, 0x1p-8 };
    if (node->out[0]->dtype == WF_BF16)
        return (struct bound){ 0x1p-7, library && node->n_in > 2 && node->in[2] ? 0x1p-8 : 1e-5 };
    return (struct bound){ .of_largest = 1e-5 };
}

/* A few pixels at the beginning, in the middle, at the end. */
static struct wf_region sample(struct wf_region whole, int which)
{
    struct wf_region r = whole;
    const int64_t width = whole.hi[WF_W], channels = whole.hi[WF_C];
    const int64_t pixels = wf_region_count(whole) / channels;
    const int64_t middle = (INT64_C(1) << 31) / channels;
    const int64_t at = which == 0 ? 0 : which == 1 && middle < pixels ? middle : pixels - 1;
    if (pixels <= 4096) /* a weight, statistics */
        return r;
    r.lo[WF_H] = at / width;
    r.lo[WF_W] = wf_max(0, wf_min(at % width, width - 3));
    r.hi[WF_H] = wf_min(r.lo[WF_H] + 2, whole.hi[WF_H]);
    r.hi[WF_W] = wf_min(r.lo[WF_W] + 3, width);
    return r;
}

static void check_sample(const struct large *l, const struct wf_node *node, int which,
                         struct apart *worst)
{
    const struct wf_region work = sample(wf_shape_region(wf_op_domain(node)->shape), which);
    struct wf_view in[MAX_VIEWS] = { 0 }, out[MAX_VIEWS] = { 0 };
    const double of_itself = allowed(node, find(node, true)).of_itself;
    for (int i = 0; i < node->n_in; i++) {
        const struct wf_view from = read_of(l, node, i, work);
        if (from.data)
            in[i] = fetch(&from, from.box);
    }
    for (int o = 0; o < node->n_out; o++) {
        const struct wf_value *const v = node->out[o];
        const struct wf_region box = v->replicated ? wf_shape_region(v->shape) : work;
        void *const data = calloc((size_t)wf_region_count(box), wf_dtype_size(v->dtype));
        assert_non_null(data);
        out[o] = wf_view_dense(data, v->dtype, box);
    }
    node->op->reference(&(struct wf_call){ .node = node, .work = work, .in = in, .out = out });
    for (int o = 0; o < node->n_out; o++) {
        const struct wf_view got = fetch(&l->views[node->out[o]->id], out[o].box);
        see(worst, &got, &out[o], of_itself);
        free(got.data);
        free(out[o].data);
    }
    for (int i = 0; i < node->n_in; i++)
        free(in[i].data);
}

/* A sum over the image against that of its strips. */
static void check_sum(const struct large *l, const struct wf_node *node, struct apart *worst)
{
    const struct wf_region whole = wf_shape_region(wf_op_domain(node)->shape);
    const int64_t strips = whole.hi[WF_H] < STRIPS ? 1 : STRIPS;
    struct wf_view sum[MAX_VIEWS], part[MAX_VIEWS] = { 0 };
    for (int o = 0; o < node->n_out; o++) {
        const struct wf_view *const out = &l->views[node->out[o]->id];
        part[o] = *out;
        part[o].data = gpu_alloc(wf_view_bytes(out));
        sum[o] = wf_view_dense(calloc((size_t)wf_region_count(out->box), sizeof(double)), WF_F64,
                               out->box);
        assert_non_null(sum[o].data);
    }
    for (int64_t s = 0; s < strips; s++) {
        struct wf_region work = whole;
        char name[WF_IMPLEMENTATION];
        work.lo[WF_H] = whole.hi[WF_H] * s / strips;
        work.hi[WF_H] = whole.hi[WF_H] * (s + 1) / strips;
        run(l, find(node, false), node, work, part, name);
        for (int o = 0; o < node->n_out; o++) {
            const struct wf_view host = fetch(&part[o], part[o].box);
            for (struct wf_cursor c = wf_cursor(host.box); wf_cursor_next(&c);)
                wf_view_set(&sum[o], c.at, wf_view_at(&sum[o], c.at) + wf_view_at(&host, c.at));
            free(host.data);
        }
    }
    for (int o = 0; o < node->n_out; o++) {
        const struct wf_view got = fetch(&l->views[node->out[o]->id], sum[o].box);
        see(worst, &got, &sum[o], allowed(node, find(node, true)).of_itself);
        free(got.data);
        free(sum[o].data);
        gpu_free(part[o].data);
    }
}

static bool is_wanted(const struct wf_node *node)
{
    const char *at = getenv("WF_LARGE_ONLY");
    const size_t length = strlen(node->name);
    for (bool only = at != NULL; only && at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, node->name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    }
    return !getenv("WF_LARGE_ONLY");
}

static void check_node(struct large *l, size_t k)
{
    const struct wf_node *const node = l->g->nodes[k];
    struct wf_view out[MAX_VIEWS] = { 0 };
    char name[WF_IMPLEMENTATION];
    struct apart worst = { 0 };
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            take(l, node->in[i]);
    for (int o = 0; o < node->n_out; o++) {
        take(l, node->out[o]);
        out[o] = l->views[node->out[o]->id];
    }
    const struct wf_region whole = wf_shape_region(wf_op_domain(node)->shape);
    const double before = now();
    run(l, find(node, true), node, whole, out, name);
    if (wf_op_sums_over(node))
        check_sum(l, node, &worst);
    for (int s = 0; s < SAMPLES && !wf_op_sums_over(node); s++)
        check_sample(l, node, s, &worst);
    const struct bound may = allowed(node, find(node, true));
    const bool ok = worst.beyond <= may.of_largest;
    print_message("%-12s %-16s %-20s %.1e of %.2e elements, %.1f s%s\n", node->name, node->op->name,
                  name, worst.most, (double)wf_region_count(whole), now() - before,
                  ok ? "" : ": TOO FAR");
    if (!ok)
        print_message("    off by %g of the largest, by %g beyond %g of itself, allowed %g\n",
                      worst.most, worst.beyond, may.of_itself, may.of_largest);
    l->failed += !ok;
    give_back(l, k);
}

static void kernels__are_right_beyond_two_to_the_31_elements(void **state)
{
    struct large l = { 0 };
    (void)state;
    build(&l);
    for (size_t k = 0; k < l.g->n_nodes; k++)
        if (is_wanted(l.g->nodes[k]))
            check_node(&l, k);
    assert_int_equal(l.failed, 0);
    if (side() == SIDE && !getenv("WF_LARGE_ONLY"))
        assert_true(l.most > INT64_C(1) << 32);
    give_back(&l, l.g->n_nodes);
    free(l.views);
    free(l.last);
    wf_graph_free(l.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels__are_right_beyond_two_to_the_31_elements),
    };
    if (!gpu_start())
        return 77; /* not run: ctest shows it as skipped */
    if (side() == SIDE && gpu_room() < room_needed) {
        (void)printf("not run: %zu GiB are free on the GPU, %zu needed\n", gpu_room() >> 30,
                     room_needed >> 30);
        return 77;
    }
    gpu_step(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
