/*
 * What a run's log.jsonl says, in tables.
 *
 * The log is written by a program that may have been killed in the middle of a line, stopped and
 * resumed; a reader takes what there is. A line that is no JSON object is counted and passed over.
 * A step or an epoch that was done again after a resume replaces what it said before.
 *
 *     struct wf_runlog log;
 *     if (!wf_runlog_read(&log, "runs/a/log.jsonl", err))
 *         return false;
 *     ... log.steps.rows[i].at[WF_LOG_LOSS] ...
 *     wf_runlog_release(&log);
 *
 * A number that the log does not have, or that is no number, is NaN. Texts may hold anything.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct cJSON;

/* The columns of steps, and those of epochs. */
enum {
    WF_LOG_LOSS,
    WF_LOG_LR,
    WF_LOG_RATE, /* megapixels a second, all ranks */
    WF_LOG_MS,
    WF_LOG_COMPUTE_MS,
    WF_LOG_COMM_MS,
    WF_LOG_INPUT_MS,
    WF_LOG_STEP_COLUMNS
};
enum {
    WF_LOG_TRAIN_LOSS,
    WF_LOG_VAL_LOSS,
    WF_LOG_MEAN_IOU,
    WF_LOG_ACCURACY,
    WF_LOG_TOP5,
    WF_LOG_EPOCH_COLUMNS
};

struct wf_log_row {
    int64_t step, epoch;
    double elapsed; /* seconds that the steps took until its end */
    double time;    /* seconds since 1970 at its end; without a clock in the log, by `elapsed` */
    double at[WF_LOG_STEP_COLUMNS];
    bool best;               /* so far; of epochs */
    const struct cJSON *val; /* all that validation said: lists by class; NULL: none; of epochs */
    const struct cJSON *domains; /* the same of each target domain; NULL: none; of epochs */
};
static_assert((int)WF_LOG_EPOCH_COLUMNS <= (int)WF_LOG_STEP_COLUMNS, "one row holds either");

struct wf_log_table {
    struct wf_log_row *rows;
    size_t n, room;
    int columns;
    const char *const *names; /* of the columns */
};

struct wf_log_list {
    struct cJSON **at;
    size_t n, room;
};

struct wf_runlog {
    struct wf_arena arena;
    struct wf_log_list kept;   /* the lines that the pointers below point into */
    const struct cJSON *start; /* the last start or resume that says what runs; or NULL */
    const struct cJSON *end;
    const struct cJSON *ranks; /* the last `per_rank`; or NULL */
    /* Of the best epoch where the log has that, else the last; its epoch is 0 where the log does not say. */
    const struct cJSON *confusion;
    int64_t confusion_epoch;
    const struct cJSON *codes; /* of a network of several domains: its codes as points; or NULL */
    const struct cJSON *staleness; /* of the last epoch that has it: gradients by delay; or NULL */
    const char *begun;             /* the first start's time as it stands there; or NULL */
    double started;                /* seconds since 1970; 0: the log does not say */
    bool per_image;                /* a class for each image: IoU says nothing */

    struct wf_log_table steps, epochs;
    struct wf_log_list samples;         /* worst first */
    struct wf_log_list reconstructions; /* of images of several domains, in the log's order */
    struct wf_log_list confusions;      /* all of them, in the log's order */

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

/* A member's number, NaN when there is none; text, NULL when there is none; list, NULL when there is
 * none. `object` may be NULL. */
double wf_log_number(const struct cJSON *object, const char *name);
const char *wf_log_text(const struct cJSON *object, const char *name);
const struct cJSON *wf_log_array(const struct cJSON *object, const char *name);

/* The last row, NULL when there is none. */
const struct wf_log_row *wf_log_last(const struct wf_log_table *table);
/* The epoch whose numbers the best checkpoint has, else the last that was validated, else NULL. */
const struct wf_log_row *wf_runlog_best(const struct wf_runlog *log);
/* The scores to show: that epoch's, else those of the end, else NULL. */
const struct cJSON *wf_runlog_scores(const struct wf_runlog *log);
/* How many classes there are, and what class i is called. */
int wf_runlog_classes(const struct wf_runlog *log);
const char *wf_runlog_class(struct wf_runlog *log, int i);
