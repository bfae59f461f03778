/*
 * The convolutions of a U-Net step (base 32, 512 x 512, batch 1) through the CPU's kernels: time,
 * GFLOP/s, scratch and implementation of each, forward (f), gradient in x (d) and in the weight (w).
 *
 * Best of several runs, on the thread count of OpenMP. The last line is the sum over a whole step.
 * Not a test:
 *
 *     OMP_NUM_THREADS=2 build/bench/cpu_conv f32|bf16 [part of a layer's name]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "device/device.h"
#include "ops/attrs.h"
#include "ops/spatial.h"

enum { RUNS = 8, PASSES = 3 };

struct layer {
    const char *kind; /* conv3, conv1, up */
    int64_t size, in, out;
    int times; /* in a step */
};

static const struct layer layers[] = {
    { "conv3", 512, 3, 32, 1 },   { "conv3", 512, 32, 32, 2 },   { "conv3", 512, 64, 32, 1 },
    { "conv3", 256, 32, 64, 1 },  { "conv3", 256, 64, 64, 2 },   { "conv3", 256, 128, 64, 1 },
    { "conv3", 128, 64, 128, 1 }, { "conv3", 128, 128, 128, 2 }, { "conv3", 128, 256, 128, 1 },
    { "conv3", 64, 128, 256, 1 }, { "conv3", 64, 256, 256, 2 },  { "conv3", 64, 512, 256, 1 },
    { "conv3", 32, 256, 512, 1 }, { "conv3", 32, 512, 512, 1 },  { "up", 32, 512, 256, 1 },
    { "up", 64, 256, 128, 1 },    { "up", 128, 128, 64, 1 },     { "up", 256, 64, 32, 1 },
    { "conv1", 512, 32, 2, 1 },
};

static double now(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct wf_value *value(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                              struct wf_shape shape, bool replicated)
{
    struct wf_value *v = wf_input(g, name, dtype, shape);
    v->replicated = replicated;
    return v;
}

/* The three nodes in terms of a convolution from `x` (the large side of `up`) to `y`. */
static struct wf_node *node_of(struct wf_graph *g, const struct layer *l, enum wf_dtype dtype,
                               int pass)
{
    const bool up = strcmp(l->kind, "up") == 0;
    const int64_t kernel = up ? 2 : l->kind[4] - '0', pad = up ? 0 : kernel / 2, s = up ? 2 : 1;
    const int64_t channels = up ? l->out : l->in, filters = up ? l->in : l->out;
    struct wf_conv_attrs a = {
        { 1, s, s }, { 1, 1, 1 }, { 0, pad, pad }, { 0, pad, pad }, 1, { 0 }
    };
    struct wf_value *x =
        value(g, "x", dtype, WF_SHAPE(1, 1, s * l->size, s * l->size, channels), false);
    struct wf_value *y = value(g, "y", dtype, WF_SHAPE(1, 1, l->size, l->size, filters), false);
    struct wf_value *w = value(g, "w", dtype, WF_SHAPE(filters, 1, kernel, kernel, channels), true);
    struct wf_value *b = value(g, "b", WF_F32, WF_SHAPE(1, 1, 1, 1, l->out), true);
    const int64_t extents[][3] = { { 0, 0, 0 },
                                   { 1, s * l->size, s * l->size },
                                   { 1, kernel, kernel } };
    const int which = pass == 2 ? 2 : (pass == 1) != up; /* conv, convt, conv_wgrad */
    memcpy(a.extent, extents[which], sizeof a.extent);
    if (pass == 2)
        return wf_node_add(g, &wf_op_conv_wgrad, "w", &a, 2, (struct wf_value *[]){ x, y });
    return wf_node_add(g, which ? &wf_op_convt : &wf_op_conv, "c", &a, 3,
                       (struct wf_value *[]){ which ? y : x, w, pass == 0 ? b : NULL });
}

static struct wf_view view_of(const struct wf_value *v)
{
    struct wf_view view = wf_view_dense(NULL, v->dtype, wf_shape_region(v->shape));
    view.data = wf_device_cpu.memory.alloc(NULL, wf_view_bytes(&view));
    WF_BUG_ON(!view.data, "out of memory");
    for (int64_t k = 0; k < wf_shape_count(v->shape); k++)
        wf_dtype_put(v->dtype, view.data, k, (double)((k * 37) % 101) / 50 - 1);
    return view;
}

/* Milliseconds of the best run. */
static double time_node(const struct layer *l, const struct wf_node *node, char pass)
{
    struct wf_view in[3] = { 0 }, out = view_of(node->out[0]);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            in[i] = view_of(node->in[i]);
    const struct wf_region work = wf_shape_region(wf_op_domain(node)->shape);
    const struct wf_kernel *kernel = wf_device_cpu.find(node);
    struct wf_prepare p = { .node = node, .work = work, .in = in, .out = &out };
#ifdef _OPENMP
    p.threads = omp_get_max_threads();
#endif
    struct wf_err err = { 0 };
    const double start = now();
    if (!kernel->prepare(&p, &err))
        WF_BUG_ON(true, "%s", err.text);
    const double made = now() - start;
    void *scratch = wf_device_cpu.memory.alloc(NULL, p.scratch_bytes);
    const struct wf_call call = { .node = node,
                                  .work = work,
                                  .in = in,
                                  .out = &out,
                                  .scratch = scratch,
                                  .prepared = p.prepared };
    double best = 1e30;
    for (int i = 0; i < RUNS; i++) {
        const double t = now();
        kernel->run(&call);
        const double took = now() - t;
        best = took < best ? took : best;
    }
    printf("%-5s %4d %4d -> %-4d x%d %c %8.2f ms %6.0f GFLOP/s %7.1f MB %6.1f ms to make  %s\n",
           l->kind, (int)l->size, (int)l->in, (int)l->out, l->times, pass, best,
           wf_op_flops(node, work) / best * 1e-6, (double)p.scratch_bytes * 1e-6, made,
           p.implementation);
    (void)fflush(stdout);
    if (kernel->release)
        kernel->release(p.prepared);
    wf_device_cpu.memory.free(NULL, scratch, p.scratch_bytes);
    wf_device_cpu.memory.free(NULL, out.data, wf_view_bytes(&out));
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            wf_device_cpu.memory.free(NULL, in[i].data, wf_view_bytes(&in[i]));
    return best;
}

int main(int argc, char **argv)
{
    enum wf_dtype dtype = WF_F32;
    if (argc < 2 || !wf_dtype_parse(argv[1], &dtype)) {
        fprintf(stderr, "usage: cpu_conv f32|bf16 [part of a layer's name]\n");
        return 2;
    }
    double sum[PASSES] = { 0 };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer *l = &layers[i];
        char name[64];
        snprintf(name, sizeof name, "%s %d %d->%d", l->kind, (int)l->size, (int)l->in, (int)l->out);
        if (argc > 2 && !strstr(name, argv[2]))
            continue;
        for (int pass = 0; pass < PASSES; pass++) {
            struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
            const struct wf_node *node = node_of(g, l, dtype, pass);
            WF_BUG_ON(!node, "%s: %s", name, g->err.text);
            const double ms = time_node(l, node, "fdw"[pass]);
            /* Nobody asks for the gradient in the image itself. */
            sum[pass] += pass == 1 && l->in == 3 ? 0 : ms * l->times;
            wf_graph_free(g);
        }
    }
    printf("f %.0f, d %.0f, w %.0f, all %.0f ms\n", sum[0], sum[1], sum[2],
           sum[0] + sum[1] + sum[2]);
    return 0;
}
