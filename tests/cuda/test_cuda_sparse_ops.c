/*
 * Layers on sparse tensors on CUDA against the reference kernels: the cases of support_sparse.h, in f32 and 16 bits.
 * Built twice: with the kernels emulated on the host, and with those of the library for a GPU.
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

#include "base/memory.h"
#include "device/device.h"
#include "gpu.h"
#include "support_sparse.h"

extern const struct wf_device wf_device_cuda;

/* Coordinates that have to be sorted are not made on a GPU: such a plan is refused. */
static const char *const refused[] = { "conv_k3_s3", "conv_generated_k3", "of_dense_places" };

static bool is_refused(const char *name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], name) == 0)
            return true;
    return false;
}

struct results {
    float *of[SUPPORT_SPARSE_MOST];
    int64_t count[SUPPORT_SPARSE_MOST];
};

/* What is there of each output. */
static void get_all(const struct support_sparse *c, const struct wf_run *run, struct results *r)
{
    struct wf_err err = { 0 };
    struct wf_host rows = { 0 };
    if (!wf_run_get(run, c->g->rows, &rows, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < c->n_outputs; i++) {
        const struct wf_value *const v = c->outputs[i];
        struct wf_host host = { 0 };
        if (!wf_run_get(run, v, &host, &err))
            fail_msg("%s: %s", c->name, err.text);
        struct wf_region box = host.view.box;
        if (v->set)
            box.hi[WF_N] = wf_min(box.hi[WF_N], ((int32_t *)rows.view.data)[v->set]);
        r->count[i] = wf_region_is_empty(box) ? 0 : wf_region_count(box);
        float *to = r->of[i] = wf_take((size_t)(r->count[i] + 1) * sizeof *to);
        for (struct wf_cursor p = wf_cursor(box); r->count[i] > 0 && wf_cursor_next(&p);)
            *to++ = (float)wf_view_at(&host.view, p.at);
        wf_host_release(&host);
    }
    wf_host_release(&rows);
}

/* False: the device has no kernel for it. */
static bool run_on(const struct support_sparse *c, const struct wf_device *device,
                   struct results *r)
{
    struct wf_err err = { 0 };
    struct wf_context *context = NULL;
    const struct wf_mesh one = wf_mesh_one();
    struct wf_comm *const comm = wf_comm_self();
    const struct wf_device_options options = { .deterministic = true, .cache = "" };
    if (!wf_device_open(device, &options, &context, &err))
        fail_msg("%s", err.text);
    struct wf_global_plan *const global = wf_global_plan_new(
        c->g, &one, &(struct wf_plan_options){ .device = device, .threads = 2 }, &err);
    struct wf_plan *const plan = global ? wf_plan_new_on(global, 0, context, &err) : NULL;
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, &err) : NULL;
    if (!run && !strstr(err.text, "has no kernel for"))
        fail_msg("%s: %s", c->name, err.text);
    for (int step = 0; run && step < 2; step++) { /* the second one finds old rubbish */
        support_sparse_fill_run(c, run, 0, 1);
        if (!wf_run_step(run, &err))
            fail_msg("%s: %s", c->name, err.text);
    }
    if (run)
        get_all(c, run, r);
    const bool ran = run != NULL;
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_comm_free(comm);
    wf_device_close(context);
    return ran;
}

static void compare(const struct support_sparse *c, int which, const struct results *got,
                    const struct results *want, double tolerance)
{
    const int64_t n = want->count[which];
    double most = 0;
    if (got->count[which] != n)
        fail_msg("%s: '%s' has %d elements, wanted %d", c->name, c->outputs[which]->name,
                 (int)got->count[which], (int)n);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want->of[which][i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got->of[which][i] - (double)want->of[which][i]) <=
              tolerance * most + 1e-12))
            fail_msg("%s (%s): '%s' element %d is %.9g, wanted %.9g (largest %.3g)", c->name,
                     wf_dtype_name(c->dtype), c->outputs[which]->name, (int)i,
                     (double)got->of[which][i], (double)want->of[which][i], most);
}

/* The second time with blocks and threads in the opposite order, where that can be had: the same bits. */
static void check_all(enum wf_dtype dtype, int times)
{
    for (int i = 0; i < support_sparse_count; i++) {
        struct support_sparse c = support_sparse_build(i, dtype, times);
        struct results want = { 0 }, got = { 0 }, again = { 0 };
        assert_true(run_on(&c, &wf_device_reference, &want));
        const bool ran = run_on(&c, &wf_device_cuda, &got);
        gpu_turn(true);
        (void)run_on(&c, &wf_device_cuda, &again);
        gpu_turn(false);
        if (ran == is_refused(c.name))
            fail_msg("%s: %s", c.name, ran ? "was not refused" : "there is no kernel for it");
        for (int k = 0; ran && k < c.n_outputs; k++) {
            compare(&c, k, &got, &want, dtype == WF_F32 ? 1e-5 : 2e-2);
            assert_memory_equal(again.of[k], got.of[k], (size_t)got.count[k] * sizeof *got.of[k]);
        }
        for (int k = 0; k < SUPPORT_SPARSE_MOST; k++) {
            free(want.of[k]);
            free(got.of[k]);
            free(again.of[k]);
        }
        support_sparse_free(&c);
    }
}

static void layers__have_the_numbers_of_the_reference_in_f32(void **state)
{
    check_all(WF_F32, 1);
}

static void layers__have_the_numbers_of_the_reference_in_bf16(void **state)
{
    check_all(WF_BF16, 1);
}

static void layers__have_the_numbers_of_the_reference_in_f16(void **state)
{
    check_all(WF_F16, 1);
}

/* Sets of several blocks. */
static void layers__have_the_numbers_of_the_reference_on_more_points(void **state)
{
    check_all(WF_F32, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_f32),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_bf16),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_in_f16),
        cmocka_unit_test(layers__have_the_numbers_of_the_reference_on_more_points),
    };
    if (!gpu_start())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
