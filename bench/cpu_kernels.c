/*
 * How fast the CPU kernels move memory: GB/s of each kernel on 1 x 512 x 512 x 32, f32 and bf16.
 *
 * Bytes are those of all inputs and outputs, each counted once; a plain copy stands first, for
 * comparison. Best of several runs. Not a test:
 *
 *     OMP_NUM_THREADS=2 build/bench/cpu_kernels [part of an operator's name]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/device.h"
#include "ops/attrs.h"
#include "ops/build.h"

enum { RUNS = 7, MAX_IN = 8 };

static double now(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct wf_view *views_of(const struct wf_graph *g)
{
    struct wf_view *views = calloc(g->n_values, sizeof *views);
    WF_BUG_ON(!views, "out of memory");
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        views[i] = wf_view_dense(NULL, v->dtype, wf_shape_region(v->shape));
        views[i].data = wf_device_cpu.memory.alloc(NULL, wf_view_bytes(&views[i]));
        WF_BUG_ON(!views[i].data, "out of memory");
        /* Not all alike, so that no branch is easier than in life; labels stay 0 and 1. */
        for (int64_t k = 0; k < wf_shape_count(v->shape); k++)
            wf_dtype_put(v->dtype, views[i].data, k,
                         v->dtype == WF_I32 ? (double)(k % 2) : (double)((k * 37) % 101) / 50 - 1);
    }
    return views;
}

static void time_node(const struct wf_node *node, const struct wf_view *views)
{
    const struct wf_kernel *kernel = wf_device_cpu.find(node);
    struct wf_view in[MAX_IN] = { 0 }, out[MAX_IN] = { 0 };
    double bytes = 0, best = 1e30;
    for (int i = 0; i < node->n_in && i < MAX_IN; i++)
        if (node->in[i]) {
            in[i] = views[node->in[i]->id];
            bytes += (double)wf_view_bytes(&in[i]);
        }
    for (int o = 0; o < node->n_out && o < MAX_IN; o++) {
        out[o] = views[node->out[o]->id];
        bytes += (double)wf_view_bytes(&out[o]);
    }
    if (bytes < 1e6 || wf_kernel_is_reference(kernel))
        return;
    struct wf_prepare p = { .node = node,
                            .work = wf_shape_region(wf_op_domain(node)->shape),
                            .in = in,
                            .out = out,
                            .threads = 2 };
    struct wf_err err = { 0 };
    WF_BUG_ON(kernel->prepare && !kernel->prepare(&p, &err), "%s", err.text);
    void *scratch = wf_device_cpu.memory.alloc(NULL, p.scratch_bytes);
    const struct wf_call call = { .node = node,
                                  .work = p.work,
                                  .in = in,
                                  .out = out,
                                  .scratch = scratch,
                                  .prepared = p.prepared };
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        kernel->run(&call);
        const double took = now() - start;
        best = took < best ? took : best;
    }
    if (kernel->release)
        kernel->release(p.prepared);
    wf_device_cpu.memory.free(NULL, scratch, p.scratch_bytes);
    printf("%-16s %-5s %8.2f ms %7.1f GB/s\n", node->op->name, wf_dtype_name(node->in[0]->dtype),
           1e3 * best, 1e-9 * bytes / best);
}

/* One chain that meets every kernel, forward and backward. */
static struct wf_graph *build(enum wf_dtype dtype)
{
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = dtype });
    const struct wf_shape shape = WF_SHAPE(1, 1, 512, 512, 32);
    struct wf_value *x = wf_input(g, "x", dtype, shape);
    struct wf_value *t = wf_input(g, "t", WF_I32, WF_SHAPE(1, 1, 512, 512, 1));
    const struct wf_pool two = { .name = "p", .kernel = { 1, 2, 2 } };
    const int64_t up[3] = { 1, 512, 512 }, one[3] = { 0, 1, 1 };
    struct wf_value *y = wf_batch_norm(g, x, &(struct wf_norm){ .name = "n", .act = WF_RELU });
    y = wf_upsample(g, wf_max_pool(g, y, &two), "u", up, WF_LINEAR);
    y = wf_upsample(g, wf_avg_pool(g, y, &two), "v", up, WF_NEAREST);
    y = wf_activation(g, wf_add(g, x, y), "a", WF_RELU, 0);
    y = wf_activation(g, wf_multiply(g, x, y), "s", WF_SILU, 0);
    y = wf_activation(g, y, "h", WF_TANH, 0);
    y = wf_pad(g, wf_dropout(g, y, "d", 0.2), "pad", one, one, WF_PAD_ZERO);
    y = wf_slice(g, y, (struct wf_region){ { 0, 0, 1, 1, 0 }, { 1, 1, 513, 513, 32 } });
    y = wf_layer_norm(g, wf_scale(g, y, 2), &(struct wf_norm){ .name = "l" });
    struct wf_value *both[] = { x, y };
    y = wf_slice(g, wf_concat(g, "c", 2, both), wf_shape_region(shape));
    y = wf_softmax(g, y, "soft");
    y = wf_slice(g, y, (struct wf_region){ { 0 }, { 1, 1, 512, 512, 2 } });
    y = wf_cross_entropy(g, y, t, &(struct wf_loss){ .name = "ce" });
    struct wf_err err = { 0 };
    struct wf_value *dx;
    if (!wf_graph_ok(g, &err) || !wf_graph_grad(g, y, NULL, 1, &x, &dx, &err)) {
        (void)fprintf(stderr, "cpu_kernels: %s\n", err.text);
        exit(1);
    }
    return g;
}

static void time_copy(enum wf_dtype dtype)
{
    const struct wf_region box = wf_shape_region(WF_SHAPE(1, 1, 512, 512, 32));
    struct wf_view a = wf_view_dense(NULL, dtype, box), b = a;
    const size_t bytes = wf_view_bytes(&a);
    a.data = wf_device_cpu.memory.alloc(NULL, bytes);
    b.data = wf_device_cpu.memory.alloc(NULL, bytes);
    WF_BUG_ON(!a.data || !b.data, "out of memory");
    double best = 1e30;
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        wf_device_cpu.memory.copy(NULL, &b, &a);
        const double took = now() - start;
        best = took < best ? took : best;
    }
    printf("%-16s %-5s %8.2f ms %7.1f GB/s\n", "copy", wf_dtype_name(dtype), 1e3 * best,
           2e-9 * (double)bytes / best);
    wf_device_cpu.memory.free(NULL, a.data, bytes);
    wf_device_cpu.memory.free(NULL, b.data, bytes);
}

int main(int argc, char **argv)
{
    static const enum wf_dtype dtypes[] = { WF_F32, WF_BF16 };
    for (int d = 0; d < 2; d++) {
        struct wf_graph *g = build(dtypes[d]);
        struct wf_view *views = views_of(g);
        time_copy(dtypes[d]);
        for (size_t i = 0; i < g->n_nodes; i++)
            if (argc < 2 || strstr(g->nodes[i]->op->name, argv[1]))
                time_node(g->nodes[i], views);
        for (size_t i = 0; i < g->n_values; i++)
            wf_device_cpu.memory.free(NULL, views[i].data, wf_view_bytes(&views[i]));
        free(views);
        wf_graph_free(g);
    }
    return 0;
}
