/* LAZ by the library LASzip, where it is found; fixtures/make_clouds.py says what is in the files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cloud/cloud_las.h"
#include "support.h"

static void check_file(const char *name, int classes)
{
    struct wf_err err = { 0 };
    struct wf_cloud c, head;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/fixtures/clouds/%s", WF_TEST_SOURCE_DIR, name);
    if (!wf_cloud_read(path, &(struct wf_cloud_options){ 0 }, &c, &err) ||
        !wf_cloud_read(path, &(struct wf_cloud_options){ .header_only = true }, &head, &err))
        fail_msg("%s", err.text);
    assert_true(c.n == 300 && head.n == 300 && head.has_labels && wf_cloud_has(&head, "red"));
    for (int i = 0; i < 300; i++) {
        assert_true(fabs(c.at[3 * i] - (1000 + 0.01 * (3 * i - 200))) < 1e-9);
        assert_true(fabs(c.at[3 * i + 1] - (-2000 + 0.01 * (7 * i % 101))) < 1e-9);
        assert_true(fabs(c.at[3 * i + 2] - (30 + 0.5 * (i * i % 977))) < 1e-9);
        assert_int_equal(c.labels[i], i % classes);
        assert_true(wf_cloud_column(&c, "intensity")[i] == (float)(211 * i % 65536));
        assert_true(wf_cloud_column(&c, "red")[i] == (float)(100 * i));
        assert_true(wf_cloud_column(&c, "green")[i] == (float)(65535 - i));
        assert_true(wf_cloud_column(&c, "blue")[i] == (float)i);
    }
    wf_cloud_release(&c);
    wf_cloud_release(&head);
}

static void laz__has_the_points_that_were_packed(void **state)
{
    (void)state;
    check_file("format2.laz", 20);
    check_file("format7.laz", 60);
}

/* What is left of a file after so many bytes. */
static void laz__that_is_cut_short_is_refused_by_name(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_infile in;
    struct wf_cloud c;
    char bytes[8192];
    assert_true(wf_infile_open(&in, WF_TEST_SOURCE_DIR "/tests/fixtures/clouds/format2.laz", &err));
    const size_t size = (size_t)in.size;
    assert_true(size < sizeof bytes && wf_infile_read(&in, 0, bytes, size, &err));
    wf_infile_close(&in);
    for (size_t left = 100; left < size; left += size / 5) {
        FILE *const f = fopen("cut.laz", "wb");
        assert_true(f && fwrite(bytes, 1, left, f) == left && fclose(f) == 0);
        err = (struct wf_err){ 0 };
        assert_false(wf_cloud_read("cut.laz", &(struct wf_cloud_options){ 0 }, &c, &err));
        assert_non_null(strstr(err.text, "cut.laz"));
    }
    (void)remove("cut.laz");
}

int main(void)
{
    struct wf_err err = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laz__has_the_points_that_were_packed),
        cmocka_unit_test(laz__that_is_cut_short_is_refused_by_name),
    };
    if (!wf_laz_is_here("any.laz", &err)) {
        (void)printf("not run: %s\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
