/* What `bench` does beside timing a step; each in a file of its own. */
#pragma once

#include "base/median.h"
#include "cli/cli.h"
#include "train/job.h"

/* The emulated link of comm.emulate, where there is one. */
void wf_job_add_link(const struct wf_job *job, struct cJSON *json);

/* bench allreduce: every way to sum, over sizes. Collective under a launcher. */
[[nodiscard]] bool wf_bench_allreduce(struct wf_cli *cli, int64_t rounds, struct wf_err *err);

/* bench --scaling: more and more ranks, as threads. */
[[nodiscard]] bool wf_bench_scaling(struct wf_cli *cli, int64_t steps, int64_t warmup,
                                    struct wf_err *err);

/* bench --overlap: a step with and without overlap, in turns. Collective under a launcher. */
[[nodiscard]] bool wf_bench_overlap(struct wf_cli *cli, int64_t steps, int64_t warmup,
                                    struct wf_err *err);
