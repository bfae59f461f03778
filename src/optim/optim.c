#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "device/update_rule.h"

const char *const wf_optim_names[] = {
    [WF_SGD] = "sgd",         [WF_MOMENTUM] = "momentum", [WF_NESTEROV] = "nesterov",
    [WF_ADAGRAD] = "adagrad", [WF_RMSPROP] = "rmsprop",   [WF_ADAM] = "adam",
    [WF_ADAMW] = "adamw",     [WF_LAMB] = "lamb",         [WF_LARS] = "lars",
    [WF_OPTIM_RULES] = NULL,
};

struct wf_optim_options wf_optim_defaults(enum wf_optim_rule rule)
{
    struct wf_optim_options o = { .rule = rule, .lr = 1e-3 };
    switch (rule) {
    case WF_MOMENTUM:
    case WF_NESTEROV:
        o.momentum = 0.9;
        break;
    case WF_ADAGRAD:
        o.eps = 1e-10;
        break;
    case WF_RMSPROP:
        o.beta2 = 0.99;
        o.eps = 1e-8;
        break;
    case WF_ADAM:
    case WF_ADAMW:
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.eps = 1e-8;
        o.weight_decay = rule == WF_ADAMW ? 1e-2 : 0;
        break;
    case WF_LAMB:
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.eps = 1e-6;
        o.weight_decay = 1e-2;
        break;
    case WF_LARS:
        o.momentum = 0.9;
        o.weight_decay = 5e-4;
        o.trust = 1e-3;
        break;
    case WF_SGD:
    case WF_OPTIM_RULES:
        break;
    }
    return o;
}

/* Arrays of state. */
int wf_optim_states(const struct wf_optim_options *o)
{
    switch (o->rule) {
    case WF_SGD:
        return 0;
    case WF_RMSPROP:
        return o->momentum > 0 ? 2 : 1;
    case WF_ADAM:
    case WF_ADAMW:
    case WF_LAMB:
        return 2;
    default:
        return 1;
    }
}

size_t wf_optim_bytes(const struct wf_optim_options *o, size_t count)
{
    return (size_t)(wf_optim_states(o) + o->accumulates) * count * sizeof(float);
}

struct wf_load wf_optim_load(const struct wf_optim_options *options, size_t count)
{
    /* Weights and states are read and written; gradients are read twice, the first time for their norm. */
    const double bytes = (double)(count * sizeof(float)) * (4 + 2 * wf_optim_states(options));
    return wf_cost_update_load((double)count, bytes);
}

/* --- making --- */

static int pieces_of(const struct wf_update_tensor *t)
{
    return (int)wf_ceil_div(t->count, WF_UPDATE_PIECE);
}

/* U2 */
static void *prepare(const struct wf_optim *o, int n, const struct wf_update_tensor tensors[])
{
    struct wf_arena arena = { 0 };
    struct wf_update_tensor *const all = wf_arena_array(&arena, n + 1, struct wf_update_tensor);
    int count = 0;
    for (int t = 0; t < n; t++) {
        all[t] = tensors[t];
        all[t].first_piece = count;
        all[t].n_pieces = pieces_of(&tensors[t]);
        count += all[t].n_pieces;
    }
    struct wf_update_piece *const pieces =
        wf_arena_array(&arena, count + 1, struct wf_update_piece);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < all[t].n_pieces; i++) {
            const int64_t at = (int64_t)i * WF_UPDATE_PIECE;
            pieces[all[t].first_piece + i] =
                (struct wf_update_piece){ .first = all[t].first + at,
                                          .count =
                                              (int32_t)wf_min(WF_UPDATE_PIECE, all[t].count - at),
                                          .tensor = t };
        }
    void *const prepared = o->device->updater->prepare(
        o->context, &(struct wf_update_layout){
                        .n_tensors = n, .n_pieces = count, .tensors = all, .pieces = pieces });
    wf_arena_release(&arena);
    return prepared;
}

struct wf_optim *wf_optim_new_flat(const struct wf_optim_options *options,
                                   const struct wf_device *device, struct wf_context *context,
                                   size_t count, int n_tensors,
                                   const struct wf_update_tensor tensors[], struct wf_err *err)
{
    struct wf_optim *const o = wf_take_zeroed(1, sizeof *o);
    o->options = *options;
    o->device = device;
    o->context = context;
    o->lr = options->lr;
    o->count = count;
    o->n_states = wf_optim_states(options);
    o->n_tensors = n_tensors;
    const size_t bytes = count * sizeof(float);
    bool ok = true;
    for (int i = 0; i < o->n_states; i++)
        ok = (o->states[i] = device->memory.alloc(context, bytes)) && ok;
    if (options->accumulates)
        ok = (o->sum = device->memory.alloc(context, bytes)) && ok;
    o->prepared = ok ? prepare(o, n_tensors, tensors) : NULL;
    if (o->prepared)
        return o;
    (void)wf_err_set(err, WF_ERR_FIT, "no memory for the optimiser's %zu bytes",
                     wf_optim_bytes(options, count));
    wf_optim_free(o);
    return NULL;
}

struct wf_optim *wf_optim_new(const struct wf_optim_options *options, const struct wf_run *run,
                              struct wf_err *err)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    const struct wf_graph *const g = plan->global->graph;
    const struct wf_layout *const layout = &plan->global->geometry.layout;
    struct wf_arena arena = { 0 };
    struct wf_update_tensor *const tensors =
        wf_arena_array(&arena, g->n_values + 1, struct wf_update_tensor);
    struct wf_update_tensor *const counted =
        wf_arena_array(&arena, g->n_values + 1, struct wf_update_tensor);
    int n = 0, n_counted = 0;
    bool all = true;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if (v->kind != WF_PARAM || v->frozen || !v->grad) /* U1 */
            continue;
        all = all && wf_layout_is_on_all(layout, v);
        if (!wf_layout_value_tiling(layout, v, plan->rank))
            continue;
        const bool vector = v->border_dims < 0;
        tensors[n] = (struct wf_update_tensor){ .first = (int64_t)plan->param_at[i],
                                                .count = wf_shape_count(v->shape),
                                                .decays = !(vector && options->matrices_only) };
        if (wf_layout_is_first(layout, v, plan->rank))
            counted[n_counted++] = tensors[n];
        n++;
    }
    struct wf_optim *const o = wf_optim_new_flat(options, wf_run_device(run), wf_run_context(run),
                                                 wf_run_trained_count(run), n, tensors, err);
    if (o && !all)
        o->counted = prepare(o, n_counted, counted);
    wf_arena_release(&arena);
    if (!o || all || o->counted)
        return o;
    wf_optim_free(o);
    (void)wf_err_set(err, WF_ERR_FIT, "no memory for the optimiser");
    return NULL;
}

void wf_optim_free(struct wf_optim *o)
{
    if (!o)
        return;
    const size_t bytes = o->count * sizeof(float);
    if (o->prepared)
        o->device->updater->release(o->prepared);
    if (o->counted)
        o->device->updater->release(o->counted);
    for (int i = 0; i < o->n_states; i++)
        if (o->states[i])
            o->device->memory.free(o->context, o->states[i], bytes);
    if (o->sum)
        o->device->memory.free(o->context, o->sum, bytes);
    free(o);
}

/* --- sweeping --- */

double wf_optim_squares(struct wf_optim *o, const float *grads)
{
    return o->device->updater->squares(o->counted ? o->counted : o->prepared, grads);
}

/* The numbers of the next update. */
static struct wf_update next(struct wf_optim *o, float *params, const float *grads, double scale)
{
    const struct wf_optim_options *const p = &o->options;
    const double t = (double)++o->step;
    return (struct wf_update){
        .rule = p->rule,
        .scale = (float)scale,
        .lr = (float)o->lr,
        .momentum = (float)p->momentum,
        .beta1 = (float)p->beta1,
        .beta2 = (float)p->beta2,
        .rest1 = (float)(1 - p->beta1),
        .rest2 = (float)(1 - p->beta2),
        .eps = (float)p->eps,
        .decay = (float)p->weight_decay,
        .trust = (float)p->trust,
        .correct1 = (float)(1 / (1 - pow(p->beta1, t))),
        .correct2 = (float)(1 / sqrt(1 - pow(p->beta2, t))),
        .param = params,
        .grad = grads,
        .state = { o->states[0], o->states[1] },
    };
}

void wf_optim_update(struct wf_optim *o, float *params, const float *grads, double scale)
{
    const struct wf_update update = next(o, params, grads, scale);
    o->device->updater->update(o->prepared, &update);
}

void wf_optim_update_clipped(struct wf_optim *o, float *params, const float *grads, double scale,
                             double clip)
{
    const struct wf_updater *const updater = o->device->updater;
    WF_BUG_ON(o->counted, "a norm of all ranks is clipped by them");
    if (updater->update_clipped) {
        const struct wf_update update = next(o, params, grads, scale);
        updater->update_clipped(o->prepared, &update, clip);
        return;
    }
    o->squares = updater->squares(o->prepared, grads);
    const struct wf_update update =
        next(o, params, grads, wf_update_factor(o->squares, scale, clip));
    if (isfinite(o->squares))
        updater->update(o->prepared, &update);
}

double wf_optim_read(struct wf_optim *o)
{
    const struct wf_updater *const updater = o->device->updater;
    const double squares = updater->read_squares ? updater->read_squares(o->prepared) : o->squares;
    if (!isfinite(squares)) /* it was none */
        o->step--;
    return squares;
}
