/* From the options of the command to what the library takes: the only place that knows both. */
#ifndef WF_CLI_JOB_OPTIONS_H
#define WF_CLI_JOB_OPTIONS_H

#include "cli/cli.h"
#include "train/job.h"

/* Texts and the network's own options live as long as the options. */
[[nodiscard]] bool wf_cli_settings(const struct wf_cli *cli, struct wf_settings *s,
                                   struct wf_err *err);
/* Collective under a launcher. A job of the options; NULL on error, then on every rank. */
struct wf_job *wf_cli_job(const struct wf_cli *cli, const struct wf_job_files *files,
                          struct wf_err *err);
/* Puts what a dataset has settled back into the options, where nobody gave another value; `where` says
 * which dataset. */
[[nodiscard]] bool wf_cli_take_settled(struct wf_cli *cli, const struct wf_settings *s,
                                       const char *where, struct wf_err *err);
/* How ranks sum and how long they may wait, also for commands without a job. */
struct wf_comm_settings wf_cli_comm_settings(const struct wf_options *o);

#endif
