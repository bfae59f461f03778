/*
 * The program: the graph as the list of things to do, before any rank is looked at.
 *
 * An item runs a node once. Usually each node is one item, but a cheap node (normalise and activate,
 * concatenate, cast) may run several times: its result is thrown away after a use and made again
 * before the next distant one, in the backward pass above all. So a value may exist more than once:
 * each making of it is an instance, and everything later (regions, memory, messages) speaks of
 * instances. Nodes that nothing depends on are left out.
 *
 * P1. An instance is made by exactly one item, before all items that use it; instances of inputs,
 *     parameters and states have no maker.
 * P2. A value is made again only when what it is made from is kept anyway, or is smaller than it.
 */
#ifndef WF_PLAN_PROGRAM_H
#define WF_PLAN_PROGRAM_H

#include "graph/graph.h"

struct wf_instance {
    const struct wf_value *value;
    int maker; /* item, or -1 */
    int n_uses;
    int last_use; /* item, or -1 */
    bool again;   /* made again: not the first instance of its value */
    bool keep;    /* must be readable after the step: an output or the next state */
};

struct wf_item {
    const struct wf_node *node;
    int *in; /* instances; -1 for an absent optional input */
    int *out;
};

struct wf_program {
    struct wf_item *items;
    int n_items;
    struct wf_instance *instances;
    int n_instances;
    int *of_value; /* per value id: the instance that an output or state reads; -1: not made */
};

struct wf_program *wf_program_new(struct wf_arena *arena, const struct wf_graph *g, bool recompute);

#endif
