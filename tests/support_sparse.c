#include "support_sparse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "ops/build.h"

enum {
    CHANNELS = 3,
    CAPACITY =
        134, /* for ranks with most of the points, three of them; not a multiple of two or three */
};

/* --- points --- */

/* Points of each sample; none of the third. */
static const int64_t counts[SUPPORT_SPARSE_SAMPLES] = { 17, 24, 0, 11 };

static bool has(const struct support_cloud *p, const int32_t *at)
{
    const size_t width = 1 + (size_t)p->dims;
    for (int64_t i = 0; i < p->n; i++)
        if (memcmp(p->coords + i * (int64_t)width, at, width * sizeof *at) == 0)
            return true;
    return false;
}

static int by_row(const void *a, const void *b, void *of)
{
    static const int64_t stride[WF_SPARSE_AXES] = { 1, 1, 1, 1, 1, 1 };
    const struct support_cloud *const p = of;
    return wf_coords_compare(a, b, p->dims, stride);
}

static struct support_cloud *cloud_new(struct support_sparse *c)
{
    struct support_cloud *const p = &c->clouds[c->n_clouds];
    const struct wf_random r = wf_random(5, (uint64_t)c->n_clouds++ * 7 + (uint64_t)c->dims);
    const int32_t more = c->times == 1 ? 1 : c->dims == 1 ? c->times : c->dims == 2 ? 4 : 2;
    const int32_t side = more * (c->dims == 1 ? 60 : c->dims == 2 ? 9 : 5);
    uint64_t draw = 0;
    *p = (struct support_cloud){ .dims = c->dims };
    p->coords = calloc(64 * (size_t)c->times * (1 + (size_t)c->dims), sizeof *p->coords);
    WF_BUG_ON(!p->coords, "out of memory");
    for (int s = 0; s < SUPPORT_SPARSE_SAMPLES; s++) {
        for (int64_t i = 0; i < counts[s] * c->times;) {
            int32_t *const at = p->coords + p->n * (1 + c->dims);
            at[0] = s;
            for (int d = 0; d < c->dims; d++)
                at[1 + d] = (int32_t)wf_random_below(r, draw++, (uint32_t)side) - side / 2;
            if (has(p, at))
                continue;
            p->n++;
            i++;
        }
        p->first[s + 1] = p->n;
    }
    qsort_r(p->coords, (size_t)p->n, (1 + (size_t)c->dims) * sizeof *p->coords, by_row, p);
    return p;
}

/* An input that is differentiated, in the case's type. */
static struct wf_value *given(struct support_sparse *c, struct wf_value *v)
{
    c->wrt[c->n_wrt++] = v;
    return c->dtype == WF_F32 ? v : wf_cast(c->g, v, c->dtype);
}

static struct wf_sparse cloud_input(struct support_sparse *c, const char *coords,
                                    const char *features)
{
    struct support_cloud *const p = cloud_new(c);
    const struct wf_sparse x =
        wf_sparse_input(c->g, &(struct wf_sparse_input){ .features = features,
                                                         .bare = !features,
                                                         .coords = coords,
                                                         .dims = c->dims,
                                                         .rows = c->rows,
                                                         .channels = CHANNELS });
    p->set = x.coords->set;
    if (!features)
        return x;
    struct wf_sparse y = x;
    y.features = given(c, x.features);
    return y;
}

const struct support_cloud *support_sparse_cloud(const struct support_sparse *c, int set)
{
    for (int i = 0; i < c->n_clouds; i++)
        if (set && c->clouds[i].set == set)
            return &c->clouds[i];
    return NULL;
}

/* --- cases --- */

typedef struct wf_sparse builder(struct support_sparse *c);

static struct wf_sparse_conv conv_of(const struct support_sparse *c, int64_t kernel, int64_t stride)
{
    struct wf_sparse_conv conv = { .name = "conv", .out = 2 };
    for (int d = 0; d < c->dims; d++) {
        conv.kernel[d] = kernel;
        conv.stride[d] = stride;
    }
    return conv;
}

static struct wf_sparse conv_k3(struct support_sparse *c)
{
    struct wf_sparse_conv conv = conv_of(c, 3, 1);
    conv.bias = true;
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_k2_s2(struct support_sparse *c)
{
    const struct wf_sparse_conv conv = conv_of(c, 2, 2);
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_k3_s3(struct support_sparse *c)
{
    const struct wf_sparse_conv conv = conv_of(c, 3, 3);
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_cross(struct support_sparse *c)
{
    struct wf_sparse_conv conv = conv_of(c, 3, 1);
    conv.cross = true;
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_k1(struct support_sparse *c)
{
    struct wf_sparse_conv conv = conv_of(c, 1, 1);
    conv.bias = true;
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_onto(struct support_sparse *c)
{
    struct wf_sparse_conv conv = conv_of(c, 3, 1);
    const struct wf_sparse onto = cloud_input(c, "coords.b", NULL);
    conv.on = &onto;
    return wf_sparse_conv(c->g, c->x, &conv);
}

static struct wf_sparse conv_mirrored(struct support_sparse *c)
{
    struct wf_sparse_conv conv = conv_of(c, 2, 2);
    const struct wf_sparse down = wf_sparse_conv(c->g, c->x, &conv);
    conv.name = "up";
    return wf_sparse_conv_transpose(c->g, down, c->x, &conv);
}

static struct wf_sparse conv_generated(struct support_sparse *c, int64_t kernel)
{
    struct wf_sparse_conv conv = conv_of(c, 2, 2);
    const struct wf_sparse down = wf_sparse_conv(c->g, c->x, &conv);
    conv = conv_of(c, kernel, 2);
    conv.name = "up";
    return wf_sparse_conv_generate(c->g, down, &conv);
}

static struct wf_sparse conv_generated_k2(struct support_sparse *c)
{
    return conv_generated(c, 2);
}

static struct wf_sparse conv_generated_k3(struct support_sparse *c)
{
    return conv_generated(c, 3);
}

static struct wf_sparse_pool pool_of(const struct support_sparse *c, enum wf_sparse_pool_mode mode,
                                     int64_t kernel, int64_t stride)
{
    struct wf_sparse_pool p = { .name = "pool", .mode = mode };
    for (int d = 0; d < c->dims; d++) {
        p.kernel[d] = kernel;
        p.stride[d] = stride;
    }
    return p;
}

static struct wf_sparse pool_sum(struct support_sparse *c)
{
    const struct wf_sparse_pool p = pool_of(c, WF_SPARSE_SUM, 3, 1);
    return wf_sparse_pool(c->g, c->x, &p);
}

static struct wf_sparse pool_average(struct support_sparse *c)
{
    const struct wf_sparse_pool p = pool_of(c, WF_SPARSE_AVERAGE, 3, 2);
    return wf_sparse_pool(c->g, c->x, &p);
}

static struct wf_sparse pool_max(struct support_sparse *c)
{
    const struct wf_sparse_pool p = pool_of(c, WF_SPARSE_MAX, 2, 2);
    return wf_sparse_pool(c->g, c->x, &p);
}

static struct wf_sparse pool_max_onto(struct support_sparse *c)
{
    struct wf_sparse_pool p = pool_of(c, WF_SPARSE_MAX, 3, 1);
    const struct wf_sparse onto = cloud_input(c, "coords.b", NULL);
    p.on = &onto; /* some have nothing around them */
    return wf_sparse_pool(c->g, c->x, &p);
}

static struct wf_sparse unpool(struct support_sparse *c)
{
    const struct wf_sparse_pool p = pool_of(c, WF_SPARSE_AVERAGE, 3, 2);
    return wf_sparse_unpool(c->g, wf_sparse_pool(c->g, c->x, &p), c->x, &p);
}

static struct wf_sparse whole_samples(const struct support_sparse *c, enum wf_sparse_pool_mode mode)
{
    return (struct wf_sparse){ .features = wf_sparse_global_pool(c->g, c->x, "global", mode),
                               .dims = c->dims };
}

static struct wf_sparse global_sum(struct support_sparse *c)
{
    return whole_samples(c, WF_SPARSE_SUM);
}

static struct wf_sparse global_average(struct support_sparse *c)
{
    return whole_samples(c, WF_SPARSE_AVERAGE);
}

static struct wf_sparse global_max(struct support_sparse *c)
{
    return whole_samples(c, WF_SPARSE_MAX);
}

static struct wf_value *sample_input(struct support_sparse *c)
{
    struct wf_value *const rows =
        wf_input(c->g, "samples", WF_F32, WF_SHAPE(SUPPORT_SPARSE_SAMPLES, 1, 1, 1, CHANNELS));
    return given(c, rows);
}

static struct wf_sparse broadcast_add(struct support_sparse *c)
{
    return wf_sparse_broadcast_add(c->g, c->x, sample_input(c), "add");
}

static struct wf_sparse broadcast_multiply(struct support_sparse *c)
{
    return wf_sparse_broadcast_multiply(c->g, c->x, sample_input(c), "multiply");
}

static struct wf_sparse broadcast_concat(struct support_sparse *c)
{
    return wf_sparse_broadcast_concat(c->g, c->x, sample_input(c), "concat");
}

static struct wf_sparse instance_norm(struct support_sparse *c)
{
    return wf_sparse_instance_norm(
        c->g, c->x,
        &(struct wf_norm){ .name = "norm", .act = WF_LEAKY_RELU, .slope = 0.3, .eps = 1e-3 });
}

static struct wf_sparse batch_norm(struct support_sparse *c)
{
    struct wf_sparse y = c->x;
    y.features =
        wf_batch_norm(c->g, c->x.features,
                      &(struct wf_norm){ .name = "norm", .act = WF_LEAKY_RELU, .slope = 0.3 });
    return y;
}

static struct wf_sparse dropped(struct support_sparse *c)
{
    return wf_sparse_dropout(c->g, c->x, "dropout", 0.4);
}

/* Of one set: concat, add, multiply, an activation. */
static struct wf_sparse pointwise(struct support_sparse *c)
{
    struct wf_sparse y = conv_k3(c);
    struct wf_value *const both =
        wf_concat(c->g, "concat", 2, (struct wf_value *[]){ y.features, c->x.features });
    y.features =
        wf_add(c->g, wf_multiply(c->g, both, both), wf_activation(c->g, both, "tanh", WF_TANH, 0));
    return y;
}

static struct wf_sparse united(struct support_sparse *c)
{
    return wf_sparse_union(c->g, c->x, cloud_input(c, "coords.b", "features.b"), "union");
}

/* What was united is convolved, what was pruned is pooled: sets in a chain. */
static struct wf_sparse united_conv(struct support_sparse *c)
{
    const struct wf_sparse_conv conv = conv_of(c, 3, 2);
    return wf_sparse_conv(c->g, united(c), &conv);
}

static struct wf_value *mask_input(const struct support_sparse *c)
{
    return wf_input_rows(c->g, "mask", WF_I32, WF_SHAPE(c->x.features->shape.at[WF_N], 1, 1, 1, 1),
                         c->x.features->set);
}

static struct wf_sparse pruned(struct support_sparse *c)
{
    return wf_sparse_prune(c->g, c->x, mask_input(c), "prune");
}

static struct wf_sparse pruned_pool(struct support_sparse *c)
{
    const struct wf_sparse_pool p = pool_of(c, WF_SPARSE_AVERAGE, 3, 2);
    return wf_sparse_pool(c->g, pruned(c), &p);
}

static struct wf_sparse interpolated(struct support_sparse *c)
{
    struct support_cloud *const p = cloud_new(c);
    p->set = wf_set_new(c->g);
    struct wf_value *const points =
        wf_input_rows(c->g, "points", WF_F32, WF_SHAPE(c->rows, 1, 1, 1, 1 + c->dims), p->set);
    struct wf_sparse y = { .dims = c->dims };
    y.features = wf_sparse_interpolate(c->g, c->x, points, "interpolate");
    return y;
}

static struct wf_sparse_grid grid_of(const struct support_sparse *c)
{
    struct wf_sparse_grid grid = { .dims = c->dims };
    for (int d = 0; d < c->dims; d++) {
        grid.lo[d] = -1; /* some points are outside */
        grid.extent[d] = 4;
    }
    return grid;
}

static struct wf_sparse to_dense(struct support_sparse *c)
{
    const struct wf_sparse_grid grid = grid_of(c);
    return (struct wf_sparse){ .features = wf_sparse_to_dense(c->g, c->x, &grid, "dense"),
                               .dims = c->dims };
}

static struct wf_value *image_input(struct support_sparse *c)
{
    struct wf_shape shape = WF_SHAPE(SUPPORT_SPARSE_SAMPLES, 1, 1, 1, CHANNELS);
    for (int d = 0; d < c->dims; d++)
        shape.at[WF_C - 1 - d] = 4;
    struct wf_value *const image = wf_input(c->g, "image", WF_F32, shape);
    return given(c, image);
}

static struct wf_sparse of_dense(struct support_sparse *c)
{
    const struct wf_sparse_grid grid = grid_of(c);
    const struct wf_sparse at = wf_sparse_at(c->g, image_input(c), c->x, &grid, "at");
    struct wf_sparse y = c->x;
    y.features = wf_multiply(c->g, at.features, c->x.features);
    return y;
}

/* A set that an image makes, pooled over samples. */
static struct wf_sparse of_dense_places(struct support_sparse *c)
{
    const struct wf_sparse_grid grid = grid_of(c);
    struct wf_sparse y = wf_sparse_of_dense(c->g, image_input(c), &grid, "places");
    return wf_sparse_union(c->g, y, c->x, "union");
}

static struct wf_sparse loss(struct support_sparse *c)
{
    struct wf_value *const target =
        wf_input_rows(c->g, "labels", WF_I32, WF_SHAPE(c->x.features->shape.at[WF_N], 1, 1, 1, 1),
                      c->x.features->set);
    return (
        struct wf_sparse){ .features = wf_cross_entropy(
                               c->g, c->x.features, target,
                               &(struct wf_loss){ .name = "l", .ignore = 2, .has_ignore = true }),
                           .dims = c->dims };
}

static const struct {
    const char *name;
    builder *build;
    int dims;
} cases[] = {
    { "conv_k3", conv_k3, 3 },
    { "conv_k3_2d", conv_k3, 2 },
    { "conv_k3_4d", conv_k3, 4 },
    { "conv_k2_s2", conv_k2_s2, 3 },
    { "conv_k3_s3", conv_k3_s3, 2 },
    { "conv_cross", conv_cross, 3 },
    { "conv_k1", conv_k1, 3 },
    { "conv_onto", conv_onto, 3 },
    { "conv_mirrored", conv_mirrored, 3 },
    { "conv_generated_k2", conv_generated_k2, 3 },
    { "conv_generated_k3", conv_generated_k3, 2 },
    { "pool_sum", pool_sum, 3 },
    { "pool_average", pool_average, 3 },
    { "pool_max", pool_max, 3 },
    { "pool_max_1d", pool_max, 1 },
    { "pool_max_4d", pool_max, 4 },
    { "pool_max_onto", pool_max_onto, 3 },
    { "unpool", unpool, 3 },
    { "global_sum", global_sum, 3 },
    { "global_average", global_average, 2 },
    { "global_max", global_max, 3 },
    { "broadcast_add", broadcast_add, 3 },
    { "broadcast_multiply", broadcast_multiply, 2 },
    { "broadcast_concat", broadcast_concat, 3 },
    { "instance_norm", instance_norm, 3 },
    { "batch_norm", batch_norm, 3 },
    { "pointwise", pointwise, 3 },
    { "dropout", dropped, 3 },
    { "union", united, 3 },
    { "union_conv", united_conv, 2 },
    { "prune", pruned, 3 },
    { "prune_pool", pruned_pool, 2 },
    { "interpolate", interpolated, 3 },
    { "interpolate_2d", interpolated, 2 },
    { "to_dense", to_dense, 3 },
    { "to_dense_1d", to_dense, 1 },
    { "of_dense", of_dense, 3 },
    { "of_dense_places", of_dense_places, 2 },
    { "loss", loss, 3 },
};

const int support_sparse_count = sizeof cases / sizeof *cases;

static void add_output(struct support_sparse *c, struct wf_value *v)
{
    if (!v)
        return;
    WF_BUG_ON(c->n_outputs == SUPPORT_SPARSE_MOST, "%s: too many outputs", c->name);
    c->outputs[c->n_outputs++] = v;
    wf_graph_output(c->g, v);
}

static void add_gradients(struct support_sparse *c, struct wf_value *coords)
{
    struct wf_err err = { 0 };
    c->dy = wf_input_rows(c->g, "dy", c->y->dtype, c->y->shape, c->y->set);
    c->dy->replicated = c->y->replicated;
    WF_BUG_ON(!wf_graph_grad(c->g, c->y, c->dy, c->n_wrt, c->wrt, c->dwrt, &err), "%s: %s", c->name,
              err.text);
    add_output(c, c->y);
    if (c->y->set)
        add_output(c, coords);
    for (int i = 0; i < c->n_wrt; i++)
        add_output(c, c->dwrt[i]);
    for (size_t i = 0; i < c->g->n_values; i++)
        add_output(c, c->g->values[i]->grad);
}

static bool build(struct support_sparse *c, int index, const struct wf_mesh *mesh,
                  struct wf_err *err)
{
    c->name = cases[index].name;
    c->dims = cases[index].dims;
    c->g = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = c->dtype });
    c->g->samples = SUPPORT_SPARSE_SAMPLES;
    for (int a = WF_N; a < WF_C; a++)
        c->g->mesh[a] = mesh->at[wf_mesh_axis_of((enum wf_axis)a)];
    c->x = cloud_input(c, "coords", "features");
    const struct wf_sparse y = cases[index].build(c);
    if (!wf_graph_ok(c->g, err))
        return false;
    c->y = y.features;
    add_gradients(c, y.coords);
    return true;
}

struct support_sparse support_sparse_build(int index, enum wf_dtype dtype, int times)
{
    struct wf_err err = { 0 };
    const struct wf_mesh one = wf_mesh_one();
    struct support_sparse c = { .dtype = dtype, .times = times, .rows = CAPACITY * times };
    const bool ok = build(&c, index, &one, &err);
    WF_BUG_ON(!ok, "%s: %s", c.name, err.text);
    return c;
}

struct support_sparse support_sparse_build_on(int index, const struct wf_mesh *mesh,
                                              struct wf_err *err)
{
    struct support_sparse c = { .times = 1, .rows = CAPACITY * wf_mesh_size(mesh) };
    c.dtype = WF_F32;
    if (!build(&c, index, mesh, err)) {
        support_sparse_free(&c);
        c.g = NULL;
    }
    return c;
}

void support_sparse_free(struct support_sparse *c)
{
    for (int i = 0; i < c->n_clouds; i++)
        free(c->clouds[i].coords);
    wf_graph_free(c->g);
}
