/*
 * Batch, instance and group norm as layers: moments -> stats -> norm, or, for batch norm outside
 * training, running statistics -> norm.
 */
#include "ops/build.h"
#include "ops/norm.h"
#include "ops/spatial.h"

static struct wf_value *apply(struct wf_graph *g, const struct wf_norm_layer *l,
                              struct wf_value *stats)
{
    struct wf_value *const in[] = { l->x, stats, l->w, l->b };
    return wf_append(g, &wf_op_norm, l->name, NULL, &l->attrs, 4, in);
}

struct wf_value *wf_norm_gather(struct wf_graph *g, const struct wf_norm_attrs *a, const char *name,
                                struct wf_value *x, struct wf_value *sums)
{
    if (a->period && sums)
        return wf_append(g, &wf_op_sum_rows, name, "sum_rows",
                         &(struct wf_sum_rows_attrs){ a->period }, 1, &sums);
    if (a->local && sums)
        return wf_append(g, &wf_op_local_sums, name, "own", NULL, 2,
                         (struct wf_value *[]){ sums, x });
    return sums;
}

struct wf_value *wf_norm_add(struct wf_graph *g, struct wf_norm_layer *l)
{
    struct wf_norm_attrs *a = &l->attrs;
    const struct wf_shape x = l->x->shape;
    struct wf_err err = { 0 };
    if (!wf_norm_check_groups(a, x.at[WF_C], &err)) {
        wf_err_set(&g->err, err.code, "layer '%s': %s", l->name, err.text);
        return NULL;
    }
    a->count = wf_shape_count(x) / a->groups /
               (a->period       ? a->period
                : a->per_sample ? x.at[WF_N]
                                : 1);
    a->wide = l->x->dtype == WF_F64;
    if (l->x->set) {
        if (a->per_sample || a->local) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "layer '%s': of a sparse tensor there are statistics over all points only: "
                       "use batch norm",
                       l->name);
            return NULL;
        }
        a->counted = 1;
    } else if (a->count < 2) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': statistics over a single value normalise everything to zero: take "
                   "a larger %simage",
                   l->name, a->per_sample ? "" : "batch or ");
        return NULL;
    }
    l->m = wf_append(g, &wf_op_moments, l->name, "moments", a, 1, &l->x);
    struct wf_value *const sums = wf_norm_gather(g, a, l->name, l->x, l->m);
    struct wf_value *s = wf_append(g, &wf_op_stats, l->name, "stats", a, 1, &sums);
    return apply(g, l, s);
}

/* The weight, bias or statistics `suffix` of a layer, one element per channel. */
static struct wf_param_spec per_channel(struct wf_graph *g, const struct wf_norm_layer *l,
                                        const char *suffix, enum wf_init init)
{
    return (struct wf_param_spec){
        .name = wf_arena_printf(&g->arena, "%s.%s", l->name, suffix),
        .shape = WF_SHAPE(1, 1, 1, 1, l->x->shape.at[WF_C]),
        .border_dims = -1,
        .init = init,
    };
}

static bool can_fuse(enum wf_act act)
{
    return act == WF_ACT_NONE || act == WF_RELU || act == WF_LEAKY_RELU;
}

struct wf_norm_layer wf_norm_layer(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n)
{
    struct wf_norm_layer l = { .name = n->name ? n->name : "norm", .x = x };
    l.attrs = (struct wf_norm_attrs){
        .groups = x->shape.at[WF_C],
        .act = can_fuse(n->act) ? n->act : WF_ACT_NONE,
        .slope = n->slope,
        .eps = n->eps > 0 ? n->eps : 1e-5,
        .momentum = n->momentum > 0 ? n->momentum : 0.1,
    };
    if (!n->plain) {
        const struct wf_param_spec weight = per_channel(g, &l, "weight", WF_INIT_ONE);
        const struct wf_param_spec bias = per_channel(g, &l, "bias", WF_INIT_ZERO);
        l.w = wf_param(g, &weight);
        l.b = wf_param(g, &bias);
    }
    return l;
}

/* The activation as a node of its own, where norm does not have it. */
static struct wf_value *activate(struct wf_graph *g, struct wf_value *y, const struct wf_norm *n)
{
    if (can_fuse(n->act) || !y)
        return y;
    return wf_activation(g, y, wf_arena_printf(&g->arena, "%s.act", y->name), n->act, n->slope);
}

/* The moments of everything, for the running statistics; leaves the layer's attributes as theirs. */
static struct wf_value *sums_over_all(struct wf_graph *g, struct wf_norm_layer *l)
{
    struct wf_norm_attrs *a = &l->attrs;
    struct wf_value *all = l->m;
    if (a->period)
        all = wf_append(g, &wf_op_channel_sum, l->name, "all", NULL, 1, &l->m);
    a->per_sample = a->period = 0;
    a->count = wf_shape_count(l->x->shape) / a->groups;
    if (a->local) {
        a->local = 0;
        all = wf_append(g, &wf_op_moments, l->name, "all", a, 1, &l->x);
    }
    return all;
}

struct wf_value *wf_batch_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n)
{
    if (!x)
        return NULL;
    struct wf_norm_layer l = wf_norm_layer(g, x, n);
    const char *const of = n->domain > 0 ? wf_arena_printf(&g->arena, "domain%d.", n->domain) : "";
    const struct wf_param_spec
        mean_spec =
            per_channel(g, &l, wf_arena_printf(&g->arena, "%srunning_mean", of), WF_INIT_ZERO),
        var_spec = per_channel(g, &l, wf_arena_printf(&g->arena, "%srunning_var", of), WF_INIT_ONE);
    struct wf_value *mean = wf_state(g, &mean_spec), *var = wf_state(g, &var_spec);
    if (!g->options.training || n->frozen) {
        struct wf_value *const running[] = { mean, var };
        l.attrs.fixed = 1;
        struct wf_value *s =
            wf_append(g, &wf_op_running_stats, l.name, "stats", &l.attrs, 2, running);
        return activate(g, apply(g, &l, s), n);
    }
    l.attrs.per_sample = n->tiles > 0;
    l.attrs.period = n->tiles;
    l.attrs.local = n->per_rank;
    struct wf_value *y = wf_norm_add(g, &l);
    struct wf_value *const sums = sums_over_all(g, &l);
    /* Shared by two uses, the layer takes both into its running statistics, one after the other. */
    struct wf_value *const in[] = { sums, wf_graph_next_state(g, mean),
                                    wf_graph_next_state(g, var) };
    const char *update = wf_arena_printf(&g->arena, "%s.running", l.name);
    const struct wf_node *next = wf_node_add(g, &wf_op_running_update, update, &l.attrs, 3, in);
    if (next) {
        wf_graph_update_state(g, mean, next->out[0]);
        wf_graph_update_state(g, var, next->out[1]);
    }
    return activate(g, y, n);
}

struct wf_value *wf_group_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n)
{
    if (!x)
        return NULL;
    struct wf_norm_layer l = wf_norm_layer(g, x, n);
    l.attrs.per_sample = 1;
    l.attrs.groups = n->groups;
    return activate(g, wf_norm_add(g, &l), n);
}

struct wf_value *wf_instance_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n)
{
    if (!x)
        return NULL;
    struct wf_norm one = *n;
    one.groups = x->shape.at[WF_C];
    return wf_group_norm(g, x, &one);
}
