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

/* --- concat, split, slice --- */

/* A view of an image whose channels are shuffled is made plain, once for all that take parts of it. */
static bool unshuffled(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                       struct wf_onnx_value *v, struct wf_err *err)
{
    const bool whole = v->view.rank != 2 + im->dims || v->view.axis[1].n < 2;
    return whole || wf_onnx_plain(im, node, v, err) != WF_LAYER_NONE;
}

/* The axis of the node's attribute, which must be all channels of the value. */
static bool channel_axis(struct wf_onnx_import *im, const Onnx__NodeProto *node,
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
        if (!channel_axis(im, node, v, 1, &axis, err))
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
    if (!wf_onnx_ints(im, node, 1, NULL, WF_ONNX_RANK, &n, times) || n != v->view.rank)
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
    struct wf_onnx_value *const found = features(im, node, err);
    int axis, n = 0;
    int64_t sizes[WF_ONNX_IN], at = 0;
    if (!found || !unshuffled(im, node, found, err) ||
        !channel_axis(im, node, found, 0, &axis, err))
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
        struct wf_onnx_extent extents[3];
        memcpy(extents, shape + WF_ONNX_D, sizeof extents);
        extents[which - WF_ONNX_D] = length;
        bool centred = true;
        for (int p = 0; p < im->probes; p++)
            centred &= part->from.at[p] == (extent.at[p] - length.at[p]) / 2;
        a = (struct wf_layer_attrs){ .align = centred ? WF_LAYER_CENTRE : WF_LAYER_START };
        const int like = wf_onnx_layer_like(im, extents);
        if (like == WF_LAYER_NONE || (!centred && !wf_onnx_extent_is(im, part->from, 0))) {
            (void)wf_onnx_refuse(im, node, err,
                                 "it cuts to extents that are those of no earlier layer");
            return WF_LAYER_NONE;
        }
        return wf_onnx_add_like(im, node, "fit", &a, x, like);
    }
    const int y = wf_onnx_add(im, node, "slice", &a, 1, &x);
    im->layers[y].shape[which] = length;
    return y;
}

static bool cut(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_value *v,
                const struct part *part, struct wf_err *err)
{
    const struct wf_onnx_axis *const axis = &v->view.axis[part->axis];
    const struct wf_onnx_extent extent = wf_onnx_axis_extent(im, axis);
    if (wf_onnx_extent_is(im, part->from, 0) && wf_onnx_extent_equal(im, part->to, extent))
        return true;
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
    return true;
}

static bool slice(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const found = features(im, node, err);
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
        if (axis < 0 || axis >= v.view.rank || (has_steps && steps[i] != 1))
            return wf_onnx_refuse(im, node, err,
                                  "the rule is for steps of 1 along axes that exist");
        const struct wf_onnx_extent extent = wf_onnx_axis_extent(im, &v.view.axis[axis]);
        const struct part part = { (int)axis, place(from, i, extent), place(to, i, extent) };
        if (!cut(im, node, &v, &part, err))
            return false;
    }
    return wf_onnx_done_view(im, node, v.layer, &v.view);
}

/* x[:, k]: one position of an axis, which is gone then. */
static bool gather(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const found = features(im, node, err);
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
    struct part part = { (int)axis, wf_onnx_extent(index), wf_onnx_extent(index + 1) };
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
    { "Split", split },
    { "SplitToSequence", split },
    { "SequenceAt", sequence_at },
    { "Slice", slice },
    { "Gather", gather },
    { "DepthToSpace", depth_to_space },
    { "SpaceToDepth", depth_to_space },
    { .op = NULL },
};
