/* The timeline of a step: what it adds up to, and what its two forms hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "report/timeline.h"

/* Rank 0 computes for 3.5 s, with two things in flight that overlap, and waits for 1 s of them and
 * moves them for half a second. */
static const struct wf_event events[] = {
    { 0, 1.5, 0, WF_EVENT_FORWARD, "conv a" },  { 1.5, 2, 0, WF_EVENT_ADVANCE, "progress" },
    { 1, 4, 0, WF_EVENT_FETCH, "fetch \"a\"" }, { 2, 4, 0, WF_EVENT_BACKWARD, "b<1>" },
    { 3, 5, 0, WF_EVENT_SUM, "sum w" },         { 4, 5, 0, WF_EVENT_WAIT, "sum w" },
    { 0, 3, 1, WF_EVENT_FORWARD, "conv a" },
};
static const struct wf_timeline timeline = {
    .title = "two ranks & more", .ranks = 2, .events = events, .count = 7
};

static void sums__count_what_overlaps_once(void **state)
{
    (void)state;
    const struct wf_timeline_sums a = wf_timeline_sums(&timeline, 0);
    assert_float_equal(a.step, 5, 1e-12);
    assert_float_equal(a.compute, 3.5, 1e-12);
    assert_float_equal(a.wait, 1, 1e-12);
    assert_float_equal(a.flight, 4, 1e-12); /* from 1 to 5 */
    assert_float_equal(a.hidden, 2.5, 1e-12);
    const struct wf_timeline_sums b = wf_timeline_sums(&timeline, 1);
    assert_float_equal(b.flight, 0, 1e-12);
    assert_float_equal(b.step, 3, 1e-12);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

static void json__has_every_event_and_no_broken_text(void **state)
{
    (void)state;
    struct wf_arena arena = { 0 };
    const char *text = wf_timeline_json(&arena, &timeline);
    assert_int_equal(count(text, "\"ph\":\"X\""), 5);
    assert_int_equal(count(text, "\"ph\":\"b\""), 2);
    assert_int_equal(count(text, "\"ph\":\"e\""), 2);
    assert_int_equal(count(text, "fetch _a_"), 2);
    assert_int_equal(count(text, "\"ts\":4000000.000,\"dur\":1000000.000"), 1);
    wf_arena_release(&arena);
}

static void svg__has_a_bar_for_each_and_its_share_of_the_waiting(void **state)
{
    (void)state;
    struct wf_arena arena = { 0 };
    const char *text = wf_timeline_svg(&arena, &timeline);
    assert_int_equal(count(text, "<title>"), 7);
    assert_int_equal(count(text, "b&#60;1&#62;"), 1);
    assert_int_equal(count(text, "two ranks &#38; more"), 1);
    assert_int_equal(count(text, "rank 0: 62% hidden"), 1);
    wf_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums__count_what_overlaps_once),
        cmocka_unit_test(json__has_every_event_and_no_broken_text),
        cmocka_unit_test(svg__has_a_bar_for_each_and_its_share_of_the_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
