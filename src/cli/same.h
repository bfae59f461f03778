/* Were all ranks of a launcher given the same? */
#ifndef WF_CLI_SAME_H
#define WF_CLI_SAME_H

#include "cli/cli.h"

/* Collective over cli->world. False on every rank, with the first difference of the lowest rank that
 * was started with other arguments, keys or flags than rank 0. */
[[nodiscard]] bool wf_cli_same(struct wf_cli *cli, struct wf_err *err);

#endif
