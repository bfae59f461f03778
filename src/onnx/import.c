#include "onnx/import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "onnx/inside.h"

/* --- nodes --- */

static const struct wf_onnx_rule_row *find_rule(const struct wf_onnx_rule_row *rows, const char *op)
{
    for (; rows->op; rows++)
        if (strcmp(rows->op, op) == 0)
            return rows;
    return NULL;
}

static wf_onnx_rule *features_rule(const char *op)
{
    static const struct wf_onnx_rule_row *const tables[] = {
        wf_onnx_rules_conv,   wf_onnx_rules_norm,   wf_onnx_rules_pointwise, wf_onnx_rules_move,
        wf_onnx_rules_resize, wf_onnx_rules_reduce, wf_onnx_rules_composed,  wf_onnx_rules_parts,
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct wf_onnx_rule_row *const row = find_rule(tables[i], op);
        if (row)
            return row->rule;
    }
    return NULL;
}

/* Constant: one of several attributes has it. */
static bool constant_node(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_out(im, node, 0);
    if (!v)
        return true;
    const Onnx__AttributeProto *a = wf_onnx_attr(node, "value");
    if (a && a->t)
        return wf_onnx_initialise(im, v, a->t, err);
    static const char *const names[] = { "value_int", "value_float", "value_ints", "value_floats" };
    for (int i = 0; i < 4; i++) {
        a = wf_onnx_attr(node, names[i]);
        if (!a)
            continue;
        const int64_t count = i < 2 ? 1 : (int64_t)(i == 2 ? a->n_ints : a->n_floats);
        struct wf_onnx_numbers *const n = wf_onnx_numbers_new(im, i % 2 == 0, i / 2, &count);
        if (!n)
            return wf_onnx_refuse(im, node, err, "too many numbers");
        for (int64_t k = 0; k < count; k++)
            for (int p = 0; p < WF_ONNX_PROBES; p++)
                n->at[k][p] = i == 0   ? (double)a->i
                              : i == 1 ? (double)a->f
                              : i == 2 ? (double)a->ints[k]
                                       : (double)a->floats[k];
        v->kind = WF_ONNX_NUMBER;
        v->numbers = n;
        return true;
    }
    return wf_onnx_refuse(im, node, err,
                          "its value is a text or sparse: there is no rule for that");
}

/* An `If` whose condition is known is the branch that it takes. */
static bool if_node(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_numbers *const n = wf_onnx_numbers(im, wf_onnx_in(im, node, 0));
    double condition;
    if (!n || n->count != 1 || !wf_onnx_number_is_fixed(im, n, 0, &condition) || im->depth > 16)
        return wf_onnx_refuse(im, node, err,
                              "dynamic control flow: which branch is taken depends on the image; "
                              "export the network without it (torch.jit.trace, fixed extents)");
    Onnx__GraphProto *const g = wf_onnx_subgraph(
        im->model, wf_onnx_attr(node, condition != 0 ? "then_branch" : "else_branch"), err);
    if (!g)
        return wf_err_wrap(err, "node '%s'", node->name ? node->name : "");
    WF_GROW(im->subgraphs, im->room_subgraphs, im->n_subgraphs);
    im->subgraphs[im->n_subgraphs++] = g;
    im->depth++;
    const bool ok = wf_onnx_graph(im, g, err);
    im->depth--;
    for (size_t i = 0; ok && i < node->n_output && i < g->n_output; i++) {
        const struct wf_onnx_value *const from = wf_onnx_find(im, g->output[i]->name);
        if (!from)
            return wf_onnx_refuse(im, node, err, "its branch does not make '%s'",
                                  g->output[i]->name);
        struct wf_onnx_value *const to = wf_onnx_out(im, node, i);
        if (!to)
            continue;
        const char *const name = to->name;
        *to = *from;
        to->name = name;
    }
    return ok;
}

static bool is_control(const char *op)
{
    return strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0;
}

static bool no_rule(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    if (is_control(node->op_type))
        return wf_onnx_refuse(im, node, err,
                              "dynamic control flow has no rule: export the network without it");
    if (strstr(node->op_type, "Quantize") || strstr(node->op_type, "Integer"))
        return wf_onnx_refuse(im, node, err,
                              "quantised networks have no rule: import the one it was made of");
    bool weights = node->n_input > 0;
    for (size_t i = 0; i < node->n_input; i++) {
        const struct wf_onnx_value *const v = wf_onnx_find(im, node->input[i]);
        weights = weights && v && v->kind != WF_ONNX_FEATURES && v->kind != WF_ONNX_LIST;
    }
    if (weights)
        return wf_onnx_refuse(im, node, err,
                              "a weight that is computed from others (weight norm, spectral norm, "
                              "standardised weights) has no rule: remove that before the export, "
                              "or export with do_constant_folding=True, which makes it plain");
    return wf_onnx_refuse(im, node, err,
                          "there is no rule for this operator: replace it in the network and "
                          "export again, or write the network as a file (docs/networks.md)");
}

bool wf_onnx_node(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    if (node->domain && node->domain[0] && strcmp(node->domain, "ai.onnx") != 0)
        return wf_onnx_refuse(im, node, err, "operators of the domain '%s' have no rule",
                              node->domain);
    if (strcmp(node->op_type, "Constant") == 0)
        return constant_node(im, node, err);
    if (strcmp(node->op_type, "If") == 0)
        return if_node(im, node, err);
    bool features = false;
    for (size_t i = 0; i < node->n_input; i++) {
        if (!node->input[i][0])
            continue;
        const struct wf_onnx_value *const v = wf_onnx_find(im, node->input[i]);
        if (!v)
            return wf_onnx_refuse(im, node, err, "nothing before it makes its input '%s'",
                                  node->input[i]);
        /* Of the second input of CastLike only the type is read. */
        if (i == 0 || strcmp(node->op_type, "CastLike") != 0)
            features |= v->kind == WF_ONNX_FEATURES || v->kind == WF_ONNX_LIST;
    }
    if (features) {
        wf_onnx_rule *const rule = features_rule(node->op_type);
        return rule ? rule(im, node, err) : no_rule(im, node, err);
    }
    bool found;
    if (!wf_onnx_constant_rule(im, node, &found, err) || found)
        return err->code == WF_OK;
    const struct wf_onnx_rule_row *row = find_rule(wf_onnx_rules_numbers, node->op_type);
    if (!row)
        row = find_rule(wf_onnx_rules_numbers_move, node->op_type);
    return row ? row->rule(im, node, err) : no_rule(im, node, err);
}

bool wf_onnx_graph(struct wf_onnx_import *im, const Onnx__GraphProto *g, struct wf_err *err)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        struct wf_onnx_value *const v = wf_onnx_define(im, g->initializer[i]->name);
        if (!wf_onnx_initialise(im, v, g->initializer[i], err))
            return false;
    }
    for (size_t i = 0; i < g->n_node; i++)
        if (!wf_onnx_node(im, g->node[i], err))
            return false;
    return true;
}

/* --- the image --- */

/* The one input that is no initialiser. */
static const Onnx__ValueInfoProto *image_of(const struct wf_onnx_model *m, struct wf_err *err)
{
    const Onnx__GraphProto *const g = m->proto->graph;
    const Onnx__ValueInfoProto *image = NULL;
    for (size_t i = 0; i < g->n_input; i++) {
        bool is_weight = false;
        for (size_t k = 0; k < g->n_initializer && !is_weight; k++)
            is_weight = strcmp(g->initializer[k]->name, g->input[i]->name) == 0;
        if (is_weight)
            continue;
        if (image) {
            (void)wf_err_set(
                err, WF_ERR_INPUT,
                "'%s': it has the inputs '%s' and '%s', but a network takes one image: "
                "export it with one",
                m->path, image->name, g->input[i]->name);
            return NULL;
        }
        image = g->input[i];
    }
    const Onnx__TypeProto__Tensor *const t = image && image->type ? image->type->tensor_type : NULL;
    if (t && t->shape && t->shape->n_dim >= 3 && t->shape->n_dim <= 5 &&
        wf_onnx_type_is_float(t->elem_type))
        return image;
    (void)wf_err_set(err, WF_ERR_INPUT,
                     "'%s': its input should be an image of floats, [N, C, W], [N, C, H, W] or "
                     "[N, C, D, H, W], with a shape",
                     m->path);
    return NULL;
}

/* A fixed extent, or 0. */
static int64_t fixed_dim(const Onnx__TypeProto__Tensor *t, size_t i)
{
    const Onnx__TensorShapeProto__Dimension *const d = t->shape->dim[i];
    return d->has_dim_value && d->dim_value > 0 ? d->dim_value : 0;
}

/* Channels where the file leaves them open: what the first convolution takes. */
static int64_t channels_of_conv(const struct wf_onnx_model *m, const char *image)
{
    const Onnx__GraphProto *const g = m->proto->graph;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *const node = g->node[i];
        if (strcmp(node->op_type, "Conv") != 0 || node->n_input < 2 ||
            strcmp(node->input[0], image) != 0)
            continue;
        for (size_t k = 0; k < g->n_initializer; k++)
            if (strcmp(g->initializer[k]->name, node->input[1]) == 0 &&
                g->initializer[k]->n_dims > 1)
                return g->initializer[k]->dims[1] * wf_onnx_attr_int(node, "group", 1);
    }
    return 0;
}

/* Images that shapes are followed for: first of extents that differ in their remainders by 2, 4, ... 32, rounded up or
 * down, so that what is cut off or added by a remainder is no fixed number; then of multiples of 64 and of 512, for
 * networks that take no others. */
enum { SETS = 3 };
static const int64_t probe_extents[SETS][3][WF_ONNX_PROBES] = {
    { { 1151, 1410, 1621, 1272, 1345 },
      { 1021, 1284, 1531, 1166, 1411 },
      { 1103, 1362, 1597, 1226, 1489 } },
    { { 1152, 1600, 2112, 1280, 1856 },
      { 1088, 1344, 1728, 2240, 1408 },
      { 1216, 1472, 1984, 2368, 1536 } },
    { { 2560, 3584, 1024, 4096, 7168 },
      { 1536, 5632, 3072, 2048, 6144 },
      { 6656, 2048, 4608, 3584, 5120 } },
};

static bool set_image(struct wf_onnx_import *im, const Onnx__ValueInfoProto *image, int set,
                      struct wf_err *err)
{
    const Onnx__TypeProto__Tensor *const t = image->type->tensor_type;
    const int rank = (int)t->shape->n_dim;
    im->dims = rank - 2;
    im->probes = WF_ONNX_PROBES;
    im->fixed = true;
    for (int axis = 0; axis < WF_ONNX_AXES; axis++)
        im->image[axis] = wf_onnx_extent(1);
    /* Channels last, as TensorFlow has them, where only the last extent can be channels. */
    const bool last = !fixed_dim(t, 1)
                          ? fixed_dim(t, (size_t)rank - 1) > 0
                          : fixed_dim(t, 1) > 4 && fixed_dim(t, (size_t)rank - 1) <= 4 &&
                                fixed_dim(t, (size_t)rank - 1) > 0;
    int64_t channels = fixed_dim(t, last ? (size_t)rank - 1 : 1);
    if (!channels)
        channels = channels_of_conv(im->model, image->name);
    if (channels < 1 || channels > 1 << 20)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': the channels of input '%s' are not known: export it with a fixed "
                          "number of channels",
                          im->model->path, image->name);
    im->image[WF_ONNX_C] = wf_onnx_extent(channels);
    const int64_t samples = fixed_dim(t, 0);
    im->image[WF_ONNX_N] =
        samples ? wf_onnx_extent(samples) : (struct wf_onnx_extent){ { 2, 3, 5, 7, 11 } };
    for (int i = 0; i < im->dims; i++) {
        const int64_t extent = fixed_dim(t, (size_t)(last ? 1 + i : 2 + i));
        const int axis = WF_ONNX_AXES - im->dims + i;
        if (extent > 1 << 24)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': input '%s' has an extent of %" PRId64,
                              im->model->path, image->name, extent);
        im->fixed = im->fixed && extent > 0;
        im->report->fixed[axis] = extent;
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            im->image[axis].at[p] = extent ? extent : probe_extents[set][axis - WF_ONNX_D][p];
    }
    struct wf_onnx_value *const v = wf_onnx_define(im, image->name);
    v->kind = WF_ONNX_FEATURES;
    v->layer = WF_LAYER_IMAGE;
    v->view = wf_onnx_view(im, WF_LAYER_IMAGE, rank);
    for (int i = 1; last && i < rank; i++) {
        const struct wf_onnx_view plain = wf_onnx_view(im, WF_LAYER_IMAGE, rank);
        v->view.axis[i] = plain.axis[i == rank - 1 ? 1 : i + 1];
    }
    return true;
}

/* --- heads --- */

/* The layer that an output is: plain, or only its axes in another order. */
static int head_layer(struct wf_onnx_import *im, const char *name, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_find(im, name);
    bool whole = v && v->kind == WF_ONNX_FEATURES && v->view.rank >= 2 && v->layer >= 0;
    if (!v || v->kind != WF_ONNX_FEATURES) {
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s': output '%s' is not made by its nodes",
                         im->model->path, name);
        return WF_LAYER_NONE;
    }
    for (int i = 0; i < v->view.rank; i++) {
        const struct wf_onnx_axis *const axis = &v->view.axis[i];
        whole &=
            axis->n == 0 || (axis->n == 1 && wf_onnx_axis_is(im, axis, v->layer, axis->at[0].axis));
    }
    if (whole)
        return v->layer;
    /* Layers keep the node that they were made for. */
    Onnx__NodeProto *const output = wf_arena_one(&im->arena, Onnx__NodeProto);
    onnx__node_proto__init(output);
    output->name = wf_arena_copy(&im->arena, v->name);
    output->op_type = wf_arena_copy(&im->arena, "output");
    const int layer = wf_onnx_plain(im, output, v, err);
    if (layer == WF_LAYER_IMAGE)
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s': output '%s' is the image itself",
                         im->model->path, name);
    return layer == WF_LAYER_IMAGE ? WF_LAYER_NONE : layer;
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == 0))
            return true;
    }
    return false;
}

enum { HEADS = 16 };
static int find_heads(struct wf_onnx_import *im, const char *outputs, int heads[HEADS],
                      struct wf_err *err)
{
    const Onnx__GraphProto *const g = im->model->proto->graph;
    int n = 0;
    /* In the order of `outputs`. */
    for (const char *at = outputs; at && n < HEADS; at = strchr(at, ',')) {
        at += *at == ',';
        char *const name = wf_arena_copy(&im->arena, at);
        name[strcspn(name, ",")] = 0;
        heads[n] = head_layer(im, name, err);
        if (heads[n++] == WF_LAYER_NONE)
            return 0;
    }
    for (size_t i = 0; i < g->n_output; i++) {
        if (!outputs && i == 0) {
            heads[n] = head_layer(im, g->output[i]->name, err);
            if (heads[n++] == WF_LAYER_NONE)
                return 0;
        } else if (!outputs || !has_word(outputs, g->output[i]->name)) {
            wf_onnx_note(im, "output '%s' is left out: --outputs %s,%s takes it as a further head",
                         g->output[i]->name, g->output[0]->name, g->output[i]->name);
        }
    }
    if (n == 0)
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s': it has no outputs", im->model->path);
    return n;
}

/* --- all --- */

static void release(struct wf_onnx_import *im)
{
    for (struct wf_onnx_constant *c = im->constants; c; c = c->next)
        free(c->data);
    for (size_t i = 0; i < im->n_subgraphs; i++)
        onnx__graph_proto__free_unpacked(im->subgraphs[i], NULL);
    free(im->subgraphs);
    free(im->layers);
    wf_arena_release(&im->arena);
}

/* "net" of "path/net.onnx". */
static const char *short_name(struct wf_onnx_import *im)
{
    const char *const slash = strrchr(im->model->path, '/');
    char *const name = wf_arena_copy(&im->arena, slash ? slash + 1 : im->model->path);
    char *const dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".onnx") == 0)
        *dot = 0;
    return name[0] ? name : "network";
}

static struct wf_net *attempt(const struct wf_onnx_model *m, const Onnx__ValueInfoProto *image,
                              const char *outputs, int set, struct wf_onnx_report *report,
                              struct wf_err *err)
{
    struct wf_onnx_import im = { .model = m, .report = report };
    int heads[HEADS], n_heads = 0;
    struct wf_net *net = NULL;
    bool ok = set_image(&im, image, set, err) && wf_onnx_graph(&im, m->proto->graph, err);
    if (ok)
        n_heads = find_heads(&im, outputs, heads, err);
    const char *const multiple = set == 1 ? "64" : "512";
    if (n_heads > 0 && set > 0 && !im.fixed)
        wf_onnx_note(&im,
                     "its shapes can be followed for images whose extents are multiples of %s: on "
                     "others the network is refused, or may pad otherwise than the file",
                     multiple);
    if (n_heads > 0) {
        net = wf_net_new(short_name(&im), im.dims, im.image[WF_ONNX_C].at[0]);
        for (int i = 0; im.fixed && i < im.dims; i++)
            net->size[2 - i] = im.image[WF_ONNX_W - i].at[0];
        ok = wf_onnx_finish(&im, n_heads, heads, net, err);
    }
    if (net && !ok) {
        wf_net_free(net);
        net = NULL;
    }
    release(&im);
    return net;
}

static struct wf_net *import(const struct wf_onnx_model *m, const char *outputs,
                             struct wf_onnx_report *report, struct wf_err *err)
{
    const Onnx__ValueInfoProto *const image = image_of(m, err);
    if (!image)
        return NULL;
    struct wf_net *net = NULL;
    struct wf_err last = { 0 };
    for (int set = 0; set < SETS && !net; set++) {
        wf_onnx_report_release(report);
        last = (struct wf_err){ 0 };
        net = attempt(m, image, outputs, set, report, &last);
        report->opset = m->opset;
        report->nodes = (int64_t)m->proto->graph->n_node;
        report->producer = wf_arena_copy(
            &report->arena, m->proto->producer_name ? m->proto->producer_name : "unknown");
    }
    if (!net)
        *err = last;
    return net;
}

struct wf_net *wf_onnx_import_memory(const char *name, const void *bytes, size_t size,
                                     const char *outputs, struct wf_onnx_report *report,
                                     struct wf_err *err)
{
    struct wf_onnx_model *const m = wf_onnx_model_parse(name, bytes, size, err);
    struct wf_net *const net = m ? import(m, outputs, report, err) : NULL;
    wf_onnx_model_free(m);
    return net;
}

struct wf_net *wf_onnx_import(const char *path, const char *outputs, struct wf_onnx_report *report,
                              struct wf_err *err)
{
    struct wf_onnx_model *const m = wf_onnx_model_open(path, err);
    struct wf_net *const net = m ? import(m, outputs, report, err) : NULL;
    wf_onnx_model_free(m);
    return net;
}

bool wf_onnx_write_weights(const struct wf_onnx_report *report, const char *path,
                           struct wf_err *err)
{
    struct wf_safetensors_writer *const w = wf_safetensors_begin();
    for (size_t i = 0; i < report->n_tensors; i++) {
        const struct wf_onnx_tensor *const t = &report->tensors[i];
        wf_safetensors_add(w, &(struct wf_safetensors_item){ .name = t->name,
                                                             .dtype = WF_F32,
                                                             .rank = t->rank,
                                                             .shape = t->shape,
                                                             .data = t->data });
    }
    const bool ok = wf_safetensors_finish(w, path, err);
    wf_safetensors_writer_free(w);
    return ok;
}

void wf_onnx_report_release(struct wf_onnx_report *report)
{
    for (size_t i = 0; i < report->n_tensors; i++)
        free(report->tensors[i].data);
    free(report->tensors);
    free(report->notes);
    wf_arena_release(&report->arena);
    *report = (struct wf_onnx_report){ 0 };
}
