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

double wf_log_number(const cJSON *object, const char *name)
{
    const cJSON *const item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

const char *wf_log_text(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

const cJSON *wf_log_array(const cJSON *object, const char *name)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsArray(list) ? list : NULL;
}

/* A count from a file: what does not fit becomes 0. */
static int64_t integer(const cJSON *object, const char *name)
{
    const double value = wf_log_number(object, name);
    return value >= -9e15 && value <= 9e15 ? (int64_t)value : 0;
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

static void keep(struct wf_log_list *list, cJSON *event)
{
    WF_GROW(list->at, list->room, list->n);
    list->at[list->n++] = event;
}

/* What stood at the end of the log is not the end any more. */
static void go_on(struct wf_runlog *log)
{
    log->end = NULL;
    log->samples.n = log->reconstructions.n = 0;
    log->codes = NULL;
    struct wf_log_list *const all = &log->confusions;
    size_t kept = 0; /* those that say of which epoch they are are right for ever */
    for (size_t i = 0; i < all->n; i++)
        if (integer(all->at[i], "epoch") > 0)
            all->at[kept++] = all->at[i];
    all->n = kept;
}

static void take_ranks(struct wf_runlog *log, const cJSON *event)
{
    const cJSON *const list = wf_log_array(event, "per_rank");
    log->ranks = list ? list : log->ranks;
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

/* A row with the columns that `event` has; `otherwise` is its time where the event has no clock. */
static struct wf_log_row *add_row(struct wf_log_table *t, const cJSON *event, double otherwise)
{
    WF_GROW(t->rows, t->room, t->n);
    struct wf_log_row *const row = &t->rows[t->n++];
    const double clock = seconds_of(wf_log_text(event, "time"));
    *row = (struct wf_log_row){ .step = integer(event, "step"),
                                .epoch = integer(event, "epoch"),
                                .time = clock > 0 ? clock : otherwise };
    for (int k = 0; k < t->columns; k++)
        row->at[k] = wf_log_number(event, t->names[k]);
    return row;
}

static void take_step(struct wf_runlog *log, const cJSON *event)
{
    struct wf_log_table *const steps = &log->steps, *const epochs = &log->epochs;
    const int64_t step = integer(event, "step");
    while (steps->n > 0 && steps->rows[steps->n - 1].step >= step)
        steps->n--;
    /* An epoch that ended with this step or later comes again, too. */
    while (epochs->n > 0 && epochs->rows[epochs->n - 1].step >= step)
        epochs->n--;
    const struct wf_log_row *const before = wf_log_last(steps);
    const double ms = wf_log_number(event, "ms");
    const double count = before ? (double)(step - before->step) : 1;
    const double until = before ? before->elapsed : 0;
    const double elapsed = isfinite(ms) ? until + count * ms / 1000 : until;
    add_row(steps, event, log->started + elapsed)->elapsed = elapsed;
    log->end = NULL;
}

static void take_epoch(struct wf_runlog *log, const cJSON *event)
{
    struct wf_log_table *const epochs = &log->epochs;
    const int64_t epoch = integer(event, "epoch");
    while (epochs->n > 0 && epochs->rows[epochs->n - 1].epoch >= epoch)
        epochs->n--;
    const cJSON *const staleness = wf_log_array(event, "staleness");
    log->staleness = staleness ? staleness : log->staleness;
    const struct wf_log_row *const last = wf_log_last(&log->steps);
    struct wf_log_row *const row = add_row(epochs, event, last ? last->time : log->started);
    if (row->step == 0 && last)
        row->step = last->step;
    row->best = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(event, "best"));
    const cJSON *const val = cJSON_GetObjectItemCaseSensitive(event, "val");
    row->val = cJSON_IsObject(val) ? val : NULL;
    row->domains = wf_log_array(event, "domains");
    row->at[WF_LOG_VAL_LOSS] = wf_log_number(val, "loss");
    row->at[WF_LOG_MEAN_IOU] = wf_log_number(val, "mean_iou");
    row->at[WF_LOG_ACCURACY] = wf_log_number(val, "accuracy");
    row->at[WF_LOG_TOP5] = wf_log_number(val, "top5");
}

/* False: nothing points into the event, and it can go. */
static bool take_event(struct wf_runlog *log, cJSON *event)
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
        keep(&log->samples, event);
    } else if (strcmp(kind, "reconstruction") == 0) {
        keep(&log->reconstructions, event);
    } else if (strcmp(kind, "codes") == 0) {
        log->codes = event;
    } else if (strcmp(kind, "confusion") == 0) {
        keep(&log->confusions, event);
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
    if (event && take_event(log, event))
        keep(&log->kept, event);
    else
        cJSON_Delete(event);
}

/* --- the whole --- */

/* Worst first; one without a number is last. */
static int by_iou(const void *a, const void *b)
{
    const double x = wf_log_number(*(const cJSON *const *)a, "mean_iou");
    const double y = wf_log_number(*(const cJSON *const *)b, "mean_iou");
    if (isnan(x) || isnan(y))
        return (isnan(x) ? 1 : 0) - (isnan(y) ? 1 : 0);
    return (x > y) - (x < y);
}

static void choose_confusion(struct wf_runlog *log)
{
    const struct wf_log_row *const best = wf_runlog_best(log);
    for (size_t i = log->confusions.n; i-- > 0;) {
        const int64_t epoch = integer(log->confusions.at[i], "epoch");
        if (log->confusion && !(best && epoch == best->epoch))
            continue;
        log->confusion = log->confusions.at[i];
        log->confusion_epoch = epoch;
        if (best && epoch == best->epoch)
            return;
    }
}

static void finish(struct wf_runlog *log)
{
    choose_confusion(log);
    if (log->samples.n > 1 && !log->per_image) /* a classifier's stand in their order */
        qsort(log->samples.at, log->samples.n, sizeof log->samples.at[0], by_iou);
    for (size_t i = 0; i < log->steps.n; i++)
        if (!isfinite(log->steps.rows[i].at[WF_LOG_LOSS]) && log->bad_losses++ == 0)
            log->bad_loss_at = log->steps.rows[i].step;
}

bool wf_runlog_read(struct wf_runlog *log, const char *path, struct wf_err *err)
{
    static const char *const steps[] = { "loss",       "lr",      "mpx_per_s", "ms",
                                         "compute_ms", "comm_ms", "input_ms" };
    static const char *const epochs[] = { "train_loss", "val_loss", "mean_iou", "accuracy",
                                          "top5" };
    *log = (struct wf_runlog){ .steps = { .columns = WF_LOG_STEP_COLUMNS, .names = steps },
                               .epochs = { .columns = WF_LOG_EPOCH_COLUMNS, .names = epochs } };
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
    for (size_t i = 0; i < log->kept.n; i++)
        cJSON_Delete(log->kept.at[i]);
    free(log->kept.at);
    free(log->steps.rows);
    free(log->epochs.rows);
    free(log->samples.at);
    free(log->reconstructions.at);
    free(log->confusions.at);
    wf_arena_release(&log->arena);
    *log = (struct wf_runlog){ 0 };
}

/* --- what it comes to --- */

const struct wf_log_row *wf_log_last(const struct wf_log_table *t)
{
    return t->n ? &t->rows[t->n - 1] : NULL;
}

const struct wf_log_row *wf_runlog_best(const struct wf_runlog *log)
{
    const struct wf_log_row *last = NULL;
    for (size_t i = log->epochs.n; i-- > 0;) {
        const struct wf_log_row *const e = &log->epochs.rows[i];
        if (e->best && e->val)
            return e;
        if (e->val && !last)
            last = e;
    }
    return last;
}

const cJSON *wf_runlog_scores(const struct wf_runlog *log)
{
    const struct wf_log_row *const best = wf_runlog_best(log);
    const cJSON *const metric = cJSON_GetObjectItemCaseSensitive(log->end, "metric");
    return best ? best->val : cJSON_IsObject(metric) ? metric : NULL;
}

int wf_runlog_classes(const struct wf_runlog *log)
{
    const cJSON *const scores = wf_runlog_scores(log);
    const cJSON *const lists[] = { wf_log_array(log->start, "classes"), wf_log_array(scores, "iou"),
                                   wf_log_array(scores, "dice"),
                                   wf_log_array(log->confusion, "counts") };
    int count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (cJSON_GetArraySize(lists[i]) > count)
            count = cJSON_GetArraySize(lists[i]);
    return count;
}

const char *wf_runlog_class(struct wf_runlog *log, int i)
{
    const cJSON *const from[] = { log->start, log->confusion };
    for (size_t k = 0; k < sizeof from / sizeof from[0]; k++) {
        const cJSON *const names = wf_log_array(from[k], "classes");
        const char *const name = cJSON_GetStringValue(cJSON_GetArrayItem(names, i));
        if (name && *name)
            return name;
    }
    return wf_arena_printf(&log->arena, "class %d", i);
}
