/* A small U-Net with batch norm and Adam on some mesh, for tests of what is saved of it. */
#pragma once

#include "optim/optim.h"

struct support_net {
    struct wf_graph *g;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
};

/* Collective. */
[[nodiscard]] bool support_net_init(struct support_net *n, struct wf_comm *comm,
                                    const char *mesh_text, bool training, struct wf_err *err);
/* For training, with the weights frozen whose names begin so; NULL: none. */
[[nodiscard]] bool support_net_init_frozen(struct support_net *n, struct wf_comm *comm,
                                           const char *mesh_text, const char *frozen,
                                           struct wf_err *err);
/* The same on the device of `context`; NULL: the reference device. */
[[nodiscard]] bool support_net_init_on(struct support_net *n, struct wf_context *context,
                                       struct wf_comm *comm, const char *mesh_text, bool training,
                                       struct wf_err *err);
void support_net_release(struct support_net *n);
