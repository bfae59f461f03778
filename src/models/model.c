#include "models/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "ops/sparse.h"

const struct wf_model *wf_model_find(const char *name, struct wf_err *err)
{
    struct wf_suggest closest = { .typed = name };
    for (const struct wf_model *const *m = wf_model_table; *m; m++) {
        if (strcmp((*m)->name, name) == 0)
            return *m;
        wf_suggest_offer(&closest, (*m)->name);
    }
    if (closest.best)
        wf_err_set(err, WF_ERR_USAGE, "there is no network '%s': did you mean '%s'?", name,
                   closest.best);
    else
        wf_err_set(err, WF_ERR_USAGE,
                   "there is no network '%s': 'widefield model list' has them all", name);
    return NULL;
}

struct wf_value *wf_model_input(struct wf_graph *g, const struct wf_model *m,
                                const struct wf_model_config *c, const char *name,
                                struct wf_shape shape)
{
    if (m->sparse)
        return wf_sparse_input(g, &(struct wf_sparse_input){ .features = name,
                                                             .coords = "coords",
                                                             .dims = c->dims,
                                                             .rows = shape.at[WF_N],
                                                             .channels = shape.at[WF_C] })
            .features;
    struct wf_value *const x = wf_input(g, name, WF_F32, shape);
    if (x)
        x->border_dims = c->dims;
    return x;
}

/* A parameter of a batch norm stands beside running statistics. */
static bool is_of_norm(const struct wf_graph *g, const struct wf_value *v)
{
    char mean[512];
    const char *const dot = strrchr(v->name, '.');
    (void)snprintf(mean, sizeof mean, "%.*s.running_mean", dot ? (int)(dot - v->name) : 0, v->name);
    return v->kind == WF_PARAM && wf_graph_find(g, mean) != NULL;
}

int64_t wf_model_parameters(const struct wf_model *m, const struct wf_graph *g, int64_t *beside)
{
    *beside = 0;
    for (size_t i = 0; i < g->n_values && m->counts_no_norm; i++)
        if (is_of_norm(g, g->values[i]) && !g->values[i]->frozen)
            *beside += wf_shape_count(g->values[i]->shape);
    return wf_graph_parameters(g, false) - *beside;
}

/* A key that the network has (its default is not zero): zero takes the default. */
static bool settle(const struct wf_model *m, const char *key, int64_t *value, int64_t usual,
                   struct wf_err *err)
{
    if (*value == 0) {
        *value = usual;
        return true;
    }
    if (usual == 0)
        return wf_err_set(err, WF_ERR_USAGE, "network '%s' has no '%s': leave model.%s out",
                          m->name, key, key);
    if (*value < 0 || *value > INT32_MAX)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s': model.%s is %" PRId64 ", it must be at least 1", m->name,
                          key, *value);
    return true;
}

bool wf_model_resolve(const struct wf_model *m, struct wf_model_config *c, struct wf_err *err)
{
    const struct wf_model_config *d = &m->defaults;
    if (c->dims == 0)
        c->dims = d->dims;
    if (c->dims < m->dims_min || c->dims > m->dims_max)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s' has %d to %d dimensions, got %d: set model.dims", m->name,
                          m->dims_min, m->dims_max, c->dims);
    if (!settle(m, "in", &c->in, d->in ? d->in : 3, err) ||
        !settle(m, "classes", &c->classes, d->classes ? d->classes : 2, err) ||
        !settle(m, "base", &c->base, d->base, err) || !settle(m, "depth", &c->depth, d->depth, err))
        return false;
    if (c->depth > 15 || c->base << (c->depth + 1) > 1 << 20)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s': base %" PRId64 " doubled over depth %" PRId64
                          " levels gives too many channels: take a smaller base or depth",
                          m->name, c->base, c->depth);
    c->own = c->own ? c->own : d->own;
    return !m->check || m->check(m, c, err);
}
