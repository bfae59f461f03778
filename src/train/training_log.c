#include "train/training_log.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/file.h"

enum { CONFUSION_MOST = 64 }; /* classes: a larger matrix is nothing to look at */

/* --- opening --- */

/* A run that goes on without a part of its log says so, here and in the log itself. */
static bool tell_damage(struct wf_training *t, const char *log,
                        const struct wf_journal_damage *damage, struct wf_err *err)
{
    const bool lost = damage->lines || damage->epochs || (damage->absent && t->start.step > 0);
    if (!t->folder->exists || !lost)
        return true;
    if (damage->absent)
        wf_log(t->launch.log, WF_LOG_WARN, "'%s' is gone: the report begins with step %lld", log,
               (long long)t->start.step);
    else
        wf_log(
            t->launch.log, WF_LOG_WARN,
            "'%s' is damaged (unreadable lines: %lld, missing epochs: %lld): the run goes on without "
            "them, and the file as it was is kept as '%s'",
            log, (long long)damage->lines, (long long)damage->epochs, damage->kept);
    cJSON *const event = wf_journal_event("damaged");
    (void)cJSON_AddNumberToObject(event, "step", (double)t->start.step);
    (void)cJSON_AddNumberToObject(event, "lines", (double)damage->lines);
    (void)cJSON_AddNumberToObject(event, "epochs", (double)damage->epochs);
    const char *const slash = strrchr(damage->kept, '/');
    (void)cJSON_AddStringToObject(event, "kept", slash ? slash + 1 : damage->kept);
    return wf_journal_write(t->journal, event, err);
}

static bool open_log(struct wf_training *t, struct wf_err *err)
{
    struct wf_journal_damage damage;
    const char *const log = wf_run_folder_file(&t->arena, t->folder, "log.jsonl");
    if (!wf_journal_rewind(log, &t->start, &damage, err))
        return false;
    t->journal = wf_journal_open(log, err);
    /* With the name of a new log on the disk before a checkpoint is. */
    if (!t->journal || !wf_folder_sync(t->folder->path, err) || !tell_damage(t, log, &damage, err))
        return false;
    if (t->folder->checkpoint && t->start.epoch >= t->settings.train.epochs)
        wf_log(t->launch.log, WF_LOG_INFO,
               "'%s' has done its %lld %s: give train.epochs more to go on",
               t->folder->checkpoint_path, (long long)t->start.epoch,
               t->start.epoch == 1 ? "epoch" : "epochs");
    else if (t->folder->checkpoint)
        wf_log(t->launch.log, WF_LOG_INFO, "going on from '%s': epoch %lld, step %lld",
               t->folder->checkpoint_path, (long long)t->start.epoch + 1, (long long)t->start.step);
    return true;
}

bool wf_training_begin(struct wf_training *t, struct wf_err *err)
{
    return wf_launch_agree(&t->launch, !t->launch.is_root || open_log(t, err), err);
}

/* --- what several events have --- */

cJSON *wf_rank_use_json(const struct wf_rank_use *use, int ranks)
{
    cJSON *const list = cJSON_CreateArray();
    for (int i = 0; i < ranks; i++) {
        cJSON *const one = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(one, "rank", i);
        (void)cJSON_AddNumberToObject(one, "planned_bytes", (double)use[i].planned);
        (void)cJSON_AddNumberToObject(one, "used_bytes", (double)use[i].held);
        (void)cJSON_AddNumberToObject(one, "host_bytes", (double)use[i].host);
        (void)cJSON_AddNumberToObject(one, "process_bytes", (double)use[i].process);
        (void)cJSON_AddNumberToObject(one, "read_bytes", (double)use[i].read);
        (void)cJSON_AddNumberToObject(one, "prepare_bytes", (double)use[i].prepare);
        (void)cJSON_AddItemToArray(list, one);
    }
    return list;
}

void wf_best_json(cJSON *to, const struct wf_training *t)
{
    const struct wf_position *const at = &t->result.at;
    if (at->best_epoch < 0)
        return;
    cJSON *const best = cJSON_AddObjectToObject(to, "best");
    (void)cJSON_AddNumberToObject(best, "epoch", (double)at->best_epoch + 1);
    const bool labels = t->valid.graph && t->valid.has_classes;
    wf_json_add_real(best,
                     !labels                                             ? "loss"
                     : wf_model_is_dense(t->job->model, &t->job->config) ? "mean_iou"
                                                                         : "accuracy",
                     labels ? at->best : -at->best);
}

/* --- events --- */

/* What training will take, by which machine's figures. */
static void add_foretold(cJSON *event, const struct wf_training *t, const struct wf_foretold *f)
{
    if (f->step <= 0)
        return;
    cJSON *const to = cJSON_AddObjectToObject(event, "foretold");
    wf_json_add_real(to, "step_seconds", f->step);
    wf_json_add_real(to, "epoch_seconds", f->epoch);
    wf_json_add_real(to, "validation_seconds", f->validation);
    (void)cJSON_AddStringToObject(to, "figures", wf_figures_machine(t->job->figures));
}

bool wf_training_log_start(const struct wf_training *t, const struct wf_rank_use *use,
                           const struct wf_foretold *foretold, struct wf_err *err)
{
    const struct wf_job *const job = t->job;
    const int ranks = wf_mesh_size(&job->mesh);
    struct wf_arena arena = { 0 };
    cJSON *const event =
        wf_journal_event(t->folder->checkpoint && t->folder->exists ? "resume" : "start");
    (void)cJSON_AddNumberToObject(event, "step", (double)t->start.step);
    (void)cJSON_AddNumberToObject(event, "epoch", (double)t->start.epoch);
    (void)cJSON_AddStringToObject(event, "model", job->model->name);
    (void)cJSON_AddNumberToObject(event, "parameters",
                                  (double)wf_graph_parameters(job->net.graph, true));
    (void)cJSON_AddStringToObject(event, "mesh", wf_mesh_print(&arena, &job->mesh));
    (void)cJSON_AddNumberToObject(event, "ranks", ranks);
    (void)cJSON_AddStringToObject(event, "device", job->device->name);
    (void)cJSON_AddStringToObject(event, "precision",
                                  wf_precision_names[t->settings.train.precision]);
    (void)cJSON_AddBoolToObject(event, "per_image", !wf_model_is_dense(job->model, &job->config));
    cJSON_AddItemToObject(event, "classes",
                          cJSON_CreateStringArray(t->feed.class_names, t->feed.classes));
    (void)cJSON_AddNumberToObject(event, "train_images", (double)t->feed.parts[WF_PART_TRAIN]);
    (void)cJSON_AddNumberToObject(event, "val_images", (double)t->feed.parts[WF_PART_VALID]);
    if (t->targets.n > 0)
        cJSON_AddItemToObject(
            event, "domains",
            cJSON_CreateStringArray(t->settings.data.domains, t->settings.data.n_domains));
    add_foretold(event, t, foretold);
    cJSON_AddItemToObject(event, "per_rank", wf_rank_use_json(use, ranks));
    wf_arena_release(&arena);
    return wf_journal_write(t->journal, event, err);
}

bool wf_training_log_confusion(const struct wf_training *t, const struct wf_metrics *m,
                               long long epoch, struct wf_err *err)
{
    if (m->classes > CONFUSION_MOST)
        return true;
    cJSON *const event = wf_journal_event("confusion");
    (void)cJSON_AddNumberToObject(event, "epoch", (double)epoch);
    cJSON *const rows = cJSON_AddArrayToObject(event, "counts");
    for (int i = 0; i < m->classes; i++) {
        cJSON *const row = cJSON_CreateArray();
        for (int k = 0; k < m->classes; k++)
            (void)cJSON_AddItemToArray(
                row, cJSON_CreateNumber((double)m->confusion[(int64_t)i * m->classes + k]));
        (void)cJSON_AddItemToArray(rows, row);
    }
    return wf_journal_write(t->journal, event, err);
}

bool wf_training_log_end(const struct wf_training *t, struct wf_err *err)
{
    static const char *const how[] = { "done", "early", "signal" };
    const struct wf_trainer_result *const r = &t->result;
    cJSON *const event = wf_journal_event("end");
    (void)cJSON_AddNumberToObject(event, "epochs", (double)r->at.epoch);
    (void)cJSON_AddNumberToObject(event, "steps", (double)r->at.step);
    (void)cJSON_AddNumberToObject(event, "skipped", (double)r->at.skipped);
    wf_json_add_real(event, "loss", r->loss);
    if (t->has_scores)
        cJSON_AddItemToObject(event, "metric", wf_scores_json(&t->scores));
    wf_domains_json(event, t->domains, t->n_domains);
    wf_best_json(event, t);
    wf_json_add_real(event, "mpx_per_s", r->pixels / wf_times_total(&t->times) / 1e6);
    wf_times_json(event, &t->times);
    if (t->start.seconds > 0) /* until the checkpoint that is resumed; what came after it is lost */
        wf_json_add_real(event, "seconds_before", t->start.seconds);
    (void)cJSON_AddStringToObject(event, "stopped", how[r->end]);
    cJSON_AddItemToObject(event, "per_rank", wf_rank_use_json(t->use, wf_mesh_size(&t->job->mesh)));
    return wf_journal_write(t->journal, event, err);
}
