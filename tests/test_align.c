/* Masks that lie elsewhere than their images, and pixels in which nothing was measured. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader.h"
#include "image/raster_format.h"
#include "support_data.h"
#include "support_scratch.h"

/* --- files with a place --- */

static void write_placed(const char *path, const int64_t extent[3], enum wf_sample sample,
                         const struct wf_raster_place *place, const double *nodata,
                         const void *data)
{
    struct wf_err err = { 0 };
    const struct wf_raster_info info = { .depth = extent[0],
                                         .height = extent[1],
                                         .width = extent[2],
                                         .channels = 1,
                                         .sample = sample,
                                         .place = place,
                                         .has_nodata = nodata,
                                         .nodata = nodata ? *nodata : 0 };
    struct wf_raster_writer *const w = wf_raster_create(path, &info, &err);
    WF_BUG_ON(!w, "%s", err.text);
    const struct wf_region all = { .hi = { 1, extent[0], extent[1], extent[2], 1 } };
    const bool ok = wf_raster_write_window(w, &all, data, &err);
    WF_BUG_ON(!wf_raster_writer_close(w, ok, &err), "%s", err.text);
}

/* The affine of an sform, row by row. */
static struct wf_raster_place nifti_place(const double affine[12])
{
    struct wf_raster_place p = {
        .space = { .rank = 3, .units = 2, .sform = 2, .pixdim = { 1, 1, 1, 1 } }
    };
    memcpy(p.space.affine, affine, sizeof p.space.affine);
    return p;
}

static struct wf_dataset *open_aligned(const char *path, enum wf_data_align align)
{
    struct wf_err err = { 0 };
    struct wf_dataset *const ds =
        wf_dataset_open(path, &(struct wf_dataset_options){ .align = align }, &err);
    if (!ds)
        print_message("%s\n", err.text);
    return ds;
}

enum { D = 3, H = 4, W = 5 };
static const int64_t extent[3] = { D, H, W };

/* A volume whose label at (d, h, w) is its own number, so that any mistake shows. */
static void write_image(const char *path, const struct wf_raster_place *place)
{
    uint8_t image[D * H * W] = { 1, 2, 3 };
    write_placed(path, extent, WF_SAMPLE_U8, place, NULL, image);
}

static void labels_are_numbers(const struct wf_dataset *ds)
{
    int32_t want[D * H * W];
    for (int i = 0; i < D * H * W; i++)
        want[i] = i;
    support_labels_are(ds, 0, want, D * H * W);
    struct wf_err err = { 0 };
    int32_t part[4];
    const struct wf_region window = support_box(1, 1, 2, 2, 3, 4);
    assert_true(wf_dataset_read(ds, 0, &window, NULL, part, &err));
    for (int i = 0; i < 4; i++)
        assert_int_equal(part[i], (H + 1 + i / 2) * W + 2 + i % 2);
}

static void nifti__flipped_masks_are_refused_or_carried_over(void **state)
{
    support_folder("flip/images");
    support_folder("flip/masks");
    const struct wf_raster_place image =
        nifti_place((const double[12]){ 2, 0, 0, -10, 0, 2, 0, 5, 0, 0, 3, 7 });
    /* x runs the other way: voxel 0 lies where the image has its last. */
    const struct wf_raster_place mask =
        nifti_place((const double[12]){ -2, 0, 0, -10 + 2 * (W - 1), 0, 2, 0, 5, 0, 0, 3, 7 });
    uint8_t labels[D * H * W];
    for (int i = 0; i < D * H * W; i++)
        labels[i / W * W + W - 1 - i % W] = (uint8_t)i;
    write_image("flip/images/a.nii", &image);
    write_placed("flip/masks/a.nii", extent, WF_SAMPLE_U8, &mask, NULL, labels);
    SUPPORT_REFUSED("flip", "mask 'flip/masks/a.nii' lies elsewhere", "the mask is LAS",
                    "the image is RAS", "data.align=resample");
    struct wf_dataset *ds = open_aligned("flip", WF_ALIGN_IGNORE);
    assert_non_null(ds);
    assert_false(wf_dataset_info(ds)->has_void);
    wf_dataset_free(ds);
    ds = open_aligned("flip", WF_ALIGN_RESAMPLE);
    assert_non_null(ds);
    assert_false(wf_dataset_info(ds)->has_void);
    labels_are_numbers(ds);
    wf_dataset_free(ds);
    /* The same place: nothing to do. */
    for (int i = 0; i < D * H * W; i++)
        labels[i] = (uint8_t)i;
    write_placed("flip/masks/a.nii", extent, WF_SAMPLE_U8, &image, NULL, labels);
    ds = support_open("flip");
    labels_are_numbers(ds);
    wf_dataset_free(ds);
}

static void nifti__turned_masks_have_other_extents(void **state)
{
    support_folder("turn/images");
    support_folder("turn/masks");
    const struct wf_raster_place image =
        nifti_place((const double[12]){ 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 });
    /* The mask's x is z, its y is x, its z is y: it is (W, H, D) = (D, W, H) of the image. */
    const struct wf_raster_place mask =
        nifti_place((const double[12]){ 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0 });
    const int64_t turned[3] = { H, W, D };
    uint8_t labels[D * H * W];
    for (int d = 0; d < D; d++)
        for (int h = 0; h < H; h++)
            for (int w = 0; w < W; w++)
                labels[(h * W + w) * D + d] = (uint8_t)((d * H + h) * W + w);
    write_image("turn/images/a.nii", &image);
    write_placed("turn/masks/a.nii", turned, WF_SAMPLE_U8, &mask, NULL, labels);
    SUPPORT_REFUSED("turn", "lies elsewhere", "SRA", "RAS");
    struct wf_dataset *const ds = open_aligned("turn", WF_ALIGN_RESAMPLE);
    assert_non_null(ds);
    labels_are_numbers(ds);
    wf_dataset_free(ds);
}

/* The qform says the same as the sform of the image: half a turn around z. */
static void nifti__quaternions_are_understood(void **state)
{
    support_folder("quat/images");
    support_folder("quat/masks");
    const struct wf_raster_place image =
        nifti_place((const double[12]){ -2, 0, 0, 8, 0, -2, 0, 6, 0, 0, -3, 1 });
    struct wf_raster_place mask = { .space = { .rank = 3,
                                               .qform = 1,
                                               .pixdim = { -1, 2, 2, 3 },
                                               .quatern = { 0, 0, 1 },
                                               .offset = { 8, 6, 1 } } };
    uint8_t labels[D * H * W];
    for (int i = 0; i < D * H * W; i++)
        labels[i] = (uint8_t)i;
    write_image("quat/images/a.nii", &image);
    write_placed("quat/masks/a.nii", extent, WF_SAMPLE_U8, &mask, NULL, labels);
    struct wf_dataset *const ds = support_open("quat");
    labels_are_numbers(ds);
    wf_dataset_free(ds);
    mask.space.pixdim[0] = 1;
    write_placed("quat/masks/a.nii", extent, WF_SAMPLE_U8, &mask, NULL, labels);
    SUPPORT_REFUSED("quat", "the mask is LPS", "the image is LPI");
}

static void place__of_one_side_only_is_noted(void **state)
{
    support_folder("half/images");
    support_folder("half/masks");
    const struct wf_raster_place image =
        nifti_place((const double[12]){ 2, 0, 0, -10, 0, 2, 0, 5, 0, 0, 3, 7 });
    uint8_t labels[D * H * W];
    for (int i = 0; i < D * H * W; i++)
        labels[i] = (uint8_t)i;
    write_image("half/images/a.nii", &image);
    support_write("half/masks/a.npy",
                  &(struct support_picture){
                      .depth = D, .height = H, .width = W, .channels = 1, .data = labels });
    struct wf_dataset *const ds = support_open("half");
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "a.nii' says where it lies"));
    labels_are_numbers(ds);
    wf_dataset_free(ds);
}

#ifdef WF_HAVE_TIFF
/* --- GeoTIFF --- */

struct geo {
    double scale[3], tie[6];
    uint16_t keys[16];
    struct wf_raster_place place;
};

static void geo_init(struct geo *g, double x, double y, double pixel, uint16_t epsg)
{
    *g = (struct geo){ .scale = { pixel, pixel, 0 },
                       .tie = { 0, 0, 0, x, y, 0 },
                       .keys = { 1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, epsg } };
    g->place = (struct wf_raster_place){
        .geo_count = 3,
        .geo = { { 33550, WF_GEO_DOUBLE, 3, g->scale },
                 { 33922, WF_GEO_DOUBLE, 6, g->tie },
                 { 34735, WF_GEO_SHORT, 16, g->keys } },
    };
}

static const int64_t map[3] = { 1, 4, 4 };

static void geotiff__masks_elsewhere_are_refused_or_carried_over(void **state)
{
    support_folder("geo/images");
    support_folder("geo/masks");
    struct geo image, mask;
    geo_init(&image, 440720, 3751320, 0.5, 32611);
    geo_init(&mask, 440721, 3751320.5, 0.5, 32611); /* two columns right, one row up */
    const uint8_t pixels[16] = { 9 };
    uint8_t labels[16];
    for (int i = 0; i < 16; i++)
        labels[i] = (uint8_t)i;
    write_placed("geo/images/a.tif", map, WF_SAMPLE_U8, &image.place, NULL, pixels);
    write_placed("geo/masks/a.tif", map, WF_SAMPLE_U8, &mask.place, NULL, labels);
    SUPPORT_REFUSED("geo", "mask 'geo/masks/a.tif' lies elsewhere", "EPSG:32611",
                    "(440721, 3751320.5)", "(440720, 3751320)", "data.align=resample");
    struct wf_dataset *ds = open_aligned("geo", WF_ALIGN_RESAMPLE);
    assert_non_null(ds);
    assert_true(wf_dataset_info(ds)->has_void && wf_dataset_info(ds)->has_ignore);
    const int32_t none = WF_LABEL_VOID;
    support_labels_are(ds, 0,
                       (const int32_t[]){ none, none, 4, 5, none, none, 8, 9, none, none, 12, 13,
                                          none, none, none, none },
                       16);
    assert_int_equal(wf_dataset_info(ds)->scanned, 6);
    wf_dataset_free(ds);
    /* The same place, told from pixels' middles. */
    geo_init(&mask, 440720.25, 3751319.75, 0.5, 32611);
    mask.keys[11] = 2;
    write_placed("geo/masks/a.tif", map, WF_SAMPLE_U8, &mask.place, NULL, labels);
    ds = support_open("geo");
    assert_false(wf_dataset_info(ds)->has_void);
    wf_dataset_free(ds);
    /* Another system: no grid of this one fits it. */
    geo_init(&mask, 440720, 3751320, 0.5, 32612);
    write_placed("geo/masks/a.tif", map, WF_SAMPLE_U8, &mask.place, NULL, labels);
    SUPPORT_REFUSED("geo", "the mask is EPSG:32612", "the image is EPSG:32611",
                    "gdalwarp -r near -t_srs EPSG:32611");
    assert_null(open_aligned("geo", WF_ALIGN_RESAMPLE));
    /* A system that is written out and not numbered may be the same one. */
    geo_init(&mask, 440720, 3751320, 0.5, 32767);
    write_placed("geo/masks/a.tif", map, WF_SAMPLE_U8, &mask.place, NULL, labels);
    ds = support_open("geo");
    assert_non_null(strstr(wf_dataset_info(ds)->notes[0], "different coordinate systems"));
    wf_dataset_free(ds);
    geo_init(&mask, 440721, 3751320, 0.5, 32767);
    write_placed("geo/masks/a.tif", map, WF_SAMPLE_U8, &mask.place, NULL, labels);
    SUPPORT_REFUSED("geo", "lies elsewhere", "a system of its own");
}

static void geotiff__a_finer_mask_gives_the_nearest_label(void **state)
{
    support_folder("fine/images");
    support_folder("fine/masks");
    struct geo image, mask;
    geo_init(&image, 0, 0, 3, 32611);
    geo_init(&mask, 0, 0, 1, 32611);
    const int64_t fine[3] = { 1, 12, 12 };
    const uint8_t pixels[16] = { 9 };
    uint8_t labels[144] = { 0 };
    int32_t want[16];
    for (int i = 0; i < 16; i++) {
        want[i] = i;
        labels[(i / 4 * 3 + 1) * 12 + i % 4 * 3 + 1] = (uint8_t)i;
    }
    write_placed("fine/images/a.tif", map, WF_SAMPLE_U8, &image.place, NULL, pixels);
    write_placed("fine/masks/a.tif", fine, WF_SAMPLE_U8, &mask.place, NULL, labels);
    struct wf_dataset *const ds = open_aligned("fine", WF_ALIGN_RESAMPLE);
    assert_non_null(ds);
    support_labels_are(ds, 0, want, 16);
    wf_dataset_free(ds);
}

/* --- nodata --- */

enum { SIDE = 12 };

/* A band of nodata along the left, and a hole. */
static bool is_hole(int h, int w)
{
    return w < 3 || (h == 7 && w == 8);
}

static void write_holes(const char *folder)
{
    char path[100];
    const int64_t size[3] = { 1, SIDE, SIDE };
    const double nodata = -9999;
    int16_t image[SIDE * SIDE];
    uint8_t mask[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) {
        image[i] = (int16_t)(is_hole(i / SIDE, i % SIDE) ? -9999 : 100 + i % 7);
        mask[i] = (uint8_t)(i % 3);
    }
    (void)snprintf(path, sizeof path, "%s/images", folder);
    support_folder(path);
    (void)snprintf(path, sizeof path, "%s/masks", folder);
    support_folder(path);
    (void)snprintf(path, sizeof path, "%s/images/a.tif", folder);
    write_placed(path, size, WF_SAMPLE_I16, NULL, &nodata, image);
    (void)snprintf(path, sizeof path, "%s/masks/a.tif", folder);
    write_placed(path, size, WF_SAMPLE_U8, NULL, NULL, mask);
}

static void nodata__is_left_out_of_statistics_and_labels(void **state)
{
    write_holes("holes");
    struct wf_dataset *const ds = support_open("holes");
    assert_true(wf_dataset_sample(ds, 0)->has_nodata);
    assert_true(wf_dataset_info(ds)->has_void && wf_dataset_info(ds)->has_ignore);
    double sum = 0, squares = 0, count = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        if (!is_hole(i / SIDE, i % SIDE)) {
            sum += 100 + i % 7;
            squares += (100 + i % 7) * (100 + i % 7);
            count++;
        }
    struct wf_normal normal;
    struct wf_err err = { 0 };
    assert_true(wf_normal_measure(ds, (const int64_t[]){ 0 }, 1, 1, &normal, &err));
    assert_true(fabs(normal.mean[0] - sum / count) < 1e-9);
    assert_true(fabs(normal.std[0] - sqrt(squares / count - sum / count * sum / count)) < 1e-6);

    struct wf_loader *const loader = wf_loader_new(
        ds,
        &(struct wf_loader_options){
            .part = WF_PART_ALL, .batch = 1, .normal = &normal, .has_ignore = true, .ignore = 77 },
        &err);
    assert_non_null(loader);
    /* The whole, then its right lower part by itself: the same numbers. */
    float image[2][SIDE * SIDE];
    int32_t labels[2][SIDE * SIDE];
    const struct wf_region boxes[2] = { support_box(0, 0, 0, 1, SIDE, SIDE),
                                        support_box(0, 5, 2, 1, SIDE, SIDE) };
    for (int k = 0; k < 2; k++) {
        const struct wf_view x = wf_view_dense(image[k], WF_F32, boxes[k]);
        const struct wf_view t = wf_view_dense(labels[k], WF_I32, boxes[k]);
        wf_loader_seek(loader, 0, 0);
        assert_true(wf_loader_next(loader, &x, &t, &err));
    }
    for (int h = 0; h < SIDE; h++)
        for (int w = 0; w < SIDE; w++) {
            const int at = h * SIDE + w, part = (h - 5) * (SIDE - 2) + w - 2;
            assert_int_equal(labels[0][at], is_hole(h, w) ? 77 : at % 3);
            if (is_hole(h, w))
                assert_true(fabsf(image[0][at]) < 1e-5f);
            if (h >= 5 && w >= 2) {
                assert_true(image[0][at] == image[1][part]);
                assert_int_equal(labels[0][at], labels[1][part]);
            }
        }
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

static void nodata__of_unsigned_colours_must_be_in_all_channels(void **state)
{
    support_folder("dark/images");
    support_folder("dark/masks");
    struct wf_err err = { 0 };
    const struct wf_raster_info info = { .depth = 1,
                                         .height = 1,
                                         .width = 2,
                                         .channels = 3,
                                         .sample = WF_SAMPLE_U8,
                                         .has_nodata = true };
    struct wf_raster_writer *const w = wf_raster_create("dark/images/a.tif", &info, &err);
    assert_non_null(w);
    const struct wf_region all = { .hi = { 1, 1, 1, 2, 3 } };
    const bool ok = wf_raster_write_window(w, &all, (const uint8_t[]){ 0, 7, 0, 0, 0, 0 }, &err);
    assert_true(wf_raster_writer_close(w, ok, &err));
    support_bytes("dark/masks/a.tif", 1, 2, 1, (const uint8_t[]){ 1, 1 });
    struct wf_dataset *const ds = support_open("dark");
    float image[6];
    int32_t labels[2];
    const struct wf_region window = support_box(0, 0, 0, 1, 1, 2);
    assert_true(wf_dataset_read(ds, 0, &window, image, labels, &err));
    assert_true(image[0] == 0 && image[1] == 7 && image[2] == 0);
    assert_true(isnan(image[3]) && isnan(image[4]) && isnan(image[5]));
    assert_int_equal(labels[0], 1);
    assert_int_equal(labels[1], WF_LABEL_VOID);
    wf_dataset_free(ds);
}
#endif

static void nodata__of_a_number_leaves_nan_a_mistake(void **state)
{
    support_folder("gap/images");
    const int64_t size[3] = { 1, 2, 2 };
    double nodata = -9999;
    const float image[4] = { 1, -9999, NAN, 2 };
    write_placed("gap/images/a.tif", size, WF_SAMPLE_F32, NULL, &nodata, image);
    struct wf_dataset *ds = support_open("gap");
    struct wf_err err = { 0 };
    float pixels[4];
    const struct wf_region first = support_box(0, 0, 0, 1, 1, 2),
                           all = support_box(0, 0, 0, 1, 2, 2);
    assert_true(wf_dataset_read(ds, 0, &first, pixels, NULL, &err));
    assert_false(wf_dataset_read(ds, 0, &all, pixels, NULL, &err));
    assert_non_null(strstr(err.text, "NaN at plane 0, row 1, column 0"));
    wf_dataset_free(ds);
    nodata = NAN;
    write_placed("gap/images/a.tif", size, WF_SAMPLE_F32, NULL, &nodata, image);
    ds = support_open("gap");
    assert_true(wf_dataset_read(ds, 0, &all, pixels, NULL, &err));
    wf_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nifti__flipped_masks_are_refused_or_carried_over),
        cmocka_unit_test(nifti__turned_masks_have_other_extents),
        cmocka_unit_test(nifti__quaternions_are_understood),
        cmocka_unit_test(place__of_one_side_only_is_noted),
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(geotiff__masks_elsewhere_are_refused_or_carried_over),
        cmocka_unit_test(geotiff__a_finer_mask_gives_the_nearest_label),
        cmocka_unit_test(nodata__of_a_number_leaves_nan_a_mistake),
        cmocka_unit_test(nodata__is_left_out_of_statistics_and_labels),
        cmocka_unit_test(nodata__of_unsigned_colours_must_be_in_all_channels),
#endif
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
