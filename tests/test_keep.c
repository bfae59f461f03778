/*
 * Decoded images that are kept in memory: the numbers of the files, from any thread, with any limit; and files are
 * decoded once.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "data/dataset_inside.h"
#include "support_data.h"
#include "support_scratch.h"

enum { HIGH = 700, WIDE = 900, DEEP = 9, WINDOWS = 60, THREADS = 4 };

static uint32_t drawn(uint64_t index, uint32_t below)
{
    return wf_random_below(wf_random(5, 1), index, below);
}

/* A picture of bytes in tiles, one of rows from the top, one of words; masks of other grids of tiles. */
static int make_sets(void **state)
{
    if (support_scratch_enter(state) != 0)
        return -1;
    support_folder("flat/images");
    support_folder("flat/masks");
    support_folder("deep/images");
    support_folder("deep/masks");
    const int64_t count = (int64_t)HIGH * WIDE * 3;
    uint8_t *const bytes = malloc((size_t)count);
    uint16_t *const words = malloc((size_t)count * sizeof *words);
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)drawn((uint64_t)i, 256);
        words[i] = (uint16_t)drawn((uint64_t)i, 60000);
    }
    support_bytes("flat/images/a.tif", HIGH, WIDE, 3, bytes);
    support_bytes("flat/images/b.png", HIGH, WIDE, 3, bytes);
    struct support_picture p = { .depth = 1,
                                 .height = HIGH,
                                 .width = WIDE,
                                 .channels = 3,
                                 .sample = WF_SAMPLE_U16,
                                 .data = words };
    support_write("flat/images/c.tif", &p);
    for (int64_t i = 0; i < count / 3; i++)
        bytes[i] = (uint8_t)drawn((uint64_t)i, 4);
    support_bytes("flat/masks/a.png", HIGH, WIDE, 1, bytes);
    support_bytes("flat/masks/b.tif", HIGH, WIDE, 1, bytes);
    support_bytes("flat/masks/c.png", HIGH, WIDE, 1, bytes);
    float volume[DEEP * 20 * 30]; /* numbers that are not whole */
    for (int i = 0; i < DEEP * 20 * 30; i++)
        volume[i] = (float)drawn((uint64_t)i, 1000) / 7;
    p = (struct support_picture){ .depth = DEEP,
                                  .height = 20,
                                  .width = 30,
                                  .channels = 1,
                                  .sample = WF_SAMPLE_F32,
                                  .data = volume };
    support_write("deep/images/v.nii.gz", &p);
    p.sample = WF_SAMPLE_U8;
    p.data = bytes;
    support_write("deep/masks/v.nii.gz", &p);
    free(bytes);
    free(words);
    return 0;
}

static struct wf_region window_of(const struct wf_dataset *ds, int64_t sample, uint64_t index)
{
    struct wf_region w = wf_dataset_extent(ds, sample);
    for (int a = WF_D; a <= WF_W; a++) {
        const uint32_t extent = (uint32_t)w.hi[a];
        const uint64_t key = index * 16 + (uint64_t)a;
        w.lo[a] = drawn(key, extent);
        w.hi[a] = w.lo[a] + 1 + drawn(key + 8, extent - (uint32_t)w.lo[a]);
    }
    return w;
}

static struct wf_dataset *open_kept(const char *path, int64_t limit)
{
    struct wf_err err = { 0 };
    const struct wf_dataset_options options = { .cache = limit };
    struct wf_dataset *const ds = wf_dataset_open(path, &options, &err);
    if (!ds)
        fail_msg("%s", err.text);
    return ds;
}

/* Reads windows of all samples by both; the bytes of files that the second read. */
static uint64_t compare(const char *path, int64_t limit)
{
    struct wf_dataset *const plain = support_open(path);
    struct wf_dataset *const kept = open_kept(path, limit);
    const uint64_t before = wf_dataset_bytes_read(kept);
    bool same = true;
#pragma omp parallel for num_threads(THREADS) reduction(&& : same) schedule(dynamic)
    for (int i = 0; i < WINDOWS; i++) {
        struct wf_err mine = { 0 };
        const int64_t sample = i % wf_dataset_info(kept)->samples;
        const struct wf_region w = window_of(kept, sample, (uint64_t)i);
        const size_t count = (size_t)wf_window_pixels(&w), each = (size_t)w.hi[WF_C];
        float *const a = malloc(count * each * sizeof *a), *const b =
                                                               malloc(count * each * sizeof *b);
        int32_t *const m = malloc(count * sizeof *m), *const n = malloc(count * sizeof *n);
        same = same && wf_dataset_read(plain, sample, &w, a, m, &mine) &&
               wf_dataset_read(kept, sample, &w, b, n, &mine) &&
               memcmp(a, b, count * each * sizeof *a) == 0 && memcmp(m, n, count * sizeof *m) == 0;
        free(a);
        free(b);
        free(m);
        free(n);
    }
    const uint64_t moved = wf_dataset_bytes_read(kept) - before;
    wf_dataset_free(kept);
    wf_dataset_free(plain);
    assert_true(same);
    return moved;
}

static void kept_images__have_the_numbers_of_their_files(void **state)
{
    (void)state;
    const uint64_t all = compare("flat", INT64_C(1) << 40);
    const uint64_t none = compare("flat", 1);
    const uint64_t some = compare("flat", 3 << 20);
    assert_true(all * 2 < none); /* 20 windows of each, mostly large, of which one decodes */
    assert_true(some < none);
    (void)compare("deep", INT64_C(1) << 40);
    (void)compare("deep", 1000);
    (void)compare("flat", -1); /* as the machine has it */
}

enum { TALL = 1500, ROW = 1200 };

/* Bytes of files that are read for the last row, and for the first behind it. */
static void read_both_ends(int64_t limit, uint64_t moved[2])
{
    struct wf_err err = { 0 };
    struct wf_dataset *const ds = open_kept("tall", limit);
    for (int i = 0; i < 2; i++) {
        float pixels[3];
        struct wf_region w = wf_dataset_extent(ds, 0);
        w.lo[WF_H] = i == 0 ? TALL - 1 : 0;
        w.hi[WF_H] = w.lo[WF_H] + 1;
        w.hi[WF_W] = 1;
        const uint64_t before = wf_dataset_bytes_read(ds);
        assert_true(wf_dataset_read(ds, 0, &w, pixels, NULL, &err));
        moved[i] = wf_dataset_bytes_read(ds) - before;
        for (int c = 0; c < 3; c++)
            assert_true(pixels[c] ==
                        (float)drawn((uint64_t)(w.lo[WF_H] * ROW * 3) + (uint64_t)c, 256));
    }
    wf_dataset_free(ds);
}

/* A picture of two blocks that is read from the top: the way to the second passes the first. */
static void blocks_passed_on_the_way__are_kept(void **state)
{
    (void)state;
    const int64_t count = (int64_t)TALL * ROW * 3;
    uint8_t *const bytes = malloc((size_t)count);
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)drawn((uint64_t)i, 256);
    support_folder("tall/images");
    support_folder("tall/masks");
    support_bytes("tall/images/a.png", TALL, ROW, 3, bytes);
    memset(bytes, 0, (size_t)(count / 3));
    support_bytes("tall/masks/a.tif", TALL, ROW, 1, bytes);
    free(bytes);
    uint64_t moved[2];
    read_both_ends(INT64_C(1) << 40, moved);
    assert_true(moved[0] >= (uint64_t)count); /* noise is not packed */
    assert_int_equal(moved[1], 0);
    read_both_ends(10 << 20, moved); /* half of it is for what is asked for */
    assert_true(moved[1] >= (uint64_t)count);
}

/* It is refused where it is read. */
static void what_is_wrong_in_front__spoils_nothing_behind_it(void **state)
{
    (void)state;
    enum { PLANES = 3 };
    const size_t count = (size_t)PLANES * TALL * ROW;
    float *const numbers = calloc(count, sizeof *numbers);
    uint8_t *const zeros = calloc(count, 1);
    numbers[5] = NAN;
    struct support_picture p = { .depth = PLANES,
                                 .height = TALL,
                                 .width = ROW,
                                 .channels = 1,
                                 .sample = WF_SAMPLE_F32,
                                 .data = numbers };
    support_folder("odd/images");
    support_folder("odd/masks");
    support_write("odd/images/v.nii.gz", &p);
    p.sample = WF_SAMPLE_U8;
    p.data = zeros;
    support_write("odd/masks/v.nii.gz", &p);
    struct wf_err err = { 0 };
    struct wf_dataset *const ds = open_kept("odd", INT64_C(1) << 40);
    for (int i = 0; i < 2; i++) {
        float pixel[2];
        struct wf_region w = wf_dataset_extent(ds, 0);
        w.lo[WF_D] = i == 0 ? PLANES - 1 : 0;
        w.hi[WF_D] = w.lo[WF_D] + 1;
        w.hi[WF_H] = 1;
        w.hi[WF_W] = 2;
        assert_true(wf_dataset_read(ds, 0, &w, pixel, NULL, &err) == (i == 0));
    }
    assert_non_null(strstr(err.text, "NaN at plane 0"));
    wf_dataset_free(ds);
    free(numbers);
    free(zeros);
}

static void blocks__are_tiles_or_bands_of_rows(void **state)
{
    (void)state;
    struct wf_blocks b;
    struct wf_raster_info tiled = { .depth = 1, .height = 5000, .width = 7000, .channels = 3 };
    tiled.tile = WF_SHAPE(1, 1, 512, 512, 3);
    b = wf_keep_blocks(&tiled);
    assert_int_equal(b.at[0], 1);
    assert_int_equal(b.at[1], 512);
    assert_int_equal(b.at[2], 512);
    tiled.tile = WF_SHAPE(1, 1, 100, 64, 3); /* small tiles together */
    b = wf_keep_blocks(&tiled);
    assert_int_equal(b.at[1], 300);
    assert_int_equal(b.at[2], 256);
    struct wf_raster_info rows = { .depth = 1, .height = 5000, .width = 7000, .channels = 3 };
    rows.tile = WF_SHAPE(1, 1, 1, 7000, 3);
    rows.in_order = true;
    b = wf_keep_blocks(&rows);
    assert_int_equal(b.at[1], (4 << 20) / 21000);
    assert_int_equal(b.at[2], 7000);
    rows.depth = 100, rows.height = 64, rows.width = 64, rows.channels = 1;
    b = wf_keep_blocks(&rows);
    assert_int_equal(b.at[0], 100);
    assert_int_equal(b.at[1], 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kept_images__have_the_numbers_of_their_files, make_sets,
                                        support_scratch_leave),
        cmocka_unit_test_setup_teardown(what_is_wrong_in_front__spoils_nothing_behind_it,
                                        support_scratch_enter, support_scratch_leave),
        cmocka_unit_test_setup_teardown(blocks_passed_on_the_way__are_kept, support_scratch_enter,
                                        support_scratch_leave),
        cmocka_unit_test(blocks__are_tiles_or_bands_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
