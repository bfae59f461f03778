#include "train/whole.h"

#include <stdlib.h>

bool wf_whole_may_stand_in(const struct wf_job *job, const struct wf_feed *feed,
                           const struct wf_network *valid)
{
    if (job->model->sparse || job->net.domains > 1 || job->mesh.at[WF_MESH_PIPE] > 1 ||
        !wf_model_is_dense(job->model, &job->config))
        return false;
    for (int a = WF_D; a <= WF_W; a++)
        if (valid->image->shape.at[a] != feed->whole[a])
            return false;
    return true;
}

struct wf_loader_options wf_whole_loader(const struct wf_feed *feed, const struct wf_network *net)
{
    struct wf_loader_options options = wf_feed_valid_loader(feed, net);
    options.batch = 1;
    options.threads = 0;
    for (int a = WF_D; a < WF_C; a++)
        options.crop[a] = 1; /* parts of any size are read */
    return options;
}

struct wf_stream_options wf_whole_stream(const struct wf_job *job)
{
    const struct wf_plan_options plan = wf_job_plan_options(job);
    return (struct wf_stream_options){ .plan = { .device = plan.device,
                                                 .threads = plan.threads,
                                                 .figures = plan.figures,
                                                 .tf32 = plan.tf32,
                                                 .exact = plan.exact } };
}

static bool fill(void *user, const struct wf_value *input, const struct wf_view *view,
                 struct wf_err *err)
{
    const struct wf_whole *const w = user;
    const bool image = input == w->net.image;
    WF_BUG_ON(!image && input != w->net.target, "input '%s'", input->name);
    return wf_loader_read(w->loader, w->sample, image ? view : NULL, image ? NULL : view, err);
}

static bool load_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct wf_whole *const w = user;
    return w->weights(w->user, run, err);
}

/* --- an image at hand --- */

size_t wf_whole_bytes(const struct wf_whole *w)
{
    const size_t now = w->stream ? wf_stream_kept(w->stream) + wf_stream_bytes(w->stream) : 0;
    return now > w->held ? now : w->held;
}

static void forget_image(struct wf_whole *w)
{
    w->held = wf_whole_bytes(w);
    wf_stream_free(w->stream);
    wf_graph_free(w->net.graph);
    w->stream = NULL;
    w->net.graph = NULL;
}

void wf_whole_release(struct wf_whole *w)
{
    forget_image(w);
}

static bool take_room(struct wf_whole *w, struct wf_stream_options *options, struct wf_err *err)
{
    if (!w->lender)
        return wf_window_memory_share(&w->memory, w->net.graph, 0, options, err);
    options->limit = w->memory.limit;
    options->keep = w->memory.keep;
    return true;
}

/* Collective. */
static bool start(struct wf_whole *w, struct wf_err *err)
{
    struct wf_stream_options options = wf_whole_stream(w->job);
    options.context = w->context;
    options.slots = w->lender ? 0 : 1;
    options.number = w->net.loss;
    options.lender = w->lender;
    options.user = w;
    options.weights = load_weights;
    options.fill = fill;
    if (!wf_comm_agree(w->comm, take_room(w, &options, err), err))
        return false;
    w->stream = wf_stream_new(w->net.graph, 1, &w->net.logits, &options, w->comm, err);
    return w->stream != NULL;
}

struct wf_shape wf_whole_shape(const struct wf_whole *w, int64_t sample)
{
    return wf_region_shape(wf_dataset_extent(w->feed->dataset, sample));
}

/* Collective. */
static bool turn_to(struct wf_whole *w, int64_t sample, struct wf_err *err)
{
    const struct wf_shape shape = wf_whole_shape(w, sample);
    w->sample = sample;
    if (w->stream && wf_stream_passes(w->stream) == 0 &&
        wf_shape_equal(shape, w->net.image->shape)) {
        wf_stream_restart(w->stream);
        return true;
    }
    forget_image(w);
    const bool built = wf_job_network(w->job, shape, false, &w->net, err);
    return wf_comm_agree(w->comm, built, err) && start(w, err);
}

static bool name_image(const struct wf_whole *w, bool ok, struct wf_err *err)
{
    return ok || wf_err_wrap(err, "'%s'", wf_dataset_sample(w->feed->dataset, w->sample)->image);
}

/* --- its windows --- */

/* A part of the image or of its labels, dense; the caller frees view->data. */
static bool read_part(const struct wf_whole *w, const struct wf_value *value, struct wf_region box,
                      struct wf_view *view, struct wf_err *err)
{
    box.lo[WF_C] = 0;
    box.hi[WF_C] = value->shape.at[WF_C];
    const size_t bytes = (size_t)wf_region_count(box) * wf_dtype_size(value->dtype);
    void *const data = malloc(bytes ? bytes : 1);
    if (!data)
        return wf_err_set(err, WF_ERR_FIT, "no memory for %zu bytes of a window", bytes);
    const bool image = value == w->net.image;
    *view = wf_view_dense(data, value->dtype, box);
    return wf_loader_read(w->loader, w->sample, image ? view : NULL, image ? NULL : view, err);
}

/* The window's logits against the labels under it. */
static bool count(const struct wf_whole *w, const struct wf_view *logits, struct wf_metrics *one,
                  struct wf_err *err)
{
    struct wf_view truth = { 0 };
    struct wf_region part = logits->box;
    part.hi[WF_C] = 1;
    const bool ok = read_part(w, w->net.target, logits->box, &truth, err);
    if (ok)
        wf_metrics_count(one, logits, &truth, part, w->net.has_ignore ? &w->net.ignore : NULL);
    free(truth.data);
    return ok;
}

/* Collective. */
static bool score_image(struct wf_whole *w, struct wf_metrics *one, struct wf_whole_score *score,
                        struct wf_err *err)
{
    struct wf_stream *const s = w->stream;
    bool ok = true;
    wf_metrics_clear(one);
    for (int64_t i = wf_comm_rank(w->comm); ok && i < wf_stream_windows(s);
         i += wf_comm_size(w->comm)) {
        struct wf_view logits;
        ok = wf_stream_run(s, i, &logits, err) &&
             (!w->net.has_classes || count(w, &logits, one, err));
    }
    ok = wf_comm_agree(w->comm, ok, err) && wf_stream_number(s, &score->loss, err) &&
         wf_metrics_sum(one, w->comm, err);
    score->weight =
        w->net.has_classes ? wf_metrics_total(one) : wf_shape_count(w->net.logits->shape);
    return ok;
}

bool wf_whole_score(struct wf_whole *w, int64_t sample, struct wf_metrics *one,
                    struct wf_whole_score *score, struct wf_err *err)
{
    return name_image(w, turn_to(w, sample, err) && score_image(w, one, score, err), err);
}

static bool show_window(struct wf_whole *w, int64_t index, wf_whole_window *see, void *user,
                        struct wf_err *err)
{
    struct wf_view logits, image = { 0 }, target = { 0 };
    const bool ok = wf_stream_run(w->stream, index, &logits, err) &&
                    read_part(w, w->net.image, logits.box, &image, err) &&
                    read_part(w, w->net.target, logits.box, &target, err);
    if (ok)
        see(user, &image, &target, &logits);
    free(image.data);
    free(target.data);
    return ok;
}

bool wf_whole_show(struct wf_whole *w, int64_t sample, wf_whole_window *see, void *user,
                   struct wf_err *err)
{
    if (!turn_to(w, sample, err))
        return name_image(w, false, err);
    bool ok = true;
    for (int64_t i = wf_comm_rank(w->comm); ok && i < wf_stream_windows(w->stream);
         i += wf_comm_size(w->comm))
        ok = show_window(w, i, see, user, err);
    return name_image(w, wf_comm_agree(w->comm, ok, err), err);
}
