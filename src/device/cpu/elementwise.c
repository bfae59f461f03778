/* Sums, products, scaling, casting and dropout, element by element. */
#include "device/cpu/cpu.h"

#include <Random123/philox.h>
#include <math.h>

#include "ops/dropout.h"

static bool accepts_same_shapes(const struct wf_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (!wf_cpu_is_float(node->in[i]) ||
            !wf_shape_equal(node->in[i]->shape, node->out[0]->shape))
            return false;
    return wf_cpu_is_float(node->out[0]);
}

/* --- add, multiply --- */

static void add_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const float *a = wf_cpu_load(piece, 0, buffer[0]), *b = wf_cpu_load(piece, 1, buffer[1]);
    float *y = wf_cpu_dest(piece, 2, buffer[2]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    wf_cpu_store(piece, 2, y);
}

static void multiply_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const float *a = wf_cpu_load(piece, 0, buffer[0]), *b = wf_cpu_load(piece, 1, buffer[1]);
    float *y = wf_cpu_dest(piece, 2, buffer[2]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
    wf_cpu_store(piece, 2, y);
}

/* All inputs and then the output go through the body, element by element. */
static void run_flat(const struct wf_call *call, wf_cpu_body *body, const void *context)
{
    struct wf_cpu_walk walk;
    wf_cpu_walk_call(&walk, call, call->node->n_in, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, body, context);
}

static void add_run(const struct wf_call *call)
{
    run_flat(call, add_body, NULL);
}

static void multiply_run(const struct wf_call *call)
{
    run_flat(call, multiply_body, NULL);
}

/* --- scale, shift, reverse, cast --- */

static void scale_body(const struct wf_cpu_piece *piece, const void *context)
{
    const float factor = *(const float *)context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
    wf_cpu_store(piece, 1, y);
}

static void scale_run(const struct wf_call *call)
{
    const struct wf_scale_attrs *a = call->node->attrs;
    const float factor = (float)a->factor;
    run_flat(call, scale_body, &factor);
}

static void shift_body(const struct wf_cpu_piece *piece, const void *context)
{
    const float offset = *(const float *)context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + offset;
    wf_cpu_store(piece, 1, y);
}

static void shift_run(const struct wf_call *call)
{
    const struct wf_shift_attrs *a = call->node->attrs;
    const float offset = (float)a->offset;
    run_flat(call, shift_body, &offset);
}

static void move_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[WF_CPU_BLOCK_MAX];
    wf_cpu_store(piece, 1, wf_cpu_load(piece, 0, buffer));
}

static void move_run(const struct wf_call *call)
{
    run_flat(call, move_body, NULL);
}

static bool accepts_cast(const struct wf_node *node)
{
    return (wf_cpu_is_float(node->in[0]) || node->in[0]->dtype == WF_U8) &&
           wf_cpu_is_float(node->out[0]);
}

/* --- dropout --- */

struct dropout {
    const struct wf_dropout_attrs *attrs;
    struct wf_random random;
};

/* factor[i] for the `n` elements from global index `first`: the numbers of wf_random_uniform(), but
 * one call of the generator gives four of them, and calls go side by side. */
static void mask(const struct dropout *d, uint64_t first, int64_t n, float *factor)
{
    uint32_t bits[WF_CPU_BLOCK_MAX + 8];
    const float keep = wf_dropout_scale(d->attrs);
    /* Kept: (bits >> 8) * 2^-24 >= p, in whole numbers. */
    const int32_t least = (int32_t)ceil(d->attrs->p * 0x1p24);
    const philox4x32_key_t key = { { (uint32_t)d->random.seed, (uint32_t)(d->random.seed >> 32) } };
    const uint32_t low = (uint32_t)d->random.stream, high = (uint32_t)(d->random.stream >> 32);
    const uint64_t word = first >> 2, words = ((first + (uint64_t)n + 3) >> 2) - word;
    WF_SIMD
    for (uint64_t i = 0; i < words; i++) {
        const uint64_t at = word + i;
        const philox4x32_ctr_t counter = { { (uint32_t)at, (uint32_t)(at >> 32), low, high } };
        const philox4x32_ctr_t out = philox4x32(counter, key);
        bits[4 * i] = out.v[0];
        bits[4 * i + 1] = out.v[1];
        bits[4 * i + 2] = out.v[2];
        bits[4 * i + 3] = out.v[3];
    }
    const uint32_t *mine = bits + (first & 3);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        factor[i] = wf_cpu_select((int32_t)(mine[i] >> 8) >= least, keep, 0.0f);
}

static void dropout_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[2][WF_CPU_BLOCK_MAX], factor[WF_CPU_BLOCK_MAX];
    const struct wf_cpu_side *index = &piece->walk->side[2];
    const int64_t step = index->stride[piece->walk->n_axes - 1], n = wf_cpu_count(piece, 0);
    if (step == index->unit)
        mask(context, (uint64_t)piece->at[2], n, factor);
    else
        for (int64_t u = 0; u < piece->units; u++)
            mask(context, (uint64_t)(piece->at[2] + u * step), index->unit,
                 factor + u * index->unit);
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float f = factor[i]; // NOLINT(clang-analyzer-core.*): mask() sets n of them
        y[i] = wf_cpu_select(f != 0.0f, x[i] * f, 0.0f);
    }
    wf_cpu_store(piece, 1, y);
}

static void dropout_run(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = call->node->attrs;
    const struct dropout context = { a, wf_dropout_random(a, call->seed, call->step) };
    struct wf_cpu_walk walk;
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], call->work);
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_add_index(&walk, call->node->out[0]->shape);
    wf_cpu_walk_plan(&walk, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, dropout_body, &context);
}

const struct wf_kernel wf_cpu_kernels_elementwise[] = {
    { .op = "add", .accepts = accepts_same_shapes, .run = add_run },
    { .op = "multiply", .accepts = accepts_same_shapes, .run = multiply_run },
    { .op = "scale", .accepts = accepts_same_shapes, .run = scale_run },
    { .op = "shift", .accepts = accepts_same_shapes, .run = shift_run },
    { .op = "reverse", .accepts = accepts_same_shapes, .run = move_run },
    { .op = "cast", .accepts = accepts_cast, .run = move_run },
    { .op = "dropout", .accepts = accepts_same_shapes, .run = dropout_run },
    { 0 },
};
