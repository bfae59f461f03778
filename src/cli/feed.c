#include "cli/feed.h"

#include <inttypes.h>
#include <string.h>

#include "cli/text.h"
#include "train/metrics.h"

/* A whole image is validated at once where it has at most so many pixels of a training crop: without
 * gradients it then needs about the memory of a training step. */
enum { WHOLE_CROPS = 4 };

/* --- options --- */

static bool put(struct wf_feed *feed, const char *key, const char *text, struct wf_err *err)
{
    return wf_options_put(
        feed->cli->options, key,
        &(struct wf_option_source){
            .origin = WF_FROM_DEFAULT, .where = feed->info->path, .items = &text, .count = 1 },
        err);
}

/* Classes that the labels speak of; the one that does not count is none. */
static int count_classes(const struct wf_feed *feed)
{
    const struct wf_options *const o = feed->cli->options;
    int n = feed->info->n_classes;
    if (wf_options_is_set(o, "train.ignore") && wf_options_int(o, "train.ignore") == n - 1)
        for (n--; n > 0 && feed->info->classes[n - 1].found == 0;)
            n--;
    return n;
}

/* The squared difference takes no label that does not count; the data may bring one all the same. */
static bool check_mse(const struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_options *const o = feed->cli->options;
    const struct wf_dataset_info *const info = feed->info;
    if (!info->has_ignore || wf_options_is_set(o, "train.ignore") ||
        strcmp(wf_options_text(o, "train.loss"), "mse") != 0)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "'%s' has %s, which train.loss=mse cannot leave out: use ce, bce or dice, or "
                      "%s",
                      info->path,
                      info->has_void ? "pixels that hold nothing (nodata, or no mask there)"
                                     : "labels that do not count",
                      info->has_void ? "write the images without nodata ('gdal_edit.py "
                                       "-unsetnodata', data.align=refuse)"
                                     : "give them a class");
}

static bool settle_model(struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_dataset_info *const info = feed->info;
    const struct wf_options *const o = feed->cli->options;
    struct wf_arena *const a = &feed->arena;
    const char *const loss = wf_options_text(o, "train.loss");
    if (!check_mse(feed, err))
        return false;
    if (info->has_ignore && !wf_options_is_set(o, "train.ignore") &&
        !put(feed, "train.ignore", wf_arena_printf(a, "%d", info->ignore), err))
        return false;
    /* A 0/1 target per class is one channel where there are two classes. */
    const int found = count_classes(feed);
    const bool one = strcmp(loss, "bce") == 0 && found == 2;
    if (!put(feed, "model.in", wf_arena_printf(a, "%d", info->channels), err) ||
        !put(feed, "model.dims", wf_arena_printf(a, "%d", info->dims), err) ||
        (found > 0 && !put(feed, "model.classes", wf_arena_printf(a, "%d", one ? 1 : found), err)))
        return false;
    const int64_t dims = wf_options_int(o, "model.dims");
    if (dims != info->dims)
        return wf_err_set(err, WF_ERR_USAGE,
                          "model.dims is %" PRId64 ", but the images of '%s' have %d: set it to %d",
                          dims, info->path, info->dims, info->dims);
    /* With a label that does not count, the loader looks at each one. */
    const int64_t classes =
        wf_options_is_set(o, "train.ignore") ? 0 : wf_options_int(o, "model.classes");
    if (!wf_dataset_fits(feed->dataset, wf_options_int(o, "model.in"), classes == 1 ? 2 : classes,
                         err))
        return false;
    const int64_t wanted = wf_options_int(o, "model.classes");
    if (feed->cli->is_root && found > 0 && wanted > wf_max(found, 2) && strcmp(loss, "mse") != 0)
        wf_log(&feed->cli->log, WF_LOG_WARN,
               "model.classes is %" PRId64 ", but '%s' has labels of %d classes: the others are "
               "never seen; leave model.classes out to take what the data has",
               wanted, info->path, found);
    return true;
}

/* --- sizes --- */

static struct wf_loader_options base_options(const struct wf_feed *feed, enum wf_part part)
{
    const struct wf_options *const o = feed->cli->options;
    return (struct wf_loader_options){
        .part = part,
        .validation = wf_options_real(o, "data.validation"),
        .batch = wf_job_batch(o),
        .normal = &feed->normal,
        .seed = (uint64_t)wf_options_int(o, "train.seed"),
        .threads = (int)wf_options_int(o, "data.threads"),
    };
}

static bool find_crop(struct wf_feed *feed, enum wf_part part, struct wf_err *err)
{
    const struct wf_setting *const crop = wf_options_get(feed->cli->options, "data.crop");
    if (crop->is_set && crop->count != feed->info->dims)
        return wf_err_set(err, WF_ERR_USAGE,
                          "data.crop is %s, but the images of '%s' have %d axes: give %d numbers",
                          crop->text, feed->info->path, feed->info->dims, feed->info->dims);
    for (int a = WF_D; a <= WF_W; a++)
        feed->crop[a] = 1;
    for (int i = 0; crop->is_set && i < crop->count; i++)
        feed->crop[WF_C - crop->count + i] = crop->list[i];
    if (crop->is_set)
        return true;
    /* Whole images: the loader says whether they agree, and on what. */
    struct wf_loader_options options = base_options(feed, part);
    options.threads = 0;
    options.normal = NULL;
    struct wf_loader *const loader = wf_loader_new(feed->dataset, &options, err);
    if (!loader)
        return false;
    const struct wf_shape shape = wf_loader_shape(loader);
    wf_loader_free(loader);
    const char *text = "";
    for (int a = WF_D; a <= WF_W; a++) {
        feed->crop[a] = shape.at[a];
        if (a >= WF_C - feed->info->dims)
            text =
                wf_arena_printf(&feed->arena, "%s%s%" PRId64, text, *text ? "x" : "", shape.at[a]);
    }
    return put(feed, "data.crop", text, err);
}

/* The extents that all samples of the validated part share, or zeros. */
static void find_whole(struct wf_feed *feed, const int64_t samples[], int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t *const e = wf_dataset_sample(feed->dataset, samples ? samples[i] : i)->extent;
        for (int a = WF_D; a <= WF_W; a++) {
            if (i > 0 && feed->whole[a] != e[a]) {
                memset(feed->whole, 0, sizeof feed->whole);
                return;
            }
            feed->whole[a] = e[a];
        }
    }
}

static void find_parts(struct wf_feed *feed)
{
    const struct wf_options *const o = feed->cli->options;
    struct wf_split split;
    wf_split_init(&split, feed->dataset, wf_options_real(o, "data.validation"),
                  (uint64_t)wf_options_int(o, "train.seed"));
    feed->parts[WF_PART_TRAIN] = split.n_train;
    feed->parts[WF_PART_VALID] = split.n_valid;
    feed->parts[WF_PART_ALL] = feed->info->samples;
    if (feed->part == WF_PART_ALL)
        find_whole(feed, NULL, feed->info->samples);
    else
        find_whole(feed, feed->part == WF_PART_VALID ? split.valid : split.train,
                   feed->parts[feed->part]);
    wf_split_release(&split);
}

/* --- classes --- */

static void name_classes(struct wf_feed *feed)
{
    feed->classes = wf_metrics_classes(wf_options_int(feed->cli->options, "model.classes"));
    feed->class_names = wf_arena_array(&feed->arena, feed->classes, const char *);
    feed->colors = wf_arena_array(&feed->arena, feed->classes, int32_t);
    for (int c = 0; c < feed->classes; c++) {
        const struct wf_data_class *const k =
            c < feed->info->n_classes ? &feed->info->classes[c] : NULL;
        feed->class_names[c] =
            k && k->name ? k->name : wf_arena_printf(&feed->arena, "class %d", c);
        feed->colors[c] = k ? k->color : -1;
    }
}

/* --- opening --- */

bool wf_feed_open(struct wf_feed *feed, struct wf_cli *cli, const char *path, enum wf_part part,
                  struct wf_err *err)
{
    *feed = (struct wf_feed){ .cli = cli, .part = part };
    const struct wf_dataset_options options = {
        .layout = (enum wf_data_layout)wf_options_int(cli->options, "data.format"),
        .align = (enum wf_data_align)wf_options_int(cli->options, "data.align"),
        .alpha = (enum wf_data_alpha)wf_options_int(cli->options, "data.alpha"),
        .channels = wf_options_is_set(cli->options, "model.in")
                        ? wf_options_int(cli->options, "model.in")
                        : 0,
    };
    feed->dataset = wf_dataset_open(path, &options, err);
    if (!feed->dataset)
        return false;
    feed->info = wf_dataset_info(feed->dataset);
    if (feed->info->labels == WF_LABELS_NONE)
        return wf_err_set(
            err, WF_ERR_INPUT,
            "'%s' has images but no labels: put a mask beside each image, in masks/ or "
            "as NAME_masks.*",
            path);
    find_parts(feed);
    /* A part may be empty: training goes on without validation. */
    if (!settle_model(feed, err) ||
        !find_crop(feed, feed->parts[part] > 0 ? part : WF_PART_TRAIN, err))
        return false;
    name_classes(feed);
    return true;
}

void wf_feed_release(struct wf_feed *feed)
{
    wf_dataset_free(feed->dataset);
    wf_arena_release(&feed->arena);
    *feed = (struct wf_feed){ 0 };
}

bool wf_feed_measure(struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_options *const o = feed->cli->options;
    const uint64_t seed = (uint64_t)wf_options_int(o, "train.seed");
    struct wf_split split;
    wf_split_init(&split, feed->dataset, wf_options_real(o, "data.validation"), seed);
    const bool ok =
        wf_normal_measure(feed->dataset, split.train, split.n_train, seed, &feed->normal, err);
    wf_split_release(&split);
    return ok;
}

/* Samples of a training batch: as the options say, but at most an epoch's. */
static int64_t batch_of(const struct wf_feed *feed)
{
    const struct wf_options *const o = feed->cli->options;
    return wf_min(wf_job_batch(o), feed->parts[WF_PART_TRAIN] * wf_options_int(o, "data.repeat"));
}

void wf_feed_size(const struct wf_feed *feed, struct wf_job_files *files)
{
    const int dims = feed->info->dims;
    files->count = 2 + dims;
    files->size[0] = batch_of(feed);
    files->size[1] = feed->info->channels;
    for (int i = 0; i < dims; i++)
        files->size[2 + i] = feed->crop[WF_C - dims + i];
}

static double pixels(const int64_t e[WF_AXES])
{
    return (double)e[WF_D] * (double)e[WF_H] * (double)e[WF_W];
}

bool wf_feed_valid_shape(const struct wf_feed *feed, const struct wf_mesh *mesh,
                         struct wf_shape *shape, struct wf_err *err)
{
    const char *const on = wf_options_text(feed->cli->options, "train.validate_on");
    const bool agree = feed->whole[WF_W] > 0;
    if (!agree && strcmp(on, "whole") == 0)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "train.validate_on is whole, but the images of '%s' have different sizes: "
            "use train.validate_on=crop",
            feed->info->path);
    const bool small = pixels(feed->whole) <= WHOLE_CROPS * pixels(feed->crop);
    const bool whole = agree && (strcmp(on, "whole") == 0 || (strcmp(on, "auto") == 0 && small));
    const int64_t *const e = whole ? feed->whole : feed->crop;
    /* As many pixels at once as a training step has, and something for every rank. */
    const int64_t batch = wf_job_batch(feed->cli->options);
    const int64_t fit = (int64_t)((double)batch * pixels(feed->crop) / pixels(e));
    const int64_t rows = wf_max(fit, whole ? mesh->at[WF_MESH_DATA] : 1);
    *shape = WF_SHAPE(rows, e[WF_D], e[WF_H], e[WF_W], feed->info->channels);
    return true;
}

/* --- loaders --- */

static struct wf_loader_options loader_options(const struct wf_feed *feed, enum wf_part part,
                                               const struct wf_network *net)
{
    struct wf_loader_options options = base_options(feed, part);
    options.batch = net->image->shape.at[WF_N];
    for (int a = WF_D; a <= WF_W; a++)
        options.crop[a] = net->image->shape.at[a];
    options.classes = net->has_classes ? feed->classes : 0;
    options.has_ignore = wf_options_is_set(feed->cli->options, "train.ignore");
    options.ignore = (int32_t)wf_options_int(feed->cli->options, "train.ignore");
    return options;
}

struct wf_loader_options wf_feed_loader(const struct wf_feed *feed, const struct wf_network *net)
{
    const struct wf_options *const o = feed->cli->options;
    struct wf_loader_options options = loader_options(feed, WF_PART_TRAIN, net);
    options.repeat = wf_options_int(o, "data.repeat");
    options.pad = wf_options_int(o, "data.pad");
    options.augment = (unsigned)wf_options_int(o, "data.augment");
    options.balance = wf_options_int(o, "data.balance") != 0;
    return options;
}

struct wf_loader_options wf_feed_valid_loader(const struct wf_feed *feed,
                                              const struct wf_network *net)
{
    return loader_options(feed, feed->part, net);
}

bool wf_feed_check(const struct wf_feed *feed, struct wf_loader_options options, struct wf_err *err)
{
    options.threads = 0;
    options.balance = false; /* costs a look at all masks */
    options.normal = NULL;   /* not known yet */
    struct wf_loader *const loader = wf_loader_new(feed->dataset, &options, err);
    const bool ok = loader != NULL;
    wf_loader_free(loader);
    return ok;
}
