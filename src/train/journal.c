#include "train/journal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static const double STEP_SECONDS = 0.2; /* between lines of steps */

struct wf_journal {
    int fd;
    char *path;
    double last_step; /* when a step was written, seconds */
};

static bool failed(const char *path, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", path, wf_file_reason(errno));
}

/* --- opening --- */

/* Length up to and with the last line end. */
static bool whole_lines(int fd, off_t *length)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    char c;
    for (*length = info.st_size; *length > 0; (*length)--) {
        if (pread(fd, &c, 1, *length - 1) != 1)
            return false;
        if (c == '\n')
            break;
    }
    return true;
}

struct wf_journal *wf_journal_open(const char *path, struct wf_err *err)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    off_t length = 0;
    if (fd < 0 || !whole_lines(fd, &length) || ftruncate(fd, length) != 0) {
        (void)failed(path, err);
        if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    struct wf_journal *const log = calloc(1, sizeof *log);
    WF_BUG_ON(!log, "out of memory");
    log->fd = fd;
    log->path = strdup(path);
    WF_BUG_ON(!log->path, "out of memory");
    return log;
}

void wf_journal_free(struct wf_journal *log)
{
    if (!log)
        return;
    (void)close(log->fd);
    free(log->path);
    free(log);
}

/* --- going back --- */

static double number_of(const cJSON *event, const char *key)
{
    const cJSON *const item = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static bool is_kept(const char *line, size_t length, const struct wf_position *at)
{
    cJSON *const event = cJSON_ParseWithLength(line, length);
    const cJSON *const name = cJSON_GetObjectItemCaseSensitive(event, "event");
    bool keep = cJSON_IsString(name);
    if (keep && strcmp(name->valuestring, "step") == 0)
        keep = number_of(event, "step") <= (double)at->step;
    else if (keep && strcmp(name->valuestring, "epoch") == 0)
        keep = number_of(event, "epoch") <= (double)at->epoch;
    else if (keep)
        keep = strcmp(name->valuestring, "end") != 0 && strcmp(name->valuestring, "sample") != 0 &&
               strcmp(name->valuestring, "confusion") != 0;
    cJSON_Delete(event);
    return keep;
}

static bool copy_kept(const char *text, size_t size, struct wf_outfile *out,
                      const struct wf_position *at, struct wf_err *err)
{
    for (size_t i = 0; text && i < size;) {
        const char *const end = memchr(text + i, '\n', size - i);
        if (!end)
            break; /* cut off */
        const size_t length = (size_t)(end - (text + i)) + 1;
        if (is_kept(text + i, length - 1, at) && !wf_outfile_write(out, text + i, length, err))
            return false;
        i += length;
    }
    return true;
}

bool wf_journal_rewind(const char *path, const struct wf_position *at, struct wf_err *err)
{
    if (access(path, F_OK) != 0)
        return true;
    struct wf_infile in;
    if (!wf_infile_open(&in, path, err))
        return false;
    const size_t size = (size_t)in.size;
    char *const text = malloc(size + 1);
    bool ok = text || wf_err_set(err, WF_ERR_FAILED, "no memory for '%s'", path);
    ok = ok && wf_infile_read(&in, 0, text, size, err);
    wf_infile_close(&in);
    struct wf_outfile out = { .fd = -1 };
    ok = ok && wf_outfile_begin(&out, path, err) && copy_kept(text, size, &out, at, err) &&
         wf_outfile_commit(&out, err);
    wf_outfile_drop(&out);
    free(text);
    return ok;
}

/* --- events --- */

void wf_json_add_real(cJSON *object, const char *key, double value)
{
    if (isfinite(value))
        (void)cJSON_AddNumberToObject(object, key, value);
    else
        (void)cJSON_AddNullToObject(object, key);
}

static void add_reals(cJSON *object, const char *key, const double *values, int count)
{
    cJSON *const list = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < count; i++)
        (void)cJSON_AddItemToArray(list, isfinite(values[i]) ? cJSON_CreateNumber(values[i])
                                                             : cJSON_CreateNull());
}

cJSON *wf_scores_json(const struct wf_scores *s)
{
    cJSON *const json = cJSON_CreateObject();
    add_reals(json, "iou", s->iou, s->classes);
    wf_json_add_real(json, "mean_iou", s->mean_iou);
    add_reals(json, "dice", s->dice, s->classes);
    wf_json_add_real(json, "mean_dice", s->mean_dice);
    add_reals(json, "class_accuracy", s->recall, s->classes);
    wf_json_add_real(json, "accuracy", s->accuracy);
    if (isfinite(s->top5))
        wf_json_add_real(json, "top5", s->top5);
    return json;
}

cJSON *wf_journal_event(const char *name)
{
    struct timespec t;
    struct tm utc;
    char time[32];
    (void)clock_gettime(CLOCK_REALTIME, &t);
    (void)gmtime_r(&t.tv_sec, &utc);
    (void)strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cJSON *const event = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(event, "event", name);
    (void)cJSON_AddStringToObject(event, "time", time);
    return event;
}

bool wf_journal_write(struct wf_journal *log, cJSON *event, struct wf_err *err)
{
    char *const text = cJSON_PrintUnformatted(event);
    cJSON_Delete(event);
    if (!text)
        return wf_err_set(err, WF_ERR_FAILED, "no memory for a line of '%s'", log->path);
    const size_t length = strlen(text);
    text[length] = '\n'; /* in place of the end: one write, so that a line is whole */
    const ssize_t put = write(log->fd, text, length + 1);
    cJSON_free(text);
    if (put == (ssize_t)length + 1)
        return true;
    if (put >= 0)
        errno = ENOSPC;
    return failed(log->path, err);
}

bool wf_journal_step(struct wf_journal *log, const struct wf_step_report *r, struct wf_err *err)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    const bool ends = r->at->batch == r->batches;
    if (log->last_step > 0 && !ends && !r->skipped && now - log->last_step < STEP_SECONDS)
        return true;
    log->last_step = now;
    cJSON *const event = wf_journal_event("step");
    (void)cJSON_AddNumberToObject(event, "step", (double)r->at->step);
    (void)cJSON_AddNumberToObject(event, "epoch", (double)r->at->epoch + 1);
    wf_json_add_real(event, "loss", r->loss);
    wf_json_add_real(event, "lr", r->lr);
    wf_json_add_real(event, "grad_norm", r->norm);
    if (r->skipped)
        (void)cJSON_AddTrueToObject(event, "skip");
    if (r->at->skipped > 0)
        (void)cJSON_AddNumberToObject(event, "skipped", (double)r->at->skipped);
    if (r->loss_scale != 1)
        wf_json_add_real(event, "loss_scale", r->loss_scale);
    wf_json_add_real(event, "mpx_per_s", r->pixels / r->seconds / 1e6);
    wf_json_add_real(event, "ms", 1e3 * r->seconds);
    wf_json_add_real(event, "compute_ms", 1e3 * r->compute);
    wf_json_add_real(event, "comm_ms", 1e3 * r->comm);
    wf_json_add_real(event, "input_ms", 1e3 * r->input);
    return wf_journal_write(log, event, err);
}

/* Gradients applied so far, by how many updates they were behind; up to the last that is not zero. */
static void add_staleness(cJSON *event, const struct wf_reply *server)
{
    int count = WF_STALENESS_MOST + 1;
    while (count > 0 && server->histogram[count - 1] == 0)
        count--;
    if (count == 0)
        return; /* the server waits for all: nothing is ever behind */
    cJSON *const list = cJSON_AddArrayToObject(event, "staleness");
    for (int i = 0; i < count; i++)
        (void)cJSON_AddItemToArray(list, cJSON_CreateNumber((double)server->histogram[i]));
}

bool wf_journal_epoch(struct wf_journal *log, const struct wf_epoch_report *r, struct wf_err *err)
{
    cJSON *const event = wf_journal_event("epoch");
    (void)cJSON_AddNumberToObject(event, "epoch", (double)r->epoch + 1);
    (void)cJSON_AddNumberToObject(event, "step", (double)r->step);
    wf_json_add_real(event, "train_loss", r->train_loss);
    if (r->server)
        add_staleness(event, r->server);
    if (r->validated) {
        struct wf_arena arena = { 0 };
        const struct wf_scores scores = wf_scores(&arena, wf_validator_metrics(r->validated));
        cJSON *const val = wf_scores_json(&scores);
        wf_json_add_real(val, "loss", wf_validator_loss(r->validated));
        cJSON_AddItemToObject(event, "val", val);
        wf_arena_release(&arena);
    }
    (void)cJSON_AddBoolToObject(event, "best", r->is_best);
    return wf_journal_write(log, event, err);
}
