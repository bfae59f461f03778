/* The end of a process that has no memory. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/halt.h"
#include "base/memory.h"
#include "files.h"
#include "support_scratch.h"

/* The status of a process that runs `body`; what it writes to stderr is in `text`. */
static int status_of(void (*body)(const char *path), const char *path, char *text, size_t room)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        body(path);
        _exit(0);
    }
    (void)close(ends[1]);
    size_t got = 0;
    for (ssize_t n; got + 1 < room && (n = read(ends[0], text + got, room - 1 - got)) > 0;)
        got += (size_t)n;
    text[got] = '\0';
    (void)close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void take_too_much(const char *path)
{
    (void)path;
    void *volatile taken = wf_take(PTRDIFF_MAX);
    (void)taken;
}

static void no_memory__is_a_message_and_status_3(void **state)
{
    char text[2048];
    assert_int_equal(status_of(take_too_much, NULL, text, sizeof text), 3);
    assert_ptr_equal(strstr(text, "widefield: error: out of memory: "), text);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "ulimit -v"));
}

/* One file is complete, one is not, and one was given up. */
static void halt_while_writing(const char *path)
{
    struct wf_outfile whole, part, dropped;
    struct wf_err err = { 0 };
    char name[PATH_MAX];
    (void)snprintf(name, sizeof name, "%s/whole", path);
    const bool one = wf_outfile_begin(&whole, name, &err) &&
                     wf_outfile_write(&whole, "all", 3, &err) && wf_outfile_commit(&whole, &err);
    (void)snprintf(name, sizeof name, "%s/part", path);
    const bool two = wf_outfile_begin(&part, name, &err) && wf_outfile_write(&part, "so", 2, &err);
    (void)snprintf(name, sizeof name, "%s/dropped", path);
    const bool three = wf_outfile_begin(&dropped, name, &err);
    wf_outfile_drop(&dropped);
    if (one && two && three)
        wf_no_memory(7);
}

static void halt__leaves_nothing_half_written(void **state)
{
    char text[2048];
    assert_int_equal(status_of(halt_while_writing, ".", text, sizeof text), 3);
    assert_non_null(strstr(text, ": 7 bytes more were refused: "));
    assert_int_equal(count_files(".", "whole"), 1);
    assert_int_equal(count_files(".", "part"), 0);
    assert_int_equal(count_files(".", ".partial"), 0);
}

static void *write_on(void *arg)
{
    struct wf_err err = { 0 };
    for (struct wf_outfile f; wf_outfile_begin(&f, arg, &err);)
        wf_outfile_drop(&f);
    return NULL;
}

/* Another thread goes on making files. */
static void halt_beside_a_writer(const char *path)
{
    char name[] = "beside";
    pthread_t writer;
    if (pthread_create(&writer, NULL, write_on, name) == 0)
        (void)usleep(2000);
    wf_halt("%s", path);
}

static void halt__leaves_nothing_of_another_thread(void **state)
{
    char text[2048];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(status_of(halt_beside_a_writer, "now", text, sizeof text), 3);
        assert_int_equal(count_files(".", ".partial"), 0);
    }
}

static void tell(const char *text)
{
    (void)!write(STDERR_FILENO, strstr(text, "once") ? "told\n" : "lost\n", 5);
    wf_halt("twice");
}

static void halt_in_the_midst(const char *path)
{
    (void)path;
    wf_halt_tell("rank 3: ", tell);
    wf_halt("once");
}

static void halt__tells_once_and_ends_when_that_fails_too(void **state)
{
    char text[2048];
    assert_int_equal(status_of(halt_in_the_midst, NULL, text, sizeof text), 3);
    assert_string_equal(text, "widefield: error: rank 3: once\ntold\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory__is_a_message_and_status_3),
        cmocka_unit_test(halt__leaves_nothing_half_written),
        cmocka_unit_test(halt__leaves_nothing_of_another_thread),
        cmocka_unit_test(halt__tells_once_and_ends_when_that_fails_too),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
