/*
 * The sweeps of device/update.h: pieces in parallel, each a plain loop that becomes vector code. Where all
 * of it is small one thread does it sooner than several meet.
 */
#include "device/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/update_rule.h"

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

static void *prepare(struct wf_context *, const struct wf_update_layout *layout)
{
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

/* --- rules --- */

/* A piece of all arrays. */
struct span {
    float *p;
    const float *g;
    float *s0, *s1;
    int64_t n;
    struct wf_rule rule;
};

/* Inlined where kind and number of states are constants, so that it becomes vector code. */
static inline __attribute__((always_inline)) void sweep(const struct span *a,
                                                        enum wf_optim_rule kind, int states)
{
    float *restrict const p = a->p, *restrict const s0 = a->s0, *restrict const s1 = a->s1;
    WF_BUG_ON((states > 0 && !s0) || (states > 1 && !s1), "%d states, and not as many arrays",
              states);
    const float *restrict const g = a->g;
    const struct wf_rule rule = a->rule;
    WF_SIMD
    for (int64_t i = 0; i < a->n; i++) {
        struct wf_element e = { p[i], states > 0 ? s0[i] : 0, states > 1 ? s1[i] : 0 };
        e = wf_update_element(kind, states > 1, &rule, g[i], e);
        p[i] = e.p;
        if (states > 0 && kind != WF_LAMB)
            s0[i] = e.s0;
        if (states > 1 && kind != WF_LAMB)
            s1[i] = e.s1;
    }
}

#define SWEEP(rule, states)                                                                        \
    case rule:                                                                                     \
        sweep(a, rule, states);                                                                    \
        break;

static void sweep_by(enum wf_optim_rule kind, const struct span *a)
{
    if (kind == WF_RMSPROP && a->s1) {
        sweep(a, WF_RMSPROP, 2);
        return;
    }
    switch (kind) {
        WF_UPDATE_RULES(SWEEP)
    case WF_OPTIM_RULES:
        break;
    }
}

/* --- norms of a tensor --- */

/* LAMB: makes the moments, and sums |p|^2 and |r|^2. */
static void lamb_norms(const struct span *a, double sums[2])
{
    double lanes[LANES] = { 0 };
    for (int64_t i = 0; i < a->n; i++) {
        float other;
        const struct wf_element e = wf_update_moments(
            &a->rule, a->g[i], (struct wf_element){ a->p[i], a->s0[i], a->s1[i] }, &other);
        a->s0[i] = e.s0;
        a->s1[i] = e.s1;
        lanes[i % LANES] += (double)other * (double)other;
    }
    sums[0] = piece_squares(a->p, a->n);
    sums[1] = sum_lanes(lanes);
}

static void lars_norms(const struct span *a, double sums[2])
{
    const double scale = (double)a->rule.u.scale;
    sums[0] = piece_squares(a->p, a->n);
    sums[1] = scale * scale * piece_squares(a->g, a->n);
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
                          .rule = { *u, p->tensors[at->tensor].decays ? u->decay : 0.0f,
                                    p->ratios[at->tensor] } };
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
        p->ratios[t] = wf_update_ratio(u, at->decays, sqrt(sums[0]), sqrt(sums[1]));
    }
}

static void update(void *prepared, const struct wf_update *u)
{
    const struct prepared *const p = prepared;
    if (u->rule == WF_LAMB || u->rule == WF_LARS)
        make_ratios(p, u);
    OVER_PIECES
    for (int i = 0; i < p->layout.n_pieces; i++) {
        const struct span a = span_of(p, u, i);
        sweep_by(u->rule, &a);
    }
}

const struct wf_updater wf_cpu_updater = {
    .prepare = prepare,
    .release = release,
    .squares = squares,
    .update = update,
};
