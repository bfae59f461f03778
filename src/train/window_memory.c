#include "train/window_memory.h"

#include "base/free_memory.h"
#include "base/units.h"

enum { DEFAULT_LIMIT = 1 << 30 };

struct wf_window_memory wf_window_memory(const struct wf_settings *settings,
                                         const struct wf_launch *launch,
                                         const struct wf_device *device, struct wf_comm *comm,
                                         struct wf_context *context)
{
    const bool host = wf_device_is_host(device);
    const size_t here = (size_t)wf_comm_local_size(comm);
    const size_t room = device->memory.room ? device->memory.room(context) : 0;
    struct wf_window_memory m = { .keeps_within_limit = settings->limit && host };
    if (settings->limit || host)
        m.limit = (settings->limit ? settings->limit : DEFAULT_LIMIT) /
                  (size_t)(launch->world ? 1 : wf_comm_size(comm));
    else
        m.limit = (room - room / 16) / here; /* kernels and recordings take some */
    m.keep = m.keeps_within_limit ? m.limit / 2 : wf_free_memory().free / 2 / here;
    return m;
}

static size_t weight_bytes(const struct wf_graph *g)
{
    size_t bytes = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM || g->values[i]->kind == WF_STATE)
            bytes += (size_t)wf_shape_count(g->values[i]->shape) * sizeof(float) + 64;
    return bytes;
}

static bool refuse_weights(size_t weights, size_t limit, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    (void)wf_err_set(err, WF_ERR_FIT,
                     "the weights take %s and memory.limit is %s for each rank: raise it to "
                     "%zuMiB at least",
                     wf_text_bytes(&arena, (double)weights), wf_text_bytes(&arena, (double)limit),
                     (weights >> 19) + 2);
    wf_arena_release(&arena);
    return false;
}

bool wf_window_memory_share(const struct wf_window_memory *m, const struct wf_graph *g,
                            size_t beside, struct wf_stream_options *o, struct wf_err *err)
{
    const size_t weights = weight_bytes(g);
    o->keep = m->keep;
    o->keeps_within_limit = m->keeps_within_limit;
    if (!m->limit)
        return true;
    if (m->limit < weights + 2 * beside || m->limit <= weights)
        return refuse_weights(weights, m->limit, err);
    o->limit = m->limit - weights - beside;
    if (m->keeps_within_limit && o->keep > o->limit / 2)
        o->keep = o->limit / 2;
    return true;
}
