/* Writing: what is written in windows comes back, other programs' tags survive, failures leave
 * nothing behind. (Other programs read the files in tests/interop/rasters.py.) */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "files.h"
#include "image/raster_format.h"
#include "support_scratch.h"

#define FOLDER WF_TEST_SOURCE_DIR "/tests/fixtures/image/"

/* A value for every place, exact in u8. */
static double value_at(int64_t i)
{
    return (double)((i * 37 + i / 101) % 251);
}

static void put_value(enum wf_sample sample, void *data, int64_t i, double value)
{
    switch (sample) {
    case WF_SAMPLE_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case WF_SAMPLE_U16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        break;
    case WF_SAMPLE_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((float *)data)[i] = (float)value;
    }
}

/* The window's samples as a caller would hand them over. */
static void *fill(const struct wf_raster_info *info, const struct wf_region *at)
{
    const int64_t count = wf_region_extent(*at, WF_D) * wf_region_extent(*at, WF_H) *
                          wf_region_extent(*at, WF_W) * info->channels;
    void *data = malloc((size_t)count * wf_sample_size(info->sample));
    assert_non_null(data);
    int64_t i = 0;
    for (int64_t d = at->lo[WF_D]; d < at->hi[WF_D]; d++)
        for (int64_t h = at->lo[WF_H]; h < at->hi[WF_H]; h++)
            for (int64_t w = at->lo[WF_W]; w < at->hi[WF_W]; w++)
                for (int c = 0; c < info->channels; c++, i++) {
                    const int64_t place =
                        ((d * info->height + h) * info->width + w) * info->channels + c;
                    const double value = value_at(place);
                    put_value(info->sample, data, i,
                              info->colors ? (int)value % info->colors : value);
                }
    return data;
}

/* Writes windows of `rows` rows and `columns` columns (0: all), planes in order, the windows of a plane
 * backwards where `backwards`. */
static bool write_all(struct wf_raster_writer *w, const struct wf_raster_info *info, int64_t rows,
                      int64_t columns, bool backwards, struct wf_err *err)
{
    if (!columns)
        columns = info->width;
    const int64_t down = wf_ceil_div(info->height, rows),
                  across = wf_ceil_div(info->width, columns);
    for (int64_t d = 0; d < info->depth; d++)
        for (int64_t n = 0; n < down * across; n++) {
            const int64_t i = backwards ? down * across - 1 - n : n;
            struct wf_region at = { .lo = { [WF_D] = d } };
            at.lo[WF_H] = i / across * rows;
            at.lo[WF_W] = i % across * columns;
            at.hi[WF_D] = d + 1;
            at.hi[WF_H] = wf_min(at.lo[WF_H] + rows, info->height);
            at.hi[WF_W] = wf_min(at.lo[WF_W] + columns, info->width);
            void *data = fill(info, &at);
            const bool ok = wf_raster_write_window(w, &at, data, err);
            free(data);
            if (!ok)
                return false;
        }
    return true;
}

static void check_back(const char *path, const struct wf_raster_info *info)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_open(path, &err);
    if (!r)
        fail_msg("%s", err.text);
    const struct wf_raster_info *got = wf_raster_info(r);
    assert_int_equal(got->depth, info->depth);
    assert_int_equal(got->height, info->height);
    assert_int_equal(got->width, info->width);
    assert_int_equal(got->channels, info->channels);
    assert_int_equal(got->sample, info->sample);
    for (int i = 0; i < info->colors; i++)
        assert_memory_equal(got->palette[i], info->palette[i], 3);
    const struct wf_region whole =
        wf_shape_region(WF_SHAPE(1, info->depth, info->height, info->width, info->channels));
    int32_t *values = malloc((size_t)wf_region_count(whole) * sizeof *values);
    if (!wf_raster_read_window(r, &whole, 0, info->channels, WF_I32, values, &err))
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < wf_region_count(whole); i++)
        if (values[i] != (info->colors ? (int)value_at(i) % info->colors : (int)value_at(i)))
            fail_msg("'%s': sample %" PRId64 " is %d", path, i, values[i]);
    free(values);
    wf_raster_close(r);
}

static void check_round_trip(const char *path, const struct wf_raster_info *info, int64_t rows,
                             int64_t columns, bool backwards)
{
    struct wf_err err = { 0 };
    struct wf_raster_writer *w = wf_raster_create(path, info, &err);
    if (!w)
        fail_msg("%s", err.text);
    const bool ok = write_all(w, info, rows, columns, backwards, &err);
    assert_int_not_equal(access(path, F_OK), 0); /* no name before it is complete */
    if (!wf_raster_writer_close(w, ok, &err))
        fail_msg("%s", err.text);
    check_back(path, info);
    assert_int_equal(unlink(path), 0);
}

#define IMAGE(d, h, w, c, s)                                                                       \
    (&(struct wf_raster_info){                                                                     \
        .depth = (d), .height = (h), .width = (w), .channels = (c), .sample = (s) })

static void npy__comes_back_as_it_was(void **state)
{
    check_round_trip("a.npy", IMAGE(1, 33, 21, 1, WF_SAMPLE_U8), 7, 0, false);
    check_round_trip("a.npy", IMAGE(1, 33, 21, 3, WF_SAMPLE_F32), 33, 0, false);
    check_round_trip("a.npy", IMAGE(1, 33, 21, 40, WF_SAMPLE_I32), 8, 0, false);
    check_round_trip("a.npy", IMAGE(4, 9, 21, 1, WF_SAMPLE_F32), 4, 0, false);
    check_round_trip("a.npy", IMAGE(4, 9, 21, 2, WF_SAMPLE_U8), 9, 0, false);
}

static void nifti__comes_back_as_it_was(void **state)
{
    static const char *const paths[] = {
        "a.nii",
#ifdef WF_HAVE_ZLIB
        "a.NII.gz",
#endif
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        check_round_trip(paths[i], IMAGE(1, 33, 21, 1, WF_SAMPLE_U8), 7, 5, true);
        check_round_trip(paths[i], IMAGE(4, 33, 21, 3, WF_SAMPLE_F32), 10, 0, true);
        check_round_trip(paths[i], IMAGE(4, 9, 21, 5, WF_SAMPLE_F32), 4, 8, false);
        check_round_trip(paths[i], IMAGE(4, 9, 21, 1, WF_SAMPLE_U16), 9, 0, true);
        check_round_trip(paths[i], IMAGE(2, 9, 21, 2, WF_SAMPLE_U8), 1, 1, true);
        check_round_trip(paths[i], IMAGE(2, 9, 21, 3, WF_SAMPLE_U8), 2, 7, true);
        check_round_trip(paths[i], IMAGE(2, 9, 21, 4, WF_SAMPLE_U8), 9, 0, false);
        check_round_trip(paths[i], IMAGE(1, 1, 1, 2, WF_SAMPLE_I32), 1, 0, false);
    }
}

#ifdef WF_HAVE_PNG
static void png__comes_back_as_it_was(void **state)
{
    check_round_trip("a.png", IMAGE(1, 33, 21, 1, WF_SAMPLE_U8), 7, 0, false);
    check_round_trip("a.png", IMAGE(1, 33, 21, 2, WF_SAMPLE_U8), 33, 0, false);
    check_round_trip("a.png", IMAGE(1, 33, 21, 3, WF_SAMPLE_U16), 1, 0, false);
    check_round_trip("a.PNG", IMAGE(1, 1, 1, 4, WF_SAMPLE_U8), 1, 0, false);
    struct wf_raster_info palette = *IMAGE(1, 20, 30, 1, WF_SAMPLE_U8);
    palette.colors = 5;
    for (int i = 0; i < 5; i++)
        palette.palette[i][i % 3] = (uint8_t)(50 * i);
    check_round_trip("a.png", &palette, 6, 0, false);
}
#endif

/* Two writers take turns over the tiles, one of them nothing in some rounds; a third has none at all. */
static void check_several_writers(const char *path)
{
    enum { WRITERS = 3, TILE_SIDE = 32 };
    struct wf_raster_info info = *IMAGE(2, 70, 100, 2, WF_SAMPLE_F32);
    info.tile.at[WF_H] = info.tile.at[WF_W] = TILE_SIDE;
    struct wf_err err = { 0 };
    struct wf_raster_writer *w[WRITERS] = { wf_raster_create(path, &info, &err) };
    assert_non_null(w[0]);
    for (int i = 1; i < WRITERS; i++) {
        w[i] = wf_raster_join(path, wf_raster_writer_partial(w[0]), &info, &err);
        assert_non_null(w[i]);
    }
    const int64_t down = wf_ceil_div(info.height, TILE_SIDE),
                  across = wf_ceil_div(info.width, TILE_SIDE), tiles = down * across * info.depth;
    for (int64_t i = 0; i < tiles;) {
        struct wf_raster_packed packed[WRITERS] = { 0 };
        uint64_t before = 0;
        for (int k = 0; k < 2 && i < tiles; k++, i++) {
            if (k == 1 && i % 5 == 0)
                break;
            const int64_t n = i * 7 % tiles; /* in no order */
            struct wf_region at = { .lo = { [WF_D] = n / (down * across) } };
            at.lo[WF_H] = n / across % down * TILE_SIDE;
            at.lo[WF_W] = n % across * TILE_SIDE;
            at.hi[WF_D] = at.lo[WF_D] + 1;
            at.hi[WF_H] = wf_min(at.lo[WF_H] + TILE_SIDE, info.height);
            at.hi[WF_W] = wf_min(at.lo[WF_W] + TILE_SIDE, info.width);
            void *data = fill(&info, &at);
            assert_true(wf_raster_pack_window(w[k], &at, data, &packed[k], &err));
            free(data);
        }
        const uint64_t all = packed[0].bytes.size + packed[1].bytes.size + packed[2].bytes.size;
        for (int k = 0; k < WRITERS; k++) {
            struct wf_raster_packed *const mine[] = { &packed[k] };
            const uint64_t bytes = packed[k].bytes.size;
            assert_true(wf_raster_place_packed(w[k], 1, mine, before, all, &err));
            before += bytes;
            wf_raster_packed_release(&packed[k]);
        }
    }
    size_t count;
    int64_t *const all = wf_raster_writer_table(w[0], &count);
    for (int k = 1; k < WRITERS; k++) {
        const int64_t *const table = wf_raster_writer_table(w[k], &count);
        for (size_t i = 0; i < count; i++)
            all[i] += table[i];
        assert_int_equal(access(path, F_OK), -1);
        assert_true(wf_raster_writer_close(w[k], true, &err));
    }
    assert_true(wf_raster_writer_close(w[0], true, &err));
    check_back(path, &info);
    assert_int_equal(count_files(".", ".partial"), 0);
    assert_null(wf_raster_join(path, "gone.partial", &info, &err));
    assert_non_null(strstr(err.text, "give a folder that all machines see"));
    assert_int_equal(unlink(path), 0);
}

static void nifti__takes_several_writers(void **state)
{
    check_several_writers("many.nii");
#ifdef WF_HAVE_ZLIB
    check_several_writers("many.nii.gz");
#endif
    assert_true(wf_raster_shares("a.TIFF") && wf_raster_shares("a.nii.gz") &&
                !wf_raster_shares("a.png") && !wf_raster_shares("a.npy"));
}

#ifdef WF_HAVE_TIFF
static void tiff__comes_back_as_it_was(void **state)
{
    struct wf_raster_info tiles = *IMAGE(1, 100, 130, 3, WF_SAMPLE_U8);
    tiles.tile = WF_SHAPE(1, 1, 32, 48, 3);
    check_round_trip("a.tif", &tiles, 32, 48, true);
    check_round_trip("a.tif", &tiles, 64, 0, false);
    check_round_trip("a.tif", &tiles, 128, 96, true);
    check_round_trip("a.tiff", IMAGE(1, 300, 513, 1, WF_SAMPLE_F32), 256, 256, false);
    check_round_trip("a.tif", IMAGE(1, 300, 20, 7, WF_SAMPLE_F32), 256, 0, true);
    check_round_trip("a.tif", IMAGE(1, 40, 50, 4, WF_SAMPLE_U16), 256, 256, false);
    check_round_trip("a.tif", IMAGE(5, 40, 50, 1, WF_SAMPLE_U16), 256, 256, false);
    check_round_trip("a.tif", IMAGE(1, 40, 50, 2, WF_SAMPLE_I32), 256, 256, false);
    struct wf_raster_info palette = *IMAGE(3, 20, 30, 1, WF_SAMPLE_U8);
    palette.colors = 7;
    for (int i = 0; i < 7; i++)
        palette.palette[i][i % 3] = (uint8_t)(30 * i);
    check_round_trip("a.tif", &palette, 256, 0, false);
}

/* Whole planes at once are planes in order. */
static void tiff__takes_several_planes_in_one_window(void **state)
{
    const struct wf_raster_info *info = IMAGE(5, 20, 30, 1, WF_SAMPLE_U8);
    struct wf_err err = { 0 };
    struct wf_raster_writer *w = wf_raster_create("planes.tif", info, &err);
    assert_non_null(w);
    for (int64_t d = 0; d < 5; d += 2) {
        struct wf_region at = { .lo = { [WF_D] = d } };
        at.hi[WF_D] = wf_min(d + 2, 5);
        at.hi[WF_H] = 20;
        at.hi[WF_W] = 30;
        void *data = fill(info, &at);
        assert_true(wf_raster_write_window(w, &at, data, &err));
        free(data);
    }
    assert_true(wf_raster_writer_close(w, true, &err));
    check_back("planes.tif", info);
}

static void tiff__keeps_georeferencing_and_resolution(void **state)
{
    static const char *const sources[] = { FOLDER "tiff_tile_f32_big.tif",
                                           FOLDER "tiff_tile_rgb8_deflate.tif" };
    for (int i = 0; i < 2; i++) {
        struct wf_err err = { 0 };
        struct wf_raster *source = wf_raster_open(sources[i], &err);
        assert_non_null(source);
        struct wf_raster_info info = *IMAGE(2, 19, 37, 1, WF_SAMPLE_U8);
        info.place = wf_raster_info(source)->place;
        struct wf_raster_writer *w = wf_raster_create("place.tif", &info, &err);
        assert_non_null(w);
        const bool ok = write_all(w, &info, 256, 256, false, &err);
        if (!wf_raster_writer_close(w, ok, &err))
            fail_msg("%s", err.text);
        struct wf_raster *copy = wf_raster_open("place.tif", &err);
        assert_non_null(copy);
        const struct wf_raster_place *a = wf_raster_info(source)->place,
                                     *b = wf_raster_info(copy)->place;
        assert_non_null(b);
        assert_int_equal(a->geo_count, b->geo_count);
        assert_true(a->x == b->x && a->y == b->y && (a->x == 0 || a->unit == b->unit));
        for (int g = 0; g < a->geo_count; g++) {
            assert_int_equal(a->geo[g].tag, b->geo[g].tag);
            assert_int_equal(a->geo[g].type, b->geo[g].type);
            assert_int_equal(a->geo[g].count, b->geo[g].count);
            const size_t size = a->geo[g].type == WF_GEO_DOUBLE  ? 8
                                : a->geo[g].type == WF_GEO_SHORT ? 2
                                                                 : 1;
            assert_memory_equal(a->geo[g].data, b->geo[g].data, a->geo[g].count * size);
        }
        wf_raster_close(source);
        wf_raster_close(copy);
    }
}

static void tiff__takes_several_writers(void **state)
{
    check_several_writers("many.tif");
}

static void tiff__is_big_where_it_may_pass_four_gigabytes(void **state)
{
    for (int big = 0; big < 2; big++) {
        struct wf_err err = { 0 };
        struct wf_raster_writer *w = wf_raster_create(
            "big.tif", IMAGE(1, big ? 40000 : 20000, 40000, 3, WF_SAMPLE_U8), &err);
        assert_non_null(w);
        DIR *dir = opendir(".");
        bool seen = false;
        for (const struct dirent *at; (at = readdir(dir));)
            if (strstr(at->d_name, "big.tif") && strstr(at->d_name, ".partial")) {
                FILE *file = fopen(at->d_name, "rb");
                unsigned char magic[4];
                assert_int_equal(fread(magic, 1, 4, file), 4);
                assert_memory_equal(magic, big ? "II\x2b\0" : "II\x2a\0", 4);
                (void)fclose(file);
                seen = true;
            }
        (void)closedir(dir);
        assert_true(seen);
        assert_false(wf_raster_writer_close(w, false, &err));
        assert_int_equal(count_files(".", ".partial"), 0);
        assert_int_not_equal(access("big.tif", F_OK), 0);
    }
}
#endif

/* --- failures --- */
static void check_create_refused(const char *path, const struct wf_raster_info *info,
                                 const char *words)
{
    struct wf_err err = { 0 };
    assert_null(wf_raster_create(path, info, &err));
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_int_equal(count_files(".", ".partial"), 0);
}

static void writers__refuse_what_their_format_cannot_hold(void **state)
{
    check_create_refused("a.bmp", IMAGE(1, 2, 2, 1, WF_SAMPLE_U8),
                         "its name says no format: end it in .tif");
    check_create_refused(".png", IMAGE(1, 2, 2, 1, WF_SAMPLE_U8), "its name says no format");
    check_create_refused("a.npy", IMAGE(1, 2, 2, 1, WF_SAMPLE_U16),
                         "no u16 in .npy here: write f32, or a .tif");
#ifdef WF_HAVE_PNG
    check_create_refused("a.png", IMAGE(2, 2, 2, 1, WF_SAMPLE_U8), "PNG holds one plane");
    check_create_refused("a.png", IMAGE(1, 2, 2, 5, WF_SAMPLE_U8),
                         "not 1 of 5 channels of u8: write a .tif");
    check_create_refused("a.png", IMAGE(1, 2, 2, 1, WF_SAMPLE_F32), "of f32: write a .tif");
#endif
    check_create_refused("a.nii", IMAGE(1, 2, 2, 1, WF_SAMPLE_F16),
                         "no f16 in NIfTI: write f32, or a .tif file");
    check_create_refused("a.nii", IMAGE(1, 2, 32768, 1, WF_SAMPLE_U8),
                         "at most 32767 voxels on an axis, not 1 x 2 x 32768: write a .tif file");
    check_create_refused("no/such/folder/a.nii", IMAGE(1, 2, 2, 1, WF_SAMPLE_U8),
                         "No such file or directory");
    check_create_refused("no/such/folder/a.npy", IMAGE(1, 2, 2, 1, WF_SAMPLE_F32),
                         "No such file or directory");
#ifdef WF_HAVE_TIFF
    check_create_refused("no/such/folder/a.tif", IMAGE(1, 2, 2, 1, WF_SAMPLE_U8),
                         "No such file or directory");
    struct wf_raster_info palette = *IMAGE(1, 2, 2, 3, WF_SAMPLE_U8);
    palette.colors = 2;
    check_create_refused("a.tif", &palette, "a palette needs one channel of u8, not 3 of u8");
#endif
}

/* Noise, so that packing does not save the disk, which is full from the start, or when all windows have
 * been written. */
static void check_full_disk(const char *path, bool at_end)
{
    const struct wf_raster_info *info = IMAGE(1, 512, 512, 1, WF_SAMPLE_U8);
    uint8_t *noise = malloc(512 * 512);
    assert_non_null(noise);
    for (int n = 0; n < 512 * 512; n++)
        noise[n] = (uint8_t)wf_random_bits(wf_random(1, 2), (uint64_t)n);
    struct wf_err err = { 0 };
    limit_files(at_end ? 0 : 100000);
    struct wf_raster_writer *w = wf_raster_create(path, info, &err);
    assert_non_null(w);
    const struct wf_region whole = wf_shape_region(WF_SHAPE(1, 1, 512, 512, 1));
    const bool ok = wf_raster_write_window(w, &whole, noise, &err);
    limit_files(100000);
    assert_false(wf_raster_writer_close(w, ok, &err));
    limit_files(0);
    if (!strstr(err.text, path) || !strstr(err.text, "File too large"))
        fail_msg("%s", err.text);
    assert_int_equal(count_files(".", ".partial"), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    free(noise);
}

static void full_disk__leaves_nothing_behind(void **state)
{
    check_full_disk("full.npy", false);
#ifdef WF_HAVE_PNG
    check_full_disk("full.png", false);
#endif
#ifdef WF_HAVE_TIFF
    check_full_disk("full.tif", false);
#endif
    check_full_disk("full.nii", false);
#ifdef WF_HAVE_ZLIB
    check_full_disk("full.nii.gz", false);
    check_full_disk("full.nii.gz", true); /* while it is packed */
#endif
}

static void giving_up__keeps_what_had_the_name(void **state)
{
    check_round_trip("kept.npy", IMAGE(1, 4, 4, 1, WF_SAMPLE_F32), 4, 0, false);
    struct wf_err err = { 0 };
    struct wf_raster_writer *w =
        wf_raster_create("kept.npy", IMAGE(1, 4, 4, 1, WF_SAMPLE_F32), &err);
    assert_non_null(w);
    assert_true(write_all(w, IMAGE(1, 4, 4, 1, WF_SAMPLE_F32), 4, 0, false, &err));
    assert_true(wf_raster_writer_close(w, true, &err));
    w = wf_raster_create("kept.npy", IMAGE(1, 9, 9, 1, WF_SAMPLE_F32), &err);
    assert_non_null(w);
    assert_false(wf_raster_writer_close(w, false, &err));
    check_back("kept.npy", IMAGE(1, 4, 4, 1, WF_SAMPLE_F32));
}

#ifdef WF_HAVE_PNG
static void palette__index_past_its_end_is_refused(void **state)
{
    struct wf_raster_info info = *IMAGE(1, 1, 3, 1, WF_SAMPLE_U8);
    info.colors = 3;
    struct wf_err err = { 0 };
    struct wf_raster_writer *w = wf_raster_create("index.png", &info, &err);
    assert_non_null(w);
    const struct wf_region whole = wf_shape_region(WF_SHAPE(1, 1, 1, 3, 1));
    const bool ok = wf_raster_write_window(w, &whole, (uint8_t[]){ 0, 2, 3 }, &err);
    assert_false(wf_raster_writer_close(w, ok, &err));
    assert_non_null(strstr(err.text, "index 3, the palette has 3 colours"));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy__comes_back_as_it_was),
        cmocka_unit_test(nifti__comes_back_as_it_was),
        cmocka_unit_test(nifti__takes_several_writers),
#ifdef WF_HAVE_PNG
        cmocka_unit_test(png__comes_back_as_it_was),
        cmocka_unit_test(palette__index_past_its_end_is_refused),
#endif
#ifdef WF_HAVE_TIFF
        cmocka_unit_test(tiff__comes_back_as_it_was),
        cmocka_unit_test(tiff__takes_several_planes_in_one_window),
        cmocka_unit_test(tiff__keeps_georeferencing_and_resolution),
        cmocka_unit_test(tiff__takes_several_writers),
        cmocka_unit_test(tiff__is_big_where_it_may_pass_four_gigabytes),
#endif
        cmocka_unit_test(writers__refuse_what_their_format_cannot_hold),
        cmocka_unit_test(full_disk__leaves_nothing_behind),
        cmocka_unit_test(giving_up__keeps_what_had_the_name),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
