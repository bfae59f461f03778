#include "report/report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "report/data.h"
#include "report/events.h"
#include "report/svg.h"

/* Made by the build from report.css and report.js. */
extern const char wf_report_css[], wf_report_js[], wf_report_js_sha256[];

enum { EVENT_CLASSES = 64 }; /* curves by class that TensorBoard gets at most */

/* --- event file --- */

/* A tag is a protobuf string, which is UTF-8 or the whole file is refused. */
static const char *class_tag(struct wf_runlog *log, int k)
{
    char *const tag = wf_arena_printf(&log->arena, "val_iou/%s", wf_runlog_class(log, k));
    const size_t bytes = strlen(tag);
    for (size_t i = 0, n; i < bytes; i += n ? n : 1) {
        n = wf_utf8_character(tag + i, bytes - i);
        if (n == 0)
            tag[i] = '_';
    }
    return tag;
}

static void add_row(struct wf_events *e, const struct wf_log_table *t, size_t row,
                    const char *const tags[])
{
    const struct wf_log_row *const r = &t->rows[row];
    for (int k = 0; k < t->columns; k++)
        if (tags[k] && !isnan(r->at[k]))
            wf_events_scalar(e, r->time, r->step, tags[k], r->at[k]);
}

static bool write_events(struct wf_report_data *d, struct wf_err *err)
{
    static const char *const of_steps[WF_LOG_STEP_COLUMNS] = {
        "train/loss",       "train/learning_rate", "speed/mpx_per_s", "speed/step_ms",
        "speed/compute_ms", "speed/comm_ms",       "speed/input_ms"
    };
    static const char *const of_epochs[WF_LOG_EPOCH_COLUMNS] = { "train/epoch_loss", "val/loss",
                                                                 "val/mean_iou", "val/accuracy" };
    struct wf_runlog *const log = &d->log;
    struct wf_events e = { 0 };
    wf_events_begin(&e, log->started);
    for (size_t i = 0; i < log->steps.n; i++) {
        const struct wf_log_row *const r = &log->steps.rows[i];
        if (isnan(r->at[WF_LOG_LOSS])) /* which is a fact to see there, too */
            wf_events_scalar(&e, r->time, r->step, of_steps[WF_LOG_LOSS], r->at[WF_LOG_LOSS]);
        add_row(&e, &log->steps, i, of_steps);
    }
    const int all = wf_runlog_classes(log), classes = all < EVENT_CLASSES ? all : EVENT_CLASSES;
    for (size_t i = 0; i < log->epochs.n; i++) {
        const struct wf_log_row *const r = &log->epochs.rows[i];
        add_row(&e, &log->epochs, i, of_epochs);
        for (int k = 0; k < classes; k++) {
            const cJSON *const iou = cJSON_GetArrayItem(wf_log_array(r->val, "iou"), k);
            if (cJSON_IsNumber(iou))
                wf_events_scalar(&e, r->time, r->step, class_tag(log, k), iou->valuedouble);
        }
    }
    char *const path = wf_arena_printf(&d->arena, "%s/events.out.tfevents.%.0f.widefield",
                                       d->folder, log->started);
    const bool ok = wf_events_write(&e, path, err);
    wf_events_release(&e);
    return ok;
}

/* --- page --- */

/* The script is allowed by its checksum, so that nothing else on the page can ever run. */
static void add_policy(struct wf_buffer *out)
{
    unsigned char digest[32];
    for (size_t i = 0; i < sizeof digest; i++) {
        const char pair[] = { wf_report_js_sha256[2 * i], wf_report_js_sha256[2 * i + 1], '\0' };
        digest[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    wf_buffer_text(out,
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "img-src data:; style-src 'unsafe-inline'; script-src 'sha256-");
    wf_buffer_base64(out, digest, sizeof digest);
    wf_buffer_text(out, "'\">\n");
}

/* Names and values of an object, as rows of a table. */
static void add_rows(struct wf_buffer *out, const cJSON *object)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, object)
    {
        if (!cJSON_IsNumber(one) && !cJSON_IsString(one))
            continue;
        wf_buffer_text(out, "<tr><td>");
        wf_markup_text(out, one->string);
        wf_buffer_text(out, "</td><td>");
        if (cJSON_IsNumber(one))
            wf_buffer_printf(out, fabs(one->valuedouble) < 1e6 ? "%.6g" : "%.0f", one->valuedouble);
        else
            wf_markup_text(out, one->valuestring);
        wf_buffer_text(out, "</td></tr>\n");
    }
}

/* What a browser without scripts shows. */
static void add_text(struct wf_buffer *out, const cJSON *json)
{
    wf_buffer_text(out, "<noscript><main>\n<h1>");
    wf_markup_text(out, wf_log_text(json, "name"));
    wf_buffer_text(out,
                   "</h1>\n<p>The main figures of this run: its curves, classes and samples are "
                   "drawn by the script of this page, which this browser does not run.</p>\n");
    wf_buffer_text(out, "<table>\n<tr><td>state</td><td>");
    wf_markup_text(out, wf_log_text(json, "state"));
    wf_buffer_text(out, "</td></tr>\n");
    add_rows(out, cJSON_GetObjectItemCaseSensitive(json, "figures"));
    add_rows(out, cJSON_GetObjectItemCaseSensitive(json, "facts"));
    wf_buffer_text(out, "</table>\n</main></noscript>\n");
}

static bool write_page(struct wf_report_data *d, struct wf_err *err)
{
    cJSON *const json = wf_data_json(d);
    char *const text = wf_data_print(json);
    struct wf_buffer page = { 0 }, *const out = &page;
    wf_buffer_text(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    add_policy(out);
    wf_buffer_text(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<link rel=\"icon\" href=\"data:,\">\n<title>");
    wf_markup_text(out, wf_log_text(json, "name"));
    wf_buffer_text(out, " · Widefield report</title>\n<style>\n");
    wf_buffer_text(out, wf_report_css);
    wf_buffer_text(out, "</style>\n</head>\n<body>\n");
    add_text(out, json);
    wf_buffer_text(out, "<script type=\"application/json\" id=\"run\">");
    wf_buffer_text(out, text ? text : "null");
    wf_buffer_text(out, "</script>\n<script>");
    wf_buffer_text(out, wf_report_js);
    wf_buffer_text(out, "</script>\n</body>\n</html>\n");
    WF_BUG_ON(page.size > WF_REPORT_BYTES_MAX, "%zu bytes", page.size);
    char *const path = wf_arena_printf(&d->arena, "%s/report.html", d->folder);
    const bool ok = wf_file_write(path, page.data, page.size, err);
    wf_buffer_release(out);
    free(text);
    cJSON_Delete(json);
    return ok;
}

/* The last part of where the folder really is: "." has a name, too. */
static const char *name_of(struct wf_arena *arena, const char *folder)
{
    char *const real = realpath(folder, NULL);
    const char *const slash = real ? strrchr(real, '/') : NULL;
    const char *const name = slash && slash[1] ? slash + 1 : folder;
    const char *const out = wf_arena_copy(arena, name);
    free(real);
    return out;
}

bool wf_report_write(const char *run_folder, struct wf_err *err)
{
    struct wf_report_data d = { .folder = run_folder };
    char *const path = wf_arena_printf(&d.arena, "%s/log.jsonl", run_folder);
    bool ok = true;
    enum wf_path_kind kind, log = WF_PATH_ABSENT;
    if (!wf_path_look(run_folder, &kind, err) || !wf_path_look(path, &log, err))
        ok = false;
    else if (kind == WF_PATH_ABSENT)
        ok = wf_err_set(err, WF_ERR_FAILED, "cannot open run folder '%s': %s", run_folder,
                        wf_file_reason(ENOENT));
    else if (log == WF_PATH_ABSENT)
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s' is no run folder: it has no log.jsonl: give the folder that "
                        "'widefield train' wrote",
                        run_folder);
    if (ok && wf_runlog_read(&d.log, path, err)) {
        d.name = name_of(&d.arena, run_folder);
        ok = write_page(&d, err) && write_events(&d, err);
        wf_runlog_release(&d.log);
    } else {
        ok = false;
    }
    wf_arena_release(&d.arena);
    return ok || wf_err_wrap(err, "writing the report");
}
