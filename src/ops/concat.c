/*
 * concat: images side by side along C. Mostly not a copy at all: the planner lets each producer
 * write into its channels of the result (place).
 */
#include <inttypes.h>

#include "ops/spatial.h"

/* The first channel of an input in the result. */
static int64_t offset_of(const struct wf_node *node, int input)
{
    int64_t offset = 0;
    for (int i = 0; i < input; i++)
        offset += node->in[i]->shape.at[WF_C];
    return offset;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    if (node->n_in < 1)
        return wf_err_set(err, WF_ERR_USAGE, "needs at least one input");
    const struct wf_value *first = node->in[0];
    for (int i = 1; i < node->n_in; i++) {
        const struct wf_value *x = node->in[i];
        for (int a = WF_N; a < WF_C; a++)
            if (x->shape.at[a] != first->shape.at[a])
                return wf_err_set(err, WF_ERR_USAGE,
                                  "'%s' has %" PRId64 " along axis %c, '%s' has %" PRId64
                                  ": crop or pad one of them",
                                  first->name, first->shape.at[a], "NDHWC"[a], x -> name,
                                  x -> shape.at[a]);
        if (x->dtype != first->dtype || x->replicated != first->replicated)
            return wf_err_set(err, WF_ERR_USAGE, "'%s' is %s%s, '%s' is %s%s", first->name,
                              wf_dtype_name(first->dtype), first->replicated ? " (weight)" : "",
                              x->name, wf_dtype_name(x->dtype), x->replicated ? " (weight)" : "");
    }
    node->out[0]->shape = first->shape;
    node->out[0]->shape.at[WF_C] = offset_of(node, node->n_in);
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < node->n_in; i++) {
        if (!wanted[i])
            continue;
        struct wf_slice_attrs a = { 0 };
        for (int axis = 0; axis < WF_AXES; axis++)
            a.hi[axis] = node->in[i]->shape.at[axis];
        a.lo[WF_C] = offset_of(node, i);
        a.hi[WF_C] += a.lo[WF_C];
        dx[i] = wf_append(g, &wf_op_slice, node->name, "dx", &a, 1, dy);
    }
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    const int64_t offset = offset_of(node, input);
    struct wf_region r = work;
    r.lo[WF_C] = wf_max(0, work.lo[WF_C] - offset);
    r.hi[WF_C] = wf_min(node->in[input]->shape.at[WF_C], work.hi[WF_C] - offset);
    return r;
}

static bool place(const struct wf_node *node, int input, int64_t shift[WF_AXES])
{
    for (int a = 0; a < WF_AXES; a++)
        shift[a] = a == WF_C ? offset_of(node, input) : 0;
    return true;
}

static void reference(const struct wf_call *call)
{
    for (int i = 0; i < call->node->n_in; i++) {
        int64_t shift[WF_AXES];
        place(call->node, i, shift);
        const struct wf_region from = reads(call->node, i, call->work);
        if (wf_region_is_empty(from))
            continue;
        const struct wf_view src = wf_view_part(call->in[i], from);
        const struct wf_view dst = wf_view_part(call->out[0], wf_region_shift(from, shift));
        wf_view_copy(&dst, &src);
    }
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,3,4,2] x[2,1,3,4,3]" },
    { .in = "x[1,1,5,4,2]" },
    { .in = "x[1,1,1,7,1] x[1,1,1,7,2] x[1,1,1,7,1]" },
    { .in = "x[1,2,3,4,2] x[1,2,3,4,2]" },
    { .in = "x[1,1,2,3,1] x[1,1,2,3,3] x[1,1,2,3,2] x[1,1,2,3,1]" },
    { .in = "x[3,1,1,1,5] x[3,1,1,1,1]" },
    { 0 },
};

const struct wf_op wf_op_concat = {
    .name = "concat",
    .n_in = -1,
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP | WF_OP_SHIFTS,
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .place = place,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_concat(struct wf_graph *g, const char *name, int n, struct wf_value *const in[])
{
    return wf_append(g, &wf_op_concat, name, NULL, NULL, n, in);
}
