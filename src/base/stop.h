/*
 * A request to stop, from any thread: what works long looks at it between two pieces of work and fails with
 * WF_ERR_STOPPED.
 *
 *     if (wf_stop_asked(options->stop, err))
 *         return false;
 */
#pragma once

#include <stdatomic.h>

#include "base/err.h"

struct wf_stop {
    atomic_bool asked;
};

/* NULL: nobody asks. Fills the error. */
static inline bool wf_stop_asked(const struct wf_stop *stop, struct wf_err *err)
{
    if (!stop || !atomic_load_explicit(&stop->asked, memory_order_relaxed))
        return false;
    (void)wf_err_set(err, WF_ERR_STOPPED, "stopped on request");
    return true;
}
