#include "exec/stream_inside.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "exec/translate.h"
#include "ops/op.h"

/* --- stages --- */

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

/* Weights are the stream's own, and what is computed of them once for all windows takes little of the limit. */
static bool has_fixed_weights(const struct wf_stream_options *o, const struct wf_graph *g)
{
    enum { LITTLE = 32 };
    return !o->lender && (!o->limit || wf_program_fixed_bytes(g) <= o->limit / LITTLE);
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

static struct wf_region middle_window(const struct wf_stream_stage *t)
{
    return wf_window_grid_window(&t->grid, wf_window_grid_middle(&t->grid));
}

/* It needs most, as a rule, and most others are like it. */
static bool add_middle(struct wf_stream *s, struct wf_stream_stage *t, struct wf_err *err)
{
    return add_kind(s, t, middle_window(t), err);
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
    struct wf_region window = middle_window(t);
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

/* Of a stage whose windows may overlap: not of a sum. */
static bool settle_edges(struct wf_stream *s, struct wf_stream_stage *t, struct wf_err *err)
{
    for (int a = WF_D; a < WF_C; a++)
        if (t->grid.count[a] > 2 &&
            ((t->n_kinds == 0 && !add_middle(s, t, err)) || !settle_edge(t, a, err)))
            return false;
    return true;
}

/* A value's view has the place of the window at hand, not of the one that the plan was made for. */
static struct wf_view placed(const struct wf_stream_stage *t, const struct wf_value *v,
                             struct wf_view view)
{
    const int instance = t->kinds[0].global->program->of_value[v->id];
    view.box = wf_geometry_box(&t->geometry, 0, instance);
    return view;
}

static void fill_given(struct wf_stream *s, const struct wf_stream_stage *t)
{
    for (int i = 0; i < s->n_given; i++) {
        const struct wf_value *v = t->map[s->given[i].value->id];
        if (!v)
            continue;
        wf_run_map(t->kind->run, v, &s->host);
        if (!s->host.view.data)
            continue;
        const struct wf_view view = placed(t, v, s->host.view);
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
        const struct wf_view view = placed(t, t->map[i], s->host.view);
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

static bool turn_to_cell(struct wf_stream *s, struct wf_stream_stage *t, int64_t index,
                         struct wf_err *err)
{
    return stage_turn_to(
        s, t, wf_window_grid_window(&t->grid, wf_window_grid_cell(&t->grid, index)), err);
}

static void count_done(struct wf_stream *s, const struct wf_stream_stage *t)
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
    if (!turn_to_cell(s, t, index, err))
        return false;
    fill_given(s, t);
    if (!fill_inputs(s, t, err) || !wf_run_step(t->kind->run, err))
        return false;
    count_done(s, t);
    return true;
}

/* One window for all, where that fits: sums need no pass of their own then. Without sums a device may do better
 * with several. */
static bool try_whole(struct wf_stream *s, struct wf_err *err)
{
    const size_t limit = s->options.limit;
    s->options.limit = 0;
    const bool ok = wf_stream_stage_init(s, &s->last, s->n_ends, s->ends, err);
    s->options.limit = limit;
    return ok;
}

static bool is_cut_by_wish(const struct wf_stream *s)
{
    for (size_t i = 0; i < s->graph->n_values; i++)
        for (int a = 0; a < WF_C; a++)
            if (s->graph->values[i]->kind == WF_INPUT && s->options.window[a] > 0 &&
                s->options.window[a] < s->graph->values[i]->shape.at[a])
                return true;
    return false;
}

static bool fits_whole(const struct wf_stream *s, bool *fits, struct wf_err *err)
{
    *fits = !is_cut_by_wish(s);
    if (!*fits || !s->options.limit)
        return true;
    struct wf_stream_need need = { 0 };
    if (!wf_stream_find_need(s, &s->last, wf_shape_region(s->last.grid.whole), &need, err))
        return false;
    *fits = need.bytes <= s->options.limit;
    for (int a = 0; a < WF_C; a++)
        *fits = *fits && (!s->options.most[a] || s->options.most[a] >= s->last.grid.whole.at[a]);
    return true;
}

/* The last stage is one window for all, where that does (`*whole`); otherwise `sums` come before it. */
static bool find_passes(struct wf_stream *s, const struct wf_node ***sums, bool *whole,
                        struct wf_err *err)
{
    if (!wf_stream_find_ends(s, err) || !try_whole(s, err) || !fits_whole(s, whole, err))
        return false;
    s->total = s->last.flops;
    *sums = wf_arena_array(&s->arena, s->graph->n_nodes + 1, const struct wf_node *);
    const int n_sums = wf_stream_find_sums(s, *sums);
    *whole =
        *whole && (n_sums > 0 || wf_device_is_host(s->options.plan.device) || !s->options.limit);
    s->passes = *whole ? 0 : n_sums;
    return true;
}

/* Collective. */
static bool prepare(struct wf_stream *s, struct wf_err *err)
{
    bool whole = false;
    const struct wf_node **sums = NULL;
    if (!wf_comm_agree(s->comm, find_passes(s, &sums, &whole, err), err))
        return false;
    if (whole)
        return true;
    if (!wf_stream_take_sums(s, sums, err))
        return false;
    wf_stream_stage_release(&s->last);
    return wf_comm_agree(s->comm,
                         wf_stream_stage_init(s, &s->last, s->n_ends, s->ends, err) &&
                             (s->options.number || settle_edges(s, &s->last, err)),
                         err);
}

static bool estimate_window(const struct wf_stream *s, double *seconds, struct wf_err *err)
{
    const struct wf_stream_stage *const t = &s->last;
    struct wf_plan_options options = s->options.plan;
    const struct wf_region window = middle_window(t);
    const struct wf_mesh one = wf_mesh_one();
    options.window = &window;
    struct wf_global_plan *const global = wf_global_plan_new(t->graph, &one, &options, err);
    struct wf_plan *const plan = global ? wf_plan_estimate(global, 0, NULL, err) : NULL;
    const bool ok = plan != NULL;
    if (ok)
        *seconds = plan->seconds;
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

bool wf_stream_estimate(struct wf_stream_estimate *e, const struct wf_graph *g,
                        struct wf_value *output, const struct wf_stream_options *options,
                        struct wf_err *err)
{
    struct wf_stream s = { .graph = g, .outputs = { output }, .n_outputs = 1, .options = *options };
    const struct wf_node **sums = NULL;
    bool whole = false, ok = find_passes(&s, &sums, &whole, err);
    *e = (struct wf_stream_estimate){ 0 };
    if (ok && !whole) {
        wf_stream_lay_out(&s, sums);
        wf_stream_stage_release(&s.last);
        ok = wf_stream_stage_init(&s, &s.last, s.n_ends, s.ends, err);
    }
    ok = ok && estimate_window(&s, &e->seconds, err);
    if (ok) {
        e->windows = wf_window_grid_count(&s.last.grid);
        /* Windows of the passes before it take as long for their operations. */
        e->seconds *= (double)e->windows * (s.last.flops > 0 ? s.total / s.last.flops : 1);
        e->kept = s.most_kept;
    }
    wf_stream_stage_release(&s.last);
    wf_arena_release(&s.arena);
    return ok;
}

/* Collective. Windows are the same on all ranks, and so is what is kept, though devices and machines have not the same
 * memory free. */
static bool agree_on_memory(struct wf_stream *s, struct wf_err *err)
{
    return wf_comm_least(s->comm, &s->options.limit, err) &&
           wf_comm_least(s->comm, &s->options.keep, err);
}

struct wf_stream *wf_stream_new(const struct wf_graph *g, int n, struct wf_value *const outputs[],
                                const struct wf_stream_options *options, struct wf_comm *comm,
                                struct wf_err *err)
{
    WF_BUG_ON(n < 1 || n > WF_STREAM_OUTPUTS, "%d outputs", n);
    struct wf_stream *s = wf_take_zeroed(1, sizeof *s);
    s->graph = g;
    s->n_outputs = n;
    for (int i = 0; i < n; i++)
        s->outputs[i] = outputs[i];
    s->options = *options;
    s->comm = comm;
    s->self = wf_comm_self();
    s->self->stop = comm->stop;
    const bool agreed = agree_on_memory(s, err);
    s->options.plan.fixed_weights = has_fixed_weights(&s->options, g);
    if (!agreed) {
        wf_stream_free(s);
        return NULL;
    }
    if (options->blend ? wf_comm_agree(comm, wf_stream_blend_init(s, err), err)
                       : prepare(s, err) && wf_stream_begin_number(s, err))
        return s;
    wf_stream_free(s);
    return NULL;
}

void wf_stream_free(struct wf_stream *s)
{
    if (!s)
        return;
    wf_host_release(&s->host);
    for (int i = 0; i < s->n_outputs; i++)
        wf_host_release(&s->made[i]);
    const int made = s->ends ? s->n_given + s->n_ends - s->n_outputs : 0;
    for (int i = 0; s->given && i < made; i++)
        free(s->given[i].data);
    s->options.plan.device->memory.free(s->options.context, s->sent, s->sent_bytes);
    wf_stream_stage_release(&s->last);
    wf_host_give(s->options.plan.device, s->options.context, s->crop);
    wf_blender_free(s->blender);
    wf_comm_free(s->self);
    wf_arena_release(&s->arena);
    free(s);
}

int64_t wf_stream_windows(const struct wf_stream *s)
{
    return s->blender ? wf_blender_bands(s->blender) : wf_window_grid_count(&s->last.grid);
}

int64_t wf_stream_computed(const struct wf_stream *s, int64_t extents[WF_AXES])
{
    const struct wf_region first = wf_stream_window(s, 0);
    for (int a = 0; a < WF_AXES; a++)
        extents[a] =
            s->blender ? s->outputs[0]->shape.at[a] : wf_region_extent(first, (enum wf_axis)a);
    return s->blender ? wf_blender_count(s->blender) : wf_stream_windows(s);
}

struct wf_region wf_stream_window(const struct wf_stream *s, int64_t index)
{
    return s->blender ? wf_blender_band(s->blender, index)
                      : wf_window_grid_cell(&s->last.grid, index);
}

int wf_stream_passes(const struct wf_stream *s)
{
    return s->passes;
}

int64_t wf_stream_plans(const struct wf_stream *s)
{
    return s->plans;
}

/* Windows of the middle read most, where there are any; it was planned first. */
int64_t wf_stream_most_read(const struct wf_stream *s, const struct wf_value *input)
{
    const struct wf_stream_stage *const t = &s->last;
    int64_t most = 0;
    for (int64_t i = 0; s->blender && i < wf_blender_bands(s->blender); i++)
        most = wf_max(most, wf_region_count(wf_stream_blend_reads(s, i)));
    if (s->blender)
        return most;
    for (int i = 0; i < t->n_kinds && t->map[input->id]; i++) {
        const struct wf_global_plan *const global = t->kinds[i].global;
        const int64_t count = wf_region_count(wf_geometry_box(
            &global->geometry, 0, global->program->of_value[t->map[input->id]->id]));
        most = wf_max(most, count);
    }
    return most;
}

double wf_stream_halo(const struct wf_stream *s)
{
    return s->worked > s->whole ? 1.0 - s->whole / s->worked : 0.0;
}

size_t wf_stream_bytes(const struct wf_stream *s)
{
    return s->most_bytes;
}

size_t wf_stream_kept(const struct wf_stream *s)
{
    return s->most_kept;
}

/* The window's part of a view over what was computed for it. */
static struct wf_view cut_to_cell(const struct wf_stream *s, int output, int64_t index,
                                  struct wf_view view)
{
    const struct wf_value *const v = s->last.map[s->outputs[output]->id];
    struct wf_region cell = wf_stream_window(s, index);
    view.box = wf_geometry_owned(&s->last.geometry, 0, v);
    cell.hi[WF_C] = v->shape.at[WF_C];
    const bool one = s->passes + wf_stream_windows(s) == 1; /* its window may be that of a sum */
    return one ? view : wf_view_part(view, cell);
}

static bool name_window(const struct wf_stream *s, int64_t index, struct wf_err *err)
{
    return wf_err_wrap(err, "window %" PRId64 " of %" PRId64, index + 1, wf_stream_windows(s));
}

bool wf_stream_run(struct wf_stream *s, int64_t index, struct wf_view parts[], struct wf_err *err)
{
    if (!wf_stream_stage_run(s, &s->last, index, err) || !wf_stream_add_number(s, err))
        return name_window(s, index, err);
    for (int i = 0; i < s->n_outputs; i++) {
        const struct wf_value *const v = s->last.map[s->outputs[i]->id];
        if (!wf_run_get_owned(s->last.kind->run, v, &s->made[i], err))
            return false;
        parts[i] = cut_to_cell(s, i, index, s->made[i].view);
    }
    return true;
}

void wf_stream_restart(struct wf_stream *s)
{
    WF_BUG_ON(s->passes > 0, "%d sums are those of another image", s->passes);
    s->done = 0;
    wf_stream_restart_number(s);
}

bool wf_stream_reads(struct wf_stream *s, int64_t index, const struct wf_value *input,
                     struct wf_region *box, struct wf_err *err)
{
    if (s->blender) {
        *box = wf_stream_blend_reads(s, index);
        return true;
    }
    if (!turn_to_cell(s, &s->last, index, err))
        return name_window(s, index, err);
    const struct wf_value *const v = s->last.map[input->id];
    *box = v ? placed(&s->last, v, (struct wf_view){ 0 }).box : (struct wf_region){ 0 };
    return true;
}

bool wf_stream_begin(struct wf_stream *s, int64_t index, struct wf_stream_work *work,
                     struct wf_err *err)
{
    const struct wf_device *const device = s->options.plan.device;
    struct wf_stream_stage *const t = &s->last;
    if (s->blender)
        return wf_stream_blend_run(s, index, work, err) || name_window(s, index, err);
    if (!turn_to_cell(s, t, index, err))
        return name_window(s, index, err);
    fill_given(s, t);
    const struct wf_value *const image = t->map[work->value->id]; /* NULL: only sums read it */
    const struct wf_view there =
        image ? placed(t, image, wf_run_view(t->kind->run, image)) : (struct wf_view){ 0 };
    if ((image && !wf_stream_send_input(s, there, work, err)) || !wf_run_step(t->kind->run, err))
        return name_window(s, index, err);
    for (int i = 0; i < s->n_outputs; i++) {
        const struct wf_value *const v = t->map[s->outputs[i]->id];
        const struct wf_view from = cut_to_cell(s, i, index, wf_run_owned(t->kind->run, v));
        const struct wf_view to = wf_view_dense(work->outputs[i], from.dtype, from.box);
        if (work->outputs[i])
            device->memory.copy(s->options.context, &to, &from);
    }
    s->whole += t->flops / (double)wf_stream_windows(s);
    s->worked += t->kind->plan->flops;
    work->point = device->stream.point ? device->stream.point(s->options.context) : NULL;
    return true;
}

bool wf_stream_end(struct wf_stream *s, struct wf_stream_work *work, struct wf_err *err)
{
    const struct wf_device *const device = s->options.plan.device;
    void *const point = work->point;
    work->point = NULL;
    count_done(s, &s->last);
    return !point || device->stream.reach(s->options.context, point, err);
}
