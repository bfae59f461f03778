/*
 * Loss scaling for f16: the gradient is computed for a multiple of the loss, so that small numbers
 * do not vanish, and divided by it in the update. If a gradient overflows, the step is skipped and
 * the factor halved; after `interval` finite steps in a row it is doubled. PyTorch's rule and
 * numbers.
 *
 *     struct wf_scaler s = wf_scaler_init(true);
 *     ... backward from s.scale, update with 1 / s.scale ...
 *     wf_scaler_update(&s, finite);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct wf_scaler {
    bool dynamic; /* otherwise the scale is always 1 */
    double scale;
    int64_t streak; /* finite steps since the last change */
    int64_t interval;
};

struct wf_scaler wf_scaler_init(bool dynamic);
void wf_scaler_update(struct wf_scaler *s, bool finite);
