/*
 * What a run's log.jsonl says, in arrays.
 *
 * The log is written by a program that may have been killed in the middle of a line, stopped and
 * resumed; a reader takes what there is. A line that is no JSON object is counted and passed over.
 * A step or an epoch that was done again after a resume replaces what it said before.
 *
 *     struct wf_runlog log;
 *     if (!wf_runlog_read(&log, "runs/a/log.jsonl", err))
 *         return false;
 *     ... log.steps[i].loss ...
 *     wf_runlog_release(&log);
 *
 * A number that the log does not have, or that is no number, is NaN. Texts may hold anything.
 */
#ifndef WF_REPORT_RUNLOG_H
#define WF_REPORT_RUNLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct cJSON;

struct wf_log_step {
    int64_t step, epoch;
    double elapsed; /* seconds that the steps took until its end */
    double time;    /* seconds since 1970 at its end; without a clock in the log, by `elapsed` */
    double loss, lr, mpx_per_s, ms, compute_ms, comm_ms, input_ms;
};

struct wf_log_epoch {
    int64_t epoch, step;
    double time;
    double train_loss, val_loss, mean_iou, accuracy, top5;
    bool best;
    const struct cJSON *val; /* all of it: per-class lists */
};

struct wf_log_sample {
    const char *name, *image, *label, *prediction; /* file names in the run folder, or NULL */
    const char *truth, *guess; /* classes, of a network that has one for each image; or NULL */
    double mean_iou;
    int64_t epoch; /* 0: the log does not say */
};

struct wf_log_rank {
    int64_t rank;
    double planned_bytes, used_bytes;
};

struct wf_runlog {
    struct wf_arena arena;
    struct cJSON **kept; /* the lines that the pointers below point into */
    size_t n_kept, room_kept;
    const struct cJSON *start; /* the last start or resume that says what runs; or NULL */
    const struct cJSON *end;
    /* Of the best epoch where the log has that, else the last; its epoch is 0 where the log does not say. */
    const struct cJSON *confusion;
    int64_t confusion_epoch;
    const struct cJSON
        *staleness;    /* of the last epoch that has it: gradients by how late; or NULL */
    const char *begun; /* the first start's time as it stands there; or NULL */
    double started;    /* seconds since 1970; 0: the log does not say */
    bool per_image;    /* a class for each image: IoU says nothing */

    struct wf_log_step *steps;
    size_t n_steps, room_steps;
    struct wf_log_epoch *epochs;
    size_t n_epochs, room_epochs;
    struct wf_log_sample *samples; /* worst first */
    size_t n_samples, room_samples;
    struct wf_log_rank *ranks;
    size_t n_ranks, room_ranks;
    const struct cJSON **confusions; /* all of them, in the log's order */
    size_t n_confusions, room_confusions;

    size_t damaged;                  /* lines that are no JSON object */
    int64_t lost_lines, lost_epochs; /* that were found damaged or missing when the run went on */
    const char *lost_kept;           /* the last file that was put aside then, or NULL */
    size_t resumed;                  /* times */
    size_t bad_losses;               /* steps whose loss is no finite number */
    int64_t bad_loss_at;             /* the first of them */
};

/* A log without a single event is one too; only a file that cannot be read is an error. */
[[nodiscard]] bool wf_runlog_read(struct wf_runlog *log, const char *path, struct wf_err *err);
void wf_runlog_release(struct wf_runlog *log);

/* A member's number, NaN when there is none; text, NULL when there is none. `object` may be NULL. */
double wf_log_number(const struct cJSON *object, const char *name);
const char *wf_log_text(const struct cJSON *object, const char *name);
/* Number i of a member that is a list, else NaN. */
double wf_log_item(const struct cJSON *object, const char *name, int i);
/* Elements of a member that is a list, else 0. */
int wf_log_length(const struct cJSON *object, const char *name);

/* The epoch whose numbers the best checkpoint has, else the last that was validated, else NULL. */
const struct wf_log_epoch *wf_runlog_best(const struct wf_runlog *log);
/* The scores to show: that epoch's, else those of the end, else NULL. */
const struct cJSON *wf_runlog_scores(const struct wf_runlog *log);
/* How many classes there are, and what class i is called. */
int wf_runlog_classes(const struct wf_runlog *log);
const char *wf_runlog_class(struct wf_runlog *log, int i);

#endif
