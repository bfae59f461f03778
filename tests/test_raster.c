/* Reading: files that other programs made (tests/fixtures/make_images.py), whole and in windows. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "files.h"
#include "image/npy.h"
#include "image/raster_format.h"
#include "support_scratch.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

#define FOLDER WF_TEST_SOURCE_DIR "/tests/fixtures/image/"

static bool can_read(const char *name)
{
#ifndef WF_HAVE_PNG
    if (strstr(name, "png_"))
        return false;
#endif
#ifndef WF_HAVE_JPEG
    if (strstr(name, "jpeg_"))
        return false;
#endif
#ifndef WF_HAVE_TIFF
    if (strstr(name, "tiff_"))
        return false;
#endif
#ifndef WF_HAVE_EXPAT
    if (strstr(name, "tiff_ome"))
        return false;
#endif
#ifndef WF_HAVE_ZLIB
    if (strstr(name, ".gz") || strstr(name, "h5_chunks") || strstr(name, "h5_v110") ||
        strstr(name, "h5_latest"))
        return false;
#endif
    (void)name;
    return true;
}

/* Calls `check` for each file of the fixtures' list that this build can read. */
static void for_each_fixture(void (*check)(const char *path, const char *truth))
{
    FILE *list = fopen(FOLDER "list.txt", "r");
    assert_non_null(list);
    char name[200], truth[200], path[1000], beside[1000];
    int count = 0;
    while (fscanf(list, "%199s %199s", name, truth) == 2) {
        if (!can_read(name))
            continue;
        (void)snprintf(path, sizeof path, FOLDER "%s", name);
        (void)snprintf(beside, sizeof beside, FOLDER "truth/%s.npy", truth);
        check(path, beside);
        count++;
    }
    (void)fclose(list);
    assert_true(count > 10);
}

static struct wf_raster *open_well(const char *path)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open(path, &err);
    if (!r)
        fail_msg("%s", err.text);
    return r;
}

static struct wf_region whole_of(const struct wf_raster_info *info)
{
    return wf_shape_region(WF_SHAPE(1, info->depth, info->height, info->width, info->channels));
}

static int64_t count_of(const struct wf_raster_info *info)
{
    return info->depth * info->height * info->width * info->channels;
}

static void *read_whole(struct wf_raster *r, enum wf_dtype as)
{
    const struct wf_raster_info *info = wf_raster_info(r);
    const struct wf_region whole = whole_of(info);
    void *room = malloc((size_t)count_of(info) * 4);
    assert_non_null(room);
    struct wf_err err = { 0 };
    if (!wf_raster_read_window(r, &whole, 0, info->channels, as, room, &err))
        fail_msg("%s", err.text);
    return room;
}

static void check_whole(const char *path, const char *truth)
{
    struct wf_err err = { 0 };
    struct wf_npy expected;
    if (!wf_npy_open(&expected, truth, &err))
        fail_msg("%s", err.text);
    struct wf_raster *r = open_well(path);
    const struct wf_raster_info *info = wf_raster_info(r);
    const int64_t shape[] = { info->depth, info->height, info->width, info->channels };
    for (int i = 0; i < 4; i++)
        if (shape[i] != expected.shape[i])
            fail_msg("'%s': extent %d is %" PRId64 ", not %" PRId64, path, i, shape[i],
                     expected.shape[i]);
    float *want = malloc((size_t)expected.count * sizeof *want);
    assert_non_null(want);
    assert_true(wf_npy_read(&expected, 0, expected.count, WF_F32, want, &err));
    float *got = read_whole(r, WF_F32);
    for (int64_t i = 0; i < expected.count; i++)
        if (got[i] != want[i] && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("'%s': element %" PRId64 " is %.9g, not %.9g", path, i, (double)got[i],
                     (double)want[i]);
    free(got);
    if (wf_sample_is_whole(expected.sample)) {
        int32_t *whole = read_whole(r, WF_I32);
        for (int64_t i = 0; i < expected.count; i++)
            if ((double)whole[i] != (double)want[i])
                fail_msg("'%s': element %" PRId64 " is %d, not %.9g", path, i, whole[i],
                         (double)want[i]);
        free(whole);
    }
    free(want);
    wf_npy_close(&expected);
    wf_raster_close(r);
}

static void files__of_other_programs_have_their_values(void **state)
{
    for_each_fixture(check_whole);
}

/* --- windows --- */
struct dice {
    struct wf_random random;
    uint64_t next;
};

static int64_t throw(struct dice * d, int64_t bound)
{
    return wf_random_below(d->random, d->next++, (uint32_t)bound);
}

static struct wf_region some_window(struct dice *d, const struct wf_raster_info *info)
{
    struct wf_region window = { 0 };
    const int64_t extent[] = { [WF_D] = info->depth, [WF_H] = info->height, [WF_W] = info->width };
    for (int axis = WF_D; axis <= WF_W; axis++) {
        window.lo[axis] = throw(d, extent[axis]);
        window.hi[axis] = window.lo[axis] + 1 + throw(d, extent[axis] - window.lo[axis]);
    }
    return window;
}

static void check_window(struct wf_raster *r, const float *whole, struct wf_region window,
                         int first, int channels)
{
    const struct wf_raster_info *info = wf_raster_info(r);
    window.lo[WF_N] = window.lo[WF_C] = 0;
    window.hi[WF_N] = 1;
    window.hi[WF_C] = channels;
    const int64_t count = wf_region_count(window);
    float *part =
        malloc((size_t)count * sizeof *part); /* exactly: a sanitizer sees a write past it */
    struct wf_err err = { 0 };
    if (!wf_raster_read_window(r, &window, first, channels, WF_F32, part, &err))
        fail_msg("%s", err.text);
    const float *at = part;
    for (int64_t d = window.lo[WF_D]; d < window.hi[WF_D]; d++)
        for (int64_t h = window.lo[WF_H]; h < window.hi[WF_H]; h++)
            for (int64_t w = window.lo[WF_W]; w < window.hi[WF_W]; w++)
                for (int c = first; c < first + channels; c++, at++) {
                    const float want =
                        whole[((d * info->height + h) * info->width + w) * info->channels + c];
                    if (*at != want && !(isnan(*at) && isnan(want)))
                        fail_msg("'%s': (%" PRId64 ", %" PRId64 ", %" PRId64
                                 ", %d) is %.9g, not %.9g",
                                 r->file.name, d, h, w, c, (double)*at, (double)want);
                }
    free(part);
}

static void check_windows(const char *path, const char *truth)
{
    struct wf_raster *r = open_well(path);
    const struct wf_raster_info *info = wf_raster_info(r);
    float *whole = read_whole(r, WF_F32);
    struct dice d = { wf_random(1, wf_random_stream(strrchr(path, '/') + 1)), 0 };
    for (int i = 0; i < 40; i++) {
        const int first = (int) throw(&d, info->channels);
        check_window(r, whole, some_window(&d, info), first,
                     1 + (int) throw(&d, info->channels - first));
    }
    free(whole);
    wf_raster_close(r);
}

static void windows__equal_the_part_of_the_whole(void **state)
{
    for_each_fixture(check_windows);
}

static void check_memory(const char *path, const char *truth)
{
    /* The same from memory. */
    char file[1000];
    (void)snprintf(file, sizeof file, "%s", path);
    char *colon = strstr(file, ":/");
    if (colon)
        *colon = '\0';
    size_t size;
    unsigned char *bytes = slurp(file, &size);
    struct wf_err err = { 0 };
    struct wf_raster *a = open_well(path), *b = wf_raster_parse(path, bytes, size, &err);
    if (!b)
        fail_msg("%s", err.text);
    float *one = read_whole(a, WF_F32), *two = read_whole(b, WF_F32);
    assert_memory_equal(one, two, (size_t)count_of(wf_raster_info(a)) * sizeof *one);
    free(one);
    free(two);
    wf_raster_close(a);
    wf_raster_close(b);
    free(bytes);
}

static void files__read_the_same_from_memory(void **state)
{
    for_each_fixture(check_memory);
}

static void window__that_is_empty_reads_nothing(void **state)
{
    struct wf_raster *r = open_well(FOLDER "npy_rgb8.npy");
    struct wf_err err = { 0 };
    const struct wf_region none = { .lo = { [WF_H] = 3 },
                                    .hi = { [WF_D] = 1, [WF_H] = 3, [WF_W] = 5 } };
    assert_true(wf_raster_read_window(r, &none, 0, 3, WF_F32, NULL, &err));
    const struct wf_region some = { .hi = { [WF_D] = 1, [WF_H] = 3, [WF_W] = 5 } };
    assert_true(wf_raster_read_window(r, &some, 2, 0, WF_F32, NULL, &err));
    wf_raster_close(r);
}

/* --- tiles --- */
#ifdef WF_HAVE_TIFF
static int64_t touched(int64_t lo, int64_t hi, int64_t tile)
{
    return (hi - 1) / tile - lo / tile + 1;
}

static void check_tile_counts(const char *name, bool planar)
{
    char path[1000];
    (void)snprintf(path, sizeof path, FOLDER "%s", name);
    struct wf_raster *r = open_well(path);
    const struct wf_raster_info *info = wf_raster_info(r);
    assert_int_equal(wf_raster_tiles_read(r), 0); /* opening decodes nothing */
    float *room = malloc((size_t)count_of(info) * sizeof *room);
    struct dice d = { wf_random(2, wf_random_stream(name)), 0 };
    struct wf_err err = { 0 };
    for (int i = 0; i < 200; i++) {
        const struct wf_region window = some_window(&d, info);
        const int first = (int) throw(&d, info->channels);
        const int channels = 1 + (int) throw(&d, info->channels - first);
        const int64_t before = wf_raster_tiles_read(r);
        assert_true(wf_raster_read_window(r, &window, first, channels, WF_F32, room, &err));
        assert_int_equal(wf_raster_tiles_read(r) - before,
                         wf_region_extent(window, WF_D) *
                             touched(window.lo[WF_H], window.hi[WF_H], info->tile.at[WF_H]) *
                             touched(window.lo[WF_W], window.hi[WF_W], info->tile.at[WF_W]) *
                             (planar ? channels : 1));
    }
    free(room);
    wf_raster_close(r);
}

static void tiles__read_are_those_that_the_window_touches(void **state)
{
    check_tile_counts("tiff_tile_rgb8_deflate.tif", false);
    check_tile_counts("tiff_tile_five.tif", false);
    check_tile_counts("tiff_tile_planar_u16.tif", true);
    check_tile_counts("tiff_stack_tile.tif", false);
    check_tile_counts("tiff_tile_f32_big.tif", false);
}

static void strips__are_decoded_where_the_window_touches_and_kept(void **state)
{
    struct wf_raster *r = open_well(FOLDER "tiff_strip_rgb8_lzw.tif"); /* 19 rows, 4 in a strip */
    float room[4 * 37 * 3];
    struct wf_err err = { 0 };
    struct wf_region window = { .lo = { [WF_H] = 6 },
                                .hi = { [WF_D] = 1, [WF_H] = 10, [WF_W] = 37 } };
    assert_true(wf_raster_read_window(r, &window, 0, 3, WF_F32, room, &err));
    assert_int_equal(wf_raster_tiles_read(r), 2);
    window.hi[WF_W] = 3; /* the rows are still there */
    assert_true(wf_raster_read_window(r, &window, 0, 3, WF_F32, room, &err));
    assert_int_equal(wf_raster_tiles_read(r), 2);
    wf_raster_close(r);
}

static void info__has_palette_resolution_and_georeferencing(void **state)
{
    struct wf_raster *r = open_well(FOLDER "tiff_palette.tif");
    const struct wf_raster_info *info = wf_raster_info(r);
    assert_int_equal(info->colors, 256);
    assert_memory_equal(info->palette[1], ((uint8_t[]){ 255, 0, 0 }), 3);
    assert_memory_equal(info->palette[4], ((uint8_t[]){ 250, 240, 230 }), 3);
    wf_raster_close(r);

    r = open_well(FOLDER "tiff_tile_rgb8_deflate.tif");
    const struct wf_raster_place *place = wf_raster_info(r)->place;
    assert_non_null(place);
    assert_true(place->x == 300 && place->y == 150 && place->unit == WF_UNIT_INCH);
    wf_raster_close(r);

    r = open_well(FOLDER "tiff_tile_f32_big.tif");
    place = wf_raster_info(r)->place;
    assert_non_null(place);
    assert_int_equal(place->geo_count, 4);
    assert_int_equal(place->geo[0].tag, 33550);
    assert_true(((const double *)place->geo[0].data)[1] == 0.25);
    assert_int_equal(place->geo[2].type, WF_GEO_SHORT);
    assert_int_equal(((const uint16_t *)place->geo[2].data)[4], 1024);
    assert_string_equal(place->geo[3].data, "UTM Zone 11|");
    wf_raster_close(r);
}
#endif

#ifdef WF_HAVE_PNG
static void png__has_palette_and_resolution(void **state)
{
    struct wf_raster *r = open_well(FOLDER "png_classes.png");
    const struct wf_raster_info *info = wf_raster_info(r);
    assert_int_equal(info->colors, 5);
    assert_memory_equal(info->palette[4], ((uint8_t[]){ 250, 240, 230 }), 3);
    assert_non_null(info->place);
    assert_true(info->place->x == 40 && info->place->y == 20 && info->place->unit == WF_UNIT_CM);
    wf_raster_close(r);
}
#endif

/* --- values that do not fit --- */
static void check_refused(const char *name, enum wf_dtype as, const char *words)
{
    if (!can_read(name))
        return;
    char path[1000];
    (void)snprintf(path, sizeof path, "%s%s", name[0] == '.' ? "" : FOLDER, name);
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open(path, &err);
    if (r) {
        const struct wf_raster_info *info = wf_raster_info(r);
        const struct wf_region whole = whole_of(info);
        void *room = malloc((size_t)count_of(info) * 4);
        assert_false(wf_raster_read_window(r, &whole, 0, info->channels, as, room, &err));
        free(room);
        wf_raster_close(r);
    }
    if (!strstr(err.text, words))
        fail_msg("'%s': \"%s\" does not say \"%s\"", name, err.text, words);
}

static void values__that_do_not_fit_are_refused_with_their_place(void **state)
{
    const int64_t shape[] = { 2, 3 };
    const double large[] = { 1, 2, 3, 4, 5, 1e300 };
    const int32_t odd[] = { 1, 2, 3, 4, (1 << 24) + 1, 6 };
    struct wf_err err = { 0 };
    assert_true(wf_npy_write("./large.npy", WF_F64, 2, shape, large, &err));
    assert_true(wf_npy_write("./odd.npy", WF_I32, 2, shape, odd, &err));
    check_refused("./large.npy", WF_F32, "element 5 of type float64 has no exact value in f32");
    check_refused("./odd.npy", WF_F32, "element 4 of type int32");
    check_refused("nifti_f32.nii.gz", WF_I32,
                  "column 1, channel 0 is not a whole number of 32 bits: labels must");
    check_refused("tiff_tile_f32_big.tif", WF_I32, "at plane 0, row 0, column 1, channel 0");
    check_refused("h5_be.h5", WF_I32, "whole number");
    check_refused("npy_f64.npy", WF_I32, "whole number");
}

static void floats__that_are_whole_numbers_are_labels(void **state)
{
    const int64_t shape[] = { 2, 3 };
    const float labels[] = { 0, 1, 2, 255, -1, 7 };
    struct wf_err err = { 0 };
    assert_true(wf_npy_write("labels.npy", WF_F32, 2, shape, labels, &err));
    struct wf_raster *r = open_well("labels.npy");
    int32_t *got = read_whole(r, WF_I32);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], (int)labels[i]);
    free(got);
    wf_raster_close(r);
}

/* --- names --- */
static void names__are_told_apart_by_content_and_colon(void **state)
{
    const struct wf_region one = { .hi = { [WF_D] = 1, [WF_H] = 1, [WF_W] = 1 } };
    struct wf_err err = { 0 };
    float value;
    /* A .npy file under another name is still one. */
    const int64_t shape[] = { 1, 1 };
    assert_true(wf_npy_write("picture.png", WF_F32, 2, shape, &(float){ 3 }, &err));
    struct wf_raster *r = open_well("picture.png");
    assert_string_equal(wf_raster_info(r)->format, ".npy");
    assert_true(wf_raster_read_window(r, &one, 0, 1, WF_F32, &value, &err));
    assert_true(value == 3);
    wf_raster_close(r);
    check_refused("./picture.png:/inside", WF_F32, "a .npy file has no '/inside' inside");
    check_refused("./nothing-here.png", WF_F32, "cannot open './nothing-here.png'");
    check_refused("list.txt", WF_F32, "not an image that is known here: convert it to PNG");
    check_refused("h5_chunks.h5", WF_F32, "several datasets, 'image' and others: name one, as in");
    check_refused("h5_chunks.h5:/a/b", WF_F32, "no dataset '/a/b' in it: list them with 'h5ls -r'");
    check_refused("h5_chunks.h5:/a/nothing", WF_F32, "no dataset '/a/nothing'");
}

/* --- .nii.gz at any place --- */
#ifdef WF_HAVE_ZLIB
static int16_t voxel(int64_t i)
{
    /* Runs that pack well and noise that does not, so that blocks have all lengths. */
    return (int16_t)(i / 4096 % 3 ? (i * 2654435761u) >> 7 : i / 512);
}

static void write_volume(const char *path, int w, int h, int d, int members)
{
    unsigned char head[352] = { 0 };
    const int16_t dims[] = { 3, (int16_t)w, (int16_t)h, (int16_t)d, 1, 1, 1, 1 }, type = 4,
                  bits = 16;
    memcpy(head, &(int32_t){ 348 }, 4);
    memcpy(head + 40, dims, sizeof dims);
    memcpy(head + 70, &type, 2);
    memcpy(head + 72, &bits, 2);
    memcpy(head + 108, &(float){ 352 }, 4);
    memcpy(head + 344, "n+1", 4);
    const int64_t count = (int64_t)w * h * d;
    int16_t *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = voxel(i);
    gzFile file = gzopen(path, "wb1");
    assert_int_equal(gzwrite(file, head, sizeof head), sizeof head);
    for (int i = 0; i < members; i++) {
        const int64_t from = wf_split_point(count, members, i),
                      to = wf_split_point(count, members, i + 1);
        const unsigned bytes = (unsigned)((to - from) * (int64_t)sizeof *data);
        assert_int_equal(gzwrite(file, data + from, bytes), bytes);
        assert_int_equal(gzclose(file), Z_OK);
        file = i + 1 < members ? gzopen(path, "ab1") : NULL;
    }
    free(data);
}

static void check_volume(const char *path)
{
    struct wf_raster *r = open_well(path);
    const struct wf_raster_info *info = wf_raster_info(r);
    struct dice d = { wf_random(3, 4), 0 };
    int32_t room[3 * 5 * 40];
    struct wf_err err = { 0 };
    for (int i = 0; i < 60; i++) {
        struct wf_region at = { 0 };
        at.lo[WF_D] = throw(&d, info->depth - 2);
        at.lo[WF_H] = throw(&d, info->height - 4);
        at.lo[WF_W] = throw(&d, info->width - 39);
        at.hi[WF_D] = at.lo[WF_D] + 3;
        at.hi[WF_H] = at.lo[WF_H] + 5;
        at.hi[WF_W] = at.lo[WF_W] + 40;
        if (!wf_raster_read_window(r, &at, 0, 1, WF_I32, room, &err))
            fail_msg("%s", err.text);
        for (int z = 0; z < 3; z++)
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 40; x++)
                    assert_int_equal(
                        room[(z * 5 + y) * 40 + x],
                        voxel(((at.lo[WF_D] + z) * info->height + at.lo[WF_H] + y) * info->width +
                              at.lo[WF_W] + x));
    }
    wf_raster_close(r);
}

static void nii_gz__is_read_at_any_place(void **state)
{
    write_volume("one.nii.gz", 150, 140, 130, 1);
    check_volume("one.nii.gz");
    write_volume("many.nii.gz", 150, 140, 130, 7); /* packed in pieces, one after the other */
    check_volume("many.nii.gz");
}

static void nii_gz__with_a_wrong_byte_fails_its_checksum(void **state)
{
    write_volume("damaged.nii.gz", 64, 64, 64, 1);
    size_t size;
    unsigned char *bytes = slurp("damaged.nii.gz", &size);
    bytes[size - 7] ^= 1; /* in the checksum */
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_parse("damaged.nii.gz", bytes, size, &err);
    assert_non_null(r);
    const struct wf_region whole = whole_of(wf_raster_info(r));
    float *room = malloc((size_t)count_of(wf_raster_info(r)) * sizeof *room);
    assert_false(wf_raster_read_window(r, &whole, 0, 1, WF_F32, room, &err));
    assert_non_null(strstr(err.text, "the packed data is damaged: copy the file again"));
    free(room);
    wf_raster_close(r);
    free(bytes);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files__of_other_programs_have_their_values),
        cmocka_unit_test(windows__equal_the_part_of_the_whole),
        cmocka_unit_test(files__read_the_same_from_memory),
        cmocka_unit_test(window__that_is_empty_reads_nothing),
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(tiles__read_are_those_that_the_window_touches),
        cmocka_unit_test(strips__are_decoded_where_the_window_touches_and_kept),
        cmocka_unit_test(info__has_palette_resolution_and_georeferencing),
#endif
#ifdef WF_HAVE_PNG
        cmocka_unit_test(png__has_palette_and_resolution),
#endif
        cmocka_unit_test(values__that_do_not_fit_are_refused_with_their_place),
        cmocka_unit_test(floats__that_are_whole_numbers_are_labels),
        cmocka_unit_test(names__are_told_apart_by_content_and_colon),
#ifdef WF_HAVE_ZLIB
        cmocka_unit_test(nii_gz__is_read_at_any_place),
        cmocka_unit_test(nii_gz__with_a_wrong_byte_fails_its_checksum),
#endif
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
