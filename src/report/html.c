#include "report/html.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/units.h"

/* Made by the build from report.css and report.js. */
extern const char wf_report_css[], wf_report_js[], wf_report_js_sha256[];

/* Bounds of what is taken over; see html.h. */
enum { CONFIG_BYTES = 65536, FACTS_MAX = 80, EPOCH_ROWS = 300 };

/* --- small things --- */

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

bool wf_html_read(struct wf_html *h, const char *name, size_t most, struct wf_buffer *out)
{
    if (!name || !is_inside(name))
        return false;
    char *const path = wf_arena_printf(&h->page.arena, "%s/%s", h->folder, name);
    struct wf_err ignored = { 0 };
    struct wf_infile in;
    if (!wf_infile_open(&in, path, &ignored))
        return false;
    bool ok = in.size > 0 && in.size <= most;
    if (ok) {
        WF_GROW(out->data, out->room, (size_t)in.size);
        ok = wf_infile_read(&in, 0, out->data, (size_t)in.size, &ignored);
        out->size = ok ? (size_t)in.size : 0;
    }
    wf_infile_close(&in);
    return ok;
}

/* Seconds as "2 h 14 min". */
static const char *duration(struct wf_page *p, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e12))
        return "–";
    if (seconds < 120)
        return wf_text_seconds(&p->arena, seconds);
    const int64_t minutes = (int64_t)(seconds / 60 + 0.5);
    if (minutes < 60)
        return wf_arena_printf(&p->arena, "%" PRId64 " min", minutes);
    if (minutes < 48 * 60)
        return wf_arena_printf(&p->arena, "%" PRId64 " h %" PRId64 " min", minutes / 60,
                               minutes % 60);
    return wf_arena_printf(&p->arena, "%" PRId64 " days %" PRId64 " h", minutes / 1440,
                           minutes / 60 % 24);
}

/* What the run took, by its steps; NaN when they do not say. */
static double seconds_of(const struct wf_runlog *log)
{
    const double said = wf_log_number(log->end, "seconds");
    if (said > 0)
        return said;
    const double seconds = log->n_steps ? log->steps[log->n_steps - 1].elapsed : 0;
    return seconds > 0 ? seconds : (double)NAN;
}

/* --- head --- */

/* The script is allowed by its checksum, so that nothing else on the page can ever run. */
static void write_policy(struct wf_page *p)
{
    unsigned char digest[32];
    for (size_t i = 0; i < sizeof digest; i++) {
        const char *const digits = "0123456789abcdef";
        const char *const pair = wf_report_js_sha256 + 2 * i;
        digest[i] = (unsigned char)((strchr(digits, pair[0]) - digits) * 16 +
                                    (strchr(digits, pair[1]) - digits));
    }
    wf_page_raw(p, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "img-src data:; style-src 'unsafe-inline'; script-src 'sha256-");
    wf_buffer_base64(&p->out, digest, sizeof digest);
    wf_page_raw(p, "'\">\n");
}

static void write_head(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    wf_page_raw(p, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    write_policy(p);
    wf_page_raw(p, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<link rel=\"icon\" href=\"data:,\">\n<title>");
    wf_page_text(p, h->name);
    wf_page_raw(p, " · Widefield report</title>\n<style>\n");
    wf_page_raw(p, wf_report_css);
    wf_page_raw(p, "</style>\n</head>\n<body>\n");
}

static void write_badge(struct wf_html *h)
{
    const char *const stopped = wf_log_text(h->log.end, "stopped");
    const char *text = "finished", *kind = "";
    if (!h->log.end) {
        text = "unfinished";
        kind = " open";
    } else if (stopped && strcmp(stopped, "early") == 0) {
        text = "stopped early: no more progress";
    } else if (stopped && strcmp(stopped, "signal") == 0) {
        text = "stopped by a signal";
        kind = " open";
    }
    wf_page_printf(&h->page, " <span class=\"badge%s\">%s</span>", kind, text);
}

static void write_part(struct wf_page *p, const char *text, const char *unit, bool *any)
{
    if (!text || !*text)
        return;
    wf_page_raw(p, *any ? " · " : "");
    wf_page_text(p, text);
    wf_page_raw(p, unit);
    *any = true;
}

static void write_header(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const cJSON *const start = h->log.start;
    wf_page_raw(p, "<header><div><div><h1>");
    wf_page_text(p, h->name);
    write_badge(h);
    wf_page_raw(p, "</h1><p>");
    bool any = false;
    const double ranks = wf_log_number(start, "ranks");
    write_part(p, wf_log_text(start, "model"), "", &any);
    write_part(p, wf_log_text(start, "mesh"), "", &any);
    if (ranks >= 1)
        write_part(p, wf_page_number(p, ranks), ranks > 1 ? " ranks" : " rank", &any);
    write_part(p, wf_log_text(start, "device"), "", &any);
    write_part(p, wf_log_text(start, "precision"), "", &any);
    write_part(p, h->log.begun, "", &any);
    wf_page_raw(p, "</p></div><button id=\"theme\" type=\"button\" hidden>Dark</button></div>"
                   "</header>\n");
}

/* --- what needs attention --- */

static void write_alerts(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct wf_runlog *const log = &h->log;
    if (log->bad_losses)
        wf_page_printf(p,
                       "<p class=\"alert\">The loss was not a finite number in %zu of %zu logged "
                       "steps, first in step %" PRId64
                       ": try a smaller learning rate, or f32 instead of f16.</p>\n",
                       log->bad_losses, log->n_steps, log->bad_loss_at);
    if (log->damaged)
        wf_page_printf(p,
                       "<p class=\"alert\">%zu line%s of log.jsonl %s damaged and passed over, as "
                       "happens when a run is killed while it writes.</p>\n",
                       log->damaged, log->damaged > 1 ? "s" : "",
                       log->damaged > 1 ? "were" : "was");
    if (log->lost_lines || log->lost_epochs) {
        wf_page_printf(p,
                       "<p class=\"alert\">A part of log.jsonl is lost: when the run was resumed, "
                       "it had %" PRId64 " unreadable lines and lacked %" PRId64 " epochs.",
                       log->lost_lines, log->lost_epochs);
        if (log->lost_kept && *log->lost_kept) {
            wf_page_raw(p, " What it was then is kept as ");
            wf_page_text(p, log->lost_kept);
            wf_page_raw(p, ".");
        }
        wf_page_raw(p, "</p>\n");
    }
    if (!log->start && !log->n_steps)
        wf_page_raw(p, "<p class=\"alert\">The log has no step yet: write the report again when "
                       "training has begun.</p>\n");
}

/* --- tiles --- */

static void write_tile(struct wf_page *p, const char *what, const char *value, const char *more)
{
    wf_page_printf(p, "<div class=\"tile\"><span>%s</span><b>", what);
    wf_page_text(p, value);
    wf_page_raw(p, "</b>");
    if (more) {
        wf_page_raw(p, "<small>");
        wf_page_text(p, more);
        wf_page_raw(p, "</small>");
    }
    wf_page_raw(p, "</div>\n");
}

/* NULL when there is none. */
static const char *score_text(struct wf_page *p, double value)
{
    return isfinite(value) ? wf_arena_printf(&p->arena, "%.4f", value) : NULL;
}

static void write_result_tiles(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct wf_log_epoch *const best = wf_runlog_best(&h->log);
    const cJSON *const scores = wf_runlog_scores(&h->log);
    const char *const where =
        best ? wf_arena_printf(&p->arena, "validation, epoch %" PRId64, best->epoch) : "at the end";
    const char *const iou = score_text(p, wf_log_number(scores, "mean_iou"));
    const char *const accuracy = score_text(p, wf_log_number(scores, "accuracy"));
    const char *const top5 = score_text(p, wf_log_number(scores, "top5"));
    if (iou && !h->log.per_image)
        write_tile(p, "Mean IoU", iou, where);
    if (accuracy)
        write_tile(p, "Accuracy", accuracy, where);
    if (top5)
        write_tile(p, "Top-5 accuracy", top5, where);
    if (best && isfinite(best->val_loss))
        write_tile(p, "Validation loss", wf_page_number(p, best->val_loss), where);
    const struct wf_log_epoch *const last =
        h->log.n_epochs ? &h->log.epochs[h->log.n_epochs - 1] : NULL;
    if (last && isfinite(last->train_loss))
        write_tile(p, "Training loss", wf_page_number(p, last->train_loss),
                   wf_arena_printf(&p->arena, "mean of epoch %" PRId64, last->epoch));
    else if (h->log.n_steps)
        write_tile(p, "Training loss", wf_page_number(p, h->log.steps[h->log.n_steps - 1].loss),
                   "last step");
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_rate(struct wf_arena *arena, const struct wf_runlog *log)
{
    double *const rates = wf_arena_array(arena, log->n_steps + 1, double);
    size_t n = 0;
    for (size_t i = 0; i < log->n_steps; i++)
        if (isfinite(log->steps[i].mpx_per_s))
            rates[n++] = log->steps[i].mpx_per_s;
    qsort(rates, n, sizeof rates[0], by_value);
    return n ? rates[n / 2] : (double)NAN;
}

static void write_cost_tiles(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct wf_runlog *const log = &h->log;
    const int64_t steps = log->n_steps ? log->steps[log->n_steps - 1].step : 0;
    const char *const done = wf_arena_printf(&p->arena, "%s steps, %zu epochs",
                                             wf_text_count(&p->arena, steps), log->n_epochs);
    write_tile(p, "Training time", duration(p, seconds_of(log)), done);
    double rate = wf_log_number(log->end, "mpx_per_s");
    if (isnan(rate))
        rate = median_rate(&p->arena, log);
    if (isfinite(rate))
        write_tile(p, "Throughput", wf_arena_printf(&p->arena, "%.4g Mpx/s", rate), "all ranks");
    const double parameters = wf_log_number(log->start, "parameters");
    if (parameters >= 0 && parameters < 9e15)
        write_tile(p, "Parameters", wf_text_count(&p->arena, (int64_t)parameters),
                   wf_log_text(log->start, "model"));
    double most = (double)NAN;
    for (size_t i = 0; i < log->n_ranks; i++)
        most = fmax(most, log->ranks[i].used_bytes);
    if (isfinite(most))
        write_tile(p, "Memory per rank", wf_text_bytes(&p->arena, most),
                   log->n_ranks > 1 ? "the rank with the most" : NULL);
}

/* --- config and environment --- */

static void write_facts(struct wf_page *p, const cJSON *object, int *left)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const bool scalar = cJSON_IsNumber(item) || cJSON_IsString(item) || cJSON_IsBool(item);
        if (cJSON_IsObject(item)) {
            write_facts(p, item, left);
            continue;
        }
        if (!scalar || !item->string || strcmp(item->string, "event") == 0 || (*left)-- <= 0)
            continue;
        wf_page_raw(p, "<tr><td>");
        wf_page_text(p, item->string);
        wf_page_raw(p, "</td><td class=\"wrap\">");
        wf_page_text(p, cJSON_IsNumber(item)   ? wf_page_number(p, item->valuedouble)
                        : cJSON_IsString(item) ? item->valuestring
                        : cJSON_IsTrue(item)   ? "yes"
                                               : "no");
        wf_page_raw(p, "</td></tr>\n");
    }
}

static void write_setup(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    struct wf_buffer config = { 0 };
    wf_page_raw(p, "<section id=\"setup\"><h2>Config and environment</h2>\n<div class=\"two\">");
    wf_page_raw(p, "<div class=\"card\"><p class=\"note\">config.yaml</p><pre>");
    if (wf_html_read(h, "config.yaml", CONFIG_BYTES, &config))
        wf_page_text_n(p, config.data, config.size);
    else
        wf_page_raw(p, "There is none, or it is too long to be shown here.");
    wf_page_raw(p, "</pre></div>\n<div class=\"card scroll\"><table>\n");
    int left = FACTS_MAX;
    write_facts(p, h->log.start, &left);
    if (h->log.resumed)
        wf_page_printf(p, "<tr><td>resumed</td><td>%zu time%s</td></tr>\n", h->log.resumed,
                       h->log.resumed > 1 ? "s" : "");
    wf_page_raw(p, "</table></div></div></section>\n");
    wf_buffer_release(&config);
}

/* --- the epochs in numbers --- */

static void write_epochs(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct wf_runlog *const log = &h->log;
    if (log->n_epochs == 0)
        return;
    const size_t from = log->n_epochs > EPOCH_ROWS ? log->n_epochs - EPOCH_ROWS : 0;
    wf_page_printf(p,
                   "<details><summary>%s epochs in numbers</summary><div class=\"card scroll\">"
                   "<table><tr><th class=\"n\">epoch<th class=\"n\">step<th class=\"n\">train "
                   "loss<th class=\"n\">validation loss<th class=\"n\">accuracy"
                   "<th class=\"n\">%s<th></tr>\n",
                   from ? "The last" : "All", log->per_image ? "top-5" : "mean IoU");
    for (size_t i = from; i < log->n_epochs; i++) {
        const struct wf_log_epoch *const e = &log->epochs[i];
        wf_page_printf(p, "<tr><td class=\"n\">%" PRId64 "<td class=\"n\">%" PRId64, e->epoch,
                       e->step);
        const double values[] = { e->train_loss, e->val_loss, e->accuracy,
                                  log->per_image ? e->top5 : e->mean_iou };
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
            wf_page_printf(p, "<td class=\"n\">%s", wf_page_number(p, values[k]));
        wf_page_printf(p, "<td>%s</tr>\n", e->best ? "best so far" : "");
    }
    wf_page_raw(p, "</table></div></details>\n");
}

void wf_html_write(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    write_head(h);
    write_header(h);
    wf_page_raw(p, "<nav><div><a href=\"#curves\">Curves</a><a href=\"#classes\">Classes</a>"
                   "<a href=\"#samples\">Samples</a><a href=\"#memory\">Memory</a>"
                   "<a href=\"#time\">Time</a><a href=\"#setup\">Config</a></div></nav>\n<main>\n");
    write_alerts(h);
    wf_page_raw(p, "<div class=\"tiles\">\n");
    write_result_tiles(h);
    write_cost_tiles(h);
    wf_page_raw(p, "</div>\n<section id=\"curves\"><h2>Curves</h2>\n");
    wf_html_curves(h);
    write_epochs(h);
    wf_page_raw(p, "</section>\n");
    wf_html_classes(h);
    wf_html_samples(h);
    wf_html_memory(h);
    wf_html_time(h);
    write_setup(h);
    wf_page_raw(p, "<footer>Written by widefield " WF_VERSION_STRING
                   " from log.jsonl; everything is in this file.</footer>\n</main>\n<script>");
    wf_page_raw(p, wf_report_js);
    wf_page_raw(p, "</script>\n</body>\n</html>\n");
}
