/*
 * The loop: it learns, and a run that was stopped and goes on makes the numbers of one that was not.
 * The network has batch norm (states), dropout (its mask depends on the step) and Adam (two states and
 * a count); the data is drawn and turned at random.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
#include "train/trainer.h"

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

static int make_data(void **state)
{
    if (mkdir("set", 0777) != 0 || mkdir("set/images", 0777) != 0 || mkdir("set/masks", 0777) != 0)
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

struct job {
    const char *mesh;
    const char *from, *to; /* checkpoints: where to go on, where to save; or NULL */
    int64_t epochs, early_stop, checkpoint_steps;
    int64_t stop_at; /* step at which a signal seems to come; 0: none */
    bool no_validation, stop_in_validation;
    double lr;
    int64_t batch, rest; /* 0: BATCH; samples of the last batch where that is smaller */
    int64_t accumulate, skip_limit;
    bool rank_mean, plain; /* without norm and dropout, which see batches */
    enum wf_dtype compute;
    double loss_scale; /* f16 */
    const struct wf_schedule *schedule;
    wf_learner_hook *hook;
    /* by rank 0 */
    struct wf_dataset *data;
    struct wf_run *run;
    struct wf_optim *optim;
    int64_t steps_seen, saves, epochs_seen, best_saves;
    double first_loss, last_loss, metric;
    struct wf_trainer_result result;
};

static bool stepped(void *user, const struct wf_step_report *r, struct wf_err *err)
{
    struct job *const j = user;
    __atomic_store_n(&j->steps_seen, r->at->step, __ATOMIC_RELAXED); /* other ranks look at it */
    if (r->batches < 1 || r->seconds <= 0 || r->pixels <= 0)
        return wf_err_set(err, WF_ERR_FAILED, "a report that makes no sense");
    return true;
}

static bool epoch_ended(void *user, const struct wf_epoch_report *r, struct wf_err *err)
{
    (void)err;
    struct job *const j = user;
    if (j->epochs_seen++ == 0)
        j->first_loss = r->train_loss;
    j->last_loss = r->train_loss;
    j->metric = r->metric;
    return true;
}

static bool save(void *user, const struct wf_position *at, bool is_best, struct wf_err *err)
{
    struct job *const j = user;
    j->saves++;
    j->best_saves += is_best;
    const struct wf_checkpoint_info info = { .config = "", .at = *at };
    return !j->to || wf_checkpoint_save(j->to, &info, j->run, j->optim, err);
}

static bool stops(void *user)
{
    const struct job *const j = user;
    return j->stop_at > 0 && !j->stop_in_validation &&
           __atomic_load_n(&j->steps_seen, __ATOMIC_RELAXED) >= j->stop_at;
}

static bool stops_in_validation(void *user)
{
    const struct job *const j = user;
    return j->stop_in_validation && __atomic_load_n(&j->steps_seen, __ATOMIC_RELAXED) >= j->stop_at;
}

static struct wf_network build(const struct job *j, bool training, int64_t rows)
{
    struct wf_network n = { .has_classes = true, .has_ignore = !training, .ignore = INT32_MIN };
    struct wf_graph *const g = n.graph =
        wf_graph_new(&(struct wf_graph_options){ .training = training, .compute = j->compute });
    n.image = wf_input(g, "image", WF_F32, WF_SHAPE(rows, 1, CROP, CROP, CHANNELS));
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
    if (training && (j->rank_mean || j->loss_scale > 0)) {
        n.start = wf_input(g, "start", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
        n.start->everywhere = true;
    }
    if (training && j->accumulate > 1) {
        n.counts = wf_graph_find(g, "loss.sums");
        wf_graph_output(g, n.counts);
    }
    return n;
}

struct rank {
    struct wf_network train, valid, rest;
    struct wf_scheme *schemes[3];
    struct wf_plan *plan, *rest_plan;
    struct wf_run *run, *rest_run;
    struct wf_optim *optim;
    struct wf_learner learner;
    struct wf_loader *loaders[2];
    struct wf_validator *validator;
    struct wf_position start;
};

/* The smaller batch of an epoch's end. */
static bool make_rest(struct rank *r, const struct job *j, struct wf_comm *comm,
                      const struct wf_mesh *mesh, struct wf_err *err)
{
    if (j->rest == 0)
        return true;
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    r->rest = build(j, true, j->rest);
    if (!wf_graph_grad(r->rest.graph, r->rest.loss, r->rest.start, 0, NULL, NULL, err))
        return false;
    r->schemes[2] = wf_scheme_new(r->rest.graph, mesh, &options, err);
    r->rest_plan = r->schemes[2] ? wf_plan_new(r->schemes[2], wf_comm_rank(comm), err) : NULL;
    r->rest_run = r->rest_plan ? wf_run_new_beside(r->run, r->rest_plan, err) : NULL;
    return r->rest_run != NULL;
}

static bool make_loaders(struct rank *r, const struct job *j, struct wf_err *err)
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

static bool load(struct rank *r, const struct job *j, struct wf_err *err)
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

static bool rank_init(struct rank *r, struct wf_comm *comm, struct job *j, struct wf_err *err)
{
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_mesh mesh;
    r->train = build(j, true, j->batch);
    r->valid = build(j, false, 3);
    if (!wf_mesh_parse(j->mesh, &mesh, err) || !wf_graph_ok(r->train.graph, err) ||
        !wf_graph_ok(r->valid.graph, err) ||
        !wf_graph_grad(r->train.graph, r->train.loss, r->train.start, 0, NULL, NULL, err))
        return false;
    r->schemes[0] = wf_scheme_new(r->train.graph, &mesh, &options, err);
    r->schemes[1] = wf_scheme_new(r->valid.graph, &mesh, &options, err);
    if (!r->schemes[0] || !r->schemes[1])
        return false;
    r->plan = wf_plan_new(r->schemes[0], wf_comm_rank(comm), err);
    r->run = r->plan ? wf_run_new(r->plan, comm, 5, err) : NULL;
    if (!r->run)
        return false;
    wf_run_init_weights(r->run, 5);
    struct wf_optim_options rule = wf_optim_defaults(WF_ADAM);
    rule.lr = j->lr;
    rule.accumulates = j->accumulate > 1;
    r->optim = wf_optim_new(&rule, r->run, err);
    struct wf_learner_options learner = { .comm = comm,
                                          .optim = r->optim,
                                          .start = r->train.start,
                                          .scaler = wf_scaler_init(j->loss_scale > 0),
                                          .hook = j->hook,
                                          .user = r };
    if (j->loss_scale > 0)
        learner.scaler.scale = j->loss_scale;
    if (!r->optim || !wf_learner_init(&r->learner, &learner, r->run, err) ||
        !make_rest(r, j, comm, &mesh, err) || !make_loaders(r, j, err) || !load(r, j, err))
        return false;
    r->validator = wf_validator_new(&(struct wf_validator_options){ .comm = comm,
                                                                    .network = &r->valid,
                                                                    .scheme = r->schemes[1],
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
        wf_scheme_free(r->schemes[i]);
    wf_graph_free(r->rest.graph);
    wf_graph_free(r->train.graph);
    wf_graph_free(r->valid.graph);
}

static bool train_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    static const struct wf_trainer_hooks hooks = {
        .stepped = stepped, .epoch_ended = epoch_ended, .save = save, .stops = stops
    };
    struct job *const j = arg;
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
                                                    .hooks = &mine,
                                                    .user = j };
        ok = wf_trainer_run(&options, &result, err);
    }
    if (first)
        j->result = result;
    rank_release(&r);
    return ok;
}

static void run_job(struct job *j)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    j->lr = j->lr > 0 ? j->lr : 0.02;
    j->batch = j->batch > 0 ? j->batch : BATCH;
    j->data = wf_dataset_open("set", &(struct wf_dataset_options){ 0 }, &err);
    if (!j->data || !wf_mesh_parse(j->mesh, &mesh, &err) ||
        !wf_comm_threads_run(wf_mesh_size(&mesh), train_rank, j, &err))
        fail_msg("mesh %s: %s", j->mesh, err.text);
    wf_dataset_free(j->data);
}

/* The largest norm(a - b) / norm(b) of all tensors of two checkpoints. */
static double apart(const char *a, const char *b)
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

/* --- tests --- */

static void loop__learns(void **state)
{
    struct job j = { .mesh = "", .epochs = 6, .to = "learn.safetensors" };
    run_job(&j);
    /* 5 images for training, 2 crops of each, 2 in a batch */
    assert_int_equal(j.result.at.step, 6 * 5);
    assert_int_equal(j.epochs_seen, 6);
    assert_int_equal(j.result.end, WF_END_DONE);
    if (!(j.last_loss < 0.75 * j.first_loss) || !(j.metric > 0.5))
        fail_msg("loss %g to %g, mean IoU %g", j.first_loss, j.last_loss, j.metric);
    assert_true(j.result.loss == j.last_loss);
    assert_true(j.best_saves >= 1 && j.saves == 6);
}

/* 10 steps at once against 4, stop, 6 more. ranks: 1 2 4 */
static void going_on__is_bit_for_bit_what_never_stopped(void **state)
{
    static const char *const meshes[] = { "space=1", "space=2x1", "data=2,space=1x2" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct job whole = { .mesh = meshes[i], .epochs = 2, .to = "whole.safetensors" };
        run_job(&whole);
        assert_int_equal(whole.result.at.step, 10);
        for (int64_t stop = 1; stop < 10;
             stop += 4) { /* within an epoch, at its end, in the next */
            struct job first = whole, second = whole;
            first.to = "first.safetensors";
            first.stop_at = stop;
            first.steps_seen = 0;
            run_job(&first);
            assert_int_equal(first.result.end, WF_END_SIGNAL);
            assert_int_equal(first.result.at.step, stop);
            second.from = first.to;
            second.to = "second.safetensors";
            run_job(&second);
            assert_int_equal(second.result.at.step, 10);
            if (apart("second.safetensors", "whole.safetensors") != 0)
                fail_msg("mesh %s, stopped at %lld: not the same bits", meshes[i], (long long)stop);
            assert_true(second.result.loss == whole.result.loss &&
                        second.result.metric == whole.result.metric &&
                        second.result.at.best_epoch == whole.result.at.best_epoch &&
                        second.result.at.best == whole.result.at.best);
        }
    }
}

/* ranks: 1 2 4 */
static void going_on__may_change_the_mesh(void **state)
{
    struct job whole = { .mesh = "space=1", .epochs = 2, .to = "whole.safetensors" };
    run_job(&whole);
    static const char *const pairs[][2] = { { "space=1", "space=2x1" },
                                            { "space=2x1", "space=1" },
                                            { "space=1x2", "data=2,space=2x1" } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct job first = {
            .mesh = pairs[i][0], .epochs = 2, .stop_at = 4, .to = "f.safetensors"
        };
        struct job second = {
            .mesh = pairs[i][1], .epochs = 2, .from = "f.safetensors", .to = "s.safetensors"
        };
        run_job(&first);
        run_job(&second);
        assert_int_equal(second.result.at.step, 10);
        const double far = apart("s.safetensors", "whole.safetensors");
        if (!(far < 1e-5))
            fail_msg("from %s to %s: %g apart", pairs[i][0], pairs[i][1], far);
        assert_true(fabs(second.result.metric - whole.result.metric) < 1e-3);
    }
}

/* ranks: 1 2 */
static void signal__in_a_validation_is_heard_there(void **state)
{
    static const char *const meshes[] = { "space=1", "space=2x1" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct job whole = { .mesh = meshes[i], .epochs = 2, .to = "whole.safetensors" };
        run_job(&whole);
        struct job first = { .mesh = meshes[i],
                             .epochs = 2,
                             .to = "first.safetensors",
                             .stop_at = 5,
                             .stop_in_validation = true };
        run_job(&first);
        assert_int_equal(first.result.end, WF_END_SIGNAL);
        assert_int_equal(first.result.at.step, 5);
        assert_int_equal(first.result.at.epoch, 0); /* not ended: its validation is to come */
        assert_int_equal(first.epochs_seen, 0);
        struct job second = {
            .mesh = meshes[i], .epochs = 2, .from = "first.safetensors", .to = "second.safetensors"
        };
        run_job(&second);
        assert_int_equal(second.epochs_seen, 2);
        assert_true(apart("second.safetensors", "whole.safetensors") == 0);
        assert_true(second.result.at.best == whole.result.at.best);
    }
}

static void early_stop__ends_when_nothing_gets_better(void **state)
{
    /* A learning rate so small that the prediction never changes: the first validation stays best. */
    struct job j = { .mesh = "", .epochs = 50, .early_stop = 3, .lr = 1e-30 };
    run_job(&j);
    assert_int_equal(j.result.end, WF_END_EARLY);
    assert_int_equal(j.result.at.stale, 3);
    assert_true(j.result.at.epoch < 50);
    assert_int_equal(j.result.at.epoch, j.result.at.best_epoch + 1 + 3);
}

static void saves__come_as_often_as_asked(void **state)
{
    struct job j = { .mesh = "", .epochs = 2, .checkpoint_steps = 2, .no_validation = true };
    run_job(&j);
    /* After steps 2, 4 of each epoch, and at each end. */
    assert_int_equal(j.saves, 2 * 3);
    assert_true(isnan(j.result.metric));
    struct job none = { .mesh = "", .epochs = 1 };
    run_job(&none);
    assert_int_equal(none.saves, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop__learns),
        cmocka_unit_test(going_on__is_bit_for_bit_what_never_stopped),
        cmocka_unit_test(going_on__may_change_the_mesh),
        cmocka_unit_test(signal__in_a_validation_is_heard_there),
        cmocka_unit_test(early_stop__ends_when_nothing_gets_better),
        cmocka_unit_test(saves__come_as_often_as_asked),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
