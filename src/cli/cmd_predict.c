/* predict: images of any size through a trained network, window by window. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "config/options_settings.h"
#include "data/clouds.h"
#include "data/picture.h"
#include "train/predict_points.h"
#include "train/predictor.h"
#include "train/run_folder.h"

struct predict {
    struct wf_cli *cli;
    struct wf_checkpoint *checkpoint;
    struct wf_file_predictor predictor;
    const char *out;
    const char *format; /* NULL: as suits the image */
    const char *const *images;
    size_t n_images, shown; /* the second: the image that the bar is about */
    size_t first, complete; /* of those at hand: where they begin in the list; how many are done */
    size_t left_out;        /* images that could not be read */
    double start;           /* seconds: when the command began */
    double pixels;          /* of the images that are done */
    double since, seen;     /* when the bar's image was begun; when it was last computed on */
    struct wf_bar bar;
    struct wf_buffer table; /* a classifier's rows of predictions.csv */
};

static double pixels_of(const struct wf_prediction *one)
{
    const struct wf_shape *const shape = &one->image->shape;
    return (double)wf_shape_count(*shape) / (double)shape->at[WF_C];
}

static void show_progress(void *user, size_t at, const struct wf_prediction *one, double part)
{
    struct predict *const p = user;
    const double now = wf_now();
    at += p->first;
    if (at != p->shown || p->since == 0) { /* called behind its first window */
        p->shown = at;
        p->since = p->seen > 0 ? p->seen : p->start;
    }
    p->seen = now;
    if (!wf_bar_is_due(&p->bar))
        return;
    char left[32], text[200];
    const double seconds = now - p->since;
    wf_duration_text(part > 0 ? seconds / part - seconds : 0, left, sizeof left);
    (void)snprintf(text, sizeof text, "image %zu/%zu  %3.0f%%  %.3g Mpx/s  %s left  %.2f GiB",
                   at + 1, p->n_images, 100 * part, part * pixels_of(one) / seconds / 1e6, left,
                   wf_process_bytes() / (1 << 30));
    wf_bar_show(&p->bar, part, text);
}

static bool open_checkpoint(struct predict *p, struct wf_err *err)
{
    const char *const path = p->cli->arguments[0];
    struct wf_options *const o = p->cli->options;
    p->checkpoint = wf_checkpoint_of(path, &p->cli->log, err);
    if (!p->checkpoint)
        return false;
    const char *const config = wf_checkpoint_info(p->checkpoint)->config;
    if (!config)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has no config: it holds weights, but is no checkpoint of ours",
                          path);
    p->predictor =
        (struct wf_file_predictor){ .launch = p->cli->launch, .checkpoint = p->checkpoint };
    return wf_options_read_text(o, path, config, err) &&
           wf_options_settings(o, &p->predictor.settings, err) &&
           wf_file_predictor_init(&p->predictor, err);
}

/* --- files --- */

static bool make_folder(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    char *const part = wf_arena_copy(arena, path);
    for (char *c = part + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        (void)mkdir(part, 0777); /* the last one tells */
        *c = '/';
    }
    const bool made = mkdir(path, 0777) == 0;
    const int reason = errno == EEXIST ? ENOTDIR : errno;
    if (!made && !(reason == ENOTDIR && wf_path_is_folder(path, err)))
        return wf_err_set(err, WF_ERR_FAILED, "cannot make the folder '%s': %s", path,
                          wf_file_reason(reason));
    wf_folder_sweep(path, false); /* of those that were killed */
    return true;
}

static bool is_of_points(const struct predict *p)
{
    const struct wf_model *const model = p->predictor.settings.model;
    return model && model->sparse;
}

static bool find_images(struct predict *p, struct wf_err *err)
{
    struct wf_arena *const arena = &p->cli->arena;
    const char **all = NULL;
    size_t room = 0, count = 0;
    bool ok = true;
    for (int i = 1; ok && i < p->cli->n_arguments; i++) {
        const char *const *paths = NULL;
        size_t n = 0;
        ok = (is_of_points(p) ? wf_clouds_find : wf_pictures_find)(arena, p->cli->arguments[i],
                                                                   &paths, &n, err);
        for (size_t k = 0; ok && k < n; k++) {
            WF_GROW(all, room, count);
            all[count++] = paths[k];
        }
    }
    p->images =
        count ? memcpy(wf_arena_array(arena, count, const char *), all, count * sizeof *all) : NULL;
    p->n_images = count;
    free(all);
    for (size_t i = 0; ok && i < count; i++)
        for (size_t k = 0; ok && k < i; k++)
            if (strcmp(wf_picture_stem(arena, p->images[i]),
                       wf_picture_stem(arena, p->images[k])) == 0)
                ok =
                    wf_err_set(err, WF_ERR_USAGE,
                               "'%s' and '%s' would be written to the same file: predict them into "
                               "two folders",
                               p->images[k], p->images[i]);
    return ok;
}

static bool find_format(struct predict *p, struct wf_err *err)
{
    static const char *const known[] = { "tiff", "tif", "nifti", "png", "npy" };
    p->format = wf_cli_flag(p->cli, "format");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!p->format || strcmp(p->format, known[i]) == 0)
            return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "option '--format': '%s' is not one of tiff, nifti, png, npy", p->format);
}

/* Where nothing was asked for NIfTI stays NIfTI: no other format here holds its affine. */
static const char *find_ending(const struct predict *p, const struct wf_prediction *one)
{
    const bool nifti = strcmp(one->format, "NIfTI") == 0;
    const char *const format = p->format ? p->format : nifti ? "nifti" : "tif";
    if (strcmp(format, "nifti") == 0)
        return one->gzipped ? "nii.gz" : "nii";
    return strcmp(format, "tiff") == 0 ? "tif" : format;
}

static const char *file_name(const struct predict *p, const struct wf_prediction *one,
                             const char *what, const char *ending)
{
    struct wf_arena *const arena = &p->cli->arena;
    return wf_arena_printf(arena, "%s/%s_%s.%s", p->out, wf_picture_stem(arena, one->path), what,
                           ending);
}

/* "512", "512x512" or "32x128x128": the last is W. */
static bool find_window(struct predict *p, int64_t extents[WF_AXES], struct wf_err *err)
{
    const struct wf_cli_list_form form = { 'x', 3, INT32_MAX, "W, HxW or DxHxW pixels" };
    struct wf_cli_list window = { 0 };
    if (!wf_cli_flag_list(p->cli, "window", &form, &window, err))
        return false;
    for (int i = 0; i < window.count; i++)
        extents[WF_C - window.count + i] = window.at[i];
    if (window.count == 1)
        extents[WF_H] = window.at[0];
    return true;
}

/* Three numbers are for volumes. */
static bool check_window(const struct predict *p, const int64_t extents[WF_AXES],
                         struct wf_err *err)
{
    if (extents[WF_D] == 0 || p->predictor.config.dims > 2)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "--window '%s': the network is of images with 2 axes: give HxW pixels",
                      wf_cli_flag(p->cli, "window"));
}

/* --blend: how much windows overlap. */
static bool find_blend(struct predict *p, struct wf_prediction *each, struct wf_err *err)
{
    const char *const overlap = wf_cli_flag(p->cli, "overlap");
    each->is_blended = wf_cli_flag(p->cli, "blend") != NULL;
    each->overlap = 0.5;
    if (!overlap)
        return true;
    char *end;
    each->overlap = strtod(overlap, &end);
    if (*end || end == overlap || !(each->overlap >= 0 && each->overlap <= 0.9))
        return wf_err_set(err, WF_ERR_USAGE,
                          "option '--overlap': '%s' is no part of a window: use 0 to 0.9", overlap);
    return each->is_blended ||
           wf_err_set(err, WF_ERR_USAGE,
                      "option '--overlap' is for --blend: windows that are parts "
                      "of the whole image have no overlap to choose");
}

/* --- one image --- */

/* The files that are asked for. */
static bool name_files(void *user, size_t, struct wf_prediction *one, struct wf_err *)
{
    const struct predict *const p = user;
    const bool dense = one->per_pixel, numbers = one->predicts == WF_PREDICTS_NUMBERS;
    const char *const ending = find_ending(p, one);
    const char *const floats = strcmp(ending, "png") == 0 ? "tif" : ending;
    one->classes = dense && !numbers ? file_name(p, one, "classes", ending) : NULL;
    one->values = dense && (numbers || wf_cli_flag(p->cli, "probabilities"))
                      ? file_name(p, one, numbers ? "values" : "probabilities", floats)
                      : NULL;
    one->overlay = dense && !numbers && wf_cli_flag(p->cli, "overlay")
                       ? file_name(p, one, "overlay", ending)
                       : NULL;
    return true;
}

static const char *class_name(const struct predict *p, int label)
{
    const struct wf_checkpoint_info *const info = p->predictor.info;
    if (label < info->classes)
        return info->class_names[label];
    return wf_arena_printf(&p->cli->arena, "%d", label);
}

static cJSON *to_json(const struct predict *p, const struct wf_prediction *one,
                      const struct wf_predicted *result)
{
    const struct wf_shape *const shape = &one->image->shape;
    const int first = shape->at[WF_D] > 1 ? WF_D : WF_H;
    cJSON *const j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "image", one->path);
    cJSON *const size = cJSON_AddArrayToObject(j, "size");
    cJSON *const window = cJSON_AddArrayToObject(j, "window");
    for (int a = first; a <= WF_W; a++) {
        cJSON_AddItemToArray(size, cJSON_CreateNumber((double)shape->at[a]));
        cJSON_AddItemToArray(window, cJSON_CreateNumber((double)result->window[a]));
    }
    cJSON_AddNumberToObject(j, "windows", (double)result->windows);
    cJSON_AddBoolToObject(j, "exact", !one->is_blended);
    cJSON_AddNumberToObject(j, "passes", result->passes + 1);
    if (one->classes)
        cJSON_AddStringToObject(j, "classes", one->classes);
    if (one->values)
        cJSON_AddStringToObject(
            j, one->predicts == WF_PREDICTS_NUMBERS ? "values" : "probabilities", one->values);
    if (one->overlay)
        cJSON_AddStringToObject(j, "overlay", one->overlay);
    if (!one->per_pixel) {
        cJSON_AddNumberToObject(j, "class", result->label);
        cJSON_AddStringToObject(j, "name", class_name(p, result->label));
        cJSON *const all = cJSON_AddArrayToObject(j, "probabilities");
        for (int64_t c = 0; c < one->logits->shape.at[WF_C]; c++)
            cJSON_AddItemToArray(all, cJSON_CreateNumber((double)result->probabilities[c]));
    }
    cJSON_AddNumberToObject(j, "window_bytes", (double)result->bytes);
    cJSON_AddNumberToObject(j, "host_bytes", (double)result->host_bytes);
    cJSON_AddNumberToObject(j, "kept_bytes", (double)result->kept_bytes);
    cJSON_AddNumberToObject(j, "halo", result->halo);
    cJSON_AddNumberToObject(j, "seconds", result->seconds);
    cJSON_AddNumberToObject(j, "ready_seconds", result->ready_seconds);
    cJSON_AddNumberToObject(j, "mpx_per_s", pixels_of(one) / result->seconds / 1e6);
    return j;
}

static bool print(const struct predict *p, const struct wf_prediction *one,
                  const struct wf_predicted *result, struct wf_err *err)
{
    struct wf_arena *const arena = &p->cli->arena;
    if (p->cli->json)
        return wf_cli_print_json(p->cli, to_json(p, one, result), err);
    if (!one->per_pixel) {
        (void)printf("%s: %s (%.4f)\n", wf_text_shown(arena, one->path),
                     wf_text_shown(arena, class_name(p, result->label)),
                     (double)result->probabilities[result->label % one->logits->shape.at[WF_C]]);
        return true;
    }
    const int axes = one->image->shape.at[WF_D] > 1 ? 3 : 2;
    const double seconds = result->seconds - result->ready_seconds;
    const char *const how =
        one->is_blended
            ? wf_arena_printf(arena,
                              "blended, not the result of the whole image; %.1f times its work",
                              1 / (1 - result->halo))
            : wf_arena_printf(arena, "halo %.0f%%", 100 * result->halo);
    const char *const parts = wf_arena_printf(
        arena, "%" PRId64 " window%s of %s (%s)", result->windows, result->windows == 1 ? "" : "s",
        wf_text_extents(arena, axes, &result->window[WF_C - axes]), how);
    (void)printf("%s: %s in %s, %s after %s of preparation, %.3g Mpx/s\n",
                 wf_text_shown(arena, one->path),
                 wf_text_extents(arena, axes, &one->image->shape.at[WF_C - axes]), parts,
                 wf_text_seconds(arena, seconds), wf_text_seconds(arena, result->ready_seconds),
                 pixels_of(one) / seconds / 1e6);
    const char *const files[] = { one->classes, one->values, one->overlay };
    for (int i = 0; i < 3; i++)
        if (files[i])
            (void)printf("  %s\n", wf_text_shown(arena, files[i]));
    return true;
}

/* --- a classifier's table --- */

/* As spreadsheets read it: in quotes, quotes doubled. */
static void add_quoted(struct predict *p, const char *text)
{
    wf_buffer_text(&p->table, "\"");
    for (size_t n; *text; text += n) {
        n = text[0] == '"' ? 1 : strcspn(text, "\"");
        wf_buffer_printf(&p->table, "%s%.*s", text[0] == '"' ? "\"" : "", (int)n, text);
    }
    wf_buffer_text(&p->table, "\"");
}

static void add_row(struct predict *p, const char *path, int64_t channels, int label,
                    const float probabilities[])
{
    if (p->table.size == 0) {
        wf_buffer_text(&p->table, "image,class,name");
        for (int64_t c = 0; c < channels; c++) {
            wf_buffer_text(&p->table, ",");
            add_quoted(p, class_name(p, (int)c));
        }
        wf_buffer_text(&p->table, "\n");
    }
    add_quoted(p, path);
    wf_buffer_printf(&p->table, ",%d,", label);
    add_quoted(p, class_name(p, label));
    for (int64_t c = 0; c < channels; c++)
        wf_buffer_printf(&p->table, ",%.9g", (double)probabilities[c]);
    wf_buffer_text(&p->table, "\n");
}

static bool image_done(void *user, size_t, const struct wf_prediction *one,
                       const struct wf_predicted *result, struct wf_err *err)
{
    struct predict *const p = user;
    wf_bar_clear(&p->bar);
    p->pixels += pixels_of(one);
    p->complete++;
    if (!p->cli->launch.is_root)
        return true;
    if (!one->per_pixel)
        add_row(p, one->path, one->logits->shape.at[WF_C], result->label, result->probabilities);
    return print(p, one, result, err);
}

/* --- point clouds --- */

static bool is_classifier(const struct predict *p)
{
    return !wf_model_is_dense(p->predictor.settings.model, &p->predictor.config);
}

static bool name_clouds(void *user, size_t, struct wf_cloud_prediction *one, struct wf_err *)
{
    const struct predict *const p = user;
    struct wf_arena *const arena = &p->cli->arena;
    if (is_classifier(p))
        return true;
    const char *const slash = strrchr(one->path, '/');
    const char *const name = slash ? slash + 1 : one->path;
    const char *const dot = strrchr(name, '.');
    const char *const stem =
        wf_arena_printf(arena, "%s/%.*s", p->out, (int)(dot ? dot - name : 0), name);
    one->classes = wf_arena_printf(arena, "%s_classes.ply", stem);
    one->values = wf_cli_flag(p->cli, "probabilities")
                      ? wf_arena_printf(arena, "%s_probabilities.npz", stem)
                      : NULL;
    return true;
}

static cJSON *cloud_json(const struct predict *p, const struct wf_cloud_prediction *one)
{
    cJSON *const j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "cloud", one->path);
    cJSON_AddNumberToObject(j, "points", (double)one->points);
    cJSON_AddNumberToObject(j, "voxels", (double)one->voxels);
    if (one->classes)
        cJSON_AddStringToObject(j, "classes", one->classes);
    if (one->values)
        cJSON_AddStringToObject(j, "probabilities", one->values);
    if (is_classifier(p)) {
        cJSON_AddNumberToObject(j, "class", one->label);
        cJSON_AddStringToObject(j, "name", class_name(p, one->label));
        cJSON *const all = cJSON_AddArrayToObject(j, "probabilities");
        for (int64_t c = 0; c < p->predictor.config.classes; c++)
            cJSON_AddItemToArray(all, cJSON_CreateNumber((double)one->probabilities[c]));
    }
    cJSON_AddNumberToObject(j, "bytes", (double)one->bytes);
    cJSON_AddNumberToObject(j, "seconds", one->seconds);
    return j;
}

static bool cloud_done(void *user, size_t, const struct wf_cloud_prediction *one,
                       struct wf_err *err)
{
    struct predict *const p = user;
    struct wf_arena *const arena = &p->cli->arena;
    p->complete++;
    if (is_classifier(p))
        add_row(p, one->path, p->predictor.config.classes, one->label, one->probabilities);
    if (p->cli->json)
        return wf_cli_print_json(p->cli, cloud_json(p, one), err);
    if (is_classifier(p)) {
        (void)printf("%s: %s (%.4f)\n", wf_text_shown(arena, one->path),
                     wf_text_shown(arena, class_name(p, one->label)),
                     (double)one->probabilities[one->label % p->predictor.config.classes]);
        return true;
    }
    (void)printf("%s: %s points in %s voxels, %s\n", wf_text_shown(arena, one->path),
                 wf_text_count(arena, one->points), wf_text_count(arena, one->voxels),
                 wf_text_seconds(arena, one->seconds));
    const char *const files[] = { one->classes, one->values };
    for (int i = 0; i < 2; i++)
        if (files[i])
            (void)printf("  %s\n", wf_text_shown(arena, files[i]));
    return true;
}

/* --- the command --- */

/* From p->first on, until one fails. */
static bool predict_some(struct predict *p, struct wf_prediction each, struct wf_err *err)
{
    const char *const *const paths = p->images + p->first;
    const size_t count = p->n_images - p->first;
    p->complete = 0;
    if (is_of_points(p))
        return wf_predict_clouds(&p->predictor,
                                 &(struct wf_cloud_predictions){ .paths = paths,
                                                                 .count = count,
                                                                 .user = p,
                                                                 .open = name_clouds,
                                                                 .done = cloud_done },
                                 err);
    return wf_file_predictor_all(&p->predictor,
                                 &(struct wf_file_predictions){ .paths = paths,
                                                                .count = count,
                                                                .user = p,
                                                                .each = each,
                                                                .open = name_files,
                                                                .progress = show_progress,
                                                                .done = image_done },
                                 err);
}

/* What it says, or that it is not there at all. */
static bool is_of_file(const char *path, const struct wf_err *err)
{
    return err->code == WF_ERR_INPUT || (err->code == WF_ERR_FAILED && access(path, R_OK) != 0);
}

/* An image that cannot be read is named and left out: those before it are complete, those behind it follow. Processes of
 * a launcher end with the first, as they may not agree on the reason. */
static bool predict_all(struct predict *p, struct wf_prediction each, struct wf_err *err)
{
    while (!predict_some(p, each, err)) {
        const size_t failed = p->first + p->complete;
        if (p->cli->launch.world || p->n_images == 1 || failed >= p->n_images ||
            !is_of_file(p->images[failed], err))
            return false;
        p->first = failed + 1;
        p->left_out++;
        wf_bar_clear(&p->bar);
        wf_log(&p->cli->log, WF_LOG_ERROR, "%s", err->text);
        *err = (struct wf_err){ 0 };
        if (p->first >= p->n_images)
            break;
    }
    const size_t predicted = p->n_images - p->left_out;
    if (predicted > 1 && p->pixels > 0 && p->cli->launch.is_root && !p->cli->json) {
        const double seconds = wf_now() - p->start;
        (void)printf("%zu images in %s, %.3g Mpx/s; their own times overlap\n", predicted,
                     wf_text_seconds(&p->cli->arena, seconds), p->pixels / seconds / 1e6);
    }
    return p->left_out == 0 ||
           wf_err_set(err, WF_ERR_INPUT,
                      "%zu of %zu files were not predicted: see the messages above", p->left_out,
                      p->n_images);
}

static bool prepare(struct predict *p, struct wf_err *err)
{
    p->out = wf_cli_flag(p->cli, "out");
    if (p->cli->n_arguments < 2 || !p->out)
        return wf_err_set(err, WF_ERR_USAGE,
                          "give a checkpoint, images and a folder for the "
                          "results: 'widefield predict CKPT IMAGE... --out DIR'");
    return find_format(p, err) && open_checkpoint(p, err) && find_images(p, err) &&
           (!p->cli->launch.is_root || make_folder(&p->cli->arena, p->out, err));
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    const bool is_shown = !cli->quiet && cli->launch.is_root;
    struct predict p = {
        .cli = cli,
        .bar = { .out = is_shown ? stderr : NULL, .terminal = isatty(STDERR_FILENO) },
        .start = wf_now(),
    };
    struct wf_prediction each = { 0 };
    p.bar.shown = p.start;
    bool ok = find_window(&p, each.window, err) && find_blend(&p, &each, err) && prepare(&p, err) &&
              check_window(&p, each.window, err) &&
              wf_launch_same_file(&cli->launch, wf_checkpoint_path(p.checkpoint),
                                  wf_checkpoint_digest(p.checkpoint), err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    ok = ok && predict_all(&p, each, err);
    wf_bar_clear(&p.bar);
    struct wf_err own = { 0 };
    if (p.table.size > 0 && cli->launch.is_root) /* also what came before an image that failed */
        ok = wf_write_text(wf_arena_printf(&cli->arena, "%s/predictions.csv", p.out), p.table.data,
                           ok ? err : &own) &&
             ok;
    wf_buffer_release(&p.table);
    wf_checkpoint_free(p.checkpoint);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "out", "DIR", "folder for the results; created if missing" },
    { "probabilities", NULL, "also write the probabilities of all classes (f32)" },
    { "overlay", NULL, "also write the image with the classes drawn over it" },
    { "format", "NAME", "tiff, nifti, png or npy; default: nifti for NIfTI images, else tiff" },
    { "window", "HxW", "size of a window; default: as large as memory.limit allows" },
    { "blend", NULL,
      "not the result of the whole image: overlapping windows of the size of training's crops, blended" },
    { "overlap", "PART", "with --blend: what a window shares with the next; default 0.5" },
    { .name = NULL },
};

const struct wf_command wf_command_predict = {
    .name = "predict",
    .summary = "run a trained network on images of any size, in windows, without seams",
    .usage = "predict CKPT IMAGE... --out DIR [--probabilities] [--overlay] [--format NAME]",
    .notes =
        "For a network of points IMAGE is a point cloud: for x.ply the output is x_classes.ply, with a class\n"
        "and its colour for each point of the file, and with --probabilities x_probabilities.npz.\n"
        "CKPT is a file or a run folder (its best checkpoint). IMAGE may be a folder. For x.tif the\n"
        "output is x_classes.tif, with --probabilities also x_probabilities.tif, with --overlay also\n"
        "x_overlay.tif. Classifiers write predictions.csv. TIFFs keep resolution and georeferencing. For\n"
        "a NIfTI image the output is NIfTI (x_classes.nii.gz for x.nii.gz) with its affine, voxel sizes\n"
        "and units. The result is that of the whole image at once. Memory is bounded by memory.limit\n"
        "(default 1GiB, on a GPU what is free). PNG has no f32, so probabilities are then written as TIFF.\n"
        "Networks with norms over the whole image go over it once for each of them and keep what lies between in\n"
        "host memory: half of what is free, or of memory.limit on the CPU.\n"
        "With --blend each window is computed as an image of its own, as crops are in training, and counts most\n"
        "in its middle: for networks whose answer depends on the size of what they see. The result is not that\n"
        "of the whole image, and 'exact' in the JSON says so.\n"
        "An image that cannot be read is named and left out; the exit status is 1 then. The ranks of a launcher\n"
        "end with the first.\n"
        "The share of halo work is that of pixels computed for more than one window. With --ranks N or a\n"
        "launcher the windows are distributed over the ranks; --device and --threads work as in train.",
    .flags = flags,
    .opens_device = true,
    .run = run,
};
