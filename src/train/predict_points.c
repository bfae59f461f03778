#include "train/predict_points.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/clock.h"
#include "base/memory.h"
#include "base/units.h"
#include "data/clouds.h"
#include "image/npz.h"
#include "ops/build.h"
#include "train/color.h"
#include "train/device.h"
#include "train/metrics.h"
#include "train/points_feed.h"

enum { PERCENT_MORE = 10 };

struct call {
    const struct wf_file_predictor *p;
    const struct wf_cloud_predictions *all;
    pthread_mutex_t *lock; /* of all->open() */
};

/* A rank, and the plan of the largest cloud so far. */
struct rank {
    const struct call *call;
    struct wf_comm *comm, *self; /* self: of this rank alone */
    struct wf_context *context;
    int64_t capacities[WF_SETS + 1];
    struct wf_network net;
    struct wf_points_rank points;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_points_hosts hosts;
    struct wf_host logits;
};

/* --- the network --- */

static bool build(struct rank *r, struct wf_err *err)
{
    const struct wf_file_predictor *const p = r->call->p;
    struct wf_graph *const g =
        wf_graph_new(&(struct wf_graph_options){ .training = false, .compute = p->compute });
    r->net = (struct wf_network){ .graph = g };
    g->capacities = r->capacities;
    g->n_capacities = WF_SETS + 1;
    g->samples = 1;
    const struct wf_shape rows = WF_SHAPE(wf_max(r->capacities[1], 1), 1, 1, 1, p->config.in);
    r->net.image = wf_model_input(g, p->settings.model, &p->config, "image", rows);
    struct wf_value *const x =
        p->compute == WF_F32 ? r->net.image : wf_cast(g, r->net.image, p->compute);
    r->net.logits = p->settings.model->build(g, &p->config, x);
    if (r->net.logits && r->net.logits->dtype != WF_F32)
        r->net.logits = wf_cast(g, r->net.logits, WF_F32);
    if (!wf_graph_ok(g, err))
        return false;
    wf_graph_output(g, r->net.logits);
    const struct wf_mesh one = wf_mesh_one();
    r->points = wf_points_rank(&r->net, &one, 0);
    return true;
}

static void forget(struct rank *r)
{
    wf_run_free(r->run);
    wf_plan_free(r->plan);
    wf_global_plan_free(r->global);
    wf_graph_free(r->net.graph);
    r->run = NULL;
    r->plan = NULL;
    r->global = NULL;
    r->net.graph = NULL;
}

static bool check_limit(const struct rank *r, const char *path, struct wf_err *err)
{
    const size_t limit = r->call->p->settings.limit;
    struct wf_arena arena = { 0 };
    if (!limit || r->global->bytes <= limit)
        return true;
    (void)wf_err_set(err, WF_ERR_FIT,
                     "'%s': %" PRId64
                     " voxels take %s, and memory.limit is %s: raise it to %zu, or "
                     "cut the cloud",
                     path, r->capacities[1], wf_text_bytes(&arena, (double)r->global->bytes),
                     wf_text_bytes(&arena, (double)limit), r->global->bytes);
    wf_arena_release(&arena);
    return false;
}

/* A run for clouds with as many places as `b` at each level, and some more. */
static bool make_run(struct rank *r, const struct wf_cloud_batch *b, const char *path,
                     struct wf_err *err)
{
    const struct wf_file_predictor *const p = r->call->p;
    if (r->run && wf_points_fit(&r->points, b))
        return true;
    for (int s = 1; s <= WF_SETS; s++)
        r->capacities[s] =
            wf_max(r->capacities[s], b->places[s] + b->places[s] * PERCENT_MORE / 100);
    forget(r);
    if (!build(r, err))
        return false;
    const struct wf_mesh one = wf_mesh_one();
    const struct wf_plan_options options = { .device = p->device,
                                             .threads = p->threads,
                                             .limit = p->settings.limit };
    r->global = wf_global_plan_new(r->net.graph, &one, &options, err);
    if (!r->global || !check_limit(r, path, err))
        return false;
    r->plan = wf_plan_new_on(r->global, 0, r->context, err);
    r->run = r->plan ? wf_run_new(r->plan, r->self, p->settings.train.seed, err) : NULL;
    return r->run && wf_file_predictor_weights(p, r->run, err);
}

/* --- a cloud --- */

static bool read_cloud(const struct rank *r, const char *path, struct wf_cloud_sample *s,
                       struct wf_err *err)
{
    const struct wf_file_predictor *const p = r->call->p;
    const struct wf_data_settings *const d = &p->settings.data;
    const struct wf_cloud_options o = { .points = d->points, .seed = 1 };
    struct wf_cloud c;
    if (!wf_cloud_read(path, &o, &c, err))
        return false;
    const unsigned features = d->features ? d->features : wf_cloud_features(&c);
    const int channels = wf_features_count(features);
    if (channels != p->config.in) {
        wf_cloud_release(&c);
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has %d features, and the network takes %" PRId64
                          ": set data.features as it was for training",
                          path, channels, p->config.in);
    }
    float scale[WF_DATA_CHANNELS], offset[WF_DATA_CHANNELS];
    for (int k = 0; k < channels; k++) {
        const double std = p->info->channels ? p->info->deviation[k] : 1;
        scale[k] = (float)(1 / std);
        offset[k] = p->info->channels ? (float)(-p->info->mean[k] / std) : 0;
    }
    const struct wf_cloud_rule rule = {
        .voxel = d->voxel, .scale = scale, .offset = offset, .ignore = WF_LABEL_VOID
    };
    free(c.labels); /* nobody asks for them */
    c.labels = NULL;
    return wf_cloud_sample_make(&c, path, features, &rule, s, err);
}

/* As the loader would hand it out: the arrays are the caller's. */
static void batch_of(const struct wf_cloud_sample *s, int64_t channels, struct wf_cloud_batch *b)
{
    *b = (struct wf_cloud_batch){
        .n = s->voxels.n, .channels = channels, .rows = 1, .features = s->voxels.features
    };
    b->coords = wf_take((size_t)(4 * b->n + 1) * sizeof *b->coords);
    b->order = wf_take((size_t)(b->n + 1) * sizeof *b->order);
    for (int64_t i = 0; i < b->n; i++) {
        b->coords[4 * i] = 0;
        memcpy(b->coords + 4 * i + 1, s->voxels.coords + 3 * i, 3 * sizeof *b->coords);
    }
}

/* Probabilities of one row of logits. */
static void soften(const struct wf_file_predictor *p, const struct wf_view *logits, int64_t row,
                   int64_t channels, float to[])
{
    double most = -(double)INFINITY, sum = 0;
    const bool binary = p->predicts == WF_PREDICTS_BINARY;
    for (int64_t c = 0; c < channels; c++)
        most = fmax(most, wf_view_get(logits, row, 0, 0, 0, c));
    for (int64_t c = 0; c < channels; c++) {
        const double v = wf_view_get(logits, row, 0, 0, 0, c);
        to[c] = (float)(binary ? 1 / (1 + exp(-v)) : exp(v - most));
        sum += (double)to[c];
    }
    for (int64_t c = 0; !binary && c < channels; c++)
        to[c] = (float)((double)to[c] / sum);
}

static bool write_classes(const struct wf_cloud_sample *s, const int32_t said[], const char *path,
                          struct wf_err *err)
{
    uint8_t *const colors = wf_take((size_t)s->n * 3 + 1);
    int32_t *const labels = wf_take((size_t)(s->n + 1) * sizeof *labels);
    for (int64_t i = 0; i < s->n; i++) {
        labels[i] = said[s->voxels.voxel[i]];
        wf_class_color(labels[i] + 1, colors + 3 * i); /* black is hard to see */
    }
    const struct wf_cloud_ply ply = { .n = s->n, .at = s->at, .colors = colors, .labels = labels };
    const bool ok = wf_cloud_write_ply(path, &ply, err);
    free(colors);
    free(labels);
    return ok;
}

/* Row by row of the points, from those of the voxels. */
static bool write_values(const struct wf_cloud_sample *s, const int32_t said[],
                         const float values[], int64_t channels, const char *path,
                         struct wf_err *err)
{
    float *const all = wf_take((size_t)(s->n * channels + 1) * sizeof *all);
    int32_t *const labels = wf_take((size_t)(s->n + 1) * sizeof *labels);
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t v = s->voxels.voxel[i];
        labels[i] = said[v];
        memcpy(all + i * channels, values + v * channels, (size_t)channels * sizeof *all);
    }
    const struct wf_npz_data arrays[] = {
        { "points", WF_F64, 2, { s->n, 3 }, s->at },
        { "labels", WF_I32, 1, { s->n }, labels },
        { "probabilities", WF_F32, 2, { s->n, channels }, all },
    };
    struct wf_npz_writer w;
    bool ok = wf_npz_begin(&w, path, err);
    for (int i = 0; ok && i < 3; i++)
        ok = wf_npz_put(&w, &arrays[i], err);
    ok = wf_npz_end(&w, ok, err) && ok;
    free(all);
    free(labels);
    return ok;
}

/* What the logits say, in files or in `one`. */
static bool take_result(struct rank *r, const struct wf_cloud_sample *s,
                        const struct wf_cloud_batch *b, struct wf_cloud_prediction *one,
                        float verdict[], struct wf_err *err)
{
    const struct wf_file_predictor *const p = r->call->p;
    const struct wf_view *const logits = &r->logits.view;
    const int64_t channels = r->net.logits->shape.at[WF_C];
    if (!r->net.logits->set) {
        const int64_t at[WF_AXES] = { 0 };
        one->label = wf_metrics_said(logits, at);
        soften(p, logits, 0, channels, verdict);
        return true;
    }
    int32_t *const said = wf_take((size_t)(b->n + 1) * sizeof *said);
    float *const values =
        one->values ? wf_take((size_t)(b->n * channels + 1) * sizeof *values) : NULL;
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t at[WF_AXES] = { i };
        said[b->order[i]] = wf_metrics_said(logits, at);
        if (values)
            soften(p, logits, i, channels, values + b->order[i] * channels);
    }
    const bool ok = (!one->classes || write_classes(s, said, one->classes, err)) &&
                    (!one->values || write_values(s, said, values, channels, one->values, err));
    free(said);
    free(values);
    return ok;
}

static bool predict_one(struct rank *r, struct wf_cloud_prediction *one, float verdict[],
                        struct wf_err *err)
{
    const double start = wf_now();
    struct wf_cloud_sample s = { 0 };
    struct wf_cloud_batch b;
    if (!read_cloud(r, one->path, &s, err))
        return false;
    batch_of(&s, r->call->p->config.in, &b);
    bool ok = (r->net.graph || build(r, err)) && wf_points_arrange(&r->points, &b, err) &&
              make_run(r, &b, one->path, err);
    if (ok) {
        wf_points_put(&r->points, r->run, &r->net, &b, &r->hosts);
        ok = wf_run_step(r->run, err) && wf_run_get_owned(r->run, r->net.logits, &r->logits, err) &&
             take_result(r, &s, &b, one, verdict, err);
        one->bytes = wf_run_bytes(r->run);
    }
    one->points = s.n;
    one->voxels = b.n;
    one->seconds = wf_now() - start;
    free(b.coords);
    free(b.order);
    wf_cloud_sample_release(&s);
    return ok || wf_err_wrap(err, "'%s'", one->path);
}

/* --- all of them --- */

enum { POINTS, VOXELS, BYTES, SECONDS, LABEL, FAILED, FACTS };

/* Of those before the first that failed. */
static bool tell(struct rank *r, size_t first, const double *facts, struct wf_err *err)
{
    const struct wf_cloud_predictions *const all = r->call->all;
    const size_t ranks = (size_t)wf_comm_size(r->comm);
    const size_t channels = (size_t)r->call->p->config.classes, each = FACTS + channels;
    float *const verdict = wf_take_zeroed(channels + 1, sizeof *verdict);
    bool ok = true;
    for (size_t i = 0; ok && i < ranks && first + i < all->count; i++) {
        const double *const f = facts + i * each;
        if (f[FAILED] != 0)
            break;
        struct wf_cloud_prediction one = { .path = all->paths[first + i] };
        for (size_t c = 0; c < channels; c++)
            verdict[c] = (float)f[FACTS + c];
        (void)pthread_mutex_lock(r->call->lock);
        ok = all->open(all->user, first + i, &one, err);
        one.points = (int64_t)f[POINTS];
        one.voxels = (int64_t)f[VOXELS];
        one.bytes = (size_t)f[BYTES];
        one.seconds = f[SECONDS];
        one.label = (int)f[LABEL];
        one.probabilities = verdict;
        ok = ok && all->done(all->user, first + i, &one, err);
        (void)pthread_mutex_unlock(r->call->lock);
    }
    free(verdict);
    return ok;
}

/* Collective. Each rank's cloud of this round; rank 0 hears of all, and tells of them. */
static bool run_round(struct rank *r, size_t first, double *facts, struct wf_err *err)
{
    const struct wf_cloud_predictions *const all = r->call->all;
    const size_t ranks = (size_t)wf_comm_size(r->comm), me = (size_t)wf_comm_rank(r->comm);
    const int64_t channels = r->call->p->config.classes;
    const size_t each = FACTS + (size_t)channels;
    float *const verdict = wf_take_zeroed((size_t)channels + 1, sizeof *verdict);
    memset(facts, 0, ranks * each * sizeof *facts);
    bool ok = true;
    if (first + me < all->count) {
        struct wf_cloud_prediction one = { .path = all->paths[first + me] };
        (void)pthread_mutex_lock(r->call->lock);
        ok = all->open(all->user, first + me, &one, err);
        (void)pthread_mutex_unlock(r->call->lock);
        ok = ok && predict_one(r, &one, verdict, err);
        double *const mine = facts + me * each;
        mine[POINTS] = (double)one.points;
        mine[VOXELS] = (double)one.voxels;
        mine[BYTES] = (double)one.bytes;
        mine[SECONDS] = one.seconds;
        mine[LABEL] = one.label;
        mine[FAILED] = !ok;
        for (int64_t c = 0; c < channels; c++)
            mine[FACTS + c] = (double)verdict[c];
    }
    free(verdict);
    struct wf_err lost = { 0 };
    if (!wf_comm_sum(r->comm, facts, ranks * each, WF_F64, ok ? err : &lost))
        return false;
    ok = (me != 0 || tell(r, first, facts, ok ? err : &lost)) && ok;
    return wf_comm_agree(r->comm, ok, err);
}

static bool rank_body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct call *const call = arg;
    const struct wf_file_predictor *const p = call->p;
    const size_t ranks = (size_t)wf_comm_size(comm);
    struct rank r = { .call = call, .comm = comm };
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(p->threads); /* of this thread's teams only */
#endif
    double *const facts = wf_take(ranks * (FACTS + (size_t)p->config.classes) * sizeof *facts);
    bool ok = wf_comm_split(comm, wf_comm_rank(comm), &r.self, err) &&
              wf_settings_open(&p->settings, p->device, comm, &r.context, err);
    for (size_t first = 0; ok && first < call->all->count; first += ranks)
        ok = run_round(&r, first, facts, err);
    forget(&r);
    wf_points_hosts_release(&r.hosts);
    wf_host_release(&r.logits);
    wf_device_close(r.context);
    wf_comm_free(r.self);
    free(facts);
    return ok;
}

bool wf_predict_clouds(const struct wf_file_predictor *p, const struct wf_cloud_predictions *all,
                       struct wf_err *err)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct call c = { .p = p, .all = all, .lock = &lock };
    if (!(p->settings.data.voxel > 0))
        return wf_err_set(err, WF_ERR_USAGE, "give data.voxel, the edge of a voxel");
    return p->launch.world ? rank_body(p->launch.world, &c, err)
                           : wf_comm_threads_run(p->ranks, rank_body, &c, err);
}
