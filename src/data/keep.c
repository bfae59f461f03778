/*
 * Decoded images and labels are kept in memory while there is room: a PNG takes longer to decode than a GPU to train on
 * it, and every epoch needs it. An image is kept in blocks: the tiles of a tiled file, bands of rows of others, the
 * whole of a small one. Of a file that is read from the top the blocks in front of one are kept with it. Numbers are
 * packed as bytes or 16-bit words where all of a block are whole and fit.
 *
 * K1. A block goes once from empty to kept or to REFUSED, by one atomic exchange. What is kept is never written
 *     again, so any thread may read it.
 * K2. Nothing is dropped: which blocks are kept depends on what was read first, and no result does.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

#include "base/free_memory.h"
#include "base/memory.h"

enum {
    BLOCK = 4 << 20,       /* numbers of a block of rows, about; a smaller image is one block */
    TILE = 256,            /* pixels along H and W of a block of tiles, at least */
    LOOK_EVERY = 64 << 20, /* bytes taken between two looks at the free memory */
    LEAVE_FREE_PART = 4,   /* of the machine's memory a quarter stays free */
};

enum packing { BYTES, SHORTS, WORDS };
struct block {
    enum packing packing;
    unsigned char data[];
};
static const struct block refused;

struct table {
    const struct block **blocks; /* NULL: nothing was read yet */
};

struct wf_keep {
    int64_t limit;  /* bytes; negative: while memory is free */
    int64_t bytes;  /* taken so far */
    int64_t looked; /* bytes at the last look at the free memory */
    bool full;
    int64_t n_tables;
    struct table *tables; /* of each sample: image, labels */
    int64_t *n_blocks;
};

struct wf_keep *wf_keep_new(int64_t samples, int64_t limit)
{
    struct wf_keep *const k = wf_take_zeroed(1, sizeof *k);
    k->limit = limit;
    k->looked = -LOOK_EVERY;
    k->n_tables = 2 * samples;
    k->tables = wf_take_zeroed((size_t)k->n_tables + 1, sizeof *k->tables);
    k->n_blocks = wf_take_zeroed((size_t)k->n_tables + 1, sizeof *k->n_blocks);
    return k;
}

void wf_keep_free(struct wf_keep *k)
{
    if (!k)
        return;
    for (int64_t t = 0; t < k->n_tables; t++) {
        for (int64_t i = 0; k->tables[t].blocks && i < k->n_blocks[t]; i++)
            if (k->tables[t].blocks[i] != &refused)
                free((void *)(uintptr_t)k->tables[t].blocks[i]);
        free(k->tables[t].blocks);
    }
    free(k->tables);
    free(k->n_blocks);
    free(k);
}

int64_t wf_keep_bytes(const struct wf_keep *k)
{
    return k ? __atomic_load_n(&k->bytes, __ATOMIC_RELAXED) : 0;
}

/* --- the grid of blocks --- */

struct wf_blocks wf_keep_blocks(const struct wf_raster_info *info)
{
    struct wf_blocks blocks = { .in_order = info->in_order };
    int64_t *const grid = blocks.at;
    if (info->format && strcmp(info->format, ".npy") == 0) /* is not coded */
        return blocks;
    const int64_t row = info->width * info->channels;
    const bool tiled =
        !info->in_order && info->tile.at[WF_W] > 0 && info->tile.at[WF_W] < info->width;
    grid[0] = 1;
    grid[1] = tiled ? wf_max(1, info->tile.at[WF_H]) : wf_max(1, BLOCK / wf_max(1, row));
    grid[2] = tiled ? info->tile.at[WF_W] : info->width;
    for (int i = 1; tiled && i < 3; i++)
        grid[i] *= wf_ceil_div(TILE, grid[i]);
    if (!tiled && grid[1] >= info->height) { /* planes of a small volume together */
        grid[1] = info->height;
        grid[0] = wf_max(1, BLOCK / wf_max(1, row * info->height));
    }
    grid[0] = wf_min(grid[0], info->depth);
    return blocks;
}

static int64_t parts_along(const struct wf_keep_source *s, int i)
{
    return wf_ceil_div(s->extent[WF_D + i], s->blocks.at[i]);
}

static struct wf_region block_region(const struct wf_keep_source *s, const int64_t at[3])
{
    struct wf_region r = { .hi = { [WF_N] = 1, [WF_C] = s->each } };
    for (int i = 0; i < 3; i++) {
        r.lo[WF_D + i] = at[i] * s->blocks.at[i];
        r.hi[WF_D + i] = wf_min(r.lo[WF_D + i] + s->blocks.at[i], s->extent[WF_D + i]);
    }
    return r;
}

/* --- packing --- */

/* Numbers of both types have four bytes; a float is whole where it is equal to its integer. */
static int64_t largest(const struct wf_keep_source *s, const void *numbers, int64_t count)
{
    const float *const f = numbers;
    const int32_t *const n = numbers;
    bool fits = true;
    int32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool in =
            s->is_labels ? n[i] >= 0 && n[i] <= UINT16_MAX : f[i] >= 0 && f[i] <= (float)UINT16_MAX;
        const int32_t v = !in ? 0 : s->is_labels ? n[i] : (int32_t)f[i];
        fits = fits && in && (s->is_labels || (float)v == f[i]);
        most = v > most ? v : most;
    }
    return fits ? most : INT64_MAX;
}

static size_t bytes_of(enum packing p)
{
    return p == BYTES ? 1 : p == SHORTS ? 2 : 4;
}

static struct block *pack(const struct wf_keep_source *s, const void *numbers, int64_t count)
{
    const int64_t most = largest(s, numbers, count);
    const enum packing p = most <= UINT8_MAX ? BYTES : most <= UINT16_MAX ? SHORTS : WORDS;
    struct block *const b = malloc(sizeof *b + (size_t)count * bytes_of(p));
    if (!b)
        return NULL;
    b->packing = p;
    const float *const f = numbers;
    const int32_t *const n = numbers;
    uint16_t *const shorts = (void *)b->data;
    if (p == WORDS)
        memcpy(b->data, numbers, (size_t)count * bytes_of(p));
    for (int64_t i = 0; p == BYTES && i < count; i++)
        b->data[i] = (uint8_t)(s->is_labels ? n[i] : (int32_t)f[i]);
    for (int64_t i = 0; p == SHORTS && i < count; i++)
        shorts[i] = (uint16_t)(s->is_labels ? n[i] : (int32_t)f[i]);
    return b;
}

/* `count` numbers from the `at`-th on. */
static void unpack(const struct wf_keep_source *s, const struct block *b, int64_t at, int64_t count,
                   void *to)
{
    const uint8_t *const bytes = b->data + at;
    const uint16_t *const shorts = (const uint16_t *)(const void *)b->data + at;
    float *const f = to;
    int32_t *const n = to;
    if (b->packing == WORDS)
        memcpy(to, b->data + (size_t)at * 4, (size_t)count * 4);
    else if (s->is_labels)
        for (int64_t i = 0; i < count; i++)
            n[i] = b->packing == BYTES ? bytes[i] : shorts[i];
    else if (b->packing == BYTES)
        for (int64_t i = 0; i < count; i++)
            f[i] = bytes[i];
    else
        for (int64_t i = 0; i < count; i++)
            f[i] = shorts[i];
}

/* --- keeping --- */

/* Looks at the memory of the machine now and then, which all programs share. */
static bool has_room(struct wf_keep *k, int64_t more)
{
    const int64_t taken = __atomic_load_n(&k->bytes, __ATOMIC_RELAXED) + more;
    if (k->limit >= 0)
        return taken <= k->limit;
    if (__atomic_load_n(&k->full, __ATOMIC_RELAXED))
        return false;
    int64_t looked = __atomic_load_n(&k->looked, __ATOMIC_RELAXED);
    if (taken - looked >= LOOK_EVERY &&
        __atomic_compare_exchange_n(&k->looked, &looked, taken, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        const struct wf_free_memory m = wf_free_memory();
        if (m.free < m.all / LEAVE_FREE_PART + (size_t)(more + LOOK_EVERY))
            __atomic_store_n(&k->full, true, __ATOMIC_RELAXED);
    }
    return !__atomic_load_n(&k->full, __ATOMIC_RELAXED);
}

static const struct block **blocks_of(struct wf_keep *k, const struct wf_keep_source *s)
{
    const int64_t n = parts_along(s, 0) * parts_along(s, 1) * parts_along(s, 2);
    struct table *const t = &k->tables[s->table];
    const struct block **empty = NULL, **found = __atomic_load_n(&t->blocks, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    found = wf_take_zeroed((size_t)n, sizeof *found);
    __atomic_store_n(&k->n_blocks[s->table], n, __ATOMIC_RELAXED); /* the same from all threads */
    if (__atomic_compare_exchange_n(&t->blocks, &empty, found, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return found;
    free(found);
    return empty;
}

/* Reads a block into its place; `*kept` is NULL where it is not kept. */
static bool offer(struct wf_keep *k, const struct wf_keep_source *s, const struct wf_region *region,
                  const struct block **place, const struct block **kept, struct wf_err *err)
{
    const int64_t count = wf_region_count(*region);
    struct block *made = NULL;
    *kept = NULL;
    if (has_room(k, 4 * count)) {
        void *const numbers = malloc((size_t)count * 4);
        if (!numbers)
            return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %zu bytes",
                              (size_t)count * 4);
        const bool ok = s->read(s->user, region, numbers, err);
        made = ok ? pack(s, numbers, count) : NULL;
        free(numbers);
        if (!ok)
            return false;
    }
    const struct block *empty = NULL, *const put = made ? made : &refused;
    const bool ours = __atomic_compare_exchange_n(place, &empty, put, false, __ATOMIC_RELEASE,
                                                  __ATOMIC_ACQUIRE); /* K1 */
    if (ours && made)
        (void)__atomic_fetch_add(&k->bytes, count * (int64_t)bytes_of(made->packing),
                                 __ATOMIC_RELAXED);
    if (!ours)
        free(made);
    const struct block *const there = ours ? put : empty;
    *kept = there == &refused ? NULL : there;
    return true;
}

/* The part of the window that the block has. */
static void copy_block(const struct wf_keep_source *s, const struct block *b,
                       const struct wf_region *region, const struct wf_region *window, void *dst)
{
    struct wf_region part = wf_region_intersect(*region, *window);
    const int64_t run = wf_region_extent(part, WF_W) * s->each;
    for (int64_t d = part.lo[WF_D]; d < part.hi[WF_D]; d++)
        for (int64_t h = part.lo[WF_H]; h < part.hi[WF_H]; h++) {
            const int64_t from =
                (((d - region->lo[WF_D]) * wf_region_extent(*region, WF_H) + h - region->lo[WF_H]) *
                     wf_region_extent(*region, WF_W) +
                 part.lo[WF_W] - region->lo[WF_W]) *
                s->each;
            const int64_t to =
                (((d - window->lo[WF_D]) * wf_region_extent(*window, WF_H) + h - window->lo[WF_H]) *
                     wf_region_extent(*window, WF_W) +
                 part.lo[WF_W] - window->lo[WF_W]) *
                s->each;
            unpack(s, b, from, run, (char *)dst + to * 4);
        }
}

/* Blocks in front of one in a file that is read from the top: they are decoded in any case. Half of a limit is left for
 * what is asked for, and what is wrong in them is for who reads them. */
static void keep_above(struct wf_keep *k, const struct wf_keep_source *s,
                       const struct block **blocks, int64_t index)
{
    for (int64_t i = 0; i < index; i++) {
        const int64_t h = parts_along(s, 1), at[] = { i / h, i % h, 0 };
        const struct wf_region region = block_region(s, at);
        const struct block *kept = __atomic_load_n(&blocks[i], __ATOMIC_ACQUIRE);
        struct wf_err ignored = { 0 };
        if (k->limit >= 0 && wf_keep_bytes(k) + 4 * wf_region_count(region) > k->limit / 2)
            return;
        if (!kept)
            (void)!offer(k, s, &region, &blocks[i], &kept, &ignored);
    }
}

bool wf_keep_read(struct wf_keep *k, const struct wf_keep_source *s, const struct wf_region *window,
                  void *dst, struct wf_err *err)
{
    struct wf_region want = *window;
    want.lo[WF_N] = want.lo[WF_C] = 0;
    want.hi[WF_N] = 1;
    want.hi[WF_C] = s->each;
    const struct block **const blocks = blocks_of(k, s);
    int64_t lo[3], hi[3], at[3];
    for (int i = 0; i < 3; i++) {
        lo[i] = want.lo[WF_D + i] / s->blocks.at[i];
        hi[i] = wf_ceil_div(want.hi[WF_D + i], s->blocks.at[i]);
    }
    for (at[0] = lo[0]; at[0] < hi[0]; at[0]++)
        for (at[1] = lo[1]; at[1] < hi[1]; at[1]++)
            for (at[2] = lo[2]; at[2] < hi[2]; at[2]++) {
                const struct wf_region region = block_region(s, at);
                const int64_t index =
                    (at[0] * parts_along(s, 1) + at[1]) * parts_along(s, 2) + at[2];
                const struct block *kept = __atomic_load_n(&blocks[index], __ATOMIC_ACQUIRE);
                if (!kept && s->blocks.in_order)
                    keep_above(k, s, blocks, index);
                if (!kept && !offer(k, s, &region, &blocks[index], &kept, err))
                    return false;
                if (!kept || kept == &refused)
                    return s->read(s->user, &want, dst, err);
                copy_block(s, kept, &region, &want, dst);
            }
    return true;
}
