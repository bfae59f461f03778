/* Layer norm over the channels of each position: apply, gradient, and the sums for its weights. */
#include "device/cpu/cpu.h"

#include <math.h>

#ifdef _OPENMP
#define SIMD_SUM _Pragma("omp simd reduction(+ : sum)")
#define SIMD_SUMS _Pragma("omp simd reduction(+ : sum, dot)")
#else
#define SIMD_SUM
#define SIMD_SUMS
#endif

struct context {
    const float *weight, *bias; /* of one position */
    double eps;
};

struct moments {
    float mean, rstd;
};

static struct moments of_row(const float *x, int64_t channels, double eps)
{
    float sum = 0.0f;
    SIMD_SUM
    for (int64_t c = 0; c < channels; c++)
        sum += x[c];
    const float mean = sum / (float)channels;
    sum = 0.0f;
    SIMD_SUM
    for (int64_t c = 0; c < channels; c++)
        sum += (x[c] - mean) * (x[c] - mean);
    return (struct moments){ mean, (float)(1.0 / sqrt((double)sum / (double)channels + eps)) };
}

/* Weight and bias (inputs w and b, b < 0: none) as packed rows in scratch. */
static struct context context_of(const struct wf_call *call, int w, int b)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    float *weight = call->scratch, *bias = weight + channels;
    for (int64_t c = 0; c < channels; c++) {
        weight[c] = 1.0f;
        bias[c] = 0.0f;
        if (w >= 0 && call->in[w].data)
            weight[c] = (float)wf_view_get(&call->in[w], 0, 0, 0, 0, c);
        if (b >= 0 && call->in[b].data)
            bias[c] = (float)wf_view_get(&call->in[b], 0, 0, 0, 0, c);
    }
    return (struct context){ weight, bias, a->eps };
}

static size_t context_scratch(const struct wf_node *node)
{
    return (size_t)(2 * node->in[0]->shape.at[WF_C] + 1) / 2 * 2 * sizeof(float);
}

static bool prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = context_scratch(p->node);
    return true;
}

/* --- layernorm: x, [w], [b] --- */

static void body(const struct wf_cpu_piece *piece, const void *context)
{
    const struct context *k = context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    for (int64_t i = 0; i < piece->units * channels; i += channels) {
        const struct moments m = of_row(x + i, channels, k->eps);
        WF_SIMD
        for (int64_t c = 0; c < channels; c++)
            y[i + c] = (x[i + c] - m.mean) * m.rstd * k->weight[c] + k->bias[c];
    }
    wf_cpu_store(piece, 1, y);
}

static void run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct context context = context_of(call, 1, 2);
    struct wf_cpu_walk walk;
    wf_cpu_walk_call(&walk, call, 1, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, body, &context);
}

/* --- layernorm_grad: x, [w], dy --- */

static void grad_row(const struct context *k, const float *x, const float *dy, int64_t channels,
                     float *dx)
{
    const struct moments m = of_row(x, channels, k->eps);
    float sum = 0.0f, dot = 0.0f;
    SIMD_SUMS
    for (int64_t c = 0; c < channels; c++) {
        const float g = dy[c] * k->weight[c];
        sum += g;
        dot += g * ((x[c] - m.mean) * m.rstd);
    }
    const float mean_g = sum / (float)channels, mean_gx = dot / (float)channels;
    WF_SIMD
    for (int64_t c = 0; c < channels; c++) {
        const float xhat = (x[c] - m.mean) * m.rstd;
        dx[c] = m.rstd * (dy[c] * k->weight[c] - mean_g - xhat * mean_gx);
    }
}

static void grad_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *dy = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, buffer[2]);
    for (int64_t i = 0; i < piece->units * channels; i += channels)
        grad_row(context, x + i, dy + i, channels, dx + i);
    wf_cpu_store(piece, 2, dx);
}

static void grad_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct context context = context_of(call, 1, -1);
    struct wf_cpu_walk walk;
    wf_cpu_walk_over(&walk, call->work, WF_CPU_POSITION,
                     WF_CPU_VIEWS(&call->in[0], &call->in[2], &call->out[0]));
    wf_cpu_walk_run(&walk, grad_body, &context);
}

/* --- layernorm_wgrad: x, dy --- */

static void wgrad_body(const struct wf_cpu_piece *piece, const void *context,
                       struct wf_cpu_lanes *lanes)
{
    const double eps = *(const double *)context;
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]), *dy = wf_cpu_load(piece, 1, buffer[1]);
    double *dw = lanes->sum[0], *db = lanes->sum[1];
    for (int64_t i = 0; i < piece->units * channels; i += channels) {
        const struct moments m = of_row(x + i, channels, eps);
        WF_SIMD
        for (int64_t c = i; c < i + channels; c++) {
            dw[c] += (double)dy[c] * (double)((x[c] - m.mean) * m.rstd);
            db[c] += (double)dy[c];
        }
    }
}

static bool wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_cpu_sum_scratch(2, p->node->in[0]->shape.at[WF_C]);
    return true;
}

static void wgrad_run(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    if (wf_cpu_parts_channels(call))
        return;
    struct wf_cpu_walk walk;
    wf_cpu_walk_over(&walk, call->work, WF_CPU_POSITION, WF_CPU_VIEWS(&call->in[0], &call->in[1]));
    const struct wf_cpu_sum sum = {
        .body = wgrad_body, .context = &a->eps, .sums = 2, .channels = channels
    };
    const double *sums = wf_cpu_walk_sum(&walk, &sum, call->scratch);
    for (int64_t k = 0; k < 2 * channels; k++)
        wf_view_put(&call->out[k / channels], 0, 0, 0, 0, k % channels, sums[k]);
}

const struct wf_kernel wf_cpu_kernels_layernorm[] = {
    { .op = "layernorm", .accepts = wf_cpu_accepts_channels, .prepare = prepare, .run = run },
    { .op = "layernorm_grad",
      .accepts = wf_cpu_accepts_channels,
      .prepare = prepare,
      .run = grad_run },
    { .op = "layernorm_wgrad",
      .accepts = wf_cpu_accepts_channels,
      .prepare = wgrad_prepare,
      .run = wgrad_run },
    { 0 },
};
