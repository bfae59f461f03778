/* What domain separation networks share: their options, and the ends of the two encoders. */
#pragma once

#include "models/blocks.h"

enum wf_separation_head { WF_HEAD_CLASSES, WF_HEAD_SEGMENTS };
enum wf_separation_norm { WF_SEPARATION_BATCH, WF_SEPARATION_INSTANCE, WF_SEPARATION_NONE };

struct wf_separation {
    int64_t targets; /* domains without labels */
    int64_t domain;  /* that is predicted for: 0 is the labelled one */
    int64_t code;    /* its elements; dsn_conv: channels of its map, 0: those of the last level */
    enum wf_separation_head head;
    enum wf_separation_norm norm;
};
extern const struct wf_option wf_separation_options[];

static inline const struct wf_separation *wf_separation(const struct wf_model_config *c)
{
    return c->own;
}
int wf_separation_domains(const struct wf_model_config *c);
void wf_separation_set_domain(void *own, int domain);
[[nodiscard]] bool wf_separation_check(const struct wf_model *m, const struct wf_model_config *c,
                                       struct wf_err *err);

/* fc 100, ReLU, then the head's outputs, of a vector behind gradient reversal: head.fc1, head.fc2. */
struct wf_value *wf_separation_head(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *code);

/* The logits, which the first domain's head makes, where the loss of the predicted domain is; ends build(). */
struct wf_value *wf_separation_hand_over(struct wf_graph *g, const struct wf_model_config *c,
                                         struct wf_value *logits);

/* A layer with ReLU behind it. */
struct wf_value *wf_separation_conv(struct wf_graph *g, struct wf_value *x, const char *name,
                                    int64_t out, int64_t kernel, int dims);
struct wf_value *wf_separation_linear(struct wf_graph *g, struct wf_value *x, const char *name,
                                      int64_t out);
