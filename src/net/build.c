/* Layers to nodes: the kinds' builders in the order of the file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "models/blocks.h"
#include "net/net.h"

int64_t wf_layer_out(const struct wf_net *net, const struct wf_layer *l)
{
    return l->a.out > 0 ? l->a.out : net->classes;
}

const char *wf_layer_weights(const struct wf_layer *l)
{
    return l->weights ? l->weights : l->name;
}

/* "64 x 32 x 32": channels, then the extents that the network has. */
static const char *shape_text(struct wf_arena *arena, const struct wf_net *net,
                              const struct wf_value *v)
{
    const char *text = wf_arena_printf(arena, "%" PRId64, v->shape.at[WF_C]);
    for (int axis = WF_C - net->dims; axis < WF_C; axis++)
        text = wf_arena_printf(arena, "%s x %" PRId64, text, v->shape.at[axis]);
    return text;
}

/* Adds where, and of what. */
static void explain(struct wf_graph *g, const struct wf_net *net, const struct wf_layer *l,
                    struct wf_value *const in[])
{
    struct wf_arena arena = { 0 };
    const char *of = "";
    for (int i = 0; i < l->n_in; i++)
        of = wf_arena_printf(&arena, "%s%s'%s' (%s)", of, i ? ", " : "",
                             l->in[i] == WF_LAYER_IMAGE ? "image" : net->layers[l->in[i]].name,
                             shape_text(&arena, net, in[i]));
    (void)wf_err_wrap(&g->err, "%s: %s of %s", wf_layer_place(&arena, net, l), l->kind->name, of);
    wf_arena_release(&arena);
}

static struct wf_value *build_layer(struct wf_graph *g, const struct wf_net *net, int index,
                                    struct wf_value *const made[])
{
    const struct wf_layer *const l = &net->layers[index];
    struct wf_value **const in = wf_arena_array(&g->arena, l->n_in, struct wf_value *);
    for (int i = 0; i < l->n_in; i++)
        in[i] = made[1 + l->in[i]];
    struct wf_err ignored = { 0 };
    if (!wf_graph_ok(g, &ignored))
        return NULL;
    struct wf_value *const y =
        l->kind->build(g, net, l, in, l->like == WF_LAYER_NONE ? NULL : made[1 + l->like]);
    if (!wf_graph_ok(g, &ignored)) {
        explain(g, net, l, in);
        return NULL;
    }
    if (l->frozen)
        wf_graph_freeze(g, wf_arena_printf(&g->arena, "%s.", wf_layer_weights(l)));
    return y;
}

/* Marks the layers that so many heads are made of. */
static bool *used_layers(struct wf_arena *arena, const struct wf_net *net, int heads)
{
    bool *const used = wf_arena_array(arena, net->n_layers, bool);
    for (int i = 0; i < heads; i++)
        used[net->heads[i].layer] = true;
    for (int i = net->n_layers - 1; i >= 0; i--) {
        const struct wf_layer *const l = &net->layers[i];
        for (int k = 0; k < l->n_in && used[i]; k++)
            if (l->in[k] >= 0)
                used[l->in[k]] = true;
        if (used[i] && l->like >= 0)
            used[l->like] = true;
    }
    return used;
}

/* The results of all layers that are wanted, behind the image; NULL on failure. */
static struct wf_value **build_layers(struct wf_graph *g, const struct wf_net *net,
                                      struct wf_value *image, int heads)
{
    const bool *const used = used_layers(&g->arena, net, heads);
    const struct wf_model_config c = { .dims = net->dims,
                                       .in = net->in || !image ? net->in : image->shape.at[WF_C] };
    struct wf_value **const made = wf_arena_array(&g->arena, net->n_layers + 1, struct wf_value *);
    made[0] = wf_block_image(g, &c, image);
    if (!made[0])
        return NULL;
    for (int i = 0; i < net->n_layers; i++) {
        if (!used[i])
            continue;
        made[1 + i] = build_layer(g, net, i, made);
        if (!made[1 + i])
            return NULL;
    }
    return made;
}

struct wf_value *wf_net_build(struct wf_graph *g, const struct wf_net *net, struct wf_value *image,
                              struct wf_value *heads[])
{
    struct wf_value *const *const made = build_layers(g, net, image, heads ? net->n_heads : 1);
    for (int i = 0; i < net->n_heads && heads && made; i++)
        heads[i] = made[1 + net->heads[i].layer];
    return made ? made[1 + net->heads[0].layer] : NULL;
}

bool wf_net_shapes(const struct wf_net *net, struct wf_shape image, struct wf_shape shapes[],
                   struct wf_err *err)
{
    struct wf_graph *const g = wf_graph_new(NULL);
    struct wf_net one = *net;
    one.classes = net->classes ? net->classes : 2;
    struct wf_value *const *const made =
        build_layers(g, &one, wf_input(g, "image", WF_F32, image), net->n_heads);
    const bool ok = wf_graph_ok(g, err);
    for (int i = 0; i < net->n_layers && ok; i++)
        shapes[i] = made[1 + i] ? made[1 + i]->shape : (struct wf_shape){ 0 };
    wf_graph_free(g);
    return ok;
}
