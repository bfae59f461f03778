/* check --calibrate: measures what kernels and links take here, and keeps it for the cost model. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
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

/* All rows; a failure is met again at the end. */
static void keep(void *user, const struct wf_figures *figures)
{
    struct wf_arena arena = { 0 };
    struct wf_err ignored = { 0 };
    (void)wf_write_text(((struct watch *)user)->path, wf_figures_print(&arena, figures), &ignored);
    wf_arena_release(&arena);
}

static bool report(struct wf_cli *cli, const struct wf_figures *figures, const char *path,
                   double seconds, struct wf_err *err)
{
    struct wf_figures_link link = { 0 };
    const bool linked = wf_figures_link(figures, "threads", &link);
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "device", wf_figures_device(figures));
        cJSON_AddStringToObject(json, "machine", wf_figures_machine(figures));
        cJSON_AddStringToObject(json, "file", path);
        cJSON_AddNumberToObject(json, "kernels", wf_figures_count(figures));
        cJSON_AddNumberToObject(json, "seconds", seconds);
        if (linked) {
            cJSON_AddNumberToObject(json, "link_bytes_per_s", link.bytes_per_second);
            cJSON_AddNumberToObject(json, "link_us", 1e6 * link.seconds);
        }
        return wf_cli_print_json(cli, json, err);
    }
    struct wf_arena *const arena = &cli->arena;
    (void)printf("%s: %d kernels measured in %s", wf_figures_machine(figures),
                 wf_figures_count(figures), wf_text_seconds(arena, seconds));
    if (linked)
        (void)printf("; between ranks that are threads %s and %s/s",
                     wf_text_seconds(arena, link.seconds),
                     wf_text_bytes(arena, link.bytes_per_second));
    (void)printf("\nkept in '%s'\n", path);
    return true;
}

/* Before minutes of work that have no place to go. */
static bool is_writable(const char *path, struct wf_err *err)
{
    struct wf_outfile out;
    const bool ok = wf_outfile_begin(&out, path, err);
    wf_outfile_drop(&out);
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
    const char *const path = given ? given : wf_machine_path(&cli->arena, &settings, device);
    if (!path)
        return wf_err_set(err, WF_ERR_USAGE,
                          "run.cache is empty, so there is no place for figures: give --out FILE");
    double most = 0;
    const char *const limit = wf_cli_flag(cli, "seconds");
    if (limit && (sscanf(limit, "%lf", &most) != 1 || !(most > 0))) // NOLINT(cert-err34-c)
        return wf_err_set(err, WF_ERR_USAGE, "--seconds is a number above 0, not '%s'", limit);
    if (!given)
        wf_choices_make_folder(path);
    if (!is_writable(path, err))
        return false;
    struct watch watch = { .bar = { .out = cli->quiet ? NULL : stderr, .terminal = isatty(2) },
                           .path = path };
    const double start = wf_now();
    struct wf_figures *const figures = wf_calibrate(
        &(struct wf_calibrate){ .launch = &cli->launch,
                                .settings = &settings,
                                .one_precision =
                                    wf_options_get(cli->options, "train.precision")->origin !=
                                    WF_FROM_DEFAULT,
                                .seconds = most,
                                .progress = show,
                                .keep = keep,
                                .user = &watch },
        err);
    wf_bar_clear(&watch.bar);
    if (!figures)
        return wf_err_wrap(err, "calibration");
    const bool ok = wf_write_text(path, wf_figures_print(&cli->arena, figures), err) &&
                    report(cli, figures, path, wf_now() - start, err);
    wf_figures_free(figures);
    return ok;
}
