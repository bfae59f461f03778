/*
 * Rank 0 runs the step on a mesh of one and sends its numbers to all; then all run it on the mesh, and
 * each holds its own part of the prediction and its own copy of everything else against them. So a rank
 * whose weights have drifted from the others is seen too.
 */
#include "train/verify.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/cores.h"
#include "base/random.h"
#include "ops/op.h"
#include "tensor/border.h"
#include "train/gather.h"
#include "train/reduction.h"

enum {
    ROUNDINGS =
        3,     /* steps with other last bits; the middle one counts, for one may turn a decision */
    SLACK = 8, /* a difference may be so many times what rounding does: a tensor may be short */
    MOVES = 3, /* images that are tried where decisions turn */
};

/* How far image and weights are moved so that decisions become clear: far past rounding. */
static const double move_by = 1e-3;

/* --- what is compared --- */

static void list_tensors(struct wf_verify *v)
{
    const struct wf_graph *const g = v->job->net.graph;
    const int micro = wf_job_micro_batches(v->job);
    v->tensors =
        wf_arena_array(&v->job->arena, 2 * ((size_t)micro + g->n_values), struct wf_verify_tensor);
    for (int m = 0; m < micro; m++) {
        v->tensors[v->count++] = (struct wf_verify_tensor){
            .kind = WF_VERIFY_LOSS, .name = "loss", .micro = m, .value = v->job->net.loss
        };
        v->tensors[v->count++] = (struct wf_verify_tensor){
            .kind = WF_VERIFY_PRED, .name = "pred", .micro = m, .value = v->job->net.logits
        };
    }
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const p = g->values[i];
        if (p->grad)
            v->tensors[v->count++] = (struct wf_verify_tensor){ .kind = WF_VERIFY_GRAD,
                                                                .name = p->name,
                                                                .value = p->grad };
        if (p->grad || p->kind == WF_STATE) /* running statistics are what a step leaves, too */
            v->tensors[v->count++] =
                (struct wf_verify_tensor){ .kind = WF_VERIFY_PARAM, .name = p->name, .value = p };
    }
}

static size_t elements(const struct wf_verify_tensor *t)
{
    return (size_t)wf_shape_count(t->value->shape);
}

/* --- image and weights, changed a little: by their last bits, or so that decisions are clear --- */

static bool nudge_value(const struct wf_stepper *stepper, const struct wf_value *v, int micro,
                        struct wf_nudge nudge, struct wf_err *err)
{
    struct wf_host host = { 0 };
    wf_run_select(stepper->run, micro);
    const bool ok = wf_run_get(stepper->run, v, &host, err);
    const struct wf_random r = wf_random(nudge.seed, wf_random_stream(v->name));
    if (ok && host.view.data) {
        for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c);) {
            int64_t at = wf_outside_index(&v->shape, c.at);
            if (v->set) {
                const int64_t point = wf_job_point(stepper->job, v, micro, &host.view, c.at[WF_N]);
                at = point * v->shape.at[WF_C] + c.at[WF_C];
                if (point < 0)
                    continue;
            }
            const uint64_t index = (uint64_t)(micro * wf_shape_count(v->shape) + at);
            const double by = wf_random_bits(r, index) & 1 ? nudge.by : -nudge.by;
            wf_view_set(&host.view, c.at, wf_view_at(&host.view, c.at) * (1 + by));
        }
        wf_host_put(&host);
    }
    wf_host_release(&host);
    return ok;
}

bool wf_verify_nudge(const struct wf_stepper *stepper, struct wf_nudge nudge, struct wf_err *err)
{
    const struct wf_graph *const g = stepper->job->net.graph;
    bool ok = true;
    for (size_t i = 0; ok && nudge.by != 0 && i < g->n_values; i++) {
        const bool is_image = wf_network_is_image(&stepper->job->net, g->values[i]);
        const int times = is_image                         ? wf_job_micro_batches(stepper->job)
                          : g->values[i]->kind == WF_PARAM ? 1
                                                           : 0;
        for (int m = 0; ok && m < times; m++)
            ok = nudge_value(stepper, g->values[i], m, nudge, err);
    }
    wf_run_select(stepper->run, 0);
    return ok;
}

/* --- the whole step --- */

/* The others wait, so the whole step may have their cores. */
static int whole_threads(const struct wf_job *job)
{
    return wf_settings_threads(&job->settings, wf_cores(), 1);
}

bool wf_verify_whole(const struct wf_verify *v, struct wf_comm *self, struct wf_nudge bits,
                     struct wf_stepper *stepper, struct wf_err *err)
{
    const struct wf_job *const job = v->job;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_plan_options options = wf_job_plan_options(job);
    options.limit = 0; /* what a job is held against has to be right, not small */
    options.threads = bits.threads > 0 ? bits.threads : whole_threads(job);
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(options.threads);
#endif
    const bool ok =
        wf_stepper_init(stepper, job, self,
                        &(struct wf_stepper_options){ .mesh = &one, .plan = &options }, err) &&
        wf_verify_nudge(stepper, v->moved, err) && wf_verify_nudge(stepper, bits, err) &&
        wf_stepper_step(stepper, err);
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(job->threads);
#endif
    return ok;
}

/* Where `whole` has an element; of rows it has points in their own order. -1: there is none. */
static int64_t place_of(const struct wf_job *job, const struct wf_verify_tensor *t,
                        const struct wf_view *view, const int64_t at[WF_AXES])
{
    if (!t->value->set)
        return wf_outside_index(&t->value->shape, at);
    const int64_t point = wf_job_point(job, t->value, t->micro, view, at[WF_N]);
    return point < 0 ? -1 : point * t->value->shape.at[WF_C] + at[WF_C];
}

static void export(const struct wf_job *job, const struct wf_verify_tensor *t,
                   const struct wf_view *view, float *whole)
{
    for (struct wf_cursor c = wf_cursor(view->box); whole && wf_cursor_next(&c);) {
        const int64_t place = place_of(job, t, view, c.at);
        if (place >= 0)
            whole[place] = (float)wf_view_at(view, c.at);
    }
}

/* Fills `whole` with each tensor in outside order, one after another. */
static bool run_whole(const struct wf_verify *v, float *whole, struct wf_err *err)
{
    struct wf_comm *const self = wf_comm_self();
    struct wf_stepper stepper = { 0 };
    bool ok = wf_verify_whole(v, self, (struct wf_nudge){ 0 }, &stepper, err);
    struct wf_host host = { 0 };
    for (int i = 0; ok && i < v->count; i++) {
        wf_run_select(stepper.run, v->tensors[i].micro);
        ok = wf_run_get(stepper.run, v->tensors[i].value, &host, err);
        if (ok)
            export(v->job, &v->tensors[i], &host.view, whole);
        whole += elements(&v->tensors[i]);
    }
    wf_host_release(&host);
    wf_stepper_release(&stepper);
    wf_comm_free(self);
    return ok;
}

/* --- comparing --- */

struct gap {
    double apart, whole; /* sums of squares */
};

static struct gap compare(const struct wf_job *job, const struct wf_verify_tensor *t,
                          const struct wf_view view, const float *whole)
{
    struct gap gap = { 0, 0 };
    if (!view.data)
        return gap;
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        const int64_t place = place_of(job, t, &view, c.at);
        if (place < 0)
            continue;
        const double b = (double)whole[place];
        const double d = (double)(float)wf_view_at(&view, c.at) - b;
        gap.apart += d * d;
        gap.whole += b * b;
    }
    return gap;
}

static double sum_squares(const float *at, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)at[i] * (double)at[i];
    return sum;
}

static double relative(double apart, double norm)
{
    return apart == 0 ? 0 : apart / norm; /* infinite, or NaN, where it must not pass */
}

/* NaN is worse than anything. */
static bool is_worse(double a, double b)
{
    return !isnan(b) && (isnan(a) || a > b);
}

/* Collective. apart[tensor * ranks + rank] becomes every rank's distance, on every rank. */
static bool measure(const struct wf_verify *v, const struct wf_stepper *stepper, const float *whole,
                    double *apart, struct wf_err *err)
{
    const int ranks = wf_comm_size(stepper->comm), rank = wf_comm_rank(stepper->comm);
    struct wf_host host = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < v->count; i++) {
        const struct wf_verify_tensor *const t = &v->tensors[i];
        wf_run_select(stepper->run, t->micro);
        ok = t->kind == WF_VERIFY_PRED ? wf_run_get_owned(stepper->run, t->value, &host, err)
                                       : wf_run_get(stepper->run, t->value, &host, err);
        if (ok)
            apart[i * ranks + rank] = compare(v->job, t, host.view, whole).apart;
        whole += elements(t);
    }
    wf_host_release(&host);
    if (!wf_comm_agree(stepper->comm, ok, err))
        return false;
    return wf_comm_sum(stepper->comm, apart, (size_t)v->count * (size_t)ranks, WF_F64, err);
}

/* How often an element of the prediction is held: axes that do not cut it hold it again. */
static double copies(const struct wf_verify *v, const struct wf_stepper *stepper)
{
    const struct wf_layout *const layout = &stepper->global->geometry.layout;
    double held = 0;
    for (int r = 0; r < v->job->ranks; r++)
        held += (double)wf_region_count(wf_layout_owned(layout, v->job->net.logits, r));
    return held / (double)wf_shape_count(v->job->net.logits->shape);
}

/* What a difference is relative to: the tensor's norm; for the gradient of a bias that of its layer's
 * weight and bias together. In front of a batch norm a bias has gradient zero, and what rounding leaves
 * of it has no digits to compare. */
static double norm_against(const struct wf_verify *v, const struct wf_verify_tensor *t)
{
    const char *const dot = strrchr(t->name, '.');
    if (t->kind != WF_VERIFY_GRAD || !dot || strcmp(dot, ".bias") != 0)
        return t->norm;
    const size_t length = (size_t)(dot - t->name);
    for (int i = 0; i < v->count; i++) {
        const struct wf_verify_tensor *const w = &v->tensors[i];
        if (w->kind == WF_VERIFY_GRAD && strncmp(w->name, t->name, length) == 0 &&
            strcmp(w->name + length, ".weight") == 0)
            return hypot(t->norm, w->norm);
    }
    return t->norm;
}

/* The distance of a tensor over all ranks; `held`: how often the prediction is held. */
static double distance(const struct wf_verify *v, const struct wf_verify_tensor *t,
                       const double *apart, double held)
{
    double most = 0, all = 0;
    for (int r = 0; r < v->job->ranks; r++) {
        all += apart[r];
        most = is_worse(apart[r], most) ? apart[r] : most;
    }
    return sqrt(t->kind == WF_VERIFY_PRED ? all / held : most);
}

/* By rank 0: what passes, what is excused, what is the worst of each kind. */
static void judge(struct wf_verify *v)
{
    double most = 0;
    v->pass = true;
    v->excused = 0;
    v->excused_worst = -1;
    for (int k = 0; k < WF_VERIFY_KINDS; k++) {
        v->worst_at[k] = -1;
        v->worst[k] = 0;
    }
    for (int i = 0; i < v->count; i++) {
        struct wf_verify_tensor *const t = &v->tensors[i];
        t->rel = relative(t->apart, norm_against(v, t));
        t->excused =
            !(t->rel <= v->tolerance) && isfinite(t->rounding) && t->apart <= SLACK * t->rounding;
        if (t->excused) {
            v->excused++;
            if (v->excused_worst < 0 || t->apart / t->rounding > most) {
                most = t->apart / t->rounding;
                v->excused_worst = i;
            }
            continue;
        }
        v->pass = v->pass && t->rel <= v->tolerance;
        if (v->worst_at[t->kind] < 0 || is_worse(t->rel, v->worst[t->kind])) {
            v->worst[t->kind] = t->rel;
            v->worst_at[t->kind] = i;
        }
    }
}

/* --- what rounding does --- */

/* The last bit of f32. What 16 bits round away is seen too: among many elements some lie at an edge. */
static double last_bits(enum wf_dtype compute)
{
    return compute == WF_F32 ? FLT_EPSILON : 8 * FLT_EPSILON;
}

static double middle(const double x[ROUNDINGS])
{
    static_assert(ROUNDINGS == 3, "the middle of three");
    return fmax(fmin(x[0], x[1]), fmin(fmax(x[0], x[1]), x[2]));
}

/* By rank 0 alone. */
static bool measure_rounding(struct wf_verify *v, const float *whole, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    double(*const moved)[ROUNDINGS] = wf_arena_take_array(&arena, (size_t)v->count, sizeof *moved);
    struct wf_comm *const self = wf_comm_self();
    struct wf_host host = { 0 };
    bool ok = true;
    for (int k = 0; ok && k < ROUNDINGS; k++) {
        /* Long sums are taken apart by the threads: other numbers of them round otherwise. */
        const struct wf_nudge bits = { .seed = (uint64_t)k + 1,
                                       .by = last_bits(v->job->net.graph->options.compute),
                                       .threads =
                                           1 + (whole_threads(v->job) + k) % (ROUNDINGS + 1) };
        struct wf_stepper stepper = { 0 };
        ok = wf_verify_whole(v, self, bits, &stepper, err);
        const float *at = whole;
        for (int i = 0; ok && i < v->count; i++) {
            wf_run_select(stepper.run, v->tensors[i].micro);
            ok = wf_run_get(stepper.run, v->tensors[i].value, &host, err);
            if (ok)
                moved[i][k] = sqrt(compare(v->job, &v->tensors[i], host.view, at).apart);
            at += elements(&v->tensors[i]);
        }
        wf_stepper_release(&stepper);
    }
    for (int i = 0; ok && i < v->count; i++)
        v->tensors[i].rounding = middle(moved[i]);
    wf_host_release(&host);
    wf_comm_free(self);
    wf_arena_release(&arena);
    return ok;
}

/* Collective. The step on the mesh, against the numbers of the whole one. */
static bool run_cut(struct wf_verify *v, struct wf_comm *comm, const float *whole, double *apart,
                    struct wf_err *err)
{
    struct wf_stepper stepper = { 0 };
    const bool ok = wf_stepper_init(&stepper, v->job, comm, NULL, err) &&
                    wf_comm_agree(comm, wf_verify_nudge(&stepper, v->moved, err), err) &&
                    wf_stepper_step(&stepper, err) && measure(v, &stepper, whole, apart, err);
    if (ok && wf_comm_rank(comm) == 0) {
        const double held = copies(v, &stepper);
        v->overflows = false;
        for (int i = 0; i < v->count; i++) {
            struct wf_verify_tensor *const t = &v->tensors[i];
            t->norm = sqrt(sum_squares(whole, elements(t)));
            v->overflows = v->overflows || !isfinite(t->norm);
            t->apart = distance(v, t, apart + (size_t)i * (size_t)v->job->ranks, held);
            t->rounding = 0;
            whole += elements(t);
        }
        judge(v);
    }
    wf_stepper_release(&stepper);
    return ok;
}

/* Collective. By rank 0: what does not pass is held against rounding. */
static bool judge_anew(struct wf_verify *v, struct wf_comm *comm, const float *whole,
                       struct wf_err *err)
{
    bool ok = true;
    if (wf_comm_rank(comm) == 0 && !v->pass && !v->overflows && v->tolerance > 0) {
        ok = measure_rounding(v, whole, err) || wf_err_wrap(err, "measuring what rounding does");
        judge(v);
    }
    return wf_comm_agree(comm, ok, err);
}

/* Collective. What rank 0 found is known to all; ranks that are threads share it. */
static bool share_verdict(struct wf_verify *v, struct wf_comm *comm, struct wf_err *err)
{
    bool found[] = { v->pass, v->overflows };
    if (!wf_comm_broadcast(comm, 0, found, sizeof found, err))
        return false;
    if (v->job->launch.world) {
        v->pass = found[0];
        v->overflows = found[1];
    }
    return true;
}

static bool verify_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_verify *const v = arg;
    const bool first = wf_comm_rank(comm) == 0;
    size_t total = 0;
    for (int i = 0; i < v->count; i++)
        total += elements(&v->tensors[i]);
    WF_BUG_ON(total == 0, "nothing to compare");
    float *const whole = calloc(total, sizeof *whole);
    struct wf_arena arena = { 0 };
    double *const apart = wf_arena_array(&arena, v->count * v->job->ranks, double);
    bool ok = whole || wf_err_set(err, WF_ERR_FIT, "no memory to keep the whole step's numbers");
    if (ok && first)
        ok = run_whole(v, whole, err) || wf_err_wrap(err, "running the step whole");
    ok = wf_comm_agree(comm, ok, err) && whole &&
         wf_comm_broadcast(comm, 0, whole, total * sizeof *whole, err) &&
         run_cut(v, comm, whole, apart, err) && judge_anew(v, comm, whole, err) &&
         share_verdict(v, comm, err);
    wf_arena_release(&arena);
    free(whole);
    return ok;
}

/* --- the whole of it --- */

/* Numbers that depend on the mesh by intent are not for comparing. */
static bool is_comparable(const struct wf_job *job, struct wf_err *err)
{
    const struct wf_graph *const g = job->net.graph;
    if (job->settings.train.reduction != WF_REDUCTION_GLOBAL)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.reduction=rank_mean averages over ranks, so its numbers depend on "
                          "the mesh and there is nothing to verify: use global");
    for (size_t i = 0; i < g->n_nodes; i++)
        if (wf_op_is_local(g->nodes[i]))
            return wf_err_set(err, WF_ERR_USAGE,
                              "layer '%s' takes its statistics over each rank's own part, so its "
                              "numbers depend on the mesh and there is nothing to verify: use "
                              "model.statistics=global or tile",
                              g->nodes[i]->name);
    return true;
}

/* Collective under a launcher. Training in f16 begins with a large scale of the loss and lowers it while
 * gradients overflow: what is compared is a step that it would take. */
static bool compare_in_range(struct wf_verify *v, struct wf_err *err)
{
    double *const scale = &v->job->settings.train.loss_scale;
    bool ok = wf_job_run(v->job, verify_rank, v, err);
    while (ok && v->overflows && v->job->net.graph->options.compute == WF_F16 && *scale > 1) {
        *scale = fmax(*scale / 16, 1);
        ok = wf_job_run(v->job, verify_rank, v, err);
    }
    return ok;
}

/* Collective under a launcher. Compares, and again on moved images while decisions turn. */
static bool compare_until_clear(struct wf_verify *v, struct wf_err *err)
{
    if (!compare_in_range(v, err))
        return false;
    for (int move = 1; !v->pass && v->tolerance > 0 && move <= MOVES; move++) {
        if (!wf_verify_find_turned(v, err))
            return false;
        if (v->turned.count == 0)
            return true;
        v->moved = (struct wf_nudge){ .seed = (uint64_t)move, .by = move_by };
        if (!wf_job_run(v->job, verify_rank, v, err))
            return false;
    }
    return true;
}

void wf_verify_settle(struct wf_settings *s)
{
    const struct wf_optim_options given = s->train.optim;
    s->train.optim = wf_optim_defaults(WF_SGD);
    s->train.optim.lr = given.lr;
    s->train.optim.matrices_only = given.matrices_only;
    s->train.optim.accumulates = given.accumulates;
    s->train.optim.weight_decay = 0;
    s->train.clip = 0;
    s->repeats = WF_REPEATS_ON_ANY_MESH;
}

const char *const wf_verify_kind_names[WF_VERIFY_KINDS] = { "loss", "pred", "grad", "param" };

bool wf_verify_verdict(const struct wf_verify *v, struct wf_err *err)
{
    int worst = 0;
    for (int k = 0; k < WF_VERIFY_KINDS; k++)
        worst = is_worse(v->worst[k], v->worst[worst]) ? k : worst;
    if (v->pass)
        return true;
    const struct wf_verify_tensor *const t = &v->tensors[v->worst_at[worst]];
    return wf_err_set(
        err, WF_ERR_FAILED, "%s of '%s' differs by %.2e, tolerance %g, rounding alone makes %.2e",
        wf_verify_kind_names[worst], t->name, t->rel, v->tolerance, wf_verify_rounding(v, t));
}

double wf_verify_rounding(const struct wf_verify *v, const struct wf_verify_tensor *t)
{
    return relative(t->rounding, norm_against(v, t));
}

bool wf_verify_run(struct wf_verify *v, struct wf_err *err)
{
    if (!is_comparable(v->job, err))
        return false;
    list_tensors(v);
    return compare_until_clear(v, err);
}
