/* How far the zero-bubble schedule puts off weight gradients: as far as no stage takes more memory than the
 * largest of 1F1B. Plans are made to find out, the same on all ranks. */
#include "plan/fit.h"
#include "plan/planner.h"

/* Bytes of the stage that takes most, by its first rank; SIZE_MAX on error. */
static size_t stage_bytes(const struct wf_graph *g, const struct wf_mesh *mesh,
                          const struct wf_plan_options *options, struct wf_err *err)
{
    struct wf_global_plan *const s = wf_global_plan_of_all(
        wf_global_plan_make(g, mesh, options, &(struct wf_requests){ 0 }, err), err);
    size_t most = 0;
    bool ok = s != NULL;
    for (int stage = 0; ok && stage < mesh->at[WF_MESH_PIPE]; stage++) {
        const int at[WF_MESH_AXES] = { [WF_MESH_PIPE] = stage };
        struct wf_plan_cache cache = { 0 };
        struct wf_plan *const plan = wf_plan_estimate(s, wf_mesh_rank(mesh, at), &cache, err);
        ok = plan != NULL;
        most = ok && wf_plan_total_bytes(plan) > most ? wf_plan_total_bytes(plan) : most;
        wf_plan_free(plan);
        wf_plan_cache_release(&cache);
    }
    wf_global_plan_free(s);
    return ok ? most : SIZE_MAX;
}

bool wf_plan_choose_backlog(const struct wf_graph *g, const struct wf_mesh *mesh,
                            struct wf_plan_options *options, struct wf_err *err)
{
    if (options->pipe.schedule != WF_PIPE_ZERO_BUBBLE || mesh->at[WF_MESH_PIPE] == 1 ||
        options->pipe.backlog > 0 || wf_pipe_micro_batches(&options->pipe) == 1)
        return true;
    struct wf_plan_options usual = *options;
    usual.pipe.schedule = WF_PIPE_1F1B;
    const size_t most = stage_bytes(g, mesh, &usual, err);
    bool ok = most < SIZE_MAX;
    for (options->pipe.backlog = mesh->at[WF_MESH_PIPE]; ok && options->pipe.backlog > 1;
         options->pipe.backlog--) {
        const size_t bytes = stage_bytes(g, mesh, options, err);
        ok = bytes < SIZE_MAX;
        if (bytes <= most)
            break;
    }
    return ok;
}
