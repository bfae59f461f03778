/* plan: what each rank will hold, send and do, from the plan alone. Nothing runs. */
#include <cjson/cJSON.h>

#include "cli/commands.h"
#include "cli/once.h"
#include "cli/text.h"
#include "device/device.h"

struct plans {
    struct wf_plan **at; /* by rank */
    int count;
    int64_t explain; /* the rank whose steps are printed */
};

static void plans_release(struct plans *p)
{
    for (int i = 0; i < p->count; i++)
        wf_plan_free(p->at[i]);
}

/* The plans of all ranks, held against each other. */
static bool plans_init(struct plans *p, const struct wf_job *job, struct wf_err *err)
{
    p->count = job->ranks;
    p->at = wf_arena_array(&job->cli->arena, p->count, struct wf_plan *);
    for (int i = 0; i < p->count; i++) {
        p->at[i] = wf_plan_new(job->scheme, i, err);
        if (!p->at[i])
            return false;
    }
    return wf_plan_check_all((const struct wf_plan *const *)p->at, p->count, err);
}

static double slowest(const struct plans *p)
{
    double seconds = 0;
    for (int i = 0; i < p->count; i++)
        seconds = p->at[i]->seconds > seconds ? p->at[i]->seconds : seconds;
    return seconds;
}

static bool print_json(const struct wf_job *job, const struct plans *p, struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mesh", wf_mesh_print(&job->cli->arena, &job->mesh));
    cJSON_AddNumberToObject(json, "ranks", job->ranks);
    cJSON_AddNumberToObject(json, "parameters", (double)wf_graph_parameters(job->graph, false));
    cJSON_AddNumberToObject(json, "flops", wf_job_flops(job->graph));
    cJSON *const all = cJSON_AddArrayToObject(json, "per_rank");
    for (int i = 0; i < p->count; i++) {
        const struct wf_plan *const plan = p->at[i];
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "rank", i);
        cJSON_AddNumberToObject(one, "arena_bytes", (double)plan->arena_bytes);
        cJSON_AddNumberToObject(one, "live_bytes", (double)plan->live_bytes);
        cJSON_AddNumberToObject(one, "param_bytes", (double)wf_job_param_bytes(job, plan));
        cJSON_AddNumberToObject(one, "fetch_bytes", (double)plan->fetch_bytes);
        cJSON_AddNumberToObject(one, "reduce_bytes", (double)plan->reduce_bytes);
        cJSON_AddNumberToObject(one, "steps", plan->n_steps);
        cJSON_AddNumberToObject(one, "flops", plan->flops);
        cJSON_AddNumberToObject(one, "references", plan->references);
        cJSON_AddItemToArray(all, one);
    }
    cJSON_AddNumberToObject(json, "step_seconds", slowest(p));
    if (wf_cli_flag(job->cli, "explain"))
        cJSON_AddStringToObject(json, "explain",
                                wf_plan_explain(&job->cli->arena, p->at[p->explain]));
    return wf_cli_print_json(job->cli, json, err);
}

/* Sends and receives of a rank's step. */
static int messages_of(const struct wf_plan *plan)
{
    int count = 0;
    for (int i = 0; i < plan->n_exchanges; i++)
        count += plan->exchanges[i].n_messages;
    return count;
}

static void print_text(const struct wf_job *job, const struct plans *p)
{
    struct wf_arena *const arena = &job->cli->arena;
    int64_t size[WF_AXES];
    const struct wf_shape *const s = &job->input->shape;
    int count = 0;
    size[count++] = s->at[WF_N];
    size[count++] = s->at[WF_C];
    for (int a = WF_C - job->config.dims; a < WF_C; a++)
        size[count++] = s->at[a];
    (void)printf("%s on %s, mesh %s (%s), device %s, %s\n", job->model->name,
                 wf_text_extents(arena, count, size), wf_mesh_print(arena, &job->mesh),
                 wf_text_ranks(arena, job->ranks), job->device->name,
                 wf_dtype_name(job->graph->options.compute));
    (void)printf("%s parameters, %s a step, about %s\n\n",
                 wf_text_count(arena, wf_graph_parameters(job->graph, false)),
                 wf_text_flops(arena, wf_job_flops(job->graph)),
                 wf_text_seconds(arena, slowest(p)));
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 9,
                 (const char *[]){ ">rank", ">arena", ">lower bound", ">weights", ">fetched",
                                   ">messages", ">summed", ">steps", ">compute" });
    for (int i = 0; i < p->count; i++) {
        const struct wf_plan *const plan = p->at[i];
        wf_table_row(&t, 9,
                     (const char *[]){ wf_arena_printf(arena, "%d", i),
                                       wf_text_bytes(arena, (double)plan->arena_bytes),
                                       wf_text_bytes(arena, (double)plan->live_bytes),
                                       wf_text_bytes(arena, (double)wf_job_param_bytes(job, plan)),
                                       wf_text_bytes(arena, (double)plan->fetch_bytes),
                                       wf_text_count(arena, messages_of(plan)),
                                       wf_text_bytes(arena, (double)plan->reduce_bytes),
                                       wf_text_count(arena, plan->n_steps),
                                       wf_text_flops(arena, plan->flops) });
    }
    wf_table_print(&t, stdout);
}

static void warn_references(const struct wf_job *job, const struct plans *p)
{
    if (p->at[0]->references > 0 && job->device != &wf_device_reference)
        wf_log(&job->cli->log, WF_LOG_WARN,
               "%d kernels of rank 0 are slow references: device '%s' has none of its own",
               p->at[0]->references, job->device->name);
}

static bool print_plans(const struct wf_job *job, const struct plans *p, struct wf_err *err)
{
    warn_references(job, p);
    if (job->cli->json)
        return print_json(job, p, err);
    print_text(job, p);
    if (wf_cli_flag(job->cli, "explain"))
        (void)printf("\nrank %d\n%s", (int)p->explain,
                     wf_plan_explain(&job->cli->arena, p->at[p->explain]));
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_job *const job = wf_job_new(cli, &(struct wf_job_files){ 0 }, err);
    bool ok = job != NULL;
    if (ok && cli->speaks) { /* one rank can make the plans of all */
        struct plans p = { 0 };
        ok = wf_cli_flag_int(cli, "rank", 0, job->ranks - 1, &p.explain, err) &&
             plans_init(&p, job, err) && print_plans(job, &p, err);
        plans_release(&p);
    }
    if (cli->world)
        ok = wf_comm_agree(cli->world, ok, err);
    wf_job_free(job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "explain", NULL, "print the steps of a rank" },
    { "rank", "R", "the rank to explain (0)" },
    { .name = NULL },
};

const struct wf_command wf_command_plan = {
    .name = "plan",
    .summary = "bytes per rank, steps, sends and predicted time; runs nothing",
    .usage = "plan CONFIG [key=value ...] [--mesh AXES] [--explain] [--json]",
    .flags = flags,
    .config_at = 1,
    .run = run,
};
