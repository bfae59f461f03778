/* bench: the median time of a training step, after some that warm up. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/bench.h"
#include "cli/bench_profile.h"
#include "cli/cli.h"
#include "train/foresight.h"
#include "train/stepper.h"
#include "cli/sweep.h"
#include "cli/text.h"
#include "cli/timeline.h"

enum { PROFILED = 3 }; /* steps, on a device that times them itself */

struct bench {
    struct wf_cli *cli;
    struct wf_job *job;
    int64_t steps, warmup;
    /* the results, by rank 0 */
    double seconds, compute, comm, foretold;
    double bubble;        /* the part of the time in which a rank waits, the mean over ranks */
    double planned, peak; /* bytes, of the rank that needs most */
    bool profile;
    struct wf_bench_profile by_kernel;
    const char *timeline; /* the file it goes to, or NULL */
};

/* Seconds of the steps, in three rows: the step, its computing, its waiting for others. */
static bool time_steps(struct bench *bench, struct wf_stepper *stepper, double *rows,
                       struct wf_err *err)
{
    const bool root = wf_comm_rank(stepper->comm) == 0,
               host = wf_device_is_host(bench->job->device);
    const int64_t n = bench->steps;
    for (int64_t i = -bench->warmup; i < n; i++) {
        double seconds, waiting;
        if (!wf_stepper_time(stepper, &seconds, &waiting, err))
            return false;
        if (i < 0)
            continue;
        rows[i] = seconds;
        rows[2 * n + i] = waiting;
        rows[n + i] = rows[i] - rows[2 * n + i];
        if (bench->profile && root && host)
            wf_bench_profile_add(&bench->by_kernel, stepper->run);
    }
    return true;
}

/* More steps, which a device with a clock of its own times kernel by kernel. */
static bool run_profiled(struct bench *bench, struct wf_stepper *stepper, struct wf_err *err)
{
    bool ok = true;
    if (wf_device_is_host(stepper->job->device))
        return true;
    wf_run_set_profiled(stepper->run, true);
    for (int i = 0; ok && i < PROFILED; i++) {
        ok = wf_stepper_step(stepper, err) && wf_run_wait(stepper->run, err);
        if (ok && wf_comm_rank(stepper->comm) == 0)
            wf_bench_profile_add(&bench->by_kernel, stepper->run);
    }
    wf_run_set_profiled(stepper->run, false);
    return ok;
}

static bool measure(struct bench *bench, struct wf_stepper *stepper, struct wf_err *err)
{
    const int64_t n = bench->steps;
    struct wf_arena arena = { 0 };
    double *const rows = wf_arena_array(&arena, 3 * n, double);
    bool ok = time_steps(bench, stepper, rows, err) &&
              (!bench->profile || run_profiled(bench, stepper, err));
    double compute = 0, comm = 0, seconds = 0;
    if (ok) {
        seconds = wf_median(rows, n);
        compute = wf_median(rows + n, n);
        comm = wf_median(rows + 2 * n, n);
    }
    wf_arena_release(&arena);
    double planned =
        (double)(stepper->plan->arena_bytes + wf_job_param_bytes(stepper->job, stepper->plan));
    double peak = (double)wf_stepper_bytes(stepper);
    double bubble = seconds > 0 ? comm / seconds / wf_comm_size(stepper->comm) : 0;
    ok = ok && wf_comm_sum(stepper->comm, &bubble, 1, WF_F64, err) &&
         wf_comm_largest(stepper->comm, &planned, err) &&
         wf_comm_largest(stepper->comm, &peak, err) &&
         wf_comm_largest(stepper->comm, &compute, err) &&
         wf_comm_largest(stepper->comm, &comm, err);
    if (ok && wf_comm_rank(stepper->comm) == 0) {
        bench->seconds = seconds;
        bench->compute = compute;
        bench->comm = comm;
        bench->bubble = bubble;
        bench->planned = planned;
        bench->peak = peak;
        if (bench->profile)
            wf_bench_profile_close(&bench->by_kernel, stepper->plan);
    }
    return ok;
}

/* Collective. Of the last step. */
static bool write_timeline(const struct bench *bench, const struct wf_stepper *stepper,
                           struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool ok = wf_timeline_write(stepper->run, stepper->comm,
                                      wf_timeline_title(&arena, bench->job, stepper->comm),
                                      bench->timeline, err);
    wf_arena_release(&arena);
    return ok;
}

/* Collective. */
static bool foretell(struct bench *bench, const struct wf_stepper *stepper, struct wf_err *err)
{
    struct wf_all_ranks *const all = wf_all_ranks_gather(stepper->plan, stepper->comm, err);
    if (all && wf_comm_rank(stepper->comm) == 0)
        bench->foretold = wf_foresight_step(bench->job, all);
    const bool ok = all != NULL;
    wf_all_ranks_free(all);
    return ok;
}

static bool bench_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct bench *const bench = arg;
    struct wf_stepper stepper = { 0 };
    bool ok = wf_stepper_init(&stepper, bench->job, comm, NULL, err) &&
              foretell(bench, &stepper, err) && measure(bench, &stepper, err);
    if (ok && bench->timeline)
        ok = write_timeline(bench, &stepper, err);
    wf_stepper_release(&stepper);
    return ok;
}

/* A point of bench --sweep: one step, timed once. */
static bool measure_point(struct wf_job *job, struct wf_sweep_point *point, struct wf_err *err)
{
    struct bench bench = { .job = job, .steps = 1 };
    if (!wf_job_run(job, bench_rank, &bench, err))
        return false;
    point->peak = bench.peak;
    point->measured = bench.seconds;
    return true;
}

void wf_job_add_link(const struct wf_job *job, cJSON *json)
{
    if (job->link.bytes_per_second <= 0)
        return;
    cJSON *const link = cJSON_AddObjectToObject(json, "emulated_link");
    (void)cJSON_AddNumberToObject(link, "latency_us", 1e6 * job->link.seconds);
    (void)cJSON_AddNumberToObject(link, "bytes_per_s", job->link.bytes_per_second);
}

static double rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : 0;
}

static bool print(struct bench *b, struct wf_err *err)
{
    const struct wf_job *const job = b->job;
    const struct wf_shape *const s = &job->net.image->shape;
    const double pixels = wf_job_micro_batches(job) * (double)s->at[WF_N] * (double)s->at[WF_D] *
                          (double)s->at[WF_H] * (double)s->at[WF_W];
    const double rate = pixels / b->seconds / 1e6;
    const char *const precision = wf_precision_names[job->settings.train.precision];
    if (b->cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "ms", b->seconds * 1e3);
        cJSON_AddNumberToObject(json, "foretold_ms", b->foretold * 1e3);
        cJSON_AddNumberToObject(json, "mpx_per_s", rate);
        cJSON_AddNumberToObject(json, "planned_bytes", b->planned);
        cJSON_AddNumberToObject(json, "peak_bytes", b->peak);
        cJSON_AddNumberToObject(json, "ranks", job->ranks);
        cJSON_AddStringToObject(json, "mesh", wf_mesh_print(&b->cli->arena, &job->mesh));
        cJSON_AddStringToObject(json, "device", job->device->name);
        cJSON_AddStringToObject(json, "precision", precision);
        cJSON_AddNumberToObject(json, "compute_ms", b->compute * 1e3);
        cJSON_AddNumberToObject(json, "comm_ms", b->comm * 1e3);
        cJSON_AddNumberToObject(json, "micro_batches", wf_job_micro_batches(job));
        if (job->mesh.at[WF_MESH_PIPE] > 1)
            cJSON_AddNumberToObject(json, "bubble", b->bubble);
        cJSON_AddNumberToObject(json, "threads", job->threads);
        cJSON_AddNumberToObject(json, "steps", (double)b->steps);
        cJSON_AddNumberToObject(json, "rss_bytes", rss_bytes());
        wf_job_add_link(job, json);
        if (b->profile)
            wf_bench_profile_json(&b->by_kernel, json);
        return wf_cli_print_json(b->cli, json, err);
    }
    struct wf_arena *const arena = &b->cli->arena;
    (void)printf("%s, mesh %s (%s, %s each), device %s, %s%s\n", job->model->name,
                 wf_mesh_print(arena, &job->mesh), wf_text_ranks(arena, job->ranks),
                 wf_arena_printf(arena, "%d thread%s", job->threads, job->threads == 1 ? "" : "s"),
                 job->device->name, precision, wf_job_link_text(arena, job));
    (void)printf("  step     %s (median of %d; foretold %s), %.2f Mpx/s, %s/s\n",
                 wf_text_seconds(arena, b->seconds), (int)b->steps,
                 wf_text_seconds(arena, b->foretold), rate,
                 wf_text_flops(arena, wf_job_flops(job) / b->seconds));
    (void)printf("  compute  %s, waiting for other ranks %s (slowest rank)\n",
                 wf_text_seconds(arena, b->compute), wf_text_seconds(arena, b->comm));
    if (job->mesh.at[WF_MESH_PIPE] > 1)
        (void)printf(
            "  bubble   %.3f of the time, in which a rank waits (mean; %d micro-batches, %s)\n",
            b->bubble, wf_job_micro_batches(job),
            wf_pipe_schedule_names[job->settings.pipe.schedule]);
    (void)printf("  memory   %s planned, %s used by the largest rank; process %s\n",
                 wf_text_bytes(arena, b->planned), wf_text_bytes(arena, b->peak),
                 wf_text_bytes(arena, rss_bytes()));
    if (b->profile)
        wf_bench_profile_print(&b->by_kernel, arena);
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct bench bench = { .cli = cli, .steps = 5, .warmup = 2 };
    if (!wf_cli_flag_int(cli, "steps", 1, 1000000, &bench.steps, err) ||
        !wf_cli_flag_int(cli, "warmup", 0, 1000000, &bench.warmup, err))
        return false;
    const struct wf_job_files files = { .input = wf_cli_flag(cli, "input"),
                                        .target = wf_cli_flag(cli, "target") };
    static const char *const own_data[] = { "sweep", "scaling", "overlap" };
    for (int i = 0; i < 3; i++)
        if ((files.input || files.target) && wf_cli_flag(cli, own_data[i]))
            return wf_err_set(err, WF_ERR_USAGE, "--%s draws its own data: leave --%s out",
                              own_data[i], files.input ? "input" : "target");
    if (cli->word) {
        int64_t rounds = 9;
        return wf_cli_flag_int(cli, "steps", 1, 1000000, &rounds, err) &&
               wf_bench_allreduce(cli, rounds, err);
    }
    if (wf_cli_flag(cli, "sweep"))
        return wf_sweep_run(cli, measure_point, err);
    if (wf_cli_flag(cli, "scaling"))
        return wf_bench_scaling(cli, bench.steps, bench.warmup, err);
    if (wf_cli_flag(cli, "overlap"))
        return wf_bench_overlap(cli, bench.steps, bench.warmup, err);
    bench.profile = wf_cli_flag(cli, "profile") != NULL;
    bench.timeline = wf_cli_flag(cli, "timeline");
    bench.job = wf_cli_job(cli, &files, err);
    bool ok = bench.job && wf_job_run(bench.job, bench_rank, &bench, err);
    if (ok && cli->launch.is_root)
        ok = print(&bench, err);
    wf_bench_profile_release(&bench.by_kernel);
    wf_job_free(bench.job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "steps", "N", "timed steps (5); rounds of 'allreduce' (9)" },
    { "warmup", "N", "untimed steps before them (2)" },
    { "input", "X.npy", "image [N, C, *spatial], or points (.npz), instead of random data" },
    { "target", "Y.npy", "class map [N, *spatial], or a class per point" },
    { "profile", NULL,
      "also print a step's time by operator, beside what was foretold; with --json by kernel" },
    { "overlap", NULL, "time the step with and without overlap of communication, in turns" },
    { "timeline", "FILE",
      "write the last step of every rank: a picture (.svg) or Chrome's trace format" },
    WF_SWEEP_FLAGS,
    { "svg", "FILE", "a picture of the sweep, or of --scaling" },
    { "scaling", "LIST",
      "weak and strong scaling over these numbers of ranks along data, such as 1,2,4" },
    { "out", "DIR", "with --scaling and data.path: train each of them, in a run folder in DIR" },
    { .name = NULL },
};

const struct wf_command wf_command_bench = {
    .name = "bench",
    .summary = "time training steps: median step time, Mpx/s, peak and planned bytes",
    .usage =
        "bench CONFIG|allreduce [key=value ...] [--steps N] [--warmup N] [--input X] [--target Y] "
        "[--profile] [--overlap] [--timeline FILE] [--sweep] [--scaling LIST [--out DIR]] [--svg FILE] [--json]",
    .notes =
        "'bench allreduce' times the algorithms of comm.allreduce in turns, from 1 KiB to 64 MiB, and\n"
        "marks the default for each size. Ranks are threads (--ranks N, default 2) or the launcher's.",
    .word = "allreduce",
    .flags = flags,
    .config_at = 1,
    .opens_device = true,
    .run = run,
};
