/*
 * tile: an image as a batch of subdomains, and untile: back. Space to batch and batch to space, whole
 * channels, nothing computed.
 *
 *     tile     x [N, D, H, W, C]        ->  y [N * T, d, h, w, C]     T = tiles[0] * tiles[1] * tiles[2]
 *     untile   x [N * T, d, h, w, C]    ->  y [N, D, H, W, C]
 *
 * Subdomain (i, j, k) of sample n is sample ((n * tiles[0] + i) * tiles[1] + j) * tiles[2] + k of the
 * batch: the subdomains of a sample stand together, the last axis fastest. Position p of an axis lies
 * in subdomain p / extent at p % extent.
 *
 * Remainder. All subdomains have one extent. Where it does not divide the image, the last ones reach
 * past its end: tile fills that with zeros, untile leaves it out. So each is the other's adjoint.
 */
#include <inttypes.h>

#include "ops/spatial.h"

extern const struct wf_op wf_op_tile, wf_op_untile;

static const struct wf_field fields[] = {
    WF_INTS(wf_tile_attrs, tiles, WF_SPACE),
    WF_INTS(wf_tile_attrs, extent, WF_SPACE),
    { 0 },
};

static int64_t tiles_of(const struct wf_tile_attrs *a)
{
    return a->tiles[0] * a->tiles[1] * a->tiles[2];
}

/* The subdomains must cover the image, and each must have a part of it. */
static bool check(const struct wf_tile_attrs *a, const int64_t tile[3], const int64_t whole[3],
                  struct wf_err *err)
{
    for (int i = 0; i < WF_SPACE; i++) {
        if (a->tiles[i] < 1 || tile[i] < 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "%" PRId64 " subdomains of extent %" PRId64
                              " along %c: both are at least 1",
                              a->tiles[i], tile[i], "DHW"[i]);
        if ((a->tiles[i] - 1) * tile[i] >= whole[i] || a->tiles[i] * tile[i] < whole[i])
            return wf_err_set(err, WF_ERR_USAGE,
                              "%" PRId64 " subdomains of extent %" PRId64
                              " do not share out an extent of %" PRId64
                              " along %c: use fewer of them, or an image that they divide",
                              a->tiles[i], tile[i], whole[i], "DHW"[i]);
    }
    return true;
}

static bool tile_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_tile_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    struct wf_shape *y = &node->out[0]->shape;
    if (!check(a, a->extent, &x->at[WF_D], err))
        return false;
    y->at[WF_N] = x->at[WF_N] * tiles_of(a);
    for (int i = 0; i < WF_SPACE; i++)
        y->at[WF_D + i] = a->extent[i];
    return true;
}

static bool untile_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_tile_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    struct wf_shape *y = &node->out[0]->shape;
    if (!check(a, &x->at[WF_D], a->extent, err))
        return false;
    if (x->at[WF_N] % tiles_of(a) != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "a batch of %" PRId64 " is not made of images of %" PRId64 " subdomains",
                          x->at[WF_N], tiles_of(a));
    y->at[WF_N] = x->at[WF_N] / tiles_of(a);
    for (int i = 0; i < WF_SPACE; i++)
        y->at[WF_D + i] = a->extent[i];
    return true;
}

/* The gradient of one is the other, back to the extents of the input. */
static void other(struct wf_graph *g, const struct wf_op *op, const struct wf_node *node,
                  struct wf_value *const dy[], struct wf_value *dx[])
{
    struct wf_tile_attrs a = *(const struct wf_tile_attrs *)node->attrs;
    wf_set_extent(a.extent, node->in[0]);
    dx[0] = wf_append(g, op, node->name, "dx", &a, 1, dy);
}

static void tile_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    other(g, &wf_op_untile, node, dy, dx);
}

static void untile_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                        const bool[], struct wf_value *dx[])
{
    other(g, &wf_op_tile, node, dy, dx);
}

/* The smallest box of subdomain coordinates around numbers [lo, hi) of the batch: where a range
 * wraps along an outer axis it has everything along the inner ones. */
static void subdomains(const struct wf_tile_attrs *a, int64_t lo, int64_t hi, int64_t first[3],
                       int64_t last[3])
{
    bool wraps = lo / tiles_of(a) != (hi - 1) / tiles_of(a);
    int64_t inner = tiles_of(a);
    for (int i = 0; i < WF_SPACE; i++) {
        inner /= a->tiles[i];
        first[i] = wraps ? 0 : lo / inner % a->tiles[i];
        last[i] = wraps ? a->tiles[i] - 1 : (hi - 1) / inner % a->tiles[i];
        wraps |= first[i] != last[i];
    }
}

static struct wf_region tile_reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_tile_attrs *a = node->attrs;
    struct wf_region r = work;
    int64_t first[3], last[3];
    subdomains(a, work.lo[WF_N], work.hi[WF_N], first, last);
    r.lo[WF_N] = work.lo[WF_N] / tiles_of(a);
    r.hi[WF_N] = (work.hi[WF_N] - 1) / tiles_of(a) + 1;
    for (int i = 0; i < WF_SPACE; i++) {
        r.lo[WF_D + i] = first[i] * a->extent[i] + work.lo[WF_D + i];
        r.hi[WF_D + i] = last[i] * a->extent[i] + work.hi[WF_D + i];
    }
    return r;
}

static struct wf_region untile_reads(const struct wf_node *node, int, struct wf_region work)
{
    const struct wf_tile_attrs *a = node->attrs;
    struct wf_region r = work;
    int64_t lo = work.lo[WF_N], hi = work.hi[WF_N] - 1;
    for (int i = 0; i < WF_SPACE; i++) {
        const int64_t tile = node->in[0]->shape.at[WF_D + i];
        const int64_t first = work.lo[WF_D + i] / tile, last = (work.hi[WF_D + i] - 1) / tile;
        lo = lo * a->tiles[i] + first;
        hi = hi * a->tiles[i] + last;
        r.lo[WF_D + i] = first == last ? work.lo[WF_D + i] - first * tile : 0;
        r.hi[WF_D + i] = first == last ? work.hi[WF_D + i] - last * tile : tile;
    }
    r.lo[WF_N] = lo;
    r.hi[WF_N] = hi + 1;
    return r;
}

static void tile_reference(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t from[WF_AXES], number = c.at[WF_N];
        for (int i = WF_SPACE - 1; i >= 0; i--) {
            from[WF_D + i] = number % a->tiles[i] * a->extent[i] + c.at[WF_D + i];
            number /= a->tiles[i];
        }
        from[WF_N] = number;
        from[WF_C] = c.at[WF_C];
        wf_view_set(&call->out[0], c.at, wf_ref_get(&call->in[0], x, from));
    }
}

static void untile_reference(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        int64_t from[WF_AXES] = { [WF_N] = c.at[WF_N], [WF_C] = c.at[WF_C] };
        for (int i = 0; i < WF_SPACE; i++) {
            const int64_t tile = x->at[WF_D + i];
            from[WF_N] = from[WF_N] * a->tiles[i] + c.at[WF_D + i] / tile;
            from[WF_D + i] = c.at[WF_D + i] % tile;
        }
        wf_view_set(&call->out[0], c.at, wf_ref_get(&call->in[0], x, from));
    }
}

static const struct wf_case tile_cases[] = {
    { .attrs = "tiles=[1,2,2] extent=[1,3,4]", .in = "x[1,1,6,8,2]" },
    { .attrs = "tiles=[1,1,3] extent=[1,5,2]", .in = "x[2,1,5,6,3]" },
    { .attrs = "tiles=[1,2,3] extent=[1,3,3]", .in = "x[1,1,5,7,1]" },
    { .attrs = "tiles=[2,2,2] extent=[2,2,3]", .in = "x[2,3,4,5,2]" },
    { .attrs = "tiles=[1,1,4] extent=[1,1,3]", .in = "x[3,1,1,11,1]" },
    { .attrs = "tiles=[1,4,2] extent=[1,2,3]", .in = "x[1,1,8,6,2]" },
    { .attrs = "tiles=[1,1,1] extent=[1,3,4]", .in = "x[2,1,3,4,2]" },
    { 0 },
};

const struct wf_op wf_op_tile = {
    .name = "tile",
    .n_in = 1,
    WF_ATTRS(wf_tile_attrs, fields),
    .flags = WF_OP_CHEAP,
    .infer = tile_infer,
    .grad = tile_grad,
    .reads = tile_reads,
    .reference = tile_reference,
    .cases = tile_cases,
};

static const struct wf_case untile_cases[] = {
    { .attrs = "tiles=[1,2,2] extent=[1,6,8]", .in = "x[4,1,3,4,2]" },
    { .attrs = "tiles=[1,1,3] extent=[1,5,6]", .in = "x[6,1,5,2,3]" },
    { .attrs = "tiles=[1,2,3] extent=[1,5,7]", .in = "x[6,1,3,3,1]" },
    { .attrs = "tiles=[2,2,2] extent=[3,4,5]", .in = "x[16,2,2,3,2]" },
    { .attrs = "tiles=[1,1,4] extent=[1,1,11]", .in = "x[12,1,1,3,1]" },
    { .attrs = "tiles=[1,4,2] extent=[1,8,6]", .in = "x[8,1,2,3,2]" },
    { 0 },
};

const struct wf_op wf_op_untile = {
    .name = "untile",
    .n_in = 1,
    WF_ATTRS(wf_tile_attrs, fields),
    .flags = WF_OP_CHEAP,
    .infer = untile_infer,
    .grad = untile_grad,
    .reads = untile_reads,
    .reference = untile_reference,
    .cases = untile_cases,
};

struct wf_value *wf_tile(struct wf_graph *g, struct wf_value *x, const char *name,
                         const int64_t tiles[3])
{
    if (!x)
        return NULL;
    struct wf_tile_attrs a;
    for (int i = 0; i < WF_SPACE; i++) {
        a.tiles[i] = wf_max(tiles[i], 1);
        a.extent[i] = (x->shape.at[WF_D + i] + a.tiles[i] - 1) / a.tiles[i];
    }
    return wf_append(g, &wf_op_tile, name, NULL, &a, 1, &x);
}

struct wf_value *wf_untile(struct wf_graph *g, struct wf_value *x, const char *name,
                           const int64_t tiles[3], const int64_t whole[3])
{
    if (!x)
        return NULL;
    struct wf_tile_attrs a;
    for (int i = 0; i < WF_SPACE; i++) {
        a.tiles[i] = wf_max(tiles[i], 1);
        a.extent[i] = whole ? whole[i] : a.tiles[i] * x->shape.at[WF_D + i];
    }
    return wf_append(g, &wf_op_untile, name, NULL, &a, 1, &x);
}
