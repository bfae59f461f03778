/*
 * Losses of domain separation networks: how much of an image is rebuilt, how different the two codes of a
 * domain are, how alike the codes of two domains.
 *
 * Codes are vectors [N,1,1,1,C] or maps, whose positions then count as samples do.
 */
#pragma once

#include "graph/graph.h"

/* The widths of mmd's kernels, as domain separation networks were published with. */
#define WF_MMD_WIDTHS                                                                              \
    {                                                                                              \
        1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6  \
    }

/* Scale-invariant squared error: of each image mean(d^2) - mean(d)^2 over pixels and channels, d = x - target;
 * the mean of the images'. The target is data: no gradient flows to it. */
struct wf_value *wf_si_mse(struct wf_graph *g, struct wf_value *x, struct wf_value *target,
                           const char *name);
/* Both codes less their mean over the batch, rows of length one: the mean of squares of shared^T private.
 * Of maps, the mean over positions stands for an image. */
struct wf_value *wf_difference(struct wf_graph *g, struct wf_value *shared,
                               struct wf_value *private_code, const char *name);
/* Maximum mean discrepancy of two batches of vectors, by a sum of 19 Gaussian kernels. */
struct wf_value *wf_mmd(struct wf_graph *g, struct wf_value *a, struct wf_value *b,
                        const char *name);
