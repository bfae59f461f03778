/*
 * Random small graphs from all operators, with a backward pass.
 *
 * A graph is a function of its seed alone. It starts from an image of one to three dimensions, odd
 * and tiny extents among them, and grows by drawing an operator, one of the values so far (the newest
 * most of the time) and attributes that fit: layers of the builder, with attributes of a wide range,
 * and once in each graph the operator that has its turn with this seed, of all that there are, as one of
 * its cases has it. It ends in a loss or a sum, or in any value at all with a random gradient behind
 * it. Some values on the way are outputs too. WF_RANDOM_OP names the operator of all graphs.
 *
 *     struct support_random r;
 *     support_random_build(&r, seed);
 *     struct support_values v = support_values_new(r.g);
 *     support_random_fill(&r, &v, 7);
 *     support_run_reference(r.g, &v, true);
 *     ...
 *     wf_graph_free(r.g);
 */
#ifndef WF_TESTS_SUPPORT_RANDOM_H
#define WF_TESTS_SUPPORT_RANDOM_H

#include "plan/mesh.h"
#include "support.h"

struct support_random {
    struct wf_graph *g;
    struct wf_value *y;
    struct wf_value *image, *gradient; /* what goes in, and its gradient (NULL: y is free of it) */
    struct wf_value *target;           /* of the loss, or NULL */
    uint32_t labels;                   /* values of the target: 0 .. labels - 1; 0: real numbers */
};
/* An operator that a graph may have its turn with: one of its cases begins with an image. */
bool support_random_draws(const struct wf_op *op);
void support_random_build(struct support_random *r, uint64_t seed);
/* Inputs of moderate size, weights that keep it so. */
void support_random_fill(const struct support_random *r, const struct support_values *v,
                         uint64_t seed);
/* A mesh of 1 to 9 ranks that cuts the image along its axes. */
struct wf_mesh support_random_mesh(const struct support_random *r, uint64_t seed, int number);

#endif
