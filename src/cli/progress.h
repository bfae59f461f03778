/*
 * Progress display: on a terminal a bar that is redrawn, otherwise a plain line every few seconds.
 * Rate, loss and remaining time are averages over the last steps, not over the whole run.
 *
 *     struct wf_progress p;
 *     wf_progress_init(&p, stderr, isatty(2), epochs);
 *     wf_progress_step(&p, &report);
 *     wf_bar_clear(&p.bar);       before something else is printed
 */
#pragma once

#include <stdio.h>

#include "train/trainer.h"

/* What stands on the screen, whatever makes progress. */
struct wf_bar {
    FILE *out; /* NULL: prints nothing */
    bool terminal;
    double shown; /* when, seconds; 0: not yet */
    bool drawn;   /* the terminal's line shows a bar */
};
/* Is it time to show it again? Then the time is noted. */
bool wf_bar_is_due(struct wf_bar *b);
void wf_bar_show(struct wf_bar *b, double part, const char *text);
void wf_bar_clear(struct wf_bar *b);

struct wf_progress {
    struct wf_bar bar;
    int64_t epochs;
    double loss; /* these three: moving averages, the loss's over the steps of an epoch */
    double seconds, pixels;
    int64_t steps, losses,
        epoch; /* seen; of them, in the mean of the loss; the epoch of the last */
};

void wf_progress_init(struct wf_progress *p, FILE *out, bool terminal, int64_t epochs);
void wf_progress_step(struct wf_progress *p, const struct wf_step_report *report);

/* The text without bar and line end: what both forms show. Seconds left, bytes of this process. */
void wf_progress_text(const struct wf_progress *p, const struct wf_step_report *report,
                      double bytes, char *text, size_t room);
/* "1h 02m", "3m 20s", "8s" */
void wf_duration_text(double seconds, char *text, size_t room);
/* Current memory of this process; 0 if the system does not report it. */
double wf_process_bytes(void);
