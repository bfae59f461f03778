/*
 * Which items should run in strips.
 *
 * A row of items is looked at for what would be strip-local in it, and for what would live longer: how much
 * less would be live at the moments when too much is. That is an estimate (who shares memory is not
 * known yet), and the best are tried; where that does not help, the best of those that are reckoned
 * without what would live longer.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "plan/fit_inside.h"
#include "plan/strips.h"

enum {
    LONGEST = 24, /* row of items */
    TRIES = 24,   /* plans for one improvement */
    DEEP = 4,     /* the part of the peak below its top that rows are compared by */
};

struct row {
    int first, last;
    double gain, more; /* bytes above the mark, and above a lower one, over the steps */
};

/* What is known of the instances. */
struct known {
    const struct wf_fit *f;
    struct wf_arena arena;
    size_t *bytes;
    int *last;    /* step at which its buffer is live: windows on it are part of it */
    size_t *live; /* per step: if there were strips */
};

static bool is_window(const struct wf_item *it, int instance)
{
    int64_t shift[WF_AXES];
    return it->in[0] == instance && it->node->op->part && it->node->op->part(it->node, shift);
}

/* From the last item to the first, so that windows are known before what they are windows on. */
static void learn(struct known *k, const struct wf_fit *f)
{
    const struct wf_program *const p = f->global->program;
    *k = (struct known){ .f = f };
    k->bytes = wf_arena_array(&k->arena, p->n_instances, size_t);
    k->last = wf_arena_array(&k->arena, p->n_instances, int);
    k->live = wf_arena_array(&k->arena, f->plan->n_steps + 2, size_t);
    for (int i = 0; i < p->n_instances; i++) {
        const struct wf_region box = wf_geometry_box(&f->global->geometry, f->rank, i);
        k->bytes[i] = (size_t)wf_region_count(box) * wf_dtype_size(p->instances[i].value->dtype);
        k->last[i] = p->instances[i].last_use < 0 ? -1 : f->last_step[p->instances[i].last_use];
    }
    for (int item = p->n_items - 1; item >= 0; item--) {
        const struct wf_item *const it = &p->items[item];
        if (it->node->n_in > 0 && it->in[0] >= 0 && is_window(it, it->in[0]) &&
            k->last[it->out[0]] > k->last[it->in[0]])
            k->last[it->in[0]] = k->last[it->out[0]];
    }
}

/* Takes the bytes from what is live from step to step, or adds them. */
static void change(struct known *k, int from, int to, size_t bytes, bool less)
{
    for (int s = from; s <= to; s++)
        k->live[s] = !less ? k->live[s] + bytes : k->live[s] > bytes ? k->live[s] - bytes : 0;
}

/* If the instance were strip-local, and the windows on it had to be copied. */
static void make_strip_local(struct known *k, const struct wf_strips *s, int instance)
{
    const struct wf_fit *const f = k->f;
    const struct wf_program *const p = f->global->program;
    const int maker = p->instances[instance].maker;
    change(k, f->first_step[maker], k->last[instance],
           k->bytes[instance] - k->bytes[instance] / (size_t)s->count, true);
    for (int item = maker + 1; item <= s->last; item++) {
        const struct wf_item *const it = &p->items[item];
        if (it->node->n_in > 0 && is_window(it, instance) &&
            !wf_strips_is_local(f->global, s, it->out[0]))
            change(k, f->first_step[item], k->last[it->out[0]], k->bytes[it->out[0]], false);
    }
}

/* What is whole lives through all strips, from the first item to the last, unless a result takes its
 * place. */
static void make_longer(struct known *k, const struct wf_strips *s, int item)
{
    const struct wf_fit *const f = k->f;
    const struct wf_program *const p = f->global->program;
    const struct wf_item *const it = &p->items[item];
    const int from = f->first_step[s->first], to = f->last_step[s->last];
    for (int o = 0; o < it->node->n_out; o++)
        if (!wf_strips_is_local(f->global, s, it->out[o]) &&
            !f->global->program->instances[it->out[o]].is_fused)
            change(k, from, f->first_step[item] - 1, k->bytes[it->out[o]], false);
    for (int i = 0; i < it->node->n_in; i++) {
        const int in = it->in[i];
        if (in >= 0 && p->instances[in].maker >= 0 && p->instances[in].last_use == item &&
            !(it->node->op->inplace & (1u << i)) && !f->global->program->instances[in].is_fused &&
            !wf_strips_is_local(f->global, s, in))
            change(k, k->last[in] + 1, to, k->bytes[in], false);
    }
}

static bool reads_strip_local(const struct wf_fit *f, const struct wf_strips *s, int item)
{
    const struct wf_item *const it = &f->global->program->items[item];
    for (int k = 0; k < it->node->n_in; k++)
        if (it->in[k] >= 0 && (f->global->program->instances[it->in[k]].is_fused ||
                               wf_strips_is_local(f->global, s, it->in[k])))
            return true;
    return false;
}

static struct row weigh(struct known *k, const struct wf_strips *s, size_t mark, bool careful)
{
    const struct wf_fit *const f = k->f;
    const struct wf_program *const p = f->global->program;
    const size_t lower = f->peak - f->peak / DEEP;
    struct wf_fit after = *f;
    after.live = k->live;
    memcpy(k->live, f->live, ((size_t)f->plan->n_steps + 1) * sizeof *k->live);
    for (int item = s->first; item <= s->last; item++) {
        for (int o = 0; o < p->items[item].node->n_out; o++)
            if (wf_strips_is_local(f->global, s, p->items[item].out[o]))
                make_strip_local(k, s, p->items[item].out[o]);
        if (careful)
            make_longer(k, s, item);
    }
    return (struct row){ s->first, s->last, wf_fit_excess(f, mark) - wf_fit_excess(&after, mark),
                         wf_fit_excess(f, lower) - wf_fit_excess(&after, lower) };
}

static int by_gain(const void *a, const void *b)
{
    const struct row *const x = a, *const y = b;
    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    if (x->more != y->more)
        return x->more > y->more ? -1 : 1;
    const int first = x->last - x->first, second = y->last - y->first;
    return first != second ? first - second : x->first - y->first;
}

/* Rows that begin with something strip-local and end with a reader of it, the best first. */
static size_t find_rows(struct known *k, size_t mark, bool careful, struct row **rows)
{
    const struct wf_global_plan *const global = k->f->global;
    const int n = global->program->n_items;
    size_t count = 0, room = 0;
    for (int first = 0; first < n; first++)
        for (int last = first; last < n && last - first < LONGEST; last++) {
            struct wf_strips s;
            if (global->program->items[last].strips >= 0 ||
                !wf_strips_find(global, first, last, &s))
                break;
            if (!wf_strips_is_local(global, &s, global->program->items[first].out[0]) ||
                !reads_strip_local(k->f, &s, last))
                continue;
            const struct row row = weigh(k, &s, mark, careful);
            if (row.gain <= 0)
                continue;
            WF_GROW(*rows, room, count);
            (*rows)[count++] = row;
        }
    if (count > 0)
        qsort(*rows, count, sizeof **rows, by_gain);
    return count;
}

static struct wf_strips_request asked_of(const struct wf_program *p, const struct row *row)
{
    const struct wf_item *const first = &p->items[row->first], *const last = &p->items[row->last];
    return (struct wf_strips_request){ { first->node->id, first->wanted_by->id },
                                       { last->node->id, last->wanted_by->id } };
}

/* Tries one after the other, until one helps. Of those with equal gains the shortest is enough. */
static bool try_rows(struct wf_fit *f, const struct row rows[], size_t count, size_t mark,
                     bool *found, struct wf_err *err)
{
    const double was = wf_fit_excess(f, mark);
    bool ok = true;
    for (size_t i = 0, tried = 0; ok && !*found && i < count && tried < TRIES; i++) {
        if (i > 0 && rows[i].gain == rows[i - 1].gain && rows[i].more == rows[i - 1].more)
            continue;
        WF_GROW(f->asked.strips, f->asked.room_strips, f->asked.n_strips);
        f->asked.strips[f->asked.n_strips++] = asked_of(f->global->program, &rows[i]);
        ok = wf_fit_look(f, err);
        tried++;
        *found = ok && wf_fit_excess(f, mark) < 0.9999 * was;
        if (ok && !*found) {
            f->asked.n_strips--;
            ok = wf_fit_look(f, err);
        }
    }
    return ok;
}

bool wf_fit_strips(struct wf_fit *f, size_t mark, bool *found, struct wf_err *err)
{
    bool ok = true;
    *found = false;
    for (int careful = 1; ok && !*found && careful >= 0; careful--) {
        struct known k;
        struct row *rows = NULL;
        learn(&k, f);
        const size_t count = find_rows(&k, mark, careful, &rows);
        wf_arena_release(&k.arena);
        ok = try_rows(f, rows, count, mark, found, err);
        free(rows);
    }
    return ok;
}
