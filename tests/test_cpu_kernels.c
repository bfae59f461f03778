/*
 * Every CPU kernel against the reference kernel of its operator: on the operators' own cases and on
 * larger ones, as support_kernels.h says, on one and on two threads.
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
#include "support_kernels.h"

static struct support_bound tolerance(const struct wf_node *node, const struct wf_kernel *kernel)
{
    bool narrow = false;
    (void)kernel;
    for (int o = 0; o < node->n_out; o++)
        narrow = narrow || node->out[o]->dtype == WF_BF16 || node->out[o]->dtype == WF_F16;
    return (struct support_bound){ .of_largest = narrow ? 1e-2 : 1e-5 };
}

static void *take(size_t bytes)
{
    void *const memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void move(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

/* The second time on two threads. */
static void turn(bool other_way)
{
#ifdef _OPENMP
    omp_set_num_threads(other_way ? 2 : 1);
#else
    (void)other_way;
#endif
}

static const struct support_device device = {
    .kernels = wf_cpu_kernels,
    .threads = 2,
    .dense_take_nothing = true,
    .alloc = take,
    .free = free,
    .put = move,
    .get = move,
    .turn = turn,
    .tolerance = tolerance,
};

static void kernels__equal_their_reference_in_f32(void **state)
{
    assert_true(support_check_cases(&device, WF_F32) > 100);
}

static void kernels__equal_their_reference_in_bf16(void **state)
{
    assert_true(support_check_cases(&device, WF_BF16) > 100);
}

static void kernels__equal_their_reference_in_f16(void **state)
{
    assert_true(support_check_cases(&device, WF_F16) > 100);
}

/* --- larger, so that vector loops, several pieces and several chunks are reached --- */

static const struct support_larger larger[] = {
    { "norm", { .in = "x[1,1,67,129,33]", .build = support_build_batch_norm } },
    { "norm", { .in = "x[2,1,31,40,33]", .build = support_build_group_norm } },
    { "norm", { .in = "x[1,1,70,71,3]", .build = support_build_batch_norm } },
    { "norm", { .in = "x[2,1,3,2,1030]", .build = support_build_batch_norm } },
    { "maxpool", { .attrs = "kernel=[1,2,2] stride=[1,2,2]", .in = "x[1,1,34,130,33]" } },
    { "maxpool",
      { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]",
        .in = "x[1,1,9,67,130]" } },
    { "maxpool", { .attrs = "kernel=[2,2,2] stride=[2,2,2]", .in = "x[1,4,6,6,1100]" } },
    { "avgpool",
      { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
        .in = "x[1,1,9,67,130]" } },
    { "upsample", { .attrs = "mode=linear extent=[1,24,131]", .in = "x[1,1,12,65,33]" } },
    { "upsample", { .attrs = "mode=linear extent=[1,8,8]", .in = "x[1,1,4,4,1030]" } },
    { "upsample", { .attrs = "mode=nearest extent=[2,24,130]", .in = "x[1,1,12,65,33]" } },
    { "upsample", { .attrs = "mode=linear_corners extent=[1,5,300]", .in = "x[1,1,3,3,40]" } },
    { "upsample", { .attrs = "mode=linear extent=[1,5,30]", .in = "x[1,1,9,400,9]" } },
    { "concat", { .attrs = "", .in = "x[1,1,30,41,7] x[1,1,30,41,32] x[1,1,30,41,1]" } },
    { "add", { .attrs = "", .in = "x[1,1,37,41,33] x[1,1,37,41,33]" } },
    { "add", { .attrs = "", .in = "x[2,1,37,41,33] x[2,1,1,1,33]" } },
    { "multiply", { .attrs = "", .in = "x[2,1,37,41,40] x[2,1,1,1,40]" } },
    { "multiply", { .attrs = "", .in = "x[1,1,37,41,24] p[24]" } },
    { "multiply", { .attrs = "", .in = "x[1,1,37,41,40] x[1,1,37,41,1]" } },
    { "multiply", { .attrs = "", .in = "x[3,1,37,5,2] x[3,1,1,1,1]" } },
    { "row_dot", { .attrs = "", .in = "x[1,1,37,21,70] x[1,1,37,21,70]" } },
    { "prelu", { .attrs = "", .in = "x[2,1,37,21,40] p[40]" } },
    { "prelu", { .attrs = "", .in = "x[1,1,37,21,33] p[1]" } },
    { "act", { .attrs = "act=mish", .in = "x[1,1,37,41,8]" } },
    { "act", { .attrs = "act=hard_swish", .in = "x[1,1,37,41,8]" } },
    { "avgpool",
      { .attrs = "kernel=[1,12,14] stride=[1,1,1] exclude_pad=1 bins=[1,3,3]",
        .in = "x[1,1,34,40,600]" } },
    { "maxpool",
      { .attrs = "kernel=[1,12,14] stride=[1,1,1] bins=[1,3,3]", .in = "x[1,1,34,40,72]" } },
    { "upsample", { .attrs = "mode=cubic extent=[1,24,67]", .in = "x[1,1,12,35,40]" } },
    { "depth_to_space", { .attrs = "factor=[1,2,2]", .in = "x[1,1,9,11,64]" } },
    { "channel_shuffle", { .attrs = "groups=4", .in = "x[1,1,9,41,64]" } },
    { "channel_max", { .attrs = "", .in = "x[1,1,9,41,72]" } },
    { "act", { .attrs = "act=tanh", .in = "x[1,1,37,41,7]" } },
    { "act", { .attrs = "act=sigmoid", .in = "x[9000]" } },
    { "softmax", { .attrs = "", .in = "x[1,1,17,41,21]" } },
    { "layernorm", { .attrs = "eps=1e-5", .in = "x[1,1,17,41,96] p[96] p[96]" } },
    { "ce", { .in = "x[1,1,67,129,5] t[1,1,67,129,1]", .build = support_build_cross_entropy } },
    { "dice", { .in = "x[1,1,67,129,3] t[1,1,67,129,1]", .build = support_build_dice } },
    { "mse", { .attrs = "", .in = "x[1,1,37,41,33] X[1,1,37,41,33]" } },
    { "bce", { .attrs = "", .in = "x[1,1,37,41,3] b[1,1,37,41,3]" } },
    { "dropout", { .attrs = "p=0.3 stream=9", .in = "x[1,1,37,41,9]" } },
    { "pad", { .attrs = "lo=[0,0,2,-3,0] hi=[0,0,-1,5,3]", .in = "x[1,1,37,41,9]" } },
    { "global_pool", { .attrs = "factor=0.5", .in = "x[2,1,37,41,33]" } },
    /* Small maps of many channels: windows mostly in the padding, strided, deep. */
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        .in = "x[19,1,2,2,20] p[17,1,3,3,20] p[17]" } },
    { "conv",
      { .attrs = "stride=[1,2,2] dilation=[1,2,1] pad_lo=[0,2,2] pad_hi=[0,1,2] groups=1",
        .in = "x[17,1,6,7,16] p[24,1,3,5,16] p[24]" } },
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[1,1,1] pad_hi=[1,1,1] groups=1",
        .in = "x[16,2,3,2,18] p[16,3,3,3,18] p[16]" } },
    /* Narrower than the kernel: no row of a window lies inside as a whole. */
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
        .in = "x[17,1,1,1,16] p[18,1,3,3,16] p[18]" } },
    { "conv",
      { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,0,2] pad_hi=[0,0,2] groups=1",
        .in = "x[16,1,3,2,17] p[16,1,1,5,17] p[16]" } },
};

static void kernels__equal_their_reference_on_larger_images(void **state)
{
    support_check_larger(&device, larger, sizeof larger / sizeof *larger);
}

static void moments__keep_a_small_deviation_from_a_large_mean(void **state)
{
    support_check_small_deviation(&device, 4);
    support_check_small_deviation(&device, 5); /* no whole vectors */
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
    static const enum wf_act acts[] = { WF_LEAKY_RELU, WF_SIGMOID,     WF_TANH,     WF_SILU,
                                        WF_GELU,       WF_RELU6,       WF_ELU,      WF_SELU,
                                        WF_HARD_SWISH, WF_MISH,        WF_SOFTPLUS, WF_HARD_SIGMOID,
                                        WF_SOFTSIGN,   WF_LOG_SIGMOID, WF_ABS };
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
            struct support_trial t = {
                .device = &device, .node = y->producer, .values = &v, .alias = -1
            };
            t.kernel = wf_device_cpu.find(t.node);
            t.work = (struct wf_region){ { i, 0, 0, 0, 0 }, { i + 1, 1, 1, 1, 1 } };
            struct support_trial want = t;
            support_trial_init(&t);
            support_trial_run(&t);
            support_trial_init(&want);
            support_trial_reference(&want);
            const double got = wf_view_get(&t.out[0].view, i, 0, 0, 0, 0);
            const double right = wf_view_get(&want.out[0].view, i, 0, 0, 0, 0);
            if (!(fabs(got - right) <= 1e-6 * fabs(right) + 1e-35) && !(isnan(got) && isnan(right)))
                fail_msg("activation %d of %g: %.9g, not %.9g", (int)acts[k], at[i], got, right);
            support_trial_release(&t);
            support_trial_release(&want);
        }
        support_values_free(&v);
        wf_graph_free(g);
    }
}

#ifndef WF_HAVE_DNNL
static void convolutions__run_their_reference_without_onednn(void **state)
{
    for (const struct wf_kernel *const *rows = wf_cpu_kernels; *rows; rows++)
        for (const struct wf_kernel *k = *rows; k->op; k++)
            assert_string_not_equal(k->op, "conv");
}
#endif

/* --- the device --- */

static void alloc__gives_aligned_zeroed_memory_of_any_size(void **state)
{
    static const size_t sizes[] = { 0, 1, 63, 4096, (4u << 20) - 1, 4u << 20, 9u << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = wf_device_cpu.memory.alloc(NULL, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k += 997)
            assert_int_equal(p[k], 0);
        wf_device_cpu.memory.free(NULL, p, sizes[i]);
    }
}

static void alloc__says_when_there_is_no_memory(void **state)
{
    assert_null(wf_device_cpu.memory.alloc(NULL, SIZE_MAX));
    assert_null(wf_device_cpu.memory.alloc(NULL, SIZE_MAX / 2));
}

static void copy__moves_a_box_between_strided_buffers(void **state)
{
    const struct wf_region box = { { 0, 0, 3, 5, 0 }, { 2, 1, 40, 61, 7 } };
    for (int from = SUPPORT_PACKED; from < SUPPORT_LAYOUTS; from++)
        for (int to = SUPPORT_PACKED; to < SUPPORT_LAYOUTS; to++) {
            struct support_guarded a =
                support_guarded_new(&device, WF_F32, box, (enum support_layout)from, 0xff);
            struct support_guarded b =
                support_guarded_new(&device, WF_F32, box, (enum support_layout)to, 0x11);
            support_fill_random(&a.view, 1, 2);
            wf_device_cpu.memory.copy(NULL, &b.view, &a.view);
            const uint32_t guard = 0x11111111;
            for (struct wf_cursor c = wf_cursor(b.all.box); wf_cursor_next(&c);) {
                const double want = support_inside(box, c.at) ? wf_view_at(&a.view, c.at)
                                                              : wf_dtype_get(WF_F32, &guard, 0);
                assert_true(wf_view_at(&b.all, c.at) == want);
            }
            support_guarded_free(&a);
            support_guarded_free(&b);
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
#ifndef WF_HAVE_DNNL
        cmocka_unit_test(convolutions__run_their_reference_without_onednn),
#endif
        cmocka_unit_test(alloc__gives_aligned_zeroed_memory_of_any_size),
        cmocka_unit_test(alloc__says_when_there_is_no_memory),
        cmocka_unit_test(copy__moves_a_box_between_strided_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
