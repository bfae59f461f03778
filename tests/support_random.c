#include "support_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "graph/text.h"
#include "ops/build.h"

enum { MOST_VALUES = 24, MOST_ELEMENTS = 3000, TRIES = 8 };

/* --- drawing --- */

struct draw {
    struct wf_random from;
    uint64_t at;
};

static int64_t below(struct draw *d, int64_t bound)
{
    return wf_random_below(d->from, d->at++, (uint32_t)bound);
}

static int64_t between(struct draw *d, int64_t lo, int64_t hi) /* both ends are drawn */
{
    return lo + below(d, hi - lo + 1);
}

static bool chance(struct draw *d, int percent)
{
    return below(d, 100) < percent;
}

/* What a graph is grown with. */
struct maker {
    struct draw draw;
    struct wf_graph *g;
    int dims, layers;
    struct wf_value *made[MOST_VALUES];
    int n_made;
    struct wf_value *end; /* a sum over the image: nothing follows it, the graph ends there */
};

static const char *next_name(struct maker *m, const char *what)
{
    return wf_arena_printf(&m->g->arena, "%s%d", what, m->layers++);
}

static int64_t a_divisor(struct draw *d, int64_t of)
{
    int64_t k = between(d, 1, of);
    while (of % k != 0)
        k--;
    return k;
}

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

/* --- any operator, as its cases have it --- */

static bool is_drawn(const struct wf_case *c)
{
    return c->in[0] == 'x' &&
           !strchr(c->in, 'X'); /* X: not to be differentiated, such as a cast to i32 */
}

/* As `shape` lies to the first input of its case, so the result to x: the same, or channels alike. */
static struct wf_shape fitted(struct wf_shape shape, struct wf_shape first, struct wf_shape x)
{
    if (wf_shape_equal(shape, first))
        return x;
    bool lies = true;
    for (int a = WF_N; a < WF_C; a++)
        lies = lies && shape.at[a] == first.at[a];
    const int64_t channels = shape.at[WF_C];
    struct wf_shape s = lies ? x : shape;
    if (!(lies && channels == 1) && channels % first.at[WF_C] == 0)
        s.at[WF_C] = channels / first.at[WF_C] * x.at[WF_C];
    else
        s.at[WF_C] = channels;
    return s;
}

/* A value that any operator takes where it takes x. */
static struct wf_value *like(struct maker *m, struct wf_value *x)
{
    for (int i = 0; i < m->n_made; i++) {
        struct wf_value *const v = m->made[below(&m->draw, m->n_made)];
        if (wf_shape_equal(v->shape, x->shape) && v->replicated == x->replicated && v != x)
            return v;
    }
    return x;
}

static struct wf_value *case_input(struct maker *m, char kind, struct wf_shape shape,
                                   struct wf_value *x)
{
    if (kind == '-')
        return NULL;
    if (kind == 'x' && wf_shape_equal(shape, x->shape))
        return like(m, x);
    if (kind == 'p')
        return wf_param(m->g, &(struct wf_param_spec){ .name = next_name(m, "case"),
                                                       .shape = shape,
                                                       .border_dims = 3,
                                                       .init = WF_INIT_UNIFORM,
                                                       .init_bound = 1.0 });
    const int64_t labels = kind == 't' ? x->shape.at[WF_C] : kind == 'b' ? 2 : 0;
    const char *const name = wf_arena_printf(&m->g->arena, "%s%d.%d", labels ? "labels" : "given",
                                             (int)labels, m->layers++);
    struct wf_value *const v = wf_input(m->g, name, kind == 't' ? WF_I32 : WF_F32, shape);
    if (v)
        v->replicated = kind == 'P';
    return v;
}

/* The case's graph with x as its first input; NULL, with an error in the graph, where they do not fit. */
static struct wf_value *case_on(struct maker *m, const struct wf_op *op, const struct wf_case *from,
                                struct wf_value *x)
{
    char kinds[SUPPORT_MAX_IN];
    struct wf_shape shapes[SUPPORT_MAX_IN];
    struct wf_value *in[SUPPORT_MAX_IN] = { x };
    const int n = support_case_inputs(from, kinds, shapes);
    for (int i = 1; i < n; i++)
        in[i] = case_input(m, kinds[i], fitted(shapes[i], shapes[0], x->shape), x);
    char *const attrs = calloc(1, op->attr_bytes + 1);
    WF_BUG_ON(!attrs || !wf_attrs_parse(op, from->attrs, attrs, &m->g->err), "%s", op->name);
    for (const struct wf_field *f = op->fields; f && f->name; f++)
        if (strcmp(f->name, "eps") == 0) /* as in draw_norm() */
            *(double *)(void *)(attrs + f->offset) = 1e-2;
    struct wf_value *const y =
        from->build ? from->build(m->g, in, attrs)
                    : wf_append(m->g, op, next_name(m, op->name), NULL, attrs, n, in);
    free(attrs);
    return y;
}

/* True where the case takes an image like x: tried on a graph of its own, because an error stays. */
static bool case_fits(const struct maker *m, const struct wf_op *op, const struct wf_case *from,
                      const struct wf_value *x)
{
    struct maker trial = { .draw = m->draw };
    trial.g = wf_graph_new(&m->g->options);
    struct wf_value *const image = wf_input(trial.g, "x", x->dtype, x->shape);
    image->replicated = x->replicated;
    const struct wf_value *const y = case_on(&trial, op, from, image);
    bool fits = y && wf_shape_count(y->shape) <= MOST_ELEMENTS;
    for (size_t i = 0; i < trial.g->n_nodes; i++) {
        const struct wf_node *const n = trial.g->nodes[i];
        /* An image that is put together on every rank: reverse mode alone does so. */
        fits = fits && (n->n_in == 0 || n->in[0]->replicated || !n->out[0]->replicated ||
                        wf_op_sums_over(n));
    }
    wf_graph_free(trial.g);
    return fits;
}

static struct wf_value *make_case(struct maker *m, const struct wf_op *op)
{
    int n = 0;
    while (op->cases[n].in)
        n++;
    for (int i = 0; i < 4 * TRIES; i++) {
        const struct wf_case *const from = &op->cases[below(&m->draw, n)];
        struct wf_value *const x = m->made[below(&m->draw, m->n_made)];
        if (!is_drawn(from) || !case_fits(m, op, from, x))
            continue;
        struct wf_value *const y = wf_cast(m->g, case_on(m, op, from, x), WF_F32);
        if (!y->replicated || x->replicated)
            return y;
        m->end = y;
        return NULL;
    }
    return NULL;
}

bool support_random_draws(const struct wf_op *op)
{
    for (const struct wf_case *c = op->cases; c && c->in; c++)
        if (is_drawn(c))
            return true;
    return false;
}

/* The operator that has its turn with this seed. */
static const struct wf_op *operator_of(uint64_t seed)
{
    const char *const only = getenv("WF_RANDOM_OP");
    const struct wf_op *const named = only && *only ? wf_op_find(only) : NULL;
    if (named)
        return named;
    uint64_t n = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        n += support_random_draws(*op);
    uint64_t left = seed % n;
    for (const struct wf_op *const *op = wf_op_table;; op++)
        if (support_random_draws(*op) && left-- == 0)
            return *op;
}

/* --- growing --- */

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

static struct wf_value *grow(struct maker *m)
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

static struct wf_value *draw_image(struct maker *m)
{
    struct draw *d = &m->draw;
    m->dims = (int)between(d, 1, 3);
    const int64_t most = m->dims == 1 ? 40 : m->dims == 2 ? 14 : 7;
    struct wf_shape s = WF_SHAPE(between(d, 1, 3), 1, 1, 1, between(d, 1, 4));
    for (int i = 0; i < m->dims; i++)
        s.at[WF_W - i] = between(d, 1, chance(d, 20) ? 3 : most);
    return wf_input(m->g, "image", WF_F32, s);
}

/* One of the losses on v, in r->y. */
static void end_in_loss(struct support_random *r, struct maker *m, struct wf_value *v)
{
    struct draw *d = &m->draw;
    const int64_t kind = below(d, 4), classes = v->shape.at[WF_C];
    struct wf_shape map = v->shape;
    map.at[WF_C] = 1;
    struct wf_loss l = { .name = "loss", .has_ignore = kind != 3 && chance(d, 40), .smooth = 0.5 };
    l.ignore = l.has_ignore ? below(d, classes) : 0;
    if (kind == 0 && chance(d, 40)) {
        l.weights = wf_input(m->g, "weights", WF_F32, WF_SHAPE(1, 1, 1, 1, classes));
        l.weights->replicated = true;
    }
    const bool is_map = kind == 0 || (kind == 1 && classes > 1);
    r->labels = kind == 3 ? 0 : (uint32_t)(is_map ? classes : 2);
    r->target = wf_input(m->g, "target", is_map ? WF_I32 : WF_F32, is_map ? map : v->shape);
    r->y = kind == 0   ? wf_cross_entropy(m->g, v, r->target, &l)
           : kind == 1 ? wf_dice(m->g, v, r->target, &l)
           : kind == 2 ? wf_binary_cross_entropy(m->g, v, r->target, &l)
                       : wf_mse(m->g, v, r->target, &l);
}

static void add_backward(struct support_random *r)
{
    struct wf_err err = { 0 };
    struct wf_value *dy = NULL;
    WF_BUG_ON(!wf_graph_ok(r->g, &err) || !r->y, "%s", err.text);
    wf_graph_output(r->g, r->y);
    if (!r->target) {
        dy = wf_input(r->g, "dy", r->y->dtype, r->y->shape);
        dy->replicated = r->y->replicated;
    }
    WF_BUG_ON(!wf_graph_grad(r->g, r->y, dy, 1, &r->image, &r->gradient, &err), "%s", err.text);
    if (r->gradient)
        wf_graph_output(r->g, r->gradient);
}

void support_random_build(struct support_random *r, uint64_t seed)
{
    struct maker m = { .draw = { .from = wf_random(seed, wf_random_stream("graph")) } };
    m.g = wf_graph_new(&(struct wf_graph_options){ .training = chance(&m.draw, 85) });
    *r = (struct support_random){ .g = m.g };
    r->image = m.made[m.n_made++] = draw_image(&m);
    const int want = (int)between(&m.draw, 2, 14), turn = (int)below(&m.draw, want - 1);
    for (int i = 0; i < 4 * want && m.n_made < want; i++) {
        struct wf_value *const v = i == turn ? make_case(&m, operator_of(seed)) : grow(&m);
        struct wf_err err = { 0 };
        WF_BUG_ON(!wf_graph_ok(m.g, &err), "seed %llu: %s", (unsigned long long)seed, err.text);
        /* What is too large stays in the graph, where nothing reads it. */
        if (v && v != m.made[m.n_made - 1] && wf_shape_count(v->shape) <= MOST_ELEMENTS)
            m.made[m.n_made++] = v;
    }
    r->y = m.end ? m.end : m.made[m.n_made - 1];
    if (!m.end && chance(&m.draw, 60))
        end_in_loss(r, &m, r->y);
    for (int i = 1; i < m.n_made; i++)
        if (m.made[i] != r->y && chance(&m.draw, 12))
            wf_graph_output(m.g, m.made[i]);
    add_backward(r);
}

/* --- numbers --- */

static void fill_labels(const struct wf_view *view, uint32_t labels, uint64_t seed)
{
    uint64_t i = 0;
    const struct wf_random from = wf_random(seed, wf_random_stream("labels"));
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c); i++)
        wf_view_set(view, c.at, wf_random_below(from, i, labels));
}

/* Scales and variances are positive, kernels small enough that sums of products keep the size. */
static void fill_weight(const struct wf_value *v, const struct wf_view *view)
{
    const char *const last = strrchr(v->name, '.');
    const bool scale = v->border_dims < 0 &&
                       (!last || strcmp(last, ".weight") == 0 || strcmp(last, ".running_var") == 0);
    const double fan = (double)wf_shape_count(v->shape) / (double)v->shape.at[WF_N];
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        const double x = wf_view_at(view, c.at);
        wf_view_set(view, c.at, scale ? 0.5 + fabs(x) : v->border_dims < 0 ? x : x / sqrt(fan));
    }
}

void support_random_fill(const struct support_random *r, const struct support_values *v,
                         uint64_t seed)
{
    for (size_t i = 0; i < r->g->n_values; i++) {
        const struct wf_value *value = r->g->values[i];
        if (value->kind == WF_TEMP)
            continue;
        support_fill_random(&v->views[i], seed, i);
        if (strncmp(value->name, "labels", 6) == 0)
            fill_labels(&v->views[i], (uint32_t)strtoul(value->name + 6, NULL, 10), seed);
        else if (value == r->target && r->labels)
            fill_labels(&v->views[i], r->labels, seed);
        else if (value->kind != WF_INPUT || value->replicated)
            fill_weight(value, &v->views[i]);
    }
}

struct wf_mesh support_random_mesh(const struct support_random *r, uint64_t seed, int number)
{
    static const int axes[] = { WF_MESH_W, WF_MESH_H, WF_MESH_D, WF_MESH_DATA };
    static const enum wf_axis of[] = { WF_W, WF_H, WF_D, WF_N };
    struct draw d = { .from = wf_random(seed, wf_random_stream("mesh") + (uint64_t)number) };
    struct wf_mesh mesh = wf_mesh_one();
    int64_t left = between(&d, number == 0 ? 2 : 1, 9);
    for (int i = 0; i < 4 * TRIES && left > 1; i++) {
        const int which = (int)below(&d, 4), factor = (int)a_divisor(&d, left);
        if (factor * mesh.at[axes[which]] > r->image->shape.at[of[which]])
            continue;
        mesh.at[axes[which]] *= factor;
        left /= factor;
    }
    return mesh;
}
