/*
 * Layers that make sets of coordinates: union, pruning, transposed convolution without a mirror; and those that
 * take features to places of another kind: points between places, images.
 *
 * Features follow their coordinates by a kernel map of one offset.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/build.h"
#include "ops/halo.h"
#include "ops/sparse_ops.h"

static int64_t capacity_of(const struct wf_graph *g, int64_t set, int64_t otherwise)
{
    return set < g->n_capacities && g->capacities[set] > 0 ? g->capacities[set] : otherwise;
}

/* Where the features of `from` are at the coordinates of `to`, and 0 at others. */
static struct wf_value *follow(struct wf_graph *g, struct wf_value *features,
                               const struct wf_sparse *from, const struct wf_sparse *to,
                               const char *name)
{
    struct wf_kernel_map_attrs a = { .dims = from->dims };
    const struct wf_sparse_pool_attrs sum = { .mode = WF_SPARSE_SUM };
    for (int d = 0; d < from->dims; d++) {
        a.kernel[d] = 1;
        a.step[d] = a.in_stride[d] = from->stride[d];
        a.out_stride[d] = to->stride[d];
    }
    struct wf_value *const map = wf_kernel_map(g, from->coords, to->coords, &a);
    return wf_append(g, &wf_op_sparse_pool, name, NULL, &sum, 2,
                     (struct wf_value *[]){ features, map });
}

static struct wf_coords_set_attrs attrs_of(const struct wf_sparse *x)
{
    struct wf_coords_set_attrs a = { .dims = x->dims };
    for (int d = 0; d < x->dims; d++)
        a.stride[d] = x->stride[d];
    return a;
}

static struct wf_value *make_set(struct wf_graph *g, const struct wf_op *op, const char *name,
                                 struct wf_coords_set_attrs *a, int64_t rows,
                                 struct wf_value *const in[])
{
    a->set = wf_set_new(g);
    a->rows = capacity_of(g, a->set, rows);
    return wf_append(g, op, name, "coords", a, op->n_in, in);
}

/* One that there is, of the same two sets. */
static struct wf_value *find_union(const struct wf_graph *g, const struct wf_sparse *a,
                                   const struct wf_sparse *b)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        if (n->op == &wf_op_coords_union && n->in[0] == a->coords && n->in[1] == b->coords)
            return n->out[0];
    }
    return NULL;
}

struct wf_sparse wf_sparse_union(struct wf_graph *g, struct wf_sparse a, struct wf_sparse b,
                                 const char *name)
{
    struct wf_sparse y = a;
    y.features = NULL;
    if (!a.features || !b.features)
        return y;
    if (a.dims != b.dims || memcmp(a.stride, b.stride, sizeof a.stride) != 0) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': a union of tensors of different dimensions or strides", name);
        return y;
    }
    if (a.coords == b.coords) {
        y.features = wf_add(g, a.features, b.features);
        return y;
    }
    struct wf_coords_set_attrs attrs = attrs_of(&a);
    y.coords = find_union(g, &a, &b);
    if (!y.coords)
        y.coords = make_set(g, &wf_op_coords_union, name, &attrs,
                            a.coords->shape.at[WF_N] + b.coords->shape.at[WF_N],
                            (struct wf_value *[]){ a.coords, b.coords });
    if (y.coords)
        y.features =
            wf_add(g, follow(g, a.features, &a, &y, wf_arena_printf(&g->arena, "%s.a", name)),
                   follow(g, b.features, &b, &y, wf_arena_printf(&g->arena, "%s.b", name)));
    return y;
}

struct wf_sparse wf_sparse_prune(struct wf_graph *g, struct wf_sparse x, struct wf_value *mask,
                                 const char *name)
{
    struct wf_sparse y = x;
    y.features = NULL;
    if (!x.features || !mask)
        return y;
    struct wf_coords_set_attrs attrs = attrs_of(&x);
    y.coords = make_set(g, &wf_op_coords_prune, name, &attrs, x.coords->shape.at[WF_N],
                        (struct wf_value *[]){ x.coords, mask });
    if (y.coords)
        y.features = follow(g, x.features, &x, &y, name);
    return y;
}

struct wf_sparse wf_sparse_conv_generate(struct wf_graph *g, struct wf_sparse x,
                                         const struct wf_sparse_conv *c)
{
    struct wf_sparse onto = x;
    int64_t count = 1;
    onto.features = NULL;
    if (!x.features || wf_halo_refuse(g, c->name, "a transposed convolution that makes its places"))
        return onto;
    struct wf_coords_set_attrs a = { .dims = x.dims, .cross = c->cross };
    for (int d = 0; d < x.dims; d++) {
        const int64_t stride = c->stride[d] ? c->stride[d] : 1;
        a.kernel[d] = c->kernel[d] ? c->kernel[d] : 1;
        if (x.stride[d] % stride != 0) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "layer '%s': a transposed convolution of stride %" PRId64
                       " on a tensor of stride %" PRId64 ": use a divisor of it",
                       c->name, stride, x.stride[d]);
            return onto;
        }
        a.from[d] = x.stride[d];
        onto.stride[d] = a.stride[d] = x.stride[d] / stride;
        a.step[d] = a.stride[d] * (c->dilation[d] ? c->dilation[d] : 1);
        count = c->cross ? 1 + x.dims * (a.kernel[0] - 1) : count * a.kernel[d];
    }
    onto.coords =
        make_set(g, &wf_op_coords_expand, c->name, &a, x.coords->shape.at[WF_N] * count, &x.coords);
    return onto.coords ? wf_sparse_conv_transpose(g, x, onto, c) : onto;
}

/* --- points between places --- */

struct wf_value *wf_sparse_interpolate(struct wf_graph *g, struct wf_sparse x,
                                       struct wf_value *points, const char *name)
{
    struct wf_corner_attrs a = { .dims = x.dims };
    if (!x.features || !points || wf_halo_refuse(g, name, "interpolation"))
        return NULL;
    memcpy(a.stride, x.stride, sizeof a.stride);
    struct wf_node *const corners =
        wf_node_add(g, &wf_op_corner_map, wf_arena_printf(&g->arena, "%s.corners", name), &a, 2,
                    (struct wf_value *[]){ x.coords, points });
    const struct wf_mix_attrs mix = { .rows = x.features->shape.at[WF_N], .set = x.features->set };
    return corners
               ? wf_append(g, &wf_op_sparse_mix, name, NULL, &mix, 3,
                           (struct wf_value *[]){ x.features, corners->out[0], corners->out[1] })
               : NULL;
}
