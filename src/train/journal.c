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

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

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
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    off_t length = 0;
    if (fd < 0 || !whole_lines(fd, &length) || ftruncate(fd, length) != 0) {
        (void)failed(path, err);
        if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    struct wf_journal *const log = wf_take_zeroed(1, sizeof *log);
    log->fd = fd;
    log->path = wf_take_text(path);
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

/* An event of ours in a whole line, or NULL. */
static cJSON *parse(const char *line, size_t length)
{
    static const char *const names[] = { "start",     "resume", "step",           "epoch",
                                         "confusion", "sample", "reconstruction", "codes",
                                         "damaged",   "end" };
    const char *end = NULL;
    cJSON *const event = cJSON_ParseWithLengthOpts(line, length, &end, false);
    const char *const name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "event"));
    bool known = false;
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        known = known || strcmp(name, names[i]) == 0;
    while (known && end < line + length)
        known = strchr(" \t\r", *end++) != NULL && end[-1];
    if (known)
        return event;
    cJSON_Delete(event);
    return NULL;
}

/* Whether a run that goes on from `at` has made the event already, and will not make it again. */
static bool is_before(const cJSON *event, const struct wf_position *at)
{
    const char *const name = cJSON_GetObjectItemCaseSensitive(event, "event")->valuestring;
    if (strcmp(name, "step") == 0)
        return number_of(event, "step") <= (double)at->step;
    if (strcmp(name, "epoch") == 0)
        return number_of(event, "epoch") <= (double)at->epoch;
    if (strcmp(name, "confusion") == 0)
        return number_of(event, "epoch") > 0 && number_of(event, "epoch") <= (double)at->epoch;
    static const char *const last[] = { "end", "sample", "reconstruction", "codes" };
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
        if (strcmp(name, last[i]) == 0)
            return false;
    return true;
}

/* What is kept, and what is missing. */
struct rewind {
    const struct wf_position *at;
    char *text;     /* the whole file; what is kept moves to its front */
    size_t kept;    /* bytes */
    int64_t lines;  /* damaged */
    double last;    /* the newest epoch that the log has */
    int64_t epochs; /* that it has, that were before it began, or are known to be lost */
    bool started;
};

static void count_epoch(struct rewind *r, const cJSON *event)
{
    const char *const name = cJSON_GetObjectItemCaseSensitive(event, "event")->valuestring;
    const double epoch = number_of(event, "epoch");
    if (strcmp(name, "epoch") == 0 && epoch > r->last) {
        r->last = epoch;
        r->epochs++;
    } else if (strcmp(name, "damaged") == 0) {
        r->epochs += (int64_t)number_of(event, "epochs");
    } else if (strcmp(name, "start") == 0 && !r->started) {
        /* It may have begun from another folder's checkpoint; older logs do not say with which epoch. */
        const bool unknown = epoch == 0 && number_of(event, "step") > 0;
        r->started = true;
        r->epochs += unknown ? r->at->epoch : (int64_t)epoch;
    }
}

static void take_line(struct rewind *r, const char *line, size_t length)
{
    cJSON *const event = parse(line, length);
    if (!event) {
        r->lines += length > strspn(line, " \t\r");
        return;
    }
    if (is_before(event, r->at)) {
        count_epoch(r, event);
        memmove(r->text + r->kept, line, length + 1);
        r->kept += length + 1;
    }
    cJSON_Delete(event);
}

/* The text ends with a zero. A last line that was cut off by a kill is no damage. */
static void take_lines(struct rewind *r, size_t size)
{
    size_t i = 0;
    for (const char *end; i < size && (end = memchr(r->text + i, '\n', size - i));) {
        const size_t length = (size_t)(end - (r->text + i));
        take_line(r, r->text + i, length);
        i += length + 1;
    }
    if (i < size && r->text[i] != '{')
        r->lines++;
}

/* "log.jsonl.damaged", or with a number where there was damage before. */
static bool put_aside(const char *path, char *kept, size_t room, struct wf_err *err)
{
    for (int i = 1; i < 1000; i++) {
        char number[16] = "";
        if (i > 1)
            (void)snprintf(number, sizeof number, "-%d", i);
        const int length = snprintf(kept, room, "%s.damaged%s", path, number);
        if (length >= 0 && (size_t)length < room && link(path, kept) == 0)
            return true;
        if (errno == EEXIST)
            continue;
        /* No links here: the new log takes the name a moment later. */
        if (errno == EPERM || errno == ENOTSUP || errno == ENOSYS)
            if (access(kept, F_OK) != 0 && errno == ENOENT && rename(path, kept) == 0)
                return true;
        break;
    }
    return wf_err_set(err, WF_ERR_FAILED, "cannot keep the damaged '%s' as '%s': %s", path, kept,
                      wf_file_reason(errno));
}

bool wf_journal_rewind(const char *path, const struct wf_position *at,
                       struct wf_journal_damage *damage, struct wf_err *err)
{
    *damage = (struct wf_journal_damage){ 0 };
    enum wf_path_kind kind;
    if (!wf_path_look(path, &kind, err))
        return false;
    damage->absent = kind == WF_PATH_ABSENT;
    damage->epochs = damage->absent ? at->epoch : 0;
    if (damage->absent)
        return true;
    size_t size = 0;
    struct rewind r = { .at = at, .text = wf_file_read(path, UINT64_MAX, &size, err) };
    if (!r.text)
        return false;
    take_lines(&r, size);
    damage->lines = r.lines;
    damage->epochs = r.epochs < at->epoch ? at->epoch - r.epochs : 0;
    bool ok = true;
    if (damage->lines || damage->epochs)
        ok = put_aside(path, damage->kept, sizeof damage->kept, err);
    ok = ok && wf_file_write(path, r.text, r.kept, err);
    free(r.text);
    return ok;
}

bool wf_journal_sync(struct wf_journal *log, struct wf_err *err)
{
    int synced;
    while ((synced = fdatasync(log->fd)) != 0 && errno == EINTR)
        continue;
    return synced == 0 || errno == EINVAL || failed(log->path, err);
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

void wf_domains_json(cJSON *to, const struct wf_domain_scores domains[], int count)
{
    if (count <= 1)
        return;
    cJSON *const list = cJSON_AddArrayToObject(to, "domains");
    for (int i = 1; i < count; i++) {
        cJSON *const one = wf_scores_json(&domains[i].scores);
        (void)cJSON_AddNumberToObject(one, "domain", domains[i].domain);
        wf_json_add_real(one, "loss", domains[i].loss);
        (void)cJSON_AddItemToArray(list, one);
    }
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
    if (!log) {
        cJSON_Delete(event);
        return true;
    }
    char *const plain = cJSON_PrintUnformatted(event);
    cJSON_Delete(event);
    if (!plain)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a line of '%s'", log->path);
    char *const text = wf_utf8_json(plain);
    cJSON_free(plain);
    const size_t length = strlen(text);
    text[length] = '\n'; /* in place of the end: one write, so that a line is whole */
    const ssize_t put = write(log->fd, text, length + 1);
    free(text);
    if (put == (ssize_t)length + 1)
        return true;
    if (put >= 0)
        errno = ENOSPC;
    return failed(log->path, err);
}

bool wf_journal_step(struct wf_journal *log, const struct wf_step_report *r, struct wf_err *err)
{
    const double now = wf_now();
    const bool ends = r->at->batch == r->batches;
    if (!log)
        return true;
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
        int count;
        const struct wf_domain_scores *const domains =
            wf_validator_domains(&arena, r->validated, &count);
        wf_domains_json(event, domains, count);
        wf_arena_release(&arena);
    }
    (void)cJSON_AddBoolToObject(event, "best", r->is_best);
    return wf_journal_write(log, event, err);
}
