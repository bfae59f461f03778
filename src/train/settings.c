#include "train/settings.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/cores.h"

const char *const wf_precision_names[] = { "f32", "bf16", "f16", "tf32", NULL };
const char *const wf_overlap_names[] = { "auto", "never", "always", NULL };
const char *const wf_validate_on_names[] = { "auto", "crop", "whole", NULL };
const char *const wf_repeats_names[] = { "false", "true", "mesh", NULL };
const char *const wf_sync_names[] = { "allreduce", "server", "async", NULL };
const char *const wf_sum_way_names[] = { "auto", "library", "ring", "tree", "nodes", NULL };
const char *const wf_device_transport_names[] = { "auto", "nccl", "host", NULL };

enum { MOST_THREADS = 4096 };

bool wf_settings_config(const struct wf_settings *s, int count, const int64_t size[],
                        struct wf_model_config *config, struct wf_err *err)
{
    *config = s->config;
    if (size) {
        if (config->dims && config->dims != count - 2)
            return wf_err_set(err, WF_ERR_USAGE, "model.dims is %d, but the size has %d spatial %s",
                              config->dims, count - 2, count - 2 == 1 ? "axis" : "axes");
        if (config->in && config->in != size[1])
            return wf_err_set(err, WF_ERR_USAGE,
                              "model.in is %" PRId64 ", but the size has %" PRId64 " channels",
                              config->in, size[1]);
        config->dims = count - 2;
        config->in = size[1];
    }
    return wf_model_resolve(s->model, config, err);
}

int64_t wf_settings_batch(const struct wf_settings *s)
{
    return s->train.batch * (s->train.batch_is_per_rank ? s->mesh.mesh.at[WF_MESH_DATA] : 1);
}

int wf_settings_threads(const struct wf_settings *s, int cores, int ranks)
{
    if (s->threads > 0)
        return s->threads;
    const char *const given = getenv("OMP_NUM_THREADS"); /* "4", or "4,2" for nested teams */
    const long threads = given ? strtol(given, NULL, 10) : 0;
    if (threads > 0 && threads <= MOST_THREADS)
        return (int)threads;
    return (int)wf_max(wf_min(cores / ranks, wf_cores()), 1);
}

struct wf_shape wf_extents_shape(int count, const int64_t size[])
{
    struct wf_shape shape = WF_SHAPE(size[0], 1, 1, 1, size[1]);
    for (int i = 2; i < count; i++)
        shape.at[WF_C - count + i] = size[i];
    return shape;
}
