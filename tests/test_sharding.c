/*
 * Who gets which sample: 50 epochs read by the loaders of 1, 3 and 4 ranks, from files, with the boxes of
 * their plans. Each sample comes exactly once an epoch, on one rank, in one order on any number of ranks,
 * the smaller last batch included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader.h"
#include "device/device.h"
#include "ops/build.h"
#include "plan/plan.h"
#include "support_data.h"
#include "support_scratch.h"

enum { EPOCHS = 50, SAMPLES = 23, BATCH = 5, SIDE = 3, RANKS = 4 };

/* Picture k has the value k everywhere. */
static int make_set(void **state)
{
    if (support_scratch_enter(state) != 0)
        return -1;
    support_folder("set/images");
    support_folder("set/masks");
    for (int k = 0; k < SAMPLES; k++) {
        float pixels[SIDE * SIDE];
        uint8_t labels[SIDE * SIDE];
        for (int i = 0; i < SIDE * SIDE; i++) {
            pixels[i] = (float)k;
            labels[i] = (uint8_t)(k % 2);
        }
        char path[64];
        struct support_picture p = { .depth = 1,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .channels = 1,
                                     .sample = WF_SAMPLE_F32,
                                     .data = pixels };
        (void)snprintf(path, sizeof path, "set/images/%02d.npy", k);
        support_write(path, &p);
        p.sample = WF_SAMPLE_U8;
        p.data = labels;
        (void)snprintf(path, sizeof path, "set/masks/%02d.npy", k);
        support_write(path, &p);
    }
    return 0;
}

/* What a rank has of a batch of `rows` samples on so many ranks. */
static struct wf_region box_of(int64_t rows, int ranks, int rank)
{
    struct wf_err err = { 0 };
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ 0 });
    struct wf_value *const x = wf_input(g, "x", WF_F32, WF_SHAPE(rows, 1, SIDE, SIDE, 1));
    wf_graph_output(g, wf_scale(g, x, 2));
    struct wf_mesh mesh = wf_mesh_one();
    mesh.at[WF_MESH_DATA] = ranks;
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_global_plan *const global = wf_global_plan_new(g, &mesh, &options, &err);
    if (!global)
        fail_msg("%s", err.text);
    const struct wf_region box = wf_geometry_owned(&global->geometry, rank, x);
    wf_global_plan_free(global);
    wf_graph_free(g);
    return box;
}

/* Fills order[epoch][place] with the samples that a rank reads, at the places where it reads them. */
static void read_epochs(struct wf_dataset *ds, int ranks, int rank, int (*order)[SAMPLES])
{
    struct wf_err err = { 0 };
    const struct wf_loader_options options = { .batch = BATCH, .seed = 8, .threads = rank % 2 };
    struct wf_loader *const loader = wf_loader_new(ds, &options, &err);
    if (!loader)
        fail_msg("%s", err.text);
    assert_int_equal(wf_loader_rest(loader), SAMPLES % BATCH);
    static float pixels[BATCH * SIDE * SIDE];
    struct wf_view views[2]; /* of whole batches, and of the last */
    for (int i = 0; i < 2; i++) {
        const struct wf_region box = box_of(i ? SAMPLES % BATCH : BATCH, ranks, rank);
        views[i] = wf_view_dense(wf_region_is_empty(box) ? NULL : pixels, WF_F32, box);
    }
    wf_loader_announce_rest(loader, &views[1], NULL);
    const int64_t batches = wf_loader_batches(loader);
    for (int64_t i = 0; i < EPOCHS * batches; i++) {
        const struct wf_view *const view = &views[i % batches == batches - 1];
        if (!wf_loader_next(loader, view, NULL, &err))
            fail_msg("%s", err.text);
        for (int64_t row = view->box.lo[WF_N]; view->data && row < view->box.hi[WF_N]; row++) {
            int *const place = &order[i / batches][i % batches * BATCH + row];
            assert_int_equal(*place, -1); /* nobody else has it */
            *place = (int)wf_view_get(view, row, 0, 1, 1, 0);
        }
    }
    wf_loader_free(loader);
}

/* ranks: 1 3 4 */
static void epochs__take_each_sample_once_in_one_order_on_any_number_of_ranks(void **state)
{
    static const int counts[] = { 1, 3, 4 };
    static int order[3][EPOCHS][SAMPLES];
    memset(order, -1, sizeof order);
    struct wf_err err = { 0 };
    struct wf_dataset *const ds = wf_dataset_open("set", &(struct wf_dataset_options){ 0 }, &err);
    if (!ds)
        fail_msg("%s", err.text);
    for (int k = 0; k < 3; k++)
        for (int rank = 0; rank < counts[k]; rank++)
            read_epochs(ds, counts[k], rank, order[k]);
    wf_dataset_free(ds);
    for (int k = 0; k < 3; k++)
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            bool seen[SAMPLES] = { false };
            for (int i = 0; i < SAMPLES; i++) {
                assert_in_range(order[k][epoch][i], 0, SAMPLES - 1);
                assert_false(seen[order[k][epoch][i]]);
                seen[order[k][epoch][i]] = true;
            }
        }
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    assert_memory_equal(order[0], order[2], sizeof order[0]);
    for (int epoch = 1; epoch < EPOCHS; epoch++) /* shuffled anew */
        assert_true(memcmp(order[0][epoch], order[0][epoch - 1], sizeof order[0][0]) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs__take_each_sample_once_in_one_order_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, make_set, support_scratch_leave);
}
