#include "train/predictor.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "data/picture.h"
#include "ops/build.h"
#include "train/device.h"

static enum wf_predicts find_predicts(const struct wf_file_predictor *p)
{
    const unsigned losses = p->settings.train.losses;
    if (losses & WF_LOSS_MSE)
        return WF_PREDICTS_NUMBERS;
    return (losses & WF_LOSS_BCE) || p->config.classes == 1 ? WF_PREDICTS_BINARY
                                                            : WF_PREDICTS_CLASSES;
}

static bool find_ranks(struct wf_file_predictor *p, struct wf_err *err)
{
    const int ranks = p->settings.mesh.ranks;
    p->ranks = p->launch.world ? wf_comm_size(p->launch.world) : ranks ? ranks : 1;
    if (p->launch.world && ranks && ranks != p->ranks)
        return wf_err_set(err, WF_ERR_USAGE,
                          "the launcher started %d ranks, but %d were asked for: leave one out",
                          p->ranks, ranks);
    if (p->settings.mesh.is_given)
        return wf_err_set(err, WF_ERR_USAGE,
                          "predict cuts the image into windows by itself: use --ranks in place of "
                          "--mesh");
    p->threads =
        wf_settings_threads(&p->settings, wf_launch_cores(&p->launch),
                            p->launch.world ? wf_comm_local_size(p->launch.world) : p->ranks);
    return true;
}

bool wf_file_predictor_init(struct wf_file_predictor *p, struct wf_err *err)
{
    if (p->checkpoint)
        p->info = wf_checkpoint_info(p->checkpoint);
    if (!wf_settings_config(&p->settings, 0, NULL, &p->config, err))
        return false;
    p->predicts = find_predicts(p);
    if (p->info->channels && p->info->channels != p->config.in)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': the normalisation has %d channels, the network %" PRId64,
                          p->checkpoint ? wf_checkpoint_path(p->checkpoint) : "weights",
                          p->info->channels, p->config.in);
    p->device = wf_settings_device(&p->settings, err);
    return p->device && wf_settings_compute(&p->settings, p->device, &p->compute, err) &&
           find_ranks(p, err);
}

static struct wf_value *build_network(const struct wf_file_predictor *p, struct wf_graph *g,
                                      struct wf_value *image)
{
    struct wf_value *const x = p->compute == WF_F32 ? image : wf_cast(g, image, p->compute);
    struct wf_value *const logits = p->settings.model->build(g, &p->config, x);
    return logits && logits->dtype != WF_F32 ? wf_cast(g, logits, WF_F32) : logits;
}

/* Small windows go several at a time through a GPU. */
enum { BATCH_PIXELS = 1 << 21, BATCH_MOST = 16 };

/* Extents of a window of an image of that shape: as was asked for, else those of the crops in training. */
static bool find_window(const struct wf_file_predictor *p, struct wf_shape *shape,
                        const int64_t asked[WF_AXES], struct wf_err *err)
{
    const struct wf_extents *const crop = &p->settings.data.crop;
    int64_t extents[WF_AXES] = { 0 }, pixels = 1;
    bool known = false;
    for (int i = 0; i < crop->count; i++)
        extents[WF_C - crop->count + i] = crop->at[i];
    for (int a = WF_D; a < WF_C; a++)
        known |= asked[a] > 0;
    if (known)
        memcpy(extents, asked, sizeof extents);
    if (!known && crop->count == 0)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "the network was trained on whole images, so there is no size of windows to "
            "blend: give --window HxW, or leave out --blend");
    for (int a = WF_D; a < WF_C; a++) {
        shape->at[a] = extents[a] > 0 ? wf_min(extents[a], shape->at[a]) : shape->at[a];
        pixels *= shape->at[a];
    }
    shape->at[WF_N] =
        wf_device_is_host(p->device) ? 1 : wf_min(BATCH_MOST, wf_max(1, BATCH_PIXELS / pixels));
    return true;
}

/* The image and its logits only say how large they are. */
static bool build_blended(const struct wf_file_predictor *p, struct wf_graph *g,
                          struct wf_prediction *one, struct wf_err *err)
{
    struct wf_shape shape = one->image->shape;
    if (!wf_model_is_dense(p->settings.model, &p->config))
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' has one prediction for an image: leave out --blend",
                          p->settings.model->name);
    if (!find_window(p, &shape, one->window, err))
        return false;
    for (int a = WF_D; a < WF_C; a++)
        one->step[a] = wf_max(1, (int64_t)llround((double)shape.at[a] * (1 - one->overlap)));
    one->window_image = wf_input(g, "image", WF_F32, shape);
    one->window_logits = build_network(p, g, one->window_image);
    if (!wf_graph_ok(g, err))
        return false;
    shape = one->image->shape;
    shape.at[WF_C] = one->window_logits->shape.at[WF_C];
    one->logits = wf_input(g, "logits of all", WF_F32, shape);
    return wf_graph_ok(g, err);
}

static bool build_graph(const struct wf_file_predictor *p, struct wf_shape shape,
                        struct wf_prediction *one, struct wf_err *err)
{
    struct wf_graph *const g =
        wf_graph_new(&(struct wf_graph_options){ .training = false, .compute = p->compute });
    one->graph = g;
    one->image = wf_input(g, one->is_blended ? "image of all" : "image", WF_F32, shape);
    if (one->is_blended)
        return build_blended(p, g, one, err);
    one->logits = build_network(p, g, one->image);
    return wf_graph_ok(g, err);
}

static bool look_at(const struct wf_file_predictor *p, const char *path, struct wf_shape *shape,
                    struct wf_prediction *one, struct wf_err *err)
{
    struct wf_picture *const picture = wf_picture_open(path, p->config.in, err);
    if (!picture)
        return false;
    *shape = wf_picture_shape(picture);
    one->format = wf_picture_info(picture)->format;
    one->gzipped = wf_picture_info(picture)->gzipped;
    wf_picture_close(picture);
    one->path = path;
    return true;
}

bool wf_file_predictor_open(const struct wf_file_predictor *p, const char *path,
                            struct wf_prediction *one, struct wf_err *err)
{
    struct wf_shape shape;
    return look_at(p, path, &shape, one, err) &&
           (wf_file_predictor_shape(p, shape, one, err) || wf_err_wrap(err, "'%s'", path));
}

/* All but the graph. */
static void settle(const struct wf_file_predictor *p, struct wf_prediction *one)
{
    one->predicts = p->predicts;
    one->per_pixel = wf_model_is_dense(p->settings.model, &p->config);
    one->mean = p->info->channels ? p->info->mean : NULL;
    one->deviation = p->info->channels ? p->info->deviation : NULL;
    one->plan = (struct wf_plan_options){ .device = p->device, .threads = p->threads };
}

bool wf_file_predictor_shape(const struct wf_file_predictor *p, struct wf_shape shape,
                             struct wf_prediction *one, struct wf_err *err)
{
    settle(p, one);
    return build_graph(p, shape, one, err);
}

bool wf_file_predictor_weights(const struct wf_file_predictor *p, struct wf_run *run,
                               struct wf_err *err)
{
    if (!p->checkpoint)
        return p->weights(p->user, run, err);
    const bool ok = wf_checkpoint_load(p->checkpoint, run, NULL, err);
    if (!ok && err->code == WF_ERR_INPUT)
        err->code = WF_ERR_FAILED;
    return ok;
}

/* What the ranks share: of one image, or of many. */
struct call {
    const struct wf_file_predictor *p;
    const struct wf_prediction *one;
    struct wf_arena *arena;
    struct wf_predicted *result;
    const struct wf_file_predictions *files;
    pthread_mutex_t *lock; /* of files->open() and done() */
};

static bool load_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct call *const c = user;
    return wf_file_predictor_weights(c->p, run, err);
}

static void show_progress(void *user, const struct wf_prediction *one, double part)
{
    const struct call *const c = user;
    if (c->one->progress)
        c->one->progress(c->one->user, one, part);
}

/* Collective. The rank's thread and its device, as all of them are. */
static bool open_rank(const struct wf_file_predictor *p, struct wf_comm *comm,
                      struct wf_context **context, struct wf_err *err)
{
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(p->threads); /* of this thread's teams only */
#endif
    comm->stop = p->settings.comm.stop;
    return wf_settings_open(&p->settings, p->device, comm, context, err);
}

static bool rank_body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct call *const c = arg;
    struct wf_predicted other;
    const bool first = wf_comm_rank(comm) == 0 || c->p->launch.world;
    struct wf_arena arena = { 0 };
    struct wf_prediction one = *c->one;
    one.user = c;
    one.weights = load_weights;
    one.progress = show_progress;
    bool ok = open_rank(c->p, comm, &one.context, err);
    if (ok)
        one.memory =
            wf_window_memory(&c->p->settings, &c->p->launch, c->p->device, comm, one.context);
    ok = ok && wf_predict(first ? c->arena : &arena, &one, comm, first ? c->result : &other, err);
    wf_device_close(one.context);
    wf_arena_release(&arena);
    return ok;
}

bool wf_file_predictor_run(const struct wf_file_predictor *p, const struct wf_prediction *one,
                           struct wf_arena *arena, struct wf_predicted *result, struct wf_err *err)
{
    struct call c = { .p = p, .one = one, .arena = arena, .result = result };
    return p->launch.world ? rank_body(p->launch.world, &c, err)
                           : wf_comm_threads_run(p->ranks, rank_body, &c, err);
}

/* --- many files --- */

/* A rank on its way through the files. Images of the last shape share its graph; the one before it may still
 * be in use. */
struct rank {
    const struct call *call;
    struct wf_context *context;
    struct wf_window_memory memory;
    size_t at, done; /* files that were opened, that are done */
    struct wf_shape shape;
    struct wf_prediction last;
    struct wf_graph *before;
};

static bool load_rank_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct rank *const r = user;
    return load_weights((void *)(uintptr_t)r->call, run, err);
}

/* The next file may be open already. */
static void show_rank_progress(void *user, const struct wf_prediction *one, double part)
{
    const struct rank *const r = user;
    const struct wf_file_predictions *const files = r->call->files;
    size_t at = r->at - 1;
    while (at > 0 && files->paths[at] != one->path)
        at--;
    if (files->progress)
        files->progress(files->user, at, one, part);
}

static bool renew_graph(struct rank *r, struct wf_shape shape, struct wf_prediction *one,
                        struct wf_err *err)
{
    if (r->last.graph && wf_shape_equal(shape, r->shape)) {
        one->graph = r->last.graph;
        one->image = r->last.image;
        one->logits = r->last.logits;
        one->window_image = r->last.window_image;
        one->window_logits = r->last.window_logits;
        memcpy(one->step, r->last.step, sizeof one->step);
        return true;
    }
    wf_graph_free(r->before);
    r->before = r->last.graph;
    r->last.graph = NULL;
    r->shape = shape;
    const bool ok = build_graph(r->call->p, shape, one, err);
    r->last.graph = one->graph;
    return ok || wf_err_wrap(err, "'%s'", one->path);
}

static bool next_file(void *user, struct wf_prediction *one, bool *more, struct wf_err *err)
{
    struct rank *const r = user;
    const struct wf_file_predictions *const files = r->call->files;
    struct wf_shape shape;
    *more = r->at < files->count;
    if (!*more)
        return true;
    *one = files->each;
    settle(r->call->p, one);
    one->user = r;
    one->weights = load_rank_weights;
    one->progress = show_rank_progress;
    one->context = r->context;
    one->memory = r->memory;
    if (!look_at(r->call->p, files->paths[r->at], &shape, one, err) ||
        !renew_graph(r, shape, one, err))
        return false;
    (void)pthread_mutex_lock(r->call->lock);
    const bool ok = files->open(files->user, r->at, one, err);
    (void)pthread_mutex_unlock(r->call->lock);
    r->last = *one;
    r->at++;
    return ok;
}

static bool file_done(void *user, const struct wf_prediction *one,
                      const struct wf_predicted *result, struct wf_err *err)
{
    struct rank *const r = user;
    const struct wf_file_predictions *const files = r->call->files;
    (void)pthread_mutex_lock(r->call->lock);
    const bool ok = files->done(files->user, r->done++, one, result, err);
    (void)pthread_mutex_unlock(r->call->lock);
    return ok;
}

static bool files_body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct call *const c = arg;
    struct rank r = { .call = c };
    const struct wf_predictions all = { .user = &r, .next = next_file, .done = file_done };
    bool ok = open_rank(c->p, comm, &r.context, err);
    if (ok)
        r.memory = wf_window_memory(&c->p->settings, &c->p->launch, c->p->device, comm, r.context);
    ok = ok && wf_predict_all(&all, comm, err);
    wf_graph_free(r.last.graph);
    wf_graph_free(r.before);
    wf_device_close(r.context);
    return ok;
}

bool wf_file_predictor_all(const struct wf_file_predictor *p,
                           const struct wf_file_predictions *files, struct wf_err *err)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct call c = { .p = p, .files = files, .lock = &lock };
    return p->launch.world ? files_body(p->launch.world, &c, err)
                           : wf_comm_threads_run(p->ranks, files_body, &c, err);
}
