/*
 * The form in which oneDNN gets a step's convolution.
 *
 * Invariants:
 * F1. The pieces of a group, in their order, write all that the step writes (or `clear` is set).
 *     Where pieces of the data pass overlap, the later one holds the right values.
 * F2. A primitive whose name says that it is a reference is taken only when no form has another.
 * F3. What differs between pieces of one problem are addresses only.
 * F4. Every primitive of a step that runs was found right (dnnl_check.c). Where one is wrong oneDNN's
 *     next implementation is taken, then another form, then our own reference.
 *
 * Most steps are one piece in place. The other forms, and what they are for:
 *   rows      weight gradients, in strips that are added up in f64: an f32 that runs over a whole
 *             image loses digits, and then a cut image has another gradient than a whole one. In
 *             bf16, which copies both images into scratch, strips are faster and need a tenth of it
 *   pad       padding that no fast kernel takes, or not rightly
 *   split     groups that no fast kernel takes
 *   wide      bf16 on a machine without bf16 kernels
 *   columns, channels   oneDNN 2.x with AMX: see wf_dnnl_has_traps()
 */
#include "device/cpu/dnnl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/spatial.h"

enum {
    STRIP = 2 * 1024, /* positions of dst in a strip, per thread: as fast as 8 Ki, half the error */
    STRIP_THREADS = 4,
    TRAP_COLUMNS = 256, /* of dst in a piece, at most; oneDNN 2.6.3 goes wrong from 384 on */
    TRAP_REACH = 320,   /* of src */
    TRAP_CHANNELS = 16, /* a multiple of this */
};

/* --- geometry --- */

static struct wf_window window_of(const struct wf_dnnl_step *s, int i)
{
    return wf_conv_windows(&s->attrs, s->kernel).along[i];
}

/* Positions of src under those of dst, past the image where padding is; N as in dst, C not set. */
static struct wf_region reach_of(const struct wf_dnnl_step *s, struct wf_region dst)
{
    struct wf_region r = dst;
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_window w = window_of(s, i);
        const struct wf_range under = wf_window_reads(&w, dst.lo[WF_D + i], dst.hi[WF_D + i]);
        r.lo[WF_D + i] = under.lo;
        r.hi[WF_D + i] = under.hi;
    }
    return r;
}

/* The part of src that goes with this part of dst. */
static struct wf_region src_of(const struct wf_dnnl_step *s, const struct wf_dnnl_form *form,
                               struct wf_region dst)
{
    const struct wf_region reach = reach_of(s, dst);
    if (form->pad)
        return reach;
    struct wf_region r = reach;
    for (int i = WF_D; i <= WF_W; i++) {
        /* Gradients: rows behind the last window get their zeros in the same go. */
        const int64_t more = s->pass == WF_CONV_DATA ? s->attrs.stride[i - WF_D] - 1 : 0;
        r.lo[i] = wf_max(reach.lo[i], s->src.box.lo[i]);
        r.hi[i] = wf_min(reach.hi[i] + more, s->src.box.hi[i]);
    }
    return r;
}

/* The outermost axis that is more than one position: parts along it are without gaps. */
static int outer_axis(const struct wf_dnnl_step *s)
{
    for (int i = WF_D; i < WF_W; i++)
        if (wf_region_extent(s->src.box, i) > 1 || wf_region_extent(s->dst.box, i) > 1)
            return i;
    return WF_W;
}

static int64_t span_of(const struct wf_dnnl_step *s, int axis)
{
    return s->attrs.dilation[axis - WF_D] * (s->kernel[axis - WF_D] - 1) + 1;
}

/* Rows of a strip; 0 where cutting is not possible or not worth it. */
static int64_t strip_rows(const struct wf_dnnl_step *s)
{
    const int axis = outer_axis(s);
    const int64_t span = span_of(s, axis), rows = wf_region_extent(s->dst.box, axis);
    int64_t inner = 1;
    for (int i = axis + 1; i <= WF_W; i++)
        inner *= wf_region_extent(s->dst.box, i);
    /* Windows that overlap would have to be added up in src. */
    if (s->pass == WF_CONV_DATA && span > s->attrs.stride[axis - WF_D])
        return 0;
    /* A thread shall have something to do in each strip; scratch grows with both. */
    const int64_t positions = STRIP * wf_min(wf_max(s->threads, 1), STRIP_THREADS);
    const int64_t strip = wf_max(wf_max(positions / inner, 1), 2 * span);
    return rows >= 2 * strip ? strip : 0;
}

/* --- problems --- */

static bool same_problem(const struct wf_dnnl_problem *a, const struct wf_dnnl_problem *b)
{
    const size_t triple = sizeof a->src;
    return a->batch == b->batch && a->groups == b->groups && a->in == b->in && a->out == b->out &&
           a->dtype == b->dtype && a->bias == b->bias && memcmp(a->src, b->src, triple) == 0 &&
           memcmp(a->dst, b->dst, triple) == 0 && memcmp(a->pad_lo, b->pad_lo, triple) == 0 &&
           memcmp(a->pad_hi, b->pad_hi, triple) == 0 && memcmp(a->stride, b->stride, triple) == 0;
}

static struct wf_dnnl_problem problem_of(const struct wf_dnnl_step *s,
                                         const struct wf_dnnl_form *form,
                                         const struct wf_dnnl_piece *piece)
{
    struct wf_dnnl_problem p = { .pass = s->pass,
                                 .dtype = piece->src.dtype,
                                 .batch = wf_region_extent(piece->dst.box, WF_N),
                                 .groups = form->split ? 1 : s->attrs.groups,
                                 .in = piece->src.channels,
                                 .out = piece->dst.channels,
                                 .bias = s->bias && s->pass == WF_CONV_FORWARD };
    const struct wf_region reach = reach_of(s, piece->dst.box);
    for (int i = 0; i < WF_SPACE; i++) {
        const int axis = WF_D + i;
        p.src[i] = wf_region_extent(piece->src.box, axis);
        p.dst[i] = wf_region_extent(piece->dst.box, axis);
        p.kernel[i] = s->kernel[i];
        p.pad_lo[i] = piece->src.box.lo[axis] - reach.lo[axis];
        p.pad_hi[i] = reach.hi[axis] - piece->src.box.hi[axis];
        /* Where a stride or dilation says nothing, oneDNN shall not have to support it. */
        p.stride[i] = p.dst[i] == 1 && p.pad_hi[i] >= 0 ? 1 : s->attrs.stride[i];
        p.dilation[i] = p.kernel[i] == 1 ? 1 : s->attrs.dilation[i];
    }
    /* Planes that do not see each other are samples: 2D has more kernels than 3D. */
    if (p.kernel[0] == 1 && p.stride[0] == 1 && p.src[0] == p.dst[0] && p.pad_lo[0] == 0) {
        p.batch *= p.src[0];
        p.src[0] = p.dst[0] = 1;
    }
    return p;
}

static bool is_reference(const struct wf_dnnl_conv *conv)
{
    return strstr(wf_dnnl_conv_name(conv), "ref") != NULL;
}

/* F4: the first implementation that is right, and F2: no reference unless `any` will do; NULL: none. */
static struct wf_dnnl_conv *first_right(struct wf_dnnl_step *s, struct wf_dnnl_problem p, bool any)
{
    for (;; p.skip++) {
        struct wf_dnnl_conv *const conv = wf_dnnl_conv_new(s->lib, &p);
        const bool usable = conv && (any || !is_reference(conv));
        if (usable && (s->checking.skip || wf_dnnl_conv_is_right(s->lib, conv, &p, &s->checking)))
            return conv;
        if (usable && !s->wrong[0])
            (void)snprintf(s->wrong, sizeof s->wrong, "%s", wf_dnnl_conv_name(conv));
        wf_dnnl_conv_free(conv);
        if (!usable)
            return NULL;
    }
}

/* The index of its primitive; -1 where oneDNN has none. */
static int add_problem(struct wf_dnnl_step *s, const struct wf_dnnl_problem *p, bool any)
{
    for (size_t i = 0; i < s->n_made; i++)
        if (same_problem(&s->made[i].problem, p))
            return (int)i;
    struct wf_dnnl_conv *const conv = first_right(s, *p, any);
    if (!conv)
        return -1;
    WF_GROW(s->made, s->room_made, s->n_made);
    s->made[s->n_made] = (struct wf_dnnl_made){ *p, conv };
    return (int)s->n_made++;
}

/* --- pieces --- */

static bool in_place(const struct wf_view *view, const struct wf_dnnl_pack *pack)
{
    if (pack->dtype != view->dtype || pack->channels != wf_region_extent(pack->box, WF_C) ||
        !wf_region_contains(view->box, pack->box))
        return false;
    const struct wf_view part = wf_view_part(*view, pack->box);
    return wf_view_is_dense(&part);
}

static struct wf_dnnl_pack pack_of(const struct wf_view *view, const struct wf_dnnl_form *form,
                                   struct wf_region box)
{
    const int64_t unit = form->channels ? form->channels : 1;
    return (struct wf_dnnl_pack){ .box = box,
                                  .channels = wf_ceil_div(wf_region_extent(box, WF_C), unit) * unit,
                                  .dtype = form->wide ? WF_F32 : view->dtype };
}

/* How many windows along the axis have a tap inside src. Between the taps of a dilated window, and
 * past one that a stride steps over, src may be reached and not read. */
static int64_t windows_that_meet(const struct wf_dnnl_step *s, struct wf_region dst,
                                 struct wf_region src, int axis)
{
    const int i = axis - WF_D;
    int64_t count = 0;
    for (int64_t at = dst.lo[axis]; at < dst.hi[axis]; at++) {
        bool meets = false;
        for (int64_t tap = 0; tap < s->kernel[i] && !meets; tap++) {
            const int64_t from =
                at * s->attrs.stride[i] + tap * s->attrs.dilation[i] - s->attrs.pad_lo[i];
            meets = from >= src.lo[axis] && from < src.hi[axis];
        }
        count += meets;
    }
    return count;
}

/* oneDNN 2.6.3 makes wrong numbers of a convolution whose taps all miss, and with AMX it crashes where those of one row
 * do: then zeros that are written out (pad) are there to be hit. */
static bool is_missed(const struct wf_dnnl_step *s, struct wf_region dst, struct wf_region src)
{
    const bool each = wf_dnnl_crashes_on_missed_rows(s->lib, s->src.dtype);
    bool missed = false;
    for (int axis = WF_D; axis <= WF_W; axis++) {
        const int64_t meet = windows_that_meet(s, dst, src, axis);
        missed = missed || meet == 0 || (each && meet < wf_region_extent(dst, axis));
    }
    return missed;
}

/* Its weight gradient goes wrong where a window reaches past both ends of a volume, along any axis
 * (seen in bf16 along H and W, in f32 along D): such an image is no larger than the window. And in
 * bf16 where strided windows reach past an end of the depth. */
static bool is_deep_window(const struct wf_dnnl_step *s, struct wf_region dst, struct wf_region src)
{
    const struct wf_region reach = reach_of(s, dst);
    bool deep = false;
    for (int axis = WF_D; axis <= WF_W; axis++) {
        const bool padded = reach.lo[axis] < src.lo[axis] || reach.hi[axis] > src.hi[axis];
        deep = deep || (s->kernel[axis - WF_D] > 1 && padded &&
                        wf_region_extent(src, axis) <= span_of(s, axis));
        deep = deep || (s->src.dtype == WF_BF16 && axis == WF_D && padded && s->kernel[0] > 1 &&
                        s->attrs.stride[0] > 1);
    }
    return s->pass == WF_CONV_WEIGHTS && deep;
}

/* False where oneDNN has nothing for it. */
static bool add_piece(struct wf_dnnl_step *s, const struct wf_dnnl_form *form, int64_t group,
                      struct wf_region dst, bool any)
{
    const int64_t parts = form->split ? s->attrs.groups : 1;
    struct wf_region src = src_of(s, form, dst);
    src.lo[WF_C] = group * (s->in / parts);
    src.hi[WF_C] = src.lo[WF_C] + s->in / parts;
    dst.lo[WF_C] = group * (s->out / parts);
    dst.hi[WF_C] = dst.lo[WF_C] + s->out / parts;
    if (wf_region_is_empty(src) ||
        (!form->pad && (is_missed(s, dst, src) || is_deep_window(s, dst, src))))
        return false;
    struct wf_dnnl_piece piece = { .src = pack_of(&s->src, form, src),
                                   .dst = pack_of(&s->dst, form, dst),
                                   .group = group };
    piece.pack_src = !in_place(&s->src, &piece.src);
    piece.pack_dst = !in_place(&s->dst, &piece.dst);
    const struct wf_dnnl_problem problem = problem_of(s, form, &piece);
    piece.made = add_problem(s, &problem, any);
    if (piece.made < 0)
        return false;
    WF_GROW(s->pieces, s->room_pieces, s->n_pieces);
    s->pieces[s->n_pieces++] = piece;
    return true;
}

struct cut {
    int axis;
    int64_t samples, rows, columns; /* of a piece */
};

static struct cut cut_of(const struct wf_dnnl_step *s, const struct wf_dnnl_form *form)
{
    struct cut c = { .axis = outer_axis(s) };
    const int64_t rows = wf_region_extent(s->dst.box, c.axis);
    const int64_t columns = wf_region_extent(s->dst.box, WF_W);
    c.rows = form->rows ? wf_min(form->rows, rows) : rows;
    c.columns = form->columns ? wf_min(form->columns, columns) : columns;
    /* Pieces of equal size leave no small rest. */
    c.rows = wf_ceil_div(rows, wf_ceil_div(rows, c.rows));
    c.columns = wf_ceil_div(columns, wf_ceil_div(columns, c.columns));
    if (c.axis == WF_W)
        c.columns = c.rows = wf_min(c.rows, c.columns);
    const bool whole = c.rows == rows && c.columns == columns;
    c.samples = whole ? wf_region_extent(s->dst.box, WF_N) : 1;
    return c;
}

static bool add_rows(struct wf_dnnl_step *s, const struct wf_dnnl_form *form, int64_t group,
                     struct wf_region dst, bool any)
{
    const struct cut cut = cut_of(s, form);
    const struct wf_region all = s->dst.box;
    /* Packed pieces are filled up with zeros to one size: one problem does for all. */
    const bool uniform = form->columns != 0;
    for (int64_t r = all.lo[cut.axis]; r < all.hi[cut.axis]; r += cut.rows) {
        dst.lo[cut.axis] = r;
        dst.hi[cut.axis] = uniform ? r + cut.rows : wf_min(r + cut.rows, all.hi[cut.axis]);
        for (int64_t w = all.lo[WF_W]; cut.axis != WF_W && w < all.hi[WF_W]; w += cut.columns) {
            dst.lo[WF_W] = w;
            dst.hi[WF_W] = uniform ? w + cut.columns : wf_min(w + cut.columns, all.hi[WF_W]);
            if (!add_piece(s, form, group, dst, any))
                return false;
        }
        if (cut.axis == WF_W && !add_piece(s, form, group, dst, any))
            return false;
    }
    return true;
}

static bool add_pieces(struct wf_dnnl_step *s, const struct wf_dnnl_form *form, bool any)
{
    const struct cut cut = cut_of(s, form);
    const int64_t parts = form->split ? s->attrs.groups : 1;
    struct wf_region dst = s->dst.box;
    for (int64_t g = 0; g < parts; g++)
        for (int64_t n = s->dst.box.lo[WF_N]; n < s->dst.box.hi[WF_N]; n += cut.samples) {
            dst.lo[WF_N] = n;
            dst.hi[WF_N] = n + cut.samples;
            if (!add_rows(s, form, g, dst, any))
                return false;
        }
    return true;
}

/* --- scratch --- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t plain_bytes(const struct wf_dnnl_step *s, const struct wf_dnnl_problem *p)
{
    return (size_t)(p->out * (p->in / p->groups) * s->kernel[0] * s->kernel[1] * s->kernel[2]) *
           sizeof(float);
}

static void place_scratch(struct wf_dnnl_step *s)
{
    size_t own = 0, blocked = 0, plain = 0, src = 0, dst = 0;
    for (size_t i = 0; i < s->n_made; i++) {
        own = larger(own, wf_dnnl_conv_scratch(s->made[i].conv));
        blocked = larger(blocked, wf_dnnl_conv_blocked(s->made[i].conv));
        plain = larger(plain, plain_bytes(s, &s->made[i].problem));
    }
    for (size_t i = 0; i < s->n_pieces; i++) {
        const struct wf_dnnl_piece *p = &s->pieces[i];
        src = larger(src, p->pack_src ? wf_dnnl_pack_bytes(&p->src) : 0);
        dst = larger(dst, p->pack_dst ? wf_dnnl_pack_bytes(&p->dst) : 0);
    }
    if (!wf_dnnl_step_has_plain(s))
        plain = 0;
    const size_t sum = wf_dnnl_step_has_plain(s) && s->pass == WF_CONV_WEIGHTS
                           ? wf_dnnl_step_weights(s) * sizeof(double)
                           : 0;
    s->at_blocked = lines(own);
    s->at_plain = s->at_blocked + lines(blocked);
    s->at_sum = s->at_plain + lines(plain);
    s->at_src = s->at_sum + lines(sum);
    s->at_dst = s->at_src + lines(src);
    s->scratch_bytes = s->at_dst + lines(dst);
}

size_t wf_dnnl_step_weights(const struct wf_dnnl_step *s)
{
    return (size_t)(s->out * (s->in / s->attrs.groups) * s->kernel[0] * s->kernel[1] *
                    s->kernel[2]);
}

bool wf_dnnl_step_has_plain(const struct wf_dnnl_step *s)
{
    if (s->pass != WF_CONV_WEIGHTS)
        return s->form.wide;
    const size_t parts = s->form.split ? (size_t)s->attrs.groups : 1;
    return s->n_pieces > parts || s->form.channels != 0;
}

/* --- choosing --- */

void wf_dnnl_step_clear(struct wf_dnnl_step *s)
{
    for (size_t i = 0; i < s->n_made; i++)
        wf_dnnl_conv_free(s->made[i].conv);
    free(s->made);
    free(s->pieces);
    s->made = NULL;
    s->pieces = NULL;
    s->n_made = s->room_made = s->n_pieces = s->room_pieces = 0;
}

static bool try_form(struct wf_dnnl_step *s, const struct wf_dnnl_form *form, bool any)
{
    wf_dnnl_step_clear(s);
    if (!add_pieces(s, form, any) || !s->pieces) {
        wf_dnnl_step_clear(s);
        return false;
    }
    s->form = *form;
    struct wf_region all = s->pieces[0].src.box;
    for (size_t i = 1; i < s->n_pieces; i++)
        all = wf_region_bound(all, s->pieces[i].src.box);
    s->clear = s->pass == WF_CONV_DATA && !wf_region_contains(all, s->src.box);
    place_scratch(s);
    return true;
}

static struct wf_dnnl_form trap_form(const struct wf_dnnl_step *s)
{
    const int64_t rows = strip_rows(s);
    const int64_t fit = (TRAP_REACH - span_of(s, WF_W)) / s->attrs.stride[2] + 1;
    return (struct wf_dnnl_form){ .pad = true,
                                  .split = s->attrs.groups > 1,
                                  .channels = TRAP_CHANNELS,
                                  .rows = rows,
                                  .columns = wf_max(1, wf_min(TRAP_COLUMNS, fit)) };
}

/* Tries the forms from the nearest to the farthest. */
static bool find_form(struct wf_dnnl_step *s, bool traps, bool any)
{
    const bool bf16 = s->src.dtype == WF_BF16, gradient = s->pass == WF_CONV_WEIGHTS;
    const int64_t groups = s->attrs.groups;
    const bool depthwise = s->in == groups && s->out == groups;
    const int widths = bf16 ? 2 : 1, splits = groups > 1 ? 2 : 1;
    for (int wide = 0; wide < widths; wide++) {
        const bool narrow = bf16 && gradient && !wide;
        if (narrow && traps && !(depthwise && groups > 1)) {
            const struct wf_dnnl_form form = trap_form(s);
            if (try_form(s, &form, any))
                return true;
            continue;
        }
        for (int split = 0; split < splits; split++)
            for (int pad = 0; pad <= 1; pad++) {
                struct wf_dnnl_form form = { .pad = pad, .split = split, .wide = wide };
                form.rows = gradient ? strip_rows(s) : 0;
                if (try_form(s, &form, any))
                    return true;
            }
    }
    return false;
}

/* Windows that miss are padded in any form. */
static bool force_form(struct wf_dnnl_step *s, struct wf_dnnl_form form)
{
    if (try_form(s, &form, true))
        return true;
    form.pad = true;
    return try_form(s, &form, true);
}

bool wf_dnnl_step_plan(struct wf_dnnl_step *s, const struct wf_dnnl_options *options,
                       struct wf_err *err)
{
    const bool found =
        options->form ? force_form(s, *options->form)
                      : find_form(s, options->traps, false) || find_form(s, options->traps, true);
    s->own = !found;
    if (s->own)
        return true;
    /* Some 1x1 kernels in bf16 want an image of f32: not at once, then. */
    const size_t images = wf_view_bytes(&s->src) + wf_view_bytes(&s->dst);
    const struct wf_dnnl_form form = s->form;
    struct wf_dnnl_form cut = form;
    cut.rows = strip_rows(s);
    if (!options->form && s->scratch_bytes > images && form.rows == 0 && cut.rows &&
        !try_form(s, &cut, false) && !try_form(s, &form, true))
        return wf_err_set(err, WF_ERR_FAILED, "oneDNN made a convolution only once");
    return true;
}
