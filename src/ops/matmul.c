/*
 * matmul: a product of two images as matrices, for each sample. The rows of an image are its positions, in the order
 * d, h, w, and its columns are its channels. Of attention: the scores of all positions with all positions are `nt` of
 * queries and keys, the result is `nn` of weights and values.
 *
 *     nt    y[p, q] = sum over c of a[p, c] * b[q, c]     positions of a; a channel for each position of b
 *     nn    y[p, c] = sum over q of a[p, q] * b[q, c]     positions of a, channels of b
 *     tn    y[q, c] = sum over p of a[p, q] * b[p, c]     `extent` positions, one for each channel of a; channels of b
 *
 * Each is among the gradients of the others. A part of the result reads all positions of b (tn: of both), so ranks of a cut
 * image fetch them.
 */
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

extern const struct wf_op wf_op_matmul;

const char *const wf_matmul_form_names[] = { "nt", "nn", "tn", NULL };
static const struct wf_field fields[] = {
    WF_NAMED(wf_matmul_attrs, form, wf_matmul_form_names),
    WF_INTS(wf_matmul_attrs, extent, 3),
    { 0 },
};

static int64_t positions(const struct wf_shape *s)
{
    return s->at[WF_D] * s->at[WF_H] * s->at[WF_W];
}

/* What both matrices must have alike: columns of both, columns of a and rows of b, or rows of both. */
static bool meet(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_matmul_attrs *const attrs = node->attrs;
    const struct wf_value *const a = node->in[0], *const b = node->in[1];
    const bool of_a = attrs->form == WF_MATMUL_TN, of_b = attrs->form != WF_MATMUL_NT;
    const int64_t left = of_a ? positions(&a->shape) : a->shape.at[WF_C];
    const int64_t right = of_b ? positions(&b->shape) : b->shape.at[WF_C];
    if (left == right)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "'%s' has %" PRId64 " %s and '%s' %" PRId64 " %s: they must be equal",
                      a->name, left, of_a ? "positions" : "channels", b->name, right,
                      of_b ? "positions" : "channels");
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_matmul_attrs *const attrs = node->attrs;
    const struct wf_value *const a = node->in[0], *const b = node->in[1];
    struct wf_shape *const y = &node->out[0]->shape;
    if (a->shape.at[WF_N] != b->shape.at[WF_N] || a->dtype != b->dtype)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' has %" PRId64 " samples of %s and '%s' %" PRId64
                          " of %s: they must be equal",
                          a->name, a->shape.at[WF_N], wf_dtype_name(a->dtype), b->name,
                          b->shape.at[WF_N], wf_dtype_name(b->dtype));
    if (!meet(node, err))
        return false;
    for (int i = WF_D; i < WF_C && attrs->form == WF_MATMUL_TN; i++)
        if (a->shape.at[i] != b->shape.at[i]) /* gradients would have the other's extents */
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' and '%s' are of different extents: reshape one of them",
                              a->name, b->name);
    y->at[WF_C] = attrs->form == WF_MATMUL_NT ? positions(&b->shape) : b->shape.at[WF_C];
    if (attrs->form == WF_MATMUL_TN) {
        for (int i = 0; i < 3; i++)
            y->at[WF_D + i] = attrs->extent[i];
        if (!wf_shape_is_valid(*y) || positions(y) != a->shape.at[WF_C])
            return wf_err_set(err, WF_ERR_USAGE,
                              "%" PRId64 " channels do not become %" PRId64 " x %" PRId64
                              " x %" PRId64 " positions",
                              a->shape.at[WF_C], y->at[WF_D], y->at[WF_H], y->at[WF_W]);
    }
    node->out[0]->replicated = a->replicated && b->replicated;
    return true;
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_matmul_attrs *const attrs = node->attrs;
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    r.lo[WF_N] = work.lo[WF_N];
    r.hi[WF_N] = work.hi[WF_N];
    if (input == 0 && attrs->form != WF_MATMUL_TN)
        for (int i = WF_D; i < WF_C; i++) {
            r.lo[i] = work.lo[i];
            r.hi[i] = work.hi[i];
        }
    if (input == 1 && attrs->form != WF_MATMUL_NT) {
        r.lo[WF_C] = work.lo[WF_C];
        r.hi[WF_C] = work.hi[WF_C];
    }
    return r;
}

static double element(const struct wf_view *v, const struct wf_shape *s, int64_t n, int64_t row,
                      int64_t column)
{
    const int64_t w = row % s->at[WF_W], line = row / s->at[WF_W];
    return wf_view_get(v, n, line / s->at[WF_H], line % s->at[WF_H], w, column);
}

static void reference(const struct wf_call *call)
{
    const struct wf_matmul_attrs *const attrs = call->node->attrs;
    const struct wf_shape *const a = &call->node->in[0]->shape, *const b =
                                                                    &call->node->in[1]->shape;
    const struct wf_shape *const y = &call->node->out[0]->shape;
    const bool by_rows = attrs->form == WF_MATMUL_TN, turned = attrs->form == WF_MATMUL_NT;
    const int64_t terms = by_rows ? positions(a) : a->at[WF_C];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const int64_t row = (c.at[WF_D] * y->at[WF_H] + c.at[WF_H]) * y->at[WF_W] + c.at[WF_W];
        double sum = 0;
        for (int64_t k = 0; k < terms; k++) {
            const int64_t of_a[] = { by_rows ? k : row, by_rows ? row : k };
            const int64_t of_b[] = { turned ? c.at[WF_C] : k, turned ? k : c.at[WF_C] };
            sum += element(&call->in[0], a, c.at[WF_N], of_a[0], of_a[1]) *
                   element(&call->in[1], b, c.at[WF_N], of_b[0], of_b[1]);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static struct wf_value *append(struct wf_graph *g, const char *name, const char *suffix,
                               enum wf_matmul_form form, struct wf_value *a, struct wf_value *b,
                               const struct wf_value *like)
{
    struct wf_matmul_attrs attrs = { .form = form };
    for (int i = 0; like && i < 3; i++)
        attrs.extent[i] = like->shape.at[WF_D + i];
    return wf_append(g, &wf_op_matmul, name, suffix, &attrs, 2, (struct wf_value *[]){ a, b });
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    const struct wf_matmul_attrs *const attrs = node->attrs;
    struct wf_value *const a = node->in[0], *const b = node->in[1], *const d = dy[0];
    const char *const name = node->name;
    switch ((enum wf_matmul_form)attrs->form) {
    case WF_MATMUL_NT:
        dx[0] = wanted[0] ? append(g, name, "da", WF_MATMUL_NN, d, b, NULL) : NULL;
        dx[1] = wanted[1] ? append(g, name, "db", WF_MATMUL_TN, d, a, b) : NULL;
        break;
    case WF_MATMUL_NN:
        dx[0] = wanted[0] ? append(g, name, "da", WF_MATMUL_NT, d, b, NULL) : NULL;
        dx[1] = wanted[1] ? append(g, name, "db", WF_MATMUL_TN, a, d, b) : NULL;
        break;
    case WF_MATMUL_TN:
        dx[0] = wanted[0] ? append(g, name, "da", WF_MATMUL_NT, b, d, NULL) : NULL;
        dx[1] = wanted[1] ? append(g, name, "db", WF_MATMUL_NN, a, d, NULL) : NULL;
        break;
    }
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_matmul_attrs *const attrs = node->attrs;
    const struct wf_shape *const a = &node->in[0]->shape;
    const int64_t terms = attrs->form == WF_MATMUL_TN ? positions(a) : a->at[WF_C];
    return 2.0 * (double)terms * (double)wf_region_count(work);
}

static const struct wf_case cases[] = {
    { .attrs = "form=nt", .in = "x[2,1,3,4,5] x[2,1,2,3,5]" },
    { .attrs = "form=nt", .in = "x[1,2,5,7,3] x[1,2,5,7,3]" },
    { .attrs = "form=nn", .in = "x[2,1,5,3,6] x[2,1,2,3,4]" },
    { .attrs = "form=nn", .in = "x[1,1,7,5,70] x[1,1,10,7,40]" },
    { .attrs = "form=tn extent=[1,2,3]", .in = "x[2,1,3,4,6] x[2,1,3,4,2]" },
    { .attrs = "form=tn extent=[2,1,5]", .in = "x[1,1,9,8,10] x[1,1,9,8,3]" },
    { .attrs = "form=nt", .in = "x[3,1,1,1,9] x[3,1,1,1,9]" },
    { 0 },
};

const struct wf_op wf_op_matmul = {
    .name = "matmul",
    .n_in = 2,
    WF_ATTRS(wf_matmul_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .flops = flops,
    .cases = cases,
};

struct wf_value *wf_matmul(struct wf_graph *g, struct wf_value *a, struct wf_value *b,
                           const char *name, enum wf_matmul_form form, const int64_t extent[3])
{
    struct wf_matmul_attrs attrs = { .form = form };
    for (int i = 0; extent && i < 3; i++)
        attrs.extent[i] = extent[i];
    return a && b
               ? wf_append(g, &wf_op_matmul, name, NULL, &attrs, 2, (struct wf_value *[]){ a, b })
               : NULL;
}
