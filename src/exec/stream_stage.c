/* Stages of a stream: a part of the graph, its windows by kinds, each with a plan and a run, and one window. */
#include "exec/stream_inside.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "exec/translate.h"
#include "ops/op.h"

void wf_stream_stage_cut(const struct wf_stream *s, struct wf_stream_stage *t, int n_outputs,
                         struct wf_value *const outputs[])
{
    struct wf_arena arena = { 0 };
    struct wf_value **given = wf_arena_array(&arena, s->n_given + 1, struct wf_value *);
    for (int i = 0; i < s->n_given; i++)
        given[i] = s->given[i].value;
    *t = (struct wf_stream_stage){ .map = wf_take_zeroed(s->graph->n_values, sizeof *t->map) };
    const struct wf_cut cut = {
        .n_given = s->n_given, .given = given, .n_outputs = n_outputs, .outputs = outputs
    };
    t->graph = wf_graph_cut(s->graph, &cut, t->map);
    wf_arena_release(&arena);
    for (size_t i = 0; i < t->graph->n_nodes; i++) {
        const struct wf_node *n = t->graph->nodes[i];
        t->flops += wf_op_flops(n, wf_shape_region(wf_op_domain(n)->shape));
    }
}

bool wf_stream_stage_init(const struct wf_stream *s, struct wf_stream_stage *t, int n_outputs,
                          struct wf_value *const outputs[], struct wf_err *err)
{
    wf_stream_stage_cut(s, t, n_outputs, outputs);
    if (!wf_graph_ok(t->graph, err))
        return false;
    WF_BUG_ON(!t->map, "a stage that was not cut");
    const struct wf_node *n = t->map[outputs[0]->id]->producer; /* none where it was given */
    struct wf_shape whole = n ? wf_op_domain(n)->shape : outputs[0]->shape;
    for (int i = 1; i < n_outputs; i++)
        if (!outputs[i]->producer || !wf_op_sums_over(outputs[i]->producer))
            whole.at[WF_C] = wf_max(whole.at[WF_C], outputs[i]->shape.at[WF_C]);
    return wf_stream_choose_grid(s, t, whole, err);
}

static void kind_release(struct wf_stream_kind *k)
{
    wf_run_free(k->run);
    wf_plan_free(k->plan);
    wf_global_plan_free(k->global);
    *k = (struct wf_stream_kind){ 0 };
}

void wf_stream_stage_release(struct wf_stream_stage *t)
{
    for (int i = t->n_kinds - 1; i >= 0; i--) /* the first lends to the others */
        kind_release(&t->kinds[i]);
    wf_geometry_release(&t->geometry);
    wf_arena_release(&t->arena);
    wf_graph_free(t->graph);
    free(t->map);
    *t = (struct wf_stream_stage){ 0 };
}

/* A run for the plan: the first of the stage takes memory and weights, the others borrow both. */
static bool start_run(struct wf_stream *s, struct wf_stream_stage *t, struct wf_stream_kind *k,
                      struct wf_err *err)
{
    struct wf_run *const lender = k == t->kinds ? s->options.lender : t->kinds[0].run;
    k->run = lender ? wf_run_new_alone(lender, k->plan, s->self, err)
                    : wf_run_new(k->plan, s->self, 0, err);
    return k->run && (lender || s->options.weights(s->options.user, k->run, err));
}

/* Windows that were begun are computed: what is released now may be in the device's queue. */
static bool finish_begun(const struct wf_stream *s, struct wf_err *err)
{
    const struct wf_device *const device = s->options.plan.device;
    return !device->stream.synchronize || device->stream.synchronize(s->options.context, err);
}

/* Plans windows such as this one. One that needs a larger arena than the first takes its place, and the
 * others with it: so there is one arena at a time. */
static bool add_kind(struct wf_stream *s, struct wf_stream_stage *t, struct wf_region window,
                     struct wf_err *err)
{
    struct wf_plan_options options = s->options.plan;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_stream_kind new = { 0 };
    options.window = &window;
    new.global = wf_global_plan_new(t->graph, &one, &options, err);
    new.plan = new.global ? wf_plan_new_on(new.global, 0, s->options.context, err) : NULL;
    if (!new.plan || !finish_begun(s, err)) {
        kind_release(&new);
        return false;
    }
    s->plans++;
    if (t->n_kinds > 0 && new.plan->arena_bytes > t->kinds[0].plan->arena_bytes)
        while (t->n_kinds > 0)
            kind_release(&t->kinds[--t->n_kinds]);
    if (t->n_kinds == WF_STREAM_KINDS) {
        t->oldest = t->oldest % (WF_STREAM_KINDS - 1) + 1;
        t->kind = &t->kinds[t->oldest];
        kind_release(t->kind);
    } else {
        t->kind = &t->kinds[t->n_kinds++];
    }
    *t->kind = new;
    if (!start_run(s, t, t->kind, err))
        return false;
    const size_t bytes = wf_run_bytes(t->kinds[0].run);
    s->most_bytes = bytes > s->most_bytes ? bytes : s->most_bytes;
    return true;
}

struct wf_region wf_stream_stage_middle(const struct wf_stream_stage *t)
{
    return wf_window_grid_window(&t->grid, wf_window_grid_middle(&t->grid));
}

/* It needs most, as a rule, and most others are like it. */
static bool add_middle(struct wf_stream *s, struct wf_stream_stage *t, struct wf_err *err)
{
    return add_kind(s, t, wf_stream_stage_middle(t), err);
}

static bool find_geometry(struct wf_stream_stage *t, struct wf_region window, struct wf_err *err)
{
    const struct wf_mesh one = wf_mesh_one();
    wf_geometry_release(&t->geometry);
    wf_arena_release(&t->arena);
    t->arena = (struct wf_arena){ 0 };
    if (!wf_geometry_init(&t->arena, &t->geometry, t->graph, t->kinds[0].global->program, &one,
                          &(struct wf_geometry_options){ .window = &window }, err))
        return false;
    wf_geometry_place(&t->arena, &t->geometry, 0);
    return true;
}

/* Makes the window the one at hand: with the plan of one that lies alike, where there is one. */
static bool stage_turn_to(struct wf_stream *s, struct wf_stream_stage *t, struct wf_region window,
                          struct wf_err *err)
{
    if (t->n_kinds == 0 && !add_middle(s, t, err))
        return false;
    if (!find_geometry(t, window, err))
        return false;
    for (int i = 0; i < t->n_kinds; i++)
        if (wf_geometry_is_shifted(&t->kinds[i].global->geometry, &t->geometry)) {
            t->kind = &t->kinds[i];
            return true;
        }
    return add_kind(s, t, window, err) &&
           find_geometry(t, window, err); /* of the first's program */
}

/* The last cell but one may read what lies past the image, where the last one is small: then it would
 * need a plan of its own. It ends earlier instead, as late as lets it be like those before it. */
static bool settle_edge(struct wf_stream_stage *t, int axis, struct wf_err *err)
{
    struct wf_window_grid *const g = &t->grid;
    const int64_t end = g->whole.at[axis], step = g->step[axis];
    const int64_t least = wf_window_grid_has_tiles(g, axis) ? wf_stream_tile(g->tile, step) : 1;
    struct wf_region window = wf_stream_stage_middle(t);
    for (int64_t unit = wf_max(WF_WINDOW_ALIGN, least); unit >= least; unit /= 2)
        for (int64_t edge = (g->count[axis] - 1) * step / unit * unit; edge >= end - step;
             edge -= unit) {
            window.lo[axis] = edge - step;
            window.hi[axis] = edge;
            if (!find_geometry(t, window, err))
                return false;
            if (wf_geometry_is_shifted(&t->kinds[0].global->geometry, &t->geometry)) {
                g->edge[axis] = edge;
                return true;
            }
        }
    return true;
}

bool wf_stream_stage_settle(struct wf_stream *s, struct wf_stream_stage *t, struct wf_err *err)
{
    for (int a = WF_D; a < WF_C; a++)
        if (t->grid.count[a] > 2 &&
            ((t->n_kinds == 0 && !add_middle(s, t, err)) || !settle_edge(t, a, err)))
            return false;
    return true;
}

struct wf_view wf_stream_stage_placed(const struct wf_stream_stage *t, const struct wf_value *v,
                                      struct wf_view view)
{
    const int instance = t->kinds[0].global->program->of_value[v->id];
    view.box = wf_geometry_box(&t->geometry, 0, instance);
    return view;
}

void wf_stream_stage_fill_given(struct wf_stream *s, const struct wf_stream_stage *t)
{
    for (int i = 0; i < s->n_given; i++) {
        const struct wf_value *v = t->map[s->given[i].value->id];
        if (!v)
            continue;
        wf_run_map(t->kind->run, v, &s->host);
        if (!s->host.view.data)
            continue;
        const struct wf_view view = wf_stream_stage_placed(t, v, s->host.view);
        const struct wf_view all = wf_stream_given_view(&s->given[i]);
        const struct wf_view part = wf_view_part(all, view.box);
        if (part.dtype == view.dtype)
            wf_view_copy(&view, &part);
        else
            for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
                wf_view_set(&view, c.at, wf_view_at(&part, c.at));
        wf_host_put(&s->host);
    }
}

static bool fill_inputs(struct wf_stream *s, const struct wf_stream_stage *t, struct wf_err *err)
{
    for (size_t i = 0; i < s->graph->n_values; i++) {
        if (s->graph->values[i]->kind != WF_INPUT || !t->map[i])
            continue;
        wf_run_map(t->kind->run, t->map[i], &s->host);
        const struct wf_view view = wf_stream_stage_placed(t, t->map[i], s->host.view);
        if (view.data && !s->options.fill(s->options.user, s->graph->values[i], &view, err))
            return false;
        wf_host_put(&s->host);
    }
    return true;
}

/* An input from the host's memory, where it may be overwritten as soon as this returns: beside the window
 * that is being computed, where the device can. */
bool wf_stream_send_input(struct wf_stream *s, struct wf_view there,
                          const struct wf_stream_work *work, struct wf_err *err)
{
    const struct wf_device *const device = s->options.plan.device;
    struct wf_context *const context = s->options.context;
    const enum wf_dtype dtype = work->input.dtype;
    const size_t bytes = wf_view_bytes(&work->input);
    if (!device->transfer.send) {
        device->memory.copy(context, &there, &work->input);
        return true;
    }
    if (bytes > s->sent_bytes) {
        device->memory.free(context, s->sent, s->sent_bytes);
        s->sent = device->memory.alloc(context, bytes);
        s->sent_bytes = s->sent ? bytes : 0;
        if (!s->sent)
            return wf_err_set(err, WF_ERR_FIT, "no room for %zu bytes of input on the device",
                              bytes);
    }
    const struct wf_view sent = wf_view_dense(s->sent, dtype, there.box);
    device->transfer.send(context, &sent, &work->input);
    if (dtype == there.dtype)
        device->transfer.take(context, &there, &sent);
    else
        device->transfer.widen(context, &there, &sent, work->scale, work->offset);
    return true;
}

bool wf_stream_stage_turn(struct wf_stream *s, struct wf_stream_stage *t, int64_t index,
                          struct wf_err *err)
{
    return stage_turn_to(
        s, t, wf_window_grid_window(&t->grid, wf_window_grid_cell(&t->grid, index)), err);
}

void wf_stream_stage_count(struct wf_stream *s, const struct wf_stream_stage *t)
{
    const int64_t count =
        s->blender ? wf_blender_bands(s->blender) : wf_window_grid_count(&t->grid);
    const int64_t mine = wf_ceil_div(count, wf_comm_size(s->comm));
    s->done += t->flops / (double)mine;
    if (s->options.progress)
        s->options.progress(s->options.user, s->done < s->total ? s->done / s->total : 1.0);
}

bool wf_stream_stage_run(struct wf_stream *s, struct wf_stream_stage *t, int64_t index,
                         struct wf_err *err)
{
    if (!wf_stream_stage_turn(s, t, index, err))
        return false;
    wf_stream_stage_fill_given(s, t);
    if (!fill_inputs(s, t, err) || !wf_run_step(t->kind->run, err))
        return false;
    wf_stream_stage_count(s, t);
    return true;
}
