/*
 * Sums over the image that a stream computes before its last pass.
 *
 * All passes are laid out before the first one runs: s->given lists what each of them makes, first the
 * sum's results, then what is kept for later passes, and a pass is given what stands before. A value is
 * kept if the pass computes it on the extents of its sum, and something that no pass has computed yet
 * reads it. Values of other extents are recomputed from those: they are what lies between two
 * levels of a network, such as a pooling.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/stream_inside.h"
#include "ops/op.h"

struct pass {
    const struct wf_node *sum;
    int before; /* of s->given: what the pass reads */
    int made;   /* and behind it: what it makes */
};

static bool is_over_image(const struct wf_node *n)
{
    const unsigned over = wf_op_sums_over(n);
    const struct wf_value *domain = wf_op_domain(n);
    for (int a = 0; a < WF_C; a++)
        if ((over & WF_AXIS(a)) && domain->shape.at[a] > 1 && !domain->replicated)
            return true;
    return false;
}

static bool is_computed(struct wf_value *const map[], const struct wf_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (map[n->out[o]->id])
            return true;
    return false;
}

/* Of options.number: added up with the windows of the outputs, not before them. */
static bool is_of_number(const struct wf_stream *s, const struct wf_value *v)
{
    for (int i = s->n_outputs; i < s->n_ends; i++)
        if (s->ends[i] == v)
            return true;
    return false;
}

/* The number's sums are over extents of the output, and none of another: then a window of the output has a part of
 * each. */
static bool check_end(const struct wf_stream *s, const struct wf_node *n, struct wf_err *err)
{
    const struct wf_shape *const domain = &wf_op_domain(n)->shape, *const y = &s->outputs[0]->shape;
    struct wf_stream_stage t;
    bool ok = true;
    wf_stream_stage_cut(s, &t, n->n_out, n->out);
    for (int i = s->n_outputs; i < s->n_ends; i++)
        ok = ok && !t.map[s->ends[i]->id];
    wf_stream_stage_release(&t);
    for (int a = 0; a < WF_C; a++)
        ok = ok && domain->at[a] == y->at[a];
    return ok ||
           wf_err_set(err, WF_ERR_USAGE,
                      "layer '%s' is no sum over the output, so it cannot be added up in windows: "
                      "evaluate without --whole",
                      n->name);
}

bool wf_stream_find_ends(struct wf_stream *s, struct wf_err *err)
{
    struct wf_stream_stage outputs, number;
    s->ends = wf_arena_array(&s->arena, s->graph->n_values + WF_STREAM_OUTPUTS, struct wf_value *);
    for (int o = 0; o < s->n_outputs; o++)
        s->ends[s->n_ends++] = s->outputs[o];
    if (!s->options.number)
        return true;
    wf_stream_stage_cut(s, &outputs, s->n_outputs, s->outputs);
    wf_stream_stage_cut(s, &number, 1, &s->options.number);
    bool ok = true;
    for (size_t i = 0; i < s->graph->n_nodes; i++) {
        const struct wf_node *const n = s->graph->nodes[i];
        if (!is_computed(number.map, n) || is_computed(outputs.map, n) || !is_over_image(n))
            continue;
        ok = ok && check_end(s, n, err);
        for (int o = 0; o < n->n_out; o++)
            s->ends[s->n_ends++] = n->out[o];
    }
    wf_stream_stage_release(&outputs);
    wf_stream_stage_release(&number);
    return ok;
}

int wf_stream_find_sums(const struct wf_stream *s, const struct wf_node **sums)
{
    int count = 0;
    for (size_t i = 0; i < s->graph->n_nodes; i++) {
        const struct wf_node *const n = s->graph->nodes[i];
        if (is_computed(s->last.map, n) && is_over_image(n) && !is_of_number(s, n->out[0]))
            sums[count++] = n;
    }
    return count;
}

/* --- the layout of the passes --- */

static size_t kept_bytes(const struct wf_value *v)
{
    return (size_t)wf_shape_count(v->shape) * wf_dtype_size(v->dtype);
}

static bool is_given(const struct wf_stream *s, const struct wf_value *v)
{
    for (int i = 0; i < s->n_given; i++)
        if (s->given[i].value == v)
            return true;
    return false;
}

/* A node of the whole network that the stage does not compute reads it. */
static bool is_read_later(const struct wf_stream *s, const struct wf_stream_stage *t,
                          const struct wf_value *v)
{
    for (size_t i = 0; i < s->graph->n_nodes; i++) {
        const struct wf_node *const n = s->graph->nodes[i];
        if (!is_computed(s->last.map, n) || is_computed(t->map, n))
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] == v)
                return true;
    }
    return false;
}

static bool may_keep(const struct wf_stream *s, const struct wf_stream_stage *t,
                     const struct wf_node *sum, const struct wf_value *v)
{
    const struct wf_shape domain = wf_op_domain(sum)->shape;
    for (int a = 0; a < WF_C; a++)
        if (v->shape.at[a] != domain.at[a])
            return false;
    return v->kind == WF_TEMP && t->map[v->id] && !v->replicated && v->producer != sum &&
           !wf_op_sums_over(v->producer) && !is_given(s, v) && is_read_later(s, t, v);
}

static void give(struct wf_stream *s, struct wf_value *v, bool is_kept)
{
    s->given[s->n_given++] = (struct wf_stream_given){ .value = v,
                                                       .dtype = is_kept ? v->dtype : WF_F64,
                                                       .is_kept = is_kept };
}

/* Bytes of what earlier passes keep and this one, or one behind it, reads. */
static size_t bytes_at(const struct wf_stream *s, int pass)
{
    size_t bytes = 0;
    for (int i = 0; i < s->n_given; i++)
        if (s->given[i].is_kept && s->given[i].last >= pass)
            bytes += kept_bytes(s->given[i].value);
    return bytes;
}

/* Who reads what is given, of the sums from `pass` on and of the last pass. */
static void find_readers(struct wf_stream *s, const struct wf_node *const sums[], int pass)
{
    struct wf_arena arena = { 0 };
    struct wf_value **const ends = wf_arena_array(&arena, s->graph->n_values, struct wf_value *);
    struct wf_stream_stage t;
    int n = 0;
    for (int i = pass; i < s->passes; i++)
        for (int o = 0; o < sums[i]->n_out; o++)
            ends[n++] = sums[i]->out[o];
    for (int o = 0; o < s->n_ends; o++)
        ends[n++] = s->ends[o];
    wf_stream_stage_cut(s, &t, n, ends);
    for (int i = 0; i < s->n_given; i++)
        if (t.map[s->given[i].value->id])
            s->given[i].last = pass;
    wf_stream_stage_release(&t);
    wf_arena_release(&arena);
}

/* What the pass makes beside its sum, as far as there is room for it. */
static void choose_kept(struct wf_stream *s, const struct wf_node *const sums[], int pass)
{
    struct wf_stream_stage t;
    wf_stream_stage_cut(s, &t, sums[pass]->n_out, sums[pass]->out);
    s->total += t.flops;
    size_t bytes = bytes_at(s, pass);
    for (int o = 0; o < sums[pass]->n_out; o++)
        give(s, sums[pass]->out[o], false);
    for (size_t i = 0; i < s->graph->n_values && s->options.keep; i++) {
        struct wf_value *const v = s->graph->values[i];
        if (may_keep(s, &t, sums[pass], v) && bytes + kept_bytes(v) <= s->options.keep) {
            bytes += kept_bytes(v);
            give(s, v, true);
        }
    }
    wf_stream_stage_release(&t);
}

/* A reader may have been computed by an earlier pass. */
static void drop_unread(struct wf_stream *s, int from, int pass)
{
    int n = from;
    for (int i = from; i < s->n_given; i++)
        if (!s->given[i].is_kept || s->given[i].last == pass)
            s->given[n++] = s->given[i];
    s->n_given = n;
}

static void lay_out(struct wf_stream *s, const struct wf_node *const sums[], struct pass *passes)
{
    s->total = 0;
    s->given = wf_arena_array(&s->arena, s->graph->n_values + 1, struct wf_stream_given);
    for (int i = 0; i < s->passes; i++) {
        passes[i] = (struct pass){ .sum = sums[i], .before = s->n_given };
        choose_kept(s, sums, i);
        find_readers(s, sums, i + 1);
        drop_unread(s, passes[i].before, i + 1);
        passes[i].made = s->n_given - passes[i].before;
        const size_t bytes = bytes_at(s, i);
        s->most_kept = bytes > s->most_kept ? bytes : s->most_kept;
    }
    if (s->options.keeps_within_limit && s->options.limit)
        s->options.limit -= s->most_kept;
    struct wf_stream_stage t;
    wf_stream_stage_cut(s, &t, s->n_ends, s->ends);
    s->total += t.flops;
    wf_stream_stage_release(&t);
}

void wf_stream_lay_out(struct wf_stream *s, const struct wf_node *const sums[])
{
    lay_out(s, sums, wf_arena_array(&s->arena, s->passes + 1, struct pass));
}

/* --- a pass --- */

static bool take_memory(struct wf_stream *s, const struct pass *p, struct wf_err *err)
{
    for (int i = p->before; i < p->before + p->made; i++) {
        struct wf_stream_given *const g = &s->given[i];
        const size_t count = (size_t)wf_shape_count(g->value->shape);
        g->data = calloc(count, wf_dtype_size(g->dtype));
        if (!g->data)
            return wf_err_set(
                err, WF_ERR_FIT,
                "no host memory for %zu bytes of '%s': set memory.limit to what may be taken",
                count * wf_dtype_size(g->dtype), g->value->name);
    }
    return true;
}

static void release_unread(struct wf_stream *s, int pass)
{
    for (int i = 0; i < s->n_given; i++)
        if (s->given[i].data && s->given[i].last <= pass && s->given[i].is_kept) {
            free(s->given[i].data);
            s->given[i].data = NULL;
        }
}

/* A window's part of a sum is added, of what is kept it is put where it lies. */
static bool collect(struct wf_stream *s, const struct wf_stream_stage *t,
                    const struct wf_stream_given *g, struct wf_err *err)
{
    const struct wf_value *const v = t->map[g->value->id];
    const struct wf_view all = wf_stream_given_view(g);
    if (!wf_run_get_owned(t->kind->run, v, &s->host, err))
        return false;
    struct wf_view part = s->host.view;
    if (!g->is_kept) {
        for (struct wf_cursor c = wf_cursor(part.box); wf_cursor_next(&c);)
            wf_view_set(&all, c.at, wf_view_at(&all, c.at) + wf_view_at(&part, c.at));
        return true;
    }
    part.box = wf_geometry_owned(&t->geometry, 0, v);
    const struct wf_view to = wf_view_part(all, part.box);
    wf_view_copy(&to, &part);
    return true;
}

/* Collective. Every rank has all of what is kept: windows of the next pass lie otherwise. */
static bool share_kept(struct wf_stream *s, const struct wf_stream_stage *t,
                       const struct wf_stream_given *g, struct wf_err *err)
{
    const int ranks = wf_comm_size(s->comm);
    const struct wf_view all = wf_stream_given_view(g);
    bool ok = true;
    for (int64_t i = 0; ok && ranks > 1 && i < wf_window_grid_count(&t->grid); i++) {
        const int root = (int)(i % ranks);
        const struct wf_region cell =
            wf_region_intersect(wf_window_grid_cell(&t->grid, i), all.box);
        const struct wf_view there = wf_view_part(all, cell);
        const size_t bytes = wf_view_bytes(&there);
        const struct wf_view packed = wf_view_dense(wf_take(bytes), g->dtype, cell);
        if (wf_comm_rank(s->comm) == root)
            wf_view_copy(&packed, &there);
        ok = wf_comm_broadcast(s->comm, root, packed.data, bytes, err);
        if (ok && wf_comm_rank(s->comm) != root)
            wf_view_copy(&there, &packed);
        free(packed.data);
    }
    return ok;
}

/* Collective. All windows, added up over windows and ranks in f64. */
static bool run_windows(struct wf_stream *s, struct wf_stream_stage *t, const struct pass *p,
                        struct wf_err *err)
{
    struct wf_stream_given *const made = &s->given[p->before];
    bool ok = true;
    for (int64_t i = wf_comm_rank(s->comm); ok && i < wf_window_grid_count(&t->grid);
         i += wf_comm_size(s->comm)) {
        ok = wf_stream_stage_run(s, t, i, err);
        for (int k = 0; ok && k < p->made; k++)
            ok = collect(s, t, &made[k], err);
    }
    ok = wf_comm_agree(s->comm, ok, err);
    for (int k = 0; ok && k < p->made; k++)
        ok = made[k].is_kept
                 ? share_kept(s, t, &made[k], err)
                 : wf_comm_sum(s->comm, made[k].data, (size_t)wf_shape_count(made[k].value->shape),
                               WF_F64, err);
    return ok;
}

/* Collective. */
static bool run_pass(struct wf_stream *s, const struct pass *p, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_value **const ends = wf_arena_array(&arena, p->made + 1, struct wf_value *);
    struct wf_stream_stage t = { 0 };
    for (int i = 0; i < p->made; i++)
        ends[i] = s->given[p->before + i].value;
    s->n_given = p->before;
    bool ok = wf_stream_stage_init(s, &t, p->made, ends, err) && take_memory(s, p, err);
    ok = wf_comm_agree(s->comm, ok, err) && run_windows(s, &t, p, err);
    s->n_given = p->before + p->made;
    wf_stream_stage_release(&t);
    wf_arena_release(&arena);
    return ok || wf_err_wrap(err, "layer '%s' looks at the whole image", p->sum->name);
}

bool wf_stream_take_sums(struct wf_stream *s, const struct wf_node *const sums[],
                         struct wf_err *err)
{
    struct pass *const passes = wf_arena_array(&s->arena, s->passes + 1, struct pass);
    lay_out(s, sums, passes);
    for (int i = 0; i < s->passes; i++) {
        if (!run_pass(s, &passes[i], err))
            return false;
        release_unread(s, i);
    }
    return true;
}

/* --- a number beside the outputs --- */

static int count_sums(const struct wf_stream *s)
{
    return s->n_ends - s->n_outputs;
}

bool wf_stream_begin_number(struct wf_stream *s, struct wf_err *err)
{
    const struct pass p = { .before = s->n_given, .made = count_sums(s) };
    if (p.made == 0)
        return true;
    if (!s->given)
        s->given = wf_arena_array(&s->arena, s->graph->n_values + 1, struct wf_stream_given);
    for (int i = s->n_outputs; i < s->n_ends; i++)
        give(s, s->ends[i], false);
    const bool ok = take_memory(s, &p, err);
    s->n_given = p.before; /* until all windows have run nobody reads them */
    return wf_comm_agree(s->comm, ok, err);
}

void wf_stream_restart_number(struct wf_stream *s)
{
    for (int i = s->n_given; i < s->n_given + count_sums(s); i++)
        memset(s->given[i].data, 0,
               (size_t)wf_shape_count(s->given[i].value->shape) * wf_dtype_size(s->given[i].dtype));
    s->has_number = false;
}

bool wf_stream_add_number(struct wf_stream *s, struct wf_err *err)
{
    for (int i = 0; i < count_sums(s); i++)
        if (!collect(s, &s->last, &s->given[s->n_given + i], err))
            return false;
    return true;
}

bool wf_stream_number(struct wf_stream *s, double *number, struct wf_err *err)
{
    struct wf_stream_stage t;
    bool ok = true;
    WF_BUG_ON(s->has_number, "the sums of an image are added up over ranks twice");
    s->has_number = true;
    for (int i = 0; ok && i < count_sums(s); i++) {
        const struct wf_stream_given *const g = &s->given[s->n_given + i];
        ok = wf_comm_sum(s->comm, g->data, (size_t)wf_shape_count(g->value->shape), WF_F64, err);
    }
    if (!ok)
        return false;
    s->n_given += count_sums(s);
    ok = wf_stream_stage_init(s, &t, 1, &s->options.number, err) &&
         wf_stream_stage_run(s, &t, 0, err) &&
         wf_run_get_number(t.kind->run, t.map[s->options.number->id], 0, number, err);
    wf_stream_stage_release(&t);
    s->n_given -= count_sums(s);
    return wf_comm_agree(s->comm, ok, err);
}
