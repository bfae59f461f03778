#include "models/sparse_blocks.h"

struct wf_sparse_conv wf_sparse_layer_conv(const struct wf_sparse *x,
                                           const struct wf_sparse_layer *l)
{
    struct wf_sparse_conv c = { .name = l->name, .out = l->out };
    for (int d = 0; d < x->dims; d++) {
        c.kernel[d] = l->kernel;
        c.stride[d] = l->stride;
    }
    return c;
}

static struct wf_value *norm(struct wf_graph *g, struct wf_value *x, const char *name,
                             enum wf_act act)
{
    return wf_batch_norm(g, x, &(struct wf_norm){ .name = name, .act = act });
}

struct wf_sparse wf_sparse_layer(struct wf_graph *g, struct wf_sparse x,
                                 const struct wf_sparse *like, const struct wf_sparse_layer *l)
{
    struct wf_sparse_conv c = wf_sparse_layer_conv(&x, l);
    c.name = wf_arena_printf(&g->arena, "%s.conv", l->name);
    struct wf_sparse y =
        like ? wf_sparse_conv_transpose(g, x, *like, &c) : wf_sparse_conv(g, x, &c);
    y.features = norm(g, y.features, wf_arena_printf(&g->arena, "%s.norm", l->name), WF_RELU);
    return y;
}

struct wf_sparse wf_sparse_residual(struct wf_graph *g, struct wf_sparse x,
                                    const struct wf_sparse_layer *l)
{
    struct wf_sparse y = x, skip = x;
    if (!x.features)
        return x;
    for (int i = 1; i <= 2; i++) {
        const struct wf_sparse_conv c = wf_sparse_layer_conv(
            &x, &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "%s.conv%d", l->name, i),
                                           l->out, 3, i == 1 ? l->stride : 1 });
        y = wf_sparse_conv(g, y, &c);
        y.features = norm(g, y.features, wf_arena_printf(&g->arena, "%s.norm%d", l->name, i),
                          i == 1 ? WF_RELU : WF_ACT_NONE);
    }
    if (x.features->shape.at[WF_C] != l->out || y.coords != x.coords) {
        const struct wf_sparse_conv c = wf_sparse_layer_conv(
            &x, &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "%s.skip.conv", l->name),
                                           l->out, 1, l->stride });
        skip = wf_sparse_conv(g, x, &c);
        skip.features = norm(g, skip.features, wf_arena_printf(&g->arena, "%s.skip.norm", l->name),
                             WF_ACT_NONE);
    }
    if (y.features && skip.features)
        y.features = wf_activation(g, wf_add(g, y.features, skip.features),
                                   wf_arena_printf(&g->arena, "%s.relu", l->name), WF_RELU, 0);
    return y;
}
