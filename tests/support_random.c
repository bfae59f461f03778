#include "support_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/text.h"
#include "ops/build.h"
#include "support_random_layers.h"

/* --- any operator, as its cases have it --- */

static bool is_drawn(const struct wf_case *c)
{
    return c->in[0] == 'x' &&
           !strchr(c->in, 'X'); /* X: not to be differentiated, such as a cast to i32 */
}

/* As `shape` lies to the first input of its case, so the result to x: the same, or channels alike. */
static struct wf_shape fitted(struct wf_shape shape, struct wf_shape first, struct wf_shape x)
{
    if (wf_shape_equal(shape, first))
        return x;
    bool lies = true;
    for (int a = WF_N; a < WF_C; a++)
        lies = lies && shape.at[a] == first.at[a];
    const int64_t channels = shape.at[WF_C];
    struct wf_shape s = lies ? x : shape;
    if (!(lies && channels == 1) && channels % first.at[WF_C] == 0)
        s.at[WF_C] = channels / first.at[WF_C] * x.at[WF_C];
    else
        s.at[WF_C] = channels;
    return s;
}

/* A value that any operator takes where it takes x. */
static struct wf_value *like(struct maker *m, struct wf_value *x)
{
    for (int i = 0; i < m->n_made; i++) {
        struct wf_value *const v = m->made[below(&m->draw, m->n_made)];
        if (wf_shape_equal(v->shape, x->shape) && v->replicated == x->replicated && v != x)
            return v;
    }
    return x;
}

static struct wf_value *case_input(struct maker *m, char kind, struct wf_shape shape,
                                   struct wf_value *x)
{
    if (kind == '-')
        return NULL;
    if (kind == 'x' && wf_shape_equal(shape, x->shape))
        return like(m, x);
    if (kind == 'p')
        return wf_param(m->g, &(struct wf_param_spec){ .name = next_name(m, "case"),
                                                       .shape = shape,
                                                       .border_dims = 3,
                                                       .init = WF_INIT_UNIFORM,
                                                       .init_bound = 1.0 });
    const int64_t labels = kind == 't' ? x->shape.at[WF_C] : kind == 'b' ? 2 : 0;
    const char *const name = wf_arena_printf(&m->g->arena, "%s%d.%d", labels ? "labels" : "given",
                                             (int)labels, m->layers++);
    struct wf_value *const v = wf_input(m->g, name, kind == 't' ? WF_I32 : WF_F32, shape);
    if (v)
        v->replicated = kind == 'P';
    return v;
}

/* The case's graph with x as its first input; NULL, with an error in the graph, where they do not fit. */
static struct wf_value *case_on(struct maker *m, const struct wf_op *op, const struct wf_case *from,
                                struct wf_value *x)
{
    char kinds[SUPPORT_MAX_IN];
    struct wf_shape shapes[SUPPORT_MAX_IN];
    struct wf_value *in[SUPPORT_MAX_IN] = { x };
    const int n = support_case_inputs(from, kinds, shapes);
    for (int i = 1; i < n; i++)
        in[i] = case_input(m, kinds[i], fitted(shapes[i], shapes[0], x->shape), x);
    char *const attrs = calloc(1, op->attr_bytes + 1);
    WF_BUG_ON(!attrs || !wf_attrs_parse(op, from->attrs, attrs, &m->g->err), "%s", op->name);
    for (const struct wf_field *f = op->fields; f && f->name; f++)
        if (strcmp(f->name, "eps") == 0) /* as in draw_norm() */
            *(double *)(void *)(attrs + f->offset) = 1e-2;
    struct wf_value *const y =
        from->build ? from->build(m->g, in, attrs)
                    : wf_append(m->g, op, next_name(m, op->name), NULL, attrs, n, in);
    free(attrs);
    return y;
}

/* True where the case takes an image like x: tried on a graph of its own, because an error stays. */
static bool case_fits(const struct maker *m, const struct wf_op *op, const struct wf_case *from,
                      const struct wf_value *x)
{
    struct maker trial = { .draw = m->draw };
    trial.g = wf_graph_new(&m->g->options);
    struct wf_value *const image = wf_input(trial.g, "x", x->dtype, x->shape);
    image->replicated = x->replicated;
    const struct wf_value *const y = case_on(&trial, op, from, image);
    bool fits = y && wf_shape_count(y->shape) <= MOST_ELEMENTS;
    for (size_t i = 0; i < trial.g->n_nodes; i++) {
        const struct wf_node *const n = trial.g->nodes[i];
        /* An image that is put together on every rank: reverse mode alone does so. */
        fits = fits && (n->n_in == 0 || n->in[0]->replicated || !n->out[0]->replicated ||
                        wf_op_sums_over(n));
    }
    wf_graph_free(trial.g);
    return fits;
}

static struct wf_value *make_case(struct maker *m, const struct wf_op *op)
{
    int n = 0;
    while (op->cases[n].in)
        n++;
    for (int i = 0; i < 4 * TRIES; i++) {
        const struct wf_case *const from = &op->cases[below(&m->draw, n)];
        struct wf_value *const x = m->made[below(&m->draw, m->n_made)];
        if (!is_drawn(from) || !case_fits(m, op, from, x))
            continue;
        struct wf_value *const y = wf_cast(m->g, case_on(m, op, from, x), WF_F32);
        if (!y->replicated || x->replicated)
            return y;
        m->end = y;
        return NULL;
    }
    return NULL;
}

bool support_random_draws(const struct wf_op *op)
{
    for (const struct wf_case *c = op->cases; c && c->in; c++)
        if (is_drawn(c))
            return true;
    return false;
}

/* The operator that has its turn with this seed. */
static const struct wf_op *operator_of(uint64_t seed)
{
    const char *const only = getenv("WF_RANDOM_OP");
    const struct wf_op *const named = only && *only ? wf_op_find(only) : NULL;
    if (named)
        return named;
    uint64_t n = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        n += support_random_draws(*op);
    uint64_t left = seed % n;
    for (const struct wf_op *const *op = wf_op_table;; op++)
        if (support_random_draws(*op) && left-- == 0)
            return *op;
}

/* --- the graph --- */

static struct wf_value *draw_image(struct maker *m)
{
    struct draw *d = &m->draw;
    m->dims = (int)between(d, 1, 3);
    const int64_t most = m->dims == 1 ? 40 : m->dims == 2 ? 14 : 7;
    struct wf_shape s = WF_SHAPE(between(d, 1, 3), 1, 1, 1, between(d, 1, 4));
    for (int i = 0; i < m->dims; i++)
        s.at[WF_W - i] = between(d, 1, chance(d, 20) ? 3 : most);
    return wf_input(m->g, "image", WF_F32, s);
}

/* One of the losses on v, in r->y. */
static void end_in_loss(struct support_random *r, struct maker *m, struct wf_value *v)
{
    struct draw *d = &m->draw;
    const int64_t kind = below(d, 4), classes = v->shape.at[WF_C];
    struct wf_shape map = v->shape;
    map.at[WF_C] = 1;
    struct wf_loss l = { .name = "loss", .has_ignore = kind != 3 && chance(d, 40), .smooth = 0.5 };
    l.ignore = l.has_ignore ? below(d, classes) : 0;
    if (kind == 0 && chance(d, 40)) {
        l.weights = wf_input(m->g, "weights", WF_F32, WF_SHAPE(1, 1, 1, 1, classes));
        l.weights->replicated = true;
    }
    const bool is_map = kind == 0 || (kind == 1 && classes > 1);
    r->labels = kind == 3 ? 0 : (uint32_t)(is_map ? classes : 2);
    r->target = wf_input(m->g, "target", is_map ? WF_I32 : WF_F32, is_map ? map : v->shape);
    r->y = kind == 0   ? wf_cross_entropy(m->g, v, r->target, &l)
           : kind == 1 ? wf_dice(m->g, v, r->target, &l)
           : kind == 2 ? wf_binary_cross_entropy(m->g, v, r->target, &l)
                       : wf_mse(m->g, v, r->target, &l);
}

static void add_backward(struct support_random *r)
{
    struct wf_err err = { 0 };
    struct wf_value *dy = NULL;
    WF_BUG_ON(!wf_graph_ok(r->g, &err) || !r->y, "%s", err.text);
    wf_graph_output(r->g, r->y);
    if (!r->target) {
        dy = wf_input(r->g, "dy", r->y->dtype, r->y->shape);
        dy->replicated = r->y->replicated;
    }
    WF_BUG_ON(!wf_graph_grad(r->g, r->y, dy, 1, &r->image, &r->gradient, &err), "%s", err.text);
    if (r->gradient)
        wf_graph_output(r->g, r->gradient);
}

void support_random_build(struct support_random *r, uint64_t seed)
{
    struct maker m = { .draw = { .from = wf_random(seed, wf_random_stream("graph")) } };
    m.g = wf_graph_new(&(struct wf_graph_options){ .training = chance(&m.draw, 85) });
    *r = (struct support_random){ .g = m.g };
    r->image = m.made[m.n_made++] = draw_image(&m);
    const int want = (int)between(&m.draw, 2, 14), turn = (int)below(&m.draw, want - 1);
    for (int i = 0; i < 4 * want && m.n_made < want; i++) {
        struct wf_value *const v =
            i == turn ? make_case(&m, operator_of(seed)) : support_random_layer(&m);
        struct wf_err err = { 0 };
        WF_BUG_ON(!wf_graph_ok(m.g, &err), "seed %llu: %s", (unsigned long long)seed, err.text);
        /* What is too large stays in the graph, where nothing reads it. */
        if (v && v != m.made[m.n_made - 1] && wf_shape_count(v->shape) <= MOST_ELEMENTS)
            m.made[m.n_made++] = v;
    }
    r->y = m.end ? m.end : m.made[m.n_made - 1];
    if (!m.end && chance(&m.draw, 60))
        end_in_loss(r, &m, r->y);
    for (int i = 1; i < m.n_made; i++)
        if (m.made[i] != r->y && chance(&m.draw, 12))
            wf_graph_output(m.g, m.made[i]);
    add_backward(r);
}

/* --- numbers --- */

static void fill_labels(const struct wf_view *view, uint32_t labels, uint64_t seed)
{
    uint64_t i = 0;
    const struct wf_random from = wf_random(seed, wf_random_stream("labels"));
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c); i++)
        wf_view_set(view, c.at, wf_random_below(from, i, labels));
}

/* Scales and variances are positive, kernels small enough that sums of products keep the size. */
static void fill_weight(const struct wf_value *v, const struct wf_view *view)
{
    const char *const last = strrchr(v->name, '.');
    const bool scale = v->border_dims < 0 &&
                       (!last || strcmp(last, ".weight") == 0 || strcmp(last, ".running_var") == 0);
    const double fan = (double)wf_shape_count(v->shape) / (double)v->shape.at[WF_N];
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        const double x = wf_view_at(view, c.at);
        wf_view_set(view, c.at, scale ? 0.5 + fabs(x) : v->border_dims < 0 ? x : x / sqrt(fan));
    }
}

void support_random_fill(const struct support_random *r, const struct support_values *v,
                         uint64_t seed)
{
    for (size_t i = 0; i < r->g->n_values; i++) {
        const struct wf_value *value = r->g->values[i];
        if (value->kind == WF_TEMP)
            continue;
        support_fill_random(&v->views[i], seed, i);
        if (strncmp(value->name, "labels", 6) == 0)
            fill_labels(&v->views[i], (uint32_t)strtoul(value->name + 6, NULL, 10), seed);
        else if (value == r->target && r->labels)
            fill_labels(&v->views[i], r->labels, seed);
        else if (value->kind != WF_INPUT || value->replicated)
            fill_weight(value, &v->views[i]);
    }
}

struct wf_mesh support_random_mesh(const struct support_random *r, uint64_t seed, int number)
{
    static const int axes[] = { WF_MESH_W, WF_MESH_H, WF_MESH_D, WF_MESH_DATA };
    static const enum wf_axis of[] = { WF_W, WF_H, WF_D, WF_N };
    struct draw d = { .from = wf_random(seed, wf_random_stream("mesh") + (uint64_t)number) };
    struct wf_mesh mesh = wf_mesh_one();
    int64_t left = between(&d, number == 0 ? 2 : 1, 9);
    for (int i = 0; i < 4 * TRIES && left > 1; i++) {
        const int which = (int)below(&d, 4), factor = (int)a_divisor(&d, left);
        if (factor * mesh.at[axes[which]] > r->image->shape.at[of[which]])
            continue;
        mesh.at[axes[which]] *= factor;
        left /= factor;
    }
    return mesh;
}
