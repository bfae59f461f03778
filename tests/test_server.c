/* mpirun: 2 3 5 */
/*
 * The parameter server: the bound on staleness under random timing, what a server computes against
 * numbers by hand, and that one that fails ends its workers.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/device.h"
#include "ops/build.h"
#include "support_comm.h"
#include "train/server.h"

/* --- the bound --- */

/* Workers take random times; the server does all it may after each event. */
static void play(int workers, int bound, uint64_t seed)
{
    enum { EACH = 40 };
    struct wf_staleness s;
    wf_staleness_init(&s, workers, bound);
    int done[8] = { 0 }, left[8] = { 0 };
    bool computing[8] = { false };
    int64_t version[8] = { 0 };
    const struct wf_random r = wf_random(seed, (uint64_t)workers * 100 + (uint64_t)bound);
    for (int i = 0; i < workers; i++)
        wf_staleness_ask(&s, i);
    int finished = 0, i, ahead = 0, together_most = 0;
    for (uint64_t time = 0; finished < workers; time++) {
        for (bool busy = true; busy;) {
            busy = false;
            if (wf_staleness_due(&s, &i)) {
                busy = true;
                assert_true(s.version - 1 - version[i] == s.worker[i].behind);
                assert_in_range(s.worker[i].behind, 0, bound);
                if (++done[i] < EACH)
                    wf_staleness_ask(&s, i);
                else
                    finished++;
            }
            if (wf_staleness_next(&s, &i)) {
                busy = true;
                computing[i] = true;
                version[i] = s.version;
                left[i] = 1 + (int)wf_random_below(r, time * 8 + (uint64_t)i, i == 0 ? 30 : 6);
            }
        }
        int together = 0, least = EACH, most = 0;
        for (int k = 0; k < workers; k++) {
            together += computing[k];
            least = done[k] < least ? done[k] : least;
            most = done[k] > most ? done[k] : most;
            if (computing[k] && --left[k] == 0) {
                computing[k] = false;
                wf_staleness_arrive(&s, k);
            }
        }
        ahead = most - least > ahead ? most - least : ahead;
        together_most = together > together_most ? together : together_most;
        assert_true(finished == workers || together > 0); /* nobody waits for ever */
        assert_true(time < 1000000);
    }
    int64_t applied = 0;
    for (int k = 0; k <= WF_STALENESS_MOST; k++)
        applied += s.histogram[k];
    assert_int_equal(applied, workers * EACH);
    assert_in_range(ahead, 0, bound + 2); /* one of them is under way on either side */
    assert_int_equal(together_most, workers <= bound      ? workers
                                    : bound + 1 < workers ? bound + 1
                                                          : workers);
    wf_staleness_release(&s);
}

static void staleness__is_never_past_its_bound_and_nobody_waits_for_ever(void **state)
{
    for (int workers = 1; workers <= 7; workers++)
        for (int bound = 0; bound <= 6; bound++)
            for (uint64_t seed = 0; seed < 20; seed++)
                play(workers, bound, seed);
}

/* --- a server and its workers --- */

enum { STEPS = 6 };

/* w, a weight of two elements, whose gradient the workers write themselves. */
struct set {
    struct wf_graph *graph;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
};

static bool set_init(struct set *s, struct wf_err *err)
{
    *s = (struct set){ 0 };
    s->graph = wf_graph_new(&(struct wf_graph_options){ .training = true, .compute = WF_F32 });
    struct wf_value *const x = wf_input(s->graph, "x", WF_F32, WF_SHAPE(1, 1, 1, 1, 2));
    struct wf_value *const t = wf_input(s->graph, "t", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
    struct wf_value *const y =
        wf_conv(s->graph, x, &(struct wf_conv){ .name = "w", .out = 1, .kernel = { 1, 1, 1 } });
    struct wf_value *const loss = wf_mse(s->graph, y, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(s->graph, loss);
    const struct wf_mesh one = wf_mesh_one();
    const struct wf_plan_options options = { .device = &wf_device_reference, .threads = 1 };
    struct wf_optim_options sgd = wf_optim_defaults(WF_SGD);
    sgd.lr = 1;
    if (!wf_graph_grad(s->graph, loss, NULL, 0, NULL, NULL, err))
        return false;
    s->global = wf_global_plan_new(s->graph, &one, &options, err);
    s->plan = s->global ? wf_plan_new(s->global, 0, err) : NULL;
    s->run = s->plan ? wf_run_new_store(s->plan, err) : NULL;
    s->optim = s->run ? wf_optim_new(&sgd, s->run, err) : NULL;
    if (!s->optim)
        return false;
    for (size_t i = 0; i < wf_run_param_count(s->run); i++)
        wf_run_params(s->run)[i] = wf_run_grads(s->run)[i] = 0;
    return true;
}

static void set_release(struct set *s)
{
    wf_optim_free(s->optim);
    wf_run_free(s->run);
    wf_plan_free(s->plan);
    wf_global_plan_free(s->global);
    wf_graph_free(s->graph);
}

struct play_case {
    enum wf_sync sync;
    bool fails; /* the server: it is asked for what there is not */
};

static bool serves(const struct play_case *c, struct wf_comm *comm, struct set *s,
                   struct wf_err *err)
{
    return wf_server_run(&(struct wf_server_options){ .comm = comm,
                                                      .sync = c->sync,
                                                      .workers = wf_comm_size(comm) - 1,
                                                      .stride = 1,
                                                      .staleness = 2,
                                                      .run = s->run,
                                                      .optim = s->optim },
                         err);
}

static bool asks_nonsense(struct wf_comm *comm, struct wf_err *err)
{
    const struct wf_ask ask = { .what = 99 };
    const struct wf_message m = to(wf_comm_size(comm) - 1, WF_TAG_ASK, &ask, sizeof ask);
    return exchange(comm, 1, &m, err);
}

/* Plain descent with rate 1 from zero: the weights are minus the sum of all gradients, whatever the
 * order. Worker i sends (i + 1) / 4 in each of its steps. */
static bool works(const struct play_case *c, struct wf_comm *comm, struct set *s,
                  struct wf_err *err)
{
    const int me = wf_comm_rank(comm), workers = wf_comm_size(comm) - 1;
    struct wf_worker w = { .options = { .world = comm, .sync = c->sync } };
    float *const grads = wf_run_grads(s->run);
    if (c->fails && me == 0 && !asks_nonsense(comm, err))
        return false;
    for (int step = 0; step < STEPS; step++) {
        if (!wf_worker_pull(&w, s->run, err))
            return false;
        for (size_t i = 0; i < wf_run_param_count(s->run); i++)
            grads[i] = 0.25f * (float)(me + 1);
        const struct wf_push push = {
            .grads = grads, .scale = 1, .lr = 1, .last = step == STEPS - 1
        };
        if (!wf_worker_push(&w, s->run, &push, err))
            return false;
    }
    if (c->sync == WF_SYNC_ASYNC && !wf_worker_meet(&w, s->run, err))
        return false;
    const double want = -0.25 * STEPS * workers * (workers + 1) / 2;
    const double got = (double)wf_run_params(s->run)[0];
    if (got != want)
        return wf_err_set(err, WF_ERR_FAILED, "weight: expected %g, got %g", want, got);
    int64_t applied = 0, past = 0;
    for (int i = 0; i <= WF_STALENESS_MOST; i++) {
        applied += w.reply.histogram[i];
        past += i > 2 ? w.reply.histogram[i] : 0;
    }
    if (c->sync == WF_SYNC_ASYNC && !(is(applied, (int64_t)workers * STEPS, "applied", err) &&
                                      is(past, 0, "past the bound", err)))
        return false;
    int64_t step = 0;
    if (me == 0 && !wf_worker_fetch(&w, s->optim, err))
        return false;
    step = s->optim->step;
    const int64_t updates = c->sync == WF_SYNC_ASYNC ? (int64_t)workers * STEPS : STEPS;
    return (me > 0 || is(step, updates, "updates", err)) && wf_worker_leave(&w, err);
}

static bool takes_part(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct play_case *c = arg;
    struct set s;
    bool ok = set_init(&s, err);
    if (ok)
        ok = wf_comm_rank(comm) == wf_comm_size(comm) - 1 ? serves(c, comm, &s, err)
                                                          : works(c, comm, &s, err);
    if (!ok)
        wf_comm_abort(comm, err);
    set_release(&s);
    return ok;
}

static void run_case(const struct play_case *c)
{
    struct play_case own = *c;
    const int sizes[] = { 2, 3, 5 };
    if (under_mpi()) {
        run_on_mpi(takes_part, &own);
        return;
    }
    for (int i = 0; i < 3; i++)
        run_on_threads(sizes[i], takes_part, &own);
}

static void server__that_waits_for_all_adds_their_gradients(void **state)
{
    run_case(&(struct play_case){ .sync = WF_SYNC_SERVER });
}

static void server__that_waits_for_nobody_applies_each_gradient_once(void **state)
{
    for (int i = 0; i < 20; i++)
        run_case(&(struct play_case){ .sync = WF_SYNC_ASYNC });
}

static bool hears_of_it(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_err seen = { 0 };
    const bool through = takes_part(comm, arg, &seen);
    return is(through, false, "a server that fails", err) && says(&seen, "parameter server", err) &&
           says(&seen, "asks for 99", err);
}

static void server__that_fails_ends_all_workers_with_its_message(void **state)
{
    for (int sync = WF_SYNC_SERVER; sync <= WF_SYNC_ASYNC; sync++) {
        struct play_case c = { .sync = (enum wf_sync)sync, .fails = true };
        struct wf_err err = { 0 };
        if (under_mpi()) {
            run_on_mpi(hears_of_it, &c);
            continue;
        }
        assert_false(wf_comm_threads_run(4, takes_part, &c, &err));
        assert_string_equal(err.text, "rank 3: parameter server: worker 0 asks for 99");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staleness__is_never_past_its_bound_and_nobody_waits_for_ever),
        cmocka_unit_test(server__that_waits_for_all_adds_their_gradients),
        cmocka_unit_test(server__that_waits_for_nobody_applies_each_gradient_once),
        cmocka_unit_test(server__that_fails_ends_all_workers_with_its_message),
    };
    const int failed = cmocka_run_group_tests_name("server", tests, NULL, NULL);
    wf_comm_mpi_finish();
    return failed;
}
