/* Batches: a window of a changed crop equals the same part of the whole, to the bit, for every change;
 * threads and meshes do not show; what is wrong with the data is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "data/loader.h"
#include "support_data.h"
#include "support_scratch.h"

static struct wf_dataset *make_set(const char *path, int count, const int64_t extent[WF_AXES],
                                   int channels, int classes)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%02d", i);
        support_pair(path, name, extent, channels, classes);
    }
    return support_open(path);
}

static struct wf_loader *make_loader(const struct wf_dataset *ds,
                                     const struct wf_loader_options *options)
{
    struct wf_err err = { 0 };
    struct wf_loader *loader = wf_loader_new(ds, options, &err);
    if (!loader)
        print_error("%s\n", err.text);
    assert_non_null(loader);
    return loader;
}

/* A batch in memory of its own. */
struct batch {
    struct wf_view image, target;
};

static struct batch batch_new(struct wf_region image, struct wf_region target)
{
    target.lo[WF_C] = 0;
    target.hi[WF_C] = 1;
    struct batch b = { .image = wf_view_dense(NULL, WF_F32, image),
                       .target = wf_view_dense(NULL, WF_I32, target) };
    b.image.data = calloc(1, wf_view_bytes(&b.image) + 1);
    b.target.data = calloc(1, wf_view_bytes(&b.target) + 1);
    assert_non_null(b.image.data);
    assert_non_null(b.target.data);
    return b;
}

static void batch_free(struct batch *b)
{
    free(b->image.data);
    free(b->target.data);
}

static void next(struct wf_loader *loader, const struct batch *b)
{
    struct wf_err err = { 0 };
    const bool ok = wf_loader_next(loader, &b->image, &b->target, &err);
    if (!ok)
        print_error("%s\n", err.text);
    assert_true(ok);
}

/* The part of `whole` over the view's box equals it, bit for bit. */
static void part_equals(const struct wf_view *part, const struct wf_view *whole)
{
    const struct wf_view same = wf_view_part(*whole, part->box);
    for (int64_t n = part->box.lo[WF_N]; n < part->box.hi[WF_N]; n++)
        for (int64_t d = part->box.lo[WF_D]; d < part->box.hi[WF_D]; d++)
            for (int64_t h = part->box.lo[WF_H]; h < part->box.hi[WF_H]; h++)
                for (int64_t w = part->box.lo[WF_W]; w < part->box.hi[WF_W]; w++)
                    for (int64_t c = part->box.lo[WF_C]; c < part->box.hi[WF_C]; c++)
                        if (wf_view_get(part, n, d, h, w, c) != wf_view_get(&same, n, d, h, w, c)) {
                            print_error("differs at %d %d %d %d %d\n", (int)n, (int)d, (int)h,
                                        (int)w, (int)c);
                            fail();
                        }
}

/* A mesh cuts the batch and the image, with a halo of `halo` pixels inside the image. */
static struct wf_region cut(struct wf_shape s, const int64_t parts[WF_AXES],
                            const int64_t which[WF_AXES], int64_t halo)
{
    struct wf_region r = wf_shape_region(s);
    for (int a = WF_N; a <= WF_W; a++) {
        r.lo[a] = wf_split_point(s.at[a], parts[a], which[a]);
        r.hi[a] = wf_split_point(s.at[a], parts[a], which[a] + 1);
        if (a != WF_N) {
            r.lo[a] = wf_max(0, r.lo[a] - halo);
            r.hi[a] = wf_min(s.at[a], r.hi[a] + halo);
        }
    }
    return r;
}

static void check_mesh(const struct wf_dataset *ds, const struct wf_loader_options *options,
                       const int64_t parts[WF_AXES], int batches)
{
    struct wf_loader *whole = make_loader(ds, options);
    const struct wf_shape shape = wf_loader_shape(whole);
    struct batch all = batch_new(wf_shape_region(shape), wf_shape_region(shape));
    int64_t which[WF_AXES];
    for (which[0] = 0; which[0] < parts[0]; which[0]++)
        for (which[1] = 0; which[1] < parts[1]; which[1]++)
            for (which[2] = 0; which[2] < parts[2]; which[2]++)
                for (which[3] = 0; which[3] < parts[3]; which[3]++) {
                    struct wf_loader *rank = make_loader(ds, options);
                    struct batch own =
                        batch_new(cut(shape, parts, which, 3), cut(shape, parts, which, 0));
                    wf_loader_seek(whole, 2, 1);
                    wf_loader_seek(rank, 2, 1);
                    for (int b = 0; b < batches; b++) {
                        next(whole, &all);
                        next(rank, &own);
                        part_equals(&own.image, &all.image);
                        part_equals(&own.target, &all.target);
                    }
                    batch_free(&own);
                    wf_loader_free(rank);
                }
    batch_free(&all);
    wf_loader_free(whole);
}

static void windows__equal_the_whole_for_every_change(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 90, 120, 0 };
    struct wf_dataset *ds = make_set("flat", 5, extent, 2, 3);
    const struct wf_normal normal = { 2, { 500, 400 }, { 250, 300 } };
    for (unsigned augment = 0; augment < 64; augment += augment < 31 ? 1 : 16) {
        const struct wf_loader_options options = { .batch = 3,
                                                   .crop = { 0, 1, 50, 70, 0 },
                                                   .augment = augment,
                                                   .normal = &normal,
                                                   .seed = 7 + augment };
        const int64_t parts[WF_AXES] = { 1, 1, 2, 3, 1 };
        check_mesh(ds, &options, parts, 1);
    }
    wf_dataset_free(ds);
}

static void windows__equal_the_whole_in_space_and_with_balance(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 20, 40, 36, 0 };
    struct wf_dataset *ds = make_set("deep", 4, extent, 1, 3);
    const struct wf_loader_options options = { .batch = 4,
                                               .crop = { 0, 12, 20, 24, 0 },
                                               .augment = 31,
                                               .balance = true,
                                               .repeat = 2,
                                               .seed = 11 };
    check_mesh(ds, &options, (const int64_t[WF_AXES]){ 2, 2, 1, 2, 1 }, 2);
    check_mesh(ds, &options, (const int64_t[WF_AXES]){ 3, 1, 5, 1, 1 }, 1);
    wf_dataset_free(ds);
}

/* Past the edge there is nothing but zeros and labels that do not count, and windows are exact there
 * too. */
static void crops__may_reach_past_the_image(void **state)
{
    enum { H = 10, W = 14, PAD = 3, IGNORE = 99 };
    const int64_t extent[WF_AXES] = { 1, 1, H, W, 0 };
    struct wf_dataset *ds = make_set("edge", 4, extent, 2, 3);
    struct wf_loader_options options = {
        .batch = 2, .pad = PAD, .repeat = 40, .has_ignore = true, .ignore = IGNORE, .seed = 5
    };
    struct wf_loader *loader = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(loader));
    struct batch b = batch_new(all, all);
    int seen[2 * PAD + 1] = { 0 };
    for (int64_t k = 0; k < 80; k++) {
        next(loader, &b);
        for (int64_t n = 0; n < 2; n++) {
            const struct wf_draw draw = wf_loader_item(loader, 0, k, n).draw;
            const char *name = wf_dataset_sample(ds, draw.sample)->name;
            const int64_t *o = draw.change.origin;
            assert_in_range(o[WF_H] + PAD, 0, 2 * PAD);
            seen[o[WF_W] + PAD]++;
            for (int64_t h = 0; h < H; h++)
                for (int64_t w = 0; w < W; w++) {
                    const int64_t y = h + o[WF_H], x = w + o[WF_W];
                    const bool in = y >= 0 && y < H && x >= 0 && x < W;
                    const double want = in ? (double)support_value(name, 0, y, x, 1) : 0;
                    assert_true(wf_view_get(&b.image, n, 0, h, w, 1) == want);
                    assert_int_equal((int)wf_view_get(&b.target, n, 0, h, w, 0),
                                     in ? support_label(name, 0, y, x, 3) : IGNORE);
                }
        }
    }
    for (int i = 0; i <= 2 * PAD; i++)
        assert_in_range(seen[i], 8, 40); /* of 160, in seven places */
    batch_free(&b);
    wf_loader_free(loader);
    for (options.augment = 0; options.augment < 64; options.augment += 21)
        check_mesh(ds, &options, (const int64_t[WF_AXES]){ 2, 1, 3, 2, 1 }, 2);
    struct wf_err err = { 0 };
    options.has_ignore = false;
    assert_null(wf_loader_new(ds, &options, &err));
    assert_non_null(strstr(err.text, "set train.ignore"));
    wf_dataset_free(ds);
}

static void threads__give_the_same_batches(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 40, 44, 0 };
    struct wf_dataset *ds = make_set("threads", 7, extent, 1, 2);
    struct wf_loader_options options = {
        .batch = 2, .crop = { 0, 1, 24, 32, 0 }, .augment = 31, .validation = 0.2, .seed = 3
    };
    struct wf_loader *plain = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(plain));
    struct batch a = batch_new(all, all), b = batch_new(all, all);
    for (int threads = 1; threads <= 3; threads += 2) {
        options.threads = threads;
        struct wf_loader *ahead = make_loader(ds, &options);
        wf_loader_seek(plain, 0, 0);
        for (int i = 0; i < 20; i++) {
            int64_t epoch, batch;
            wf_loader_where(ahead, &epoch, &batch);
            assert_int_equal(epoch, i / 3);
            assert_int_equal(batch, i % 3);
            next(plain, &a);
            next(ahead, &b);
            part_equals(&b.image, &a.image);
            part_equals(&b.target, &a.target);
        }
        assert_int_equal(wf_loader_memory_used(ahead),
                         (size_t)(threads + 1) * 2 * 24 * 32 * (4 + 4));
        /* anywhere, at once */
        for (int i = 0; i < 10; i++) {
            const int64_t epoch = i * 7 % 5, batch = i % 3;
            wf_loader_seek(plain, epoch, batch);
            wf_loader_seek(ahead, epoch, batch);
            next(plain, &a);
            next(ahead, &b);
            part_equals(&b.image, &a.image);
        }
        wf_loader_free(ahead);
    }
    batch_free(&a);
    batch_free(&b);
    wf_loader_free(plain);
    wf_dataset_free(ds);
}

/* Rows of this size are made by a thread each. */
static void batches__are_made_before_they_are_asked_for(void **state)
{
    (void)state;
    const int64_t extent[WF_AXES] = { 1, 1, 420, 400, 0 };
    struct wf_dataset *ds = make_set("ahead", 5, extent, 1, 2);
    struct wf_loader_options options = {
        .batch = 3, .crop = { 0, 1, 390, 380, 0 }, .augment = 3, .seed = 3
    };
    struct wf_loader *plain = make_loader(ds, &options);
    options.threads = 4;
    struct wf_loader *ahead = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(plain));
    struct batch a = batch_new(all, all), b = batch_new(all, all);
    struct wf_err err = { 0 };
    wf_loader_seek(ahead, 0, 1);
    assert_int_equal(wf_loader_memory_used(ahead), 0);
    assert_true(wf_loader_begin(ahead, &b.image, &b.target, &err));
    const double begun = wf_now();
    while (wf_loader_bytes_read(ahead) == 0 && wf_now() - begun < 60)
        ;
    assert_true(wf_loader_bytes_read(ahead) > 0);
    wf_loader_seek(ahead, 0, 1); /* where it is */
    assert_true(wf_loader_memory_used(ahead) > 0);
    wf_loader_seek(plain, 0, 1);
    for (int i = 0; i < 6; i++) {
        next(plain, &a);
        next(ahead, &b);
        part_equals(&b.image, &a.image);
        part_equals(&b.target, &a.target);
    }
    wf_loader_seek(ahead, 0, 0);
    assert_int_equal(wf_loader_memory_used(ahead), 0);
    batch_free(&a);
    batch_free(&b);
    wf_loader_free(plain);
    wf_loader_free(ahead);
    wf_dataset_free(ds);
}

/* Where validation ends the next one begins. */
static void validation__is_read_ahead_from_its_end_on(void **state)
{
    (void)state;
    const int64_t extent[WF_AXES] = { 1, 1, 30, 40, 0 };
    struct wf_dataset *ds = make_set("again", 7, extent, 1, 2);
    const struct wf_loader_options options = {
        .part = WF_PART_ALL, .batch = 2, .crop = { 0, 1, 16, 16, 0 }, .threads = 2
    };
    struct wf_loader *const loader = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(loader));
    const int64_t batches = wf_loader_batches(loader);
    struct batch *const first = calloc((size_t)batches, sizeof *first);
    struct batch b = batch_new(all, all);
    for (int round = 0; round < 3; round++) {
        wf_loader_seek(loader, 0, 0);
        assert_true((wf_loader_memory_used(loader) > 0) == (round > 0));
        for (int64_t i = 0; i < batches; i++) {
            if (round == 0)
                first[i] = batch_new(all, all);
            next(loader, round == 0 ? &first[i] : &b);
            if (round == 0)
                continue;
            part_equals(&b.image, &first[i].image);
            part_equals(&b.target, &first[i].target);
        }
    }
    next(loader, &b);
    wf_loader_seek(loader, 0, 0); /* which it has left */
    assert_int_equal(wf_loader_memory_used(loader), 0);
    for (int64_t i = 0; i < batches; i++)
        batch_free(&first[i]);
    free(first);
    batch_free(&b);
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

/* Of several labels that are wrong the first row's is named, whichever thread is done first. */
static void rows__that_fail_are_named_in_order(void **state)
{
    (void)state;
    const int64_t extent[WF_AXES] = { 1, 1, 400, 400, 0 };
    struct wf_dataset *ds = make_set("fails", 6, extent, 1, 4);
    struct wf_loader_options options = { .batch = 6, .classes = 2 };
    struct wf_loader *plain = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(plain));
    struct batch b = batch_new(all, all);
    struct wf_err first = { 0 };
    assert_false(wf_loader_next(plain, &b.image, &b.target, &first));
    options.threads = 3;
    for (int i = 0; i < 20; i++) {
        struct wf_err err = { 0 };
        struct wf_loader *ahead = make_loader(ds, &options);
        assert_false(wf_loader_next(ahead, &b.image, &b.target, &err));
        assert_string_equal(err.text, first.text);
        wf_loader_free(ahead);
    }
    batch_free(&b);
    wf_loader_free(plain);
    wf_dataset_free(ds);
}

/* Boxes that change on the way (another plan) are followed. */
static void boxes__may_change_between_batches(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 16, 16, 0 };
    struct wf_dataset *ds = make_set("boxes", 4, extent, 1, 2);
    const struct wf_loader_options options = { .batch = 2, .seed = 3, .threads = 2, .augment = 1 };
    struct wf_loader *loader = make_loader(ds, &options), *other = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(loader));
    struct wf_region half = all;
    half.lo[WF_N] = 1;
    half.hi[WF_W] = 5;
    struct batch a = batch_new(all, all), b = batch_new(half, half);
    for (int i = 0; i < 6; i++) {
        next(loader, &a);
        next(other, i % 2 ? &a : &b);
        if (i % 2 == 0) {
            part_equals(&b.image, &a.image);
            part_equals(&b.target, &a.target);
        }
    }
    /* a rank without a part */
    const struct wf_view nothing = { 0 };
    struct wf_err err = { 0 };
    assert_true(wf_loader_next(other, &nothing, NULL, &err));
    batch_free(&a);
    batch_free(&b);
    wf_loader_free(loader);
    wf_loader_free(other);
    wf_dataset_free(ds);
}

/* Turns and flips by hand: np.rot90([[1, 2, 3], [4, 5, 6]]) is [[3, 6], [2, 5], [1, 4]]. */
static void turns__are_numpys(void **state)
{
    static const struct {
        int turns;
        bool flip_h, flip_w;
        int64_t h, w;
        float want[6];
    } cases[] = {
        { 0, false, false, 2, 3, { 1, 2, 3, 4, 5, 6 } },
        { 1, false, false, 3, 2, { 3, 6, 2, 5, 1, 4 } },
        { 2, false, false, 2, 3, { 6, 5, 4, 3, 2, 1 } },
        { 3, false, false, 3, 2, { 4, 1, 5, 2, 6, 3 } },
        { 0, true, false, 2, 3, { 4, 5, 6, 1, 2, 3 } },
        { 0, false, true, 2, 3, { 3, 2, 1, 6, 5, 4 } },
        { 1, true, false, 3, 2, { 1, 4, 2, 5, 3, 6 } },
        { 1, false, true, 3, 2, { 6, 3, 5, 2, 4, 1 } },
    };
    const float pixels[6] = { 1, 2, 3, 4, 5, 6 }, one = 1, zero = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct wf_change change = {
            .turns = cases[i].turns,
            .flip = { [WF_H] = cases[i].flip_h, [WF_W] = cases[i].flip_w },
            .gain = 1
        };
        const int64_t crop[WF_AXES] = { 1, 1, cases[i].h, cases[i].w, 1 };
        float out[6];
        struct wf_change_job job = { .change = &change,
                                     .crop = crop,
                                     .image = { .hi = { 1, 1, 2, 3, 1 } },
                                     .window = { .hi = { 1, 1, cases[i].h, cases[i].w, 1 } },
                                     .channels = 1,
                                     .pixels = pixels,
                                     .scale = &one,
                                     .offset = &zero,
                                     .out = out };
        job.source = wf_change_reads(&change, crop, job.image, job.window);
        assert_true(wf_region_equal(job.source, job.image));
        wf_change_apply(&job);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

/* On a ramp the elastic change shows the displacement itself: bounded, smooth, and not nothing. */
static void elastic__is_bounded_and_smooth(void **state)
{
    enum { SIDE = 200, MARGIN = 20, CROP = SIDE - 2 * MARGIN };
    static float ramp[SIDE * SIDE], out[CROP * CROP];
    for (int i = 0; i < SIDE * SIDE; i++)
        ramp[i] = (float)(i % SIDE);
    const struct wf_change change = {
        .origin = { 0, 0, MARGIN, MARGIN, 0 }, .elastic = true, .seed = 1, .field = 77, .gain = 1
    };
    const int64_t crop[WF_AXES] = { 1, 1, CROP, CROP, 1 };
    const float one = 1, zero = 0;
    struct wf_change_job job = { .change = &change,
                                 .crop = crop,
                                 .image = { .hi = { 1, 1, SIDE, SIDE, 1 } },
                                 .window = { .hi = { 1, 1, CROP, CROP, 1 } },
                                 .channels = 1,
                                 .scale = &one,
                                 .offset = &zero,
                                 .out = out };
    job.source = wf_change_reads(&change, crop, job.image, job.window);
    assert_int_equal(job.source.lo[WF_W], MARGIN - 11);
    assert_int_equal(job.source.hi[WF_H], SIDE - MARGIN + 11);
    const int64_t wide = wf_region_extent(job.source, WF_W);
    float *source = malloc((size_t)(wide * wide) * sizeof *source);
    assert_non_null(source);
    for (int64_t h = 0; h < wide; h++)
        memcpy(source + h * wide, ramp + (h + job.source.lo[WF_H]) * SIDE + job.source.lo[WF_W],
               (size_t)wide * sizeof *source);
    job.pixels = source;
    wf_change_apply(&job);
    float most = 0;
    for (int h = 0; h < CROP; h++)
        for (int w = 0; w < CROP; w++) {
            const float u = out[h * CROP + w] - (float)(w + MARGIN);
            most = u > most ? u : -u > most ? -u : most;
            if (w > 0) { /* never fused */
                const float step = out[h * CROP + w] - out[h * CROP + w - 1];
                assert_true(step > 0.3f && step < 1.7f);
            }
        }
    assert_true(most > 2 && most < 10);
    free(source);
}

static void targets__may_be_one_hot_and_normalised_images_half_floats(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 6, 5, 0 };
    struct wf_dataset *ds = make_set("hot", 2, extent, 1, 3);
    const struct wf_normal normal = { 1, { 100 }, { 50 } };
    struct wf_loader *loader =
        make_loader(ds, &(struct wf_loader_options){
                            .part = WF_PART_ALL, .batch = 2, .normal = &normal, .classes = 3 });
    struct wf_region all = wf_shape_region(wf_loader_shape(loader));
    uint16_t pixels[60];
    float hot[180];
    const struct wf_view image = wf_view_dense(pixels, WF_BF16, all);
    all.hi[WF_C] = 3;
    const struct wf_view target = wf_view_dense(hot, WF_F32, all);
    struct wf_err err = { 0 };
    assert_true(wf_loader_next(loader, &image, &target, &err));
    for (int64_t h = 0; h < 6; h++)
        for (int64_t w = 0; w < 5; w++) {
            const float v = support_value("s01", 0, h, w, 0) * (1.0f / 50) + -2.0f;
            assert_true(wf_view_get(&image, 1, 0, h, w, 0) ==
                        (double)wf_bf16_to_f32(wf_f32_to_bf16(v)));
            for (int64_t c = 0; c < 3; c++)
                assert_int_equal(wf_view_get(&target, 1, 0, h, w, c),
                                 support_label("s01", 0, h, w, 3) == c);
        }
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

static void labels__that_are_no_class_are_refused_with_their_place(void **state)
{
    const int64_t extent[WF_AXES] = { 1, 1, 12, 12, 0 };
    struct wf_dataset *ds = make_set("range", 1, extent, 1, 4);
    struct wf_loader_options options = { .batch = 1, .classes = 2, .threads = 1 };
    struct wf_loader *loader = make_loader(ds, &options);
    const struct wf_region all = wf_shape_region(wf_loader_shape(loader));
    struct batch b = batch_new(all, all);
    for (int recompute = 0; recompute < 2; recompute++) {
        struct wf_err err = { 0 };
        assert_false(wf_loader_next(loader, &b.image, &b.target, &err));
        assert_non_null(strstr(err.text, "'range/masks/s00.npy': label "));
        assert_non_null(strstr(err.text, "set model.classes="));
        assert_non_null(strstr(err.text, "train.ignore="));
    }
    wf_loader_free(loader);
    options.classes = 3;
    options.has_ignore = true;
    options.ignore = 3;
    loader = make_loader(ds, &options);
    next(loader, &b);
    batch_free(&b);
    wf_loader_free(loader);
    wf_dataset_free(ds);
}

static void sizes__that_do_not_fit_the_crop_are_refused(void **state)
{
    const int64_t small[WF_AXES] = { 1, 1, 10, 12, 0 }, large[WF_AXES] = { 1, 1, 14, 12, 0 };
    support_pair("sizes", "a", large, 1, 2);
    support_pair("sizes", "b", small, 1, 2);
    struct wf_dataset *ds = support_open("sizes");
    struct wf_err err = { 0 };
    assert_null(wf_loader_new(ds, &(struct wf_loader_options){ .batch = 1 }, &err));
    assert_non_null(strstr(err.text, "'sizes/images/b.npy' has height 10"));
    assert_non_null(strstr(err.text, "set data.crop"));
    err = (struct wf_err){ 0 };
    assert_null(wf_loader_new(
        ds, &(struct wf_loader_options){ .batch = 1, .crop = { 0, 1, 12, 12, 0 } }, &err));
    assert_non_null(strstr(err.text, "smaller than the crop's 12"));
    err = (struct wf_err){ 0 };
    assert_null(
        wf_loader_new(ds, &(struct wf_loader_options){ .part = WF_PART_VALID, .batch = 1 }, &err));
    assert_non_null(strstr(err.text, "data.validation"));
    wf_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__equal_the_whole_for_every_change),
        cmocka_unit_test(windows__equal_the_whole_in_space_and_with_balance),
        cmocka_unit_test(crops__may_reach_past_the_image),
        cmocka_unit_test(threads__give_the_same_batches),
        cmocka_unit_test(batches__are_made_before_they_are_asked_for),
        cmocka_unit_test(validation__is_read_ahead_from_its_end_on),
        cmocka_unit_test(rows__that_fail_are_named_in_order),
        cmocka_unit_test(boxes__may_change_between_batches),
        cmocka_unit_test(turns__are_numpys),
        cmocka_unit_test(elastic__is_bounded_and_smooth),
        cmocka_unit_test(targets__may_be_one_hot_and_normalised_images_half_floats),
        cmocka_unit_test(labels__that_are_no_class_are_refused_with_their_place),
        cmocka_unit_test(sizes__that_do_not_fit_the_crop_are_refused),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
