/*
 * Which decisions do whole and cut take differently? The step runs both ways with all that is decided as
 * outputs: the results of ReLUs, and what max poolings choose. Where a decision differs, the two results
 * must be within rounding of each other; one that differs by more is an error, and no excuse.
 */
#include "train/verify.h"

#include <math.h>
#include <stdlib.h>

#include "train/gather.h"
#include "ops/op.h"
#include "tensor/border.h"

struct look {
    struct wf_verify *v;
    struct wf_node **nodes; /* that decide */
    int count;
};

/* What a rank sees of one node; added up over ranks. */
struct seen {
    double turned, past; /* decisions; those that rounding does not explain */
    double farthest;     /* of the turned, against the root mean square; the largest of a rank */
};

static bool differ(double whole, double cut, bool is_index)
{
    return is_index ? whole != cut : (whole > 0) != (cut > 0);
}

/* This rank's part of the node's results against the whole ones: out[0], and behind it the index. */
static bool compare(const struct look *l, const struct wf_stepper *cut, const struct wf_node *n,
                    const float *whole, struct seen *seen, struct wf_err *err)
{
    const int which = wf_op_decides(n);
    const int64_t count = wf_shape_count(n->out[0]->shape);
    struct wf_host result = { 0 }, decision = { 0 };
    bool ok = wf_run_get_owned(cut->run, n->out[0], &result, err) &&
              wf_run_get_owned(cut->run, n->out[which], &decision, err);
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)whole[i] * (double)whole[i];
    const double scale = sqrt(squares / (double)count);
    for (struct wf_cursor c = wf_cursor(result.view.box);
         ok && result.view.data && wf_cursor_next(&c);) {
        const int64_t at = wf_outside_index(&n->out[0]->shape, c.at);
        if (!differ((double)whole[at + (which ? count : 0)], wf_view_at(&decision.view, c.at),
                    which > 0))
            continue;
        const double apart = fabs(wf_view_at(&result.view, c.at) - (double)whole[at]);
        seen->turned++;
        seen->past += !(apart <= l->v->tolerance * scale);
        seen->farthest = fmax(seen->farthest, scale > 0 ? apart / scale : 0);
    }
    wf_host_release(&result);
    wf_host_release(&decision);
    return ok;
}

static bool export(const struct wf_stepper *whole, const struct wf_value *value, float *to,
                   struct wf_err *err)
{
    struct wf_host host = { 0 };
    const bool ok = wf_run_get(whole->run, value, &host, err);
    if (ok)
        wf_export_view(value, &host.view, to);
    wf_host_release(&host);
    return ok;
}

/* Collective. One node after the other: rank 0 sends the whole results, all compare. */
static bool look_at_nodes(struct look *l, struct wf_comm *comm, const struct wf_stepper *whole,
                          const struct wf_stepper *cut, struct seen *seen, struct wf_err *err)
{
    const bool first = wf_comm_rank(comm) == 0;
    size_t most = 1;
    for (int i = 0; i < l->count; i++) {
        const size_t count = (size_t)wf_shape_count(l->nodes[i]->out[0]->shape);
        most = count > most ? count : most;
    }
    float *const buffer = malloc(2 * most * sizeof *buffer);
    bool ok = wf_comm_agree(
        comm, buffer || wf_err_set(err, WF_ERR_FIT, "no memory to look at decisions"), err);
    const int micro = wf_job_micro_batches(l->v->job);
    for (int i = 0; ok && buffer && i < l->count * micro; i++) {
        const struct wf_node *const n = l->nodes[i / micro];
        if (first)
            wf_run_select(whole->run, i % micro);
        wf_run_select(cut->run, i % micro);
        const size_t count = (size_t)wf_shape_count(n->out[0]->shape);
        if (first)
            ok = export(whole, n->out[0], buffer, err) &&
                 export(whole, n->out[wf_op_decides(n)], buffer + count, err);
        ok = wf_comm_agree(comm, ok, err) &&
             wf_comm_broadcast(comm, 0, buffer, 2 * count * sizeof *buffer, err) &&
             wf_comm_agree(comm, compare(l, cut, n, buffer, &seen[i / micro], err), err);
    }
    free(buffer);
    return ok;
}

/* Collective. `seen` becomes all ranks' on every rank; farthest the sum of theirs, which is enough. */
static bool add_up(struct wf_comm *comm, struct seen *seen, int count, struct wf_err *err)
{
    const size_t numbers = (size_t)count * sizeof *seen / sizeof(double);
    return wf_comm_sum(comm, seen, numbers, WF_F64, err);
}

static void note(const struct look *l, const struct seen *seen)
{
    struct wf_turned turned = { 0 };
    double past = 0;
    for (int i = 0; i < l->count; i++) {
        if (seen[i].turned > 0 && turned.count == 0) {
            turned.layer = l->nodes[i]->name;
            turned.is_pooling = wf_op_decides(l->nodes[i]) > 0;
        }
        turned.count += (int64_t)seen[i].turned;
        turned.distance = fmax(turned.distance, seen[i].farthest);
        past += seen[i].past;
    }
    if (past > 0) /* an error, not rounding */
        turned = (struct wf_turned){ 0 };
    l->v->turned = turned;
}

static bool look_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct look *const l = arg;
    const bool first = wf_comm_rank(comm) == 0;
    struct wf_comm *const self = wf_comm_self();
    struct wf_stepper whole = { 0 }, cut = { 0 };
    struct wf_arena arena = { 0 };
    struct seen *const seen = wf_arena_array(&arena, l->count, struct seen);
    struct wf_plan_options options = wf_job_plan_options(l->v->job);
    options.limit = 0; /* results are kept that a step lets go */
    bool ok = !first || wf_verify_whole(l->v, self, (struct wf_nudge){ 0 }, &whole, err);
    ok = wf_comm_agree(comm, ok, err) &&
         wf_stepper_init(&cut, l->v->job, comm,
                         &(struct wf_stepper_options){ .mesh = &l->v->job->mesh, .plan = &options },
                         err) &&
         wf_comm_agree(comm, wf_verify_nudge(&cut, l->v->moved, err), err) &&
         wf_stepper_step(&cut, err) && look_at_nodes(l, comm, &whole, &cut, seen, err) &&
         add_up(comm, seen, l->count, err);
    if (ok && (first || l->v->job->launch.world))
        note(l, seen);
    wf_stepper_release(&cut);
    wf_stepper_release(&whole);
    wf_comm_free(self);
    wf_arena_release(&arena);
    return ok;
}

bool wf_verify_find_turned(struct wf_verify *v, struct wf_err *err)
{
    struct wf_graph *const g = v->job->net.graph;
    struct wf_arena arena = { 0 };
    struct look l = { .v = v, .nodes = wf_arena_array(&arena, g->n_nodes, struct wf_node *) };
    const size_t n_outputs = g->n_outputs;
    for (size_t i = 0; i < g->n_nodes; i++) {
        struct wf_node *const n = g->nodes[i];
        if (n->backward || wf_op_decides(n) < 0)
            continue;
        l.nodes[l.count++] = n;
        wf_graph_output(g, n->out[0]);
        wf_graph_output(g, n->out[wf_op_decides(n)]);
    }
    v->turned = (struct wf_turned){ 0 };
    const bool ok = l.count == 0 || wf_job_run(v->job, look_rank, &l, err);
    g->n_outputs = n_outputs;
    wf_arena_release(&arena);
    return ok;
}
