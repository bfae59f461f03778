/* Values by name, extents, numbers, constants, layers. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/utf8.h"
#include "onnx/inside.h"

/* --- values by name --- */

static size_t slot(const struct wf_onnx_import *im, const char *name)
{
    size_t i = (size_t)wf_random_stream(name) & (im->room_values - 1);
    while (im->table[i] && strcmp(im->table[i]->name, name) != 0)
        i = (i + 1) & (im->room_values - 1);
    return i;
}

static void grow(struct wf_onnx_import *im)
{
    struct wf_onnx_value **const old = im->table;
    const size_t room = im->room_values;
    im->room_values = room ? 2 * room : 1024;
    im->table = wf_arena_array(&im->arena, im->room_values, struct wf_onnx_value *);
    for (size_t i = 0; i < room; i++)
        if (old[i])
            im->table[slot(im, old[i]->name)] = old[i];
}

struct wf_onnx_value *wf_onnx_find(const struct wf_onnx_import *im, const char *name)
{
    return im->table ? im->table[slot(im, name)] : NULL;
}

struct wf_onnx_value *wf_onnx_define(struct wf_onnx_import *im, const char *name)
{
    if (2 * im->n_values >= im->room_values)
        grow(im);
    struct wf_onnx_value **const at = &im->table[slot(im, name)];
    im->n_values += *at == NULL;
    *at = wf_arena_one(&im->arena, struct wf_onnx_value); /* a later one of that name hides it */
    (*at)->name = wf_arena_copy(&im->arena, name);
    return *at;
}

struct wf_onnx_value *wf_onnx_in(const struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                 size_t index)
{
    if (index >= node->n_input || !node->input[index][0])
        return NULL;
    return wf_onnx_find(im, node->input[index]);
}

struct wf_onnx_value *wf_onnx_out(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                  size_t index)
{
    if (index >= node->n_output || !node->output[index][0])
        return NULL;
    return wf_onnx_define(im, node->output[index]);
}

bool wf_onnx_refuse(const struct wf_onnx_import *im, const Onnx__NodeProto *node,
                    struct wf_err *err, const char *format, ...)
{
    char text[512], shown[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *const name = node->name && node->name[0] ? node->name
                             : node->n_output > 0        ? node->output[0]
                                                         : "";
    return wf_err_set(err, WF_ERR_INPUT, "'%s': node '%s' (%s, operator set %" PRId64 "): %s",
                      im->model->path, wf_utf8_shown(name, shown, sizeof shown), node->op_type,
                      im->model->opset, text);
}

void wf_onnx_note(struct wf_onnx_import *im, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct wf_onnx_report *const r = im->report;
    for (size_t i = 0; i < r->n_notes; i++)
        if (strcmp(r->notes[i], text) == 0)
            return;
    WF_GROW(r->notes, r->room_notes, r->n_notes);
    r->notes[r->n_notes++] = wf_arena_copy(&r->arena, text);
}

/* --- extents --- */

struct wf_onnx_extent wf_onnx_extent(int64_t all)
{
    struct wf_onnx_extent e;
    for (int p = 0; p < WF_ONNX_PROBES; p++)
        e.at[p] = all;
    return e;
}

bool wf_onnx_extent_equal(const struct wf_onnx_import *im, struct wf_onnx_extent a,
                          struct wf_onnx_extent b)
{
    for (int p = 0; p < im->probes; p++)
        if (a.at[p] != b.at[p])
            return false;
    return true;
}

bool wf_onnx_extent_is(const struct wf_onnx_import *im, struct wf_onnx_extent a, int64_t value)
{
    return wf_onnx_extent_equal(im, a, wf_onnx_extent(value));
}

const struct wf_onnx_extent *wf_onnx_shape(const struct wf_onnx_import *im, int layer)
{
    return layer == WF_LAYER_IMAGE ? im->image : im->layers[layer].shape;
}

/* --- numbers --- */

struct wf_onnx_numbers *wf_onnx_numbers_new(struct wf_onnx_import *im, bool is_whole, int rank,
                                            const int64_t shape[])
{
    struct wf_onnx_numbers *const n = wf_arena_one(&im->arena, struct wf_onnx_numbers);
    n->is_whole = is_whole;
    n->rank = rank;
    n->count = 1;
    for (int i = 0; i < rank; i++) {
        n->shape[i] = shape[i];
        if (shape[i] < 0 || __builtin_mul_overflow(n->count, shape[i], &n->count) ||
            n->count > WF_ONNX_NUMBERS)
            return NULL;
    }
    im->n_numbers += n->count + 1;
    if (im->n_numbers > WF_ONNX_NUMBERS_IN_ALL)
        return NULL;
    n->at = wf_arena_take_array(&im->arena, (size_t)n->count, sizeof *n->at);
    n->from = wf_arena_array(&im->arena, n->count, struct wf_onnx_origin);
    return n;
}

const struct wf_onnx_numbers *wf_onnx_numbers(struct wf_onnx_import *im, struct wf_onnx_value *v)
{
    if (!v || v->numbers || v->kind != WF_ONNX_CONSTANT)
        return v ? v->numbers : NULL;
    struct wf_onnx_constant *const c = v->constant;
    struct wf_err ignored = { 0 };
    if (c->count > WF_ONNX_NUMBERS || !wf_onnx_load(im, c, &ignored))
        return NULL;
    v->numbers = wf_onnx_numbers_new(im, false, c->rank, c->shape);
    for (int64_t i = 0; v->numbers && i < c->count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            v->numbers->at[i][p] = (double)c->data[i];
    return v->numbers;
}

bool wf_onnx_number_is_fixed(const struct wf_onnx_import *im, const struct wf_onnx_numbers *n,
                             int64_t i, double *value)
{
    if (i >= n->count)
        return false;
    *value = n->at[i][0];
    for (int p = 1; p < im->probes; p++)
        if (n->at[i][p] != *value)
            return false;
    return isfinite(*value);
}

bool wf_onnx_ints(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t input,
                  const char *attribute, int most, int *count, int64_t *values)
{
    const Onnx__AttributeProto *const a = attribute ? wf_onnx_attr(node, attribute) : NULL;
    if (a) {
        if (a->n_ints > (size_t)most)
            return false;
        *count = (int)a->n_ints;
        for (int i = 0; i < *count; i++)
            values[i] = a->ints[i];
        return true;
    }
    const struct wf_onnx_numbers *const n = wf_onnx_numbers(im, wf_onnx_in(im, node, input));
    if (!n || n->count > most)
        return false;
    *count = (int)n->count;
    for (int i = 0; i < *count; i++) {
        double value;
        if (!wf_onnx_number_is_fixed(im, n, i, &value))
            return false;
        values[i] = (int64_t)fmax(-9e18, fmin(9e18, value)); /* "to the end" in either direction */
    }
    return true;
}

/* --- constants --- */

static struct wf_onnx_constant *constant_of(struct wf_onnx_import *im, const char *name, int rank,
                                            const int64_t shape[])
{
    struct wf_onnx_constant *const c = wf_arena_one(&im->arena, struct wf_onnx_constant);
    c->name = wf_arena_copy(&im->arena, name);
    c->rank = rank;
    c->count = 1;
    for (int i = 0; i < rank; i++) {
        c->shape[i] = shape[i];
        c->count *= shape[i];
    }
    c->next = im->constants;
    im->constants = c;
    return c;
}

struct wf_onnx_constant *wf_onnx_constant_new(struct wf_onnx_import *im, const char *name, int rank,
                                              const int64_t shape[], struct wf_err *err)
{
    struct wf_onnx_constant *const c = constant_of(im, name, rank, shape);
    c->data = malloc((size_t)(c->count ? c->count : 1) * sizeof *c->data);
    if (c->data)
        return c;
    (void)wf_err_set(err, WF_ERR_FIT, "'%s': no memory for tensor '%s'", im->model->path, name);
    return NULL;
}

bool wf_onnx_load(struct wf_onnx_import *im, struct wf_onnx_constant *c, struct wf_err *err)
{
    return c->data || wf_onnx_tensor_floats(im->model, c->proto, &c->data, err);
}

bool wf_onnx_initialise(struct wf_onnx_import *im, struct wf_onnx_value *v,
                        const Onnx__TensorProto *t, struct wf_err *err)
{
    int64_t count;
    if (!wf_onnx_tensor_count(im->model, t, &count, err))
        return false;
    if (wf_onnx_type_is_float(t->data_type)) {
        v->kind = WF_ONNX_CONSTANT;
        v->constant = constant_of(im, v->name, (int)t->n_dims, t->dims);
        v->constant->proto = t;
        return true;
    }
    v->kind = WF_ONNX_NUMBER;
    v->numbers = wf_onnx_numbers_new(im, true, (int)t->n_dims, t->dims);
    if (!v->numbers)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': tensor '%s' has %" PRId64 " integers: there is no rule for tables "
                          "of more than %d, and none for quantised weights",
                          im->model->path, v->name, count, WF_ONNX_NUMBERS);
    double *values;
    if (!wf_onnx_tensor_numbers(im->model, t, &values, err)) {
        free(values);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            v->numbers->at[i][p] = values[i];
    free(values);
    return true;
}

struct wf_onnx_constant *wf_onnx_constant(struct wf_onnx_import *im, struct wf_onnx_value *v,
                                          struct wf_err *err)
{
    if (!v || v->kind == WF_ONNX_FEATURES || v->kind == WF_ONNX_LIST)
        return NULL;
    if (v->constant)
        return wf_onnx_load(im, v->constant, err) ? v->constant : NULL;
    double value;
    for (int64_t i = 0; i < v->numbers->count; i++)
        if (!wf_onnx_number_is_fixed(im, v->numbers, i, &value))
            return NULL;
    struct wf_onnx_constant *const c =
        wf_onnx_constant_new(im, v->name, v->numbers->rank, v->numbers->shape, err);
    for (int64_t i = 0; c && i < c->count; i++)
        c->data[i] = (float)v->numbers->at[i][0];
    return v->constant = c;
}

/* --- layers --- */

struct wf_onnx_layer *wf_onnx_layer(const struct wf_onnx_import *im, int layer)
{
    return layer < 0 ? NULL : &im->layers[layer];
}

bool wf_onnx_is(const struct wf_onnx_import *im, int layer, const char *kind)
{
    return layer >= 0 && strcmp(im->layers[layer].kind, kind) == 0;
}

int wf_onnx_add(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind,
                const struct wf_layer_attrs *a, int n_in, const int in[])
{
    WF_GROW(im->layers, im->room_layers, im->n_layers);
    const int index = (int)im->n_layers++;
    struct wf_onnx_layer *const l = &im->layers[index];
    *l = (struct wf_onnx_layer){ .kind = kind,
                                 .name = "",
                                 .node = node,
                                 .n_in = n_in,
                                 .like = WF_LAYER_NONE,
                                 .replaced = WF_LAYER_NONE };
    if (a)
        l->a = *a;
    l->in = wf_arena_array(&im->arena, n_in, int);
    memcpy(l->in, in, (size_t)n_in * sizeof *in);
    memcpy(l->shape, wf_onnx_shape(im, in[0]), sizeof l->shape);
    return index;
}

bool wf_onnx_done_view(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer,
                       const struct wf_onnx_view *view)
{
    struct wf_onnx_value *const v = wf_onnx_out(im, node, 0);
    if (v) {
        v->kind = WF_ONNX_FEATURES;
        v->layer = layer;
        v->view = *view;
    }
    return true;
}

bool wf_onnx_done(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer, int rank)
{
    const struct wf_onnx_view view = wf_onnx_view(im, layer, rank ? rank : 2 + im->dims);
    return wf_onnx_done_view(im, node, layer, &view);
}

/* "encoder.conv1" of "encoder.conv1.weight"; a parameter that is no module's ("block.layer_scale") whole; NULL where
 * an exporter made the name up ("onnx::Mul_123", "val_7", "v7"). */
static const char *path_of(struct wf_onnx_import *im, const char *name, const char *part)
{
    const size_t n = strlen(name), k = strlen(part);
    const bool ends = n >= k + 2 && name[n - k - 1] == '.' && strcmp(name + n - k, part) == 0;
    if (!ends)
        return name[0] && strchr(name, '.') && !strpbrk(name, ":/") ? name : NULL;
    char *const path = wf_arena_copy(&im->arena, name);
    path[n - k - 1] = 0;
    return path;
}

char *wf_onnx_plain_name(struct wf_onnx_import *im, const char *name)
{
    char *const plain = wf_arena_copy(&im->arena, name);
    for (char *c = plain; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *c))
            *c = '_';
    return plain;
}

void wf_onnx_weight(struct wf_onnx_import *im, int layer, const char *part,
                    struct wf_onnx_constant *c)
{
    struct wf_onnx_layer *const l = &im->layers[layer];
    WF_BUG_ON(l->n_weights >= WF_ONNX_WEIGHTS, "%d weights", l->n_weights);
    l->weights[l->n_weights++] = (struct wf_onnx_weight){ part, c };
    const char *const path = l->name[0] ? NULL : path_of(im, c->name, part);
    if (path)
        l->name = wf_onnx_plain_name(im, path);
}
