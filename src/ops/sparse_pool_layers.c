/* Layers on sparse tensors that pool: over kernels, over whole samples, and back onto points. */
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/halo.h"
#include "ops/norm.h"
#include "ops/sparse_ops.h"

static int64_t or_one(int64_t value)
{
    return value ? value : 1;
}

/* --- over a kernel --- */

/* A maximum or an average wants all rows that it is over in one place, those of other ranks among them. */
static struct wf_value *pool(struct wf_graph *g, const char *name, enum wf_sparse_pool_mode mode,
                             struct wf_sparse x, struct wf_value *onto,
                             const struct wf_kernel_map_attrs *k)
{
    const struct wf_sparse_pool_attrs a = { .mode = mode };
    const struct wf_sparse halo = wf_halo(g, &x, k);
    if (halo.features)
        x = wf_sparse_union(g, x, halo, wf_arena_printf(&g->arena, "%s.halo", name));
    struct wf_value *const map = wf_kernel_map(g, x.coords, onto, k);
    return map ? wf_append(g, &wf_op_sparse_pool, name, NULL, &a, 2,
                           (struct wf_value *[]){ x.features, map })
               : NULL;
}

struct wf_sparse wf_sparse_pool(struct wf_graph *g, struct wf_sparse x,
                                const struct wf_sparse_pool *p)
{
    struct wf_sparse y = x;
    struct wf_kernel_map_attrs a = { .dims = x.dims };
    bool moves = false;
    y.features = NULL;
    if (!x.features)
        return y;
    for (int d = 0; d < x.dims; d++) {
        a.kernel[d] = or_one(p->kernel[d]);
        a.step[d] = or_one(p->dilation[d]) * x.stride[d];
        a.in_stride[d] = x.stride[d];
        y.stride[d] = p->on ? p->on->stride[d] : x.stride[d] * or_one(p->stride[d]);
        a.out_stride[d] = y.stride[d];
        moves = moves || y.stride[d] != x.stride[d];
    }
    if (p->on)
        y.coords = p->on->coords;
    else if (moves)
        y.coords = wf_sparse_coarsen(g, &x, y.stride);
    y.features = pool(g, p->name, p->mode, x, y.coords, &a);
    return y;
}

struct wf_sparse wf_sparse_unpool(struct wf_graph *g, struct wf_sparse x, struct wf_sparse like,
                                  const struct wf_sparse_pool *p)
{
    struct wf_sparse y = like;
    struct wf_kernel_map_attrs a = { .dims = x.dims };
    y.features = NULL;
    if (!x.features || !like.coords)
        return y;
    for (int d = 0; d < x.dims; d++) {
        a.kernel[d] = or_one(p->kernel[d]);
        a.step[d] = -or_one(p->dilation[d]) * y.stride[d];
        a.in_stride[d] = x.stride[d];
        a.out_stride[d] = y.stride[d];
    }
    y.features = pool(g, p->name, WF_SPARSE_SUM, x, y.coords, &a);
    return y;
}

/* --- over samples --- */

static int64_t samples_of(const struct wf_graph *g)
{
    return g->samples > 0 ? g->samples : 1;
}

struct wf_value *wf_sparse_global_pool(struct wf_graph *g, struct wf_sparse x, const char *name,
                                       enum wf_sparse_pool_mode mode)
{
    if (!x.features ||
        (mode == WF_SPARSE_MAX && wf_halo_refuse(g, name, "a maximum over the points of a sample")))
        return NULL;
    const struct wf_samples_attrs a = { .samples = samples_of(g),
                                        .channels = x.features->shape.at[WF_C],
                                        .mean = mode == WF_SPARSE_AVERAGE };
    struct wf_value *const t =
        wf_append(g, mode == WF_SPARSE_MAX ? &wf_op_sample_max : &wf_op_sample_sums, name, "table",
                  &a, 2, (struct wf_value *[]){ x.features, x.coords });
    return wf_cast(g, wf_append(g, &wf_op_sample_take, name, NULL, &a, 1, &t), x.features->dtype);
}

struct wf_value *wf_sparse_spread(struct wf_graph *g, struct wf_value *rows, struct wf_sparse x,
                                  const char *name)
{
    if (!rows || !x.coords)
        return NULL;
    const struct wf_samples_attrs a = { .samples = samples_of(g),
                                        .channels = rows->shape.at[WF_C] };
    return wf_append(g, &wf_op_sample_rows, name, "rows", &a, 2,
                     (struct wf_value *[]){ wf_replicate(g, rows), x.coords });
}

struct wf_sparse wf_sparse_broadcast_add(struct wf_graph *g, struct wf_sparse x,
                                         struct wf_value *rows, const char *name)
{
    x.features = wf_add(g, x.features, wf_sparse_spread(g, rows, x, name));
    return x;
}

struct wf_sparse wf_sparse_broadcast_multiply(struct wf_graph *g, struct wf_sparse x,
                                              struct wf_value *rows, const char *name)
{
    x.features = wf_multiply(g, x.features, wf_sparse_spread(g, rows, x, name));
    return x;
}

struct wf_sparse wf_sparse_broadcast_concat(struct wf_graph *g, struct wf_sparse x,
                                            struct wf_value *rows, const char *name)
{
    x.features = wf_concat(g, name, 2,
                           (struct wf_value *[]){ x.features, wf_sparse_spread(g, rows, x, name) });
    return x;
}

/* --- instance norm --- */

static struct wf_value *mean_of(struct wf_graph *g, struct wf_sparse x, struct wf_value *v,
                                const char *name)
{
    x.features = v;
    return wf_sparse_global_pool(g, x, name, WF_SPARSE_AVERAGE);
}

/* Weight and bias, as a normalisation by mean 0 and deviation 1. */
static struct wf_value *scale_channels(struct wf_graph *g, struct wf_value *x,
                                       const struct wf_norm *n)
{
    struct wf_norm_layer l = wf_norm_layer(g, x, n);
    const struct wf_shape half = WF_SHAPE(1, 1, 1, 1, x->shape.at[WF_C]);
    const enum wf_dtype dtype = x->dtype == WF_F64 ? WF_F64 : WF_F32;
    struct wf_value *const s = wf_concat(
        g, wf_arena_printf(&g->arena, "%s.stats", l.name), 2,
        (struct wf_value *[]){ wf_fill(g, half, dtype, 0.0), wf_fill(g, half, dtype, 1.0) });
    l.attrs.fixed = 1;
    l.attrs.wide = dtype == WF_F64;
    return wf_append(g, &wf_op_norm, l.name, NULL, &l.attrs, 4,
                     (struct wf_value *[]){ x, s, l.w, l.b });
}

struct wf_sparse wf_sparse_instance_norm(struct wf_graph *g, struct wf_sparse x,
                                         const struct wf_norm *n)
{
    if (!x.features)
        return x;
    const struct wf_rsqrt_attrs a = { .eps = n->eps > 0 ? n->eps : 1e-5 };
    const char *const mean_name = wf_arena_printf(&g->arena, "%s.mean", n->name);
    const char *const var_name = wf_arena_printf(&g->arena, "%s.var", n->name);
    struct wf_value *const mean = mean_of(g, x, x.features, mean_name);
    /* Squares around the mean: large offsets cost no digits. */
    struct wf_value *const centred =
        wf_add(g, x.features, wf_scale(g, wf_sparse_spread(g, mean, x, mean_name), -1.0));
    struct wf_value *const var = mean_of(g, x, wf_multiply(g, centred, centred), var_name);
    struct wf_value *const rstd = wf_append(g, &wf_op_rsqrt, n->name, "rstd", &a, 1, &var);
    struct wf_value *const y = wf_multiply(g, centred, wf_sparse_spread(g, rstd, x, var_name));
    x.features = y ? scale_channels(g, y, n) : NULL;
    return x;
}
