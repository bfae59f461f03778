/* Product of two values of one shape, or broadcast, element by element. */
#include "ops/build.h"
#include "ops/pair.h"

static void reference(const struct wf_call *call)
{
    const struct wf_node *n = call->node;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_pair_get(&call->in[0], n->in[0], c.at) *
                        wf_pair_get(&call->in[1], n->in[1], c.at));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = wf_shape_equal(node->in[i]->shape, dy[0]->shape)
                        ? wf_multiply(g, dy[0], node->in[1 - i])
                        : wf_sum_to(g, node->name, dy[0], node->in[1 - i], node->in[i]);
}

static struct wf_value *square(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_multiply(g, in[0], in[0]);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,7,3] x[2,1,5,7,3]" },
    { .in = "x[1,3,4,5,2] x[1,3,4,5,2]" },
    { .in = "x[3,1,1,11,1] x[3,1,1,11,1]" },
    { .in = "p[4,1,3,3,2] p[4,1,3,3,2]" },
    { .in = "x[2,1,3,3,1] X[2,1,3,3,1]" },
    { .in = "x[2,1,4,5,2] p[2,1,4,5,2]" },
    { .in = "p[1,2,3,4,1] x[1,2,3,4,1]" },
    { .in = "x[2,1,3,5,2]", .build = square },
    { .in = "x[2,1,5,7,3] x[2,1,1,1,3]" },
    { .in = "x[1,2,3,4,5] p[5]" },
    { .in = "x[2,1,5,7,3] x[2,1,5,7,1]" },
    { .in = "x[2,1,1,1,4] x[2,1,3,5,1]" },
    { .in = "x[2,3,1,4,2] x[2,3,5,1,2]" },
    { .in = "x[3,1,4,2,2] x[3,1,1,1,1]" },
    { .in = "x[2,1,4,2,3] p[1]" },
    { .in = "p[1,1,1,1,3] x[1,1,5,6,3]" },
    { 0 },
};

const struct wf_op wf_op_multiply = {
    .name = "multiply",
    .n_in = 2,
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 0 | 1u << 1,
    .infer = wf_pair_infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_multiply(struct wf_graph *g, struct wf_value *a, struct wf_value *b)
{
    if (!a || !b)
        return NULL;
    const char *name = wf_arena_printf(&g->arena, "%s.multiply", a->name);
    return wf_append(g, &wf_op_multiply, name, NULL, NULL, 2, (struct wf_value *[]){ a, b });
}
