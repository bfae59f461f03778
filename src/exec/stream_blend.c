/* A stream of overlapping windows that are images of their own (exec/blend.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/free_memory.h"
#include "exec/stream_inside.h"

static const struct wf_value *image_of(const struct wf_stream *s)
{
    for (size_t i = 0; i < s->last.graph->n_values; i++)
        if (s->last.graph->values[i]->kind == WF_INPUT)
            return s->last.graph->values[i];
    WF_BUG_ON(true, "a network without an input");
    return NULL;
}

/* The rows of windows that are computed for a band. Several ranks take bands in turn: each computes all that
 * reaches into its own. */
static int64_t first_row(const struct wf_stream *s, int64_t band)
{
    return wf_comm_size(s->comm) > 1 ? wf_blender_first(s->blender, band)
           : band > 0                ? wf_blender_last(s->blender, band - 1) + 1
                                     : 0;
}

/* Host memory beside a window's plan: sums, the crop, and what the caller keeps of bands on their way. */
static size_t host_bytes(const struct wf_stream *s)
{
    const struct wf_value *const image = image_of(s), *const y = s->outputs[0];
    const size_t read = (size_t)wf_stream_most_read(s, image);
    const size_t made = (size_t)wf_region_count(wf_blender_band(s->blender, 0));
    const size_t pixels = made / (size_t)y->shape.at[WF_C];
    const size_t slots = s->options.slots > 0 ? (size_t)s->options.slots : 1;
    return wf_blender_bytes(s->blender) + pixels * s->options.beside +
           slots * (read + made) * sizeof(float) +
           (size_t)wf_shape_count(image->shape) * sizeof(float);
}

static bool check_memory(const struct wf_stream *s, struct wf_err *err)
{
    const bool host = wf_device_is_host(s->options.plan.device);
    const size_t plan = s->last.kinds[0].plan->arena_bytes, beside = host_bytes(s);
    const size_t free = wf_free_memory().free, limit = s->options.limit;
    const struct wf_shape *const window = &s->outputs[0]->shape;
    if (limit && plan + (host ? beside : 0) > limit)
        return wf_err_set(
            err, WF_ERR_FIT,
            "blended windows of %" PRId64 " x %" PRId64 " x %" PRId64
            " need %zu bytes, and memory.limit leaves %zu: raise it, or use smaller windows",
            window->at[WF_D], window->at[WF_H], window->at[WF_W], plan + (host ? beside : 0),
            limit);
    if (!host && free && beside > free)
        return wf_err_set(
            err, WF_ERR_FIT,
            "bands of blended windows over the whole width need %zu bytes of host memory, "
            "and %zu are free: use smaller windows",
            beside, free);
    return true;
}

/* One plan and one run: all windows have one shape. */
static bool start_run(struct wf_stream *s, struct wf_err *err)
{
    struct wf_stream_kind *const k = &s->last.kinds[0];
    const struct wf_mesh one = wf_mesh_one();
    s->last.n_kinds = 1;
    s->last.kind = k;
    k->global = wf_global_plan_new(s->last.graph, &one, &s->options.plan, err);
    k->plan = k->global ? wf_plan_new_on(k->global, 0, s->options.context, err) : NULL;
    k->run = k->plan ? wf_run_new(k->plan, s->self, 0, err) : NULL;
    s->plans = 1;
    s->most_bytes = k->run ? wf_run_bytes(k->run) : 0;
    return k->run && s->options.weights(s->options.user, k->run, err);
}

/* A step, or near it where bands have to be made of whole tiles. */
static int64_t band_height(const struct wf_stream *s)
{
    const struct wf_shape *const whole = &s->blend.whole;
    const enum wf_axis axis = whole->at[WF_D] > 1 ? WF_D : WF_H;
    const int64_t step = s->blend.step[axis];
    if (axis == WF_D || s->options.tile == 0)
        return step;
    const int64_t tile = wf_stream_tile(s->options.tile, step);
    return wf_min(wf_max(step / tile, 1) * tile, whole->at[axis]);
}

bool wf_stream_blend_init(struct wf_stream *s, struct wf_err *err)
{
    const struct wf_value *const output = s->outputs[0];
    WF_BUG_ON(output->dtype != WF_F32, "results of another type than f32 are blended");
    s->blend = *s->options.blend;
    s->options.blend = NULL;
    wf_stream_stage_cut(s, &s->last, 1, s->outputs);
    if (!wf_graph_ok(s->last.graph, err))
        return false;
    const struct wf_value *const image = image_of(s);
    for (int a = WF_N; a < WF_C; a++)
        if (image->shape.at[a] != output->shape.at[a])
            return wf_err_set(err, WF_ERR_USAGE,
                              "the network's result is of another size than its image: its windows "
                              "cannot be blended");
    s->blender = wf_blender_new(output->shape, s->blend.whole, output->shape.at[WF_C],
                                s->blend.step, band_height(s));
    s->last.flops *= (double)wf_blender_count(s->blender) / (double)output->shape.at[WF_N];
    s->total = s->last.flops;
    if (!start_run(s, err) || !check_memory(s, err))
        return false;
    const size_t bytes = (size_t)wf_shape_count(image->shape) * wf_dtype_size(image->dtype);
    s->crop = wf_host_take(s->options.plan.device, s->options.context, bytes);
    if (!s->crop)
        return wf_err_set(err, WF_ERR_FIT, "no host memory for %zu bytes of a window", bytes);
    memset(s->crop, 0, bytes); /* samples of a batch that is not full */
    return true;
}

struct wf_region wf_stream_blend_reads(const struct wf_stream *s, int64_t band)
{
    const int64_t first = first_row(s, band), last = wf_blender_last(s->blender, band);
    if (first > last)
        return (struct wf_region){ 0 };
    struct wf_region r =
        wf_region_bound(wf_blender_window(s->blender, first, 0),
                        wf_blender_window(s->blender, last, wf_blender_windows(s->blender) - 1));
    r.hi[WF_C] = s->blend.whole.at[WF_C];
    return r;
}

/* A result may be a view on something larger. */
static bool add_windows(struct wf_stream *s, int64_t row, int64_t first, int64_t count,
                        struct wf_err *err)
{
    struct wf_view result = s->made[0].view;
    void *const packed = wf_view_is_dense(&result) ? NULL : malloc(wf_view_bytes(&result));
    if (!packed && !wf_view_is_dense(&result))
        return wf_err_set(err, WF_ERR_FIT, "no host memory for %zu bytes of a window's result",
                          wf_view_bytes(&result));
    if (packed) {
        const struct wf_view dense = wf_view_dense(packed, result.dtype, result.box);
        wf_view_copy(&dense, &result);
        result = dense;
    }
    for (int64_t k = 0; k < count; k++)
        wf_blender_add(s->blender, row, first + k,
                       (const float *)result.data + k * result.stride[WF_N]);
    free(packed);
    const double each = s->last.flops / (double)wf_blender_count(s->blender);
    s->worked += each * (double)count;
    return true;
}

/* Windows [first, first + count) of a row, as samples of a batch. Samples behind them are whatever was there
 * before: nobody reads what becomes of them. */
static bool run_windows(struct wf_stream *s, int64_t row, int64_t first, int64_t count,
                        const struct wf_stream_work *work, struct wf_err *err)
{
    const struct wf_value *const image = image_of(s);
    struct wf_stream_work send = *work;
    send.input = wf_view_dense(s->crop, work->input.dtype, wf_shape_region(image->shape));
    for (int64_t k = 0; k < count; k++) {
        struct wf_region from = wf_blender_window(s->blender, row, first + k);
        struct wf_region to = wf_shape_region(image->shape);
        from.hi[WF_C] = to.hi[WF_C];
        to.lo[WF_N] = k;
        to.hi[WF_N] = k + 1;
        const struct wf_view there = wf_view_part(send.input, to);
        const struct wf_view here = wf_view_part(work->input, from);
        wf_view_copy(&there, &here);
    }
    if (!wf_stream_send_input(s, wf_run_view(s->last.kind->run, image), &send, err) ||
        !wf_run_step(s->last.kind->run, err) ||
        !wf_run_get_owned(s->last.kind->run, s->last.map[s->outputs[0]->id], &s->made[0], err))
        return false;
    return add_windows(s, row, first, count, err);
}

static int64_t window_pixels(const struct wf_stream *s)
{
    const struct wf_shape *const y = &s->outputs[0]->shape;
    return y->at[WF_D] * y->at[WF_H] * y->at[WF_W];
}

bool wf_stream_blend_run(struct wf_stream *s, int64_t band, const struct wf_stream_work *work,
                         struct wf_err *err)
{
    const int64_t count = wf_blender_windows(s->blender), batch = s->outputs[0]->shape.at[WF_N];
    if (!wf_blender_begin(s->blender, band))
        return wf_err_set(err, WF_ERR_FIT, "no host memory for %zu bytes of blended windows",
                          wf_blender_bytes(s->blender));
    const int64_t last = wf_blender_last(s->blender, band);
    for (int64_t row = first_row(s, band); row <= last; row++)
        for (int64_t w = 0; w < count; w += batch)
            if (!run_windows(s, row, w, wf_min(batch, count - w), work, err))
                return false;
    const int64_t pixels =
        wf_region_count(wf_blender_band(s->blender, band)) / s->outputs[0]->shape.at[WF_C];
    s->whole +=
        s->last.flops * (double)pixels / (double)(wf_blender_count(s->blender) * window_pixels(s));
    s->blend.finish(s->options.user, wf_blender_sums(s->blender), pixels, work->outputs);
    return true;
}
