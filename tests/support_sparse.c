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
                                                         .rows = CAPACITY * c->times,
                                                         .channels = CHANNELS });
    p->set = x.coords->set;
    if (!features)
        return x;
    struct wf_sparse y = x;
    y.features = given(c, x.features);
    return y;
}

static const struct support_cloud *cloud_of(const struct support_sparse *c, int set)
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
    struct wf_value *const points = wf_input_rows(
        c->g, "points", WF_F32, WF_SHAPE(CAPACITY * c->times, 1, 1, 1, 1 + c->dims), p->set);
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

struct support_sparse support_sparse_build(int index, enum wf_dtype dtype, int times)
{
    struct wf_err err = { 0 };
    struct support_sparse c = {
        .name = cases[index].name, .dims = cases[index].dims, .dtype = dtype, .times = times
    };
    c.g = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = dtype });
    c.g->samples = SUPPORT_SPARSE_SAMPLES;
    c.x = cloud_input(&c, "coords", "features");
    const struct wf_sparse y = cases[index].build(&c);
    WF_BUG_ON(!wf_graph_ok(c.g, &err), "%s: %s", c.name, err.text);
    c.y = y.features;
    c.dy = wf_input_rows(c.g, "dy", c.y->dtype, c.y->shape, c.y->set);
    c.dy->replicated = c.y->replicated;
    WF_BUG_ON(!wf_graph_grad(c.g, c.y, c.dy, c.n_wrt, c.wrt, c.dwrt, &err), "%s: %s", c.name,
              err.text);
    add_output(&c, c.y);
    if (c.y->set)
        add_output(&c, y.coords);
    for (int i = 0; i < c.n_wrt; i++)
        add_output(&c, c.dwrt[i]);
    for (size_t i = 0; i < c.g->n_values; i++)
        add_output(&c, c.g->values[i]->grad);
    return c;
}

void support_sparse_free(struct support_sparse *c)
{
    for (int i = 0; i < c->n_clouds; i++)
        free(c->clouds[i].coords);
    wf_graph_free(c->g);
}

/* --- filling --- */

/* Element c of row r of the whole batch. */
static double number_of(const struct support_cloud *p, const struct wf_value *v, int64_t r,
                        int64_t c)
{
    const struct wf_random random = wf_random(9, wf_random_stream(v->name));
    const uint64_t index = (uint64_t)(r * v->shape.at[WF_C] + c);
    const int32_t place = p ? p->coords[r * (1 + p->dims) + wf_min(c, p->dims)] : 0;
    if (strncmp(v->name, "coords", 6) == 0)
        return place;
    if (strcmp(v->name, "points") == 0) /* some on places, most between */
        return c == 0 || r % 5 == 0 ? place
                                    : place + 0.9 * (double)wf_random_uniform(random, index);
    if (v->dtype == WF_I32)
        return wf_random_below(random, index, strcmp(v->name, "mask") == 0 ? 2 : 3);
    const double u = 2.0 * (double)wf_random_uniform(random, index) - 1.0;
    return u + (u < 0 ? -0.05 : 0.05);
}

/* Rows from `first` on, as many as there are; behind them what must not be read. */
static void fill_rows(const struct support_cloud *p, const struct wf_value *v,
                      const struct wf_view *view, int64_t first, int64_t n)
{
    wf_view_fill(view, v->dtype == WF_I32 ? 1e6 : (double)NAN);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < v->shape.at[WF_C]; c++)
            wf_view_put(view, view->box.lo[WF_N] + r, 0, 0, 0, c, number_of(p, v, first + r, c));
}

/* Of an image, a row per sample, or a weight: elements by their place in the whole. */
static void fill_dense(const struct wf_value *v, const struct wf_view *view)
{
    const struct wf_random random = wf_random(9, wf_random_stream(v->name));
    const bool has_holes = strcmp(v->name, "image") == 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        int64_t index = 0;
        for (int a = 0; a < WF_AXES; a++)
            index = index * v->shape.at[a] + c.at[a];
        const double u = 2.0 * (double)wf_random_uniform(random, (uint64_t)index) - 1.0;
        const bool hole = has_holes && index / v->shape.at[WF_C] % 3 == 0;
        const bool scale = v->kind == WF_STATE || (v->kind == WF_PARAM && v->border_dims < 0);
        wf_view_set(view, c.at, hole ? 0.0 : scale ? 0.5 + fabs(u) : u + (u < 0 ? -0.05 : 0.05));
    }
}

/* Of the samples that part k of `parts` has. */
static int64_t sample_point(int k, int parts)
{
    return SUPPORT_SPARSE_SAMPLES - wf_split_point(SUPPORT_SPARSE_SAMPLES, parts, parts - k);
}

static void fill(const struct support_sparse *c, const struct wf_value *v,
                 const struct wf_view *view, int part, int parts)
{
    const struct support_cloud *const p = cloud_of(c, v->set);
    if (!view->data || v->kind == WF_TEMP)
        return;
    if (v == c->g->rows) {
        int32_t *const rows = view->data;
        for (int s = 0; s <= WF_SETS; s++) {
            const struct support_cloud *const of = cloud_of(c, s);
            rows[s] = of ? (int32_t)(of->first[sample_point(part + 1, parts)] -
                                     of->first[sample_point(part, parts)])
                         : -1;
        }
    } else if (p) {
        const int64_t first = p->first[sample_point(part, parts)];
        fill_rows(p, v, view, first, p->first[sample_point(part + 1, parts)] - first);
    } else if (!v->set)
        fill_dense(v, view);
}

/* dy of a set that the step makes: by the row in the whole, which needs the counts of ranks before. */
static void fill_dy(const struct support_sparse *c, const struct wf_view *view)
{
    if (c->dy->set && !cloud_of(c, c->dy->set))
        for (struct wf_cursor p = wf_cursor(view->box); wf_cursor_next(&p);)
            wf_view_set(view, p.at, 0.25 * (double)(1 + p.at[WF_C]));
}

void support_sparse_fill(const struct support_sparse *c, const struct support_values *v)
{
    for (size_t i = 0; i < c->g->n_values; i++)
        fill(c, c->g->values[i], &v->views[i], 0, 1);
    fill_dy(c, &v->views[c->dy->id]);
}

void support_sparse_fill_run(const struct support_sparse *c, struct wf_run *run, int rank,
                             int ranks)
{
    for (size_t i = 0; i < c->g->n_values; i++) {
        const struct wf_value *const v = c->g->values[i];
        struct wf_host host = { 0 };
        if (v->kind == WF_TEMP)
            continue;
        wf_run_map(run, v, &host);
        fill(c, v, &host.view, rank, ranks);
        if (v == c->dy)
            fill_dy(c, &host.view);
        wf_host_put(&host);
        wf_host_release(&host);
    }
}

struct wf_region support_sparse_there(const struct support_sparse *c,
                                      const struct support_values *v, const struct wf_value *value)
{
    struct wf_region r = wf_shape_region(value->shape);
    const int32_t *const rows = v->views[c->g->rows->id].data;
    if (value->set)
        r.hi[WF_N] = wf_min(r.hi[WF_N], rows[value->set]);
    return r;
}
