/*
 * Update rules, schedules and loss scaling against PyTorch's numbers (tests/optim/make_golden.py), and
 * what the sweep promises: gaps stay as they are, threads change no bit.
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

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "ckpt/safetensors.h"
#include "device/device.h"
#include "optim/optim.h"
#include "optim/scaler.h"
#include "optim/schedule.h"

#define GOLDEN WF_TEST_SOURCE_DIR "/tests/optim/golden.safetensors"

enum { STEPS = 20, GAP = 5 };

static void assert_near(double got, double want, double most)
{
    if (!(fabs(got - want) <= most))
        fail_msg("%.9g where %.9g is expected", got, want);
}

static struct wf_safetensors *open_golden(void)
{
    struct wf_err err = { 0 };
    struct wf_safetensors *const file = wf_safetensors_open(GOLDEN, &err);
    if (!file)
        fail_msg("%s", err.text);
    return file;
}

static void read_golden(const struct wf_safetensors *file, const struct wf_safetensor *t, float *to)
{
    struct wf_err err = { 0 };
    if (!wf_safetensors_read(file, t, WF_F32, to, &err))
        fail_msg("%s", err.text);
}

/* "adam lr=0.01 beta1=0.8": the number behind a key, or what it is without. */
static double setting(const char *text, const char *key, double without)
{
    char marked[32];
    (void)snprintf(marked, sizeof marked, " %s=", key);
    const char *const at = strstr(text, marked);
    return at ? strtod(at + strlen(marked), NULL) : without;
}

static size_t word(const char *text)
{
    return strcspn(text, " ");
}

/* --- rules --- */

static struct wf_optim_options options_of(const char *text)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%.*s", (int)word(text), text);
    int rule = 0;
    while (wf_optim_names[rule] && strcmp(wf_optim_names[rule], name) != 0)
        rule++;
    assert_non_null(wf_optim_names[rule]);
    struct wf_optim_options o = wf_optim_defaults((enum wf_optim_rule)rule);
    o.lr = setting(text, "lr", o.lr);
    o.momentum = setting(text, "momentum", o.momentum);
    o.beta1 = setting(text, "beta1", o.beta1);
    o.beta2 = setting(text, "beta2", o.beta2);
    o.eps = setting(text, "eps", o.eps);
    o.weight_decay = setting(text, "weight_decay", o.weight_decay);
    o.trust = setting(text, "trust", o.trust);
    o.matrices_only = setting(text, "matrices_only", 0) > 0;
    return o;
}

/* The golden file's tensors, with gaps between them. */
static const int64_t counts[] = { 35, 11, 60 };
enum { TENSORS = 3, VECTOR = 1, TOTAL = 106, ROOM = TOTAL + TENSORS * GAP };

static void place(const struct wf_optim_options *o, struct wf_update_tensor tensors[TENSORS])
{
    int64_t at = 0;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = (struct wf_update_tensor){ .first = at,
                                                .count = counts[t],
                                                .decays = !(o->matrices_only && t == VECTOR) };
        at += counts[t] + GAP;
    }
}

static void make_gradients(const struct wf_update_tensor tensors[TENSORS], const float *p, int t,
                           float *g)
{
    int64_t index = 0;
    for (int k = 0; k < TENSORS; k++)
        for (int64_t i = 0; i < tensors[k].count; i++, index++) {
            const int64_t at = tensors[k].first + i;
            g[at] = (float)(cos(0.1 * (double)index + t) * (1 + (double)p[at] / 2));
        }
}

static double distance(const struct wf_update_tensor tensors[TENSORS], const float *p,
                       const float *want)
{
    double apart = 0, norm = 0;
    for (int k = 0; k < TENSORS; k++)
        for (int64_t i = 0; i < tensors[k].count; i++, want++) {
            const double d = (double)p[tensors[k].first + i] - (double)*want;
            apart += d * d;
            norm += (double)*want * (double)*want;
        }
    return sqrt(apart / norm);
}

static double run_rule(const struct wf_safetensors *file, const char *text, const float *want)
{
    struct wf_err err = { 0 };
    const struct wf_optim_options options = options_of(text);
    struct wf_update_tensor tensors[TENSORS];
    place(&options, tensors);
    float first[TOTAL], p[ROOM], g[ROOM];
    read_golden(file, wf_safetensors_find(file, "start"), first);
    for (int i = 0; i < ROOM; i++)
        p[i] = g[i] = 3; /* what lies in the gaps must not be touched, nor count in the norm */
    const float *from = first;
    for (int k = 0; k < TENSORS; k++, from += counts[k - 1])
        memcpy(p + tensors[k].first, from, (size_t)counts[k] * sizeof *p);
    struct wf_optim *const o =
        wf_optim_new_flat(&options, &wf_device_cpu, NULL, ROOM, TENSORS, tensors, &err);
    assert_non_null(o);
    const double clip = setting(text, "clip", 0);
    for (int t = 0; t < STEPS; t++) {
        make_gradients(tensors, p, t, g);
        const double norm = sqrt(wf_optim_squares(o, g));
        wf_optim_update(o, p, g, clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1);
    }
    wf_optim_free(o);
    for (int k = 0; k < TENSORS; k++)
        for (int64_t i = 0; i < GAP; i++)
            assert_near((double)p[tensors[k].first + tensors[k].count + i], 3, 0);
    return distance(tensors, p, want);
}

static void rules__agree_with_pytorch_over_20_steps(void **state)
{
    (void)state;
    struct wf_safetensors *const file = open_golden();
    bool seen[WF_OPTIM_RULES] = { false };
    for (int64_t i = 0; i < wf_safetensors_count(file); i++) {
        const struct wf_safetensor *const t = wf_safetensors_at(file, i);
        if (strncmp(t->name, "rule.", 5) != 0)
            continue;
        float want[TOTAL];
        assert_int_equal(t->count, TOTAL);
        read_golden(file, t, want);
        const double apart = run_rule(file, t->name + 5, want);
        print_message("%-70s %.1e\n", t->name + 5, apart);
        if (!(apart <= 1e-6))
            fail_msg("%s: %.2e from PyTorch", t->name + 5, apart);
        seen[options_of(t->name + 5).rule] = true;
    }
    for (int r = 0; r < WF_OPTIM_RULES; r++)
        if (!seen[r])
            fail_msg("no golden for %s", wf_optim_names[r]);
    wf_safetensors_free(file);
}

/* One step from zero: what Adam's first update is, by hand. In f32, 1 - 0.999f alone is 1.3e-5 off. */
static void rules__the_first_update_has_the_digits_of_f32(void **state)
{
    (void)state;
    static const enum wf_optim_rule rules[] = { WF_RMSPROP, WF_ADAM, WF_ADAMW };
    static const double betas[] = { 0.9, 0.99, 0.999, 0.9999 };
    const struct wf_update_tensor tensor = { .first = 0, .count = 1 };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
            struct wf_err err = { 0 };
            struct wf_optim_options options = wf_optim_defaults(rules[r]);
            options.beta2 = betas[b];
            options.lr = 1;
            const double g = 0.3, first = rules[r] == WF_RMSPROP ? sqrt(1 - betas[b]) : 1;
            const double want = -g / (first * g + options.eps);
            float p = 0, grad = (float)g;
            struct wf_optim *const o =
                wf_optim_new_flat(&options, &wf_device_cpu, NULL, 1, 1, &tensor, &err);
            assert_non_null(o);
            wf_optim_update(o, &p, &grad, 1);
            wf_optim_free(o);
            if (fabs((double)p / want - 1) > 5e-7)
                fail_msg("%s, beta2 %g: %.9g, by hand %.9g", wf_optim_names[rules[r]], betas[b],
                         (double)p, want);
        }
}

/* --- the sweep --- */

enum { MANY = 9 * WF_UPDATE_PIECE + 77 }; /* enough for several threads */

/* Two tensors over several pieces, three steps; what came out. */
static float *sweep(enum wf_optim_rule rule, int threads, double *squares)
{
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
    struct wf_err err = { 0 };
    const int64_t first = 2 * WF_UPDATE_PIECE + 5;
    const struct wf_update_tensor tensors[] = {
        { .count = first, .decays = true },
        { .first = first + 16, .count = MANY - first, .decays = true }
    };
    struct wf_optim_options options = wf_optim_defaults(rule);
    options.weight_decay = 0.01;
    struct wf_optim *const o =
        wf_optim_new_flat(&options, &wf_device_cpu, NULL, MANY + 16, 2, tensors, &err);
    float *const p = calloc(MANY + 16, sizeof *p), *const g = calloc(MANY + 16, sizeof *g);
    assert_true(o && p && g);
    for (int i = 0; i < MANY + 16; i++)
        p[i] = sinf((float)i);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < MANY + 16; i++)
            g[i] = cosf((float)(i + t)) * 0.3f;
        *squares = wf_optim_squares(o, g);
        wf_optim_update(o, p, g, 1 / 0.75);
    }
    wf_optim_free(o);
    free(g);
    return p;
}

static void sweep__gives_the_same_bits_with_any_number_of_threads(void **state)
{
    (void)state;
    for (int rule = 0; rule < WF_OPTIM_RULES; rule++) {
        double one, three;
        float *const a = sweep((enum wf_optim_rule)rule, 1, &one);
        float *const b = sweep((enum wf_optim_rule)rule, 3, &three);
        assert_memory_equal(a, b, (MANY + 16) * sizeof *a);
        assert_memory_equal(&one, &three, sizeof one);
        free(a);
        free(b);
    }
}

static void squares__are_those_of_a_plain_sum_and_tell_what_is_not_finite(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    const struct wf_update_tensor tensor = { .first = 3, .count = MANY, .decays = true };
    const struct wf_optim_options options = wf_optim_defaults(WF_SGD);
    struct wf_optim *const o =
        wf_optim_new_flat(&options, &wf_device_cpu, NULL, MANY + 3, 1, &tensor, &err);
    float *const g = calloc(MANY + 3, sizeof *g);
    assert_true(o && g);
    g[0] = NAN; /* a gap */
    double want = 0;
    for (int i = 0; i < MANY; i++) {
        g[3 + i] = sinf((float)i);
        want += (double)g[3 + i] * (double)g[3 + i];
    }
    assert_true(fabs(wf_optim_squares(o, g) - want) < 1e-9 * want);
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (int k = 0; k < 3; k++) {
        const float was = g[MANY - k];
        g[MANY - k] = bad[k];
        assert_false(isfinite(wf_optim_squares(o, g)));
        g[MANY - k] = was;
    }
    g[100] = 3e38f; /* large is not infinite */
    assert_true(isfinite(wf_optim_squares(o, g)));
    wf_optim_free(o);
    free(g);
}

/* |p| = 0: LAMB and LARS step as if the ratio were one; a gradient of nothing stays harmless. */
static void ratios__are_one_where_a_norm_is_nothing(void **state)
{
    (void)state;
    static const enum wf_optim_rule rules[] = { WF_LAMB, WF_LARS };
    for (int r = 0; r < 2; r++) {
        struct wf_err err = { 0 };
        struct wf_optim_options options = wf_optim_defaults(rules[r]);
        options.lr = 0.1;
        const struct wf_update_tensor tensors[] = { { .count = 2, .decays = true },
                                                    { .first = 2, .count = 1, .decays = true } };
        struct wf_optim *const o =
            wf_optim_new_flat(&options, &wf_device_cpu, NULL, 3, 2, tensors, &err);
        float p[] = { 0, 0, 2 };
        const float g[] = { 0.5f, -0.5f, 0 };
        wf_optim_update(o, p, g, 1);
        /* LAMB's first step is lr * sign; LARS's lr * g. The decay moves the third. */
        const double step = rules[r] == WF_LAMB ? 0.1 : 0.05;
        assert_near((double)p[0], -step, 1e-6);
        assert_near((double)p[1], step, 1e-6);
        assert_true(isfinite((double)p[2]) && p[2] < 2);
        wf_optim_free(o);
    }
}

/* --- schedules and scale --- */

static void schedules__agree_with_pytorch(void **state)
{
    (void)state;
    static const double losses[STEPS] = { 3,   2,   2.1, 1.9999, 2.2, 2.3, 1,   1.1, 1.05, 0.99999,
                                          1.2, 1.3, 1.4, 0.5,    0.6, 0.7, 0.8, 0.9, 1.0,  1.1 };
    struct wf_safetensors *const file = open_golden();
    int seen = 0;
    for (int64_t i = 0; i < wf_safetensors_count(file); i++) {
        const struct wf_safetensor *const t = wf_safetensors_at(file, i);
        const char *const text = t->name + strlen("schedule.");
        if (strncmp(t->name, "schedule.", strlen("schedule.")) != 0)
            continue;
        float want[STEPS];
        read_golden(file, t, want);
        struct wf_schedule s = { .lr = 0.1,
                                 .gamma = setting(text, "gamma", 0),
                                 .least = setting(text, "least", 0),
                                 .every = (int64_t)setting(text, "every", 1),
                                 .length = (int64_t)setting(text, "length", 1),
                                 .patience = (int64_t)setting(text, "patience", 0),
                                 .warmup = setting(text, "warmup", 0),
                                 .from = setting(text, "from", 0) };
        int kind = 0;
        while (strncmp(wf_schedule_names[kind], text, word(text)) != 0)
            assert_true(++kind < WF_SCHEDULES);
        s.kind = (enum wf_schedule_kind)kind;
        seen |= 1 << kind;
        for (int by_step = 0; by_step < 2; by_step++) {
            struct wf_schedule_state at = wf_schedule_start();
            s.by_step = by_step;
            for (int k = 0; k < STEPS; k++) {
                const double lr = wf_schedule_lr(&s, &at, k, 1);
                if (fabs(lr - (double)want[k]) > 1e-7)
                    fail_msg("%s, step %d: %.9f, PyTorch %.9f", text, k, lr, (double)want[k]);
                wf_schedule_watch(&s, &at, losses[k]);
            }
        }
    }
    assert_int_equal(seen, (1 << WF_SCHEDULES) - 1);
    wf_safetensors_free(file);
}

/* Four steps an epoch, by hand. */
static void schedules__count_epochs_or_steps(void **state)
{
    (void)state;
    const struct wf_schedule_state at = wf_schedule_start();
    struct wf_schedule s = { .kind = WF_SCHEDULE_STEP, .lr = 8, .gamma = 0.5, .every = 2 };
    assert_near(wf_schedule_lr(&s, &at, 7, 4), 8, 0);
    assert_near(wf_schedule_lr(&s, &at, 8, 4), 4, 0);
    s.by_step = true;
    assert_near(wf_schedule_lr(&s, &at, 7, 4), 1, 0);
    s.warmup = 1.5; /* epochs: six steps */
    s.from = 0.25;
    assert_near(wf_schedule_lr(&s, &at, 0, 4), 8 * (0.25 + 0.75 / 6), 1e-12);
    assert_near(wf_schedule_lr(&s, &at, 5, 4), 2, 1e-12);
    assert_near(wf_lr_scale(WF_SCALING_LINEAR, 8), 8, 0);
    assert_near(wf_lr_scale(WF_SCALING_ROOT, 16), 4, 0);
    assert_near(wf_lr_scale(WF_SCALING_NONE, 8), 1, 0);
}

static void scale__changes_as_pytorchs_does(void **state)
{
    (void)state;
    struct wf_safetensors *const file = open_golden();
    float want[STEPS];
    read_golden(file, wf_safetensors_find(file, "scale"), want);
    struct wf_scaler s = wf_scaler_init(true);
    s.scale = 1024;
    s.interval = 3;
    for (int t = 0; t < STEPS; t++) {
        assert_near(s.scale, (double)want[t], 0);
        wf_scaler_update(&s, t != 2 && t != 3 && t != 11);
    }
    struct wf_scaler fixed = wf_scaler_init(false);
    wf_scaler_update(&fixed, false);
    assert_near(fixed.scale, 1, 0);
    wf_safetensors_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules__agree_with_pytorch_over_20_steps),
        cmocka_unit_test(rules__the_first_update_has_the_digits_of_f32),
        cmocka_unit_test(sweep__gives_the_same_bits_with_any_number_of_threads),
        cmocka_unit_test(squares__are_those_of_a_plain_sum_and_tell_what_is_not_finite),
        cmocka_unit_test(ratios__are_one_where_a_norm_is_nothing),
        cmocka_unit_test(schedules__agree_with_pytorch),
        cmocka_unit_test(schedules__count_epochs_or_steps),
        cmocka_unit_test(scale__changes_as_pytorchs_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
