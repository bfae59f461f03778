/* The timeline of a run's last pass, from all ranks, as a file. */
#pragma once

#include "train/job.h"

/* "unet, mesh space=2x2, threads" */
const char *wf_timeline_title(struct wf_arena *arena, const struct wf_job *job,
                              const struct wf_comm *comm);

/* Collective. Rank 0 writes: a picture where the path ends in .svg, Chrome's trace format otherwise. */
[[nodiscard]] bool wf_timeline_write(const struct wf_run *run, struct wf_comm *comm,
                                     const char *title, const char *path, struct wf_err *err);
