/* From the layers that rules made to a network: those that are used, with names and weights. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/inside.h"

static const char *const norms[] = { "batch_norm", "instance_norm", "group_norm", "layer_norm" };

static bool is_norm(const struct wf_onnx_import *im, int layer)
{
    bool yes = false;
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        yes |= wf_onnx_is(im, layer, norms[i]);
    return yes;
}

static bool is_product(const struct wf_onnx_import *im, int layer)
{
    return wf_onnx_is(im, layer, "conv") || wf_onnx_is(im, layer, "conv_transpose") ||
           wf_onnx_is(im, layer, "linear");
}

/* --- which are used --- */

/* Layers that living ones read, last to first: a reader comes behind what it reads. */
static void spread(struct wf_onnx_import *im)
{
    for (int i = (int)im->n_layers - 1; i >= 0; i--)
        for (int k = 0; im->layers[i].alive && k < im->layers[i].n_in; k++)
            if (im->layers[i].in[k] >= 0)
                im->layers[im->layers[i].in[k]].alive = true;
}

static bool same_extents(const struct wf_onnx_import *im, int a, int b)
{
    bool same = true;
    for (int axis = WF_ONNX_D; same && axis < WF_ONNX_AXES; axis++)
        same = wf_onnx_extent_equal(im, wf_onnx_shape(im, a)[axis], wf_onnx_shape(im, b)[axis]);
    return same;
}

/* `like` a layer that is not used otherwise: an earlier one of the same extents that is, where there is one. */
static void resolve_like(struct wf_onnx_import *im, int layer)
{
    struct wf_onnx_layer *const l = &im->layers[layer];
    if (!l->alive || l->like < 0 || im->layers[l->like].alive)
        return;
    for (int i = layer - 1; i >= WF_LAYER_IMAGE; i--)
        if ((i == WF_LAYER_IMAGE || im->layers[i].alive) && same_extents(im, i, l->like)) {
            l->like = i;
            return;
        }
    im->layers[l->like].alive = true;
    spread(im);
}

static void find_used(struct wf_onnx_import *im, int n_heads, const int heads[])
{
    for (int i = 0; i < n_heads; i++)
        im->layers[heads[i]].alive = true;
    spread(im);
    for (int i = (int)im->n_layers - 1; i >= 0; i--)
        resolve_like(im, i);
    for (size_t i = 0; i < im->n_layers; i++)
        for (int k = 0; im->layers[i].alive && k < im->layers[i].n_in; k++)
            if (im->layers[i].in[k] >= 0)
                im->layers[im->layers[i].in[k]].readers++;
    for (int i = 0; i < n_heads; i++)
        im->layers[heads[i]].readers++;
}

/* --- joining --- */

static int current(const struct wf_onnx_import *im, int layer)
{
    while (layer >= 0 && im->layers[layer].replaced != WF_LAYER_NONE)
        layer = im->layers[layer].replaced;
    return layer;
}

/* An activation behind a norm that nobody else reads is an attribute of it. */
static void join_activations(struct wf_onnx_import *im)
{
    for (int i = 0; i < (int)im->n_layers; i++) {
        struct wf_onnx_layer *const l = &im->layers[i];
        const bool leaky = wf_onnx_is(im, i, "leaky_relu");
        if (!l->alive || (!leaky && !wf_onnx_is(im, i, "relu")))
            continue;
        const int n = l->in[0];
        if (!is_norm(im, n) || im->layers[n].readers != 1 || im->layers[n].a.act != WF_ACT_NONE)
            continue;
        im->layers[n].a.act = leaky ? WF_LEAKY_RELU : WF_RELU;
        im->layers[n].a.slope = leaky ? l->a.slope : 0;
        im->layers[n].readers = l->readers;
        l->alive = false;
        l->replaced = n;
    }
}

/* A padding with zeros in front of a convolution is the convolution's, whoever else reads it. */
static void join_pads(struct wf_onnx_import *im)
{
    for (int i = 0; i < (int)im->n_layers; i++) {
        struct wf_onnx_layer *const l = &im->layers[i];
        const int n = l->alive && wf_onnx_is(im, i, "conv") ? l->in[0] : WF_LAYER_NONE;
        if (!wf_onnx_is(im, n, "pad") || im->layers[n].a.pad_mode != WF_PAD_ZERO)
            continue;
        struct wf_onnx_layer *const pad = &im->layers[n];
        bool crops = false;
        for (int k = 0; k < 3; k++)
            crops |= pad->a.pad_lo[k] < 0 || pad->a.pad_hi[k] < 0;
        if (crops)
            continue;
        for (int k = 0; k < 3; k++) {
            l->a.pad_lo[k] += pad->a.pad_lo[k];
            l->a.pad_hi[k] += pad->a.pad_hi[k];
        }
        l->in[0] = pad->in[0];
        if (pad->in[0] >= 0)
            im->layers[pad->in[0]].readers++;
        pad->alive = --pad->readers > 0;
        if (!pad->alive && pad->in[0] >= 0)
            im->layers[pad->in[0]].readers--;
    }
}

/* Norms have weight and bias or neither; what only one of them was given for is completed. */
static bool complete_norms(struct wf_onnx_import *im, struct wf_err *err)
{
    for (int i = 0; i < (int)im->n_layers; i++) {
        struct wf_onnx_layer *const l = &im->layers[i];
        if (!l->alive || !is_norm(im, i) || l->n_weights > 1)
            continue;
        l->a.plain = l->n_weights == 0;
        if (l->a.plain)
            continue;
        const bool weight = strcmp(l->weights[0].part, "weight") == 0;
        struct wf_onnx_constant *const c =
            wf_onnx_constant_fill(im, "", l->weights[0].constant->count, weight ? 0.0F : 1.0F, err);
        if (!c)
            return false;
        wf_onnx_note(im, "norms without a %s get one, of %s, which is trained",
                     weight ? "bias" : "weight", weight ? "zeros" : "ones");
        wf_onnx_weight(im, i, weight ? "bias" : "weight", c);
    }
    return true;
}

/* What is the default is 0, so that it is not written. */
static void tidy_attrs(struct wf_onnx_import *im)
{
    for (int i = 0; i < (int)im->n_layers; i++) {
        struct wf_layer_attrs *const a = &im->layers[i].a;
        const bool pools = wf_onnx_is(im, i, "max_pool") || wf_onnx_is(im, i, "avg_pool");
        bool plain_stride = true, plain_dilation = true;
        for (int k = 0; k < 3; k++) {
            plain_stride &= a->stride[k] == (pools ? a->kernel[k] : 1);
            plain_dilation &= a->dilation[k] == 1;
        }
        if (plain_stride)
            memset(a->stride, 0, sizeof a->stride);
        if (plain_dilation)
            memset(a->dilation, 0, sizeof a->dilation);
        if (is_product(im, i) && a->groups == 1)
            a->groups = 0;
    }
}

/* --- names --- */

/* "/encoder/layer1/layer1.0/conv1/Conv" as "encoder.layer1.0.conv1"; "node_conv2d_3" as "conv2d_3". */
static const char *node_path(struct wf_onnx_import *im, const struct wf_onnx_layer *l)
{
    const char *from = l->node->name ? l->node->name : "";
    if (strncmp(from, "node_", 5) == 0)
        from += 5;
    char *const text = wf_arena_copy(&im->arena, from);
    char *path = wf_arena_copy(&im->arena, "");
    const char *before = "";
    const bool scoped = strchr(text, '/') != NULL;
    char *rest = NULL;
    for (char *part = strtok_r(text, "/", &rest); part;) {
        char *const next = strtok_r(NULL, "/", &rest);
        if (!next && scoped)
            break; /* the operator */
        const size_t n = strlen(before);
        if (n && strncmp(part, before, n) == 0 && part[n] == '.')
            path[strlen(path) - n - (strlen(path) > n)] = 0; /* this part repeats it */
        path = path[0] ? wf_arena_printf(&im->arena, "%s.%s", path, part)
                       : wf_arena_copy(&im->arena, part);
        before = part;
        part = next;
    }
    path = wf_onnx_plain_name(im, path);
    while (*path == '.' || *path == '-')
        path++;
    return *path ? path : l->kind;
}

/* By another one of the first n layers; an empty name by none. */
static bool is_taken(const struct wf_onnx_import *im, int layer, int n, const char *name)
{
    bool taken = strcmp(name, "image") == 0;
    for (int i = 0; i < n && name[0] && !taken; i++)
        taken = i != layer && im->layers[i].alive && strcmp(im->layers[i].name, name) == 0;
    return taken;
}

/* Layers of the same weights: of a network that uses a module twice. Norms are only where the layer before is,
 * because exporters join equal tensors, as those of all new norms are. */
static int weights_of(const struct wf_onnx_import *im, int layer)
{
    const struct wf_onnx_layer *const l = &im->layers[layer];
    const bool before = l->in[0] >= 0 && im->layers[l->in[0]].shares;
    for (int i = 0; i < layer && l->n_weights > 0; i++) {
        const struct wf_onnx_layer *const o = &im->layers[i];
        bool same = o->alive && strcmp(o->kind, l->kind) == 0 && o->n_weights == l->n_weights &&
                    !o->shares && (is_product(im, layer) || before);
        for (int k = 0; same && k < l->n_weights; k++)
            same = l->weights[k].constant->name[0] &&
                   strcmp(l->weights[k].constant->name, o->weights[k].constant->name) == 0;
        if (same)
            return i;
    }
    return WF_LAYER_NONE;
}

static const char *unique(struct wf_onnx_import *im, int layer, const char *name)
{
    const char *other = name;
    for (int k = 2; is_taken(im, layer, (int)im->n_layers, other); k++)
        other = wf_arena_printf(&im->arena, "%s_%d", name, k);
    return other;
}

/* A name for a layer that has none: the whole path of its only weight, where a layer of the same module has the module's
 * (a product and a sum of one module), or its node's. */
static const char *free_path(struct wf_onnx_import *im, int layer)
{
    const struct wf_onnx_layer *const l = &im->layers[layer];
    const char *const path = l->n_weights == 1 && !l->shares ? l->weights[0].constant->name : "";
    return strchr(path, '.') && !strpbrk(path, ":/") &&
                   !is_taken(im, layer, (int)im->n_layers, path)
               ? wf_onnx_plain_name(im, path)
               : node_path(im, l);
}

/* Layers with weights first, so that their names are not taken; then the others by their nodes. */
static void name_layers(struct wf_onnx_import *im)
{
    int *const owners = wf_arena_array(&im->arena, im->n_layers, int);
    for (int i = 0; i < (int)im->n_layers; i++) {
        struct wf_onnx_layer *const l = &im->layers[i];
        owners[i] = l->alive ? weights_of(im, i) : WF_LAYER_NONE;
        l->shares = owners[i] == WF_LAYER_NONE ? NULL : "";
        if (l->shares || !l->alive)
            l->name = "";
    }
    for (int i = 0; i < (int)im->n_layers; i++)
        if (is_taken(im, i, i, im->layers[i].name))
            im->layers[i].name = "";
    for (int i = 0; i < (int)im->n_layers; i++)
        if (im->layers[i].alive && !im->layers[i].name[0])
            im->layers[i].name = unique(im, i, free_path(im, i));
    for (int i = 0; i < (int)im->n_layers; i++)
        if (owners[i] != WF_LAYER_NONE)
            im->layers[i].shares = im->layers[owners[i]].name;
}

/* --- what the user should know --- */

static void note_folded_norms(struct wf_onnx_import *im)
{
    int convs = 0, norms_seen = 0;
    for (int i = 0; i < (int)im->n_layers; i++) {
        if (!im->layers[i].alive)
            continue;
        convs += wf_onnx_is(im, i, "conv");
        norms_seen += is_norm(im, i);
    }
    if (norms_seen == 0 && convs >= 4)
        wf_onnx_note(
            im, "no normalisation in the file: exporters for inference fold batch norm into "
                "convolutions, and the network trains without it; to keep it, export with "
                "training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, or with "
                "dynamo=True, optimize=False");
}

static void note_output(struct wf_onnx_import *im, int head)
{
    static const char *const ends[] = { "softmax", "log_softmax", "sigmoid" };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (wf_onnx_is(im, head, ends[i]))
            wf_onnx_note(
                im,
                "the last layer, '%s', is a %s, but losses take logits: remove it from the "
                "network file before training",
                im->layers[head].name, ends[i]);
}

/* --- the network --- */

static bool add_layer(struct wf_onnx_import *im, struct wf_net *net, int index, int at[],
                      struct wf_err *err)
{
    const struct wf_onnx_layer *const l = &im->layers[index];
    const struct wf_layer_kind *const kind = wf_layer_kind(l->kind);
    if (wf_onnx_is(im, index, "cropped"))
        return wf_onnx_refuse(im, l->node, err,
                              "it cuts to extents that are those of no earlier layer");
    if (!kind)
        return wf_onnx_refuse(im, l->node, err,
                              "it needs a layer of the kind '%s', which there is not; 'widefield "
                              "model kinds' lists what there is",
                              l->kind);
    int *const in = wf_arena_array(&im->arena, l->n_in, int);
    for (int k = 0; k < l->n_in; k++) {
        const int from = current(im, l->in[k]);
        in[k] = from < 0 ? from : at[from];
    }
    const int like = current(im, l->like);
    at[index] = wf_net_add(net, &(struct wf_layer){ .name = l->name,
                                                    .kind = kind,
                                                    .weights = l->shares,
                                                    .n_in = l->n_in,
                                                    .in = in,
                                                    .like = like < 0 ? like : at[like],
                                                    .a = l->a });
    return true;
}

static bool add_tensors(struct wf_onnx_import *im, const struct wf_onnx_layer *l,
                        struct wf_err *err)
{
    struct wf_onnx_report *const r = im->report;
    for (int k = 0; k < l->n_weights && !l->shares; k++) {
        struct wf_onnx_constant *const c = l->weights[k].constant;
        if (!wf_onnx_load(im, c, err))
            return false;
        WF_GROW(r->tensors, r->room_tensors, r->n_tensors);
        struct wf_onnx_tensor *const t = &r->tensors[r->n_tensors];
        t->name = wf_arena_printf(&r->arena, "%s.%s", l->name, l->weights[k].part);
        t->rank = c->rank;
        memcpy(t->shape, c->shape, sizeof t->shape);
        t->data = malloc((size_t)(c->count ? c->count : 1) * sizeof *t->data);
        if (!t->data)
            return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for tensor '%s'", im->model->path,
                              t->name);
        memcpy(t->data, c->data, (size_t)c->count * sizeof *t->data);
        r->n_tensors++;
    }
    return true;
}

/* Builds it for the first probe: the result must have the shape that the file's operators make. */
static bool try_building(const struct wf_onnx_import *im, const struct wf_net *net, int head,
                         struct wf_err *err)
{
    const struct wf_onnx_extent *const s = im->image, *const want = wf_onnx_shape(im, head);
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_value *const x =
        wf_input(g, "image", WF_F32,
                 wf_shape_make(s[WF_ONNX_N].at[0], s[WF_ONNX_D].at[0], s[WF_ONNX_H].at[0],
                               s[WF_ONNX_W].at[0], s[WF_ONNX_C].at[0]));
    const struct wf_value *const y = wf_net_build(g, net, x, NULL);
    bool ok = wf_graph_ok(g, err) || wf_err_wrap(err, "'%s'", im->model->path);
    static const int axes[] = { WF_ONNX_N, WF_ONNX_D, WF_ONNX_H, WF_ONNX_W, WF_ONNX_C };
    for (int i = 0; ok && i < WF_AXES; i++)
        if (y->shape.at[i] != want[axes[i]].at[0])
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s': the imported network makes %" PRId64 " along axis %d where the "
                            "file makes %" PRId64 ": this is a mistake of the importer, please "
                            "report it",
                            im->model->path, y->shape.at[i], i, want[axes[i]].at[0]);
    wf_graph_free(g);
    return ok;
}

bool wf_onnx_finish(struct wf_onnx_import *im, int n_heads, const int heads[], struct wf_net *net,
                    struct wf_err *err)
{
    find_used(im, n_heads, heads);
    join_pads(im);
    join_activations(im);
    if (!complete_norms(im, err))
        return false;
    tidy_attrs(im);
    name_layers(im);
    note_folded_norms(im);
    int *const at = wf_arena_array(&im->arena, im->n_layers, int);
    for (int i = 0; i < (int)im->n_layers; i++)
        if (im->layers[i].alive &&
            (!add_layer(im, net, i, at, err) || !add_tensors(im, &im->layers[i], err)))
            return false;
    for (int i = 0; i < n_heads; i++)
        wf_net_add_head(net, at[current(im, heads[i])], 1);
    note_output(im, current(im, heads[0]));
    return wf_net_check(net, err) && try_building(im, net, heads[0], err);
}
