/* Operators on sparse tensors beside convolution, as C sees them: sparse_pool.cu, sparse_sets.cu. Used as the
 * kernels of kernels.h are. */
#pragma once

#include "ops/sparse_ops.h"
#include "plan/target.h"

#ifdef __cplusplus
extern "C" {
#endif

void wf_cuda_sparse_pool(const struct wf_call *call);
void wf_cuda_sparse_pool_grad(const struct wf_call *call);
bool wf_cuda_samples_prepare(struct wf_prepare *p, struct wf_err *err); /* sums, max */
void wf_cuda_sample_sums(const struct wf_call *call);
void wf_cuda_sample_max(const struct wf_call *call);
void wf_cuda_sample_max_grad(const struct wf_call *call);
void wf_cuda_sample_rows(const struct wf_call *call);
void wf_cuda_sample_take(const struct wf_call *call);
void wf_cuda_sample_take_grad(const struct wf_call *call);

bool wf_cuda_coords_set_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_coords_union(const struct wf_call *call);
void wf_cuda_coords_prune(const struct wf_call *call);
void wf_cuda_coords_expand(const struct wf_call *call);
void wf_cuda_corner_map(const struct wf_call *call);
void wf_cuda_sparse_mix(const struct wf_call *call);
bool wf_cuda_sparse_mix_grad_prepare(struct wf_prepare *p, struct wf_err *err);
void wf_cuda_sparse_mix_grad(const struct wf_call *call);
void wf_cuda_rows_to_grid(const struct wf_call *call);
void wf_cuda_grid_to_rows(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
