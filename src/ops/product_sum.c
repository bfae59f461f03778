/*
 * product_sum: s = sum of a * b over some of N, D, H, W, in f64, because ranks add their parts; without b the sum
 * of a. b may be broadcast. With `below` only elements count whose b is below 0: the gradient of PReLU's weight.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/pair.h"

static const struct wf_field fields[] = {
    WF_INTS(wf_reduce_attrs, over, WF_AXES),
    WF_INT(wf_reduce_attrs, below),
    { 0 },
};

static unsigned sums_over(const struct wf_node *node)
{
    const struct wf_reduce_attrs *a = node->attrs;
    unsigned axes = 0;
    for (int i = 0; i < WF_C; i++)
        axes |= a->over[i] ? WF_AXIS(i) : 0u;
    return axes;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_reduce_attrs *attrs = node->attrs;
    const struct wf_value *const a = node->in[0], *const b = node->in[1];
    struct wf_value *const s = node->out[0];
    bool all = true;
    if (attrs->over[WF_C] || sums_over(node) == 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "sums over some of N, D, H, W: for channels use row_dot");
    for (int i = 0; i < WF_AXES; i++) {
        if (b && b->shape.at[i] != a->shape.at[i] && b->shape.at[i] != 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' has %" PRId64 " along %c, and '%s' %" PRId64
                              ": they must be equal, or 1",
                              b->name, b->shape.at[i], "NDHWC"[i], a -> name, a -> shape.at[i]);
        if (attrs->over[i])
            s->shape.at[i] = 1;
        all = all && (attrs->over[i] || i == WF_C);
    }
    s->dtype = WF_F64;
    if (all)
        s->replicated = true;
    if (attrs->over[WF_N])
        s->set = 0;
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_reduce_attrs *attrs = call->node->attrs;
    const struct wf_view *const s = &call->out[0];
    for (struct wf_cursor c = wf_cursor(s->box); wf_cursor_next(&c);) {
        struct wf_region mine = call->work;
        for (int i = 0; i < WF_AXES; i++)
            if (!attrs->over[i]) {
                mine.lo[i] = wf_max(mine.lo[i], c.at[i]);
                mine.hi[i] = wf_min(mine.hi[i], c.at[i] + 1);
            }
        double sum = 0;
        for (struct wf_cursor p = wf_cursor(mine); wf_cursor_next(&p);) {
            const double b =
                call->in[1].data ? wf_pair_get(&call->in[1], call->node->in[1], p.at) : 1.0;
            if (!attrs->below || b < 0)
                sum += wf_view_at(&call->in[0], p.at) * b;
        }
        wf_view_set(s, c.at, sum);
    }
}

/* Not of one with `below`, which is itself part of a gradient. */
static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const a = node->in[0], *const b = node->in[1];
    struct wf_value *const d = wf_cast(g, dy[0], a->dtype);
    if (wanted[0] && b)
        dx[0] = wf_multiply(g, wf_expand(g, b, node->name, a->shape), d);
    else if (wanted[0])
        dx[0] = wf_expand(g, d, node->name, a->shape);
    if (b && wanted[1] && wf_shape_equal(a->shape, b->shape))
        dx[1] = wf_multiply(g, a, d);
    else if (b && wanted[1])
        dx[1] = wf_sum_to(g, node->name, wf_multiply(g, a, d), NULL, b);
}

/* Sums over samples are weights' gradients, whole on every rank: what layers read is an image again. */
static struct wf_value *times_sum(struct wf_graph *g, struct wf_value *const in[],
                                  const void *attrs)
{
    struct wf_value *const s = wf_append(g, &wf_op_product_sum, "sum", NULL, attrs, 2, in);
    return s ? wf_multiply(g, in[0], wf_cast(g, s, in[0]->dtype)) : NULL;
}

static const struct wf_case cases[] = {
    { .attrs = "over=[0,1,1,1,0]", .in = "x[2,1,5,7,3] x[2,1,5,7,3]" },
    { .attrs = "over=[1,1,1,1,0]", .in = "x[2,3,4,5,2] x[2,3,4,5,2]", .build = times_sum },
    { .attrs = "over=[1,1,1,1,0]", .in = "x[3,1,4,5,4] -" },
    { .attrs = "over=[0,0,1,0,0]", .in = "x[2,1,5,7,2] -" },
    { .attrs = "over=[0,0,0,1,0]", .in = "x[1,2,5,6,2] x[1,2,5,6,2]" },
    { .attrs = "over=[1,0,0,0,0]", .in = "p[3,1,4,5,2] p[3,1,4,5,2]", .build = times_sum },
    { .attrs = "over=[0,1,1,1,0]", .in = "x[2,1,5,7,3] x[2,1,5,7,1]" },
    { .attrs = "over=[0,1,1,1,0]", .in = "x[2,1,5,4,3] x[2,1,1,1,3]" },
    { .attrs = "over=[1,1,1,1,0] below=1", .in = "X[2,1,5,7,3] X[2,1,5,7,3]", .build = times_sum },
    { 0 },
};

const struct wf_op wf_op_product_sum = {
    .name = "product_sum",
    .n_in = 2,
    .n_optional = 1,
    .flags = WF_OP_SHIFTS | WF_OP_ROWS,
    WF_ATTRS(wf_reduce_attrs, fields),
    .infer = infer,
    .grad = grad,
    .sums_over = sums_over,
    .over = 0,
    .reference = reference,
    .flops_each = 2,
    .cases = cases,
};

/* Does the batch hold subdomains of images? */
static bool is_tiled(const struct wf_value *x)
{
    for (const struct wf_node *n = x->producer; n;
         n = n->n_in && n->in[0] ? n->in[0]->producer : NULL)
        if (strcmp(n->op->name, "tile") == 0 || strcmp(n->op->name, "untile") == 0)
            return n->op->name[0] == 't';
    return false;
}

struct wf_value *wf_mean(struct wf_graph *g, struct wf_value *x, const char *name, unsigned axes)
{
    if (!x)
        return NULL;
    struct wf_reduce_attrs a = { 0 };
    double count = 1;
    bool positions = false;
    for (int i = 0; i < WF_AXES; i++) {
        const bool over = (axes & WF_AXIS(i)) != 0;
        count *= over ? (double)x->shape.at[i] : 1;
        a.over[i] = over && i != WF_C;
        positions |= a.over[i];
    }
    const bool keeps = x->shape.at[WF_D] * x->shape.at[WF_H] * x->shape.at[WF_W] > 1 &&
                       (axes & WF_OVER_SPACE) != WF_OVER_SPACE;
    if (a.over[WF_N] && keeps && is_tiled(x)) {
        wf_err_set(
            &g->err, WF_ERR_USAGE,
            "layer '%s': a mean over subdomains that keeps their positions mixes parts of the image that "
            "ranks hold apart: untile first, or take the mean over space, too",
            name);
        return NULL;
    }
    struct wf_value *y = x;
    if (positions)
        y = wf_append(g, &wf_op_product_sum, name, NULL, &a, 2, (struct wf_value *[]){ x, NULL });
    if (axes & WF_AXIS(WF_C))
        y = wf_append(g, &wf_op_row_dot, name, positions ? "rows" : NULL, NULL, 2,
                      (struct wf_value *[]){ y, NULL });
    return wf_cast(g, wf_scale(g, y, 1.0 / count), x->dtype);
}
