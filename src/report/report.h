/*
 * The report of a run: one HTML file that needs nothing else, made from what the run wrote.
 *
 * Reads log.jsonl, config.yaml and samples/ of a run folder, and writes there
 *   report.html                          for people: no network, under WF_REPORT_BYTES_MAX
 *   events.out.tfevents.TIME.widefield   for TensorBoard; TIME is when the run started
 * both of which appear whole or not at all, and replace what an earlier call wrote. The run may be
 * unfinished, or still going on. What the log says is never trusted: it is text, not markup.
 *
 * The page holds the run's data as one JSON block (data.h), which its own script draws (report.js);
 * without scripts it shows the main figures.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { WF_REPORT_BYTES_MAX = 5'000'000 };

[[nodiscard]] bool wf_report_write(const char *run_folder, struct wf_err *err);
