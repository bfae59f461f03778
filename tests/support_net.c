#include "support_net.h"

#include "device/device.h"
#include "models/model.h"
#include "ops/build.h"
#include "plan/mesh.h"

static bool init(struct support_net *n, struct wf_context *context, struct wf_comm *comm,
                 const char *mesh_text, bool training, const char *frozen, struct wf_err *err)
{
    *n = (struct support_net){ 0 };
    struct wf_mesh mesh;
    const struct wf_model *const m = wf_model_find("unet", err);
    struct wf_model_config config = { .dims = 2, .in = 3, .classes = 2, .base = 2, .depth = 1 };
    if (!m || !wf_model_resolve(m, &config, err) || !wf_mesh_parse(mesh_text, &mesh, err))
        return false;
    n->g = wf_graph_new(&(struct wf_graph_options){ .training = training });
    struct wf_value *const x = wf_input(n->g, "image", WF_F32, WF_SHAPE(2, 1, 12, 16, 3));
    struct wf_value *const t = wf_input(n->g, "target", WF_I32, WF_SHAPE(2, 1, 12, 16, 1));
    struct wf_value *const y = m->build(n->g, &config, x);
    struct wf_value *const loss = wf_cross_entropy(n->g, y, t, &(struct wf_loss){ .name = "loss" });
    if (!wf_graph_ok(n->g, err))
        return false;
    wf_graph_output(n->g, loss);
    if (frozen)
        wf_graph_freeze(n->g, frozen);
    if (training && !wf_graph_grad(n->g, loss, NULL, 0, NULL, NULL, err))
        return false;
    const struct wf_plan_options options = { .device =
                                                 context ? context->device : &wf_device_reference };
    n->global = wf_global_plan_new(n->g, &mesh, &options, err);
    n->plan = n->global ? wf_plan_new_on(n->global, wf_comm_rank(comm), context, err) : NULL;
    n->run = n->plan ? wf_run_new(n->plan, comm, 1, err) : NULL;
    if (!n->run)
        return false;
    const struct wf_optim_options rule = wf_optim_defaults(WF_ADAM);
    n->optim = wf_optim_new(&rule, n->run, err);
    wf_run_init_weights(n->run, 1);
    return n->optim != NULL;
}

bool support_net_init(struct support_net *n, struct wf_comm *comm, const char *mesh_text,
                      bool training, struct wf_err *err)
{
    return init(n, NULL, comm, mesh_text, training, NULL, err);
}

bool support_net_init_on(struct support_net *n, struct wf_context *context, struct wf_comm *comm,
                         const char *mesh_text, bool training, struct wf_err *err)
{
    return init(n, context, comm, mesh_text, training, NULL, err);
}

bool support_net_init_frozen(struct support_net *n, struct wf_comm *comm, const char *mesh_text,
                             const char *frozen, struct wf_err *err)
{
    return init(n, NULL, comm, mesh_text, true, frozen, err);
}

void support_net_release(struct support_net *n)
{
    wf_optim_free(n->optim);
    wf_run_free(n->run);
    wf_plan_free(n->plan);
    wf_global_plan_free(n->global);
    wf_graph_free(n->g);
}
