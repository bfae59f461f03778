/*
 * The difference of two codes, and what it is made of.
 *
 * center: y = x - s / count, with s the sums of x over N, D, H, W of each channel (channel_sum). Its gradient is
 * the same of dy, which includes what flows through the sums.
 *
 * unit_rows: the channels of each position, divided by their length.
 */
#include "ops/attrs.h"
#include "ops/loss.h"
#include "ops/rows.h"
#include "ops/separation.h"
#include "ops/spatial.h"

extern const struct wf_op wf_op_center, wf_op_unit_rows;

static const struct wf_field fields[] = {
    WF_REAL(wf_scale_attrs, factor),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    return wf_loss_check_sums(node->in[1], node->in[0]->shape.at[WF_C], err);
}

static struct wf_value *center(struct wf_graph *g, struct wf_value *x, const char *name)
{
    if (!x)
        return NULL;
    const struct wf_scale_attrs a = { (double)x->shape.at[WF_C] /
                                      (double)wf_shape_count(x->shape) };
    struct wf_value *const sums = wf_append(g, &wf_op_channel_sum, name, "sums", NULL, 1, &x);
    return wf_append(g, &wf_op_center, name, NULL, &a, 2, (struct wf_value *[]){ x, sums });
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    if (wanted[0])
        dx[0] = center(g, dy[0], wf_arena_printf(&g->arena, "%s.dx", node->name));
}

static void reference(const struct wf_call *call)
{
    const struct wf_scale_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_view_at(&call->in[0], c.at) -
                        a->factor * wf_view_get(&call->in[1], 0, 0, 0, 0, c.at[WF_C]));
}

static struct wf_value *centered(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return center(g, in[0], "center");
}

static const struct wf_case cases[] = {
    { .in = "x[5,1,1,1,3]", .build = centered },
    { .in = "x[2,1,3,4,2]", .build = centered },
    { .in = "x[1,2,3,2,1]", .build = centered },
    { .in = "x[3,1,1,7,2]", .build = centered },
    { .in = "x[4,1,1,1,10]", .build = centered },
    { .in = "x[1,1,5,3,4]", .build = centered },
    { 0 },
};

const struct wf_op wf_op_center = {
    .name = "center",
    .n_in = 2,
    WF_ATTRS(wf_scale_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .flops_each = 2,
    .cases = cases,
};

/* --- unit_rows_grad: x, dy --- */

static double dot(const struct wf_view *a, const struct wf_view *b, const int64_t at[WF_AXES],
                  int64_t channels)
{
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += wf_row_get(a, at, c) * wf_row_get(b, at, c);
    return sum;
}

static bool rows_grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return wf_shape_equal(node->in[0]->shape, node->in[1]->shape) ||
           wf_err_set(err, WF_ERR_USAGE, "dy must have the shape of x");
}

static void rows_grad_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    const struct wf_view *const x = &call->in[0], *const dy = &call->in[1];
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        const double square = dot(x, x, p.at, channels), r = wf_unit_rows_factor(square);
        const double along = square < WF_UNIT_ROWS_LEAST ? 0.0 : dot(x, dy, p.at, channels) * r * r;
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++)
            wf_row_put(&call->out[0], p.at, c,
                       r * (wf_row_get(dy, p.at, c) - along * wf_row_get(x, p.at, c)));
    }
}

const struct wf_op wf_op_unit_rows_grad = {
    .name = "unit_rows_grad",
    .n_in = 2,
    .flags = WF_OP_POINTWISE,
    .infer = rows_grad_infer,
    .reads = wf_row_reads,
    .reference = rows_grad_reference,
    .flops_each = 6,
};

/* --- unit_rows --- */

static void rows_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    const struct wf_view *const x = &call->in[0];
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        const double r = wf_unit_rows_factor(dot(x, x, p.at, channels));
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++)
            wf_row_put(&call->out[0], p.at, c, r * wf_row_get(x, p.at, c));
    }
}

static void rows_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const in[] = { node->in[0], dy[0] };
    if (wanted[0])
        dx[0] = wf_append(g, &wf_op_unit_rows_grad, node->name, NULL, NULL, 2, in);
}

static const struct wf_case rows_cases[] = {
    { .in = "x[2,1,5,3,4]" },
    { .in = "x[1,3,2,5,2]" },
    { .in = "x[5,1,1,1,10]" },
    { .in = "x[3,1,1,7,3]" },
    { .in = "x[1,1,3,3,1]" },
    { .in = "x[2,1,3,7,7]" },
    { 0 },
};

const struct wf_op wf_op_unit_rows = {
    .name = "unit_rows",
    .n_in = 1,
    .flags = WF_OP_POINTWISE,
    .grad = rows_grad,
    .reads = wf_row_reads,
    .reference = rows_reference,
    .flops_each = 3,
    .cases = rows_cases,
};

/* In f32 at least. */
static struct wf_value *unit(struct wf_graph *g, struct wf_value *code, const char *name)
{
    if (!code)
        return NULL;
    struct wf_value *const x =
        center(g, wf_cast(g, code, code->dtype == WF_F64 ? WF_F64 : WF_F32), name);
    return x ? wf_append(g, &wf_op_unit_rows, name, "rows", NULL, 1, &x) : NULL;
}

struct wf_value *wf_difference(struct wf_graph *g, struct wf_value *shared,
                               struct wf_value *private_code, const char *name)
{
    struct wf_value *const s = unit(g, shared, wf_arena_printf(&g->arena, "%s.shared", name));
    struct wf_value *const p =
        unit(g, private_code, wf_arena_printf(&g->arena, "%s.private", name));
    if (!s || !p)
        return NULL;
    /* shared^T private is the weight gradient of a 1x1 convolution. */
    const struct wf_conv_attrs a = {
        .stride = { 1, 1, 1 }, .dilation = { 1, 1, 1 }, .groups = 1, .extent = { 1, 1, 1 }
    };
    const double positions = (double)(s->shape.at[WF_D] * s->shape.at[WF_H] * s->shape.at[WF_W]);
    struct wf_value *const products = wf_scale(
        g, wf_append(g, &wf_op_conv_wgrad, name, "products", &a, 2, (struct wf_value *[]){ p, s }),
        1.0 / positions);
    if (!products)
        return NULL;
    return wf_mse(g, products, wf_fill(g, products->shape, products->dtype, 0.0),
                  &(struct wf_loss){ .name = name });
}
