/*
 * How fast our own CUDA kernels move memory, at the sizes of a U-Net of base 64.
 *
 *     bench_gpu_kernels [extent [dtype]]            1024 bf16
 *
 * One line per kernel and level: median of several runs between events, GB/s (all inputs and outputs
 * counted once), and that as a part of what a plain copy of the same tensor reaches. Levels whose
 * tensors fit the GPU's cache (60 MB on an H200) can be faster than its memory. Then the sum of a
 * training step's norms against the time that its bytes need, and the optimiser's sweep.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"
#include "device/device.h"
#include "ops/attrs.h"
#include "ops/build.h"

enum { WARM = 3, RUNS = 21, MAX_IN = 8, LEVELS = 5 };

struct bench {
    struct wf_cuda *cuda;
    cudaEvent_t start, stop;
    double copy; /* bytes per second, of the level */
    double norms, norm_bytes;
};

static void check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    (void)fprintf(stderr, "bench_gpu_kernels: %s: %s\n", what, cudaGetErrorString(status));
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median seconds of what `run` enqueues. */
static double seconds(struct bench *b, void (*run)(void *), void *context)
{
    float ms[RUNS];
    for (int i = -WARM; i < RUNS; i++) {
        check(cudaEventRecord(b->start, b->cuda->stream), "event");
        run(context);
        check(cudaEventRecord(b->stop, b->cuda->stream), "event");
        check(cudaEventSynchronize(b->stop), "running");
        if (i >= 0)
            check(cudaEventElapsedTime(&ms[i], b->start, b->stop), "time");
    }
    qsort(ms, RUNS, sizeof *ms, by_size);
    return 1e-3 * (double)ms[RUNS / 2];
}

static void *take(size_t bytes)
{
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes ? bytes : 1), "memory");
    return memory;
}

/* Numbers of both signs, small; labels 0 and 1. */
static void fill(const struct wf_view *view)
{
    enum { PATTERN = 1009 };
    const size_t size = wf_dtype_size(view->dtype), bytes = wf_view_bytes(view);
    char *const host = malloc(bytes + 1);
    WF_BUG_ON(!host, "out of memory");
    for (size_t i = 0; i < bytes / size; i++)
        if (i < PATTERN)
            wf_dtype_put(view->dtype, host, (int64_t)i,
                         view->dtype == WF_I32 || view->dtype == WF_U8
                             ? (double)(i % 2)
                             : (double)((i * 37) % 101) / 50 - 1);
        else
            memcpy(host + i * size, host + (i - PATTERN) * size, size);
    check(cudaMemcpy(view->data, host, bytes, cudaMemcpyHostToDevice), "filling");
    free(host);
}

static void report(struct bench *b, const char *what, const char *level, double took, double bytes)
{
    const double rate = bytes / took;
    printf("%-18s %-14s %9.1f us %8.0f GB/s %5.0f%% of a copy\n", what, level, 1e6 * took,
           1e-9 * rate, b->copy > 0 ? 100 * rate / b->copy : 100.0);
}

/* --- operators --- */

struct one {
    const struct wf_kernel *kernel;
    struct wf_call call;
};

static void run_one(void *context)
{
    const struct one *const o = context;
    o->kernel->run(&o->call);
}

static bool is_norm(const char *op)
{
    return strncmp(op, "norm", 4) == 0 || strcmp(op, "moments") == 0 || strcmp(op, "stats") == 0;
}

static void time_node(struct bench *b, const struct wf_node *node, const struct wf_view *views,
                      const char *level, int times)
{
    struct wf_view in[MAX_IN] = { 0 }, out[MAX_IN] = { 0 };
    double bytes = 0;
    for (int i = 0; i < node->n_in && i < MAX_IN; i++)
        if (node->in[i]) {
            in[i] = views[node->in[i]->id];
            bytes += (double)wf_view_bytes(&in[i]);
        }
    for (int o = 0; o < node->n_out && o < MAX_IN; o++) {
        out[o] = views[node->out[o]->id];
        bytes += (double)wf_view_bytes(&out[o]);
    }
    struct wf_err err = { 0 };
    struct one one = { .kernel = wf_device_cuda.find(node) };
    struct wf_prepare p = { .node = node,
                            .work = wf_shape_region(wf_op_domain(node)->shape),
                            .in = in,
                            .out = out,
                            .threads = 1,
                            .context = &b->cuda->base };
    WF_BUG_ON(!one.kernel, "no kernel for '%s'", node->op->name);
    WF_BUG_ON(one.kernel->prepare && !one.kernel->prepare(&p, &err), "%s", err.text);
    void *const scratch = take(p.scratch_bytes);
    one.call = (struct wf_call){ .node = node,
                                 .work = p.work,
                                 .in = in,
                                 .out = out,
                                 .scratch = scratch,
                                 .prepared = p.prepared,
                                 .context = &b->cuda->base };
    const double took = seconds(b, run_one, &one);
    report(b, node->op->name, level, took, bytes);
    if (is_norm(node->op->name)) {
        b->norms += times * took;
        b->norm_bytes += times * bytes;
    }
    if (one.kernel->release)
        one.kernel->release(p.prepared);
    check(cudaFree(scratch), "memory");
}

/* What a level runs beside convolutions: norm, pooling, concatenation, and what comes back. */
static struct wf_graph *build_level(int64_t extent, int64_t channels, enum wf_dtype dtype)
{
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = dtype });
    const struct wf_shape shape = WF_SHAPE(1, 1, extent, extent, channels);
    struct wf_value *x = wf_input(g, "x", dtype, shape), *dx;
    struct wf_value *y = wf_batch_norm(g, x, &(struct wf_norm){ .name = "n", .act = WF_RELU });
    y = wf_max_pool(g, y, &(struct wf_pool){ .name = "p", .kernel = { 1, 2, 2 } });
    struct wf_value *dy = y ? wf_input(g, "dy", dtype, y->shape) : NULL;
    struct wf_err err = { 0 };
    if (!wf_graph_ok(g, &err) || !wf_graph_grad(g, y, dy, 1, &x, &dx, &err)) {
        (void)fprintf(stderr, "bench_gpu_kernels: %s\n", err.text);
        exit(1);
    }
    return g;
}

/* The loss: two classes, and the image padded to 8 channels. */
static struct wf_graph *build_ends(int64_t extent, enum wf_dtype dtype)
{
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = dtype });
    struct wf_value *x = wf_input(g, "x", dtype, WF_SHAPE(1, 1, extent, extent, 2)), *dx;
    struct wf_value *t = wf_input(g, "t", WF_I32, WF_SHAPE(1, 1, extent, extent, 1));
    struct wf_value *y = wf_cross_entropy(g, x, t, &(struct wf_loss){ .name = "ce" });
    struct wf_err err = { 0 };
    if (!wf_graph_ok(g, &err) || !wf_graph_grad(g, y, NULL, 1, &x, &dx, &err)) {
        (void)fprintf(stderr, "bench_gpu_kernels: %s\n", err.text);
        exit(1);
    }
    return g;
}

static void time_graph(struct bench *b, struct wf_graph *g, const char *level, int times)
{
    struct wf_view *const views = calloc(g->n_values, sizeof *views);
    WF_BUG_ON(!views, "out of memory");
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        views[i] = wf_view_dense(NULL, v->dtype, wf_shape_region(v->shape));
        views[i].data = take(wf_view_bytes(&views[i]));
        fill(&views[i]);
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        time_node(b, g->nodes[i], views, level, times);
    for (size_t i = 0; i < g->n_values; i++)
        check(cudaFree(views[i].data), "memory");
    free(views);
    wf_graph_free(g);
}

/* --- copies --- */

struct pair {
    struct wf_view to, from;
    struct CUstream_st *stream;
};

static void run_copy(void *context)
{
    const struct pair *const p = context;
    wf_cuda_copy(&p->to, &p->from, p->stream);
}

static void run_fit(void *context)
{
    const struct pair *const p = context;
    wf_cuda_fit(&p->to, &p->from, p->stream);
}

/* Packed, and into one half of the channels of a concatenation. */
static void time_copies(struct bench *b, int64_t extent, int64_t channels, enum wf_dtype dtype,
                        const char *level)
{
    const struct wf_region box = wf_shape_region(WF_SHAPE(1, 1, extent, extent, channels));
    const struct wf_region twice = wf_shape_region(WF_SHAPE(1, 1, extent, extent, 2 * channels));
    struct pair p = { .from = wf_view_dense(NULL, dtype, box),
                      .to = wf_view_dense(NULL, dtype, box),
                      .stream = b->cuda->stream };
    struct wf_view wide = wf_view_dense(NULL, dtype, twice);
    const double bytes = 2 * (double)wf_view_bytes(&p.from);
    p.from.data = take(wf_view_bytes(&p.from));
    wide.data = take(wf_view_bytes(&wide));
    fill(&p.from);
    p.to.data = wide.data;
    double took = seconds(b, run_copy, &p);
    b->copy = bytes / took;
    report(b, "copy", level, took, bytes);
    p.to = wf_view_part(wide, box);
    took = seconds(b, run_copy, &p);
    report(b, "copy to a slice", level, took, bytes);
    check(cudaFree(p.from.data), "memory");
    check(cudaFree(wide.data), "memory");
}

/* Channels padded, and cropped, as convolutions in 16 bits need it. */
static void time_fit(struct bench *b, int64_t extent, enum wf_dtype dtype, int64_t from, int64_t to)
{
    const struct wf_region source = wf_shape_region(WF_SHAPE(1, 1, extent, extent, from));
    const struct wf_region fitted = wf_shape_region(WF_SHAPE(1, 1, extent, extent, to));
    struct pair p = { .from = wf_view_dense(NULL, dtype, source),
                      .to = wf_view_dense(NULL, dtype, fitted),
                      .stream = b->cuda->stream };
    char level[64];
    (void)snprintf(level, sizeof level, "%lld to %lld", (long long)from, (long long)to);
    p.from.data = take(wf_view_bytes(&p.from));
    p.to.data = take(wf_view_bytes(&p.to));
    fill(&p.from);
    const double bytes = (double)wf_view_bytes(&p.from) + (double)wf_view_bytes(&p.to);
    report(b, from < to ? "pad channels" : "crop channels", level, seconds(b, run_fit, &p), bytes);
    check(cudaFree(p.from.data), "memory");
    check(cudaFree(p.to.data), "memory");
}

/* --- the optimiser --- */

struct sweep {
    const struct wf_updater *updater;
    void *prepared;
    struct wf_update u;
};

static void run_sweep(void *context)
{
    const struct sweep *const s = context;
    s->updater->update(s->prepared, &s->u);
}

/* Adam on one tensor of a U-Net's 31 million parameters. */
static void time_update(struct bench *b)
{
    enum {
        COUNT = 31 * 1000 * 1000 / WF_UPDATE_PIECE * WF_UPDATE_PIECE,
        PIECES = COUNT / WF_UPDATE_PIECE
    };
    const struct wf_update_tensor tensor = { 0, COUNT, true, 0, PIECES };
    struct wf_update_piece *const pieces = calloc(PIECES, sizeof *pieces);
    WF_BUG_ON(!pieces, "out of memory");
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct wf_update_piece){ (int64_t)i * WF_UPDATE_PIECE, WF_UPDATE_PIECE, 0 };
    const struct wf_update_layout layout = { 1, PIECES, &tensor, pieces };
    struct sweep s = { .updater = wf_device_cuda.updater };
    s.prepared = s.updater->prepare(&b->cuda->base, &layout);
    WF_BUG_ON(!s.prepared, "no memory");
    float *const all = take((size_t)4 * COUNT * sizeof(float));
    check(cudaMemset(all, 0, (size_t)4 * COUNT * sizeof(float)), "filling");
    s.u = (struct wf_update){ .rule = WF_ADAM,
                              .scale = 1,
                              .lr = 1e-3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .rest1 = 0.1f,
                              .rest2 = 0.001f,
                              .eps = 1e-8f,
                              .correct1 = 1,
                              .correct2 = 1,
                              .param = all,
                              .grad = all + COUNT,
                              .state = { all + 2 * (size_t)COUNT, all + 3 * (size_t)COUNT } };
    report(b, "adam", "31.0M", seconds(b, run_sweep, &s), 28.0 * COUNT);
    s.updater->release(s.prepared);
    check(cudaFree(all), "memory");
    free(pieces);
}

int main(int argc, char **argv)
{
    const int64_t extent = argc > 1 ? atoll(argv[1]) : 1024;
    enum wf_dtype dtype = WF_BF16;
    struct wf_err err = { 0 };
    struct wf_context *context;
    struct bench b = { 0 };
    if ((argc > 2 && !wf_dtype_parse(argv[2], &dtype)) || extent < 16) {
        (void)fprintf(stderr, "usage: bench_gpu_kernels [extent [dtype]]\n");
        return 2;
    }
    if (!wf_device_open(&wf_device_cuda, &(struct wf_device_options){ .cache = "" }, &context,
                        &err)) {
        (void)fprintf(stderr, "bench_gpu_kernels: %s\n", err.text);
        return 1;
    }
    b.cuda = wf_cuda_of(context);
    check(cudaEventCreate(&b.start), "event");
    check(cudaEventCreate(&b.stop), "event");
    double memory = 0;
    for (int i = 0; i < LEVELS; i++) {
        const int64_t side = extent >> i, channels = (int64_t)64 << i;
        char level[64];
        (void)snprintf(level, sizeof level, "%lldx%lldx%lld", (long long)side, (long long)side,
                       (long long)channels);
        time_copies(&b, side, channels, dtype, level);
        memory = i == 0 ? b.copy : memory;
        time_graph(&b, build_level(side, channels, dtype), level, i + 1 < LEVELS ? 4 : 2);
        if (i == 0) {
            time_graph(&b, build_ends(side, dtype), "2 classes", 0);
            time_fit(&b, side, dtype, 3, 8);
            time_fit(&b, side, dtype, 20, 24);
            time_fit(&b, side, dtype, 24, 20);
        }
    }
    b.copy = memory;
    time_update(&b);
    printf("norms of a step: %.2f ms, %.2f ms at a copy's rate of %.0f GB/s\n", 1e3 * b.norms,
           1e3 * b.norm_bytes / memory, 1e-9 * memory);
    wf_device_close(context);
    return 0;
}
