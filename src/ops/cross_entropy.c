/*
 * Cross-entropy of softmax over the channels against a class map, with class weights and a label
 * that does not count. As in PyTorch the mean divides by the sum of the weights of the labels.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/loss.h"
#include "ops/rows.h"

enum { LOGITS, TARGET, WEIGHTS, DS };

static bool check(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_shape logits = node->in[LOGITS]->shape;
    const struct wf_value *weights = node->in[WEIGHTS];
    if (weights && !wf_shape_equal(weights->shape, WF_SHAPE(1, 1, 1, 1, logits.at[WF_C])))
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " class weights for %" PRId64 " classes: give one per class",
                          wf_shape_count(weights->shape), logits.at[WF_C]);
    return wf_loss_check_map(logits, node->in[TARGET], err);
}

/* One position: its class (-1: not a label), weight, and what softmax divides by. */
struct position {
    int64_t label;
    double weight, top, sum;
};

/* False where the label is the ignored one. */
static bool look(const struct wf_call *call, const int64_t at[WF_AXES], struct position *p)
{
    const int64_t classes = call->node->in[LOGITS]->shape.at[WF_C];
    const double label = wf_row_get(&call->in[TARGET], at, 0);
    if (!wf_loss_counts(call->node->attrs, label))
        return false;
    *p = (struct position){ .label = wf_loss_class(label, classes),
                            .weight = 1.0,
                            .top = -HUGE_VAL };
    if (p->label < 0)
        p->weight = (double)NAN;
    else if (call->in[WEIGHTS].data)
        p->weight = wf_view_get(&call->in[WEIGHTS], 0, 0, 0, 0, p->label);
    for (int64_t c = 0; c < classes; c++)
        p->top = fmax(p->top, wf_row_get(&call->in[LOGITS], at, c));
    for (int64_t c = 0; c < classes; c++)
        p->sum += exp(wf_row_get(&call->in[LOGITS], at, c) - p->top);
    return true;
}

/* --- ce_grad: logits, target, [weights], ds --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return check(node, err) && wf_loss_check_sums(node->in[DS], 2, err);
}

/* The second sum does not depend on the logits, so only ds[0] is read. */
static void grad_reference(const struct wf_call *call)
{
    const double ds = wf_view_get(&call->in[DS], 0, 0, 0, 0, 0);
    for (struct wf_cursor r = wf_cursor(wf_rows(call->work)); wf_cursor_next(&r);) {
        struct position p;
        const bool counts = look(call, r.at, &p);
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++) {
            double d = 0.0;
            if (counts)
                d = ds * p.weight *
                    (exp(wf_row_get(&call->in[LOGITS], r.at, c) - p.top) / p.sum -
                     (c == p.label ? 1.0 : 0.0));
            wf_row_put(&call->out[0], r.at, c, d);
        }
    }
}

const struct wf_op wf_op_ce_grad = {
    .name = "ce_grad",
    .n_in = 4,
    .n_optional = 2, /* weights; infer asks for ds */
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .flags = WF_OP_POINTWISE,
    .infer = grad_infer,
    .reads = wf_row_reads,
    .reference = grad_reference,
    .flops_each = 5,
};

/* --- ce --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    wf_loss_set_sums(node, 2);
    return check(node, err);
}

static void reference(const struct wf_call *call)
{
    wf_view_fill(&call->out[0], 0.0);
    for (struct wf_cursor r = wf_cursor(wf_rows(call->work)); wf_cursor_next(&r);) {
        struct position p;
        if (!look(call, r.at, &p))
            continue;
        const double logit = wf_row_get(&call->in[LOGITS], r.at, p.label < 0 ? 0 : p.label);
        wf_loss_sum(&call->out[0], 0, p.weight * (log(p.sum) + p.top - logit));
        wf_loss_sum(&call->out[0], 1, p.weight);
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    wf_loss_grad(g, &wf_op_ce_grad, node, dy, wanted, dx);
}

static struct wf_value *mean(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    return wf_cross_entropy(g, in[0], in[1], &(struct wf_loss){ .name = "loss" });
}

static struct wf_value *mean_weighted(struct wf_graph *g, struct wf_value *const in[], const void *)
{
    const struct wf_loss l = { .name = "loss", .weights = in[2], .has_ignore = true, .ignore = 1 };
    return wf_cross_entropy(g, in[0], in[1], &l);
}

static const struct wf_case cases[] = {
    { .in = "x[2,1,5,3,4] t[2,1,5,3,1] -" },
    { .in = "x[1,3,2,5,2] t[1,3,2,5,1] -" },
    { .in = "x[3,1,1,7,3] t[3,1,1,7,1] -" },
    { .in = "x[5,1,1,1,10] t[5,1,1,1,1] -" },
    { .attrs = "ignore=2 has_ignore=1", .in = "x[2,1,3,5,3] t[2,1,3,5,1] -" },
    { .in = "x[2,1,3,3,3] t[2,1,3,3,1] P[3]" },
    { .in = "x[2,1,3,5,3] t[2,1,3,5,1]", .build = mean },
    { .in = "x[2,2,3,3,3] t[2,2,3,3,1] P[3]", .build = mean_weighted },
    { 0 },
};

const struct wf_op wf_op_ce = {
    .name = "ce",
    .flags = WF_OP_ROWS,
    .n_in = 3,
    .n_optional = 1,
    WF_ATTRS(wf_loss_attrs, wf_loss_fields),
    .infer = infer,
    .grad = grad,
    .reads = wf_row_reads,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .reference = reference,
    .flops_each = 5,
    .cases = cases,
};

struct wf_value *wf_cross_entropy(struct wf_graph *g, struct wf_value *logits,
                                  struct wf_value *target, const struct wf_loss *l)
{
    return wf_loss_add(g, &wf_op_ce, l, 3, (struct wf_value *[]){ logits, target, l->weights });
}
