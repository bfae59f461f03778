/*
 * conv, convt and conv_wgrad by cuDNN, on packed boxes that hold their halo: tile borders are no
 * padding, image borders are, and the two sides may differ.
 *
 * cuDNN's 16-bit kernels want channels in eights: where they are not (a first layer's 3, a last
 * layer's 2), images and weights go through padded copies in the scratch. A weight gradient in f32
 * from 16-bit images would take 30 times as long as one in 16 bits: it is made in those and widened
 * (its factors have no more digits). What cuDNN cannot do our own kernels do.
 */
#include "device/cuda/conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/cuda/about.h"
#include "device/cuda/accepts.h"
#include "device/cuda/hopper.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"

enum { EIGHT = 8 };
static const double LARGE_FLOPS = 1e10; /* some tens of microseconds */

/* --- the problem --- */

/* The largest power of two up to 16 that divides the bytes of a position: rows begin anywhere. */
static int64_t alignment(int64_t channels, enum wf_dtype dtype)
{
    const int64_t bytes = channels * (int64_t)wf_dtype_size(dtype);
    int64_t align = 16;
    while (bytes % align != 0)
        align /= 2;
    return align;
}

static int64_t in_eights(int64_t channels)
{
    return (channels + EIGHT - 1) / EIGHT * EIGHT;
}

/* One axis of the convolution between two boxes; false where cuDNN has no word for it. */
static bool set_axis(struct wf_cudnn_problem *p, const struct wf_conv_attrs *a, int i,
                     const struct wf_region *image, const struct wf_region *result)
{
    const int axis = WF_D + i;
    const int64_t have = image->hi[axis] - image->lo[axis];
    const int64_t places = result->hi[axis] - result->lo[axis];
    const int64_t span = a->dilation[i] * (p->kernel[i] - 1) + 1;
    p->image[i] = have;
    p->result[i] = places;
    p->stride[i] = a->stride[i];
    p->dilation[i] = a->dilation[i];
    p->pad_lo[i] = a->pad_lo[i] + image->lo[axis] - result->lo[axis] * a->stride[i];
    p->pad_hi[i] = wf_max(0, (places - 1) * a->stride[i] + span - have - p->pad_lo[i]);
    const int64_t room = have + p->pad_lo[i] + p->pad_hi[i] - span;
    return have > 0 && places > 0 && p->pad_lo[i] >= 0 && room >= 0 &&
           room / a->stride[i] + 1 == places;
}

/* Of those that only some convolutions can take. */
static int64_t own_engine(const struct wf_node *node, enum wf_conv_pass pass)
{
#ifdef WF_HAVE_HOPPER
    if (pass == WF_CONV_WEIGHTS)
        return wf_cuda_tiled_wgrad_fits(node) ? WF_ENGINE_TILED : WF_ENGINE_NONE;
    return wf_cuda_tiled_fits(node)                             ? WF_ENGINE_TILED
           : pass == WF_CONV_FORWARD && wf_cuda_stem_fits(node) ? WF_ENGINE_STEM
           : wf_cuda_volume_fits(node)                          ? WF_ENGINE_VOLUME
                                                                : WF_ENGINE_NONE;
#else
    (void)node;
    (void)pass;
    return WF_ENGINE_NONE;
#endif
}

/* Fills all but the tuning; false: not for cuDNN. */
static bool set_problem(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    const struct wf_node *const node = p->node;
    const struct wf_conv_attrs *const a = node->attrs;
    struct wf_cudnn_problem *const q = &s->problem;
    q->pass = wf_conv_pass_of(node);
    const struct wf_view *const image = q->pass == WF_CONV_DATA ? &p->out[0] : &p->in[0];
    const struct wf_view *const result = q->pass == WF_CONV_DATA      ? &p->in[0]
                                         : q->pass == WF_CONV_FORWARD ? &p->out[0]
                                                                      : &p->in[1];
    const struct wf_value *const w = q->pass == WF_CONV_WEIGHTS ? node->out[0] : node->in[1];
    s->in = w->shape.at[WF_C] * a->groups;
    s->out = w->shape.at[WF_N];
    s->bias = q->pass != WF_CONV_WEIGHTS && node->in[2];
    q->dtype = image->dtype;
    q->groups = a->groups;
    q->n = wf_region_extent(result->box, WF_N);
    const bool eights = q->dtype != WF_F32 && a->groups == 1;
    q->in = eights ? in_eights(s->in) : s->in;
    q->out = eights ? in_eights(s->out) : s->out;
    q->widely = s->in % EIGHT != 0 || s->out % EIGHT != 0;
    q->align[0] = q->in != s->in ? 16 : alignment(s->in, q->dtype);
    q->align[1] = q->out != s->out ? 16 : alignment(s->out, q->dtype);
    bool ok = q->n > 0 && wf_view_is_dense(image) && wf_view_is_dense(result) &&
              (q->pass != WF_CONV_WEIGHTS || wf_view_is_dense(&p->out[0])) &&
              wf_region_extent(image->box, WF_C) == s->in &&
              wf_region_extent(result->box, WF_C) == s->out &&
              wf_region_extent(image->box, WF_N) == q->n;
    for (int i = 0; i < WF_CUDNN_SPACE; i++) {
        q->kernel[i] = w->shape.at[WF_D + i];
        ok = ok && set_axis(q, a, i, &image->box, &result->box);
    }
    q->own = own_engine(node, q->pass);
    const double places = (double)q->n * (double)q->result[0] * (double)q->result[1];
    const double taps = (double)q->kernel[0] * (double)q->kernel[1] * (double)q->kernel[2];
    q->large = 2.0 * places * (double)q->result[2] * taps * (double)s->in * (double)s->out /
                   (double)q->groups >
               LARGE_FLOPS;
    return ok;
}

/* --- the scratch --- */

static size_t place(size_t *end, size_t bytes)
{
    const size_t at = (*end + WF_CUDNN_ALIGN - 1) / WF_CUDNN_ALIGN * WF_CUDNN_ALIGN;
    *end = at + bytes;
    return at;
}

static int64_t positions(const struct wf_cudnn_problem *p, const int64_t space[WF_CUDNN_SPACE])
{
    return p->n * space[0] * space[1] * space[2];
}

static struct wf_view packed(void *data, const struct wf_cudnn_problem *p,
                             const int64_t space[WF_CUDNN_SPACE], int64_t n, int64_t channels)
{
    return wf_view_dense(data, p->dtype,
                         wf_shape_region(WF_SHAPE(n, space[0], space[1], space[2], channels)));
}

/* What problem.own asks for beside the padded tensors. */
static size_t engine_workspace(const struct wf_cuda_conv_step *s)
{
#ifdef WF_HAVE_HOPPER
    const struct wf_cudnn_problem *const p = &s->problem;
    if (p->own == WF_ENGINE_TILED && p->pass == WF_CONV_WEIGHTS)
        return wf_cuda_tiled_wgrad_scratch(
            &(struct wf_cuda_wgrad){ .image = packed(NULL, p, p->image, p->n, p->in),
                                     .result = packed(NULL, p, p->result, p->n, p->out),
                                     .weights = packed(NULL, p, p->kernel, p->out, p->in),
                                     .multiprocessors = s->cuda->multiprocessors });
#endif
    (void)s;
    return 0;
}

static void lay_out(struct wf_cuda_conv_step *s)
{
    const struct wf_cudnn_problem *const p = &s->problem;
    const size_t size = wf_dtype_size(p->dtype);
    const int64_t taps = p->kernel[0] * p->kernel[1] * p->kernel[2];
    const bool narrow = p->pass == WF_CONV_WEIGHTS && p->dtype != WF_F32;
    if (p->in != s->in)
        s->image_bytes = (size_t)(positions(p, p->image) * p->in) * size;
    if (p->out != s->out)
        s->result_bytes = (size_t)(positions(p, p->result) * p->out) * size;
    if (p->in != s->in || p->out != s->out || narrow)
        s->weights_bytes = (size_t)(p->out * taps * (p->in / p->groups)) * size;
    size_t end = WF_CUDNN_ALIGN; /* the scratch itself may begin in the middle of a boundary */
    s->at_image = place(&end, s->image_bytes);
    s->at_weights = place(&end, s->weights_bytes);
    s->at_result = place(&end, s->result_bytes);
    s->at_workspace = place(&end, 0);
}

/* Is it one that takes tensors as cuDNN does? */
static bool takes_sides(const struct wf_cuda_conv_step *s)
{
    return s->plan || (s->engine == WF_ENGINE_TILED && s->problem.pass == WF_CONV_WEIGHTS);
}

size_t wf_cuda_conv_step_scratch(const struct wf_cuda_conv_step *s)
{
    const size_t workspace = s->plan ? wf_cudnn_plan_workspace(s->plan) : s->engine_workspace;
    if (!takes_sides(s))
        return s->own_scratch;
    return s->image_bytes + s->weights_bytes + s->result_bytes + workspace > 0
               ? s->at_workspace + workspace
               : 0;
}

/* --- preparing --- */

static void release(void *prepared)
{
    struct wf_cuda_conv_step *const s = prepared;
    if (!s)
        return;
    wf_cudnn_plan_free(s->plan);
    free(s);
}

static void describe(const struct wf_cuda_conv_step *s, struct wf_prepare *p)
{
    char wrong[32] = "";
    if (s->wrong)
        (void)snprintf(wrong, sizeof wrong, " (%d wrong)", s->wrong);
    if (!s->plan) {
        (void)snprintf(p->implementation, sizeof p->implementation, "own%s%s",
                       s->engine == WF_ENGINE_TILED    ? " tiled"
                       : s->engine == WF_ENGINE_STEM   ? " stem"
                       : s->engine == WF_ENGINE_VOLUME ? " volume"
                                                       : "",
                       wrong);
        return;
    }
    (void)snprintf(p->implementation, sizeof p->implementation, "cudnn%s%s%s%s",
                   s->problem.in != s->in || s->problem.out != s->out ? " padded" : "",
                   s->problem.bias ? " bias" : "",
                   s->weights_bytes && !s->image_bytes && !s->result_bytes ? " narrow" : "", wrong);
}

/* Our own kernel's scratch. */
static bool prepare_own(struct wf_cuda_conv_step *s, struct wf_prepare *p, struct wf_err *err)
{
    if (s->problem.pass != WF_CONV_WEIGHTS)
        return true;
    if (!wf_cuda_conv_wgrad_prepare(p, err))
        return false;
    s->own_scratch = p->scratch_bytes;
    return true;
}

bool wf_cuda_conv_step_init(struct wf_cuda_conv_step *s, struct wf_cuda *cuda,
                            const struct wf_prepare *p)
{
    *s = (struct wf_cuda_conv_step){ .cuda = cuda, .engine = WF_ENGINE_NONE };
    const bool known = set_problem(s, p);
    if (known)
        lay_out(s);
    if (!cuda)
        return known;
    s->problem.tf32 = cuda->tf32 && s->problem.dtype == WF_F32;
    s->problem.deterministic = cuda->deterministic;
    if (cuda->capability != 90)
        s->problem.own = WF_ENGINE_NONE;
    if (known)
        s->engine_workspace = engine_workspace(s);
    return known;
}

static bool prepare(struct wf_prepare *p, struct wf_err *err)
{
    struct wf_cuda_conv_step *const s = wf_take_zeroed(1, sizeof *s);
    const bool known = wf_cuda_conv_step_init(s, p->context ? wf_cuda_of(p->context) : NULL, p);
    if (!prepare_own(s, p, err)) {
        release(s);
        return false;
    }
    const bool exact = s->cuda ? s->cuda->exact : p->exact;
    const bool chooses = known && !exact; /* cuDNN's sums depend on the extent */
    if (!p->context || (p->sizes_only && chooses && !wf_cuda_conv_step_recall(s, p))) {
        /* A plan to look at, of what was never chosen. */
        p->scratch_bytes = chooses ? s->at_workspace + WF_CUDNN_LIKELY_WORKSPACE : s->own_scratch;
        release(s);
        return true;
    }
    if (chooses && !p->sizes_only)
        wf_cuda_conv_step_choose(s, p);
    if (!wf_cuda_well(s->cuda, err)) {
        release(s);
        return false;
    }
    describe(s, p);
    p->scratch_bytes = wf_cuda_conv_step_scratch(s);
    p->prepared = s;
    return true;
}

/* --- running --- */

static void run_own(const struct wf_cuda_conv_step *s, const struct wf_call *call)
{
#ifdef WF_HAVE_HOPPER
    if (s->engine != WF_ENGINE_NONE) {
        const bool back = s->problem.pass == WF_CONV_DATA;
        const bool ran = s->engine == WF_ENGINE_TILED  ? wf_cuda_tiled(call, back)
                         : s->engine == WF_ENGINE_STEM ? wf_cuda_stem(call)
                                                       : wf_cuda_volume(call, back);
        if (!ran)
            (void)wf_cuda_ok(s->cuda, cudaErrorInvalidValue, call->node->name);
        return;
    }
#endif
    wf_cuda_conv_own[s->problem.pass](call);
}

/* The three tensors as cuDNN sees them, in the scratch where they had to be padded. */
struct sides {
    struct wf_view image, weights, result;          /* cuDNN's */
    struct wf_view my_image, my_weights, my_result; /* the call's */
    char *scratch;
};

static struct sides find_sides(const struct wf_cuda_conv_step *s, const struct wf_call *call)
{
    const struct wf_cudnn_problem *const p = &s->problem;
    struct sides a = { 0 };
    if (call->scratch) { /* the first place is WF_CUDNN_ALIGN, and lies on the first boundary */
        const uintptr_t past = (uintptr_t)call->scratch % WF_CUDNN_ALIGN;
        a.scratch = (char *)call->scratch - (past ? past : WF_CUDNN_ALIGN);
    }
    a.my_image = p->pass == WF_CONV_DATA ? call->out[0] : call->in[0];
    a.my_result = p->pass == WF_CONV_DATA      ? call->in[0]
                  : p->pass == WF_CONV_FORWARD ? call->out[0]
                                               : call->in[1];
    a.my_weights = p->pass == WF_CONV_WEIGHTS ? call->out[0] : call->in[1];
    a.image =
        s->image_bytes ? packed(a.scratch + s->at_image, p, p->image, p->n, p->in) : a.my_image;
    a.result = s->result_bytes ? packed(a.scratch + s->at_result, p, p->result, p->n, p->out)
                               : a.my_result;
    a.weights = s->weights_bytes
                    ? packed(a.scratch + s->at_weights, p, p->kernel, p->out, p->in / p->groups)
                    : a.my_weights;
    return a;
}

/* Pads what is read. */
static void bring(const struct wf_cuda_conv_step *s, const struct sides *a)
{
    const enum wf_conv_pass pass = s->problem.pass;
    if (s->image_bytes && pass != WF_CONV_DATA)
        wf_cuda_fit(&a->image, &a->my_image, s->cuda->stream);
    if (s->result_bytes && pass != WF_CONV_FORWARD)
        wf_cuda_fit(&a->result, &a->my_result, s->cuda->stream);
    if (s->weights_bytes && pass != WF_CONV_WEIGHTS)
        wf_cuda_fit(&a->weights, &a->my_weights, s->cuda->stream);
}

/* Crops what was written. */
static void take(const struct wf_cuda_conv_step *s, const struct sides *a)
{
    const enum wf_conv_pass pass = s->problem.pass;
    if (s->image_bytes && pass == WF_CONV_DATA)
        wf_cuda_fit(&a->my_image, &a->image, s->cuda->stream);
    if (s->result_bytes && pass == WF_CONV_FORWARD)
        wf_cuda_fit(&a->my_result, &a->result, s->cuda->stream);
    if (s->weights_bytes && pass == WF_CONV_WEIGHTS)
        wf_cuda_fit(&a->my_weights, &a->weights, s->cuda->stream);
}

/* Writes the real weights itself: there is nothing to take(). */
static void run_wgrad(const struct wf_cuda_conv_step *s, const struct sides *a, const char *name)
{
#ifdef WF_HAVE_HOPPER
    struct wf_cuda_wgrad g = { .image = a->image,
                               .result = a->result,
                               .weights = a->my_weights,
                               .multiprocessors = s->cuda->multiprocessors,
                               .parts = a->scratch + s->at_workspace };
    memcpy(g.pad_lo, s->problem.pad_lo, sizeof g.pad_lo);
    if (!wf_cuda_tiled_wgrad(&g, s->cuda->stream))
        (void)wf_cuda_ok(s->cuda, cudaErrorInvalidValue, name);
#else
    (void)s, (void)a, (void)name;
#endif
}

void wf_cuda_conv_step_run(struct wf_cuda_conv_step *s, const struct wf_call *call)
{
    if (!takes_sides(s)) {
        run_own(s, call);
        return;
    }
    const struct sides a = find_sides(s, call);
    const float *const bias = s->bias ? call->in[2].data : NULL;
    bring(s, &a);
    if (!s->plan) {
        run_wgrad(s, &a, call->node->name);
        return;
    }
    const struct wf_cudnn_pointers pointers = { .image = a.image.data,
                                                .weights = a.weights.data,
                                                .result = a.result.data,
                                                .bias = s->problem.bias ? bias : NULL };
    void *const workspace = wf_cudnn_plan_workspace(s->plan) ? a.scratch + s->at_workspace : NULL;
    if (!wf_cudnn_plan_run(s->plan, &pointers, workspace))
        (void)wf_cudnn_ok(s->cuda, CUDNN_STATUS_EXECUTION_FAILED, call->node->name);
    take(s, &a);
    if (s->bias && !s->problem.bias)
        wf_cuda_add_bias(s->problem.pass == WF_CONV_DATA ? &a.my_image : &a.my_result, bias,
                         s->cuda->stream);
}

static void run(const struct wf_call *call)
{
    wf_cuda_conv_step_run(call->prepared, call);
}

#ifdef WF_HAVE_HOPPER

/* --- norms of convolutions, where their statistics are fixed --- */

enum { NORM_IMAGE, NORM_STATS, NORM_WEIGHT, NORM_BIAS }; /* inputs of a norm */

/* Statistics of each channel that are fixed, of a convolution that has a kernel for it. */
static bool fuses_conv(const struct wf_node *node, int input, const struct wf_node *maker)
{
    const struct wf_norm_attrs *const a = node->attrs;
    const bool same = node->out[0]->dtype == maker->out[0]->dtype;
    for (int i = NORM_STATS; i <= NORM_BIAS; i++)
        if (node->in[i] && node->in[i]->dtype != WF_F32)
            return false;
    return input == NORM_IMAGE && a->fixed && !a->per_sample && same &&
           a->groups == node->in[NORM_IMAGE]->shape.at[WF_C] &&
           strcmp(maker->op->name, "conv") == 0 &&
           (wf_cuda_tiled_fits(maker) || wf_cuda_stem_fits(maker)) && wf_cuda_about_major() == 9;
}

static bool norm_of_conv(const struct wf_node *node)
{
    const struct wf_node *const maker = node->in[0]->producer;
    return maker && fuses_conv(node, 0, maker);
}

/* One after the other, in the memory of the result: where that is a part of a tensor whose rows begin anywhere. */
static void run_both(const struct wf_call *call)
{
    const struct wf_fused_input *const conv = &call->fused[NORM_IMAGE];
    struct wf_view in[NORM_BIAS + 1];
    memcpy(in, call->in, sizeof in);
    in[NORM_IMAGE] = wf_view_part(call->out[0], call->work);
    struct wf_call one = *call;
    one.node = conv->node;
    one.in = conv->in;
    one.fused = NULL;
    wf_cuda_conv(&one);
    one.node = call->node;
    one.in = in;
    wf_cuda_norm(&one);
}

/* The convolution may have other readers, and is then in memory. */
static void run_norm(const struct wf_call *call)
{
    const struct wf_node *const conv = call->fused ? call->fused[NORM_IMAGE].node : NULL;
    if (!conv)
        wf_cuda_norm(call);
    else if (!(wf_cuda_tiled_fits(conv) ? wf_cuda_tiled_norm : wf_cuda_stem_norm)(call))
        run_both(call);
}

#endif

const struct wf_kernel wf_cuda_kernels_conv[] = {
#ifdef WF_HAVE_HOPPER
    { .op = "norm",
      .preference = 10,
      .accepts = norm_of_conv,
      .run = run_norm,
      .fuses = fuses_conv },
#endif
    WF_CONV_PASSES(.flags = WF_KERNEL_DENSE, .preference = 10, .accepts = wf_cudnn_accepts,
                   .prepare = prepare, .run = run, .release = release),
    { 0 },
};
