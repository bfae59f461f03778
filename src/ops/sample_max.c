/*
 * sample_max: the maximum over the points of each sample, and which row has it.
 *
 * The table is added up over ranks as sums are, so each sample's points must be on one rank: the others
 * have zeros there. A row is kept as its number on the rank plus 1; 0 is none.
 */
#include <math.h>

#include "ops/build.h"
#include "ops/samples.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    if (!wf_samples_check(node, node->in[0], node->in[1], err))
        return false;
    node->out[0]->shape = WF_SHAPE(a->samples, 1, 1, 1, 2 * a->channels);
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = true;
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(
        g, &wf_op_sample_max_grad, node->name, "dx", node->attrs, 3,
        (struct wf_value *[]){ wf_cast(g, dy[0], node->in[0]->dtype), node->out[0], node->in[1] });
}

static void reference(const struct wf_call *call)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    const struct wf_view *const t = &call->out[0];
    wf_view_fill(t, 0.0);
    for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++) {
        const int64_t s = wf_sample_of(call, 1, u);
        for (int64_t c = 0; c < a->channels; c++) {
            const double x = wf_view_get(&call->in[0], u, 0, 0, 0, c);
            const bool has = wf_view_get(t, s, 0, 0, 0, a->channels + c) > 0;
            if (has && !(x > wf_view_get(t, s, 0, 0, 0, c)) && !isnan(x))
                continue;
            wf_view_put(t, s, 0, 0, 0, c, x);
            wf_view_put(t, s, 0, 0, 0, a->channels + c, (double)(u - call->in[0].box.lo[WF_N] + 1));
        }
    }
}

const struct wf_op wf_op_sample_max = {
    .name = "sample_max",
    .n_in = 2,
    .flags = WF_OP_SETS | WF_OP_WHOLE,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_samples_reads,
    .sums = WF_AXIS(WF_N),
    .over = 0,
    .reference = reference,
};

/* --- sample_max_grad: dt, table, coords --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_samples_attrs *a = node->attrs;
    const struct wf_value *const coords = node->in[2];
    if (!wf_samples_check(node, NULL, coords, err))
        return false;
    node->out[0]->shape = WF_SHAPE(coords->shape.at[WF_N], 1, 1, 1, a->channels);
    node->out[0]->set = coords->set;
    node->out[0]->replicated = false;
    return true;
}

static void grad_reference(const struct wf_call *call)
{
    const struct wf_samples_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const int64_t s = wf_sample_of(call, 2, c.at[WF_N]);
        const double row = wf_view_get(&call->in[1], s, 0, 0, 0, a->channels + c.at[WF_C]);
        const bool is_it = row == (double)(c.at[WF_N] - call->out[0].box.lo[WF_N] + 1);
        wf_view_set(&call->out[0], c.at,
                    is_it ? wf_view_get(&call->in[0], s, 0, 0, 0, c.at[WF_C]) : 0.0);
    }
}

const struct wf_op wf_op_sample_max_grad = {
    .name = "sample_max_grad",
    .n_in = 3,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_samples_attrs, wf_samples_fields),
    .infer = grad_infer,
    .reads = wf_samples_reads,
    .reference = grad_reference,
};
