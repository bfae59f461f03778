#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static void set__fills_and_returns_false(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_err_set(&err, WF_ERR_INPUT, "'%s': expected %d bytes", "a.tif", 3));
    assert_int_equal(err.code, WF_ERR_INPUT);
    assert_string_equal(err.text, "'a.tif': expected 3 bytes");
}

static void set__keeps_the_first_cause(void **state)
{
    struct wf_err err = { 0 };
    (void)wf_err_set(&err, WF_ERR_FIT, "first");
    assert_false(wf_err_set(&err, WF_ERR_USAGE, "second"));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_string_equal(err.text, "first");
}

static void set__cuts_long_text_and_ends_it(void **state)
{
    char text[3000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    struct wf_err err = { 0 };
    (void)wf_err_set(&err, WF_ERR_FAILED, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void wrap__puts_where_before_what(void **state)
{
    struct wf_err err = { 0 };
    (void)wf_err_set(&err, WF_ERR_INPUT, "bad strip");
    assert_false(wf_err_wrap(&err, "loading tile (%d,%d)", 2, 7));
    assert_false(wf_err_wrap(&err, "step %d", 5));
    assert_string_equal(err.text, "step 5: loading tile (2,7): bad strip");
    assert_int_equal(err.code, WF_ERR_INPUT);
}

static void wrap__gives_a_code_to_an_empty_error(void **state)
{
    struct wf_err err = { 0 };
    (void)wf_err_wrap(&err, "reading");
    assert_int_equal(err.code, WF_ERR_FAILED);
}

static void wrap__keeps_the_cause_when_there_is_no_room(void **state)
{
    char cause[1000], where[400];
    memset(cause, 'c', sizeof cause);
    cause[sizeof cause - 1] = '\0';
    memset(where, 'w', sizeof where);
    where[sizeof where - 1] = '\0';
    struct wf_err err = { 0 };
    (void)wf_err_set(&err, WF_ERR_FAILED, "%s", cause);
    (void)wf_err_wrap(&err, "%s", where);
    assert_string_equal(err.text, cause);
    /* Exactly full is still put together: 999 + 2 + 22 + the end = 1024. */
    (void)wf_err_wrap(&err, "%.22s", where);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text + 22, ": c", 3);
}

static void null__is_accepted_by_both(void **state)
{
    assert_false(wf_err_set(NULL, WF_ERR_INPUT, "x"));
    assert_false(wf_err_wrap(NULL, "x"));
}

static void exit_status__is_what_the_command_promises(void **state)
{
    assert_int_equal(wf_err_exit_status(WF_OK), 0);
    assert_int_equal(wf_err_exit_status(WF_ERR_FAILED), 1);
    assert_int_equal(wf_err_exit_status(WF_ERR_INPUT), 1);
    assert_int_equal(wf_err_exit_status(WF_ERR_USAGE), 2);
    assert_int_equal(wf_err_exit_status(WF_ERR_FIT), 3);
    assert_int_equal(wf_err_exit_status(WF_ERR_STOPPED), 75);
}

static void bug__says_where_and_what_and_aborts(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        const int rows = 7;
        WF_BUG_ON(rows != 8, "rows = %d", rows);
        _exit(0);
    }
    (void)close(ends[1]);
    char text[512] = { 0 };
    for (size_t used = 0; used < sizeof text - 1;) {
        const ssize_t got = read(ends[0], text + used, sizeof text - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    (void)close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_err.c"));
    assert_non_null(strstr(text, "rows != 8: rows = 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set__fills_and_returns_false),
        cmocka_unit_test(set__keeps_the_first_cause),
        cmocka_unit_test(set__cuts_long_text_and_ends_it),
        cmocka_unit_test(wrap__puts_where_before_what),
        cmocka_unit_test(wrap__gives_a_code_to_an_empty_error),
        cmocka_unit_test(wrap__keeps_the_cause_when_there_is_no_room),
        cmocka_unit_test(null__is_accepted_by_both),
        cmocka_unit_test(exit_status__is_what_the_command_promises),
        cmocka_unit_test(bug__says_where_and_what_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
