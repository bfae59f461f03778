/*
 * Whole networks against PyTorch: loss, prediction, every gradient, every updated weight and running
 * statistic of a training step, whole and cut. The numbers are in tests/parity/golden/, made in
 * double precision by tests/parity/make_golden.py, which also says what each file holds and in its
 * metadata which network, loss, optimiser and meshes it is for.
 */
/* ranks: 1 2 3 4 6 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/safetensors.h"
#include "comm/comm.h"
#include "device/device.h"
#include "models/talk.h"
#include "ops/build.h"
#include "tensor/border.h"
#include "train/step.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/golden"

/* Of a tensor's norm; ours is f32, theirs is exact. */
static const double tolerance = 1e-4;
/* A gradient that is exactly zero in theirs (a bias under a batch norm) is noise in ours: held
 * against the norm of all gradients together. */
static const double noise = 1e-6;
/* A gradient below this part of all of them is what large ones leave when they cancel (a scale in
 * front of a batch norm): held against this part. */
static const double least = 1e-3;

struct golden {
    char name[128];
    struct wf_safetensors *file;
    struct wf_graph *g;
    struct wf_value *input, *target, *logits, *loss;
    struct wf_optim_options optim;
    int steps;        /* 0: one, of which the updated parameters are not in the file */
    double grad_norm; /* of all gradients */
};

struct parity_job {
    const struct golden *golden;
    struct wf_mesh mesh;
    const struct wf_device *device;
};

static float *read_tensor(const struct golden *gold, const char *prefix, const char *name,
                          int64_t count, struct wf_err *err)
{
    char full[256];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct wf_safetensor *t = wf_safetensors_find(gold->file, full);
    if (!t || t->count != count) {
        (void)wf_err_set(err, WF_ERR_INPUT, "%s has no '%s' of %lld elements", gold->name, full,
                         (long long)count);
        return NULL;
    }
    float *data = calloc((size_t)count, sizeof *data);
    int32_t *labels = calloc((size_t)count, sizeof *labels);
    bool ok = data && labels;
    if (ok && t->dtype == WF_I32) {
        ok = wf_safetensors_read(gold->file, t, WF_I32, labels, err);
        for (int64_t i = 0; i < count; i++)
            data[i] = (float)labels[i];
    } else if (ok) {
        ok = wf_safetensors_read(gold->file, t, WF_F32, data, err);
    }
    free(labels);
    if (ok)
        return data;
    free(data);
    return NULL;
}

/* Place in [N, C, *spatial]. */
static int64_t outside(const struct wf_shape *s, const int64_t at[WF_AXES])
{
    int64_t index = at[WF_N] * s->at[WF_C] + at[WF_C];
    for (int a = WF_D; a <= WF_W; a++)
        index = index * s->at[a] + at[a];
    return index;
}

static bool fill(const struct parity_job *job, struct wf_run *run, const struct wf_value *v,
                 const char *prefix, const char *name, struct wf_err *err)
{
    const struct wf_view view = wf_run_view(run, v);
    if (!view.data)
        return true;
    float *data = read_tensor(job->golden, prefix, name, wf_shape_count(v->shape), err);
    if (!data)
        return false;
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
        wf_view_set(&view, c.at, (double)data[outside(&v->shape, c.at)]);
    free(data);
    return true;
}

/* norm(ours - theirs) <= tolerance * norm(theirs), for the part that this rank owns. */
static bool compare(const struct parity_job *job, const struct wf_run *run,
                    const struct wf_value *v, const char *prefix, const char *name,
                    struct wf_err *err)
{
    const struct wf_view view = wf_run_owned(run, v);
    const int64_t count = wf_shape_count(v->shape);
    if (!view.data)
        return true;
    float *want = read_tensor(job->golden, prefix, name, count, err);
    if (!want)
        return false;
    double norm = 0, off = 0;
    for (int64_t i = 0; i < count; i++)
        norm += (double)want[i] * (double)want[i];
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        const double d = wf_view_at(&view, c.at) - (double)want[outside(&v->shape, c.at)];
        off += d * d;
    }
    free(want);
    const double floor = strcmp(prefix, "grad.") == 0 ? least * job->golden->grad_norm : 0;
    const double limit =
        norm > 0 ? tolerance * fmax(sqrt(norm), floor) : noise * job->golden->grad_norm;
    if (sqrt(off) <= limit)
        return true;
    return wf_err_set(err, WF_ERR_FAILED, "'%s%s' is off by %.3g where PyTorch has norm %.3g",
                      prefix, name, sqrt(off), sqrt(norm));
}

static bool compare_weights(const struct parity_job *job, const struct wf_run *run,
                            const char *params, const char *states, struct wf_err *err)
{
    const struct wf_graph *g = job->golden->g;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const char *prefix = v->kind == WF_PARAM ? params : v->kind == WF_STATE ? states : NULL;
        if (prefix && !compare(job, run, v, prefix, v->name, err))
            return false;
    }
    return true;
}

static bool compare_step(const struct parity_job *job, const struct wf_run *run, struct wf_err *err)
{
    const struct golden *gold = job->golden;
    bool ok = compare(job, run, gold->loss, "", "loss", err) &&
              compare(job, run, gold->logits, "", "pred", err);
    for (size_t i = 0; ok && i < gold->g->n_values; i++) {
        const struct wf_value *v = gold->g->values[i];
        if (v->kind == WF_PARAM && !v->frozen)
            ok = compare(job, run, v->grad, "grad.", v->name, err);
    }
    return ok && compare_weights(job, run, gold->steps > 0 ? "param." : NULL, "state.", err);
}

static bool fill_weights(const struct parity_job *job, struct wf_run *run, struct wf_err *err)
{
    const struct wf_graph *g = job->golden->g;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if ((v->kind == WF_PARAM || v->kind == WF_STATE) &&
            !fill(job, run, v, "weight.", v->name, err))
            return false;
    }
    return true;
}

static bool train(const struct parity_job *job, struct wf_run *run, struct wf_learner *learner,
                  struct wf_err *err)
{
    const struct golden *gold = job->golden;
    bool ok = fill_weights(job, run, err);
    for (int step = 0; ok && step < (gold->steps ? gold->steps : 1); step++) {
        ok = fill(job, run, gold->input, "", "input", err) &&
             fill(job, run, gold->target, "", "target", err) &&
             wf_learner_step(learner, run, NULL, err);
        if (ok && step == 0)
            ok = compare_step(job, run, err);
    }
    return ok && (gold->steps <= 1 || compare_weights(job, run, "last.", "last.", err));
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct parity_job *job = arg;
    const struct wf_plan_options options = { .device = job->device };
    struct wf_global_plan *global = wf_global_plan_new(job->golden->g, &job->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    struct wf_optim *optim = run ? wf_optim_new(&job->golden->optim, run, err) : NULL;
    const struct wf_learner_options learning = { .comm = comm, .optim = optim };
    struct wf_learner learner = { 0 };
    const bool ok =
        optim && wf_learner_init(&learner, &learning, run, err) && train(job, run, &learner, err);
    wf_learner_release(&learner);
    wf_optim_free(optim);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

/* --- a file's network --- */

static const char *metadata(const struct golden *gold, const char *key)
{
    const char *text = wf_safetensors_metadata(gold->file, key);
    if (!text)
        fail_msg("%s: no '%s' in its metadata", gold->name, key);
    return text;
}

static int64_t number(const struct golden *gold, const char *key)
{
    return strtoll(metadata(gold, key), NULL, 10);
}

static struct wf_value *build_loss(struct golden *gold)
{
    typedef struct wf_value *maker(struct wf_graph *, struct wf_value *, struct wf_value *,
                                   const struct wf_loss *);
    static const struct {
        const char *name;
        maker *make;
        bool by_class; /* the target is a class map */
    } makers[] = { { "ce", wf_cross_entropy, true },
                   { "dice", wf_dice, true },
                   { "bce", wf_binary_cross_entropy, false },
                   { "mse", wf_mse, false } };
    struct wf_value *sum = NULL;
    char names[64];
    (void)snprintf(names, sizeof names, "%s", metadata(gold, "loss"));
    for (char *rest = names, *name; (name = strtok_r(rest, "+", &rest));)
        for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
            if (strcmp(name, makers[i].name) != 0)
                continue;
            struct wf_shape shape = gold->logits->shape;
            shape.at[WF_C] = makers[i].by_class ? 1 : shape.at[WF_C];
            if (!gold->target)
                gold->target =
                    wf_input(gold->g, "target", makers[i].by_class ? WF_I32 : WF_F32, shape);
            struct wf_value *one = makers[i].make(gold->g, gold->logits, gold->target,
                                                  &(struct wf_loss){ .name = makers[i].name });
            sum = sum ? wf_add(gold->g, sum, one) : one;
        }
    return sum;
}

/* Files of networks on subdomains say how many, and how they talk. */
static const struct wf_subdomains *subdomains(const struct golden *gold, struct wf_subdomains *sub)
{
    const char *tiles = wf_safetensors_metadata(gold->file, "tiles");
    if (!tiles)
        return NULL;
    char *rest;
    sub->tiles[1] = strtoll(tiles, &rest, 10);
    sub->tiles[2] = strtoll(rest + 1, NULL, 10);
    sub->channels = number(gold, "comm");
    sub->layers = number(gold, "layers");
    sub->kernel = number(gold, "kernel");
    sub->dropout = 0.1;
    sub->frozen = true;
    return sub;
}

static void build(struct golden *gold)
{
    struct wf_err err = { 0 };
    struct wf_subdomains sub = { 0 };
    struct wf_model_config config = { .dims = (int)number(gold, "dims"),
                                      .classes = number(gold, "classes"),
                                      .base = number(gold, "base"),
                                      .depth = number(gold, "depth"),
                                      .own = subdomains(gold, &sub) };
    const struct wf_safetensor *image = wf_safetensors_find(gold->file, "input");
    const struct wf_model *model = wf_model_find(metadata(gold, "model"), &err);
    struct wf_shape shape = { 0 };
    int dims = 0;
    if (!image || !model || !wf_border_inside(image->rank, image->shape, &shape, &dims, &err))
        fail_msg("%s: %s", gold->name, err.text);
    config.in = shape.at[WF_C];
    assert_true(wf_model_resolve(model, &config, &err));
    gold->g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    gold->input = wf_input(gold->g, "image", WF_F32, shape);
    gold->logits = model->build(gold->g, &config, gold->input);
    gold->loss = gold->logits ? build_loss(gold) : NULL;
    bool ok = wf_graph_ok(gold->g, &err) && gold->loss;
    if (ok) {
        wf_graph_output(gold->g, gold->loss);
        wf_graph_output(gold->g, gold->logits);
        ok = wf_graph_grad(gold->g, gold->loss, NULL, 0, NULL, NULL, &err);
    }
    if (!ok)
        fail_msg("%s: %s", gold->name, err.text);
}

static double norm_of_gradients(const struct golden *gold)
{
    double sum = 0;
    for (size_t i = 0; i < gold->g->n_values; i++) {
        const struct wf_value *v = gold->g->values[i];
        struct wf_err err = { 0 };
        if (v->kind != WF_PARAM || v->frozen)
            continue;
        const int64_t count = wf_shape_count(v->shape);
        float *grad = read_tensor(gold, "grad.", v->name, count, &err);
        if (!grad)
            fail_msg("%s", err.text);
        for (int64_t k = 0; k < count; k++)
            sum += (double)grad[k] * (double)grad[k];
        free(grad);
    }
    return sqrt(sum);
}

static struct golden golden_open(const char *name)
{
    struct golden gold = { 0 };
    struct wf_err err = { 0 };
    char path[1024];
    (void)snprintf(gold.name, sizeof gold.name, "%s", name);
    (void)snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    gold.file = wf_safetensors_open(path, &err);
    if (!gold.file)
        fail_msg("%s", err.text);
    build(&gold);
    int rule = 0;
    while (wf_optim_names[rule] && strcmp(wf_optim_names[rule], metadata(&gold, "optimizer")) != 0)
        rule++;
    assert_non_null(wf_optim_names[rule]);
    gold.optim = wf_optim_defaults((enum wf_optim_rule)rule);
    gold.optim.lr = strtod(metadata(&gold, "lr"), NULL);
    gold.steps = (int)number(&gold, "steps");
    gold.grad_norm = norm_of_gradients(&gold);
    return gold;
}

static void golden_close(struct golden *gold)
{
    wf_graph_free(gold->g);
    wf_safetensors_free(gold->file);
}

/* --- tests --- */

static void check(const struct golden *gold, const char *mesh, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    struct parity_job job = { .golden = gold, .device = device };
    assert_true(wf_mesh_parse(mesh, &job.mesh, &err));
    if (!wf_comm_threads_run(wf_mesh_size(&job.mesh), body, &job, &err))
        fail_msg("%s on mesh '%s' (%s): %s", gold->name, mesh, device->name, err.text);
}

static void each_golden(void (*visit)(const struct golden *gold))
{
    int count = 0;
    DIR *dir = opendir(GOLDEN);
    assert_non_null(dir);
    for (const struct dirent *at; (at = readdir(dir));) {
        if (!strstr(at->d_name, ".safetensors"))
            continue;
        struct golden gold = golden_open(at->d_name);
        visit(&gold);
        golden_close(&gold);
        count++;
    }
    (void)closedir(dir);
    assert_true(count >= 11);
}

static void check_whole(const struct golden *gold)
{
    check(gold, "", &wf_device_cpu);
}

static void check_cut(const struct golden *gold)
{
    char meshes[256];
    (void)snprintf(meshes, sizeof meshes, "%s", metadata(gold, "meshes"));
    for (char *rest = meshes, *mesh; (mesh = strtok_r(rest, " ", &rest));)
        check(gold, mesh, &wf_device_cpu);
}

static void whole__step_has_the_numbers_of_pytorch(void **state)
{
    (void)state;
    each_golden(check_whole);
}

static void cut__step_has_the_numbers_of_pytorch(void **state)
{
    (void)state;
    each_golden(check_cut);
}

static void reference__kernels_have_the_numbers_of_pytorch(void **state)
{
    (void)state;
    struct golden gold = golden_open("cnn1d.safetensors");
    check(&gold, "", &wf_device_reference);
    check(&gold, "data=2,space=2", &wf_device_reference);
    golden_close(&gold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole__step_has_the_numbers_of_pytorch),
        cmocka_unit_test(cut__step_has_the_numbers_of_pytorch),
        cmocka_unit_test(reference__kernels_have_the_numbers_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
