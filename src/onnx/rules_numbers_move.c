/* Operators that move numbers that are known: parts of shapes, put together anew. */
#include <string.h>

#include "onnx/numbers.h"

static struct wf_onnx_numbers *reshaped(struct wf_onnx_import *im, wf_onnx_nums *a, int rank,
                                        const int64_t extents[])
{
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, rank, extents);
    if (!y || y->count != a->count)
        return NULL;
    for (int64_t i = 0; i < y->count; i++)
        wf_onnx_nums_copy(y, i, a, i);
    return y;
}

static bool identity(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    if (!a)
        return wf_onnx_nums_unknown(im, node, err);
    return wf_onnx_nums_out(im, node, 0, reshaped(im, a, a->rank, a->shape)) ||
           wf_onnx_nums_too_many(im, node, err);
}

static bool reshape(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    int rank, free_axis = -1;
    int64_t extents[WF_ONNX_RANK], known = 1;
    if (!a || !wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &rank, extents))
        return wf_onnx_nums_unknown(im, node, err);
    for (int i = 0; i < rank; i++) {
        if (i < a->rank && extents[i] == 0 && !wf_onnx_attr_int(node, "allowzero", 0))
            extents[i] = a->shape[i];
        if (extents[i] < 0)
            free_axis = i;
        else if (__builtin_mul_overflow(known, extents[i], &known))
            return wf_onnx_nums_too_many(im, node, err);
    }
    if (free_axis >= 0)
        extents[free_axis] = known ? a->count / known : 0;
    return wf_onnx_nums_out(im, node, 0, reshaped(im, a, rank, extents)) ||
           wf_onnx_nums_too_many(im, node, err);
}

static bool unsqueeze(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    int n;
    int64_t axes[WF_ONNX_RANK], extents[WF_ONNX_RANK];
    if (!a || !wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes) ||
        a->rank + n > WF_ONNX_RANK)
        return wf_onnx_nums_unknown(im, node, err);
    const int rank = a->rank + n;
    bool added[WF_ONNX_RANK] = { 0 };
    for (int i = 0; i < n; i++) {
        const int64_t axis = wf_onnx_nums_axis(axes[i], rank);
        if (axis < 0 || axis >= rank)
            return wf_onnx_nums_unknown(im, node, err);
        added[axis] = true;
    }
    for (int i = 0, k = 0; i < rank; i++)
        extents[i] = added[i] || k >= a->rank ? 1 : a->shape[k++];
    return wf_onnx_nums_out(im, node, 0, reshaped(im, a, rank, extents)) ||
           wf_onnx_nums_too_many(im, node, err);
}

static bool squeeze(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    int n = 0, rank = 0;
    int64_t axes[WF_ONNX_RANK], extents[WF_ONNX_RANK];
    const bool given = wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes);
    if (!a)
        return wf_onnx_nums_unknown(im, node, err);
    for (int i = 0; i < a->rank; i++) {
        bool drop = !given && a->shape[i] == 1;
        for (int k = 0; given && k < n; k++)
            drop |= wf_onnx_nums_axis(axes[k], a->rank) == i;
        if (!drop)
            extents[rank++] = a->shape[i];
    }
    return wf_onnx_nums_out(im, node, 0, reshaped(im, a, rank, extents)) ||
           wf_onnx_nums_too_many(im, node, err);
}

static bool transpose(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    const Onnx__AttributeProto *const perm = wf_onnx_attr(node, "perm");
    if (!a || (perm && perm->n_ints != (size_t)a->rank))
        return wf_onnx_nums_unknown(im, node, err);
    int64_t extents[WF_ONNX_RANK] = { 0 }, stride[WF_ONNX_RANK] = { 0 };
    int64_t step[WF_ONNX_RANK] = { 0 };
    bool seen[WF_ONNX_RANK] = { 0 };
    WF_BUG_ON(a->rank > WF_ONNX_RANK, "%d axes", a->rank);
    wf_onnx_nums_strides(a->rank, a->shape, stride);
    for (int i = 0; i < a->rank; i++) {
        const int64_t from = perm ? perm->ints[i] : a->rank - 1 - i;
        if (from < 0 || from >= a->rank || seen[from])
            return wf_onnx_nums_unknown(im, node, err);
        seen[from] = true;
        extents[i] = a->shape[from];
        step[i] = stride[from];
    }
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, a->rank, extents);
    if (!y || y->count != a->count)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++) {
        int64_t index = 0;
        for (int64_t axis = a->rank - 1, left = i; axis >= 0; axis--) {
            const int64_t extent = extents[axis] > 0 ? extents[axis] : 1;
            index += left % extent * step[axis];
            left /= extent;
        }
        wf_onnx_nums_copy(y, i, a, index);
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool expand(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    struct wf_onnx_numbers want = { .rank = 0 };
    int rank;
    int64_t extents[WF_ONNX_RANK];
    if (!a || !wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &want.rank, want.shape) ||
        !wf_onnx_nums_shape(a, &want, &rank, extents))
        return wf_onnx_nums_unknown(im, node, err);
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, rank, extents);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++)
        wf_onnx_nums_copy(y, i, a, wf_onnx_nums_index(rank, extents, i, a));
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool gather(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0), *const index =
                                                              wf_onnx_nums_in(im, node, 1);
    if (!a || !index || a->rank < 1 || a->rank - 1 + index->rank > WF_ONNX_RANK)
        return wf_onnx_nums_unknown(im, node, err);
    const int64_t axis = wf_onnx_nums_axis(wf_onnx_attr_int(node, "axis", 0), a->rank);
    if (axis < 0 || axis >= a->rank)
        return wf_onnx_nums_unknown(im, node, err);
    int rank = 0;
    int64_t extents[WF_ONNX_RANK], inner = 1;
    for (int i = 0; i < axis; i++)
        extents[rank++] = a->shape[i];
    for (int i = 0; i < index->rank; i++)
        extents[rank++] = index->shape[i];
    for (int64_t i = axis + 1; i < a->rank; i++) {
        extents[rank++] = a->shape[i];
        inner *= a->shape[i];
    }
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, rank, extents);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t k = i / inner % index->count, outer = i / inner / index->count;
        double at;
        if (!wf_onnx_number_is_fixed(im, index, k, &at))
            return wf_onnx_nums_unknown(im, node, err);
        const double place = at < 0 ? at + (double)a->shape[axis] : at;
        if (!(place >= 0 && place < (double)a->shape[axis]))
            return wf_onnx_nums_unknown(im, node, err);
        wf_onnx_nums_copy(y, i, a, (outer * a->shape[axis] + (int64_t)place) * inner + i % inner);
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* The part of one axis. */
static struct wf_onnx_numbers *part(struct wf_onnx_import *im, wf_onnx_nums *a, int64_t axis,
                                    int64_t from, int64_t to, int64_t step)
{
    const int64_t extent = a->shape[axis];
    WF_BUG_ON(step == 0, "a step of nothing along axis %d", (int)axis);
    from = clamp(from < 0 ? from + extent : from, 0, step > 0 ? extent : extent - 1);
    to = to < 0 ? to + extent : to;
    to = step > 0 ? clamp(to, 0, extent) : clamp(to, -1, extent);
    int64_t extents[WF_ONNX_RANK], inner = 1;
    memcpy(extents, a->shape, sizeof extents);
    extents[axis] = step > 0 ? (to - from + step - 1) / step : (to - from + step + 1) / step;
    const int64_t kept = clamp(extents[axis], 0, extent);
    extents[axis] = kept;
    for (int64_t i = axis + 1; i < a->rank; i++)
        inner *= a->shape[i];
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, a->rank, extents);
    for (int64_t i = 0; y && kept > 0 && i < y->count; i++)
        wf_onnx_nums_copy(y, i, a,
                          (i / inner / kept * extent + from + i / inner % kept * step) * inner +
                              i % inner);
    return y;
}

static bool slice(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *a = wf_onnx_nums_in(im, node, 0);
    int n, n_to, n_axes, n_steps;
    int64_t from[WF_ONNX_RANK], to[WF_ONNX_RANK], axes[WF_ONNX_RANK], steps[WF_ONNX_RANK];
    if (!a || !wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &n, from) ||
        !wf_onnx_ints(im, node, 2, NULL, WF_ONNX_RANK, &n_to, to) || n_to != n)
        return wf_onnx_nums_unknown(im, node, err);
    const bool has_axes = wf_onnx_ints(im, node, 3, NULL, WF_ONNX_RANK, &n_axes, axes);
    const bool has_steps = wf_onnx_ints(im, node, 4, NULL, WF_ONNX_RANK, &n_steps, steps);
    if ((has_axes && n_axes != n) || (has_steps && n_steps != n))
        return wf_onnx_nums_unknown(im, node, err);
    struct wf_onnx_numbers *y = NULL;
    for (int i = 0; i < n; i++) {
        const int64_t axis = wf_onnx_nums_axis(has_axes ? axes[i] : i, a->rank);
        const int64_t step = has_steps ? steps[i] : 1;
        if (axis < 0 || axis >= a->rank || step == 0 || step < -(1 << 30) || step > 1 << 30)
            return wf_onnx_nums_unknown(im, node, err);
        y = part(im, a, axis, from[i], to[i], step);
        if (!y)
            return wf_onnx_nums_too_many(im, node, err);
        a = y;
    }
    if (!y)
        y = reshaped(im, a, a->rank, a->shape);
    return wf_onnx_nums_out(im, node, 0, y) || wf_onnx_nums_too_many(im, node, err);
}

static bool concat(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const first = wf_onnx_nums_in(im, node, 0);
    if (!first || first->rank < 1)
        return wf_onnx_nums_unknown(im, node, err);
    const int64_t axis = wf_onnx_nums_axis(wf_onnx_attr_int(node, "axis", 0), first->rank);
    int64_t extents[WF_ONNX_RANK], total = 0, inner = 1;
    if (axis < 0 || axis >= first->rank)
        return wf_onnx_nums_unknown(im, node, err);
    for (size_t k = 0; k < node->n_input; k++) {
        wf_onnx_nums *const a = wf_onnx_nums_in(im, node, k);
        if (!a || a->rank != first->rank)
            return wf_onnx_nums_unknown(im, node, err);
        for (int i = 0; i < a->rank; i++)
            if (i != axis && a->shape[i] != first->shape[i])
                return wf_onnx_nums_unknown(im, node, err);
        total += a->shape[axis];
    }
    memcpy(extents, first->shape, sizeof extents);
    extents[axis] = total;
    for (int64_t i = axis + 1; i < first->rank; i++)
        inner *= first->shape[i];
    struct wf_onnx_numbers *const y =
        wf_onnx_numbers_new(im, first->is_whole, first->rank, extents);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    int64_t before = 0;
    for (size_t k = 0; k < node->n_input; k++) {
        wf_onnx_nums *const a = wf_onnx_nums_in(im, node, k);
        const int64_t mine = a->shape[axis] * inner;
        for (int64_t i = 0; i < a->count; i++)
            wf_onnx_nums_copy(y, i / mine * total * inner + before * inner + i % mine, a, i);
        before += a->shape[axis];
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool split(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    const int64_t axis = a ? wf_onnx_nums_axis(wf_onnx_attr_int(node, "axis", 0), a->rank) : -1;
    int n = 0;
    int64_t sizes[WF_ONNX_IN], at = 0;
    if (axis < 0 || axis >= a->rank || node->n_output > WF_ONNX_IN)
        return wf_onnx_nums_unknown(im, node, err);
    if (!wf_onnx_ints(im, node, 1, "split", WF_ONNX_IN, &n, sizes)) {
        n = (int)node->n_output;
        for (int i = 0; i < n; i++)
            sizes[i] = (a->shape[axis] + n - 1) / n;
    }
    for (int i = 0; i < n && (size_t)i < node->n_output; i++) {
        if (sizes[i] < 0 || sizes[i] > a->shape[axis])
            return wf_onnx_nums_unknown(im, node, err);
        if (!wf_onnx_nums_out(im, node, (size_t)i, part(im, a, axis, at, at + sizes[i], 1)))
            return wf_onnx_nums_too_many(im, node, err);
        at += sizes[i];
    }
    return true;
}

const struct wf_onnx_rule_row wf_onnx_rules_numbers_move[] = {
    { "Identity", identity },
    { "Reshape", reshape },
    { "Unsqueeze", unsqueeze },
    { "Squeeze", squeeze },
    { "Transpose", transpose },
    { "Expand", expand },
    { "Gather", gather },
    { "Slice", slice },
    { "Concat", concat },
    { "Split", split },
    { .op = NULL },
};
