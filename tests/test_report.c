/* What reports show. What is looked at is the data that the page's script draws. */
#include <unistd.h>

#include "report_pages.h"
#include "support_scratch.h"

static void report__has_all_that_the_log_says(void **state)
{
    run_of("good", START STEP("1", "0.5") STEP("2", "0.25") EPOCH("1", "2", "true") END);
    put("good/config.yaml", "train: { lr: 0.001 }\n", 21);
    put("good/timeline.svg", "<svg xmlns=\"...\"/>", 18);
    char *const page = report_of("good");
    cJSON *const run = data_in(page);
    assert_text(run, "name", "good");
    assert_text(run, "state", "done");
    assert_text(run, "begun", "2026-10-23T10:11:12Z");
    assert_text(run, "facts.model", "unet");
    assert_text(run, "facts.mesh", "data=1,space=2x1");
    assert_number(run, "facts.ranks", 2);
    assert_number(run, "figures.mean_iou", 0.75);
    assert_number(run, "figures.accuracy", 0.93);
    assert_number(run, "figures.val_loss", 0.4);
    assert_number(run, "figures.train_loss", 0.5);
    assert_number(run, "figures.steps", 2);
    assert_number(run, "figures.epochs", 1);
    assert_number(run, "figures.seconds", 0.2); /* two steps of 100 ms */
    assert_number(run, "figures.mpx_per_s", 4.5);
    assert_number(run, "figures.parameters", 7762465);
    assert_number(run, "figures.used_bytes", 2202010);
    assert_number(run, "steps.loss.x.1", 2);
    assert_number(run, "steps.loss.y.0", 0.5);
    assert_number(run, "steps.loss.y.1", 0.25);
    assert_number(run, "steps.lr.y.1", 0.001);
    assert_number(run, "epochs.val_loss.x.0", 2);
    assert_number(run, "epochs.val_loss.y.0", 0.4);
    assert_number(run, "epoch_rows.0.accuracy", 0.93);
    assert_number(run, "mean_ms.ms", 100);
    assert_number(run, "mean_ms.compute_ms", 70);
    assert_number(run, "mean_ms.comm_ms", 20);
    assert_number(run, "mean_ms.input_ms", 5);
    assert_number(run, "seconds_by.steps", 0.2);
    assert_text(run, "classes.1", "nucleus");
    assert_number(run, "scores.iou.1", 0.6);
    assert_number(run, "best_epoch", 1);
    assert_number(run, "ranks.1.planned_bytes", 2097152);
    assert_text(run, "config", "train: { lr: 0.001 }\n");
    assert_text(run, "timeline", "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iLi4uIi8+");
    assert_null(find(run, "figures.bad_losses"));
    assert_null(find(run, "figures.damaged_lines"));
    assert_null(find(run, "figures.lost_lines"));
    cJSON_Delete(run);
    /* without scripts, too */
    assert_says(page, "<noscript>");
    assert_says(page, "<td>mean_iou</td><td>0.75</td>");
    assert_says(page, "<td>parameters</td><td>7762465</td>");
    assert_says(page, "<td>state</td><td>done</td>");
    assert_says(page, "<td>mesh</td><td>data=1,space=2x1</td>");
    assert_says(page, "prefers-color-scheme: dark");
    /* nothing comes from elsewhere */
    assert_silent(page, "https:");
    static const char namespace[] = "http://www.w3.org/2000/svg"; /* a name, not an address */
    for (const char *at = page; (at = strstr(at, "http:")); at++)
        assert_memory_equal(at, namespace, sizeof namespace - 1);
    assert_silent(page, "<link rel=\"stylesheet");
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
    cJSON *const run = data_of("samples");
    assert_text(run, "samples.0.name", "poor");
    assert_text(run, "samples.1.name", "fine");
    assert_text(run, "samples.2.name", "unknown");
    assert_number(run, "samples.0.mean_iou", 0.2);
    assert_null(find(run, "samples.0.image"));
    assert_null(find(run, "samples.0.label"));
    assert_null(find(run, "samples.0.prediction"));
    static const char lead[] = "data:image/png;base64,iVBORw0KGgoAAAAA";
    assert_memory_equal(cJSON_GetStringValue(find(run, "samples.1.image")), lead, sizeof lead - 1);
    assert_memory_equal(cJSON_GetStringValue(find(run, "samples.2.image")), lead, sizeof lead - 1);
    cJSON_Delete(run);
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
    cJSON *run = data_of("large");               /* which looks at the size */
    assert_int_equal(length(run, "samples"), 7); /* 7 x 3 x 120,000 is the most under 2,600,000 */
    assert_number(run, "n_samples", 40);
    assert_text(run, "samples.6.name", "s6");
    cJSON_Delete(run);
    put_png("large/a.png", 1'200'000); /* one that is too large by itself */
    run = data_of("large");
    assert_int_equal(length(run, "samples"), 24);
    assert_null(find(run, "samples.0.image"));
    cJSON_Delete(run);
    wf_buffer_release(&log);
}

/* 100,000 steps with one peak and one dip, each a single step wide. */
static void curve__of_a_long_run_is_thinned_and_keeps_its_extremes(void **state)
{
    struct wf_buffer log = { 0 };
    wf_buffer_text(&log, START);
    for (int i = 1; i <= 100'000; i++)
        wf_buffer_printf(&log, "{\"event\":\"step\",\"step\":%d,\"loss\":%s,\"lr\":%d}\n", i,
                         i == 31'416   ? "7"
                         : i == 62'832 ? "-3"
                                       : "0.5",
                         i);
    run_of("thin", log.data);
    wf_buffer_release(&log);
    cJSON *const run = data_of("thin");
    const int n = length(run, "steps.loss.y");
    assert_int_equal(length(run, "steps.loss.x"), n);
    assert_true(n >= 360 && n <= 720);
    double most = 0, least = 0, before = 0;
    const cJSON *const x = find(run, "steps.loss.x"), *y;
    int i = 0;
    cJSON_ArrayForEach(y, find(run, "steps.loss.y"))
    {
        const double at = cJSON_GetArrayItem(x, i++)->valuedouble;
        assert_true(at > before);
        before = at;
        most = y->valuedouble == 7 ? at : most;
        least = y->valuedouble == -3 ? at : least;
    }
    assert_true(most == 31'416 && least == 62'832);
    assert_int_equal(length(run, "steps.lr.y"), 720); /* the ends of each stretch */
    assert_number(run, "steps.lr.x.719", 100'000);
    assert_number(run, "figures.steps", 100'000);
    cJSON_Delete(run);
}

/* A log that holds more than a page can. */
static void texts__and_lists_without_end_are_cut(void **state)
{
    struct wf_buffer log = { 0 };
    wf_buffer_text(&log, "{\"event\":\"start\",\"model\":\"");
    for (int i = 0; i < 100'000; i++)
        wf_buffer_text(&log, "<&>");
    wf_buffer_text(&log, "\",\"classes\":[\"a\"");
    for (int i = 0; i < 3'000; i++)
        wf_buffer_printf(&log, ",\"<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<%d\"", i);
    wf_buffer_text(&log, "],\"environment\":{\"a\":1");
    for (int i = 0; i < 20'000; i++)
        wf_buffer_printf(&log, ",\"key%d\":\"&&&&&&&&&&&&&&&&&&&&&&&&&&&&&\"", i);
    wf_buffer_text(&log, "},\"per_rank\":[{\"rank\":0}");
    for (int i = 1; i < 4'000; i++)
        wf_buffer_printf(&log, ",{\"rank\":%d,\"used_bytes\":%d}", i, i);
    wf_buffer_text(&log, "]}\n{\"event\":\"epoch\",\"epoch\":1,\"staleness\":[1");
    for (int i = 0; i < 100'000; i++)
        wf_buffer_text(&log, ",1");
    wf_buffer_text(&log, "]}\n");
    run_of("endless", log.data);
    wf_buffer_release(&log);
    cJSON *const run = data_of("endless");
    assert_true(strlen(cJSON_GetStringValue(find(run, "facts.model"))) < 410);
    assert_int_equal(length(run, "classes"), 200);
    assert_number(run, "n_classes", 3'001);
    assert_int_equal(length(run, "facts.environment"), 80);
    assert_int_equal(length(run, "ranks"), 64);
    assert_number(run, "n_ranks", 4'000);
    assert_number(run, "figures.used_bytes", 3'999);
    assert_int_equal(length(run, "staleness"), 1'000);
    cJSON_Delete(run);
}

static void confusion__of_the_log_is_in_the_data(void **state)
{
    run_of("confused", "{\"event\":\"start\",\"classes\":[\"cat\",\"dog\"]}\n"
                       "{\"event\":\"confusion\",\"epoch\":3,\"counts\":[[30,10],[20,60]]}\n");
    cJSON *run = data_of("confused");
    assert_number(run, "confusion.0.1", 10);
    assert_number(run, "confusion.1.0", 20);
    assert_number(run, "confusion_epoch", 3);
    cJSON_Delete(run);
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

static void domains__each_have_scores_a_curve_and_codes(void **state)
{
    (void)state;
    static const char png[] = "\x89PNG\r\n\x1A\n and so on";
    run_of(
        "stains",
        "{\"event\":\"start\",\"model\":\"dsn_conv\",\"domains\":[\"he\",\"<b>\"]}\n"
        "{\"event\":\"epoch\",\"epoch\":1,\"step\":5,\"val\":{\"mean_iou\":0.5},\"domains\":"
        "[{\"domain\":1,\"mean_iou\":0.25,\"loss\":2}],\"best\":true}\n"
        "{\"event\":\"epoch\",\"epoch\":2,\"step\":10,\"val\":{\"mean_iou\":0.4},\"domains\":"
        "[{\"domain\":1,\"mean_iou\":0.75}],\"best\":false}\n"
        "{\"event\":\"codes\",\"shared\":[[1,2],[3,4,5,6]],\"private\":\"none\"}\n"
        "{\"event\":\"reconstruction\",\"domain\":1,\"image\":\"a.png\",\"shared\":\"../a.png\"}\n");
    put("stains/a.png", png, sizeof png - 1);
    put("a.png", png, sizeof png - 1);
    cJSON *const run = data_of("stains");
    assert_number(run, "domains.0.scores.mean_iou", 0.5); /* of the first epoch, the best */
    assert_number(run, "domains.1.scores.mean_iou", 0.25);
    assert_number(run, "domains.1.scores.loss", 2);
    assert_number(run, "domains.1.curve.x.1", 10);
    assert_number(run, "domains.1.curve.y.1", 0.75);
    assert_number(run, "codes.shared.1.3", 6);
    assert_null(find(run, "codes.private"));
    assert_non_null(find(run, "reconstructions.0.image"));
    assert_null(find(run, "reconstructions.0.shared")); /* not of the folder */
    cJSON_Delete(run);
    /* What a resumed run will make anew is gone. */
    run_of("stains", "{\"event\":\"start\",\"model\":\"dsn\",\"domains\":[\"a\",7]}\n"
                     "{\"event\":\"codes\",\"shared\":[[1,2]]}\n"
                     "{\"event\":\"reconstruction\",\"domain\":0,\"image\":\"a.png\"}\n"
                     "{\"event\":\"resume\",\"step\":5}\n");
    cJSON *const resumed = data_of("stains");
    assert_null(find(resumed, "codes.shared"));
    assert_null(find(resumed, "reconstructions.0"));
    assert_null(find(resumed, "domains.1.scores"));
    cJSON_Delete(resumed);
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
        cmocka_unit_test(report__has_all_that_the_log_says),
        cmocka_unit_test(report__written_again_is_the_same),
        cmocka_unit_test(samples__come_worst_first_and_only_from_the_folder),
        cmocka_unit_test(size__stays_under_the_limit_with_more_samples_than_fit),
        cmocka_unit_test(curve__of_a_long_run_is_thinned_and_keeps_its_extremes),
        cmocka_unit_test(texts__and_lists_without_end_are_cut),
        cmocka_unit_test(confusion__of_the_log_is_in_the_data),
        cmocka_unit_test(folder__that_is_no_run_is_an_error_with_words),
        cmocka_unit_test(domains__each_have_scores_a_curve_and_codes),
        cmocka_unit_test(report__on_a_full_disk_leaves_the_old_one),
        cmocka_unit_test(base64__is_that_of_rfc_4648),
        cmocka_unit_test(utf8__is_told_from_what_only_looks_like_it),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
