/* What is on its way beside what is computed: inner parts and halos, buckets of gradients, and that
 * the plan's checks see who does not wait. That the numbers stay the same is shown by random_graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "ops/build.h"
#include "plan/plan.h"

enum { SIDE = 32, RANKS = 4 };

/* Three convolutions with bias; the middle one reads what the first one made, and so on. */
static struct wf_graph *three_layers(void)
{
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, SIDE, SIDE, 4));
    const char *const names[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) {
        x = wf_conv(
            g, x,
            &(struct wf_conv){
                .name = names[i], .out = 8, .kernel = { 1, 3, 3 }, .same = true, .bias = true });
    }
    struct wf_value *t = wf_input(g, "t", WF_F32, x->shape);
    struct wf_value *loss = wf_mse(g, x, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

struct plans {
    struct wf_graph *g;
    struct wf_global_plan *s;
    struct wf_plan *at[RANKS];
    int n;
};

static struct plans make(const char *mesh_text, struct wf_plan_options options)
{
    struct plans p = { .g = three_layers() };
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    options.device = &wf_device_cpu;
    options.check_passes = true;
    assert_true(wf_mesh_parse(mesh_text, &mesh, &err));
    p.s = wf_global_plan_new(p.g, &mesh, &options, &err);
    p.n = wf_mesh_size(&mesh);
    for (int r = 0; p.s && r < p.n; r++)
        p.at[r] = wf_plan_new(p.s, r, &err);
    if (!p.s || !p.at[p.n - 1])
        fail_msg("%s", err.text);
    return p;
}

static void free_plans(struct plans *p)
{
    for (int r = 0; r < p->n; r++)
        wf_plan_free(p->at[r]);
    wf_global_plan_free(p->s);
    wf_graph_free(p->g);
}

static bool passes(const struct plans *p)
{
    struct wf_err err = { 0 };
    return wf_plan_check_all((const struct wf_plan *const *)p->at, p->n, &err);
}

/* The rank's kernels of one node: how many, and how many results they make together. */
static int parts_of(const struct wf_plan *p, const char *op, const char *name, int64_t *made)
{
    int parts = 0;
    *made = 0;
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s].kind == WF_STEP_KERNEL && strcmp(p->steps[s].node->op->name, op) == 0 &&
            strcmp(p->steps[s].node->name, name) == 0) {
            parts++;
            *made += wf_region_count(p->steps[s].work);
        }
    return parts;
}

static int find(const struct wf_plan *p, enum wf_step_kind kind, int from)
{
    while (from < p->n_steps && p->steps[from].kind != kind)
        from++;
    return from;
}

/* 32 rows over two ranks: a 3x3 kernel makes 15 of its 16 rows before the other's row is there. */
static void split__inner_rows_run_before_the_fetch_ends(void **state)
{
    (void)state;
    struct plans p = make("space=2x1", (struct wf_plan_options){ .split_always = true });
    assert_true(passes(&p));
    for (int r = 0; r < 2; r++) {
        const struct wf_plan *plan = p.at[r];
        const int begin = find(plan, WF_STEP_FETCH_BEGIN, 0);
        const int end = find(plan, WF_STEP_FETCH_END, begin);
        const struct wf_step *inner = &plan->steps[begin + 1], *halo = &plan->steps[end + 1];
        assert_int_equal(end, begin + 2);
        assert_string_equal(inner->node->name, "b");
        assert_ptr_equal(inner->node, halo->node);
        assert_int_equal(wf_region_extent(inner->work, WF_H), SIDE / 2 - 1);
        assert_int_equal(wf_region_extent(halo->work, WF_H), 1);
        /* No copy: rows of a packed buffer are packed. */
        assert_int_equal(inner->in[0].buffer, halo->in[0].buffer);
        assert_int_equal(inner->out[0].buffer, halo->out[0].buffer);
    }
    free_plans(&p);
}

/* Cut along both axes: a corner rank has a halo of two sides, and parts that are not packed are
 * copied. Forward and backward kernels make each result once. */
static void split__parts_tile_the_work_forward_and_backward(void **state)
{
    (void)state;
    static const char *const meshes[] = { "space=2x1", "space=1x2", "space=2x2", "space=4" };
    const struct {
        const char *op, *name;
    } nodes[] = { { "conv", "b" }, { "conv", "c" }, { "convt", "c.dx" }, { "convt", "b.dx" } };
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct plans p = make(meshes[m], (struct wf_plan_options){ .split_always = true });
        assert_true(passes(&p));
        for (size_t n = 0; n < sizeof nodes / sizeof *nodes; n++) {
            int64_t made = 0, all = 0;
            for (int r = 0; r < p.n; r++) {
                assert_true(parts_of(p.at[r], nodes[n].op, nodes[n].name, &made) >= 2);
                all += made;
            }
            assert_int_equal(all, SIDE * SIDE * 8);
        }
        free_plans(&p);
    }
}

/* By the estimates: a message of 1 KB takes 0.2 us over the usual link and a second at 1 KB/s. */
static void split__happens_where_the_link_is_slow(void **state)
{
    (void)state;
    int64_t made;
    struct plans fast = make("space=2x1", (struct wf_plan_options){ 0 });
    struct plans slow =
        make("space=2x1", (struct wf_plan_options){ .links.bytes_per_second = 1e3 });
    struct plans never = make(
        "space=2x1", (struct wf_plan_options){ .links.bytes_per_second = 1e3, .no_overlap = true });
    assert_int_equal(parts_of(fast.at[0], "conv", "b", &made), 1);
    assert_int_equal(parts_of(slow.at[0], "conv", "b", &made), 2);
    assert_int_equal(parts_of(never.at[0], "conv", "b", &made), 1);
    assert_true(slow.at[0]->seconds > 1.0);
    assert_true(slow.at[0]->seconds < never.at[0]->seconds);
    free_plans(&fast);
    free_plans(&slow);
    free_plans(&never);
}

/* Each halo part moved in front of the end of its fetch, each inner part given one row more. */
static void check__sees_a_halo_that_does_not_wait(void **state)
{
    (void)state;
    struct plans p = make("space=2x2", (struct wf_plan_options){ .split_always = true });
    int mutants = 0;
    for (int r = 0; r < p.n; r++) {
        struct wf_plan *plan = p.at[r];
        for (int s = find(plan, WF_STEP_FETCH_END, 0); s + 1 < plan->n_steps;
             s = find(plan, WF_STEP_FETCH_END, s + 1)) {
            const struct wf_step end = plan->steps[s], next = plan->steps[s + 1];
            if (next.kind != WF_STEP_KERNEL && next.kind != WF_STEP_COPY)
                continue;
            plan->steps[s] = next;
            plan->steps[s + 1] = end;
            assert_false(passes(&p));
            plan->steps[s] = end;
            plan->steps[s + 1] = next;
            mutants++;
        }
    }
    assert_true(mutants >= 8);
    assert_true(passes(&p));
    free_plans(&p);
}

static int count_steps(const struct wf_plan *p, enum wf_step_kind kind, const char *name)
{
    int count = 0;
    for (int s = find(p, kind, 0); s < p->n_steps; s = find(p, kind, s + 1))
        count += strncmp(p->sums[p->steps[s].which].value->name, name, strlen(name)) == 0;
    return count;
}

/* The steps of the last kernel of an operator and of the first begin of a gradient's sum. */
static void find_order(const struct wf_plan *p, const char *op, int *last_kernel, int *first_sum)
{
    *last_kernel = -1;
    *first_sum = p->n_steps;
    for (int s = 0; s < p->n_steps; s++) {
        const struct wf_step *step = &p->steps[s];
        if (step->kind == WF_STEP_KERNEL && strcmp(step->node->op->name, op) == 0)
            *last_kernel = s;
        if (step->kind == WF_STEP_SUM_BEGIN && s < *first_sum &&
            strncmp(p->sums[step->which].value->name, "grad.", 5) == 0)
            *first_sum = s;
    }
}

/* Each layer's weight lies beside its bias, whose gradient is summed on its own (in f64) and
 * becomes f32 at the end: no sum is waited for before all kernels of the backward pass are done. */
static void bucket__small_ones_begin_during_the_backward_pass(void **state)
{
    (void)state;
    struct plans p = make("space=2x1", (struct wf_plan_options){ .bucket_bytes = 1 });
    const struct wf_plan *plan = p.at[0];
    assert_int_equal(count_steps(plan, WF_STEP_SUM_BEGIN, "grad."), 3);
    int last_gradient, first_sum;
    find_order(plan, "conv_wgrad", &last_gradient, &first_sum);
    assert_true(first_sum < last_gradient);
    assert_true(find(plan, WF_STEP_SUM_END, first_sum) > last_gradient);
    free_plans(&p);
}

static void bucket__an_endless_one_begins_behind_the_last_gradient(void **state)
{
    (void)state;
    struct plans p = make("space=2x1", (struct wf_plan_options){ .bucket_bytes = SIZE_MAX });
    int last_gradient, first_sum;
    find_order(p.at[0], "conv_wgrad", &last_gradient, &first_sum);
    assert_true(last_gradient >= 0 && first_sum > last_gradient);
    assert_true(passes(&p));
    free_plans(&p);
}

/* Without biases the three weights are neighbours: one sum of them all, and its checks hold. */
static void bucket__neighbours_are_one_sum(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(2, 1, 8, 8, 3));
    for (int i = 0; i < 3; i++)
        x = wf_conv(g, x,
                    &(struct wf_conv){ .name = i == 0   ? "a"
                                               : i == 1 ? "b"
                                                        : "c",
                                       .out = 3,
                                       .kernel = { 1, 1, 1 } });
    struct wf_value *t = wf_input(g, "t", WF_F32, x->shape);
    struct wf_value *loss = wf_mse(g, x, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    assert_true(wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err));
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse("data=2", &mesh, &err));
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_global_plan *s = wf_global_plan_new(g, &mesh, &options, &err);
    struct wf_plan *p = wf_plan_new(s, 0, &err);
    assert_non_null(p);
    assert_int_equal(count_steps(p, WF_STEP_SUM_BEGIN, "grad."), 1);
    int sum = 0;
    while (p->sums[sum].n_parts == 0)
        sum++;
    assert_int_equal(p->sums[sum].n_parts, 3);
    assert_int_equal(p->sums[sum].count, 2 * 16 + 9); /* nine weights each, on 64 bytes */
    assert_true(wf_plan_check(p, &err));
    /* Begun in front of the last gradient, and reaching past what it covers: both are seen. */
    int begin = find(p, WF_STEP_SUM_BEGIN, 0);
    while (p->steps[begin].which != sum)
        begin = find(p, WF_STEP_SUM_BEGIN, begin + 1);
    const struct wf_step at = p->steps[begin], before = p->steps[begin - 1];
    p->steps[begin] = before;
    p->steps[begin - 1] = at;
    assert_false(wf_plan_check(p, &err));
    p->steps[begin - 1] = before;
    p->steps[begin] = at;
    assert_true(wf_plan_check(p, &err));
    p->buffers[p->sums[sum].slot.buffer].bytes -= 64;
    assert_false(wf_plan_check(p, &err));
    wf_plan_free(p);
    wf_global_plan_free(s);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split__inner_rows_run_before_the_fetch_ends),
        cmocka_unit_test(split__parts_tile_the_work_forward_and_backward),
        cmocka_unit_test(split__happens_where_the_link_is_slow),
        cmocka_unit_test(check__sees_a_halo_that_does_not_wait),
        cmocka_unit_test(bucket__small_ones_begin_during_the_backward_pass),
        cmocka_unit_test(bucket__an_endless_one_begins_behind_the_last_gradient),
        cmocka_unit_test(bucket__neighbours_are_one_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
