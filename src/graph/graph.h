/*
 * The graph: what is computed, for the whole image, independent of ranks.
 *
 * Values are tensors, nodes are operators. Nodes are in execution order; a node reads only values
 * that were produced before it. Everything lives in the graph's arena and is borrowed by its users;
 * wf_graph_free() frees all of it.
 *
 * How it is built, and what a program sees of it, is widefield_graph.h; this is what it is made of.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "tensor/dtype.h"
#include "tensor/region.h"
#include "widefield_graph.h"

struct wf_op;
struct wf_node;

enum wf_value_kind {
    WF_TEMP,  /* produced by a node */
    WF_INPUT, /* set for each step */
    WF_PARAM, /* trained; whole on every rank */
    WF_STATE, /* kept from step to step but not trained: running statistics */
};

enum wf_init {
    WF_INIT_ZERO,
    WF_INIT_ONE,
    WF_INIT_UNIFORM, /* within +-init_bound */
    WF_INIT_VALUE    /* init_bound */
};

struct wf_value {
    int id; /* index in graph->values */
    enum wf_value_kind kind;
    const char *name; /* dotted path; of the producer for temporaries, never NULL */
    enum wf_dtype dtype;
    struct wf_shape shape;
    /* No axis is cut: every rank holds all of it, as of a weight. */
    bool replicated;
    /* Rows of a sparse tensor, along N: of each rank's part only the first are there, as many as the
     * graph's `rows` says at this index (ops/sparse.h). 0: dense, all of it is there. */
    int set;
    /* One element for each rank: its extents along N, D, H, W are those of the mesh along data and space. */
    bool per_rank;
    bool frozen; /* a parameter without gradient */
    /* The axes in files (tensor/border.h): -1: [C]; 0: [N, C]; 1, 2, 3: [N, C, *spatial]. */
    int border_dims;
    enum wf_init init;
    double init_bound;
    struct wf_node *producer; /* NULL unless WF_TEMP */
    /* After wf_graph_grad(): a parameter and its gradient point at each other. */
    struct wf_value *grad, *grad_of;
};

struct wf_node {
    int id; /* index in graph->nodes */
    const struct wf_op *op;
    const char *name;
    const void *attrs; /* op->attr_bytes of them */
    int n_in, n_out;
    struct wf_value **in; /* an optional input may be NULL */
    struct wf_value **out;
    bool backward; /* appended by reverse mode */
    /* Backward: the id of the node whose gradient it is for; -1: of none. */
    int of;
    /* For the mesh axis domain: nodes of domain 1, 2, ... may run on other ranks than the rest
     * (plan/layout.h); 0: of none. */
    int domain;
};

/* After a step `state` takes the value of `next`. */
struct wf_state_update {
    struct wf_value *state, *next;
};

struct wf_graph {
    struct wf_arena arena;
    struct wf_graph_options options;
    struct wf_value **values;
    size_t n_values, room_values;
    struct wf_node **nodes;
    size_t n_nodes, room_nodes;
    struct wf_state_update *updates;
    size_t n_updates, room_updates;
    /* Values that must be readable when the step has ended (loss, predictions, gradients). */
    struct wf_value **outputs;
    size_t n_outputs, room_outputs;
    bool in_backward;                  /* nodes added now belong to the backward pass */
    int domain;                        /* of nodes added now; gradients take that of their node */
    const struct wf_node *gradient_of; /* nodes added now are of its gradient; NULL: of none */
    struct wf_value *rows;             /* how many rows each set has; NULL: all values are dense */
    int n_sets;
    const int64_t *capacities; /* per set: rows of all ranks together, 0: not known; borrowed */
    int n_capacities;
    int64_t samples; /* of the batch whose points are rows; 0: 1 */
    /* Ranks along data and space (D, H, W) between which points are cut (ops/halo.h); 0: 1. */
    int64_t mesh[WF_C];
    /* Convolutions of points add up a rank's rows and others' in one order, so that results do not depend on the mesh:
     * slower, for they wait for those of others. */
    bool joins_halos;
    /* Builders whose amounts follow from extents note so (ops/build.h), where it is wanted. */
    bool takes_notes;
    struct wf_size_note *notes; /* newest first */
    struct wf_err err;          /* the first failure */
};

struct wf_param_spec {
    const char *name;
    struct wf_shape shape;
    int border_dims;
    enum wf_init init;
    double init_bound;
    bool frozen;
};
/* A parameter or state of that name; the same name again gives the same value (shared weights),
 * and another shape is an error. f32. */
struct wf_value *wf_param(struct wf_graph *g, const struct wf_param_spec *spec);
struct wf_value *wf_state(struct wf_graph *g, const struct wf_param_spec *spec);

/* An input of rows of a set: [capacity, 1, 1, 1, C]. wf_set_new() numbers a new set, 0 on error. */
enum { WF_SETS = 63 };
int wf_set_new(struct wf_graph *g);
struct wf_value *wf_input_rows(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                               struct wf_shape shape, int set);

/* Append a node; `attrs` is copied. Runs the operator's shape inference. Returns NULL on failure
 * and when a required input is NULL. */
struct wf_node *wf_node_add(struct wf_graph *g, const struct wf_op *op, const char *name,
                            const void *attrs, int n_in, struct wf_value *const in[]);
/* One update per state: the last one counts. A layer that is used twice continues from the update
 * of the first use, wf_graph_next_state(), which is the state itself if nothing updates it yet. */
void wf_graph_update_state(struct wf_graph *g, struct wf_value *state, struct wf_value *next);
struct wf_value *wf_graph_next_state(const struct wf_graph *g, struct wf_value *state);
/* Makes `grad` the gradient of `param`: an output, named "grad.<name>" for display only. */
void wf_graph_link_grad(struct wf_graph *g, struct wf_value *param, struct wf_value *grad);

/* A new graph with the nodes that `outputs` need, their only outputs; no state is updated. The
 * values in `given` are inputs of it, "given.<index>", and their producers are left out. map[id] is
 * the counterpart of g's value, or NULL; it has room for g->n_values. */
struct wf_cut {
    int n_given, n_outputs;
    struct wf_value *const *given, *const *outputs;
};
struct wf_graph *wf_graph_cut(const struct wf_graph *g, const struct wf_cut *cut,
                              struct wf_value *map[]);

/* The text form, one line per input, parameter, state, node, update and output; and back. */
char *wf_graph_print(struct wf_arena *arena, const struct wf_graph *g);
struct wf_graph *wf_graph_parse(const char *text, struct wf_err *err); /* NULL on error */
