/*
 * Points to voxels, against what MinkowskiEngine makes of the same points (tests/parity/make_sparse.py; the
 * maximum is PyTorch's).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "ckpt/safetensors.h"
#include "data/quantise.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/parity/sparse/"

struct golden {
    struct wf_arena arena;
    struct wf_safetensors *file;
    struct wf_quantise q;
    struct wf_voxels v;
};

static void *read_as(struct golden *t, const char *name, enum wf_dtype dtype, int64_t shape[2])
{
    struct wf_err err = { 0 };
    const struct wf_safetensor *const s = wf_safetensors_find(t->file, name);
    assert_non_null(s);
    void *const data = wf_arena_take(&t->arena, (size_t)s->count * 4 + 4);
    if (s->dtype != dtype || !wf_safetensors_read(t->file, s, dtype, data, &err))
        fail_msg("'%s': %s", name, err.text);
    shape[0] = s->shape[0];
    shape[1] = s->rank > 1 ? s->shape[1] : 1;
    return data;
}

static struct golden golden_open(const char *name)
{
    struct golden t = { 0 };
    struct wf_err err = { 0 };
    char path[512];
    int64_t shape[2];
    (void)snprintf(path, sizeof path, GOLDEN "%s.safetensors", name);
    t.file = wf_safetensors_open(path, &err);
    if (!t.file)
        fail_msg("%s", err.text);
    const float *const points = read_as(&t, "points", WF_F32, shape);
    double *const wide = wf_arena_array(&t.arena, shape[0] * shape[1], double);
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        wide[i] = (double)points[i];
    t.q = (struct wf_quantise){ .dims = (int)shape[1], .n = shape[0], .points = wide };
    if (wf_safetensors_find(t.file, "features")) {
        t.q.features = read_as(&t, "features", WF_F32, shape);
        t.q.channels = shape[1];
    }
    return t;
}

static void quantise(struct golden *t)
{
    struct wf_err err = { 0 };
    if (!wf_quantise(&t->q, &t->v, &err))
        fail_msg("%s", err.text);
}

static void golden_close(struct golden *t)
{
    wf_voxels_release(&t->v);
    wf_safetensors_free(t->file);
    wf_arena_release(&t->arena);
}

/* The voxel at the file's place `row`. */
static int64_t find_voxel(const struct golden *t, const int32_t *places, int64_t row)
{
    const int dims = t->q.dims;
    for (int64_t i = 0; i < t->v.n; i++)
        if (memcmp(t->v.coords + i * dims, places + row * dims, (size_t)dims * 4) == 0)
            return i;
    fail_msg("no voxel at the place of row %d", (int)row);
    return -1;
}

static void check_reduction(const char *name, enum wf_quantise_mode mode)
{
    struct golden t = golden_open(name);
    int64_t shape[2], rows[2];
    const int32_t *const places = read_as(&t, "out.coords", WF_I32, rows);
    const float *const want = read_as(&t, "out", WF_F32, shape);
    t.q.mode = mode;
    quantise(&t);
    assert_int_equal(t.v.n, rows[0]);
    for (int64_t r = 0; r < rows[0]; r++)
        for (int64_t c = 0; c < shape[1]; c++) {
            const double got = (double)t.v.features[find_voxel(&t, places, r) * shape[1] + c];
            assert_true(fabs(got - (double)want[r * shape[1] + c]) <= 1e-6);
        }
    golden_close(&t);
}

static void features__are_averaged(void **state)
{
    check_reduction("quantise_avg", WF_QUANTISE_AVERAGE);
}

static void features__are_summed(void **state)
{
    check_reduction("quantise_sum", WF_QUANTISE_SUM);
}

static void features__have_their_largest(void **state)
{
    check_reduction("quantise_max", WF_QUANTISE_MAX);
}

/* Of each voxel the features of one of its points, and over many seeds each of them about equally often. */
static void features__are_of_a_random_point(void **state)
{
    enum { SEEDS = 3000 };
    struct golden t = golden_open("quantise_random");
    int64_t drawn[256] = { 0 }, in_voxel[256] = { 0 };
    t.q.mode = WF_QUANTISE_RANDOM;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        t.q.seed = seed;
        quantise(&t);
        for (int64_t i = 0; i < t.q.n; i++)
            drawn[i] += memcmp(t.v.features + t.v.voxel[i] * t.q.channels,
                               t.q.features + i * t.q.channels, (size_t)t.q.channels * 4) == 0;
        if (seed == 0)
            for (int64_t i = 0; i < t.q.n; i++)
                in_voxel[t.v.voxel[i]]++;
        if (seed + 1 < SEEDS)
            wf_voxels_release(&t.v);
    }
    for (int64_t i = 0; i < t.q.n; i++) {
        const double p = 1.0 / (double)in_voxel[t.v.voxel[i]];
        const double deviation = sqrt(SEEDS * p * (1 - p));
        assert_true(fabs((double)drawn[i] - SEEDS * p) <= 5 * deviation);
    }
    golden_close(&t);
}

static void labels__that_conflict_are_ignored(void **state)
{
    struct golden t = golden_open("quantise_labels");
    int64_t rows[2], shape[2];
    t.q.labels = read_as(&t, "labels", WF_I32, shape);
    const int32_t *const places = read_as(&t, "out.coords", WF_I32, rows);
    const int32_t *const want = read_as(&t, "out.labels", WF_I32, shape);
    t.q.voxel = 0.5;
    t.q.ignore = -100;
    quantise(&t);
    assert_int_equal(t.v.n, rows[0]);
    bool conflict = false;
    for (int64_t r = 0; r < rows[0]; r++) {
        assert_int_equal(t.v.labels[find_voxel(&t, places, r)], want[r]);
        conflict |= want[r] == -100;
    }
    assert_true(conflict);
    golden_close(&t);
}

static void points__know_their_voxel(void **state)
{
    const double at[] = { -0.01, 0.0, 0.99, -1.0, 2147483647.5, -2147483648.0 };
    const int32_t want[] = { -1, 0, 0, -1, INT32_MAX, INT32_MIN };
    struct wf_voxels v;
    struct wf_err err = { 0 };
    assert_true(wf_quantise(&(struct wf_quantise){ .dims = 1, .n = 6, .points = at }, &v, &err));
    assert_int_equal(v.n, 4);
    assert_null(v.features);
    assert_null(v.labels);
    for (int i = 0; i < 6; i++)
        assert_int_equal(v.coords[v.voxel[i]], want[i]);
    wf_voxels_release(&v);
    assert_true(wf_quantise(&(struct wf_quantise){ .dims = 1, .n = 0, .points = at }, &v, &err));
    assert_int_equal(v.n, 0);
    wf_voxels_release(&v);
}

static void points__without_a_place_are_refused(void **state)
{
    static const struct {
        double at, voxel;
        const char *message;
    } bad[] = { { NAN, 1, "point 1: coordinate 2 is not a finite number" },
                { -INFINITY, 1, "point 1: coordinate 2 is not a finite number" },
                { 1e9, 0.02, "point 1: coordinate 2 is 1e+09, which is beyond 2^31 voxels" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const double at[] = { 0, 0, 0, 1, 2, bad[i].at };
        struct wf_voxels v;
        struct wf_err err = { 0 };
        const struct wf_quantise q = { .dims = 3, .n = 2, .points = at, .voxel = bad[i].voxel };
        assert_false(wf_quantise(&q, &v, &err));
        assert_non_null(strstr(err.text, bad[i].message));
        assert_null(v.coords);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features__are_averaged),
        cmocka_unit_test(features__are_summed),
        cmocka_unit_test(features__have_their_largest),
        cmocka_unit_test(features__are_of_a_random_point),
        cmocka_unit_test(labels__that_conflict_are_ignored),
        cmocka_unit_test(points__know_their_voxel),
        cmocka_unit_test(points__without_a_place_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
