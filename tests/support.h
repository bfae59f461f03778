/*
 * What several tests need: a graph's values in dense memory, the plainest interpreter there is, and
 * the graphs of the operators' test cases.
 *
 *     struct support_case c;
 *     assert_true(support_case_build(op, &op->cases[i], WF_F64, &c, &err));
 *     struct support_values v = support_values_new(c.g);
 *     support_case_fill(&c, &v, 7);
 *     support_run_reference(c.g, &v, true);
 *     ... v.views[c.y->id] ...
 *     support_values_free(&v);
 *     wf_graph_free(c.g);
 */
#ifndef WF_TESTS_SUPPORT_H
#define WF_TESTS_SUPPORT_H

#include "graph/graph.h"
#include "ops/op.h"
#include "tensor/view.h"

/* One dense, zeroed buffer for each value of a graph, by the value's id. */
struct support_values {
    struct wf_view *views;
    size_t n;
};
struct support_values support_values_new(const struct wf_graph *g);
void support_values_free(struct support_values *v);

/* Runs each node over its whole domain with its reference kernel, in order; without the backward
 * pass where asked. */
void support_run_reference(const struct wf_graph *g, const struct support_values *v,
                           bool with_backward);

/* Numbers in (-1.05, -0.05] or [0.05, 1.05): none so close to 0 that a step of a finite difference
 * crosses it. Element i of a view gets number i of the stream, whatever its strides. */
void support_fill_random(const struct wf_view *view, uint64_t seed, uint64_t stream);

/* Splits the inputs of a case; returns how many. */
enum { SUPPORT_MAX_IN = 4 };
int support_case_inputs(const struct wf_case *from, char kinds[], struct wf_shape shapes[]);

/* The graph of a case with its backward pass: dwrt[i] is the gradient of sum(y * dy) in wrt[i].
 * dy is NULL where nothing is differentiated. */
struct support_case {
    struct wf_graph *g;
    const struct wf_case *from;
    int n_in, n_wrt;
    char kinds[SUPPORT_MAX_IN];
    struct wf_value *in[SUPPORT_MAX_IN], *wrt[SUPPORT_MAX_IN], *dwrt[SUPPORT_MAX_IN];
    struct wf_value *y, *dy;
};
/* `dtype` is that of images and parameters. On failure there is no graph to free. */
[[nodiscard]] bool support_case_build(const struct wf_op *op, const struct wf_case *from,
                                      enum wf_dtype dtype, struct support_case *c,
                                      struct wf_err *err);
/* Random inputs of the kind that the case names; positive parameters and states of its layers. */
void support_case_fill(const struct support_case *c, const struct support_values *v, uint64_t seed);

#endif
