/*
 * Packed copies: a kernel that wants packed boxes gets them. Where a box that it reads or writes is not
 * packed in its buffer, there is a copy into (or out of) a buffer that lives for that step only.
 *
 * K1. What such a kernel reads or writes lies packed; replicated inputs and sums do so anyway.
 */
#include "ops/op.h"
#include "plan/planner.h"

static bool wants_packed(const struct wf_step *s)
{
    return s->kind == WF_STEP_KERNEL && (s->kernel->flags & WF_KERNEL_DENSE) &&
           !wf_region_is_empty(s->work);
}

static bool is_packed_input(const struct wf_step *s, int k)
{
    return !s->node->in[k] || s->node->in[k]->replicated || wf_view_is_dense(&s->in[k].view);
}

static bool is_packed_output(const struct wf_step *s)
{
    return wf_op_sums_over(s->node) || wf_view_is_dense(&s->out[0].view);
}

double wf_pack_seconds(const struct wf_planner *p, const struct wf_step *s)
{
    double seconds = 0;
    if (!wants_packed(s))
        return 0;
    for (int k = 0; k < s->node->n_in; k++)
        if (!is_packed_input(s, k))
            seconds += wf_cost_copy(p->plan->global, (double)wf_view_bytes(&s->in[k].view));
    if (!is_packed_output(s))
        seconds += wf_cost_copy(p->plan->global, (double)wf_view_bytes(&s->out[0].view));
    return seconds;
}

void wf_pass_pack(struct wf_planner *p)
{
    const struct wf_steps old = wf_planner_take_steps(p);
    for (int i = 0; i < old.n; i++) {
        struct wf_step *const s = &old.at[i];
        p->item = s->item;
        p->strip = s->strip;
        const bool packs = wants_packed(s);
        for (int k = 0; packs && k < s->node->n_in; k++) {
            const struct wf_slot from = s->in[k];
            if (is_packed_input(s, k))
                continue;
            s->in[k] = wf_planner_add_packed(p, &from);
            wf_planner_add_copy(p, s->node, s->in[k], from);
        }
        const struct wf_slot to = packs ? s->out[0] : (struct wf_slot){ .buffer = -1 };
        const bool moves = packs && !is_packed_output(s);
        if (moves)
            s->out[0] = wf_planner_add_packed(p, &to);
        wf_planner_put(p, s);
        if (moves)
            wf_planner_add_copy(p, s->node, to, s->out[0]);
    }
    p->spare = old;
}

const char *wf_pass_pack_check(const struct wf_plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_step *const s = &plan->steps[i];
        bool packed = !wants_packed(s) || is_packed_output(s);
        for (int k = 0; wants_packed(s) && k < s->node->n_in; k++)
            packed = packed && is_packed_input(s, k);
        if (!packed)
            return s->node->name;
    }
    return NULL;
}
