/* The device of the settings, and how a rank opens it and plans on it. */
#pragma once

#include <pthread.h>

#include "plan/plan.h"
#include "train/settings.h"

/* NULL where this build has not got it. */
const struct wf_device *wf_settings_device(const struct wf_settings *s, struct wf_err *err);
/* The same for plans that are looked at only: also one that is not in this build. */
const struct wf_device *wf_settings_plan_device(const struct wf_settings *s, struct wf_err *err);
/* The element type of activations; tf32 is f32 on a device that has the mode. */
[[nodiscard]] bool wf_settings_compute(const struct wf_settings *s, const struct wf_device *device,
                                       enum wf_dtype *compute, struct wf_err *err);

/* What a kernel's scratch may take beyond the estimate that plans are made with before the device is
 * there: a small part of memory.limit, which is set aside for it; 0: no limit, or nothing to
 * estimate. */
size_t wf_settings_workspace(const struct wf_settings *s, const struct wf_device *device);

/* How a rank opens it; the first of its machine, unless it says otherwise. */
struct wf_device_options wf_settings_device_options(const struct wf_settings *s,
                                                    const struct wf_device *device);

/* Host memory that libraries take at most, as measured: a GPU's context, cuDNN and cuBLASLt; what oneDNN compiles for
 * convolutions on AMX's tiles. */
enum { WF_HOST_GPU_BYTES = 768 << 20, WF_HOST_AMX_BYTES = 64 << 20 };
size_t wf_settings_library_bytes(const struct wf_settings *s, const struct wf_device *device);

/* Bytes of memory that this machine has. */
double wf_machine_bytes(void);

/* A device that is made ready beside other work, such as the reading of files: the context of a GPU takes 0.2 s.
 * What fails is reported where a rank opens the device. */
struct wf_device_warmup {
    const struct wf_device *device;
    int local_rank;
    pthread_t thread;
    bool runs;
};
/* By its name; nothing happens where this build has not got it. */
void wf_device_warmup_begin(struct wf_device_warmup *w, const char *name, int local_rank);
void wf_device_warmup_end(struct wf_device_warmup *w);

/* Collective. Each rank opens its device; fails on all where it fails on one. The caller closes it
 * (wf_device_close) after everything that ran on it. */
[[nodiscard]] bool wf_settings_open(const struct wf_settings *s, const struct wf_device *device,
                                    struct wf_comm *comm, struct wf_context **context,
                                    struct wf_err *err);
/* Collective. This rank's plan, where the devices of all have room for theirs; NULL on all otherwise.
 * `global plan` may be NULL where it could not be made. */
struct wf_plan *wf_rank_plan(const struct wf_global_plan *global, int rank, struct wf_comm *comm,
                             struct wf_context *context, struct wf_err *err);
