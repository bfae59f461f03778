/*
 * An ONNX graph that is being written: nodes, initialisers, and the names of results.
 *
 *     const char *y = wf_onnx_emit(w, "Relu", NULL, 1, &x);
 *     const char *z = wf_onnx_emit(w, "Softmax", "out", 1, &y);
 *     wf_onnx_put_int(w, "axis", 1);                              of the node that was emitted last
 *
 * Everything lives in the writer's arena. The first error stays; what follows it has no effect.
 */
#pragma once

#include "onnx/export.h"
#include "onnx/model.h"

struct wf_onnx_writer {
    struct wf_arena arena;
    const struct wf_onnx_export *e;
    const struct wf_layer *layer; /* that is being written */
    Onnx__NodeProto **nodes;
    size_t n_nodes, room_nodes;
    Onnx__TensorProto **tensors;
    size_t n_tensors, room_tensors;
    const char **names;             /* of layers' results; index 0: the image */
    bool *vector;                   /* they are [N, C]; the same index */
    struct wf_value *const *values; /* as built for e->shape; the same index */
    int unique;
    struct wf_err err;
};

/* A node; `out` NULL: a new name. The name of its result. */
const char *wf_onnx_emit(struct wf_onnx_writer *w, const char *op, const char *out, int n_in,
                         const char *const in[]);
void wf_onnx_put_int(struct wf_onnx_writer *w, const char *name, int64_t value);
void wf_onnx_put_real(struct wf_onnx_writer *w, const char *name, double value);
void wf_onnx_put_text(struct wf_onnx_writer *w, const char *name, const char *value);
void wf_onnx_put_ints(struct wf_onnx_writer *w, const char *name, int n, const int64_t values[]);

/* Initialisers: of our own, a weight of the layer in its shape, and a weight [C] as [C, 1, 1] of so many axes. */
const char *wf_onnx_floats(struct wf_onnx_writer *w, int rank, const int64_t shape[],
                           const float values[]);
const char *wf_onnx_number(struct wf_onnx_writer *w, double value);
const char *wf_onnx_int_list(struct wf_onnx_writer *w, int n, const int64_t values[]);
const char *wf_onnx_put_weight(struct wf_onnx_writer *w, const char *part);
const char *wf_onnx_put_channels(struct wf_onnx_writer *w, const char *part);
/* `count` elements of one value. */
const char *wf_onnx_fill(struct wf_onnx_writer *w, int64_t count, float value);

/* The result of a layer's input k, or of a layer or the image by its index, as an image; and the extents of one,
 * the spatial ones only. */
const char *wf_onnx_input(struct wf_onnx_writer *w, int k);
const char *wf_onnx_image_of(struct wf_onnx_writer *w, int layer);
const char *wf_onnx_extents_of(struct wf_onnx_writer *w, const char *x);
/* Channels of the layer's first input. */
int64_t wf_onnx_channels(const struct wf_onnx_writer *w);

/* Writes the layer; `vector` is set where the result is [N, C]. NULL where its kind has no form in ONNX. */
typedef const char *wf_onnx_write(struct wf_onnx_writer *w, const char *out, bool *vector);
struct wf_onnx_write_row {
    const char *kind;
    wf_onnx_write *write;
};
extern const struct wf_onnx_write_row wf_onnx_writes_weights[], wf_onnx_writes_pointwise[],
    wf_onnx_writes_shape[], wf_onnx_writes_matrix[]; /* each ends with a NULL kind */
/* The activation of that name on x. */
const char *wf_onnx_write_act(struct wf_onnx_writer *w, const char *act, const char *x,
                              const char *out);
