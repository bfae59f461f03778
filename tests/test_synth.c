/* Synthetic sets: the same from the same seed, the same in any window, and what they promise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/synth.h"
#include "files.h"
#include "support_data.h"
#include "support_scratch.h"

/* A part of an image of a set, drawn at once. */
static void draw(const struct wf_synth_kind *kind, const struct wf_synth_options *o,
                 struct wf_region at, uint8_t *image, uint8_t *mask)
{
    struct wf_synth_image picture;
    wf_synth_image_init(&picture, kind, o, 3);
    kind->draw(&picture,
               &(struct wf_synth_window){
                   .at = at, .pitch = wf_region_extent(at, WF_W), .image = image, .mask = mask });
    wf_synth_image_release(&picture);
}

static void check_windows(const struct wf_synth_kind *kind, int domain)
{
    enum { H = 96, W = 160 };
    const struct wf_synth_options o = { .size = { kind->dims == 3 ? 20 : 1, H, W },
                                        .seed = 5,
                                        .domain = domain };
    const int64_t plane = kind->dims == 3 ? 13 : 0;
    static uint8_t image[H * W * 3], mask[H * W], part[H * W * 3], part_mask[H * W];
    draw(kind, &o, (struct wf_region){ { 0, plane }, { 1, plane + 1, H, W, 1 } }, image, mask);
    static const int64_t windows[][4] = { { 0, 0, 1, 1 },
                                          { 31, 47, 64, 112 },
                                          { 90, 0, 96, 160 },
                                          { 0, 159, 96, 160 },
                                          { 17, 20, 18, 150 } };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const int64_t *w = windows[i], wide = w[3] - w[1];
        draw(kind, &o,
             (struct wf_region){ { 0, plane, w[0], w[1], 0 }, { 1, plane + 1, w[2], w[3], 1 } },
             part, part_mask);
        for (int64_t h = w[0]; h < w[2]; h++) {
            assert_memory_equal(part_mask + (h - w[0]) * wide, mask + h * W + w[1], (size_t)wide);
            assert_memory_equal(part + (h - w[0]) * wide * kind->channels,
                                image + (h * W + w[1]) * kind->channels,
                                (size_t)(wide * kind->channels));
        }
    }
    int seen = 0;
    for (int i = 0; i < H * W; i++)
        seen |= 1 << mask[i];
    assert_int_equal(seen, (1 << kind->classes) - 1);
}

static void windows__equal_the_whole(void **state)
{
    for (const struct wf_synth_kind *const *k = wf_synth_table; *k; k++)
        for (int i = 0; (*k)->draw && (i == 0 || ((*k)->domains && (*k)->domains[i])); i++)
            check_windows(*k, i);
}

static void run(const char *kind, const struct wf_synth_options *o)
{
    struct wf_err err = { 0 };
    const struct wf_synth_kind *k = wf_synth_find(kind, &err);
    const bool ok = k && wf_synth_run(k, o, &err);
    if (!ok)
        print_error("%s\n", err.text);
    assert_true(ok);
}

static void same_file(const char *a, const char *b, bool want)
{
    size_t na, nb;
    unsigned char *x = slurp(a, &na), *y = slurp(b, &nb);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(na == nb && memcmp(x, y, na) == 0, want);
    free(x);
    free(y);
}

/* The files of CIFAR-10 with as many of each class, the last sixth for testing. */
static void shapes__are_labelled_pictures_that_follow_from_the_seed(void **state)
{
    run("shapes", &(struct wf_synth_options){ .out = "s/a", .count = 120, .seed = 1 });
    run("shapes", &(struct wf_synth_options){ .out = "s/b", .count = 120, .seed = 1 });
    run("shapes", &(struct wf_synth_options){ .out = "s/c", .count = 120, .seed = 2 });
    same_file("s/a/data_batch_3.bin", "s/b/data_batch_3.bin", true);
    same_file("s/a/data_batch_3.bin", "s/c/data_batch_3.bin", false);
    same_file("s/a/data_batch_3.bin", "s/a/data_batch_4.bin", false);
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open("s/a", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(ds);
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_CIFAR10);
    assert_int_equal(info->labels, WF_LABELS_IMAGE);
    assert_int_equal(info->samples, 120);
    assert_int_equal(info->n_classes, 10);
    assert_string_equal(info->classes[0].name, "disc");
    assert_string_equal(info->classes[9].name, "arrow");
    int held_out[10] = { 0 };
    for (int64_t i = 0; i < 120; i++)
        held_out[wf_dataset_sample(ds, i)->label] += wf_dataset_sample(ds, i)->held_out;
    for (int c = 0; c < 10; c++) {
        assert_int_equal(info->classes[c].found, 12);
        assert_int_equal(held_out[c], 2);
    }
    wf_dataset_free(ds);

    const struct wf_synth_options few = { .out = "few", .count = 5 };
    assert_false(wf_synth_run(&wf_synth_shapes, &few, &err));
    assert_non_null(strstr(err.text, "at least 6"));
    err = (struct wf_err){ 0 };
    const struct wf_synth_options large = { .out = "large", .size = { 1, 64, 64 } };
    assert_false(wf_synth_run(&wf_synth_shapes, &large, &err));
    assert_non_null(strstr(err.text, "leave --size out"));
}

/* Colour says nothing: the mean colours of the classes agree within the deviation of such a mean. */
static void shapes__do_not_differ_in_colour(void **state)
{
    run("shapes", &(struct wf_synth_options){ .out = "s/d", .count = 3000, .seed = 3 });
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open("s/d", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(ds);
    double mean[10][3] = { 0 };
    for (int64_t s = 0; s < 3000; s++) {
        static float image[32 * 32 * 3];
        const struct wf_region all = wf_dataset_extent(ds, s);
        assert_true(wf_dataset_read(ds, s, &all, image, NULL, &err));
        for (int i = 0; i < 32 * 32 * 3; i++)
            mean[wf_dataset_sample(ds, s)->label][i % 3] += (double)image[i] / (300 * 1024.0);
    }
    /* A picture's mean deviates by some 65 of 255, the mean of 300 pictures by 3.8. */
    for (int c = 0; c < 10; c++)
        for (int k = 0; k < 3; k++)
            assert_true(fabs(mean[c][k] - 127.5) < 5 * 3.8);
    wf_dataset_free(ds);
}

#ifdef WF_HAVE_PNG
static void sets__follow_from_the_seed(void **state)
{
    run("nuclei",
        &(struct wf_synth_options){ .out = "x/a", .count = 2, .size = { 1, 70, 300 }, .seed = 1 });
    run("nuclei",
        &(struct wf_synth_options){ .out = "x/b", .count = 3, .size = { 1, 70, 300 }, .seed = 1 });
    run("nuclei",
        &(struct wf_synth_options){ .out = "x/c", .count = 1, .size = { 1, 70, 300 }, .seed = 2 });
    same_file("x/a/images/nuclei_00001.png", "x/b/images/nuclei_00001.png", true);
    same_file("x/a/masks/nuclei_00001.png", "x/b/masks/nuclei_00001.png", true);
    same_file("x/a/images/nuclei_00000.png", "x/c/images/nuclei_00000.png", false);
    same_file("x/a/images/nuclei_00000.png", "x/a/images/nuclei_00001.png", false);

    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open("x/a", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(ds);
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->samples, 2);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->n_classes, 2);
    assert_string_equal(info->classes[1].name, "nucleus");
    assert_int_equal(info->classes[1].color, 0x5ac878);
    const double share = (double)info->classes[1].found / (double)info->scanned;
    assert_true(share > 0.05 && share < 0.6);
    wf_dataset_free(ds);
}

/* Two discs of radius 4 whole in different squares of 32, a line of width 3 between their centres. */
static void discs__are_as_the_task_says(void **state)
{
    run("discs", &(struct wf_synth_options){
                     .out = "discs", .count = 40, .size = { 1, 32, 128 }, .seed = 9 });
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open("discs", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(ds);
    assert_int_equal(wf_dataset_info(ds)->channels, 1);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 3);
    for (int64_t s = 0; s < 40; s++) {
        static float image[32 * 128];
        static int32_t label[32 * 128];
        const struct wf_region all = wf_dataset_extent(ds, s);
        assert_true(wf_dataset_read(ds, s, &all, image, label, &err));
        int in[4] = { 0 }, sum_x[4] = { 0 }, sum_y[4] = { 0 };
        for (int i = 0; i < 32 * 128; i++) {
            assert_int_equal(image[i] > 100, label[i] == 2); /* the line does not show */
            if (label[i] != 2)
                continue;
            const int square = i % 128 / 32;
            in[square]++;
            sum_x[square] += i % 128;
            sum_y[square] += i / 128;
        }
        int discs = 0;
        double x[2] = { 0 }, y[2] = { 0 };
        for (int q = 0; q < 4; q++) {
            if (in[q] == 0)
                continue;
            assert_int_equal(in[q], 49); /* pixels within 4 of a pixel */
            assert_true(discs < 2);
            x[discs] = sum_x[q] / 49.0;
            y[discs++] = sum_y[q] / 49.0;
        }
        assert_int_equal(discs, 2);
        for (int i = 0; i < 32 * 128; i++) {
            const double dx = x[1] - x[0], dy = y[1] - y[0], length = dx * dx + dy * dy;
            const int row = i / 128, column = i % 128;
            const double px = column - x[0], py = row - y[0];
            const double t = (px * dx + py * dy) / length;
            const double far = fabs(px * dy - py * dx) / sqrt(length);
            if (label[i] != 2 && fabs(far - 1.5) > 1e-3)
                assert_int_equal(label[i], t > 0 && t < 1 && far < 1.5);
        }
    }
    wf_dataset_free(ds);
}

static void refusals__say_what_to_do(void **state)
{
    struct wf_err err = { 0 };
    assert_null(wf_synth_find("nucleus", &err));
    assert_non_null(strstr(err.text, "did you mean 'nuclei'?"));
    err = (struct wf_err){ 0 };
    const struct wf_synth_options odd = { .out = "odd", .size = { 1, 32, 33 } };
    assert_false(wf_synth_run(&wf_synth_discs, &odd, &err));
    assert_non_null(strstr(err.text, "multiples of 32"));
    support_folder("full");
    support_text("full/x", "y");
    err = (struct wf_err){ 0 };
    const struct wf_synth_options full = { .out = "full", .size = { 1, 32, 64 }, .count = 1 };
    assert_false(wf_synth_run(&wf_synth_discs, &full, &err));
    assert_non_null(strstr(err.text, "folder 'full' exists and is not empty"));
    err = (struct wf_err){ 0 };
    const struct wf_synth_options file = { .out = "full/x", .size = { 1, 32, 64 }, .count = 1 };
    assert_false(wf_synth_run(&wf_synth_discs, &file, &err));
    assert_non_null(strstr(err.text, "'full/x' is a file"));
    support_folder("void");
    err = (struct wf_err){ 0 };
    const struct wf_synth_options empty = { .out = "void", .size = { 1, 32, 64 }, .count = 1 };
    assert_true(wf_synth_run(&wf_synth_discs, &empty, &err));
}
#endif

#ifdef WF_HAVE_TIFF
static void note_progress(void *user, double part)
{
    double *last = user;
    assert_true(part > *last && part <= 1);
    *last = part;
}

static void large__images_are_tiled_and_volumes_stacks(void **state)
{
    double part = 0;
    run("roads", &(struct wf_synth_options){ .out = "roads",
                                             .count = 1,
                                             .size = { 1, 2100, 2050 },
                                             .seed = 1,
                                             .progress = note_progress,
                                             .user = &part });
    assert_true(part == 1);
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open("roads/images/roads_00000.tif", &err);
    assert_non_null(r);
    assert_int_equal(wf_raster_info(r)->tile.at[WF_H], 256);
    assert_int_equal(wf_raster_info(r)->tile.at[WF_W], 256);
    wf_raster_close(r);

    run("vessels3d", &(struct wf_synth_options){
                         .out = "vessels", .count = 2, .size = { 24, 40, 300 }, .seed = 1 });
    struct wf_dataset *ds = wf_dataset_open("vessels", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(ds);
    assert_int_equal(wf_dataset_info(ds)->dims, 3);
    assert_int_equal(wf_dataset_sample(ds, 1)->extent[WF_D], 24);
    assert_int_equal(wf_dataset_sample(ds, 1)->extent[WF_W], 300);
    assert_true(wf_dataset_info(ds)->classes[1].found > 100);
    wf_dataset_free(ds);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__equal_the_whole),
        cmocka_unit_test(shapes__are_labelled_pictures_that_follow_from_the_seed),
        cmocka_unit_test(shapes__do_not_differ_in_colour),
#ifdef WF_HAVE_PNG
        cmocka_unit_test(sets__follow_from_the_seed),
        cmocka_unit_test(discs__are_as_the_task_says),
        cmocka_unit_test(refusals__say_what_to_do),
#endif
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(large__images_are_tiled_and_volumes_stacks),
#endif
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
