/*
 * conv_wgrad for small maps of many channels, as products of matrices.
 *
 * Where a map has a few positions, a 3x3 window lies mostly in the padding and oneDNN's convolutions
 * spend their time there. Here each position of dy is one matrix over the samples, and so is each
 * stretch of x under a row of its window; their product is a stretch of dw. Only what is inside the
 * image is multiplied, and each product sums over the batch.
 */
#include "device/cpu/dnnl.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "ops/spatial.h"

enum {
    POSITIONS = 16, /* of dy in a sample, at most */
    LEAST = 16,     /* channels and samples: less makes poor matrices */
};

static bool accepts(const struct wf_node *node)
{
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_value *x = node->in[0], *dy = node->in[1];
    const struct wf_shape *s = &dy->shape;
    return (x->dtype == WF_F32 || x->dtype == WF_BF16) && dy->dtype == x->dtype && a->groups == 1 &&
           (a->dilation[2] == 1 || a->extent[2] == 1) &&
           s->at[WF_D] * s->at[WF_H] * s->at[WF_W] <= POSITIONS && s->at[WF_N] >= LEAST &&
           s->at[WF_C] >= LEAST && x->shape.at[WF_C] >= LEAST;
}

/* As many threads in each run, so that sums are split in the same way. */
struct prepared {
    int threads;
};

static bool prepare(struct wf_prepare *p, struct wf_err *err)
{
    struct prepared *const made = malloc(sizeof *made);
    if (!made)
        return wf_err_set(err, WF_ERR_FAILED, "no memory for a convolution");
    made->threads = p->threads;
    p->prepared = made;
    for (int i = 0; i < 2 && p->in[0].dtype != WF_F32; i++)
        p->scratch_bytes += (size_t)wf_region_count(p->in[i].box) * sizeof(float);
    snprintf(p->implementation, sizeof p->implementation, "sgemm");
    return true;
}

struct job {
    const struct wf_conv_attrs *attrs;
    struct wf_view x, dy; /* packed, f32 */
    float *dw;
    int64_t in, out, taps;
};

static struct wf_view widened(const struct wf_view *v, float *to)
{
    if (v->dtype == WF_F32)
        return *v;
    wf_cpu_to_f32(v->dtype, v->data, to, wf_region_count(v->box));
    return wf_view_dense(to, WF_F32, v->box);
}

/* The row of the window at position `at` of dy that is tap (kd, kh, 0 ...): its part inside x. */
static void add_row(const struct job *j, const int64_t at[WF_AXES], int64_t kd, int64_t kh)
{
    const struct wf_conv_attrs *const a = j->attrs;
    const int64_t taps[] = { kd, kh, 0 };
    int64_t from[3];
    for (int i = 0; i < 3; i++)
        from[i] = at[WF_D + i] * a->stride[i] + taps[i] * a->dilation[i] - a->pad_lo[i];
    for (int i = 0; i < 2; i++)
        if (from[i] < j->x.box.lo[WF_D + i] || from[i] >= j->x.box.hi[WF_D + i])
            return;
    const int64_t lo = wf_max(0, j->x.box.lo[WF_W] - from[2]);
    const int64_t hi = wf_min(a->extent[2], j->x.box.hi[WF_W] - from[2]);
    if (lo >= hi)
        return;
    const int64_t n = j->x.box.lo[WF_N];
    const struct wf_dnnl_product p = {
        .rows = j->out,
        .columns = (hi - lo) * j->in,
        .terms = wf_region_extent(j->x.box, WF_N),
        .a = (const float *)j->dy.data +
             wf_view_offset(&j->dy, n, at[WF_D], at[WF_H], at[WF_W], j->dy.box.lo[WF_C]),
        .a_step = j->dy.stride[WF_N],
        .b = (const float *)j->x.data +
             wf_view_offset(&j->x, n, from[0], from[1], from[2] + lo, j->x.box.lo[WF_C]),
        .b_step = j->x.stride[WF_N],
        .c = j->dw + ((kd * a->extent[1] + kh) * a->extent[2] + lo) * j->in,
        .c_step = j->taps * j->in,
    };
    wf_dnnl_add_product(&p);
}

static void run(const struct wf_call *call)
{
    wf_cpu_clear(&call->out[0]);
    if (wf_region_is_empty(call->work) || wf_region_is_empty(call->in[0].box))
        return;
    const struct wf_conv_attrs *const a = call->node->attrs;
    float *const room = call->scratch;
    const struct job j = {
        .attrs = a,
        .x = widened(&call->in[0], room),
        .dy = widened(&call->in[1], room + wf_region_count(call->in[0].box)),
        .dw = call->out[0].data,
        .in = wf_region_extent(call->in[0].box, WF_C),
        .out = wf_region_extent(call->in[1].box, WF_C),
        .taps = a->extent[0] * a->extent[1] * a->extent[2],
    };
    struct wf_region positions = call->work;
    positions.hi[WF_N] = positions.lo[WF_N] + 1;
    positions.hi[WF_C] = positions.lo[WF_C] + 1;
    const int before = wf_dnnl_use_threads(((const struct prepared *)call->prepared)->threads);
    for (struct wf_cursor c = wf_cursor(positions); wf_cursor_next(&c);)
        for (int64_t kd = 0; kd < a->extent[0]; kd++)
            for (int64_t kh = 0; kh < a->extent[1]; kh++)
                add_row(&j, c.at, kd, kh);
    wf_dnnl_use_threads(before);
}

const struct wf_kernel wf_cpu_kernel_dnnl_small_wgrad = {
    .op = "conv_wgrad",
    .flags = WF_KERNEL_DENSE,
    .preference = 110,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = free,
};
