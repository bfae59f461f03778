#include "exec/stream_inside.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/op.h"

/* --- making --- */

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
                             (s->options.number || wf_stream_stage_settle(s, &s->last, err)),
                         err);
}

static bool estimate_window(const struct wf_stream *s, double *seconds, struct wf_err *err)
{
    const struct wf_stream_stage *const t = &s->last;
    struct wf_plan_options options = s->options.plan;
    const struct wf_region window = wf_stream_stage_middle(t);
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

/* Weights are the stream's own, and what is computed of them once for all windows takes little of the limit. */
static bool has_fixed_weights(const struct wf_stream_options *o, const struct wf_graph *g)
{
    enum { LITTLE = 32 };
    return !o->lender && (!o->limit || wf_program_fixed_bytes(g) <= o->limit / LITTLE);
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
    if (!wf_stream_stage_turn(s, &s->last, index, err))
        return name_window(s, index, err);
    const struct wf_value *const v = s->last.map[input->id];
    *box = v ? wf_stream_stage_placed(&s->last, v, (struct wf_view){ 0 }).box
             : (struct wf_region){ 0 };
    return true;
}

bool wf_stream_begin(struct wf_stream *s, int64_t index, struct wf_stream_work *work,
                     struct wf_err *err)
{
    const struct wf_device *const device = s->options.plan.device;
    struct wf_stream_stage *const t = &s->last;
    if (s->blender)
        return wf_stream_blend_run(s, index, work, err) || name_window(s, index, err);
    if (!wf_stream_stage_turn(s, t, index, err))
        return name_window(s, index, err);
    wf_stream_stage_fill_given(s, t);
    const struct wf_value *const image = t->map[work->value->id]; /* NULL: only sums read it */
    const struct wf_view there =
        image ? wf_stream_stage_placed(t, image, wf_run_view(t->kind->run, image))
              : (struct wf_view){ 0 };
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
    wf_stream_stage_count(s, &s->last);
    return !point || device->stream.reach(s->options.context, point, err);
}
