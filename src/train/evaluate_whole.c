/* Scores of whole images of any size, window by window. */
#include <math.h>
#include <stdlib.h>

#include "train/device.h"
#include "train/evaluate.h"
#include "train/window_memory.h"

struct whole {
    struct wf_evaluation *e;
    struct wf_comm *comm;
    struct wf_context *context;
    struct wf_loader *loader;
    struct wf_metrics all, one; /* of all images; of the one at hand */
    struct wf_window_memory memory;
    int64_t sample; /* at hand */
    struct wf_network net;
    double loss, weight; /* of the images so far */
};

static bool load_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct whole *const w = user;
    return wf_checkpoint_load(w->e->checkpoint, run, NULL, err);
}

static bool fill(void *user, const struct wf_value *input, const struct wf_view *view,
                 struct wf_err *err)
{
    struct whole *const w = user;
    const bool image = input == w->net.image;
    WF_BUG_ON(!image && input != w->net.target, "input '%s'", input->name);
    return wf_loader_read(w->loader, w->sample, image ? view : NULL, image ? NULL : view, err);
}

/* Collective. */
static struct wf_stream *start(struct whole *w, struct wf_err *err)
{
    const struct wf_plan_options plan = wf_job_plan_options(w->e->job);
    struct wf_stream_options options = {
        .plan = { .device = plan.device, .threads = plan.threads },
        .context = w->context,
        .slots = 1,
        .number = w->net.loss,
        .user = w,
        .weights = load_weights,
        .fill = fill,
    };
    const bool fits = wf_window_memory_share(&w->memory, w->net.graph, 0, &options, err);
    return wf_comm_agree(w->comm, fits, err)
               ? wf_stream_new(w->net.graph, 1, &w->net.logits, &options, w->comm, err)
               : NULL;
}

/* The window's logits against the labels under it. */
static bool count(struct whole *w, const struct wf_view *logits, struct wf_err *err)
{
    const struct wf_value *const target = w->net.target;
    struct wf_region box = logits->box;
    box.lo[WF_C] = 0;
    box.hi[WF_C] = target->shape.at[WF_C];
    const size_t bytes = (size_t)wf_region_count(box) * wf_dtype_size(target->dtype);
    void *const labels = malloc(bytes ? bytes : 1);
    if (!labels)
        return wf_err_set(err, WF_ERR_FIT, "no memory for %zu bytes of labels", bytes);
    const struct wf_view truth = wf_view_dense(labels, target->dtype, box);
    const bool ok = wf_loader_read(w->loader, w->sample, NULL, &truth, err);
    struct wf_region part = logits->box;
    part.hi[WF_C] = 1;
    if (ok)
        wf_metrics_count(&w->one, logits, &truth, part, w->net.has_ignore ? &w->net.ignore : NULL);
    free(labels);
    return ok;
}

/* Collective. */
static bool score(struct whole *w, struct wf_err *err)
{
    struct wf_stream *const s = start(w, err);
    if (!s)
        return false;
    bool ok = true;
    for (int64_t i = wf_comm_rank(w->comm); ok && i < wf_stream_windows(s);
         i += wf_comm_size(w->comm)) {
        struct wf_view logits;
        ok = wf_stream_run(s, i, &logits, err) && (!w->net.has_classes || count(w, &logits, err));
    }
    double loss = 0;
    ok = wf_comm_agree(w->comm, ok, err) && wf_stream_number(s, &loss, err) &&
         wf_metrics_sum(&w->one, w->comm, err);
    wf_stream_free(s);
    if (!ok)
        return false;
    const struct wf_shape *const shape = &w->net.logits->shape;
    const double weight =
        w->net.has_classes ? (double)wf_metrics_total(&w->one) : (double)wf_shape_count(*shape);
    if (weight > 0) { /* nothing but ignored labels: its loss says nothing */
        w->loss += loss * weight;
        w->weight += weight;
    }
    wf_metrics_add(&w->all, &w->one);
    return true;
}

/* Collective. */
static bool score_sample(struct whole *w, struct wf_err *err)
{
    const struct wf_dataset *const data = w->e->feed.dataset;
    const struct wf_shape shape = wf_region_shape(wf_dataset_extent(data, w->sample));
    wf_metrics_clear(&w->one);
    const bool built = wf_job_network(w->e->job, shape, false, &w->net, err);
    const bool ok = wf_comm_agree(w->comm, built, err) && score(w, err);
    wf_graph_free(w->net.graph);
    return ok || wf_err_wrap(err, "'%s'", wf_dataset_sample(data, w->sample)->image);
}

static bool score_all(struct whole *w, struct wf_err *err)
{
    const int classes = wf_metrics_classes(w->e->net.logits->shape.at[WF_C]);
    wf_metrics_init(&w->all, classes);
    wf_metrics_init(&w->one, classes);
    bool ok = true;
    for (int64_t i = 0; ok && i < wf_loader_samples(w->loader); i++) {
        w->sample = wf_loader_sample(w->loader, i);
        ok = score_sample(w, err);
    }
    if (ok && wf_comm_rank(w->comm) == 0) {
        w->e->loss = w->weight > 0 ? w->loss / w->weight : (double)NAN;
        w->e->scores = wf_scores(&w->e->arena, &w->all);
    }
    wf_metrics_release(&w->all);
    wf_metrics_release(&w->one);
    return ok;
}

bool wf_evaluate_whole(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct whole w = { .e = arg, .comm = comm };
    struct wf_loader_options options = wf_feed_valid_loader(&w.e->feed, &w.e->net);
    options.batch = 1;
    options.threads = 0;
    for (int a = WF_D; a < WF_C; a++)
        options.crop[a] = 1; /* parts of any size are read */
    w.loader = wf_loader_new(w.e->feed.dataset, &options, err);
    bool ok = wf_comm_agree(comm, w.loader != NULL, err) && w.loader &&
              wf_settings_open(&w.e->settings, w.e->job->device, comm, &w.context, err);
    if (ok) {
        w.memory =
            wf_window_memory(&w.e->settings, &w.e->launch, w.e->job->device, comm, w.context);
        ok = score_all(&w, err);
    }
    wf_device_close(w.context);
    wf_loader_free(w.loader);
    return ok;
}
