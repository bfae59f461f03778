/* Are all ranks of a launcher well, and were they given the same? */
#ifndef WF_CLI_SAME_H
#define WF_CLI_SAME_H

#include "cli/cli.h"
#include "data/fingerprint.h"

/* Collective over cli->world, if there is one. True only when every rank is well; a rank that is not
 * tells the others at once, wherever they are: they may have passed this place, or wait before it. */
[[nodiscard]] bool wf_cli_agree(const struct wf_cli *cli, bool ok, struct wf_err *err);

/* Collective over cli->world. False on every rank, with the first difference of the lowest rank that
 * was started with other arguments, keys or flags than rank 0. */
[[nodiscard]] bool wf_cli_same(struct wf_cli *cli, struct wf_err *err);
/* Collective over cli->world, if there is one. Does every rank see the same file at `path`, by its digest? */
[[nodiscard]] bool wf_cli_same_file(struct wf_cli *cli, const char *path, const char *digest,
                                    struct wf_err *err);
/* Collective over cli->world, if there is one. Does every rank see the same dataset? */
[[nodiscard]] bool wf_cli_same_data(struct wf_cli *cli, const struct wf_dataset *data,
                                    const struct wf_fingerprint *mine, struct wf_err *err);

#endif
