/* The public trainer and data (widefield.h): however it is stepped, wherever the images are, the same
 * weights. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "support_data.h"
#include "widefield.h"

enum { SAMPLES = 5, SIDE = 16, PLANE = SIDE * SIDE, EPOCHS = 3 };

static const char *const names[SAMPLES] = { "a", "b", "c", "d", "e" };

/* The pixels that support_pair() puts into files. */
struct world {
    float images[SAMPLES][2][PLANE];
    int32_t labels[SAMPLES][PLANE];
    int64_t extents[2];
    struct wf_arrays arrays;
    struct wf_data *data;
};

static void world_init(struct world *w)
{
    struct wf_err err = WF_ZERO;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < PLANE; i++) {
            for (int c = 0; c < 2; c++)
                w->images[s][c][i] = support_value(names[s], 0, i / SIDE, i % SIDE, c);
            w->labels[s][i] = support_label(names[s], 0, i / SIDE, i % SIDE, 3);
        }
    w->extents[0] = w->extents[1] = SIDE;
    w->arrays = (struct wf_arrays){ .samples = SAMPLES,
                                    .dims = 2,
                                    .extents = w->extents,
                                    .channels = 2,
                                    .image_block = w->images,
                                    .label_dtype = WF_I32,
                                    .label_block = w->labels };
    w->data = wf_data_arrays(&w->arrays, &err);
    assert_string_equal(err.text, "");
    assert_non_null(w->data);
}

static struct wf_session *session_of(const char *mesh)
{
    const char *const settings[][2] = { { "mesh", mesh },           { "model.base", "4" },
                                        { "model.depth", "1" },     { "train.epochs", "3" },
                                        { "train.batch", "2" },     { "train.lr", "0.01" },
                                        { "train.threads", NULL },  { "data.validation", "0.2" },
                                        { "data.augment", "flip" }, { "train.optimizer", "adam" } };
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i][1] && !wf_options_set(o, settings[i][0], settings[i][1], &err))
            fail_msg("%s", err.text);
    struct wf_session *const s = wf_session_new(o, &err);
    assert_non_null(s);
    wf_options_free(o);
    return s;
}

/* All weights and states, one behind the other. */
struct weights {
    float *at;
    size_t count;
};

static struct weights weights_of(struct wf_trainer *t)
{
    struct weights w = { 0 };
    int64_t shape[WF_AXES];
    const char *name;
    int rank = 0;
    for (int i = 0; (name = wf_trainer_tensor(t, i, shape, &rank)); i++) {
        struct wf_err err = WF_ZERO;
        size_t count = 1;
        for (int a = 0; a < rank; a++)
            count *= (size_t)shape[a];
        w.at = realloc(w.at, (w.count + count) * sizeof *w.at);
        if (!wf_trainer_get(t, name, w.at + w.count, count, &err))
            fail_msg("%s", err.text);
        w.count += count;
    }
    assert_true(w.count > 100);
    return w;
}

static double apart(const struct weights *a, const struct weights *b)
{
    double most = 0, norm = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        most = fmax(most, fabs((double)a->at[i] - (double)b->at[i]));
        norm = fmax(norm, fabs((double)a->at[i]));
    }
    return most / norm;
}

static struct wf_trainer *trainer_of(struct wf_session *s, const struct wf_data *d,
                                     const char *folder)
{
    struct wf_err err = WF_ZERO;
    struct wf_trainer *const t = wf_trainer_new(s, d, folder, &err);
    if (!t)
        fail_msg("%s", err.text);
    return t;
}

static void train(struct wf_trainer *t, int epochs)
{
    struct wf_epoch_info info = WF_ZERO;
    for (int i = 0; i < epochs; i++) {
        struct wf_err err = WF_ZERO;
        if (!wf_trainer_epoch(t, &info, &err))
            fail_msg("%s", err.text);
        assert_true(isfinite(info.loss));
    }
}

/* The weights after EPOCHS epochs on a mesh. */
static struct weights trained(const char *mesh, const struct wf_data *d)
{
    struct wf_session *const s = session_of(mesh);
    struct wf_trainer *const t = trainer_of(s, d, NULL);
    train(t, EPOCHS);
    const struct weights w = weights_of(t);
    wf_trainer_free(t);
    wf_session_free(s);
    return w;
}

/* --- tests --- */

static void data__arrays_are_described_and_checked(void **state)
{
    struct world w;
    world_init(&w);
    struct wf_data_info info;
    struct wf_err err = WF_ZERO;
    wf_data_describe(w.data, &info);
    assert_int_equal(info.samples, SAMPLES);
    assert_int_equal(info.channels, 2);
    assert_int_equal(info.classes, 3);
    assert_false(info.per_image);
    assert_string_equal(wf_data_class(w.data, 2), "class 2");
    assert_null(wf_data_class(w.data, 3));
    wf_data_free(w.data);
    struct wf_arrays bad = w.arrays;
    bad.image_dtype = WF_F64;
    assert_null(wf_data_arrays(&bad, &err));
    err = (struct wf_err){ 0 };
    w.labels[3][7] = 300;
    assert_null(wf_data_arrays(&w.arrays, &err));
    assert_non_null(strstr(err.text, "sample 3"));
    err = (struct wf_err){ 0 };
    assert_null(wf_data_open("nowhere", NULL, &err));
    assert_int_equal(err.code, WF_ERR_INPUT);
}

static void trainer__steps_make_an_epoch(void **state)
{
    struct world w;
    world_init(&w);
    const struct weights by_epoch = trained("space=1", w.data);
    struct wf_session *const s = session_of("space=1");
    struct wf_trainer *const t = trainer_of(s, w.data, NULL);
    struct wf_step_info step = WF_ZERO;
    struct wf_err err = WF_ZERO;
    int steps = 0;
    for (;; steps++) {
        assert_true(wf_trainer_step(t, &step, &err));
        if (step.ended)
            break;
        assert_int_equal(step.step, steps + 1);
        assert_int_equal(step.epoch, (steps + 1) / 2); /* four samples, two at a time */
    }
    assert_int_equal(steps, 2 * EPOCHS);
    const struct weights by_step = weights_of(t);
    assert_true(apart(&by_epoch, &by_step) == 0);
    free(by_epoch.at);
    free(by_step.at);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(w.data);
}

static void trainer__cut_over_four_ranks_gives_the_weights_of_one(void **state)
{
    struct world w;
    world_init(&w);
    const struct weights one = trained("space=1", w.data), four = trained("space=2x2", w.data),
                         two = trained("data=2", w.data);
    assert_true(apart(&one, &four) < 1e-5);
    assert_true(apart(&one, &two) < 1e-5);
    free(one.at);
    free(four.at);
    free(two.at);
    wf_data_free(w.data);
}

static void trainer__arrays_and_files_give_the_same_bits(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO;
    world_init(&w);
    for (int i = 0; i < SAMPLES; i++)
        support_pair("set", names[i], (const int64_t[]){ 1, 1, SIDE, SIDE }, 2, 3);
    struct wf_data *const files = wf_data_open("set", NULL, &err);
    if (!files)
        fail_msg("%s", err.text);
    const struct weights here = trained("space=1", w.data), there = trained("space=1", files);
    assert_true(apart(&here, &there) == 0);
    free(here.at);
    free(there.at);
    wf_data_free(files);
    wf_data_free(w.data);
}

static void trainer__goes_on_from_a_checkpoint(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO;
    world_init(&w);
    const struct weights straight = trained("space=1", w.data);
    struct wf_session *const s = session_of("space=1");
    struct wf_trainer *t = trainer_of(s, w.data, NULL);
    train(t, 1);
    assert_true(wf_trainer_save(t, "one.safetensors", &err));
    assert_false(wf_trainer_save(t, "nowhere/one.safetensors", &err));
    err = (struct wf_err){ 0 };
    train(t, 1); /* it goes on after a failure to save */
    wf_trainer_free(t);
    t = trainer_of(s, w.data, NULL);
    assert_false(wf_trainer_load(t, "missing.safetensors", &err));
    assert_non_null(strstr(err.text, "missing.safetensors"));
    err = (struct wf_err){ 0 };
    train(t, 2);
    assert_true(wf_trainer_load(t, "one.safetensors", &err));
    train(t, 2);
    const struct weights again = weights_of(t);
    assert_true(apart(&straight, &again) == 0);
    free(straight.at);
    free(again.at);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(w.data);
}

static void trainer__scores_weights_and_gradients(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO;
    world_init(&w);
    struct wf_session *const s = session_of("space=1x2");
    struct wf_trainer *const t = trainer_of(s, w.data, NULL);
    struct wf_scores_info scores, zero;
    assert_true(isnan(wf_trainer_iou(t, 0)));
    assert_true(wf_trainer_evaluate(t, &scores, &err));
    assert_int_equal(scores.classes, 3);
    assert_int_equal(scores.counted, PLANE);
    assert_true(wf_trainer_iou(t, 1) >= 0);
    int64_t shape[WF_AXES];
    int rank;
    const char *const name = wf_trainer_tensor(t, 0, shape, &rank);
    assert_int_equal(rank, 4);
    const size_t count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    float *const weight = calloc(count, sizeof *weight), *const got = calloc(count, sizeof *got);
    char gradient[128];
    (void)snprintf(gradient, sizeof gradient, "grad.%s", name);
    train(t, 1);
    assert_true(wf_trainer_get(t, gradient, got, count, &err));
    double norm = 0;
    for (size_t i = 0; i < count; i++)
        norm += fabs((double)got[i]);
    assert_true(norm > 0);
    for (size_t i = 0; i < count; i++)
        weight[i] = (float)i;
    assert_true(wf_trainer_set(t, name, weight, count, &err));
    assert_true(wf_trainer_get(t, name, got, count, &err));
    assert_memory_equal(weight, got, count * sizeof *got);
    assert_true(wf_trainer_evaluate(t, &zero, &err));
    assert_true(zero.loss != scores.loss);
    assert_false(wf_trainer_set(t, name, weight, count - 1, &err));
    err = (struct wf_err){ 0 };
    assert_false(wf_trainer_get(t, "nothing", weight, count, &err));
    free(weight);
    free(got);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(w.data);
}

/* A folder is that of the command, and a second trainer goes on in it. */
static void trainer__writes_a_run_folder(void **state)
{
    struct world w;
    struct stat info;
    world_init(&w);
    const struct weights straight = trained("space=1", w.data);
    struct wf_session *const s = session_of("space=1");
    struct wf_trainer *t = trainer_of(s, w.data, "run");
    struct wf_step_info step;
    struct wf_err err = WF_ZERO;
    struct wf_epoch_info epoch;
    assert_false(wf_trainer_last_epoch(t, &epoch));
    for (int i = 0; i < 3; i++)
        assert_true(wf_trainer_step(t, &step, &err));
    assert_true(wf_trainer_last_epoch(t, &epoch));
    assert_int_equal(epoch.epoch, 1);
    assert_int_equal(epoch.step, 2);
    wf_trainer_free(t); /* in the middle of the second epoch */
    t = trainer_of(s, w.data, "run");
    assert_true(wf_trainer_step(t, &step, &err));
    assert_int_equal(step.step, 4);
    train(t, 1);
    const struct weights again = weights_of(t);
    assert_true(apart(&straight, &again) == 0);
    wf_trainer_free(t);
    const char *const files[] = { "run/log.jsonl", "run/config.yaml", "run/report.html",
                                  "run/checkpoints/last.safetensors",
                                  "run/checkpoints/best.safetensors" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_int_equal(stat(files[i], &info), 0);
    free(straight.at);
    free(again.at);
    wf_session_free(s);
    wf_data_free(w.data);
}

static void *train_beside(void *arg)
{
    struct weights *const to = arg;
    struct world *const w = malloc(sizeof *w);
    world_init(w);
    *to = trained("space=2x1", w->data);
    wf_data_free(w->data);
    free(w);
    return NULL;
}

static void sessions__of_two_threads_do_not_mix(void **state)
{
    struct weights both[2];
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, train_beside, &both[0]), 0);
    (void)train_beside(&both[1]);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(apart(&both[0], &both[1]) == 0);
    free(both[0].at);
    free(both[1].at);
}

/* --- networks of one's own --- */

struct own {
    int calls;
    bool fails, unpadded;
    int64_t out;
};

static struct wf_value *own_network(struct wf_graph *g, struct wf_value *image, void *user)
{
    struct own *const own = user;
    own->calls++;
    if (own->fails)
        return NULL;
    struct wf_conv c = { .name = "first", .out = 4, .kernel = { 1, 3, 3 }, .same = !own->unpadded };
    struct wf_value *x = wf_conv(g, image, &c);
    x = wf_activation(g, x, "act", WF_RELU, 0);
    struct wf_conv last = { .name = "last", .out = own->out, .bias = true };
    return wf_conv(g, x, &last);
}

static void trainer__trains_a_network_of_ones_own(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO;
    struct own own = { .out = 3 };
    world_init(&w);
    struct wf_session *const s = session_of("space=2x1");
    wf_session_network(s, own_network, &own);
    struct wf_trainer *t = trainer_of(s, w.data, NULL);
    train(t, 1);
    assert_true(own.calls > 0);
    assert_string_equal(wf_trainer_tensor(t, 0, NULL, NULL), "first.weight");
    assert_null(wf_trainer_tensor(t, -1, NULL, NULL));
    /* A predictor keeps the network that it was made with. */
    struct wf_predictor *const p = wf_predictor_of(t, &err);
    wf_trainer_free(t);
    wf_session_network(s, NULL, NULL);
    int32_t labels[PLANE];
    const struct wf_predict_arrays one = {
        .dims = 2, .extents = { SIDE, SIDE }, .image = w.images[0][0], .labels = labels
    };
    if (!p || !wf_predictor_array(p, &one, &err))
        fail_msg("%s", err.text);
    /* One pixel is an image too. */
    support_write("pixel.npy", &(struct support_picture){ .depth = 1,
                                                          .height = 1,
                                                          .width = 1,
                                                          .channels = 2,
                                                          .sample = WF_SAMPLE_F32,
                                                          .data = w.images });
    const struct wf_predict_files pixel = { .image = "pixel.npy", .labels = "pixel.png" };
    if (!wf_predictor_file(p, &pixel, &err))
        fail_msg("%s", err.text);
    wf_predictor_free(p);
    wf_session_network(s, own_network, &own);
    own.out = 2;
    assert_null(wf_trainer_new(s, w.data, NULL, &err));
    assert_non_null(strstr(err.text, "3 classes"));
    err = (struct wf_err){ 0 };
    own = (struct own){ .out = 3, .unpadded = true };
    assert_null(wf_trainer_new(s, w.data, NULL, &err));
    assert_non_null(strstr(err.text, "14"));
    assert_non_null(strstr(err.text, ".same"));
    err = (struct wf_err){ 0 };
    own.fails = true;
    assert_null(wf_trainer_new(s, w.data, NULL, &err));
    assert_non_null(strstr(err.text, "NULL"));
    wf_session_network(s, NULL, NULL);
    t = trainer_of(s, w.data, NULL);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(w.data);
}

/* Of the first step on all samples, whose batch and precision are these. */
static void gradient_of(const char *const settings[3], const struct wf_data *d, float to[4 * 2 * 9])
{
    static const char *const keys[] = { "train.batch", "train.accumulate", "train.precision" };
    struct wf_err err = WF_ZERO;
    struct own own = { .out = 3 };
    struct wf_options *const o = wf_options_new();
    bool ok = wf_options_set(o, "data.validation", "0.2", &err);
    for (int i = 0; ok && i < 3; i++)
        ok = wf_options_set(o, keys[i], settings[i], &err);
    struct wf_session *const s = wf_session_new(o, &err);
    wf_options_free(o);
    wf_session_network(s, own_network, &own);
    struct wf_trainer *const t = trainer_of(s, d, NULL);
    struct wf_step_info step;
    if (!ok || !wf_trainer_step(t, &step, &err) ||
        !wf_trainer_get(t, "grad.first.weight", to, 4 * 2 * 9, &err))
        fail_msg("%s", err.text);
    wf_trainer_free(t);
    wf_session_free(s);
}

/* Whatever the update is computed from: several passes, or a scaled loss. */
static void trainer__has_the_gradient_of_the_step(void **state)
{
    struct world w;
    float one[4 * 2 * 9], other[4 * 2 * 9];
    world_init(&w);
    gradient_of((const char *const[]){ "4", "1", "f32" }, w.data, one);
    double most = 0;
    for (int i = 0; i < 4 * 2 * 9; i++)
        most = fmax(most, fabs((double)one[i]));
    assert_true(most > 0);
    gradient_of((const char *const[]){ "1", "4", "f32" }, w.data, other);
    for (int i = 0; i < 4 * 2 * 9; i++)
        assert_true(fabs((double)(one[i] - other[i])) < 1e-5 * most);
    gradient_of((const char *const[]){ "2", "2", "f16" }, w.data, other);
    for (int i = 0; i < 4 * 2 * 9; i++)
        assert_true(fabs((double)(one[i] - other[i])) < 3e-2 * most);
    wf_data_free(w.data);
}

/* One label for each image: the means of two images tell them apart. */
static void trainer__learns_labels_of_whole_images(void **state)
{
    uint8_t bytes[8][1][8 * 8];
    int32_t labels[8];
    bool validation[8];
    for (int s = 0; s < 8; s++) {
        labels[s] = s % 2;
        validation[s] = s >= 6;
        memset(bytes[s], s % 2 ? 200 + s : 20 + s, sizeof bytes[s]);
        bytes[s][0][s] = 100;
    }
    const int64_t extents[] = { 8, 8 };
    struct wf_arrays arrays = { .samples = 8,
                                .dims = 2,
                                .extents = extents,
                                .channels = 1,
                                .image_dtype = WF_U8,
                                .image_block = bytes,
                                .image_labels = labels,
                                .validation = validation };
    struct wf_err err = WF_ZERO;
    struct wf_data *const d = wf_data_arrays(&arrays, &err);
    assert_non_null(d);
    struct wf_options *const o = wf_options_new();
    assert_true(wf_options_set(o, "model.name", "cnn2d", &err) &&
                wf_options_set(o, "train.epochs", "20", &err) &&
                wf_options_set(o, "train.batch", "3", &err));
    struct wf_session *const s = wf_session_new(o, &err);
    wf_options_free(o);
    struct wf_trainer *const t = trainer_of(s, d, NULL);
    struct wf_epoch_info epoch = WF_ZERO;
    while (!epoch.ended)
        assert_true(wf_trainer_epoch(t, &epoch, &err));
    assert_true(epoch.validated && epoch.metric == 1);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(d);
}

/* --- failures --- */

struct messages {
    int count;
    char last[256];
};

static void keep(enum wf_log_level level, const char *text, void *user)
{
    struct messages *const m = user;
    assert_true(level <= WF_LOG_INFO);
    m->count++;
    (void)snprintf(m->last, sizeof m->last, "%s", text);
}

/* A NaN that is met in the second step: the trainer fails, says why ever after, and can be freed. */
static void trainer__a_failure_inside_stays(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO, later = WF_ZERO;
    world_init(&w);
    struct wf_session *const s = session_of("space=2x1");
    struct messages messages = { 0 };
    wf_session_on_log(s, WF_LOG_INFO, keep, &messages);
    struct wf_trainer *const t = trainer_of(s, w.data, NULL);
    struct wf_step_info step;
    float number;
    for (int i = 0; i < SAMPLES; i++)
        w.images[i][1][9] = (float)NAN;
    bool ok = true;
    for (int i = 0; ok && i < 6; i++)
        ok = wf_trainer_step(t, &step, &err);
    assert_false(ok);
    assert_non_null(strstr(err.text, "NaN"));
    assert_false(wf_trainer_step(t, &step, &later));
    assert_string_equal(err.text, later.text);
    later = (struct wf_err){ 0 };
    assert_false(
        wf_trainer_get(t, wf_trainer_tensor(t, 0, NULL, NULL), &number, 4 * 2 * 9, &later));
    assert_string_equal(err.text, later.text);
    /* The session itself is well. */
    struct wf_plan_info info;
    assert_true(wf_session_plan(s, 4, (const int64_t[]){ 1, 2, 32, 32 }, &info, &later));
    wf_trainer_free(t);
    wf_session_free(s);
    wf_data_free(w.data);
}

static void trainer__images_without_labels_are_refused(void **state)
{
    struct world w;
    struct wf_err err = WF_ZERO;
    world_init(&w);
    wf_data_free(w.data);
    w.arrays.label_block = NULL;
    struct wf_data *const d = wf_data_arrays(&w.arrays, &err);
    struct wf_session *const s = session_of("space=1");
    assert_null(wf_trainer_new(s, d, NULL, &err));
    assert_non_null(strstr(err.text, "no labels"));
    wf_session_free(s);
    wf_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data__arrays_are_described_and_checked),
        cmocka_unit_test(trainer__steps_make_an_epoch),
        cmocka_unit_test(trainer__cut_over_four_ranks_gives_the_weights_of_one),
        cmocka_unit_test(trainer__arrays_and_files_give_the_same_bits),
        cmocka_unit_test(trainer__goes_on_from_a_checkpoint),
        cmocka_unit_test(trainer__scores_weights_and_gradients),
        cmocka_unit_test(trainer__writes_a_run_folder),
        cmocka_unit_test(sessions__of_two_threads_do_not_mix),
        cmocka_unit_test(trainer__trains_a_network_of_ones_own),
        cmocka_unit_test(trainer__has_the_gradient_of_the_step),
        cmocka_unit_test(trainer__learns_labels_of_whole_images),
        cmocka_unit_test(trainer__a_failure_inside_stays),
        cmocka_unit_test(trainer__images_without_labels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
