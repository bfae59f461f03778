#include "exec/holders.h"

#include "exec/run_inside.h"

enum { TAG_ASK = 1, TAG_TENSOR = 2 };

struct request {
    int32_t array, value; /* value < 0: the end */
};

static const struct wf_layout *layout_of(const struct wf_run *run)
{
    return &run->plan->global->geometry.layout;
}

bool wf_run_is_whole(const struct wf_run *run)
{
    const struct wf_graph *const g = run->plan->global->graph;
    for (size_t i = 0; i < g->n_values; i++)
        if ((g->values[i]->kind == WF_PARAM || g->values[i]->kind == WF_STATE) &&
            !wf_layout_value_tiling(layout_of(run), g->values[i], 0))
            return false;
    return true;
}

bool wf_run_ask(const struct wf_run *run, int array, const struct wf_value *value, float *data,
                struct wf_err *err)
{
    const int from = wf_layout_first_rank(layout_of(run), value);
    const struct request ask = { array, value->id };
    const struct wf_message messages[] = {
        { .peer = from, .tag = TAG_ASK, .send = &ask, .bytes = sizeof ask },
        { .peer = from,
          .tag = TAG_TENSOR,
          .recv = data,
          .bytes = (size_t)wf_shape_count(value->shape) * sizeof *data },
    };
    return wf_comm_exchange(run->comm, 2, messages, err) ||
           wf_err_wrap(err, "fetching '%s' from rank %d", value->name, from);
}

bool wf_run_ask_end(const struct wf_run *run, struct wf_err *err)
{
    const struct request end = { 0, -1 };
    bool ok = true;
    for (int r = 1; ok && r < wf_comm_size(run->comm); r++)
        ok = wf_comm_exchange(
            run->comm, 1,
            &(struct wf_message){ .peer = r, .tag = TAG_ASK, .send = &end, .bytes = sizeof end },
            err);
    return ok;
}

static bool serve_one(struct wf_run *run, const struct request *ask, float *const more[],
                      struct wf_host *host, struct wf_err *err)
{
    const struct wf_value *const v = run->plan->global->graph->values[ask->value];
    struct wf_view there = wf_run_view(run, v);
    WF_BUG_ON(!there.data, "rank %d holds no '%s'", run->plan->rank, v->name);
    if (ask->array >= 2)
        there.data = more[ask->array - 2] + run->plan->param_at[v->id];
    wf_host_map(host, run->device, run->context, there);
    return wf_host_get(host, err) &&
           wf_comm_exchange(run->comm, 1,
                            &(struct wf_message){ .peer = 0,
                                                  .tag = TAG_TENSOR,
                                                  .send = host->view.data,
                                                  .bytes = wf_view_bytes(&there) },
                            err);
}

bool wf_run_serve(struct wf_run *run, float *const more[], int n, struct wf_err *err)
{
    struct wf_host host = { 0 };
    bool ok = true;
    for (struct request ask = { 0 }; ok;) {
        ok = wf_comm_exchange(
            run->comm, 1,
            &(struct wf_message){ .peer = 0, .tag = TAG_ASK, .recv = &ask, .bytes = sizeof ask },
            err);
        if (!ok || ask.value < 0)
            break;
        WF_BUG_ON(ask.array >= n + 2, "array %d of %d", ask.array, n + 2);
        ok = serve_one(run, &ask, more, &host, err);
    }
    if (!ok) /* rank 0 may wait for it */
        wf_comm_abort(run->comm, err);
    wf_host_release(&host);
    return ok || wf_err_wrap(err, "sending weights to rank 0");
}
