/*
 * Communication beside computation: what begins behind an item ends as late as it can.
 *
 * A fetch ends in front of the first item for which some rank reads the halo, a sum in front of its
 * first reader, and a bucket's sums at the end of the step; all of it at the end of its segment (stages.h) at
 * the latest. What a kernel is given of an instance that
 * is still on its way is only what it reads. An item that only finishes what is being summed (a bias'
 * gradient, summed in f64, becomes f32), for nobody else to read, waits for the end of the step, too.
 *
 * O1. No rank waits for another that waits for it: whatever a rank has waited for before it begins the
 *     communication of an item was begun by an earlier item. (Where items run in strips: S1 of strips.h.)
 * O2. A sum whose result is fetched ends where it begins: the fetch needs it.
 */
#include "plan/strips.h"

static bool is_in_bucket(const struct wf_planner *p, const struct wf_sum *sum)
{
    return p->program->instances[sum->instance].bucket >= 0;
}

/* O2 */
static bool ends_at_once(const struct wf_planner *p, const struct wf_sum *sum)
{
    return !is_in_bucket(p, sum) && p->geo->fetch_of[sum->instance] >= 0;
}

/* --- ends --- */

static void end_fetches(struct wf_planner *p, int item)
{
    for (int f = p->geo->first_before[item]; f >= 0; f = p->geo->fetches[f].next_before) {
        int *const exchange = &p->exchange[p->geo->fetches[f].instance];
        if (*exchange >= 0)
            wf_planner_add_step(p, WF_STEP_FETCH_END, NULL)->which = *exchange;
        p->n_on_way -= *exchange >= 0;
        *exchange = -1;
    }
}

static void end_sum(struct wf_planner *p, int instance)
{
    if (instance < 0 || p->sum[instance] < 0)
        return;
    wf_planner_add_step(p, WF_STEP_SUM_END, NULL)->which = p->sum[instance];
    p->sum[instance] = -1;
}

static void end_before(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    p->item = item;
    end_fetches(p, item);
    for (int k = 0; k < it->node->n_in; k++)
        end_sum(p, it->in[k]);
}

static bool is_for_the_end(const struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    bool sums_pending = false;
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (in < 0 || p->program->instances[in].maker < 0)
            continue;
        sums_pending = sums_pending || p->sum[in] >= 0;
        if (p->program->instances[in].n_uses != 1 || p->root[in] != in)
            return false;
    }
    for (int o = 0; o < it->node->n_out; o++) {
        const int out = it->out[o];
        if (p->program->instances[out].n_uses > 0 || p->geo->fetch_of[out] >= 0 ||
            p->root[out] != out)
            return false;
    }
    return sums_pending && !p->geo->grouping[item];
}

static void arrive(struct wf_planner *p, int item)
{
    p->is_late[item] = is_for_the_end(p, item);
    if (!p->is_late[item])
        end_before(p, item);
}

/* --- the pass --- */

/* At the step's item and all before it, whether they have steps or not; at strips, at all that run in
 * them. *arrived: the last so far. */
static void arrive_at(struct wf_planner *p, const struct wf_step *step, int *arrived)
{
    const struct wf_global_plan *const global = p->plan->global;
    const struct wf_strips *const strips = wf_strips_of(global, step->item);
    const int last = strips ? strips->last : step->item;
    while (*arrived < last) {
        const int item = ++*arrived;
        const struct wf_strips *const in = wf_strips_of(global, item);
        if (!in)
            arrive(p, item);
        else if (wf_strips_role(global, in, item) != WF_STRIP_AFTER)
            end_before(p, item);
    }
    if (strips && wf_step_computes(step) && !p->is_late[step->item] &&
        wf_strips_role(global, strips, step->item) == WF_STRIP_AFTER)
        arrive(p, step->item);
}

/* Where some of an input is on its way, the step is given what it reads. */
static void narrow(const struct wf_planner *p, struct wf_slot *slot, int item, int input,
                   struct wf_region work)
{
    const int in = p->program->items[item].in[input];
    if (in >= 0 && p->exchange[in] >= 0 && slot->buffer >= 0)
        *slot = wf_slot_part(&p->slot[in], wf_planner_reads(p, item, input, work));
}

static void narrow_inputs(const struct wf_planner *p, struct wf_step *s)
{
    if (s->kind != WF_STEP_KERNEL || p->n_on_way == 0)
        return;
    for (int k = 0; k < s->node->n_in; k++)
        narrow(p, &s->in[k], s->item, k, s->work);
    for (int f = 0; f < s->n_fused; f++) {
        const struct wf_step_fused *const fused = &s->fuses[f];
        const int maker = p->program->instances[p->program->items[s->item].in[fused->input]].maker;
        const struct wf_region box = wf_planner_reads(p, s->item, fused->input, s->work);
        for (int j = 0; j < fused->node->n_in; j++)
            narrow(p, &s->in[fused->first + j], maker, j, box);
    }
}

/* A step of an item; the ends that move are left out. */
static void put(struct wf_planner *p, struct wf_step *step)
{
    const struct wf_sum *const sum =
        step->kind == WF_STEP_SUM_BEGIN || step->kind == WF_STEP_SUM_END
            ? &p->plan->sums[step->which]
            : NULL;
    if (step->kind == WF_STEP_FETCH_END ||
        (sum && step->kind == WF_STEP_SUM_END && !ends_at_once(p, sum)))
        return;
    narrow_inputs(p, step);
    wf_planner_put(p, step);
    if (step->kind == WF_STEP_FETCH_BEGIN) {
        p->exchange[p->plan->exchanges[step->which].instance] = step->which;
        p->n_on_way++;
    } else if (sum && step->kind == WF_STEP_SUM_BEGIN && !ends_at_once(p, sum) &&
               !is_in_bucket(p, sum)) {
        p->sum[sum->instance] = step->which;
    }
}

/* What a segment has begun ends with it. */
static void end_all(struct wf_planner *p, int segment)
{
    const struct wf_plan *const plan = p->plan;
    end_fetches(p, p->program->n_items);
    for (int i = 0; i < p->program->n_instances && p->n_on_way > 0; i++)
        if (p->exchange[i] >= 0) {
            wf_planner_add_step(p, WF_STEP_FETCH_END, NULL)->which = p->exchange[i];
            p->exchange[i] = -1;
            p->n_on_way--;
        }
    for (int b = 0; b < plan->global->n_buckets; b++)
        for (int s = 0; s < plan->n_sums; s++)
            if (p->program->instances[plan->sums[s].instance].bucket == b &&
                p->program->items[plan->global->buckets[b].last].segment == segment)
                wf_planner_add_step(p, WF_STEP_SUM_END, NULL)->which = s;
    for (int i = 0; i < p->program->n_instances; i++)
        end_sum(p, i);
}

static void put_late(struct wf_planner *p, const struct wf_steps *steps, int item)
{
    end_before(p, item);
    for (int s = 0; s < steps->n; s++)
        if (steps->at[s].item == item)
            wf_planner_put(p, &steps->at[s]);
}

/* The steps of a segment; `*arrived`: the last item so far. */
static void rewrite(struct wf_planner *p, const struct wf_steps *steps, int segment, int *arrived)
{
    const struct wf_program *const program = p->program;
    const int before = *arrived;
    int n = 0;
    for (; n < steps->n && steps->at[n].item >= 0; n++) {
        arrive_at(p, &steps->at[n], arrived);
        if (!p->is_late[steps->at[n].item])
            put(p, &steps->at[n]);
    }
    while (*arrived + 1 < program->n_items && program->items[*arrived + 1].segment == segment)
        arrive(p, ++*arrived);
    p->item = -1;
    end_all(p, segment);
    for (int item = before + 1; item <= *arrived; item++)
        if (p->is_late[item])
            put_late(p, steps, item);
    p->item = -1;
    for (; n < steps->n; n++)
        wf_planner_put(p, &steps->at[n]);
}

void wf_pass_overlap(struct wf_planner *p)
{
    if (p->options->no_overlap || p->plan->n_exchanges + p->plan->n_sums == 0)
        return;
    const struct wf_steps old = wf_planner_take_steps(p);
    const int parts = 2 * p->plan->global->stages.n_segments;
    int n = 0, arrived = -1;
    for (p->part = 0; p->part < parts; p->part++) {
        struct wf_steps steps = { .at = old.at + n };
        while (n + steps.n < old.n && steps.at[steps.n].part == p->part)
            steps.n++;
        n += steps.n;
        if (p->part == wf_part_work(p->part / 2))
            rewrite(p, &steps, p->part / 2, &arrived);
        for (int s = 0; s < steps.n && p->part == wf_part_transfers(p->part / 2); s++)
            wf_planner_put(p, &steps.at[s]);
    }
    p->spare = old;
}

const char *wf_pass_overlap_check(const struct wf_plan *plan)
{
    for (int s = 0; s < plan->n_steps; s++)
        for (int k = s + 1; plan->steps[s].kind == WF_STEP_FETCH_BEGIN && k < plan->n_steps; k++)
            if (plan->steps[k].kind == WF_STEP_SUM_END &&
                plan->sums[plan->steps[k].which].instance ==
                    plan->exchanges[plan->steps[s].which].instance) /* O2 */
                return plan->sums[plan->steps[k].which].value->name;
    return NULL;
}
