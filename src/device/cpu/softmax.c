/* Softmax over the channels of each position, its gradient, and the largest channel. */
#include "device/cpu/cpu.h"

/* y = exp(x - the position's maximum); the exponentials go flat over positions and channels. */
static void exponentials(const float *x, int64_t units, int64_t channels, float *y)
{
    for (int64_t u = 0; u < units; u++) {
        const float *from = x + u * channels;
        float top = from[0];
        for (int64_t c = 1; c < channels; c++)
            top = from[c] > top ? from[c] : top;
        for (int64_t c = 0; c < channels; c++)
            y[u * channels + c] = from[c] - top;
    }
    WF_SIMD
    for (int64_t i = 0; i < units * channels; i++)
        y[i] = wf_cpu_exp(y[i]);
}

static void softmax_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *y = wf_cpu_dest(piece, 1, buffer[1]);
    exponentials(x, piece->units, channels, y);
    for (int64_t u = 0; u < piece->units; u++) {
        float *at = y + u * channels, sum = 0.0f;
        for (int64_t c = 0; c < channels; c++)
            sum += at[c];
        for (int64_t c = 0; c < channels; c++)
            at[c] /= sum;
    }
    wf_cpu_store(piece, 1, y);
}

static void softmax_grad_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *y = wf_cpu_load(piece, 0, buffer[0]), *dy = wf_cpu_load(piece, 1, buffer[1]);
    float *dx = wf_cpu_dest(piece, 2, buffer[2]);
    for (int64_t i = 0; i < piece->units * channels; i += channels) {
        float dot = 0.0f;
        for (int64_t c = 0; c < channels; c++)
            dot += y[i + c] * dy[i + c];
        WF_SIMD
        for (int64_t c = 0; c < channels; c++)
            dx[i + c] = y[i + c] * (dy[i + c] - dot);
    }
    wf_cpu_store(piece, 2, dx);
}

static void run(const struct wf_call *call, int n_in, wf_cpu_body *body)
{
    if (wf_cpu_parts_channels(call))
        return;
    struct wf_cpu_walk walk;
    wf_cpu_walk_call(&walk, call, n_in, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, body, NULL);
}

static void softmax_run(const struct wf_call *call)
{
    run(call, 1, softmax_body);
}

static void softmax_grad_run(const struct wf_call *call)
{
    run(call, 2, softmax_grad_body);
}

static void argmax_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *const best = buffer[1];
    for (int64_t u = 0; u < piece->units; u++, x += channels) {
        int64_t at = 0;
        for (int64_t c = 1; c < channels; c++)
            at = x[c] > x[at] ? c : at;
        best[u] = (float)(channels == 1 ? x[0] > 0.0f : at);
    }
    wf_cpu_store(piece, 1, best);
}

static void argmax_run(const struct wf_call *call)
{
    struct wf_cpu_walk walk;
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], wf_op_reads(call->node, 0, call->work));
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, argmax_body, NULL);
}

const struct wf_kernel wf_cpu_kernels_softmax[] = {
    { .op = "argmax", .accepts = wf_cpu_accepts_channels, .run = argmax_run },
    { .op = "softmax", .accepts = wf_cpu_accepts_channels, .run = softmax_run },
    { .op = "softmax_grad", .accepts = wf_cpu_accepts_channels, .run = softmax_grad_run },
    { 0 },
};
