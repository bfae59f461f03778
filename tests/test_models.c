/* Networks: parameters as published or counted from the layer list, shapes, names, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "models/talk.h"

/* The network on an image of `extent` along each of its dimensions. */
static struct wf_graph *build(const char *name, struct wf_model_config c, const int64_t extent[3],
                              struct wf_value **logits)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find(name, &err);
    assert_non_null(m);
    assert_true(wf_model_resolve(m, &c, &err));
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x =
        wf_input(g, "image", WF_F32, WF_SHAPE(2, extent[0], extent[1], extent[2], c.in));
    *logits = m->build(g, &c, x);
    const bool ok = wf_graph_ok(g, &err);
    if (!ok)
        print_message("%s\n", err.text);
    assert_true(ok);
    return g;
}

static int64_t parameters(const char *name, struct wf_model_config c)
{
    static const int64_t extent[4][3] = { { 0 }, { 1, 1, 64 }, { 1, 64, 64 }, { 32, 32, 32 } };
    struct wf_value *logits;
    struct wf_graph *g = build(name, c, extent[c.dims], &logits);
    const int64_t count = wf_graph_parameters(g, false);
    assert_int_equal(count, wf_graph_parameters(g, true));
    wf_graph_free(g);
    return count;
}

static void unet__has_the_published_parameters(void **state)
{
    assert_int_equal(parameters("unet", (struct wf_model_config){ .dims = 2 }), 31037698);
    assert_int_equal(
        parameters("unet", (struct wf_model_config){ .dims = 2, .in = 1, .classes = 1 }), 31036481);
    assert_int_equal(
        parameters("unet", (struct wf_model_config){ .dims = 2, .classes = 7, .base = 32 }),
        7763239);
    assert_int_equal(parameters("unet", (struct wf_model_config){ .dims = 2, .classes = 7 }),
                     31038023);
    assert_int_equal(parameters("unet", (struct wf_model_config){ .dims = 3, .base = 32 }),
                     22580034);
}

/* DDU-Net's body: models.md counts 30,479 without its communication network. */
static void unet__of_base_4_and_depth_3_has_30479_parameters(void **state)
{
    const struct wf_model_config c = { .dims = 2, .in = 1, .classes = 3, .base = 4, .depth = 3 };
    assert_int_equal(parameters("unet", c), 30479);
}

static void unet3d__has_the_published_parameters_beside_batch_norm(void **state)
{
    static const int64_t extent[3] = { 16, 16, 16 };
    struct wf_value *logits;
    struct wf_graph *g = build("unet3d", (struct wf_model_config){ 0 }, extent, &logits);
    int64_t norm = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM && strstr(g->values[i]->name, ".bn"))
            norm += wf_shape_count(g->values[i]->shape);
    assert_int_equal(norm, 4672); /* two for each of 2336 normalised channels */
    assert_int_equal(wf_graph_parameters(g, false) - norm, 19069955);
    wf_graph_free(g);
}

static void fcn__has_the_published_parameters(void **state)
{
    const struct wf_model_config c = { .dims = 2, .classes = 21 };
    assert_int_equal(parameters("fcn8s", c), 134489759);
    assert_int_equal(parameters("fcn16s", c), 134815994);
    assert_int_equal(parameters("fcn32s", c), 136152917);
}

static void densenet121__has_the_published_parameters(void **state)
{
    assert_int_equal(parameters("densenet121", (struct wf_model_config){ .dims = 2 }), 7978856);
    assert_int_equal(
        parameters("densenet121", (struct wf_model_config){ .dims = 2, .classes = 10 }), 6964106);
    /* The same body, and a score layer where the classifier was. */
    assert_int_equal(
        parameters("densenet121_seg", (struct wf_model_config){ .dims = 2, .classes = 10 }),
        6964106);
}

static void alexnet__has_the_published_parameters(void **state)
{
    assert_int_equal(parameters("alexnet", (struct wf_model_config){ .dims = 2 }), 61100840);
    assert_int_equal(parameters("alexnet", (struct wf_model_config){ .dims = 2, .classes = 10 }),
                     57044810);
    assert_int_equal(parameters("alexnet_cifar", (struct wf_model_config){ .dims = 2 }), 2472266);
}

/* Weights and biases of conv 16, 16, 32, 32, 64 and the linear layer, by hand. */
static void cnn__has_the_parameters_of_its_layer_list(void **state)
{
    assert_int_equal(parameters("cnn1d", (struct wf_model_config){ .dims = 1 }), 11954);
    assert_int_equal(parameters("cnn2d", (struct wf_model_config){ .dims = 2 }), 35282);
    assert_int_equal(parameters("cnn3d", (struct wf_model_config){ .dims = 3 }), 105266);
    assert_int_equal(parameters("cnn2d", (struct wf_model_config){ .dims = 2, .classes = 10 }),
                     35282 + 8 * 65);
}

/* 30,479 and the communication network's; 64 channels need a wider U-Net. */
static void ddunet__has_the_published_parameters(void **state)
{
    static const int64_t comm[][2] = { { 0, 0 },    { 1, 84 },     { 2, 318 },    { 4, 1236 },
                                       { 8, 4872 }, { 16, 19344 }, { 32, 77088 }, { 64, 307776 } };
    for (int i = 0; i < 8; i++) {
        struct wf_model_config c = {
            .dims = 2, .in = 1, .classes = 3, .base = comm[i][0] > 32 ? 8 : 4, .depth = 3
        };
        struct wf_subdomains own = { .tiles = { 1, 1, 2 }, .layers = 3, .kernel = 5 };
        c.own = &own;
        const int64_t without = parameters("ddunet", c);
        own.channels = comm[i][0];
        assert_int_equal(parameters("ddunet", c) - without, comm[i][1]);
        if (c.base == 4)
            assert_int_equal(without, 30479);
    }
    struct wf_model_config c = { .dims = 2 };
    struct wf_value *logits;
    struct wf_graph *frozen = build("ddunet_resnet18", c, (const int64_t[]){ 1, 64, 64 }, &logits);
    assert_int_equal(wf_graph_parameters(frozen, false), 2333863);
    wf_graph_free(frozen);
    c.own = &(struct wf_subdomains){ .channels = 64, .layers = 3, .kernel = 5 };
    assert_int_equal(parameters("ddunet_resnet18", c), 5116647);
}

static void assert_logits(const char *name, struct wf_model_config c, const int64_t extent[3],
                          struct wf_shape want)
{
    struct wf_value *logits;
    struct wf_graph *g = build(name, c, extent, &logits);
    for (int axis = 0; axis < WF_AXES; axis++)
        assert_int_equal(logits->shape.at[axis], want.at[axis]);
    wf_graph_free(g);
}

static void unet__gives_a_prediction_per_pixel_whatever_the_size(void **state)
{
    const struct wf_model_config two = { .dims = 2, .classes = 5, .base = 2 };
    assert_logits("unet", two, (const int64_t[]){ 1, 37, 53 }, WF_SHAPE(2, 1, 37, 53, 5));
    assert_logits("unet", two, (const int64_t[]){ 1, 31, 64 }, WF_SHAPE(2, 1, 31, 64, 5));
    const struct wf_model_config one = { .dims = 1, .classes = 3, .base = 2 };
    assert_logits("unet", one, (const int64_t[]){ 1, 1, 101 }, WF_SHAPE(2, 1, 1, 101, 3));
    const struct wf_model_config three = { .dims = 3, .base = 2, .depth = 2 };
    assert_logits("unet", three, (const int64_t[]){ 9, 7, 11 }, WF_SHAPE(2, 9, 7, 11, 2));
    const struct wf_model_config original = { .base = 2 };
    assert_logits("unet3d", original, (const int64_t[]){ 9, 17, 11 }, WF_SHAPE(2, 9, 17, 11, 3));
}

static void fcn__gives_a_prediction_per_pixel_whatever_the_size(void **state)
{
    static const char *const names[] = { "fcn8s", "fcn16s", "fcn32s", "densenet121_seg" };
    const struct wf_model_config two = { .classes = 4, .base = 2 };
    const struct wf_model_config three = { .dims = 3, .classes = 4, .base = 1 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_logits(names[i], two, (const int64_t[]){ 1, 64, 96 }, WF_SHAPE(2, 1, 64, 96, 4));
        assert_logits(names[i], two, (const int64_t[]){ 1, 37, 101 }, WF_SHAPE(2, 1, 37, 101, 4));
        assert_logits(names[i], three, (const int64_t[]){ 33, 35, 47 }, WF_SHAPE(2, 33, 35, 47, 4));
    }
    assert_logits("fcn8s", two, (const int64_t[]){ 1, 1, 3 }, WF_SHAPE(2, 1, 1, 3, 4));
}

static void densenet121__names_its_tensors_as_torchvision_does(void **state)
{
    static const char *const names[] = {
        "features.conv0.weight",
        "features.norm0.running_var",
        "features.denseblock1.denselayer1.norm1.weight",
        "features.denseblock3.denselayer24.conv2.weight",
        "features.transition3.conv.weight",
        "features.norm5.bias",
        "classifier.weight",
    };
    struct wf_value *logits;
    struct wf_graph *g = build("densenet121", (struct wf_model_config){ .base = 2 },
                               (const int64_t[]){ 1, 64, 64 }, &logits);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(wf_graph_find(g, names[i]));
    wf_graph_free(g);
}

static void alexnet__names_its_tensors_as_torchvision_does(void **state)
{
    static const struct {
        const char *model, *names[10];
    } nets[] = {
        { "alexnet",
          { "features.0.weight", "features.3.bias", "features.6.weight", "features.8.weight",
            "features.10.bias", "classifier.1.weight", "classifier.4.bias",
            "classifier.6.weight" } },
        { "alexnet_cifar",
          { "features.0.weight", "features.3.bias", "features.6.weight", "features.8.weight",
            "features.10.bias", "classifier.weight", "classifier.bias" } },
    };
    for (size_t i = 0; i < 2; i++) {
        struct wf_value *logits;
        struct wf_graph *g = build(nets[i].model, (struct wf_model_config){ .base = 1 },
                                   (const int64_t[]){ 1, 64, 64 }, &logits);
        for (const char *const *name = nets[i].names; *name; name++)
            assert_non_null(wf_graph_find(g, *name));
        wf_graph_free(g);
    }
}

static void alexnet__takes_images_of_any_size(void **state)
{
    const struct wf_model_config c = { .classes = 4, .base = 1 };
    assert_logits("alexnet", c, (const int64_t[]){ 1, 224, 224 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("alexnet", c, (const int64_t[]){ 1, 64, 96 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("alexnet", c, (const int64_t[]){ 1, 416, 224 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("alexnet", c, (const int64_t[]){ 1, 256, 275 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("alexnet_cifar", c, (const int64_t[]){ 1, 32, 32 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("alexnet_cifar", c, (const int64_t[]){ 1, 71, 100 }, WF_SHAPE(2, 1, 1, 1, 4));
}

static void cnn__gives_a_prediction_per_image_whatever_the_size(void **state)
{
    const struct wf_model_config c = { .classes = 4 };
    assert_logits("cnn1d", c, (const int64_t[]){ 1, 1, 13 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("cnn2d", c, (const int64_t[]){ 1, 7, 13 }, WF_SHAPE(2, 1, 1, 1, 4));
    assert_logits("cnn3d", c, (const int64_t[]){ 5, 7, 9 }, WF_SHAPE(2, 1, 1, 1, 4));
}

static void unet__names_its_tensors_by_level(void **state)
{
    static const char *const names[] = {
        "enc0.conv0.weight",
        "enc0.bn0.running_mean",
        "enc1.bn1.running_var",
        "enc2.conv1.weight",
        "enc2.bn1.bias",
        "up1.weight",
        "up0.bias",
        "dec1.conv0.weight",
        "dec0.bn1.weight",
        "out.weight",
        "out.bias",
    };
    struct wf_value *logits;
    struct wf_graph *g = build("unet", (struct wf_model_config){ .base = 2, .depth = 2 },
                               (const int64_t[]){ 1, 16, 16 }, &logits);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(wf_graph_find(g, names[i]));
    assert_null(wf_graph_find(g, "enc0.conv0.bias")); /* batch norm has one */
    assert_null(wf_graph_find(g, "enc3.conv0.weight"));
    assert_null(wf_graph_find(g, "up2.weight"));
    wf_graph_free(g);
}

static void unet__can_be_differentiated_in_half_precision(void **state)
{
    struct wf_err err = { 0 };
    struct wf_model_config c = { .base = 2, .depth = 1 };
    const struct wf_model *m = wf_model_find("unet", &err);
    assert_true(wf_model_resolve(m, &c, &err));
    struct wf_graph *g =
        wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = WF_BF16 });
    struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 9, 7, 3));
    struct wf_value *y = m->build(g, &c, x);
    assert_true(wf_graph_ok(g, &err));
    assert_int_equal(y->dtype, WF_BF16);
    struct wf_value *dy = wf_input(g, "dy", WF_BF16, y->shape);
    assert_true(wf_graph_grad(g, y, dy, 0, NULL, NULL, &err));
    for (size_t i = 0; i < g->n_values; i++) {
        if (g->values[i]->kind != WF_PARAM)
            continue;
        const struct wf_value *d = g->values[i]->grad;
        assert_non_null(d);
        assert_int_equal(d->dtype, WF_F32);
        assert_true(d->replicated);
        assert_true(wf_shape_equal(d->shape, g->values[i]->shape));
    }
    wf_graph_free(g);
}

static void find__an_unknown_name_gets_the_closest_known_one(void **state)
{
    struct wf_err err = { 0 };
    assert_null(wf_model_find("unet3", &err));
    assert_int_equal(err.code, WF_ERR_USAGE);
    assert_non_null(strstr(err.text, "did you mean 'unet"));
    err = (struct wf_err){ 0 };
    assert_null(wf_model_find("cn2d", &err));
    assert_non_null(strstr(err.text, "did you mean 'cnn2d'"));
}

static void resolve__fills_zeros_and_refuses_what_the_network_has_not(void **state)
{
    struct wf_err err = { 0 };
    const struct wf_model *unet = wf_model_find("unet", &err);
    struct wf_model_config c = { 0 };
    assert_true(wf_model_resolve(unet, &c, &err));
    assert_int_equal(c.dims, 2);
    assert_int_equal(c.in, 3);
    assert_int_equal(c.classes, 2);
    assert_int_equal(c.base, 64);
    assert_int_equal(c.depth, 4);

    struct wf_model_config wrong[] = { { .dims = 4 }, { .classes = -1 }, { .depth = 40 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct wf_err){ 0 };
        assert_false(wf_model_resolve(unet, &wrong[i], &err));
        assert_int_equal(err.code, WF_ERR_USAGE);
    }
    struct wf_model_config deep = { .depth = 3 };
    err = (struct wf_err){ 0 };
    assert_false(wf_model_resolve(wf_model_find("cnn2d", &err), &deep, &err));
    assert_non_null(strstr(err.text, "has no 'depth'"));
}

static void build__refuses_an_image_of_other_channels_or_dimensions(void **state)
{
    static const struct {
        struct wf_shape image;
        const char *advice;
    } wrong[] = {
        { { { 1, 1, 32, 32, 4 } }, "set model.in to 4" },
        { { { 1, 8, 32, 32, 3 } }, "set model.dims to 3" },
    };
    for (size_t i = 0; i < 2; i++) {
        struct wf_err err = { 0 };
        struct wf_model_config c = { .dims = 2, .base = 2 };
        const struct wf_model *unet = wf_model_find("unet", &err);
        assert_true(wf_model_resolve(unet, &c, &err));
        struct wf_graph *g = wf_graph_new(NULL);
        assert_null(unet->build(g, &c, wf_input(g, "image", WF_F32, wrong[i].image)));
        assert_false(wf_graph_ok(g, &err));
        assert_non_null(strstr(err.text, wrong[i].advice));
        wf_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddunet__has_the_published_parameters),
        cmocka_unit_test(unet__has_the_published_parameters),
        cmocka_unit_test(unet__of_base_4_and_depth_3_has_30479_parameters),
        cmocka_unit_test(unet3d__has_the_published_parameters_beside_batch_norm),
        cmocka_unit_test(fcn__has_the_published_parameters),
        cmocka_unit_test(densenet121__has_the_published_parameters),
        cmocka_unit_test(alexnet__has_the_published_parameters),
        cmocka_unit_test(cnn__has_the_parameters_of_its_layer_list),
        cmocka_unit_test(unet__gives_a_prediction_per_pixel_whatever_the_size),
        cmocka_unit_test(fcn__gives_a_prediction_per_pixel_whatever_the_size),
        cmocka_unit_test(densenet121__names_its_tensors_as_torchvision_does),
        cmocka_unit_test(alexnet__names_its_tensors_as_torchvision_does),
        cmocka_unit_test(alexnet__takes_images_of_any_size),
        cmocka_unit_test(cnn__gives_a_prediction_per_image_whatever_the_size),
        cmocka_unit_test(unet__names_its_tensors_by_level),
        cmocka_unit_test(unet__can_be_differentiated_in_half_precision),
        cmocka_unit_test(find__an_unknown_name_gets_the_closest_known_one),
        cmocka_unit_test(resolve__fills_zeros_and_refuses_what_the_network_has_not),
        cmocka_unit_test(build__refuses_an_image_of_other_channels_or_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
