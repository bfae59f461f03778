/* Mutated plans: whatever is done to a message or a sum, at one end or at all, the checks see it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "models/model.h"
#include "ops/build.h"
#include "ops/op.h"
#include "plan/message_check.h"
#include "plan/planner.h"
#include "support_branches.h"

struct net {
    const char *model;
    int dims;
    int64_t n, d, h, w, base;
    const char *mesh;
    bool split, strips; /* inner parts first, strips wherever it can be done */
    int micro_batches;
    enum wf_pipe_schedule schedule;
};

/* ranks: 3 4 5 6 */
static const struct net nets[] = {
    { "unet", 2, 1, 1, 37, 45, 4, "space=3x2", false, false, 1, 0 },
    { "unet", 2, 1, 1, 48, 64, 4, "space=2x2", true, false, 1, 0 },
    { "unet", 2, 2, 1, 32, 32, 4, "data=2,space=1x2", false, false, 1, 0 },
    { "cnn1d", 1, 1, 1, 1, 97, 0, "space=5", false, false, 1, 0 },
    { "cnn2d", 2, 1, 1, 40, 40, 0, "space=1x3", true, false, 1, 0 },
    { "unet", 3, 1, 36, 16, 34, 2, "space=2x1x2", true, false, 1, 0 },
    { "unet", 2, 2, 1, 32, 32, 4, "data=2,space=1x2", false, true, 1, 0 },
};

static const struct net piped[] = {
    { "unet", 2, 1, 1, 32, 32, 4, "pipe=4", false, false, 4, WF_PIPE_1F1B },
    { "unet", 2, 1, 1, 32, 32, 4, "pipe=2,space=1x2", true, false, 4, WF_PIPE_INTERLEAVED },
    { "cnn2d", 2, 1, 1, 40, 40, 0, "pipe=3", false, false, 5, WF_PIPE_ZERO_BUBBLE },
};

struct plans {
    struct wf_graph *g;
    struct wf_global_plan *s;
    struct wf_plan_cache cache;
    struct wf_plan *at[8];
    int n, mutants, missed;
    const char *name;
};

static struct wf_graph *build(const struct net *net)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find(net->model, &err);
    struct wf_model_config config = { .dims = net->dims, .in = 3, .classes = 2, .base = net->base };
    assert_true(m && wf_model_resolve(m, &config, &err));
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x =
        wf_input(g, "image", WF_F32, WF_SHAPE(net->n, net->d, net->h, net->w, config.in));
    struct wf_value *y = m->build(g, &config, x);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    struct wf_shape labels = y->shape;
    labels.at[WF_C] = 1;
    struct wf_value *t = wf_input(g, "target", WF_I32, labels);
    struct wf_value *loss = wf_cross_entropy(g, y, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    wf_graph_output(g, y);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static void plan_ranks(struct plans *p, const struct wf_mesh *mesh,
                       const struct wf_plan_options *options)
{
    struct wf_err err = { 0 };
    p->n = wf_mesh_size(mesh);
    p->s = wf_global_plan_new(p->g, mesh, options, &err);
    if (!p->s)
        fail_msg("%s", err.text);
    for (int r = 0; r < p->n; r++) {
        p->at[r] = wf_plan_estimate(p->s, r, &p->cache, &err);
        if (!p->at[r])
            fail_msg("%s", err.text);
    }
}

static void plans_init(struct plans *p, const struct net *net)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse(net->mesh, &mesh, &err));
    *p = (struct plans){ .g = build(net), .name = net->model };
    plan_ranks(p, &mesh,
               &(struct wf_plan_options){
                   .device = &wf_device_cpu,
                   .split_always = net->split,
                   .check_passes = true,
                   .strip_always = net->strips,
                   .pipe = { .schedule = net->schedule, .micro_batches = net->micro_batches } });
}

static void plans_release(struct plans *p)
{
    for (int r = 0; r < p->n; r++)
        wf_plan_free(p->at[r]);
    wf_plan_cache_release(&p->cache);
    wf_global_plan_free(p->s);
    wf_graph_free(p->g);
}

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

static void expect_rule(const struct wf_plan *plan, const char *pass)
{
    struct wf_err err = { 0 };
    assert_false(wf_passes_check(plan, &err));
    if (!strstr(err.text, pass))
        fail_msg("a broken rule of '%s' is not seen: %s", pass, err.text);
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

/* --- rules of the planner's passes --- */

/* As if a pass had taken an output for something that it may rewrite. */
static void break_program(const struct plans *p)
{
    const struct wf_program *const program = p->s->program;
    struct wf_instance *const out = &program->instances[program->of_value[p->g->outputs[1]->id]];
    struct wf_instance *const summed = &program->instances[p->s->buckets[0].parts[0]];
    out->is_fused = true;
    expect_rule(p->at[0], "'fuse'");
    out->is_fused = false;
    out->is_strip_local = true;
    expect_rule(p->at[0], "'strips'");
    out->is_strip_local = false;
    summed->n_uses++;
    expect_rule(p->at[0], "'buckets'");
    summed->n_uses--;
}

/* A kernel that does one line less, and one that is given what does not lie packed. */
static int break_steps(const struct wf_plan *plan)
{
    int broken = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        struct wf_step *const s = &plan->steps[i];
        if (s->kind != WF_STEP_KERNEL || s->strip >= 0 || wf_region_is_empty(s->work))
            continue;
        if (wf_op_sums_over(s->node) && wf_region_extent(s->work, WF_W) > 1) {
            s->work.hi[WF_W]--;
            expect_rule(plan, "'split'");
            s->work.hi[WF_W]++;
            broken |= 1;
        }
        if ((s->kernel->flags & WF_KERNEL_DENSE) && s->in[0].buffer >= 0 &&
            wf_region_extent(s->in[0].view.box, WF_W) > 1 &&
            wf_region_extent(s->in[0].view.box, WF_H) > 1) {
            const struct wf_view view = s->in[0].view;
            s->in[0].view.box.hi[WF_W]--; /* columns of wider rows */
            expect_rule(plan, "'pack'");
            s->in[0].view = view;
            broken |= 2;
        }
    }
    return broken;
}

/* What is fetched is still being summed. */
static void break_order(const struct wf_plan *plan)
{
    int first = 0;
    while (plan->steps[first].kind != WF_STEP_FETCH_BEGIN)
        first++;
    int last = plan->n_steps - 1;
    while (plan->steps[last].kind != WF_STEP_SUM_END)
        last--;
    struct wf_sum *const sum = &plan->sums[plan->steps[last].which], saved = *sum;
    sum->instance = plan->exchanges[plan->steps[first].which].instance;
    expect_rule(plan, "'overlap'");
    *sum = saved;
}

static void passes__a_broken_rule_is_seen(void **state)
{
    (void)state;
    int broken = 0;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct wf_err err = { 0 };
        struct plans p;
        plans_init(&p, &nets[i]);
        assert_true(wf_passes_check(p.at[0], &err));
        break_program(&p);
        broken |= break_steps(p.at[0]);
        break_order(p.at[0]);
        assert_true(wf_passes_check(p.at[0], &err));
        plans_release(&p);
    }
    assert_int_equal(broken, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes__a_broken_rule_is_seen),
        cmocka_unit_test(check__every_mutant_is_caught),
        cmocka_unit_test(check__every_mutant_of_a_pipeline_is_caught),
        cmocka_unit_test(check__every_mutant_of_a_placement_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
