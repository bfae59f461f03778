/* The mesh of a job: what was given, or what the cost model chooses for so many ranks. */
#include <inttypes.h>

#include "base/units.h"
#include "cli/device.h"
#include "cli/job.h"
#include "cli/once.h"

static struct wf_mesh given_mesh(const struct wf_options *o)
{
    struct wf_mesh mesh = wf_mesh_one();
    mesh.at[WF_MESH_DATA] = (int)wf_options_int(o, "mesh.data");
    mesh.at[WF_MESH_DOMAIN] = (int)wf_options_int(o, "mesh.domain");
    mesh.at[WF_MESH_PIPE] = (int)wf_options_int(o, "mesh.pipe");
    const struct wf_setting *const space = wf_options_get(o, "mesh.space");
    for (int i = 0; i < space->count; i++)
        mesh.at[WF_MESH_AXES - space->count + i] = (int)space->list[i];
    return mesh;
}

/* Of the mesh and the server; 0: nobody said. */
static bool find_ranks(struct wf_cli *cli, int *ranks, struct wf_err *err)
{
    const struct wf_setting *const s = wf_options_get(cli->options, "run.ranks");
    *ranks = s->is_set ? (int)s->integer : 0;
    if (!cli->world)
        return true;
    const int launched = wf_comm_size(cli->world);
    if (*ranks && *ranks != launched)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "the launcher started %d ranks, but %d were asked for (%s): leave one out", launched,
            *ranks, wf_setting_origin(&cli->arena, s));
    *ranks = launched;
    return true;
}

/* Ranks that share this machine's cores with us: a launcher's may be spread over many machines. */
static int ranks_here(const struct wf_job *job)
{
    return job->cli->world ? wf_comm_local_size(job->cli->world) : job->ranks;
}

/* Ranks without a sample would only wait. */
static bool check_data_ranks(const struct wf_job *job, struct wf_err *err)
{
    const int64_t samples = job->input->shape.at[WF_N];
    const int ranks = job->mesh.at[WF_MESH_DATA];
    if (ranks > samples)
        return wf_err_set(err, WF_ERR_FIT,
                          "mesh: %d ranks along data, but the batch has %" PRId64
                          " samples: use at most %" PRId64 ", or a larger train.batch",
                          ranks, samples, samples);
    if (wf_options_int(job->cli->options, "train.batch_is") && job->ranks > 1 &&
        !wf_options_mesh_given(job->cli->options))
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.batch_is is per_rank, so the batch depends on the mesh: give "
                          "--mesh, such as --mesh data=%d",
                          job->ranks);
    return true;
}

static void find_threads(struct wf_job *job)
{
    job->threads = wf_job_threads(job->cli->options, ranks_here(job));
}

/* What a mesh for this job is chosen by. */
static struct wf_choose choose_by(const struct wf_job *job)
{
    const size_t params = wf_plan_weight_count(job->graph);
    return (struct wf_choose){ .ranks = job->ranks,
                               .limit = (size_t)wf_options_int(job->cli->options, "memory.limit"),
                               .more = wf_job_optim_bytes(job, params) +
                                       wf_cli_workspace(job->cli->options, job->device) +
                                       job->files.beside };
}

/* By the cost model, for a number of ranks that somebody gave. */
static bool choose_mesh(struct wf_job *job, struct wf_err *err)
{
    const struct wf_plan_options options = wf_job_plan_options(job);
    const struct wf_choose ask = choose_by(job);
    struct wf_choice choice;
    if (!wf_mesh_choose(job->graph, &options, &ask, &choice, err))
        return false;
    job->mesh = choice.mesh;
    if (choice.tried == 1 && job->cli->is_root)
        wf_log(&job->cli->log, WF_LOG_INFO, "mesh %s, the only one for %d ranks",
               wf_mesh_print(&job->arena, &job->mesh), job->ranks);
    else if (job->cli->is_root)
        wf_log(&job->cli->log, WF_LOG_INFO,
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
    struct wf_arena *const arena = &job->cli->arena;
    const struct wf_plan_options options = wf_job_plan_options(job);
    return wf_err_set(
        err, WF_ERR_FIT,
        "mesh %s: a rank needs %s with everything recomputed or in strips that can be, and "
        "memory.limit is %s: raise it to %zu, or %s",
        wf_mesh_print(arena, &global->mesh), wf_text_bytes(arena, (double)global->bytes),
        wf_text_bytes(arena, (double)ask.limit), global->bytes,
        wf_mesh_advice(arena, job->graph, &options, &ask));
}

struct wf_mesh wf_job_step_mesh(const struct wf_job *job)
{
    struct wf_mesh mesh = job->mesh;
    if (job->files.sync == WF_SYNC_ASYNC)
        mesh.at[WF_MESH_DATA] = 1;
    return mesh;
}

bool wf_job_find_workers(struct wf_cli *cli, int *workers, struct wf_err *err)
{
    int ranks;
    if (!find_ranks(cli, &ranks, err))
        return false;
    *workers = wf_options_mesh_given(cli->options) ? (int)wf_options_int(cli->options, "mesh.data")
               : ranks > 1                         ? ranks - 1
                                                   : 1;
    return true;
}

/* With a server all ranks but one go along data, unless the mesh says otherwise. */
static bool find_mesh_with_server(struct wf_job *job, int ranks, struct wf_err *err)
{
    const bool given = wf_options_mesh_given(job->cli->options);
    job->mesh = given ? given_mesh(job->cli->options) : wf_mesh_one();
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
                          job->cli->world ? "mpirun -n" : "--ranks", job->ranks + 1);
    return job->workers > 0 || check_data_ranks(job, err);
}

bool wf_job_find_mesh(struct wf_job *job, struct wf_err *err)
{
    const struct wf_options *const o = job->cli->options;
    int ranks;
    if (!find_ranks(job->cli, &ranks, err))
        return false;
    if (wf_job_servers(job))
        return find_mesh_with_server(job, ranks, err);
    if (wf_options_mesh_given(o)) {
        job->mesh = given_mesh(o);
        job->ranks = wf_mesh_size(&job->mesh);
        if (ranks && ranks != job->ranks)
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh '%s' has %d ranks, but there are %d: use --mesh auto, or %s %d",
                              wf_mesh_print(&job->arena, &job->mesh), job->ranks, ranks,
                              job->cli->world ? "mpirun -n" : "--ranks", job->ranks);
        find_threads(job);
        return check_data_ranks(job, err);
    }
    job->ranks = ranks ? ranks : wf_options_int(o, "mesh.auto") ? wf_job_cores() : 1;
    find_threads(job);
    job->mesh = wf_mesh_one();
    return check_data_ranks(job, err) && (job->ranks == 1 || choose_mesh(job, err));
}
