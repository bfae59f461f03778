/* What a session is to the other files of src/api. */
#pragma once

#include "api/engine.h"
#include "base/stop.h"
#include "config/options_settings.h"
#include "exec/run.h"
#include "train/job.h"
#include "widefield.h"

/* The program's network, as one of the library's. Trainers and predictors keep a copy of what the session had
 * when they were made: the program may set another one later. */
struct wf_own {
    struct wf_model model;
    wf_network_fn *network; /* NULL: the options name one of the library's */
    void *user;             /* of `network` */
    bool trains;            /* the prediction has the labels' extents: those of the image, or one */
};

struct wf_session {
    struct wf_options *options;
    struct wf_log log;
    struct wf_launch launch;
    struct wf_engine *engine;
    struct wf_own own;
    struct wf_stop stop;
};

struct wf_data {
    struct wf_dataset *dataset;
};

/* The settings of options of this session, or of a checkpoint in it, with the program's network, which is
 * borrowed. */
[[nodiscard]] bool wf_session_settings(struct wf_session *s, const struct wf_own *own,
                                       struct wf_options *o, struct wf_settings *settings,
                                       struct wf_err *err);
struct wf_options *wf_options_copy(const struct wf_options *o);
/* Puts the session's ranks, device, memory and communication into options of a checkpoint, which has the
 * network and the loss. */
void wf_session_place(const struct wf_session *s, struct wf_options *o);

/* --- whole arrays of the program to and from the ranks' parts (tensors.c) --- */

/* The value and the array's size agree. */
[[nodiscard]] bool wf_tensor_check(const struct wf_value *v, const char *name, size_t count,
                                   struct wf_err *err);
/* This rank's part of the array. */
void wf_tensor_put(struct wf_run *run, const struct wf_value *v, const float *array);
/* Between the rank's part and an array in its device's memory, by the device. */
[[nodiscard]] bool wf_tensor_copy(struct wf_run *run, const struct wf_value *v, float *array,
                                  bool to_array, struct wf_err *err);
/* Collective. The array is the same one where ranks are threads, and each process's own under a launcher,
 * where all get it. */
[[nodiscard]] bool wf_tensor_get(const struct wf_session *s, const struct wf_run *run,
                                 struct wf_comm *comm, const struct wf_value *v, float *array,
                                 struct wf_err *err);
