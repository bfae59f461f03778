/* Constants of the file that an exporter reshapes or transposes before a layer reads them. */
#include <string.h>

#include "onnx/inside.h"

/* The result is called as its output where that is the path of a parameter (exporters join equal tensors, and give the
 * others' names to copies), otherwise it keeps its name. */
static const char *name_of(const Onnx__NodeProto *node, const struct wf_onnx_constant *from)
{
    const char *const name = node->n_output > 0 ? node->output[0] : "";
    return strchr(name, '.') && !strpbrk(name, ":/") ? name : from->name;
}

static bool done(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_constant *c)
{
    struct wf_onnx_value *const v = c ? wf_onnx_out(im, node, 0) : NULL;
    if (v) {
        v->kind = WF_ONNX_CONSTANT;
        v->constant = c;
    }
    return c != NULL;
}

static bool reshaped(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_constant *from, int rank, const int64_t shape[],
                     struct wf_err *err)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count))
            count = -1;
    if (count != from->count)
        return wf_onnx_refuse(im, node, err, "constant '%s' has another number of elements",
                              from->name);
    return done(im, node, wf_onnx_constant_like(im, name_of(node, from), from, rank, shape, err));
}

static bool reshape(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                    const struct wf_onnx_constant *c, struct wf_err *err)
{
    int rank = 0, open = -1;
    int64_t shape[WF_ONNX_RANK], known = 1;
    if (!wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &rank, shape))
        return wf_onnx_refuse(im, node, err, "its shape is not known");
    for (int i = 0; i < rank; i++) {
        if (i < c->rank && shape[i] == 0)
            shape[i] = c->shape[i];
        if (shape[i] < 0)
            open = i;
        else if (__builtin_mul_overflow(known, shape[i], &known))
            known = 0;
    }
    if (open >= 0)
        shape[open] = known ? c->count / known : 0;
    return reshaped(im, node, c, rank, shape, err);
}

/* Adds axes of extent 1, or leaves them out. */
static bool squeeze(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                    const struct wf_onnx_constant *c, struct wf_err *err)
{
    const bool adds = node->op_type[0] == 'U';
    int n = 0;
    int64_t axes[WF_ONNX_RANK], shape[WF_ONNX_RANK];
    const bool given = wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes);
    const int all = adds ? c->rank + n : c->rank;
    if ((adds && !given) || all > WF_ONNX_RANK)
        return wf_onnx_refuse(im, node, err, "its axes are not known, or too many");
    bool listed[WF_ONNX_RANK] = { 0 };
    for (int i = 0; i < n; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + all : axes[i];
        if (axis < 0 || axis >= all || listed[axis])
            return wf_onnx_refuse(im, node, err, "there is no such axis");
        listed[axis] = true;
    }
    int rank = 0;
    for (int i = 0, k = 0; i < all; i++) {
        if (adds)
            shape[rank++] = listed[i] || k >= c->rank ? 1 : c->shape[k++];
        else if (given ? !listed[i] : c->shape[i] != 1)
            shape[rank++] = c->shape[i];
    }
    return reshaped(im, node, c, rank, shape, err);
}

static bool transpose(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                      const struct wf_onnx_constant *c, struct wf_err *err)
{
    const Onnx__AttributeProto *const perm = wf_onnx_attr(node, "perm");
    int64_t shape[WF_ONNX_RANK], step[WF_ONNX_RANK] = { 0 }, stride[WF_ONNX_RANK], n = 1;
    bool seen[WF_ONNX_RANK] = { 0 };
    for (int i = c->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= c->shape[i];
    }
    for (int i = 0; i < c->rank; i++) {
        const int64_t from = !perm                      ? c->rank - 1 - i
                             : (size_t)i < perm->n_ints ? perm->ints[i]
                                                        : -1;
        if (from < 0 || from >= c->rank || seen[from])
            return wf_onnx_refuse(im, node, err, "perm is no permutation of the axes");
        seen[from] = true;
        shape[i] = c->shape[from];
        step[i] = stride[from];
    }
    struct wf_onnx_constant *const y =
        wf_onnx_constant_new(im, name_of(node, c), c->rank, shape, err);
    for (int64_t i = 0; y && i < y->count; i++) {
        int64_t index = 0, left = i;
        for (int axis = c->rank - 1; axis >= 0; axis--) {
            index += left % shape[axis] * step[axis];
            left /= shape[axis];
        }
        y->data[i] = c->data[index];
    }
    return done(im, node, y);
}

bool wf_onnx_constant_rule(struct wf_onnx_import *im, const Onnx__NodeProto *node, bool *found,
                           struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    const char *const op = node->op_type;
    const bool keeps =
        strcmp(op, "Identity") == 0 || strcmp(op, "CastLike") == 0 ||
        (strcmp(op, "Cast") == 0 && wf_onnx_type_is_float((int)wf_onnx_attr_int(node, "to", 0)));
    const bool squeezes = strcmp(op, "Squeeze") == 0 || strcmp(op, "Unsqueeze") == 0;
    *found = v && v->kind == WF_ONNX_CONSTANT &&
             (keeps || squeezes || strcmp(op, "Reshape") == 0 || strcmp(op, "Transpose") == 0);
    if (!*found)
        return true;
    const struct wf_onnx_constant *const c = wf_onnx_constant(im, v, err);
    if (!c)
        return false;
    if (keeps)
        return reshaped(im, node, c, c->rank, c->shape, err);
    if (squeezes)
        return squeeze(im, node, c, err);
    return op[0] == 'R' ? reshape(im, node, c, err) : transpose(im, node, c, err);
}
