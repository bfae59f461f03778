#include "ckpt/tensor_list.h"

#include <stdlib.h>

#include "base/memory.h"
#include "exec/holders.h"
#include "tensor/border.h"

static float *weight_of(const struct wf_run *run, const struct wf_value *v)
{
    const struct wf_view view = wf_run_view(run, v);
    WF_BUG_ON(view.data && (!wf_view_is_dense(&view) || view.dtype != WF_F32),
              "'%s' is not a whole f32 tensor", v->name);
    return view.data;
}

const char *wf_tensor_name(struct wf_arena *arena, const struct wf_value *v, int pass)
{
    if (v->kind != (pass == 1 ? WF_STATE : WF_PARAM) || (pass > 1 && v->frozen))
        return NULL;
    return pass < 2 ? wf_arena_printf(arena, pass ? "state.%s" : "param.%s", v->name)
                    : wf_arena_printf(arena, "optim.%d.%s", pass - 2, v->name);
}

void wf_tensor_list_init(struct wf_tensor_list *t, const struct wf_run *run,
                         const struct wf_optim *optim)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    const struct wf_graph *const g = plan->global->graph;
    *t = (struct wf_tensor_list){ .run = run };
    for (int pass = 0; pass < 2 + (optim ? optim->n_states : 0); pass++)
        for (size_t i = 0; i < g->n_values; i++) {
            const struct wf_value *const v = g->values[i];
            const char *const name = wf_tensor_name(&t->arena, v, pass);
            if (!name)
                continue;
            float *ours = weight_of(run, v);
            if (pass >= 2 && ours)
                ours = optim->states[pass - 2] + plan->param_at[v->id];
            WF_GROW(t->items, t->room, t->count);
            t->items[t->count++] =
                (struct wf_tensor_item){ .value = v, .name = name, .array = pass, .ours = ours };
        }
}

void wf_tensor_list_release(struct wf_tensor_list *t)
{
    wf_host_release(&t->host);
    free(t->items);
    free(t->buffer);
    free(t->fetched);
    wf_arena_release(&t->arena);
    *t = (struct wf_tensor_list){ 0 };
}

float *wf_tensor_list_room(const struct wf_tensor_list *t, struct wf_err *err)
{
    size_t most = 1;
    for (size_t i = 0; i < t->count; i++) {
        const size_t count = (size_t)wf_shape_count(t->items[i].value->shape);
        most = count > most ? count : most;
    }
    float *const room = malloc(most * sizeof *room);
    if (!room)
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for a checkpoint's tensor");
    return room;
}

bool wf_tensor_list_buffer(struct wf_tensor_list *t, struct wf_err *err)
{
    t->buffer = wf_tensor_list_room(t, err);
    if (t->buffer && !wf_run_is_whole(t->run))
        t->fetched = wf_tensor_list_room(t, err);
    return t->buffer && (t->fetched || wf_run_is_whole(t->run));
}

float *wf_tensor_map(struct wf_tensor_list *t, const struct wf_tensor_item *item)
{
    const struct wf_region all = wf_shape_region(item->value->shape);
    wf_host_map(&t->host, wf_run_device(t->run), wf_run_context(t->run),
                wf_view_dense(item->ours, WF_F32, all));
    return t->host.view.data;
}

const float *wf_tensor_give(struct wf_tensor_list *t, const struct wf_tensor_item *item,
                            struct wf_err *err)
{
    const float *const ours = item->kept   ? item->kept
                              : item->ours ? wf_tensor_map(t, item)
                                           : t->fetched;
    if (!item->kept &&
        !(item->ours ? wf_host_get(&t->host, err)
                     : wf_run_ask(t->run, item->array, item->value, t->fetched, err)))
        return NULL;
    wf_border_export(item->value->shape, ours, t->buffer);
    return t->buffer;
}
