/*
 * conv_wgrad for small maps of many channels, as products of matrices.
 *
 * Where a map has a few positions, a 3x3 window lies mostly in the padding and oneDNN's convolutions
 * spend their time there. Here each position of dy is one matrix over the samples, and so is each
 * stretch of x under a row of its window; their product is a stretch of dw. Only what is inside the
 * image is multiplied, and each product sums over the batch. oneDNN multiplies, unless it was found to
 * do so wrongly (dnnl_check.c).
 */
#include "device/cpu/dnnl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "device/choices.h"
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
    bool own; /* our own product */
};

/* --- the check, as in dnnl_check.c: exact, and all rows at once with random factors --- */

struct operands {
    struct wf_dnnl_product p; /* on memory of its own */
    float *a, *b;
    double *factors, *combined; /* per row of c; per term: a's row times the factors */
};

static void fill_operands(struct operands *o)
{
    const struct wf_random random = wf_random(1, 1);
    uint64_t at = 0;
    wf_dnnl_factors(&(uint64_t){ 1 }, o->factors, o->p.rows);
    for (int64_t t = 0; t < o->p.terms; t++) {
        for (int64_t r = 0; r < o->p.rows; r++) {
            const float v = (float)wf_random_below(random, at++, 4) - 2;
            o->a[t * o->p.a_step + r] = v;
            o->combined[t] += o->factors[r] * (double)v;
        }
        for (int64_t c = 0; c < o->p.columns; c++)
            o->b[t * o->p.b_step + c] = (float)wf_random_below(random, at++, 4) - 2;
    }
}

static bool compare_product(const struct operands *o)
{
    const struct wf_dnnl_product *const p = &o->p;
    for (int64_t c = 0; c < p->columns; c++) {
        double want = 0, got = 0;
        for (int64_t t = 0; t < p->terms; t++)
            want += o->combined[t] * (double)p->b[t * p->b_step + c];
        for (int64_t r = 0; r < p->rows; r++)
            got += o->factors[r] * (double)p->c[r * p->c_step + c];
        if (got != want)
            return false;
    }
    return true;
}

static bool product_is_right(struct wf_dnnl_product p, const struct wf_dnnl_checking *checking)
{
    char about[WF_DNNL_ABOUT], key[WF_CHOICE_KEY];
    bool right;
    wf_dnnl_about(about);
    (void)snprintf(key, sizeof key,
                   "%s sgemm, threads %d, %" PRId64 "x%" PRId64 "x%" PRId64 ", steps %" PRId64
                   " %" PRId64 " %" PRId64,
                   about, checking->threads, p.rows, p.columns, p.terms, p.a_step, p.b_step,
                   p.c_step);
    if (wf_dnnl_verdict_find(checking, key, &right))
        return right;
    struct operands o = { .p = p,
                          .a = calloc((size_t)(p.terms * p.a_step), sizeof(float)),
                          .b = calloc((size_t)(p.terms * p.b_step), sizeof(float)),
                          .factors = calloc((size_t)p.rows, sizeof(double)),
                          .combined = calloc((size_t)p.terms, sizeof(double)) };
    o.p.a = o.a;
    o.p.b = o.b;
    o.p.c = calloc((size_t)(p.rows * p.c_step), sizeof(float));
    if (o.a && o.b && o.factors && o.combined && o.p.c) {
        fill_operands(&o);
        right = wf_dnnl_add_product(&o.p) && compare_product(&o);
        wf_dnnl_verdict_put(checking, key, right);
    }
    free(o.p.c);
    free(o.combined);
    free(o.factors);
    free(o.b);
    free(o.a);
    return right;
}

/* Rows of a window lie inside the image as a whole or in part: as many sizes of products. */
static bool products_are_right(const struct wf_prepare *p)
{
    const struct wf_conv_attrs *const a = p->node->attrs;
    const struct wf_dnnl_checking checking = wf_dnnl_checking(p);
    const int64_t in = wf_region_extent(p->in[0].box, WF_C);
    const int64_t out = wf_region_extent(p->in[1].box, WF_C);
    const int64_t most = wf_min(a->extent[2], wf_region_extent(p->in[0].box, WF_W));
    const int before = wf_dnnl_use_threads(p->threads);
    bool right = true;
    for (int64_t n = 1; right && !checking.skip && n <= most; n++)
        right = product_is_right(
            (struct wf_dnnl_product){ .rows = out,
                                      .columns = n * in,
                                      .terms = wf_region_extent(p->in[0].box, WF_N),
                                      .a_step = p->in[1].stride[WF_N],
                                      .b_step = p->in[0].stride[WF_N],
                                      .c_step = a->extent[0] * a->extent[1] * a->extent[2] * in },
            &checking);
    wf_dnnl_use_threads(before);
    return right;
}

static bool prepare(struct wf_prepare *p, struct wf_err *err)
{
    struct prepared *const made = malloc(sizeof *made);
    if (!made)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a convolution");
    made->threads = p->threads;
    made->own = !wf_region_is_empty(p->in[0].box) && !products_are_right(p);
    p->prepared = made;
    for (int i = 0; i < 2 && p->in[0].dtype != WF_F32; i++)
        p->scratch_bytes += (size_t)wf_region_count(p->in[i].box) * sizeof(float);
    snprintf(p->implementation, sizeof p->implementation, "%s",
             made->own ? "own (sgemm is wrong)" : "sgemm");
    return true;
}

struct job {
    const struct wf_conv_attrs *attrs;
    struct wf_view x, dy; /* packed, f32 */
    float *dw;
    int64_t in, out, taps;
    bool own;
};

static void add_own_product(const struct wf_dnnl_product *p)
{
    WF_PARALLEL_FOR
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t t = 0; t < p->terms; t++) {
            const float factor = p->a[t * p->a_step + r];
            WF_SIMD
            for (int64_t c = 0; c < p->columns; c++)
                p->c[r * p->c_step + c] += factor * p->b[t * p->b_step + c];
        }
}

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
    if (j->own)
        add_own_product(&p);
    else /* what oneDNN could refuse was tried when the product was checked */
        WF_BUG_ON(!wf_dnnl_add_product(&p),
                  "oneDNN refuses a product of %" PRId64 " x %" PRId64 " x %" PRId64, p.rows,
                  p.columns, p.terms);
}

static void run(const struct wf_call *call)
{
    wf_cpu_clear(&call->out[0]);
    if (wf_region_is_empty(call->work) || wf_region_is_empty(call->in[0].box))
        return;
    const struct wf_conv_attrs *const a = call->node->attrs;
    const struct prepared *const prepared = call->prepared;
    float *const room = call->scratch;
    const struct job j = {
        .attrs = a,
        .x = widened(&call->in[0], room),
        .dy = widened(&call->in[1], room + wf_region_count(call->in[0].box)),
        .dw = call->out[0].data,
        .in = wf_region_extent(call->in[0].box, WF_C),
        .out = wf_region_extent(call->in[1].box, WF_C),
        .taps = a->extent[0] * a->extent[1] * a->extent[2],
        .own = prepared->own,
    };
    struct wf_region positions = call->work;
    positions.hi[WF_N] = positions.lo[WF_N] + 1;
    positions.hi[WF_C] = positions.lo[WF_C] + 1;
    const int before = wf_dnnl_use_threads(prepared->threads);
    for (struct wf_cursor c = wf_cursor(positions); wf_cursor_next(&c);)
        for (int64_t kd = 0; kd < a->extent[0]; kd++)
            for (int64_t kh = 0; kh < a->extent[1]; kh++)
                add_row(&j, c.at, kd, kh);
    wf_dnnl_use_threads(before);
}

const struct wf_kernel wf_cpu_kernels_dnnl_small[] = {
    { .op = "conv_wgrad",
      .flags = WF_KERNEL_DENSE,
      .preference = 110,
      .accepts = accepts,
      .prepare = prepare,
      .run = run,
      .release = free },
    { 0 },
};
