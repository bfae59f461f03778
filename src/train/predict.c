#include "train/predict.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "ops/op.h"
#include "tensor/border.h"
#include "train/gather.h"
#include "train/mosaic.h"

enum { TAG = 11, TILE = 256 };

struct predictor {
    const struct wf_prediction *p;
    struct wf_comm *comm;
    struct wf_picture *picture; /* for the windows of this rank */
    struct wf_picture *under;   /* for tags and the overlay, read at its own pace */
    struct wf_stream *stream;
    struct wf_mosaic *mosaic; /* NULL: a classifier's, or results are arrays */
    bool wants_values;        /* probabilities, not only the largest */
    bool has_void; /* the image may hold nothing, and pixels of the prediction are its own */
    float *values; /* of one window, all channels */
    uint16_t *labels;
};

/* How many classes there are for so many channels of logits. */
static int count_labels(enum wf_predicts predicts, int64_t channels)
{
    return predicts == WF_PREDICTS_NUMBERS ? 0 : channels == 1 ? 2 : (int)channels;
}

/* --- the image --- */

static void read_array(const struct wf_prediction *p, const struct wf_region *box, float *to)
{
    for (struct wf_cursor c = wf_cursor(*box); wf_cursor_next(&c);)
        *to++ = p->pixels[wf_outside_index(&p->image->shape, c.at)];
}

static bool fill(void *user, const struct wf_value *input, const struct wf_view *view,
                 struct wf_err *err)
{
    const struct predictor *const d = user;
    WF_BUG_ON(strcmp(input->name, d->p->image->name) != 0 || view->dtype != WF_F32 ||
                  !wf_view_is_dense(view),
              "input '%s'", input->name);
    float *const x = view->data;
    if (d->p->pixels)
        read_array(d->p, &view->box, x);
    else if (!wf_picture_read(d->picture, &view->box, x, err))
        return false;
    const int64_t channels = input->shape.at[WF_C], count = wf_region_count(view->box) / channels;
    for (int64_t c = 0; d->p->mean && c < channels; c++) {
        /* As in training: one product and one sum in f32. */
        const float scale = (float)(1.0 / d->p->deviation[c]);
        const float offset = (float)(-d->p->mean[c] / d->p->deviation[c]);
        const float fill = (float)d->p->mean[c]; /* where nothing was measured */
        for (int64_t i = 0; i < count; i++) {
            const float v = x[i * channels + c];
            x[i * channels + c] = (isnan(v) ? fill : v) * scale + offset;
        }
    }
    for (int64_t i = 0; !d->p->mean && i < count * channels; i++)
        x[i] = isnan(x[i]) ? 0 : x[i];
    return true;
}

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct predictor *const d = user;
    return d->p->weights(d->p->user, run, err);
}

static void progress(void *user, double part)
{
    const struct predictor *const d = user;
    if (d->p->progress && wf_comm_rank(d->comm) == 0)
        d->p->progress(d->p->user, part);
}

/* --- from logits to labels and probabilities --- */

static int largest(const float *x, int64_t channels)
{
    int best = 0;
    for (int64_t c = 1; c < channels; c++)
        if (x[c] > x[best])
            best = (int)c;
    return best;
}

static void softmax(float *x, int64_t channels, float top)
{
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += exp((double)(x[c] - top));
    for (int64_t c = 0; c < channels; c++)
        x[c] = (float)(exp((double)(x[c] - top)) / sum);
}

/* The rule of the metrics (train/metrics.h). */
static uint16_t decide(const float *x, int64_t channels)
{
    return (uint16_t)(channels == 1 ? x[0] > 0 : largest(x, channels));
}

static void make_probable(enum wf_predicts predicts, float *x, int64_t channels)
{
    if (predicts == WF_PREDICTS_CLASSES)
        softmax(x, channels, x[largest(x, channels)]);
    for (int64_t c = 0; c < channels && predicts == WF_PREDICTS_BINARY; c++)
        x[c] = (float)(1 / (1 + exp(-(double)x[c])));
}

/* Copies the window's logits and makes of them what is wanted. */
static void decide_all(const struct predictor *d, const struct wf_view *part)
{
    const struct wf_view to = wf_view_dense(d->values, WF_F32, part->box);
    wf_view_copy(&to, part);
    const int64_t channels = d->p->logits->shape.at[WF_C];
    const int64_t count = wf_region_count(part->box) / channels;
    const enum wf_predicts predicts = d->p->predicts;
#ifdef _OPENMP
#pragma omp parallel for schedule(static)
#endif
    for (int64_t i = 0; i < count; i++) {
        d->labels[i] = decide(d->values + i * channels, channels);
        if (d->wants_values)
            make_probable(predicts, d->values + i * channels, channels);
    }
}

/* --- messages --- */

static int64_t pixels_of(struct wf_region window)
{
    return wf_region_extent(window, WF_D) * wf_region_extent(window, WF_H) *
           wf_region_extent(window, WF_W);
}

static bool takes_labels(const struct predictor *d)
{
    return d->mosaic ? wf_mosaic_wants_labels(d->mosaic) : d->p->labels != NULL;
}

static bool takes_values(const struct predictor *d)
{
    return d->mosaic ? wf_mosaic_wants_values(d->mosaic) : d->p->probabilities != NULL;
}

/* What rank 0 writes of the window's labels and values, from `rank` to there. */
static bool bring(const struct predictor *d, int rank, struct wf_region window, struct wf_err *err)
{
    const struct {
        bool wanted;
        void *data;
        size_t bytes;
    } parts[2] = {
        { takes_labels(d), d->labels, (size_t)pixels_of(window) * sizeof(uint16_t) },
        { takes_values(d), d->values, (size_t)wf_region_count(window) * sizeof(float) },
    };
    const bool receives = wf_comm_rank(d->comm) == 0;
    struct wf_message m[2];
    int count = 0;
    for (int i = 0; i < 2; i++)
        if (parts[i].wanted)
            m[count++] = (struct wf_message){ .peer = receives ? rank : 0,
                                              .tag = TAG + i,
                                              .bytes = parts[i].bytes,
                                              .recv = receives ? parts[i].data : NULL,
                                              .send = receives ? NULL : parts[i].data };
    return wf_comm_exchange(d->comm, count, m, err);
}

/* --- the windows --- */

/* Where the image holds nothing there is nothing to predict. */
static bool hide_void(struct predictor *d, const struct wf_region *window, struct wf_err *err)
{
    const int64_t channels = d->p->image->shape.at[WF_C], made = d->p->logits->shape.at[WF_C];
    const int64_t count = pixels_of(*window);
    float *const pixels = malloc((size_t)(count * channels) * sizeof *pixels);
    if (!pixels)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %" PRId64 " pixels", count);
    const bool ok = wf_picture_read(d->picture, window, pixels, err);
    for (int64_t i = 0; ok && i < count; i++) {
        bool empty = true;
        for (int64_t c = 0; empty && c < channels; c++)
            empty = isnan(pixels[i * channels + c]);
        for (int64_t c = 0; empty && c < made; c++)
            d->values[i * made + c] = NAN;
        d->labels[i] = empty ? WF_MOSAIC_VOID : d->labels[i];
    }
    free(pixels);
    return ok;
}

static bool run_window(struct predictor *d, int64_t index, struct wf_err *err)
{
    struct wf_view part;
    if (!wf_stream_run(d->stream, index, &part, err))
        return false;
    decide_all(d, &part);
    return !d->has_void || hide_void(d, &part.box, err);
}

static void put_array(const struct predictor *d, struct wf_region window)
{
    const struct wf_prediction *const p = d->p;
    const struct wf_view values = wf_view_dense(d->values, WF_F32, window);
    if (p->probabilities)
        wf_export_view(p->logits, &values, p->probabilities);
    struct wf_shape map = p->logits->shape;
    map.at[WF_C] = window.hi[WF_C] = 1;
    struct wf_cursor c = wf_cursor(window);
    for (int64_t i = 0; p->labels && wf_cursor_next(&c); i++)
        p->labels[wf_outside_index(&map, c.at)] = d->labels[i];
}

static bool put(struct predictor *d, int64_t index, struct wf_err *err)
{
    const struct wf_region window = wf_stream_window(d->stream, index);
    if (!d->mosaic) {
        put_array(d, window);
        return true;
    }
    return wf_mosaic_put(d->mosaic, &window, d->labels, d->values, err);
}

/* Windows `first` and the following, one of each rank, into the files that rank 0 writes. It takes all
 * that is sent also when it cannot write: nobody is kept waiting. */
static bool collect(struct predictor *d, int64_t first, struct wf_err *err)
{
    const int rank = wf_comm_rank(d->comm), size = wf_comm_size(d->comm);
    if (!takes_labels(d) && !takes_values(d))
        return true;
    bool ok = rank != 0 || put(d, first, err);
    for (int r = 1; r < size && first + r < wf_stream_windows(d->stream); r++)
        if (rank == 0 || rank == r) {
            const bool came = bring(d, r, wf_stream_window(d->stream, first + r), err);
            ok = ok && came && (rank != 0 || put(d, first + r, err));
        }
    return ok;
}

static bool make_window(struct predictor *d, int64_t index, struct wf_err *err)
{
    const struct wf_region window = wf_stream_window(d->stream, index);
    return run_window(d, index, err) &&
           (!d->mosaic || wf_mosaic_pack(d->mosaic, &window, d->labels, d->values, err));
}

/* Collective, but for a failure in the end, which closing the mosaic shares. */
static bool run_windows(struct predictor *d, struct wf_err *err)
{
    const int64_t count = wf_stream_windows(d->stream);
    bool ok = true;
    for (int64_t first = 0; first < count; first += wf_comm_size(d->comm)) {
        const int64_t mine = first + wf_comm_rank(d->comm);
        ok = ok && (mine >= count || make_window(d, mine, err));
        if (!wf_comm_agree(d->comm, ok, err))
            return false;
        ok = !d->mosaic || wf_mosaic_settle(d->mosaic, err);
        ok = collect(d, first, ok ? err : &(struct wf_err){ 0 }) && ok;
    }
    return ok;
}

/* --- a classifier --- */

/* Collective. */
static bool run_classifier(struct predictor *d, struct wf_arena *arena, struct wf_predicted *result,
                           struct wf_err *err)
{
    const int64_t channels = d->p->logits->shape.at[WF_C];
    d->wants_values = true;
    uint16_t label = 0;
    bool ok = true;
    if (wf_comm_rank(d->comm) == 0) {
        ok = run_window(d, 0, err);
        label = ok ? d->labels[0] : 0;
        result->probabilities = wf_arena_array(arena, channels, float);
        if (ok)
            memcpy(result->probabilities, d->values, (size_t)channels * sizeof(float));
    }
    result->label = label;
    return wf_comm_agree(d->comm, ok, err);
}

/* --- setting up --- */

static bool open_pictures(struct predictor *d, struct wf_err *err)
{
    const struct wf_shape shape = d->p->image->shape;
    if (d->p->pixels)
        return true;
    const bool looks = wf_comm_rank(d->comm) == 0 || d->p->overlay;
    d->picture = wf_picture_open(d->p->path, shape.at[WF_C], err);
    if (d->picture && looks)
        d->under = wf_picture_open(d->p->path, shape.at[WF_C], err);
    if (!d->picture || (looks && !d->under))
        return false;
    const struct wf_shape *const made = &d->p->logits->shape;
    d->has_void = d->p->per_pixel && wf_picture_has_nodata(d->picture) &&
                  made->at[WF_D] == shape.at[WF_D] && made->at[WF_H] == shape.at[WF_H] &&
                  made->at[WF_W] == shape.at[WF_W];
    return wf_shape_equal(wf_picture_shape(d->picture), shape) ||
           wf_err_set(err, WF_ERR_INPUT, "'%s' has changed while it was looked at", d->p->path);
}

static struct wf_mosaic_options mosaic_options(const struct predictor *d)
{
    const struct wf_prediction *const p = d->p;
    struct wf_mosaic_options o = {
        .shape = p->logits->shape,
        .labels = count_labels(p->predicts, p->logits->shape.at[WF_C]),
        .has_void = d->has_void,
        .classes = p->predicts == WF_PREDICTS_NUMBERS ? NULL : p->classes,
        .values = p->values,
        .overlay = p->predicts == WF_PREDICTS_NUMBERS ? NULL : p->overlay,
        .picture = d->under,
        .mean = p->mean,
        .deviation = p->deviation,
    };
    return o;
}

static size_t weight_bytes(const struct wf_graph *g)
{
    size_t bytes = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM || g->values[i]->kind == WF_STATE)
            bytes += (size_t)wf_shape_count(g->values[i]->shape) * sizeof(float) + 64;
    return bytes;
}

/* An eighth of the memory is for the files' bands. Windows are made of whole tiles where files are. */
static bool share_memory(const struct predictor *d, struct wf_stream_options *o, struct wf_err *err)
{
    const struct wf_prediction *const p = d->p;
    const struct wf_mosaic_options files = mosaic_options(d);
    o->tile = p->per_pixel && wf_mosaic_pack_bytes(&files) ? TILE : 0;
    const size_t weights = weight_bytes(p->graph), bands = p->limit / 8;
    if (!p->limit)
        return true;
    if (p->limit < weights + 2 * bands) {
        struct wf_arena arena = { 0 };
        (void)wf_err_set(err, WF_ERR_FIT,
                         "the weights take %s and memory.limit is %s for each rank: raise it to "
                         "%zuMiB at least",
                         wf_text_bytes(&arena, (double)weights),
                         wf_text_bytes(&arena, (double)p->limit), (weights >> 19) + 2);
        wf_arena_release(&arena);
        return false;
    }
    o->limit = p->limit - weights - bands;
    o->beside = (size_t)p->logits->shape.at[WF_C] * sizeof(float) + sizeof(uint16_t) +
                wf_mosaic_pack_bytes(&files);
    const struct wf_shape *const s = &p->logits->shape;
    const size_t row = (size_t)s->at[WF_W] * (wf_mosaic_band_bytes(&files) + 1);
    const int axis = s->at[WF_D] > 1 ? WF_D : WF_H;
    const size_t line = axis == WF_D ? row * (size_t)s->at[WF_H] : row;
    o->most[axis] = wf_max(1, (int64_t)(bands / line));
    return true;
}

/* Collective. */
static bool make_stream(struct predictor *d, struct wf_err *err)
{
    const struct wf_prediction *const p = d->p;
    struct wf_stream_options o = { .plan = p->plan,
                                   .context = p->context,
                                   .user = d,
                                   .weights = fill_weights,
                                   .fill = fill,
                                   .progress = progress };
    memcpy(o.window, p->window, sizeof o.window);
    const bool ok = open_pictures(d, err) && share_memory(d, &o, err);
    if (!wf_comm_agree(d->comm, ok, err))
        return false;
    d->stream = wf_stream_new(p->graph, p->logits, &o, d->comm, err);
    return d->stream != NULL;
}

static bool make_room(struct predictor *d, struct wf_err *err)
{
    const size_t pixels = (size_t)pixels_of(wf_stream_window(d->stream, 0));
    const size_t channels = (size_t)d->p->logits->shape.at[WF_C];
    d->values = malloc(pixels * channels * sizeof *d->values);
    d->labels = calloc(pixels, sizeof *d->labels);
    return (d->values && d->labels) ||
           wf_err_set(err, WF_ERR_FIT, "no memory for a window of %zu pixels", pixels);
}

/* Collective. */
static bool make_files(struct predictor *d, struct wf_err *err)
{
    if (!wf_comm_agree(d->comm, make_room(d, err), err))
        return false;
    if (!d->p->per_pixel || d->p->pixels)
        return true;
    const struct wf_region first = wf_stream_window(d->stream, 0);
    const struct wf_shape *const whole = &d->p->logits->shape;
    struct wf_mosaic_options o = mosaic_options(d);
    for (int a = 0; a < WF_AXES; a++) {
        o.band[a] = wf_region_extent(first, (enum wf_axis)a);
        o.tile[a] = o.band[a] == whole->at[a] ? TILE : wf_stream_tile(TILE, o.band[a]);
    }
    d->mosaic = wf_mosaic_new(&o, d->comm, err);
    return d->mosaic != NULL;
}

static void note(const struct predictor *d, struct wf_predicted *result)
{
    const struct wf_region first = wf_stream_window(d->stream, 0);
    result->windows = wf_stream_windows(d->stream);
    result->passes = wf_stream_passes(d->stream);
    result->bytes = wf_stream_bytes(d->stream);
    for (int a = 0; a < WF_AXES; a++)
        result->window[a] = wf_region_extent(first, (enum wf_axis)a);
}

bool wf_predict(struct wf_arena *arena, const struct wf_prediction *p, struct wf_comm *comm,
                struct wf_predicted *result, struct wf_err *err)
{
    WF_BUG_ON(p->logits->dtype != WF_F32 || p->image->dtype != WF_F32, "logits or image not f32");
    struct predictor d = { .p = p, .comm = comm, .wants_values = p->values || p->probabilities };
    *result = (struct wf_predicted){ 0 };
    bool ok = make_stream(&d, err);
    ok = ok && make_files(&d, err);
    if (ok)
        ok = p->per_pixel ? run_windows(&d, err) : run_classifier(&d, arena, result, err);
    if (d.stream)
        note(&d, result);
    if (d.mosaic)
        ok = wf_mosaic_close(d.mosaic, ok, err);
    wf_stream_free(d.stream);
    wf_picture_close(d.picture);
    wf_picture_close(d.under);
    free(d.values);
    free(d.labels);
    return ok;
}
