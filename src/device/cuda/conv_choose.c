/*
 * Which of cuDNN's plans, or which kernel of our own, a convolution runs with.
 *
 * The first suggestion of the heuristics was over 1.3 times slower than the best in one case of five,
 * so all of them are timed once, ours beside them, on noise in memory of the right size, and the choice is kept
 * (choices.h). Success is not correctness either: before a choice is kept, its result on noise, into
 * memory full of NaN, is held against our own kernel in some rows, as a whole and element by element. What
 * is wrong is passed over, and kept too, for people to see.
 */
#include <math.h>
#include <stdlib.h>

#include "device/cuda/choices.h"
#include "base/memory.h"
#include "device/cuda/conv.h"
#include "device/cuda/kernels.h"

enum { TIMED_RUNS = 3, MOST_TRIED = 10, SAMPLES = 3, USUAL = 4 };
/* Suggestions come with the likely best first: of large images not all of the others are tried. */
static const double enough_seconds = 1.0;

/* Memory like that of the step. */
struct trial {
    struct wf_cuda_conv_step *step;
    const struct wf_prepare *prepare;
    struct wf_view in[3], out[1];
    void *memory, *scratch, *sample, *sample_scratch;
    size_t sample_bytes;
    cudaEvent_t before, after;
};

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

static bool is_sum(const struct trial *t)
{
    return t->step->problem.pass == WF_CONV_WEIGHTS;
}

static size_t own_scratch(const struct trial *t)
{
    struct wf_prepare p = *t->prepare;
    struct wf_err err = { 0 };
    p.work = sample_of(&p.work, 0);
    p.scratch_bytes = 0;
    return is_sum(t) && wf_cuda_conv_wgrad_prepare(&p, &err) ? p.scratch_bytes : 0;
}

/* --- memory --- */

static bool trial_init(struct trial *t, struct wf_cuda_conv_step *s, const struct wf_prepare *p,
                       size_t workspace)
{
    *t = (struct trial){ .step = s, .prepare = p };
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
    total += bytes[3] + aligned(t->sample_bytes) + aligned(own) + aligned(scratch);
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
    return cudaEventCreate(&t->before) == cudaSuccess && cudaEventCreate(&t->after) == cudaSuccess;
}

static void trial_release(struct trial *t)
{
    (void)cudaStreamSynchronize(t->step->cuda->stream);
    if (t->before)
        (void)cudaEventDestroy(t->before);
    if (t->after)
        (void)cudaEventDestroy(t->after);
    if (t->memory)
        (void)cudaFree(t->memory);
}

static void fill(const struct trial *t)
{
    for (int k = 0; k < t->prepare->node->n_in; k++)
        if (t->in[k].data)
            wf_cuda_noise(t->in[k].data, (int)t->in[k].dtype, wf_region_count(t->in[k].box),
                          77u + (uint32_t)k, t->step->cuda->stream);
}

/* --- running --- */

static struct wf_call call_of(const struct trial *t)
{
    return (struct wf_call){ .node = t->prepare->node,
                             .work = t->prepare->work,
                             .in = t->in,
                             .out = t->out,
                             .scratch = t->scratch,
                             .context = &t->step->cuda->base };
}

/* Seconds of a run; infinite where it failed, which is forgotten: others are left. A first run that
 * takes far longer than another's `best`, and than loading the kernel may, is the last one. */
static double time_plan(const struct trial *t, double best_known)
{
    struct wf_cuda *const cuda = t->step->cuda;
    const struct wf_call call = call_of(t);
    float best = INFINITY;
    for (int i = 0; i < TIMED_RUNS; i++) {
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
        if (1e-3 * (double)ms > 0.2 + 2 * best_known)
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

/* norm(a - b) / norm(b) within the tolerance, and so each element, beside its own size by that of a usual
 * one: the errors of a sum are those of its terms. NaN is not. */
static bool is_close(const void *a, const void *b, enum wf_dtype dtype, int64_t count,
                     double tolerance_)
{
    double apart = 0, whole = 0;
    for (int64_t i = 0; i < count; i++) {
        const double y = wf_dtype_get(dtype, b, i), d = wf_dtype_get(dtype, a, i) - y;
        apart += d * d;
        whole += y * y;
    }
    const double usual = USUAL * sqrt(whole / (double)(count ? count : 1));
    bool ok = apart <= tolerance_ * tolerance_ * whole;
    for (int64_t i = 0; ok && i < count; i++) {
        const double y = wf_dtype_get(dtype, b, i);
        ok = fabs(wf_dtype_get(dtype, a, i) - y) <= tolerance_ * (fabs(y) + usual);
    }
    return ok;
}

/* A sum is checked with all but one row of its image at zero. */
static void mask(const struct trial *t, const struct wf_region *row)
{
    const struct wf_view *const dy = &t->in[1];
    const struct wf_view part = wf_view_part(*dy, *row);
    cudaStream_t stream = t->step->cuda->stream;
    (void)wf_cuda_ok(t->step->cuda, cudaMemsetAsync(dy->data, 0, wf_view_bytes(dy), stream),
                     "trying a convolution");
    wf_cuda_noise(part.data, (int)dy->dtype, wf_region_count(*row), 5u, stream);
}

static void run_sample(const struct trial *t, const struct wf_region *row)
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

/* Not run: nothing was compared, so nothing is known of its numbers. */
enum outcome { RIGHT, WRONG, NOT_RUN };

/* One sample on both; `host` has room for two of them. */
static enum outcome check_sample(const struct trial *t, int index, char *host)
{
    struct wf_cuda *const cuda = t->step->cuda;
    const struct wf_call call = call_of(t);
    const struct wf_region row = sample_of(&t->prepare->work, index);
    const struct wf_view *const out = &t->out[0];
    if (is_sum(t))
        mask(t, &row);
    /* NaN in every float type. */
    bool ok = cudaMemsetAsync(out->data, 0xff, wf_view_bytes(out), cuda->stream) == cudaSuccess;
    wf_cuda_conv_step_run(t->step, &call);
    run_sample(t, &row);
    const void *const made = is_sum(t) ? out->data : wf_view_part(*out, row).data;
    ok = ok &&
         cudaMemcpyAsync(host, made, t->sample_bytes, cudaMemcpyDeviceToHost, cuda->stream) ==
             cudaSuccess &&
         cudaMemcpyAsync(host + t->sample_bytes, t->sample, t->sample_bytes, cudaMemcpyDeviceToHost,
                         cuda->stream) == cudaSuccess &&
         cudaStreamSynchronize(cuda->stream) == cudaSuccess && cuda->failure.code == WF_OK;
    if (!ok)
        return NOT_RUN;
    return is_close(host, host + t->sample_bytes, out->dtype,
                    (int64_t)(t->sample_bytes / wf_dtype_size(out->dtype)),
                    tolerance(&t->step->problem))
               ? RIGHT
               : WRONG;
}

static enum outcome check_plan(const struct trial *t)
{
    char *const host = wf_take(2 * t->sample_bytes + 1);
    enum outcome outcome = RIGHT;
    fill(t);
    for (int i = 0; outcome == RIGHT && i < SAMPLES; i++)
        outcome = check_sample(t, i, host);
    free(host);
    return outcome;
}

/* --- choosing --- */

struct tried {
    struct wf_cudnn_choice choice;
    struct wf_cudnn_plan *plan; /* NULL: the engine is ours */
    double seconds;
};

static void take(struct wf_cuda_conv_step *s, const struct tried *t)
{
    s->plan = t->plan;
    s->engine = t->plan ? WF_ENGINE_NONE : t->choice.engine;
}

static int by_seconds(const void *a, const void *b)
{
    const struct tried *const x = a, *const y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Tensor cores cut off digits when they add: about 2^-24 of the sum for every 16 positions, and a block of
 * cuDNN's adds up a tenth of all positions. Past this many that is as much as a 16-bit number loses by its
 * rounding, and then our own engine is taken, whose blocks add up less and keep f32. */
static const int64_t long_sum = (int64_t)6 << 20;

static bool is_long_sum(const struct wf_cudnn_problem *p)
{
    return p->pass == WF_CONV_WEIGHTS && p->dtype != WF_F32 &&
           p->n * p->result[0] * p->result[1] * p->result[2] > long_sum;
}

/* Our own engine and plans of the candidates that fit the limit of memory. */
static int make_plans(const struct wf_cuda_conv_step *s, struct wf_cudnn_graph *graph,
                      struct tried list[MOST_TRIED])
{
    struct wf_cudnn_choice choices[WF_CUDNN_CANDIDATES];
    const int n = graph ? wf_cudnn_candidates(graph, choices, WF_CUDNN_CANDIDATES) : 0;
    int made = 0;
    if (s->problem.own != WF_ENGINE_NONE && s->engine_workspace <= s->cuda->workspace)
        list[made++] = (struct tried){ { .engine = s->problem.own }, NULL, (double)INFINITY };
    const int most = made > 0 && is_long_sum(&s->problem) ? made
                     : s->problem.bias                    ? made + 2
                                                          : MOST_TRIED;
    for (int i = 0; i < n && made < most; i++) {
        struct wf_cudnn_plan *const plan = wf_cudnn_plan_new(graph, &choices[i]);
        if (plan && wf_cudnn_plan_workspace(plan) <= s->cuda->workspace)
            list[made++] = (struct tried){ choices[i], plan, (double)INFINITY };
        else
            wf_cudnn_plan_free(plan);
    }
    return made;
}

static size_t most_workspace(const struct wf_cuda_conv_step *s, const struct tried list[], int n)
{
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        const size_t workspace =
            list[i].plan ? wf_cudnn_plan_workspace(list[i].plan) : s->engine_workspace;
        most = workspace > most ? workspace : most;
    }
    return most;
}

/* Leaves the step with the fastest that is right, or with none, and says which one that is. Without
 * memory to try them: the first. Not sure where one that was timed could not be compared. */
static int try_plans(struct wf_cuda_conv_step *s, const struct wf_prepare *p, struct tried list[],
                     int n, bool *sure)
{
    struct trial t;
    int found = -1;
    const bool timed = trial_init(&t, s, p, most_workspace(s, list, n));
    *sure = timed;
    if (timed) {
        fill(&t);
        double best = (double)INFINITY, spent = 0;
        for (int i = 0; i < n && (spent < enough_seconds || !isfinite(best)); i++) {
            take(s, &list[i]);
            list[i].seconds = time_plan(&t, best);
            best = fmin(best, list[i].seconds);
            spent += isfinite(list[i].seconds) ? TIMED_RUNS * list[i].seconds : 0;
        }
        qsort(list, (size_t)n, sizeof *list, by_seconds);
    }
    for (int i = 0; i < n && found < 0; i++) {
        take(s, &list[i]);
        const bool runs = !timed || isfinite(list[i].seconds);
        const enum outcome outcome = timed && runs ? check_plan(&t) : runs ? RIGHT : NOT_RUN;
        *sure = *sure && (!runs || outcome != NOT_RUN);
        if (outcome == RIGHT)
            found = i;
        if (outcome == WRONG) {
            s->wrong++;
            wf_cuda_choice_put_wrong(s->cuda, &s->problem, &list[i].choice);
        }
        s->cuda->failure = (struct wf_err){ 0 }; /* of a plan that is not taken */
        (void)cudaGetLastError();
    }
    trial_release(&t);
    for (int i = 0; i < n; i++)
        if (i != found)
            wf_cudnn_plan_free(list[i].plan);
    return found;
}

/* True where there is one for the problem as it stands: then the step has it. */
static bool find_plan(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    struct tried list[MOST_TRIED] = { { .choice = { .engine = WF_ENGINE_NONE } } };
    struct wf_cudnn_choice *const kept = &list[0].choice;
    const bool known = wf_cuda_choice_find(s->cuda, &s->problem, kept) &&
                       (kept->engine >= WF_ENGINE_NONE || kept->engine == s->problem.own);
    const bool ours = known && kept->engine < 0; /* or none */
    struct wf_cudnn_graph *const graph = ours ? NULL : wf_cudnn_graph_new(s->cuda, &s->problem);
    list[0].plan = graph && known ? wf_cuda_choice_plan(s->cuda, graph, &s->problem, kept) : NULL;
    take(s, &list[0]);
    if (!ours && !s->plan) {
        bool sure = graph != NULL;
        const int n = make_plans(s, graph, list);
        const int found = n > 0 ? try_plans(s, p, list, n, &sure) : -1;
        const struct tried none = { .choice = { .engine = WF_ENGINE_NONE } };
        take(s, found < 0 ? &none : &list[found]);
        if (sure)
            wf_cuda_choice_put(s->cuda, &s->problem,
                               found < 0 ? &none.choice : &list[found].choice);
        if (sure && s->plan)
            wf_cuda_choice_keep(s->cuda, &s->problem, &list[found].choice, s->plan);
    }
    wf_cudnn_graph_free(graph);
    return s->plan || s->engine != WF_ENGINE_NONE;
}

void wf_cuda_conv_step_choose(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    if (s->cuda->failure.code != WF_OK)
        return;
    /* The bias inside the kernel where cuDNN can, unless what is made has to be cropped first. */
    const struct wf_cudnn_problem *const q = &s->problem;
    const bool cropped = q->pass == WF_CONV_DATA ? q->in != s->in : q->out != s->out;
    s->problem.bias = s->bias && !cropped && q->large;
    if (!find_plan(s, p) && s->problem.bias) {
        s->problem.bias = false;
        (void)find_plan(s, p);
    }
}
