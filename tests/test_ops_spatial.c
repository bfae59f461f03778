/*
 * Convolution, pooling, resampling and padding against values from PyTorch 2.15, what they read
 * worked out by hand, what they refuse, and the layers built on them. Tensors stand here in
 * PyTorch's order [N, C, D, H, W].
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/text.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "support.h"

/* --- values --- */

/* Element i in PyTorch's order; weights (out, kd, kh, kw, in) are [out, in, kd, kh, kw] there, so
 * the same rule fits both. */
static int64_t torch_offset(const struct wf_view *v, int64_t i)
{
    const struct wf_region b = v->box;
    const int64_t w = i % b.hi[WF_W], h = i / b.hi[WF_W] % b.hi[WF_H];
    i /= b.hi[WF_W] * b.hi[WF_H];
    const int64_t d = i % b.hi[WF_D], c = i / b.hi[WF_D] % b.hi[WF_C];
    return wf_view_offset(v, i / b.hi[WF_D] / b.hi[WF_C], d, h, w, c);
}

struct given {
    struct wf_shape shape;
    const double *data; /* NULL: 1, 2, 3, ... plus `first` - 1 */
    double first;
};

/* Builds one node from its text form, runs it on f64 and compares output `o`. */
static void expect(const char *op_name, const char *attrs, int n_in, const struct given in[], int o,
                   const double want[], int64_t n_want)
{
    const struct wf_op *op = wf_op_find(op_name);
    assert_non_null(op);
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    int64_t space[64] = { 0 }; /* room for any attributes */
    assert_true(op->attr_bytes <= sizeof space);
    assert_true(wf_attrs_parse(op, attrs, space, &err));
    struct wf_value *values[4] = { 0 };
    const char *const names[] = { "a", "b", "c", "d" };
    for (int i = 0; i < n_in; i++)
        if (in[i].shape.at[WF_N] > 0)
            values[i] = wf_input(g, names[i], WF_F64, in[i].shape);
    const struct wf_node *node = wf_node_add(g, op, "n", space, n_in, values);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    struct support_values v = support_values_new(g);
    for (int i = 0; i < n_in; i++)
        for (int64_t k = 0; values[i] && k < wf_shape_count(in[i].shape); k++) {
            const struct wf_view *view = &v.views[values[i]->id];
            wf_dtype_put(WF_F64, view->data, torch_offset(view, k),
                         in[i].data ? in[i].data[k] : in[i].first + (double)k);
        }
    support_run_reference(g, &v, true);
    const struct wf_view *y = &v.views[node->out[o]->id];
    assert_int_equal(wf_region_count(y->box), n_want);
    for (int64_t k = 0; k < n_want; k++) {
        const double got = wf_dtype_get(y->dtype, y->data, torch_offset(y, k));
        if (!(fabs(got - want[k]) <= 1e-6 * fmax(1, fabs(want[k]))) &&
            !(isnan(got) && isnan(want[k])))
            fail_msg("%s: element %d is %.9g, expected %.9g", op_name, (int)k, got, want[k]);
    }
    support_values_free(&v);
    wf_graph_free(g);
}

#define EXPECT(op, attrs, in, o, ...)                                                              \
    expect((op), (attrs), (int)(sizeof(in) / sizeof(in)[0]), (in), (o), (double[]){ __VA_ARGS__ }, \
           (int64_t)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)))

static void conv__equals_pytorch(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 3, 4, 2), NULL, 1 },
                                { WF_SHAPE(2, 1, 2, 3, 2), NULL, -11 },
                                { WF_SHAPE(1, 1, 1, 1, 2), (double[]){ 0.5, -1 }, 0 } };
    EXPECT("conv", "stride=[1,1,2] dilation=[1,1,1] pad_lo=[0,0,1] pad_hi=[0,1,0] groups=1", in, 0,
           -209.5, -465.5, -369.5, -729.5, -329.5, -601.5, 701, 1117, 925, 1429, 413, 621);
    EXPECT("conv", "stride=[1,2,1] dilation=[1,2,2] pad_lo=[0,1,2] pad_hi=[0,0,1] groups=1", in, 0,
           -93.5, -107.5, -141.5, 481, 515, 433);
    const struct given grouped[] = { { WF_SHAPE(1, 1, 2, 3, 2), NULL, 1 },
                                     { WF_SHAPE(4, 1, 2, 2, 1), NULL, -5 },
                                     { { { 0 } }, NULL, 0 } };
    EXPECT("conv", "stride=[1,1,1] dilation=[1,1,1] groups=2", grouped, 0, -35, -49, 13, 15, 169,
           187, 313, 347);
}

static void convt__equals_pytorch(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 2, 3, 1), NULL, 1 },
                                { WF_SHAPE(1, 1, 3, 3, 2), NULL, -4 },
                                { WF_SHAPE(1, 1, 1, 1, 2), (double[]){ 0.25, -0.5 }, 0 } };
    EXPECT("convt",
           "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1 extent=[1,4,6]",
           in, 0, 0.25, -0.75, 0.25, -0.75, 0.25, 3.25, -8.75, -19.75, -8.75, -19.75, -8.75, 0.25,
           0.25, -0.75, 0.25, -0.75, 0.25, 6.25, 12.25, 26.25, 15.25, 32.25, 18.25, 24.25, 8.5,
           25.5, 17.5, 43.5, 26.5, 29.5, 35.5, 87.5, 53.5, 123.5, 71.5, 80.5, 35.5, 79.5, 44.5,
           97.5, 53.5, 59.5, 47.5, 106.5, 59.5, 130.5, 71.5, 77.5);
}

static const double bumps[] = { 3, 3, 1, -2, 5, 5, 0, 7, 7, 2, 9, -1, 4, 4, 4, 6, 1, 8, 8, 2 };

static void maxpool__takes_the_first_maximum_and_its_place(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 4, 5, 1), bumps, 0 } };
    const char *attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]";
    EXPECT("maxpool", attrs, in, 0, 5, 7, 7, 9, 8, 8);
    /* PyTorch's flat places 5, 7, 8, 10, 17, 18 in the image, seen from each window's corner. */
    EXPECT("maxpool", attrs, in, 1, 7, 7, 6, 4, 7, 6);
    const double nan_inside[] = { 1, (double)NAN, 3, 2 };
    const struct given with_nan[] = { { WF_SHAPE(1, 1, 1, 4, 1), nan_inside, 0 } };
    EXPECT("maxpool", "kernel=[1,1,2] stride=[1,1,1]", with_nan, 0, (double)NAN, (double)NAN, 3);
    EXPECT("maxpool", "kernel=[1,1,2] stride=[1,1,1]", with_nan, 1, 1, 0, 0);
}

static void avgpool__divides_by_the_window_or_by_what_is_inside(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 4, 5, 1), bumps, 0 } };
    EXPECT("avgpool", "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]", in, 0, 11 / 9.,
           16 / 9., 12 / 9., 20 / 9., 38 / 9., 3);
    EXPECT("avgpool", "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
           in, 0, 2.75, 16 / 6., 3, 20 / 6., 38 / 9., 4.5);
}

static void upsample__equals_pytorch(void **state)
{
    const double x[] = { 1, 2, 4, 8, 16, 32 };
    const struct given in[] = { { WF_SHAPE(1, 1, 2, 3, 1), x, 0 } };
    EXPECT("upsample", "mode=linear extent=[1,3,5]", in, 0, 1, 1.4, 2, 3.2, 4, 4.5, 6.3, 9, 14.4,
           18, 8, 11.2, 16, 25.6, 32);
    EXPECT("upsample", "mode=linear_corners extent=[1,3,5]", in, 0, 1, 1.5, 2, 3, 4, 4.5, 6.75, 9,
           13.5, 18, 8, 12, 16, 24, 32);
    EXPECT("upsample", "mode=nearest extent=[1,3,5]", in, 0, 1, 1, 2, 2, 4, 1, 1, 2, 2, 4, 8, 8, 16,
           16, 32);
    const struct given signal[] = { { WF_SHAPE(1, 1, 1, 6, 1), x, 0 } };
    EXPECT("upsample", "mode=linear extent=[1,1,4]", signal, 0, 1.25, 3.5, 10, 28);
}

static void pad__equals_pytorch(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 2, 3, 1), NULL, 1 } };
    const char *zero = "mode=zero lo=[0,0,1,-1,0] hi=[0,0,0,1,0]";
    EXPECT("pad", zero, in, 0, 0, 0, 0, 2, 3, 0, 5, 6, 0);
    EXPECT("pad", "mode=reflect lo=[0,0,1,2,0] hi=[0,0,0,1,0]", in, 0, 6, 5, 4, 5, 6, 5, 3, 2, 1, 2,
           3, 2, 6, 5, 4, 5, 6, 5);
    EXPECT("pad", "mode=reflect lo=[0,0,0,-1,0] hi=[0,0,1,2,0]", in, 0, 2, 3, 2, 1, 5, 6, 5, 4, 2,
           3, 2, 1);
    EXPECT("pad", "mode=circular lo=[0,0,1,2,0] hi=[0,0,0,1,0]", in, 0, 5, 6, 4, 5, 6, 4, 2, 3, 1,
           2, 3, 1, 5, 6, 4, 5, 6, 4);
    EXPECT("pad", "mode=edge lo=[0,0,1,2,0] hi=[0,0,0,1,0]", in, 0, 1, 1, 1, 2, 3, 3, 1, 1, 1, 2, 3,
           3, 4, 4, 4, 5, 6, 6);
}

static void reshape__keeps_pytorchs_element_order(void **state)
{
    const struct given in[] = { { WF_SHAPE(1, 1, 2, 3, 2), NULL, 1 } };
    EXPECT("reshape", "shape=[1,1,1,1,12]", in, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    EXPECT("reshape", "shape=[1,1,3,2,2]", in, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
}

/* --- what is read --- */

/* Along W, for a node on an image of `extent` columns; other axes have extent one. */
static void expect_reads(const char *op_name, const char *attrs, int64_t extent, int64_t kernel,
                         const int64_t work[2], const int64_t want[2])
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    const struct wf_op *op = wf_op_find(op_name);
    int64_t space[64] = { 0 };
    assert_true(wf_attrs_parse(op, attrs, space, &err));
    struct wf_value *in[3] = { wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, extent, 1)) };
    if (kernel > 0) {
        in[1] = wf_input(g, "w", WF_F32, WF_SHAPE(1, 1, 1, kernel, 1));
        in[1]->replicated = true;
    }
    const struct wf_node *node = wf_node_add(g, op, "n", space, op->n_in, in);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    struct wf_region r = wf_shape_region(node->out[0]->shape);
    r.lo[WF_W] = work[0];
    r.hi[WF_W] = work[1];
    r = wf_op_reads(node, 0, r);
    if (want[0] == want[1]) {
        assert_true(wf_region_is_empty(r));
    } else {
        assert_int_equal(r.lo[WF_W], want[0]);
        assert_int_equal(r.hi[WF_W], want[1]);
    }
    wf_graph_free(g);
}

#define R(a, b) ((int64_t[2]){ (a), (b) })

static void reads__are_the_stencil_and_nothing_more(void **state)
{
    const char *half = "stride=[1,1,2] dilation=[1,1,1] pad_lo=[0,0,1] pad_hi=[0,0,1] groups=1";
    expect_reads("conv", half, 9, 3, R(0, 2), R(-1, 4));
    expect_reads("conv", half, 9, 3, R(3, 5), R(5, 10));
    /* Output column p of the adjoint: inputs o with 2 o + k - 1 = p, k = 0, 1, 2. */
    const char *twice =
        "stride=[1,1,2] dilation=[1,1,1] pad_lo=[0,0,1] pad_hi=[0,0,1] groups=1 extent=[1,1,9]";
    expect_reads("convt", twice, 5, 3, R(2, 3), R(1, 2));
    expect_reads("convt", twice, 5, 3, R(3, 4), R(1, 3));
    expect_reads("convt", twice, 5, 3, R(0, 4), R(0, 3));
    /* Stride 3 over a kernel of 1: two columns of three come from nowhere. */
    const char *sparse = "stride=[1,1,3] dilation=[1,1,1] groups=1 extent=[1,1,9]";
    expect_reads("convt", sparse, 3, 1, R(3, 4), R(1, 2));
    expect_reads("convt", sparse, 3, 1, R(4, 6), R(0, 0));
    /* Stride 2 with dilation 2: odd columns see nothing. */
    const char *odd = "stride=[1,1,2] dilation=[1,1,2] groups=1 extent=[1,1,9]";
    expect_reads("convt", odd, 3, 3, R(3, 4), R(0, 0));
    expect_reads("convt", odd, 3, 3, R(4, 5), R(0, 3));
    expect_reads("upsample", "mode=nearest extent=[1,1,8]", 4, 0, R(3, 5), R(1, 3));
    /* Centres of columns 3 and 4 of 8 over 4 lie at 1.25 and 1.75. */
    expect_reads("upsample", "mode=linear extent=[1,1,8]", 4, 0, R(3, 5), R(1, 3));
    expect_reads("upsample", "mode=linear extent=[1,1,8]", 4, 0, R(0, 1), R(0, 1));
    /* Column 1 of 4 shows in the columns whose centres lie within one of it: 1 to 4 of 8. */
    expect_reads("upsample_grad", "mode=linear extent=[1,1,4]", 8, 0, R(1, 2), R(1, 5));
    expect_reads("upsample_grad", "mode=nearest extent=[1,1,8]", 4, 0, R(1, 2), R(0, 0));
    const char *ring = "mode=circular lo=[0,0,0,2,0] hi=[0,0,0,2,0]";
    expect_reads("pad", ring, 8, 0, R(4, 6), R(2, 4));
    expect_reads("pad", ring, 8, 0, R(0, 2), R(6, 8));
    expect_reads("pad", ring, 8, 0, R(0, 4), R(0, 8));
    expect_reads("pad", "mode=reflect lo=[0,0,0,2,0]", 8, 0, R(0, 2), R(1, 3));
    expect_reads("pad", "mode=edge hi=[0,0,0,3,0]", 8, 0, R(9, 11), R(7, 8));
    expect_reads("pad", "mode=zero lo=[0,0,0,2,0]", 8, 0, R(0, 3), R(-2, 1));
    expect_reads("pad_grad", "mode=reflect lo=[0,0,0,2,0]", 10, 0, R(1, 2), R(1, 4));
}

/* --- layers --- */

static void transposed_layer__has_pytorchs_extent_weight_and_bound(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(2, 1, 5, 7, 6));
    const struct wf_value *y = wf_conv_transpose(g, x,
                                                 &(struct wf_conv){ .name = "up",
                                                                    .out = 4,
                                                                    .kernel = { 1, 3, 4 },
                                                                    .stride = { 1, 2, 3 },
                                                                    .pad_lo = { 0, 1, 0 },
                                                                    .pad_hi = { 0, 1, 0 },
                                                                    .output_pad = { 0, 1, 2 },
                                                                    .groups = 2,
                                                                    .bias = true });
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    assert_true(wf_shape_equal(y->shape, WF_SHAPE(2, 1, 10, 24, 4)));
    const struct wf_value *w = wf_graph_find(g, "up.weight"), *b = wf_graph_find(g, "up.bias");
    assert_true(wf_shape_equal(w->shape, WF_SHAPE(6, 1, 3, 4, 2)));
    assert_int_equal(w->border_dims, 2);
    assert_int_equal(b->border_dims, -1);
    /* fan in = out / groups * 3 * 4 = 24 */
    assert_true(fabs(w->init_bound - 0.20412414523193154) < 1e-15);
    assert_true(fabs(b->init_bound - 0.20412414523193154) < 1e-15);
    wf_graph_free(g);
}

static void same_padding__keeps_the_extent_and_puts_the_odd_one_last(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 5, 7, 2));
    const struct wf_value *y = wf_conv(
        g, x,
        &(struct wf_conv){
            .name = "c", .out = 3, .kernel = { 1, 2, 3 }, .dilation = { 1, 1, 2 }, .same = true });
    const struct wf_value *z = wf_conv(g, x,
                                       &(struct wf_conv){ .name = "r",
                                                          .out = 3,
                                                          .kernel = { 1, 3, 3 },
                                                          .same = true,
                                                          .pad_mode = WF_PAD_REFLECT });
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    const struct wf_conv_attrs *a = y->producer->attrs;
    assert_true(wf_shape_equal(y->shape, WF_SHAPE(1, 1, 5, 7, 3)));
    assert_int_equal(a->pad_lo[1], 0);
    assert_int_equal(a->pad_hi[1], 1);
    assert_int_equal(a->pad_lo[2], 2);
    assert_true(wf_shape_equal(z->shape, WF_SHAPE(1, 1, 5, 7, 3)));
    assert_string_equal(z->producer->in[0]->producer->op->name, "pad");
    wf_graph_free(g);
}

static void half_precision__casts_the_weight_and_keeps_gradients_in_f32(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_BF16, WF_SHAPE(1, 1, 4, 4, 2));
    struct wf_value *y = wf_conv(
        g, x, &(struct wf_conv){ .name = "c", .out = 3, .kernel = { 1, 3, 3 }, .bias = true });
    y = wf_global_pool(g, y, "pool");
    y = wf_linear(g, y, "fc", 2, true);
    struct wf_value *dy = wf_input(g, "dy", WF_BF16, WF_SHAPE(1, 1, 1, 1, 2));
    if (!wf_graph_grad(g, y, dy, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(y->dtype, WF_BF16);
    static const char *const names[] = { "c.weight", "c.bias", "fc.weight", "fc.bias" };
    for (int i = 0; i < 4; i++) {
        const struct wf_value *p = wf_graph_find(g, names[i]);
        const struct wf_value *d = p->grad;
        assert_int_equal(p->dtype, WF_F32);
        assert_non_null(d);
        assert_int_equal(d->dtype, WF_F32);
        assert_true(wf_shape_equal(d->shape, p->shape));
    }
    assert_int_equal(wf_graph_find(g, "fc.weight")->border_dims, 0);
    wf_graph_free(g);
}

/* --- refusals --- */

static void refused(const char *op_name, const char *attrs, struct wf_shape x, struct wf_shape w,
                    const char *says)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    const struct wf_op *op = wf_op_find(op_name);
    int64_t space[64] = { 0 };
    assert_true(wf_attrs_parse(op, attrs, space, &err));
    struct wf_value *in[3] = { wf_input(g, "x", WF_F32, x) };
    if (w.at[WF_N] > 0)
        in[1] = wf_input(g, "w", WF_F32, w);
    assert_null(wf_node_add(g, op, "layer7", space, op->n_in, in));
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "layer7"));
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    wf_graph_free(g);
}

static void what_does_not_fit__is_refused_with_the_numbers(void **state)
{
    const struct wf_shape none = { { 0 } }, image = WF_SHAPE(1, 1, 4, 5, 3);
    const char *plain = "stride=[1,1,1] dilation=[1,1,1] groups=1";
    refused("conv", plain, image, WF_SHAPE(2, 1, 3, 3, 4), "3 channels, the weight wants 4");
    refused("conv", plain, image, WF_SHAPE(2, 1, 5, 3, 3), "spans 5 along H");
    refused("conv", "stride=[1,1,1] dilation=[1,1,1] groups=2", image, WF_SHAPE(3, 1, 1, 1, 3),
            "3 filters do not split into 2 groups");
    refused("conv", "stride=[1,0,1] dilation=[1,1,1] groups=1", image, WF_SHAPE(2, 1, 3, 3, 3),
            "stride along H is 0");
    refused("conv", "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,0,-1] groups=1", image,
            WF_SHAPE(2, 1, 3, 3, 3), "must not be negative");
    refused("convt", "stride=[1,2,2] dilation=[1,1,1] groups=1 extent=[1,8,12]", image,
            WF_SHAPE(3, 1, 2, 2, 2), "belongs to an input of 6, not 5");
    refused("maxpool", "kernel=[1,2,2] stride=[1,2,2] pad_lo=[0,2,0]", image, none,
            "must be below the window of 2");
    refused("avgpool", "kernel=[1,5,2] stride=[1,2,2]", image, none, "spans 5 along H");
    refused("pad", "mode=reflect lo=[0,0,4,0,0]", image, none, "at most 3");
    refused("pad", "mode=circular hi=[0,0,0,6,0]", image, none, "at most 5");
    refused("pad", "mode=zero lo=[0,0,-2,0,0] hi=[0,0,-2,0,0]", image, none, "leaves nothing");
    refused("pad", "mode=edge lo=[0,0,0,0,1]", image, none, "zero padding only");
    refused("slice", "lo=[0,0,0,0,2] hi=[1,1,4,5,4]", image, none, "not a part of [0, 3)");
    refused("slice", "lo=[0,0,1,0,0] hi=[1,1,4,5,3]", image, none, "cuts channels only");
    refused("reshape", "shape=[1,1,4,5,4]", image, none, "60 elements per sample");
    refused("reshape", "shape=[2,1,1,1,30]", image, none, "keeps the samples");
    refused("broadcast", "extent=[1,2,2] factor=1", image, none, "takes a vector");
    refused("upsample", "mode=linear extent=[1,0,2]", image, none, "at least 1");
}

static void layers__that_do_not_fit_are_refused_by_name(void **state)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 4, 5, 6));
    assert_null(wf_conv(g, x, &(struct wf_conv){ .name = "enc2", .out = 4, .groups = 4 }));
    assert_false(wf_graph_ok(g, &err));
    assert_string_equal(err.text, "layer 'enc2': 6 channels in and 4 out do not split into 4 "
                                  "groups: use a divisor of both");
    wf_graph_free(g);
    g = wf_graph_new(NULL);
    x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 4, 5, 6));
    assert_null(wf_linear(g, x, "head", 4, true));
    err = (struct wf_err){ 0 };
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "layer 'head': a linear layer takes a vector"));
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv__equals_pytorch),
        cmocka_unit_test(convt__equals_pytorch),
        cmocka_unit_test(maxpool__takes_the_first_maximum_and_its_place),
        cmocka_unit_test(avgpool__divides_by_the_window_or_by_what_is_inside),
        cmocka_unit_test(upsample__equals_pytorch),
        cmocka_unit_test(pad__equals_pytorch),
        cmocka_unit_test(reshape__keeps_pytorchs_element_order),
        cmocka_unit_test(reads__are_the_stencil_and_nothing_more),
        cmocka_unit_test(transposed_layer__has_pytorchs_extent_weight_and_bound),
        cmocka_unit_test(same_padding__keeps_the_extent_and_puts_the_odd_one_last),
        cmocka_unit_test(half_precision__casts_the_weight_and_keeps_gradients_in_f32),
        cmocka_unit_test(what_does_not_fit__is_refused_with_the_numbers),
        cmocka_unit_test(layers__that_do_not_fit_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
