#include "report/data.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/median.h"
#include "base/utf8.h"

/* Bounds of what is taken over. */
enum {
    TEXT_BYTES = 400,
    ITEMS_MAX = 1000, /* of a list or an object of the log */
    ITEM_BYTES = 24,  /* that one of them takes, apart from texts */
    ESCAPE = 6,       /* bytes that a byte of text becomes at most */
    FACTS_MAX = 80,   /* of an object */
    CLASSES_MAX = 200,
    CONFUSION_MAX = 32, /* classes */
    EPOCH_ROWS = 300,
    STRETCHES = 360, /* of a long series, two points each */
    RANK_ROWS = 64,
    CONFIG_BYTES = 65536,
    CONFIG_FILE_BYTES = 8 << 20, /* with the text of a network, which is not shown */
    IMAGE_BYTES = 1'000'000,     /* of a PNG file */
    SAMPLES_BYTES = 3'466'666,
    SAMPLES_MAX = 24,
    TIMELINE_BYTES = 900'000,
    NETWORK_BYTES = 300'000,
    DOMAINS_MAX = 16,
    VIEWS_BYTES = 900'000, /* pictures of reconstructions */
};

/* `text` as a page can show it: within a bound, control characters made visible. */
static const char *shown(struct wf_report_data *d, const char *text)
{
    char *const to = wf_arena_array(&d->arena, TEXT_BYTES, char);
    wf_utf8_shown(text, to, TEXT_BYTES);
    d->left -= ESCAPE * (int64_t)strlen(to);
    return strlen(text) < TEXT_BYTES ? to : wf_arena_printf(&d->arena, "%s…", to);
}

/* --- what the log says --- */

/* A copy of `item` within the bounds, `depth` levels down. */
static cJSON *copy(struct wf_report_data *d, const cJSON *item, int depth, int most)
{
    if (cJSON_IsString(item))
        return cJSON_CreateString(shown(d, item->valuestring));
    const bool is_list = cJSON_IsArray(item);
    if (!is_list && !cJSON_IsObject(item))
        return cJSON_Duplicate(item, false);
    cJSON *const out = is_list ? cJSON_CreateArray() : cJSON_CreateObject();
    int n = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, item)
    {
        if (depth == 0 || n++ == most || d->left < 0)
            break;
        d->left -= ITEM_BYTES;
        cJSON *const child = copy(d, one, depth - 1, ITEMS_MAX);
        if (is_list)
            (void)cJSON_AddItemToArray(out, child);
        else
            (void)cJSON_AddItemToObject(out, shown(d, one->string), child);
    }
    return out;
}

static void add_copy(struct wf_report_data *d, cJSON *to, const char *key, const cJSON *item,
                     int most)
{
    if (item)
        (void)cJSON_AddItemToObject(to, key, copy(d, item, 2, most));
}

/* --- the run in a few numbers --- */

/* What the end says, else the median of the steps, else NaN. */
static double rate_of(struct wf_report_data *d)
{
    const struct wf_log_table *const steps = &d->log.steps;
    const double said = wf_log_number(d->log.end, "mpx_per_s");
    double *const rates = wf_arena_array(&d->arena, steps->n + 1, double);
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++)
        if (isfinite(steps->rows[i].at[WF_LOG_RATE]))
            rates[n++] = steps->rows[i].at[WF_LOG_RATE];
    return !isnan(said) ? said : n ? wf_median(rates, (int64_t)n) : (double)NAN;
}

static void add_figure(cJSON *to, const char *name, double value)
{
    if (isfinite(value))
        (void)cJSON_AddNumberToObject(to, name, value);
}

static void add_figures(struct wf_report_data *d, cJSON *to)
{
    const struct wf_runlog *const log = &d->log;
    const struct wf_log_row *const best = wf_runlog_best(log), *step = wf_log_last(&log->steps),
                                   *const epoch = wf_log_last(&log->epochs);
    const cJSON *const scores = wf_runlog_scores(log);
    const double took = wf_log_number(log->end, "seconds"),
                 before = wf_log_number(log->end, "seconds_before"); /* it was resumed */
    const double seconds = took + (before > 0 ? before : 0);
    static const char *const names[] = { "mean_iou", "accuracy", "top5" };
    for (size_t i = log->per_image ? 1 : 0; i < sizeof names / sizeof *names; i++)
        add_figure(to, names[i], wf_log_number(scores, names[i]));
    if (best)
        add_figure(to, "val_loss", best->at[WF_LOG_VAL_LOSS]);
    if (epoch)
        add_figure(to, "train_loss", epoch->at[WF_LOG_TRAIN_LOSS]);
    add_figure(to, "epochs", (double)log->epochs.n);
    if (step) {
        add_figure(to, "steps", (double)step->step);
        add_figure(to, "last_loss", step->at[WF_LOG_LOSS]);
        add_figure(to, "seconds", seconds > 0 ? seconds : step->elapsed);
    }
    add_figure(to, "mpx_per_s", rate_of(d));
    add_figure(to, "parameters", wf_log_number(log->start, "parameters"));
    double most = (double)NAN;
    const cJSON *rank;
    cJSON_ArrayForEach(rank, log->ranks) most = fmax(most, wf_log_number(rank, "used_bytes"));
    add_figure(to, "used_bytes", most);
    if (log->bad_losses) {
        add_figure(to, "logged_steps", (double)log->steps.n);
        add_figure(to, "bad_losses", (double)log->bad_losses);
        add_figure(to, "first_bad_loss", (double)log->bad_loss_at);
    }
    if (log->damaged)
        add_figure(to, "damaged_lines", (double)log->damaged);
    if (log->lost_lines || log->lost_epochs) {
        add_figure(to, "lost_lines", (double)log->lost_lines);
        add_figure(to, "lost_epochs", (double)log->lost_epochs);
    }
}

/* What the run said when it started, but for its lists, which have their own places. */
static void add_facts(struct wf_report_data *d, cJSON *to)
{
    cJSON *const facts = cJSON_AddObjectToObject(to, "facts");
    int n = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, d->log.start)
    {
        if (!cJSON_IsArray(one) && strcmp(one->string, "event") != 0 && n++ < FACTS_MAX)
            add_copy(d, facts, shown(d, one->string), one, FACTS_MAX);
    }
    if (d->log.begun) /* not when it was resumed */
        (void)cJSON_AddStringToObject(to, "begun", shown(d, d->log.begun));
    if (d->log.lost_kept)
        (void)cJSON_AddStringToObject(to, "lost_kept", shown(d, d->log.lost_kept));
    (void)cJSON_AddNumberToObject(to, "resumed", (double)d->log.resumed);
}

static void add_classes(struct wf_report_data *d, cJSON *to)
{
    struct wf_runlog *const log = &d->log;
    const struct wf_log_row *const best = wf_runlog_best(log);
    const int classes = wf_runlog_classes(log);
    (void)cJSON_AddBoolToObject(to, "per_image", log->per_image);
    (void)cJSON_AddNumberToObject(to, "best_epoch", best ? (double)best->epoch : 0);
    (void)cJSON_AddBoolToObject(to, "is_best", best && best->best);
    (void)cJSON_AddNumberToObject(to, "n_classes", classes);
    cJSON *const names = cJSON_AddArrayToObject(to, "classes");
    for (int i = 0; i < classes && i < CLASSES_MAX; i++)
        (void)cJSON_AddItemToArray(names, cJSON_CreateString(shown(d, wf_runlog_class(log, i))));
    add_copy(d, to, "palette", wf_log_array(log->start, "palette"), CLASSES_MAX);
    add_copy(d, to, "scores", wf_runlog_scores(log), ITEMS_MAX);
    const cJSON *const counts = wf_log_array(log->confusion, "counts");
    if (cJSON_GetArraySize(counts) <= CONFUSION_MAX)
        add_copy(d, to, "confusion", counts, ITEMS_MAX);
    (void)cJSON_AddNumberToObject(to, "confusion_epoch", (double)log->confusion_epoch);
}

/* --- curves and tables --- */

/* A column of the log: steps, and what it says there. */
struct series {
    double *x, *y;
    size_t n;
};

/* A point whose y cannot be drawn is a gap. */
static bool drawable(double y)
{
    return fabs(y) < 1e100; /* false for NaN; and differences stay finite */
}

static struct series series_of(struct wf_arena *arena, const struct wf_log_table *table, int column)
{
    struct series s = { .x = wf_arena_array(arena, table->n + 1, double),
                        .y = wf_arena_array(arena, table->n + 1, double),
                        .n = table->n };
    for (size_t i = 0; i < s.n; i++) {
        s.x[i] = (double)table->rows[i].step;
        s.y[i] = drawable(table->rows[i].at[column]) ? table->rows[i].at[column] : (double)NAN;
    }
    return s;
}

/* Each value becomes the average of about n/40 values up to it, gaps passed over. */
static void smooth(struct series *s)
{
    const double keep = 1 - 1 / fmax(1, (double)s->n / 40);
    double sum = 0, weight = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (isnan(s->y[i]))
            continue;
        sum = keep * sum + s->y[i];
        weight = keep * weight + 1;
        s->y[i] = sum / weight;
    }
}

/* A long series is thinned to the least and the greatest value of each of a few hundred stretches, so that no
 * peak is lost. In place: a stretch of a long series has two points or more, so that none is overwritten unread. */
static void decimate(struct series *s)
{
    if (s->n <= 2 * STRETCHES)
        return;
    size_t count = 0;
    for (size_t k = 0; k < STRETCHES; k++) {
        const size_t from = s->n * k / STRETCHES, to = s->n * (k + 1) / STRETCHES;
        size_t least = from, most = from;
        for (size_t i = from; i < to; i++) {
            least = isnan(s->y[least]) || s->y[i] < s->y[least] ? i : least;
            most = isnan(s->y[most]) || s->y[i] > s->y[most] ? i : most;
        }
        const size_t at[2] = { least < most ? least : most, least < most ? most : least };
        const double x[2] = { s->x[at[0]], s->x[at[1]] }, y[2] = { s->y[at[0]], s->y[at[1]] };
        for (int i = 0; i < (at[0] == at[1] ? 1 : 2); i++) {
            s->x[count] = x[i];
            s->y[count++] = y[i];
        }
    }
    s->n = count;
}

/* cJSON would print seventeen digits. */
static void add_numbers(struct wf_report_data *d, cJSON *to, const char *key, const double *values,
                        size_t n, int digits)
{
    struct wf_buffer text = { 0 };
    for (size_t i = 0; i < n; i++) {
        wf_buffer_text(&text, i ? "," : "[");
        if (isfinite(values[i]))
            wf_buffer_printf(&text, "%.*g", digits, values[i]);
        else
            wf_buffer_text(&text, "null");
    }
    wf_buffer_text(&text, n ? "]" : "[]");
    (void)cJSON_AddRawToObject(to, key, text.data);
    d->left -= (int64_t)text.size;
    wf_buffer_release(&text);
}

static void add_series(struct wf_report_data *d, cJSON *to, const char *key, struct series s)
{
    cJSON *const one = cJSON_AddObjectToObject(to, key);
    decimate(&s);
    add_numbers(d, one, "x", s.x, s.n, 16);
    add_numbers(d, one, "y", s.y, s.n, 4);
}

/* Each column as a curve, and again as its moving average where that is asked for. */
static void add_curves(struct wf_report_data *d, cJSON *to, const char *key,
                       const struct wf_log_table *t, bool averages)
{
    cJSON *const all = cJSON_AddObjectToObject(to, key);
    for (int k = 0; k < t->columns; k++) {
        add_series(d, all, t->names[k], series_of(&d->arena, t, k));
        if (!averages)
            continue;
        struct series average = series_of(&d->arena, t, k);
        smooth(&average);
        add_series(d, all, wf_arena_printf(&d->arena, "%s_average", t->names[k]), average);
    }
}

/* The last epochs: epoch, step, is it the best so far, and the columns. */
static void add_epoch_rows(struct wf_report_data *d, cJSON *to)
{
    const struct wf_log_table *const t = &d->log.epochs;
    cJSON *const rows = cJSON_AddArrayToObject(to, "epoch_rows");
    for (size_t i = t->n > EPOCH_ROWS ? t->n - EPOCH_ROWS : 0; i < t->n; i++) {
        const struct wf_log_row *const e = &t->rows[i];
        cJSON *const row = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(row, "epoch", (double)e->epoch);
        (void)cJSON_AddNumberToObject(row, "step", (double)e->step);
        (void)cJSON_AddBoolToObject(row, "best", e->best);
        for (int k = 0; k < t->columns; k++) /* NaN is printed as null */
            (void)cJSON_AddNumberToObject(row, t->names[k], e->at[k]);
        (void)cJSON_AddItemToArray(rows, row);
        d->left -= ITEM_BYTES * (t->columns + 3);
    }
    (void)cJSON_AddNumberToObject(to, "n_epochs", (double)t->n);
}

/* --- domains --- */

/* What an epoch's validation said of a domain: of the first one, or of the target of that number. */
static const cJSON *scores_of(const struct wf_log_row *row, int domain)
{
    const cJSON *one;
    if (domain == 0)
        return row->val;
    cJSON_ArrayForEach(one, row->domains)
    {
        if (wf_log_number(one, "domain") == (double)domain)
            return one;
    }
    return NULL;
}

/* The metric of each domain over the epochs. */
static void add_domain_curve(struct wf_report_data *d, cJSON *to, int domain)
{
    const struct wf_log_table *const t = &d->log.epochs;
    struct series s = series_of(&d->arena, t, 0);
    for (size_t i = 0; i < t->n; i++)
        s.y[i] = wf_log_number(scores_of(&t->rows[i], domain),
                               d->log.per_image ? "accuracy" : "mean_iou");
    add_series(d, to, "curve", s);
}

/* Of a network of several: each domain's data, its scores in the best epoch, its curve; the codes of all. */
static void add_domains(struct wf_report_data *d, cJSON *to)
{
    const cJSON *const names = wf_log_array(d->log.start, "domains");
    const struct wf_log_row *const best = wf_runlog_best(&d->log);
    const int count = cJSON_GetArraySize(names);
    if (count == 0)
        return;
    cJSON *const list = cJSON_AddArrayToObject(to, "domains");
    for (int k = 0; k < count && k < DOMAINS_MAX; k++) {
        const char *const name = cJSON_GetStringValue(cJSON_GetArrayItem(names, k));
        cJSON *const one = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(one, "data", shown(d, name ? name : ""));
        add_copy(d, one, "scores", best ? scores_of(best, k) : NULL, ITEMS_MAX);
        add_domain_curve(d, one, k);
        (void)cJSON_AddItemToArray(list, one);
    }
    (void)cJSON_AddNumberToObject(to, "n_domains", count);
    static const char *const codes[] = { "shared", "private", "shared_share", "private_share" };
    cJSON *const points = cJSON_AddObjectToObject(to, "codes");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        add_copy(d, points, codes[i], wf_log_array(d->log.codes, codes[i]), DOMAINS_MAX);
}

/* Milliseconds of the mean step, and of its parts; a row of the log stands for all steps since the one
 * before it. Nothing where the log does not tell the parts apart. */
static void add_mean_ms(struct wf_report_data *d, cJSON *to)
{
    const struct wf_log_table *const t = &d->log.steps;
    double sums[WF_LOG_STEP_COLUMNS] = { 0 }, weight = 0;
    bool known = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct wf_log_row *const s = &t->rows[i];
        const double steps = i ? (double)(s->step - t->rows[i - 1].step) : 1;
        if (!(s->at[WF_LOG_MS] >= 0 && s->at[WF_LOG_MS] < 1e12))
            continue;
        weight += steps;
        for (int k = WF_LOG_MS; k <= WF_LOG_INPUT_MS; k++)
            if (s->at[k] >= 0 && s->at[k] < 1e12) {
                sums[k] += steps * s->at[k];
                known = known || k > WF_LOG_MS;
            }
    }
    if (!known || !(weight > 0))
        return;
    cJSON *const means = cJSON_AddObjectToObject(to, "mean_ms");
    for (int k = WF_LOG_MS; k <= WF_LOG_INPUT_MS; k++)
        (void)cJSON_AddNumberToObject(means, t->names[k], sums[k] / weight);
}

/* --- files of the run folder --- */

/* A relative name without "..", so that it stays in the folder. */
static bool is_inside(const char *name)
{
    for (const char *at = name;; at++) {
        const size_t n = strcspn(at, "/");
        if (n == 0 || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += n;
        if (!*at)
            return true;
    }
}

/* False when it is not there, empty, longer than `most`, or named so that it might lie elsewhere. */
static bool read_file(struct wf_report_data *d, const char *name, size_t most,
                      struct wf_buffer *out)
{
    struct wf_err ignored = { 0 };
    struct wf_infile in;
    if (!name || !is_inside(name) ||
        !wf_infile_open(&in, wf_arena_printf(&d->arena, "%s/%s", d->folder, name), &ignored))
        return false;
    bool ok = in.size > 0 && in.size <= most;
    if (ok) {
        WF_GROW(out->data, out->room, (size_t)in.size);
        ok = wf_infile_read(&in, 0, out->data, (size_t)in.size, &ignored);
        out->data[in.size] = '\0';
        out->size = (size_t)in.size;
    }
    wf_infile_close(&in);
    return ok;
}

/* A picture as a "data:" address, and so without anything in it that could run; NULL when there is no
 * such file, it does not begin with `lead`, or the page has no room for it. */
static cJSON *picture(struct wf_report_data *d, const char *name, size_t most, const char *kind,
                      const char *lead)
{
    struct wf_buffer file = { 0 }, url = { 0 };
    cJSON *item = NULL;
    if (read_file(d, name, most, &file) && file.size > strlen(lead) &&
        memcmp(file.data, lead, strlen(lead)) == 0 && (int64_t)file.size * 4 / 3 < d->left) {
        wf_buffer_printf(&url, "data:image/%s;base64,", kind);
        wf_buffer_base64(&url, file.data, file.size);
        item = cJSON_CreateString(url.data);
        d->left -= (int64_t)url.size;
    }
    wf_buffer_release(&file);
    wf_buffer_release(&url);
    return item;
}

/* A sample or a reconstruction, with its pictures instead of their names. */
static cJSON *sample(struct wf_report_data *d, const cJSON *event)
{
    static const char *const names[] = {
        "image", "label", "prediction", "shared", "private", "both"
    };
    cJSON *const one = copy(d, event, 1, ITEMS_MAX);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        cJSON *const url =
            picture(d, wf_log_text(event, names[k]), IMAGE_BYTES, "png", "\x89PNG\r\n\x1A\n");
        cJSON_DeleteItemFromObjectCaseSensitive(one, names[k]);
        if (url)
            (void)cJSON_AddItemToObject(one, names[k], url);
    }
    return one;
}

/* As many as `most`, and as `bytes` have room for. */
static void add_pictures(struct wf_report_data *d, cJSON *to, const char *key,
                         const struct wf_log_list *all, size_t most, int64_t bytes)
{
    const int64_t least = d->left - bytes;
    cJSON *const list = cJSON_AddArrayToObject(to, key);
    for (size_t i = 0; i < all->n && i < most; i++) {
        cJSON *const one = sample(d, all->at[i]);
        if (d->left < least || d->left < 0) {
            cJSON_Delete(one);
            break;
        }
        (void)cJSON_AddItemToArray(list, one);
    }
}

static void add_samples(struct wf_report_data *d, cJSON *to)
{
    add_pictures(d, to, "samples", &d->log.samples, SAMPLES_MAX, SAMPLES_BYTES);
    (void)cJSON_AddNumberToObject(to, "n_samples", (double)d->log.samples.n);
}

static void add_config(struct wf_report_data *d, cJSON *to)
{
    struct wf_buffer config = { 0 };
    if (read_file(d, "config.yaml", CONFIG_FILE_BYTES, &config)) {
        char *const network = strstr(config.data, "\n  network: \"");
        const char *const end = network ? strchr(network + 1, '\n') : NULL;
        if (end) /* network.yaml is the one to read */
            memmove(network, end, strlen(end) + 1);
        const size_t size = strlen(config.data);
        if (size <= CONFIG_BYTES) {
            (void)cJSON_AddStringToObject(to, "config", config.data);
            d->left -= ESCAPE * (int64_t)size;
        }
    }
    wf_buffer_release(&config);
}

/* --- the whole --- */

cJSON *wf_data_json(struct wf_report_data *d)
{
    const struct wf_runlog *const log = &d->log;
    const char *const stopped = log->end ? wf_log_text(log->end, "stopped") : "unfinished";
    cJSON *const json = cJSON_CreateObject();
    d->left = WF_DATA_BYTES;
    (void)cJSON_AddStringToObject(json, "version", WF_VERSION_STRING);
    (void)cJSON_AddStringToObject(json, "name", shown(d, d->name));
    (void)cJSON_AddStringToObject(json, "state", shown(d, stopped ? stopped : "done"));
    add_figures(d, cJSON_AddObjectToObject(json, "figures"));
    /* What has bounds of its own first; then what the log may hold any amount of; then pictures. */
    add_curves(d, json, "steps", &log->steps, true);
    add_curves(d, json, "epochs", &log->epochs, false);
    add_epoch_rows(d, json);
    add_mean_ms(d, json);
    add_domains(d, json);
    add_copy(d, json, "seconds_by", cJSON_GetObjectItemCaseSensitive(d->log.end, "seconds_by"),
             ITEMS_MAX);
    add_config(d, json);
    add_classes(d, json);
    add_copy(d, json, "ranks", log->ranks, RANK_ROWS);
    (void)cJSON_AddNumberToObject(json, "n_ranks", cJSON_GetArraySize(log->ranks));
    add_copy(d, json, "staleness", log->staleness, ITEMS_MAX);
    add_facts(d, json);
    /* One step of every rank, as the run drew it when it ended. */
    cJSON *const network = picture(d, "network.svg", NETWORK_BYTES, "svg+xml", "<svg ");
    if (network)
        (void)cJSON_AddItemToObject(json, "network", network);
    cJSON *const timeline = picture(d, "timeline.svg", TIMELINE_BYTES, "svg+xml", "<svg ");
    if (timeline)
        (void)cJSON_AddItemToObject(json, "timeline", timeline);
    add_pictures(d, json, "reconstructions", &log->reconstructions, SAMPLES_MAX, VIEWS_BYTES);
    add_samples(d, json);
    return json;
}

char *wf_data_print(const cJSON *json)
{
    struct wf_buffer out = { 0 };
    char *const plain = cJSON_PrintUnformatted(json);
    char *const text = plain ? wf_utf8_json(plain) : NULL;
    for (const char *at = text; at && *at;) {
        const size_t n = strcspn(at, "<>&"); /* only strings have them */
        wf_buffer_add(&out, at, n);
        at += n;
        if (*at)
            wf_buffer_printf(&out, "\\u%04x", (unsigned)*at++);
    }
    free(text);
    free(plain);
    return out.data;
}
