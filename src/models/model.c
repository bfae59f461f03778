#include "models/model.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b, int c)
{
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Letters to insert, delete or replace; words past LONGEST are far from everything. */
static int distance(const char *a, const char *b)
{
    int row[LONGEST + 1];
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, row[j] + 1, row[j - 1] + 1);
        }
    }
    return row[m];
}

const struct wf_model *wf_model_find(const char *name, struct wf_err *err)
{
    const struct wf_model *closest = NULL;
    int best = INT_MAX;
    for (const struct wf_model *const *m = wf_model_table; *m; m++) {
        if (strcmp((*m)->name, name) == 0)
            return *m;
        const int away = distance(name, (*m)->name);
        if (away < best) {
            closest = *m;
            best = away;
        }
    }
    wf_err_set(err, WF_ERR_USAGE,
               "there is no network '%s': did you mean '%s'? 'widefield model list' has them all",
               name, closest ? closest->name : "");
    return NULL;
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
    return true;
}
