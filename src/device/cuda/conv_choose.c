/*
 * Which of cuDNN's plans, or which kernel of our own, a convolution runs with.
 *
 * The first suggestion of the heuristics was over 1.3 times slower than the best in one case of five,
 * so all of them are timed once, ours beside them, on noise in memory of the right size, and the choice is kept
 * (choices.h). Success is not correctness either: before a choice is kept, its result on noise, into
 * memory full of NaN, is held against our own kernel in some rows, as a whole and element by element. What
 * is wrong is passed over, and kept too, for people to see.
 *
 * A large problem is timed on some of its rows, unless nothing that runs there runs on the whole: of 8192 x 8192 pixels
 * cuDNN offers plans that take 30 s for a run where the best takes 12 ms. The check is always on the whole.
 */
#include <math.h>
#include <stdlib.h>

#include "device/cuda/choices.h"
#include "device/cuda/conv_trial.h"

enum { MOST_TRIED = 10 };
/* Suggestions come with the likely best first: of large images not all of the others are tried, unless none so far
 * runs in that time. */
static const double enough_seconds = 1.0, most_seconds = 60.0;
/* A problem of more than `whole` operations is timed on rows of about `excerpt`: 0.1 ms of a good plan, 1 ms without
 * tensor cores. */
struct excerpt_flops {
    double whole, excerpt;
};
static const struct excerpt_flops of_tensor_cores = { 1e12, 5e10 }, of_others = { 5e10, 2e10 };
enum { EXCERPT_ROWS = 8 };

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

/* --- an excerpt of a large problem --- */

/* A part of the problem: a few samples, and rows from the first on. */
struct excerpt {
    struct wf_cuda_conv_step step;
    struct wf_prepare prepare;
    struct wf_view in[3], out[1];
};

static double flops_of(const struct wf_cudnn_problem *p)
{
    double flops = 2.0 * (double)p->n * (double)p->in * (double)p->out / (double)p->groups;
    for (int i = 0; i < WF_CUDNN_SPACE; i++)
        flops *= (double)p->result[i] * (double)p->kernel[i];
    return flops;
}

static void shorten(struct wf_view *v, int axis, int64_t extent)
{
    struct wf_region box = v->box;
    box.hi[axis] = wf_min(box.hi[axis], box.lo[axis] + extent);
    *v = wf_view_dense(NULL, v->dtype, box);
}

/* So many places along an axis of space, of an image that is as much smaller: with the padding of the whole at both
 * ends, without which cuDNN has other kernels, or none. */
static void take_rows(struct excerpt *e, const struct wf_cudnn_problem *p, int axis, int64_t places)
{
    const int i = axis - WF_D;
    const bool back = p->pass == WF_CONV_DATA;
    struct wf_view *const image = back ? &e->out[0] : &e->in[0];
    struct wf_view *const result = back                         ? &e->in[0]
                                   : p->pass == WF_CONV_FORWARD ? &e->out[0]
                                                                : &e->in[1];
    shorten(result, axis, places);
    shorten(image, axis, p->image[i] - (p->result[i] - places) * p->stride[i]);
    const struct wf_region *const work = back ? &image->box : &result->box;
    e->prepare.work.hi[axis] = work->hi[axis];
}

static void take_samples(struct excerpt *e, const struct wf_cudnn_problem *p, int64_t samples)
{
    shorten(&e->in[0], WF_N, samples);
    shorten(p->pass == WF_CONV_WEIGHTS ? &e->in[1] : &e->out[0], WF_N, samples);
    e->prepare.work.hi[WF_N] = e->prepare.work.lo[WF_N] + samples;
}

/* False where the problem is not large, or has no rows to leave out. */
static bool excerpt_init(struct excerpt *e, const struct wf_cuda_conv_step *s,
                         const struct wf_prepare *p)
{
    const struct wf_cudnn_problem *const q = &s->problem;
    const struct excerpt_flops limit = q->dtype == WF_F32 && !q->tf32 ? of_others : of_tensor_cores;
    double part = limit.excerpt / flops_of(q);
    const int axis = q->result[0] > q->result[1] ? WF_D : WF_H;
    const int64_t places = q->result[axis - WF_D];
    if (flops_of(q) <= limit.whole || places <= EXCERPT_ROWS)
        return false;
    e->prepare = *p;
    for (int k = 0; k < p->node->n_in; k++)
        e->in[k] = p->in[k];
    e->out[0] = p->out[0];
    e->prepare.in = e->in;
    e->prepare.out = e->out;
    const int64_t samples = wf_max(1, (int64_t)((double)q->n * part));
    part *= (double)q->n / (double)samples;
    if (samples < q->n)
        take_samples(e, q, samples);
    if (part < 1)
        take_rows(e, q, axis, wf_max(EXCERPT_ROWS, (int64_t)((double)places * part)));
    if (!wf_cuda_conv_step_init(&e->step, s->cuda, &e->prepare))
        return false;
    e->step.problem.bias = q->bias;
    e->step.problem.large = q->large;
    return true;
}

/* --- the search --- */

struct search {
    struct wf_cuda_conv_step *step; /* for which one is searched */
    const struct wf_prepare *prepare;
    struct wf_cudnn_graph *graph;
    struct excerpt excerpt;  /* is timed in its place */
    bool has_excerpt, whole; /* whole: it may have none */
    struct tried list[MOST_TRIED];
    int n;
    size_t workspace; /* that a plan may take */
    bool left_out;    /* one of the whole problem takes more */
    bool sure;        /* all that were timed were compared */
};

/* NULL where it takes more memory than there may be. */
static struct wf_cudnn_plan *small_plan(struct search *q, struct wf_cudnn_graph *graph,
                                        const struct wf_cudnn_choice *choice)
{
    struct wf_cudnn_plan *const plan = wf_cudnn_plan_new(graph, choice);
    if (!plan || wf_cudnn_plan_workspace(plan) <= q->workspace)
        return plan;
    q->left_out = q->left_out || graph == q->graph;
    wf_cudnn_plan_free(plan);
    return NULL;
}

/* Past 2^31 elements cuDNN's kernels were at best as fast as ours, and others took a thousand times as long. */
static bool is_wide(const struct wf_cudnn_problem *p)
{
    const int64_t *const a = p->image, *const b = p->result;
    return p->n * a[0] * a[1] * a[2] * p->in > INT32_MAX ||
           p->n * b[0] * b[1] * b[2] * p->out > INT32_MAX;
}

static void add_plans(struct search *q, struct wf_cudnn_graph *graph, int n,
                      const struct wf_cudnn_choice choices[], int most)
{
    for (int i = 0; graph && i < n && q->n < most; i++) {
        struct wf_cudnn_plan *const plan = small_plan(q, graph, &choices[i]);
        if (plan)
            q->list[q->n++] = (struct tried){ choices[i], plan, (double)INFINITY };
    }
}

/* Our own engine, and plans for what is timed: where there is no choice nothing is. */
static void make_plans(struct search *q)
{
    const struct wf_cuda_conv_step *const s = q->step;
    struct wf_cudnn_choice choices[WF_CUDNN_CANDIDATES];
    const int n = q->graph ? wf_cudnn_candidates(q->graph, choices, WF_CUDNN_CANDIDATES) : 0;
    q->left_out = s->problem.own != WF_ENGINE_NONE && s->engine_workspace > q->workspace;
    if (s->problem.own != WF_ENGINE_NONE && !q->left_out)
        q->list[q->n++] = (struct tried){ { .engine = s->problem.own }, NULL, (double)INFINITY };
    const bool own_only = q->n > 0 && (is_long_sum(&s->problem) || is_wide(&s->problem));
    const int most = own_only          ? q->n
                     : s->problem.bias ? q->n + 1 /* compiled, in a second */
                                       : MOST_TRIED;
    q->has_excerpt =
        !q->whole && wf_min(most, q->n + n) > 1 && excerpt_init(&q->excerpt, s, q->prepare);
    const int ours = q->n;
    if (q->has_excerpt) {
        struct wf_cudnn_graph *const graph = wf_cudnn_graph_new(s->cuda, &q->excerpt.step.problem);
        add_plans(q, graph, n, choices, most);
        wf_cudnn_graph_free(graph);
        q->has_excerpt = q->n > ours; /* else the library has none for the excerpt */
    }
    if (!q->has_excerpt)
        add_plans(q, q->graph, n, choices, most);
}

static size_t most_workspace(const struct wf_cuda_conv_step *s, const struct search *q)
{
    size_t most = 0;
    for (int i = 0; i < q->n; i++) {
        const size_t workspace =
            q->list[i].plan ? wf_cudnn_plan_workspace(q->list[i].plan) : s->engine_workspace;
        most = workspace > most ? workspace : most;
    }
    return most;
}

/* The fastest first. */
static void time_plans(struct search *q, struct wf_conv_trial *t)
{
    double best = (double)INFINITY, spent = 0;
    wf_conv_trial_fill(t);
    for (int i = 0;
         i < q->n && (spent < enough_seconds || best > enough_seconds) && spent < most_seconds;
         i++) {
        take(t->step, &q->list[i]);
        const double seconds = q->list[i].seconds = wf_conv_trial_time(t, best);
        best = fmin(best, seconds);
        spent += !isfinite(seconds)         ? 0
                 : seconds > enough_seconds ? seconds
                                            : WF_CONV_TIMED_RUNS * seconds;
    }
    qsort(q->list, (size_t)q->n, sizeof *q->list, by_seconds);
}

/* Times plans on the excerpt, and lets go of them: those for the whole are made when their turn comes. False where none
 * ran. */
static bool time_excerpt(struct search *q)
{
    struct wf_conv_trial t;
    const bool timed = wf_conv_trial_init(&t, &q->excerpt.step, &q->excerpt.prepare,
                                          most_workspace(&q->excerpt.step, q));
    if (timed)
        time_plans(q, &t);
    wf_conv_trial_release(&t);
    for (int i = 0; i < q->n; i++) {
        wf_cudnn_plan_free(q->list[i].plan);
        q->list[i].plan = NULL;
    }
    return timed && isfinite(q->list[0].seconds);
}

/* A plan for the whole problem, where there is none yet and the engine is cuDNN's. */
static bool has_plan(struct search *q, struct tried *one)
{
    if (one->choice.engine >= 0 && !one->plan)
        one->plan = small_plan(q, q->graph, &one->choice);
    return one->choice.engine < 0 || one->plan;
}

/* Plans for the whole are made one by one, each with scratch up to the usual; where more is given, all at once. */
static size_t trial_workspace(struct search *q)
{
    const struct wf_cuda_conv_step *const s = q->step;
    if (q->has_excerpt && q->workspace <= s->cuda->workspace)
        return q->workspace;
    for (int i = 0; i < q->n; i++)
        (void)has_plan(q, &q->list[i]);
    return most_workspace(s, q);
}

/* Leaves the step with the fastest that is right, or with none, and says which one that is. Without
 * memory to try them: the first, but for one that takes more than the usual scratch. */
static int try_plans(struct search *q)
{
    struct wf_cuda_conv_step *const s = q->step;
    struct wf_conv_trial t;
    int found = -1;
    const bool excerpt_timed = q->has_excerpt && time_excerpt(q);
    const bool fits = wf_conv_trial_init(&t, s, q->prepare, trial_workspace(q));
    const bool timed = excerpt_timed || (fits && !q->has_excerpt && q->n > 1);
    if (timed && !excerpt_timed)
        time_plans(q, &t);
    const bool may_run = fits || q->workspace <= s->cuda->workspace;
    q->sure = fits;
    for (int i = 0; i < q->n && found < 0; i++) {
        if (!has_plan(q, &q->list[i]))
            continue;
        take(s, &q->list[i]);
        const bool runs = may_run && (!timed || isfinite(q->list[i].seconds));
        const enum wf_conv_outcome outcome = fits && runs ? wf_conv_trial_check(&t)
                                             : runs       ? WF_CONV_RIGHT
                                                          : WF_CONV_NOT_RUN;
        q->sure = q->sure && (!runs || outcome != WF_CONV_NOT_RUN);
        if (outcome == WF_CONV_RIGHT)
            found = i;
        if (outcome == WF_CONV_WRONG) {
            s->wrong++;
            wf_cuda_choice_put_wrong(s->cuda, &s->problem, &q->list[i].choice);
        }
        s->cuda->failure = (struct wf_err){ 0 }; /* of a plan that is not taken */
        (void)cudaGetLastError();
    }
    wf_conv_trial_release(&t);
    for (int i = 0; i < q->n; i++)
        if (i != found)
            wf_cudnn_plan_free(q->list[i].plan);
    return found;
}

/* The index of what was found; -1: nothing. */
static int search_within(struct search *q, size_t workspace, bool whole)
{
    q->sure = q->graph != NULL;
    q->workspace = workspace;
    q->whole = whole;
    q->n = 0;
    q->step->wrong = 0;
    make_plans(q);
    return q->n > 0 ? try_plans(q) : -1;
}

/* By trying; the choice is kept. Without any the kernel for any convolution is left, which takes up to fifty times as
 * long: so the whole is timed where what does for an excerpt does not for it, and more scratch is given, unless
 * another kernel may add the bias behind. */
static void search(struct search *q)
{
    struct wf_cuda_conv_step *const s = q->step;
    const struct tried none = { .choice = { .engine = WF_ENGINE_NONE } };
    const size_t scratch[] = { s->cuda->workspace, s->cuda->most_workspace };
    const int rounds = scratch[1] > scratch[0] && !s->problem.bias ? 2 : 1;
    const int wrong = s->wrong; /* with the bias inside */
    int found = -1;
    for (int i = 0; i < rounds && found < 0 && (i == 0 || q->left_out); i++) {
        found = search_within(q, scratch[i], false);
        const bool left_out = q->left_out;
        if (found < 0 && q->has_excerpt)
            found = search_within(q, scratch[i], true);
        q->left_out = q->left_out || left_out;
    }
    s->wrong += wrong;
    const struct tried *const one = found < 0 ? &none : &q->list[found];
    take(s, one);
    if (q->sure)
        wf_cuda_choice_put(s->cuda, &s->problem, &one->choice);
    if (q->sure && s->plan)
        wf_cuda_choice_keep(s->cuda, &s->problem, &one->choice, s->plan);
}

static bool find_choice(const struct wf_cuda_conv_step *s, struct wf_cudnn_choice *choice)
{
    return wf_cuda_choice_find(s->cuda, &s->problem, choice) &&
           (choice->engine >= WF_ENGINE_NONE || choice->engine == s->problem.own);
}

/* True where there is one for the problem as it stands: then the step has it. */
static bool find_plan(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    struct tried kept = { .choice = { .engine = WF_ENGINE_NONE } };
    const bool known = find_choice(s, &kept.choice);
    const bool ours = known && kept.choice.engine < 0; /* or none */
    struct wf_cudnn_graph *const graph = ours ? NULL : wf_cudnn_graph_new(s->cuda, &s->problem);
    kept.plan =
        graph && known ? wf_cuda_choice_plan(s->cuda, graph, &s->problem, &kept.choice) : NULL;
    take(s, &kept);
    if (!ours && !s->plan)
        search(&(struct search){ .step = s, .prepare = p, .graph = graph });
    wf_cudnn_graph_free(graph);
    return s->plan || s->engine != WF_ENGINE_NONE;
}

/* The bias inside the kernel where cuDNN can, unless what is made has to be cropped first. */
static bool takes_bias(const struct wf_cuda_conv_step *s)
{
    const struct wf_cudnn_problem *const q = &s->problem;
    const bool cropped = q->pass == WF_CONV_DATA ? q->in != s->in : q->out != s->out;
    return s->bias && !cropped && q->large;
}

bool wf_cuda_conv_step_recall(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    struct wf_cudnn_choice choice;
    if (s->cuda->failure.code != WF_OK)
        return false;
    s->problem.bias = takes_bias(s);
    if (!find_choice(s, &choice))
        return false;
    if (find_plan(s, p) || !s->problem.bias)
        return true;
    s->problem.bias = false;
    if (!find_choice(s, &choice))
        return false;
    (void)find_plan(s, p);
    return true;
}

void wf_cuda_conv_step_choose(struct wf_cuda_conv_step *s, const struct wf_prepare *p)
{
    if (s->cuda->failure.code != WF_OK)
        return;
    s->problem.bias = takes_bias(s);
    if (!find_plan(s, p) && s->problem.bias) {
        s->problem.bias = false;
        (void)find_plan(s, p);
    }
}
