/* Plus a number. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

static const struct wf_field fields[] = {
    WF_REAL(wf_shift_attrs, offset),
    { 0 },
};

static void reference(const struct wf_call *call)
{
    const struct wf_shift_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[0], c.at) + a->offset);
}

static void grad(struct wf_graph *, const struct wf_node *, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = dy[0];
}

static const struct wf_case cases[] = {
    { .attrs = "offset=2", .in = "x[2,1,5,7,3]" },
    { .attrs = "offset=-0.3", .in = "x[1,3,4,5,2]" },
    { .attrs = "offset=1", .in = "x[3,1,1,11,1]" },
    { .attrs = "offset=0", .in = "x[2,1,3,3,1]" },
    { .attrs = "offset=1e-3", .in = "p[4,1,3,3,2]" },
    { .attrs = "offset=7.5", .in = "x[5,1,1,1,3]" },
    { 0 },
};

extern const struct wf_op wf_op_shift;
const struct wf_op wf_op_shift = {
    .name = "shift",
    .n_in = 1,
    WF_ATTRS(wf_shift_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_shift(struct wf_graph *g, struct wf_value *x, double offset)
{
    if (!x)
        return NULL;
    const struct wf_shift_attrs a = { .offset = offset };
    const char *name = wf_arena_printf(&g->arena, "%s.shift", x->name);
    return wf_append(g, &wf_op_shift, name, NULL, &a, 1, &x);
}
