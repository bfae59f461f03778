/*
 * The machine that the cost model reckons with: whose figures (plan/figures.h) a job takes.
 *
 * Those that 'check --calibrate' measured on this machine, kept beside the file of run.cache; otherwise
 * those that are shipped for it, or for another of its device. Under a launcher all ranks take those of rank 0's
 * machine: they plan alike.
 */
#pragma once

#include "plan/figures.h"
#include "train/launch.h"
#include "train/settings.h"

/* "Intel(R) Xeon(R) Processor, 2 cores", with as many as ranks may use here (launch.h), or "NVIDIA H200". */
const char *wf_machine_about(struct wf_arena *arena, const struct wf_device *device, int cores);

/* The file that calibration writes for this machine; NULL: run.cache is empty. */
const char *wf_machine_path(struct wf_arena *arena, const struct wf_settings *s,
                            const struct wf_device *device, int cores);

/* What an earlier calibration of this machine left in the file, and where there is no file, with `shipped`, what is
 * shipped for the machine. To be freed; NULL: nothing of use. */
struct wf_figures *wf_machine_older(const char *path, const struct wf_device *device, bool shipped);

/* Collective under a launcher. `*figures` is to be freed, NULL where there are none for the device. */
[[nodiscard]] bool wf_machine_figures(const struct wf_launch *l, const struct wf_settings *s,
                                      const struct wf_device *device, struct wf_figures **figures,
                                      struct wf_err *err);
