#include "onnx/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "tensor/dtype.h"

enum { EXTERNAL = 1 };                   /* TensorProto.data_location */
static const uint64_t most = 1ull << 31; /* a protobuf message is at most 2 GiB */
static const int64_t most_elements = 1ll << 40;

/* --- the file --- */

static bool is_default(const char *domain)
{
    return !domain || !domain[0] || strcmp(domain, "ai.onnx") == 0;
}

static bool check_opset(struct wf_onnx_model *m, struct wf_err *err)
{
    for (size_t i = 0; i < m->proto->n_opset_import; i++)
        if (is_default(m->proto->opset_import[i]->domain))
            m->opset = m->proto->opset_import[i]->version;
    if (m->opset < WF_ONNX_OPSET_MIN || m->opset > WF_ONNX_OPSET_MAX)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': operator set %" PRId64 ", but %d to %d are read: export it with "
                          "opset_version=18, or use onnx.version_converter",
                          m->path, m->opset, WF_ONNX_OPSET_MIN, WF_ONNX_OPSET_MAX);
    if (m->proto->n_functions > 0) {
        const char *const name = m->proto->functions[0]->name;
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': it has %zu functions of its own ('%s'): inline them with "
                          "onnx.inliner.inline_local_functions, or export with optimize=True",
                          m->path, m->proto->n_functions, name ? name : "");
    }
    return true;
}

/* What ONNX demands of a graph and readers take for granted. */
static bool check_graph(const struct wf_onnx_model *m, const Onnx__GraphProto *g,
                        struct wf_err *err)
{
    for (size_t i = 0; i < g->n_node; i++) {
        if (!g->node[i]->op_type)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': node %zu has no operator", m->path, i);
        for (size_t k = 0; k < g->node[i]->n_attribute; k++)
            if (!g->node[i]->attribute[k]->name)
                return wf_err_set(err, WF_ERR_INPUT, "'%s': node %zu has an attribute without name",
                                  m->path, i);
    }
    for (size_t i = 0; i < g->n_initializer; i++)
        if (!g->initializer[i]->name)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': initialiser %zu has no name", m->path, i);
    for (size_t i = 0; i < g->n_input; i++)
        if (!g->input[i]->name)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': input %zu has no name", m->path, i);
    for (size_t i = 0; i < g->n_output; i++)
        if (!g->output[i]->name)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': output %zu has no name", m->path, i);
    return true;
}

struct wf_onnx_model *wf_onnx_model_parse(const char *path, const void *bytes, size_t size,
                                          struct wf_err *err)
{
    struct wf_onnx_model *const m = wf_take_zeroed(1, sizeof *m);
    m->path = wf_take_text(path);
    m->proto = onnx__model_proto__unpack(NULL, size, bytes);
    bool ok = m->proto != NULL;
    if (!ok)
        (void)wf_err_set(
            err, WF_ERR_INPUT,
            "'%s': not an ONNX file, or a truncated one: its %zu bytes are no complete "
            "message",
            path, size);
    if (ok && !m->proto->graph)
        ok = wf_err_set(err, WF_ERR_INPUT, "'%s': not an ONNX file: it has no graph", path);
    ok = ok && check_opset(m, err) && check_graph(m, m->proto->graph, err);
    if (ok)
        return m;
    wf_onnx_model_free(m);
    return NULL;
}

struct wf_onnx_model *wf_onnx_model_open(const char *path, struct wf_err *err)
{
    size_t size = 0;
    char *const bytes = wf_file_read(path, most, &size, err);
    if (!bytes)
        return NULL;
    struct wf_onnx_model *const m = wf_onnx_model_parse(path, bytes, size, err);
    free(bytes);
    if (!m)
        return NULL;
    const char *const slash = strrchr(path, '/');
    m->folder = wf_take_text(slash ? path : ".");
    if (slash)
        m->folder[slash == path ? 1 : slash - path] = 0;
    return m;
}

void wf_onnx_model_free(struct wf_onnx_model *m)
{
    if (!m)
        return;
    if (m->proto)
        onnx__model_proto__free_unpacked(m->proto, NULL);
    free(m->path);
    free(m->folder);
    free(m);
}

Onnx__GraphProto *wf_onnx_subgraph(const struct wf_onnx_model *m, const Onnx__AttributeProto *a,
                                   struct wf_err *err)
{
    Onnx__GraphProto *const g =
        a && a->has_g ? onnx__graph_proto__unpack(NULL, a->g.len, a->g.data) : NULL;
    if (!g) {
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s': a subgraph is missing or damaged", m->path);
        return NULL;
    }
    if (check_graph(m, g, err))
        return g;
    onnx__graph_proto__free_unpacked(g, NULL);
    return NULL;
}

/* --- constants --- */

bool wf_onnx_type_is_float(int type)
{
    return type == WF_ONNX_FLOAT || type == WF_ONNX_FLOAT16 || type == WF_ONNX_DOUBLE ||
           type == WF_ONNX_BFLOAT16;
}

bool wf_onnx_type_is_whole(int type)
{
    return (type >= WF_ONNX_UINT8 && type <= WF_ONNX_INT64) || type == WF_ONNX_BOOL ||
           type == WF_ONNX_UINT32 || type == WF_ONNX_UINT64;
}

static size_t type_size(int type)
{
    switch (type) {
    case WF_ONNX_UINT8:
    case WF_ONNX_INT8:
    case WF_ONNX_BOOL:
        return 1;
    case WF_ONNX_UINT16:
    case WF_ONNX_INT16:
    case WF_ONNX_FLOAT16:
    case WF_ONNX_BFLOAT16:
        return 2;
    case WF_ONNX_FLOAT:
    case WF_ONNX_INT32:
    case WF_ONNX_UINT32:
        return 4;
    default:
        return 8;
    }
}

static const char *shown(const Onnx__TensorProto *t)
{
    return t->name ? t->name : "";
}

bool wf_onnx_tensor_count(const struct wf_onnx_model *m, const Onnx__TensorProto *t, int64_t *count,
                          struct wf_err *err)
{
    *count = 1;
    if (t->n_dims > WF_ONNX_RANK)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': tensor '%s' has %zu axes, at most %d are read",
                          m->path, shown(t), t->n_dims, WF_ONNX_RANK);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0 || __builtin_mul_overflow(*count, t->dims[i], count) ||
            *count > most_elements)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': tensor '%s' has impossible extents",
                              m->path, shown(t));
    if (!wf_onnx_type_is_float(t->data_type) && !wf_onnx_type_is_whole(t->data_type))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': tensor '%s' is of type %d, which is neither a floating type nor "
                          "an integer",
                          m->path, shown(t), t->data_type);
    return true;
}

/* The bytes of a tensor that has them in one piece, little-endian; `*owned` must be freed. */
struct bytes {
    const unsigned char *at;
    unsigned char *owned;
};

/* A path that stays in the folder: relative, and no part of it goes up. */
static bool is_inside(const char *location)
{
    if (!location[0] || location[0] == '/')
        return false;
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0))
            return false;
    }
    return true;
}

static bool read_external(const struct wf_onnx_model *m, const Onnx__TensorProto *t, size_t size,
                          struct bytes *b, struct wf_err *err)
{
    const char *location = NULL;
    uint64_t offset = 0, length = size;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *const e = t->external_data[i];
        if (!e->key || !e->value)
            continue;
        if (strcmp(e->key, "location") == 0)
            location = e->value;
        else if (strcmp(e->key, "offset") == 0)
            offset = strtoull(e->value, NULL, 10);
        else if (strcmp(e->key, "length") == 0)
            length = strtoull(e->value, NULL, 10);
    }
    if (!m->folder || !location || !is_inside(location))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': the data of tensor '%s' is in '%s', which is not inside the "
                          "model's folder: put it beside the model",
                          m->path, shown(t), location ? location : "");
    if (length != size)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': tensor '%s' needs %zu bytes, but '%s' is said to have %" PRIu64,
                          m->path, shown(t), size, location, length);
    const size_t room = strlen(m->folder) + strlen(location) + 2;
    char *const path = wf_take(room);
    (void)snprintf(path, room, "%s/%s", m->folder, location);
    struct wf_infile in;
    bool ok = wf_infile_open(&in, path, err);
    if (ok) {
        if (offset > in.size || size > in.size - offset)
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s': it ends before tensor '%s' of '%s', which needs %zu bytes from "
                            "%" PRIu64 ": copy the whole file",
                            path, shown(t), m->path, size, offset);
        if (ok && !(b->owned = malloc(size ? size : 1)))
            ok = wf_err_set(err, WF_ERR_FIT, "'%s': no memory for tensor '%s'", path, shown(t));
        ok = ok && wf_infile_read(&in, offset, b->owned, size, err);
        b->at = b->owned;
        wf_infile_close(&in);
    }
    free(path);
    return ok;
}

static bool wrong_size(const struct wf_onnx_model *m, const Onnx__TensorProto *t, int64_t want,
                       size_t got, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': tensor '%s' should have %" PRId64 " elements, but the file has %zu",
                      m->path, shown(t), want, got);
}

/* Elements that are not in one piece of bytes: one repeated field per family of types. */
static size_t listed(const Onnx__TensorProto *t)
{
    switch (t->data_type) {
    case WF_ONNX_FLOAT:
        return t->n_float_data;
    case WF_ONNX_DOUBLE:
        return t->n_double_data;
    case WF_ONNX_INT64:
        return t->n_int64_data;
    case WF_ONNX_UINT32:
    case WF_ONNX_UINT64:
        return t->n_uint64_data;
    default:
        return t->n_int32_data;
    }
}

static double listed_at(const Onnx__TensorProto *t, int64_t i)
{
    switch (t->data_type) {
    case WF_ONNX_FLOAT:
        return (double)t->float_data[i];
    case WF_ONNX_DOUBLE:
        return t->double_data[i];
    case WF_ONNX_INT64:
        return (double)t->int64_data[i];
    case WF_ONNX_UINT32:
    case WF_ONNX_UINT64:
        return (double)t->uint64_data[i];
    case WF_ONNX_FLOAT16:
        return (double)wf_f16_to_f32((uint16_t)t->int32_data[i]);
    case WF_ONNX_BFLOAT16:
        return (double)wf_bf16_to_f32((uint16_t)t->int32_data[i]);
    default:
        return (double)t->int32_data[i];
    }
}

#define ELEMENT(type)                                                                              \
    {                                                                                              \
        type v;                                                                                    \
        memcpy(&v, at, sizeof v);                                                                  \
        return (double)v;                                                                          \
    }

static double packed_at(int type, const unsigned char *bytes, int64_t i)
{
    const unsigned char *const at = bytes + (size_t)i * type_size(type);
    uint16_t half;
    memcpy(&half, at, type_size(type) < 2 ? 1 : 2);
    switch (type) {
    case WF_ONNX_FLOAT:
        ELEMENT(float)
    case WF_ONNX_DOUBLE:
        ELEMENT(double)
    case WF_ONNX_FLOAT16:
        return (double)wf_f16_to_f32(half);
    case WF_ONNX_BFLOAT16:
        return (double)wf_bf16_to_f32(half);
    case WF_ONNX_INT8:
        ELEMENT(int8_t)
    case WF_ONNX_UINT16:
        ELEMENT(uint16_t)
    case WF_ONNX_INT16:
        ELEMENT(int16_t)
    case WF_ONNX_INT32:
        ELEMENT(int32_t)
    case WF_ONNX_UINT32:
        ELEMENT(uint32_t)
    case WF_ONNX_INT64:
        ELEMENT(int64_t)
    case WF_ONNX_UINT64:
        ELEMENT(uint64_t)
    default:
        return (double)*at;
    }
}

/* Finds the elements and checks their number. */
static bool find(const struct wf_onnx_model *m, const Onnx__TensorProto *t, int64_t *count,
                 struct bytes *b, struct wf_err *err)
{
    *b = (struct bytes){ 0 };
    if (!wf_onnx_tensor_count(m, t, count, err))
        return false;
    const size_t one = type_size(t->data_type), size = (size_t)*count * one;
    if (t->data_location == EXTERNAL)
        return read_external(m, t, size, b, err);
    if (t->has_raw_data) {
        b->at = t->raw_data.data;
        return t->raw_data.len == size || wrong_size(m, t, *count, t->raw_data.len / one, err);
    }
    return listed(t) == (size_t)*count || wrong_size(m, t, *count, listed(t), err);
}

static double element(const Onnx__TensorProto *t, const struct bytes *b, int64_t i)
{
    return b->at ? packed_at(t->data_type, b->at, i) : listed_at(t, i);
}

static bool no_memory(const struct wf_onnx_model *m, const Onnx__TensorProto *t, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for tensor '%s'", m->path, shown(t));
}

bool wf_onnx_tensor_floats(const struct wf_onnx_model *m, const Onnx__TensorProto *t,
                           float **values, struct wf_err *err)
{
    int64_t count;
    struct bytes b;
    bool ok = find(m, t, &count, &b, err);
    float *const to = ok ? malloc((size_t)(count ? count : 1) * sizeof *to) : NULL;
    if (ok && !to)
        ok = no_memory(m, t, err);
    if (to && t->data_type == WF_ONNX_FLOAT && b.at)
        memcpy(to, b.at, (size_t)count * sizeof *to);
    else if (to)
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)element(t, &b, i);
    free(b.owned);
    *values = to;
    return ok;
}

bool wf_onnx_tensor_numbers(const struct wf_onnx_model *m, const Onnx__TensorProto *t,
                            double **values, struct wf_err *err)
{
    int64_t count;
    struct bytes b;
    bool ok = find(m, t, &count, &b, err);
    double *const to = ok ? malloc((size_t)(count ? count : 1) * sizeof *to) : NULL;
    if (ok && !to)
        ok = no_memory(m, t, err);
    for (int64_t i = 0; to && i < count; i++)
        to[i] = element(t, &b, i);
    free(b.owned);
    *values = to;
    return ok;
}

/* --- attributes --- */

const Onnx__AttributeProto *wf_onnx_attr(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    return NULL;
}

int64_t wf_onnx_attr_int(const Onnx__NodeProto *node, const char *name, int64_t fallback)
{
    const Onnx__AttributeProto *const a = wf_onnx_attr(node, name);
    return a && a->has_i ? a->i : fallback;
}

double wf_onnx_attr_real(const Onnx__NodeProto *node, const char *name, double fallback)
{
    const Onnx__AttributeProto *const a = wf_onnx_attr(node, name);
    return a && a->has_f ? (double)a->f : fallback;
}

const char *wf_onnx_attr_text(const Onnx__NodeProto *node, const char *name, const char *fallback,
                              char *text, size_t room)
{
    const Onnx__AttributeProto *const a = wf_onnx_attr(node, name);
    if (!a || !a->has_s || a->s.len >= room)
        return fallback;
    memcpy(text, a->s.data, a->s.len);
    text[a->s.len] = 0;
    return text;
}
