/* mpirun: 2 3 */
/*
 * A number that is not finite, on one rank: all ranks skip that step and no other, and training goes on as
 * if the step had never been. 200 steps of a network with batch norm (states) and Adam (a count), on
 * threads with 1, 2, 3 and 4 ranks, and under mpirun.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/device.h"
#include "ops/build.h"
#include "ops/op.h"
#include "support_comm.h"
#include "train/step.h"

enum { STEPS = 200, ROWS = 6, SIDE = 8 };

/* What goes wrong in a step: nothing, a gradient after the sums, or a pixel before all of it. */
enum trouble { NONE, GRADIENT, PIXEL };

static const struct wf_random dice = { .seed = 11, .stream = 5 };

static enum trouble trouble_of(int step)
{
    return wf_random_below(dice, (uint64_t)step, 8) > 0 ? NONE : step % 2 ? GRADIENT : PIXEL;
}

static int rank_of(int step, int ranks)
{
    return (int)wf_random_below(dice, 1000u + (uint64_t)step, (uint32_t)ranks);
}

static float bad_number(int step)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    return bad[step % 3];
}

struct trainee {
    struct wf_comm *comm;
    struct wf_graph *g;
    struct wf_value *image, *target, *loss;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
    struct wf_learner learner;
    int step;
};

static void spoil(void *user, float *grads, size_t count)
{
    const struct trainee *const t = user;
    if (trouble_of(t->step) == GRADIENT &&
        rank_of(t->step, wf_comm_size(t->comm)) == wf_comm_rank(t->comm))
        grads[t->step % 16] = bad_number(t->step); /* the first tensor has more elements */
    (void)count;
}

static bool trainee_init(struct trainee *t, struct wf_comm *comm, struct wf_err *err)
{
    *t = (struct trainee){ .comm = comm };
    struct wf_graph *const g = t->g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    t->image = wf_input(g, "image", WF_F32, WF_SHAPE(ROWS, 1, SIDE, SIDE, 2));
    t->target = wf_input(g, "target", WF_I32, WF_SHAPE(ROWS, 1, SIDE, SIDE, 1));
    const struct wf_conv a = { .name = "a", .out = 4, .kernel = { 1, 3, 3 }, .same = true };
    const struct wf_conv b = { .name = "b", .out = 2, .kernel = { 1, 1, 1 }, .bias = true };
    struct wf_value *x = wf_conv(g, t->image, &a);
    x = wf_batch_norm(g, x, &(struct wf_norm){ .name = "norm", .act = WF_RELU });
    t->loss = wf_cross_entropy(g, wf_conv(g, x, &b), t->target, &(struct wf_loss){ .name = "l" });
    wf_graph_output(g, t->loss);
    struct wf_mesh mesh = wf_mesh_one();
    mesh.at[WF_MESH_DATA] = wf_comm_size(comm);
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    if (!wf_graph_grad(g, t->loss, NULL, 0, NULL, NULL, err))
        return false;
    t->global = wf_global_plan_new(g, &mesh, &options, err);
    t->plan = t->global ? wf_plan_new(t->global, wf_comm_rank(comm), err) : NULL;
    t->run = t->plan ? wf_run_new(t->plan, comm, 1, err) : NULL;
    if (!t->run)
        return false;
    wf_run_init_weights(t->run, 1);
    struct wf_optim_options rule = wf_optim_defaults(WF_ADAM);
    rule.lr = 0.01;
    t->optim = wf_optim_new(&rule, t->run, err);
    const struct wf_learner_options learner = {
        .comm = comm, .optim = t->optim, .hook = spoil, .user = t
    };
    return t->optim && wf_learner_init(&t->learner, &learner, t->run, err);
}

static void trainee_release(struct trainee *t)
{
    wf_learner_release(&t->learner);
    wf_optim_free(t->optim);
    wf_run_free(t->run);
    wf_plan_free(t->plan);
    wf_global_plan_free(t->global);
    wf_graph_free(t->g);
}

static void fill(const struct trainee *t, bool spoilt)
{
    const struct wf_view x = wf_run_view(t->run, t->image), y = wf_run_view(t->run, t->target);
    const struct wf_random r = wf_random(3, (uint64_t)t->step);
    for (struct wf_cursor c = wf_cursor(y.box); y.data && wf_cursor_next(&c);) {
        const uint64_t at = (uint64_t)((c.at[WF_N] * SIDE + c.at[WF_H]) * SIDE + c.at[WF_W]);
        const double label = wf_random_below(r, at, 2);
        wf_view_set(&y, c.at, label);
        for (int64_t k = 0; k < 2; k++)
            wf_view_put(&x, c.at[WF_N], 0, c.at[WF_H], c.at[WF_W], k,
                        label + (double)wf_random_uniform(r, 999 + 2 * at + (uint64_t)k));
    }
    if (spoilt && x.data)
        wf_view_put(&x, x.box.lo[WF_N], 0, 3, 4, 1, (double)bad_number(t->step));
}

/* Every step, or only those that nothing is wrong with. */
static bool train(struct trainee *t, bool with_trouble, double *first, double *last,
                  struct wf_err *err)
{
    for (t->step = 0; t->step < STEPS; t->step++) {
        const enum trouble trouble = trouble_of(t->step);
        const bool me = rank_of(t->step, wf_comm_size(t->comm)) == wf_comm_rank(t->comm);
        if (trouble != NONE && !with_trouble)
            continue;
        fill(t, trouble == PIXEL && me);
        if (!wf_learner_step(&t->learner, t->run, NULL, err))
            return wf_err_wrap(err, "step %d", t->step);
        wf_learner_settle(&t->learner, t->run);
        if (!is(t->learner.skipped, trouble != NONE, "skipped", err))
            return wf_err_wrap(err, "step %d", t->step);
        const double loss = wf_dtype_get(WF_F32, wf_run_view(t->run, t->loss).data, 0);
        if (t->step < 10 && trouble == NONE)
            *first += loss;
        if (t->step >= STEPS - 10 && trouble == NONE)
            *last += loss;
    }
    return true;
}

static bool same(const float *a, const float *b, size_t count, const char *what, struct wf_err *err)
{
    return memcmp(a, b, count * sizeof *a) == 0 ||
           wf_err_set(err, WF_ERR_FAILED, "%s are not the same", what);
}

static bool compare(struct trainee *a, struct trainee *b, struct wf_err *err)
{
    const size_t params = wf_run_param_count(a->run), states = wf_run_state_count(a->run);
    float *const zero = malloc(params * sizeof *zero); /* rank 0's */
    if (!zero)
        return wf_err_set(err, WF_ERR_FAILED, "no memory");
    memcpy(zero, wf_run_params(a->run), params * sizeof *zero);
    const bool ok =
        is(a->optim->step, b->optim->step, "updates", err) &&
        same(wf_run_params(a->run), wf_run_params(b->run), params, "weights", err) &&
        same(wf_run_states(a->run), wf_run_states(b->run), states, "running statistics", err) &&
        same(a->optim->states[1], b->optim->states[1], params, "Adam's moments", err) &&
        wf_comm_broadcast(a->comm, 0, zero, params * sizeof *zero, err) &&
        same(zero, wf_run_params(a->run), params, "the ranks' weights", err);
    free(zero);
    return ok;
}

static bool body_of_test(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    (void)arg;
    struct trainee a = { 0 }, b = { 0 };
    double first = 0, last = 0, unused = 0;
    bool ok = trainee_init(&a, comm, err) && trainee_init(&b, comm, err) &&
              train(&a, true, &first, &last, err) && train(&b, false, &unused, &unused, err) &&
              compare(&a, &b, err);
    if (ok && !(last < 0.7 * first))
        ok = wf_err_set(err, WF_ERR_FAILED, "the loss went from %g to %g", first, last);
    trainee_release(&a);
    trainee_release(&b);
    return ok;
}

/* ranks: 1 2 3 4 */
static void trouble__on_one_rank_is_skipped_by_all(void **state)
{
    (void)state;
    int kinds[3] = { 0 };
    for (int step = 0; step < STEPS; step++)
        kinds[trouble_of(step)]++;
    assert_true(kinds[GRADIENT] > 5 && kinds[PIXEL] > 5);
    if (under_mpi()) {
        run_on_mpi(body_of_test, NULL);
        return;
    }
    for (int ranks = 1; ranks <= 4; ranks++)
        run_on_threads(ranks, body_of_test, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trouble__on_one_rank_is_skipped_by_all),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    wf_comm_mpi_finish();
    return failed;
}
