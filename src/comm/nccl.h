/*
 * NCCL as a device transport: buffers of GPUs straight to each other, on a stream of its own.
 *
 * It is started over the comm of the run: rank 0's id goes round, all meet. Used where every rank has
 * a GPU to itself, or where the context was told to (struct wf_cuda, carry); ranks that share one are
 * refused by NCCL unless each has its own NCCL_HOSTID. Otherwise no device transport is made, and buffers go
 * through the host.
 */
#ifndef WF_COMM_NCCL_H
#define WF_COMM_NCCL_H

#include "comm/device_transport.h"

struct wf_context;

/* Collective. The slot `device transport` of the CUDA device (plan/target.h). */
[[nodiscard]] bool wf_nccl_device_transport(struct wf_context *context, struct wf_comm *comm,
                                            int count,
                                            struct wf_device_transport **device_transport,
                                            struct wf_err *err);
/* "2.28.3" into `text`. */
void wf_nccl_version(char *text, size_t room);

#endif
