#include "plan/fit_inside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "ops/op.h"
#include "plan/alike.h"

enum {
    /* What is above this part of the fullest moment is looked at: moments that are nearly as full
     * have to be brought down with it. */
    NEAR_PEAK = 32,
    MANY = 8,      /* results that are small against what is too much are requested together */
    TRIES = 24,    /* plans for one improvement */
    PRUNINGS = 3,  /* times that pruning is tried, each with a little less room */
    EXPENSIVE = 8, /* the part of the step that may go into recomputing */
    TIGHTER = 8,   /* the part of the limit that another search does without */
};

/* What costs less than this part of the step is not taken back: it is not worth the planning. */
static const double worth_it = 1e-3;

/* Something that could be recomputed: what lies idle between two uses. */
struct candidate {
    int value, node;            /* recomputed for the node */
    int item;                   /* that reads it then */
    int from, to;               /* the steps during which it need not live */
    size_t bytes;               /* on the rank that is looked at */
    double gain;                /* bytes above the mark, over the steps */
    double seconds;             /* for making it, and whatever else that needs */
    struct wf_recompute *pairs; /* all that is requested with it */
    int n_pairs;
};

size_t wf_plan_total_bytes(const struct wf_plan *plan)
{
    return plan->arena_bytes + wf_plan_param_bytes(plan) + plan->global->options.more;
}

/* --- what is known of a plan --- */

static void measure_live(struct wf_fit *f)
{
    const struct wf_plan *const plan = f->plan;
    f->live = wf_arena_array(&f->arena, plan->n_steps + 2, size_t);
    for (int i = 0; i < plan->n_buffers; i++) {
        const struct wf_plan_buffer *const b = &plan->buffers[i];
        if (b->store != WF_STORE_ARENA || b->first < 0)
            continue;
        f->live[b->first] +=
            b->bytes; /* unsigned wrap-around makes the differences come out right */
        f->live[b->last + 1] -= b->bytes;
    }
    f->peak = f->live[0];
    for (int s = 1; s <= plan->n_steps; s++) {
        f->live[s] += f->live[s - 1];
        f->peak = f->live[s] > f->peak ? f->live[s] : f->peak;
    }
}

/* Where each item stands among the steps; one without steps stands between its neighbours'. */
static void find_steps(struct wf_fit *f)
{
    const int n = f->global->program->n_items;
    f->first_step = wf_arena_array(&f->arena, n + 1, int);
    f->last_step = wf_arena_array(&f->arena, n + 1, int);
    for (int i = 0; i <= n; i++) {
        f->first_step[i] = INT_MAX;
        f->last_step[i] = -1;
    }
    for (int s = 0; s < f->plan->n_steps; s++) {
        const int item = f->plan->steps[s].item;
        if (item < 0)
            continue;
        f->first_step[item] = s < f->first_step[item] ? s : f->first_step[item];
        f->last_step[item] = s;
    }
    for (int i = 0, last = -1; i < n; i++)
        last = f->last_step[i] = f->last_step[i] < 0 ? last : f->last_step[i];
    for (int i = n, first = f->plan->n_steps; i >= 0; i--)
        first = f->first_step[i] = f->first_step[i] == INT_MAX ? first : f->first_step[i];
}

static void find_seconds(struct wf_fit *f)
{
    const struct wf_program *const p = f->global->program;
    f->seconds = wf_arena_array(&f->arena, f->global->graph->n_nodes, double);
    for (int s = 0; s < f->plan->n_steps; s++) {
        const struct wf_step *const step = &f->plan->steps[s];
        if (step->node && step->item >= 0 && !p->instances[p->items[step->item].out[0]].recompute)
            f->seconds[step->node->id] += step->seconds;
    }
}

static struct wf_global_plan *make(const struct wf_fit *f, struct wf_err *err)
{
    const struct wf_global_plan *const s = f->full;
    return wf_global_plan_make(s->graph, &s->mesh, &s->options, &f->asked, err);
}

bool wf_fit_look(struct wf_fit *f, struct wf_err *err)
{
    wf_plan_free(f->plan);
    wf_global_plan_free(f->global);
    wf_arena_release(&f->arena);
    f->arena = (struct wf_arena){ 0 };
    f->plan = NULL;
    if (wf_stop_asked(f->full->options.stop, err))
        return false;
    f->global = wf_global_plan_of_rank(make(f, err), f->rank, err);
    if (f->global)
        f->plan = wf_plan_estimate_lives(f->global, f->rank, &f->cache, err);
    if (!f->plan)
        return false;
    measure_live(f);
    find_steps(f);
    find_seconds(f);
    return true;
}

double wf_fit_excess(const struct wf_fit *f, size_t mark)
{
    double sum = 0;
    for (int s = 0; s <= f->plan->n_steps; s++)
        sum += f->live[s] > mark ? (double)(f->live[s] - mark) : 0;
    return sum;
}

/* --- what could be recomputed --- */

static bool is_output(const struct wf_graph *g, const struct wf_value *v)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

/* The newest instance of the value before the item lives at least until the item. */
static bool is_there(const struct wf_fit *f, const struct wf_value *v, int item)
{
    const struct wf_program *const p = f->global->program;
    for (int i = p->n_instances - 1; i >= 0; i--)
        if (p->instances[i].value == v && p->instances[i].maker < item)
            return p->instances[i].last_use >= item || p->instances[i].keep;
    return false;
}

static bool is_among(const struct wf_recompute *pairs, int n, int value, int node)
{
    for (int i = 0; i < n; i++)
        if (pairs[i].value == value && pairs[i].node == node)
            return true;
    return false;
}

/* Asks for the value, and for all that making it needs and that is not there by then. */
static void ask_for(const struct wf_fit *f, struct candidate *c, const struct wf_value *v)
{
    if (is_among(c->pairs, c->n_pairs, v->id, c->node))
        return;
    c->pairs[c->n_pairs++] = (struct wf_recompute){ v->id, c->node };
    c->seconds += f->seconds[v->producer->id];
    for (int k = 0; k < v->producer->n_in; k++) {
        const struct wf_value *const in = v->producer->in[k];
        if (in && wf_program_may_repeat(in) && !is_there(f, in, c->item))
            ask_for(f, c, in);
    }
}

static double gain_of(const struct wf_fit *f, const struct candidate *c, size_t mark)
{
    double gain = 0;
    for (int s = c->from; s <= c->to; s++)
        if (f->live[s] > mark)
            gain += (double)wf_min((int64_t)c->bytes, (int64_t)(f->live[s] - mark));
    return gain;
}

static int by_worth(const void *a, const void *b)
{
    const struct candidate *const x = a, *const y = b;
    const double first = x->gain * y->seconds, second = y->gain * x->seconds;
    if (first != second)
        return first > second ? -1 : 1;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->node < y->node ? -1 : 1;
}

/* Between two uses of an instance, the second in another node's turn. */
static bool find_candidate(const struct wf_fit *f, int instance, int before, int item, size_t mark,
                           struct candidate *c)
{
    const struct wf_program *const p = f->global->program;
    const struct wf_value *const v = p->instances[instance].value;
    if (!wf_program_may_repeat(v) || p->items[before].wanted_by == p->items[item].wanted_by ||
        is_output(f->global->graph, v) || f->global->program->instances[instance].is_fused)
        return false;
    const struct wf_region box = wf_geometry_box(&f->global->geometry, f->rank, instance);
    *c = (struct candidate){ .value = v->id,
                             .node = p->items[item].wanted_by->id,
                             .item = item,
                             .from = f->last_step[before] + 1,
                             .to = f->first_step[item] - 1,
                             .bytes = (size_t)wf_region_count(box) * wf_dtype_size(v->dtype) };
    c->gain = gain_of(f, c, mark);
    return c->gain > 0;
}

/* All that would bring down what is above the mark, the most worth first. */
static size_t find_candidates(const struct wf_fit *f, struct wf_arena *arena, size_t mark,
                              struct candidate **list)
{
    const struct wf_program *const p = f->global->program;
    int *const touched = wf_arena_array(arena, p->n_instances, int); /* item of the newest use */
    size_t count = 0, room = 0;
    for (int i = 0; i < p->n_instances; i++)
        touched[i] = p->instances[i].maker;
    for (int item = 0; item < p->n_items; item++)
        for (int k = 0; k < p->items[item].node->n_in; k++) {
            const int in = p->items[item].in[k];
            if (in < 0)
                continue;
            WF_GROW(*list, room, count);
            struct candidate *const c = &(*list)[count];
            if (touched[in] >= 0 && find_candidate(f, in, touched[in], item, mark, c)) {
                c->pairs = wf_arena_array(arena, f->global->graph->n_values, struct wf_recompute);
                ask_for(f, c, p->instances[in].value);
                count++;
            }
            touched[in] = item;
        }
    if (count > 0)
        qsort(*list, count, sizeof **list, by_worth);
    return count;
}

/* --- the search --- */

static void ask(struct wf_fit *f, const struct candidate *c)
{
    for (int i = 0; i < c->n_pairs; i++) {
        if (is_among(f->asked.recompute, (int)f->asked.n_recompute, c->pairs[i].value,
                     c->pairs[i].node))
            continue;
        WF_GROW(f->asked.recompute, f->asked.room_recompute, f->asked.n_recompute);
        f->asked.recompute[f->asked.n_recompute++] = c->pairs[i];
    }
}

/* As many of the list as should bring everything below the mark, by what each of them frees: they go
 * to the front. Returns how many. */
static size_t gather(const struct wf_fit *f, struct wf_arena *arena, struct candidate *list,
                     size_t count, size_t mark)
{
    struct wf_fit after = *f;
    after.live = wf_arena_array(arena, f->plan->n_steps + 2, size_t);
    memcpy(after.live, f->live, ((size_t)f->plan->n_steps + 1) * sizeof *after.live);
    size_t taken = 0;
    for (size_t i = 0; i < count && wf_fit_excess(&after, mark) > 0; i++) {
        const struct candidate c = list[i];
        if (gain_of(&after, &c, mark) <= 0)
            continue;
        for (int s = c.from; s <= c.to; s++)
            after.live[s] -= wf_min((int64_t)c.bytes, (int64_t)after.live[s]);
        memmove(list + taken + 1, list + taken, (i - taken) * sizeof *list);
        list[taken++] = c;
    }
    return taken;
}

/* Asks for these as well, if that brings down what is above the mark. */
static bool try_list(struct wf_fit *f, const struct candidate *list, size_t count, size_t mark,
                     bool *better, struct wf_err *err)
{
    const size_t before = f->asked.n_recompute;
    const double was = wf_fit_excess(f, mark);
    for (size_t i = 0; i < count; i++)
        ask(f, &list[i]);
    *better = false;
    if (f->asked.n_recompute == before)
        return true;
    if (!wf_fit_look(f, err))
        return false;
    *better = wf_fit_excess(f, mark) < 0.9999 * was;
    if (*better)
        return true;
    f->asked.n_recompute = before;
    return wf_fit_look(f, err);
}

/* Something more is requested; *found: there was something. First all that seems to be needed at
 * once, then fewer of it, then one after the other. */
static bool recompute_more(struct wf_fit *f, size_t mark, bool *found, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct candidate *list = NULL;
    const size_t count = find_candidates(f, &arena, mark, &list);
    bool ok = true;
    *found = false;
    WF_BUG_ON(count > 0 && !list, "%zu of nothing", count);
    for (size_t n = gather(f, &arena, list, count, mark); ok && !*found && n > MANY; n /= 2)
        ok = try_list(f, list, n, mark, found, err);
    for (size_t i = 0; ok && !*found && i < count && i < TRIES; i++)
        ok = try_list(f, list + i, 1, mark, found, err);
    free(list);
    wf_arena_release(&arena);
    return ok;
}

/* The rank that takes most, and how many bytes. */
static bool find_worst(struct wf_fit *f, int *rank, size_t *bytes, struct wf_err *err)
{
    struct wf_global_plan *const s = f->full;
    struct wf_arena arena = { 0 };
    int *ranks;
    const int n = wf_unlike_ranks(&arena, &s->geometry, &ranks);
    bool ok = true;
    *bytes = 0;
    for (int i = 0; ok && i < n; i++) {
        struct wf_plan *const plan = wf_plan_estimate(s, ranks[i], &f->cache, err);
        ok = plan != NULL;
        if (!plan)
            break;
        if (wf_plan_total_bytes(plan) > *bytes) {
            *bytes = wf_plan_total_bytes(plan);
            *rank = ranks[i];
        }
        wf_plan_free(plan);
    }
    wf_arena_release(&arena);
    s->bytes = *bytes;
    return ok;
}

/* Makes the global plan of all ranks; *bytes: of the one that takes most. */
static bool make_full(struct wf_fit *f, size_t *bytes, struct wf_err *err)
{
    struct wf_global_plan *const full = wf_global_plan_of_all(make(f, err), err);
    if (!full)
        return false;
    wf_global_plan_free(f->full);
    f->full = full;
    return find_worst(f, &f->rank, bytes, err);
}

/* STRAIGHT: what is below the limit does not matter. BY_AND_BY: one full moment after the other is
 * brought down, on a way that does not depend on the limit: so what such a search ends with is a limit
 * that it can meet. IN_STRIPS goes on from there. */
enum way { STRAIGHT, BY_AND_BY, IN_STRIPS };

/* Asks for more and more, until all ranks fit or nothing helps any further. */
static bool search(struct wf_fit *f, enum way way, bool *fits, struct wf_err *err)
{
    const size_t limit = f->aim;
    size_t bytes;
    bool found = true;
    f->asked.n_recompute = way == IN_STRIPS ? f->asked.n_recompute : 0;
    if (!make_full(f, &bytes, err))
        return false;
    size_t gap = 0; /* that packing will leave, for all that is known */
    for (*fits = bytes <= limit; !*fits && found; *fits = bytes <= limit) {
        if (!wf_fit_look(f, err))
            return false;
        const size_t rest = bytes - f->peak + gap; /* what is not of the arena, and gaps in it */
        const size_t target = limit > rest ? limit - rest : 0;
        const size_t before = f->asked.n_recompute + f->asked.n_strips;
        for (bool more = true; more && f->peak > target;) {
            const size_t near = f->peak - f->peak / NEAR_PEAK;
            const size_t mark = way == STRAIGHT && target > near ? target : near;
            more = false;
            if (way == IN_STRIPS && !wf_fit_strips(f, mark, &more, err))
                return false;
            if (!more && !recompute_more(f, mark, &more, err))
                return false;
        }
        found = f->asked.n_recompute + f->asked.n_strips > before;
        if (found && !make_full(f, &bytes, err))
            return false;
        gap += f->peak / NEAR_PEAK / 4;
    }
    return true;
}

/* --- what is not needed --- */

struct requested {
    struct wf_recompute pair;
    double seconds;
};

static int most_expensive_first(const void *a, const void *b)
{
    const struct requested *const x = a, *const y = b;
    if (x->seconds != y->seconds)
        return x->seconds > y->seconds ? -1 : 1;
    if (x->pair.value != y->pair.value)
        return x->pair.value < y->pair.value ? -1 : 1;
    return x->pair.node < y->pair.node ? -1 : 1;
}

/* Goes without one pair, where the rank has room for it and the step gets no longer. */
static bool try_without(struct wf_fit *f, struct wf_recompute pair, size_t limit,
                        struct wf_err *err)
{
    const double seconds = f->plan->seconds;
    const size_t others = wf_plan_total_bytes(f->plan); /* it is not packed: without an arena */
    size_t at = 0;
    while (f->asked.recompute[at].value != pair.value || f->asked.recompute[at].node != pair.node)
        at++;
    const size_t behind = f->asked.n_recompute - at - 1;
    memmove(f->asked.recompute + at, f->asked.recompute + at + 1,
            behind * sizeof *f->asked.recompute);
    f->asked.n_recompute--;
    if (!wf_fit_look(f, err))
        return false;
    if (f->peak + others <= limit && f->plan->seconds <= seconds)
        return true;
    memmove(f->asked.recompute + at + 1, f->asked.recompute + at,
            behind * sizeof *f->asked.recompute);
    f->asked.recompute[at] = pair;
    f->asked.n_recompute++;
    return wf_fit_look(f, err);
}

static bool try_without_strips(struct wf_fit *f, size_t at, size_t limit, struct wf_err *err)
{
    const double seconds = f->plan->seconds;
    const size_t others = wf_plan_total_bytes(f->plan);
    const struct wf_strips_request strips = f->asked.strips[at];
    f->asked.strips[at] = f->asked.strips[--f->asked.n_strips];
    if (!wf_fit_look(f, err))
        return false;
    if (f->peak + others <= limit && f->plan->seconds <= seconds)
        return true;
    f->asked.strips[f->asked.n_strips++] = f->asked.strips[at];
    f->asked.strips[at] = strips;
    return wf_fit_look(f, err);
}

/* Takes back what is not needed to stay within the limit, the most expensive first, and then strips. */
static bool take_back(struct wf_fit *f, struct wf_arena *arena, size_t limit, struct wf_err *err)
{
    const size_t n = f->asked.n_recompute;
    struct requested *const order = wf_arena_array(arena, n, struct requested);
    for (size_t i = 0; i < n; i++) {
        const struct wf_value *const v = f->full->graph->values[f->asked.recompute[i].value];
        order[i] = (struct requested){ f->asked.recompute[i], f->seconds[v->producer->id] };
    }
    qsort(order, n, sizeof *order, most_expensive_first);
    for (size_t i = 0; i < n && order[i].seconds > worth_it * f->plan->seconds; i++)
        if (!try_without(f, order[i].pair, limit, err))
            return false;
    for (size_t i = f->asked.n_strips; i-- > 0;)
        if (!try_without_strips(f, i, limit, err))
            return false;
    return true;
}

static void ask_again(struct wf_fit *f, const struct wf_requests *all)
{
    f->asked.n_recompute = all->n_recompute;
    f->asked.n_strips = all->n_strips;
    memcpy(f->asked.recompute, all->recompute, all->n_recompute * sizeof *all->recompute);
    if (all->n_strips > 0)
        memcpy(f->asked.strips, all->strips, all->n_strips * sizeof *all->strips);
}

/* Packing may leave gaps: then again, with a little less. */
static bool prune(struct wf_fit *f, struct wf_err *err)
{
    const size_t limit = f->full->options.limit;
    struct wf_arena arena = { 0 };
    const struct wf_requests all = wf_requests_copy(&arena, &f->asked);
    bool ok = true, fits = false;
    for (size_t i = 0; ok && !fits && i <= PRUNINGS; i++) {
        size_t bytes;
        ask_again(f, &all);
        ok = wf_fit_look(f, err) &&
             (i == PRUNINGS || take_back(f, &arena, limit - limit / 128 * i, err)) &&
             make_full(f, &bytes, err);
        fits = ok && bytes <= limit;
    }
    wf_arena_release(&arena);
    return ok;
}

static void release(struct wf_fit *f)
{
    wf_plan_free(f->plan);
    wf_global_plan_free(f->global);
    wf_plan_cache_release(&f->cache);
    wf_arena_release(&f->arena);
    free(f->asked.recompute);
    free(f->asked.strips);
}

static bool find(struct wf_fit *f, bool *fits, struct wf_err *err)
{
    bool ok = true;
    *fits = false;
    for (enum way way = STRAIGHT; ok && !*fits && way <= IN_STRIPS; way++)
        ok = search(f, way, fits, err);
    return ok && (!*fits || f->asked.n_recompute == 0 || prune(f, err));
}

/* The step's seconds that go into recomputing are worth another search. */
static bool is_expensive(const struct wf_fit *f)
{
    double recompute = 0;
    for (int s = 0; f->plan && s < f->plan->n_steps; s++)
        recompute +=
            wf_step_is_for_limit(f->plan, &f->plan->steps[s]) ? f->plan->steps[s].seconds : 0;
    return f->plan && recompute > f->plan->seconds / EXPENSIVE;
}

/* A search for less than the limit asks for more, strips among it, and takes back the most expensive: what it
 * ends with may be faster. */
static bool find_faster(struct wf_fit *f, struct wf_err *err)
{
    const struct wf_global_plan *const s = f->full;
    struct wf_fit other = { .aim = f->aim - f->aim / TIGHTER };
    bool fits = false;
    other.full = wf_global_plan_of_all(
        wf_global_plan_make(s->graph, &s->mesh, &s->options, &(struct wf_requests){ 0 }, err), err);
    const bool ok = other.full && find(&other, &fits, err);
    if (ok && fits && other.plan && other.plan->seconds < f->plan->seconds) {
        const struct wf_fit slower = *f;
        *f = other;
        other = slower;
    }
    wf_global_plan_free(other.full);
    release(&other);
    return ok;
}

/* By the costs of arithmetic and traffic alone: whether something fits must not depend on what was measured, and which
 * results are asked for first does. */
static bool find_plainly(struct wf_fit *f, bool *fits, struct wf_err *err)
{
    const struct wf_plan_options measured = f->full->options;
    struct wf_plan_options plain = measured;
    struct wf_fit other = { .aim = f->aim };
    plain.figures = NULL;
    other.full = wf_global_plan_of_all(wf_global_plan_make(f->full->graph, &f->full->mesh, &plain,
                                                           &(struct wf_requests){ 0 }, err),
                                       err);
    const bool ok = other.full && find(&other, fits, err);
    if (ok && *fits) {
        const struct wf_fit failed = *f;
        other.full->options.figures = measured.figures;
        other.full->costs = wf_costs_of(&measured);
        *f = other;
        other = failed;
    }
    wf_global_plan_free(other.full);
    release(&other);
    return ok;
}

struct wf_global_plan *wf_global_plan_fit(struct wf_global_plan *global, struct wf_err *err)
{
    struct wf_fit f = { .full = global, .aim = global->options.limit };
    bool fits = false;
    bool ok = find(&f, &fits, err) && (!fits || !is_expensive(&f) || find_faster(&f, err));
    if (ok && !fits && f.full->options.figures)
        ok = find_plainly(&f, &fits, err);
    release(&f);
    if (ok)
        return f.full;
    wf_global_plan_free(f.full);
    return NULL;
}
