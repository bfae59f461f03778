/* Nodes to layers. A layer that became several nodes (a norm and its statistics) is found by its last one; the
 * others are passed over. */
#include <inttypes.h>
#include <string.h>

#include "net/record.h"
#include "ops/activation.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

struct recorder {
    const struct wf_graph *g;
    const struct wf_graph_net *from;
    struct wf_net *net;
    int *layer_of; /* by value */
    struct wf_arena arena;
};

static const struct wf_size_note *note_of(const struct recorder *r, const struct wf_node *node)
{
    for (const struct wf_size_note *n = r->g->notes; n; n = n->next)
        if (n->of == node->out[0])
            return n;
    return NULL;
}

/* "enc0.conv0" of "enc0.conv0.weight". */
static const char *owner_of(struct recorder *r, const struct wf_value *param)
{
    const char *const dot = strrchr(param->name, '.');
    return wf_arena_printf(&r->arena, "%.*s", dot ? (int)(dot - param->name) : 0, param->name);
}

static const struct wf_value *parameter(const struct wf_node *node, int i)
{
    const struct wf_value *const v = i < node->n_in ? node->in[i] : NULL;
    return v && v->kind == WF_PARAM ? v : NULL;
}

static void take(int64_t to[3], const int64_t from[3], int64_t usual)
{
    bool given = false;
    for (int i = 0; i < 3; i++)
        given |= from[i] != usual;
    for (int i = 0; i < 3 && given; i++)
        to[i] = from[i];
}

/* --- one function for each operator that is a layer --- */

static void take_conv(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_conv_attrs *const a = node->attrs;
    const struct wf_value *const w = node->in[1];
    const bool transposed = strcmp(node->op->name, "convt") == 0;
    const struct wf_size_note *const note = note_of(r, node);
    const int64_t out = node->out[0]->shape.at[WF_C];
    l->kind = wf_layer_kind(transposed ? "conv_transpose" : w->border_dims ? "conv" : "linear");
    l->a.out = out == r->from->classes ? WF_LAYER_CLASSES : out;
    l->a.bias = parameter(node, 2) != NULL;
    if (!w->border_dims)
        return;
    for (int i = 0; i < 3; i++)
        l->a.kernel[i] = w->shape.at[WF_D + i];
    take(l->a.stride, a->stride, 1);
    take(l->a.dilation, a->dilation, 1);
    take(l->a.pad_lo, a->pad_lo, 0);
    take(l->a.pad_hi, note ? note->pad_hi : a->pad_hi, 0);
    l->a.groups = a->groups > 1 ? a->groups : 0;
    for (int i = 0; i < 3 && transposed && !note; i++)
        l->a.output_pad[i] =
            a->extent[i] - ((node->in[0]->shape.at[WF_D + i] - 1) * a->stride[i] - a->pad_lo[i] -
                            a->pad_hi[i] + a->dilation[i] * (w->shape.at[WF_D + i] - 1) + 1);
    if (note && note->like)
        l->like = r->layer_of[note->like->id];
}

static void take_pool(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_pool_attrs *const a = node->attrs;
    const struct wf_size_note *const note = note_of(r, node);
    const bool mean = strcmp(node->op->name, "avgpool") == 0;
    if (a->bins[0] > 0) {
        l->kind = wf_layer_kind(mean ? "adaptive_avg_pool" : "adaptive_max_pool");
        memcpy(l->a.size, a->bins, sizeof a->bins);
        return;
    }
    l->kind = wf_layer_kind(mean ? "avg_pool" : "max_pool");
    memcpy(l->a.kernel, a->kernel, sizeof a->kernel);
    if (memcmp(a->stride, a->kernel, sizeof a->stride) != 0)
        memcpy(l->a.stride, a->stride, sizeof a->stride);
    take(l->a.pad_lo, a->pad_lo, 0);
    take(l->a.pad_hi, note ? note->pad_hi : a->pad_hi, 0);
    l->a.ceil = note != NULL;
    bool pads = false;
    for (int i = 0; i < 3; i++)
        pads |= l->a.pad_lo[i] || l->a.pad_hi[i];
    l->a.count_pad = mean && pads && !a->exclude_pad;
}

static void take_global_pool(struct recorder *, const struct wf_node *, struct wf_layer *l)
{
    l->kind = wf_layer_kind("global_pool");
}

static void take_upsample(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_upsample_attrs *const a = node->attrs;
    const struct wf_size_note *const note = note_of(r, node);
    l->kind = wf_layer_kind("upsample");
    l->a.mode = a->mode;
    if (note)
        l->like = r->layer_of[note->like->id];
    else
        memcpy(l->a.size, a->extent, sizeof a->extent);
}

/* Usual numbers are left out. */
static double unusual(double value, double usual)
{
    return value < usual || value > usual ? value : 0;
}

static void take_norm(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_norm_attrs *const a = node->attrs;
    const int64_t channels = node->out[0]->shape.at[WF_C];
    const bool grouped = a->per_sample && !a->period;
    l->kind = wf_layer_kind(!grouped                ? "batch_norm"
                            : a->groups == channels ? "instance_norm"
                                                    : "group_norm");
    l->a.groups = grouped && a->groups != channels ? a->groups : 0;
    l->a.over = a->period  ? WF_LAYER_OVER_TILE
                : a->local ? WF_LAYER_OVER_RANK
                           : WF_LAYER_OVER_BATCH;
    for (int i = 0; i < 3 && a->period; i++)
        l->a.tiles[i] = i == 2 ? a->period : 1;
    l->a.eps = unusual(a->eps, 1e-5);
    l->a.momentum = grouped ? 0 : unusual(a->momentum, 0.1);
    l->a.act = a->act;
    l->a.slope = a->act == WF_LEAKY_RELU ? unusual(a->slope, 0.01) : 0;
    l->a.plain = !parameter(node, 2);
    l->frozen = a->fixed;
}

static void take_layer_norm(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    l->kind = wf_layer_kind("layer_norm");
    l->a.eps = unusual(((const struct wf_norm_attrs *)node->attrs)->eps, 1e-5);
    l->a.plain = !parameter(node, 1);
}

static void take_act(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_act_attrs *const a = node->attrs;
    l->kind = wf_layer_kind(wf_act_names[a->act]);
    l->a.slope = a->act == WF_LEAKY_RELU ? unusual(a->slope, 0.01) : a->slope;
}

static void take_softmax(struct recorder *, const struct wf_node *, struct wf_layer *l)
{
    l->kind = wf_layer_kind("softmax");
}

static void take_dropout(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    l->kind = wf_layer_kind("dropout");
    l->a.p = ((const struct wf_dropout_attrs *)node->attrs)->p;
}

static void take_several(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    l->kind = wf_layer_kind(node->op->name);
}

static void take_scale(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    const bool back = strcmp(node->op->name, "reverse") == 0;
    l->kind = wf_layer_kind(back ? "reverse_gradient" : "scale");
    l->a.factor = ((const struct wf_scale_attrs *)node->attrs)->factor;
}

static void take_slice(struct recorder *, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_slice_attrs *const a = node->attrs;
    l->kind = wf_layer_kind("slice");
    l->a.from = a->lo[WF_C];
    l->a.to = a->hi[WF_C] == node->in[0]->shape.at[WF_C] ? 0 : a->hi[WF_C];
}

static void take_pad(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_pad_attrs *const a = node->attrs;
    const struct wf_size_note *const note = note_of(r, node);
    l->kind = wf_layer_kind(note ? "fit" : "pad");
    if (note) {
        l->like = r->layer_of[note->like->id];
        l->a.align = note->align;
        return;
    }
    memcpy(l->a.pad_lo, &a->lo[WF_D], sizeof l->a.pad_lo);
    memcpy(l->a.pad_hi, &a->hi[WF_D], sizeof l->a.pad_hi);
    l->a.pad_mode = a->mode;
}

static void take_reshape(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_shape y = node->out[0]->shape;
    const bool flat = y.at[WF_D] * y.at[WF_H] * y.at[WF_W] == 1;
    l->kind = wf_layer_kind(flat ? "flatten" : "reshape");
    if (flat)
        return;
    l->a.out = y.at[WF_C] == r->from->classes ? WF_LAYER_CLASSES : y.at[WF_C];
    memcpy(l->a.size, &y.at[WF_D], sizeof l->a.size);
}

static void take_tile(struct recorder *r, const struct wf_node *node, struct wf_layer *l)
{
    const struct wf_size_note *const note = note_of(r, node);
    l->kind = wf_layer_kind(node->op->name);
    memcpy(l->a.tiles, ((const struct wf_tile_attrs *)node->attrs)->tiles, sizeof l->a.tiles);
    if (note)
        l->like = r->layer_of[note->like->id];
}

/* `weights`: the input that is its weight, or 0. */
static const struct {
    const char *op;
    void (*take)(struct recorder *r, const struct wf_node *node, struct wf_layer *l);
    int weights;
} takes[] = {
    { "conv", take_conv, 1 },
    { "convt", take_conv, 1 },
    { "maxpool", take_pool, 0 },
    { "avgpool", take_pool, 0 },
    { "global_pool", take_global_pool, 0 },
    { "upsample", take_upsample, 0 },
    { "norm", take_norm, 2 },
    { "layernorm", take_layer_norm, 1 },
    { "act", take_act, 0 },
    { "softmax", take_softmax, 0 },
    { "dropout", take_dropout, 0 },
    { "add", take_several, 0 },
    { "multiply", take_several, 0 },
    { "concat", take_several, 0 },
    { "scale", take_scale, 0 },
    { "reverse", take_scale, 0 },
    { "slice", take_slice, 0 },
    { "pad", take_pad, 0 },
    { "reshape", take_reshape, 0 },
    { "tile", take_tile, 0 },
    { "untile", take_tile, 0 },
};

/* Statistics of norms: these belong to the norm behind them. */
static const char passed_over[] =
    "moments stats running_stats running_update sum_rows local_sums channel_sum";

/* Its result is that of its input, to a network file: a cast, and the division behind the sum of a global mean. */
static bool is_same(const struct wf_node *node)
{
    const struct wf_node *const before = node->n_in ? node->in[0]->producer : NULL;
    return strcmp(node->op->name, "cast") == 0 || (strcmp(node->op->name, "scale") == 0 && before &&
                                                   strcmp(before->op->name, "global_pool") == 0);
}

/* The node's name, or one like it that no layer has. */
static const char *free_name(struct recorder *r, const char *name)
{
    const char *one = name;
    for (int i = 2; wf_net_find(r->net, one) != WF_LAYER_NONE; i++)
        one = wf_arena_printf(&r->arena, "%s.%d", name, i);
    return one;
}

static bool take_inputs(struct recorder *r, const struct wf_node *node, int weights,
                        struct wf_layer *l)
{
    int *const in = wf_arena_array(&r->arena, node->n_in, int);
    const int count = l->kind->n_in < 0 ? node->n_in : 1;
    for (int i = 0; i < count; i++) {
        in[i] = r->layer_of[node->in[i]->id];
        if (in[i] == WF_LAYER_NONE)
            return false;
    }
    l->in = in;
    l->n_in = count;
    const struct wf_value *const w = weights ? parameter(node, weights) : NULL;
    if (!w)
        return true;
    const char *const owner = owner_of(r, w);
    l->weights = strcmp(owner, l->name) == 0 ? NULL : owner;
    l->frozen |= w->frozen;
    return true;
}

static bool refuse(const struct recorder *r, const struct wf_node *node, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_USAGE,
                      "network '%s': layer '%s' is of operator '%s', which network files have no "
                      "kind for",
                      r->from->name, node->name, node->op->name);
}

static bool record_node(struct recorder *r, const struct wf_node *node, struct wf_err *err)
{
    if (wf_layer_word_in(passed_over, node->op->name))
        return true;
    if (is_same(node)) {
        r->layer_of[node->out[0]->id] = r->layer_of[node->in[0]->id];
        return true;
    }
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        if (strcmp(takes[i].op, node->op->name) != 0)
            continue;
        struct wf_layer l = { .name = free_name(r, node->name), .like = WF_LAYER_NONE };
        takes[i].take(r, node, &l);
        if (!l.kind || !take_inputs(r, node, takes[i].weights, &l))
            return refuse(r, node, err);
        r->layer_of[node->out[0]->id] = wf_net_add(r->net, &l);
        return true;
    }
    return refuse(r, node, err);
}

struct wf_net *wf_net_of_graph(const struct wf_graph *g, const struct wf_graph_net *from,
                               struct wf_err *err)
{
    struct recorder r = { .g = g, .from = from };
    r.net = wf_net_new(from->name, from->dims, from->image->shape.at[WF_C]);
    r.layer_of = wf_arena_array(&r.arena, g->n_values, int);
    for (size_t i = 0; i < g->n_values; i++)
        r.layer_of[i] = WF_LAYER_NONE;
    r.layer_of[from->image->id] = WF_LAYER_IMAGE;
    bool ok = true;
    for (size_t i = 0; i < g->n_nodes && ok && !g->nodes[i]->backward; i++)
        ok = record_node(&r, g->nodes[i], err);
    if (ok)
        wf_net_add_head(r.net, r.layer_of[from->logits->id], 1);
    ok = ok && wf_net_check(r.net, err);
    wf_arena_release(&r.arena);
    if (ok)
        return r.net;
    wf_net_free(r.net);
    return NULL;
}
