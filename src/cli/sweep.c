#include "cli/sweep.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>

#include "base/file.h"
#include "config/options_settings.h"
#include "cli/text.h"
#include "train/all_ranks.h"
#include "report/curves.h"
#include "train/device.h"

struct sweep {
    struct wf_cli *cli;
    wf_sweep_measure *measure;
    const char *name; /* of the network */
    struct wf_model_config config;
    struct wf_cli_list sides, ranks;
    struct wf_sweep_point *points; /* [rank count * sides + side] */
};

/* --- what is asked for --- */

static bool read_flags(struct sweep *s, struct wf_err *err)
{
    static const struct wf_cli_list sides[] = {
        { { 65536, 262144, 524288, 1048576, 2097152, 4194304, 8388608 }, 7 },
        { { 256, 512, 1024, 1536, 2048, 3072, 4096, 6144 }, 8 },
        { { 32, 64, 96, 128, 170, 224, 300, 400 }, 8 },
    };
    static const struct wf_cli_list ranks = { { 1, 5, 6, 9, 10, 12, 28 }, 7 };
    const struct wf_options *const o = s->cli->options;
    if (s->cli->launch.world)
        return wf_err_set(err, WF_ERR_USAGE,
                          "--sweep goes over numbers of ranks: run it without a launcher");
    if (wf_options_mesh_given(o) || wf_options_is_set(o, "run.ranks"))
        return wf_err_set(err, WF_ERR_USAGE,
                          "--sweep chooses its meshes: give numbers of ranks with --over");
    struct wf_settings settings;
    if (!wf_options_settings(s->cli->options, &settings, err) ||
        !wf_settings_config(&settings, 0, NULL, &s->config, err))
        return false;
    s->name = settings.model->name;
    s->sides = sides[s->config.dims - 1];
    s->ranks = ranks;
    const struct wf_cli_list_form side = { ',', WF_CLI_LIST, 1'000'000'000,
                                           "up to 16 sides, as in 256,512,1024" };
    const struct wf_cli_list_form over = { ',', WF_CLI_LIST, 4096,
                                           "up to 16 numbers of ranks, as in 1,2,4" };
    return wf_cli_flag_list(s->cli, "sides", &side, &s->sides, err) &&
           wf_cli_flag_list(s->cli, "over", &over, &s->ranks, err);
}

/* --- the points --- */

/* Half of the memory for all ranks together (others live here too), and the limit for each. */
static bool fits_here(const struct wf_options *o, const struct wf_sweep_point *p)
{
    const int64_t limit = wf_options_int(o, "memory.limit");
    const double half = 0.5 * wf_machine_bytes();
    return p->all_bytes <= half && (!limit || p->bytes <= (double)limit);
}

static bool fill_point(const struct sweep *s, struct wf_job *job, struct wf_sweep_point *p,
                       struct wf_err *err)
{
    struct wf_all_ranks *const all = wf_all_ranks_new(job->global, NULL, err);
    if (!all)
        return false;
    p->mesh = wf_mesh_print(&s->cli->arena, &job->mesh);
    for (int i = 0; i < all->n_ranks; i++) {
        const struct wf_rank_figures *const r = &all->ranks[i];
        const double bytes =
            (double)(r->arena_bytes + r->weight_bytes + wf_job_optim_bytes(job, r->trained_count));
        p->bytes = fmax(p->bytes, bytes);
        p->all_bytes += bytes;
        p->seconds = fmax(p->seconds, r->seconds);
    }
    wf_all_ranks_free(all);
    if (!s->measure || !fits_here(s->cli->options, p))
        return true;
    return s->measure(job, p, err);
}

/* A mesh that cannot be leaves the point out; everything else is an error. */
static bool make_point(const struct sweep *s, int ranks, int64_t side, struct wf_sweep_point *p,
                       struct wf_err *err)
{
    *p = (struct wf_sweep_point){
        .side = side, .ranks = ranks, .peak = (double)NAN, .measured = (double)NAN
    };
    struct wf_job_files files = { .count = 2 + s->config.dims,
                                  .size = { 1, s->config.in },
                                  .any_size = true,
                                  .on_paper = !s->measure };
    for (int i = 0; i < s->config.dims; i++)
        files.size[2 + i] = side;
    char text[16];
    (void)snprintf(text, sizeof text, "%d", ranks);
    if (!wf_options_set(s->cli->options, "run.ranks", text, err))
        return false;
    /* Nobody wants to read which mesh was chosen fifty times. */
    const enum wf_log_level level = s->cli->log.level;
    s->cli->log.level = level > WF_LOG_WARN ? WF_LOG_WARN : level;
    struct wf_job *const job = wf_cli_job(s->cli, &files, err);
    bool ok = job && fill_point(s, job, p, err);
    wf_job_free(job);
    s->cli->log.level = level;
    if (!job && (err->code == WF_ERR_FIT || err->code == WF_ERR_USAGE)) {
        wf_log(&s->cli->log, WF_LOG_WARN, "side %" PRId64 " over %d ranks is left out: %s", side,
               ranks, err->text);
        *err = (struct wf_err){ 0 };
        ok = true;
    }
    return ok;
}

/* --- printing --- */

static const char *side_text(struct wf_arena *arena, double side)
{
    return wf_text_count(arena, (int64_t)side);
}

static bool print_json(const struct sweep *s, struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "model", s->name);
    cJSON_AddNumberToObject(json, "dims", s->config.dims);
    cJSON *const all = cJSON_AddArrayToObject(json, "points");
    for (int i = 0; i < s->ranks.count * s->sides.count; i++) {
        const struct wf_sweep_point *const p = &s->points[i];
        if (!p->mesh)
            continue;
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "side", (double)p->side);
        cJSON_AddNumberToObject(one, "ranks", p->ranks);
        cJSON_AddStringToObject(one, "mesh", p->mesh);
        cJSON_AddNumberToObject(one, "planned_bytes", p->bytes);
        cJSON_AddNumberToObject(one, "step_seconds", p->seconds);
        if (isfinite(p->peak)) {
            cJSON_AddNumberToObject(one, "peak_bytes", p->peak);
            cJSON_AddNumberToObject(one, "ms", 1e3 * p->measured);
        }
        cJSON_AddItemToArray(all, one);
    }
    return wf_cli_print_json(s->cli, json, err);
}

/* A row for each side, a column for each number of ranks. */
static void print_matrix(const struct sweep *s)
{
    struct wf_arena *const arena = &s->cli->arena;
    struct wf_table t = { .arena = arena };
    const char *cells[WF_TABLE_COLUMNS];
    const int columns =
        1 + (s->ranks.count < WF_TABLE_COLUMNS - 1 ? s->ranks.count : WF_TABLE_COLUMNS - 1);
    cells[0] = ">side";
    for (int r = 0; r + 1 < columns; r++)
        cells[1 + r] = wf_arena_printf(arena, ">%s", wf_text_ranks(arena, (int)s->ranks.at[r]));
    wf_table_row(&t, columns, cells);
    for (int i = 0; i < s->sides.count; i++) {
        cells[0] = wf_text_count(arena, s->sides.at[i]);
        for (int r = 0; r + 1 < columns; r++) {
            const struct wf_sweep_point *const p = &s->points[r * s->sides.count + i];
            cells[1 + r] = p->mesh ? wf_text_bytes(arena, p->bytes) : "-";
        }
        wf_table_row(&t, columns, cells);
    }
    wf_table_print(&t, stdout);
}

/* What was measured, point by point. */
static void print_points(const struct sweep *s)
{
    struct wf_arena *const arena = &s->cli->arena;
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 6,
                 (const char *[]){ ">side", ">ranks", "mesh", ">planned", ">used", ">step" });
    for (int i = 0; i < s->ranks.count * s->sides.count; i++) {
        const struct wf_sweep_point *const p = &s->points[i];
        const bool ran = isfinite(p->peak);
        if (!p->mesh)
            continue;
        wf_table_row(&t, 6,
                     (const char *[]){ wf_text_count(arena, p->side),
                                       wf_arena_printf(arena, "%d", p->ranks), p->mesh,
                                       wf_text_bytes(arena, p->bytes),
                                       ran ? wf_text_bytes(arena, p->peak) : "too large here",
                                       ran ? wf_text_seconds(arena, p->measured) : "" });
    }
    wf_table_print(&t, stdout);
}

/* A line for each number of ranks, rings where it was measured. */
static bool write_svg(const struct sweep *s, const char *path, struct wf_err *err)
{
    struct wf_arena *const arena = &s->cli->arena;
    const int n = s->sides.count;
    const int count = 2 * s->ranks.count;
    struct wf_curve *const curves = wf_arena_array(arena, count, struct wf_curve);
    for (int r = 0; r < s->ranks.count; r++) {
        double *const values = wf_arena_array(arena, 3 * n, double);
        for (int i = 0; i < n; i++) {
            const struct wf_sweep_point *const p = &s->points[r * n + i];
            values[i] = (double)p->side;
            values[n + i] = p->mesh ? p->bytes : (double)NAN;
            values[2 * n + i] = p->peak;
        }
        const char *const name = wf_text_ranks(arena, (int)s->ranks.at[r]);
        curves[2 * r] =
            (struct wf_curve){ .name = name, .x = values, .y = values + n, .n = (size_t)n };
        curves[2 * r + 1] = curves[2 * r];
        curves[2 * r + 1].name = wf_arena_printf(arena, "%s, used", name);
        curves[2 * r + 1].y = values + 2 * n;
        curves[2 * r + 1].marks_only = true;
    }
    const struct wf_curves picture = {
        .title = wf_arena_printf(arena, "%s, %dD: memory of a rank", s->name, s->config.dims),
        .subtitle =
            "one image a step; weights, optimiser, activations and scratch of the rank that "
            "needs most",
        .x_name = "side of the image",
        .y_name = "bytes",
        .curves = curves,
        .n_curves = count,
        .x_text = side_text,
        .y_text = wf_text_bytes,
    };
    return wf_write_text(path, wf_curves_svg(arena, &picture), err);
}

bool wf_sweep_run(struct wf_cli *cli, wf_sweep_measure *measure, struct wf_err *err)
{
    struct sweep s = { .cli = cli, .measure = measure };
    if (!read_flags(&s, err))
        return false;
    const int n = s.ranks.count * s.sides.count;
    s.points = wf_arena_array(&cli->arena, n, struct wf_sweep_point);
    for (int i = 0; i < n; i++)
        if (!make_point(&s, (int)s.ranks.at[i / s.sides.count], s.sides.at[i % s.sides.count],
                        &s.points[i], err))
            return false;
    const char *const svg = wf_cli_flag(cli, "svg");
    if (svg && !write_svg(&s, svg, err))
        return false;
    if (cli->json)
        return print_json(&s, err);
    (void)printf("%s, %dD, one image a step: bytes of the rank that needs most\n\n", s.name,
                 s.config.dims);
    if (measure)
        print_points(&s);
    else
        print_matrix(&s);
    return true;
}
