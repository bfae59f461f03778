/*
 * Dice loss: 1 - mean over classes of (2 I + s) / (P + T + s), where I sums p * t, P sums p and T
 * sums t over the whole batch and image; t is the class map as one map of 0 and 1 per class. With
 * one class the map's label 1 is that class, and 0 is the rest.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/loss.h"
#include "ops/rows.h"

/* The channel that a position belongs to: classes when it belongs to none, -1 for a bad label. */
static int64_t channel_of(double label, int64_t classes)
{
    if (classes > 1)
        return wf_loss_class(label, classes);
    return label == 1 ? 0 : label == 0 ? classes : -1;
}

/* --- dice_grad: probs, target, ds --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape probs = node->in[0]->shape;
    return wf_loss_check_map(probs, node->in[1], err) &&
           wf_loss_check_sums(node->in[2], 3 * probs.at[WF_C], err);
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t classes = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor r = wf_cursor(wf_rows(call->work)); wf_cursor_next(&r);) {
        const double label = wf_row_get(&call->in[1], r.at, 0);
        const bool counts = wf_loss_counts(call->node->attrs, label);
        const int64_t mine = channel_of(label, classes);
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++) {
            double d = wf_view_get(&call->in[2], 0, 0, 0, 0, classes + c);
            if (c == mine)
                d += wf_view_get(&call->in[2], 0, 0, 0, 0, c);
            wf_row_put(&call->out[0], r.at, c, !counts ? 0.0 : mine < 0 ? (double)NAN : d);
        }
    }
}

const struct wf_op wf_op_dice_grad = {
    .name = "dice_grad",
    .n_in = 3,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .flags = WF_OP_POINTWISE,
    .infer = grad_infer,
    .reads = wf_row_reads,
    .reference = grad_reference,
    .flops_each = 3,
};

/* --- dice --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 3 * node->in[0]->shape.at[WF_C]);
    return wf_loss_check_map(node->in[0]->shape, node->in[1], err);
}

static void reference(const struct wf_call *call)
{
    const int64_t classes = call->node->in[0]->shape.at[WF_C];
    wf_view_fill(&call->out[0], 0.0);
    for (struct wf_cursor r = wf_cursor(wf_rows(call->work)); wf_cursor_next(&r);) {
        const double label = wf_row_get(&call->in[1], r.at, 0);
        const int64_t mine = channel_of(label, classes);
        if (!wf_loss_counts(call->node->attrs, label))
            continue;
        for (int64_t c = 0; c < classes; c++) {
            const double p = wf_row_get(&call->in[0], r.at, c);
            const double t = mine < 0 ? (double)NAN : c == mine ? 1.0 : 0.0;
            wf_loss_sum(&call->out[0], c, p * t);
            wf_loss_sum(&call->out[0], classes + c, p);
            wf_loss_sum(&call->out[0], 2 * classes + c, t);
        }
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    wf_loss_grad(g, &wf_op_dice_grad, node, dy, wanted, dx);
}

static struct wf_value *whole(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_dice(g, in[0], in[1], &(struct wf_loss){ .name = "loss" });
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,3,4] t[2,1,5,3,1]" },
    { .in = "x[1,3,2,5,2] t[1,3,2,5,1]" },
    { .in = "x[3,1,1,7,3] t[3,1,1,7,1]" },
    { .in = "x[2,1,3,3,1] b[2,1,3,3,1]" },
    { .attrs = "ignore=0 has_ignore=1", .in = "x[2,1,3,5,3] t[2,1,3,5,1]" },
    { .in = "x[2,1,3,5,3] t[2,1,3,5,1]", .build = whole },
    { .in = "x[2,2,3,3,1] b[2,2,3,3,1]", .build = whole },
    { 0 },
};

const struct wf_op wf_op_dice = {
    .name = "dice",
    .flags = WF_OP_ROWS,
    .n_in = 2,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_row_reads,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .reference = reference,
    .flops_each = 3,
    .cases = cases,
};

/* --- dice_loss_grad: s, dloss --- */

static bool check_classes(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_loss_attrs *a = node->attrs;
    if (a->classes < 1)
        return wf_err_set(err, WF_ERR_USAGE, "%" PRId64 " classes: at least 1", a->classes);
    return wf_loss_check_sums(node->in[0], 3 * a->classes, err);
}

static bool loss_grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_loss_attrs *a = node->attrs;
    wf_loss_set_sums(node, 3 * a->classes);
    return check_classes(node, err) && wf_loss_check_sums(node->in[1], 1, err);
}

/* 2 I + s and P + T + s of class c. */
static void class_terms(const struct wf_call *call, int64_t c, double *over, double *under)
{
    const struct wf_loss_attrs *a = call->node->attrs;
    *over = 2.0 * wf_view_get(&call->in[0], 0, 0, 0, 0, c) + a->smooth;
    *under = wf_view_get(&call->in[0], 0, 0, 0, 0, a->classes + c) +
             wf_view_get(&call->in[0], 0, 0, 0, 0, 2 * a->classes + c) + a->smooth;
}

static void loss_grad_reference(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = call->node->attrs;
    const double dloss = wf_view_get(&call->in[1], 0, 0, 0, 0, 0) / (double)a->classes;
    for (int64_t c = 0; c < a->classes; c++) {
        double over, under;
        class_terms(call, c, &over, &under);
        const double down = dloss * over / (under * under);
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, -2.0 * dloss / under);
        wf_view_put(&call->out[0], 0, 0, 0, 0, a->classes + c, down);
        wf_view_put(&call->out[0], 0, 0, 0, 0, 2 * a->classes + c, down);
    }
}

const struct wf_op wf_op_dice_loss_grad = {
    .name = "dice_loss_grad",
    .n_in = 2,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = loss_grad_infer,
    .reference = loss_grad_reference,
};

/* --- dice_loss --- */

static bool loss_infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 1);
    return check_classes(node, err);
}

static void loss_reference(const struct wf_call *call)
{
    const struct wf_loss_attrs *a = call->node->attrs;
    double sum = 0.0;
    for (int64_t c = 0; c < a->classes; c++) {
        double over, under;
        class_terms(call, c, &over, &under);
        sum += over / under;
    }
    wf_view_put(&call->out[0], 0, 0, 0, 0, 0, 1.0 - sum / (double)a->classes);
}

static void loss_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    struct wf_value *const in[] = { node->in[0], dy[0] };
    dx[0] = wf_append(g, &wf_op_dice_loss_grad, node->name, NULL, node->attrs, 2, in);
}

/* A large `smooth` keeps the denominator away from zero whatever the sign of random sums. */
static const struct wf_case loss_cases[] = {
    { .attrs = "classes=1 smooth=9", .in = "p[3]" },
    { .attrs = "classes=2 smooth=9", .in = "p[6]" },
    { .attrs = "classes=3 smooth=7", .in = "p[9]" },
    { .attrs = "classes=7 smooth=12", .in = "p[21]" },
    { 0 },
};

const struct wf_op wf_op_dice_loss = {
    .name = "dice_loss",
    .n_in = 1,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = loss_infer,
    .grad = loss_grad,
    .reference = loss_reference,
    .cases = loss_cases,
};

/* Probabilities of half-precision logits are made in f32: 8 bits do not hold a soft Dice. */
struct wf_value *wf_dice(struct wf_graph *g, struct wf_value *logits, struct wf_value *target,
                         const struct wf_loss *l)
{
    if (!logits || !target)
        return NULL;
    const char *name = l->name ? l->name : "dice";
    if (l->weights) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': the Dice loss takes no class weights: leave them out", name);
        return NULL;
    }
    const struct wf_loss_attrs a = wf_loss_attrs_of(l, logits->shape.at[WF_C]);
    struct wf_value *x = wf_cast(g, logits, logits->dtype == WF_F64 ? WF_F64 : WF_F32);
    const char *probs = wf_arena_printf(&g->arena, "%s.probs", name);
    struct wf_value *const in[] = { a.classes > 1 ? wf_softmax(g, x, probs)
                                                  : wf_activation(g, x, probs, WF_SIGMOID, 0.0),
                                    target };
    struct wf_value *const sums = wf_append(g, &wf_op_dice, name, NULL, &a, 2, in);
    struct wf_value *const loss = wf_append(g, &wf_op_dice_loss, name, NULL, &a, 1, &sums);
    return wf_loss_finish(g, loss, logits);
}
