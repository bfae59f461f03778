/*
 * Reverse mode. It walks the forward nodes backwards, asks each operator for the nodes of its
 * gradient, and adds up where a value was used more than once (that is also how shared weights
 * accumulate). The result is more nodes in the same graph: the planner sees one list.
 *
 * G1. A value gets gradient work only when y depends on it and it depends on a target (a parameter
 *     that is not frozen, or a value in wrt).
 * G2. Uses are added in the order of the backward walk, so a sum has one order on any mesh.
 * G3. Contributions to a parameter's gradient are collected and added by one node at the end, so that
 *     no partial sum of them travels between ranks.
 * G4. The gradient of what is replicated is replicated: where a weight was used as an image, the
 *     ranks' parts are gathered.
 */
#include <stdlib.h>

#include "graph/graph.h"
#include "ops/build.h"
#include "ops/op.h"

struct reverse {
    struct wf_graph *g;
    size_t n; /* values before the backward pass */
    bool *wanted;
    struct wf_value **grad;
    struct wf_value **uses; /* G3: contributions of all parameters, in order */
    int *of;                /* per contribution: the parameter's id */
    size_t n_uses, room_uses, room_of;
};

static void mark_wanted(struct reverse *r, int n_wrt, struct wf_value *const wrt[])
{
    for (size_t i = 0; i < r->n; i++)
        r->wanted[i] = r->g->values[i]->kind == WF_PARAM && !r->g->values[i]->frozen;
    for (int i = 0; i < n_wrt; i++)
        r->wanted[wrt[i]->id] = true;
    for (size_t i = 0; i < r->g->n_nodes; i++) {
        const struct wf_node *n = r->g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_in; k++)
            any |= n->in[k] && r->wanted[n->in[k]->id];
        for (int o = 0; o < n->n_out && any && n->op->grad; o++)
            r->wanted[n->out[o]->id] = true;
    }
}

/* The input of the node that made `grad` where something can be added to it: nobody has read it yet. */
static struct wf_value **room_to_add(const struct reverse *r, const struct wf_value *sum,
                                     const struct wf_value *grad)
{
    struct wf_node *const n = grad->producer;
    if (!n || n != r->g->nodes[r->g->n_nodes - 1] || sum->producer == n || grad != n->out[0] ||
        sum->dtype != grad->dtype || sum->replicated != grad->replicated)
        return NULL;
    for (size_t i = 0; i < r->n; i++)
        if (r->grad[i] == grad)
            return NULL;
    for (size_t i = 0; i < r->n_uses; i++)
        if (r->uses[i] == grad)
            return NULL;
    for (int k = 0; k < n->n_in; k++)
        if (n->op->adds & (1u << k) && !n->in[k])
            return &n->in[k];
    return NULL;
}

static void accumulate(struct reverse *r, const struct wf_value *v, struct wf_value *grad)
{
    if (!grad)
        return;
    if (v->replicated) /* G4 */
        grad = wf_replicate(r->g, grad);
    if (v->kind == WF_PARAM) {
        WF_GROW(r->uses, r->room_uses, r->n_uses);
        WF_GROW(r->of, r->room_of, r->n_uses);
        r->uses[r->n_uses] = grad;
        r->of[r->n_uses++] = v->id;
        return;
    }
    struct wf_value **sum = &r->grad[v->id];
    struct wf_value **const room = *sum ? room_to_add(r, *sum, grad) : NULL;
    if (room)
        *room = *sum;
    *sum = *sum && !room ? wf_add(r->g, *sum, grad) : grad;
}

static void node_backward(struct reverse *r, const struct wf_node *n)
{
    bool flows = false;
    struct wf_value **dy = wf_arena_array(&r->g->arena, n->n_out, struct wf_value *);
    struct wf_value **dx = wf_arena_array(&r->g->arena, n->n_in + 1, struct wf_value *);
    bool *wanted = wf_arena_array(&r->g->arena, n->n_in + 1, bool);
    for (int o = 0; o < n->n_out; o++) {
        dy[o] = r->grad[n->out[o]->id];
        flows |= dy[o] != NULL;
    }
    bool any = false;
    for (int i = 0; i < n->n_in; i++)
        any |= wanted[i] = n->in[i] && r->wanted[n->in[i]->id];
    if (!flows || !any || !n->op->grad)
        return;
    r->g->domain = n->domain;
    r->g->gradient_of = n;
    n->op->grad(r->g, n, dy, wanted, dx);
    for (int i = 0; i < n->n_in; i++)
        if (wanted[i]) /* G1 */
            accumulate(r, n->in[i], dx[i]);
    r->g->domain = 0;
    r->g->gradient_of = NULL;
}

/* G3 */
static void add_contributions(struct reverse *r)
{
    struct wf_value **const list = wf_arena_array(&r->g->arena, r->n_uses + 1, struct wf_value *);
    for (size_t i = 0; i < r->n_uses; i++) {
        const struct wf_value *const p = r->g->values[r->of[i]];
        int n = 0;
        for (size_t k = i; k < r->n_uses && !r->grad[p->id]; k++)
            if (r->of[k] == p->id)
                list[n++] = r->uses[k];
        if (n > 0)
            r->grad[p->id] = n > 1 ? wf_accumulate(r->g, p->name, n, list) : list[0];
    }
    free(r->uses);
    free(r->of);
}

/* Gradients of parameters are outputs. */
static void link_gradients(struct reverse *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct wf_value *p = r->g->values[i];
        struct wf_value *d = r->grad[i];
        if (p->kind != WF_PARAM || p->frozen || !d)
            continue;
        if (d->kind != WF_TEMP || d->grad_of)
            d = wf_scale(r->g, d, 1.0); /* one value cannot be two parameters' gradient */
        if (!d)
            return;
        wf_graph_link_grad(r->g, p, d);
    }
}

bool wf_graph_grad(struct wf_graph *g, struct wf_value *y, struct wf_value *dy, int n_wrt,
                   struct wf_value *const wrt[], struct wf_value *dwrt[], struct wf_err *err)
{
    if (!wf_graph_ok(g, err))
        return false;
    WF_BUG_ON(!y || (dy && !wf_shape_equal(y->shape, dy->shape)), "gradient of nothing");
    struct reverse r = { .g = g, .n = g->n_values };
    r.wanted = wf_arena_array(&g->arena, r.n, bool);
    r.grad = wf_arena_array(&g->arena, r.n, struct wf_value *);
    mark_wanted(&r, n_wrt, wrt);
    g->in_backward = true;
    const size_t n_nodes = g->n_nodes;
    r.grad[y->id] = dy ? dy : wf_fill(g, y->shape, y->dtype, 1.0);
    for (size_t i = n_nodes; i-- > 0;)
        node_backward(&r, g->nodes[i]);
    add_contributions(&r);
    link_gradients(&r);
    for (int i = 0; i < n_wrt; i++)
        dwrt[i] = r.grad[wrt[i]->id];
    g->in_backward = false;
    return wf_graph_ok(g, err);
}
