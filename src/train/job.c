#include "train/job.h"

#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/memory.h"
#include "base/units.h"
#include "ckpt/safetensors.h"
#ifdef WF_HAVE_NCCL
#include "comm/nccl.h"
#endif
#include "comm/watch.h"
#include "train/device.h"
#include "train/domains.h"
#include "train/machine.h"

/* --- size and network --- */

static bool find_size(struct wf_job *job, struct wf_extents *size, struct wf_err *err)
{
    const struct wf_settings *const s = &job->settings;
    const struct wf_extents *const given = &s->data.size, *const crop = &s->data.crop;
    struct wf_extents file = { 0 };
    if (job->files.input && job->model->sparse)
        return wf_job_read_points(job, size, err);
    if (job->files.input && !wf_job_npy_size(job->files.input, &file.count, file.at, err))
        return false;
    if (given->count && !job->files.count) {
        *size = *given;
        if (file.count &&
            (file.count != size->count ||
             memcmp(file.at, size->at, (size_t)size->count * sizeof size->at[0]) != 0)) {
            struct wf_arena arena = { 0 };
            (void)wf_err_set(err, WF_ERR_USAGE,
                             "'%s' is %s, but data.size is %s: leave data.size out",
                             job->files.input, wf_text_extents(&arena, file.count, file.at),
                             wf_text_extents(&arena, given->count, given->at));
            wf_arena_release(&arena);
            return false;
        }
    } else if (file.count) {
        *size = file;
    } else if (job->files.count) {
        size->count = job->files.count;
        memcpy(size->at, job->files.size, sizeof size->at);
    } else if (crop->count) {
        *size =
            (struct wf_extents){ .count = 2 + crop->count,
                                 .at = { wf_settings_batch(s), s->config.in ? s->config.in : 3 } };
        memcpy(size->at + 2, crop->at, (size_t)crop->count * sizeof crop->at[0]);
    } else {
        return wf_err_set(err, WF_ERR_USAGE,
                          "no image size: give data.size as N, C, spatial, such as "
                          "data.size=1,3,256,256");
    }
    return true;
}

static bool network_config(const struct wf_job *job, struct wf_network_config *c,
                           struct wf_err *err)
{
    const struct wf_train_settings *const t = &job->settings.train;
    *c = (struct wf_network_config){
        .model = job->model,
        .config = job->config,
        .losses = t->losses,
        .loss_per_tile = t->loss_per_tile,
        .has_ignore = t->has_ignore,
        .ignore = t->ignore,
        .similarity = t->adapt.similarity,
    };
    if (job->model->sparse) {
        c->capacities = job->capacities;
        c->n_capacities = WF_SETS + 1;
        c->samples = job->samples;
        for (int a = WF_N; a < WF_C; a++)
            c->mesh[a] = job->mesh.at[wf_mesh_axis_of((enum wf_axis)a)];
        c->joins_halos = job->settings.repeats == WF_REPEATS_ON_ANY_MESH;
    }
    if (!wf_settings_compute(&job->settings, job->device, &c->compute, err))
        return false;
    c->starts_from_input =
        c->compute == WF_F16 || t->reduction != WF_REDUCTION_GLOBAL || t->accumulate > 1;
    return true;
}

bool wf_job_network(const struct wf_job *job, struct wf_shape image, bool training,
                    struct wf_network *net, struct wf_err *err)
{
    struct wf_network_config c;
    *net = (struct wf_network){ 0 };
    return network_config(job, &c, err) && wf_network_build(net, &c, image, training, err);
}

bool wf_job_network_rows(const struct wf_job *job, const int64_t capacities[], bool training,
                         struct wf_network *net, struct wf_err *err)
{
    struct wf_network_config c;
    *net = (struct wf_network){ 0 };
    if (!network_config(job, &c, err))
        return false;
    c.capacities = capacities;
    const struct wf_shape rows = WF_SHAPE(capacities[1], 1, 1, 1, job->config.in);
    return wf_network_build(net, &c, rows, training, err);
}

bool wf_job_network_for(const struct wf_job *job, struct wf_shape image, int domain,
                        struct wf_network *net, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_network_config c;
    *net = (struct wf_network){ 0 };
    bool ok = network_config(job, &c, err);
    if (ok && job->model->set_domain) {
        char *const own = wf_arena_array(&arena, job->model->own_bytes, char);
        memcpy(own, c.config.own, job->model->own_bytes);
        job->model->set_domain(own, domain);
        c.config.own = own;
    }
    ok = ok && wf_network_build(net, &c, image, false, err);
    wf_arena_release(&arena);
    return ok;
}

bool wf_job_views(const struct wf_job *job, struct wf_network *net, struct wf_domain_views **views,
                  struct wf_err *err)
{
    struct wf_network_config c;
    *net = (struct wf_network){ 0 };
    return network_config(job, &c, err) &&
           wf_network_build_views(net, &c, job->net.image->shape, views, err);
}

/* What build() takes: images, or rows for all points. */
static struct wf_shape input_shape(const struct wf_job *job, const struct wf_extents *size)
{
    if (!job->model->sparse)
        return wf_extents_shape(size->count, size->at);
    const int64_t points = job->points ? job->points->n : job->samples;
    return WF_SHAPE(wf_max(job->capacities[1], points), 1, 1, 1, size->at[1]);
}

static bool build_network(struct wf_job *job, const struct wf_extents *size, struct wf_err *err)
{
    struct wf_network_config c;
    if (!network_config(job, &c, err) || !wf_network_target(&c, &job->target_kind, err))
        return false;
    const struct wf_shape shape = input_shape(job, size);
    if (!wf_shape_is_valid(shape))
        return wf_err_set(err, WF_ERR_USAGE, "size %s has more elements than can be counted",
                          wf_text_extents(&job->arena, size->count, size->at));
    job->domains = (struct wf_domains){ wf_model_domains(job->model, &job->config),
                                        job->settings.mesh.placement };
    return wf_network_build(&job->net, &c, shape, true, err);
}

/* --- the emulated link --- */

static bool find_link(struct wf_job *job, struct wf_err *err)
{
    const struct wf_comm_settings *const s = &job->settings.comm;
    if (!s->emulate)
        return true;
    if (s->latency <= 0 || s->bandwidth <= 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate needs the figures of the link: comm.latency=25 "
                          "(microseconds) and comm.bandwidth=1.25e9 (bytes a second), say");
    if (!wf_device_is_host(job->device))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate works on the CPU only, not on device '%s'",
                          job->device->name);
    const struct wf_comm *const world = job->launch.world;
    if (world && wf_comm_local_size(world) != wf_comm_size(world))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate needs all ranks on one machine: here are %d of %d",
                          wf_comm_local_size(world), wf_comm_size(world));
    job->link = (struct wf_link_model){ .seconds = s->latency, .bytes_per_second = s->bandwidth };
    if (job->launch.is_root)
        wf_log(job->launch.log, WF_LOG_WARN, "messages between ranks are held back%s",
               wf_job_link_text(&job->arena, job));
    return true;
}

/* With comm.device=auto a run goes on without NCCL, through host memory, which is slow. */
static void warn_of_nccl(const struct wf_job *job)
{
#ifdef WF_HAVE_NCCL
    char text[512];
    if (job->launch.is_root && !wf_device_is_host(job->device) && job->ranks > 1 &&
        job->settings.comm.path == WF_DEVICE_PATH_AUTO && !wf_nccl_about(text, sizeof text))
        wf_log(job->launch.log, WF_LOG_WARN, "GPU buffers go through host memory: %s", text);
#else
    (void)job;
#endif
}

const char *wf_job_link_text(struct wf_arena *arena, const struct wf_job *job)
{
    if (job->link.bytes_per_second <= 0)
        return "";
    return wf_arena_printf(arena, ", emulated link: %s, %s/s",
                           wf_text_seconds(arena, job->link.seconds),
                           wf_text_bytes(arena, job->link.bytes_per_second));
}

/* --- the job --- */

static bool build_again(struct wf_job *job, const struct wf_extents *size, struct wf_err *err)
{
    wf_graph_free(job->net.graph);
    job->net.graph = NULL;
    return build_network(job, size, err);
}

/* The sets that the network makes are known when it is built for its mesh, which is chosen by a network; who has how
 * many points of each after that. So a sparse one is built twice, or three times. */
static bool find_network(struct wf_job *job, const struct wf_extents *size, struct wf_err *err)
{
    const bool sparse = job->model->sparse;
    job->samples = size->at[0];
    if ((sparse && !job->files.measure && !wf_job_make_points(job, size, err)) ||
        !build_network(job, size, err) || !wf_job_find_mesh(job, err))
        return false;
    if (!sparse)
        return true;
    if (job->ranks > 1 && !build_again(job, size, err))
        return false;
    if (!(job->files.measure
              ? job->files.measure(job->files.user, job->net.graph, job->capacities, err)
              : wf_job_deal_points(job, err)))
        return false;
    return build_again(job, size, err);
}

static bool job_init(struct wf_job *job, struct wf_err *err)
{
    struct wf_extents size = { 0 };
    job->device =
        (job->files.on_paper ? wf_settings_plan_device : wf_settings_device)(&job->settings, err);
    if (!job->device || !find_size(job, &size, err) ||
        !wf_machine_figures(&job->launch, &job->settings, job->device, &job->figures, err) ||
        !wf_settings_config(&job->settings, size.count, size.at, &job->config, err) ||
        !find_network(job, &size, err))
        return false;
    const struct wf_plan_options options = wf_job_plan_options(job);
    const struct wf_mesh mesh = wf_job_step_mesh(job);
    if (wf_job_servers(job) && !wf_device_is_host(job->device))
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.sync is %s, which works on the CPU only: use train.sync=allreduce "
                          "on device '%s'",
                          wf_sync_names[job->files.sync], job->device->name);
    if (!find_link(job, err))
        return false;
    warn_of_nccl(job);
    job->global = wf_global_plan_new(job->net.graph, &mesh, &options, err);
    return job->global && (job->files.any_size || wf_job_check_limit(job, job->global, err));
}

struct wf_job *wf_job_new(const struct wf_launch *launch, const struct wf_settings *settings,
                          const struct wf_job_files *files, struct wf_err *err)
{
    struct wf_job *const job = wf_take_zeroed(1, sizeof *job);
    job->launch = *launch;
    job->settings = *settings;
    job->model = settings->model;
    job->files = *files;
    if (!launch->world && wf_comm_slurm_tasks() > 1)
        wf_log(launch->log, WF_LOG_WARN,
               "Slurm gave this job %d tasks, but this is one process: start it with srun, or ask "
               "for one task",
               wf_comm_slurm_tasks());
    bool ok = job_init(job, err) && (!files->weights || wf_job_open_weights(job, err));
    if (ok && !files->weights && !files->begun && settings->weights)
        ok = wf_job_open_start(job, err);
    ok = wf_launch_agree(launch, ok, err) && (!job->weights || wf_job_same_weights(job, err));
    if (ok)
        return job;
    wf_job_free(job);
    return NULL;
}

void wf_job_free(struct wf_job *job)
{
    if (!job)
        return;
    wf_safetensors_free(job->weights);
    wf_global_plan_free(job->global);
    wf_graph_free(job->net.graph);
    wf_figures_free(job->figures);
    wf_arena_release(&job->arena);
    free(job);
}

/* --- what it plans and learns with --- */

/* Between nodes whose network is not described: 400 Gbit/s for each device. */
static const struct wf_links network = { .bytes_per_second = 5e10, .seconds = 20e-6 };

/* What is given, then what was measured, then what the device says (zeros). */
static struct wf_links links_of(const struct wf_job *job)
{
    const struct wf_comm_settings *const comm = &job->settings.comm;
    const struct wf_cluster_settings *const cluster = &job->settings.cluster;
    const struct wf_links *const own = &job->device->cost.links;
    struct wf_links links = { 0 };
    struct wf_figures_link measured;
    if (job->figures && wf_figures_link(job->figures, wf_job_transport(job), &measured)) {
        links.bytes_per_second = measured.bytes_per_second;
        links.seconds = measured.seconds;
    }
    if (cluster->node > 0) {
        links.node_ranks = cluster->node;
        links.node_bytes_per_second =
            cluster->link_bandwidth > 0 ? cluster->link_bandwidth : own->bytes_per_second;
        links.node_seconds = cluster->link_latency > 0 ? cluster->link_latency : own->seconds;
        links.bytes_per_second = network.bytes_per_second;
        links.seconds = network.seconds;
    }
    if (comm->bandwidth > 0)
        links.bytes_per_second = comm->bandwidth;
    if (comm->latency > 0)
        links.seconds = comm->latency;
    return links;
}

const char *wf_job_transport(const struct wf_job *job)
{
    return !wf_device_is_host(job->device) ? "nccl" : job->launch.world ? "mpi" : "threads";
}

struct wf_plan_options wf_job_plan_options(const struct wf_job *job)
{
    const struct wf_settings *const s = &job->settings;
    return (struct wf_plan_options){
        .device = job->device,
        .threads = job->threads,
        .no_recompute = !s->recompute,
        .no_overlap = s->comm.overlap == WF_OVERLAP_NEVER,
        .split_always = s->comm.overlap == WF_OVERLAP_ALWAYS,
        .bucket_bytes = s->comm.bucket,
        .stop = s->comm.stop,
        .limit = s->limit,
        .more = wf_job_optim_bytes(job, wf_plan_trained_count(job->net.graph)) +
                wf_settings_workspace(s, job->device) + job->files.beside,
        .links = links_of(job),
        /* What is measured decides where a plan splits, and so the order of sums. */
        .figures = s->repeats == WF_REPEATS_NEARLY ? job->figures : NULL,
        .tf32 = s->train.precision == WF_PRECISION_TF32,
        .exact = s->repeats == WF_REPEATS_ON_ANY_MESH,
        .ahead = s->train.accumulate <= 1,
        .layout = wf_domains_layout(&job->domains),
        .pipe = { .schedule = s->pipe.schedule,
                  .micro_batches = (int)s->train.accumulate,
                  .keeps_outputs = job->files.keeps_outputs,
                  .cut = s->pipe.cut,
                  .n_cut = s->pipe.n_cut },
    };
}

double wf_job_flops(const struct wf_job *job)
{
    return wf_job_micro_batches(job) * wf_graph_flops(job->net.graph);
}

struct wf_pipe_options wf_job_pipe_like(const struct wf_job *job)
{
    return (struct wf_pipe_options){ .schedule = job->settings.pipe.schedule,
                                     .keeps_outputs = true,
                                     .like = job->net.graph,
                                     .like_stages = &job->global->stages };
}

size_t wf_job_optim_bytes(const struct wf_job *job, size_t count)
{
    return wf_optim_bytes(&job->settings.train.optim, count);
}

size_t wf_job_param_bytes(const struct wf_job *job, const struct wf_plan *plan)
{
    return wf_plan_param_bytes(plan) + wf_job_optim_bytes(job, plan->trained_count);
}

struct wf_learner_options wf_job_learner_options(const struct wf_job *job, struct wf_comm *comm,
                                                 struct wf_optim *optim)
{
    struct wf_scaler scaler = wf_scaler_init(job->net.graph->options.compute == WF_F16);
    if (scaler.dynamic)
        scaler.scale = job->settings.train.loss_scale;
    return (struct wf_learner_options){ .comm = comm,
                                        .optim = optim,
                                        .clip = job->settings.train.clip,
                                        .start = job->net.start,
                                        .scaler = scaler };
}

struct wf_schedule wf_job_schedule(const struct wf_job *job)
{
    const struct wf_train_settings *const t = &job->settings.train;
    const double scale = wf_lr_scale(t->lr_scaling, job->mesh.at[WF_MESH_DATA]);
    struct wf_schedule schedule = t->schedule;
    schedule.lr *= scale;
    schedule.from = scale > 1 ? 1 / scale : 0; /* the rate of one rank */
    return schedule;
}

/* --- running it --- */

struct start {
    const struct wf_job *job;
    wf_rank_body *body;
    void *arg;
    struct wf_watchdog *dog; /* of ranks that are threads */
};

void wf_job_use_threads(const struct wf_job *job)
{
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(job->threads); /* of this thread's teams only */
#else
    (void)job;
#endif
}

static bool start_body(const struct start *start, struct wf_comm *comm, struct wf_err *err)
{
    return wf_comm_set_sums(comm, &start->job->settings.comm.sums, err) &&
           start->body(comm, start->arg, err);
}

static bool start_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct start *const start = arg;
    if (start->dog)
        comm->watch = wf_watchdog_rank(start->dog, wf_comm_rank(comm));
    comm->stop = start->job->settings.comm.stop;
    wf_job_use_threads(start->job);
    if (start->job->link.bytes_per_second <= 0)
        return start_body(start, comm, err);
    struct wf_comm *const slow = wf_comm_link_model(comm, &start->job->link);
    slow->stop = comm->stop;
    const bool ok = start_body(start, slow, err);
    wf_comm_free(slow);
    return ok;
}

bool wf_job_run(struct wf_job *job, wf_rank_body *body, void *arg, struct wf_err *err)
{
    struct start start = { .job = job, .body = body, .arg = arg };
    if (job->launch.world)
        return start_rank(job->launch.world, &start, err);
    const int ranks = job->ranks + wf_job_servers(job);
    if (ranks > 1)
        start.dog = wf_watchdog_new(ranks, 0, &job->settings.comm.watch);
    const bool ok = wf_comm_threads_run(ranks, start_rank, &start, err);
    wf_watchdog_free(start.dog);
    return ok;
}
