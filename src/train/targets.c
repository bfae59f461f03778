#include "train/targets.h"

#include <string.h>

bool wf_targets_check(const struct wf_settings *s, struct wf_err *err)
{
    const int want = wf_model_domains(s->model, &s->config), have = s->data.n_domains;
    if (have == want || (want == 1 && have == 0))
        return true;
    return wf_err_set(
        err, WF_ERR_USAGE,
        "data.domains has %d folders, but network '%s' has %d domains (model.targets=%d "
        "and the labelled one): give a folder for each",
        have, s->model->name, want, want - 1);
}

struct wf_loader_options wf_target_loader(const struct wf_feed *feed, const struct wf_network *net,
                                          int domain)
{
    struct wf_loader_options options = wf_feed_loader(feed, net);
    options.balance = false;
    options.classes = 0;
    options.seed += (uint64_t)domain << 32; /* an order of its own */
    return options;
}

/* --- one dataset --- */

/* The first rank from `rank` on that has images of the domain; -1: none has. */
static int find_opener(const struct wf_job *job, int domain, int rank)
{
    const struct wf_layout *const layout = &job->global->geometry.layout;
    for (; rank < job->ranks; rank++)
        if (wf_layout_value_tiling(layout, job->net.images[domain], rank))
            return rank;
    return -1;
}

static bool opens(const struct wf_job *job, int domain)
{
    const struct wf_comm *const world = job->launch.world;
    return !world || find_opener(job, domain, wf_comm_rank(world)) == wf_comm_rank(world);
}

/* Why the labels cannot be compared with what the network predicts; NULL: they can. */
static const char *find_fault(struct wf_arena *arena, const struct wf_feed *feed,
                              const struct wf_dataset_info *info)
{
    if (info->labels != feed->info->labels)
        return "they are of another kind";
    if (info->n_classes > feed->info->n_classes && info->n_classes > feed->classes)
        return wf_arena_printf(arena, "they have %d classes, the network %d", info->n_classes,
                               feed->classes);
    const int n = feed->info->n_classes;
    const char **const names = wf_arena_array(arena, n, const char *);
    for (int c = 0; c < n; c++)
        names[c] = feed->info->classes[c].name;
    const int c = wf_feed_other_class(info, names, n);
    return c < 0
               ? NULL
               : wf_arena_printf(arena, "class %d is %s, that of '%s' %s", c, info->classes[c].name,
                                 feed->info->path, c < n ? names[c] : "missing");
}

static void look_at_labels(struct wf_arena *arena, struct wf_target *t, const struct wf_feed *feed)
{
    const struct wf_dataset_info *const info = wf_dataset_info(t->dataset);
    if (info->labels == WF_LABELS_NONE)
        return;
    const char *const fault = find_fault(arena, feed, info);
    t->is_scored = !fault;
    if (fault)
        wf_log(feed->launch->log, WF_LOG_WARN, "the labels of '%s' are not used for metrics: %s",
               t->path, fault);
}

static bool open_one(struct wf_targets *targets, int domain, const struct wf_feed *feed,
                     const struct wf_job *job, struct wf_err *err)
{
    struct wf_target *const t = &targets->at[domain - 1];
    const struct wf_dataset_options options = wf_feed_dataset_options(feed->settings);
    t->dataset = wf_dataset_open(t->path, &options, err);
    if (!t->dataset)
        return false;
    const struct wf_dataset_info *const info = wf_dataset_info(t->dataset);
    if (info->channels != feed->info->channels)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has images of %d channels, '%s' of %d", t->path,
                          info->channels, feed->info->path, feed->info->channels);
    if (info->dims != feed->info->dims)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has images of %d dimensions, '%s' of %d",
                          t->path, info->dims, feed->info->path, feed->info->dims);
    t->samples = info->samples;
    struct wf_split split;
    wf_split_init(&split, t->dataset, feed->settings->data.validation, feed->settings->train.seed);
    t->valid = split.n_valid;
    wf_feed_whole(t->dataset, split.valid, split.n_valid, t->whole);
    wf_split_release(&split);
    look_at_labels(&targets->arena, t, feed);
    return wf_feed_check(t->dataset, wf_target_loader(feed, &job->net, domain), err) &&
           wf_dataset_fingerprint(&targets->arena, t->dataset, &t->fingerprint, err);
}

/* --- what all have to know --- */

/* Collective. The bytes of rank `root` on every rank. */
static char *share_text(struct wf_arena *arena, struct wf_comm *world, int root, const char *mine,
                        struct wf_err *err)
{
    int64_t size = mine ? (int64_t)strlen(mine) : 0;
    if (!wf_comm_broadcast(world, root, &size, sizeof size, err))
        return NULL;
    char *const all = wf_arena_array(arena, size + 1, char);
    if (wf_comm_rank(world) == root && mine)
        memcpy(all, mine, (size_t)size);
    return wf_comm_broadcast(world, root, all, (size_t)size, err) ? all : NULL;
}

/* Collective. The ranks that have it see one dataset; the others hear of it from the first of them. */
static bool share_one(struct wf_targets *targets, int domain, const struct wf_job *job,
                      struct wf_err *err)
{
    struct wf_target *const t = &targets->at[domain - 1];
    struct wf_comm *const world = job->launch.world;
    struct wf_launch group = job->launch;
    if (!wf_comm_split(world, t->dataset != NULL, &group.world, err))
        return false;
    const bool ok = !t->dataset || wf_launch_same_data(&group, t->dataset, &t->fingerprint, err);
    wf_comm_free(group.world);
    if (!wf_launch_agree(&job->launch, ok, err))
        return false;
    const int root = find_opener(job, domain, 0);
    int64_t facts[] = { t->samples,     t->valid,       t->is_scored,
                        t->whole[WF_D], t->whole[WF_H], t->whole[WF_W] };
    t->data = share_text(&targets->arena, world, root, t->data, err);
    if (!t->data || !wf_comm_broadcast(world, root, facts, sizeof facts, err))
        return false;
    t->samples = facts[0];
    t->valid = facts[1];
    t->is_scored = facts[2] != 0;
    for (int i = 0; i < 3; i++)
        t->whole[WF_D + i] = facts[3 + i];
    return true;
}

bool wf_targets_open(struct wf_targets *targets, const struct wf_feed *feed,
                     const struct wf_job *job, struct wf_err *err)
{
    targets->n = job->net.domains - 1;
    targets->at = wf_arena_array(&targets->arena, targets->n, struct wf_target);
    for (int k = 1; k <= targets->n; k++) {
        struct wf_target *const t = &targets->at[k - 1];
        t->path = feed->settings->data.domains[k];
        bool ok = true;
        if (opens(job, k)) {
            ok = open_one(targets, k, feed, job, err) || wf_err_wrap(err, "domain %d", k);
            t->data = ok ? wf_fingerprint_print(&targets->arena, &t->fingerprint) : NULL;
        }
        if (!wf_launch_agree(&job->launch, ok, err) ||
            (job->launch.world && !share_one(targets, k, job, err)))
            return false;
    }
    return true;
}

/* Of a network with the weights of the one that trains, which runs in its memory where that is enough. */
static struct wf_global_plan *plan_beside(const struct wf_job *job, const struct wf_network *net,
                                          struct wf_err *err)
{
    struct wf_plan_options options = wf_job_plan_options(job);
    if (options.limit)
        options.limit = job->global->bytes;
    options.pipe = wf_job_pipe_like(job);
    return wf_global_plan_new(net->graph, &job->mesh, &options, err);
}

static bool plan_one(struct wf_target *t, int domain, const struct wf_feed *feed,
                     const struct wf_job *job, struct wf_err *err)
{
    struct wf_shape shape;
    if (!wf_feed_valid_shape(feed, &job->mesh, t->whole, t->path, &shape, err) ||
        !wf_job_network_for(job, shape, domain, &t->net, err) ||
        (t->dataset && !wf_feed_check(t->dataset, wf_feed_valid_loader(feed, &t->net), err)))
        return false;
    t->global = plan_beside(job, &t->net, err);
    return t->global != NULL;
}

bool wf_targets_plan(struct wf_targets *targets, const struct wf_feed *feed,
                     const struct wf_job *job, struct wf_err *err)
{
    const bool validates = feed->parts[WF_PART_VALID] > 0;
    for (int k = 1; validates && k <= targets->n; k++) {
        struct wf_target *const t = &targets->at[k - 1];
        if (t->is_scored && t->valid > 0 && !plan_one(t, k, feed, job, err))
            return wf_err_wrap(err, "validation on domain %d", k);
    }
    if (targets->n == 0 || feed->settings->train.samples == 0)
        return true;
    if (!wf_job_views(job, &targets->net, &targets->views, err))
        return false;
    targets->global = plan_beside(job, &targets->net, err);
    return targets->global != NULL;
}

void wf_targets_release(struct wf_targets *targets)
{
    for (int k = 0; k < targets->n; k++) {
        struct wf_target *const t = &targets->at[k];
        wf_global_plan_free(t->global);
        wf_graph_free(t->net.graph);
        wf_dataset_free(t->dataset);
    }
    wf_global_plan_free(targets->global);
    wf_graph_free(targets->net.graph);
    wf_arena_release(&targets->arena);
    *targets = (struct wf_targets){ 0 };
}
