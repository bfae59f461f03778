#include "train/input.h"

#include <stdlib.h>

#include "base/memory.h"

static const struct wf_trainer_part *part_of(const struct wf_trainer_options *o, int64_t batch)
{
    const bool rest = batch == wf_loader_batches(o->loader) - 1 && o->rest.run;
    return rest ? &o->rest : &o->full;
}

/* Boxes of the smaller batch too, so that it is read ahead like the others. */
static void announce(const struct wf_trainer_options *o)
{
    struct wf_err ignored = { 0 };
    if (o->rest.run) {
        const struct wf_view image = wf_run_view(o->rest.run, o->rest.network->image);
        const struct wf_view target = wf_run_view(o->rest.run, o->rest.network->target);
        wf_loader_announce_rest(o->loader, &image, &target);
    }
    int64_t epoch, batch;
    wf_loader_where(o->loader, &epoch, &batch);
    const struct wf_trainer_part *const part = part_of(o, batch);
    if (part->points)
        return;
    const struct wf_view target = wf_run_view(part->run, part->network->target);
    for (int k = 0; k <= o->n_targets; k++) {
        struct wf_loader *const loader = k ? o->targets[k - 1] : o->loader;
        const struct wf_view image = wf_run_view(part->run, part->network->images[k]);
        if (loader)
            (void)!wf_loader_begin(loader, &image, k ? NULL : &target, &ignored);
    }
}

void wf_input_seek(const struct wf_trainer_options *o)
{
    const int64_t batches = wf_loader_batches(o->loader);
    const bool ended = o->start.batch >= batches;
    const int64_t epoch = o->start.epoch + ended, batch = ended ? 0 : o->start.batch;
    wf_loader_seek(o->loader, epoch, batch);
    /* How many batches there were before: each domain goes through its own samples in its own epochs. */
    const int64_t before = epoch * batches + batch;
    for (int k = 0; k < o->n_targets; k++) {
        if (!o->targets[k])
            continue;
        const int64_t own = wf_loader_batches(o->targets[k]);
        wf_loader_seek(o->targets[k], before / own, before % own);
    }
    announce(o);
}

void wf_input_init(struct wf_input *in, const struct wf_trainer_options *o)
{
    *in = (struct wf_input){ .o = o, .batches = wf_loader_batches(o->loader) };
    in->images = wf_take_zeroed((size_t)o->n_targets + 1, sizeof *in->images);
}

void wf_input_release(struct wf_input *in)
{
    for (int k = 0; k <= in->o->n_targets; k++)
        wf_host_release(&in->images[k]);
    free(in->images);
    wf_host_release(&in->target);
    wf_points_hosts_release(&in->points);
}

const struct wf_trainer_part *wf_input_part(const struct wf_input *in, int64_t batch)
{
    return part_of(in->o, batch);
}

/* A batch of points. Where it does not fit nothing is put in, and the ranks hear of it when they meet. */
static bool fill_points(struct wf_input *in, const struct wf_trainer_part *part, struct wf_err *err)
{
    const struct wf_cloud_batch *batch;
    if (!wf_loader_next_points(in->o->loader, &batch, err))
        return false;
    in->voxels += batch->here;
    if (!wf_points_fit(part->points, batch))
        in->full = batch;
    else if (!in->full)
        wf_points_put(part->points, part->run, part->network, batch, &in->points);
    return true;
}

/* Fills and sends a batch; beside the work of a device that can do both at once. */
static bool fill(struct wf_input *in, const struct wf_trainer_part *part, struct wf_err *err)
{
    struct wf_run *const run = part->run;
    if (part->points)
        return fill_points(in, part, err);
    const bool beside = wf_run_can_send(run);
    const struct wf_network *const net = part->network;
    bool ok = true;
    (beside ? wf_run_map_next : wf_run_map)(run, net->target, &in->target);
    for (int k = 0; k <= in->o->n_targets; k++) {
        struct wf_host *const image = &in->images[k];
        struct wf_loader *const loader = k ? in->o->targets[k - 1] : in->o->loader;
        (beside ? wf_run_map_next : wf_run_map)(run, net->images[k], image);
        if (loader)
            ok = ok && wf_loader_next(loader, &image->view, k ? NULL : &in->target.view, err);
        (beside ? wf_host_send : wf_host_put)(image);
    }
    (beside ? wf_host_send : wf_host_put)(&in->target);
    return ok;
}

/* Not past the epoch, where others use the memory, nor past its full batches, for the rest lies elsewhere in the
 * same memory. */
void wf_input_load_ahead(struct wf_input *in, int64_t batch)
{
    const struct wf_trainer_part *const part = wf_input_part(in, batch);
    if (batch + 1 >= in->batches || wf_input_part(in, batch + 1) != part || part->points ||
        !wf_run_can_send(part->run))
        return;
    in->filled_ok = fill(in, part, &in->filled_err);
    in->is_filled = true;
}

static bool load_batch(struct wf_input *in, const struct wf_trainer_part *part, struct wf_err *err)
{
    const bool ok = in->is_filled ? in->filled_ok : fill(in, part, err);
    if (in->is_filled && !ok)
        *err = in->filled_err;
    in->is_filled = false;
    if (!part->points && wf_run_can_send(part->run)) {
        for (int k = 0; k <= in->o->n_targets; k++)
            wf_run_take_next(part->run, part->network->images[k]);
        wf_run_take_next(part->run, part->network->target);
    }
    return ok;
}

bool wf_input_load(struct wf_input *in, int64_t batch, int64_t count, struct wf_err *err)
{
    bool ok = true;
    in->voxels = 0;
    for (int64_t i = 0; ok && !in->full && i < count; i++) {
        const struct wf_trainer_part *const part = wf_input_part(in, batch + i);
        wf_run_select(part->run, part == &in->o->rest ? 0 : (int)i);
        ok = load_batch(in, part, err);
        wf_run_select(part->run, 0);
    }
    return ok;
}
