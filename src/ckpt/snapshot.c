#include "ckpt/snapshot.h"

#include <stdlib.h>

#include "base/memory.h"
#include "ckpt/tensor_list.h"
#include "exec/holders.h"

enum { STATES = 1 }; /* of the arrays that exec/holders.h numbers */

struct wf_snapshot {
    struct wf_tensor_list list;
    const struct wf_device *device;
    struct wf_context *context;
    float *memory; /* the tensors without gaps, in the order of the list */
    size_t bytes;
};

static size_t count_of(const struct wf_tensor_item *item)
{
    return (size_t)wf_shape_count(item->value->shape);
}

size_t wf_snapshot_bytes(const struct wf_graph *g, int optim_states)
{
    size_t bytes = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        const size_t each = (size_t)wf_shape_count(v->shape) * sizeof(float);
        if (v->kind == WF_PARAM)
            bytes += each * (1 + (v->frozen ? 0 : (size_t)optim_states));
        else if (v->kind == WF_STATE)
            bytes += each;
    }
    return bytes;
}

struct wf_snapshot *wf_snapshot_new(const struct wf_run *run, const struct wf_optim *optim,
                                    struct wf_err *err)
{
    struct wf_snapshot *const s = wf_take_zeroed(1, sizeof *s);
    s->device = wf_run_device(run);
    s->context = wf_run_context(run);
    s->bytes = wf_snapshot_bytes(wf_run_plan(run)->global->graph, optim->n_states);
    wf_tensor_list_init(&s->list, run, optim);
    s->memory = wf_device_is_host(s->device) ? s->device->memory.alloc(s->context, s->bytes)
                                             : s->device->transfer.host_alloc(s->context, s->bytes);
    if (!s->memory) {
        (void)wf_err_set(err, WF_ERR_FIT,
                         "no host memory for the %zu bytes of a checkpoint: free some, or use a "
                         "smaller network",
                         s->bytes);
        wf_snapshot_free(s);
        return NULL;
    }
    const float *at = s->memory;
    for (size_t i = 0; i < s->list.count; i++) {
        s->list.items[i].kept = at;
        at += count_of(&s->list.items[i]);
    }
    WF_BUG_ON((size_t)((const char *)at - (char *)s->memory) != s->bytes, "%zu bytes planned",
              s->bytes);
    return s;
}

void wf_snapshot_free(struct wf_snapshot *s)
{
    if (!s)
        return;
    if (s->memory && wf_device_is_host(s->device))
        s->device->memory.free(s->context, s->memory, s->bytes);
    else if (s->memory)
        s->device->transfer.host_free(s->context, s->memory);
    wf_tensor_list_release(&s->list);
    free(s);
}

/* --- taking --- */

static float *place_of(const struct wf_snapshot *s, const struct wf_tensor_item *item)
{
    return s->memory + (item->kept - s->memory);
}

static struct wf_view flat(float *data, size_t count)
{
    return wf_view_dense(data, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, (int64_t)count)));
}

/* Neighbours here that are neighbours there go in one copy; returns the item behind them. */
static size_t copy_neighbours(struct wf_snapshot *s, size_t first)
{
    const struct wf_tensor_item *const items = s->list.items;
    size_t count = count_of(&items[first]), next = first + 1;
    for (; next < s->list.count && items[next].array == items[first].array &&
           items[next].ours == items[first].ours + count;
         next++)
        count += count_of(&items[next]);
    const struct wf_view to = flat(place_of(s, &items[first]), count),
                         from = flat(items[first].ours, count);
    if (wf_device_is_host(s->device))
        s->device->memory.copy(s->context, &to, &from);
    else
        s->device->transfer.keep(s->context, &to, &from);
    return next;
}

/* Either the states or all others. */
static bool take_part(struct wf_snapshot *s, bool states, struct wf_err *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < s->list.count;) {
        const struct wf_tensor_item *const item = &s->list.items[i];
        const bool wanted = (item->array == STATES) == states;
        if (wanted && item->ours) {
            i = copy_neighbours(s, i);
            continue;
        }
        if (wanted)
            ok = wf_run_ask(s->list.run, item->array, item->value, place_of(s, item), err);
        i++;
    }
    return ok;
}

bool wf_snapshot_take(struct wf_snapshot *s, struct wf_err *err)
{
    if (!take_part(s, true, err))
        return false;
    if (!wf_device_is_host(s->device))
        s->device->transfer.fence(s->context); /* a pass changes them, long before the update */
    return take_part(s, false, err);
}

bool wf_snapshot_settle(struct wf_snapshot *s, struct wf_err *err)
{
    return wf_device_is_host(s->device) || s->device->transfer.kept(s->context, err);
}

/* --- writing --- */

bool wf_snapshot_write(struct wf_snapshot *s, const char *path,
                       const struct wf_checkpoint_info *info, struct wf_err *err)
{
    s->list.buffer = wf_tensor_list_room(&s->list, err);
    const bool ok = s->list.buffer ? wf_tensor_list_write(&s->list, path, info, err)
                                   : wf_err_wrap(err, "writing a checkpoint");
    free(s->list.buffer);
    s->list.buffer = NULL;
    return ok;
}
