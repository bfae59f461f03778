#include "train/feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "base/units.h"
#include "data/augment.h"
#include "data/clouds.h"
#include "train/metrics.h"

/* A whole image is validated at once where it has at most so many pixels of a training crop: without
 * gradients it then needs about the memory of a training step. */
enum { WHOLE_CROPS = 4 };

/* --- settings --- */

/* Number of classes in the labels, without the ignored one. */
static int count_classes(const struct wf_feed *feed)
{
    const struct wf_train_settings *const t = &feed->settings->train;
    int n = feed->info->n_classes;
    if (t->has_ignore && t->ignore == n - 1)
        for (n--; n > 0 && feed->info->classes[n - 1].found == 0;)
            n--;
    return n;
}

/* The squared difference takes no label that does not count; the data may bring one all the same. */
static bool check_mse(const struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_train_settings *const t = &feed->settings->train;
    const struct wf_dataset_info *const info = feed->info;
    if (!info->has_ignore || t->has_ignore || t->losses != WF_LOSS_MSE)
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

/* Point clouds are for networks of points, and images for others. */
static bool check_kind(const struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_settings *const s = feed->settings;
    const char *const path = feed->info->path;
    const unsigned known = wf_cloud_augments();
    const unsigned others =
        WF_AUGMENT_ROTATE | WF_AUGMENT_SCALE | WF_AUGMENT_JITTER | WF_AUGMENT_DROP;
    const unsigned wrong =
        feed->info->is_cloud ? s->data.augment & ~known : s->data.augment & others;
    if (feed->info->is_cloud != s->model->sparse)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' has %s, and network '%s' is for %s: choose another model.name "
                          "('widefield model list')",
                          path, feed->info->is_cloud ? "point clouds" : "images", s->model->name,
                          s->model->sparse ? "point clouds" : "images");
    for (int i = 0; wf_augment_names[i]; i++)
        if (wrong & (1U << i))
            return wf_err_set(err, WF_ERR_USAGE, "data.augment: %s is not for %s",
                              wf_augment_names[i],
                              feed->info->is_cloud ? "point clouds" : "images");
    if (feed->info->is_cloud && !(s->data.voxel > 0))
        return wf_err_set(
            err, WF_ERR_USAGE,
            "'%s' has point clouds: give data.voxel, the edge of a voxel in their unit, "
            "such as data.voxel=0.05",
            path);
    if (feed->info->is_cloud && (s->data.crop.count || s->data.pad || s->data.balance))
        return wf_err_set(err, WF_ERR_USAGE,
                          "data.crop, data.pad and data.balance are for images: point clouds are "
                          "taken whole");
    return true;
}

static bool settle_model(struct wf_feed *feed, struct wf_err *err)
{
    const struct wf_dataset_info *const info = feed->info;
    struct wf_train_settings *const t = &feed->settings->train;
    struct wf_model_config *const c = &feed->settings->config;
    if (!check_mse(feed, err) || !check_kind(feed, err))
        return false;
    if (info->has_ignore && !t->has_ignore) {
        t->has_ignore = true;
        t->ignore = info->ignore;
    }
    /* A 0/1 target per class is one channel where there are two classes. */
    const int found = count_classes(feed);
    const bool one = t->losses == WF_LOSS_BCE && found == 2;
    c->in = c->in ? c->in : info->channels;
    c->dims = c->dims ? c->dims : info->dims;
    feed->settings->data.features = info->features;
    c->classes = c->classes ? c->classes : one ? 1 : found;
    if (c->dims != info->dims)
        return wf_err_set(err, WF_ERR_USAGE,
                          "model.dims is %d, but the images of '%s' have %d: set it to %d", c->dims,
                          info->path, info->dims, info->dims);
    /* With a label that does not count, the loader looks at each one. */
    const int64_t classes = t->has_ignore ? 0 : c->classes;
    if (!wf_dataset_fits(feed->dataset, c->in, classes == 1 ? 2 : classes, err))
        return false;
    if (feed->launch->is_root && found > 0 && c->classes > wf_max(found, 2) &&
        t->losses != WF_LOSS_MSE)
        wf_log(feed->launch->log, WF_LOG_WARN,
               "model.classes is %" PRId64 ", but '%s' has labels of %d classes: the others are "
               "never seen; leave model.classes out to take what the data has",
               c->classes, info->path, found);
    return true;
}

/* --- sizes --- */

static bool is_on_host(const struct wf_settings *s)
{
    return strcmp(s->device, "cuda") != 0;
}

/* A GPU takes more images in a second than one core can decode; on the CPU the cores compute. */
static int read_ahead(const struct wf_settings *s)
{
    enum { MOST = 8 };
    if (s->data.threads >= 0)
        return s->data.threads;
    return is_on_host(s) ? 1 : (int)wf_max(1, wf_min(MOST, wf_cores() - 1));
}

static struct wf_loader_options base_options(const struct wf_feed *feed, enum wf_part part)
{
    const struct wf_settings *const s = feed->settings;
    return (struct wf_loader_options){
        .part = part,
        .validation = s->data.validation,
        .batch = wf_settings_batch(s),
        .normal = &feed->normal,
        .seed = s->train.seed,
        .threads = read_ahead(s),
    };
}

static bool find_crop(struct wf_feed *feed, enum wf_part part, struct wf_err *err)
{
    const int dims = feed->info->dims;
    struct wf_extents *const crop = &feed->settings->data.crop;
    for (int a = WF_D; a <= WF_W; a++)
        feed->crop[a] = 1;
    if (feed->info->is_cloud)
        return true;
    if (crop->count && crop->count != dims)
        return wf_err_set(err, WF_ERR_USAGE,
                          "data.crop is %s, but the images of '%s' have %d axes: give %d numbers",
                          wf_text_extents(&feed->arena, crop->count, crop->at), feed->info->path,
                          dims, dims);
    if (!crop->count) {
        /* Whole images: the loader says whether they agree, and on what. */
        struct wf_loader_options options = base_options(feed, part);
        options.threads = 0;
        options.normal = NULL;
        struct wf_loader *const loader = wf_loader_new(feed->dataset, &options, err);
        if (!loader)
            return false;
        const struct wf_shape shape = wf_loader_shape(loader);
        wf_loader_free(loader);
        crop->count = dims;
        memcpy(crop->at, &shape.at[WF_C - dims], (size_t)dims * sizeof crop->at[0]);
    }
    for (int a = WF_D; a <= WF_W; a++)
        feed->crop[a] = a < WF_C - dims ? 1 : crop->at[a - (WF_C - dims)];
    return true;
}

void wf_feed_whole(const struct wf_dataset *dataset, const int64_t samples[], int64_t count,
                   int64_t whole[WF_AXES])
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t *const e = wf_dataset_sample(dataset, samples ? samples[i] : i)->extent;
        for (int a = WF_D; a <= WF_W; a++) {
            if (i > 0 && whole[a] != e[a]) {
                memset(whole, 0, WF_AXES * sizeof *whole);
                return;
            }
            whole[a] = e[a];
        }
    }
}

static void find_parts(struct wf_feed *feed)
{
    struct wf_split split;
    wf_split_init(&split, feed->dataset, feed->settings->data.validation,
                  feed->settings->train.seed);
    feed->parts[WF_PART_TRAIN] = split.n_train;
    feed->parts[WF_PART_VALID] = split.n_valid;
    feed->parts[WF_PART_ALL] = feed->info->samples;
    /* As the settings say, but at most an epoch's. */
    feed->batch = wf_min(wf_settings_batch(feed->settings),
                         feed->parts[WF_PART_TRAIN] * feed->settings->data.repeat);
    if (feed->info->is_cloud)
        feed->batch = wf_max(feed->batch, 1);
    const int64_t *const samples = feed->part == WF_PART_ALL     ? NULL
                                   : feed->part == WF_PART_VALID ? split.valid
                                                                 : split.train;
    wf_feed_whole(feed->dataset, samples, feed->parts[feed->part], feed->whole);
    wf_split_release(&split);
}

/* --- classes --- */

static void name_classes(struct wf_feed *feed)
{
    feed->classes = wf_metrics_classes(feed->settings->config.classes);
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

int wf_feed_other_class(const struct wf_dataset_info *data, const char *const names[], int n)
{
    const bool is_image = data->labels == WF_LABELS_IMAGE;
    /* More classes of images than the network has are refused elsewhere, but for one that is ignored. */
    const int count = is_image                         ? (int)wf_min(data->n_classes, n)
                      : data->codes == WF_CODES_COLORS ? data->n_classes
                                                       : 0;
    for (int c = 0; c < count; c++) {
        const char *const here = data->classes[c].name, *const there = c < n ? names[c] : "";
        char unnamed[32];
        (void)snprintf(unnamed, sizeof unnamed, "class %d", c);
        if (strcmp(here, there) != 0 &&
            !(is_image && (strcmp(here, unnamed) == 0 || strcmp(there, unnamed) == 0)))
            return c;
    }
    return -1;
}

/* --- opening --- */

struct wf_dataset_options wf_feed_dataset_options(const struct wf_settings *s)
{
    /* Where the user counts bytes, pictures take few of them. */
    static const int64_t modest = 512 << 20;
    const bool counts = s->data.cache < 0 && s->limit > 0 && is_on_host(s);
    return (struct wf_dataset_options){ .layout = s->data.layout,
                                        .align = s->data.align,
                                        .alpha = s->data.alpha,
                                        .channels = s->config.in,
                                        .cache = counts ? modest : s->data.cache,
                                        .features = s->data.features,
                                        .points = s->data.points };
}

bool wf_feed_open(struct wf_feed *feed, const struct wf_launch *launch,
                  struct wf_settings *settings, const char *path, enum wf_part part,
                  struct wf_err *err)
{
    *feed = (struct wf_feed){ .launch = launch, .settings = settings, .part = part };
    const struct wf_dataset_options options = wf_feed_dataset_options(settings);
    feed->dataset =
        settings->data.open ? settings->data.open : wf_dataset_open(path, &options, err);
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
    if (feed->settings && !feed->settings->data.open)
        wf_dataset_free(feed->dataset);
    wf_arena_release(&feed->arena);
    *feed = (struct wf_feed){ 0 };
}

bool wf_feed_measure(struct wf_feed *feed, struct wf_err *err)
{
    const uint64_t seed = feed->settings->train.seed;
    struct wf_split split;
    wf_split_init(&split, feed->dataset, feed->settings->data.validation, seed);
    const bool ok =
        wf_normal_measure(feed->dataset, split.train, split.n_train, seed, &feed->normal, err);
    wf_split_release(&split);
    return ok;
}

bool wf_feed_take_normal(struct wf_feed *feed, const struct wf_checkpoint *c, struct wf_err *err)
{
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(c);
    if (info->channels != feed->info->channels)
        return wf_err_set(
            err, WF_ERR_INPUT, "'%s' was trained on images of %d channels, '%s' has %d",
            wf_checkpoint_path(c), info->channels, feed->info->path, feed->info->channels);
    feed->normal.channels = info->channels;
    memcpy(feed->normal.mean, info->mean, (size_t)info->channels * sizeof *info->mean);
    memcpy(feed->normal.std, info->deviation, (size_t)info->channels * sizeof *info->deviation);
    return true;
}

bool wf_feed_measure_rows(void *user, const struct wf_graph *g, int64_t capacities[WF_SETS + 1],
                          struct wf_err *err)
{
    struct wf_feed_rows *const r = user;
    const struct wf_points_cut cut = wf_points_cut(g, r->feed->info->dims);
    const int parts = wf_points_parts(&cut);
    if (r->known_parts != parts && !wf_points_scan(r->feed, r->part, g, r->known, err))
        return false;
    r->known_parts = parts;
    for (int k = 1; k <= g->n_sets; k++)
        capacities[k] = wf_max(r->known[k], wf_ceil_div(r->least[k], parts) * parts);
    return true;
}

void wf_feed_size(const struct wf_feed *feed, struct wf_job_files *files)
{
    const int dims = feed->info->dims;
    files->count = 2 + dims;
    files->size[0] = feed->batch;
    files->size[1] = feed->info->channels;
    for (int i = 0; i < dims; i++)
        files->size[2 + i] = feed->crop[WF_C - dims + i];
}

static double pixels(const int64_t e[WF_AXES])
{
    return (double)e[WF_D] * (double)e[WF_H] * (double)e[WF_W];
}

bool wf_feed_valid_shape(const struct wf_feed *feed, const struct wf_mesh *mesh,
                         const int64_t whole[WF_AXES], const char *path, struct wf_shape *shape,
                         struct wf_err *err)
{
    const enum wf_validate_on on = feed->settings->train.validate_on;
    const bool agree = whole[WF_W] > 0;
    if (!agree && on == WF_VALIDATE_WHOLE)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "train.validate_on is whole, but the images of '%s' have different sizes: "
            "use train.validate_on=crop",
            path);
    const bool small = pixels(whole) <= WHOLE_CROPS * pixels(feed->crop);
    const bool at_once = agree && (on == WF_VALIDATE_WHOLE || (on == WF_VALIDATE_AUTO && small));
    const int64_t *const e = at_once ? whole : feed->crop;
    /* As many pixels at once as a training step has, and something for every rank. */
    const int64_t batch = wf_settings_batch(feed->settings);
    const int64_t fit = (int64_t)((double)batch * pixels(feed->crop) / pixels(e));
    const int64_t rows = wf_max(fit, at_once ? mesh->at[WF_MESH_DATA] : 1);
    *shape = WF_SHAPE(rows, e[WF_D], e[WF_H], e[WF_W], feed->info->channels);
    return true;
}

/* --- loaders --- */

static struct wf_loader_options loader_options(const struct wf_feed *feed, enum wf_part part,
                                               const struct wf_network *net)
{
    struct wf_loader_options options = base_options(feed, part);
    options.batch = net->graph->rows ? feed->batch : net->image->shape.at[WF_N];
    options.voxel = feed->settings->data.voxel;
    options.keeps_points = net->graph->rows && part != WF_PART_TRAIN;
    options.row_end = options.batch;
    for (int a = WF_D; a <= WF_W; a++)
        options.crop[a] = net->image->shape.at[a];
    options.classes = net->has_classes ? feed->classes : 0;
    options.has_ignore = feed->settings->train.has_ignore;
    options.ignore = feed->settings->train.ignore;
    return options;
}

struct wf_loader_options wf_feed_loader(const struct wf_feed *feed, const struct wf_network *net)
{
    const struct wf_data_settings *const d = &feed->settings->data;
    struct wf_loader_options options = loader_options(feed, WF_PART_TRAIN, net);
    options.repeat = d->repeat;
    options.pad = d->pad;
    options.augment = d->augment;
    options.balance = d->balance;
    return options;
}

struct wf_loader_options wf_feed_valid_loader(const struct wf_feed *feed,
                                              const struct wf_network *net)
{
    return loader_options(feed, feed->part, net);
}

bool wf_feed_check(const struct wf_dataset *dataset, struct wf_loader_options options,
                   struct wf_err *err)
{
    options.threads = 0;
    options.balance = false; /* costs a look at all masks */
    options.normal = NULL;   /* not known yet */
    struct wf_loader *const loader = wf_loader_new(dataset, &options, err);
    const bool ok = loader != NULL;
    wf_loader_free(loader);
    return ok;
}
