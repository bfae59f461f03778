#include "train/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/memory.h"
#include "models/blocks.h"
#include "train/device.h"
#include "train/machine.h"
#include "train/calibrate_trials.h"
#include "train/stepper.h"

/* --- the networks --- */

static struct wf_value *norm_relu(struct wf_graph *g, struct wf_value *x, const char *name,
                                  bool sample)
{
    return (sample ? wf_instance_norm
                   : wf_batch_norm)(g, x, &(struct wf_norm){ .name = name, .act = WF_RELU });
}

static struct wf_value *build_layer(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *x)
{
    const struct wf_trial_layer *const l = c->own;
    x = wf_block_image(g, c, x);
    if (!x)
        return NULL;
    const struct wf_shape whole = wf_value_shape(x);
    x = wf_conv(g, x, &(struct wf_conv){ .name = "first", .out = l->in, .dims = c->dims });
    x = norm_relu(g, x, "norm0", l->sample_norm);
    struct wf_value *const before = x;
    struct wf_conv conv = { .name = "layer", .out = l->out, .same = true, .groups = l->groups };
    wf_block_extents(c->dims, l->kernel, conv.kernel);
    wf_block_extents(c->dims, l->stride, conv.stride);
    x = norm_relu(g, wf_conv(g, x, &conv), "norm1", l->sample_norm);
    if (l->residual)
        x = wf_activation(g, wf_add(g, x, before), "sum", WF_RELU, 0.0);
    if (l->stride > 1)
        x = wf_upsample(g, x, "up", &whole.at[WF_D], WF_LINEAR);
    return wf_block_logits(g, x, "last", c->classes);
}

static const struct wf_model layer_model = {
    .name = "calibration",
    .defaults = { .dims = 2, .in = 3, .classes = 2 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build_layer,
};

/* On a CPU all is run in two rounds: who else is at work in one of them may not be in the other. */
enum { TRIALS = WF_TRIALS, STEPS_LEAST = 2, STEPS_MOST = 40, ROUNDS = 2 };
static const double seconds_each = 0.1; /* that a trial's steps are repeated, at least */
static const double keep_every = 5;     /* seconds, that what was measured is handed out */
static const double slow = 0.5;         /* a step: it is not timed on one core as well */

/* --- one of them --- */

struct session {
    const struct wf_calibrate *ask;
    struct wf_figures *figures;
    struct wf_settings settings; /* of the trial under way */
    struct wf_job *job;
    int threads;
    double whole;              /* seconds of a step of the trial */
    double seconds[2][TRIALS]; /* per precision of the host: a step with all cores */
    double start, kept;        /* when it began, and when rows were last handed out */
    bool left_out;             /* a trial was, for want of time or as of another type */
    /* What steps took, and their kernels and update alone, of each trial: for a line through them. */
    struct rest {
        double whole, kernels, sum;
    } rest[4 * TRIALS];
    int n_rest;
};

static void set_trial(struct session *s, const struct wf_trial *t, enum wf_precision precision,
                      struct wf_err *err)
{
    struct wf_settings *const to = &s->settings;
    *to = *s->ask->settings;
    to->model = t->model ? wf_model_find(t->model, err) : &layer_model;
    to->config = (struct wf_model_config){ .dims = t->dims, .base = t->base, .depth = t->depth };
    if (!t->model)
        to->config.own = &t->layer;
    to->data.size = (struct wf_extents){ .count = 2 + t->dims, .at = { t->n, t->in } };
    for (int i = 0; i < t->dims; i++)
        to->data.size.at[2 + i] = t->extent;
    to->data.points = t->points;
    to->train.precision = precision;
    to->train.accumulate = 1;
    to->threads = s->threads;
    to->mesh = (struct wf_mesh_settings){ .is_given = true, .mesh = wf_mesh_one() };
    to->limit = 0;
}

/* Of steps so far: the least seconds of each of the plan's steps and of the update, and those of each whole step. */
struct timed {
    double *each, update;
    double whole[STEPS_MOST];
    int count;
};

static bool time_update(struct wf_stepper *stepper, double *least, struct wf_err *err)
{
    float *const grads = wf_run_grads(stepper->run);
    const double start = wf_now();
    const double squares = wf_optim_squares(stepper->optim, grads);
    wf_optim_update(stepper->optim, wf_run_params(stepper->run), grads,
                    isfinite(squares) ? 1e-6 : 0);
    if (!wf_run_wait(stepper->run, err))
        return false;
    *least = fmin(*least, wf_now() - start);
    return true;
}

/* A step as a training makes it, and on a device with a clock of its own one that it times. */
static bool time_step(struct wf_stepper *stepper, struct timed *timed, struct wf_err *err)
{
    double waiting;
    if (!wf_stepper_time(stepper, &timed->whole[timed->count++], &waiting, err))
        return false;
    if (!wf_device_is_host(stepper->job->device)) {
        wf_run_set_profiled(stepper->run, true);
        const bool ok = wf_stepper_step(stepper, err) && wf_run_wait(stepper->run, err);
        wf_run_set_profiled(stepper->run, false);
        if (!ok)
            return false;
    }
    const double *const now = wf_run_step_seconds(stepper->run);
    for (int i = 0; i < stepper->plan->n_steps; i++)
        timed->each[i] = fmin(timed->each[i], now[i]);
    return time_update(stepper, &timed->update, err);
}

static bool is_same_load(const struct wf_load *a, const struct wf_load *b)
{
    bool same = a->name == b->name && a->type == b->type && a->fused == b->fused;
    for (int i = 0; same && i < WF_LOAD_AXES; i++)
        same = a->log[i] == b->log[i];
    return same;
}

/* The same load may occur often in a step, here with its images in a cache and there without: the mean counts. */
static void keep_loads(struct session *s, const struct wf_stepper *stepper, const double *seconds,
                       double share)
{
    const struct wf_plan *const plan = stepper->plan;
    const int threads = wf_device_is_host(s->job->device) ? s->threads : 1;
    struct wf_arena arena = { 0 };
    bool *const kept = wf_arena_array(&arena, plan->n_steps + 1, bool);
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_load *const load = &plan->steps[i].load;
        double sum = 0;
        int n = 0;
        for (int k = i; load->name && !kept[i] && k < plan->n_steps; k++)
            if (plan->steps[k].load.name && is_same_load(load, &plan->steps[k].load)) {
                sum += seconds[k];
                n++;
                kept[k] = k > i;
            }
        if (n > 0)
            wf_figures_add(s->figures, threads, load, share * sum / n);
    }
    wf_arena_release(&arena);
}

static void keep_rows(struct session *s, const struct wf_stepper *stepper, struct timed *timed)
{
    double sum = 0;
    const int count = stepper->plan->n_steps;
    const bool host = wf_device_is_host(s->job->device);
    const int threads = host ? s->threads : 1;
    for (int i = 0; i < count; i++)
        sum += timed->each[i];
    /* The least of each kernel comes from different steps: together they take less than any step does. A training has the
     * usual step. Much less is a machine that others use, which is not theirs. */
    s->whole = wf_median(timed->whole, timed->count);
    const double steps = s->whole - timed->update;
    const double share = host && sum > 0 ? fmin(fmax(steps / sum, 1), 1.1) : 1;
    keep_loads(s, stepper, timed->each, share);
    sum *= share;
    const struct wf_load update = wf_optim_load(&stepper->optim->options, stepper->optim->count);
    wf_figures_add(s->figures, threads, &update, timed->update);
    if (!host && s->n_rest < 4 * TRIALS) {
        s->rest[s->n_rest++] = (struct rest){ s->whole, count, sum + timed->update };
    }
}

/* Ranks run beside each other, each for itself: they meet between steps only, so that cores are busy. */
static bool time_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct session *const s = arg;
    struct wf_comm *const self = wf_comm_self();
    struct wf_stepper stepper = { 0 };
    struct wf_arena arena = { 0 };
    struct timed timed = { .update = INFINITY };
    wf_job_use_threads(s->job);
    bool ok = wf_stepper_init(&stepper, s->job, self, NULL, err);
    if (ok) {
        timed.each = wf_arena_array(&arena, stepper.plan->n_steps + 1, double);
        for (int i = 0; i < stepper.plan->n_steps; i++)
            timed.each[i] = INFINITY;
    }
    ok = wf_comm_agree(comm, ok && wf_stepper_step(&stepper, err), err); /* warms up */
    double start = wf_now(), busy = 0;
    for (int i = 0; ok && timed.each && i < STEPS_MOST && (i < STEPS_LEAST || busy < seconds_each);
         i++) {
        ok = time_step(&stepper, &timed, err);
        busy = (wf_now() - start) / wf_comm_size(comm);
        /* All go on, or none. */
        ok = wf_comm_agree(comm, ok, err) && wf_comm_sum(comm, &busy, 1, WF_F64, err);
    }
    if (ok && timed.each && wf_comm_rank(comm) == 0)
        keep_rows(s, &stepper, &timed);
    wf_stepper_release(&stepper);
    wf_comm_free(self);
    wf_arena_release(&arena);
    return ok;
}

static bool run_trial(struct session *s, const struct wf_trial *t, enum wf_precision precision,
                      int ranks, struct wf_err *err)
{
    s->whole = 0;
    set_trial(s, t, precision, err);
    if (!s->settings.model)
        return false;
    s->job = wf_job_new(s->ask->launch, &s->settings, &(struct wf_job_files){ 0 }, err);
    const bool ok = s->job && wf_comm_threads_run(ranks, time_rank, s, err);
    wf_job_free(s->job);
    s->job = NULL;
    return ok || wf_err_wrap(err, "'%s', %s", t->model ? t->model : "layer",
                             wf_precision_names[precision]);
}

/* --- all of them --- */

/* On the host a step is its kernels. On a GPU kernels that were timed one by one take longer, or shorter, than those of
 * a recorded step, whose branches run side by side: rest = beside + between * kernels, by least squares of what a step is
 * off by in parts of it, so that small steps count as much as large ones. */
static void keep_rest(struct session *s)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < s->n_rest; i++) {
        const struct rest *const r = &s->rest[i];
        const double weight = 1 / (r->whole * r->whole), rest = r->whole - r->sum;
        n += weight;
        x += weight * r->kernels;
        y += weight * rest;
        xx += weight * r->kernels * r->kernels;
        xy += weight * r->kernels * rest;
    }
    const double spread = n * xx - x * x;
    const double between = spread > 0 ? (n * xy - x * y) / spread : 0;
    wf_figures_add_step(s->figures, 1, between, n > 0 ? (y - between * x) / n : 0);
}

/* A run that is cut off is of use so. */
static void hand_out(struct session *s)
{
    const struct wf_calibrate *const ask = s->ask;
    if (!ask->keep || wf_now() - s->kept < keep_every)
        return;
    if (s->threads == 0)
        keep_rest(s);
    ask->keep(ask->user, s->figures);
    s->kept = wf_now();
}

static bool is_over(const struct session *s)
{
    return s->ask->seconds > 0 && wf_now() - s->start > s->ask->seconds;
}

/* In which order types are measured, and for how many seconds at most: what is left then follows from what was measured.
 * Kernels without tensor cores take long to choose. f16 has the kernels of bf16. */
struct pass {
    enum wf_precision precision;
    double seconds;
};
static const struct pass on_host[] = { { WF_PRECISION_F32, INFINITY },
                                       { WF_PRECISION_BF16, INFINITY } };
static const struct pass on_gpu[] = { { WF_PRECISION_BF16, 210 },
                                      { WF_PRECISION_TF32, 75 },
                                      { WF_PRECISION_F32, 75 } };
static const double all_on_gpu = 360;

/* From 0 to 1: of the trials, or of the time that is given. */
static void show(const struct session *s, double part, const char *what)
{
    const struct wf_calibrate *const ask = s->ask;
    if (!ask->progress)
        return;
    if (ask->seconds > 0)
        part = fmax(part, (wf_now() - s->start) / ask->seconds);
    ask->progress(ask->user, fmin(part, 1), what);
}

static bool run_trials(struct session *s, int ranks, double from, double to, struct wf_err *err)
{
    const bool host = s->threads > 0;
    const struct pass *const passes = host ? on_host : on_gpu;
    const int count = host ? 2 : 3;
    const struct wf_trials list = wf_trials(host);
    const struct wf_calibrate *const ask = s->ask;
    /* The time that is given is shared by types as the usual time is; one alone has all of it. */
    const double stretch = ask->seconds <= 0    ? 1
                           : ask->one_precision ? (double)INFINITY
                                                : ask->seconds / all_on_gpu;
    for (int p = 0; p < count; p++) {
        const double start = wf_now();
        for (int i = 0; i < list.count; i++) {
            const struct wf_trial *const t = &list.at[i];
            show(s, from + (to - from) * (p * list.count + i) / (count * list.count),
                 t->model ? t->model : "layers");
            const bool out =
                (ask->one_precision && passes[p].precision != ask->settings->train.precision) ||
                wf_now() - start > (host ? 1 : stretch) * passes[p].seconds || is_over(s);
            s->left_out = s->left_out || out;
            if (out || (ranks > 1 && s->seconds[p][i] > slow))
                continue;
            if (!run_trial(s, t, passes[p].precision, ranks, err))
                return false;
            if (host && ranks == 1)
                s->seconds[p][i] = s->whole;
            hand_out(s);
        }
    }
    return true;
}

/* With all cores for one rank, and on a host with more with one for each of as many ranks. */
static bool run_round(struct session *s, int cores, double from, double to, struct wf_err *err)
{
    const double middle = cores > 1 ? (from + to) / 2 : to;
    s->threads = cores;
    if (!run_trials(s, 1, from, middle, err))
        return false;
    s->threads = 1;
    return cores <= 1 || run_trials(s, cores, middle, to, err);
}

/* --- links --- */

enum { LINK_SMALL = 64, LINK_LARGE = 4 << 20, LINK_ROUNDS = 30 };

/* Collective. The least seconds in which ranks exchange so many bytes in pairs. */
static bool time_exchange(struct wf_comm *comm, size_t bytes, char *memory, double *least,
                          struct wf_err *err)
{
    const int peer = wf_comm_rank(comm) ^ 1;
    const struct wf_message messages[] = {
        { .peer = peer, .tag = 1, .bytes = bytes, .send = memory },
        { .peer = peer, .tag = 1, .bytes = bytes, .recv = memory + LINK_LARGE },
    };
    const int count = peer < wf_comm_size(comm) ? 2 : 0;
    *least = INFINITY;
    for (int i = 0; i < LINK_ROUNDS; i++) {
        struct wf_request *request;
        if (!wf_comm_barrier(comm, err))
            return false;
        const double start = wf_now();
        if (!wf_comm_exchange_begin(comm, count, messages, &request, err) ||
            !wf_comm_exchange_end(comm, request, err))
            return false;
        *least = fmin(*least, wf_now() - start);
    }
    return true;
}

bool wf_calibrate_link(struct wf_comm *comm, struct wf_figures_link *link, struct wf_err *err)
{
    char *const memory = wf_take_zeroed(2, LINK_LARGE);
    double small, large;
    const bool ok = time_exchange(comm, LINK_SMALL, memory, &small, err) &&
                    time_exchange(comm, LINK_LARGE, memory, &large, err);
    free(memory);
    if (ok)
        *link = (struct wf_figures_link){ LINK_LARGE / fmax(large - small, 1e-7), small };
    return ok;
}

struct link_ask {
    struct wf_figures_link link;
};

static bool link_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_figures_link link;
    if (!wf_calibrate_link(comm, &link, err))
        return false;
    if (wf_comm_rank(comm) == 0)
        ((struct link_ask *)arg)->link = link;
    return true;
}

struct wf_figures *wf_calibrate(const struct wf_calibrate *c, bool *is_whole, struct wf_err *err)
{
    const struct wf_device *const device = wf_settings_device(c->settings, err);
    if (!device)
        return NULL;
    struct session *const s = wf_take_zeroed(1, sizeof *s);
    struct wf_arena arena = { 0 };
    const double peak[3] = { device->cost.flops_per_second, device->cost.bytes_per_second, 1e-6 };
    const bool host = wf_device_is_host(device);
    const int cores = host ? wf_cores() : 1;
    s->ask = c;
    s->start = s->kept = wf_now();
    s->figures = wf_figures_new(device->name, wf_machine_about(&arena, device, cores), peak);
    struct link_ask link = { 0 };
    bool ok = true;
    if (cores > 1) {
        ok = wf_comm_threads_run(2, link_rank, &link, err);
        wf_figures_add_link(s->figures, "threads", &link.link);
    }
    const int rounds = host ? ROUNDS : 1;
    for (int i = 0; ok && i < rounds; i++)
        ok = run_round(s, host ? cores : 0, (double)i / rounds, (i + 1.0) / rounds, err);
    if (!host)
        keep_rest(s);
    struct wf_figures *const figures = s->figures;
    *is_whole = ok && !s->left_out;
    if (ok && wf_figures_count(figures) == 0)
        ok = wf_err_set(err, WF_ERR_USAGE, "no kernels of --precision %s are measured on device %s",
                        wf_precision_names[c->settings->train.precision], device->name);
    free(s);
    wf_arena_release(&arena);
    if (ok) {
        wf_figures_seal(figures);
        return figures;
    }
    wf_figures_free(figures);
    return NULL;
}
