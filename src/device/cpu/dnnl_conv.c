/*
 * conv, convt and conv_wgrad in f32 and bf16 through oneDNN.
 *
 * convt is the gradient of the convolution in its input, run as such: oneDNN's own transposed
 * convolution is far slower once it has a bias, so the bias is added behind. Weights change with
 * each training step, so they are put into the primitive's order in each run. Nothing is allocated
 * in run(): primitives, memory objects and the stream are made in prepare(), all scratch is asked
 * for there.
 */
#include "device/cpu/dnnl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "device/cpu/cpu.h"

/*
 * oneDNN cuts the work and counts the scratch of a primitive for the number of threads at the moment
 * it is made, so it runs with as many. The number belongs to the calling thread, and is put back.
 */
int wf_dnnl_use_threads(int threads)
{
#ifdef _OPENMP
    const int before = omp_get_max_threads();
    if (threads > 0 && threads != before)
        omp_set_num_threads(threads);
    return before;
#else
    return threads;
#endif
}

/* --- prepare --- */

struct wf_dnnl_checking wf_dnnl_checking(const struct wf_prepare *p)
{
    return (struct wf_dnnl_checking){ .skip = p->sizes_only && !p->context,
                                      .verdicts = wf_cpu_verdicts(p->context),
                                      .threads = p->threads };
}

static bool extents_fit(const struct wf_value *v)
{
    bool ok = true;
    for (int i = 0; v && i < WF_AXES; i++)
        ok = ok && v->shape.at[i] <= INT_MAX;
    return ok;
}

static bool accepts(const struct wf_node *node)
{
    const struct wf_value *x = node->in[0], *other = node->in[1];
    const struct wf_value *bias = node->n_in > 2 ? node->in[2] : NULL;
    return (x->dtype == WF_F32 || x->dtype == WF_BF16) && other->dtype == x->dtype &&
           (!bias || bias->dtype == WF_F32) && extents_fit(x) && extents_fit(other) &&
           extents_fit(node->out[0]);
}

/* Which of the step's images lies under the windows. */
static void fill_sides(struct wf_dnnl_step *s, const struct wf_view *in, const struct wf_view *out)
{
    s->src = s->pass == WF_CONV_DATA ? out[0] : in[0];
    s->dst = s->pass == WF_CONV_DATA ? in[0] : s->pass == WF_CONV_FORWARD ? out[0] : in[1];
}

static void fill_step(struct wf_dnnl_step *s, const struct wf_prepare *p)
{
    const struct wf_node *node = p->node;
    s->pass = wf_conv_pass_of(node);
    s->threads = p->threads;
    s->attrs = *(const struct wf_conv_attrs *)node->attrs;
    s->bias = s->pass != WF_CONV_WEIGHTS && node->in[2];
    const struct wf_value *w = s->pass == WF_CONV_WEIGHTS ? node->out[0] : node->in[1];
    for (int i = 0; i < 3; i++)
        s->kernel[i] = w->shape.at[WF_D + i];
    s->in = w->shape.at[WF_C] * s->attrs.groups;
    s->out = w->shape.at[WF_N];
    fill_sides(s, p->in, p->out);
    const struct wf_view *written = s->pass == WF_CONV_DATA ? &s->src : &s->dst;
    WF_BUG_ON(!wf_region_equal(written->box, p->work), "'%s': the box is not the work", node->name);
    WF_BUG_ON(wf_region_extent(s->src.box, WF_C) != s->in && !wf_region_is_empty(s->src.box),
              "'%s': cut along its channels", node->name);
    WF_BUG_ON(!wf_view_is_dense(&s->src) || !wf_view_is_dense(&s->dst), "'%s': not packed",
              node->name);
}

static void release(void *prepared)
{
    struct wf_dnnl_step *s = prepared;
    if (!s)
        return;
    wf_dnnl_step_clear(s);
    wf_dnnl_free(s->lib);
    free(s);
}

static void describe(const struct wf_dnnl_step *s, struct wf_prepare *p)
{
    const struct wf_dnnl_form *f = &s->form;
    const char *name = "zeros";
    if (s->n_pieces) /* the middle one stands for most of the work */
        name = wf_dnnl_conv_name(s->made[s->pieces[s->n_pieces / 2].made].conv);
    int at = snprintf(p->implementation, sizeof p->implementation, "%s%s%s%s%s%s",
                      s->own ? "reference" : name, f->rows && s->n_pieces > 1 ? " strips" : "",
                      f->columns ? " columns" : "", f->pad ? " padded" : "",
                      f->split ? " groups" : "", f->wide ? " f32" : "");
    if (s->wrong[0] && at > 0 && (size_t)at < sizeof p->implementation)
        snprintf(p->implementation + at, sizeof p->implementation - (size_t)at, " (%s is wrong)",
                 s->wrong);
}

bool wf_dnnl_prepare(struct wf_prepare *p, const struct wf_dnnl_options *options,
                     struct wf_err *err)
{
    struct wf_dnnl_step *s = calloc(1, sizeof *s);
    if (!s)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a convolution");
    fill_step(s, p);
    const int before = wf_dnnl_use_threads(s->threads);
    s->checking = wf_dnnl_checking(p);
    const bool sizes_only = s->checking.skip;
    s->checking.skip = sizes_only || options->believe;
    const struct wf_view *read = s->pass == WF_CONV_DATA ? &s->dst : &s->src;
    /* All windows lie in the padding: nothing to compute. */
    const bool nothing = wf_region_is_empty(read->box);
    bool ok = nothing || (s->lib = wf_dnnl_new(sizes_only, err)) != NULL;
    if (ok && !nothing) {
        wf_dnnl_spoil(s->lib, options->spoil, options->swap);
        ok = wf_dnnl_step_plan(s, options, err);
    }
    wf_dnnl_use_threads(before);
    if (!ok) {
        release(s);
        return false;
    }
    describe(s, p);
    p->scratch_bytes = s->scratch_bytes;
    if (p->sizes_only)
        release(s);
    else
        p->prepared = s;
    return true;
}

/* Weights as the primitive wants them; gradients of weights once more for each thread, in f32. */
static size_t rough_scratch(const struct wf_prepare *p)
{
    const bool sums = wf_op_sums_over(p->node) != 0;
    const struct wf_value *const w = sums ? p->node->out[0] : p->node->in[1];
    const size_t count = (size_t)wf_shape_count(w->shape);
    return count * (sums ? sizeof(float) * (size_t)wf_max(p->threads, 1) : wf_dtype_size(w->dtype));
}

static bool prepare(struct wf_prepare *p, struct wf_err *err)
{
    if (p->rough) {
        p->scratch_bytes = rough_scratch(p);
        return true;
    }
    const struct wf_dnnl_options options = { .traps = wf_dnnl_has_traps() };
    return wf_dnnl_prepare(p, &options, err);
}

/* --- run --- */

/* What oneDNN could refuse was tried when the primitive was checked. */
static void expect(bool ok, const struct wf_dnnl_conv *conv)
{
    WF_BUG_ON(!ok, "oneDNN refuses '%s'", wf_dnnl_conv_name(conv));
}

struct running {
    struct wf_dnnl_step *s;
    struct wf_view src, dst;
    char *scratch;
    char *weights; /* ours: read, or dw */
    float *bias;   /* or NULL */
    int64_t taps;
};

static void *address(const struct wf_view *v, const struct wf_region *box)
{
    const int64_t offset = wf_view_offset(v, box->lo[WF_N], box->lo[WF_D], box->lo[WF_H],
                                          box->lo[WF_W], box->lo[WF_C]);
    return (char *)v->data + (size_t)offset * wf_dtype_size(v->dtype);
}

/* Weights of a group: rows of (kd, kh, kw, in / groups), so many in this problem. */
static int64_t group_size(const struct running *r)
{
    const int64_t parts = r->s->form.split ? r->s->attrs.groups : 1;
    return r->s->out / parts * r->taps * (r->s->in / r->s->attrs.groups);
}

/* The group's weights as the primitive wants them. */
static void *bring_weights(const struct running *r, const struct wf_dnnl_piece *piece)
{
    const struct wf_dnnl_step *s = r->s;
    struct wf_dnnl_conv *conv = s->made[piece->made].conv;
    const int64_t count = group_size(r);
    const enum wf_dtype dtype = s->src.dtype;
    char *plain = r->weights + (size_t)(piece->group * count) * wf_dtype_size(dtype);
    if (s->form.wide) {
        float *to = (float *)(void *)(r->scratch + s->at_plain);
        wf_cpu_to_f32(dtype, plain, to, count);
        plain = r->scratch + s->at_plain;
    }
    if (!wf_dnnl_conv_blocked(conv))
        return plain;
    expect(wf_dnnl_conv_reorder(conv, plain, r->scratch + s->at_blocked, r->scratch), conv);
    return r->scratch + s->at_blocked;
}

static struct wf_dnnl_args bring_images(const struct running *r, const struct wf_dnnl_piece *piece)
{
    const struct wf_dnnl_step *s = r->s;
    struct wf_dnnl_args a = { .scratch = r->scratch };
    a.src = piece->pack_src ? r->scratch + s->at_src : address(&r->src, &piece->src.box);
    a.dst = piece->pack_dst ? r->scratch + s->at_dst : address(&r->dst, &piece->dst.box);
    if (piece->pack_src && s->pass != WF_CONV_DATA)
        wf_dnnl_gather(&piece->src, a.src, &r->src);
    if (piece->pack_dst && s->pass != WF_CONV_FORWARD)
        wf_dnnl_gather(&piece->dst, a.dst, &r->dst);
    return a;
}

static void run_images(const struct running *r)
{
    struct wf_dnnl_step *s = r->s;
    const bool forward = s->pass == WF_CONV_FORWARD;
    const struct wf_view *y = forward ? &r->dst : &r->src;
    if (s->n_pieces == 0 || s->clear)
        wf_cpu_clear(y);
    const struct wf_dnnl_piece *last = NULL;
    void *weights = NULL;
    for (size_t i = 0; i < s->n_pieces; i++) {
        const struct wf_dnnl_piece *piece = &s->pieces[i];
        if (!last || piece->group != last->group || piece->made != last->made)
            weights = bring_weights(r, piece);
        last = piece;
        struct wf_dnnl_args a = bring_images(r, piece);
        a.weights = weights;
        a.bias = r->bias ? r->bias + piece->dst.box.lo[WF_C] : NULL;
        struct wf_dnnl_conv *const conv = s->made[piece->made].conv;
        expect(wf_dnnl_conv_run(conv, &a), conv);
        if (forward && piece->pack_dst)
            wf_dnnl_scatter(&piece->dst, a.dst, &r->dst);
        if (!forward && piece->pack_src)
            wf_dnnl_scatter(&piece->src, a.src, &r->src);
    }
    if (r->bias && (!forward || s->n_pieces == 0))
        wf_dnnl_add_bias(y, r->bias);
}

/* A piece's own gradient: into dw, or added to the sum of all. */
static void run_gradient(const struct running *r, const struct wf_dnnl_piece *piece, bool add)
{
    const struct wf_dnnl_step *s = r->s;
    struct wf_dnnl_conv *conv = s->made[piece->made].conv;
    const struct wf_dnnl_problem *problem = &s->made[piece->made].problem;
    const bool own = wf_dnnl_step_has_plain(s);
    float *dw = (float *)(void *)r->weights + piece->group * group_size(r);
    float *plain = own ? (float *)(void *)(r->scratch + s->at_plain) : dw;
    struct wf_dnnl_args a = bring_images(r, piece);
    a.weights = plain;
    if (wf_dnnl_conv_blocked(conv))
        a.weights = r->scratch + s->at_blocked;
    expect(wf_dnnl_conv_run(conv, &a), conv);
    if (wf_dnnl_conv_blocked(conv))
        expect(wf_dnnl_conv_reorder(conv, plain, a.weights, r->scratch), conv);
    if (!own)
        return;
    double *sum = (double *)(void *)(r->scratch + s->at_sum) + piece->group * group_size(r);
    const struct wf_dnnl_rows rows = { .count = wf_region_extent(piece->dst.box, WF_C) * r->taps,
                                       .n = s->in / s->attrs.groups,
                                       .padded_n = problem->in / problem->groups };
    wf_dnnl_add_rows(sum, plain, &rows, add);
}

static void run(const struct wf_call *call)
{
    struct wf_dnnl_step *s = call->prepared;
    const bool gradient = s->pass == WF_CONV_WEIGHTS;
    if (s->own) {
        call->node->op->reference(call);
        return;
    }
    struct running r = { .s = s, .scratch = call->scratch };
    struct wf_dnnl_step now = { .pass = s->pass };
    fill_sides(&now, call->in, call->out);
    WF_BUG_ON(!wf_region_equal(now.src.box, s->src.box) ||
                  !wf_region_equal(now.dst.box, s->dst.box),
              "'%s': not the boxes that were prepared", call->node->name);
    r.src = now.src;
    r.dst = now.dst;
    r.weights = gradient ? call->out[0].data : call->in[1].data;
    r.bias = s->bias ? call->in[2].data : NULL;
    r.taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    const int before = wf_dnnl_use_threads(s->threads);
    if (gradient && s->n_pieces == 0)
        wf_cpu_clear(&call->out[0]);
    for (size_t i = 0; gradient && i < s->n_pieces; i++)
        run_gradient(&r, &s->pieces[i], i > 0 && s->pieces[i].group == s->pieces[i - 1].group);
    if (gradient && s->n_pieces > 0 && wf_dnnl_step_has_plain(s))
        wf_dnnl_round(call->out[0].data, (const double *)(void *)(r.scratch + s->at_sum),
                      (int64_t)wf_dnnl_step_weights(s));
    if (!gradient)
        run_images(&r);
    wf_dnnl_use_threads(before);
}

const struct wf_kernel wf_cpu_kernels_dnnl_conv[] = {
    WF_CONV_PASSES(.flags = WF_KERNEL_DENSE, .preference = 100, .accepts = accepts,
                   .prepare = prepare, .run = run, .release = release),
    { 0 },
};
