/*
 * Kernel maps on the CPU.
 *
 * Rows lie in Z order, so those of a small cube of the lattice (64 places) are neighbours: the index has one
 * entry for each cube that is there, with a bit per place and its first row. A place's row is the first
 * one plus the bits below its own. Cubes are found in a hash table that compares whole coordinates; and
 * because a row's neighbours lie in its cube or the next ones, each of these is looked up once per
 * cube of the output.
 *
 * Where input and output are on one lattice, what a kernel reaches from a place of a cube is a set of
 * places of some cubes around: a few windows of 64 bits. Only neighbours that are there cost time then.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "ops/sparse.h"

enum { WIDTH = 1 + WF_SPARSE_AXES, NEAR = 729 /* 3^6 */ };

struct cube {
    int32_t at[WIDTH]; /* batch, then lattice coordinates / places along an axis */
    int32_t first;     /* row */
    uint64_t there;
};

struct index {
    const struct wf_kernel_map_attrs *a;
    int dims, bits; /* of a place along an axis */
    struct cube *cubes;
    int32_t *table; /* of cubes, -1: empty; a power of two of them */
    int64_t n, mask;
};

static int bits_of(int dims)
{
    return 6 / dims;
}

static int64_t near_count(int64_t dims)
{
    int64_t count = 1;
    while (dims-- > 0)
        count *= 3;
    return count;
}

static int64_t table_size(int64_t rows)
{
    int64_t size = 64;
    while (size < 2 * rows)
        size *= 2;
    return size;
}

static uint64_t hash_of(const int32_t at[], int dims)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int d = 0; d <= dims; d++) {
        h = (h ^ (uint32_t)at[d]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

/* The place of a lattice point in its cube, in the order of rows. */
static int place_of(const struct index *x, const int64_t lattice[])
{
    int place = 0;
    for (int b = x->bits - 1; b >= 0; b--)
        for (int d = 0; d < x->dims; d++)
            place = place * 2 + (int)(lattice[d] >> b & 1);
    return place;
}

static int32_t find(const struct index *x, const int32_t at[])
{
    const size_t bytes = (size_t)(1 + x->dims) * sizeof *at;
    for (uint64_t h = hash_of(at, x->dims);; h++) {
        const int32_t c = x->table[h & (uint64_t)x->mask];
        if (c < 0 || memcmp(x->cubes[c].at, at, bytes) == 0)
            return c;
    }
}

static void build(struct index *x, const int32_t *rows, int64_t n)
{
    const int width = 1 + x->dims;
    memset(x->table, -1, (size_t)(x->mask + 1) * sizeof *x->table);
    x->n = 0;
    for (int64_t r = 0; r < n; r++) {
        const int32_t *const row = rows + r * width;
        int64_t lattice[WF_SPARSE_AXES];
        int32_t at[WIDTH] = { row[0] };
        for (int d = 0; d < x->dims; d++) {
            lattice[d] = row[1 + d] / x->a->in_stride[d];
            at[1 + d] = (int32_t)(lattice[d] >> x->bits);
        }
        struct cube *last = x->n ? &x->cubes[x->n - 1] : NULL;
        if (!last || memcmp(last->at, at, (size_t)width * sizeof *at) != 0) {
            uint64_t h = hash_of(at, x->dims);
            while (x->table[h & (uint64_t)x->mask] >= 0)
                h++;
            x->table[h & (uint64_t)x->mask] = (int32_t)x->n;
            last = &x->cubes[x->n++];
            *last = (struct cube){ .first = (int32_t)r };
            memcpy(last->at, at, sizeof at);
        }
        last->there |= UINT64_C(1) << place_of(x, lattice);
    }
}

/* A stretch of the output's rows: what is known of the cubes around the last one. */
struct walker {
    const struct index *x;
    int32_t own[WIDTH];
    int32_t near[NEAR]; /* -2: not looked up yet */
    bool has_own;
};

static int32_t look(struct walker *w, const int64_t lattice[], int32_t batch)
{
    const struct index *const x = w->x;
    int32_t at[WIDTH] = { batch };
    int near = 0;
    for (int d = 0; d < x->dims; d++) {
        at[1 + d] = (int32_t)(lattice[d] >> x->bits);
        const int32_t away = at[1 + d] - w->own[1 + d];
        near = near < 0 || away < -1 || away > 1 ? -1 : near * 3 + away + 1;
    }
    if (near < 0)
        return find(x, at);
    if (w->near[near] == -2)
        w->near[near] = find(x, at);
    return w->near[near];
}

static void move(struct walker *w, const int32_t *row)
{
    const struct index *const x = w->x;
    int32_t own[WIDTH] = { row[0] };
    for (int d = 0; d < x->dims; d++)
        own[1 + d] = (int32_t)(wf_floor_div(row[1 + d], x->a->in_stride[d]) >> x->bits);
    if (w->has_own && memcmp(own, w->own, sizeof own) == 0)
        return;
    w->has_own = true;
    memcpy(w->own, own, sizeof own);
    for (int64_t i = 0; i < near_count(x->dims); i++)
        w->near[i] = -2;
}

/* The row of the input at the offset from a row of the output; -1: there is none. */
static int32_t row_at(struct walker *w, const int32_t *row, const int64_t offset[])
{
    const struct index *const x = w->x;
    int64_t lattice[WF_SPARSE_AXES];
    for (int d = 0; d < x->dims; d++) {
        const int64_t place = row[1 + d] + offset[d], stride = x->a->in_stride[d];
        if (place < INT32_MIN || place > INT32_MAX || (stride > 1 && place % stride != 0))
            return -1;
        lattice[d] = stride > 1 ? place / stride : place;
    }
    const int32_t c = look(w, lattice, row[0]);
    if (c < 0)
        return -1;
    const uint64_t bit = UINT64_C(1) << place_of(x, lattice), there = x->cubes[c].there;
    return there & bit ? x->cubes[c].first + __builtin_popcountll(there & (bit - 1)) : -1;
}

static void map_row(struct walker *w, const int32_t *row, const int64_t offsets[], int64_t count,
                    int32_t *map)
{
    for (int64_t k = 0; k < count; k++)
        map[k] = row_at(w, row, offsets + k * WF_SPARSE_AXES);
}

/* --- windows --- */

struct window {
    uint64_t places; /* of the cube `near`, that the kernel reaches */
    int32_t near;
    int32_t first; /* of its places' columns */
};

/* Of each place of a cube. */
struct windows {
    struct window *at; /* [64][room] */
    int32_t *n;        /* [64] */
    int16_t *column;   /* [64][count]: of the map, window after window, in the order of places */
    int64_t room, count;
};

static void *carve(char **memory, int64_t bytes)
{
    char *const part = *memory;
    *memory += wf_ceil_div(bytes, 64) * 64;
    return part;
}

/* From `memory`, which may be NULL: then to see how far it gets. */
static struct windows windows_at(const struct wf_kernel_map_attrs *a, char **memory)
{
    struct windows w = { .count = wf_kernel_map_count(a) };
    w.room = wf_min(w.count, near_count(a->dims));
    w.at = carve(memory, 64 * w.room * (int64_t)sizeof *w.at);
    w.n = carve(memory, 64 * (int64_t)sizeof *w.n);
    w.column = carve(memory, 64 * w.count * (int64_t)sizeof *w.column);
    return w;
}

/* One lattice, and no offset beyond the next cube. */
static bool has_windows(const struct wf_kernel_map_attrs *a)
{
    for (int64_t d = 0; d < a->dims; d++) {
        const int64_t step = a->step[d] / a->in_stride[d], side = INT64_C(1)
                                                                  << bits_of((int)a->dims);
        const int64_t reach = a->kernel[d] % 2 ? a->kernel[d] / 2 : a->kernel[d] - 1;
        if (a->in_stride[d] != a->out_stride[d] || a->step[d] % a->in_stride[d] != 0 ||
            reach * (step < 0 ? -step : step) > side)
            return false;
    }
    return true;
}

/* Where offset k leads from a place: one of the cubes around, and a place there. */
static void reach(const struct index *x, int from, const int64_t offset[], int *near, int *place)
{
    int64_t at[WF_SPARSE_AXES] = { 0 };
    for (int i = 0; i < x->bits * x->dims; i++) /* as place_of() interleaves */
        at[x->dims - 1 - i % x->dims] |= (int64_t)(from >> i & 1) << (i / x->dims);
    *near = 0;
    for (int d = 0; d < x->dims; d++) {
        at[d] += offset[d] / x->a->in_stride[d];
        *near = *near * 3 + (int)(at[d] >> x->bits) + 1;
        at[d] &= (1 << x->bits) - 1;
    }
    *place = place_of(x, at);
}

static void windows_make(struct windows *w, const struct index *x, const int64_t offsets[])
{
    for (int p = 0; p < 1 << (x->bits * x->dims); p++) {
        struct window *const at = w->at + p * w->room;
        uint64_t places[NEAR] = { 0 };
        int32_t which[NEAR] = { 0 }, first = 0;
        int near, place;
        w->n[p] = 0;
        for (int64_t k = 0; k < w->count; k++) {
            reach(x, p, offsets + k * WF_SPARSE_AXES, &near, &place);
            places[near] |= UINT64_C(1) << place;
        }
        for (near = 0; near < near_count(x->dims); near++) {
            which[near] = w->n[p];
            if (places[near])
                at[w->n[p]++] =
                    (struct window){ .places = places[near], .near = near, .first = first };
            first += __builtin_popcountll(places[near]);
        }
        for (int64_t k = 0; k < w->count; k++) {
            reach(x, p, offsets + k * WF_SPARSE_AXES, &near, &place);
            const uint64_t below = places[near] & ((UINT64_C(1) << place) - 1);
            w->column[p * w->count + at[which[near]].first + __builtin_popcountll(below)] =
                (int16_t)k;
        }
    }
}

static void map_row_by_windows(struct walker *w, const struct windows *windows, const int32_t *row,
                               int32_t *map)
{
    const struct index *const x = w->x;
    int64_t lattice[WF_SPARSE_AXES];
    for (int d = 0; d < x->dims; d++)
        lattice[d] = row[1 + d] / x->a->in_stride[d];
    const int place = place_of(x, lattice);
    memset(map, -1, (size_t)windows->count * sizeof *map);
    for (int i = 0; i < windows->n[place]; i++) {
        const struct window *const at = &windows->at[place * windows->room + i];
        int32_t *const near = &w->near[at->near];
        if (*near == -2) {
            int32_t cube[WIDTH] = { row[0] };
            for (int d = x->dims - 1, n = at->near; d >= 0; d--, n /= 3)
                cube[1 + d] = w->own[1 + d] + n % 3 - 1;
            *near = find(x, cube);
        }
        if (*near < 0)
            continue;
        const struct cube *const c = &x->cubes[*near];
        const int16_t *const column = windows->column + place * windows->count + at->first;
        for (uint64_t left = c->there & at->places; left; left &= left - 1) {
            const uint64_t below = (left & -left) - 1;
            map[column[__builtin_popcountll(at->places & below)]] =
                c->first + __builtin_popcountll(c->there & below);
        }
    }
}

/* --- the kernel --- */

struct memory {
    struct cube *cubes;
    int64_t *offsets;
    int32_t *table;
    struct windows windows;
};

/* The scratch; returns its bytes. */
static size_t memory_at(const struct wf_kernel_map_attrs *a, int64_t rows, char *begin,
                        struct memory *m)
{
    char *end = begin;
    m->cubes = carve(&end, (rows + 1) * (int64_t)sizeof *m->cubes);
    m->offsets = carve(&end, wf_kernel_map_count(a) * WF_SPARSE_AXES * (int64_t)sizeof *m->offsets);
    m->table = carve(&end, table_size(rows) * (int64_t)sizeof *m->table);
    if (has_windows(a))
        m->windows = windows_at(a, &end);
    return (size_t)(end - begin);
}

static bool map_prepare(struct wf_prepare *p, struct wf_err *)
{
    struct memory m;
    char none[1];
    p->scratch_bytes = memory_at(p->node->attrs, wf_region_extent(p->in[0].box, WF_N), none, &m);
    return true;
}

enum { STRETCH = 512 };

static void map_run(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = call->node->attrs;
    const int64_t room = wf_region_extent(call->in[0].box, WF_N), count = wf_kernel_map_count(a);
    const int64_t n = wf_region_extent(call->work, WF_N), width = 1 + a->dims;
    struct memory m = { 0 };
    if (n < 1)
        return;
    (void)memory_at(a, room, call->scratch, &m);
    struct index x = { .a = a, .dims = (int)a->dims, .bits = bits_of((int)a->dims) };
    x.cubes = m.cubes;
    x.table = m.table;
    x.mask = table_size(room) - 1;
    build(&x, wf_sparse_coords(&call->in[0]), wf_sparse_rows(call, call->node->in[0]));
    for (int64_t k = 0; k < count; k++) {
        wf_kernel_map_offset(a, k, m.offsets + k * WF_SPARSE_AXES);
        for (int d = 0; d < x.dims; d++)
            m.offsets[k * WF_SPARSE_AXES + d] *= a->step[d];
    }
    if (m.windows.at)
        windows_make(&m.windows, &x, m.offsets);
    const int32_t *const rows = wf_sparse_coords(&call->in[1]);
    int32_t *const map = call->out[0].data;
    WF_PARALLEL_FOR
    for (int64_t s = 0; s < wf_ceil_div(n, STRETCH); s++) {
        struct walker w = { .x = &x };
        for (int64_t r = s * STRETCH; r < wf_min(n, (s + 1) * STRETCH); r++) {
            move(&w, rows + r * width);
            if (m.windows.at)
                map_row_by_windows(&w, &m.windows, rows + r * width, map + r * count);
            else
                map_row(&w, rows + r * width, m.offsets, count, map + r * count);
        }
    }
}

/* A map of many columns, such as a stem's, takes more memory than it is worth: it is made again for the backward
 * pass. */
static bool is_wide(const struct wf_node *node)
{
    return wf_kernel_map_count(node->attrs) > 64 && has_windows(node->attrs);
}

const struct wf_kernel wf_cpu_kernels_sparse_map[] = {
    { .op = "kernel_map", .flags = WF_KERNEL_DENSE, .prepare = map_prepare, .run = map_run },
    { .op = "kernel_map",
      .flags = WF_KERNEL_DENSE | WF_KERNEL_CHEAP,
      .preference = 1,
      .accepts = is_wide,
      .prepare = map_prepare,
      .run = map_run },
    { 0 },
};
