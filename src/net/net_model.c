#include "net/net_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

bool wf_net_is_path(const char *name)
{
    static const char *const ends[] = { ".yaml", ".yml", ".json" };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return strchr(name, '/') != NULL;
}

/* --- as a model --- */

static const struct wf_net_model *of(const struct wf_model_config *c)
{
    return c->own;
}

/* With what the job says where the file does not. */
static struct wf_net settled(const struct wf_model_config *c)
{
    struct wf_net net = *of(c)->net;
    net.classes = c->classes;
    net.in = c->in;
    return net;
}

/* Of a network with a prediction per pixel: are there as many? */
static bool check_extents(struct wf_graph *g, const struct wf_net *net,
                          const struct wf_value *image, const struct wf_value *logits)
{
    struct wf_arena arena = { 0 };
    bool same = true;
    for (int axis = WF_D; axis < WF_C; axis++)
        same = same && image->shape.at[axis] == logits->shape.at[axis];
    if (!same) {
        const struct wf_layer *const l = &net->layers[net->heads[0].layer];
        const int64_t *const is = &logits->shape.at[WF_D], *const was = &image->shape.at[WF_D];
        (void)wf_err_set(&g->err, WF_ERR_USAGE,
                         "%s: the prediction is %" PRId64 " x %" PRId64 " x %" PRId64
                         ", the image %" PRId64 " x %" PRId64 " x %" PRId64
                         " (depth, height, width): add an upsample or fit with 'like: image'",
                         wf_layer_place(&arena, net, l), is[0], is[1], is[2], was[0], was[1],
                         was[2]);
    }
    wf_arena_release(&arena);
    return same;
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    const struct wf_net net = settled(c);
    struct wf_value *const y = wf_net_build(g, &net, x, NULL);
    return y && (!of(c)->model.dense || check_extents(g, &net, x, y)) ? y : NULL;
}

const struct wf_net *wf_net_of_model(const struct wf_model *m, const struct wf_model_config *c)
{
    return m->build == build ? of(c)->net : NULL;
}

static int build_heads(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                       struct wf_model_head **heads)
{
    const struct wf_net net = settled(c);
    struct wf_value **const made = wf_arena_array(&g->arena, net.n_heads, struct wf_value *);
    *heads = wf_arena_array(&g->arena, net.n_heads, struct wf_model_head);
    const struct wf_value *const y = wf_net_build(g, &net, x, made);
    if (!y || (of(c)->model.dense && !check_extents(g, &net, x, y)))
        return 0;
    for (int i = 0; i < net.n_heads; i++) {
        (*heads)[i] = (struct wf_model_head){ .logits = made[i],
                                              .weight = net.heads[i].weight,
                                              .name = net.layers[net.heads[i].layer].name };
        if (made[i]->shape.at[WF_C] != y->shape.at[WF_C]) {
            (void)wf_err_set(&g->err, WF_ERR_USAGE,
                             "network '%s': head '%s' has %" PRId64 " channels, the first %" PRId64
                             ": they share a target",
                             net.name, (*heads)[i].name, made[i]->shape.at[WF_C],
                             y->shape.at[WF_C]);
            return 0;
        }
    }
    return net.n_heads;
}

static bool check(const struct wf_model *m, const struct wf_model_config *c, struct wf_err *err)
{
    const struct wf_net_model *const own = of(c);
    const struct wf_net *const net = own->net;
    if (net->in && c->in != net->in)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s' takes %" PRId64 " channels ('in' of its file), and there "
                          "are %" PRId64 ": change it, or model.in",
                          m->name, net->in, c->in);
    if (own->classes && c->classes != own->classes)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s' predicts %" PRId64 " classes (layer '%s'), and there are "
                          "%" PRId64 ": give that layer 'out: classes', or set model.classes",
                          m->name, own->classes, net->layers[net->heads[0].layer].name, c->classes);
    return true;
}

static void tiles(const struct wf_model_config *c, int64_t at[3])
{
    const struct wf_net *const net = of(c)->net;
    for (int i = 0; i < net->n_layers; i++) {
        const struct wf_layer *const l = &net->layers[i];
        for (int k = 0; k < 3 && strcmp(l->kind->name, "tile") == 0; k++)
            at[k] = wf_max(l->a.tiles[k], 1);
        if (strcmp(l->kind->name, "tile") == 0)
            return;
    }
}

/* --- the trial --- */

struct trial {
    int64_t channels;
    bool is_vector;
};

/* On an image of that side; 0: of the network's `size`. */
static bool try_build(const struct wf_net *net, int64_t side, int64_t classes, struct trial *trial,
                      struct wf_err *err)
{
    struct wf_net one = *net;
    one.classes = classes;
    one.in = net->in ? net->in : 3;
    struct wf_shape shape = WF_SHAPE(1, 1, 1, 1, one.in);
    for (int i = 0; i < net->dims; i++)
        shape.at[WF_W - i] = side ? side : net->size[2 - i];
    struct wf_graph *const g = wf_graph_new(NULL);
    const struct wf_value *const y =
        wf_net_build(g, &one, wf_input(g, "image", WF_F32, shape), NULL);
    const bool ok = wf_graph_ok(g, err);
    if (ok)
        *trial =
            (struct trial){ .channels = y->shape.at[WF_C],
                            .is_vector =
                                y->shape.at[WF_D] * y->shape.at[WF_H] * y->shape.at[WF_W] == 1 };
    wf_graph_free(g);
    return ok;
}

/* On an image of its `size`, or on larger and larger ones: a deep network refuses a small one. */
static bool look(struct wf_net_model *m, struct wf_err *err)
{
    static const int64_t sides[] = { 0, 64, 224, 256, 512, 1024 }; /* 0: its own `size` */
    struct trial a = { 0 }, b = { 0 };
    for (size_t i = m->net->size[2] ? 0 : 1; i < sizeof sides / sizeof *sides; i++) {
        *err = (struct wf_err){ 0 };
        if (!try_build(m->net, sides[i], 2, &a, err) || !try_build(m->net, sides[i], 3, &b, err))
            continue;
        if (a.channels != b.channels && (a.channels != 2 || b.channels != 3))
            return wf_err_set(err, WF_ERR_USAGE,
                              "network '%s': with 2 classes layer '%s' makes %" PRId64
                              " channels, with 3 it makes %" PRId64,
                              m->net->name, m->net->layers[m->net->heads[0].layer].name, a.channels,
                              b.channels);
        m->classes = a.channels == b.channels ? a.channels : 0;
        m->model.dense = !a.is_vector;
        return true;
    }
    return false;
}

struct wf_net_model *wf_net_model_new(struct wf_net *net, struct wf_err *err)
{
    if (!net)
        return NULL;
    struct wf_net_model *const m = wf_take_zeroed(1, sizeof *m);
    m->net = net;
    if (!look(m, err)) {
        wf_net_model_free(m);
        return NULL;
    }
    const bool dense = m->model.dense;
    m->text = wf_net_print(&net->arena, net);
    bool has_tiles = false;
    for (int i = 0; i < net->n_layers; i++)
        has_tiles |= strcmp(net->layers[i].kind->name, "tile") == 0;
    m->model = (struct wf_model){
        .name = net->name,
        .what = net->path ? net->path : "a network file",
        .defaults = { .dims = net->dims,
                      .in = net->in ? net->in : 3,
                      .classes = m->classes     ? m->classes
                                 : net->classes ? net->classes
                                                : 2,
                      .own = m },
        .dims_min = net->dims,
        .dims_max = net->dims,
        .dense = dense,
        .build = build,
        .build_heads = net->n_heads > 1 ? build_heads : NULL,
        .check = check,
        .tiles = has_tiles ? tiles : NULL,
    };
    return m;
}

void wf_net_model_free(struct wf_net_model *m)
{
    if (!m)
        return;
    wf_net_free(m->net);
    free(m);
}
