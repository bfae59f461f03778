#include "onnx/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "onnx/write.h"

enum { OPSET = 18, IR_VERSION = 8 };
static const size_t most = (1ull << 31) - 1; /* bytes of a protobuf message */

static wf_onnx_write *find(const char *kind)
{
    static const struct wf_onnx_write_row *const tables[] = {
        wf_onnx_writes_weights,
        wf_onnx_writes_pointwise,
        wf_onnx_writes_shape,
        wf_onnx_writes_matrix,
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct wf_onnx_write_row *row = tables[i]; row->kind; row++)
            if (strcmp(row->kind, kind) == 0)
                return row->write;
    return NULL;
}

/* --- layers --- */

/* The layers that the first head needs. */
static bool *used_layers(struct wf_onnx_writer *w)
{
    const struct wf_net *const net = w->e->net;
    bool *const used = wf_arena_array(&w->arena, net->n_layers, bool);
    used[net->heads[0].layer] = true;
    for (int i = net->n_layers - 1; i >= 0; i--) {
        if (!used[i])
            continue;
        for (int k = 0; k < net->layers[i].n_in; k++)
            if (net->layers[i].in[k] >= 0)
                used[net->layers[i].in[k]] = true;
        if (net->layers[i].like >= 0)
            used[net->layers[i].like] = true;
    }
    return used;
}

static bool is_point(const struct wf_value *v)
{
    return v->shape.at[WF_D] == 1 && v->shape.at[WF_H] == 1 && v->shape.at[WF_W] == 1;
}

static bool write_layer(struct wf_onnx_writer *w, int index)
{
    const struct wf_net *const net = w->e->net;
    const struct wf_layer *const l = &net->layers[index];
    const bool is_head = index == net->heads[0].layer;
    wf_onnx_write *const write = find(l->kind->name);
    w->layer = l;
    bool vector = false;
    /* The prediction for a whole image is [N, classes], as classifiers have it. */
    const bool flattens = is_head && is_point(w->values[1 + index]);
    const char *y = write ? write(w, is_head && !flattens ? "output" : l->name, &vector) : NULL;
    if (!y)
        return wf_err_set(&w->err, WF_ERR_USAGE,
                          "layer '%s': the kind '%s' has no form in ONNX yet: replace it, or use "
                          "the weights file",
                          l->name, l->kind->name);
    if (flattens)
        y = wf_onnx_emit(w, vector ? "Identity" : "Flatten", "output", 1, &y);
    w->names[1 + index] = y;
    w->vector[1 + index] = vector || flattens;
    return w->err.code == WF_OK;
}

/* x becomes (x - mean) / deviation, per channel, as in training. */
static const char *normalised(struct wf_onnx_writer *w)
{
    const struct wf_onnx_export *const e = w->e;
    const char *x = "image";
    if (e->channels == 0)
        return x;
    const int64_t shape[] = { 1, e->channels, 1, 1, 1 };
    float *const values = wf_arena_array(&w->arena, 2 * e->channels, float);
    for (int c = 0; c < e->channels; c++) {
        values[c] = (float)e->mean[c];
        values[e->channels + c] = (float)e->deviation[c];
    }
    x = wf_onnx_emit(w, "Sub", NULL, 2,
                     (const char *[]){ x, wf_onnx_floats(w, 2 + e->net->dims, shape, values) });
    return wf_onnx_emit(
        w, "Div", NULL, 2,
        (const char *[]){ x, wf_onnx_floats(w, 2 + e->net->dims, shape, values + e->channels) });
}

/* Builds the network once with every layer as a head, for the shapes of all results; `made`: the prediction's. */
static bool write_layers(struct wf_onnx_writer *w, struct wf_shape *made)
{
    struct wf_net all = *w->e->net;
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    struct wf_value **const values = wf_arena_array(&w->arena, all.n_layers + 1, struct wf_value *);
    const bool *const used = used_layers(w);
    all.heads = wf_arena_array(&w->arena, all.n_layers, struct wf_net_head);
    for (int i = 0; i < all.n_layers; i++)
        all.heads[i] = (struct wf_net_head){ .layer = i, .weight = 1 };
    all.n_heads = all.n_layers;
    values[0] = wf_input(g, "image", WF_F32, w->e->shape);
    (void)wf_net_build(g, &all, values[0], values + 1);
    bool ok = wf_graph_ok(g, &w->err);
    w->values = values;
    if (ok)
        w->names[0] = normalised(w);
    for (int i = 0; ok && i < all.n_layers; i++)
        ok = !used[i] || write_layer(w, i);
    if (ok)
        *made = values[1 + w->e->net->heads[0].layer]->shape;
    wf_graph_free(g);
    return ok;
}

/* --- the messages around them --- */

static Onnx__TensorShapeProto__Dimension *dimension(struct wf_onnx_writer *w, const char *param,
                                                    int64_t value)
{
    Onnx__TensorShapeProto__Dimension *const d =
        wf_arena_one(&w->arena, Onnx__TensorShapeProto__Dimension);
    onnx__tensor_shape_proto__dimension__init(d);
    d->has_dim_value = !param;
    d->dim_value = value;
    d->dim_param = param ? wf_arena_copy(&w->arena, param) : NULL;
    return d;
}

static Onnx__ValueInfoProto **value_info(struct wf_onnx_writer *w, const char *name, int rank,
                                         Onnx__TensorShapeProto__Dimension *const dims[])
{
    Onnx__ValueInfoProto **const list = wf_arena_one(&w->arena, Onnx__ValueInfoProto *);
    Onnx__ValueInfoProto *const v = *list = wf_arena_one(&w->arena, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(v);
    v->name = wf_arena_copy(&w->arena, name);
    v->type = wf_arena_one(&w->arena, Onnx__TypeProto);
    onnx__type_proto__init(v->type);
    Onnx__TypeProto__Tensor *const t = v->type->tensor_type =
        wf_arena_one(&w->arena, Onnx__TypeProto__Tensor);
    onnx__type_proto__tensor__init(t);
    t->has_elem_type = true;
    t->elem_type = WF_ONNX_FLOAT;
    t->shape = wf_arena_one(&w->arena, Onnx__TensorShapeProto);
    onnx__tensor_shape_proto__init(t->shape);
    t->shape->n_dim = (size_t)rank;
    t->shape->dim = wf_arena_array(&w->arena, rank, Onnx__TensorShapeProto__Dimension *);
    memcpy(t->shape->dim, dims, (size_t)rank * sizeof *dims);
    return list;
}

static void describe(struct wf_onnx_writer *w, Onnx__GraphProto *g, const struct wf_shape *made)
{
    static const char *const axes[] = { "depth", "height", "width" };
    const struct wf_net *const net = w->e->net;
    const int dims = net->dims;
    const bool vector = w->vector[1 + net->heads[0].layer];
    bool same = true;
    for (int axis = WF_D; axis < WF_C; axis++)
        same &= made->at[axis] == w->e->shape.at[axis];
    Onnx__TensorShapeProto__Dimension *in[5] = { dimension(w, "batch", 0),
                                                 dimension(w, NULL, net->in) };
    Onnx__TensorShapeProto__Dimension *out[5] = { in[0], dimension(w, NULL, made->at[WF_C]) };
    for (int i = 0; i < dims; i++) {
        const char *const axis = axes[3 - dims + i];
        in[2 + i] = dimension(w, axis, 0);
        out[2 + i] = dimension(w, same ? axis : wf_arena_printf(&w->arena, "output_%s", axis), 0);
    }
    g->n_input = 1;
    g->input = value_info(w, "image", 2 + dims, in);
    g->n_output = 1;
    g->output = value_info(w, "output", vector ? 2 : 2 + dims, out);
}

static void put_property(struct wf_onnx_writer *w, Onnx__ModelProto *m, const char *key,
                         const char *value)
{
    if (!m->metadata_props)
        m->metadata_props = wf_arena_array(&w->arena, 4, Onnx__StringStringEntryProto *);
    Onnx__StringStringEntryProto *const p = wf_arena_one(&w->arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(p);
    p->key = wf_arena_copy(&w->arena, key);
    p->value = wf_arena_copy(&w->arena, value);
    m->metadata_props[m->n_metadata_props++] = p;
}

static bool pack(struct wf_onnx_writer *w, const Onnx__ModelProto *m, const char *path,
                 struct wf_onnx_written *written, struct wf_err *err)
{
    const size_t bytes = onnx__model_proto__get_packed_size(m);
    if (bytes > most)
        return wf_err_set(err, WF_ERR_FIT,
                          "'%s': the network has %zu bytes, an ONNX file at most %zu: use the "
                          "weights file",
                          path, bytes, most);
    uint8_t *const data = malloc(bytes);
    if (!data)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for %zu bytes", path, bytes);
    (void)onnx__model_proto__pack(m, data);
    const bool ok = wf_file_write(path, data, bytes, err);
    free(data);
    *written =
        (struct wf_onnx_written){ (int64_t)w->n_nodes, (int64_t)w->n_tensors, (int64_t)bytes };
    return ok;
}

static bool write_model(struct wf_onnx_writer *w, const struct wf_shape *made, const char *path,
                        struct wf_onnx_written *written, struct wf_err *err)
{
    Onnx__GraphProto g = ONNX__GRAPH_PROTO__INIT;
    g.name = wf_arena_copy(&w->arena, w->e->net->name);
    g.n_node = w->n_nodes;
    g.node = w->nodes;
    g.n_initializer = w->n_tensors;
    g.initializer = w->tensors;
    describe(w, &g, made);
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = { &opset };
    opset.domain = wf_arena_copy(&w->arena, "");
    opset.has_version = true;
    opset.version = OPSET;
    Onnx__ModelProto m = ONNX__MODEL_PROTO__INIT;
    m.has_ir_version = true;
    m.ir_version = IR_VERSION;
    m.producer_name = wf_arena_copy(&w->arena, "widefield");
    m.producer_version = wf_arena_copy(&w->arena, WF_VERSION_STRING);
    m.graph = &g;
    m.n_opset_import = 1;
    m.opset_import = opsets;
    if (w->e->classes > 0) {
        const char *names = w->e->class_names[0];
        for (int i = 1; i < w->e->classes; i++)
            names = wf_arena_printf(&w->arena, "%s,%s", names, w->e->class_names[i]);
        put_property(w, &m, "classes", names);
    }
    return pack(w, &m, path, written, err);
}

bool wf_onnx_export(const struct wf_onnx_export *e, const char *path,
                    struct wf_onnx_written *written, struct wf_err *err)
{
    struct wf_onnx_writer w = { .e = e };
    w.names = wf_arena_array(&w.arena, e->net->n_layers + 1, const char *);
    w.vector = wf_arena_array(&w.arena, e->net->n_layers + 1, bool);
    struct wf_shape made = e->shape;
    bool ok = write_layers(&w, &made);
    if (!ok)
        *err = w.err;
    ok = ok && write_model(&w, &made, path, written, err);
    free(w.nodes);
    free(w.tensors);
    wf_arena_release(&w.arena);
    return ok;
}
