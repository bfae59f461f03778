/*
 * The scale-invariant squared error, from the means of d and d^2 over each image (global_pool makes their
 * sums): spread sums mean(d^2) - mean(d)^2 over the images.
 */
#include "ops/loss.h"
#include "ops/separation.h"
#include "ops/spatial.h"

static bool check(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape a = node->in[0]->shape;
    return (wf_shape_equal(a, node->in[1]->shape) && a.at[WF_D] * a.at[WF_H] * a.at[WF_W] == 1) ||
           wf_err_set(err, WF_ERR_USAGE, "takes two means [N,1,1,1,C] of one shape");
}

static double mean_of(const struct wf_view *v, int64_t n, int64_t channels)
{
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += wf_view_get(v, n, 0, 0, 0, c);
    return sum / (double)channels;
}

/* --- spread_grad: mean, ds --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape = node->in[0]->shape;
        node->out[o]->dtype = WF_F64;
        node->out[o]->replicated = node->in[0]->replicated;
    }
    return wf_loss_check_sums(node->in[1], 2, err);
}

static struct wf_region rows_read(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_shape all = node->in[input]->shape;
    struct wf_region r = wf_shape_region(all);
    if (input == 0 || node->n_out == 1) { /* ds is read whole */
        r.lo[WF_N] = work.lo[WF_N];
        r.hi[WF_N] = work.hi[WF_N];
    }
    return r;
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    const double each = wf_view_get(&call->in[1], 0, 0, 0, 0, 0) / (double)channels;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double mean = mean_of(&call->in[0], c.at[WF_N], channels);
        wf_view_set(&call->out[0], c.at, -2.0 * mean * each);
        wf_view_set(&call->out[1], c.at, each);
    }
}

const struct wf_op wf_op_spread_grad = {
    .name = "spread_grad",
    .n_in = 2,
    .n_out = 2,
    .infer = grad_infer,
    .reads = rows_read,
    .reference = grad_reference,
};

/* --- spread: mean, mean of squares --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 2);
    return check(node, err);
}

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    wf_view_fill(&call->out[0], 0.0);
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++) {
        const double mean = mean_of(&call->in[0], n, channels);
        wf_loss_sum(&call->out[0], 0, mean_of(&call->in[1], n, channels) - mean * mean);
        wf_loss_sum(&call->out[0], 1, 1.0);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_node *const n = wf_node_add(g, &wf_op_spread_grad, node->name, NULL, 2,
                                          (struct wf_value *[]){ node->in[0], dy[0] });
    for (int i = 0; n && i < 2; i++)
        dx[i] = wanted[i] ? wf_cast(g, n->out[i], node->in[i]->dtype) : NULL;
}

static struct wf_value *whole(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_si_mse(g, in[0], in[1], "rebuilt");
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,1,1,3] x[2,1,1,1,3]" },
    { .in = "x[1,1,1,1,1] x[1,1,1,1,1]" },
    { .in = "x[5,1,1,1,4] x[5,1,1,1,4]" },
    { .in = "x[2,1,5,6,3] X[2,1,5,6,3]", .build = whole },
    { .in = "x[3,1,1,7,1] X[3,1,1,7,1]", .build = whole },
    { .in = "x[1,3,2,5,2] X[1,3,2,5,2]", .build = whole },
    { 0 },
};

const struct wf_op wf_op_spread = {
    .name = "spread",
    .n_in = 2,
    .infer = infer,
    .grad = grad,
    .reads = rows_read,
    .sums = WF_AXIS(WF_N),
    .reference = reference,
    .cases = cases,
};

/* The mean over positions, in f64: the two of them are about to be subtracted. */
static struct wf_value *mean(struct wf_graph *g, struct wf_value *x, const char *name)
{
    if (!x)
        return NULL;
    const struct wf_spread_attrs a = { .factor = 1.0 };
    const double count = (double)(x->shape.at[WF_D] * x->shape.at[WF_H] * x->shape.at[WF_W]);
    return wf_scale(g, wf_append(g, &wf_op_global_pool, name, NULL, &a, 1, &x), 1.0 / count);
}

struct wf_value *wf_si_mse(struct wf_graph *g, struct wf_value *x, struct wf_value *target,
                           const char *name)
{
    if (!x || !target)
        return NULL;
    const enum wf_dtype dtype = x->dtype == WF_F64 ? WF_F64 : WF_F32;
    struct wf_value *const d =
        wf_add(g, wf_cast(g, x, dtype), wf_scale(g, wf_cast(g, target, dtype), -1.0));
    struct wf_value *const in[] = {
        mean(g, d, wf_arena_printf(&g->arena, "%s.mean", name)),
        mean(g, wf_multiply(g, d, d), wf_arena_printf(&g->arena, "%s.squares", name)),
    };
    if (!in[0] || !in[1])
        return NULL;
    return wf_loss_mean(g, wf_append(g, &wf_op_spread, name, NULL, NULL, 2, in), name, x);
}
