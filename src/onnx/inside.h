/*
 * What the importer knows while it walks over the nodes of an ONNX graph.
 *
 * A tensor of ONNX becomes a value of one of three kinds:
 *
 *   constant   floats of the file: weights
 *   numbers    few numbers that are known: constants, and all arithmetic on shapes
 *   features   the result of a layer, seen through a view; or a list of them
 *
 * Sizes are free in our networks, but the operators that ONNX uses to handle them (Shape, Gather, Div,
 * Concat, ...) are not. So shapes are followed for a few images at once, of different extents: an extent is a
 * small vector with one number per image (a probe), and arithmetic on it is plain arithmetic. What an
 * expression means is then seen from its numbers: the same for all probes is a constant, the same as the
 * extents of an earlier layer for all probes is `like` that layer. This does not depend on how an exporter
 * writes it.
 *
 *   V1. A layer has the shape N, C, D, H, W, the axes of struct wf_region in this order. Axes that the network
 *       does not have are 1.
 *   V2. A view says which part of which axis of its layer each axis of the ONNX tensor is: a list of atoms,
 *       outermost first. An atom is the digit (index / stride) % size of the index along a layer's axis, so
 *       reshapes and transpositions only move atoms. Atoms of size 1 are not listed, but that of N always is.
 *   V3. A view is plain when it is N, C, and the spatial axes in order, each whole; only layers that a plain
 *       view is of are computed.
 */
#pragma once

#include "base/arena.h"
#include "net/net.h"
#include "onnx/import.h"
#include "onnx/model.h"

enum { WF_ONNX_PROBES = 5, WF_ONNX_ATOMS = 5, WF_ONNX_IN = 64 };

/* The axes of a layer. */
enum wf_onnx_axis_name { WF_ONNX_N, WF_ONNX_C, WF_ONNX_D, WF_ONNX_H, WF_ONNX_W, WF_ONNX_AXES };

/* A number for each probe. */
struct wf_onnx_extent {
    int64_t at[WF_ONNX_PROBES];
};

struct wf_onnx_atom {
    int axis;
    struct wf_onnx_extent stride, size;
};

struct wf_onnx_axis {
    int n;
    struct wf_onnx_atom at[WF_ONNX_ATOMS];
};

struct wf_onnx_view {
    int rank;
    struct wf_onnx_axis axis[WF_ONNX_RANK];
};

/* Floats of the file, or made of them. */
struct wf_onnx_constant {
    const char *name;
    int rank;
    int64_t shape[WF_ONNX_RANK], count;
    const Onnx__TensorProto *proto; /* NULL: computed */
    float *data;                    /* NULL: not read yet */
    struct wf_onnx_constant *next;  /* all of them, for the end */
};

struct wf_onnx_origin {
    bool known;
    int layer, axis; /* the extent is this layer's along this axis */
};

/* Numbers of one value, and of all together: a small file cannot ask for much memory. */
enum { WF_ONNX_NUMBERS = 4096, WF_ONNX_NUMBERS_IN_ALL = 1 << 21 };
struct wf_onnx_numbers {
    bool is_whole; /* division truncates */
    int rank;
    int64_t shape[WF_ONNX_RANK], count;
    double (*at)[WF_ONNX_PROBES];
    struct wf_onnx_origin *from; /* count of them */
};

enum wf_onnx_value_kind { WF_ONNX_CONSTANT, WF_ONNX_NUMBER, WF_ONNX_FEATURES, WF_ONNX_LIST };

struct wf_onnx_value {
    const char *name;
    enum wf_onnx_value_kind kind;
    struct wf_onnx_constant *constant;
    struct wf_onnx_numbers *numbers;
    int layer; /* WF_LAYER_IMAGE, or an index of wf_onnx_import.layers */
    struct wf_onnx_view view;
    struct wf_onnx_value *parts; /* of a list: features */
    int n_parts, list_axis;      /* the axis that they are stacked along */
};

enum { WF_ONNX_WEIGHTS = 4 };
struct wf_onnx_weight {
    const char *part; /* "weight", "bias", ... */
    struct wf_onnx_constant *constant;
};

struct wf_onnx_layer {
    const char *kind, *name; /* name: "" until the end where no weight gives one */
    const Onnx__NodeProto *node;
    const char *shares; /* NULL: its own weights; else the name of the layer that has them */
    int n_in;
    int *in;
    int like;
    struct wf_layer_attrs a;
    struct wf_onnx_extent shape[WF_ONNX_AXES];
    struct wf_onnx_weight weights[WF_ONNX_WEIGHTS];
    int n_weights;
    bool alive;
    int readers;  /* of its result, heads among them; `like` is none */
    int replaced; /* by another layer; WF_LAYER_NONE */
};

struct wf_onnx_import {
    struct wf_arena arena;
    const struct wf_onnx_model *model;
    struct wf_onnx_report *report;
    int dims, probes; /* probes in use; a file with fixed extents has one */
    bool fixed;       /* extents of the image are fixed by the file */
    struct wf_onnx_extent image[WF_ONNX_AXES];
    struct wf_onnx_value **table; /* by name; open addressing */
    size_t n_values, room_values;
    struct wf_onnx_layer *layers;
    size_t n_layers, room_layers;
    struct wf_onnx_constant *constants;
    int64_t n_numbers;            /* of all values so far */
    Onnx__GraphProto **subgraphs; /* that were followed, to be freed */
    size_t n_subgraphs, room_subgraphs;
    int depth; /* of subgraphs */
};

/* --- values --- */

struct wf_onnx_value *wf_onnx_find(const struct wf_onnx_import *im, const char *name);
/* The input, or NULL where it is left out. */
struct wf_onnx_value *wf_onnx_in(const struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                 size_t index);
/* A new value under the name of that output of the node; NULL: nobody can read it. */
struct wf_onnx_value *wf_onnx_out(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                  size_t index);
struct wf_onnx_value *wf_onnx_define(struct wf_onnx_import *im, const char *name);
/* The error of a node: "'net.onnx': node 'x' (Conv, operator set 17): ...". False. */
bool wf_onnx_refuse(const struct wf_onnx_import *im, const Onnx__NodeProto *node,
                    struct wf_err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A line for the user that is no error. */
void wf_onnx_note(struct wf_onnx_import *im, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- extents --- */

struct wf_onnx_extent wf_onnx_extent(int64_t all);
bool wf_onnx_extent_equal(const struct wf_onnx_import *im, struct wf_onnx_extent a,
                          struct wf_onnx_extent b);
bool wf_onnx_extent_is(const struct wf_onnx_import *im, struct wf_onnx_extent a, int64_t value);
/* The shape of a layer or of the image. */
const struct wf_onnx_extent *wf_onnx_shape(const struct wf_onnx_import *im, int layer);
/* The extent of an axis of a view. */
struct wf_onnx_extent wf_onnx_axis_extent(const struct wf_onnx_import *im,
                                          const struct wf_onnx_axis *axis);

/* --- numbers and constants --- */

/* The value as numbers, from small constants too; NULL where it is none. */
const struct wf_onnx_numbers *wf_onnx_numbers(struct wf_onnx_import *im, struct wf_onnx_value *v);
struct wf_onnx_numbers *wf_onnx_numbers_new(struct wf_onnx_import *im, bool is_whole, int rank,
                                            const int64_t shape[]);
/* Element i where it is the same for all probes. */
bool wf_onnx_number_is_fixed(const struct wf_onnx_import *im, const struct wf_onnx_numbers *n,
                             int64_t i, double *value);
/* All as whole numbers, the same for all probes, at most `most`; from the input, or from the attribute that older
 * operator sets have in its place. False where there are none, or they are not fixed. */
bool wf_onnx_ints(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t input,
                  const char *attribute, int most, int *count, int64_t *values);

/* Loaded constant data; false on error. */
[[nodiscard]] bool wf_onnx_load(struct wf_onnx_import *im, struct wf_onnx_constant *c,
                                struct wf_err *err);
struct wf_onnx_constant *wf_onnx_constant_new(struct wf_onnx_import *im, const char *name, int rank,
                                              const int64_t shape[], struct wf_err *err);
/* A constant of an initialiser, or numbers where it has few whole ones. */
[[nodiscard]] bool wf_onnx_initialise(struct wf_onnx_import *im, struct wf_onnx_value *v,
                                      const Onnx__TensorProto *t, struct wf_err *err);
/* The value as a constant of floats, from numbers too; NULL where it is none, or on error. */
struct wf_onnx_constant *wf_onnx_constant(struct wf_onnx_import *im, struct wf_onnx_value *v,
                                          struct wf_err *err);

/* --- views --- */

/* N, C and as many spatial axes as the rank has; a rank of 2 is a vector. */
struct wf_onnx_view wf_onnx_view(const struct wf_onnx_import *im, int layer, int rank);
bool wf_onnx_view_equal(const struct wf_onnx_import *im, const struct wf_onnx_view *a,
                        const struct wf_onnx_view *b);
bool wf_onnx_axis_equal(const struct wf_onnx_import *im, const struct wf_onnx_axis *a,
                        const struct wf_onnx_axis *b);
/* The axis is this one of the layer, whole. */
bool wf_onnx_axis_is(const struct wf_onnx_import *im, const struct wf_onnx_axis *axis, int layer,
                     int which);
/* Joins neighbouring atoms that are neighbours in their axis. */
void wf_onnx_view_normalise(const struct wf_onnx_import *im, struct wf_onnx_view *v);
/* To other extents, as Reshape does; false where the atoms cannot be split so. */
bool wf_onnx_view_reshape(const struct wf_onnx_import *im, const struct wf_onnx_view *from,
                          int rank, const struct wf_onnx_extent extents[], struct wf_onnx_view *to);
bool wf_onnx_is_plain(const struct wf_onnx_import *im, const struct wf_onnx_value *v);
/* Makes the view plain, by layers that move elements where it is not (pixel shuffle, flatten, ...): the
 * layer, or WF_LAYER_NONE on error. */
int wf_onnx_plain(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_onnx_value *v,
                  struct wf_err *err);
/* A vector as a row of positions of one channel, or such a row as a vector. */
int wf_onnx_turn_row(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer);
/* The input as a plain layer; WF_LAYER_NONE on error, also where it is no features. */
int wf_onnx_plain_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t index,
                     struct wf_err *err);

/* --- layers --- */

/* Adds a layer of the shape of its first input; its index. */
int wf_onnx_add(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind,
                const struct wf_layer_attrs *a, int n_in, const int in[]);
/* The first output of the node is this layer, in a plain view of that rank (0: as many axes as the image has). */
bool wf_onnx_done(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer, int rank);
/* The same with a view. */
bool wf_onnx_done_view(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer,
                       const struct wf_onnx_view *view);
/* Gives the layer a weight, and the name of its initialiser where it has none yet. */
void wf_onnx_weight(struct wf_onnx_import *im, int layer, const char *part,
                    struct wf_onnx_constant *c);
/* The name with '_' for what names of layers do not have. */
char *wf_onnx_plain_name(struct wf_onnx_import *im, const char *name);
struct wf_onnx_layer *wf_onnx_layer(const struct wf_onnx_import *im, int layer);
bool wf_onnx_is(const struct wf_onnx_import *im, int layer, const char *kind);

/* --- rules --- */

typedef bool wf_onnx_rule(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_err *err);
struct wf_onnx_rule_row {
    const char *op;
    wf_onnx_rule *rule;
};
/* Each ends with a NULL name. */
extern const struct wf_onnx_rule_row wf_onnx_rules_numbers[], wf_onnx_rules_numbers_move[],
    wf_onnx_rules_conv[], wf_onnx_rules_norm[], wf_onnx_rules_pointwise[], wf_onnx_rules_move[],
    wf_onnx_rules_resize[], wf_onnx_rules_reduce[], wf_onnx_rules_composed[], wf_onnx_rules_parts[];
/* Reshapes and transpositions of constants; `*found`: it was one. */
[[nodiscard]] bool wf_onnx_constant_rule(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                         bool *found, struct wf_err *err);
/* One node, by the rule of its operator. */
[[nodiscard]] bool wf_onnx_node(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                struct wf_err *err);
[[nodiscard]] bool wf_onnx_graph(struct wf_onnx_import *im, const Onnx__GraphProto *g,
                                 struct wf_err *err);

/* What is left when all nodes were read: layers that are used, activations joined to norms, names. */
[[nodiscard]] bool wf_onnx_finish(struct wf_onnx_import *im, int n_heads, const int heads[],
                                  struct wf_net *net, struct wf_err *err);

/* --- shared by rules --- */

/* An input that must be a result; NULL, with the error, where it is none. */
struct wf_onnx_value *wf_onnx_features_in(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                          size_t index, struct wf_err *err);
/* A number that is an input; `fallback` where it is left out. False: it is not known. */
bool wf_onnx_number_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t index,
                       double fallback, double *value);
static const double wf_onnx_open = 1e30; /* what a clip has where it has no bound */
/* The axis of the node's attribute, which must be all channels of the value. */
bool wf_onnx_channel_axis(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          const struct wf_onnx_value *v, int64_t fallback, int *axis,
                          struct wf_err *err);
/* Expand, and Tile of one position: it is copied to the extents of another layer. */
wf_onnx_rule wf_onnx_expand;
/* Adds a mean or largest element along one axis of the layer. */
int wf_onnx_along(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int x,
                  int axis);

/* A float attribute as the decimal number that was meant: 1e-05, not 9.99999974e-06. */
double wf_onnx_tidy(double value);
/* All of the constant's elements are that number. */
bool wf_onnx_constant_is(const struct wf_onnx_constant *c, float value);
/* Another constant with the same data, under a name of its own or the source's (`name` NULL), in another shape. */
struct wf_onnx_constant *wf_onnx_constant_like(struct wf_onnx_import *im, const char *name,
                                               const struct wf_onnx_constant *from, int rank,
                                               const int64_t shape[], struct wf_err *err);
/* `count` times the number. */
struct wf_onnx_constant *wf_onnx_constant_fill(struct wf_onnx_import *im, const char *name,
                                               int64_t count, float value, struct wf_err *err);
/* A copy of a layer without its name, to be given more weights; the original is left out where nobody reads it. */
int wf_onnx_copy(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer);
/* A layer, or the image, whose spatial extents are these (D, H, W) for all probes; WF_LAYER_NONE: none. */
int wf_onnx_layer_like(const struct wf_onnx_import *im, const struct wf_onnx_extent extents[3]);
/* Of rules_matrix.c: a product of two features; a reshape that moves elements, as layers (WF_LAYER_NONE: no rule). */
[[nodiscard]] bool wf_onnx_product(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                   struct wf_err *err);
int wf_onnx_reshaped(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_value *v, int rank, const struct wf_onnx_extent to[]);
/* Where the axis says which of equal parts of the channels: the parts as a list along it, and a vector's softmax over
 * them. False: it says something else. */
bool wf_onnx_unstack(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_value *v, int axis, struct wf_onnx_value *list);
bool wf_onnx_softmax_parts(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                           const struct wf_onnx_value *v, int axis, int *y);
/* Is the axis all elements of a sample? */
bool wf_onnx_is_sample(const struct wf_onnx_import *im, const struct wf_onnx_value *v, int axis);
/* Adds a layer of one input that makes other extents, those of `like`. */
int wf_onnx_add_like(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind,
                     const struct wf_layer_attrs *a, int x, int like);
