/* bench --scaling: the same step on more and more ranks, with a batch that grows with them (weak) and
 * with one that does not (strong). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "config/options_settings.h"
#include "report/curves.h"
#include "report/runlog.h"
#include "train/feed.h"
#include "train/journal.h"
#include "train/stepper.h"

enum { POINTS_MAX = 16 };
enum { WEAK, STRONG, KINDS };
static const char *const names[KINDS] = { "weak", "strong" };

struct point {
    int ranks;
    int64_t batch; /* global; 0: fewer samples than ranks, nothing was measured */
    double seconds, rate, efficiency; /* of a step; images per second; against the first */
    double loss;                      /* after the steps */
    double train_loss, mean_iou;      /* after training; NaN: not asked for */
};

struct contest {
    struct wf_cli *cli;
    const char *out; /* of trainings; NULL: none */
    int64_t steps, warmup;
    int64_t batch; /* that the first number of ranks has */
    int count;
    struct point points[KINDS][POINTS_MAX];
    /* of the point under way */
    struct wf_job *job;
    struct point *point;
    char title[128];
};

/* --- one point --- */

static bool time_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct contest *const c = arg;
    struct wf_stepper stepper = { 0 };
    struct wf_arena arena = { 0 };
    double *const seconds = wf_arena_array(&arena, c->steps, double);
    double loss = 0;
    bool ok = wf_stepper_init(&stepper, c->job, comm, NULL, err);
    for (int64_t i = -c->warmup; ok && i < c->steps; i++) {
        ok = wf_comm_barrier(comm, err);
        const double start = wf_now();
        ok = ok && wf_stepper_step(&stepper, err) && wf_comm_barrier(comm, err);
        if (i >= 0)
            seconds[i] = wf_now() - start;
    }
    ok = ok && wf_stepper_loss(&stepper, &loss, err);
    if (ok && wf_comm_rank(comm) == 0) {
        c->point->seconds = wf_median(seconds, c->steps);
        c->point->loss = loss;
    }
    wf_stepper_release(&stepper);
    wf_arena_release(&arena);
    return ok;
}

static bool set_number(struct wf_cli *cli, const char *key, int64_t number, struct wf_err *err)
{
    return wf_options_set(cli->options, key, wf_arena_printf(&cli->arena, "%" PRId64, number), err);
}

/* The sizes of a sample, from data.size, or as the dataset has them. */
static bool find_sizes(const struct wf_cli *cli, struct wf_settings *s, struct wf_job_files *files,
                       struct wf_err *err)
{
    const struct wf_extents *const size = &s->data.size;
    const char *const path = wf_options_text(cli->options, "data.path");
    files->count = size->count;
    memcpy(files->size, size->at, sizeof files->size);
    if (size->count || !path)
        return true; /* data.crop and train.batch */
    struct wf_feed feed = { 0 };
    const bool ok = wf_feed_open(&feed, &cli->launch, s, path, WF_PART_VALID, err);
    if (ok)
        wf_feed_size(&feed, files);
    wf_feed_release(&feed);
    return ok;
}

static bool time_point(struct contest *c, struct wf_err *err)
{
    struct wf_job_files files = { 0 };
    struct wf_settings settings;
    if (!wf_options_settings(c->cli->options, &settings, err) ||
        !find_sizes(c->cli, &settings, &files, err))
        return false;
    files.size[0] = c->point->batch;
    c->job = wf_job_new(&c->cli->launch, &settings, &files, err);
    const bool ok = c->job && wf_job_run(c->job, time_rank, c, err);
    if (ok)
        (void)snprintf(c->title, sizeof c->title, "%s, %d thread%s a rank, %s", c->job->model->name,
                       c->job->threads, c->job->threads == 1 ? "" : "s", c->job->device->name);
    wf_job_free(c->job);
    c->job = NULL;
    c->point->rate = (double)c->point->batch / c->point->seconds;
    return ok;
}

/* A whole training, as `train` makes it, in a folder of its own; what came of it is in its log. */
static bool train_point(struct contest *c, const char *name, struct wf_err *err)
{
    struct wf_cli sub = *c->cli;
    sub.arena = (struct wf_arena){ 0 };
    sub.command = &wf_command_train;
    sub.mute = true;
    for (int i = 0; i < WF_CLI_FLAGS; i++)
        sub.flags[i] = NULL;
    const char *const folder = wf_arena_printf(&c->cli->arena, "%s/%s", c->out, name);
    wf_cli_set_flag(&sub, "out", folder);
    bool ok = wf_command_train.run(&sub, err);
    wf_arena_release(&sub.arena);
    struct wf_runlog log;
    if (!ok || !wf_runlog_read(&log, wf_arena_printf(&c->cli->arena, "%s/log.jsonl", folder), err))
        return false;
    const struct wf_log_row *const last = wf_log_last(&log.epochs);
    if (last) {
        c->point->train_loss = last->at[WF_LOG_TRAIN_LOSS];
        c->point->mean_iou = last->at[log.per_image ? WF_LOG_ACCURACY : WF_LOG_MEAN_IOU];
    }
    wf_runlog_release(&log);
    return true;
}

static bool measure(struct contest *c, int kind, int i, struct wf_err *err)
{
    struct wf_cli *const cli = c->cli;
    struct point *const p = c->point = &c->points[kind][i];
    const int first = c->points[kind][0].ranks;
    p->batch = kind == WEAK ? c->batch * p->ranks / first : c->batch;
    p->train_loss = p->mean_iou = (double)NAN;
    const char *const name = wf_arena_printf(&cli->arena, "%s-%d", names[kind], p->ranks);
    if (p->batch < p->ranks) {
        wf_log(&cli->log, WF_LOG_WARN,
               "%s is left out: a batch of %" PRId64 " has nothing for each of %d ranks: take a "
               "larger one",
               name, p->batch, p->ranks);
        p->batch = 0;
        return true;
    }
    if (!set_number(cli, "mesh.data", p->ranks, err) || !time_point(c, err))
        return wf_err_wrap(err, "%s", name);
    p->efficiency = p->rate / c->points[kind][0].rate * first / p->ranks;
    wf_log(&cli->log, WF_LOG_INFO, "%s: %.1f images/s", name, p->rate);
    if (!c->out)
        return true;
    return (set_number(cli, "train.batch", p->batch, err) &&
            wf_options_set(cli->options, "train.batch_is", "global", err) &&
            train_point(c, name, err)) ||
           wf_err_wrap(err, "%s", name);
}

/* --- the command --- */

static bool read_list(struct contest *c, struct wf_err *err)
{
    const struct wf_cli_list_form form = { ',', POINTS_MAX, 4096,
                                           "up to 16 numbers of ranks, as in 1,2,4" };
    struct wf_cli_list ranks = { 0 };
    if (!wf_cli_flag_list(c->cli, "scaling", &form, &ranks, err))
        return false;
    c->count = ranks.count;
    for (int i = 0; i < ranks.count; i++)
        c->points[WEAK][i].ranks = c->points[STRONG][i].ranks = (int)ranks.at[i];
    return true;
}

static bool prepare(struct contest *c, struct wf_err *err)
{
    struct wf_cli *const cli = c->cli;
    if (cli->launch.world)
        return wf_err_set(err, WF_ERR_USAGE,
                          "bench --scaling starts ranks as threads of one process: run it without "
                          "a launcher, or 'bench' under it for each number of ranks");
    const struct wf_setting *const size = wf_options_get(cli->options, "data.size");
    c->batch = size->is_set ? size->list[0] : wf_options_int(cli->options, "train.batch");
    c->out = wf_cli_flag(cli, "out");
    if (c->out && !wf_options_text(cli->options, "data.path"))
        return wf_err_set(err, WF_ERR_USAGE,
                          "--out is where runs are trained: give data.path to train on");
    /* The same for every number of ranks: otherwise few ranks would have more cores each. */
    return wf_options_is_set(cli->options, "run.threads") || set_number(cli, "run.threads", 1, err);
}

static bool print_json(const struct contest *c, struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "what", c->title);
    for (int kind = 0; kind < KINDS; kind++) {
        cJSON *const list = cJSON_AddArrayToObject(json, names[kind]);
        for (int i = 0; i < c->count; i++) {
            const struct point *const p = &c->points[kind][i];
            if (p->batch == 0)
                continue;
            cJSON *const one = cJSON_CreateObject();
            (void)cJSON_AddNumberToObject(one, "ranks", p->ranks);
            (void)cJSON_AddNumberToObject(one, "batch", (double)p->batch);
            wf_json_add_real(one, "ms", 1e3 * p->seconds);
            wf_json_add_real(one, "images_per_s", p->rate);
            wf_json_add_real(one, "efficiency", p->efficiency);
            wf_json_add_real(one, "loss", p->loss);
            if (c->out) {
                wf_json_add_real(one, "train_loss", p->train_loss);
                wf_json_add_real(one, "metric", p->mean_iou);
            }
            (void)cJSON_AddItemToArray(list, one);
        }
    }
    return wf_cli_print_json(c->cli, json, err);
}

static void print_table(const struct contest *c)
{
    (void)printf("%s\n%-7s %6s %7s %10s %10s %11s %10s", c->title, "", "ranks", "batch", "ms",
                 "images/s", "efficiency", "loss");
    (void)printf(c->out ? " %11s %10s\n" : "\n", "train loss", "metric");
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < c->count; i++) {
            const struct point *const p = &c->points[kind][i];
            if (p->batch == 0)
                continue;
            (void)printf("%-7s %6d %7" PRId64 " %10.1f %10.2f %10.0f%% %10.4f", names[kind],
                         p->ranks, p->batch, 1e3 * p->seconds, p->rate, 100 * p->efficiency,
                         p->loss);
            if (c->out)
                (void)printf(" %11.4f %10.4f", p->train_loss, p->mean_iou);
            (void)printf("\n");
        }
}

static const char *number_text(struct wf_arena *arena, double value)
{
    return wf_arena_printf(arena, "%.4g", value);
}

/* Images per second over ranks, against what they would be if nothing were lost. */
static bool write_svg(const struct contest *c, const char *path, struct wf_err *err)
{
    struct wf_arena *const arena = &c->cli->arena;
    const double each = c->points[WEAK][0].rate / c->points[WEAK][0].ranks;
    double ranks[POINTS_MAX], rates[KINDS][POINTS_MAX], ideal[POINTS_MAX];
    const char *labels[KINDS][POINTS_MAX];
    struct wf_curve curves[KINDS + 1];
    for (int i = 0; i < c->count; i++) {
        ranks[i] = c->points[WEAK][i].ranks;
        ideal[i] = each * ranks[i];
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < c->count; i++) {
            const struct point *const p = &c->points[kind][i];
            rates[kind][i] = p->batch > 0 ? p->rate : (double)NAN;
            labels[kind][i] = wf_arena_printf(arena, "%.0f%%", 100 * p->efficiency);
        }
        curves[kind] = (struct wf_curve){ .name = names[kind],
                                          .x = ranks,
                                          .y = rates[kind],
                                          .n = (size_t)c->count,
                                          .labels = labels[kind] };
    }
    curves[KINDS] = (struct wf_curve){
        .name = "ideal", .x = ranks, .y = ideal, .n = (size_t)c->count, .guide = true
    };
    const struct wf_curves picture = { .title = c->title,
                                       .subtitle = "with the efficiency against the first point",
                                       .x_name = "ranks",
                                       .y_name = "images per second",
                                       .curves = curves,
                                       .n_curves = KINDS + 1,
                                       .x_text = number_text,
                                       .y_text = number_text };
    return wf_write_text(path, wf_curves_svg(arena, &picture), err);
}

bool wf_bench_scaling(struct wf_cli *cli, int64_t steps, int64_t warmup, struct wf_err *err)
{
    struct contest c = { .cli = cli, .steps = steps, .warmup = warmup };
    if (!read_list(&c, err) || !prepare(&c, err))
        return false;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < c.count; i++)
            if (!measure(&c, kind, i, err))
                return false;
    const char *const svg = wf_cli_flag(cli, "svg");
    if (svg && !write_svg(&c, svg, err))
        return false;
    if (cli->json)
        return print_json(&c, err);
    print_table(&c);
    return true;
}
