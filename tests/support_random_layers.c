#include "support_random_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/build.h"

/* --- windows --- */

struct window {
    int64_t kernel, stride, dilation, lo, hi;
};

/* A window that fits an axis; mostly of extent one along an axis that the image does not have. */
static struct window draw_window(struct maker *m, int axis, int64_t extent, bool pools)
{
    struct draw *d = &m->draw;
    const struct window one = { 1, 1, 1, 0, 0 };
    if (axis < 3 - m->dims && !chance(d, 5))
        return one;
    for (int i = 0; i < TRIES; i++) {
        struct window w = { .kernel = between(d, 1, 4),
                            .stride = chance(d, 50) ? 1 : between(d, 2, 3),
                            .dilation = !pools && chance(d, 25) ? between(d, 2, 3) : 1 };
        const int64_t reach = w.dilation * (w.kernel - 1), most = pools ? w.kernel - 1 : reach + 1;
        w.lo = chance(d, 30) ? 0 : between(d, 0, most);
        w.hi = chance(d, 30) ? w.lo : between(d, 0, most);
        if (extent + w.lo + w.hi > reach)
            return w;
    }
    return one;
}

static struct wf_value *make_conv(struct maker *m, struct wf_value *x)
{
    struct draw *d = &m->draw;
    struct wf_conv c = { .name = next_name(m, "conv"), .bias = chance(d, 50) };
    c.groups = chance(d, 30) ? a_divisor(d, x->shape.at[WF_C]) : 1;
    c.out = c.groups * between(d, 1, c.groups > 1 ? 2 : 5);
    c.pad_mode = chance(d, 30) ? (enum wf_pad_mode)between(d, 1, 3) : WF_PAD_ZERO;
    c.same = chance(d, 20);
    for (int i = 0; i < 3; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        const struct window w = draw_window(m, i, extent, false);
        const bool fits = c.pad_mode == WF_PAD_ZERO || (w.lo < extent && w.hi < extent && !c.same);
        c.kernel[i] = fits ? w.kernel : 1;
        c.stride[i] = w.stride;
        c.dilation[i] = w.dilation;
        c.pad_lo[i] = fits ? w.lo : 0;
        c.pad_hi[i] = fits ? w.hi : 0;
    }
    struct wf_value *const y = wf_conv(m->g, x, &c);
    return chance(d, 15) ? wf_add(m->g, y, wf_conv(m->g, wf_scale(m->g, x, -0.5), &c)) : y;
}

static struct wf_value *make_conv_transpose(struct maker *m, struct wf_value *x)
{
    struct draw *d = &m->draw;
    struct wf_conv c = { .name = next_name(m, "up"), .bias = chance(d, 50) };
    c.groups = chance(d, 20) ? a_divisor(d, x->shape.at[WF_C]) : 1;
    c.out = c.groups * between(d, 1, c.groups > 1 ? 2 : 4);
    for (int i = 0; i < 3; i++) {
        const struct window w = draw_window(m, i, 4, false);
        const int64_t full = (x->shape.at[WF_D + i] - 1) * w.stride + w.dilation * (w.kernel - 1);
        c.kernel[i] = w.kernel;
        c.stride[i] = w.stride;
        c.dilation[i] = w.dilation;
        c.pad_lo[i] = full >= w.lo + w.hi ? w.lo : 0;
        c.pad_hi[i] = full >= w.lo + w.hi ? w.hi : 0;
        c.output_pad[i] = chance(d, 30) ? below(d, w.stride) : 0;
    }
    return wf_conv_transpose(m->g, x, &c);
}

static struct wf_pool draw_pool(struct maker *m, const struct wf_value *x, const char *name)
{
    struct wf_pool p = { .name = next_name(m, name), .exclude_pad = chance(&m->draw, 50) };
    for (int i = 0; i < 3; i++) {
        const struct window w = draw_window(m, i, x->shape.at[WF_D + i], true);
        p.kernel[i] = w.kernel;
        p.stride[i] = w.stride;
        p.pad_lo[i] = w.lo;
        p.pad_hi[i] = w.hi;
    }
    return p;
}

static struct wf_value *make_max_pool(struct maker *m, struct wf_value *x)
{
    const struct wf_pool p = draw_pool(m, x, "max");
    return wf_max_pool(m->g, x, &p);
}

static struct wf_value *make_avg_pool(struct maker *m, struct wf_value *x)
{
    const struct wf_pool p = draw_pool(m, x, "mean");
    return wf_avg_pool(m->g, x, &p);
}

static struct wf_value *make_upsample(struct maker *m, struct wf_value *x)
{
    int64_t out[3];
    for (int i = 0; i < 3; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        out[i] = i < 3 - m->dims        ? extent
                 : chance(&m->draw, 40) ? 2 * extent
                                        : between(&m->draw, 1, 2 * extent + 2);
    }
    return wf_upsample(m->g, x, next_name(m, "resample"), out,
                       (enum wf_upsample_mode)below(&m->draw, 3));
}

/* --- vectors --- */

static struct wf_value *make_global_pool(struct maker *m, struct wf_value *x)
{
    return wf_global_pool(m->g, x, next_name(m, "global"));
}

static struct wf_value *make_flatten(struct maker *m, struct wf_value *x)
{
    return wf_flatten(m->g, x, next_name(m, "flat"));
}

static struct wf_value *make_linear(struct maker *m, struct wf_value *x)
{
    if (x->shape.at[WF_D] * x->shape.at[WF_H] * x->shape.at[WF_W] != 1)
        x = make_flatten(m, x);
    return wf_linear(m->g, x, next_name(m, "fc"), between(&m->draw, 1, 6), chance(&m->draw, 60));
}

/* The elements of a sample spread anew over [C, D, H, W]. */
static struct wf_value *make_reshape(struct maker *m, struct wf_value *x)
{
    int64_t left = wf_shape_count(x->shape) / x->shape.at[WF_N];
    struct wf_shape to = WF_SHAPE(x->shape.at[WF_N], 1, 1, 1, 1);
    for (int i = 0; i < m->dims; i++) {
        to.at[WF_W - i] = a_divisor(&m->draw, left);
        left /= to.at[WF_W - i];
    }
    to.at[WF_C] = left;
    return left > 12 ? NULL : wf_reshape(m->g, x, next_name(m, "reshape"), to);
}

/* --- norms --- */

static struct wf_norm draw_norm(struct maker *m, const char *name)
{
    /* Large: what is constant over the image is common here, and then eps alone stands between a
     * norm and the rounding of its input. */
    static const double eps[] = { 1e-3, 1e-2, 0.1 };
    static const enum wf_act acts[] = { WF_ACT_NONE, WF_RELU, WF_LEAKY_RELU, WF_SILU };
    struct draw *d = &m->draw;
    return (struct wf_norm){ .name = next_name(m, name),
                             .eps = eps[below(d, 3)],
                             .momentum = chance(d, 50) ? 0.3 : 0,
                             .act = acts[below(d, 4)],
                             .slope = 0.2,
                             .plain = chance(d, 25) };
}

static struct wf_value *make_batch_norm(struct maker *m, struct wf_value *x)
{
    struct wf_norm n = draw_norm(m, "bn");
    n.tiles = chance(&m->draw, 30) ? a_divisor(&m->draw, x->shape.at[WF_N]) : 0;
    const int64_t count = wf_shape_count(x->shape) / x->shape.at[WF_C] / (n.tiles ? n.tiles : 1);
    return count < 2 ? NULL : wf_batch_norm(m->g, x, &n);
}

static struct wf_value *make_instance_norm(struct maker *m, struct wf_value *x)
{
    const struct wf_norm n = draw_norm(m, "in");
    const int64_t count = wf_shape_count(x->shape) / x->shape.at[WF_C] / x->shape.at[WF_N];
    return count < 2 ? NULL : wf_instance_norm(m->g, x, &n);
}

static struct wf_value *make_group_norm(struct maker *m, struct wf_value *x)
{
    struct wf_norm n = draw_norm(m, "gn");
    n.groups = a_divisor(&m->draw, x->shape.at[WF_C]);
    const int64_t count = wf_shape_count(x->shape) / n.groups / x->shape.at[WF_N];
    return count < 2 ? NULL : wf_group_norm(m->g, x, &n);
}

static struct wf_value *make_layer_norm(struct maker *m, struct wf_value *x)
{
    const struct wf_norm n = draw_norm(m, "ln");
    return x->shape.at[WF_C] < 2 ? NULL : wf_layer_norm(m->g, x, &n);
}

/* --- pointwise --- */

static struct wf_value *make_activation(struct maker *m, struct wf_value *x)
{
    return wf_activation(m->g, x, next_name(m, "act"), (enum wf_act)between(&m->draw, 1, WF_SILU),
                         0.1);
}

static struct wf_value *make_softmax(struct maker *m, struct wf_value *x)
{
    return wf_softmax(m->g, x, next_name(m, "softmax"));
}

static struct wf_value *make_dropout(struct maker *m, struct wf_value *x)
{
    return wf_dropout(m->g, x, next_name(m, "drop"), 0.1 * (double)between(&m->draw, 1, 6));
}

static struct wf_value *make_scale(struct maker *m, struct wf_value *x)
{
    const double factor = 0.25 * (double)between(&m->draw, 1, 6) * (chance(&m->draw, 50) ? 1 : -1);
    return chance(&m->draw, 30) ? wf_reverse_gradient(m->g, x, factor) : wf_scale(m->g, x, factor);
}

static struct wf_value *make_cast(struct maker *m, struct wf_value *x)
{
    return wf_cast(m->g, wf_cast(m->g, x, WF_F64), WF_F32);
}

/* Another value of this shape, where there is one; x itself now and then; a learned map that every
 * rank has whole; or a constant. */
static struct wf_value *partner(struct maker *m, struct wf_value *x)
{
    if (chance(&m->draw, 15) && !x->replicated)
        return wf_param(m->g, &(struct wf_param_spec){ .name = next_name(m, "map"),
                                                       .shape = x->shape,
                                                       .border_dims = 3,
                                                       .init = WF_INIT_UNIFORM,
                                                       .init_bound = 1.0 });
    const int from = (int)below(&m->draw, m->n_made);
    for (int i = 0; i < m->n_made; i++) {
        struct wf_value *const v = m->made[(from + i) % m->n_made];
        if (wf_shape_equal(v->shape, x->shape) && (v != x || chance(&m->draw, 20)))
            return v;
    }
    if (chance(&m->draw, 50))
        return x;
    return wf_fill(m->g, x->shape, WF_F32, 0.5 * (double)between(&m->draw, 1, 3));
}

static struct wf_value *make_add(struct maker *m, struct wf_value *x)
{
    struct wf_value *const other = partner(m, x);
    return chance(&m->draw, 50) ? wf_add(m->g, x, other) : wf_add(m->g, other, x);
}

static struct wf_value *make_multiply(struct maker *m, struct wf_value *x)
{
    struct wf_value *const other = partner(m, x);
    return chance(&m->draw, 50) ? wf_multiply(m->g, x, other) : wf_multiply(m->g, other, x);
}

/* --- moving --- */

static bool lie_alike(const struct wf_value *a, const struct wf_value *b)
{
    return memcmp(a->shape.at, b->shape.at, WF_C * sizeof a->shape.at[0]) == 0;
}

static struct wf_value *make_concat(struct maker *m, struct wf_value *x)
{
    struct wf_value *in[4] = { x };
    int n = 1;
    const int want = (int)between(&m->draw, 1, 4);
    for (int i = 0; i < 2 * MOST_VALUES && n < want; i++) {
        struct wf_value *const v = m->made[below(&m->draw, m->n_made)];
        if (lie_alike(v, x) && (v != x || chance(&m->draw, 30)))
            in[n++] = v;
    }
    return wf_concat(m->g, next_name(m, "concat"), n, in);
}

static struct wf_value *make_slice(struct maker *m, struct wf_value *x)
{
    struct wf_region part = wf_shape_region(x->shape);
    for (int a = 0; a < WF_AXES; a++) {
        if (!chance(&m->draw, a == WF_N ? 15 : 50))
            continue;
        part.lo[a] = below(&m->draw, x->shape.at[a]);
        part.hi[a] = between(&m->draw, part.lo[a] + 1, x->shape.at[a]);
    }
    return wf_slice(m->g, x, part);
}

static struct wf_value *make_pad(struct maker *m, struct wf_value *x)
{
    struct draw *d = &m->draw;
    const enum wf_pad_mode mode = (enum wf_pad_mode)below(d, 4);
    int64_t lo[3] = { 0 }, hi[3] = { 0 };
    for (int i = 3 - m->dims; i < 3; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        const int64_t most = mode == WF_PAD_REFLECT ? wf_min(extent - 1, 3) : wf_min(extent, 3);
        lo[i] = between(d, chance(d, 30) ? -extent / 2 : 0, most);
        hi[i] = between(d, chance(d, 30) ? -(extent - 1) / 2 : 0, most);
    }
    return wf_pad(m->g, x, next_name(m, "pad"), lo, hi, mode);
}

static struct wf_value *make_tile(struct maker *m, struct wf_value *x)
{
    int64_t tiles[3];
    for (int i = 0; i < 3; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        tiles[i] = i < 3 - m->dims ? 1 : between(&m->draw, 1, wf_min(extent, 3));
        if ((tiles[i] - 1) * ((extent + tiles[i] - 1) / tiles[i]) >= extent)
            tiles[i] = 1; /* the last one would have nothing */
    }
    return x->replicated ? NULL : wf_tile(m->g, x, next_name(m, "tile"), tiles);
}

static struct wf_value *make_untile(struct maker *m, struct wf_value *x)
{
    int64_t tiles[3], whole[3], left = x->shape.at[WF_N];
    for (int i = 0; i < 3; i++) {
        const int64_t extent = x->shape.at[WF_D + i];
        tiles[i] = i < 3 - m->dims ? 1 : a_divisor(&m->draw, left);
        left /= tiles[i];
        whole[i] = between(&m->draw, (tiles[i] - 1) * extent + 1, tiles[i] * extent);
    }
    return x->replicated ? NULL : wf_untile(m->g, x, next_name(m, "untile"), tiles, whole);
}

/* --- any of them --- */

static const struct {
    struct wf_value *(*make)(struct maker *m, struct wf_value *x);
    int weight;
} operators[] = {
    { make_conv, 6 },          { make_conv_transpose, 3 },
    { make_max_pool, 3 },      { make_avg_pool, 3 },
    { make_upsample, 3 },      { make_global_pool, 1 },
    { make_flatten, 1 },       { make_linear, 2 },
    { make_reshape, 1 },       { make_batch_norm, 3 },
    { make_instance_norm, 2 }, { make_group_norm, 2 },
    { make_layer_norm, 2 },    { make_activation, 3 },
    { make_softmax, 1 },       { make_dropout, 2 },
    { make_scale, 1 },         { make_cast, 1 },
    { make_add, 3 },           { make_multiply, 2 },
    { make_concat, 4 },        { make_slice, 3 },
    { make_pad, 3 },           { make_tile, 2 },
    { make_untile, 2 },
};

struct wf_value *support_random_layer(struct maker *m)
{
    int all = 0, which = 0;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        all += operators[i].weight;
    for (int at = (int)below(&m->draw, all); at >= operators[which].weight; which++)
        at -= operators[which].weight;
    struct wf_value *const x =
        m->made[chance(&m->draw, 65) ? m->n_made - 1 : (int)below(&m->draw, m->n_made)];
    return operators[which].make(m, x);
}
