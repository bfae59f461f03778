/*
 * Offsets in the arena: rectangles of (life, bytes) packed as low as they go.
 *
 * Greedy in some order, each buffer into the lowest gap among those already placed that live at the
 * same time. A training step is nested: what is made first in the forward pass dies last in the
 * backward pass. So longest life first stacks it like books, and what lives at the fullest moment is
 * laid before the rest. Several orders are tried, and where none meets the lower bound the buffer
 * that sticks out at the top is moved to the front and the packing tried again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/memory.h"
#include "plan/plan.h"

enum {
    ALIGN =
        256, /* whole lines of any cache, a GPU's of 128 bytes too: half a line costs a quarter there */
    TRIES = 48
};

struct packing {
    int n;
    const size_t *bytes;
    const int *first, *last;
    int *order;
    int *placed; /* by offset, ascending */
    size_t *offset;
    int peak; /* the step at which most is live */
};

size_t wf_memory_round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool meet(const struct packing *p, int a, int b)
{
    return p->first[a] <= p->last[b] && p->first[b] <= p->last[a];
}

static void insert(struct packing *p, int count, int which)
{
    int at = count;
    while (at > 0 && p->offset[p->placed[at - 1]] > p->offset[which]) {
        p->placed[at] = p->placed[at - 1];
        at--;
    }
    p->placed[at] = which;
}

/* Returns the height; *top is the buffer that reaches it. */
static size_t pack(struct packing *p, int *top)
{
    size_t height = 0;
    *top = 0;
    for (int i = 0; i < p->n; i++) {
        const int b = p->order[i];
        const size_t need = wf_memory_round_up(p->bytes[b]);
        size_t at = 0;
        for (int k = 0; k < i; k++) {
            const int other = p->placed[k];
            if (!meet(p, b, other))
                continue;
            if (p->offset[other] >= at + need)
                break;
            const size_t end = p->offset[other] + wf_memory_round_up(p->bytes[other]);
            if (end > at)
                at = end;
        }
        p->offset[b] = at;
        insert(p, i, b);
        if (at + need > height) {
            height = at + need;
            *top = b;
        }
    }
    return height;
}

static void promote(struct packing *p, int which)
{
    int at = 0;
    while (p->order[at] != which)
        at++;
    memmove(p->order + 1, p->order, (size_t)at * sizeof *p->order);
    p->order[0] = which;
}

static int64_t life(const struct packing *p, int i)
{
    return p->last[i] - p->first[i];
}

static bool is_at_peak(const struct packing *p, int i)
{
    return p->first[i] <= p->peak && p->peak <= p->last[i];
}

/* Ties by number, so that the order is the same on every machine. */
static int by(int64_t x, int64_t y, int a, int b)
{
    return x != y ? (x > y ? -1 : 1) : (a < b ? -1 : 1);
}

static int by_size(const void *a, const void *b, void *arg)
{
    const struct packing *p = arg;
    const int x = *(const int *)a, y = *(const int *)b;
    return by((int64_t)p->bytes[x], (int64_t)p->bytes[y], x, y);
}

static int by_life(const void *a, const void *b, void *arg)
{
    const struct packing *p = arg;
    const int x = *(const int *)a, y = *(const int *)b;
    return by(life(p, x), life(p, y), x, y);
}

static int by_peak(const void *a, const void *b, void *arg)
{
    const struct packing *p = arg;
    const int x = *(const int *)a, y = *(const int *)b;
    if (is_at_peak(p, x) != is_at_peak(p, y))
        return is_at_peak(p, x) ? -1 : 1;
    return is_at_peak(p, x) ? by_life(a, b, arg) : by_size(a, b, arg);
}

size_t wf_memory_live(int n, const size_t bytes[], const int first[], const int last[], int steps,
                      int *peak)
{
    size_t *change = wf_take_zeroed((size_t)steps + 2, sizeof *change);
    for (int i = 0; i < n; i++) { /* unsigned wrap-around makes the differences come out right */
        change[first[i]] += wf_memory_round_up(bytes[i]);
        change[last[i] + 1] -= wf_memory_round_up(bytes[i]);
    }
    size_t live = 0, most = 0;
    for (int s = 0; s <= steps; s++) {
        live += change[s];
        if (live <= most)
            continue;
        most = live;
        if (peak)
            *peak = s;
    }
    free(change);
    return most;
}

/* Tries orders until the height is no more than `enough`; returns the least. */
static size_t pack_best(struct packing *p, size_t enough, size_t offset[])
{
    static int (*const orders[])(const void *, const void *, void *) = { by_peak, by_life,
                                                                         by_size };
    size_t best = SIZE_MAX;
    for (size_t o = 0; o < sizeof orders / sizeof *orders && best > enough; o++) {
        qsort_r(p->order, (size_t)p->n, sizeof *p->order, orders[o], p);
        for (int i = 0; i < TRIES && best > enough; i++) {
            int top;
            const size_t height = pack(p, &top);
            if (height < best) {
                best = height;
                memcpy(offset, p->offset, (size_t)p->n * sizeof *offset);
            }
            promote(p, top);
        }
    }
    return best;
}

static struct packing packing_of(struct wf_arena *arena, int n, const size_t bytes[],
                                 const int first[], const int last[])
{
    struct packing p = { .n = n, .bytes = bytes, .first = first, .last = last };
    p.order = wf_arena_array(arena, n, int);
    p.placed = wf_arena_array(arena, n, int);
    p.offset = wf_arena_array(arena, n, size_t);
    for (int i = 0; i < n; i++)
        p.order[i] = i;
    return p;
}

static int last_of_all(int n, const int last[])
{
    int steps = 0;
    for (int i = 0; i < n; i++)
        steps = last[i] > steps ? last[i] : steps;
    return steps;
}

size_t wf_memory_pack(int n, const size_t bytes[], const int first[], const int last[],
                      size_t offset[])
{
    if (n == 0)
        return 0;
    struct wf_arena arena = { 0 };
    struct packing p = packing_of(&arena, n, bytes, first, last);
    const size_t bound = wf_memory_live(n, bytes, first, last, last_of_all(n, last), &p.peak);
    const size_t best = pack_best(&p, bound, offset);
    wf_arena_release(&arena);
    return best;
}

/* Lives that go on for up to `more` steps while less than `room` bytes are live; small buffers first. */
static void lengthen(const struct packing *p, int steps, int more, size_t room, int later[])
{
    size_t *const live = wf_take_zeroed((size_t)steps + 2, sizeof *live);
    for (int i = 0; i < p->n; i++) {
        later[i] = p->last[i];
        for (int s = p->first[i]; s <= p->last[i]; s++)
            live[s] += wf_memory_round_up(p->bytes[i]);
    }
    for (int k = p->n; k-- > 0;) { /* the order is that of size, the largest first */
        const int i = p->order[k];
        const size_t need = wf_memory_round_up(p->bytes[i]);
        while (later[i] < steps && later[i] < p->last[i] + more &&
               live[later[i] + 1] + need <= room)
            live[++later[i]] += need;
    }
    free(live);
}

void wf_memory_spread(int n, const size_t bytes[], const int first[], const int last[],
                      size_t height, size_t offset[])
{
    static const struct {
        int more;
        double room;
    } tries[] = { { 48, 0.96 }, { 32, 0.93 }, { 24, 0.9 }, { 16, 0.85 }, { 8, 0.8 } };
    struct wf_arena arena = { 0 };
    int *const later = wf_arena_array(&arena, n + 1, int);
    size_t *const found = wf_arena_array(&arena, n + 1, size_t);
    const int steps = last_of_all(n, last);
    bool fits = false;
    for (size_t t = 0; n > 0 && !fits && t < sizeof tries / sizeof *tries; t++) {
        struct packing p = packing_of(&arena, n, bytes, first, last);
        qsort_r(p.order, (size_t)n, sizeof *p.order, by_size, &p);
        lengthen(&p, steps, tries[t].more, (size_t)(tries[t].room * (double)height), later);
        p.last = later;
        (void)wf_memory_live(n, bytes, first, later, steps, &p.peak);
        fits = pack_best(&p, height, found) <= height;
        if (fits)
            memcpy(offset, found, (size_t)n * sizeof *offset);
    }
    wf_arena_release(&arena);
}
