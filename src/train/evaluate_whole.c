/* Scores of whole images of any size, window by window. */
#include <math.h>

#include "train/device.h"
#include "train/evaluate.h"
#include "train/whole.h"

static bool load_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct wf_evaluation *const e = user;
    return wf_checkpoint_load(e->checkpoint, run, NULL, err);
}

static bool score_all(struct wf_evaluation *e, struct wf_whole *w, struct wf_err *err)
{
    const int classes = wf_metrics_classes(e->net.logits->shape.at[WF_C]);
    struct wf_metrics all, one; /* of all images; of the one at hand */
    wf_metrics_init(&all, classes);
    wf_metrics_init(&one, classes);
    bool ok = true;
    double loss = 0, weight = 0;
    for (int64_t i = 0; ok && i < wf_loader_samples(w->loader); i++) {
        struct wf_whole_score score;
        ok = wf_whole_score(w, wf_loader_sample(w->loader, i), &one, &score, err);
        if (!ok || score.weight == 0) /* nothing but ignored labels: its loss says nothing */
            continue;
        loss += score.loss * (double)score.weight;
        weight += (double)score.weight;
        wf_metrics_add(&all, &one);
    }
    if (ok && wf_comm_rank(w->comm) == 0) {
        e->loss = weight > 0 ? loss / weight : (double)NAN;
        e->scores = wf_scores(&e->arena, &all);
    }
    wf_metrics_release(&all);
    wf_metrics_release(&one);
    return ok;
}

bool wf_evaluate_whole(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_evaluation *const e = arg;
    struct wf_whole w = {
        .job = e->job, .feed = &e->feed, .comm = comm, .weights = load_weights, .user = e
    };
    const struct wf_loader_options options = wf_whole_loader(&e->feed, &e->net);
    w.loader = wf_loader_new(e->feed.dataset, &options, err);
    bool ok = wf_comm_agree(comm, w.loader != NULL, err) && w.loader &&
              wf_settings_open(&e->settings, e->job->device, comm, &w.context, err);
    if (ok) {
        w.memory = wf_window_memory(&e->settings, &e->launch, e->job->device, comm, w.context);
        ok = score_all(e, &w, err);
    }
    wf_whole_release(&w);
    wf_device_close(w.context);
    wf_loader_free(w.loader);
    return ok;
}
