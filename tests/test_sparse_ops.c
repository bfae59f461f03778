/*
 * Layers on sparse tensors, as the generic tests do it for images: gradients against finite differences, samples
 * on several ranks against one rank (bit for bit in the forward pass of reference kernels), CPU kernels against
 * reference kernels, and the text of the graph read back.
 *
 * Rows of a whole batch are in the order of its samples, and so are those of ranks one after the other.
 */
/* ranks: 1 2 3 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "ops/build.h"
#include "support.h"
#include "support_sparse.h"

/* --- gradients against finite differences --- */

static void widen(const struct wf_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->dtype == WF_F32)
            g->values[i]->dtype = WF_F64;
}

static double objective(const struct support_sparse *c, const struct support_values *v)
{
    double sum = 0;
    support_run_reference(c->g, v, false);
    for (struct wf_cursor p = wf_cursor(support_sparse_there(c, v, c->y)); wf_cursor_next(&p);)
        sum += wf_view_at(&v->views[c->y->id], p.at) * wf_view_at(&v->views[c->dy->id], p.at);
    return sum;
}

static double largest(const struct wf_view *view, struct wf_region part)
{
    double most = 0;
    for (struct wf_cursor p = wf_cursor(part); wf_cursor_next(&p);)
        most = fmax(most, fabs(wf_view_at(view, p.at)));
    return most;
}

enum { ELEMENTS = 40 };

static int wrong_elements(const struct support_sparse *c, const struct support_values *v,
                          const struct wf_value *x, const struct wf_value *dx)
{
    const double step = 1e-5;
    const struct wf_region there = support_sparse_there(c, v, x);
    const int64_t count = wf_region_count(there);
    double *const data = v->views[x->id].data;
    const double scale = largest(&v->views[dx->id], there);
    int wrong = 0;
    for (int64_t i = 0; i < wf_min(ELEMENTS, count); i++) {
        const int64_t at = count <= ELEMENTS ? i
                                             : wf_random_below(wf_random(3, (uint64_t)x->id),
                                                               (uint64_t)i, (uint32_t)count);
        const double kept = data[at];
        if (kept == 0) /* a place that is not there, and would be */
            continue;
        data[at] = kept + step;
        const double above = objective(c, v);
        data[at] = kept - step;
        const double below = objective(c, v);
        data[at] = kept;
        const double want = (above - below) / (2 * step);
        const double got = wf_dtype_get(WF_F64, v->views[dx->id].data, at);
        if (fabs(got - want) > 2e-6 * fmax(scale, fabs(want)) + 1e-9 && wrong++ == 0)
            print_error("%s: '%s' element %d: gradient %.9g, finite difference %.9g\n", c->name,
                        x->name, (int)at, got, want);
    }
    return wrong;
}

static void gradients__equal_finite_differences(void **state)
{
    int bad = 0;
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse c = support_sparse_build(i, WF_F32, 1);
        widen(c.g);
        struct support_values v = support_values_new(c.g);
        support_sparse_fill(&c, &v);
        support_run_reference(c.g, &v, true);
        for (int k = 0; k < c.n_wrt; k++)
            bad += c.dwrt[k] ? wrong_elements(&c, &v, c.wrt[k], c.dwrt[k]) : 1;
        for (size_t k = 0; k < c.g->n_values; k++)
            if (c.g->values[k]->grad)
                bad += wrong_elements(&c, &v, c.g->values[k], c.g->values[k]->grad);
        support_values_free(&v);
        support_sparse_free(&c);
    }
    assert_int_equal(bad, 0);
}

/* --- cut against whole --- */

enum { RANKS = 3, OUTPUTS = 16 };

struct cut_job {
    const struct support_sparse *c;
    struct wf_mesh mesh;
    const struct wf_device *device;
    float *got[RANKS][OUTPUTS]; /* what each rank owns of each output, rows that are there */
    struct wf_region box[RANKS][OUTPUTS];
};

static void keep(struct cut_job *job, const struct wf_run *run, int rank, int which,
                 const struct wf_value *v)
{
    const struct wf_view view = wf_run_owned(run, v);
    struct wf_region box = view.data ? view.box : (struct wf_region){ 0 };
    const int32_t *const rows = wf_run_view(run, job->c->g->rows).data;
    if (v->set)
        box.hi[WF_N] = wf_min(box.hi[WF_N], box.lo[WF_N] + rows[v->set]);
    const int64_t count = wf_region_is_empty(box) ? 0 : wf_region_count(box);
    float *const to = job->got[rank][which] = malloc((size_t)(count + 1) * sizeof *to);
    assert_non_null(to);
    job->box[rank][which] = box;
    int64_t i = 0;
    for (struct wf_cursor p = wf_cursor(box); count > 0 && wf_cursor_next(&p);)
        to[i++] = (float)wf_view_at(&view, p.at);
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct cut_job *const job = arg;
    const int rank = wf_comm_rank(comm), ranks = wf_comm_size(comm);
    const struct wf_plan_options options = { .device = job->device, .threads = 2 };
    struct wf_global_plan *global = wf_global_plan_new(job->c->g, &job->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, rank, err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    for (int step = 0; ok && step < 2; step++) { /* the second one finds old rubbish */
        support_sparse_fill_run(job->c, run, rank, ranks);
        ok = wf_run_step(run, err);
    }
    for (int i = 0; ok && i < job->c->n_outputs; i++)
        keep(job, run, rank, i, job->c->outputs[i]);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

static void run_on(struct cut_job *job, const char *mesh)
{
    struct wf_err err = { 0 };
    assert_true(wf_mesh_parse(mesh, &job->mesh, &err));
    if (!wf_comm_threads_run(wf_mesh_size(&job->mesh), body, job, &err))
        fail_msg("%s on mesh '%s', %s: %s", job->c->name, mesh, job->device->name, err.text);
}

static void job_release(struct cut_job *job)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < OUTPUTS; i++)
            free(job->got[r][i]);
}

/* Element `at` of the whole: of rows and samples that ranks have one after the other, of all else the
 * first rank's. */
static float element_of(const struct cut_job *job, int which, int64_t at, bool *is_there)
{
    const struct wf_value *const v = job->c->outputs[which];
    for (int r = 0; r < wf_mesh_size(&job->mesh); r++) {
        const struct wf_region box = job->box[r][which];
        const int64_t count = wf_region_is_empty(box) ? 0 : wf_region_count(box);
        if (at < count)
            return job->got[r][which][at];
        if (!v->replicated && (v->set || count < wf_shape_count(v->shape)))
            at -= count;
    }
    *is_there = false;
    return 0;
}

static void compare(const struct cut_job *job, const struct cut_job *whole, int which, bool exact)
{
    const struct wf_value *const v = job->c->outputs[which];
    const struct wf_region box = whole->box[0][which];
    const int64_t count = wf_region_is_empty(box) ? 0 : wf_region_count(box);
    double off = 0, norm = 0;
    bool is_there = true;
    for (int64_t i = 0; i < count; i++) {
        const double a = (double)element_of(job, which, i, &is_there),
                     b = (double)whole->got[0][which][i];
        if (!is_there || (exact && a != b) || isnan(a))
            fail_msg("%s, %s, %d ranks: '%s' element %d of %d is %.9g, wanted %.9g", job->c->name,
                     job->device->name, wf_mesh_size(&job->mesh), v->name, (int)i, (int)count, a,
                     b);
        off += (a - b) * (a - b);
        norm += b * b;
    }
    (void)element_of(job, which, count, &is_there);
    if (is_there && !v->replicated)
        fail_msg("%s: '%s' has more rows than wanted", job->c->name, v->name);
    if (!(sqrt(off) <= 1e-5 * sqrt(norm) + 1e-7))
        fail_msg("%s, %s: '%s' is off by %.3g of %.3g", job->c->name, job->device->name, v->name,
                 sqrt(off), sqrt(norm));
}

static void check_meshes(const struct wf_device *device, int times)
{
    static const char *const meshes[] = { "", "data=2", "data=3" };
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse c = support_sparse_build(i, WF_F32, times);
        assert_true(c.n_outputs <= OUTPUTS);
        struct cut_job whole = { .c = &c, .device = &wf_device_reference };
        run_on(&whole, "");
        for (size_t m = device == &wf_device_reference; m < sizeof meshes / sizeof *meshes; m++) {
            struct cut_job job = { .c = &c, .device = device };
            run_on(&job, meshes[m]);
            for (int k = 0; k < c.n_outputs; k++)
                compare(&job, &whole, k, device == &wf_device_reference && c.outputs[k] == c.y);
            job_release(&job);
        }
        job_release(&whole);
        support_sparse_free(&c);
    }
}

static void samples__on_ranks_equal_the_whole_with_reference_kernels(void **state)
{
    check_meshes(&wf_device_reference, 1);
}

static void samples__on_ranks_equal_the_whole_with_cpu_kernels(void **state)
{
    check_meshes(&wf_device_cpu, 1);
    check_meshes(&wf_device_cpu, 12);
}

/* --- the text --- */

static void text__reads_back_to_the_same_graph(void **state)
{
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse c = support_sparse_build(i, WF_F32, 1);
        struct wf_arena arena = { 0 };
        struct wf_err err = { 0 };
        const char *const text = wf_graph_print(&arena, c.g);
        struct wf_graph *const again = wf_graph_parse(text, &err);
        if (!again)
            fail_msg("%s: %s", c.name, err.text);
        assert_string_equal(text, wf_graph_print(&arena, again));
        wf_graph_free(again);
        wf_arena_release(&arena);
        support_sparse_free(&c);
    }
}

/* --- nobody is forgotten --- */

/* On one rank, or where points are cut along space. */
static int times_in(int index, const struct wf_op *op, const struct wf_mesh *mesh)
{
    struct wf_err err = { 0 };
    struct support_sparse c = support_sparse_build_on(index, mesh, &err);
    int times = 0;
    for (size_t n = 0; c.g && n < c.g->n_nodes; n++)
        times += c.g->nodes[n]->op == op;
    if (c.g)
        support_sparse_free(&c);
    return times;
}

static void every_operator_of_points__is_in_a_case(void **state)
{
    const struct wf_mesh one = wf_mesh_one();
    struct wf_mesh cut = one;
    cut.at[WF_MESH_W] = 2;
    int bad = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++) {
        int reached = 0;
        for (int i = 0; ((*op)->flags & WF_OP_SETS) && reached == 0 && i < support_sparse_count;
             i++)
            reached += times_in(i, *op, &one) + times_in(i, *op, &cut);
        if (((*op)->flags & WF_OP_SETS) && reached == 0) {
            print_error("%s is in no case\n", (*op)->name);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients__equal_finite_differences),
        cmocka_unit_test(samples__on_ranks_equal_the_whole_with_reference_kernels),
        cmocka_unit_test(samples__on_ranks_equal_the_whole_with_cpu_kernels),
        cmocka_unit_test(text__reads_back_to_the_same_graph),
        cmocka_unit_test(every_operator_of_points__is_in_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
