#include "ops/loss.h"

#include <inttypes.h>
#include <stdio.h>

const struct wf_field wf_loss_fields[] = {
    WF_INT(wf_loss_attrs, ignore),
    WF_INT(wf_loss_attrs, has_ignore),
    WF_INT(wf_loss_attrs, classes),
    WF_REAL(wf_loss_attrs, smooth),
    { 0 },
};

void wf_loss_sum(const struct wf_view *out, int64_t k, double value)
{
    wf_view_put(out, 0, 0, 0, 0, k, wf_view_get(out, 0, 0, 0, 0, k) + value);
}

void wf_loss_set_sums(const struct wf_node *node, int64_t k)
{
    node->out[0]->shape = WF_SHAPE(1, 1, 1, 1, k);
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = true;
}

struct shape_text {
    char at[128];
};

static struct shape_text text_of(struct wf_shape s)
{
    struct shape_text t;
    (void)snprintf(t.at, sizeof t.at,
                   "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", s.at[0],
                   s.at[1], s.at[2], s.at[3], s.at[4]);
    return t;
}

bool wf_loss_check_map(struct wf_shape logits, const struct wf_value *target, struct wf_err *err)
{
    struct wf_shape want = logits;
    want.at[WF_C] = 1;
    return wf_shape_equal(target->shape, want) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "logits %s need a class map with one label per position, got %s: crop or "
                      "resize one of them",
                      text_of(logits).at, text_of(target->shape).at);
}

static bool check_pair(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape x = node->in[0]->shape, target = node->in[1]->shape;
    return wf_shape_equal(x, target) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "%s and target %s must have one shape: a class map fits a network of one "
                      "class",
                      text_of(x).at, text_of(target).at);
}

bool wf_loss_pair_infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 2);
    return check_pair(node, err);
}

bool wf_loss_pair_grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return check_pair(node, err) && wf_loss_check_sums(node->in[2], 2, err);
}

bool wf_loss_check_sums(const struct wf_value *ds, int64_t k, struct wf_err *err)
{
    if (ds && wf_shape_equal(ds->shape, WF_SHAPE(1, 1, 1, 1, k)))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "sums [1,1,1,1,%" PRId64 "] wanted, got %" PRId64 " numbers", k,
                      ds ? wf_shape_count(ds->shape) : 0);
}

void wf_loss_grad(struct wf_graph *g, const struct wf_op *op, const struct wf_node *node,
                  struct wf_value *const dy[], const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *in[4];
    WF_BUG_ON(node->n_in > 3, "%s", node->op->name);
    for (int i = 0; i < node->n_in; i++) {
        in[i] = node->in[i];
        if (i > 0 && wanted[i])
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "layer '%s': %s has no gradient by its %s: freeze what they depend on",
                       node->name, node->op->name, i == 1 ? "target" : "class weights");
    }
    in[node->n_in] = dy[0];
    if (wanted[0])
        dx[0] = wf_append(g, op, node->name, NULL, node->attrs, node->n_in + 1, in);
}

struct wf_loss_attrs wf_loss_attrs_of(const struct wf_loss *l, int64_t classes)
{
    return (struct wf_loss_attrs){
        .ignore = l->ignore,
        .has_ignore = l->has_ignore,
        .classes = classes,
        .smooth = l->smooth > 0 ? l->smooth : 1.0,
    };
}

struct wf_value *wf_loss_finish(struct wf_graph *g, struct wf_value *loss,
                                const struct wf_value *of)
{
    if (!loss)
        return NULL;
    const char *const name = loss->name;
    struct wf_value *const sums = loss->producer->in[0];
    sums->name = wf_arena_printf(&g->arena, "%s.sums", name);
    struct wf_value *const y = wf_cast(g, loss, of->dtype == WF_F64 ? WF_F64 : WF_F32);
    if (y && y != loss) {
        y->name = name;
        loss->name = wf_arena_printf(&g->arena, "%s.f64", name);
    }
    return y;
}

struct wf_value *wf_loss_add(struct wf_graph *g, const struct wf_op *op, const struct wf_loss *l,
                             int n_in, struct wf_value *const in[])
{
    if (!in[0] || !in[1])
        return NULL;
    const struct wf_loss_attrs a = wf_loss_attrs_of(l, in[0]->shape.at[WF_C]);
    struct wf_value *const sums = wf_append(g, op, l->name, NULL, &a, n_in, in);
    if (l->sums)
        *l->sums = sums;
    return wf_loss_mean(g, sums, l->name, in[0]);
}
