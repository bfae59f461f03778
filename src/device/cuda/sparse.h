/* Sparse tensors on a GPU, as C sees them: the coordinate pass (sparse_map.cu), products of rows by tensor cores
 * (sparse_panels_*.cu, in f32 sparse_words_*.cu) and of any kind (sparse_plain.cu). Used as the kernels of kernels.h are. */
#pragma once

#include "ops/sparse.h"
#include "plan/target.h"

#ifdef __cplusplus
extern "C" {
#endif

bool wf_cuda_coords_stride_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_coords_stride(const struct wf_call *call);
bool wf_cuda_kernel_map_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_kernel_map(const struct wf_call *call);
bool wf_cuda_map_order_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_map_order(const struct wf_call *call);

/* In builds for compute capability 9.0: 16 bits, whole pieces of 16 bytes, not too many offsets. */
bool wf_cuda_rows_fit(const struct wf_node *node);
bool wf_cuda_rows_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_rows_conv(const struct wf_call *call);
bool wf_cuda_rows_wgrad_fit(const struct wf_node *node);
bool wf_cuda_rows_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_rows_wgrad(const struct wf_call *call);

/* f32, whole pieces of 16 bytes, not too many offsets; prepared as the former. */
bool wf_cuda_words_fit(const struct wf_node *node);
void wf_cuda_words_conv(const struct wf_call *call);
bool wf_cuda_words_wgrad_fit(const struct wf_node *node);
bool wf_cuda_words_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_words_wgrad(const struct wf_call *call);

/* Few channels, a large kernel: the map is not made. */
bool wf_cuda_rows_stem_fit(const struct wf_node *node);
bool wf_cuda_rows_stem_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_rows_stem(const struct wf_call *call);
bool wf_cuda_rows_stem_wgrad_fit(const struct wf_node *node);
bool wf_cuda_rows_stem_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_rows_stem_wgrad(const struct wf_call *call);

/* Each row with itself, by few filters. */
bool wf_cuda_rows_head_fit(const struct wf_node *node);
void wf_cuda_rows_head_conv(const struct wf_call *call);
bool wf_cuda_rows_head_wgrad_fit(const struct wf_node *node);
bool wf_cuda_rows_head_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_rows_head_wgrad(const struct wf_call *call);

void wf_cuda_sparse_conv(const struct wf_call *call);
bool wf_cuda_sparse_wgrad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_sparse_wgrad(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
