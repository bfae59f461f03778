/* What the device runs for a prediction. Not for anybody else than train/predict.c. */
#pragma once

#include "train/predict_image.h"

/* What the device runs: a network with classes and probabilities behind it. */
struct wf_predict_network {
    const struct wf_graph *of; /* the prediction's; NULL: none yet */
    struct wf_graph *graph;
    struct wf_value *image, *logits;
    struct wf_value *labels, *values; /* outputs: NULL if not wanted */
    struct wf_value *outputs[WF_STREAM_OUTPUTS];
    int n_outputs;
    struct wf_stream *stream;
};

/* A copy of the image's network with what is wanted of its logits behind it, so that labels come back as
 * bytes; the stream is the caller's to make. It is released after a failure, too. */
[[nodiscard]] bool wf_predict_network_build(struct wf_predict_network *net,
                                            const struct wf_predict_image *i, struct wf_err *err);
void wf_predict_network_release(struct wf_predict_network *net);
/* Outputs of blended logits, [pixels][channels], which the device does not make. */
void wf_predict_network_finish(const struct wf_predict_network *net, enum wf_predicts predicts,
                               const float *logits, int64_t pixels, void *const outputs[]);
/* Whether it does for the image as it is, plans and all. */
bool wf_predict_network_fits(const struct wf_predict_network *net,
                             const struct wf_predict_image *i);
/* How its windows may use the memory, with so many slots in the pipeline. */
[[nodiscard]] bool wf_predict_network_share(const struct wf_predict_image *i, int slots,
                                            struct wf_stream_options *o, struct wf_err *err);
