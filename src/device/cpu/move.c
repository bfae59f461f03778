/* Kernels that move elements: copy, concat, slice, pad, broadcast; and sums over positions. */
#include "device/cpu/cpu.h"

static void move_body(const struct wf_cpu_piece *piece, const void *)
{
    wf_cpu_move(piece, 0, 1);
}

void wf_cpu_copy(const struct wf_view *dst, const struct wf_view *src)
{
    WF_BUG_ON(dst->dtype != src->dtype, "%s from %s", wf_dtype_name(dst->dtype),
              wf_dtype_name(src->dtype));
    struct wf_cpu_walk walk;
    wf_cpu_walk_init(&walk, dst->box);
    wf_cpu_walk_add(&walk, src, src->box);
    wf_cpu_walk_add(&walk, dst, dst->box);
    wf_cpu_walk_plan(&walk, WF_CPU_FLAT);
    wf_cpu_walk_run(&walk, move_body, NULL);
}

static void clear_body(const struct wf_cpu_piece *piece, const void *)
{
    wf_cpu_zero(piece, 0);
}

void wf_cpu_clear(const struct wf_view *dst)
{
    struct wf_cpu_walk walk;
    wf_cpu_walk_over(&walk, dst->box, WF_CPU_FLAT, WF_CPU_VIEWS(dst));
    wf_cpu_walk_run(&walk, clear_body, NULL);
}

/* dst at `box` becomes src at `box - shift`. */
static void copy_shifted(const struct wf_view *dst, const struct wf_view *src, struct wf_region box,
                         const int64_t shift[WF_AXES])
{
    if (wf_region_is_empty(box))
        return;
    int64_t back[WF_AXES];
    for (int a = 0; a < WF_AXES; a++)
        back[a] = -shift[a];
    const struct wf_view to = wf_view_part(*dst, box);
    const struct wf_view from = wf_view_part(*src, wf_region_shift(box, back));
    wf_cpu_copy(&to, &from);
}

static bool accepts_same_dtype(const struct wf_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->dtype != node->out[0]->dtype)
            return false;
    return true;
}

/* --- concat, slice, pad --- */

static void concat_run(const struct wf_call *call)
{
    int64_t shift[WF_AXES] = { 0 };
    for (int i = 0; i < call->node->n_in; i++) {
        struct wf_region box = call->work;
        const int64_t channels = call->node->in[i]->shape.at[WF_C];
        box.lo[WF_C] = wf_max(box.lo[WF_C], shift[WF_C]);
        box.hi[WF_C] = wf_min(box.hi[WF_C], shift[WF_C] + channels);
        copy_shifted(&call->out[0], &call->in[i], box, shift);
        shift[WF_C] += channels;
    }
}

static void slice_run(const struct wf_call *call)
{
    const struct wf_slice_attrs *a = call->node->attrs;
    int64_t shift[WF_AXES];
    for (int k = 0; k < WF_AXES; k++)
        shift[k] = -a->lo[k];
    copy_shifted(&call->out[0], &call->in[0], call->work, shift);
}

static bool accepts_zero_pad(const struct wf_node *node)
{
    const struct wf_pad_attrs *a = node->attrs;
    return a->mode == WF_PAD_ZERO && accepts_same_dtype(node);
}

static void pad_run(const struct wf_call *call)
{
    const struct wf_pad_attrs *a = call->node->attrs;
    const struct wf_region image =
        wf_region_shift(wf_shape_region(call->node->in[0]->shape), a->lo);
    const struct wf_region inside = wf_region_intersect(call->work, image);
    copy_shifted(&call->out[0], &call->in[0], inside, a->lo);
    struct wf_region halo[WF_SUBTRACT_MAX];
    const int n = wf_region_subtract(call->work, inside, halo);
    for (int i = 0; i < n; i++) {
        const struct wf_view part = wf_view_part(call->out[0], halo[i]);
        wf_cpu_clear(&part);
    }
}

/* --- broadcast --- */

static void broadcast_body(const struct wf_cpu_piece *piece, const void *context)
{
    wf_cpu_store(piece, 0, context);
}

static bool accepts_broadcast(const struct wf_node *node)
{
    return wf_cpu_is_float(node->out[0]) && node->out[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}

static void broadcast_run(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = call->node->attrs;
    const int64_t channels = call->node->out[0]->shape.at[WF_C];
    if (wf_cpu_parts_channels(call))
        return;
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++) {
        float row[WF_CPU_BLOCK_MAX];
        for (int64_t c = 0; c < channels; c++)
            row[c] = (float)(a->factor * wf_view_get(&call->in[0], n, 0, 0, 0, c));
        wf_cpu_tile(row, channels, wf_max(WF_CPU_BLOCK, channels));
        struct wf_region part = call->work;
        part.lo[WF_N] = n;
        part.hi[WF_N] = n + 1;
        struct wf_cpu_walk walk;
        wf_cpu_walk_over(&walk, part, WF_CPU_POSITION, WF_CPU_VIEWS(&call->out[0]));
        wf_cpu_walk_run(&walk, broadcast_body, row);
    }
}

/* --- channel_sum, global_pool --- */

static void sum_body(const struct wf_cpu_piece *piece, const void *, struct wf_cpu_lanes *lanes)
{
    float buffer[WF_CPU_BLOCK_MAX];
    const float *x = wf_cpu_load(piece, 0, buffer);
    double *sum = lanes->sum[0];
    const int64_t n = wf_cpu_count(piece, 0);
    WF_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i];
}

static bool accepts_sum(const struct wf_node *node)
{
    return wf_cpu_is_float(node->in[0]) && node->in[0]->shape.at[WF_C] <= WF_CPU_BLOCK_MAX;
}

static bool sum_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_cpu_sum_scratch(1, p->node->in[0]->shape.at[WF_C]);
    return true;
}

/* The sums over `part` times `factor` into row n of out[0]. */
static void sum_part(const struct wf_call *call, struct wf_region part, int64_t n, double factor)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    struct wf_cpu_walk walk;
    wf_cpu_walk_over(&walk, part, WF_CPU_POSITION, WF_CPU_VIEWS(&call->in[0]));
    const struct wf_cpu_sum sum = { .body = sum_body, .sums = 1, .channels = channels };
    const double *sums = wf_cpu_walk_sum(&walk, &sum, call->scratch);
    for (int64_t c = 0; c < channels; c++)
        wf_view_put(&call->out[0], n, 0, 0, 0, c, factor * sums[c]);
}

static void channel_sum_run(const struct wf_call *call)
{
    if (!wf_cpu_parts_channels(call))
        sum_part(call, call->work, 0, 1.0);
}

static void global_pool_run(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = call->node->attrs;
    if (wf_cpu_parts_channels(call))
        return;
    /* Samples outside the work are zero. */
    wf_view_fill(&call->out[0], 0);
    if (wf_region_is_empty(call->work))
        return;
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++) {
        struct wf_region part = call->work;
        part.lo[WF_N] = n;
        part.hi[WF_N] = n + 1;
        sum_part(call, part, n, a->factor);
    }
}

const struct wf_kernel wf_cpu_kernels_move[] = {
    { .op = "concat", .accepts = accepts_same_dtype, .run = concat_run },
    { .op = "slice", .accepts = accepts_same_dtype, .run = slice_run },
    { .op = "pad", .accepts = accepts_zero_pad, .run = pad_run },
    { .op = "broadcast", .accepts = accepts_broadcast, .run = broadcast_run },
    { .op = "channel_sum", .accepts = accepts_sum, .prepare = sum_prepare, .run = channel_sum_run },
    { .op = "global_pool", .accepts = accepts_sum, .prepare = sum_prepare, .run = global_pool_run },
    { 0 },
};
