/*
 * The convolutions that only some problems can take (hopper_*.cu) against the ones
 * for any problem: several tiles for each block and less than one, borders of the image and of a part of
 * it, batches, biases, and results inside a larger buffer, of which nothing else may be written.
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

#include "device/cuda/hopper.h"
#include "device/cuda/kernels.h"
#include "device/cuda/patches.h"
#include "gpu.h"
#include "ops/attrs.h"
#include "ops/op.h"
#include "tensor/view.h"

extern const struct wf_kernel
    wf_cuda_kernels_conv[]; /* the table of the device finds it likewise */

struct problem {
    bool back, bias;
    int64_t n, d, h, w, in, out; /* of what is read and made */
    int64_t pad[2];              /* of the convolution, lower and upper, in H; W has them swapped */
    int64_t deep;                /* the kernel; 0: 1 */
    int64_t cut;    /* rows and columns of the result that are not made, on each side */
    int64_t beside; /* channels on each side of the result; 0: 8 */
    bool sliced;    /* what is read is a part of the channels of a larger tensor */
    int64_t front;  /* planes of the result that are not made; what is read is there wholly */
    int64_t up[3];  /* kernel and stride of windows side by side; 0: 3 x 3 and 1 */
};

/* The node of a problem, in a graph of its own. */
static const struct wf_node *node_of(struct wf_graph *g, const struct problem *p,
                                     enum wf_dtype dtype)
{
    const struct wf_op *const op = wf_op_find(p->back ? "convt" : "conv");
    const int64_t deep = p->up[0] ? p->up[0] : p->deep ? p->deep : 1;
    const int64_t high = p->up[0] ? p->up[1] : 3, wide = p->up[0] ? p->up[2] : 3;
    struct wf_conv_attrs a = { .stride = { 1, 1, 1 },
                               .dilation = { 1, 1, 1 },
                               .pad_lo = { deep > 1 ? p->pad[0] : 0, p->pad[0], p->pad[1] },
                               .pad_hi = { deep > 1 ? p->pad[1] : 0, p->pad[1], p->pad[0] },
                               .groups = 1 };
    a.extent[0] = p->d + deep - 1 - a.pad_lo[0] - a.pad_hi[0];
    a.extent[1] = p->h + 2 - p->pad[0] - p->pad[1];
    a.extent[2] = p->w + 2 - p->pad[0] - p->pad[1];
    const int64_t from[3] = { p->d, p->h, p->w };
    for (int i = 0; p->up[0] && i < 3; i++) {
        a.stride[i] = p->up[i];
        a.pad_lo[i] = a.pad_hi[i] = 0;
        a.extent[i] = from[i] * p->up[i];
    }
    const struct wf_shape weights = p->back ? WF_SHAPE(p->in, deep, high, wide, p->out)
                                            : WF_SHAPE(p->out, deep, high, wide, p->in);
    struct wf_value *in[3] = {
        wf_input(g, "x", dtype, WF_SHAPE(p->n, p->d, p->h, p->w, p->in)),
        wf_input(g, "w", dtype, weights),
        p->bias ? wf_input(g, "b", WF_F32, WF_SHAPE(1, 1, 1, 1, p->out)) : NULL,
    };
    in[1]->replicated = true;
    if (in[2])
        in[2]->replicated = true;
    const struct wf_node *const node = wf_node_add(g, op, "c", &a, 3, in);
    struct wf_err err = { 0 };
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    return node;
}

/* Packed memory of the box, full of noise. */
static struct wf_view noise(enum wf_dtype dtype, struct wf_region box, uint32_t seed)
{
    const size_t bytes = (size_t)wf_region_count(box) * wf_dtype_size(dtype);
    struct wf_view v = wf_view_dense(gpu_alloc(bytes), dtype, box);
    wf_cuda_noise(v.data, (int)dtype, wf_region_count(box), seed, gpu_stream());
    return v;
}

/* Of all that surrounds the result too: channels and a column on each side, NaN at first. */
struct result {
    struct wf_view all, view;
    uint16_t *host;
    size_t bytes;
};

static struct result result_new(enum wf_dtype dtype, struct wf_region work, int64_t beside)
{
    struct wf_region around = work;
    around.lo[WF_C] -= beside ? beside : 8;
    around.hi[WF_C] += beside ? beside : 8;
    around.lo[WF_W] -= 1;
    around.hi[WF_W] += 1;
    struct result r = { .bytes = (size_t)wf_region_count(around) * wf_dtype_size(dtype) };
    r.host = malloc(r.bytes);
    assert_non_null(r.host);
    memset(r.host, 0xff, r.bytes);
    r.all = wf_view_dense(gpu_alloc(r.bytes), dtype, around);
    r.view = wf_view_part(r.all, work);
    gpu_put(r.all.data, r.host, r.bytes);
    return r;
}

static void result_take(struct result *r)
{
    if (!gpu_finish())
        fail_msg("the GPU reports an error");
    gpu_get(r->host, r->all.data, r->bytes);
}

static void result_free(struct result *r)
{
    free(r->host);
    gpu_free(r->all.data);
}

static void compare(const struct problem *p, const struct result *got, const struct result *want)
{
    const int64_t count = wf_region_count(got->all.box);
    const enum wf_dtype dtype = got->all.dtype;
    /* Weight gradients are f32 to the end: their rounding to bf16 would show. */
    const double tolerance = dtype == WF_BF16 ? 1e-2 : dtype == WF_F32 ? 2e-4 : 2e-3;
    double scale = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = wf_dtype_get(dtype, want->host, i);
        scale = isnan(v) ? scale : fmax(scale, fabs(v));
    }
    assert_true(scale > 0);
    const struct wf_region box = got->all.box;
    for (int64_t i = 0; i < count; i++) {
        const double x = wf_dtype_get(dtype, got->host, i), y = wf_dtype_get(dtype, want->host, i);
        if ((isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * scale)
            continue;
        int64_t at[WF_AXES], rest = i;
        for (int a = WF_C; a >= WF_N; a--) {
            at[a] = box.lo[a] + rest % (box.hi[a] - box.lo[a]);
            rest /= box.hi[a] - box.lo[a];
        }
        fail_msg("%s%s %d to %d, cut %d, at (%d,%d,%d,%d,%d): %.9g, wanted %.9g",
                 p->back ? "transposed " : "", wf_dtype_name(dtype), (int)p->in, (int)p->out,
                 (int)p->cut, (int)at[0], (int)at[1], (int)at[2], (int)at[3], (int)at[4], x, y);
    }
}

static void check(const struct problem *p, enum wf_dtype dtype,
                  bool (*fits)(const struct wf_node *),
                  bool (*run)(const struct wf_call *, bool back))
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .compute = dtype });
    const struct wf_node *const node = node_of(g, p, dtype);
    assert_true(fits(node));
    struct wf_region work = wf_shape_region(node->out[0]->shape);
    for (int a = p->deep > 1 || p->up[0] > 1 ? WF_D : WF_H; a <= WF_W; a++) {
        work.lo[a] += p->cut;
        work.hi[a] -= p->cut;
    }
    work.lo[WF_D] += p->front;
    const struct wf_region image = wf_shape_region(node->in[0]->shape);
    const struct wf_region reads =
        p->front ? image : wf_region_intersect(wf_op_reads(node, 0, work), image);
    struct wf_view in[3] = { noise(dtype, reads, 1),
                             noise(dtype, wf_shape_region(node->in[1]->shape), 2) };
    if (p->bias)
        in[2] = noise(WF_F32, wf_shape_region(node->in[2]->shape), 3);
    struct result got = result_new(dtype, work, p->beside),
                  want = result_new(dtype, work, p->beside);
    struct wf_call call = {
        .node = node, .work = work, .in = in, .out = &got.view, .context = gpu_context()
    };
    assert_true(run(&call, p->back));
    result_take(&got);
    call.out = &want.view;
    (p->back ? wf_cuda_convt : wf_cuda_conv)(&call);
    result_take(&want);
    compare(p, &got, &want);
    result_free(&got);
    result_free(&want);
    for (int i = 0; i < 2 + p->bias; i++)
        gpu_free(in[i].data);
    wf_graph_free(g);
}

static void tiled__equals_the_kernel_for_any_problem(void **state)
{
    static const struct problem problems[] = {
        { .n = 1, .d = 1, .h = 33, .w = 9, .in = 64, .out = 64, .pad = { 1, 1 } },
        { .n = 2, .d = 3, .h = 70, .w = 45, .in = 64, .out = 64, .pad = { 1, 1 }, .bias = true },
        { .n = 1, .d = 1, .h = 300, .w = 517, .in = 64, .out = 64, .pad = { 1, 1 }, .cut = 3 },
        { .n = 2, .d = 1, .h = 70, .w = 45, .in = 64, .out = 192, .pad = { 0, 2 } },
        { .n = 1, .d = 1, .h = 300, .w = 301, .in = 128, .out = 64, .pad = { 1, 1 }, .bias = true },
        { .n = 2, .d = 1, .h = 200, .w = 133, .in = 128, .out = 128, .pad = { 0, 1 }, .cut = 1 },
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (int back = 0; back < 2; back++) {
            struct problem p = problems[i];
            p.back = back;
            check(&p, WF_BF16, wf_cuda_tiled_fits, wf_cuda_tiled);
            check(&p, WF_F16, wf_cuda_tiled_fits, wf_cuda_tiled);
        }
}

/* The kernel of norms that are computed with a convolution. */
static const struct wf_kernel *norm_kernel(void)
{
    const struct wf_kernel *k = wf_cuda_kernels_conv;
    while (strcmp(k->op, "norm") != 0)
        k++;
    return k;
}

/* The norm of a convolution, with or without a weight and a bias, against the two kernels one after the other. */
static void check_norm(const struct problem *p, enum wf_dtype dtype, enum wf_act act, bool affine)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .compute = dtype });
    const struct wf_node *const conv = node_of(g, p, dtype);
    const int64_t c = p->out;
    struct wf_value *tables[3] = { wf_input(g, "s", WF_F32, WF_SHAPE(1, 1, 1, 1, 2 * c)),
                                   wf_input(g, "weight", WF_F32, WF_SHAPE(1, 1, 1, 1, c)),
                                   wf_input(g, "bias", WF_F32, WF_SHAPE(1, 1, 1, 1, c)) };
    for (int i = 0; i < 3; i++)
        tables[i]->replicated = true;
    struct wf_value *of[4] = { conv->out[0], tables[0], affine ? tables[1] : NULL,
                               affine ? tables[2] : NULL };
    const struct wf_norm_attrs a = { .groups = c, .fixed = 1, .act = act, .slope = 0.1 };
    const struct wf_node *const norm = wf_node_add(g, wf_op_find("norm"), "n", &a, 4, of);
    assert_non_null(norm);
    assert_true(norm_kernel()->fuses(norm, 0, conv));
    struct wf_region work = wf_shape_region(conv->out[0]->shape);
    for (int axis = WF_H; axis <= WF_W; axis++) {
        work.lo[axis] += p->cut;
        work.hi[axis] -= p->cut;
    }
    work.lo[WF_D] += p->front;
    const struct wf_region image = wf_shape_region(conv->in[0]->shape);
    const struct wf_region reads =
        p->front ? image : wf_region_intersect(wf_op_reads(conv, 0, work), image);
    struct wf_region around = reads;
    around.hi[WF_C] += p->sliced ? 5 : 0;
    const struct wf_view all = noise(dtype, around, 1);
    struct wf_view x[3] = { wf_view_part(all, reads),
                            noise(dtype, wf_shape_region(conv->in[1]->shape), 2) };
    if (p->bias)
        x[2] = noise(WF_F32, wf_shape_region(conv->in[2]->shape), 3);
    struct wf_view in[4] = { 0 };
    for (int i = 0; i < (affine ? 3 : 1); i++)
        in[1 + i] = noise(WF_F32, wf_shape_region(tables[i]->shape), 4 + (uint32_t)i);
    struct result got = result_new(dtype, work, p->beside), raw = result_new(dtype, work, 0),
                  want = result_new(dtype, work, p->beside);
    struct wf_fused_input fused[4] = { { conv, x } };
    struct wf_call call = { .node = norm,
                            .work = work,
                            .in = in,
                            .out = &got.view,
                            .fused = fused,
                            .context = gpu_context() };
    norm_kernel()->run(&call);
    result_take(&got);
    wf_cuda_conv(&(struct wf_call){
        .node = conv, .work = work, .in = x, .out = &raw.view, .context = gpu_context() });
    in[0] = raw.view;
    call.fused = NULL;
    call.out = &want.view;
    wf_cuda_norm(&call);
    result_take(&want);
    compare(p, &got, &want);
    result_free(&got);
    result_free(&raw);
    result_free(&want);
    gpu_free(all.data);
    for (int i = 1; i < 2 + p->bias; i++)
        gpu_free(x[i].data);
    for (int i = 0; i < (affine ? 3 : 1); i++)
        gpu_free(in[1 + i].data);
    wf_graph_free(g);
}

static void check_norms(const struct problem problems[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        check_norm(&problems[i], WF_BF16, WF_RELU, true);
        check_norm(&problems[i], WF_F16, WF_RELU, false);
        check_norm(&problems[i], WF_BF16, WF_LEAKY_RELU, true);
        check_norm(&problems[i], WF_F16, WF_ACT_NONE, true);
    }
}

static void tiled__normalises(void **state)
{
    static const struct problem problems[] = {
        { .n = 2, .d = 1, .h = 70, .w = 45, .in = 64, .out = 64, .pad = { 1, 1 } },
        { .n = 1, .d = 1, .h = 300, .w = 517, .in = 64, .out = 128, .pad = { 1, 1 }, .cut = 3 },
        { .n = 2, .d = 1, .h = 200, .w = 133, .in = 128, .out = 64, .pad = { 0, 1 }, .bias = true },
        { .n = 1, .d = 1, .h = 40, .w = 37, .in = 64, .out = 64, .pad = { 1, 1 }, .beside = 3 },
        { .n = 2,
          .d = 5,
          .h = 40,
          .w = 37,
          .in = 128,
          .out = 64,
          .pad = { 1, 1 },
          .cut = 2,
          .front = 3 },
    };
    check_norms(problems, sizeof problems / sizeof *problems);
}

static void stem__normalises(void **state)
{
    static const struct problem problems[] = {
        { .n = 2, .d = 2, .h = 20, .w = 75, .in = 3, .out = 64, .pad = { 1, 1 } },
        { .n = 1, .d = 1, .h = 300, .w = 517, .in = 1, .out = 64, .pad = { 2, 0 }, .cut = 2 },
        { .n = 1, .d = 1, .h = 41, .w = 130, .in = 8, .out = 128, .pad = { 1, 1 }, .bias = true },
        { .n = 2, .d = 1, .h = 41, .w = 70, .in = 4, .out = 64, .pad = { 1, 1 }, .sliced = true },
        { .n = 1, .d = 1, .h = 40, .w = 37, .in = 5, .out = 64, .pad = { 1, 1 }, .beside = 3 },
        { .n = 2,
          .d = 5,
          .h = 40,
          .w = 37,
          .in = 3,
          .out = 64,
          .pad = { 1, 1 },
          .cut = 2,
          .front = 3 },
    };
    check_norms(problems, sizeof problems / sizeof *problems);
}

static bool up_fits(const struct wf_node *node)
{
    return wf_cuda_up_fits(node->attrs, &node->in[1]->shape);
}

static bool run_up(const struct wf_call *call, bool back)
{
    assert_true(back);
    return wf_cuda_up(call);
}

static void up__equals_the_kernel_for_any_problem(void **state)
{
    static const struct problem problems[] = {
        { .n = 1, .d = 1, .h = 8, .w = 8, .in = 64, .out = 64, .up = { 1, 2, 2 } },
        { .n = 2, .d = 1, .h = 33, .w = 21, .in = 128, .out = 64, .up = { 1, 2, 2 }, .bias = true },
        { .n = 1, .d = 1, .h = 130, .w = 140, .in = 128, .out = 64, .up = { 1, 2, 2 }, .cut = 3 },
        { .n = 3, .d = 2, .h = 40, .w = 7, .in = 192, .out = 128, .up = { 1, 2, 2 }, .cut = 2 },
        { .n = 1,
          .d = 1,
          .h = 3,
          .w = 300,
          .in = 320,
          .out = 192,
          .up = { 1, 2, 2 },
          .bias = true },
        { .n = 2, .d = 5, .h = 12, .w = 9, .in = 64, .out = 64, .up = { 2, 2, 2 }, .bias = true },
        { .n = 1, .d = 6, .h = 11, .w = 9, .in = 128, .out = 64, .up = { 2, 2, 2 }, .cut = 1 },
        { .n = 1, .d = 1, .h = 2, .w = 2, .in = 64, .out = 64, .up = { 1, 2, 4 }, .cut = 1 },
        { .n = 2, .d = 1, .h = 1, .w = 777, .in = 64, .out = 128, .up = { 1, 1, 2 }, .bias = true },
        { .n = 1, .d = 1, .h = 9, .w = 9, .in = 64, .out = 64, .up = { 1, 4, 2 }, .cut = 5 },
        { .n = 1, .d = 1, .h = 1, .w = 9, .in = 64, .out = 64, .up = { 1, 4, 2 }, .cut = 1 },
        { .n = 2,
          .d = 1,
          .h = 40,
          .w = 37,
          .in = 128,
          .out = 64,
          .up = { 1, 2, 2 },
          .beside = 3,
          .cut = 1 },
        { .n = 2,
          .d = 5,
          .h = 12,
          .w = 35,
          .in = 64,
          .out = 64,
          .up = { 2, 2, 2 },
          .cut = 1,
          .front = 3 },
        { .n = 1, .d = 1, .h = 5, .w = 33, .in = 64, .out = 128, .up = { 1, 1, 2 }, .cut = 1 },
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        struct problem p = problems[i];
        p.back = true;
        check(&p, WF_BF16, up_fits, run_up);
        check(&p, WF_F16, up_fits, run_up);
    }
}

static bool run_stem(const struct wf_call *call, bool back)
{
    assert_false(back);
    return wf_cuda_stem(call);
}

static void stem__equals_the_kernel_for_any_problem(void **state)
{
    for (int64_t in = 1; in <= 8; in++) {
        const struct problem problems[] = {
            { .n = 2, .d = 2, .h = 20, .w = 75, .in = in, .out = 64, .pad = { 1, 1 } },
            { .n = 1, .d = 1, .h = 300, .w = 517, .in = in, .out = 64, .pad = { 2, 0 }, .cut = 2 },
            { .n = 1,
              .d = 1,
              .h = 41,
              .w = 130,
              .in = in,
              .out = 128,
              .pad = { 1, 1 },
              .bias = true },
        };
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            check(&problems[i], WF_BF16, wf_cuda_stem_fits, run_stem);
            check(&problems[i], WF_F16, wf_cuda_stem_fits, run_stem);
        }
    }
}

static void volume__equals_the_kernel_for_any_problem(void **state)
{
    static const struct problem problems[] = {
        { .n = 1, .d = 3, .h = 33, .w = 9, .in = 32, .out = 32, .pad = { 1, 1 } },
        { .n = 2, .d = 7, .h = 70, .w = 45, .in = 32, .out = 64, .pad = { 1, 1 }, .bias = true },
        { .n = 1, .d = 20, .h = 70, .w = 45, .in = 32, .out = 32, .pad = { 0, 2 }, .cut = 2 },
        { .n = 1, .d = 150, .h = 9, .w = 9, .in = 64, .out = 96, .pad = { 1, 1 }, .bias = true },
        { .n = 2, .d = 9, .h = 70, .w = 45, .in = 64, .out = 32, .pad = { 0, 1 }, .cut = 1 },
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (int back = 0; back < 2; back++) {
            struct problem p = problems[i];
            p.back = back;
            p.deep = 3;
            check(&p, WF_BF16, wf_cuda_volume_fits, wf_cuda_volume);
            check(&p, WF_F16, wf_cuda_volume_fits, wf_cuda_volume);
        }
}

/* --- the weight gradient --- */

static const struct wf_node *wgrad_node(struct wf_graph *g, const struct problem *p, int64_t deep,
                                        enum wf_dtype dtype)
{
    struct wf_conv_attrs a = { .stride = { 1, 1, 1 },
                               .dilation = { 1, 1, 1 },
                               .pad_lo = { deep / 2, p->pad[0], p->pad[1] },
                               .pad_hi = { deep / 2, p->pad[1], p->pad[0] },
                               .extent = { deep, 3, 3 },
                               .groups = 1 };
    const int64_t less = 2 - p->pad[0] - p->pad[1];
    struct wf_value *in[2] = {
        wf_input(g, "x", dtype, WF_SHAPE(p->n, p->d, p->h, p->w, p->in)),
        wf_input(g, "dy", dtype, WF_SHAPE(p->n, p->d, p->h - less, p->w - less, p->out)),
    };
    const struct wf_node *const node = wf_node_add(g, wf_op_find("conv_wgrad"), "dw", &a, 2, in);
    struct wf_err err = { 0 };
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    return node;
}

/* The sum over all but `cut` of dy on each side; x with two columns beside what is read of it. */
static void check_wgrad(const struct problem *p, int64_t deep, enum wf_dtype dtype)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .compute = dtype });
    const struct wf_node *const node = wgrad_node(g, p, deep, dtype);
    assert_true(wf_cuda_tiled_wgrad_fits(node));
    struct wf_region work = wf_shape_region(node->in[1]->shape);
    for (int a = WF_H; a <= WF_W; a++) {
        work.lo[a] += p->cut;
        work.hi[a] -= p->cut;
    }
    const struct wf_region image = wf_shape_region(node->in[0]->shape);
    const struct wf_region reads = wf_region_intersect(wf_op_reads(node, 0, work), image);
    struct wf_region around = reads;
    around.hi[WF_W] += 2;
    struct wf_view all = noise(dtype, around, 1);
    struct wf_view in[2] = { wf_view_part(all, reads), noise(dtype, work, 2) };
    struct result got = result_new(WF_F32, wf_shape_region(node->out[0]->shape), p->beside);
    struct result want = result_new(WF_F32, wf_shape_region(node->out[0]->shape), p->beside);
    struct wf_prepare prepare = { .node = node, .work = work, .in = in, .out = &want.view };
    struct wf_err err = { 0 };
    assert_true(wf_cuda_conv_wgrad_prepare(&prepare, &err));
    struct wf_cuda_wgrad w = {
        .image = in[0], .result = in[1], .weights = got.view, .multiprocessors = 10
    };
    const struct wf_conv_attrs *const a = node->attrs;
    for (int i = 0; i < 3; i++)
        w.pad_lo[i] = a->pad_lo[i] + reads.lo[WF_D + i] - work.lo[WF_D + i];
    w.parts = gpu_alloc(wf_cuda_tiled_wgrad_scratch(&w));
    assert_true(wf_cuda_tiled_wgrad(&w, gpu_stream()));
    result_take(&got);
    void *const scratch = gpu_alloc(prepare.scratch_bytes);
    wf_cuda_conv_wgrad(&(struct wf_call){ .node = node,
                                          .work = work,
                                          .in = in,
                                          .out = &want.view,
                                          .scratch = scratch,
                                          .context = gpu_context() });
    result_take(&want);
    compare(p, &got, &want);
    result_free(&got);
    result_free(&want);
    gpu_free(w.parts);
    gpu_free(scratch);
    gpu_free(all.data);
    gpu_free(in[1].data);
    wf_graph_free(g);
}

static void wgrad__equals_the_kernel_for_any_problem(void **state)
{
    static const int64_t channels[][2] = { { 8, 64 },  { 16, 8 },  { 32, 64 },
                                           { 64, 64 }, { 72, 72 }, { 128, 64 } };
    static const int64_t volumes[][2] = {
        { 8, 32 }, { 32, 32 }, { 64, 24 }, { 64, 64 }, { 40, 40 }
    };
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int64_t cut = 0; cut < 3; cut += 2) {
            const struct problem p = { .n = 2,
                                       .d = 1,
                                       .h = 70,
                                       .w = 45,
                                       .in = channels[i][0],
                                       .out = channels[i][1],
                                       .pad = { 1, cut / 2 },
                                       .cut = cut };
            check_wgrad(&p, 1, WF_BF16);
            check_wgrad(&p, 1, WF_F16);
        }
    for (size_t i = 0; i < sizeof volumes / sizeof *volumes; i++) {
        const struct problem p = { .n = 2,
                                   .d = 5,
                                   .h = 19,
                                   .w = 41,
                                   .in = volumes[i][0],
                                   .out = volumes[i][1],
                                   .pad = { 1, 1 } };
        check_wgrad(&p, 3, WF_BF16);
        check_wgrad(&p, 5, WF_F16);
    }
}

int main(int argc, char **argv)
{
    if (!gpu_start())
        return 77;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiled__equals_the_kernel_for_any_problem),
        cmocka_unit_test(tiled__normalises),
        cmocka_unit_test(stem__normalises),
        cmocka_unit_test(up__equals_the_kernel_for_any_problem),
        cmocka_unit_test(stem__equals_the_kernel_for_any_problem),
        cmocka_unit_test(volume__equals_the_kernel_for_any_problem),
        cmocka_unit_test(wgrad__equals_the_kernel_for_any_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
