/*
 * sparse_pool: sum, average or maximum of the rows that a kernel map has for each row of its result.
 *
 * The average divides by the number of rows that are there. Of a maximum `index` says which row of x has it
 * (the first of equal ones; NaN wins over all). The gradient takes the map of the opposite direction: each row
 * of x looks at the results that it went into, so nothing is scattered.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/sparse_ops.h"

enum { X, MAP };

static const char *const modes[] = { "sum", "average", "max", NULL };

static const struct wf_field fields[] = {
    WF_NAMED(wf_sparse_pool_attrs, mode, modes),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_sparse_pool_attrs *a = node->attrs;
    const struct wf_value *const x = node->in[X], *const map = node->in[MAP];
    if (!x->set || !map->set || map->dtype != WF_I32)
        return wf_err_set(err, WF_ERR_USAGE, "x and map must be rows of a sparse tensor");
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape.at[WF_N] = map->shape.at[WF_N];
        node->out[o]->set = map->set;
    }
    node->out[1]->dtype = WF_I32;
    if (a->mode != WF_SPARSE_MAX)
        node->out[1]->shape.at[WF_C] = 1;
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    const struct wf_sparse_pool_attrs *a = node->attrs;
    bool mirrored;
    struct wf_value *const back = wf_kernel_map_back(g, node->in[MAP], &mirrored);
    if (dy[0])
        dx[X] = wf_append(
            g, &wf_op_sparse_pool_grad, node->name, "dx", a, 3,
            (struct wf_value *[]){ dy[0], back, a->mode == WF_SPARSE_SUM ? NULL : node->out[1] });
}

/* Row u of the result, channel c. */
static void pool(const struct wf_call *call, int64_t u, int64_t c)
{
    const struct wf_sparse_pool_attrs *a = call->node->attrs;
    const int64_t columns = call->node->in[MAP]->shape.at[WF_C], first = call->in[X].box.lo[WF_N];
    double sum = 0;
    int64_t count = 0, from = -1;
    for (int64_t k = 0; k < columns; k++) {
        const int64_t row = (int64_t)wf_view_get(&call->in[MAP], u, 0, 0, 0, k);
        if (row < 0)
            continue;
        const double x = wf_view_get(&call->in[X], first + row, 0, 0, 0, c);
        const bool is_most = a->mode == WF_SPARSE_MAX && (from < 0 || x > sum || isnan(x));
        sum = a->mode != WF_SPARSE_MAX ? sum + x : is_most ? x : sum;
        from = is_most ? row : from;
        count++;
    }
    if (a->mode == WF_SPARSE_AVERAGE && count > 0)
        sum /= (double)count;
    wf_view_put(&call->out[0], u, 0, 0, 0, c, sum);
    if (a->mode == WF_SPARSE_MAX || c == 0)
        wf_view_put(&call->out[1], u, 0, 0, 0, c,
                    (double)(a->mode == WF_SPARSE_MAX ? from : count));
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        pool(call, c.at[WF_N], c.at[WF_C]);
}

static int decides(const struct wf_node *node)
{
    const struct wf_sparse_pool_attrs *a = node->attrs;
    return a->mode == WF_SPARSE_MAX ? 1 : -1;
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    return (double)wf_region_count(work) * 0.4 *
           (double)node->in[node->op == &wf_op_sparse_pool ? MAP : 1]->shape.at[WF_C];
}

const struct wf_op wf_op_sparse_pool = {
    .name = "sparse_pool",
    .n_in = 2,
    .n_out = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_sparse_pool_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_sparse_reads,
    .decides = decides,
    .reference = reference,
    .flops = flops,
};

/* --- sparse_pool_grad: dy, map back, [index] --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_sparse_pool_attrs *a = node->attrs;
    const struct wf_value *const dy = node->in[0], *const map = node->in[1],
                                 *const index = node->in[2];
    const int64_t wide = a->mode == WF_SPARSE_MAX ? dy->shape.at[WF_C] : 1;
    if (!dy->set || !map->set || map->dtype != WF_I32)
        return wf_err_set(err, WF_ERR_USAGE, "dy and map must be rows of a sparse tensor");
    if (a->mode != WF_SPARSE_SUM &&
        (!index || index->set != dy->set || index->shape.at[WF_C] != wide))
        return wf_err_set(err, WF_ERR_USAGE,
                          "the index must be rows of dy's set, of %" PRId64 " numbers each", wide);
    node->out[0]->shape.at[WF_N] = map->shape.at[WF_N];
    node->out[0]->set = map->set;
    return true;
}

/* What row u of dy gives to row v of dx. */
static double share(const struct wf_call *call, int64_t u, int64_t v, int64_t c)
{
    const struct wf_sparse_pool_attrs *a = call->node->attrs;
    const double dy = wf_view_get(&call->in[0], u, 0, 0, 0, c);
    if (a->mode == WF_SPARSE_SUM)
        return dy;
    if (a->mode == WF_SPARSE_AVERAGE)
        return dy / wf_view_get(&call->in[2], u, 0, 0, 0, 0);
    return (int64_t)wf_view_get(&call->in[2], u, 0, 0, 0, c) == v ? dy : 0.0;
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t columns = call->node->in[1]->shape.at[WF_C], first = call->in[0].box.lo[WF_N];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (int64_t k = 0; k < columns; k++) {
            const int64_t row = (int64_t)wf_view_get(&call->in[1], c.at[WF_N], 0, 0, 0, k);
            if (row >= 0)
                sum += share(call, first + row, c.at[WF_N] - call->out[0].box.lo[WF_N], c.at[WF_C]);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_sparse_pool_grad = {
    .name = "sparse_pool_grad",
    .n_in = 3,
    .n_optional = 1,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_sparse_pool_attrs, fields),
    .infer = grad_infer,
    .reads = wf_sparse_reads,
    .reference = grad_reference,
    .flops = flops,
};
