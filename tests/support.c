#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "graph/text.h"

struct support_values support_values_new(const struct wf_graph *g)
{
    struct support_values v = { .n = g->n_values };
    v.views = calloc(v.n + 1, sizeof *v.views);
    WF_BUG_ON(!v.views, "out of memory");
    for (size_t i = 0; i < v.n; i++) {
        const struct wf_value *value = g->values[i];
        const size_t count = (size_t)wf_shape_count(value->shape);
        void *data = calloc(count, wf_dtype_size(value->dtype));
        WF_BUG_ON(!data, "out of memory");
        v.views[i] = wf_view_dense(data, value->dtype, wf_shape_region(value->shape));
    }
    return v;
}

void support_values_free(struct support_values *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->views[i].data);
    free(v->views);
    *v = (struct support_values){ 0 };
}

/* Of sparse tensors: the work is no more than the rows that are there. */
static struct wf_region work_of(const struct wf_node *node, const int32_t *rows)
{
    struct wf_region work = wf_shape_region(wf_op_domain(node)->shape);
    const int set = wf_op_domain(node)->set;
    if (rows && set && !(node->op->flags & WF_OP_COUNTS))
        work.hi[WF_N] = wf_min(work.hi[WF_N], rows[set]);
    return work;
}

static void run_node(const struct wf_node *node, const struct support_values *v, int32_t *rows)
{
    struct wf_view *in = calloc((size_t)node->n_in + 1, sizeof *in);
    struct wf_view *out = calloc((size_t)node->n_out + 1, sizeof *out);
    WF_BUG_ON(!in || !out, "out of memory");
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            in[i] = v->views[node->in[i]->id];
    for (int o = 0; o < node->n_out; o++)
        out[o] = v->views[node->out[o]->id];
    node->op->reference(&(struct wf_call){ .node = node,
                                           .work = work_of(node, rows),
                                           .in = in,
                                           .out = out,
                                           .rows = rows,
                                           .seed = 1,
                                           .step = 1 });
    free(in);
    free(out);
}

void support_run_reference(const struct wf_graph *g, const struct support_values *v,
                           bool with_backward)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (with_backward || !g->nodes[i]->backward)
            run_node(g->nodes[i], v, g->rows ? v->views[g->rows->id].data : NULL);
}

void support_fill_random(const struct wf_view *view, uint64_t seed, uint64_t stream)
{
    uint64_t i = 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c); i++) {
        const double u = 2.0 * (double)wf_random_uniform(wf_random(seed, stream), i) - 1.0;
        wf_view_set(view, c.at, u + (u < 0 ? -0.05 : 0.05));
    }
}

int support_case_inputs(const struct wf_case *from, char kinds[], struct wf_shape shapes[])
{
    int n = 0;
    for (const char *p = from->in; *p;) {
        WF_BUG_ON(n == SUPPORT_MAX_IN, "too many inputs: %s", from->in);
        struct wf_shape *const s = &shapes[n];
        *s = WF_SHAPE(1, 1, 1, 1, 1);
        kinds[n++] = *p++;
        while (*p == '[' || *p == ',') {
            char *end;
            memmove(s->at, s->at + 1, (WF_AXES - 1) * sizeof *s->at);
            s->at[WF_C] = strtoll(p + 1, &end, 10);
            p = end;
        }
        WF_BUG_ON(*p && !strchr("] ", *p), "cannot be read: %s", from->in);
        p += strspn(p, "] ");
    }
    return n;
}

static struct wf_value *input_of_kind(struct wf_graph *g, char kind, int i, enum wf_dtype dtype,
                                      struct wf_shape shape)
{
    char name[16];
    (void)snprintf(name, sizeof name, "in%d", i);
    if (kind == '-')
        return NULL;
    struct wf_value *v = wf_input(g, name, kind == 't' ? WF_I32 : dtype, shape);
    if (v && (kind == 'p' || kind == 'P'))
        v->replicated = true;
    return v;
}

static struct wf_value *result_of(const struct wf_op *op, const struct support_case *c,
                                  struct wf_err *err)
{
    void *attrs = calloc(1, op->attr_bytes + 1);
    WF_BUG_ON(!attrs, "out of memory");
    struct wf_value *y = NULL;
    if (wf_attrs_parse(op, c->from->attrs, attrs, err))
        y = c->from->build ? c->from->build(c->g, c->in, attrs)
                           : wf_append(c->g, op, op->name, NULL, attrs, c->n_in, c->in);
    free(attrs);
    return y;
}

bool support_case_build(const struct wf_op *op, const struct wf_case *from, enum wf_dtype dtype,
                        struct support_case *c, struct wf_err *err)
{
    struct wf_shape shapes[SUPPORT_MAX_IN];
    *c = (struct support_case){ .from = from };
    c->n_in = support_case_inputs(from, c->kinds, shapes);
    c->g = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = dtype });
    for (int i = 0; i < c->n_in; i++) {
        const char kind = c->kinds[i];
        c->in[i] = input_of_kind(c->g, kind, i, dtype, shapes[i]);
        if (c->in[i] && (kind == 'x' || kind == 'p'))
            c->wrt[c->n_wrt++] = c->in[i];
    }
    c->y = result_of(op, c, err);
    bool ok = wf_graph_ok(c->g, err) && c->y;
    if (ok && c->n_wrt > 0) {
        c->dy = wf_input(c->g, "dy", c->y->dtype, c->y->shape);
        if (c->dy)
            c->dy->replicated = c->y->replicated;
        ok = c->dy && wf_graph_grad(c->g, c->y, c->dy, c->n_wrt, c->wrt, c->dwrt, err);
    }
    if (!ok)
        wf_graph_free(c->g);
    return ok;
}

/* What the kinds 't' and 'b' ask for: labels below `classes`. */
static void fill_labels(const struct wf_view *view, uint32_t classes, uint64_t seed,
                        uint64_t stream)
{
    uint64_t i = 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c); i++)
        wf_view_set(view, c.at, wf_random_below(wf_random(seed, stream), i, classes));
}

void support_case_fill(const struct support_case *c, const struct support_values *v, uint64_t seed)
{
    for (size_t i = 0; i < c->g->n_values; i++) {
        const struct wf_value *value = c->g->values[i];
        const struct wf_view *view = &v->views[i];
        if (value->kind == WF_TEMP)
            continue;
        support_fill_random(view, seed, i);
        if (value->kind == WF_INPUT)
            continue;
        for (struct wf_cursor p = wf_cursor(view->box); wf_cursor_next(&p);)
            wf_view_set(view, p.at, 0.5 + fabs(wf_view_at(view, p.at)));
    }
    for (int i = 0; i < c->n_in; i++) {
        const char kind = c->kinds[i];
        if (kind == 't')
            fill_labels(&v->views[c->in[i]->id], (uint32_t)c->in[0]->shape.at[WF_C], seed,
                        (uint64_t)i);
        else if (kind == 'b')
            fill_labels(&v->views[c->in[i]->id], 2, seed, (uint64_t)i);
    }
}
