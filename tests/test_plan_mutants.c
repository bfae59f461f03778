/* Mutated plans: whatever is done to a message or a sum, at one end or at all, the checks see it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "plan/message_check.h"
#include "plan_nets.h"
#include "support_branches.h"

static const struct net piped[] = {
    { "unet", 2, 1, 1, 32, 32, 4, "pipe=4", false, false, 4, WF_PIPE_1F1B },
    { "unet", 2, 1, 1, 32, 32, 4, "pipe=2,space=1x2", true, false, 4, WF_PIPE_INTERLEAVED },
    { "cnn2d", 2, 1, 1, 40, 40, 0, "pipe=3", false, false, 5, WF_PIPE_ZERO_BUBBLE },
};

/* Ranks that were not touched passed before. */
static bool passes(const struct plans *p, unsigned touched)
{
    struct wf_err err = { 0 };
    struct wf_message_check check = { 0 };
    bool ok = true;
    for (int r = 0; ok && r < p->n; r++)
        ok = !(touched & (1u << r)) || wf_plan_check(p->at[r], &err);
    for (int r = 0; ok && r < p->n; r++)
        wf_message_check_add(&check, p->at[r]);
    ok = ok && wf_message_check_run(&check, &p->s->geometry.groups, &err);
    wf_message_check_release(&check);
    return ok;
}

static void expect_caught(struct plans *p, unsigned touched, const char *what, const char *where)
{
    p->mutants++;
    if (!passes(p, touched))
        return;
    p->missed++;
    print_error("%s: not caught: %s of '%s'\n", p->name, what, where);
}

/* --- messages --- */

struct end {
    int rank;
    struct wf_exchange *x;
    int i;
};

static struct wf_plan_message *message(const struct end *e)
{
    return &e->x->messages[e->i];
}

/* The other end of a message. */
static struct end partner_of(const struct plans *p, const struct end *e)
{
    const struct wf_plan_message *const m = message(e);
    struct wf_plan *const peer = p->at[m->peer];
    for (int x = 0; x < peer->n_exchanges; x++)
        for (int i = 0; i < peer->exchanges[x].n_messages; i++) {
            const struct wf_plan_message *const o = &peer->exchanges[x].messages[i];
            if (o->peer == e->rank && o->tag == m->tag && o->is_send != m->is_send &&
                wf_region_equal(o->slot.view.box, m->slot.view.box))
                return (struct end){ m->peer, &peer->exchanges[x], i };
        }
    fail_msg("a message has no other end");
    return *e;
}

static struct wf_plan_message drop(const struct end *e)
{
    const struct wf_plan_message gone = *message(e);
    memmove(message(e), message(e) + 1, (size_t)(--e->x->n_messages - e->i) * sizeof gone);
    return gone;
}

static void put_back(const struct end *e, struct wf_plan_message m)
{
    memmove(message(e) + 1, message(e), (size_t)(e->x->n_messages++ - e->i) * sizeof m);
    *message(e) = m;
}

/* One line less along its longest axis. */
static void shrink(struct wf_plan_message *m)
{
    int axis = 0;
    for (int a = 0; a < WF_C; a++)
        if (wf_region_extent(m->slot.view.box, (enum wf_axis)a) >
            wf_region_extent(m->slot.view.box, (enum wf_axis)axis))
            axis = a;
    m->slot.view.box.hi[axis]--;
    m->bytes = wf_view_bytes(&m->slot.view);
}

static void mutate_one_end(struct plans *p, const struct end *e)
{
    struct wf_plan_message *const m = message(e);
    const struct wf_plan_message saved = *m;
    const unsigned touched = 1u << e->rank;
    const char *const where = e->x->value->name;
    const struct wf_plan_message gone = drop(e);
    expect_caught(p, touched, "dropped end", where);
    put_back(e, gone);
    m->is_send = !m->is_send;
    expect_caught(p, touched, "turned end", where);
    *m = saved;
    shrink(m);
    expect_caught(p, touched, "smaller end", where);
    *m = saved;
    m->bytes += 4;
    expect_caught(p, touched, "larger end", where);
    *m = saved;
    m->tag++;
    expect_caught(p, touched, "retagged end", where);
    *m = saved;
    m->peer = (m->peer + 1) % p->n;
    expect_caught(p, touched, "end of another peer", where);
    *m = saved;
    for (int k = 0; k < e->x->n_messages; k++) { /* swapped boxes */
        struct wf_plan_message *const o = &e->x->messages[k];
        const struct wf_plan_message other = *o;
        if (k == e->i || o->is_send != m->is_send ||
            wf_region_equal(o->slot.view.box, m->slot.view.box))
            continue;
        m->slot = other.slot;
        m->bytes = other.bytes;
        o->slot = saved.slot;
        o->bytes = saved.bytes;
        expect_caught(p, touched, "swapped messages", where);
        *m = saved;
        *o = other;
        break;
    }
}

/* Both ends agree, but the plan is wrong: the halo stays empty. */
static void mutate_both_ends(struct plans *p, const struct end *e)
{
    const struct end o = partner_of(p, e);
    const unsigned touched = 1u << e->rank | 1u << o.rank;
    const struct wf_plan_message one = drop(e), other = drop(&o);
    expect_caught(p, touched, "dropped message", e->x->value->name);
    put_back(e, one);
    put_back(&o, other);
    shrink(message(e));
    shrink(message(&o));
    expect_caught(p, touched, "smaller message", e->x->value->name);
    *message(e) = one;
    *message(&o) = other;
}

static void mutate_messages(struct plans *p)
{
    int at = 0;
    for (int r = 0; r < p->n; r++)
        for (int x = 0; x < p->at[r]->n_exchanges; x++) {
            struct wf_exchange *const e = &p->at[r]->exchanges[x];
            const struct end end = { r, e, at++ % e->n_messages };
            mutate_one_end(p, &end);
            mutate_both_ends(p, &end);
        }
}

/* --- sums --- */

struct saved {
    struct wf_step *steps;
    struct wf_sum *sums;
    int n_sums;
};

static struct saved save(struct wf_arena *arena, const struct wf_plan *plan)
{
    struct saved s = { .steps = wf_arena_array(arena, plan->n_steps, struct wf_step),
                       .sums = wf_arena_array(arena, plan->n_sums, struct wf_sum),
                       .n_sums = plan->n_sums };
    memcpy(s.steps, plan->steps, (size_t)plan->n_steps * sizeof *s.steps);
    memcpy(s.sums, plan->sums, (size_t)plan->n_sums * sizeof *s.sums);
    return s;
}

static void restore(struct wf_plan *plan, const struct saved *s)
{
    memcpy(plan->steps, s->steps, (size_t)plan->n_steps * sizeof *s->steps);
    memcpy(plan->sums, s->sums, (size_t)s->n_sums * sizeof *s->sums);
    plan->n_sums = s->n_sums;
}

static bool is_sum(const struct wf_step *s)
{
    return s->kind == WF_STEP_SUM_BEGIN || s->kind == WF_STEP_SUM_END;
}

/* As if the planner had never thought of it. */
static void drop_sum(struct wf_plan *plan, int which)
{
    for (int s = 0; s < plan->n_steps; s++) {
        struct wf_step *const step = &plan->steps[s];
        if (is_sum(step) && step->which == which)
            step->kind = WF_STEP_COPY; /* of nothing */
        else if (is_sum(step) && step->which > which)
            step->which--;
    }
    memmove(plan->sums + which, plan->sums + which + 1,
            (size_t)(--plan->n_sums - which) * sizeof *plan->sums);
}

/* Two sums of one group begin the other way round. */
static bool reorder(struct wf_plan *plan, int which)
{
    int first = -1;
    for (int s = 0; s < plan->n_steps; s++) {
        struct wf_step *const step = &plan->steps[s];
        if (step->kind != WF_STEP_SUM_BEGIN)
            continue;
        if (step->which == which)
            first = s;
        else if (first >= 0 && plan->sums[step->which].group == plan->sums[which].group) {
            plan->steps[first].which = step->which;
            step->which = which;
            return true;
        }
    }
    return false;
}

/* Another group that has the rank; where there is none, a number that is no group's. */
static int other_group(const struct plans *p, int rank, int group)
{
    const struct wf_groups *const groups = &p->s->geometry.groups;
    for (int i = 0; i < groups->n; i++)
        if (i != group && wf_group_has(&groups->at[i], rank))
            return i;
    return groups->n;
}

static void mutate_sum(struct plans *p, int r, int i)
{
    struct wf_arena arena = { 0 };
    struct wf_plan *const plan = p->at[r];
    const struct saved s = save(&arena, plan);
    const char *const where = plan->sums[i].value->name;
    const unsigned touched = 1u << r;
    plan->sums[i].count++;
    expect_caught(p, touched, "longer sum", where);
    restore(plan, &s);
    plan->sums[i].group = other_group(p, r, plan->sums[i].group);
    expect_caught(p, touched, "regrouped sum", where);
    restore(plan, &s);
    drop_sum(plan, i);
    expect_caught(p, touched, "dropped sum", where);
    restore(plan, &s);
    if (reorder(plan, i))
        expect_caught(p, touched, "reordered sum", where);
    restore(plan, &s);
    wf_arena_release(&arena);
}

/* On every rank alike: they would meet, but the numbers would be wrong. */
static void mutate_sum_on_all(struct plans *p, int i)
{
    struct wf_arena arena = { 0 };
    struct saved s[8];
    const unsigned all = (1u << p->n) - 1;
    const char *const where = p->at[0]->sums[i].value->name;
    for (int r = 0; r < p->n; r++) {
        s[r] = save(&arena, p->at[r]);
        drop_sum(p->at[r], i);
    }
    expect_caught(p, all, "sum dropped on all ranks", where);
    for (int r = 0; r < p->n; r++) {
        restore(p->at[r], &s[r]);
        p->at[r]->sums[i].group = other_group(p, r, p->at[r]->sums[i].group);
    }
    expect_caught(p, all, "sum regrouped on all ranks", where);
    for (int r = 0; r < p->n; r++)
        restore(p->at[r], &s[r]);
    wf_arena_release(&arena);
}

static void mutate_sums(struct plans *p)
{
    for (int r = 0; r < p->n; r++)
        for (int i = r % 2; i < p->at[r]->n_sums; i += 2)
            mutate_sum(p, r, i);
    for (int i = 0; i < p->at[0]->n_sums; i++) {
        bool all = true; /* ranks with other parts of the network have other sums */
        for (int r = 1; r < p->n; r++)
            all = all && i < p->at[r]->n_sums && p->at[r]->sums[i].value == p->at[0]->sums[i].value;
        if (all)
            mutate_sum_on_all(p, i);
    }
}

/* A later strip would read what an earlier one left. */
static int mutate_strips(struct plans *p)
{
    struct wf_plan *const plan = p->at[0];
    const int before = p->mutants;
    for (int s = 0; s < plan->n_steps; s++) {
        struct wf_step *const step = &plan->steps[s], whole = *step;
        if (step->strip < 1 || step->kind != WF_STEP_KERNEL || step->out[0].buffer < 0 ||
            !plan->buffers[step->out[0].buffer].strip_local)
            continue;
        step->kind = WF_STEP_COPY; /* of nothing */
        step->n_in = step->n_out = 0;
        expect_caught(p, 1, "strip left out", whole.node->name);
        *step = whole;
    }
    return p->mutants - before;
}

/* --- turns --- */

static void swap_turns(struct wf_turns *turns, int i, int k)
{
    const struct wf_turn turn = turns->at[i];
    turns->at[i] = turns->at[k];
    turns->at[k] = turn;
}

static bool is_taken(const struct wf_plan *plan, int turn)
{
    const struct wf_plan_part *const part = &plan->parts[plan->turns.at[turn].part];
    return part->first < part->end;
}

/* A micro-batch's turns come the other way round, one is left out, or a slot is. */
static void mutate_turns(struct plans *p, int r)
{
    struct wf_plan *const plan = p->at[r];
    const unsigned touched = 1u << r;
    for (int i = 0; i < plan->turns.n; i++) {
        const struct wf_turn saved = plan->turns.at[i];
        int next = i + 1;
        while (next < plan->turns.n &&
               (plan->turns.at[next].micro != saved.micro || !is_taken(plan, next)))
            next++;
        if (!is_taken(plan, i))
            continue;
        plan->turns.at[i].micro = p->s->options.pipe.micro_batches;
        expect_caught(p, touched, "turn left out", "turns");
        plan->turns.at[i] = saved;
        /* What travels to others may change places with later work of this rank. */
        if (next == plan->turns.n || plan->turns.at[next].part % 2 == 0 || saved.part % 2 == 0)
            continue;
        swap_turns(&plan->turns, i, next);
        expect_caught(p, touched, "turn too late", "turns");
        swap_turns(&plan->turns, i, next);
    }
    for (int b = 0; b < plan->n_buffers; b++) {
        struct wf_plan_buffer *const buffer = &plan->buffers[b];
        bool is_queue = false;
        for (size_t v = 0; v < p->g->n_values; v++)
            is_queue = is_queue || plan->queue[v].buffer == b;
        if (buffer->slots < 2 || is_queue)
            continue;
        buffer->slots--;
        expect_caught(p, touched, "slot left out", buffer->name);
        buffer->slots++;
    }
}

static void check__every_mutant_of_a_pipeline_is_caught(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof piped / sizeof *piped; i++) {
        struct plans p;
        plans_init(&p, &piped[i]);
        const unsigned all = (1u << p.n) - 1;
        assert_true(passes(&p, all));
        mutate_messages(&p);
        mutate_sums(&p);
        const int of_others = p.mutants;
        for (int r = 0; r < p.n; r++)
            mutate_turns(&p, r);
        assert_true(passes(&p, all));
        print_message("%s %s: %d mutated messages and sums, %d turns and slots, %d not caught\n",
                      p.name, piped[i].mesh, of_others, p.mutants - of_others, p.missed);
        assert_true(of_others > 20 && p.mutants > of_others + 20);
        assert_int_equal(p.missed, 0);
        plans_release(&p);
    }
}

static void check__every_mutant_is_caught(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct plans p;
        plans_init(&p, &nets[i]);
        const unsigned all = (1u << p.n) - 1;
        assert_true(passes(&p, all));
        mutate_messages(&p);
        const int of_messages = p.mutants;
        mutate_sums(&p);
        const int of_strips = mutate_strips(&p);
        assert_true(nets[i].strips == (of_strips > 0));
        assert_true(passes(&p, all)); /* all of them were undone */
        const int of_sums = p.mutants - of_messages - of_strips;
        print_message("%s %s: %d mutated messages, %d mutated sums, %d strips, %d not caught\n",
                      p.name, nets[i].mesh, of_messages, of_sums, of_strips, p.missed);
        assert_true(of_messages > 20 && of_sums > 20);
        assert_int_equal(p.missed, 0);
        plans_release(&p);
    }
}

/* ranks: 3 4 5 6 */
static void check__every_mutant_of_a_placement_is_caught(void **state)
{
    (void)state;
    for (const struct support_placement *s = support_placements + 1; s->mesh; s++) {
        struct support_branches b;
        support_branches_build(&b, s);
        struct plans p = { .g = b.g, .name = "branches" };
        plan_ranks(&p, &b.mesh, &b.options);
        const unsigned all = (1u << p.n) - 1;
        assert_true(passes(&p, all));
        mutate_messages(&p);
        const int of_messages = p.mutants;
        mutate_sums(&p);
        assert_true(passes(&p, all));
        print_message("%s: %d mutated messages, %d mutated sums, %d not caught\n", s->mesh,
                      of_messages, p.mutants - of_messages, p.missed);
        assert_true(of_messages > 0 && p.mutants > of_messages);
        assert_int_equal(p.missed, 0);
        plans_release(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__every_mutant_is_caught),
        cmocka_unit_test(check__every_mutant_of_a_pipeline_is_caught),
        cmocka_unit_test(check__every_mutant_of_a_placement_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
