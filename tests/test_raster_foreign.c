/* Files of other programs whose meaning is not in their pixels alone: refused where it is not read here,
 * and found to be cut short without decoding them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "files.h"
#include "image/raster_exif.h"
#include "image/raster_format.h"

#define FOLDER WF_TEST_SOURCE_DIR "/tests/fixtures/image/"

static void check_refused(const char *name, const char *words)
{
    char path[1000];
    (void)snprintf(path, sizeof path, FOLDER "lies/%s", name);
    struct wf_err err = { 0 };
    struct wf_raster *const r = wf_raster_open(path, &err);
    if (r)
        fail_msg("'%s' was opened", name);
    if (!strstr(err.text, words) || !strstr(err.text, name))
        fail_msg("'%s': \"%s\" does not say \"%s\"", name, err.text, words);
}

#ifdef WF_HAVE_TIFF
static void tiff__axes_that_are_not_read_are_refused(void **state)
{
    check_refused("imagej_time.tif", "6 points in time: save each as an image of its own");
    check_refused("shaped_time.tif", "6 points in time");
    check_refused("shaped_two.tif", "planes along several axes (2 and 3)");
    check_refused("imagej_short.tif", "it is cut short, copy it again");
    check_refused("imagej_lies.tif", "does not say how many planes there are");
    check_refused("mixed.tif", "page 1 has the size of the first, but is stored in another way");
#ifdef WF_HAVE_EXPAT
    check_refused("ome_time.tif", "6 points in time");
    check_refused("ome_part.tif", "7 planes, the file has 6 pages");
    check_refused("ome_damaged.tif", "its OME-XML is damaged at line");
    check_refused("ome_bomb.tif", "its OME-XML is damaged");
#endif
}

static void tiff__colours_that_are_not_read_are_refused(void **state)
{
    check_refused("cmyk.tif", "(CMYK) are not read here: write it as RGB");
    check_refused("white_f32.tif", "white is zero, but its samples are f32");
    check_refused("nodata_text.tif", "its nodata value 'none' is no number");
}

static void tiff__too_few_strips_are_damage_and_not_zeros(void **state)
{
    check_refused("few_strips.tif", "it has places for 3 of its 4 strips: it is damaged");
}

static void tiff__alpha_is_told_apart_from_a_fourth_band(void **state)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open(FOLDER "tiff_alpha.tif", &err);
    assert_non_null(r);
    assert_true(wf_raster_info(r)->alpha);
    assert_int_equal(wf_raster_info(r)->channels, 4);
    wf_raster_close(r);
    r = wf_raster_open(FOLDER "tiff_tile_five.tif", &err);
    assert_non_null(r);
    assert_false(wf_raster_info(r)->alpha);
    wf_raster_close(r);
}

/* Offset and length zero, as GDAL leaves tiles out: zeros, or nodata where the file has a value. */
static void tiff__sparse_tiles_hold_nodata(void **state)
{
    size_t size;
    unsigned char *const bytes = slurp(FOLDER "tiff_nodata.tif", &size);
    assert_non_null(bytes);
    /* The tables of four-byte places and sizes: the entries of tags 324 and 325. */
    uint32_t directory;
    memcpy(&directory, bytes + 4, 4);
    uint16_t entries;
    memcpy(&entries, bytes + directory, 2);
    for (int i = 0; i < entries; i++) {
        unsigned char *const entry = bytes + directory + 2 + 12 * i;
        uint16_t tag;
        uint32_t table;
        memcpy(&tag, entry, 2);
        memcpy(&table, entry + 8, 4);
        if (tag == 324 || tag == 325)
            memset(bytes + table, 0, 4);
    }
    struct wf_err err = { 0 };
    struct wf_raster *const r = wf_raster_parse("sparse.tif", bytes, size, &err);
    assert_non_null(r);
    assert_true(wf_raster_info(r)->has_nodata && wf_raster_info(r)->nodata == -9999);
    const struct wf_region first = wf_shape_region(WF_SHAPE(1, 1, 2, 2, 1));
    float pixels[4];
    int32_t raw[4];
    assert_true(wf_raster_read_window(r, &first, 0, 1, WF_F32, pixels, &err));
    assert_true(wf_raster_read_window(r, &first, 0, 1, WF_I32, raw, &err));
    for (int i = 0; i < 4; i++) {
        assert_true(pixels[i] != pixels[i]);
        assert_int_equal(raw[i], -9999);
    }
    assert_true(wf_raster_check(r, &err));
    wf_raster_close(r);
    free(bytes);
}
#endif

/* Every file is whole; without its last part it is not. */
static void check__finds_what_is_cut_short(void **state)
{
    static const char *const names[] = {
#ifdef WF_HAVE_TIFF
        "tiff_imagej_raw.tif",
#endif
#ifdef WF_HAVE_PNG
        "png_rgb8.png",        "png_adam7.png",
#endif
#ifdef WF_HAVE_JPEG
        "jpeg_444.jpg",        "jpeg_progressive.jpg",
#endif
#ifdef WF_HAVE_ZLIB
        "nifti_volume.nii.gz",
#endif
        "nifti_volume.nii",    "h5_volume.h5",         "npy_rgb8.npy",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1000];
        (void)snprintf(path, sizeof path, FOLDER "%s", names[i]);
        size_t size;
        unsigned char *const bytes = slurp(path, &size);
        assert_non_null(bytes);
        struct wf_err err = { 0 };
        struct wf_raster *r = wf_raster_parse(names[i], bytes, size, &err);
        if (!r || !wf_raster_check(r, &err))
            fail_msg("%s", err.text);
        wf_raster_close(r);
        r = wf_raster_parse(names[i], bytes, size - size / 8, &err);
        if (r && wf_raster_check(r, &err))
            fail_msg("'%s' without its end is said to be whole", names[i]);
        assert_true(err.code != WF_OK);
        wf_raster_close(r);
        free(bytes);
    }
}

#ifdef WF_HAVE_JPEG
/* The end marker of a thumbnail in front of the pixels is none of the image's. */
static void check__does_not_take_a_thumbnail_for_the_end(void **state)
{
    static const unsigned char thumbnail[] = { 0xff, 0xe1, 0, 6, 0xff, 0xd8, 0xff, 0xd9 };
    const size_t more = sizeof thumbnail;
    size_t size;
    unsigned char *const bytes = slurp(FOLDER "jpeg_444.jpg", &size);
    unsigned char *const file = malloc(size + more);
    assert_true(bytes && file);
    memcpy(file, bytes, 2);
    memcpy(file + 2, thumbnail, more);
    memcpy(file + 2 + more, bytes + 2, size - 2);
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_parse("photo.jpg", file, size + more, &err);
    assert_true(r && wf_raster_check(r, &err));
    wf_raster_close(r);
    r = wf_raster_parse("photo.jpg", file, size + more - size / 8, &err);
    assert_true(r && !wf_raster_check(r, &err));
    wf_raster_close(r);
    free(file);
    free(bytes);
}
#endif

static void exif__blocks_are_not_believed(void **state)
{
    static const unsigned char little[] = { 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
                                            1,   3,   0,  1, 0, 0, 0, 6, 0, 0, 0 };
    static const unsigned char big[] = { 'M',  'M', 0, 42, 0, 0, 0, 8, 0, 1, 1,
                                         0x12, 0,   3, 0,  0, 0, 1, 0, 8, 0, 0 };
    assert_int_equal(wf_exif_orientation(little, sizeof little), 6);
    assert_int_equal(wf_exif_orientation(big, sizeof big), 8);
    for (size_t n = 0; n < sizeof little; n++) {
        unsigned char *const cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut, little, n);
        assert_int_equal(wf_exif_orientation(cut, n), 1);
        free(cut);
    }
    unsigned char far[sizeof little];
    memcpy(far, little, sizeof far);
    memset(far + 4, 0xff, 4);
    assert_int_equal(wf_exif_orientation(far, sizeof far), 1);
    memcpy(far, little, sizeof far);
    far[18] = 9;
    assert_int_equal(wf_exif_orientation(far, sizeof far), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(tiff__axes_that_are_not_read_are_refused),
        cmocka_unit_test(tiff__colours_that_are_not_read_are_refused),
        cmocka_unit_test(tiff__too_few_strips_are_damage_and_not_zeros),
        cmocka_unit_test(tiff__alpha_is_told_apart_from_a_fourth_band),
        cmocka_unit_test(tiff__sparse_tiles_hold_nodata),
#endif
#ifdef WF_HAVE_JPEG
        cmocka_unit_test(check__does_not_take_a_thumbnail_for_the_end),
#endif
        cmocka_unit_test(check__finds_what_is_cut_short),
        cmocka_unit_test(exif__blocks_are_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
