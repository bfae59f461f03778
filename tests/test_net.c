/* needs: COMMAND */
/* Networks as lists of layers: built, read, printed, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/options_settings.h"
#include "models/talk.h"
#include "net/net.h"
#include "net/record.h"
#include "ops/build.h"
#include "support.h"

static struct wf_net *parsed(const char *text)
{
    struct wf_err err = { 0 };
    struct wf_net *const net = wf_net_parse(text, "net.yaml", &err);
    if (!net)
        fail_msg("%s", err.text);
    return net;
}

static char *graph_text(struct wf_arena *arena, const struct wf_net *net, struct wf_shape image)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_err err = { 0 };
    struct wf_value *const y = wf_net_build(g, net, wf_input(g, "image", WF_F32, image), NULL);
    wf_graph_output(g, y);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    char *const text = wf_graph_print(arena, g);
    wf_graph_free(g);
    return text;
}

/* U-Net of depth 1 by hand, as src/models/unet.c has it. */
static const char small_unet[] =
    "name: small\n"
    "dims: 2\n"
    "in: 3\n"
    "layers:\n"
    "  - { name: enc0.conv0, kind: conv, in: image, out: 4, kernel: 3, pad: 1 }\n"
    "  - { name: enc0.bn0, kind: batch_norm, act: relu }\n"
    "  - { name: enc0.conv1, kind: conv, out: 4, kernel: 3, pad: same }\n"
    "  - { name: enc0.bn1, kind: batch_norm, act: relu }\n"
    "  - { name: pool0, kind: max_pool, kernel: 2 }\n"
    "  - { name: enc1.conv0, kind: conv, out: 8, kernel: [3, 3], pad: [[1, 1], [1, 1]] }\n"
    "  - { name: enc1.bn0, kind: batch_norm, act: relu }\n"
    "  - { name: enc1.conv1, kind: conv, out: 8, kernel: 3, pad: 1 }\n"
    "  - { name: enc1.bn1, kind: batch_norm, act: relu }\n"
    "  - { name: up0, kind: conv_transpose, out: 4, kernel: 2, stride: 2, bias: true }\n"
    "  - { name: up0.pad, kind: fit, like: enc0.bn1 }\n"
    "  - { name: up0.concat, kind: concat, in: [enc0.bn1, up0.pad] }\n"
    "  - { name: dec0.conv0, kind: conv, out: 4, kernel: 3, pad: 1 }\n"
    "  - { name: dec0.bn0, kind: batch_norm, act: relu }\n"
    "  - { name: dec0.conv1, kind: conv, out: 4, kernel: 3, pad: 1 }\n"
    "  - { name: dec0.bn1, kind: batch_norm, act: relu }\n"
    "  - { name: out, kind: conv, kernel: 1, bias: true }\n";

static void build__a_unet_by_hand_is_the_built_in_one(void **state)
{
    (void)state;
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    struct wf_net *const net = parsed(small_unet);
    net->classes = 5;
    const struct wf_model *const unet = wf_model_find("unet", &err);
    struct wf_model_config c = { .classes = 5, .base = 4, .depth = 1 };
    assert_true(unet && wf_model_resolve(unet, &c, &err));
    static const int64_t sides[] = { 16, 23 };
    for (int i = 0; i < 2; i++) {
        const struct wf_shape image = WF_SHAPE(2, 1, sides[i], 31, 3);
        struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        wf_graph_output(g, unet->build(g, &c, wf_input(g, "image", WF_F32, image)));
        assert_string_equal(graph_text(&arena, net, image), wf_graph_print(&arena, g));
        wf_graph_free(g);
    }
    wf_net_free(net);
    wf_arena_release(&arena);
}

static void print__reads_back_to_the_same_text(void **state)
{
    (void)state;
    struct wf_arena arena = { 0 };
    static const char *const texts[] = {
        small_unet,
        "{\"dims\": 3, \"in\": 1, \"size\": [8, 12, 16], \"layers\": [{\"name\": \"a\", \"kind\": \"conv\", \"out\": 2,"
        " \"kernel\": [1, 3, 3], \"pad\": [[0, 0], [1, 2], [2, 1]], \"stride\": [1, 2, 2]},"
        " {\"name\": \"b\", \"kind\": \"conv\", \"in\": \"image\", \"out\": 2, \"kernel\": [1, 3, 3],"
        " \"pad\": [[0, 0], [1, 2], [2, 1]], \"stride\": [1, 2, 2], \"weights\": \"a\","
        " \"frozen\": true},"
        " {\"name\": \"c\", \"kind\": \"add\", \"in\": [\"a\", \"b\"]},"
        " {\"name\": \"d\", \"kind\": \"upsample\", \"scale\": [1, 1.5, 2], \"mode\": \"linear\"},"
        " {\"name\": \"s\", \"kind\": \"channel_scale\", \"shared\": true},"
        " {\"name\": \"e\", \"kind\": \"scale\", \"factor\": 0.1},"
        " {\"name\": \"out\", \"kind\": \"conv\", \"kernel\": 1, \"out\": \"classes\"}],"
        " \"heads\": [\"out\", {\"layer\": \"e\", \"weight\": 0.4}], \"classes\": 7}",
    };
    for (int i = 0; i < 2; i++) {
        struct wf_net *const net = parsed(texts[i]);
        char *const text = wf_net_print(&arena, net);
        struct wf_net *const back = parsed(text);
        assert_string_equal(wf_net_print(&arena, back), text);
        net->classes = back->classes = 3;
        const struct wf_shape image = WF_SHAPE(1, net->dims == 3 ? 8 : 1, 12, 16, net->in);
        assert_string_equal(graph_text(&arena, back, image), graph_text(&arena, net, image));
        wf_net_free(net);
        wf_net_free(back);
    }
    wf_arena_release(&arena);
}

static void build__shares_and_freezes_weights(void **state)
{
    (void)state;
    struct wf_net *const net =
        parsed("{ in: 4, layers: ["
               "{ name: a, kind: conv, out: 4, kernel: 3, pad: 1, frozen: true },"
               "{ name: b, kind: conv, out: 4, kernel: 3, pad: 1, weights: a },"
               "{ name: s, kind: channel_scale, shared: true },"
               "{ name: t, kind: channel_shift },"
               "{ name: c, kind: conv, out: 2, kernel: 1 } ] }");
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *const image = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 8, 8, 4));
    assert_non_null(wf_net_build(g, net, image, NULL));
    assert_int_equal(wf_graph_parameters(g, true), 4 * 4 * 9 + 1 + 4 + 2 * 4);
    assert_int_equal(wf_graph_parameters(g, false), 1 + 4 + 2 * 4);
    assert_non_null(wf_graph_find(g, "b"));
    assert_null(wf_graph_find(g, "b.weight"));
    wf_graph_free(g);
    wf_net_free(net);
}

/* Each file with what its message must say. */
static void read__refuses_with_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says[3];
    } cases[] = {
        { "", { "'net.yaml'" } },
        { "layers: [", { "net.yaml:", "closing bracket" } },
        { "- a\n", { "not a network file" } },
        { "%\x80", { "'net.yaml' is not text in UTF-8" } },
        { "layers: []", { "'layers' is a list" } },
        { "layer: []", { "net.yaml:1:1: ", "did you mean 'layers'?" } },
        { "dims: 4\nlayers: [{name: a, kind: relu}]", { "net.yaml:1:7: 'dims' is 4" } },
        { "layers:\n  - { name: a, kind: rellu }",
          { "net.yaml:2:22: layer 'a': ", "no kind 'rellu': did you mean 'relu'?" } },
        { "layers:\n  - { kind: relu }", { "net.yaml:2:7: ", "no 'name'" } },
        { "layers:\n  - { name: a, kind: conv, out: 2, kernel: 3, strid: 2 }",
          { "net.yaml:2:47: layer 'a': ", "unknown key 'strid': did you mean 'stride'?" } },
        { "layers:\n  - { name: a, kind: relu, kernel: 3 }",
          { "net.yaml:2:28: layer 'a': ", "relu has no 'kernel'" } },
        { "layers:\n  - { name: a, kind: conv, out: 2 }",
          { "net.yaml:2:7: layer 'a': ", "'kernel'" } },
        { "layers:\n  - { name: a, kind: conv, kernel: 1 }\n  - { name: b, kind: relu }",
          { "net.yaml:2:7: layer 'a'", "'out' is missing" } },
        { "layers:\n  - { name: a, kind: conv, out: two, kernel: 3 }",
          { "net.yaml:2:33: layer 'a': ", "whole number, got 'two'" } },
        { "layers:\n  - { name: a, kind: conv, out: 2, kernel: [3, 3, 3] }",
          { "layer 'a': ", "3 numbers", "2 dimensions" } },
        { "layers:\n  - { name: a, kind: conv, out: 2, kernel: 3, pad: -1 }", { "'pad' is -1" } },
        { "layers:\n  - { name: a, kind: upsample, mode: linnear, scale: 2 }",
          { "net.yaml:2:38: ", "did you mean 'linear'?" } },
        { "layers:\n  - { name: a, kind: relu }\n  - { name: a, kind: relu }",
          { "net.yaml:3:7: line 2 has a layer 'a', too" } },
        { "layers:\n  - { name: image, kind: relu }", { "'image' is the network's input" } },
        { "layers:\n  - { name: a b, kind: relu }", { "letters, digits" } },
        { "layers:\n  - { name: first, kind: relu }\n  - { name: b, kind: relu, in: frist }",
          { "net.yaml:3:32: layer 'b': ", "no layer 'frist': did you mean 'first'?" } },
        { "layers:\n  - { name: a, kind: relu, in: a }",
          { "net.yaml:2:32: layer 'a': ", "cycle" } },
        { "layers:\n  - { name: a, kind: relu, in: c }\n  - { name: b, kind: relu }\n"
          "  - { name: c, kind: add, in: [b, image] }",
          { "net.yaml:2:32: layer 'a': ", "'c' of line 4", "a cycle" } },
        { "layers:\n  - { name: a, kind: relu, in: b }\n  - { name: b, kind: relu, in: image }",
          { "net.yaml:2:32: layer 'a': ", "line 3 defines later", "move that one up" } },
        { "layers:\n  - { name: a, kind: add }",
          { "layer 'a'", "add takes 2 inputs or more, got 1" } },
        { "layers:\n  - { name: a, kind: relu, in: [image, image] }",
          { "relu takes 1 input, got 2" } },
        { "layers:\n  - { name: a, kind: relu, weights: a }", { "relu has no weights" } },
        { "layers:\n  - { name: a, kind: relu, like: image }", { "relu has no 'like'" } },
        { "layers:\n  - { name: a, kind: conv, out: 1, kernel: 1 }\n"
          "  - { name: b, kind: linear, out: 1, weights: a }",
          { "which is conv: both must be linear" } },
        { "layers: [{ name: a, kind: relu }]\nheads: [b]", { "net.yaml:2:9: ", "no layer 'b'" } },
        { "layers: [{ name: a, kind: relu }]\nheads: []", { "'heads' is empty" } },
        { "layers: [{ name: a, kind: relu }]\nheads: [{ layer: a, wait: 1 }]",
          { "net.yaml:2:21: ", "'layer' and 'weight' only" } },
        { "x: &y 3\nlayers: [{ name: a, kind: conv, out: *y, kernel: 1 }]", { "unknown key 'x'" } },
        { "layers: [{ name: a, kind: conv, out: &y 3, kernel: *y }]", { "aliases" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wf_err err = { 0 };
        struct wf_net *const net = wf_net_parse(cases[i].text, "net.yaml", &err);
        if (net)
            fail_msg("read: %s", cases[i].text);
        for (int k = 0; k < 3 && cases[i].says[k]; k++)
            if (!strstr(err.text, cases[i].says[k]))
                fail_msg("'%s' does not say '%s'", err.text, cases[i].says[k]);
    }
}

static void build__shapes_that_do_not_meet_are_both_named(void **state)
{
    (void)state;
    struct wf_net *const net = parsed("in: 3\nlayers:\n"
                                      "  - { name: a, kind: conv, out: 8, kernel: 3 }\n"
                                      "  - { name: b, kind: add, in: [image, a] }\n");
    struct wf_graph *const g = wf_graph_new(NULL);
    struct wf_err err = { 0 };
    struct wf_value *const image = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, 16, 20, 3));
    assert_null(wf_net_build(g, net, image, NULL));
    assert_false(wf_graph_ok(g, &err));
    static const char *const says[] = { "net.yaml:4:7: layer 'b'", "'image' (3 x 16 x 20)",
                                        "'a' (8 x 14 x 18)" };
    for (int i = 0; i < 3; i++)
        if (!strstr(err.text, says[i]))
            fail_msg("'%s' does not say '%s'", err.text, says[i]);
    wf_graph_free(g);
    wf_net_free(net);
}

/* PyTorch's rule: MaxPool2d(3, 2, padding=1, ceil_mode=True) makes 4 of 6 and 3 of 5; AvgPool2d(2, 2,
 * ceil_mode=True) 3 of 5. */
static void build__pools_round_up_as_in_pytorch(void **state)
{
    (void)state;
    static const struct {
        const char *layer;
        int64_t in, out;
    } cases[] = {
        { "max_pool, kernel: 3, stride: 2, pad: 1, ceil: true", 6, 4 },
        { "max_pool, kernel: 3, stride: 2, pad: 1, ceil: true", 5, 3 },
        { "max_pool, kernel: 2, ceil: true", 5, 3 },
        { "max_pool, kernel: 2, ceil: true", 4, 2 },
        { "max_pool, kernel: 2, stride: 3, ceil: true", 6, 2 },
        { "max_pool, kernel: 2", 5, 2 },
        { "avg_pool, kernel: 2, ceil: true", 5, 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wf_arena arena = { 0 };
        struct wf_net *const net =
            parsed(wf_arena_printf(&arena, "layers: [{ name: a, kind: %s }]", cases[i].layer));
        struct wf_graph *const g = wf_graph_new(NULL);
        const struct wf_shape shape = WF_SHAPE(1, 1, cases[i].in, cases[i].in, 3);
        const struct wf_value *const y =
            wf_net_build(g, net, wf_input(g, "image", WF_F32, shape), NULL);
        assert_non_null(y);
        assert_int_equal(y->shape.at[WF_H], cases[i].out);
        assert_int_equal(y->shape.at[WF_D], 1);
        wf_graph_free(g);
        wf_net_free(net);
        wf_arena_release(&arena);
    }
}

/* --- built-in networks, written down --- */

static char *model_text(struct wf_arena *arena, const struct wf_model *m,
                        const struct wf_model_config *c, struct wf_shape image)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_err err = { 0 };
    wf_graph_output(g, m->build(g, c, wf_input(g, "image", WF_F32, image)));
    if (!wf_graph_ok(g, &err))
        fail_msg("%s: %s", m->name, err.text);
    char *const text = wf_graph_print(arena, g);
    wf_graph_free(g);
    return text;
}

/* Written down, printed, read: the same graph as the network's own, on images of two sizes. */
static void assert_records(const struct wf_model *m, struct wf_model_config c)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    if (!wf_model_resolve(m, &c, &err))
        fail_msg("%s: %s", m->name, err.text);
    struct wf_net *const net = wf_net_record(m, &c, &err);
    if (!net)
        fail_msg("%s", err.text);
    struct wf_net *const back = parsed(wf_net_print(&arena, net));
    static const int64_t sides[] = { 96, 107 };
    for (int i = 0; i < 2; i++) {
        const int64_t side = sides[i];
        const struct wf_shape image =
            WF_SHAPE(2, c.dims > 2 ? side : 1, c.dims > 1 ? side + 32 : 1, side, c.in);
        assert_string_equal(graph_text(&arena, back, image), model_text(&arena, m, &c, image));
    }
    wf_net_free(net);
    wf_net_free(back);
    wf_arena_release(&arena);
}

static void record__every_network_of_images(void **state)
{
    (void)state;
    int count = 0;
    for (const struct wf_model *const *m = wf_model_table; *m; m++) {
        if ((*m)->sparse || (*m)->domains)
            continue;
        for (int dims = (*m)->dims_min; dims <= (*m)->dims_max; dims++, count++)
            assert_records(*m, (struct wf_model_config){ .dims = dims, .classes = 3 });
    }
    assert_true(count >= 27);
}

static void record__subdomains_and_their_statistics(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    const struct wf_model *const m = wf_model_find("ddunet", &err);
    for (int i = 0; i < 3; i++) {
        struct wf_subdomains own = *(const struct wf_subdomains *)m->defaults.own;
        own.tiles[1] = own.tiles[2] = 2;
        own.statistics = (enum wf_statistics)i;
        own.talk = (enum wf_talk)i;
        assert_records(m, (struct wf_model_config){ .base = 8, .depth = 2, .own = &own });
    }
}

static void record__refuses_what_has_no_form(void **state)
{
    (void)state;
    static const char *const names[][2] = { { "minkunet14", "of points" },
                                            { "dsn", "several domains" } };
    for (int i = 0; i < 2; i++) {
        struct wf_err err = { 0 };
        const struct wf_model *const m = wf_model_find(names[i][0], &err);
        struct wf_model_config c = { 0 };
        assert_true(m && wf_model_resolve(m, &c, &err));
        assert_null(wf_net_record(m, &c, &err));
        assert_non_null(strstr(err.text, names[i][1]));
    }
}

/* --- as an option --- */

/* 13 positions behind a padding of one and no other extent: none of the squares that are tried. */
static void options__try_a_network_of_one_size_at_it(void **state)
{
    (void)state;
    static const char layers[] = "layers: [{ name: a, kind: conv, out: 2, kernel: 1 },"
                                 " { name: half, kind: max_pool, kernel: 2 },"
                                 " { name: up, kind: upsample, scale: 2 },"
                                 " { name: p, kind: pad, pad: [[0, 1], [0, 1]] },"
                                 " { name: b, kind: concat, in: [a, p] },"
                                 " { name: c, kind: conv, out: classes, kernel: 1 }]";
    for (int i = 0; i < 2; i++) {
        struct wf_err err = { 0 };
        struct wf_options *const o = wf_options_new();
        struct wf_settings s;
        char text[512];
        (void)snprintf(text, sizeof text, "name: odd\n%s%s", i ? "size: [9, 13]\n" : "", layers);
        assert_true(wf_options_set(o, "model.network", text, &err));
        assert_int_equal(wf_options_settings(o, &s, &err), i);
        if (i)
            assert_true(s.model->dense);
        else
            assert_non_null(strstr(err.text, "'p'"));
        wf_options_free(o);
    }
}

static void options__hold_the_network_itself(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_arena arena = { 0 };
    struct wf_options *const o = wf_options_new(), *const back = wf_options_new();
    struct wf_settings s;
    assert_true(wf_options_set(o, "model.network",
                               "name: own\nlayers: [{ name: a, kind: conv, kernel: 1 }]", &err));
    if (!wf_options_settings(o, &s, &err))
        fail_msg("%s", err.text);
    assert_string_equal(s.model->name, "own");
    assert_string_equal(wf_options_text(o, "model.name"), "own.yaml");
    /* What a checkpoint keeps is enough: there is no file. */
    assert_true(wf_options_read_text(back, "checkpoint", wf_options_yaml(&arena, o, false), &err));
    if (!wf_options_settings(back, &s, &err))
        fail_msg("%s", err.text);
    assert_string_equal(s.model->name, "own");
    /* A name on the command line replaces it. */
    assert_true(wf_options_argue(back, "model.name", "unet", &err));
    assert_true(wf_options_settings(back, &s, &err));
    assert_string_equal(s.model->name, "unet");
    wf_options_free(o);
    wf_options_free(back);
    wf_arena_release(&arena);
}

static void options__refuse_two_networks(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_options *const o = wf_options_new();
    struct wf_settings s;
    assert_true(wf_options_set(o, "model.name", "unet", &err));
    assert_true(
        wf_options_set(o, "model.network", "layers: [{ name: a, kind: conv, kernel: 1 }]", &err));
    assert_false(wf_options_settings(o, &s, &err));
    assert_non_null(strstr(err.text, "leave one out"));
    wf_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build__a_unet_by_hand_is_the_built_in_one),
        cmocka_unit_test(print__reads_back_to_the_same_text),
        cmocka_unit_test(build__shares_and_freezes_weights),
        cmocka_unit_test(read__refuses_with_the_place),
        cmocka_unit_test(build__shapes_that_do_not_meet_are_both_named),
        cmocka_unit_test(build__pools_round_up_as_in_pytorch),
        cmocka_unit_test(record__every_network_of_images),
        cmocka_unit_test(record__subdomains_and_their_statistics),
        cmocka_unit_test(record__refuses_what_has_no_form),
        cmocka_unit_test(options__try_a_network_of_one_size_at_it),
        cmocka_unit_test(options__hold_the_network_itself),
        cmocka_unit_test(options__refuse_two_networks),
    };
    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
