#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/op.h"

struct wf_graph *wf_graph_new(const struct wf_graph_options *options)
{
    struct wf_graph *g = wf_take_zeroed(1, sizeof *g);
    if (options)
        g->options = *options;
    return g;
}

void wf_graph_free(struct wf_graph *g)
{
    if (!g)
        return;
    wf_arena_release(&g->arena);
    free((void *)g->values);
    free((void *)g->nodes);
    free(g->updates);
    free((void *)g->outputs);
    free(g);
}

bool wf_graph_ok(const struct wf_graph *g, struct wf_err *err)
{
    if (g->err.code == WF_OK)
        return true;
    *err = g->err;
    return false;
}

static struct wf_value *value_add(struct wf_graph *g, enum wf_value_kind kind, const char *name)
{
    struct wf_value *v = wf_arena_one(&g->arena, struct wf_value);
    v->id = (int)g->n_values;
    v->kind = kind;
    v->name = wf_arena_copy(&g->arena, name);
    v->border_dims = 3;
    WF_GROW(g->values, g->room_values, g->n_values);
    g->values[g->n_values++] = v;
    return v;
}

struct wf_value *wf_graph_find(const struct wf_graph *g, const char *name)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i]->name, name) == 0)
            return g->values[i];
    return NULL;
}

/* How many spatial axes people see of an image: leading axes of extent one are left out. */
static int image_dims(struct wf_shape shape)
{
    return shape.at[WF_D] > 1 ? 3 : shape.at[WF_H] > 1 ? 2 : shape.at[WF_W] > 1 ? 1 : 0;
}

struct wf_value *wf_input(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                          struct wf_shape shape)
{
    if (!wf_shape_is_valid(shape)) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "input '%s': every extent must be at least 1, and all elements at most 2^53",
                   name);
        return NULL;
    }
    if (wf_graph_find(g, name)) {
        wf_err_set(&g->err, WF_ERR_USAGE, "input '%s': the name is taken", name);
        return NULL;
    }
    struct wf_value *v = value_add(g, WF_INPUT, name);
    v->dtype = dtype;
    v->shape = shape;
    v->border_dims = image_dims(shape);
    return v;
}

struct wf_value *wf_input_number(struct wf_graph *g, const char *name)
{
    struct wf_value *const v = wf_input(g, name, WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
    if (v)
        v->replicated = true;
    return v;
}

int wf_set_new(struct wf_graph *g)
{
    if (!g->rows) {
        g->rows = wf_input(g, "rows", WF_I32, WF_SHAPE(1, 1, 1, 1, WF_SETS + 1));
        if (g->rows)
            g->rows->replicated = true;
        wf_graph_output(g, g->rows);
    }
    if (g->n_sets == WF_SETS) {
        wf_err_set(&g->err, WF_ERR_USAGE, "more than %d sets of coordinates", WF_SETS);
        return 0;
    }
    return g->rows ? ++g->n_sets : 0;
}

struct wf_value *wf_input_rows(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                               struct wf_shape shape, int set)
{
    struct wf_value *const v = wf_input(g, name, dtype, shape);
    if (v)
        v->set = set;
    return v;
}

const char *wf_value_name(const struct wf_value *value)
{
    return value->name;
}

enum wf_dtype wf_value_dtype(const struct wf_value *value)
{
    return value->dtype;
}

struct wf_shape wf_value_shape(const struct wf_value *value)
{
    return value->shape;
}

/* Weights are shared by name: the same name again is the same value. */
static struct wf_value *weight(struct wf_graph *g, enum wf_value_kind kind,
                               const struct wf_param_spec *spec)
{
    struct wf_value *v = NULL;
    for (size_t i = 0; !v && i < g->n_values; i++)
        if (g->values[i]->kind != WF_TEMP && strcmp(g->values[i]->name, spec->name) == 0)
            v = g->values[i]; /* an activation may have any name */
    if (v && (v->kind != kind || !wf_shape_equal(v->shape, spec->shape))) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "parameter '%s' exists with another shape: give the second layer a name of its "
                   "own, or the same shape to share it",
                   spec->name);
        return NULL;
    }
    if (v)
        return v;
    if (!wf_shape_is_valid(spec->shape)) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "parameter '%s': an extent is below 1, or it has more than 2^53 elements",
                   spec->name);
        return NULL;
    }
    v = value_add(g, kind, spec->name);
    v->dtype = WF_F32;
    v->shape = spec->shape;
    v->replicated = true;
    v->frozen = spec->frozen;
    v->border_dims = spec->border_dims;
    v->init = spec->init;
    v->init_bound = spec->init_bound;
    return v;
}

struct wf_value *wf_param(struct wf_graph *g, const struct wf_param_spec *spec)
{
    return weight(g, WF_PARAM, spec);
}

struct wf_value *wf_state(struct wf_graph *g, const struct wf_param_spec *spec)
{
    return weight(g, WF_STATE, spec);
}

void wf_graph_freeze(struct wf_graph *g, const char *prefix)
{
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM && strncmp(g->values[i]->name, prefix, length) == 0)
            g->values[i]->frozen = true;
}

static bool inputs_fit(struct wf_graph *g, const struct wf_op *op, const char *name, int n_in,
                       struct wf_value *const in[])
{
    if (op->n_in >= 0 && n_in != op->n_in)
        return wf_err_set(&g->err, WF_ERR_USAGE, "layer '%s': %s takes %d inputs, got %d", name,
                          op->name, op->n_in, n_in);
    for (int i = 0; i < n_in; i++)
        if (!in[i] && i < n_in - op->n_optional)
            return false; /* an earlier builder failed and said why */
    return true;
}

/* Rows of one set, and an operator that does not touch rows that are not there. */
static bool sets_fit(const struct wf_node *n, struct wf_err *err)
{
    int set = -1;
    if (n->op->flags & WF_OP_SETS)
        return true;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i] || n->in[i]->replicated)
            continue;
        if (set >= 0 && n->in[i]->set != set)
            return wf_err_set(err, WF_ERR_USAGE,
                              "its inputs have different coordinates: join them first");
        set = n->in[i]->set;
    }
    if (set > 0 && !(n->op->flags & (WF_OP_POINTWISE | WF_OP_ROWS)))
        return wf_err_set(err, WF_ERR_USAGE, "there is no such operator for sparse tensors");
    return true;
}

struct wf_node *wf_node_add(struct wf_graph *g, const struct wf_op *op, const char *name,
                            const void *attrs, int n_in, struct wf_value *const in[])
{
    if (g->err.code != WF_OK)
        return NULL;
    if (!name)
        name = op->name;
    if (!inputs_fit(g, op, name, n_in, in)) {
        wf_err_set(&g->err, WF_ERR_USAGE, "layer '%s': %s lacks an input", name, op->name);
        return NULL;
    }
    struct wf_node *n = wf_arena_one(&g->arena, struct wf_node);
    n->id = (int)g->n_nodes;
    n->op = op;
    n->name = wf_arena_copy(&g->arena, name);
    if (op->attr_bytes)
        n->attrs = memcpy(wf_arena_take(&g->arena, op->attr_bytes), attrs, op->attr_bytes);
    n->n_in = n_in;
    n->in = wf_arena_array(&g->arena, n_in + 1, struct wf_value *);
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i];
    n->n_out = wf_op_outputs(op);
    n->out = wf_arena_array(&g->arena, n->n_out, struct wf_value *);
    n->backward = g->in_backward;
    n->of = g->gradient_of ? g->gradient_of->id : -1;
    n->domain = g->domain;
    const size_t n_values = g->n_values;
    for (int o = 0; o < n->n_out; o++) {
        struct wf_value *v = n->out[o] = value_add(g, WF_TEMP, name);
        v->producer = n;
        if (n_in > 0 && in[0]) {
            v->shape = in[0]->shape;
            v->dtype = in[0]->dtype;
            v->replicated = in[0]->replicated;
            v->set = in[0]->set;
            v->per_rank = in[0]->per_rank;
        }
    }
    struct wf_err err = { 0 };
    bool ok = sets_fit(n, &err) && (!op->infer || op->infer(n, &err));
    for (int o = 0; ok && o < n->n_out; o++)
        if (!wf_shape_is_valid(n->out[o]->shape))
            ok = wf_err_set(&err, WF_ERR_USAGE, "the result would be empty or too large");
    if (!ok) {
        g->n_values = n_values;
        wf_err_wrap(&err, "layer '%s' (%s)", name, op->name);
        g->err = err;
        return NULL;
    }
    for (int o = 0; o < n->n_out; o++) {
        n->out[o]->border_dims = image_dims(n->out[o]->shape);
        if (n->out[o]->replicated)
            n->out[o]->set = 0, n->out[o]->per_rank = false;
    }
    WF_GROW(g->nodes, g->room_nodes, g->n_nodes);
    g->nodes[g->n_nodes++] = n;
    return n;
}

void wf_graph_update_state(struct wf_graph *g, struct wf_value *state, struct wf_value *next)
{
    if (!state || !next)
        return;
    WF_BUG_ON(state->kind != WF_STATE || !wf_shape_equal(state->shape, next->shape) ||
                  state->dtype != next->dtype,
              "state '%s'", state->name);
    for (size_t i = 0; i < g->n_updates; i++)
        if (g->updates[i].state == state) {
            g->updates[i].next = next;
            return;
        }
    WF_GROW(g->updates, g->room_updates, g->n_updates);
    g->updates[g->n_updates++] = (struct wf_state_update){ state, next };
}

struct wf_value *wf_graph_next_state(const struct wf_graph *g, struct wf_value *state)
{
    for (size_t i = 0; i < g->n_updates; i++)
        if (g->updates[i].state == state)
            return g->updates[i].next;
    return state;
}

void wf_graph_output(struct wf_graph *g, struct wf_value *value)
{
    if (!value)
        return;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == value)
            return;
    WF_GROW(g->outputs, g->room_outputs, g->n_outputs);
    g->outputs[g->n_outputs++] = value;
}

void wf_graph_link_grad(struct wf_graph *g, struct wf_value *param, struct wf_value *grad)
{
    WF_BUG_ON(param->kind != WF_PARAM || grad->kind != WF_TEMP || grad->dtype != WF_F32 ||
                  !wf_shape_equal(param->shape, grad->shape),
              "gradient of '%s'", param->name);
    param->grad = grad;
    grad->grad_of = param;
    grad->name = wf_arena_printf(&g->arena, "grad.%s", param->name);
    grad->border_dims = param->border_dims;
    wf_graph_output(g, grad);
}

int64_t wf_graph_parameters(const struct wf_graph *g, bool with_frozen)
{
    int64_t count = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if (v->kind == WF_PARAM && (with_frozen || !v->frozen))
            count += wf_shape_count(v->shape);
    }
    return count;
}
