/* Layouts of folders: what is found in them, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/sampler.h"
#include "support_data.h"
#include "support_scratch.h"

static void folder__reads_windows_of_image_and_mask(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 3, 9, 11, 0 };
    support_pair("vol", "a", extent, 2, 5);
    support_pair("vol", "b", extent, 2, 5);
    struct wf_dataset *ds = support_open("vol");
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
    const struct wf_region window = support_box(1, 5, 6, 3, 8, 10);
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

static void pairs__are_found_by_the_ending_of_the_name(void **state)
{
    support_folder("pairs");
    const uint8_t image[4] = { 10, 20, 30, 40 }, mask[4] = { 0, 1, 2, 1 };
    support_bytes("pairs/x.png", 2, 2, 1, image);
    support_bytes("pairs/x_masks.png", 2, 2, 1, mask);
    support_bytes("pairs/y.png", 2, 2, 1, image);
    support_bytes("pairs/y_masks.npy", 2, 2, 1, mask);
    struct wf_dataset *ds = support_open("pairs");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_PAIRS);
    assert_int_equal(wf_dataset_info(ds)->samples, 2);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 3);
    support_labels_are(ds, 1, (const int32_t[]){ 0, 1, 2, 1 }, 4);
    wf_dataset_free(ds);
    support_bytes("pairs/z.png", 2, 2, 1, image);
    SUPPORT_REFUSED("pairs", "'pairs/z.png' has no mask", "z_masks");
}

static void deepglobe__has_seven_colours_and_rounds_them(void **state)
{
    support_folder("deepglobe");
    const uint8_t image[8 * 3] = { 1, 2, 3 };
    const uint8_t mask[8 * 3] = { 0, 255, 255, 255, 255, 0,   255, 0, 255, 0,   255, 0,
                                  0, 0,   255, 255, 255, 255, 0,   0, 0,   127, 128, 200 };
    support_bytes("deepglobe/119_sat.png", 2, 4, 3, image);
    support_bytes("deepglobe/119_mask.png", 2, 4, 3, mask);
    struct wf_dataset *ds = support_open("deepglobe");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_DEEPGLOBE);
    assert_int_equal(info->n_classes, 7);
    assert_string_equal(info->classes[3].name, "forest");
    assert_int_equal(info->classes[0].found, 2);
    assert_true(info->has_ignore);
    assert_int_equal(info->ignore, 6);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 2, 3, 4, 5, 6, 0 }, 8);
    wf_dataset_free(ds);
    support_bytes("deepglobe/120_sat.png", 2, 4, 3, image);
    SUPPORT_REFUSED("deepglobe", "120_sat.png' has no mask", "120_mask.png");
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
        support_bytes(path, 2, 2, 3, image);
        (void)snprintf(path, sizeof path, "inria/gt/%s.tif", names[i]);
        support_bytes(path, 2, 2, 1, mask);
    }
    struct wf_dataset *ds = support_open("inria");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_INRIA);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
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
    struct wf_dataset *ds = support_open("nn");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_NNUNET);
    assert_int_equal(info->channels, 2);
    assert_int_equal(info->n_classes, 3);
    assert_string_equal(info->classes[2].name, "tumour");
    assert_string_equal(wf_dataset_sample(ds, 0)->name, "case_7");
    float image[2];
    int32_t label;
    struct wf_err err = { 0 };
    const struct wf_region one = support_box(1, 0, 1, 2, 1, 2);
    assert_true(wf_dataset_read(ds, 0, &one, image, &label, &err));
    assert_true(image[0] == 6 && image[1] == 16);
    assert_int_equal(label, 2);
    wf_dataset_free(ds);
    /* the first version of the file */
    support_text("nn/dataset.json",
                 "{\"modality\": {\"0\": \"T1\", \"1\": \"T2\"}, \"file_ending\": "
                 "\".npy\", \"labels\": {\"0\": \"none\", \"1\": \"liver\"}}");
    ds = support_open("nn");
    assert_string_equal(wf_dataset_info(ds)->classes[1].name, "liver");
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    assert_int_equal(wf_dataset_info(ds)->other, 2);
    wf_dataset_free(ds);
    support_text("nn/dataset.json",
                 "{\"channel_names\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"},"
                 " \"file_ending\": \".npy\", \"labels\": {\"bg\": 0}}");
    SUPPORT_REFUSED("nn", "case_7_0002.npy' is missing", "3 channels");
    support_text("nn/dataset.json", "{");
    SUPPORT_REFUSED("nn", "dataset.json' is not valid JSON");
    support_text("nn/dataset.json",
                 "{\"channel_names\": {\"0\": \"a\"}, \"labels\": {\"x\": [1, 2]}}");
    SUPPORT_REFUSED("nn", "'x' is a region");
}

static void nnunet__takes_one_file_with_all_channels(void **state)
{
    support_folder("rgb/imagesTr");
    support_folder("rgb/labelsTr");
    const uint8_t image[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, mask[4] = { 0, 1, 1, 0 };
    support_bytes("rgb/imagesTr/a_0000.png", 2, 2, 3, image);
    support_bytes("rgb/labelsTr/a.png", 2, 2, 1, mask);
    support_text("rgb/dataset.json",
                 "{\"channel_names\": {\"0\": \"R\", \"1\": \"G\", \"2\": \"B\"},"
                 " \"file_ending\": \".png\", \"labels\": {\"background\": 0, \"x\": 1}}");
    struct wf_dataset *const ds = support_open("rgb");
    assert_int_equal(wf_dataset_info(ds)->channels, 3);
    assert_int_equal(wf_dataset_info(ds)->samples, 1);
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0 }, 4);
    wf_dataset_free(ds);
}

static void nnunet__reads_the_decathlon_without_numbers(void **state)
{
    support_folder("msd/imagesTr");
    support_folder("msd/labelsTr");
    const uint8_t volume[8 * 2] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
    const uint8_t mask[8] = { 0, 1, 1, 0, 0, 1, 0, 1 };
    struct support_picture p = {
        .depth = 2, .height = 2, .width = 2, .channels = 2, .data = volume
    };
    support_write("msd/imagesTr/BRATS_001.nii", &p);
    p.channels = 1;
    p.data = mask;
    support_write("msd/labelsTr/BRATS_001.nii", &p);
    support_text("msd/dataset.json",
                 "{\"modality\": {\"0\": \"FLAIR\", \"1\": \"T1w\"}, \"file_ending\": \".nii\","
                 " \"labels\": {\"0\": \"background\", \"1\": \"edema\"}}");
    struct wf_dataset *const ds = support_open("msd");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_NNUNET);
    assert_int_equal(wf_dataset_info(ds)->channels, 2);
    assert_string_equal(wf_dataset_sample(ds, 0)->name, "BRATS_001");
    assert_non_null(strstr(wf_dataset_info(ds)->why, "Decathlon"));
    support_labels_are(ds, 0, (const int32_t[]){ 0, 1, 1, 0, 0, 1, 0, 1 }, 8);
    wf_dataset_free(ds);
    support_text("msd/dataset.json", "{\"modality\": {\"0\": \"CT\"}, \"file_ending\": \".nii\","
                                     " \"labels\": {\"0\": \"background\"}}");
    SUPPORT_REFUSED("msd", "BRATS_001.nii' has 2 channels", "names 1");
    assert_int_equal(remove("msd/dataset.json"), 0);
    SUPPORT_REFUSED("msd", "imagesTr/ but no dataset.json");
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
    struct wf_dataset *ds = support_open("cifar");
    const struct wf_dataset_info *info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_CIFAR10);
    assert_int_equal(info->samples, 5);
    assert_int_equal(info->labels, WF_LABELS_IMAGE);
    assert_int_equal(info->n_classes, 10);
    assert_string_equal(info->classes[3].name, "cat");
    float image[2 * 3];
    int32_t label;
    struct wf_err err = { 0 };
    const struct wf_region part = support_box(0, 7, 30, 1, 8, 32);
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
    SUPPORT_REFUSED("cifar", "data_batch_2.bin", "record 1 has label 10");
    support_text("cifar/cifar-10-batches-bin/data_batch_2.bin", "short");
    SUPPORT_REFUSED("cifar", "data_batch_2.bin' has 5 bytes", "cut off");
}

static void classes__are_folders_in_order_of_their_names(void **state)
{
    const uint8_t image[4] = { 1, 2, 3, 4 };
    support_folder("kinds/train/cat");
    support_folder("kinds/train/ape");
    support_folder("kinds/test/cat");
    support_bytes("kinds/train/cat/1.png", 2, 2, 1, image);
    support_bytes("kinds/train/ape/1.png", 2, 2, 1, image);
    support_bytes("kinds/test/cat/1.png", 2, 2, 1, image);
    struct wf_dataset *ds = support_open("kinds");
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_CLASSES);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    assert_string_equal(wf_dataset_info(ds)->classes[0].name, "ape");
    assert_int_equal(wf_dataset_info(ds)->classes[1].found, 2);
    assert_int_equal(wf_dataset_sample(ds, 1)->label, 1);
    assert_true(wf_dataset_sample(ds, 2)->held_out);
    wf_dataset_free(ds);
}

/* A pair of folders, an image and a mask in each: it is segmentation, whatever they are called. */
static void pair_of_folders(const char *images, const char *masks, const char *name)
{
    const uint8_t image[4] = { 10, 20, 30, 40 }, mask[4] = { 0, 1, 2, 1 };
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", images, name);
    *strrchr(path, '/') = '\0';
    support_folder(path);
    (void)snprintf(path, sizeof path, "%s/%s", masks, name);
    *strrchr(path, '/') = '\0';
    support_folder(path);
    (void)snprintf(path, sizeof path, "%s/%s.png", images, name);
    support_bytes(path, 2, 2, 1, image);
    (void)snprintf(path, sizeof path, "%s/%s.png", masks, name);
    support_bytes(path, 2, 2, 1, mask);
}

static struct wf_dataset *open_folder(const char *path, int64_t samples)
{
    struct wf_dataset *const ds = support_open(path);
    assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_FOLDER);
    assert_int_equal(wf_dataset_info(ds)->labels, WF_LABELS_PIXEL);
    assert_int_equal(wf_dataset_info(ds)->samples, samples);
    for (int64_t i = 0; i < samples; i++)
        support_labels_are(ds, i, (const int32_t[]){ 0, 1, 2, 1 }, 4);
    return ds;
}

static void folder__goes_by_many_names(void **state)
{
    static const char *const names[][2] = { { "img", "mask" },     { "Images", "Masks" },
                                            { "image", "labels" }, { "IMGS", "Ground_Truth" },
                                            { "images", "gt" },    { "images", "annotations" },
                                            { "Input", "Target" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char set[32], images[64], masks[64];
        (void)snprintf(set, sizeof set, "names%zu", i);
        (void)snprintf(images, sizeof images, "%s/%s", set, names[i][0]);
        (void)snprintf(masks, sizeof masks, "%s/%s", set, names[i][1]);
        pair_of_folders(images, masks, "a");
        struct wf_dataset *const ds = open_folder(set, 1);
        assert_non_null(strstr(wf_dataset_info(ds)->why, names[i][0]));
        assert_non_null(strstr(wf_dataset_info(ds)->why, names[i][1]));
        wf_dataset_free(ds);
    }
}

static void folder__follows_folders_below(void **state)
{
    pair_of_folders("below/images", "below/masks", "b");
    pair_of_folders("below/images", "below/masks", "site/scan/a");
    struct wf_dataset *ds = open_folder("below", 2);
    assert_string_equal(wf_dataset_sample(ds, 1)->name, "site/scan/a");
    wf_dataset_free(ds);
    assert_int_equal(remove("below/masks/site/scan/a.png"), 0);
    SUPPORT_REFUSED("below", "site/scan/a.png' has no mask", "below/masks/site/scan/a.*");
}

static void folder__knows_its_parts(void **state)
{
    pair_of_folders("parts/train/images", "parts/train/masks", "a");
    pair_of_folders("parts/train/images", "parts/train/masks", "b");
    pair_of_folders("parts/Val/images", "parts/Val/masks", "a");
    pair_of_folders("parts/test/images", "parts/test/masks", "c");
    struct wf_dataset *ds = open_folder("parts", 3);
    assert_false(wf_dataset_sample(ds, 0)->held_out);
    assert_true(wf_dataset_sample(ds, 2)->held_out);
    assert_string_equal(wf_dataset_sample(ds, 2)->name, "Val/a");
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "'test/' is for tests"));
    wf_dataset_free(ds);
    pair_of_folders("inner/images", "inner/labels", "train/a");
    pair_of_folders("inner/images", "inner/labels", "val/a");
    ds = open_folder("inner", 2);
    assert_false(wf_dataset_sample(ds, 0)->held_out);
    assert_true(wf_dataset_sample(ds, 1)->held_out);
    wf_dataset_free(ds);
}

static void classes__are_not_what_looks_like_masks_or_parts(void **state)
{
    const uint8_t image[4] = { 1, 2, 3, 4 };
    support_folder("carvana/train");
    support_folder("carvana/train_masks");
    support_bytes("carvana/train/a.png", 2, 2, 1, image);
    support_bytes("carvana/train_masks/a_mask.png", 2, 2, 1, image);
    SUPPORT_REFUSED("carvana", "carvana/train' is a part of a dataset");
    support_folder("photos/shots");
    support_folder("photos/shots_masks");
    support_bytes("photos/shots/a.png", 2, 2, 1, image);
    support_bytes("photos/shots_masks/a.png", 2, 2, 1, image);
    SUPPORT_REFUSED("photos", "shots_masks' looks like the masks of 'shots'",
                    "data.format=classes");
    struct wf_err err = { 0 };
    struct wf_dataset *const ds = wf_dataset_open(
        "photos", &(struct wf_dataset_options){ .layout = WF_LAYOUT_CLASSES }, &err);
    assert_non_null(ds);
    assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
    wf_dataset_free(ds);
}

static void classes__may_be_called_like_masks(void **state)
{
    static const char *const names[][2] = { { "with_mask", "without_mask" },
                                            { "mask", "no_mask" },
                                            { "target", "clutter" } };
    const uint8_t image[4] = { 1, 2, 3, 4 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char set[32], path[64];
        (void)snprintf(set, sizeof set, "faces%zu", i);
        for (int k = 0; k < 2; k++) {
            (void)snprintf(path, sizeof path, "%s/%s", set, names[i][k]);
            support_folder(path);
            (void)snprintf(path, sizeof path, "%s/%s/%d.png", set, names[i][k], i == 2 ? k : 1);
            support_bytes(path, 2, 2, 1, image);
        }
        struct wf_dataset *const ds = support_open(set);
        assert_int_equal(wf_dataset_info(ds)->layout, WF_LAYOUT_CLASSES);
        assert_int_equal(wf_dataset_info(ds)->n_classes, 2);
        wf_dataset_free(ds);
    }
}

#ifdef WF_HAVE_TIFF
static void slides__are_tiffs_under_other_names(void **state)
{
    const uint8_t image[4] = { 1, 2, 3, 4 };
    support_folder("slides/images");
    support_bytes("slides/images/a.tif", 2, 2, 1, image);
    support_bytes("slides/images/b.tif", 2, 2, 1, image);
    assert_int_equal(rename("slides/images/a.tif", "slides/images/a.svs"), 0);
    assert_int_equal(rename("slides/images/b.tif", "slides/images/b.ome.tif"), 0);
    struct wf_dataset *const ds = support_open("slides");
    assert_int_equal(wf_dataset_info(ds)->samples, 2);
    assert_string_equal(wf_dataset_sample(ds, 1)->name, "b");
    wf_dataset_free(ds);
}
#endif

/* Also of an image that only validation would have read, much later. */
static void files__that_are_cut_short_are_found_at_once(void **state)
{
    uint8_t image[64 * 64];
    for (int i = 0; i < 64 * 64; i++)
        image[i] = (uint8_t)(i * i >> 3);
    support_folder("short/train/images");
    support_folder("short/train/masks");
    support_folder("short/val/images");
    support_folder("short/val/masks");
    support_bytes("short/train/images/a.png", 64, 64, 1, image);
    support_bytes("short/train/masks/a.png", 64, 64, 1, image);
    support_bytes("short/val/images/b.png", 64, 64, 1, image);
    support_bytes("short/val/masks/b.png", 64, 64, 1, image);
    assert_int_equal(truncate("short/val/images/b.png", 300), 0);
    SUPPORT_REFUSED("short", "short/val/images/b.png", "cut short");
}

static void refusals__name_the_file_and_the_fix(void **state)
{
    const uint8_t image[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    SUPPORT_REFUSED("nowhere", "cannot read folder 'nowhere'", "No such file");
    support_folder("empty");
    SUPPORT_REFUSED("empty", "folder 'empty' is empty", "images");
    support_text("file.txt", "x");
    SUPPORT_REFUSED("file.txt", "'file.txt' is a file");
    support_folder("none/images");
    support_text("none/images/notes.txt", "x");
    SUPPORT_REFUSED("none", "no images");
    support_folder("odd/other");
    SUPPORT_REFUSED("odd", "no layout that is known", "images/ and masks/");

    support_folder("bad/images");
    support_folder("bad/masks");
    support_bytes("bad/images/a.png", 2, 2, 1, image);
    SUPPORT_REFUSED("bad", "image 'bad/images/a.png' has no mask", "bad/masks/a.*");
    support_bytes("bad/masks/a.png", 3, 2, 1, image);
    SUPPORT_REFUSED("bad", "mask 'bad/masks/a.png' is 3 x 2", "'bad/images/a.png' is 2 x 2",
                    "scale the mask");
    support_bytes("bad/masks/a.png", 2, 2, 1, image);
    support_bytes("bad/images/b.png", 2, 2, 3, image);
    support_bytes("bad/masks/b.png", 2, 2, 1, image);
    SUPPORT_REFUSED("bad", "'bad/images/b.png' has 3 channels", "'bad/images/a.png' has 1");
    support_text("bad/images/c.png", "no png");
    support_bytes("bad/masks/c.png", 2, 2, 1, image);
    SUPPORT_REFUSED("bad", "(and 1 more: 'widefield data inspect bad' lists them)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder__reads_windows_of_image_and_mask),
        cmocka_unit_test(nnunet__has_a_file_for_each_channel_and_names_in_json),
        cmocka_unit_test(nnunet__reads_the_decathlon_without_numbers),
        cmocka_unit_test(cifar10__labels_images_and_holds_out_the_test_batch),
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(inria__keeps_the_first_five_of_each_city),
        cmocka_unit_test(slides__are_tiffs_under_other_names),
#endif
#ifdef WF_HAVE_PNG
        cmocka_unit_test(deepglobe__has_seven_colours_and_rounds_them),
        cmocka_unit_test(pairs__are_found_by_the_ending_of_the_name),
        cmocka_unit_test(classes__are_folders_in_order_of_their_names),
        cmocka_unit_test(classes__may_be_called_like_masks),
        cmocka_unit_test(classes__are_not_what_looks_like_masks_or_parts),
        cmocka_unit_test(folder__goes_by_many_names),
        cmocka_unit_test(folder__follows_folders_below),
        cmocka_unit_test(folder__knows_its_parts),
        cmocka_unit_test(files__that_are_cut_short_are_found_at_once),
        cmocka_unit_test(nnunet__takes_one_file_with_all_channels),
        cmocka_unit_test(refusals__name_the_file_and_the_fix),
#endif
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
