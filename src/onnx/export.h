/*
 * A network as an ONNX file, for inference: operator set 18, with open batch and spatial extents.
 *
 *     struct wf_onnx_export e = { .net = net, .weights = find, .user = checkpoint, .shape = { 1, 1, 64, 64, 3 } };
 *     ok = wf_onnx_export(&e, "net.onnx", err);
 *
 * Initialisers have the names of our weights. Batch norm is written with its running statistics, dropout is left
 * out, and so are heads other than the first. Layers that take the extents of another (`like`) become Shape, Slice,
 * Concat and Resize, so the file takes images of any size that the network takes.
 */
#pragma once

#include "net/net.h"

struct wf_onnx_array {
    int rank;
    int64_t shape[5];
    const float *data; /* valid until the next call */
};

struct wf_onnx_export {
    const struct wf_net *net; /* with its channels and classes settled */
    struct wf_shape shape;    /* an image that it takes; only the ranks of results follow from it */
    /* The weight of that name; false with an error where there is none. */
    bool (*weights)(void *user, const char *name, struct wf_onnx_array *a, struct wf_err *err);
    void *user;
    int channels; /* 0: the image is not normalised */
    const double *mean, *deviation;
    int classes; /* 0: their names are not known */
    const char *const *class_names;
};

/* What was written. */
struct wf_onnx_written {
    int64_t nodes, initialisers, bytes;
};

[[nodiscard]] bool wf_onnx_export(const struct wf_onnx_export *e, const char *path,
                                  struct wf_onnx_written *written, struct wf_err *err);
