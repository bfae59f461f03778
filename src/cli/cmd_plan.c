/* plan: what each rank will hold, send and do, from the plans alone. Nothing runs. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "cli/cli.h"
#include "config/options_settings.h"
#include "cli/scaling.h"
#include "cli/sweep.h"
#include "ckpt/snapshot.h"
#include "cli/text.h"
#include "device/device.h"
#include "train/all_ranks.h"
#include "train/device.h"
#include "train/foresight.h"
#include "train/training.h"
#include "plan/plan_cache.h"
#include "report/explain.h"
#include "report/grid.h"

/* What is printed: the figures of all ranks, and the steps of one of them. */
struct look {
    struct wf_cli *cli;
    const struct wf_job *job;
    const struct wf_training *training; /* with a dataset; NULL: a step alone */
    struct wf_context *context;         /* of a GPU, where there is one; or NULL */
    struct wf_all_ranks *all;
    struct wf_foresight foresight;
    int64_t explained; /* rank */
    char *steps;       /* NULL: not asked for */
};

/* On the CPU with the primitives that would run, checked as they would be; a GPU need not be here. */
static bool explain(struct look *look, struct wf_err *err)
{
    const struct wf_job *const job = look->job;
    const struct wf_device_options options = { .cache = job->settings.cache };
    struct wf_context *context = NULL;
    if (wf_device_is_host(job->device) && !wf_device_open(job->device, &options, &context, err))
        return false;
    struct wf_plan_cache cache = { 0 };
    struct wf_plan *const plan =
        wf_plan_estimate_on(job->global, (int)look->explained, context, &cache, err);
    if (plan)
        look->steps = wf_plan_explain(&look->cli->arena, plan);
    wf_plan_free(plan);
    wf_plan_cache_release(&cache);
    wf_device_close(context);
    return look->steps != NULL;
}

/* A GPU knows which kernels were chosen there. Without one their scratch is estimated. */
static void open_gpu(struct look *look)
{
    const struct wf_job *const job = look->job;
    struct wf_err ignored = { 0 };
    struct wf_device_options options = wf_settings_device_options(&job->settings, job->device);
    if (job->device->open && !wf_device_is_host(job->device) &&
        !wf_device_open(job->device, &options, &look->context, &ignored))
        look->context = NULL;
}

static bool look_init(struct look *look, struct wf_err *err)
{
    open_gpu(look);
    look->all = wf_all_ranks_new(look->job->global, look->context, err);
    if (!look->all ||
        !wf_foresight_init(&look->foresight, look->job, look->all, look->training, err))
        return false;
    return !wf_cli_flag(look->cli, "explain") || explain(look, err);
}

static size_t param_bytes(const struct wf_job *job, const struct wf_rank_figures *r)
{
    return r->weight_bytes + wf_job_optim_bytes(job, r->trained_count);
}

/* Of rank 0, while it trains: for a copy of what a checkpoint holds. */
static size_t host_bytes(const struct wf_job *job)
{
    return wf_snapshot_bytes(job->net.graph, wf_optim_states(&job->settings.train.optim));
}

/* What the limit made the planner request; a value may be requested more than once. */
static const char *name_of(const struct wf_global_plan *s, size_t i)
{
    return s->graph->values[s->requests.recompute[i].value]->name;
}

static bool is_first_of_its_name(const struct wf_global_plan *s, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(name_of(s, k), name_of(s, i)) == 0)
            return false;
    return true;
}

/* --- for programs --- */

/* The layers from and to which a row of items goes. */
static void add_strips(cJSON *json, const struct wf_global_plan *s)
{
    cJSON *const all = cJSON_AddArrayToObject(json, "in_strips");
    for (int i = 0; i < s->n_strips; i++) {
        const struct wf_strips *const strips = &s->strips[i];
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "from", s->program->items[strips->first].node->name);
        cJSON_AddStringToObject(one, "to", s->program->items[strips->last].node->name);
        cJSON_AddNumberToObject(one, "items", strips->last - strips->first + 1);
        cJSON_AddNumberToObject(one, "strips", strips->count);
        cJSON_AddItemToArray(all, one);
    }
}

static void add_foresight(cJSON *json, const struct look *look)
{
    const struct wf_foresight *const f = &look->foresight;
    const struct wf_figures *const figures = look->job->figures;
    cJSON_AddNumberToObject(json, "step_seconds", f->times.step);
    if (look->training) {
        cJSON_AddNumberToObject(json, "epoch_steps", (double)f->times.steps);
        cJSON_AddNumberToObject(json, "epoch_seconds", f->times.epoch);
        cJSON_AddNumberToObject(json, "validation_seconds", f->times.validation);
    }
    cJSON_AddNumberToObject(json, "bytes_with_validation", (double)f->bytes_with_validation);
    cJSON_AddNumberToObject(json, "process_bytes", (double)f->host_bytes);
    cJSON_AddNumberToObject(json, "library_bytes", (double)f->library_bytes);
    if (figures)
        cJSON_AddStringToObject(json, "figures", wf_figures_machine(figures));
}

static bool print_json(const struct look *look, struct wf_err *err)
{
    const struct wf_job *const job = look->job;
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mesh", wf_mesh_print(&look->cli->arena, &job->mesh));
    if (job->mesh.at[WF_MESH_DOMAIN] > 1)
        (void)cJSON_AddStringToObject(json, "placement",
                                      wf_domain_placement_names[job->domains.placement]);
    cJSON_AddNumberToObject(json, "ranks", job->ranks);
    cJSON_AddNumberToObject(json, "parameters", (double)wf_graph_parameters(job->net.graph, false));
    cJSON_AddNumberToObject(json, "flops", wf_job_flops(job));
    cJSON *const all = cJSON_AddArrayToObject(json, "per_rank");
    for (int i = 0; i < look->all->n_ranks; i++) {
        const struct wf_rank_figures *const r = &look->all->ranks[i];
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "rank", i);
        int at[WF_MESH_AXES];
        wf_mesh_coords(&job->mesh, i, at);
        cJSON_AddNumberToObject(one, "domain", at[WF_MESH_DOMAIN]);
        cJSON_AddNumberToObject(one, "stage", at[WF_MESH_PIPE]);
        cJSON_AddNumberToObject(one, "bubble", look->all->bubbles[at[WF_MESH_PIPE]]);
        cJSON_AddNumberToObject(one, "arena_bytes", (double)r->arena_bytes);
        cJSON_AddNumberToObject(one, "live_bytes", (double)r->live_bytes);
        cJSON_AddNumberToObject(one, "param_bytes", (double)param_bytes(job, r));
        cJSON_AddNumberToObject(one, "host_bytes", i == 0 ? (double)host_bytes(job) : 0);
        cJSON_AddNumberToObject(one, "bytes_with_validation", (double)look->foresight.bytes[i]);
        cJSON_AddNumberToObject(one, "fetch_bytes", (double)r->fetch_bytes);
        cJSON_AddNumberToObject(one, "send_bytes", (double)r->send_bytes);
        cJSON_AddNumberToObject(one, "reduce_bytes", (double)r->reduce_bytes);
        cJSON_AddNumberToObject(one, "messages", r->messages);
        cJSON_AddNumberToObject(one, "steps", r->steps);
        cJSON_AddNumberToObject(one, "flops", r->flops);
        cJSON_AddNumberToObject(one, "seconds", r->seconds);
        cJSON_AddNumberToObject(one, "compute_seconds", r->compute_seconds);
        cJSON_AddNumberToObject(one, "recompute_seconds", r->recompute_seconds);
        cJSON_AddNumberToObject(one, "references", r->references);
        cJSON_AddItemToArray(all, one);
    }
    add_foresight(json, look);
    cJSON_AddNumberToObject(json, "micro_batches", wf_job_micro_batches(job));
    cJSON_AddNumberToObject(json, "bubble", wf_all_ranks_bubble(look->all));
    cJSON *const recompute = cJSON_AddArrayToObject(json, "recomputed");
    for (size_t i = 0; i < job->global->requests.n_recompute; i++)
        if (is_first_of_its_name(job->global, i))
            cJSON_AddItemToArray(recompute, cJSON_CreateString(name_of(job->global, i)));
    add_strips(json, job->global);
    if (look->steps)
        cJSON_AddStringToObject(json, "explain", look->steps);
    return wf_cli_print_json(look->cli, json, err);
}

/* --- for people --- */

enum {
    ALL_UP_TO = 16, /* ranks: beyond, a summary and the worst of them */
    WORST = 5,
    COLUMNS = 10,
};

/* The figures of a row, in the order of the columns. */
struct figures {
    double at[COLUMNS - 1];
};

static struct figures figures_of(const struct wf_job *job, const struct wf_rank_figures *r)
{
    const double params = (double)param_bytes(job, r);
    return (struct figures){ { (double)r->arena_bytes + params, (double)r->arena_bytes,
                               (double)r->live_bytes, params, (double)r->fetch_bytes, r->messages,
                               (double)r->reduce_bytes, r->steps, r->seconds } };
}

static void add_row(struct wf_table *t, const char *name, const struct figures *f)
{
    struct wf_arena *const a = t->arena;
    wf_table_row(t, COLUMNS,
                 (const char *[]){ name, wf_text_bytes(a, f->at[0]), wf_text_bytes(a, f->at[1]),
                                   wf_text_bytes(a, f->at[2]), wf_text_bytes(a, f->at[3]),
                                   wf_text_bytes(a, f->at[4]), wf_text_count(a, (int64_t)f->at[5]),
                                   wf_text_bytes(a, f->at[6]), wf_text_count(a, (int64_t)f->at[7]),
                                   wf_text_seconds(a, f->at[8]) });
}

/* Each column has its own least, median and most: no rank need have all of them. */
static void add_summary(struct wf_table *t, const struct look *look)
{
    const int n = look->all->n_ranks;
    struct figures least, median, most;
    struct wf_arena arena = { 0 };
    double *const column = wf_arena_array(&arena, n, double);
    for (int c = 0; c < COLUMNS - 1; c++) {
        for (int i = 0; i < n; i++)
            column[i] = figures_of(look->job, &look->all->ranks[i]).at[c];
        median.at[c] = wf_median(column, n);
        least.at[c] = column[0];
        most.at[c] = column[n - 1];
    }
    wf_arena_release(&arena);
    add_row(t, "least", &least);
    add_row(t, "median", &median);
    add_row(t, "most", &most);
}

struct placed {
    double by;
    int rank;
};

static int largest_first(const void *a, const void *b)
{
    const struct placed *const x = a, *const y = b;
    return x->by != y->by ? (x->by > y->by ? -1 : 1) : (x->rank < y->rank ? -1 : 1);
}

static const char *rank_name(const struct look *look, int rank)
{
    struct wf_arena *const arena = &look->cli->arena;
    const struct wf_mesh *const mesh = &look->job->mesh;
    int at[WF_MESH_AXES];
    wf_mesh_coords(mesh, rank, at);
    const char *place = "";
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (mesh->at[a] > 1)
            place = wf_arena_printf(arena, "%s%s%d", place, *place ? "," : "", at[a]);
    return *place ? wf_arena_printf(arena, "%d (%s)", rank, place)
                  : wf_arena_printf(arena, "%d", rank);
}

/* The ranks with most of one column. */
static void add_worst(struct wf_table *t, const struct look *look, int column)
{
    const int n = look->all->n_ranks;
    struct wf_arena arena = { 0 };
    struct placed *const order = wf_arena_array(&arena, n, struct placed);
    for (int i = 0; i < n; i++)
        order[i] = (struct placed){ figures_of(look->job, &look->all->ranks[i]).at[column], i };
    qsort(order, (size_t)n, sizeof *order, largest_first);
    for (int i = 0; i < WORST && i < n; i++) {
        const struct figures f = figures_of(look->job, &look->all->ranks[order[i].rank]);
        add_row(t, rank_name(look, order[i].rank), &f);
    }
    wf_arena_release(&arena);
}

static void add_head(struct wf_table *t, const char *first)
{
    wf_table_row(t, COLUMNS,
                 (const char *[]){ first, ">memory", ">arena", ">lower bound", ">weights",
                                   ">fetched", ">messages", ">summed", ">steps", ">time" });
}

static void print_ranks(const struct look *look)
{
    struct wf_table t = { .arena = &look->cli->arena };
    const bool all = look->all->n_ranks <= ALL_UP_TO;
    add_head(&t, all ? "rank" : "");
    for (int i = 0; all && i < look->all->n_ranks; i++) {
        const struct figures f = figures_of(look->job, &look->all->ranks[i]);
        add_row(&t, rank_name(look, i), &f);
    }
    if (!all)
        add_summary(&t, look);
    wf_table_print(&t, stdout);
    if (all)
        return;
    (void)printf("\nranks with most memory\n");
    add_head(&t, "rank");
    add_worst(&t, look, 0);
    wf_table_print(&t, stdout);
    (void)printf("\nslowest ranks\n");
    add_head(&t, "rank");
    add_worst(&t, look, COLUMNS - 2);
    wf_table_print(&t, stdout);
}

/* "unet on 1 x 3 x 64 x 64, mesh space=2x2 (4 ranks), device cpu, f32" */
static const char *title_of(struct wf_arena *arena, const struct wf_job *job)
{
    int64_t size[WF_AXES];
    const struct wf_shape *const s = &job->net.image->shape;
    int count = 0;
    size[count++] = s->at[WF_N];
    size[count++] = s->at[WF_C];
    for (int a = WF_C - job->config.dims; a < WF_C; a++)
        size[count++] = s->at[a];
    return wf_arena_printf(arena, "%s on %s, mesh %s (%s), device %s, %s", job->model->name,
                           wf_text_extents(arena, count, size), wf_mesh_print(arena, &job->mesh),
                           wf_text_ranks(arena, job->ranks), job->device->name,
                           wf_dtype_name(job->net.graph->options.compute));
}

static void print_recomputed(const struct look *look)
{
    const struct wf_global_plan *const s = look->job->global;
    struct wf_arena *const arena = &look->cli->arena;
    double seconds = 0;
    int count = 0;
    for (int i = 0; i < look->all->n_ranks; i++)
        seconds = fmax(seconds, look->all->ranks[i].recompute_seconds);
    for (size_t i = 0; i < s->requests.n_recompute; i++)
        count += is_first_of_its_name(s, i);
    if (count > 0)
        (void)printf("\nrecomputed for memory.limit: %d results, about %s of the step (--explain "
                     "marks them)\n",
                     count, wf_text_seconds(arena, seconds));
    int items = 0;
    for (int i = 0; i < s->n_strips; i++)
        items += s->strips[i].last - s->strips[i].first + 1;
    if (items > 0)
        (void)printf(
            "%sin strips for memory.limit: %d items in %d rows, one part of the image after "
            "the other\n",
            count > 0 ? "" : "\n", items, s->n_strips);
}

static void print_epoch(const struct look *look)
{
    const struct wf_foresight *const f = &look->foresight;
    struct wf_arena *const arena = &look->cli->arena;
    if (look->training)
        (void)printf("an epoch: %s steps, about %s, of which validation %s\n",
                     wf_text_count(arena, f->times.steps), wf_text_seconds(arena, f->times.epoch),
                     wf_text_seconds(arena, f->times.validation));
}

static void print_memory(const struct look *look)
{
    const struct wf_foresight *const f = &look->foresight;
    struct wf_arena *const arena = &look->cli->arena;
    const char *const most = wf_text_bytes(arena, (double)f->bytes_with_validation);
    const char *const process = wf_text_bytes(arena, (double)f->host_bytes);
    if (!wf_device_is_host(look->job->device))
        (void)printf("memory: %s of a GPU at most%s, and %s of the host for its process, of which "
                     "its libraries take at most some %s\n",
                     most, look->training ? " with validation" : "", process,
                     wf_text_bytes(arena, (double)f->library_bytes));
    else if (look->training)
        (void)printf("memory: %s a rank at most with validation, and %s the process with %s\n",
                     most, process,
                     look->job->launch.world ? "one rank" : wf_text_ranks(arena, look->job->ranks));
}

static void print_text(const struct look *look)
{
    const struct wf_job *const job = look->job;
    struct wf_arena *const arena = &look->cli->arena;
    (void)printf("%s\n", title_of(arena, job));
    (void)printf("%s parameters, %s a step, about %s",
                 wf_text_count(arena, wf_graph_parameters(job->net.graph, false)),
                 wf_text_flops(arena, wf_job_flops(job)),
                 wf_text_seconds(arena, look->foresight.times.step));
    if (job->figures)
        (void)printf(" (figures of %s)", wf_figures_machine(job->figures));
    (void)printf("\n");
    if (wf_device_is_host(job->device) && job->ranks_here * job->threads > job->cores_here)
        (void)printf("with a core for each thread: on this machine's %d they take turns\n",
                     job->cores_here);
    print_epoch(look);
    print_memory(look);
    (void)printf("\n");
    if (job->mesh.at[WF_MESH_PIPE] > 1)
        (void)printf(
            "%d stages, %d micro-batch%s, %s: a stage waits %.0f%% of the time (its bubble)\n\n",
            job->mesh.at[WF_MESH_PIPE], wf_job_micro_batches(job),
            wf_job_micro_batches(job) == 1 ? "" : "es",
            wf_pipe_schedule_names[job->settings.pipe.schedule],
            100 * wf_all_ranks_bubble(look->all));
    if (wf_job_micro_batches(job) > 1)
        (void)printf("of one micro-batch of %d:\n", wf_job_micro_batches(job));
    print_ranks(look);
    (void)printf(
        "\nto write checkpoints beside the training, rank 0 takes %s more of host memory\n",
        wf_text_bytes(arena, (double)host_bytes(job)));
    print_recomputed(look);
    if (look->steps)
        (void)printf("\nrank %d\n%s", (int)look->explained, look->steps);
}

static void warn_references(const struct look *look)
{
    const int references = look->all->ranks[0].references;
    if (references > 0 && look->job->device != &wf_device_reference)
        wf_log(&look->cli->log, WF_LOG_WARN,
               "%d kernels of rank 0 are slow references: device '%s' has none of its own",
               references, look->job->device->name);
}

/* The grid as colours: bytes, halo, time. */
static bool write_svg(const struct look *look, const char *path, struct wf_err *err)
{
    const struct wf_job *const job = look->job;
    struct wf_arena *const arena = &look->cli->arena;
    const struct wf_layout *const layout = &job->global->geometry.layout;
    const int n = look->all->n_ranks;
    double *const figures = wf_arena_array(arena, 3 * n, double);
    for (int i = 0; i < n; i++) {
        const struct wf_rank_figures *const r = &look->all->ranks[i];
        figures[i] = (double)(r->arena_bytes + param_bytes(job, r));
        figures[n + i] = (double)r->fetch_bytes;
        figures[2 * n + i] = r->seconds;
    }
    const struct wf_grid_panel panels[] = {
        { "memory", figures, wf_text_bytes },
        { "fetched from others in a step", figures + n, wf_text_bytes },
        { "step, predicted", figures + 2 * n, wf_text_seconds }
    };
    int copies = n; /* also those of other stages and domains */
    for (int i = 0; i < 3; i++)
        copies /= job->mesh.at[WF_MESH_D + i];
    struct wf_grid grid = {
        .title = title_of(arena, job),
        .subtitle = wf_arena_printf(
            arena, "%s parameters, %s a step, about %s; parts are drawn to scale%s",
            wf_text_count(arena, wf_graph_parameters(job->net.graph, false)),
            wf_text_flops(arena, wf_job_flops(job)), wf_text_seconds(arena, look->all->seconds),
            copies > 1 ? wf_arena_printf(arena, ", each with the most of its %d ranks", copies)
                       : ""),
        .copies = copies,
        .panels = panels,
        .n_panels = 3,
    };
    for (int i = 0; i < 3; i++) {
        grid.parts[i] = job->mesh.at[WF_MESH_D + i];
        grid.cut[i] = layout->tilings[0]->cut[WF_D + i];
    }
    return wf_write_text(path, wf_grid_svg(arena, &grid), err);
}

static bool print(const struct look *look, struct wf_err *err)
{
    const char *const svg = wf_cli_flag(look->cli, "svg");
    warn_references(look);
    if (svg && !write_svg(look, svg, err))
        return false;
    if (look->cli->json)
        return print_json(look, err);
    print_text(look);
    return true;
}

/* One rank can make the plans of all. */
static bool look_at(struct wf_cli *cli, const struct wf_job *job,
                    const struct wf_training *training, struct wf_err *err)
{
    if (!cli->launch.is_root)
        return true;
    struct look look = { .cli = cli, .job = job, .training = training };
    const bool ok = wf_cli_flag_int(cli, "rank", 0, job->ranks - 1, &look.explained, err) &&
                    look_init(&look, err) && print(&look, err);
    wf_foresight_release(&look.foresight);
    wf_all_ranks_free(look.all);
    wf_device_close(look.context);
    return ok;
}

/* With a dataset: as 'train' would plan it, before it makes its folder. */
static bool run_with_data(struct wf_cli *cli, const char *path, struct wf_err *err)
{
    struct wf_training training = { .launch = cli->launch, .is_planned_only = true };
    struct wf_run_folder folder = { .launch = cli->launch };
    training.folder = &folder;
    bool ok = wf_options_settings(cli->options, &training.settings, err);
    if (ok) {
        folder.model = training.settings.model->name;
        ok = wf_training_prepare(&training, path, err);
    }
    ok = ok && look_at(cli, training.job, &training, err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    wf_training_release(&training);
    return ok;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (wf_cli_flag(cli, "sweep"))
        return wf_sweep_run(cli, NULL, err);
    if (wf_cli_flag(cli, "scaling"))
        return wf_plan_scaling(cli, err);
    const char *const path = wf_options_text(cli->options, "data.path");
    if (path && !wf_options_is_set(cli->options, "data.size"))
        return run_with_data(cli, path, err);
    struct wf_job *const job = wf_cli_job(cli, &(struct wf_job_files){ .on_paper = true }, err);
    bool ok = job && look_at(cli, job, NULL, err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    wf_job_free(job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "explain", NULL, "print the steps of a rank" },
    { "rank", "R", "the rank to explain (0)" },
    { "svg", "FILE", "a picture: the grid with bytes, halo and time; with --sweep its curves" },
    WF_SWEEP_FLAGS,
    { "scaling", "LIST",
      "time, memory and efficiency on these numbers of devices, such as 1,8,64,1024" },
    { .name = NULL },
};

const struct wf_command wf_command_plan = {
    .name = "plan",
    .summary = "plan without running: bytes per rank, steps, messages and predicted time",
    .usage =
        "plan CONFIG [key=value ...] [--mesh AXES] [--explain] [--svg FILE] [--sweep] [--scaling LIST] "
        "[--json]",
    .notes =
        "--sweep plans images of several sides over several numbers of ranks (--sides, --over), with the\n"
        "mesh that the cost model chooses for each. --scaling plans the same step over several numbers of\n"
        "devices, on meshes of data, space and pipe, in nodes as the keys of 'cluster' say. With data.path\n"
        "the plan is that of 'train', with an epoch and validation. With memory.limit, results are recomputed in the\n"
        "backward pass and layers run in strips until every rank fits. If no plan fits, the exit status\n"
        "is 3 and the message names a limit or mesh that does.",
    .flags = flags,
    .config_at = 1,
    .run = run,
};
