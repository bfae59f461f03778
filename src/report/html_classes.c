/* What the network can tell apart: scores by class, and what it takes for what. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/html.h"

enum { CLASS_ROWS = 200, CONFUSION_MAX = 32 };

/* --- the confusion matrix --- */

struct confusion {
    int n; /* classes; 0: the log has no square matrix */
    double counts[CONFUSION_MAX][CONFUSION_MAX];
    double rows[CONFUSION_MAX], columns[CONFUSION_MAX]; /* sums */
};

static bool read_row(struct confusion *c, int i, const cJSON *row)
{
    if (!cJSON_IsArray(row) || cJSON_GetArraySize(row) != c->n)
        return false;
    int j = 0;
    const cJSON *cell;
    cJSON_ArrayForEach(cell, row)
    {
        const double count = cJSON_IsNumber(cell) ? cell->valuedouble : 0;
        c->counts[i][j] = count >= 0 && count < 1e300 ? count : 0;
        c->rows[i] += c->counts[i][j];
        c->columns[j] += c->counts[i][j];
        j++;
    }
    return true;
}

static void read_confusion(const struct wf_runlog *log, struct confusion *c)
{
    *c = (struct confusion){ .n = wf_log_length(log->confusion, "counts") };
    if (c->n > CONFUSION_MAX)
        c->n = 0;
    const cJSON *const counts = cJSON_GetObjectItemCaseSensitive(log->confusion, "counts");
    int i = 0;
    const cJSON *row;
    if (c->n > 0)
        cJSON_ArrayForEach(row, counts)
        {
            if (!read_row(c, i++, row)) {
                c->n = 0;
                return;
            }
        }
}

/* "after epoch 6, the best" */
static void write_epoch(struct wf_html *h, int64_t epoch)
{
    const struct wf_log_epoch *const best = wf_runlog_best(&h->log);
    const struct wf_log_epoch *const last =
        h->log.n_epochs ? &h->log.epochs[h->log.n_epochs - 1] : NULL;
    wf_page_printf(&h->page, "after epoch %" PRId64 "%s", epoch,
                   best && best->best && best->epoch == epoch ? ", the best"
                   : last && last->epoch == epoch             ? ", the last"
                                                              : "");
}

static void write_confusion(struct wf_html *h, const struct confusion *c)
{
    struct wf_page *const p = &h->page;
    wf_page_raw(p,
                "<div class=\"card scroll\" style=\"margin-top:.9rem\"><b>Confusion</b> <small>");
    if (h->log.confusion_epoch > 0) {
        write_epoch(h, h->log.confusion_epoch);
        wf_page_raw(p, "; ");
    }
    wf_page_raw(p, "rows are the truth, columns what was predicted</small>"
                   "<table class=\"confusion\"><thead><tr><th></th>");
    for (int j = 0; j < c->n; j++) {
        wf_page_raw(p, "<th>");
        wf_page_text(p, wf_runlog_class(&h->log, j));
        wf_page_raw(p, "</th>");
    }
    wf_page_raw(p, "</tr></thead><tbody>\n");
    for (int i = 0; i < c->n; i++) {
        wf_page_raw(p, "<tr><th>");
        wf_page_text(p, wf_runlog_class(&h->log, i));
        wf_page_raw(p, "</th>");
        for (int j = 0; j < c->n; j++) {
            const double share = c->rows[i] > 0 ? c->counts[i][j] / c->rows[i] : 0;
            wf_page_printf(p, "<td style=\"--v:%.3f\">%.1f%%<small>%s</small></td>", share,
                           100 * share, wf_page_number(p, c->counts[i][j]));
        }
        wf_page_raw(p, "</tr>\n");
    }
    wf_page_raw(p, "</tbody></table></div>\n");
}

/* --- by class --- */

struct measure {
    const char *title;
    int colour;
    double of[CLASS_ROWS], mean;
    bool known;
};

static void read_measure(struct measure *m, const cJSON *scores, const char *name, int n)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < n; i++) {
        m->of[i] = wf_log_item(scores, name, i);
        if (isfinite(m->of[i])) {
            sum += m->of[i];
            count++;
        }
    }
    m->known = count > 0;
    m->mean = count ? sum / count : (double)NAN;
}

/* Recall and precision, which the matrix has and the lists may lack. */
static void from_confusion(struct measure *m, const struct confusion *c, const double sums[], int n)
{
    if (m->known || c->n == 0)
        return;
    double sum = 0;
    int count = 0;
    for (int i = 0; i < n && i < c->n; i++) {
        m->of[i] = sums[i] > 0 ? c->counts[i][i] / sums[i] : (double)NAN;
        if (isfinite(m->of[i])) {
            sum += m->of[i];
            count++;
        }
    }
    m->known = count > 0;
    m->mean = count ? sum / count : (double)NAN;
}

static void write_meter(struct wf_page *p, double value, int colour)
{
    if (!isfinite(value)) {
        wf_page_raw(p, "<td>–</td>");
        return;
    }
    wf_page_printf(p,
                   "<td><div class=\"meter c%d\"><span><i style=\"width:%.1f%%\"></i></span>"
                   "<b>%.3f</b></div></td>",
                   colour, 100 * fmin(1, fmax(0, value)), value);
}

/* The colour that the masks show this class in, where the log gives one as #rrggbb. */
static void write_swatch(struct wf_html *h, int i)
{
    const cJSON *const palette = cJSON_GetObjectItemCaseSensitive(h->log.start, "palette");
    const char *const colour =
        cJSON_IsArray(palette) ? cJSON_GetStringValue(cJSON_GetArrayItem(palette, i)) : NULL;
    if (colour && colour[0] == '#' && strlen(colour) == 7 &&
        strspn(colour + 1, "0123456789abcdefABCDEF") == 6)
        wf_page_printf(&h->page, "<i class=\"swatch\" style=\"background:%s\"></i>", colour);
}

static void write_table(struct wf_html *h, const struct measure *all, int n_all, int n)
{
    struct wf_page *const p = &h->page;
    wf_page_raw(p, "<div class=\"card scroll\"><table><tr><th>class</th>");
    for (int k = 0; k < n_all; k++)
        if (all[k].known)
            wf_page_printf(p, "<th>%s</th>", all[k].title);
    wf_page_raw(p, "</tr>\n");
    for (int i = 0; i < n; i++) {
        wf_page_raw(p, "<tr><td class=\"wrap\">");
        write_swatch(h, i);
        wf_page_text(p, wf_runlog_class(&h->log, i));
        wf_page_raw(p, "</td>");
        for (int k = 0; k < n_all; k++)
            if (all[k].known)
                write_meter(p, all[k].of[i], all[k].colour);
        wf_page_raw(p, "</tr>\n");
    }
    wf_page_raw(p, "<tr class=\"mean\"><td>mean</td>");
    for (int k = 0; k < n_all; k++)
        if (all[k].known)
            write_meter(p, all[k].mean, all[k].colour);
    wf_page_raw(p, "</tr></table></div>\n");
}

void wf_html_classes(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    const cJSON *const scores = wf_runlog_scores(&h->log);
    const struct wf_log_epoch *const best = wf_runlog_best(&h->log);
    const int classes = wf_runlog_classes(&h->log), n = classes < CLASS_ROWS ? classes : CLASS_ROWS;
    struct confusion *const c = wf_arena_one(&p->arena, struct confusion);
    read_confusion(&h->log, c);
    enum { IOU, DICE, RECALL, PRECISION, MEASURES };
    struct measure *const m = wf_arena_array(&p->arena, MEASURES, struct measure);
    m[IOU] = (struct measure){ .title = "IoU", .colour = 3 };
    m[DICE] = (struct measure){ .title = h->log.per_image ? "F1" : "Dice", .colour = 1 };
    m[RECALL] = (struct measure){ .title = "accuracy (recall)", .colour = 4 };
    m[PRECISION] = (struct measure){ .title = "precision", .colour = 2 };
    if (!h->log.per_image)
        read_measure(&m[IOU], scores, "iou", n);
    read_measure(&m[DICE], scores, "dice", n);
    read_measure(&m[RECALL], scores, "class_accuracy", n);
    read_measure(&m[PRECISION], scores, "precision", n);
    /* One table, one epoch. */
    if (!best || !h->log.confusion_epoch || h->log.confusion_epoch == best->epoch) {
        from_confusion(&m[RECALL], c, c->rows, n);
        from_confusion(&m[PRECISION], c, c->columns, n);
    }

    wf_page_raw(p, "<section id=\"classes\"><h2>Classes</h2>\n");
    if (m[IOU].known || m[DICE].known || m[RECALL].known || m[PRECISION].known) {
        if (best) {
            wf_page_raw(p, "<p>On the validation images, ");
            write_epoch(h, best->epoch);
            wf_page_raw(p, ".</p>\n");
        }
        write_table(h, m, MEASURES, n);
        if (n < classes)
            wf_page_printf(p, "<p class=\"note\">The first %d of %d classes.</p>\n", n, classes);
    } else {
        wf_page_raw(p, "<p>No validation has been done yet.</p>\n");
    }
    if (c->n > 0)
        write_confusion(h, c);
    wf_page_raw(p, "</section>\n");
}
