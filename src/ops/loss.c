#include "ops/loss.h"

#include <inttypes.h>

const struct wf_field wf_loss_fields[] = {
    { .name = "ignore",
      .kind = WF_FIELD_INT,
      .offset = offsetof(struct wf_loss_attrs, ignore),
      .count = 1 },
    { .name = "has_ignore",
      .kind = WF_FIELD_INT,
      .offset = offsetof(struct wf_loss_attrs, has_ignore),
      .count = 1 },
    { .name = "classes",
      .kind = WF_FIELD_INT,
      .offset = offsetof(struct wf_loss_attrs, classes),
      .count = 1 },
    { .name = "smooth", .kind = WF_FIELD_REAL, .offset = offsetof(struct wf_loss_attrs, smooth) },
    { 0 },
};

void wf_loss_sum(const struct wf_view *out, int64_t k, double value)
{
    wf_view_put(out, 0, 0, 0, 0, k, wf_view_get(out, 0, 0, 0, 0, k) + value);
}

unsigned wf_loss_sums_over(const struct wf_node *node)
{
    (void)node;
    return WF_AXIS(WF_N) | WF_SPATIAL;
}

void wf_loss_set_sums(const struct wf_node *node, int64_t k)
{
    node->out[0]->shape = WF_SHAPE(1, 1, 1, 1, k);
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = true;
}

bool wf_loss_check_map(struct wf_shape logits, const struct wf_value *target, struct wf_err *err)
{
    const struct wf_shape t = target->shape;
    struct wf_shape want = logits;
    want.at[WF_C] = 1;
    if (wf_shape_equal(t, want))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "logits [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                      "] need a class map with one label per position, got [%" PRId64 ",%" PRId64
                      ",%" PRId64 ",%" PRId64 ",%" PRId64 "]: crop or resize one of them",
                      logits.at[0], logits.at[1], logits.at[2], logits.at[3], logits.at[4], t.at[0],
                      t.at[1], t.at[2], t.at[3], t.at[4]);
}

bool wf_loss_check_sums(const struct wf_value *ds, int64_t k, struct wf_err *err)
{
    if (ds && wf_shape_equal(ds->shape, WF_SHAPE(1, 1, 1, 1, k)))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "sums [1,1,1,1,%" PRId64 "] wanted, got %" PRId64 " numbers", k,
                      ds ? wf_shape_count(ds->shape) : 0);
}

void wf_loss_refuse(struct wf_graph *g, const struct wf_node *node, const char *what)
{
    wf_err_set(&g->err, WF_ERR_USAGE,
               "layer '%s': %s has no gradient by its %s: freeze what they depend on", node->name,
               node->op->name, what);
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
