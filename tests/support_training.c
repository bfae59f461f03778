#include "support_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "device/device.h"
#include "files.h"
#include "image/raster.h"
#include "ops/build.h"
#include "support_scratch.h"

/* --- a little data: bright squares on noise --- */

enum { IMAGES = 7, HEIGHT = 22, WIDTH = 26, CROP = 16, BATCH = 2, CHANNELS = 2 };

static void write_picture(const char *path, int channels, const uint8_t *pixels)
{
    const struct wf_raster_info info = {
        .depth = 1, .height = HEIGHT, .width = WIDTH, .channels = channels, .sample = WF_SAMPLE_U8
    };
    struct wf_err err = { 0 };
    struct wf_raster_writer *const w = wf_raster_create(path, &info, &err);
    if (!w)
        fail_msg("%s", err.text);
    const struct wf_region all = { .hi = { 1, 1, HEIGHT, WIDTH, channels } };
    const bool ok = wf_raster_write_window(w, &all, pixels, &err);
    assert_true(wf_raster_writer_close(w, ok, &err));
}

int support_training_data(void **state)
{
    if (support_scratch_enter(state) != 0 || mkdir("set", 0777) != 0 ||
        mkdir("set/images", 0777) != 0 || mkdir("set/masks", 0777) != 0)
        return -1;
    static uint8_t image[HEIGHT * WIDTH * CHANNELS], mask[HEIGHT * WIDTH];
    for (int i = 0; i < IMAGES; i++) {
        const struct wf_random r = wf_random(3, (uint64_t)i);
        const int y0 = (int)wf_random_below(r, 0, HEIGHT - 8), x0 = (int)wf_random_below(r, 1, 18);
        for (int p = 0; p < HEIGHT * WIDTH; p++) {
            const int y = p / WIDTH, x = p % WIDTH;
            mask[p] = y >= y0 && y < y0 + 9 && x >= x0 && x < x0 + 8;
            for (int c = 0; c < CHANNELS; c++)
                image[p * CHANNELS + c] =
                    (uint8_t)(60 + 70 * mask[p] +
                              (int)wf_random_below(r, (uint64_t)p * CHANNELS + (uint64_t)c + 9,
                                                   80));
        }
        char path[64];
        (void)snprintf(path, sizeof path, "set/images/%d.tif", i);
        write_picture(path, CHANNELS, image);
        (void)snprintf(path, sizeof path, "set/masks/%d.tif", i);
        write_picture(path, 1, mask);
    }
    return 0;
}

/* --- a run of it --- */

static bool stepped(void *user, const struct wf_step_report *r, struct wf_err *err)
{
    struct support_training *const j = user;
    __atomic_store_n(&j->steps_seen, r->at->step, __ATOMIC_RELAXED); /* other ranks look at it */
    if (j->unsettled)
        return wf_err_set(err, WF_ERR_FAILED, "an update before the save was settled");
    if (r->batches < 1 || r->seconds <= 0 || r->pixels <= 0)
        return wf_err_set(err, WF_ERR_FAILED, "a report that makes no sense");
    return true;
}

static bool epoch_ended(void *user, const struct wf_epoch_report *r, struct wf_err *err)
{
    (void)err;
    struct support_training *const j = user;
    if (j->epochs_seen++ == 0)
        j->first_loss = r->train_loss;
    j->last_loss = r->train_loss;
    j->metric = r->metric;
    return true;
}

static bool settle(void *user, struct wf_err *err)
{
    (void)err;
    struct support_training *const j = user;
    j->unsettled = false;
    return true;
}

static bool save(void *user, const struct wf_position *at, bool is_best, struct wf_err *err)
{
    struct support_training *const j = user;
    j->saves++;
    j->unsettled = true;
    j->best_saves += is_best;
    j->held = is_best && j->holds_bests;
    const struct wf_checkpoint_info info = { .config = "", .at = *at };
    return !j->to || wf_checkpoint_save(j->to, &info, j->run, j->optim, err);
}

static bool saving(void *user, bool *busy, struct wf_err *err)
{
    (void)err;
    *busy = ((const struct support_training *)user)->held;
    return true;
}

static void hurry(void *user)
{
    struct support_training *const j = user;
    j->held = false;
    j->hurried_at = j->steps_seen;
    j->hurries++;
}

static bool stops(void *user)
{
    const struct support_training *const j = user;
    return j->stop_at > 0 && !j->stop_in_validation &&
           __atomic_load_n(&j->steps_seen, __ATOMIC_RELAXED) >= j->stop_at;
}

static bool stops_in_validation(void *user)
{
    const struct support_training *const j = user;
    return j->stop_in_validation && __atomic_load_n(&j->steps_seen, __ATOMIC_RELAXED) >= j->stop_at;
}

static struct wf_network build(const struct support_training *j, bool training, int64_t rows)
{
    struct wf_network n = { .has_classes = true, .has_ignore = !training, .ignore = INT32_MIN };
    if (j->ignores) {
        n.has_ignore = true;
        n.ignore = 1;
    }
    struct wf_graph *const g = n.graph =
        wf_graph_new(&(struct wf_graph_options){ .training = training, .compute = j->compute });
    n.image = wf_input(g, "image", WF_F32, WF_SHAPE(rows, 1, CROP, CROP, CHANNELS));
    n.images = wf_arena_one(&g->arena, struct wf_value *);
    n.images[0] = n.image;
    struct wf_value *x =
        wf_conv(g, j->compute == WF_F32 ? n.image : wf_cast(g, n.image, j->compute),
                &(struct wf_conv){ .name = "a", .out = 6, .kernel = { 1, 3, 3 }, .same = true });
    if (j->plain) {
        x = wf_activation(g, x, "act", WF_RELU, 0);
    } else {
        x = wf_batch_norm(g, x, &(struct wf_norm){ .name = "bn", .act = WF_RELU });
        x = wf_dropout(g, x, "drop", 0.2);
    }
    n.logits =
        wf_conv(g, x,
                &(struct wf_conv){
                    .name = "b", .out = 2, .kernel = { 1, 3, 3 }, .same = true, .bias = true });
    n.target = wf_input(g, "target", WF_I32, WF_SHAPE(rows, 1, CROP, CROP, 1));
    n.loss = wf_cross_entropy(
        g, n.logits, n.target,
        &(struct wf_loss){ .name = "loss", .has_ignore = n.has_ignore, .ignore = n.ignore });
    wf_graph_output(g, n.loss);
    wf_graph_output(g, n.logits);
    if (training && (j->rank_mean || j->loss_scale > 0 || j->accumulate > 1)) {
        n.start = wf_input(g, "start", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
        n.start->replicated = true;
    }
    return n;
}

struct rank {
    struct wf_network train, valid, rest;
    struct wf_global_plan *globals[3];
    struct wf_plan *plan, *rest_plan;
    struct wf_run *run, *rest_run;
    struct wf_optim *optim;
    struct wf_learner learner;
    struct wf_loader *loaders[2];
    struct wf_validator *validator;
    struct wf_position start;
};

/* The smaller batch of an epoch's end. */
static bool make_rest(struct rank *r, const struct support_training *j, struct wf_comm *comm,
                      const struct wf_mesh *mesh, struct wf_err *err)
{
    if (j->rest == 0)
        return true;
    const struct wf_plan_options options = {
        .device = &wf_device_cpu,
        .pipe = { .like = r->train.graph, .like_stages = &r->globals[0]->stages },
    };
    r->rest = build(j, true, j->rest);
    if (!wf_graph_grad(r->rest.graph, r->rest.loss, r->rest.start, 0, NULL, NULL, err))
        return false;
    r->globals[2] = wf_global_plan_new(r->rest.graph, mesh, &options, err);
    r->rest_plan = r->globals[2] ? wf_plan_new(r->globals[2], wf_comm_rank(comm), err) : NULL;
    r->rest_run =
        r->rest_plan ? wf_run_new_beside(r->run, r->rest_plan, j->accumulate > 1, err) : NULL;
    return r->rest_run != NULL;
}

static bool make_loaders(struct rank *r, const struct support_training *j, struct wf_err *err)
{
    static const struct wf_normal normal = { .channels = 2,
                                             .mean = { 110, 110 },
                                             .std = { 40, 40 } };
    struct wf_loader_options o = { .part = WF_PART_TRAIN,
                                   .validation = 0.3,
                                   .batch = j->batch,
                                   .crop = { 0, 1, CROP, CROP, 0 },
                                   .repeat = 2,
                                   .augment = WF_AUGMENT_FLIP | WF_AUGMENT_ROT90,
                                   .normal = &normal,
                                   .classes = 2,
                                   .seed = 5,
                                   .threads = 1 };
    r->loaders[0] = wf_loader_new(j->data, &o, err);
    o.part = WF_PART_VALID;
    o.batch = 3;
    o.augment = 0;
    o.repeat = 1;
    r->loaders[1] = wf_loader_new(j->data, &o, err);
    return r->loaders[0] && r->loaders[1];
}

static bool load(struct rank *r, const struct support_training *j, struct wf_err *err)
{
    r->start = wf_position_start();
    if (!j->from)
        return true;
    struct wf_checkpoint *const c = wf_checkpoint_open(j->from, err);
    const bool ok = c && wf_checkpoint_load(c, r->run, r->optim, err);
    if (ok)
        r->start = wf_checkpoint_info(c)->at;
    wf_checkpoint_free(c);
    return ok;
}

static bool rank_init(struct rank *r, struct wf_comm *comm, struct support_training *j,
                      struct wf_err *err)
{
    struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_mesh mesh;
    r->train = build(j, true, j->batch);
    r->valid = build(j, false, 3);
    if (!wf_mesh_parse(j->mesh, &mesh, err) || !wf_graph_ok(r->train.graph, err) ||
        !wf_graph_ok(r->valid.graph, err) ||
        !wf_graph_grad(r->train.graph, r->train.loss, r->train.start, 0, NULL, NULL, err))
        return false;
    options.pipe.micro_batches = (int)j->accumulate;
    r->globals[0] = wf_global_plan_new(r->train.graph, &mesh, &options, err);
    options.pipe = (struct wf_pipe_options){ .like = r->train.graph };
    options.pipe.like_stages = r->globals[0] ? &r->globals[0]->stages : NULL;
    if (!r->globals[0])
        return false;
    r->globals[1] = wf_global_plan_new(r->valid.graph, &mesh, &options, err);
    if (!r->globals[1])
        return false;
    r->plan = wf_plan_new(r->globals[0], wf_comm_rank(comm), err);
    r->run = r->plan ? wf_run_new(r->plan, comm, 5, err) : NULL;
    if (!r->run)
        return false;
    wf_run_init_weights(r->run, 5);
    struct wf_optim_options rule = wf_optim_defaults(j->rule == WF_SGD ? WF_ADAM : j->rule);
    rule.lr = j->lr;
    rule.accumulates = j->accumulate > 1;
    r->optim = wf_optim_new(&rule, r->run, err);
    struct wf_learner_options learner = { .comm = comm,
                                          .optim = r->optim,
                                          .clip = j->clip,
                                          .start = r->train.start,
                                          .scaler = wf_scaler_init(j->loss_scale > 0),
                                          .hook = j->hook,
                                          .user = comm };
    if (j->loss_scale > 0)
        learner.scaler.scale = j->loss_scale;
    if (!r->optim || !wf_learner_init(&r->learner, &learner, r->run, err) ||
        !make_rest(r, j, comm, &mesh, err) || !make_loaders(r, j, err) || !load(r, j, err))
        return false;
    r->validator = wf_validator_new(&(struct wf_validator_options){ .comm = comm,
                                                                    .network = &r->valid,
                                                                    .global = r->globals[1],
                                                                    .loader = r->loaders[1],
                                                                    .samples = IMAGES,
                                                                    .seed = 5,
                                                                    .stops = stops_in_validation,
                                                                    .user = j },
                                    err);
    return r->validator != NULL;
}

static void rank_release(struct rank *r)
{
    wf_validator_free(r->validator);
    for (int i = 0; i < 2; i++)
        wf_loader_free(r->loaders[i]);
    wf_learner_release(&r->learner);
    wf_optim_free(r->optim);
    wf_run_free(r->rest_run);
    wf_run_free(r->run);
    wf_plan_free(r->rest_plan);
    wf_plan_free(r->plan);
    for (int i = 0; i < 3; i++)
        wf_global_plan_free(r->globals[i]);
    wf_graph_free(r->rest.graph);
    wf_graph_free(r->train.graph);
    wf_graph_free(r->valid.graph);
}

static bool train_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    static const struct wf_trainer_hooks hooks = { .stepped = stepped,
                                                   .epoch_ended = epoch_ended,
                                                   .save = save,
                                                   .settle = settle,
                                                   .saving = saving,
                                                   .hurry = hurry,
                                                   .stops = stops };
    struct support_training *const j = arg;
    const bool first = wf_comm_rank(comm) == 0;
    struct rank r = { 0 };
    struct wf_trainer_result result = { 0 };
    bool ok = wf_comm_agree(comm, rank_init(&r, comm, j, err), err);
    if (ok && first) {
        j->run = r.run;
        j->optim = r.optim;
    }
    /* Only rank 0 hears of the signal: the others must learn of it. */
    struct wf_trainer_hooks mine = hooks;
    if (!first)
        mine.stops = NULL;
    if (ok) {
        const struct wf_trainer_options options = { .comm = comm,
                                                    .full = { &r.train, r.run },
                                                    .rest = { &r.rest, r.rest_run },
                                                    .learner = &r.learner,
                                                    .schedule = j->schedule,
                                                    .accumulate = j->accumulate,
                                                    .rank_mean = j->rank_mean,
                                                    .skip_limit = j->skip_limit,
                                                    .loader = r.loaders[0],
                                                    .validator =
                                                        j->no_validation ? NULL : r.validator,
                                                    .start = r.start,
                                                    .epochs = j->epochs,
                                                    .validate_every = 1,
                                                    .early_stop = j->early_stop,
                                                    .checkpoint_steps = j->checkpoint_steps,
                                                    .checkpoint_seconds = j->checkpoint_seconds,
                                                    .hooks = &mine,
                                                    .user = j };
        ok = wf_trainer_run(&options, &result, err) && wf_trainer_check(&options, &result, err);
    }
    if (first)
        j->result = result;
    rank_release(&r);
    return ok;
}

void support_train(struct support_training *j)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    j->steps_seen = j->saves = j->epochs_seen = j->best_saves = 0;
    j->lr = j->lr > 0 ? j->lr : 0.02;
    j->batch = j->batch > 0 ? j->batch : BATCH;
    j->data = wf_dataset_open("set", &(struct wf_dataset_options){ 0 }, &err);
    assert_non_null(j->data);
    const bool ok = wf_mesh_parse(j->mesh, &mesh, &err) &&
                    wf_comm_threads_run(wf_mesh_size(&mesh), train_rank, j, &err);
    if (j->expects ? ok || !strstr(err.text, j->expects) : !ok)
        fail_msg("mesh %s: %s", j->mesh, ok ? "no failure" : err.text);
    wf_dataset_free(j->data);
}

double support_apart(const char *a, const char *b)
{
    struct wf_err err = { 0 };
    struct wf_safetensors *const x = wf_safetensors_open(a, &err);
    struct wf_safetensors *const y = wf_safetensors_open(b, &err);
    if (!x || !y)
        fail_msg("%s", err.text);
    assert_int_equal(wf_safetensors_count(x), wf_safetensors_count(y));
    double worst = 0;
    for (int64_t i = 0; i < wf_safetensors_count(x); i++) {
        const struct wf_safetensor *const s = wf_safetensors_at(x, i);
        const struct wf_safetensor *const t = wf_safetensors_find(y, s->name);
        assert_true(t && t->count == s->count && s->count < 1000);
        float u[1000], v[1000];
        assert_true(wf_safetensors_read(x, s, WF_F32, u, &err) &&
                    wf_safetensors_read(y, t, WF_F32, v, &err));
        double far = 0, norm = 0;
        for (int64_t k = 0; k < s->count; k++) {
            far += pow((double)u[k] - (double)v[k], 2);
            norm += pow((double)v[k], 2);
        }
        worst = fmax(worst, far > 0 ? sqrt(far / norm) : 0);
    }
    wf_safetensors_free(x);
    wf_safetensors_free(y);
    return worst;
}
