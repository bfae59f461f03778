/* plan --scaling: a step over several numbers of devices, on paper (train/scaling.h). */
#pragma once

#include "cli/cli.h"

[[nodiscard]] bool wf_plan_scaling(struct wf_cli *cli, struct wf_err *err);
