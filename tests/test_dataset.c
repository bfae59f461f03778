/* What masks mean, windows, measures, and what does not fit, with which words. (Layouts: test_layouts.c.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/inspect.h"
#include "support_data.h"
#include "support_scratch.h"

/* What was read once comes from memory, in any window; numbers that are no bytes are read anew. */
static void masks__of_0_and_255_become_0_and_1(void **state)
{
    support_folder("two/images");
    support_folder("two/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 }, mask[4] = { 0, 255, 255, 0 };
    support_bytes("two/images/a.png", 2, 2, 1, image);
    support_bytes("two/masks/a.png", 2, 2, 1, mask);
    struct wf_dataset *ds = support_open("two");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_BINARY);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    wf_dataset_free(ds);
    /* 255 above other labels is left as it is, and said */
    const uint8_t more[4] = { 0, 1, 2, 255 };
    support_bytes("two/masks/a.png", 2, 2, 1, more);
    ds = support_open("two");
    assert_int_equal(wf_dataset_info(ds)->n_classes, 3);
    assert_int_equal(wf_dataset_info(ds)->other, 1);
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "train.ignore=255"));
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 255 }, 4);
    wf_dataset_free(ds);
}

static void masks__in_colour_get_a_table_of_the_colours_found(void **state)
{
    support_folder("tint/images");
    support_folder("tint/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 };
    support_bytes("tint/images/a.png", 2, 2, 1, image);
    support_bytes("tint/images/b.png", 2, 2, 1, image);
    support_bytes("tint/masks/a.png", 2, 2, 3,
                  (const uint8_t[]){ 255, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0 });
    support_bytes("tint/masks/b.png", 2, 2, 3,
                  (const uint8_t[]){ 0, 255, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0 });
    struct wf_dataset *ds = support_open("tint");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->codes, WF_CODES_COLORS);
    assert_int_equal(info->n_classes, 4); /* black, blue, green, red: by number */
    assert_int_equal(info->classes[1].color, 0x0000ff);
    assert_string_equal(info->classes[3].name, "#ff0000");
    assert_int_equal(info->classes[3].found, 2);
    support_labels_are(ds, 0, (const int32_t[]){ 3, 0, 1, 0 }, 4);
    support_labels_are(ds, 1, (const int32_t[]){ 2, 0, 0, 3 }, 4);
    wf_dataset_free(ds);
    /* the table by hand, in its own order */
    support_text("tint/classes.txt", "# mine\nfield #00ff00\nhouse roof #ff0000\nsea #0000ff\nrest "
                                     "#000000\n");
    ds = support_open("tint");
    assert_string_equal(wf_dataset_info(ds)->classes[1].name, "house roof");
    support_labels_are(ds, 0, (const int32_t[]){ 1, 3, 2, 3 }, 4);
    wf_dataset_free(ds);
    /* a colour that the table lacks is refused before anything is trained, and when it is read */
    support_text("tint/classes.txt", "field #00ff00\nrest #000000\n");
    SUPPORT_REFUSED("tint", "mask 'tint/masks/a.png': value #ff0000", "row 0, column 0");
    struct wf_err err = { 0 };
    ds = wf_dataset_open("tint", &(struct wf_dataset_options){ .tolerate = true }, &err);
    assert_non_null(ds);
    assert_int_equal(wf_dataset_info(ds)->problems, 2);
    int32_t labels[4];
    const struct wf_region all = wf_dataset_extent(ds, 0);
    assert_false(wf_dataset_read(ds, 0, &all, NULL, labels, &err));
    assert_non_null(strstr(err.text, "mask 'tint/masks/a.png': value #ff0000"));
    wf_dataset_free(ds);
    support_text("tint/classes.txt", "field green\n");
    SUPPORT_REFUSED("tint", "classes.txt' line 1", "'green'");
}

static void masks__with_a_palette_are_indices_unless_palettes_differ(void **state)
{
    static const uint8_t one[3][3] = { { 0, 0, 0 }, { 200, 0, 0 }, { 0, 200, 0 } };
    static const uint8_t other[3][3] = { { 0, 200, 0 }, { 0, 0, 0 }, { 200, 0, 0 } };
    support_folder("pal/images");
    support_folder("pal/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 };
    struct support_picture p = { .depth = 1, .height = 2, .width = 2, .channels = 1, .colors = 3 };
    p.palette = one;
    p.data = (const uint8_t[]){ 0, 1, 2, 0 };
    support_bytes("pal/images/a.png", 2, 2, 1, image);
    support_bytes("pal/images/b.png", 2, 2, 1, image);
    support_write("pal/masks/a.png", &p);
    support_write("pal/masks/b.png", &p);
    struct wf_dataset *ds = support_open("pal");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_DIRECT);
    assert_int_equal(wf_dataset_info(ds)->classes[1].color, 0xc80000);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 0 }, 4);
    wf_dataset_free(ds);
    p.palette = other;
    p.data = (const uint8_t[]){ 1, 2, 0, 1 }; /* the same picture */
    support_write("pal/masks/b.png", &p);
    ds = support_open("pal");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_COLORS);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 2, 1, 0 }, 4);
    support_labels_are(ds, 1, (const int32_t[]){ 0, 2, 1, 0 }, 4);
    wf_dataset_free(ds);
}

/* Whichever thread is done first: palettes are those of the first mask, and where there are more values than are counted
 * it is the first masks' that are. */
static void masks__say_the_same_in_any_order(void **state)
{
    enum { MASKS = 16, SIDE = 96, PIXELS = SIDE * SIDE };
    uint8_t *const image = calloc(PIXELS, 1);
    int32_t *const objects = calloc(PIXELS, sizeof *objects);
    support_folder("many/images");
    support_folder("many/masks");
    support_folder("tones/images");
    support_folder("tones/masks");
    for (int m = 0; m < MASKS; m++) {
        char path[64];
        const uint8_t palette[2][3] = { { 0, 0, 0 }, { (uint8_t)(m + 5), 200, 0 } };
        struct support_picture p = { .depth = 1, .height = SIDE, .width = SIDE, .channels = 1 };
        for (int i = 0; i < PIXELS; i++) {
            image[i] = (uint8_t)(i % 2);
            objects[i] = m * PIXELS + i;
        }
        for (int set = 0; set < 2; set++) {
            (void)snprintf(path, sizeof path, "%s/images/m%02d.png", set ? "tones" : "many", m);
            support_bytes(path, SIDE, SIDE, 1, image);
        }
        p.sample = WF_SAMPLE_I32;
        p.data = objects;
        (void)snprintf(path, sizeof path, "many/masks/m%02d.tif", m);
        support_write(path, &p);
        p.sample = WF_SAMPLE_U8;
        p.colors = 2;
        p.palette = palette;
        p.data = image;
        (void)snprintf(path, sizeof path, "tones/masks/m%02d.png", m);
        support_write(path, &p);
    }
    support_text("tones/classes.txt", "background 0\nobject 1\n");
    for (int i = 0; i < 6; i++) {
        struct wf_dataset *ds = support_open("many");
        assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "values up to 65535: "));
        wf_dataset_free(ds);
        ds = support_open("tones");
        assert_int_equal(wf_dataset_info(ds)->classes[1].color, 0x05c800);
        wf_dataset_free(ds);
    }
    free(image);
    free(objects);
}

static void classes_txt__makes_one_class_of_many_objects(void **state)
{
    support_folder("cells/images");
    support_folder("cells/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 };
    const uint16_t mask[4] = { 0, 900, 17, 0 };
    support_bytes("cells/images/a.png", 2, 2, 1, image);
    support_write("cells/masks/a.png", &(struct support_picture){ .depth = 1,
                                                                  .height = 2,
                                                                  .width = 2,
                                                                  .channels = 1,
                                                                  .sample = WF_SAMPLE_U16,
                                                                  .data = mask });
    struct wf_dataset *ds = support_open("cells");
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "object 1-65535"));
    wf_dataset_free(ds);
    support_text("cells/classes.txt", "background 0\ncell 1-65535\n");
    ds = support_open("cells");
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    wf_dataset_free(ds);
}

static void fits__tells_what_to_set(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 4, 4, 0 };
    support_pair("grey", "a", extent, 1, 4);
    struct wf_dataset *ds = support_open("grey");
    struct wf_err err = { 0 };
    assert_true(wf_dataset_fits(ds, 1, 4, &err));
    assert_false(wf_dataset_fits(ds, 3, 4, &err));
    assert_non_null(strstr(err.text, "'grey/images/a.npy' has 1 channel, but the network takes 3"));
    assert_non_null(strstr(err.text, "model.in=1"));
    err = (struct wf_err){ 0 };
    assert_false(wf_dataset_fits(ds, 1, 2, &err));
    assert_non_null(strstr(err.text, "model.classes=4"));
    wf_dataset_free(ds);
}

static void nan__is_refused_with_its_place(void **state)
{
    support_folder("nan/images");
    float pixels[6] = { 1, 2, 3, 4, NAN, 6 };
    struct support_picture p = {
        .depth = 1, .height = 2, .width = 3, .channels = 1, .sample = WF_SAMPLE_F32, .data = pixels
    };
    support_write("nan/images/a.npy", &p);
    struct wf_dataset *ds = support_open("nan");
    assert_int_equal(wf_dataset_info(ds)->labels, WF_LABELS_NONE);
    float image[6];
    struct wf_err err = { 0 };
    const struct wf_region all = wf_dataset_extent(ds, 0), first = support_box(0, 0, 0, 1, 1, 3);
    assert_false(wf_dataset_read(ds, 0, &all, image, NULL, &err));
    assert_non_null(strstr(err.text, "'nan/images/a.npy': NaN at plane 0, row 1, column 1"));
    err = (struct wf_err){ 0 };
    assert_true(wf_dataset_read(ds, 0, &first, image, NULL, &err));
    struct wf_inspection in;
    wf_inspect(ds, &in);
    assert_false(in.measured);
    assert_non_null(strstr(in.unreadable, "NaN"));
    wf_inspection_release(&in);
    wf_dataset_free(ds);
    pixels[4] = -INFINITY;
    support_write("nan/images/a.npy", &p);
    ds = support_open("nan");
    assert_false(wf_dataset_read(ds, 0, &all, image, NULL, &err));
    assert_non_null(strstr(err.text, "infinity"));
    wf_dataset_free(ds);
}

static void normal__is_mean_and_deviation_of_the_given_samples(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 20, 30, 0 };
    const char *const names[3] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++)
        support_pair("stat", names[i], extent, 2, 2);
    struct wf_dataset *ds = support_open("stat");
    struct wf_normal normal;
    struct wf_err err = { 0 };
    const int64_t some[2] = { 0, 2 };
    assert_true(wf_normal_measure(ds, some, 2, 1, &normal, &err));
    assert_int_equal(normal.channels, 2);
    for (int c = 0; c < 2; c++) {
        double sum = 0, squares = 0;
        for (int k = 0; k < 2; k++)
            for (int64_t h = 0; h < 20; h++)
                for (int64_t w = 0; w < 30; w++)
                    sum += (double)support_value(names[some[k]], 0, h, w, c);
        const double mean = sum / 1200;
        for (int k = 0; k < 2; k++)
            for (int64_t h = 0; h < 20; h++)
                for (int64_t w = 0; w < 30; w++)
                    squares += pow((double)support_value(names[some[k]], 0, h, w, c) - mean, 2);
        assert_true(fabs(normal.mean[c] - mean) < 1e-9 * mean);
        assert_true(fabs(normal.std[c] - sqrt(squares / 1200)) < 1e-9 * mean);
    }
    wf_dataset_free(ds);
}

/* A large image is not read whole, and its mean is still near. */
static void normal__of_a_large_image_comes_from_a_spread_of_windows(void **state)
{
    enum { SIDE = 4200 };
    support_folder("large/images");
    uint8_t *const pixels = malloc((size_t)SIDE * SIDE);
    assert_non_null(pixels);
    for (int64_t i = 0; i < (int64_t)SIDE * SIDE; i++)
        pixels[i] = (uint8_t)(i / SIDE * 200 / SIDE);
    support_bytes("large/images/a.npy", SIDE, SIDE, 1, pixels);
    free(pixels);
    struct wf_dataset *ds = support_open("large");
    struct wf_normal a, b;
    struct wf_err err = { 0 };
    const int64_t first = 0;
    assert_true(wf_normal_measure(ds, &first, 1, 1, &a, &err));
    assert_true(wf_normal_measure(ds, &first, 1, 1, &b, &err));
    assert_true(fabs(a.mean[0] - 99.5) < 2 && fabs(a.std[0] - 57.7) < 2);
    assert_true(a.mean[0] == b.mean[0] && a.std[0] == b.std[0]);
    wf_dataset_free(ds);
}

static void inspection__lists_sizes_and_what_is_rare(void **state)
{
    const int64_t small[WF_AXES] = { 1, 1, 8, 9, 0 }, large[WF_AXES] = { 1, 1, 12, 8, 0 };
    support_pair("look", "a", small, 1, 3);
    support_pair("look", "b", large, 1, 3);
    support_pair("look", "c", small, 1, 3);
    remove("look/masks/c.npy");
    struct wf_err err = { 0 };
    struct wf_dataset *ds =
        wf_dataset_open("look", &(struct wf_dataset_options){ .tolerate = true }, &err);
    assert_non_null(ds);
    assert_int_equal(wf_dataset_info(ds)->problems, 1);
    assert_non_null(strstr(wf_dataset_info(ds)->problem_texts[0], "has no mask"));
    struct wf_inspection in;
    wf_inspect(ds, &in);
    assert_int_equal(in.good, 2);
    assert_int_equal(in.sizes, 2);
    assert_int_equal(in.smallest[WF_H], 8);
    assert_int_equal(in.smallest[WF_W], 8);
    assert_int_equal(in.largest[WF_H], 12);
    assert_true(in.measured);
    assert_non_null(strstr(in.warnings[0], "2 different sizes"));
    assert_non_null(strstr(in.warnings[0], "8 x 8"));
    wf_inspection_release(&in);
    wf_dataset_free(ds);
}

static void alpha__is_dropped_kept_or_taken_by_a_network(void **state)
{
    static const struct {
        struct wf_dataset_options options;
        int channels;
    } cases[] = { { { 0 }, 3 },
                  { { .alpha = WF_ALPHA_KEEP }, 4 },
                  { { .channels = 4 }, 4 },
                  { { .channels = 3 }, 3 } };
    const uint8_t image[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
    support_folder("bands/images");
    support_bytes("bands/images/a.png", 2, 2, 4, image);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wf_err err = { 0 };
        float pixels[16] = { 0 };
        struct wf_dataset *const ds = wf_dataset_open("bands", &cases[i].options, &err);
        assert_non_null(ds);
        assert_int_equal(wf_dataset_info(ds)->channels, cases[i].channels);
        const struct wf_region all = wf_dataset_extent(ds, 0);
        assert_true(wf_dataset_read(ds, 0, &all, pixels, NULL, &err));
        assert_true(pixels[cases[i].channels] == 5); /* the second pixel's first */
        wf_dataset_free(ds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alpha__is_dropped_kept_or_taken_by_a_network),
#ifdef WF_HAVE_PNG
        cmocka_unit_test(masks__of_0_and_255_become_0_and_1),
        cmocka_unit_test(masks__in_colour_get_a_table_of_the_colours_found),
        cmocka_unit_test(masks__with_a_palette_are_indices_unless_palettes_differ),
        cmocka_unit_test(masks__say_the_same_in_any_order),
        cmocka_unit_test(classes_txt__makes_one_class_of_many_objects),
#endif
        cmocka_unit_test(fits__tells_what_to_set),
        cmocka_unit_test(nan__is_refused_with_its_place),
        cmocka_unit_test(normal__is_mean_and_deviation_of_the_given_samples),
        cmocka_unit_test(normal__of_a_large_image_comes_from_a_spread_of_windows),
        cmocka_unit_test(inspection__lists_sizes_and_what_is_rare),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
