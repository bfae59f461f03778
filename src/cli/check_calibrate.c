/* check --calibrate: measures what kernels and links take here, and keeps it for the cost model. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "cli/check.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "config/options_settings.h"
#include "device/choices.h"
#include "train/calibrate.h"
#include "train/device.h"
#include "train/machine.h"

struct watch {
    struct wf_bar bar;
    const char *path;
    struct wf_figures *older; /* of the same machine, that the file held; or NULL */
};

static void show(void *user, double part, const char *what)
{
    struct wf_bar *const bar = &((struct watch *)user)->bar;
    char text[64];
    if (!wf_bar_is_due(bar))
        return;
    (void)snprintf(text, sizeof text, bar->terminal ? "%.0f%%, %s" : "calibration: %.0f%%, %s",
                   100 * part, what);
    wf_bar_show(bar, part, text);
}

/* What was measured, and of the older figures what was not: a calibration that is cut off loses none. `*older`: how many
 * kernels of them there are. */
static bool write_beside_older(const struct watch *w, const struct wf_figures *figures, int *older,
                               struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_figures *const all =
        wf_figures_parse(wf_figures_print(&arena, figures), "what was measured", err);
    *older = all && w->older ? wf_figures_add_older(all, w->older) : 0;
    const bool ok = all && wf_write_text(w->path, wf_figures_print(&arena, all), err);
    wf_figures_free(all);
    wf_arena_release(&arena);
    return ok;
}

/* A failure is met again at the end. */
static void keep(void *user, const struct wf_figures *figures)
{
    struct wf_err ignored = { 0 };
    int older;
    (void)write_beside_older(user, figures, &older, &ignored);
}

struct result {
    const struct wf_figures *figures;
    const char *path;
    double seconds;
    int older; /* kernels that stay from before */
};

static bool report(struct wf_cli *cli, const struct result *r, struct wf_err *err)
{
    const struct wf_figures *const figures = r->figures;
    struct wf_figures_link link = { 0 };
    const bool linked = wf_figures_link(figures, "threads", &link);
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "device", wf_figures_device(figures));
        cJSON_AddStringToObject(json, "machine", wf_figures_machine(figures));
        cJSON_AddStringToObject(json, "file", r->path);
        cJSON_AddNumberToObject(json, "kernels", wf_figures_count(figures));
        cJSON_AddNumberToObject(json, "older_kernels", r->older);
        cJSON_AddNumberToObject(json, "seconds", r->seconds);
        if (linked) {
            cJSON_AddNumberToObject(json, "link_bytes_per_s", link.bytes_per_second);
            cJSON_AddNumberToObject(json, "link_us", 1e6 * link.seconds);
        }
        return wf_cli_print_json(cli, json, err);
    }
    struct wf_arena *const arena = &cli->arena;
    (void)printf("%s: %d kernels measured in %s", wf_figures_machine(figures),
                 wf_figures_count(figures), wf_text_seconds(arena, r->seconds));
    if (linked)
        (void)printf("; between ranks that are threads %s and %s/s",
                     wf_text_seconds(arena, link.seconds),
                     wf_text_bytes(arena, link.bytes_per_second));
    (void)printf("\nkept in '%s'", r->path);
    if (r->older > 0)
        (void)printf(", beside %d older ones, which this calibration did not reach", r->older);
    (void)printf("\n");
    return true;
}

/* Measuring takes minutes: a file that cannot be written is named before. */
static bool try_place(const char *path, struct wf_err *err)
{
    struct wf_outfile out;
    const bool ok = wf_outfile_begin(&out, path, err);
    wf_outfile_drop(&out);
    return ok;
}

/* --seconds; 0: not given. */
static bool find_seconds(struct wf_cli *cli, double *seconds, struct wf_err *err)
{
    const char *const text = wf_cli_flag(cli, "seconds");
    char *end = NULL;
    *seconds = text ? strtod(text, &end) : 0;
    if (text && (end == text || *end || !(*seconds > 0)))
        return wf_err_set(err, WF_ERR_USAGE, "--seconds is a number above 0, not '%s'", text);
    return true;
}

static bool measure(struct wf_cli *cli, const struct wf_settings *settings, struct watch *watch,
                    double seconds, struct wf_err *err)
{
    const double start = wf_now();
    bool is_whole = false;
    struct wf_figures *const figures = wf_calibrate(
        &(struct wf_calibrate){ .launch = &cli->launch,
                                .settings = settings,
                                .one_precision =
                                    wf_options_get(cli->options, "train.precision")->origin !=
                                    WF_FROM_DEFAULT,
                                .seconds = seconds,
                                .progress = show,
                                .keep = keep,
                                .user = watch },
        &is_whole, err);
    wf_bar_clear(&watch->bar);
    if (!figures)
        return wf_err_wrap(err, "calibration");
    struct result r = { .figures = figures, .path = watch->path, .seconds = wf_now() - start };
    if (is_whole) { /* in place of the older ones */
        wf_figures_free(watch->older);
        watch->older = NULL;
    }
    const bool ok = write_beside_older(watch, figures, &r.older, err) && report(cli, &r, err);
    wf_figures_free(figures);
    return ok;
}

bool wf_check_calibrate(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_settings settings;
    if (cli->launch.world)
        return wf_err_set(err, WF_ERR_USAGE,
                          "check --calibrate is for one process: run it without a launcher");
    if (!wf_options_settings(cli->options, &settings, err))
        return false;
    const struct wf_device *const device = wf_settings_device(&settings, err);
    if (!device)
        return false;
    const char *const given = wf_cli_flag(cli, "out");
    const char *const path =
        given ? given : wf_machine_path(&cli->arena, &settings, device, wf_cores());
    if (!path)
        return wf_err_set(err, WF_ERR_USAGE,
                          "run.cache is empty, so there is no place for figures: give --out FILE");
    double seconds;
    if (!find_seconds(cli, &seconds, err))
        return false;
    if (!given)
        wf_choices_make_folder(path);
    if (!try_place(path, err))
        return false;
    struct watch watch = { .bar = { .out = cli->quiet ? NULL : stderr, .terminal = isatty(2) },
                           .path = path,
                           .older = wf_machine_older(path, device, !given) };
    const bool ok = measure(cli, &settings, &watch, seconds, err);
    wf_figures_free(watch.older);
    return ok;
}
