/* What is drawn when: orders are permutations, draws are functions, splits keep apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader.h"
#include "support_data.h"
#include "support_scratch.h"

static void order__takes_each_item_once_for_50_epochs(void **state)
{
    static const int64_t counts[] = { 1, 2, 3, 7, 16, 17, 100, 1000 };
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const int64_t n = counts[k];
        int different = 0;
        int64_t *last = calloc((size_t)n, sizeof *last);
        assert_non_null(last);
        for (int64_t epoch = 0; epoch < 50; epoch++) {
            bool *seen = calloc((size_t)n, sizeof *seen);
            assert_non_null(seen);
            bool same = epoch > 0;
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = wf_sampler_order(9, epoch, n, i);
                assert_in_range(at, 0, n - 1);
                assert_false(seen[at]);
                seen[at] = true;
                same = same && last[i] == at;
                last[i] = at;
            }
            different += !same;
            free(seen);
        }
        assert_true(n < 7 || different == 50);
        free(last);
    }
}

/* Every item comes first about equally often. */
static void order__has_no_favourites(void **state)
{
    enum { ITEMS = 10, EPOCHS = 5000 };
    int first[ITEMS] = { 0 }, last[ITEMS] = { 0 };
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        first[wf_sampler_order(3, epoch, ITEMS, 0)]++;
        last[wf_sampler_order(3, epoch, ITEMS, ITEMS - 1)]++;
    }
    for (int i = 0; i < ITEMS; i++) { /* 500 expected, deviation 21 */
        assert_in_range(first[i], 400, 600);
        assert_in_range(last[i], 400, 600);
    }
}

static void make_set(const char *path, int count, int64_t h, int64_t w)
{
    const int64_t extent[WF_AXES] = { 1, 1, h, w, 0 };
    for (int i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%02d", i);
        support_pair(path, name, extent, 1, 3);
    }
}

static void split__keeps_parts_apart_and_follows_the_seed(void **state)
{
    make_set("split", 20, 4, 4);
    struct wf_dataset *ds = support_open("split");
    struct wf_split a, b, c;
    wf_split_init(&a, ds, 0.25, 1);
    wf_split_init(&b, ds, 0.25, 1);
    wf_split_init(&c, ds, 0.25, 2);
    assert_int_equal(a.n_valid, 5);
    assert_int_equal(a.n_train, 15);
    bool seen[20] = { 0 };
    for (int i = 0; i < 20; i++) {
        const int64_t at = i < 5 ? a.valid[i] : a.train[i - 5];
        assert_false(seen[at]);
        seen[at] = true;
    }
    assert_memory_equal(a.valid, b.valid, 5 * sizeof *a.valid);
    assert_memory_not_equal(a.valid, c.valid, 5 * sizeof *a.valid);
    wf_split_release(&a);
    wf_split_release(&b);
    wf_split_release(&c);
    /* never all, never none when asked for */
    wf_split_init(&a, ds, 0.001, 1);
    assert_int_equal(a.n_valid, 1);
    wf_split_release(&a);
    wf_split_init(&a, ds, 0.9999, 1);
    assert_int_equal(a.n_train, 1);
    wf_split_release(&a);
    wf_split_init(&a, ds, 0, 1);
    assert_int_equal(a.n_valid, 0);
    wf_split_release(&a);
    wf_dataset_free(ds);
}

static void draws__are_functions_of_epoch_and_item_and_stay_inside(void **state)
{
    make_set("draws", 1, 20, 33);
    struct wf_dataset *ds = support_open("draws");
    const struct wf_draw_rule rule = { .seed = 4,
                                       .crop = { 0, 1, 7, 12, 0 },
                                       .augment = WF_AUGMENT_FLIP | WF_AUGMENT_ROT90 |
                                                  WF_AUGMENT_BRIGHTNESS | WF_AUGMENT_CONTRAST };
    int turns[4] = { 0 }, flips = 0, edge_low = 0, edge_high = 0;
    for (int64_t i = 0; i < 2000; i++) {
        const struct wf_draw a = wf_sampler_draw(ds, &rule, 0, i / 100, i);
        const struct wf_draw b = wf_sampler_draw(ds, &rule, 0, i / 100, i);
        assert_memory_equal(&a.change.origin, &b.change.origin, sizeof a.change.origin);
        assert_true(a.change.gain == b.change.gain && a.change.field == b.change.field);
        int64_t extent[WF_AXES];
        wf_change_source_extent(&a.change, a.crop, extent);
        assert_in_range(a.change.origin[WF_H], 0, 20 - extent[WF_H]);
        assert_in_range(a.change.origin[WF_W], 0, 33 - extent[WF_W]);
        assert_true(a.change.gain >= 0.75f && a.change.gain < 1.25f);
        assert_true(a.change.shift >= -0.25f && a.change.shift < 0.25f);
        turns[a.change.turns]++;
        flips += a.change.flip[WF_W];
        assert_false(a.change.flip[WF_D]);
        edge_low += a.change.origin[WF_H] == 0;
        edge_high += a.change.origin[WF_H] == 20 - extent[WF_H];
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(turns[i], 400, 600);
    assert_in_range(flips, 900, 1100);
    assert_true(edge_low > 60 && edge_high > 60);
    wf_dataset_free(ds);
}

static void mirrors__swap_left_and_right_only(void **state)
{
    make_set("mirror", 1, 20, 33);
    struct wf_dataset *ds = support_open("mirror");
    const struct wf_draw_rule rule = { .seed = 4,
                                       .crop = { 0, 1, 20, 33, 0 },
                                       .augment = WF_AUGMENT_MIRROR };
    int swapped = 0;
    for (int64_t i = 0; i < 2000; i++) {
        const struct wf_draw d = wf_sampler_draw(ds, &rule, 0, 0, i);
        assert_false(d.change.flip[WF_H]);
        swapped += d.change.flip[WF_W];
    }
    assert_in_range(swapped, 900, 1100);
    wf_dataset_free(ds);
}

static void draws__of_a_long_crop_turn_half_way_only(void **state)
{
    make_set("long", 1, 8, 30);
    struct wf_dataset *ds = support_open("long");
    const struct wf_draw_rule rule = { .seed = 4,
                                       .crop = { 0, 1, 8, 20, 0 },
                                       .augment = WF_AUGMENT_ROT90 };
    int half = 0;
    for (int64_t i = 0; i < 200; i++) {
        const struct wf_draw d = wf_sampler_draw(ds, &rule, 0, 0, i);
        assert_int_equal(d.change.turns % 2, 0);
        half += d.change.turns == 2;
    }
    assert_in_range(half, 60, 140);
    wf_dataset_free(ds);
}

/* One pixel in 10,000 is of class 1: balanced crops hold it half of the time. */
static void balance__finds_what_is_rare(void **state)
{
    enum { SIDE = 100 };
    static uint8_t image[SIDE * SIDE], mask[SIDE * SIDE];
    mask[37 * SIDE + 81] = 1;
    support_folder("rare/images");
    support_folder("rare/masks");
    struct support_picture p = {
        .depth = 1, .height = SIDE, .width = SIDE, .channels = 1, .data = image
    };
    support_write("rare/images/a.npy", &p);
    p.data = mask;
    support_write("rare/masks/a.npy", &p);
    struct wf_dataset *ds = support_open("rare");
    struct wf_err err = { 0 };
    const int64_t sample = 0;
    struct wf_balance *balance = wf_balance_new(ds, &sample, 1, &err);
    assert_non_null(balance);
    struct wf_draw_rule rule = { .seed = 4, .crop = { 0, 1, 10, 10, 0 }, .balance = balance };
    int hits = 0;
    for (int64_t i = 0; i < 1000; i++) {
        const struct wf_draw d = wf_sampler_draw(ds, &rule, 0, 0, i);
        hits += d.change.origin[WF_H] <= 37 && d.change.origin[WF_H] > 27 &&
                d.change.origin[WF_W] <= 81 && d.change.origin[WF_W] > 71;
        assert_in_range(d.change.origin[WF_H], 0, 90);
    }
    assert_in_range(hits, 430, 600);
    wf_balance_free(balance);
    wf_dataset_free(ds);
}

/* The items of a batch do not know of meshes or threads; over an epoch each sample comes once. */
static void loader__takes_each_sample_once_in_an_epoch(void **state)
{
    make_set("epochs", 12, 6, 6);
    struct wf_dataset *ds = support_open("epochs");
    struct wf_err err = { 0 };
    struct wf_loader *loader = wf_loader_new(
        ds, &(struct wf_loader_options){ .batch = 3, .seed = 5, .validation = 0.25 }, &err);
    assert_non_null(loader);
    assert_int_equal(wf_loader_batches(loader), 3);
    for (int64_t epoch = 0; epoch < 50; epoch++) {
        int seen[12] = { 0 };
        for (int64_t i = 0; i < 9; i++)
            seen[wf_loader_item(loader, epoch, i / 3, i % 3).draw.sample]++;
        int all = 0;
        for (int i = 0; i < 12; i++) {
            assert_true(seen[i] <= 1);
            all += seen[i];
        }
        assert_int_equal(all, 9);
    }
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

/* Crops of the validation cover every pixel, and each counts once. */
static void loader__validation_counts_each_pixel_once(void **state)
{
    make_set("cover", 3, 17, 23);
    struct wf_dataset *ds = support_open("cover");
    struct wf_err err = { 0 };
    struct wf_loader *loader =
        wf_loader_new(ds,
                      &(struct wf_loader_options){
                          .part = WF_PART_ALL, .batch = 4, .seed = 5, .crop = { 0, 1, 8, 10, 0 } },
                      &err);
    assert_non_null(loader);
    assert_int_equal(wf_loader_batches(loader), 7);
    static int counted[3][17][23];
    for (int64_t i = 0; i < 28; i++) {
        const struct wf_loader_item item = wf_loader_item(loader, 0, i / 4, i % 4);
        for (int64_t h = item.counts.lo[WF_H]; h < item.counts.hi[WF_H]; h++)
            for (int64_t w = item.counts.lo[WF_W]; w < item.counts.hi[WF_W]; w++)
                counted[item.draw.sample][item.draw.change.origin[WF_H] + h]
                       [item.draw.change.origin[WF_W] + w]++;
    }
    for (int s = 0; s < 3; s++)
        for (int h = 0; h < 17; h++)
            for (int w = 0; w < 23; w++)
                assert_int_equal(counted[s][h][w], 1);
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order__takes_each_item_once_for_50_epochs),
        cmocka_unit_test(order__has_no_favourites),
        cmocka_unit_test(split__keeps_parts_apart_and_follows_the_seed),
        cmocka_unit_test(draws__are_functions_of_epoch_and_item_and_stay_inside),
        cmocka_unit_test(mirrors__swap_left_and_right_only),
        cmocka_unit_test(draws__of_a_long_crop_turn_half_way_only),
        cmocka_unit_test(balance__finds_what_is_rare),
        cmocka_unit_test(loader__takes_each_sample_once_in_an_epoch),
        cmocka_unit_test(loader__validation_counts_each_pixel_once),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
