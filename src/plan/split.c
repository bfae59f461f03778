/*
 * Inner part and halo: an item runs in two parts, first what needs nothing that is still on its way,
 * then, when that has come, the rest.
 *
 * Where an item waits for a fetch, the items from it on form a chain: the inner part of the first
 * reads only what the rank made itself, the inner part of the next only the inner part of the first
 * and so on, and an item that reads none of it runs whole. All inner parts come before the end of
 * the fetch, all halos behind it. That costs smaller kernels, and packed copies where a kernel wants
 * packed boxes and an inner axis is cut; it saves what would be waited for. The chain is as long as
 * pays most by the estimates, and there is none where nothing pays.
 *
 * C1. No item of a chain is a sum, and none but the last has a result that is fetched: so a chain
 *     delays no communication behind a wait for something that began later (O1 of overlap.c).
 * C2. No item of a chain writes a buffer that travels, or that an item of the chain reads from
 *     elsewhere: the halos still read what the inner parts read.
 * C3. The parts of an item cover its work, each position once.
 */
#include <math.h>

#include "ops/op.h"
#include "plan/planner.h"

/* Items whose inner parts run while what the first of them waits for is still on its way. */
enum { CHAIN_MOST = 8 };
struct chain {
    int first, count;
    struct wf_region inner[CHAIN_MOST]; /* all of the work where nothing has to be waited for */
};

/* What a kernel call costs that no estimate of its work knows of. */
static const double call_seconds = 2e-5;

static struct wf_region work_of(const struct wf_planner *p, int item)
{
    return wf_geometry_work(p->geo, p->rank, item);
}

/* The part of an instance that is there before the chain has waited: all of it (false), or `part`. */
static bool is_partly_there(const struct wf_planner *p, const struct chain *chain, int instance,
                            struct wf_region *part)
{
    if (p->exchange[instance] >= 0) {
        *part = wf_geometry_have(p->geo, p->rank, instance);
        return true;
    }
    const int at = p->program->instances[instance].maker - chain->first;
    if (at < 0 || at >= chain->count)
        return false;
    *part = chain->inner[at];
    return !wf_region_equal(*part, work_of(p, chain->first + at));
}

struct trim {
    const struct wf_planner *p;
    int item, input;
    struct wf_region part; /* of the input */
};

static bool reads_only_part(const struct trim *t, struct wf_region work, int axis, bool low)
{
    const struct wf_region r = wf_planner_reads(t->p, t->item, t->input, work);
    if (wf_region_is_empty(r))
        return true;
    return low ? r.lo[axis] >= t->part.lo[axis] : r.hi[axis] <= t->part.hi[axis];
}

/* Cuts as little as possible from one end of the work: the less work, the less it reads. */
static void trim_end(const struct trim *t, struct wf_region *work, int axis, bool low)
{
    int64_t good = wf_region_extent(*work, (enum wf_axis)axis), bad = -1; /* lines cut off */
    while (good - bad > 1) {
        const int64_t lines = bad + (good - bad) / 2;
        struct wf_region less = *work;
        *(low ? &less.lo[axis] : &less.hi[axis]) += low ? lines : -lines;
        if (reads_only_part(t, less, axis, low))
            good = lines;
        else
            bad = lines;
    }
    *(low ? &work->lo[axis] : &work->hi[axis]) += low ? good : -good;
}

/* The largest part of the work that can run now; empty: none. */
static struct wf_region inner_of(const struct wf_planner *p, const struct chain *chain, int item)
{
    const struct wf_item *it = &p->program->items[item];
    struct wf_region inner = work_of(p, item);
    struct trim t = { .p = p, .item = item };
    for (t.input = 0; t.input < it->node->n_in; t.input++) {
        if (it->in[t.input] < 0 || !is_partly_there(p, chain, it->in[t.input], &t.part))
            continue;
        if (wf_region_is_empty(wf_planner_reads(p, item, t.input, inner)))
            continue;
        for (int axis = WF_N; axis < WF_C && !wf_region_is_empty(inner); axis++) {
            trim_end(&t, &inner, axis, true);
            trim_end(&t, &inner, axis, false);
        }
        /* An operator whose axes do not keep apart cannot be trimmed axis by axis. */
        if (!wf_region_contains(t.part, wf_planner_reads(p, item, t.input, inner)))
            return (struct wf_region){ 0 };
    }
    return inner;
}

static bool travels(const struct wf_planner *p, int buffer)
{
    for (int i = 0; i < p->program->n_instances; i++)
        if ((p->exchange[i] >= 0 || p->sum[i] >= 0) && p->slot[i].buffer == buffer)
            return true;
    return false;
}

/* An input that was placed in the result is not read. */
static bool reads_buffer(const struct wf_planner *p, int item, int buffer)
{
    const struct wf_item *it = &p->program->items[item];
    for (int k = 0; k < it->node->n_in; k++)
        if (it->in[k] >= 0 && p->slot[it->in[k]].buffer == buffer &&
            p->root[it->in[k]] != it->out[0])
            return true;
    return false;
}

static bool has_fetched_result(const struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    for (int o = 0; o < it->node->n_out; o++)
        if (p->geo->fetch_of[it->out[o]] >= 0)
            return true;
    return false;
}

/* C1, C2 */
static bool may_join(const struct wf_planner *p, const struct chain *chain, int item)
{
    const struct wf_item *it = &p->program->items[item];
    if (it->strips >= 0 || p->is_late[item] || wf_op_sums_over(it->node) ||
        p->geo->grouping[item] || wf_region_is_empty(work_of(p, item)))
        return false;
    for (int k = 0; k < it->node->n_in; k++)
        if (it->in[k] >= 0 && p->program->instances[it->in[k]].is_fused)
            return false;
    for (int o = 0; o < it->node->n_out; o++) {
        const int buffer = p->slot[it->out[o]].buffer;
        if (buffer < 0 || p->program->instances[it->out[o]].bucket >= 0 || travels(p, buffer))
            return false;
        for (int j = chain->first; j <= item; j++)
            if (reads_buffer(p, j, buffer))
                return false;
    }
    return true;
}

/* --- what it costs --- */

/* Of the steps that would run the part. */
static double part_seconds(struct wf_planner *p, int item, struct wf_region work)
{
    const int first = p->plan->n_steps;
    double seconds = call_seconds;
    wf_planner_emit_item(p, item, work);
    for (int s = first; s < p->plan->n_steps; s++)
        seconds += p->plan->steps[s].seconds + wf_pack_seconds(p, &p->plan->steps[s]);
    p->plan->n_steps = first;
    return seconds;
}

/* How long an item would still wait for its fetches; negative: it has none to wait for. */
static double wait_seconds(const struct wf_planner *p, int item)
{
    double wait = -1;
    for (int f = p->geo->first_before[item]; f >= 0; f = p->geo->fetches[f].next_before) {
        const int i = p->geo->fetches[f].instance;
        if (p->exchange[i] >= 0)
            wait = fmax(wait, fmax(p->arrives[i] - p->clock, 0));
    }
    return wait;
}

struct balance {
    double wait, whole, inner, halo; /* seconds */
    bool is_split;                   /* at least one item has both parts */
};

static void weigh(struct wf_planner *p, const struct chain *chain, int item, struct balance *b)
{
    const struct wf_region work = work_of(p, item), inner = chain->inner[item - chain->first];
    struct wf_region halos[WF_SUBTRACT_MAX];
    const int n = wf_region_subtract(work, inner, halos);
    b->wait = fmax(b->wait, wait_seconds(p, item));
    b->whole += part_seconds(p, item, work);
    b->inner += part_seconds(p, item, inner);
    for (int i = 0; i < n; i++)
        b->halo += part_seconds(p, item, halos[i]);
    b->is_split = b->is_split || n > 0;
}

static double gain(const struct balance *b)
{
    const double split = fmax(b->inner, b->wait) + b->halo;
    return b->is_split ? b->wait + b->whole - split : 0;
}

static bool find_chain(struct wf_planner *p, int item, struct chain *chain)
{
    const bool always = p->options->split_always;
    struct balance b = { .wait = wait_seconds(p, item) };
    if (always ? b.wait < 0 : b.wait <= call_seconds)
        return false;
    *chain = (struct chain){ .first = item };
    int best = 0;
    double most = 0;
    while (chain->count < CHAIN_MOST && item < p->program->n_items &&
           p->program->items[item].segment == p->program->items[chain->first].segment) {
        if (!may_join(p, chain, item))
            break;
        const struct wf_region inner = inner_of(p, chain, item);
        if (wf_region_is_empty(inner))
            break;
        chain->inner[chain->count++] = inner;
        weigh(p, chain, item, &b);
        if (always ? b.is_split : gain(&b) > most) {
            best = chain->count;
            most = gain(&b);
        }
        if (has_fetched_result(p, item++)) /* C1 */
            break;
    }
    chain->count = best;
    return best > 0;
}

/* --- the pass --- */

/* Keeps count of what is on its way, and of the time. */
static void follow(struct wf_planner *p, const struct wf_step *s)
{
    const struct wf_plan *const plan = p->plan;
    if (s->kind == WF_STEP_FETCH_BEGIN) {
        const struct wf_exchange *const x = &plan->exchanges[s->which];
        p->exchange[x->instance] = s->which;
        p->arrives[x->instance] = p->clock + wf_cost_exchange(plan->global, plan->rank, x);
    } else if (s->kind == WF_STEP_FETCH_END) {
        const int instance = plan->exchanges[s->which].instance;
        p->exchange[instance] = -1;
        p->clock = fmax(p->clock, p->arrives[instance]);
    } else if (s->kind == WF_STEP_SUM_BEGIN || s->kind == WF_STEP_SUM_END) {
        p->sum[plan->sums[s->which].instance] = s->kind == WF_STEP_SUM_BEGIN ? s->which : -1;
    } else {
        p->clock += s->seconds + wf_pack_seconds(p, s);
    }
}

static void put(struct wf_planner *p, const struct wf_step *s)
{
    wf_planner_put(p, s);
    follow(p, s);
}

/* A part of the item. */
static void put_part(struct wf_planner *p, int item, struct wf_region work)
{
    const int first = p->plan->n_steps;
    p->item = item;
    wf_planner_emit_item(p, item, work);
    for (int s = first; s < p->plan->n_steps; s++)
        follow(p, &p->plan->steps[s]);
}

/* Those of the item's steps that are of a kind. */
static void put_kind(struct wf_planner *p, const struct wf_steps *steps, int item,
                     enum wf_step_kind kind)
{
    for (int s = 0; s < steps->n; s++)
        if (steps->at[s].item == item && steps->at[s].kind == kind)
            put(p, &steps->at[s]);
}

/* In place of the items' steps: inner parts, then what they did not wait for, then the halos. */
static void put_chain(struct wf_planner *p, const struct chain *chain, const struct wf_steps *steps)
{
    for (int i = 0; i < chain->count; i++) {
        put_kind(p, steps, chain->first + i, WF_STEP_SUM_END);
        put_part(p, chain->first + i, chain->inner[i]);
    }
    for (int i = 0; i < chain->count; i++) {
        const int item = chain->first + i;
        struct wf_region halos[WF_SUBTRACT_MAX];
        const int n = wf_region_subtract(work_of(p, item), chain->inner[i], halos);
        put_kind(p, steps, item, WF_STEP_FETCH_END);
        for (int k = 0; k < n; k++)
            put_part(p, item, halos[k]);
        put_kind(p, steps, item, WF_STEP_FETCH_BEGIN);
    }
}

/* The steps of the items of a chain, which follow each other. */
static struct wf_steps steps_of(const struct chain *chain, const struct wf_steps *all, int from)
{
    int to = from;
    while (to < all->n && all->at[to].item >= chain->first &&
           all->at[to].item < chain->first + chain->count)
        to++;
    return (struct wf_steps){ .at = all->at + from, .n = to - from };
}

/* Of an item, which may wait for several fetches. */
static bool is_first_wait(const struct wf_steps *steps, int s)
{
    const struct wf_step *const at = &steps->at[s];
    return at->kind == WF_STEP_FETCH_END && at->item >= 0 &&
           (s == 0 || at[-1].kind != WF_STEP_FETCH_END || at[-1].item != at->item);
}

void wf_pass_split(struct wf_planner *p)
{
    if (p->options->no_overlap || p->plan->n_exchanges == 0)
        return;
    const struct wf_steps old = wf_planner_take_steps(p);
    for (int s = 0; s < old.n; s++) {
        struct chain chain;
        if (!is_first_wait(&old, s) || !find_chain(p, old.at[s].item, &chain)) {
            put(p, &old.at[s]);
            continue;
        }
        const struct wf_steps replaced = steps_of(&chain, &old, s);
        put_chain(p, &chain, &replaced);
        s += replaced.n - 1;
    }
    p->spare = old;
}

/* A kernel of an item that runs whole or in parts. */
static bool is_part(const struct wf_step *s, int item)
{
    return s->kind == WF_STEP_KERNEL && s->item == item && s->strip < 0 &&
           !wf_region_is_empty(s->work);
}

const char *wf_pass_split_check(const struct wf_plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_step *const s = &plan->steps[i];
        int64_t count = 0;
        if (!is_part(s, s->item) || s->item < 0)
            continue;
        for (int k = 0; k < plan->n_steps; k++) {
            const struct wf_step *const other = &plan->steps[k];
            if (!is_part(other, s->item))
                continue;
            count += wf_region_count(other->work);
            if (k != i && !wf_region_is_empty(wf_region_intersect(s->work, other->work))) /* C3 */
                return s->node->name;
        }
        if (count !=
            wf_region_count(wf_geometry_work(&plan->global->geometry, plan->rank, s->item)))
            return s->node->name;
    }
    return NULL;
}
