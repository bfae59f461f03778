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

static void check(bool ok, const struct wf_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "course: %s\n", err->text);
    exit(1);
}

/* The loss and its gradients for n samples: nothing here knows of ranks. */
static struct wf_graph *build(int n, struct wf_err *err)
{
    struct wf_graph_options options = WF_ZERO;
    struct wf_loss mean = WF_ZERO;
    options.training = true;
    mean.name = "loss";
    struct wf_graph *g = wf_graph_new(&options);
    struct wf_value *x = wf_input(g, "x", WF_F32, wf_shape_make(n, 1, 1, 1, 2));
    struct wf_value *t = wf_input(g, "t", WF_F32, wf_shape_make(n, 1, 1, 1, 2));
    struct wf_value *h = wf_linear(g, x, "layer1", 3, true);
    h = wf_activation(g, h, "hidden", WF_SIGMOID, 0);
    struct wf_value *y = wf_linear(g, h, "layer2", 2, true);
    y = wf_activation(g, y, "predicted", WF_SIGMOID, 0);
    /* The mean over both outputs of the squares is 1/2 of their sum: L, averaged over samples. */
    struct wf_value *loss = wf_mse(g, y, t, &mean);
    /* Where the backward pass starts: a number that a rank may have its own of. */
    struct wf_value *start = wf_input_number(g, "start");
    wf_graph_output(g, y);
    wf_graph_output(g, loss);
    check(wf_graph_ok(g, err) && wf_graph_grad(g, loss, start, 0, NULL, NULL, err), err);
    return g;
}

struct result {
    double gradient; /* of w11 */
    float predicted[SAMPLES][2];
};

/* The samples [first, first + n) as one batch on a mesh. */
static struct result run_batch(int first, int n, const char *mesh, bool rank_mean)
{
    struct wf_err err = WF_ZERO;
    struct result r = WF_ZERO;
    float gradient[6];
    const float one = 1;
    const size_t samples = (size_t)n;
    struct wf_options *o = wf_options_new();
    check(wf_options_set(o, "mesh", mesh, &err), &err);
    struct wf_session *s = wf_session_new(o, &err);
    check(s != NULL, &err);
    struct wf_graph *g = build(n, &err);
    struct wf_exec *x = wf_exec_new(s, g, &err);
    check(x && wf_exec_put(x, "x", inputs[first], 2 * samples, &err) &&
              wf_exec_put(x, "t", targets[first], 2 * samples, &err) &&
              wf_exec_put(x, "layer1.weight", weight1, 6, &err) &&
              wf_exec_put(x, "layer1.bias", bias1, 3, &err) &&
              wf_exec_put(x, "layer2.weight", weight2, 6, &err) &&
              wf_exec_put(x, "layer2.bias", bias2, 2, &err),
          &err);
    check(rank_mean ? wf_exec_put_share(x, "start", "t", &err)
                    : wf_exec_put(x, "start", &one, 1, &err),
          &err);
    check(wf_exec_step(x, &err) && wf_exec_get(x, "grad.layer1.weight", gradient, 6, &err) &&
              wf_exec_get(x, "predicted", r.predicted[0], 2 * samples, &err),
          &err);
    r.gradient = (double)gradient[0];
    wf_exec_free(x);
    wf_graph_free(g);
    wf_session_free(s);
    wf_options_free(o);
    return r;
}

int main(void)
{
    const bool global = false, rank_mean = true;
    const struct result all = run_batch(0, SAMPLES, "space=1", global);
    char what[64];
    for (int i = 0; i < SAMPLES; i++)
        for (int c = 0; c < 2; c++) {
            (void)snprintf(what, sizeof what, "sample %d, prediction %d", i + 1, c + 1);
            expect(what, (double)all.predicted[i][c], predictions[i][c]);
        }
    for (int i = 0; i < SAMPLES; i++) {
        (void)snprintf(what, sizeof what, "sample %d, gradient of w11", i + 1);
        expect(what, run_batch(i, 1, "space=1", global).gradient, gradients[i]);
    }
    expect("mean over five samples, one rank", all.gradient, gradient_of_all);
    expect("global on two ranks of 3 and 2 samples",
           run_batch(0, SAMPLES, "data=2", global).gradient, gradient_of_all);
    expect("rank_mean on two ranks of 3 and 2 samples",
           run_batch(0, SAMPLES, "data=2", rank_mean).gradient, gradient_of_means);
    const double means = (run_batch(0, 3, "space=1", global).gradient +
                          run_batch(3, 2, "space=1", global).gradient) /
                         2;
    expect("mean of the means over 3 and 2 samples", means, gradient_of_means);
    return failures ? 1 : 0;
}
