/*
 * One element of an update rule: the formulas of update.h in its order of operations, for the sweeps of
 * the CPU and of the GPU. The rule is a constant where this is called, so that nothing of the switch is
 * left in a loop.
 */
#pragma once

#include <math.h>

#include "device/update.h"

#ifdef __CUDACC__
#define WF_ON_BOTH static inline __host__ __device__
#else
#define WF_ON_BOTH static inline
#endif

/* X(rule, arrays of state); RMSPROP with momentum has two. */
#define WF_UPDATE_RULES(X)                                                                         \
    X(WF_SGD, 0)                                                                                   \
    X(WF_MOMENTUM, 1)                                                                              \
    X(WF_NESTEROV, 1)                                                                              \
    X(WF_ADAGRAD, 1)                                                                               \
    X(WF_RMSPROP, 1)                                                                               \
    X(WF_ADAM, 2)                                                                                  \
    X(WF_ADAMW, 2)                                                                                 \
    X(WF_LAMB, 2)                                                                                  \
    X(WF_LARS, 1)

/* What the gradient is multiplied by: `scale`, and what brings its norm down to `clip` (0: any), as PyTorch does it. */
WF_ON_BOTH double wf_update_factor(double squares, double scale, double clip)
{
    return clip > 0 ? scale * fmin(1.0, clip / (sqrt(squares) * scale + 1e-6)) : scale;
}

/* The numbers of a step for one tensor. */
struct wf_rule {
    struct wf_update u;
    float decay, ratio; /* decay is 0 where the tensor does not decay */
};

/* The parameter and its states. */
struct wf_element {
    float p, s0, s1;
};

WF_ON_BOTH struct wf_element wf_update_element(enum wf_optim_rule kind, bool second,
                                               const struct wf_rule *r, float g,
                                               struct wf_element e)
{
    const struct wf_update *const u = &r->u;
    const float d = u->scale * g + (kind == WF_ADAMW ? 0.0f : r->decay * e.p);
    switch (kind) {
    case WF_SGD:
        e.p -= u->lr * d;
        break;
    case WF_MOMENTUM:
        e.s0 = u->momentum * e.s0 + d;
        e.p -= u->lr * e.s0;
        break;
    case WF_NESTEROV:
        e.s0 = u->momentum * e.s0 + d;
        e.p -= u->lr * (d + u->momentum * e.s0);
        break;
    case WF_ADAGRAD:
        e.s0 += d * d;
        e.p -= u->lr * d / (sqrtf(e.s0) + u->eps);
        break;
    case WF_RMSPROP:
        e.s0 = u->beta2 * e.s0 + u->rest2 * d * d;
        if (second) {
            e.s1 = u->momentum * e.s1 + d / (sqrtf(e.s0) + u->eps);
            e.p -= u->lr * e.s1;
        } else {
            e.p -= u->lr * d / (sqrtf(e.s0) + u->eps);
        }
        break;
    case WF_ADAM:
    case WF_ADAMW: {
        const float keep = kind == WF_ADAM ? 1.0f : 1.0f - u->lr * r->decay;
        e.s0 += u->rest1 * (d - e.s0);
        e.s1 = u->beta2 * e.s1 + u->rest2 * d * d;
        e.p = keep * e.p - u->lr * u->correct1 * e.s0 / (sqrtf(e.s1) * u->correct2 + u->eps);
        break;
    }
    case WF_LAMB: /* the moments were made with the norms */
        e.p -= u->lr * r->ratio *
               (u->correct1 * e.s0 / (sqrtf(e.s1) * u->correct2 + u->eps) + r->decay * e.p);
        break;
    case WF_LARS:
        e.s0 = u->momentum * e.s0 + u->lr * r->ratio * d;
        e.p -= e.s0;
        break;
    case WF_OPTIM_RULES:
        break;
    }
    return e;
}

/* LAMB: the moments of an element; `other` is what its tensor's second norm is taken of. */
WF_ON_BOTH struct wf_element wf_update_moments(const struct wf_rule *r, float g,
                                               struct wf_element e, float *other)
{
    const struct wf_update *const u = &r->u;
    const float d = u->scale * g;
    e.s0 += u->rest1 * (d - e.s0);
    e.s1 = u->beta2 * e.s1 + u->rest2 * d * d;
    *other = u->correct1 * e.s0 / (sqrtf(e.s1) * u->correct2 + u->eps) + r->decay * e.p;
    return e;
}

/* The trust ratio of a tensor, from the norms of its parameters and of the other. */
WF_ON_BOTH float wf_update_ratio(const struct wf_update *u, bool decays, double p, double other)
{
    if (!decays || !(p > 0) || !(other > 0))
        return 1.0f;
    return u->rule == WF_LAMB ? (float)(p / other)
                              : (float)((double)u->trust * p / (other + (double)u->decay * p));
}
