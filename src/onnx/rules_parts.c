/* Parts of a result: splits, slices along channels and positions, single positions of an axis. */
#include <inttypes.h>
#include <string.h>

#include "onnx/inside.h"

/* A view of an image whose channels are shuffled is made plain, once for all that take parts of it. */
static bool unshuffled(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                       struct wf_onnx_value *v, struct wf_err *err)
{
    const bool whole = v->view.rank != 2 + im->dims || v->view.axis[1].n < 2;
    return whole || wf_onnx_plain(im, node, v, err) != WF_LAYER_NONE;
}

/* Channels from .. to - 1 of x. */
static int channel_part(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, int64_t from,
                        int64_t to)
{
    const int64_t all = wf_onnx_shape(im, x)[WF_ONNX_C].at[0];
    if (from == 0 && to == all)
        return x;
    const struct wf_layer_attrs a = { .axis = WF_LAYER_CHANNELS,
                                      .from = from,
                                      .to = to == all ? 0 : to };
    const int y = wf_onnx_add(im, node, "slice", &a, 1, &x);
    im->layers[y].shape[WF_ONNX_C] = wf_onnx_extent(to - from);
    return y;
}

/* The part of v from `at` along the axis of its channels, as a value. */
static struct wf_onnx_value channel_value(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                          const struct wf_onnx_value *v, int axis, int64_t at,
                                          int64_t size)
{
    struct wf_onnx_value part = *v;
    part.layer = channel_part(im, node, v->layer, at, at + size);
    part.view.axis[axis] = wf_onnx_view(im, part.layer, 2).axis[1];
    return part;
}

/* How a node splits `all` channels into *n parts: by its input or attribute, or evenly. */
static bool split_sizes(struct wf_onnx_import *im, const Onnx__NodeProto *node, int64_t all, int *n,
                        int64_t sizes[WF_ONNX_IN], struct wf_err *err)
{
    const bool to_list = strcmp(node->op_type, "SplitToSequence") == 0;
    const struct wf_onnx_numbers *const given = wf_onnx_numbers(im, wf_onnx_in(im, node, 1));
    int64_t each = to_list ? 1 : (all + (int64_t)node->n_output - 1) / (int64_t)node->n_output;
    const bool listed = wf_onnx_ints(im, node, 1, "split", WF_ONNX_IN, n, sizes);
    if (!listed || (to_list && given && given->rank == 0)) {
        each = listed ? sizes[0] : each;
        if (each < 1 || (all + each - 1) / each > WF_ONNX_IN)
            return wf_onnx_refuse(im, node, err, "parts of %" PRId64 " of %" PRId64 " channels",
                                  each, all);
        *n = (int)((all + each - 1) / each);
        for (int i = 0; i < *n; i++)
            sizes[i] = i + 1 < *n ? each : all - i * each;
    }
    int64_t sum = 0;
    for (int i = 0; i < *n; i++) {
        if (sizes[i] < 1 || sizes[i] > all)
            return wf_onnx_refuse(im, node, err, "a part of %" PRId64 " channels", sizes[i]);
        sum += sizes[i];
    }
    return sum == all ||
           wf_onnx_refuse(im, node, err, "parts of %" PRId64 " channels do not fit", all);
}

static bool split(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const found = wf_onnx_features_in(im, node, 0, err);
    int axis, n = 0;
    int64_t sizes[WF_ONNX_IN], at = 0;
    if (!found || !unshuffled(im, node, found, err) ||
        !wf_onnx_channel_axis(im, node, found, 0, &axis, err))
        return false;
    const struct wf_onnx_value v = *found;
    if (node->n_output == 0 ||
        !split_sizes(im, node, wf_onnx_shape(im, v.layer)[WF_ONNX_C].at[0], &n, sizes, err))
        return node->n_output == 0;
    const bool to_list = strcmp(node->op_type, "SplitToSequence") == 0;
    struct wf_onnx_value *const list = to_list ? wf_onnx_out(im, node, 0) : NULL;
    if (list) {
        list->kind = WF_ONNX_LIST;
        list->n_parts = n;
        list->parts = wf_arena_array(&im->arena, n, struct wf_onnx_value);
    }
    for (int i = 0; i < n; i++) {
        struct wf_onnx_value *const out = list      ? &list->parts[i]
                                          : to_list ? NULL
                                                    : wf_onnx_out(im, node, (size_t)i);
        if (out) {
            const char *const name = out->name;
            *out = channel_value(im, node, &v, axis, at, sizes[i]);
            out->name = name;
        }
        at += sizes[i];
    }
    return true;
}

static bool sequence_at(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const list = wf_onnx_in(im, node, 0);
    int n = 0;
    int64_t index = 0;
    if (!list || list->kind != WF_ONNX_LIST || !wf_onnx_ints(im, node, 1, NULL, 1, &n, &index) ||
        n != 1)
        return wf_onnx_refuse(im, node, err, "the rule is for a known part of a list");
    index += index < 0 ? list->n_parts : 0;
    if (index < 0 || index >= list->n_parts)
        return wf_onnx_refuse(im, node, err, "the list has %d parts", list->n_parts);
    return wf_onnx_done_view(im, node, list->parts[index].layer, &list->parts[index].view);
}

/* One axis of a slice, as begin and end for each probe. */
struct part {
    int axis; /* of the view */
    struct wf_onnx_extent from, to;
    int64_t step;
};

/* Where the numbers say for each probe, as ONNX counts: from the end where negative, and cut off. */
static struct wf_onnx_extent place(const struct wf_onnx_numbers *n, int64_t i,
                                   struct wf_onnx_extent extent)
{
    struct wf_onnx_extent y;
    for (int p = 0; p < WF_ONNX_PROBES; p++) {
        const double all = (double)extent.at[p];
        double at = n->at[i][p] < 0 ? n->at[i][p] + all : n->at[i][p];
        at = at < 0 ? 0 : at > all ? all : at;
        y.at[p] = (int64_t)at;
    }
    return y;
}

/* To the extents of another layer, from the beginning or the middle. Where there is none yet, other axes may still be
 * cut: the layer "cropped" waits for them, and is refused at the end where nobody cut on. `from`, `to`: whether it may be
 * from the middle, or from the beginning. */
static int spatial_part_like(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x,
                             int which, const struct part *part, struct wf_err *err)
{
    const bool waits = wf_onnx_is(im, x, "cropped");
    const struct wf_onnx_extent extent = wf_onnx_shape(im, x)[which];
    bool centred = !waits || im->layers[x].a.from, at_start = !waits || im->layers[x].a.to;
    struct wf_onnx_extent extents[3], length;
    for (int p = 0; p < WF_ONNX_PROBES; p++) {
        length.at[p] = part->to.at[p] - part->from.at[p];
        centred &= part->from.at[p] == (extent.at[p] - length.at[p] + 1) / 2; /* as wf_fit() */
        at_start &= part->from.at[p] == 0;
    }
    if (!centred && !at_start) {
        (void)wf_onnx_refuse(im, node, err,
                             "where it cuts depends on the image, and is neither from the "
                             "beginning nor from the middle");
        return WF_LAYER_NONE;
    }
    memcpy(extents, wf_onnx_shape(im, x) + WF_ONNX_D, sizeof extents);
    extents[which - WF_ONNX_D] = length;
    const int from = waits ? im->layers[x].in[0] : x, like = wf_onnx_layer_like(im, extents);
    const struct wf_layer_attrs a = { .align = at_start ? WF_LAYER_START : WF_LAYER_CENTRE },
                                open = { .from = centred, .to = at_start };
    if (like != WF_LAYER_NONE)
        return wf_onnx_add_like(im, node, "fit", &a, from, like);
    const int y = wf_onnx_add(im, node, "cropped", &open, 1, &from);
    memcpy(im->layers[y].shape + WF_ONNX_D, extents, sizeof extents);
    return y;
}

/* Along a spatial axis of a plain layer: fixed numbers from either end, or to the extents of another layer. */
static int spatial_part(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, int which,
                        const struct part *part, struct wf_err *err)
{
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, x);
    const struct wf_onnx_extent extent = shape[which];
    struct wf_onnx_extent behind, length;
    for (int p = 0; p < WF_ONNX_PROBES; p++) {
        behind.at[p] = extent.at[p] - part->to.at[p];
        length.at[p] = part->to.at[p] - part->from.at[p];
    }
    struct wf_layer_attrs a = { .axis = which - WF_ONNX_D + WF_LAYER_DEPTH };
    const bool from_fixed = wf_onnx_extent_is(im, part->from, part->from.at[0]);
    if (from_fixed && wf_onnx_extent_is(im, behind, behind.at[0])) {
        a.from = part->from.at[0];
        a.to = -behind.at[0];
    } else if (from_fixed && wf_onnx_extent_is(im, part->to, part->to.at[0])) {
        a.from = part->from.at[0];
        a.to = part->to.at[0];
    } else {
        return spatial_part_like(im, node, x, which, part, err);
    }
    const int y = wf_onnx_add(im, node, "slice", &a, 1, &x);
    im->layers[y].shape[which] = length;
    return y;
}

/* Every n-th position along a spatial axis: the mean of windows of one. */
static bool stride(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_value *v,
                   const struct part *part, struct wf_err *err)
{
    struct wf_onnx_axis *const axis = &v->view.axis[part->axis];
    const int which = axis->n == 1 ? axis->at[0].axis : WF_ONNX_N;
    if (which < WF_ONNX_D || !wf_onnx_axis_is(im, axis, v->layer, which))
        return wf_onnx_refuse(im, node, err, "steps of %" PRId64 " are for spatial axes alone",
                              part->step);
    struct wf_layer_attrs a = { .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 } };
    a.stride[which - WF_ONNX_D] = part->step;
    v->layer = wf_onnx_add(im, node, "avg_pool", &a, 1, &v->layer);
    struct wf_onnx_extent *const extent = &im->layers[v->layer].shape[which];
    for (int p = 0; p < WF_ONNX_PROBES; p++)
        extent->at[p] = (extent->at[p] - 1) / part->step + 1;
    axis->n = 0;
    if (!wf_onnx_extent_is(im, *extent, 1))
        *axis = (struct wf_onnx_axis){ 1, { { which, wf_onnx_extent(1), *extent } } };
    return true;
}

static bool cut(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_value *v,
                const struct part *part, struct wf_err *err)
{
    const struct wf_onnx_axis *const axis = &v->view.axis[part->axis];
    const struct wf_onnx_extent extent = wf_onnx_axis_extent(im, axis);
    if (wf_onnx_extent_is(im, part->from, 0) && wf_onnx_extent_equal(im, part->to, extent))
        return part->step == 1 || stride(im, node, v, part, err);
    for (int p = 0; p < im->probes; p++)
        if (part->to.at[p] <= part->from.at[p])
            return wf_onnx_refuse(im, node, err, "it leaves nothing of axis %d", part->axis);
    const int which = axis->n == 1 ? axis->at[0].axis : WF_ONNX_N;
    if (which == WF_ONNX_N || !wf_onnx_axis_is(im, axis, v->layer, which))
        return wf_onnx_refuse(im, node, err, "no rule for a part of axis %d", part->axis);
    const int y = which == WF_ONNX_C
                      ? channel_part(im, node, v->layer, part->from.at[0], part->to.at[0])
                      : spatial_part(im, node, v->layer, which, part, err);
    if (y == WF_LAYER_NONE)
        return false;
    v->layer = y;
    v->view.axis[part->axis].n = 0;
    const struct wf_onnx_extent left = wf_onnx_shape(im, y)[which];
    if (!wf_onnx_extent_is(im, left, 1))
        v->view.axis[part->axis] =
            (struct wf_onnx_axis){ 1, { { which, wf_onnx_extent(1), left } } };
    return part->step == 1 || stride(im, node, v, part, err);
}

static bool slice(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const found = wf_onnx_features_in(im, node, 0, err);
    if (!found || !unshuffled(im, node, found, err))
        return false;
    const struct wf_onnx_numbers *const from = wf_onnx_numbers(im, wf_onnx_in(im, node, 1)),
                                        *const to = wf_onnx_numbers(im, wf_onnx_in(im, node, 2));
    int n_axes = 0, n_steps = 0;
    int64_t axes[WF_ONNX_RANK], steps[WF_ONNX_RANK];
    const bool has_axes = wf_onnx_ints(im, node, 3, NULL, WF_ONNX_RANK, &n_axes, axes);
    const bool has_steps = wf_onnx_ints(im, node, 4, NULL, WF_ONNX_RANK, &n_steps, steps);
    if (!from || !to || from->count != to->count || from->count > found->view.rank ||
        (has_axes && n_axes != from->count) || (has_steps && n_steps != from->count))
        return wf_onnx_refuse(im, node, err, "its bounds are not known");
    struct wf_onnx_value v = *found;
    for (int i = 0; i < (int)from->count; i++) {
        int64_t axis = has_axes ? axes[i] : i;
        axis += axis < 0 ? v.view.rank : 0;
        const int64_t step = has_steps ? steps[i] : 1;
        if (axis < 0 || axis >= v.view.rank || step < 1 || step > 1 << 20)
            return wf_onnx_refuse(im, node, err,
                                  "the rule is for steps forward along axes that exist");
        const struct wf_onnx_extent extent = wf_onnx_axis_extent(im, &v.view.axis[axis]);
        const struct part part = { (int)axis, place(from, i, extent), place(to, i, extent), step };
        if (!cut(im, node, &v, &part, err))
            return false;
    }
    return wf_onnx_done_view(im, node, v.layer, &v.view);
}

/* x[:, k]: one position of an axis, which is gone then. */
static bool gather(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const found = wf_onnx_features_in(im, node, 0, err);
    int n = 0;
    int64_t index;
    if (!found)
        return false;
    struct wf_onnx_value v = *found;
    int64_t axis = wf_onnx_attr_int(node, "axis", 0);
    axis += axis < 0 ? v.view.rank : 0;
    const struct wf_onnx_numbers *const at = wf_onnx_numbers(im, wf_onnx_in(im, node, 1));
    if (axis < 1 || axis >= v.view.rank || !at || at->rank != 0 ||
        !wf_onnx_ints(im, node, 1, NULL, 1, &n, &index))
        return wf_onnx_refuse(im, node, err, "the rule is for one position of an axis");
    const struct wf_onnx_extent extent = wf_onnx_axis_extent(im, &v.view.axis[axis]);
    struct part part = { (int)axis, wf_onnx_extent(index), wf_onnx_extent(index + 1), 1 };
    for (int p = 0; p < WF_ONNX_PROBES; p++)
        if (index < 0) {
            part.from.at[p] += extent.at[p];
            part.to.at[p] += extent.at[p];
        }
    if (!cut(im, node, &v, &part, err))
        return false;
    for (int i = (int)axis; i + 1 < v.view.rank; i++)
        v.view.axis[i] = v.view.axis[i + 1];
    v.view.rank--;
    return wf_onnx_done_view(im, node, v.layer, &v.view);
}

const struct wf_onnx_rule_row wf_onnx_rules_parts[] = {
    { "Split", split }, { "SplitToSequence", split }, { "SequenceAt", sequence_at },
    { "Slice", slice }, { "Gather", gather },         { .op = NULL },
};
