/*
 * The sweeps of device/update.h: pieces in parallel, each a plain loop that becomes vector code. Where all
 * of it is small one thread does it sooner than several meet.
 */
#include "device/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

#ifdef _OPENMP
#define OVER_PIECES _Pragma("omp parallel for schedule(static) if (p->elements > SMALL)")
#else
#define OVER_PIECES
#endif

enum { SMALL = 1 << 16 }; /* elements */

struct prepared {
    struct wf_update_layout layout;
    struct wf_update_tensor *tensors;
    struct wf_update_piece *pieces;
    double *sums;  /* two of each piece */
    float *ratios; /* of each tensor */
    int64_t elements;
};

static void release(void *prepared)
{
    struct prepared *const p = prepared;
    if (!p)
        return;
    free(p->tensors);
    free(p->pieces);
    free(p->sums);
    free(p->ratios);
    free(p);
}

static void *prepare(struct wf_context *context, const struct wf_update_layout *layout)
{
    (void)context;
    struct prepared *const p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    const size_t tensors = (size_t)layout->n_tensors, pieces = (size_t)layout->n_pieces;
    p->layout = *layout;
    p->tensors = calloc(tensors + 1, sizeof *p->tensors);
    p->pieces = calloc(pieces + 1, sizeof *p->pieces);
    p->sums = calloc(2 * pieces + 1, sizeof *p->sums);
    p->ratios = calloc(tensors + 1, sizeof *p->ratios);
    if (!p->tensors || !p->pieces || !p->sums || !p->ratios) {
        release(p);
        return NULL;
    }
    if (tensors)
        memcpy(p->tensors, layout->tensors, tensors * sizeof *p->tensors);
    if (pieces)
        memcpy(p->pieces, layout->pieces, pieces * sizeof *p->pieces);
    for (size_t i = 0; i < pieces; i++)
        p->elements += layout->pieces[i].count;
    p->layout.tensors = p->tensors;
    p->layout.pieces = p->pieces;
    return p;
}

/* --- sums --- */

enum { LANES = 16 };

static double sum_lanes(const double lanes[LANES])
{
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

static double piece_squares(const float *x, int64_t n)
{
    double lanes[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++)
        lanes[i % LANES] += (double)x[i] * (double)x[i];
    return sum_lanes(lanes);
}

static double squares(void *prepared, const float *grad)
{
    const struct prepared *const p = prepared;
    OVER_PIECES
    for (int i = 0; i < p->layout.n_pieces; i++)
        p->sums[i] = piece_squares(grad + p->pieces[i].first, p->pieces[i].count);
    double sum = 0;
    for (int i = 0; i < p->layout.n_pieces; i++)
        sum += p->sums[i];
    return sum;
}

static void accumulate(void *prepared, float *sum, const float *grad, float weight, bool first)
{
    const struct prepared *const p = prepared;
    OVER_PIECES
    for (int i = 0; i < p->layout.n_pieces; i++) {
        float *restrict const s = sum + p->pieces[i].first;
        const float *restrict const g = grad + p->pieces[i].first;
        const int64_t n = p->pieces[i].count;
        if (first)
            WF_SIMD for (int64_t k = 0; k < n; k++) s[k] = weight * g[k];
        else
            WF_SIMD for (int64_t k = 0; k < n; k++) s[k] += weight * g[k];
    }
}

/* --- rules --- */

/* A piece of all arrays. */
struct span {
    float *p;
    const float *g;
    float *s0, *s1;
    int64_t n;
    float decay; /* 0 where the tensor does not decay */
    float ratio; /* LAMB and LARS: of the tensor */
    const struct wf_update *u;
};

static void sgd(const struct span *a)
{
    float *restrict const p = a->p;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++)
        p[i] -= lr * (scale * g[i] + decay * p[i]);
}

static void momentum(const struct span *a)
{
    float *restrict const p = a->p, *restrict const s = a->s0;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr, mu = a->u->momentum;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        s[i] = mu * s[i] + (scale * g[i] + decay * p[i]);
        p[i] -= lr * s[i];
    }
}

static void nesterov(const struct span *a)
{
    float *restrict const p = a->p, *restrict const s = a->s0;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr, mu = a->u->momentum;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        const float d = scale * g[i] + decay * p[i];
        s[i] = mu * s[i] + d;
        p[i] -= lr * (d + mu * s[i]);
    }
}

static void adagrad(const struct span *a)
{
    float *restrict const p = a->p, *restrict const s = a->s0;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr, eps = a->u->eps;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        const float d = scale * g[i] + decay * p[i];
        s[i] += d * d;
        p[i] -= lr * d / (sqrtf(s[i]) + eps);
    }
}

static void rmsprop(const struct span *a)
{
    float *restrict const p = a->p, *restrict const v = a->s0;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr, eps = a->u->eps;
    const float b2 = a->u->beta2, rest2 = a->u->rest2;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        const float d = scale * g[i] + decay * p[i];
        v[i] = b2 * v[i] + rest2 * d * d;
        p[i] -= lr * d / (sqrtf(v[i]) + eps);
    }
}

static void rmsprop_momentum(const struct span *a)
{
    float *restrict const p = a->p, *restrict const v = a->s0, *restrict const s = a->s1;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, lr = a->u->lr, eps = a->u->eps;
    const float b2 = a->u->beta2, rest2 = a->u->rest2, mu = a->u->momentum;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        const float d = scale * g[i] + decay * p[i];
        v[i] = b2 * v[i] + rest2 * d * d;
        s[i] = mu * s[i] + d / (sqrtf(v[i]) + eps);
        p[i] -= lr * s[i];
    }
}

/* Adam and AdamW: what of the decay goes into the gradient, and what the parameter shrinks to. */
static void adam_with(const struct span *a, float decay, float keep)
{
    float *restrict const p = a->p, *restrict const m = a->s0, *restrict const v = a->s1;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, eps = a->u->eps;
    const float b2 = a->u->beta2, rest1 = a->u->rest1, rest2 = a->u->rest2;
    const float rate = a->u->lr * a->u->correct1, correct2 = a->u->correct2;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        const float d = scale * g[i] + decay * p[i];
        m[i] += rest1 * (d - m[i]);
        v[i] = b2 * v[i] + rest2 * d * d;
        p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * correct2 + eps);
    }
}

static void adam(const struct span *a)
{
    adam_with(a, a->decay, 1.0f);
}

static void adamw(const struct span *a)
{
    adam_with(a, 0.0f, 1.0f - a->u->lr * a->decay);
}

static void lamb(const struct span *a)
{
    float *restrict const p = a->p;
    const float *restrict const m = a->s0, *restrict const v = a->s1;
    const float eps = a->u->eps, decay = a->decay, rate = a->u->lr * a->ratio;
    const float correct1 = a->u->correct1, correct2 = a->u->correct2;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++)
        p[i] -= rate * (correct1 * m[i] / (sqrtf(v[i]) * correct2 + eps) + decay * p[i]);
}

static void lars(const struct span *a)
{
    float *restrict const p = a->p, *restrict const s = a->s0;
    const float *restrict const g = a->g;
    const float scale = a->u->scale, decay = a->decay, mu = a->u->momentum;
    const float rate = a->u->lr * a->ratio;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        s[i] = mu * s[i] + rate * (scale * g[i] + decay * p[i]);
        p[i] -= s[i];
    }
}

/* --- norms of a tensor --- */

/* LAMB: makes the moments, and sums |p|^2 and |r|^2. */
static void lamb_norms(const struct span *a, double sums[2])
{
    float *const m = a->s0, *const v = a->s1;
    const float b2 = a->u->beta2, rest1 = a->u->rest1, rest2 = a->u->rest2, eps = a->u->eps;
    double lanes[LANES] = { 0 };
    for (int64_t i = 0; i < a->n; i++) {
        const float d = a->u->scale * a->g[i];
        m[i] += rest1 * (d - m[i]);
        v[i] = b2 * v[i] + rest2 * d * d;
        const float r = a->u->correct1 * m[i] / (sqrtf(v[i]) * a->u->correct2 + eps);
        const double whole = (double)(r + a->decay * a->p[i]);
        lanes[i % LANES] += whole * whole;
    }
    sums[0] = piece_squares(a->p, a->n);
    sums[1] = sum_lanes(lanes);
}

static void lars_norms(const struct span *a, double sums[2])
{
    const double scale = (double)a->u->scale;
    sums[0] = piece_squares(a->p, a->n);
    sums[1] = scale * scale * piece_squares(a->g, a->n);
}

static float ratio_of(const struct wf_update *u, const struct wf_update_tensor *t, double p,
                      double other)
{
    if (!t->decays || !(p > 0) || !(other > 0))
        return 1.0f;
    if (u->rule == WF_LAMB)
        return (float)(p / other);
    return (float)((double)u->trust * p / (other + (double)u->decay * p));
}

/* --- the sweep --- */

static struct span span_of(const struct prepared *p, const struct wf_update *u, int piece)
{
    const struct wf_update_piece *const at = &p->pieces[piece];
    return (struct span){ .p = u->param + at->first,
                          .g = u->grad + at->first,
                          .s0 = u->state[0] ? u->state[0] + at->first : NULL,
                          .s1 = u->state[1] ? u->state[1] + at->first : NULL,
                          .n = at->count,
                          .decay = p->tensors[at->tensor].decays ? u->decay : 0.0f,
                          .ratio = p->ratios[at->tensor],
                          .u = u };
}

static void make_ratios(const struct prepared *p, const struct wf_update *u)
{
    OVER_PIECES
    for (int i = 0; i < p->layout.n_pieces; i++) {
        const struct span a = span_of(p, u, i);
        (u->rule == WF_LAMB ? lamb_norms : lars_norms)(&a, p->sums + 2 * (size_t)i);
    }
    for (int t = 0; t < p->layout.n_tensors; t++) {
        double sums[2] = { 0, 0 };
        const struct wf_update_tensor *const at = &p->tensors[t];
        for (int i = at->first_piece; i < at->first_piece + at->n_pieces; i++)
            for (int k = 0; k < 2; k++)
                sums[k] += p->sums[2 * (size_t)i + (size_t)k];
        p->ratios[t] = ratio_of(u, at, sqrt(sums[0]), sqrt(sums[1]));
    }
}

static void update(void *prepared, const struct wf_update *u)
{
    static void (*const rules[WF_OPTIM_RULES])(const struct span *) = {
        [WF_SGD] = sgd,         [WF_MOMENTUM] = momentum, [WF_NESTEROV] = nesterov,
        [WF_ADAGRAD] = adagrad, [WF_RMSPROP] = rmsprop,   [WF_ADAM] = adam,
        [WF_ADAMW] = adamw,     [WF_LAMB] = lamb,         [WF_LARS] = lars,
    };
    const struct prepared *const p = prepared;
    void (*const rule)(const struct span *) =
        u->rule == WF_RMSPROP && u->state[1] ? rmsprop_momentum : rules[u->rule];
    if (u->rule == WF_LAMB || u->rule == WF_LARS)
        make_ratios(p, u);
    OVER_PIECES
    for (int i = 0; i < p->layout.n_pieces; i++) {
        const struct span a = span_of(p, u, i);
        rule(&a);
    }
}

const struct wf_updater wf_cpu_updater = {
    .prepare = prepare,
    .release = release,
    .squares = squares,
    .accumulate = accumulate,
    .update = update,
};
