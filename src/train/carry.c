#include "train/carry.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { ARRAYS = 2 + WF_UPDATE_STATES };

struct wf_carry {
    float *arrays[ARRAYS];
    size_t counts[ARRAYS];
    int64_t step;
};

/* The flat arrays of a rank, in device memory. */
static void list(struct wf_run *run, const struct wf_optim *optim, float *arrays[ARRAYS],
                 size_t counts[ARRAYS])
{
    arrays[0] = wf_run_params(run);
    counts[0] = wf_run_param_count(run);
    arrays[1] = wf_run_states(run);
    counts[1] = wf_run_state_count(run);
    for (int i = 0; i < WF_UPDATE_STATES; i++) {
        arrays[2 + i] = i < optim->n_states ? optim->states[i] : NULL;
        counts[2 + i] = arrays[2 + i] ? optim->count : 0;
    }
}

static struct wf_host map(const struct wf_run *run, float *array, size_t count)
{
    const struct wf_region all = { .hi = { 1, 1, 1, 1, (int64_t)count } };
    struct wf_host host = { 0 };
    wf_host_map(&host, wf_run_device(run), wf_run_context(run), wf_view_dense(array, WF_F32, all));
    return host;
}

struct wf_carry *wf_carry_take(struct wf_run *run, const struct wf_optim *optim, struct wf_err *err)
{
    struct wf_carry *const c = wf_take_zeroed(1, sizeof *c);
    float *from[ARRAYS];
    list(run, optim, from, c->counts);
    c->step = optim->step;
    bool ok = true;
    for (int i = 0; ok && i < ARRAYS; i++) {
        if (c->counts[i] == 0)
            continue;
        c->arrays[i] = wf_take(c->counts[i] * sizeof(float));
        struct wf_host host = map(run, from[i], c->counts[i]);
        ok = wf_host_get(&host, err);
        if (ok)
            memcpy(c->arrays[i], host.view.data, c->counts[i] * sizeof(float));
        wf_host_release(&host);
    }
    if (ok)
        return c;
    wf_carry_free(c);
    return NULL;
}

void wf_carry_give(const struct wf_carry *c, struct wf_run *run, struct wf_optim *optim)
{
    float *to[ARRAYS];
    size_t counts[ARRAYS];
    list(run, optim, to, counts);
    for (int i = 0; i < ARRAYS; i++) {
        WF_BUG_ON(counts[i] != c->counts[i], "array %d has %zu elements, had %zu", i, counts[i],
                  c->counts[i]);
        if (counts[i] == 0)
            continue;
        struct wf_host host = map(run, to[i], counts[i]);
        memcpy(host.view.data, c->arrays[i], counts[i] * sizeof(float));
        wf_host_put(&host);
        wf_host_release(&host);
    }
    optim->step = c->step;
}

void wf_carry_free(struct wf_carry *c)
{
    for (int i = 0; c && i < ARRAYS; i++)
        free(c->arrays[i]);
    free(c);
}
