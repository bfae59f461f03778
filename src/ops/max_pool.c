/*
 * maxpool: the maximum of each window and its place there; maxpool_grad: dy goes to that place,
 * on top of `plus` where that is given.
 *
 * The place is (kd * KH + kh) * KW + kw, counted in the window with its padding, so it means the
 * same on every tile. Padding is minus infinity; the first maximum wins; NaN wins over all.
 */
#include <math.h>

#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_pool_attrs *a = node->attrs;
    if (!wf_pool_infer(node, err))
        return false;
    node->out[1]->shape = node->out[0]->shape;
    node->out[1]->dtype = a->kernel[0] * a->kernel[1] * a->kernel[2] <= 256 ? WF_U8 : WF_I32;
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_pool_attrs a = *(const struct wf_pool_attrs *)node->attrs;
    if (!dy[0])
        return;
    wf_set_extent(a.extent, node->in[0]);
    dx[0] = wf_append(g, &wf_op_maxpool_grad, node->name, "dx", &a, 3,
                      (struct wf_value *[]){ dy[0], node->out[1], NULL });
}

/* Where the image's element p stands in the window at o. */
static int64_t place(const struct wf_pool_attrs *a, const struct wf_shape *image,
                     const int64_t o[WF_AXES], const int64_t p[WF_AXES])
{
    int64_t k = 0;
    for (int i = 0; i < WF_SPACE; i++)
        k = k * a->kernel[i] + p[WF_D + i] -
            wf_pool_window(a, i, image->at[WF_D + i], o[WF_D + i]).lo;
    return k;
}

static void reference(const struct wf_call *call)
{
    const struct wf_pool_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double best = 0;
        int64_t where = -1;
        for (struct wf_cursor p = wf_cursor(wf_pool_inside(a, x, c.at)); wf_cursor_next(&p);) {
            const double v = wf_ref_get(&call->in[0], x, p.at);
            if (where < 0 || v > best || isnan(v)) {
                best = v;
                where = place(a, x, c.at, p.at);
            }
        }
        wf_view_set(&call->out[0], c.at, best);
        wf_view_set(&call->out[1], c.at, (double)where);
    }
}

/* Beside a second use of x, as in a U-Net: its gradient is added where the first one's is made. */
static struct wf_value *beside(struct wf_graph *g, struct wf_value *const in[], const void *attrs)
{
    struct wf_value *const y = wf_append(g, &wf_op_maxpool, "pool", NULL, attrs, 1, in);
    return wf_add(g, in[0], wf_upsample(g, y, "up", &in[0]->shape.at[WF_D], WF_NEAREST));
}

static const struct wf_case cases[] = {
    { .attrs = "kernel=[1,2,2] stride=[1,2,2]", .in = "x[2,1,6,8,3]" },
    { .attrs = "kernel=[1,3,3] stride=[1,2,2] pad_lo=[0,1,1] pad_hi=[0,1,1]",
      .in = "x[1,1,7,9,2]" },
    { .attrs = "kernel=[1,3,2] stride=[1,1,1] pad_lo=[0,2,0] pad_hi=[0,0,1]",
      .in = "x[1,1,5,6,2]" },
    { .attrs = "kernel=[1,1,3] stride=[1,1,3]", .in = "x[2,1,1,11,2]" },
    { .attrs = "kernel=[2,2,2] stride=[2,2,2]", .in = "x[1,4,5,6,2]" },
    { .attrs = "kernel=[3,2,1] stride=[1,3,2] pad_lo=[1,0,0] pad_hi=[1,1,0]",
      .in = "x[1,3,7,5,2]" },
    { .attrs = "kernel=[1,2,2] stride=[1,2,2]", .in = "x[2,1,6,8,3]", .build = beside },
    { .attrs = "kernel=[2,2,2] stride=[2,2,2]", .in = "x[1,4,5,6,8]", .build = beside },
    { .attrs = "kernel=[1,3,3] stride=[1,2,1]", .in = "x[1,1,7,6,2]", .build = beside },
    { .attrs = "kernel=[1,17,17] stride=[1,2,1] pad_lo=[0,1,0]", .in = "x[1,1,18,18,1]" },
    { .attrs = "kernel=[1,3,4] stride=[1,1,1] bins=[1,3,2]", .in = "x[2,1,7,8,3]" },
    { .attrs = "kernel=[2,2,3] stride=[1,1,1] bins=[2,4,7]", .in = "x[1,3,5,9,2]" },
    { .attrs = "kernel=[1,1,1] stride=[1,1,1] bins=[1,6,10]", .in = "x[1,1,3,5,2]" },
    { 0 },
};

static int decides(const struct wf_node *)
{
    return 1; /* the index */
}

const struct wf_op wf_op_maxpool = {
    .name = "maxpool",
    .n_in = 1,
    .n_out = 2,
    .flags = WF_OP_SHIFTS,
    .is_fixed = wf_pool_is_fixed,
    WF_ATTRS(wf_pool_attrs, wf_pool_fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_pool_reads,
    .decides = decides,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_max_pool(struct wf_graph *g, struct wf_value *x, const struct wf_pool *p)
{
    const struct wf_pool_attrs a = wf_pool_resolve(p);
    return wf_append(g, &wf_op_maxpool, p->name, NULL, &a, 1, &x);
}

struct wf_value *wf_adaptive_max_pool(struct wf_graph *g, struct wf_value *x, const char *name,
                                      const int64_t out[3])
{
    if (!x)
        return NULL;
    const struct wf_pool_attrs a = wf_pool_adaptive(x, out);
    return wf_append(g, &wf_op_maxpool, name, NULL, &a, 1, &x);
}

/* A maximum of maxima: windows of eight until the image is small, so that a rank fetches a small one. */
struct wf_value *wf_global_max_pool(struct wf_graph *g, struct wf_value *x, const char *name)
{
    enum { SMALL = 16, STEP = 8 };
    bool small = false;
    while (x && !small) {
        struct wf_pool p = { .name = name };
        small = true;
        for (int i = 0; i < WF_SPACE; i++)
            small = small && x->shape.at[WF_D + i] <= SMALL;
        for (int i = 0; i < WF_SPACE; i++) {
            const int64_t extent = x->shape.at[WF_D + i];
            p.kernel[i] = small ? extent : wf_min(extent, STEP);
        }
        x = small ? wf_max_pool(g, x, &p) : wf_max_pool_ceil(g, x, &p);
    }
    return x;
}

/* --- the gradient --- */

enum { PLUS = 2 };

static bool infer_grad(const struct wf_node *node, struct wf_err *err)
{
    if (!wf_shape_equal(node->in[0]->shape, node->in[1]->shape))
        return wf_err_set(err, WF_ERR_USAGE, "dy and the index have different shapes");
    if (!wf_pool_grad_infer(node, err))
        return false;
    const struct wf_value *const plus = node->in[PLUS];
    if (plus &&
        (!wf_shape_equal(plus->shape, node->out[0]->shape) || plus->dtype != node->in[0]->dtype))
        return wf_err_set(err, WF_ERR_USAGE, "what is added to dx must have its shape and dtype");
    return true;
}

static struct wf_region reads_grad(const struct wf_node *node, int input, struct wf_region work)
{
    return input == PLUS ? work : wf_pool_grad_reads(node, input, work);
}

static void reference_grad(const struct wf_call *call)
{
    const struct wf_pool_attrs *a = call->node->attrs;
    const struct wf_shape *dy = &call->node->in[0]->shape, *dx = &call->node->out[0]->shape;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = call->in[PLUS].data ? wf_view_at(&call->in[PLUS], c.at) : 0.0;
        for (struct wf_cursor o = wf_cursor(wf_pool_touching(call->node, c.at));
             wf_cursor_next(&o);)
            if ((int64_t)wf_ref_get(&call->in[1], dy, o.at) == place(a, dx, o.at, c.at))
                sum += wf_ref_get(&call->in[0], dy, o.at);
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_maxpool_grad = {
    .name = "maxpool_grad",
    .n_in = 3,
    .n_optional = 1,
    WF_ATTRS(wf_pool_attrs, wf_pool_fields),
    .inplace = 1u << PLUS,
    .adds = 1u << PLUS,
    .infer = infer_grad,
    .reads = reads_grad,
    .reference = reference_grad,
};
