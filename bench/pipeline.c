/*
 * The bubble of a pipeline: a chain of 8 equal blocks (3 x 3 convolution of 64 channels and ReLU, 128 x 128 unless given),
 * 8 micro-batches, one thread for each stage. For every number of stages and schedule: the step, the part of
 * it in which a stage waits as it was measured (median of several steps), as the planner foretells it, and,
 * for 1f1b, (p - 1) / (m + p - 1). It needs as many idle cores as stages. Not a test:
 *
 *     build/bench/pipeline [size=64] 2 4
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/clock.h"
#include "base/memory.h"
#include "device/device.h"
#include "exec/run.h"
#include "ops/build.h"
#include "train/all_ranks.h"

enum { BLOCKS = 8, MICRO = 8, CHANNELS = 64, STEPS = 7, MOST_STAGES = 8 };

struct job {
    const struct wf_global_plan *global;
    double seconds[STEPS],
        waits[STEPS]; /* of a step; and the mean over stages of the part that waits */
};

static struct wf_graph *build(int size)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    const struct wf_shape shape = WF_SHAPE(1, 1, size, size, CHANNELS);
    struct wf_value *const x = wf_input(g, "image", WF_F32, shape);
    struct wf_value *y = x;
    for (int i = 0; i < BLOCKS; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "block%d", i);
        y = wf_conv(g, y,
                    &(struct wf_conv){
                        .name = name, .out = CHANNELS, .kernel = { 1, 3, 3 }, .same = true });
        (void)snprintf(name, sizeof name, "act%d", i);
        y = wf_activation(g, y, name, WF_RELU, 0);
    }
    struct wf_value *const loss =
        wf_mse(g, y, wf_input(g, "target", WF_F32, shape), &(struct wf_loss){ .name = "loss" });
    struct wf_err err = { 0 };
    struct wf_value
        *dx; /* the first block has a gradient of its input as well, or it would be shorter */
    wf_graph_output(g, loss);
    if (!wf_graph_grad(g, loss, NULL, 1, (struct wf_value *[]){ x }, &dx, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    wf_graph_output(g, dx);
    return g;
}

static bool body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct job *const job = arg;
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(1);
#endif
    const int rank = wf_comm_rank(comm), ranks = wf_comm_size(comm);
    struct wf_plan *const plan = wf_plan_new(job->global, rank, err);
    struct wf_run *const run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    float *const sum = run ? wf_take_zeroed(wf_run_param_count(run) + 1, sizeof *sum) : NULL;
    bool ok = run != NULL;
    if (ok) {
        wf_run_init_weights(run, 1);
        wf_run_set_carry(run, &(struct wf_run_carry){ .sum = sum });
    }
    for (int i = -2; ok && i < STEPS; i++) {
        double start = 0, wait = 0;
        ok = wf_comm_barrier(comm, err);
        start = wf_now();
        ok = ok && wf_run_step(run, err) && wf_comm_barrier(comm, err);
        const double seconds = wf_now() - start;
        wait = ok ? (1 - wf_run_times(run).compute / seconds) / ranks : 0;
        ok = ok && wf_comm_sum(comm, &wait, 1, WF_F64, err);
        if (ok && rank == 0 && i >= 0) {
            job->seconds[i] = seconds;
            job->waits[i] = wait;
        }
    }
    free(sum);
    wf_run_free(run);
    wf_plan_free(plan);
    return ok;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, STEPS, sizeof *values, by_value);
    return values[STEPS / 2];
}

static bool measure(const struct wf_graph *g, int stages, enum wf_pipe_schedule schedule,
                    struct wf_err *err)
{
    struct wf_mesh mesh = wf_mesh_one();
    mesh.at[WF_MESH_PIPE] = stages;
    const struct wf_plan_options options = {
        .device = &wf_device_cpu,
        .threads = 1,
        .pipe = { .schedule = schedule, .micro_batches = MICRO },
    };
    struct wf_global_plan *const global = wf_global_plan_new(g, &mesh, &options, err);
    struct wf_all_ranks *const all = global ? wf_all_ranks_new(global, NULL, err) : NULL;
    struct job job = { .global = global };
    const bool ok = all && wf_comm_threads_run(stages, body, &job, err);
    if (ok)
        (void)printf("%6d  %-12s %9.1f  %9.3f  %9.3f", stages, wf_pipe_schedule_names[schedule],
                     1e3 * median(job.seconds), median(job.waits), wf_all_ranks_bubble(all));
    if (ok)
        (void)printf(schedule == WF_PIPE_1F1B ? "  %9.3f\n" : "\n",
                     (double)(stages - 1) / (MICRO + stages - 1));
    wf_all_ranks_free(all);
    wf_global_plan_free(global);
    return ok;
}

int main(int argc, char **argv)
{
    int size = 128;
    const bool given = argc > 1 && sscanf(argv[1], "size=%d", &size) == 1;
    struct wf_graph *const g = build(size);
    struct wf_err err = { 0 };
    bool ok = true;
    (void)printf("stages  schedule       step ms     bubble    planned    formula\n");
    for (int i = 1 + given; ok && i < argc; i++) {
        const int stages = atoi(argv[i]);
        if (stages < 1 || stages > MOST_STAGES)
            ok = wf_err_set(&err, WF_ERR_USAGE, "'%s': use 1 to %d stages", argv[i], MOST_STAGES);
        for (int s = 0; ok && wf_pipe_schedule_names[s] && (s == 0 || stages > 1); s++)
            if (s != WF_PIPE_INTERLEAVED || 2 * stages <= BLOCKS)
                ok = measure(g, stages, (enum wf_pipe_schedule)s, &err);
    }
    if (!ok)
        (void)fprintf(stderr, "pipeline: %s\n", err.text);
    wf_graph_free(g);
    return !ok;
}
