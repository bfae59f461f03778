/*
 * A network file as a network like those of src/models: what the settings of a job hold, and everything else takes.
 *
 *     struct wf_net_model *m = wf_net_model_new(wf_net_read(path, err), err);
 *     settings.model = &m->model; settings.config.own = m;
 *     wf_net_model_free(m);
 */
#pragma once

#include "models/model.h"
#include "net/net.h"

struct wf_net_model {
    struct wf_model model;
    struct wf_net *net;
    const char *text;          /* of the file, in normal form */
    int64_t classes;           /* that the first head makes; 0: as many as the job has */
    struct wf_net_model *next; /* for lists */
};

/* Is a model's name the path of a file: has it a '/', or does it end as one? */
bool wf_net_is_path(const char *name);
/* Takes the network. Builds it for a trial, to see what it predicts. NULL on failure, and where net is NULL. */
[[nodiscard]] struct wf_net_model *wf_net_model_new(struct wf_net *net, struct wf_err *err);
void wf_net_model_free(struct wf_net_model *m);
/* The network of a file, or NULL: it is another one. */
const struct wf_net *wf_net_of_model(const struct wf_model *m, const struct wf_model_config *c);
