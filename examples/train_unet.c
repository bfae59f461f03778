/*
 * Training with the C API alone: a U-Net learns to find bright discs in a noisy image, on one image
 * that is cut over two ranks. The ranks are threads of this process; under MPI only the comm would be
 * another.
 *
 *     cc train_unet.c $(pkg-config --cflags --libs --static widefield)
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "models/model.h"
#include "train/step.h"
#include "widefield.h"

enum { SIDE = 96, STEPS = 40, RANKS = 2 };

/* What is drawn at a pixel: 1 inside one of the discs. A function of the global coordinate, so each
 * rank can draw its own window. */
static int label_at(int64_t h, int64_t w)
{
    static const int discs[][3] = { { 20, 24, 9 }, { 60, 30, 12 }, { 34, 70, 14 }, { 78, 76, 8 } };
    for (size_t i = 0; i < sizeof discs / sizeof *discs; i++) {
        const int64_t y = h - discs[i][0], x = w - discs[i][1];
        if (y * y + x * x < (int64_t)discs[i][2] * discs[i][2])
            return 1;
    }
    return 0;
}

static void draw(const struct wf_view *image, const struct wf_view *target)
{
    const struct wf_random noise = wf_random(7, wf_random_stream("noise"));
    for (int64_t h = image->box.lo[WF_H]; h < image->box.hi[WF_H]; h++)
        for (int64_t w = image->box.lo[WF_W]; w < image->box.hi[WF_W]; w++) {
            const double n = (double)wf_random_normal(noise, (uint64_t)(h * SIDE + w));
            wf_view_put(image, 0, 0, h, w, 0, label_at(h, w) + n);
        }
    for (int64_t h = target->box.lo[WF_H]; h < target->box.hi[WF_H]; h++)
        for (int64_t w = target->box.lo[WF_W]; w < target->box.hi[WF_W]; w++)
            wf_view_put(target, 0, 0, h, w, 0, label_at(h, w));
}

/* The network and its loss, for the whole image: nothing here knows of ranks. */
static struct wf_graph *build(struct wf_err *err)
{
    const struct wf_model *unet = wf_model_find("unet", err);
    struct wf_model_config config = { .dims = 2, .in = 1, .classes = 2, .base = 8, .depth = 2 };
    if (!unet || !wf_model_resolve(unet, &config, err))
        return NULL;
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *image = wf_input(g, "image", WF_F32, WF_SHAPE(1, 1, SIDE, SIDE, 1));
    struct wf_value *target = wf_input(g, "target", WF_I32, WF_SHAPE(1, 1, SIDE, SIDE, 1));
    struct wf_value *logits = unet->build(g, &config, image);
    struct wf_value *loss =
        wf_cross_entropy(g, logits, target, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    if (wf_graph_ok(g, err) && wf_graph_grad(g, loss, NULL, 0, NULL, NULL, err))
        return g;
    wf_graph_free(g);
    return NULL;
}

struct result {
    float first, last;
};

static bool train(struct wf_comm *comm, struct wf_run *run, const struct wf_graph *g,
                  struct result *result, struct wf_err *err)
{
    const struct wf_view image = wf_run_view(run, wf_graph_find(g, "image"));
    const struct wf_view target = wf_run_view(run, wf_graph_find(g, "target"));
    const struct wf_view loss = wf_run_view(run, wf_graph_find(g, "loss"));
    const bool is_root = wf_run_plan(run)->rank == 0;
    struct wf_optim_options rule = wf_optim_defaults(WF_ADAM);
    rule.lr = 1e-2;
    struct wf_optim *optim = wf_optim_new(&rule, run, err);
    const struct wf_learner_options options = { .comm = comm, .optim = optim };
    struct wf_learner learner = { 0 };
    bool ok = optim && wf_learner_init(&learner, &options, run, err);
    wf_run_init_weights(run, 1);
    draw(&image, &target);
    for (int i = 0; ok && i < STEPS; i++) {
        ok = wf_learner_step(&learner, run, err);
        if (!ok || !is_root)
            continue;
        result->last = *(const float *)loss.data;
        if (i == 0)
            result->first = result->last;
        if (i % 10 == 0 || i == STEPS - 1)
            printf("step %2d  loss %.4f\n", i + 1, (double)result->last);
    }
    wf_learner_release(&learner);
    wf_optim_free(optim);
    return ok;
}

/* What one rank does: the same on each. */
static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_mesh mesh;
    struct wf_graph *g = wf_mesh_parse("space=2x1", &mesh, err) ? build(err) : NULL;
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_global_plan *global = g ? wf_global_plan_new(g, &mesh, &options, err) : NULL;
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    if (plan)
        printf("rank %d: %zu bytes planned, %zu fetched in a step\n", plan->rank,
               plan->arena_bytes + wf_plan_param_bytes(plan), plan->fetch_bytes);
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    const bool ok = run && train(comm, run, g, arg, err);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(g);
    return ok;
}

int main(void)
{
    struct result result = { 0 };
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(RANKS, body, &result, &err)) {
        (void)fprintf(stderr, "train_unet: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return result.last < 0.5f * result.first ? EXIT_SUCCESS : EXIT_FAILURE;
}
