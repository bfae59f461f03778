/* The public library (widefield.h): every function, as a program would call it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "widefield.h"

static struct wf_session *session_of(const char *const settings[][2])
{
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    for (int i = 0; settings[i][0]; i++)
        assert_true(wf_options_set(o, settings[i][0], settings[i][1], &err));
    struct wf_session *const s = wf_session_new(o, &err);
    assert_non_null(s);
    wf_options_free(o);
    return s;
}

/* --- what there is --- */

static void about__version_networks_and_devices(void **state)
{
    struct wf_device_info device;
    assert_true(strncmp(wf_version(), "0.", 2) == 0);
    bool unet = false;
    for (int i = 0; i < wf_model_count(); i++) {
        assert_true(strlen(wf_model_about(i)) > 0);
        unet = unet || strcmp(wf_model_name(i), "unet") == 0;
    }
    assert_true(unet);
    assert_null(wf_model_name(wf_model_count()));
    assert_true(wf_device_count() >= 2);
    assert_true(wf_device_get(0, &device));
    assert_string_equal(device.name, "cpu");
    assert_true(device.bytes > device.free_bytes);
    assert_false(wf_device_get(wf_device_count(), &device));
}

static void options__are_set_read_and_refused(void **state)
{
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    assert_true(wf_options_set(o, "model.base", "8", &err));
    assert_string_equal(wf_options_value(o, "model.base"), "8");
    assert_null(wf_options_value(o, "model.bass"));
    int keys = 0, found = 0;
    for (const char *key; (key = wf_options_key(keys)); keys++)
        found += strcmp(key, "model.base") == 0;
    assert_int_equal(found, 1);
    assert_null(wf_options_key(-1));
    assert_false(wf_options_set(o, "model.bass", "8", &err));
    assert_int_equal(err.code, WF_ERR_USAGE);
    assert_non_null(strstr(err.text, "model.base"));
    err = (struct wf_err){ 0 };
    assert_false(wf_options_read_file(o, "nowhere.yaml", &err));
    wf_options_free(o);
}

/* --- session --- */

static void plan__a_mesh_of_four_needs_less_on_each(void **state)
{
    struct wf_session *const whole = session_of((const char *const[][2]){ { NULL, NULL } });
    struct wf_session *const cut =
        session_of((const char *const[][2]){ { "mesh", "space=2x2" }, { NULL, NULL } });
    const int64_t size[] = { 1, 3, 128, 128 };
    struct wf_err err = WF_ZERO;
    struct wf_plan_info one, four;
    assert_int_equal(wf_session_size(whole), 1);
    assert_int_equal(wf_session_rank(whole), 0);
    assert_true(wf_session_plan(whole, 4, size, &one, &err)); /* two sessions side by side */
    assert_true(wf_session_plan(cut, 4, size, &four, &err));
    assert_int_equal(four.ranks, 4);
    assert_string_equal(four.mesh, "space=2x2");
    assert_true(four.rank_bytes[3] < one.bytes && four.messages > 0 && one.messages == 0);
    assert_true(one.parameters == four.parameters && one.seconds > 0);
    char *const text = wf_session_explain(cut, 4, size, 1, &err);
    assert_non_null(text);
    assert_true(strlen(text) > 1000);
    wf_text_free(text);
    assert_null(wf_session_explain(cut, 4, size, 4, &err));
    assert_int_equal(err.code, WF_ERR_USAGE);
    wf_session_free(whole);
    wf_session_free(cut);
}

static void plan__chooses_a_mesh_for_the_ranks(void **state)
{
    struct wf_session *const s = session_of(
        (const char *const[][2]){ { "mesh", "auto" }, { "run.ranks", "2" }, { NULL, NULL } });
    struct wf_err err = WF_ZERO;
    struct wf_plan_info info;
    if (!wf_session_plan(s, 4, (const int64_t[]){ 1, 3, 64, 64 }, &info, &err))
        fail_msg("%s", err.text);
    assert_int_equal(info.ranks, 2);
    wf_session_free(s);
}

static void plan__what_does_not_fit_is_an_error(void **state)
{
    struct wf_session *const s =
        session_of((const char *const[][2]){ { "memory.limit", "1MiB" }, { NULL, NULL } });
    struct wf_err err = WF_ZERO;
    struct wf_plan_info info;
    assert_false(wf_session_plan(s, 4, (const int64_t[]){ 1, 3, 128, 128 }, &info, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    err = (struct wf_err){ 0 };
    assert_false(wf_session_plan(s, 4, (const int64_t[]){ 1, 3, -4, 128 }, &info, &err));
    assert_non_null(strstr(err.text, "-4 as number 3"));
    wf_session_free(s);
}

static void verify__a_cut_step_is_the_whole_one(void **state)
{
    struct wf_session *const s = session_of((const char *const[][2]){
        { "mesh", "space=2x1" }, { "model.base", "4" }, { "model.depth", "2" }, { NULL, NULL } });
    struct wf_err err = WF_ZERO;
    struct wf_verify_info info;
    assert_true(wf_session_verify(s, 4, (const int64_t[]){ 1, 3, 32, 32 }, &info, &err));
    assert_true(info.same && info.loss < 1e-5 && info.predictions < 1e-5);
    wf_session_free(s);
}

/* --- exec --- */

/* y = 2 x summed over all pixels, by a 1x1 convolution of weight 2. */
static void exec__runs_a_graph_on_a_mesh(void **state)
{
    struct wf_session *const s =
        session_of((const char *const[][2]){ { "mesh", "space=1x2" }, { NULL, NULL } });
    struct wf_err err = WF_ZERO;
    struct wf_graph_options training = { .training = true };
    struct wf_graph *const g = wf_graph_new(&training);
    struct wf_value *const x = wf_input(g, "x", WF_F32, wf_shape_make(1, 1, 4, 6, 1));
    struct wf_conv conv = { .name = "twice", .out = 1, .kernel = { 1, 1, 1 } };
    struct wf_value *const y = wf_conv(g, x, &conv);
    struct wf_value *const zero = wf_input(g, "zero", WF_F32, wf_shape_make(1, 1, 4, 6, 1));
    struct wf_loss mse = { .name = "loss" };
    struct wf_value *const loss = wf_mse(g, y, zero, &mse);
    wf_graph_output(g, y);
    assert_true(wf_graph_ok(g, &err));
    assert_true(wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err));
    assert_int_equal(wf_value_shape(y).at[WF_W], 6);
    assert_string_equal(wf_value_name(x), "x");
    assert_int_equal(wf_value_dtype(x), WF_F32);
    assert_int_equal(wf_graph_parameters(g, true), 1);
    struct wf_exec *const e = wf_exec_new(s, g, &err);
    assert_non_null(e);
    float in[24], out[24], gradient = 0;
    const float none[24] = { 0 }, two = 2;
    double squares = 0;
    for (int i = 0; i < 24; i++) {
        in[i] = (float)i;
        squares += (double)i * i;
    }
    assert_true(wf_exec_put(e, "x", in, 24, &err) && wf_exec_put(e, "zero", none, 24, &err));
    assert_true(wf_exec_put(e, "twice.weight", &two, 1, &err));
    assert_true(wf_exec_step(e, &err));
    const char *const output = wf_value_name(y);
    assert_true(wf_exec_get(e, output, out, 24, &err));
    for (int i = 0; i < 24; i++)
        assert_true(out[i] == 2 * in[i]);
    assert_true(wf_exec_get(e, "grad.twice.weight", &gradient, 1, &err));
    /* d/dw mean((w x)^2) = 2 w mean(x^2) */
    assert_true(fabs((double)gradient - 4 * squares / 24) < 1e-3);
    /* In the device's memory, which is the host's here: the same numbers. */
    float again[24] = { 0 };
    for (int i = 0; i < 24; i++)
        in[i] = (float)(i * i);
    assert_true(wf_exec_put_device(e, "x", in, 24, &err) && wf_exec_step(e, &err));
    assert_true(wf_exec_get_device(e, output, again, 24, &err));
    assert_true(wf_exec_get(e, output, out, 24, &err));
    for (int i = 0; i < 24; i++)
        assert_true(again[i] == 2 * in[i] && out[i] == again[i]);
    assert_false(wf_exec_put_device(e, "x", in, 23, &err));
    err = (struct wf_err){ 0 };
    assert_false(wf_exec_get_device(e, "nothing", out, 24, &err));
    err = (struct wf_err){ 0 };
    /* What is wrong is said, and the exec goes on. */
    assert_false(wf_exec_put(e, "x", in, 23, &err));
    assert_non_null(strstr(err.text, "24"));
    err = (struct wf_err){ 0 };
    assert_false(wf_exec_get(e, "nothing", out, 24, &err));
    err = (struct wf_err){ 0 };
    assert_false(wf_exec_put(e, "grad.twice.weight", &gradient, 1, &err));
    err = (struct wf_err){ 0 };
    assert_null(wf_exec_new(s, g, &err)); /* one at a time */
    err = (struct wf_err){ 0 };
    struct wf_plan_info info;
    assert_true(wf_session_plan(s, 4, (const int64_t[]){ 1, 3, 64, 64 }, &info, &err));
    assert_true(wf_exec_step(e, &err));
    wf_exec_free(e);
    wf_graph_free(g);
    wf_session_free(s);
}

/* Subdomains are a batch, but their positions are not one another's. */
static void mean__over_subdomains_that_keeps_positions_is_refused(void **state)
{
    struct wf_err err = WF_ZERO;
    for (int space = 0; space < 2; space++) {
        struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = false });
        struct wf_value *x = wf_input(g, "x", WF_F32, wf_shape_make(2, 1, 8, 8, 3));
        x = wf_tile(g, x, "tile", (const int64_t[]){ 1, 2, 2 });
        x = wf_mean(g, x, "mean", WF_OVER_SAMPLES | (space ? WF_OVER_SPACE : 0));
        assert_true(wf_graph_ok(g, &err) == (space == 1));
        if (!space)
            assert_non_null(strstr(err.text, "layer 'mean': a mean over subdomains"));
        err = (struct wf_err){ 0 };
        wf_graph_free(g);
    }
}

/* The batch is that of the image, also behind a number; a mesh that the graph has no use for is refused. */
static void exec__takes_the_batch_of_the_image(void **state)
{
    struct wf_err err = WF_ZERO;
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_value *const number = wf_input_number(g, "number");
    struct wf_value *const x = wf_input(g, "x", WF_F32, wf_shape_make(2, 1, 4, 4, 1));
    wf_graph_output(g, wf_activation(g, x, "act", WF_RELU, 0));
    assert_non_null(number);
    struct wf_session *s =
        session_of((const char *const[][2]){ { "mesh", "data=2" }, { NULL, NULL } });
    struct wf_exec *const e = wf_exec_new(s, g, &err);
    if (!e)
        fail_msg("%s", err.text);
    wf_exec_free(e);
    wf_session_free(s);
    s = session_of((const char *const[][2]){ { "mesh", "domain=2" }, { NULL, NULL } });
    assert_null(wf_exec_new(s, g, &err));
    assert_non_null(strstr(err.text, "axis domain"));
    wf_session_free(s);
    wf_graph_free(g);
}

static void graph__has_a_builder_for_everything(void **state)
{
    struct wf_err err = WF_ZERO;
    const struct wf_graph_options options = { .training = true };
    struct wf_graph *const g = wf_graph_new(&options);
    const int64_t two[3] = { 1, 2, 2 }, out[3] = { 1, 8, 8 }, one[3] = { 0, 1, 1 };
    struct wf_value *const image = wf_input(g, "image", WF_F32, wf_shape_make(2, 1, 16, 16, 4));
    struct wf_value *const map = wf_input(g, "map", WF_I32, wf_shape_make(2, 1, 16, 16, 1));
    struct wf_value *x = wf_conv_transpose(
        g, wf_max_pool(g, image, &(struct wf_pool){ .name = "max", .kernel = { 1, 2, 2 } }),
        &(struct wf_conv){ .name = "up", .out = 4, .kernel = { 1, 2, 2 }, .stride = { 1, 2, 2 } });
    x = wf_instance_norm(g, x, &(struct wf_norm){ .name = "in" });
    x = wf_group_norm(g, x, &(struct wf_norm){ .name = "gn", .groups = 2 });
    x = wf_layer_norm(g, x, &(struct wf_norm){ .name = "ln" });
    x = wf_reverse_gradient(g, wf_scale(g, wf_multiply(g, x, image), 0.5), 1);
    x = wf_concat(g, "both", 2, (struct wf_value *const[]){ x, image });
    x = wf_slice(g, x, (struct wf_region){ { 0 }, { 2, 1, 16, 16, 4 } });
    x = wf_pad(g, x, "pad", one, (const int64_t[]){ 0, -1, -1 }, WF_PAD_EDGE);
    x = wf_untile(g, wf_tile(g, x, "tiles", two), "image again", two, NULL);
    x = wf_avg_pool(g, x, &(struct wf_pool){ .name = "mean", .kernel = { 1, 4, 4 } });
    x = wf_upsample(g, x, "larger", out, WF_LINEAR);
    x = wf_upsample(g, wf_dropout(g, x, "drop", 0.1), "largest", (const int64_t[]){ 1, 16, 16 },
                    WF_NEAREST);
    struct wf_value *const ce = wf_cross_entropy(g, x, map, &(struct wf_loss){ .name = "ce" });
    struct wf_value *const dice = wf_dice(g, x, map, &(struct wf_loss){ .name = "dice" });
    struct wf_value *const bce = wf_binary_cross_entropy(g, x, wf_softmax(g, image, "soft"),
                                                         &(struct wf_loss){ .name = "bce" });
    struct wf_value *const vector = wf_global_pool(g, x, "pool");
    const struct wf_shape flat = wf_value_shape(
        wf_flatten(g, wf_reshape(g, vector, "square", wf_shape_make(2, 1, 2, 2, 1)), "flat"));
    assert_int_equal(flat.at[WF_C], 4);
    assert_int_equal(wf_value_dtype(wf_cast(g, vector, WF_BF16)), WF_BF16);
    wf_graph_freeze(g, "up");
    struct wf_value *const loss = wf_add(g, wf_add(g, ce, dice), bce);
    wf_graph_output(g, loss);
    if (!wf_graph_ok(g, &err) || !wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_non_null(wf_graph_find(g, "grad.gn.weight"));
    assert_null(wf_graph_find(g, "grad.up.weight"));
    assert_true(wf_graph_parameters(g, true) == wf_graph_parameters(g, false) + 4 * 4 * 2 * 2);
    /* The first mistake is kept, with the layer's name. */
    assert_null(wf_linear(g, image, "wrong", 3, true));
    assert_false(wf_graph_ok(g, &err));
    assert_non_null(strstr(err.text, "wrong"));
    wf_graph_free(g);
}

static void exec__a_network_of_the_library_in_an_own_graph(void **state)
{
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    assert_true(wf_options_set(o, "model.base", "4", &err));
    struct wf_graph_options options = { .training = false };
    struct wf_graph *const g = wf_graph_new(&options);
    struct wf_value *const x = wf_input(g, "x", WF_F32, wf_shape_make(1, 1, 32, 32, 1));
    struct wf_value *const logits = wf_model_add(g, x, o);
    assert_true(wf_graph_ok(g, &err));
    assert_int_equal(wf_value_shape(logits).at[WF_C], 2);
    assert_int_equal(wf_value_shape(logits).at[WF_H], 32);
    wf_graph_free(g);
    wf_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about__version_networks_and_devices),
        cmocka_unit_test(options__are_set_read_and_refused),
        cmocka_unit_test(plan__a_mesh_of_four_needs_less_on_each),
        cmocka_unit_test(plan__chooses_a_mesh_for_the_ranks),
        cmocka_unit_test(plan__what_does_not_fit_is_an_error),
        cmocka_unit_test(verify__a_cut_step_is_the_whole_one),
        cmocka_unit_test(exec__runs_a_graph_on_a_mesh),
        cmocka_unit_test(mean__over_subdomains_that_keeps_positions_is_refused),
        cmocka_unit_test(exec__takes_the_batch_of_the_image),
        cmocka_unit_test(graph__has_a_builder_for_everything),
        cmocka_unit_test(exec__a_network_of_the_library_in_an_own_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
