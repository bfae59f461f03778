/* Activations and their gradients, element by element. */
#include "device/cpu/cpu.h"

#include <math.h>

struct context {
    int64_t act;
    float slope;
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

static void forward(const struct context *a, const float *x, float *y, int64_t n)
{
    const float slope = a->slope;
    switch (a->act) {
    case WF_RELU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] < 0.0f ? 0.0f : x[i];
        return;
    case WF_LEAKY_RELU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = wf_cpu_select(x[i] < 0.0f, x[i] * slope, x[i]);
        return;
    case WF_SIGMOID:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = sigmoid(x[i]);
        return;
    case WF_TANH:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = hyperbolic_tangent(x[i]);
        return;
    case WF_SILU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * sigmoid(x[i]);
        return;
    case WF_GELU:
        for (int64_t i = 0; i < n; i++)
            y[i] = 0.5f * x[i] * erfcf(-0.70710678f * x[i]);
        return;
    default:
        memmove(y, x, (size_t)n * sizeof *y);
    }
}

/* `r` is y for ReLU, leaky, sigmoid and tanh, x for the others. */
static void backward(const struct context *a, const float *r, const float *dy, float *dx, int64_t n)
{
    const float slope = a->act == WF_RELU ? 0.0f : a->slope;
    switch (a->act) {
    case WF_RELU:
    case WF_LEAKY_RELU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = wf_cpu_select(r[i] > 0.0f, dy[i], dy[i] * slope);
        return;
    case WF_SIGMOID:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = dy[i] * r[i] * (1.0f - r[i]);
        return;
    case WF_TANH:
        WF_SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = dy[i] * (1.0f - r[i] * r[i]);
        return;
    case WF_SILU:
        WF_SIMD
        for (int64_t i = 0; i < n; i++) {
            const float s = sigmoid(r[i]);
            dx[i] = dy[i] * s * (1.0f + r[i] * (1.0f - s));
        }
        return;
    case WF_GELU:
        for (int64_t i = 0; i < n; i++) {
            const float density = 0.39894228f * wf_cpu_exp(-0.5f * r[i] * r[i]);
            dx[i] = dy[i] * (0.5f * erfcf(-0.70710678f * r[i]) + r[i] * density);
        }
        return;
    default:
        memmove(dx, dy, (size_t)n * sizeof *dx);
    }
}

static struct context context_of(const struct wf_call *call)
{
    const struct wf_act_attrs *a = call->node->attrs;
    return (struct context){ .act = a->act, .slope = (float)a->slope };
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

const struct wf_kernel wf_cpu_kernels_activation[] = {
    { .op = "act", .accepts = wf_cpu_accepts_float, .run = act_run },
    { .op = "act_grad", .accepts = wf_cpu_accepts_float, .run = act_grad_run },
    { 0 },
};
