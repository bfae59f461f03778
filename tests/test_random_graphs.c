/*
 * Cut equals whole for graphs that nobody thought of: support_random.h draws them, this runs each on
 * three random meshes of 1 to 9 ranks, with random options of the planner.
 *
 * Reference kernels: against the plain interpreter of support.c, the forward pass bit for bit and
 * gradients to 1e-5. CPU kernels: one rank against the interpreter, cut against one rank, all to 1e-5. All plans of a
 * mesh are checked together before anything runs.
 *
 * WF_RANDOM_GRAPHS says how many (500), WF_RANDOM_SEED the first seed (1): a failure prints what to
 * set to see it again, and the graph. Half of the runs split what can be split into inner part and
 * halo; with WF_OVERLAP_ALWAYS=1 all do. A quarter has a limit of memory that nothing can fit into, so
 * all is recomputed that helps.
 */
/* ranks: 1 2 3 4 5 6 7 8 9 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "support_random.h"

enum { MESHES = 3, MOST_RANKS = 9, OTHER_NUMBERS = 3 };

static const double tolerance = 1e-5;
/* A gradient that vanishes by cancelling (a bias in front of a norm) is what rounding leaves: held
 * against this part of the largest on the way. */
static const double noise = 1e-6;

struct job {
    const struct support_random *r;
    const struct support_values *v; /* what goes in and what must come out */
    bool is_whole; /* of CPU kernels: held against the interpreter, and then what must come out */
    struct wf_mesh mesh;
    struct wf_plan_options options;
    uint64_t seed;
    double gradients; /* the largest norm of an f32 tensor of the backward pass */
};

static bool is_exact(const struct job *job)
{
    return job->options.device == &wf_device_reference;
}

/* --- one rank --- */

static void fill_inputs(struct wf_run *run, const struct job *job)
{
    for (size_t i = 0; i < job->r->g->n_values; i++) {
        const struct wf_value *v = job->r->g->values[i];
        const struct wf_view to = v->kind == WF_TEMP ? (struct wf_view){ 0 } : wf_run_view(run, v);
        if (!to.data)
            continue;
        const struct wf_view from = wf_view_part(job->v->views[i], to.box);
        wf_view_copy(&to, &from);
    }
}

static double norm_of(const struct wf_view *v)
{
    double sum = 0;
    for (struct wf_cursor c = wf_cursor(v->box); wf_cursor_next(&c);)
        sum += wf_view_at(v, c.at) * wf_view_at(v, c.at);
    return sqrt(sum);
}

/* `got` is a part of `want`. */
static bool compare(const struct job *job, const struct wf_value *value, const struct wf_view *got,
                    const struct wf_view *want, struct wf_err *err)
{
    const bool backward = value->producer && value->producer->backward;
    double off = 0;
    for (struct wf_cursor c = wf_cursor(got->box); wf_cursor_next(&c);) {
        const double a = wf_view_at(got, c.at), b = wf_view_at(want, c.at);
        /* Sums that ranks add up are f64: equal as f32. */
        if (is_exact(job) && !backward && !((float)a == (float)b))
            return wf_err_set(err, WF_ERR_FAILED,
                              "'%s' is %.9g, whole %.9g, at [%" PRId64 ",%" PRId64 ",%" PRId64
                              ",%" PRId64 ",%" PRId64 "]",
                              value->name, a, b, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
        off += (a - b) * (a - b);
    }
    const double norm = norm_of(want);
    if (!(sqrt(off) <= tolerance * norm + (backward ? noise * job->gradients : 1e-7)))
        return wf_err_set(err, WF_ERR_FAILED,
                          "'%s' is off by %.3g of %.3g (largest gradient: %.3g)", value->name,
                          sqrt(off), norm, job->gradients);
    return true;
}

/* A result is held against what must come out; one of the whole run then takes its place. */
static bool take(const struct job *job, const struct wf_value *whole, const struct wf_view *got,
                 struct wf_err *err)
{
    if (!got->data)
        return true;
    if (!compare(job, whole, got, &job->v->views[whole->id], err))
        return false;
    if (job->is_whole)
        wf_view_copy(&job->v->views[whole->id], got);
    return true;
}

static bool take_results(const struct wf_run *run, const struct job *job, struct wf_err *err)
{
    const struct wf_graph *g = job->r->g;
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct wf_view got = wf_run_owned(run, g->outputs[i]);
        if (!take(job, g->outputs[i], &got, err))
            return false;
    }
    for (size_t i = 0; i < g->n_updates; i++) {
        const struct wf_view got = wf_run_view(run, g->updates[i].state);
        if (!take(job, g->updates[i].next, &got, err))
            return false;
    }
    return true;
}

/* As small as it gets, and then it may run all the same. */
static struct wf_global_plan *make_global(const struct job *job, struct wf_err *err)
{
    struct wf_global_plan *const s = wf_global_plan_new(job->r->g, &job->mesh, &job->options, err);
    if (s)
        s->options.limit = 0;
    return s;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct job *job = arg;
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(1);
#endif
    struct wf_global_plan *global = make_global(job, err);
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    for (int step = 0; ok && step < 2; step++) { /* the second: old rubbish in the arena */
        fill_inputs(run, job);
        wf_run_set_step(run, 1); /* as the interpreter has it */
        ok = wf_run_step(run, err) && take_results(run, job, err);
    }
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

/* --- one graph --- */

/* All plans of the global plan match each other. False without an error: the mesh does not fit. */
static bool check_plans(const struct job *job, struct wf_err *err)
{
    struct wf_plan *plans[MOST_RANKS] = { 0 };
    struct wf_global_plan *global = make_global(job, err);
    if (!global) {
        if (err->code == WF_ERR_FIT)
            *err = (struct wf_err){ 0 };
        return false;
    }
    const int n = wf_mesh_size(&job->mesh);
    bool ok = true;
    for (int r = 0; ok && r < n; r++)
        ok = (plans[r] = wf_plan_new(global, r, err)) != NULL;
    ok = ok && wf_plan_check_all((const struct wf_plan *const *)plans, n, err);
    for (int r = 0; r < n; r++)
        wf_plan_free(plans[r]);
    wf_global_plan_free(global);
    return ok;
}

static double gradient_norm(const struct support_random *r, const struct support_values *v)
{
    double most = 0;
    for (size_t i = 0; i < r->g->n_values; i++) {
        const struct wf_value *value = r->g->values[i];
        if (value->producer && value->producer->backward && value->dtype == WF_F32)
            most = fmax(most, norm_of(&v->views[i]));
    }
    return most;
}

static bool is_finite(const struct support_random *r, const struct support_values *v)
{
    double sum = 0;
    for (size_t i = 0; i < r->g->n_outputs; i++)
        sum += norm_of(&v->views[r->g->outputs[i]->id]);
    return isfinite(sum);
}

struct tally {
    int graphs, runs, refused, other_numbers, not_finite;
};

/* The numbers of the whole graph: by the interpreter, then (CPU) by a run on one rank. */
static bool run_whole(struct job *job, struct wf_err *err)
{
    support_run_reference(job->r->g, job->v, true);
    job->gradients = gradient_norm(job->r, job->v);
    const struct wf_mesh mesh = job->mesh;
    const size_t limit = job->options.limit;
    bool ok = true;
    if (!is_exact(job)) {
        job->mesh = wf_mesh_one();
        job->options.limit = 0;
        job->is_whole = true;
        ok = !is_finite(job->r, job->v) || wf_comm_threads_run(1, body, job, err) ||
             wf_err_wrap(err, "on one rank, against the interpreter");
        job->is_whole = false;
        job->options.limit = limit;
        job->mesh = mesh;
    }
    return ok;
}

/* Runs the graph whole and cut with the numbers of a seed. */
static bool run_with(const struct support_random *r, struct job *job, uint64_t numbers,
                     struct tally *tally, bool *is_turned, struct wf_err *err)
{
    struct support_values v = support_values_new(r->g);
    job->v = &v;
    support_random_fill(r, &v, numbers);
    bool ok = run_whole(job, err);
    *is_turned = !ok;
    if (ok && !is_finite(r, &v)) {
        tally->not_finite++;
    } else if (ok) {
        ok = wf_comm_threads_run(wf_mesh_size(&job->mesh), body, job, err);
        tally->runs++;
    }
    support_values_free(&v);
    return ok;
}

/* CPU kernels differ from the interpreter by roundings, and where one turns a ReLU or the larger of two
 * in a pooling the gradients part: then other numbers must agree. Whole and cut run the same kernels, and
 * have to agree at once. */
static bool run_cut(const struct support_random *r, struct job *job, struct tally *tally,
                    struct wf_err *err)
{
    if (!check_plans(job, err)) {
        tally->refused += err->code == 0;
        return err->code == 0;
    }
    bool is_turned;
    bool ok = run_with(r, job, 7, tally, &is_turned, err);
    for (uint64_t n = 1; !ok && is_turned && !is_exact(job) && n <= OTHER_NUMBERS; n++) {
        print_message("seed %" PRIu64 ": %s: trying other numbers\n", job->seed, err->text);
        *err = (struct wf_err){ 0 };
        tally->other_numbers += n == 1;
        ok = run_with(r, job, 7 + n, tally, &is_turned, err);
    }
    return ok;
}

static void explain(const struct support_random *r, const struct job *job, const char *what)
{
    struct wf_arena arena = { 0 };
    print_message("WF_RANDOM_SEED=%" PRIu64 " WF_RANDOM_GRAPHS=1: %s\n", job->seed, what);
    print_message("mesh '%s' on %s%s%s%s%s, the graph:\n", wf_mesh_print(&arena, &job->mesh),
                  job->options.device->name, job->options.no_recompute ? ", no recomputation" : "",
                  job->options.limit ? ", a limit" : "",
                  job->options.strip_always ? ", strips" : "",
                  job->options.no_overlap     ? ", no overlap"
                  : job->options.split_always ? ", inner parts first"
                                              : "");
    (void)puts(wf_graph_print(&arena, r->g)); /* longer than a message may be */
    wf_arena_release(&arena);
}

/* What is printed reads back to what prints the same. */
static void check_text(const struct support_random *r, uint64_t seed)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    const char *text = wf_graph_print(&arena, r->g);
    struct wf_graph *recompute = wf_graph_parse(text, &err);
    if (!recompute || strcmp(text, wf_graph_print(&arena, recompute)) != 0)
        fail_msg("seed %" PRIu64 ": the text form does not read back: %s\n%s", seed, err.text,
                 text);
    wf_graph_free(recompute);
    wf_arena_release(&arena);
}

static uint64_t setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : usual;
}

/* Every operator of the table has its turn. */
static void drawn__graphs_have_every_operator(void **state)
{
    (void)state;
    bool seen[256] = { false };
    const uint64_t first = setting("WF_RANDOM_SEED", 1);
    for (uint64_t seed = first; seed < first + 500; seed++) {
        struct support_random r;
        support_random_build(&r, seed);
        for (size_t i = 0; i < r.g->n_nodes; i++)
            for (int o = 0; wf_op_table[o]; o++)
                seen[o] |= wf_op_table[o] == r.g->nodes[i]->op;
        wf_graph_free(r.g);
    }
    const char *const only = getenv("WF_RANDOM_OP");
    int missing = 0;
    for (int o = 0; wf_op_table[o]; o++) {
        const struct wf_op *const op = wf_op_table[o];
        if (op->cases ? !support_random_draws(op) /* tables of numbers, which layers make */
                      : op->is_local != NULL)     /* its numbers depend on the mesh */
            continue;
        if (op->flags & WF_OP_SETS) /* tests/test_sparse.c */
            continue;
        if (only && *only && strcmp(op->name, only) != 0) /* the others have no turn */
            continue;
        if (!seen[o])
            print_message("no graph has '%s'\n", op->name);
        missing += !seen[o];
    }
    assert_int_equal(missing, 0);
}

static void run_graph(uint64_t seed, const struct wf_device *device, struct tally *tally)
{
    const bool always = setting("WF_OVERLAP_ALWAYS", 0) != 0;
    const bool strips = setting("WF_STRIPS_ALWAYS", 0) != 0;
    struct support_random r;
    support_random_build(&r, seed);
    check_text(&r, seed);
    for (int i = 0; i < MESHES; i++) {
        struct wf_err err = { 0 };
        struct job job = { .r = &r, .seed = seed, .mesh = support_random_mesh(&r, seed, i) };
        const uint32_t bits =
            wf_random_bits(wf_random(seed, wf_random_stream("options")), (uint64_t)i);
        job.options = (struct wf_plan_options){ .device = device,
                                                .no_recompute = (bits & 7) == 0,
                                                .no_overlap = (bits >> 3 & 7) == 0,
                                                .split_always = always || (bits >> 6 & 1) == 0,
                                                .limit = (bits >> 8 & 3) == 0,
                                                .strip_always = strips || (bits >> 10 & 3) == 0,
                                                .bucket_bytes = (bits >> 7 & 1) ? 256 : 0,
                                                .check_passes = true };
        if (run_cut(&r, &job, tally, &err))
            continue;
        explain(&r, &job, err.text);
        fail();
    }
    tally->graphs++;
    wf_graph_free(r.g);
}

static void every_graph_on(const struct wf_device *device)
{
    const uint64_t first = setting("WF_RANDOM_SEED", 1), count = setting("WF_RANDOM_GRAPHS", 500);
    struct tally tally = { 0 };
    print_message("seeds %" PRIu64 " to %" PRIu64 " on %s\n", first, first + count - 1,
                  device->name);
    for (uint64_t i = 0; i < count; i++)
        run_graph(first + i, device, &tally);
    print_message("%d graphs, %d runs, %d meshes refused, %d not finite, %d with other numbers\n",
                  tally.graphs, tally.runs, tally.refused, tally.not_finite, tally.other_numbers);
    assert_true(count < 100 || tally.runs > tally.graphs);
    assert_true(count < 100 || 100 * tally.other_numbers < tally.runs);
}

static void random_graph__cut_equals_whole_bit_for_bit_with_reference_kernels(void **state)
{
    (void)state;
    every_graph_on(&wf_device_reference);
}

static void random_graph__cut_equals_whole_with_the_cpu_kernels(void **state)
{
    (void)state;
    every_graph_on(&wf_device_cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn__graphs_have_every_operator),
        cmocka_unit_test(random_graph__cut_equals_whole_bit_for_bit_with_reference_kernels),
        cmocka_unit_test(random_graph__cut_equals_whole_with_the_cpu_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
