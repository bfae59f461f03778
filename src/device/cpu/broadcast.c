/*
 * Sums and products of an image and what is broadcast to it, and their gradients' sums.
 *
 * A vector (one row of channels for a sample, or for all) is repeated once to the length of a piece, so the loop
 * over a piece has no inner one. A map (one channel) is a side of the walk that has one element per position.
 */
#include "device/cpu/cpu.h"

enum shape { WHOLE, VECTOR, MAP, OTHER };

/* How the input lies in the result. */
static enum shape shape_of(const struct wf_value *in, const struct wf_value *y)
{
    const int64_t *a = in->shape.at, *b = y->shape.at;
    if (wf_shape_equal(in->shape, y->shape))
        return WHOLE;
    if (a[WF_D] == 1 && a[WF_H] == 1 && a[WF_W] == 1)
        return VECTOR; /* its channels may be one number */
    const bool positions =
        a[WF_N] == b[WF_N] && a[WF_D] == b[WF_D] && a[WF_H] == b[WF_H] && a[WF_W] == b[WF_W];
    return positions && a[WF_C] == 1 ? MAP : OTHER;
}

/* Which input is the image; the other one is broadcast. */
static int image_of(const struct wf_node *node)
{
    return shape_of(node->in[0], node->out[0]) == WHOLE ? 0 : 1;
}

static bool accepts_pair(const struct wf_node *node)
{
    const int image = image_of(node);
    const enum shape other = shape_of(node->in[1 - image], node->out[0]);
    return wf_cpu_is_float(node->in[0]) && wf_cpu_is_float(node->in[1]) &&
           wf_cpu_is_float(node->out[0]) && node->out[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX &&
           shape_of(node->in[image], node->out[0]) == WHOLE && (other == VECTOR || other == MAP);
}

/* --- a vector --- */

static void add_row_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *const row = context, *const x = wf_cpu_load(piece, 0, buffer[0]);
    float *const y = wf_cpu_dest(piece, 1, buffer[1]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + row[i];
    wf_cpu_store(piece, 1, y);
}

static void multiply_row_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *const row = context, *const x = wf_cpu_load(piece, 0, buffer[0]);
    float *const y = wf_cpu_dest(piece, 1, buffer[1]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * row[i];
    wf_cpu_store(piece, 1, y);
}

static void put_row_body(const struct wf_cpu_piece *piece, const void *context)
{
    wf_cpu_store(piece, 0, context);
}

/* The channels of sample n of `v` as the work has them, repeated to the length of a piece. */
static void fill_row(const struct wf_view *v, const struct wf_value *value, struct wf_region work,
                     int64_t n, float row[WF_CPU_BLOCK_MAX])
{
    const int64_t channels = wf_region_extent(work, WF_C);
    const int64_t sample = value->shape.at[WF_N] == 1 ? 0 : n;
    for (int64_t c = 0; c < channels; c++)
        row[c] = (float)wf_view_get(v, sample, 0, 0, 0,
                                    value->shape.at[WF_C] == 1 ? 0 : work.lo[WF_C] + c);
    wf_cpu_tile(row, channels, wf_max(WF_CPU_BLOCK, channels));
}

/* `x` NULL: only what is broadcast. */
static void run_vector(const struct wf_call *call, const struct wf_view *x, int vector,
                       wf_cpu_body *body)
{
    const struct wf_value *const v = call->node->in[vector];
    const bool once = v->shape.at[WF_N] == 1;
    struct wf_region part = call->work;
    if (wf_region_is_empty(part))
        return;
    for (int64_t n = call->work.lo[WF_N];
         n < (once ? call->work.lo[WF_N] + 1 : call->work.hi[WF_N]); n++) {
        float row[WF_CPU_BLOCK_MAX];
        struct wf_cpu_walk walk;
        if (!once) {
            part.lo[WF_N] = n;
            part.hi[WF_N] = n + 1;
        }
        fill_row(&call->in[vector], v, part, n, row);
        wf_cpu_walk_init(&walk, part);
        if (x)
            wf_cpu_walk_add(&walk, x, part);
        wf_cpu_walk_add(&walk, &call->out[0], part);
        wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
        wf_cpu_walk_run(&walk, body, row);
    }
}

/* --- a map --- */

static void add_map_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const float *const x = wf_cpu_load(piece, 0, buffer[0]), *m = wf_cpu_load(piece, 1, buffer[1]);
    float *const y = wf_cpu_dest(piece, 2, buffer[2]);
    const int64_t channels = piece->walk->side[0].unit;
    for (int64_t u = 0; u < piece->units; u++)
        WF_SIMD
    for (int64_t c = 0; c < channels; c++)
        y[u * channels + c] = x[u * channels + c] + m[u];
    wf_cpu_store(piece, 2, y);
}

static void multiply_map_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const float *const x = wf_cpu_load(piece, 0, buffer[0]), *m = wf_cpu_load(piece, 1, buffer[1]);
    float *const y = wf_cpu_dest(piece, 2, buffer[2]);
    const int64_t channels = piece->walk->side[0].unit;
    for (int64_t u = 0; u < piece->units; u++)
        WF_SIMD
    for (int64_t c = 0; c < channels; c++)
        y[u * channels + c] = x[u * channels + c] * m[u];
    wf_cpu_store(piece, 2, y);
}

static void put_map_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *const m = wf_cpu_load(piece, 0, buffer[0]);
    float *const y = wf_cpu_dest(piece, 1, buffer[1]);
    const int64_t channels = piece->walk->side[1].unit;
    for (int64_t u = 0; u < piece->units; u++)
        WF_SIMD
    for (int64_t c = 0; c < channels; c++)
        y[u * channels + c] = m[u];
    wf_cpu_store(piece, 1, y);
}

static void run_map(const struct wf_call *call, const struct wf_view *x, int map, wf_cpu_body *body)
{
    struct wf_cpu_walk walk;
    struct wf_region one = call->work;
    one.lo[WF_C] = 0;
    one.hi[WF_C] = 1;
    wf_cpu_walk_init(&walk, call->work);
    if (x)
        wf_cpu_walk_add(&walk, x, call->work);
    wf_cpu_walk_add(&walk, &call->in[map], one);
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, body, NULL);
}

static void run_pair(const struct wf_call *call, wf_cpu_body *on_row, wf_cpu_body *on_map)
{
    const int image = image_of(call->node), other = 1 - image;
    if (shape_of(call->node->in[other], call->node->out[0]) == VECTOR)
        run_vector(call, &call->in[image], other, on_row);
    else
        run_map(call, &call->in[image], other, on_map);
}

static void add_run(const struct wf_call *call)
{
    run_pair(call, add_row_body, add_map_body);
}

static void multiply_run(const struct wf_call *call)
{
    run_pair(call, multiply_row_body, multiply_map_body);
}

static bool accepts_expand(const struct wf_node *node)
{
    const enum shape shape = shape_of(node->in[0], node->out[0]);
    return wf_cpu_is_float(node->in[0]) && wf_cpu_is_float(node->out[0]) &&
           node->out[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX && (shape == VECTOR || shape == MAP);
}

static void expand_run(const struct wf_call *call)
{
    if (shape_of(call->node->in[0], call->node->out[0]) == VECTOR)
        run_vector(call, NULL, 0, put_row_body);
    else
        run_map(call, NULL, 0, put_map_body);
}

/* --- product_sum --- */

/* Over positions, all of them or those of each sample, of two images or of one. */
static bool accepts_sum(const struct wf_node *node)
{
    const struct wf_reduce_attrs *a = node->attrs;
    const struct wf_value *const x = node->in[0], *const b = node->in[1];
    for (int i = WF_D; i <= WF_W; i++)
        if (!a->over[i] && x->shape.at[i] > 1)
            return false;
    return wf_cpu_accepts_channels(node) &&
           (!b || (wf_cpu_is_float(b) && wf_shape_equal(b->shape, x->shape)));
}

static bool sum_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_cpu_sum_scratch(1, p->node->in[0]->shape.at[WF_C]);
    return true;
}

static void sum_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[WF_CPU_BLOCK_MAX];
    const float *const a = wf_cpu_load(piece, 0, buffer);
    double *const sum = lanes->sum[0];
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)a[i];
}

static void product_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *const a = wf_cpu_load(piece, 0, buffer[0]), *b = wf_cpu_load(piece, 1, buffer[1]);
    double *const sum = lanes->sum[0];
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)a[i] * (double)b[i];
}

static void below_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *const a = wf_cpu_load(piece, 0, buffer[0]), *b = wf_cpu_load(piece, 1, buffer[1]);
    double *const sum = lanes->sum[0];
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)a[i] * (double)wf_cpu_select(b[i] < 0.0f, b[i], 0.0f);
}

/* The sums over `part` into row n of the result. */
static void sum_part(const struct wf_call *call, struct wf_region part, int64_t n)
{
    const struct wf_reduce_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    struct wf_cpu_walk walk;
    wf_cpu_walk_init(&walk, part);
    wf_cpu_walk_add(&walk, &call->in[0], part);
    if (call->in[1].data)
        wf_cpu_walk_add(&walk, &call->in[1], part);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    const struct wf_cpu_sum sum = { .body = !call->in[1].data ? sum_body
                                            : a->below        ? below_body
                                                              : product_body,
                                    .sums = 1,
                                    .channels = channels };
    const double *sums = wf_cpu_walk_sum(&walk, &sum, call->scratch);
    for (int64_t c = 0; c < channels; c++)
        wf_view_put(&call->out[0], n, 0, 0, 0, c, sums[c]);
}

static void product_sum_run(const struct wf_call *call)
{
    const struct wf_reduce_attrs *a = call->node->attrs;
    if (wf_cpu_parts_channels(call))
        return;
    if (a->over[WF_N]) {
        sum_part(call, call->work, 0);
        return;
    }
    wf_view_fill(&call->out[0], 0); /* samples outside the work */
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++) {
        struct wf_region part = call->work;
        part.lo[WF_N] = n;
        part.hi[WF_N] = n + 1;
        sum_part(call, part, n);
    }
}

/* --- row_dot --- */

enum { LANES = 16 };

/* Sums lane by lane, so that they are made in one order, as vector code. */
static float dot(const float *a, const float *b, int64_t n)
{
    double lane[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        WF_SIMD
    for (int k = 0; k < LANES; k++)
        lane[k] += (double)a[i + k] * (b ? (double)b[i + k] : 1.0);
    for (; i < n; i++)
        sum += (double)a[i] * (b ? (double)b[i] : 1.0);
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return (float)sum;
}

static void row_dot_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const bool two = piece->walk->n_sides == 3;
    const int to = two ? 2 : 1;
    const int64_t channels = piece->walk->side[0].unit;
    const float *const a = wf_cpu_load(piece, 0, buffer[0]);
    const float *const b = two ? wf_cpu_load(piece, 1, buffer[1]) : NULL;
    float *const y = wf_cpu_dest(piece, to, buffer[2]);
    for (int64_t u = 0; u < piece->units; u++)
        y[u] = dot(a + u * channels, b ? b + u * channels : NULL, channels);
    wf_cpu_store(piece, to, y);
}

static bool accepts_row_dot(const struct wf_node *node)
{
    const struct wf_value *const b = node->in[1];
    return wf_cpu_accepts_float(node) && node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX &&
           (!b || (wf_cpu_is_float(b) && wf_shape_equal(b->shape, node->in[0]->shape)));
}

static void row_dot_run(const struct wf_call *call)
{
    struct wf_cpu_walk walk;
    struct wf_region all = call->work;
    all.lo[WF_C] = 0;
    all.hi[WF_C] = call->node->in[0]->shape.at[WF_C];
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], all);
    if (call->in[1].data)
        wf_cpu_walk_add(&walk, &call->in[1], all);
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, row_dot_body, NULL);
}

const struct wf_kernel wf_cpu_kernels_broadcast[] = {
    { .op = "add", .accepts = accepts_pair, .run = add_run },
    { .op = "multiply", .accepts = accepts_pair, .run = multiply_run },
    { .op = "expand", .accepts = accepts_expand, .run = expand_run },
    { .op = "product_sum", .accepts = accepts_sum, .prepare = sum_prepare, .run = product_sum_run },
    { .op = "row_dot", .accepts = accepts_row_dot, .run = row_dot_run },
    { 0 },
};
