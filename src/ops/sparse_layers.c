/*
 * Layers on sparse tensors: a convolution is the coordinates of its output, a kernel map, and the products.
 * Coordinates and maps that are there already are taken again.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/build.h"
#include "ops/halo.h"
#include "ops/sparse.h"
#include "ops/sparse_ops.h"

struct wf_value *wf_sparse_find(const struct wf_graph *g, const struct wf_op *op, const void *attrs,
                                int n_in, struct wf_value *const in[])
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        if (n->op == op && n->n_in == n_in && memcmp(n->attrs, attrs, op->attr_bytes) == 0 &&
            memcmp(n->in, in, (size_t)n_in * sizeof *in) == 0)
            return n->out[0];
    }
    return NULL;
}

struct wf_value *wf_kernel_map(struct wf_graph *g, struct wf_value *in, struct wf_value *out,
                               const struct wf_kernel_map_attrs *a)
{
    struct wf_value *const coords[] = { in, out };
    if (!in || !out)
        return NULL;
    struct wf_value *const made = wf_sparse_find(g, &wf_op_kernel_map, a, 2, coords);
    const char *const name = wf_arena_printf(&g->arena, "map.%s", out->name);
    return made ? made : wf_append(g, &wf_op_kernel_map, name, NULL, a, 2, coords);
}

static int64_t capacity_of(const struct wf_graph *g, int set, int64_t otherwise)
{
    return set < g->n_capacities && g->capacities[set] > 0 ? g->capacities[set] : otherwise;
}

struct wf_value *wf_sparse_coarsen(struct wf_graph *g, const struct wf_sparse *x,
                                   const int64_t stride[])
{
    struct wf_coords_stride_attrs a = { .dims = x->dims };
    for (int d = 0; d < x->dims; d++) {
        a.from[d] = x->stride[d];
        a.stride[d] = stride[d];
    }
    for (size_t i = 0; i < g->n_nodes; i++) { /* the same but for its set and capacity */
        const struct wf_node *const n = g->nodes[i];
        const struct wf_coords_stride_attrs *const made = n->attrs;
        if (n->op == &wf_op_coords_stride && n->in[0] == x->coords &&
            memcmp(made->stride, a.stride, sizeof a.stride) == 0)
            return n->out[0];
    }
    a.set = wf_set_new(g);
    a.rows = capacity_of(g, (int)a.set, x->coords->shape.at[WF_N]);
    const char *const name = wf_arena_printf(&g->arena, "coords%" PRId64, stride[0]);
    return wf_append(g, &wf_op_coords_stride, name, NULL, &a, 1, &x->coords);
}

struct wf_sparse wf_sparse_input(struct wf_graph *g, const struct wf_sparse_input *in)
{
    struct wf_sparse x = { .dims = in->dims };
    if (in->dims < 1 || in->dims > WF_SPARSE_AXES || in->samples < 0 ||
        (in->samples > 0 && g->samples > 0 && in->samples != g->samples)) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "points of %d dimensions and %" PRId64
                   " samples: use 1 to %d dimensions, and as many samples as other inputs have",
                   in->dims, in->samples, WF_SPARSE_AXES);
        return x;
    }
    const int set = wf_set_new(g);
    const int64_t rows = capacity_of(g, set, in->rows);
    g->samples = in->samples > 0 ? in->samples : g->samples;
    if (!in->bare)
        x.features = wf_input_rows(g, in->features ? in->features : "features", WF_F32,
                                   WF_SHAPE(rows, 1, 1, 1, in->channels), set);
    x.coords = wf_input_rows(g, in->coords ? in->coords : "coords", WF_I32,
                             WF_SHAPE(rows, 1, 1, 1, 1 + in->dims), set);
    (void)wf_halo_boxes(g, in->dims);
    for (int d = 0; d < in->dims; d++)
        x.stride[d] = in->stride > 0 ? in->stride : 1;
    return x;
}

struct wf_value *wf_sparse_input_rows(struct wf_graph *g, struct wf_sparse x, const char *name,
                                      enum wf_dtype dtype, int64_t channels)
{
    if (!x.coords)
        return NULL;
    return wf_input_rows(g, name, dtype, WF_SHAPE(x.coords->shape.at[WF_N], 1, 1, 1, channels),
                         x.coords->set);
}

struct wf_sparse wf_sparse_of(struct wf_graph *g, struct wf_value *features, int dims)
{
    struct wf_sparse x = { .features = features,
                           .coords = wf_graph_find(g, "coords"),
                           .dims = dims };
    for (int d = 0; d < dims; d++)
        x.stride[d] = 1;
    if (features && (!features->set || !x.coords)) {
        wf_err_set(&g->err, WF_ERR_USAGE, "'%s' is an image, and this network wants points",
                   features->name);
        x.features = NULL;
    }
    return x;
}

/* --- convolutions --- */

static int64_t or_one(int64_t value)
{
    return value ? value : 1;
}

static struct wf_value *parameter(struct wf_graph *g, const struct wf_sparse_conv *c,
                                  const char *what, struct wf_param_spec spec)
{
    spec.name = wf_arena_printf(&g->arena, "%s.%s", c->name, what);
    spec.init = WF_INIT_UNIFORM;
    return wf_param(g, &spec);
}

/* `fan`: channels that a weight is initialised by, times the kernel's offsets. `suffix`: of the node's name, or
 * NULL. */
static struct wf_value *multiply(struct wf_graph *g, const struct wf_sparse *x,
                                 const struct wf_sparse_conv *c, struct wf_value *map, int64_t fan,
                                 const char *suffix)
{
    const int64_t count = map ? map->shape.at[WF_C] : 1;
    const double bound = 1.0 / sqrt((double)(fan * count));
    struct wf_value *w = parameter(
        g, c, "weight",
        (struct wf_param_spec){ .shape = WF_SHAPE(count, 1, 1, c->out, x->features->shape.at[WF_C]),
                                .border_dims = 1,
                                .init_bound = bound });
    struct wf_value *const b =
        c->bias ? parameter(g, c, "bias",
                            (struct wf_param_spec){ .shape = WF_SHAPE(1, 1, 1, 1, c->out),
                                                    .border_dims = -1,
                                                    .init_bound = bound })
                : NULL;
    if (w && w->dtype != x->features->dtype)
        w = wf_cast(g, w, x->features->dtype);
    const struct wf_sparse_conv_attrs a = { .reach = c->cross ? or_one(c->kernel[0]) / 2 : 0 };
    /* With few channels a kernel may do without the map, and so without its order. */
    struct wf_value *const order = x->features->shape.at[WF_C] >= 8 ? wf_map_order(g, map) : NULL;
    return wf_append(g, &wf_op_sparse_conv, c->name, suffix, &a, 5,
                     (struct wf_value *[]){ x->features, w, map, b, order });
}

/* In one sum over the rank's own rows and those of other ranks. */
static struct wf_value *convolve_joined(struct wf_graph *g, const struct wf_sparse *x,
                                        struct wf_value *onto, const struct wf_sparse_conv *c,
                                        const struct wf_kernel_map_attrs *a, int64_t fan)
{
    const struct wf_sparse halo = wf_halo(g, x, a);
    const struct wf_sparse all =
        halo.features ? wf_sparse_union(g, *x, halo, wf_arena_printf(&g->arena, "%s.halo", c->name))
                      : *x;
    struct wf_value *const map = wf_kernel_map(g, all.coords, onto, a);
    return map && all.features ? multiply(g, &all, c, map, fan, NULL) : NULL;
}

/* Products of the rank's own rows, and of those of other ranks: these travel meanwhile. */
static struct wf_value *convolve(struct wf_graph *g, const struct wf_sparse *x,
                                 struct wf_value *onto, const struct wf_sparse_conv *c,
                                 const struct wf_kernel_map_attrs *a, int64_t fan)
{
    if (g->joins_halos)
        return convolve_joined(g, x, onto, c, a, fan);
    struct wf_value *const map = wf_kernel_map(g, x->coords, onto, a);
    struct wf_sparse_conv others = *c;
    if (!map)
        return NULL;
    others.bias = false;
    wf_halo_begin(g, x, a);
    struct wf_value *const own = multiply(g, x, c, map, fan, NULL);
    const struct wf_sparse halo = wf_halo(g, x, a);
    if (!halo.features)
        return own;
    struct wf_value *const halo_map = wf_kernel_map(g, halo.coords, onto, a);
    return halo_map ? wf_add(g, own, multiply(g, &halo, &others, halo_map, fan, "halo")) : NULL;
}

struct wf_sparse wf_sparse_conv(struct wf_graph *g, struct wf_sparse x,
                                const struct wf_sparse_conv *c)
{
    struct wf_sparse y = x;
    struct wf_kernel_map_attrs a = { .dims = x.dims, .cross = c->cross };
    bool moves = false, is_one = true;
    y.features = NULL;
    if (!x.features)
        return y;
    for (int d = 0; d < x.dims; d++) {
        a.kernel[d] = or_one(c->kernel[d]);
        a.step[d] = or_one(c->dilation[d]) * x.stride[d];
        a.in_stride[d] = x.stride[d];
        y.stride[d] = c->on ? c->on->stride[d] : x.stride[d] * or_one(c->stride[d]);
        a.out_stride[d] = y.stride[d];
        moves = moves || y.stride[d] != x.stride[d];
        is_one = is_one && a.kernel[d] == 1;
    }
    if (c->on)
        y.coords = c->on->coords;
    else if (moves)
        y.coords = wf_sparse_coarsen(g, &x, y.stride);
    is_one = is_one && y.coords == x.coords;
    const int64_t fan = x.features->shape.at[WF_C];
    y.features =
        is_one ? multiply(g, &x, c, NULL, fan, NULL) : convolve(g, &x, y.coords, c, &a, fan);
    return y;
}

struct wf_sparse wf_sparse_conv_transpose(struct wf_graph *g, struct wf_sparse x,
                                          struct wf_sparse like, const struct wf_sparse_conv *c)
{
    struct wf_sparse y = like;
    struct wf_kernel_map_attrs a = { .dims = x.dims, .cross = c->cross };
    y.features = NULL;
    if (!x.features || !like.coords)
        return y;
    for (int d = 0; d < x.dims; d++) {
        a.kernel[d] = or_one(c->kernel[d]);
        a.step[d] = -or_one(c->dilation[d]) * y.stride[d];
        a.in_stride[d] = x.stride[d];
        a.out_stride[d] = y.stride[d];
    }
    y.features = convolve(g, &x, y.coords, c, &a, c->out);
    return y;
}
