/*
 * The classic course example: two inputs, three hidden neurons, two outputs, sigmoid everywhere,
 * L = 1/2 sum of squares. It shows one lesson of data-parallel training: the average of unequal
 * processes' averages is not the average.
 *
 * The gradient of w11 of layer 1 comes out three ways:
 *   - for each of the five samples alone;
 *   - the mean over all five, on one rank and, the same number, on two ranks that hold 3 and 2
 *     (train.reduction=global);
 *   - the mean of those two ranks' own means, which is another number (train.reduction=rank_mean): each
 *     rank starts its backward pass from a share of its own; and, to compare, from the two halves alone.
 *
 * Expected values were worked out by hand in double precision from the weights below.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "widefield.h"

enum { SAMPLES = 5 };

static const float inputs[SAMPLES][2] = {
    { 0.5f, 1.5f }, { 2, 1 }, { 1, 1.5f }, { 1, 0.5f }, { 2.5f, 2 }
};
static const float targets[SAMPLES][2] = { { 1, 0 }, { 1, 0 }, { 0, 1 }, { 1, 0 }, { 0, 1 } };
static const float weight1[] = { 1, 0, 0, 1, 1, 1 }, bias1[] = { 1, 1, 1 };
static const float weight2[] = { 1, 0, 1, 0, 1, 0 }, bias2[] = { 1, 1 };

static const double predictions[SAMPLES][2] = { { 0.94104123, 0.87259959 },
                                                { 0.94952999, 0.86770265 },
                                                { 0.94539539, 0.87259959 },
                                                { 0.94294213, 0.86027483 },
                                                { 0.95104303, 0.87572705 } };
static const double gradients[SAMPLES] = { -0.00024394, -0.00021853, 0.00512412, -0.00032231,
                                           0.00314980 };
static const double gradient_of_all = 0.00149783, gradient_of_means = 0.00148381;

static int failures;

static void expect(const char *what, double got, double want)
{
    const int ok = fabs(got - want) < 1e-6;
    failures += !ok;
    printf("%-44s %12.8f  expected %12.8f  %s\n", what, got, want, ok ? "ok" : "WRONG");
}

/* The samples [first, first + n) as one batch; n of them belong to a run on `mesh`. */
struct batch {
    int first, n;
    const char *mesh;
    enum wf_reduction reduction;
    double gradient; /* of w11, out */
    double predicted[SAMPLES][2];
};

static struct wf_graph *build(int n)
{
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(n, 1, 1, 1, 2));
    struct wf_value *t = wf_input(g, "t", WF_F32, WF_SHAPE(n, 1, 1, 1, 2));
    struct wf_value *h = wf_linear(g, x, "layer1", 3, true);
    h = wf_activation(g, h, "hidden", WF_SIGMOID, 0);
    struct wf_value *y = wf_linear(g, h, "layer2", 2, true);
    y = wf_activation(g, y, "predicted", WF_SIGMOID, 0);
    /* The mean over both outputs of the squares is 1/2 of their sum: L, averaged over samples. */
    struct wf_value *loss = wf_mse(g, y, t, &(struct wf_loss){ .name = "loss" });
    /* Where the backward pass starts: a number that every rank fills for itself. */
    struct wf_value *start = wf_input(g, "start", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
    start->replicated = true;
    wf_graph_output(g, y);
    wf_graph_output(g, loss);
    return g;
}

static void fill(const struct wf_run *run, const struct wf_value *value, const float *data)
{
    const struct wf_view v = wf_run_view(run, value);
    if (!v.data)
        return;
    for (int64_t n = v.box.lo[WF_N]; n < v.box.hi[WF_N]; n++)
        for (int64_t c = 0; c < v.box.hi[WF_C]; c++)
            wf_view_put(&v, n, 0, 0, 0, c, (double)data[n * v.box.hi[WF_C] + c]);
}

/* Collective. */
static bool start(struct wf_run *run, struct wf_comm *comm, const struct wf_graph *g,
                  enum wf_reduction reduction, struct wf_err *err)
{
    double share = 1;
    const struct wf_network net = { .target = wf_graph_find(g, "t") };
    if (reduction == WF_REDUCTION_RANK_MEAN && !wf_reduction_share(&net, run, comm, &share, err))
        return false;
    const float from = (float)share;
    wf_run_put(run, wf_graph_find(g, "start"), &from);
    return true;
}

/* One rank's share of a batch. */
static bool step(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct batch *b = arg;
    struct wf_mesh mesh;
    if (!wf_mesh_parse(b->mesh, &mesh, err))
        return false;
    struct wf_graph *g = build(b->n);
    bool ok = wf_graph_ok(g, err) && wf_graph_grad(g, wf_graph_find(g, "loss"),
                                                   wf_graph_find(g, "start"), 0, NULL, NULL, err);
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_global_plan *global = ok ? wf_global_plan_new(g, &mesh, &options, err) : NULL;
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    ok = run != NULL;
    if (ok) {
        fill(run, wf_graph_find(g, "x"), inputs[b->first]);
        fill(run, wf_graph_find(g, "t"), targets[b->first]);
        fill(run, wf_graph_find(g, "layer1.weight"), weight1);
        fill(run, wf_graph_find(g, "layer1.bias"), bias1);
        fill(run, wf_graph_find(g, "layer2.weight"), weight2);
        fill(run, wf_graph_find(g, "layer2.bias"), bias2);
        ok = start(run, comm, g, b->reduction, err) && wf_run_step(run, err);
    }
    if (ok && wf_comm_rank(comm) == 0) {
        const struct wf_view dw = wf_run_view(run, wf_graph_find(g, "grad.layer1.weight"));
        b->gradient = wf_view_get(&dw, 0, 0, 0, 0, 0);
        const struct wf_view y = wf_run_owned(run, g->outputs[0]);
        for (int64_t n = y.box.lo[WF_N]; n < y.box.hi[WF_N]; n++)
            for (int c = 0; c < 2; c++)
                b->predicted[n][c] = wf_view_get(&y, n, 0, 0, 0, c);
    }
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(g);
    return ok;
}

static struct batch run_batch(int first, int n, const char *mesh, enum wf_reduction reduction)
{
    struct batch b = { .first = first, .n = n, .mesh = mesh, .reduction = reduction };
    const int ranks = *mesh ? 2 : 1;
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(ranks, step, &b, &err)) {
        (void)fprintf(stderr, "course: %s\n", err.text);
        exit(1);
    }
    return b;
}

int main(void)
{
    const enum wf_reduction global = WF_REDUCTION_GLOBAL, rank_mean = WF_REDUCTION_RANK_MEAN;
    const struct batch all = run_batch(0, SAMPLES, "", global);
    char what[64];
    for (int i = 0; i < SAMPLES; i++)
        for (int c = 0; c < 2; c++) {
            (void)snprintf(what, sizeof what, "sample %d, prediction %d", i + 1, c + 1);
            expect(what, all.predicted[i][c], predictions[i][c]);
        }
    for (int i = 0; i < SAMPLES; i++) {
        (void)snprintf(what, sizeof what, "sample %d, gradient of w11", i + 1);
        expect(what, run_batch(i, 1, "", global).gradient, gradients[i]);
    }
    expect("mean over five samples, one rank", all.gradient, gradient_of_all);
    expect("global on two ranks of 3 and 2 samples",
           run_batch(0, SAMPLES, "data=2", global).gradient, gradient_of_all);
    expect("rank_mean on two ranks of 3 and 2 samples",
           run_batch(0, SAMPLES, "data=2", rank_mean).gradient, gradient_of_means);
    const double means =
        (run_batch(0, 3, "", global).gradient + run_batch(3, 2, "", global).gradient) / 2;
    expect("mean of the means over 3 and 2 samples", means, gradient_of_means);
    return failures ? 1 : 0;
}
