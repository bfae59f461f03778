#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#define SWEEP _Pragma("omp parallel for simd schedule(static)")
#else
#define SWEEP
#endif

static const struct {
    const char *name;
    int n_states;
} rules[] = {
    [WF_SGD] = { "sgd", 0 },
    [WF_MOMENTUM] = { "momentum", 1 },
    [WF_ADAM] = { "adam", 2 },
};

bool wf_optim_parse(const char *name, enum wf_optim_rule *rule)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(name, rules[i].name) == 0) {
            *rule = (enum wf_optim_rule)i;
            return true;
        }
    return false;
}

size_t wf_optim_bytes(enum wf_optim_rule rule, size_t count)
{
    return (size_t)rules[rule].n_states * count * sizeof(float);
}

struct wf_optim *wf_optim_new(const struct wf_optim_options *options, size_t count,
                              struct wf_err *err)
{
    struct wf_optim *o = calloc(1, sizeof *o);
    WF_BUG_ON(!o, "out of memory");
    o->options = *options;
    o->count = count;
    o->n_states = rules[options->rule].n_states;
    struct wf_optim_options *p = &o->options;
    p->momentum = p->momentum > 0 ? p->momentum : 0.9;
    p->beta1 = p->beta1 > 0 ? p->beta1 : 0.9;
    p->beta2 = p->beta2 > 0 ? p->beta2 : 0.999;
    p->eps = p->eps > 0 ? p->eps : 1e-8;
    for (int i = 0; i < o->n_states; i++) {
        o->states[i] = calloc(count ? count : 1, sizeof *o->states[i]);
        if (!o->states[i]) {
            wf_err_set(err, WF_ERR_FIT, "no memory for the optimiser's %zu elements", count);
            wf_optim_free(o);
            return NULL;
        }
    }
    return o;
}

void wf_optim_free(struct wf_optim *o)
{
    if (!o)
        return;
    for (int i = 0; i < o->n_states; i++)
        free(o->states[i]);
    free(o);
}

void wf_optim_tick(struct wf_optim *o)
{
    o->step++;
}

static void sgd(const struct wf_optim *o, float *restrict p, const float *restrict g, size_t n)
{
    const float lr = (float)o->options.lr, decay = (float)o->options.weight_decay;
    SWEEP
    for (size_t i = 0; i < n; i++)
        p[i] -= lr * (g[i] + decay * p[i]);
}

static void momentum(const struct wf_optim *o, float *restrict p, const float *restrict g,
                     float *restrict buf, size_t n)
{
    const float lr = (float)o->options.lr, decay = (float)o->options.weight_decay;
    const float mu = (float)o->options.momentum;
    SWEEP
    for (size_t i = 0; i < n; i++) {
        buf[i] = mu * buf[i] + (g[i] + decay * p[i]);
        p[i] -= lr * buf[i];
    }
}

/* As PyTorch writes it: step = lr / (1 - b1^t); denominator = sqrt(v) / sqrt(1 - b2^t) + eps. */
static void adam(const struct wf_optim *o, float *restrict p, const float *restrict g,
                 float *restrict m, float *restrict v, size_t n)
{
    const struct wf_optim_options *opt = &o->options;
    const float decay = (float)opt->weight_decay, eps = (float)opt->eps;
    const float b1 = (float)opt->beta1, b2 = (float)opt->beta2;
    const float rate = (float)(opt->lr / (1.0 - pow(opt->beta1, (double)o->step)));
    const float unbias = (float)(1.0 / sqrt(1.0 - pow(opt->beta2, (double)o->step)));
    SWEEP
    for (size_t i = 0; i < n; i++) {
        const float d = g[i] + decay * p[i];
        m[i] += (1.0f - b1) * (d - m[i]);
        v[i] = b2 * v[i] + (1.0f - b2) * d * d;
        p[i] -= rate * m[i] / (sqrtf(v[i]) * unbias + eps);
    }
}

void wf_optim_update(struct wf_optim *o, float *params, const float *grads, size_t first, size_t n)
{
    WF_BUG_ON(first + n > o->count, "%zu + %zu of %zu", first, n, o->count);
    switch (o->options.rule) {
    case WF_SGD:
        sgd(o, params + first, grads + first, n);
        return;
    case WF_MOMENTUM:
        momentum(o, params + first, grads + first, o->states[0] + first, n);
        return;
    case WF_ADAM:
        adam(o, params + first, grads + first, o->states[0] + first, o->states[1] + first, n);
        return;
    }
}
