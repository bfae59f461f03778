#include "device/cuda/conv_trial.h"

#include <math.h>

enum { SAMPLES = 3, USUAL = 4 };
/* Seconds after which a run is not repeated. The first of all also waits for a library that is read from a disk. */
static const double long_run = 1.0, long_load = 10.0;

static size_t aligned(size_t bytes)
{
    return (bytes + WF_CUDNN_ALIGN - 1) / WF_CUDNN_ALIGN * WF_CUDNN_ALIGN;
}

/* --- the sample --- */

/* Sample i: a row of the work, at its begin, in its middle, at its end. */
static struct wf_region sample_of(const struct wf_region *work, int i)
{
    struct wf_region r = *work;
    for (int a = WF_N; a <= WF_H; a++) {
        const int64_t last = r.hi[a] - 1;
        r.lo[a] = i == 0 ? r.lo[a] : i == 1 ? (r.lo[a] + last) / 2 : last;
        r.hi[a] = r.lo[a] + 1;
    }
    return r;
}

static bool is_sum(const struct wf_conv_trial *t)
{
    return t->step->problem.pass == WF_CONV_WEIGHTS;
}

static size_t own_scratch(const struct wf_conv_trial *t)
{
    struct wf_prepare p = *t->prepare;
    struct wf_err err = { 0 };
    p.work = sample_of(&p.work, 0);
    p.scratch_bytes = 0;
    return is_sum(t) && wf_cuda_conv_wgrad_prepare(&p, &err) ? p.scratch_bytes : 0;
}

/* --- memory --- */

bool wf_conv_trial_init(struct wf_conv_trial *t, struct wf_cuda_conv_step *s,
                        const struct wf_prepare *p, size_t workspace)
{
    *t = (struct wf_conv_trial){ .step = s, .prepare = p };
    size_t bytes[4], total = 0;
    const int n_in = p->node->n_in;
    for (int k = 0; k < n_in; k++) {
        const bool there = p->node->in[k] != NULL;
        bytes[k] = there ? aligned(wf_view_bytes(&p->in[k])) : 0;
        total += bytes[k];
    }
    bytes[3] = aligned(wf_view_bytes(&p->out[0]));
    const struct wf_region one = sample_of(&p->work, 0);
    t->sample_bytes = is_sum(t) ? wf_view_bytes(&p->out[0])
                                : (size_t)wf_region_count(one) * wf_dtype_size(p->out[0].dtype);
    const size_t own = own_scratch(t), scratch = s->at_workspace + aligned(workspace);
    total += bytes[3] + aligned(t->sample_bytes) + aligned(own) + aligned(scratch) +
             aligned(sizeof *t->distance);
    if (cudaMalloc(&t->memory, total) != cudaSuccess) {
        (void)cudaGetLastError();
        t->memory = NULL;
        return false;
    }
    char *at = t->memory;
    for (int k = 0; k < n_in; k++) {
        t->in[k] = p->in[k];
        t->in[k].data = p->node->in[k] ? at : NULL;
        at += bytes[k];
    }
    t->out[0] = p->out[0];
    t->out[0].data = at;
    t->sample = at + bytes[3];
    t->sample_scratch = (char *)t->sample + aligned(t->sample_bytes);
    t->scratch = (char *)t->sample_scratch + aligned(own);
    t->distance = (struct wf_cuda_distance *)((char *)t->scratch + aligned(scratch));
    return cudaEventCreate(&t->before) == cudaSuccess && cudaEventCreate(&t->after) == cudaSuccess;
}

void wf_conv_trial_release(struct wf_conv_trial *t)
{
    (void)cudaStreamSynchronize(t->step->cuda->stream);
    if (t->before)
        (void)cudaEventDestroy(t->before);
    if (t->after)
        (void)cudaEventDestroy(t->after);
    if (t->memory)
        (void)cudaFree(t->memory);
}

void wf_conv_trial_fill(const struct wf_conv_trial *t)
{
    for (int k = 0; k < t->prepare->node->n_in; k++)
        if (t->in[k].data)
            wf_cuda_noise(t->in[k].data, (int)t->in[k].dtype, wf_region_count(t->in[k].box),
                          77u + (uint32_t)k, t->step->cuda->stream);
}

/* --- running --- */

static struct wf_call call_of(const struct wf_conv_trial *t)
{
    return (struct wf_call){ .node = t->prepare->node,
                             .work = t->prepare->work,
                             .in = t->in,
                             .out = t->out,
                             .scratch = t->scratch,
                             .context = &t->step->cuda->base };
}

double wf_conv_trial_time(const struct wf_conv_trial *t, double best_known)
{
    struct wf_cuda *const cuda = t->step->cuda;
    const struct wf_call call = call_of(t);
    const bool loads = !isfinite(best_known) || (t->step->plan && !cuda->cudnn_ran);
    float best = INFINITY;
    cuda->cudnn_ran = cuda->cudnn_ran || t->step->plan;
    for (int i = 0; i < WF_CONV_TIMED_RUNS; i++) {
        float ms = 0;
        (void)cudaEventRecord(t->before, cuda->stream);
        wf_cuda_conv_step_run(t->step, &call);
        (void)cudaEventRecord(t->after, cuda->stream);
        if (cudaStreamSynchronize(cuda->stream) != cudaSuccess || cuda->failure.code != WF_OK ||
            cudaEventElapsedTime(&ms, t->before, t->after) != cudaSuccess) {
            cuda->failure = (struct wf_err){ 0 };
            (void)cudaGetLastError();
            return (double)INFINITY;
        }
        if (1e-3 * (double)ms >
            (i == 0 && loads ? long_load : fmin(0.2 + 2 * best_known, long_run)))
            return 1e-3 * (double)ms;
        if (i > 0 && ms < best) /* the first one loads */
            best = ms;
    }
    return 1e-3 * (double)best;
}

/* --- checking --- */

static double tolerance(const struct wf_cudnn_problem *p)
{
    return p->dtype == WF_BF16 ? 2e-2 : p->dtype == WF_F16 ? 4e-3 : p->tf32 ? 4e-3 : 1e-4;
}

/* A sum is checked with all but one row of its image at zero. */
static void mask(const struct wf_conv_trial *t, const struct wf_region *row)
{
    const struct wf_view *const dy = &t->in[1];
    const struct wf_view part = wf_view_part(*dy, *row);
    cudaStream_t stream = t->step->cuda->stream;
    (void)wf_cuda_ok(t->step->cuda, cudaMemsetAsync(dy->data, 0, wf_view_bytes(dy), stream),
                     "trying a convolution");
    wf_cuda_noise(part.data, (int)dy->dtype, wf_region_count(*row), 5u, stream);
}

static void run_sample(const struct wf_conv_trial *t, const struct wf_region *row)
{
    const enum wf_conv_pass pass = t->step->problem.pass;
    struct wf_call call = call_of(t);
    struct wf_view out = t->out[0];
    out.data = t->sample;
    if (!is_sum(t))
        out = wf_view_dense(t->sample, out.dtype, *row);
    call.work = *row;
    call.out = &out;
    call.scratch = t->sample_scratch;
    if (pass == WF_CONV_FORWARD)
        wf_cuda_conv(&call);
    else if (pass == WF_CONV_DATA)
        wf_cuda_convt(&call);
    else
        wf_cuda_conv_wgrad(&call);
}

/* Into memory full of NaN. */
static bool run_plan(const struct wf_conv_trial *t)
{
    struct wf_cuda *const cuda = t->step->cuda;
    const struct wf_view *const out = &t->out[0];
    const struct wf_call call = call_of(t);
    const bool ok =
        cudaMemsetAsync(out->data, 0xff, wf_view_bytes(out), cuda->stream) == cudaSuccess;
    wf_cuda_conv_step_run(t->step, &call);
    return ok;
}

/* One sample of both: norm(a - b) / norm(b) within the tolerance, and so each element, beside its own size by that
 * of a usual one: the errors of a sum are those of its terms. */
static enum wf_conv_outcome check_sample(const struct wf_conv_trial *t, int index)
{
    struct wf_cuda *const cuda = t->step->cuda;
    const struct wf_region row = sample_of(&t->prepare->work, index);
    const struct wf_view *const out = &t->out[0];
    const double within = tolerance(&t->step->problem);
    struct wf_cuda_distance d;
    bool ok = true;
    if (is_sum(t)) {
        mask(t, &row);
        ok = run_plan(t);
    }
    run_sample(t, &row);
    const void *const made = is_sum(t) ? out->data : wf_view_part(*out, row).data;
    wf_cuda_compare(
        &(struct wf_cuda_compare){ .a = made,
                                   .b = t->sample,
                                   .dtype = (int)out->dtype,
                                   .count = (int64_t)(t->sample_bytes / wf_dtype_size(out->dtype)),
                                   .tolerance = within,
                                   .usual = USUAL,
                                   .to = t->distance,
                                   .stream = cuda->stream });
    ok = ok &&
         cudaMemcpyAsync(&d, t->distance, sizeof d, cudaMemcpyDeviceToHost, cuda->stream) ==
             cudaSuccess &&
         cudaStreamSynchronize(cuda->stream) == cudaSuccess && cuda->failure.code == WF_OK;
    if (!ok)
        return WF_CONV_NOT_RUN;
    /* NaN is not within anything. */
    return d.apart <= within * within * d.whole && d.outside == 0 ? WF_CONV_RIGHT : WF_CONV_WRONG;
}

enum wf_conv_outcome wf_conv_trial_check(const struct wf_conv_trial *t)
{
    wf_conv_trial_fill(t);
    enum wf_conv_outcome outcome = is_sum(t) || run_plan(t) ? WF_CONV_RIGHT : WF_CONV_NOT_RUN;
    for (int i = 0; outcome == WF_CONV_RIGHT && i < SAMPLES; i++)
        outcome = check_sample(t, i);
    return outcome;
}
