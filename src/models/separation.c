#include "models/separation.h"

#include <inttypes.h>

static const char *const head_names[] = { "classes", "segments", NULL };
static const char *const norm_names[] = { "batch", "instance", "none", NULL };

const struct wf_option wf_separation_options[] = {
    { "model.targets", "domains without labels, beside the one that has them",
      WF_OPTION_IN(INT, 1, 1000), .fallback = "1",
      .offset = offsetof(struct wf_separation, targets) },
    { "model.domain",
      "domain that is predicted for, whose running statistics are used; 0: the labelled one",
      WF_OPTION_IN(INT, 0, 1000), .fallback = "0",
      .offset = offsetof(struct wf_separation, domain) },
    { "model.code", "elements of a code; dsn_conv: channels of its map",
      WF_OPTION_IN(INT, 1, 65536), .unset = "dsn: 100; dsn_conv: channels of the last level",
      .offset = offsetof(struct wf_separation, code) },
    { "model.head", "what dsn_conv predicts: a class of the image, or one of each pixel",
      WF_OPTION_OF(NAME, head_names), .fallback = "classes",
      .offset = offsetof(struct wf_separation, head) },
    { "model.norm",
      "normalisation in dsn_conv; the running statistics of batch norms are kept per domain",
      WF_OPTION_OF(NAME, norm_names), .fallback = "batch",
      .offset = offsetof(struct wf_separation, norm) },
    { 0 },
};

int wf_separation_domains(const struct wf_model_config *c)
{
    return (int)wf_separation(c)->targets + 1;
}

void wf_separation_set_domain(void *own, int domain)
{
    ((struct wf_separation *)own)->domain = domain;
}

bool wf_separation_check(const struct wf_model *m, const struct wf_model_config *c,
                         struct wf_err *err)
{
    const struct wf_separation *const s = wf_separation(c);
    return s->domain <= s->targets || wf_err_set(err, WF_ERR_USAGE,
                                                 "network '%s': model.domain is %" PRId64
                                                 ", and the last of its domains is %" PRId64,
                                                 m->name, s->domain, s->targets);
}

/* Of the head that tells domains apart: one of two domains, one for each of more. */
static int64_t outputs(const struct wf_model_config *c)
{
    const int64_t domains = wf_separation_domains(c);
    return domains == 2 ? 1 : domains;
}

struct wf_value *wf_separation_conv(struct wf_graph *g, struct wf_value *x, const char *name,
                                    int64_t out, int64_t kernel, int dims)
{
    struct wf_conv conv = { .name = name, .out = out, .same = true, .bias = true, .dims = dims };
    wf_block_extents(dims, kernel, conv.kernel);
    return wf_activation(g, wf_conv(g, x, &conv), wf_arena_printf(&g->arena, "%s.relu", name),
                         WF_RELU, 0.0);
}

struct wf_value *wf_separation_linear(struct wf_graph *g, struct wf_value *x, const char *name,
                                      int64_t out)
{
    return wf_activation(g, wf_linear(g, x, name, out, true),
                         wf_arena_printf(&g->arena, "%s.relu", name), WF_RELU, 0.0);
}

struct wf_value *wf_separation_head(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *code)
{
    struct wf_value *const x =
        wf_separation_linear(g, wf_reverse_gradient(g, code, 1.0), "head.fc1", 100);
    return wf_linear(g, x, "head.fc2", outputs(c), true);
}

struct wf_value *wf_separation_hand_over(struct wf_graph *g, const struct wf_model_config *c,
                                         struct wf_value *logits)
{
    const int domain = (int)wf_separation(c)->domain;
    g->domain = wf_domain_label(domain, WF_ROLE_LOSSES);
    if (domain > 0)
        logits = wf_scale(g, logits, 1.0);
    g->domain = 0;
    return logits;
}
