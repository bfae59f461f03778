/* Reports of runs that are written out by hand: good, cut short, hostile, empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "files.h"
#include "report/html.h"
#include "report/report.h"
#include "support_scratch.h"

static void put(const char *path, const void *data, size_t bytes)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* A run folder with this log; what was there before goes. */
static void run_of(const char *folder, const char *log)
{
    (void)mkdir(folder, 0777);
    struct wf_buffer path = { 0 };
    wf_buffer_printf(&path, "%s/log.jsonl", folder);
    put(path.data, log, strlen(log));
    wf_buffer_release(&path);
}

/* The text of the report that is written for it. The caller frees. */
static char *report_of(const char *folder)
{
    struct wf_err err = { 0 };
    if (!wf_report_write(folder, &err))
        fail_msg("%s", err.text);
    struct wf_buffer path = { 0 };
    wf_buffer_printf(&path, "%s/report.html", folder);
    size_t size = 0;
    unsigned char *const bytes = slurp(path.data, &size);
    wf_buffer_release(&path);
    assert_non_null(bytes);
    assert_true(size < WF_REPORT_BYTES_MAX);
    char *const text = calloc(size + 1, 1);
    assert_non_null(text);
    memcpy(text, bytes, size);
    assert_int_equal(strlen(text), size); /* no zero within */
    free(bytes);
    for (size_t i = 0, n; i < size; i += n) {
        n = wf_utf8_character(text + i, size - i);
        assert_true(n > 0);
    }
    return text;
}

static void assert_says(const char *page, const char *words)
{
    if (!strstr(page, words))
        fail_msg("the report does not say '%s'", words);
}

static void assert_silent(const char *page, const char *words)
{
    if (strstr(page, words))
        fail_msg("the report says '%s'", words);
}

#define START                                                                                           \
    "{\"event\":\"start\",\"time\":\"2026-10-23T10:11:12Z\",\"model\":\"unet\",\"parameters\":7762465," \
    "\"mesh\":\"data=1,space=2x1\",\"ranks\":2,\"device\":\"cpu\",\"precision\":\"f32\","               \
    "\"classes\":[\"ground\",\"nucleus\"],\"per_rank\":[{\"rank\":0,\"planned_bytes\":1048576,"         \
    "\"used_bytes\":1048576},{\"rank\":1,\"planned_bytes\":2097152,\"used_bytes\":2202010}]}\n"
#define STEP(n, loss)                                                                              \
    "{\"event\":\"step\",\"step\":" n ",\"epoch\":1,\"loss\":" loss                                \
    ",\"lr\":0.001,\"mpx_per_s\":4.5,\"ms\":100,\"compute_ms\":70,\"comm_ms\":20,\"input_ms\":5}\n"
#define EPOCH(n, step, best)                                                                       \
    "{\"event\":\"epoch\",\"epoch\":" n ",\"step\":" step                                          \
    ",\"train_loss\":0.5,\"val\":{\"loss\":0.4,"                                                   \
    "\"iou\":[0.9,0.6],\"mean_iou\":0.75,\"dice\":[0.947,0.75],\"accuracy\":0.93},\"best\":" best  \
    "}\n"
#define END                                                                                        \
    "{\"event\":\"end\",\"epochs\":1,\"steps\":2,\"loss\":0.25,\"metric\":{\"mean_iou\":0.75},"    \
    "\"mpx_per_s\":4.5,\"stopped\":\"done\"}\n"

static void report__has_every_section_with_the_numbers_of_the_log(void **state)
{
    run_of("good", START STEP("1", "0.5") STEP("2", "0.25") EPOCH("1", "2", "true") END);
    put("good/config.yaml", "train: { lr: 0.001 }\n", 21);
    char *const page = report_of("good");
    static const char *const words[] = {
        "<!doctype html>",
        "<h1>good",
        ">finished<",
        "unet",
        "7,762,465",
        "data=1,space=2x1",
        "2 ranks",
        "2026-10-23T10:11:12Z",
        "id=\"curves\"",
        "id=\"classes\"",
        "id=\"samples\"",
        "id=\"memory\"",
        "id=\"time\"",
        "id=\"setup\"",
        "<b>Loss</b>",
        "<b>Validation</b>",
        "<b>Learning rate</b>",
        "<b>Throughput</b>",
        "<b>Step time</b>",
        /* mean IoU, its class, memory and its difference from the plan */
        "0.7500",
        "nucleus",
        "<b>0.600</b>",
        "1.00 MiB",
        "2.10 MiB",
        "+5.0%",
        /* 70, 20 and 5 of 100 ms, and what is left */
        "compute <b>70.0 ms</b> <small>70.0%",
        "communication <b>20.0 ms</b> <small>20.0%",
        "input <b>5.00 ms</b>",
        "other <b>5.00 ms</b>",
        "train: { lr: 0.001 }",
        "data-y=\"0.5,0.25\"",
        "prefers-color-scheme: dark",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_says(page, words[i]);
    /* nothing comes from elsewhere */
    assert_silent(page, "http:");
    assert_silent(page, "https:");
    assert_silent(page, "<link rel=\"stylesheet");
    assert_silent(page, "class=\"alert\"");
    free(page);
    assert_int_equal(count_files("good", ".widefield"), 1);
    assert_int_equal(count_files("good", ".partial"), 0);
}

static void report__written_again_is_the_same(void **state)
{
    run_of("again", START STEP("1", "0.5") END);
    char *const first = report_of("again"), *const second = report_of("again");
    assert_string_equal(first, second);
    assert_int_equal(count_files("again", ".widefield"), 1);
    free(first);
    free(second);
}

#define EVIL                                                                                       \
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\\"'&\\u0001\xff\xc0\xaf"

static void strings__of_the_log_are_never_markup(void **state)
{
    run_of("evil\"'<b>&",
           "{\"event\":\"start\",\"model\":\"" EVIL "\",\"mesh\":\"" EVIL "\",\"device\":\"" EVIL
           "\",\"precision\":\"" EVIL "\",\"time\":\"" EVIL "\",\"classes\":[\"" EVIL "\",\"b\"],"
           "\"palette\":[\"red;background:url(//x)\",\"#12345g\"],\"" EVIL "\":\"" EVIL "\","
           "\"environment\":{\"" EVIL "\":\"" EVIL
           "\"}}\n" EPOCH("1", "1", "true") "{\"event\":\"confusion\",\"classes\":[\"" EVIL
                                            "\",\"b\"],\"counts\":[[1,2],[3,4]]}\n"
                                            "{\"event\":\"sample\",\"name\":\"" EVIL
                                            "\",\"mean_iou\":0.5,\"image\":\"" EVIL "\"}\n"
                                            "{\"event\":\"end\",\"stopped\":\"" EVIL "\"}\n");
    put("evil\"'<b>&/config.yaml", EVIL, strlen(EVIL));
    char *const page = report_of("evil\"'<b>&");
    assert_silent(page, "<script>alert");
    assert_silent(page, "<img src=x");
    assert_silent(page, "<b>&</");
    assert_silent(page, "url(//x)");
    assert_silent(page, "#12345g");
    assert_silent(page, "\x01");
    assert_says(page, "&lt;/script&gt;&lt;script&gt;alert(1)");
    assert_says(page, "&quot;&#39;&amp;\xEF\xBF\xBD"); /* the control character is replaced */
    assert_says(page, "evil&quot;&#39;&lt;b&gt;&amp;");
    const char *const script = strstr(page, "<script>");
    assert_non_null(script);
    assert_null(strstr(script + 1, "<script"));
    free(page);
}

static void log__cut_at_any_byte_gives_a_report(void **state)
{
    static const char whole[] =
        START STEP("1", "0.5") STEP("2", "0.25") EPOCH("1", "2", "true") END;
    for (size_t length = 0; length < sizeof whole; length += 13) {
        char part[sizeof whole];
        memcpy(part, whole, length);
        part[length] = '\0';
        run_of("cut", part);
        char *const page = report_of("cut");
        assert_says(page, ">unfinished<");
        assert_says(page, "</html>");
        free(page);
    }
    run_of("cut", START STEP("1", "0.5") "{\"event\":\"step\",\"st");
    char *const page = report_of("cut");
    assert_says(page, "1 line of log.jsonl was damaged");
    free(page);
}

static void line__glued_to_a_cut_one_still_counts(void **state)
{
    run_of("glued", START STEP("1", "0.5") "{\"event\":\"step\",\"st" STEP("2", "0.125"));
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "glued/log.jsonl", &err));
    assert_int_equal(log.n_steps, 2);
    assert_true(log.steps[1].loss == 0.125);
    assert_int_equal(log.damaged, 1);
    wf_runlog_release(&log);
}

static void losses__that_are_no_numbers_are_gaps_and_are_told(void **state)
{
    run_of("nan", START STEP("1", "0.5") STEP("2", "NaN") STEP("3", "null") STEP("4", "-nan")
                      STEP("5", "Infinity") STEP("6", "inf") STEP("7", "0.25") STEP("8", "1e999"));
    char *const page = report_of("nan");
    assert_says(page, "not a finite number in 6 of 8 logged steps, first in step 2");
    assert_says(page, "data-y=\"0.5,,,,,,0.25,\"");
    assert_silent(page, "damaged");
    for (const char *at = page; (at = strstr(at, " d=\"")); at++) {
        const size_t n = strcspn(at + 4, "\"");
        for (size_t i = 0; i < n; i++)
            assert_true(strchr("MLHh0123456789. -", at[4 + i]));
    }
    free(page);
    run_of("nan", START STEP("1", "NaN") STEP("2", "NaN"));
    free(report_of("nan"));
}

static void numbers__that_make_no_sense_do_no_harm(void **state)
{
    run_of(
        "wild",
        "{\"event\":\"start\",\"parameters\":-1e308,\"ranks\":1e300,\"per_rank\":[{\"rank\":1e99,"
        "\"planned_bytes\":-5,\"used_bytes\":1e308},7,null,{}]}\n"
        "[1,2]\n7\n\"text\"\n{}\n{\"event\":7}\n{\"event\":\"unknown\"}\n\n"
        "{\"event\":\"step\",\"step\":1e300,\"loss\":1e308,\"ms\":1e308,\"mpx_per_s\":-1e308}\n"
        "{\"event\":\"step\",\"step\":-3,\"loss\":\"x\",\"ms\":-1,\"lr\":[1]}\n"
        "{\"event\":\"step\",\"step\":9007199254740991,\"loss\":100000000000000000000,\"lr\":1e-300}\n"
        "{\"event\":\"step\",\"step\":9007199254740992,\"loss\":100000000000000016384,\"lr\":1e-300}\n"
        "{\"event\":\"epoch\",\"epoch\":1e300,\"val\":{\"iou\":[2,-3,\"x\"],\"dice\":7,\"mean_iou\":{}}}\n"
        "{\"event\":\"epoch\",\"epoch\":2,\"val\":[1]}\n"
        "{\"event\":\"confusion\",\"counts\":[[1,2],[3]]}\n"
        "{\"event\":\"sample\"}\n{\"event\":\"sample\",\"image\":7,\"name\":[]}\n"
        "{\"event\":\"end\",\"mpx_per_s\":1e308,\"metric\":7}\n");
    free(report_of("wild"));
}

static void log__without_events_gives_a_report(void **state)
{
    run_of("empty", "");
    char *page = report_of("empty");
    assert_says(page, "The log has no step yet");
    free(page);
    run_of("empty", START); /* zero epochs */
    page = report_of("empty");
    assert_says(page, "No validation has been done yet");
    assert_says(page, "The log has no times");
    free(page);
    run_of("empty", START "{\"event\":\"step\",\"step\":1,\"loss\":2}\n"
                          "{\"event\":\"epoch\",\"epoch\":1,\"step\":1,\"train_loss\":2}\n");
    page = report_of("empty"); /* the key of a curve that is not there is not shown */
    assert_says(page, "training</span>");
    assert_silent(page, "validation</span>");
    free(page);
}

static void steps__done_again_after_a_resume_replace_the_old(void **state)
{
    run_of("resumed", START STEP("1", "0.9") STEP("2", "0.8") EPOCH("1", "2", "true")
                          STEP("3", "0.7") EPOCH("2", "3", "true") END
           "{\"event\":\"resume\",\"step\":2}\n" STEP("3", "0.6") STEP("4", "0.5"));
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "resumed/log.jsonl", &err));
    assert_int_equal(log.n_steps, 4);
    assert_true(log.steps[2].loss == 0.6 && log.steps[3].step == 4);
    assert_int_equal(log.n_epochs, 1); /* the second was after step 3: it is done again as well */
    assert_null(log.end);
    assert_int_equal(log.resumed, 1);
    /* 10:11:12 and four steps of 100 ms */
    assert_true(log.steps[3].time > 1792750272.39 && log.steps[3].time < 1792750272.41);
    assert_true(log.steps[3].elapsed > 0.39 && log.steps[3].elapsed < 0.41);
    wf_runlog_release(&log);
}

static void resume__on_another_mesh_is_what_the_head_tells(void **state)
{
    run_of(
        "mesh",
        START STEP(
            "1",
            "0.9") "{\"event\":\"resume\",\"time\":\"2026-10-24T00:00:00Z\",\"model\":\"unet\","
                   "\"mesh\":\"space=7x1\",\"ranks\":7,\"per_rank\":[{\"rank\":0,\"planned_bytes\":3145728,"
                   "\"used_bytes\":3145728}]}\n"
                   "{\"event\":\"step\",\"step\":2,\"loss\":0.5,\"ms\":100,"
                   "\"time\":\"2026-10-24T02:00:05+02:00\"}\n"
                   "{\"event\":\"end\",\"seconds\":7200}\n");
    char *const page = report_of("mesh");
    assert_says(page, "space=7x1 · 7 ranks");
    assert_says(page, "2026-10-23T10:11:12Z</p>"); /* begun then */
    assert_says(page, "3.00 MiB");
    assert_says(page, "resumed</td><td>1 time<");
    assert_says(page, "2 h 0 min");
    free(page);
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "mesh/log.jsonl", &err));
    assert_true(log.steps[1].time == 1792800005); /* 2026-10-24T00:00:05Z */
    wf_runlog_release(&log);
}

static const unsigned char png_lead[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n' };

static void put_png(const char *path, size_t bytes)
{
    char *const data = calloc(bytes, 1);
    assert_non_null(data);
    memcpy(data, png_lead, sizeof png_lead);
    put(path, data, bytes);
    free(data);
}

static void samples__come_worst_first_and_only_from_the_folder(void **state)
{
    run_of(
        "samples", START
        "{\"event\":\"sample\",\"name\":\"fine\",\"mean_iou\":0.9,\"image\":\"samples/a..b.png\"}\n"
        "{\"event\":\"sample\",\"name\":\"unknown\",\"image\":\"samples/a.png\"}\n"
        "{\"event\":\"sample\",\"name\":\"poor\",\"mean_iou\":0.2,\"image\":\"../secret.png\","
        "\"label\":\"/etc/passwd\",\"prediction\":\"log.jsonl\"}\n" END);
    (void)mkdir("samples/samples", 0777);
    put_png("samples/samples/a.png", 30);
    put_png("samples/samples/a..b.png", 30);
    put_png("secret.png", 42);
    char *const page = report_of("samples");
    const char *const poor = strstr(page, ">poor<"), *const fine = strstr(page, ">fine<"),
                      *const unknown = strstr(page, ">unknown<");
    assert_true(poor && fine && unknown && poor < fine && fine < unknown);
    int shown = 0;
    for (const char *at = page; (at = strstr(at, "data:image/png;base64,iVBORw0KGgoAAAAA")); at++)
        shown++;
    assert_int_equal(shown, 2);
    free(page);
}

static void size__stays_under_the_limit_with_more_samples_than_fit(void **state)
{
    struct wf_buffer log = { 0 };
    wf_buffer_text(&log, START);
    for (int i = 0; i < 40; i++)
        wf_buffer_printf(
            &log,
            "{\"event\":\"sample\",\"name\":\"s%d\",\"mean_iou\":0.%02d,\"image\":\"a.png\","
            "\"label\":\"a.png\",\"prediction\":\"a.png\"}\n",
            i, i);
    for (int i = 1; i <= 30000; i++)
        wf_buffer_printf(&log, STEP("%d", "0.%d"), i, 1000 + i % 997);
    run_of("large", log.data);
    put_png("large/a.png", 120'000);
    char *page = report_of("large");         /* which looks at the size */
    assert_says(page, "The 7 worst of 40;"); /* 7 x 3 x 120,000 is the most under 2,600,000 */
    free(page);
    put_png("large/a.png", 1'200'000); /* one that is too large by itself */
    page = report_of("large");
    assert_says(page, "not there");
    assert_silent(page, "data:image/png");
    free(page);
    wf_buffer_release(&log);
}

static void confusion__is_shown_by_share_of_its_row(void **state)
{
    run_of(
        "confused",
        "{\"event\":\"start\",\"classes\":[\"cat\",\"dog\"]}\n"
        "{\"event\":\"confusion\",\"classes\":[\"cat\",\"dog\"],\"counts\":[[30,10],[20,60]]}\n");
    char *const page = report_of("confused");
    assert_says(page, ">75.0%<small>30<");
    assert_says(page, ">25.0%<small>10<");
    assert_says(page, "precision");
    assert_says(page, "<b>0.600</b>"); /* 30 of 50 that were taken for a cat */
    free(page);
}

static void folder__that_is_no_run_is_an_error_with_words(void **state)
{
    struct wf_err err = { 0 };
    assert_false(wf_report_write("nowhere", &err));
    assert_non_null(strstr(err.text, "'nowhere'"));
    (void)mkdir("bare", 0777);
    err = (struct wf_err){ 0 };
    assert_false(wf_report_write("bare", &err));
    assert_int_equal(err.code, WF_ERR_INPUT);
    assert_non_null(strstr(err.text, "'bare' is no run folder: it has no log.jsonl"));
}

static void report__on_a_full_disk_leaves_the_old_one(void **state)
{
    run_of("full", START STEP("1", "0.5"));
    char *const before = report_of("full");
    run_of("full", START STEP("1", "0.5") STEP("2", "0.25"));
    limit_files(4096);
    struct wf_err err = { 0 };
    const bool ok = wf_report_write("full", &err);
    limit_files(0);
    assert_false(ok);
    assert_non_null(strstr(err.text, "report.html"));
    assert_int_equal(count_files("full", ".partial"), 0);
    size_t size = 0;
    unsigned char *const now = slurp("full/report.html", &size);
    assert_int_equal(size, strlen(before));
    assert_memory_equal(now, before, size);
    free(now);
    free(before);
}

static void base64__is_that_of_rfc_4648(void **state)
{
    static const char *const pairs[][2] = { { "", "" },
                                            { "f", "Zg==" },
                                            { "fo", "Zm8=" },
                                            { "foo", "Zm9v" },
                                            { "foob", "Zm9vYg==" },
                                            { "fooba", "Zm9vYmE=" },
                                            { "foobar", "Zm9vYmFy" } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct wf_buffer b = { 0 };
        wf_buffer_base64(&b, pairs[i][0], strlen(pairs[i][0]));
        assert_string_equal(b.data, pairs[i][1]);
        wf_buffer_release(&b);
    }
}

static void utf8__is_told_from_what_only_looks_like_it(void **state)
{
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        { "a", 1 },        { "\xC3\xA9", 2 }, { "\xE2\x82\xAC", 3 },     { "\xF0\x9F\x99\x82", 4 },
        { "\x80", 0 },     { "\xC0\xAF", 0 }, { "\xE0\x80\x80", 0 },     { "\xED\xA0\x80", 0 },
        { "\xC3", 0 },     { "\xE2\x82", 0 }, { "\xF4\x90\x80\x80", 0 }, { "\xF5\x80\x80\x80", 0 },
        { "\xC3\x28", 0 }, { "\xFF", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(wf_utf8_character(cases[i].text, strlen(cases[i].text)), cases[i].n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report__has_every_section_with_the_numbers_of_the_log),
        cmocka_unit_test(report__written_again_is_the_same),
        cmocka_unit_test(strings__of_the_log_are_never_markup),
        cmocka_unit_test(log__cut_at_any_byte_gives_a_report),
        cmocka_unit_test(line__glued_to_a_cut_one_still_counts),
        cmocka_unit_test(losses__that_are_no_numbers_are_gaps_and_are_told),
        cmocka_unit_test(numbers__that_make_no_sense_do_no_harm),
        cmocka_unit_test(log__without_events_gives_a_report),
        cmocka_unit_test(steps__done_again_after_a_resume_replace_the_old),
        cmocka_unit_test(resume__on_another_mesh_is_what_the_head_tells),
        cmocka_unit_test(samples__come_worst_first_and_only_from_the_folder),
        cmocka_unit_test(size__stays_under_the_limit_with_more_samples_than_fit),
        cmocka_unit_test(confusion__is_shown_by_share_of_its_row),
        cmocka_unit_test(folder__that_is_no_run_is_an_error_with_words),
        cmocka_unit_test(report__on_a_full_disk_leaves_the_old_one),
        cmocka_unit_test(base64__is_that_of_rfc_4648),
        cmocka_unit_test(utf8__is_told_from_what_only_looks_like_it),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
