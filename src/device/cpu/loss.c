/*
 * Losses: sums over the image, and gradients. The bad label of ops/loss.h shows as NaN here too.
 *
 * Scratch: first that of the sums, then one or two rows of floats per class.
 */
#include "device/cpu/cpu.h"

#include <math.h>

#include "ops/loss.h"

struct context {
    const struct wf_loss_attrs *attrs;
    const float *row[2]; /* cross-entropy: class weights; Dice: ds of p * t and of p */
    float ds;
};

static int64_t classes_of(const struct wf_node *node)
{
    return node->in[0]->shape.at[WF_C];
}

static bool prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t classes = classes_of(p->node);
    p->scratch_bytes =
        wf_cpu_sum_scratch(WF_CPU_SUMS, classes) + (size_t)(2 * classes) * sizeof(float);
    return true;
}

/* The rows of floats behind the sums. */
static float *rows_of(const struct wf_call *call)
{
    const size_t sums = wf_cpu_sum_scratch(WF_CPU_SUMS, classes_of(call->node));
    return (float *)(void *)((char *)call->scratch + sums);
}

/* The map that goes with the work: one channel. */
static struct wf_region map_of(struct wf_region work)
{
    work.lo[WF_C] = 0;
    work.hi[WF_C] = 1;
    return work;
}

/* Sides: in[0], target, and out[0] where there is a result per position. */
static void walk_map(struct wf_cpu_walk *walk, const struct wf_call *call, bool out)
{
    wf_cpu_walk_init(walk, call->work);
    wf_cpu_walk_add(walk, &call->in[0], call->work);
    wf_cpu_walk_add(walk, &call->in[1], map_of(call->work));
    if (out)
        wf_cpu_walk_add(walk, &call->out[0], call->work);
    wf_cpu_walk_plan(walk, WF_CPU_POSITION);
}

static void put_sums(const struct wf_call *call, const double *sums, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        wf_view_put(&call->out[0], 0, 0, 0, 0, k, sums[k]);
}

static bool accepts_map(const struct wf_node *node)
{
    return wf_cpu_accepts_channels(node) &&
           (node->in[1]->dtype == WF_I32 || node->in[1]->dtype == WF_U8);
}

/* --- cross-entropy: logits, target, [weights], ds --- */

/* y = exp(x - top) of each position; `top` is the channel of the position's maximum. */
static void exponentials(const float *x, int64_t units, int64_t classes, float *y, int32_t *top)
{
    for (int64_t u = 0; u < units; u++) {
        const float *from = x + u * classes;
        int32_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            best = from[c] > from[best] ? (int32_t)c : best;
        for (int64_t c = 0; c < classes; c++)
            y[u * classes + c] = from[c] - from[best];
        top[u] = best;
    }
    WF_SIMD
    for (int64_t i = 0; i < units * classes; i++)
        y[i] = wf_cpu_exp(y[i]); // NOLINT(clang-analyzer-core.*): set above
}

static void ce_body(const struct wf_cpu_piece *piece, const void *context,
                    struct wf_cpu_lanes *lanes)
{
    const struct context *k = context;
    float buffer[WF_CPU_BLOCK_MAX], y[WF_CPU_BLOCK_MAX];
    int32_t label[WF_CPU_BLOCK], top[WF_CPU_BLOCK];
    const int64_t classes = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer);
    wf_cpu_load_int(piece, 1, label);
    exponentials(x, piece->units, classes, y, top);
    for (int64_t u = 0; u < piece->units; u++) {
        if (!wf_loss_counts(k->attrs, label[u]))
            continue;
        const int64_t mine = wf_loss_class(label[u], classes);
        const double weight = mine < 0 ? (double)NAN : (double)k->row[0][mine];
        const float *at = x + u * classes;
        /* All but the maximum, which is 1: log1p keeps what 1 + rest would round away. */
        float rest = 0.0f;
        for (int64_t c = 0; c < classes; c++)
            rest += c == top[u] ? 0.0f : y[u * classes + c];
        const float nll = log1pf(rest) + (at[top[u]] - at[mine < 0 ? 0 : mine]);
        lanes->total[0] += weight * (double)nll;
        lanes->total[1] += weight;
    }
}

static struct context ce_context(const struct wf_call *call)
{
    const struct wf_view *weights = &call->in[2];
    float *row = rows_of(call);
    for (int64_t c = 0; c < classes_of(call->node); c++)
        row[c] = weights->data ? (float)wf_view_get(weights, 0, 0, 0, 0, c) : 1.0f;
    return (struct context){ .attrs = call->node->attrs, .row = { row } };
}

static void ce_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct context context = ce_context(call);
    struct wf_cpu_walk walk;
    walk_map(&walk, call, false);
    const struct wf_cpu_sum sum = { .body = ce_body, .context = &context, .sums = 2 };
    put_sums(call, wf_cpu_walk_sum(&walk, &sum, call->scratch), 2);
}

static void ce_grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct context *k = context;
    float buffer[WF_CPU_BLOCK_MAX], y[WF_CPU_BLOCK_MAX];
    int32_t label[WF_CPU_BLOCK], top[WF_CPU_BLOCK];
    const int64_t classes = piece->walk->side[0].unit;
    wf_cpu_load_int(piece, 1, label);
    exponentials(wf_cpu_load(piece, 0, buffer), piece->units, classes, y, top);
    float *dx = wf_cpu_dest(piece, 2, buffer);
    for (int64_t u = 0; u < piece->units; u++) {
        const float *from = y + u * classes;
        float *to = dx + u * classes, sum = 0.0f;
        if (!wf_loss_counts(k->attrs, label[u])) {
            memset(to, 0, (size_t)classes * sizeof *to);
            continue;
        }
        const int64_t mine = wf_loss_class(label[u], classes);
        const float factor = k->ds * (mine < 0 ? NAN : k->row[0][mine]);
        for (int64_t c = 0; c < classes; c++)
            sum += from[c];
        for (int64_t c = 0; c < classes; c++)
            to[c] = factor * (from[c] / sum - (c == mine ? 1.0f : 0.0f));
    }
    wf_cpu_store(piece, 2, dx);
}

static void ce_grad_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    struct context context = ce_context(call);
    context.ds = (float)wf_view_get(&call->in[3], 0, 0, 0, 0, 0);
    struct wf_cpu_walk walk;
    walk_map(&walk, call, true);
    wf_cpu_walk_run(&walk, ce_grad_body, &context);
}

/* --- binary cross-entropy and mean square: element by element against a target --- */

static void bce_body(const struct wf_cpu_piece *piece, const void *context,
                     struct wf_cpu_lanes *lanes)
{
    const struct context *k = context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *t = wf_cpu_load(piece, 1, buffer[1]);
    for (int64_t i = 0; i < wf_cpu_count(piece, 0); i++) {
        if (!wf_loss_counts(k->attrs, (double)t[i]))
            continue;
        const float tail = log1pf(wf_cpu_exp(-fabsf(x[i])));
        lanes->total[0] += (double)((x[i] < 0.0f ? 0.0f : x[i]) - x[i] * t[i] + tail);
        lanes->total[1] += 1.0;
    }
}

static void mse_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[2][WF_CPU_BLOCK_MAX], square[WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *t = wf_cpu_load(piece, 1, buffer[1]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        square[i] = (x[i] - t[i]) * (x[i] - t[i]);
    double total[4] = { 0 };
    for (int64_t i = 0; i < n; i++)
        total[i & 3] += (double)square[i];
    lanes->total[0] += (total[0] + total[1]) + (total[2] + total[3]);
    lanes->total[1] += (double)n;
}

static void run_pairs(const struct wf_call *call, wf_cpu_sum_body *body)
{
    const struct context context = { .attrs = call->node->attrs };
    struct wf_cpu_walk walk;
    wf_cpu_walk_over(&walk, call->work, WF_CPU_FLAT, WF_CPU_VIEWS(&call->in[0], &call->in[1]));
    const struct wf_cpu_sum sum = { .body = body, .context = &context, .sums = 2 };
    put_sums(call, wf_cpu_walk_sum(&walk, &sum, call->scratch), 2);
}

static void bce_run(const struct wf_call *call)
{
    run_pairs(call, bce_body);
}

static void mse_run(const struct wf_call *call)
{
    run_pairs(call, mse_body);
}

static bool accepts_pairs(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && node->in[1]->dtype != WF_F64;
}

static void bce_grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct context *k = context;
    float buffer[2][WF_CPU_BLOCK_MAX], own[WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *t = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, own);
    const bool has_ignore = k->attrs->has_ignore != 0;
    const float ignore = (float)k->attrs->ignore, ds = k->ds;
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float d = ds * (1.0f / (1.0f + wf_cpu_exp(-x[i])) - t[i]);
        dx[i] = wf_cpu_select(has_ignore & (t[i] == ignore), 0.0f, d);
    }
    wf_cpu_store(piece, 2, dx);
}

static void mse_grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct context *k = context;
    float buffer[2][WF_CPU_BLOCK_MAX], own[WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *t = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, own);
    const float factor = 2.0f * k->ds;
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        dx[i] = factor * (x[i] - t[i]);
    wf_cpu_store(piece, 2, dx);
}

static void run_pairs_grad(const struct wf_call *call, wf_cpu_body *body)
{
    const struct context context = { .attrs = call->node->attrs,
                                     .ds = (float)wf_view_get(&call->in[2], 0, 0, 0, 0, 0) };
    struct wf_cpu_walk walk;
    wf_cpu_walk_call(&walk, call, 2, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, body, &context);
}

static void bce_grad_run(const struct wf_call *call)
{
    run_pairs_grad(call, bce_grad_body);
}

static void mse_grad_run(const struct wf_call *call)
{
    run_pairs_grad(call, mse_grad_body);
}

/* --- Dice: probs, target, ds --- */

/* With one class label 1 is that class and 0 is none of it: `classes`. -1 is a bad label. */
static int64_t dice_class(int32_t label, int64_t classes)
{
    if (classes > 1)
        return wf_loss_class(label, classes);
    return label == 1 ? 0 : label == 0 ? classes : -1;
}

static void dice_body(const struct wf_cpu_piece *piece, const void *context,
                      struct wf_cpu_lanes *lanes)
{
    const struct context *k = context;
    float buffer[WF_CPU_BLOCK_MAX];
    int32_t label[WF_CPU_BLOCK];
    const int64_t classes = piece->walk->side[0].unit;
    const float *p = wf_cpu_load(piece, 0, buffer);
    wf_cpu_load_int(piece, 1, label);
    for (int64_t u = 0; u < piece->units; u++) {
        if (!wf_loss_counts(k->attrs, label[u]))
            continue;
        const int64_t mine = dice_class(label[u], classes), first = u * classes;
        for (int64_t c = 0; c < classes; c++) {
            const float t = mine < 0 ? NAN : c == mine ? 1.0f : 0.0f;
            lanes->sum[0][first + c] += (double)(p[first + c] * t);
            lanes->sum[1][first + c] += (double)p[first + c];
            lanes->sum[2][first + c] += (double)t;
        }
    }
}

static void dice_run(const struct wf_call *call)
{
    const int64_t classes = classes_of(call->node);
    if (wf_cpu_parts_channels(call))
        return;
    const struct context context = { .attrs = call->node->attrs };
    struct wf_cpu_walk walk;
    walk_map(&walk, call, false);
    const struct wf_cpu_sum sum = {
        .body = dice_body, .context = &context, .sums = 3, .channels = classes
    };
    put_sums(call, wf_cpu_walk_sum(&walk, &sum, call->scratch), 3 * classes);
}

static void dice_grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct context *k = context;
    float buffer[WF_CPU_BLOCK_MAX];
    int32_t label[WF_CPU_BLOCK];
    const int64_t classes = piece->walk->side[0].unit;
    float *dx = wf_cpu_dest(piece, 2, buffer);
    wf_cpu_load_int(piece, 1, label);
    for (int64_t u = 0; u < piece->units; u++) {
        const bool counts = wf_loss_counts(k->attrs, label[u]);
        const int64_t mine = dice_class(label[u], classes);
        for (int64_t c = 0; c < classes; c++) {
            const float d = k->row[1][c] + (c == mine ? k->row[0][c] : 0.0f);
            dx[u * classes + c] = !counts ? 0.0f : mine < 0 ? NAN : d;
        }
    }
    wf_cpu_store(piece, 2, dx);
}

static void dice_grad_run(const struct wf_call *call)
{
    const int64_t classes = classes_of(call->node);
    if (wf_cpu_parts_channels(call))
        return;
    float *row = rows_of(call);
    for (int64_t c = 0; c < 2 * classes; c++)
        row[c] = (float)wf_view_get(&call->in[2], 0, 0, 0, 0, c);
    const struct context context = { .attrs = call->node->attrs, .row = { row, row + classes } };
    struct wf_cpu_walk walk;
    walk_map(&walk, call, true);
    wf_cpu_walk_run(&walk, dice_grad_body, &context);
}

const struct wf_kernel wf_cpu_kernels_loss[] = {
    { .op = "ce", .accepts = accepts_map, .prepare = prepare, .run = ce_run },
    { .op = "ce_grad", .accepts = accepts_map, .prepare = prepare, .run = ce_grad_run },
    { .op = "bce", .accepts = accepts_pairs, .prepare = prepare, .run = bce_run },
    { .op = "mse", .accepts = accepts_pairs, .prepare = prepare, .run = mse_run },
    { .op = "bce_grad", .accepts = accepts_pairs, .run = bce_grad_run },
    { .op = "mse_grad", .accepts = accepts_pairs, .run = mse_grad_run },
    { .op = "dice", .accepts = accepts_map, .prepare = prepare, .run = dice_run },
    { .op = "dice_grad", .accepts = accepts_map, .prepare = prepare, .run = dice_grad_run },
    { 0 },
};
