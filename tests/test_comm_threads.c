/* What only `threads` promises, and who counts as launched by MPI. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_comm.h"

static bool fails_on_rank_two(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    if (wf_comm_rank(comm) == 2)
        return wf_err_set(err, WF_ERR_USAGE, "no such file");
    return wf_comm_barrier(comm, err) || wf_err_wrap(err, "in step 3");
}

static void threads__a_body_that_fails_ends_the_run_with_its_error(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(5, fails_on_rank_two, NULL, &err));
    assert_string_equal(err.text, "rank 2: no such file");
    assert_int_equal(err.code, WF_ERR_USAGE);
}

static bool fails_together(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const bool ok = wf_comm_rank(comm) < 1 || wf_err_set(err, WF_ERR_INPUT, "bad header");
    return wf_comm_agree(comm, ok, err);
}

static void threads__an_error_that_was_agreed_on_names_its_rank_once(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(3, fails_together, NULL, &err));
    assert_string_equal(err.text, "rank 1: bad header");
}

static bool counts_within(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    int32_t one = 1;
    return sum(comm, &one, 1, WF_I32, err) && is(one, 3, "inner sum", err);
}

static bool runs_within(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    int32_t one = 1;
    return wf_comm_threads_run(3, counts_within, NULL, err) && sum(comm, &one, 1, WF_I32, err) &&
           is(one, 2, "outer sum", err);
}

static void threads__a_body_may_run_threads_of_its_own(void **state)
{
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(2, runs_within, NULL, &err))
        fail_msg("%s", err.text);
}

static bool uses_six_megabytes(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    volatile char big[6 << 20];
    for (size_t i = 0; i < sizeof big; i += 4096)
        big[i] = (char)wf_comm_rank(comm);
    return is(big[4096], wf_comm_rank(comm), "stack", err);
}

static void threads__have_a_stack_of_eight_megabytes(void **state)
{
    run_on_threads(3, uses_six_megabytes, NULL);
}

static bool leaves_early(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    int in = 0;
    const struct wf_message m = from(1, 6, &in, sizeof in);
    if (wf_comm_rank(comm) == 1)
        return true;
    return arg ? wf_comm_barrier(comm, err) : exchange(comm, 1, &m, err);
}

static void threads__waiting_for_a_rank_that_has_ended_is_an_error(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(2, leaves_early, NULL, &err));
    assert_non_null(strstr(err.text, "message from rank 1 with tag 6: that rank has ended"));
    err = (struct wf_err){ 0 };
    assert_false(wf_comm_threads_run(3, leaves_early, &err, &err));
    assert_non_null(strstr(err.text, "rank 1 has ended"));
}

static bool waits_for_itself(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    int in = 0;
    const int me = wf_comm_rank(comm);
    struct wf_err seen = { 0 };
    const struct wf_message m = from(me, 6, &in, sizeof in);
    return is(exchange(comm, 1, &m, &seen), false, "waiting for oneself", err) &&
           says(&seen, "that rank waits", err);
}

static void threads__a_message_from_oneself_that_was_never_sent_is_an_error(void **state)
{
    struct wf_err err = { 0 };
    struct wf_comm *self = wf_comm_self();
    if (!waits_for_itself(self, NULL, &err))
        fail_msg("self: %s", err.text);
    wf_comm_free(self);
    run_on_threads(3, waits_for_itself, NULL);
}

static bool sums_differ(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    float data[8] = { 0 };
    return sum(comm, data, wf_comm_rank(comm) == 1 ? 4 : 8, WF_F32, err);
}

static void threads__sums_of_different_length_are_refused(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_comm_threads_run(2, sums_differ, NULL, &err));
    assert_non_null(strstr(err.text, "f32 on rank"));
}

/* Everything is in flight when a rank gives up and frees its memory: the sanitizers watch. */
static bool fails_in_flight(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { COUNT = 200'000 };
    const int me = wf_comm_rank(comm), size = wf_comm_size(comm);
    float *data = calloc(COUNT, 3 * sizeof *data);
    struct wf_request *e = NULL, *s = NULL;
    const struct wf_message m[] = { to(right_of(comm), 1, data + COUNT, COUNT * sizeof *data),
                                    from(left_of(comm), 1, data + 2 * COUNT,
                                         COUNT * sizeof *data) };
    bool ok = true;
    for (int i = 0; i < 20 && ok; i++) {
        ok = wf_comm_sum_begin(comm, data, COUNT, WF_F32, &s, err) &&
             wf_comm_exchange_begin(comm, 2, m, &e, err);
        if (ok && i == 10 && me == size - 1) {
            ok = wf_err_set(err, WF_ERR_FAILED, "out of luck");
            wf_comm_abort(comm, err);
        }
        ok = ok && wf_comm_exchange_end(comm, e, err) && wf_comm_sum_end(comm, s, err);
    }
    free(data);
    return ok;
}

static void threads__a_rank_that_gives_up_may_free_what_is_in_flight(void **state)
{
    for (int i = 0; i < 10; i++) {
        struct wf_err err = { 0 };
        assert_false(wf_comm_threads_run(2 + i % 4, fails_in_flight, NULL, &err));
        assert_non_null(strstr(err.text, "out of luck"));
    }
}

/* --- launchers --- */

static const char *const launch_variables[] = {
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_ID",
};

/* "A=1 B=2": is a process with these variables one of an MPI program? */
static bool launched_with(const char *text)
{
    char words[256], *rest = NULL;
    for (size_t i = 0; i < sizeof launch_variables / sizeof *launch_variables; i++)
        assert_return_code(unsetenv(launch_variables[i]), 0);
    (void)snprintf(words, sizeof words, "%s", text);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_return_code(setenv(word, value, 1), 0);
    }
    return wf_comm_mpi_launched();
}

static void launched__under_mpirun_and_srun_but_not_in_the_shell_of_a_job(void **state)
{
    assert_true(launched_with("OMPI_COMM_WORLD_SIZE=1"));
    assert_true(launched_with("PMI_RANK=0 PMI_SIZE=4"));
    assert_true(launched_with("PMIX_RANK=0"));
    assert_true(
        launched_with("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4"));
    assert_false(launched_with("SLURM_PROCID=0 SLURM_NTASKS=4"));
    /* salloc opens a shell as a step of its own */
    assert_false(launched_with("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 "
                               "SLURM_STEP_NUM_TASKS=1 PMIX_RANK=0"));
    assert_false(launched_with(""));
}

#ifndef WF_HAVE_MPI
static void mpi__is_refused_by_a_build_without_it(void **state)
{
    struct wf_err err = { 0 };
    assert_null(wf_comm_mpi(&err));
    assert_non_null(strstr(err.text, "libwidefield-mpi.so"));
    wf_comm_mpi_finish();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads__a_body_that_fails_ends_the_run_with_its_error),
        cmocka_unit_test(threads__an_error_that_was_agreed_on_names_its_rank_once),
        cmocka_unit_test(threads__a_body_may_run_threads_of_its_own),
        cmocka_unit_test(threads__have_a_stack_of_eight_megabytes),
        cmocka_unit_test(threads__waiting_for_a_rank_that_has_ended_is_an_error),
        cmocka_unit_test(threads__a_message_from_oneself_that_was_never_sent_is_an_error),
        cmocka_unit_test(threads__sums_of_different_length_are_refused),
        cmocka_unit_test(threads__a_rank_that_gives_up_may_free_what_is_in_flight),
        cmocka_unit_test(launched__under_mpirun_and_srun_but_not_in_the_shell_of_a_job),
#ifndef WF_HAVE_MPI
        cmocka_unit_test(mpi__is_refused_by_a_build_without_it),
#endif
    };
    const int failed = cmocka_run_group_tests_name("comm_threads", tests, NULL, NULL);
    return failed;
}
