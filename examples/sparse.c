/*
 * The example network of MinkowskiEngine's tutorial on training with several GPUs, on points: two convolutions of
 * stride 2 with batch norm, the mean over the points of each sample, one linear layer. It learns to tell balls
 * from boxes by their surfaces, on two ranks that take half of the samples each; loss and gradients are those of
 * all samples together.
 *
 *     cc sparse.c $(pkg-config --cflags --libs widefield)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "widefield.h"

enum {
    SAMPLES = 8,
    SIDE = 24, /* of the box that the points lie in */
    MOST = SAMPLES * 1500,
    BASE = 16, /* channels of the first layer; 64 in the tutorial */
    STEPS = 30,
    WEIGHTS = 8,
};

static int32_t coords[MOST][4];
static float ones[MOST], labels[SAMPLES], logits[SAMPLES][2];

static const struct {
    const char *name;
    size_t count;
} weights[WEIGHTS] = {
    { "first.weight", 27 * BASE },         { "first_norm.weight", BASE },
    { "first_norm.bias", BASE },           { "second.weight", (size_t)27 * BASE * 2 * BASE },
    { "second_norm.weight", 2 * BASE },    { "second_norm.bias", 2 * BASE },
    { "fc.weight", (size_t)2 * 2 * BASE }, { "fc.bias", 2 },
};

static void check(bool ok, const struct wf_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "sparse: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static double draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24);
}

/* The surfaces of balls (label 0) and boxes (label 1) of random size and place; returns how many points. */
static size_t draw_batch(uint32_t seed)
{
    size_t n = 0;
    for (int s = 0; s < SAMPLES; s++) {
        const double radius = 5 + 4 * draw(&seed);
        double at[3];
        for (int d = 0; d < 3; d++)
            at[d] = radius + 1 + (SIDE - 2 * radius - 2) * draw(&seed);
        const bool is_box = draw(&seed) < 0.5;
        labels[s] = is_box;
        for (int32_t i = 0; i < SIDE * SIDE * SIDE; i++) {
            const int32_t place[3] = { i / SIDE / SIDE, i / SIDE % SIDE, i % SIDE };
            double most = 0, square = 0;
            for (int d = 0; d < 3; d++) {
                const double away = fabs(place[d] - at[d]);
                most = fmax(most, away);
                square += away * away;
            }
            const double distance = is_box ? most / 0.8 : sqrt(square);
            if (fabs(distance - radius) > 0.6 || draw(&seed) < 0.3 || n == MOST)
                continue;
            coords[n][0] = s;
            memcpy(&coords[n++][1], place, sizeof place);
        }
    }
    return n;
}

static struct wf_sparse layer(struct wf_graph *g, struct wf_sparse x, const char *name, int64_t out)
{
    struct wf_sparse_conv conv = WF_ZERO;
    struct wf_norm norm = WF_ZERO;
    char norm_name[32];
    conv.name = name;
    conv.out = out;
    for (int d = 0; d < 3; d++) {
        conv.kernel[d] = 3;
        conv.stride[d] = 2;
    }
    x = wf_sparse_conv(g, x, &conv);
    (void)snprintf(norm_name, sizeof norm_name, "%s_norm", name);
    norm.name = norm_name;
    norm.act = WF_RELU;
    x.features = wf_batch_norm(g, x.features, &norm);
    return x;
}

/* Nothing here knows of ranks, or of how many points a step will have. */
static struct wf_graph *build(struct wf_err *err)
{
    struct wf_graph_options options = WF_ZERO;
    struct wf_sparse_input in = WF_ZERO;
    struct wf_loss loss = WF_ZERO;
    options.training = true;
    struct wf_graph *g = wf_graph_new(&options);
    in.dims = 3;
    in.rows = 2 * MOST; /* whichever rank has most of them */
    in.channels = 1;
    in.samples = SAMPLES;
    struct wf_sparse x = wf_sparse_input(g, &in);
    x = layer(g, x, "first", BASE);
    x = layer(g, x, "second", 2 * BASE);
    struct wf_value *mean = wf_sparse_global_pool(g, x, "mean", WF_SPARSE_AVERAGE);
    struct wf_value *y = wf_linear(g, mean, "fc", 2, true);
    struct wf_value *label = wf_input(g, "label", WF_I32, wf_shape_make(SAMPLES, 1, 1, 1, 1));
    loss.name = "loss";
    struct wf_value *l = wf_cross_entropy(g, y, label, &loss);
    wf_graph_output(g, y);
    wf_graph_output(g, l);
    check(wf_graph_grad(g, l, NULL, 0, NULL, NULL, err), err);
    return g;
}

static struct wf_session *open_session(const char *mesh, struct wf_err *err)
{
    struct wf_options *options = wf_options_new();
    check(wf_options_set(options, "mesh", mesh, err), err);
    struct wf_session *session = wf_session_new(options, err);
    check(session != NULL, err);
    wf_options_free(options);
    return session;
}

/* The loss of a batch; the part of the samples that is right in *right. */
static float step(struct wf_exec *exec, uint32_t seed, double *right, struct wf_err *err)
{
    float loss;
    const size_t n = draw_batch(seed);
    check(wf_exec_put_points(exec, "coords", coords[0], n, err), err);
    check(wf_exec_put(exec, "features", ones, n, err), err);
    check(wf_exec_put(exec, "label", labels, SAMPLES, err), err);
    check(wf_exec_step(exec, err), err);
    check(wf_exec_get(exec, "loss", &loss, 1, err), err);
    check(wf_exec_get(exec, "fc", logits[0], (size_t)SAMPLES * 2, err), err);
    *right = 0;
    for (int s = 0; s < SAMPLES; s++)
        *right += (logits[s][1] > logits[s][0]) == (labels[s] > 0) ? 1.0 / SAMPLES : 0;
    return loss;
}

/* Weights are the program's to change: here by momentum. */
static void update(struct wf_exec *exec, float *const speed[WEIGHTS], struct wf_err *err)
{
    for (int i = 0; i < WEIGHTS; i++) {
        char name[64];
        float *w = malloc(weights[i].count * sizeof *w), *d = malloc(weights[i].count * sizeof *d);
        if (!w || !d)
            exit(EXIT_FAILURE);
        (void)snprintf(name, sizeof name, "grad.%s", weights[i].name);
        check(wf_exec_get(exec, weights[i].name, w, weights[i].count, err), err);
        check(wf_exec_get(exec, name, d, weights[i].count, err), err);
        for (size_t k = 0; k < weights[i].count; k++) {
            speed[i][k] = 0.9f * speed[i][k] + d[k];
            w[k] -= 0.05f * speed[i][k];
        }
        check(wf_exec_put(exec, weights[i].name, w, weights[i].count, err), err);
        free(w);
        free(d);
    }
}

int main(void)
{
    struct wf_err err = WF_ZERO;
    float first[2] = { 0 }, *speed[WEIGHTS];
    double right, sum = 0;
    for (int i = 0; i < MOST; i++)
        ones[i] = 1;
    for (int i = 0; i < WEIGHTS; i++)
        if (!(speed[i] = calloc(weights[i].count, sizeof *speed[i])))
            return EXIT_FAILURE;
    for (int ranks = 1; ranks <= 2; ranks++) { /* the same first loss on one rank and on two */
        struct wf_session *session = open_session(ranks == 1 ? "data=1" : "data=2", &err);
        struct wf_graph *g = build(&err);
        struct wf_exec *exec = wf_exec_new(session, g, &err);
        check(exec != NULL, &err);
        first[ranks - 1] = step(exec, 1, &right, &err);
        for (uint32_t i = 2; ranks == 2 && i < 2 + STEPS; i++) {
            update(exec, speed, &err);
            const float loss = step(exec, i, &right, &err);
            sum += i >= 2 + STEPS - 10 ? right / 10 : 0;
            if (i % 5 == 0)
                printf("step %2u  loss %.4f  right %3.0f %%\n", i, (double)loss, 100 * right);
        }
        wf_exec_free(exec);
        wf_graph_free(g);
        wf_session_free(session);
    }
    for (int i = 0; i < WEIGHTS; i++)
        free(speed[i]);
    printf("first loss on one rank %.7f, on two %.7f; right in the last ten steps: %.0f %%\n",
           (double)first[0], (double)first[1], 100 * sum);
    return fabsf(first[0] - first[1]) < 1e-5f && sum > 0.85 ? EXIT_SUCCESS : EXIT_FAILURE;
}
