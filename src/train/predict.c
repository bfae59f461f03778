/*
 * The owner of the device: images in, windows through the pipeline, images out.
 *
 * Window n is posted, begun on the device, ended there and given to be packed, in this order:
 *
 *     ended <= begun <= posted,   begun - ended <= DEPTH,   posted - (oldest in the pipeline) <= slots
 *
 * One rank lets the pipeline's threads write and close files, and goes on to the next image. Several
 * ranks write one file in rounds of a window each, which takes collectives: so each rank's owner
 * writes, and images are closed before the next is opened.
 */
#include "train/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "train/pipeline.h"
#include "train/predict_image.h"
#include "train/predict_network.h"

enum {
    HOST_SLOTS = 3,   /* one is read, one computed, one written */
    DEVICE_SLOTS = 5, /* and two are in the device's queue, and one more is ready for it */
    MOST_SLOTS = 24,  /* of small windows: small images are decoded by a thread each */
    HOST_THREADS = 2, /* where the device's own threads take the cores */
    DEVICE_THREADS = 16,
    IMAGES = MOST_SLOTS + 2,
};
/* Pinned memory for more slots than the fewest: taking it takes time. */
static const size_t slots_bytes = (size_t)256 << 20;

struct predictor {
    const struct wf_predictions *all;
    struct wf_comm *comm;
    const struct wf_device *device;
    struct wf_context *context;
    struct wf_predict_network net;
    struct wf_pipeline *pipeline;
    int slots, depth;
    struct wf_predict_window windows[MOST_SLOTS];
    int64_t posted, begun, ended, written;   /* windows of this network; written: by the owner */
    struct wf_predict_image *images[IMAGES]; /* serial % IMAGES, [announced, opened) */
    int64_t announced, opened;
    size_t host_bytes;
    bool told; /* of several ranks: all know that one of them failed */
};

static bool is_alone(const struct predictor *d)
{
    return wf_comm_size(d->comm) == 1;
}

static struct wf_predict_image *current(const struct predictor *d)
{
    return d->images[(d->opened - 1) % IMAGES];
}

static struct wf_predict_window *window_of(struct predictor *d, int64_t n)
{
    return &d->windows[n % d->slots];
}

/* --- the network --- */

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct wf_prediction *const p = &current(user)->p;
    return p->weights(p->user, run, err);
}

/* For passes over the image, and for a classifier; windows of the last pass come by the pipeline. */
static bool fill_input(void *user, const struct wf_value *input, const struct wf_view *view,
                       struct wf_err *err)
{
    const struct wf_predict_image *const i = current(user);
    WF_BUG_ON(strcmp(input->name, i->p.image->name) != 0 || view->dtype != WF_F32 ||
                  !wf_view_is_dense(view),
              "input '%s'", input->name);
    return wf_predict_image_read(i, &view->box, view->data, err);
}

static void progress(void *user, double part)
{
    const struct predictor *const d = user;
    const struct wf_prediction *const p = &current(d)->p;
    if (p->progress && wf_comm_rank(d->comm) == 0)
        p->progress(p->user, p, part);
}

static void finish_blended(void *user, const float *logits, int64_t pixels, void *const outputs[])
{
    const struct predictor *const d = user;
    wf_predict_network_finish(&d->net, current(d)->p.predicts, logits, pixels, outputs);
}

/* Collective. */
static bool make_network(struct predictor *d, const struct wf_predict_image *i, struct wf_err *err)
{
    struct wf_stream_options o = { .plan = i->p.plan,
                                   .context = d->context,
                                   .user = d,
                                   .weights = fill_weights,
                                   .fill = fill_input,
                                   .progress = progress };
    memcpy(o.window, i->p.window, sizeof o.window);
    const bool ok =
        wf_predict_network_build(&d->net, i, err) && wf_predict_network_share(i, d->slots, &o, err);
    if (!wf_comm_agree(d->comm, ok, err))
        return false;
    struct wf_stream_blend blend = { .whole = i->p.image->shape, .finish = finish_blended };
    memcpy(blend.step, i->p.step, sizeof blend.step);
    if (i->p.window_image)
        o.blend = &blend;
    d->net.stream =
        o.blend ? wf_stream_new(i->p.graph, 1, &i->p.window_logits, &o, d->comm, err)
                : wf_stream_new(d->net.graph, d->net.n_outputs, d->net.outputs, &o, d->comm, err);
    return d->net.stream != NULL;
}

/* --- images --- */

static void note(const struct predictor *d, struct wf_predict_image *i)
{
    const struct wf_stream *const s = d->net.stream;
    struct wf_predicted *const result = &i->result;
    result->windows = wf_stream_computed(s, result->window);
    result->passes = wf_stream_passes(s);
    result->bytes = wf_stream_bytes(s);
    result->host_bytes = d->host_bytes;
    result->kept_bytes = wf_stream_kept(s);
    result->halo = wf_stream_halo(s);
}

/* Images whose files have their names, in order. */
static bool announce(struct predictor *d, struct wf_err *err)
{
    for (; d->announced < d->opened && d->images[d->announced % IMAGES]->closed; d->announced++) {
        struct wf_predict_image *const i = d->images[d->announced % IMAGES];
        note(d, i);
        const bool ok = wf_comm_rank(d->comm) != 0 || !d->all->done ||
                        d->all->done(d->all->user, &i->p, &i->result, err);
        if (!ok)
            return false;
        if (d->announced < d->opened - 1) { /* the last is still the current one */
            wf_predict_image_free(i);
            d->images[d->announced % IMAGES] = NULL;
        }
    }
    return true;
}

/* --- windows through the pipeline --- */

static bool fill_part(void *user, int slot, int part, struct wf_err *err)
{
    const struct predictor *const d = user;
    return wf_predict_image_fill(&d->windows[slot], part, err);
}

static bool pack_part(void *user, int slot, int part, struct wf_err *err)
{
    struct predictor *const d = user;
    return wf_predict_image_pack(&d->windows[slot], part, err);
}

/* Of one rank: the last window closes the files. */
static bool write_window(void *user, int slot, struct wf_err *err)
{
    struct predictor *const d = user;
    struct wf_predict_window *const w = &d->windows[slot];
    struct wf_predict_image *const i = w->image;
    if (!wf_predict_image_write(i, w, w->index, err))
        return false;
    if (i->written < wf_stream_windows(i->stream))
        return true;
    if (!wf_predict_image_close(i, true, err))
        return false;
    i->closed = true;
    return true;
}

/* Room in host memory, which grows with the largest window. */
static bool grow(struct predictor *d, void **memory, size_t *taken, size_t bytes,
                 struct wf_err *err)
{
    if (bytes <= *taken)
        return true;
    wf_host_give(d->device, d->context, *memory);
    *memory = wf_host_take(d->device, d->context, bytes);
    d->host_bytes += bytes - *taken;
    *taken = *memory ? bytes : 0;
    return *memory ||
           wf_err_set(err, WF_ERR_FIT, "no host memory for %zu bytes of a window", bytes);
}

static bool make_room(struct predictor *d, struct wf_predict_window *w, struct wf_err *err)
{
    const struct wf_predict_image *const i = w->image;
    const size_t channels = (size_t)i->p.image->shape.at[WF_C];
    const size_t pixels =
        (size_t)wf_region_count(w->cell) / (size_t)wf_region_extent(w->cell, WF_C);
    const size_t most =
        (size_t)wf_stream_most_read(d->net.stream, d->net.image) * wf_dtype_size(i->dtype);
    void *input = w->work.input.data, *source = w->source;
    const bool looks = wf_predict_image_wants_source(i);
    bool ok =
        grow(d, &input, &w->input_bytes, most, err) &&
        (!looks || grow(d, &source, &w->source_bytes, pixels * channels * sizeof(float), err));
    w->work.input.data = input;
    w->source = source;
    for (int k = 0; ok && k < d->net.n_outputs; k++)
        ok = grow(d, &w->work.outputs[k], &w->bytes[k],
                  pixels * (size_t)d->net.outputs[k]->shape.at[WF_C] *
                      wf_dtype_size(d->net.outputs[k]->dtype),
                  err);
    w->values = d->net.values ? w->work.outputs[0] : NULL;
    w->labels = d->net.labels ? w->work.outputs[d->net.n_outputs - 1] : NULL;
    return ok;
}

/* Plans before the first window: one may take longer than a window does. Of a grid with many windows the
 * first rows have all kinds but those at the end. */
static bool plan_kinds(struct predictor *d, struct wf_err *err)
{
    enum { LOOK_AT = 64 };
    const int64_t count = wf_min(wf_stream_windows(d->net.stream), LOOK_AT);
    struct wf_region box;
    for (int64_t index = 0; index < count; index++)
        if (!wf_stream_reads(d->net.stream, index, d->net.image, &box, err))
            return false;
    return true;
}

/* Memory for as many windows as there are at once, likewise. */
static bool reserve(struct predictor *d, struct wf_predict_image *i, struct wf_err *err)
{
    const int64_t count = i->p.per_pixel ? wf_min(wf_stream_windows(d->net.stream), d->slots) : 0;
    for (int64_t k = 0; k < count; k++) {
        d->windows[k].image = i;
        d->windows[k].cell = wf_stream_window(d->net.stream, 0);
        if (!make_room(d, &d->windows[k], err))
            return false;
    }
    return true;
}

static bool post(struct predictor *d, struct wf_predict_image *i, int64_t index, struct wf_err *err)
{
    struct wf_predict_window *const w = window_of(d, d->posted);
    struct wf_region box;
    if (!wf_stream_reads(d->net.stream, index, d->net.image, &box, err))
        return false;
    w->image = i;
    w->index = index;
    w->cell = wf_stream_window(d->net.stream, index);
    w->work.value = d->net.image;
    if (!make_room(d, w, err))
        return false;
    w->work.input = wf_view_dense(w->work.input.data, i->dtype, box);
    w->work.scale = i->scale;
    w->work.offset = i->offset;
    wf_predict_image_cut(i, w);
    if (i->first == 0)
        i->first = wf_now();
    wf_pipeline_post(
        d->pipeline, d->posted++,
        &(struct wf_pipeline_window){
            .fills = w->fills, .packs = w->packs, .image = i->serial, .in_order = i->in_order });
    return true;
}

static bool begin(struct predictor *d, struct wf_err *err)
{
    struct wf_predict_window *const w = window_of(d, d->begun);
    if (!wf_pipeline_wait(d->pipeline, d->begun, WF_WINDOW_FILLED))
        return false;
    d->begun++;
    return wf_stream_begin(d->net.stream, w->index, &w->work, err);
}

static bool end(struct predictor *d, struct wf_err *err)
{
    struct wf_predict_window *const w = window_of(d, d->ended);
    if (!wf_stream_end(d->net.stream, &w->work, err))
        return false;
    wf_pipeline_pack(d->pipeline, d->ended++);
    return true;
}

static bool may_begin(const struct predictor *d)
{
    return d->begun < d->posted && d->begun - d->ended < d->depth &&
           wf_pipeline_goes_on(d->pipeline, d->begun) &&
           (d->begun == d->ended || wf_pipeline_is(d->pipeline, d->begun, WF_WINDOW_FILLED));
}

/* Collective. The next round of windows of several ranks into the files; one that failed here (ok) is told
 * to all. */
static bool write_round(struct predictor *d, bool ok, struct wf_err *err)
{
    struct wf_predict_image *const i = current(d);
    struct wf_predict_window none = { .image = i, .index = -1 };
    const int64_t first = i->written;
    const bool mine = first + wf_comm_rank(d->comm) < wf_stream_windows(d->net.stream);
    while (ok && mine && d->ended <= d->written)
        ok = may_begin(d) ? begin(d, err) : end(d, err);
    ok = ok && (!mine || wf_pipeline_wait(d->pipeline, d->written, WF_WINDOW_PACKED));
    if (!ok && err->code == WF_OK)
        (void)!wf_pipeline_drain(d->pipeline, err);
    d->told = !wf_comm_agree(d->comm, ok, err);
    if (d->told)
        return false;
    ok = wf_predict_image_write(i, mine ? window_of(d, d->written) : &none, first, err);
    if (mine)
        wf_pipeline_written(d->pipeline, d->written++);
    return ok;
}

/* One step towards a free slot: the device's queue is filled first, then emptied. */
static bool advance(struct predictor *d, struct wf_err *err)
{
    if (may_begin(d))
        return begin(d, err);
    if (!is_alone(d) && d->written < d->ended &&
        wf_pipeline_is(d->pipeline, d->written, WF_WINDOW_PACKED))
        return write_round(d, true, err);
    if (d->ended < d->begun)
        return end(d, err);
    return is_alone(d) ? wf_pipeline_wait(d->pipeline, d->posted, WF_WINDOW_FREE)
                       : write_round(d, true, err);
}

static bool run_windows(struct predictor *d, struct wf_predict_image *i, struct wf_err *err)
{
    const int64_t count = wf_stream_windows(d->net.stream);
    for (int64_t index = wf_comm_rank(d->comm); index < count; index += wf_comm_size(d->comm)) {
        while (!wf_pipeline_is(d->pipeline, d->posted, WF_WINDOW_FREE))
            if (!advance(d, err))
                return false;
        if (!post(d, i, index, err))
            return false;
        while (may_begin(d) && wf_pipeline_is(d->pipeline, d->begun, WF_WINDOW_FILLED))
            if (!begin(d, err))
                return false;
    }
    return true;
}

/* All windows are computed and written, but for those of an image that failed and of the images behind it.
 * Several ranks have none left. */
static bool drain(struct predictor *d, struct wf_err *err)
{
    struct wf_err own = { 0 };
    while (is_alone(d) && own.code == WF_OK && d->ended < d->posted &&
           wf_pipeline_goes_on(d->pipeline, d->ended))
        (void)!advance(d, &own); /* an image may fail meanwhile */
    if (own.code)
        wf_pipeline_fail(d->pipeline, &own);
    const bool ok = !d->pipeline || wf_pipeline_drain(d->pipeline, err);
    return announce(d, ok ? err : &own) && ok;
}

/* Collective, several ranks. What fails here only is told to all in the next round, or when the files are
 * closed. */
static bool run_rounds(struct predictor *d, struct wf_predict_image *i, struct wf_err *err)
{
    bool ok = run_windows(d, i, err);
    while (!d->told && i->written < wf_stream_windows(d->net.stream))
        ok = write_round(d, ok, err) && ok;
    i->closed = wf_predict_image_close(i, ok, err);
    return i->closed && announce(d, err);
}

/* Collective. */
static bool run_classifier(struct predictor *d, struct wf_predict_image *i, struct wf_err *err)
{
    const size_t channels = (size_t)i->p.logits->shape.at[WF_C];
    struct wf_view parts[WF_STREAM_OUTPUTS];
    bool ok = true;
    i->result.probabilities = wf_take_zeroed(channels, sizeof(float));
    i->first = wf_now();
    if (wf_comm_rank(d->comm) == 0) {
        ok = wf_stream_run(d->net.stream, 0, parts, err);
        const struct wf_view values =
            wf_view_dense(i->result.probabilities, WF_F32, wf_shape_region(i->p.logits->shape));
        if (ok)
            wf_view_copy(&values, &parts[0]);
        if (ok && d->net.labels)
            i->result.label = (int)wf_view_at(&parts[1], (int64_t[WF_AXES]){ 0 });
    }
    ok = wf_comm_agree(d->comm, ok, err) && wf_predict_image_close(i, true, err);
    i->closed = ok;
    return ok && announce(d, err);
}

/* --- images in, images out --- */

/* An image cannot be opened: those before it are complete nevertheless, unless one of them failed first. */
static bool finish_others(struct predictor *d, struct wf_err *err)
{
    struct wf_err own = { 0 };
    if (!drain(d, &own))
        *err = own;
    return false;
}

/* A pipeline for the windows of the network at hand: nothing is in the last one. */
static bool make_pipeline(struct predictor *d, const struct wf_predict_image *i, struct wf_err *err)
{
    const bool host = wf_device_is_host(d->device);
    const int most = host ? HOST_THREADS : DEVICE_THREADS, wanted = i->p.plan.threads;
    const size_t bytes = (size_t)wf_stream_most_read(d->net.stream, d->net.image) + 1;
    const size_t small = slots_bytes / (bytes * wf_dtype_size(i->dtype));
    while (!host && d->slots < MOST_SLOTS && (size_t)d->slots < small)
        d->slots++;
    d->posted = d->begun = d->ended = d->written = 0;
    wf_pipeline_free(d->pipeline);
    d->pipeline = wf_pipeline_new(
        &(struct wf_pipeline_options){ .slots = d->slots,
                                       .threads = wanted > 0 && wanted < most ? wanted : most,
                                       .owner_writes = !is_alone(d),
                                       .user = d,
                                       .fill = fill_part,
                                       .pack = pack_part,
                                       .write = write_window },
        err);
    return d->pipeline;
}

/* Collective. Plans, memory and threads for an image unlike the last one. */
static bool change_network(struct predictor *d, struct wf_predict_image *i, struct wf_err *err)
{
    const bool host = wf_device_is_host(i->p.plan.device);
    d->device = i->p.plan.device;
    d->context = i->p.context;
    d->slots = host ? HOST_SLOTS : DEVICE_SLOTS; /* at least; on the host within the limit */
    d->depth = host ? 1 : 2;
    wf_predict_network_release(&d->net);
    return make_network(d, i, err) &&
           wf_comm_agree(d->comm,
                         plan_kinds(d, err) && make_pipeline(d, i, err) && reserve(d, i, err), err);
}

/* Collective. The image joins those in the pipeline, or waits for them if it needs other plans. */
static bool admit(struct predictor *d, const struct wf_prediction *p, struct wf_err *err)
{
    WF_BUG_ON(p->logits->dtype != WF_F32 || p->image->dtype != WF_F32, "logits or image not f32");
    struct wf_predict_image *const i = wf_predict_image_new(p, err);
    if (!wf_comm_agree(d->comm, i != NULL, err) || !i) {
        wf_predict_image_free(i);
        return finish_others(d, err);
    }
    const bool fits = d->net.of && wf_predict_network_fits(&d->net, i);
    if ((!fits && !drain(d, err)) || !announce(d, err)) {
        wf_predict_image_free(i);
        return false;
    }
    if (d->opened > 0 && d->announced == d->opened) { /* the last was kept as the current one */
        wf_predict_image_free(current(d));
        d->images[(d->opened - 1) % IMAGES] = NULL;
    }
    i->serial = d->opened;
    d->images[d->opened++ % IMAGES] = i;
    if (fits)
        wf_stream_restart(d->net.stream);
    else if (!change_network(d, i, err))
        return false;
    return wf_predict_image_begin(i, d->net.stream, is_alone(d) ? NULL : d->comm, err) ||
           finish_others(d, err);
}

/* Collective. */
static bool run_images(struct predictor *d, struct wf_err *err)
{
    for (;;) {
        struct wf_prediction one = { 0 };
        bool more = false;
        const bool ok = d->all->next(d->all->user, &one, &more, err);
        if (!wf_comm_agree(d->comm, ok, err))
            return finish_others(d, err);
        if (!more)
            return drain(d, err);
        if (!admit(d, &one, err))
            return false;
        struct wf_predict_image *const i = current(d);
        if (!(!one.per_pixel ? run_classifier : is_alone(d) ? run_windows : run_rounds)(d, i, err))
            return false;
    }
}

/* Nothing runs any more, on the threads and on the device. Without a failure here one of an image is the
 * reason, and those before it are completed. */
static void stop(struct predictor *d, struct wf_err *err)
{
    struct wf_err ignored = { 0 };
    if (!d->pipeline)
        return;
    if (err->code)
        wf_pipeline_fail(d->pipeline, err);
    (void)!(err->code ? wf_pipeline_drain(d->pipeline, &ignored) : drain(d, err));
    for (; d->ended < d->begun; d->ended++)
        (void)!wf_stream_end(d->net.stream, &window_of(d, d->ended)->work, &ignored);
    wf_pipeline_free(d->pipeline);
}

static void release(struct predictor *d)
{
    for (int k = 0; d->device && k < MOST_SLOTS; k++) {
        struct wf_predict_window *const w = &d->windows[k];
        wf_host_give(d->device, d->context, w->work.input.data);
        wf_host_give(d->device, d->context, w->source);
        for (int o = 0; o < WF_STREAM_OUTPUTS; o++)
            wf_host_give(d->device, d->context, w->work.outputs[o]);
        for (int part = 0; part < WF_PREDICT_PARTS; part++)
            wf_mosaic_packed_release(&w->packed[part]);
    }
    for (int k = 0; k < IMAGES; k++)
        wf_predict_image_free(d->images[k]);
    wf_predict_network_release(&d->net);
}

bool wf_predict_all(const struct wf_predictions *all, struct wf_comm *comm, struct wf_err *err)
{
    struct predictor *const d = wf_take_zeroed(1, sizeof *d);
    d->all = all;
    d->comm = comm;
    const bool ok = run_images(d, err);
    struct wf_err own = { 0 };
    if (!ok)
        stop(d, err);
    for (int k = 0; !ok && k < IMAGES; k++) /* half-written files */
        if (d->images[k] && !d->images[k]->closed)
            (void)!wf_predict_image_close(d->images[k], false, &own);
    if (ok)
        wf_pipeline_free(d->pipeline);
    release(d);
    free(d);
    return ok;
}

/* --- one image --- */

struct single {
    const struct wf_prediction *p;
    struct wf_arena *arena;
    struct wf_predicted *result;
    bool given;
};

static bool next_single(void *user, struct wf_prediction *one, bool *more, struct wf_err *)
{
    struct single *const s = user;
    *more = !s->given;
    *one = *s->p;
    s->given = true;
    return true;
}

static bool done_single(void *user, const struct wf_prediction *p,
                        const struct wf_predicted *result, struct wf_err *)
{
    const struct single *const s = user;
    const size_t channels = (size_t)p->logits->shape.at[WF_C];
    *s->result = *result;
    if (result->probabilities)
        s->result->probabilities = memcpy(wf_arena_array(s->arena, channels, float),
                                          result->probabilities, channels * sizeof(float));
    return true;
}

bool wf_predict(struct wf_arena *arena, const struct wf_prediction *p, struct wf_comm *comm,
                struct wf_predicted *result, struct wf_err *err)
{
    struct single one = { .p = p, .arena = arena, .result = result };
    const struct wf_predictions all = { .user = &one, .next = next_single, .done = done_single };
    *result = (struct wf_predicted){ 0 };
    return wf_predict_all(&all, comm, err);
}
