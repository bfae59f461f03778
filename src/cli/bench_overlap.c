/* bench --overlap: the same step with and without overlap, in turns, in one run. */
#include <cjson/cJSON.h>

#include "cli/bench.h"
#include "train/stepper.h"
#include "cli/text.h"

/* Where waiting begins at once: fetches and sums end where they begin, and gradients are summed all
 * together behind the backward pass. */
enum { WITH, WITHOUT, ARMS };

struct arm {
    double seconds, waiting; /* medians; waiting is the mean of the ranks */
};

struct overlap {
    struct wf_cli *cli;
    struct wf_job *job;
    int64_t steps, warmup;
    struct arm arms[ARMS]; /* by rank 0 */
};

/* Collective. The mean of all ranks' values. */
static bool mean(struct wf_comm *comm, double *value, struct wf_err *err)
{
    const bool ok = wf_comm_sum(comm, value, 1, WF_F64, err);
    *value /= wf_comm_size(comm);
    return ok;
}

static bool time_rounds(const struct overlap *o, struct wf_stepper stepper[ARMS],
                        struct arm arms[ARMS], struct wf_err *err)
{
    const int64_t n = o->steps;
    struct wf_arena arena = { 0 };
    double *const rows = wf_arena_array(&arena, 2 * ARMS * n, double);
    bool ok = true;
    for (int64_t i = -o->warmup; ok && i < n; i++)
        for (int turn = 0; ok && turn < ARMS; turn++) {
            const int a = i % 2 ? ARMS - 1 - turn : turn; /* neither always comes first */
            double seconds, waiting;
            ok = wf_stepper_time(&stepper[a], &seconds, &waiting, err) &&
                 mean(stepper[a].comm, &waiting, err);
            if (!ok || i < 0)
                continue;
            rows[2 * a * n + i] = seconds;
            rows[(2 * a + 1) * n + i] = waiting;
        }
    for (int a = 0; ok && a < ARMS; a++)
        arms[a] =
            (struct arm){ wf_median(rows + 2 * a * n, n), wf_median(rows + (2 * a + 1) * n, n) };
    wf_arena_release(&arena);
    return ok;
}

static bool overlap_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct overlap *const o = arg;
    struct wf_stepper stepper[ARMS] = { 0 };
    struct arm arms[ARMS];
    struct wf_plan_options options[ARMS] = { wf_job_plan_options(o->job),
                                             wf_job_plan_options(o->job) };
    options[WITHOUT].no_overlap = true;
    options[WITHOUT].bucket_bytes = SIZE_MAX;
    bool ok = true;
    for (int a = 0; ok && a < ARMS; a++)
        ok = wf_stepper_init(
            &stepper[a], o->job, comm,
            &(struct wf_stepper_options){ .mesh = &o->job->mesh, .plan = &options[a] }, err);
    ok = ok && time_rounds(o, stepper, arms, err);
    for (int a = 0; ok && wf_comm_rank(comm) == 0 && a < ARMS; a++)
        o->arms[a] = arms[a];
    for (int a = 0; a < ARMS; a++)
        wf_stepper_release(&stepper[a]);
    return ok;
}

/* The share of the waiting that overlap takes away. */
static double hidden(const struct overlap *o)
{
    const double with = o->arms[WITH].waiting, without = o->arms[WITHOUT].waiting;
    return without > 0 ? 1.0 - with / without : 0;
}

static bool print(const struct overlap *o, struct wf_err *err)
{
    const struct wf_job *const job = o->job;
    struct wf_arena *const arena = &o->cli->arena;
    const struct arm *const with = &o->arms[WITH], *const without = &o->arms[WITHOUT];
    if (o->cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "ms", with->seconds * 1e3);
        cJSON_AddNumberToObject(json, "comm_ms", with->waiting * 1e3);
        cJSON_AddNumberToObject(json, "ms_without", without->seconds * 1e3);
        cJSON_AddNumberToObject(json, "comm_ms_without", without->waiting * 1e3);
        cJSON_AddNumberToObject(json, "hidden", hidden(o));
        cJSON_AddNumberToObject(json, "ranks", job->ranks);
        cJSON_AddStringToObject(json, "mesh", wf_mesh_print(arena, &job->mesh));
        cJSON_AddNumberToObject(json, "threads", job->threads);
        cJSON_AddNumberToObject(json, "steps", (double)o->steps);
        wf_job_add_link(job, json);
        return wf_cli_print_json(o->cli, json, err);
    }
    (void)printf("%s, mesh %s (%s, %s each), median of %d steps each, in turns%s\n",
                 job->model->name, wf_mesh_print(arena, &job->mesh),
                 wf_text_ranks(arena, job->ranks),
                 wf_arena_printf(arena, "%d thread%s", job->threads, job->threads == 1 ? "" : "s"),
                 (int)o->steps, wf_job_link_text(arena, job));
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 3, (const char *[]){ "", ">step", ">waiting (mean of the ranks)" });
    wf_table_row(&t, 3,
                 (const char *[]){ "with overlap", wf_text_seconds(arena, with->seconds),
                                   wf_text_seconds(arena, with->waiting) });
    wf_table_row(&t, 3,
                 (const char *[]){ "without", wf_text_seconds(arena, without->seconds),
                                   wf_text_seconds(arena, without->waiting) });
    wf_table_print(&t, stdout);
    (void)printf("%.0f%% of the waiting is hidden\n", 100.0 * hidden(o));
    return true;
}

bool wf_bench_overlap(struct wf_cli *cli, int64_t steps, int64_t warmup, struct wf_err *err)
{
    struct overlap o = { .cli = cli, .steps = steps, .warmup = warmup };
    o.job = wf_cli_job(cli, &(struct wf_job_files){ 0 }, err);
    bool ok = o.job && wf_job_run(o.job, overlap_rank, &o, err);
    if (ok && cli->launch.is_root)
        ok = print(&o, err);
    wf_job_free(o.job);
    return ok;
}
