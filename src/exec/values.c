/* A run's values from the host. */
#include <string.h>

#include "exec/run_inside.h"

void wf_run_map(const struct wf_run *run, const struct wf_value *value, struct wf_host *host)
{
    wf_host_map(host, wf_run_device(run), wf_run_context(run), wf_run_view(run, value));
}

bool wf_run_can_send(const struct wf_run *run)
{
    return wf_run_device(run)->transfer.send && wf_run_plan(run)->global->options.ahead;
}

void wf_run_map_next(const struct wf_run *run, const struct wf_value *value, struct wf_host *host)
{
    wf_host_map(host, wf_run_device(run), wf_run_context(run), wf_run_view_next(run, value));
}

void wf_run_take_next(struct wf_run *run, const struct wf_value *value)
{
    const struct wf_view here = wf_run_view(run, value), sent = wf_run_view_next(run, value);
    if (here.data)
        wf_run_device(run)->transfer.take(wf_run_context(run), &here, &sent);
}

bool wf_run_get(const struct wf_run *run, const struct wf_value *value, struct wf_host *host,
                struct wf_err *err)
{
    wf_run_map(run, value, host);
    return wf_host_get(host, err) || wf_err_wrap(err, "reading '%s'", value->name);
}

bool wf_run_get_owned(const struct wf_run *run, const struct wf_value *value, struct wf_host *host,
                      struct wf_err *err)
{
    wf_host_map(host, wf_run_device(run), wf_run_context(run), wf_run_owned(run, value));
    return wf_host_get(host, err) || wf_err_wrap(err, "reading '%s'", value->name);
}

bool wf_run_get_number(const struct wf_run *run, const struct wf_value *value, int64_t index,
                       double *number, struct wf_err *err)
{
    struct wf_host host = { 0 };
    const struct wf_layout *const layout = &run->plan->global->geometry.layout;
    bool ok = wf_run_get(run, value, &host, err);
    if (ok && host.view.data)
        *number = wf_dtype_get(host.view.dtype, host.view.data, index);
    wf_host_release(&host);
    if (!wf_layout_is_on_all(layout, value))
        ok = wf_comm_agree(run->comm, ok, err) &&
             wf_comm_broadcast(run->comm, wf_layout_first_rank(layout, value), number,
                               sizeof *number, err);
    return ok;
}

void wf_run_put(struct wf_run *run, const struct wf_value *value, const void *data)
{
    const struct wf_view view = wf_run_view(run, value);
    WF_BUG_ON(!view.data || !wf_view_is_dense(&view) ||
                  wf_region_count(view.box) != wf_shape_count(value->shape),
              "'%s' is not whole here", value->name);
    struct wf_host host = { 0 };
    wf_run_map(run, value, &host);
    memcpy(host.view.data, data, wf_view_bytes(&view));
    wf_host_put(&host);
    wf_host_release(&host);
}
