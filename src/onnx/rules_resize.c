/*
 * Operators that make other extents. Which extents are meant is seen from the numbers of all probes: a factor,
 * fixed extents, or those of another layer.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/inside.h"
#include "ops/build.h"

static bool name_index(const char *const names[], const char *name, int64_t *index)
{
    for (*index = 0; names[*index]; ++*index)
        if (strcmp(names[*index], name) == 0)
            return true;
    return false;
}

/* --- resize --- */

struct resize {
    int x;
    struct wf_onnx_extent to[3]; /* D, H, W */
    double scale[3];             /* given by the file; 0: extents are */
    int like;                    /* the layer that extents were taken of, or WF_LAYER_NONE */
};

/* The extents are those that Shape gave of one layer, axis by axis. */
static int origin(const struct wf_onnx_import *im, const struct wf_onnx_numbers *sizes,
                  const struct wf_onnx_extent to[3])
{
    int layer = WF_LAYER_NONE;
    for (int i = 0; i < im->dims; i++) {
        const struct wf_onnx_origin *const from = &sizes->from[sizes->count - im->dims + i];
        if (!from->known || from->axis != WF_ONNX_AXES - im->dims + i ||
            (i > 0 && from->layer != layer) || wf_onnx_is(im, from->layer, "empty"))
            return WF_LAYER_NONE;
        layer = from->layer;
        if (!wf_onnx_extent_equal(im, wf_onnx_shape(im, layer)[from->axis], to[3 - im->dims + i]))
            return WF_LAYER_NONE;
    }
    return layer;
}

static bool read_scales(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                        const struct wf_onnx_numbers *n, struct resize *r, struct wf_err *err)
{
    for (int i = 0; i < (int)n->count; i++) {
        double scale;
        const int axis = 3 + i - (int)n->count; /* of D, H, W */
        if (!wf_onnx_number_is_fixed(im, n, i, &scale) || scale <= 0 ||
            (axis < 3 - im->dims && scale != 1))
            return wf_onnx_refuse(im, node, err,
                                  "scales should be constants, of batch and channels 1");
        if (axis < 3 - im->dims)
            continue;
        r->scale[axis] = wf_onnx_tidy(scale);
        for (int p = 0; p < im->probes; p++)
            r->to[axis].at[p] = (int64_t)floor((double)r->to[axis].at[p] * r->scale[axis]);
    }
    return true;
}

static bool read_sizes(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                       const struct wf_onnx_numbers *n, struct resize *r, struct wf_err *err)
{
    for (int i = 0; i < im->dims; i++)
        for (int p = 0; p < im->probes; p++) {
            const double size = n->at[n->count - im->dims + i][p];
            if (!(size >= 1 && size < 1e9))
                return wf_onnx_refuse(im, node, err,
                                      "an extent of %g for an image of %" PRId64 " x %" PRId64,
                                      size, im->image[WF_ONNX_H].at[p], im->image[WF_ONNX_W].at[p]);
            r->to[3 - im->dims + i].at[p] = (int64_t)size;
        }
    r->like = origin(im, n, r->to);
    return true;
}

/* Scales or sizes: inputs 2 and 3, of all axes or of the spatial ones. */
static bool read_resize(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct resize *r,
                        struct wf_err *err)
{
    r->like = WF_LAYER_NONE;
    memcpy(r->to, wf_onnx_shape(im, r->x) + WF_ONNX_D, sizeof r->to);
    const struct wf_onnx_numbers *const scales = wf_onnx_numbers(im, wf_onnx_in(im, node, 2)),
                                        *const sizes = wf_onnx_numbers(im, wf_onnx_in(im, node, 3));
    const struct wf_onnx_numbers *const n = sizes && sizes->count ? sizes : scales;
    if (!n || (n->count != 2 + im->dims && n->count != im->dims))
        return wf_onnx_refuse(im, node, err, "neither its scales nor its sizes are known");
    return n == scales ? read_scales(im, node, n, r, err) : read_sizes(im, node, n, r, err);
}

/* A factor that makes these extents exactly, for all probes; 0: none. */
static double factor(const struct wf_onnx_import *im, struct wf_onnx_extent from,
                     struct wf_onnx_extent to)
{
    const double s = (double)to.at[0] / (double)from.at[0];
    if (floor(s) != s && floor(1 / s) != 1 / s)
        return 0;
    for (int p = 0; p < im->probes; p++)
        if ((double)from.at[p] * s != (double)to.at[p])
            return 0;
    return s;
}

/* Decides between `like`, scale and size. */
static bool choose(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct resize *r,
                   struct wf_layer_attrs *a, struct wf_err *err)
{
    if (r->like != WF_LAYER_NONE)
        return true;
    bool scaled = true, fixed = !im->fixed, given = false;
    for (int i = 3 - im->dims; i < 3; i++) {
        given |= r->scale[i] > 0;
        a->scale[i] = r->scale[i] > 0
                          ? r->scale[i]
                          : factor(im, wf_onnx_shape(im, r->x)[WF_ONNX_D + i], r->to[i]);
        scaled &= a->scale[i] > 0;
        fixed &= wf_onnx_extent_is(im, r->to[i], r->to[i].at[0]);
    }
    if (given)
        return true;
    const int like = wf_onnx_layer_like(im, r->to);
    if (!fixed && like != WF_LAYER_NONE && (like == WF_LAYER_IMAGE || !scaled))
        r->like = like;
    if (r->like != WF_LAYER_NONE || !scaled || fixed)
        memset(a->scale, 0, sizeof a->scale);
    if (r->like != WF_LAYER_NONE || (scaled && !fixed))
        return true;
    for (int i = 3 - im->dims; i < 3; i++)
        a->size[i] = r->to[i].at[0];
    if (fixed || im->fixed)
        return true;
    return wf_onnx_refuse(im, node, err,
                          "its extents are no fixed ones, no multiple of its input's, and those of "
                          "no earlier layer");
}

static bool mode_of(struct wf_onnx_import *im, const Onnx__NodeProto *node, const struct resize *r,
                    const struct wf_layer_attrs *a, int64_t *mode, struct wf_err *err)
{
    char mode_text[16], place_text[32], round_text[32];
    const char *const kind =
        wf_onnx_attr_text(node, "mode", "nearest", mode_text, sizeof mode_text);
    const char *const place = wf_onnx_attr_text(node, "coordinate_transformation_mode",
                                                "half_pixel", place_text, sizeof place_text);
    const char *const round = wf_onnx_attr_text(node, "nearest_mode", "round_prefer_floor",
                                                round_text, sizeof round_text);
    const bool corners = strcmp(place, "align_corners") == 0;
    const bool centres =
        strcmp(place, "half_pixel") == 0 || strcmp(place, "pytorch_half_pixel") == 0;
    bool whole = r->like == WF_LAYER_NONE;
    for (int i = 3 - im->dims; i < 3; i++)
        whole &= a->scale[i] > 0 && floor(a->scale[i]) == a->scale[i];
    const char *name = "";
    if (strcmp(kind, "nearest") == 0) {
        /* By a whole factor all agree on which is nearest. */
        const bool left = strcmp(place, "asymmetric") == 0 && strcmp(round, "floor") == 0;
        name = left || (centres && whole) ? "nearest" : centres ? "nearest_exact" : "";
    } else if (strcmp(kind, "linear") == 0) {
        name = corners ? "linear_corners" : centres ? "linear" : "";
    } else if (fabs(wf_onnx_attr_real(node, "cubic_coeff_a", -0.75) + 0.75) < 1e-6) {
        name = corners ? "cubic_corners" : centres ? "cubic" : "";
    }
    if (wf_onnx_attr_int(node, "antialias", 0) || wf_onnx_attr_int(node, "exclude_outside", 0) ||
        !name_index(wf_upsample_mode_names, name, mode))
        return wf_onnx_refuse(im, node, err,
                              "mode %s with %s, nearest_mode %s, antialias and exclude_outside has "
                              "no rule",
                              kind, place, round);
    return true;
}

static bool resize(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct resize r = { .x = wf_onnx_plain_in(im, node, 0, err) };
    struct wf_layer_attrs a = { 0 };
    if (r.x == WF_LAYER_NONE || !read_resize(im, node, &r, err))
        return false;
    bool same = true;
    for (int i = 3 - im->dims; i < 3; i++)
        same &= wf_onnx_extent_equal(im, r.to[i], wf_onnx_shape(im, r.x)[WF_ONNX_D + i]);
    if (same)
        return wf_onnx_done(im, node, r.x, 0);
    if (!choose(im, node, &r, &a, err) || !mode_of(im, node, &r, &a, &a.mode, err))
        return false;
    const int y = wf_onnx_add(im, node, "upsample", &a, 1, &r.x);
    im->layers[y].like = r.like;
    memcpy(im->layers[y].shape + WF_ONNX_D, r.to, sizeof r.to);
    return wf_onnx_done(im, node, y, 0);
}

bool wf_onnx_expand(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_numbers *const n = wf_onnx_numbers(im, wf_onnx_in(im, node, 1));
    const int x = wf_onnx_plain_in(im, node, 0, err);
    if (x == WF_LAYER_NONE)
        return false;
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, x);
    struct wf_onnx_extent to[3];
    memcpy(to, shape + WF_ONNX_D, sizeof to);
    bool same = true, ok = n && n->count <= 2 + im->dims;
    for (int i = 0; ok && i < (int)n->count; i++) {
        const int axis = WF_ONNX_AXES + i - (int)n->count;
        const int which = axis >= WF_ONNX_AXES - im->dims ? axis : axis - (3 - im->dims);
        for (int p = 0; p < im->probes; p++) {
            const int64_t want = (int64_t)n->at[i][p], have = shape[which < 0 ? 0 : which].at[p];
            if (want == have || want == 1 || want == -1)
                continue;
            same = false;
            ok = ok && which >= WF_ONNX_D && have == 1;
            if (ok)
                to[which - WF_ONNX_D].at[p] = want;
        }
    }
    if (ok && same)
        return wf_onnx_done(im, node, x, 0);
    const int like = ok ? wf_onnx_layer_like(im, to) : WF_LAYER_NONE;
    if (like == WF_LAYER_NONE)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for one position to the extents of another layer");
    return wf_onnx_done(im, node, wf_onnx_add_like(im, node, "upsample", NULL, x, like), 0);
}

/* --- pad --- */

struct pad {
    struct wf_onnx_extent lo[3], hi[3];
    bool fixed, none;
    int64_t channels[2]; /* before and behind */
};

static bool read_pads(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct pad *pad,
                      struct wf_err *err)
{
    const struct wf_onnx_numbers *const n = wf_onnx_numbers(im, wf_onnx_in(im, node, 1));
    int n_axes = 0;
    int64_t axes[WF_ONNX_RANK];
    const bool has_axes =
        wf_onnx_in(im, node, 3) && wf_onnx_ints(im, node, 3, NULL, WF_ONNX_RANK, &n_axes, axes);
    const int rank = 2 + im->dims;
    if (!n || n->count % 2 != 0 || n->count > 2 * rank || (has_axes && n_axes * 2 != n->count) ||
        (!has_axes && n->count != 2 * rank))
        return wf_onnx_refuse(im, node, err, "its amounts are not known");
    *pad = (struct pad){ .fixed = true, .none = true };
    const int64_t half = n->count / 2;
    for (int64_t i = 0; i < half; i++) {
        const int64_t axis = has_axes ? (axes[i] < 0 ? axes[i] + rank : axes[i]) : i;
        for (int p = 0; p < im->probes; p++) {
            const int64_t lo = (int64_t)n->at[i][p], hi = (int64_t)n->at[half + i][p];
            pad->none &= lo == 0 && hi == 0;
            if (axis == 1 && p == 0) {
                pad->channels[0] = lo;
                pad->channels[1] = hi;
            }
            if (axis < 1 ? lo || hi
                         : axis == 1 && (lo != pad->channels[0] || hi != pad->channels[1] ||
                                         lo < 0 || hi < 0))
                return wf_onnx_refuse(im, node, err, "the rule is for channels and spatial axes");
            if (axis < 2 || axis >= rank)
                continue;
            pad->lo[3 - im->dims + axis - 2].at[p] = lo;
            pad->hi[3 - im->dims + axis - 2].at[p] = hi;
        }
    }
    for (int i = 0; i < 3; i++)
        pad->fixed &= wf_onnx_extent_is(im, pad->lo[i], pad->lo[i].at[0]) &&
                      wf_onnx_extent_is(im, pad->hi[i], pad->hi[i].at[0]);
    return true;
}

/* Amounts that follow from extents: to those of another layer, at the end or on both sides. */
static bool pad_like(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x,
                     const struct pad *pad, struct wf_err *err)
{
    struct wf_onnx_extent to[3];
    bool centred = true, at_end = true;
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++) {
            const int64_t lo = pad->lo[i].at[p], all = lo + pad->hi[i].at[p];
            to[i].at[p] = wf_onnx_shape(im, x)[WF_ONNX_D + i].at[p] + all;
            centred &= lo == wf_floor_div(all, 2); /* as wf_fit() */
            at_end &= lo == 0;
        }
    const int like = wf_onnx_layer_like(im, to);
    if (like == WF_LAYER_NONE || (!centred && !at_end))
        return wf_onnx_refuse(
            im, node, err,
            "how much is padded depends on the image, and makes the extents of no "
            "earlier layer");
    const struct wf_layer_attrs a = { .align = centred ? WF_LAYER_CENTRE : WF_LAYER_START };
    return wf_onnx_done(im, node, wf_onnx_add_like(im, node, "fit", &a, x, like), 0);
}

static bool pad(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    char text[16];
    const char *const mode = wf_onnx_attr_text(node, "mode", "constant", text, sizeof text);
    const int x = wf_onnx_plain_in(im, node, 0, err);
    struct pad pad = { 0 };
    if (x == WF_LAYER_NONE || !read_pads(im, node, &pad, err))
        return false;
    if (pad.none)
        return wf_onnx_done(im, node, x, 0);
    const bool constant = strcmp(mode, "constant") == 0;
    const struct wf_onnx_numbers *const fill = wf_onnx_numbers(im, wf_onnx_in(im, node, 2));
    double value = 0;
    if (constant && fill && fill->count > 0 && !wf_onnx_number_is_fixed(im, fill, 0, &value) &&
        !(isinf(value) && value < 0))
        return wf_onnx_refuse(im, node, err, "the number that it pads with is not known");
    if (value != 0 && (!pad.fixed || pad.channels[0] || pad.channels[1]))
        return wf_onnx_refuse(
            im, node, err, "padding with %g has a rule for fixed amounts around the image", value);
    if (pad.channels[0] || pad.channels[1]) {
        for (int i = 0; i < 3; i++)
            pad.fixed &= pad.lo[i].at[0] == 0 && pad.hi[i].at[0] == 0;
        if (!pad.fixed || !constant)
            return wf_onnx_refuse(im, node, err, "channels are padded with zeros, and alone");
        const struct wf_layer_attrs more = { .from = pad.channels[0], .to = pad.channels[1] };
        const int y = wf_onnx_add(im, node, "pad_channels", &more, 1, &x);
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            im->layers[y].shape[WF_ONNX_C].at[p] += more.from + more.to;
        return wf_onnx_done(im, node, y, 0);
    }
    if (!pad.fixed)
        return constant ? pad_like(im, node, x, &pad, err)
                        : wf_onnx_refuse(im, node, err, "how much is padded depends on the image");
    struct wf_layer_attrs a = { 0 };
    if (!name_index(wf_pad_mode_names,
                    constant                    ? "zero"
                    : strcmp(mode, "wrap") == 0 ? "circular"
                                                : mode,
                    &a.pad_mode))
        return wf_onnx_refuse(im, node, err, "mode %s has no rule", mode);
    for (int i = 0; i < 3; i++) {
        a.pad_lo[i] = pad.lo[i].at[0];
        a.pad_hi[i] = pad.hi[i].at[0];
    }
    const bool low = value < -1e30; /* a max pooling behind it takes it for its own padding */
    const struct wf_layer_attrs less = { .offset = -value }, back = { .offset = value };
    const bool shifted = value != 0 && !low;
    const int from = shifted ? wf_onnx_add(im, node, "shift", &less, 1, &x) : x;
    int y = wf_onnx_add(im, node, low ? "pad_low" : "pad", &a, 1, &from);
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < im->probes; p++) {
            int64_t *const extent = &im->layers[y].shape[WF_ONNX_D + i].at[p];
            *extent += a.pad_lo[i] + a.pad_hi[i];
            if (*extent < 1)
                return wf_onnx_refuse(im, node, err, "it leaves nothing of the image");
        }
    if (shifted)
        y = wf_onnx_add(im, node, "shift", &back, 1, &y);
    return wf_onnx_done(im, node, y, 0);
}

const struct wf_onnx_rule_row wf_onnx_rules_resize[] = {
    { "Resize", resize },
    { "Expand", wf_onnx_expand },
    { "Pad", pad },
    { .op = NULL },
};
