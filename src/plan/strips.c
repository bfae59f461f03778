#include "plan/strips.h"

#include "ops/op.h"

enum {
    MOST_STRIPS = 8,
    LEAST_LINES = 8, /* of a strip: below that it would be halo above all */
    MANY_IMAGES = 4, /* a batch of so many is cut between images, which have no halos */
};

/* --- which items --- */

static bool is_inside(const struct wf_strips *s, int item)
{
    return item >= s->first && item <= s->last;
}

enum wf_strip_role wf_strips_role(const struct wf_global_plan *global, const struct wf_strips *s,
                                  int item)
{
    const struct wf_node *const n = global->program->items[item].node;
    if (wf_op_sums_over(n))
        return WF_STRIP_SUM;
    if (!n->out[0]->replicated && n->out[0]->shape.at[s->axis] > 1)
        return WF_STRIP_MAP;
    for (int k = 0; k < n->n_in; k++) {
        const int in = global->program->items[item].in[k];
        const int maker = in < 0 ? -1 : global->program->instances[in].maker;
        if (!is_inside(s, maker))
            continue;
        const enum wf_strip_role made = wf_strips_role(global, s, maker);
        if (made == WF_STRIP_SUM || made == WF_STRIP_AFTER)
            return WF_STRIP_AFTER;
    }
    return WF_STRIP_ONCE;
}

/* S1, S3: of one input, which may be none. */
static bool may_read(const struct wf_global_plan *global, const struct wf_strips *s, int item,
                     int instance)
{
    const int maker = instance < 0 ? -1 : global->program->instances[instance].maker;
    if (!is_inside(s, maker))
        return true;
    const enum wf_strip_role made = wf_strips_role(global, s, maker);
    if (global->geometry.is_fetched[instance])
        return false;
    switch (wf_strips_role(global, s, item)) {
    case WF_STRIP_AFTER:
        return made != WF_STRIP_MAP;
    case WF_STRIP_ONCE:
        return made == WF_STRIP_ONCE;
    default:
        return made == WF_STRIP_ONCE || made == WF_STRIP_MAP;
    }
}

/* What a fused item reads ends in front of it, though it does not run: so it must not begin behind the
 * strips. */
static bool begins_behind(const struct wf_global_plan *global, const struct wf_strips *s,
                          int instance)
{
    const int maker = instance < 0 ? -1 : global->program->instances[instance].maker;
    return is_inside(s, maker) && (global->geometry.is_fetched[instance] ||
                                   wf_op_sums_over(global->program->items[maker].node));
}

/* S4. */
static bool may_sum(const struct wf_strips *s, const struct wf_node *node)
{
    const struct wf_value *const over = wf_op_domain(node);
    const unsigned sums = wf_op_sums_over(node);
    bool ok = (sums & WF_AXIS(s->axis)) && !(node->op->flags & WF_OP_WHOLE) && !over->replicated;
    for (int a = WF_D; a < WF_C; a++)
        ok = ok && (over->shape.at[a] == 1 || (sums & WF_AXIS(a)));
    return ok;
}

static bool may_take_part(const struct wf_global_plan *global, const struct wf_strips *s, int item)
{
    const struct wf_program *const p = global->program;
    const struct wf_item *const it = &p->items[item];
    if (wf_op_sums_over(it->node) && !may_sum(s, it->node))
        return false;
    const bool fused = p->instances[it->out[0]].is_fused; /* its readers read what it reads */
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (fused && begins_behind(global, s, in))
            return false;
        if (fused || in < 0)
            continue;
        if (!p->instances[in].is_fused && !may_read(global, s, item, in))
            return false;
        const struct wf_item *const made =
            p->instances[in].is_fused ? &p->items[p->instances[in].maker] : NULL;
        for (int j = 0; made && j < made->node->n_in; j++)
            if (!may_read(global, s, item, made->in[j]))
                return false;
    }
    return true;
}

/* The axis and the number follow from what a rank owns of the largest image. */
static bool choose_axis(const struct wf_global_plan *global, struct wf_strips *s)
{
    const struct wf_value *largest = NULL;
    for (int item = s->first; item <= s->last; item++) {
        const struct wf_value *const v = wf_op_domain(global->program->items[item].node);
        if (!v->replicated &&
            (!largest || wf_shape_count(v->shape) > wf_shape_count(largest->shape)))
            largest = v;
    }
    if (!largest)
        return false;
    const struct wf_layout *const l = &global->geometry.layout;
    const int rank = wf_mesh_rank(&l->mesh, l->of_value[largest->id].tilings[0]->block.lo);
    const struct wf_region owned = wf_geometry_owned(&global->geometry, rank, largest);
    const int64_t least = global->options.strip_always ? 1 : LEAST_LINES;
    int64_t count = wf_region_extent(owned, WF_N);
    s->axis = WF_N;
    for (int a = WF_D; a < WF_C && count < MANY_IMAGES; a++)
        if (wf_region_extent(owned, (enum wf_axis)a) >= 2 * least) {
            s->axis = (enum wf_axis)a;
            count = wf_region_extent(owned, (enum wf_axis)a) / least;
            break;
        }
    s->count = (int)wf_min(count, MOST_STRIPS);
    return s->count > 1;
}

bool wf_strips_find(const struct wf_global_plan *global, int first, int last, struct wf_strips *s)
{
    *s = (struct wf_strips){ .first = first, .last = last };
    const struct wf_item *const items = global->program->items;
    if (items[first].segment != items[last].segment || !choose_axis(global, s))
        return false;
    for (int item = first; item <= last; item++)
        if (!may_take_part(global, s, item))
            return false;
    return true;
}

static bool is_used_up(const struct wf_global_plan *global, const struct wf_strips *s, int instance)
{
    const struct wf_instance *const in = &global->program->instances[instance];
    return !in->keep && in->last_use <= s->last && !in->is_fused &&
           !global->geometry.is_fetched[instance];
}

bool wf_strips_is_local(const struct wf_global_plan *global, const struct wf_strips *s,
                        int instance)
{
    const int maker = global->program->instances[instance].maker;
    if (!is_inside(s, maker) || wf_strips_role(global, s, maker) != WF_STRIP_MAP)
        return false;
    const struct wf_item *const it = &global->program->items[maker];
    for (int o = 0; o < it->node->n_out; o++) /* S2 */
        if (!is_used_up(global, s, it->out[o]))
            return false;
    return true;
}

static int find_item(const struct wf_program *p, const int which[2])
{
    for (int i = 0; i < p->n_items; i++)
        if (p->items[i].node->id == which[0] && p->items[i].wanted_by->id == which[1])
            return i;
    return -1;
}

static bool are_free(const struct wf_global_plan *global, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (global->program->items[i].strips >= 0)
            return false;
    return first >= 0 && first <= last;
}

/* Takes items [first, last], if they may run in strips. */
static void take(struct wf_global_plan *global, int first, int last)
{
    const struct wf_program *const p = global->program;
    struct wf_strips *const s = &global->strips[global->n_strips];
    if (!are_free(global, first, last) || !wf_strips_find(global, first, last, s))
        return;
    for (int item = first; item <= last; item++) {
        p->items[item].strips = global->n_strips;
        for (int o = 0; o < p->items[item].node->n_out; o++) {
            const int out = p->items[item].out[o];
            p->instances[out].is_strip_local = wf_strips_is_local(global, s, out);
        }
    }
    global->n_strips++;
}

/* As long as they can be. */
static void take_all(struct wf_global_plan *global)
{
    const int n = global->program->n_items;
    struct wf_strips s;
    for (int first = 0, last; first < n; first = last + 1) {
        last = first;
        while (last + 1 < n && wf_strips_find(global, first, last + 1, &s))
            last++;
        if (last > first)
            take(global, first, last);
    }
}

void wf_pass_strips(struct wf_global_plan *global)
{
    const struct wf_program *const p = global->program;
    global->strips = wf_arena_array(&global->arena, p->n_items, struct wf_strips);
    for (int i = 0; i < p->n_items; i++)
        p->items[i].strips = -1;
    if (global->options.strip_always && !global->geometry.is_windowed) /* that is a strip already */
        take_all(global);
    for (size_t i = 0; i < global->requests.n_strips; i++)
        take(global, find_item(p, global->requests.strips[i].first),
             find_item(p, global->requests.strips[i].last));
}

const char *wf_pass_strips_check(const struct wf_global_plan *global)
{
    const struct wf_program *const p = global->program;
    for (int i = 0; i < p->n_items; i++) /* S1, S3 */
        if (p->items[i].strips >= 0 && !may_take_part(global, wf_strips_of(global, i), i))
            return p->items[i].node->name;
    for (int i = 0; i < p->n_instances; i++) { /* S2 */
        const struct wf_strips *const s = wf_strips_of(global, p->instances[i].maker);
        if (p->instances[i].is_strip_local && (!s || !wf_strips_is_local(global, s, i)))
            return p->instances[i].value->name;
    }
    return NULL;
}

/* --- their parts --- */

struct cutter {
    const struct wf_planner *p;
    const struct wf_strips *s;
    struct wf_region *need; /* per instance: what is read of it in this strip */
    int64_t *done;          /* per item of the strips: lines that were made before */
};

static void note_read(struct cutter *c, int instance, struct wf_region box)
{
    if (instance >= 0)
        c->need[instance] = wf_region_bound(c->need[instance], box);
}

static void note_reads(struct cutter *c, int item, struct wf_region work)
{
    const struct wf_planner *const p = c->p;
    const struct wf_item *const it = &p->program->items[item];
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (in < 0)
            continue;
        const struct wf_region box = wf_planner_reads(p, item, k, work);
        note_read(c, in, box);
        if (!p->program->instances[in].is_fused)
            continue;
        const int maker = p->program->instances[in].maker;
        const struct wf_item *const made = &p->program->items[maker];
        for (int j = 0; j < made->node->n_in; j++)
            if (made->in[j] >= 0)
                note_read(c, made->in[j], wf_planner_reads(p, maker, j, box));
    }
}

/* What is read of an item's results, as a part of its work. */
static struct wf_region wanted_of(const struct cutter *c, int item)
{
    const struct wf_item *const it = &c->p->program->items[item];
    struct wf_region need = { 0 };
    for (int o = 0; o < it->node->n_out; o++)
        need =
            wf_region_bound(need, wf_geometry_beside(c->need[it->out[o]], &it->node->out[o]->shape,
                                                     &it->node->out[0]->shape));
    return need;
}

static struct wf_region part_of(struct cutter *c, int at, int item)
{
    const struct wf_planner *const p = c->p;
    const struct wf_strips *const s = c->s;
    const struct wf_region none = { 0 };
    struct wf_region work = wf_geometry_work(p->geo, p->rank, item);
    const int out = p->program->items[item].out[0];
    const enum wf_strip_role role = wf_strips_role(p->plan->global, s, item);
    if (p->program->instances[out].is_fused || wf_region_is_empty(work))
        return none;
    if (role == WF_STRIP_AFTER)
        return none;
    if (role == WF_STRIP_ONCE)
        return at == 0 ? work : none;
    if (p->program->instances[out].is_strip_local) /* a rank may need some of the channels only */
        return wf_region_intersect(wanted_of(c, item), work);
    const int64_t lo = work.lo[s->axis], lines = work.hi[s->axis] - lo;
    int64_t hi = lo + lines * (at + 1) / s->count;
    if (role == WF_STRIP_MAP) {
        const struct wf_region wanted = wanted_of(c, item);
        hi = wf_region_is_empty(wanted) ? hi : wf_max(hi, wanted.hi[s->axis]);
    }
    int64_t *const done = &c->done[item - s->first];
    work.lo[s->axis] = lo + *done;
    work.hi[s->axis] = hi;
    *done = wf_max(*done, hi - lo);
    return wf_region_is_empty(work) ? none : work;
}

void wf_planner_cut(struct wf_planner *p, struct wf_arena *work)
{
    const struct wf_global_plan *const global = p->plan->global;
    p->parts = wf_arena_array(work, global->n_strips + 1, struct wf_region *);
    for (int i = 0; i < global->n_strips; i++) {
        const struct wf_strips *const s = &global->strips[i];
        const int n = s->last - s->first + 1;
        struct cutter c = { .p = p, .s = s, .done = wf_arena_array(work, n, int64_t) };
        p->parts[i] = wf_arena_array(work, (size_t)n * (size_t)s->count, struct wf_region);
        c.need = wf_arena_array(work, p->program->n_instances, struct wf_region);
        for (int at = 0; at < s->count; at++) {
            for (int k = 0; k < p->program->n_instances; k++)
                c.need[k] = (struct wf_region){ 0 };
            for (int item = s->last; item >= s->first; item--) {
                struct wf_region *const part = &p->parts[i][at * n + item - s->first];
                *part = part_of(&c, at, item);
                note_reads(&c, item, *part);
            }
        }
    }
}

struct wf_region wf_planner_part(const struct wf_planner *p, const struct wf_strips *s, int at,
                                 int item)
{
    const int n = s->last - s->first + 1;
    return p->parts[s - p->plan->global->strips][at * n + item - s->first];
}

struct wf_region wf_planner_strip_box(const struct wf_planner *p, int instance, int at)
{
    const int maker = p->program->instances[instance].maker;
    const struct wf_node *const n = p->program->items[maker].node;
    const struct wf_strips *const s = wf_strips_of(p->plan->global, maker);
    return wf_geometry_beside(wf_planner_part(p, s, at, maker), &n->out[0]->shape,
                              &p->program->instances[instance].value->shape);
}
