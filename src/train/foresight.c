#include "train/foresight.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "ckpt/snapshot.h"
#include "comm/sums.h"
#include "image/png_inflate.h"
#include "plan/plan_cache.h"
#include "train/device.h"
#include "train/training.h"

enum {
    READING = 3, /* copies of a sample while threads read, cut out and augment it, as measured */
    DECODED = 4 << 20, /* numbers of a block that is kept (data/keep.c) */
};

/* Ranks that take turns on a core, as measured: by how much they take longer, as its caches hold another's data; and what
 * it takes until the cores are evenly used again whenever ranks wait for each other, of short work at most a part of it. */
static const double taking_turns = 1.08, meeting = 100e-6, meeting_most = 0.3;

/* How many threads of the job's ranks a core runs one after the other: of three ranks on two cores, which meet again soon,
 * one runs behind the others. */
static double crowd_of(const struct wf_job *job)
{
    if (job->files.on_paper || !wf_device_is_host(job->device))
        return 1;
    return ceil((double)job->ranks_here * job->threads / job->cores_here);
}

double wf_foresight_step(const struct wf_job *job, const struct wf_all_ranks *all)
{
    const int threads = wf_device_is_host(job->device) ? job->threads : 1;
    const double crowd = crowd_of(job);
    double work = 0;
    size_t weights = 0;
    int kernels = 0, meetings = 0;
    for (int i = 0; i < all->n_ranks; i++) {
        const struct wf_rank_figures *const rank = &all->ranks[i];
        work += rank->compute_seconds / all->n_ranks;
        weights = rank->trained_count > weights ? rank->trained_count : weights;
        kernels = rank->steps > kernels ? rank->steps : kernels;
        meetings = rank->meetings > meetings ? rank->meetings : meetings;
    }
    /* While one waits for a message, others have its core. */
    work *= crowd;
    if (crowd > 1)
        work = taking_turns * work + fmin(meetings * meeting, meeting_most * work);
    const double pass = fmax(all->seconds, work * wf_job_micro_batches(job));
    if (!job->figures)
        return pass;
    const struct wf_load update = wf_optim_load(&job->settings.train.optim, weights);
    const double least = 0.25; /* of kernels timed one by one: a recording saves no more */
    return fmax(least * pass,
                pass + crowd * (wf_figures_seconds(job->figures, threads, &update, NULL) +
                                wf_figures_step(job->figures, threads, kernels)));
}

void wf_foretold_epoch(struct wf_foretold *f, const struct wf_job *job)
{
    const int64_t every = wf_max(job->settings.train.validate_every, 1);
    f->validation *= crowd_of(job);
    f->epoch = (double)f->steps * f->step + f->validation / (double)every;
}

void wf_foretold_windows(struct wf_foretold *f, const struct wf_training *t)
{
    const struct wf_stream_estimate *const e = &t->windows.of_image;
    f->valid_steps = t->feed.parts[WF_PART_VALID];
    f->validation = (double)f->valid_steps * e->seconds *
                    (double)wf_ceil_div(e->windows, t->job->ranks) / (double)e->windows;
}

/* The plans of all ranks once more, of another batch or of validation: what they take beside the step's. */
struct beside {
    double seconds;      /* of a pass of the slowest rank */
    size_t *arena, *own; /* per rank: its arena, and weights of its own */
};

static bool look_beside(struct wf_arena *arena, const struct wf_global_plan *global,
                        struct wf_context *context, struct beside *b, struct wf_err *err)
{
    const int ranks = global->geometry.n_ranks;
    struct wf_plan_cache cache = { 0 };
    bool ok = true;
    *b = (struct beside){ .arena = wf_arena_array(arena, ranks, size_t),
                          .own = wf_arena_array(arena, ranks, size_t) };
    for (int r = 0; ok && r < ranks; r++) {
        struct wf_plan *const plan = wf_plan_estimate_on(global, r, context, &cache, err);
        ok = plan != NULL;
        if (!ok)
            break;
        b->seconds = fmax(b->seconds, plan->seconds);
        b->arena[r] = plan->arena_bytes;
        b->own[r] = wf_plan_param_bytes(plan);
        wf_plan_free(plan);
    }
    wf_plan_cache_release(&cache);
    return ok;
}

static bool is_inflated_whole(size_t numbers)
{
#ifdef WF_HAVE_DEFLATE
    return numbers <= WF_PNG_INFLATED_MAX;
#else
    return numbers == 0;
#endif
}

/* What the largest PNG takes while it is decoded: it is inflated as a whole where it is not too large, and then kept in
 * blocks. Of those that threads free malloc() keeps some, as measured: more where several ranks decode the same image. */
static size_t png_bytes(const struct wf_dataset *ds, bool threads, bool shared)
{
    size_t whole = 0, most = 0;
    for (int64_t i = 0; i < wf_dataset_info(ds)->samples; i++) {
        const char *const dot = strrchr(wf_dataset_sample(ds, i)->image, '.');
        const size_t numbers = (size_t)wf_region_count(wf_dataset_extent(ds, i));
        if (!dot || strcasecmp(dot, ".png") != 0)
            continue;
        most = wf_max(most, numbers);
        if (is_inflated_whole(numbers))
            whole = wf_max(whole, numbers);
    }
    const size_t block = wf_min(most, (size_t)DECODED);
    return 2 * whole + 5 * block + (!threads ? 0 : shared ? 4 * block : block);
}

/* Batches that are read ahead, and of each rank of the process what it takes to read and change a sample. */
static size_t loader_bytes(const struct wf_training *t, const struct wf_loader *loader, int threads)
{
    const struct wf_mesh *const mesh = &t->job->mesh;
    const struct wf_shape s = wf_loader_shape(loader);
    const size_t pixel = (size_t)s.at[WF_C] * sizeof(float) + sizeof(int32_t);
    const size_t sample = (size_t)(s.at[WF_D] * s.at[WF_H] * s.at[WF_W]) * pixel;
    const size_t space =
        (size_t)mesh->at[WF_MESH_D] * (size_t)mesh->at[WF_MESH_H] * (size_t)mesh->at[WF_MESH_W];
    const bool alone = t->launch.world || !wf_device_is_host(t->job->device); /* in a process */
    const size_t readers = alone ? 1 : (size_t)(t->job->ranks / mesh->at[WF_MESH_PIPE]);
    const size_t part = sample / space;
    const size_t reading = wf_max((threads > 0 ? READING : 1) * part,
                                  part + png_bytes(t->feed.dataset, threads > 0, space > 1));
    return sample * (size_t)s.at[WF_N] * (size_t)(threads + 1) + readers * reading;
}

static bool count_batches(struct wf_foresight *f, const struct wf_training *t,
                          struct wf_loader_options options, int64_t *count, struct wf_err *err)
{
    const int threads = options.threads;
    options.threads = 0;
    options.balance = false; /* costs a look at all masks */
    options.normal = NULL;   /* not known yet */
    struct wf_loader *const loader = wf_loader_new(t->feed.dataset, &options, err);
    *count = loader ? wf_loader_batches(loader) : 0;
    if (loader && !wf_dataset_info(t->feed.dataset)->is_cloud)
        f->input_bytes += loader_bytes(t, loader, threads);
    wf_loader_free(loader);
    return loader != NULL;
}

static bool add_validation(struct wf_foresight *f, const struct wf_all_ranks *all,
                           const struct wf_training *t, struct wf_err *err)
{
    struct beside b;
    if (t->windows.used) {
        wf_foretold_windows(&f->times, t);
        for (int r = 0; r < t->job->ranks; r++)
            f->bytes[r] += t->windows.of_image.kept;
        return true;
    }
    if (!t->valid_global)
        return true;
    if (!look_beside(&f->arena, t->valid_global, all->context, &b, err) ||
        !count_batches(f, t, wf_feed_valid_loader(&t->feed, &t->valid), &f->times.valid_steps, err))
        return false;
    f->times.validation = (double)f->times.valid_steps * b.seconds;
    for (int r = 0; r < t->job->ranks; r++)
        f->bytes[r] += b.arena[r] + b.own[r];
    return true;
}

/* It borrows the arena of the others where that is large enough, unless inputs of both are there at once. */
static bool add_rest(struct wf_foresight *f, const struct wf_all_ranks *all,
                     const struct wf_training *t, struct wf_err *err)
{
    struct beside b;
    const bool apart = t->settings.train.accumulate > 1;
    if (!t->rest_global)
        return true;
    if (!look_beside(&f->arena, t->rest_global, all->context, &b, err))
        return false;
    for (int r = 0; r < t->job->ranks; r++)
        f->bytes[r] += apart || b.arena[r] > all->ranks[r].arena_bytes ? b.arena[r] : 0;
    return true;
}

/* Decoded images, of bytes, that stay in memory; and the largest of them as validation and pictures have it. */
static size_t image_bytes(const struct wf_training *t)
{
    const struct wf_dataset_info *const info = wf_dataset_info(t->feed.dataset);
    const int64_t limit = t->settings.data.cache;
    size_t all = 0, most = 0;
    for (int64_t i = 0; !info->is_cloud && i < info->samples; i++) {
        const struct wf_region r = wf_dataset_extent(t->feed.dataset, i);
        const size_t numbers = (size_t)wf_region_count(r);
        const size_t pixels = numbers / (size_t)wf_max(info->channels, 1);
        all += numbers + pixels;
        most = wf_max(most, (numbers + pixels * (1 + (size_t)info->n_classes)) * sizeof(float));
    }
    return (limit >= 0 && all > (size_t)limit ? (size_t)limit : all) + (t->valid.graph ? most : 0);
}

static bool add_training(struct wf_foresight *f, const struct wf_job *job,
                         const struct wf_all_ranks *all, const struct wf_training *t,
                         struct wf_err *err)
{
    int64_t batches;
    if (!count_batches(f, t, wf_feed_loader(&t->feed, &job->net), &batches, err) ||
        !add_validation(f, all, t, err) || !add_rest(f, all, t, err))
        return false;
    f->times.steps = wf_ceil_div(batches, wf_job_micro_batches(job));
    wf_foretold_epoch(&f->times, job);
    f->input_bytes += image_bytes(t);
    if (wf_device_is_host(job->device))
        f->bytes[0] += t->snapshot_bytes;
    return true;
}

/* On their way to a GPU: the largest weight when it is initialised, then a rank's part of the inputs. */
static size_t passing_bytes(const struct wf_job *job)
{
    const struct wf_graph *const g = job->net.graph;
    const size_t parts = (size_t)(job->ranks / job->mesh.at[WF_MESH_PIPE]);
    size_t weight = 0, inputs = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        const size_t bytes = (size_t)wf_shape_count(v->shape) * wf_dtype_size(v->dtype);
        if (v->kind == WF_PARAM)
            weight = bytes > weight ? bytes : weight;
        else if (v->kind == WF_INPUT)
            inputs += bytes / parts;
    }
    return weight > inputs ? weight : inputs;
}

/* Of a rank whose sums go by messages: those of gradients are the longest. */
static size_t sum_bytes(const struct wf_job *job, const struct wf_rank_figures *rank)
{
    const bool emulated = job->link.bytes_per_second > 0;
    if (job->ranks == 1 || (!job->launch.world && !emulated))
        return 0;
    return wf_sums_most_bytes(job->ranks, !emulated && job->ranks_here == job->ranks,
                              rank->trained_count * sizeof(float));
}

/* On the CPU ranks that are threads share a process; each GPU has one of its own. */
static size_t host_bytes(const struct wf_foresight *f, const struct wf_job *job,
                         const struct wf_all_ranks *all, const struct wf_training *t)
{
    const bool host = wf_device_is_host(job->device);
    const int ranks = host && !job->launch.world ? job->ranks : 1;
    size_t bytes = WF_HOST_PROCESS_BYTES + (size_t)ranks * WF_HOST_RANK_BYTES + f->input_bytes;
    for (int r = 0; r < ranks; r++)
        bytes += (host ? f->bytes[r] : 0) + sum_bytes(job, &all->ranks[r]) +
                 (size_t)all->ranks[r].steps * WF_HOST_STEP_BYTES;
    if (!host)
        bytes += passing_bytes(job) + (t ? t->snapshot_bytes : 0);
    return bytes + f->library_bytes;
}

bool wf_foresight_init(struct wf_foresight *f, const struct wf_job *job,
                       const struct wf_all_ranks *all, const struct wf_training *training,
                       struct wf_err *err)
{
    *f = (struct wf_foresight){ 0 };
    f->bytes = wf_arena_array(&f->arena, all->n_ranks, size_t);
    for (int r = 0; r < all->n_ranks; r++) {
        const struct wf_rank_figures *const rank = &all->ranks[r];
        f->bytes[r] =
            rank->arena_bytes + rank->weight_bytes + wf_job_optim_bytes(job, rank->trained_count);
    }
    f->times.step = wf_foresight_step(job, all);
    if (training && !add_training(f, job, all, training, err))
        return false;
    for (int r = 0; r < all->n_ranks; r++)
        f->bytes_with_validation =
            f->bytes[r] > f->bytes_with_validation ? f->bytes[r] : f->bytes_with_validation;
    f->library_bytes = wf_settings_library_bytes(&job->settings, job->device);
    f->host_bytes = host_bytes(f, job, all, training);
    return true;
}

void wf_foresight_release(struct wf_foresight *f)
{
    wf_arena_release(&f->arena);
}
