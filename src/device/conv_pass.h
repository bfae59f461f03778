/*
 * The three products that every convolution comes down to, as libraries for them know them: an
 * operator each, one table of kernels for all three.
 *
 *     const struct wf_kernel wf_cpu_kernels_dnnl_conv[] = {
 *         WF_CONV_PASSES(.accepts = accepts, .prepare = prepare, .run = run),
 *         { 0 },
 *     };
 */
#pragma once

#include "ops/spatial.h"

enum wf_conv_pass { WF_CONV_FORWARD, WF_CONV_DATA, WF_CONV_WEIGHTS };

static inline enum wf_conv_pass wf_conv_pass_of(const struct wf_node *node)
{
    return node->op == &wf_op_conv    ? WF_CONV_FORWARD
           : node->op == &wf_op_convt ? WF_CONV_DATA
                                      : WF_CONV_WEIGHTS;
}

/* Three rows, in the order of the passes. */
#define WF_CONV_PASSES(...)                                                                        \
    { .op = "conv", __VA_ARGS__ }, { .op = "convt", __VA_ARGS__ },                                 \
    {                                                                                              \
        .op = "conv_wgrad", __VA_ARGS__                                                            \
    }
