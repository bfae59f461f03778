/* What the tests of reports share: runs that are written out by hand, and what their reports draw. */
#ifndef WF_TESTS_REPORT_PAGES_H
#define WF_TESTS_REPORT_PAGES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "files.h"
#include "report/report.h"

static inline void put(const char *path, const void *data, size_t bytes)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* A run folder with this log; what was there before goes. */
static inline void run_of(const char *folder, const char *log)
{
    (void)mkdir(folder, 0777);
    struct wf_buffer path = { 0 };
    wf_buffer_printf(&path, "%s/log.jsonl", folder);
    put(path.data, log, strlen(log));
    wf_buffer_release(&path);
}

/* The text of the report that is written for it. The caller frees. */
static inline char *report_of(const char *folder)
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

static inline void assert_says(const char *page, const char *words)
{
    if (!strstr(page, words))
        fail_msg("the report does not say '%s'", words);
}

static inline void assert_silent(const char *page, const char *words)
{
    if (strstr(page, words))
        fail_msg("the report says '%s'", words);
}

/* What the page's script draws. The caller deletes. */
static inline cJSON *data_in(const char *page)
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

static inline cJSON *data_of(const char *folder)
{
    char *const page = report_of(folder);
    cJSON *const json = data_in(page);
    free(page);
    return json;
}

/* The value at a path such as "ranks.1.used_bytes"; NULL when there is none. */
static inline const cJSON *find(const cJSON *json, const char *path)
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

static inline void assert_number(const cJSON *json, const char *path, double value)
{
    const cJSON *const item = find(json, path);
    if (!cJSON_IsNumber(item))
        fail_msg("there is no number '%s'", path);
    else if (fabs(item->valuedouble - value) > 1e-9 * fabs(value))
        fail_msg("'%s' is %.17g, not %.17g", path, item->valuedouble, value);
}

static inline void assert_text(const cJSON *json, const char *path, const char *text)
{
    const char *const value = cJSON_GetStringValue(find(json, path));
    if (!value)
        fail_msg("there is no text '%s'", path);
    else
        assert_string_equal(value, text);
}

static inline int length(const cJSON *json, const char *path)
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

#endif
