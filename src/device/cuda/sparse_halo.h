/* Rows that travel between ranks (ops/halo.h), as C sees them: sparse_halo.cu. Used as the kernels of kernels.h are. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#include "ops/halo.h"
#include "plan/target.h"

bool wf_cuda_halo_prepare(struct wf_prepare *p, struct wf_err *err); /* list, merge */
void wf_cuda_halo_list(const struct wf_call *call);
void wf_cuda_halo_merge(const struct wf_call *call);
void wf_cuda_rows_gather(const struct wf_call *call);
void wf_cuda_rows_scatter(const struct wf_call *call);

#ifdef __cplusplus
}
#endif
