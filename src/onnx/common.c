/* What rules of several files share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/inside.h"

double wf_onnx_tidy(double value)
{
    char text[32];
    for (int digits = 4; digits < 10; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            return strtod(text, NULL);
    }
    return value;
}

bool wf_onnx_constant_is(const struct wf_onnx_constant *c, float value)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->data[i] != value)
            return false;
    return true;
}

struct wf_onnx_constant *wf_onnx_constant_like(struct wf_onnx_import *im, const char *name,
                                               const struct wf_onnx_constant *from, int rank,
                                               const int64_t shape[], struct wf_err *err)
{
    struct wf_onnx_constant *const c =
        wf_onnx_constant_new(im, name ? name : from->name, rank, shape, err);
    if (!c)
        return NULL;
    WF_BUG_ON(c->count != from->count, "%lld of %lld elements", (long long)c->count,
              (long long)from->count);
    memcpy(c->data, from->data, (size_t)c->count * sizeof *c->data);
    return c;
}

struct wf_onnx_constant *wf_onnx_constant_fill(struct wf_onnx_import *im, const char *name,
                                               int64_t count, float value, struct wf_err *err)
{
    struct wf_onnx_constant *const c = wf_onnx_constant_new(im, name, 1, &count, err);
    for (int64_t i = 0; c && i < count; i++)
        c->data[i] = value;
    return c;
}

int wf_onnx_copy(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer)
{
    const struct wf_onnx_layer from = im->layers[layer];
    const int y = wf_onnx_add(im, node, from.kind, &from.a, from.n_in, from.in);
    struct wf_onnx_layer *const l = &im->layers[y];
    memcpy(l->shape, from.shape, sizeof l->shape);
    memcpy(l->weights, from.weights, sizeof l->weights);
    l->n_weights = from.n_weights;
    l->name = from.name;
    l->like = from.like;
    return y;
}

static bool has_extents(const struct wf_onnx_import *im, int layer,
                        const struct wf_onnx_extent extents[3])
{
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, layer);
    bool same = true;
    for (int i = 3 - im->dims; same && i < 3; i++)
        same = wf_onnx_extent_equal(im, shape[WF_ONNX_D + i], extents[i]);
    return same;
}

int wf_onnx_layer_like(const struct wf_onnx_import *im, const struct wf_onnx_extent extents[3])
{
    if (has_extents(im, WF_LAYER_IMAGE, extents))
        return WF_LAYER_IMAGE;
    for (int i = (int)im->n_layers - 1; i >= 0; i--)
        if (has_extents(im, i, extents) && !wf_onnx_is(im, i, "empty"))
            return i;
    return WF_LAYER_NONE;
}

int wf_onnx_add_like(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind,
                     const struct wf_layer_attrs *a, int x, int like)
{
    const int y = wf_onnx_add(im, node, kind, a, 1, &x);
    struct wf_onnx_layer *const l = &im->layers[y];
    l->like = like;
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        l->shape[axis] = wf_onnx_shape(im, like)[axis];
    return y;
}
