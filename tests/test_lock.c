/* Locks of folders, and what processes that are gone leave behind. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/lock.h"
#include "base/process.h"
#include "files.h"
#include "support_scratch.h"

static const struct wf_log quiet = { .level = WF_LOG_QUIET };

/* A process that takes the lock of `folder`, says so, and waits to be killed; -1: it could not. */
static pid_t owner_of(const char *folder)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct wf_err err = { 0 };
        const char has = wf_lock_take(folder, &quiet, &err) != NULL;
        (void)!write(ready[1], &has, 1);
        pause();
        _exit(0);
    }
    char has = 0;
    assert_int_equal(read(ready[0], &has, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_true(has);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void lock__is_one_process_at_a_time_and_names_it(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("one", 0777), 0);
    const pid_t pid = owner_of("one");
    assert_null(wf_lock_take("one", &quiet, &err));
    char process[64], host[65] = "";
    (void)snprintf(process, sizeof process, "process %ld", (long)pid);
    (void)gethostname(host, sizeof host - 1);
    assert_non_null(strstr(err.text, process));
    assert_non_null(strstr(err.text, host));
    assert_non_null(strstr(err.text, "since 20"));
    assert_non_null(strstr(err.text, "--out"));
    assert_int_equal(count_files("one", ".partial"), 0);
    end(pid);
    /* However it ended, the next has it at once. */
    err = (struct wf_err){ 0 };
    struct wf_lock *const lock = wf_lock_take("one", &quiet, &err);
    if (!lock)
        fail_msg("%s", err.text);
    assert_true(wf_lock_check(lock, &err));
    assert_null(wf_lock_take("one", &quiet, NULL)); /* nor twice by one process */
    wf_lock_free(lock);
    assert_int_equal(count_files("one", "lock"), 0);
}

static void put_lock(const char *path, const char *host, uint32_t kernel, long pid, time_t age)
{
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file,
                  "host %s\npid %ld\nsince 2026-01-01T00:00:00Z\nkernel %08" PRIx32
                  "\nnumbers 00000000\nstarted 5\n",
                  host, pid, kernel);
    assert_int_equal(fclose(file), 0);
    const struct timespec then = { .tv_sec = time(NULL) - age };
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ then, then }, 0), 0);
}

static void lock__of_another_machine_holds_while_it_beats(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("far", 0777), 0);
    put_lock("far/lock", "n17", 0x12345678, 99, 60);
    const pid_t beats = fork();
    if (beats == 0) {
        (void)sleep(1);
        _exit(utimensat(AT_FDCWD, "far/lock", NULL, 0));
    }
    assert_null(wf_lock_take("far", &quiet, &err));
    assert_int_equal(waitpid(beats, NULL, 0), beats);
    assert_non_null(strstr(err.text, "host n17, process 99, since 2026-01-01T00:00:00Z"));
    put_lock("far/lock", "n17", 0x12345678, 99, 200);
    err = (struct wf_err){ 0 };
    struct wf_lock *const lock = wf_lock_take("far", &quiet, &err);
    if (!lock)
        fail_msg("%s", err.text);
    /* And who took it so may lose it so: then it says that, and leaves the other's alone. */
    put_lock("far/lock.other", "n18", 0x12345679, 98, 0);
    assert_int_equal(rename("far/lock.other", "far/lock"), 0);
    assert_false(wf_lock_check(lock, &err));
    wf_lock_free(lock);
    assert_int_equal(count_files("far", "lock"), 1);
}

/* As a scheduler does that starts a job again at once when a node is gone. */
static void lock__of_another_machine_is_waited_for(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("late", 0777), 0);
    put_lock("late/lock", "n17", 0x12345678, 99, 118);
    struct wf_lock *const lock = wf_lock_take("late", &quiet, &err);
    if (!lock)
        fail_msg("%s", err.text);
    wf_lock_free(lock);
}

/* A file server keeps the kernel's lock of a client that is gone. */
static void lock__of_a_machine_that_is_gone_may_still_be_held(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("kept", 0777), 0);
    put_lock("kept/lock", "n17", 0x12345678, 99, 200);
    const int held = open("kept/lock", O_RDONLY | O_CLOEXEC);
    assert_true(held >= 0 && flock(held, LOCK_EX) == 0);
    struct wf_lock *const lock = wf_lock_take("kept", &quiet, &err);
    if (!lock)
        fail_msg("%s", err.text);
    assert_int_equal(close(held), 0);
    wf_lock_free(lock);
}

static void lock__that_cannot_be_looked_at_is_not_lost(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("away", 0777), 0);
    struct wf_lock *const lock = wf_lock_take("away", &quiet, &err);
    assert_non_null(lock);
    assert_int_equal(rename("away", "moved"), 0);
    FILE *const file = fopen("away", "w"); /* not a folder: neither there nor missing */
    assert_true(file && fclose(file) == 0);
    assert_false(wf_lock_check(lock, &err));
    assert_non_null(strstr(err.text, "cannot look at the lock"));
    assert_int_equal(remove("away"), 0);
    assert_int_equal(rename("moved", "away"), 0);
    assert_true(wf_lock_check(lock, &err));
    wf_lock_free(lock);
}

static void lock__that_cannot_be_read_names_no_process_to_end(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("blank", 0777), 0);
    const int held = open("blank/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(held >= 0 && flock(held, LOCK_EX) == 0);
    assert_null(wf_lock_take("blank", &quiet, &err));
    assert_null(strstr(err.text, "kill 0"));
    assert_int_equal(close(held), 0);
}

static void lock__that_is_a_link_or_cannot_be_made_is_refused(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("odd", 0777), 0);
    assert_int_equal(symlink("../foreign", "odd/lock"), 0);
    assert_null(wf_lock_take("odd", &quiet, &err));
    assert_int_not_equal(access("foreign", F_OK), 0);
    err = (struct wf_err){ 0 };
    assert_null(wf_lock_take("no/such", &quiet, &err));
    assert_non_null(strstr(err.text, "No such file"));
}

static void put(const char *lead, const struct wf_process *p, long pid, const char *tail)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s.%08" PRIx32 "-%08" PRIx32 "-%ld-0.partial%s", lead,
                   p->kernel, p->numbers, pid, tail);
    FILE *const file = fopen(path, "w");
    assert_true(file && fclose(file) == 0);
}

static void sweep__takes_away_what_the_dead_left(void **state)
{
    assert_int_equal(mkdir("swept", 0777), 0);
    const struct wf_process me = wf_process_self();
    struct wf_process far = me;
    far.kernel ^= 1;
    const pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    put("swept/.a.png", &me, (long)gone, "");
    put("swept/.b.png", &me, (long)getpid(), "");
    put("swept/.c.png", &far, (long)gone, "");
    put("swept/film", &me, (long)gone, "");
    put("swept/.d", &me, (long)gone, ".txt");
    wf_folder_sweep("swept", false);
    assert_int_equal(count_files("swept", ".partial"), 3); /* all but the first */
    wf_folder_sweep("swept", true);
    assert_int_equal(count_files("swept", ".partial"), 0);
    assert_int_equal(count_files("swept", ".txt"), 1);
    wf_folder_sweep("no/such/folder", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock__is_one_process_at_a_time_and_names_it),
        cmocka_unit_test(lock__of_another_machine_holds_while_it_beats),
        cmocka_unit_test(lock__of_another_machine_is_waited_for),
        cmocka_unit_test(lock__of_a_machine_that_is_gone_may_still_be_held),
        cmocka_unit_test(lock__that_cannot_be_looked_at_is_not_lost),
        cmocka_unit_test(lock__that_cannot_be_read_names_no_process_to_end),
        cmocka_unit_test(lock__that_is_a_link_or_cannot_be_made_is_refused),
        cmocka_unit_test(sweep__takes_away_what_the_dead_left),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
