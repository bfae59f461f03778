#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/utf8.h"
#include "report/events.h"
#include "report/html.h"

enum { EVENT_CLASSES = 64 }; /* curves by class that TensorBoard gets at most */

/* --- event file --- */

static void add_scalar(struct wf_events *e, double time, int64_t step, const char *tag,
                       double value)
{
    if (!isnan(value))
        wf_events_scalar(e, time, step, tag, value);
}

static void add_steps(struct wf_events *e, const struct wf_runlog *log)
{
    for (size_t i = 0; i < log->n_steps; i++) {
        const struct wf_log_step *const s = &log->steps[i];
        /* A loss that is no number is a fact to see there, too. */
        wf_events_scalar(e, s->time, s->step, "train/loss", s->loss);
        add_scalar(e, s->time, s->step, "train/learning_rate", s->lr);
        add_scalar(e, s->time, s->step, "speed/mpx_per_s", s->mpx_per_s);
        add_scalar(e, s->time, s->step, "speed/step_ms", s->ms);
        add_scalar(e, s->time, s->step, "speed/compute_ms", s->compute_ms);
        add_scalar(e, s->time, s->step, "speed/comm_ms", s->comm_ms);
        add_scalar(e, s->time, s->step, "speed/input_ms", s->input_ms);
    }
}

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

static void add_epochs(struct wf_events *e, struct wf_runlog *log)
{
    const int all = wf_runlog_classes(log), classes = all < EVENT_CLASSES ? all : EVENT_CLASSES;
    for (size_t i = 0; i < log->n_epochs; i++) {
        const struct wf_log_epoch *const o = &log->epochs[i];
        add_scalar(e, o->time, o->step, "train/epoch_loss", o->train_loss);
        add_scalar(e, o->time, o->step, "val/loss", o->val_loss);
        add_scalar(e, o->time, o->step, "val/mean_iou", o->mean_iou);
        add_scalar(e, o->time, o->step, "val/accuracy", o->accuracy);
        for (int k = 0; k < classes; k++)
            add_scalar(e, o->time, o->step, class_tag(log, k), wf_log_item(o->val, "iou", k));
    }
}

static bool write_events(struct wf_html *h, struct wf_err *err)
{
    struct wf_events e = { 0 };
    wf_events_begin(&e, h->log.started);
    add_steps(&e, &h->log);
    add_epochs(&e, &h->log);
    char *const path = wf_arena_printf(&h->page.arena, "%s/events.out.tfevents.%.0f.widefield",
                                       h->folder, h->log.started);
    const bool ok = wf_events_write(&e, path, err);
    wf_events_release(&e);
    return ok;
}

/* --- page --- */

static bool write_page(struct wf_html *h, struct wf_err *err)
{
    wf_html_write(h);
    WF_BUG_ON(h->page.out.size > WF_REPORT_BYTES_MAX, "%zu bytes", h->page.out.size);
    char *const path = wf_arena_printf(&h->page.arena, "%s/report.html", h->folder);
    return wf_file_write(path, h->page.out.data, h->page.out.size, err);
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
    struct wf_html h = { .folder = run_folder };
    char *const path = wf_arena_printf(&h.page.arena, "%s/log.jsonl", run_folder);
    bool ok = true;
    enum wf_path_kind kind, log = WF_PATH_ABSENT;
    if (!wf_path_look(run_folder, &kind, err) || !wf_path_look(path, &log, err))
        ok = false;
    else if (kind == WF_PATH_ABSENT)
        ok = wf_err_set(err, WF_ERR_FAILED, "cannot open run folder '%s': %s", run_folder,
                        strerror(ENOENT));
    else if (log == WF_PATH_ABSENT)
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s' is no run folder: it has no log.jsonl: give the folder that "
                        "'widefield train' wrote",
                        run_folder);
    if (ok && wf_runlog_read(&h.log, path, err)) {
        h.name = name_of(&h.page.arena, run_folder);
        ok = write_page(&h, err) && write_events(&h, err);
        wf_runlog_release(&h.log);
    } else {
        ok = false;
    }
    wf_page_release(&h.page);
    return ok || wf_err_wrap(err, "writing the report");
}
