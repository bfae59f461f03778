/*
 * A step of the domain separation network against PyTorch's (tests/parity/make_domains.py): every loss and
 * every gradient, on one rank and on workers along the axis domain.
 */
/* ranks: 1 2 3 4 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/safetensors.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "models/separation.h"
#include "ops/op.h"
#include "tensor/border.h"
#include "train/domains.h"
#include "train/network.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/domains"

static const double tolerance = 1e-5; /* of a tensor's norm; theirs is exact */
static const double weights[WF_ADAPTS] = { 0.1, 0.05, 0.25 };

struct job {
    const char *name, *mesh;
    enum wf_domain_placement placement;
    struct wf_safetensors *file;
    struct wf_network net;
    struct wf_domains domains;
};

static float *read_tensor(const struct job *job, const char *name, int64_t count,
                          struct wf_err *err)
{
    const struct wf_safetensor *const t = wf_safetensors_find(job->file, name);
    if (!t || t->count != count) {
        (void)wf_err_set(err, WF_ERR_INPUT, "no '%s' of %lld elements", name, (long long)count);
        return NULL;
    }
    float *const data = calloc((size_t)count, sizeof *data);
    if (data && wf_safetensors_read(job->file, t, WF_F32, data, err))
        return data;
    free(data);
    return NULL;
}

static bool fill(const struct job *job, struct wf_run *run, const struct wf_value *v,
                 const char *name, struct wf_err *err)
{
    const struct wf_view view = wf_run_view(run, v);
    if (!view.data)
        return true;
    float *const data = read_tensor(job, name, wf_shape_count(v->shape), err);
    for (struct wf_cursor c = wf_cursor(view.box); data && wf_cursor_next(&c);)
        wf_view_set(&view, c.at, (double)data[wf_outside_index(&v->shape, c.at)]);
    free(data);
    return data != NULL;
}

static bool fill_all(const struct job *job, struct wf_run *run, struct wf_err *err)
{
    const struct wf_network *const net = &job->net;
    const struct wf_view target = wf_run_view(run, net->target);
    char name[256];
    bool ok = true;
    for (struct wf_cursor c = wf_cursor(target.box); target.data && wf_cursor_next(&c);)
        wf_view_set(&target, c.at, (double)(c.at[WF_N] % net->logits->shape.at[WF_C]));
    for (int k = 0; ok && k < net->domains; k++) {
        (void)snprintf(name, sizeof name, "image%d", k);
        ok = fill(job, run, net->images[k], name, err);
    }
    for (int i = 0; i < WF_ADAPTS; i++) {
        const struct wf_view view = wf_run_view(run, net->weights[i]);
        if (view.data)
            wf_view_fill(&view, weights[i]);
    }
    for (size_t i = 0; ok && i < net->graph->n_values; i++) {
        const struct wf_value *const v = net->graph->values[i];
        (void)snprintf(name, sizeof name, "weight.%s", v->name);
        ok = v->kind != WF_PARAM || fill(job, run, v, name, err);
    }
    return ok;
}

static bool compare(const struct job *job, const struct wf_run *run, const struct wf_value *v,
                    const char *name, struct wf_err *err)
{
    const struct wf_view view = wf_run_owned(run, v);
    const int64_t count = wf_shape_count(v->shape);
    if (!view.data)
        return true;
    float *const want = read_tensor(job, name, count, err);
    double norm = 0, off = 0;
    for (int64_t i = 0; want && i < count; i++)
        norm += (double)want[i] * (double)want[i];
    for (struct wf_cursor c = wf_cursor(view.box); want && wf_cursor_next(&c);) {
        const double d = wf_view_at(&view, c.at) - (double)want[wf_outside_index(&v->shape, c.at)];
        off += d * d;
    }
    free(want);
    return want && (sqrt(off) <= tolerance * sqrt(norm) ||
                    wf_err_set(err, WF_ERR_FAILED, "'%s' is off by %.3g of %.3g", name, sqrt(off),
                               sqrt(norm)));
}

static bool compare_all(const struct job *job, const struct wf_run *run, struct wf_err *err)
{
    const struct wf_network *const net = &job->net;
    bool ok =
        compare(job, run, net->loss, "loss", err) && compare(job, run, net->task, "task", err);
    for (int i = 0; ok && i < WF_ADAPTS; i++)
        ok = compare(job, run, net->adapts[i], wf_adapt_names[i], err);
    char name[256];
    for (size_t i = 0; ok && i < net->graph->n_values; i++) {
        const struct wf_value *const v = net->graph->values[i];
        (void)snprintf(name, sizeof name, "grad.%s", v->name);
        ok = v->kind != WF_PARAM || !v->grad || compare(job, run, v->grad, name, err);
    }
    return ok;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct job *const job = arg;
    const struct wf_plan_options options = { .device = &wf_device_cpu,
                                             .layout = wf_domains_layout(&job->domains) };
    struct wf_mesh mesh;
    if (!wf_mesh_parse(job->mesh, &mesh, err))
        return false;
    struct wf_global_plan *const global = wf_global_plan_new(job->net.graph, &mesh, &options, err);
    struct wf_plan *const plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    const bool ok =
        run && fill_all(job, run, err) && wf_run_step(run, err) && compare_all(job, run, err);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

static int64_t number(const struct job *job, const char *key)
{
    return strtoll(wf_safetensors_metadata(job->file, key), NULL, 10);
}

static void check(struct job job)
{
    struct wf_err err = { 0 };
    char path[512];
    (void)snprintf(path, sizeof path, GOLDEN "/%s.safetensors", job.name);
    job.file = wf_safetensors_open(path, &err);
    assert_non_null(job.file);
    const struct wf_separation own = { .targets = number(&job, "targets"),
                                       .code = number(&job, "code") };
    struct wf_network_config c = {
        .model = wf_model_find("dsn", &err),
        .config = { .base = number(&job, "base"), .classes = number(&job, "classes"), .own = &own },
        .losses = WF_LOSS_CE,
        .similarity = strcmp(wf_safetensors_metadata(job.file, "similarity"), "mmd") == 0
                          ? WF_SIMILARITY_MMD
                          : WF_SIMILARITY_DANN,
    };
    assert_true(wf_model_resolve(c.model, &c.config, &err));
    const struct wf_safetensor *const image = wf_safetensors_find(job.file, "image0");
    const struct wf_shape shape =
        WF_SHAPE(image->shape[0], 1, image->shape[2], image->shape[3], image->shape[1]);
    if (!wf_network_build(&job.net, &c, shape, true, &err))
        fail_msg("%s", err.text);
    job.domains = (struct wf_domains){ job.net.domains, job.placement };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse(job.mesh, &mesh, &err));
    if (!wf_comm_threads_run(wf_mesh_size(&mesh), body, &job, &err))
        fail_msg("%s on '%s': %s", job.name, job.mesh, err.text);
    wf_graph_free(job.net.graph);
    wf_safetensors_free(job.file);
}

static void two_domains__are_a_plain_network_of_pytorch(void **)
{
    check((struct job){ .name = "dann1", .mesh = "space=1" });
    check((struct job){ .name = "dann1", .mesh = "domain=2" });
    check((struct job){
        .name = "dann1", .mesh = "domain=3", .placement = WF_PLACEMENT_ENCODER_LOSSES });
}

static void more_domains__go_on_any_number_of_workers(void **)
{
    check((struct job){ .name = "dann3", .mesh = "space=1" });
    check((struct job){ .name = "dann3", .mesh = "domain=3" });
    check((struct job){ .name = "dann3", .mesh = "domain=2,space=2x1" });
    check((struct job){ .name = "dann3", .mesh = "data=2,domain=2" });
}

static void discrepancy__of_two_targets(void **)
{
    check((struct job){ .name = "mmd2", .mesh = "space=1" });
    check((struct job){ .name = "mmd2", .mesh = "domain=2" });
    check((struct job){ .name = "mmd2", .mesh = "data=2,domain=2" });
}

/* --- the cost of placements --- */

struct cost {
    double together, most,
        sum; /* seconds: of all ranks; by themselves, of the slowest and of all */
};

static struct cost cost_of(const char *text, enum wf_domain_placement placement)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    struct wf_network net;
    const struct wf_network_config c = {
        .model = wf_model_find("dsn_conv", &err),
        .config = { .dims = 2,
                    .in = 3,
                    .classes = 2,
                    .base = 8,
                    .depth = 2,
                    .own = &(const struct wf_separation){ .targets = 1 } },
        .losses = WF_LOSS_CE,
    };
    assert_true(wf_mesh_parse(text, &mesh, &err));
    assert_true(wf_network_build(&net, &c, WF_SHAPE(2, 1, 64, 64, 3), true, &err));
    const struct wf_domains domains = { net.domains, placement };
    const struct wf_plan_options options = { .device = &wf_device_cpu,
                                             .layout = wf_domains_layout(&domains) };
    struct wf_global_plan *const global = wf_global_plan_new(net.graph, &mesh, &options, &err);
    assert_non_null(global);
    struct wf_plan *plans[8];
    struct cost cost = { 0 };
    const int ranks = wf_mesh_size(&mesh);
    for (int i = 0; i < ranks; i++) {
        plans[i] = wf_plan_new(global, i, &err);
        assert_non_null(plans[i]);
        cost.most = fmax(cost.most, plans[i]->seconds);
        cost.sum += plans[i]->seconds;
    }
    cost.together = wf_plans_seconds((const struct wf_plan *const *)plans, ranks);
    for (int i = 0; i < ranks; i++)
        wf_plan_free(plans[i]);
    wf_global_plan_free(global);
    wf_graph_free(net.graph);
    return cost;
}

static void ranks__that_wait_for_each_other_take_longer(void **)
{
    const struct cost one = cost_of("space=1", WF_PLACEMENT_DOMAIN);
    assert_true(fabs(one.together - one.most) <= 1e-9 * one.most);
    /* A worker per domain: one does not wait for the other, but for the sums at the end. */
    const struct cost each = cost_of("domain=2", WF_PLACEMENT_DOMAIN);
    assert_true(each.together >= each.most && each.together < 1.1 * each.most);
    /* Encoders, then decoders, then encoders again: the two take turns for most of the step. */
    const struct cost turns = cost_of("domain=2", WF_PLACEMENT_DOMAIN_LOSSES);
    assert_true(turns.together > 1.2 * turns.most && turns.together <= 1.01 * turns.sum);
}

static void placements__that_differ_are_compared(void **)
{
    struct wf_mesh mesh = wf_mesh_one();
    enum wf_domain_placement list[WF_PLACEMENTS];
    const struct wf_domains chosen = { .count = 2 }, given = { 2, WF_PLACEMENT_ROLE };
    assert_int_equal(wf_domains_placements(&chosen, &mesh, list), 1);
    assert_int_equal(list[0], WF_PLACEMENT_DOMAIN);
    mesh.at[WF_MESH_DOMAIN] = 2; /* encoders and roles of a domain share its worker */
    assert_int_equal(wf_domains_placements(&chosen, &mesh, list), 2);
    assert_int_equal(list[0], WF_PLACEMENT_DOMAIN);
    assert_int_equal(list[1], WF_PLACEMENT_DOMAIN_LOSSES);
    mesh.at[WF_MESH_DOMAIN] = 6; /* two domains of three roles each */
    assert_int_equal(wf_domains_placements(&chosen, &mesh, list), 1);
    assert_int_equal(list[0], WF_PLACEMENT_ROLE);
    mesh.at[WF_MESH_DOMAIN] = 2;
    assert_int_equal(wf_domains_placements(&given, &mesh, list), 1);
    assert_int_equal(list[0], WF_PLACEMENT_ROLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_domains__are_a_plain_network_of_pytorch),
        cmocka_unit_test(more_domains__go_on_any_number_of_workers),
        cmocka_unit_test(discrepancy__of_two_targets),
        cmocka_unit_test(ranks__that_wait_for_each_other_take_longer),
        cmocka_unit_test(placements__that_differ_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
