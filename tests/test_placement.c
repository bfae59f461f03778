/* Parts of a network on groups of ranks of their own: the numbers are those of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/checkpoint.h"
#include "exec/holders.h"
#include "files.h"
#include "support_branches.h"
#include "support_scratch.h"
#include "train/step.h"

enum { MOST = 32 };

/* What came of a step: the loss and the gradient of each parameter, as one rank has them. */
struct outcome {
    const struct support_placement *placement;
    double loss, norm;
    int n;
    struct tensor {
        char name[32];
        float data[4 * 3 * 3 * 4];
        int64_t count;
        int holders;
    } grads[MOST];
    double worst; /* of others than the first: the largest relative difference from that */
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
    *t = (struct tensor){ .count = wf_region_count(grad->box) };
    (void)snprintf(t->name, sizeof t->name, "%s", p->name);
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
            if (o->placement == support_placements) {
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

/* A rank with its plan. */
struct rank {
    struct support_branches b;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
};

static bool rank_init(struct rank *r, const struct support_placement *p, struct wf_comm *comm,
                      struct wf_err *err)
{
    *r = (struct rank){ 0 };
    support_branches_build(&r->b, p);
    r->global = wf_global_plan_new(r->b.g, &r->b.mesh, &r->b.options, err);
    r->plan = r->global ? wf_plan_new(r->global, wf_comm_rank(comm), err) : NULL;
    r->run = r->plan ? wf_run_new(r->plan, comm, 1, err) : NULL;
    const struct wf_optim_options adam = wf_optim_defaults(WF_ADAM);
    r->optim = r->run ? wf_optim_new(&adam, r->run, err) : NULL;
    if (r->optim)
        wf_run_init_weights(r->run, 7);
    return r->optim != NULL;
}

static void rank_release(struct rank *r)
{
    wf_optim_free(r->optim);
    wf_run_free(r->run);
    wf_plan_free(r->plan);
    wf_global_plan_free(r->global);
    wf_graph_free(r->b.g);
}

static bool is_near(const char *what, double number, double *first, bool is_first,
                    struct wf_err *err)
{
    if (is_first)
        *first = number;
    return fabs(number - *first) <= 1e-6 * *first ||
           wf_err_set(err, WF_ERR_FAILED, "%s %.9g, and %.9g on one rank", what, number, *first);
}

static bool step(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct outcome *const o = arg;
    struct rank r;
    struct wf_learner learner = { 0 };
    const bool is_first = o->n == 0;
    bool ok =
        rank_init(&r, o->placement, comm, err) && /* all know that nobody was before them */
        wf_comm_barrier(comm, err) &&
        wf_learner_init(&learner, &(struct wf_learner_options){ .comm = comm, .optim = r.optim },
                        r.run, err);
    for (size_t i = 0; ok && i < r.b.g->n_values; i++)
        if (r.b.g->values[i]->kind == WF_INPUT)
            fill(r.run, r.b.g->values[i]);
    double loss = 0;
    ok = ok && wf_learner_step(&learner, r.run, NULL, err);
    if (ok)
        wf_learner_settle(&learner, r.run);
    ok = ok && compare(o, &r.b, r.run, comm, err) &&
         wf_run_get_number(r.run, r.b.loss, 0, &loss, err);
    for (int k = 0; ok && k < wf_comm_size(comm); k++)
        ok =
            (k != wf_comm_rank(comm) || (is_near("loss", loss, &o->loss, is_first, err) &&
                                         is_near("norm", learner.norm, &o->norm, is_first, err))) &&
            wf_comm_barrier(comm, err);
    wf_learner_release(&learner);
    rank_release(&r);
    return ok;
}

/* Something of its own in every element of every array. */
static void paint(const struct rank *r)
{
    for (size_t i = 0; i < r->b.g->n_values; i++) {
        const struct wf_value *const v = r->b.g->values[i];
        if (v->kind != WF_PARAM || !wf_run_view(r->run, v).data)
            continue;
        for (int k = 0; k < r->optim->n_states; k++)
            for (int64_t e = 0; e < wf_shape_count(v->shape); e++)
                r->optim->states[k][r->plan->param_at[i] + (size_t)e] =
                    (float)(1000 * v->id + 7 * e + k);
    }
}

static bool same_content(const char *a, const char *b)
{
    size_t sizes[2];
    unsigned char *const one = slurp(a, &sizes[0]), *const two = slurp(b, &sizes[1]);
    const bool same = one && two && sizes[0] == sizes[1] && memcmp(one, two, sizes[0]) == 0;
    free(one);
    free(two);
    return same;
}

struct trip {
    const struct support_placement *placement;
    const char *from, *to;
    bool snapshot; /* taken, and written once the weights are others */
};

static bool save_snapshot(const char *path, const struct wf_checkpoint_info *info, struct rank *r,
                          struct wf_err *err)
{
    struct wf_snapshot *const s = wf_snapshot_new(r->run, r->optim, err);
    const bool taken = s && wf_snapshot_take(s, err) && wf_snapshot_settle(s, err);
    bool ok = (wf_run_is_whole(r->run) || wf_run_ask_end(r->run, err)) && taken;
    const size_t bytes = r->optim->count * sizeof(float);
    if (r->optim->count > 0)
        memset(r->optim->states[0], 0, bytes);
    /* Twice: writing leaves it as it is. */
    ok = ok && wf_snapshot_write(s, "unread.safetensors", info, err) &&
         wf_snapshot_write(s, path, info, err);
    wf_snapshot_free(s);
    return ok;
}

static bool save(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct trip *const t = arg;
    const struct wf_checkpoint_info info = { .config = "x: 1\n", .at = { .step = 3 } };
    struct rank r;
    bool ok = rank_init(&r, t->placement, comm, err);
    if (ok && t->from) {
        struct wf_checkpoint *const c = wf_checkpoint_open(t->from, err);
        ok = c && wf_checkpoint_load(c, r.run, r.optim, err);
        wf_checkpoint_free(c);
    } else if (ok) {
        paint(&r);
    }
    if (ok && wf_comm_rank(comm) == 0 && t->snapshot) {
        ok = save_snapshot(t->to, &info, &r, err);
    } else if (ok && wf_comm_rank(comm) == 0) {
        ok = wf_checkpoint_save(t->to, &info, r.run, r.optim, err);
        if (!wf_run_is_whole(r.run))
            ok = wf_run_ask_end(r.run, err) && ok;
    } else if (ok && !wf_run_is_whole(r.run)) {
        ok = wf_run_serve(r.run, r.optim->states, r.optim->n_states, err);
    }
    rank_release(&r);
    return ok;
}

/* ranks: 1 3 4 5 6 */
static void state__saved_under_any_placement_is_the_same_file(void **state)
{
    struct wf_err err = { 0 };
    const char *before = NULL;
    const char *const first = "first.safetensors";
    for (const struct support_placement *p = support_placements; p->mesh; p++)
        for (int i = 0; i < 4; i++) { /* made there, and read there; each also as a snapshot */
            struct wf_mesh mesh;
            const bool loaded = i % 2 == 1;
            assert_true(wf_mesh_parse(p->mesh, &mesh, &err));
            struct trip t = { p, loaded ? first : NULL, before ? "other.safetensors" : first,
                              i >= 2 };
            if (!wf_comm_threads_run(wf_mesh_size(&mesh), save, &t, &err))
                fail_msg("%s: %s", p->mesh, err.text);
            if (before && !same_content(before, t.to))
                fail_msg("%s: another file, %s%s", p->mesh, loaded ? "read before" : "made there",
                         t.snapshot ? ", by a snapshot" : "");
            before = first;
        }
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
            for (int i = 0; i < mesh.at[p->axis]; i++)
                on[i] |= strncmp(name, "trunk", 5) == 0;
            int holders = 0;
            for (int i = 0; i < 8; i++)
                holders += on[i] ? others : 0;
            if (o.grads[t].holders != holders)
                fail_msg("%s: '%s' is on %d ranks, not %d", p->mesh, name, o.grads[t].holders,
                         holders);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state__saved_under_any_placement_is_the_same_file),
        cmocka_unit_test(branches__on_ranks_of_their_own_equal_one_rank),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
