/*
 * Blended windows. The oracle runs the network on each window by itself, as an image, and adds up the results
 * with weights in f64 that are written down here again: a bell along each axis, divided by the sum of
 * all bells at the position.
 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "exec/stream.h"
#include "ops/build.h"
#include "support.h"

enum { IN = 2, OUT = 3 };

static bool fill_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    (void)user;
    (void)err;
    wf_run_init_weights(run, 5);
    return true;
}

static double pixel(const int64_t at[WF_AXES])
{
    return sin(0.7 * (double)at[WF_D] + 1.3 * (double)at[WF_H] + 0.4 * (double)at[WF_W] +
               (double)at[WF_C]);
}

struct job {
    struct wf_shape window, whole;
    int64_t step[WF_AXES], tile;
    struct wf_graph *g;
    struct wf_value *x, *y;
    float *got; /* [pixels of the whole][OUT] */
};

/* A norm over the window and a border that a window of a larger image would not have. */
static void build(struct job *job)
{
    job->g = wf_graph_new(&(struct wf_graph_options){ .training = false });
    job->x = wf_input(job->g, "image", WF_F32, job->window);
    const bool deep = job->window.at[WF_D] > 1;
    struct wf_value *v = wf_conv(
        job->g, job->x,
        &(struct wf_conv){
            .name = "a", .out = 4, .kernel = { deep ? 3 : 1, 3, 3 }, .same = true, .bias = true });
    v = wf_instance_norm(job->g, v, &(struct wf_norm){ .name = "n", .act = WF_RELU });
    job->y = wf_conv(job->g, v, &(struct wf_conv){ .name = "b", .out = OUT, .bias = true });
    struct wf_err err = { 0 };
    if (!wf_graph_ok(job->g, &err))
        fail_msg("%s", err.text);
}

/* --- the oracle --- */

static int64_t place(const struct job *job, int axis, int64_t i)
{
    const int64_t last = job->whole.at[axis] - job->window.at[axis];
    return i * job->step[axis] < last ? i * job->step[axis] : last;
}

static int64_t count(const struct job *job, int axis)
{
    int64_t n = 1;
    while (place(job, axis, n - 1) < job->whole.at[axis] - job->window.at[axis])
        n++;
    return n;
}

static double bell(int64_t at, int64_t extent)
{
    const double middle = 0.5 * (double)(extent - 1),
                 x = 8 * ((double)at - middle) / (double)extent;
    const double y = exp(-x * x / 2);
    return y < 1e-3 ? 1e-3 : y;
}

/* One window as an image: its result is added to `want`, its weights to `total`. */
static void add_window(const struct job *job, struct wf_run *run, const int64_t lo[WF_AXES],
                       double *want, double *total)
{
    struct wf_err err = { 0 };
    const struct wf_view x = wf_run_view(run, job->x);
    for (struct wf_cursor c = wf_cursor(x.box); wf_cursor_next(&c);) {
        int64_t at[WF_AXES];
        for (int a = 0; a < WF_AXES; a++)
            at[a] = c.at[a] + lo[a];
        wf_view_set(&x, c.at, pixel(at));
    }
    assert_true(wf_run_step(run, &err));
    const struct wf_view y = wf_run_view(run, job->y);
    for (struct wf_cursor c = wf_cursor(y.box); wf_cursor_next(&c);) {
        double weight = 1;
        int64_t index = 0;
        for (int a = WF_D; a < WF_C; a++) {
            weight *= bell(c.at[a], job->window.at[a]);
            index = index * job->whole.at[a] + lo[a] + c.at[a];
        }
        want[index * OUT + c.at[WF_C]] += weight * wf_view_at(&y, c.at);
        total[index * OUT + c.at[WF_C]] += weight;
    }
}

static double *find_wanted(const struct job *job)
{
    struct job one = *job;
    one.window.at[WF_N] = 1;
    build(&one);
    wf_graph_output(one.g, one.y);
    struct wf_err err = { 0 };
    const struct wf_mesh mesh = wf_mesh_one();
    struct wf_global_plan *const global = wf_global_plan_new(
        one.g, &mesh, &(struct wf_plan_options){ .device = &wf_device_cpu, .threads = 1 }, &err);
    struct wf_plan *const plan = wf_plan_new(global, 0, &err);
    struct wf_comm *const self = wf_comm_self();
    struct wf_run *const run = wf_run_new(plan, self, 0, &err);
    assert_true(fill_weights(NULL, run, &err));
    const size_t all = (size_t)(job->whole.at[WF_D] * job->whole.at[WF_H] * job->whole.at[WF_W]);
    double *const want = calloc(all * OUT, sizeof *want), *const total = calloc(all * OUT, 8);
    for (int64_t d = 0; d < count(job, WF_D); d++)
        for (int64_t h = 0; h < count(job, WF_H); h++)
            for (int64_t w = 0; w < count(job, WF_W); w++)
                add_window(&one, run,
                           (int64_t[WF_AXES]){ 0, place(job, WF_D, d), place(job, WF_H, h),
                                               place(job, WF_W, w), 0 },
                           want, total);
    for (size_t i = 0; i < all * OUT; i++)
        want[i] /= total[i];
    free(total);
    wf_run_free(run);
    wf_comm_free(self);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    wf_graph_free(one.g);
    return want;
}

/* --- the stream --- */

static void finish(void *user, const float *blended, int64_t pixels, void *const outputs[])
{
    (void)user;
    memcpy(outputs[0], blended, (size_t)pixels * OUT * sizeof *blended);
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct job *const job = arg;
    struct wf_stream_blend blend = { .whole = job->whole, .finish = finish };
    memcpy(blend.step, job->step, sizeof blend.step);
    const struct wf_stream_options options = { .plan = { .device = &wf_device_cpu, .threads = 1 },
                                               .weights = fill_weights,
                                               .tile = job->tile,
                                               .blend = &blend };
    struct wf_stream *const s = wf_stream_new(job->g, 1, &job->y, &options, comm, err);
    if (!s)
        return false;
    bool ok = true;
    for (int64_t i = wf_comm_rank(comm); ok && i < wf_stream_windows(s); i += wf_comm_size(comm)) {
        struct wf_stream_work work = { .value = job->x };
        struct wf_region box;
        const struct wf_region band = wf_stream_window(s, i);
        const int axis = job->whole.at[WF_D] > 1 ? WF_D : WF_H;
        if (job->tile > 0 && band.hi[WF_H] < job->whole.at[WF_H])
            ok = band.hi[WF_H] % 16 == 0 ||
                 wf_err_set(err, WF_ERR_USAGE, "band %lld is no rows of tiles", (long long)i);
        ok = ok && wf_stream_reads(s, i, job->x, &box, err);
        work.input =
            wf_view_dense(malloc((size_t)(wf_region_count(box) + 1) * sizeof(float)), WF_F32, box);
        for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);)
            wf_view_set(&work.input, c.at, pixel(c.at));
        work.outputs[0] = job->got + band.lo[axis] * (wf_region_count(band) /
                                                      wf_region_extent(band, (enum wf_axis)axis));
        ok = ok && wf_stream_begin(s, i, &work, err) && wf_stream_end(s, &work, err);
        free(work.input.data);
    }
    wf_stream_free(s);
    return ok;
}

static void expect_blended(struct wf_shape window, struct wf_shape whole, const int64_t step[3],
                           int64_t tile)
{
    struct job job = { .window = window, .whole = whole, .tile = tile };
    struct wf_err err = { 0 };
    memcpy(&job.step[WF_D], step, 3 * sizeof *step);
    const size_t all = (size_t)(whole.at[WF_D] * whole.at[WF_H] * whole.at[WF_W]) * OUT;
    double *const want = find_wanted(&job);
    job.got = malloc(all * sizeof *job.got);
    build(&job);
    for (int ranks = 1; ranks <= 3; ranks++) {
        memset(job.got, 0x7f, all * sizeof *job.got);
        if (!wf_comm_threads_run(ranks, body, &job, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < all; i++)
            if (!(fabs((double)job.got[i] - want[i]) <= 1e-5))
                fail_msg("%d ranks: element %zu is %g, not %g", ranks, i, (double)job.got[i],
                         want[i]);
    }
    wf_graph_free(job.g);
    free(job.got);
    free(want);
}

static void windows__that_do_not_divide_the_image(void **state)
{
    (void)state;
    expect_blended(WF_SHAPE(1, 1, 8, 10, IN), WF_SHAPE(1, 1, 27, 23, IN), (int64_t[]){ 1, 4, 5 },
                   0);
}

static void windows__several_at_a_time(void **state)
{
    (void)state;
    expect_blended(WF_SHAPE(3, 1, 8, 8, IN), WF_SHAPE(1, 1, 16, 41, IN), (int64_t[]){ 1, 3, 6 }, 0);
}

static void volume__has_rows_along_its_depth(void **state)
{
    (void)state;
    expect_blended(WF_SHAPE(2, 4, 6, 6, IN), WF_SHAPE(1, 9, 11, 6, IN), (int64_t[]){ 3, 2, 1 }, 0);
}

/* Steps above a tile and below one; the last band of a row without a window of its own. */
static void bands__of_whole_tiles(void **state)
{
    (void)state;
    expect_blended(WF_SHAPE(1, 1, 30, 10, IN), WF_SHAPE(1, 1, 101, 23, IN), (int64_t[]){ 1, 21, 5 },
                   256);
    expect_blended(WF_SHAPE(1, 1, 8, 10, IN), WF_SHAPE(1, 1, 45, 23, IN), (int64_t[]){ 1, 3, 5 },
                   256);
    expect_blended(WF_SHAPE(1, 1, 8, 10, IN), WF_SHAPE(1, 1, 9, 23, IN), (int64_t[]){ 1, 3, 5 },
                   256);
}

static void one_window__is_the_image(void **state)
{
    (void)state;
    expect_blended(WF_SHAPE(1, 1, 12, 9, IN), WF_SHAPE(1, 1, 12, 9, IN), (int64_t[]){ 1, 6, 9 }, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__that_do_not_divide_the_image),
        cmocka_unit_test(windows__several_at_a_time),
        cmocka_unit_test(volume__has_rows_along_its_depth),
        cmocka_unit_test(bands__of_whole_tiles),
        cmocka_unit_test(one_window__is_the_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
