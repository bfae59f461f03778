/* Reports of logs that are hostile, cut short, empty or of several runs. */
#include "report/runlog.h"
#include "report_pages.h"
#include "support_scratch.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings__of_the_log_are_never_markup),
        cmocka_unit_test(log__cut_at_any_byte_gives_a_report),
        cmocka_unit_test(line__glued_to_a_cut_one_still_counts),
        cmocka_unit_test(losses__that_are_no_numbers_are_gaps_and_are_told),
        cmocka_unit_test(numbers__that_make_no_sense_do_no_harm),
        cmocka_unit_test(log__without_events_gives_a_report),
        cmocka_unit_test(steps__done_again_after_a_resume_replace_the_old),
        cmocka_unit_test(resume__on_another_mesh_is_what_the_head_tells),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
