/* Views: which part of which axis of a layer each axis of an ONNX tensor is (V2). */
#include <string.h>

#include "onnx/inside.h"

static struct wf_onnx_extent product(struct wf_onnx_extent a, struct wf_onnx_extent b)
{
    struct wf_onnx_extent y;
    for (int p = 0; p < WF_ONNX_PROBES; p++)
        if (__builtin_mul_overflow(a.at[p], b.at[p], &y.at[p]))
            y.at[p] = INT64_MAX; /* equals nothing that a file can ask for */
    return y;
}

/* Whether b divides a for all probes, and the quotients. */
static bool quotient(const struct wf_onnx_import *im, struct wf_onnx_extent a,
                     struct wf_onnx_extent b, struct wf_onnx_extent *y)
{
    *y = wf_onnx_extent(1);
    for (int p = 0; p < im->probes; p++) {
        if (b.at[p] < 1 || a.at[p] % b.at[p] != 0)
            return false;
        y->at[p] = a.at[p] / b.at[p];
    }
    return true;
}

struct wf_onnx_extent wf_onnx_axis_extent(const struct wf_onnx_import *im,
                                          const struct wf_onnx_axis *axis)
{
    (void)im;
    struct wf_onnx_extent y = wf_onnx_extent(1);
    for (int i = 0; i < axis->n; i++)
        y = product(y, axis->at[i].size);
    return y;
}

static void whole_axis(const struct wf_onnx_import *im, int layer, int which,
                       struct wf_onnx_axis *axis)
{
    const struct wf_onnx_extent size = wf_onnx_shape(im, layer)[which];
    axis->n = 0;
    if (which == WF_ONNX_N || !wf_onnx_extent_is(im, size, 1))
        axis->at[axis->n++] = (struct wf_onnx_atom){ which, wf_onnx_extent(1), size };
}

struct wf_onnx_view wf_onnx_view(const struct wf_onnx_import *im, int layer, int rank)
{
    struct wf_onnx_view v = { .rank = rank };
    whole_axis(im, layer, WF_ONNX_N, &v.axis[0]);
    whole_axis(im, layer, WF_ONNX_C, &v.axis[1]);
    for (int i = 2; i < rank; i++)
        whole_axis(im, layer, WF_ONNX_AXES - im->dims + i - 2, &v.axis[i]);
    return v;
}

static bool atom_equal(const struct wf_onnx_import *im, const struct wf_onnx_atom *a,
                       const struct wf_onnx_atom *b)
{
    return a->axis == b->axis && wf_onnx_extent_equal(im, a->stride, b->stride) &&
           wf_onnx_extent_equal(im, a->size, b->size);
}

bool wf_onnx_axis_equal(const struct wf_onnx_import *im, const struct wf_onnx_axis *a,
                        const struct wf_onnx_axis *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = atom_equal(im, &a->at[i], &b->at[i]);
    return same;
}

bool wf_onnx_axis_is(const struct wf_onnx_import *im, const struct wf_onnx_axis *axis, int layer,
                     int which)
{
    struct wf_onnx_axis whole;
    whole_axis(im, layer, which, &whole);
    return wf_onnx_axis_equal(im, axis, &whole);
}

bool wf_onnx_view_equal(const struct wf_onnx_import *im, const struct wf_onnx_view *a,
                        const struct wf_onnx_view *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = wf_onnx_axis_equal(im, &a->axis[i], &b->axis[i]);
    return same;
}

void wf_onnx_view_normalise(const struct wf_onnx_import *im, struct wf_onnx_view *v)
{
    for (int i = 0; i < v->rank; i++) {
        struct wf_onnx_axis *const a = &v->axis[i];
        int n = 0;
        for (int k = 0; k < a->n; k++) {
            struct wf_onnx_atom *const last = n > 0 ? &a->at[n - 1] : NULL;
            const struct wf_onnx_atom atom = a->at[k];
            if (last && last->axis == atom.axis &&
                wf_onnx_extent_equal(im, last->stride, product(atom.stride, atom.size))) {
                last->stride = atom.stride;
                last->size = product(last->size, atom.size);
            } else {
                a->at[n++] = atom;
            }
        }
        a->n = n;
    }
}

/* --- reshape --- */

/* The atoms that are still to be placed, outermost first. */
struct queue {
    struct wf_onnx_atom at[WF_ONNX_RANK * WF_ONNX_ATOMS];
    int n, next;
};

/* Takes atoms until their sizes make `extent`; the last one is split where only its outer part is needed. */
static bool take(const struct wf_onnx_import *im, struct queue *q, struct wf_onnx_extent extent,
                 struct wf_onnx_axis *axis)
{
    struct wf_onnx_extent left = extent, rest;
    while (q->next < q->n) {
        struct wf_onnx_atom *const atom = &q->at[q->next];
        const bool is_batch = atom->axis == WF_ONNX_N && wf_onnx_extent_is(im, atom->size, 1);
        if (wf_onnx_extent_is(im, left, 1) && !is_batch)
            break;
        if (axis->n == WF_ONNX_ATOMS)
            return false;
        if (quotient(im, left, atom->size, &rest)) {
            axis->at[axis->n++] = *atom;
            left = rest;
            q->next++;
        } else if (quotient(im, atom->size, left, &rest)) {
            axis->at[axis->n++] =
                (struct wf_onnx_atom){ atom->axis, product(atom->stride, rest), left };
            atom->size = rest;
            left = wf_onnx_extent(1);
        } else {
            return false;
        }
    }
    return wf_onnx_extent_is(im, left, 1);
}

bool wf_onnx_view_reshape(const struct wf_onnx_import *im, const struct wf_onnx_view *from,
                          int rank, const struct wf_onnx_extent extents[], struct wf_onnx_view *to)
{
    struct queue q = { .n = 0 };
    for (int i = 0; i < from->rank; i++)
        for (int k = 0; k < from->axis[i].n; k++)
            q.at[q.n++] = from->axis[i].at[k];
    *to = (struct wf_onnx_view){ .rank = rank };
    for (int i = 0; i < rank; i++)
        if (!take(im, &q, extents[i], &to->axis[i]))
            return false;
    wf_onnx_view_normalise(im, to);
    return q.next == q.n;
}

/* --- to a plain view --- */

bool wf_onnx_is_plain(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    const struct wf_onnx_view *const view = &v->view;
    if (view->rank < 2 || view->rank > 2 + im->dims)
        return false;
    const struct wf_onnx_view plain = wf_onnx_view(im, v->layer, view->rank);
    if (!wf_onnx_view_equal(im, view, &plain))
        return false;
    for (int axis = WF_ONNX_AXES - im->dims + view->rank - 2; axis < WF_ONNX_AXES; axis++)
        if (!wf_onnx_extent_is(im, wf_onnx_shape(im, v->layer)[axis], 1))
            return false;
    return true;
}

static bool spatial_is_plain(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    bool same = v->view.rank == 2 + im->dims;
    for (int i = 2; same && i < v->view.rank; i++)
        same = wf_onnx_axis_is(im, &v->view.axis[i], v->layer, WF_ONNX_AXES - im->dims + i - 2);
    return same;
}

/* [N, C * D * H * W]. */
static bool is_flat(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    if (v->view.rank != 2)
        return false;
    struct wf_onnx_axis all = { .n = 0 };
    for (int axis = WF_ONNX_C; axis < WF_ONNX_AXES; axis++) {
        struct wf_onnx_axis one;
        whole_axis(im, v->layer, axis, &one);
        if (one.n)
            all.at[all.n++] = one.at[0];
    }
    return wf_onnx_axis_equal(im, &v->view.axis[1], &all);
}

/* Channels [g, c] as [c, g]: the groups, or 0. */
static int64_t shuffled_groups(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    const struct wf_onnx_axis *const c = &v->view.axis[1];
    if (!spatial_is_plain(im, v) || c->n != 2 || c->at[0].axis != WF_ONNX_C ||
        c->at[1].axis != WF_ONNX_C || !wf_onnx_extent_is(im, c->at[0].stride, 1) ||
        !wf_onnx_extent_equal(im, c->at[1].stride, c->at[0].size) ||
        !wf_onnx_extent_equal(im, product(c->at[0].size, c->at[1].size),
                              wf_onnx_shape(im, v->layer)[WF_ONNX_C]))
        return 0;
    return c->at[1].size.at[0];
}

/* Spatial axes [H, r] with r of the channels: r, or 0. `outer`: the channels that stay are the outer digit. */
static int64_t pixel_factor(const struct wf_onnx_import *im, const struct wf_onnx_value *v,
                            bool *outer)
{
    const struct wf_onnx_view *const view = &v->view;
    if (view->rank != 2 + im->dims || view->axis[1].n > 1)
        return 0;
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, v->layer);
    const struct wf_onnx_axis *const c = &view->axis[1];
    const struct wf_onnx_extent kept = wf_onnx_axis_extent(im, c);
    int64_t r = 0, stride = 1;
    *outer = !c->n || !wf_onnx_extent_is(im, c->at[0].stride, 1);
    if (c->n && c->at[0].axis != WF_ONNX_C)
        return 0;
    if (!*outer)
        stride = kept.at[0];
    for (int i = view->rank - 1; i >= 2; i--) {
        struct wf_onnx_axis spatial = view->axis[i], whole;
        if (spatial.n < 1 || spatial.at[spatial.n - 1].axis != WF_ONNX_C)
            return 0;
        const struct wf_onnx_atom sub = spatial.at[--spatial.n];
        whole_axis(im, v->layer, WF_ONNX_AXES - im->dims + i - 2, &whole);
        if (!wf_onnx_axis_equal(im, &spatial, &whole) ||
            !wf_onnx_extent_is(im, sub.stride, stride) ||
            (r && !wf_onnx_extent_is(im, sub.size, r)))
            return 0;
        r = sub.size.at[0];
        stride *= r;
    }
    struct wf_onnx_extent all = product(kept, wf_onnx_extent(1));
    for (int i = 0; i < im->dims; i++)
        all = product(all, wf_onnx_extent(r));
    return wf_onnx_extent_equal(im, all, shape[WF_ONNX_C]) ? r : 0;
}

/* Channels [C, r, r] with r of the spatial axes: r, or 0. */
static int64_t unshuffle_factor(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    const struct wf_onnx_view *const view = &v->view;
    const struct wf_onnx_axis *const c = &view->axis[1];
    struct wf_onnx_axis whole;
    whole_axis(im, v->layer, WF_ONNX_C, &whole);
    if (view->rank != 2 + im->dims || c->n != whole.n + im->dims ||
        (whole.n && !atom_equal(im, &c->at[0], &whole.at[0])))
        return 0;
    const int64_t r = c->at[c->n - 1].size.at[0];
    for (int i = 0; i < im->dims; i++) {
        const int axis = WF_ONNX_AXES - im->dims + i;
        const struct wf_onnx_atom *const sub = &c->at[whole.n + i];
        const struct wf_onnx_axis *const s = &view->axis[2 + i];
        if (sub->axis != axis || !wf_onnx_extent_is(im, sub->size, r) ||
            !wf_onnx_extent_is(im, sub->stride, 1) || s->n != 1 || s->at[0].axis != axis ||
            !wf_onnx_extent_is(im, s->at[0].stride, r))
            return 0;
    }
    return r;
}

static int add_shuffle(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer,
                       int64_t groups)
{
    return wf_onnx_add(im, node, "channel_shuffle", &(struct wf_layer_attrs){ .groups = groups }, 1,
                       &layer);
}

/* A vector as a row of positions of one channel, [N, 1, .., C], or such a row as a vector. */
static bool is_row(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    const struct wf_onnx_view *const view = &v->view;
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, v->layer);
    const bool vector = !wf_onnx_extent_is(im, shape[WF_ONNX_C], 1);
    const int at = vector ? view->rank - 1 : 1;
    bool row = view->rank == 2 + im->dims;
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        row = row && ((!vector && axis == WF_ONNX_W) || wf_onnx_extent_is(im, shape[axis], 1));
    for (int i = 1; row && i < view->rank; i++)
        row = i == at
                  ? wf_onnx_axis_is(im, &view->axis[i], v->layer, vector ? WF_ONNX_C : WF_ONNX_W)
                  : view->axis[i].n == 0;
    return row;
}

int wf_onnx_turn_row(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer)
{
    const int y = wf_onnx_add(im, node, "transpose", NULL, 1, &layer);
    struct wf_onnx_extent *const shape = im->layers[y].shape, channels = shape[WF_ONNX_C];
    shape[WF_ONNX_C] = shape[WF_ONNX_W];
    shape[WF_ONNX_W] = channels;
    return y;
}

static int move(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                const struct wf_onnx_value *v)
{
    bool outer = false;
    int layer = v->layer;
    if (is_row(im, v))
        return wf_onnx_turn_row(im, node, layer);
    if (is_flat(im, v)) {
        const int y = wf_onnx_add(im, node, "flatten", NULL, 1, &layer);
        im->layers[y].shape[WF_ONNX_C] = wf_onnx_axis_extent(im, &v->view.axis[1]);
        for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
            im->layers[y].shape[axis] = wf_onnx_extent(1);
        return y;
    }
    const int64_t groups = shuffled_groups(im, v);
    if (groups)
        return add_shuffle(im, node, layer, groups);
    int64_t r = pixel_factor(im, v, &outer);
    const bool unshuffles = !r;
    if (unshuffles)
        r = unshuffle_factor(im, v);
    if (!r)
        return WF_LAYER_NONE;
    if (!unshuffles && !outer) {
        int64_t groups_inner = 1;
        for (int i = 0; i < im->dims; i++)
            groups_inner *= r;
        layer = add_shuffle(im, node, layer, groups_inner);
    }
    const int y = wf_onnx_add(im, node, unshuffles ? "pixel_unshuffle" : "pixel_shuffle",
                              &(struct wf_layer_attrs){ .factor = (double)r }, 1, &layer);
    for (int i = 0; i < v->view.rank; i++)
        if (i > 0)
            im->layers[y].shape[i == 1 ? WF_ONNX_C : WF_ONNX_AXES - im->dims + i - 2] =
                wf_onnx_axis_extent(im, &v->view.axis[i]);
    return y;
}

int wf_onnx_plain(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_value *v,
                  struct wf_err *err)
{
    if (wf_onnx_is_plain(im, v))
        return v->layer;
    if (v->view.rank >= 2 && wf_onnx_axis_is(im, &v->view.axis[0], v->layer, WF_ONNX_N)) {
        const int y = move(im, node, v);
        if (y != WF_LAYER_NONE) {
            v->layer = y;
            v->view = wf_onnx_view(im, y, v->view.rank);
            return y;
        }
    }
    (void)wf_onnx_refuse(im, node, err,
                         "no rule for the order of axes that reshapes and transpositions before it "
                         "make; an image is [N, C, *spatial], a vector [N, C]");
    return WF_LAYER_NONE;
}

int wf_onnx_plain_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t index,
                     struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, index);
    if (!v) {
        (void)wf_onnx_refuse(im, node, err, "input %zu ('%s') is missing", index,
                             index < node->n_input ? node->input[index] : "");
        return WF_LAYER_NONE;
    }
    if (v->kind == WF_ONNX_FEATURES)
        return wf_onnx_plain(im, node, v, err);
    (void)wf_onnx_refuse(im, node, err, "input '%s' is a constant: there is no rule for that",
                         v->name);
    return WF_LAYER_NONE;
}
