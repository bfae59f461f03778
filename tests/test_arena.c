#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"

static void blocks__are_zeroed_aligned_and_apart(void **state)
{
    struct wf_arena arena = { 0 };
    unsigned char *at[300];
    for (size_t i = 0; i < 300; i++) {
        at[i] = wf_arena_take(&arena, i);
        assert_int_equal((uintptr_t)at[i] % alignof(max_align_t), 0);
        for (size_t k = 0; k < i; k++)
            assert_int_equal(at[i][k], 0);
        memset(at[i], (int)(i % 255) + 1, i);
    }
    /* Nobody's bytes were written by a neighbour. */
    for (size_t i = 0; i < 300; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(at[i][k], (int)(i % 255) + 1);
    wf_arena_release(&arena);
}

static void a_block__larger_than_any_room_is_given(void **state)
{
    struct wf_arena arena = { 0 };
    char *small = wf_arena_take(&arena, 1);
    *small = 'a';
    const size_t bytes = (size_t)9 << 20;
    char *large = wf_arena_take(&arena, bytes);
    memset(large, 1, bytes);
    assert_int_equal(*small, 'a');
    wf_arena_release(&arena);
}

static void arrays__are_typed(void **state)
{
    struct wf_arena arena = { 0 };
    int64_t *cuts = wf_arena_array(&arena, 1000, int64_t);
    for (int i = 0; i < 1000; i++)
        cuts[i] = i;
    struct pair {
        double a, b;
    } *one = wf_arena_one(&arena, struct pair);
    one->b = 2;
    assert_int_equal(cuts[999], 999);
    wf_arena_release(&arena);
}

static void text__is_printed_and_copied(void **state)
{
    struct wf_arena arena = { 0 };
    assert_string_equal(wf_arena_printf(&arena, "enc%d.%s", 3, "weight"), "enc3.weight");
    char long_text[6000];
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    assert_string_equal(wf_arena_printf(&arena, "%s", long_text), long_text);
    assert_string_equal(wf_arena_copy(&arena, "name"), "name");
    assert_string_equal(wf_arena_copy(&arena, ""), "");
    wf_arena_release(&arena);
}

static void release__leaves_an_arena_that_can_be_used_again(void **state)
{
    struct wf_arena arena = { 0 };
    (void)wf_arena_take(&arena, 10);
    assert_non_null(arena.blocks);
    wf_arena_release(&arena);
    assert_null(arena.blocks);
    assert_non_null(wf_arena_take(&arena, 10));
    wf_arena_release(&arena);
}

static void grow__keeps_what_was_and_zeroes_what_is_new(void **state)
{
    int *items = NULL;
    size_t room = 0;
    for (size_t count = 0; count < 1000; count++) {
        WF_GROW(items, room, count);
        assert_true(room > count);
        assert_int_equal(items[count], 0);
        items[count] = (int)count + 1;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], i + 1);
    WF_GROW(items, room, 5000); /* more than twice */
    assert_true(room > 5000);
    assert_int_equal(items[5000], 0);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks__are_zeroed_aligned_and_apart),
        cmocka_unit_test(a_block__larger_than_any_room_is_given),
        cmocka_unit_test(arrays__are_typed),
        cmocka_unit_test(text__is_printed_and_copied),
        cmocka_unit_test(release__leaves_an_arena_that_can_be_used_again),
        cmocka_unit_test(grow__keeps_what_was_and_zeroes_what_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
