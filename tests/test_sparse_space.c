/*
 * Layers on sparse tensors whose points are cut along space: every case of support_sparse.h on ranks that have boxes
 * of the grid, against the whole by a graph without halos. Rows are found by their coordinates.
 */
/* ranks: 1 2 3 4 8 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "device/device.h"
#include "support_sparse.h"

enum { RANKS = 8 };

/* What a rank has of an output: of rows those that are there, and their coordinates. */
struct kept {
    struct wf_region box;
    float *data;
    int32_t *coords; /* NULL: it is no rows */
};

struct cut_job {
    const struct support_sparse *c;
    struct wf_mesh mesh;
    const struct wf_device *device;
    struct kept kept[RANKS][SUPPORT_SPARSE_MOST];
};

/* --- running --- */

/* Of an input's set from the share, of y's set from what the step made. */
static int32_t *coords_of(const struct cut_job *job, const struct wf_run *run, int rank,
                          const struct wf_value *v, int64_t n)
{
    const struct support_sparse *const c = job->c;
    const struct support_cloud *const p = support_sparse_cloud(c, v->set);
    const struct support_share share = support_share(c, &job->mesh, rank);
    const int64_t width = 1 + c->dims;
    int32_t *const to = wf_take((size_t)(n * width + 1) * sizeof *to);
    if (!p && v->set != c->outputs[1]->set)
        fail_msg("%s: '%s' is of a set without coordinates", c->name, v->name);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * width,
               p ? p->coords + support_share_row(p, &share, i) * width
                 : (int32_t *)wf_run_owned(run, c->outputs[1]).data + i * width,
               (size_t)width * sizeof *to);
    return to;
}

static void keep(struct cut_job *job, const struct wf_run *run, int rank, int which)
{
    const struct wf_value *const v = job->c->outputs[which];
    struct kept *const k = &job->kept[rank][which];
    const struct wf_view view = wf_run_owned(run, v);
    const int32_t *const rows = wf_run_view(run, job->c->g->rows).data;
    k->box = view.data ? view.box : (struct wf_region){ 0 };
    if (v->set) {
        k->box.hi[WF_N] = wf_min(k->box.hi[WF_N], k->box.lo[WF_N] + rows[v->set]);
        k->coords = coords_of(job, run, rank, v, wf_region_extent(k->box, WF_N));
    }
    const bool none = wf_region_is_empty(k->box);
    float *to = k->data = wf_take((size_t)(none ? 1 : wf_region_count(k->box)) * sizeof *to);
    for (struct wf_cursor p = wf_cursor(k->box); !none && wf_cursor_next(&p);)
        *to++ = (float)wf_view_at(&view, p.at);
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct cut_job *const job = arg;
    const int rank = wf_comm_rank(comm);
    const struct support_share share = support_share(job->c, &job->mesh, rank);
    const struct wf_plan_options options = { .device = job->device, .threads = 1 };
    struct wf_global_plan *global = wf_global_plan_new(job->c->g, &job->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, rank, err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    for (int step = 0; ok && step < 2; step++) { /* the second one finds old rubbish */
        support_sparse_fill_share(job->c, run, &share);
        ok = wf_run_step(run, err);
    }
    for (int i = 0; ok && i < job->c->n_outputs; i++)
        keep(job, run, rank, i);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

static void run_job(struct cut_job *job)
{
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(wf_mesh_size(&job->mesh), body, job, &err))
        fail_msg("%s on %d ranks, %s: %s", job->c->name, wf_mesh_size(&job->mesh),
                 job->device->name, err.text);
}

static void job_release(struct cut_job *job)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < SUPPORT_SPARSE_MOST; i++) {
            free(job->kept[r][i].data);
            free(job->kept[r][i].coords);
        }
}

/* --- comparing --- */

/* Where the whole has an element that a rank has. */
static int64_t find(const struct cut_job *whole, int which, const struct kept *k,
                    const int64_t at[WF_AXES])
{
    const struct kept *const all = &whole->kept[0][which];
    const int64_t width = 1 + whole->c->dims, channels = wf_region_extent(all->box, WF_C);
    int64_t index = 0;
    if (!k->coords) {
        for (int a = 0; a < WF_AXES; a++)
            index = index * wf_region_extent(all->box, a) + at[a];
        return index;
    }
    const int32_t *const row = k->coords + (at[WF_N] - k->box.lo[WF_N]) * width;
    for (; index < wf_region_extent(all->box, WF_N); index++)
        if (memcmp(all->coords + index * width, row, (size_t)width * sizeof *row) == 0)
            return index * channels + at[WF_C];
    return -1;
}

static void compare(const struct cut_job *job, const struct cut_job *whole, int which)
{
    const struct wf_value *const v = job->c->outputs[which];
    double off = 0, norm = 0;
    int64_t rows = 0;
    for (int r = 0; r < wf_mesh_size(&job->mesh); r++) {
        const struct kept *const k = &job->kept[r][which];
        const float *data = k->data;
        rows += wf_region_extent(k->box, WF_N);
        for (struct wf_cursor p = wf_cursor(k->box);
             !wf_region_is_empty(k->box) && wf_cursor_next(&p); data++) {
            const int64_t at = find(whole, which, k, p.at);
            if (at < 0 || isnan(*data))
                fail_msg("%s, %s: '%s' has %s on rank %d", job->c->name, job->device->name, v->name,
                         at < 0 ? "a row that the whole has not" : "no number", r);
            const double want = (double)whole->kept[0][which].data[at];
            off += ((double)*data - want) * ((double)*data - want);
            norm += want * want;
        }
    }
    if (v->set)
        assert_int_equal(rows, wf_region_extent(whole->kept[0][which].box, WF_N));
    if (!(sqrt(off) <= 1e-5 * sqrt(norm) + 1e-7))
        fail_msg("%s, %s, %d ranks: '%s' is off by %.3g of %.3g", job->c->name, job->device->name,
                 wf_mesh_size(&job->mesh), v->name, sqrt(off), sqrt(norm));
}

/* --- cases and meshes --- */

/* What wants whole samples: refused by layer name. */
static bool is_refused(const char *name)
{
    static const char *const names[] = {
        "conv_generated_k2", "conv_generated_k3", "global_max",
        "interpolate",       "interpolate_2d",    "of_dense_places"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Coordinates that have to be sorted are not made on a GPU. */
static bool has_kernels(const char *name, const struct wf_device *device)
{
    return strcmp(device->name, "cuda") != 0 || strcmp(name, "conv_k3_s3") != 0;
}

static void check_case(int index, const char *text, const struct wf_device *device)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    struct support_sparse plain = support_sparse_build(index, WF_F32, 1);
    assert_true(wf_mesh_parse(text, &mesh, &err));
    struct support_sparse c = support_sparse_build_on(index, &mesh, &err);
    if (!c.g) {
        const bool is_flat = strstr(err.text, "points have") && plain.dims < 3;
        if (!is_flat && (!is_refused(plain.name) || !strstr(err.text, "layer '")))
            fail_msg("%s on mesh '%s': %s", plain.name, text, err.text);
        support_sparse_free(&plain);
        return;
    }
    if (is_refused(plain.name))
        fail_msg("%s on mesh '%s' was not refused", plain.name, text);
    if (!has_kernels(plain.name, device)) {
        support_sparse_free(&plain);
        support_sparse_free(&c);
        return;
    }
    struct cut_job whole = { .c = &plain, .mesh = wf_mesh_one(), .device = &wf_device_reference };
    struct cut_job job = { .c = &c, .mesh = mesh, .device = device };
    run_job(&whole);
    run_job(&job);
    for (int k = 0; k < c.n_outputs; k++)
        compare(&job, &whole, k);
    job_release(&job);
    job_release(&whole);
    support_sparse_free(&plain);
    support_sparse_free(&c);
}

static void check_meshes(const struct wf_device *device)
{
    static const char *const meshes[] = { "space=2",        "space=3",         "space=2x1x1",
                                          "space=2x2",      "space=1x3x1",     "space=2x2x2",
                                          "data=2,space=2", "data=2,space=2x2" };
    for (int i = 0; i < support_sparse_count; i++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            check_case(i, meshes[m], device);
}

#ifdef WF_TEST_CUDA /* kernels of a GPU, emulated */
extern const struct wf_device wf_device_cuda;

static void boxes__on_ranks_equal_the_whole_with_cuda_kernels(void **state)
{
    check_meshes(&wf_device_cuda);
}
#endif

static void boxes__on_ranks_equal_the_whole_with_reference_kernels(void **state)
{
    check_meshes(&wf_device_reference);
}

static void boxes__on_ranks_equal_the_whole_with_cpu_kernels(void **state)
{
    check_meshes(&wf_device_cpu);
}

/* The graph of a mesh on one rank, which has all points: halos are empty. */
static void one_rank__runs_the_graph_of_a_mesh(void **state)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse("data=2,space=2x1x2", &mesh, &err));
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse plain = support_sparse_build(i, WF_F32, 1);
        struct support_sparse c = support_sparse_build_on(i, &mesh, &err);
        struct cut_job whole = { .c = &plain,
                                 .mesh = wf_mesh_one(),
                                 .device = &wf_device_reference };
        struct cut_job job = { .c = &c, .mesh = wf_mesh_one(), .device = &wf_device_cpu };
        if (c.g) {
            run_job(&whole);
            run_job(&job);
            for (int k = 0; k < c.n_outputs; k++)
                compare(&job, &whole, k);
            support_sparse_free(&c);
        }
        job_release(&whole);
        job_release(&job);
        support_sparse_free(&plain);
    }
}

static void mesh__other_than_that_of_the_graph_is_refused(void **state)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    struct support_sparse c = support_sparse_build(0, WF_F32, 1);
    const struct wf_plan_options options = { .device = &wf_device_reference, .threads = 1 };
    assert_true(wf_mesh_parse("space=2", &mesh, &err));
    assert_null(wf_global_plan_new(c.g, &mesh, &options, &err));
    assert_int_equal(err.code, WF_ERR_FIT);
    assert_non_null(strstr(err.text, "2 ranks along space W"));
    support_sparse_free(&c);
    struct wf_mesh other;
    assert_true(wf_mesh_parse("data=2,space=2", &other, &err));
    err = (struct wf_err){ 0 };
    c = support_sparse_build_on(0, &other, &err);
    assert_null(wf_global_plan_new(c.g, &mesh, &options, &err));
    assert_non_null(strstr(err.text, "1 ranks along data"));
    support_sparse_free(&c);
}

/* --- the text --- */

static void text__reads_back_to_the_same_graph(void **state)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse("space=2x2", &mesh, &err));
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse c = support_sparse_build_on(i, &mesh, &err);
        if (!c.g)
            continue;
        const char *const text = wf_graph_print(&arena, c.g);
        struct wf_graph *const again = wf_graph_parse(text, &err);
        if (!again)
            fail_msg("%s: %s", c.name, err.text);
        assert_string_equal(text, wf_graph_print(&arena, again));
        wf_graph_free(again);
        support_sparse_free(&c);
    }
    wf_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WF_TEST_CUDA
        cmocka_unit_test(boxes__on_ranks_equal_the_whole_with_cuda_kernels),
#endif
        cmocka_unit_test(boxes__on_ranks_equal_the_whole_with_reference_kernels),
        cmocka_unit_test(boxes__on_ranks_equal_the_whole_with_cpu_kernels),
        cmocka_unit_test(one_rank__runs_the_graph_of_a_mesh),
        cmocka_unit_test(mesh__other_than_that_of_the_graph_is_refused),
        cmocka_unit_test(text__reads_back_to_the_same_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
