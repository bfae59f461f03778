/* A table of scores for people. */
#ifndef WF_CLI_SCORES_H
#define WF_CLI_SCORES_H

#include "train/metrics.h"

void wf_print_scores(struct wf_arena *arena, const struct wf_scores *scores,
                     const char *const class_names[]);

#endif
