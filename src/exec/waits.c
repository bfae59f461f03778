#include "exec/waits.h"

#include <stdlib.h>

#include "base/memory.h"
#include "ops/op.h"

/* What a step touches: bytes of memory, or the count of a set. */
struct touched {
    const char *lo, *hi;
    bool writes;
};

struct list {
    struct touched *at;
    int n, room;
};

static void add(struct list *l, const char *lo, size_t bytes, bool writes)
{
    if (!lo || bytes == 0)
        return;
    if (l->n == l->room) {
        l->room = 2 * l->room + 64;
        struct touched *const grown = realloc(l->at, (size_t)l->room * sizeof *grown);
        if (!grown)
            wf_no_memory((size_t)l->room * sizeof *grown);
        l->at = grown;
    }
    l->at[l->n++] = (struct touched){ lo, lo + bytes, writes };
}

/* Of a buffer all of it: parts of one that several steps write are few. */
static void add_buffer(const struct wf_run *run, struct list *l, int buffer, bool writes)
{
    if (buffer < 0)
        return;
    const struct wf_plan_buffer *const b = &run->plan->buffers[buffer];
    const struct wf_slot slot = { .buffer = buffer };
    add(l, wf_run_resolve(run, &slot).data, b->slots > 1 ? b->slot_bytes : b->bytes, writes);
}

/* Rows of the sets that a node has to do with. */
static void add_counts(struct list *l, const int32_t *rows, const struct wf_node *node)
{
    const bool makes = node->op->flags & WF_OP_COUNTS;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && node->in[i]->set)
            add(l, (const char *)&rows[node->in[i]->set], sizeof *rows, false);
    for (int o = 0; o < node->n_out; o++)
        if (node->out[o]->set)
            add(l, (const char *)&rows[node->out[o]->set], sizeof *rows, makes);
    if (wf_op_domain(node)->set) /* kernels that sum ask for its rows */
        add(l, (const char *)&rows[wf_op_domain(node)->set], sizeof *rows, false);
}

static void add_step(const struct wf_run *run, struct list *l, int s)
{
    const struct wf_step *const step = &run->plan->steps[s];
    for (int k = 0; k < step->n_in; k++)
        add_buffer(run, l, step->in[k].buffer, false);
    for (int o = 0; o < step->n_out; o++)
        add_buffer(run, l, step->out[o].buffer, true);
    add_buffer(run, l, step->kind == WF_STEP_KERNEL ? step->scratch : -1, true);
    if (!run->calls[s].rows || !step->node)
        return;
    add_counts(l, run->calls[s].rows, step->node);
    for (int f = 0; f < step->n_fused; f++)
        add_counts(l, run->calls[s].rows, step->fuses[f].node);
}

static bool meet(const struct touched *a, int n, const struct touched *b, int m)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            if ((a[i].writes || b[k].writes) && a[i].lo < b[k].hi && b[k].lo < a[i].hi)
                return true;
    return false;
}

/* Bits of the steps before a step: those that have ended when it begins. */
static bool has(const uint64_t *bits, int i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* Steps that step s waits for, the latest first; `before` has a row of bits for each of them. */
static int find_after(const struct list *l, const int *begin, int s, uint64_t *before, int words,
                      int *after)
{
    uint64_t *const mine = before + (size_t)s * words;
    int n = 0;
    for (int t = s - 1; t >= 0;
         t--) { /* the one WF_BRANCH_WINDOW before it in any case: target.h */
        if (has(mine, t) ||
            (t != s - WF_BRANCH_WINDOW && !meet(l->at + begin[s], begin[s + 1] - begin[s],
                                                l->at + begin[t], begin[t + 1] - begin[t])))
            continue;
        after[n++] = t;
        for (int w = 0; w < words; w++)
            mine[w] |= before[(size_t)t * words + w];
        mine[t / 64] |= UINT64_C(1) << t % 64;
    }
    return n;
}

const struct wf_waits *wf_waits_find(const struct wf_run *run, int part, struct wf_arena *arena)
{
    const struct wf_plan_part *const steps = &run->plan->parts[part];
    const int n = steps->end - steps->first, words = n / 64 + 1;
    struct list l = { 0 };
    struct wf_arena own = { 0 };
    int *const begin = wf_arena_array(&own, n + 1, int);
    int *const after = wf_arena_array(&own, n + 1, int);
    uint64_t *const before = wf_arena_array(&own, (int64_t)n * words + 1, uint64_t);
    bool *const awaited = wf_arena_array(&own, n + 1, bool);
    struct wf_waits *const w = wf_arena_array(arena, 1, struct wf_waits);
    w->first = steps->first;
    w->begin = wf_arena_array(arena, n + 1, int);
    w->ends = wf_arena_array(arena, n + 1, int);
    int room = 0;
    for (int s = 0; s < n; s++) {
        begin[s] = l.n;
        add_step(run, &l, steps->first + s);
        begin[s + 1] = l.n;
        const int count = find_after(&l, begin, s, before, words, after);
        if (w->begin[s] + count > room) {
            int *const grown = wf_arena_array(arena, 2 * room + count + n, int);
            for (int i = 0; i < w->begin[s]; i++)
                grown[i] = w->after[i];
            w->after = grown;
            room = 2 * room + count + n;
        }
        for (int i = 0; i < count; i++) {
            w->after[w->begin[s] + i] = after[i];
            awaited[after[i]] = true;
        }
        w->begin[s + 1] = w->begin[s] + count;
    }
    for (int s = 0; s < n; s++)
        if (!awaited[s])
            w->ends[w->n_ends++] = s;
    free(l.at);
    wf_arena_release(&own);
    return w;
}
