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

/* The array, in the order of PyTorch, as a view. */
static struct wf_view outside(const struct wf_value *v, float *array)
{
    struct wf_view all = { .data = array, .dtype = WF_F32, .box = wf_shape_region(v->shape) };
    static const int order[] = { WF_W, WF_H, WF_D, WF_C, WF_N }; /* innermost first */
    int64_t stride = 1;
    for (int i = 0; i < WF_AXES; i++) {
        all.stride[order[i]] = stride;
        stride *= v->shape.at[order[i]];
    }
    return all;
}

bool wf_tensor_copy(struct wf_run *run, const struct wf_value *v, float *array, bool to_array,
                    struct wf_err *err)
{
    const struct wf_device *const device = wf_run_device(run);
    struct wf_context *const context = wf_run_context(run);
    struct wf_view mine = to_array ? wf_run_owned(run, v) : wf_run_view(run, v);
    if (!mine.data || wf_region_is_empty(mine.box))
        return true;
    if (mine.dtype != WF_F32)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is of %s there: arrays on a device are f32",
                          v->name, wf_dtype_name(mine.dtype));
    if (device->memory.adopt && !device->memory.adopt(context, array, err))
        return false;
    const struct wf_view all = outside(v, array);
    mine = wf_view_part(mine, wf_region_intersect(mine.box, all.box));
    const struct wf_view part = wf_view_part(all, mine.box);
    device->memory.copy(context, to_array ? &part : &mine, to_array ? &mine : &part);
    return wf_run_wait(run, err);
}

bool wf_tensor_get(const struct wf_session *s, const struct wf_run *run, struct wf_comm *comm,
                   const struct wf_value *v, float *array, struct wf_err *err)
{
    const size_t bytes = (size_t)wf_shape_count(v->shape) * sizeof *array;
    return wf_gather(run, comm, v, array, err) &&
           (!s->launch.world || wf_comm_broadcast(comm, 0, array, bytes, err));
}
