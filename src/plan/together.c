/*
 * How long a step takes on ranks with different work. A plan's own estimate (cost.c) knows when the rank's
 * messages have travelled, not when the others begin to send: where one worker encodes and another decodes, each
 * has half of the work, and both take as long as all of it.
 *
 * So the lists of several ranks are walked together, each with the clocks of cost.c. A rank that ends a fetch or a
 * sum waits until those that it comes from have begun it. Both sides of a message, and all of a sum, have the same
 * instance of the program.
 */
#include <math.h>

#include "plan/planner.h"

struct clock {
    const struct wf_plan *plan;
    int at;                   /* the next of its steps */
    double now, link;         /* the rank's; and when its link is free again */
    double *fetched, *summed; /* when what it began has travelled; negative: not begun */
};

struct clocks {
    struct clock *at;
    int n;
};

static const struct clock *clock_of(const struct clocks *all, int rank)
{
    for (int i = 0; i < all->n; i++)
        if (all->at[i].plan->rank == rank)
            return &all->at[i];
    return NULL;
}

/* False: the other has not begun. Whatever is not among them is there. */
static bool wait_for_fetch(const struct clock *other, int instance, double *until)
{
    for (int i = 0; other && i < other->plan->n_exchanges; i++)
        if (other->plan->exchanges[i].instance == instance) {
            *until = fmax(*until, other->fetched[i]);
            return other->fetched[i] >= 0;
        }
    return true;
}

static bool wait_for_sum(const struct clock *other, int instance, double *until)
{
    for (int i = 0; other && i < other->plan->n_sums; i++)
        if (other->plan->sums[i].instance == instance) {
            *until = fmax(*until, other->summed[i]);
            return other->summed[i] >= 0;
        }
    return true;
}

/* When what the step waits for is there; false: not yet known. */
static bool is_ready(const struct clocks *all, const struct clock *c, const struct wf_step *step,
                     double *until)
{
    *until = c->now;
    bool ready = true;
    if (step->kind == WF_STEP_FETCH_END) {
        const struct wf_exchange *const x = &c->plan->exchanges[step->which];
        *until = fmax(*until, c->fetched[step->which]);
        for (int i = 0; ready && i < x->n_messages; i++)
            if (!x->messages[i].is_send)
                ready = wait_for_fetch(clock_of(all, x->messages[i].peer), x->instance, until);
    } else if (step->kind == WF_STEP_SUM_END) {
        const struct wf_sum *const sum = &c->plan->sums[step->which];
        const struct wf_group *const group = &c->plan->global->geometry.groups.at[sum->group];
        for (int i = 0; ready && i < group->n; i++)
            ready = wait_for_sum(clock_of(all, group->ranks[i]), sum->instance, until);
    }
    return ready;
}

/* As far as it goes. */
static bool advance(const struct clocks *all, struct clock *c)
{
    const int before = c->at;
    for (; c->at < c->plan->n_steps; c->at++) {
        const struct wf_step *const step = &c->plan->steps[c->at];
        double until;
        if (!is_ready(all, c, step, &until))
            break;
        c->now = until + step->seconds;
        if (step->kind == WF_STEP_FETCH_BEGIN) {
            const struct wf_exchange *const x = &c->plan->exchanges[step->which];
            c->link = fmax(c->now, c->link) + wf_cost_exchange(c->plan->global, c->plan->rank, x);
            c->fetched[step->which] = c->link;
        } else if (step->kind == WF_STEP_SUM_BEGIN) {
            const struct wf_sum *const sum = &c->plan->sums[step->which];
            c->link = fmax(c->now, c->link) + wf_cost_sum(c->plan->global, sum);
            c->summed[step->which] = c->link;
        }
    }
    return c->at > before;
}

static double *not_begun(struct wf_arena *arena, int count)
{
    double *const times = wf_arena_array(arena, count + 1, double);
    for (int i = 0; i < count; i++)
        times[i] = -1;
    return times;
}

double wf_plans_seconds(const struct wf_plan *const plans[], int count)
{
    struct wf_arena arena = { 0 };
    struct clocks all = { wf_arena_array(&arena, count, struct clock), count };
    for (int i = 0; i < count; i++)
        all.at[i] = (struct clock){ .plan = plans[i],
                                    .fetched = not_begun(&arena, plans[i]->n_exchanges),
                                    .summed = not_begun(&arena, plans[i]->n_sums) };
    for (bool moves = true; moves;) {
        moves = false;
        for (int i = 0; i < count; i++)
            moves = advance(&all, &all.at[i]) || moves;
    }
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        WF_BUG_ON(all.at[i].at < plans[i]->n_steps, "rank %d waits for ever at step %d",
                  plans[i]->rank, all.at[i].at);
        seconds = fmax(seconds, all.at[i].now);
    }
    wf_arena_release(&arena);
    return seconds;
}
