/* data synth KIND --out DIR | inspect PATH: make a dataset, or look at one. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "data/inspect.h"
#include "data/synth.h"

/* --- synth --- */

/* "512x512", "64x128x128", or one number for all sides. */
static bool find_size(const struct wf_cli *cli, const struct wf_synth_kind *kind, int64_t size[3],
                      struct wf_err *err)
{
    const bool deep = kind->dims == 3;
    struct wf_cli_list sides = { 0 };
    const struct wf_cli_list_form form = { 'x', kind->dims, 1'000'000'000,
                                           kind->clouds ? "a number, such as 20000"
                                           : deep       ? "DxHxW, such as 64x128x128"
                                                        : "HxW, such as 1024x1024" };
    if (!wf_cli_flag_list(cli, "size", &form, &sides, err))
        return false;
    if (sides.count > 1 && sides.count < kind->dims)
        return wf_err_set(err, WF_ERR_USAGE, "--size '%s': expected %s", wf_cli_flag(cli, "size"),
                          form.expected);
    size[0] = 1;
    for (int i = 0; sides.count > 0 && i < kind->dims; i++)
        size[3 - kind->dims + i] = sides.at[sides.count == 1 ? 0 : i];
    return true;
}

struct progress {
    struct wf_bar bar;
    double started;
};

static void show_progress(void *user, double part)
{
    struct progress *const p = user;
    if (!wf_bar_is_due(&p->bar))
        return;
    char text[64];
    (void)snprintf(text, sizeof text, "widefield: drawing %3.0f%%, %.0f s left", 100 * part,
                   (wf_now() - p->started) / part * (1 - part));
    wf_bar_show(&p->bar, part, text);
}

/* What only some kinds have: --domain and --fonts. */
static bool find_domain(const struct wf_cli *cli, const struct wf_synth_kind *kind,
                        struct wf_synth_options *o, struct wf_err *err)
{
    const char *const name = wf_cli_flag(cli, "domain");
    char all[200] = "";
    o->fonts = wf_cli_flag(cli, "fonts");
    if (o->fonts && !kind->has_fonts)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is not drawn from fonts: leave --fonts out",
                          kind->name);
    if (!name)
        return true;
    if (!kind->domains)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' has no domains: leave --domain out", kind->name);
    for (int i = 0; kind->domains[i]; i++) {
        if (strcmp(kind->domains[i], name) == 0) {
            o->domain = i;
            return true;
        }
        const size_t n = strlen(all);
        (void)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", kind->domains[i]);
    }
    return wf_err_set(err, WF_ERR_USAGE, "--domain '%s': '%s' has %s", name, kind->name, all);
}

static bool synth(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments != 2)
        return wf_err_set(err, WF_ERR_USAGE,
                          "data synth takes one kind: data synth nuclei --out DIR");
    const struct wf_synth_kind *const kind = wf_synth_find(cli->arguments[1], err);
    const double started = wf_now();
    struct progress progress = {
        .bar = { .out = !cli->quiet && cli->launch.is_root ? stderr : NULL,
                 .terminal = isatty(STDERR_FILENO),
                 .shown = started },
        .started = started,
    };
    struct wf_synth_options o = { .out = wf_cli_flag(cli, "out"),
                                  .seed = (uint64_t)wf_options_int(cli->options, "train.seed"),
                                  .progress = show_progress,
                                  .user = &progress };
    const char *const size = wf_cli_flag(cli, "size");
    if (!kind || !wf_cli_flag_int(cli, "count", 1, 10000000, &o.count, err) ||
        !wf_cli_flag_int(cli, "tile", 1, 1000000, &o.tile, err) ||
        (size && !find_size(cli, kind, o.size, err)) || !find_domain(cli, kind, &o, err))
        return false;
    if (!o.out)
        return wf_err_set(err, WF_ERR_USAGE, "data synth needs --out DIR");
    /* Under a launcher one process draws, and nobody waits for it: nothing follows. */
    const bool ok = !cli->launch.is_root || wf_synth_run(kind, &o, err);
    wf_bar_clear(&progress.bar);
    if (!ok)
        return false;
    const int64_t count = o.count ? o.count : kind->count;
    const int64_t *const sides = (size ? o.size : kind->size) + 3 - kind->dims;
    if (!cli->json) {
        if (cli->launch.is_root)
            (void)printf("%s: %s %s of %s with %s\n", wf_text_shown(&cli->arena, o.out),
                         wf_text_count(&cli->arena, count), kind->clouds ? "clouds" : "images",
                         wf_text_extents(&cli->arena, kind->dims, sides),
                         kind->run ? "labels" : "masks");
        return true;
    }
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "kind", kind->name);
    if (kind->domains)
        cJSON_AddStringToObject(json, "domain", kind->domains[o.domain]);
    cJSON_AddStringToObject(json, "out", o.out);
    cJSON_AddNumberToObject(json, "count", (double)count);
    cJSON *const extents = cJSON_AddArrayToObject(json, "size");
    for (int i = 0; i < kind->dims; i++)
        cJSON_AddItemToArray(extents, cJSON_CreateNumber((double)sides[i]));
    cJSON_AddNumberToObject(json, "channels", kind->channels);
    cJSON_AddNumberToObject(json, "classes", kind->classes);
    cJSON_AddNumberToObject(json, "seconds", wf_now() - started);
    return wf_cli_print_json(cli, json, err);
}

/* --- inspect --- */

static const char *codes_text(struct wf_arena *arena, const struct wf_dataset_info *info, int c)
{
    const struct wf_data_class *const k = &info->classes[c];
    if (info->labels != WF_LABELS_PIXEL)
        return "";
    if (info->codes == WF_CODES_COLORS)
        return wf_arena_printf(arena, "#%06" PRIx64, (uint64_t)k->first);
    const char *const color =
        k->color >= 0 ? wf_arena_printf(arena, " #%06" PRIx32, (uint32_t)k->color) : "";
    if (k->first == k->last)
        return wf_arena_printf(arena, "%" PRId64 "%s", k->first, color);
    return wf_arena_printf(arena, "%" PRId64 "-%" PRId64 "%s", k->first, k->last, color);
}

static cJSON *extent_json(const struct wf_dataset_info *info, const int64_t extent[WF_AXES])
{
    cJSON *const list = cJSON_CreateArray();
    for (int a = info->dims == 3 ? WF_D : WF_H; a <= WF_W; a++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)extent[a]));
    return list;
}

static const char *const labels_names[] = { "none", "pixel", "image" };

static cJSON *classes_json(struct wf_cli *cli, const struct wf_dataset_info *info)
{
    cJSON *const list = cJSON_CreateArray();
    for (int c = 0; c < info->n_classes; c++) {
        const struct wf_data_class *const k = &info->classes[c];
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "label", c);
        cJSON_AddStringToObject(one, "name", k->name);
        cJSON_AddStringToObject(one, "in_file", codes_text(&cli->arena, info, c));
        cJSON_AddNumberToObject(one, "count", (double)k->found);
        cJSON_AddItemToArray(list, one);
    }
    return list;
}

static bool print_json(struct wf_cli *cli, const struct wf_dataset_info *info,
                       const struct wf_inspection *in, struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "path", info->path);
    cJSON_AddStringToObject(json, "format", wf_dataset_layout_names[info->layout]);
    cJSON_AddStringToObject(json, "why", info->why);
    cJSON_AddNumberToObject(json, "samples", (double)info->samples);
    cJSON_AddNumberToObject(json, "good", (double)in->good);
    cJSON_AddNumberToObject(json, "held_out", (double)in->held_out);
    cJSON_AddNumberToObject(json, "dims", info->dims);
    cJSON_AddNumberToObject(json, "channels", info->channels);
    cJSON_AddItemToObject(json, "smallest", extent_json(info, in->smallest));
    cJSON_AddItemToObject(json, "largest", extent_json(info, in->largest));
    cJSON_AddStringToObject(json, "labels", labels_names[info->labels]);
    cJSON_AddItemToObject(json, "classes", classes_json(cli, info));
    cJSON_AddNumberToObject(json, "other", (double)info->other);
    cJSON_AddNumberToObject(json, "scanned", (double)info->scanned);
    cJSON_AddBoolToObject(json, "scanned_all", info->scanned_all);
    if (in->measured) {
        cJSON_AddItemToObject(json, "mean",
                              cJSON_CreateDoubleArray(in->normal.mean, in->normal.channels));
        cJSON_AddItemToObject(json, "std",
                              cJSON_CreateDoubleArray(in->normal.std, in->normal.channels));
    }
    cJSON *const problems = cJSON_AddArrayToObject(json, "problems");
    for (int64_t i = 0; i < info->problems; i++)
        cJSON_AddItemToArray(problems, cJSON_CreateString(info->problem_texts[i]));
    if (in->unreadable)
        cJSON_AddItemToArray(problems, cJSON_CreateString(in->unreadable));
    cJSON *const warnings = cJSON_AddArrayToObject(json, "warnings");
    for (size_t i = 0; i < in->n_warnings; i++)
        cJSON_AddItemToArray(warnings, cJSON_CreateString(in->warnings[i]));
    return wf_cli_print_json(cli, json, err);
}

static const char *sizes_text(struct wf_cli *cli, const struct wf_dataset_info *info,
                              const struct wf_inspection *in)
{
    const int first = info->dims == 3 ? WF_D : WF_H;
    const char *const low = wf_text_extents(&cli->arena, info->dims, in->smallest + first);
    if (in->sizes == 1)
        return low;
    return wf_arena_printf(&cli->arena, "%s to %s", low,
                           wf_text_extents(&cli->arena, info->dims, in->largest + first));
}

static void print_classes(struct wf_cli *cli, const struct wf_dataset_info *info)
{
    struct wf_table t = { .arena = &cli->arena };
    wf_table_row(&t, 5,
                 (const char *[]){ ">label", "class", "in the file",
                                   info->labels == WF_LABELS_PIXEL
                                       ? (info->is_cloud ? ">points" : ">pixels")
                                       : (info->is_cloud ? ">clouds" : ">images"),
                                   ">share" });
    for (int c = 0; c < info->n_classes; c++) {
        const struct wf_data_class *const k = &info->classes[c];
        wf_table_row(
            &t, 5,
            (const char *[]){
                wf_arena_printf(&cli->arena, "%d", c), k->name, codes_text(&cli->arena, info, c),
                wf_text_count(&cli->arena, k->found),
                wf_arena_printf(&cli->arena, "%.3g%%",
                                info->scanned ? 100.0 * (double)k->found / (double)info->scanned
                                              : 0) });
    }
    (void)puts("");
    wf_table_print(&t, stdout);
    if (!info->scanned_all && info->labels == WF_LABELS_PIXEL)
        (void)printf("(of %s %s)\n", wf_text_count(&cli->arena, info->scanned),
                     info->is_cloud ? "points, of some of the clouds"
                                    : "pixels, spread over the masks");
}

static void print_text(struct wf_cli *cli, const struct wf_dataset_info *info,
                       const struct wf_inspection *in)
{
    static const char *const labels[] = { "none", "a mask for each image",
                                          "a label for each image" };
    static const char *const cloud_labels[] = { "none", "a label for each point",
                                                "a label for each cloud" };
    (void)printf("%s\n  layout    %s: %s\n  %s    %s%s\n", wf_text_shown(&cli->arena, info->path),
                 wf_dataset_layout_names[info->layout], wf_text_shown(&cli->arena, info->why),
                 info->is_cloud ? "clouds" : "images", wf_text_count(&cli->arena, info->samples),
                 in->held_out ? wf_arena_printf(&cli->arena, ", %s of them held out for validation",
                                                wf_text_count(&cli->arena, in->held_out))
                              : "");
    if (in->good > 0 && info->is_cloud)
        (void)printf("  size      %s to %s points, %d feature%s, %.4g million points in all\n",
                     wf_text_count(&cli->arena, in->smallest[WF_W]),
                     wf_text_count(&cli->arena, in->largest[WF_W]), info->channels,
                     info->channels == 1 ? "" : "s", in->pixels / 1e6);
    else if (in->good > 0)
        (void)printf("  size      %s, %d channel%s, %.4g megapixels in all\n",
                     sizes_text(cli, info, in), info->channels, info->channels == 1 ? "" : "s",
                     in->pixels / 1e6);
    (void)printf("  labels    %s\n", (info->is_cloud ? cloud_labels : labels)[info->labels]);
    for (int c = 0; in->measured && c < wf_min(in->normal.channels, 8); c++)
        (void)printf("  channel %d mean %.5g, deviation %.5g\n", c, in->normal.mean[c],
                     in->normal.std[c]);
    if (info->n_classes > 0)
        print_classes(cli, info);
    if (info->problems > 0 || in->unreadable)
        (void)puts("\nproblems:");
    for (int64_t i = 0; i < info->problems; i++)
        (void)printf("  %s\n", wf_text_shown(&cli->arena, info->problem_texts[i]));
    if (in->unreadable)
        (void)printf("  %s\n", wf_text_shown(&cli->arena, in->unreadable));
    if (in->n_warnings > 0)
        (void)puts("\nworth a look:");
    for (size_t i = 0; i < in->n_warnings; i++)
        (void)printf("  %s\n", wf_text_shown(&cli->arena, in->warnings[i]));
}

static bool inspect(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments != 2)
        return wf_err_set(err, WF_ERR_USAGE, "data inspect takes one folder");
    if (!cli->launch.is_root)
        return true;
    const struct wf_dataset_options options = {
        .layout = (enum wf_data_layout)wf_options_int(cli->options, "data.format"),
        .align = (enum wf_data_align)wf_options_int(cli->options, "data.align"),
        .alpha = (enum wf_data_alpha)wf_options_int(cli->options, "data.alpha"),
        .tolerate = true,
        .features = (unsigned)wf_options_int(cli->options, "data.features"),
        .points = wf_options_int(cli->options, "data.points"),
    };
    struct wf_dataset *const ds = wf_dataset_open(cli->arguments[1], &options, err);
    if (!ds)
        return false;
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    struct wf_inspection in;
    wf_inspect(ds, &in);
    bool ok = true;
    if (cli->json)
        ok = print_json(cli, info, &in, err);
    else
        print_text(cli, info, &in);
    const int64_t problems = info->problems + (in.unreadable != NULL);
    if (ok && problems > 0)
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s' has %" PRId64 " problem%s: training would refuse it", info->path,
                        problems, problems == 1 ? "" : "s");
    wf_inspection_release(&in);
    wf_dataset_free(ds);
    return ok;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments > 0 && strcmp(cli->arguments[0], "synth") == 0)
        return synth(cli, err);
    if (cli->n_arguments > 0 && strcmp(cli->arguments[0], "inspect") == 0)
        return inspect(cli, err);
    return wf_err_set(err, WF_ERR_USAGE,
                      "data makes a dataset or looks at one: data synth KIND --out DIR, data "
                      "inspect PATH");
}

static const struct wf_command_flag flags[] = {
    { "out", "DIR", "folder to create" },
    { "count", "N", "number of images" },
    { "size", "HxW", "size of an image; DxHxW for a volume" },
    { "tile", "T", "side of a subdomain, for discs (32)" },
    { "domain", "NAME", "look of the images, for kinds that have several" },
    { "fonts", "DIR", "folder of fonts, for digits (the system's)" },
    { .name = NULL },
};

const struct wf_command wf_command_data = {
    .name = "data",
    .summary = "make a synthetic dataset, or inspect a dataset and report its faults",
    .usage =
        "data synth KIND --out DIR [--count N] [--size HxW] [--seed S] [--domain NAME] | data inspect PATH",
    .notes =
        "Kinds: nuclei (microscopy), roads (aerial), vessels3d (volumes), discs (a line that only\n"
        "the mask shows), shapes (ten classes, in CIFAR-10's format), digits (from fonts, one folder per\n"
        "class; domains source, noise, inverted, textured), tissue (nuclei; domains source, brown, blue,\n"
        "inverted), rooms (point clouds of --size points), shapes3d (meshes of eight solids). Images above 4 megapixels are tiled TIFF, smaller ones PNG.\n"
        "\n"
        "inspect detects the layout (data.format=NAME overrides it) and reports the folders it was\n"
        "detected by: images/ and masks/ under many names, also in train/ and val/; NAME.tif and\n"
        "NAME_masks.tif; nnU-Net's raw layout; CIFAR-10's binary files; MNIST's; one folder per class.\n"
        "The exit status is 1 where training would refuse the folder.",
    .flags = flags,
    .run = run,
};
