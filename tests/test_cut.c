/*
 * Cut equals whole, for every case of every operator: forward and backward, on grids in one, two and
 * three axes, with ranks that own little or nothing. The oracle is the plain interpreter of
 * support.c, which knows neither plans nor ranks. Reference kernels must agree bit for bit in the
 * forward pass; everything else to 1e-5 of the tensor's norm.
 */
/* ranks: 1 2 3 4 5 6 8 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "support.h"

static const char *const meshes[] = { "",           "space=2",          "space=3",   "space=2x1",
                                      "space=2x2",  "space=1x3",        "space=3x2", "space=5x1",
                                      "data=2",     "data=2,space=1x2", "data=3",    "space=2x1x2",
                                      "space=2x2x2" };

struct cut_job {
    const struct support_case *c;
    const struct support_values *v; /* inputs, and what comes out whole */
    struct wf_mesh mesh;
    const struct wf_device *device;
    bool exact; /* forward bit for bit */
    char where[256];
};

static void fill_inputs(struct wf_run *run, const struct cut_job *job)
{
    const struct wf_graph *g = job->c->g;
    for (size_t i = 0; i < g->n_values; i++) {
        if (g->values[i]->kind == WF_TEMP)
            continue;
        const struct wf_view to = wf_run_view(run, g->values[i]);
        if (!to.data)
            continue;
        const struct wf_view from = wf_view_part(job->v->views[i], to.box);
        wf_view_copy(&to, &from);
    }
}

/* norm(got - want) <= tolerance * norm(want) over what the rank owns, against the whole's norm. */
static bool compare(const struct wf_run *run, const struct cut_job *job, const struct wf_value *v,
                    bool exact, struct wf_err *err)
{
    const struct wf_view got = wf_run_owned(run, v);
    const struct wf_view *want = &job->v->views[v->id];
    double off = 0, norm = 0;
    if (!got.data)
        return true;
    for (struct wf_cursor c = wf_cursor(want->box); wf_cursor_next(&c);)
        norm += wf_view_at(want, c.at) * wf_view_at(want, c.at);
    for (struct wf_cursor c = wf_cursor(got.box); wf_cursor_next(&c);) {
        const double a = wf_view_at(&got, c.at), b = wf_view_at(want, c.at);
        if (exact && !((float)a == (float)b)) /* sums that ranks add up are f64: equal as f32 */
            return wf_err_set(err, WF_ERR_FAILED, "%s: '%s' is %.9g, whole %.9g", job->where,
                              v->name, a, b);
        off += (a - b) * (a - b);
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(norm) + 1e-7))
        return wf_err_set(err, WF_ERR_FAILED, "%s: '%s' is off by %.3g of %.3g", job->where,
                          v->name, sqrt(off), sqrt(norm));
    return true;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct cut_job *job = arg;
    const struct wf_plan_options options = { .device = job->device };
    struct wf_global_plan *global = wf_global_plan_new(job->c->g, &job->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    if (ok) {
        fill_inputs(run, job);
        /* The second step has step number one, as the interpreter has, and old rubbish in the
         * arena. */
        ok = wf_run_step(run, err);
        fill_inputs(run, job);
        ok = ok && wf_run_step(run, err) && compare(run, job, job->c->y, job->exact, err);
        for (int i = 0; ok && i < job->c->n_wrt; i++)
            if (job->c->dwrt[i])
                ok = compare(run, job, job->c->dwrt[i], false, err);
    }
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

/* All plans of the global plan match each other; 0: the mesh does not fit, which is refused. */
static int check_plans(const struct cut_job *job)
{
    struct wf_err err = { 0 };
    const struct wf_plan_options options = { .device = job->device };
    struct wf_global_plan *global = wf_global_plan_new(job->c->g, &job->mesh, &options, &err);
    if (!global) {
        if (err.code != WF_ERR_FIT)
            fail_msg("%s: %s", job->where, err.text);
        return 0;
    }
    const int n = wf_mesh_size(&job->mesh);
    struct wf_plan *plans[16] = { 0 };
    bool ok = true;
    for (int r = 0; ok && r < n; r++)
        ok = (plans[r] = wf_plan_new(global, r, &err)) != NULL;
    if (!ok || !wf_plan_check_all((const struct wf_plan *const *)plans, n, &err))
        fail_msg("%s: %s", job->where, err.text);
    for (int r = 0; r < n; r++)
        wf_plan_free(plans[r]);
    wf_global_plan_free(global);
    return n;
}

static int run_case(const struct wf_op *op, int index, const struct wf_device *device)
{
    struct support_case c;
    struct wf_err err = { 0 };
    if (!support_case_build(op, &op->cases[index], WF_F32, &c, &err))
        fail_msg("%s case %d: %s", op->name, index, err.text);
    wf_graph_output(c.g, c.y);
    for (int i = 0; i < c.n_wrt; i++) {
        /* The optimiser runs over all of a weight on every rank. */
        if (c.wrt[i]->replicated && c.dwrt[i] && !c.dwrt[i]->replicated)
            fail_msg("%s case %d: a rank has only a part of the gradient of '%s'", op->name, index,
                     c.wrt[i]->name);
        wf_graph_output(c.g, c.dwrt[i]);
    }
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, true);
    int ran = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct cut_job job = { .c = &c, .v = &v, .device = device };
        job.exact = device == &wf_device_reference;
        assert_true(wf_mesh_parse(meshes[m], &job.mesh, &err));
        (void)snprintf(job.where, sizeof job.where, "%s case %d on mesh '%s' (%s)", op->name, index,
                       meshes[m], device->name);
        const int n = check_plans(&job);
        if (n == 0)
            continue;
        if (!wf_comm_threads_run(n, body, &job, &err))
            fail_msg("%s", err.text);
        ran++;
    }
    support_values_free(&v);
    wf_graph_free(c.g);
    return ran;
}

static void every_case_on(const struct wf_device *device)
{
    int cases = 0, runs = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (int i = 0; (*op)->cases && (*op)->cases[i].in; i++, cases++)
            runs += run_case(*op, i, device);
    print_message("%d cases on %s, %d runs\n", cases, device->name, runs);
    assert_true(cases > 100 && runs > 4 * cases);
}

static void cut__equals_whole_bit_for_bit_with_reference_kernels(void **state)
{
    (void)state;
    every_case_on(&wf_device_reference);
}

static void cut__equals_whole_with_the_cpu_kernels(void **state)
{
    (void)state;
    every_case_on(&wf_device_cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut__equals_whole_bit_for_bit_with_reference_kernels),
        cmocka_unit_test(cut__equals_whole_with_the_cpu_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
