/* The mesh of a job: what was given, or what the cost model chooses for so many ranks. */
#include <inttypes.h>

#include "base/cores.h"
#include "base/units.h"
#include "train/choose.h"
#include "train/device.h"
#include "train/job.h"

/* Of the mesh and the server; 0: nobody said. */
static bool find_ranks(const struct wf_launch *launch, const struct wf_settings *settings,
                       int *ranks, struct wf_err *err)
{
    *ranks = settings->mesh.ranks;
    if (!launch->world)
        return true;
    const int launched = wf_comm_size(launch->world);
    if (*ranks && *ranks != launched)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "the launcher started %d ranks, but run.ranks (--ranks) is %d: leave one out", launched,
            *ranks);
    *ranks = launched;
    return true;
}

/* Ranks without a sample would only wait. */
static bool check_data_ranks(const struct wf_job *job, struct wf_err *err)
{
    const int64_t samples = job->samples ? job->samples : job->net.image->shape.at[WF_N];
    const int ranks = job->mesh.at[WF_MESH_DATA];
    if (ranks > samples)
        return wf_err_set(err, WF_ERR_FIT,
                          "mesh: %d ranks along data, but the batch has %" PRId64
                          " sample%s: use at most %" PRId64 ", or a larger train.batch",
                          ranks, samples, samples == 1 ? "" : "s", samples);
    if (job->settings.train.batch_is_per_rank && job->ranks > 1 && !job->settings.mesh.is_given)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.batch_is is per_rank, so the batch depends on the mesh: give "
                          "--mesh, such as --mesh data=%d",
                          job->ranks);
    return true;
}

/* A launcher's ranks may be spread over many machines. */
static void find_threads(struct wf_job *job)
{
    job->ranks_here = job->launch.world ? wf_comm_local_size(job->launch.world) : job->ranks;
    job->cores_here = wf_launch_cores(&job->launch);
    job->threads = wf_settings_threads(&job->settings, job->cores_here, job->ranks_here);
}

/* What a mesh for this job is chosen by. */
static struct wf_choose choose_by(const struct wf_job *job)
{
    const size_t params = wf_plan_trained_count(job->net.graph);
    return (struct wf_choose){ .ranks = job->ranks,
                               .limit = job->settings.limit,
                               .domains = job->domains.count > 1 ? &job->domains : NULL,
                               .more = wf_job_optim_bytes(job, params) +
                                       wf_settings_workspace(&job->settings, job->device) +
                                       job->files.beside };
}

/* By the cost model, for the given number of ranks. */
static bool choose_mesh(struct wf_job *job, struct wf_err *err)
{
    const struct wf_plan_options options = wf_job_plan_options(job);
    const struct wf_choose ask = choose_by(job);
    struct wf_choice choice;
    if (!wf_mesh_choose(job->net.graph, &options, &ask, &choice, err))
        return false;
    job->mesh = choice.mesh;
    if (ask.domains)
        job->domains.placement = choice.placement;
    if (choice.tried == 1 && job->launch.is_root)
        wf_log(job->launch.log, WF_LOG_INFO, "mesh %s, the only one for %d ranks",
               wf_mesh_print(&job->arena, &job->mesh), job->ranks);
    else if (job->launch.is_root)
        wf_log(job->launch.log, WF_LOG_INFO,
               "mesh %s, chosen for %d ranks: of %d that were planned, about %s a step, %s a rank",
               wf_mesh_print(&job->arena, &job->mesh), job->ranks, choice.tried,
               wf_text_seconds(&job->arena, choice.seconds),
               wf_text_bytes(&job->arena, (double)choice.bytes));
    return true;
}

bool wf_job_check_limit(const struct wf_job *job, const struct wf_global_plan *global,
                        struct wf_err *err)
{
    const struct wf_choose ask = choose_by(job);
    if (!ask.limit || global->bytes <= ask.limit)
        return true;
    struct wf_arena own = { 0 }, *const arena = &own;
    const struct wf_plan_options options = wf_job_plan_options(job);
    (void)wf_err_set(
        err, WF_ERR_FIT,
        "mesh %s: a rank needs %s with everything recomputed or in strips that can be, and "
        "memory.limit is %s: raise it to %zu, or %s",
        wf_mesh_print(arena, &global->mesh), wf_text_bytes(arena, (double)global->bytes),
        wf_text_bytes(arena, (double)ask.limit), global->bytes,
        /* Capacities are those of this mesh: what another would take is not known before its points are. */
        job->model && job->model->sparse ? "use a smaller train.batch or larger voxels"
                                         : wf_mesh_advice(arena, job->net.graph, &options, &ask));
    wf_arena_release(arena);
    return false;
}

struct wf_mesh wf_job_step_mesh(const struct wf_job *job)
{
    struct wf_mesh mesh = job->mesh;
    if (job->files.sync == WF_SYNC_ASYNC)
        mesh.at[WF_MESH_DATA] = 1;
    return mesh;
}

bool wf_job_find_workers(const struct wf_launch *launch, const struct wf_settings *settings,
                         int *workers, struct wf_err *err)
{
    int ranks;
    if (!find_ranks(launch, settings, &ranks, err))
        return false;
    *workers = settings->mesh.is_given ? settings->mesh.mesh.at[WF_MESH_DATA]
               : ranks > 1             ? ranks - 1
                                       : 1;
    return true;
}

/* With a server all ranks but one go along data, unless the mesh says otherwise. */
static bool find_mesh_with_server(struct wf_job *job, int ranks, struct wf_err *err)
{
    const bool given = job->settings.mesh.is_given;
    job->mesh = given ? job->settings.mesh.mesh : wf_mesh_one();
    if (!given && ranks > 1)
        job->mesh.at[WF_MESH_DATA] = ranks - 1;
    job->ranks = wf_mesh_size(&job->mesh);
    find_threads(job);
    if (job->files.sync == WF_SYNC_ASYNC)
        job->workers = job->mesh.at[WF_MESH_DATA];
    if (ranks && ranks != job->ranks + 1)
        return wf_err_set(err, WF_ERR_FIT,
                          "mesh '%s' and the server need %d ranks, but there are %d: use %s %d",
                          wf_mesh_print(&job->arena, &job->mesh), job->ranks + 1, ranks,
                          job->launch.world ? "mpirun -n" : "--ranks", job->ranks + 1);
    if (job->net.domains > 1)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "train.sync=%s is for networks of one domain: use train.sync=allreduce with "
            "'%s'",
            wf_sync_names[job->files.sync], job->model->name);
    if (job->mesh.at[WF_MESH_PIPE] > 1)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "train.sync=%s is for ranks that have all of the network, and mesh '%s' has "
            "stages: use train.sync=allreduce, or no axis pipe",
            wf_sync_names[job->files.sync], wf_mesh_print(&job->arena, &job->mesh));
    return job->workers > 0 || check_data_ranks(job, err);
}

/* Where domain.placement is auto, by the cost model. */
static bool place_domains(struct wf_job *job, struct wf_err *err)
{
    const struct wf_plan_options options = wf_job_plan_options(job);
    const struct wf_choose ask = choose_by(job);
    struct wf_choice choice;
    if (!wf_mesh_place(job->net.graph, &options, &ask, &job->mesh, &choice, err))
        return false;
    job->domains.placement = choice.placement;
    if (choice.tried > 1 && job->launch.is_root)
        wf_log(job->launch.log, WF_LOG_INFO,
               "domain.placement=%s, chosen of %d that were planned: about %s a step, %s a rank",
               wf_domain_placement_names[choice.placement], choice.tried,
               wf_text_seconds(&job->arena, choice.seconds),
               wf_text_bytes(&job->arena, (double)choice.bytes));
    return true;
}

static bool check_stages(const struct wf_job *job, struct wf_err *err)
{
    const int cuts = job->settings.pipe.n_cut;
    return cuts == 0 || job->mesh.at[WF_MESH_PIPE] > 1 ||
           wf_err_set(err, WF_ERR_USAGE,
                      "pipe.cut: the mesh has no stages: use --mesh pipe=%d, or leave it out",
                      cuts + 1);
}

static bool check_domains(struct wf_job *job, struct wf_err *err)
{
    if (job->net.domains > 1)
        return place_domains(job, err);
    if (job->mesh.at[WF_MESH_DOMAIN] == 1)
        return true;
    const char *const name = job->model ? job->model->name : "a graph of one's own";
    return wf_err_set(
        err, WF_ERR_FIT,
        "mesh: axis domain is for networks of several domains (dsn, dsn_conv), not for "
        "%s: use data and space",
        name);
}

bool wf_job_find_mesh(struct wf_job *job, struct wf_err *err)
{
    const struct wf_mesh_settings *const s = &job->settings.mesh;
    int ranks;
    if (!find_ranks(&job->launch, &job->settings, &ranks, err))
        return false;
    if (wf_job_servers(job))
        return find_mesh_with_server(job, ranks, err);
    if (s->is_given) {
        job->mesh = s->mesh;
        job->ranks = wf_mesh_size(&job->mesh);
        if (ranks && ranks != job->ranks)
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh '%s' has %d ranks, but there are %d: use --mesh auto, or %s %d",
                              wf_mesh_print(&job->arena, &job->mesh), job->ranks, ranks,
                              job->launch.world ? "mpirun -n" : "--ranks", job->ranks);
        find_threads(job);
        return check_data_ranks(job, err) && check_stages(job, err) && check_domains(job, err);
    }
    job->ranks = ranks ? ranks : s->choose ? wf_cores() : 1;
    find_threads(job);
    job->mesh = wf_mesh_one();
    if (job->model && job->model->sparse)
        job->mesh.at[WF_MESH_DATA] = job->ranks;
    return check_data_ranks(job, err) &&
           (job->ranks == 1 || (job->model && job->model->sparse) || choose_mesh(job, err));
}
