/* What `bench` does beside timing a step; each in a file of its own. */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "base/median.h"
#include "cli/cli.h"
#include "comm/comm.h"

/* How sums over ranks are to be made, by the options comm.*. */
struct wf_sum_options wf_job_sum_options(const struct wf_options *o);
extern const char *const wf_sum_way_names[]; /* of the option comm.allreduce; ends with NULL */

/* bench allreduce: every way to sum, over sizes. Collective under a launcher. */
[[nodiscard]] bool wf_bench_allreduce(struct wf_cli *cli, int64_t rounds, struct wf_err *err);

/* bench --scaling: more and more ranks, as threads. */
[[nodiscard]] bool wf_bench_scaling(struct wf_cli *cli, int64_t steps, int64_t warmup,
                                    struct wf_err *err);

/* bench --overlap: a step with and without overlap, in turns. Collective under a launcher. */
[[nodiscard]] bool wf_bench_overlap(struct wf_cli *cli, int64_t steps, int64_t warmup,
                                    struct wf_err *err);

#endif
