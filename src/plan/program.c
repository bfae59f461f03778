#include "plan/program.h"

#include <stdlib.h>

#include "ops/op.h"
#include "plan/target.h"

enum {
    /* A result that is not used for this many items is thrown away and recomputed. */
    STALE_AFTER = 6,
};

struct maker {
    struct wf_arena *arena;
    const struct wf_graph *g;
    const struct wf_program_options *options;
    struct wf_program *p;
    const struct wf_node *wanted_by; /* the node whose turn it is */
    int began;                       /* the first item of that turn */
    bool *live;                      /* per node: something depends on it */
    bool *kept;                      /* per value: a backward item reads it as it is */
    bool *cheap;                     /* per value: may be recomputed (P2) */
    int *current, *first;            /* per value: its newest instance, and its first; or -1 */
    int *used_at;                    /* per instance: item of the newest use or making */
    size_t room_items, room_instances, room_used;
};

static bool is_recomputable(const struct wf_value *v)
{
    return v->producer && !v->producer->backward && v->producer->n_out == 1 &&
           (v->producer->op->flags & WF_OP_CHEAP);
}

static size_t value_bytes(const struct wf_value *v)
{
    return (size_t)wf_shape_count(v->shape) * wf_dtype_size(v->dtype);
}

/* Weights, inputs and small vectors are there in the backward pass without further cost; rows of a sparse tensor are
 * not small. */
static bool is_free(const struct wf_value *v)
{
    return v->kind != WF_TEMP ||
           (!v->set && v->shape.at[WF_D] * v->shape.at[WF_H] * v->shape.at[WF_W] == 1 &&
            !is_recomputable(v));
}

bool wf_program_may_repeat(const struct wf_value *v)
{
    return v->producer && !v->producer->backward && !wf_op_sums_over(v->producer) && !is_free(v);
}

/* For the operator, or for the kernel that the device has for it. */
static bool is_cheap(const struct maker *m, const struct wf_value *v)
{
    if (is_recomputable(v))
        return true;
    if (!wf_program_may_repeat(v) || v->producer->n_out != 1)
        return false;
    const struct wf_kernel *const kernel = m->options->device->find(v->producer);
    return kernel && (kernel->flags & WF_KERNEL_CHEAP);
}

static void mark_live(struct maker *m)
{
    const struct wf_graph *g = m->g;
    bool *needed = wf_arena_array(m->arena, g->n_values, bool);
    for (size_t i = 0; i < g->n_outputs; i++)
        needed[g->outputs[i]->id] = true;
    for (size_t i = 0; i < g->n_updates; i++)
        needed[g->updates[i].next->id] = true;
    for (size_t i = g->n_nodes; i-- > 0;) {
        const struct wf_node *n = g->nodes[i];
        for (int o = 0; o < n->n_out; o++)
            m->live[n->id] |= needed[n->out[o]->id];
        for (int k = 0; m->live[n->id] && k < n->n_in; k++)
            if (n->in[k])
                needed[n->in[k]->id] = true;
    }
}

/* Bytes that would have to be kept for the backward pass only in order to recompute v. */
static size_t extra_bytes(const struct maker *m, const struct wf_value *v)
{
    size_t bytes = 0;
    for (int i = 0; i < v->producer->n_in; i++) {
        const struct wf_value *in = v->producer->in[i];
        if (in && !is_free(in) && !m->kept[in->id] && !m->cheap[in->id])
            bytes += value_bytes(in);
    }
    return bytes;
}

/* Decides in forward order which values are recomputed in the backward pass (P2). */
static void mark_cheap(struct maker *m)
{
    const struct wf_graph *g = m->g;
    bool *wanted = wf_arena_array(m->arena, g->n_values, bool); /* read by the backward pass */
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in && g->nodes[i]->backward; k++)
            if (m->live[i] && g->nodes[i]->in[k])
                wanted[g->nodes[i]->in[k]->id] = true;
    /* What feeds a wanted cheap value is wanted as well, if that is cheap too: walk backwards. */
    for (size_t i = g->n_nodes; i-- > 0;) {
        const struct wf_node *n = g->nodes[i];
        if (!m->live[i] || n->backward || !is_cheap(m, n->out[0]) || !wanted[n->out[0]->id])
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && is_cheap(m, n->in[k]))
                wanted[n->in[k]->id] = true;
    }
    for (size_t i = 0; i < g->n_values; i++)
        m->kept[i] = wanted[i] && !is_cheap(m, g->values[i]);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *n = g->nodes[i];
        const struct wf_value *v = n->out[0];
        if (!m->live[i] || n->backward || !wanted[v->id] || !is_cheap(m, v))
            continue;
        if (extra_bytes(m, v) >= value_bytes(v)) {
            m->kept[v->id] = true;
            continue;
        }
        m->cheap[v->id] = true;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && !m->cheap[n->in[k]->id])
                m->kept[n->in[k]->id] = true;
    }
}

/* P5: per node, whether it depends on weights and states alone. What is larger than all it is made of is computed anew
 * instead: a weight that is spread over an image. */
static bool *find_fixed(struct wf_arena *arena, const struct wf_graph *g)
{
    bool *const fixed = wf_arena_array(arena, g->n_nodes, bool);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        int64_t read = 0, made = 0;
        fixed[i] = n->n_in > 0 && !n->backward;
        for (int k = 0; fixed[i] && k < n->n_in; k++) {
            const struct wf_value *const v = n->in[k];
            fixed[i] = !v || v->kind == WF_PARAM || v->kind == WF_STATE ||
                       (v->producer && fixed[v->producer->id]);
            read += v ? wf_shape_count(v->shape) : 0;
        }
        for (int o = 0; o < n->n_out; o++)
            made += wf_shape_count(n->out[o]->shape);
        fixed[i] = fixed[i] && made <= read;
    }
    return fixed;
}

size_t wf_program_fixed_bytes(const struct wf_graph *g)
{
    struct wf_arena arena = { 0 };
    const bool *const fixed = find_fixed(&arena, g);
    size_t bytes = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int o = 0; fixed[i] && o < g->nodes[i]->n_out; o++)
            bytes += value_bytes(g->nodes[i]->out[o]);
    wf_arena_release(&arena);
    return bytes;
}

static int add_instance(struct maker *m, const struct wf_value *v, int item)
{
    struct wf_program *p = m->p;
    WF_GROW(p->instances, m->room_instances, (size_t)p->n_instances);
    WF_GROW(m->used_at, m->room_used, (size_t)p->n_instances);
    p->instances[p->n_instances] = (struct wf_instance){
        .value = v, .maker = item, .last_use = -1, .recompute = m->current[v->id] >= 0
    };
    m->used_at[p->n_instances] = item;
    if (m->current[v->id] < 0)
        m->first[v->id] = p->n_instances;
    return m->current[v->id] = p->n_instances++;
}

static void add_item(struct maker *m, const struct wf_node *n);

/* By name, for the node whose turn it is. */
static bool is_requested(const struct maker *m, const struct wf_value *v)
{
    const struct wf_requests *const r = m->options->requests;
    for (size_t i = 0; i < r->n_recompute; i++)
        if (r->recompute[i].value == v->id && r->recompute[i].node == m->wanted_by->id)
            return true;
    return false;
}

/* P4 */
static bool is_of_another_chunk(const struct maker *m, const struct wf_value *v)
{
    const struct wf_stages *const s = m->options->stages;
    return v->producer && wf_stages_chunk(s, v->producer) != wf_stages_chunk(s, m->wanted_by);
}

/* The instance of v that an item added now should read. */
static int instance_for_use(struct maker *m, const struct wf_value *v)
{
    if (is_of_another_chunk(m, v))
        return m->first[v->id];
    int i = m->current[v->id];
    const int now = m->p->n_items;
    if (i < 0) {
        WF_BUG_ON(v->kind == WF_TEMP, "'%s' is used before it is made", v->name);
        i = add_instance(m, v, -1);
    } else if ((m->cheap[v->id] && now - m->used_at[i] > STALE_AFTER) ||
               (m->used_at[i] < m->began && is_requested(m, v))) {
        add_item(m, v->producer);
        i = m->current[v->id];
    }
    return i;
}

static void add_item(struct maker *m, const struct wf_node *n)
{
    int *in = wf_arena_array(m->arena, n->n_in + 1, int);
    int *out = wf_arena_array(m->arena, n->n_out, int);
    for (int k = 0; k < n->n_in; k++)
        in[k] = n->in[k] ? instance_for_use(m, n->in[k]) : -1;
    struct wf_program *p = m->p;
    const int item = p->n_items;
    for (int k = 0; k < n->n_in; k++) {
        if (in[k] < 0)
            continue;
        p->instances[in[k]].n_uses++;
        p->instances[in[k]].last_use = item;
        m->used_at[in[k]] = item;
    }
    for (int o = 0; o < n->n_out; o++)
        out[o] = add_instance(m, n->out[o], item);
    WF_GROW(p->items, m->room_items, (size_t)p->n_items);
    p->items[p->n_items++] =
        (struct wf_item){ .node = n,
                          .wanted_by = m->wanted_by,
                          .in = in,
                          .out = out,
                          .segment = wf_stages_segment(m->options->stages, m->wanted_by) };
    for (int o = 0; o < n->n_out && n != m->wanted_by; o++)
        p->items[item].is_for_limit |= is_requested(m, n->out[o]);
}

struct wf_requests wf_requests_copy(struct wf_arena *arena, const struct wf_requests *requests)
{
    struct wf_requests copy = *requests;
    copy.recompute = wf_arena_array(arena, copy.n_recompute + 1, struct wf_recompute);
    copy.strips = wf_arena_array(arena, copy.n_strips + 1, struct wf_strips_request);
    for (size_t i = 0; i < copy.n_recompute; i++)
        copy.recompute[i] = requests->recompute[i];
    for (size_t i = 0; i < copy.n_strips; i++)
        copy.strips[i] = requests->strips[i];
    return copy;
}

/* Moves a grown heap array into the arena. */
static void *settle(struct wf_arena *arena, void *items, size_t bytes)
{
    void *copy = wf_arena_take(arena, bytes ? bytes : 1);
    if (bytes)
        memcpy(copy, items, bytes);
    free(items);
    return copy;
}

static void keep(struct maker *m, const struct wf_value *v)
{
    if (m->current[v->id] < 0)
        add_instance(m, v, -1);
    const int i = m->current[v->id];
    m->p->of_value[v->id] = i;
    m->p->instances[i].keep = true;
}

/* Items of all nodes that something depends on, or of those that are fixed or not. */
static void add_items(struct maker *m, const bool fixed[], bool which)
{
    const struct wf_graph *const g = m->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const int *const order = m->options->stages->order;
        m->wanted_by = g->nodes[order ? order[i] : (int)i];
        m->began = m->p->n_items;
        if (m->live[m->wanted_by->id] && (!fixed || fixed[m->wanted_by->id] == which))
            add_item(m, m->wanted_by);
    }
}

static void add_fixed(struct maker *m, const bool fixed[])
{
    add_items(m, fixed, true);
    m->p->n_fixed = m->p->n_items;
    for (int i = 0; i < m->p->n_instances; i++)
        m->p->instances[i].keep = m->p->instances[i].maker >= 0;
}

struct wf_program *wf_program_new(struct wf_arena *arena, const struct wf_graph *g,
                                  const struct wf_program_options *options)
{
    struct maker m = { .arena = arena, .g = g, .options = options };
    m.p = wf_arena_one(arena, struct wf_program);
    m.live = wf_arena_array(arena, g->n_nodes, bool);
    m.kept = wf_arena_array(arena, g->n_values, bool);
    m.cheap = wf_arena_array(arena, g->n_values, bool);
    m.current = wf_arena_array(arena, g->n_values, int);
    m.first = wf_arena_array(arena, g->n_values, int);
    m.p->of_value = wf_arena_array(arena, g->n_values, int);
    for (size_t i = 0; i < g->n_values; i++)
        m.current[i] = m.p->of_value[i] = -1;
    WF_GROW(m.used_at, m.room_used, 0);
    mark_live(&m);
    if (options->cheap_too)
        mark_cheap(&m);
    for (size_t i = 0; i < g->n_outputs; i++)
        m.cheap[g->outputs[i]->id] = false;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind != WF_TEMP)
            m.p->of_value[i] = add_instance(&m, g->values[i], -1);
    const bool *const fixed = options->fixed_weights ? find_fixed(arena, g) : NULL;
    if (fixed)
        add_fixed(&m, fixed);
    add_items(&m, fixed, false);
    for (size_t i = 0; i < g->n_outputs; i++)
        keep(&m, g->outputs[i]);
    for (size_t i = 0; i < g->n_updates; i++)
        keep(&m, g->updates[i].next);
    struct wf_program *p = m.p;
    p->items = settle(arena, p->items, (size_t)p->n_items * sizeof *p->items);
    p->instances = settle(arena, p->instances, (size_t)p->n_instances * sizeof *p->instances);
    free(m.used_at);
    return p;
}
