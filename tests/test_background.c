/* Checkpoints written beside the training: what was handed over is on the disk, and nothing else is. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ckpt/background.h"
#include "device/device.h"
#include "files.h"
#include "support_net.h"
#include "support_scratch.h"

/* --- a run whose weights tell the step they are of --- */

struct bench {
    struct support_net net;
    struct wf_comm *comm;
    struct wf_snapshot *snapshot;
    struct wf_checkpoint_folder folder;
    struct wf_background *background;
    pthread_mutex_t *gate; /* the writer waits for it; NULL: it does not */
    int writes;
    double takes; /* seconds of a write, at least */
};

static bool before(void *user, struct wf_err *err)
{
    struct bench *const b = user;
    (void)err;
    b->writes++; /* the thread's; read when it has ended */
    (void)usleep((useconds_t)(1e6 * b->takes));
    if (b->gate) {
        (void)pthread_mutex_lock(b->gate);
        (void)pthread_mutex_unlock(b->gate);
    }
    return true;
}

static void bench_init(struct bench *b, const char *folder, double interval, double settle)
{
    struct wf_err err = { 0 };
    pthread_mutex_t *const gate = b->gate;
    assert_int_equal(mkdir(folder, 0777), 0);
    *b = (struct bench){ .comm = wf_comm_self(), .folder.path = folder, .gate = gate };
    assert_true(support_net_init(&b->net, b->comm, "", true, &err));
    b->snapshot = wf_snapshot_new(b->net.run, b->net.optim, &err);
    assert_non_null(b->snapshot);
    b->background = wf_background_new(
        &(struct wf_background_options){ &b->folder, b->snapshot, interval, settle, before, b },
        &err);
    assert_non_null(b->background);
}

static void bench_release(struct bench *b)
{
    wf_background_free(b->background);
    wf_snapshot_free(b->snapshot);
    support_net_release(&b->net);
    wf_comm_free(b->comm);
}

static void set_weights(struct bench *b, float value)
{
    float *const params = wf_run_params(b->net.run);
    for (size_t i = 0; i < wf_run_param_count(b->net.run); i++)
        params[i] = value;
}

static bool save(struct bench *b, int64_t step, bool is_best, struct wf_err *err)
{
    const struct wf_checkpoint_info info = { .config = "", .at = { .step = step } };
    set_weights(b, (float)step);
    if (!wf_background_claim(b->background, is_best, err) || !wf_snapshot_take(b->snapshot, err) ||
        !wf_snapshot_settle(b->snapshot, err))
        return false;
    wf_background_hand(b->background, &info, is_best);
    set_weights(b, -1); /* the training goes on */
    return true;
}

/* The step of a file, whose weights must be those of that step; -1: there is none. */
static int64_t step_of(struct bench *b, const char *name)
{
    char path[64];
    struct wf_err err = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s.safetensors", b->folder.path, name);
    if (access(path, F_OK) != 0)
        return -1;
    struct wf_checkpoint *const c = wf_checkpoint_open(path, &err);
    if (!c || !wf_checkpoint_load(c, b->net.run, NULL, &err))
        fail_msg("%s", err.text);
    const int64_t step = wf_checkpoint_info(c)->at.step;
    assert_true(wf_run_params(b->net.run)[0] == (float)step);
    wf_checkpoint_free(c);
    return step;
}

static bool is_busy(struct bench *b)
{
    struct wf_err err = { 0 };
    bool busy = false;
    assert_true(wf_background_look(b->background, &busy, &err));
    return busy;
}

/* --- tests --- */

static void saves__are_on_the_disk_when_finished(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "plain", 0, 0);
    for (int64_t step = 1; step <= 4; step++) {
        assert_true(save(&b, step, step == 2, &err));
        assert_true(wf_background_finish(b.background, &err));
        assert_false(is_busy(&b));
        assert_int_equal(step_of(&b, "last"), step);
    }
    assert_int_equal(step_of(&b, "previous"), 3);
    assert_int_equal(step_of(&b, "best"), 2);
    bench_release(&b);
    assert_int_equal(b.writes, 4);
}

static void ending__writes_what_is_held(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "ended", 1000, 1000);
    assert_true(save(&b, 7, true, &err));
    assert_true(is_busy(&b));
    wf_background_free(b.background);
    b.background = NULL;
    assert_int_equal(step_of(&b, "best"), 7);
    assert_int_equal(step_of(&b, "last"), 7);
    bench_release(&b);
}

static void held_best__is_replaced_by_a_better_one_and_kept_by_another(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "held", 1000, 1000);
    for (int64_t step = 1; step <= 3; step++)
        assert_true(save(&b, step, true, &err));
    assert_int_equal(step_of(&b, "best"), -1); /* nothing was written so far */
    assert_true(save(&b, 4, false, &err));     /* the best first */
    assert_int_equal(step_of(&b, "best"), 3);
    assert_true(wf_background_finish(b.background, &err));
    assert_int_equal(step_of(&b, "last"), 4);
    assert_int_equal(step_of(&b, "previous"), 3);
    bench_release(&b);
    assert_int_equal(b.writes, 2);
}

static void held_best__is_written_when_its_time_has_come(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "settled", 1000, 0.01);
    assert_true(save(&b, 5, true, &err));
    for (const double until = wf_now() + 60; is_busy(&b) && wf_now() < until;)
        (void)usleep(1000);
    assert_int_equal(step_of(&b, "best"), 5);
    bench_release(&b);
}

static void held_best__is_written_when_another_save_is_due(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "hurried", 1000, 0.01);
    b.takes = 0.9;
    assert_true(save(&b, 4, false, &err) && wf_background_finish(b.background, &err));
    b.takes = 0;
    assert_true(save(&b, 5, true, &err)); /* held for eighteen seconds */
    (void)usleep(100000);
    assert_int_equal(step_of(&b, "best"), -1);
    const double begun = wf_now();
    wf_background_hurry(b.background);
    while (is_busy(&b) && wf_now() < begun + 60)
        (void)usleep(1000);
    assert_true(wf_now() - begun < 10);
    assert_int_equal(step_of(&b, "best"), 5);
    bench_release(&b);
}

/* Each replaces the one before, long before that has settled: the first one's time counts. */
static void held_best__is_not_held_longer_by_better_ones(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "better", 1000, 0.2);
    const double until = wf_now() + 60;
    for (int64_t step = 1; step_of(&b, "best") < 0 && wf_now() < until; step++) {
        assert_true(save(&b, step, true, &err));
        (void)usleep(10000);
    }
    assert_true(step_of(&b, "best") > 0);
    bench_release(&b);
}

/* The weights change while the file waits to be written. */
static void training__goes_on_while_a_file_is_written(void **state)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct bench b = { .gate = &gate };
    struct wf_err err = { 0 };
    (void)pthread_mutex_lock(&gate);
    bench_init(&b, "beside", 0, 0);
    assert_true(save(&b, 1, false, &err));
    set_weights(&b, 100);
    assert_true(is_busy(&b));
    (void)pthread_mutex_unlock(&gate);
    assert_true(save(&b, 2, true, &err)); /* waits for the first */
    assert_true(wf_background_finish(b.background, &err));
    assert_int_equal(step_of(&b, "best"), 2);
    bench_release(&b);
}

static void failure__is_reported_by_every_call(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 };
    bench_init(&b, "broken", 0, 0);
    assert_int_equal(rmdir("broken"), 0);
    assert_true(save(&b, 1, false, &err));
    assert_false(wf_background_finish(b.background, &err));
    assert_non_null(strstr(err.text, "cannot write 'broken/"));
    bool busy = true;
    struct wf_err again = { 0 }, third = { 0 };
    assert_false(wf_background_look(b.background, &busy, &again));
    assert_false(busy);
    assert_string_equal(again.text, err.text);
    assert_int_equal(mkdir("broken", 0777), 0); /* too late */
    assert_false(save(&b, 2, true, &third));
    assert_string_equal(third.text, err.text);
    bench_release(&b);
    assert_int_equal(b.writes, 1);
}

static void failure__of_a_snapshot_is_reported_by_every_call(void **state)
{
    struct bench b = { 0 };
    struct wf_err err = { 0 }, first = { 0 }, second = { 0 }, third = { 0 };
    bench_init(&b, "untaken", 0, 0);
    assert_true(wf_background_claim(b.background, true, &err));
    (void)wf_err_set(&first, WF_ERR_FIT, "the copy failed");
    (void)wf_err_set(&second, WF_ERR_FIT, "another");
    wf_background_fail(b.background, &first);
    wf_background_fail(b.background, &second);
    bool busy = true;
    assert_false(wf_background_look(b.background, &busy, &err));
    assert_false(busy);
    assert_string_equal(err.text, "the copy failed");
    assert_false(wf_background_finish(b.background, &third));
    assert_string_equal(third.text, err.text);
    bench_release(&b);
    assert_int_equal(b.writes, 0);
}

/* --- a device whose copies take their time --- */

enum { COPIES = 64 };

struct far {
    struct wf_context base;
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[COPIES]; /* that were begun, and have not happened */
    int n;
};

static void far_put(struct wf_context *context, const struct wf_view *dst,
                    const struct wf_view *host)
{
    (void)context;
    memcpy(dst->data, host->data, wf_view_bytes(dst));
}

static bool far_get(struct wf_context *context, const struct wf_view *host,
                    const struct wf_view *src, struct wf_err *err)
{
    far_put(context, host, src);
    return err != NULL;
}

static void far_keep(struct wf_context *context, const struct wf_view *host,
                     const struct wf_view *src)
{
    struct far *const f = (struct far *)context;
    assert_true(f->n < COPIES);
    f->copies[f->n].to = host->data;
    f->copies[f->n].from = src->data;
    f->copies[f->n++].bytes = wf_view_bytes(host);
}

static void far_fence(struct wf_context *context)
{
    struct far *const f = (struct far *)context;
    for (; f->n > 0; f->n--)
        memcpy(f->copies[f->n - 1].to, f->copies[f->n - 1].from, f->copies[f->n - 1].bytes);
}

static bool far_kept(struct wf_context *context, struct wf_err *err)
{
    far_fence(context);
    return err != NULL;
}

static void *far_take(struct wf_context *context, size_t bytes)
{
    return context && bytes ? malloc(bytes) : NULL;
}

static void far_give_back(struct wf_context *context, void *memory)
{
    (void)context;
    free(memory);
}

/* Statistics change with the next pass, weights only once the copy is complete. */
static void snapshot__of_a_device_is_taken_beside_its_next_pass(void **state)
{
    struct wf_device device = wf_device_reference;
    device.transfer = (struct wf_device_transfer){ .put = far_put,
                                                   .get = far_get,
                                                   .keep = far_keep,
                                                   .fence = far_fence,
                                                   .kept = far_kept,
                                                   .host_alloc = far_take,
                                                   .host_free = far_give_back };
    struct far far = { .base.device = &device };
    struct wf_err err = { 0 };
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    if (!support_net_init_on(&n, &far.base, comm, "", true, &err))
        fail_msg("%s", err.text);
    struct wf_snapshot *const s = wf_snapshot_new(n.run, n.optim, &err);
    assert_non_null(s);
    wf_run_params(n.run)[0] = wf_run_states(n.run)[0] = n.optim->states[1][0] = 5;
    assert_true(wf_snapshot_take(s, &err));
    assert_true(far.n > 0);        /* the device goes on */
    wf_run_states(n.run)[0] = 100; /* a pass */
    assert_true(wf_snapshot_settle(s, &err));
    wf_run_params(n.run)[0] = n.optim->states[1][0] = 100; /* an update */
    const struct wf_checkpoint_info info = { .config = "" };
    assert_true(wf_snapshot_write(s, "far.safetensors", &info, &err));
    struct wf_checkpoint *const c = wf_checkpoint_open("far.safetensors", &err);
    assert_true(c && wf_checkpoint_load(c, n.run, n.optim, &err));
    assert_true(wf_run_params(n.run)[0] == 5 && wf_run_states(n.run)[0] == 5 &&
                n.optim->states[1][0] == 5);
    wf_checkpoint_free(c);
    wf_snapshot_free(s);
    support_net_release(&n);
    wf_comm_free(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves__are_on_the_disk_when_finished),
        cmocka_unit_test(ending__writes_what_is_held),
        cmocka_unit_test(held_best__is_replaced_by_a_better_one_and_kept_by_another),
        cmocka_unit_test(held_best__is_written_when_its_time_has_come),
        cmocka_unit_test(held_best__is_written_when_another_save_is_due),
        cmocka_unit_test(held_best__is_not_held_longer_by_better_ones),
        cmocka_unit_test(training__goes_on_while_a_file_is_written),
        cmocka_unit_test(failure__is_reported_by_every_call),
        cmocka_unit_test(failure__of_a_snapshot_is_reported_by_every_call),
        cmocka_unit_test(snapshot__of_a_device_is_taken_beside_its_next_pass),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
