/* A graph of the program's own on the session's ranks, which stay until it is freed. */
#include <stdlib.h>

#include "api/points.h"
#include "api/session.h"
#include "base/memory.h"
#include "train/device.h"
#include "train/reduction.h"

struct wf_exec {
    struct wf_session *s;
    struct wf_stay stay;
    struct wf_job job; /* its mesh, plan and ranks; of the program's graph */
    struct wf_exec_points *points;
};

/* --- on the ranks --- */

static bool exec_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_exec *const x = arg;
    const struct wf_job *const job = &x->job;
    struct wf_context *context = NULL;
    struct wf_plan *plan = NULL;
    struct wf_run *run = NULL;
    if (wf_settings_open(&job->settings, job->device, comm, &context, err))
        plan = wf_rank_plan(job->global, wf_comm_rank(comm), comm, context, err);
    if (plan)
        run = wf_run_new(plan, comm, job->settings.train.seed, err);
    if (run)
        wf_run_init_weights(run, job->settings.train.seed);
    int64_t until; /* they never go on */
    while (run && wf_engine_park(x->s->engine, run, comm, &until))
        ;
    const bool ok = run != NULL;
    wf_run_free(run);
    wf_plan_free(plan);
    wf_device_close(context);
    return ok;
}

/* The one whose samples are the batch; numbers are replicated, and have none. */
static struct wf_value *first_input(const struct wf_graph *g)
{
    struct wf_value *number = NULL;
    for (size_t i = 0; i < g->n_values; i++) {
        struct wf_value *const v = g->values[i];
        if (v->kind == WF_INPUT && !v->replicated)
            return v;
        number = v->kind == WF_INPUT ? v : number;
    }
    return number;
}

static bool plan_exec(struct wf_exec *x, struct wf_err *err)
{
    struct wf_job *const job = &x->job;
    if (!wf_graph_ok(job->net.graph, err) ||
        !wf_session_settings(x->s, &x->s->own, x->s->options, &job->settings, err))
        return false;
    job->launch = x->s->launch;
    job->net.image = first_input(job->net.graph);
    job->device = wf_settings_device(&job->settings, err);
    if (!job->net.image)
        return wf_err_set(err, WF_ERR_USAGE, "the graph has no input: add one with wf_input()");
    if (!job->device || !wf_job_find_mesh(job, err) ||
        !wf_exec_points_check(job->net.graph, &job->mesh, err))
        return false;
    x->points = wf_exec_points_new(job->net.graph, &job->mesh);
    struct wf_plan_options options = wf_job_plan_options(job);
    options.pipe.micro_batches = 1; /* a step of a graph is one pass */
    options.pipe.schedule = WF_PIPE_1F1B;
    job->global = wf_global_plan_new(job->net.graph, &job->mesh, &options, err);
    return job->global && wf_job_check_limit(job, job->global, err);
}

static bool run_exec(void *arg, struct wf_err *err)
{
    struct wf_exec *const x = arg;
    const bool ok = plan_exec(x, err);
    return wf_launch_agree(&x->s->launch, ok, err) && wf_job_run(&x->job, exec_rank, x, err);
}

/* --- for the program --- */

struct wf_exec *wf_exec_new(struct wf_session *s, struct wf_graph *g, struct wf_err *err)
{
    struct wf_exec *const x = wf_take_zeroed(1, sizeof *x);
    x->s = s;
    x->job.net.graph = g;
    if (wf_stay_begin(&x->stay, s->engine, run_exec, x, err))
        return x;
    wf_exec_free(x);
    return NULL;
}

void wf_exec_free(struct wf_exec *x)
{
    if (!x)
        return;
    wf_stay_end(&x->stay);
    wf_exec_points_free(x->points);
    wf_global_plan_free(x->job.global);
    wf_arena_release(&x->job.arena);
    free(x);
}

/* What is asked of the ranks. */
struct transfer {
    const struct wf_session *s;
    struct wf_value *value, *batch;
    const float *from;
    float *to;
    bool to_array; /* copy_rank() */
    const struct wf_exec_points *points;
};

static bool put_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct transfer *const t = arg;
    (void)comm, (void)err;
    if (t->value->set)
        wf_exec_points_put(t->points, rank, t->value, t->from);
    else
        wf_tensor_put(rank, t->value, t->from);
    return true;
}

static bool copy_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct transfer *const t = arg;
    const bool ok = wf_tensor_copy(rank, t->value, t->to, t->to_array, err);
    return wf_comm_agree(comm, ok, err);
}

static bool place_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct transfer *const t = arg;
    (void)comm, (void)err;
    wf_exec_points_place(t->points, rank, t->value);
    return true;
}

static bool share_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct transfer *const t = arg;
    const struct wf_network net = { .target = t->batch };
    struct wf_share share;
    if (!wf_reduction_shares(
            &net, rank, &(struct wf_shares_options){ .comm = comm, .count = 1, .rank_mean = true },
            &share, err))
        return false;
    const float number = (float)share.start;
    wf_run_put(rank, t->value, &number);
    return true;
}

static bool step_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    (void)comm, (void)arg;
    return wf_run_step(rank, err) && wf_run_wait(rank, err);
}

static bool get_rank(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct transfer *const t = arg;
    return wf_tensor_get(t->s, rank, comm, t->value, t->to, err);
}

/* A step computes gradients and outputs: they can be read, not set. */
static struct wf_value *find(const struct wf_exec *x, const char *name, bool to_read)
{
    const struct wf_graph *const g = x->job.net.graph;
    struct wf_value *const v = wf_graph_find(g, name);
    bool kept = v && (v->grad_of ? to_read : v->kind != WF_TEMP);
    for (size_t i = 0; v && to_read && !kept && i < g->n_outputs; i++)
        kept = g->outputs[i] == v;
    return kept ? v : NULL;
}

bool wf_exec_put(struct wf_exec *x, const char *name, const float *array, size_t count,
                 struct wf_err *err)
{
    struct transfer t = { .value = find(x, name, false), .from = array, .points = x->points };
    const bool ok = t.value && t.value->set ? wf_exec_points_size(x->points, t.value, count, err)
                                            : wf_tensor_check(t.value, name, count, err);
    return ok && wf_stay_order(&x->stay, put_rank, &t, err);
}

/* Arrays of points are in the order of the program, which ranks do not have. */
static bool copy_device(struct wf_exec *x, struct transfer *t, const char *name, size_t count,
                        struct wf_err *err)
{
    if (t->value && t->value->set)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is of points: give it in host memory", name);
    return wf_tensor_check(t->value, name, count, err) &&
           wf_stay_order(&x->stay, copy_rank, t, err);
}

bool wf_exec_put_device(struct wf_exec *x, const char *name, float *array, size_t count,
                        struct wf_err *err)
{
    return copy_device(x, &(struct transfer){ .value = find(x, name, false), .to = array }, name,
                       count, err);
}

bool wf_exec_get_device(struct wf_exec *x, const char *name, float *array, size_t count,
                        struct wf_err *err)
{
    struct transfer t = { .value = find(x, name, true), .to = array, .to_array = true };
    if (x->s->launch.world)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s': under a launcher a process has a part only: use wf_exec_get()",
                          name);
    return copy_device(x, &t, name, count, err);
}

bool wf_exec_put_points(struct wf_exec *x, const char *name, const int32_t *coords, size_t points,
                        struct wf_err *err)
{
    struct transfer t = { .value = find(x, name, false), .points = x->points };
    if (!t.value || t.value->kind != WF_INPUT || !t.value->set || t.value->dtype != WF_I32)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is no input of coordinates", name);
    return wf_exec_points_set(x->points, t.value, coords, (int64_t)points, err) &&
           wf_stay_order(&x->stay, place_rank, &t, err);
}

bool wf_exec_put_share(struct wf_exec *x, const char *name, const char *batch, struct wf_err *err)
{
    struct transfer t = { .value = find(x, name, false), .batch = find(x, batch, false) };
    if (!wf_tensor_check(t.value, name, 1, err))
        return false;
    if (!t.batch)
        return wf_err_set(err, WF_ERR_USAGE, "there is no input '%s'", batch);
    return wf_stay_order(&x->stay, share_rank, &t, err);
}

bool wf_exec_step(struct wf_exec *x, struct wf_err *err)
{
    return wf_stay_order(&x->stay, step_rank, NULL, err);
}

bool wf_exec_get(struct wf_exec *x, const char *name, float *array, size_t count,
                 struct wf_err *err)
{
    struct transfer t = { .s = x->s, .value = find(x, name, true), .to = array };
    if (t.value && t.value->set) {
        if (!wf_exec_points_size(x->points, t.value, count, err))
            return false;
        t.to = wf_exec_points_room(t.value);
        const bool ok = wf_stay_order(&x->stay, get_rank, &t, err);
        if (ok)
            wf_exec_points_get(x->points, t.value, t.to, array);
        free(t.to);
        return ok;
    }
    return wf_tensor_check(t.value, name, count, err) && wf_stay_order(&x->stay, get_rank, &t, err);
}
