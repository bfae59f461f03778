
#include "graph/graph.h"

struct copier {
    const struct wf_graph *from;
    struct wf_graph *to;
    struct wf_value **map;
    bool *needed; /* per value of `from` */
};

static bool is_given(const struct wf_cut *cut, const struct wf_value *v)
{
    for (int i = 0; i < cut->n_given; i++)
        if (cut->given[i] == v)
            return true;
    return false;
}

/* Nodes stand in order, so one walk backwards finds all that is needed. */
static void mark(struct copier *c, const struct wf_cut *cut)
{
    for (int i = 0; i < cut->n_outputs; i++)
        c->needed[cut->outputs[i]->id] = true;
    for (size_t i = c->from->n_nodes; i-- > 0;) {
        const struct wf_node *n = c->from->nodes[i];
        bool runs = false;
        for (int o = 0; o < n->n_out; o++)
            runs |= c->needed[n->out[o]->id] && !is_given(cut, n->out[o]);
        for (int k = 0; runs && k < n->n_in; k++)
            if (n->in[k])
                c->needed[n->in[k]->id] = true;
    }
}

static struct wf_value *copy_source(const struct copier *c, const struct wf_value *v)
{
    if (v->kind == WF_INPUT) {
        struct wf_value *x = wf_input(c->to, v->name, v->dtype, v->shape);
        if (x) {
            x->replicated = v->replicated;
            x->set = v->set;
            x->per_rank = v->per_rank;
            if (v == c->from->rows) {
                c->to->rows = x;
                c->to->n_sets = c->from->n_sets;
            }
            x->border_dims = v->border_dims;
        }
        return x;
    }
    const struct wf_param_spec spec = { .name = v->name,
                                        .shape = v->shape,
                                        .border_dims = v->border_dims,
                                        .init = v->init,
                                        .init_bound = v->init_bound,
                                        .frozen = v->frozen };
    return v->kind == WF_PARAM ? wf_param(c->to, &spec) : wf_state(c->to, &spec);
}

static void copy_node(const struct copier *c, const struct wf_cut *cut, const struct wf_node *n)
{
    bool runs = false;
    for (int o = 0; o < n->n_out; o++)
        runs |= c->needed[n->out[o]->id] && !is_given(cut, n->out[o]);
    if (!runs)
        return;
    struct wf_value **in = wf_arena_array(&c->to->arena, n->n_in + 1, struct wf_value *);
    for (int k = 0; k < n->n_in; k++)
        in[k] = n->in[k] ? c->map[n->in[k]->id] : NULL;
    c->to->in_backward = n->backward;
    struct wf_node *copy = wf_node_add(c->to, n->op, n->name, n->attrs, n->n_in, in);
    for (int o = 0; copy && o < n->n_out; o++)
        if (!is_given(cut, n->out[o]))
            c->map[n->out[o]->id] = copy->out[o];
    if (copy)
        copy->domain = n->domain;
}

struct wf_graph *wf_graph_cut(const struct wf_graph *g, const struct wf_cut *cut,
                              struct wf_value *map[])
{
    struct copier c = { .from = g, .to = wf_graph_new(&g->options), .map = map };
    c.needed = wf_arena_array(&c.to->arena, g->n_values, bool);
    for (size_t i = 0; i < g->n_values; i++)
        map[i] = NULL;
    mark(&c, cut);
    for (size_t i = 0; i < g->n_values; i++)
        if (c.needed[i] && g->values[i]->kind != WF_TEMP)
            map[i] = copy_source(&c, g->values[i]);
    for (int i = 0; i < cut->n_given; i++) {
        const struct wf_value *v = cut->given[i];
        if (!c.needed[v->id])
            continue;
        struct wf_value *x =
            wf_input(c.to, wf_arena_printf(&c.to->arena, "given.%d", i), v->dtype, v->shape);
        if (x)
            x->replicated = v->replicated, x->set = v->set, x->per_rank = v->per_rank;
        map[v->id] = x;
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        copy_node(&c, cut, g->nodes[i]);
    for (int i = 0; i < cut->n_outputs; i++)
        wf_graph_output(c.to, map[cut->outputs[i]->id]);
    return c.to;
}
