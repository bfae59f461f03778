#include "train/step.h"

/* Runs of neighbouring parameters that are trained, as one range each. Gaps between parameters have
 * gradient zero and may be swept over. */
static void update(struct wf_run *run, struct wf_optim *optim)
{
    const struct wf_plan *plan = wf_run_plan(run);
    const struct wf_graph *g = plan->scheme->graph;
    float *params = wf_run_params(run);
    const float *grads = wf_run_grads(run);
    size_t first = 0, end = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if (v->kind != WF_PARAM)
            continue;
        if (v->frozen) {
            wf_optim_update(optim, params, grads, first, end - first);
            first = end = plan->param_at[i] + (size_t)wf_shape_count(v->shape);
        } else {
            end = plan->param_at[i] + (size_t)wf_shape_count(v->shape);
        }
    }
    wf_optim_update(optim, params, grads, first, end - first);
}

bool wf_train_step(struct wf_run *run, struct wf_optim *optim, struct wf_err *err)
{
    if (!wf_run_step(run, err))
        return false;
    wf_optim_tick(optim);
    update(run, optim);
    return true;
}
