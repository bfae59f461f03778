/* The planner: what is shared, what is recomputed, what is refused, and that its checks see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "models/model.h"
#include "ops/build.h"
#include "plan/plan.h"

static struct wf_graph *unet(int dims, int64_t base, int64_t side)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find("unet", &err);
    struct wf_model_config config = { .dims = dims, .in = 3, .classes = 2, .base = base };
    assert_true(m && wf_model_resolve(m, &config, &err));
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    const struct wf_shape image = WF_SHAPE(1, dims > 2 ? side : 1, dims > 1 ? side : 1, side, 3);
    struct wf_shape labels = image;
    labels.at[WF_C] = 1;
    struct wf_value *x = wf_input(g, "image", WF_F32, image);
    struct wf_value *t = wf_input(g, "target", WF_I32, labels);
    struct wf_value *y = m->build(g, &config, x);
    struct wf_value *loss = wf_cross_entropy(g, y, t, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, loss);
    wf_graph_output(g, y);
    if (!wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static struct wf_global_plan *global_of(const struct wf_graph *g, const char *mesh_text,
                                        struct wf_plan_options options)
{
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_true(wf_mesh_parse(mesh_text, &mesh, &err));
    if (!options.device)
        options.device = &wf_device_cpu;
    struct wf_global_plan *s = wf_global_plan_new(g, &mesh, &options, &err);
    if (!s)
        fail_msg("%s", err.text);
    return s;
}

static struct wf_plan *plan_of(const struct wf_global_plan *s, int rank)
{
    struct wf_err err = { 0 };
    struct wf_plan *p = wf_plan_new(s, rank, &err);
    if (!p)
        fail_msg("%s", err.text);
    return p;
}

/* Parameter and gradient are linked by pointer: a layer may be called as a gradient or a weight is. */
static void gradients__are_not_found_by_their_names(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 8, 8, 3));
    x = wf_activation(g, x, "grad.c.weight", WF_RELU, 0);
    x = wf_activation(g, x, "c.weight", WF_RELU, 0);
    x = wf_conv(g, x,
                &(struct wf_conv){ .name = "c", .out = 4, .kernel = { 1, 3, 3 }, .same = true });
    struct wf_err err = { 0 };
    if (!wf_graph_grad(g, x, NULL, 0, NULL, NULL, &err))
        fail_msg("%s", err.text);
    struct wf_global_plan *s = global_of(g, "space=2", (struct wf_plan_options){ .threads = 1 });
    struct wf_plan *p = plan_of(s, 1);
    int in_store = 0;
    for (int i = 0; i < p->n_buffers; i++)
        in_store += p->buffers[i].store == WF_STORE_GRAD;
    assert_int_equal(in_store, 1);
    for (size_t i = 0; i < g->n_values; i++)
        assert_true(!g->values[i]->grad == (g->values[i]->kind != WF_PARAM));
    wf_plan_free(p);
    wf_global_plan_free(s);
    wf_graph_free(g);
}

static void memory__packs_by_hand_made_lives(void **state)
{
    (void)state;
    /* Two that never meet share; a third that meets both lies above. */
    const size_t bytes[] = { 2560, 2560, 256 };
    const int first[] = { 0, 3, 1 }, last[] = { 2, 5, 4 };
    size_t offset[3];
    assert_int_equal(wf_memory_pack(3, bytes, first, last, offset), 2816);
    assert_int_equal(offset[0], offset[1]);
    assert_int_equal(wf_memory_live(3, bytes, first, last, 6, NULL), 2816);
}

static void memory__arena_is_within_a_percent_of_the_lower_bound(void **state)
{
    (void)state;
    const struct {
        int dims;
        int64_t base, side;
    } nets[] = { { 2, 64, 1024 }, { 2, 32, 512 }, { 3, 32, 96 }, { 1, 16, 4096 } };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct wf_graph *g = unet(nets[i].dims, nets[i].base, nets[i].side);
        struct wf_global_plan *s = global_of(g, "", (struct wf_plan_options){ .threads = 2 });
        struct wf_plan *p = plan_of(s, 0);
        assert_true(p->arena_bytes >= p->live_bytes);
        assert_true((double)p->arena_bytes <= 1.01 * (double)p->live_bytes);
        wf_plan_free(p);
        wf_global_plan_free(s);
        wf_graph_free(g);
    }
}

static void recompute__needs_less_memory_than_keeping(void **state)
{
    (void)state;
    struct wf_graph *g = unet(2, 16, 256);
    struct wf_global_plan *lean = global_of(g, "", (struct wf_plan_options){ 0 });
    struct wf_global_plan *fat = global_of(g, "", (struct wf_plan_options){ .no_recompute = true });
    struct wf_plan *a = plan_of(lean, 0), *b = plan_of(fat, 0);
    assert_true((double)a->arena_bytes < 0.8 * (double)b->arena_bytes);
    int recompute = 0;
    for (int s = 0; s < a->n_steps; s++)
        recompute += a->steps[s].recompute;
    assert_true(recompute > 10);
    wf_plan_free(a);
    wf_plan_free(b);
    wf_global_plan_free(lean);
    wf_global_plan_free(fat);
    wf_graph_free(g);
}

/* y = relu(norm(conv x)); concat(y, norm(conv y)): the second half is made in place of the result. */
static void place__a_concatenation_costs_no_copy_for_what_is_made_into_it(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 8, 8, 4));
    struct wf_value *a = wf_scale(g, x, 2.0), *b = wf_scale(g, x, 3.0);
    wf_graph_output(g, wf_concat(g, "both", 2, (struct wf_value *[]){ a, b }));
    struct wf_global_plan *s = global_of(g, "", (struct wf_plan_options){ 0 });
    struct wf_plan *p = plan_of(s, 0);
    assert_int_equal(p->n_steps, 2); /* two scales, nothing else */
    assert_int_equal(p->steps[0].out[0].buffer, p->steps[1].out[0].buffer);
    assert_int_equal(p->steps[1].out[0].offset - p->steps[0].out[0].offset, 4 * sizeof(float));
    wf_plan_free(p);
    wf_global_plan_free(s);
    wf_graph_free(g);
}

static void place__a_result_takes_the_place_of_an_input_that_ends(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 8, 8, 4));
    struct wf_value *a = wf_scale(g, x, 2.0);
    struct wf_value *b = wf_activation(g, a, "relu", WF_RELU, 0.0);
    wf_graph_output(g, wf_scale(g, b, 2.0));
    struct wf_global_plan *s = global_of(g, "", (struct wf_plan_options){ 0 });
    struct wf_plan *p = plan_of(s, 0);
    assert_int_equal(p->steps[1].out[0].buffer, p->steps[0].out[0].buffer);
    wf_plan_free(p);
    wf_global_plan_free(s);
    wf_graph_free(g);
}

static int count_state_copies(const struct wf_graph *g)
{
    struct wf_global_plan *s = global_of(g, "", (struct wf_plan_options){ 0 });
    struct wf_plan *p = plan_of(s, 0);
    int copies = 0;
    for (int i = 0; i < p->n_steps; i++)
        copies += p->steps[i].kind == WF_STEP_COPY &&
                  p->buffers[p->steps[i].out[0].buffer].store == WF_STORE_STATE;
    wf_plan_free(p);
    wf_global_plan_free(s);
    return copies;
}

/* What is read again after its next was made is not written over; where two layers share a state, the
 * second makes it from what the first has made. */
static void place__running_statistics_are_made_over_the_state_where_nobody_reads_it(void **state)
{
    (void)state;
    const int wanted[] = { 0, 2, 1 };
    for (int trial = 0; trial < 3; trial++) {
        struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
        struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 4, 4, 3));
        const struct wf_norm norm = { .name = "n" };
        wf_graph_output(g, wf_batch_norm(g, x, &norm));
        if (trial == 1)
            wf_graph_output(g, wf_batch_norm(g, wf_activation(g, x, "r", WF_RELU, 0), &norm));
        if (trial == 2)
            wf_graph_output(g, wf_graph_find(g, "n.running_var"));
        assert_int_equal(g->n_updates, 2);
        assert_int_equal(count_state_copies(g), wanted[trial]);
        wf_graph_free(g);
    }
}

/* 8 rows over two ranks, a 3x3 kernel: each reads one row of the other, 8 x 4 floats. */
static void fetch__a_halo_is_one_row_each_way(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 8, 8, 4));
    struct wf_value *a = wf_conv(
        g, x, &(struct wf_conv){ .name = "a", .out = 4, .kernel = { 1, 3, 3 }, .same = true });
    struct wf_value *b = wf_conv(
        g, a, &(struct wf_conv){ .name = "b", .out = 4, .kernel = { 1, 3, 3 }, .same = true });
    wf_graph_output(g, b);
    struct wf_global_plan *s = global_of(g, "space=2x1", (struct wf_plan_options){ 0 });
    for (int rank = 0; rank < 2; rank++) {
        struct wf_plan *p = plan_of(s, rank);
        assert_int_equal(p->n_exchanges, 1); /* the input is read with its halo, not fetched */
        assert_int_equal(p->exchanges[0].n_messages, 2);
        assert_int_equal(p->fetch_bytes, 8 * 4 * sizeof(float));
        wf_plan_free(p);
    }
    wf_global_plan_free(s);
    wf_graph_free(g);
}

/* Kernel one, stride two: odd columns of y read nothing of x, and ranks that own only such a column
 * get their part of x later, for the second reader. */
static void plan__work_between_windows_waits_for_nothing(void **state)
{
    (void)state;
    struct wf_graph *g = wf_graph_new(NULL);
    struct wf_value *x = wf_input(g, "x", WF_F32, WF_SHAPE(1, 1, 1, 8, 1));
    const struct wf_conv every_second = { .name = "c", .out = 1, .stride = { 1, 1, 2 } };
    struct wf_value *half = wf_conv(g, x, &every_second);
    wf_graph_output(
        g, wf_conv_transpose(g, half,
                             &(struct wf_conv){ .name = "t", .out = 1, .stride = { 1, 1, 2 } }));
    wf_graph_output(g, wf_upsample(g, half, "u", (const int64_t[]){ 1, 1, 8 }, WF_NEAREST));
    struct wf_global_plan *s =
        global_of(g, "space=7", (struct wf_plan_options){ .device = &wf_device_reference });
    for (int r = 0; r < 7; r++)
        wf_plan_free(plan_of(s, r));
    wf_global_plan_free(s);
    wf_graph_free(g);
}

/* --- the checks must see what is broken --- */

struct all_plans {
    struct wf_graph *g;
    struct wf_global_plan *s;
    struct wf_plan *plans[6];
};

static struct all_plans six_ranks(void)
{
    struct all_plans a = { .g = unet(2, 4, 48) };
    a.s = global_of(a.g, "space=3x2", (struct wf_plan_options){ 0 });
    for (int r = 0; r < 6; r++)
        a.plans[r] = plan_of(a.s, r);
    return a;
}

static void all_plans_free(struct all_plans *a)
{
    for (int r = 0; r < 6; r++)
        wf_plan_free(a->plans[r]);
    wf_global_plan_free(a->s);
    wf_graph_free(a->g);
}

static bool passes(const struct all_plans *a)
{
    struct wf_err err = { 0 };
    return wf_plan_check_all((const struct wf_plan *const *)a->plans, 6, &err);
}

static void check__sees_every_dropped_and_swapped_message(void **state)
{
    (void)state;
    struct all_plans a = six_ranks();
    assert_true(passes(&a));
    int mutants = 0;
    for (int r = 0; r < 6; r++)
        for (int x = 0; x < a.plans[r]->n_exchanges; x++) {
            struct wf_exchange *e = &a.plans[r]->exchanges[x];
            e->n_messages--; /* dropped */
            assert_false(passes(&a));
            e->n_messages++;
            struct wf_plan_message *m = &e->messages[0];
            m->is_send = !m->is_send; /* swapped */
            assert_false(passes(&a));
            m->is_send = !m->is_send;
            m->bytes += 4; /* of another size */
            assert_false(passes(&a));
            m->bytes -= 4;
            m->peer = (m->peer + 1) % 6;
            assert_false(passes(&a));
            m->peer = (m->peer + 5) % 6;
            mutants += 4;
        }
    assert_true(mutants > 100);
    assert_true(passes(&a));
    all_plans_free(&a);
}

static void check__sees_sums_that_do_not_meet(void **state)
{
    (void)state;
    struct all_plans a = six_ranks();
    for (int r = 0; r < 6; r++)
        for (int i = 0; i < a.plans[r]->n_sums; i++) {
            a.plans[r]->sums[i].count++;
            assert_false(passes(&a));
            a.plans[r]->sums[i].count--;
        }
    assert_true(passes(&a));
    all_plans_free(&a);
}

static void check__sees_overlap_early_reads_and_what_never_ends(void **state)
{
    (void)state;
    struct all_plans a = six_ranks();
    struct wf_plan *p = a.plans[2];
    int overlaps = 0;
    for (int i = 0; i < p->n_buffers; i++) {
        struct wf_plan_buffer *b = &p->buffers[i];
        if (b->store != WF_STORE_ARENA || b->first < 0 || b->bytes < 256)
            continue;
        const size_t offset = b->offset;
        b->offset = p->arena_bytes; /* past the end */
        assert_false(passes(&a));
        b->offset = offset;
        const int last = b->last;
        b->last = p->n_steps; /* never dies: meets those that follow in its place */
        overlaps += !passes(&a);
        b->last = last;
    }
    assert_true(overlaps > 10);
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s].kind == WF_STEP_FETCH_END || p->steps[s].kind == WF_STEP_SUM_END) {
            p->steps[s].kind = WF_STEP_COPY;
            assert_false(passes(&a));
            p->steps[s].kind =
                p->n_exchanges && p->steps[s].which >= 0 ? WF_STEP_FETCH_END : WF_STEP_SUM_END;
            break;
        }
    all_plans_free(&a);
}

static void check__sees_lives_that_are_too_short(void **state)
{
    (void)state;
    struct all_plans a = six_ranks();
    struct wf_plan *p = a.plans[2];
    int mutants = 0;
    for (int i = 0; i < p->n_buffers; i++) {
        struct wf_plan_buffer *b = &p->buffers[i];
        if (b->first > 0) { /* not an input, which is there from the start */
            b->first++;
            assert_false(passes(&a));
            b->first--;
            mutants++;
        }
        if (b->first >= 0 && b->last < p->n_steps) { /* not an output, which stays to the end */
            b->last--;
            assert_false(passes(&a));
            b->last++;
            mutants++;
        }
    }
    assert_true(mutants > 100);
    assert_true(passes(&a));
    all_plans_free(&a);
}

static void check__sees_who_does_not_wait_for_a_sum(void **state)
{
    (void)state;
    struct all_plans a = six_ranks();
    struct wf_plan *p = a.plans[2];
    int mutants = 0;
    for (int s = 0; s + 1 < p->n_steps; s++) {
        const struct wf_step end = p->steps[s], next = p->steps[s + 1];
        const int buffer = end.kind == WF_STEP_SUM_END ? p->sums[end.which].slot.buffer : -1;
        bool reads = false;
        for (int k = 0; buffer >= 0 && k < next.n_in; k++)
            reads |= next.in[k].buffer == buffer;
        if (!reads)
            continue;
        p->steps[s] = next;
        p->steps[s + 1] = end;
        assert_false(passes(&a));
        p->steps[s] = end;
        p->steps[s + 1] = next;
        mutants++;
    }
    assert_true(mutants > 5);
    assert_true(passes(&a));
    all_plans_free(&a);
}

static void refuse__meshes_that_cannot_be(void **state)
{
    (void)state;
    struct wf_graph *g = unet(2, 4, 32);
    const struct {
        const char *mesh;
        const char *says;
    } bad[] = { { "space=64x1", "use at most 32" },
                { "domain=2", "data, pipe and space" },
                { "pipe=999", "use pipe=" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wf_err err = { 0 };
        struct wf_mesh mesh;
        assert_true(wf_mesh_parse(bad[i].mesh, &mesh, &err));
        const struct wf_plan_options options = { .device = &wf_device_cpu };
        assert_null(wf_global_plan_new(g, &mesh, &options, &err));
        assert_int_equal(err.code, WF_ERR_FIT);
        assert_non_null(strstr(err.text, bad[i].says));
    }
    struct wf_err err = { 0 };
    struct wf_mesh mesh;
    assert_false(wf_mesh_parse("spice=2", &mesh, &err));
    assert_int_equal(err.code, WF_ERR_USAGE);
    wf_graph_free(g);
}

static void mesh__reads_back_what_it_prints(void **state)
{
    (void)state;
    const char *const texts[] = { "space=1",  "data=2",      "data=2,space=2x2",
                                  "space=3",  "space=2x1x4", "data=3,space=1x2x1",
                                  "space=4x1" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct wf_err err = { 0 };
        struct wf_arena arena = { 0 };
        struct wf_mesh mesh, recompute;
        assert_true(wf_mesh_parse(texts[i], &mesh, &err));
        assert_true(wf_mesh_parse(wf_mesh_print(&arena, &mesh), &recompute, &err));
        assert_memory_equal(&mesh, &recompute, sizeof mesh);
        for (int r = 0; r < wf_mesh_size(&mesh); r++) {
            int at[WF_MESH_AXES];
            wf_mesh_coords(&mesh, r, at);
            assert_int_equal(wf_mesh_rank(&mesh, at), r);
        }
        wf_arena_release(&arena);
    }
}

/* Owned parts of every value tile it: each element has one owner. */
static void layout__owned_parts_tile_every_value(void **state)
{
    (void)state;
    struct wf_graph *g = unet(2, 4, 37);
    struct wf_global_plan *s = global_of(g, "space=3x2", (struct wf_plan_options){ 0 });
    const struct wf_layout *l = &s->geometry.layout;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        int64_t count = 0, copies = 6;
        for (int a = 0; a < WF_C; a++)
            copies /= wf_layout_parts(l, l->of_value[i].tilings[0], v, (enum wf_axis)a);
        for (int r = 0; r < 6; r++)
            count += wf_region_count(wf_layout_owned(l, v, r));
        assert_int_equal(count, copies * wf_shape_count(v->shape));
    }
    wf_global_plan_free(s);
    wf_graph_free(g);
}

static size_t room_of_a_mebibyte(struct wf_context *context)
{
    (void)context;
    return (size_t)1 << 20;
}

/* Before any kernel is prepared: an image of 37 pixels fits a mebibyte with 1 channel, not with 16. */
static void refuse__what_the_device_has_no_room_for(void **state)
{
    (void)state;
    struct wf_device small = wf_device_cpu;
    small.memory.room = room_of_a_mebibyte;
    for (int64_t base = 1; base <= 16; base += 15) {
        struct wf_err err = { 0 };
        struct wf_graph *g = unet(2, base, 37);
        struct wf_global_plan *s =
            global_of(g, "space=1", (struct wf_plan_options){ .device = &small });
        struct wf_plan *p = plan_of(s, 0);
        const bool fits = p->arena_bytes + wf_plan_param_bytes(p) <= (size_t)1 << 20;
        assert_int_equal(fits, base == 1);
        assert_int_equal(wf_plan_fits(s, 0, NULL, &err), fits);
        assert_int_equal(err.code, fits ? WF_OK : WF_ERR_FIT);
        wf_plan_free(p);
        wf_global_plan_free(s);
        wf_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients__are_not_found_by_their_names),
        cmocka_unit_test(memory__packs_by_hand_made_lives),
        cmocka_unit_test(memory__arena_is_within_a_percent_of_the_lower_bound),
        cmocka_unit_test(recompute__needs_less_memory_than_keeping),
        cmocka_unit_test(place__a_concatenation_costs_no_copy_for_what_is_made_into_it),
        cmocka_unit_test(place__a_result_takes_the_place_of_an_input_that_ends),
        cmocka_unit_test(place__running_statistics_are_made_over_the_state_where_nobody_reads_it),
        cmocka_unit_test(fetch__a_halo_is_one_row_each_way),
        cmocka_unit_test(plan__work_between_windows_waits_for_nothing),
        cmocka_unit_test(check__sees_every_dropped_and_swapped_message),
        cmocka_unit_test(check__sees_sums_that_do_not_meet),
        cmocka_unit_test(check__sees_overlap_early_reads_and_what_never_ends),
        cmocka_unit_test(check__sees_lives_that_are_too_short),
        cmocka_unit_test(check__sees_who_does_not_wait_for_a_sum),
        cmocka_unit_test(refuse__meshes_that_cannot_be),
        cmocka_unit_test(refuse__what_the_device_has_no_room_for),
        cmocka_unit_test(mesh__reads_back_what_it_prints),
        cmocka_unit_test(layout__owned_parts_tile_every_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
