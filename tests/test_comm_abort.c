/* mpirun: 1 2 3 5 */
/* A rank gives up while the others wait for it, in every call that can wait. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support_comm.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest_a_little(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = 50'000'000 }, NULL);
}

enum waiting { IN_RECEIVE, IN_SEND, IN_SUM, IN_BARRIER, IN_BROADCAST, IN_SPLIT, IN_AGREE, IN_PART };

/* A run of threads ends with the culprit's error; what else was wrong must be kept elsewhere. */
struct abort_case {
    enum waiting in;
    const struct wf_sum_options *sums; /* NULL: as they come */
    atomic_int wrong;
    struct wf_err why;
};

static bool wait_for_ever(struct wf_comm *comm, enum waiting in, int culprit, struct wf_err *err)
{
    enum { COUNT = 100'000 };
    static const float zeros[COUNT];
    float *data = calloc(COUNT, sizeof *data);
    const struct wf_message receive = from(culprit, 5, data, COUNT * sizeof *data);
    const struct wf_message send = to(culprit, 5, zeros, COUNT * sizeof *zeros);
    struct wf_comm *sub = NULL;
    bool ok = true;
    if (in == IN_RECEIVE)
        ok = exchange(comm, 1, &receive, err);
    else if (in == IN_SEND)
        ok = exchange(comm, 1, &send, err);
    else if (in == IN_SUM)
        ok = sum(comm, data, COUNT, WF_F32, err);
    else if (in == IN_BARRIER)
        ok = wf_comm_barrier(comm, err);
    else if (in == IN_BROADCAST)
        ok = wf_comm_broadcast(comm, culprit, data, sizeof *data, err);
    else if (in == IN_SPLIT)
        ok = wf_comm_split(comm, 0, &sub, err);
    else
        ok = wf_comm_agree(comm, true, err);
    free(data);
    return ok;
}

static bool is_told(struct wf_comm *comm, enum waiting in, int culprit, struct wf_err *err)
{
    const char *want = culprit == 1 ? "rank 1: the disk is full" : "the disk is full";
    struct wf_err seen = { 0 }, later = { 0 };
    const double start = now();
    const bool through = wait_for_ever(comm, in, culprit, &seen);
    const bool soon = now() - start < 5;
    return is(through, false, "a call after an abort", err) && says(&seen, want, err) &&
           is(seen.code, WF_ERR_FIT, "code", err) && is(soon, true, "within five seconds", err) &&
           is(wf_comm_barrier(comm, &later), false, "later calls", err) && says(&later, want, err);
}

/* Within a part of the world: its first rank waits for the culprit, the others for the first. */
static bool is_told_in_part(struct wf_comm *comm, struct wf_comm *part, int culprit,
                            struct wf_err *err)
{
    struct wf_err seen = { 0 };
    const bool through = wf_comm_rank(part) == 0 ? wait_for_ever(comm, IN_RECEIVE, culprit, &seen)
                                                 : wait_for_ever(part, IN_BARRIER, culprit, &seen);
    return is(through, false, "a call in a part", err) && says(&seen, "the disk is full", err) &&
           is_told(part, IN_BARRIER, culprit, err);
}

/* Rank 1 fails while the others wait for it. */
static bool fails_on_one(struct wf_comm *comm, enum waiting in, struct wf_err *err)
{
    const int me = wf_comm_rank(comm), culprit = wf_comm_size(comm) > 1 ? 1 : 0;
    struct wf_comm *part = NULL;
    if (in == IN_PART && !wf_comm_split(comm, me == culprit, &part, err))
        return false;
    if (me == culprit) {
        struct wf_err failure = { 0 };
        (void)wf_err_set(&failure, WF_ERR_FIT, "the disk is full");
        rest_a_little();
        wf_comm_abort(comm, &failure);
    }
    const bool ok = part && me != culprit ? is_told_in_part(comm, part, culprit, err)
                                          : is_told(comm, in, culprit, err);
    wf_comm_free(part);
    return ok;
}

static bool aborts(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct abort_case *c = arg;
    const bool ok =
        (!c->sums || wf_comm_set_sums(comm, c->sums, err)) && fails_on_one(comm, c->in, err);
    if (!ok && atomic_fetch_add(&c->wrong, 1) == 0)
        c->why = *err;
    return ok;
}

static void run_aborts_by(enum waiting in, const struct wf_sum_options *sums)
{
    struct abort_case c = { .in = in, .sums = sums };
    struct wf_err err = { 0 };
    if (under_mpi()) {
        run_on_mpi(aborts, &c);
        return;
    }
    struct wf_comm *self = wf_comm_self();
    const bool ok = aborts(self, &c, &err);
    wf_comm_free(self);
    if (!ok)
        fail_msg("self: %s", err.text);
    const int sizes[] = { 1, 2, 3, 5 };
    for (int i = 0; i < 4; i++) {
        err = (struct wf_err){ 0 };
        assert_false(wf_comm_threads_run(sizes[i], aborts, &c, &err));
        if (c.wrong)
            fail_msg("%d threads: %s", sizes[i], c.why.text);
        assert_string_equal(err.text, i ? "rank 1: the disk is full" : "the disk is full");
    }
}

static void run_aborts(enum waiting in)
{
    run_aborts_by(in, NULL);
}

static void abort__reaches_ranks_that_wait_for_a_message(void **state)
{
    run_aborts(IN_RECEIVE);
}
static void abort__reaches_ranks_that_wait_for_a_receiver(void **state)
{
    run_aborts(IN_SEND);
}
static void abort__reaches_ranks_in_a_sum(void **state)
{
    run_aborts(IN_SUM);
}
static void abort__reaches_ranks_in_a_sum_by_messages(void **state)
{
    for (int way = 1; way < SUM_WAYS; way++)
        run_aborts_by(IN_SUM, &sum_ways[way]);
}
static void abort__reaches_ranks_in_a_barrier(void **state)
{
    run_aborts(IN_BARRIER);
}
static void abort__reaches_ranks_in_a_broadcast(void **state)
{
    run_aborts(IN_BROADCAST);
}
static void abort__reaches_ranks_in_a_split(void **state)
{
    run_aborts(IN_SPLIT);
}
static void abort__reaches_ranks_in_an_agreement(void **state)
{
    run_aborts(IN_AGREE);
}
static void abort__reaches_a_part_of_the_world_without_the_culprit(void **state)
{
    run_aborts(IN_PART);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort__reaches_ranks_that_wait_for_a_message),
        cmocka_unit_test(abort__reaches_ranks_that_wait_for_a_receiver),
        cmocka_unit_test(abort__reaches_ranks_in_a_sum),
        cmocka_unit_test(abort__reaches_ranks_in_a_sum_by_messages),
        cmocka_unit_test(abort__reaches_ranks_in_a_barrier),
        cmocka_unit_test(abort__reaches_ranks_in_a_broadcast),
        cmocka_unit_test(abort__reaches_ranks_in_a_split),
        cmocka_unit_test(abort__reaches_ranks_in_an_agreement),
        cmocka_unit_test(abort__reaches_a_part_of_the_world_without_the_culprit),
    };
    const int failed = cmocka_run_group_tests_name("comm_abort", tests, NULL, NULL);
    wf_comm_mpi_finish();
    return failed;
}
