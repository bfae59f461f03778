/* Parts of a network on groups of ranks of their own: the numbers are those of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/run.h"
#include "support_branches.h"

enum { MOST = 32 };

/* What came of a step: the loss and the gradient of each parameter, as one rank has them. */
struct outcome {
    const struct support_placement *placement;
    double loss;
    int n;
    struct tensor {
        const char *name;
        float data[4 * 3 * 3 * 4];
        int64_t count;
        int holders;
    } grads[MOST];
    struct wf_graph *g; /* of one rank, which the names are of */
    double worst;       /* of the others: the largest relative difference from that */
};

static void fill(const struct wf_run *run, const struct wf_value *v)
{
    struct wf_host host = { 0 };
    wf_run_map(run, v, &host);
    if (host.view.data) {
        for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c);) {
            double at = v->name[strlen(v->name) - 1];
            for (int a = 0; a < WF_AXES; a++)
                at = at * 31.0 + (double)c.at[a];
            wf_view_set(&host.view, c.at, sin(at));
        }
        wf_host_put(&host);
    }
    wf_host_release(&host);
}

static double difference(const struct tensor *a, const struct wf_view *b)
{
    double apart = 0, norm = 0;
    const float *const data = b->data;
    for (int64_t i = 0; i < a->count; i++) {
        apart += pow((double)a->data[i] - (double)data[i], 2);
        norm += pow((double)a->data[i], 2);
    }
    return sqrt(apart / (norm > 0 ? norm : 1));
}

static void keep(struct outcome *o, const struct wf_value *p, const struct wf_view *grad)
{
    struct tensor *const t = &o->grads[o->n++];
    *t = (struct tensor){ .name = p->name, .count = wf_region_count(grad->box) };
    assert_true(o->n < MOST && (size_t)t->count <= sizeof t->data / sizeof *t->data);
    memcpy(t->data, grad->data, (size_t)t->count * sizeof *t->data);
}

/* One after the other, so that all of them may write what they found. */
static bool compare(struct outcome *o, const struct support_branches *b, struct wf_run *run,
                    struct wf_comm *comm, struct wf_err *err)
{
    bool ok = true;
    for (int r = 0; ok && r < wf_comm_size(comm); r++) {
        for (size_t i = 0; r == wf_comm_rank(comm) && i < b->g->n_values; i++) {
            const struct wf_value *const p = b->g->values[i];
            if (p->kind != WF_PARAM || !wf_run_view(run, p).data)
                continue;
            const struct wf_view grad = wf_run_view(run, p->grad);
            if (!o->g) {
                keep(o, p, &grad);
                continue;
            }
            int t = 0;
            while (t < o->n && strcmp(o->grads[t].name, p->name) != 0)
                t++;
            assert_true(t < o->n && grad.data);
            o->grads[t].holders++;
            o->worst = fmax(o->worst, difference(&o->grads[t], &grad));
        }
        ok = wf_comm_barrier(comm, err);
    }
    return ok;
}

static bool step(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct outcome *const o = arg;
    struct support_branches b;
    support_branches_build(&b, o->placement);
    struct wf_global_plan *const global = wf_global_plan_new(b.g, &b.mesh, &b.options, err);
    struct wf_plan *const plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    if (ok) {
        wf_run_init_weights(run, 7);
        for (size_t i = 0; i < b.g->n_values; i++)
            if (b.g->values[i]->kind == WF_INPUT)
                fill(run, b.g->values[i]);
        ok = wf_run_step(run, err) && compare(o, &b, run, comm, err);
    }
    double loss = 0;
    ok = ok && wf_run_get_number(run, b.loss, &loss, err);
    if (ok && !o->g)
        o->loss = loss;
    else if (ok && fabs(loss - o->loss) > 1e-6 * o->loss)
        ok = wf_err_set(err, WF_ERR_FAILED, "loss %.9g, and %.9g on one rank", loss, o->loss);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    if (ok && !o->g)
        o->g = b.g; /* for its names */
    else
        wf_graph_free(b.g);
    return ok;
}

/* ranks: 1 3 4 5 6 */
static void branches__on_ranks_of_their_own_equal_one_rank(void **state)
{
    static struct outcome o;
    struct wf_err err = { 0 };
    for (const struct support_placement *p = support_placements; p->mesh; p++) {
        struct wf_mesh mesh;
        o.placement = p;
        o.worst = 0;
        for (int t = 0; t < o.n; t++)
            o.grads[t].holders = 0;
        assert_true(wf_mesh_parse(p->mesh, &mesh, &err));
        if (!wf_comm_threads_run(wf_mesh_size(&mesh), step, &o, &err))
            fail_msg("%s: %s", p->mesh, err.text);
        print_message("%s: gradients differ by %.2g\n", p->mesh, o.worst);
        assert_true(o.worst < 1e-6);
        const int others = wf_mesh_size(&mesh) / mesh.at[p->axis];
        for (int t = 0; p != support_placements && t < o.n; t++) {
            const char *const name = o.grads[t].name;
            bool on[8] = { false };
            for (int k = 0; k < BRANCHES; k++)
                for (int i = p->lo[k]; i < p->hi[k]; i++)
                    on[i] |= strncmp(name, "last", 4) == 0 ||
                             (strncmp(name, "shared", 6) == 0 && k != 1) ||
                             (strchr("ob", name[0]) && strchr(name, '0' + k));
            int holders = 0;
            for (int i = 0; i < 8; i++)
                holders += on[i] ? others : 0;
            if (o.grads[t].holders != holders)
                fail_msg("%s: '%s' is on %d ranks, not %d", p->mesh, name, o.grads[t].holders,
                         holders);
        }
    }
    wf_graph_free(o.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches__on_ranks_of_their_own_equal_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
