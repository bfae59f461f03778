/* Prediction for a program: train/predictor.h on arrays and files, with the weights of a file or a trainer. */
#include <stdlib.h>
#include <string.h>

#include "api/session.h"
#include "api/trainer.h"
#include "base/memory.h"
#include "train/predictor.h"
#include "train/run_folder.h"

/* A copy of a trainer's weights. */
struct tensor {
    const char *name;
    float *data;
};

struct wf_predictor {
    struct wf_session *s;
    struct wf_own own;
    struct wf_arena arena;
    struct wf_options *options;
    struct wf_checkpoint *checkpoint; /* or: */
    struct wf_checkpoint_info info;
    struct tensor *tensors;
    int n_tensors;
    struct wf_file_predictor inner;
    int64_t window[3];
    wf_progress_fn *progress;
    void *user;
};

/* --- weights from memory --- */

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct wf_predictor *const p = user;
    const struct wf_graph *const g = wf_run_plan(run)->global->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if (v->kind != WF_PARAM && v->kind != WF_STATE)
            continue;
        int t = 0;
        while (t < p->n_tensors && strcmp(p->tensors[t].name, v->name) != 0)
            t++;
        if (t == p->n_tensors)
            return wf_err_set(err, WF_ERR_USAGE, "the trainer has no '%s'", v->name);
        wf_tensor_put(run, v, p->tensors[t].data);
    }
    return true;
}

static bool copy_weights(struct wf_predictor *p, struct wf_trainer *t, const struct wf_graph *g,
                         struct wf_err *err)
{
    const char *name;
    while (wf_trainer_tensor(t, p->n_tensors, NULL, NULL))
        p->n_tensors++;
    p->tensors = wf_arena_array(&p->arena, p->n_tensors + 1, struct tensor);
    for (int i = 0; (name = wf_trainer_tensor(t, i, NULL, NULL)); i++) {
        const size_t count = (size_t)wf_shape_count(wf_graph_find(g, name)->shape);
        p->tensors[i] = (struct tensor){ .name = wf_arena_copy(&p->arena, name),
                                         .data = wf_arena_array(&p->arena, count, float) };
        if (!wf_trainer_get(t, name, p->tensors[i].data, count, err))
            return false;
    }
    return true;
}

static double *copy_numbers(struct wf_predictor *p, const double *from, int count)
{
    double *const copy = wf_arena_array(&p->arena, count + 1, double);
    memcpy(copy, from, (size_t)count * sizeof *from);
    return copy;
}

/* --- its life --- */

/* Ranks are those of the session's mesh, which otherwise says nothing about windows. */
static bool settle(struct wf_predictor *p, const char *name, const char *config, struct wf_err *err)
{
    struct wf_settings *const settings = &p->inner.settings;
    if (!config)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has no config: it holds weights, but is no checkpoint of ours",
                          name);
    if (!wf_options_read_text(p->options, name, config, err))
        return false;
    wf_session_place(p->s, p->options);
    if (!wf_session_settings(p->s, &p->own, p->options, settings, err))
        return false;
    if (settings->mesh.is_given)
        settings->mesh.ranks = wf_mesh_size(&settings->mesh.mesh);
    settings->mesh.is_given = false;
    return wf_file_predictor_init(&p->inner, err);
}

struct opening {
    struct wf_predictor *p;
    const char *path;
};

/* Collective under a launcher. */
static bool open_checkpoint(void *arg, struct wf_err *err)
{
    const struct opening *const o = arg;
    struct wf_predictor *const p = o->p;
    const struct wf_launch *const launch = &p->s->launch;
    p->inner.launch = *launch;
    p->inner.checkpoint = p->checkpoint = wf_checkpoint_of(o->path, launch->log, err);
    bool ok = p->checkpoint && settle(p, o->path, wf_checkpoint_info(p->checkpoint)->config, err);
    ok = wf_launch_agree(launch, ok, err);
    return ok && wf_launch_same_file(launch, o->path, wf_checkpoint_digest(p->checkpoint), err);
}

static struct wf_predictor *predictor_of(struct wf_session *s, const struct wf_own *own)
{
    struct wf_predictor *const p = wf_take_zeroed(1, sizeof *p);
    p->s = s;
    p->own = *own;
    p->options = wf_options_new();
    return p;
}

struct wf_predictor *wf_predictor_new(struct wf_session *s, const char *checkpoint,
                                      struct wf_err *err)
{
    struct wf_predictor *const p = predictor_of(s, &s->own);
    if (wf_engine_call(s->engine, open_checkpoint, &(struct opening){ p, checkpoint }, err))
        return p;
    wf_predictor_free(p);
    return NULL;
}

struct wf_predictor *wf_predictor_of(struct wf_trainer *t, struct wf_err *err)
{
    struct wf_trainer_loan loan;
    if (!wf_trainer_lend(t, &loan, err))
        return NULL;
    struct wf_predictor *const p = predictor_of(loan.session, loan.own);
    p->info = loan.info;
    p->info.mean = copy_numbers(p, p->info.mean, p->info.channels);
    p->info.deviation = copy_numbers(p, p->info.deviation, p->info.channels);
    p->inner = (struct wf_file_predictor){
        .launch = p->s->launch, .info = &p->info, .weights = fill_weights, .user = p
    };
    if (copy_weights(p, t, loan.graph, err) && settle(p, "the trainer", p->info.config, err))
        return p;
    wf_predictor_free(p);
    return NULL;
}

void wf_predictor_free(struct wf_predictor *p)
{
    if (!p)
        return;
    wf_checkpoint_free(p->checkpoint);
    wf_options_free(p->options);
    wf_arena_release(&p->arena);
    free(p);
}

int wf_predictor_channels(const struct wf_predictor *p)
{
    return (int)p->inner.config.classes;
}

void wf_predictor_window(struct wf_predictor *p, const int64_t window[3])
{
    memcpy(p->window, window, sizeof p->window);
}

void wf_predictor_on_progress(struct wf_predictor *p, wf_progress_fn *fn, void *user)
{
    p->progress = fn;
    p->user = user;
}

/* --- predicting: on the engine's thread --- */

struct task {
    struct wf_predictor *p;
    const struct wf_predict_arrays *arrays;
    const struct wf_predict_files *files;
    struct wf_prediction one;
};

static void show_progress(void *user, const struct wf_prediction *, double part)
{
    const struct task *const t = user;
    if (t->p->progress)
        t->p->progress(part, t->p->user);
}

static int64_t pixels(const struct wf_value *v)
{
    return v->shape.at[WF_D] * v->shape.at[WF_H] * v->shape.at[WF_W];
}

/* One prediction per pixel? The library's networks say so; of the program's the extents tell, which a single
 * pixel does not: it is a map of one. */
static void find_per_pixel(struct task *t)
{
    struct wf_prediction *const one = &t->one;
    if (t->p->own.network)
        one->per_pixel = pixels(one->logits) > 1 || pixels(one->image) == 1;
}

static bool open_arrays(struct task *t, struct wf_err *err)
{
    const struct wf_predict_arrays *const a = t->arrays;
    struct wf_shape shape = WF_SHAPE(1, 1, 1, 1, t->p->inner.config.in);
    if (a->dims < 1 || a->dims > 3 || !a->image)
        return wf_err_set(err, WF_ERR_USAGE, "prediction: no image, or %d dimensions", a->dims);
    memcpy(&shape.at[WF_C - a->dims], a->extents, (size_t)a->dims * sizeof *a->extents);
    if (!wf_file_predictor_shape(&t->p->inner, shape, &t->one, err))
        return false;
    find_per_pixel(t);
    struct wf_shape map = t->one.logits->shape;
    map.at[WF_C] = shape.at[WF_C];
    t->one.pixels = a->image;
    t->one.labels = a->labels;
    t->one.probabilities = a->probabilities;
    return !t->one.per_pixel || wf_shape_equal(map, shape) ||
           wf_err_set(err, WF_ERR_USAGE, "the network's prediction is smaller than its image");
}

static bool open_file(struct task *t, struct wf_err *err)
{
    if (!wf_file_predictor_open(&t->p->inner, t->files->image, &t->one, err))
        return false;
    find_per_pixel(t);
    t->one.classes = t->files->labels;
    t->one.values = t->files->probabilities;
    t->one.overlay = t->files->overlay;
    return t->one.per_pixel ||
           wf_err_set(err, WF_ERR_USAGE,
                      "the network has one prediction for the image: use wf_predictor_array()");
}

/* One prediction for the image. */
static void take_class(const struct task *t, const struct wf_predicted *result)
{
    const struct wf_predict_arrays *const a = t->arrays;
    if (a->labels)
        a->labels[0] = result->label;
    if (a->probabilities)
        memcpy(a->probabilities, result->probabilities,
               (size_t)t->one.logits->shape.at[WF_C] * sizeof(float));
}

/* Collective under a launcher: rank 0's results for all. */
static bool share(const struct task *t, struct wf_comm *world, struct wf_err *err)
{
    const size_t all = (size_t)wf_shape_count(t->one.logits->shape);
    const size_t map = all / (size_t)t->one.logits->shape.at[WF_C];
    const struct wf_predict_arrays *const a = t->arrays;
    return (!a->labels || wf_comm_broadcast(world, 0, a->labels, map * sizeof *a->labels, err)) &&
           (!a->probabilities ||
            wf_comm_broadcast(world, 0, a->probabilities, all * sizeof *a->probabilities, err));
}

static bool predict(void *arg, struct wf_err *err)
{
    struct task *const t = arg;
    struct wf_predictor *const p = t->p;
    const struct wf_launch *const launch = &p->s->launch;
    struct wf_arena arena = { 0 };
    struct wf_predicted result;
    t->one = (struct wf_prediction){ .user = t, .progress = show_progress };
    memcpy(&t->one.window[WF_D], p->window, sizeof p->window);
    bool ok = t->arrays ? open_arrays(t, err) : open_file(t, err);
    ok = wf_launch_agree(launch, ok, err) &&
         wf_file_predictor_run(&p->inner, &t->one, &arena, &result, err);
    if (ok && t->arrays && !t->one.per_pixel && launch->is_root)
        take_class(t, &result);
    if (ok && t->arrays && launch->world)
        ok = share(t, launch->world, err);
    wf_graph_free(t->one.graph);
    wf_arena_release(&arena);
    return ok;
}

bool wf_predictor_array(struct wf_predictor *p, const struct wf_predict_arrays *arrays,
                        struct wf_err *err)
{
    return wf_engine_call(p->s->engine, predict, &(struct task){ .p = p, .arrays = arrays }, err);
}

bool wf_predictor_file(struct wf_predictor *p, const struct wf_predict_files *files,
                       struct wf_err *err)
{
    return wf_engine_call(p->s->engine, predict, &(struct task){ .p = p, .files = files }, err);
}
