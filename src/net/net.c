#include "net/net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

const struct wf_layer_kind *wf_layer_kind(const char *name)
{
    for (const struct wf_layer_kind *const *k = wf_layer_kinds; *k; k++)
        if (strcmp((*k)->name, name) == 0)
            return *k;
    return NULL;
}

struct wf_net *wf_net_new(const char *name, int dims, int64_t in)
{
    struct wf_net *const net = wf_take(sizeof *net);
    *net = (struct wf_net){ .dims = dims, .in = in };
    net->name = wf_arena_copy(&net->arena, name);
    return net;
}

void wf_net_free(struct wf_net *net)
{
    if (!net)
        return;
    free(net->layers);
    free(net->heads);
    wf_arena_release(&net->arena);
    free(net);
}

int wf_net_add(struct wf_net *net, const struct wf_layer *layer)
{
    WF_GROW(net->layers, net->room_layers, (size_t)net->n_layers);
    struct wf_layer *const l = &net->layers[net->n_layers];
    *l = *layer;
    l->name = wf_arena_copy(&net->arena, layer->name);
    l->weights = layer->weights ? wf_arena_copy(&net->arena, layer->weights) : NULL;
    int *const in = wf_arena_array(&net->arena, layer->n_in, int);
    for (int i = 0; i < layer->n_in; i++)
        in[i] = layer->in[i];
    l->in = in;
    return net->n_layers++;
}

void wf_net_add_head(struct wf_net *net, int layer, double weight)
{
    WF_GROW(net->heads, net->room_heads, (size_t)net->n_heads);
    net->heads[net->n_heads++] = (struct wf_net_head){ .layer = layer, .weight = weight };
}

int wf_net_find(const struct wf_net *net, const char *name)
{
    for (int i = 0; i < net->n_layers; i++)
        if (strcmp(net->layers[i].name, name) == 0)
            return i;
    return WF_LAYER_NONE;
}

const char *wf_layer_place(struct wf_arena *arena, const struct wf_net *net,
                           const struct wf_layer *l)
{
    if (net->path && l->line)
        return wf_arena_printf(arena, "%s:%d:%d: layer '%s'", net->path, l->line, l->column,
                               l->name);
    return wf_arena_printf(arena, "network '%s', layer '%s'", net->name, l->name);
}

/* --- the check --- */

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

static bool refuse(const struct wf_net *net, const struct wf_layer *l, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    (void)wf_err_wrap(err, "%s", wf_layer_place(&arena, net, l));
    wf_arena_release(&arena);
    return false;
}

static bool check_name(const struct wf_net *net, int index, struct wf_err *err)
{
    const char *const name = net->layers[index].name;
    if (!*name || name[strspn(name, WORD "/")])
        return wf_err_set(err, WF_ERR_USAGE,
                          "a name has letters, digits and '_', '.', '-', '/' only");
    if (strcmp(name, "image") == 0)
        return wf_err_set(err, WF_ERR_USAGE, "'image' is the network's input: choose another name");
    const int first = wf_net_find(net, name);
    if (first == index)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      net->layers[first].line ? "line %d has a layer of that name: rename one"
                                              : "layer #%d has that name, too: rename one",
                      net->layers[first].line ? net->layers[first].line : first);
}

static bool check_inputs(const struct wf_net *net, int index, struct wf_err *err)
{
    const struct wf_layer *const l = &net->layers[index];
    const int want = l->kind->n_in ? l->kind->n_in : 1, least = want < 0 ? -want : want;
    if (l->n_in < least || (want > 0 && l->n_in > want))
        return wf_err_set(err, WF_ERR_USAGE, "%s takes %d input%s%s, got %d", l->kind->name, least,
                          least == 1 ? "" : "s", want < 0 ? " or more" : "", l->n_in);
    for (int i = 0; i < l->n_in; i++)
        if (l->in[i] < WF_LAYER_IMAGE || l->in[i] >= index)
            return wf_err_set(err, WF_ERR_USAGE, "input #%d is no earlier layer", i);
    if (l->like == WF_LAYER_NONE)
        return true;
    if (!l->kind->takes_like)
        return wf_err_set(err, WF_ERR_USAGE, "%s has no 'like': leave it out", l->kind->name);
    if (l->like < WF_LAYER_IMAGE || l->like >= index)
        return wf_err_set(err, WF_ERR_USAGE, "'like' is no earlier layer");
    return true;
}

static bool is_head(const struct wf_net *net, int index)
{
    for (int i = 0; i < net->n_heads; i++)
        if (net->heads[i].layer == index)
            return true;
    return false;
}

static bool check_attributes(const struct wf_net *net, int index, struct wf_err *err)
{
    const struct wf_layer *const l = &net->layers[index];
    if (wf_layer_word_in(l->kind->needs, "out") && l->a.out == 0 && !is_head(net, index))
        return wf_err_set(err, WF_ERR_USAGE,
                          "'out' is missing: give the channels, or 'out: classes'");
    if (l->weights && !l->kind->weights)
        return wf_err_set(err, WF_ERR_USAGE, "%s has no weights to share: leave 'weights' out",
                          l->kind->name);
    for (int i = 0; i < 3 - net->dims; i++)
        if (l->a.kernel[i] > 1 || l->a.stride[i] > 1 || l->a.dilation[i] > 1 || l->a.pad_lo[i] ||
            l->a.pad_hi[i] || l->a.output_pad[i])
            return wf_err_set(err, WF_ERR_USAGE, "it has extents along %c, the network has not",
                              "DHW"[i]);
    return true;
}

bool wf_net_check(const struct wf_net *net, struct wf_err *err)
{
    const char *const path = net->path ? net->path : net->name;
    if (net->dims < 1 || net->dims > 3)
        return wf_err_set(err, WF_ERR_USAGE, "%s: dims is %d, it must be 1, 2 or 3", path,
                          net->dims);
    if (net->in < 0)
        return wf_err_set(err, WF_ERR_USAGE, "%s: in is %" PRId64 ", it must be at least 1", path,
                          net->in);
    if (!*net->name || net->name[strspn(net->name, WORD)])
        return wf_err_set(
            err, WF_ERR_USAGE,
            "%s: the name '%s' is used for folders: letters, digits and '_', '.', '-' "
            "only",
            path, net->name);
    if (net->n_layers == 0)
        return wf_err_set(err, WF_ERR_USAGE, "%s: it has no layers", path);
    if (net->n_heads == 0)
        return wf_err_set(err, WF_ERR_USAGE, "%s: it has no heads", path);
    for (int i = 0; i < net->n_layers; i++) {
        WF_BUG_ON(!net->layers[i].kind, "layer '%s' has no kind", net->layers[i].name);
        if (!check_name(net, i, err) || !check_inputs(net, i, err) ||
            !check_attributes(net, i, err))
            return refuse(net, &net->layers[i], err);
    }
    for (int i = 0; i < net->n_heads; i++)
        if (net->heads[i].layer < 0 || net->heads[i].layer >= net->n_layers)
            return wf_err_set(err, WF_ERR_USAGE, "%s: head #%d is no layer", path, i);
    return true;
}
