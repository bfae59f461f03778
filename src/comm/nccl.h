/*
 * NCCL as a device transport: copies between GPU buffers directly, on a separate stream.
 *
 * It is started over the comm of the run: rank 0 broadcasts its id, and all ranks connect. Used if
 * every rank has its own GPU and the library is there, or if the context requests it (struct wf_cuda, path); NCCL refuses
 * ranks that share a GPU unless each has its own NCCL_HOSTID. Otherwise there is no device
 * transport, and buffers go through the host.
 */
#pragma once

#include "comm/device_transport.h"

struct wf_context;

/* Collective. The slot `transport` of the CUDA device (plan/target.h). */
[[nodiscard]] bool wf_nccl_device_transport(struct wf_context *context, struct wf_comm *comm,
                                            int count, struct wf_device_transport **transport,
                                            struct wf_err *err);
/* "2.28.3, /usr/lib/libnccl.so.2", or false with what to install. */
bool wf_nccl_about(char *text, size_t room);
