/* Whole arrays of the program, and the part of them that a rank has. */
#include "api/session.h"
#include "tensor/border.h"
#include "ops/op.h"
#include "train/gather.h"

bool wf_tensor_check(const struct wf_value *v, const char *name, size_t count, struct wf_err *err)
{
    if (!v)
        return wf_err_set(err, WF_ERR_USAGE, "there is no tensor '%s' here", name);
    const size_t there = (size_t)wf_shape_count(v->shape);
    return count == there ||
           wf_err_set(err, WF_ERR_USAGE, "'%s' has %zu elements, but the array has %zu", name,
                      there, count);
}

void wf_tensor_put(struct wf_run *run, const struct wf_value *v, const float *array)
{
    struct wf_host host = { 0 };
    wf_run_map(run, v, &host);
    if (host.view.data)
        for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c);)
            wf_view_set(&host.view, c.at, (double)array[wf_outside_index(&v->shape, c.at)]);
    wf_host_put(&host);
    wf_host_release(&host);
}

bool wf_tensor_get(const struct wf_session *s, const struct wf_run *run, struct wf_comm *comm,
                   const struct wf_value *v, float *array, struct wf_err *err)
{
    const size_t bytes = (size_t)wf_shape_count(v->shape) * sizeof *array;
    return wf_gather(run, comm, v, array, err) &&
           (!s->launch.world || wf_comm_broadcast(comm, 0, array, bytes, err));
}
