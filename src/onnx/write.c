#include "onnx/write.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Texts of messages are not const there. */
static char *copy(struct wf_onnx_writer *w, const char *text)
{
    return wf_arena_copy(&w->arena, text);
}

static const char *new_name(struct wf_onnx_writer *w)
{
    return wf_arena_printf(&w->arena, "%s/%d", w->layer ? w->layer->name : "image", ++w->unique);
}

/* --- nodes --- */

const char *wf_onnx_emit(struct wf_onnx_writer *w, const char *op, const char *out, int n_in,
                         const char *const in[])
{
    Onnx__NodeProto *const node = wf_arena_one(&w->arena, Onnx__NodeProto);
    onnx__node_proto__init(node);
    const char *const name = out ? out : new_name(w);
    node->op_type = copy(w, op);
    node->name = wf_arena_printf(&w->arena, "%s/%s", name, op);
    node->n_input = (size_t)n_in;
    node->input = wf_arena_array(&w->arena, n_in, char *);
    for (int i = 0; i < n_in; i++)
        node->input[i] = copy(w, in[i] ? in[i] : "");
    node->n_output = 1;
    node->output = wf_arena_one(&w->arena, char *);
    node->output[0] = copy(w, name);
    WF_GROW(w->nodes, w->room_nodes, w->n_nodes);
    w->nodes[w->n_nodes++] = node;
    return name;
}

enum { ATTRIBUTES = 12 };
/* AttributeProto.type */
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_INTS = 7 };

static Onnx__AttributeProto *attribute(struct wf_onnx_writer *w, const char *name, int type)
{
    Onnx__NodeProto *const node = w->nodes[w->n_nodes - 1];
    if (!node->attribute)
        node->attribute = wf_arena_array(&w->arena, ATTRIBUTES, Onnx__AttributeProto *);
    WF_BUG_ON(node->n_attribute >= ATTRIBUTES, "%s has %zu attributes", node->op_type,
              node->n_attribute);
    Onnx__AttributeProto *const a = wf_arena_one(&w->arena, Onnx__AttributeProto);
    onnx__attribute_proto__init(a);
    a->name = copy(w, name);
    a->has_type = true;
    a->type = type;
    return node->attribute[node->n_attribute++] = a;
}

void wf_onnx_put_int(struct wf_onnx_writer *w, const char *name, int64_t value)
{
    Onnx__AttributeProto *const a = attribute(w, name, TYPE_INT);
    a->has_i = true;
    a->i = value;
}

void wf_onnx_put_real(struct wf_onnx_writer *w, const char *name, double value)
{
    Onnx__AttributeProto *const a = attribute(w, name, TYPE_FLOAT);
    a->has_f = true;
    a->f = (float)value;
}

void wf_onnx_put_text(struct wf_onnx_writer *w, const char *name, const char *value)
{
    Onnx__AttributeProto *const a = attribute(w, name, TYPE_STRING);
    a->has_s = true;
    a->s.len = strlen(value);
    a->s.data = (uint8_t *)copy(w, value);
}

void wf_onnx_put_ints(struct wf_onnx_writer *w, const char *name, int n, const int64_t values[])
{
    Onnx__AttributeProto *const a = attribute(w, name, TYPE_INTS);
    a->n_ints = (size_t)n;
    a->ints = wf_arena_array(&w->arena, n, int64_t);
    memcpy(a->ints, values, (size_t)n * sizeof *values);
}

/* --- initialisers --- */

static Onnx__TensorProto *tensor(struct wf_onnx_writer *w, const char *name, int type, int rank,
                                 const int64_t shape[])
{
    Onnx__TensorProto *const t = wf_arena_one(&w->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(t);
    t->name = copy(w, name);
    t->has_data_type = true;
    t->data_type = type;
    t->n_dims = (size_t)rank;
    t->dims = wf_arena_array(&w->arena, rank ? rank : 1, int64_t);
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        t->dims[i] = shape[i];
        count *= (size_t)shape[i];
    }
    t->has_raw_data = true;
    t->raw_data.len = count * (type == WF_ONNX_FLOAT ? sizeof(float) : sizeof(int64_t));
    t->raw_data.data = wf_arena_take(&w->arena, t->raw_data.len);
    WF_GROW(w->tensors, w->room_tensors, w->n_tensors);
    return w->tensors[w->n_tensors++] = t;
}

const char *wf_onnx_floats(struct wf_onnx_writer *w, int rank, const int64_t shape[],
                           const float values[])
{
    const Onnx__TensorProto *const t = tensor(w, new_name(w), WF_ONNX_FLOAT, rank, shape);
    memcpy(t->raw_data.data, values, t->raw_data.len);
    return t->name;
}

const char *wf_onnx_number(struct wf_onnx_writer *w, double value)
{
    const float one = (float)value;
    return wf_onnx_floats(w, 0, NULL, &one);
}

const char *wf_onnx_int_list(struct wf_onnx_writer *w, int n, const int64_t values[])
{
    const Onnx__TensorProto *const t = tensor(w, new_name(w), WF_ONNX_INT64, 1, (int64_t[]){ n });
    memcpy(t->raw_data.data, values, t->raw_data.len);
    return t->name;
}

const char *wf_onnx_fill(struct wf_onnx_writer *w, int64_t count, float value)
{
    const Onnx__TensorProto *const t = tensor(w, new_name(w), WF_ONNX_FLOAT, 1, &count);
    for (int64_t i = 0; i < count; i++)
        memcpy(t->raw_data.data + (size_t)i * sizeof value, &value, sizeof value);
    return t->name;
}

/* A weight, in `rank` axes (0: its own). Layers that share it share the initialiser. */
static const char *put_weight(struct wf_onnx_writer *w, const char *part, int rank)
{
    const char *const path = wf_layer_weights(w->layer);
    const char *const own = wf_arena_printf(&w->arena, "%s.%s", path, part);
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i]->name, own) == 0)
            return w->tensors[i]->name;
    struct wf_onnx_array a = { 0 };
    if (w->err.code != WF_OK || !w->e->weights(w->e->user, own, &a, &w->err))
        return own;
    int64_t shape[5] = { a.rank ? a.shape[0] : 1, 1, 1, 1, 1 };
    const Onnx__TensorProto *const t =
        tensor(w, own, WF_ONNX_FLOAT, rank ? rank : a.rank, rank ? shape : a.shape);
    memcpy(t->raw_data.data, a.data, t->raw_data.len);
    return t->name;
}

const char *wf_onnx_put_weight(struct wf_onnx_writer *w, const char *part)
{
    return put_weight(w, part, 0);
}

const char *wf_onnx_put_channels(struct wf_onnx_writer *w, const char *part)
{
    return put_weight(w, part, w->vector[1 + w->layer->in[0]] ? 1 : 1 + w->e->net->dims);
}

/* --- results --- */

const char *wf_onnx_image_of(struct wf_onnx_writer *w, int layer)
{
    const char *const x = w->names[1 + layer];
    if (!w->vector[1 + layer])
        return x;
    int64_t axes[3] = { 2, 3, 4 };
    return wf_onnx_emit(w, "Unsqueeze", NULL, 2,
                        (const char *[]){ x, wf_onnx_int_list(w, w->e->net->dims, axes) });
}

const char *wf_onnx_input(struct wf_onnx_writer *w, int k)
{
    return wf_onnx_image_of(w, w->layer->in[k]);
}

const char *wf_onnx_extents_of(struct wf_onnx_writer *w, const char *x)
{
    const char *const y = wf_onnx_emit(w, "Shape", NULL, 1, &x);
    wf_onnx_put_int(w, "start", 2);
    return y;
}

int64_t wf_onnx_channels(const struct wf_onnx_writer *w)
{
    return w->values[1 + w->layer->in[0]]->shape.at[WF_C];
}
