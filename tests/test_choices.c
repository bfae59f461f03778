/* What was found out about kernels, kept in a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/choices.h"

static const char *const path = "folder/of/choices";

static void long_ones__have_a_file_each(void **state)
{
    (void)state;
    struct wf_choices *c = wf_choices_new("long/choices");
    size_t size = 0;
    assert_null(wf_choices_load(c, "a key", &size));
    wf_choices_store(c, "a key", "with\nlines", 10);
    wf_choices_store(c, "another", "x", 1);
    wf_choices_free(c);
    c = wf_choices_new("long/choices");
    char *text = wf_choices_load(c, "a key", &size);
    assert_non_null(text);
    assert_int_equal(size, 10);
    assert_string_equal(text, "with\nlines");
    free(text);
    wf_choices_store(c, "a key", "new", 3);
    text = wf_choices_load(c, "a key", &size);
    assert_string_equal(text, "new");
    free(text);
    assert_null(wf_choices_load(c, "a ke", &size));
    wf_choices_free(c);
    c = wf_choices_new("");
    wf_choices_store(c, "a key", "nowhere", 7);
    assert_null(wf_choices_load(c, "a key", &size));
    wf_choices_free(c);
}

static void choices__are_found_by_the_next_run(void **state)
{
    struct wf_choices *c = wf_choices_new(path);
    assert_null(wf_choices_find(c, "a key"));
    wf_choices_put(c, "a key", "one");
    wf_choices_put(c, "a key", "another");
    assert_string_equal(wf_choices_find(c, "a key"), "another");
    wf_choices_free(c);
    c = wf_choices_new(path);
    assert_string_equal(wf_choices_find(c, "a key"), "another");
    wf_choices_free(c);
    assert_int_equal(unlink(path), 0);
}

static void choices__of_ranks_that_share_a_file_are_all_kept(void **state)
{
    struct wf_choices *first = wf_choices_new(path), *second = wf_choices_new(path);
    wf_choices_put(first, "lib a", WF_CHOICE_RIGHT);
    wf_choices_put(second, "lib b", WF_CHOICE_WRONG);
    wf_choices_free(first);
    wf_choices_free(second);
    struct wf_choices *const all = wf_choices_new(path);
    assert_int_equal(wf_choices_count(all, "lib", WF_CHOICE_RIGHT), 1);
    assert_int_equal(wf_choices_count(all, "lib", WF_CHOICE_WRONG), 1);
    assert_int_equal(wf_choices_count(all, "other", WF_CHOICE_WRONG), 0);
    wf_choices_free(all);
    assert_int_equal(unlink(path), 0);
}

/* Written by many processes at the same moment. */
static void choices__that_are_written_at_once_are_all_kept(void **state)
{
    enum { WRITERS = 6, ROUNDS = 10, BEFORE = 500 };
    char key[64];
    pid_t writers[WRITERS];
    struct wf_choices *const before = wf_choices_new(path);
    for (int i = 0; i < BEFORE; i++) {
        (void)snprintf(key, sizeof key, "before %d", i);
        wf_choices_put(before, key, WF_CHOICE_RIGHT);
    }
    wf_choices_free(before);
    for (int w = 0; w < WRITERS; w++) {
        writers[w] = fork();
        assert_true(writers[w] >= 0);
        for (int i = 0; writers[w] == 0 && i < ROUNDS; i++) {
            struct wf_choices *const c = wf_choices_new(path);
            (void)snprintf(key, sizeof key, "writer %d %d", w, i);
            wf_choices_put(c, key, WF_CHOICE_WRONG);
            wf_choices_free(c);
        }
        if (writers[w] == 0)
            _exit(0);
    }
    for (int w = 0; w < WRITERS; w++)
        assert_int_equal(waitpid(writers[w], NULL, 0), writers[w]);
    struct wf_choices *const all = wf_choices_new(path);
    assert_int_equal(wf_choices_count(all, "before", WF_CHOICE_RIGHT), BEFORE);
    assert_int_equal(wf_choices_count(all, "writer", WF_CHOICE_WRONG), WRITERS * ROUNDS);
    wf_choices_free(all);
    assert_int_equal(unlink(path), 0);
}

static void choices__are_bounded_and_the_oldest_go_first(void **state)
{
    enum { MORE = 100 };
    char key[64];
    struct wf_choices *c = wf_choices_new(path);
    for (int i = 0; i < WF_CHOICES_KEPT + MORE; i++) {
        (void)snprintf(key, sizeof key, "number %d", i);
        wf_choices_put(c, key, WF_CHOICE_RIGHT);
    }
    wf_choices_free(c);
    c = wf_choices_new(path);
    assert_int_equal(wf_choices_count(c, "number", WF_CHOICE_RIGHT), WF_CHOICES_KEPT);
    (void)snprintf(key, sizeof key, "number %d", MORE - 1);
    assert_null(wf_choices_find(c, key));
    (void)snprintf(key, sizeof key, "number %d", MORE);
    assert_non_null(wf_choices_find(c, key));
    wf_choices_free(c);
    assert_int_equal(unlink(path), 0);
}

static void choices__without_a_file_or_with_a_damaged_one_start_anew(void **state)
{
    struct wf_choices *c = wf_choices_new("");
    wf_choices_put(c, "key", "value");
    wf_choices_free(c);
    FILE *const file = fopen("damaged", "w");
    assert_non_null(file);
    assert_true(fputs("no tab\nkey\tvalue\nkey without an end\tva", file) >= 0);
    assert_int_equal(fclose(file), 0);
    c = wf_choices_new("damaged");
    assert_string_equal(wf_choices_find(c, "key"), "value");
    assert_null(wf_choices_find(c, "key without an end"));
    wf_choices_free(c);
    wf_choices_free(wf_choices_new("no/such/folder"));
    assert_int_not_equal(access("no", F_OK), 0);
}

static void choices__in_a_folder_have_a_file_there(void **state)
{
    assert_int_equal(mkdir("cache", 0700), 0);
    struct wf_choices *c = wf_choices_new("cache");
    wf_choices_put(c, "key", "value");
    wf_choices_free(c);
    c = wf_choices_new("cache/kernels");
    assert_string_equal(wf_choices_find(c, "key"), "value");
    wf_choices_free(c);
    assert_int_equal(unlink("cache/kernels") | unlink("cache/kernels.lock"), 0);
    assert_int_equal(rmdir("cache"), 0);
}

static void choices__in_a_folder_that_is_not_there_make_it(void **state)
{
    struct wf_choices *c = wf_choices_new("deep/cache/");
    wf_choices_put(c, "key", "value");
    wf_choices_free(c);
    c = wf_choices_new("deep/cache");
    assert_string_equal(wf_choices_find(c, "key"), "value");
    wf_choices_free(c);
    assert_int_equal(unlink("deep/cache/kernels") | unlink("deep/cache/kernels.lock"), 0);
    assert_int_equal(rmdir("deep/cache") | rmdir("deep"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices__are_found_by_the_next_run),
        cmocka_unit_test(long_ones__have_a_file_each),
        cmocka_unit_test(choices__of_ranks_that_share_a_file_are_all_kept),
        cmocka_unit_test(choices__that_are_written_at_once_are_all_kept),
        cmocka_unit_test(choices__are_bounded_and_the_oldest_go_first),
        cmocka_unit_test(choices__in_a_folder_have_a_file_there),
        cmocka_unit_test(choices__in_a_folder_that_is_not_there_make_it),
        cmocka_unit_test(choices__without_a_file_or_with_a_damaged_one_start_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
