#include "train/predictor.h"

#include <inttypes.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "data/picture.h"
#include "ops/build.h"
#include "train/device.h"

enum { DEFAULT_LIMIT = 1 << 30 };

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
    p->threads = wf_settings_threads(&p->settings, p->ranks);
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

static bool build_graph(const struct wf_file_predictor *p, struct wf_shape shape,
                        struct wf_prediction *one, struct wf_err *err)
{
    struct wf_graph *const g =
        wf_graph_new(&(struct wf_graph_options){ .training = false, .compute = p->compute });
    one->graph = g;
    one->image = wf_input(g, "image", WF_F32, shape);
    struct wf_value *const x =
        p->compute == WF_F32 ? one->image : wf_cast(g, one->image, p->compute);
    one->logits = p->settings.model->build(g, &p->config, x);
    if (one->logits && one->logits->dtype != WF_F32)
        one->logits = wf_cast(g, one->logits, WF_F32);
    return wf_graph_ok(g, err);
}

bool wf_file_predictor_open(const struct wf_file_predictor *p, const char *path,
                            struct wf_prediction *one, struct wf_err *err)
{
    struct wf_picture *const picture = wf_picture_open(path, p->config.in, err);
    if (!picture)
        return false;
    const struct wf_shape shape = wf_picture_shape(picture);
    one->format = wf_picture_info(picture)->format;
    one->gzipped = wf_picture_info(picture)->gzipped;
    wf_picture_close(picture);
    one->path = path;
    return wf_file_predictor_shape(p, shape, one, err) || wf_err_wrap(err, "'%s'", path);
}

bool wf_file_predictor_shape(const struct wf_file_predictor *p, struct wf_shape shape,
                             struct wf_prediction *one, struct wf_err *err)
{
    const size_t limit = p->settings.limit ? p->settings.limit : DEFAULT_LIMIT;
    one->predicts = p->predicts;
    one->per_pixel = wf_model_is_dense(p->settings.model, &p->config);
    one->mean = p->info->channels ? p->info->mean : NULL;
    one->deviation = p->info->channels ? p->info->deviation : NULL;
    one->plan = (struct wf_plan_options){ .device = p->device, .threads = p->threads };
    one->limit = limit / (size_t)(p->launch.world ? 1 : p->ranks);
    return build_graph(p, shape, one, err);
}

/* What the ranks of one image share. */
struct call {
    const struct wf_file_predictor *p;
    const struct wf_prediction *one;
    struct wf_arena *arena;
    struct wf_predicted *result;
};

static bool load_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct call *const c = user;
    return c->p->checkpoint ? wf_checkpoint_load(c->p->checkpoint, run, NULL, err)
                            : c->p->weights(c->p->user, run, err);
}

static void show_progress(void *user, double part)
{
    const struct call *const c = user;
    if (c->one->progress)
        c->one->progress(c->one->user, part);
}

static bool rank_body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct call *const c = arg;
    struct wf_predicted other;
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(c->p->threads); /* of this thread's teams only */
#endif
    const bool first = wf_comm_rank(comm) == 0 || c->p->launch.world;
    struct wf_arena arena = { 0 };
    struct wf_prediction one = *c->one;
    one.user = c;
    one.weights = load_weights;
    one.progress = show_progress;
    bool ok = wf_settings_open(&c->p->settings, c->p->device, comm, &one.context, err);
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
