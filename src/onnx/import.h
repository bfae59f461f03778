/*
 * A network from an ONNX file.
 *
 *     struct wf_onnx_report report = { 0 };
 *     struct wf_net *net = wf_onnx_import("net.onnx", NULL, &report, err);
 *     ok = net && wf_onnx_write_weights(&report, "weights.safetensors", err);
 *     wf_net_free(net);
 *     wf_onnx_report_release(&report);
 *
 * Operators of ONNX become layers by rules; one without a rule is refused with its node. Layers have the names
 * of their weights in the file without ".weight", so that weights keep the names that PyTorch gave them.
 */
#pragma once

#include "base/arena.h"
#include "net/net.h"

struct wf_onnx_tensor {
    const char *name; /* "encoder.conv1.weight" */
    int rank;
    int64_t shape[8];
    float *data;
};

/* What an import gives beside the network. */
struct wf_onnx_report {
    struct wf_arena arena;
    struct wf_onnx_tensor *tensors;
    size_t n_tensors, room_tensors;
    const char **notes; /* for the user: batch norm was folded, outputs were left out, ... */
    size_t n_notes, room_notes;
    const char *producer;
    int64_t opset;
    int64_t nodes;
    int64_t fixed[5]; /* N, C, D, H, W of the image where the file fixes its extents; 0: free */
};

/* `outputs`: names of outputs, separated by commas, the prediction first; NULL: the first one. NULL on error. */
struct wf_net *wf_onnx_import(const char *path, const char *outputs, struct wf_onnx_report *report,
                              struct wf_err *err);
/* A file in memory. */
struct wf_net *wf_onnx_import_memory(const char *name, const void *bytes, size_t size,
                                     const char *outputs, struct wf_onnx_report *report,
                                     struct wf_err *err);
[[nodiscard]] bool wf_onnx_write_weights(const struct wf_onnx_report *report, const char *path,
                                         struct wf_err *err);
void wf_onnx_report_release(struct wf_onnx_report *report);
