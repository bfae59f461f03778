/*
 * log.jsonl: what happened in a run, one JSON object per line, each written whole.
 *
 * Events: "start", "resume", "step", "epoch", "confusion", "sample", "reconstruction", "codes", "damaged",
 * "end". Steps count
 * updates done and epochs count from 1. A resumed run first removes the events after its
 * checkpoint, so that the log reads as if the run had never stopped. Events before a checkpoint are
 * on the disk before it (wf_journal_sync), so a log that has less was damaged.
 *
 *     struct wf_journal *journal = wf_journal_open("run/log.jsonl", err);
 *     ok = wf_journal_step(journal, &report, err);
 *     wf_journal_free(journal);
 */
#pragma once

#include "train/trainer.h"

struct cJSON;
struct wf_journal;

/* Appends; a last line that was cut off by a crash is removed. NULL on failure. */
struct wf_journal *wf_journal_open(const char *path, struct wf_err *err);
void wf_journal_free(struct wf_journal *journal);
/* Damage of a log. */
struct wf_journal_damage {
    bool absent;     /* there is no log */
    int64_t lines;   /* that cannot be read, and are left out */
    int64_t epochs;  /* that are in the checkpoint but missing in the log */
    char kept[4096]; /* path of the copy of the damaged log; empty: no damage */
};
/* Removes the steps and epochs after `at`, and the end of the run. A missing log is no error. */
[[nodiscard]] bool wf_journal_rewind(const char *path, const struct wf_position *at,
                                     struct wf_journal_damage *damage, struct wf_err *err);
/* Syncs the log to the disk. */
[[nodiscard]] bool wf_journal_sync(struct wf_journal *journal, struct wf_err *err);

/* These take NULL, for a run that keeps no log. */
/* An event with its name and time, for the caller to fill. */
struct cJSON *wf_journal_event(const char *name);
/* Writes and frees it. */
[[nodiscard]] bool wf_journal_write(struct wf_journal *journal, struct cJSON *event,
                                    struct wf_err *err);
/* A step; limited to a few lines per second. */
[[nodiscard]] bool wf_journal_step(struct wf_journal *journal, const struct wf_step_report *report,
                                   struct wf_err *err);
[[nodiscard]] bool wf_journal_epoch(struct wf_journal *journal,
                                    const struct wf_epoch_report *report, struct wf_err *err);

/* {"iou":[..],"mean_iou":..,"dice":[..],"class_accuracy":[..],"accuracy":..}: NaN becomes null;
 * "top5" for classifiers with more than five classes. */
struct cJSON *wf_scores_json(const struct wf_scores *scores);
/* `domains`: of each target domain that was validated its number, loss and scores; nothing without targets. */
void wf_domains_json(struct cJSON *to, const struct wf_domain_scores domains[], int count);
void wf_json_add_real(struct cJSON *object, const char *key, double value);
