/*
 * Kernel maps on the CPU.
 *
 * Rows lie in Z order, so those of a small cube of the lattice (64 places) are neighbours: the index has one
 * entry for each cube that is there, with a bit per place and its first row. A place's row is the first
 * one plus the bits below its own. Cubes are found in a hash table that compares whole coordinates; and
 * because a row's neighbours lie in its cube or the next ones, each of these is looked up once per
 * cube of the output.
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
    for (int i = 0; i < NEAR; i++)
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

static size_t cubes_bytes(int64_t rows)
{
    return (size_t)(rows + 1) * sizeof(struct cube);
}

static bool map_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = wf_region_extent(p->in[0].box, WF_N);
    const struct wf_kernel_map_attrs *a = p->node->attrs;
    p->scratch_bytes = cubes_bytes(rows) + (size_t)table_size(rows) * sizeof(int32_t) +
                       (size_t)(wf_kernel_map_count(a) * WF_SPARSE_AXES) * sizeof(int64_t);
    return true;
}

enum { STRETCH = 512 };

static void map_run(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = call->node->attrs;
    const int64_t room = wf_region_extent(call->in[0].box, WF_N), count = wf_kernel_map_count(a);
    const int64_t n = wf_region_extent(call->work, WF_N), width = 1 + a->dims;
    struct index x = { .a = a, .dims = (int)a->dims, .bits = bits_of((int)a->dims) };
    char *const memory = call->scratch;
    x.cubes = (struct cube *)(void *)memory;
    int64_t *const offsets = (int64_t *)(void *)(memory + cubes_bytes(room));
    x.table = (int32_t *)(void *)(offsets + count * WF_SPARSE_AXES);
    x.mask = table_size(room) - 1;
    if (n < 1)
        return;
    build(&x, wf_sparse_coords(&call->in[0]), wf_sparse_rows(call, call->node->in[0]));
    for (int64_t k = 0; k < count; k++) {
        wf_kernel_map_offset(a, k, offsets + k * WF_SPARSE_AXES);
        for (int d = 0; d < x.dims; d++)
            offsets[k * WF_SPARSE_AXES + d] *= a->step[d];
    }
    const int32_t *const rows = wf_sparse_coords(&call->in[1]);
    int32_t *const map = call->out[0].data;
    WF_PARALLEL_FOR
    for (int64_t s = 0; s < wf_ceil_div(n, STRETCH); s++) {
        struct walker w = { .x = &x };
        for (int64_t r = s * STRETCH; r < wf_min(n, (s + 1) * STRETCH); r++) {
            move(&w, rows + r * width);
            for (int64_t k = 0; k < count; k++)
                map[r * count + k] = row_at(&w, rows + r * width, offsets + k * WF_SPARSE_AXES);
        }
    }
}

const struct wf_kernel wf_cpu_kernels_sparse_map[] = {
    { .op = "kernel_map", .flags = WF_KERNEL_DENSE, .prepare = map_prepare, .run = map_run },
    { 0 },
};
