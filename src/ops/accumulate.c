/*
 * accumulate: the sum of all contributions to a weight's gradient.
 *
 * One node for any number of uses of the weight, so that ranks add up what they have and sum over
 * ranks once. The uses may run on different ranks: each contribution is read where it is made, while
 * it is still a rank's part of a sum, and the result is a part of the sum over all those ranks.
 */
#include "ops/build.h"
#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    for (int i = 0; i < node->n_in; i++)
        if (!wf_shape_equal(node->in[i]->shape, node->in[0]->shape) ||
            node->in[i]->dtype != node->in[0]->dtype)
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' is no contribution to the gradient of the same weight",
                              node->in[i]->name);
    if (node->n_in < 1)
        return wf_err_set(err, WF_ERR_USAGE, "accumulates nothing");
    return true;
}

static void grad(struct wf_graph *, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < node->n_in; i++)
        dx[i] = wanted[i] ? dy[0] : NULL;
}

/* A rank that has no contribution adds nothing to the sum over ranks: zeros. */
static void reference(const struct wf_call *call)
{
    const bool none = wf_region_is_empty(call->work);
    for (struct wf_cursor c = wf_cursor(none ? call->out[0].box : call->work);
         wf_cursor_next(&c);) {
        wf_view_set(&call->out[0], c.at, 0);
        for (int i = 0; !none && i < call->node->n_in; i++) /* rounded each time, as memory is */
            wf_view_set(&call->out[0], c.at,
                        wf_view_at(&call->out[0], c.at) + wf_view_at(&call->in[i], c.at));
    }
}

static const struct wf_case cases[] = {
    { .in = "p[4,1,3,3,2] p[4,1,3,3,2]" },
    { .in = "p[5] p[5] p[5]" },
    { .in = "p[2,1,1,3,2]" },
    { .in = "p[3,1,2,1,4] p[3,1,2,1,4] p[3,1,2,1,4] p[3,1,2,1,4]" },
    { .in = "p[1] p[1]" },
    { .in = "p[17] p[17]" },
    { 0 },
};

const struct wf_op wf_op_accumulate = {
    .name = "accumulate",
    .n_in = -1,
    .flags = WF_OP_COLLECTS,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_accumulate(struct wf_graph *g, const char *name, int n,
                               struct wf_value *const in[])
{
    return wf_append(g, &wf_op_accumulate, name, NULL, NULL, n, in);
}
