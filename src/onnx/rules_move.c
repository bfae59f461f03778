/* Operators that move elements: most only change the view (V2). */
#include <inttypes.h>
#include <string.h>

#include "onnx/inside.h"
#include "ops/build.h"

static struct wf_onnx_value *features(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                      struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    if (v && v->kind == WF_ONNX_FEATURES)
        return v;
    (void)wf_onnx_refuse(im, node, err, "its input '%s' has no rule here",
                         node->n_input ? node->input[0] : "");
    return NULL;
}

/* --- views only --- */

static bool pass(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    if (v && strcmp(node->op_type, "Cast") == 0 &&
        !wf_onnx_type_is_float((int)wf_onnx_attr_int(node, "to", WF_ONNX_FLOAT)))
        return wf_onnx_refuse(im, node, err,
                              "results as integers have no rule: export the network without what "
                              "comes behind its logits");
    return v && wf_onnx_done_view(im, node, v->layer, &v->view);
}

static bool shape(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const in = wf_onnx_in(im, node, 0);
    const bool stacked = in && in->kind == WF_ONNX_LIST && in->n_parts > 0;
    const struct wf_onnx_value *const v = stacked ? &in->parts[0] : features(im, node, err);
    if (!v)
        return false;
    const int rank = v->view.rank;
    int64_t from = wf_onnx_attr_int(node, "start", 0), to = wf_onnx_attr_int(node, "end", rank);
    from += from < 0 ? rank : 0;
    to += to < 0 ? rank : 0;
    from = from < 0 ? 0 : from;
    to = to > rank ? rank : to;
    struct wf_onnx_numbers *const y =
        wf_onnx_numbers_new(im, true, 1, (int64_t[]){ to > from ? to - from : 0 });
    if (!y)
        return wf_onnx_refuse(im, node, err, "the file has too much arithmetic on shapes");
    for (int64_t i = 0; i < y->count; i++) {
        const struct wf_onnx_axis *const axis = &v->view.axis[from + i];
        const struct wf_onnx_extent extent = stacked && from + i == in->list_axis
                                                 ? wf_onnx_extent(in->n_parts)
                                                 : wf_onnx_axis_extent(im, axis);
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = (double)extent.at[p];
        if (axis->n == 1 && wf_onnx_axis_is(im, axis, v->layer, axis->at[0].axis))
            y->from[i] = (struct wf_onnx_origin){ true, v->layer, axis->at[0].axis };
    }
    struct wf_onnx_value *const out = wf_onnx_out(im, node, 0);
    if (out) {
        out->kind = WF_ONNX_NUMBER;
        out->numbers = y;
    }
    return true;
}

/* Positions of an image taken for digits of another extent: of some images only, where the extents happen to divide. */
static bool splits_space(const struct wf_onnx_import *im, int layer,
                         const struct wf_onnx_view *view)
{
    for (int i = 0; i < view->rank; i++)
        for (int k = 0; k < view->axis[i].n; k++) {
            const struct wf_onnx_atom *const atom = &view->axis[i].at[k];
            if (atom->axis >= WF_ONNX_D &&
                !wf_onnx_extent_equal(im, atom->size, wf_onnx_shape(im, layer)[atom->axis]))
                return true;
        }
    return false;
}

static bool to_extents(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                       const struct wf_onnx_value *v, int rank,
                       const struct wf_onnx_extent extents[], struct wf_err *err)
{
    struct wf_onnx_view view;
    const bool moves = !wf_onnx_view_reshape(im, &v->view, rank, extents, &view);
    const int y = moves || splits_space(im, v->layer, &view)
                      ? wf_onnx_reshaped(im, node, v, rank, extents)
                      : WF_LAYER_NONE;
    if (y != WF_LAYER_NONE)
        return wf_onnx_done(im, node, y, rank);
    if (moves)
        return wf_onnx_refuse(im, node, err,
                              "no rule for a reshape that neither splits nor joins whole axes");
    return wf_onnx_done_view(im, node, v->layer, &view);
}

static bool reshape(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    const struct wf_onnx_numbers *const n = v ? wf_onnx_numbers(im, wf_onnx_in(im, node, 1)) : NULL;
    if (!n || n->rank != 1 || n->count > WF_ONNX_RANK)
        return v ? wf_onnx_refuse(im, node, err, "its shape is not known") : false;
    struct wf_onnx_extent extents[WF_ONNX_RANK];
    for (int p = 0; p < WF_ONNX_PROBES; p++) {
        int64_t all = 1, known = 1;
        int open = -1;
        for (int i = 0; i < v->view.rank; i++)
            (void)__builtin_mul_overflow(all, wf_onnx_axis_extent(im, &v->view.axis[i]).at[p],
                                         &all);
        for (int i = 0; i < (int)n->count; i++) {
            extents[i].at[p] = (int64_t)n->at[i][p];
            if (i < v->view.rank && extents[i].at[p] == 0)
                extents[i].at[p] = wf_onnx_axis_extent(im, &v->view.axis[i]).at[p];
            if (extents[i].at[p] < 0)
                open = i;
            else if (__builtin_mul_overflow(known, extents[i].at[p], &known))
                known = 0;
        }
        if (open >= 0)
            extents[open].at[p] = known ? all / known : 0;
    }
    return to_extents(im, node, v, (int)n->count, extents, err);
}

static bool flatten(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    if (!v)
        return false;
    int64_t axis = wf_onnx_attr_int(node, "axis", 1);
    axis += axis < 0 ? v->view.rank : 0;
    struct wf_onnx_extent extents[2] = { wf_onnx_extent(1), wf_onnx_extent(1) };
    for (int i = 0; i < v->view.rank; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            extents[i >= axis].at[p] *= wf_onnx_axis_extent(im, &v->view.axis[i]).at[p];
    return to_extents(im, node, v, 2, extents, err);
}

static bool transpose(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    if (!v)
        return false;
    const Onnx__AttributeProto *const perm = wf_onnx_attr(node, "perm");
    struct wf_onnx_view view = { .rank = v->view.rank };
    bool seen[WF_ONNX_RANK] = { 0 };
    for (int i = 0; i < view.rank; i++) {
        const int64_t from = !perm                      ? view.rank - 1 - i
                             : (size_t)i < perm->n_ints ? perm->ints[i]
                                                        : -1;
        if (from < 0 || from >= view.rank || seen[from])
            return wf_onnx_refuse(im, node, err, "perm is no permutation of the axes");
        seen[from] = true;
        view.axis[i] = v->view.axis[from];
    }
    return wf_onnx_done_view(im, node, v->layer, &view);
}

static bool unsqueeze(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    int n;
    int64_t axes[WF_ONNX_RANK];
    if (!v)
        return false;
    if (!wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes) ||
        v->view.rank + n > WF_ONNX_RANK)
        return wf_onnx_refuse(im, node, err, "its axes are not known, or too many");
    struct wf_onnx_view view = { .rank = v->view.rank + n };
    bool added[WF_ONNX_RANK] = { 0 };
    for (int i = 0; i < n; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + view.rank : axes[i];
        if (axis < 0 || axis >= view.rank || added[axis])
            return wf_onnx_refuse(im, node, err, "there is no axis %" PRId64, axes[i]);
        added[axis] = true;
    }
    for (int i = 0, k = 0; i < view.rank; i++)
        if (!added[i])
            view.axis[i] = v->view.axis[k++];
    return wf_onnx_done_view(im, node, v->layer, &view);
}

static bool squeeze(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    int n = 0;
    int64_t axes[WF_ONNX_RANK];
    if (!v)
        return false;
    const bool given = wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes);
    struct wf_onnx_view view = { .rank = 0 };
    for (int i = 0; i < v->view.rank; i++) {
        const bool one = wf_onnx_extent_is(im, wf_onnx_axis_extent(im, &v->view.axis[i]), 1);
        bool drop = !given && one && i > 0;
        for (int k = 0; k < n; k++)
            drop |= (axes[k] < 0 ? axes[k] + v->view.rank : axes[k]) == i;
        if (drop && (!one || v->view.axis[i].n))
            return wf_onnx_refuse(im, node, err, "axis %d is not of extent 1", i);
        if (!drop)
            view.axis[view.rank++] = v->view.axis[i];
    }
    return wf_onnx_done_view(im, node, v->layer, &view);
}

/* --- side by side --- */

bool wf_onnx_channel_axis(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          const struct wf_onnx_value *v, int64_t fallback, int *axis,
                          struct wf_err *err)
{
    int64_t a = wf_onnx_attr_int(node, "axis", fallback);
    a += a < 0 ? v->view.rank : 0;
    *axis = (int)a;
    if (a >= 0 && a < v->view.rank && wf_onnx_axis_is(im, &v->view.axis[a], v->layer, WF_ONNX_C))
        return true;
    return wf_onnx_refuse(im, node, err,
                          "the rule is for the axis of the channels, not axis %" PRId64, a);
}

/* Inputs along an axis that they do not have: a list, which a sum over that axis takes apart again. */
static bool stack(struct wf_onnx_import *im, const Onnx__NodeProto *node, bool *is_one)
{
    const struct wf_onnx_value *const first = wf_onnx_in(im, node, 0);
    int64_t axis = wf_onnx_attr_int(node, "axis", 1);
    *is_one = first && first->kind == WF_ONNX_FEATURES && first->view.rank > 2 + im->dims;
    axis += *is_one && axis < 0 ? first->view.rank : 0;
    *is_one = *is_one && axis >= 0 && axis < first->view.rank;
    for (size_t i = 0; *is_one && i < node->n_input; i++) {
        const struct wf_onnx_value *const v = wf_onnx_in(im, node, i);
        *is_one = v && v->kind == WF_ONNX_FEATURES && v->view.axis[axis].n == 0 &&
                  wf_onnx_view_equal(im, &v->view, &first->view);
    }
    struct wf_onnx_value *const list = *is_one ? wf_onnx_out(im, node, 0) : NULL;
    if (!list)
        return true;
    list->kind = WF_ONNX_LIST;
    list->list_axis = (int)axis;
    list->n_parts = (int)node->n_input;
    list->parts = wf_arena_array(&im->arena, list->n_parts, struct wf_onnx_value);
    for (int i = 0; i < list->n_parts; i++)
        list->parts[i] = *wf_onnx_in(im, node, (size_t)i);
    return true;
}

/* Is the input an image without channels? */
static bool is_empty(const struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t i)
{
    const struct wf_onnx_value *const v = wf_onnx_in(im, node, i);
    return v && v->kind == WF_ONNX_FEATURES && wf_onnx_is(im, v->layer, "empty");
}

static bool concat(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    int in[WF_ONNX_IN], axis = 0, n = 0;
    struct wf_onnx_extent channels = wf_onnx_extent(0);
    if (node->n_input > WF_ONNX_IN)
        return wf_onnx_refuse(im, node, err, "%zu inputs, at most %d are read", node->n_input,
                              WF_ONNX_IN);
    bool is_stack;
    if (!stack(im, node, &is_stack) || is_stack)
        return true;
    struct wf_onnx_view view = { .rank = 0 };
    for (size_t i = 0; i < node->n_input; i++) {
        struct wf_onnx_value *const v = wf_onnx_in(im, node, i);
        if (!v || v->kind != WF_ONNX_FEATURES)
            return wf_onnx_refuse(im, node, err, "input '%s' is no result of the network",
                                  node->input[i]);
        if (is_empty(im, node, i))
            continue;
        int64_t at = wf_onnx_attr_int(node, "axis", 1);
        at += at < 0 ? v->view.rank : 0;
        if (at == 1 && v->view.rank == 2 + im->dims &&
            wf_onnx_plain(im, node, v, err) == WF_LAYER_NONE)
            return false;
        if (!wf_onnx_channel_axis(im, node, v, 1, &axis, err))
            return false;
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            channels.at[p] += wf_onnx_shape(im, v->layer)[WF_ONNX_C].at[p];
        struct wf_onnx_view other = v->view;
        other.axis[axis].n = 0;
        if (n > 0 && !wf_onnx_view_equal(im, &view, &other))
            return wf_onnx_refuse(im, node, err,
                                  "inputs '%s' and '%s' have different extents for some images",
                                  node->input[0], node->input[i]);
        view = other;
        in[n++] = v->layer;
    }
    if (n == 0)
        return wf_onnx_refuse(im, node, err, "it has no inputs");
    const int y = n == 1 ? in[0] : wf_onnx_add(im, node, "concat", NULL, n, in);
    if (n > 1)
        im->layers[y].shape[WF_ONNX_C] = channels;
    view.axis[axis] = wf_onnx_view(im, y, 2).axis[1];
    return wf_onnx_done_view(im, node, y, &view);
}

/* Copies of the channels side by side. */
static bool tile(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = features(im, node, err);
    int n, in[WF_ONNX_IN], axis = 0;
    int64_t times[WF_ONNX_RANK], copies = 1;
    if (!v)
        return false;
    if (!wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &n, times))
        return wf_onnx_expand(im, node, err); /* one position to the extents of an image */
    if (n != v->view.rank)
        return wf_onnx_refuse(im, node, err, "its numbers of copies are not known");
    for (int i = 0; i < n; i++) {
        const bool channels = i == 1 && v->view.rank == 2 + im->dims && wf_onnx_is_plain(im, v);
        if (times[i] != 1 && (!channels || times[i] < 1 || times[i] > WF_ONNX_IN))
            return wf_onnx_refuse(im, node, err, "the rule is for up to %d copies of the channels",
                                  WF_ONNX_IN);
        copies = times[i] != 1 ? times[i] : copies;
        axis = times[i] != 1 ? i : axis;
    }
    if (copies == 1)
        return wf_onnx_done_view(im, node, v->layer, &v->view);
    for (int i = 0; i < (int)copies; i++)
        in[i] = v->layer;
    struct wf_onnx_view view = v->view;
    const int y = wf_onnx_add(im, node, "concat", NULL, (int)copies, in);
    for (int p = 0; p < WF_ONNX_PROBES; p++)
        im->layers[y].shape[WF_ONNX_C].at[p] *= copies;
    view.axis[axis] = wf_onnx_view(im, y, 2).axis[1];
    return wf_onnx_done_view(im, node, y, &view);
}

/* --- blocks of positions and channels --- */

static bool depth_to_space(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                           struct wf_err *err)
{
    const bool up = strcmp(node->op_type, "DepthToSpace") == 0;
    int x = wf_onnx_plain_in(im, node, 0, err);
    if (x == WF_LAYER_NONE)
        return false;
    const int64_t r = wf_onnx_attr_int(node, "blocksize", 0),
                  channels = wf_onnx_shape(im, x)[WF_ONNX_C].at[0];
    char text[8];
    const bool inner =
        strcmp(wf_onnx_attr_text(node, "mode", "DCR", text, sizeof text), "DCR") == 0;
    if (r < 1 || r > 1 << 15 || im->dims != 2 || (up && channels % (r * r) != 0))
        return wf_onnx_refuse(im, node, err, "blocks of %" PRId64 " of %" PRId64 " channels", r,
                              channels);
    if (up && inner)
        x = wf_onnx_add(im, node, "channel_shuffle", &(struct wf_layer_attrs){ .groups = r * r }, 1,
                        &x);
    int y = wf_onnx_add(im, node, up ? "pixel_shuffle" : "pixel_unshuffle",
                        &(struct wf_layer_attrs){ .factor = (double)r }, 1, &x);
    im->layers[y].shape[WF_ONNX_C] = wf_onnx_extent(up ? channels / (r * r) : channels * r * r);
    for (int axis = WF_ONNX_H; axis <= WF_ONNX_W; axis++)
        for (int p = 0; p < im->probes; p++) {
            int64_t *const extent = &im->layers[y].shape[axis].at[p];
            if (!up && *extent % r != 0)
                return wf_onnx_refuse(im, node, err,
                                      "blocks of %" PRId64 " do not divide the image", r);
            *extent = up ? *extent * r : *extent / r;
        }
    if (!up && channels > 1)
        y = wf_onnx_add(im, node, "channel_shuffle", &(struct wf_layer_attrs){ .groups = channels },
                        1, &y);
    return wf_onnx_done(im, node, y, 0);
}

const struct wf_onnx_rule_row wf_onnx_rules_move[] = {
    { "Identity", pass },
    { "Cast", pass },
    { "CastLike", pass },
    { "Shape", shape },
    { "Reshape", reshape },
    { "Flatten", flatten },
    { "Tile", tile },
    { "Transpose", transpose },
    { "Unsqueeze", unsqueeze },
    { "Squeeze", squeeze },
    { "Concat", concat },
    { "DepthToSpace", depth_to_space },
    { "SpaceToDepth", depth_to_space },
    { .op = NULL },
};
