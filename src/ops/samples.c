/*
 * Points and their samples: sums over the points of each sample, and a row per sample at every point.
 *
 * A table of sums has a row for each sample of the batch, is whole on every rank and is added up over them:
 * so it does not matter which rank has which points. sample_take makes of it an ordinary value that is
 * cut as images are. sample_sums and sample_rows are each other's gradients.
 */
#include <inttypes.h>

#include "ops/build.h"
#include "ops/samples.h"

const struct wf_field wf_samples_fields[] = {
    WF_INT(wf_samples_attrs, samples),
    WF_INT(wf_samples_attrs, channels),
    WF_INT(wf_samples_attrs, mean),
    { 0 },
};

bool wf_samples_check(const struct wf_node *node, const struct wf_value *rows,
                      const struct wf_value *coords, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    if (coords->dtype != WF_I32 || !coords->set || (rows && rows->set != coords->set))
        return wf_err_set(err, WF_ERR_USAGE, "wants rows of a set, and the set's coordinates");
    if (a->samples < 1 || a->channels < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " samples, %" PRId64 " channels: at least 1 each", a->samples,
                          a->channels);
    return true;
}

int64_t wf_sample_of(const struct wf_call *call, int coords, int64_t row)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    const int64_t sample = (int64_t)wf_view_get(&call->in[coords], row, 0, 0, 0, 0);
    WF_BUG_ON(sample < 0 || sample >= a->samples, "'%s': batch index %" PRId64 " of %" PRId64,
              call->node->name, sample, a->samples);
    return sample;
}

struct wf_region wf_samples_reads(const struct wf_node *node, int input, struct wf_region work)
{
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    if (!node->in[input]->set)
        return r;
    r.lo[WF_N] = work.lo[WF_N];
    r.hi[WF_N] = work.hi[WF_N];
    return r;
}

static struct wf_value *append(struct wf_graph *g, const struct wf_op *op, const char *of,
                               const char *suffix, const struct wf_samples_attrs *a,
                               struct wf_value *first, struct wf_value *second)
{
    return wf_append(g, op, of, suffix, a, second ? 2 : 1, (struct wf_value *[]){ first, second });
}

/* --- sample_sums: x, coords --- */

static bool sums_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    if (!wf_samples_check(node, node->in[0], node->in[1], err))
        return false;
    if (node->in[0]->shape.at[WF_C] != a->channels)
        return wf_err_set(err, WF_ERR_USAGE, "x has %" PRId64 " channels, not %" PRId64,
                          node->in[0]->shape.at[WF_C], a->channels);
    node->out[0]->shape = WF_SHAPE(a->samples, 1, 1, 1, a->channels + 1);
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = true;
    return true;
}

static void sums_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    dx[0] = append(g, &wf_op_sample_rows, node->name, "dx", node->attrs,
                   wf_cast(g, dy[0], node->in[0]->dtype), node->in[1]);
}

static void sums_reference(const struct wf_call *call)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    const struct wf_view *const t = &call->out[0];
    wf_view_fill(t, 0.0);
    for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++) {
        const int64_t s = wf_sample_of(call, 1, u);
        for (int64_t c = 0; c <= a->channels; c++) {
            const double x = c < a->channels ? wf_view_get(&call->in[0], u, 0, 0, 0, c) : 1.0;
            wf_view_put(t, s, 0, 0, 0, c, wf_view_get(t, s, 0, 0, 0, c) + x);
        }
    }
}

const struct wf_op wf_op_sample_sums = {
    .name = "sample_sums",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = sums_infer,
    .grad = sums_grad,
    .reads = wf_samples_reads,
    .sums = WF_AXIS(WF_N),
    .over = 0,
    .reference = sums_reference,
};

/* --- sample_rows: table, coords --- */

static bool rows_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    const struct wf_value *const t = node->in[0], *const coords = node->in[1];
    if (!wf_samples_check(node, NULL, coords, err))
        return false;
    if (!t->replicated || t->shape.at[WF_N] != a->samples || t->shape.at[WF_C] < a->channels)
        return wf_err_set(err, WF_ERR_USAGE,
                          "wants a replicated table of %" PRId64 " samples and %" PRId64
                          " channels, got %" PRId64 " and %" PRId64,
                          a->samples, a->channels, t->shape.at[WF_N], t->shape.at[WF_C]);
    node->out[0]->shape = WF_SHAPE(coords->shape.at[WF_N], 1, 1, 1, a->channels);
    node->out[0]->set = coords->set;
    node->out[0]->replicated = false;
    return true;
}

static void rows_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    const struct wf_samples_attrs *a = node->attrs;
    struct wf_region part = wf_shape_region(node->in[0]->shape);
    WF_BUG_ON(part.hi[WF_C] != a->channels, "'%s': a gradient of a gradient", node->name);
    struct wf_value *const sums =
        append(g, &wf_op_sample_sums, node->name, "sums", a, dy[0], node->in[1]);
    dx[0] = wf_cast(g, wf_slice(g, sums, part), node->in[0]->dtype);
}

static void rows_reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(
            &call->out[0], c.at,
            wf_view_get(&call->in[0], wf_sample_of(call, 1, c.at[WF_N]), 0, 0, 0, c.at[WF_C]));
}

const struct wf_op wf_op_sample_rows = {
    .name = "sample_rows",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = rows_infer,
    .grad = rows_grad,
    .reads = wf_samples_reads,
    .reference = rows_reference,
};

/* --- sample_take: table --- */

static bool take_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    const struct wf_shape t = node->in[0]->shape;
    if (!node->in[0]->replicated || t.at[WF_N] != a->samples || t.at[WF_C] <= a->channels)
        return wf_err_set(err, WF_ERR_USAGE, "wants a table of sums");
    node->out[0]->shape.at[WF_C] = a->channels;
    node->out[0]->replicated = false;
    return true;
}

static void take_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    dx[0] = append(g, &wf_op_sample_take_grad, node->name, "dx", node->attrs, dy[0], node->in[0]);
}

static struct wf_region table_reads(const struct wf_node *node, int input, struct wf_region work)
{
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    if (node->in[input]->replicated)
        return r;
    r.lo[WF_N] = work.lo[WF_N];
    r.hi[WF_N] = work.hi[WF_N];
    return r;
}

/* What a sum is divided by. */
static double divisor(const struct wf_call *call, const struct wf_view *t, int64_t sample)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    const double count = a->mean ? wf_view_get(t, sample, 0, 0, 0, a->channels) : 1.0;
    return count > 0 ? count : 1.0;
}

static void take_reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_view_at(&call->in[0], c.at) / divisor(call, &call->in[0], c.at[WF_N]));
}

const struct wf_op wf_op_sample_take = {
    .name = "sample_take",
    .n_in = 1,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = take_infer,
    .grad = take_grad,
    .reads = table_reads,
    .reference = take_reference,
};

/* --- sample_take_grad: dy, table --- */

static bool take_grad_infer(const struct wf_node *node, struct wf_err *)
{
    node->out[0]->shape = node->in[1]->shape;
    return true;
}

static void take_grad_reference(const struct wf_call *call)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    c.at[WF_C] < a->channels
                        ? wf_view_at(&call->in[0], c.at) / divisor(call, &call->in[1], c.at[WF_N])
                        : 0.0);
}

const struct wf_op wf_op_sample_take_grad = {
    .name = "sample_take_grad",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = take_grad_infer,
    .reads = table_reads,
    .reference = take_grad_reference,
};
