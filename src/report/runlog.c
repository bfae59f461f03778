#include "report/runlog.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"

/* --- members --- */

static double number_of(const cJSON *item)
{
    return item && cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

double wf_log_number(const cJSON *object, const char *name)
{
    return number_of(cJSON_GetObjectItemCaseSensitive(object, name));
}

const char *wf_log_text(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const cJSON *list_of(const cJSON *object, const char *name)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsArray(list) ? list : NULL;
}

double wf_log_item(const cJSON *object, const char *name, int i)
{
    const cJSON *const list = list_of(object, name);
    return number_of(list ? cJSON_GetArrayItem(list, i) : NULL);
}

int wf_log_length(const cJSON *object, const char *name)
{
    const cJSON *const list = list_of(object, name);
    return list ? cJSON_GetArraySize(list) : 0;
}

/* A count from a file: what does not fit becomes 0. */
static int64_t whole(double value)
{
    return value >= -9e15 && value <= 9e15 ? (int64_t)value : 0;
}

static int64_t integer(const cJSON *object, const char *name)
{
    return whole(wf_log_number(object, name));
}

/* "2026-10-23T10:11:12Z" or with an offset; 0 when it is something else. */
static double seconds_of(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    if (!rest)
        return 0;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    long offset = 0;
    int hours, minutes;
    if ((*rest == '+' || *rest == '-') &&
        (sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2 || // NOLINT(cert-err34-c): two digits
         sscanf(rest + 1, "%2d%2d", &hours, &minutes) == 2))
        offset = (hours * 60L + minutes) * 60 * (*rest == '-' ? -1 : 1);
    const time_t at = timegm(&tm);
    return at > 0 ? (double)(at - offset) : 0;
}

/* --- one line --- */

/* JSON has no NaN, but printf does: bare words of that kind are taken out. */
static void without_bare_nan(char *line)
{
    static const char *const words[] = { "-Infinity", "Infinity", "-nan", "nan",
                                         "-inf",      "inf",      "-NaN", "NaN" };
    bool quoted = false;
    for (char *at = line; *at; at++) {
        if (quoted && *at == '\\' && at[1]) {
            at++;
            continue;
        }
        if (*at == '"')
            quoted = !quoted;
        if (quoted)
            continue;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const size_t n = strlen(words[i]);
            if (strncmp(at, words[i], n) != 0)
                continue;
            /* "null" does not fit into "nan"; an empty list is no number either. */
            memset(at, ' ', n);
            at[n - 2] = '[';
            at[n - 1] = ']';
            at += n - 1;
            break;
        }
    }
}

static cJSON *parse_object(const char *text)
{
    cJSON *const json = cJSON_Parse(text);
    if (cJSON_IsObject(json))
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* NULL for a line that is damaged beyond use. A program that was killed in the middle of a line may
 * have been followed by one that went on behind it: the last whole event counts. */
static cJSON *parse_line(struct wf_runlog *log, char *line)
{
    cJSON *json = parse_object(line);
    if (json)
        return json;
    without_bare_nan(line);
    json = parse_object(line);
    if (json)
        return json;
    log->damaged++;
    static const char opening[] = "{\"event\"";
    const char *last = NULL;
    for (const char *at = strstr(line, opening); at; at = strstr(at + 1, opening))
        last = at;
    return last && last != line ? parse_object(last) : NULL;
}

/* --- events --- */

static void take_ranks(struct wf_runlog *log, const cJSON *event)
{
    const cJSON *const list = list_of(event, "per_rank");
    if (!list)
        return;
    log->n_ranks = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        WF_GROW(log->ranks, log->room_ranks, log->n_ranks);
        log->ranks[log->n_ranks++] =
            (struct wf_log_rank){ .rank = integer(one, "rank"),
                                  .planned_bytes = wf_log_number(one, "planned_bytes"),
                                  .used_bytes = wf_log_number(one, "used_bytes") };
    }
}

/* What stood at the end of the log is not the end any more. */
static void go_on(struct wf_runlog *log)
{
    log->end = NULL;
    log->n_samples = 0;
    size_t kept = 0; /* those that say of which epoch they are are right for ever */
    for (size_t i = 0; i < log->n_confusions; i++)
        if (integer(log->confusions[i], "epoch") > 0)
            log->confusions[kept++] = log->confusions[i];
    log->n_confusions = kept;
}

/* A resumed run says again what it is: mesh and memory may be others now. */
static void take_start(struct wf_runlog *log, const cJSON *event)
{
    log->start = event;
    if (!log->begun) {
        log->begun = wf_log_text(event, "time");
        log->started = seconds_of(log->begun);
    }
    take_ranks(log, event);
    log->per_image = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(event, "per_image"));
}

static void take_step(struct wf_runlog *log, const cJSON *event)
{
    const int64_t step = integer(event, "step");
    while (log->n_steps > 0 && log->steps[log->n_steps - 1].step >= step)
        log->n_steps--;
    /* An epoch that ended with this step or later comes again, too. */
    while (log->n_epochs > 0 && log->epochs[log->n_epochs - 1].step >= step)
        log->n_epochs--;
    const struct wf_log_step *const before = log->n_steps ? &log->steps[log->n_steps - 1] : NULL;
    const double ms = wf_log_number(event, "ms");
    const double count = (double)(step - (before ? before->step : step - 1));
    const double until = before ? before->elapsed : 0;
    const double elapsed = isfinite(ms) ? until + count * ms / 1000 : until;
    const double clock = seconds_of(wf_log_text(event, "time"));
    WF_GROW(log->steps, log->room_steps, log->n_steps);
    log->steps[log->n_steps++] = (struct wf_log_step){
        .step = step,
        .epoch = integer(event, "epoch"),
        .elapsed = elapsed,
        .time = clock > 0 ? clock : log->started + elapsed,
        .loss = wf_log_number(event, "loss"),
        .lr = wf_log_number(event, "lr"),
        .mpx_per_s = wf_log_number(event, "mpx_per_s"),
        .ms = ms,
        .compute_ms = wf_log_number(event, "compute_ms"),
        .comm_ms = wf_log_number(event, "comm_ms"),
        .input_ms = wf_log_number(event, "input_ms"),
    };
    log->end = NULL;
}

static void take_epoch(struct wf_runlog *log, const cJSON *event)
{
    const int64_t epoch = integer(event, "epoch");
    while (log->n_epochs > 0 && log->epochs[log->n_epochs - 1].epoch >= epoch)
        log->n_epochs--;
    const cJSON *const val = cJSON_GetObjectItemCaseSensitive(event, "val");
    const cJSON *const staleness = cJSON_GetObjectItemCaseSensitive(event, "staleness");
    if (cJSON_IsArray(staleness))
        log->staleness = staleness;
    const struct wf_log_step *const last = log->n_steps ? &log->steps[log->n_steps - 1] : NULL;
    const int64_t step = integer(event, "step");
    const double clock = seconds_of(wf_log_text(event, "time"));
    WF_GROW(log->epochs, log->room_epochs, log->n_epochs);
    log->epochs[log->n_epochs++] = (struct wf_log_epoch){
        .epoch = epoch,
        .step = step == 0 && last ? last->step : step,
        .time = clock > 0 ? clock
                : last    ? last->time
                          : log->started,
        .train_loss = wf_log_number(event, "train_loss"),
        .val_loss = wf_log_number(val, "loss"),
        .mean_iou = wf_log_number(val, "mean_iou"),
        .accuracy = wf_log_number(val, "accuracy"),
        .top5 = wf_log_number(val, "top5"),
        .best = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(event, "best")),
        .val = cJSON_IsObject(val) ? val : NULL,
    };
}

static void take_sample(struct wf_runlog *log, const cJSON *event)
{
    WF_GROW(log->samples, log->room_samples, log->n_samples);
    log->samples[log->n_samples++] =
        (struct wf_log_sample){ .name = wf_log_text(event, "name"),
                                .image = wf_log_text(event, "image"),
                                .label = wf_log_text(event, "label"),
                                .prediction = wf_log_text(event, "prediction"),
                                .truth = wf_log_text(event, "truth"),
                                .guess = wf_log_text(event, "guess"),
                                .mean_iou = wf_log_number(event, "mean_iou"),
                                .epoch = integer(event, "epoch") };
}

/* False: nothing points into the event, and it can go. */
static bool take_event(struct wf_runlog *log, const cJSON *event)
{
    const char *const kind = wf_log_text(event, "event");
    if (!kind)
        return false;
    if (strcmp(kind, "step") == 0) {
        take_step(log, event);
        return false;
    }
    const bool resumes = strcmp(kind, "resume") == 0;
    if (resumes || strcmp(kind, "start") == 0) {
        log->resumed += resumes;
        go_on(log);
        if (!resumes || !log->start || wf_log_text(event, "model"))
            take_start(log, event);
    } else if (strcmp(kind, "epoch") == 0) {
        take_epoch(log, event);
    } else if (strcmp(kind, "sample") == 0) {
        take_sample(log, event);
    } else if (strcmp(kind, "confusion") == 0) {
        WF_GROW(log->confusions, log->room_confusions, log->n_confusions);
        log->confusions[log->n_confusions++] = event;
    } else if (strcmp(kind, "damaged") == 0) {
        log->lost_lines += integer(event, "lines");
        log->lost_epochs += integer(event, "epochs");
        log->lost_kept = wf_log_text(event, "kept");
    } else if (strcmp(kind, "end") == 0) {
        log->end = event;
        take_ranks(log, event);
    } else {
        return false;
    }
    return true;
}

static void take_line(struct wf_runlog *log, char *line)
{
    if (line[strspn(line, " \t\r\n")] == '\0')
        return;
    cJSON *const event = parse_line(log, line);
    if (!event)
        return;
    if (!take_event(log, event)) {
        cJSON_Delete(event);
        return;
    }
    WF_GROW(log->kept, log->room_kept, log->n_kept);
    log->kept[log->n_kept++] = event;
}

/* --- the whole --- */

/* Worst first; one without a number is last. */
static int by_iou(const void *a, const void *b)
{
    const double x = ((const struct wf_log_sample *)a)->mean_iou;
    const double y = ((const struct wf_log_sample *)b)->mean_iou;
    if (isnan(x) || isnan(y))
        return (isnan(x) ? 1 : 0) - (isnan(y) ? 1 : 0);
    return (x > y) - (x < y);
}

static void choose_confusion(struct wf_runlog *log)
{
    const struct wf_log_epoch *const best = wf_runlog_best(log);
    for (size_t i = log->n_confusions; i-- > 0;) {
        const int64_t epoch = integer(log->confusions[i], "epoch");
        if (log->confusion && !(best && epoch == best->epoch))
            continue;
        log->confusion = log->confusions[i];
        log->confusion_epoch = epoch;
        if (best && epoch == best->epoch)
            return;
    }
}

static void finish(struct wf_runlog *log)
{
    choose_confusion(log);
    if (log->n_samples > 1 && !log->per_image) /* a classifier's stand in their order */
        qsort(log->samples, log->n_samples, sizeof log->samples[0], by_iou);
    for (size_t i = 0; i < log->n_steps; i++)
        if (!isfinite(log->steps[i].loss) && log->bad_losses++ == 0)
            log->bad_loss_at = log->steps[i].step;
}

bool wf_runlog_read(struct wf_runlog *log, const char *path, struct wf_err *err)
{
    *log = (struct wf_runlog){ 0 };
    FILE *const file = fopen(path, "re");
    if (!file)
        return wf_err_set(err, WF_ERR_FAILED, "cannot open '%s': %s", path, wf_file_reason(errno));
    char *line = NULL;
    size_t room = 0;
    errno = 0;
    while (getline(&line, &room, file) >= 0)
        take_line(log, line);
    const bool ok = !ferror(file);
    const int reason = errno;
    free(line);
    (void)fclose(file); /* nothing was written: a failing close loses nothing */
    finish(log);
    if (ok)
        return true;
    wf_runlog_release(log);
    return wf_err_set(err, WF_ERR_FAILED, "cannot read '%s': %s", path, wf_file_reason(reason));
}

void wf_runlog_release(struct wf_runlog *log)
{
    for (size_t i = 0; i < log->n_kept; i++)
        cJSON_Delete(log->kept[i]);
    free(log->kept);
    free(log->steps);
    free(log->epochs);
    free(log->samples);
    free(log->ranks);
    free(log->confusions);
    wf_arena_release(&log->arena);
    *log = (struct wf_runlog){ 0 };
}

const struct wf_log_epoch *wf_runlog_best(const struct wf_runlog *log)
{
    const struct wf_log_epoch *last = NULL;
    for (size_t i = log->n_epochs; i-- > 0;) {
        const struct wf_log_epoch *const e = &log->epochs[i];
        if (e->best && e->val)
            return e;
        if (e->val && !last)
            last = e;
    }
    return last;
}

const cJSON *wf_runlog_scores(const struct wf_runlog *log)
{
    const struct wf_log_epoch *const best = wf_runlog_best(log);
    const cJSON *const metric = cJSON_GetObjectItemCaseSensitive(log->end, "metric");
    return best ? best->val : cJSON_IsObject(metric) ? metric : NULL;
}

int wf_runlog_classes(const struct wf_runlog *log)
{
    const cJSON *const scores = wf_runlog_scores(log);
    int count = wf_log_length(log->start, "classes");
    const int others[] = { wf_log_length(scores, "iou"), wf_log_length(scores, "dice"),
                           wf_log_length(log->confusion, "counts") };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] > count)
            count = others[i];
    return count;
}

const char *wf_runlog_class(struct wf_runlog *log, int i)
{
    const cJSON *const from[] = { log->start, log->confusion };
    for (size_t k = 0; k < sizeof from / sizeof from[0]; k++) {
        const cJSON *const names = list_of(from[k], "classes");
        const char *const name = names ? cJSON_GetStringValue(cJSON_GetArrayItem(names, i)) : NULL;
        if (name && *name)
            return name;
    }
    return wf_arena_printf(&log->arena, "class %d", i);
}
