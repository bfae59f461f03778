/* The device of the options, and how a rank opens it. */
#ifndef WF_CLI_DEVICE_H
#define WF_CLI_DEVICE_H

#include "cli/options.h"
#include "comm/comm.h"
#include "device/device.h"
#include "plan/plan.h"

/* run.deterministic, by its place among the names. */
enum wf_repeats { WF_REPEATS_NEARLY, WF_REPEATS, WF_REPEATS_ON_ANY_MESH };

/* NULL where this build has not got it. */
const struct wf_device *wf_cli_device(const struct wf_options *o, struct wf_err *err);
/* The element type of activations; tf32 is f32 on a device that has the mode. */
[[nodiscard]] bool wf_cli_precision(const struct wf_options *o, const struct wf_device *device,
                                    enum wf_dtype *compute, struct wf_err *err);

/* What a kernel's scratch may take beyond the estimate that plans are made with before the device is
 * there: a small part of memory.limit, which is set aside for it; 0: no limit, or nothing to
 * estimate. */
size_t wf_cli_workspace(const struct wf_options *o, const struct wf_device *device);

/* Bytes of memory that this machine has. */
double wf_cli_machine_bytes(void);

/* Collective. Each rank opens its device; fails on all where it fails on one. The caller closes it
 * (wf_device_close) after everything that ran on it. */
[[nodiscard]] bool wf_cli_open(const struct wf_options *o, const struct wf_device *device,
                               struct wf_comm *comm, struct wf_context **context,
                               struct wf_err *err);
/* Collective. This rank's plan, where the devices of all have room for theirs; NULL on all otherwise.
 * `global plan` may be NULL where it could not be made. */
struct wf_plan *wf_cli_plan(const struct wf_global_plan *global, int rank, struct wf_comm *comm,
                            struct wf_context *context, struct wf_err *err);

#endif
