/* How the ranks of a job talk, by the options comm.*. */
#include <cjson/cJSON.h>

#include "cli/bench.h"
#include "cli/job.h"
#include "cli/text.h"

struct wf_sum_options wf_job_sum_options(const struct wf_options *o)
{
    return (struct wf_sum_options){
        .way = (enum wf_sum_way)wf_options_int(o, "comm.allreduce"),
        .sent_dtype = wf_options_int(o, "comm.precision") ? WF_BF16 : WF_F32,
        .node_ranks =
            wf_options_is_set(o, "comm.node_ranks") ? (int)wf_options_int(o, "comm.node_ranks") : 0,
    };
}

bool wf_job_find_link(struct wf_job *job, struct wf_err *err)
{
    const struct wf_options *const o = job->cli->options;
    if (!wf_options_int(o, "comm.emulate"))
        return true;
    if (!wf_options_is_set(o, "comm.latency") || !wf_options_is_set(o, "comm.bandwidth"))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate needs the figures of the link: comm.latency=25 "
                          "(microseconds) and comm.bandwidth=1.25e9 (bytes a second), say");
    if (!wf_device_is_host(job->device))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate works on the CPU only, not on device '%s'",
                          job->device->name);
    const struct wf_comm *const world = job->cli->world;
    if (world && wf_comm_local_size(world) != wf_comm_size(world))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate needs all ranks on one machine: here are %d of %d",
                          wf_comm_local_size(world), wf_comm_size(world));
    job->link.seconds = 1e-6 * wf_options_real(o, "comm.latency");
    job->link.bytes_per_second = (double)wf_options_int(o, "comm.bandwidth");
    if (job->cli->is_root)
        wf_log(&job->cli->log, WF_LOG_WARN, "messages between ranks are held back%s",
               wf_job_link_text(&job->arena, job));
    return true;
}

const char *wf_job_link_text(struct wf_arena *arena, const struct wf_job *job)
{
    if (job->link.bytes_per_second <= 0)
        return "";
    return wf_arena_printf(arena, ", emulated link: %s, %s/s",
                           wf_text_seconds(arena, job->link.seconds),
                           wf_text_bytes(arena, job->link.bytes_per_second));
}

void wf_job_add_link(const struct wf_job *job, cJSON *json)
{
    if (job->link.bytes_per_second <= 0)
        return;
    cJSON *const link = cJSON_AddObjectToObject(json, "emulated_link");
    (void)cJSON_AddNumberToObject(link, "latency_us", 1e6 * job->link.seconds);
    (void)cJSON_AddNumberToObject(link, "bytes_per_s", job->link.bytes_per_second);
}

bool wf_job_over_link(const struct wf_job *job, struct wf_comm *comm, wf_rank_body *body, void *arg,
                      struct wf_err *err)
{
    if (job->link.bytes_per_second <= 0)
        return body(comm, arg, err);
    struct wf_comm *const slow = wf_comm_link_model(comm, &job->link);
    const bool ok = body(slow, arg, err);
    wf_comm_free(slow);
    return ok;
}
