#include "train/scaling.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/progress.h"
#include "cli/scaling.h"
#include "cli/text.h"
#include "report/curves.h"
#include "train/foresight.h"

enum {
    SHOWN = 2
}; /* meshes of each number of devices, for people; and of other mixtures of axes the best */

struct study {
    struct wf_cli *cli;
    struct wf_job *job;
    struct wf_cli_list devices;
    struct wf_scaling *points; /* one for each */
    double one;                /* seconds on one device, had it the memory */
};

static double efficiency(const struct study *s, int devices, const struct wf_scaling_row *row)
{
    return s->one / (row->seconds * devices);
}

/* --- printing --- */

static cJSON *row_json(const struct study *s, int devices, const struct wf_scaling_row *row)
{
    cJSON *const one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "mesh", wf_mesh_print(&s->cli->arena, &row->mesh));
    cJSON_AddNumberToObject(one, "step_seconds", row->seconds);
    cJSON_AddNumberToObject(one, "efficiency", efficiency(s, devices, row));
    cJSON_AddNumberToObject(one, "compute_seconds", row->compute);
    cJSON_AddNumberToObject(one, "waiting_seconds", row->waiting);
    cJSON_AddNumberToObject(one, "bubble", row->bubble);
    cJSON_AddNumberToObject(one, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(one, "fetch_bytes", (double)row->fetch_bytes);
    cJSON_AddNumberToObject(one, "reduce_bytes", (double)row->reduce_bytes);
    cJSON_AddBoolToObject(one, "fits", row->fits);
    return one;
}

/* A line for each number of devices: its best mesh, and all that were planned. */
static bool print_json(const struct study *s, struct wf_err *err)
{
    bool ok = true;
    for (int i = 0; ok && i < s->devices.count; i++) {
        const struct wf_scaling *const p = &s->points[i];
        cJSON *const json = row_json(s, p->devices, &p->rows[0]);
        cJSON_AddNumberToObject(json, "devices", p->devices);
        cJSON *const all = cJSON_AddArrayToObject(json, "meshes");
        for (int k = 0; k < p->n_rows; k++)
            cJSON_AddItemToArray(all, row_json(s, p->devices, &p->rows[k]));
        ok = wf_cli_print_json(s->cli, json, err);
    }
    return ok;
}

static const char *title_of(const struct study *s)
{
    const struct wf_job *const job = s->job;
    struct wf_arena *const arena = &s->cli->arena;
    const struct wf_shape *const image = &job->net.image->shape;
    int64_t size[WF_AXES];
    int count = 0;
    size[count++] = image->at[WF_N];
    size[count++] = image->at[WF_C];
    for (int a = WF_C - job->config.dims; a < WF_C; a++)
        size[count++] = image->at[a];
    return wf_arena_printf(arena, "%s on %s, device %s, %s", job->model->name,
                           wf_text_extents(arena, count, size), job->device->name,
                           wf_precision_names[job->settings.train.precision]);
}

/* Whether a row is among the first, or has axes that none before it has. */
static bool is_shown(const struct wf_scaling *p, int row)
{
    bool seen = false;
    for (int k = 0; k < row; k++)
        seen = seen || wf_scaling_kind(&p->rows[k].mesh) == wf_scaling_kind(&p->rows[row].mesh);
    return row < SHOWN || !seen;
}

static void print_table(const struct study *s)
{
    struct wf_arena *const arena = &s->cli->arena;
    struct wf_table t = { .arena = arena };
    (void)printf("%s; the best mesh of each number of devices comes first\n\n", title_of(s));
    wf_table_row(&t, 9,
                 (const char *[]){ ">devices", "mesh", ">step", ">efficiency", ">waiting",
                                   ">memory", ">fetched", ">summed", "" });
    for (int i = 0; i < s->devices.count; i++) {
        const struct wf_scaling *const p = &s->points[i];
        for (int k = 0; k < p->n_rows; k++) {
            const struct wf_scaling_row *const row = &p->rows[k];
            if (!is_shown(p, k))
                continue;
            wf_table_row(&t, 9,
                         (const char *[]){
                             k == 0 ? wf_text_count(arena, p->devices) : "",
                             wf_mesh_print(arena, &row->mesh), wf_text_seconds(arena, row->seconds),
                             wf_arena_printf(arena, "%.1f%%", 100 * efficiency(s, p->devices, row)),
                             wf_text_seconds(arena, row->waiting),
                             wf_text_bytes(arena, (double)row->bytes),
                             wf_text_bytes(arena, (double)row->fetch_bytes),
                             wf_text_bytes(arena, (double)row->reduce_bytes),
                             row->fits ? "" : "does not fit" });
        }
    }
    wf_table_print(&t, stdout);
    (void)printf("\nmemory, fetched and summed: of the rank that has most; efficiency: against one "
                 "device, had it\nthe memory, which would take %s a step\n",
                 wf_text_seconds(arena, s->one));
    if (s->job->figures)
        (void)printf("figures of %s\n", wf_figures_machine(s->job->figures));
}

static const char *devices_text(struct wf_arena *arena, double value)
{
    return wf_text_count(arena, (int64_t)value);
}

/* Seconds of a step over devices, against those of one divided by their number. */
static bool write_svg(const struct study *s, const char *path, struct wf_err *err)
{
    struct wf_arena *const arena = &s->cli->arena;
    const int n = s->devices.count;
    double *const x = wf_arena_array(arena, 3 * n, double);
    const char **const labels = wf_arena_array(arena, n, const char *);
    for (int i = 0; i < n; i++) {
        const struct wf_scaling *const p = &s->points[i];
        x[i] = p->devices;
        x[n + i] = p->rows[0].seconds;
        x[2 * n + i] = s->one / p->devices;
        labels[i] = wf_arena_printf(arena, "%s, %.0f%%", wf_mesh_print(arena, &p->rows[0].mesh),
                                    100 * efficiency(s, p->devices, &p->rows[0]));
    }
    const struct wf_curve curves[] = {
        { .name = "best mesh", .x = x, .y = x + n, .n = (size_t)n, .labels = labels },
        { .name = "ideal", .x = x, .y = x + 2 * n, .n = (size_t)n, .guide = true },
    };
    const struct wf_curves picture = { .title = title_of(s),
                                       .subtitle = "a step, predicted, with the best mesh and its "
                                                   "efficiency",
                                       .x_name = "devices",
                                       .y_name = "seconds",
                                       .curves = curves,
                                       .n_curves = 2,
                                       .x_text = devices_text,
                                       .y_text = wf_text_seconds };
    return wf_write_text(path, wf_curves_svg(arena, &picture), err);
}

/* --- the command --- */

static bool find_one(struct study *s, struct wf_err *err)
{
    const struct wf_plan_options plan = wf_job_plan_options(s->job);
    struct wf_plan_options free_of_limit = plan;
    free_of_limit.limit = 0;
    free_of_limit.rough = true;
    const struct wf_mesh mesh = wf_mesh_one();
    struct wf_global_plan *const global =
        wf_global_plan_new(s->job->net.graph, &mesh, &free_of_limit, err);
    struct wf_all_ranks *const all = global ? wf_all_ranks_typical(global, err) : NULL;
    if (all)
        s->one = wf_foresight_step(s->job, all);
    const bool ok = all != NULL;
    wf_all_ranks_free(all);
    wf_global_plan_free(global);
    return ok;
}

static bool run_study(struct study *s, struct wf_err *err)
{
    struct wf_cli *const cli = s->cli;
    if (!find_one(s, err))
        return false;
    s->points = wf_arena_array(&cli->arena, s->devices.count, struct wf_scaling);
    for (int i = 0; i < s->devices.count; i++) {
        s->points[i] = (struct wf_scaling){ .job = s->job, .devices = (int)s->devices.at[i] };
        if (!wf_scaling_run(&s->points[i], err))
            return false;
    }
    const char *const svg = wf_cli_flag(cli, "svg");
    if (svg && !write_svg(s, svg, err))
        return false;
    if (cli->json)
        return print_json(s, err);
    print_table(s);
    return true;
}

/* Every mesh is planned: that of the file is for training. On the command line it is a mistake. */
static bool forget_mesh(struct wf_cli *cli, struct wf_err *err)
{
    static const char *const keys[] = { "mesh.data",  "mesh.domain", "mesh.pipe",
                                        "mesh.space", "mesh.auto",   "run.ranks" };
    bool of_file = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const enum wf_origin origin = wf_options_get(cli->options, keys[i])->origin;
        if (origin == WF_FROM_COMMAND_LINE || origin == WF_FROM_ENVIRONMENT)
            return wf_err_set(err, WF_ERR_USAGE,
                              "--scaling chooses its meshes: leave --mesh and --ranks out");
        of_file = of_file || origin == WF_FROM_FILE;
    }
    return !of_file || (wf_options_set(cli->options, "mesh.auto", "false", err) &&
                        wf_options_set(cli->options, "run.ranks", "1", err) &&
                        wf_options_set(cli->options, "mesh", "space=1", err));
}

static int compare_counts(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Rising, each once: a curve goes through them. */
static void sort_devices(struct wf_cli_list *devices)
{
    int count = 0;
    qsort(devices->at, (size_t)devices->count, sizeof devices->at[0], compare_counts);
    for (int i = 0; i < devices->count; i++)
        if (i == 0 || devices->at[i] != devices->at[count - 1])
            devices->at[count++] = devices->at[i];
    devices->count = count;
}

bool wf_plan_scaling(struct wf_cli *cli, struct wf_err *err)
{
    struct study s = { .cli = cli };
    const struct wf_cli_list_form form = {
        ',', WF_CLI_LIST, 65536, "up to 16 numbers of devices from 1 to 65536, as in 1,8,64,1024"
    };
    if (cli->launch.world)
        return wf_err_set(err, WF_ERR_USAGE,
                          "plan --scaling needs no ranks: run it without a launcher");
    if (wf_cli_flag(cli, "explain"))
        return wf_err_set(
            err, WF_ERR_USAGE,
            "--explain prints the steps of one mesh: give --mesh in place of --scaling");
    if (!forget_mesh(cli, err) || !wf_cli_flag_list(cli, "scaling", &form, &s.devices, err))
        return false;
    sort_devices(&s.devices);
    /* Of the network: its own plan is that of one rank, whatever that takes. */
    s.job = wf_cli_job(cli, &(struct wf_job_files){ .any_size = true, .on_paper = true }, err);
    bool ok = s.job != NULL;
    if (ok && (s.job->model->sparse || s.job->net.domains > 1))
        ok = wf_err_set(err, WF_ERR_USAGE,
                        "--scaling is for networks of images of one domain, not for '%s'",
                        s.job->model->name);
    ok = ok && run_study(&s, err);
    wf_job_free(s.job);
    return ok;
}
