/*
 * Prediction of files: what is written for windows equals the forward pass of the whole image, in
 * every format, on several ranks; classes follow the probabilities; tags come along.
 */
/* ranks: 1 2 3 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "data/picture.h"
#include "device/device.h"
#include "models/model.h"
#include "ops/op.h"
#include "support_scratch.h"
#include "train/color.h"
#include "train/predict.h"

enum { CLASSES = 3 };
static const double mean[] = { 100, 120, 90 }, deviation[] = { 50, 40, 60 };

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    (void)user;
    (void)err;
    wf_run_init_weights(run, 5);
    /* Without the last bias no class wins everywhere. */
    const struct wf_value *bias = wf_graph_find(wf_run_plan(run)->global->graph, "out.bias");
    const struct wf_view view = bias ? wf_run_view(run, bias) : (struct wf_view){ 0 };
    if (view.data)
        wf_view_fill(&view, 0.0);
    return true;
}

/* A file of noise: value of pixel i is a function of i. */
static void write_noise(const char *path, int64_t d, int64_t h, int64_t w, int channels,
                        enum wf_sample sample, const struct wf_raster_place *place)
{
    struct wf_err err = { 0 };
    const struct wf_raster_info info = {
        .depth = d, .height = h, .width = w, .channels = channels, .sample = sample, .place = place
    };
    struct wf_raster_writer *writer = wf_raster_create(path, &info, &err);
    if (!writer)
        fail_msg("%s", err.text);
    const struct wf_random r = wf_random(1, 2);
    const size_t count = (size_t)(d * h * w * channels), size = wf_sample_size(sample);
    unsigned char *data = malloc(count * size);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        const uint32_t v = wf_random_below(r, i, 256);
        const uint16_t wide = (uint16_t)v;
        const float real = (float)v;
        memcpy(data + i * size,
               size == 1   ? (const void *)&(unsigned char){ (unsigned char)v }
               : size == 2 ? (const void *)&wide
                           : (const void *)&real,
               size);
    }
    const struct wf_region all = { .hi = { 1, d, h, w, channels } };
    assert_true(wf_raster_write_window(writer, &all, data, &err));
    assert_true(wf_raster_writer_close(writer, true, &err));
    free(data);
}

/* --- a device with memory of its own, by the CPU's kernels: what is sent and taken goes its ways --- */

static void far_put(struct wf_context *context, const struct wf_view *dst,
                    const struct wf_view *src)
{
    wf_device_cpu.memory.copy(context, dst, src);
}

static void far_widen(struct wf_context *context, const struct wf_view *dst,
                      const struct wf_view *sent, const float *scale, const float *offset)
{
    (void)context;
    const int64_t count = wf_region_count(dst->box), channels = wf_region_extent(dst->box, WF_C);
    for (int64_t i = 0; i < count; i++)
        ((float *)dst->data)[i] =
            ((const uint8_t *)sent->data)[i] * scale[i % channels] + offset[i % channels];
}

static bool far_get(struct wf_context *context, const struct wf_view *host,
                    const struct wf_view *src, struct wf_err *err)
{
    (void)err;
    wf_device_cpu.memory.copy(context, host, src);
    return true;
}

static void *far_host_alloc(struct wf_context *context, size_t bytes)
{
    (void)context;
    return malloc(bytes);
}

static void far_host_free(struct wf_context *context, void *memory)
{
    (void)context;
    free(memory);
}

static bool far_synchronize(struct wf_context *context, struct wf_err *err)
{
    (void)context;
    (void)err;
    return true;
}

static void *far_point(struct wf_context *context)
{
    (void)context;
    return malloc(1);
}

static bool far_reach(struct wf_context *context, void *point, struct wf_err *err)
{
    (void)context;
    (void)err;
    free(point);
    return true;
}

static struct wf_device far_device(void)
{
    struct wf_device far = wf_device_cpu;
    far.name = "far";
    far.transfer = (struct wf_device_transfer){ .put = far_put,
                                                .send = far_put,
                                                .take = far_put,
                                                .widen = far_widen,
                                                .get = far_get,
                                                .host_alloc = far_host_alloc,
                                                .host_free = far_host_free };
    far.stream = (struct wf_device_stream){ .synchronize = far_synchronize,
                                            .point = far_point,
                                            .reach = far_reach };
    return far;
}

struct job {
    struct wf_graph *g;
    struct wf_prediction p;
    struct wf_predicted result;
    struct wf_arena arena;
    float *logits, *probabilities; /* whole, dense */
    int64_t pixels;
};

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct job *job = arg;
    struct wf_predicted other;
    struct wf_arena arena = { 0 };
    const bool first = wf_comm_rank(comm) == 0;
    const bool ok =
        wf_predict(first ? &job->arena : &arena, &job->p, comm, first ? &job->result : &other, err);
    wf_arena_release(&arena);
    return ok;
}

static void start(struct job *job, const char *path, const char *model_name,
                  struct wf_model_config config)
{
    struct wf_err err = { 0 };
    const struct wf_model *model = wf_model_find(model_name, &err);
    assert_non_null(model);
    if (!wf_model_resolve(model, &config, &err))
        fail_msg("%s", err.text);
    struct wf_picture *picture = wf_picture_open(path, config.in, &err);
    if (!picture)
        fail_msg("%s", err.text);
    *job = (struct job){ .g = wf_graph_new(&(struct wf_graph_options){ .training = false }) };
    struct wf_value *x = wf_input(job->g, "image", WF_F32, wf_picture_shape(picture));
    struct wf_value *y = model->build(job->g, &config, x);
    if (!wf_graph_ok(job->g, &err))
        fail_msg("%s", err.text);
    wf_picture_close(picture);
    job->p = (struct wf_prediction){ .path = path,
                                     .graph = job->g,
                                     .image = x,
                                     .logits = y,
                                     .per_pixel = model->dense,
                                     .mean = mean,
                                     .deviation = deviation,
                                     .plan = { .device = &wf_device_cpu, .threads = 1 },
                                     .weights = fill_weights };
    job->pixels = wf_shape_count(y->shape) / y->shape.at[WF_C];
    wf_graph_output(job->g, y);
}

/* The forward pass of all at once, by a plan without windows. */
static void run_whole(struct job *job)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    struct wf_global_plan *global = wf_global_plan_new(job->g, &one, &job->p.plan, &err);
    struct wf_plan *plan = global ? wf_plan_new(global, 0, &err) : NULL;
    struct wf_comm *self = wf_comm_self();
    struct wf_run *run = plan ? wf_run_new(plan, self, 0, &err) : NULL;
    if (!run)
        fail_msg("%s", err.text);
    assert_true(fill_weights(NULL, run, &err));
    const struct wf_view x = wf_run_view(run, job->p.image);
    struct wf_picture *picture = wf_picture_open(job->p.path, job->p.image->shape.at[WF_C], &err);
    assert_true(wf_picture_read(picture, &x.box, x.data, &err));
    wf_picture_close(picture);
    for (struct wf_cursor c = wf_cursor(x.box); wf_cursor_next(&c);)
        wf_view_set(&x, c.at, (wf_view_at(&x, c.at) - mean[c.at[WF_C]]) / deviation[c.at[WF_C]]);
    assert_true(wf_run_step(run, &err));
    const int64_t channels = job->p.logits->shape.at[WF_C];
    job->logits = malloc((size_t)(job->pixels * channels) * sizeof(float));
    job->probabilities = malloc((size_t)(job->pixels * channels) * sizeof(float));
    assert_non_null(job->logits);
    assert_non_null(job->probabilities);
    const struct wf_view from = wf_run_view(run, job->p.logits),
                         to = wf_view_dense(job->logits, WF_F32, from.box);
    wf_view_copy(&to, &from);
    for (int64_t i = 0; i < job->pixels; i++) {
        double sum = 0;
        for (int64_t c = 0; c < channels; c++)
            sum += exp((double)job->logits[i * channels + c]);
        for (int64_t c = 0; c < channels; c++)
            job->probabilities[i * channels + c] =
                (float)(exp((double)job->logits[i * channels + c]) / sum);
    }
    wf_run_free(run);
    wf_comm_free(self);
    wf_plan_free(plan);
    wf_global_plan_free(global);
}

static void finish(struct job *job)
{
    wf_graph_free(job->g);
    wf_arena_release(&job->arena);
    free(job->logits);
    free(job->probabilities);
}

static void predict(struct job *job, int ranks)
{
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(ranks, body, job, &err))
        fail_msg("%s", err.text);
}

static void *read_all(const char *path, enum wf_dtype as, int channels)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open(path, &err);
    if (!r)
        fail_msg("%s", err.text);
    const struct wf_raster_info *info = wf_raster_info(r);
    assert_int_equal(info->channels, channels);
    const struct wf_region all = { .hi = { 1, info->depth, info->height, info->width, channels } };
    void *data = malloc((size_t)wf_region_count(all) * 4);
    assert_non_null(data);
    if (!wf_raster_read_window(r, &all, 0, channels, as, data, &err))
        fail_msg("%s", err.text);
    wf_raster_close(r);
    return data;
}

/* Probabilities to 1e-5 everywhere; classes are the largest, where it is not a tie in f32. */
static void check_files(const struct job *job)
{
    const int channels = (int)job->p.logits->shape.at[WF_C];
    float *got = read_all(job->p.values, WF_F32, channels);
    int32_t *labels = read_all(job->p.classes, WF_I32, 1);
    bool different = false;
    for (int64_t i = 0; i < job->pixels; i++) {
        const float *want = job->probabilities + i * channels;
        for (int c = 0; c < channels; c++) {
            const double off = fabs((double)got[i * channels + c] - (double)want[c]);
            if (!(off <= 1e-5))
                fail_msg("pixel %d, class %d: %g, whole %g", (int)i, c,
                         (double)got[i * channels + c], (double)want[c]);
            assert_true(labels[i] >= 0 && labels[i] < channels);
            assert_true((double)want[labels[i]] >= (double)want[c] - 1e-5);
        }
        different |= labels[i] != labels[0];
    }
    assert_true(different);
    free(got);
    free(labels);
}

static void windows__equal_the_whole_image_in_every_format(void **state)
{
    static const char *const files[][2] = { { "c.tif", "p.tif" },
                                            { "c.png", "p.npy" },
                                            { "c.npy", "p.npy" } };
    write_noise("in.tif", 1, 301, 277, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    start(&job, "in.tif", "unet",
          (struct wf_model_config){ .base = 4, .depth = 2, .classes = CLASSES });
    run_whole(&job);
    for (int i = 0; i < 3; i++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            job.p.classes = files[i][0];
            job.p.values = files[i][1];
            job.p.window[WF_H] = 70 + 30 * i;
            job.p.window[WF_W] = 96;
            predict(&job, ranks);
            assert_int_equal(job.result.windows, (i == 0 ? 5 : i == 1 ? 4 : 3) * 3);
            check_files(&job);
        }
    /* By a limit on the memory, and without one: one window. */
    memset(job.p.window, 0, sizeof job.p.window);
    job.p.memory.limit = (size_t)3 << 20;
    predict(&job, 1);
    assert_true(job.result.windows > 2);
    assert_true(job.result.bytes <= job.p.memory.limit);
    check_files(&job);
    job.p.memory.limit = 0;
    predict(&job, 2);
    assert_int_equal(job.result.windows, 1);
    check_files(&job);
    finish(&job);
}

static void windows__on_a_device_with_memory_of_its_own(void **state)
{
    const struct wf_device far = far_device();
    struct wf_err err = { 0 };
    struct wf_context *context = NULL;
    assert_true(
        wf_device_open(&wf_device_cpu, &(struct wf_device_options){ .cache = "" }, &context, &err));
    write_noise("far.tif", 1, 301, 277, 3, WF_SAMPLE_U8, NULL);
    write_noise("far.npy", 1, 301, 277, 3, WF_SAMPLE_F32, NULL);
    static const char *const files[] = { "far.tif", "far.npy" };
    for (int i = 0; i < 2; i++) {
        struct job job;
        start(&job, files[i], "unet",
              (struct wf_model_config){ .base = 4, .depth = 2, .classes = CLASSES });
        run_whole(&job);
        job.p.plan.device = &far;
        job.p.classes = i ? "far_c.npy" : "far_c.tif";
        job.p.values = i ? "far_p.tif" : "far_p.npy";
        job.p.window[WF_H] = 70;
        job.p.window[WF_W] = 96;
        job.p.context = context;
        predict(&job, 1);
        check_files(&job);
        assert_true(job.result.halo > 0 && job.result.halo < 1 && job.result.host_bytes > 0);
        /* By throughput: bands, with the limit of the device's memory. */
        memset(job.p.window, 0, sizeof job.p.window);
        job.p.memory.limit = (size_t)3 << 20;
        predict(&job, 1);
        assert_true(job.result.windows > 2 && job.result.bytes <= job.p.memory.limit);
        check_files(&job);
        finish(&job);
    }
    wf_device_close(context);
}

static void windows__of_512_in_a_large_image(void **state)
{
    write_noise("large.tif", 1, 700, 900, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    start(&job, "large.tif", "unet",
          (struct wf_model_config){ .base = 4, .depth = 3, .classes = CLASSES });
    run_whole(&job);
    job.p.classes = "large_c.tif";
    job.p.values = "large_p.tif";
    job.p.window[WF_H] = job.p.window[WF_W] = 512;
    predict(&job, 1);
    assert_int_equal(job.result.windows, 4);
    check_files(&job);
    finish(&job);
}

static void volumes__come_as_pages_whatever_the_windows(void **state)
{
    write_noise("volume.npy", 9, 20, 31, 1, WF_SAMPLE_F32, NULL);
    struct job job;
    start(
        &job, "volume.npy", "unet",
        (struct wf_model_config){ .dims = 3, .in = 1, .base = 4, .depth = 1, .classes = CLASSES });
    run_whole(&job);
    job.p.window[WF_D] = 4;
    job.p.window[WF_H] = 8;
    job.p.window[WF_W] = 16;
    job.p.classes = "v.tif";
    job.p.values = "vp.tif";
    predict(&job, 2);
    assert_int_equal(job.result.windows, 3 * 2 * 2); /* tiles have 16 rows at least */
    check_files(&job);
    job.p.classes = "v.npy";
    job.p.values = "vp.npy";
    predict(&job, 1);
    assert_int_equal(job.result.windows, 3 * 3 * 2);
    check_files(&job);
    for (int ranks = 1; ranks <= 3; ranks++) {
        job.p.classes = "v.nii";
        job.p.values = "vp.nii";
        predict(&job, ranks);
        check_files(&job);
#ifdef WF_HAVE_ZLIB
        job.p.classes = "v.nii.gz";
        job.p.values = "vp.nii.gz";
        predict(&job, ranks);
        check_files(&job);
#endif
    }
    finish(&job);
}

static void one_channel__is_class_1_where_its_logit_is_positive(void **state)
{
    write_noise("one.tif", 1, 40, 50, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    start(&job, "one.tif", "unet", (struct wf_model_config){ .base = 4, .depth = 1, .classes = 1 });
    run_whole(&job);
    job.p.predicts = WF_PREDICTS_BINARY;
    job.p.classes = "one_c.png";
    job.p.values = "one_p.tif";
    job.p.window[WF_H] = 16;
    predict(&job, 1);
    float *got = read_all("one_p.tif", WF_F32, 1);
    int32_t *labels = read_all("one_c.png", WF_I32, 1);
    for (int64_t i = 0; i < job.pixels; i++) {
        assert_true(fabs((double)got[i] - 1 / (1 + exp(-(double)job.logits[i]))) < 1e-5);
        if (fabsf(job.logits[i]) > 1e-5f)
            assert_int_equal(labels[i], job.logits[i] > 0);
    }
    free(got);
    free(labels);
    /* A network of numbers writes them as they are, and no classes. */
    job.p.predicts = WF_PREDICTS_NUMBERS;
    job.p.classes = "none.tif";
    job.p.values = "one_v.tif";
    predict(&job, 1);
    got = read_all("one_v.tif", WF_F32, 1);
    for (int64_t i = 0; i < job.pixels; i++)
        assert_true(fabsf(got[i] - job.logits[i]) < 1e-5f);
    free(got);
    assert_int_not_equal(access("none.tif", F_OK), 0);
    finish(&job);
}

static void classifier__answers_for_the_image(void **state)
{
    write_noise("photo.png", 1, 60, 45, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    start(&job, "photo.png", "cnn2d", (struct wf_model_config){ .base = 4, .classes = CLASSES });
    run_whole(&job);
    for (int cut = 0; cut < 2; cut++) {
        job.p.window[WF_H] = job.p.window[WF_W] = cut ? 5 : 0;
        predict(&job, 1 + cut);
        assert_int_equal(job.result.passes, cut);
        for (int c = 0; c < CLASSES; c++) {
            assert_true(fabsf(job.result.probabilities[c] - job.probabilities[c]) < 1e-5f);
            assert_true(job.probabilities[job.result.label] >= job.probabilities[c]);
        }
    }
    finish(&job);
}

static void overlay__leaves_class_0_as_it_was(void **state)
{
    write_noise("under.png", 1, 64, 70, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    start(&job, "under.png", "unet",
          (struct wf_model_config){ .base = 4, .depth = 1, .classes = CLASSES });
    run_whole(&job);
    job.p.classes = "under_c.tif";
    job.p.overlay = "under_o.png";
    job.p.window[WF_H] = 24;
    job.p.window[WF_W] = 32;
    predict(&job, 2);
    int32_t *over = read_all("under_o.png", WF_I32, 3), *under = read_all("under.png", WF_I32, 3);
    int32_t *labels = read_all("under_c.tif", WF_I32, 1);
    int64_t changed = 0;
    for (int64_t i = 0; i < job.pixels; i++)
        for (int c = 0; c < 3; c++) {
            uint8_t color[3];
            wf_class_color(labels[i], color);
            const double want =
                labels[i] ? 0.55 * under[i * 3 + c] + 0.45 * color[c] : under[i * 3 + c];
            assert_true(fabs(over[i * 3 + c] - want) <= 0.51);
            changed += labels[i] != 0;
        }
    assert_true(changed > 0);
    free(over);
    free(under);
    free(labels);
    finish(&job);
}

static void failures__leave_no_file(void **state)
{
    write_noise("fine.tif", 1, 64, 64, 3, WF_SAMPLE_U8, NULL);
    struct job job;
    struct wf_err err = { 0 };
    start(&job, "fine.tif", "unet", (struct wf_model_config){ .base = 4, .depth = 1 });
    job.p.classes = "no/such/folder/c.tif";
    job.p.window[WF_H] = 16;
    assert_false(wf_comm_threads_run(3, body, &job, &err));
    assert_non_null(strstr(err.text, "no/such/folder/c.tif"));
    /* Less memory than the weights need. */
    err = (struct wf_err){ 0 };
    job.p.classes = "fits_not.tif";
    job.p.memory.limit = 3000;
    assert_false(wf_comm_threads_run(2, body, &job, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_non_null(strstr(err.text, "memory.limit"));
    assert_int_not_equal(access("fits_not.tif", F_OK), 0);
    finish(&job);
    /* Channels. */
    err = (struct wf_err){ 0 };
    assert_null(wf_picture_open("fine.tif", 1, &err));
    assert_non_null(strstr(err.text, "has 3 channels, the network takes 1"));
}

static void pictures__are_as_the_dataset_sees_them(void **state)
{
    struct wf_err err = { 0 };
    struct wf_arena arena = { 0 };
    write_noise("alpha.png", 1, 5, 6, 4, WF_SAMPLE_U8, NULL);
    struct wf_picture *p = wf_picture_open("alpha.png", 3, &err);
    assert_non_null(p);
    wf_picture_close(p);
    p = wf_picture_open("alpha.png", 4, &err); /* a network that was trained with it */
    assert_non_null(p);
    wf_picture_close(p);
    write_noise("case_0000.npy", 1, 20, 20, 1, WF_SAMPLE_F32, NULL);
    write_noise("case_0001.npy", 1, 20, 20, 1, WF_SAMPLE_U8, NULL);
    p = wf_picture_open("case_0000.npy", 2, &err);
    if (!p)
        fail_msg("%s", err.text);
    float pixels[20 * 20 * 2];
    const struct wf_region all = { .hi = { 1, 1, 20, 20, 2 } };
    assert_true(wf_picture_read(p, &all, pixels, &err));
    for (int i = 0; i < 400; i++) {
        const float want = (float)wf_random_below(wf_random(1, 2), (uint64_t)i, 256);
        assert_true(pixels[2 * i] == want && pixels[2 * i + 1] == want);
    }
    wf_picture_close(p);
    assert_null(wf_picture_open("case_0000.npy", 3, &err));
    assert_string_equal(err.text,
                        "'case_0000.npy' has 2 channels, but the network takes 3: there is "
                        "no 'case_0002.npy'");
    assert_string_equal(wf_picture_stem(&arena, "a/b/case_0000.nii.gz"), "case");
    assert_string_equal(wf_picture_stem(&arena, "x.y.tif"), "x.y");
    wf_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__equal_the_whole_image_in_every_format),
        cmocka_unit_test(windows__on_a_device_with_memory_of_its_own),
        cmocka_unit_test(windows__of_512_in_a_large_image),
        cmocka_unit_test(volumes__come_as_pages_whatever_the_windows),
        cmocka_unit_test(one_channel__is_class_1_where_its_logit_is_positive),
        cmocka_unit_test(classifier__answers_for_the_image),
        cmocka_unit_test(overlay__leaves_class_0_as_it_was),
        cmocka_unit_test(failures__leave_no_file),
        cmocka_unit_test(pictures__are_as_the_dataset_sees_them),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
