#include "support_branches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "device/device.h"
#include "ops/build.h"

const struct support_placement support_placements[] = {
    { "space=1", WF_MESH_W, { 0, 0, 0 }, { 1, 1, 1 } },
    { "domain=3", WF_MESH_DOMAIN, { 0, 1, 2 }, { 1, 2, 3 } },
    { "domain=3,space=2", WF_MESH_DOMAIN, { 0, 1, 2 }, { 1, 2, 3 } },
    { "domain=2,space=2x1", WF_MESH_DOMAIN, { 0, 1, 0 }, { 1, 2, 1 } },
    { "data=2,domain=3", WF_MESH_DOMAIN, { 2, 0, 1 }, { 3, 1, 2 } },
    { "space=5", WF_MESH_W, { 0, 2, 3 }, { 2, 3, 5 } },
    { "space=4", WF_MESH_W, { 0, 0, 1 }, { 2, 4, 3 } }, /* with ranks in common */
    { 0 },
};

static struct wf_value *branch(struct wf_graph *g, int k, struct wf_value **result)
{
    char name[32];
    g->domain = k + 1;
    (void)snprintf(name, sizeof name, "image%d", k);
    struct wf_value *const image = wf_input(g, name, WF_F32, WF_SHAPE(2, 1, 12, 20, 3));
    (void)snprintf(name, sizeof name, "own%d", k);
    struct wf_value *x = wf_conv(
        g, image, &(struct wf_conv){ .name = name, .out = 4, .kernel = { 1, 3, 3 }, .same = true });
    (void)snprintf(name, sizeof name, "bn%d", k);
    x = wf_batch_norm(g, x, &(struct wf_norm){ .name = name, .act = WF_RELU });
    if (k != 1)
        x = wf_conv(
            g, x,
            &(struct wf_conv){
                .name = "shared", .out = 4, .kernel = { 1, 3, 3 }, .same = true, .bias = true });
    struct wf_value *const y = wf_conv(
        g, x, &(struct wf_conv){ .name = "last", .out = 2, .kernel = { 1, 1, 1 }, .bias = true });
    *result = y;
    (void)snprintf(name, sizeof name, "target%d", k);
    struct wf_value *const target = wf_input(g, name, WF_F32, WF_SHAPE(2, 1, 12, 20, 2));
    (void)snprintf(name, sizeof name, "loss%d", k);
    struct wf_value *const loss = wf_mse(g, y, target, &(struct wf_loss){ .name = name });
    g->domain = 0;
    return loss;
}

/* On all ranks, and reads what two branches make. */
static struct wf_value *trunk(struct wf_graph *g, struct wf_value *a, struct wf_value *b)
{
    struct wf_value *const y =
        wf_conv(g, wf_add(g, a, b),
                &(struct wf_conv){
                    .name = "trunk", .out = 2, .kernel = { 1, 3, 3 }, .same = true, .bias = true });
    struct wf_value *const target = wf_input(g, "target9", WF_F32, WF_SHAPE(2, 1, 12, 20, 2));
    return wf_mse(g, y, target, &(struct wf_loss){ .name = "loss9" });
}

static bool place(const void *user, const struct wf_mesh *mesh, struct wf_block domains[],
                  struct wf_err *err)
{
    const struct support_branches *const b = user;
    (void)mesh;
    (void)err;
    for (int k = 0; k < BRANCHES; k++)
        domains[k] = b->blocks[k];
    return true;
}

void support_branches_build(struct support_branches *b, const struct support_placement *p)
{
    struct wf_err err = { 0 };
    *b = (struct support_branches){ .g = wf_graph_new(
                                        &(struct wf_graph_options){ .training = true }) };
    assert_true(wf_mesh_parse(p->mesh, &b->mesh, &err));
    struct wf_value *results[BRANCHES];
    for (int k = 0; k < BRANCHES; k++) {
        struct wf_value *const loss = branch(b->g, k, &results[k]);
        b->loss = k ? wf_add(b->g, b->loss, loss) : loss;
        b->blocks[k] = wf_mesh_block(&b->mesh);
        b->blocks[k].lo[p->axis] = p->lo[k];
        b->blocks[k].hi[p->axis] = p->hi[k];
    }
    b->loss = wf_add(b->g, b->loss, trunk(b->g, results[0], results[2]));
    wf_graph_output(b->g, b->loss);
    if (!wf_graph_grad(b->g, b->loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    b->options = (struct wf_plan_options){ .device = &wf_device_cpu,
                                           .layout = { BRANCHES, place, b },
                                           .check_passes = true };
}
