#include "train/pictures.h"

#include <cjson/cJSON.h>

#include "train/preview.h"

/* A sample's name as that of a file. */
static const char *plain_name(struct wf_arena *arena, int64_t order, const char *name)
{
    char *const copy = wf_arena_printf(arena, "%02d-%.80s", (int)order, name);
    for (char *at = copy; *at; at++)
        if (*at == '/' || *at == '\\' || (unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
            *at = '_';
    return copy;
}

/* What a classifier's image is, and what it was taken for. */
static void add_verdict(cJSON *event, const struct wf_training *t, const struct wf_preview *p)
{
    const int said[] = { (int)p->label[0], (int)p->guess[0] };
    static const char *const keys[] = { "truth", "guess" };
    for (int i = 0; i < 2; i++)
        if (said[i] >= 0 && said[i] < t->feed.classes)
            (void)cJSON_AddStringToObject(event, keys[i], t->feed.class_names[said[i]]);
}

static bool log_sample(struct wf_training *t, const struct wf_preview *p, int64_t order,
                       const struct wf_sample_score *score, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const name = wf_dataset_sample(t->feed.dataset, score->sample)->name;
    const char *const prefix =
        wf_arena_printf(&arena, "samples/%s", plain_name(&arena, order, name));
    const bool dense = wf_model_is_dense(t->job->model, &t->job->config);
    bool ok = wf_preview_write(p, wf_run_folder_file(&arena, t->folder, prefix),
                               dense ? t->feed.classes : 0, t->feed.colors, err);
    if (ok) {
        cJSON *const event = wf_journal_event("sample");
        (void)cJSON_AddStringToObject(event, "name", name);
        (void)cJSON_AddNumberToObject(event, "epoch", (double)t->result.at.epoch);
        if (dense)
            wf_json_add_real(event, "mean_iou", score->mean_iou);
        else
            add_verdict(event, t, p);
        static const char *const keys[] = { "image", "label", "prediction" };
        for (size_t i = 0; i < (dense ? sizeof keys / sizeof keys[0] : 1); i++)
            (void)cJSON_AddStringToObject(event, keys[i],
                                          wf_arena_printf(&arena, "%s-%s.png", prefix, keys[i]));
        ok = wf_journal_write(t->journal, event, err);
    }
    wf_arena_release(&arena);
    return ok;
}

/* Collective. */
static bool make_preview(const struct wf_training *t, struct wf_validator *validator,
                         int64_t sample, struct wf_preview *p, struct wf_comm *comm,
                         struct wf_err *err)
{
    int64_t row = 0;
    if (wf_validator_whole(validator))
        return wf_preview_whole(p, wf_validator_whole(validator), sample, err);
    if (!wf_validator_show(validator, sample, &row, err))
        return false;
    if (!t->job->model->sparse)
        return wf_preview_make(p, wf_validator_own_run(validator), &t->valid, row, comm, err);
    const struct wf_shown_points shown = wf_validator_points(validator);
    return wf_preview_points(p, shown.batch, row, &t->valid, shown.logits, comm, err);
}

bool wf_pictures_samples(struct wf_training *t, struct wf_validator *validator,
                         struct wf_comm *comm, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    int64_t count = 0;
    const struct wf_sample_score *const worst = wf_validator_worst(&arena, validator, &count);
    count = wf_min(count, t->settings.train.samples);
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        struct wf_preview p = { 0 };
        ok = make_preview(t, validator, worst[i].sample, &p, comm, err);
        bool written = true;
        if (ok && wf_comm_rank(comm) == 0)
            written = log_sample(t, &p, i, &worst[i], err);
        ok = ok && wf_comm_agree(comm, written, err);
        wf_preview_release(&p);
    }
    wf_arena_release(&arena);
    return ok;
}
