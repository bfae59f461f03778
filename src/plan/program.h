/*
 * The program: the graph as a list of items, independent of ranks.
 *
 * An item runs a node once. Usually each node is one item, but a cheap node (normalise and
 * activate, concatenate, cast; the device decides) may run several times: its result is discarded
 * after a use and recomputed before the next distant one, mostly in the backward pass. If memory is
 * short (fit.c), the planner requests recomputation of expensive values too, each for a certain
 * node. So a value may be computed more than once: each computation is an instance, and everything
 * later (regions, memory, messages) refers to instances. Nodes that nothing depends on are left
 * out.
 *
 * P1. An instance is computed by exactly one item, before all items that use it; instances of
 *     inputs, parameters and states have no maker.
 * P2. A value is recomputed only if its inputs are kept in any case, or are smaller than it, or
 *     if the planner requested it by name.
 * P3. Only nodes of the forward pass run again, and none that sums: a sum is small and is kept, so
 *     statistics and what follows from them are the same bits each time.
 * P4. A value that another chunk (stages.h) reads is there as it was first made: nothing is recomputed for
 *     another chunk than its own. Items stand segment after segment.
 * P5. With fixed_weights what is computed from weights and states alone stands first, and is kept: it is
 *     computed once, not in every pass.
 */
#pragma once

#include "plan/stages.h"

struct wf_instance {
    const struct wf_value *value;
    int maker; /* item, or -1 */
    int n_uses;
    int last_use;   /* item, or -1 */
    bool recompute; /* recomputed: not the first instance of its value */
    /* What the passes find (planner.h). */
    bool is_fused;       /* not made: its readers compute it (fuse.c) */
    bool is_strip_local; /* there is one strip of it at a time (strips.h) */
    int bucket;          /* of gradients that are summed together (buckets.c), or -1 */
    bool keep;           /* must be readable after the step: an output or the next state */
};

struct wf_item {
    const struct wf_node *node;
    const struct wf_node *wanted_by; /* itself, or the node in front of which it runs again */
    int *in;                         /* instances; -1 for an absent optional input */
    int *out;
    const struct wf_kernel *kernel;
    bool is_for_limit; /* runs again because that was requested */
    int strips;        /* that it runs in (strips.h), or -1 */
    int segment;       /* that it is of (stages.h) */
};

struct wf_program {
    struct wf_item *items;
    int n_items, n_fixed; /* P5: the first so many */
    struct wf_instance *instances;
    int n_instances;
    int *of_value; /* per value id: the instance that an output or state reads; -1: not made */
};

/* A value that is recomputed for a node, and for all that runs again for that node. */
struct wf_recompute {
    int value, node; /* ids */
};

/* Items from one to another one that run in strips (strips.h): each is a node and the node in front
 * of which it runs, ids. */
struct wf_strips_request {
    int first[2], last[2];
};

/* What a search for less memory asks for (fit.h), in the order in which it was found. */
struct wf_requests {
    struct wf_recompute *recompute;
    size_t n_recompute, room_recompute;
    struct wf_strips_request *strips;
    size_t n_strips, room_strips;
};
struct wf_requests wf_requests_copy(struct wf_arena *arena, const struct wf_requests *requests);

struct wf_device;

struct wf_program_options {
    bool cheap_too;                 /* cheap results, wherever that saves memory */
    bool fixed_weights;             /* P5; there is no backward pass */
    const struct wf_device *device; /* whose kernels may be cheap even if the operator is not */
    const struct wf_requests *requests;
    const struct wf_stages *stages;
};

struct wf_program *wf_program_new(struct wf_arena *arena, const struct wf_graph *g,
                                  const struct wf_program_options *options);

/* P5: bytes that are kept for it. */
size_t wf_program_fixed_bytes(const struct wf_graph *g);

/* P3: whether it can be requested by name. */
bool wf_program_may_repeat(const struct wf_value *v);
