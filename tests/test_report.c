/* Reports of runs that are written out by hand: good, cut short, hostile, empty. What is looked at is the
 * data that the page's script draws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "files.h"
#include "report/report.h"
#include "report/runlog.h"
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

/* What the page's script draws. The caller deletes. */
static cJSON *data_in(const char *page)
{
    static const char opening[] = "<script type=\"application/json\" id=\"run\">";
    const char *const at = strstr(page, opening);
    assert_non_null(at);
    const char *const text = at + strlen(opening), *const end = strchr(text, '<');
    assert_non_null(end);
    assert_memory_equal(end, "</script>\n<script>", 18);
    assert_null(memchr(text, '>', (size_t)(end - text)));
    assert_null(memchr(text, '&', (size_t)(end - text)));
    cJSON *const json = cJSON_ParseWithLength(text, (size_t)(end - text));
    assert_true(cJSON_IsObject(json));
    return json;
}

static cJSON *data_of(const char *folder)
{
    char *const page = report_of(folder);
    cJSON *const json = data_in(page);
    free(page);
    return json;
}

/* The value at a path such as "ranks.1.used_bytes"; NULL when there is none. */
static const cJSON *find(const cJSON *json, const char *path)
{
    while (json && *path) {
        char name[64] = { 0 };
        const size_t n = strcspn(path, ".");
        assert_true(n < sizeof name);
        memcpy(name, path, n);
        json = cJSON_IsArray(json) ? cJSON_GetArrayItem(json, atoi(name))
                                   : cJSON_GetObjectItemCaseSensitive(json, name);
        path += n + (path[n] == '.');
    }
    return json;
}

static void assert_number(const cJSON *json, const char *path, double value)
{
    const cJSON *const item = find(json, path);
    if (!cJSON_IsNumber(item))
        fail_msg("there is no number '%s'", path);
    else if (fabs(item->valuedouble - value) > 1e-9 * fabs(value))
        fail_msg("'%s' is %.17g, not %.17g", path, item->valuedouble, value);
}

static void assert_text(const cJSON *json, const char *path, const char *text)
{
    const char *const value = cJSON_GetStringValue(find(json, path));
    if (!value)
        fail_msg("there is no text '%s'", path);
    else
        assert_string_equal(value, text);
}

static int length(const cJSON *json, const char *path)
{
    return cJSON_GetArraySize(find(json, path));
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
    "\"mpx_per_s\":4.5,\"stopped\":\"done\",\"seconds_by\":{\"steps\":0.2,\"rest\":0.1}}\n"

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
    assert_silent(page, "<b>&");
    assert_silent(page, "\x01");
    cJSON *const run = data_in(page); /* which finds the end of its element */
    static const char shown[] = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
                                "\\x01\\xff\\xc0\\xaf";
    assert_text(run, "name", "evil\"'<b>&");
    assert_text(run, "facts.model", shown);
    assert_text(run, "classes.0", shown);
    assert_text(run, "samples.0.name", shown);
    cJSON_Delete(run);
    /* two scripts, ours, and then no markup any more */
    const char *at = strstr(page, "<script type=");
    assert_non_null(at);
    at = strstr(at + 1, "<script>");
    assert_non_null(at);
    assert_null(strstr(at + 1, "<script"));
    assert_says(page, "&#60;/script&#62;&#60;script&#62;alert(1)"); /* for those without scripts */
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
        cJSON *const run = data_in(page);
        assert_text(run, "state", "unfinished");
        assert_says(page, "</html>");
        cJSON_Delete(run);
        free(page);
    }
    run_of("cut", START STEP("1", "0.5") "{\"event\":\"step\",\"st");
    cJSON *const run = data_of("cut");
    assert_number(run, "figures.damaged_lines", 1);
    cJSON_Delete(run);
}

static void line__glued_to_a_cut_one_still_counts(void **state)
{
    run_of("glued", START STEP("1", "0.5") "{\"event\":\"step\",\"st" STEP("2", "0.125"));
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "glued/log.jsonl", &err));
    assert_int_equal(log.steps.n, 2);
    assert_true(log.steps.rows[1].at[WF_LOG_LOSS] == 0.125);
    assert_int_equal(log.damaged, 1);
    wf_runlog_release(&log);
}

static void losses__that_are_no_numbers_are_gaps_and_are_told(void **state)
{
    run_of("nan", START STEP("1", "0.5") STEP("2", "NaN") STEP("3", "null") STEP("4", "-nan")
                      STEP("5", "Infinity") STEP("6", "inf") STEP("7", "0.25") STEP("8", "1e999"));
    char *const page = report_of("nan");
    cJSON *const run = data_in(page);
    assert_number(run, "figures.bad_losses", 6);
    assert_number(run, "figures.logged_steps", 8);
    assert_number(run, "figures.first_bad_loss", 2);
    assert_null(find(run, "figures.damaged_lines"));
    assert_says(page, "<td>bad_losses</td><td>6</td>"); /* without scripts, too */
    assert_int_equal(length(run, "steps.loss.y"), 8);
    assert_number(run, "steps.loss.y.0", 0.5);
    assert_true(cJSON_IsNull(find(run, "steps.loss.y.1")));
    assert_true(cJSON_IsNull(find(run, "steps.loss.y.5")));
    assert_number(run, "steps.loss.y.6", 0.25);
    assert_true(cJSON_IsNull(find(run, "steps.loss.y.7")));
    assert_true(cJSON_IsNull(find(run, "steps.loss_average.y.3")));
    cJSON_Delete(run);
    free(page);
    run_of("nan", START STEP("1", "NaN") STEP("2", "NaN"));
    cJSON_Delete(data_of("nan"));
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
    cJSON_Delete(data_of("wild"));
}

static void log__without_events_gives_a_report(void **state)
{
    run_of("empty", "");
    cJSON *run = data_of("empty");
    assert_null(find(run, "figures.steps"));
    assert_int_equal(length(run, "facts"), 0);
    cJSON_Delete(run);
    run_of("empty", START); /* zero epochs */
    run = data_of("empty");
    assert_null(find(run, "scores"));
    assert_null(find(run, "mean_ms"));
    assert_null(find(run, "figures.steps"));
    assert_int_equal(length(run, "steps.loss.y"), 0);
    cJSON_Delete(run);
    run_of("empty", START "{\"event\":\"step\",\"step\":1,\"loss\":2}\n"
                          "{\"event\":\"epoch\",\"epoch\":1,\"step\":1,\"train_loss\":2}\n");
    run = data_of("empty");
    assert_number(run, "steps.loss.y.0", 2);
    assert_true(cJSON_IsNull(find(run, "epochs.val_loss.y.0")));
    assert_number(run, "figures.train_loss", 2);
    assert_null(find(run, "figures.val_loss"));
    cJSON_Delete(run);
}

static void steps__done_again_after_a_resume_replace_the_old(void **state)
{
    run_of("resumed", START STEP("1", "0.9") STEP("2", "0.8") EPOCH("1", "2", "true")
                          STEP("3", "0.7") EPOCH("2", "3", "true") END
           "{\"event\":\"resume\",\"step\":2}\n" STEP("3", "0.6") STEP("4", "0.5"));
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "resumed/log.jsonl", &err));
    const struct wf_log_row *const steps = log.steps.rows;
    assert_int_equal(log.steps.n, 4);
    assert_true(steps[2].at[WF_LOG_LOSS] == 0.6 && steps[3].step == 4);
    assert_int_equal(log.epochs.n, 1); /* the second was after step 3: it is done again as well */
    assert_null(log.end);
    assert_int_equal(log.resumed, 1);
    /* 10:11:12 and four steps of 100 ms */
    assert_true(steps[3].time > 1792750272.39 && steps[3].time < 1792750272.41);
    assert_true(steps[3].elapsed > 0.39 && steps[3].elapsed < 0.41);
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
    cJSON *const run = data_of("mesh");
    assert_text(run, "facts.mesh", "space=7x1");
    assert_number(run, "facts.ranks", 7);
    assert_text(run, "begun", "2026-10-23T10:11:12Z");
    assert_int_equal(length(run, "ranks"), 1);
    assert_number(run, "ranks.0.used_bytes", 3145728);
    assert_number(run, "resumed", 1);
    assert_number(run, "figures.seconds", 7200);
    cJSON_Delete(run);
    struct wf_runlog log;
    struct wf_err err = { 0 };
    assert_true(wf_runlog_read(&log, "mesh/log.jsonl", &err));
    assert_true(log.steps.rows[1].time == 1792800005); /* 2026-10-24T00:00:05Z */
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
