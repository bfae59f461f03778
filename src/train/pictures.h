/* The pictures that a training run ends with: files in the run folder, and events of its log. */
#pragma once

#include "train/training.h"

/* Collective. The worst validation images, each with its label and prediction. */
[[nodiscard]] bool wf_pictures_samples(struct wf_training *t, struct wf_validator *validator,
                                       struct wf_comm *comm, struct wf_err *err);
