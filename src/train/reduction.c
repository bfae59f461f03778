#include "train/reduction.h"

#include "ops/op.h"

const char *const wf_reduction_names[] = {
    [WF_REDUCTION_GLOBAL] = "global",
    [WF_REDUCTION_RANK_MEAN] = "rank_mean",
    NULL,
};

/* What this rank's targets count. Where no axis of space cuts them, the ranks along it hold the same
 * and count it again, for every data rank alike. */
static bool count_own(const struct wf_network *net, const struct wf_run *run, double *count,
                      struct wf_err *err)
{
    const struct wf_view there = wf_run_owned(run, net->target);
    *count = there.data ? (double)wf_region_count(there.box) : 0;
    if ((!net->has_ignore && !net->target->set) || *count == 0)
        return true;
    struct wf_host host = { 0 };
    double rows = 0; /* that are there */
    const bool ok = (!net->target->set ||
                     wf_run_get_number(run, net->graph->rows, net->target->set, &rows, err)) &&
                    wf_run_get_owned(run, net->target, &host, err);
    struct wf_region box = host.view.box;
    if (net->target->set)
        box.hi[WF_N] = wf_min(box.hi[WF_N], box.lo[WF_N] + (int64_t)rows);
    *count = 0;
    if (ok)
        for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
            *count += !net->has_ignore || wf_view_at(&host.view, c.at) != (double)net->ignore;
    wf_host_release(&host);
    return ok;
}

/* Collective. The start value of this rank for rank_mean. */
static bool find_start(const struct wf_run *run, struct wf_comm *comm, double own, double *start,
                       struct wf_err *err)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    const struct wf_mesh *const mesh = &plan->global->mesh;
    int at[WF_MESH_AXES];
    wf_mesh_coords(mesh, plan->rank, at);
    const int ranks = mesh->at[WF_MESH_DATA], me = at[WF_MESH_DATA];
    struct wf_arena arena = { 0 };
    double *const counts = wf_arena_array(&arena, ranks, double);
    counts[me] = own;
    const bool ok = wf_comm_sum(comm, counts, (size_t)ranks, WF_F64, err);
    double all = 0, some = 0; /* a rank that has nothing has no mean either */
    for (int i = 0; i < ranks; i++) {
        all += counts[i];
        some += counts[i] > 0;
    }
    *start = counts[me] > 0 ? all / (some * counts[me]) : 0;
    wf_arena_release(&arena);
    return ok;
}

bool wf_reduction_shares(const struct wf_network *net, struct wf_run *run,
                         const struct wf_shares_options *o, struct wf_share shares[],
                         struct wf_err *err)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    const bool first = wf_layout_is_first(&plan->global->geometry.layout, net->target, plan->rank);
    const bool sums = o->weighs && (net->has_ignore || net->target->set);
    for (int m = 0; m < o->count; m++)
        shares[m] = (struct wf_share){ (double)wf_shape_count(net->target->shape), 1 };
    if (!sums && !o->rank_mean)
        return true;
    struct wf_arena arena = { 0 };
    double *const own = wf_arena_array(&arena, o->count, double);
    double *const all = wf_arena_array(&arena, o->count, double);
    bool ok = true;
    for (int m = 0; ok && m < o->count; m++) {
        wf_run_select(run, m);
        ok = count_own(net, run, &own[m], err);
        all[m] = first ? own[m] : 0;
    }
    wf_run_select(run, 0);
    ok = wf_comm_agree(o->comm, ok, err);
    if (ok && sums)
        ok = wf_comm_sum(o->comm, all, (size_t)o->count, WF_F64, err);
    for (int m = 0; ok && m < o->count; m++) {
        shares[m].weight = sums ? all[m] : shares[m].weight;
        if (o->rank_mean)
            ok = find_start(run, o->comm, own[m], &shares[m].start, err);
    }
    wf_arena_release(&arena);
    return ok;
}
