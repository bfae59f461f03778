/* Activations and their gradients, element by element. */
#include "device/cpu/cpu.h"

#include <math.h>

struct context {
    int64_t act;
    float slope, lo, hi;
};

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + wf_cpu_exp(-x));
}

/* Near zero 1 - 2 / (e^2x + 1) would cancel: there an odd polynomial (minimax to 2e-7). */
static inline float hyperbolic_tangent(float x)
{
    const float size = fabsf(x), small = wf_cpu_select(size > 0.625f, 0.625f, size);
    const float z = small * small;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const float near = p * z * small + small;
    const float far = 1.0f - 2.0f / (wf_cpu_exp(2.0f * size) + 1.0f);
    return copysignf(wf_cpu_select(size > 0.625f, far, near), x);
}

/* log(1 + e) for e from 0 to 1, to 1e-7 of itself. */
static inline float log_one_plus(float e)
{
    const float u = 1.0f + e;
    const bool far = u > 1.41421356f;
    const float z = wf_cpu_select(far, 0.5f * u, u) - 1.0f, square = z * z;
    float p = 7.0376836292e-2f;
    p = p * z - 1.1514610310e-1f;
    p = p * z + 1.1676998740e-1f;
    p = p * z - 1.2420140846e-1f;
    p = p * z + 1.4249322787e-1f;
    p = p * z - 1.6668057665e-1f;
    p = p * z + 2.0000714765e-1f;
    p = p * z - 2.4999993993e-1f;
    p = p * z + 3.3333331174e-1f;
    const float low = wf_cpu_select(far, -2.12194440e-4f, 0.0f);
    const float high = wf_cpu_select(far, 0.693359375f, 0.0f);
    const float log_u = z + (p * z * square + low - 0.5f * square) + high;
    return log_u + (e - (u - 1.0f)) / u; /* what adding 1 has rounded off */
}

/* e^x - 1 for x of at most 0: near 0 a polynomial, where the difference would cancel. */
static inline float exp_less_one(float x)
{
    float p = 1.3888889e-3f;
    p = p * x + 8.3333333e-3f;
    p = p * x + 4.1666667e-2f;
    p = p * x + 1.6666667e-1f;
    p = p * x + 0.5f;
    return wf_cpu_select(x > -0.25f, p * x * x + x, wf_cpu_exp(x) - 1.0f);
}

static inline float clip(float x, float lo, float hi)
{
    const float above = wf_cpu_select(x < lo, lo, x);
    return wf_cpu_select(above > hi, hi, above);
}

static inline float softplus(float x)
{
    return wf_cpu_select(x < 0.0f, 0.0f, x) + log_one_plus(wf_cpu_exp(-fabsf(x)));
}

/* tanh(softplus(x)) by n / (n + 2) with n = e^x (e^x + 2). */
static inline float mish_factor(float x)
{
    const float e = wf_cpu_exp(wf_cpu_select(x > 20.0f, 20.0f, x)), n = e * (e + 2.0f);
    return n / (n + 2.0f);
}

static inline float gelu_tanh_factor(float x)
{
    return hyperbolic_tangent(0.79788456f * (x + 0.044715f * x * x * x));
}

/* y[i] = f(x[i]) as vector code. */
#define EACH(value)                                                                                \
    WF_SIMD                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const float x = from[i];                                                                   \
        y[i] = value;                                                                              \
    }                                                                                              \
    return

static void forward_rare(const struct context *a, const float *from, float *y, int64_t n)
{
    const float slope = a->slope, scale = (float)WF_SELU_SCALE;
    const float alpha = (float)(WF_SELU_SCALE * WF_SELU_ALPHA), inverse = 1.0f / slope;
    switch (a->act) {
    case WF_ELU:
        EACH(wf_cpu_select(x > 0.0f, x, slope * exp_less_one(wf_cpu_select(x > 0.0f, 0.0f, x))));
    case WF_SELU:
        EACH(wf_cpu_select(x > 0.0f, scale * x,
                           alpha * exp_less_one(wf_cpu_select(x > 0.0f, 0.0f, x))));
    case WF_MISH:
        EACH(x * mish_factor(x));
    case WF_SOFTPLUS:
        EACH(inverse * softplus(slope * x));
    case WF_GELU_TANH:
        EACH(0.5f * x * (1.0f + gelu_tanh_factor(x)));
    case WF_SOFTSIGN:
        EACH(x / (1.0f + fabsf(x)));
    case WF_LOG_SIGMOID:
        EACH(-softplus(-x));
    case WF_ABS:
        EACH(fabsf(x));
    case WF_EXP:
        EACH(wf_cpu_exp(x));
    case WF_LOG:
        EACH(logf(x));
    case WF_SQRT:
        EACH(sqrtf(x));
    case WF_RECIPROCAL:
        EACH(1.0f / x);
    default:
        memmove(y, from, (size_t)n * sizeof *y);
    }
}

static void forward(const struct context *a, const float *from, float *y, int64_t n)
{
    const float slope = a->slope, lo = a->lo, hi = a->hi;
    switch (a->act) {
    case WF_RELU:
        EACH(x < 0.0f ? 0.0f : x);
    case WF_LEAKY_RELU:
        EACH(wf_cpu_select(x < 0.0f, x * slope, x));
    case WF_SIGMOID:
        EACH(sigmoid(x));
    case WF_TANH:
        EACH(hyperbolic_tangent(x));
    case WF_SILU:
        EACH(x * sigmoid(x));
    case WF_GELU:
        for (int64_t i = 0; i < n; i++)
            y[i] = 0.5f * from[i] * erfcf(-0.70710678f * from[i]);
        return;
    case WF_RELU6:
        EACH(clip(x, 0.0f, 6.0f));
    case WF_CLIP:
        EACH(clip(x, lo, hi));
    case WF_HARD_SIGMOID:
        EACH(clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f));
    case WF_HARD_SWISH:
        EACH(x * clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f));
    default:
        forward_rare(a, from, y, n);
    }
}

/* dx[i] = dy[i] * the slope at x, which is y or x of the activation, as the operator has it. */
#define SLOPE(value)                                                                               \
    WF_SIMD                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const float x = r[i];                                                                      \
        dx[i] = dy[i] * (value);                                                                   \
    }                                                                                              \
    return

static inline float mish_slope(float x)
{
    const float t = mish_factor(x);
    return t + x * (1.0f - t * t) * sigmoid(x);
}

static inline float gelu_tanh_slope(float x)
{
    const float t = gelu_tanh_factor(x);
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * (0.79788456f + 0.79788456f * 0.134145f * x * x);
}

static void backward_rare(const struct context *a, const float *r, const float *dy, float *dx,
                          int64_t n)
{
    const float slope = a->slope, scale = (float)WF_SELU_SCALE;
    const float alpha = (float)(WF_SELU_SCALE * WF_SELU_ALPHA);
    switch (a->act) {
    case WF_ELU:
        SLOPE(wf_cpu_select(x > 0.0f, 1.0f, x + slope));
    case WF_SELU:
        SLOPE(wf_cpu_select(x > 0.0f, scale, x + alpha));
    case WF_MISH:
        SLOPE(mish_slope(x));
    case WF_SOFTPLUS:
        SLOPE(-exp_less_one(-slope * x));
    case WF_GELU_TANH:
        SLOPE(gelu_tanh_slope(x));
    case WF_SOFTSIGN:
        SLOPE((1.0f - fabsf(x)) * (1.0f - fabsf(x)));
    case WF_LOG_SIGMOID:
        SLOPE(-exp_less_one(x));
    case WF_ABS:
        SLOPE(wf_cpu_select(x > 0.0f, 1.0f, wf_cpu_select(x < 0.0f, -1.0f, 0.0f)));
    case WF_EXP:
        SLOPE(x);
    case WF_LOG:
        SLOPE(1.0f / x);
    case WF_SQRT:
        SLOPE(0.5f / x);
    case WF_RECIPROCAL:
        SLOPE(-x * x);
    default:
        memmove(dx, dy, (size_t)n * sizeof *dx);
    }
}

static void backward(const struct context *a, const float *r, const float *dy, float *dx, int64_t n)
{
    const float slope = a->act == WF_RELU ? 0.0f : a->slope, lo = a->lo, hi = a->hi;
    switch (a->act) {
    case WF_RELU:
    case WF_LEAKY_RELU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = wf_cpu_select(r[i] > 0.0f, dy[i], dy[i] * slope);
        return;
    case WF_SIGMOID:
        SLOPE(x * (1.0f - x));
    case WF_TANH:
        SLOPE(1.0f - x * x);
    case WF_SILU:
        SLOPE(sigmoid(x) * (1.0f + x * (1.0f - sigmoid(x))));
    case WF_GELU:
        for (int64_t i = 0; i < n; i++) {
            const float density = 0.39894228f * wf_cpu_exp(-0.5f * r[i] * r[i]);
            dx[i] = dy[i] * (0.5f * erfcf(-0.70710678f * r[i]) + r[i] * density);
        }
        return;
    case WF_RELU6:
        SLOPE(wf_cpu_select((x > 0.0f) & (x < 6.0f), 1.0f, 0.0f));
    case WF_CLIP:
        SLOPE(wf_cpu_select((x > lo) & (x < hi), 1.0f, 0.0f));
    case WF_HARD_SIGMOID:
        SLOPE(wf_cpu_select((x > 0.0f) & (x < 1.0f), 1.0f / 6.0f, 0.0f));
    case WF_HARD_SWISH:
        SLOPE(wf_cpu_select(x <= -3.0f, 0.0f,
                            wf_cpu_select(x < 3.0f, x * (1.0f / 3.0f) + 0.5f, 1.0f)));
    default:
        backward_rare(a, r, dy, dx, n);
    }
}

static struct context context_of(const struct wf_call *call)
{
    const struct wf_act_attrs *a = call->node->attrs;
    return (struct context){
        .act = a->act, .slope = (float)a->slope, .lo = (float)a->lo, .hi = (float)a->hi
    };
}

static void act_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    forward(context, x, y, wf_cpu_count(piece, 0));
    wf_cpu_store(piece, 1, y);
}

static void act_run(const struct wf_call *call)
{
    struct wf_cpu_walk walk;
    const struct context context = context_of(call);
    wf_cpu_walk_call(&walk, call, 1, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, act_body, &context);
}

static void act_grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const float *r = wf_cpu_load(piece, 0, buffer[0]);
    const float *dy = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, buffer[2]);
    backward(context, r, dy, dx, wf_cpu_count(piece, 0));
    wf_cpu_store(piece, 2, dx);
}

static void act_grad_run(const struct wf_call *call)
{
    struct wf_cpu_walk walk;
    const struct context context = context_of(call);
    wf_cpu_walk_call(&walk, call, 2, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, act_grad_body, &context);
}

/* --- prelu, prelu_grad: x, w, [dy] --- */

static void prelu_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const bool back = piece->walk->n_sides == 3;
    const int to = back ? 2 : 1;
    const float *const row = context, *const x = wf_cpu_load(piece, 0, buffer[0]);
    const float *const dy = back ? wf_cpu_load(piece, 1, buffer[1]) : x;
    float *const y = wf_cpu_dest(piece, to, buffer[2]);
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = wf_cpu_select(x[i] > 0.0f, dy[i], dy[i] * row[i]);
    wf_cpu_store(piece, to, y);
}

static void prelu_run(const struct wf_call *call)
{
    const struct wf_shape *weights = &call->node->in[1]->shape;
    const int64_t channels = wf_region_extent(call->work, WF_C);
    float row[WF_CPU_BLOCK_MAX];
    struct wf_cpu_walk walk;
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t c = 0; c < channels; c++)
        row[c] = (float)wf_view_get(&call->in[1], 0, 0, 0, 0,
                                    weights->at[WF_C] == 1 ? 0 : call->work.lo[WF_C] + c);
    wf_cpu_tile(row, channels, wf_max(WF_CPU_BLOCK, channels));
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], call->work);
    if (call->node->n_in == 3)
        wf_cpu_walk_add(&walk, &call->in[2], call->work);
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, prelu_body, row);
}

static bool accepts_prelu(const struct wf_node *node)
{
    return wf_cpu_accepts_float(node) && node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}

const struct wf_kernel wf_cpu_kernels_activation[] = {
    { .op = "act", .accepts = wf_cpu_accepts_float, .run = act_run },
    { .op = "act_grad", .accepts = wf_cpu_accepts_float, .run = act_grad_run },
    { .op = "prelu", .accepts = accepts_prelu, .run = prelu_run },
    { .op = "prelu_grad", .accepts = accepts_prelu, .run = prelu_run },
    { 0 },
};
