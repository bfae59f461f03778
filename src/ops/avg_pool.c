/*
 * avgpool: the mean of each window, over its whole volume (padding counts as zero) or, with
 * exclude_pad, over the elements inside the image. avgpool_grad spreads dy back.
 */
#include "ops/spatial.h"

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_pool_attrs a = *(const struct wf_pool_attrs *)node->attrs;
    wf_set_extent(a.extent, node->in[0]);
    dx[0] = wf_append(g, &wf_op_avgpool_grad, node->name, "dx", &a, 1, dy);
}

static void reference(const struct wf_call *call)
{
    const struct wf_pool_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (struct wf_cursor p = wf_cursor(wf_pool_inside(a, x, c.at)); wf_cursor_next(&p);)
            sum += wf_ref_get(&call->in[0], x, p.at);
        wf_view_set(&call->out[0], c.at, sum / (double)wf_pool_count(a, x, &c.at[WF_D]));
    }
}

static const struct wf_case cases[] = {
    { .attrs = "kernel=[1,2,2] stride=[1,2,2]", .in = "x[2,1,6,8,3]" },
    { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1] exclude_pad=1",
      .in = "x[1,1,7,9,2]" },
    { .attrs = "kernel=[1,3,2] stride=[1,1,1] pad_lo=[0,2,0] pad_hi=[0,0,1]",
      .in = "x[1,1,5,6,2]" },
    { .attrs = "kernel=[1,1,2] stride=[1,1,3]", .in = "x[2,1,1,11,2]" },
    { .attrs = "kernel=[2,2,2] stride=[2,2,2] pad_hi=[1,0,1] exclude_pad=1", .in = "x[1,3,5,7,2]" },
    { .attrs = "kernel=[3,2,1] stride=[1,3,2] pad_lo=[1,0,0] pad_hi=[1,1,0]",
      .in = "x[1,3,7,5,2]" },
    { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,2,1] past=[0,1,0]",
      .in = "x[1,1,6,7,2]" },
    { .attrs = "kernel=[1,3,4] stride=[1,1,1] exclude_pad=1 bins=[1,3,2]", .in = "x[2,1,7,8,3]" },
    { .attrs = "kernel=[2,2,3] stride=[1,1,1] exclude_pad=1 bins=[2,4,7]", .in = "x[1,3,5,9,2]" },
    { .attrs = "kernel=[1,1,1] stride=[1,1,1] exclude_pad=1 bins=[1,6,10]", .in = "x[1,1,3,5,2]" },
    { 0 },
};

const struct wf_op wf_op_avgpool = {
    .name = "avgpool",
    .n_in = 1,
    .flags = WF_OP_SHIFTS,
    .is_fixed = wf_pool_is_fixed,
    WF_ATTRS(wf_pool_attrs, wf_pool_fields),
    .infer = wf_pool_infer,
    .grad = grad,
    .reads = wf_pool_reads,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_avg_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p)
{
    const struct wf_pool_attrs a = wf_pool_resolve(p);
    return wf_append(g, &wf_op_avgpool, p->name, NULL, &a, 1, &x);
}

struct wf_value *wf_adaptive_avg_pool(struct wf_graph *g, struct wf_value *x, const char *name,
                                      const int64_t out[3])
{
    if (!x)
        return NULL;
    if (out[0] == 1 && out[1] == 1 && out[2] == 1)
        return wf_global_pool(g, x, name);
    const struct wf_pool_attrs a = wf_pool_adaptive(x, out);
    return wf_append(g, &wf_op_avgpool, name, NULL, &a, 1, &x);
}

/* --- the gradient --- */

static void reference_grad(const struct wf_call *call)
{
    const struct wf_pool_attrs *a = call->node->attrs;
    const struct wf_shape *dy = &call->node->in[0]->shape, *dx = &call->node->out[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (struct wf_cursor o = wf_cursor(wf_pool_touching(call->node, c.at));
             wf_cursor_next(&o);)
            sum += wf_ref_get(&call->in[0], dy, o.at) / (double)wf_pool_count(a, dx, &o.at[WF_D]);
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_avgpool_grad = {
    .name = "avgpool_grad",
    .n_in = 1,
    WF_ATTRS(wf_pool_attrs, wf_pool_fields),
    .infer = wf_pool_grad_infer,
    .reads = wf_pool_grad_reads,
    .reference = reference_grad,
};
