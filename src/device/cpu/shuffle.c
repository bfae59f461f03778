/* Channels to positions and back, channels among themselves, and the largest of them. */
#include "device/cpu/cpu.h"

#include <math.h>

/* to[i * to_step] = from[i * from_step], steps in elements of `size` bytes. */
static void copy_strided(const char *from, int64_t from_step, char *to, int64_t to_step, int64_t n,
                         size_t size)
{
    if (size == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * 4, from + i * from_step * 4, 4);
    else if (size == 2)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * 2, from + i * from_step * 2, 2);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * (int64_t)size, from + i * from_step * (int64_t)size, size);
}

static char *element(const struct wf_view *v, const int64_t at[WF_AXES])
{
    return (char *)v->data + wf_view_offset(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], at[WF_C]) *
                                 (int64_t)wf_dtype_size(v->dtype);
}

/* One position of the side with many positions, whose channels are every R-th of the other side's. */
struct pair {
    const struct wf_view *wide, *deep;
    const struct wf_shuffle_attrs *attrs;
    int64_t channels; /* of the wide side */
    bool to_space;
};

static void move_position(const struct pair *p, const int64_t at[WF_AXES])
{
    int64_t from[WF_AXES] = { [WF_N] = at[WF_N] }, channel = 0, volume = 1;
    for (int i = 0; i < 3; i++) {
        const int64_t r = p->attrs->factor[i];
        channel = channel * r + at[WF_D + i] % r;
        volume *= r;
        from[WF_D + i] = at[WF_D + i] / r;
    }
    from[WF_C] = channel;
    char *const wide = element(p->wide, at), *const deep = element(p->deep, from);
    const int64_t wide_step = p->wide->stride[WF_C], deep_step = p->deep->stride[WF_C] * volume;
    const size_t size = wf_dtype_size(p->wide->dtype);
    if (p->to_space)
        copy_strided(deep, deep_step, wide, wide_step, p->channels, size);
    else
        copy_strided(wide, wide_step, deep, deep_step, p->channels, size);
}

/* Over the positions of the wide side that the work writes or reads. */
static void shuffle_run(const struct wf_call *call, bool to_space)
{
    if (wf_cpu_parts_channels(call))
        return;
    const struct wf_value *const value = to_space ? call->node->out[0] : call->node->in[0];
    const struct pair p = { .wide = to_space ? &call->out[0] : &call->in[0],
                            .deep = to_space ? &call->in[0] : &call->out[0],
                            .attrs = call->node->attrs,
                            .channels = value->shape.at[WF_C],
                            .to_space = to_space };
    const struct wf_region part = to_space ? call->work : wf_op_reads(call->node, 0, call->work);
    const struct wf_cpu_lines lines = wf_cpu_lines(part, 64);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < lines.count; i++) {
        const struct wf_cpu_line line = wf_cpu_line_at(&lines, i);
        for (int64_t w = line.w0; w < line.w1; w++)
            move_position(&p, (const int64_t[WF_AXES]){ line.n, line.d, line.h, w, 0 });
    }
}

static void to_space_run(const struct wf_call *call)
{
    shuffle_run(call, true);
}

static void to_depth_run(const struct wf_call *call)
{
    shuffle_run(call, false);
}

static bool accepts_move(const struct wf_node *node)
{
    return node->in[0]->dtype == node->out[0]->dtype;
}

/* --- channel_shuffle --- */

static void mix_body(const struct wf_cpu_piece *piece, const void *context)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    const int64_t groups = *(const int64_t *)context, channels = piece->walk->side[0].unit;
    const int64_t each = channels / groups;
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *const y = buffer[1];
    for (int64_t u = 0; u < piece->units; u++, x += channels)
        for (int64_t k = 0; k < groups; k++)
            for (int64_t i = 0; i < each; i++)
                y[u * channels + i * groups + k] = x[k * each + i];
    wf_cpu_store(piece, 1, y);
}

static bool accepts_rows(const struct wf_node *node)
{
    return wf_cpu_accepts_float(node) && node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX &&
           node->out[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}

static void channel_shuffle_run(const struct wf_call *call)
{
    const struct wf_groups_attrs *a = call->node->attrs;
    if (wf_cpu_parts_channels(call))
        return;
    struct wf_cpu_walk walk;
    wf_cpu_walk_call(&walk, call, 1, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, mix_body, &a->groups);
}

/* --- channel_max --- */

static void max_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[3][WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[0].unit;
    const float *x = wf_cpu_load(piece, 0, buffer[0]);
    float *const y = buffer[1], *const index = buffer[2];
    for (int64_t u = 0; u < piece->units; u++, x += channels) {
        int64_t best = 0;
        for (int64_t c = 1; c < channels; c++)
            if (x[c] > x[best] || isnan(x[c]))
                best = c;
        y[u] = x[best];
        index[u] = (float)best;
    }
    wf_cpu_store(piece, 1, y);
    wf_cpu_store(piece, 2, index);
}

static void max_run(const struct wf_call *call)
{
    struct wf_cpu_walk walk;
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], wf_op_reads(call->node, 0, call->work));
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_add(&walk, &call->out[1], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, max_body, NULL);
}

static void max_grad_body(const struct wf_cpu_piece *piece, const void *)
{
    float buffer[2][WF_CPU_BLOCK_MAX];
    int32_t index[WF_CPU_BLOCK_MAX];
    const int64_t channels = piece->walk->side[2].unit;
    const float *const dy = wf_cpu_load(piece, 0, buffer[0]);
    float *const dx = wf_cpu_dest(piece, 2, buffer[1]);
    wf_cpu_load_int(piece, 1, index);
    memset(dx, 0, (size_t)(piece->units * channels) * sizeof *dx);
    for (int64_t u = 0; u < piece->units; u++)
        dx[u * channels + index[u]] = dy[u];
    wf_cpu_store(piece, 2, dx);
}

static void max_grad_run(const struct wf_call *call)
{
    if (wf_cpu_parts_channels(call))
        return;
    struct wf_cpu_walk walk;
    struct wf_region one = call->work;
    one.lo[WF_C] = 0;
    one.hi[WF_C] = 1;
    wf_cpu_walk_init(&walk, call->work);
    wf_cpu_walk_add(&walk, &call->in[0], one);
    wf_cpu_walk_add(&walk, &call->in[1], one);
    wf_cpu_walk_add(&walk, &call->out[0], call->work);
    wf_cpu_walk_plan(&walk, WF_CPU_POSITION);
    wf_cpu_walk_run(&walk, max_grad_body, NULL);
}

const struct wf_kernel wf_cpu_kernels_shuffle[] = {
    { .op = "depth_to_space", .accepts = accepts_move, .run = to_space_run },
    { .op = "space_to_depth", .accepts = accepts_move, .run = to_depth_run },
    { .op = "channel_shuffle", .accepts = accepts_rows, .run = channel_shuffle_run },
    { .op = "channel_max", .accepts = accepts_rows, .run = max_run },
    { .op = "channel_max_grad", .accepts = accepts_rows, .run = max_grad_run },
    { 0 },
};
