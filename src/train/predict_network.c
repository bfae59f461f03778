#include "train/predict_network.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/build.h"

static struct wf_value *add_values(struct wf_graph *g, enum wf_predicts predicts,
                                   struct wf_value *logits)
{
    return predicts == WF_PREDICTS_CLASSES ? wf_softmax(g, logits, "predicted.probabilities")
           : predicts == WF_PREDICTS_BINARY
               ? wf_activation(g, logits, "predicted.probabilities", WF_SIGMOID, 0)
               : logits;
}

bool wf_predict_network_build(struct wf_predict_network *net, const struct wf_predict_image *i,
                              struct wf_err *err)
{
    const struct wf_prediction *const p = &i->p;
    const struct wf_cut cut = { .n_outputs = 1, .outputs = &p->logits };
    struct wf_value **const map = wf_take_zeroed(p->graph->n_values, sizeof *map);
    *net =
        (struct wf_predict_network){ .of = p->graph, .graph = wf_graph_cut(p->graph, &cut, map) };
    struct wf_value *const logits = net->logits = map[p->logits->id];
    net->image = p->window_image ? p->image : map[p->image->id];
    free(map);
    if (wf_predict_image_wants_values(i))
        net->outputs[net->n_outputs++] = net->values = add_values(net->graph, p->predicts, logits);
    if (wf_predict_image_wants_labels(i))
        net->outputs[net->n_outputs++] = net->labels =
            wf_argmax(net->graph, logits, wf_predict_image_labels(i), "predicted.classes");
    return wf_graph_ok(net->graph, err);
}

/* --- blended windows --- */

static void write_label(void *labels, enum wf_dtype dtype, int64_t at, int64_t label)
{
    if (dtype == WF_U8)
        ((uint8_t *)labels)[at] = (uint8_t)label;
    else
        ((int32_t *)labels)[at] = (int32_t)label;
}

/* As argmax: the first of the largest; of one channel 1 where it is positive. */
static int64_t label_of(const float *x, int64_t channels)
{
    int64_t best = channels == 1 && x[0] > 0;
    for (int64_t c = 1; c < channels; c++)
        if (x[c] > x[best])
            best = c;
    return best;
}

static void probabilities_of(const float *x, int64_t channels, enum wf_predicts predicts, float *to)
{
    double most = (double)x[0], sum = 0;
    for (int64_t c = 1; c < channels; c++)
        most = fmax(most, (double)x[c]);
    for (int64_t c = 0; c < channels; c++)
        sum += exp((double)x[c] - most);
    for (int64_t c = 0; c < channels; c++)
        to[c] = predicts == WF_PREDICTS_CLASSES  ? (float)(exp((double)x[c] - most) / sum)
                : predicts == WF_PREDICTS_BINARY ? (float)(1 / (1 + exp(-(double)x[c])))
                                                 : x[c];
}

void wf_predict_network_finish(const struct wf_predict_network *net, enum wf_predicts predicts,
                               const float *logits, int64_t pixels, void *const outputs[])
{
    const int64_t channels = net->logits->shape.at[WF_C];
    float *const values = net->values ? outputs[0] : NULL;
    void *const labels = net->labels ? outputs[net->n_outputs - 1] : NULL;
    for (int64_t i = 0; i < pixels; i++, logits += channels) {
        if (labels)
            write_label(labels, net->labels->dtype, i, label_of(logits, channels));
        if (values)
            probabilities_of(logits, channels, predicts, values + i * channels);
    }
}

/* --- all --- */

bool wf_predict_network_fits(const struct wf_predict_network *net, const struct wf_predict_image *i)
{
    return net->of == i->p.graph && wf_stream_passes(net->stream) == 0 &&
           wf_predict_image_wants_values(i) == (net->values != NULL) &&
           wf_predict_image_wants_labels(i) == (net->labels != NULL) &&
           (!net->labels || net->labels->dtype == wf_predict_image_labels(i));
}

void wf_predict_network_release(struct wf_predict_network *net)
{
    wf_stream_free(net->stream);
    wf_graph_free(net->graph);
    *net = (struct wf_predict_network){ 0 };
}

/* An eighth of the host's memory is for the files' bands. Windows are made of whole tiles where files
 * are. */
bool wf_predict_network_share(const struct wf_predict_image *i, int slots,
                              struct wf_stream_options *o, struct wf_err *err)
{
    const struct wf_prediction *const p = &i->p;
    const size_t packed = wf_mosaic_pack_bytes(&i->files);
    o->tile = p->per_pixel && packed ? WF_PREDICT_TILE : 0;
    const size_t bands = wf_device_is_host(p->plan.device) ? p->memory.limit / 8 : 0;
    if (!wf_window_memory_share(&p->memory, p->graph, bands, o, err))
        return false;
    if (!bands)
        return true;
    o->slots = slots;
    o->beside = packed;
    if (p->overlay || i->has_void)
        o->beside += (size_t)(slots * p->image->shape.at[WF_C]) * sizeof(float);
    const struct wf_shape *const s = &p->logits->shape;
    const size_t row = (size_t)s->at[WF_W] * (wf_mosaic_band_bytes(&i->files) + 1);
    const int axis = s->at[WF_D] > 1 ? WF_D : WF_H;
    const size_t line = axis == WF_D ? row * (size_t)s->at[WF_H] : row;
    o->most[axis] = wf_max(1, (int64_t)(bands / line));
    return true;
}
