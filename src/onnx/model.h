/*
 * An ONNX file: its messages, and the numbers of its constants.
 *
 *     struct wf_onnx_model *m = wf_onnx_model_open("net.onnx", err);
 *     ... m->proto->graph->node[0]->op_type ...
 *     wf_onnx_model_free(m);
 *
 * Opening unpacks the file and checks what every reader relies on: a graph, operator sets 13 to 21, no texts
 * or messages that are missing where ONNX demands them. Constants are read on request; their shape is checked
 * against their bytes first, so nothing is allocated that the file does not have. Data in other files is read
 * only from the folder of the model.
 */
#pragma once

#include "base/err.h"
#include "onnx.pb-c.h"

enum { WF_ONNX_RANK = 8, WF_ONNX_OPSET_MIN = 13, WF_ONNX_OPSET_MAX = 21 };

/* TensorProto.data_type. */
enum wf_onnx_type {
    WF_ONNX_FLOAT = 1,
    WF_ONNX_UINT8,
    WF_ONNX_INT8,
    WF_ONNX_UINT16,
    WF_ONNX_INT16,
    WF_ONNX_INT32,
    WF_ONNX_INT64,
    WF_ONNX_STRING,
    WF_ONNX_BOOL,
    WF_ONNX_FLOAT16,
    WF_ONNX_DOUBLE,
    WF_ONNX_UINT32,
    WF_ONNX_UINT64,
    WF_ONNX_BFLOAT16 = 16,
};

struct wf_onnx_model {
    char *path, *folder; /* folder NULL: a file in memory, which has no neighbours */
    Onnx__ModelProto *proto;
    int64_t opset;
};

struct wf_onnx_model *wf_onnx_model_open(const char *path, struct wf_err *err);
/* A file in memory; `path` is for messages. */
struct wf_onnx_model *wf_onnx_model_parse(const char *path, const void *bytes, size_t size,
                                          struct wf_err *err);
void wf_onnx_model_free(struct wf_onnx_model *m);

/* A subgraph of a node, to be freed by onnx__graph_proto__free_unpacked(g, NULL); NULL on error. */
Onnx__GraphProto *wf_onnx_subgraph(const struct wf_onnx_model *m, const Onnx__AttributeProto *a,
                                   struct wf_err *err);

bool wf_onnx_type_is_float(int type);
bool wf_onnx_type_is_whole(int type); /* integers and bool */

/* Rank and extents are sane: at most WF_ONNX_RANK, none negative, the product fits. */
[[nodiscard]] bool wf_onnx_tensor_count(const struct wf_onnx_model *m, const Onnx__TensorProto *t,
                                        int64_t *count, struct wf_err *err);
/* All elements, to be freed, after a check that the file has exactly as many: rounded to f32, or as f64. */
[[nodiscard]] bool wf_onnx_tensor_floats(const struct wf_onnx_model *m, const Onnx__TensorProto *t,
                                         float **values, struct wf_err *err);
[[nodiscard]] bool wf_onnx_tensor_numbers(const struct wf_onnx_model *m, const Onnx__TensorProto *t,
                                          double **values, struct wf_err *err);

/* The attribute of that name, or NULL. */
const Onnx__AttributeProto *wf_onnx_attr(const Onnx__NodeProto *node, const char *name);
int64_t wf_onnx_attr_int(const Onnx__NodeProto *node, const char *name, int64_t fallback);
double wf_onnx_attr_real(const Onnx__NodeProto *node, const char *name, double fallback);
/* Copies a text of at most `room` - 1 bytes; `fallback` where there is none. */
const char *wf_onnx_attr_text(const Onnx__NodeProto *node, const char *name, const char *fallback,
                              char *text, size_t room);
