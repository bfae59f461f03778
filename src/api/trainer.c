/*
 * The trainer: the command's training run (train/training.h), which stops between steps to be asked.
 *
 * Its ranks stay (api/engine.h): they park in the hook `pause`, before each step and at the end, until the
 * program wants the next step or something of the weights.
 */
#include "api/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/session.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "exec/holders.h"
#include "report/net_drawing.h"
#include "report/report.h"
#include "tensor/border.h"

struct wf_trainer {
    struct wf_session *s;
    struct wf_own own;
    struct wf_stay stay;
    struct wf_data data;
    char *out; /* the run folder, or NULL */
    struct wf_arena arena;
    struct wf_options *options; /* with what the data settles */
    struct wf_run_folder folder;
    struct wf_training run;
    /* Rank 0's, or each process's. */
    struct wf_step_info step;
    double loss_scale; /* of that step's gradient */
    struct wf_epoch_info epoch;
    struct wf_position at;
    bool ended;
    struct wf_scores_info scores;
    double *iou;
};

/* --- on the ranks: hooks of the run --- */

static void stepped(void *user, const struct wf_step_report *r)
{
    struct wf_trainer *const t = user;
    t->loss_scale = r->loss_scale;
    t->step = (struct wf_step_info){ .step = r->at->step,
                                     .epoch = r->at->epoch,
                                     .loss = r->loss,
                                     .lr = r->lr,
                                     .norm = r->norm,
                                     .skipped = r->skipped,
                                     .seconds = r->seconds };
}

static void epoch_ended(void *user, const struct wf_epoch_report *r)
{
    struct wf_trainer *const t = user;
    t->epoch = (struct wf_epoch_info){ .epoch = r->epoch + 1,
                                       .step = r->step,
                                       .loss = r->train_loss,
                                       .validated = r->validated != NULL,
                                       .validation = (double)NAN,
                                       .metric = r->metric,
                                       .is_best = r->is_best };
    if (r->validated)
        t->epoch.validation = wf_validator_loss(r->validated);
}

/* Collective. What the hooks above were told on rank 0. */
static bool share_reports(struct wf_trainer *t, struct wf_comm *comm)
{
    struct wf_err err = { 0 };
    return wf_comm_broadcast(comm, 0, &t->step, sizeof t->step, &err) &&
           wf_comm_broadcast(comm, 0, &t->loss_scale, sizeof t->loss_scale, &err) &&
           wf_comm_broadcast(comm, 0, &t->epoch, sizeof t->epoch, &err);
}

static bool pause(void *user, const struct wf_pause *p)
{
    struct wf_trainer *const t = user;
    struct wf_comm *const comm = p->o->comm;
    /* After the last step of an epoch comes its end, in any case. */
    if (!p->ended && (p->epoch_ends || p->at->epoch < *p->until))
        return true;
    if (t->s->launch.world && !share_reports(t, comm))
        return true; /* the next communication says why */
    if (t->s->launch.world || wf_comm_rank(comm) == 0) {
        t->ended = p->ended;
        t->at = *p->at;
    }
    struct wf_pause rank = *p;
    return wf_engine_park(t->s->engine, &rank, comm, p->until);
}

static const struct wf_training_hooks hooks = { .stepped = stepped,
                                                .epoch_ended = epoch_ended,
                                                .pause = pause };

/* --- on the engine's thread: from options and data to the end of the run --- */

static bool check_sync(const struct wf_settings *s, struct wf_err *err)
{
    return s->train.sync == WF_SYNC_ALLREDUCE ||
           wf_err_set(err, WF_ERR_USAGE,
                      "train.sync is %s, which has no steps that all take: use allreduce, or the "
                      "command",
                      wf_sync_names[s->train.sync]);
}

static bool prepare(struct wf_trainer *t, struct wf_err *err)
{
    struct wf_settings *const settings = &t->run.settings;
    const struct wf_dataset_info *const info = wf_dataset_info(t->data.dataset);
    t->own.model.dense = info->labels != WF_LABELS_IMAGE;
    if (!wf_session_settings(t->s, &t->own, t->options, settings, err) ||
        !check_sync(settings, err))
        return false;
    settings->data.open = t->data.dataset;
    if (!t->out)
        settings->train.samples = 0; /* pictures would be files */
    t->folder.model = settings->model->name;
    if (!wf_training_prepare(&t->run, info->path, err) ||
        !wf_options_take_settled(t->options, settings, info->path, err))
        return false;
    t->run.config = wf_options_yaml(&t->arena, t->options, false);
    const struct wf_checkpoint *const c = t->folder.checkpoint;
    return !c || !wf_checkpoint_info(c)->config || t->own.network ||
           wf_options_same_network(t->options, wf_checkpoint_path(c), wf_checkpoint_info(c)->config,
                                   err);
}

/* The network's drawing, and a copy of its file. */
static bool write_network(struct wf_trainer *t, struct wf_err *err)
{
    const struct wf_job *const job = t->run.job;
    const struct wf_value *const image = job->net.image;
    const bool is_file = wf_options_has_network(t->options) && !t->own.network;
    return wf_network_write(t->folder.path,
                            image ? wf_model_svg(&t->arena, job->model, &job->config, image->shape)
                                  : NULL,
                            is_file ? wf_options_text(t->options, "model.network") : NULL, err);
}

/* Collective under a launcher. The files that the command writes before it trains. */
static bool begin_folder(struct wf_trainer *t, struct wf_err *err)
{
    if (!wf_run_folder_make(&t->folder, err))
        return false;
    const char *const mesh = wf_mesh_print(&t->arena, &t->run.job->mesh);
    bool ok = wf_options_set(t->options, "mesh", mesh, err);
    if (ok && t->s->launch.is_root)
        ok = write_network(t, err);
    if (ok && t->s->launch.is_root)
        ok = wf_write_text(wf_run_folder_file(&t->arena, &t->folder, "config.yaml"),
                           wf_options_yaml(&t->arena, t->options, true), err);
    return wf_launch_agree(&t->s->launch, ok, err) && wf_training_begin(&t->run, err);
}

static bool run_training(void *arg, struct wf_err *err)
{
    struct wf_trainer *const t = arg;
    const bool found = !t->out || wf_run_folder_find(&t->folder, t->out, "auto", err);
    const bool ok = wf_launch_agree(&t->s->launch, found && prepare(t, err), err);
    return ok && (!t->out || begin_folder(t, err)) && wf_training_run(&t->run, err);
}

/* --- its life --- */

static void prepare_run(struct wf_trainer *t)
{
    const double unknown = (double)NAN; /* until the hooks report */
    t->options = wf_options_copy(t->s->options);
    t->folder = (struct wf_run_folder){ .launch = t->s->launch };
    t->run = (struct wf_training){ .launch = t->s->launch,
                                   .folder = &t->folder,
                                   .changed_data = true,
                                   .hooks = &hooks,
                                   .user = t };
    wf_times_begin(&t->run.times, wf_now());
    t->ended = false;
    t->loss_scale = 1;
    t->step = (struct wf_step_info){ .loss = unknown, .lr = unknown, .norm = unknown };
    t->epoch = (struct wf_epoch_info){ .loss = unknown, .validation = unknown, .metric = unknown };
}

static void release_run(struct wf_trainer *t)
{
    wf_training_release(&t->run);
    wf_run_folder_release(&t->folder);
    wf_options_free(t->options);
    wf_arena_release(&t->arena);
}

struct wf_trainer *wf_trainer_new(struct wf_session *s, const struct wf_data *d, const char *folder,
                                  struct wf_err *err)
{
    struct wf_trainer *const t = wf_take_zeroed(1, sizeof *t);
    t->s = s;
    t->own = s->own;
    t->own.trains = true;
    t->data = *d;
    t->out = folder ? wf_take_text(folder) : NULL;
    prepare_run(t);
    if (wf_stay_begin(&t->stay, s->engine, run_training, t, err))
        return t;
    wf_trainer_free(t);
    return NULL;
}

void wf_trainer_free(struct wf_trainer *t)
{
    if (!t)
        return;
    struct wf_err err = { 0 };
    wf_stay_end(&t->stay);
    if (t->out && t->run.use && t->s->launch.is_root && !wf_report_write(t->folder.path, &err))
        wf_log(&t->s->log, WF_LOG_WARN, "no report: %s", err.text);
    release_run(t);
    free(t->iou);
    free(t->out);
    free(t);
}

/* --- training --- */

/* The ranks park again before the next step from epoch `until` on. */
static bool go(struct wf_trainer *t, int64_t until, struct wf_err *err)
{
    return t->ended || wf_stay_go(&t->stay, until, err);
}

bool wf_trainer_step(struct wf_trainer *t, struct wf_step_info *info, struct wf_err *err)
{
    const bool ended = t->ended;
    if (!go(t, 0, err))
        return false;
    *info = t->step;
    info->step = t->at.step;
    info->epoch = t->at.epoch;
    info->ended = ended;
    return true;
}

bool wf_trainer_epoch(struct wf_trainer *t, struct wf_epoch_info *info, struct wf_err *err)
{
    if (!go(t, t->at.epoch + 1, err))
        return false;
    *info = t->epoch;
    if (t->epoch.epoch == 0) { /* the checkpoint was the last epoch's: it knows these */
        info->epoch = t->at.epoch;
        info->step = t->at.step;
        info->loss = t->at.loss;
        info->is_best = t->at.best_epoch + 1 == t->at.epoch;
    }
    info->ended = t->ended;
    return true;
}

bool wf_trainer_last_epoch(const struct wf_trainer *t, struct wf_epoch_info *info)
{
    *info = t->epoch;
    info->ended = t->ended;
    return t->epoch.epoch > 0;
}

/* --- what is asked between steps --- */

struct question {
    struct wf_trainer *t;
    struct wf_value *value;
    const float *from;
    float *to;
    size_t count; /* of `to` */
    const char *path;
    struct wf_checkpoint *checkpoint; /* at it */
};

static bool evaluate_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct wf_pause *const p = rank;
    const struct question *const q = arg;
    struct wf_trainer *const t = q->t;
    struct wf_validator *const v = p->o->validator;
    if (!v)
        return wf_err_set(err, WF_ERR_USAGE,
                          "there is no validation part: set data.validation, or mark samples");
    if (!wf_validator_run(v, p->o->full.run, err))
        return false;
    if (!t->s->launch.world && wf_comm_rank(comm) != 0)
        return true;
    struct wf_arena arena = { 0 };
    const struct wf_scores s = wf_scores(&arena, wf_validator_metrics(v));
    t->scores = (struct wf_scores_info){ .loss = wf_validator_loss(v),
                                         .accuracy = s.accuracy,
                                         .mean_iou = s.mean_iou,
                                         .mean_dice = s.mean_dice,
                                         .counted = s.counted,
                                         .classes = s.classes };
    free(t->iou);
    t->iou = wf_take((size_t)s.classes * sizeof *t->iou);
    memcpy(t->iou, s.iou, (size_t)s.classes * sizeof *t->iou);
    wf_arena_release(&arena);
    return true;
}

bool wf_trainer_evaluate(struct wf_trainer *t, struct wf_scores_info *info, struct wf_err *err)
{
    struct question q = { .t = t };
    if (!wf_stay_order(&t->stay, evaluate_rank, &q, err))
        return false;
    *info = t->scores;
    return true;
}

double wf_trainer_iou(const struct wf_trainer *t, int label)
{
    return t->iou && label >= 0 && label < t->scores.classes ? t->iou[label] : (double)NAN;
}

static bool save_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct wf_pause *const p = rank;
    const struct question *const q = arg;
    struct wf_run *const run = p->o->full.run;
    const struct wf_optim *const optim = p->o->learner->options.optim;
    const bool writes = wf_comm_rank(comm) == 0;
    bool ok = true;
    if (writes) {
        const struct wf_checkpoint_info info = wf_training_info(&q->t->run, p->at);
        ok = wf_checkpoint_save(q->path, &info, run, optim, err);
    }
    if (!wf_run_is_whole(run))
        ok = (writes ? wf_run_ask_end(run, err)
                     : wf_run_serve(run, optim->states, optim->n_states, err)) &&
             ok;
    return ok;
}

bool wf_trainer_save(struct wf_trainer *t, const char *path, struct wf_err *err)
{
    struct question q = { .t = t, .path = path };
    return wf_stay_order(&t->stay, save_rank, &q, err);
}

/* Collective under a launcher. */
static bool open_checkpoint(void *arg, struct wf_err *err)
{
    struct question *const q = arg;
    const struct wf_launch *const launch = &q->t->s->launch;
    q->checkpoint = wf_checkpoint_of(q->path, launch->log, err);
    if (wf_launch_agree(launch, q->checkpoint != NULL, err) &&
        wf_launch_same_file(launch, q->path, wf_checkpoint_digest(q->checkpoint), err))
        return true;
    wf_checkpoint_free(q->checkpoint);
    return false;
}

bool wf_trainer_load(struct wf_trainer *t, const char *path, struct wf_err *err)
{
    if (t->out)
        return wf_err_set(err, WF_ERR_USAGE,
                          "a trainer with a folder goes on from the folder's own checkpoints");
    struct question q = { .t = t, .path = path };
    /* A file that is no checkpoint is refused while the trainer is still there. */
    if (!wf_engine_call(t->s->engine, open_checkpoint, &q, err))
        return false;
    wf_stay_end(&t->stay);
    release_run(t);
    t->arena = (struct wf_arena){ 0 };
    prepare_run(t);
    t->folder.checkpoint = q.checkpoint;
    return wf_stay_begin(&t->stay, t->s->engine, run_training, t, err);
}

/* --- tensors --- */

bool wf_trainer_lend(const struct wf_trainer *t, struct wf_trainer_loan *loan, struct wf_err *err)
{
    if (t->stay.is_over) {
        *err = t->stay.failed;
        return false;
    }
    *loan = (struct wf_trainer_loan){ .session = t->s,
                                      .own = &t->own,
                                      .info = wf_training_info(&t->run, &t->at),
                                      .graph = t->run.job->net.graph };
    return true;
}

const char *wf_trainer_tensor(const struct wf_trainer *t, int index, int64_t shape[WF_AXES],
                              int *rank)
{
    const struct wf_graph *const g = t->run.job ? t->run.job->net.graph : NULL;
    for (size_t i = 0; g && index >= 0 && i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if ((v->kind != WF_PARAM && v->kind != WF_STATE) || index-- > 0)
            continue;
        if (shape)
            *rank = wf_border_shape(v->shape, v->border_dims, shape);
        return v->name;
    }
    return NULL;
}

static struct wf_value *find(const struct wf_trainer *t, const char *name, bool grads)
{
    static const char prefix[] = "grad.";
    const size_t skip = strncmp(name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    struct wf_value *const v =
        t->run.job ? wf_graph_find(t->run.job->net.graph, name + skip) : NULL;
    if (!v || (v->kind != WF_PARAM && v->kind != WF_STATE))
        return NULL;
    return skip == 0 ? v : grads ? v->grad : NULL;
}

static bool get_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct wf_pause *const p = rank;
    const struct question *const q = arg;
    const double times = q->value->grad_of ? q->t->loss_scale : 1;
    if (!wf_tensor_get(q->t->s, p->o->full.run, comm, q->value, q->to, err))
        return false;
    /* Ranks that are threads share the array. */
    if (q->t->s->launch.world || wf_comm_rank(comm) == 0)
        for (size_t i = 0; times != 1 && i < q->count; i++)
            q->to[i] = (float)((double)q->to[i] / times);
    return true;
}

bool wf_trainer_get(struct wf_trainer *t, const char *name, float *array, size_t count,
                    struct wf_err *err)
{
    struct question q = { .t = t, .value = find(t, name, true), .to = array, .count = count };
    return wf_tensor_check(q.value, name, count, err) && wf_stay_order(&t->stay, get_rank, &q, err);
}

static bool set_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct wf_pause *const p = rank;
    const struct question *const q = arg;
    (void)comm, (void)err;
    wf_tensor_put(p->o->full.run, q->value, q->from);
    return true;
}

bool wf_trainer_set(struct wf_trainer *t, const char *name, const float *array, size_t count,
                    struct wf_err *err)
{
    struct question q = { .t = t, .value = find(t, name, false), .from = array };
    return wf_tensor_check(q.value, name, count, err) && wf_stay_order(&t->stay, set_rank, &q, err);
}
