/* mpirun: 2 3 */
/* The public library where a launcher started the processes: all of it in one session, and the same
 * results on every process. Without a launcher the ranks are two threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "widefield.h"

enum { SAMPLES = 4, SIDE = 24, PLANE = SIDE * SIDE, LARGE = 40 };

static float images[SAMPLES][PLANE], large[LARGE * LARGE];
static uint8_t labels[SAMPLES][PLANE];

static void check(bool ok, const struct wf_err *err)
{
    if (!ok)
        fail_msg("%s", err->text);
}

static struct wf_session *open_session(void)
{
    const char *const settings[][2] = { { "model.base", "4" },
                                        { "model.depth", "1" },
                                        { "train.epochs", "3" },
                                        { "train.batch", "1" },
                                        { "data.validation", "0.25" } };
    struct wf_err err = WF_ZERO;
    struct wf_options *const o = wf_options_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(wf_options_set(o, settings[i][0], settings[i][1], &err), &err);
    if (!getenv("WIDEFIELD_TEST_COMM"))
        check(wf_options_set(o, "run.ranks", "2", &err), &err);
    struct wf_session *const s = wf_session_new(o, &err);
    check(s != NULL, &err);
    wf_options_free(o);
    return s;
}

static struct wf_data *make_data(void)
{
    static const int64_t extents[] = { SIDE, SIDE };
    struct wf_err err = WF_ZERO;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < PLANE; i++) {
            labels[s][i] = (uint8_t)((i / 7 + s) % 2);
            images[s][i] = (float)(10 * labels[s][i] + i % 5);
        }
    for (int i = 0; i < LARGE * LARGE; i++)
        large[i] = (float)(i * 31 % 20);
    struct wf_data *const d = wf_data_arrays(&(struct wf_arrays){ .samples = SAMPLES,
                                                                  .dims = 2,
                                                                  .extents = extents,
                                                                  .channels = 1,
                                                                  .image_block = images,
                                                                  .label_dtype = WF_U8,
                                                                  .label_block = labels },
                                             &err);
    check(d != NULL, &err);
    return d;
}

static void predict(struct wf_predictor *p, int32_t *to)
{
    struct wf_err err = WF_ZERO;
    memset(to, 0xff, sizeof(int32_t) * LARGE * LARGE);
    const struct wf_predict_arrays arrays = {
        .dims = 2, .extents = { LARGE, LARGE }, .image = large, .labels = to
    };
    check(p && wf_predictor_array(p, &arrays, &err), &err);
    for (int i = 0; i < LARGE * LARGE; i++)
        assert_true(to[i] == 0 || to[i] == 1);
}

static void train(struct wf_session *s, const struct wf_data *d)
{
    static int32_t found[2][LARGE * LARGE];
    struct wf_err err = WF_ZERO;
    struct wf_step_info step;
    struct wf_epoch_info epoch, again;
    struct wf_scores_info scores;
    struct wf_trainer *const t = wf_trainer_new(s, d, NULL, &err);
    check(t && wf_trainer_step(t, &step, &err), &err);
    assert_true(step.step == 1 && step.loss > 0); /* on every process */
    check(wf_trainer_epoch(t, &epoch, &err) && wf_trainer_evaluate(t, &scores, &err), &err);
    assert_true(epoch.validated && scores.loss == epoch.validation);
    check(wf_trainer_save(t, "shared.safetensors", &err), &err);
    struct wf_predictor *p = wf_predictor_of(t, &err);
    predict(p, found[0]);
    wf_predictor_free(p);
    check(wf_trainer_epoch(t, &epoch, &err) && wf_trainer_load(t, "shared.safetensors", &err) &&
              wf_trainer_epoch(t, &again, &err),
          &err);
    assert_true(epoch.loss == again.loss);
    /* A run that has ended has its position and its last loss. */
    check(wf_trainer_epoch(t, &epoch, &err) && wf_trainer_save(t, "ended.safetensors", &err) &&
              wf_trainer_load(t, "ended.safetensors", &err) && wf_trainer_epoch(t, &again, &err) &&
              wf_trainer_step(t, &step, &err),
          &err);
    assert_true(again.ended && again.epoch == 3 && again.step == epoch.step);
    assert_true(again.loss == epoch.loss && isnan(again.metric));
    assert_true(step.ended && step.step == epoch.step && isnan(step.loss));
    wf_trainer_free(t);
    p = wf_predictor_new(s, "shared.safetensors", &err);
    predict(p, found[1]);
    assert_memory_equal(found[0], found[1], sizeof found[0]);
    wf_predictor_free(p);
}

/* The sum of a weight and its gradient, by an exec. */
static void run_graph(struct wf_session *s)
{
    struct wf_err err = WF_ZERO;
    float in[64], out[64], weight[9], gradient[9];
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *const x = wf_input(g, "x", WF_F32, wf_shape_make(1, 1, 8, 8, 1));
    struct wf_value *const y = wf_conv(
        g, x, &(struct wf_conv){ .name = "c", .out = 1, .kernel = { 1, 3, 3 }, .same = true });
    struct wf_value *const loss = wf_mse(g, y, x, &(struct wf_loss){ .name = "loss" });
    wf_graph_output(g, y);
    check(wf_graph_ok(g, &err) && wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err), &err);
    struct wf_exec *const e = wf_exec_new(s, g, &err);
    check(e != NULL, &err);
    for (int i = 0; i < 64; i++)
        in[i] = (float)i;
    for (int i = 0; i < 9; i++)
        weight[i] = i == 4;
    check(wf_exec_put(e, "x", in, 64, &err) && wf_exec_put(e, "c.weight", weight, 9, &err) &&
              wf_exec_step(e, &err) && wf_exec_get(e, wf_value_name(y), out, 64, &err) &&
              wf_exec_get(e, "grad.c.weight", gradient, 9, &err),
          &err);
    assert_memory_equal(in, out, sizeof in); /* the identity: no loss, no gradient */
    assert_true(gradient[4] == 0);
    wf_exec_free(e);
    wf_graph_free(g);
}

static void session__does_everything_on_all_ranks(void **state)
{
    struct wf_session *const s = open_session();
    struct wf_data *const d = make_data();
    struct wf_err err = WF_ZERO;
    struct wf_plan_info plan;
    struct wf_verify_info verify;
    const int64_t size[] = { 1, 1, 32, 32 };
    assert_true(wf_session_rank(s) < wf_session_size(s));
    check(wf_session_plan(s, 4, size, &plan, &err), &err);
    assert_true(plan.ranks > 1);
    check(wf_session_verify(s, 4, size, &verify, &err), &err);
    assert_true(verify.same);
    train(s, d);
    run_graph(s);
    /* Under a launcher a failure is the last that a session does. */
    assert_null(wf_predictor_new(s, "missing.safetensors", &err));
    assert_non_null(strstr(err.text, "missing.safetensors"));
    wf_data_free(d);
    wf_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(session__does_everything_on_all_ranks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
