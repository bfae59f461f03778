/* Builders whose amounts follow from the extents of what they are given, so that a network that is written with
 * them holds no sizes. */
#include <inttypes.h>
#include <string.h>

#include "ops/build.h"
#include "ops/spatial.h"

static struct wf_value *note(struct wf_graph *g, struct wf_value *y, struct wf_size_note n)
{
    if (!g->takes_notes || !y)
        return y;
    struct wf_size_note *const kept = wf_arena_one(&g->arena, struct wf_size_note);
    *kept = n;
    kept->of = y;
    kept->next = g->notes;
    g->notes = kept;
    return y;
}

struct wf_value *wf_fit(struct wf_graph *g, struct wf_value *x, const char *name,
                        const struct wf_value *like, enum wf_fit_align align)
{
    if (!x || !like)
        return NULL;
    int64_t lo[3], hi[3];
    bool differs = false;
    for (int i = 0; i < 3; i++) {
        const int64_t missing = like->shape.at[WF_D + i] - x->shape.at[WF_D + i];
        lo[i] = align == WF_FIT_CENTRE    ? wf_floor_div(missing, 2)
                : align == WF_FIT_CUT_END ? wf_max(missing, 0) / 2
                                          : 0;
        hi[i] = missing - lo[i];
        differs |= missing != 0;
    }
    if (!differs && !g->takes_notes)
        return x;
    return note(g, wf_pad(g, x, name, lo, hi, WF_PAD_ZERO),
                (struct wf_size_note){ .like = like, .align = align });
}

/* The extent behind a transposed convolution, without output padding. */
static int64_t extent_behind(const struct wf_conv *c, int i, int64_t extent)
{
    const int64_t kernel = wf_max(c->kernel[i], 1), stride = wf_max(c->stride[i], 1);
    return (extent - 1) * stride - c->pad_lo[i] - c->pad_hi[i] +
           wf_max(c->dilation[i], 1) * (kernel - 1) + 1;
}

struct wf_value *wf_conv_transpose_like(struct wf_graph *g, struct wf_value *x,
                                        const struct wf_conv *c, const struct wf_value *like)
{
    if (!x || !like)
        return NULL;
    struct wf_conv fit = *c;
    for (int i = 0; i < 3; i++) {
        const int64_t more = extent_behind(c, i, x->shape.at[WF_D + i]) - like->shape.at[WF_D + i];
        fit.pad_hi[i] += wf_max(more, 0);
        fit.output_pad[i] = wf_max(-more, 0);
        if (fit.output_pad[i] >= wf_max(c->stride[i], 1)) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "layer '%s': it makes %" PRId64 " along %c, '%s' has %" PRId64
                       ": less than a stride can be added",
                       c->name, like->shape.at[WF_D + i] + more, "DHW"[i], like -> name,
                       like -> shape.at[WF_D + i]);
            return NULL;
        }
    }
    struct wf_size_note n = { .like = like };
    memcpy(n.pad_hi, c->pad_hi, sizeof n.pad_hi);
    return note(g, wf_conv_transpose(g, x, &fit), n);
}

/* More padding at the end, so that the last window that begins inside counts. */
static struct wf_pool ceiled(const struct wf_value *x, const struct wf_pool *p)
{
    struct wf_pool more = *p;
    for (int i = 0; i < 3; i++) {
        const int64_t kernel = wf_max(p->kernel[i], 1);
        const int64_t stride = p->stride[i] ? p->stride[i] : kernel;
        const int64_t extent = x->shape.at[WF_D + i], inside = extent + p->pad_lo[i];
        int64_t last = (inside + p->pad_hi[i] - kernel + stride - 1) / stride * stride;
        if (last >= inside) /* it would begin in the padding */
            last -= stride;
        more.pad_hi[i] = wf_max(last + kernel - inside, 0);
    }
    return more;
}

static struct wf_size_note ceil_note(const struct wf_pool *p)
{
    struct wf_size_note n = { .like = NULL };
    memcpy(n.pad_hi, p->pad_hi, sizeof n.pad_hi);
    return n;
}

struct wf_value *wf_max_pool_ceil(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p)
{
    if (!x)
        return NULL;
    const struct wf_pool more = ceiled(x, p);
    return note(g, wf_max_pool(g, x, &more), ceil_note(p));
}

struct wf_value *wf_avg_pool_ceil(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p)
{
    if (!x)
        return NULL;
    const struct wf_pool more = ceiled(x, p);
    struct wf_pool_attrs a = wf_pool_resolve(&more);
    for (int i = 0; i < 3; i++)
        a.past[i] = more.pad_hi[i] - p->pad_hi[i];
    return note(g, wf_append(g, &wf_op_avgpool, p->name, NULL, &a, 1, &x), ceil_note(p));
}

struct wf_value *wf_upsample_like(struct wf_graph *g, struct wf_value *x, const char *name,
                                  const struct wf_value *like, enum wf_upsample_mode mode)
{
    if (!x || !like)
        return NULL;
    return note(g, wf_upsample(g, x, name, &like->shape.at[WF_D], mode),
                (struct wf_size_note){ .like = like });
}

struct wf_value *wf_untile_like(struct wf_graph *g, struct wf_value *x, const char *name,
                                const int64_t tiles[3], const struct wf_value *like)
{
    if (!x || !like)
        return NULL;
    return note(g, wf_untile(g, x, name, tiles, &like->shape.at[WF_D]),
                (struct wf_size_note){ .like = like });
}
