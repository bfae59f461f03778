/* Archives of arrays: what is written comes back, and archives that lie are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files.h"
#include "image/npz.h"
#include "support_scratch.h"

static const float features[2][3] = { { 1, 2.5f, -3 }, { 0, 1e-20f, 7 } };
static const int32_t coords[2][4] = { { 0, -5, 6, 7 }, { 1, 8, 9, -2147483647 } };

static void write_pair(const char *path)
{
    struct wf_npz_writer w;
    struct wf_err err = { 0 };
    const bool ok =
        wf_npz_begin(&w, path, &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "coords", WF_I32, 2, { 2, 4 }, coords }, &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "features", WF_F32, 2, { 2, 3 }, features }, &err);
    assert_true(wf_npz_end(&w, ok, &err));
}

static void arrays__come_back(void **state)
{
    write_pair("a.npz");
    struct wf_err err = { 0 };
    struct wf_npz z;
    assert_true(wf_npz_open(&z, "a.npz", &err));
    assert_int_equal(z.count, 2);
    assert_null(wf_npz_find(&z, "labels"));
    struct wf_npz_array a;
    assert_true(wf_npz_load(&z, "features", &a, &err));
    assert_int_equal(a.npy.rank, 2);
    assert_int_equal(a.npy.shape[1], 3);
    float got[6];
    double wide[6];
    assert_true(wf_npy_read(&a.npy, 0, 6, WF_F32, got, &err));
    assert_memory_equal(got, features, sizeof got);
    assert_true(wf_npy_read(&a.npy, 0, 6, WF_F64, wide, &err));
    for (int i = 0; i < 6; i++)
        assert_true(wide[i] == (double)features[i / 3][i % 3]);
    wf_npz_array_release(&a);
    assert_true(wf_npz_load(&z, "coords", &a, &err));
    int32_t whole[8];
    assert_true(wf_npy_read(&a.npy, 0, 8, WF_I32, whole, &err));
    assert_memory_equal(whole, coords, sizeof whole);
    wf_npz_array_release(&a);
    assert_false(wf_npz_load(&z, "labels", &a, &err));
    assert_non_null(strstr(err.text, "'a.npz' has no array 'labels'"));
    wf_npz_array_release(&a);
    wf_npz_close(&z);
}

/* Cut anywhere, or with any byte changed, a file is refused or reads as it was. */
static void damage__is_refused_or_harmless(void **state)
{
    write_pair("b.npz");
    size_t size;
    unsigned char *const whole = slurp("b.npz", &size);
    assert_non_null(whole);
    int refused = 0;
    for (size_t i = 0; i < 2 * size; i++) {
        const size_t length = i < size ? i : size;
        unsigned char *const copy = malloc(length + 1);
        memcpy(copy, whole, length);
        if (i >= size)
            copy[i - size] ^= 0x5a;
        struct wf_err err = { 0 };
        struct wf_npz z;
        struct wf_npz_array a;
        if (wf_npz_parse(&z, "b.npz", copy, length, &err)) {
            float got[6];
            const bool ok = wf_npz_load(&z, "features", &a, &err) && a.npy.count == 6 &&
                            wf_npy_read(&a.npy, 0, 6, WF_F32, got, &err);
            if (ok)
                assert_memory_equal(got, features, sizeof got);
            wf_npz_array_release(&a);
            wf_npz_close(&z);
        }
        refused += err.code != WF_OK;
        free(copy);
    }
    assert_true(refused > (int)size);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays__come_back),
        cmocka_unit_test(damage__is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
