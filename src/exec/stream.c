#include "exec/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/op.h"

enum {
    /* Edges of windows lie at multiples of this where there is a choice: a coarse level's pixel is
     * then seldom in two windows, and rows are whole vectors. */
    ALIGN = 32,
    SMALLEST_TILE = 16, /* what a tile is halved down to */
};

struct grid {
    struct wf_shape whole;
    int64_t step[WF_AXES], count[WF_AXES];
    int64_t tile; /* wf_stream_options */
};

/* The part of the graph that ends in a sum, or in the output. */
struct stage {
    struct wf_graph *graph;
    struct wf_value **map; /* per value of the stream's graph: its counterpart here, or NULL */
    struct grid grid;
    double flops;
    struct wf_global_plan *global; /* of the window that was run last */
    struct wf_plan *plan;
    struct wf_run *run;
};

/* A result of a sum over the image, once it was taken. */
struct given {
    struct wf_value *value; /* of the stream's graph */
    double *data;           /* in the order of the value's elements */
};

struct wf_stream {
    struct wf_arena arena;
    const struct wf_graph *graph;
    struct wf_value *output;
    struct wf_stream_options options;
    struct wf_comm *comm, *self;
    struct given *given;
    int n_given, passes;
    struct stage last;
    struct wf_host host; /* of the value at hand */
    double done, total;  /* flops of all stages */
    size_t most_bytes;
};

/* --- grids --- */

static int64_t grid_count(const struct grid *g)
{
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        count *= g->count[a];
    return count;
}

static struct wf_region grid_at(const struct grid *g, int64_t index)
{
    struct wf_region r = wf_shape_region(g->whole);
    for (int a = WF_AXES - 1; a >= 0; a--) {
        const int64_t at = index % g->count[a];
        index /= g->count[a];
        r.lo[a] = at * g->step[a];
        r.hi[a] = wf_min(r.lo[a] + g->step[a], g->whole.at[a]);
    }
    return r;
}

/* A window that has neighbours on all sides where any has: it reads the most. */
static struct wf_region grid_middle(const struct grid *g)
{
    int64_t index = 0;
    for (int a = 0; a < WF_AXES; a++)
        index = index * g->count[a] + (g->count[a] - 1) / 2;
    return grid_at(g, index);
}

int64_t wf_stream_tile(int64_t tile, int64_t extent)
{
    while (tile > SMALLEST_TILE && extent < 2 * tile)
        tile /= 2;
    return tile;
}

static bool has_tiles(const struct grid *g, int axis)
{
    return g->tile > 0 && (axis == WF_H || axis == WF_W);
}

static int64_t smallest_step(const struct grid *g, int axis)
{
    return has_tiles(g, axis) ? wf_min(SMALLEST_TILE, g->whole.at[axis]) : 1;
}

static void set_step(struct grid *g, int axis, int64_t step)
{
    if (has_tiles(g, axis) && step < g->whole.at[axis]) {
        const int64_t tile = wf_stream_tile(g->tile, step);
        step = wf_max(step / tile, 1) * tile;
    }
    g->step[axis] = wf_min(step, g->whole.at[axis]);
    g->count[axis] = wf_ceil_div(g->whole.at[axis], g->step[axis]);
}

/* About `count` windows of equal extent. */
static void set_count(struct grid *g, int axis, int64_t count)
{
    const int64_t even = wf_ceil_div(g->whole.at[axis], count);
    const int64_t align = even >= 2 * ALIGN ? ALIGN : even >= 16 ? 8 : 1;
    set_step(g, axis, wf_ceil_div(even, align) * align);
}

/* The longest axis into more windows; false when all are as short as can be. */
static bool refine(struct grid *g)
{
    int axis = WF_N;
    for (int a = WF_D; a < WF_C; a++)
        if (g->step[a] >= g->step[axis] && g->step[a] > smallest_step(g, a))
            axis = a;
    const int64_t before = g->step[axis];
    if (before == smallest_step(g, axis))
        return false;
    for (int64_t count = g->count[axis]; g->step[axis] == before;) {
        count = wf_max(count + 1, count * 5 / 4);
        set_count(g, axis, count);
    }
    return true;
}

/* --- choosing a window --- */

/* Bytes that some item surely needs at once, without asking the device; the largest value is named. */
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

struct need {
    size_t bytes;        /* beside the weights */
    const char *largest; /* the layer at the largest value */
};

/* What a window needs; stops early where it is past the limit. */
static bool find_need(const struct wf_stream *s, const struct stage *t, struct wf_region window,
                      struct need *need, struct wf_err *err)
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
    bool ok = true;
    if (!s->options.limit || need->bytes <= s->options.limit) {
        struct wf_plan *plan = wf_plan_new_on(global, 0, s->options.context, err);
        ok = plan != NULL;
        if (ok)
            need->bytes = plan->arena_bytes + beside;
        wf_plan_free(plan);
    }
    wf_global_plan_free(global);
    return ok;
}

static void start_grid(const struct wf_stream *s, struct grid *g, struct wf_shape whole)
{
    g->whole = whole;
    g->tile = s->options.tile;
    for (int a = 0; a < WF_AXES; a++) {
        set_step(g, a, whole.at[a]);
        if (a < WF_C && s->options.window[a] > 0)
            set_step(g, a, s->options.window[a]);
    }
}

static bool has_wish(const struct wf_stream *s)
{
    for (int a = 0; a < WF_C; a++)
        if (s->options.window[a] > 0)
            return true;
    return false;
}

static bool choose_grid(const struct wf_stream *s, struct stage *t, struct wf_shape whole,
                        struct wf_err *err)
{
    struct grid *g = &t->grid;
    start_grid(s, g, whole);
    if (!s->options.limit)
        return true;
    const bool fixed = has_wish(s);
    for (int a = 0; a < WF_C && !fixed; a++)
        if (s->options.most[a] > 0 && s->options.most[a] < whole.at[a])
            set_step(g, a, s->options.most[a]);
    for (;;) {
        const struct wf_region window = grid_middle(g);
        struct need need = { 0 };
        if (!find_need(s, t, window, &need, err))
            return false;
        if (need.bytes <= s->options.limit)
            return true;
        if (fixed || !refine(g))
            return wf_err_set(
                err, WF_ERR_FIT,
                "a window of %" PRId64 " x %" PRId64 " x %" PRId64
                " needs %zu bytes, most of it at layer '%s', and memory.limit is %zu: "
                "raise it",
                wf_region_extent(window, WF_D), wf_region_extent(window, WF_H),
                wf_region_extent(window, WF_W), need.bytes, need.largest, s->options.limit);
    }
}

/* --- stages --- */

/* The stage that ends in these values, all made by one node; what was given so far is given. */
static bool stage_init(const struct wf_stream *s, struct stage *t, int n_outputs,
                       struct wf_value *const outputs[], struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_value **given = wf_arena_array(&arena, s->n_given + 1, struct wf_value *);
    for (int i = 0; i < s->n_given; i++)
        given[i] = s->given[i].value;
    *t = (struct stage){ .map = wf_take_zeroed(s->graph->n_values, sizeof *t->map) };
    const struct wf_cut cut = {
        .n_given = s->n_given, .given = given, .n_outputs = n_outputs, .outputs = outputs
    };
    t->graph = wf_graph_cut(s->graph, &cut, t->map);
    wf_arena_release(&arena);
    if (!wf_graph_ok(t->graph, err))
        return false;
    for (size_t i = 0; i < t->graph->n_nodes; i++) {
        const struct wf_node *n = t->graph->nodes[i];
        t->flops += wf_op_flops(n, wf_shape_region(wf_op_domain(n)->shape));
    }
    const struct wf_node *n = t->map[outputs[0]->id]->producer; /* none where it was given */
    return choose_grid(s, t, n ? wf_op_domain(n)->shape : outputs[0]->shape, err);
}

static void stage_release(struct stage *t)
{
    wf_run_free(t->run);
    wf_plan_free(t->plan);
    wf_global_plan_free(t->global);
    wf_graph_free(t->graph);
    free(t->map);
    *t = (struct stage){ 0 };
}

/* The run goes over to the plan of another window. */
static bool stage_turn_to(struct wf_stream *s, struct stage *t, struct wf_region window,
                          struct wf_err *err)
{
    struct wf_plan_options options = s->options.plan;
    options.window = &window;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_global_plan *global = wf_global_plan_new(t->graph, &one, &options, err);
    struct wf_plan *plan = global ? wf_plan_new_on(global, 0, s->options.context, err) : NULL;
    bool ok = plan != NULL;
    if (ok && t->run) {
        ok = wf_run_change_plan(t->run, plan, err);
    } else if (ok) {
        t->run = wf_run_new(plan, s->self, 0, err);
        ok = t->run && s->options.weights(s->options.user, t->run, err);
    }
    if (plan && t->run) { /* the run has let go of the old ones, also where it failed */
        struct wf_plan *const old_plan = t->plan;
        struct wf_global_plan *const old_global = t->global;
        t->plan = plan;
        t->global = global;
        plan = old_plan;
        global = old_global;
    }
    wf_plan_free(plan);
    wf_global_plan_free(global);
    if (ok && wf_run_bytes(t->run) > s->most_bytes)
        s->most_bytes = wf_run_bytes(t->run);
    return ok;
}

static bool fill_inputs(struct wf_stream *s, const struct stage *t, struct wf_err *err)
{
    for (int i = 0; i < s->n_given; i++) {
        const struct wf_value *v = t->map[s->given[i].value->id];
        const double *from = s->given[i].data;
        if (!v)
            continue;
        wf_run_map(t->run, v, &s->host);
        const struct wf_view view = s->host.view;
        if (!view.data)
            continue;
        const struct wf_view all =
            wf_view_dense((void *)(uintptr_t)from, WF_F64, wf_shape_region(v->shape));
        for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);)
            wf_view_set(&view, c.at, wf_view_at(&all, c.at));
        wf_host_put(&s->host);
    }
    for (size_t i = 0; i < s->graph->n_values; i++) {
        if (s->graph->values[i]->kind != WF_INPUT || !t->map[i])
            continue;
        wf_run_map(t->run, t->map[i], &s->host);
        const struct wf_view view = s->host.view;
        if (view.data && !s->options.fill(s->options.user, s->graph->values[i], &view, err))
            return false;
        wf_host_put(&s->host);
    }
    return true;
}

static bool stage_run(struct wf_stream *s, struct stage *t, int64_t index, struct wf_err *err)
{
    const bool ok = stage_turn_to(s, t, grid_at(&t->grid, index), err) && fill_inputs(s, t, err) &&
                    wf_run_step(t->run, err);
    const int64_t mine = wf_ceil_div(grid_count(&t->grid), wf_comm_size(s->comm));
    s->done += t->flops / (double)mine;
    if (ok && s->options.progress)
        s->options.progress(s->options.user, s->done < s->total ? s->done / s->total : 1.0);
    return ok;
}

/* --- sums over the image --- */

/* It adds up over axes that windows cut. */
static bool is_over_image(const struct wf_node *n)
{
    const unsigned over = wf_op_sums_over(n);
    const struct wf_value *domain = wf_op_domain(n);
    for (int a = 0; a < WF_C; a++)
        if ((over & WF_AXIS(a)) && domain->shape.at[a] > 1 && !domain->replicated)
            return true;
    return false;
}

/* Collective. All windows of a sum, added up over windows and ranks in f64. */
static bool take_sum(struct wf_stream *s, struct stage *t, const struct wf_node *n,
                     struct wf_err *err)
{
    struct given *const given = &s->given[s->n_given];
    for (int o = 0; o < n->n_out; o++)
        given[o] =
            (struct given){ n->out[o],
                            wf_arena_array(&s->arena, wf_shape_count(n->out[o]->shape), double) };
    bool ok = true;
    for (int64_t i = wf_comm_rank(s->comm); ok && i < grid_count(&t->grid);
         i += wf_comm_size(s->comm)) {
        ok = stage_run(s, t, i, err);
        for (int o = 0; ok && o < n->n_out; o++) {
            ok = wf_run_get(t->run, t->map[n->out[o]->id], &s->host, err);
            const struct wf_view part = s->host.view;
            const struct wf_view sum =
                wf_view_dense(given[o].data, WF_F64, wf_shape_region(n->out[o]->shape));
            for (struct wf_cursor c = wf_cursor(part.box); ok && wf_cursor_next(&c);)
                wf_view_set(&sum, c.at, wf_view_at(&sum, c.at) + wf_view_at(&part, c.at));
        }
    }
    ok = wf_comm_agree(s->comm, ok, err);
    for (int o = 0; ok && o < n->n_out; o++) {
        struct wf_request *request = NULL;
        ok = wf_comm_sum_begin(s->comm, given[o].data, (size_t)wf_shape_count(n->out[o]->shape),
                               WF_F64, &request, err) &&
             wf_comm_sum_end(s->comm, request, err);
    }
    s->n_given += n->n_out;
    return ok;
}

/* The sums over the image that the output depends on, in order. */
static int find_sums(struct wf_stream *s, const struct wf_node **sums)
{
    int count = 0;
    for (size_t i = 0; i < s->graph->n_nodes; i++) {
        const struct wf_node *n = s->graph->nodes[i];
        bool needed = false;
        for (int o = 0; o < n->n_out; o++)
            needed |= s->last.map[n->out[o]->id] != NULL;
        if (needed && is_over_image(n))
            sums[count++] = n;
    }
    return count;
}

/* Collective. */
static bool take_sums(struct wf_stream *s, const struct wf_node *const sums[], int n_sums,
                      struct wf_err *err)
{
    for (int i = 0; i < n_sums; i++) {
        struct stage t;
        const bool ok = stage_init(s, &t, sums[i]->n_out, sums[i]->out, err);
        const bool all = wf_comm_agree(s->comm, ok, err) && take_sum(s, &t, sums[i], err);
        stage_release(&t);
        if (!all)
            return wf_err_wrap(err, "layer '%s' looks at the whole image", sums[i]->name);
    }
    return true;
}

/* One window for all, where that fits; sums need no pass of their own then. */
static bool try_whole(struct wf_stream *s, struct wf_err *err)
{
    const size_t limit = s->options.limit;
    s->options.limit = 0;
    const bool ok = stage_init(s, &s->last, 1, &s->output, err);
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
    struct need need = { 0 };
    if (!find_need(s, &s->last, wf_shape_region(s->last.grid.whole), &need, err))
        return false;
    *fits = need.bytes <= s->options.limit;
    for (int a = 0; a < WF_C; a++)
        *fits = *fits && (!s->options.most[a] || s->options.most[a] >= s->last.grid.whole.at[a]);
    return true;
}

/* Collective. */
static bool prepare(struct wf_stream *s, struct wf_err *err)
{
    bool whole = false;
    const bool ok = try_whole(s, err) && fits_whole(s, &whole, err);
    if (!wf_comm_agree(s->comm, ok, err))
        return false;
    s->total = s->last.flops;
    if (whole)
        return true;
    const struct wf_node **sums =
        wf_arena_array(&s->arena, s->graph->n_nodes + 1, const struct wf_node *);
    s->passes = find_sums(s, sums);
    int outs = 0;
    for (int i = 0; i < s->passes; i++) {
        outs += sums[i]->n_out;
        s->total += s->last.flops * (i + 1) / (s->passes + 1); /* about so far does each pass go */
    }
    s->given = wf_arena_array(&s->arena, outs + 1, struct given);
    if (!take_sums(s, sums, s->passes, err))
        return false;
    stage_release(&s->last);
    return wf_comm_agree(s->comm, stage_init(s, &s->last, 1, &s->output, err), err);
}

struct wf_stream *wf_stream_new(const struct wf_graph *g, struct wf_value *output,
                                const struct wf_stream_options *options, struct wf_comm *comm,
                                struct wf_err *err)
{
    struct wf_stream *s = wf_take_zeroed(1, sizeof *s);
    s->graph = g;
    s->output = output;
    s->options = *options;
    s->comm = comm;
    s->self = wf_comm_self();
    if (prepare(s, err))
        return s;
    wf_stream_free(s);
    return NULL;
}

void wf_stream_free(struct wf_stream *s)
{
    if (!s)
        return;
    wf_host_release(&s->host);
    stage_release(&s->last);
    wf_comm_free(s->self);
    wf_arena_release(&s->arena);
    free(s);
}

int64_t wf_stream_windows(const struct wf_stream *s)
{
    return grid_count(&s->last.grid);
}

struct wf_region wf_stream_window(const struct wf_stream *s, int64_t index)
{
    return grid_at(&s->last.grid, index);
}

int wf_stream_passes(const struct wf_stream *s)
{
    return s->passes;
}

size_t wf_stream_bytes(const struct wf_stream *s)
{
    return s->most_bytes;
}

bool wf_stream_run(struct wf_stream *s, int64_t index, struct wf_view *part, struct wf_err *err)
{
    if (!stage_run(s, &s->last, index, err))
        return wf_err_wrap(err, "window %" PRId64 " of %" PRId64, index + 1, wf_stream_windows(s));
    if (!wf_run_get_owned(s->last.run, s->last.map[s->output->id], &s->host, err))
        return false;
    *part = s->host.view;
    return true;
}
