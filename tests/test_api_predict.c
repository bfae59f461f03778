/* The public predictor (widefield.h): arrays as files, windows as the whole, a trainer as its checkpoint. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "image/raster.h"
#include "support_data.h"
#include "widefield.h"

enum { SAMPLES = 3, SIDE = 16, PLANE = SIDE * SIDE, HIGH = 40, WIDE = 56, LARGE = HIGH * WIDE };

struct world {
    float images[SAMPLES][PLANE];
    int32_t labels[SAMPLES][PLANE];
    float large[LARGE];
    struct wf_data *data;
    struct wf_session *session;
    struct wf_trainer *trainer;
};

static struct wf_session *session_of(const char *mesh, const char *base, const char *loss)
{
    const char *const settings[][2] = { { "mesh", mesh },        { "model.base", base },
                                        { "train.loss", loss },  { "model.depth", "1" },
                                        { "train.epochs", "3" }, { "data.validation", "0" } };
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!wf_options_set(o, settings[i][0], settings[i][1], &err))
            fail_msg("%s", err.text);
    struct wf_session *const s = wf_session_new(o, &err);
    assert_non_null(s);
    wf_options_free(o);
    return s;
}

/* A trainer after one epoch. */
static void world_init(struct world *w, const char *mesh)
{
    struct wf_err err = WF_ZERO;
    const int64_t extents[] = { SIDE, SIDE };
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < PLANE; i++) {
            w->labels[s][i] = (i / 5 + s) % 2;
            w->images[s][i] = (float)(w->labels[s][i] * 20 + i % 7);
        }
    for (int i = 0; i < LARGE; i++)
        w->large[i] = (float)(i * 37 % 50);
    w->data = wf_data_arrays(&(struct wf_arrays){ .samples = SAMPLES,
                                                  .dims = 2,
                                                  .extents = extents,
                                                  .channels = 1,
                                                  .image_block = w->images,
                                                  .label_dtype = WF_I32,
                                                  .label_block = w->labels },
                             &err);
    assert_non_null(w->data);
    w->session = session_of(mesh, "4", "ce");
    w->trainer = wf_trainer_new(w->session, w->data, NULL, &err);
    struct wf_epoch_info epoch;
    if (!w->trainer || !wf_trainer_epoch(w->trainer, &epoch, &err))
        fail_msg("%s", err.text);
}

static void world_free(struct world *w)
{
    wf_trainer_free(w->trainer);
    wf_session_free(w->session);
    wf_data_free(w->data);
}

struct result {
    int32_t labels[LARGE];
    float probabilities[2][LARGE];
};

static void predict(struct wf_predictor *p, const struct world *w, struct result *r)
{
    struct wf_err err = WF_ZERO;
    assert_int_equal(wf_predictor_channels(p), 2);
    const struct wf_predict_arrays arrays = { .dims = 2,
                                              .extents = { HIGH, WIDE },
                                              .image = w->large,
                                              .labels = r->labels,
                                              .probabilities = r->probabilities[0] };
    if (!wf_predictor_array(p, &arrays, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < LARGE; i++) {
        assert_true(fabs((double)(r->probabilities[0][i] + r->probabilities[1][i]) - 1) < 1e-6);
        assert_int_equal(r->labels[i], r->probabilities[1][i] > r->probabilities[0][i]);
    }
}

static void count_progress(double part, void *user)
{
    double *const last = user;
    assert_true(part >= 0 && part <= 1);
    *last = part;
}

/* --- tests --- */

static void predictor__of_a_trainer_and_of_its_checkpoint_are_one(void **state)
{
    struct world *const w = calloc(1, sizeof *w);
    struct result *const r = calloc(3, sizeof *r);
    struct wf_err err = WF_ZERO;
    double progress = 0;
    world_init(w, "space=2x1");
    struct wf_predictor *p = wf_predictor_of(w->trainer, &err);
    assert_non_null(p);
    wf_predictor_on_progress(p, count_progress, &progress);
    predict(p, w, &r[0]); /* while the trainer's ranks wait */
    assert_true(progress == 1);
    assert_true(wf_trainer_save(w->trainer, "net.safetensors", &err));
    struct wf_epoch_info epoch;
    assert_true(wf_trainer_epoch(w->trainer, &epoch, &err));
    predict(p, w, &r[1]); /* of weights that were copied */
    assert_memory_equal(&r[0], &r[1], sizeof *r);
    wf_predictor_free(p);
    world_free(w);
    /* In another session, on one rank, in windows: network and loss are the checkpoint's. */
    struct wf_session *const s = session_of("space=1", "8", "mse");
    p = wf_predictor_new(s, "net.safetensors", &err);
    if (!p)
        fail_msg("%s", err.text);
    wf_predictor_window(p, (const int64_t[]){ 1, 16, 24 });
    predict(p, w, &r[2]);
    assert_memory_equal(r[0].labels, r[2].labels, sizeof r->labels);
    for (int i = 0; i < LARGE; i++)
        assert_true(fabs((double)(r[0].probabilities[1][i] - r[2].probabilities[1][i])) < 1e-5);
    wf_predictor_free(p);
    assert_null(wf_predictor_new(s, "gone.safetensors", &err));
    assert_non_null(strstr(err.text, "gone.safetensors"));
    wf_session_free(s);
    free(r);
    free(w);
}

/* A prediction beside it leaves the trainer's numbers as they would have been. */
static void predictor__does_not_disturb_the_trainer(void **state)
{
    struct world *const a = calloc(1, sizeof *a), *const b = calloc(1, sizeof *b);
    struct result *const r = calloc(1, sizeof *r);
    struct wf_err err = WF_ZERO;
    struct wf_epoch_info one, other;
    world_init(a, "space=1");
    world_init(b, "space=1");
    struct wf_predictor *const p = wf_predictor_of(a->trainer, &err);
    predict(p, a, r);
    assert_true(wf_trainer_epoch(a->trainer, &one, &err) &&
                wf_trainer_epoch(b->trainer, &other, &err));
    assert_true(one.loss == other.loss);
    wf_predictor_free(p);
    world_free(a);
    world_free(b);
    free(r);
    free(a);
    free(b);
}

static void predictor__writes_files_as_the_arrays_are(void **state)
{
    struct world *const w = calloc(1, sizeof *w);
    struct result *const r = calloc(1, sizeof *r);
    struct wf_err err = WF_ZERO;
    world_init(w, "space=1");
    support_write("large.npy", &(struct support_picture){ .depth = 1,
                                                          .height = HIGH,
                                                          .width = WIDE,
                                                          .channels = 1,
                                                          .sample = WF_SAMPLE_F32,
                                                          .data = w->large });
    struct wf_predictor *const p = wf_predictor_of(w->trainer, &err);
    predict(p, w, r);
    const struct wf_predict_files files = { .image = "large.npy", .labels = "labels.png" };
    if (!wf_predictor_file(p, &files, &err))
        fail_msg("%s", err.text);
    struct wf_raster *const raster = wf_raster_open("labels.png", &err);
    const struct wf_region all = { { 0 }, { 1, 1, HIGH, WIDE, 1 } };
    int32_t *const labels = calloc(LARGE, sizeof *labels);
    assert_true(wf_raster_read_window(raster, &all, 0, 1, WF_I32, labels, &err));
    assert_memory_equal(labels, r->labels, sizeof r->labels);
    wf_raster_close(raster);
    const struct wf_predict_files missing = { .image = "missing.png", .labels = "labels.png" };
    assert_false(wf_predictor_file(p, &missing, &err));
    free(labels);
    wf_predictor_free(p);
    world_free(w);
    free(r);
    free(w);
}

/* One prediction for an image. */
static void predictor__of_a_classifier(void **state)
{
    uint8_t images[4][8 * 8];
    const int32_t labels[4] = { 0, 1, 0, 1 };
    const int64_t extents[] = { 8, 8 };
    struct wf_err err = WF_ZERO;
    for (int s = 0; s < 4; s++)
        memset(images[s], 50 + 100 * labels[s] + s, sizeof images[s]);
    struct wf_data *const d = wf_data_arrays(&(struct wf_arrays){ .samples = 4,
                                                                  .dims = 2,
                                                                  .extents = extents,
                                                                  .channels = 1,
                                                                  .image_dtype = WF_U8,
                                                                  .image_block = images,
                                                                  .image_labels = labels },
                                             &err);
    struct wf_options *const o = wf_options_new();
    assert_true(wf_options_set(o, "model.name", "cnn2d", &err) &&
                wf_options_set(o, "data.validation", "0", &err));
    struct wf_session *const s = wf_session_new(o, &err);
    struct wf_trainer *const t = wf_trainer_new(s, d, NULL, &err);
    if (!t)
        fail_msg("%s", err.text);
    struct wf_predictor *const p = wf_predictor_of(t, &err);
    float image[8 * 8], probabilities[2];
    int32_t label = -1;
    for (int i = 0; i < 8 * 8; i++)
        image[i] = images[0][i];
    const struct wf_predict_arrays arrays = { .dims = 2,
                                              .extents = { 8, 8 },
                                              .image = image,
                                              .labels = &label,
                                              .probabilities = probabilities };
    if (!wf_predictor_array(p, &arrays, &err))
        fail_msg("%s", err.text);
    assert_int_equal(label, probabilities[1] > probabilities[0]);
    wf_predictor_free(p);
    wf_trainer_free(t);
    wf_session_free(s);
    wf_options_free(o);
    wf_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictor__of_a_trainer_and_of_its_checkpoint_are_one),
        cmocka_unit_test(predictor__does_not_disturb_the_trainer),
        cmocka_unit_test(predictor__writes_files_as_the_arrays_are),
        cmocka_unit_test(predictor__of_a_classifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
