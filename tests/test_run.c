/*
 * The executor: a step takes no memory, uses what was planned, and repeats itself.
 *
 * malloc and its kin are counted by standing in front of the C library's (not under a sanitizer, which stands
 * there itself). oneDNN keeps a few small books of its own while it runs a primitive; anything of a
 * tensor's size would be seen.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"
#include "device/device.h"
#include "exec/waits.h"
#include "models/model.h"
#include "ops/build.h"
#include "ops/sparse.h"
#include "support.h"
#include "train/network.h"
#include "train/step.h"

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && defined __GLIBC__
#define COUNTS_MALLOC 1
enum { LARGE = 4096 };
static size_t large_blocks; /* taken since the last look; read by one thread at rest */

/* NOLINTBEGIN(bugprone-reserved-identifier): glibc's */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

static void count(size_t bytes)
{
    if (bytes >= LARGE)
        __atomic_add_fetch(&large_blocks, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes)
{
    count(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    count(number * bytes);
    return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count(bytes);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    count(bytes);
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
#endif

struct trainee {
    struct wf_graph *g;
    struct wf_value *image, *target, *loss;
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_comm *comm;
    struct wf_run *run;
    struct wf_optim *optim;
    struct wf_learner learner;
};

/* A run of the graph, and its optimiser. */
static void trainee_begin(struct trainee *t, enum wf_optim_rule rule)
{
    struct wf_err err = { 0 };
    const struct wf_mesh mesh = wf_mesh_one();
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    t->global = wf_global_plan_new(t->g, &mesh, &options, &err);
    t->plan = t->global ? wf_plan_new(t->global, 0, &err) : NULL;
    t->comm = wf_comm_self();
    t->run = t->plan ? wf_run_new(t->plan, t->comm, 1, &err) : NULL;
    if (!t->run)
        fail_msg("%s", err.text);
    wf_run_init_weights(t->run, 1);
    static const double rates[WF_OPTIM_RULES] = {
        [WF_SGD] = 0.1,      [WF_MOMENTUM] = 0.1, [WF_NESTEROV] = 0.1,
        [WF_ADAGRAD] = 1e-2, [WF_RMSPROP] = 1e-3, [WF_ADAM] = 1e-2,
        [WF_ADAMW] = 1e-2,   [WF_LAMB] = 1e-2,    [WF_LARS] = 10
    };
    struct wf_optim_options update = wf_optim_defaults(rule);
    update.lr = rates[rule];
    t->optim = wf_optim_new(&update, t->run, &err);
    const struct wf_learner_options learner = { .comm = t->comm, .optim = t->optim };
    assert_true(wf_learner_init(&t->learner, &learner, t->run, &err));
}

static struct trainee trainee_new(enum wf_optim_rule rule)
{
    struct trainee t = { 0 };
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find("unet", &err);
    struct wf_model_config config = { .base = 8, .depth = 2 };
    assert_true(m && wf_model_resolve(m, &config, &err));
    t.g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    t.image = wf_input(t.g, "image", WF_F32, WF_SHAPE(1, 1, 48, 40, 3));
    t.target = wf_input(t.g, "target", WF_I32, WF_SHAPE(1, 1, 48, 40, 1));
    struct wf_value *y = m->build(t.g, &config, t.image);
    t.loss = wf_cross_entropy(t.g, y, t.target, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(t.g, t.loss);
    assert_true(wf_graph_grad(t.g, t.loss, NULL, 0, NULL, NULL, &err));
    trainee_begin(&t, rule);
    const struct wf_view x = wf_run_view(t.run, t.image), labels = wf_run_view(t.run, t.target);
    support_fill_random(&x, 3, 1);
    for (struct wf_cursor c = wf_cursor(labels.box); wf_cursor_next(&c);) {
        const double label = (double)((c.at[WF_H] / 8 + c.at[WF_W] / 8) % 2);
        wf_view_set(&labels, c.at, label);
        wf_view_set(&x, c.at, wf_view_at(&x, c.at) + label); /* something to be learnt */
    }
    return t;
}

static void trainee_free(struct trainee *t)
{
    wf_learner_release(&t->learner);
    wf_optim_free(t->optim);
    wf_run_free(t->run);
    wf_comm_free(t->comm);
    wf_plan_free(t->plan);
    wf_global_plan_free(t->global);
    wf_graph_free(t->g);
}

static float loss_of(const struct trainee *t)
{
    return *(const float *)wf_run_view(t->run, t->loss).data;
}

static void step__takes_no_memory(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    struct trainee t = trainee_new(WF_ADAM);
    struct wf_err err = { 0 };
    assert_true(wf_learner_step(&t.learner, t.run, NULL, &err)); /* threads start, pages come in */
    __atomic_store_n(&large_blocks, 0, __ATOMIC_RELAXED);
    void *volatile seen = malloc(LARGE);
    seen = realloc(seen, (size_t)2 * LARGE);
    free(seen);
    seen = calloc(2, LARGE / 2);
    free(seen);
    seen = aligned_alloc(64, LARGE);
    free(seen);
    assert_int_equal(__atomic_exchange_n(&large_blocks, 0, __ATOMIC_RELAXED), 4);
    for (int i = 0; i < 3; i++)
        assert_true(wf_learner_step(&t.learner, t.run, NULL, &err));
    assert_int_equal(__atomic_load_n(&large_blocks, __ATOMIC_RELAXED), 0);
    trainee_free(&t);
#else
    skip();
#endif
}

static void run__takes_the_bytes_that_were_planned(void **state)
{
    (void)state;
    struct trainee t = trainee_new(WF_SGD);
    assert_int_equal(wf_run_bytes(t.run), t.plan->arena_bytes + wf_plan_param_bytes(t.plan));
    trainee_free(&t);
}

static void step__lowers_the_loss_with_every_rule(void **state)
{
    (void)state;
    for (int rule = WF_SGD; rule < WF_OPTIM_RULES; rule++) {
        struct trainee t = trainee_new((enum wf_optim_rule)rule);
        struct wf_err err = { 0 };
        assert_true(wf_learner_step(&t.learner, t.run, NULL, &err));
        const float first = loss_of(&t);
        for (int i = 0; i < 20; i++)
            assert_true(wf_learner_step(&t.learner, t.run, NULL, &err));
        assert_true(isfinite(first) && loss_of(&t) < 0.9f * first);
        trainee_free(&t);
    }
}

static void step__gives_the_same_bits_twice(void **state)
{
    (void)state;
    struct trainee a = trainee_new(WF_ADAM), b = trainee_new(WF_ADAM);
    struct wf_err err = { 0 };
    for (int i = 0; i < 3; i++)
        assert_true(wf_learner_step(&a.learner, a.run, NULL, &err) &&
                    wf_learner_step(&b.learner, b.run, NULL, &err));
    assert_memory_equal(wf_run_params(a.run), wf_run_params(b.run),
                        wf_run_param_count(a.run) * sizeof(float));
    trainee_free(&a);
    trainee_free(&b);
}

/* --- points: as many as there are, another number each step --- */

enum { POINTS = 1200, BOX = 24 };

static struct trainee points_new(enum wf_dtype compute)
{
    struct trainee t = { 0 };
    struct wf_err err = { 0 };
    struct wf_network net;
    struct wf_network_config c = { .model = wf_model_find("minkunet14", &err),
                                   .config = { .base = 8, .in = 3, .classes = 4 },
                                   .losses = WF_LOSS_CE,
                                   .compute = compute,
                                   .samples = 1 };
    assert_true(c.model && wf_model_resolve(c.model, &c.config, &err));
    assert_true(wf_network_build(&net, &c, WF_SHAPE(POINTS, 1, 1, 1, 3), true, &err));
    t.g = net.graph;
    t.image = net.image;
    t.target = net.target;
    t.loss = net.loss;
    trainee_begin(&t, WF_SGD);
    return t;
}

static int by_place(const void *a, const void *b)
{
    static const int64_t one[3] = { 1, 1, 1 };
    return wf_coords_compare(a, b, 3, one);
}

static void points_fill(struct trainee *t, int step)
{
    const int32_t n = 60 + step * 197 % (POINTS - 60);
    const struct wf_view coords = wf_run_view(t->run, wf_graph_find(t->g, "coords"));
    const struct wf_view x = wf_run_view(t->run, t->image), labels = wf_run_view(t->run, t->target);
    int32_t *const rows = coords.data, counts[WF_SETS + 1] = { 0, n };
    for (int32_t i = 0; i < n; i++) { /* distinct: a prime steps through the box */
        const int32_t place = (i * 7919 + step * 31) % (BOX * BOX * BOX);
        memcpy(rows + (ptrdiff_t)i * 4,
               (int32_t[]){ 0, place / BOX / BOX - 5, place / BOX % BOX, place % BOX },
               4 * sizeof *rows);
    }
    qsort(rows, (size_t)n, 4 * sizeof *rows, by_place);
    support_fill_random(&x, 3, (uint64_t)step);
    for (int32_t i = 0; i < n; i++) {
        const int32_t label = rows[4 * i + 2] / 6;
        wf_view_put(&labels, i, 0, 0, 0, 0, label);
    }
    wf_run_put(t->run, t->g->rows, counts);
}

static void step__of_points_takes_no_memory_and_repeats_itself(void **state)
{
    (void)state;
    static const enum wf_dtype dtypes[] = { WF_F32, WF_BF16 };
    for (int d = 0; d < 2; d++) {
        struct trainee a = points_new(dtypes[d]), b = points_new(dtypes[d]);
        struct wf_err err = { 0 };
        const size_t bytes = wf_run_bytes(a.run);
        for (int i = 0; i < (d == 0 ? 50 : 15); i++) {
            points_fill(&a, i);
            points_fill(&b, i);
#ifdef COUNTS_MALLOC
            __atomic_store_n(&large_blocks, 0, __ATOMIC_RELAXED);
#endif
            assert_true(wf_learner_step(&a.learner, a.run, NULL, &err));
#ifdef COUNTS_MALLOC
            if (i > 0) /* in the first one threads start */
                assert_int_equal(__atomic_load_n(&large_blocks, __ATOMIC_RELAXED), 0);
#endif
            assert_true(wf_learner_step(&b.learner, b.run, NULL, &err));
            assert_true(isfinite(loss_of(&a)));
            assert_memory_equal(wf_run_params(a.run), wf_run_params(b.run),
                                wf_run_param_count(a.run) * sizeof(float));
        }
        assert_int_equal(wf_run_bytes(a.run), bytes);
        trainee_free(&a);
        trainee_free(&b);
    }
}

/* The steps of a part, the next one drawn among those that wait for none. Returns how often it was another one than
 * the plan's next. */
static int walk_in_another_order(struct wf_run *run, int part, struct wf_random r)
{
    struct wf_err err = { 0 };
    struct wf_arena arena = { 0 };
    const struct wf_waits *const w = wf_waits_find(run, part, &arena);
    const int n = run->plan->parts[part].end - w->first;
    bool *const done = wf_arena_array(&arena, n + 1, bool);
    int *const ready = wf_arena_array(&arena, n + 1, int), others = 0;
    for (int i = 0; i < n; i++) {
        int count = 0;
        for (int s = 0; s < n; s++) {
            bool waits = done[s];
            for (int k = w->begin[s]; k < w->begin[s + 1]; k++) {
                assert_true(w->after[k] < s);
                waits = waits || !done[w->after[k]];
            }
            if (!waits)
                ready[count++] = s;
        }
        assert_true(count > 0);
        const int s = ready[wf_random_below(r, (uint64_t)i, (uint32_t)count)];
        others += s != ready[0];
        done[s] = true;
        assert_true(wf_run_walk(run, w->first + s, w->first + s + 1, &err));
    }
    wf_arena_release(&arena);
    return others;
}

static void steps__have_the_same_bits_in_every_order_that_waits(void **state)
{
    (void)state;
    static const enum wf_dtype dtypes[] = { WF_F32, WF_BF16 };
    for (int d = 0; d < 2; d++) {
        struct trainee a = points_new(dtypes[d]), b = points_new(dtypes[d]);
        struct wf_err err = { 0 };
        int others = 0;
        for (int i = 0; i < 6; i++) {
            const struct wf_random r = wf_random((uint64_t)i, wf_random_stream("order"));
            points_fill(&a, i);
            points_fill(&b, i);
            assert_true(wf_run_step(a.run, &err));
            b.run->started = wf_now();
            for (int part = 0; part < b.plan->n_parts; part++)
                if (b.plan->parts[part].first < b.plan->parts[part].end)
                    others += walk_in_another_order(b.run, part, r);
            assert_true(loss_of(&a) == loss_of(&b));
            assert_memory_equal(wf_run_grads(a.run), wf_run_grads(b.run),
                                wf_run_param_count(a.run) * sizeof(float));
            assert_memory_equal(wf_run_states(a.run), wf_run_states(b.run),
                                wf_run_state_count(a.run) * sizeof(float));
        }
        assert_true(others > 100); /* it was another order */
        trainee_free(&a);
        trainee_free(&b);
    }
}

struct broken {
    struct wf_graph *g;
    struct wf_mesh mesh;
};

/* Rank 1 expects half of a message while another is in flight; rank 2 comes late to both. */
static bool break_a_message(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct broken *b = arg;
    const int rank = wf_comm_rank(comm);
    const struct wf_plan_options options = { .device = &wf_device_reference };
    struct wf_global_plan *global = wf_global_plan_new(b->g, &b->mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, rank, err) : NULL;
    for (int i = 0; plan && rank == 1 && i < plan->exchanges[0].n_messages; i++)
        if (!plan->exchanges[0].messages[i].is_send && plan->exchanges[0].messages[i].peer == 0)
            plan->exchanges[0].messages[i].bytes /= 2;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    const struct timespec late = { .tv_nsec = 100'000'000 };
    if (rank == 2)
        (void)nanosleep(&late, NULL);
    const bool ok = run && wf_run_step(run, err);
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    for (int i = 0; rank == 1 && i < 2; i++) /* a rank need not end at once */
        (void)nanosleep(&late, NULL);
    return ok;
}

static void step__that_fails_on_one_rank_leaves_no_message_in_freed_memory(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct broken b = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    struct wf_value *x = wf_input(b.g, "x", WF_F32, WF_SHAPE(1, 1, 12, 12, 2)), *y[2] = { x, x };
    static const char *const names[] = { "a", "b", "c", "d" };
    for (int i = 0; i < 4; i++)
        y[i % 2] = wf_conv(
            b.g, y[i % 2],
            &(struct wf_conv){ .name = names[i], .out = 2, .kernel = { 1, 3, 3 }, .same = true });
    wf_graph_output(b.g, wf_add(b.g, y[0], y[1]));
    assert_true(wf_mesh_parse("space=3x1", &b.mesh, &err));
    assert_false(wf_comm_threads_run(3, break_a_message, &b, &err));
    assert_non_null(strstr(err.text, "rank 1: step "));
    wf_graph_free(b.g);
}

/* Two steps on p = 1 with gradients 0.5 and -0.25, lr 0.1, worked by hand. */
static void optim__rules_follow_their_formulas(void **state)
{
    (void)state;
    const struct {
        struct wf_optim_options options;
        double want;
    } cases[] = {
        { { .rule = WF_SGD, .lr = 0.1 }, 1 - 0.05 + 0.025 },
        { { .rule = WF_SGD, .lr = 0.1, .weight_decay = 0.1 },
          (1 - 0.1 * 0.6) - 0.1 * (-0.25 + 0.1 * (1 - 0.1 * 0.6)) },
        /* buf 0.5, then 0.9 * 0.5 - 0.25 = 0.2 */
        { { .rule = WF_MOMENTUM, .lr = 0.1, .momentum = 0.9 }, 1 - 0.05 - 0.02 },
        /* a momentum of nothing is plain descent */
        { { .rule = WF_MOMENTUM, .lr = 0.1, .momentum = 0 }, 1 - 0.05 + 0.025 },
        /* first step lr * sign; then m = 0.045 - 0.025 = 0.02, m / 0.19 = 0.10526;
         * v = 0.00025 * 0.999 + 0.0000625 = 0.00031225, / 0.001999 = 0.156203, root 0.395225 */
        { { .rule = WF_ADAM, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
          1 - 0.1 - 0.1 * 0.105263158 / 0.395225 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wf_err err = { 0 };
        const struct wf_update_tensor tensor = { .count = 1, .decays = true };
        struct wf_optim *o =
            wf_optim_new_flat(&cases[i].options, &wf_device_cpu, NULL, 1, 1, &tensor, &err);
        float p = 1.0f;
        for (int k = 0; k < 2; k++) {
            const float gradient = k ? -0.25f : 0.5f;
            wf_optim_update(o, &p, &gradient, 1);
        }
        if (fabs((double)p - cases[i].want) > 2e-6)
            fail_msg("rule %zu: %.8f, by hand %.8f", i, (double)p, cases[i].want);
        wf_optim_free(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__takes_no_memory),
        cmocka_unit_test(run__takes_the_bytes_that_were_planned),
        cmocka_unit_test(step__lowers_the_loss_with_every_rule),
        cmocka_unit_test(step__gives_the_same_bits_twice),
        cmocka_unit_test(step__of_points_takes_no_memory_and_repeats_itself),
        cmocka_unit_test(steps__have_the_same_bits_in_every_order_that_waits),
        cmocka_unit_test(step__that_fails_on_one_rank_leaves_no_message_in_freed_memory),
        cmocka_unit_test(optim__rules_follow_their_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
