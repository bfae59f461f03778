/* Parts of the command 'check' that have a file of their own. */
#pragma once

#include "cli/cli.h"

/* check --calibrate */
[[nodiscard]] bool wf_check_calibrate(struct wf_cli *cli, struct wf_err *err);
