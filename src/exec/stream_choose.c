/* How large the windows of a stream are. */
#include <inttypes.h>

#include "exec/stream_inside.h"
#include "ops/op.h"

/* Bytes that some item surely needs at once, without asking the device; the largest value is
 * named. */
static size_t least_bytes(const struct wf_global_plan *s, const char **largest)
{
    const struct wf_program *p = s->program;
    size_t most = 0, most_of_one = 0;
    for (int i = 0; i < p->n_items; i++) {
        const struct wf_node *n = p->items[i].node;
        const bool shares = n->op->inplace || n->op->place || n->op->part;
        size_t sum = 0;
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            const int instance = k < n->n_in ? p->items[i].in[k] : p->items[i].out[k - n->n_in];
            if (instance < 0 || p->instances[instance].value->replicated)
                continue;
            const struct wf_value *v = p->instances[instance].value;
            const size_t bytes =
                (size_t)wf_region_count(wf_geometry_box(&s->geometry, 0, instance)) *
                wf_dtype_size(v->dtype);
            sum = shares ? (bytes > sum ? bytes : sum) : sum + bytes;
            if (bytes > most_of_one) {
                most_of_one = bytes;
                *largest = n->name;
            }
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* The caller's host copies of what a window reads and makes, where they count, and the device's copy of
 * an input that comes early. */
static size_t copied_bytes(const struct wf_stream *s, const struct wf_stream_stage *t,
                           const struct wf_global_plan *global)
{
    size_t in = 0, out = 0;
    for (size_t i = 0; i < s->graph->n_values; i++)
        if (s->graph->values[i]->kind == WF_INPUT && t->map[i])
            in += (size_t)wf_region_count(wf_geometry_box(
                      &global->geometry, 0, global->program->of_value[t->map[i]->id])) *
                  wf_dtype_size(t->map[i]->dtype);
    for (size_t i = 0; i < t->graph->n_outputs; i++)
        out +=
            (size_t)wf_region_count(wf_geometry_owned(&global->geometry, 0, t->graph->outputs[i])) *
            wf_dtype_size(t->graph->outputs[i]->dtype);
    return wf_device_is_host(s->options.plan.device) ? (size_t)s->options.slots * (in + out) : in;
}

bool wf_stream_find_need(const struct wf_stream *s, const struct wf_stream_stage *t,
                         struct wf_region window, struct wf_stream_need *need, struct wf_err *err)
{
    struct wf_plan_options options = s->options.plan;
    options.window = &window;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_global_plan *global = wf_global_plan_new(t->graph, &one, &options, err);
    if (!global)
        return false;
    const size_t channels = (size_t)wf_region_extent(window, WF_C);
    const size_t beside = s->options.beside * ((size_t)wf_region_count(window) / channels);
    need->bytes = least_bytes(global, &need->largest) + beside;
    const size_t copied = copied_bytes(s, t, global);
    bool ok = true;
    if (!s->options.limit || need->bytes <= s->options.limit) {
        /* The CPU knows its scratch only when kernels are made; a GPU would time kernels for windows that are
         * not taken. */
        struct wf_plan *plan = wf_device_is_host(s->options.plan.device)
                                   ? wf_plan_new_on(global, 0, s->options.context, err)
                                   : wf_plan_estimate(global, 0, NULL, err);
        ok = plan != NULL;
        if (ok)
            *need = (struct wf_stream_need){ .bytes = plan->arena_bytes + beside + copied,
                                             .flops = plan->flops,
                                             .largest = need->largest };
        wf_plan_free(plan);
    }
    wf_global_plan_free(global);
    return ok;
}

static void start_grid(const struct wf_stream *s, struct wf_window_grid *g, struct wf_shape whole)
{
    g->whole = whole;
    g->tile = s->options.tile;
    for (int a = 0; a < WF_AXES; a++) {
        wf_window_grid_set_step(g, a, whole.at[a]);
        if (a < WF_C && s->options.window[a] > 0)
            wf_window_grid_set_step(g, a, s->options.window[a]);
    }
}

static bool has_wish(const struct wf_stream *s)
{
    for (int a = 0; a < WF_C; a++)
        if (s->options.window[a] > 0)
            return true;
    return false;
}

/* What `count` windows of that many operations cost, in units of the image's: the first is read and the last
 * written while nothing is computed, and each costs the device as much as some pixels more. */
static double cost_of(const struct wf_stream_stage *t, double count, double flops)
{
    const double ramp = 0.5, each = 0.25e6;
    const double pixels = (double)wf_shape_count(t->grid.whole) / (double)t->grid.whole.at[WF_C];
    return count * (flops / t->flops + each / pixels) * (1.0 + ramp / count);
}

/* By throughput, on a device with a pipeline before and behind it: bands over the whole width, of which
 * there are only three kinds to plan, as many as cost least. False: halos would be too large. */
static bool choose_bands(const struct wf_stream *s, struct wf_stream_stage *t, bool *found,
                         struct wf_err *err)
{
    const double most_halo = 0.5, much = 1.25;
    const int axis = t->grid.whole.at[WF_D] > 1 ? WF_D : WF_H;
    struct wf_window_grid best = t->grid;
    double least = 0;
    *found = false;
    for (int64_t count = 1; count <= t->grid.whole.at[axis]; count += 1 + count / 4) {
        struct wf_stream_need need = { 0 };
        wf_window_grid_set_count(&t->grid, axis, count);
        if (!wf_stream_find_need(s, t, wf_window_grid_middle(&t->grid), &need, err))
            return false;
        const double windows = (double)wf_window_grid_count(&t->grid);
        const double cost = cost_of(t, windows, need.flops);
        if (need.flops > 0 && windows * need.flops > (1 + most_halo) * t->flops)
            break;
        if (need.flops > 0 && need.bytes <= s->options.limit && (!*found || cost < least)) {
            best = t->grid;
            least = cost;
            *found = true;
        }
        if (*found && cost > much * least)
            break;
    }
    t->grid = best;
    return true;
}

bool wf_stream_choose_grid(const struct wf_stream *s, struct wf_stream_stage *t,
                           struct wf_shape whole, struct wf_err *err)
{
    struct wf_window_grid *g = &t->grid;
    start_grid(s, g, whole);
    if (!s->options.limit)
        return true;
    const bool fixed = has_wish(s);
    bool found = false;
    if (!fixed && !wf_device_is_host(s->options.plan.device) && !choose_bands(s, t, &found, err))
        return false;
    if (found)
        return true;
    start_grid(s, g, whole);
    for (int a = 0; a < WF_C && !fixed; a++)
        if (s->options.most[a] > 0 && s->options.most[a] < whole.at[a])
            wf_window_grid_set_step(g, a, s->options.most[a]);
    for (;;) {
        const struct wf_region window = wf_window_grid_middle(g);
        struct wf_stream_need need = { 0 };
        if (!wf_stream_find_need(s, t, window, &need, err))
            return false;
        if (need.bytes <= s->options.limit)
            return true;
        if (fixed || !wf_window_grid_refine(g))
            return wf_err_set(
                err, WF_ERR_FIT,
                "a window of %" PRId64 " x %" PRId64 " x %" PRId64
                " needs %zu bytes, most of it at layer '%s', and memory.limit leaves %zu for "
                "windows: raise it",
                wf_region_extent(window, WF_D), wf_region_extent(window, WF_H),
                wf_region_extent(window, WF_W), need.bytes, need.largest, s->options.limit);
    }
}
