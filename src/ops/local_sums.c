/*
 * local_sums: sums over the rank's own part of an image, scaled as if all parts were like it:
 * y = m * (elements of the image) / (elements of the rank's part). What divides by the count of the
 * whole then gets the mean of the part: statistics per rank, which depend on the mesh.
 *
 * m is a table of sums that stay on their rank, x the image that they were taken over; only where its
 * part lies is looked at. On one rank it is the identity.
 */
#include "ops/norm.h"
#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *)
{
    node->out[0]->replicated = true;
    return true;
}

static bool is_local(const struct wf_node *)
{
    return true;
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region)
{
    return input == 0 ? wf_shape_region(node->in[0]->shape) : (struct wf_region){ 0 };
}

static void reference(const struct wf_call *call)
{
    const double all = (double)wf_shape_count(call->node->in[1]->shape);
    const double own = (double)wf_region_count(call->work);
    for (struct wf_cursor c = wf_cursor(call->out[0].box); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    own > 0 ? wf_view_at(&call->in[0], c.at) * (all / own) : 0.0);
}

const struct wf_op wf_op_local_sums = {
    .name = "local_sums",
    .n_in = 2,
    .flags = WF_OP_WHOLE,
    .infer = infer,
    .reads = reads,
    .sums = WF_SPATIAL | WF_AXIS(WF_N),
    .is_local = is_local,
    .over = 1,
    .reference = reference,
};
