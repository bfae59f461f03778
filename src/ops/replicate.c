/*
 * replicate: an image as a weight, whole on every rank.
 *
 * Reverse mode puts it behind the gradient of a weight that was used as an image (a learned position
 * added to every pixel): each rank makes its own part of such a gradient, and the optimiser wants
 * all of it.
 */
#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *)
{
    node->out[0]->replicated = true;
    return true;
}

static void grad(struct wf_graph *, const struct wf_node *, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = dy[0];
}

/* All of it: what is not here already is fetched. */
static bool part(const struct wf_node *, int64_t shift[WF_AXES])
{
    for (int i = 0; i < WF_AXES; i++)
        shift[i] = 0;
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_view src = wf_view_part(call->in[0], call->work);
    const struct wf_view dst = wf_view_part(call->out[0], call->work);
    wf_view_copy(&dst, &src);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3]" },
    { .in = "x[1,3,4,5,2]" },
    { .in = "x[3,1,1,11,1]" },
    { .in = "x[5,1,1,1,3]" },
    { .in = "x[1,1,2,2,1]" },
    { .in = "p[4,1,3,3,2]" },
    { 0 },
};

const struct wf_op wf_op_replicate = {
    .name = "replicate",
    .n_in = 1,
    .infer = infer,
    .grad = grad,
    .part = part,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_replicate(struct wf_graph *g, struct wf_value *x)
{
    return !x || x->replicated ? x
                               : wf_append(g, &wf_op_replicate, x->name, "replicate", NULL, 1, &x);
}
