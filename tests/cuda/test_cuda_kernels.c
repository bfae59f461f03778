/*
 * Every CUDA kernel against the reference kernel of its operator: on the operators' own cases and on
 * larger ones, as support_kernels.h says; the second time with blocks and threads in the opposite order
 * and without tickets.
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
#include "device/update_rule.h"
#include "device/device.h"
#include "gpu.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "support_kernels.h"

extern const struct wf_kernel *const wf_cuda_own_kernels[]; /* ends with NULL; made by the build */

static bool is_16_bits(const struct wf_value *value)
{
    return value && (value->dtype == WF_BF16 || value->dtype == WF_F16);
}

/* Our own kernels of f32 images compute in f64, as the reference does, and round once: what is left is
 * the last bit, where the order of an f64 sum turned it. A whole step then has the reference's
 * gradients, because no ReLU turns. */
static struct support_bound tolerance(const struct wf_node *node, const struct wf_kernel *kernel)
{
    bool reads_16 = false, writes_16 = false;
    for (int i = 0; i < node->n_in; i++)
        reads_16 = reads_16 || is_16_bits(node->in[i]);
    for (int o = 0; o < node->n_out; o++)
        writes_16 = writes_16 || is_16_bits(node->out[o]);
    /* cuDNN makes weight gradients of 16-bit images in 16 bits. */
    if (writes_16 || (support_wants_packed(kernel) && reads_16))
        return (struct support_bound){ .of_largest = 1e-2 };
    if (reads_16 || support_wants_packed(kernel))
        return (struct support_bound){ .of_largest = 1e-5 };
    return (struct support_bound){ .of_itself = 0x1p-23, .of_largest = 1e-12 };
}

static const struct support_device device = {
    .kernels = wf_cuda_own_kernels,
    .threads = 1,
    .takes_all = true,
    .is_brief = gpu_is_brief,
    .context = gpu_context,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .put = gpu_put,
    .get = gpu_get,
    .turn = gpu_turn,
    .finish = gpu_finish,
    .tolerance = tolerance,
};

static void kernels__equal_their_reference_in_f32(void **state)
{
    (void)support_check_cases(&device, WF_F32);
}

static void kernels__equal_their_reference_in_bf16(void **state)
{
    (void)support_check_cases(&device, WF_BF16);
}

static void kernels__equal_their_reference_in_f16(void **state)
{
    (void)support_check_cases(&device, WF_F16);
}

/* --- larger: wide accesses, several blocks, many channels --- */

static const struct support_larger larger[] = {
    { "norm", { .in = "x[1,1,21,40,64]", .build = support_build_batch_norm } },
    { "norm", { .in = "x[1,1,9,17,24]", .build = support_build_batch_norm } },
    { "norm", { .in = "x[2,1,5,7,264]", .build = support_build_batch_norm } },
    { "norm", { .in = "x[2,1,11,9,48]", .build = support_build_group_norm } },
    { "norm", { .in = "x[1,1,9,11,33]", .build = support_build_batch_norm } },
    { "moments", { .attrs = "groups=1 per_sample=1", .in = "X[3,1,13,40,16]" } },
    /* So many blocks that every thread of the last one has parts to add. */
    { "moments", { .attrs = "groups=64", .in = "X[1,1,70,70,64]" } },
    { "moments", { .attrs = "groups=17", .in = "X[1,1,96,96,17]" } },
    { "global_pool", { .attrs = "factor=0.5", .in = "x[2,1,37,41,32]" } },
    { "maxpool", { .attrs = "kernel=[1,2,2] stride=[1,2,2]", .in = "x[1,1,11,20,16]" } },
    { "maxpool", { .attrs = "kernel=[2,2,2] stride=[2,2,2]", .in = "x[1,4,7,6,16]" } },
    { "maxpool",
      { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]",
        .in = "x[1,1,9,12,16]" } },
    { "avgpool",
      { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
        .in = "x[1,1,9,12,16]" } },
    { "upsample", { .attrs = "mode=linear extent=[1,12,21]", .in = "x[1,1,6,10,8]" } },
    { "upsample", { .attrs = "mode=nearest extent=[2,12,20]", .in = "x[1,1,6,10,8]" } },
    { "upsample", { .attrs = "mode=linear extent=[1,5,9]", .in = "x[1,1,9,40,3]" } },
    { "concat", { .attrs = "", .in = "x[1,1,9,11,8] x[1,1,9,11,32] x[1,1,9,11,16]" } },
    { "add", { .attrs = "", .in = "x[2,1,17,41,33] x[2,1,1,1,33]" } },
    { "multiply", { .attrs = "", .in = "x[2,1,17,41,40] x[2,1,1,1,40]" } },
    { "multiply", { .attrs = "", .in = "x[1,1,17,41,24] p[24]" } },
    { "multiply", { .attrs = "", .in = "x[1,1,17,41,40] x[1,1,17,41,1]" } },
    { "multiply", { .attrs = "", .in = "x[3,1,17,5,2] x[3,1,1,1,1]" } },
    { "row_dot", { .attrs = "", .in = "x[1,1,17,21,70] x[1,1,17,21,70]" } },
    { "prelu", { .attrs = "", .in = "x[2,1,17,21,40] p[40]" } },
    { "prelu", { .attrs = "", .in = "x[1,1,17,21,33] p[1]" } },
    { "act", { .attrs = "act=mish", .in = "x[1,1,17,41,8]" } },
    { "act", { .attrs = "act=hard_swish", .in = "x[1,1,17,41,8]" } },
    { "avgpool",
      { .attrs = "kernel=[1,8,8] stride=[1,1,1] exclude_pad=1 bins=[1,3,3]",
        .in = "x[1,1,20,24,80]" } },
    { "maxpool",
      { .attrs = "kernel=[1,8,8] stride=[1,1,1] bins=[1,3,3]", .in = "x[1,1,20,24,40]" } },
    { "upsample", { .attrs = "mode=cubic extent=[1,24,67]", .in = "x[1,1,12,35,40]" } },
    { "depth_to_space", { .attrs = "factor=[1,2,2]", .in = "x[1,1,9,11,64]" } },
    { "channel_shuffle", { .attrs = "groups=4", .in = "x[1,1,9,41,64]" } },
    { "channel_max", { .attrs = "", .in = "x[1,1,9,41,72]" } },
    { "add", { .attrs = "", .in = "x[1,1,17,21,33] x[1,1,17,21,33]" } },
    { "act", { .attrs = "act=gelu", .in = "x[1,1,17,11,16]" } },
    { "softmax", { .attrs = "", .in = "x[1,1,7,11,70]" } },
    { "layernorm", { .attrs = "eps=1e-5", .in = "x[1,1,7,11,96] p[96] p[96]" } },
    { "ce", { .in = "x[1,1,27,29,5] t[1,1,27,29,1]", .build = support_build_cross_entropy } },
    { "ce", { .in = "x[5,1,1,1,100] t[5,1,1,1,1]", .build = support_build_cross_entropy } },
    { "dice", { .in = "x[1,1,27,29,3] t[1,1,27,29,1]", .build = support_build_dice } },
    { "mse", { .attrs = "", .in = "x[1,1,17,21,33] X[1,1,17,21,33]" } },
    { "dropout", { .attrs = "p=0.3 stream=9", .in = "x[1,1,17,21,16]" } },
    { "dropout", { .attrs = "p=0.3 stream=9", .in = "x[1,1,7,11,9]" } },
    { "pad", { .attrs = "lo=[0,0,2,-3,0] hi=[0,0,-1,5,0]", .in = "x[1,1,7,11,16]" } },
    { "tile", { .attrs = "tiles=[1,2,2] extent=[1,4,6]", .in = "x[1,1,7,11,16]" } },
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        .in = "x[1,1,12,13,17] p[70,1,3,3,17] p[70]" } },
    { "conv",
      { .attrs = "stride=[1,2,1] dilation=[1,1,1] pad_lo=[0,1,0] pad_hi=[0,0,0] groups=2",
        .in = "x[2,1,40,23,6] p[4,1,2,2,3] -" } },
    /* Every channel a group: several positions at once, strides, dilations, all three axes. */
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,3,3] pad_hi=[0,3,3] groups=40",
        .in = "x[2,1,12,21,40] p[40,1,7,7,1] p[40]" } },
    { "conv",
      { .attrs = "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,1,2] pad_hi=[0,2,2] groups=72",
        .in = "x[1,1,12,13,72] p[72,1,3,5,1] -" } },
    { "conv",
      { .attrs = "stride=[1,1,2] dilation=[1,3,2] pad_lo=[0,3,2] pad_hi=[0,3,2] groups=9",
        .in = "x[1,1,12,13,9] p[9,1,3,3,1] p[9]" } },
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[1,1,0] pad_hi=[1,1,2] groups=16",
        .in = "x[1,3,5,7,16] p[16,3,3,3,1] p[16]" } },
    { "convt",
      { .attrs =
            "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=8 extent=[1,10,14]",
        .in = "x[2,1,5,7,8] p[8,1,4,4,1] p[8]" } },
    /* Windows side by side: more than a tile of rows, of columns, of k; patches in all three axes. */
    { "convt",
      { .attrs =
            "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1 extent=[1,10,28]",
        .in = "x[1,1,5,14,72] p[72,1,2,2,40] p[40]" } },
    { "convt",
      { .attrs =
            "stride=[2,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1 extent=[4,6,8]",
        .in = "x[2,2,3,4,16] p[16,2,2,2,40] -" } },
    { "conv",
      { .attrs = "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1",
        .in = "x[1,1,13,22,24] p[136,1,2,2,24] p[136]" } },
    { /* as wide as its stride, but with gaps */ "conv",
      { .attrs = "stride=[1,2,2] dilation=[1,2,2] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1",
        .in = "x[1,1,13,22,16] p[16,1,2,2,16] -" } },
};

static void kernels__equal_their_reference_on_larger_images(void **state)
{
    support_check_larger(&device, larger, sizeof larger / sizeof *larger);
}

/* The kernel's results of `v`, with its factors shortened, against the reference's of `rounded`. */
static void check_shortened(const struct wf_node *node, const struct wf_kernel *kernel,
                            const struct support_values *v, const struct support_values *rounded)
{
    struct support_trial got = { .device = &device,
                                 .node = node,
                                 .kernel = kernel,
                                 .values = v,
                                 .work = wf_shape_region(wf_op_domain(node)->shape),
                                 .alias = -1 };
    struct support_trial want = got;
    want.values = rounded;
    support_trial_init(&got);
    support_trial_init(&want);
    support_trial_run(&got);
    support_trial_reference(&want);
    support_compare(&got, &got.out[0], &want.out[0], tolerance(got.node, got.kernel));
    support_trial_release(&got);
    support_trial_release(&want);
}

/* In tf32: what the reference makes of factors that have ten digits behind the first. */
static void convolutions__shorten_their_factors_in_tf32(void **state)
{
    static const struct wf_case from = {
        .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        .in = "x[1,1,9,11,5] p[7,1,3,3,5] -"
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
        for (const struct wf_kernel *const *rows = wf_cuda_own_kernels; *rows; rows++)
            for (const struct wf_kernel *k = *rows; k->op; k++)
                if (wf_kernel_takes(k, c.g->nodes[i]) && !support_wants_packed(k))
                    check_shortened(c.g->nodes[i], k, &v, &rounded);
    gpu_shorten(false);
    support_values_free(&v);
    support_values_free(&rounded);
    wf_graph_free(c.g);
}

static void moments__keep_a_small_deviation_from_a_large_mean(void **state)
{
    support_check_small_deviation(&device, 4);
    support_check_small_deviation(&device, 5); /* no whole vectors */
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

/* A gradient that is not finite comes between: the GPU, which finds the factor itself, touches nothing. */
static void update_spoilt(const struct wf_cuda_layout *at, const struct wf_update *g, double *sum,
                          float *factor, float *grad)
{
    const float right = grad[1033];
    grad[1033] = INFINITY;
    gpu_put((void *)(uintptr_t)g->grad, grad, STORE * sizeof(float));
    wf_cuda_squares(at, g->grad, sum, gpu_stream());
    wf_cuda_factor(sum, 0.5, 1, factor, gpu_stream());
    wf_cuda_update(at, g, gpu_stream());
    assert_true(gpu_finish());
    grad[1033] = right;
    gpu_put((void *)(uintptr_t)g->grad, grad, STORE * sizeof(float));
}

/* Three steps of one rule on the CPU and on the GPU; with gradients clipped, unless clip is 0. */
static void check_rule(enum wf_optim_rule rule, bool second, double clip)
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
    double *const sum = gpu_alloc(sizeof *sum);
    float *const factor = gpu_alloc(sizeof *factor);
    if (clip > 0) {
        u.scale = (float)wf_update_factor(wf_cpu_updater.squares(prepared, cpu.grad), 0.5, clip);
        assert_true(u.scale < 0.5f);
        g.factor = factor;
    }
    for (int step = 1; step <= STEPS; step++) {
        if (clip > 0) {
            update_spoilt(&at, &g, sum, factor, cpu.grad);
            wf_cuda_squares(&at, g.grad, sum, gpu_stream());
            wf_cuda_factor(sum, 0.5, clip, factor, gpu_stream());
        }
        u.correct1 = g.correct1 = (float)(1 / (1 - pow(0.9, step)));
        u.correct2 = g.correct2 = (float)(1 / sqrt(1 - pow(0.99, step)));
        wf_cpu_updater.update(prepared, &u);
        wf_cuda_update(&at, &g, gpu_stream());
        assert_true(gpu_finish());
    }
    gpu_get(got.param, on_gpu_store[0], STORE * sizeof(float));
    for (int i = 0; i < STORE; i++)
        if (!(fabsf(got.param[i] - cpu.param[i]) <= 2e-6f * (1 + fabsf(cpu.param[i]))))
            fail_msg("rule %d, element %d: %.9g, not %.9g", (int)rule, i, (double)got.param[i],
                     (double)cpu.param[i]);
    for (int k = 0; k < 4; k++)
        gpu_free(on_gpu_store[k]);
    gpu_free(sum);
    gpu_free(factor);
    wf_cpu_updater.release(prepared);
    layout_free(&at);
    stores_free(&cpu);
    stores_free(&got);
}

static void updates__equal_those_of_the_cpu(void **state)
{
    for (int rule = 0; rule < WF_OPTIM_RULES; rule++)
        for (int clip = 0; clip < 2; clip++)
            check_rule((enum wf_optim_rule)rule, false, clip);
    check_rule(WF_RMSPROP, true, 0);
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
    double *const result = gpu_alloc(sizeof(double));
    wf_cuda_squares(&at, grad, result, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(&got, result, sizeof got);
    assert_true(fabs(got / want - 1) < 1e-12);
    s.grad[1033] = NAN;
    gpu_put(grad, s.grad, STORE * sizeof(float));
    wf_cuda_squares(&at, grad, result, gpu_stream());
    assert_true(gpu_finish());
    gpu_get(&got, result, sizeof got);
    assert_true(isnan(got));
    gpu_free(grad);
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
        { WF_BF16, WF_BF16, { { 1, 1, 5, 7, 3 } }, { { 1, 1, 5, 7, 8 } } },
        { WF_F16, WF_F16, { { 2, 1, 3, 7, 1 } }, { { 2, 1, 3, 7, 8 } } },
        { WF_BF16, WF_BF16, { { 1, 1, 19, 17, 20 } }, { { 1, 1, 19, 17, 24 } } },
        { WF_BF16, WF_BF16, { { 1, 1, 19, 17, 24 } }, { { 1, 1, 19, 17, 20 } } },
        { WF_F16, WF_F16, { { 1, 2, 3, 7, 10 } }, { { 1, 2, 3, 7, 16 } } },
        { WF_BF16, WF_BF16, { { 1, 1, 5, 7, 21 } }, { { 1, 1, 5, 7, 40 } } },
        { WF_BF16, WF_BF16, { { 1, 1, 5, 7, 8 } }, { { 1, 1, 5, 7, 2 } } },
        { WF_F16, WF_F16, { { 1, 1, 5, 7, 16 } }, { { 1, 1, 5, 7, 16 } } },
        { WF_BF16, WF_BF16, { { 20, 1, 3, 3, 12 } }, { { 24, 1, 3, 3, 16 } } },
        { WF_BF16, WF_BF16, { { 24, 1, 3, 3, 16 } }, { { 20, 1, 3, 3, 12 } } },
        { WF_F32, WF_F32, { { 4, 1, 3, 3, 3 } }, { { 8, 1, 3, 3, 4 } } },
        { WF_F32, WF_F32, { { 4, 1, 3, 3, 3 } }, { { 4, 1, 3, 3, 4 } } },
        { WF_BF16, WF_F32, { { 8, 1, 3, 3, 8 } }, { { 2, 1, 3, 3, 5 } } },
        { WF_F32, WF_BF16, { { 1, 2, 3, 4, 5 } }, { { 1, 2, 3, 4, 5 } } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct support_guarded a = support_guarded_new(
            &device, cases[i].from, wf_shape_region(cases[i].a), SUPPORT_PACKED, 0);
        struct support_guarded b = support_guarded_new(
            &device, cases[i].to, wf_shape_region(cases[i].b), SUPPORT_PACKED, 0xff);
        support_fill_random(&a.view, 3, i);
        gpu_put(a.memory, a.all.data, a.bytes);
        gpu_put(b.memory, b.all.data, b.bytes);
        const struct wf_view from = support_guarded_view(&a), to = support_guarded_view(&b);
        wf_cuda_fit(&to, &from, gpu_stream());
        assert_true(gpu_finish());
        gpu_get(b.all.data, b.memory, b.bytes);
        for (struct wf_cursor c = wf_cursor(b.view.box); wf_cursor_next(&c);) {
            const double want = support_inside(a.view.box, c.at) ? wf_view_at(&a.view, c.at) : 0;
            const double tol = cases[i].from == cases[i].to ? 0 : 4e-3;
            assert_true(fabs(wf_view_at(&b.view, c.at) - want) <= tol);
        }
        support_guarded_free(&a);
        support_guarded_free(&b);
    }
}

static void copy__moves_a_box_between_strided_buffers(void **state)
{
    const struct wf_region box = { { 0, 0, 3, 5, 0 }, { 2, 1, 14, 21, 8 } };
    static const enum wf_dtype dtypes[] = { WF_BF16, WF_F32, WF_U8, WF_F64 };
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < SUPPORT_LAYOUTS * SUPPORT_LAYOUTS; i++) {
            struct support_guarded a = support_guarded_new(
                &device, dtypes[d], box, (enum support_layout)(i / SUPPORT_LAYOUTS), 0x7f);
            struct support_guarded b = support_guarded_new(
                &device, dtypes[d], box, (enum support_layout)(i % SUPPORT_LAYOUTS), 0x11);
            for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
                wf_view_set(&a.view, c.at, (double)(c.at[WF_H] * 8 + c.at[WF_C]));
            gpu_put(a.memory, a.all.data, a.bytes);
            gpu_put(b.memory, b.all.data, b.bytes);
            const struct wf_view from = support_guarded_view(&a), to = support_guarded_view(&b);
            wf_cuda_copy(&to, &from, gpu_stream());
            assert_true(gpu_finish());
            gpu_get(b.all.data, b.memory, b.bytes);
            for (struct wf_cursor c = wf_cursor(b.all.box); wf_cursor_next(&c);) {
                const uint64_t guard = 0x1111111111111111u;
                const double want = support_inside(box, c.at) ? wf_view_at(&a.view, c.at)
                                                              : wf_dtype_get(dtypes[d], &guard, 0);
                assert_true(wf_view_at(&b.all, c.at) == want);
            }
            support_guarded_free(&a);
            support_guarded_free(&b);
        }
}

static void copy__adds_to_what_is_there(void **state)
{
    const struct wf_region box = { { 0, 0, 0, 0, 0 }, { 3, 1, 5, 7, 9 } };
    static const enum wf_dtype dtypes[] = { WF_F32, WF_F64, WF_BF16, WF_F16 };
    for (int d = 0; d < 4; d++) {
        struct support_guarded a =
            support_guarded_new(&device, dtypes[d], box, SUPPORT_PACKED, 0x7f);
        struct support_guarded b =
            support_guarded_new(&device, dtypes[d], box, SUPPORT_PACKED, 0x11);
        for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);) {
            wf_view_set(&a.view, c.at, (double)(c.at[WF_H] * 8 + c.at[WF_C]));
            wf_view_set(&b.view, c.at, (double)(c.at[WF_N] - c.at[WF_W]));
        }
        gpu_put(a.memory, a.all.data, a.bytes);
        gpu_put(b.memory, b.all.data, b.bytes);
        const struct wf_view from = support_guarded_view(&a), to = support_guarded_view(&b);
        wf_cuda_add_to(&to, &from, gpu_stream());
        assert_true(gpu_finish());
        gpu_get(b.all.data, b.memory, b.bytes);
        for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
            assert_true(wf_view_at(&b.view, c.at) ==
                        (double)(c.at[WF_N] - c.at[WF_W] + c.at[WF_H] * 8 + c.at[WF_C]));
        support_guarded_free(&a);
        support_guarded_free(&b);
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
        cmocka_unit_test(copy__adds_to_what_is_there),
    };
    if (!gpu_start())
        return 77; /* not run: ctest shows it as skipped */
    gpu_step(3);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
