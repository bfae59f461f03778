/* Layouts, what masks mean, windows, measures, and what is refused with which words. */
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
#include "data/inspect.h"
#include "data/sampler.h"
#include "support_data.h"

static struct wf_dataset *open_set(const char *path)
{
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open(path, &(struct wf_dataset_options){ 0 }, &err);
    if (!ds)
        print_error("%s\n", err.text);
    assert_non_null(ds);
    return ds;
}

/* Fails with a message that holds each of the texts. */
static void refused(const char *path, const char *const texts[])
{
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open(path, &(struct wf_dataset_options){ 0 }, &err);
    assert_null(ds);
    for (; *texts; texts++)
        if (!strstr(err.text, *texts)) {
            print_error("'%s' does not say '%s'\n", err.text, *texts);
            fail();
        }
}
#define REFUSED(path, ...) refused(path, (const char *const[]){ __VA_ARGS__, NULL })

static struct wf_region box(int64_t d0, int64_t h0, int64_t w0, int64_t d1, int64_t h1, int64_t w1)
{
    return (struct wf_region){ .lo = { 0, d0, h0, w0, 0 }, .hi = { 1, d1, h1, w1, 1 } };
}

static void gray(const char *path, int64_t h, int64_t w, const uint8_t *data)
{
    support_write(path, &(struct support_picture){
                            .depth = 1, .height = h, .width = w, .channels = 1, .data = data });
}

/* The labels of a whole small mask. */
static void labels_are(const struct wf_dataset *ds, int64_t sample, const int32_t *want,
                       int64_t count)
{
    int32_t got[64];
    struct wf_err err = { 0 };
    const struct wf_region all = wf_dataset_extent(ds, sample);
    assert_true(wf_dataset_read(ds, sample, &all, NULL, got, &err));
    assert_memory_equal(got, want, (size_t)count * sizeof *want);
}

static void folder__reads_windows_of_image_and_mask(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 3, 9, 11, 0 };
    support_pair("vol", "a", extent, 2, 5);
    support_pair("vol", "b", extent, 2, 5);
    struct wf_dataset *ds = open_set("vol");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_FOLDER);
    assert_int_equal(info->samples, 2);
    assert_int_equal(info->dims, 3);
    assert_int_equal(info->channels, 2);
    assert_int_equal(info->n_classes, 5);
    assert_int_equal(info->labels, WF_LABELS_PIXEL);
    assert_true(info->scanned_all);
    assert_int_equal(info->scanned, 2 * 3 * 9 * 11);
    assert_string_equal(wf_dataset_sample(ds, 1)->name, "b");

    float image[2 * 2 * 3 * 4];
    int32_t labels[2 * 3 * 4];
    struct wf_err err = { 0 };
    const struct wf_region window = box(1, 5, 6, 3, 8, 10);
    assert_true(wf_dataset_read(ds, 1, &window, image, labels, &err));
    int i = 0;
    for (int64_t d = 1; d < 3; d++)
        for (int64_t h = 5; h < 8; h++)
            for (int64_t w = 6; w < 10; w++, i++) {
                assert_int_equal(labels[i], support_label("b", d, h, w, 5));
                for (int c = 0; c < 2; c++)
                    assert_true(image[i * 2 + c] == support_value("b", d, h, w, c));
            }
    wf_dataset_free(ds);
}

/* What was read once comes from memory, in any window; numbers that are no bytes are read anew. */
static void small_images__stay_in_memory_where_they_are_bytes(void **state)
{
    const float bytes[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 254, 255 };
    const float reals[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9.5f, 10, 11 };
    support_folder("small/a");
    support_folder("small/b");
    support_write("small/a/1.npy", &(struct support_picture){ .depth = 1,
                                                              .height = 3,
                                                              .width = 4,
                                                              .channels = 1,
                                                              .sample = WF_SAMPLE_F32,
                                                              .data = bytes });
    support_write("small/b/1.npy", &(struct support_picture){ .depth = 1,
                                                              .height = 3,
                                                              .width = 4,
                                                              .channels = 1,
                                                              .sample = WF_SAMPLE_F32,
                                                              .data = reals });
    struct wf_dataset *ds = open_set("small");
    struct wf_err err = { 0 };
    float got[12];
    const struct wf_region corner = box(0, 0, 0, 1, 1, 1), part = box(0, 1, 1, 1, 3, 4);
    for (int64_t s = 0; s < 2; s++)
        assert_true(wf_dataset_read(ds, s, &corner, got, NULL, &err));
    assert_true(wf_dataset_read(ds, 1, &part, got, NULL, &err));
    assert_true(got[3] == 9.5f);
    assert_int_equal(remove("small/a/1.npy"), 0);
    assert_int_equal(remove("small/b/1.npy"), 0);
    assert_true(wf_dataset_read(ds, 0, &part, got, NULL, &err));
    const float want[] = { 5, 6, 7, 9, 254, 255 };
    assert_memory_equal(got, want, sizeof want);
    assert_false(wf_dataset_read(ds, 1, &part, got, NULL, &err));
    wf_dataset_free(ds);
}

static void pairs__are_found_by_the_ending_of_the_name(void **state)
{
    support_folder("pairs");
    const uint8_t image[4] = { 10, 20, 30, 40 }, mask[4] = { 0, 1, 2, 1 };
    gray("pairs/x.png", 2, 2, image);
    gray("pairs/x_masks.png", 2, 2, mask);
    gray("pairs/y.png", 2, 2, image);
    gray("pairs/y_masks.npy", 2, 2, mask);
    struct wf_dataset *ds = open_set("pairs");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_PAIRS);
    assert_int_equal(wf_dataset_info(ds)->samples, 2);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 3);
    labels_are(ds, 1, (const int32_t[]){ 0, 1, 2, 1 }, 4);
    wf_dataset_free(ds);
    gray("pairs/z.png", 2, 2, image);
    REFUSED("pairs", "'pairs/z.png' has no mask", "z_masks");
}

static void rgb(const char *path, int64_t h, int64_t w, const uint8_t *data)
{
    support_write(path, &(struct support_picture){
                            .depth = 1, .height = h, .width = w, .channels = 3, .data = data });
}

static void deepglobe__has_seven_colours_and_rounds_them(void **state)
{
    support_folder("deepglobe");
    const uint8_t image[8 * 3] = { 1, 2, 3 };
    const uint8_t mask[8 * 3] = { 0, 255, 255, 255, 255, 0,   255, 0, 255, 0,   255, 0,
                                  0, 0,   255, 255, 255, 255, 0,   0, 0,   127, 128, 200 };
    rgb("deepglobe/119_sat.png", 2, 4, image);
    rgb("deepglobe/119_mask.png", 2, 4, mask);
    struct wf_dataset *ds = open_set("deepglobe");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_DEEPGLOBE);
    assert_int_equal(info->n_classes, 7);
    assert_string_equal(info->classes[3].name, "forest");
    assert_int_equal(info->classes[0].found, 2);
    assert_true(info->has_ignore);
    assert_int_equal(info->ignore, 6);
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 3, 4, 5, 6, 0 }, 8);
    wf_dataset_free(ds);
    rgb("deepglobe/120_sat.png", 2, 4, image);
    REFUSED("deepglobe", "120_sat.png' has no mask", "120_mask.png");
}

static void inria__keeps_the_first_five_of_each_city(void **state)
{
    support_folder("inria/images");
    support_folder("inria/gt");
    const uint8_t image[4 * 3] = { 9 }, mask[4] = { 0, 255, 255, 0 };
    static const char *const names[] = { "austin1", "austin5", "austin6", "austin36", "tyrol-w5" };
    char path[64];
    for (int i = 0; i < 5; i++) {
        (void)snprintf(path, sizeof path, "inria/images/%s.tif", names[i]);
        rgb(path, 2, 2, image);
        (void)snprintf(path, sizeof path, "inria/gt/%s.tif", names[i]);
        gray(path, 2, 2, mask);
    }
    struct wf_dataset *ds = open_set("inria");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_INRIA);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    for (int64_t i = 0; i < 5; i++) {
        const struct wf_data_sample *sample = wf_dataset_sample(ds, i);
        const bool late = !strcmp(sample->name, "austin6") || !strcmp(sample->name, "austin36");
        assert_int_equal(sample->held_out, !late);
    }
    wf_dataset_free(ds);
}

static void nnunet__has_a_file_for_each_channel_and_names_in_json(void **state)
{
    support_folder("nn/imagesTr");
    support_folder("nn/labelsTr");
    const uint8_t t1[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, t2[8] = { 11, 12, 13, 14, 15, 16, 17, 18 };
    const uint8_t mask[8] = { 0, 1, 2, 0, 0, 2, 1, 0 };
    struct support_picture p = { .depth = 2, .height = 2, .width = 2, .channels = 1, .data = t1 };
    support_write("nn/imagesTr/case_7_0000.npy", &p);
    p.data = t2;
    support_write("nn/imagesTr/case_7_0001.npy", &p);
    p.data = mask;
    support_write("nn/labelsTr/case_7.npy", &p);
    support_text("nn/dataset.json",
                 "{\"channel_names\": {\"0\": \"T1\", \"1\": \"T2\"}, \"file_ending\": \".npy\","
                 " \"labels\": {\"background\": 0, \"liver\": 1, \"tumour\": 2}}");
    struct wf_dataset *ds = open_set("nn");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_NNUNET);
    assert_int_equal(info->channels, 2);
    assert_int_equal(info->n_classes, 3);
    assert_string_equal(info->classes[2].name, "tumour");
    assert_string_equal(wf_dataset_sample(ds, 0)->name, "case_7");
    float image[2];
    int32_t label;
    struct wf_err err = { 0 };
    const struct wf_region one = box(1, 0, 1, 2, 1, 2);
    assert_true(wf_dataset_read(ds, 0, &one, image, &label, &err));
    assert_true(image[0] == 6 && image[1] == 16);
    assert_int_equal(label, 2);
    wf_dataset_free(ds);
    /* the first version of the file */
    support_text("nn/dataset.json",
                 "{\"modality\": {\"0\": \"T1\", \"1\": \"T2\"}, \"file_ending\": "
                 "\".npy\", \"labels\": {\"0\": \"none\", \"1\": \"liver\"}}");
    ds = open_set("nn");
    assert_string_equal(wf_dataset_info(ds)->classes[1].name, "liver");
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    assert_int_equal(wf_dataset_info(ds)->other, 2);
    wf_dataset_free(ds);
    support_text("nn/dataset.json",
                 "{\"channel_names\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"},"
                 " \"file_ending\": \".npy\", \"labels\": {\"bg\": 0}}");
    REFUSED("nn", "case_7_0002.npy' is missing", "3 channels");
    support_text("nn/dataset.json", "{");
    REFUSED("nn", "dataset.json' is not valid JSON");
    support_text("nn/dataset.json",
                 "{\"channel_names\": {\"0\": \"a\"}, \"labels\": {\"x\": [1, 2]}}");
    REFUSED("nn", "'x' is a region");
}

static void write_records(const char *path, int count, uint8_t first_label)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        uint8_t record[3073];
        record[0] = (uint8_t)(first_label + i);
        for (int k = 0; k < 3072; k++)
            record[1 + k] = (uint8_t)(k / 1024 * 50 + k % 32 + i);
        assert_int_equal(fwrite(record, 1, sizeof record, f), sizeof record);
    }
    assert_int_equal(fclose(f), 0);
}

static void cifar10__labels_images_and_holds_out_the_test_batch(void **state)
{
    support_folder("cifar/cifar-10-batches-bin");
    write_records("cifar/cifar-10-batches-bin/data_batch_1.bin", 3, 4);
    write_records("cifar/cifar-10-batches-bin/test_batch.bin", 2, 8);
    struct wf_dataset *ds = open_set("cifar");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_CIFAR10);
    assert_int_equal(info->samples, 5);
    assert_int_equal(info->labels, WF_LABELS_IMAGE);
    assert_int_equal(info->n_classes, 10);
    assert_string_equal(info->classes[3].name, "cat");
    float image[2 * 3];
    int32_t label;
    struct wf_err err = { 0 };
    const struct wf_region part = box(0, 7, 30, 1, 8, 32);
    assert_true(wf_dataset_read(ds, 1, &part, image, &label, &err));
    const float want[6] = { 31, 81, 131, 32, 82, 132 };
    assert_memory_equal(image, want, sizeof want);
    assert_int_equal(label, 5);
    struct wf_split split;
    wf_split_init(&split, ds, 0.5, 1);
    assert_int_equal(split.n_train, 3);
    assert_int_equal(split.n_valid, 2);
    assert_int_equal(split.valid[0], 3);
    wf_split_release(&split);
    wf_dataset_free(ds);
    write_records("cifar/cifar-10-batches-bin/data_batch_2.bin", 2, 9);
    REFUSED("cifar", "data_batch_2.bin", "record 1 has label 10");
    support_text("cifar/cifar-10-batches-bin/data_batch_2.bin", "short");
    REFUSED("cifar", "data_batch_2.bin' has 5 bytes", "cut off");
}

static void classes__are_folders_in_order_of_their_names(void **state)
{
    const uint8_t image[4] = { 1, 2, 3, 4 };
    support_folder("kinds/train/cat");
    support_folder("kinds/train/ape");
    support_folder("kinds/test/cat");
    gray("kinds/train/cat/1.png", 2, 2, image);
    gray("kinds/train/ape/1.png", 2, 2, image);
    gray("kinds/test/cat/1.png", 2, 2, image);
    struct wf_dataset *ds = open_set("kinds");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_CLASSES);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    assert_string_equal(wf_dataset_info(ds)->classes[0].name, "ape");
    assert_int_equal(wf_dataset_info(ds)->classes[1].found, 2);
    assert_int_equal(wf_dataset_sample(ds, 1)->label, 1);
    assert_true(wf_dataset_sample(ds, 2)->held_out);
    wf_dataset_free(ds);
}

static void masks__of_0_and_255_become_0_and_1(void **state)
{
    support_folder("two/images");
    support_folder("two/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 }, mask[4] = { 0, 255, 255, 0 };
    gray("two/images/a.png", 2, 2, image);
    gray("two/masks/a.png", 2, 2, mask);
    struct wf_dataset *ds = open_set("two");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_BINARY);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    wf_dataset_free(ds);
    /* 255 above other labels is left as it is, and said */
    const uint8_t more[4] = { 0, 1, 2, 255 };
    gray("two/masks/a.png", 2, 2, more);
    ds = open_set("two");
    assert_int_equal(wf_dataset_info(ds)->n_classes, 3);
    assert_int_equal(wf_dataset_info(ds)->other, 1);
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "train.ignore=255"));
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 255 }, 4);
    wf_dataset_free(ds);
}

static void colors(const char *path, const uint8_t *rgb)
{
    support_write(path, &(struct support_picture){
                            .depth = 1, .height = 2, .width = 2, .channels = 3, .data = rgb });
}

static void masks__in_colour_get_a_table_of_the_colours_found(void **state)
{
    support_folder("tint/images");
    support_folder("tint/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 };
    gray("tint/images/a.png", 2, 2, image);
    gray("tint/images/b.png", 2, 2, image);
    colors("tint/masks/a.png", (const uint8_t[]){ 255, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0 });
    colors("tint/masks/b.png", (const uint8_t[]){ 0, 255, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0 });
    struct wf_dataset *ds = open_set("tint");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->codes, WF_CODES_COLORS);
    assert_int_equal(info->n_classes, 4); /* black, blue, green, red: by number */
    assert_int_equal(info->classes[1].color, 0x0000ff);
    assert_string_equal(info->classes[3].name, "#ff0000");
    assert_int_equal(info->classes[3].found, 2);
    labels_are(ds, 0, (const int32_t[]){ 3, 0, 1, 0 }, 4);
    labels_are(ds, 1, (const int32_t[]){ 2, 0, 0, 3 }, 4);
    wf_dataset_free(ds);
    /* the table by hand, in its own order */
    support_text("tint/classes.txt", "# mine\nfield #00ff00\nhouse roof #ff0000\nsea #0000ff\nrest "
                                     "#000000\n");
    ds = open_set("tint");
    assert_string_equal(wf_dataset_info(ds)->classes[1].name, "house roof");
    labels_are(ds, 0, (const int32_t[]){ 1, 3, 2, 3 }, 4);
    wf_dataset_free(ds);
    /* a colour that the table lacks is refused before anything is trained, and when it is read */
    support_text("tint/classes.txt", "field #00ff00\nrest #000000\n");
    REFUSED("tint", "mask 'tint/masks/a.png': value #ff0000", "row 0, column 0");
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
    REFUSED("tint", "classes.txt' line 1", "'green'");
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
    gray("pal/images/a.png", 2, 2, image);
    gray("pal/images/b.png", 2, 2, image);
    support_write("pal/masks/a.png", &p);
    support_write("pal/masks/b.png", &p);
    struct wf_dataset *ds = open_set("pal");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_DIRECT);
    assert_int_equal(wf_dataset_info(ds)->classes[1].color, 0xc80000);
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 0 }, 4);
    wf_dataset_free(ds);
    p.palette = other;
    p.data = (const uint8_t[]){ 1, 2, 0, 1 }; /* the same picture */
    support_write("pal/masks/b.png", &p);
    ds = open_set("pal");
    assert_int_equal(wf_dataset_info(ds)->codes, WF_CODES_COLORS);
    labels_are(ds, 0, (const int32_t[]){ 0, 2, 1, 0 }, 4);
    labels_are(ds, 1, (const int32_t[]){ 0, 2, 1, 0 }, 4);
    wf_dataset_free(ds);
}

static void classes_txt__makes_one_class_of_many_objects(void **state)
{
    support_folder("cells/images");
    support_folder("cells/masks");
    const uint8_t image[4] = { 1, 2, 3, 4 };
    const uint16_t mask[4] = { 0, 900, 17, 0 };
    gray("cells/images/a.png", 2, 2, image);
    support_write("cells/masks/a.png", &(struct support_picture){ .depth = 1,
                                                                  .height = 2,
                                                                  .width = 2,
                                                                  .channels = 1,
                                                                  .sample = WF_SAMPLE_U16,
                                                                  .data = mask });
    struct wf_dataset *ds = open_set("cells");
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "object 1-65535"));
    wf_dataset_free(ds);
    support_text("cells/classes.txt", "background 0\ncell 1-65535\n");
    ds = open_set("cells");
    labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    wf_dataset_free(ds);
}

static void refusals__name_the_file_and_the_fix(void **state)
{
    const uint8_t image[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    REFUSED("nowhere", "cannot read folder 'nowhere'", "No such file");
    support_folder("empty");
    REFUSED("empty", "folder 'empty' is empty", "images");
    support_text("file.txt", "x");
    REFUSED("file.txt", "'file.txt' is a file");
    support_folder("none/images");
    support_text("none/images/notes.txt", "x");
    REFUSED("none", "no images");
    support_folder("odd/other");
    REFUSED("odd", "no layout that is known", "images/ and masks/");

    support_folder("bad/images");
    support_folder("bad/masks");
    gray("bad/images/a.png", 2, 2, image);
    REFUSED("bad", "image 'bad/images/a.png' has no mask", "bad/masks/a.*");
    gray("bad/masks/a.png", 3, 2, image);
    REFUSED("bad", "mask 'bad/masks/a.png' is 3 x 2", "'bad/images/a.png' is 2 x 2",
            "scale the mask");
    gray("bad/masks/a.png", 2, 2, image);
    colors("bad/images/b.png", image);
    gray("bad/masks/b.png", 2, 2, image);
    REFUSED("bad", "'bad/images/b.png' has 3 channels", "'bad/images/a.png' has 1");
    support_text("bad/images/c.png", "no png");
    gray("bad/masks/c.png", 2, 2, image);
    REFUSED("bad", "(and 1 more: 'widefield data inspect bad' lists them)");
}

static void fits__tells_what_to_set(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 4, 4, 0 };
    support_pair("grey", "a", extent, 1, 4);
    struct wf_dataset *ds = open_set("grey");
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
    struct wf_dataset *ds = open_set("nan");
    assert_int_equal(wf_dataset_info(ds)->labels, WF_LABELS_NONE);
    float image[6];
    struct wf_err err = { 0 };
    const struct wf_region all = wf_dataset_extent(ds, 0), first = box(0, 0, 0, 1, 1, 3);
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
    ds = open_set("nan");
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
    struct wf_dataset *ds = open_set("stat");
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
    gray("large/images/a.npy", SIDE, SIDE, pixels);
    free(pixels);
    struct wf_dataset *ds = open_set("large");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder__reads_windows_of_image_and_mask),
        cmocka_unit_test(small_images__stay_in_memory_where_they_are_bytes),
#ifdef WF_HAVE_PNG
        cmocka_unit_test(pairs__are_found_by_the_ending_of_the_name),
        cmocka_unit_test(classes__are_folders_in_order_of_their_names),
        cmocka_unit_test(masks__of_0_and_255_become_0_and_1),
        cmocka_unit_test(masks__in_colour_get_a_table_of_the_colours_found),
        cmocka_unit_test(masks__with_a_palette_are_indices_unless_palettes_differ),
        cmocka_unit_test(classes_txt__makes_one_class_of_many_objects),
        cmocka_unit_test(refusals__name_the_file_and_the_fix),
#endif
        cmocka_unit_test(deepglobe__has_seven_colours_and_rounds_them),
        cmocka_unit_test(inria__keeps_the_first_five_of_each_city),
        cmocka_unit_test(nnunet__has_a_file_for_each_channel_and_names_in_json),
        cmocka_unit_test(cifar10__labels_images_and_holds_out_the_test_batch),
        cmocka_unit_test(fits__tells_what_to_set),
        cmocka_unit_test(nan__is_refused_with_its_place),
        cmocka_unit_test(normal__is_mean_and_deviation_of_the_given_samples),
        cmocka_unit_test(normal__of_a_large_image_comes_from_a_spread_of_windows),
        cmocka_unit_test(inspection__lists_sizes_and_what_is_rare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
