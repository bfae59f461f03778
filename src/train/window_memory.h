/*
 * Memory of a rank for images that are computed in windows (exec/stream.h): prediction, and scores of whole images.
 *
 *     struct wf_window_memory m = wf_window_memory(&settings, &launch, device, comm, context);
 *     struct wf_stream_options o = { ... };
 *     ok = wf_window_memory_share(&m, graph, &o, err);        sets limit, keep and keeps_within_limit
 */
#pragma once

#include "exec/stream.h"
#include "train/launch.h"
#include "train/settings.h"

struct wf_window_memory {
    /* Bytes, weights included: memory.limit; without it 1 GiB, or on a GPU what is free; 0: no limit. */
    size_t limit;
    size_t keep;             /* bytes of host memory for results between passes over an image */
    bool keeps_within_limit; /* `keep` is a part of the limit, not of what is free */
};

/* Collective: what is free is shared by the ranks of a machine. */
struct wf_window_memory wf_window_memory(const struct wf_settings *settings,
                                         const struct wf_launch *launch,
                                         const struct wf_device *device, struct wf_comm *comm,
                                         struct wf_context *context);
/* What is left beside the weights and so many bytes more. False: nothing is. */
[[nodiscard]] bool wf_window_memory_share(const struct wf_window_memory *m,
                                          const struct wf_graph *g, size_t beside,
                                          struct wf_stream_options *o, struct wf_err *err);
