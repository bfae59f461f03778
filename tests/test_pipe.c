/*
 * Stages and micro-batches: random graphs (support_random.h) with random stages, schedules and domains give
 * the numbers that one rank gives with the same micro-batches. On stages alone: bit for bit, with reference
 * kernels and those of the CPU; where other axes of the mesh cut too, to 1e-5.
 *
 * WF_PIPE_GRAPHS says how many (1000), WF_PIPE_SEED the first seed (1).
 */
/* ranks: 1 2 3 4 6 8 */
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

#include "base/memory.h"
#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "support_random.h"

enum { MOST_MICRO = 6, MOST_RANKS = 8, DOMAINS = 3 };

static const double tolerance = 1e-5, noise = 1e-6;

struct job {
    const struct support_random *r;
    struct support_values v[MOST_MICRO]; /* inputs of each micro-batch; weights are the first's */
    struct wf_mesh mesh;
    struct wf_plan_options options;
    uint64_t seed;
    bool is_whole; /* one rank: its numbers are kept */
    bool is_exact; /* stages alone */
    /* The numbers of one rank: of each output and micro-batch (of a gradient the total), and of states. */
    double **outputs, **states, gradients;
};

static int micro_of(const struct job *job)
{
    return job->options.pipe.micro_batches;
}

/* --- one rank --- */

static void fill(struct wf_run *run, const struct job *job)
{
    for (int m = 0; m < micro_of(job); m++) {
        wf_run_select(run, m);
        for (size_t i = 0; i < job->r->g->n_values; i++) {
            const struct wf_value *v = job->r->g->values[i];
            const struct wf_view to =
                v->kind == WF_TEMP ? (struct wf_view){ 0 } : wf_run_view(run, v);
            if (!to.data || (m > 0 && v->kind != WF_INPUT))
                continue;
            const struct wf_view from =
                wf_view_part(job->v[v->kind == WF_INPUT ? m : 0].views[i], to.box);
            wf_view_copy(&to, &from);
        }
    }
}

/* Where one rank's number of an element is. */
static double *number_at(double *all, const struct wf_value *v, const int64_t at[WF_AXES])
{
    int64_t index = 0;
    for (int a = 0; a < WF_AXES; a++)
        index = index * v->shape.at[a] + at[a];
    return &all[index];
}

static bool compare(const struct job *job, const struct wf_value *v, const struct wf_view *got,
                    double *whole, struct wf_err *err)
{
    double off = 0, norm = 0;
    if (!got->data)
        return true;
    for (struct wf_cursor c = wf_cursor(got->box); wf_cursor_next(&c);) {
        double *const want = number_at(whole, v, c.at);
        const double x = wf_view_at(got, c.at);
        if (job->is_whole)
            *want = x;
        if (job->is_exact && !(x == *want))
            return wf_err_set(err, WF_ERR_FAILED, "'%s' is %.9g, on one rank %.9g", v->name, x,
                              *want);
        off += (x - *want) * (x - *want);
    }
    for (int64_t i = 0; i < wf_shape_count(v->shape); i++)
        norm += whole[i] * whole[i];
    const bool backward = v->producer && v->producer->backward;
    return sqrt(off) <= tolerance * sqrt(norm) + (backward ? noise * job->gradients : 1e-7) ||
           wf_err_set(err, WF_ERR_FAILED, "'%s' is off by %.3g of %.3g", v->name, sqrt(off),
                      sqrt(norm));
}

static bool take(struct wf_run *run, struct job *job, struct wf_err *err)
{
    const struct wf_graph *const g = job->r->g;
    bool ok = true;
    for (size_t i = 0; ok && i < g->n_outputs; i++)
        for (int m = 0; ok && m < (g->outputs[i]->grad_of ? 1 : micro_of(job)); m++) {
            wf_run_select(run, m);
            const struct wf_view got = wf_run_owned(run, g->outputs[i]);
            ok = compare(job, g->outputs[i], &got, job->outputs[i * MOST_MICRO + (size_t)m], err);
        }
    for (size_t i = 0; ok && i < g->n_updates; i++) {
        const struct wf_view got = wf_run_view(run, g->updates[i].state);
        ok = compare(job, g->updates[i].state, &got, job->states[i], err);
    }
    return ok;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct job *const job = arg;
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(1);
#endif
    struct wf_global_plan *global = wf_global_plan_new(job->r->g, &job->mesh, &job->options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, wf_comm_rank(comm), err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    float *const sum = run ? wf_take_zeroed(wf_run_param_count(run) + 1, sizeof *sum) : NULL;
    bool ok = run != NULL;
    for (int step = 0; ok && step < 2; step++) { /* the second: old rubbish in the arena */
        fill(run, job);
        wf_run_set_step(run, 1);
        wf_run_set_carry(run, &(struct wf_run_carry){ .sum = micro_of(job) > 1 ? sum : NULL });
        ok = wf_run_step(run, err) && take(run, job, err);
    }
    free(sum);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

/* --- one graph --- */

static bool place(const void *user, const struct wf_mesh *mesh, struct wf_block domains[],
                  struct wf_err *err)
{
    (void)user, (void)err;
    const int workers = mesh->at[WF_MESH_DOMAIN];
    for (int d = 0; d < DOMAINS; d++) {
        domains[d] = wf_mesh_block(mesh);
        domains[d].lo[WF_MESH_DOMAIN] = d % workers;
        domains[d].hi[WF_MESH_DOMAIN] = d % workers + 1;
    }
    return true;
}

/* Runs of nodes are of one domain; gradients are of their node's. */
static void draw_domains(const struct support_random *r, struct wf_random random)
{
    for (size_t i = 0; i < r->g->n_nodes; i++) {
        struct wf_node *const n = r->g->nodes[i];
        n->domain = n->of >= 0 ? r->g->nodes[n->of]->domain
                               : (int)wf_random_below(random, 100 + i / 3, DOMAINS + 1);
    }
}

static void draw_options(struct job *job, const struct wf_device *device, struct wf_random random)
{
    static const char *const others[] = { "", "", "", ",data=2", ",space=2", ",domain=2" };
    const int stages = 2 + (int)wf_random_below(random, 0, 3);
    const char *const more = others[wf_random_below(random, 1, 6)];
    const enum wf_pipe_schedule schedule = (enum wf_pipe_schedule)wf_random_below(random, 2, 3);
    struct wf_err err = { 0 };
    char mesh[64];
    (void)snprintf(mesh, sizeof mesh, "pipe=%d%s", stages, more);
    assert_true(wf_mesh_parse(mesh, &job->mesh, &err));
    job->is_exact = *more == '\0';
    int micro = 1 + (int)wf_random_below(random, 3, MOST_MICRO);
    if (schedule == WF_PIPE_INTERLEAVED)
        micro = (micro + stages - 1) / stages * stages;
    if (micro > MOST_MICRO)
        micro -= stages;
    const uint32_t bits = wf_random_bits(random, 4);
    job->options = (struct wf_plan_options){
        .device = device,
        .no_recompute = (bits & 7) == 0,
        .no_overlap = (bits >> 3 & 7) == 0,
        .split_always = (bits >> 6 & 1) == 0,
        .strip_always =
            !job->is_exact && (bits >> 10 & 3) == 0, /* a sum in strips rounds otherwise */
        .bucket_bytes = (bits >> 7 & 1) ? 256 : 0,
        .check_passes = true,
        .pipe = { .schedule = schedule, .micro_batches = micro, .keeps_outputs = true },
    };
    if (strstr(more, "domain")) {
        draw_domains(job->r, random);
        job->options.layout = (struct wf_layout_options){ .n_domains = DOMAINS, .place = place };
    }
}

/* Half of the graphs are cut at random layers; NULL: where it is cheapest. */
static void draw_cut(struct job *job, struct wf_random random, const char *cut[8])
{
    const struct wf_graph *const g = job->r->g;
    int n = job->mesh.at[WF_MESH_PIPE] - 1;
    if (job->options.pipe.schedule == WF_PIPE_INTERLEAVED || wf_random_below(random, 5, 2) == 0)
        return;
    size_t at = 0, forward = 0;
    while (forward < g->n_nodes && !g->nodes[forward]->backward)
        forward++;
    for (int i = 0; i < n; i++) {
        at += 1 + wf_random_below(random, 6 + (uint64_t)i, (uint32_t)(forward / (size_t)n + 1));
        cut[i] = g->nodes[at < forward ? at : forward - 1]->name;
    }
    job->options.pipe.cut = cut;
    job->options.pipe.n_cut = n;
}

static bool check_plans(const struct job *job, struct wf_err *err)
{
    struct wf_plan *plans[MOST_RANKS] = { 0 };
    struct wf_global_plan *global = wf_global_plan_new(job->r->g, &job->mesh, &job->options, err);
    const int n = wf_mesh_size(&job->mesh);
    bool ok = global != NULL;
    for (int r = 0; ok && r < n; r++)
        ok = (plans[r] = wf_plan_new(global, r, err)) != NULL;
    ok = ok && wf_plan_check_all((const struct wf_plan *const *)plans, n, err);
    for (int r = 0; r < n; r++)
        wf_plan_free(plans[r]);
    wf_global_plan_free(global);
    return ok;
}

static double gradient_norm(const struct job *job)
{
    double most = 0;
    for (size_t i = 0; i < job->r->g->n_outputs; i++) {
        const struct wf_value *const v = job->r->g->outputs[i];
        double norm = 0;
        for (int64_t k = 0; v->grad_of && k < wf_shape_count(v->shape); k++)
            norm += job->outputs[i * MOST_MICRO][k] * job->outputs[i * MOST_MICRO][k];
        most = fmax(most, sqrt(norm));
    }
    return most;
}

/* On one rank, then on the mesh. Not finite: nothing can be compared. */
static bool run_both(struct job *job, bool *finite, struct wf_err *err)
{
    struct job whole = *job;
    whole.mesh = wf_mesh_one();
    whole.is_whole = true;
    whole.is_exact = false;
    whole.options.pipe.cut = NULL;
    whole.options.pipe.n_cut = 0;
    const struct wf_layout_options one = { 0 };
    whole.options.layout = one;
    if (!wf_comm_threads_run(1, body, &whole, err))
        return false;
    job->gradients = gradient_norm(job);
    *finite = isfinite(job->gradients);
    return !*finite || wf_comm_threads_run(wf_mesh_size(&job->mesh), body, job, err);
}

struct tally {
    int runs, exact, refused, not_finite;
};

static void run_graph(uint64_t seed, const struct wf_device *device, struct tally *tally)
{
    struct support_random r;
    support_random_build(&r, seed);
    const struct wf_random random = wf_random(seed, wf_random_stream("pipe"));
    struct job job = { .r = &r, .seed = seed };
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    const char *cut[8];
    draw_options(&job, device, random);
    draw_cut(&job, random, cut);
    bool fits = check_plans(&job, &err);
    if (!fits && job.options.pipe.n_cut) { /* few layers can be cut at by name */
        job.options.pipe.n_cut = 0;
        err = (struct wf_err){ 0 };
        fits = check_plans(&job, &err);
    }
    if (!fits && err.code != WF_ERR_FIT) {
        (void)puts(wf_graph_print(&arena, r.g)); /* longer than a message may be */
        fail_msg("seed %" PRIu64 ", mesh '%s': %s", seed, wf_mesh_print(&arena, &job.mesh),
                 err.text);
    }
    tally->refused += !fits;
    job.outputs = wf_arena_array(&arena, r.g->n_outputs * MOST_MICRO, double *);
    job.states = wf_arena_array(&arena, r.g->n_updates + 1, double *);
    for (size_t i = 0; i < r.g->n_outputs * MOST_MICRO; i++)
        job.outputs[i] =
            wf_arena_array(&arena, wf_shape_count(r.g->outputs[i / MOST_MICRO]->shape), double);
    for (size_t i = 0; i < r.g->n_updates; i++)
        job.states[i] =
            wf_arena_array(&arena, wf_shape_count(r.g->updates[i].state->shape), double);
    for (int m = 0; m < MOST_MICRO; m++) {
        job.v[m] = support_values_new(r.g);
        support_random_fill(&r, &job.v[m], 7 + (uint64_t)m);
    }
    bool finite = true;
    if (fits && !run_both(&job, &finite, &err))
        fail_msg("WF_PIPE_SEED=%" PRIu64
                 " WF_PIPE_GRAPHS=1, mesh '%s', %d micro-batches, %s, on %s: %s",
                 seed, wf_mesh_print(&arena, &job.mesh), micro_of(&job),
                 wf_pipe_schedule_names[job.options.pipe.schedule], device->name, err.text);
    tally->runs += fits && finite;
    tally->exact += fits && finite && job.is_exact;
    tally->not_finite += !finite;
    for (int m = 0; m < MOST_MICRO; m++)
        support_values_free(&job.v[m]);
    wf_graph_free(r.g);
    wf_arena_release(&arena);
}

static uint64_t setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : usual;
}

static void random_graph__stages_give_the_numbers_of_one_rank(void **state)
{
    (void)state;
    const uint64_t first = setting("WF_PIPE_SEED", 1), count = setting("WF_PIPE_GRAPHS", 1000);
    struct tally tally = { 0 };
    for (uint64_t i = first; i < first + count; i++) {
        run_graph(i, &wf_device_reference, &tally);
        run_graph(i, &wf_device_cpu, &tally);
    }
    print_message("%d runs, %d of them bit for bit; %d refused, %d not finite\n", tally.runs,
                  tally.exact, tally.refused, tally.not_finite);
    assert_true(count < 100 || (tally.runs > (int)count / 2 && tally.exact > (int)count / 4));
}

/* --- schedules --- */

static struct wf_stages chain(struct wf_arena *arena, int stages, enum wf_pipe_schedule schedule)
{
    const int each = schedule == WF_PIPE_ZERO_BUBBLE ? 3 : 2;
    struct wf_stages s = { .n_stages = stages,
                           .n_chunks = stages * (schedule == WF_PIPE_INTERLEAVED ? 2 : 1) };
    s.n_segments = each * s.n_chunks;
    s.segments = wf_arena_array(arena, s.n_segments, struct wf_segment);
    for (int k = 0; k < s.n_chunks; k++) {
        const int back = s.n_chunks + (each - 1) * (s.n_chunks - 1 - k);
        s.segments[k] = (struct wf_segment){ WF_SEGMENT_FORWARD, k };
        s.segments[back] = (struct wf_segment){ WF_SEGMENT_BACKWARD, k };
        if (each == 3)
            s.segments[back + 1] = (struct wf_segment){ WF_SEGMENT_WEIGHTS, k };
    }
    return s;
}

/* The first stage does not take its backward pass apart. */
static double units(const struct wf_segment *s, bool apart)
{
    const bool whole = !apart || s->chunk == 0;
    return s->kind == WF_SEGMENT_FORWARD ? 1 : s->kind == WF_SEGMENT_BACKWARD ? 1 + whole : !whole;
}

/* The bubble of stages that all take as long: forward one unit, backward two. */
static double bubble(int stages, int micro, enum wf_pipe_schedule schedule)
{
    struct wf_arena arena = { 0 };
    const struct wf_stages s = chain(&arena, stages, schedule);
    const struct wf_pipe_options o = { .schedule = schedule, .micro_batches = micro };
    double *const seconds = wf_arena_array(&arena, s.n_segments, double);
    double *const travel = wf_arena_array(&arena, s.n_segments, double);
    for (int i = 0; i < s.n_segments; i++)
        seconds[i] =
            units(&s.segments[i], schedule == WF_PIPE_ZERO_BUBBLE) * s.n_stages / s.n_chunks;
    const struct wf_turns_time t = wf_turns_estimate(&arena, &s, &o, seconds, travel);
    double sum = 0;
    for (int i = 0; i < stages; i++)
        sum += t.idle[i] / stages;
    wf_arena_release(&arena);
    return sum;
}

static void schedules__have_the_bubbles_that_are_known_of_them(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = p; m <= 4 * p; m += p) {
            const double usual = (double)(p - 1) / (m + p - 1);
            const double interleaved = bubble(p, m, WF_PIPE_INTERLEAVED);
            const double zero = bubble(p, m, WF_PIPE_ZERO_BUBBLE);
            assert_true(fabs(bubble(p, m, WF_PIPE_1F1B) - usual) < 1e-9);
            /* Half as long to fill, and a third: (p - 1) units of three. */
            assert_true(fabs(interleaved - (p - 1) / 2.0 / (m + (p - 1) / 2.0)) < 1e-9);
            if (!(zero < usual && zero >= (p - 1) / 3.0 / (m + (p - 1) / 3.0) - 1e-9))
                fail_msg("zero bubble of %d stages, %d micro-batches: %g, usual %g", p, m, zero,
                         usual);
        }
}

/* No schedule keeps more micro-batches than there are stages, and 1F1B fewer on later stages. */
static void schedules__keep_few_micro_batches(void **state)
{
    (void)state;
    enum { STAGES = 4, MICRO = 16 };
    for (int schedule = 0; wf_pipe_schedule_names[schedule]; schedule++)
        for (int stage = 0; stage < STAGES; stage++) {
            struct wf_arena arena = { 0 };
            const struct wf_stages s = chain(&arena, STAGES, (enum wf_pipe_schedule)schedule);
            const struct wf_pipe_options o = { .schedule = (enum wf_pipe_schedule)schedule,
                                               .micro_batches = MICRO };
            const struct wf_turns turns = wf_turns_of(&arena, &s, &o, stage, MICRO);
            bool *const used = wf_arena_array(&arena, 2 * s.n_segments, bool);
            for (int i = 0; i < s.n_segments; i++)
                used[wf_part_work(i)] = s.segments[i].chunk == stage;
            const int slots = wf_turns_slots(&turns, used, MICRO);
            if (schedule == WF_PIPE_1F1B)
                assert_int_equal(slots, STAGES - stage);
            else
                assert_true(slots <= (schedule == WF_PIPE_INTERLEAVED ? 2 * STAGES : STAGES));
            /* A shorter step leaves turns out. */
            const struct wf_turns fewer = wf_turns_of(&arena, &s, &o, stage, 3);
            int n = 0;
            for (int i = 0; i < turns.n; i++)
                if (turns.at[i].micro < 3)
                    assert_true(memcmp(&turns.at[i], &fewer.at[n++], sizeof turns.at[i]) == 0);
            assert_int_equal(n, fewer.n);
            wf_arena_release(&arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules__have_the_bubbles_that_are_known_of_them),
        cmocka_unit_test(schedules__keep_few_micro_batches),
        cmocka_unit_test(random_graph__stages_give_the_numbers_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
