/* The pictures that a training run ends with: files in the run folder, and events of its log. */
#pragma once

#include "train/training.h"

/* Collective. The worst validation images, each with its label and prediction. */
[[nodiscard]] bool wf_pictures_samples(struct wf_training *t, struct wf_validator *validator,
                                       struct wf_comm *comm, struct wf_err *err);
/* Collective. Reconstructions and codes of a network of several domains, with the weights of `lender`
 * (pictures_domains.c); nothing for other networks. */
[[nodiscard]] bool wf_pictures_domains(struct wf_training *t, struct wf_run *lender,
                                       struct wf_context *context, struct wf_comm *comm,
                                       struct wf_err *err);
