#include "data/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_inside.h"

/* --- order --- */

/* Mixes numbers that lie close together (splitmix64's last steps). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static struct wf_random stream(uint64_t seed, const char *name, int64_t a, int64_t b)
{
    const uint64_t inner = mix((uint64_t)b + 0x9e3779b97f4a7c15u);
    return wf_random(seed, mix(wf_random_stream(name) ^ mix((uint64_t)a + inner)));
}

/* A Feistel network permutes the next power of four; places past `count` are walked through until one
 * inside comes. So the order needs no memory and can be entered anywhere. */
static int64_t permuted(struct wf_random r, int64_t count, int64_t position)
{
    enum { ROUNDS = 6 };
    int half = 1;
    while (half < 31 && (INT64_C(1) << (2 * half)) < count)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t at = (uint64_t)position;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t next = left ^ (wf_random_bits(r, (round << 32) | right) & mask);
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= (uint64_t)count);
    return (int64_t)at;
}

int64_t wf_sampler_order(uint64_t seed, int64_t epoch, int64_t count, int64_t position)
{
    WF_BUG_ON(position < 0 || position >= count, "place %" PRId64 " of %" PRId64, position, count);
    return permuted(stream(seed, "data.order", epoch, 0), count, position);
}

/* --- split --- */

static int64_t held_out_count(int64_t count, double fraction)
{
    const int64_t wanted = (int64_t)llround(fraction * (double)count);
    return fraction > 0 && count > 1 ? wf_min(wf_max(wanted, 1), count - 1) : 0;
}

void wf_split_init(struct wf_split *split, const struct wf_dataset *ds, double fraction,
                   uint64_t seed)
{
    const int64_t samples = wf_dataset_info(ds)->samples;
    *split =
        (struct wf_split){ .train = wf_take_zeroed((size_t)samples + 1, sizeof *split->train),
                           .valid = wf_take_zeroed((size_t)samples + 1, sizeof *split->valid) };
    int64_t *const good = wf_take_zeroed((size_t)samples + 1, sizeof *good);
    bool *const out = wf_take_zeroed((size_t)samples + 1, sizeof *out);
    bool own = false;
    int64_t count = 0;
    for (int64_t i = 0; i < samples; i++) {
        const struct wf_data_sample *const s = wf_dataset_sample(ds, i);
        out[i] = s->held_out;
        own = own || s->held_out;
        if (!s->problem)
            good[count++] = i;
    }
    const int64_t drawn = own ? 0 : held_out_count(count, fraction);
    for (int64_t k = 0; k < drawn; k++)
        out[good[permuted(stream(seed, "data.split", 0, 0), count, k)]] = true;
    for (int64_t k = 0; k < count; k++)
        if (out[good[k]])
            split->valid[split->n_valid++] = good[k];
        else
            split->train[split->n_train++] = good[k];
    free(good);
    free(out);
}

void wf_split_release(struct wf_split *split)
{
    free(split->train);
    free(split->valid);
    *split = (struct wf_split){ 0 };
}

/* --- balance --- */

enum { POINTS = 64 };

struct place {
    int32_t at[3]; /* D, H, W */
};

/* Some pixels of one class of one sample: every `step`th that was seen. */
struct points {
    struct place *items; /* room for 2 * POINTS */
    int count;
    int64_t seen, step;
};

struct spot {
    int n_classes; /* that occur in the sample */
    struct {
        int32_t label;
        int count;
        struct place *items;
    } * classes;
};

struct wf_balance {
    struct wf_arena arena;
    struct spot *spots; /* by sample */
};

/* When it is full every second one goes, so that what stays is spread over all that was seen. */
static void note_point(struct points *p, int64_t d, int64_t h, int64_t w)
{
    if (!p->items) {
        p->items = wf_take_zeroed(2 * POINTS, sizeof *p->items);
        p->step = 1;
    }
    if (p->seen++ % p->step != 0)
        return;
    if (p->count == 2 * POINTS) {
        for (int i = 0; i < POINTS; i++)
            p->items[i] = p->items[2 * i];
        p->count = POINTS;
        p->step *= 2;
        if ((p->seen - 1) % p->step != 0)
            return;
    }
    p->items[p->count++] = (struct place){ { (int32_t)d, (int32_t)h, (int32_t)w } };
}

static bool note_window(struct wf_reader *reader, int64_t sample, const struct wf_region *w,
                        int32_t *labels, struct points points[], struct wf_err *err)
{
    if (!wf_reader_read(reader, sample, w, NULL, labels, err))
        return false;
    for (int64_t d = w->lo[WF_D]; d < w->hi[WF_D]; d++)
        for (int64_t h = w->lo[WF_H]; h < w->hi[WF_H]; h++)
            for (int64_t x = w->lo[WF_W]; x < w->hi[WF_W]; x++, labels++)
                if (*labels >= 0 && *labels < WF_DATA_CLASSES)
                    note_point(&points[*labels], d, h, x);
    return true;
}

/* The points go to the arena; `points` is empty again. */
static void keep_points(struct wf_balance *b, int64_t sample, struct points points[])
{
    struct spot *const s = &b->spots[sample];
    for (int c = 0; c < WF_DATA_CLASSES; c++)
        s->n_classes += points[c].count > 0;
    s->classes = wf_arena_take_array(&b->arena, (size_t)s->n_classes + 1, sizeof *s->classes);
    int at = 0;
    for (int c = 0; c < WF_DATA_CLASSES; c++) {
        struct points *const p = &points[c];
        if (p->count > 0) {
            s->classes[at].label = c;
            s->classes[at].count = p->count;
            s->classes[at].items = wf_arena_array(&b->arena, p->count, struct place);
            memcpy(s->classes[at].items, p->items, (size_t)p->count * sizeof *p->items);
            at++;
        }
        free(p->items);
        *p = (struct points){ 0 };
    }
}

struct wf_balance *wf_balance_new(const struct wf_dataset *ds, const int64_t samples[],
                                  int64_t count, struct wf_err *err)
{
    if (wf_dataset_info(ds)->labels != WF_LABELS_PIXEL) {
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "data.balance draws crops around classes of a mask, and '%s' has no "
                         "masks: leave it out",
                         wf_dataset_info(ds)->path);
        return NULL;
    }
    struct wf_balance *const b = wf_take_zeroed(1, sizeof *b);
    struct points *const points = wf_take_zeroed(WF_DATA_CLASSES, sizeof *points);
    int32_t *const labels = wf_take(WF_DATA_PIECE * sizeof *labels);
    struct wf_reader *const reader = wf_reader_new(ds);
    b->spots = wf_arena_array(&b->arena, wf_dataset_info(ds)->samples, struct spot);
    const int64_t budget =
        wf_max(WF_DATA_SCAN / wf_max(count, 1), (int64_t)WF_DATA_WINDOW * WF_DATA_WINDOW);
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        const struct wf_spread spread =
            wf_spread(wf_dataset_extent(ds, samples[i]), budget, WF_DATA_PIECE);
        for (int64_t k = 0; ok && k < spread.count; k++) {
            const struct wf_region w = wf_spread_at(&spread, k);
            ok = note_window(reader, samples[i], &w, labels, points, err);
        }
        keep_points(b, samples[i], points);
    }
    wf_reader_free(reader);
    free(labels);
    free(points);
    if (ok)
        return b;
    wf_balance_free(b);
    return NULL;
}

void wf_balance_free(struct wf_balance *balance)
{
    if (!balance)
        return;
    wf_arena_release(&balance->arena);
    free(balance);
}

/* --- draws --- */

/* Which number of its stream a choice takes. */
enum { ORIGIN = 0, FLIP = 8, TURNS = 16, SHIFT, GAIN, CLASS, POINT };

/* A pixel that the crop shall hold, or NULL. */
static const struct place *draw_point(const struct wf_balance *b, int64_t sample,
                                      struct wf_random r)
{
    if (!b || b->spots[sample].n_classes == 0)
        return NULL;
    const struct spot *const s = &b->spots[sample];
    const uint32_t c = wf_random_below(r, CLASS, (uint32_t)s->n_classes);
    const uint32_t k = wf_random_below(r, POINT, (uint32_t)s->classes[c].count);
    return &s->classes[c].items[k];
}

static void draw_origin(struct wf_change *change, const int64_t extent[WF_AXES],
                        struct wf_region image, const struct place *point, struct wf_random r)
{
    for (int a = WF_D; a <= WF_W; a++) {
        const int64_t first = image.lo[a], last = image.hi[a] - extent[a];
        const uint64_t which = ORIGIN + (uint64_t)a;
        const int64_t from = point ? wf_max(point->at[a - WF_D] - extent[a] + 1, first) : first;
        const int64_t to = point ? wf_min(point->at[a - WF_D], last) : last;
        change->origin[a] = from + wf_random_below(r, which, (uint32_t)(to - from + 1));
    }
}

struct wf_region wf_sampler_field(const struct wf_dataset *ds, int64_t sample, int64_t pad)
{
    struct wf_region r = wf_dataset_extent(ds, sample);
    for (int a = WF_D; a <= WF_W; a++)
        if (r.hi[a] > 1) {
            r.lo[a] -= pad;
            r.hi[a] += pad;
        }
    return r;
}

struct wf_draw wf_sampler_draw(const struct wf_dataset *ds, const struct wf_draw_rule *rule,
                               int64_t sample, int64_t epoch, int64_t item)
{
    const struct wf_random r = stream(rule->seed, "data.draw", epoch, item);
    const struct wf_region image = wf_sampler_field(ds, sample, rule->pad);
    struct wf_draw draw = { .sample = sample,
                            .change = { .seed = rule->seed, .gain = 1, .shift = 0 } };
    memcpy(draw.crop, rule->crop, sizeof draw.crop);
    struct wf_change *const c = &draw.change;
    if (rule->augment & WF_AUGMENT_ROT90) {
        /* Lying down, the crop must still fit. */
        const bool fits = rule->crop[WF_W] <= wf_region_extent(image, WF_H) &&
                          rule->crop[WF_H] <= wf_region_extent(image, WF_W);
        c->turns = (int)(fits ? wf_random_below(r, TURNS, 4) : 2 * wf_random_below(r, TURNS, 2));
    }
    for (int a = WF_D; a <= WF_W; a++)
        c->flip[a] = (rule->augment & WF_AUGMENT_FLIP) && rule->crop[a] > 1 &&
                     wf_random_below(r, FLIP + (uint64_t)a, 2);
    if (rule->augment & WF_AUGMENT_MIRROR)
        c->flip[WF_W] = wf_random_below(r, FLIP + (uint64_t)WF_W, 2);
    c->elastic = rule->augment & WF_AUGMENT_ELASTIC;
    c->field = mix(r.stream ^ wf_random_stream("data.elastic"));
    if (rule->augment & WF_AUGMENT_BRIGHTNESS)
        c->shift = 0.5f * wf_random_uniform(r, SHIFT) - 0.25f;
    if (rule->augment & WF_AUGMENT_CONTRAST)
        c->gain = 0.75f + 0.5f * wf_random_uniform(r, GAIN);
    int64_t extent[WF_AXES];
    wf_change_source_extent(c, draw.crop, extent);
    draw_origin(c, extent, image, draw_point(rule->balance, sample, r), r);
    return draw;
}
