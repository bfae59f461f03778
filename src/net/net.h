/*
 * A network as a list of layers without sizes: what a network file holds, what ONNX files and PyTorch modules
 * become, what is drawn and exported. A built-in network is recorded as one.
 *
 *     struct wf_net *net = wf_net_new("tiny", 2, 3);
 *     int x = wf_net_add(net, &(struct wf_layer){ .name = "first", .kind = wf_layer_kind("conv"), .n_in = 1,
 *                                                 .in = (int[]){ WF_LAYER_IMAGE },
 *                                                 .a = { .out = 8, .kernel = { 1, 3, 3 }, .pad_lo = ... } });
 *     ok = wf_net_check(net, err);
 *     logits = wf_net_build(graph, net, image);
 *     wf_net_free(net);
 *
 * Layers are in execution order. A layer's inputs are indices of earlier ones, or WF_LAYER_IMAGE. Extents come
 * from the image when the graph is built: an attribute never holds a size that follows from it; a layer that
 * needs the extents of another result says `like`. Triples are { d, h, w }; along axes that the network does
 * not have (dims < 3) kernels, strides and dilations are 1 and paddings 0.
 */
#pragma once

#include "base/arena.h"
#include "graph/graph.h"

enum { WF_LAYER_IMAGE = -1, WF_LAYER_NONE = -2 };

/* Channels as many as the job has classes. */
enum { WF_LAYER_CLASSES = -1 };

/* Attributes of all kinds; each kind reads those that its row in the table of kinds names, and a file may give
 * no others. Zero is the default, as in the builder (widefield_graph.h). */
struct wf_layer_attrs {
    int64_t out; /* channels, or WF_LAYER_CLASSES; of a head 0 means that, too */
    int64_t kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3], output_pad[3], tiles[3];
    int64_t pad_mode;  /* enum wf_pad_mode */
    int64_t groups;    /* 0: 1 */
    int64_t bias;      /* 0 or 1 */
    int64_t ceil;      /* poolings: a last window that only begins inside counts */
    int64_t count_pad; /* average pooling: zeros of the padding count; 0: they do not */
    int64_t act;       /* of a norm: enum wf_act behind it */
    int64_t plain;     /* of a norm: no weight and bias */
    int64_t over;      /* of a batch norm in training: enum wf_layer_over, its statistics */
    int64_t align;     /* of fit: enum wf_layer_align */
    int64_t mode;      /* of a resampling: enum wf_upsample_mode */
    int64_t size[3];   /* of a resampling or adaptive pooling: extents; 0: by `scale`, or `like` */
    int64_t from,
        to; /* of a slice: along `axis`, from .. to - 1; negative: from the end; to 0: the end */
    int64_t axis;    /* enum wf_layer_axis */
    int64_t form;    /* enum wf_matmul_form */
    int64_t shared;  /* prelu: one weight for all channels */
    double scale[3]; /* of a resampling: result / source; 0: 1 */
    double eps, momentum, slope, p, offset, lo, hi;
    double factor; /* also of a pixel shuffle: positions along each axis */
};
enum wf_layer_axis { WF_LAYER_CHANNELS, WF_LAYER_DEPTH, WF_LAYER_HEIGHT, WF_LAYER_WIDTH };
enum wf_layer_over { WF_LAYER_OVER_BATCH, WF_LAYER_OVER_TILE, WF_LAYER_OVER_RANK };
enum wf_layer_align { WF_LAYER_CENTRE, WF_LAYER_START, WF_LAYER_CUT_END }; /* enum wf_fit_align */

/* How an attribute is written in a file, and where it is in the structure. */
enum wf_layer_attr_type {
    WF_ATTR_INT,
    WF_ATTR_INTS, /* one for all axes of the network, or a list with one for each */
    WF_ATTR_REAL,
    WF_ATTR_REALS,
    WF_ATTR_BOOL,
    WF_ATTR_NAME,
    WF_ATTR_OUT, /* a number, or `classes` */
    WF_ATTR_PAD, /* as INTS, or `same`, or a list of [before, behind] */
};
struct wf_layer_attr {
    const char *name, *what;
    enum wf_layer_attr_type type;
    size_t offset;
    const char *const *names; /* NAME */
    double least, most;       /* numbers */
};
extern const struct wf_layer_attr wf_layer_attr_table[]; /* ends with a NULL name */
/* NULL: there is none. */
const struct wf_layer_attr *wf_layer_attr(const char *name);

struct wf_layer {
    const char *name; /* unique; the dotted path of its weights */
    const struct wf_layer_kind *kind;
    const char *weights; /* the path of another layer's weights, which it shares; NULL: its own */
    bool frozen;         /* its weights are not trained */
    int n_in;
    const int *in;
    int like; /* the result takes the extents of this layer's, or the image's; WF_LAYER_NONE */
    struct wf_layer_attrs a;
    int line, column; /* where a file has it; 0: nowhere */
};

/* A result that is used. The first head is the prediction; further ones have a loss of their own, which is
 * added with their weight (deep supervision, auxiliary classifiers), and are not predicted. */
struct wf_net_head {
    int layer;
    double weight;
};

struct wf_net {
    struct wf_arena arena;
    const char *name, *path; /* path: the file it was read from; NULL: none */
    int dims;
    int64_t in;      /* channels of the image; 0: the job says it */
    int64_t classes; /* what `out: classes` is; 0: the job says it */
    int64_t size[3]; /* extents (D, H, W) of an image that it takes, for trials; 0: not known */
    struct wf_layer *layers;
    int n_layers;
    struct wf_net_head *heads;
    int n_heads;
    size_t room_layers, room_heads;
};

/* What a layer of a kind is: the builder's functions by name. `const struct wf_layer_kind wf_layer_kind_NAME` in
 * net/kinds*.c; the build collects them. */
struct wf_layer_kind {
    const char *name, *what;
    int n_in;          /* exactly; negative: that many or more; 0: one */
    const char *takes; /* names of attributes, separated by spaces: "out kernel stride pad bias" */
    const char *needs; /* those that must be given */
    bool takes_like;
    const char *weights; /* last parts of the names of its weights: "weight bias"; NULL: none */
    struct wf_value *(*build)(struct wf_graph *g, const struct wf_net *net,
                              const struct wf_layer *l, struct wf_value *const in[],
                              const struct wf_value *like);
};
extern const struct wf_layer_kind
    *const wf_layer_kinds[]; /* by name; ends with NULL; made by the build */
/* Is the word one of those in `list`, which spaces separate? NULL is an empty list. */
bool wf_layer_word_in(const char *list, const char *word);
/* NULL: there is none. */
const struct wf_layer_kind *wf_layer_kind(const char *name);
/* The extents that `like` or `size` say; false, with the graph's error, where neither is given. */
[[nodiscard]] bool wf_layer_extents(struct wf_graph *g, const struct wf_layer *l,
                                    const struct wf_value *like, int64_t extents[3]);
/* The layer of a kind that has an activation's name (kinds.c). */
struct wf_value *wf_layer_build_act(struct wf_graph *g, const struct wf_net *net,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *like);

struct wf_net *wf_net_new(const char *name, int dims, int64_t in);
void wf_net_free(struct wf_net *net);
/* Copies the layer with its texts; its index. */
int wf_net_add(struct wf_net *net, const struct wf_layer *layer);
void wf_net_add_head(struct wf_net *net, int layer, double weight);
/* The index of the layer of that name, or WF_LAYER_NONE. */
int wf_net_find(const struct wf_net *net, const char *name);
/* Names, numbers of inputs, order, heads. */
[[nodiscard]] bool wf_net_check(const struct wf_net *net, struct wf_err *err);

/* A network file in YAML or JSON; errors have path, line and column. `text` is read under the name `path`. */
[[nodiscard]] struct wf_net *wf_net_read(const char *path, struct wf_err *err);
[[nodiscard]] struct wf_net *wf_net_parse(const char *text, const char *path, struct wf_err *err);
/* As YAML, which wf_net_parse() reads back to the same network. */
char *wf_net_print(struct wf_arena *arena, const struct wf_net *net);

/* "net.yaml:7:5: layer 'up'", for messages. */
const char *wf_layer_place(struct wf_arena *arena, const struct wf_net *net,
                           const struct wf_layer *l);

/* For build(): the channels that it makes, and the path of its weights. */
int64_t wf_layer_out(const struct wf_net *net, const struct wf_layer *l);
const char *wf_layer_weights(const struct wf_layer *l);

/* Adds the layers on an image and returns the result of the first head; `heads`, where not NULL, receives all.
 * Layers that lead to no wanted head are left out. */
struct wf_value *wf_net_build(struct wf_graph *g, const struct wf_net *net, struct wf_value *image,
                              struct wf_value *heads[]);
/* The shape of each layer's result on such an image; zeros where it leads to no head. */
[[nodiscard]] bool wf_net_shapes(const struct wf_net *net, struct wf_shape image,
                                 struct wf_shape shapes[], struct wf_err *err);
