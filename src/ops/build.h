/* The builder is public (widefield_graph.h); these are for networks and passes of our own. */
#pragma once

#include "graph/graph.h"

/* The number in every element, on every rank. */
struct wf_value *wf_fill(struct wf_graph *g, struct wf_shape shape, enum wf_dtype dtype,
                         double value);
/* The class of each position, u8 or i32, of one channel: the largest of x's channels, or x > 0 where it has one. */
struct wf_value *wf_argmax(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype,
                           const char *name);
/* An image as a weight: whole on every rank. */
struct wf_value *wf_replicate(struct wf_graph *g, struct wf_value *x);
/* The sum of contributions to one weight's gradient. */
struct wf_value *wf_accumulate(struct wf_graph *g, const char *name, int n,
                               struct wf_value *const in[]);
