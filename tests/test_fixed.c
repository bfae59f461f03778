/*
 * What depends on weights alone is computed once (program.h, P5): in a run that repeats itself, after a weight was
 * given another value, and where two runs take turns in one arena. The same plan without that is the oracle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "exec/run.h"
#include "models/model.h"
#include "support.h"

enum { SIDE = 32 };

struct net {
    struct wf_graph *g;
    struct wf_value *image, *out;
};

struct ready {
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
};

/* For prediction: norms have running statistics, and weights are cast to bf16. Up to its output, or to a layer. */
static struct net net_new(const char *layer)
{
    struct wf_err err = { 0 };
    const struct wf_model *const m = wf_model_find("unet", &err);
    struct wf_model_config config = { .base = 8, .depth = 2 };
    assert_true(m && wf_model_resolve(m, &config, &err));
    struct net net = { .g = wf_graph_new(&(struct wf_graph_options){ .compute = WF_BF16 }) };
    net.image = wf_input(net.g, "image", WF_F32, WF_SHAPE(1, 1, SIDE, SIDE, 3));
    net.out = m->build(net.g, &config, net.image);
    net.out = layer ? wf_graph_find(net.g, layer) : net.out;
    assert_non_null(net.out);
    wf_graph_output(net.g, net.out);
    return net;
}

static struct ready ready_new(const struct net *net, bool fixed, struct wf_run *lender,
                              struct wf_comm *self)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    const struct wf_plan_options options = { .device = &wf_device_cpu, .fixed_weights = fixed };
    struct ready r = { .global = wf_global_plan_new(net->g, &one, &options, &err) };
    r.plan = r.global ? wf_plan_new(r.global, 0, &err) : NULL;
    r.run = !r.plan  ? NULL
            : lender ? wf_run_new_alone(lender, r.plan, self, &err)
                     : wf_run_new(r.plan, self, 0, &err);
    if (!r.run)
        fail_msg("%s", err.text);
    if (!lender)
        wf_run_init_weights(r.run, 3);
    return r;
}

static void ready_free(struct ready *r)
{
    wf_run_free(r->run);
    wf_plan_free(r->plan);
    wf_global_plan_free(r->global);
}

/* Both make the same of this image. */
static void expect_alike(const struct net *net, const struct ready *a, const struct ready *b,
                         uint64_t seed)
{
    struct wf_err err = { 0 };
    const struct ready *const both[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        const struct wf_view x = wf_run_view(both[i]->run, net->image);
        support_fill_random(&x, seed, 1);
        assert_true(wf_run_step(both[i]->run, &err));
    }
    const struct wf_view got = wf_run_view(a->run, net->out), want = wf_run_view(b->run, net->out);
    assert_memory_equal(got.data, want.data, wf_view_bytes(&want));
}

static void weights__that_are_fixed_are_cast_once(void **state)
{
    (void)state;
    const struct net net = net_new(NULL);
    struct wf_comm *const self = wf_comm_self();
    struct ready plain = ready_new(&net, false, NULL, self),
                 fixed = ready_new(&net, true, NULL, self);
    assert_int_equal(plain.plan->n_fixed, 0);
    int casts = 0, others = 0;
    for (int s = 0; s < fixed.plan->n_steps; s++) {
        const struct wf_value *const in = fixed.plan->steps[s].node->in[0];
        const bool of_weight = in && (in->kind == WF_PARAM || in->kind == WF_STATE);
        casts += s < fixed.plan->n_fixed && of_weight;
        others += s >= fixed.plan->n_fixed && of_weight;
    }
    assert_true(casts > 0 && casts == fixed.plan->n_fixed);
    assert_int_equal(others, 0);
    for (uint64_t seed = 1; seed < 4; seed++)
        expect_alike(&net, &fixed, &plain, seed);
    ready_free(&fixed);
    ready_free(&plain);
    wf_comm_free(self);
    wf_graph_free(net.g);
}

static void weights__that_are_filled_anew_are_cast_anew(void **state)
{
    (void)state;
    const struct net net = net_new(NULL);
    struct wf_comm *const self = wf_comm_self();
    struct ready plain = ready_new(&net, false, NULL, self),
                 fixed = ready_new(&net, true, NULL, self);
    expect_alike(&net, &fixed, &plain, 1);
    for (int i = 0; i < 2; i++) {
        struct wf_host weight = { 0 };
        struct wf_run *const run = i ? plain.run : fixed.run;
        wf_run_map(run, wf_graph_find(net.g, "enc0.conv0.weight"), &weight);
        assert_non_null(weight.view.data);
        support_fill_random(&weight.view, 7, 1);
        wf_host_put(&weight);
        wf_host_release(&weight);
    }
    expect_alike(&net, &fixed, &plain, 1);
    ready_free(&fixed);
    ready_free(&plain);
    wf_comm_free(self);
    wf_graph_free(net.g);
}

/* One of them is of a part of the network, so that its activations lie where the other keeps weights. */
static void runs__that_take_turns_in_an_arena_keep_nothing_of_each_other(void **state)
{
    (void)state;
    const struct net nets[2] = { net_new(NULL), net_new("enc0.conv1") };
    struct wf_comm *const self = wf_comm_self();
    struct ready fixed[2], plain[2];
    for (int i = 0; i < 2; i++) {
        fixed[i] = ready_new(&nets[i], true, i ? fixed[0].run : NULL, self);
        plain[i] = ready_new(&nets[i], false, i ? plain[0].run : NULL, self);
    }
    static const int turns[] = { 0, 1, 0, 0, 1, 1, 0 };
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        expect_alike(&nets[turns[i]], &fixed[turns[i]], &plain[turns[i]], i);
    ready_free(&fixed[1]);
    fixed[1] = ready_new(&nets[1], true, fixed[0].run, self);
    expect_alike(&nets[1], &fixed[1], &plain[1], 8);
    expect_alike(&nets[0], &fixed[0], &plain[0], 9);
    for (int i = 1; i >= 0; i--) {
        ready_free(&fixed[i]);
        ready_free(&plain[i]);
        wf_graph_free(nets[i].g);
    }
    wf_comm_free(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights__that_are_fixed_are_cast_once),
        cmocka_unit_test(weights__that_are_filled_anew_are_cast_anew),
        cmocka_unit_test(runs__that_take_turns_in_an_arena_keep_nothing_of_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
