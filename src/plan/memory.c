/*
 * Offsets in the arena: rectangles of (life, bytes) packed as low as they go.
 *
 * Greedy in some order, each buffer into the lowest gap among those already placed that live at the
 * same time. Large first is nearly always within a percent of the lower bound; where it is not, the
 * buffer that sticks out at the top is moved to the front of the order and the packing is tried
 * again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "plan/plan.h"

enum { ALIGN = 64, TRIES = 48 };

struct packing {
    int n;
    const size_t *bytes;
    const int *first, *last;
    int *order;
    int *placed; /* by offset, ascending */
    size_t *offset;
};

static size_t round_up(size_t bytes)
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
        const size_t need = round_up(p->bytes[b]);
        size_t at = 0;
        for (int k = 0; k < i; k++) {
            const int other = p->placed[k];
            if (!meet(p, b, other))
                continue;
            if (p->offset[other] >= at + need)
                break;
            const size_t end = p->offset[other] + round_up(p->bytes[other]);
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

static int by_size(const void *a, const void *b, void *arg)
{
    const struct packing *p = arg;
    const int x = *(const int *)a, y = *(const int *)b;
    if (p->bytes[x] != p->bytes[y])
        return p->bytes[x] > p->bytes[y] ? -1 : 1;
    if (p->first[x] != p->first[y])
        return p->first[x] < p->first[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

size_t wf_memory_live(int n, const size_t bytes[], const int first[], const int last[], int steps)
{
    size_t *change = calloc((size_t)steps + 2, sizeof *change);
    WF_BUG_ON(!change, "out of memory");
    for (int i = 0; i < n; i++) { /* unsigned wrap-around makes the differences come out right */
        change[first[i]] += round_up(bytes[i]);
        change[last[i] + 1] -= round_up(bytes[i]);
    }
    size_t live = 0, most = 0;
    for (int s = 0; s <= steps; s++) {
        live += change[s];
        most = live > most ? live : most;
    }
    free(change);
    return most;
}

size_t wf_memory_pack(int n, const size_t bytes[], const int first[], const int last[],
                      size_t offset[])
{
    if (n == 0)
        return 0;
    struct wf_arena arena = { 0 };
    struct packing p = { .n = n, .bytes = bytes, .first = first, .last = last };
    p.order = wf_arena_array(&arena, n, int);
    p.placed = wf_arena_array(&arena, n, int);
    p.offset = wf_arena_array(&arena, n, size_t);
    int steps = 0;
    for (int i = 0; i < n; i++) {
        p.order[i] = i;
        steps = last[i] > steps ? last[i] : steps;
    }
    const size_t bound = wf_memory_live(n, bytes, first, last, steps);
    qsort_r(p.order, (size_t)n, sizeof *p.order, by_size, &p);
    size_t best = SIZE_MAX;
    for (int i = 0; i < TRIES && best > bound; i++) {
        int top;
        const size_t height = pack(&p, &top);
        if (height < best) {
            best = height;
            memcpy(offset, p.offset, (size_t)n * sizeof *offset);
        }
        promote(&p, top);
    }
    wf_arena_release(&arena);
    return best;
}
