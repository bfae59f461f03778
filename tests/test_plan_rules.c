/* Rules of the planner's passes: plans that break one are refused, by the name of the pass. */
#include <string.h>

#include "ops/op.h"
#include "plan_nets.h"

static void expect_rule(const struct wf_plan *plan, const char *pass)
{
    struct wf_err err = { 0 };
    assert_false(wf_passes_check(plan, &err));
    if (!strstr(err.text, pass))
        fail_msg("a broken rule of '%s' is not seen: %s", pass, err.text);
}

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
