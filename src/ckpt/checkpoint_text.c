#include "ckpt/checkpoint_text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

#define FORMAT "checkpoint 2"

const char *const wf_checkpoint_keys[WF_CHECKPOINT_TEXTS] = {
    [WF_CHECKPOINT_FORMAT] = "widefield",
    [WF_CHECKPOINT_CONFIG] = "config",
    [WF_CHECKPOINT_SEED] = "seed",
    [WF_CHECKPOINT_STEP] = "step",
    [WF_CHECKPOINT_EPOCH] = "epoch",
    [WF_CHECKPOINT_BATCH] = "batch",
    [WF_CHECKPOINT_SKIPPED] = "skipped",
    [WF_CHECKPOINT_IN_A_ROW] = "skipped_in_a_row",
    [WF_CHECKPOINT_LOSS_SUM] = "loss_sum",
    [WF_CHECKPOINT_LOSS_SAMPLES] = "loss_samples",
    [WF_CHECKPOINT_LOSS] = "loss",
    [WF_CHECKPOINT_BEST] = "best",
    [WF_CHECKPOINT_BEST_EPOCH] = "best_epoch",
    [WF_CHECKPOINT_STALE] = "stale",
    [WF_CHECKPOINT_SECONDS] = "seconds",
    [WF_CHECKPOINT_LOSS_SCALE] = "loss_scale",
    [WF_CHECKPOINT_SCALE_STREAK] = "loss_scale_streak",
    [WF_CHECKPOINT_LR_FACTOR] = "lr_factor",
    [WF_CHECKPOINT_LR_BEST] = "lr_best",
    [WF_CHECKPOINT_LR_SEEN] = "lr_seen",
    [WF_CHECKPOINT_LR_BAD] = "lr_bad",
    [WF_CHECKPOINT_MEAN] = "mean",
    [WF_CHECKPOINT_DEVIATION] = "std",
    [WF_CHECKPOINT_CLASS_NAMES] = "class_names",
    [WF_CHECKPOINT_DATA] = "data",
    [WF_CHECKPOINT_TARGETS] = "targets",
};

/* --- the position, one text for each member --- */

struct member {
    bool is_real;
    size_t offset; /* in struct wf_position */
    int64_t min;   /* of whole numbers */
};

#define WHOLE(name, least)                                                                         \
    {                                                                                              \
        .offset = offsetof(struct wf_position, name), .min = (least)                               \
    }
#define REAL(name)                                                                                 \
    {                                                                                              \
        .is_real = true, .offset = offsetof(struct wf_position, name)                              \
    }

enum { MEMBERS = WF_CHECKPOINT_LR_BAD + 1 - WF_CHECKPOINT_STEP };

static const struct member members[MEMBERS] = {
    [WF_CHECKPOINT_STEP - WF_CHECKPOINT_STEP] = WHOLE(step, 0),
    [WF_CHECKPOINT_EPOCH - WF_CHECKPOINT_STEP] = WHOLE(epoch, 0),
    [WF_CHECKPOINT_BATCH - WF_CHECKPOINT_STEP] = WHOLE(batch, 0),
    [WF_CHECKPOINT_SKIPPED - WF_CHECKPOINT_STEP] = WHOLE(skipped, 0),
    [WF_CHECKPOINT_IN_A_ROW - WF_CHECKPOINT_STEP] = WHOLE(in_a_row, 0),
    [WF_CHECKPOINT_LOSS_SUM - WF_CHECKPOINT_STEP] = REAL(loss_sum),
    [WF_CHECKPOINT_LOSS_SAMPLES - WF_CHECKPOINT_STEP] = REAL(loss_samples),
    [WF_CHECKPOINT_LOSS - WF_CHECKPOINT_STEP] = REAL(loss),
    [WF_CHECKPOINT_BEST - WF_CHECKPOINT_STEP] = REAL(best),
    [WF_CHECKPOINT_BEST_EPOCH - WF_CHECKPOINT_STEP] = WHOLE(best_epoch, -1),
    [WF_CHECKPOINT_STALE - WF_CHECKPOINT_STEP] = WHOLE(stale, 0),
    [WF_CHECKPOINT_SECONDS - WF_CHECKPOINT_STEP] = REAL(seconds),
    [WF_CHECKPOINT_LOSS_SCALE - WF_CHECKPOINT_STEP] = REAL(loss_scale),
    [WF_CHECKPOINT_SCALE_STREAK - WF_CHECKPOINT_STEP] = WHOLE(scale_streak, 0),
    [WF_CHECKPOINT_LR_FACTOR - WF_CHECKPOINT_STEP] = REAL(schedule.factor),
    [WF_CHECKPOINT_LR_BEST - WF_CHECKPOINT_STEP] = REAL(schedule.best),
    [WF_CHECKPOINT_LR_SEEN - WF_CHECKPOINT_STEP] = WHOLE(schedule.seen, 0),
    [WF_CHECKPOINT_LR_BAD - WF_CHECKPOINT_STEP] = WHOLE(schedule.bad, 0),
};

/* --- printing --- */

static const char *print_member(struct wf_arena *arena, const struct wf_position *at,
                                const struct member *m)
{
    const void *const value = (const char *)at + m->offset;
    if (!m->is_real)
        return wf_arena_printf(arena, "%" PRId64, *(const int64_t *)value);
    /* 17 digits give back the same bits. */
    return wf_arena_printf(arena, "%.17g", *(const double *)value);
}

static const char *print_list(struct wf_arena *arena, cJSON *list)
{
    char *const text = cJSON_PrintUnformatted(list);
    if (!text)
        wf_no_memory(0);
    const char *const copy = wf_arena_copy(arena, text);
    cJSON_free(text);
    cJSON_Delete(list);
    return copy;
}

/* A name may be anything, the file's texts are UTF-8. */
static const char *print_names(struct wf_arena *arena, const char *const names[], int count)
{
    const char *const list = print_list(arena, cJSON_CreateStringArray(names, count));
    char *const text = wf_utf8_json(list);
    const char *const copy = wf_arena_copy(arena, text);
    free(text);
    return copy;
}

void wf_checkpoint_print(struct wf_arena *arena, const struct wf_checkpoint_info *info,
                         struct wf_checkpoint_texts *texts)
{
    *texts = (struct wf_checkpoint_texts){ {
        [WF_CHECKPOINT_FORMAT] = FORMAT,
        [WF_CHECKPOINT_CONFIG] = info->config ? info->config : "",
        [WF_CHECKPOINT_SEED] = wf_arena_printf(arena, "%" PRIu64, info->seed),
        [WF_CHECKPOINT_DATA] = info->data,
    } };
    for (int i = 0; i < MEMBERS; i++)
        texts->value[WF_CHECKPOINT_STEP + i] = print_member(arena, &info->at, &members[i]);
    if (info->channels > 0) {
        texts->value[WF_CHECKPOINT_MEAN] =
            print_list(arena, cJSON_CreateDoubleArray(info->mean, info->channels));
        texts->value[WF_CHECKPOINT_DEVIATION] =
            print_list(arena, cJSON_CreateDoubleArray(info->deviation, info->channels));
    }
    if (info->classes > 0)
        texts->value[WF_CHECKPOINT_CLASS_NAMES] =
            print_names(arena, info->class_names, info->classes);
    if (info->n_targets > 0)
        texts->value[WF_CHECKPOINT_TARGETS] = print_names(arena, info->targets, info->n_targets);
}

/* --- parsing: the checksum has vouched for the bytes, not for who wrote them --- */

static bool bad(enum wf_checkpoint_text key, const char *text, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT, "a checkpoint with %s '%.40s', which makes no sense",
                      wf_checkpoint_keys[key], text ? text : "");
}

static bool parse_int(const struct wf_checkpoint_texts *texts, enum wf_checkpoint_text key,
                      int64_t min, int64_t *value, struct wf_err *err)
{
    const char *const text = texts->value[key];
    char *end = NULL;
    errno = 0;
    const long long number = text ? strtoll(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || number < min)
        return bad(key, text, err);
    *value = number;
    return true;
}

static bool parse_real(const struct wf_checkpoint_texts *texts, enum wf_checkpoint_text key,
                       double *value, struct wf_err *err)
{
    const char *const text = texts->value[key];
    char *end = NULL;
    const double number = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end)
        return bad(key, text, err);
    *value = number;
    return true;
}

static bool parse_reals(struct wf_arena *arena, const char *text, int *count, const double **values,
                        struct wf_err *err)
{
    cJSON *const list = cJSON_Parse(text);
    bool ok = cJSON_IsArray(list);
    const int n = ok ? cJSON_GetArraySize(list) : 0;
    double *const to = wf_arena_array(arena, n, double);
    int i = 0;
    for (const cJSON *item = ok ? list->child : NULL; item; item = item->next) {
        ok = ok && cJSON_IsNumber(item) && isfinite(item->valuedouble);
        to[i++] = item->valuedouble;
    }
    cJSON_Delete(list);
    *count = n;
    *values = to;
    return ok || bad(WF_CHECKPOINT_MEAN, text, err);
}

static bool parse_names(struct wf_arena *arena, const char *text, int *count,
                        const char *const **names, struct wf_err *err)
{
    cJSON *const list = cJSON_Parse(text);
    bool ok = cJSON_IsArray(list);
    const int n = ok ? cJSON_GetArraySize(list) : 0;
    const char **const to = wf_arena_array(arena, n, const char *);
    int i = 0;
    for (const cJSON *item = ok ? list->child : NULL; item; item = item->next) {
        ok = ok && cJSON_IsString(item);
        to[i++] = wf_arena_copy(arena, ok ? item->valuestring : "");
    }
    cJSON_Delete(list);
    *count = n;
    *names = to;
    return ok || bad(WF_CHECKPOINT_CLASS_NAMES, text, err);
}

static bool parse_lists(struct wf_arena *arena, const struct wf_checkpoint_texts *texts,
                        struct wf_checkpoint_info *info, struct wf_err *err)
{
    const char *const mean = texts->value[WF_CHECKPOINT_MEAN];
    const char *const deviation = texts->value[WF_CHECKPOINT_DEVIATION];
    const char *const names = texts->value[WF_CHECKPOINT_CLASS_NAMES];
    const char *const targets = texts->value[WF_CHECKPOINT_TARGETS];
    int channels = 0;
    if (mean && !parse_reals(arena, mean, &info->channels, &info->mean, err))
        return false;
    if (deviation && !parse_reals(arena, deviation, &channels, &info->deviation, err))
        return false;
    if (channels != info->channels)
        return bad(WF_CHECKPOINT_DEVIATION, deviation, err);
    return (!names || parse_names(arena, names, &info->classes, &info->class_names, err)) &&
           (!targets || parse_names(arena, targets, &info->n_targets, &info->targets, err));
}

bool wf_checkpoint_parse(struct wf_arena *arena, const struct wf_checkpoint_texts *texts,
                         struct wf_checkpoint_info *info, struct wf_err *err)
{
    const char *const format = texts->value[WF_CHECKPOINT_FORMAT];
    if (!format || strcmp(format, FORMAT) != 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%.40s' where '" FORMAT
                          "' is expected: the checkpoint is of another version of widefield",
                          format ? format : "");
    const char *const config = texts->value[WF_CHECKPOINT_CONFIG];
    const char *const data = texts->value[WF_CHECKPOINT_DATA];
    info->config = wf_arena_copy(arena, config ? config : "");
    info->data = data ? wf_arena_copy(arena, data) : NULL;
    int64_t seed = 0;
    if (!parse_int(texts, WF_CHECKPOINT_SEED, 0, &seed, err))
        return false;
    for (int i = 0; i < MEMBERS; i++) {
        const enum wf_checkpoint_text key = (enum wf_checkpoint_text)(WF_CHECKPOINT_STEP + i);
        void *const to = (char *)&info->at + members[i].offset;
        if (members[i].is_real ? !parse_real(texts, key, to, err)
                               : !parse_int(texts, key, members[i].min, to, err))
            return false;
    }
    info->seed = (uint64_t)seed;
    return parse_lists(arena, texts, info, err);
}
