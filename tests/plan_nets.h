/* Networks whose plans the tests of checks break, and the plans of all their ranks. */
#ifndef WF_TESTS_PLAN_NETS_H
#define WF_TESTS_PLAN_NETS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "models/model.h"
#include "ops/build.h"
#include "plan/planner.h"

struct net {
    const char *model;
    int dims;
    int64_t n, d, h, w, base;
    const char *mesh;
    bool split, strips; /* inner parts first, strips wherever it can be done */
    int micro_batches;
    enum wf_pipe_schedule schedule;
};

/* ranks: 3 4 5 6 */
static const struct net nets[] = {
    { "unet", 2, 1, 1, 37, 45, 4, "space=3x2", false, false, 1, 0 },
    { "unet", 2, 1, 1, 48, 64, 4, "space=2x2", true, false, 1, 0 },
    { "unet", 2, 2, 1, 32, 32, 4, "data=2,space=1x2", false, false, 1, 0 },
    { "cnn1d", 1, 1, 1, 1, 97, 0, "space=5", false, false, 1, 0 },
    { "cnn2d", 2, 1, 1, 40, 40, 0, "space=1x3", true, false, 1, 0 },
    { "unet", 3, 1, 36, 16, 34, 2, "space=2x1x2", true, false, 1, 0 },
    { "unet", 2, 2, 1, 32, 32, 4, "data=2,space=1x2", false, true, 1, 0 },
};

struct plans {
    struct wf_graph *g;
    struct wf_global_plan *s;
    struct wf_plan_cache cache;
    struct wf_plan *at[8];
    int n, mutants, missed;
    const char *name;
};

static inline struct wf_graph *build(const struct net *net)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find(net->model, &err);
    struct wf_model_config config = { .dims = net->dims, .in = 3, .classes = 2, .base = net->base };
    assert_true(m && wf_model_resolve(m, &config, &err));
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x =
        wf_input(g, "image", WF_F32, WF_SHAPE(net->n, net->d, net->h, net->w, config.in));
    struct wf_value *y = m->build(g, &config, x);
    if (!wf_graph_ok(g, &err))
        fail_msg("%s", err.text);
    struct wf_shape labels = y->shape;
    labels.at[WF_C] = 1;
    struct wf_value *t = wf_input(g, "target", WF_I32, labels);
    struct wf_value *loss = wf_cross_entropy(g, y, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    wf_graph_output(g, y);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static inline void plan_ranks(struct plans *p, const struct wf_mesh *mesh,
                              const struct wf_plan_options *options)
{
    struct wf_err err = { 0 };
    p->n = wf_mesh_size(mesh);
    p->s = wf_global_plan_new(p->g, mesh, options, &err);
    if (!p->s)
        fail_msg("%s", err.text);
    for (int r = 0; r < p->n; r++) {
        p->at[r] = wf_plan_estimate(p->s, r, &p->cache, &err);
        if (!p->at[r])
            fail_msg("%s", err.text);
    }
}

static inline void plans_init(struct plans *p, const struct net *net)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse(net->mesh, &mesh, &err));
    *p = (struct plans){ .g = build(net), .name = net->model };
    plan_ranks(p, &mesh,
               &(struct wf_plan_options){
                   .device = &wf_device_cpu,
                   .split_always = net->split,
                   .check_passes = true,
                   .strip_always = net->strips,
                   .pipe = { .schedule = net->schedule, .micro_batches = net->micro_batches } });
}

static inline void plans_release(struct plans *p)
{
    for (int r = 0; r < p->n; r++)
        wf_plan_free(p->at[r]);
    wf_plan_cache_release(&p->cache);
    wf_global_plan_free(p->s);
    wf_graph_free(p->g);
}

#endif
