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
    if (wf_comm_rank(world) == root)
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
    t->data = share_text(&targets->arena, world, root, t->data, err);
    return t->data != NULL;
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

void wf_targets_release(struct wf_targets *targets)
{
    for (int k = 0; k < targets->n; k++)
        wf_dataset_free(targets->at[k].dataset);
    wf_arena_release(&targets->arena);
    *targets = (struct wf_targets){ 0 };
}
