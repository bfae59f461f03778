/*
 * Loss scaling for f16: the gradient is computed for a multiple of the loss, so that small numbers do
 * not vanish, and divided by it in the update. Where something overflowed the step is skipped and the
 * factor halved; after `interval` steps that went well it is doubled. PyTorch's rule and numbers.
 *
 *     struct wf_scaler s = wf_scaler_init(true);
 *     ... backward from s.scale, update with 1 / s.scale ...
 *     wf_scaler_update(&s, finite);
 */
#ifndef WF_OPTIM_SCALER_H
#define WF_OPTIM_SCALER_H

#include <stdbool.h>
#include <stdint.h>

struct wf_scaler {
    bool dynamic; /* otherwise the scale stays 1 */
    double scale;
    int64_t streak; /* steps that went well since it changed */
    int64_t interval;
};

struct wf_scaler wf_scaler_init(bool dynamic);
void wf_scaler_update(struct wf_scaler *s, bool finite);

#endif
