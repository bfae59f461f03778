/*
 * mmd: the maximum mean discrepancy of two batches of vectors,
 *     mean k(a, a') + mean k(b, b') - 2 mean k(a, b),   k(x, y) = sum over s of exp(-|x - y|^2 / (2 s)),
 * with the widths s that domain separation networks were published with. A rank sums over its own samples,
 * and reads all of both batches for that: they are small, and of one size.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/loss.h"
#include "ops/rows.h"
#include "ops/separation.h"

enum { CHANNELS = 64 }; /* of a gradient that are computed together */

static const double widths[] = WF_MMD_WIDTHS;

/* The kernel of two rows, and its derivative by the square of their distance. */
static double kernel(const struct wf_view *a, int64_t i, const struct wf_view *b, int64_t j,
                     double *slope)
{
    double square = 0, k = 0;
    for (int64_t c = a->box.lo[WF_C]; c < a->box.hi[WF_C]; c++) {
        const double d = wf_view_get(a, i, 0, 0, 0, c) - wf_view_get(b, j, 0, 0, 0, c);
        square += d * d;
    }
    *slope = 0;
    for (size_t s = 0; s < sizeof widths / sizeof *widths; s++) {
        const double e = exp(-square / (2.0 * widths[s]));
        k += e;
        *slope -= e / (2.0 * widths[s]);
    }
    return k;
}

static bool check(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape a = node->in[0]->shape, b = node->in[1]->shape;
    return (wf_shape_count(a) == a.at[WF_N] * a.at[WF_C] && wf_shape_equal(a, b)) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "takes two batches of as many vectors of one length, not of %" PRId64
                      " x %" PRId64 " and %" PRId64 " x %" PRId64 " channels: pool maps first",
                      a.at[WF_N], a.at[WF_C], b.at[WF_N], b.at[WF_C]);
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region)
{
    return wf_shape_region(node->in[input]->shape);
}

/* --- mmd_grad: a, b, dm --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return check(node, err) && wf_loss_check_sums(node->in[2], 1, err);
}

/* Of one row, over some of its channels, which share the kernels. */
static void grad_row(const struct wf_call *call, int64_t i, int64_t first, int64_t last, double dm)
{
    const struct wf_view *const a = &call->in[0], *const b = &call->in[1];
    const int64_t n = call->node->in[0]->shape.at[WF_N];
    double sum[CHANNELS] = { 0 }, slope, other;
    for (int64_t j = 0; j < n; j++) {
        (void)kernel(a, i, a, j, &slope);
        (void)kernel(a, i, b, j, &other);
        for (int64_t k = first; k < last; k++) {
            const double x = wf_view_get(a, i, 0, 0, 0, k);
            sum[k - first] += slope * (x - wf_view_get(a, j, 0, 0, 0, k));
            sum[k - first] -= other * (x - wf_view_get(b, j, 0, 0, 0, k));
        }
    }
    for (int64_t k = first; k < last; k++)
        wf_view_put(&call->out[0], i, 0, 0, 0, k, dm * sum[k - first]);
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t n = call->node->in[0]->shape.at[WF_N];
    const double dm = 4.0 * wf_view_get(&call->in[2], 0, 0, 0, 0, 0) / (double)(n * n);
    const struct wf_region w = call->work;
    for (int64_t i = w.lo[WF_N]; i < w.hi[WF_N]; i++)
        for (int64_t k = w.lo[WF_C]; k < w.hi[WF_C]; k += CHANNELS)
            grad_row(call, i, k, wf_min(k + CHANNELS, w.hi[WF_C]), dm);
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    return (double)wf_region_count(work) * (double)node->in[0]->shape.at[WF_N] * 120.0;
}

const struct wf_op wf_op_mmd_grad = {
    .name = "mmd_grad",
    .n_in = 3,
    .infer = grad_infer,
    .reads = reads,
    .reference = grad_reference,
    .flops = flops,
};

/* --- mmd: a, b --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 1);
    return check(node, err);
}

static void reference(const struct wf_call *call)
{
    const struct wf_view *const a = &call->in[0], *const b = &call->in[1];
    const int64_t n = call->node->in[0]->shape.at[WF_N];
    double sum = 0, slope;
    for (struct wf_cursor c = wf_cursor(wf_rows(call->work)); wf_cursor_next(&c);)
        for (int64_t i = c.at[WF_N], j = 0; j < n; j++)
            sum += kernel(a, i, a, j, &slope) + kernel(b, i, b, j, &slope) -
                   2.0 * kernel(a, i, b, j, &slope);
    wf_view_put(&call->out[0], 0, 0, 0, 0, 0, sum / (double)(n * n));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = wf_append(g, &wf_op_mmd_grad, node->name, NULL, NULL, 3,
                              (struct wf_value *[]){ node->in[i], node->in[1 - i], dy[0] });
}

static const struct wf_case cases[] = {
    { .in = "x[3,1,1,1,2] x[3,1,1,1,2]" },
    { .in = "x[4,1,1,1,5] x[4,1,1,1,5]" },
    { .in = "x[1,1,1,1,3] x[1,1,1,1,3]" },
    { .in = "x[6,1,1,1,1] X[6,1,1,1,1]" },
    { .in = "x[3,1,1,1,4] p[3,1,1,1,4]" },
    { .in = "x[2,1,1,1,7] x[2,1,1,1,7]" },
    { 0 },
};

const struct wf_op wf_op_mmd = {
    .name = "mmd",
    .n_in = 2,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .sums = WF_AXIS(WF_N),
    .reference = reference,
    .flops = flops,
    .cases = cases,
};

struct wf_value *wf_mmd(struct wf_graph *g, struct wf_value *a, struct wf_value *b,
                        const char *name)
{
    if (!a || !b)
        return NULL;
    const enum wf_dtype dtype = a->dtype == WF_F64 ? WF_F64 : WF_F32;
    struct wf_value *const in[] = { wf_cast(g, a, dtype), wf_cast(g, b, dtype) };
    struct wf_value *const m = wf_append(g, &wf_op_mmd, name, NULL, NULL, 2, in);
    return wf_cast(g, m, dtype);
}
