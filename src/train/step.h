/* One training step: the plan's pass, then the update of everything that is not frozen. */
#ifndef WF_TRAIN_STEP_H
#define WF_TRAIN_STEP_H

#include "exec/run.h"
#include "optim/optim.h"

/* Collective. Every rank makes the same update, because every rank has the same gradients. */
[[nodiscard]] bool wf_train_step(struct wf_run *run, struct wf_optim *optim, struct wf_err *err);

#endif
