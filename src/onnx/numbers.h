/* What operators on numbers that are known share. */
#pragma once

#include "onnx/inside.h"

typedef const struct wf_onnx_numbers wf_onnx_nums;

wf_onnx_nums *wf_onnx_nums_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t i);
struct wf_onnx_numbers *wf_onnx_nums_out(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                         size_t index, struct wf_onnx_numbers *n);
bool wf_onnx_nums_too_many(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                           struct wf_err *err);
bool wf_onnx_nums_unknown(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_err *err);
void wf_onnx_nums_copy(struct wf_onnx_numbers *to, int64_t i, wf_onnx_nums *from, int64_t k);
int64_t wf_onnx_nums_axis(int64_t axis, int rank);
/* Elements behind one step along each axis. */
void wf_onnx_nums_strides(int rank, const int64_t shape[], int64_t stride[]);
/* The element of `from` that broadcasts to element i of a result of that shape. */
int64_t wf_onnx_nums_index(int rank, const int64_t shape[], int64_t i, wf_onnx_nums *from);
bool wf_onnx_nums_shape(wf_onnx_nums *a, wf_onnx_nums *b, int *rank, int64_t shape[]);
