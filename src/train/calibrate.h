/*
 * Calibration: the figures of this machine (plan/figures.h), measured.
 *
 * Small networks run a few steps each, as a training runs them, and each kernel's least seconds become
 * a row. So kernels are timed between those that run before and behind them, with their fused inputs
 * and with caches as they are then. On a CPU this is done with all cores for one rank, and with one core
 * for each of as many ranks as there are cores, which then share caches and memory.
 */
#pragma once

#include "plan/figures.h"
#include "train/launch.h"
#include "train/settings.h"

struct wf_calibrate {
    const struct wf_launch *launch;     /* without a launcher */
    const struct wf_settings *settings; /* device, cache and deterministic are read */
    bool one_precision;                 /* of all only that of the settings */
    double seconds;                     /* after which it ends with what it has; 0: as it likes */
    /* Called now and then, by one thread; NULL: nobody listens. */
    void (*progress)(void *user, double part, const char *what);
    /* Called with what was measured so far, every few seconds; NULL: nobody listens. */
    void (*keep)(void *user, const struct wf_figures *figures);
    void *user;
};

/* The figures, to be freed; NULL on failure. Takes minutes. `*is_whole`: nothing was left out, for want of time or as of
 * another type. */
struct wf_figures *wf_calibrate(const struct wf_calibrate *c, bool *is_whole, struct wf_err *err);

/* Collective under a launcher. What messages between its ranks take: a link of its transport. */
[[nodiscard]] bool wf_calibrate_link(struct wf_comm *comm, struct wf_figures_link *link,
                                     struct wf_err *err);
