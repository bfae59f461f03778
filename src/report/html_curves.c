/* Curves, memory and time: what the log says step by step and rank by rank. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/units.h"
#include "report/chart.h"
#include "report/html.h"

enum { RANK_ROWS = 64 };

/* --- columns of the log as series --- */

/* The double at `offset` in each of `n` items that are `stride` bytes apart. */
static double *column(struct wf_arena *arena, const void *items, size_t n, size_t stride,
                      size_t offset)
{
    double *const out = wf_arena_array(arena, n + 1, double);
    for (size_t i = 0; i < n; i++)
        memcpy(&out[i], (const char *)items + i * stride + offset, sizeof out[i]);
    return out;
}
#define STEPS(c, member)                                                                           \
    column((c)->arena, (c)->log->steps, (c)->log->n_steps, sizeof(struct wf_log_step),             \
           offsetof(struct wf_log_step, member))
#define EPOCHS(c, member)                                                                          \
    column((c)->arena, (c)->log->epochs, (c)->log->n_epochs, sizeof(struct wf_log_epoch),          \
           offsetof(struct wf_log_epoch, member))

struct columns {
    struct wf_arena *arena;
    const struct wf_runlog *log;
    double *step, *epoch_step; /* x of what is known by step, and by epoch */
};

static struct columns columns(struct wf_html *h)
{
    struct columns c = { .arena = &h->page.arena, .log = &h->log };
    c.step = wf_arena_array(c.arena, h->log.n_steps + 1, double);
    for (size_t i = 0; i < h->log.n_steps; i++)
        c.step[i] = (double)h->log.steps[i].step;
    c.epoch_step = wf_arena_array(c.arena, h->log.n_epochs + 1, double);
    for (size_t i = 0; i < h->log.n_epochs; i++)
        c.epoch_step[i] = (double)h->log.epochs[i].step;
    return c;
}

static struct wf_series by_step(const struct columns *c, const char *name, int colour,
                                const double *y)
{
    return (struct wf_series){
        .name = name, .colour = colour, .x = c->step, .y = y, .n = c->log->n_steps
    };
}

static struct wf_series by_epoch(const struct columns *c, const char *name, int colour,
                                 const double *y)
{
    return (struct wf_series){ .name = name,
                               .colour = colour,
                               .dots = true,
                               .x = c->epoch_step,
                               .y = y,
                               .n = c->log->n_epochs };
}

static struct wf_series as_faint(struct wf_series s, const char *name)
{
    s.faint = true;
    s.name = name;
    return s;
}

/* --- curves --- */

static bool has_any(const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isfinite(y[i]))
            return true;
    return false;
}

static bool write_loss(struct wf_html *h, const struct columns *c)
{
    const struct wf_runlog *const log = c->log;
    const double *const loss = STEPS(c, loss);
    const double *const val = EPOCHS(c, val_loss);
    const double *const smooth = wf_series_smooth(c->arena, loss, log->n_steps);
    const struct wf_series series[] = {
        as_faint(by_step(c, "", 1, loss), "each step"),
        by_step(c, "training", 1, smooth),
        by_epoch(c, "validation", 2, val),
    };
    return wf_chart_write(&h->page,
                          &(struct wf_chart){ .title = "Loss",
                                              .series = series,
                                              .n_series = has_any(val, log->n_epochs) ? 3 : 2,
                                              .logarithmic = true });
}

static bool write_scores(struct wf_html *h, const struct columns *c)
{
    const struct wf_runlog *const log = c->log;
    const double *const iou = log->per_image ? EPOCHS(c, top5) : EPOCHS(c, mean_iou);
    const double *const accuracy = EPOCHS(c, accuracy);
    struct wf_series series[2];
    int n = 0;
    if (has_any(iou, log->n_epochs))
        series[n++] = by_epoch(c, log->per_image ? "top-5" : "mean IoU", 3, iou);
    if (has_any(accuracy, log->n_epochs))
        series[n++] = by_epoch(c, "accuracy", 4, accuracy);
    return wf_chart_write(
        &h->page, &(struct wf_chart){ .title = "Validation", .series = series, .n_series = n });
}

void wf_html_curves(struct wf_html *h)
{
    const struct columns c = columns(h);
    struct wf_page *const p = &h->page;
    wf_page_raw(p, "<div class=\"charts\">\n");
    bool any = write_loss(h, &c);
    any = write_scores(h, &c) || any;
    const struct wf_series lr = by_step(&c, "learning rate", 1, STEPS(&c, lr));
    any = wf_chart_write(p, &(struct wf_chart){ .title = "Learning rate",
                                                .series = &lr,
                                                .n_series = 1,
                                                .from_zero = true }) ||
          any;
    wf_page_raw(p, "</div>\n");
    if (!any)
        wf_page_raw(p, "<p>The log has no step with numbers in it.</p>\n");
}

/* --- memory --- */

static void write_rank(struct wf_page *p, const struct wf_log_rank *r, double most)
{
    const double planned = r->planned_bytes >= 0 ? r->planned_bytes : 0;
    const double used = r->used_bytes >= 0 ? r->used_bytes : 0;
    wf_page_printf(p,
                   "<tr><td class=\"n\">%" PRId64 "<td style=\"width:50%%\"><div class=\"bar2\">"
                   "<i class=\"c1\" style=\"width:%.2f%%\"></i><i class=\"c3\" "
                   "style=\"width:%.2f%%\"></i></div><td class=\"n\">%s<td class=\"n\">%s",
                   r->rank, 100 * planned / most, 100 * used / most,
                   isfinite(r->planned_bytes) ? wf_text_bytes(&p->arena, planned) : "–",
                   isfinite(r->used_bytes) ? wf_text_bytes(&p->arena, used) : "–");
    if (planned > 0 && isfinite(r->used_bytes))
        wf_page_printf(p, "<td class=\"n\">%+.1f%%</tr>\n", 100 * (used / planned - 1));
    else
        wf_page_raw(p, "<td class=\"n\">–</tr>\n");
}

void wf_html_memory(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct wf_runlog *const log = &h->log;
    double most = 0;
    for (size_t i = 0; i < log->n_ranks; i++)
        most = fmax(most, fmax(log->ranks[i].planned_bytes, log->ranks[i].used_bytes));
    wf_page_raw(p, "<section id=\"memory\"><h2>Memory</h2>\n");
    if (!(most > 0 && isfinite(most))) {
        wf_page_raw(p, "<p>The log does not say what each rank planned and used.</p></section>\n");
        return;
    }
    wf_page_raw(p, "<p>What the plan said before the run, and what each rank then used.</p>"
                   "<div class=\"card scroll\"><table><tr><th class=\"n\">rank<th>"
                   "<i class=\"key box c1\"></i>planned &nbsp; <i class=\"key box c3\"></i>used"
                   "<th class=\"n\">planned<th class=\"n\">used<th class=\"n\">difference</tr>\n");
    for (size_t i = 0; i < log->n_ranks && i < RANK_ROWS; i++)
        write_rank(p, &log->ranks[i], most);
    wf_page_raw(p, "</table>");
    if (log->n_ranks > RANK_ROWS)
        wf_page_printf(p, "<p class=\"note\">The first %d of %zu ranks.</p>", RANK_ROWS,
                       log->n_ranks);
    wf_page_raw(p, "</div></section>\n");
}

/* --- time --- */

enum { COMPUTE, COMM, INPUT, OTHER, PARTS };
static const char *const part_names[PARTS] = { "compute", "communication", "input", "other" };

/* Milliseconds of the mean step; false when the log does not tell them apart. */
static bool split_time(const struct wf_runlog *log, double parts[PARTS])
{
    double whole = 0, weight = 0;
    int64_t before = 0;
    bool known = false;
    for (size_t i = 0; i < log->n_steps; i++) {
        const struct wf_log_step *const s = &log->steps[i];
        const double steps = i ? (double)(s->step - before) : 1;
        before = s->step;
        if (!(s->ms >= 0 && s->ms < 1e12))
            continue;
        const double values[] = { s->compute_ms, s->comm_ms, s->input_ms };
        for (int k = COMPUTE; k < OTHER; k++)
            if (values[k] >= 0 && values[k] < 1e12) {
                parts[k] += steps * values[k];
                known = true;
            }
        whole += steps * s->ms;
        weight += steps;
    }
    if (!known || !(weight > 0))
        return false;
    for (int k = 0; k < OTHER; k++)
        parts[k] /= weight;
    /* What overlaps is counted twice, and then nothing is left over. */
    parts[OTHER] = fmax(0, whole / weight - parts[COMPUTE] - parts[COMM] - parts[INPUT]);
    return true;
}

static void write_split(struct wf_page *p, const double parts[PARTS])
{
    double sum = 0;
    for (int k = 0; k < PARTS; k++)
        sum += parts[k];
    sum = sum > 0 ? sum : 1;
    static const int colours[PARTS] = { 1, 2, 4, 0 };
    wf_page_raw(p, "<div class=\"card\"><b>The mean step</b><div class=\"stack\">");
    for (int k = 0; k < PARTS; k++)
        if (parts[k] > 0)
            wf_page_printf(p, "<i class=\"c%d\" style=\"width:%.2f%%\"></i>", colours[k],
                           100 * parts[k] / sum);
    wf_page_raw(p, "</div><div class=\"split\">");
    for (int k = 0; k < PARTS; k++)
        wf_page_printf(p,
                       "<span><i class=\"key box c%d\"></i>%s <b>%s</b> <small>%.1f%%</small>"
                       "</span>",
                       colours[k], part_names[k],
                       parts[k] > 0 ? wf_text_seconds(&p->arena, parts[k] / 1000) : "0 ms",
                       100 * parts[k] / sum);
    wf_page_raw(p, "</div></div>\n");
}

void wf_html_time(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const struct columns c = columns(h);
    const struct wf_runlog *const log = c.log;
    wf_page_raw(p, "<section id=\"time\"><h2>Time</h2>\n");
    double parts[PARTS] = { 0 };
    const bool known = split_time(log, parts);
    if (known) {
        wf_page_raw(p, "<p>Where a step's time goes. Communication is what a rank waits for, "
                       "input what the loader is waited for.</p>\n");
        write_split(p, parts);
    }
    wf_page_raw(p, "<div class=\"charts\" style=\"margin-top:.9rem\">\n");
    const double *const rate = STEPS(&c, mpx_per_s);
    const struct wf_series rates[] = {
        as_faint(by_step(&c, "", 3, rate), "each step"),
        by_step(&c, "average", 3, wf_series_smooth(c.arena, rate, log->n_steps)),
    };
    bool any = wf_chart_write(p, &(struct wf_chart){ .title = "Throughput",
                                                     .unit = "Mpx/s",
                                                     .series = rates,
                                                     .n_series = 2,
                                                     .from_zero = true });
    const double *const of[] = { STEPS(&c, compute_ms), STEPS(&c, comm_ms), STEPS(&c, input_ms) };
    static const int colours[] = { 1, 2, 4 };
    struct wf_series times[3];
    for (int k = 0; k < 3; k++)
        times[k] =
            by_step(&c, part_names[k], colours[k], wf_series_smooth(c.arena, of[k], log->n_steps));
    any = wf_chart_write(p, &(struct wf_chart){ .title = "Step time",
                                                .unit = "ms",
                                                .series = times,
                                                .n_series = 3,
                                                .from_zero = true }) ||
          any;
    wf_page_raw(p, "</div>\n");
    if (!any && !known)
        wf_page_raw(p, "<p>The log has no times.</p>\n");
    wf_html_staleness(h);
    wf_html_timeline(h);
    wf_page_raw(p, "</section>\n");
}
