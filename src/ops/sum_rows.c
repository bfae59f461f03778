/*
 * sum_rows: a table of rows added up with a period; y[n] = sum of x[m] over all m that leave the same
 * remainder as n when divided by the period. Its own gradient.
 *
 * Where the samples of a batch are the subdomains of images (tile), the sums of each sample fused by
 * their number are the sums of each subdomain over the batch: statistics per subdomain.
 */
#include <inttypes.h>

#include "ops/norm.h"
#include "ops/spatial.h"

static const struct wf_field fields[] = {
    WF_INT(wf_sum_rows_attrs, period),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_sum_rows_attrs *a = node->attrs;
    const struct wf_shape x = node->in[0]->shape;
    if (x.at[WF_D] * x.at[WF_H] * x.at[WF_W] != 1)
        return wf_err_set(err, WF_ERR_USAGE, "sums rows of numbers, not images");
    if (a->period < 1 || x.at[WF_N] % a->period != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " rows do not fall into periods of %" PRId64, x.at[WF_N],
                          a->period);
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, &wf_op_sum_rows, node->name, "dx", node->attrs, 1, dy);
}

static struct wf_region reads(const struct wf_node *node, int, struct wf_region work)
{
    work.lo[WF_N] = 0;
    work.hi[WF_N] = node->in[0]->shape.at[WF_N];
    return work;
}

static void reference(const struct wf_call *call)
{
    const struct wf_sum_rows_attrs *a = call->node->attrs;
    const int64_t rows = call->node->in[0]->shape.at[WF_N];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (int64_t n = c.at[WF_N] % a->period; n < rows; n += a->period)
            sum += wf_view_get(&call->in[0], n, 0, 0, 0, c.at[WF_C]);
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static const struct wf_case cases[] = {
    { .attrs = "period=2", .in = "x[6,1,1,1,3]" },
    { .attrs = "period=1", .in = "x[4,1,1,1,2]" },
    { .attrs = "period=5", .in = "x[5,1,1,1,1]" },
    { .attrs = "period=3", .in = "x[9,1,1,1,8]" },
    { .attrs = "period=4", .in = "x[8,1,1,1,2]" },
    { .attrs = "period=1", .in = "x[7]" },
    { 0 },
};

const struct wf_op wf_op_sum_rows = {
    .name = "sum_rows",
    .n_in = 1,
    WF_ATTRS(wf_sum_rows_attrs, fields),
    .flags = WF_OP_CHEAP,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .cases = cases,
};
